/* serve_ours.c - the daemons' own decisions: the scheduler's core (simulate/core.h), with its pass,
 * predictions and promises, and the executor's residency (executor/memory) on each GPU.
 *
 * What an executor does between the two is done here: PREPARE and RUN bring what is missing of an
 * image, its head kept if it has one; images of runs that it was given are pinned; the scheduler
 * hears of what was evicted and of each end. */
#include "common/clock.h"
#include "common/mem.h"
#include "executor/memory/residency.h"
#include "simulate/core.h"
#include "simulate/serve.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TICK_NS INT64_C(100000000) /* --tick-ms */
#define BASE_NS INT64_C(1000000000)
#define MAX_RUNS 4u

struct given { /* a run that has not begun, or the one that goes on */
    uint64_t id;
    uint32_t model, first, last, n;
};

struct device {
    struct residency *res; /* OWNED */
    struct given runs[MAX_RUNS];
    uint32_t n_runs;
    bool is_on; /* runs[0] has begun */
    int64_t begun_ns;
    bool was_cold;
    uint64_t *missing; /* OWNED; by model: bytes of it that its last copy brought */
};

struct ours {
    struct serve *s;
    struct core core;
    struct device *devices; /* OWNED */
    uint32_t *held;         /* OWNED; by model: scratch */
    bool woken;
    bool ticks;
};

static void tell_place(struct ours *o, uint32_t g, uint32_t model)
{
    const struct serve *s = o->s;
    const uint64_t held = (uint64_t)residency_held(o->devices[g].res, model) * SERVE_BLOCK;
    const int64_t arrives = s->gpus[g].arrives_ns[model] - s->now_ns;

    models_on_place(&o->core.s, o->core.sessions[g].exec,
                    &(struct msg_model_place){.version_id = 1 + (int64_t)model,
                                              .device_bytes = SH_MIN(held, serve_image(s, model)),
                                              .arrives_ns = SH_MAX(arrives, 0),
                                              .idle_ns = 0});
}

/* Has all of the image come to g. False: there is no room for it now. */
static bool bring(struct ours *o, uint32_t g, uint32_t model)
{
    struct serve *s = o->s;
    struct device *d = &o->devices[g];
    struct residency_place place;
    uint64_t missing;

    for (uint32_t m = 0; m < s->n_models; m++)
        o->held[m] = residency_held(d->res, m);
    if (residency_place(d->res, model, true, &place, NULL))
        return false;
    residency_touch(d->res, model, s->now_ns);
    missing = serve_image(s, model) -
              SH_MIN((uint64_t)place.had_blocks * SERVE_BLOCK, serve_image(s, model));
    if (missing) {
        s->gpus[g].arrives_ns[model] = serve_copy(s, g, missing);
        d->missing[model] = missing;
    }
    for (uint32_t m = 0; place.evicted_blocks && m < s->n_models; m++)
        if (m != model && residency_held(d->res, m) != o->held[m])
            tell_place(o, g, m);
    return true;
}

static void begin(struct ours *o, uint32_t g)
{
    struct serve *s = o->s;
    struct device *d = &o->devices[g];
    const struct given *r = &d->runs[0];
    int64_t arrives;

    if (d->is_on || !d->n_runs)
        return;
    arrives = s->gpus[g].arrives_ns[r->model];
    d->is_on = true;
    d->begun_ns = s->now_ns;
    d->was_cold = arrives > s->now_ns;
    serve_begin(s, g, r->first, r->n, SERVE_PIPELINED, d->was_cold ? d->missing[r->model] : 0,
                arrives, 0);
}

static void on_run(struct ours *o, uint32_t g, const struct msg_run *m)
{
    struct device *d = &o->devices[g];
    struct given *r = &d->runs[d->n_runs - 1];

    if (r->id != m->run_id)
        abort(); /* its parts come first */
    r->model = (uint32_t)(m->version_id - 1);
    if (!bring(o, g, r->model))
        abort(); /* two images fit into every pool */
    residency_pin(d->res, r->model);
    o->s->next[r->last] = SERVE_NONE;
    begin(o, g);
}

