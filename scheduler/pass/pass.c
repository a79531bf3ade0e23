/* pass.c - see pass.h: jobs. */
#include "common/clock.h"
#include "common/log.h"
#include "common/mem.h"
#include "common/metrics.h"
#include "common/units.h"
#include "scheduler/pass/pass_int.h"

#include <stdlib.h>

#define MAX_ROWS 1000000u
#define FEW_JOBS 256        /* held, and executors: all of them learn in each pass why they wait */
#define IDLE_NS SH_MS(500)  /* an executor is idle once nothing ran for so long */
#define REASON_NS SH_US(50) /* for each of them, when there are more */

int pass__grow(void *array, size_t *cap, size_t n, size_t one, struct sh_err *err)
{
    return sh_grow(array, cap, n, one, 16 * MAX_ROWS, "pass", err);
}

void pass_fini(struct pass *p)
{
    free(p->execs);
    free(p->models);
    free(p->places);
    free(p->tenants);
    free(p->requests);
    free(p->jobs);
    free(p->request_of);
    free(p->job_of);
    free(p->exec_of);
    free(p->model_of);
    free(p->shape_of);
    free(p->n_here);
    free(p->tenant_of);
    free(p->parts);
    free(p->shares);
    idmap_fini(&p->arrays);
    decisions_fini(&p->out);
    *p = (struct pass){0};
}

struct snapshot pass__conf(const struct sched *s)
{
    return (struct snapshot){.now_ns = sh_clock_ns(),
                             .db_up = dbthread_is_up(s->db),
                             .max_runs = (uint32_t)s->conf->max_runs,
                             .margin_ns = SH_US(s->conf->margin_us),
                             .min_run_ns = SH_MS(s->conf->min_run_ms)};
}

void pass__took(int64_t began_ns)
{
    sh_metric_observe(M_shunt_scheduler_pass_seconds, NULL,
                      (double)(sh_clock_ns() - began_ns) / 1e9);
}

/* ------------------------------------------------------------------ the snapshot */

static int make_pass_room(struct sched *s, struct sh_err *err)
{
    struct pass *p = &s->pass;
    const size_t n_jobs = s->jobs.n + 1;
    int rc = pass__grow(&p->execs, &p->cap_execs, s->execs.n + 1, sizeof(*p->execs), err);

    if (!rc)
        rc = pass__grow(&p->tenants, &p->cap_tenants, s->tenants.n + 1, sizeof(*p->tenants), err);
    if (!rc)
        rc = pass__grow(&p->jobs, &p->cap_jobs, n_jobs, sizeof(*p->jobs), err);
    if (!rc)
        rc = pass__grow(&p->job_of, &p->cap_job_of, n_jobs, sizeof(*p->job_of), err);
    return rc;
}

struct snap_exec pass__exec(const struct sched *s, const struct exec *e, int64_t now_ns)
{
    int64_t slack_ns, until_ns = exec_busy_until_ns(e, now_ns, &slack_ns);

    return (struct snap_exec){.up = exec_is_up(e),
                              .trains = jobs_train_on(s, e),
                              .is_idle =
                                  !e->n_runs && !e->waiting.n && now_ns - e->done_ns >= IDLE_NS,
                              .n_runs = e->n_runs,
                              .busy_until_ns = until_ns,
                              .slack_ns = slack_ns,
                              .reserve = e->reserve,
                              .lane_ns = e->lane_ns,
                              .stop_ns = e->stop_ns,
                              .ns_per_byte = e->ns_per_byte,
                              .job = SNAP_NONE,
                              .slot_taken = e->job || e->leaving,
                              .pool_bytes = e->info.pool_bytes};
}

static void take_execs(struct sched *s, struct snapshot *in)
{
    struct pass *p = &s->pass;

    for (size_t i = 0; i < s->execs.n; i++) {
        p->execs[i] = pass__exec(s, s->execs.items[i], in->now_ns);
    }
    in->execs = p->execs;
    in->n_execs = s->execs.n;
}

static void take_snap_tenants(struct sched *s, struct snapshot *in)
{
    struct pass *p = &s->pass;

    for (size_t i = 0; i < s->tenants.n; i++) {
        struct tenant *t = s->tenants.items[i];

        t->snap = (uint32_t)i;
        p->tenants[i] = tenant_facts(t);
        p->tenants[i].usage_ns = tenants_usage_ns(&s->tenants, t, in->now_ns);
    }
    in->tenants = p->tenants;
    in->n_tenants = s->tenants.n;
}

/* Jobs that wait behind those that are held: only of tenants that have a line which is cut. */
static void take_backlogs(struct sched *s)
{
    const struct lines *ls = &s->jobs.lines;

    for (size_t i = 0; i < ls->n; i++) {
        const struct tenant *t =
            ls->items[i]->cut ? tenants_by_id(&s->tenants, ls->items[i]->key.tenant_id) : NULL;

        if (t)
            s->pass.tenants[t->snap].backlog =
                (double)(t->n_jobs[JOB_QUEUED] - (int64_t)t->pooled.queued);
    }
}

