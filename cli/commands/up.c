/* up.c - `shunt up` and `shunt down`. */
#include "cli/client/rest.h"
#include "cli/commands.h"
#include "cli/files/file.h"
#include "cli/local/super.h"
#include "cli/text/field.h"
#include "cli/text/out.h"
#include "common/clock.h"
#include "common/conf.h"
#include "common/log.h"
#include "common/mem.h"
#include "common/units.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define DOWN_WAIT_NS SH_S(110) /* the sum of what the supervisor gives its processes */
#define TAIL_BYTES 1500
#define PROBE_MS 2000

/* ---------------------------------------------------------------- is it up? */

/* A scheduler leads, and executors are there: what they load may take longer. */
static bool answers_ready(struct sh_http *h)
{
    struct sh_http_req q = {.method = "GET", .path = "/v2/health/ready", .timeout_ms = PROBE_MS};
    struct sh_http_reply r = {0};
    json_t *j = NULL;
    bool ok = sh_http_call(h, &q, &r, NULL) == SH_OK && r.body &&
              sh_json_parse(r.body, r.len, TAIL_BYTES, &j, NULL) == SH_OK &&
              json_integer_value(json_object_get(j, "executors")) > 0;

    json_decref(j);
    sh_http_reply_fini(&r);
    return ok;
}

static int64_t executors_up(struct cli *c)
{
    json_t *list = NULL, *e;
    int64_t n = 0;
    size_t i;

    if (rest_list(c, "/api/v1/executors", REST_QUIET, &list, NULL) != SH_OK) {
        sh_http_free(c->http); /* perhaps the key was not there yet: read it again */
        c->http = NULL;
        free(c->server);
        c->server = NULL;
        return 0;
    }
    json_array_foreach(list, i, e)
    {
        n += strcmp(sh_json_text(e, "state"), "UP") == 0;
    }
    json_decref(list);
    return n;
}

/* The last lines of a log. */
static void print_tail(const struct state *s, const char *name)
{
    char *path = NULL, text[TAIL_BYTES + 1];
    struct stat st;
    ssize_t n = 0;
    int fd = -1;

    if (sh_asprintf(NULL, &path, "%s/log/%s.log", s->dir, name) == SH_OK)
        fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd >= 0 && fstat(fd, &st) == 0)
        n = pread(fd, text, TAIL_BYTES, SH_MAX(st.st_size - TAIL_BYTES, (off_t)0));
    if (n > 0) {
        const char *from = text;

        text[n] = '\0';
        if (st.st_size > TAIL_BYTES && strchr(text, '\n'))
            from = strchr(text, '\n') + 1;
        fprintf(stderr, "--- %s\n%s%s", path, from, text[n - 1] == '\n' ? "" : "\n");
    }
    if (fd >= 0)
        close(fd);
    free(path);
}

struct wait {
    const struct state *s;
    const struct plan *plan;
    struct sh_http *http; /* without a key */
    struct progress bar;
    char slow[48];   /* a process that is not there yet */
    char broken[48]; /* one that ends again and again */
};

/* What the supervisor says; fraction of processes that are there. */
static double wait_look(struct wait *w)
{
    json_t *system = NULL, *p;
    size_t i, n_there = 0;

    w->slow[0] = '\0';
    if (state_read_system(w->s, &system, NULL) != SH_OK || !system)
        return 0;
    json_array_foreach(json_object_get(system, "processes"), i, p)
    {
        const char *state = sh_json_text(p, "state");

        if (strcmp(state, "running") == 0 || strcmp(state, "done") == 0)
            n_there++;
        else if (!w->slow[0])
            sh_strlcpy(w->slow, sh_json_text(p, "name"), sizeof(w->slow));
        if (json_integer_value(json_object_get(p, "quick_ends")) >= SUPER_GIVE_UP)
            sh_strlcpy(w->broken, sh_json_text(p, "name"), sizeof(w->broken));
    }
    json_decref(system);
    return (double)n_there / (double)w->plan->n;
}

