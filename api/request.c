/* request.c - see request.h. */
#include "api/request.h"

#include "api/api.h"
#include "api/cache/auth.h"
#include "api/files/upload.h"
#include "api/http/coding.h"
#include "api/infer/infer_request.h"
#include "api/infer/link.h"
#include "api/jobs/events.h"
#include "api/jobs/explain.h"
#include "api/jobs/watch.h"
#include "api/request/contract.h"
#include "api/routes.h"
#include "api/store/idem.h"
#include "api/store/store.h"
#include "common/hash.h"
#include "common/mem.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

static int check_body_limit(struct api_req *q, struct sh_err *err)
{
    uint64_t max = req_max_body(q);

    if (!q->has_length || q->content_length <= max)
        return SH_OK;
    if (q->route->body == BODY_NONE)
        return SH_FAIL(err, SH_E_INVALID, "%s %s takes no body", q->method, q->route->path);
    return SH_FAIL(err, SH_E_TOOBIG,
                   "the body has %" PRIu64 " bytes, at most %" PRIu64 " are allowed here",
                   q->content_length, max);
}

/* A mistyped parameter must not be ignored in silence. The inference protocol's clients may add
 * parameters of their own. */
static int check_query(struct api_req *q, struct sh_err *err)
{
    for (size_t i = 0; i < q->uri.n_query; i++) {
        const char *name = q->uri.query[i].name;

        if (!(q->route->flags & ROUTE_V2) && !route_takes_query(q->route, name))
            return SH_FAIL(err, SH_E_INVALID, "\"%.64s\" is not a query parameter of %s", name,
                           q->route->path);
    }
    return SH_OK;
}

static int check_dry_run(struct api_req *q, struct sh_err *err)
{
    const char *dry = route_takes_dry_run(q->route) ? uri_query(&q->uri, "dry_run") : NULL;

    q->dry_run = dry && strcmp(dry, "true") == 0;
    if (dry && !q->dry_run && strcmp(dry, "false") != 0)
        return SH_FAIL(err, SH_E_INVALID, "\"dry_run\" must be true or false");
    return SH_OK;
}

static int check_media(struct api_req *q, struct sh_err *err)
{
    const char *type = q->h.content_type, *coding = q->h.content_encoding;
    bool is_file = q->route->body >= BODY_MODEL;
    int rc = q->route->body == BODY_NONE ? SH_OK : coding_check(coding, &q->is_packed, err);

    if (!rc && q->is_packed && is_file)
        rc = SH_FAIL(err, SH_E_UNSUPPORTED,
                     "Content-Encoding is not for files, since the digest is that of the bytes "
                     "sent; send the file as it is");
    if (rc) {
        q->is_packed = false;
        q->reply.status = 415;
        return rc;
    }
    if (q->route->body != BODY_JSON || (q->route->flags & ROUTE_V2) || !type)
        return SH_OK;
    if (strncasecmp(type, "application/json", 16) == 0 ||
        strncasecmp(type, "application/merge-patch+json", 28) == 0)
        return SH_OK;
    q->reply.status = 415;
    return SH_FAIL(err, SH_E_UNSUPPORTED, "Content-Type must be application/json");
}

static int request_route(struct api_req *q, struct sh_err *err)
{
    int rc = route_find(q->method, &q->uri, &q->route, q->params, q->reply.allow, err);
    if (!rc)
        rc = check_body_limit(q, err);
    if (!rc)
        rc = check_query(q, err);
    if (!rc)
        rc = check_dry_run(q, err);
    if (!rc)
        rc = check_media(q, err);
    return rc;
}

/* Name of the tenant that the request is about. */
static int pick_tenant(struct api_req *q, struct sh_err *err)
{
    const char *named = uri_query(&q->uri, "tenant");
    bool per_tenant = q->route->flags & (ROUTE_TENANT | ROUTE_V2);

    if (q->who.role != ROLE_ADMIN) {
        if (named && strcmp(named, q->who.tenant) != 0)
            return SH_FAIL(err, SH_E_FORBIDDEN, "this key belongs to another tenant than \"%.64s\"",
                           named);
        memcpy(q->tenant, q->who.tenant, sizeof(q->tenant));
        q->tenant_id = q->who.tenant_id;
        return SH_OK;
    }
    if (named && !sh_strlcpy(q->tenant, named, sizeof(q->tenant)))
        return SH_FAIL(err, SH_E_NOTFOUND, "there is no tenant of this name");
    if (!named && per_tenant)
        return SH_FAIL(err, SH_E_INVALID, "an admin key must name the tenant: add ?tenant=NAME");
    return SH_OK;
}

