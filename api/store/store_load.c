/* store_load.c - SQL for loading, unloading and pinning versions, and for their placements. */
#include "api/store/store.h"
#include "api/store/store_sql.h"
#include "common/states.h"

#include <inttypes.h>

/* Of the smallest connected device: what the pinned images of one tenant may take without a limit
 * of its quota, and those of all tenants together. The rest is for runs and training. */
#define PIN_TENANT_PERCENT 25
#define PIN_ALL_PERCENT 50

/* clang-format off */
/* CTE `o`: the versions meant, of a model of the tenant's own; $3 NULL: every version. */
#define SQL_MEANT(condition)                                                                       \
    "o AS (SELECT v.*, m.tenant_id, m.name FROM model_version v JOIN model m ON m.id = v.model_id "\
    "WHERE m.tenant_id = $1::bigint AND m.name = $2 AND m.deleted_at IS NULL AND ($3::int IS "     \
    "NULL OR v.version = $3::int) AND " condition " FOR UPDATE OF v), "
#define SQL_CHANGE(action, condition, set)                                                         \
    "WITH " SQL_MEANT(condition)                                                                   \
    "v AS (UPDATE model_version x SET " set ", row_version = x.row_version + 1 FROM o WHERE "      \
    "x.id = o.id RETURNING x.*), " SQL_AUDIT("$4", "$5", "version." action, "o.tenant_id",         \
    "'model/' || o.name || '/versions/' || o.version",                                             \
    "jsonb_build_object('state', o.state, 'pinned', o.pinned)",                                    \
    "jsonb_build_object('state', v.state, 'pinned', v.pinned)", "v JOIN o ON o.id = v.id")         \
    "SELECT to_jsonb(count(*)), pg_notify('shunt_models', '') FROM v"

/* In the order of enum store_wish. */
static const struct db_stmt WISHES[] = {
    {"version_load", SQL_CHANGE("load", "(v.state IN ('UNLOADING', 'UNLOADED') OR (v.state = "
     "'FAILED' AND v.package IS NOT NULL))",
     "state = 'REGISTERED', reason_code = NULL, reason = NULL"), 5},
    {"version_unload", SQL_CHANGE("unload",
     "v.state IN (" SH_VERSION_WANTED(SH_STATE_SQL, ", ") ") AND "
     "NOT v.pinned",
     "state = 'UNLOADING', reason_code = 'UNLOADED', reason = 'being unloaded on request; load it "
     "to use it again'"), 5},
    {"version_pin", SQL_CHANGE("pin", "v.state = 'READY' AND NOT v.pinned", "pinned = true"), 5},
    {"version_unpin", SQL_CHANGE("unpin", "v.pinned", "pinned = false"), 5},
};

/* Pins are rare: one at a time, each with a snapshot that sees the one before. */
static const struct db_stmt PIN_LOCK = {
    "pin_lock", "SELECT pg_advisory_xact_lock(hashtextextended('shunt.pins', 0))", 0,
};

static const struct db_stmt PIN_ROOM = {
    "pin_room",
    "WITH p AS (SELECT m.tenant_id, m.name, v.version, v.state, v.pinned, coalesce(v.image_bytes, "
    "0) AS bytes FROM model_version v JOIN model m ON m.id = v.model_id JOIN tenant t ON t.id = "
    "m.tenant_id WHERE m.deleted_at IS NULL AND t.state <> 'DELETED' AND (v.pinned OR "
    "(m.tenant_id = $1::bigint AND m.name = $2 AND v.state = 'READY' AND ($3::int IS NULL OR "
    "v.version = $3::int)))) "
    "SELECT (SELECT min(pool_bytes) FROM executor WHERE state = 'UP'), q.gpu_memory_max_bytes, "
    "(SELECT coalesce(sum(bytes), 0) FROM p WHERE tenant_id = $1::bigint), "
    "(SELECT coalesce(sum(bytes), 0) FROM p), "
    "(SELECT coalesce(sum(greatest(o.gpu_memory_min_bytes - coalesce((SELECT sum(bytes) FROM p "
    "WHERE tenant_id = o.tenant_id), 0), 0)), 0) FROM quota o JOIN tenant t ON t.id = o.tenant_id "
    "WHERE t.state <> 'DELETED' AND o.tenant_id <> $1::bigint) "
    "FROM quota q WHERE q.tenant_id = $1::bigint",
    3,
};

#define SQL_VISIBLE_VERSION                                                                        \
    "model_version v JOIN (SELECT * FROM model WHERE name = $2 AND deleted_at IS NULL AND "        \
    "(tenant_id = $1::bigint OR visibility = 'shared') ORDER BY tenant_id = $1::bigint DESC, id "  \
    "LIMIT 1) m ON m.id = v.model_id WHERE v.version = $3::int AND v.state <> 'DELETED'"

