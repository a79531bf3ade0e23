/* decide_world.h - a small snapshot to start from, for the tests of decide.h. */
#ifndef SH_TESTS_UNIT_DECIDE_WORLD_H
#define SH_TESTS_UNIT_DECIDE_WORLD_H

#include "scheduler/decide/decide.h"
#include "tests/unit/sh_test.h"

#define MS INT64_C(1000000)
#define W_EXECS 4
#define W_MODELS 4
#define W_TENANTS 4
#define W_REQUESTS 1024
#define W_JOBS 64
#define NOW (1000 * MS)

struct world {
    struct snap_exec execs[W_EXECS];
    struct snap_model models[W_MODELS];
    struct snap_place places[W_MODELS * W_EXECS];
    struct snap_tenant tenants[W_TENANTS];
    struct snap_request requests[W_REQUESTS];
    struct snap_job jobs[W_JOBS];
    struct snapshot in;
    struct decisions out;
};

/* n_execs idle executors that hold every model; a run takes 10 ms + 1 ms a bucket, and begins only
 * when all weights are there; four tenants. */
static inline void world_init(struct world *w, size_t n_execs)
{
    *w = (struct world){0};
    for (size_t e = 0; e < W_EXECS; e++)
        w->execs[e] = (struct snap_exec){
            .up = true, .busy_until_ns = NOW, .ns_per_byte = 0.1, .stop_ns = MS, .job = SNAP_NONE};
    for (size_t m = 0; m < W_MODELS; m++) {
        w->models[m] = (struct snap_model){.max_batch = 8, .image_bytes = 100u << 20};
        for (unsigned b = 0; b < PREDICT_N_BUCKETS; b++)
            w->models[m].run_ns[b] = w->models[m].tail_ns[b] = (10 + b) * MS;
    }
    for (size_t i = 0; i < W_MODELS * n_execs; i++)
        w->places[i] = (struct snap_place){.ready = true, .resident_bytes = 100u << 20};
    for (size_t t = 0; t < W_TENANTS; t++)
        w->tenants[t] = (struct snap_tenant){.active = true,
                                             .weight = 1,
                                             .max_gpus = -1,
                                             .lending_limit = -1,
                                             .max_running_jobs = 16};
    w->in = (struct snapshot){.now_ns = NOW,
                              .db_up = true,
                              .with_jobs = true,
                              .max_runs = 1,
                              .min_run_ns = 30000 * MS,
                              .execs = w->execs,
                              .n_execs = n_execs,
                              .models = w->models,
                              .n_models = W_MODELS,
                              .places = w->places,
                              .tenants = w->tenants,
                              .n_tenants = W_TENANTS,
                              .requests = w->requests,
                              .jobs = w->jobs};
}

static inline struct snap_place *place_of(struct world *w, uint32_t model, uint32_t e)
{
    return &w->places[model * w->in.n_execs + e];
}

/* A ready request of one sample, placed on executor 0, without a deadline. */
static inline struct snap_request *add_request(struct world *w, uint32_t model)
{
    struct snap_request *r = &w->requests[w->in.n_requests++];

    assert_true(w->in.n_requests <= W_REQUESTS);
    *r = (struct snap_request){.state = SNAP_READY,
                               .model = model,
                               .batch = 1,
                               .arrived_ns = NOW - 100 * MS + (int64_t)w->in.n_requests,
                               .deadline_ns = SNAP_NO_DEADLINE,
                               .limit_ns = SNAP_NO_DEADLINE};
    return r;
}

static inline struct snap_job *add_job(struct world *w, uint32_t tenant)
{
    struct snap_job *j = &w->jobs[w->in.n_jobs++];

    assert_true(w->in.n_jobs <= W_JOBS);
    *j = (struct snap_job){.id = (int64_t)w->in.n_jobs,
                           .state = SNAP_QUEUED,
                           .tenant = tenant,
                           .exec = SNAP_NONE,
                           .queue_open = true,
                           .model_ready = true};
    return j;
}

/* A job that has held the slot of e for `for_ms`. */
static inline struct snap_job *add_running(struct world *w, uint32_t tenant, uint32_t e,
                                           int64_t for_ms)
{
    struct snap_job *j = add_job(w, tenant);

    j->state = SNAP_RUNNING;
    j->exec = e;
    j->since_ns = NOW - for_ms * MS;
    j->may_suspend = true;
    w->execs[e].job = (uint32_t)(j - w->jobs);
    w->execs[e].trains = true;
    return j;
}

static inline void world_decide(struct world *w)
{
    struct sh_err err = {0};

    assert_ok_err(decide(&w->in, &w->out, &err), &err);
    /* Whoever is refused, stopped or kept waiting is told by which rule (docs/rules.md). */
    for (size_t i = 0; i < w->out.n; i++) {
        const struct decision *d = &w->out.items[i];

        if (d->kind == DECISION_REFUSE || d->kind == DECISION_SUSPEND || d->kind == DECISION_WAIT)
            assert_int_not_equal(d->reason, DECIDE_NONE);
    }
}

static inline size_t count(const struct world *w, enum decision_kind kind)
{
    size_t n = 0;

    for (size_t i = 0; i < w->out.n; i++)
        n += w->out.items[i].kind == kind;
    return n;
}

/* The nth decision of a kind, or a failure. */
static inline const struct decision *nth(const struct world *w, enum decision_kind kind, size_t n)
{
    for (size_t i = 0; i < w->out.n; i++) {
        if (w->out.items[i].kind == kind && n-- == 0)
            return &w->out.items[i];
    }
    fail_msg("there is no such decision of kind %d", (int)kind);
    return NULL;
}

/* The decision of a kind about a job, or NULL. */
static inline const struct decision *about(const struct world *w, enum decision_kind kind,
                                           const struct snap_job *j)
{
    for (size_t i = 0; i < w->out.n; i++) {
        if (w->out.items[i].kind == kind && w->out.items[i].job == (uint32_t)(j - w->jobs))
            return &w->out.items[i];
    }
    return NULL;
}

#endif
