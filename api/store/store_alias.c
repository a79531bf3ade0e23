/* store_alias.c - SQL for aliases of models. */
#include "api/spec/alias.h"
#include "api/store/store.h"
#include "api/store/store_sql.h"
#include "common/field.h"
#include "common/mem.h"
#include "common/states.h"

#include <inttypes.h>

/* clang-format off */
#define SQL_ITS_ALIAS                                                                              \
    "model_alias a JOIN (SELECT * FROM model WHERE name = $2 AND deleted_at IS NULL AND "          \
    "(tenant_id = $1::bigint OR visibility = 'shared') ORDER BY tenant_id = $1::bigint DESC, id "  \
    "LIMIT 1) m ON m.id = a.model_id"
/* CTE `o`: the alias as it is, of a model of the tenant's own. */
#define SQL_OWN_ALIAS                                                                              \
    "o AS (SELECT a.*, m.tenant_id, m.name AS model FROM model_alias a JOIN model m ON m.id = "    \
    "a.model_id WHERE m.tenant_id = $1::bigint AND m.name = $2 AND m.deleted_at IS NULL AND "      \
    "a.name = $3 AND " SQL_IF_MATCH("$4", "a.row_version") " FOR UPDATE OF a), "
#define SQL_ALIAS_NAME(o) "'model/' || " o ".model || '/aliases/' || " o ".name"

static const struct db_stmt ALIAS_LIST = {
    "alias_list",
    "SELECT a.id, " SQL_ALIAS("a") " FROM " SQL_ITS_ALIAS " WHERE $3::bigint IS NULL OR a.id > "
    "$3::bigint ORDER BY a.id LIMIT $4::bigint + 1",
    4,
};

static const struct db_stmt ALIAS_GET = {
    "alias_get",
    "SELECT " SQL_ALIAS("a") " FROM " SQL_ITS_ALIAS " WHERE a.name = $3",
    3,
};

/* One change of a model's aliases at a time, so that the next sees how many there are. */
static const struct db_stmt MODEL_LOCK = {
    "alias_model",
    "SELECT id FROM model WHERE tenant_id = $1::bigint AND name = $2 AND deleted_at IS NULL FOR "
    "UPDATE",
    2,
};

/* How many others there are, and what the alias `from` ($3) serves. */
static const struct db_stmt BESIDE = {
    "alias_beside",
    "SELECT (SELECT count(*) FROM model_alias WHERE model_id = $1::bigint AND name <> $2), "
    "(SELECT targets::text FROM model_alias WHERE model_id = $1::bigint AND name = $3)",
    3,
};

/* The versions that are named, and the state of each: NULL: there is none. They stay until the end
 * of the transaction. */
static const struct db_stmt NAMED = {
    "alias_named",
    "SELECT t.version, v.state FROM jsonb_to_recordset($2::jsonb) AS t (version int) LEFT JOIN "
    "LATERAL (SELECT x.state FROM model_version x WHERE x.model_id = $1::bigint AND x.version = "
    "t.version AND x.state <> 'DELETED' FOR SHARE) v ON true ORDER BY t.version",
    2,
};

#define SAME "x.targets = excluded.targets"
/* $1: the model; $7: keep what is NULL. With If-Match ($4) an alias that is not there matches
 * nothing. */
#define SQL_SET(action)                                                                            \
    "WITH o AS (SELECT * FROM model_alias WHERE model_id = $1::bigint AND name = $2), "            \
    "s AS (INSERT INTO model_alias AS x (model_id, name, targets, sticky, policy, changed_by) "    \
    "SELECT $1::bigint, $2, $3::jsonb, coalesce($5::boolean, false), $6::jsonb, $8 WHERE "         \
    "$4::bigint IS NULL OR EXISTS (SELECT 1 FROM o WHERE o.row_version = $4::bigint) ON CONFLICT " \
    "(model_id, name) DO UPDATE SET previous = CASE WHEN " SAME " THEN x.previous ELSE x.targets " \
    "END, generation = x.generation + CASE WHEN " SAME " THEN 0 ELSE 1 END, rolled_back = CASE "   \
    "WHEN " SAME " THEN x.rolled_back END, targets = excluded.targets, sticky = "                  \
    "coalesce($5::boolean, x.sticky), policy = CASE WHEN $7::boolean THEN coalesce($6::jsonb, "    \
    "x.policy) ELSE $6::jsonb END, changed_by = $8, changed_at = now(), row_version = "            \
    "x.row_version + 1 RETURNING x.*), " SQL_AUDIT("$8", "$9", action, "m.tenant_id", "'model/' " \
    "|| m.name || '/aliases/' || s.name", "to_jsonb(o.*)", "to_jsonb(s.*)", "s JOIN model m ON "   \
    "m.id = s.model_id LEFT JOIN o ON true")                                                       \
    "SELECT " SQL_ALIAS("s") ", pg_notify('shunt_models', '') FROM s"

