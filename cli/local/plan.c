/* plan.c - see plan.h. */
#include "cli/local/plan.h"

#include "cli/files/file.h"
#include "common/hash.h"
#include "common/mem.h"
#include "common/spawn.h"

#include <arpa/inet.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#define GRPC_OFFSET 1 /* 8001 beside 8000, as others have it */
#define METRICS_OFFSET 100
#define FREE_PORT_FIRST 15000
#define FREE_PORT_LAST 32000
#define FREE_PORT_TRIES 64
#define POLL_US 200000
#define POLL_CORES 16 /* for each executor; docs/decisions/0018 */

/* What belongs to the programs: <self>/../share/shunt/<name> in a bundle, else <self>/../../<name>
 * as in the source tree. *out: OWNED; NULL if there is none. */
static int find_data(const char *given, const char *name, char **out, struct sh_err *err)
{
    static const char *const PLACES[] = {"../share/shunt", "../.."};
    char dir[4096];
    int rc = SH_OK;

    *out = NULL;
    if (given && given[0]) {
        *out = realpath(given, NULL);
        return *out ? SH_OK
                    : SH_FAIL_ERRNO(err, SH_E_INVALID, "there is no folder \"%s\": %m", given);
    }
    rc = sh_self_dir(dir, sizeof(dir), err);
    for (size_t i = 0; !rc && !*out && i < SH_ARRAY_LEN(PLACES); i++) {
        char *path = NULL;

        rc = sh_asprintf(err, &path, "%s/%s/%s", dir, PLACES[i], name);
        if (!rc)
            *out = realpath(path, NULL);
        free(path);
    }
    return rc;
}

/* ---------------------------------------------------------------- ports */

static bool port_is_free(const char *bind_addr, int port)
{
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    int on = 1, fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    bool ok;

    if (inet_pton(AF_INET, bind_addr, &a.sin_addr) != 1)
        a.sin_addr.s_addr = htonl(INADDR_ANY);
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    ok = fd >= 0 && bind(fd, (const struct sockaddr *)&a, sizeof(a)) == 0;
    if (fd >= 0)
        close(fd);
    return ok;
}

/* Below the ephemeral range, so that no outgoing connection of anybody takes one of ours between
 * the choice and the start. */
static int any_port(void)
{
    uint16_t r = 0;

    if (sh_random(&r, sizeof(r), NULL))
        return 0;
    return FREE_PORT_FIRST + r % (FREE_PORT_LAST - FREE_PORT_FIRST);
}

/* 0 if all are free, else the first that is taken. */
static int taken_port(const struct cli_conf *o, int port)
{
    if (!port_is_free(o->bind, port))
        return port;
    if (!port_is_free(o->bind, port + GRPC_OFFSET))
        return port + GRPC_OFFSET;
    for (int i = 0; i < 1 + (int)o->executors + (int)o->schedulers; i++)
        if (!port_is_free(o->metrics_bind, port + METRICS_OFFSET + i))
            return port + METRICS_OFFSET + i;
    return 0;
}

int plan_port(const struct cli_conf *o, int *out, struct sh_err *err)
{
    int taken;

    *out = (int)o->port;
    for (int i = 0; o->port == 0 && i < FREE_PORT_TRIES; i++) {
        *out = any_port();
        if (*out > 0 && *out <= 65000 && taken_port(o, *out) == 0)
            return SH_OK;
    }
    if (o->port == 0)
        return SH_FAIL(err, SH_E_UNAVAILABLE, "could not find a free range of ports");
    taken = taken_port(o, *out);
    if (taken)
        return SH_FAIL(err, SH_E_CONFLICT,
                       "port %d of %s is in use; choose another one with --port, or --port 0 for "
                       "any (gRPC is at port+%d, metrics are served from port+%d on)",
                       taken, taken <= *out + GRPC_OFFSET ? o->bind : o->metrics_bind, GRPC_OFFSET,
                       METRICS_OFFSET);
    return SH_OK;
}

/* ---------------------------------------------------------------- processes */

struct builder {
    struct plan *p;
    const struct cli_conf *o;
    const struct state *s;
    size_t n_args; /* of the process at hand */
    int rc;
    struct sh_err *err;
};

