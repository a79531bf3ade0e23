/* waits.h - how long a run that comes now may have to wait for a worker.
 *
 * A worker that compiles takes runs between two pieces of its work, so a run waits for one piece;
 * the worker says how long those are (worker_ctl.h). One that compiles a job, or starts, takes none
 * before it is done. The scheduler lets nobody in whom such a wait would make late. */
#ifndef SH_EXECUTOR_POOL_WAITS_H
#define SH_EXECUTOR_POOL_WAITS_H

#include "executor/pool/pool.h"

#define WAITS_NOBODY_NS INT64_C(10000000000) /* none takes runs, for nobody knows how long; most */

#define WAITS_STEP_NS INT64_C(10000000) /* told as a multiple of this */

/* Asked whenever the loop has come to rest. trainer: the worker where a job runs or stands, or
 * NULL. */
int64_t waits_look(struct pool *p, const struct worker *trainer, int64_t now_ns);

#endif
