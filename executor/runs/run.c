/* run.c - runs: their parts, what they hold, and who is told when they end. */
#include "common/clock.h"
#include "common/life.h"
#include "common/log.h"
#include "common/mem.h"
#include "common/metrics.h"
#include "common/trace.h"
#include "executor/models/apart.h"
#include "executor/models/found.h"
#include "executor/models/packed.h"
#include "executor/models/tables.h"
#include "executor/report/report.h"
#include "executor/requests/data.h"
#include "executor/runs/inputs.h"
#include "executor/runs/switch_int.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

void run__go(struct run *r, enum run_phase to)
{
    r->phase = (enum run_phase)sh_life_step(&RUN_LIFE, r->phase, to, (int64_t)r->id);
}

void run__free_part(struct run_part *p)
{
    free(p->in);
    free(p->out);
    free(p->msg);
    free(p->tenant);
    *p = (struct run_part){0};
}

void run__note_failed(struct run_part *p, const struct msg_wk_part_failed *m)
{
    free(p->msg);
    p->rc = m->rc ? (int)m->rc : SH_E_BUG;
    p->msg = strdup(m->msg);
    p->sample = m->sample;
}

/* The first of the array, as many as n_parts says, run now: if none is left, the next one does. */
static void set_parts(struct run *r, size_t n_parts, size_t n_rest)
{
    if (n_parts == 0 && n_rest > 0) {
        n_parts = 1;
        n_rest--;
    }
    r->n_parts = n_parts;
    r->n_rest = n_rest;
    r->batch = 0;
    for (size_t i = 0; i < n_parts; i++)
        r->batch += r->parts[i].batch;
}

static bool is_meant(const struct run_part *p, uint64_t rid, uint64_t api_id)
{
    return (!rid || p->rid == rid) && (!api_id || p->api_id == api_id);
}

void run__drop_parts(struct run *r, uint64_t rid, uint64_t api_id)
{
    const bool is_api_gone = api_id && !rid;
    size_t keep = 0, now = 0;

    for (size_t i = 0; i < r->n_parts + r->n_rest; i++) {
        struct run_part *p = &r->parts[i];
        const struct msg_result m = {
            .rid = p->rid, .rc = SH_E_CANCELLED, .msg = "cancelled before it ran"};

        if (is_meant(p, rid, api_id)) {
            if (!is_api_gone) /* it keeps the payload until it knows that nobody reads it */
                data_result(r->sw->env.data, p, &m);
            run__free_part(p);
        } else {
            now += i < r->n_parts;
            r->parts[keep++] = *p;
        }
    }
    set_parts(r, now, keep - now);
}

void run__cancel_parts(struct run *r, uint64_t rid, uint64_t api_id)
{
    for (size_t i = 0; i < r->n_parts + r->n_rest; i++)
        r->parts[i].is_cancelled |= is_meant(&r->parts[i], rid, api_id);
}

bool run__is_wanted(const struct run *r)
{
    for (size_t i = 0; !r->is_own && i < r->n_parts; i++)
        if (!r->parts[i].is_cancelled)
            return true;
    return r->is_own && r->fn;
}

/* While its inputs are on their way, what comes to its workspace may be another request's: the API
 * has the place in its slab back as soon as it is told. */
void run__give_back(struct run *r)
{
    if (r->has_apart)
        model_let_apart_go(r->model);
    if (r->has_pin)
        model_unpin(r->model);
    if (r->has_ws)
        space_give(r->sw->env.space, &r->ws,
                   inputs_arrived(r->sw) && !r->is_mixed ? r->tag : ARENA_FOREIGN);
    r->has_pin = r->has_ws = r->has_apart = false;
}

void run__use(struct run *r, struct model *version, struct model *shape)
{
    r->model = version;
    r->shape = shape;
    store_hold(version, shape);
}

void run__free(struct run *r)
{
    if (!r)
        return;
    run__give_back(r);
    if (r->held_ns) /* of one that was withdrawn */
        usage_switch(r->sw->env.report->usage, r->tenant, r->held_ns);
    store_let_go(r->model, r->shape);
    for (size_t i = 0; i < r->n_parts + r->n_rest; i++)
        run__free_part(&r->parts[i]);
    free(r->parts);
    free(r->tenant);
    free(r);
}