static struct plan_proc *add_proc(struct builder *b, const char *name, enum plan_kind kind,
                                  int64_t stop_ms)
{
    struct plan_proc *pp = &b->p->procs[b->p->n];

    if (!b->rc && b->p->n + 1 >= PLAN_MAX_PROCS)
        b->rc = SH_FAIL(b->err, SH_E_TOOBIG, "too many processes");
    if (b->rc)
        return pp;
    b->p->n++;
    b->n_args = 0;
    *pp = (struct plan_proc){
        .kind = kind, .stop_signal = SIGTERM, .stop_ms = stop_ms, .owns_argv = true};
    sh_strlcpy(pp->name, name, sizeof(pp->name));
    return pp;
}

__attribute__((format(printf, 3, 4))) static void arg(struct builder *b, struct plan_proc *pp,
                                                      const char *fmt, ...)
{
    char text[4500];
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    if (!b->rc && b->n_args + 1 >= PLAN_MAX_ARGS)
        b->rc = SH_FAIL(b->err, SH_E_BUG, "too many arguments for a process");
    if (!b->rc)
        b->rc = sh_strdup(text, &pp->argv[b->n_args++], b->err);
}

static long long busy_poll_us(const struct cli_conf *o)
{
    const bool has_cores = sh_cores() >= POLL_CORES * (unsigned)o->executors;

    if (o->busy_poll_us >= 0)
        return o->busy_poll_us;
    return strcmp(o->device, "cuda") == 0 && has_cores ? POLL_US : 0;
}

/* What every daemon of ours takes; one without metrics ends by itself. */
static void common_args(struct builder *b, struct plan_proc *pp, int metrics_port)
{
    pp->metrics_port = metrics_port;
    arg(b, pp, "--log-level=%s", b->o->log_level);
    if (!metrics_port)
        return;
    arg(b, pp, "--metrics-addr=%s:%d", b->o->metrics_bind, metrics_port);
    arg(b, pp, "--busy-poll-us=%lld", busy_poll_us(b->o));
}

static void add_database(struct builder *b)
{
    struct plan_proc *pp;

    if (b->rc || !b->p->has_pg)
        return;
    if (b->p->pg.is_new) {
        pp = add_proc(b, "initdb", PLAN_ONCE, 5000);
        pp->owns_argv = false;
        pp->keep = SH_ENV_SYSTEM;
        memcpy(pp->argv, b->p->pg.initdb, sizeof(pp->argv));
    }
    pp = add_proc(b, "postgres", PLAN_DAEMON, 20000);
    pp->owns_argv = false;
    pp->is_gate = true;
    pp->stop_signal = SIGINT; /* "fast": ends sessions, writes everything, leaves nothing to redo */
    pp->keep = SH_ENV_SYSTEM;
    memcpy(pp->argv, b->p->pg.postgres, sizeof(pp->argv));
}

static void add_migration(struct builder *b, const char *migrations)
{
    struct plan_proc *pp = add_proc(b, "migrate", PLAN_ONCE, 5000);

    arg(b, pp, "shunt-scheduler");
    arg(b, pp, "--migrate-only");
    arg(b, pp, "--migrations-dir=%s", migrations);
    common_args(b, pp, 0);
}

/* The first is "scheduler"; those that stand by have a number behind the name. */
static void scheduler_name(int i, char out[static 24])
{
    if (i == 0)
        sh_strlcpy(out, "scheduler", 24);
    else
        snprintf(out, 24, "scheduler-%d", i);
}

static void add_scheduler(struct builder *b, int i, int port, const char *migrations)
{
    struct plan_proc *pp;
    char name[24];

    scheduler_name(i, name);
    pp = add_proc(b, name, PLAN_DAEMON, 10000);
    arg(b, pp, "shunt-scheduler");
    arg(b, pp, "--name=%s", name);
    arg(b, pp, "--listen=unix:%s/%s.sock", b->s->sock, name);
    arg(b, pp, "--migrations-dir=%s", migrations);
    common_args(b, pp, port + METRICS_OFFSET + (i == 0 ? 1 : (int)b->o->executors + 1 + i));
}

/* For whoever connects to the leader, whichever that is. */
static void schedulers_arg(struct builder *b, struct plan_proc *pp)
{
    char *text = NULL, name[24];

    for (int i = 0; !b->rc && i < (int)b->o->schedulers; i++) {
        char *shorter = text;

        scheduler_name(i, name);
        b->rc = sh_asprintf(b->err, &text, "%s%sunix:%s/%s.sock", shorter ? shorter : "",
                            shorter ? "," : "", b->s->sock, name);
        free(shorter);
    }
    arg(b, pp, "--scheduler=%s", text ? text : "");
    free(text);
}

