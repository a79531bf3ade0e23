/* inputs.h - sends large inputs of a run to the device on the copy lane, before its missing
 * weights.
 *
 * A worker could copy them too, but it starts only when it has woken up, and on the device its copy
 * competes with the weights, or waits for training to drain. The executor knows the slab and, from
 * the workers, where a program's inputs lie, so it starts their copy with the switch. The run gives
 * the worker a ticket that follows them.
 *
 * Small inputs are left to the worker, which copies them beside the weights: their copy costs less
 * than the message about it, or ends before the weights behind it are enqueued, and the lane would
 * idle. Inputs are also not put behind other copies, which belong to a later run or to training and
 * have nothing to do with this run.
 *
 * If its workers die, a run can end before its inputs have arrived. The next user of the memory
 * does not meet them: a run waits for the ticket, and all others first put something on the same
 * lane and wait for that.
 *
 * Belongs to the loop's thread.
 */
#ifndef SH_EXECUTOR_RUNS_INPUTS_H
#define SH_EXECUTOR_RUNS_INPUTS_H

#include "common/err.h"

struct msg_wk_run;
struct run;
struct switcher;

/* Once a run has its workspace, before its weights: enqueues its inputs if that pays. Fails as the
 * device. */
int inputs_send(struct run *r, struct sh_err *err);
/* When the run is sent: tells the worker in *m what is left to do. */
void inputs_tell(const struct run *r, struct msg_wk_run *m);
/* True: no input is under way any more, not even a forced one. */
bool inputs_arrived(const struct switcher *sw);
/* For the watchdog: releases whoever waits; they go on with garbage. */
void inputs_force(struct switcher *sw);

#endif