static const struct db_stmt PLACEMENTS = {
    "version_placements",
    "SELECT jsonb_build_object('model', m.name, 'version', v.version, 'state', v.state, 'reason', "
    "v.reason, 'solo_note', v.meta ->> 'solo_note', 'pinned', v.pinned, 'image_bytes', "
    "v.image_bytes, 'placements', (SELECT "
    "coalesce(jsonb_agg(jsonb_build_object('executor', p.executor, 'state', p.state, 'pin', p.pin, "
    "'device_bytes', p.device_bytes, 'host_bytes', p.host_bytes, 'image_disk_bytes', "
    "p.image_disk_bytes, 'shut', p.is_shut, 'disk_bytes', coalesce(v.bytes, "
    "0), 'last_use_at', " SQL_TIME("p.last_use_at") ", 'at', " SQL_TIME("p.at") ") ORDER BY "
    "p.executor), '[]') FROM placement p JOIN executor e ON e.name = p.executor AND e.state = 'UP' "
    "WHERE p.version_id = v.id)) FROM " SQL_VISIBLE_VERSION,
    3,
};

static const struct db_stmt PROFILE = {
    "version_profile",
    "SELECT jsonb_build_object('model', m.name, 'version', v.version, 'percentile', "
    "coalesce((SELECT percentile FROM slo WHERE model_id = m.id), 99), 'batches', (SELECT "
    "coalesce(jsonb_agg(jsonb_build_object('batch', x.batch, 'predicted_ms', x.predicted_ns / "
    "1e6::float8, 'source', x.source, 'runs', x.runs, 'recent', x.recent, 'p50_ms', x.p50_ns / "
    "1e6::float8, 'p99_ms', x.p99_ns / 1e6::float8, 'at', " SQL_TIME("x.at") ") ORDER BY x.batch), "
    "'[]') FROM measured x WHERE x.version_id = v.id)) FROM " SQL_VISIBLE_VERSION,
    3,
};
/* clang-format on */

struct wish {
    enum store_wish wish;
    const char *const *params;
    json_t **out; /* reset at each try of the transaction */
};

static int check_pin_room(struct db *db, const char *const *params, struct sh_err *err)
{
    struct db_res *r = NULL;
    int64_t pool, limit, mine, all, kept;
    bool has_quota;
    int rc = db_exec(db, &PIN_ROOM, params, &r, err);

    if (rc || db_rows(r) == 0)
        goto out;
    pool = db_i64(r, 0, 0, 0);
    has_quota = db_text(r, 0, 1) != NULL;
    limit = db_i64(r, 0, 1, pool / 100 * PIN_TENANT_PERCENT);
    mine = db_i64(r, 0, 2, 0);
    all = db_i64(r, 0, 3, 0);
    kept = db_i64(r, 0, 4, 0);
    if (pool == 0)
        rc = SH_FAIL(err, SH_E_UNAVAILABLE, "no executor is connected: nothing can be pinned now");
    else if (mine > limit)
        rc = SH_FAIL(err, SH_E_QUOTA,
                     "the tenant's pinned images would take %" PRId64
                     " bytes of each device, its %s is %" PRId64 "; unpin another version",
                     mine, has_quota ? "quota (gpu_memory_max_bytes)" : "share without a quota",
                     limit);
    else if (all > pool / 100 * PIN_ALL_PERCENT)
        rc = SH_FAIL(err, SH_E_CONFLICT,
                     "pinned images of all tenants would take more than %d %% of the smallest "
                     "device (%" PRId64 " bytes); unpin another version",
                     PIN_ALL_PERCENT, pool);
    else if (all > pool - kept)
        rc = SH_FAIL(err, SH_E_CONFLICT,
                     "pinned images would take memory that is reserved for other tenants on the "
                     "smallest device (gpu_memory_min_bytes); unpin another version");
out:
    db_res_free(r);
    return rc;
}

static int wish_tx(struct db *db, const void *arg, struct sh_err *err)
{
    const struct wish *w = arg;
    int rc = SH_OK;

    json_decref(*w->out);
    *w->out = NULL;
    if (w->wish == STORE_PIN)
        rc = db_exec(db, &PIN_LOCK, NULL, NULL, err);
    if (!rc && w->wish == STORE_PIN)
        rc = check_pin_room(db, w->params, err);
    return rc ? rc : store_one(db, &WISHES[w->wish], w->params, w->out, err);
}

int store_version_wish(struct api_req *q, enum store_wish wish, const char *model,
                       const char *version, int64_t *n_out, struct sh_err *err)
{
    const char *p[] = {STORE_TEXT(q->tenant_id), model, version, q->who.key_id, q->request_id};
    json_t *n = NULL;
    const struct wish w = {.wish = wish, .params = p, .out = &n};
    int rc = db_tx(q->db, "version_wish", wish_tx, &w, err);
    *n_out = json_integer_value(n);
    json_decref(n);
    return rc;
}

static int version_one(struct api_req *q, const struct db_stmt *s, const char *model,
                       const char *version, json_t **out, struct sh_err *err)
{
    const char *p[] = {STORE_TEXT(q->tenant_id), model, version};

    return store_one(q->db, s, p, out, err);
}

int store_version_placements(struct api_req *q, const char *model, const char *version,
                             json_t **out, struct sh_err *err)
{
    return version_one(q, &PLACEMENTS, model, version, out, err);
}

int store_version_profile(struct api_req *q, const char *model, const char *version, json_t **out,
                          struct sh_err *err)
{
    return version_one(q, &PROFILE, model, version, out, err);
}
