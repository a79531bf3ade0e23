/* infer_request.c - see infer_request.h. */
#include "api/infer/infer_request.h"

#include "api/api.h"
#include "api/cache/rate.h"
#include "api/handlers.h"
#include "api/infer/alias_count.h"
#include "api/infer/link.h"
#include "api/infer/slo_count.h"
#include "api/infer/stats.h"
#include "api/infer/traced.h"
#include "api/infer/v2.h"
#include "api/request/front.h"
#include "common/buf.h"
#include "common/clock.h"
#include "common/mem.h"
#include "common/metrics.h"
#include "common/trace.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

/* More JSON than this is parsed or printed on a pool thread: the HTTP thread has other clients. */
#define INLINE_JSON (64u << 10)
#define LONG_JSON (4u << 10)   /* to parse it takes 70 us, as long as a few requests */
#define LONG_READ (256u << 10) /* of shared memory: takes as long as the scheduler's decision */
#define MAX_REPLY_HEAD (1u << 30)
#define MAX_SESSION 255
#define TENSOR_ALIGN 64u /* of the first binary tensor; a device reads it best from there */

struct infer *infer_ref(struct infer *i)
{
    atomic_fetch_add(&i->refs, 1);
    return i;
}

void infer_unref(struct infer *i)
{
    if (!i || atomic_fetch_sub(&i->refs, 1) > 1)
        return;
    slab_release(i->api->slab, i->body);
    slab_release(i->api->slab, i->brought);
    slab_release(i->api->slab, i->outputs);
    for (size_t k = 0; k < i->plan.n_out; k++)
        region_put(i->out_regions[k]);
    plan_fini(&i->plan);
    parsed_put(i->parsed);
    catalog_put(i->table);
    pthread_mutex_destroy(&i->lock);
    free(i);
}

static void unref_owner(void *owner)
{
    infer_unref(owner);
}

struct api_req *infer_complete(struct infer *i, const struct infer_result *r)
{
    struct api_req *wake = NULL;

    pthread_mutex_lock(&i->lock);
    if (!i->done) {
        i->done = true;
        i->result = *r;
        i->answer_ns = sh_clock_ns();
        wake = i->waiting ? i->q : NULL;
        i->waiting = false;
    }
    pthread_mutex_unlock(&i->lock);
    return wake;
}

/* answer_ns: as it was under the lock. */
static void trace_request(struct infer *i, int rc, int64_t now, int64_t answer_ns)
{
    static const char *const STAGES[] = {"body", "answer", "reply", NULL};

    if (!i->rid) /* refused before it was open */
        i->rid = link_new_rid(i->api->link);
    SH_TRACE(.name = "request", .track = "requests", .begin_ns = i->begin_ns, .end_ns = now,
             .api = link_api_id(i->api->link), .rid = i->rid, .rc = rc, .what = i->v->model,
             .id = i->id, .stages = STAGES,
             .stage_ends_ns = {i->body_ns ? i->body_ns : now, answer_ns ? answer_ns : now});
    traced_end(i, rc, now - i->begin_ns, i->body_ns && answer_ns);
}

/* May it speak for or against the version? A tenant with which the model is shared must not bring
 * about a rollback with time limits of its own that nothing could keep. */
static bool judges_alias(const struct infer *i, int rc)
{
    const bool is_limit = rc == SH_E_TIMEOUT || rc == SH_E_SLO || rc == SH_E_UNAVAILABLE;

    return i->alias && i->alias->is_counted &&
           !(is_limit && i->plan.timeout_us > 0 && strcmp(i->tenant, i->v->tenant) != 0);
}

