/* pass.c - see pass.h: jobs. */
#include "common/clock.h"
#include "common/log.h"
#include "common/mem.h"
#include "common/metrics.h"
#include "scheduler/pass/pass_int.h"

#include <stdlib.h>

#define MAX_ROWS 1000000u

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
    free(p->tenant_of);
    free(p->parts);
    idmap_fini(&p->arrays);
    decisions_fini(&p->out);
    *p = (struct pass){0};
}

struct snapshot pass__conf(const struct sched *s)
{
    return (struct snapshot){.now_ns = sh_clock_ns(),
                             .db_up = dbthread_is_up(s->db),
                             .max_runs = (uint32_t)s->conf->max_runs,
                             .margin_ns = s->conf->margin_us * 1000,
                             .min_run_ns = s->conf->min_run_ms * 1000000};
}

void pass__took(int64_t began_ns)
{
    sh_metric_observe(M_shunt_scheduler_pass_seconds, NULL,
                      (double)(sh_clock_ns() - began_ns) / 1e9);
}

/* ------------------------------------------------------------------ the snapshot */

static int room(struct sched *s, struct sh_err *err)
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
                              .n_runs = e->n_runs,
                              .busy_until_ns = until_ns,
                              .slack_ns = slack_ns,
                              .lane_ns = e->lane_ns,
                              .stop_ns = e->stop_ns,
                              .ns_per_byte = e->ns_per_byte,
                              .job = SNAP_NONE,
                              .slot_taken = e->leaving != 0,
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

static void take_tenants(struct sched *s, struct snapshot *in)
{
    struct pass *p = &s->pass;

    for (size_t i = 0; i < s->tenants.n; i++) {
        struct tenant *t = s->tenants.items[i];

        t->snap = (uint32_t)i;
        p->tenants[i] =
            (struct snap_tenant){.active = t->active,
                                 .weight = t->weight,
                                 .guaranteed_gpus = t->guaranteed_gpus,
                                 .max_gpus = t->max_gpus,
                                 .lending_limit = t->lending_limit,
                                 .max_running_jobs = t->max_running_jobs,
                                 .max_memory_bytes = t->memory.max_bytes,
                                 .usage_ns = tenants_usage_ns(&s->tenants, t, in->now_ns)};
    }
    in->tenants = p->tenants;
    in->n_tenants = s->tenants.n;
}

static enum snap_job_state job_state_of(const struct job *j)
{
    if (j->state == JOB_QUEUED)
        return SNAP_QUEUED;
    if (!job_state_has_executor(j->state))
        return SNAP_LEFT;
    if (j->stopping || j->state == JOB_CANCELLING)
        return SNAP_STOPPING;
    return j->state == JOB_STARTING ? SNAP_STARTING : SNAP_RUNNING;
}

/* Jobs that wait behind those that are held: only of tenants that have a line which is cut. */
static void take_backlogs(struct sched *s)
{
    const struct lines *ls = &s->jobs.lines;

    for (size_t i = 0; i < ls->n; i++) {
        const struct tenant *t =
            ls->items[i]->cut ? tenants_by_id(&s->tenants, ls->items[i]->key.tenant_id) : NULL;

        if (t)
            s->pass.tenants[t->snap].backlog = (double)t->n_jobs[JOB_QUEUED];
    }
}

static int take_array(struct pass *p, struct snapshot *in, const struct job *j, uint32_t *out,
                      struct sh_err *err)
{
    *out = j->array_max ? (uint32_t)(uintptr_t)idmap_get(&p->arrays, (uint64_t)j->array_id) : 0;
    if (*out || !j->array_max)
        return SH_OK;
    *out = (uint32_t)++in->n_arrays;
    return idmap_put(&p->arrays, (uint64_t)j->array_id, (void *)(uintptr_t)*out, err);
}

static int take_jobs(struct sched *s, struct snapshot *in, struct sh_err *err)
{
    const int64_t max_min_run_ns = s->conf->max_min_run_ms * 1000000;
    struct pass *p = &s->pass;
    int rc = SH_OK;

    take_backlogs(s);
    idmap_fini(&p->arrays);
    for (size_t i = 0; i < s->jobs.n && !rc; i++) {
        struct job *j = s->jobs.items[i];
        uint32_t array = 0;
        const struct exec *e = NULL;
        const struct tenant *t = tenants_by_id(&s->tenants, j->tenant_id);
        const enum snap_job_state state = job_state_of(j);
        const bool is_recorded = !j->writing && !j->n_pending;

        /* A job whose last change is not recorded yet waits for that. */
        if (!t || (state == SNAP_QUEUED && !is_recorded) ||
            (state == SNAP_LEFT && (is_recorded || !j->array_max)) || !jobs_in_window(j))
            continue;
        if (state != SNAP_LEFT && j->executor[0])
            e = execs_find(&s->execs, j->executor);
        p->tenants[t->snap].backlog -= j->state == JOB_QUEUED;
        rc = take_array(p, in, j, &array, err);
        if (e)
            p->execs[e->index].job = (uint32_t)in->n_jobs;
        p->job_of[in->n_jobs] = j;
        p->jobs[in->n_jobs++] =
            (struct snap_job){.queued_us = j->place.queued_us,
                              .id = j->id,
                              .state = state,
                              .tenant = t->snap,
                              .exec = e ? e->index : SNAP_NONE,
                              .priority = j->priority,
                              .queue_open = j->queue_open,
                              .model_ready = j->model_ready || j->model_gone,
                              .not_before_ns = j->not_before_ns,
                              .since_ns = j->since_ns,
                              .min_run_ns = SH_MIN(j->min_run_ns, max_min_run_ns),
                              .is_fixed = !j->preemptible,
                              .array = array,
                              .array_max = j->array_max,
                              .need_bytes = j->need_bytes,
                              .may_suspend = j->state == JOB_RUNNING || j->state == JOB_PREEMPTED};
    }
    in->jobs = p->jobs;
    return rc;
}

/* ------------------------------------------------------------------ acting */

static void act(struct sched *s, const struct decision *d)
{
    struct pass *p = &s->pass;

    if (d->kind == DECISION_START)
        jobs_start(s, p->job_of[d->job], s->execs.items[d->exec]);
    else if (d->kind == DECISION_SUSPEND)
        jobs_suspend(s, p->job_of[d->job], d->reason);
    else
        jobs_set_reason(p->job_of[d->job], d->reason);
}

int pass_snapshot(struct sched *s, struct snapshot *in, struct sh_err *err)
{
    int rc = room(s, err);

    *in = pass__conf(s);
    in->with_jobs = true;
    if (rc)
        return rc;
    take_tenants(s, in);
    take_execs(s, in);
    return take_jobs(s, in, err);
}

void pass_jobs(struct sched *s)
{
    struct pass *p = &s->pass;
    int64_t began = sh_clock_ns();
    struct snapshot in;
    struct sh_err err = {0};
    int rc = pass_snapshot(s, &in, &err);

    if (!rc)
        rc = decide(&in, &p->out, &err);
    if (rc) {
        sh_log_err(SH_LOG_ERROR, "pass.failed", &err);
        return;
    }
    for (size_t i = 0; i < p->out.n; i++)
        act(s, &p->out.items[i]);
    shares_show(s, &in);
    pass__took(began);
}
