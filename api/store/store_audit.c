/* store_audit.c - SQL that reads the audit log. The changes themselves write its rows. */
#include "api/store/store.h"
#include "api/store/store_sql.h"

/* clang-format off */
/* "key" finds every action on keys: key.create, key.rotate ... */
static const struct db_stmt AUDIT_LIST = {
    "audit_list",
    "SELECT a.id, jsonb_build_object('id', a.id, 'at', " SQL_TIME("a.at") ", 'actor', a.key_id, "
    "'tenant', (SELECT t.name FROM tenant t WHERE t.id = a.tenant_id), 'request_id', "
    "a.request_id, 'action', a.action, 'resource', a.resource, 'before', a.before, 'after', "
    "a.after) FROM audit a "
    "WHERE ($1::text IS NULL OR a.tenant_id = (SELECT t.id FROM tenant t WHERE t.name = $1)) "
    "AND ($2::text IS NULL OR a.key_id = $2) "
    "AND ($3::text IS NULL OR a.action = $3 OR starts_with(a.action, $3 || '.')) "
    "AND ($4::text IS NULL OR a.resource = $4) "
    "AND ($5::bigint IS NULL OR a.at >= to_timestamp($5::float8 / 1000)) "
    "AND ($6::bigint IS NULL OR a.at < to_timestamp($6::float8 / 1000)) "
    "AND ($7::bigint IS NULL OR a.id < $7::bigint) ORDER BY a.id DESC LIMIT $8::bigint + 1",
    8,
};
/* clang-format on */

int store_audit_list(struct db *db, const struct store_audit *f, const struct req_page *page,
                     json_t **out, struct sh_err *err)
{
    const char *p[] = {f->tenant,
                       f->actor,
                       f->action,
                       f->resource,
                       f->from_ms >= 0 ? STORE_TEXT(f->from_ms) : NULL,
                       f->to_ms >= 0 ? STORE_TEXT(f->to_ms) : NULL,
                       page->cursor,
                       page->limit_text};

    return store_page(db, &AUDIT_LIST, p, page, out, err);
}
