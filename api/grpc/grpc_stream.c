/* grpc_stream.c - a stream: takes messages one by one, and answers each before it takes the next.
 *
 * What a client sends meanwhile waits in `held`, which the stream's window limits; the window opens
 * when the data is taken. So who sends faster than we answer has to wait. What waits counts in the
 * share of payload memory that the stream's tenant has: many streams have many windows.
 */
#include "api/api.h"
#include "api/grpc/grpc_int.h"
#include "api/http/coding.h"
#include "api/request/route.h"
#include "common/clock.h"
#include "common/mem.h"
#include "common/units.h"

#include <stdio.h>
#include <stdlib.h>
#include <strings.h>

#define MAX_MESSAGE_TEXT ((size_t)4 << 10)
#define FIRST_WINDOW 65535u
#define MAX_HELD ((size_t)GRPC_STREAM_WINDOW + FIRST_WINDOW)
#define KEPT_BYTES ((size_t)16 << 10)

/* ---------------------------------------------------------------- life */

struct grpc_stream *stream_new(struct grpc_conn *c, int32_t id)
{
    struct grpc_stream *s = calloc(1, sizeof(*s));

    if (!s)
        return NULL;
    s->c = c;
    s->id = id;
    s->begin_ns = sh_clock_ns();
    sh_buf_init(&s->held, MAX_HELD);
    sh_buf_init(&s->message, MAX_MESSAGE_TEXT);
    LIST_INSERT_HEAD(&c->streams, s, of_conn);
    c->n_streams++;
    c->had_call = true;
    return s;
}

void out_fini(struct grpc_out *o)
{
    if (o->release)
        o->release(o->owner);
    free(o->iov);
    sh_buf_fini(&o->text);
    *o = (struct grpc_out){.n = 0};
}

/* What was sent ahead is given back as the call takes it. */
static void count_held(struct grpc_stream *s)
{
    if (s->held.len < s->held_count.bytes)
        slab_count(s->c->t->g->api->slab, &s->held_count, s->tenant, s->held.len, NULL);
    if (s->held.len == 0 && s->held.cap > KEPT_BYTES) { /* it may wait for the next one for long */
        sh_buf_fini(&s->held);
        sh_buf_init(&s->held, MAX_HELD);
    }
}

static void drop_held(struct grpc_stream *s)
{
    if (s->held.len > 0)
        nghttp2_session_consume_connection(s->c->session, s->held.len);
    sh_buf_reset(&s->held);
    count_held(s);
}

void stream_known(struct grpc_stream *s, const char *tenant)
{
    if (strcmp(s->tenant, tenant) == 0)
        return;
    slab_count(s->c->t->g->api->slab, &s->held_count, s->tenant, 0, NULL);
    sh_strlcpy(s->tenant, tenant, sizeof(s->tenant));
}

void stream_del(struct grpc_stream *s)
{
    if (s->call && s->call->settled)
        call_free(s->call);
    else if (s->call)
        call_abandon(s->call);
    out_fini(&s->out);
    drop_held(s);
    for (size_t i = 0; i < GRPC_N_HEADS; i++)
        free(s->head[i]);
    free(s->problem);
    sh_buf_fini(&s->held);
    sh_buf_fini(&s->message);
    LIST_REMOVE(s, of_conn);
    s->c->n_streams--;
    s->c->n_done -= s->has_out && s->out_done;
    free(s);
}

/* ---------------------------------------------------------------- the end */

/* For the trailers. */
static void note_reply(struct grpc_stream *s, const struct grpc_call *c)
{
    const struct api_reply *p = &c->q.reply;

    s->retry_after_ms = p->retry_after_ms;
    memcpy(s->timing, p->timing, sizeof(s->timing));
    memcpy(s->rate, p->rate, sizeof(s->rate));
    memcpy(s->rate_policy, p->rate_policy, sizeof(s->rate_policy));
    memcpy(s->request_id, c->q.request_id, sizeof(s->request_id));
    free(s->problem);
    s->problem = p->problem ? json_dumps(p->problem, JSON_COMPACT | JSON_ENSURE_ASCII) : NULL;
}

