/* waits.h - how long a run that comes now may have to wait for a worker that has its version.
 *
 * A worker that compiles takes runs between two pieces of its work, so a run waits for one piece;
 * the worker says how long those are (worker_ctl.h). One that is about to compile is free only if
 * another one that takes runs has the version as well: then one of them will be. One that compiles
 * a job, or starts, takes none before it is done. The scheduler lets nobody in whom such a wait
 * would make late. */
#ifndef SH_EXECUTOR_POOL_WAITS_H
#define SH_EXECUTOR_POOL_WAITS_H

#include "common/units.h"
#include "executor/pool/pool.h"

#define WAITS_NOBODY_NS SH_S(10) /* none takes runs, for nobody knows how long; most */

#define WAITS_STEP_NS SH_MS(10) /* told as a multiple of this */

struct waits { /* as of the last look; zeroed: before the first */
    uint64_t n_served_changes;
    struct waits_worker {
        uint64_t takes_runs, is_free, is_stuck, n_model_changes;
        int64_t piece_ns; /* of what it compiles, or is about to; 0: neither, or not known yet */
    } workers[POOL_MAX_WORKERS];
};

/* It takes runs now, between two pieces of its work, or when its run is done. trainer: where a job
 * runs; NULL: none. */
bool waits_takes_runs(const struct worker *w, const struct worker *trainer);
/* It loads, and has been at one piece or shown no progress for so long that nobody knows when it
 * takes runs again. */
bool waits_is_stuck(const struct worker *w, int64_t now_ns);

struct waits_ask {
    const struct worker *trainer; /* where a job runs; NULL: none */
    uint64_t n_served_changes;    /* of versions: whoever was told of one has forgotten its wait */
    bool (*is_due)(void *arg, const struct worker *w); /* it is about to compile */
    void *arg;
};

/* Asked whenever the loop has come to rest. True: something is not as it was at the last look. */
bool waits_look(struct waits *x, struct pool *p, const struct waits_ask *ask, int64_t now_ns);
int64_t waits_for(const struct waits *x, struct pool *p, int64_t handle); /* a version or shape */

#endif
