/* store_rows.c - what a look reads of tenants, models and jobs: the statements, and the mapping of
 * columns to members. */
#include "common/job.h"
#include "common/mem.h"
#include "common/quota.h"
#include "common/states.h"
#include "scheduler/database/store_int.h"
#include "scheduler/database/store_view.h"

#include <math.h>

/* A column that has the name of its member, or another one. */
#define COL(type, field, ...) COL_AS(#field, type, field, ##__VA_ARGS__)
#define COL_AS(name, type, field, ...)                     \
    {                                                      \
        name, DB_##type, offsetof(ROW, field), __VA_ARGS__ \
    }

/* ------------------------------------------------------------------ tenants */

const struct db_stmt STORE__TENANTS = {
    "view_tenants",
    "SELECT t.id, t.name, t.state = 'ACTIVE' AS active, q.guaranteed_gpus,"
    " least(q.max_gpus, q.guaranteed_gpus + q.borrowing_limit) AS max_gpus, q.over_quota_weight,"
    " q.max_running_jobs, q.max_concurrent_requests, q.lending_limit, q.gpu_memory_min_bytes,"
    " q.gpu_memory_max_bytes, q.gpu_memory_share, q.host_memory_max_bytes"
    " FROM tenant t LEFT JOIN quota q ON q.tenant_id = t.id"
    " WHERE t.state <> 'DELETED' ORDER BY t.id LIMIT $1",
    1};

#define ROW struct store_tenant
static const struct db_field TENANT[] = {
    COL(I64, id),
    COL(TEXT, name),
    COL(BOOL, active),
    COL(F64, guaranteed_gpus),
    COL(F64, max_gpus, -1),
    COL_AS("over_quota_weight", F64, weight, SH_QUOTA_over_quota_weight),
    COL(F64, lending_limit, -1),
    COL(U32, max_running_jobs, SH_QUOTA_max_running_jobs),
    COL(U32, max_concurrent_requests, SH_QUOTA_max_concurrent_requests),
    COL_AS("gpu_memory_min_bytes", U64, memory.min_bytes),
    COL_AS("gpu_memory_max_bytes", U64, memory.max_bytes),
    COL_AS("gpu_memory_share", F64, memory.share, SH_QUOTA_gpu_memory_share),
    COL_AS("host_memory_max_bytes", U64, memory.host_max_bytes),
};
#undef ROW

int store__read_tenants(const struct db_res *r, struct store_tenant *rows, struct sh_err *err)
{
    return db_read_rows(r, TENANT, SH_ARRAY_LEN(TENANT), sizeof(*rows), rows, err);
}

/* ------------------------------------------------------------------ models */

const struct db_stmt STORE__MODELS = {
    "view_models",
    "SELECT v.id AS version_id, m.id AS model_id, t.id AS tenant_id, t.name AS tenant,"
    " m.name AS model, v.state, v.package, v.precision, v.profile::text, v.version, v.max_batch,"
    " v.image_bytes, s.latency_ms, s.priority, coalesce(s.on_miss, 'best-effort') AS on_miss,"
    " s.percentile, v.pinned, (SELECT sum(x.runs) FROM measured x WHERE x.version_id = v.id) AS"
    " n_runs, v.meta -> 'solo' = 'true'::jsonb AS is_solo, v.meta ->> 'warm' AS warm"
    " FROM model_version v JOIN model m ON m.id = v.model_id JOIN tenant t ON t.id = m.tenant_id"
    " LEFT JOIN slo s ON s.model_id = m.id"
    " WHERE v.state IN (" SH_VERSION_ON_EXECUTORS(
        SH_STATE_SQL, ", ") ") AND m.deleted_at IS NULL"
                            " AND t.state <> 'DELETED' ORDER BY v.id LIMIT $1",
    1};

#define ROW struct store_model
static const struct db_field MODEL[] = {
    COL(I64, version_id),
    COL(I64, model_id),
    COL(I64, tenant_id),
    COL(TEXT, tenant),
    COL(TEXT, model),
    COL(TEXT, state),
    COL(TEXT, package),
    COL(TEXT, precision),
    COL(TEXT, profile),
    COL(U32, version),
    COL(U32, max_batch, 1),
    COL(U64, image_bytes),
    COL(U64, n_runs),
    COL_AS("latency_ms", F64, slo_ms),
    COL_AS("percentile", F64, slo_percentile, 99),
    COL_AS("priority", I32, slo_priority),
    COL(TEXT, on_miss),
    COL(BOOL, pinned),
    COL(BOOL, is_solo),
    COL(TEXT, warm),
};
#undef ROW

int store__read_models(const struct db_res *r, struct store_model *rows, struct sh_err *err)
{
    return db_read_rows(r, MODEL, SH_ARRAY_LEN(MODEL), sizeof(*rows), rows, err);
}

