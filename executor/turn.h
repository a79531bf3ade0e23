/* turn.h - who takes the next step, and why a turn ends.
 *
 * An event handler changes the state of its module. Before the loop sleeps, turn_run() asks the
 * modules for a step: models, then runs, training and batch inference. After each step it starts
 * again with models, until no module has one left. Nobody has to be woken: whether a module has a
 * step depends only on the present state, so no wake-up can be missed
 * (docs/decisions/0029-steps-are-asked-for.md).
 *
 * A turn ends because each step uses up something that only an event brings back (a message, a mark
 * of the lane, a finished task, a timer), and no event is handled during a turn:
 *
 *   a model    goes; fails or is put off for a second; gives up what it holds on the device
 *   a worker   begins to compile; joins
 *   a run      becomes the current one, asks training for more (drop, then swap), gets its memory
 *              (again if a new worker needs more), is sent, ends; training gives up its workspace
 *              and its state for it, and takes both back when no run is left
 *   a job      begins, takes a worker, hands over its slots, ends, is freed
 *
 * So a turn takes at most TURN_PER_MODEL steps for each version and shape, TURN_PER_WORKER for each
 * worker, TURN_PER_RUN for each run that waits or that a job may submit during the turn, and
 * TURN_PER_JOBS for the two kinds of jobs together. A turn that exceeds this is a bug: it is
 * logged, and the loop goes on.
 */
#ifndef SH_EXECUTOR_TURN_H
#define SH_EXECUTOR_TURN_H

#include "executor/exec.h"

#define TURN_PER_MODEL 4u
#define TURN_PER_WORKER 2u
#define TURN_PER_RUN 16u
#define TURN_PER_JOBS 32u
/* runs that jobs may submit in a turn: retries of a batch, one evaluation */
#define TURN_OWN_RUNS 5u

/* False: the turn was stopped at its limit. */
bool turn_run(struct exec *x);

#endif
