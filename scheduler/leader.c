#include "scheduler/leader.h"

#include "common/log.h"
#include "common/mem.h"
#include "scheduler/sched.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

struct leader {
    struct sched *sched;
    struct sh_timer *timer;
    bool asking; /* one operation at a time */
    int64_t warned_ns;
    uint64_t warned_left;
};

static void on_answer(void *ctx, void *arg, int rc, const struct sh_err *err)
{
    struct sched *s = ctx;
    const struct store_lease *l = arg;

    s->leader->asking = false;
    if (rc) {
        if (sh_log_ratelimit(&s->leader->warned_ns, &s->leader->warned_left, 5000)) {
            sh_log_err(SH_LOG_WARN, "lease.database", err);
            s->leader->warned_left = 0;
        }
        return;
    }
    if (s->epoch == 0 && l->held)
        sched_lead(s, l->fence.epoch);
    else if (s->epoch && s->epoch == l->fence.epoch && !l->held)
        sched_stand_down(s, "another scheduler has the lease");
}

static int ask(struct sched *s, dbop_run_fn *run, struct sh_err *err)
{
    struct store_lease *l = calloc(1, sizeof(*l));
    int rc;

    if (!l)
        return SH_FAIL(err, SH_E_NOMEM, "could not allocate a lease operation");
    l->fence = sched_fence(s);
    l->ttl_ms = s->conf->lease_ttl_ms;
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

static void on_timer(struct sh_loop *loop, void *arg)
{
    struct leader *l = arg;
    struct sched *s = l->sched;
    struct sh_err err = {0};

    (void)loop;
    if (l->asking)
        return;
    l->asking = true;
    if (ask(s, s->epoch ? store_lease_renew : store_lease_acquire, &err)) {
        l->asking = false;
        sh_log_err(SH_LOG_ERROR, "lease.ask", &err);
    }
}

int leader_new(struct sched *s, struct leader **out, struct sh_err *err)
{
    struct leader *l = calloc(1, sizeof(*l));
    int rc;

    *out = NULL;
    if (!l)
        return SH_FAIL(err, SH_E_NOMEM, "could not allocate the leader");
    l->sched = s;
    rc = sh_timer_add(s->loop, 0, s->conf->lease_ttl_ms * 1000000 / 3, on_timer, l, &l->timer, err);
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
