/* http_reply.c - the one place that turns (rc, err, reply) into an HTTP response. */
#include "api/api.h"
#include "api/http/coding.h"
#include "api/http/cors.h"
#include "api/http/http_int.h"
#include "api/http/http_tls.h"
#include "api/request/contract.h"
#include "common/log.h"
#include "common/mem.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>

#define MAX_FLAT ((size_t)64 << 10) /* a copy of so much costs less than one more call */

#define MIN_PACKED ((size_t)2 << 10)
#define MAX_PACKED ((size_t)512 << 10)

struct raw { /* what a raw response owns until its last byte is sent */
    char *head;
    struct iovec *parts;
    void (*release)(void *owner);
    void *owner;
};

static void raw_free(void *cls)
{
    struct raw *w = cls;

    if (!w)
        return;
    if (w->release)
        w->release(w->owner);
    free(w->head);
    free(w->parts);
    free(w);
}

static bool is_v2(const struct http_req *r)
{
    return r->raw_uri && strncmp(r->raw_uri, "/v2", 3) == 0;
}

/* The whole document of a failure. *out: OWNED, json_decref(). */
static int problem(const struct http_req *r, int status, json_t **out, struct sh_err *err)
{
    const struct api_reply *p = &r->q.reply;
    const char *code = sh_rc_name(r->rc);
    char type[64];

    snprintf(type, sizeof(type), "urn:shunt:error:%s", code);
    *out = json_pack("{s:s, s:s, s:i, s:s, s:s, s:s, s:s}", "type", type, "title",
                     sh_rc_text(r->rc), "status", status, "detail", r->err.msg, "code", code,
                     "error", r->err.msg, "request_id", r->q.request_id);
    if (!*out || (p->problem && json_object_update_missing(*out, p->problem)) ||
        (r->rc == SH_E_INVALID && p->faults.list &&
         json_object_set(*out, "errors", p->faults.list)))
        return SH_FAIL(err, SH_E_NOMEM, "could not allocate a problem document");
    return SH_OK;
}

/* Head and parts in one piece: the library sends it together with the headers, in one call. */
static int flat_response(struct http_req *r, struct MHD_Response **out)
{
    struct api_reply *p = &r->q.reply;
    char *all = realloc(p->head, r->reply_bytes), *to;

    *out = NULL;
    if (!all)
        return SH_E_NOMEM;
    p->head = all;
    to = all + p->head_len;
    for (size_t i = 0; i < p->n_parts; i++)
        to = (char *)memcpy(to, p->parts[i].iov_base, p->parts[i].iov_len) + p->parts[i].iov_len;
    *out = MHD_create_response_from_buffer(r->reply_bytes, all, MHD_RESPMEM_MUST_FREE);
    if (!*out)
        return SH_E_NOMEM;
    p->head = NULL;
    return SH_OK;
}

static int iovec_response(struct http_req *r, struct MHD_Response **out)
{
    struct api_reply *p = &r->q.reply;
    struct MHD_IoVec *iov = calloc(p->n_parts + 1, sizeof(*iov));
    struct raw *w = calloc(1, sizeof(*w));

    *out = NULL;
    if (iov && w) {
        *w = (struct raw){p->head, p->parts, p->release, p->owner};
        iov[0] = (struct MHD_IoVec){p->head, p->head_len};
        for (size_t i = 0; i < p->n_parts; i++)
            iov[i + 1] = (struct MHD_IoVec){p->parts[i].iov_base, p->parts[i].iov_len};
        *out = MHD_create_response_from_iovec(iov, (unsigned)p->n_parts + 1, raw_free, w);
    }
    free(iov);
    if (!*out) {
        free(w);
        return SH_E_NOMEM;
    }
    /* Moved into the response. */
    p->head = NULL;
    p->parts = NULL;
    p->release = NULL;
    return SH_OK;
}

