/* keys.c - a tenant's API keys. */
#include "api/api.h"
#include "api/cache/auth.h"
#include "api/handlers.h"
#include "api/request/noun.h"
#include "api/store/store.h"
#include "common/mem.h"

#include <stdio.h>

#define MAX_OVERLAP_S (30 * 86400)

int keys_list(struct api_req *q, struct sh_err *err)
{
    struct req_page page;
    json_t *j = NULL, *tenant = NULL;
    int rc = noun_path_tenant(q, q->params[0], err);

    if (!rc)
        rc = req_page(q, &page, err);
    if (!rc)
        rc = store_tenant_get(q, q->params[0], &tenant, err);
    if (!rc && !tenant)
        rc = noun_missing("tenant", q->params[0], err);
    json_decref(tenant);
    if (!rc)
        rc = store_key_list(q, q->params[0], &page, &j, err);
    return noun_page_reply(q, rc, j, err);
}

/* Why no key was made. */
static int not_made(struct api_req *q, struct sh_err *err)
{
    int64_t id;
    int rc = store_tenant_id(q->db, q->params[0], &id, err);

    return rc ? rc
              : SH_FAIL(err, SH_E_QUOTA, "a tenant has at most %d live keys; revoke one",
                        STORE_MAX_KEYS);
}

int keys_create(struct api_req *q, struct sh_err *err)
{
    struct auth_new_key made;
    struct store_key k = {.tenant = q->params[0], .id = made.id, .hash_hex = made.hash_hex};
    char location[160];
    struct sh_json_field f[] = {
        {"name", SH_JSON_STR, &k.name, .required = true, .min = 1, .max = 64},
        {"role", SH_JSON_STR, &k.role, .required = true},
        {"expires_at", SH_JSON_STR, &k.expires_at, .max = 35},
    };
    json_t *j = NULL;
    int rc = noun_path_tenant(q, q->params[0], err);

    if (!rc)
        rc = noun_read(q, "", f, SH_ARRAY_LEN(f), err);
    if (!rc)
        rc = noun_check_choice("role", k.role, SH_KEY_ROLES, err);
    if (!rc && k.expires_at)
        rc = noun_check_future("expires_at", k.expires_at, err);
    if (!rc)
        rc = auth_make_key(NULL, &made, err);
    if (!rc)
        rc = store_key_create(q->db, q->who.key_id, q->request_id, &k, &j, err);
    if (!rc && !j)
        rc = not_made(q, err);
    if (!rc && json_object_set_new(j, "key", q->dry_run ? json_null() : json_string(made.text)))
        rc = SH_FAIL(err, SH_E_NOMEM, "could not allocate the reply");
    if (rc) {
        json_decref(j);
        return rc;
    }
    q->reply.secret = "key";
    snprintf(location, sizeof(location), "/api/v1/tenants/%s/keys/%s", q->params[0], made.id);
    return req_reply(q, j, location, err);
}

int keys_whoami(struct api_req *q, struct sh_err *err)
{
    const char *role = auth_role_name(q->who.role);
    json_t *j = json_pack("{s:s, s:s?, s:s?, s:b}", "key", q->who.key_id, "role", role, "tenant",
                          q->who.tenant[0] ? q->who.tenant : NULL, "suspended", q->who.suspended);

    return j ? req_reply(q, j, NULL, err)
             : SH_FAIL(err, SH_E_NOMEM, "could not allocate the reply");
}

int keys_get(struct api_req *q, struct sh_err *err)
{
    json_t *j = NULL;
    int rc = noun_path_tenant(q, q->params[0], err);

    if (!rc)
        rc = store_key_get(q, q->params[0], q->params[1], &j, err);
    return noun_reply(q, rc, j, "key", q->params[1], err);
}

/* Why a key cannot be rotated. */
static int not_live(struct api_req *q, struct sh_err *err)
{
    json_t *now = NULL;
    int rc = store_key_get(q, q->params[0], q->params[1], &now, err);

    if (!rc && !now)
        rc = noun_missing("key", q->params[1], err);
    else if (!rc)
        rc = SH_FAIL(err, SH_E_CONFLICT, "the key %s; create a new one",
                     json_is_null(json_object_get(now, "revoked_at")) ? "has expired"
                                                                      : "was revoked");
    json_decref(now);
    return rc;
}

int keys_rotate(struct api_req *q, struct sh_err *err)
{
    struct auth_new_key made;
    struct store_key k = {.tenant = q->params[0], .id = made.id, .hash_hex = made.hash_hex};
    int64_t overlap_s = 0;
    struct sh_json_field f[] = {
        {"overlap_s", SH_JSON_INT, &overlap_s, .min = 0, .max = MAX_OVERLAP_S},
    };
    json_t *j = NULL;
    int rc = noun_path_tenant(q, q->params[0], err);

    if (!rc)
        rc = noun_read(q, "", f, SH_ARRAY_LEN(f), err);
    if (!rc && strlen(q->params[1]) != AUTH_ID_CHARS)
        rc = noun_missing("key", q->params[1], err);
    if (!rc)
        rc = auth_make_key(q->params[1], &made, err);
    if (!rc)
        rc = store_key_rotate(q, &k, overlap_s, &j, err);
    if (!rc && !j)
        rc = not_live(q, err);
    if (!rc)
        auth_forget(q->api->auth, made.id);
    if (!rc && json_object_set_new(j, "key", q->dry_run ? json_null() : json_string(made.text)))
        rc = SH_FAIL(err, SH_E_NOMEM, "could not allocate the reply");
    if (rc) {
        json_decref(j);
        return rc;
    }
    return req_reply(q, j, NULL, err);
}

int keys_delete(struct api_req *q, struct sh_err *err)
{
    json_t *j = NULL;
    int rc = noun_path_tenant(q, q->params[0], err);

    if (!rc)
        rc = store_key_revoke(q, q->params[0], q->params[1], &j, err);
    if (!rc && !j)
        rc = noun_missing("key", q->params[1], err);
    if (!rc)
        auth_forget(q->api->auth, q->params[1]);
    json_decref(j);
    return rc;
}
