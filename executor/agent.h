/* agent.h - the link to the scheduler: says what this executor holds, takes its commands.
 *
 * On every connect it sends EXEC_HELLO, then MODEL_STATE and JOB_STATE for all it holds, then
 * EXEC_SYNCED. Work goes on while no scheduler is connected; reports sent meanwhile are dropped,
 * and the next greeting makes up for them. Each command carries the leader's epoch. A command with
 * an epoch older than the newest one seen is refused: its sender has been replaced and does not
 * know yet.
 */
#ifndef SH_EXECUTOR_AGENT_H
#define SH_EXECUTOR_AGENT_H

#include "executor/exec.h"

struct agent;

int agent_new(struct exec *x, struct agent **out, struct sh_err *err); /* OWNED, agent_free() */
void agent_free(struct agent *a);
/* The loop has come to rest: says how long runs wait for a worker, if that has changed. */
void agent_rest(struct agent *a);
void agent_second(struct agent *a); /* once a second: sends EXEC_STATE if it has changed */
/* This executor will end: it is to get nothing new. What the scheduler sent before it heard of that
 * is run, and a job refused. */
void agent_stopping(struct agent *a);

#endif
