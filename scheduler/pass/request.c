/* request.c - see request.h. */
#include "scheduler/pass/request.h"

#include "common/clock.h"
#include "common/life.h"
#include "common/log.h"
#include "common/mem.h"
#include "common/metrics.h"
#include "common/trace.h"
#include "common/units.h"
#include "scheduler/apis.h"
#include "scheduler/models/homes.h"
#include "scheduler/sched.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define RETRY_SOON_MS 1000
#define MAX_LOST 1u          /* what loses a second executor may be its cause */
#define RESULT_NS SH_MS(500) /* in which a result that was sent reaches its API */
#define MAX_PRIORITY 1000u
#define MAX_SPANS 4096u /* inputs or outputs of one request */

/* The only writer of the state. */
static void request_go(struct request *r, enum request_state to)
{
    r->state = (enum request_state)sh_life_step(&REQUEST_LIFE, r->state, to, (int64_t)r->rid);
}

static void request_end(struct sched *s, struct request *r)
{
    struct requests *q = &s->requests;
    struct request *last = q->items[q->n - 1];

    waiting_leave(s, r);
    requests__never_due(s, r);
    q->items[r->index] = last;
    last->index = r->index;
    q->n--;
    if (r->api)
        idmap_del(&r->api->requests, r->rid);
    if ((r->state == REQUEST_OPEN || r->state == REQUEST_READY) && !r->n_lost)
        r->tenant->turn_ns -= r->turn_cost_ns; /* it never had its turn */
    r->tenant->n_requests--;
    r->model->n_requests--;
    shapes_release(r->shape);
    models_release(s, r->model);
    free(r->spans);
    free(r);
}

/* What became of its promise, if it has one. */
static void settle_promise(struct request *r, const char *result)
{
    if (r->promised_ns && !r->cancelled)
        sh_metric_add(M_shunt_promises_total, SH_LABELS(r->model->name, result), 1);
    r->promised_ns = 0;
}

/* Runs took what they took: how much is to be kept free for slow ones? */
static void learn_promise(struct request *r, bool kept)
{
    if (!r->promised_ns || r->cancelled || !r->exec)
        return;
    predict_promise(&r->exec->reserve, kept);
    if (!kept)
        SH_DEBUG("promise.broken",
                 "rid=%" PRIu64 " executor=%s model=%s age_ms=%.3f past_ms=%.3f reserve=%.2f",
                 r->rid, r->exec->info.name, r->model->name,
                 (double)(sh_clock_ns() - r->open_ns) / 1e6,
                 (double)(sh_clock_ns() - r->promised_ns) / 1e6, exp(r->exec->reserve));
}

void requests_refuse_by(struct sched *s, struct request *r, const char *rule, int rc,
                        int64_t retry_after_ms, const char *msg)
{
    sched_count("refuse", rule);
    SH_TRACE(.name = "refused", .track = "queue", .begin_ns = r->open_ns, .api = r->api_id,
             .rid = r->rid, .rc = rc, .what = rule);
    if (rc == SH_E_SLO)
        learn_promise(r, false);
    settle_promise(r, "given_up");
    if (r->api)
        session_refuse(r->api->session, r->rid, rc, retry_after_ms, r->predicted_ms, msg);
    request_end(s, r);
}

/* ------------------------------------------------------------------ new requests */

/* Fails with SH_E_QUOTA or SH_E_QUEUEFULL if all is right but the number of requests. */
static int check_limits(struct sched *s, const struct msg_infer_open *m, struct tenant **tenant_out,
                        struct model **model_out, struct sh_err *err)
{
    struct tenant *t = tenants_find(&s->tenants, m->tenant);
    struct model *v = models_find(&s->models, m->version_id);
    int rc = SH_OK;