/* In the order of enum store_alias_change. */
static const struct db_stmt SETS[] = {
    {"alias_put", SQL_SET("alias.put"), 9},
    {"alias_promote", SQL_SET("alias.promote"), 9},
};

static const struct db_stmt ALIAS_ROLLBACK = {
    "alias_rollback",
    "WITH " SQL_OWN_ALIAS
    "s AS (UPDATE model_alias x SET targets = x.previous, previous = NULL, generation = "
    "x.generation + 1, rolled_back = NULL, changed_by = $5, changed_at = now(), row_version = "
    "x.row_version + 1 FROM o WHERE x.id = o.id AND x.previous IS NOT NULL RETURNING x.*), "
    SQL_AUDIT("$5", "$6", "alias.rollback", "o.tenant_id", SQL_ALIAS_NAME("o"),
    "to_jsonb(o.*) - 'tenant_id' - 'model'", "to_jsonb(s.*)", "s JOIN o ON o.id = s.id")
    "SELECT " SQL_ALIAS("s") ", pg_notify('shunt_models', '') FROM s",
    6,
};

static const struct db_stmt PREVIOUS = {
    "alias_previous",
    "SELECT previous::text FROM model_alias WHERE model_id = $1::bigint AND name = $2",
    2,
};

static const struct db_stmt ALIAS_DELETE = {
    "alias_delete",
    "WITH " SQL_OWN_ALIAS "s AS (DELETE FROM model_alias x USING o WHERE x.id = o.id RETURNING "
    "x.*), " SQL_AUDIT("$5", "$6", "alias.delete", "o.tenant_id", SQL_ALIAS_NAME("o"),
    "to_jsonb(o.*) - 'tenant_id' - 'model'", "NULL", "s JOIN o ON o.id = s.id")
    "SELECT to_jsonb(s.*), pg_notify('shunt_models', '') FROM s",
    6,
};
/* clang-format on */

int store_alias_list(struct api_req *q, const char *model, const struct req_page *page,
                     json_t **out, struct sh_err *err)
{
    const char *p[] = {STORE_TEXT(q->tenant_id), model, page->cursor, page->limit_text};

    return store_page(q->db, &ALIAS_LIST, p, page, out, err);
}

int store_alias_get(struct api_req *q, const char *model, const char *alias, json_t **out,
                    struct sh_err *err)
{
    const char *p[] = {STORE_TEXT(q->tenant_id), model, alias};

    return store_one(q->db, &ALIAS_GET, p, out, err);
}

/* ---------------------------------------------------------------- setting one */

struct set {
    const struct api_req *q;
    const struct store_alias *a;
    json_t **out; /* reset at each try of the transaction */
};

/* *out: what it serves from now on, JSON; OWNED. */
static int pick_targets(struct db *db, const struct store_alias *a, const char *model_id,
                        char **out, struct sh_err *err)
{
    struct db_res *r = NULL;
    int rc = db_exec(db, &BESIDE, (const char *[]){model_id, a->alias, a->from}, &r, err);
    const char *targets = a->targets ? a->targets : rc ? NULL : db_text(r, 0, 1);

    if (!rc && db_i64(r, 0, 0, 0) >= SH_ALIAS_MOST)
        rc = SH_FAIL(err, SH_E_QUOTA, "a model has at most %d aliases; delete one that is not used",
                     SH_ALIAS_MOST);
    if (!rc && !targets)
        rc = SH_FAIL(err, SH_E_NOTFOUND, "model \"%s\" has no alias \"%.64s\"", a->model, a->from);
    if (!rc)
        rc = sh_strdup(targets, out, err);
    db_res_free(r);
    return rc;
}