static int raw_response(struct http_req *r, struct MHD_Response **out)
{
    struct api_reply *p = &r->q.reply;
    char head_len[24];
    int rc;

    snprintf(head_len, sizeof(head_len), "%zu", p->head_len);
    r->reply_bytes = p->head_len;
    for (size_t i = 0; i < p->n_parts; i++)
        r->reply_bytes += p->parts[i].iov_len;
    if (r->reply_bytes > MAX_FLAT)
        http_thread_settle(r->thread);
    rc = r->reply_bytes <= MAX_FLAT ? flat_response(r, out) : iovec_response(r, out);
    if (rc)
        return rc;
    if (p->binary)
        MHD_add_response_header(*out, "Inference-Header-Content-Length", head_len);
    MHD_add_response_header(*out, "Content-Type",
                            p->binary ? "application/octet-stream" : "application/json");
    return SH_OK;
}

/* Of a list, which has no ETag that would be another one then; where it pays, and does not keep the
 * thread from others for long. */
static void pack_list(struct http_req *r, char **text)
{
    char *packed = NULL;
    size_t n = 0;

    if (r->rc || !r->q.route || !(r->q.route->flags & ROUTE_LIST))
        return;
    r->q.reply.varies = true;
    if (r->reply_bytes < MIN_PACKED || r->reply_bytes > MAX_PACKED ||
        !coding_accepts_gzip(r->q.h.accept_encoding) ||
        coding_gzip(*text, r->reply_bytes, 1, &packed, &n, NULL))
        return;
    free(*text);
    *text = packed;
    r->reply_bytes = n;
    r->q.reply.is_packed = true;
}

static int json_response(struct http_req *r, const json_t *body, const char *type,
                         struct MHD_Response **out)
{
    char *text = json_dumps(body, JSON_COMPACT | JSON_ENCODE_ANY);

    r->reply_bytes = text ? strlen(text) : 0;
    if (text)
        pack_list(r, &text);
    *out =
        text ? MHD_create_response_from_buffer(r->reply_bytes, text, MHD_RESPMEM_MUST_FREE) : NULL;
    if (!*out) {
        free(text);
        return SH_E_NOMEM;
    }
    MHD_add_response_header(*out, "Content-Type", type);
    return SH_OK;
}

static const char *problem_type(const struct http_req *r)
{
    return is_v2(r) ? "application/json" : "application/problem+json";
}

static int problem_response(struct http_req *r, int status, struct MHD_Response **out)
{
    json_t *body = NULL;
    int rc = problem(r, status, &body, NULL);

    *out = NULL;
    if (!rc)
        rc = json_response(r, body, problem_type(r), out);
    json_decref(body);
    return rc;
}

static int text_response(struct http_req *r, struct MHD_Response **out)
{
    const struct api_reply *p = &r->q.reply;

    r->reply_bytes = p->text ? p->text_n : 0;
    *out = MHD_create_response_from_buffer(r->reply_bytes, (void *)(p->text ? p->text : ""),
                                           MHD_RESPMEM_PERSISTENT);
    if (!*out)
        return SH_E_NOMEM;
    if (p->text)
        MHD_add_response_header(*out, "Content-Type", p->text_type);
    return SH_OK;
}

/* On an HTTP thread. Suspending here is allowed, and going on with nothing would be a busy loop;
 * the wake-up is that of a handler that waits (http.c). */
static ssize_t on_stream_read(void *cls, uint64_t pos, char *buf, size_t max)
{
    struct http_req *r = cls;
    const struct api_stream *s = &r->q.reply.stream;
    ssize_t n;

    (void)pos;
    atomic_store(&r->wake, WAKE_NONE);
    n = s->read(s->owner, buf, max);
    if (n < 0)
        return MHD_CONTENT_READER_END_OF_STREAM;
    if (n > 0)
        return n;
    http_fall_asleep(r);
    return 0;
}

static int stream_response(struct http_req *r, struct MHD_Response **out)
{
    /* The request outlives its response: http_on_done() closes the stream. */
    *out = MHD_create_response_from_callback(MHD_SIZE_UNKNOWN, 4096, on_stream_read, r, NULL);
    if (!*out)
        return SH_E_NOMEM;
    MHD_add_response_header(*out, "Content-Type", "text/event-stream");
    return SH_OK;
}

