/* http_req.c - the library's callbacks: one request from its first line to its end.
 *
 * The library calls http_on_request after the headers, for each piece of the body, at the end, and
 * after each resumption; r->phase says where we are. A reply can only be queued in the first and
 * the last of these calls, so after a failure in mid-body the rest of the body is discarded, up to
 * a limit, before the reply.
 */
#include "api/api.h"
#include "api/http/http_int.h"
#include "common/clock.h"
#include "common/log.h"
#include "common/mem.h"
#include "common/metrics.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <strings.h>

#define MAX_DISCARD (64u << 20)
#define LONG_PIECE ((size_t)16 << 10) /* takes longer than a small request */

/* ---------------------------------------------------------------- heads that are still coming */

static void head_add(struct http_req *r)
{
    struct http_thread *t = r->thread;

    r->is_head = true;
    r->next = t->heads;
    if (r->next)
        r->next->prev = r;
    t->heads = r;
}

static void head_del(struct http_req *r)
{
    if (!r->is_head)
        return;
    r->is_head = false;
    if (r->prev)
        r->prev->next = r->next;
    else
        r->thread->heads = r->next;
    if (r->next)
        r->next->prev = r->prev;
}

static enum MHD_Result take_length(void *cls, enum MHD_ValueKind kind, const char *name,
                                   size_t name_len, const char *value, size_t value_len)
{
    (void)kind;
    framing_length(cls, name, name_len, value ? value : "", value ? value_len : 0);
    return MHD_YES;
}

/* It says so in its log, of no request; but that one's headers are there. Left alone it would send
 * the head of its own answer twice. */
void http_on_bad_length(struct http_thread *t)
{
    struct http_req *next;

    for (struct http_req *r = t->heads; r; r = next) {
        struct framing f = {0};

        next = r->next;
        MHD_get_connection_values_n(r->conn, MHD_HEADER_KIND, take_length, &f);
        r->rc = framing_check(&f, &r->err);
        if (!r->rc)
            continue;
        head_del(r);
        http_reply_past(r);
    }
}

/* ---------------------------------------------------------------- the library's callbacks */

