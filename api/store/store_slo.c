/* store_slo.c - SQL for how well latency targets were met. */
#include "api/store/store.h"
#include "api/store/store_sql.h"
#include "common/mem.h"

#define TEXT_OF(x) #x
#define TEXT(x) TEXT_OF(x)

static const struct db_stmt MINUTES = {
    "slo_minutes",
    "INSERT INTO slo_minute (model_id, minute, api, met, missed, rejected, bucket, count) SELECT "
    "u.model, to_timestamp(u.minute / 1000), $1::bigint, u.met, u.missed, u.rejected, u.bucket, "
    "u.count FROM jsonb_to_recordset($2::jsonb) AS u (model bigint, minute float8, met bigint, "
    "missed bigint, rejected bigint, bucket smallint[], count bigint[]) WHERE EXISTS (SELECT 1 "
    "FROM model WHERE id = u.model) ON CONFLICT (model_id, minute, api) DO UPDATE SET met = "
    "excluded.met, missed = excluded.missed, rejected = excluded.rejected, bucket = "
    "excluded.bucket, count = excluded.count",
    2,
};

static const struct db_stmt SWEEP = {
    "slo_sweep",
    "DELETE FROM slo_minute WHERE minute < now() - interval '" TEXT(STORE_SLO_KEEP_H) " hours'",
    0,
};

/* Whole minutes: the window's and the present one. Without a target there is no row. */
static const struct db_stmt ATTAINMENT = {
    "slo_attainment",
    "WITH m AS (SELECT id, name FROM model WHERE name = $2 AND deleted_at IS NULL AND (tenant_id = "
    "$1::bigint OR visibility = 'shared') ORDER BY tenant_id = $1::bigint DESC, id LIMIT 1), "
    "x AS (SELECT y.* FROM slo_minute y JOIN m ON m.id = y.model_id WHERE y.minute >= "
    "date_trunc('minute', now()) - $3::int * interval '1 minute'), "
    "b AS (SELECT u.bucket, sum(u.count) AS n FROM x, unnest(x.bucket, x.count) AS u (bucket, "
    "count) GROUP BY u.bucket) "
    "SELECT jsonb_build_object('model', m.name, 'latency_ms', s.latency_ms, 'percentile', "
    "s.percentile, 'on_miss', s.on_miss, 'met', (SELECT coalesce(sum(met), 0) FROM x), 'missed', "
    "(SELECT coalesce(sum(missed), 0) FROM x), 'rejected', (SELECT coalesce(sum(rejected), 0) "
    "FROM x), 'buckets', (SELECT coalesce(jsonb_agg(jsonb_build_array(bucket, n)), '[]') FROM b)) "
    "FROM m JOIN slo s ON s.model_id = m.id",
    3,
};

int store_slo_minutes(struct db *db, int64_t api, const char *rows, struct sh_err *err)
{
    const char *p[] = {STORE_TEXT(api), rows};

    return db_exec(db, &MINUTES, p, NULL, err);
}

int store_slo_sweep(struct db *db, struct sh_err *err)
{
    return db_exec(db, &SWEEP, NULL, NULL, err);
}

int store_slo_attainment(struct api_req *q, const char *model, int64_t minutes, json_t **out,
                         struct sh_err *err)
{
    const char *p[] = {STORE_TEXT(q->tenant_id), model, STORE_TEXT(minutes)};

    return store_one(q->db, &ATTAINMENT, p, out, err);
}
