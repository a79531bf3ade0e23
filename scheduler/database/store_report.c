/* store_report.c - see store.h: placements and predictions, for people. */
#include "scheduler/database/store_int.h"

#include <stdlib.h>

#define ARRIVALS_KEPT "268435456" /* bytes */

static const struct db_stmt RESET = {
    "report_reset",
    "DELETE FROM placement WHERE executor IN (SELECT jsonb_array_elements_text($1::jsonb))", 1};
static const struct db_stmt DROP = {
    "report_drop",
    "DELETE FROM placement p USING jsonb_to_recordset($1::jsonb) AS u (version bigint, executor"
    " text, state text) WHERE p.version_id = u.version AND p.executor = u.executor AND u.state IS"
    " NULL",
    1};
static const struct db_stmt PLACES = {
    "report_places",
    "INSERT INTO placement (version_id, executor, state, pin, device_bytes, host_bytes,"
    " image_disk_bytes, is_shut, last_use_at) SELECT version, executor, state, pin, device, host,"
    " disk, coalesce(shut, false), to_timestamp(used / 1000)"
    " FROM jsonb_to_recordset($1::jsonb) AS u (version bigint, executor text, state text, pin text,"
    " device bigint, host bigint, disk bigint, shut bool, used float8) WHERE state IS NOT NULL"
    " ON CONFLICT (version_id, executor) DO UPDATE SET state = excluded.state, pin = excluded.pin,"
    " device_bytes = excluded.device_bytes, host_bytes = excluded.host_bytes, image_disk_bytes ="
    " excluded.image_disk_bytes, is_shut = excluded.is_shut, last_use_at ="
    " excluded.last_use_at, at = now()",
    1};
static const struct db_stmt MEASURED = {
    "report_measured",
    "INSERT INTO measured (version_id, batch, predicted_ns, source, runs, recent, p50_ns, p99_ns,"
    " learnt) SELECT version, batch, predicted, source, runs, recent, p50, p99, learnt"
    " FROM jsonb_to_recordset($1::jsonb) AS u (version bigint, batch int, predicted bigint, source"
    " text, runs bigint, recent int, p50 bigint, p99 bigint, learnt jsonb)"
    " ON CONFLICT (version_id, batch) DO UPDATE SET predicted_ns = excluded.predicted_ns, source ="
    " excluded.source, runs = excluded.runs, recent = excluded.recent, p50_ns = excluded.p50_ns,"
    " p99_ns = excluded.p99_ns, learnt = excluded.learnt, at = now()",
    1};
static const struct db_stmt EXECS = {
    "report_execs",
    "UPDATE executor e SET heard_at = to_timestamp(u.heard / 1000), workers = u.workers, status ="
    " u.status FROM jsonb_to_recordset($1::jsonb) AS u (name text, heard float8, workers int,"
    " status jsonb) WHERE e.name = u.name",
    1};
/* Slices begin ten seconds apart: one that began so near is the same, which was written before
 * without our hearing of it. */
static const struct db_stmt ARRIVALS = {
    "report_arrivals",
    "INSERT INTO arrival (at, seconds, requests, rows, bytes) SELECT x.at, $2::float8, $3::bigint,"
    " $4::json, octet_length($4::text) FROM (SELECT now() - $1::float8 * interval '1 s' AS at) x"
    " WHERE NOT EXISTS (SELECT 1 FROM arrival a WHERE a.at BETWEEN x.at - interval '5 s' AND x.at"
    " + interval '5 s') ON CONFLICT DO NOTHING",
    4};
static const struct db_stmt OLD_ARRIVALS = {
    "report_old_arrivals",
    "DELETE FROM arrival WHERE at < now() - interval '24 hours' OR at <= (SELECT max(x.at) FROM"
    " (SELECT at, sum(pg_column_size(rows)) OVER (ORDER BY at DESC) AS bytes FROM arrival) x"
    " WHERE bytes > " ARRIVALS_KEPT ")",
    0};
/* A version that was freed before its last word was written. */
static const struct db_stmt SWEEP = {
    "report_sweep",
    "DELETE FROM placement p USING model_version v WHERE v.id = p.version_id AND v.state IN"
    " ('UNLOADED', 'DELETED')",
    0};

static int put_json_rows(struct db *db, const struct db_stmt *s, const char *rows,
                         struct sh_err *err)
{
    return rows ? db_exec(db, s, (const char *const[]){rows}, NULL, err) : SH_OK;
}

static int put_arrivals(struct db *db, const struct store_report *r, struct sh_err *err)
{
    struct store_num age, seconds, n;

    if (!r->arrivals)
        return SH_OK;
    return db_exec(db, &ARRIVALS,
                   (const char *const[]){store__f64(&age, r->arrived_s),
                                         store__f64(&seconds, r->arrivals_s),
                                         store__i64(&n, (int64_t)r->n_arrivals), r->arrivals},
                   NULL, err);
}

static int report_tx(struct db *db, const void *arg, struct sh_err *err)
{
    const struct store_report *r = arg;
    int rc = store__fence(db, &r->fence, err);

    if (!rc)
        rc = put_json_rows(db, &RESET, r->resets, err);
    if (!rc)
        rc = put_json_rows(db, &DROP, r->places, err);
    if (!rc)
        rc = put_json_rows(db, &PLACES, r->places, err);
    if (!rc)
        rc = put_json_rows(db, &MEASURED, r->measured, err);
    if (!rc)
        rc = put_json_rows(db, &EXECS, r->execs, err);
    if (!rc)
        rc = put_arrivals(db, r, err);
    if (!rc && r->with_sweep)
        rc = db_exec(db, &SWEEP, NULL, NULL, err);
    if (!rc && r->with_sweep)
        rc = db_exec(db, &OLD_ARRIVALS, NULL, NULL, err);
    return rc;
}

int store_report_put(struct db *db, void *arg, struct sh_err *err)
{
    return db_tx(db, "report", report_tx, arg, err);
}

void store_report_free(void *report)
{
    struct store_report *r = report;

    if (!r)
        return;
    free(r->resets);
    free(r->places);
    free(r->measured);
    free(r->execs);
    free(r->arrivals);
    free(r);
}
