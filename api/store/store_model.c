/* store_model.c - SQL for models and their latency targets. */
#include "api/store/store.h"
#include "api/store/store_sql.h"

#include <stdio.h>

/* clang-format off */
/* A tenant's own model hides a shared one of the same name; of several shared ones the oldest. */
#define SQL_VISIBLE(tenant, model)                                                                 \
    "SELECT * FROM model WHERE name = " model " AND deleted_at IS NULL AND (tenant_id = "          \
    tenant "::bigint OR visibility = 'shared') ORDER BY tenant_id = " tenant                       \
    "::bigint DESC, id LIMIT 1"

static const struct db_stmt MODEL_LIST = {
    "model_list",
    "SELECT m.id, " SQL_MODEL("m") " FROM model m WHERE m.deleted_at IS NULL AND (m.tenant_id = "
    "$1::bigint OR m.visibility = 'shared') AND ($2::bigint IS NULL OR m.id > $2::bigint) ORDER "
    "BY m.id LIMIT $3::bigint + 1",
    3,
};

static const struct db_stmt MODEL_GET = {
    "model_get",
    "SELECT " SQL_MODEL("m") " FROM (" SQL_VISIBLE("$1", "$2") ") m",
    2,
};

static const struct db_stmt MODEL_CREATE = {
    "model_create",
    "WITH m AS (INSERT INTO model (tenant_id, name, visibility) VALUES ($1::bigint, $2, $3) "
    "RETURNING *), " SQL_AUDIT("$4", "$5", "model.create", "m.tenant_id", "'model/' || m.name",
    "NULL", "to_jsonb(m.*)", "m")
    "SELECT " SQL_MODEL("m") ", pg_notify('shunt_models', '') FROM m",
    5,
};

static const struct db_stmt MODEL_PATCH = {
    "model_patch",
    "WITH o AS (SELECT * FROM model WHERE tenant_id = $1::bigint AND name = $2 AND deleted_at IS "
    "NULL AND " SQL_IF_MATCH("$3", "row_version") " FOR UPDATE), "
    "m AS (UPDATE model x SET visibility = $4, row_version = x.row_version + 1 FROM o WHERE x.id = "
    "o.id RETURNING x.*), " SQL_AUDIT("$5", "$6", "model.patch", "m.tenant_id",
    "'model/' || m.name", "to_jsonb(o.*)", "to_jsonb(m.*)", "m, o")
    "SELECT " SQL_MODEL("m") ", pg_notify('shunt_models', '') FROM m",
    6,
};

#define SQL_USED(model)                                                                            \
    "EXISTS (SELECT 1 FROM job j JOIN model_version v ON v.id = j.version_id WHERE v.model_id "    \
    "= " model " AND j.state NOT IN " SQL_FINAL ") OR EXISTS (SELECT 1 FROM model_version y "      \
    "WHERE y.model_id = " model " AND y.pinned)"

static const struct db_stmt MODEL_DELETE = {
    "model_delete",
    "WITH o AS (SELECT * FROM model WHERE tenant_id = $1::bigint AND name = $2 AND deleted_at IS "
    "NULL AND " SQL_IF_MATCH("$3", "row_version") " AND NOT (" SQL_USED("model.id")
    ") FOR UPDATE), "
    "m AS (UPDATE model x SET deleted_at = now(), row_version = x.row_version + 1 FROM o WHERE "
    "x.id = o.id RETURNING x.*), "
    /* FROM m: the model goes first, so that its aliases keep no version (0024_alias.sql). */
    "v AS (UPDATE model_version y SET state = 'DELETED', row_version = y.row_version + 1 FROM m "
    "WHERE y.model_id = m.id AND y.state <> 'DELETED'), "
    "s AS (DELETE FROM slo y USING o WHERE y.model_id = o.id), " SQL_AUDIT("$4", "$5",
    "model.delete", "m.tenant_id", "'model/' || m.name", "to_jsonb(o.*)", "NULL", "m, o")
    "SELECT to_jsonb(m.*), pg_notify('shunt_models', '') FROM m",
    5,
};

static const struct db_stmt SLO_GET = {
    "slo_get",
    "SELECT " SQL_SLO("s") " FROM slo s JOIN (" SQL_VISIBLE("$1", "$2") ") m ON m.id = s.model_id",
    2,
};

/* If-Match with no target yet matches nothing: the insert is then left out. */
static const struct db_stmt SLO_PUT = {
    "slo_put",
    "WITH m AS (SELECT id, tenant_id, name FROM model WHERE tenant_id = $1::bigint AND name = $2 "
    "AND deleted_at IS NULL FOR UPDATE), "
    "o AS (SELECT s.* FROM slo s JOIN m ON m.id = s.model_id), "
    "s AS (INSERT INTO slo AS x (model_id, latency_ms, percentile, priority, on_miss) "
    "SELECT m.id, $4::float8, $5::float8, $6::int, $7 FROM m WHERE $3::bigint IS NULL OR EXISTS "
    "(SELECT 1 FROM o WHERE o.row_version = $3::bigint) ON CONFLICT (model_id) DO UPDATE SET "
    "latency_ms = excluded.latency_ms, percentile = excluded.percentile, priority = "
    "excluded.priority, on_miss = excluded.on_miss, row_version = x.row_version + 1 RETURNING "
    "x.*), " SQL_AUDIT("$8", "$9", "slo.put", "m.tenant_id", "'model/' || m.name || '/slo'",
    "to_jsonb(o.*)", "to_jsonb(s.*)", "m JOIN s ON s.model_id = m.id LEFT JOIN o ON true")
    "SELECT " SQL_SLO("s") ", pg_notify('shunt_models', '') FROM s",
    9,
};

