/* loading.h - the order in which models are loaded, and how long loads take.
 *
 * A load spends most of its time timing the layers and converting the weights to the device's
 * layouts, unless both are kept (kept_dir.h). So a load is either quick or slow, and its time
 * follows from the bytes of the weights. The model with the smallest ratio of load time to demand
 * (MODEL_LOAD) comes first; this keeps the total wait as short as possible.
 *
 * Quick loads may run in several workers at once. Slow ones, which time their layers, run one at a
 * time, in a worker that nobody needs.
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
/* Looks once for what is kept of m for a worker of this identity, and at its size. */
void loading_look(struct model *m, const char *identity);
/* What is kept of m for this worker, to read: OWNED; -1: nothing is. */
int loading_open_kept(const struct worker *w, struct model *m);
/* Is that file to be mapped, not read? */
bool loading_may_map(const struct model *m, int fd);
/* Does a load before b? Call loading_look() on both first. */
bool loading_is_before(const struct model *a, const struct model *b);
/* Learns from a slow load that took ns. */
void loading_took(struct model *m, int64_t ns);
struct loading_step loading_step_of(struct store *s, const struct model *m);

#endif
