/* grpc_session.c - the HTTP/2 session of a connection: the library's callbacks, and what we send.
 *
 * The library never sees the socket. It gets bytes and gives bytes (grpc_conn.c); it checks frames,
 * keeps windows and ends a connection that breaks the protocol or floods it. A callback may free a
 * stream only when the library closes it.
 */
#include "api/api.h"
#include "api/grpc/grpc_int.h"
#include "common/clock.h"
#include "common/mem.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_TRAILERS 10u
#define CUT_AT (4 * GRPC_HEADER_BYTES) /* more is not even told what is wrong with it */
#define STRANGER_STREAMS INT64_C(16)

/* ---------------------------------------------------------------- what comes in */

static struct grpc_stream *stream_of(nghttp2_session *session, int32_t id)
{
    return nghttp2_session_get_stream_user_data(session, id);
}

static int on_begin_headers(nghttp2_session *session, const nghttp2_frame *frame, void *arg)
{
    struct grpc_stream *s;

    if (frame->hd.type != NGHTTP2_HEADERS || frame->headers.cat != NGHTTP2_HCAT_REQUEST)
        return 0;
    s = stream_new(arg, frame->hd.stream_id);
    if (!s)
        return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
    nghttp2_session_set_stream_user_data(session, frame->hd.stream_id, s);
    return 0;
}

/* OWNED; without blanks around it. */
static char *copy_value(const char *value, size_t n)
{
    for (; n > 0 && strchr(" \t", value[n - 1]); n--)
        ;
    for (; n > 0 && strchr(" \t", *value); n--)
        value++;
    return strndup(value, n);
}

static int on_header(nghttp2_session *session, const nghttp2_frame *frame, const uint8_t *name,
                     size_t name_len, const uint8_t *value, size_t value_len, uint8_t flags,
                     void *arg)
{
    static const char *const NAMES[GRPC_N_HEADS] = {
        [HEAD_PATH] = ":path",
        [HEAD_METHOD] = ":method",
        [HEAD_TYPE] = "content-type",
        [HEAD_AUTH] = "authorization",
        [HEAD_ID] = "x-request-id",
        [HEAD_TRACE] = "traceparent",
        [HEAD_TIMEOUT] = "grpc-timeout",
        [HEAD_TENANT] = "shunt-tenant",
        [HEAD_SESSION] = "shunt-session",
        [HEAD_ENCODING] = "grpc-encoding",
    };
    struct grpc_stream *s = stream_of(session, frame->hd.stream_id);

    (void)flags;
    (void)arg;
    if (!s || s->is_begun) /* trailers of a client say nothing */
        return 0;
    s->head_bytes += name_len + value_len + 32; /* as HTTP/2 counts */
    if (s->head_bytes > CUT_AT) /* a few bytes can stand for a long header, which is checked */
        return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
    for (size_t i = 0; i < GRPC_N_HEADS && s->head_bytes <= GRPC_HEADER_BYTES; i++) {
        if (strlen(NAMES[i]) != name_len || memcmp(NAMES[i], name, name_len) != 0)
            continue;
        if (s->head[i]) {
            s->twice |= i != HEAD_TRACE;
            continue;
        }
        s->head[i] = copy_value((const char *)value, value_len);
        if (!s->head[i])
            return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
    }
    return 0;
}

static int on_frame(nghttp2_session *session, const nghttp2_frame *frame, void *arg)
{
    struct grpc_stream *s;

    (void)arg;
    if (frame->hd.type != NGHTTP2_HEADERS && frame->hd.type != NGHTTP2_DATA)
        return 0;
    s = stream_of(session, frame->hd.stream_id);
    if (!s)
        return 0;
    if (frame->hd.flags & NGHTTP2_FLAG_END_STREAM)
        s->got_end = true;
    if (!s->is_begun)
        stream_begin(s);
    else if (s->got_end)
        stream_pump(s);
    return 0;
}

static int on_data(nghttp2_session *session, uint8_t flags, int32_t id, const uint8_t *data,
                   size_t n, void *arg)
{
    struct grpc_stream *s = stream_of(session, id);

    (void)flags;
    (void)arg;
    if (s)
        stream_data(s, data, n);
    else
        nghttp2_session_consume(session, id, n);
    return 0;
}

