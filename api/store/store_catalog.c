/* store_catalog.c - SQL for the catalog in memory. */
#include "api/store/store.h"
#include "api/store/store_sql.h"
#include "common/mem.h"

/* clang-format off */
/* Every writer raises row_version, so number and sum of them move with any change of one life. */
static const struct db_stmt CATALOG_MARK = {
    "catalog_mark",
    "SELECT concat_ws('.', " SQL_LIFE ", "
    "(SELECT concat_ws('-', count(*), sum(row_version), max(id)) FROM model_version), "
    "(SELECT concat_ws('-', count(*), sum(row_version), max(id)) FROM model), "
    "(SELECT concat_ws('-', count(*), sum(row_version), max(id)) FROM slo), "
    "(SELECT concat_ws('-', count(*), sum(row_version), max(id)) FROM model_alias))",
    0,
};

static const struct db_stmt CATALOG_LOAD = {
    "catalog_load",
    "SELECT v.id, m.id, t.id, t.name, m.name, v.version, v.state, m.visibility = 'shared', "
    "v.max_batch, v.precision, v.inputs::text, v.outputs::text, s.latency_ms, s.priority, "
    "s.on_miss, coalesce(v.reason, ''), coalesce(v.reason_code, ''), v.meta ->> 'buckets', "
    "s.percentile FROM model_version v "
    "JOIN model m ON m.id = v.model_id JOIN tenant t ON t.id = m.tenant_id "
    "LEFT JOIN slo s ON s.model_id = m.id WHERE m.deleted_at IS NULL "
    "AND v.state <> 'DELETED' AND t.state <> 'DELETED' ORDER BY v.id",
    0,
};

static const struct db_stmt CATALOG_ALIASES = {
    "catalog_aliases",
    "SELECT a.id, a.model_id, a.name, a.targets::text, a.previous::text, a.generation, a.sticky, "
    "a.policy IS NOT NULL, a.row_version FROM model_alias a JOIN model m ON m.id = a.model_id "
    "JOIN tenant t ON t.id = m.tenant_id WHERE m.deleted_at IS NULL AND t.state <> 'DELETED' "
    "ORDER BY a.model_id, a.name COLLATE \"C\"",
    0,
};
/* clang-format on */

int store_catalog_mark(struct db *db, char *out, size_t size, struct sh_err *err)
{
    struct db_res *res = NULL;
    int rc = db_exec(db, &CATALOG_MARK, NULL, &res, err);

    if (!rc)
        sh_strlcpy(out, db_rows(res) ? db_text(res, 0, 0) : "", size);
    db_res_free(res);
    return rc;
}

int store_catalog_load(struct db *db, struct db_res **out, struct sh_err *err)
{
    return db_exec(db, &CATALOG_LOAD, NULL, out, err);
}

int store_catalog_aliases(struct db *db, struct db_res **out, struct sh_err *err)
{
    return db_exec(db, &CATALOG_ALIASES, NULL, out, err);
}
