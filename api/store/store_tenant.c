/* store_tenant.c - SQL for tenants and their quotas. */
#include "api/store/store.h"
#include "api/store/store_sql.h"

/* clang-format off */
static const struct db_stmt TENANT_ID = {
    "tenant_id",
    "SELECT id FROM tenant WHERE name = $1 AND state <> 'DELETED'",
    1,
};

static const struct db_stmt TENANT_LIST = {
    "tenant_list",
    "SELECT t.id, " SQL_TENANT("t") " FROM tenant t WHERE t.state <> 'DELETED' AND ($1::bigint "
    "IS NULL OR t.id > $1::bigint) ORDER BY t.id LIMIT $2::bigint + 1",
    2,
};

static const struct db_stmt TENANT_CREATE = {
    "tenant_create",
    "WITH t AS (INSERT INTO tenant (name) VALUES ($1) RETURNING *), "
    "q AS (INSERT INTO quota (tenant_id) "
    "SELECT id FROM t), " SQL_AUDIT("$2", "$3", "tenant.create", "t.id", "'tenant/' || t.name",
    "NULL", SQL_TENANT("t"), "t")
    "SELECT " SQL_TENANT("t") " FROM t",
    3,
};

static const struct db_stmt TENANT_GET = {
    "tenant_get",
    "SELECT " SQL_TENANT("t") " FROM tenant t WHERE t.name = $1 AND t.state <> 'DELETED'",
    1,
};

static const struct db_stmt TENANT_PATCH = {
    "tenant_patch",
    "WITH o AS (SELECT * FROM tenant WHERE name = $1 AND state <> 'DELETED' AND " SQL_IF_MATCH(
    "$2", "row_version") " FOR UPDATE), "
    "t AS (UPDATE tenant x SET state = $3, row_version = x.row_version + 1 FROM o WHERE x.id = "
    "o.id RETURNING x.*), " SQL_AUDIT("$4", "$5", "tenant.patch", "t.id", "'tenant/' || t.name",
    SQL_TENANT("o"), SQL_TENANT("t"), "t, o")
    "SELECT " SQL_TENANT("t") ", pg_notify('shunt_keys', '') FROM t",
    5,
};

/* Its keys, queues, datasets and models go with it; the scheduler unloads them. */
static const struct db_stmt TENANT_DELETE = {
    "tenant_delete",
    "WITH o AS (SELECT * FROM tenant WHERE name = $1 AND state <> 'DELETED' AND " SQL_IF_MATCH(
    "$2", "row_version") " AND NOT EXISTS (SELECT 1 FROM job j WHERE j.tenant_id = tenant.id AND "
    "j.state NOT IN " SQL_FINAL ") FOR UPDATE), "
    "t AS (UPDATE tenant x SET state = 'DELETED', row_version = x.row_version + 1 FROM o WHERE "
    "x.id = o.id RETURNING x.*), "
    "k AS (UPDATE api_key y SET revoked_at = now() FROM o WHERE y.tenant_id = o.id AND "
    "y.revoked_at IS NULL), "
    "u AS (UPDATE queue y SET state = 'DRAINING', deleted_at = now(), row_version = y.row_version "
    "+ 1 FROM o WHERE y.tenant_id = o.id AND y.deleted_at IS NULL), "
    "d AS (UPDATE dataset y SET state = 'DELETED', row_version = y.row_version + 1 FROM o WHERE "
    "y.tenant_id = o.id AND y.state <> 'DELETED'), "
    /* FROM t: the tenant's state comes first, so that aliases keep no version (0024_alias.sql). */
    "v AS (UPDATE model_version y SET state = 'DELETED', row_version = y.row_version + 1 FROM t, "
    "model m WHERE m.tenant_id = t.id AND y.model_id = m.id AND y.state <> 'DELETED'), "
    "m AS (UPDATE model y SET deleted_at = now(), row_version = y.row_version + 1 FROM o WHERE "
    "y.tenant_id = o.id AND y.deleted_at IS NULL), " SQL_AUDIT("$3", "$4", "tenant.delete", "t.id"
    , "'tenant/' || t.name", SQL_TENANT("o"), "NULL", "t, o")
    "SELECT " SQL_TENANT("t") ", pg_notify('shunt_keys', ''), pg_notify('shunt_models', '') FROM "
    "t",
    4,
};

