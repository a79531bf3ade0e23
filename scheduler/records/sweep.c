/* sweep.c - see sweep.h. */
#include "scheduler/records/sweep.h"

#include "common/clock.h"
#include "common/log.h"
#include "common/metrics.h"
#include "scheduler/sched.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define BATCH_MAX 1000
#define BATCH_MIN 10
#define LAST_BATCH_MS 1000

static int64_t kept_days(const struct sched_conf *c, enum store_sweep_kind kind)
{
    switch (kind) {
    case SWEEP_EVENT_PARTS:
    case SWEEP_EVENTS:
        return c->keep_events_days;
    case SWEEP_JOBS:
        return c->keep_jobs_days;
    case SWEEP_USAGE_HOURS:
        return c->keep_minutes_days;
    case SWEEP_USAGE_PARTS:
    case SWEEP_USAGE:
        return c->keep_usage_days;
    case SWEEP_AUDIT_PARTS:
    case SWEEP_AUDIT:
        return c->keep_audit_days;
    case SWEEP_KEYS:
        return c->keep_keys_days;
    case SWEEP_DELETED:
        return c->keep_deleted_days;
    case SWEEP_N_KINDS:
        break;
    }
    return 0;
}

static void next_kind(struct sweep *w, int64_t now_ns)
{
    w->batch = BATCH_MAX;
    w->next_ns = now_ns + SWEEP_PAUSE_NS;
    w->kind++;
    if (w->kind < SWEEP_N_KINDS)
        return;
    w->kind = (enum store_sweep_kind)0;
    w->next_ns = now_ns + SWEEP_EVERY_NS;
}

static void on_part(const struct store_sweep *x)
{
    const char *table = store_sweep_parts(x->kind);

    sh_metric_set(M_shunt_partition_ahead_seconds, SH_LABELS(table), (double)x->part.ahead_s);
    if (strcmp(x->part.did, "done") == 0)
        return;
    sh_metric_add(M_shunt_partition_steps_total, SH_LABELS(table, x->part.did), 1);
    SH_INFO("partition.step", "table=%s did=%s name=%s", table, x->part.did, x->part.name);
}

static void on_swept(void *ctx, void *arg, int rc, const struct sh_err *err)
{
    struct sched *s = ctx;
    const struct store_sweep *x = arg;
    struct sweep *w = &s->sweep;
    int64_t now = sh_clock_ns();

    w->running = false;
    w->next_ns = now + SWEEP_PAUSE_NS;
    if (rc == SH_E_PRECONDITION) {
        sched_lost_lease(s);
        return;
    }
    if (rc == SH_E_TIMEOUT && w->batch > BATCH_MIN && !store_sweep_parts(x->kind)) {
        w->batch /= 2;
        return;
    }
    if (rc) {
        if (rc != SH_E_DBDOWN) {
            struct sh_err named = *err;

            sh_err_detail(&named, "sweep of %s", store_sweep_name(x->kind));
            sh_log_err(SH_LOG_WARN, "sweep.failed", &named);
        }
        next_kind(w, now);
        return;
    }
    if (store_sweep_parts(x->kind))
        on_part(x);
    if (x->n_rows > 0) {
        sh_metric_add(M_shunt_swept_rows_total, SH_LABELS(store_sweep_name(x->kind)),
                      (double)x->n_rows);
        SH_DEBUG("sweep.done", "kind=%s rows=%" PRId64, store_sweep_name(x->kind), x->n_rows);
    }
    if (!x->more)
        next_kind(w, now);
}

void sweep_tick(struct sched *s, int64_t now_ns)
{
    struct sweep *w = &s->sweep;
    struct store_sweep *x;
    struct sh_err err = {0};

    if (w->running || now_ns < w->next_ns)
        return;
    /* Partitions are made also where nothing is ever old. */
    while (w->kind < SWEEP_N_KINDS && kept_days(s->conf, w->kind) == 0 &&
           !store_sweep_parts(w->kind))
        w->kind++;
    x = w->kind < SWEEP_N_KINDS ? calloc(1, sizeof(*x)) : NULL;
    if (!x) {
        next_kind(w, now_ns);
        return;
    }
    *x = (struct store_sweep){.fence = sched_fence(s),
                              .kind = w->kind,
                              .days = kept_days(s->conf, w->kind),
                              .batch = w->batch};
    if (dbthread_submit(w->db,
                        &(struct dbop){.name = "sweep",
                                       .run = store_sweep,
                                       .done = on_swept,
                                       .ctx = s,
                                       .arg = x,
                                       .free_arg = free,
                                       .flags = DBOP_FAIL_FAST,
                                       .generation = s->epoch},
                        &err)) {
        sh_log_err(SH_LOG_WARN, "sweep.submit", &err);
        free(x);
        next_kind(w, now_ns);
        return;
    }
    w->running = true;
}

int sweep_init(struct sched *s, struct sh_err *err)
{
    s->sweep.batch = BATCH_MAX;
    return dbthread_new(s->loop, s->conf->db_url, "shunt-scheduler-sweep", 2, &s->sweep.db, err);
}

void sweep_collect(struct sched *s)
{
    if (s->sweep.db)
        dbthread_collect(s->sweep.db, &s->epoch);
}

void sweep_reset(struct sched *s)
{
    for (int k = 0; k < SWEEP_N_KINDS; k++) /* the next leader tells it */
        if (store_sweep_parts((enum store_sweep_kind)k))
            sh_metric_drop(M_shunt_partition_ahead_seconds,
                           SH_LABELS(store_sweep_parts((enum store_sweep_kind)k)));
    s->sweep = (struct sweep){.db = s->sweep.db, .batch = BATCH_MAX};
}

void sweep_fini(struct sched *s)
{
    dbthread_free(s->sweep.db, LAST_BATCH_MS);
    s->sweep.db = NULL;
}
