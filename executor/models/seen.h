/* seen.h - counts how often each shape of a version is asked for, in a file, so that the most
 * popular ones are compiled again after a start, before anybody asks.
 *
 * The file is <state-dir>/shapes/<executor>.<package>, with a line "count: size size..." for each
 * shape, most used first. It counts up to SEEN_MAX shapes, compiled or not; half of --model-shapes
 * are compiled again. When the counts add up to SEEN_SUM all are halved, so that old use fades. If
 * there is no room, a new shape replaces the least used one and inherits its count, so that a
 * popular shape cannot be missed. Changes are written within SEEN_WRITE_NS; unloading the version
 * removes the file. Damaged lines are ignored: the file is a hint.
 */
#ifndef SH_EXECUTOR_MODELS_SEEN_H
#define SH_EXECUTOR_MODELS_SEEN_H

#include "common/units.h"
#include "executor/models/store.h"

#define SEEN_MAX 256u
#define SEEN_SUM 65536u
#define SEEN_WRITE_NS SH_S(5)

struct seen_shape {
    struct sh_sizes sizes;
    uint64_t n;
};

/* Counts one run of the version with these sizes. */
void seen_count(struct model *version, const struct sh_sizes *sizes);
/* Adds its shapes from the file, to compile when there is nothing else to do. */
void seen_bring(struct model *version);
/* Once a second: writes what has changed. */
void seen_second(struct store *s);
void seen_forget(struct model *version); /* the file too */

#endif
