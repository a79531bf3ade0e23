/* super.h - the supervisor of a local system: starts the processes of a plan, restarts them with
 * back-off, stops them in reverse order.
 *
 *   WAITING  -> RUNNING   its turn has come                [advance]
 *   RUNNING  -> DONE      a one-time process succeeded     [on_exit_of]
 *   RUNNING  -> BACKOFF   it ended otherwise               [on_exit_of]
 *   BACKOFF  -> WAITING   200 ms, 400 ms ... 10 s later    [on_timer]
 *   RUNNING  -> STOPPING  TERM or INT has come             [stop_next]
 *   STOPPING -> STOPPED   it has ended                     [on_exit_of]
 *
 * One thread, one loop. Each change is written to run/system.json. When super_run() returns nothing
 * is left: no process, socket or pid file.
 */
#ifndef SH_CLI_LOCAL_SUPER_H
#define SH_CLI_LOCAL_SUPER_H

#include "cli/local/plan.h"
#include "cli/text/out.h"

int super_run(const struct state *s, struct plan *p, struct sh_err *err);
/* Stops one process by its pid file, within its time limit. */
void super_stop(const struct state *s, const char *name, struct progress *bar);
/* Stops the processes that a dead supervisor left, in order, each within its time limit. */
int super_sweep(const struct state *s, struct progress *bar, bool *found, struct sh_err *err);

/* A process that ended at once this often in a row will not come up by itself. */
#define SUPER_GIVE_UP 6

#endif