void *http_on_uri(void *cls, const char *uri, struct MHD_Connection *conn)
{
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(conn, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
    struct http_thread *t = cls;
    const struct http_door *door = t->door;
    struct http_req *r = calloc(1, sizeof(*r));

    if (!r)
        return NULL;
    r->http = door->http;
    r->thread = t;
    r->conn = conn;
    r->q.api = r->http->api;
    r->q.front = &HTTP_FRONT;
    r->stage = (struct stage){.q = &r->q, .err = &r->err};
    r->q.takes_admins = door->is_admin || door->http->admin.fd < 0;
    r->tcp = info ? info->socket_context : NULL;
    r->q.start_ns = sh_clock_ns();
    if (r->http->in_place)
        framing_target(&r->framing, uri);
    if (sh_strdup(uri, &r->raw_uri, NULL)) {
        free(r);
        return NULL;
    }
    head_add(r);
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
    head_del(r);
    if (r->q.route) {
        const char *route = r->q.route->path;

        snprintf(status, sizeof(status), "%d", r->status ? r->status : 499);
        sh_metric_add(M_shunt_http_requests_total, SH_LABELS(route, r->q.route->method, status), 1);
        sh_metric_observe(M_shunt_http_request_duration_seconds, SH_LABELS(route),
                          (double)(sh_clock_ns() - r->q.start_ns) / 1e9);
    }
    conns_phase(&r->http->conns, r->tcp, CONN_HEAD, 0);
    if (r->counted) {
        atomic_fetch_sub(&r->http->n_active, 1);
        r->thread->n_chunked -= r->framing.chunked;
    }
    r->http->steps->close(&r->q);
    coded_close(r);
    req_reply_free(&r->q.reply);
    json_decref(r->q.json);
    sh_buf_fini(&r->body);
    free(r->raw_uri);
    free(r);
}

static enum MHD_Result take_header(void *cls, enum MHD_ValueKind kind, const char *name,
                                   size_t name_len, const char *value, size_t value_len)
{
#define NAMED(name) (name), sizeof(name) - 1
    static const struct {
        const char *name;
        size_t len;
        size_t offset;
        bool is_list; /* that may come in several lines: the first counts, none has to */
    } WANTED[] = {
        {NAMED("Authorization"), offsetof(struct api_headers, authorization)},
        {NAMED("If-Match"), offsetof(struct api_headers, if_match)},
        {NAMED("Idempotency-Key"), offsetof(struct api_headers, idempotency_key)},
        {NAMED("Content-Digest"), offsetof(struct api_headers, content_digest)},
        {NAMED("Content-Type"), offsetof(struct api_headers, content_type)},
        {NAMED("Content-Encoding"), offsetof(struct api_headers, content_encoding)},
        {NAMED("Inference-Header-Content-Length"), offsetof(struct api_headers, infer_header_len)},
        {NAMED("Shunt-Session"), offsetof(struct api_headers, session)},
        {NAMED("X-Request-ID"), offsetof(struct api_headers, request_id)},
        {NAMED("traceparent"), offsetof(struct api_headers, traceparent), true},
        {NAMED("Accept"), offsetof(struct api_headers, accept), true},
        {NAMED("Accept-Encoding"), offsetof(struct api_headers, accept_encoding), true},
        {NAMED("Origin"), offsetof(struct api_headers, origin)},
        {NAMED("Last-Event-ID"), offsetof(struct api_headers, last_event_id)},
        {NAMED("Range"), offsetof(struct api_headers, range)},
        {NAMED("If-Range"), offsetof(struct api_headers, if_range)},
        {NAMED("If-None-Match"), offsetof(struct api_headers, if_none_match), true},
        {NAMED("Content-Range"), offsetof(struct api_headers, content_range)},
    };
#undef NAMED
    struct http_req *r = cls;

    (void)kind;
    framing_add(&r->framing, name, name_len, value ? value : "", value ? value_len : 0);
    r->expects |= strcasecmp(name, "Expect") == 0;
    for (size_t i = 0; value && i < SH_ARRAY_LEN(WANTED); i++) {
        const char **at = (const char **)((char *)&r->q.h + WANTED[i].offset);

        if (name_len != WANTED[i].len || strcasecmp(name, WANTED[i].name) != 0)
            continue;
        if (*at && !r->twice && !WANTED[i].is_list)
            r->twice = WANTED[i].name;
        if (!*at)
            *at = value;
    }
    return MHD_YES;
}

/* Who came first and who last is read in two ways by two programs: a proxy may have checked the
 * other key. */
static int check_once(const struct http_req *r, struct sh_err *err)
{
    return r->twice ? SH_FAIL(err, SH_E_INVALID, "there is more than one %s header", r->twice)
                    : SH_OK;
}

/* Everything that the headers alone decide. */
static int open_request(struct http_req *r, const char *method, const char *version)
{
    int rc;

    head_del(r);
    r->counted = true;
    atomic_fetch_add(&r->http->n_active, 1);
    sh_strlcpy(r->q.method, method, sizeof(r->q.method));
    framing_version(&r->framing, version);
    MHD_get_connection_values_n(r->conn, MHD_HEADER_KIND, take_header, r);
    r->q.has_length = r->framing.n_length == 1 || !r->framing.n_encoding;
    r->q.content_length = r->framing.length;
    r->thread->n_chunked += r->framing.chunked;
    sh_buf_init(&r->body, 0);
    rc = req_make_id(&r->q, &r->err);
    if (!rc)
        rc = framing_check(&r->framing, &r->err);
    if (!rc)
        rc = check_once(r, &r->err);
    /* Of chunks we do not see how their lines end: what follows them is not taken for a request. */
    r->trusted = !rc && !r->framing.chunked;
    r->closes = !r->trusted;
    if (!rc && strcmp(method, "OPTIONS") == 0 && strcmp(r->raw_uri, "*") == 0) {
        sh_strlcpy(r->q.reply.allow, "GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS",
                   sizeof(r->q.reply.allow));
        rc = SH_FAIL(&r->err, SH_E_METHOD, "this server has no other method");
    } else if (!rc) {
        rc = uri_parse(r->raw_uri, &r->q.uri, &r->err);
        r->q.reply.status = rc == SH_E_TOOBIG ? 414 : 0;
    }
    if (!rc)
        rc = r->http->steps->route(&r->q, &r->err);
    if (!rc && r->q.route->body == BODY_NONE && r->framing.chunked)
        rc = SH_FAIL(&r->err, SH_E_INVALID, "this request takes no body");
    if (!rc && r->q.route->body == BODY_JSON) {
        sh_buf_init(&r->body, (size_t)req_max_body(&r->q) + 1);
        r->err.faults = &r->q.reply.faults;
    }
    return rc;
}

static int stage(struct http_req *r, api_fn *fn, bool here, struct pool *pool)
{
    if (!r->stage.has_result)
        atomic_store(&r->wake, WAKE_NONE);
    return stage_run(&r->stage, fn, here, pool);
}

void http_fall_asleep(struct http_req *r)
{
    int none = WAKE_NONE;

    r->asleep = true;
    MHD_suspend_connection(r->conn);
    if (!atomic_compare_exchange_strong(&r->wake, &none, WAKE_ASLEEP))
        MHD_resume_connection(r->conn);
}

static enum MHD_Result fall_asleep(struct http_req *r)
{
    http_fall_asleep(r);
    return MHD_YES;
}

static void note_phase(struct http_req *r)
{
    /* A stream waits for us; one that is not read falls silent. Before the reply another thread may
     * be about to make it one. */
    bool streams = r->status && r->q.reply.stream.read;
    enum conn_phase phase = r->status && !streams               ? CONN_REPLY
                            : r->phase == PH_BODY && !r->asleep ? CONN_BODY
                                                                : CONN_WORK;

    conns_phase(&r->http->conns, r->tcp, phase,
                phase == CONN_REPLY ? r->reply_bytes : r->received + r->discarded);
}

static bool has_file(const struct http_req *r)
{
    return r->q.route->body >= BODY_MODEL;
}

static int claim(struct http_req *r)
{
    struct api *a = r->http->api;
    int rc = SH_OK;

    if (r->q.who.key_id[0] && r->tcp)
        rc = peers_claim(&a->peers, &r->tcp->peer, &r->q.who,
                         SH_CONF_NOW(a->conf->max_connections_per_key), &r->err);
    r->closes |= rc != SH_OK;
    return rc;
}

/* The phases up to the body. API_WAIT: asleep. */
static int step_headers(struct http_req *r)
{
    int rc;

    if (r->phase == PH_AUTH) {
        rc = stage(r, r->http->steps->auth, true, r->http->api->ctl);
        if (!rc)
            rc = claim(r);
        else if (rc == SH_E_UNAUTHENTICATED && r->tcp)
            peers_refuse(&r->http->api->peers, &r->tcp->peer, r->q.h.authorization);
        if (rc)
            return rc;
        r->phase = PH_BEGIN;
    }
    rc = r->q.is_packed ? coded_begin(r, &r->err)
                        : stage(r, r->http->steps->begin, !has_file(r), r->http->api->ctl);
    if (!rc)
        r->phase = PH_BODY;
    return rc;
}

static int step_main(struct http_req *r)
{
    struct api *a = r->http->api;

    r->q.body = r->body.data;
    r->q.body_len = r->body.len;
    return stage(r, r->http->steps->handle, r->q.route->flags & ROUTE_HERE,
                 has_file(r) || (r->q.route->flags & ROUTE_BULK) ? a->bulk : a->ctl);
}

/* Perhaps it was refused before anybody asked for its key. */
static bool has_key(const struct http_req *r)
{
    return r->q.who.key_id[0] || r->http->steps->has_key(&r->q);
}

/* Refused by its headers alone. A reply now ends the connection (conns_linger): so the body of who
 * has a key is taken and thrown away first, if it is not too long and comes unasked. */
static bool must_discard(const struct http_req *r)
{
    const struct api_conf *c = r->http->api->conf;
    uint64_t max = SH_MIN((uint64_t)c->max_infer_bytes, (uint64_t)MAX_DISCARD);
    uint64_t n = r->q.content_length;

    return r->trusted && !r->expects && (n == 0 || (n <= max && has_key(r)));
}

/* Called with no body data: after the headers, after a resumption, or at the end of the body. */
static enum MHD_Result req_advance(struct http_req *r, const char *method, const char *version)
{
    int rc = r->rc;

    if (r->phase == PH_NEW) {
        rc = open_request(r, method, version);
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
        return MHD_YES;
    }
    if (!rc && r->phase == PH_BODY) {
        stage_take(&r->stage, &rc); /* of the last piece of a file */
        r->phase = r->q.is_packed ? PH_UNPACK : PH_MAIN;
    }
    if (!rc && r->phase == PH_UNPACK) {
        rc = stage(r, coded_unpack, false, r->http->api->ctl);
        if (rc == API_WAIT)
            return fall_asleep(r);
        r->phase = PH_MAIN;
    }
    if (!rc && r->phase == PH_MAIN) {
        rc = step_main(r);
        if (rc == API_WAIT)
            return fall_asleep(r);
    }
    if (r->phase < PH_BODY && (r->framing.chunked || r->q.content_length > 0)) {
        r->closes = true;
        conns_linger(&r->http->conns, r->tcp);
    }
    r->closes |= atomic_load(&r->http->api->stopping); /* a next request might have no answer */
    r->rc = rc;
    r->phase = PH_DONE;
    return http_reply_send(r);
}

static int take_piece(struct http_req *r, const char *data, size_t n)
{
    if (r->received + n > req_max_body(&r->q))
        return SH_FAIL(&r->err, SH_E_TOOBIG,
                       "the body is larger than %" PRIu64 " bytes, the most allowed here",
                       req_max_body(&r->q));
    if (r->q.is_packed) {
        int rc = coded_piece(r, data, n, &r->err);

        r->received += n;
        return rc;
    }
    r->received += n;
    return r->q.route->body == BODY_JSON ? sh_buf_append(&r->body, data, n, &r->err)
                                         : r->http->steps->piece(&r->q, data, n, &r->err);
}

static enum MHD_Result on_piece(struct http_req *r, const char *data, size_t *size)
{
    size_t n = *size;

    if (n >= LONG_PIECE)
        http_thread_settle(r->thread);
    stage_take(&r->stage, &r->rc); /* a full buffer was written to disk meanwhile */
    *size = 0;
    if (r->rc) {
        r->discarded += n;
        return r->discarded > MAX_DISCARD ? MHD_NO : MHD_YES;
    }
    r->rc = take_piece(r, data, n);
    if (r->rc != API_AGAIN)
        return MHD_YES;
    atomic_store(&r->wake, WAKE_NONE);
    r->rc = stage_submit(&r->stage, r->http->steps->flush, r->http->api->bulk);
    if (r->rc != API_WAIT)
        return MHD_YES;
    r->rc = SH_OK;
    return fall_asleep(r);
}

static enum MHD_Result on_request(struct http_req *r, const char *method, const char *version,
                                  const char *data, size_t *size)
{
    r->asleep = false;
    if (*size == 0)
        return req_advance(r, method, version);
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
    if (!r)
        return MHD_NO;
    r->conn = conn;
    done = on_request(r, method, version, upload_data, upload_data_size);
    note_phase(r);
    http_thread_called(r->thread, r->q.route && r->q.route->body == BODY_INFER);
    return done;
}