/* ------------------------------------------------------------------ reports */

/* From the moment the run had the device to the arrival of its last group; 0: all was there. */
static int64_t copy_ns(const struct run *r)
{
    if (!r->has_pin || r->hit_bytes >= r->run_bytes || !r->start_ns)
        return 0;
    if (tx_image_busy(&r->model->tx)) /* the note of the last group came behind the result */
        return sh_clock_ns() - r->start_ns;
    return SH_MAX(r->model->tx.arrived_ns - r->start_ns, (int64_t)0);
}

static int64_t clamp_ns(int64_t low, int64_t x, int64_t high)
{
    return SH_MIN(SH_MAX(x, low), high);
}

struct msg_wk_run_done run__believed(const struct run *r, const struct msg_wk_run_done *said)
{
    struct msg_wk_run_done d = *said;
    const int64_t now = sh_clock_ns();

    d.start_ns = clamp_ns(r->start_ns, said->start_ns, now);
    d.first_ns = clamp_ns(d.start_ns, said->first_ns, now);
    d.end_ns = clamp_ns(d.first_ns, said->end_ns, now);
    d.wait_ns = clamp_ns(-1, said->wait_ns, d.end_ns - d.first_ns);
    return d;
}

/* Without the waits for weights. A device that waits by itself does not say how long: what exceeds
 * the profile, and no longer than until they had arrived. */
static int64_t compute_ns(const struct run *r, const struct msg_wk_run_done *done)
{
    int64_t all = done->end_ns - done->first_ns, arrived = r->model->tx.arrived_ns - done->first_ns;
    const double *layer_ns = NULL;
    double usual = 0;

    if (done->wait_ns >= 0)
        return SH_MAX(all - done->wait_ns, (int64_t)0);
    if (tx_image_busy(&r->model->tx))
        arrived = all; /* the note of the last group came behind the result */
    if (model_batch(r->shape, r->batch, &layer_ns))
        for (uint32_t i = 0; i < r->model->n_layers; i++)
            usual += layer_ns[i];
    return SH_MIN(all, SH_MAX((int64_t)usual, all - SH_MAX(arrived, (int64_t)0)));
}

static const char *tenant_of(const struct run *r, const struct run_part *p)
{
    return p->tenant ? p->tenant : r->tenant;
}

/* To each tenant by its samples. */
static void charge_tenants(const struct run *r, int64_t gpu_ns, int64_t switch_ns)
{
    struct usage *u = r->sw->env.report->usage;
    uint32_t n = 0, left;

    for (size_t i = 0; i < r->n_parts; i++)
        n += r->parts[i].batch;
    left = n;
    for (size_t i = 0; i < r->n_parts; i++) {
        const struct run_part *p = &r->parts[i];

        usage_run(u, tenant_of(r, p), r->model->handle, sh_share(&gpu_ns, &n, p->batch), 0, 0);
        usage_switch(u, tenant_of(r, p), sh_share(&switch_ns, &left, p->batch));
    }
    usage_switch(u, r->tenant, gpu_ns + switch_ns); /* if it has no parts left */
}

/* A run that only waits has not had the device. */
void run__bill(struct run *r, int64_t gpu_ns)
{
    const int64_t held = r->phase == RUN_QUEUED ? 0 : usage_take_held(r->sw->env.report->usage);

    if (r->is_own)
        r->held_ns += held;
    else
        charge_tenants(r, SH_MIN(gpu_ns, held), held - SH_MIN(gpu_ns, held));
}

static void observe(const struct run *r, const char *stage, int64_t ns)
{
    sh_metric_observe(M_shunt_switch_duration_seconds, SH_LABELS(r->sw->env.executor, stage),
                      (double)ns / 1e9);
}

/* A batch of batch inference is not stopped: a request that came meanwhile has waited for its end,
 * as one does for training to stop (train_on_stopped). */