void infer_settle(struct infer *i, int rc)
{
    static const char *const NAMES[] = {"met", "missed", "rejected"};
    const char *outcome = rc ? sh_rc_name(rc) : "ok";
    struct stats_sample s = {.ok = rc == SH_OK};
    enum slo_outcome slo;
    int64_t ns, now, answer_ns;

    if (!i || i->settled)
        return;
    i->settled = true;
    now = sh_clock_ns();
    ns = s.total_ns = now - i->begin_ns;
    s.batch = i->plan.batch;
    pthread_mutex_lock(&i->lock); /* the link may still bring a result of what failed here */
    s.run_batch = i->result.run_batch;
    s.queue_ns = i->result.queue_ns;
    s.copy_ns = i->result.copy_ns;
    s.compute_ns = i->result.compute_ns;
    answer_ns = i->answer_ns;
    pthread_mutex_unlock(&i->lock);
    trace_request(i, rc, now, answer_ns);
    sh_metric_add(M_shunt_requests_total, SH_LABELS(i->tenant, i->v->model, outcome), 1);
    sh_metric_observe(M_shunt_request_duration_seconds, SH_LABELS(i->tenant, i->v->model),
                      (double)ns / 1e9);
    stats_add(i->api->stats, i->v->id, &s);
    if (judges_alias(i, rc))
        alias_counts_add(i->api->aliases, i->alias, i->v->version, rc, i->v->has_slo,
                         !rc && (double)ns <= i->v->slo_ms * 1e6, sh_clock_wall_ms());
    if (!i->v->has_slo || (rc && !sh_rc_retry(rc)))
        return; /* a client's own mistakes are no matter of the SLO */
    slo = rc ? SLO_REJECTED : (double)ns <= i->v->slo_ms * 1e6 ? SLO_MET : SLO_MISSED;
    sh_metric_add(M_shunt_slo_requests_total, SH_LABELS(i->tenant, i->v->model, NAMES[slo]), 1);
    sh_metric_set(M_shunt_slo_objective_ratio, SH_LABELS(i->tenant, i->v->model),
                  i->v->slo_percentile / 100);
    slo_counts_add(i->api->slo, i->v->model_id, slo, ns, sh_clock_wall_ms());
}

void infer_abandon(struct infer *i)
{
    bool waits;

    if (!i)
        return;
    pthread_mutex_lock(&i->lock);
    waits = i->is_posted && !i->done;
    i->is_abandoned = true; /* a pool thread may be about to submit it */
    pthread_mutex_unlock(&i->lock);
    if (waits)
        link_cancel(i->api->link, i);
}

void infer_close(struct infer *i)
{
    bool done;

    if (!i)
        return;
    pthread_mutex_lock(&i->lock);
    done = i->done;
    i->done = true; /* the link's word comes too late now */
    i->q = NULL;
    i->waiting = false;
    pthread_mutex_unlock(&i->lock);
    if (!done) /* the client left in mid-body, or its body was refused */
        link_cancel(i->api->link, i);
    infer_settle(i, SH_E_CANCELLED); /* unless it was answered */
    infer_unref(i);
}

/* ---------------------------------------------------------------- headers */

static char *body_at(const struct infer *i)
{
    return (char *)slab_at(i->api->slab, i->body->off) + i->lead;
}

/* Nothing becomes better by asking again, only by what somebody does: 409, and no Retry-After. */
static int refuse_for_good(struct api_req *q, const char *code, struct sh_err *err, const char *msg)
{
    if (!q->reply.problem)
        q->reply.problem = json_pack("{s:s}", "reason_code", code);
    return SH_FAIL(err, SH_E_CONFLICT, "%s", msg);
}

/* Those of a session get the same version of an alias, or those with the same key of one that is
 * sticky; else each request is chosen for by itself. */
static int choose_version(struct api_req *q, struct infer *i, struct sh_err *err)
{
    const char *key = q->h.session ? q->h.session : q->request_id;
    struct v2_choice c;
    int rc;

    if (q->h.session && (!q->h.session[0] || strlen(q->h.session) > MAX_SESSION))
        return SH_FAIL(err, SH_E_INVALID, "Shunt-Session must have 1 to %d characters",
                       MAX_SESSION);
    rc = v2_choose(q, key, &c, err);
    if (!rc && c.alias && c.alias->is_sticky && !q->h.session)
        c.v = cat_serving(c.table, c.alias, c.v->model, q->who.key_id);
    i->table = c.table;
    i->v = c.v;
    i->alias = c.alias;
    return rc;
}