static int on_close(nghttp2_session *session, int32_t id, uint32_t why, void *arg)
{
    struct grpc_stream *s = stream_of(session, id);

    (void)why;
    (void)arg;
    if (s) {
        nghttp2_session_set_stream_user_data(session, id, NULL);
        stream_del(s);
    }
    return 0;
}

/* Answered before the client has sent all: it may stop. */
static int on_sent(nghttp2_session *session, const nghttp2_frame *frame, void *arg)
{
    struct grpc_stream *s;

    (void)arg;
    if (frame->hd.type != NGHTTP2_HEADERS || !(frame->hd.flags & NGHTTP2_FLAG_END_STREAM))
        return 0;
    s = stream_of(session, frame->hd.stream_id);
    if (s && !s->got_end)
        nghttp2_submit_rst_stream(session, NGHTTP2_FLAG_NONE, s->id, NGHTTP2_NO_ERROR);
    return 0;
}

/* ---------------------------------------------------------------- what goes out */

#define NV(name_, value_)                                  \
    ((nghttp2_nv){.name = (uint8_t *)(uintptr_t)(name_),   \
                  .value = (uint8_t *)(uintptr_t)(value_), \
                  .namelen = strlen(name_),                \
                  .valuelen = strlen(value_)})

#define CODINGS NV("grpc-accept-encoding", "identity,deflate,gzip")

struct trailers {
    nghttp2_nv nv[MAX_TRAILERS];
    size_t n;
    char status[8], retry[24];
};

static void add_trailer(struct trailers *t, const char *name, const char *value)
{
    if (value && value[0] && t->n < MAX_TRAILERS)
        t->nv[t->n++] = NV(name, value);
}

static void fill_trailers(const struct grpc_stream *s, struct trailers *t)
{
    bool again = s->status == GRPC_RESOURCE_EXHAUSTED || s->status == GRPC_UNAVAILABLE;

    snprintf(t->status, sizeof(t->status), "%d", (int)s->status);
    add_trailer(t, "grpc-status", t->status);
    add_trailer(t, "grpc-message", s->message.data);
    add_trailer(t, "shunt-code", s->rc ? sh_rc_name(s->rc) : NULL);
    add_trailer(t, "shunt-problem", s->problem);
    if (again && sh_rc_retry(s->rc) && s->retry_after_ms != API_NO_RETRY) {
        int64_t ms = s->retry_after_ms > 0 ? s->retry_after_ms : 1000;

        snprintf(t->retry, sizeof(t->retry), "%" PRId64, (ms + 999) / 1000);
        add_trailer(t, "retry-after", t->retry);
    }
    add_trailer(t, "ratelimit", s->rate);
    add_trailer(t, "ratelimit-policy", s->rate_policy);
    add_trailer(t, "server-timing", s->timing);
}

static size_t out_copy(struct grpc_out *o, uint8_t *to, size_t max)
{
    size_t n = 0;

    while (n < max && o->at < o->n) {
        const struct iovec *v = &o->iov[o->at];
        size_t part = SH_MIN(max - n, v->iov_len - o->off);

        memcpy(to + n, (const char *)v->iov_base + o->off, part);
        n += part;
        o->off += part;
        if (o->off == v->iov_len) {
            o->at++;
            o->off = 0;
        }
    }
    return n;
}

static ssize_t on_read(nghttp2_session *session, int32_t id, uint8_t *buf, size_t max,
                       uint32_t *flags, nghttp2_data_source *source, void *arg)
{
    struct grpc_stream *s = source->ptr;
    struct trailers t = {.n = 0};
    size_t n = 0;

    (void)arg;
    if (s->has_out && !s->out_done) {
        n = out_copy(&s->out, buf, max);
        s->out_ns = sh_clock_ns();
        s->out_bytes += n;
        s->c->sent += n;
        if (s->out.at == s->out.n) {
            s->out_done = true;
            s->c->n_done++;
        }
    }
    if (s->ending && (!s->has_out || s->out_done)) {
        *flags |= NGHTTP2_DATA_FLAG_EOF | NGHTTP2_DATA_FLAG_NO_END_STREAM;
        fill_trailers(s, &t);
        if (nghttp2_submit_trailer(session, id, t.nv, t.n))
            return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
        return (ssize_t)n;
    }
    return n > 0 ? (ssize_t)n : NGHTTP2_ERR_DEFERRED;
}