static const struct db_stmt THINGS = {
    "things",
    "SELECT CASE $2 WHEN 'models' THEN (SELECT count(*) FROM model x WHERE x.tenant_id = "
    "$1::bigint AND x.deleted_at IS NULL) WHEN 'versions' THEN (SELECT count(*) FROM "
    "model_version x JOIN model m ON m.id = x.model_id WHERE m.tenant_id = $1::bigint AND x.state "
    "<> 'DELETED') ELSE (SELECT count(*) FROM dataset x WHERE x.tenant_id = $1::bigint AND "
    "x.state <> 'DELETED') END",
    2,
};

static const struct db_stmt SLO_DELETE = {
    "slo_delete",
    "WITH s AS (DELETE FROM slo x USING model m WHERE m.id = x.model_id AND m.tenant_id = "
    "$1::bigint AND m.name = $2 AND m.deleted_at IS NULL AND " SQL_IF_MATCH("$3", "x.row_version")
    " RETURNING x.*), " SQL_AUDIT("$4", "$5", "slo.delete", "$1::bigint",
    "'model/' || $2 || '/slo'", "to_jsonb(s.*)", "NULL", "s")
    "SELECT to_jsonb(s.*), pg_notify('shunt_models', '') FROM s",
    5,
};
/* clang-format on */

int store_model_list(struct api_req *q, const struct req_page *page, json_t **out,
                     struct sh_err *err)
{
    const char *p[] = {STORE_TEXT(q->tenant_id), page->cursor, page->limit_text};

    return store_page(q->db, &MODEL_LIST, p, page, out, err);
}

int store_model_get(struct api_req *q, const char *model, json_t **out, struct sh_err *err)
{
    const char *p[] = {STORE_TEXT(q->tenant_id), model};

    return store_one(q->db, &MODEL_GET, p, out, err);
}

int store_model_create(struct api_req *q, const char *model, const char *visibility, json_t **out,
                       struct sh_err *err)
{
    const char *p[] = {STORE_TEXT(q->tenant_id), model, visibility, q->who.key_id, q->request_id};

    return store_one(q->db, &MODEL_CREATE, p, out, err);
}

int store_model_patch(struct api_req *q, const char *model, const char *if_match,
                      const char *visibility, json_t **out, struct sh_err *err)
{
    const char *p[] = {
        STORE_TEXT(q->tenant_id), model, if_match, visibility, q->who.key_id, q->request_id};

    return store_one(q->db, &MODEL_PATCH, p, out, err);
}

int store_model_delete(struct api_req *q, const char *model, const char *if_match, json_t **out,
                       struct sh_err *err)
{
    const char *p[] = {STORE_TEXT(q->tenant_id), model, if_match, q->who.key_id, q->request_id};

    return store_one(q->db, &MODEL_DELETE, p, out, err);
}

int store_slo_get(struct api_req *q, const char *model, json_t **out, struct sh_err *err)
{
    const char *p[] = {STORE_TEXT(q->tenant_id), model};

    return store_one(q->db, &SLO_GET, p, out, err);
}

int store_slo_put(struct api_req *q, const char *model, const char *if_match,
                  const struct store_slo *s, json_t **out, struct sh_err *err)
{
    char latency[40], percentile[40];
    const char *p[] = {
        STORE_TEXT(q->tenant_id), model,      if_match,      latency,      percentile,
        STORE_TEXT(s->priority),  s->on_miss, q->who.key_id, q->request_id};

    snprintf(latency, sizeof(latency), "%.17g", s->latency_ms);
    snprintf(percentile, sizeof(percentile), "%.17g", s->percentile);
    return store_one(q->db, &SLO_PUT, p, out, err);
}

int store_slo_delete(struct api_req *q, const char *model, const char *if_match, json_t **out,
                     struct sh_err *err)
{
    const char *p[] = {STORE_TEXT(q->tenant_id), model, if_match, q->who.key_id, q->request_id};

    return store_one(q->db, &SLO_DELETE, p, out, err);
}

int store_has_place(struct api_req *q, enum store_thing what, struct sh_err *err)
{
    static const char *const NAMES[] = {
        [STORE_MODELS] = "models", [STORE_VERSIONS] = "versions", [STORE_DATASETS] = "datasets"};
    struct db_res *res = NULL;
    int rc =
        db_exec(q->db, &THINGS, (const char *[]){STORE_TEXT(q->tenant_id), NAMES[what]}, &res, err);

    if (!rc && db_i64(res, 0, 0, 0) >= STORE_MAX_THINGS)
        rc = SH_FAIL(err, SH_E_QUOTA, "a tenant has at most %d %s%s; delete what is not used",
                     STORE_MAX_THINGS, NAMES[what],
                     what == STORE_VERSIONS ? " of all its models" : "");
    db_res_free(res);
    return rc;
}
