/* worker_log.h - what a worker prints: it comes through a pipe, and goes to the executor's log.
 *
 * A worker that had the log itself could cut it off, write over it, make what is behind it refuse
 * the executor's own lines, or fill the disk. So it has a pipe of its own, of which whole lines are
 * passed on, and so many bytes a second. Who prints more than that fills his pipe: a worker then
 * loses lines, and waits for nobody.
 */
#ifndef SH_EXECUTOR_POOL_WORKER_LOG_H
#define SH_EXECUTOR_POOL_WORKER_LOG_H

#include "common/loop.h"

#define WORKER_LOG_BURST ((int64_t)1 << 20)      /* bytes that may come at once */
#define WORKER_LOG_PER_S ((int64_t)32 << 10)     /* and then each second */
#define WORKER_LOG_LINE_BYTES ((size_t)16 << 10) /* a longer line is broken */

struct worker_log;

/* *out: OWNED, worker_log_close(). *child_fd: OWNED, the end that the child prints to. out_fd:
 * BORROWED, where it goes. */
int worker_log_open(struct sh_loop *l, uint32_t worker, int out_fd, struct worker_log **out,
                    int *child_fd, struct sh_err *err);
/* Passes on what is there, at most a pipe's worth. NULL is allowed. */
void worker_log_close(struct worker_log *g);

#endif
