/* leader.c - see leader.h. */
#include "scheduler/leader.h"

#include "common/clock.h"
#include "common/log.h"
#include "common/mem.h"
#include "common/metrics.h"
#include "common/units.h"
#include "scheduler/decide/lease_watch.h"
#include "scheduler/sched.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct leader {
    struct sched *sched;
    struct sh_timer *timer;
    bool asking;          /* one operation at a time ... */
    int64_t asked_ns;     /* ... begun then, ... */
    uint64_t asked_epoch; /* ... when this was the epoch; 0: to acquire */
    struct lease_watch watch;
    int64_t warned_ns;
    uint64_t warned_left;
};

static void on_answer(void *ctx, void *arg, int rc, const struct sh_err *err)
{
    struct sched *s = ctx;
    const struct store_lease *l = arg;

    s->leader->asking = false;
    /* One that stands by is ready if it could take the lease. */
    sh_metrics_set_ready(!rc || s->epoch);
    if (rc) {
        if (sh_log_ratelimit(&s->leader->warned_ns, &s->leader->warned_left, 5000)) {
            sh_log_err(SH_LOG_WARN, "lease.database", err);
            s->leader->warned_left = 0;
        }
        return;
    }
    /* A renewal that comes after we have stood down renews nothing: what we knew is thrown away,
     * and the next time of leading needs an epoch of its own. */
    if (s->epoch != s->leader->asked_epoch)
        return;
    if (l->held)
        lease_watch_on_success(&s->leader->watch, s->leader->asked_ns);
    if (s->epoch == 0 && l->held)
        sched_lead(s, l->fence.epoch);
    else if (s->epoch && !l->held)
        sched_stand_down(s, "another scheduler has the lease");
}

/* As JSON. */
static void say_options(const struct sched_conf *conf, char *out, size_t size)
{
    struct sched_conf copy = *conf;
    size_t n = 0;

    for (const char *const *o = SCHED_DECIDES_BY; *o; o++) {
        char name[SCHED_MEMBER_BYTES];

        sched_conf_member(*o, name);
        n += (size_t)snprintf(out + n, size - n, "%c\"%s\":%" PRId64, n ? ',' : '{', name,
                              *sched_conf_int(&copy, *o));
    }
    snprintf(out + n, size - n, "}");
}

static int ask_for_lease(struct sched *s, dbop_run_fn *run, struct sh_err *err)
{
    struct store_lease *l = calloc(1, sizeof(*l));
    int rc;

    if (!l)
        return SH_FAIL(err, SH_E_NOMEM, "could not allocate a lease operation");
    l->fence = sched_fence(s);
    l->ttl_ms = s->conf->lease_ttl_ms;
    say_options(s->conf, l->options, sizeof(l->options));
    rc = dbthread_submit(s->db,
                         &(struct dbop){.name = "lease",
                                        .run = run,
                                        .done = on_answer,
                                        .ctx = s,
                                        .arg = l,
                                        .free_arg = free,
                                        .flags = DBOP_FRONT | DBOP_FAIL_FAST},
                         err);
    if (rc)
        free(l);
    return rc;
}

static void try_now(struct leader *l, int64_t now)
{
    struct sched *s = l->sched;
    struct sh_err err = {0};

    l->asking = true;
    l->asked_ns = now;
    l->asked_epoch = s->epoch;
    lease_watch_on_try(&l->watch, now);
    if (ask_for_lease(s, s->epoch ? store_lease_renew : store_lease_acquire, &err)) {
        l->asking = false;
        sh_log_err(SH_LOG_ERROR, "lease.ask", &err);
    }
}

static void on_timer(struct sh_loop *loop, void *arg)
{
    struct leader *l = arg;
    struct sched *s = l->sched;
    int64_t ttl_ns = SH_MS(s->conf->lease_ttl_ms), now = sh_clock_ns();

    (void)loop;
    if (s->epoch && lease_watch_is_lost(&l->watch, ttl_ns, now))
        sched_stand_down(
            s, "the lease ends, and others reach the database, but this scheduler does not");
    if (s->epoch == 0)
        l->watch = (struct lease_watch){0};
    /* One that stands by asks twice as often: requests are refused until somebody leads. */
    if (!l->asking && now - l->asked_ns >= ttl_ns / (s->epoch ? 3 : 6))
        try_now(l, now);
}

void leader_on_word(struct sched *s)
{
    struct leader *l = s->leader;
    int64_t now = sh_clock_ns();

    if (!s->epoch || !lease_watch_on_word(&l->watch, SH_MS(s->conf->lease_ttl_ms), now))
        return;
    dbthread_hear(s->db);
    if (!l->asking)
        try_now(l, now);
}

int leader_new(struct sched *s, struct leader **out, struct sh_err *err)
{
    struct leader *l = calloc(1, sizeof(*l));
    int rc;

    *out = NULL;
    if (!l)
        return SH_FAIL(err, SH_E_NOMEM, "could not allocate the leader");
    l->sched = s;
    rc = sh_timer_add(s->loop, 0, SH_MS(s->conf->lease_ttl_ms) / 12, on_timer, l, &l->timer, err);
    if (rc) {
        free(l);
        return rc;
    }
    *out = l;
    return SH_OK;
}

void leader_free(struct leader *l)
{
    struct sched *s;
    struct store_lease *op;

    if (!l)
        return;
    s = l->sched;
    sh_timer_del(l->timer);
    op = s->epoch ? calloc(1, sizeof(*op)) : NULL;
    if (op) {
        op->fence = sched_fence(s);
        /* At the end of the queue: what we owe the database is written first. */
        if (dbthread_submit(s->db,
                            &(struct dbop){.name = "lease.release",
                                           .run = store_lease_release,
                                           .arg = op,
                                           .free_arg = free,
                                           .flags = DBOP_FAIL_FAST},
                            NULL))
            free(op);
    }
    free(l);
}
