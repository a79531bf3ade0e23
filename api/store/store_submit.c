/* store_submit.c - SQL for submissions: everything in a request, one job or a thousand, is one
 * statement. The database itself enforces the tenant's quota (migrations/0005_submit.sql): what
 * would exceed it fails as a whole. */
#include "api/store/store_job.h"
#include "api/store/store_sql.h"
#include "common/mem.h"

#include <stdlib.h>

/* clang-format off */
#define SUBMIT_VERSION                                                                             \
    "(SELECT jsonb_build_object('id', v.id, 'version', v.version, 'state', v.state, 'inputs', "    \
    "v.inputs, 'outputs', v.outputs, 'meta', v.meta, 'max_batch', v.max_batch, 'source_job', "    \
    "v.source_job) FROM model_version v JOIN model m ON m.id = v.model_id WHERE m.tenant_id = "    \
    "$1::bigint AND "                                                                              \
    "m.name = $2 AND m.deleted_at IS NULL AND v.state <> 'DELETED' AND (v.version = $3::int OR "   \
    "($3::int IS NULL AND v.package IS NOT NULL)) ORDER BY $6::boolean AND v.source_job IS NOT "   \
    "NULL, v.version DESC LIMIT 1)"
#define SUBMIT_DATASET(name)                                                                       \
    "(SELECT jsonb_build_object('id', d.id, 'state', d.state, 'tensors', d.tensors, 'n_samples', " \
    "d.n_samples, 'max_storage_bytes', (SELECT max_storage_bytes FROM quota qt WHERE "             \
    "qt.tenant_id = d.tenant_id)) FROM dataset d WHERE d.tenant_id = $1::bigint AND d.name = "     \
    name " AND d.state <> 'DELETED')"

static const struct db_stmt SUBMIT_PARTS = {
    "submit_parts",
    "SELECT " SUBMIT_VERSION ", " SUBMIT_DATASET("$4") ", " SUBMIT_DATASET("$5"),
    6,
};

static const struct db_stmt STORED = {
    "stored",
    "SELECT " SQL_STORED("$1::bigint"),
    1,
};

/* Numbers are drawn first, so that each row of the answer knows which of the jobs it was. A token
 * that is known makes no row. One statement for each way to submit, and not one with a parameter
 * for the way: its plan would depend on that parameter, so PostgreSQL would plan it each time.
 * r: the CTE of their array, if any; array: its id; if: whether to create them; resource, after:
 * for the audit; of: of which jobs; json: what the answer says of each. */
#define SUBMIT(way, r, array, if, resource, after, of, json)                                       \
    "WITH i AS MATERIALIZED (SELECT nextval('job_id_seq') AS id, x.* FROM "                        \
    "jsonb_to_recordset($2::jsonb) x (place int, kind text, name text, queue text, priority int, " \
    "version_id bigint, dataset_id bigint, eval_dataset_id bigint, spec jsonb, client_token text, "\
    "max_attempts int, hold boolean, labels jsonb, deadline timestamptz, min_runtime_ms bigint, "  \
    "preemptible boolean, gpus int, array_index int)), " r "j AS (INSERT INTO job (id, tenant_id, "\
    "queue_id, kind, name, priority, version_id, dataset_id, eval_dataset_id, spec, "              \
    "client_token, max_attempts, state, reason, labels, deadline, min_runtime_ms, preemptible, "   \
    "gpus, array_id, array_index) OVERRIDING SYSTEM VALUE SELECT i.id, $1::bigint, q.id, "         \
    "i.kind, i.name, i.priority, i.version_id, i.dataset_id, i.eval_dataset_id, i.spec, "          \
    "i.client_token, i.max_attempts, CASE WHEN i.hold THEN 'HELD' ELSE 'QUEUED' END, CASE WHEN "   \
    "i.hold THEN 'Held' ELSE '' END, i.labels, i.deadline, i.min_runtime_ms, i.preemptible, "      \
    "i.gpus, " array ", i.array_index FROM i CROSS JOIN LATERAL (SELECT u.id FROM queue u "        \
    "WHERE u.name = i.queue AND (u.tenant_id IS NULL OR u.tenant_id = $1::bigint) AND "            \
    "u.state <> 'DRAINING' ORDER BY u.tenant_id NULLS LAST LIMIT 1) q " if "ORDER BY "             \
    "i.place ON CONFLICT (tenant_id, client_token) WHERE client_token IS NOT NULL DO NOTHING "     \
    "RETURNING *), e AS (INSERT INTO "                                                             \
    "job_event (job_id, to_state, reason, at) SELECT id, state, 'Submitted', " SH_JOB_EVENT_TIME   \
    " FROM j), a AS (INSERT INTO audit (key_id, request_id, action, tenant_id, resource, after) "  \
    "SELECT $3, $4, '" way ".create', $1::bigint, " resource ", " after " FROM j" of ") "          \
    "SELECT i.place, j.id, " json ", j.array_id FROM i LEFT JOIN j ON j.id = i.id ORDER BY i.place"
