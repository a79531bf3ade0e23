/* tenants.c - tenants and their quotas. */
#include "api/api.h"
#include "api/cache/auth.h"
#include "api/handlers.h"
#include "api/request/noun.h"
#include "api/store/store.h"
#include "common/mem.h"
#include "common/quota.h"

#include <stdio.h>
#include <stdlib.h>

int tenants_list(struct api_req *q, struct sh_err *err)
{
    struct req_page page;
    json_t *j = NULL;
    int rc = req_page(q, &page, err);

    if (!rc)
        rc = store_tenant_list(q, &page, &j, err);
    return noun_page_reply(q, rc, j, err);
}

int tenants_create(struct api_req *q, struct sh_err *err)
{
    const char *name = NULL;
    char location[128];
    struct sh_json_field f[] = {
        {"name", SH_JSON_STR, &name, .required = true, .min = 1, .max = 63},
    };
    json_t *j = NULL;
    int rc = noun_read(q, "", f, SH_ARRAY_LEN(f), err);

    if (!rc)
        rc = noun_check_tenant_name("name", name, err);
    if (rc)
        return rc;
    rc = store_tenant_create(q, name, &j, err);
    if (rc == SH_E_CONFLICT && err)
        snprintf(err->msg, sizeof(err->msg),
                 "the tenant \"%s\" exists already, or did once; choose another name", name);
    if (rc)
        return rc;
    snprintf(location, sizeof(location), "/api/v1/tenants/%s", name);
    return req_reply(q, j, location, err);
}

int tenants_get(struct api_req *q, struct sh_err *err)
{
    json_t *j = NULL;
    int rc = noun_path_tenant(q, q->params[0], err);

    if (!rc)
        rc = store_tenant_get(q, q->params[0], &j, err);
    return noun_reply(q, rc, j, "tenant", q->params[0], err);
}

int tenants_patch(struct api_req *q, struct sh_err *err)
{
    const char *state = NULL, *match;
    char buf[24];
    struct sh_json_field f[] = {{"state", SH_JSON_STR, &state, .required = true}};
    json_t *j = NULL, *now = NULL;
    int rc = noun_path_tenant(q, q->params[0], err);

    if (!rc)
        rc = noun_read(q, "", f, SH_ARRAY_LEN(f), err);
    if (!rc)
        rc = noun_check_choice("state", state, SH_TENANT_SET(SH_STATE_TEXT, ","), err);
    if (!rc)
        rc = req_if_match(q, buf, &match, err);
    if (!rc)
        rc = store_tenant_patch(q, q->params[0], match, state, &j, err);
    if (!rc)
        auth_forget_tenant(q->api->auth, q->params[0]);
    if (!rc && !j) {
        rc = store_tenant_get(q, q->params[0], &now, err);
        if (!rc)
            rc = noun_refused(now, match, "tenant", q->params[0], "the tenant was changed", err);
        json_decref(now);
    }
    return rc ? rc : req_reply(q, j, NULL, err);
}

int tenants_delete(struct api_req *q, struct sh_err *err)
{
    const char *match;
    char buf[24];
    json_t *j = NULL, *now = NULL;
    int rc = noun_path_tenant(q, q->params[0], err);

    if (!rc)
        rc = req_if_match(q, buf, &match, err);
    if (!rc)
        rc = store_tenant_delete(q, q->params[0], match, &j, err);
    if (!rc)
        auth_forget_tenant(q->api->auth, q->params[0]);
    if (!rc && !j) {
        rc = store_tenant_get(q, q->params[0], &now, err);
        if (!rc)
            rc = noun_refused(now, match, "tenant", q->params[0],
                              "the tenant has live jobs; cancel them first", err);
    }
    json_decref(now);
    json_decref(j);
    return rc;
}

int quota_get(struct api_req *q, struct sh_err *err)
{
    json_t *j = NULL;
    int rc = noun_path_tenant(q, q->params[0], err);

    if (!rc)
        rc = store_quota_get(q, q->params[0], &j, err);
    return noun_reply(q, rc, j, "tenant", q->params[0], err);
}

/* The whole object, with what holds where the body says nothing, as JSON text. */
static int read_quota(struct api_req *q, char **out, struct sh_err *err)
{
    json_t *body = noun_body(q, err), *j = NULL;
    int rc =
        body ? sh_fields_read(body, "", SH_QUOTA_FIELDS, SH_N_QUOTA_FIELDS, &j, err) : SH_E_NOMEM;

    if (!rc)
        rc = sh_json_dump(j, out, err);
    json_decref(body);
    json_decref(j);
    return rc;
}

int quota_put(struct api_req *q, struct sh_err *err)
{
    const char *match;
    char buf[24], *values = NULL;
    json_t *j = NULL, *now = NULL;
    int rc = noun_path_tenant(q, q->params[0], err);

    if (!rc)
        rc = read_quota(q, &values, err);
    if (!rc)
        rc = req_if_match(q, buf, &match, err);
    if (!rc)
        rc = store_quota_put(q, q->params[0], match, values, &j, err);
    if (!rc)
        auth_forget_tenant(q->api->auth, q->params[0]);
    if (!rc && !j) {
        rc = store_quota_get(q, q->params[0], &now, err);
        if (!rc)
            rc = noun_refused(now, match, "quota of tenant", q->params[0], "the quota was changed",
                              err);
        json_decref(now);
    }
    free(values);
    return rc ? rc : req_reply(q, j, NULL, err);
}
