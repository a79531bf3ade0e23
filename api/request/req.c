/* req.c - helpers of handlers: see req.h. */
#include "api/request/req.h"

#include "api/api.h"
#include "api/request/cursor.h"
#include "api/request/route.h"
#include "common/hash.h"
#include "common/mem.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define PAGE_DEFAULT 100
#define PAGE_MAX 1000
#define TRACE_ID_LEN 32
#define SPAN_ID_LEN 16

/* "00-<32 hex>-<16 hex>-<2 hex>"; later versions may have more behind that. What follows the
 * trace's id only counts if it is right, too. */
void req_read_trace(const char *parent, struct api_trace *out)
{
    static const char HEX[] = "0123456789abcdef", NONE[] = "00000000000000000000000000000000";
    const char *id = parent ? parent + 3 : NULL, *span, *end;

    *out = (struct api_trace){0};
    if (!parent || strspn(parent, HEX) != 2 || parent[2] != '-' || strncmp(parent, "ff", 2) == 0 ||
        strspn(id, HEX) != TRACE_ID_LEN || id[TRACE_ID_LEN] != '-' ||
        strncmp(id, NONE, TRACE_ID_LEN) == 0)
        return;
    memcpy(out->id, id, TRACE_ID_LEN);
    span = id + TRACE_ID_LEN + 1;
    end = span + SPAN_ID_LEN + 3;
    if (strspn(span, HEX) != SPAN_ID_LEN || span[SPAN_ID_LEN] != '-' ||
        strspn(span + SPAN_ID_LEN + 1, HEX) != 2 ||
        (*end && (*end != '-' || strncmp(parent, "00", 2) == 0)))
        return;
    out->parent = strtoull(span, NULL, 16);
    out->is_sampled = out->parent && sh_hex_digit(end[-1]) & 1;
}

/* A client's own id is taken over if it is plain, else that of its trace; else one is made: the
 * digest of a secret and a count. To draw each anew takes longer, and a count alone would tell how
 * many there were. */
