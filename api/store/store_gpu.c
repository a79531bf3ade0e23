/* store_gpu.c - SQL for GPUs: the scheduler's reports, with names only for those who may see
 * them. */
#include "api/store/store.h"
#include "api/store/store_sql.h"

/* clang-format off */
/* t: the reader's tenant, 0: an admin's. What a device that is away did last is not shown. */
#define SQL_SEES(t, owner) "(" t "::bigint = 0 OR " owner " = " t "::bigint)"
#define SQL_BYTES(name) "coalesce((e.status ->> '" name "')::bigint, 0)"
#define SQL_POOL(t)                                                                                \
    "CASE WHEN " t "::bigint = 0 AND e.state = 'UP' THEN jsonb_build_object('weights_bytes', "     \
    SQL_BYTES("weights") ", 'training_bytes', " SQL_BYTES("training") ", 'workspace_bytes', "      \
    SQL_BYTES("workspace") ", 'used_bytes', " SQL_BYTES("weights") " + " SQL_BYTES("training")     \
    " + " SQL_BYTES("workspace") ") END"
#define SQL_HOST(t)                                                                                \
    "CASE WHEN " t "::bigint = 0 AND e.state = 'UP' THEN jsonb_build_object('images_bytes', "      \
    SQL_BYTES("host_images") ", 'programs_bytes', " SQL_BYTES("host_programs") ", 'used_bytes', "  \
    SQL_BYTES("host_images") " + " SQL_BYTES("host_programs") ", 'limit_bytes', "                  \
    SQL_BYTES("host_limit") ") END"
#define SQL_BUSY(t)                                                                                \
    "CASE WHEN " t "::bigint = 0 AND e.state = 'UP' THEN jsonb_build_object('requests', "          \
    "coalesce((e.status ->> 'requests_ratio')::float8, 0), 'jobs', coalesce((e.status ->> "        \
    "'jobs_ratio')::float8, 0)) END"
#define SQL_FENCES(t)                                                                              \
    "CASE WHEN " t "::bigint = 0 AND e.state = 'UP' THEN nullif(e.status -> 'fences', 'null') END"
#define SQL_RUNS(t)                                                                                \
    "(SELECT coalesce(jsonb_agg(jsonb_build_object('tenant', tn.name, 'model', m.name, "           \
    "'version', v.version, 'batch', r.batch)), '[]') FROM jsonb_to_recordset(e.status -> 'runs') " \
    "AS r (version bigint, tenant bigint, batch int) JOIN tenant tn ON tn.id = r.tenant JOIN "     \
    "model_version v ON v.id = r.version JOIN model m ON m.id = v.model_id WHERE e.state = 'UP' "  \
    "AND " SQL_SEES(t, "r.tenant") ")"
#define SQL_MODELS(t)                                                                              \
    "(SELECT coalesce(jsonb_agg(jsonb_build_object('tenant', tn.name, 'model', m.name, "           \
    "'version', v.version, 'state', p.state, 'pin', p.pin, 'device_bytes', p.device_bytes, "       \
    "'host_bytes', p.host_bytes) ORDER BY p.device_bytes DESC, v.id), '[]') FROM placement p "     \
    "JOIN model_version v ON v.id = p.version_id JOIN model m ON m.id = v.model_id JOIN tenant "   \
    "tn ON tn.id = m.tenant_id WHERE p.executor = e.name AND e.state = 'UP' AND ("                 \
    SQL_SEES(t, "m.tenant_id") " OR m.visibility = 'shared'))"
#define SQL_RUNNING_JOB(t)                                                                         \
    "(SELECT jsonb_build_object('id', j.id, 'tenant', tn.name, 'name', j.name, 'kind', j.kind, "   \
    "'state', j.state, 'step', j.step, 'steps', j.steps) FROM job j JOIN tenant tn ON tn.id = "    \
    "j.tenant_id WHERE j.executor = e.name AND j.state IN "   \
    SH_JOB_IS_ON_EXECUTOR " AND " SQL_SEES(t, "j.tenant_id") " ORDER BY j.id DESC LIMIT 1)"
#define SQL_GPU(t)                                                                                 \
    "jsonb_build_object('name', e.name, 'host_id', e.host_id, 'device', e.device, 'device_name', " \
    "nullif(e.status ->> 'device_name', ''), 'state', e.state, 'seen_at', " SQL_TIME("e.seen_at")  \
    ", 'heard_at', " SQL_TIME("e.heard_at") ", 'workers', e.workers, 'memory_bytes', "             \
    "nullif((e.status ->> 'device_bytes')::bigint, 0), 'pool_bytes', e.pool_bytes, "               \
    "'link_bytes_per_s', nullif((e.status ->> 'link_bytes_per_s')::float8, 0), 'pool', "           \
    SQL_POOL(t) ", 'host', " SQL_HOST(t) ", 'busy', " SQL_BUSY(t) ", 'fences', " SQL_FENCES(t)     \
    ", 'runs', " SQL_RUNS(t) ", 'models', " SQL_MODELS(t) ", 'job', " SQL_RUNNING_JOB(t) ")"

