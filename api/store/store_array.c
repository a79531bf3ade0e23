/* store_array.c - SQL for job arrays. Their jobs are rows like any other: store_submit.c creates
 * them, store_job.c acts on them. */
#include "api/store/store_job.h"
#include "api/store/store_sql.h"

/* clang-format off */
static const struct db_stmt ARRAY_LIST = {
    "array_list",
    "SELECT a.id, " SQL_ARRAY("a") " FROM job_array a WHERE a.tenant_id = $1::bigint AND "
    "($2::bigint IS NULL OR a.id < $2::bigint) ORDER BY a.id DESC LIMIT $3::bigint + 1",
    3,
};

static const struct db_stmt ARRAY_GET = {
    "array_get",
    "SELECT " SQL_ARRAY("a") " FROM job_array a WHERE a.tenant_id = $1::bigint AND a.id = "
    "$2::bigint",
    2,
};

static const struct db_stmt ARRAY_BY_TOKEN = {
    "array_by_token",
    "SELECT " SQL_ARRAY("a") " FROM job_array a WHERE a.tenant_id = $1::bigint AND a.client_token "
    "= $2",
    2,
};

static const struct db_stmt ARRAY_PATCH = {
    "array_patch",
    "WITH o AS (SELECT * FROM job_array WHERE tenant_id = $1::bigint AND id = $2::bigint AND "
    SQL_IF_MATCH("$3", "row_version") " FOR UPDATE), "
    "n AS (UPDATE job_array x SET max_parallel = $4::int, row_version = x.row_version + 1 FROM o "
    "WHERE x.id = o.id RETURNING x.*), " SQL_AUDIT("$5", "$6", "array.patch", "n.tenant_id",
    "'array/' || n.id", "jsonb_build_object('max_parallel', o.max_parallel)",
    "jsonb_build_object('max_parallel', n.max_parallel)", "n, o")
    "SELECT " SQL_ARRAY("n") " FROM n",
    6,
};
/* clang-format on */

int store_array_list(struct api_req *q, const struct req_page *page, json_t **out,
                     struct sh_err *err)
{
    const char *p[] = {STORE_TEXT(q->tenant_id), page->cursor, page->limit_text};

    return store_page(q->db, &ARRAY_LIST, p, page, out, err);
}

int store_array_get(struct api_req *q, const char *id, json_t **out, struct sh_err *err)
{
    const char *p[] = {STORE_TEXT(q->tenant_id), id};

    return store_one(q->db, &ARRAY_GET, p, out, err);
}

int store_array_by_token(struct api_req *q, const char *token, json_t **out, struct sh_err *err)
{
    const char *p[] = {STORE_TEXT(q->tenant_id), token};

    return store_one(q->db, &ARRAY_BY_TOKEN, p, out, err);
}

int store_array_patch(struct api_req *q, const char *id, const char *if_match,
                      const char *max_parallel, json_t **out, struct sh_err *err)
{
    const char *p[] = {
        STORE_TEXT(q->tenant_id), id, if_match, max_parallel, q->who.key_id, q->request_id};

    return store_one(q->db, &ARRAY_PATCH, p, out, err);
}
