/* store_sweep.c - see store.h: partitions, and old rows. */
#include "common/mem.h"
#include "scheduler/database/store.h"
#include "scheduler/database/store_int.h"

#include <inttypes.h>

/* The end of what is old: the sweep's part of store.h.
 *
 * Each statement takes at most a batch of rows by an index, oldest first, and passes by what
 * somebody has locked. The lease is looked at and not locked: its renewal must not wait for a
 * batch, and what a leader that was just replaced removes its successor would remove too.
 *
 * Of a table with partitions only those rows go one by one that no drop will take (LEFT_TO_ROWS).
 * Rows are named by their whole primary key there: a ctid is one partition's. */

#define STATEMENT_MS "500"
#define LOCK_MS "50"
#define N_STEPS 4
#define CUTOFF "now() - $1::bigint * interval '24 hours'"
/* The same text as in the index usage_minutes. */
#define IS_MINUTE \
    "extract(epoch FROM minute - timestamptz '1970-01-01 00:00:00+00')::bigint % 3600 <> 0"

/* A batch is found by an index and goes row by row, also where a plan made for any size of batch
 * would rather read whole tables. */
static const struct db_stmt LIMITS = {"sweep_limits",
                                      "SELECT set_config('statement_timeout', '" STATEMENT_MS
                                      "', true),"
                                      " set_config('lock_timeout', '" LOCK_MS "', true),"
                                      " set_config('enable_hashjoin', 'off', true),"
                                      " set_config('enable_mergejoin', 'off', true),"
                                      " set_config('enable_seqscan', 'off', true)",
                                      0};
/* Rows before this time: those of the default and of the first partition, which has no beginning,
 * and those of partitions that are old and are there all the same, because somebody has a lock or
 * too many live jobs have events in them. */
#define LEFT_TO_ROWS(table)                                                                     \
    "least(" CUTOFF ", (SELECT min(h.lo) FROM history_partition h WHERE h.parent = '" table "'" \
    " AND NOT h.is_default AND h.lo > '-infinity' AND h.hi > " CUTOFF "))"

static const struct db_stmt EVENTS = {
    "sweep_events",
    "DELETE FROM job_event WHERE (id, at) IN (SELECT e.id, e.at FROM job_event e"
    " WHERE e.at < " LEFT_TO_ROWS(
        "job_event") " AND NOT EXISTS (SELECT 1 FROM job j WHERE j.id = e.job_id AND j.finished_at "
                     "IS NULL)"
                     " ORDER BY e.at LIMIT $2 FOR UPDATE OF e SKIP LOCKED)",
    2};
#define OLD_JOBS \
    "(SELECT id FROM job WHERE finished_at < " CUTOFF " ORDER BY finished_at LIMIT $2) o"
static const struct db_stmt JOB_EVENTS = {
    "sweep_job_events",
    "DELETE FROM job_event WHERE (id, at) IN (SELECT e.id, e.at FROM " OLD_JOBS
    " JOIN job_event e ON e.job_id = o.id LIMIT $2)",
    2};
static const struct db_stmt JOB_CHECKPOINTS = {
    "sweep_job_checkpoints",
    "DELETE FROM checkpoint WHERE id IN (SELECT c.id FROM " OLD_JOBS
    " JOIN checkpoint c ON c.job_id = o.id LIMIT $2)",
    2};
static const struct db_stmt JOBS = {
    "sweep_jobs",
    "WITH d AS (DELETE FROM job WHERE id IN (SELECT id FROM job WHERE finished_at < " CUTOFF
    " ORDER BY finished_at LIMIT $2 FOR UPDATE SKIP LOCKED)"
    " AND NOT EXISTS (SELECT 1 FROM job_event e WHERE e.job_id = job.id)"
    " AND NOT EXISTS (SELECT 1 FROM checkpoint c WHERE c.job_id = job.id) RETURNING id)"
    ", u AS (DELETE FROM usage_job WHERE job_id IN (SELECT id FROM d))"
    " SELECT FROM d",
    2};