static int find_version(struct api_req *q, struct infer *i, struct sh_err *err)
{
    char msg[sizeof(err->msg)];
    int rc = choose_version(q, i, err);
    const struct cat_version *v = i->v;

    if (rc || (v->ready && v->usable))
        return rc;
    if (v->is_coming) {
        q->reply.retry_after_ms = 2000;
        return SH_FAIL(err, SH_E_UNAVAILABLE,
                       "version %" PRId64 " of model \"%s\" is being loaded (%s); try again",
                       v->version, v->model, v->state);
    }
    if (strcmp(v->state, "FAILED") == 0)
        snprintf(msg, sizeof(msg),
                 "version %" PRId64 " of model \"%s\" has failed: %s; when that is mended, load it "
                 "again (or push a new version)",
                 v->version, v->model, v->reason);
    else
        snprintf(msg, sizeof(msg), "version %" PRId64 " of model \"%s\" is not ready: %s%s%s",
                 v->version, v->model, v->state, v->reason[0] ? ": " : "", v->reason);
    return refuse_for_good(q, v->reason_code[0] ? v->reason_code : sh_rc_name(SH_E_CONFLICT), err,
                           msg);
}

static int check_lengths(struct api_req *q, struct infer *i, struct sh_err *err)
{
    const char *h = q->h.infer_header_len;
    int64_t header = (int64_t)q->content_length;

    if (!q->has_length) {
        q->reply.status = 411;
        return SH_FAIL(err, SH_E_INVALID,
                       "send the body with Content-Length; chunked bodies are not accepted here");
    }
    if (q->content_length == 0)
        return SH_FAIL(err, SH_E_INVALID, "the body is empty; an inference request is JSON");
    if (h && (sh_parse_i64(h, 0, INT64_MAX, "length", &header, NULL) ||
              (uint64_t)header > q->content_length))
        return SH_FAIL(err, SH_E_INVALID,
                       "Inference-Header-Content-Length must be a number from 1 to the body's "
                       "length, %" PRIu64,
                       q->content_length);
    if (header == 0)
        return SH_FAIL(err, SH_E_UNSUPPORTED,
                       "Inference-Header-Content-Length: 0 (a raw request without JSON) is not "
                       "supported");
    if (header > q->api->conf->max_json_tensor_bytes)
        return SH_FAIL(err, SH_E_TOOBIG,
                       "the JSON part has %" PRId64 " bytes, at most %" PRId64
                       " are allowed; send tensors as binary data after the JSON, whose length "
                       "Inference-Header-Content-Length holds",
                       header, q->api->conf->max_json_tensor_bytes);
    i->body_bytes = (size_t)q->content_length;
    i->header_bytes = (size_t)header;
    if (i->header_bytes < i->body_bytes)
        i->lead = SH_ALIGN_UP(i->header_bytes, TENSOR_ALIGN) - i->header_bytes;
    return SH_OK;
}

/* A key of the tenant: an admin's own requests count for nobody. */
static int check_rate(struct api_req *q, struct sh_err *err)
{
    const struct api_who *w = &q->who;
    struct api_reply *p = &q->reply;
    struct rate_left left;
    int64_t wait_ms;

    if (w->requests_per_second <= 0)
        return SH_OK;
    wait_ms = rate_take_left(q->api->rate, w->tenant_id, w->requests_per_second, w->burst,
                             sh_clock_ns(), &left);
    snprintf(p->rate_policy, sizeof(p->rate_policy), "\"requests\";q=%" PRId64 ";w=%" PRId64,
             left.most, left.window_s);
    snprintf(p->rate, sizeof(p->rate), "\"requests\";r=%" PRId64 ";t=%" PRId64, left.left,
             left.reset_s);
    if (wait_ms == 0)
        return SH_OK;
    q->reply.retry_after_ms = wait_ms;
    return SH_FAIL(err, SH_E_QUOTA,
                   "tenant \"%s\" sends more than the %g requests a second that its quota "
                   "(requests_per_second, burst) allows",
                   w->tenant, w->requests_per_second);
}

static int open_infer(struct api_req *q, struct infer *i, struct sh_err *err)
{
    int rc = find_version(q, i, err);

    if (!rc)
        rc = check_lengths(q, i, err);
    if (!rc && atomic_load(&q->api->stopping))
        rc = SH_FAIL(err, SH_E_UNAVAILABLE, "this server is shutting down; try another one");
    if (!rc)
        rc = check_rate(q, err);
    if (!rc)
        rc = slab_take(q->api->slab, i->tenant, i->lead + i->body_bytes, &i->body, err);
    if (!rc)
        rc = link_open(q->api->link, i, err);
    return rc;
}