/* What cannot serve, and will not without somebody's doing, is not what somebody meant. */
static int check_named(struct db *db, const char *model_id, const char *targets, struct sh_err *err)
{
    struct db_res *r = NULL;
    int rc = db_exec(db, &NAMED, (const char *[]){model_id, targets}, &r, err);

    for (size_t i = 0; !rc && i < db_rows(r); i++) {
        const char *state = db_text(r, i, 1);
        int64_t version = db_i64(r, i, 0, 0);

        if (!state)
            rc = SH_FAIL(err, SH_E_CONFLICT, "the model has no version %" PRId64, version);
        else if (!sh_words_have(SH_VERSION_WANTED(SH_STATE_TEXT, ","), state))
            rc = SH_FAIL(err, SH_E_CONFLICT,
                         "version %" PRId64 " is %s and cannot serve; load it first", version,
                         state);
    }
    db_res_free(r);
    return rc;
}

static int set_tx(struct db *db, const void *arg, struct sh_err *err)
{
    const struct set *s = arg;
    const struct store_alias *a = s->a;
    struct db_res *r = NULL;
    char *targets = NULL, model_id[24] = "";
    int rc =
        db_exec(db, &MODEL_LOCK, (const char *[]){STORE_TEXT(s->q->tenant_id), a->model}, &r, err);

    json_decref(*s->out);
    *s->out = NULL;
    if (rc || db_rows(r) == 0)
        goto out;
    store_text(model_id, db_i64(r, 0, 0, 0));
    rc = pick_targets(db, a, model_id, &targets, err);
    if (!rc)
        rc = check_named(db, model_id, targets, err);
    if (!rc)
        rc = store_one(db, &SETS[a->change],
                       (const char *[]){model_id, a->alias, targets, a->if_match, a->sticky,
                                        a->policy,
                                        a->change == STORE_ALIAS_PROMOTE ? "true" : "false",
                                        s->q->who.key_id, s->q->request_id},
                       s->out, err);
out:
    free(targets);
    db_res_free(r);
    return rc;
}

int store_alias_set(struct api_req *q, const struct store_alias *a, json_t **out,
                    struct sh_err *err)
{
    const struct set s = {.q = q, .a = a, .out = out};
    int rc;

    *out = NULL;
    rc = db_tx(q->db, "alias_set", set_tx, &s, err);
    if (rc) {
        json_decref(*out);
        *out = NULL;
    }
    return rc;
}

/* ---------------------------------------------------------------- the way back */

struct own {
    const struct api_req *q;
    const struct db_stmt *s;
    const char *model, *alias, *if_match;
    json_t **out; /* reset at each try of the transaction */
};

/* Whoever unloads or deletes a version meanwhile waits. */
static int check_previous(struct db *db, const char *model_id, const char *alias,
                          struct sh_err *err)
{
    struct db_res *r = NULL;
    int rc = db_exec(db, &PREVIOUS, (const char *[]){model_id, alias}, &r, err);

    if (!rc && db_rows(r) && db_text(r, 0, 0))
        rc = check_named(db, model_id, db_text(r, 0, 0), err);
    db_res_free(r);
    return rc;
}

static int own_tx(struct db *db, const void *arg, struct sh_err *err)
{
    const struct own *o = arg;
    struct db_res *r = NULL;
    const char *tenant = STORE_TEXT(o->q->tenant_id);
    char model_id[24] = "";
    int rc = db_exec(db, &MODEL_LOCK, (const char *[]){tenant, o->model}, &r, err);

    json_decref(*o->out);
    *o->out = NULL;
    if (rc || db_rows(r) == 0)
        goto out;
    store_text(model_id, db_i64(r, 0, 0, 0));
    if (o->s == &ALIAS_ROLLBACK)
        rc = check_previous(db, model_id, o->alias, err);
    if (!rc)
        rc = store_one(db, o->s,
                       (const char *[]){tenant, o->model, o->alias, o->if_match, o->q->who.key_id,
                                        o->q->request_id},
                       o->out, err);
out:
    db_res_free(r);
    return rc;
}

static int change_own(const struct own *o, struct db *db, struct sh_err *err)
{
    int rc;

    *o->out = NULL;
    rc = db_tx(db, o->s->name, own_tx, o, err);
    if (rc) {
        json_decref(*o->out);
        *o->out = NULL;
    }
    return rc;
}

int store_alias_rollback(struct api_req *q, const char *model, const char *alias,
                         const char *if_match, json_t **out, struct sh_err *err)
{
    return change_own(&(struct own){q, &ALIAS_ROLLBACK, model, alias, if_match, out}, q->db, err);
}

int store_alias_delete(struct api_req *q, const char *model, const char *alias,
                       const char *if_match, json_t **out, struct sh_err *err)
{
    return change_own(&(struct own){q, &ALIAS_DELETE, model, alias, if_match, out}, q->db, err);
}
