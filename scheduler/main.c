/* main.c - shunt-scheduler: options, loop, signals. */
#include "common/clock.h"
#include "common/db.h"
#include "common/io.h"
#include "common/log.h"
#include "common/loop.h"
#include "common/metrics.h"
#include "common/units.h"
#include "scheduler/decide/conf.h"
#include "scheduler/sched.h"

#include <stdlib.h>
#include <time.h>

#define MIGRATE_WAIT_NS SH_S(15)

/* A database that is just being started is waited for. */
static int migrate(const struct sched_conf *c, struct sh_err *err)
{
    const struct timespec pause = {.tv_nsec = SH_MS(250)};
    int64_t until = sh_clock_ns() + MIGRATE_WAIT_NS;
    struct db *db = NULL;
    int applied = 0, rc = db_new(c->db_url, "shunt-migrate", &db, err);

    while (!rc) {
        struct sh_err one = {0};

        rc = db_migrate(db, c->migrations_dir, &applied, &one);
        if (rc != SH_E_DBDOWN || sh_clock_ns() > until) { /* done, or hopeless */
            sh_err_copy(err, &one);
            break;
        }
        rc = SH_OK;
        nanosleep(&pause, NULL);
    }
    if (!rc)
        SH_INFO("migrate.done", "applied=%d version=%d", applied, DB_SCHEMA_VERSION);
    db_free(db);
    return rc;
}

/* Refuses to start on a schema it does not know; a database that is away is waited for. */
static int await_schema(const struct sched_conf *c, struct sh_err *err)
{
    struct db *db = NULL;
    int rc = db_new(c->db_url, "shunt-scheduler", &db, err);

    if (!rc)
        rc = db_ready(db, DB_SCHEMA_VERSION, err);
    db_free(db);
    if (rc != SH_E_DBDOWN)
        return rc;
    sh_log_err(SH_LOG_WARN, "db.away", err);
    *err = (struct sh_err){0};
    return SH_OK;
}

static int serve_scheduler(const struct sched_conf *c, struct sh_err *err)
{
    struct sh_loop *loop = NULL;
    struct sh_metrics_http *metrics = NULL;
    struct sh_otlp *otlp = NULL;
    struct sched *s = NULL;
    int rc = await_schema(c, err);

    sh_raise_open_files(); /* each connection is one */
    if (!rc)
        rc = sh_loop_new(&loop, err);
    if (!rc) /* before any thread is started */
        rc = sh_loop_signals(loop, NULL, NULL, NULL, err);
    if (!rc)
        rc = sh_otlp_start(&c->otlp, "shunt-scheduler", c->name, &otlp, err);
    if (!rc && c->metrics_addr && c->metrics_addr[0])
        rc = sh_metrics_http_start('s', c->metrics_addr, &metrics, err);
    if (!rc)
        rc = sched_new(c, loop, &s, err);
    if (!rc)
        sh_loop_busy_poll(loop, SH_US(c->busy_poll_us));
    if (!rc) {
        sh_metric_set(M_shunt_build_info, SH_LABELS(sh_conf_version(), ""), 1);
        SH_INFO("sched.start", "holder=%s", s->holder);
        rc = sh_loop_run(loop, err);
    }
    sched_free(s);
    sh_otlp_stop(otlp);
    sh_metrics_http_stop(metrics);
    sh_loop_free(loop);
    return rc;
}

int main(int argc, char **argv)
{
    struct sched_conf conf = {0};
    enum sh_conf_action action = SH_CONF_RUN;
    enum sh_log_level level = SH_LOG_INFO;
    struct sh_err err = {0};
    int rc;

    sh_log_init("shunt-scheduler", SH_LOG_INFO);
    rc = sh_conf_load(&SCHED_CONF, &conf, argc, argv, NULL, NULL, &action, &err);
    if (!rc && action == SH_CONF_RUN)
        rc = sh_log_level_parse(conf.log_level, &level, &err);
    if (!rc && action == SH_CONF_RUN) {
        sh_log_set_level(level);
        if (conf.migrate_only) {
            rc = migrate(&conf, &err);
        } else {
            sh_conf_log(&SCHED_CONF, &conf);
            rc = serve_scheduler(&conf, &err);
        }
    }
    if (rc)
        sh_log_err(SH_LOG_ERROR, "sched.exit", &err);
    sh_conf_free(&SCHED_CONF, &conf);
    return rc ? EXIT_FAILURE : EXIT_SUCCESS;
}
