/* req.c - helpers of handlers: see req.h. */
#include "api/req.h"

#include "api/api.h"
#include "api/routes.h"
#include "common/hash.h"
#include "common/mem.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define PAGE_DEFAULT 100
#define PAGE_MAX 1000

static int digit64(char c)
{
    if (c >= 'A' && c <= 'Z')
        return c - 'A';
    if (c >= 'a' && c <= 'z')
        return c - 'a' + 26;
    if (c >= '0' && c <= '9')
        return c - '0' + 52;
    if (c == '+' || c == '-')
        return 62;
    return c == '/' || c == '_' ? 63 : -1;
}

int base64_decode(const char *s, size_t len, uint8_t *out, size_t n, struct sh_err *err)
{
    uint32_t bits = 0;
    size_t have = 0, n_bits = 0;

    while (len > 0 && s[len - 1] == '=')
        len--;
    for (size_t i = 0; i < len; i++) {
        int v = digit64(s[i]);

        if (v < 0)
            return SH_FAIL(err, SH_E_INVALID, "the text is not base64");
        bits = (bits << 6 | (uint32_t)v) & 0xffffff;
        n_bits += 6;
        if (n_bits >= 8) {
            n_bits -= 8;
            if (have == n)
                return SH_FAIL(err, SH_E_INVALID, "the base64 text is longer than %zu bytes", n);
            out[have++] = (uint8_t)(bits >> n_bits);
        }
    }
    if (have != n)
        return SH_FAIL(err, SH_E_INVALID, "the base64 text has %zu bytes, not %zu", have, n);
    return SH_OK;
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
    return SH_FAIL(err, SH_E_PRECONDITION, "If-Match names a version that is not current");
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