    if (!limits_check(s, t != NULL, true, NULL)) /* one too many takes no place in the table */
        rc = tenants_get(&s->tenants, m->tenant, &t, err);
    if (!rc && (!t || !t->id || !v))
        sched_poll(s); /* younger than our last look, or there are too many */
    rc = rc ? rc : limits_check(s, t && t->id, v != NULL, err);
    if (!rc && !v)
        rc = SH_FAIL(err, SH_E_UNAVAILABLE,
                     "the scheduler does not know this version of \"%s\" yet; try again", m->model);
    if (rc)
        return rc;
    if (v->state >= MODEL_UNLOADING)
        return SH_FAIL(err, SH_E_CONFLICT, "%s", MODEL_UNLOADED_TEXT);
    if (!t->active)
        return SH_FAIL(err, SH_E_FORBIDDEN, "tenant \"%s\" is suspended", t->name);
    *tenant_out = t;
    *model_out = v;
    if (t->n_requests >= t->max_requests)
        return SH_FAIL(err, SH_E_QUOTA,
                       "tenant \"%s\" has %u requests in progress, as many as its quota "
                       "(max_concurrent_requests) allows",
                       t->name, t->n_requests);
    if (s->requests.n >= (size_t)s->conf->max_requests)
        return SH_FAIL(err, SH_E_QUEUEFULL,
                       "%zu requests are in progress, as many as max-requests allows; try again",
                       s->requests.n);
    if (v->n_requests >= (uint32_t)s->conf->max_model_requests)
        return SH_FAIL(
            err, SH_E_QUEUEFULL,
            "%u requests for \"%s\" are in progress, as many as max-model-requests allows; "
            "try again",
            v->n_requests, v->name);
    return SH_OK;
}

static void set_deadlines(const struct sched *s, struct request *r, const struct model *v,
                          int64_t budget_ns, int64_t now)
{
    int64_t slo_ns = v->slo_ns > 0 ? r->open_ns + v->slo_ns : SNAP_NO_DEADLINE;
    int64_t budget_end = SNAP_NO_DEADLINE;

    if (budget_ns > 0)
        budget_end = now + SH_MIN(budget_ns, SH_DAYS(1));
    r->deadline_ns = SH_MIN(slo_ns, budget_end);
    r->limit_ns = budget_end;
    if (v->on_miss == SNAP_REJECT)
        r->limit_ns = SH_MIN(r->limit_ns, slo_ns);
    r->expires_ns = budget_end != SNAP_NO_DEADLINE
                        ? budget_end
                        : r->open_ns + SH_MS(s->conf->request_timeout_ms);
}

/* With as many samples as are known by now. */
static void charge_turn(struct request *r)
{
    const int64_t before_ns = r->turn_cost_ns;
    struct predict_time t;

    predict_run(&r->model->predict, r->batch, r->model->slo_percentile, sh_clock_ns(), &t);
    r->turn_cost_ns = SH_MIN(t.usual_ns, SH_DAYS(1));
    r->tenant->turn_ns += r->turn_cost_ns - before_ns;
}

/* Start-time fair queueing (Goyal, Vin and Cheng): each tenant's requests follow each other by what
 * they cost, from where the others are by now. Who sends few goes before the many of another. */
static void take_request_turn(struct sched *s, struct request *r)
{
    r->turn_ns = SH_MAX(s->requests.turn_ns, r->tenant->turn_ns);
    r->tenant->turn_ns = r->turn_ns;
    charge_turn(r);
}

static int request_new(struct sched *s, struct api *a, const struct msg_infer_open *m,
                       struct sh_err *err)
{
    struct requests *q = &s->requests;
    struct request *r = NULL;
    struct tenant *t = NULL;
    struct model *v = NULL;
    const int64_t now = sh_clock_ns();
    int rc = check_limits(s, m, &t, &v, err);

    if (rc == SH_E_QUOTA || rc == SH_E_QUEUEFULL)
        pass_note_refused(s, t, v);
    if (!rc)
        rc = sh_grow(&q->items, &q->cap, q->n + 1, sizeof(q->items[0]), 1u << 20, "requests", err);
    if (rc)
        return rc;
    r = calloc(1, sizeof(*r));
    if (!r)
        return SH_FAIL(err, SH_E_NOMEM, "could not allocate a request");
    *r = (struct request){.rid = m->rid,
                          .due = {.id = ++q->last_serial},
                          .api = a,
                          .api_id = a->id,
                          .tenant = t,
                          .model = v,
                          .has_sizes = m->has_sizes != 0,
                          .batch = 1,
                          .priority =
                              SH_MAX((int32_t)SH_MIN(m->priority, MAX_PRIORITY), v->slo_priority),
                          .open_ns = now - SH_MIN(SH_MAX(m->age_ns, 0), SH_DAYS(1)),
                          .index = q->n};
    set_deadlines(s, r, v, m->budget_ns, now);
    rc = idmap_put(&a->requests, m->rid, r, err);
    if (rc) {
        free(r);
        return rc;
    }
    take_request_turn(s, r);
    q->items[q->n++] = r;
    waiting_sort(s, r);
    requests__set_due(s, r);
    t->n_requests++;
    v->n_requests++;
    homes_asked(v, 1, sh_clock_ns());
    return SH_OK;
}

