/* grpc_call.c - one message of a call: from its headers to the answer of the request that it is.
 *
 *   AUTH     the key, as soon as the headers are there
 *   MESSAGE  takes it; that of an inference goes to the slab, where its tenant has a share
 *   AGAIN    the key of a stream, which may have waited for the message for long
 *   ENTER    reads it, finds its URL and begins its request; a large one on a pool thread
 *   MAIN     the handler of the URL
 *
 * A call may outlive its stream: whoever promised to wake it still will. It is freed then.
 */
#include "api/api.h"
#include "api/grpc/grpc_int.h"
#include "api/http/coding.h"
#include "api/request/route.h"
#include "common/clock.h"
#include "common/log.h"
#include "common/mem.h"
#include "common/metrics.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#define HERE_BYTES (UINT64_C(256) << 10) /* more is read on a pool thread: others wait meanwhile */
#define MAX_JSON_MESSAGE (UINT64_C(64) << 10)
#define MAX_URI ((size_t)4 << 10)

static bool is_infer(const struct grpc_call *c)
{
    return c->method->kind != CALL_JSON;
}

/* Of a message, also unpacked. */
static uint64_t most_bytes(const struct grpc_call *c)
{
    return is_infer(c) ? (uint64_t)c->q.api->conf->max_infer_bytes : MAX_JSON_MESSAGE;
}

/* ---------------------------------------------------------------- life */

int call_new(struct grpc_stream *s, struct grpc_call **out, struct sh_err *err)
{
    struct grpc *g = s->c->t->g;
    const char *admin = g->api->conf->admin_listen;
    struct grpc_call *c = calloc(1, sizeof(*c));

    *out = NULL;
    if (!c)
        return SH_FAIL(err, SH_E_NOMEM, "could not allocate a call");
    c->q.api = g->api;
    c->q.front = &GRPC_FRONT;
    c->q.takes_admins = !admin || !admin[0];
    c->q.start_ns = sh_clock_ns();
    c->q.has_length = true;
    c->q.h = (struct api_headers){.authorization = s->head[HEAD_AUTH],
                                  .request_id = s->head[HEAD_ID],
                                  .traceparent = s->head[HEAD_TRACE],
                                  .session = s->head[HEAD_SESSION]};
    sh_strlcpy(c->q.method, s->method->verb, sizeof(c->q.method));
    c->t = s->c->t;
    c->s = s;
    c->method = s->method;
    c->tenant = s->head[HEAD_TENANT];
    c->coding = s->head[HEAD_ENCODING];
    c->deadline_ns = s->deadline_ns;
    c->stage = (struct stage){.q = &c->q, .err = &c->err};
    sh_buf_init(&c->uri, MAX_URI);
    *out = c;
    return SH_OK;
}

void call_free(struct grpc_call *c)
{
    if (!c)
        return;
    if (c->counted)
        atomic_fetch_sub(&c->t->g->n_active, 1);
    c->t->g->steps->close(&c->q);
    req_reply_free(&c->q.reply);
    json_decref(c->q.json);
    slab_release(c->q.api->slab, c->slot);
    tensors_drop(&c->tensors);
    sh_buf_fini(&c->uri);
    free(c->text);
    for (size_t i = 0; i < GRPC_N_HEADS; i++)
        free(c->head[i]);
    free(c);
}

void call_settle(struct grpc_call *c, int rc)
{
    enum grpc_status status = grpc_status_of(rc, c->q.reply.status);

    if (c->settled)
        return;
    c->settled = true;
    c->t->g->steps->settle(&c->q, rc);
    sh_metric_add(M_shunt_grpc_requests_total, SH_LABELS(c->method->name, grpc_status_name(status)),
                  1);
    sh_metric_observe(M_shunt_grpc_request_duration_seconds, SH_LABELS(c->method->name),
                      (double)(sh_clock_ns() - c->q.start_ns) / 1e9);
    if (status == GRPC_INTERNAL) {
        SH_ERROR("grpc.failed", "method=%s request=%s", c->method->name, c->q.request_id);
        sh_log_err(SH_LOG_ERROR, "grpc.cause", &c->err);
    } else {
        SH_DEBUG("grpc.reply", "method=%s status=%s code=%s request=%s", c->method->name,
                 grpc_status_name(status), sh_rc_name(rc), c->q.request_id);
    }
}

void call_abandon(struct grpc_call *c)
{
    memcpy(c->head, c->s->head, sizeof(c->head)); /* the request's headers are there */
    memset(c->s->head, 0, sizeof(c->s->head));
    c->s->call = NULL;
    c->s = NULL;
    if (c->asleep && c->phase == CALL_MAIN)
        c->t->g->steps->abandon(&c->q);
    if (c->asleep)
        return;
    call_settle(c, SH_E_CANCELLED);
    call_free(c);
}

/* ---------------------------------------------------------------- steps */

/* The row of its URL. */
static int find_route(struct grpc_call *c, struct sh_err *err)
{
    struct api_req *q = &c->q;
    int rc = uri_parse(c->uri.data, &q->uri, err);

    if (!rc && c->tenant)
        q->uri.query[q->uri.n_query++] = (struct uri_pair){"tenant", c->tenant};
    return rc ? rc : c->t->g->steps->route(q, err);
}