/* The reader's name, "" for an admin: what others had is theirs together. */
#define SQL_IS_SHOWN(x) "($3 = '' OR " x ".tenant = $3)"
#define SQL_PARTS                                                                                  \
    "(SELECT coalesce(jsonb_agg(jsonb_build_object('tenant', y.tenant, 'use', y.use, 'ms', y.ms) " \
    "ORDER BY y.use, y.tenant), '[]') FROM (SELECT CASE WHEN " SQL_IS_SHOWN("x") " THEN x.tenant " \
    "END AS tenant, CASE WHEN " SQL_IS_SHOWN("x") " THEN x.use ELSE 'others' END AS use, "         \
    "sum(x.us) / 1000.0 AS ms FROM jsonb_to_recordset(c.value -> 'parts') AS x (tenant text, "     \
    "use text, us bigint) GROUP BY 1, 2) y)"
#define SQL_CELLS                                                                                  \
    "(SELECT coalesce(jsonb_agg(jsonb_build_object('at', "                                         \
    SQL_TIME("to_timestamp((c.value ->> 'at')::float8 / 1000)") ", 'ms', c.value -> 'ms', "        \
    "'parts', " SQL_PARTS ") ORDER BY c.n), '[]') FROM jsonb_array_elements(e.status #> "          \
    "'{recent,cells}') WITH ORDINALITY AS c (value, n) WHERE e.state = 'UP')"
#define SQL_SWITCHES                                                                               \
    "(SELECT coalesce(jsonb_agg(jsonb_build_object('at', "                                         \
    SQL_TIME("to_timestamp(s.at / 1000)") ", 'tenant', s.tenant, 'model', m.name, 'version', "     \
    "v.version, 'batch', s.batch, 'stopped_training', s.stopped, 'wait_ms', s.wait_ms, "           \
    "'memory_ms', s.memory_ms, 'first_ms', s.first_ms, 'compute_ms', s.compute_ms, 'copy_ms', "    \
    "s.copy_ms, 'copied_bytes', s.copied_bytes) ORDER BY s.at DESC), '[]') FROM "                  \
    "jsonb_to_recordset(e.status #> '{recent,switches}') AS s (at float8, tenant text, version "   \
    "bigint, batch int, stopped boolean, wait_ms float8, memory_ms float8, first_ms float8, "      \
    "compute_ms float8, copy_ms float8, copied_bytes bigint) JOIN model_version v ON v.id = "      \
    "s.version JOIN model m ON m.id = v.model_id WHERE e.state = 'UP' AND " SQL_IS_SHOWN("s") ")"

/* They have no number; their rank by name is one that holds still long enough for pages. */
static const struct db_stmt GPU_LIST = {
    "gpu_list",
    "SELECT r, " SQL_GPU("$3") " FROM (SELECT *, row_number() OVER (ORDER BY name) AS r FROM "
    "executor) e WHERE $1::bigint IS NULL OR r > $1::bigint ORDER BY r LIMIT $2::bigint + 1",
    3,
};

static const struct db_stmt GPU_TIMES = {
    "gpu_times",
    "SELECT r, jsonb_build_object('gpu', e.name, 'cells', " SQL_CELLS ", 'switches', " SQL_SWITCHES
    ") FROM (SELECT *, row_number() OVER (ORDER BY name) AS r FROM executor) e WHERE $1::bigint IS "
    "NULL OR r > $1::bigint ORDER BY r LIMIT $2::bigint + 1",
    3,
};

static const struct db_stmt GPU_GET = {
    "gpu_get",
    "SELECT " SQL_GPU("$2") " FROM executor e WHERE e.name = $1",
    2,
};
/* clang-format on */

int store_gpu_list(struct api_req *q, const struct req_page *page, json_t **out, struct sh_err *err)
{
    const char *p[] = {page->cursor, page->limit_text, STORE_TEXT(q->who.tenant_id)};

    return store_page(q->db, &GPU_LIST, p, page, out, err);
}

int store_gpu_times(struct api_req *q, const struct req_page *page, json_t **out,
                    struct sh_err *err)
{
    const char *p[] = {page->cursor, page->limit_text, q->who.tenant};

    return store_page(q->db, &GPU_TIMES, p, page, out, err);
}

int store_gpu_get(struct api_req *q, const char *name, json_t **out, struct sh_err *err)
{
    const char *p[] = {name, STORE_TEXT(q->who.tenant_id)};

    return store_one(q->db, &GPU_GET, p, out, err);
}