void requests_on_open(struct sched *s, struct api *a, const struct msg_infer_open *m)
{
    struct sh_err err = {0};
    int rc;

    if (idmap_get(&a->requests, m->rid)) {
        rc = SH_FAIL(&err, SH_E_PROTO, "request %" PRIu64 " is open already", m->rid);
    } else {
        if (models_find(&s->models, m->version_id))
            arrivals_add(&s->arrivals, m->tenant, m->version_id, sh_clock_ns());
        rc = request_new(s, a, m, &err);
    }
    if (rc) {
        sched_count("refuse", sh_rc_name(rc));
        session_refuse(a->session, m->rid, rc, sh_rc_retry(rc) ? RETRY_SOON_MS : 0, 0, err.msg);
        return;
    }
    homes_want(s, models_find(&s->models, m->version_id));
    sched_wake_some(s);
}

/* Copies both lists into r. */
static int take_spans(struct request *r, const struct msg_infer_ready *m, struct sh_err *err)
{
    const size_t one = sizeof(struct msg_span);
    size_t in = m->in_spans.len / one, out = m->out_spans.len / one;

    if (m->in_spans.len % one || m->out_spans.len % one || in > MAX_SPANS || out > MAX_SPANS)
        return SH_FAIL(err, SH_E_PROTO, "the spans of a request are malformed");
    if (m->batch < 1 || m->batch > r->model->max_batch)
        return SH_FAIL(err, SH_E_INVALID,
                       "batch %u is not between 1 and the version's max_batch %u", m->batch,
                       r->model->max_batch);
    r->spans = malloc((in + out + 1) * one);
    if (!r->spans)
        return SH_FAIL(err, SH_E_NOMEM, "could not allocate the spans of a request");
    if (in)
        memcpy(r->spans, m->in_spans.data, in * one);
    if (out)
        memcpy(r->spans + in, m->out_spans.data, out * one);
    r->n_in = in;
    r->n_out = out;
    return SH_OK;
}

void requests_on_ready(struct sched *s, struct api *a, const struct msg_infer_ready *m)
{
    struct request *r = idmap_get(&a->requests, m->rid);
    struct sh_err err = {0};
    int rc;

    if (!r || r->state != REQUEST_OPEN)
        return; /* refused or cancelled meanwhile; the API has been told */
    /* decide() looks at it again, with all that it now knows. */
    r->promised = false;
    r->promised_ns = 0;
    rc = take_spans(r, m, &err);
    if (!rc && (m->sizes.len || r->has_sizes))
        rc = shapes_use(s, r->model, m->sizes, &r->shape, &err);
    if (rc) {
        requests_refuse(s, r, rc, 0, err.msg);
        return;
    }
    if (r->shape && shapes_cannot(s, r->shape)) {
        requests_refuse(s, r, r->shape->rc, 0, r->shape->msg);
        return;
    }
    /* What the body asked for, now that it can be read. */
    if (m->budget_ns > 0)
        set_deadlines(s, r, r->model, m->budget_ns, sh_clock_ns());
    if (m->priority > 0)
        r->priority = SH_MAX((int32_t)SH_MIN(m->priority, MAX_PRIORITY), r->model->slo_priority);
    r->batch = m->batch;
    arrivals_sized(&s->arrivals, r->tenant->name, r->model->version_id, m->batch);
    homes_asked(r->model, m->batch - 1, sh_clock_ns());
    if (r->shape)
        predict_ask(&r->shape->predict, m->batch, sh_clock_ns());
    if (r->batch > 1)
        charge_turn(r);
    request_go(r, REQUEST_READY);
    r->ready_ns = sh_clock_ns();
    requests__set_due(s, r);
    waiting_sort(s, r);
    sched_wake_some(s);
}

/* ------------------------------------------------------------------ ends */

