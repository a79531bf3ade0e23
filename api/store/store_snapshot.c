/* store_snapshot.c - SQL for a snapshot of all that decisions rest on, of one moment
 * (simulate/world.h). It names columns, so that nothing else gets into it: no key, no address, no
 * spec, no label. */
#include "api/store/store.h"
#include "api/store/store_sql.h"

#define MAX_LIVE 100000            /* jobs that have not ended, the first ones of the queue */
#define MAX_ENDED 20000            /* the last ones */
#define MAX_REQUESTS 1000000       /* the last ones that came ... */
#define MAX_ARRIVAL_BYTES 33554432 /* ... in so much text */

/* clang-format off */
#define SQL_AGE(col) "round(extract(epoch FROM now() - " col ")::numeric, 3)"
#define SQL_LIST(of, from) "(SELECT coalesce(json_agg(" of "), '[]') FROM " from ")"

#define SQL_OF_GPU(name) "'" name "', coalesce((e.status -> '" name "')::float8, 0)"
#define SQL_GPUS SQL_LIST("json_build_object('name', e.name, 'pool_bytes', e.pool_bytes, "         \
    SQL_OF_GPU("ns_per_byte") ", " SQL_OF_GPU("stop_ns") ", " SQL_OF_GPU("training") ", "          \
    SQL_OF_GPU("most_workspace") ") ORDER BY e.name", "executor e WHERE e.state = 'UP'")
#define SQL_TENANTS SQL_LIST("json_build_object('name', t.name, 'active', t.state = 'ACTIVE', "    \
    "'guaranteed_gpus', q.guaranteed_gpus, 'max_gpus', q.max_gpus, 'over_quota_weight', "          \
    "q.over_quota_weight, 'borrowing_limit', q.borrowing_limit, 'lending_limit', "                 \
    "q.lending_limit, 'gpu_memory_max_bytes', q.gpu_memory_max_bytes, 'max_running_jobs', "        \
    "q.max_running_jobs, 'max_concurrent_requests', q.max_concurrent_requests, "                   \
    "'usage_gpu_s', s.usage_ns / 1e9 * power(0.5, greatest(extract(epoch "     \
    "FROM now() - s.at), 0) / s.half_life_s)) ORDER BY t.id",                                      \
    "tenant t LEFT JOIN quota q ON q.tenant_id = t.id LEFT JOIN tenant_share s ON s.tenant_id = "  \
    "t.id WHERE t.state <> 'DELETED'")
#define SQL_IF_ON(what) "CASE WHEN j.state IN " SH_JOB_IS_ON_EXECUTOR " THEN " what " END"
/* Since when its executor has it: of the start that lasts. */
#define SQL_SINCE                                                                                  \
    SQL_IF_ON("(SELECT " SQL_AGE("e.at") " FROM job_event e WHERE "                                \
    "e.job_id = j.id AND e.to_state = 'STARTING' ORDER BY e.id DESC LIMIT 1)")
#define SQL_JOBS SQL_LIST("json_build_object('id', j.id, 'tenant', t.name, 'state', j.state, "     \
    "'queue', qu.name, 'queue_open', qu.state <> 'HELD', 'gpu', " SQL_IF_ON("j.executor")         \
    ", 'model', v.model_id, "                                                                      \
    "'version', v.id, 'ready', v.state IN ('REGISTERED', 'LOADING', 'READY'), "                    \
    "'batch_inference', j.kind <> 'training', 'preemptible', j.preemptible, 'gpus', j.gpus, "      \
    "'priority', "                                                                                \
    "j.priority + qu.priority, 'array', coalesce(j.array_id, 0), 'max_parallel', "                 \
    "coalesce(a.max_parallel, 0), 'min_runtime_ms', j.min_runtime_ms, 'step', j.step, 'steps', "   \
    SH_JOB_STEPS ", 'step_samples'," SH_JOB_STEP_SAMPLES ", 'steps_redone', j.steps_redone, "      \
    "'busy_s', j.busy_ns / 1e9, 'created_s', " SQL_AGE("j.created_at") ", 'queued_s', "            \
    SQL_AGE("j.queued_at") ", 'since_s', " SQL_SINCE ", 'started_s', " SQL_AGE("j.started_at")     \
    ", 'finished_s', " SQL_AGE("j.finished_at") ", 'wait_s', greatest(-" SQL_AGE("j.not_before")   \
    ", 0), 'one_start', j.attempt <= 1 AND j.base_busy_ns = 0)",                                   \
    "(SELECT * FROM (SELECT * FROM job WHERE state IN ('QUEUED', " SH_JOB_ON_EXECUTOR(             \
    SH_JOB_SQL, ", ") ") ORDER BY state = 'QUEUED', priority DESC, id LIMIT "                      \
    DB_NUMBER(MAX_LIVE) ") x UNION ALL SELECT * FROM (SELECT * FROM job WHERE finished_at IS NOT " \
    "NULL ORDER BY finished_at DESC LIMIT " DB_NUMBER(MAX_ENDED) ") y) j JOIN tenant t ON t.id = " \
    "j.tenant_id JOIN queue qu ON qu.id = j.queue_id JOIN model_version v ON v.id = j.version_id " \
    "LEFT JOIN dataset d ON d.id = j.dataset_id LEFT JOIN job_array a ON a.id = j.array_id WHERE " \
    "t.state <> 'DELETED'")