static int wait_until_ready(struct cli *c, struct wait *w, pid_t supervisor, struct sh_err *err)
{
    int64_t end = sh_clock_ns() + SH_S(c->conf->wait_s);
    const char *phase = "processes";

    c->own_key = true; /* one in the environment may be another system's, or may not look */
    while (sh_clock_ns() < end) {
        double there = wait_look(w);
        bool ready = there >= 1 && answers_ready(w->http);

        if (ready && executors_up(c) >= c->conf->executors)
            return SH_OK;
        phase = there < 1 ? w->slow[0] ? w->slow : "the supervisor"
                : ready   ? "an executor"
                          : "the API";
        if (w->broken[0])
            return SH_FAIL(err, SH_E_UNAVAILABLE, "%s keeps ending; its log says why", w->broken);
        if (waitpid(supervisor, NULL, WNOHANG) == supervisor) {
            sh_strlcpy(w->broken, STATE_SUPERVISOR, sizeof(w->broken));
            return SH_FAIL(err, SH_E_UNAVAILABLE, "the supervisor ended; its log says why");
        }
        progress_show(&w->bar, there * 0.8 + (ready ? 0.1 : 0), "waiting for %s", phase);
        cli_sleep_ms(50);
    }
    sh_strlcpy(w->broken, w->slow[0] ? w->slow : "api", sizeof(w->broken));
    return SH_FAIL(err, SH_E_TIMEOUT, "the system is not ready after %lld s: it waits for %s",
                   (long long)c->conf->wait_s, phase);
}

/* ---------------------------------------------------------------- up */

static void print_metrics(const struct plan *p)
{
    char url[STATE_URL_MAX];

    for (size_t i = 0; i < p->n; i++) {
        if (!p->procs[i].metrics_port)
            continue;
        state_metrics_url(p->metrics_host, p->procs[i].metrics_port, url);
        printf("  %-16s %s\n", p->procs[i].name, url);
    }
}

struct shown { /* of what is told once it is up */
    bool prometheus;
    bool is_first; /* it was never up before */
};

static void print_up(const struct cli *c, const struct state *s, const struct plan *p,
                     const struct shown *shown)
{
    const char *o = strcmp(c->conf->state_dir, CLI_STATE_DIR) == 0 ? "" : " --state-dir ";
    const char *dir = o[0] ? c->conf->state_dir : "";

    if (c->output == OUTPUT_NAME) {
        puts(p->server);
        return;
    }
    if (c->output == OUTPUT_DATA) {
        json_t *system = NULL;

        if (state_read_system(s, &system, NULL) == SH_OK && system)
            out_data(c, system);
        json_decref(system);
        return;
    }
    if (c->conf->quiet)
        return;
    printf("Shunt is up.\n  API              %s\n  console          %s/console\n"
           "  gRPC             %s\n  admin key        %s\n  logs             %s/log\n",
           p->server, p->server, p->grpc, p->key_file, s->dir);
    print_metrics(p);
    if (shown->prometheus)
        printf("  Prometheus       prometheus --config.file=%s/prometheus/prometheus.yml "
               "--storage.tsdb.path=%s/prometheus/data\n",
               s->dir, s->dir);
    puts("Next:");
    if (shown->is_first) /* else there are tenants, and models of theirs */
        printf("  shunt%s%s create tenant demo\n"
               "  shunt%s%s --tenant demo push model NAME FILE.onnx --wait\n",
               o, dir, o, dir);
    printf("  shunt%s%s status        shunt%s%s down\n", o, dir, o, dir);
}

/* In the child: a session of its own, its log as output, no ties to the caller's folder. */
static int become_daemon(const struct state *s, struct sh_err *err)
{
    char *path = NULL;
    int log = -1, null = -1, rc;

    setsid();
    rc = sh_asprintf(err, &path, "%s/log/" STATE_SUPERVISOR ".log", s->dir);
    if (!rc) {
        log = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0640);
        null = open("/dev/null", O_RDONLY | O_CLOEXEC);
        if (log < 0 || null < 0 || dup2(null, STDIN_FILENO) < 0 || dup2(log, STDOUT_FILENO) < 0 ||
            dup2(log, STDERR_FILENO) < 0 || chdir("/") != 0)
            rc = SH_FAIL_ERRNO(err, SH_E_IO, "could not detach the supervisor: %m");
    }
    if (log >= 0)
        close(log);
    if (null >= 0)
        close(null);
    free(path);
    return rc;
}

static int supervise(const struct cli *c, const struct state *s, struct plan *p, struct sh_err *err)
{
    enum sh_log_level level = SH_LOG_INFO;

    sh_log_level_parse(c->conf->log_level, &level, NULL);
    sh_log_init("shunt-up", level);
    return super_run(s, p, err);
}

static int end_supervisor(const struct state *s, pid_t pid, struct progress *bar)
{
    int64_t end = sh_clock_ns() + DOWN_WAIT_NS;

    if (pid <= 0)
        return SH_OK;
    kill(pid, SIGTERM);
    while (state_is_running(s, STATE_SUPERVISOR, pid) && sh_clock_ns() < end) {
        progress_show(bar, -1, "stopping");
        cli_sleep_ms(20);
    }
    if (state_is_running(s, STATE_SUPERVISOR, pid))
        kill(pid, SIGKILL);
    while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
        ; /* only if it is our child */
    return SH_OK;
}