/* A key is in a header that the page sets by itself: a browser adds nothing that would count. */
static void add_cors(const struct http_req *r, struct MHD_Response *resp, int status)
{
    static const char SENT[] =
        "Authorization, Accept, Content-Type, Content-Encoding, Content-Digest, Content-Range, "
        "Idempotency-Key, If-Match, If-None-Match, If-Range, Inference-Header-Content-Length, "
        "Last-Event-ID, Range, Shunt-Session, X-Request-ID";
    static const char SHOWN[] =
        "Content-Range, ETag, Idempotency-Replayed, Inference-Header-Content-Length, Location, "
        "RateLimit, RateLimit-Policy, Retry-After, Server-Timing, X-Request-ID";
    const char *origins = r->http->api->conf->cors_origins, *origin = r->q.h.origin;

    if (!origins[0])
        return;
    MHD_add_response_header(resp, "Vary", "Origin");
    if (!cors_allows(origins, origin))
        return;
    MHD_add_response_header(resp, "Access-Control-Allow-Origin", origin);
    MHD_add_response_header(resp, "Access-Control-Expose-Headers", SHOWN);
    if (status != 204 || strcmp(r->q.method, "OPTIONS") != 0)
        return;
    MHD_add_response_header(resp, "Access-Control-Allow-Methods", r->q.reply.allow);
    MHD_add_response_header(resp, "Access-Control-Allow-Headers", SENT);
    MHD_add_response_header(resp, "Access-Control-Max-Age", "600");
}

static void add_reply_headers(struct http_req *r, struct MHD_Response *resp, int status)
{
    const struct api_reply *p = &r->q.reply;
    char text[32];

    if (r->q.request_id[0])
        MHD_add_response_header(resp, "X-Request-ID", r->q.request_id);
    if (status == 401)
        MHD_add_response_header(resp, "WWW-Authenticate", "Bearer realm=\"shunt\"");
    if (r->closes)
        MHD_add_response_header(resp, "Connection", "close");
    if (p->allow[0])
        MHD_add_response_header(resp, "Allow", p->allow);
    if (p->timing[0])
        MHD_add_response_header(resp, "Server-Timing", p->timing);
    if (p->replayed)
        MHD_add_response_header(resp, "Idempotency-Replayed", "true");
    if (p->location[0])
        MHD_add_response_header(resp, "Location", p->location);
    if (p->etag[0]) {
        MHD_add_response_header(resp, "ETag", p->etag);
        if (r->q.route->flags & ROUTE_FILE)
            MHD_add_response_header(resp, "Accept-Ranges", "bytes");
    }
    if (p->is_packed && !r->rc)
        MHD_add_response_header(resp, "Content-Encoding", "gzip");
    if (p->policy && !r->rc) {
        MHD_add_response_header(resp, "Content-Security-Policy", p->policy);
        MHD_add_response_header(resp, "X-Content-Type-Options", "nosniff");
        MHD_add_response_header(resp, "Referrer-Policy", "no-referrer");
        MHD_add_response_header(resp, "Cross-Origin-Opener-Policy", "same-origin");
    }
    if (p->varies)
        MHD_add_response_header(resp, "Vary", "Accept-Encoding");
    if (status == 415)
        MHD_add_response_header(resp, "Accept-Encoding", CODING_TAKEN);
    if (p->content_range[0])
        MHD_add_response_header(resp, "Content-Range", p->content_range);
    if (p->row_version > 0 && !r->rc) {
        snprintf(text, sizeof(text), "\"%" PRId64 "\"", p->row_version);
        MHD_add_response_header(resp, "ETag", text);
    }
    if (p->rate_policy[0]) {
        MHD_add_response_header(resp, "RateLimit-Policy", p->rate_policy);
        MHD_add_response_header(resp, "RateLimit", p->rate);
    }
    if ((status == 429 || status == 503) && p->retry_after_ms != API_NO_RETRY) {
        int64_t ms = p->retry_after_ms > 0 ? p->retry_after_ms : 1000;

        snprintf(text, sizeof(text), "%" PRId64, (ms + 999) / 1000);
        MHD_add_response_header(resp, "Retry-After", text);
    }
    if (!is_v2(r))
        MHD_add_response_header(resp, "Cache-Control",
                                p->etag[0] && !r->rc ? "private, no-cache" : "no-store");
}

