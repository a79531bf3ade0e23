/* serve_ours.c - the daemons' own decisions: the scheduler's core (simulate/core.h), with its pass,
 * predictions and promises, and the executor's residency (executor/memory) on each GPU.
 *
 * What an executor does between the two is done here: PREPARE brings what is missing of an image,
 * its head kept if it has one, and keeps it for a while; a run that begins has its workspace and
 * brings the rest; training has its state and workspace in the same memory, and is held off by the
 * same rule (executor/memory/tenure.h); the scheduler hears of what was evicted and of each end. In
 * a system as it is (struct serve_system) versions live where they do, and move as the scheduler
 * decides; else each is everywhere. */
#include "common/clock.h"
#include "common/mem.h"
#include "common/units.h"
#include "executor/memory/residency.h"
#include "executor/memory/tenure.h"
#include "scheduler/models/ahead.h"
#include "scheduler/models/homes.h"
#include "simulate/core.h"
#include "simulate/serve.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TICK_NS SH_MS(100) /* --tick-ms */
#define SECOND_TICKS 10
#define MAX_RUNS 16u

struct given { /* a run that has not begun, or the one that goes on */
    uint64_t id;
    uint32_t model, first, last, n;
    bool is_whole;  /* all of its parts are known */
    bool is_pinned; /* it goes on; else there was no room for its image, which passes through */
};

struct device {
    struct residency *res; /* OWNED */
    struct given runs[MAX_RUNS];
    uint32_t n_runs;
    bool is_on;            /* runs[0] has begun ... */
    struct arena_range ws; /* ... with this workspace */
    bool has_ahead;        /* this one was to come before somebody asks for it */
    uint32_t ahead;
    int64_t begun_ns;
    bool was_cold;
    uint64_t *missing; /* OWNED; by model: bytes of it that its last copy brought */
    struct tenure tenure;
    struct arena_range train_ws; /* training's; if it has one */
    bool has_train_ws, has_timer;
    int64_t *kept_ns; /* OWNED; by model: it is pinned until then, for a run; 0: it is not */
};

struct ours {
    struct serve *s;
    struct core core;
    struct device *devices; /* OWNED */
    uint32_t *held;         /* OWNED; by model: scratch */
    uint32_t *tags;         /* OWNED; by model: whose it is */
    bool ticks;
    uint64_t n_ticks;
};

/* What a timer is for: a tick, or a version that is loaded or unloaded. */
#define TIMER_TICK UINT32_MAX
#define TIMER_UNLOAD (1u << 31)
#define TIMER_TRAIN (1u << 30) /* with the number of a GPU: training may be due */

static uint32_t timer_of(const struct ours *o, uint32_t g, int64_t version_id)
{
    return g * (uint32_t)o->s->n_models + (uint32_t)(version_id - 1);
}

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

static void note_held(struct ours *o, uint32_t g)
{
    for (uint32_t m = 0; m < o->s->n_models; m++)
        o->held[m] = residency_held(o->devices[g].res, m);
}

/* Of those that have lost blocks since. */
static void tell_evicted(struct ours *o, uint32_t g)
{
    for (uint32_t m = 0; m < o->s->n_models; m++)
        if (residency_held(o->devices[g].res, m) < o->held[m])
            tell_place(o, g, m);
}

/* What was to come before somebody asks gives way to whatever else is to come. */
static void give_up_ahead(struct ours *o, uint32_t g, uint32_t but)
{
    struct device *d = &o->devices[g];
    struct gpu *x = &o->s->gpus[g];
    const uint32_t m = d->ahead, held = residency_held(d->res, m);
    const int64_t left_ns = x->arrives_ns[m] - o->s->now_ns;

    if (!d->has_ahead)
        return;
    d->has_ahead = false;
    if (m == but || left_ns <= 0)
        return;
    residency_truncate(
        d->res, m,
        held - (uint32_t)SH_MIN(ceil((double)left_ns / x->ns_per_byte / SERVE_BLOCK), held));
    x->lane_ns = x->arrives_ns[m] = o->s->now_ns;
    tell_place(o, g, m);
}

