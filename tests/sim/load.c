/* load.c - see load.h. */
#include "tests/sim/load.h"

#include "common/mem.h"
#include "common/units.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_LIVE 120 /* jobs that have not ended; then no more are submitted */
#define MAX_VERSIONS 40
#define TRIES 8
#define AGAIN_NS SH_MS(300)
#define LAST_NS SH_S(7) /* by then the last action has come */

struct action {
    struct sim_api *api;
    struct database_call call;
    unsigned n_tries;
};

static bool is_over;
static struct sim_ack *acks;
static size_t n_acks, cap_acks;
static int64_t quota_ns;
static uint64_t n_tokens;
static double rate;
static const struct sim_load_kind *load;

const struct sim_ack *sim_acks(size_t *n)
{
    *n = n_acks;
    return acks;
}

int64_t sim_load_quota_ns(void)
{
    return quota_ns;
}

/* ------------------------------------------------------------------ what is drawn */

static int64_t any(size_t n)
{
    return (int64_t)sim_below(n) + 1;
}

static int64_t live_job(void)
{
    size_t n = 0, at;

    for (size_t i = 0; i < database.n_jobs; i++)
        n += !job_state_is_final(database.jobs[i].state);
    if (n == 0)
        return 0;
    at = (size_t)sim_below(n);
    for (size_t i = 0; i < database.n_jobs; i++)
        if (!job_state_is_final(database.jobs[i].state) && at-- == 0)
            return database.jobs[i].id;
    return 0;
}

static size_t n_live(void)
{
    size_t n = 0;

    for (size_t i = 0; i < database.n_jobs; i++)
        n += !job_state_is_final(database.jobs[i].state);
    return n;
}

static const struct database_version *trainable(void)
{
    const struct database_version *v;

    do
        v = &database.versions[any(database.n_versions) - 1];
    while (!database.models[v->model_id - 1].trains);
    return v;
}

static void draw_job(struct database_call *c)
{
    const struct database_version *v = trainable();
    struct database_job *j = &c->job;
    bool is_batch = sim_chance(0.3), publishes = sim_chance(0.1);
    int64_t steps = sim_chance(0.08) ? sim_between(300, 900) : sim_between(10, 150);

    c->kind = DATABASE_SUBMIT;
    c->n = sim_chance(0.08) ? (size_t)sim_between(2, 12) : 1;
    if (c->n > 1 && load->floods &&
        n_live() < MAX_LIVE / 2) { /* more than a look reads of a line */
        c->n = (size_t)sim_between(100, 300);
        steps = sim_between(1, 4);
    }
    c->number = sim_between(0, 3);
    c->what = sim_chance(0.1) ? "hold" : NULL;
    *j = (struct database_job){.tenant_id = v->tenant_id,
                               .version_id = v->id,
                               .queue_id = any(database.n_queues),
                               .is_batch = is_batch,
                               .publishes = !is_batch && publishes,
                               .preemptible = sim_chance(0.85),
                               .priority = (int32_t)(sim_chance(0.3) ? sim_between(-9, 9) : 0),
                               .max_attempts = 4,
                               .all_steps = steps,
                               .step_samples = is_batch ? 1 : 32,
                               .deadline_ns =
                                   sim_chance(0.1) ? sim_now() + sim_between(SH_S(3), SH_S(60)) : 0,
                               .progress = {.loss = NAN, .samples_per_s = NAN}};
    snprintf(j->spec, sizeof(j->spec), "{\"steps\":%" PRId64 ",\"batch\":32,\"publish\":%s}", steps,
             j->publishes ? "true" : "false");
    snprintf(j->token, sizeof(j->token), "t%" PRIu64, ++n_tokens);
    sh_strlcpy(j->dataset, "datasets/d", sizeof(j->dataset));
    sh_strlcpy(j->inputs, "[{\"name\":\"x\",\"datatype\":\"FP32\",\"shape\":[-1,8]}]",
               sizeof(j->inputs));
    sh_strlcpy(j->outputs, "[{\"name\":\"y\",\"datatype\":\"FP32\",\"shape\":[-1,8]}]",
               sizeof(j->outputs));
    if (load->prepare)
        load->prepare(j);
}

