/* store_alias_count.c - SQL for how requests of aliases went, and for a rollback by itself. */
#include "api/spec/alias.h"
#include "api/store/store.h"
#include "api/store/store_sql.h"
#include "common/states.h"

#include <string.h>

/* clang-format off */
static const struct db_stmt COUNTS = {
    "alias_counts",
    "INSERT INTO alias_count (alias_id, generation, version, slice, api, answered, failed, met, "
    "missed) SELECT u.alias, u.generation, u.version, to_timestamp(u.slice / 1000), $1::bigint, "
    "u.answered, u.failed, u.met, u.missed FROM jsonb_to_recordset($2::jsonb) AS u (alias bigint, "
    "generation int, version int, slice float8, answered bigint, failed bigint, met bigint, missed "
    "bigint) WHERE EXISTS (SELECT 1 FROM model_alias WHERE id = u.alias FOR KEY SHARE) ON CONFLICT "
    "(alias_id, slice, generation, version, api) DO UPDATE SET answered = excluded.answered, "
    "failed = excluded.failed, met = excluded.met, missed = excluded.missed",
    2,
};

static const struct db_stmt SWEEP = {
    "alias_sweep",
    "DELETE FROM alias_count WHERE slice < now() - (" DB_NUMBER(ALIAS_WINDOW_MAX_S) " + 60) * "
    "interval '1 second'",
    0,
};

static const struct db_stmt CASES = {
    "alias_cases",
    "SELECT a.id, a.row_version, t.name, m.name, a.name, a.targets::text, a.previous::text, "
    "a.policy::text, s.percentile, (SELECT coalesce(jsonb_agg(to_jsonb(y.*)), '[]')::text FROM "
    "(SELECT c.version, c.generation = a.generation AS is_current, sum(c.answered) AS answered, "
    "sum(c.failed) AS failed, sum(c.met) AS met, sum(c.missed) AS missed FROM alias_count c WHERE "
    "c.alias_id = a.id AND c.slice >= now() - (a.policy ->> 'window_s')::int * interval "
    "'1 second' GROUP BY 1, 2) y) FROM model_alias a JOIN model m ON m.id = a.model_id JOIN tenant "
    "t ON t.id = m.tenant_id LEFT JOIN slo s ON s.model_id = m.id WHERE a.policy IS NOT NULL AND "
    "m.deleted_at IS NULL AND t.state <> 'DELETED'",
    0,
};

/* What it would go back to; all of it stays until the end of the transaction. */
static const struct db_stmt RETURN_TO = {
    "alias_return_to",
    "SELECT v.state FROM model_alias a JOIN model m ON m.id = a.model_id CROSS JOIN LATERAL "
    "jsonb_to_recordset($3::jsonb) AS t (version int) JOIN model_version v ON v.model_id = m.id "
    "AND v.version = t.version WHERE a.id = $1::bigint AND a.row_version = $2::bigint ORDER BY "
    "v.version FOR UPDATE OF m FOR SHARE OF v",
    3,
};

/* Nobody's key. */
static const struct db_stmt RETURN = {
    "alias_return",
    "WITH o AS (SELECT a.*, m.tenant_id, m.name AS model FROM model_alias a JOIN model m ON m.id = "
    "a.model_id WHERE a.id = $1::bigint AND a.row_version = $2::bigint FOR UPDATE OF a), "
    "s AS (UPDATE model_alias x SET targets = $3::jsonb, previous = NULL, generation = "
    "x.generation + 1, rolled_back = jsonb_build_object('at', " SQL_TIME("now()") ", "
    "'reason_code', $4::text, 'reason', $5::text, 'from', x.targets), changed_by = NULL, "
    "changed_at = now(), row_version = x.row_version + 1 FROM o WHERE x.id = o.id AND x.previous "
    "IS NOT NULL RETURNING x.*), "
    SQL_AUDIT("NULL", "'by-itself'", "alias.rollback", "o.tenant_id",
    "'model/' || o.model || '/aliases/' || o.name", "to_jsonb(o.*) - 'tenant_id' - 'model'",
    "to_jsonb(s.*)", "s JOIN o ON o.id = s.id")
    "SELECT pg_notify('shunt_models', '') FROM s",
    5,
};
/* clang-format on */

int store_alias_counts(struct db *db, int64_t api, const char *rows, struct sh_err *err)
{
    return db_exec(db, &COUNTS, (const char *[]){STORE_TEXT(api), rows}, NULL, err);
}

int store_alias_sweep(struct db *db, struct sh_err *err)
{
    return db_exec(db, &SWEEP, NULL, NULL, err);
}

int store_alias_cases(struct db *db, struct db_res **out, struct sh_err *err)
{
    return db_exec(db, &CASES, NULL, out, err);
}

struct going_back {
    const char *const *params; /* of RETURN */
    bool *done;                /* reset at each try of the transaction */
};

static int return_tx(struct db *db, const void *arg, struct sh_err *err)
{
    const struct going_back *g = arg;
    struct db_res *r = NULL, *done = NULL;
    bool is_ready = false;
    int rc = db_exec(db, &RETURN_TO, g->params, &r, err);

    for (size_t i = 0; !rc && i < db_rows(r); i++)
        is_ready |= strcmp(db_text(r, i, 0), SH_STATE_TEXT(READY)) == 0;
    if (!rc && is_ready)
        rc = db_exec(db, &RETURN, g->params, &done, err);
    *g->done = !rc && done && db_rows(done) == 1;
    db_res_free(done);
    db_res_free(r);
    return rc;
}

int store_alias_return(struct db *db, const char *id, const char *row_version, const char *targets,
                       const char *code, const char *why, bool *done, struct sh_err *err)
{
    const struct going_back g = {(const char *[]){id, row_version, targets, code, why}, done};
    int rc;

    *done = false;
    rc = db_tx(db, "alias_return", return_tx, &g, err);
    if (rc)
        *done = false;
    return rc;
}