/* Has all of the image come to g. False: there is no room for it now. */
static bool bring_served_image(struct ours *o, uint32_t g, uint32_t model, bool may_evict)
{
    struct serve *s = o->s;
    struct device *d = &o->devices[g];
    struct residency_place place;
    uint64_t missing;

    give_up_ahead(o, g, model);
    note_held(o, g);
    if (residency_place(d->res, model, may_evict, &place, NULL))
        return false;
    residency_touch(d->res, model, s->now_ns);
    missing = serve_image(s, model) -
              SH_MIN((uint64_t)place.had_blocks * SERVE_BLOCK, serve_image(s, model));
    if (missing) {
        s->gpus[g].arrives_ns[model] = serve_copy(s, g, missing);
        d->missing[model] = missing;
    }
    if (place.evicted_blocks)
        tell_evicted(o, g);
    return true;
}

static void unkeep(struct ours *o, uint32_t g, uint32_t model, int64_t now_ns)
{
    struct device *d = &o->devices[g];

    if (!d->kept_ns[model] || now_ns < d->kept_ns[model])
        return;
    d->kept_ns[model] = 0;
    residency_unpin(d->res, model);
}

static void unkeep_all(struct ours *o, uint32_t g, int64_t now_ns)
{
    for (uint32_t m = 0; m < o->s->n_models; m++)
        unkeep(o, g, m, now_ns);
}

/* The scheduler has placed a request there: the image comes, if there is room, and stays. */
static void prepare_device(struct ours *o, uint32_t g, uint32_t model)
{
    struct device *d = &o->devices[g];

    if (bring_served_image(o, g, model, true)) {
        if (!d->kept_ns[model])
            residency_pin(d->res, model);
        d->kept_ns[model] = o->s->now_ns + RESIDENCY_KEEP_NS;
    }
    tell_place(o, g, model);
}

/* Nobody asks for it yet (executor/models/ahead.c). */
static void bring_ahead(struct ours *o, uint32_t g, uint32_t model, bool may_evict_stale)
{
    struct device *d = &o->devices[g];
    const uint32_t n = (uint32_t)((serve_image(o->s, model) + SERVE_BLOCK - 1) / SERVE_BLOCK);
    bool is_there = false;

    if (!d->n_runs && o->s->gpus[g].lane_ns <= o->s->now_ns) {
        is_there = bring_served_image(o, g, model, false);
        note_held(o, g);
        if (!is_there && may_evict_stale &&
            residency_trim(d->res, n - residency_held(d->res, model), o->s->now_ns,
                           RESIDENCY_STALE_NS)) {
            tell_evicted(o, g);
            is_there = bring_served_image(o, g, model, false);
        }
        d->has_ahead = is_there;
        d->ahead = model;
    }
    tell_place(o, g, model);
}

/* spare: as struct residency_need has it. */
static bool take_with_spare(struct ours *o, uint32_t g, uint32_t model, uint32_t spare)
{
    struct device *d = &o->devices[g];
    const uint64_t bytes = o->s->conf.places[g].workspace;
    const struct residency_need need = {.n_blocks =
                                            (uint32_t)((bytes + SERVE_BLOCK - 1) / SERVE_BLOCK),
                                        .tag = o->tags[model],
                                        .kind = ARENA_WORK,
                                        .spare = spare};
    uint32_t n_evicted = 0;
    bool is_there = false;

    note_held(o, g);
    if (!residency_alloc(d->res, &need, &d->ws, &n_evicted, NULL)) {
        if (n_evicted)
            tell_evicted(o, g);
        is_there = bring_served_image(o, g, model, true);
    }
    if (!is_there)
        residency_release(d->res, &d->ws, o->tags[model]);
    return is_there;
}

/* As a run does that becomes the current one (executor/runs/room.c), without the third way there
 * (SPACE_TOGETHER) and without asking first whether the second one would do. */
static bool take_device_memory(struct ours *o, uint32_t g, uint32_t model)
{
    return take_with_spare(o, g, model, model) || take_with_spare(o, g, model, RESIDENCY_NO_IMAGE);
}

/* ------------------------------------------------------------------ training's memory */

static uint32_t blocks_of_bytes(uint64_t bytes)
{
    return (uint32_t)((bytes + SERVE_BLOCK - 1) / SERVE_BLOCK);
}