static int take_array(struct pass *p, struct snapshot *in, uint64_t id, uint32_t *out,
                      struct sh_err *err)
{
    *out = id ? (uint32_t)(uintptr_t)idmap_get(&p->arrays, id) : 0;
    if (*out || !id)
        return SH_OK;
    *out = (uint32_t)++in->n_arrays;
    return idmap_put(&p->arrays, id, (void *)(uintptr_t)*out, err);
}

static int take_snap_jobs(struct sched *s, struct snapshot *in, struct sh_err *err)
{
    struct pass *p = &s->pass;
    int rc = SH_OK;

    idmap_fini(&p->arrays);
    for (size_t i = 0; i < s->jobs.n && !rc; i++) {
        struct job *j = s->jobs.items[i];
        struct jobpool_job_facts f;
        struct snap_job *out = &p->jobs[in->n_jobs];

        if (!jobs_facts(s, j, &f))
            continue;
        *out = f.is;
        out->tenant = SH_TREE_OF(f.tenant, struct tenant, pooled)->snap;
        if (f.is_on_exec)
            out->exec = execs_find(&s->execs, j->executor)->index;
        rc = take_array(p, in, f.array, &out->array, err);
        p->job_of[in->n_jobs++] = j;
    }
    in->jobs = p->jobs;
    return rc;
}

/* ------------------------------------------------------------------ acting */

int pass_snapshot(struct sched *s, struct snapshot *in, struct sh_err *err)
{
    int rc = make_pass_room(s, err);

    *in = pass__conf(s);
    in->with_jobs = true;
    if (rc)
        return rc;
    take_snap_tenants(s, in);
    take_backlogs(s);
    take_execs(s, in);
    return take_snap_jobs(s, in, err);
}

static int show_shares(struct sched *s, struct sh_err *err)
{
    struct pass *p = &s->pass;
    struct snapshot in = pass__conf(s);
    int rc;

    if (!shares_are_due(s, &in))
        return SH_OK;
    rc = pass__grow(&p->tenants, &p->cap_tenants, s->tenants.n + 1, sizeof(*p->tenants), err);
    if (!rc)
        rc = decide_shares_room(&p->out, s->tenants.n, err);
    if (rc)
        return rc;
    take_snap_tenants(s, &in);
    take_backlogs(s);
    for (size_t i = 0; i < s->tenants.n; i++) {
        p->out.shares[i].running = s->tenants.items[i]->pooled.held;
        p->out.shares[i].waiting = s->tenants.items[i]->pooled.queued;
    }
    rc = decide_shares(&in, (double)s->jobs.pool.slots.n, &p->out, err);
    if (!rc)
        shares_show(s, &in);
    return rc;
}

/* A look at all that is held grows with it: then it has to wait, so that it takes one part of the
 * time at most. */
static bool reasons_are_due(struct sched *s, int64_t now_ns)
{
    const int64_t n = (int64_t)(s->jobs.n + s->execs.n);

    if (n > FEW_JOBS && now_ns - s->jobs.reasons_ns < n * REASON_NS)
        return false;
    s->jobs.reasons_ns = now_ns;
    return true;
}

static void give_reasons(struct sched *s)
{
    struct jobs *js = &s->jobs;

    jobpool_look(&js->pool, s->execs.n);
    for (size_t i = 0; i < js->n; i++)
        if (js->items[i]->pooled.f.tenant && js->items[i]->pooled.f.is.state == SNAP_QUEUED)
            jobs_set_reason(js->items[i], jobpool_why(&js->pool, &js->items[i]->pooled));
}

static void act_on_jobs(struct sched *s)
{
    struct jobpool_job *next;

    for (struct jobpool_job *p = s->jobs.pool.started; p; p = next) {
        next = p->next_moved;
        jobs_start(s, SH_TREE_OF(p, struct job, pooled), SH_TREE_OF(p->slot, struct exec, slot));
    }
    for (struct jobpool_job *p = s->jobs.pool.stopped; p; p = next) {
        next = p->next_moved;
        jobs_suspend(s, SH_TREE_OF(p, struct job, pooled), p->why);
    }
}

void pass_jobs(struct sched *s)
{
    const struct jobpool_now now = jobs_now(s);
    struct jobpool *q = &s->jobs.pool;
    struct sh_err err = {0};

    jobs_sync(s);
    jobpool_begin(q, &now);
    jobpool_decide(q);
    if (reasons_are_due(s, now.now_ns))
        give_reasons(s);
    jobpool_end(q);
    act_on_jobs(s);
    jobs_sync(s);
    if (show_shares(s, &err))
        sh_log_err(SH_LOG_ERROR, "pass.failed", &err);
    pass__took(now.now_ns);
}
