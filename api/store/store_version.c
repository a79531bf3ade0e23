/* store_version.c - SQL for model versions. */
#include "api/store/store.h"
#include "api/store/store_sql.h"
#include "common/mem.h"

#define NUMBER_TRIES 5

/* clang-format off */
#define SQL_VISIBLE_VERSION(tenant, model)                                                         \
    "model_version v JOIN (SELECT * FROM model WHERE name = " model                                \
    " AND deleted_at IS NULL AND (tenant_id = " tenant "::bigint OR visibility = 'shared') "       \
    "ORDER BY tenant_id = " tenant "::bigint DESC, id LIMIT 1) m ON m.id = v.model_id"

/* An upload may be sent while nothing was ever registered. */
#define SQL_OPEN(v)                                                                                \
    "(" v ".state = 'UPLOADING' OR (" v ".state = 'FAILED' AND " v ".package IS NULL))"

static const struct db_stmt VERSION_LIST = {
    "version_list",
    "SELECT v.id, " SQL_VERSION("v") " FROM " SQL_VISIBLE_VERSION("$1", "$2") " WHERE v.state <> "
    "'DELETED' AND ($3::bigint IS NULL OR v.id > $3::bigint) ORDER BY v.id LIMIT $4::bigint + 1",
    4,
};

static const struct db_stmt VERSION_GET = {
    "version_get",
    "SELECT " SQL_VERSION("v") " FROM " SQL_VISIBLE_VERSION("$1", "$2")
    " WHERE v.version = $3::int AND v.state <> 'DELETED'",
    3,
};

/* Grows the row version of its model: one that was seen empty can be deleted as such. Until the
 * file comes, meta says whether somebody chose max_batch, and buckets. */
static const struct db_stmt VERSION_CREATE = {
    "version_create",
    "WITH m AS (SELECT id, tenant_id, name FROM model WHERE tenant_id = $1::bigint AND name = $2 "
    "AND deleted_at IS NULL FOR UPDATE), "
    "n AS (UPDATE model x SET row_version = x.row_version + 1 FROM m WHERE x.id = m.id), "
    "v AS (INSERT INTO model_version (model_id, version, max_batch, precision, meta) "
    "SELECT m.id, coalesce($3::int, (SELECT coalesce(max(y.version), 0) + 1 FROM model_version y "
    "WHERE y.model_id = m.id)), coalesce($4::int, 8), $5, CASE WHEN $4::int IS NULL THEN '{}' ELSE "
    "'{\"max_batch_named\": true}'::jsonb END || CASE WHEN $8::jsonb IS NULL THEN '{}' ELSE "
    "jsonb_build_object('buckets', $8::jsonb) END FROM m RETURNING *), " SQL_AUDIT("$6", "$7",
    "version.create", "m.tenant_id", "'model/' || m.name || '/versions/' || v.version", "NULL",
    "to_jsonb(v.*)", "v, m")
    "SELECT " SQL_VERSION("v") ", pg_notify('shunt_models', '') FROM v",
    8,
};

static const struct db_stmt VERSION_DELETE = {
    "version_delete",
    "WITH o AS (SELECT v.*, m.tenant_id, m.name FROM model_version v JOIN model m ON m.id = "
    "v.model_id WHERE m.tenant_id = $1::bigint AND m.name = $2 AND m.deleted_at IS NULL AND "
    "v.version = $3::int AND v.state <> 'DELETED' AND NOT v.pinned AND " SQL_IF_MATCH("$4",
    "v.row_version")
    " AND NOT EXISTS (SELECT 1 FROM job j WHERE j.version_id = v.id AND j.state NOT IN " SQL_FINAL
    ") FOR UPDATE OF v), "
    "v AS (UPDATE model_version x SET state = 'DELETED', row_version = x.row_version + 1 FROM o "
    "WHERE x.id = o.id RETURNING x.*), " SQL_AUDIT("$5", "$6", "version.delete", "o.tenant_id",
    "'model/' || o.name || '/versions/' || o.version", "to_jsonb(o.*)", "NULL", "v, o")
    "SELECT to_jsonb(v.*), pg_notify('shunt_models', '') FROM v",
    6,
};

static const struct db_stmt VERSION_SLOT = {
    "version_slot",
    "SELECT v.id, v.state, " SQL_OPEN("v") ", " SQL_STORED("$1::bigint")
    ", qt.max_storage_bytes, v.row_version, " SQL_LINGERS("$1::bigint")
    ", CASE WHEN v.meta ? 'max_batch_named' THEN v.max_batch "
    "END, v.meta ->> 'buckets' FROM model_version v JOIN "
    "model m ON m.id = v.model_id JOIN quota qt ON qt.tenant_id = m.tenant_id WHERE m.tenant_id "
    "= $1::bigint AND m.name = $2 AND m.deleted_at IS NULL AND v.version = $3::int AND v.state "
    "<> 'DELETED'",
    3,
};