/* Versions that are served: what they are, what was learnt of their runs, where they are loaded. */
#define SQL_MODELS SQL_LIST("json_build_object('id', v.id, 'model_id', m.id, 'tenant', t.name, "   \
    "'model', m.name, 'version', v.version, 'shared', m.visibility = 'shared', 'max_batch', "      \
    "v.max_batch, 'solo', coalesce(v.meta -> 'solo' = 'true'::jsonb, false), 'pinned', v.pinned, " \
    "'image_bytes', coalesce(v.image_bytes, 0), 'slo_ms', o.latency_ms, 'percentile', "            \
    "o.percentile, 'priority', o.priority, 'on_miss', o.on_miss, 'profile', v.profile, 'learnt', " \
    SQL_LIST("x.learnt || jsonb_build_object('batch', x.batch) ORDER BY x.batch",                  \
    "measured x WHERE x.version_id = v.id AND x.learnt <> '{}'") ", 'homes', "                     \
    SQL_LIST("json_build_object('gpu', p.executor, 'device_bytes', p.device_bytes) ORDER BY "      \
    "p.executor", "placement p WHERE p.version_id = v.id AND p.state = 'READY'")                   \
    ") ORDER BY v.id", "model_version v JOIN model m ON m.id = v.model_id JOIN tenant t ON t.id "  \
    "= m.tenant_id LEFT JOIN slo o ON o.model_id = m.id WHERE v.state = 'READY' AND "              \
    "m.deleted_at IS NULL AND t.state <> 'DELETED'")
/* What is not taken is not read: sums are of numbers beside it. */
#define SQL_ARRIVALS SQL_LIST("json_build_object('ago_s', " SQL_AGE("a.at") ", 'seconds', "        \
    "a.seconds, 'rows', a.rows) ORDER BY a.at", "(SELECT at, seconds, rows, sum(requests) OVER w " \
    "AS n, sum(bytes) OVER w AS n_bytes FROM arrival WHERE at >= now() - $1::float8 * interval "   \
    "'1 hour' WINDOW w AS (ORDER BY at DESC)) a"                                                   \
    " WHERE a.n <= " DB_NUMBER(MAX_REQUESTS) " AND a.n_bytes <= " DB_NUMBER(MAX_ARRIVAL_BYTES))

static const struct db_stmt SNAPSHOT = {
    "snapshot",
    "SELECT json_build_object('format', 3, 'at', " SQL_TIME("now()") ", 'scheduler', coalesce("
    "(SELECT l.options FROM lease l WHERE l.name = 'scheduler'), '{}'), 'gpus', " SQL_GPUS ", "
    "'tenants', " SQL_TENANTS ", 'jobs', " SQL_JOBS ", 'jobs_left_out', (SELECT "
    "greatest(count(*) - " DB_NUMBER(MAX_LIVE) ", 0) FROM job WHERE state IN ('QUEUED', "
    SH_JOB_ON_EXECUTOR(SH_JOB_SQL, ", ") ")), 'models', "
    SQL_MODELS ", 'arrivals', " SQL_ARRIVALS ")",
    1,
};
/* clang-format on */

int store_snapshot(struct db *db, double hours, json_t **out, struct sh_err *err)
{
    char text[32];

    snprintf(text, sizeof(text), "%.9g", hours);
    return store_one(db, &SNAPSHOT, (const char *[]){text}, out, err);
}