/* As training does when it is to run (executor/training/train.c: take_device). */
static void take_workspace(struct ours *o, uint32_t g)
{
    struct device *d = &o->devices[g];
    const struct residency_need need = {.n_blocks =
                                            blocks_of_bytes(o->s->conf.places[g].train_bytes),
                                        .kind = ARENA_TRAIN,
                                        .spare = RESIDENCY_NO_IMAGE};
    uint32_t n_evicted = 0;

    note_held(o, g);
    d->has_train_ws = !residency_alloc(d->res, &need, &d->train_ws, &n_evicted, NULL);
    if (n_evicted)
        tell_evicted(o, g);
    if (d->has_train_ws)
        serve_hold_off(o->s, g, false, 0);
}

static void drop_workspace(struct ours *o, uint32_t g)
{
    struct device *d = &o->devices[g];

    residency_release(d->res, &d->train_ws, 0);
    d->has_train_ws = false;
    serve_hold_off(o->s, g, true, o->s->conf.places[g].step_ns / 2);
}

/* Gives it up or takes it, whatever tenure.h says; it is taken while no run has the device. */
static void settle_training(struct ours *o, uint32_t g)
{
    const struct serve_place *place = &o->s->conf.places[g];
    struct device *d = &o->devices[g];
    int64_t due;

    if (!place->train_bytes || !o->s->gpus[g].may_train)
        return;
    if (d->has_train_ws && d->tenure.holds_off)
        drop_workspace(o, g);
    if (!d->has_train_ws && !d->tenure.holds_off && !d->is_on)
        take_workspace(o, g);
    due = tenure_due_ns(&d->tenure);
    if (due != INT64_MAX && !d->has_timer && o->s->now_ns < o->s->last_ns) {
        d->has_timer = true;
        serve_timer(o->s, SH_MAX(due, o->s->now_ns + 1), g | TIMER_TRAIN);
    }
}

/* A run has just begun (executor/runs/rivalry.c). */
static void pay(struct ours *o, uint32_t g)
{
    const struct serve_place *place = &o->s->conf.places[g];
    struct device *d = &o->devices[g];
    const uint32_t m = d->runs[0].model, n = residency_blocks(d->res, m);
    const uint32_t all = blocks_of_bytes(place->pool_bytes);
    const uint32_t others = blocks_of_bytes(place->state_bytes) + blocks_of_bytes(place->workspace);
    const uint32_t ws = blocks_of_bytes(place->train_bytes);
    const struct tenure_room room = {.beside = all - others - ws, .without = all - others};
    const uint32_t displaced = tenure_displaced(&room, n, residency_distance(d->res, m));

    tenure_pay(&d->tenure, serve_copy_ns(o->s, g, (uint64_t)displaced * SERVE_BLOCK), d->n_runs - 1,
               o->s->now_ns);
}

static void begin_device_run(struct ours *o, uint32_t g)
{
    struct serve *s = o->s;
    struct device *d = &o->devices[g];
    struct given *r = &d->runs[0];
    int64_t arrives;

    if (d->is_on || !d->n_runs || !r->is_whole)
        return;
    tenure_begin_run(&d->tenure, s->now_ns);
    give_up_ahead(o, g, r->model); /* its workspace, too, comes before what nobody has asked for */
    r->is_pinned = take_device_memory(o, g, r->model);
    if (!r->is_pinned) {
        unkeep_all(o, g, INT64_MAX);
        r->is_pinned = take_device_memory(o, g, r->model);
    }
    if (r->is_pinned) {
        residency_pin(d->res, r->model);
        unkeep(o, g, r->model, INT64_MAX);
    } else {
        d->missing[r->model] = serve_image(s, r->model);
        s->gpus[g].arrives_ns[r->model] = serve_copy(s, g, d->missing[r->model]);
    }
    arrives = s->gpus[g].arrives_ns[r->model];
    d->is_on = true;
    d->begun_ns = s->now_ns;
    d->was_cold = arrives > s->now_ns;
    serve_begin(s, g, r->first, r->n, SERVE_PIPELINED, d->was_cold ? d->missing[r->model] : 0,
                arrives, 0);
    pay(o, g);
    settle_training(o, g);
}

