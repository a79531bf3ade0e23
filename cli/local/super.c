/* super.c - see super.h. */
#include "cli/local/super.h"

#include "cli/files/file.h"
#include "common/clock.h"
#include "common/log.h"
#include "common/loop.h"
#include "common/mem.h"
#include "common/spawn.h"
#include "common/units.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define GATE_POLL_NS SH_MS(50)
#define TRIM_EVERY_NS SH_S(60)
#define STEADY_NS SH_S(30) /* who lived this long starts again without a long wait */
#define BACKOFF_MIN_NS SH_MS(200)
#define BACKOFF_MAX_NS SH_S(10)
#define QUIT_MS 5000
#define LOG_START_MAX (4 << 20) /* rotated at a start */
#define LOG_MAX (64 << 20)      /* cut while it runs */

enum proc_state { WAITING, RUNNING, DONE, BACKOFF, STOPPING, STOPPED, N_PROC_STATES };

static const char *const STATE_NAME[N_PROC_STATES] = {
    [WAITING] = "waiting", [RUNNING] = "running",   [DONE] = "done",
    [BACKOFF] = "backoff", [STOPPING] = "stopping", [STOPPED] = "stopped"};

struct super;

struct proc {
    struct super *sup;
    const struct plan_proc *plan;
    enum proc_state state;
    pid_t pid;
    int64_t started_ns, since_ms, backoff_ns;
    int n_quick; /* ends in a row soon after a start */
    int restarts, signal;
    char last[64]; /* how it ended last */
    struct sh_timer *timer;
};

struct super {
    const struct state *s;
    struct plan *plan;
    struct sh_loop *loop;
    struct sh_timer *gate, *trim;
    struct proc procs[PLAN_MAX_PROCS];
    bool is_stopping;
};

static void super_advance(struct super *u);

/* ---------------------------------------------------------------- what status reads */

static int super_describe(const struct super *u, json_t **out, struct sh_err *err)
{
    json_t *list = json_array(), *metrics = json_object();

    for (size_t i = 0; i < u->plan->n; i++) {
        const struct proc *p = &u->procs[i];

        json_array_append_new(list, json_pack("{s:s, s:s, s:i, s:i, s:i, s:I, s:s}", "name",
                                              p->plan->name, "state", STATE_NAME[p->state], "pid",
                                              (int)p->pid, "restarts", p->restarts, "quick_ends",
                                              p->n_quick, "since_ms", (json_int_t)p->since_ms,
                                              "last_end", p->last));
        if (p->plan->metrics_port)
            json_object_set_new(metrics, p->plan->name, json_integer(p->plan->metrics_port));
    }
    *out = json_pack("{s:s, s:s, s:s, s:s, s:s, s:s, s:o, s:o}", "server", u->plan->server, "grpc",
                     u->plan->grpc, "state_dir", u->s->dir, "key_file", u->plan->key_file,
                     "database", u->plan->has_pg ? "private" : "given", "metrics_host",
                     u->plan->metrics_host, "metrics_ports", metrics, "processes", list);
    return *out ? SH_OK : SH_FAIL(err, SH_E_NOMEM, "could not allocate a description");
}

static void super_publish(const struct super *u)
{
    struct sh_err err = {0};
    json_t *j = NULL;
    int rc = super_describe(u, &j, &err);

    if (!rc)
        rc = state_write_system(u->s, j, &err);
    json_decref(j);
    if (rc)
        sh_log_err(SH_LOG_WARN, "supervisor.publish", &err);
}

static void set_proc_state(struct proc *p, enum proc_state to)
{
    p->state = to;
    p->since_ms = sh_clock_wall_ms();
    super_publish(p->sup);
}

/* ---------------------------------------------------------------- logs */

static int log_path(const struct super *u, const char *name, const char *suffix, char **out,
                    struct sh_err *err)
{
    return sh_asprintf(err, out, "%s/log/%s.log%s", u->s->dir, name, suffix);
}

static int open_proc_log(const struct super *u, const char *name, int *fd, struct sh_err *err)
{
    char *path = NULL, *old = NULL;
    struct stat st;
    int rc = log_path(u, name, "", &path, err);

    if (!rc)
        rc = log_path(u, name, ".1", &old, err);
    if (!rc && stat(path, &st) == 0 && st.st_size > LOG_START_MAX)
        rename(path, old);
    if (!rc) {
        *fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0640);
        if (*fd < 0)
            rc = SH_FAIL_ERRNO(err, SH_E_IO, "could not open the log \"%s\": %m", path);
    }
    free(path);
    free(old);
    return rc;
}