static int call_open(struct grpc_call *c)
{
    int rc = req_make_id(&c->q, &c->err);

    if (!rc)
        rc = method_uri(c->method, NULL, &c->uri, &c->err);
    return rc ? rc : find_route(c, &c->err);
}

static int call_read_tensors(struct grpc_call *c, struct sh_err *err)
{
    struct api_req *q = &c->q;
    int64_t left_us = 0;
    int rc;

    if (c->deadline_ns) {
        left_us = (c->deadline_ns - sh_clock_ns()) / 1000;
        if (left_us <= 0)
            return SH_FAIL(err, SH_E_TIMEOUT, "the call's deadline has passed");
    }
    rc = tensors_read(c->method, slab_at(q->api->slab, c->slot->off), c->slot->bytes,
                      (size_t)q->api->conf->max_json_tensor_bytes, left_us, &c->tensors, &c->uri,
                      err);
    if (rc)
        return rc;
    q->content_length = c->tensors.bytes;
    snprintf(c->header_len, sizeof(c->header_len), "%zu", c->tensors.json_bytes);
    q->h.infer_header_len = c->header_len;
    return SH_OK;
}

static int read_other(struct grpc_call *c, struct sh_err *err)
{
    struct api_req *q = &c->q;
    char *body = NULL;
    json_t *j = NULL;
    int rc = method_read(c->method, c->text, c->text_n, &j, err);

    if (!rc)
        rc = method_uri(c->method, j, &c->uri, err);
    if (!rc && strcmp(c->method->verb, "POST") == 0)
        rc = sh_json_dump(j, &body, err);
    json_decref(j);
    if (rc)
        return rc;
    free(c->text);
    c->text = body;
    q->body = body;
    q->content_length = q->body_len = body ? strlen(body) : 0;
    return SH_OK;
}

static int feed(struct grpc_call *c, struct sh_err *err)
{
    const struct api_steps *steps = c->t->g->steps;
    const struct tensors *t = &c->tensors;
    int rc = steps->piece(&c->q, t->json, t->json_bytes, err);

    for (size_t i = 0; !rc && i < t->n_parts; i++)
        if (t->part[i].iov_len > 0)
            rc = steps->piece(&c->q, t->part[i].iov_base, t->part[i].iov_len, err);
    tensors_drop(&c->tensors);
    slab_release(c->q.api->slab, c->slot);
    c->slot = NULL;
    return rc;
}

struct filling {
    char *to;
    size_t n;
};

static int fill_piece(void *arg, const char *data, size_t n, struct sh_err *err)
{
    struct filling *f = arg;

    (void)err;
    memcpy(f->to + f->n, data, n);
    f->n += n;
    return SH_OK;
}

/* A packed message, on a pool thread: counted first, then unpacked to a place of that size, which
 * is its tenant's as the first one was (http_coded.c). */
static int call_unpack(struct grpc_call *c, struct sh_err *err)
{
    struct slab *slab = c->q.api->slab;
    const char *from = is_infer(c) ? slab_at(slab, c->slot->off) : c->text;
    const size_t n = is_infer(c) ? c->slot->bytes : c->text_n;
    struct slab_slot *slot = NULL;
    struct filling f = {NULL, 0};
    uint64_t bytes;
    int rc = coding_unpack(c->coding, from, n, most_bytes(c), NULL, NULL, &bytes, err);

    if (!rc && is_infer(c)) {
        rc = slab_take(slab, c->q.tenant, (size_t)bytes, &slot, err);
        f.to = rc ? NULL : slab_at(slab, slot->off);
    } else if (!rc) {
        f.to = malloc((size_t)bytes + 1);
        rc = f.to ? SH_OK : SH_FAIL(err, SH_E_NOMEM, "could not allocate a message");
    }
    if (!rc)
        rc = coding_unpack(c->coding, from, n, bytes, fill_piece, &f, &bytes, err);
    if (is_infer(c)) {
        slab_release(slab, c->slot);
        c->slot = slot;
    } else {
        free(c->text);
        c->text = f.to;
        c->text_n = f.n;
    }
    c->is_unpacked = true;
    return rc;
}

/* On this thread or, again from its beginning, on a pool thread. */
static int call_enter(struct api_req *q, struct sh_err *err)
{
    struct grpc_call *c = (struct grpc_call *)q;
    int rc = SH_OK;

    if (frames_is_packed(&c->frames) && !c->is_unpacked)
        rc = call_unpack(c, err);
    if (!rc && !c->is_read) {
        sh_buf_reset(&c->uri);
        rc = is_infer(c) ? call_read_tensors(c, err) : read_other(c, err);
        if (!rc)
            rc = find_route(c, err);
        c->is_read = !rc;
    }
    if (!rc)
        rc = c->t->g->steps->begin(q, err);
    return !rc && is_infer(c) ? feed(c, err) : rc;
}

