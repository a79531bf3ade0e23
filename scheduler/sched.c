/* sched.c - see sched.h. */
#include "scheduler/sched.h"

#include "common/clock.h"
#include "common/hash.h"
#include "common/log.h"
#include "common/mem.h"
#include "common/metrics.h"
#include "common/units.h"
#include "scheduler/leader.h"
#include "scheduler/models/ahead.h"
#include "scheduler/models/homes.h"
#include "scheduler/models/serving.h"
#include "scheduler/records/oldest.h"
#include "scheduler/route.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#define LAST_WRITES_MS 3000

/* ------------------------------------------------------------------ reading the database */

static void open_doors(struct sched *s)
{
    struct sh_err err = {0};
    static const int64_t EVERY_MS = 5000;

    if (!sessions_listen(s, &err))
        return;
    if (sh_log_ratelimit(&s->sessions.warned_ns, &s->sessions.warned_left, EVERY_MS)) {
        sh_log_err(SH_LOG_WARN, "sched.listen", &err);
        s->sessions.warned_left = 0;
    }
}

static void on_past(void *ctx, void *arg, int rc, const struct sh_err *err)
{
    struct sched *s = ctx;
    const struct store_past *p = arg;

    if (!sched_op_ok(s, "past", rc, err))
        return; /* estimates begin with what ends from now on */
    for (size_t i = 0; i < p->n; i++)
        past_add(&s->past, &p->jobs[i].like, p->jobs[i].steps, p->jobs[i].busy_ns,
                 p->jobs[i].whole_ns);
}

/* What jobs took before we began to lead. Nobody waits for it. */
static void read_past(struct sched *s)
{
    static const struct sched_op OP = {"past", store_past_read, on_past, store_past_free,
                                       DBOP_FAIL_FAST};
    struct store_past *p = calloc(1, sizeof(*p));
    struct sh_err err = {0};

    s->past = (struct past){0};
    if (p && sched_submit(s, &OP, p, &err))
        sh_log_err(SH_LOG_WARN, "past", &err);
}

static void on_lines_reset(void *ctx, void *arg, int rc, const struct sh_err *err)
{
    (void)arg;
    sched_op_ok(ctx, "lines.reset", rc, err);
}

/* A leader before us may have had levels. Those whose place changes are told as any change is. */
static void reset_lines(struct sched *s)
{
    static const struct sched_op OP = {"lines.reset", store_lines_reset, on_lines_reset, free,
                                       DBOP_ANY_ORDER};
    struct store_fence *f = s->conf->level_ms ? NULL : calloc(1, sizeof(*f));
    struct sh_err err = {0};

    if (!f)
        return;
    *f = sched_fence(s);
    if (sched_submit(s, &OP, f, &err))
        sh_log_err(SH_LOG_WARN, "lines.reset", &err);
}

static void on_view(void *ctx, void *arg, int rc, const struct sh_err *err)
{
    struct sched *s = ctx;
    struct store_view *v = arg;
    struct sh_err one = {0};

    if (!sched_op_ok(s, "poll", rc, err)) {
        s->polling = false;
        /* Usage grows with tenants, models and the half-life. Nobody waits for it: without a first
         * look this leader would not even listen. */
        if (v->with_usage && rc == SH_E_TIMEOUT) {
            SH_WARN("sched.usage", "msg=\"past usage could not be read in time: shares begin "
                                   "without it\"");
            s->skips_usage = true;
            sched__poll(s);
        }
        return;
    }
    s->n_polls++;
    if (v->with_tenants)
        limits_note(s, LIMIT_TENANTS, v->n_tenants >= v->most.tenants);
    if (v->with_models)
        limits_note(s, LIMIT_VERSIONS, v->n_models >= v->most.versions);
    rc = tenants_merge(&s->tenants, v, s->n_polls, sh_clock_ns(), &one);
    execs_tell_memory(s); /* before the models that it bounds */
    if (!rc)
        rc = models_merge(s, v, &one);
    if (!rc)
        rc = jobs_merge(s, v, &one);
    s->polling = false; /* only now: the next look asks by what this one has seen */
    if (rc) {
        store_seen_free(&s->jobs.seen); /* what it told is not told again */
        sh_log_err(SH_LOG_ERROR, "poll.merge", &one);
        return;
    }
    if (!s->loaded) {
        s->loaded = true;
        SH_INFO("sched.lead", "epoch=%" PRIu64 " tenants=%zu models=%zu jobs=%zu", s->epoch,
                s->tenants.n, s->models.n, s->jobs.n);
        traffics_begin(&s->traffics, sh_clock_ns());
        open_doors(s);
        read_past(s);
        reset_lines(s);
    }
    sched_wake_jobs(s);
    if (s->poll_again)
        sched__poll(s);
}