static void note_drain(const struct run *r)
{
    struct switcher *sw = r->sw;

    if (r->is_own) {
        sw->own_start_ns = r->start_ns;
        sw->own_end_ns = sh_clock_ns();
    } else if (r->start_ns) {
        if (sw->own_end_ns > r->recv_ns)
            observe(r, "drain", sw->own_end_ns - SH_MAX(r->recv_ns, sw->own_start_ns));
        sw->own_end_ns = 0; /* told once */
    }
}

static void note_switch(const struct run *r, const struct run_result *res,
                        const struct msg_wk_run_done *done)
{
    struct msg_switch s = {.version_id = r->model->handle,
                           .age_ns = sh_clock_ns(),
                           .wait_ns = r->start_ns - r->recv_ns,
                           .memory_ns = r->memory_ns - r->start_ns,
                           .first_ns = done->first_ns - r->memory_ns,
                           .compute_ns = done->end_ns - done->first_ns,
                           .copy_ns = res->copy_ns,
                           .copied_bytes = r->copied_bytes,
                           .stopped = r->has_stopped,
                           .batch = r->batch};

    if (r->is_own || (!res->copy_ns && !r->has_stopped))
        return;
    sh_strlcpy(s.tenant, r->is_mixed ? "" : r->tenant, sizeof(s.tenant));
    usage_switched(r->sw->env.report->usage, &s);
}

static void count_run(const struct run *r, const struct run_result *res,
                      const struct msg_wk_run_done *done)
{
    const enum model_found found = r->hit_bytes >= r->run_bytes
                                       ? (r->is_packed ? MODEL_FOUND_PACKED : MODEL_FOUND_FULL)
                                   : r->hit_bytes > 0 ? MODEL_FOUND_PARTIAL
                                                      : MODEL_FOUND_NONE;

    sh_metric_add(M_shunt_runs_total,
                  SH_LABELS(r->tenant, r->model->name, res->rc ? sh_rc_name(res->rc) : "ok"), 1);
    if (res->rc || !done)
        return;
    sh_metric_add(M_shunt_residency_total,
                  SH_LABELS(r->sw->env.executor, r->model->tenant, model_found_name(found)), 1);
    note_switch(r, res, done);
    observe(r, "first_group", done->first_ns - r->start_ns);
    observe(r, "compute", res->compute_ns);
    observe(r, "total", done->end_ns - r->start_ns);
    if (res->copy_ns)
        observe(r, "copy", res->copy_ns);
}

static struct run_result run_result_of(const struct run *r, const struct sh_err *why,
                                       const struct msg_wk_run_done *done)
{
    const struct run_part *one = r->n_parts > 0 && r->parts[0].rc ? &r->parts[0] : NULL;
    int64_t now = sh_clock_ns();

    return (struct run_result){.rc = why->rc,
                               .msg = why->msg,
                               .batch = r->batch,
                               .n_passed = r->n_passed,
                               .queue_ns = (r->start_ns ? r->start_ns : now) - r->recv_ns,
                               .copy_ns = copy_ns(r),
                               .compute_ns = done ? compute_ns(r, done) : 0,
                               .total_ns = now - r->recv_ns,
                               .sample = r->sample < 0 && one ? one->sample : r->sample};
}

static void tell_api(const struct run *r, const struct run_part *p, const struct run_result *res)
{
    char msg[sizeof(((struct sh_err *)0)->msg)];
    struct msg_result m = {.rid = p->rid,
                           .rc = res->rc,
                           .msg = res->msg,
                           .run_batch = res->batch,
                           .queue_ns = res->queue_ns,
                           .copy_ns = res->copy_ns,
                           .compute_ns = res->compute_ns,
                           .total_ns = res->total_ns};

    if (p->rc) {
        m.rc = p->rc;
        m.msg = p->msg ? p->msg : "";
    }
    if (p->rc && p->sample >= 0 && p->batch > 1) {
        snprintf(msg, sizeof(msg), "sample %" PRId64 ": %s", p->sample, m.msg);
        m.msg = msg;
    }
    /* Before anybody hears of it: what is answered is counted, whoever is killed now. */
    if (!m.rc)
        usage_run(r->sw->env.report->usage, tenant_of(r, p), r->model->handle, 0, 1, p->batch);
    data_result(r->sw->env.data, p, &m);
}

