/* store_queue.c - SQL for queues. A queue without a tenant is shared by all; live names are unique
 * among those that a tenant sees. */
#include "api/store/store_job.h"
#include "api/store/store_sql.h"
#include "common/mem.h"

/* clang-format off */
/* tenant: parameter, whose jobs are counted; NULL: everybody's. */
#define SQL_QUEUE(q, tenant)                                                                       \
    "jsonb_build_object('name', " q ".name, 'shared', " q ".tenant_id IS NULL, 'state', " q        \
    ".state, 'priority', " q ".priority, 'jobs', (SELECT count(*) FROM job j WHERE j.queue_id = "  \
    q ".id AND (" tenant "::bigint IS NULL OR j.tenant_id = " tenant "::bigint) AND j.state NOT "  \
    "IN " SQL_FINAL "), 'created_at', " SQL_TIME(q ".created_at") ", 'row_version', " q            \
    ".row_version)"
#define SQL_SEEN(q, tenant)                                                                        \
    "(" q ".deleted_at IS NULL AND (" q ".tenant_id IS NULL OR " q ".tenant_id = " tenant          \
    "::bigint))"
#define SQL_OWNED(q, name, tenant)                                                                 \
    "(" q ".deleted_at IS NULL AND " q ".name = " name " AND " q ".tenant_id IS NOT DISTINCT FROM "\
    tenant "::bigint)"

static const struct db_stmt QUEUE_LIST = {
    "queue_list",
    "SELECT q.id, " SQL_QUEUE("q", "$1") " FROM queue q WHERE " SQL_SEEN("q", "$1") " AND "
    "($2::bigint IS NULL OR q.id > $2::bigint) ORDER BY q.id LIMIT $3::bigint + 1",
    3,
};

static const struct db_stmt QUEUE_GET = {
    "queue_get",
    "SELECT " SQL_QUEUE("q", "$1") " FROM queue q WHERE " SQL_SEEN("q", "$1") " AND q.name = $2 "
    "ORDER BY q.tenant_id NULLS LAST LIMIT 1",
    2,
};

/* Two that are created at the same moment may go one above the limit: harmless. */
static const struct db_stmt QUEUE_CREATE = {
    "queue_create",
    "WITH q AS (INSERT INTO queue (tenant_id, name, state, priority) SELECT $1::bigint, $2, $3, "
    "$4::int WHERE NOT EXISTS (SELECT 1 FROM queue x WHERE x.name = $2 AND x.deleted_at IS NULL "
    "AND (x.tenant_id IS NULL OR $1::bigint IS NULL OR x.tenant_id = $1::bigint)) AND (SELECT "
    "count(*) FROM queue x WHERE x.tenant_id IS NOT DISTINCT FROM $1::bigint AND x.deleted_at IS "
    "NULL) < $5::bigint RETURNING *), " SQL_AUDIT("$6", "$7", "queue.create", "q.tenant_id",
    "'queue/' || q.name", "NULL", SQL_QUEUE("q", "$1"), "q")
    "SELECT " SQL_QUEUE("q", "$1") " FROM q",
    7,
};

static const struct db_stmt QUEUE_PATCH = {
    "queue_patch",
    "WITH o AS (SELECT * FROM queue x WHERE " SQL_OWNED("x", "$2", "$1") " AND " SQL_IF_MATCH("$3",
    "x.row_version") " FOR UPDATE), "
    "q AS (UPDATE queue x SET state = coalesce($4, x.state), priority = coalesce($5::int, "
    "x.priority), row_version = x.row_version + 1 FROM o WHERE x.id = o.id RETURNING x.*), "
    SQL_AUDIT("$6", "$7", "queue.patch", "q.tenant_id", "'queue/' || q.name", SQL_QUEUE("o", "$1"),
    SQL_QUEUE("q", "$1"), "q, o")
    "SELECT " SQL_QUEUE("q", "$1") " FROM q",
    7,
};

/* DRAINING, so that nothing new gets in; what has ended in it stays. */
static const struct db_stmt QUEUE_DELETE = {
    "queue_delete",
    "WITH o AS (SELECT * FROM queue x WHERE " SQL_OWNED("x", "$2", "$1") " AND " SQL_IF_MATCH("$3",
    "x.row_version") " AND NOT EXISTS (SELECT 1 FROM job j WHERE j.queue_id = x.id AND j.state NOT "
    "IN " SQL_FINAL ") FOR UPDATE), "
    "q AS (UPDATE queue x SET state = 'DRAINING', deleted_at = now(), row_version = x.row_version "
    "+ 1 FROM o WHERE x.id = o.id RETURNING x.*), " SQL_AUDIT("$4", "$5", "queue.delete",
    "q.tenant_id", "'queue/' || q.name", SQL_QUEUE("o", "$1"), "NULL", "q, o")
    "SELECT " SQL_QUEUE("q", "$1") " FROM q",
    5,
};
/* clang-format on */

/* NULL for 0, which is no tenant. */
#define TENANT_TEXT(id) ((id) ? STORE_TEXT(id) : NULL)

int store_queue_list(struct api_req *q, const struct req_page *page, json_t **out,
                     struct sh_err *err)
{
    const char *p[] = {TENANT_TEXT(q->tenant_id), page->cursor, page->limit_text};

    return store_page(q->db, &QUEUE_LIST, p, page, out, err);
}

int store_queue_get(struct api_req *q, const char *name, json_t **out, struct sh_err *err)
{
    const char *p[] = {TENANT_TEXT(q->tenant_id), name};

    return store_one(q->db, &QUEUE_GET, p, out, err);
}

int store_queue_create(struct api_req *q, const struct store_queue *x, json_t **out,
                       struct sh_err *err)
{
    const char *p[] = {TENANT_TEXT(x->tenant_id),
                       x->name,
                       x->state ? x->state : "OPEN",
                       STORE_TEXT(x->has_priority ? x->priority : 0),
                       STORE_TEXT(STORE_MAX_QUEUES),
                       q->who.key_id,
                       q->request_id};

    return store_one(q->db, &QUEUE_CREATE, p, out, err);
}

int store_queue_patch(struct api_req *q, const struct store_queue *x, const char *if_match,
                      json_t **out, struct sh_err *err)
{
    const char *p[] = {TENANT_TEXT(x->tenant_id),
                       x->name,
                       if_match,
                       x->state,
                       x->has_priority ? STORE_TEXT(x->priority) : NULL,
                       q->who.key_id,
                       q->request_id};

    return store_one(q->db, &QUEUE_PATCH, p, out, err);
}

int store_queue_delete(struct api_req *q, const struct store_queue *x, const char *if_match,
                       json_t **out, struct sh_err *err)
{
    const char *p[] = {TENANT_TEXT(x->tenant_id), x->name, if_match, q->who.key_id, q->request_id};

    return store_one(q->db, &QUEUE_DELETE, p, out, err);
}

int store_queue_refuse(struct api_req *q, const char *name, struct sh_err *err)
{
    json_t *j = NULL;
    int rc = store_queue_get(q, name, &j, err);

    if (!rc && j)
        rc = SH_FAIL(err, SH_E_CONFLICT,
                     "the queue \"%.64s\" is %s: it accepts no new jobs; choose another one", name,
                     json_string_value(json_object_get(j, "state")));
    else if (!rc)
        rc = SH_FAIL(err, SH_E_NOTFOUND, "there is no queue \"%.64s\"", name);
    json_decref(j);
    return rc;
}
