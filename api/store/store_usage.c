/* store_usage.c - SQL for a tenant's usage and share. */
#include "api/store/store.h"
#include "api/store/store_sql.h"
#include "common/mem.h"

#include <string.h>

/* clang-format off */
/* Sums by a number k that orders the groups and is their cursor. */
#define USAGE_BY(key, fields)                                                                      \
    "SELECT k, jsonb_build_object(" fields ", 'gpu_seconds', (sum(gpu_ns) / 1e9)::float8, "        \
    "'requests', sum(requests), 'samples', sum(samples)) FROM (SELECT " key " AS k, u.* FROM "     \
    "usage u JOIN tenant t ON t.id = u.tenant_id WHERE t.name = $1 AND u.minute >= "               \
    "to_timestamp($2::float8 / 1000) AND u.minute < to_timestamp($3::float8 / 1000) AND ($4::text "\
    "IS NULL OR u.class = $4) AND ($5::text IS NULL OR u.model_id IN (SELECT m.id FROM model m "   \
    "WHERE m.name = $5))) g WHERE $6::bigint IS NULL OR k > $6::bigint GROUP BY k ORDER BY k "     \
    "LIMIT $7::bigint + 1"
#define BUCKET(seconds) "(extract(epoch FROM u.minute)::bigint / " #seconds ")"
#define BUCKET_START(seconds) "'from', " SQL_TIME("to_timestamp(k * " #seconds ")")

static const struct db_stmt USAGE[USAGE_N_BY] = {
    [USAGE_BY_CLASS] = {"usage_by_class",
        USAGE_BY("CASE u.class WHEN 'inference' THEN 1 ELSE 2 END", "'class', min(class)"), 7},
    [USAGE_BY_MODEL] = {"usage_by_model", USAGE_BY("u.model_id",
        "'model', (SELECT m.name FROM model m WHERE m.id = k)"), 7},
    [USAGE_BY_MINUTE] = {"usage_by_minute", USAGE_BY(BUCKET(60), BUCKET_START(60)), 7},
    [USAGE_BY_HOUR] = {"usage_by_hour", USAGE_BY(BUCKET(3600), BUCKET_START(3600)), 7},
    [USAGE_BY_DAY] = {"usage_by_day", USAGE_BY(BUCKET(86400), BUCKET_START(86400)), 7},
};

/* Usage goes on decaying after it was written. */
#define SQL_USAGE_NOW(s)                                                                           \
    "(" s ".usage_ns * power(0.5, greatest(extract(epoch FROM now() - " s ".at), 0)::float8 / "    \
    s ".half_life_s) / 1e9)"
#define SHARE(where)                                                                               \
    "WITH w AS (SELECT s.tenant_id, " SQL_USAGE_NOW("s") " AS used FROM tenant_share s), "         \
    "a AS (SELECT sum(w.used) AS used, sum(s.weight) AS weight FROM w JOIN tenant_share s ON "     \
    "s.tenant_id = w.tenant_id JOIN tenant t ON t.id = w.tenant_id AND t.state <> 'DELETED') "     \
    "SELECT t.id, jsonb_build_object('tenant', t.name, 'at', " SQL_TIME("s.at")                    \
    ", 'guaranteed_gpus', coalesce(s.guaranteed_gpus, q.guaranteed_gpus), 'max_gpus', CASE WHEN "  \
    "s.tenant_id IS NULL THEN least(q.max_gpus, q.guaranteed_gpus + q.borrowing_limit) ELSE "      \
    "s.max_gpus END, 'weight', coalesce(s.weight, q.over_quota_weight), 'running_gpus', "          \
    "coalesce(s.running_gpus, 0), 'waiting_gpus', coalesce(s.waiting_gpus, 0), 'fair_gpus', "      \
    "coalesce(s.fair_gpus, 0), 'reserved_gpus', coalesce(s.reserved_gpus, 0), 'saturation', "      \
    "s.running_gpus / nullif(s.fair_gpus, 0)) || jsonb_build_object('usage_gpu_seconds', "         \
    "coalesce(w.used, 0), 'usage_per_weight', CASE WHEN s.tenant_id IS NULL THEN 0 ELSE w.used / " \
    "nullif(s.weight, 0) END, 'usage_fraction', coalesce(w.used / nullif(a.used, 0), 0), "         \
    "'weight_fraction', coalesce(s.weight / nullif(a.weight, 0), 0), 'half_life_s', "              \
    "s.half_life_s) FROM tenant t JOIN quota q ON q.tenant_id = t.id LEFT JOIN tenant_share s ON " \
    "s.tenant_id = t.id LEFT JOIN w ON w.tenant_id = t.id CROSS JOIN a WHERE t.state <> "          \
    "'DELETED' AND " where

static const struct db_stmt SHARE_GET = {
    "share_get",
    "SELECT j FROM (" SHARE("t.name = $1") ") x (id, j)",
    1,
};

static const struct db_stmt SHARE_LIST = {
    "share_list",
    SHARE("($1::bigint IS NULL OR t.id > $1::bigint)") " ORDER BY t.id LIMIT $2::bigint + 1",
    2,
};
/* clang-format on */

int store_usage(struct api_req *q, const struct store_usage *u, const struct req_page *page,
                json_t **out, struct sh_err *err)
{
    const char *p[] = {u->tenant, STORE_TEXT(u->from_ms), STORE_TEXT(u->to_ms), u->class,
                       u->model,  page->cursor,           page->limit_text};

    return store_page(q->db, &USAGE[u->by], p, page, out, err);
}

int store_share_get(struct api_req *q, const char *tenant, json_t **out, struct sh_err *err)
{
    return store_one(q->db, &SHARE_GET, (const char *[]){tenant}, out, err);
}

int store_share_list(struct api_req *q, const struct req_page *page, json_t **out,
                     struct sh_err *err)
{
    const char *p[] = {page->cursor, page->limit_text};

    return store_page(q->db, &SHARE_LIST, p, page, out, err);
}
