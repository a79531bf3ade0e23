/* turn.h - from an event to rest: who takes the next step, and how many there can be.
 *
 * A handler of an event changes the state of its module. Before the loop sleeps, turn_run() asks
 * for a step: models first, then runs, training, batch inference; after each step it begins with
 * models again, until nobody has one. Nobody is woken: whether a module has a step follows from
 * what is true now, so no wake-up can be missed (docs/decisions/0029-steps-are-asked-for.md).
 *
 * That ends. Each step uses up something that only an event brings back (a message, a mark of the
 * lane, a task that is done, a timer), and none comes during a turn:
 *
 *   a model    goes; fails or is put off for a second; gives up what it holds on the device
 *   a worker   begins to compile; joins
 *   a run      becomes the current one, asks training for more (drop, then swap), gets its memory
 *              (once more if a new worker needs more of it), is sent, ends; and for each training
 *              gives up workspace and state, and takes both again when no run is left
 *   a job      begins, takes a worker, hands over its slots, ends, is freed
 *
 * So a turn has at most TURN_PER_MODEL steps for each version and shape, TURN_PER_WORKER for each
 * worker, TURN_PER_RUN for each run that waits or that a job may submit in it, and TURN_PER_JOBS
 * for both kinds of jobs. What goes on after that is a fault: it is logged, and the loop goes on.
 */
#ifndef SH_EXECUTOR_TURN_H
#define SH_EXECUTOR_TURN_H

#include "executor/exec.h"

#define TURN_PER_MODEL 4u
#define TURN_PER_WORKER 2u
#define TURN_PER_RUN 16u
#define TURN_PER_JOBS 32u
#define TURN_OWN_RUNS 5u /* batch inference submits a batch again so often, evaluation once */

/* False: it was stopped at its limit. */
bool turn_run(struct exec *x);

#endif