#define SUBMIT_IDS "jsonb_build_object('jobs', jsonb_agg(id))"
#define SUBMIT_ANY " HAVING count(*) > 0"

static const struct db_stmt SUBMIT[] = {
    [STORE_SUBMIT_JOB] = {
        "submit_job",
        SUBMIT("job", "", "NULL::bigint", "", "'job/' || id", "to_jsonb(j.*)", "", SQL_JOB("j")),
        4,
    },
    [STORE_SUBMIT_BATCH] = {
        "submit_batch",
        SUBMIT("batch", "", "NULL::bigint", "", "'job/' || min(id) || '-' || max(id)", SUBMIT_IDS,
               SUBMIT_ANY, "NULL"),
        4,
    },
    [STORE_SUBMIT_ARRAY] = {
        "submit_array",
        SUBMIT("array", "r AS (INSERT INTO job_array (tenant_id, indices, n_jobs, max_parallel, "
               "template, client_token) SELECT $1::bigint, x.indices, x.n_jobs, x.max_parallel, "
               "x.template, x.client_token FROM jsonb_to_record($5::jsonb) x (indices text, n_jobs "
               "int, max_parallel int, template jsonb, client_token text) ON CONFLICT (tenant_id, "
               "client_token) WHERE client_token IS NOT NULL DO NOTHING RETURNING id), ",
               "(SELECT id FROM r)", "WHERE EXISTS (SELECT FROM r) ", "'array/' || min(array_id)",
               SUBMIT_IDS, SUBMIT_ANY, "NULL"),
        5,
    },
};

static const struct db_stmt JOB_BY_TOKEN = {
    "job_by_token",
    "SELECT " SQL_JOB("j") " FROM job j WHERE j.tenant_id = $1::bigint AND j.client_token = $2",
    2,
};
/* clang-format on */

int store_submit_parts(struct api_req *q, const struct jobspec *s, struct store_parts *out,
                       struct sh_err *err)
{
    const char *p[] = {STORE_TEXT(q->tenant_id),
                       s->model,
                       s->version > 0 ? STORE_TEXT(s->version) : NULL,
                       s->dataset,
                       s->eval_dataset,
                       jobspec_wants_upload(s) ? "true" : "false"};
    json_t **const parts[] = {&out->version, &out->dataset, &out->eval_dataset};
    struct db_res *res = NULL;
    int rc;

    *out = (struct store_parts){0};
    rc = db_exec(q->db, &SUBMIT_PARTS, p, &res, err);
    for (size_t i = 0; !rc && i < SH_ARRAY_LEN(parts); i++)
        if (db_text(res, 0, i))
            rc = store_json(db_text(res, 0, i), SUBMIT_PARTS.name, parts[i], err);
    db_res_free(res);
    if (rc)
        store_parts_fini(out);
    return rc;
}

void store_parts_fini(struct store_parts *p)
{
    json_decref(p->version);
    json_decref(p->dataset);
    json_decref(p->eval_dataset);
    *p = (struct store_parts){0};
}

int store_submit(struct api_req *q, enum store_submit_way way, const json_t *jobs,
                 const json_t *array, struct db_res **out, struct sh_err *err)
{
    char *rows = NULL, *head = NULL;
    int rc = sh_json_dump_unsorted(jobs, &rows, err);

    *out = NULL;
    if (!rc && array)
        rc = sh_json_dump_unsorted(array, &head, err);
    if (!rc) {
        const char *p[] = {STORE_TEXT(q->tenant_id), rows, q->who.key_id, q->request_id, head};

        rc = db_exec(q->db, &SUBMIT[way], p, out, err);
    }
    free(rows);
    free(head);
    return rc;
}

int store_job_by_token(struct api_req *q, const char *token, json_t **out, struct sh_err *err)
{
    const char *p[] = {STORE_TEXT(q->tenant_id), token};

    return store_one(q->db, &JOB_BY_TOKEN, p, out, err);
}

int store_stored(struct api_req *q, int64_t *out, struct sh_err *err)
{
    struct db_res *res = NULL;
    int rc = db_exec(q->db, &STORED, (const char *[]){STORE_TEXT(q->tenant_id)}, &res, err);
    *out = rc ? 0 : db_i64(res, 0, 0, 0);
    db_res_free(res);
    return rc;
}
