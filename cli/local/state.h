/* state.h - the state folder of a local system: paths, pid files, the supervisor's report.
 *
 *   run/<name>.pid     "PID START": the process is ours only while /proc shows the same start time
 *   run/system.json    where everything is; the supervisor writes it on each change
 *   run/up.lock        held while `shunt up` starts, and by what must not run at the same time
 *   run/backup.lock    held while `shunt backup` works
 *   last-up.json       the options of the last `shunt up` that define the system
 *   created-by-shunt   the mark. Only an empty folder gets it; without it nothing is ever removed.
 *                      It holds the system's id, 32 random digits, which reveals a copy
 *   restore-unfinished exists while `shunt restore` fills the folder; nothing starts in it then
 *
 * The path of a Unix socket has at most 107 bytes, and PostgreSQL's own user must reach its
 * cluster. If the state folder does not allow that, `aux` (/var/tmp/shunt-<hash>) takes the sockets
 * or the cluster. Its name can be predicted, so it is used only while it is a real folder of this
 * user with mode 0700 or 0711.
 */
#ifndef SH_CLI_LOCAL_STATE_H
#define SH_CLI_LOCAL_STATE_H

#include "common/json.h"

#include <stdbool.h>
#include <sys/types.h>

#define STATE_ID_MAX 33

struct state {
    char id[STATE_ID_MAX]; /* "": the mark has none yet */
    char *dir;             /* absolute */
    char *run;             /* <dir>/run */
    char *aux;             /* /var/tmp/shunt-<hash of dir> */
    char *sock;            /* folder for sockets: run, or <aux>/run */
};

/* create: creates dir, run and log. Fails: SH_E_NOTFOUND: there is none and create is false;
 * SH_E_CONFLICT: the folder holds somebody else's things. */
int state_open(const char *dir, bool create, struct state *out, struct sh_err *err);
void state_close(struct state *s);
/* Gives the folder an id if it has none. Call it under the lock. */
int state_give_id(struct state *s, struct sh_err *err);
/* Waits a moment for another `shunt up` or `down`, then fails with SH_E_CONFLICT. *fd: OWNED. */
int state_lock(const struct state *s, int *fd, struct sh_err *err);
/* The lock of a backup: fd, to be closed, is OWNED. It is this process's alone: what it has started
 * does not hold it, and may outlive it. Does not wait. Fails: SH_E_CONFLICT, another one has it. */
int state_lock_backup(const struct state *s, int *fd, struct sh_err *err);
/* Was there a system in the folder: a key, models, jobs, or processes? */
bool state_had_system(const struct state *s);

/* *out: OWNED, free(). */
int state_path(const struct state *s, const char *below, char **out, struct sh_err *err);

bool state_has(const struct state *s, const char *below); /* does this file or folder exist? */

/* Fails with SH_E_CONFLICT if the folder has no mark. */
int state_check_mark(const struct state *s, struct sh_err *err);
/* Call it before each use. Fails: SH_E_NOTFOUND: there is none; SH_E_CONFLICT: it is not only
 * ours. */
int state_check_aux(const struct state *s, struct sh_err *err);
int state_make_aux(const struct state *s, struct sh_err *err); /* may exist; checks it */
int state_make_sock(const struct state *s, struct sh_err *err);

/* pid files. state_pid(): 0: the process is gone. */
int state_pid_write(const struct state *s, const char *name, pid_t pid, struct sh_err *err);
pid_t state_pid(const struct state *s, const char *name);
void state_pid_remove(const struct state *s, const char *name);
/* Is this pid still the process named in the file? (not if it is a zombie) */
bool state_is_running(const struct state *s, const char *name, pid_t pid);

#define STATE_LAST_UP "last-up.json"
#define STATE_MARK "created-by-shunt"
#define STATE_RESTORING "restore-unfinished"
#define STATE_SUPERVISOR "supervisor"
/* Is this the name of a process that `shunt up` starts? */
bool state_is_process(const char *name);

/* *out: OWNED, json_decref(); NULL: no file. */
int state_read_system(const struct state *s, json_t **out, struct sh_err *err);
int state_write_system(const struct state *s, const json_t *system, struct sh_err *err);
/* URL of the API of the system in a folder; *out: OWNED, free(); NULL: none. */
int state_server(const char *dir, char **out, struct sh_err *err);
/* Where a process of a system serves its metrics. host: "metrics_host" of the system; NULL: an
 * older release started it. */
#define STATE_URL_MAX 128
void state_metrics_url(const char *host, int port, char out[static STATE_URL_MAX]);

/* Removes sockets, pid files and system.json from run/, and nothing else. Only while nothing
 * runs. */
int state_clear_run(const struct state *s, struct sh_err *err);
/* Removes everything that a system made, and its cluster if that is elsewhere, even after the
 * folder was renamed. *left: OWNED, a cluster that stays because another folder's system uses it;
 * NULL: none. Refuses a folder without its mark. */
int state_purge(const struct state *s, char **left, struct sh_err *err);

#endif
