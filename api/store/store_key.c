/* store_key.c - SQL for API keys. */
#include "api/store/store.h"
#include "api/store/store_sql.h"

/* clang-format off */
/* Keys have text ids; a page needs a number: the creation time in microseconds, which is unique
 * enough within one tenant and only moves forward. */
#define SQL_KEY_ORDER "(extract(epoch FROM k.created_at) * 1000000)::bigint"

static const struct db_stmt KEY_LIST = {
    "key_list",
    "SELECT " SQL_KEY_ORDER ", " SQL_KEY("k") " FROM api_key k JOIN tenant t ON t.id = "
    "k.tenant_id WHERE t.name = $1 AND ($2::bigint IS NULL OR " SQL_KEY_ORDER
    " > $2::bigint) ORDER BY 1 LIMIT $3::bigint + 1",
    3,
};

static const struct db_stmt KEY_GET = {
    "key_get",
    "SELECT " SQL_KEY("k") " FROM api_key k JOIN tenant t ON t.id = k.tenant_id WHERE k.id = $1 "
    "AND t.name = $2 AND t.state <> 'DELETED'",
    2,
};

/* Two that are created at the same moment may go one above the limit: harmless. */
static const struct db_stmt KEY_CREATE = {
    "key_create",
    "WITH k AS (INSERT INTO api_key (id, tenant_id, name, role, hash, expires_at) "
    "SELECT $1, t.id, $2, $3, decode($4, 'hex'), $5::timestamptz FROM tenant t WHERE t.name = $6 "
    "AND t.state <> 'DELETED' AND (SELECT count(*) FROM api_key x WHERE x.tenant_id = t.id AND "
    "x.revoked_at IS NULL AND (x.expires_at IS NULL OR x.expires_at > now())) < $9::bigint "
    "RETURNING *), " SQL_AUDIT("$7", "$8", "key.create", "k.tenant_id",
    "'key/' || k.id", "NULL", SQL_KEY("k"), "k")
    "SELECT " SQL_KEY("k") " FROM k",
    9,
};

static const struct db_stmt KEY_CREATE_PLATFORM = {
    "key_create_platform",
    "WITH k AS (INSERT INTO api_key (id, name, role, hash) VALUES ($1, $2, $6, decode($3, "
    "'hex')) RETURNING *), " SQL_AUDIT("$4", "$5", "key.create", "k.tenant_id", "'key/' || k.id",
    "NULL", SQL_KEY("k"), "k")
    "SELECT " SQL_KEY("k") " FROM k",
    6,
};

static const struct db_stmt KEY_BOOT_LOCK = {
    "key_boot_lock",
    "SELECT pg_advisory_xact_lock(x'73686b6579'::bigint)",
    0,
};

static const struct db_stmt KEY_ROLE_LIVE = {
    "key_role_live",
    "SELECT EXISTS (SELECT 1 FROM api_key WHERE role = $1 AND revoked_at IS NULL AND "
    "(expires_at IS NULL OR expires_at > now()))",
    1,
};

static const struct db_stmt KEY_REVOKE = {
    "key_revoke",
    "WITH o AS (SELECT x.* FROM api_key x JOIN tenant t ON t.id = x.tenant_id WHERE x.id = $1 AND "
    "t.name = $2 FOR UPDATE OF x), "
    "k AS (UPDATE api_key x SET revoked_at = coalesce(x.revoked_at, now()) FROM o WHERE x.id = "
    "o.id RETURNING x.*), " SQL_AUDIT("$3", "$4", "key.revoke", "k.tenant_id", "'key/' || k.id",
    SQL_KEY("o"), SQL_KEY("k"), "k, o")
    "SELECT " SQL_KEY("k") ", pg_notify('shunt_keys', k.id) FROM k",
    4,
};

/* The secret before goes on for $4 seconds; one that still went on from an earlier rotation ends.
 */
static const struct db_stmt KEY_ROTATE = {
    "key_rotate",
    "WITH o AS (SELECT x.* FROM api_key x JOIN tenant t ON t.id = x.tenant_id WHERE x.id = $1 AND "
    "t.name = $2 AND t.state <> 'DELETED' AND x.revoked_at IS NULL AND (x.expires_at IS NULL OR "
    "x.expires_at > now()) FOR UPDATE OF x), "
    "k AS (UPDATE api_key x SET hash = decode($3, 'hex'), rotated_at = now(), "
    "old_hash = CASE WHEN $4::bigint > 0 THEN o.hash END, "
    "old_until = CASE WHEN $4::bigint > 0 THEN now() + $4::bigint * interval '1 s' END "
    "FROM o WHERE x.id = o.id RETURNING x.*), " SQL_AUDIT("$5", "$6", "key.rotate", "k.tenant_id",
    "'key/' || k.id", SQL_KEY("o"), SQL_KEY("k"), "k, o")
    "SELECT " SQL_KEY("k") ", pg_notify('shunt_keys', k.id) FROM k",
    6,
};