static void on_part(struct ours *o, uint32_t g, const struct msg_run_part *m)
{
    struct device *d = &o->devices[g];
    const uint32_t i = (uint32_t)(m->rid - 1);
    struct given *r = d->n_runs ? &d->runs[d->n_runs - 1] : NULL;

    if (!r || r->id != m->run_id) {
        if (d->n_runs == MAX_RUNS)
            abort();
        d->runs[d->n_runs++] = (struct given){.id = m->run_id, .first = i, .last = i, .n = 1};
        return;
    }
    o->s->next[r->last] = i;
    r->last = i;
    r->n++;
}

static void on_send(void *ctx, uint32_t g, const struct sh_msg *m)
{
    struct ours *o = ctx;

    if (m->type == MSG_RUN_PART) {
        on_part(o, g, &m->u.run_part);
    } else if (m->type == MSG_RUN) {
        on_run(o, g, &m->u.run);
    } else if (m->type == MSG_PREPARE) {
        const uint32_t model = (uint32_t)(m->u.prepare.version_id - 1);

        if (bring(o, g, model))
            tell_place(o, g, model);
    }
}

static void on_refuse(void *ctx, uint64_t rid, int rc)
{
    (void)rc;
    serve_refuse(((struct ours *)ctx)->s, (uint32_t)(rid - 1));
}

static bool trains(void *ctx, uint32_t g)
{
    const struct ours *o = ctx;

    return o->s->gpus[g].n == 0;
}

/* ------------------------------------------------------------------ the world */

static void ours_destroy(void *p)
{
    struct ours *o = p;

    for (uint32_t g = 0; o->devices && g < o->s->conf.n_gpus; g++) {
        residency_free(o->devices[g].res);
        free(o->devices[g].missing);
    }
    core_fini(&o->core);
    free(o->devices);
    free(o->held);
    sh_clock_real();
    free(o);
}

static int add_models(struct ours *o, struct sh_err *err)
{
    const struct serve *s = o->s;
    struct store_model *rows = calloc(s->n_models, sizeof(*rows));
    char(*names)[32] = calloc(s->n_models, sizeof(*names));
    int rc = rows && names ? SH_OK : SH_FAIL(err, SH_E_NOMEM, "could not allocate models");

    for (uint32_t m = 0; !rc && m < s->n_models; m++) {
        snprintf(names[m], sizeof(names[m]), "m%u", m);
        rows[m] = (struct store_model){.version_id = m + 1,
                                       .model_id = m + 1,
                                       .tenant_id = 1,
                                       .tenant = "t",
                                       .model = names[m],
                                       .state = "READY",
                                       .package = "/nowhere",
                                       .precision = "fp32",
                                       .version = 1,
                                       .max_batch = s->models[m].max_batch,
                                       .image_bytes = serve_image(s, m),
                                       .slo_percentile = 99,
                                       .on_miss = "reject"};
    }
    if (!rc)
        rc = core_models(&o->core, rows, s->n_models, err);
    free(names);
    free(rows);
    return rc;
}

/* What an executor measures when it loads the model. */
static void profile_of(const struct serve_model *m, struct msg_profile *out, size_t *n)
{
    *n = 0;
    for (uint32_t b = 1; b <= m->max_batch; b *= 2) {
        const double tail = (double)m->layer_ns[m->n_layers - 1] * m->times[b];

        out[(*n)++] =
            (struct msg_profile){.batch = b, .compute_ns = (double)m->run_ns[b], .tail_ns = tail};
    }
}