/* The last job of an array takes it along. */
static const struct db_stmt ARRAYS = {
    "sweep_arrays",
    "DELETE FROM job_array WHERE id IN (SELECT a.id FROM job_array a WHERE a.created_at < " CUTOFF
    " AND NOT EXISTS (SELECT 1 FROM job j WHERE j.array_id = a.id) LIMIT $2 FOR UPDATE SKIP "
    "LOCKED)",
    2};
#define USAGE_KEY "tenant_id, model_id, class, minute"
static const struct db_stmt USAGE = {
    "sweep_usage",
    "DELETE FROM usage WHERE (" USAGE_KEY ") IN (SELECT " USAGE_KEY " FROM usage"
    " WHERE minute < " LEFT_TO_ROWS("usage") " ORDER BY minute LIMIT $2 FOR UPDATE SKIP LOCKED)",
    2};
static const struct db_stmt USAGE_SOURCES = {
    "sweep_usage_sources",
    "DELETE FROM usage_source WHERE source IN (SELECT source FROM usage_source WHERE at < " CUTOFF
    " LIMIT $2 FOR UPDATE SKIP LOCKED)",
    2};
/* The hour's own row is of its first minute, and is not among those that are taken away. */
static const struct db_stmt USAGE_HOURS = {
    "sweep_usage_hours",
    "WITH d AS (DELETE FROM usage WHERE (" USAGE_KEY ") IN (SELECT " USAGE_KEY " FROM usage"
    " WHERE minute < " CUTOFF " AND " IS_MINUTE
    " ORDER BY minute LIMIT $2 FOR UPDATE SKIP LOCKED) RETURNING *)"
    ", i AS (INSERT INTO usage (tenant_id, model_id, class, minute, gpu_ns, requests, samples)"
    " SELECT tenant_id, model_id, class, date_trunc('hour', minute, 'UTC'), sum(gpu_ns),"
    " sum(requests), sum(samples) FROM d GROUP BY 1, 2, 3, 4"
    " ON CONFLICT (tenant_id, model_id, class, minute) DO UPDATE SET"
    " gpu_ns = usage.gpu_ns + excluded.gpu_ns, requests = usage.requests + excluded.requests,"
    " samples = usage.samples + excluded.samples)"
    " SELECT FROM d",
    2};
static const struct db_stmt AUDIT = {
    "sweep_audit",
    "DELETE FROM audit WHERE (id, at) IN (SELECT id, at FROM audit WHERE at < " LEFT_TO_ROWS(
        "audit") " ORDER BY at LIMIT $2 FOR UPDATE SKIP LOCKED)",
    2};
/* Few: a tenant has a limited number of live ones, and the dead ones are swept. */
static const struct db_stmt KEYS = {"sweep_keys",
                                    "DELETE FROM api_key WHERE id IN (SELECT id FROM api_key WHERE "
                                    "least(revoked_at, expires_at) < " CUTOFF
                                    " LIMIT $2 FOR UPDATE SKIP LOCKED)",
                                    2};

#define NO_JOB(column) " AND NOT EXISTS (SELECT 1 FROM job j WHERE j." column " = x.id)"
#define OLD_DELETED " WHERE x.deleted_at < " CUTOFF
#define SOME_OF_IT " ORDER BY x.deleted_at LIMIT $2 FOR UPDATE OF x SKIP LOCKED"
/* package NULL: there is no file any more whose bytes a quota counts. */
static const struct db_stmt VERSIONS = {
    "sweep_versions",
    "WITH d AS MATERIALIZED (SELECT x.id FROM model_version x" OLD_DELETED
    " AND x.package IS NULL AND (EXISTS (SELECT 1 FROM model m WHERE m.id = x.model_id"
    "  AND m.deleted_at IS NOT NULL) OR EXISTS (SELECT 1 FROM model_version y"
    "  WHERE y.model_id = x.model_id AND y.version > x.version))" NO_JOB("version_id")
        NO_JOB("result_version_id") SOME_OF_IT
    ")"
    ", p AS (DELETE FROM placement WHERE version_id IN (SELECT id FROM d))"
    ", m AS (DELETE FROM measured WHERE version_id IN (SELECT id FROM d))"
    " DELETE FROM model_version WHERE id IN (SELECT id FROM d)",
    2};
