/* store_config.c - SQL for options changed while processes run. */
#include "api/store/store.h"
#include "api/store/store_sql.h"
#include "common/mem.h"

#include <stdlib.h>

/* clang-format off */
static const struct db_stmt CONFIG_LOAD = {
    "config_load",
    "SELECT (SELECT coalesce(jsonb_object_agg(name, value), '{}') FROM config), row_version, "
    SQL_LIFE " FROM config_version",
    0,
};

/* Changes queue here, so that each sees what the one before has made. */
static const struct db_stmt CONFIG_LOCK = {
    "config_lock",
    "UPDATE config_version SET row_version = row_version + 1 WHERE " SQL_IF_MATCH("$1",
    "row_version"),
    1,
};

/* $1: {"name": "text", or null for as at the start} */
static const struct db_stmt CONFIG_PATCH = {
    "config_patch",
    "WITH p AS (SELECT key AS name, value FROM jsonb_each_text($1::jsonb)), "
    "o AS (SELECT jsonb_object_agg(p.name, c.value) AS was FROM p LEFT JOIN config c USING "
    "(name)), "
    "d AS (DELETE FROM config c USING p WHERE c.name = p.name AND p.value IS NULL), "
    "i AS (INSERT INTO config (name, value) SELECT name, value FROM p WHERE value IS NOT NULL ON "
    "CONFLICT (name) DO UPDATE SET value = excluded.value, changed_at = now()), "
    SQL_AUDIT("$2", "$3", "config.patch", "NULL::bigint", "'config'", "o.was", "$1::jsonb", "o")
    "SELECT pg_notify('shunt_config', '')",
    3,
};
/* clang-format on */

int store_config_load(struct db *db, json_t **out, struct store_life *at, struct sh_err *err)
{
    struct db_res *res = NULL;
    int rc = db_exec(db, &CONFIG_LOAD, NULL, &res, err);

    *out = NULL;
    if (!rc && db_rows(res) == 0)
        rc = SH_FAIL(err, SH_E_BUG, "the table config_version has lost its row");
    if (!rc)
        rc = store_json(db_text(res, 0, 0), CONFIG_LOAD.name, out, err);
    if (!rc) {
        at->version = db_i64(res, 0, 1, 0);
        sh_strlcpy(at->life, db_text(res, 0, 2), sizeof(at->life));
    }
    db_res_free(res);
    return rc;
}

struct patch {
    const struct api_req *q;
    const char *values, *if_match;
};

static int patch_tx(struct db *db, const void *arg, struct sh_err *err)
{
    const struct patch *p = arg;
    struct db_res *res = NULL;
    int rc = db_exec(db, &CONFIG_LOCK, (const char *[]){p->if_match}, &res, err);

    if (!rc && db_affected(res) == 0)
        rc = SH_FAIL(err, SH_E_PRECONDITION,
                     "the options were changed meanwhile: If-Match names an older version; read "
                     "them again");
    db_res_free(res);
    if (rc)
        return rc;
    return db_exec(db, &CONFIG_PATCH,
                   (const char *[]){p->values, p->q->who.key_id, p->q->request_id}, NULL, err);
}

int store_config_patch(struct api_req *q, const json_t *values, const char *if_match,
                       struct sh_err *err)
{
    struct patch p = {.q = q, .if_match = if_match};
    char *text = NULL;
    int rc = sh_json_dump(values, &text, err);

    p.values = text;
    if (!rc)
        rc = db_tx(q->db, "config_patch", patch_tx, &p, err);
    free(text);
    return rc;
}
