/* http_req.c - the library's callbacks: one request from its first line to its end.
 *
 * The library calls http_on_request once after the headers, once per piece of the body, once at the
 * end, and once more after each resumption; r->phase says where we are. A reply can be queued only
 * on the first and the last of these calls, so a failure in mid-body waits for the end (what still
 * comes is thrown away, up to a limit).
 */
#include "api/api.h"
#include "api/http_int.h"
#include "api/infer.h"
#include "api/request.h"
#include "api/upload.h"
#include "common/clock.h"
#include "common/log.h"
#include "common/mem.h"
#include "common/metrics.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <strings.h>

#define NS_PER_S INT64_C(1000000000)
#define MAX_DISCARD (64u << 20)

void *http_on_uri(void *cls, const char *uri, struct MHD_Connection *conn)
{
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(conn, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
    struct http_req *r = calloc(1, sizeof(*r));

    if (!r)
        return NULL;
    r->http = cls;
    r->q.api = r->http->api;
    r->tcp = info ? info->socket_context : NULL;
    r->q.start_ns = sh_clock_ns();
    if (sh_strdup(uri, &r->raw_uri, NULL)) {
        free(r);
        return NULL;
    }
    return r;
}

void http_on_done(void *cls, struct MHD_Connection *conn, void **con_cls,
                  enum MHD_RequestTerminationCode code)
{
    struct http_req *r = *con_cls;
    char status[16];

    (void)cls;
    (void)conn;
    (void)code; /* not proof of delivery: a vanished client may read as success */
    *con_cls = NULL;
    if (!r)
        return;
    if (r->q.route) {
        const char *route = r->q.route->path;

        snprintf(status, sizeof(status), "%d", r->status ? r->status : 499);
        sh_metric_add(M_shunt_http_requests_total, SH_LABELS(route, r->q.route->method, status), 1);
        sh_metric_observe(M_shunt_http_request_duration_seconds, SH_LABELS(route),
                          (double)(sh_clock_ns() - r->q.start_ns) / 1e9);
    }
    if (r->tcp) {
        pthread_mutex_lock(&r->http->lock);
        r->tcp->in_request = false;
        r->tcp->reads = true;
        r->tcp->since_ns = sh_clock_ns();
        pthread_mutex_unlock(&r->http->lock);
    }
    if (r->counted)
        atomic_fetch_sub(&r->http->n_active, 1);
    infer_close(r->q.infer);
    upload_close(r->q.upload);
    req_reply_free(&r->q.reply);
    json_decref(r->q.json);
    sh_buf_fini(&r->body);
    free(r->raw_uri);
    free(r);
}

static enum MHD_Result take_header(void *cls, enum MHD_ValueKind kind, const char *name,
                                   size_t name_len, const char *value, size_t value_len)
{
    static const struct {
        const char *name;
        size_t offset;
    } WANTED[] = {
        {"Authorization", offsetof(struct api_headers, authorization)},
        {"If-Match", offsetof(struct api_headers, if_match)},
        {"Idempotency-Key", offsetof(struct api_headers, idempotency_key)},
        {"Content-Digest", offsetof(struct api_headers, content_digest)},
        {"Content-Type", offsetof(struct api_headers, content_type)},
        {"Content-Encoding", offsetof(struct api_headers, content_encoding)},
        {"Inference-Header-Content-Length", offsetof(struct api_headers, infer_header_len)},
        {"X-Request-ID", offsetof(struct api_headers, request_id)},
        {"Range", offsetof(struct api_headers, range)},
        {"If-Range", offsetof(struct api_headers, if_range)},
        {"If-None-Match", offsetof(struct api_headers, if_none_match)},
    };
    struct http_req *r = cls;

    (void)kind;
    framing_add(&r->framing, name, name_len, value ? value : "", value ? value_len : 0);
    r->expects |= strcasecmp(name, "Expect") == 0;
    for (size_t i = 0; value && i < SH_ARRAY_LEN(WANTED); i++)
        if (strcasecmp(name, WANTED[i].name) == 0)
            *(const char **)((char *)&r->q.h + WANTED[i].offset) = value;
    return MHD_YES;
}

/* Everything that the headers alone decide. */
static int open_request(struct http_req *r, const char *method)
{
    int rc;

    r->counted = true;
    atomic_fetch_add(&r->http->n_active, 1);
    if (r->tcp) {
        pthread_mutex_lock(&r->http->lock);
        r->tcp->in_request = true;
        pthread_mutex_unlock(&r->http->lock);
    }
    sh_strlcpy(r->q.method, method, sizeof(r->q.method));
    MHD_get_connection_values_n(r->conn, MHD_HEADER_KIND, take_header, r);
    r->q.has_length = r->framing.n_length == 1 || !r->framing.n_encoding;
    r->q.content_length = r->framing.length;
    sh_buf_init(&r->body, 0);
    rc = framing_check(&r->framing, &r->err);
    if (!rc)
        rc = uri_parse(r->raw_uri, &r->q.uri, &r->err);
    if (!rc)
        rc = request_route(&r->q, &r->err);
    if (!rc && r->q.route->body == BODY_NONE && r->framing.chunked)
        rc = SH_FAIL(&r->err, SH_E_INVALID, "this request takes no body");
    if (!rc && r->q.route->body == BODY_JSON) {
        sh_buf_init(&r->body, (size_t)request_max_body(&r->q) + 1);
    }
    return rc;
}

static void run_on_pool(struct pool_task *t, struct db *db)
{
    struct http_req *r = (struct http_req *)((char *)t - offsetof(struct http_req, task));
    int rc;

    r->q.db = db;
    {
        SH_LOG_SCOPE(.tenant = r->q.tenant[0] ? r->q.tenant : NULL);
        rc = r->pool_fn(&r->q, &r->err);
    }
    if (rc == API_WAIT)
        return; /* someone else wakes it, perhaps has already: r must not be touched */
    r->stage_rc = rc;
    r->has_result = true;
    http_wake(&r->q);
}

static int submit(struct http_req *r, api_fn *fn, struct pool *pool)
{
    int rc;

    r->pool_fn = fn;
    r->task.run = run_on_pool;
    rc = pool_submit(pool, &r->task, &r->err);
    return rc ? rc : API_WAIT;
}

static int stage(struct http_req *r, api_fn *fn, bool here, struct pool *pool)
{
    int rc;

    r->q.db = NULL;
    if (r->has_result) {
        r->has_result = false;
        return r->stage_rc;
    }
    atomic_store(&r->wake, WAKE_NONE);
    rc = here ? fn(&r->q, &r->err) : API_AGAIN;
    return rc == API_AGAIN ? submit(r, fn, pool) : rc;
}

void http_fall_asleep(struct http_req *r)
{
    int none = WAKE_NONE;

    MHD_suspend_connection(r->conn);
    if (!atomic_compare_exchange_strong(&r->wake, &none, WAKE_ASLEEP))
        MHD_resume_connection(r->conn);
}

static enum MHD_Result fall_asleep(struct http_req *r)
{
    r->asleep_ns = sh_clock_ns();
    http_fall_asleep(r);
    return MHD_YES;
}

/* For the sweep that looks for clients that have left. Asleep, what is to come may be here
 * already. */
static void note_reads(struct http_req *r)
{
    if (!r->tcp)
        return;
    pthread_mutex_lock(&r->http->lock);
    r->tcp->reads = r->phase == PH_BODY && !r->asleep_ns;
    r->tcp->saw_end = false;
    pthread_mutex_unlock(&r->http->lock);
}

static bool has_file(const struct http_req *r)
{
    return r->q.route->body == BODY_MODEL || r->q.route->body == BODY_DATASET;
}

/* The phases up to the body. API_WAIT: asleep. */
static int step_headers(struct http_req *r)
{
    int rc;

    if (r->phase == PH_AUTH) {
        rc = stage(r, request_auth, true, r->http->api->ctl);
        if (rc)
            return rc;
        r->phase = PH_BEGIN;
    }
    rc = stage(r, request_begin, !has_file(r), r->http->api->ctl);
    if (!rc) {
        r->phase = PH_BODY;
        r->body_ns = sh_clock_ns();
    }
    return rc;
}

static int step_main(struct http_req *r)
{
    struct api *a = r->http->api;

    r->q.body = r->body.data;
    r->q.body_len = r->body.len;
    return stage(r, request_main, r->q.route->flags & ROUTE_HERE, has_file(r) ? a->bulk : a->ctl);
}

/* Refused by its headers alone, and the body is on its way. A reply now would close the connection
 * under a client that is still sending, which then sees a broken pipe and not the reply: so the
 * body is taken and thrown away first, if it is not too long and the client does not wait to be
 * told. */
static bool must_discard(const struct http_req *r)
{
    const struct api_conf *c = r->http->api->conf;
    uint64_t max = SH_MIN((uint64_t)c->max_infer_bytes, (uint64_t)MAX_DISCARD);

    return r->q.route && r->framing.n_length == 1 && !r->framing.n_encoding && !r->expects &&
           r->q.content_length > 0 && r->q.content_length <= max;
}

/* Called with no body data: after the headers, after a resumption, or at the end of the body. */
static enum MHD_Result advance(struct http_req *r, const char *method)
{
    int rc = r->rc;

    if (r->phase == PH_NEW) {
        rc = open_request(r, method);
        r->phase = PH_AUTH;
    }
    if (!rc && (r->phase == PH_AUTH || r->phase == PH_BEGIN)) {
        rc = step_headers(r);
        if (rc == API_WAIT)
            return fall_asleep(r);
        if (!rc)
            return MHD_YES; /* the body comes now, or at once the last call */
    }
    if (rc && r->phase < PH_BODY && must_discard(r)) {
        r->rc = rc;
        r->phase = PH_BODY;
        r->body_ns = sh_clock_ns();
        return MHD_YES;
    }
    if (!rc && r->phase == PH_BODY) {
        if (r->has_result) { /* of the last piece of a file */
            r->has_result = false;
            rc = r->stage_rc;
        }
        r->phase = PH_MAIN;
    }
    if (!rc && r->phase == PH_MAIN) {
        rc = step_main(r);
        if (rc == API_WAIT)
            return fall_asleep(r);
    }
    r->rc = rc;
    r->phase = PH_DONE;
    return http_reply_send(r);
}

/* A client that sends a byte a second never meets the library's idle time-out. */
static bool is_too_slow(const struct http_req *r)
{
    const struct api_conf *c = r->http->api->conf;
    int64_t ns = sh_clock_ns() - r->body_ns - r->waited_ns - c->upload_grace_s * NS_PER_S;

    return ns > 0 &&
           (double)(r->received + r->discarded) < (double)c->upload_min_rate * ((double)ns / 1e9);
}

static int take_piece(struct http_req *r, const char *data, size_t n)
{
    if (r->received + n > request_max_body(&r->q))
        return SH_FAIL(&r->err, SH_E_TOOBIG,
                       "the body is larger than %" PRIu64 " bytes, the most allowed here",
                       request_max_body(&r->q));
    r->received += n;
    if (r->q.route->body == BODY_INFER)
        return infer_piece(&r->q, data, n, &r->err);
    if (has_file(r))
        return upload_piece(&r->q, data, n, &r->err);
    return sh_buf_append(&r->body, data, n, &r->err);
}

static enum MHD_Result on_piece(struct http_req *r, const char *data, size_t *size)
{
    size_t n = *size;

    if (r->has_result) { /* a full buffer was written to disk meanwhile */
        r->has_result = false;
        r->rc = r->stage_rc;
    }
    if (is_too_slow(r)) {
        SH_WARN("http.slow_body", "route=%s bytes=%" PRIu64, r->q.route->path,
                r->received + r->discarded);
        return MHD_NO;
    }
    *size = 0;
    if (r->rc) {
        r->discarded += n;
        return r->discarded > MAX_DISCARD ? MHD_NO : MHD_YES;
    }
    r->rc = take_piece(r, data, n);
    if (r->rc != API_AGAIN)
        return MHD_YES;
    atomic_store(&r->wake, WAKE_NONE);
    r->rc = submit(r, upload_flush, r->http->api->bulk);
    if (r->rc != API_WAIT)
        return MHD_YES;
    r->rc = SH_OK;
    return fall_asleep(r);
}

static enum MHD_Result on_request(struct http_req *r, const char *method, const char *data,
                                  size_t *size)
{
    if (r->asleep_ns) {
        r->waited_ns += sh_clock_ns() - r->asleep_ns;
        r->asleep_ns = 0;
    }
    if (*size == 0)
        return advance(r, method);
    if (r->phase == PH_BODY)
        return on_piece(r, data, size);
    *size = 0; /* replied already: the rest is thrown away */
    return MHD_YES;
}

enum MHD_Result http_on_request(void *cls, struct MHD_Connection *conn, const char *url,
                                const char *method, const char *version, const char *upload_data,
                                size_t *upload_data_size, void **con_cls)
{
    struct http_req *r = *con_cls;
    enum MHD_Result done;

    (void)cls;
    (void)url; /* already decoded: see uri.h */
    (void)version;
    if (!r)
        return MHD_NO;
    r->conn = conn;
    done = on_request(r, method, upload_data, upload_data_size);
    note_reads(r);
    return done;
}