/* Its length is known: is there room for it? */
static int call_make_room(struct grpc_call *c)
{
    const uint64_t most = most_bytes(c), bytes = c->frames.bytes;
    bool can_unpack = false;

    c->counted = true;
    atomic_fetch_add(&c->t->g->n_active, 1);
    if (bytes > most)
        return SH_FAIL(&c->err, SH_E_TOOBIG,
                       "the message has %" PRIu64 " bytes, at most %" PRIu64 " are allowed here",
                       bytes, most);
    if (frames_is_packed(&c->frames))
        coding_check(c->coding, &can_unpack, NULL);
    if (frames_is_packed(&c->frames) && !can_unpack)
        return SH_FAIL(
            &c->err, SH_E_INVALID,
            "the message says that it is compressed, and grpc-encoding does not say how");
    if (is_infer(c))
        return slab_take(c->q.api->slab, c->q.tenant, (size_t)bytes, &c->slot, &c->err);
    c->text = malloc((size_t)bytes + 1);
    c->text_n = (size_t)bytes;
    return c->text ? SH_OK : SH_FAIL(&c->err, SH_E_NOMEM, "could not allocate a message");
}

/* A stream may have waited for it for long. */
static void begin_message(struct grpc_call *c)
{
    c->slow_ns = sh_clock_ns();
    if (c->method->kind == CALL_STREAM)
        c->q.start_ns = c->slow_ns;
}

int call_take(struct grpc_call *c, const char *data, size_t n, size_t *taken)
{
    struct frames *f = &c->frames;
    size_t part;
    int rc = SH_OK;

    *taken = 0;
    if (!frames_is_begun(f))
        begin_message(c);
    if (!frames_has_size(f)) {
        rc = frames_prefix(f, data, n, taken, &c->err);
        if (rc || !frames_has_size(f))
            return rc;
        rc = call_make_room(c);
    }
    if (rc && c->method->kind == CALL_STREAM) {
        c->skip_rc = rc;
        rc = SH_OK;
    }
    if (rc)
        return rc;
    part = (size_t)SH_MIN(n - *taken, f->bytes - f->got);
    if (part > 0 && !c->skip_rc)
        memcpy((is_infer(c) ? (char *)slab_at(c->q.api->slab, c->slot->off) : c->text) + f->got,
               data + *taken, part);
    f->got += part;
    *taken += part;
    return SH_OK;
}

/* A model that is not there is not ready: so the client's question has an answer. */
static int say_no(struct grpc_call *c, int rc)
{
    if (rc != SH_E_NOTFOUND || !c->method->no_is_answer)
        return rc;
    json_decref(c->q.reply.body);
    c->q.reply.body = json_object();
    return SH_OK;
}

/* The key, and the connection's place among those of the key. */
static int check_call_key(struct grpc_call *c)
{
    int rc = stage_run(&c->stage, c->t->g->steps->auth, true, c->q.api->ctl);

    if (!rc)
        stream_known(c->s, c->q.tenant);
    else if (rc == SH_E_UNAUTHENTICATED)
        conn_refuse(c->s->c, c->q.h.authorization);
    return rc || !c->q.who.key_id[0] ? rc : conn_claim(c->s->c, &c->q.who, &c->err);
}

int call_advance(struct grpc_call *c)
{
    const struct api_steps *steps = c->t->g->steps;
    struct api *a = c->q.api;
    int rc = SH_OK;

    c->asleep = false;
    if (c->phase == CALL_AUTH) {
        rc = c->q.route ? SH_OK : call_open(c);
        if (!rc)
            rc = check_call_key(c);
        c->phase = rc ? c->phase : CALL_MESSAGE;
    }
    if (!rc && c->phase == CALL_MESSAGE) {
        if (!frames_is_whole(&c->frames))
            return API_WAIT;
        c->phase = c->method->kind == CALL_STREAM ? CALL_AGAIN : CALL_ENTER;
        rc = c->skip_rc;
    }
    if (!rc && c->phase == CALL_AGAIN) {
        rc = check_call_key(c);
        c->phase = rc ? c->phase : CALL_ENTER;
    }
    if (!rc && c->phase == CALL_ENTER) {
        rc = stage_run(&c->stage, call_enter,
                       c->frames.bytes <= HERE_BYTES && !frames_is_packed(&c->frames), a->ctl);
        c->phase = rc ? c->phase : CALL_MAIN;
    }
    if (!rc && c->phase == CALL_MAIN)
        rc = stage_run(&c->stage, steps->handle, c->q.route->flags & ROUTE_HERE, a->ctl);
    c->asleep = rc == API_WAIT;
    if (c->asleep)
        return rc;
    c->phase = CALL_DONE;
    return say_no(c, rc);
}

void call_woken(struct grpc_call *c)
{
    struct grpc_stream *s = c->s;
    struct grpc_conn *conn = s ? s->c : NULL;

    c->asleep = false;
    if (!s) {
        call_settle(c, SH_E_CANCELLED);
        call_free(c);
        return;
    }
    conn_enter(conn);
    stream_pump(s);
    conn_leave(conn);
}