static void cancel_running(struct sched *s, struct request *r)
{
    if (r->cancelled)
        return;
    r->cancelled = true;
    requests__set_due(s, r);
    session_send(r->exec->session,
                 &(struct sh_msg){
                     .type = MSG_RUN_CANCEL,
                     .u.run_cancel = {.run_id = r->run->id, .api_id = r->api_id, .rid = r->rid}});
}

void requests_on_cancel(struct sched *s, struct api *a, uint64_t rid)
{
    struct request *r = idmap_get(&a->requests, rid);

    if (!r)
        return; /* a former leader may have sent it to an executor: the API waits that out */
    if (r->state == REQUEST_RUNNING) {
        cancel_running(s, r); /* its RESULT tells the API when the payload is free */
        return;
    }
    /* No executor touches its payload: the API may use the memory again at once. */
    if (r->n_lost == 0)
        session_refuse(a->session, rid, SH_E_CANCELLED, 0, 0, "cancelled");
    request_end(s, r);
    sched_wake_some(s);
}

void requests_on_api_lost(struct sched *s, struct api *a)
{
    for (size_t i = s->requests.n; i-- > 0;) {
        struct request *r = s->requests.items[i];

        if (r->api != a)
            continue;
        if (r->state == REQUEST_RUNNING) {
            cancel_running(s, r);
            idmap_del(&a->requests, r->rid);
            r->api = NULL;
        } else {
            request_end(s, r);
        }
    }
}

static void run_unlink(struct sched *s, struct run *r)
{
    struct run **at = &r->exec->runs;

    while (*at != r)
        at = &(*at)->next;
    *at = r->next;
    r->exec->n_runs--;
    exec_changed(&s->execs, r->exec);
    idmap_del(&s->requests.runs, r->id);
}

static void run_free(struct sched *s, struct run *r)
{
    run_unlink(s, r);
    r->model->n_runs--;
    shapes_release(r->shape);
    models_release(s, r->model);
    free(r->parts);
    free(r);
}

static void refuse_lost(struct sched *s, struct request *r, const struct exec *e)
{
    char why[256];

    snprintf(why, sizeof(why), "executor \"%s\" is gone; try again", e->info.name);
    requests_refuse(s, r, SH_E_UNAVAILABLE, RETRY_SOON_MS, why);
}

static void displace(struct sched *s, struct request *r)
{
    waiting_leave(s, r);
    r->exec = NULL;
    r->promised = r->asked = false;
    waiting_sort(s, r);
}

/* To the beginning, for any executor. */
static void run_again(struct sched *s, struct request *r)
{
    request_go(r, REQUEST_READY);
    displace(s, r);
    r->again = r->cancelled = false;
    r->doubt_ns = 0;
    requests__set_due(s, r);
    sched_wake_some(s);
}

/* One of a run whose executor is gone: its result may have come all the same. */
static void lose_request(struct sched *s, struct request *r, const struct exec *e)
{
    r->run = NULL;
    if (!r->api || r->cancelled || r->n_lost++ == MAX_LOST) {
        refuse_lost(s, r, e);
        return;
    }
    request_go(r, REQUEST_LOST);
    if (r->again) {
        run_again(s, r);
        return;
    }
    r->doubt_ns = sh_clock_ns(); /* until the API says so too */
    requests__set_due(s, r);
}

void requests_on_exec_stopping(struct sched *s, struct exec *e)
{
    while (e->waiting.first)
        displace(s, e->waiting.first); /* it has not begun: the next pass places it anew */
    sched_wake_some(s);
}

void requests_on_exec_lost(struct sched *s, struct exec *e)
{
    while (e->runs) {
        for (size_t i = 0; i < e->runs->n_parts; i++)
            lose_request(s, e->runs->parts[i], e);
        run_free(s, e->runs);
    }
    requests_on_exec_stopping(s, e);
}

void requests_on_again(struct sched *s, struct api *a, const struct msg_infer_again *m)
{
    struct request *r = idmap_get(&a->requests, m->rid);

    if (!r) { /* it is over for us, and the API could not take its result */
        session_refuse(a->session, m->rid, SH_E_UNAVAILABLE, RETRY_SOON_MS, 0,
                       "its result was lost on the way; try again");
        return;
    }
    if (m->n_placed == 0) { /* one that has not begun is not lost */
        r->asked |= r->state == REQUEST_RUNNING;
        return;
    }
    if (m->n_placed != r->n_placed)
        return;                        /* it is somewhere else by now */
    if (r->state == REQUEST_RUNNING) { /* the end of the session is on its way to us as well */
        r->again = true;
        r->doubt_ns = sh_clock_ns();
        requests__set_due(s, r);
    } else if (r->state == REQUEST_LOST) {
        run_again(s, r);
    } else {
        displace(s, r);
        sched_wake_some(s);
    }
}