void sched__poll(struct sched *s)
{
    static const struct sched_op OP = {"poll", store_view_load, on_view, store_view_free,
                                       DBOP_FAIL_FAST};
    struct store_view *v;
    struct sh_err err = {0};

    if (s->epoch == 0)
        return;
    s->poll_again = s->polling;
    if (s->polling)
        return;
    v = calloc(1, sizeof(*v));
    if (!v)
        return; /* the timer asks again */
    v->fence = sched_fence(s);
    v->most = limits_of(s);
    v->with_usage = !s->loaded && !s->skips_usage;
    v->half_life_s = (double)s->conf->usage_half_life_s;
    if (jobs_ask(s, v, &err)) {
        store_view_free(v);
        return;
    }
    s->poll_at_ns = sh_clock_ns();
    s->polling = true;
    if (sched_submit(s, &OP, v, &err))
        s->polling = false;
}

/* ------------------------------------------------------------------ leading */

void sched_lead(struct sched *s, uint64_t epoch)
{
    s->epoch = epoch;
    s->tenants.half_life_s = (double)s->conf->usage_half_life_s;
    s->tenants.most = (size_t)s->conf->max_tenants;
    jobs_init(s);
    homes_begin(s);
    SH_INFO("lease.won", "epoch=%" PRIu64 " holder=%s", epoch, s->holder);
    sh_metric_set(M_shunt_leader, NULL, 1);
    sh_metric_add(M_shunt_view_differences_total, NULL,
                  0); /* so that the first one is an increase */
    sched__poll(s);
}

static void forget_database_work(struct sched *s)
{
    requests_fini(s); /* before what requests point to */
    jobs_fini(s);
    models_fini(s);
    traffics_fini(&s->traffics);
    arrivals_fini(&s->arrivals);
    execs_fini(&s->execs);
    tenants_fini(&s->tenants);
    s->usage = (struct usage){0};
    report_fini(&s->report);
    s->shares = (struct shares){0};
    s->limits = (struct limits){0};
    sweep_reset(s);
}

void sched_stand_down(struct sched *s, const char *why)
{
    uint64_t epoch = s->epoch;

    if (epoch == 0)
        return;
    SH_WARN("lease.lost", "epoch=%" PRIu64 " why=\"%s\"", epoch, why);
    s->epoch = 0; /* first: nothing below may write or give orders */
    s->loaded = s->polling = s->poll_again = s->skips_usage = false;
    s->woken = s->all_woken = s->jobs_woken = false;
    sh_metric_set(M_shunt_leader, NULL, 0);
    requests_refuse_all(s, "another scheduler takes over; try again");
    sessions_end_all(s, why);
    forget_database_work(s);
    dbthread_drop(s->db, epoch);
    dbthread_drop(s->sweep.db, epoch);
}

/* ------------------------------------------------------------------ the loop's hooks */

static void on_db(struct sh_loop *l, void *arg)
{
    struct sched *s = arg;

    (void)l;
    dbthread_collect(s->db, &s->epoch);
    sweep_collect(s);
}

static void pass_all(struct sched *s)
{
    const bool requests = s->woken, jobs = s->jobs_woken;

    if (s->all_woken)
        waiting_touch_all(s);
    s->woken = s->all_woken = s->jobs_woken = false;
    sessions_cork(s);
    if (requests)
        pass_requests(s);
    if (jobs) {
        s->pass_at_ns = sh_clock_ns();
        pass_jobs(s);
    }
    sessions_uncork(s);
}

static void before_sleep(struct sh_loop *l, void *arg)
{
    struct sched *s = arg;

    (void)l;
    if (s->loaded)
        serving_tell(s);
    /* Acting may wake us again, after a failed write for example: that is for the next turn. */
    if (s->loaded)
        jobs_sync(s);
    for (int i = 0; i < 4 && (s->woken || s->jobs_woken) && s->loaded; i++)
        pass_all(s);
}