void stream_fail(struct grpc_stream *s, int rc, int http, const char *msg)
{
    if (s->ending)
        return;
    grpc_put_message(&s->message, msg, NULL); /* it may be the call's */
    if (s->call && s->call->asleep) {         /* somebody else has it */
        call_abandon(s->call);
    } else if (s->call) {
        note_reply(s, s->call);
        call_settle(s->call, rc);
        call_free(s->call);
        s->call = NULL;
    }
    drop_held(s); /* nobody wants it any more */
    s->rc = rc;
    s->status = grpc_status_of(rc, http);
    h2_end(s);
}

/* ---------------------------------------------------------------- answers */

static int lay_out(struct grpc_out *o, const size_t *ends, const struct iovec *parts,
                   size_t n_parts, struct sh_err *err)
{
    size_t at = 0;

    o->iov = calloc(2 * n_parts + 1, sizeof(*o->iov));
    if (!o->iov)
        return SH_FAIL(err, SH_E_NOMEM, "could not allocate an answer");
    for (size_t i = 0; i < n_parts; i++) {
        o->iov[o->n++] = (struct iovec){o->text.data + at, ends[i] - at};
        o->iov[o->n++] = parts[i];
        at = ends[i];
    }
    if (at < o->text.len)
        o->iov[o->n++] = (struct iovec){o->text.data + at, o->text.len - at};
    return SH_OK;
}

static int make_json_answer(const struct grpc_call *c, struct sh_buf *text, struct sh_err *err)
{
    unsigned char prefix[FRAME_PREFIX] = {0};
    int rc = sh_buf_append(text, prefix, sizeof(prefix), err);

    if (!rc)
        rc = method_write(c->method, c->q.reply.body, text, err);
    if (!rc && text->len - FRAME_PREFIX > UINT32_MAX)
        rc = SH_FAIL(err, SH_E_TOOBIG, "the answer is larger than a message can be");
    if (!rc)
        frames_put_prefix((unsigned char *)text->data, (uint32_t)(text->len - FRAME_PREFIX));
    return rc;
}

/* rc: the call's. Of a stream of inferences a failure is an answer too. */
static int make_answer(struct grpc_stream *s, int rc, const char *msg, struct sh_err *err)
{
    struct api_reply *p = &s->call->q.reply;
    struct grpc_out *o = &s->out;
    size_t ends[CAT_MAX_IO] = {0};

    sh_buf_init(&o->text, SIZE_MAX / 2);
    if (rc)
        rc = tensors_answer_failure(msg, &o->text, err);
    else if (s->method->kind == CALL_JSON)
        rc = make_json_answer(s->call, &o->text, err);
    else
        rc = tensors_answer(s->method, p->head, p->head_len, p->n_parts, &o->text, ends, err);
    if (!rc)
        rc = lay_out(o, ends, p->parts, o->text.len > 0 ? p->n_parts : 0, err);
    if (rc) {
        out_fini(o);
        return rc;
    }
    o->release = p->release;
    o->owner = p->owner;
    p->release = NULL;
    s->has_out = true;
    s->out_done = false;
    s->out_ns = s->out_begin_ns = sh_clock_ns();
    s->out_bytes = 0;
    return SH_OK;
}

/* A call of an inference fails by itself if its message was read; the stream goes on. */
static bool is_answer(const struct grpc_stream *s, bool was_whole)
{
    return s->method->kind == CALL_STREAM && was_whole;
}

static void call_done(struct grpc_stream *s, int rc)
{
    struct grpc_call *c = s->call;
    bool within = is_answer(s, frames_is_whole(&c->frames));
    struct sh_err err = {0};
    int made;

    if (rc && !within) {
        stream_fail(s, rc, c->q.reply.status, c->err.msg[0] ? c->err.msg : sh_rc_text(rc));
        return;
    }
    call_settle(c, rc);
    note_reply(s, c);
    made = make_answer(s, rc, c->err.msg[0] ? c->err.msg : sh_rc_text(rc), &err);
    if (made) {
        stream_fail(s, made, 0, err.msg);
        return;
    }
    s->ending = s->method->kind != CALL_STREAM;
    h2_answer(s);
}