int infer_begin(struct api_req *q, struct sh_err *err)
{
    struct infer *i = calloc(1, sizeof(*i));
    int rc;

    if (!i)
        return SH_FAIL(err, SH_E_NOMEM, "could not allocate a request");
    atomic_init(&i->refs, 1);
    pthread_mutex_init(&i->lock, NULL);
    i->api = q->api;
    i->q = q;
    i->fd = req_fd(q);
    i->begin_ns = q->start_ns;
    sh_strlcpy(i->tenant, q->tenant, sizeof(i->tenant));
    i->tenant_id = q->who.tenant_id;
    sh_strlcpy(i->id, q->request_id, sizeof(i->id));
    traced_begin(q, i);
    rc = open_infer(q, i, err);
    if (rc && rc != API_AGAIN && i->v) /* refused before it began: counted all the same */
        infer_settle(i, rc);
    if (rc) {
        infer_unref(i);
        return rc;
    }
    q->infer = i;
    return SH_OK;
}

static int failure(struct api_req *q, const struct infer *i, struct sh_err *err)
{
    if (i->result.is_final)
        return refuse_for_good(q, sh_rc_name(i->result.rc), err, i->result.msg);
    if (i->result.rc == SH_E_CONFLICT) /* unloaded a moment ago: the code that the row has, too */
        return refuse_for_good(q, "UNLOADED", err, i->result.msg);
    q->reply.retry_after_ms = i->result.retry_after_ms;
    if (i->result.predicted_ms > 0 && !q->reply.problem)
        q->reply.problem = json_pack("{s:I}", "predicted_ms", (json_int_t)i->result.predicted_ms);
    return SH_FAIL(err, i->result.rc, "%s",
                   i->result.msg[0] ? i->result.msg : sh_rc_text(i->result.rc));
}

int infer_piece(struct api_req *q, const char *data, size_t n, struct sh_err *err)
{
    struct infer *i = q->infer;
    bool done;

    pthread_mutex_lock(&i->lock);
    done = i->done;
    pthread_mutex_unlock(&i->lock);
    if (done) {
        /* Refused or too late already. No run knows the slot before INFER_READY: others can have it
         * while the rest of the body comes and is thrown away. */
        slab_release(i->api->slab, i->body);
        i->body = NULL;
        return failure(q, i, err);
    }
    if (n > i->body_bytes - i->received)
        return SH_FAIL(err, SH_E_INVALID, "the body is longer than its Content-Length");
    memcpy(body_at(i) + i->received, data, n);
    i->received += n;
    return SH_OK;
}

/* ---------------------------------------------------------------- body complete */

static int read_region(struct infer *i, const struct plan_input *in, void *to, struct sh_err *err)
{
    struct region *g = NULL;
    int rc =
        regions_get(i->api->regions, i->tenant, in->shm.region, in->shm.offset, in->bytes, &g, err);

    if (!rc)
        rc = region_read(g, in->shm.offset, to, in->bytes, err);
    region_put(g);
    return rc;
}

/* Input k is where it is to be, but not filled up yet. */
static int input_load(struct infer *i, size_t k, char *to, struct sh_err *err)
{
    const struct cat_tensor *t = &i->v->inputs[k];
    struct plan_input *in = &i->plan.in[k];
    int rc;

    if (in->binary)
        return SH_OK;
    rc = in->shm.region
             ? read_region(i, in, to, err)
             : tensor_from_json(t, in->data, to, in->bytes / sh_dtype_bytes(t->dtype), err);
    in->binary = to;
    return rc;
}

static size_t bytes_in_regions(const struct infer *i)
{
    size_t n = 0;

    for (size_t k = 0; k < i->v->n_inputs; k++)
        n += i->plan.in[k].shm.region ? i->plan.in[k].bytes : 0;
    return n;
}

/* Inputs that are numbers in JSON, in shared memory, or filled up, become bytes in a slot of their
 * own, in the order of the model's inputs. */