static const struct db_stmt VERSION_REGISTER = {
    "version_register",
    "WITH o AS (SELECT * FROM model_version x WHERE x.id = $1::bigint AND " SQL_OPEN("x") " AND "
    SQL_IF_MATCH("$10", "x.row_version") " FOR UPDATE), "
    "v AS (UPDATE model_version x SET state = 'REGISTERED', reason_code = NULL, reason = "
    "NULL, digest = $2, bytes = $3::bigint, package = $4, inputs = $5::jsonb, outputs = "
    "$6::jsonb, meta = $7::jsonb, max_batch = coalesce($11::int, x.max_batch), row_version = "
    "x.row_version + 1 FROM o WHERE x.id = o.id "
    "RETURNING x.*), " SQL_AUDIT("$8", "$9", "version.upload", "m.tenant_id",
    "'model/' || m.name || '/versions/' || v.version", "jsonb_build_object('state', o.state)",
    "jsonb_build_object('state', v.state, 'digest', v.digest, 'bytes', v.bytes)",
    "v JOIN o ON o.id = v.id JOIN model m ON m.id = v.model_id")
    "SELECT " SQL_VERSION("v") ", pg_notify('shunt_models', '') FROM v",
    11,
};

static const struct db_stmt VERSION_FAIL = {
    "version_fail",
    "WITH o AS (SELECT * FROM model_version x WHERE x.id = $1::bigint AND " SQL_OPEN("x") " FOR "
    "UPDATE), "
    "v AS (UPDATE model_version x SET state = 'FAILED', reason_code = $2, reason = $3, "
    "row_version = x.row_version + 1 FROM o WHERE x.id = o.id RETURNING x.*), " SQL_AUDIT("$4",
    "$5", "version.refuse", "m.tenant_id", "'model/' || m.name || '/versions/' || v.version",
    "jsonb_build_object('state', o.state)",
    "jsonb_build_object('state', v.state, 'code', v.reason_code, 'reason', v.reason)",
    "v JOIN o ON o.id = v.id JOIN model m ON m.id = v.model_id")
    "SELECT " SQL_VERSION("v") ", pg_notify('shunt_models', '') FROM v",
    5,
};
/* clang-format on */

int store_version_list(struct api_req *q, const char *model, const struct req_page *page,
                       json_t **out, struct sh_err *err)
{
    const char *p[] = {STORE_TEXT(q->tenant_id), model, page->cursor, page->limit_text};

    return store_page(q->db, &VERSION_LIST, p, page, out, err);
}

int store_version_get(struct api_req *q, const char *model, const char *version, json_t **out,
                      struct sh_err *err)
{
    const char *p[] = {STORE_TEXT(q->tenant_id), model, version};

    return store_one(q->db, &VERSION_GET, p, out, err);
}

int store_version_create(struct api_req *q, const struct store_version_new *v, json_t **out,
                         struct sh_err *err)
{
    const char *p[] = {STORE_TEXT(q->tenant_id),
                       v->model,
                       v->version > 0 ? STORE_TEXT(v->version) : NULL,
                       v->max_batch > 0 ? STORE_TEXT(v->max_batch) : NULL,
                       v->precision,
                       q->who.key_id,
                       q->request_id,
                       v->buckets};

    for (int i = 1;; i++) {
        struct sh_err one = {0};
        int rc = store_one(q->db, &VERSION_CREATE, p, out, &one);

        /* Another request took the next number in the same moment. */
        if (rc == SH_E_CONFLICT && v->version <= 0 && i < NUMBER_TRIES)
            continue;
        return rc ? sh_err_copy(err, &one) : SH_OK;
    }
}

int store_version_delete(struct api_req *q, const char *model, const char *version,
                         const char *if_match, json_t **out, struct sh_err *err)
{
    const char *p[] = {
        STORE_TEXT(q->tenant_id), model, version, if_match, q->who.key_id, q->request_id};

    return store_one(q->db, &VERSION_DELETE, p, out, err);
}

int store_version_slot(struct api_req *q, const char *model, const char *version,
                       struct store_slot *out, struct sh_err *err)
{
    const char *p[] = {STORE_TEXT(q->tenant_id), model, version};

    return store_slot(q->db, &VERSION_SLOT, p, out, err);
}

int store_version_register(struct api_req *q, const struct store_artifact *a, json_t **out,
                           struct sh_err *err)
{
    const char *p[] = {STORE_TEXT(a->id),
                       a->digest,
                       STORE_TEXT(a->bytes),
                       a->path,
                       a->inputs,
                       a->outputs,
                       a->meta,
                       q->who.key_id,
                       q->request_id,
                       a->if_match,
                       a->max_batch > 0 ? STORE_TEXT(a->max_batch) : NULL};

    return store_one(q->db, &VERSION_REGISTER, p, out, err);
}

int store_version_fail(struct api_req *q, int64_t id, const char *code, const char *reason,
                       struct sh_err *err)
{
    const char *p[] = {STORE_TEXT(id), code, reason, q->who.key_id, q->request_id};

    return db_exec(q->db, &VERSION_FAIL, p, NULL, err);
}
