/* http_coded.c - a body with a Content-Encoding: stored as it comes, and unpacked on a pool thread
 * when it is complete.
 *
 * The packed body lies in the slab, so it counts as its tenant's payload. Its unpacked size is
 * known only after unpacking. So a first pass counts, an inference request then takes a slot of
 * that size, and a second pass fills it. From there on it is a request like any other; lengths in
 * its headers (Inference-Header-Content-Length) refer to the unpacked body.
 */
#include "api/api.h"
#include "api/http/coding.h"
#include "api/http/http_int.h"

#include <string.h>

int coded_begin(struct http_req *r, struct sh_err *err)
{
    if (!r->q.has_length) {
        r->q.reply.status = 411;
        return SH_FAIL(
            err, SH_E_INVALID,
            "send a compressed body with Content-Length; chunked bodies are not accepted here");
    }
    return slab_take(r->http->api->slab, r->q.tenant, (size_t)r->q.content_length, &r->packed, err);
}

int coded_piece(struct http_req *r, const char *data, size_t n, struct sh_err *err)
{
    if (n > r->packed->bytes - (size_t)r->received)
        return SH_FAIL(err, SH_E_INVALID, "the body is longer than its Content-Length");
    memcpy((char *)slab_at(r->http->api->slab, r->packed->off) + r->received, data, n);
    return SH_OK;
}

static int on_json(void *arg, const char *data, size_t n, struct sh_err *err)
{
    return sh_buf_append(&((struct http_req *)arg)->body, data, n, err);
}

static int on_payload(void *arg, const char *data, size_t n, struct sh_err *err)
{
    struct http_req *r = arg;

    return r->http->steps->piece(&r->q, data, n, err);
}

static int unpack_body(struct http_req *r, coding_fn *fn, uint64_t *bytes, struct sh_err *err)
{
    return coding_unpack(r->q.h.content_encoding, slab_at(r->http->api->slab, r->packed->off),
                         (size_t)r->received, req_max_body(&r->q), fn, r, bytes, err);
}

static int unpack_payload(struct http_req *r, struct sh_err *err)
{
    struct db *db = r->q.db;
    uint64_t bytes;
    int rc = unpack_body(r, NULL, &bytes, err);

    if (rc)
        return rc;
    r->q.content_length = bytes;
    r->q.db = NULL; /* what it wants to know is in memory, as a rule */
    rc = r->http->steps->begin(&r->q, err);
    r->q.db = db;
    if (rc == API_AGAIN)
        rc = r->http->steps->begin(&r->q, err);
    return rc ? rc : unpack_body(r, on_payload, &bytes, err);
}

int coded_unpack(struct api_req *q, struct sh_err *err)
{
    struct http_req *r = (struct http_req *)q;
    uint64_t bytes;
    int rc = q->route->body == BODY_INFER ? unpack_payload(r, err)
                                          : unpack_body(r, on_json, &bytes, err);

    coded_close(r);
    return rc;
}

void coded_close(struct http_req *r)
{
    slab_release(r->http->api->slab, r->packed);
    r->packed = NULL;
}