static int bring_inputs(struct infer *i, struct sh_err *err)
{
    char *at[CAT_MAX_IO], *to;
    bool masks_all = false;
    int rc;

    if (i->plan.brought_bytes == 0)
        return SH_OK;
    rc = slab_take(i->api->slab, i->tenant, i->plan.brought_bytes, &i->brought, err);
    if (!rc && bytes_in_regions(i) >= LONG_READ) /* it is placed, and weights come, meanwhile */
        rc = link_open_late(i->api->link, i, err);
    if (rc)
        return rc;
    to = slab_at(i->api->slab, i->brought->off);
    for (size_t k = 0; !rc && k < i->v->n_inputs; k++) {
        struct plan_input *in = &i->plan.in[k];

        at[k] = to;
        if (!in->binary || in->run_bytes != in->bytes)
            to += SH_ALIGN_UP(in->run_bytes, 64u);
        rc = input_load(i, k, at[k], err);
        if (!rc && i->plan.is_padded)
            masks_all |= plan_masks_all(&i->v->inputs[k], &i->plan, in->binary);
    }
    if (!rc && masks_all)
        rc = plan_as_it_is(i->v, &i->plan, err);
    for (size_t k = 0; !rc && k < i->v->n_inputs; k++) {
        struct plan_input *in = &i->plan.in[k];

        if (in->run_bytes == in->bytes)
            continue;
        rc = plan_pad(&i->v->inputs[k], &i->plan, in->binary, at[k], err);
        in->binary = at[k];
    }
    return rc;
}

/* Known before the run: a mistake should not cost one. */
static int find_out_regions(struct infer *i, struct sh_err *err)
{
    int rc = SH_OK;

    for (size_t k = 0; !rc && k < i->plan.n_out; k++) {
        const struct plan_shm *s = &i->plan.out[k].shm;

        if (s->region)
            rc = regions_get(i->api->regions, i->tenant, s->region, s->offset, s->bytes,
                             &i->out_regions[k], err);
    }
    return rc;
}

static int infer_prepare(struct infer *i, struct sh_err *err)
{
    const char *body = body_at(i);
    const struct plan_limits most = {(size_t)i->api->conf->max_json_tensor_bytes,
                                     i->api->conf->max_axis_size};
    int rc;

    if (i->received != i->body_bytes)
        return SH_FAIL(err, SH_E_INVALID, "the body is shorter than its Content-Length");
    i->parsed = parsed_get(i->api->parsed, i->v->id, body, i->header_bytes);
    i->plan.json = parsed_json(i->parsed);
    rc = plan_read(i->v, body, i->body_bytes, i->header_bytes, &most, &i->plan, err);
    if (!rc)
        rc = find_out_regions(i, err);
    if (!rc)
        rc = bring_inputs(i, err);
    if (!rc)
        rc = slab_take(i->api->slab, i->tenant, i->plan.all_out_bytes, &i->outputs, err);
    return rc;
}

/* From here on the link owns the answer. API_WAIT: nothing of q may be touched any more. */
/* The caller has a reference. */
static void hand_over(struct infer *i, bool later)
{
    bool left;

    link_ready(i->api->link, i, later);
    pthread_mutex_lock(&i->lock);
    i->is_posted = true;
    left = i->is_abandoned && !i->done;
    pthread_mutex_unlock(&i->lock);
    if (left)
        link_cancel(i->api->link, i);
}

static int infer_submit(struct api_req *q, struct infer *i, struct sh_err *err)
{
    const bool later = !q->db && q->front->defers(q); /* asked before q may be another thread's */
    bool done, left;

    infer_ref(i); /* ours: the answer may come, and the request end, before link_ready returns */
    pthread_mutex_lock(&i->lock);
    done = i->done;
    left = i->is_abandoned;
    i->submitted = true;
    if (i->plan.is_padded)
        sh_metric_add(M_shunt_requests_padded_total, SH_LABELS(i->tenant, i->v->model), 1);
    i->waiting = !done && !left;
    pthread_mutex_unlock(&i->lock);
    if (!done && !left)
        hand_over(i, later);
    infer_unref(i);
    if (left) /* infer_close() tells the link */
        return SH_FAIL(err, SH_E_CANCELLED, "the client went away");
    return done ? failure(q, i, err) : API_WAIT;
}

static size_t json_output_bytes(const struct infer *i)
{
    size_t n = 0;

    for (size_t k = 0; k < i->plan.n_out; k++)
        if (!i->plan.out[k].binary && !i->plan.out[k].shm.region)
            n += i->plan.out_bytes[i->plan.out[k].index];
    return n;
}