static bool is_cpu(const struct cli_conf *o)
{
    return strcmp(o->device, "cpu") == 0;
}

/* Of each worker; 0: the device's default, all cores. Several executors of the cpu device share
 * those. */
static long long threads(const struct cli_conf *o)
{
    if (o->threads > 0 || !is_cpu(o) || o->executors == 1)
        return o->threads;
    return SH_MAX(1, (long long)sh_cores() / o->executors);
}

static void add_executor(struct builder *b, int i, int port)
{
    const struct cli_conf *o = b->o;
    struct plan_proc *pp;
    char name[48];

    snprintf(name, sizeof(name), "executor-%.16s%d", o->device, i);
    pp = add_proc(b, name, PLAN_DAEMON, 20000);
    pp->keep = SH_ENV_DAEMON;
    arg(b, pp, "shunt-executor");
    arg(b, pp, "--name=%s", name + strlen("executor-"));
    arg(b, pp, "--state-dir=%s", b->s->dir);
    schedulers_arg(b, pp);
    arg(b, pp, "--data-addr=unix:%s/%s.sock", b->s->sock, name);
    arg(b, pp, "--device=%s", o->device);
    arg(b, pp, "--ordinal=%d", is_cpu(o) ? 0 : i);
    arg(b, pp, "--workers=%lld", (long long)o->workers);
    arg(b, pp, "--pool-bytes=%lld", (long long)o->pool_bytes);
    if (threads(o) > 0)
        arg(b, pp, "--threads=%lld", threads(o));
    if (o->copy_gb_per_s > 0)
        arg(b, pp, "--copy-gb-per-s=%g", o->copy_gb_per_s);
    common_args(b, pp, port + METRICS_OFFSET + 2 + i);
}

static void add_api(struct builder *b, int port)
{
    struct plan_proc *pp = add_proc(b, "api", PLAN_DAEMON, 35000); /* it drains for 30 s */

    arg(b, pp, "shunt-api");
    arg(b, pp, "--name=api");
    arg(b, pp, "--listen=%s:%d", b->o->bind, port);
    arg(b, pp, "--grpc-listen=%s:%d", b->o->bind, port + GRPC_OFFSET);
    arg(b, pp, "--state-dir=%s", b->s->dir);
    schedulers_arg(b, pp);
    arg(b, pp, "--admin-key-file=%s", b->p->key_file);
    arg(b, pp, "--executor-key-file=%s/executor.key", b->s->dir);
    common_args(b, pp, port + METRICS_OFFSET);
}

/* ---------------------------------------------------------------- the plan */

const char *plan_db_url(const struct cli_conf *o)
{
    return o->db_url && o->db_url[0] ? o->db_url : sh_conf_env("DATABASE_URL");
}

static int make_env(struct plan *p, const char *db_url, struct sh_err *err)
{
    /* In the environment, because command lines can be read by everybody. Options of this command
     * are not those of a daemon, so their sources are emptied. */
    static const char *const EMPTY[] = {"SHUNT_CONFIG=", "SHUNT_KEY=", "SHUNT_KEY_FILE="};
    int rc = sh_asprintf(err, &p->env[0], "SHUNT_DB_URL=%s", db_url);

    for (size_t i = 0; !rc && i < SH_ARRAY_LEN(EMPTY); i++)
        rc = sh_strdup(EMPTY[i], &p->env[i + 1], err);
    return rc;
}

/* Where somebody on this host reaches what listens on an address. */
static const char *reached_at(const char *bind_addr)
{
    return strcmp(bind_addr, "0.0.0.0") == 0 ? "127.0.0.1" : bind_addr;
}

static int make_server(struct plan *p, const struct cli_conf *o, struct sh_err *err)
{
    int rc;

    p->metrics_host = reached_at(o->metrics_bind);
    rc = sh_asprintf(err, &p->server, "http://%s:%d", reached_at(o->bind), p->port);
    return rc ? rc
              : sh_asprintf(err, &p->grpc, "%s:%d", reached_at(o->bind), p->port + GRPC_OFFSET);
}

