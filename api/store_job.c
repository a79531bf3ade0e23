/* store_job.c - SQL for jobs. */
#include "api/store.h"
#include "api/store_sql.h"

#include <inttypes.h>
#include <stdio.h>

/* clang-format off */
static const struct db_stmt JOB_LIST = {
    "job_list",
    "SELECT j.id, " SQL_JOB("j") " FROM job j WHERE j.tenant_id = $1::bigint AND ($2::bigint IS "
    "NULL OR j.id < $2::bigint) ORDER BY j.id DESC LIMIT $3::bigint + 1",
    3,
};

static const struct db_stmt JOB_GET = {
    "job_get",
    "SELECT " SQL_JOB("j") " FROM job j WHERE j.tenant_id = $1::bigint AND j.id = $2::bigint",
    2,
};

static const struct db_stmt JOB_BY_TOKEN = {
    "job_by_token",
    "SELECT " SQL_JOB("j") " FROM job j WHERE j.tenant_id = $1::bigint AND j.client_token = $2",
    2,
};

/* Taken before counting: two submissions of one tenant count one after the other, each with a
 * snapshot that sees the other's row. */
static const struct db_stmt JOB_QUOTA_LOCK = {
    "job_quota_lock",
    "SELECT max_queued_jobs FROM quota WHERE tenant_id = $1::bigint FOR UPDATE",
    1,
};

static const struct db_stmt JOB_COUNT = {
    "job_count",
    "SELECT count(*) FROM job WHERE tenant_id = $1::bigint AND state IN ('QUEUED', 'HELD')",
    1,
};

static const struct db_stmt JOB_CREATE = {
    "job_create",
    "WITH j AS (INSERT INTO job (tenant_id, queue_id, kind, name, priority, version_id, "
    "dataset_id, eval_dataset_id, spec, client_token, max_attempts) "
    "SELECT $1::bigint, q.id, $3, $4, $5::int, $6::bigint, $7::bigint, $8::bigint, $9::jsonb, "
    "$10, $11::int FROM queue q WHERE q.name = $2 AND (q.tenant_id IS NULL OR q.tenant_id = "
    "$1::bigint) AND q.state <> 'DRAINING' ORDER BY q.tenant_id NULLS LAST LIMIT 1 RETURNING *), "
    ""
    "e AS (INSERT INTO job_event (job_id, to_state, reason) "
    "SELECT id, state, 'Submitted' FROM j), " SQL_AUDIT("$12", "$13", "job.create", "j.tenant_id",
    "'job/' || j.id", "NULL", "to_jsonb(j.*)", "j")
    "SELECT " SQL_JOB("j") " FROM j",
    13,
};

/* The row is locked first: the state we decide on is the state we change. */
static const struct db_stmt JOB_CANCEL = {
    "job_cancel",
    "WITH o AS (SELECT * FROM job WHERE tenant_id = $1::bigint AND id = $2::bigint AND state NOT "
    "IN ('CANCELLING', 'SUCCEEDED', 'FAILED', 'CANCELLED', 'EXPIRED') FOR UPDATE), "
    "j AS (UPDATE job x SET state = CASE WHEN o.state IN ('QUEUED', 'HELD') THEN 'CANCELLED' "
    "ELSE 'CANCELLING' END, reason = 'CancelledByUser', finished_at = CASE WHEN o.state IN "
    "('QUEUED', 'HELD') THEN now() END, row_version = x.row_version + 1 FROM o WHERE x.id = o.id "
    "RETURNING x.*), "
    "e AS (INSERT INTO job_event (job_id, from_state, to_state, reason) "
    "SELECT j.id, o.state, j.state, j.reason FROM j, o), " SQL_AUDIT("$3", "$4", "job.cancel",
    "j.tenant_id", "'job/' || j.id", "jsonb_build_object('state', o.state)",
    "jsonb_build_object('state', j.state)", "j, o")
    "SELECT j.id FROM j",
    4,
};