/* A process appends, so its log may be cut under it: what it held is kept once, as .1. */
static void trim_log(const struct super *u, const char *name)
{
    char *path = NULL, *old = NULL, chunk[65536];
    int from = -1, to = -1;
    struct stat st;
    ssize_t n;

    if (log_path(u, name, "", &path, NULL) || log_path(u, name, ".1", &old, NULL) ||
        stat(path, &st) != 0 || st.st_size <= LOG_MAX)
        goto out;
    from = open(path, O_RDWR | O_CLOEXEC);
    to = open(old, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0640);
    while (from >= 0 && to >= 0 && (n = read(from, chunk, sizeof(chunk))) > 0)
        if (write(to, chunk, (size_t)n) != n)
            break; /* no room: the log is cut all the same */
    if (from >= 0 && ftruncate(from, 0) == 0)
        SH_INFO("log.trim", "name=%s bytes=%lld", name, (long long)st.st_size);
out:
    if (from >= 0)
        close(from);
    if (to >= 0)
        close(to);
    free(path);
    free(old);
}

static void on_trim(struct sh_loop *l, void *arg)
{
    struct super *u = arg;

    (void)l;
    for (size_t i = 0; i < u->plan->n; i++)
        trim_log(u, u->plan->procs[i].name);
    trim_log(u, STATE_SUPERVISOR);
}

/* ---------------------------------------------------------------- one process */

static void back_off_proc(struct proc *p)
{
    bool quick = sh_clock_ns() - p->started_ns < STEADY_NS;

    p->n_quick = quick ? p->n_quick + 1 : 1;
    p->backoff_ns =
        quick && p->backoff_ns > 0 ? SH_MIN(p->backoff_ns * 2, BACKOFF_MAX_NS) : BACKOFF_MIN_NS;
    sh_timer_set(p->timer, p->backoff_ns);
    set_proc_state(p, BACKOFF);
}

static void say_proc_end(struct proc *p, int status)
{
    if (WIFSIGNALED(status))
        snprintf(p->last, sizeof(p->last), "signal %d", WTERMSIG(status));
    else
        snprintf(p->last, sizeof(p->last), "exit status %d", WEXITSTATUS(status));
    sh_log(p->state == STOPPING || (p->plan->kind == PLAN_ONCE && status == 0) ? SH_LOG_INFO
                                                                               : SH_LOG_WARN,
           "process.end", "name=%s pid=%d how=\"%s\"", p->plan->name, (int)p->pid, p->last);
}

static void on_exit_of(struct sh_loop *l, pid_t pid, int status, void *arg)
{
    struct proc *p = arg;
    struct super *u = p->sup;
    struct sh_err err = {0};
    bool well = WIFEXITED(status) && WEXITSTATUS(status) == 0;

    (void)l;
    (void)pid;
    say_proc_end(p, status);
    state_pid_remove(u->s, p->plan->name);
    p->pid = 0;
    sh_timer_set(p->timer, -1);
    if (u->is_stopping) {
        set_proc_state(p, STOPPED);
    } else if (p->plan->kind == PLAN_ONCE && well) {
        if (strcmp(p->plan->name, "initdb") == 0 && pg_adopt(&u->plan->pg, &err) != SH_OK) {
            sh_log_err(SH_LOG_ERROR, "pg.adopt", &err);
            back_off_proc(p);
        } else {
            set_proc_state(p, DONE);
        }
    } else {
        p->restarts++;
        back_off_proc(p);
    }
    super_advance(u);
}