static char *put_ms(char *at, const char *name, int64_t ns)
{
    const uint64_t us = ((uint64_t)SH_MAX(ns, INT64_C(0)) + 500) / 1000;

    at = sh_put_decimal(stpcpy(at, name), us / 1000, 1);
    *at++ = '.';
    return sh_put_decimal(at, us % 1000, 3);
}

/* ms. The executor's: queue, copy, compute, and total, which has a little more. Ours: body, from
 * the request's first line to the body's end; answer, from there to the result, so that answer less
 * total is the way to the executor and back. compile: how long it waited for its shape to
 * be compiled, before it was sent to the executor; only where it did. */
static void print_timing(const struct infer *i, char out[static API_TIMING])
{
    const struct infer_result *r = &i->result;
    char *at = put_ms(out, "queue;dur=", r->queue_ns);

    at = put_ms(at, ", copy;dur=", r->copy_ns);
    at = put_ms(at, ", compute;dur=", r->compute_ns);
    at = put_ms(at, ", total;dur=", r->total_ns);
    at = put_ms(at, ", body;dur=", i->body_ns - i->begin_ns);
    at = put_ms(at, ", answer;dur=", i->answer_ns - i->body_ns);
    if (r->compile_ns > 0)
        at = put_ms(at, ", compile;dur=", r->compile_ns);
    *at = '\0';
}

static int write_regions(const struct infer *i, const char *outputs, struct sh_err *err)
{
    int rc = SH_OK;

    for (size_t k = 0; !rc && k < i->plan.n_out; k++) {
        const struct plan_output *o = &i->plan.out[k];

        if (i->out_regions[k])
            rc = region_write(i->out_regions[k], o->shm.offset, outputs + i->plan.out_off[o->index],
                              i->plan.out_bytes[o->index], err);
    }
    return rc;
}

static int reply_with_result(struct api_req *q, struct infer *i, struct sh_err *err)
{
    char *outputs = slab_at(i->api->slab, i->outputs->off);
    struct api_reply *p = &q->reply;
    struct sh_buf head;
    int rc;

    sh_buf_init(&head, MAX_REPLY_HEAD);
    rc = plan_cut(i->v, &i->plan, outputs, err);
    if (!rc)
        rc = write_regions(i, outputs, err);
    if (!rc)
        rc = plan_reply(i->v, &i->plan, outputs, &head, &p->binary, err);
    if (!rc) {
        p->parts = calloc(i->plan.n_out + 1, sizeof(*p->parts));
        if (!p->parts)
            rc = SH_FAIL(err, SH_E_NOMEM, "could not allocate the reply");
    }
    if (rc) {
        sh_buf_fini(&head);
        return rc;
    }
    for (size_t k = 0; k < i->plan.n_out; k++) {
        size_t index = i->plan.out[k].index;

        if (i->plan.out[k].binary && i->plan.out_bytes[index] > 0)
            p->parts[p->n_parts++] = (struct iovec){(void *)(outputs + i->plan.out_off[index]),
                                                    i->plan.out_bytes[index]};
    }
    print_timing(i, p->timing);
    p->head_len = head.len;
    p->head = sh_buf_take(&head);
    sh_buf_fini(&head);
    p->owner = infer_ref(i); /* the slots stay until the last byte is sent */
    p->release = unref_owner;
    return SH_OK;
}

/* Parses or prints so much JSON; the pool's threads have all time. */
static void take_long(struct api_req *q, size_t json_bytes)
{
    if (!q->db && json_bytes > LONG_JSON)
        q->front->catch_up(q);
}

int infer_main(struct api_req *q, struct sh_err *err)
{
    struct infer *i = q->infer;
    bool here = q->db == NULL;
    int rc;

    if (!i->submitted) {
        if (here)
            i->body_ns = sh_clock_ns();
        if (here && i->header_bytes > INLINE_JSON)
            return API_AGAIN;
        take_long(q, i->header_bytes);
        rc = infer_prepare(i, err);
        return rc ? rc : infer_submit(q, i, err);
    }
    if (i->result.rc)
        return failure(q, i, err);
    if (here && json_output_bytes(i) > INLINE_JSON)
        return API_AGAIN;
    take_long(q, json_output_bytes(i));
    return reply_with_result(q, i, err);
}