void requests_on_model_away(struct sched *s, struct model *m, int rc, const char *why)
{
    for (size_t i = s->requests.n; i-- > 0;) {
        struct request *r = s->requests.items[i];

        if (r->model == m && r->state != REQUEST_RUNNING)
            requests_refuse(s, r, rc, sh_rc_retry(rc) ? RETRY_SOON_MS : 0, why);
    }
}

void requests_on_shape_away(struct sched *s, const struct shape *h)
{
    for (size_t i = s->requests.n; i-- > 0;) {
        struct request *r = s->requests.items[i];

        if (r->shape == h && r->state == REQUEST_READY)
            requests_refuse(s, r, h->rc, sh_rc_retry(h->rc) ? RETRY_SOON_MS : 0, h->msg);
    }
}

void requests_on_unready(struct sched *s, struct exec *e, const struct model *m,
                         const struct shape *h)
{
    for (struct request *r = e->waiting.first, *next; r; r = next) {
        next = r->behind;
        if (r->model == m && (!h || r->shape == h))
            displace(s, r);
    }
    sched_wake_some(s);
}

bool requests_has_shape(struct sched *s, struct request *r)
{
    const int64_t now = sh_clock_ns();

    if (!r->has_sizes)
        return true;
    if (!r->shape)
        return false; /* the body is on its way */
    if (shapes_waits(s, r->shape)) {
        if (!r->waits_for_shape)
            sched_count("wait", "NewSizes");
        r->waits_for_shape = true;
        return false;
    }
    if (r->waits_for_shape) {
        r->waits_for_shape = false;
        r->compile_ns += now - r->ready_ns;
        sh_metric_observe(M_shunt_request_compile_wait_seconds,
                          SH_LABELS(r->tenant->name, r->model->name),
                          (double)(now - r->ready_ns) / 1e9);
        r->limit_ns = r->expires_ns;
    }
    return true;
}

void requests_refuse_all(struct sched *s, const char *why)
{
    for (size_t i = s->requests.n; i-- > 0;) {
        struct request *r = s->requests.items[i];

        if (r->state != REQUEST_RUNNING) {
            requests_refuse(s, r, SH_E_UNAVAILABLE, RETRY_SOON_MS, why);
        } else if (r->api) {
            /* The executor goes on and sends the result to the API by itself. */
            idmap_del(&r->api->requests, r->rid);
            r->api = NULL;
        }
    }
}

/* Only one of API and scheduler has lost the executor. */
static void give_up_request(struct sched *s, struct request *r)
{
    if (r->state == REQUEST_LOST) {
        refuse_lost(s, r, r->exec);
        return;
    }
    r->doubt_ns = 0;
    requests__set_due(s, r);
    settle_promise(r, "given_up");
    cancel_running(s, r);
    if (r->api) {
        session_refuse(r->api->session, r->rid, SH_E_UNAVAILABLE, RETRY_SOON_MS, 0,
                       "the executor was lost; try again");
        idmap_del(&r->api->requests, r->rid);
        r->api = NULL;
    }
}

static void refuse_expired(struct sched *s, struct request *r)
{
    char msg[160];

    snprintf(msg, sizeof(msg), "not started within %" PRId64 " ms",
             (r->expires_ns - r->open_ns) / SH_MS(1));
    requests_refuse(s, r, SH_E_TIMEOUT, RETRY_SOON_MS, msg);
}

void requests_expire(struct sched *s, int64_t now_ns)
{
    struct request *r;

    while ((r = requests__first_due(s, now_ns))) {
        if (r->doubt_ns && now_ns - r->doubt_ns > REQUEST_DOUBT_NS) {
            give_up_request(s, r);
        } else if (r->state == REQUEST_RUNNING) {
            settle_promise(r, "given_up");
            cancel_running(s, r);
        } else {
            refuse_expired(s, r);
        }
    }
}

void requests_fini(struct sched *s)
{
    free(s->requests.items); /* without a session there are neither runs nor requests */
    idmap_fini(&s->requests.runs);
    s->requests = (struct requests){0};
}