static void on_tick(struct sh_loop *l, void *arg)
{
    struct sched *s = arg;
    int64_t now = sh_clock_ns();

    (void)l;
    if (s->epoch == 0)
        return;
    if (now - s->poll_at_ns >= SH_MS(s->conf->poll_ms))
        sched__poll(s);
    if (!s->loaded)
        return;
    requests_expire(s, now);
    jobs_tick(s, now);
    sweep_tick(s, now);
    waiting_tick(s);
    ahead_tick(s);
    sched_wake_some(s);
    if (now - s->pass_at_ns >= SH_MS(250))
        sched_wake_jobs(s);
}

static void on_second(struct sh_loop *l, void *arg)
{
    struct sched *s = arg;

    (void)l;
    sh_metric_set(M_shunt_db_up, NULL, dbthread_is_up(s->db));
    sessions_second(s);
    if (s->epoch == 0 || !s->loaded)
        return;
    open_doors(s);
    models_second(s);
    serving_second(s);
    report_second(s);
    jobs_second(s);
    oldest_second(s);
    execs_metrics(s);
}

/* ------------------------------------------------------------------ start and end */

static int name_holder(struct sched *s, struct sh_err *err)
{
    uint8_t random[8];
    char hex[2 * sizeof(random) + 1];
    int rc = sh_random(random, sizeof(random), err);

    if (rc)
        return rc;
    sh_hex(random, sizeof(random), hex);
    if ((size_t)snprintf(s->holder, sizeof(s->holder), "%s/%s", s->conf->name, hex) >=
        sizeof(s->holder))
        return SH_FAIL(err, SH_E_INVALID, "--name has at most %zu bytes",
                       sizeof(s->holder) - sizeof(hex) - 1);
    return SH_OK;
}

int sched_new(const struct sched_conf *conf, struct sh_loop *l, struct sched **out,
              struct sh_err *err)
{
    struct sched *s = calloc(1, sizeof(*s));
    int rc;

    *out = NULL;
    if (!s)
        return SH_FAIL(err, SH_E_NOMEM, "could not allocate the scheduler");
    s->conf = conf;
    s->loop = l;
    s->route = &SCHED_ROUTE;
    rc = sh_wire_keys_open(&conf->link_key, (const char *const[]){conf->listen, NULL},
                           &s->link_keys, err);
    if (!rc)
        rc = name_holder(s, err);
    if (!rc)
        rc =
            dbthread_new(l, conf->db_url, "shunt-scheduler", (size_t)conf->max_db_ops, &s->db, err);
    if (!rc)
        rc = sweep_init(s, err);
    if (rc)
        goto out;
    sh_loop_on_wake(l, on_db, s);
    sh_loop_before_sleep(l, before_sleep, s);
    rc = sh_timer_add(l, 0, SH_MS(conf->tick_ms), on_tick, s, &s->tick, err);
    if (!rc)
        rc = sh_timer_add(l, SH_S(1), SH_S(1), on_second, s, &s->second, err);
    if (!rc)
        rc = leader_new(s, &s->leader, err);
    if (rc)
        goto out;
    sh_metric_set(M_shunt_leader, NULL, 0);
    *out = s;
    s = NULL;
out:
    sched_free(s);
    return rc;
}

/* A job's next write waits for the answer to the one before: the answers are still taken. */
static void write_jobs(struct sched *s)
{
    const struct timespec pause = {.tv_nsec = SH_MS(5)};
    int64_t until = sh_clock_ns() + SH_MS(LAST_WRITES_MS);

    while (s->epoch && s->loaded && jobs_flush_all(s) && dbthread_is_up(s->db) &&
           sh_clock_ns() < until) {
        nanosleep(&pause, NULL);
        dbthread_collect(s->db, &s->epoch);
    }
}

void sched_free(struct sched *s)
{
    if (!s)
        return;
    sh_timer_del(s->tick);
    sh_timer_del(s->second);
    if (s->epoch)
        requests_refuse_all(s, "the scheduler is stopped; try again");
    sessions_fini(s);
    write_jobs(s);
    leader_free(s->leader);
    sweep_fini(s);
    dbthread_free(s->db, LAST_WRITES_MS);
    forget_database_work(s);
    pass_fini(&s->pass);
    sh_wire_keys_free(s->link_keys);
    free(s);
}