static void answer_parts(const struct run *r, const struct run_result *res)
{
    data_cork(r->sw->env.data);
    for (size_t i = 0; i < r->n_parts + r->n_rest; i++)
        tell_api(r, &r->parts[i], res);
    data_uncork(r->sw->env.data);
}

/* Of those that run now, each by itself. */
static bool has_all_failed(const struct run *r)
{
    bool all = r->n_parts > 0;

    for (size_t i = 0; i < r->n_parts; i++)
        all = all && r->parts[i].rc;
    return all;
}

/* What the scheduler should not learn from: none of its parts ran, or they ran one by one. */
static void own_failure(const struct run *r, struct run_result *res)
{
    if (!res->rc && has_all_failed(r)) {
        res->rc = r->parts[0].rc;
        res->msg = r->parts[0].msg ? r->parts[0].msg : "";
    } else if (!res->rc && r->is_alone && !r->is_own) {
        res->rc = SH_E_INVALID;
        res->msg = "one request made the batch fail, so its requests ran one by one";
    }
}

/* Its stages: until its turn; until it has memory and a worker; until its first weights are there;
 * the computation, with what it waits for within; and the way back. */
static void trace_run(const struct run *r, const struct run_result *res,
                      const struct msg_wk_run_done *done)
{
    static const char *const RAN[] = {"wait", "memory", "first weights", "compute", "result", NULL};
    static const char *const DID_NOT[] = {"wait", "memory", NULL};
    const int64_t now = r->recv_ns + res->total_ns;
    struct sh_trace_span s = {.name = r->is_own ? "batch inference" : "run",
                              .track = "runs",
                              .begin_ns = r->recv_ns,
                              .end_ns = now,
                              .run = r->id,
                              .rc = res->rc,
                              .what = r->model->name,
                              .stages = done ? RAN : DID_NOT,
                              .stage_ends_ns = {r->start_ns ? r->start_ns : now, r->sent_ns,
                                                done ? done->first_ns : 0,
                                                done ? done->end_ns : 0}};

    sh_trace_add(&s);
    if (r->is_own)
        return;
    s = (struct sh_trace_span){
        .name = "part", .track = "requests", .begin_ns = r->recv_ns, .end_ns = now, .run = r->id};
    for (size_t i = 0; i < r->n_parts + r->n_rest; i++) {
        s.api = r->parts[i].api_id;
        s.rid = r->parts[i].rid;
        s.rc = res->rc ? res->rc : r->parts[i].rc;
        sh_trace_add(&s);
    }
}

void run__report(struct run *r, const struct sh_err *why, const struct msg_wk_run_done *done)
{
    struct run_result res = run_result_of(r, why, done);
    struct sh_msg m = {.type = MSG_RUN_DONE};

    run__bill(r, SH_MAX(res.compute_ns, res.copy_ns));
    res.held_ns = r->held_ns;
    if (!r->is_own)
        answer_parts(r, &res);
    own_failure(r, &res);
    note_drain(r);
    count_run(r, &res, done);
    trace_run(r, &res, done);
    SH_DEBUG("switch.done", "run=%" PRIu64 " rc=%d copy_ns=%" PRId64 " ns=%" PRId64, r->id, res.rc,
             res.copy_ns, sh_clock_ns());
    if (res.rc && res.rc != SH_E_CANCELLED)
        SH_WARN("run.failed", "run=%" PRIu64 " model=%s code=%s msg=\"%s\"", r->id, r->model->name,
                sh_rc_name(res.rc), res.msg);
    if (r->is_own) {
        if (r->fn) {
            r->held_ns = 0; /* now its job's */
            r->fn(r->arg, &res);
        }
        return;
    }
    m.u.run_done = (struct msg_run_done){
        .run_id = r->id,
        .rc = res.rc,
        .msg = res.msg,
        .total_ns = res.total_ns,
        .copy_ns = res.copy_ns,
        .compute_ns = r->spent_ns + res.compute_ns,
        .busy_ns = done ? done->end_ns - done->start_ns : 0,
        .copied_bytes =
            res.copy_ns && !r->is_from_disk && !r->is_from_sibling ? r->copied_bytes : 0,
        .cold = r->is_cold};
    m.u.run_done.resident_bytes = store_say_place(r->model, &m.u.run_done.unpack_ns);
    uplink_send(&r->sw->env.report->uplink, &m);
    if (r->n_ups != r->sw->env.report->uplink.n_ups)
        store_tell_place(r->model); /* who lost the connection or came later knows no such run */
}