/* ------------------------------------------------------------------ runs */

void requests_bring(struct sched *s, const struct request *r, struct exec *e)
{
    session_send(e->session, &(struct sh_msg){.type = MSG_PREPARE,
                                              .u.prepare = {.epoch = s->epoch,
                                                            .rid = r->rid,
                                                            .version_id = r->model->version_id,
                                                            .evict = MSG_EVICT_ANY}});
    models_expect(r->model, e, sh_clock_ns());
}

void requests_place(struct sched *s, struct request *r, struct exec *e, bool is_probe)
{
    r->promised = !is_probe;
    if (r->promised && r->limit_ns != SNAP_NO_DEADLINE)
        r->promised_ns = r->limit_ns;
    r->waits = DECIDE_NONE;
    r->model->refused_ns = 0;
    if (r->exec)
        return;
    r->exec = e;
    r->let_in_ns = is_probe ? 0 : r->limit_ns;
    waiting_sort(s, r);
    r->n_placed++;
    if (is_probe)
        r->limit_ns = SNAP_NO_DEADLINE;
    requests_bring(s, r, e);
    session_send(r->api->session, /* only what runs can be without an API */
                 &(struct sh_msg){.type = MSG_INFER_PLACED,
                                  .u.infer_placed = {.rid = r->rid,
                                                     .executor = e->info.name,
                                                     .compile_ns = r->compile_ns}});
}

static struct sh_blob run_sizes(const struct run *run)
{
    const struct shape *h = run->shape;

    return h ? (struct sh_blob){h->sizes.v, h->sizes.n * sizeof(h->sizes.v[0])}
             : (struct sh_blob){0};
}

static void send_run_msg(struct sched *s, const struct run *run, int64_t now)
{
    struct session *x = run->exec->session;
    int64_t wanted_until = 0;

    for (size_t i = 0; i < run->n_parts; i++) {
        const struct request *r = run->parts[i];
        const size_t one = sizeof(struct msg_span);
        const char *tenant = r->tenant == run->tenant ? "" : r->tenant->name;

        session_send(
            x, &(struct sh_msg){.type = MSG_RUN_PART,
                                .u.run_part = {.run_id = run->id,
                                               .rid = r->rid,
                                               .api_id = r->api_id,
                                               .tenant = tenant,
                                               .batch = r->batch,
                                               .in_spans = {r->spans, r->n_in * one},
                                               .out_spans = {r->spans + r->n_in, r->n_out * one}}});
        wanted_until = SH_MAX(wanted_until, SH_MIN(r->expires_ns, r->limit_ns));
    }
    session_send(x, &(struct sh_msg){.type = MSG_RUN,
                                     .u.run = {.epoch = s->epoch,
                                               .run_id = run->id,
                                               .version_id = run->model->version_id,
                                               .tenant = run->tenant->name,
                                               .batch = run->batch,
                                               .n_parts = (uint32_t)run->n_parts,
                                               .budget_ns = SH_MAX(wanted_until - now, 1),
                                               .sizes = run_sizes(run)}});
}

/* More is known of a run that is sent than decide() knew: what runs before it. */
static void foresee(struct run *run, struct exec *e, int64_t now)
{
    const struct predict *p = run->shape ? &run->shape->predict : &run->model->predict;
    struct predict_time t;

    run->before =
        predict_before(e->last_version != run->model->version_id, e->n_runs ? 0 : now - e->done_ns);
    e->last_version = run->model->version_id;
    if (run->kind != PREDICT_WARM)
        return;
    predict_run(p, run->batch, run->model->slo_percentile, now, &t);
    run->predicted_ns += predict_after(p, run->batch, run->before, t.usual_ns) - t.usual_ns;
    run->predicted_ns = SH_MAX(run->predicted_ns, 1);
}

