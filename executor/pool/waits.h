/* waits.h - how long a run that comes now may have to wait for a worker.
 *
 * A worker that compiles takes runs between two pieces of its work, so a run waits for one piece;
 * how long those are is measured. One that compiles a job, or starts, takes none before it is done.
 * The scheduler lets nobody in whom such a wait would make late. */
#ifndef SH_EXECUTOR_POOL_WAITS_H
#define SH_EXECUTOR_POOL_WAITS_H

#include "executor/pool/pool.h"

#define WAITS_NOBODY_NS INT64_C(10000000000) /* none takes runs, for nobody knows how long */

struct waits { /* zeroed: nothing measured yet */
    struct waits_piece {
        int64_t handle; /* what the worker compiles; 0: nothing */
        uint32_t n_done;
        int64_t since_ns;
    } now[POOL_MAX_WORKERS];
    int64_t longest_ns, longest_at_ns; /* the longest piece of late, and when it ended */
};

/* Measures, and says how long; asked whenever the loop has come to rest. trainer: the worker where
 * a job runs or stands, or NULL. */
int64_t waits_look(struct waits *w, struct pool *p, const struct worker *trainer, int64_t now_ns);

#endif
