/* pass.c - see pass.h: fills the snapshot, calls decide(), acts. */
#include "scheduler/pass/pass.h"

#include "common/clock.h"
#include "common/log.h"
#include "common/mem.h"
#include "common/metrics.h"
#include "scheduler/models/serving.h"
#include "scheduler/sched.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#define MAX_ROWS 1000000u

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
    free(p->model_of);
    free(p->shape_of);
    free(p->parts);
    idmap_fini(&p->arrays);
    decisions_fini(&p->out);
    *p = (struct pass){0};
}

/* ------------------------------------------------------------------ the snapshot */

/* Each is to decide() a model of its own. */
static size_t n_shapes(const struct sched *s)
{
    size_t n = 0;

    for (size_t i = 0; i < s->models.n; i++)
        n += s->models.items[i]->n_shapes;
    return n;
}

static int room(struct sched *s, struct sh_err *err)
{
    struct pass *p = &s->pass;
    size_t n_execs = SH_MAX(s->execs.n, 1u), n_models = SH_MAX(s->models.n + n_shapes(s), 1u);
    size_t n_req = s->requests.n + 1, n_jobs = s->jobs.n + 1;
    int rc = sh_grow(&p->execs, &p->cap_execs, n_execs, sizeof(*p->execs), MAX_ROWS, "pass", err);

#define ROOM(what, n) \
    if (!rc)          \
    rc = sh_grow(&p->what, &p->cap_##what, (n), sizeof(*p->what), 16 * MAX_ROWS, "pass", err)
    ROOM(models, n_models);
    ROOM(model_of, n_models);
    ROOM(shape_of, n_models);
    ROOM(places, n_models * n_execs);
    ROOM(tenants, s->tenants.n + 1);
    ROOM(requests, n_req);
    ROOM(request_of, n_req);
    ROOM(parts, n_req);
    ROOM(jobs, n_jobs);
    ROOM(job_of, n_jobs);
#undef ROOM
    return rc;
}

static void take_execs(struct sched *s, struct snapshot *in)
{
    struct pass *p = &s->pass;

    for (size_t i = 0; i < s->execs.n; i++) {
        const struct exec *e = s->execs.items[i];
        int64_t slack_ns, until_ns = exec_busy_until_ns(e, in->now_ns, &slack_ns);

        p->execs[i] = (struct snap_exec){.up = exec_is_up(e),
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
    in->execs = p->execs;
    in->n_execs = s->execs.n;
}

/* h: one of its shapes, or NULL. */
static void take_model(struct sched *s, struct snapshot *in, struct model *m, struct shape *h)
{
    struct pass *p = &s->pass;
    struct snap_model *x = &p->models[in->n_models];
    const struct predict *times = h ? &h->predict : &m->predict;

    *(h ? &h->snap : &m->snap) = (uint32_t)in->n_models;
    p->model_of[in->n_models] = m;
    p->shape_of[in->n_models] = h;
    *x = (struct snap_model){.max_batch = m->max_batch,
                             .is_solo = m->is_solo,
                             .image_bytes = m->image_bytes,
                             .cold_slack_ns =
                                 predict_cold_ns(&m->predict, m->slo_percentile, in->now_ns),
                             .asked = predict_asked(times, in->now_ns),
                             .refused_ns = m->refused_ns};
    for (unsigned b = 0; b <= predict_bucket(m->max_batch); b++) {
        struct predict_time t;

        predict_run(times, 1u << b, m->slo_percentile, in->now_ns, &t);
        x->run_ns[b] = t.usual_ns;
        x->slow_ns[b] = t.slow_ns;
        x->tail_ns[b] = t.tail_ns;
        if (b == 0)
            x->fastest_ns = t.fastest_ns;
    }
    for (size_t e = 0; e < s->execs.n; e++)
        p->places[in->n_models * s->execs.n + e] =
            (struct snap_place){.ready = m->on[e].phase == MODEL_ON_READY && !m->gone &&
                                         (!h || h->on[e].phase == SHAPE_READY),
                                .resident_bytes = m->on[e].resident_bytes,
                                .arrives_ns = m->on[e].arrives_ns};
    x->expected_ns = serving_expected_ns(s, m, in->now_ns);
    x->failed = serving_state(s, m) == MSG_UP_FAILED;
    in->n_models++;
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

static bool is_taken(const struct pass *p, const struct snapshot *in, const struct request *r)
{
    const uint32_t at = r->shape ? r->shape->snap : r->model->snap;

    return at < in->n_models && p->model_of[at] == r->model && p->shape_of[at] == r->shape;
}

static void take_requests(struct sched *s, struct snapshot *in)
{
    struct pass *p = &s->pass;

    for (size_t i = 0; i < s->requests.n; i++) {
        struct request *r = s->requests.items[i];

        if (r->state == REQUEST_RUNNING || r->state == REQUEST_LOST)
            continue;
        if (!requests_has_shape(s, r))
            continue;
        if (!is_taken(p, in, r))
            take_model(s, in, r->model, r->shape);
        p->request_of[in->n_requests] = r;
        p->requests[in->n_requests++] =
            (struct snap_request){.state = r->state == REQUEST_READY ? SNAP_READY : SNAP_OPEN,
                                  .model = r->shape ? r->shape->snap : r->model->snap,
                                  .tenant = r->tenant->snap,
                                  .exec = r->exec ? r->exec->index : SNAP_NONE,
                                  .promised = r->promised,
                                  .batch = r->batch,
                                  .priority = r->priority,
                                  .arrived_ns = r->open_ns,
                                  .deadline_ns = r->deadline_ns,
                                  .limit_ns = r->limit_ns,
                                  .wait_ns = r->open_ns + s->conf->load_wait_ms * 1000000,
                                  .on_miss = r->model->on_miss};
    }
    in->requests = p->requests;
    in->models = p->models;
    in->places = p->places;
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

/* Too late, by prediction: what a client reads, and what is done so that another is not. */
static void refuse_late(struct sched *s, const struct decision *d, struct request *r, char *msg,
                        size_t size)
{
    double limit_ms = (double)((r->limit_ns - r->open_ns + 500) / 1000) / 1e3;
    double expected_ms = (double)d->predicted_ns / 1e6;
    char more[96];

    r->predicted_ms = (d->predicted_ns + 999999) / 1000000;
    if (!r->exec && !r->model->refused_ns)
        r->model->refused_ns = sh_clock_ns();
    if (d->exec != SNAP_NONE)
        requests_bring(s, r, s->execs.items[d->exec]);
    snprintf(more, sizeof(more), "; asking again in %" PRId64 " ms may help", d->retry_after_ms);
    if (expected_ms > limit_ms)
        snprintf(msg, size,
                 "the deadline of %.12g ms cannot be met: the result is expected after %.3f ms%s",
                 limit_ms, expected_ms,
                 d->is_alone_too_slow
                     ? "; the model alone takes longer than that, so asking again does not help: "
                       "allow more time"
                     : more);
    else
        snprintf(msg, size,
                 "the deadline of %.12g ms could be met only if requests that were let in before "
                 "missed theirs%s",
                 limit_ms, more);
}

static void refuse(struct sched *s, const struct decision *d)
{
    struct request *r = s->pass.request_of[d->request];
    char msg[320];

    switch (d->reason) {
    case DECIDE_DEADLINE:
        refuse_late(s, d, r, msg, sizeof(msg));
        break;
    case DECIDE_MODEL_FAILED:
        snprintf(msg, sizeof(msg), "no executor could load version %u of \"%s\": %.100s",
                 r->model->version, r->model->name, r->model->fail_msg);
        break;
    case DECIDE_MODEL_LOADING:
        snprintf(msg, sizeof(msg), "version %u of \"%s\" is being loaded; try again",
                 r->model->version, r->model->name);
        break;
    default:
        snprintf(msg, sizeof(msg), "no executor is connected; try again");
    }
    requests_refuse(s, r, d->rc, d->retry_after_ms, msg);
}

static void run(struct sched *s, const struct decision *d)
{
    struct pass *p = &s->pass;
    struct sh_err err = {0};

    for (uint32_t i = 0; i < d->n; i++)
        p->parts[i] = p->request_of[p->out.members[d->first + i]];
    if (requests_run(s, s->execs.items[d->exec], p->parts, d->n, d, &err))
        sh_log_err(SH_LOG_ERROR, "request.run", &err);
}

static void act(struct sched *s, const struct decision *d)
{
    struct pass *p = &s->pass;

    switch (d->kind) {
    case DECISION_PLACE:
        requests_place(s, p->request_of[d->request], s->execs.items[d->exec], d->is_probe);
        break;
    case DECISION_REFUSE:
        refuse(s, d);
        break;
    case DECISION_RUN:
        run(s, d);
        break;
    case DECISION_START:
        jobs_start(s, p->job_of[d->job], s->execs.items[d->exec]);
        break;
    case DECISION_SUSPEND:
        jobs_suspend(s, p->job_of[d->job], d->reason);
        break;
    case DECISION_WAIT:
        jobs_set_reason(p->job_of[d->job], d->reason);
        break;
    }
}

int pass_snapshot(struct sched *s, bool with_jobs, struct snapshot *in, struct sh_err *err)
{
    int rc = room(s, err);

    *in = (struct snapshot){.now_ns = sh_clock_ns(),
                            .db_up = dbthread_is_up(s->db),
                            .with_jobs = with_jobs,
                            .max_runs = (uint32_t)s->conf->max_runs,
                            .margin_ns = s->conf->margin_us * 1000,
                            .min_run_ns = s->conf->min_run_ms * 1000000};
    if (rc)
        return rc;
    take_tenants(s, in);
    take_execs(s, in);
    take_requests(s, in);
    return with_jobs ? take_jobs(s, in, err) : SH_OK;
}

void pass_run(struct sched *s, bool with_jobs)
{
    struct pass *p = &s->pass;
    int64_t began = sh_clock_ns();
    struct snapshot in;
    struct sh_err err = {0};
    int rc = pass_snapshot(s, with_jobs, &in, &err);

    if (!rc)
        rc = decide(&in, &p->out, &err);
    if (rc) {
        sh_log_err(SH_LOG_ERROR, "pass.failed", &err);
        return;
    }
    for (size_t i = 0; i < p->out.n; i++)
        act(s, &p->out.items[i]);
    if (with_jobs)
        shares_show(s, &in);
    sh_metric_observe(M_shunt_scheduler_pass_seconds, NULL, (double)(sh_clock_ns() - began) / 1e9);
}
