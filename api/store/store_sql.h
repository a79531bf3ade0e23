/* store_sql.h - pieces of SQL shared by the store*.c files. */
#ifndef SH_API_STORE_STORE_SQL_H
#define SH_API_STORE_STORE_SQL_H

#include "common/db.h"
#include "common/job.h"

/* clang-format off */
#define SQL_TIME(col) "to_char(" col " AT TIME ZONE 'UTC', 'YYYY-MM-DD\"T\"HH24:MI:SS.MS\"Z\"')"
#define SQL_FINAL SH_JOB_FINAL
/* The database's life. A server that takes over from another, or begins anew from what was saved,
 * may lack commits, and gives their row versions to others: they are compared within one life. */
#define SQL_LIFE                                                                                   \
    "(SELECT concat_ws('-', CASE WHEN NOT pg_is_in_recovery() THEN "                               \
    "left(pg_walfile_name(pg_current_wal_lsn()), 8) END, " /* the timeline */                      \
    "(extract(epoch FROM pg_postmaster_start_time()) * 1000000)::bigint))"
/* Row versions are compared only when the client sent If-Match: a NULL parameter matches all. */
#define SQL_IF_MATCH(p, col) "(" p "::bigint IS NULL OR " col " = " p "::bigint)"

/* CTE `a`: the audit row. key, request: parameters; from: source of tenant, resource and values. */
#define SQL_AUDIT(key, request, action, tenant, resource, before, after, from)                     \
    "a AS (INSERT INTO audit (key_id, request_id, action, tenant_id, resource, before, after) "    \
    "SELECT " key ", " request ", '" action "', " tenant ", " resource ", " before ", " after      \
    " FROM " from ") "

/* Bytes that a tenant (its id) stores: models, datasets, results. */
#define SQL_STORED(tenant)                                                                         \
    "((SELECT coalesce(sum(y.bytes), 0) FROM model_version y JOIN model z ON z.id = y.model_id "   \
    "WHERE z.tenant_id = " tenant " AND y.state <> 'DELETED') + (SELECT coalesce(sum(y.bytes), 0) "\
    "FROM dataset y WHERE y.tenant_id = " tenant " AND y.state <> 'DELETED') + (SELECT "           \
    "coalesce(sum(y.result_bytes), 0) FROM job y WHERE y.tenant_id = " tenant " AND y.state = "    \
    "'SUCCEEDED' AND y.result_version_id IS NULL AND y.result_bytes > 0))"

/* Bytes of its deleted files that a sweep has not removed yet (blobs.h). */
#define SQL_LINGERS(tenant)                                                                        \
    "((SELECT coalesce(sum(y.bytes), 0) FROM model_version y JOIN model z ON z.id = y.model_id "   \
    "WHERE z.tenant_id = " tenant " AND y.state = 'DELETED' AND y.package IS NOT NULL) + (SELECT " \
    "coalesce(sum(y.bytes), 0) FROM dataset y WHERE y.tenant_id = " tenant " AND y.state = "       \
    "'DELETED' AND y.path IS NOT NULL))"

#define SQL_TENANT(t)                                                                              \
    "jsonb_build_object('name', " t ".name, 'state', " t ".state, 'created_at', " SQL_TIME(t       \
    ".created_at") ", 'row_version', " t ".row_version)"

/* A model's target, and how requests of the last hour met it. */
#define SQL_TARGET(m)                                                                              \
    "(SELECT jsonb_build_object('latency_ms', s.latency_ms, 'percentile', s.percentile, "          \
    "'requests', coalesce(x.n, 0)::bigint, 'met', coalesce(x.met, 0)::bigint) FROM slo s LEFT "    \
    "JOIN LATERAL (SELECT sum(y.met) AS met, sum(y.met + y.missed + y.rejected) AS n FROM "        \
    "slo_minute y WHERE y.model_id = s.model_id AND y.minute >= date_trunc('minute', now()) - "    \
    "interval '1 hour') x ON true WHERE s.model_id = " m ".id)"
