/* worker_log.h - passes a worker's output from a pipe to the executor's log.
 *
 * A worker with the log itself could truncate or overwrite it, block the executor's own lines, or
 * fill the disk. So it gets a pipe. Whole lines are passed on, at a limited rate. A worker that
 * prints more fills its pipe; it then loses lines, and waits for nobody.
 */
#ifndef SH_EXECUTOR_POOL_WORKER_LOG_H
#define SH_EXECUTOR_POOL_WORKER_LOG_H

#include "common/loop.h"

#define WORKER_LOG_BURST ((int64_t)1 << 20)      /* bytes at once */
#define WORKER_LOG_PER_S ((int64_t)32 << 10)     /* then bytes per second */
#define WORKER_LOG_LINE_BYTES ((size_t)16 << 10) /* longer lines are split */

struct worker_log;

/* *out: OWNED, worker_log_close(). *child_fd: OWNED, the end for the child to print to. out_fd:
 * BORROWED, the log. */
int worker_log_open(struct sh_loop *l, uint32_t worker, int out_fd, struct worker_log **out,
                    int *child_fd, struct sh_err *err);
/* Passes on what the pipe still holds. NULL is allowed. */
void worker_log_close(struct worker_log *g);

#endif