static void draw_control(struct database_call *c)
{
    static const char *const WHAT[] = {"cancel", "cancel",  "suspend", "resume",    "resume",
                                       "hold",   "release", "requeue", "checkpoint"};

    c->kind = DATABASE_CONTROL;
    c->id = live_job();
    c->what = WHAT[sim_below(SH_ARRAY_LEN(WHAT))];
}

static void draw_version(struct database_call *c)
{
    static const enum database_do KINDS[] = {DATABASE_UNLOAD, DATABASE_LOAD, DATABASE_LOAD,
                                             DATABASE_DELETE, DATABASE_PIN};

    if (database.n_versions < MAX_VERSIONS && sim_chance(0.4)) {
        c->kind = DATABASE_REGISTER;
        c->id = any(database.n_models);
        c->number = 8;
        return;
    }
    c->kind = KINDS[sim_below(SH_ARRAY_LEN(KINDS))];
    c->id = any(database.n_versions);
    c->number = sim_chance(0.4);
    if (c->kind == DATABASE_DELETE && sim_chance(0.7))
        c->kind = DATABASE_LOAD;
}

static void draw_limits(struct database_call *c)
{
    c->kind = DATABASE_QUOTA_PUT;
    c->id = any(database.n_tenants);
    c->quota = database.tenants[c->id - 1].quota;
    if (sim_chance(0.3)) {
        c->kind = DATABASE_QUEUE;
        c->id = any(database.n_queues);
        c->number = sim_chance(0.3);
    } else if (sim_chance(0.2)) {
        c->kind = DATABASE_TENANT;
        c->number = sim_chance(0.6);
    } else if (sim_chance(0.3) && database.n_arrays) {
        c->kind = DATABASE_ARRAY;
        c->id = any(database.n_arrays);
        c->number = sim_between(0, 4);
    } else {
        c->quota.max_running_jobs = (uint32_t)sim_between(1, 8);
        c->quota.max_concurrent_requests = (uint32_t)sim_between(2, 64);
        c->quota.guaranteed_gpus = (double)sim_between(0, 2);
        c->quota.memory.min_bytes = sim_below(4) * (load->memory_bytes / 8);
        if (load->limits_memory)
            c->quota.memory.max_bytes =
                sim_chance(0.3) ? (1 + sim_below(8)) * (load->memory_bytes / 8) : 0;
        c->quota.memory.share = (double)sim_between(1, 3);
    }
}

static void draw(struct database_call *c)
{
    uint64_t at = sim_below(100);

    if (at < 45 && n_live() < MAX_LIVE) {
        draw_job(c);
    } else if (at < 80) {
        draw_control(c);
    } else if (at < 88) {
        c->kind = DATABASE_PATCH;
        c->id = live_job();
        c->is_deadline = sim_chance(0.2);
        c->number = c->is_deadline ? sim_between(SH_S(2), SH_S(40)) : sim_between(-20, 20);
    } else if (at < 95) {
        draw_version(c);
    } else {
        draw_limits(c);
    }
    if (sim_chance(0.05)) /* other work in the same transaction */
        c->open_ns = sim_between(0, SH_S(3));
}

/* ------------------------------------------------------------------ the action */

static void note(const struct database_call *c)
{
    struct sim_ack *a;

    if (c->kind == DATABASE_QUOTA_PUT || c->kind == DATABASE_ARRAY || c->kind == DATABASE_TENANT)
        quota_ns = sim_now();
    if (c->kind != DATABASE_SUBMIT &&
        (c->kind != DATABASE_CONTROL || strcmp(c->what, "cancel") != 0 || !c->n_changed))
        return;
    sim_grow(&acks, &cap_acks, n_acks + 1, sizeof(*acks));
    a = &acks[n_acks++];
    *a = c->kind == DATABASE_SUBMIT ? (struct sim_ack){SIM_ACK_SUBMIT, c->first_id, ""}
                                    : (struct sim_ack){SIM_ACK_CANCEL, c->id, ""};
    sh_strlcpy(a->token, c->job.token, sizeof(a->token));
}