static int start_and_wait(struct cli *c, const struct state *s, struct plan *p,
                          const struct shown *shown, struct sh_err *err)
{
    struct wait w = {.s = s, .plan = p};
    bool found;
    int rc = sh_http_new(p->server, NULL, &w.http, err);
    pid_t pid;

    if (rc)
        return rc;
    fflush(NULL);
    pid = fork();
    if (pid < 0) {
        rc = SH_FAIL_ERRNO(err, SH_E_IO, "could not start the supervisor: %m");
        goto out;
    }
    if (pid == 0) {
        rc = become_daemon(s, err);
        if (!rc)
            rc = supervise(c, s, p, err);
        goto out;
    }
    progress_begin(c, &w.bar);
    rc = wait_until_ready(c, &w, pid, err);
    progress_end(&w.bar);
    if (rc) {
        print_tail(s, w.broken);
        progress_begin(c, &w.bar);
        end_supervisor(s, pid, &w.bar);
        super_sweep(s, &w.bar, &found, NULL);
        progress_end(&w.bar);
    } else {
        print_up(c, s, p, shown);
    }
out:
    sh_http_free(w.http);
    return rc;
}

static int say_system_running(const struct cli *c, const struct state *s, struct sh_err *err)
{
    json_t *system = NULL;
    int rc = state_read_system(s, &system, err);

    if (!rc && c->output == OUTPUT_DATA && system)
        out_data(c, system);
    else if (!rc && c->output == OUTPUT_NAME)
        puts(sh_json_text(system, "server"));
    else if (!rc)
        out_say(c, "Shunt already runs in %s: %s. For other options: shunt down, then up again.",
                s->dir, sh_json_text(system, "server"));
    json_decref(system);
    return rc;
}

static int clear_before(struct cli *c, const struct state *s, struct sh_err *err)
{
    struct progress bar;
    bool found = false;
    int rc;

    progress_begin(c, &bar);
    rc = super_sweep(s, &bar, &found, err);
    progress_end(&bar);
    if (found)
        fprintf(stderr, "shunt: stopped what an earlier system had left running\n");
    return rc;
}

/* ---------------------------------------------------------------- what it had before */

#define MAX_LAST 4096

/* The options that make a system another one. OWNED; NULL without memory. */
static json_t *shape(const struct cli_conf *o)
{
    return json_pack("{s:I, s:s, s:s, s:s, s:I, s:I, s:I, s:I}", "port", (json_int_t)o->port,
                     "bind", o->bind, "metrics-bind", o->metrics_bind, "device", o->device,
                     "executors", (json_int_t)o->executors, "schedulers", (json_int_t)o->schedulers,
                     "workers", (json_int_t)o->workers, "pool-bytes", (json_int_t)o->pool_bytes);
}

static void add_option_text(char *out, size_t size, const char *name, const json_t *value)
{
    size_t n = strlen(out);

    if (json_is_string(value))
        snprintf(out + n, size - n, " --%s %.80s", name, json_string_value(value));
    else
        snprintf(out + n, size - n, " --%s %" JSON_INTEGER_FORMAT, name, json_integer_value(value));
}

/* Options are not kept from one start to the next: who forgets one reads it here. */
static int say_changes(const struct cli *c, const struct state *s, bool *is_first,
                       struct sh_err *err)
{
    char before[600] = "", now[600] = "", *path = NULL;
    json_t *last = NULL, *mine = shape(c->conf), *value;
    const char *name;
    int rc = mine ? state_path(s, STATE_LAST_UP, &path, err)
                  : SH_FAIL(err, SH_E_NOMEM, "could not allocate the options");

    if (!rc && sh_json_load_file(path, MAX_LAST, &last, NULL))
        last = NULL; /* the first start, or what only a remark needs */
    *is_first = !last;
    json_object_foreach(mine, name, value)
    {
        const json_t *had = json_object_get(last, name);

        if (!had || json_equal(had, value))
            continue;
        add_option_text(before, sizeof(before), name, had);
        add_option_text(now, sizeof(now), name, value);
    }
    if (before[0] && !c->conf->quiet)
        fprintf(stderr, "shunt: this system was started with%s before, and now with%s\n", before,
                now);
    if (!rc)
        rc = file_write_json(path, mine, 0644, err);
    json_decref(last);
    json_decref(mine);
    free(path);
    return rc;
}

/* The daemons have our environment; we and the demo call their API by plain HTTP. */
static int check_plain(struct sh_err *err)
{
    const char *cert = sh_conf_env("SHUNT_TLS_CERT");

    if (!cert || !cert[0])
        return SH_OK;
    return SH_FAIL(err, SH_E_INVALID,
                   "SHUNT_TLS_CERT is set, but this command starts a system with plain HTTP; unset "
                   "it, or run the daemons separately (deploy/README.md)");
}

