/* store_dataset.c - SQL for datasets. */
#include "api/store/store.h"
#include "api/store/store_sql.h"
#include "common/mem.h"

/* clang-format off */
static const struct db_stmt DATASET_LIST = {
    "dataset_list",
    "SELECT d.id, " SQL_DATASET("d") " FROM dataset d WHERE d.tenant_id = $1::bigint AND d.state "
    "<> 'DELETED' AND ($2::bigint IS NULL OR d.id > $2::bigint) ORDER BY d.id LIMIT $3::bigint + "
    "1",
    3,
};

static const struct db_stmt DATASET_GET = {
    "dataset_get",
    "SELECT " SQL_DATASET("d") " FROM dataset d WHERE d.tenant_id = $1::bigint AND d.name = $2 "
    "AND d.state <> 'DELETED'",
    2,
};

static const struct db_stmt DATASET_CREATE = {
    "dataset_create",
    "WITH d AS (INSERT INTO dataset (tenant_id, name) VALUES ($1::bigint, $2) RETURNING *), "
    SQL_AUDIT("$3", "$4", "dataset.create", "d.tenant_id", "'dataset/' || d.name", "NULL",
    SQL_DATASET("d"), "d")
    "SELECT " SQL_DATASET("d") " FROM d",
    4,
};

static const struct db_stmt DATASET_DELETE = {
    "dataset_delete",
    "WITH o AS (SELECT * FROM dataset WHERE tenant_id = $1::bigint AND name = $2 AND state <> "
    "'DELETED' AND " SQL_IF_MATCH("$3", "row_version") " AND NOT EXISTS (SELECT 1 FROM job j "
    "WHERE (j.dataset_id = dataset.id OR j.eval_dataset_id = dataset.id) AND j.state NOT IN "
    SQL_FINAL ") FOR UPDATE), "
    "d AS (UPDATE dataset x SET state = 'DELETED', row_version = x.row_version + 1 FROM o WHERE "
    "x.id = o.id RETURNING x.*), " SQL_AUDIT("$4", "$5", "dataset.delete", "d.tenant_id",
    "'dataset/' || d.name", SQL_DATASET("o"), "NULL", "d, o")
    "SELECT to_jsonb(d.*) FROM d",
    5,
};

static const struct db_stmt DATASET_SLOT = {
    "dataset_slot",
    "SELECT d.id, d.state, d.state = 'UPLOADING', " SQL_STORED("$1::bigint")
    ", qt.max_storage_bytes, d.row_version, " SQL_LINGERS("$1::bigint")
    " FROM dataset d JOIN quota qt ON qt.tenant_id = d.tenant_id WHERE d.tenant_id = $1::bigint "
    "AND d.name = $2 AND d.state <> 'DELETED'",
    2,
};

static const struct db_stmt DATASET_READY = {
    "dataset_ready",
    "WITH o AS (SELECT * FROM dataset x WHERE x.id = $1::bigint AND x.state = 'UPLOADING' AND "
    SQL_IF_MATCH("$9", "x.row_version") " FOR UPDATE), "
    "d AS (UPDATE dataset x SET state = 'READY', digest = $2, bytes = $3::bigint, path = $4,"
    " tensors = $5::jsonb, n_samples = $6::bigint, row_version = x.row_version + 1 FROM o WHERE "
    "x.id = o.id RETURNING x.*), " SQL_AUDIT("$7", "$8", "dataset.upload", "d.tenant_id",
    "'dataset/' || d.name", "jsonb_build_object('state', o.state)",
    "jsonb_build_object('state', d.state, 'digest', d.digest, 'bytes', d.bytes)", "d, o")
    "SELECT " SQL_DATASET("d") " FROM d",
    9,
};
/* clang-format on */

int store_dataset_list(struct api_req *q, const struct req_page *page, json_t **out,
                       struct sh_err *err)
{
    const char *p[] = {STORE_TEXT(q->tenant_id), page->cursor, page->limit_text};

    return store_page(q->db, &DATASET_LIST, p, page, out, err);
}

int store_dataset_get(struct api_req *q, const char *name, json_t **out, struct sh_err *err)
{
    const char *p[] = {STORE_TEXT(q->tenant_id), name};

    return store_one(q->db, &DATASET_GET, p, out, err);
}

int store_dataset_create(struct api_req *q, const char *name, json_t **out, struct sh_err *err)
{
    const char *p[] = {STORE_TEXT(q->tenant_id), name, q->who.key_id, q->request_id};

    return store_one(q->db, &DATASET_CREATE, p, out, err);
}

int store_dataset_delete(struct api_req *q, const char *name, const char *if_match, json_t **out,
                         struct sh_err *err)
{
    const char *p[] = {STORE_TEXT(q->tenant_id), name, if_match, q->who.key_id, q->request_id};

    return store_one(q->db, &DATASET_DELETE, p, out, err);
}

int store_dataset_slot(struct api_req *q, const char *name, struct store_slot *out,
                       struct sh_err *err)
{
    const char *p[] = {STORE_TEXT(q->tenant_id), name};

    return store_slot(q->db, &DATASET_SLOT, p, out, err);
}

int store_dataset_ready(struct api_req *q, const struct store_artifact *a, json_t **out,
                        struct sh_err *err)
{
    const char *p[] = {STORE_TEXT(a->id), a->digest,     STORE_TEXT(a->bytes),
                       a->path,           a->inputs,     STORE_TEXT(a->n_samples),
                       q->who.key_id,     q->request_id, a->if_match};

    return store_one(q->db, &DATASET_READY, p, out, err);
}
