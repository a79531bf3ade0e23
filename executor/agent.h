/* agent.h - the link to the scheduler: says what this executor holds, takes its commands.
 *
 * After each connect: EXEC_HELLO, MODEL_STATE and JOB_STATE of all there is, EXEC_SYNCED. What
 * happens while there is no scheduler goes on; its reports are lost, and made good by the next
 * greeting. Commands carry the epoch of the leader; one older than the newest seen is refused: it
 * comes from a scheduler that does not know yet that it was replaced.
 */
#ifndef SH_EXECUTOR_AGENT_H
#define SH_EXECUTOR_AGENT_H

#include "executor/exec.h"

struct agent;

int agent_new(struct exec *x, struct agent **out, struct sh_err *err); /* OWNED, agent_free() */
void agent_free(struct agent *a);
void agent_second(struct agent *a); /* EXEC_STATE, if it has changed */

#endif