static void on_run(struct ours *o, uint32_t g, const struct msg_run *m)
{
    struct device *d = &o->devices[g];
    struct given *r = &d->runs[d->n_runs - 1];

    if (r->id != m->run_id)
        abort(); /* its parts come first */
    r->model = (uint32_t)(m->version_id - 1);
    r->is_whole = true;
    o->s->next[r->last] = SERVE_NONE;
    begin_device_run(o, g);
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

        if (m->u.prepare.evict == MSG_EVICT_ANY)
            prepare_device(o, g, model);
        else
            bring_ahead(o, g, model, m->u.prepare.evict == MSG_EVICT_STALE);
    } else if (m->type == MSG_MODEL_LOAD && o->s->conf.system) {
        serve_timer(o->s, o->s->now_ns + o->s->conf.system->load_ns,
                    timer_of(o, g, m->u.model_load.version_id));
    } else if (m->type == MSG_MODEL_UNLOAD && o->s->conf.system) {
        serve_timer(o->s, o->s->now_ns,
                    timer_of(o, g, m->u.model_unload.version_id) | TIMER_UNLOAD);
    }
}

static void on_refuse(void *ctx, uint64_t rid, const char *rule)
{
    struct serve *s = ((struct ours *)ctx)->s;
    const uint32_t i = (uint32_t)(rid - 1);

    if (s->conf.ends)
        s->conf.ends[i].rule = rule;
    serve_refuse(s, i);
}

/* A job is there, whether it goes on or a run has stopped it. */
static bool device_trains(void *ctx, uint32_t g)
{
    const struct ours *o = ctx;

    return o->s->gpus[g].may_train;
}

/* ------------------------------------------------------------------ the world */

static void ours_destroy(void *p)
{
    struct ours *o = p;

    for (uint32_t g = 0; o->devices && g < o->s->conf.n_gpus; g++) {
        residency_free(o->devices[g].res);
        free(o->devices[g].missing);
        free(o->devices[g].kept_ns);
    }
    core_fini(&o->core);
    free(o->devices);
    free(o->held);
    free(o->tags);
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
        if (s->conf.system) {
            rows[m] = s->conf.system->rows[m];
            rows[m].version_id = m + 1;
            continue;
        }
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
    for (size_t m = 0; m < s->n_models && !rc && s->conf.system; m++)
        models_find(&o->core.s.models, (int64_t)m + 1)->predict = s->conf.system->learnt[m];
    free(names);
    free(rows);
    return rc;
}

/* What an executor measures when it loads the model. */
static void profile_of(const struct serve_model *m, struct msg_profile *out, size_t *n)
{
    *n = 0;
    for (uint32_t b = 1; b <= SH_MIN(m->max_batch, SERVE_MAX_BATCH); b *= 2) {
        const double tail = (double)m->layer_ns[m->n_layers - 1] * m->times[b];

        out[(*n)++] =
            (struct msg_profile){.batch = b, .compute_ns = (double)m->run_ns[b], .tail_ns = tail};
    }
}

static bool fits_device(const struct serve *s, uint32_t g, uint32_t m)
{
    return !s->conf.system || serve_image(s, m) <= s->gpus[g].room / SERVE_BLOCK * SERVE_BLOCK;
}

static bool lives(const struct serve *s, uint32_t g, uint32_t m)
{
    return !s->conf.system || (s->conf.system->homes[g * s->n_models + m] && fits_device(s, g, m));
}

/* It is there, or has come: with its profile, if what it measured before is not known. */
static void loaded(struct ours *o, uint32_t g, uint32_t m)
{
    const struct serve_system *x = o->s->conf.system;
    const uint64_t held = (uint64_t)residency_held(o->devices[g].res, m) * SERVE_BLOCK;
    struct msg_profile profile[PREDICT_N_BUCKETS];
    size_t n = 0;

    if (!x)
        profile_of(&o->s->models[m], profile, &n);
    core_loaded(&o->core, g, m + 1, serve_image(o->s, m), SH_MIN(held, serve_image(o->s, m)),
                profile, n);
}

/* As the snapshot has it. */
static void put_on_device(struct ours *o, uint32_t g, uint32_t m)
{
    struct residency *res = o->devices[g].res;
    const uint64_t bytes = o->s->conf.system->resident[g * o->s->n_models + m];
    struct residency_place place;

    if (bytes && !residency_place(res, m, false, &place, NULL))
        residency_truncate(res, m, (uint32_t)((bytes + SERVE_BLOCK - 1) / SERVE_BLOCK));
}