static const struct db_stmt JOB_EVENTS = {
    "job_events",
    "SELECT e.id, jsonb_build_object('id', e.id, 'at', " SQL_TIME("e.at") ", 'from', "
    "e.from_state, 'to', e.to_state, 'reason', e.reason, 'detail', e.detail) FROM job_event e "
    "JOIN job j ON j.id = e.job_id WHERE j.tenant_id = $1::bigint AND j.id = $2::bigint AND "
    "($3::bigint IS NULL OR e.id > $3::bigint) ORDER BY e.id LIMIT $4::bigint + 1",
    4,
};

static const struct db_stmt JOB_CHECKPOINTS = {
    "job_checkpoints",
    "SELECT c.id, jsonb_build_object('id', c.id, 'attempt', c.attempt, 'step', c.step, 'digest', "
    "c.digest, 'bytes', c.bytes, 'created_at', " SQL_TIME("c.created_at") ") FROM checkpoint c "
    "JOIN job j ON j.id = c.job_id WHERE j.tenant_id = $1::bigint AND j.id = $2::bigint AND "
    "($3::bigint IS NULL OR c.id > $3::bigint) ORDER BY c.id LIMIT $4::bigint + 1",
    4,
};

static const struct db_stmt JOB_VERSION = {
    "job_version",
    "SELECT jsonb_build_object('id', v.id, 'version', v.version, 'state', v.state, 'inputs', "
    "v.inputs, 'outputs', v.outputs, 'meta', v.meta, 'max_batch', v.max_batch) FROM "
    "model_version v JOIN model m ON m.id = v.model_id WHERE m.tenant_id = $1::bigint AND "
    "m.name = $2 AND m.deleted_at IS NULL AND "
    "v.state <> 'DELETED' AND (v.version = $3::int OR ($3::int IS NULL AND v.package IS NOT "
    "NULL)) ORDER BY v.version DESC LIMIT 1",
    3,
};

static const struct db_stmt JOB_DATASET = {
    "job_dataset",
    "SELECT jsonb_build_object('id', d.id, 'state', d.state, 'tensors', d.tensors, 'n_samples', "
    "d.n_samples, 'max_storage_bytes', (SELECT max_storage_bytes FROM quota qt WHERE qt.tenant_id "
    "= d.tenant_id)) FROM dataset d WHERE d.tenant_id = $1::bigint AND d.name = $2 AND d.state <> "
    "'DELETED'",
    2,
};
/* clang-format on */

struct create {
    struct api_req *q;
    const struct store_job *j;
    json_t **out; /* reset at each try of the transaction */
    bool *created;
};

static int check_quota(struct db *db, const char *tenant, struct sh_err *err)
{
    struct db_res *res = NULL;
    int64_t max = 0, have = 0;
    int rc = db_exec(db, &JOB_QUOTA_LOCK, (const char *[]){tenant}, &res, err);

    if (!rc && db_rows(res) > 0)
        max = db_i64(res, 0, 0, 0);
    db_res_free(res);
    res = NULL;
    if (!rc)
        rc = db_exec(db, &JOB_COUNT, (const char *[]){tenant}, &res, err);
    if (!rc && db_rows(res) > 0)
        have = db_i64(res, 0, 0, 0);
    db_res_free(res);
    if (!rc && have >= max)
        rc = SH_FAIL(err, SH_E_QUOTA,
                     "%" PRId64 " jobs are queued, the tenant's max_queued_jobs is %" PRId64
                     "; wait for one to start or ask for a higher quota",
                     have, max);
    return rc;
}