#define SQL_QUOTA(q) "(to_jsonb(" q ".*) - 'tenant_id')"

static const struct db_stmt QUOTA_GET = {
    "quota_get",
    "SELECT " SQL_QUOTA("q") " FROM quota q JOIN tenant t ON t.id = q.tenant_id WHERE t.name = "
    "$1 AND t.state <> 'DELETED'",
    1,
};

static const struct db_stmt QUOTA_LOCK = {
    "quota_lock",
    "SELECT FROM quota WHERE tenant_id = $1::bigint FOR NO KEY UPDATE",
    1,
};

/* The values come as one JSON object: jsonb_populate_record turns it into a row. */
static const struct db_stmt QUOTA_PUT = {
    "quota_put",
    "WITH o AS (SELECT q.* FROM quota q JOIN tenant t ON t.id = q.tenant_id WHERE t.name = $1 "
    "AND t.state <> 'DELETED' AND " SQL_IF_MATCH("$2", "q.row_version") " FOR UPDATE OF q), "
    "n AS (SELECT (jsonb_populate_record(NULL::quota, $3::jsonb)).*), "
    "q AS (UPDATE quota x SET "
#define QUOTA(name, ...) #name " = n." #name ", "
#include "common/quota.def"
#undef QUOTA
    "row_version = x.row_version + 1 FROM o, n WHERE "
    "x.tenant_id = o.tenant_id RETURNING x.*), " SQL_AUDIT("$4", "$5", "quota.put", "q.tenant_id",
    "'tenant/' || $1 || '/quota'", SQL_QUOTA("o"), SQL_QUOTA("q"), "q, o")
    "SELECT " SQL_QUOTA("q") ", pg_notify('shunt_keys', '') FROM q",
    5,
};
/* clang-format on */

int store_tenant_id(struct db *db, const char *name, int64_t *out, struct sh_err *err)
{
    struct db_res *res = NULL;
    int rc = db_exec(db, &TENANT_ID, (const char *[]){name}, &res, err);

    *out = 0;
    if (!rc && db_rows(res) == 0)
        rc = SH_FAIL(err, SH_E_NOTFOUND, "there is no tenant \"%s\"", name);
    if (!rc)
        *out = db_i64(res, 0, 0, 0);
    db_res_free(res);
    return rc;
}

int store_tenant_list(struct api_req *q, const struct req_page *page, json_t **out,
                      struct sh_err *err)
{
    const char *p[] = {page->cursor, page->limit_text};

    return store_page(q->db, &TENANT_LIST, p, page, out, err);
}

int store_tenant_create(struct api_req *q, const char *name, json_t **out, struct sh_err *err)
{
    const char *p[] = {name, q->who.key_id, q->request_id};

    return store_one(q->db, &TENANT_CREATE, p, out, err);
}

int store_tenant_get(struct api_req *q, const char *name, json_t **out, struct sh_err *err)
{
    return store_one(q->db, &TENANT_GET, (const char *[]){name}, out, err);
}

int store_tenant_patch(struct api_req *q, const char *name, const char *if_match, const char *state,
                       json_t **out, struct sh_err *err)
{
    const char *p[] = {name, if_match, state, q->who.key_id, q->request_id};

    return store_one(q->db, &TENANT_PATCH, p, out, err);
}

int store_tenant_delete(struct api_req *q, const char *name, const char *if_match, json_t **out,
                        struct sh_err *err)
{
    const char *p[] = {name, if_match, q->who.key_id, q->request_id};

    return store_one(q->db, &TENANT_DELETE, p, out, err);
}

int store_quota_get(struct api_req *q, const char *tenant, json_t **out, struct sh_err *err)
{
    return store_one(q->db, &QUOTA_GET, (const char *[]){tenant}, out, err);
}

int store_quota_lock(struct db *db, int64_t tenant_id, struct sh_err *err)
{
    return db_exec(db, &QUOTA_LOCK, (const char *[]){STORE_TEXT(tenant_id)}, NULL, err);
}

int store_quota_put(struct api_req *q, const char *tenant, const char *if_match, const char *values,
                    json_t **out, struct sh_err *err)
{
    const char *p[] = {tenant, if_match, values, q->who.key_id, q->request_id};

    return store_one(q->db, &QUOTA_PUT, p, out, err);
}