static void reset(struct grpc_stream *s)
{
    s->ending = true;
    nghttp2_submit_rst_stream(s->c->session, NGHTTP2_FLAG_NONE, s->id, NGHTTP2_INTERNAL_ERROR);
}

static void send_head(struct grpc_stream *s)
{
    nghttp2_data_provider from = {.source.ptr = s, .read_callback = on_read};
    nghttp2_nv nv[4] = {NV(":status", "200"), NV("content-type", "application/grpc"), CODINGS};
    size_t n = 3;

    if (s->request_id[0])
        nv[n++] = NV("x-request-id", s->request_id);
    s->answered = true;
    if (nghttp2_submit_response(s->c->session, s->id, nv, n, &from))
        reset(s);
}

void h2_answer(struct grpc_stream *s)
{
    if (!s->answered)
        send_head(s);
    else
        nghttp2_session_resume_data(s->c->session, s->id);
}

/* Nothing was sent yet: the trailers are the headers. */
static void send_failure(struct grpc_stream *s)
{
    struct trailers t = {.n = 0};
    nghttp2_nv nv[MAX_TRAILERS + 4] = {NV(":status", "200"), NV("content-type", "application/grpc"),
                                       CODINGS};
    size_t n = 3;

    if (s->request_id[0])
        nv[n++] = NV("x-request-id", s->request_id);
    fill_trailers(s, &t);
    memcpy(nv + n, t.nv, t.n * sizeof(t.nv[0]));
    s->answered = true;
    if (nghttp2_submit_response(s->c->session, s->id, nv, n + t.n, NULL))
        reset(s);
}

void h2_end(struct grpc_stream *s)
{
    s->ending = true;
    if (!s->answered)
        send_failure(s);
    else
        nghttp2_session_resume_data(s->c->session, s->id);
}

void h2_refuse(struct grpc_stream *s, const char *status)
{
    nghttp2_nv nv[] = {NV(":status", status), NV("content-length", "0")};

    s->ending = s->answered = true;
    if (nghttp2_submit_response(s->c->session, s->id, nv, SH_ARRAY_LEN(nv), NULL))
        reset(s);
}

/* ---------------------------------------------------------------- life */

int h2_limits(struct grpc_conn *c)
{
    const int64_t streams = c->t->g->api->conf->grpc_streams;
    const int64_t most = c->peer.is_known ? streams : SH_MIN(streams, STRANGER_STREAMS);
    const nghttp2_settings_entry limits[] = {
        {NGHTTP2_SETTINGS_MAX_CONCURRENT_STREAMS, (uint32_t)most},
        {NGHTTP2_SETTINGS_MAX_HEADER_LIST_SIZE, (uint32_t)GRPC_HEADER_BYTES},
    };

    return nghttp2_submit_settings(c->session, NGHTTP2_FLAG_NONE, limits, SH_ARRAY_LEN(limits));
}

int h2_new(struct grpc_conn *c, struct sh_err *err)
{
    nghttp2_session_callbacks *calls = NULL;
    nghttp2_option *option = NULL;
    int e = nghttp2_session_callbacks_new(&calls);

    if (!e)
        e = nghttp2_option_new(&option);
    if (!e) {
        nghttp2_option_set_no_auto_window_update(option, 1);
        /* perf_analyzer sends such: all that is behind the colon, with the blank. */
        nghttp2_option_set_no_rfc9113_leading_and_trailing_ws_validation(option, 1);
        nghttp2_session_callbacks_set_on_begin_headers_callback(calls, on_begin_headers);
        nghttp2_session_callbacks_set_on_header_callback(calls, on_header);
        nghttp2_session_callbacks_set_on_frame_recv_callback(calls, on_frame);
        nghttp2_session_callbacks_set_on_data_chunk_recv_callback(calls, on_data);
        nghttp2_session_callbacks_set_on_stream_close_callback(calls, on_close);
        nghttp2_session_callbacks_set_on_frame_send_callback(calls, on_sent);
        e = nghttp2_session_server_new2(&c->session, calls, c, option);
    }
    if (!e)
        e = h2_limits(c);
    nghttp2_option_del(option);
    nghttp2_session_callbacks_del(calls);
    return e ? SH_FAIL(err, SH_E_NOMEM, "could not allocate an HTTP/2 session") : SH_OK;
}