static int create_tx(struct db *db, const void *arg, struct sh_err *err)
{
    const struct create *c = arg;
    const struct store_job *j = c->j;
    char tenant[24], priority[24], version[24], dataset[24], eval[24], attempts[24];
    const char *p[] = {tenant,          j->queue,        j->kind,  j->name,
                       priority,        version,         dataset,  j->eval_dataset_id ? eval : NULL,
                       j->spec,         j->client_token, attempts, c->q->who.key_id,
                       c->q->request_id};
    const char *token[] = {tenant, j->client_token};
    int rc = SH_OK;

    json_decref(*c->out);
    *c->out = NULL;
    *c->created = false;
    snprintf(tenant, sizeof(tenant), "%" PRId64, c->q->tenant_id);
    snprintf(priority, sizeof(priority), "%" PRId64, j->priority);
    snprintf(version, sizeof(version), "%" PRId64, j->version_id);
    snprintf(dataset, sizeof(dataset), "%" PRId64, j->dataset_id);
    snprintf(eval, sizeof(eval), "%" PRId64, j->eval_dataset_id);
    snprintf(attempts, sizeof(attempts), "%" PRId64, j->max_attempts);
    rc = check_quota(db, tenant, err);
    /* The lock is held now, so a repeated submission finds what the first one inserted. A full
     * queue must not turn a repetition into an error. */
    if (j->client_token && (!rc || rc == SH_E_QUOTA)) {
        struct sh_err inner = {0};
        int found = store_one(db, &JOB_BY_TOKEN, token, c->out, &inner);

        if (found)
            return sh_err_copy(err, &inner), found;
        if (*c->out) {
            *err = (struct sh_err){0};
            return SH_OK;
        }
    }
    if (rc)
        return rc;
    rc = store_one(db, &JOB_CREATE, p, c->out, err);
    if (!rc && !*c->out)
        rc = SH_FAIL(err, SH_E_NOTFOUND, "there is no open queue \"%s\"", j->queue);
    *c->created = !rc;
    return rc;
}

int store_job_create(struct api_req *q, const struct store_job *j, bool *created, json_t **out,
                     struct sh_err *err)
{
    const struct create c = {.q = q, .j = j, .out = out, .created = created};
    int rc;

    *out = NULL;
    *created = false;
    rc = db_tx(q->db, "job_create", create_tx, &c, err);
    if (rc) {
        json_decref(*out);
        *out = NULL;
    }
    return rc;
}

int store_job_list(struct api_req *q, const struct req_page *page, json_t **out, struct sh_err *err)
{
    char tenant[24];
    const char *p[] = {tenant, page->cursor, page->limit_text};

    snprintf(tenant, sizeof(tenant), "%" PRId64, q->tenant_id);
    return store_page(q->db, &JOB_LIST, p, page, out, err);
}

int store_job_get(struct api_req *q, const char *id, json_t **out, struct sh_err *err)
{
    char tenant[24];
    const char *p[] = {tenant, id};

    snprintf(tenant, sizeof(tenant), "%" PRId64, q->tenant_id);
    return store_one(q->db, &JOB_GET, p, out, err);
}

int store_job_cancel(struct api_req *q, const char *id, json_t **out, struct sh_err *err)
{
    char tenant[24];
    const char *p[] = {tenant, id, q->who.key_id, q->request_id};
    int rc;

    *out = NULL;
    snprintf(tenant, sizeof(tenant), "%" PRId64, q->tenant_id);
    rc = db_exec(q->db, &JOB_CANCEL, p, NULL, err);
    return rc ? rc : store_job_get(q, id, out, err);
}

int store_job_events(struct api_req *q, const char *id, const struct req_page *page, json_t **out,
                     struct sh_err *err)
{
    char tenant[24];
    const char *p[] = {tenant, id, page->cursor, page->limit_text};

    snprintf(tenant, sizeof(tenant), "%" PRId64, q->tenant_id);
    return store_page(q->db, &JOB_EVENTS, p, page, out, err);
}

int store_job_checkpoints(struct api_req *q, const char *id, const struct req_page *page,
                          json_t **out, struct sh_err *err)
{
    char tenant[24];
    const char *p[] = {tenant, id, page->cursor, page->limit_text};

    snprintf(tenant, sizeof(tenant), "%" PRId64, q->tenant_id);
    return store_page(q->db, &JOB_CHECKPOINTS, p, page, out, err);
}

int store_job_version(struct api_req *q, const char *model, int64_t version, json_t **out,
                      struct sh_err *err)
{
    char tenant[24], number[24];
    const char *p[] = {tenant, model, version > 0 ? number : NULL};

    snprintf(tenant, sizeof(tenant), "%" PRId64, q->tenant_id);
    snprintf(number, sizeof(number), "%" PRId64, version);
    return store_one(q->db, &JOB_VERSION, p, out, err);
}

int store_job_dataset(struct api_req *q, const char *name, json_t **out, struct sh_err *err)
{
    char tenant[24];
    const char *p[] = {tenant, name};

    snprintf(tenant, sizeof(tenant), "%" PRId64, q->tenant_id);
    return store_one(q->db, &JOB_DATASET, p, out, err);
}