static int proc_start(struct proc *p, struct sh_err *err)
{
    struct super *u = p->sup;
    struct sh_spawn sp = {.path = p->plan->argv[0],
                          .argv = (const char *const *)p->plan->argv,
                          .keep = p->plan->keep,
                          .env = p->plan->keep ? NULL : (const char *const *)u->plan->env};
    int fd = -1, rc;

    if (strcmp(p->plan->name, "initdb") == 0) {
        char *half = NULL; /* of a try that failed */

        rc = sh_asprintf(err, &half, "%s/data.new", u->plan->pg.dir);
        if (!rc)
            rc = file_remove_tree(half, err);
        free(half);
        if (rc)
            return rc;
    }
    rc = open_proc_log(u, p->plan->name, &fd, err);
    if (rc)
        return rc;
    sp.stdout_fd = sp.stderr_fd = fd;
    rc = sh_spawn(&sp, &p->pid, err);
    close(fd);
    if (!rc) {
        p->started_ns = sh_clock_ns();
        rc = sh_loop_child(u->loop, p->pid, on_exit_of, p, err);
        if (rc) { /* nobody would learn of its end */
            kill(p->pid, SIGKILL);
            while (waitpid(p->pid, NULL, 0) < 0 && errno == EINTR)
                ;
            p->pid = 0;
        }
    }
    if (!rc)
        rc = state_pid_write(u->s, p->plan->name, p->pid, err);
    return rc;
}

static void try_start(struct proc *p)
{
    struct sh_err err = {0};
    int rc = proc_start(p, &err);

    if (rc) {
        sh_log_err(SH_LOG_ERROR, "process.start", &err);
        snprintf(p->last, sizeof(p->last), "%.60s", err.msg);
        if (p->pid <= 0) {
            p->pid = 0;
            p->started_ns = sh_clock_ns();
            back_off_proc(p);
            return;
        }
    }
    SH_INFO("process.start", "name=%s pid=%d", p->plan->name, (int)p->pid);
    set_proc_state(p, RUNNING);
}

static void send_signal(struct proc *p, int sig)
{
    p->signal = sig;
    SH_INFO("process.stop", "name=%s pid=%d signal=%d", p->plan->name, (int)p->pid, sig);
    kill(p->pid, sig);
    sh_timer_set(p->timer, SH_MS(sig == SIGQUIT ? QUIT_MS : p->plan->stop_ms));
}

static void on_timer(struct sh_loop *l, void *arg)
{
    struct proc *p = arg;

    (void)l;
    if (p->state == BACKOFF) {
        p->state = WAITING;
        super_advance(p->sup);
    } else if (p->state == STOPPING && p->pid > 0) {
        /* PostgreSQL killed outright leaves its children and shared memory for a moment. */
        send_signal(p, p->signal == SIGINT ? SIGQUIT : SIGKILL);
    }
}

/* ---------------------------------------------------------------- all of them */

static void stop_next(struct super *u)
{
    for (size_t i = u->plan->n; i-- > 0;) {
        struct proc *p = &u->procs[i];

        if (p->pid <= 0)
            continue;
        if (p->state != STOPPING) {
            set_proc_state(p, STOPPING);
            send_signal(p, p->plan->stop_signal);
        }
        return; /* one after the other */
    }
    sh_loop_stop(u->loop);
}

/* Each event leads here: starts what can be started now. */
static void super_advance(struct super *u)
{
    if (u->is_stopping) {
        stop_next(u);
        return;
    }
    for (size_t i = 0; i < u->plan->n; i++) {
        struct proc *p = &u->procs[i];

        if (p->state == WAITING)
            try_start(p);
        if (p->plan->kind == PLAN_ONCE && p->state != DONE)
            return;
        if (p->plan->is_gate && u->procs[i + 1].state == WAITING && !pg_accepts(&u->plan->pg)) {
            sh_timer_set(u->gate, GATE_POLL_NS);
            return;
        }
    }
}

static void on_gate(struct sh_loop *l, void *arg)
{
    (void)l;
    super_advance(arg);
}

static void on_term(struct sh_loop *l, void *arg)
{
    struct super *u = arg;

    (void)l;
    if (!u->is_stopping)
        SH_INFO("supervisor.stop", "processes=%zu", u->plan->n);
    u->is_stopping = true;
    stop_next(u);
}

static void on_hup(struct sh_loop *l, void *arg)
{
    (void)l;
    (void)arg; /* the terminal is gone: that is no reason to end */
}