static const struct db_stmt MODELS = {
    "sweep_models",
    "WITH d AS MATERIALIZED (SELECT x.id FROM model x" OLD_DELETED
    " AND NOT EXISTS (SELECT 1 FROM model_version v WHERE v.model_id = x.id)"
    " AND NOT EXISTS (SELECT 1 FROM usage u WHERE u.model_id = x.id)" SOME_OF_IT ")"
    ", s AS (DELETE FROM slo WHERE model_id IN (SELECT id FROM d))"
    ", t AS (DELETE FROM slo_minute WHERE model_id IN (SELECT id FROM d))"
    " DELETE FROM model WHERE id IN (SELECT id FROM d)",
    2};
static const struct db_stmt DATASETS = {
    "sweep_datasets",
    "DELETE FROM dataset WHERE id IN (SELECT x.id FROM dataset x" OLD_DELETED
    " AND x.path IS NULL" NO_JOB("dataset_id") NO_JOB("eval_dataset_id") SOME_OF_IT ")",
    2};

/* One statement, and no transaction of ours around it: a process that stops in the middle would
 * hold the locks of what it did. The lease is locked: what is dropped is more than a batch. */
static const struct db_stmt PART = {
    "sweep_part", "SELECT did, name, ahead_s FROM history_step($1, $2, $3, $4, $5, $6, $7)", 7};

/* A partition for each unit of time: some dozens at most, whatever is kept. */
static const struct unit {
    int64_t up_to_days;
    const char *name, *ahead;
} UNITS[] = {{14, "day", "7"}, {200, "week", "2"}, {INT64_MAX, "month", "2"}};
#define MAX_KEPT "1000" /* events of live jobs that outlive their partition */

static const struct {
    const char *name;
    const char *table;                    /* whose partitions; NULL: rows */
    const struct db_stmt *steps[N_STEPS]; /* in this order; NULL: no more */
} KINDS[SWEEP_N_KINDS] = {
    [SWEEP_EVENT_PARTS] = {"event_parts", "job_event", {NULL}},
    [SWEEP_USAGE_PARTS] = {"usage_parts", "usage", {NULL}},
    [SWEEP_AUDIT_PARTS] = {"audit_parts", "audit", {NULL}},
    [SWEEP_EVENTS] = {"events", NULL, {&EVENTS}},
    [SWEEP_JOBS] = {"jobs", NULL, {&JOB_EVENTS, &JOB_CHECKPOINTS, &JOBS, &ARRAYS}},
    [SWEEP_USAGE_HOURS] = {"usage_hours", NULL, {&USAGE_HOURS}},
    [SWEEP_USAGE] = {"usage", NULL, {&USAGE, &USAGE_SOURCES}},
    [SWEEP_AUDIT] = {"audit", NULL, {&AUDIT}},
    [SWEEP_KEYS] = {"keys", NULL, {&KEYS}},
    [SWEEP_DELETED] = {"deleted", NULL, {&VERSIONS, &MODELS, &DATASETS}},
};

const char *store_sweep_name(enum store_sweep_kind kind)
{
    return (unsigned)kind < SWEEP_N_KINDS ? KINDS[kind].name : "";
}

const char *store_sweep_parts(enum store_sweep_kind kind)
{
    return (unsigned)kind < SWEEP_N_KINDS ? KINDS[kind].table : NULL;
}