static int add_gpu(struct ours *o, uint32_t g, struct sh_err *err)
{
    const struct serve *s = o->s;
    struct msg_profile profile[PREDICT_N_BUCKETS];
    int rc =
        residency_new((uint32_t)(s->gpus[g].room / SERVE_BLOCK),
                      &(struct residency_conf){.policy = RESIDENCY_CLOCK}, &o->devices[g].res, err);

    o->devices[g].missing = calloc(s->n_models, sizeof(*o->devices[g].missing));
    if (!rc && !o->devices[g].missing)
        rc = SH_FAIL(err, SH_E_NOMEM, "could not allocate a device");
    o->core.sessions[g].exec->info.pool_bytes = s->gpus[g].room;
    o->core.sessions[g].exec->ns_per_byte = s->gpus[g].ns_per_byte;
    for (uint32_t m = 0; m < s->n_models && !rc; m++) {
        const uint32_t blocks = (uint32_t)((serve_image(s, m) + SERVE_BLOCK - 1) / SERVE_BLOCK);
        uint32_t id;
        size_t n;

        rc = residency_add(o->devices[g].res,
                           &(struct residency_image){.n_blocks = blocks, .tag = 1}, &id, err);
        profile_of(&s->models[m], profile, &n);
        core_loaded(&o->core, g, m + 1, serve_image(s, m), 0, profile, n);
    }
    return rc;
}

static void *ours_create(struct serve *s)
{
    struct ours *o = calloc(1, sizeof(*o));
    const struct core_hooks hooks = {o, on_send, on_refuse, trains};
    int rc;

    if (!o)
        return NULL;
    o->s = s;
    sh_clock_fake(BASE_NS, 0);
    o->devices = calloc(s->conf.n_gpus, sizeof(*o->devices));
    o->held = calloc(s->n_models, sizeof(*o->held));
    rc = core_init(&o->core, &hooks, s->conf.n_gpus, s->conf.places[0].pool_bytes, &s->err);
    if (!rc && (!o->devices || !o->held))
        rc = SH_FAIL(&s->err, SH_E_NOMEM, "could not allocate devices");
    if (!rc)
        rc = add_models(o, &s->err);
    for (uint32_t g = 0; g < s->conf.n_gpus && !rc; g++)
        rc = add_gpu(o, g, &s->err);
    for (size_t t = 0; t < s->trace->tenants.n && !rc; t++)
        rc = core_tenant(&o->core, s->trace->tenants.items[t], &s->err);
    if (!rc)
        return o;
    ours_destroy(o);
    return NULL;
}

/* ------------------------------------------------------------------ events */

static void turn(struct ours *o)
{
    struct serve *s = o->s;

    pass_requests(&o->core.s);
    if (!o->ticks && o->core.s.requests.n) {
        o->ticks = true;
        serve_timer(s, s->now_ns + TICK_NS, 0);
    }
}

static void set_clock(const struct ours *o)
{
    sh_clock_fake(BASE_NS + o->s->now_ns, 0);
}

static void arrived(void *p, uint32_t i)
{
    struct ours *o = p;
    const struct trace_request *r = &o->s->trace->items[i];

    set_clock(o);
    core_open(&o->core, i + 1, o->s->trace->tenants.items[r->tenant], 1 + (int64_t)r->model,
              o->s->models[r->model].slo_ns);
    core_ready(&o->core, i + 1);
    turn(o);
}

static void idle(void *p, uint32_t g)
{
    struct ours *o = p;
    struct serve *s = o->s;
    struct device *d = &o->devices[g];
    const struct given r = d->runs[0];
    const int64_t took = s->now_ns - d->begun_ns;

    set_clock(o);
    residency_unpin(d->res, r.model);
    residency_touch(d->res, r.model, s->now_ns);
    memmove(&d->runs[0], &d->runs[1], (--d->n_runs) * sizeof(d->runs[0]));
    d->is_on = false;
    begin(o, g);
    core_run_done(&o->core, g,
                  &(struct msg_run_done){.run_id = r.id,
                                         .total_ns = took,
                                         .compute_ns = s->gpus[g].compute_ns,
                                         .busy_ns = took,
                                         .resident_bytes = serve_image(s, r.model),
                                         .cold = d->was_cold});
    turn(o);
}

static void tick(void *p, uint32_t arg)
{
    struct ours *o = p;

    (void)arg;
    set_clock(o);
    o->ticks = false;
    requests_expire(&o->core.s, BASE_NS + o->s->now_ns);
    waiting_tick(&o->core.s);
    turn(o);
}

const struct serve_policy SERVE_OURS = {"ours",  true, ours_create, ours_destroy,
                                        arrived, idle, tick};
