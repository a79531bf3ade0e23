/* look.c - see look.h. */
#include "api/jobs/look.h"

#include "api/request/route.h"
#include "common/hash.h"

#include <stdlib.h>
#include <string.h>

struct look {
    struct api_req q; /* a copy of the request, without its connection */
    uint8_t digest[SH_SHA256_BYTES];
};

/* The answer's body as text, if it is another one than the last; takes it from the request. */
static int take_text(struct look *l, struct api_req *q, char **text, struct sh_err *err)
{
    uint8_t digest[SH_SHA256_BYTES];
    int rc = sh_json_dump(q->reply.body, text, err);

    req_reply_free(&q->reply);
    if (!rc)
        rc = sh_sha256(*text, strlen(*text), digest, err);
    if (rc || memcmp(digest, l->digest, sizeof(digest)) == 0) {
        free(*text);
        *text = NULL;
    } else {
        memcpy(l->digest, digest, sizeof(digest));
    }
    return rc;
}

int look_new(struct api_req *q, struct look **out, char **text, struct sh_err *err)
{
    struct look *l = calloc(1, sizeof(*l));
    struct api_req *copy = l ? &l->q : NULL;
    int rc;

    *out = NULL;
    *text = NULL;
    if (!l)
        return SH_FAIL(err, SH_E_NOMEM, "could not allocate a stream");
    copy->api = q->api;
    copy->route = q->route;
    copy->who = q->who;
    copy->tenant_id = q->tenant_id;
    copy->takes_admins = q->takes_admins;
    memcpy(copy->method, q->method, sizeof(copy->method));
    memcpy(copy->tenant, q->tenant, sizeof(copy->tenant));
    memcpy(copy->request_id, q->request_id, sizeof(copy->request_id));
    uri_copy(&q->uri, &copy->uri);
    for (size_t i = 0; i < API_MAX_PARAMS && q->params[i]; i++)
        copy->params[i] = copy->uri.text + (q->params[i] - q->uri.text);
    rc = take_text(l, q, text, err);
    if (rc) {
        look_free(l);
        return rc;
    }
    *out = l;
    return SH_OK;
}

void look_free(struct look *l)
{
    free(l);
}

int look_again(struct look *l, struct db *db, char **text, struct sh_err *err)
{
    struct api_req *q = &l->q;
    int rc;

    *text = NULL;
    q->db = db;
    rc = q->route->fn(q, err);
    if (!rc)
        return take_text(l, q, text, err);
    req_reply_free(&q->reply);
    return rc;
}