void stream_sent(struct grpc_stream *s)
{
    out_fini(&s->out);
    s->has_out = s->out_done = false;
    s->c->had_call = true;
    call_free(s->call);
    s->call = NULL;
    stream_pump(s);
}

/* ---------------------------------------------------------------- messages */

static int take_held(struct grpc_stream *s, bool *moved)
{
    struct grpc_call *c = s->call;
    size_t taken = 0;
    int rc = SH_OK;

    *moved = false;
    if (c->phase != CALL_MESSAGE || s->held.len == 0)
        return SH_OK;
    rc = call_take(c, s->held.data, s->held.len, &taken);
    if (taken > 0) {
        memmove(s->held.data, s->held.data + taken, s->held.len - taken);
        s->held.len -= taken;
        nghttp2_session_consume(s->c->session, s->id, taken);
        count_held(s);
        *moved = true;
    }
    if (!rc && !s->is_wide && frames_has_size(&c->frames) && c->frames.bytes > FIRST_WINDOW / 2) {
        s->is_wide = true;
        nghttp2_session_set_local_window_size(s->c->session, NGHTTP2_FLAG_NONE, s->id,
                                              GRPC_STREAM_WINDOW);
    }
    return rc;
}

/* The client sends no more, and the call waits for a message. */
static void no_message(struct grpc_stream *s)
{
    bool begun = frames_is_begun(&s->call->frames);

    if (!begun && s->method->kind == CALL_STREAM) {
        call_free(s->call);
        s->call = NULL;
        s->status = GRPC_OK;
        h2_end(s);
        return;
    }
    stream_fail(s, SH_E_INVALID, 0,
                begun ? "the client ended the stream within a message"
                      : "the client ended the stream without a message");
}

static int next_call(struct grpc_stream *s)
{
    struct sh_err err = {0};
    int rc = call_new(s, &s->call, &err);

    if (rc)
        stream_fail(s, rc, 0, err.msg);
    return rc;
}

void stream_pump(struct grpc_stream *s)
{
    bool moved;
    int rc;

    while (!s->ending && !s->has_out) {
        if (!s->call && next_call(s))
            return;
        if (s->call->asleep)
            return;
        rc = take_held(s, &moved);
        if (!rc)
            rc = call_advance(s->call);
        if (rc != API_WAIT) {
            call_done(s, rc);
            continue;
        }
        if (s->call->phase != CALL_MESSAGE || s->call->asleep)
            return;
        if (moved || s->held.len > 0)
            continue;
        if (s->got_end)
            no_message(s);
        return;
    }
}

void stream_data(struct grpc_stream *s, const void *data, size_t n)
{
    struct sh_err err = {0};
    int rc;

    if (s->ending) { /* nobody wants it any more */
        nghttp2_session_consume(s->c->session, s->id, n);
        return;
    }
    if (sh_buf_append(&s->held, data, n, NULL)) {
        nghttp2_session_consume(s->c->session, s->id, n);
        stream_fail(s, SH_E_NOMEM, 0, "could not allocate what the client sends");
        return;
    }
    stream_pump(s);
    /* Until a key was seen, a connection has a small window for all that its streams may hold. */
    if (!s->tenant[0] || s->held.len <= s->held_count.bytes)
        return;
    rc = slab_count(s->c->t->g->api->slab, &s->held_count, s->tenant, s->held.len, &err);
    if (rc)
        stream_fail(s, rc, 0, err.msg);
}

/* ---------------------------------------------------------------- the beginning */