/* ------------------------------------------------------------------ jobs */

/* A job is looked up by itself: an index of it by which it could be joined, job_dataset, looks as
 * good for a table that seems empty, and would be read from end to end for each. */
const struct db_stmt STORE__JOBS = {
    "view_jobs",
    "SELECT c.id, j.* FROM (SELECT DISTINCT unnest($1::bigint[]) AS id) c LEFT JOIN LATERAL ("
    "SELECT j.tenant_id, j.version_id, m.id AS model_id, t.name AS tenant, m.name AS model,"
    " j.state, q.state AS queue_state, v.state AS version_state, coalesce(j.executor, '') AS"
    " executor, j.reason, j.priority + q.priority AS priority, j.attempt, j.max_attempts,"
    " j.step, j.steps, j.loss, j.samples_per_s, j.steps_redone, j.preemptions, j.busy_ns,"
    " j.base_redone, j.base_preemptions, j.base_busy_ns, j.wish, j.save_asked, j.save_done,"
    " (extract(epoch FROM j.queued_at) * 1000000)::bigint AS queued_us,"
    " (extract(epoch FROM j.queued_at) * 1000000)::bigint + j.handicap_us AS line_us,"
    " j.min_runtime_ms,"
    " j.preemptible, j.gpus, extract(epoch FROM j.deadline - now()) AS deadline_s,"
    " extract(epoch FROM j.not_before - now()) AS not_before_s,"
    " j.kind = 'batch_inference' AS is_batch,"
    " j.kind = 'training' AND coalesce((j.spec->>'publish')::boolean, true) AS publishes,"
    " j.queue_id, j.priority AS own_priority, coalesce(j.array_id, 0) AS array_id,"
    " a.max_parallel," SH_JOB_STEP_SAMPLES " AS step_samples, " SH_JOB_STEPS " AS all_steps"
    " FROM (SELECT * FROM job WHERE job.id = c.id OFFSET 0) j"
    " LEFT JOIN job_array a ON a.id = j.array_id JOIN tenant t ON t.id = j.tenant_id "
    "JOIN queue q ON q.id = j.queue_id"
    " JOIN model_version v ON v.id = j.version_id JOIN model m ON m.id = v.model_id"
    " LEFT JOIN dataset d ON d.id = j.dataset_id OFFSET 0) j ON true",
    1};

#define ROW struct store_job
static const struct db_field JOB[] = {
    COL(I64, id),
    COL_AS("tenant_id", I64, line.tenant_id),
    COL_AS("queue_id", I64, line.queue_id),
    COL_AS("version_id", I64, line.version_id),
    COL_AS("array_id", I64, line.array_id),
    COL_AS("is_batch", BOOL, line.is_batch),
    COL_AS("preemptible", BOOL, line.preemptible),
    COL_AS("gpus", U32, line.gpus, 1),
    COL_AS("own_priority", I32, place.priority),
    COL_AS("line_us", I64, place.line_us),
    COL_AS("id", I64, place.id),
    COL(I64, model_id),
    COL(TEXT, tenant),
    COL(TEXT, model),
    COL(TEXT, state),
    COL(TEXT, queue_state),
    COL(TEXT, version_state),
    COL(TEXT, executor),
    COL(TEXT, reason),
    COL(I32, priority),
    COL(U32, attempt),
    COL(U32, max_attempts, 1),
    COL_AS("step", I64, progress.step),
    COL_AS("steps", I64, progress.steps),
    COL_AS("loss", F64, progress.loss, NAN),
    COL_AS("samples_per_s", F64, progress.samples_per_s, NAN),
    COL_AS("steps_redone", I64, progress.redone),
    COL_AS("preemptions", I64, progress.preemptions),
    COL_AS("busy_ns", I64, progress.busy_ns),
    COL_AS("base_redone", I64, base.redone),
    COL_AS("base_preemptions", I64, base.preemptions),
    COL_AS("base_busy_ns", I64, base.busy_ns),
    COL(TEXT, wish),
    COL(I64, save_asked),
    COL(I64, save_done),
    COL(I64, min_runtime_ms),
    COL(I64, queued_us),
    COL(F64, deadline_s, NAN),
    COL(F64, not_before_s, NAN),
    COL(BOOL, publishes),
    COL_AS("max_parallel", U32, array_max),
    COL(I64, step_samples, 1),
    COL(I64, all_steps),
};
#undef ROW

int store__read_jobs(const struct db_res *r, struct store_job *rows, struct sh_err *err)
{
    int rc = db_read_rows(r, JOB, SH_ARRAY_LEN(JOB), sizeof(*rows), rows, err);

    for (size_t i = 0; !rc && i < db_rows(r); i++)
        rows[i].gone = !rows[i].state;
    return rc;
}
