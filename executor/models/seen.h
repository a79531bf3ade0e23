/* seen.h - how often each shape of a version was asked for, in a file, so that those asked for most
 * are compiled again after a start, before anybody asks: <state-dir>/shapes/<executor>.<package>, a
 * line "count: size size..." for each, the most used first. SEEN_MAX are counted, also those that
 * are not compiled any more; half of --model-shapes come back. When the counts add up to SEEN_SUM
 * all are halved, so that what was used long ago fades. A shape that is new where there is no room
 * takes the place of the least used, with its count, so that one that is used a lot cannot be
 * missed. The file follows within SEEN_WRITE_NS; it is removed when the version is unloaded. What
 * is damaged in it is left out: it is a hint.
 */
#ifndef SH_EXECUTOR_MODELS_SEEN_H
#define SH_EXECUTOR_MODELS_SEEN_H

#include "executor/models/store.h"

#define SEEN_MAX 256u
#define SEEN_SUM 65536u
#define SEEN_WRITE_NS INT64_C(5000000000)

struct seen_shape {
    struct sh_sizes sizes;
    uint64_t n;
};

/* One run more of the version with these sizes. */
void seen_count(struct model *version, const struct sh_sizes *sizes);
/* Its shapes, to be compiled when nothing else is. */
void seen_bring(struct model *version);
/* Once a second: writes what has changed. */
void seen_second(struct store *s);
void seen_forget(struct model *version); /* the file too */

#endif