int req_make_id(struct api_req *q, struct sh_err *err)
{
    static const char PLAIN[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-";
    const char *id = q->h.request_id;
    struct {
        uint8_t secret[16];
        uint64_t count;
    } from;
    uint8_t made[SH_SHA256_BYTES];
    struct api_trace trace;
    int rc;

    if (id && id[0] && strlen(id) <= 64 && strspn(id, PLAIN) == strlen(id)) {
        sh_strlcpy(q->request_id, id, sizeof(q->request_id));
        return SH_OK;
    }
    req_read_trace(q->h.traceparent, &trace);
    if (sh_strlcpy(q->request_id, trace.id, sizeof(q->request_id)) && trace.id[0])
        return SH_OK;
    from.count = atomic_fetch_add(&q->api->n_request_ids, 1);
    memcpy(from.secret, q->api->request_secret, sizeof(from.secret));
    rc = sh_sha256(&from, sizeof(from), made, err);
    if (!rc)
        sh_hex(made, 16, q->request_id);
    return rc;
}

uint64_t req_max_body(const struct api_req *q)
{
    const struct api_conf *c = q->api->conf;

    switch (q->route->body) {
    case BODY_NONE:
        return 0;
    case BODY_JSON:
        return (uint64_t)q->route->max_body;
    case BODY_INFER:
        return (uint64_t)c->max_infer_bytes;
    case BODY_MODEL:
        return (uint64_t)c->max_model_bytes;
    case BODY_DATASET:
    case BODY_FILE:
        return (uint64_t)c->max_dataset_bytes;
    }
    return 0;
}

/* What a cursor is bound to: the list, and whose. Of an Idempotency-Key: what the path names. */
static void list_of(const struct api_req *q, char out[static REQ_LIST_TEXT])
{
    /* Else the path names it. */
    int64_t tenant = q->route->flags & (ROUTE_TENANT | ROUTE_OWNER) ? q->tenant_id : 0;
    const char *by =
        uri_query(&q->uri, "by"); /* what is added up by another thing is another list */
    size_t n = (size_t)snprintf(out, REQ_LIST_TEXT, "%s %" PRId64 " %.16s", q->route->path, tenant,
                                by ? by : "");

    for (size_t i = 0; i < API_MAX_PARAMS && q->params[i] && n < REQ_LIST_TEXT; i++)
        n += (size_t)snprintf(out + n, REQ_LIST_TEXT - n, " %s", q->params[i]);
}

int req_page(const struct api_req *q, struct req_page *out, struct sh_err *err)
{
    const char *limit = uri_query(&q->uri, "limit"), *cursor = uri_query(&q->uri, "cursor");
    int64_t id = 0;
    int rc = SH_OK;

    *out = (struct req_page){.limit = PAGE_DEFAULT, .cursor_key = q->api->cursor_key};
    list_of(q, out->list);
    if (limit)
        rc = sh_parse_i64(limit, 1, INT64_MAX, "limit", &out->limit, err);
    if (!rc && cursor)
        rc = cursor_open(out->cursor_key, out->list, cursor, &id, err);
    if (rc)
        return rc;
    out->limit = SH_MIN(out->limit, PAGE_MAX);
    snprintf(out->limit_text, sizeof(out->limit_text), "%" PRId64, out->limit);
    snprintf(out->after, sizeof(out->after), "%" PRId64, id);
    out->cursor = cursor ? out->after : NULL;
    return SH_OK;
}

int req_if_match(const struct api_req *q, char buf[static 24], const char **out, struct sh_err *err)
{
    const char *s = q->h.if_match;
    size_t len = s ? strlen(s) : 0;
    int64_t version;

    *out = NULL;
    if (!s || strcmp(s, "*") == 0)
        return SH_OK;
    if (len >= 3 && len < 22 && s[0] == '"' && s[len - 1] == '"') {
        memcpy(buf, s + 1, len - 2);
        buf[len - 2] = '\0';
        if (!sh_parse_i64(buf, 1, INT64_MAX, "If-Match", &version, NULL)) {
            *out = buf;
            return SH_OK;
        }
    }
    /* Well-formed or not, it is no ETag of ours, so nothing can match it. */
    return SH_FAIL(err, SH_E_PRECONDITION, "If-Match does not name the current version");
}

/* As the contract's pattern has it. */
static bool is_idem_key(const char *h, size_t len, bool quoted)
{
    for (size_t i = 0; i < len; i++)
        if (h[i] == ' ' ? !quoted : h[i] < '!' || h[i] > '~' || h[i] == '"')
            return false;
    return len > 0;
}

int req_idem(const struct api_req *q, struct req_idem *out, struct sh_err *err)
{
    const char *h = q->h.idempotency_key;
    size_t len = h ? strlen(h) : 0;
    bool quoted = len >= 2 && h[0] == '"' && h[len - 1] == '"', fits = len < sizeof(out->key);
    char *body = NULL, *text = NULL, named[REQ_LIST_TEXT];
    uint8_t digest[SH_SHA256_BYTES];
    int rc;

    out->key[0] = '\0';
    if (!h)
        return SH_OK;
    if (quoted) {
        h++;
        len -= 2;
    }
    if (!fits || !is_idem_key(h, len, quoted))
        return SH_FAIL(err, SH_E_INVALID,
                       "Idempotency-Key must have 1 to 255 visible ASCII characters, no quotation "
                       "marks but around all of it, and spaces only within those");
    memcpy(out->key, h, len);
    out->key[len] = '\0';
    list_of(q, named);
    out->scope = q->tenant_id;
    rc = q->json ? sh_json_dump(q->json, &body, err) /* sorted: the order means nothing */
                 : sh_strdup("{}", &body, err);
    if (!rc)
        rc = sh_asprintf(err, &text, "%s %s %s %s", q->method, named, q->tenant, body);
    if (!rc)
        rc = sh_sha256(text, strlen(text), digest, err);
    if (!rc)
        sh_hex(digest, sizeof(digest), out->fingerprint);
    free(body);
    free(text);
    return rc;
}

int req_reply(struct api_req *q, json_t *j, const char *location, struct sh_err *err)
{
    if (!j)
        return SH_FAIL(err, SH_E_NOMEM, "could not allocate the reply");
    json_decref(q->reply.body);
    q->reply.body = j;
    q->reply.row_version = json_integer_value(json_object_get(j, "row_version"));
    if (location)
        sh_strlcpy(q->reply.location, location, sizeof(q->reply.location));
    return SH_OK;
}

void req_reply_free(struct api_reply *r)
{
    json_decref(r->body);
    json_decref(r->problem);
    json_decref(r->faults.list);
    if (r->release)
        r->release(r->owner);
    if (r->file.is_set)
        close(r->file.fd);
    if (r->stream.close)
        r->stream.close(r->stream.owner);
    free(r->head);
    free(r->parts);
    *r = (struct api_reply){0};
}