/* What would only end again and again, each time with a line in a log. */
static int check_local_device(struct cli *c, struct sh_err *err)
{
    const char *device = c->conf->device;

    if (strcmp(device, "cpu") != 0 && strcmp(device, "cuda") != 0)
        return cli_usage(c, err, "--device is cpu or cuda, not \"%.40s\"", device);
    return SH_OK;
}

static int check_restored(const struct state *s, struct sh_err *err)
{
    char *path = NULL;
    int rc = state_path(s, STATE_RESTORING, &path, err);

    if (!rc && access(path, F_OK) == 0)
        rc = SH_FAIL(err, SH_E_CONFLICT,
                     "a `shunt restore` into \"%s\" was interrupted: remove what it left with "
                     "`shunt down --purge`, and restore again",
                     s->dir);
    free(path);
    return rc;
}

int up_main(struct cli *c, struct sh_err *err)
{
    struct plan *p = NULL;
    struct state s;
    struct shown shown = {0};
    int lock = -1, rc = check_local_device(c, err);

    if (!rc)
        rc = state_open(c->conf->state_dir, true, &s, err);
    if (rc)
        return rc;
    /* Its own calls go to the system that it starts, whatever the profile names. */
    free(c->conf->server);
    c->conf->server = NULL;
    if (state_pid(&s, STATE_SUPERVISOR) <= 0) /* with --foreground it keeps the lock */
        rc = state_lock(&s, &lock, err);
    if (!rc && state_pid(&s, STATE_SUPERVISOR) > 0) {
        rc = say_system_running(c, &s, err);
        goto out;
    }
    if (!rc)
        rc = check_plain(err);
    if (!rc)
        rc = check_restored(&s, err);
    if (!rc)
        rc = clear_before(c, &s, err);
    if (!rc)
        rc = state_give_id(&s, err);
    if (!rc)
        rc = plan_new(c, &s, &p, err);
    if (!rc)
        rc = plan_write_prometheus(c, &s, p, &shown.prometheus, err);
    if (!rc)
        rc = say_changes(c, &s, &shown.is_first, err);
    if (rc)
        goto out;
    if (c->conf->foreground) {
        fprintf(stderr, "shunt: starting %s; logs are in %s/log\n", p->server, s.dir);
        rc = supervise(c, &s, p, err);
    } else {
        rc = start_and_wait(c, &s, p, &shown, err);
    }
out:
    if (lock >= 0) {
        flock(lock, LOCK_UN); /* the supervisor has inherited it */
        close(lock);
    }
    plan_free(p);
    state_close(&s);
    return rc;
}

/* ---------------------------------------------------------------- down */

/* Ends what runs; the lock keeps a `shunt up` from starting something meanwhile. */
static int stop_all(const struct state *s, struct progress *bar, bool *found, int *lock,
                    struct sh_err *err)
{
    pid_t pid = state_pid(s, STATE_SUPERVISOR);
    bool left = false;
    int rc;

    *found = pid > 0;
    *lock = -1;
    end_supervisor(s, pid, bar); /* first: with --foreground it keeps the lock */
    if (access(s->run, F_OK) != 0)
        return SH_OK;
    rc = state_lock(s, lock, err);
    if (rc)
        return rc;
    pid = state_pid(s, STATE_SUPERVISOR); /* one that came before the lock was ours */
    end_supervisor(s, pid, bar);
    rc = super_sweep(s, bar, &left, err);
    *found = *found || left || pid > 0;
    return rc;
}

int down_main(struct cli *c, struct sh_err *err)
{
    struct progress bar;
    struct state s;
    char *left = NULL;
    bool found = false;
    int lock = -1, rc = state_open(c->conf->state_dir, false, &s, NULL);

    if (rc == SH_E_NOTFOUND) {
        out_say(c, "Nothing runs: there is no state folder \"%s\".", c->conf->state_dir);
        return SH_OK;
    }
    if (rc)
        return SH_FAIL(err, rc, "could not open the state folder \"%s\"", c->conf->state_dir);
    rc = state_check_mark(&s, err);
    if (rc)
        goto out;
    progress_begin(c, &bar);
    rc = stop_all(&s, &bar, &found, &lock, err);
    progress_end(&bar);
    if (!rc && c->conf->purge)
        rc = state_purge(&s, &left, err);
    if (!rc)
        out_say(c, "%s%s", found ? "Shunt is down." : "Nothing was running.",
                c->conf->purge ? " Its state is removed." : "");
    if (!rc && left)
        out_say(c, "The database in %s is of the folder that this one was a copy of: it stays.",
                left);
out:
    free(left);
    if (lock >= 0)
        close(lock);
    state_close(&s);
    return rc;
}
