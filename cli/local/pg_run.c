/* pg_run.c - see pg_run.h. */
#include "cli/local/pg_run.h"

#include "common/clock.h"
#include "common/db.h"
#include "common/mem.h"
#include "common/spawn.h"
#include "common/units.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define START_NS SH_S(120) /* it may have to redo what a crash left */
#define TICK_MS 200
#define MAX_COMPLAINT 32768

static int open_pg_log(const char *path, int *fd, struct sh_err *err)
{
    *fd = open(path, O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0640);
    return *fd < 0 ? SH_FAIL_ERRNO(err, SH_E_IO, "could not open the log \"%s\": %m", path) : SH_OK;
}

/* Why a program has failed, by what it has written since `from`: the first line that names an
 * error, behind which the statement may stand, of any length; else the last line. */
static void find_reason(int fd, off_t from, char out[static 400])
{
    static const char *const SIGNS[] = {"error: ", "ERROR: ", "FATAL: "};
    char text[MAX_COMPLAINT + 1], *line = NULL;
    ssize_t n = pread(fd, text, MAX_COMPLAINT, from);

    text[SH_MAX(n, (ssize_t)0)] = '\0';
    for (size_t i = 0; i < SH_ARRAY_LEN(SIGNS); i++) {
        char *at = strstr(text, SIGNS[i]);

        if (at && (!line || at < line))
            line = at;
    }
    if (line) {
        line += strlen(SIGNS[0]);
        line += strspn(line, " ");
    } else {
        for (n = (ssize_t)strlen(text); n > 0 && text[n - 1] == '\n';)
            text[--n] = '\0';
        line = strrchr(text, '\n');
        line = line ? line + 1 : text;
    }
    snprintf(out, 400, "%.*s", (int)SH_MIN(strcspn(line, "\n"), (size_t)399), line);
}

static int wait_end(pid_t pid, int *status)
{
    pid_t got;

    do
        got = waitpid(pid, status, WNOHANG);
    while (got < 0 && errno == EINTR);
    return got == pid || got < 0;
}

static void kill_and_wait(pid_t pid)
{
    kill(pid, SIGKILL);
    while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
        ;
}

int pg_tool_run(const struct pg_tool *t, struct sh_err *err)
{
    char *env[DB_ENV_MAX], *path = NULL, why[400];
    struct sh_spawn sp = {.argv = t->argv, .env = (const char *const *)env};
    int log = -1, null = -1, status = 0, rc = db_environment(t->url, env, err);
    off_t from = 0;
    pid_t pid = 0;

    if (rc)
        return rc;
    rc = sh_asprintf(err, &path, "%s/%s", t->bin, t->argv[0]);
    if (!rc)
        rc = open_pg_log(t->log, &log, err);
    if (!rc) {
        from = lseek(log, 0, SEEK_END);
        null = open("/dev/null", O_WRONLY | O_CLOEXEC);
        sp.path = path;
        sp.stdout_fd = t->stdout_fd >= 0 ? t->stdout_fd : null;
        sp.stderr_fd = log;
        rc = sh_spawn(&sp, &pid, err);
    }
    while (!rc && !wait_end(pid, &status)) {
        if (t->held && held_came(t->held))
            rc = SH_FAIL(err, SH_E_CANCELLED, "interrupted");
        if (!rc && t->tick)
            rc = t->tick(t->arg, err);
        if (rc)
            kill_and_wait(pid);
        else
            cli_sleep_ms(TICK_MS);
    }
    if (!rc && (!WIFEXITED(status) || WEXITSTATUS(status) != 0)) {
        find_reason(log, from, why);
        rc = SH_FAIL(err, SH_E_IO, "%s failed: %s", t->argv[0], why[0] ? why : "it was killed");
    }
    if (log >= 0)
        close(log);
    if (null >= 0)
        close(null);
    db_environment_free(env);
    free(path);
    return rc;
}

/* ---------------------------------------------------------------- the cluster */

static int spawn_server(const struct state *s, char *const *argv, pid_t *pid, struct sh_err *err)
{
    struct sh_spawn sp = {.path = argv[0], .argv = (const char *const *)argv};
    char *path = NULL;
    int log = -1, rc = state_path(s, "log/postgres.log", &path, err);

    if (!rc)
        rc = open_pg_log(path, &log, err);
    sp.stdout_fd = sp.stderr_fd = log;
    if (!rc)
        rc = sh_spawn(&sp, pid, err);
    if (log >= 0)
        close(log);
    free(path);
    return rc;
}

int pg_init(const struct state *s, struct pg *pg, struct sh_err *err)
{
    int status = 0, rc;
    pid_t pid = 0;

    if (!pg->is_new)
        return SH_OK;
    rc = spawn_server(s, pg->initdb, &pid, err);
    if (rc)
        return rc;
    rc = state_pid_write(s, "initdb", pid, err);
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
        ;
    state_pid_remove(s, "initdb");
    if (rc)
        return rc;
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
        return SH_FAIL(err, SH_E_IO, "initdb failed; %s/log/postgres.log says why", s->dir);
    return pg_adopt(pg, err);
}

int pg_start(const struct state *s, const struct pg *pg, struct sh_err *err)
{
    int64_t end = sh_clock_ns() + START_NS;
    struct db *db = NULL;
    int status, rc;
    pid_t pid = 0;

    rc = spawn_server(s, pg->postgres, &pid, err);
    if (!rc)
        rc = state_pid_write(s, "postgres", pid, err);
    if (!rc)
        rc = db_new(pg->url, "shunt", &db, err);
    while (!rc && db_ready(db, 0, NULL) != SH_OK) {
        if (wait_end(pid, &status))
            rc = SH_FAIL(err, SH_E_UNAVAILABLE,
                         "PostgreSQL does not start; %s/log/postgres.log says why", s->dir);
        else if (sh_clock_ns() > end)
            rc = SH_FAIL(err, SH_E_TIMEOUT, "PostgreSQL does not answer; see %s/log/postgres.log",
                         s->dir);
        else
            cli_sleep_ms(50);
    }
    db_free(db);
    return rc;
}

void pg_stop(const struct state *s, struct progress *bar)
{
    super_stop(s, "postgres", bar);
    while (waitpid(-1, NULL, WNOHANG) > 0)
        ; /* our child */
}