/* Of the tenant whose model it is. */
static uint32_t model_tag(const struct serve *s, uint32_t m)
{
    const struct serve_system *x = s->conf.system;
    uint32_t t = 0;

    while (x && t < s->trace->tenants.n && strcmp(x->tenants[t].name, x->rows[m].tenant) != 0)
        t++;
    return 1 + t;
}

/* It trains when the replay begins. */
static int add_training(struct ours *o, uint32_t g, struct sh_err *err)
{
    const struct serve_place *place = &o->s->conf.places[g];
    const struct residency_need need = {.n_blocks = blocks_of_bytes(place->state_bytes),
                                        .kind = ARENA_TRAIN,
                                        .spare = RESIDENCY_NO_IMAGE};
    struct arena_range state;
    uint32_t n_evicted;
    int rc;

    if (!place->train_bytes || place->has_no_job)
        return SH_OK;
    rc = residency_alloc(o->devices[g].res, &need, &state, &n_evicted, err);
    if (rc)
        return rc;
    tenure_init(&o->devices[g].tenure, place->weight, 0);
    tenure_want(&o->devices[g].tenure,
                &(struct tenure_claim){.job = 1,
                                       .copy_ns = serve_copy_ns(o->s, g, place->train_bytes),
                                       .step_ns = place->step_ns},
                0);
    take_workspace(o, g);
    return SH_OK;
}

static int add_ours_gpu(struct ours *o, uint32_t g, struct sh_err *err)
{
    const struct serve *s = o->s;
    int rc = residency_new(
        (uint32_t)(s->gpus[g].room / SERVE_BLOCK),
        &(struct residency_conf){.policy = RESIDENCY_CLOCK, .max_images = s->n_models},
        &o->devices[g].res, err);

    o->devices[g].missing = calloc(s->n_models, sizeof(*o->devices[g].missing));
    o->devices[g].kept_ns = calloc(s->n_models, sizeof(*o->devices[g].kept_ns));
    if (!rc && (!o->devices[g].missing || !o->devices[g].kept_ns))
        rc = SH_FAIL(err, SH_E_NOMEM, "could not allocate a device");
    o->core.sessions[g].exec->info.pool_bytes = s->gpus[g].room;
    o->core.sessions[g].exec->ns_per_byte = s->gpus[g].ns_per_byte;
    o->core.sessions[g].exec->stop_ns = s->gpus[g].stop_ns;
    homes_exec_changed(&o->core.s, o->core.sessions[g].exec);
    rc = rc ? rc : add_training(o, g, err);
    for (uint32_t m = 0; m < s->n_models && !rc; m++) {
        const uint64_t need = (serve_image(s, m) + SERVE_BLOCK - 1) / SERVE_BLOCK;
        const uint32_t blocks = fits_device(s, g, m) ? (uint32_t)SH_MAX(need, 1u) : 1;
        uint32_t id;

        rc = residency_add(o->devices[g].res,
                           &(struct residency_image){.n_blocks = blocks, .tag = o->tags[m]}, &id,
                           err);
        if (!rc && s->conf.system && lives(s, g, m))
            put_on_device(o, g, m);
        if (!rc && lives(s, g, m))
            loaded(o, g, m);
    }
    return rc;
}

static void *ours_create(struct serve *s)
{
    struct ours *o = calloc(1, sizeof(*o));
    const struct core_hooks hooks = {o, on_send, on_refuse, device_trains};
    int rc;

    if (!o)
        return NULL;
    o->s = s;
    sh_clock_fake(SERVE_BASE_NS, 0);
    o->devices = calloc(s->conf.n_gpus, sizeof(*o->devices));
    o->held = calloc(s->n_models, sizeof(*o->held));
    o->tags = calloc(s->n_models, sizeof(*o->tags));
    rc = core_init(&o->core, &hooks, s->conf.n_gpus, s->conf.places[0].pool_bytes, &s->err);
    if (!rc && (!o->devices || !o->held || !o->tags))
        rc = SH_FAIL(&s->err, SH_E_NOMEM, "could not allocate devices");
    for (uint32_t m = 0; m < s->n_models && !rc; m++)
        o->tags[m] = model_tag(s, m);
    if (!rc && s->conf.system)
        core_decide_by(&o->core, s->conf.system->options);
    if (!rc)
        rc = add_models(o, &s->err);
    for (uint32_t g = 0; g < s->conf.n_gpus && !rc; g++)
        rc = add_ours_gpu(o, g, &s->err);
    if (!rc && s->conf.system)
        rc = core_tenants(&o->core, s->conf.system->tenants, s->trace->tenants.n, &s->err);
    for (size_t t = 0; t < s->trace->tenants.n && !rc && !s->conf.system; t++)
        rc = core_tenant(&o->core, s->trace->tenants.items[t], &s->err);
    if (!rc)
        return o;
    ours_destroy(o);
    return NULL;
}

