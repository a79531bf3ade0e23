/* inputs.h - large inputs of a run go to the device by the copy lane, before its weights if some
 * are missing.
 *
 * A worker could bring them too, but it begins only when it has woken up, and on the device its
 * copy stands beside those of the weights, or behind training that drains. The executor knows the
 * slab and, from the workers, where the inputs of a program lie, so their copy starts with the
 * switch. The run tells the worker a ticket that comes behind them.
 *
 * Not for small ones, whose copy costs less than the telling, or is over before the weights behind
 * it are enqueued: the lane would stand still, and a worker brings those beside the weights. And
 * not behind other copies: what the lane was given for a later run, or for training, has nothing to
 * do with this one.
 *
 * A run can end before its inputs have come, when its workers die. Whoever has the memory next does
 * not meet them: a run waits for the ticket, and all others put something on the same lane first
 * and wait for that.
 */
#ifndef SH_EXECUTOR_RUNS_INPUTS_H
#define SH_EXECUTOR_RUNS_INPUTS_H

#include "common/err.h"

struct msg_wk_run;
struct run;
struct switcher;

/* Once a run has its workspace, before its weights: enqueues its inputs if that is worth it. Fails:
 * what the device says. */
int inputs_send(struct run *r, struct sh_err *err);
/* When the run is sent: says in *m what the worker has to do. */
void inputs_tell(const struct run *r, struct msg_wk_run *m);
/* Nothing that was sent is on its way any more, not even what was forced. */
bool inputs_arrived(const struct switcher *sw);
/* The watchdog: whoever waits goes on, with garbage. */
void inputs_force(struct switcher *sw);

#endif