static bool is_of_versions(enum database_do kind)
{
    return kind == DATABASE_REGISTER || kind == DATABASE_LOAD || kind == DATABASE_UNLOAD ||
           kind == DATABASE_PIN || kind == DATABASE_DELETE;
}

static void on_done(void *arg, struct database_call *c, int rc);

static void again(void *arg, uint64_t n)
{
    struct action *a = arg;

    (void)n;
    database_call(sim_api_proc(a->api), &a->call, on_done, a);
}

static void on_done(void *arg, struct database_call *c, int rc)
{
    struct action *a = arg;

    sim_trace("did %d id=%" PRId64 " %s rc=%d", (int)c->kind, c->id, c->what ? c->what : "", rc);
    if (rc == SH_OK) {
        note(c);
        sim_api_hint(a->api, is_of_versions(c->kind) ? "models" : "jobs");
    } else if ((rc == SH_E_DBDOWN || rc == SH_E_TIMEOUT || rc == SH_E_DBSOFT) && !is_over &&
               ++a->n_tries < TRIES) {
        sim_after(sim_api_proc(a->api), AGAIN_NS, again, a, 0);
        return;
    }
    free(a);
}

static void on_time(void *arg, uint64_t n)
{
    struct action *a = calloc(1, sizeof(*a));

    (void)n;
    if (is_over)
        return;
    a->api = arg;
    draw(&a->call);
    database_call(sim_api_proc(a->api), &a->call, on_done, a);
    sim_after(sim_api_proc(a->api), sim_between(0, (int64_t)(2e9 / rate)), on_time, a->api, 0);
}

void sim_load_begin(struct sim_api *a, double per_s, const struct sim_load_kind *k)
{
    rate = per_s;
    load = k;
    sim_after(sim_api_proc(a), sim_between(0, SH_MS(100)), on_time, a, 0);
}

/* ------------------------------------------------------------------ the end */

static void now(struct database_call c)
{
    database_now(&c);
}

/* What was begun before may come later: everything is let go twice. */
static void let_go(void *arg, uint64_t n)
{
    (void)arg, (void)n;
    quota_ns = sim_now();
    for (size_t i = 0; i < database.n_tenants; i++) {
        struct database_quota q = database.tenants[i].quota;

        q.max_running_jobs = 8;
        q.guaranteed_gpus = 2; /* what cannot be preempted starts within it alone */
        q.memory.max_bytes = 0;
        now((struct database_call){.kind = DATABASE_QUOTA_PUT, .id = (int64_t)i + 1, .quota = q});
        now((struct database_call){.kind = DATABASE_TENANT, .id = (int64_t)i + 1, .number = 1});
    }
    for (size_t i = 0; i < database.n_queues; i++)
        now((struct database_call){.kind = DATABASE_QUEUE, .id = (int64_t)i + 1});
    for (size_t i = 0; i < database.n_arrays; i++)
        now((struct database_call){.kind = DATABASE_ARRAY, .id = (int64_t)i + 1});
    for (size_t i = 0; i < database.n_versions; i++)
        now((struct database_call){.kind = DATABASE_LOAD, .id = (int64_t)i + 1});
    for (size_t i = 0; i < database.n_jobs; i++) {
        now((struct database_call){
            .kind = DATABASE_CONTROL, .id = (int64_t)i + 1, .what = "release"});
        now((struct database_call){
            .kind = DATABASE_CONTROL, .id = (int64_t)i + 1, .what = "resume"});
    }
}

void sim_load_stop(void)
{
    is_over = true;
    let_go(NULL, 0);
    sim_world_after(LAST_NS, let_go, NULL, 0);
}