/* ------------------------------------------------------------------ events */

static void turn_ours(struct ours *o)
{
    struct serve *s = o->s;

    pass_requests(&o->core.s);
    if (!o->ticks && (o->core.s.requests.n || (s->conf.system && s->now_ns < s->last_ns))) {
        o->ticks = true;
        serve_timer(s, s->now_ns + TICK_NS, TIMER_TICK);
    }
}

static void set_clock(const struct ours *o)
{
    sh_clock_fake(SERVE_BASE_NS + o->s->now_ns, 0);
}

static void arrived(void *p, uint32_t i)
{
    struct ours *o = p;
    const struct trace_request *r = &o->s->trace->items[i];

    set_clock(o);
    core_open(&o->core, i + 1, o->s->trace->tenants.items[r->tenant], 1 + (int64_t)r->model,
              o->s->conf.system ? 0 : o->s->models[r->model].slo_ns);
    core_ready(&o->core, i + 1, serve_samples(o->s, i));
    turn_ours(o);
}

static void idle(void *p, uint32_t g)
{
    struct ours *o = p;
    struct serve *s = o->s;
    struct device *d = &o->devices[g];
    const struct given r = d->runs[0];
    const int64_t took = s->now_ns - d->begun_ns;

    set_clock(o);
    residency_release(d->res, &d->ws, o->tags[r.model]);
    if (r.is_pinned)
        residency_unpin(d->res, r.model);
    residency_touch(d->res, r.model, s->now_ns);
    memmove(&d->runs[0], &d->runs[1], (--d->n_runs) * sizeof(d->runs[0]));
    d->is_on = false;
    tenure_end_run(&d->tenure, s->now_ns);
    begin_device_run(o, g);
    settle_training(o, g);
    core_run_done(
        &o->core, g,
        &(struct msg_run_done){.run_id = r.id,
                               .total_ns = took,
                               .compute_ns = s->gpus[g].compute_ns,
                               .busy_ns = took,
                               .resident_bytes = r.is_pinned ? serve_image(s, r.model) : 0,
                               .cold = d->was_cold});
    turn_ours(o);
}

static void tick(struct ours *o)
{
    o->ticks = false;
    for (uint32_t g = 0; g < o->s->conf.n_gpus; g++)
        unkeep_all(o, g, o->s->now_ns);
    requests_expire(&o->core.s, SERVE_BASE_NS + o->s->now_ns);
    waiting_tick(&o->core.s);
    ahead_tick(&o->core.s);
    if (o->s->conf.system && o->n_ticks++ % SECOND_TICKS == 0)
        models_second(&o->core.s);
}

static void timer(void *p, uint32_t arg)
{
    struct ours *o = p;
    const uint32_t n = (uint32_t)o->s->n_models, at = arg & ~TIMER_UNLOAD;

    set_clock(o);
    if (arg == TIMER_TICK) {
        tick(o);
    } else if (arg & TIMER_TRAIN && !(arg & TIMER_UNLOAD)) {
        struct device *d = &o->devices[arg & ~TIMER_TRAIN];

        d->has_timer = false;
        tenure_look(&d->tenure, o->s->now_ns);
        settle_training(o, arg & ~TIMER_TRAIN);
    } else if (arg & TIMER_UNLOAD && residency_pins(o->devices[at / n].res, at % n)) {
        serve_timer(o->s, o->s->now_ns + TICK_NS, arg); /* its runs end first */
    } else if (arg & TIMER_UNLOAD) {
        residency_truncate(o->devices[at / n].res, at % n, 0);
        core_gone(&o->core, at / n, at % n + 1);
    } else if (fits_device(o->s, at / n, at % n)) {
        loaded(o, at / n, at % n);
    }
    turn_ours(o);
}

const struct serve_policy SERVE_OURS = {"ours",  true, ours_create, ours_destroy,
                                        arrived, idle, timer};