static int super_prepare(struct super *u, struct sh_err *err)
{
    int rc = sh_loop_new(&u->loop, err);

    if (!rc)
        rc = sh_loop_signals(u->loop, on_term, on_hup, u, err);
    if (!rc)
        rc = sh_timer_add(u->loop, -1, 0, on_gate, u, &u->gate, err);
    if (!rc)
        rc = sh_timer_add(u->loop, TRIM_EVERY_NS, TRIM_EVERY_NS, on_trim, u, &u->trim, err);
    for (size_t i = 0; !rc && i < u->plan->n; i++) {
        u->procs[i] = (struct proc){.sup = u, .plan = &u->plan->procs[i]};
        rc = sh_timer_add(u->loop, -1, 0, on_timer, &u->procs[i], &u->procs[i].timer, err);
    }
    return rc;
}

int super_run(const struct state *s, struct plan *p, struct sh_err *err)
{
    struct super *u = calloc(1, sizeof(*u));
    struct sh_err late = {0};
    int rc;

    if (!u)
        return SH_FAIL(err, SH_E_NOMEM, "could not allocate the supervisor");
    u->s = s;
    u->plan = p;
    rc = state_make_sock(s, err);
    if (!rc)
        rc = state_pid_write(s, STATE_SUPERVISOR, getpid(), err);
    if (!rc)
        rc = super_prepare(u, err);
    if (!rc) {
        SH_INFO("supervisor.start", "state_dir=\"%s\" server=%s processes=%zu", s->dir, p->server,
                p->n);
        super_publish(u);
        super_advance(u);
        rc = sh_loop_run(u->loop, err);
    }
    for (size_t i = 0; i < p->n; i++) {
        if (u->procs[i].pid > 0) /* only after a failure of the loop */
            kill(u->procs[i].pid, SIGKILL);
        sh_timer_del(u->procs[i].timer);
    }
    sh_timer_del(u->gate);
    sh_timer_del(u->trim);
    sh_loop_free(u->loop);
    if (state_clear_run(s, &late) != SH_OK)
        sh_log_err(SH_LOG_WARN, "supervisor.clear", &late);
    SH_INFO("supervisor.end", "rc=%s", sh_rc_name(rc));
    free(u);
    return rc;
}

/* ---------------------------------------------------------------- after a dead supervisor */

void super_stop(const struct state *s, const char *name, struct progress *bar)
{
    bool is_pg = strcmp(name, "postgres") == 0;
    const int signals[] = {is_pg ? SIGINT : SIGTERM, is_pg ? SIGQUIT : SIGKILL, SIGKILL};
    pid_t pid = state_pid(s, name);

    for (size_t i = 0; pid > 0 && i < SH_ARRAY_LEN(signals); i++) {
        int64_t end = sh_clock_ns() + SH_S(i == 0 ? 20 : 5);

        kill(pid, signals[i]);
        while (state_is_running(s, name, pid) && sh_clock_ns() < end) {
            progress_show(bar, -1, "stopping %s", name);
            cli_sleep_ms(20);
        }
        if (!state_is_running(s, name, pid))
            pid = 0;
    }
    state_pid_remove(s, name);
}

/* Later in the start, earlier in the stop. */
static int proc_rank(const char *name)
{
    static const char *const ORDER[] = {"api", "executor", "scheduler", "migrate", "postgres"};

    for (size_t i = 0; i < SH_ARRAY_LEN(ORDER); i++)
        if (strncmp(name, ORDER[i], strlen(ORDER[i])) == 0)
            return (int)i;
    return (int)SH_ARRAY_LEN(ORDER);
}

/* name of a process whose pid file this is; false if it is none of ours */
static bool pid_file_of(const char *file, char *name, size_t size)
{
    size_t n = strlen(file), end = strlen(".pid");

    if (n <= end || n - end >= size || strcmp(file + n - end, ".pid") != 0)
        return false;
    memcpy(name, file, n - end);
    name[n - end] = '\0';
    return state_is_process(name);
}

int super_sweep(const struct state *s, struct progress *bar, bool *found, struct sh_err *err)
{
    *found = false;
    for (int r = 0; r <= proc_rank("?"); r++) {
        DIR *d = opendir(s->run);
        struct dirent *e;
        char name[64];

        while (d && (e = readdir(d)) != NULL) {
            if (!pid_file_of(e->d_name, name, sizeof(name)) || proc_rank(name) != r ||
                strcmp(name, STATE_SUPERVISOR) == 0)
                continue;
            *found = *found || state_pid(s, name) > 0;
            super_stop(s, name, bar);
        }
        if (d)
            closedir(d);
    }
    return state_clear_run(s, err);
}
