/* constant.c - see constant.h. */
#include "api/http/constant.h"

#include "api/http/coding.h"
#include "api/request/range.h"

#include <stdio.h>
#include <stdlib.h>

int constant_init(struct constant *c, const char *text, size_t n, const char *type,
                  struct sh_err *err)
{
    uint8_t sha[SH_SHA256_BYTES];
    int rc;

    *c = (struct constant){.text = text, .n = n, .type = type};
    rc = coding_gzip(text, n, 9, &c->packed, &c->packed_n, err);
    if (!rc)
        rc = sh_sha256(text, n, sha, err);
    if (!rc)
        sh_hex(sha, sizeof(sha), c->digest);
    return rc;
}

void constant_fini(struct constant *c)
{
    free(c->packed);
    *c = (struct constant){0};
}

void constant_reply(const struct constant *c, struct api_req *q)
{
    const bool packed = coding_accepts_gzip(q->h.accept_encoding);
    struct api_reply *r = &q->reply;

    /* Other bytes, another tag. */
    snprintf(r->etag, sizeof(r->etag), "\"%.32s%s\"", c->digest, packed ? "-gzip" : "");
    r->varies = true;
    if (range_etag_listed(q->h.if_none_match, r->etag)) {
        r->status = 304;
        return;
    }
    r->text = packed ? c->packed : c->text;
    r->text_n = packed ? c->packed_n : c->n;
    r->text_type = c->type;
    r->is_packed = packed;
}