static int check_head(struct grpc_stream *s, struct sh_err *err)
{
    const char *path = s->head[HEAD_PATH] ? s->head[HEAD_PATH] : "";
    int64_t ns = 0;
    int rc = SH_OK;

    if (s->head_bytes > GRPC_HEADER_BYTES)
        return SH_FAIL(err, SH_E_TOOBIG, "the headers have more than %zu bytes", GRPC_HEADER_BYTES);
    if (s->twice)
        return SH_FAIL(err, SH_E_INVALID, "a header that counts came more than once");
    s->method = method_find(path);
    if (!s->method)
        return SH_FAIL(err, SH_E_METHOD, "there is no method \"%.128s\" here", path);
    if (s->head[HEAD_TIMEOUT])
        rc = grpc_parse_timeout(s->head[HEAD_TIMEOUT], &ns, err);
    if (!rc && s->head[HEAD_TIMEOUT])
        s->deadline_ns = ns > INT64_MAX - s->begin_ns ? INT64_MAX : s->begin_ns + SH_MAX(ns, 1);
    if (!rc && s->head[HEAD_ENCODING]) {
        bool packed;

        if (coding_check(s->head[HEAD_ENCODING], &packed, NULL))
            rc = SH_FAIL(err, SH_E_UNSUPPORTED,
                         "grpc-encoding \"%.32s\" is not supported; use gzip or deflate, or send "
                         "messages as they are",
                         s->head[HEAD_ENCODING]);
    }
    if (!rc && atomic_load(&s->c->t->g->quiesced))
        rc = SH_FAIL(err, SH_E_UNAVAILABLE, "this server is shutting down; try another one");
    return rc;
}

void stream_begin(struct grpc_stream *s)
{
    static const char TYPE[] = "application/grpc";
    const char *type = s->head[HEAD_TYPE], *verb = s->head[HEAD_METHOD];
    struct sh_err err = {0};
    int rc;

    s->is_begun = s->c->is_used = true;
    if (!verb || strcmp(verb, "POST") != 0) {
        h2_refuse(s, "405");
        return;
    }
    if (!type || strncasecmp(type, TYPE, sizeof(TYPE) - 1) != 0 ||
        (type[sizeof(TYPE) - 1] && !strchr("+;", type[sizeof(TYPE) - 1]))) {
        h2_refuse(s, "415");
        return;
    }
    rc = check_head(s, &err);
    if (rc)
        stream_fail(s, rc, 0, err.msg);
    else
        stream_pump(s);
}

/* ---------------------------------------------------------------- limits of time */

bool stream_waits(const struct grpc_stream *s)
{
    const struct grpc_call *c = s->call;

    if (s->ending || s->has_out) /* the client is to be told something */
        return false;
    return !c || (c->phase <= CALL_MESSAGE && !c->asleep && !frames_is_begun(&c->frames));
}

/* A client that opens the window of an answer by a few bytes now and then keeps what it holds. */
static bool is_read_slowly(const struct grpc_stream *s, int64_t now)
{
    return nghttp2_session_get_stream_remote_window_size(s->c->session, s->id) <= 0 &&
           conn_is_slow(s->c, s->out_begin_ns, s->out_bytes, now);
}

void stream_sweep(struct grpc_stream *s, int64_t now)
{
    const struct api_conf *conf = s->c->t->g->api->conf;
    const struct grpc_call *c = s->call;

    if (!s->is_begun && now - s->begin_ns > SH_S(SH_CONF_NOW(conf->header_timeout_s))) {
        s->c->dead = true; /* no other frame may come before their end */
        return;
    }
    if (s->has_out && !s->out_done &&
        (now - s->out_ns > SH_S(conf->idle_timeout_s) || is_read_slowly(s, now))) {
        nghttp2_submit_rst_stream(s->c->session, NGHTTP2_FLAG_NONE, s->id, NGHTTP2_CANCEL);
        return;
    }
    if (!c || c->phase != CALL_MESSAGE)
        return;
    if (s->deadline_ns && now > s->deadline_ns)
        stream_fail(s, SH_E_TIMEOUT, 0, "the call's deadline has passed");
    else if (frames_is_begun(&c->frames) && conn_is_slow(s->c, c->slow_ns, c->frames.got, now))
        stream_fail(s, SH_E_TIMEOUT, 0, "the message comes too slowly");
    else if (!frames_is_begun(&c->frames) && c->method->kind != CALL_STREAM &&
             now - s->begin_ns > SH_S(SH_CONF_NOW(conf->upload_grace_s)))
        stream_fail(s, SH_E_TIMEOUT, 0, "no message has come");
}