int requests_run(struct sched *s, struct exec *e, struct request *const *parts, size_t n,
                 const struct decision *d, struct sh_err *err)
{
    struct run *run = calloc(1, sizeof(*run)), **at;
    int64_t now = sh_clock_ns();
    int rc;

    if (run)
        run->parts = malloc(n * sizeof(run->parts[0]));
    if (!run || !run->parts) {
        free(run);
        return SH_FAIL(err, SH_E_NOMEM, "could not allocate a run");
    }
    run->id = ++s->requests.last_run | s->epoch << 40; /* unlike those of a former leader */
    run->exec = e;
    run->model = parts[0]->model;
    run->shape = parts[0]->shape;
    run->tenant = parts[0]->tenant; /* others may be of other tenants */
    run->n_parts = n;
    run->sent_ns = now;
    run->predicted_ns = d->predicted_ns;
    run->forecast_ns = d->forecast_ns;
    run->slack_ns = d->slack_ns;
    run->kind = d->weights;
    run->stopped_training = e->n_runs == 0 && jobs_train_on(s, e);
    rc = idmap_put(&s->requests.runs, run->id, run, err);
    if (rc) {
        free(run->parts);
        free(run);
        return rc;
    }
    for (size_t i = 0; i < n; i++) {
        run->parts[i] = parts[i];
        run->batch += parts[i]->batch;
        s->requests.turn_ns = SH_MAX(s->requests.turn_ns, parts[i]->turn_ns);
        request_go(parts[i], REQUEST_RUNNING);
        waiting_leave(s, parts[i]);
        parts[i]->run = run;
    }
    foresee(run, e, now);
    run->model->n_runs++;
    if (run->shape)
        run->shape->n_users++;
    models_expect(run->model, e, now);
    for (at = &e->runs; *at; at = &(*at)->next)
        ;
    *at = run;
    e->n_runs++;
    exec_changed(&s->execs, e);
    send_run_msg(s, run, now);
    requests__note_sent(run, now);
    return SH_OK;
}

/* requests_expire() refuses it then. */
static void wait_for_result(struct sched *s, struct request *r)
{
    r->run = NULL;
    request_go(r, REQUEST_LOST);
    r->doubt_ns = sh_clock_ns() - REQUEST_DOUBT_NS + RESULT_NS;
    requests__set_due(s, r);
}

/* Its API had lost the executor when it ended there, so the result went nowhere. Or perhaps: what
 * was sent is there soon, or never; an API that has it does not know the request any more. */
static void end_part(struct sched *s, struct request *r, const struct exec *e)
{
    if (r->again)
        lose_request(s, r, e);
    else if (r->asked && r->api)
        wait_for_result(s, r);
    else
        request_end(s, r);
}

static void account_end(struct sched *s, struct request *r, const struct model *m, int64_t rc,
                        int64_t now)
{
    const bool kept = now <= r->promised_ns;

    if (rc != SH_OK) {
        settle_promise(r, "given_up");
        return;
    }
    traffics_count(&s->traffics, m->model_id, m->tenant, m->name, now - r->open_ns, now);
    learn_promise(r, kept);
    settle_promise(r, kept ? "kept" : "late");
}

void requests_on_run_done(struct sched *s, struct exec *e, const struct msg_run_done *m)
{
    struct run *run = idmap_get(&s->requests.runs, m->run_id);
    int64_t now = sh_clock_ns();

    if (!run || run->exec != e)
        return; /* of a former leader, or refused when the connection broke */
    SH_TRACE(.name = "run", .track = "runs", .begin_ns = run->sent_ns, .end_ns = now,
             .run = run->id, .rc = (int)m->rc, .what = run->model->name);
    thrash_ran(&e->thrash, requests__span(m->busy_ns),
               requests__span(m->busy_ns) - requests__span(m->compute_ns));
    if (m->rc == SH_OK)
        requests__learn(e, run, m, now);
    else if (m->rc != SH_E_CANCELLED)
        SH_WARN("run.failed", "executor=%s model=%s code=%s msg=\"%s\"", e->info.name,
                run->model->name, sh_rc_name((int)m->rc), m->msg);
    e->done_ns = now;
    models_hold(run->model, e->index, m->resident_bytes);
    run->model->on[e->index].arrives_ns = 0;
    models_set_unpacking(run->model, e, m->unpack_ns);
    requests__charge(s, run, requests__span(SH_MAX(m->compute_ns, m->copy_ns)));
    e->busy_ns[0] += requests__span(SH_MAX(m->compute_ns, m->copy_ns));
    for (size_t i = 0; i < run->n_parts; i++) {
        struct request *r = run->parts[i];

        if (!r->again) /* else it runs once more */
            account_end(s, r, run->model, m->rc, now);
        end_part(s, r, e);
    }
    run_free(s, run);
    waiting_touch(s, e);
    sched_wake_some(s);
}