static void log_reply(const struct http_req *r, int status)
{
    char uri[160];

    if (r->q.route && r->rc != SH_E_CANCELLED && !route_answers(r->q.route, status))
        SH_WARN("http.undescribed", "method=%s route=%s status=%d request=%s", r->q.method,
                r->q.route->path, status, r->q.request_id);
    if (status >= 500 && status != 503 && status != 504) {
        SH_ERROR("http.failed", "method=%s uri=\"%s\" status=%d request=%s", r->q.method,
                 sh_log_quote(r->raw_uri, uri, sizeof(uri)), status, r->q.request_id);
        sh_log_err(SH_LOG_ERROR, "http.cause", &r->err);
    } else {
        SH_DEBUG("http.reply", "method=%s uri=\"%s\" status=%d code=%s request=%s", r->q.method,
                 sh_log_quote(r->raw_uri, uri, sizeof(uri)), status, sh_rc_name(r->rc),
                 r->q.request_id);
    }
}

/* Small beside what the socket takes at once, and nothing else is on its way. */
static void send_past(struct http_req *r, const char *text, size_t n)
{
    const union MHD_ConnectionInfo *fd =
        MHD_get_connection_info(r->conn, MHD_CONNECTION_INFO_CONNECTION_FD);

    if (!fd)
        return;
    if (r->http->tls)
        tls_send_last(r->conn, text, n);
    else if (send(fd->connect_fd, text, n, MSG_NOSIGNAL | MSG_DONTWAIT) < 0)
        SH_DEBUG("http.reply", "msg=\"could not be sent\"");
    shutdown(fd->connect_fd, SHUT_WR);
    conns_linger(&r->http->conns, r->tcp);
}

void http_reply_past(struct http_req *r)
{
    int status = sh_rc_http(r->rc);
    json_t *body = NULL;
    char *json = NULL, *text = NULL;
    int rc = req_make_id(&r->q, NULL);

    if (!rc)
        rc = problem(r, status, &body, NULL);
    if (!rc)
        rc = sh_json_dump(body, &json, NULL);
    if (!rc)
        rc = sh_asprintf(NULL, &text,
                         "HTTP/1.1 %d %s\r\nConnection: close\r\nContent-Type: %s\r\n"
                         "X-Request-ID: %s\r\nCache-Control: no-store\r\nContent-Length: %zu\r\n"
                         "\r\n%s",
                         status, MHD_get_reason_phrase_for((unsigned)status), problem_type(r),
                         r->q.request_id, strlen(json), json);
    if (!rc)
        send_past(r, text, strlen(text));
    free(text);
    free(json);
    json_decref(body);
}

enum MHD_Result http_reply_send(struct http_req *r)
{
    struct api_reply *p = &r->q.reply;
    struct MHD_Response *resp = NULL;
    enum MHD_Result done;
    int status, rc;

    if (r->rc > 0) /* a handler must not leave its inner codes to us */
        r->rc = SH_FAIL(&r->err, SH_E_BUG, "internal error");
    if (r->rc == SH_E_METHOD && strcmp(r->q.method, "OPTIONS") == 0) {
        r->rc = SH_OK;
        p->status = 204;
    }
    r->http->steps->settle(&r->q, r->rc);
    if (r->rc)
        status = p->status >= 400 ? p->status : sh_rc_http(r->rc);
    else
        status = p->status ? p->status : r->q.route->status;
    if (r->rc)
        rc = problem_response(r, status, &resp);
    else if (p->file.is_set)
        rc = http_file_response(r, &resp);
    else if (p->head)
        rc = raw_response(r, &resp);
    else if (p->stream.read)
        rc = stream_response(r, &resp);
    else if (p->body)
        rc = json_response(r, p->body, "application/json", &resp);
    else
        rc = text_response(r, &resp);
    if (rc) /* no memory even for the answer: close the connection */
        return MHD_NO;
    add_reply_headers(r, resp, status);
    add_cors(r, resp, status);
    log_reply(r, status);
    r->status = status;
    done = MHD_queue_response(r->conn, (unsigned)status, resp);
    MHD_destroy_response(resp);
    return done;
}