/* In one order, so that two processes that write the same keys do not wait for each other. */
static const struct db_stmt KEY_USED = {
    "key_used",
    "WITH u AS (SELECT x.id, to_timestamp(x.ms / 1000.0) AS at FROM unnest(string_to_array($1, "
    "','), string_to_array($2, ',')::bigint[]) AS x (id, ms)), "
    "l AS (SELECT k.id, u.at FROM api_key k JOIN u ON u.id = k.id WHERE k.last_used_at IS NULL OR "
    "k.last_used_at < u.at ORDER BY k.id FOR NO KEY UPDATE OF k) "
    "UPDATE api_key k SET last_used_at = l.at FROM l WHERE k.id = l.id",
    2,
};

static const struct db_stmt KEY_LOAD = {
    "key_load",
    "SELECT k.id, k.tenant_id, coalesce(t.name, ''), k.role, encode(k.hash, 'hex'), "
    "coalesce(t.state, 'ACTIVE'), k.revoked_at IS NULL AND (k.expires_at IS NULL OR k.expires_at "
    "> now()), (extract(epoch FROM k.expires_at) * 1000)::bigint, coalesce(qt.requests_per_second, "
    "0), coalesce(qt.burst, 0), encode(k.old_hash, 'hex'), (extract(epoch FROM k.old_until) * "
    "1000)::bigint FROM api_key k LEFT JOIN tenant t ON t.id = k.tenant_id LEFT JOIN "
    "quota qt ON qt.tenant_id = t.id WHERE k.id = ANY (string_to_array($1, ','))",
    1,
};

static const struct db_stmt LISTEN_KEYS = {
    "listen_keys",
    "LISTEN shunt_keys",
    0,
};
static const struct db_stmt LISTEN_CONFIG = {"listen_config", "LISTEN shunt_config", 0};

static const struct db_stmt LISTEN_MODELS = {
    "listen_models",
    "LISTEN shunt_models",
    0,
};

/* A record in the log and nothing else: as much as a commit needs. */
static const struct db_stmt COMMIT = {
    "commit",
    "SELECT pg_logical_emit_message(true, 'shunt', 'reached')",
    0,
};
/* clang-format on */

int store_key_list(struct api_req *q, const char *tenant, const struct req_page *page, json_t **out,
                   struct sh_err *err)
{
    const char *p[] = {tenant, page->cursor, page->limit_text};

    return store_page(q->db, &KEY_LIST, p, page, out, err);
}

int store_key_get(struct api_req *q, const char *tenant, const char *id, json_t **out,
                  struct sh_err *err)
{
    return store_one(q->db, &KEY_GET, (const char *[]){id, tenant}, out, err);
}

int store_key_create(struct db *db, const char *by_key, const char *request_id,
                     const struct store_key *k, json_t **out, struct sh_err *err)
{
    const char *p[] = {k->id,       k->name,       k->role,
                       k->hash_hex, k->expires_at, k->tenant,
                       by_key,      request_id,    STORE_TEXT(STORE_MAX_KEYS)};
    const char *platform[] = {k->id, k->name, k->hash_hex, by_key, request_id, k->role};

    if (!k->tenant)
        return store_one(db, &KEY_CREATE_PLATFORM, platform, out, err);
    return store_one(db, &KEY_CREATE, p, out, err);
}

int store_key_role_exists(struct db *db, const char *role, bool *out, struct sh_err *err)
{
    struct db_res *res = NULL;
    /* Two statements: the second must see what the holder of the lock before us has committed. */
    int rc = db_exec(db, &KEY_BOOT_LOCK, NULL, NULL, err);

    if (!rc)
        rc = db_exec(db, &KEY_ROLE_LIVE, &role, &res, err);
    *out = !rc && db_bool(res, 0, 0);
    db_res_free(res);
    return rc;
}

int store_key_revoke(struct api_req *q, const char *tenant, const char *id, json_t **out,
                     struct sh_err *err)
{
    const char *p[] = {id, tenant, q->who.key_id, q->request_id};

    return store_one(q->db, &KEY_REVOKE, p, out, err);
}

int store_key_rotate(struct api_req *q, const struct store_key *k, int64_t overlap_s, json_t **out,
                     struct sh_err *err)
{
    const char *p[] = {k->id,         k->tenant,    k->hash_hex, STORE_TEXT(overlap_s),
                       q->who.key_id, q->request_id};

    return store_one(q->db, &KEY_ROTATE, p, out, err);
}

int store_key_used(struct db *db, const char *ids, const char *times, struct sh_err *err)
{
    return db_exec(db, &KEY_USED, (const char *[]){ids, times}, NULL, err);
}

int store_key_load(struct db *db, const char *ids, struct db_res **out, struct sh_err *err)
{
    return db_exec(db, &KEY_LOAD, (const char *[]){ids}, out, err);
}

int store_key_listen(struct db *db, struct sh_err *err)
{
    int rc = db_exec(db, &LISTEN_KEYS, NULL, NULL, err);

    if (!rc)
        rc = db_exec(db, &LISTEN_CONFIG, NULL, NULL, err);
    return rc ? rc : db_exec(db, &LISTEN_MODELS, NULL, NULL, err);
}

int store_commit(struct db *db, struct sh_err *err)
{
    return db_exec(db, &COMMIT, NULL, NULL, err);
}