static bool is_read(const struct api_req *q)
{
    return strcmp(q->method, "GET") == 0 || strcmp(q->method, "HEAD") == 0;
}

static int request_auth(struct api_req *q, struct sh_err *err)
{
    int rc;

    if (q->route->access == ACCESS_PUBLIC)
        return SH_OK;
    rc = auth_check(q->api->auth, q->h.authorization, q->db, &q->who, err);
    if (rc)
        return rc;
    if (q->who.role == ROLE_ADMIN && !q->takes_admins)
        return SH_FAIL(err, SH_E_FORBIDDEN,
                       "admin keys are only accepted at the address of --admin-listen, not here");
    if (!(access_roles(q->route->access) & q->who.role))
        return SH_FAIL(err, SH_E_FORBIDDEN, "this needs %s", access_text(q->route->access));
    if (q->who.suspended && !is_read(q))
        return SH_FAIL(err, SH_E_FORBIDDEN, "tenant \"%s\" is suspended", q->who.tenant);
    return pick_tenant(q, err);
}

static int request_begin(struct api_req *q, struct sh_err *err)
{
    if (q->route->body == BODY_INFER)
        return infer_begin(q, err);
    if (q->route->body >= BODY_MODEL)
        return upload_begin(q, err);
    return SH_OK;
}

static int parse_body(struct api_req *q, struct sh_err *err)
{
    if (q->route->body != BODY_JSON || q->json)
        return SH_OK;
    if (q->body_len > 0) {
        int rc = sh_json_parse(q->body, q->body_len, (size_t)q->route->max_body, &q->json, err);

        return !rc && !json_is_object(q->json)
                   ? SH_FAIL(err, SH_E_INVALID, "the body must be a JSON object")
                   : rc;
    }
    if (!(q->route->flags & ROUTE_OPTIONAL))
        return SH_FAIL(err, SH_E_INVALID, "this request needs a JSON body");
    return SH_OK;
}

/* The first answer comes before the stream is opened: what is refused has a status. */
static int watch_answers(struct api_req *q, struct sh_err *err)
{
    int rc;

    if (!q->db)
        return API_AGAIN;
    rc = q->route->fn(q, err);
    return rc ? rc : watch_open_answers(q->api->watch, q, err);
}

static int perform(struct api_req *q, struct sh_err *err)
{
    if ((q->route->flags & ROUTE_WATCHED) && events_wants_stream(q))
        return watch_answers(q, err);

    bool once = q->h.idempotency_key && route_replays(q->route) && !(q->route->flags & ROUTE_KEEPS);

    return once ? idem_create(q, err) : q->route->fn(q, err);
}

/* The handler runs as ever, against a database that forgets it. */
static int rehearse(struct api_req *q, struct sh_err *err)
{
    int rc;

    if (!q->db)
        return API_AGAIN;
    rc = db_rehearse(q->db, err);
    if (!rc)
        rc = perform(q, err);
    db_undo(q->db);
    if (!rc && q->route->status != 204)
        q->reply.status = 200;
    q->reply.location[0] = '\0';
    return rc;
}

static int request_handle(struct api_req *q, struct sh_err *err)
{
    int rc = parse_body(q, err);

    if (!rc && (q->route->flags & (ROUTE_TENANT | ROUTE_OWNER)) && q->tenant_id == 0 &&
        q->tenant[0]) {
        if (!q->db)
            return API_AGAIN;
        rc = store_tenant_id(q->db, q->tenant, &q->tenant_id, err);
    }
    if (rc)
        return rc;
    return q->dry_run ? rehearse(q, err) : perform(q, err);
}

static int request_piece(struct api_req *q, const char *data, size_t n, struct sh_err *err)
{
    return q->route->body == BODY_INFER ? infer_piece(q, data, n, err)
                                        : upload_piece(q, data, n, err);
}

static bool request_has_key(const struct api_req *q)
{
    struct api_who who;

    return auth_check(q->api->auth, q->h.authorization, NULL, &who, NULL) == SH_OK;
}

static void request_abandon(struct api_req *q)
{
    infer_abandon(q->infer);
}

static void request_settle(struct api_req *q, int rc)
{
    infer_settle(q->infer, rc);
}

static void request_close(struct api_req *q)
{
    infer_close(q->infer);
    upload_close(q->upload);
    explain_free(q->explain);
}

static void request_turn(struct api *a)
{
    link_wake(a->link);
}

const struct api_steps REQUEST_STEPS = {
    .route = request_route,
    .auth = request_auth,
    .begin = request_begin,
    .handle = request_handle,
    .piece = request_piece,
    .flush = upload_flush,
    .has_key = request_has_key,
    .abandon = request_abandon,
    .settle = request_settle,
    .close = request_close,
    .turn = request_turn,
};