static int sweep_part(struct db *db, struct store_sweep *x, struct sh_err *err)
{
    const struct unit *u = &UNITS[0];
    struct store_num epoch, days;
    struct db_res *r = NULL;
    int rc;

    while (x->days == 0 ? u->up_to_days < INT64_MAX : x->days > u->up_to_days)
        u++;
    x->n_rows = 0;
    x->more = false;
    rc = db_exec(db, &PART,
                 (const char *const[]){x->fence.holder, store__i64(&epoch, (int64_t)x->fence.epoch),
                                       KINDS[x->kind].table, u->name, u->ahead,
                                       store__i64(&days, x->days), MAX_KEPT},
                 &r, err);
    if (!rc && db_rows(r) == 0)
        rc = store__not_ours(&x->fence, err);
    if (!rc) {
        sh_strlcpy(x->part.did, db_text(r, 0, 0), sizeof(x->part.did));
        sh_strlcpy(x->part.name, db_text(r, 0, 1) ? db_text(r, 0, 1) : "", sizeof(x->part.name));
        x->part.ahead_s = db_i64(r, 0, 2, 0);
        x->more = x->part.name[0] != '\0';
    }
    db_res_free(r);
    return rc;
}

static int sweep_tx(struct db *db, const void *arg, struct sh_err *err)
{
    struct store_sweep *x = *(struct store_sweep *const *)arg;
    struct store_num days, batch;
    const char *const p[] = {store__i64(&days, x->days), store__i64(&batch, x->batch)};
    int rc = db_exec(db, &LIMITS, NULL, NULL, err);

    x->n_rows = 0;
    x->more = false;
    if (!rc)
        rc = store__still_leads(db, &x->fence, err);
    for (size_t i = 0; i < N_STEPS && KINDS[x->kind].steps[i] && !rc; i++) {
        struct db_res *r = NULL;
        int64_t n;

        rc = db_exec(db, KINDS[x->kind].steps[i], p, &r, err);
        n = rc ? 0 : (int64_t)db_affected(r);
        x->n_rows += n;
        x->more |= n >= x->batch;
        db_res_free(r);
    }
    return rc;
}

static const struct db_stmt FORGET = {
    "changes_forget",
    "WITH d AS (DELETE FROM hot_change WHERE ctid IN (SELECT ctid FROM hot_change"
    "  WHERE xid >= $1::xid8 AND xid < $2::xid8 ORDER BY xid LIMIT $3 FOR UPDATE SKIP LOCKED)"
    "  RETURNING xid) SELECT count(*), max(xid::text::bigint) FROM d",
    3};

/* Passes by tenants that submit right now: their own submission does it. */
static const struct db_stmt ADD_UP = {
    "waiting_add_up",
    "WITH w AS (SELECT tenant_id FROM job_waiting WHERE tenant_id IN"
    "  (SELECT tenant_id FROM job_waiting_change LIMIT $1) FOR UPDATE SKIP LOCKED),"
    " d AS (DELETE FROM job_waiting_change c USING w WHERE c.tenant_id = w.tenant_id RETURNING c.*)"
    " UPDATE job_waiting x SET n = x.n + s.n FROM (SELECT tenant_id, sum(n) AS n FROM d"
    "  GROUP BY tenant_id) s WHERE x.tenant_id = s.tenant_id",
    1};

static int forget_tx(struct db *db, const void *arg, struct sh_err *err)
{
    struct store_forget *f = *(struct store_forget *const *)arg;
    struct store_num from, before, batch;
    struct db_res *r = NULL;
    int rc = store__still_leads(db, &f->fence, err);

    if (!rc)
        rc = db_exec(db, &FORGET,
                     (const char *const[]){store__i64(&from, (int64_t)f->from),
                                           store__i64(&before, (int64_t)f->before),
                                           store__i64(&batch, f->batch)},
                     &r, err);
    if (!rc) {
        f->n_rows = db_i64(r, 0, 0, 0);
        f->last = (uint64_t)db_i64(r, 0, 1, 0);
        rc = db_exec(db, &ADD_UP, (const char *const[]){store__i64(&batch, f->batch)}, NULL, err);
    }
    db_res_free(r);
    return rc;
}

int store_changes_forget(struct db *db, void *arg, struct sh_err *err)
{
    struct store_forget *f = arg;

    return db_tx(db, "changes_forget", forget_tx, &f, err);
}

int store_sweep(struct db *db, void *arg, struct sh_err *err)
{
    struct store_sweep *x = arg;

    if (KINDS[x->kind].table)
        return sweep_part(db, x, err);
    return db_tx(db, "sweep", sweep_tx, &x, err);
}