/* ------------------------------------------------------------------ parts that run alone */

static int sample_span(const struct msg_span *whole, size_t n, uint32_t n_samples, uint32_t i,
                       struct msg_span **out)
{
    *out = calloc(n + 1, sizeof(**out));
    if (!*out)
        return SH_E_NOMEM;
    for (size_t k = 0; k < n; k++) {
        uint64_t len = whole[k].len / n_samples;

        (*out)[k] = (struct msg_span){whole[k].off + i * len, len};
    }
    return SH_OK;
}

/* The samples of an own run's only part, as parts. False: there is but one, the file of the model
 * fixes the batch (a tensor may have no samples then), or no memory. */
static bool into_samples(struct run *r)
{
    const struct run_part whole = r->parts[0];
    const uint32_t n = whole.batch;
    const bool may = n > 1 && r->shape->n_batches > 1;
    struct run_part *parts = may ? calloc(n, sizeof(*parts)) : NULL;
    int rc = parts ? SH_OK : SH_E_NOMEM;

    for (uint32_t i = 0; !rc && i < n; i++) {
        parts[i] = (struct run_part){
            .api_id = whole.api_id, .batch = 1, .n_in = whole.n_in, .n_out = whole.n_out};
        rc = sample_span(whole.in, whole.n_in, n, i, &parts[i].in);
        if (!rc)
            rc = sample_span(whole.out, whole.n_out, n, i, &parts[i].out);
    }
    for (uint32_t i = 0; rc && parts && i < n; i++)
        run__free_part(&parts[i]);
    if (rc) {
        free(parts);
        return false;
    }
    run__free_part(&r->parts[0]);
    free(r->parts);
    r->parts = parts;
    r->n_parts = n;
    r->sample = 0;
    return true;
}

/* done NULL: its worker died, and nobody knows. */
static void spend(struct run *r, const struct msg_wk_run_done *done)
{
    int64_t took_ns = done ? done->end_ns - done->first_ns : 0;

    r->spent_ns += took_ns;
    run__bill(r, took_ns);
    r->n_attempts = 0;
}

bool run__divide(struct run *r, const struct sh_err *why, const struct msg_wk_run_done *done)
{
    const struct sh_err none = {0};
    const struct run_result res = run_result_of(r, &none, done);
    size_t keep = 0;

    if (r->is_alone || (r->is_own ? !into_samples(r) : r->n_parts < 2 || has_all_failed(r)))
        return false;
    spend(r, done);
    for (size_t i = 0; i < r->n_parts; i++) {
        if (r->parts[i].rc) {
            tell_api(r, &r->parts[i], &res);
            run__free_part(&r->parts[i]);
        } else {
            r->parts[keep++] = r->parts[i];
        }
    }
    SH_INFO("run.divided", "run=%" PRIu64 " model=%s parts=%zu msg=\"%s\"", r->id, r->model->name,
            keep, why->msg);
    r->is_alone = true;
    set_parts(r, 0, keep);
    return true;
}

bool run__next_part(struct run *r, const struct sh_err *why, const struct msg_wk_run_done *done)
{
    const struct run_result res = run_result_of(r, why, done);
    struct run_part *p = &r->parts[0];

    if (!r->is_alone || r->n_rest == 0 || (r->is_own && (why->rc || p->rc)))
        return false;
    spend(r, done);
    if (!r->is_own)
        tell_api(r, p, &res);
    else
        r->sample++;
    run__free_part(p);
    memmove(r->parts, r->parts + 1, r->n_rest * sizeof(*r->parts));
    set_parts(r, 0, r->n_rest);
    return true;
}

const char *stop_way_name(enum stop_way w)
{
    static const char *const NAME[STOP_N_WAYS] = {
        [STOP_PAUSE] = "pause", [STOP_DROP] = "drop", [STOP_SWAP] = "swap"};

    return NAME[w];
}