static int plan_fill(struct cli *c, const struct state *s, struct plan *p, struct sh_err *err)
{
    struct builder b = {.p = p, .o = c->conf, .s = s, .err = err};
    const char *url = plan_db_url(c->conf);
    char *migrations = NULL;
    int rc = plan_port(c->conf, &p->port, err);

    if (!rc)
        rc = make_server(p, c->conf, err);
    if (!rc)
        rc = state_path(s, "admin.key", &p->key_file, err);
    if (!rc)
        rc = find_data(c->conf->migrations_dir, "migrations", &migrations, err);
    if (!rc && !migrations)
        rc = SH_FAIL(err, SH_E_INVALID, "the migrations are not found; give --migrations-dir");
    if (!rc && !url) {
        rc = pg_prepare(s, c->conf->pg_bin, false, &p->pg, err);
        p->has_pg = rc == SH_OK;
    }
    if (!rc)
        rc = make_env(p, url ? url : p->pg.url, err);
    if (!rc) {
        add_database(&b);
        add_migration(&b, migrations);
        for (int i = 0; i < (int)c->conf->schedulers; i++)
            add_scheduler(&b, i, p->port, migrations);
        for (int i = 0; i < (int)c->conf->executors; i++)
            add_executor(&b, i, p->port);
        add_api(&b, p->port);
        rc = b.rc;
    }
    free(migrations);
    return rc;
}

int plan_new(struct cli *c, const struct state *s, struct plan **out, struct sh_err *err)
{
    struct plan *p = calloc(1, sizeof(*p));
    int rc = p ? plan_fill(c, s, p, err) : SH_FAIL(err, SH_E_NOMEM, "could not allocate a plan");

    *out = NULL;
    if (rc)
        plan_free(p);
    else
        *out = p;
    return rc;
}

void plan_free(struct plan *p)
{
    if (!p)
        return;
    for (size_t i = 0; i < p->n; i++)
        for (size_t k = 0; p->procs[i].owns_argv && k < PG_MAX_ARGS; k++)
            free(p->procs[i].argv[k]);
    for (size_t i = 0; i < SH_ARRAY_LEN(p->env); i++)
        free(p->env[i]);
    if (p->has_pg)
        pg_fini(&p->pg);
    free(p->server);
    free(p->grpc);
    free(p->key_file);
    free(p);
}

/* ---------------------------------------------------------------- Prometheus */

static int copy_state_file(const char *from_dir, const struct state *s, const char *name,
                           struct sh_err *err)
{
    char *from = NULL, *to = NULL, *text = NULL;
    size_t len = 0;
    int rc = sh_asprintf(err, &from, "%s/%s", from_dir, name);

    if (!rc)
        rc = sh_asprintf(err, &to, "%s/prometheus/%s", s->dir, name);
    if (!rc)
        rc = file_read(from, 1 << 20, &text, &len, err);
    if (!rc)
        rc = file_write(to, text, len, 0644, err);
    free(from);
    free(to);
    free(text);
    return rc;
}

static int write_targets(const struct state *s, const struct plan *p, struct sh_err *err)
{
    json_t *list = json_array();
    char *path = NULL, addr[96];
    int rc = list ? state_path(s, "prometheus/targets/shunt.json", &path, err)
                  : SH_FAIL(err, SH_E_NOMEM, "could not allocate a list");

    for (size_t i = 0; !rc && i < p->n; i++) {
        const struct plan_proc *pp = &p->procs[i];

        if (!pp->metrics_port)
            continue;
        snprintf(addr, sizeof(addr), "%s:%d", p->metrics_host, pp->metrics_port);
        if (json_array_append_new(list,
                                  json_pack("{s:[s], s:{s:s#}}", "targets", addr, "labels",
                                            "process", pp->name, (int)strcspn(pp->name, "-"))))
            rc = SH_FAIL(err, SH_E_NOMEM, "could not allocate a list");
    }
    if (!rc)
        rc = file_write_json(path, list, 0644, err);
    json_decref(list);
    free(path);
    return rc;
}

int plan_write_prometheus(const struct cli *c, const struct state *s, const struct plan *p,
                          bool *made, struct sh_err *err)
{
    char *from = NULL, *targets = NULL;
    int rc = find_data(c->conf->dashboards_dir, "dashboards", &from, err);
    char *yml = NULL;

    *made = false;
    if (rc || !from)
        goto out;
    rc = sh_asprintf(err, &yml, "%s/prometheus", from);
    if (!rc)
        rc = state_path(s, "prometheus/targets", &targets, err);
    if (!rc)
        rc = file_make_dir(targets, 0755, err);
    if (!rc)
        rc = copy_state_file(yml, s, "prometheus.yml", err);
    if (!rc)
        rc = copy_state_file(yml, s, "alerts.yml", err);
    if (!rc)
        rc = write_targets(s, p, err);
    *made = rc == SH_OK;
out:
    free(from);
    free(yml);
    free(targets);
    return rc;
}