#define SQL_MODEL(m)                                                                               \
    "jsonb_build_object('name', " m ".name, 'tenant', (SELECT name FROM tenant WHERE id = " m      \
    ".tenant_id), 'visibility', " m ".visibility, 'created_at', " SQL_TIME(m ".created_at")        \
    ", 'versions', (SELECT coalesce(jsonb_agg(jsonb_build_object('version', y.version, "           \
    "'state', y.state, 'pinned', y.pinned) ORDER BY y.version), '[]') FROM model_version y WHERE " \
    "y.model_id = " m                                                                              \
    ".id AND y.state <> 'DELETED'), 'aliases', (SELECT coalesce(jsonb_agg(jsonb_build_object("     \
    "'name', y.name, 'targets', y.targets, 'previous', y.previous, 'rolled_back', y.rolled_back) " \
    "ORDER BY y.name), '[]') FROM model_alias y WHERE y.model_id = " m ".id), 'slo', "             \
    SQL_TARGET(m)                                                                                  \
    ", 'row_version', " m ".row_version)"

#define SQL_VERSION(v)                                                                             \
    "jsonb_build_object('model', (SELECT name FROM model WHERE id = " v                            \
    ".model_id), 'version', " v ".version, 'state', " v ".state, 'pinned', " v                     \
    ".pinned, 'reason_code', " v ".reason_code, 'reason', " v ".reason, 'digest', " v              \
    ".digest, 'bytes', " v                                                                         \
    ".bytes, 'inputs', " v ".inputs, 'outputs', " v ".outputs, 'meta', " v                         \
    ".meta, 'max_batch', " v ".max_batch, 'precision', " v ".precision, 'image_bytes', " v         \
    ".image_bytes, 'profile', " v ".profile, 'source_job', " v ".source_job, 'created_at', "       \
    SQL_TIME(v ".created_at") ", 'ready_at', " SQL_TIME(v ".ready_at") ", 'row_version', " v       \
    ".row_version)"

#define SQL_DATASET(d)                                                                             \
    "jsonb_build_object('name', " d ".name, 'state', " d ".state, 'digest', " d                    \
    ".digest, 'bytes', " d ".bytes, 'tensors', " d ".tensors, 'n_samples', " d                     \
    ".n_samples, 'created_at', " SQL_TIME(d ".created_at") ", 'row_version', " d                   \
    ".row_version)"

#define SQL_SLO(s)                                                                                 \
    "jsonb_build_object('model', (SELECT name FROM model WHERE id = " s                            \
    ".model_id), 'latency_ms', " s ".latency_ms, 'percentile', " s ".percentile, 'priority', "     \
    s ".priority, 'on_miss', " s ".on_miss, 'created_at', " SQL_TIME(s ".created_at")              \
    ", 'row_version', " s ".row_version)"

#define SQL_ALIAS(a)                                                                               \
    "jsonb_build_object('model', (SELECT name FROM model WHERE id = " a                            \
    ".model_id), 'name', " a ".name, 'targets', " a ".targets, 'previous', " a                     \
    ".previous, 'sticky', " a ".sticky, 'rollback', " a ".policy, 'rolled_back', " a               \
    ".rolled_back, 'changed_by', " a ".changed_by, 'changed_at', " SQL_TIME(a ".changed_at")       \
    ", 'created_at', " SQL_TIME(a ".created_at") ", 'row_version', " a ".row_version)"

#define SQL_KEY(k)                                                                                 \
    "jsonb_build_object('id', " k ".id, 'name', " k ".name, 'role', " k                            \
    ".role, 'tenant', (SELECT name FROM tenant WHERE id = " k ".tenant_id), 'created_at', "        \
    SQL_TIME(k ".created_at") ", 'expires_at', " SQL_TIME(k ".expires_at") ", 'revoked_at', "      \
    SQL_TIME(k ".revoked_at") ", 'rotated_at', " SQL_TIME(k ".rotated_at")                         \
    ", 'old_secret_until', " SQL_TIME(k ".old_until") ", 'last_used_at', "                         \
    SQL_TIME(k ".last_used_at") ")"

