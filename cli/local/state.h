/* state.h - the state folder of a local system: paths, pid files, what the supervisor says.
 *
 *   run/<name>.pid     "PID START": a process counts as ours only while /proc says the same start
 *   run/system.json    where everything is; written by the supervisor at each change
 *   run/up.lock        held while `shunt up` starts, and by what must not run beside it
 *   last-up.json       the options of the last `shunt up` that make a system another one
 *   created-by-shunt   only an empty folder is marked with it; without it nothing is ever removed.
 *                      It holds the system's id, 32 random digits, by which a copy is told
 *   restore-unfinished while `shunt restore` fills the folder; nothing starts in it then
 *
 * A Unix socket's path has at most 107 bytes, and PostgreSQL's own user must reach its cluster.
 * Where the state folder does not allow that, `aux` (/var/tmp/shunt-<hash>) takes sockets or
 * cluster. Its name can be foretold, so it is used only while it is a real folder of this user with
 * mode 0700 or 0711.
 */
#ifndef SH_CLI_LOCAL_STATE_H
#define SH_CLI_LOCAL_STATE_H

#include "common/json.h"

#include <stdbool.h>
#include <sys/types.h>

#define STATE_ID_MAX 33

struct state {
    char id[STATE_ID_MAX]; /* "" if the mark has none yet */
    char *dir;             /* absolute */
    char *run;             /* <dir>/run */
    char *aux;             /* /var/tmp/shunt-<hash of dir> */
    char *sock;            /* folder for sockets: run, or <aux>/run */
};

/* create: makes dir, run and log. Fails: SH_E_NOTFOUND if there is none and create is false,
 * SH_E_CONFLICT if it would have to be made in a folder that holds things of somebody else. */
int state_open(const char *dir, bool create, struct state *out, struct sh_err *err);
void state_close(struct state *s);
/* Gives the folder an id if it has none. Under the lock. */
int state_give_id(struct state *s, struct sh_err *err);
/* Waits a moment for another `shunt up` or `down`, then fails with SH_E_CONFLICT. *fd: OWNED. */
int state_lock(const struct state *s, int *fd, struct sh_err *err);
/* Was there a system in the folder: a key, models, jobs, or processes? */
bool state_had_system(const struct state *s);

/* *out: OWNED, free(). */
int state_path(const struct state *s, const char *below, char **out, struct sh_err *err);

bool state_has(const struct state *s, const char *below); /* is there such a file or folder? */

/* Fails with SH_E_CONFLICT if the folder has no mark. */
int state_check_mark(const struct state *s, struct sh_err *err);
/* Fails: SH_E_NOTFOUND if there is none, SH_E_CONFLICT if it is not ours alone. Before each use. */
int state_check_aux(const struct state *s, struct sh_err *err);
int state_make_aux(const struct state *s, struct sh_err *err); /* may exist; checked */
int state_make_sock(const struct state *s, struct sh_err *err);

/* pid files. state_pid: 0 if there is no such process any more. */
int state_pid_write(const struct state *s, const char *name, pid_t pid, struct sh_err *err);
pid_t state_pid(const struct state *s, const char *name);
void state_pid_remove(const struct state *s, const char *name);
/* Is this pid still the process that the file names? (a zombie is none) */
bool state_is_running(const struct state *s, const char *name, pid_t pid);

#define STATE_LAST_UP "last-up.json"
#define STATE_MARK "created-by-shunt"
#define STATE_RESTORING "restore-unfinished"
#define STATE_SUPERVISOR "supervisor"
/* Is this the name of a process that `shunt up` starts? */
bool state_is_process(const char *name);

/* *out: OWNED, json_decref(); NULL without a file. */
int state_read_system(const struct state *s, json_t **out, struct sh_err *err);
int state_write_system(const struct state *s, const json_t *system, struct sh_err *err);
/* URL of the API of the system in a folder; *out is NULL if there is none. OWNED, free(). */
int state_server(const char *dir, char **out, struct sh_err *err);
/* Where a process of a system serves its metrics. host: "metrics_host" of the system; NULL: it was
 * started by an older release. */
#define STATE_URL_MAX 128
void state_metrics_url(const char *host, int port, char out[static STATE_URL_MAX]);

/* Only while nothing runs: sockets, pid files, system.json; nothing else in run/ is touched. */
int state_clear_run(const struct state *s, struct sh_err *err);
/* Removes everything that a system made, and its cluster too where that is elsewhere, also after
 * the folder was renamed. *left: OWNED, a cluster that another folder's system uses and that
 * stays; NULL if there is none. Refuses a folder without its mark. */
int state_purge(const struct state *s, char **left, struct sh_err *err);

#endif
