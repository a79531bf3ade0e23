/* turn.c - what every part asks of its scheduler: another pass or look, and database operations. */
#include "common/log.h"
#include "common/metrics.h"
#include "scheduler/route.h"
#include "scheduler/sched.h"

#include <string.h>

void sched_poll(struct sched *s)
{
    s->route->poll(s);
}

void sched_lost_lease(struct sched *s)
{
    s->route->stand_down(s, "another scheduler has the lease");
}

void sched_count(const char *decision, const char *rule)
{
    sh_metric_add(M_shunt_decisions_total, SH_LABELS(decision, rule), 1);
}

void sched_wake(struct sched *s)
{
    s->woken = s->all_woken = true;
}

void sched_wake_some(struct sched *s)
{
    s->woken = true;
}

void sched_wake_jobs(struct sched *s)
{
    s->jobs_woken = true;
}

struct store_fence sched_fence(const struct sched *s)
{
    struct store_fence f = {.epoch = s->epoch};

    memcpy(f.holder, s->holder, sizeof(f.holder));
    return f;
}

int sched_submit(struct sched *s, const struct sched_op *op, void *arg, struct sh_err *err)
{
    int rc;

    if (s->epoch == 0)
        rc = SH_FAIL(err, SH_E_UNAVAILABLE, "this scheduler does not lead");
    else
        rc = dbthread_submit(s->db,
                             &(struct dbop){.name = op->name,
                                            .run = op->run,
                                            .done = op->done,
                                            .ctx = s,
                                            .arg = arg,
                                            .free_arg = op->free_arg,
                                            .flags = op->flags,
                                            .generation = s->epoch},
                             err);
    if (rc) {
        op->free_arg(arg);
        if (s->epoch)
            SH_ERROR("db.submit", "op=%s code=%s", op->name, sh_rc_name(rc));
    }
    return rc;
}

bool sched_op_ok(struct sched *s, const char *name, int rc, const struct sh_err *err)
{
    if (rc == SH_OK)
        return true;
    if (rc == SH_E_PRECONDITION) {
        sched_lost_lease(s);
        return false;
    }
    if (rc != SH_E_DBDOWN) {
        struct sh_err named = *err;

        sh_err_detail(&named, "operation %s", name);
        sh_log_err(SH_LOG_ERROR, "db.failed", &named);
    }
    return false;
}