#define SQL_ARRAY(a)                                                                               \
    "jsonb_build_object('id', " a ".id, 'name', coalesce(" a ".template ->> 'name', ''), 'kind', " \
    a ".template ->> 'kind', 'model', " a ".template ->> 'model', 'version', (SELECT y.version "   \
    "FROM job x JOIN model_version y ON y.id = x.version_id WHERE x.array_id = " a ".id LIMIT 1)"  \
    ", 'dataset', " a ".template ->> "                                                             \
    "'dataset', 'queue', coalesce(" a ".template ->> 'queue', 'default'), 'indices', " a           \
    ".indices, 'jobs', " a ".n_jobs, 'max_parallel', " a ".max_parallel, 'states', (SELECT "       \
    "coalesce(jsonb_object_agg(y.state, y.n), '{}') FROM (SELECT x.state, count(*) AS n FROM job " \
    "x WHERE x.array_id = " a ".id GROUP BY x.state) y), 'grid', " a ".template -> 'grid', "       \
    "'template', " a ".template - 'grid', "             \
    "'client_token', " a ".client_token, 'created_at', " SQL_TIME(a ".created_at")                 \
    ", 'row_version', " a ".row_version)"

/* As its executor reported it last; of a job that does not run it is of no use. */
#define SQL_SAMPLES_RATE(j)                                                                        \
    "CASE WHEN " j ".state IN ('RUNNING', 'PREEMPTED') THEN " j ".samples_per_s END"

#define SQL_JOB(j)                                                                                 \
    "(SELECT jsonb_build_object('id', " j ".id, 'kind', " j ".kind, 'name', " j                    \
    ".name, 'state', " j ".state, 'reason', " j ".reason, 'priority', " j ".priority) || "         \
    "jsonb_build_object('queue', qu.name, 'model', m.name, 'version', v.version, 'dataset', "      \
    "ds.name, 'eval_dataset', es.name, 'spec', " j ".spec, 'client_token', " j                     \
    ".client_token, 'attempt', " j ".attempt, 'max_attempts', " j ".max_attempts, 'executor', "    \
    j ".executor, 'step', " j ".step, 'steps', " j ".steps, 'loss', " j                            \
    ".loss, 'samples_per_s', " SQL_SAMPLES_RATE(j) ", 'steps_per_s', " SQL_SAMPLES_RATE(j) " / "   \
    "CASE WHEN " j ".kind = 'training' THEN coalesce((" j ".spec ->> 'batch')::float8, "           \
    DB_NUMBER(SH_JOB_BATCH) ") ELSE 1 END, 'steps_redone', " j                                     \
    ".steps_redone, 'preemptions', " j ".preemptions, 'busy_ns', " j ".busy_ns, 'result', " j      \
    ".result, 'result_version', rv.version, 'error_code', " j ".error_code, 'error', " j           \
    ".error, 'created_at', " SQL_TIME(j ".created_at") ", 'started_at', " SQL_TIME(j               \
    ".started_at") ", 'finished_at', " SQL_TIME(j ".finished_at") ", 'row_version', " j            \
    ".row_version) || jsonb_build_object('evaluation', " j ".evaluation, 'array', " j              \
    ".array_id, 'array_index', " j \
    ".array_index, 'labels', " j ".labels, 'deadline', " SQL_TIME(j \
    ".deadline") ", 'min_runtime_ms', " j ".min_runtime_ms, 'preemptible', " j                     \
    ".preemptible, 'gpus', " j ".gpus, 'not_before', " SQL_TIME(j                                 \
    ".not_before") ", 'queued_at', " SQL_TIME(j                                                    \
    ".queued_at") ", 'flags', array_remove(ARRAY[CASE " j ".wish WHEN 'SUSPEND' THEN "             \
    "'SUSPEND_PENDING' WHEN 'REQUEUE' THEN 'REQUEUE_PENDING' END, CASE WHEN " j ".save_asked > " j \
    ".save_done AND " j ".executor IS NOT NULL AND " j ".state NOT IN " SQL_FINAL                  \
    " THEN 'CHECKPOINTING' END], NULL)) FROM queue qu, model_version v JOIN model m ON m.id = "    \
    "v.model_id LEFT JOIN dataset ds ON ds.id = " j                                                \
    ".dataset_id LEFT JOIN dataset es ON es.id = " j                                               \
    ".eval_dataset_id LEFT JOIN model_version rv ON rv.id = " j                                    \
    ".result_version_id WHERE qu.id = " j ".queue_id AND v.id = " j ".version_id)"

#define SQL_EVENT(e)                                                                               \
    "jsonb_build_object('id', " e ".id, 'at', " SQL_TIME(e ".at") ", 'from', " e                   \
    ".from_state, 'to', " e ".to_state, 'reason', " e ".reason, 'detail', " e ".detail)"
/* clang-format on */

#endif
