/* loading.h - in which order models are loaded, and how long that will take.
 *
 * Most of the time of a load is that of its layers being timed and its weights being brought to
 * the device's layouts, unless both are kept (kept_dir.h). So a load is quick or slow, and by the
 * bytes of its weights it can be said how long it takes. First comes what takes the least time for
 * how much it is wanted (MODEL_LOAD): so many wait as short as can be.
 *
 * Quick loads may run in several workers at once; of slow ones there is one at a time, which times
 * its layers, in a worker that nobody needs.
 */
#ifndef SH_EXECUTOR_MODELS_LOADING_H
#define SH_EXECUTOR_MODELS_LOADING_H

#include "executor/models/store.h"

struct loading_step { /* for people */
    const char *step; /* static */
    uint32_t done, total;
    int64_t left_ns;
};

/* Sets m->kept for a worker of this identity. */
int loading_name(struct model *m, const char *identity, struct sh_err *err);
/* Looks once what is kept of it for a worker of this identity, and how large it is. */
void loading_look(struct model *m, const char *identity);
/* a before b? Both have been looked at. */
bool loading_is_before(const struct model *a, const struct model *b);
/* Learns from a slow load. */
void loading_took(struct model *m, int64_t ns);
struct loading_step loading_step_of(struct store *s, const struct model *m);

#endif
