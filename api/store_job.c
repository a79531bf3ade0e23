/* store_job.c - SQL for jobs. */
#include "api/jobspec.h"
#include "api/store.h"
#include "api/store_sql.h"
#include "common/buf.h"

#include <inttypes.h>
#include <stdio.h>

/* clang-format off */
static const struct db_stmt JOB_LIST = {
    "job_list",
    "SELECT j.id, " SQL_JOB("j") " FROM job j WHERE j.tenant_id = $1::bigint AND ($2::bigint IS "
    "NULL OR j.id < $2::bigint) AND ($4::text[] IS NULL OR j.state = ANY ($4::text[])) AND "
    "($5::text IS NULL OR j.queue_id IN (SELECT id FROM queue WHERE name = $5::text)) AND "
    "($6::jsonb IS NULL OR j.labels @> $6::jsonb) ORDER BY j.id DESC LIMIT $3::bigint + 1",
    6,
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
    "SELECT count(*) FROM job WHERE tenant_id = $1::bigint AND state IN ('QUEUED', 'HELD', "
    "'SUSPENDED')",
    1,
};

static const struct db_stmt JOB_CREATE = {
    "job_create",
    "WITH j AS (INSERT INTO job (tenant_id, queue_id, kind, name, priority, version_id, "
    "dataset_id, eval_dataset_id, spec, client_token, max_attempts, state, reason, labels, "
    "deadline, min_runtime_ms, preemptible) "
    "SELECT $1::bigint, q.id, $3, $4, $5::int, $6::bigint, $7::bigint, $8::bigint, $9::jsonb, "
    "$10, $11::int, CASE WHEN $14::boolean THEN 'HELD' ELSE 'QUEUED' END, CASE WHEN $14::boolean "
    "THEN 'Held' ELSE '' END, $15::jsonb, $16::timestamptz, $17::bigint, $18::boolean FROM queue q "
    "WHERE q.name = $2 AND (q.tenant_id IS NULL OR q.tenant_id = "
    "$1::bigint) AND q.state <> 'DRAINING' ORDER BY q.tenant_id NULLS LAST LIMIT 1 RETURNING *), "
    ""
    "e AS (INSERT INTO job_event (job_id, to_state, reason) "
    "SELECT id, state, 'Submitted' FROM j), " SQL_AUDIT("$12", "$13", "job.create", "j.tenant_id",
    "'job/' || j.id", "NULL", "to_jsonb(j.*)", "j")
    "SELECT " SQL_JOB("j") " FROM j",
    18,
};

/* The row is locked first: the place we decide on is the place we change. $4, $5: arrows. */
static const struct db_stmt JOB_CONTROL = {
    "job_control",
    "WITH p AS (SELECT * FROM job WHERE tenant_id = $1::bigint AND id = $2::bigint FOR UPDATE), "
    "o AS (SELECT p.*, r.goes_to FROM p JOIN unnest($4::text[], $5::text[]) r (place, goes_to) ON "
    "r.place = p.state || CASE WHEN p.wish = '' THEN '' ELSE '+' || p.wish END), "
    "j AS (UPDATE job x SET state = o.goes_to, wish = $6, save_asked = x.save_asked + $7::bigint, "
    "reason = CASE WHEN o.goes_to = o.state THEN x.reason ELSE $8 END, finished_at = CASE WHEN "
    "o.goes_to IN " SQL_FINAL " THEN now() END, row_version = x.row_version + 1 FROM o WHERE x.id "
    "= o.id RETURNING x.*), "
    "e AS (INSERT INTO job_event (job_id, from_state, to_state, reason) "
    "SELECT j.id, o.state, j.state, $8 FROM j, o), " SQL_AUDIT("$9", "$10", "job.' || $3 || '",
    "j.tenant_id", "'job/' || j.id", "jsonb_build_object('state', o.state, 'wish', o.wish)",
    "jsonb_build_object('state', j.state, 'wish', j.wish)", "j, o")
    "SELECT j.id FROM j",
    10,
};

/* $4: what to change, as it came; the event says so too. */
static const struct db_stmt JOB_PATCH = {
    "job_patch",
    "WITH o AS (SELECT * FROM job WHERE tenant_id = $1::bigint AND id = $2::bigint AND state NOT "
    "IN " SQL_FINAL " AND " SQL_IF_MATCH("$3", "row_version") " AND (SELECT count(*) FROM "
    "jsonb_object_keys(jsonb_strip_nulls(labels || coalesce($4::jsonb -> 'labels', '{}')))) <= "
    "$7::int FOR UPDATE), "
    "j AS (UPDATE job x SET priority = coalesce(($4::jsonb ->> 'priority')::int, x.priority), "
    "labels = jsonb_strip_nulls(x.labels || coalesce($4::jsonb -> 'labels', '{}')), deadline = "
    "CASE WHEN $4::jsonb ? 'deadline' THEN ($4::jsonb ->> 'deadline')::timestamptz ELSE "
    "x.deadline END, row_version = x.row_version + 1 FROM o WHERE x.id = o.id RETURNING x.*), "
    "e AS (INSERT INTO job_event (job_id, from_state, to_state, reason, detail) "
    "SELECT id, state, state, 'Changed', $4::jsonb FROM j), " SQL_AUDIT("$5", "$6", "job.patch",
    "j.tenant_id", "'job/' || j.id", "jsonb_build_object('priority', o.priority, 'labels', "
    "o.labels, 'deadline', o.deadline)", "jsonb_build_object('priority', j.priority, 'labels', "
    "j.labels, 'deadline', j.deadline)", "j, o")
    "SELECT " SQL_JOB("j") " FROM j",
    7,
};

static const struct db_stmt JOB_NEWEST_EVENT = {
    "job_newest_event",
    "SELECT coalesce((SELECT max(e.id) FROM job_event e WHERE e.job_id = j.id), 0), j.state IN "
    SQL_FINAL " FROM job j WHERE j.tenant_id = $1::bigint AND j.id = $2::bigint",
    2,
};

/* Events of one job get their numbers while its row is locked: none appears below one that was
 * seen. */
static const struct db_stmt JOB_WATCH = {
    "job_watch",
    "SELECT w.place, e.id, " SQL_EVENT("e") "::text, e.to_state IN " SQL_FINAL " FROM "
    "unnest($1::bigint[], $2::bigint[]) WITH ORDINALITY w (job, after, place) CROSS JOIN LATERAL "
    "(SELECT * FROM job_event x WHERE x.job_id = w.job AND x.id > w.after ORDER BY x.id LIMIT "
    "$3::bigint) e ORDER BY e.id",
    3,
};

static const struct db_stmt JOB_EVENTS = {
    "job_events",
    "SELECT e.id, " SQL_EVENT("e") " FROM job_event e "
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
    enum store_made *made;
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
    char tenant[24], priority[24], version[24], dataset[24], eval[24], attempts[24], min_run[24];
    const char *p[] = {tenant,           j->queue,
                       j->kind,          j->name,
                       priority,         version,
                       dataset,          j->eval_dataset_id ? eval : NULL,
                       j->spec,          j->client_token,
                       attempts,         c->q->who.key_id,
                       c->q->request_id, j->hold ? "t" : "f",
                       j->labels,        j->deadline,
                       min_run,          j->preemptible ? "t" : "f"};
    const char *token[] = {tenant, j->client_token};
    int rc = SH_OK;

    json_decref(*c->out);
    *c->out = NULL;
    *c->made = STORE_REPLAYED;
    snprintf(tenant, sizeof(tenant), "%" PRId64, c->q->tenant_id);
    snprintf(priority, sizeof(priority), "%" PRId64, j->priority);
    snprintf(version, sizeof(version), "%" PRId64, j->version_id);
    snprintf(dataset, sizeof(dataset), "%" PRId64, j->dataset_id);
    snprintf(eval, sizeof(eval), "%" PRId64, j->eval_dataset_id);
    snprintf(attempts, sizeof(attempts), "%" PRId64, j->max_attempts);
    snprintf(min_run, sizeof(min_run), "%" PRId64, j->min_runtime_ms);
    if (j->idem)
        rc = store_idem_begin(c->q, j->idem, c->out, err);
    if (rc || *c->out)
        return rc;
    *c->made = STORE_MADE_EARLIER;
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
            return j->idem ? store_idem_keep(c->q, j->idem, *c->out, err) : SH_OK;
        }
    }
    if (rc)
        return rc;
    rc = store_one(db, &JOB_CREATE, p, c->out, err);
    if (!rc && !*c->out)
        rc = store_queue_refuse(c->q, j->queue, err);
    if (!rc && j->idem)
        rc = store_idem_keep(c->q, j->idem, *c->out, err);
    *c->made = STORE_MADE;
    return rc;
}

int store_job_create(struct api_req *q, const struct store_job *j, enum store_made *made,
                     json_t **out, struct sh_err *err)
{
    const struct create c = {.q = q, .j = j, .out = out, .made = made};
    int rc;

    *out = NULL;
    rc = db_tx(q->db, "job_create", create_tx, &c, err);
    if (rc) {
        json_decref(*out);
        *out = NULL;
    }
    return rc;
}

int store_job_list(struct api_req *q, const struct jobfilter *f, const struct req_page *page,
                   json_t **out, struct sh_err *err)
{
    char tenant[24];
    const char *p[] = {tenant, page->cursor, page->limit_text, f->states, f->queue, f->labels};

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

/* One column of an action's arrows as an array. They are constants of ours: nothing to escape. */
static int arrow_column(const struct jobctl *c, bool to, struct sh_buf *out, struct sh_err *err)
{
    int rc = SH_OK;

    sh_buf_init(out, 1024);
    for (size_t i = 0; i < c->n_arrows && !rc; i++)
        rc = sh_buf_printf(out, err, "%c%s", i ? ',' : '{',
                           to ? c->arrows[i].to : c->arrows[i].from);
    return rc ? rc : sh_buf_puts(out, "}", err);
}

int store_job_control(struct api_req *q, const char *id, const struct jobctl *c, bool *changed,
                      json_t **out, struct sh_err *err)
{
    struct sh_buf from, to;
    char tenant[24];
    struct db_res *res = NULL;
    int rc = arrow_column(c, false, &from, err);

    *out = NULL;
    snprintf(tenant, sizeof(tenant), "%" PRId64, q->tenant_id);
    if (!rc)
        rc = arrow_column(c, true, &to, err);
    else
        sh_buf_init(&to, 1);
    if (!rc) {
        const char *p[] = {tenant,
                           id,
                           c->name,
                           from.data,
                           to.data,
                           c->wish,
                           c->save ? "1" : "0",
                           c->reason,
                           q->who.key_id,
                           q->request_id};

        rc = db_exec(q->db, &JOB_CONTROL, p, &res, err);
    }
    *changed = !rc && db_rows(res) > 0;
    db_res_free(res);
    sh_buf_fini(&from);
    sh_buf_fini(&to);
    return rc ? rc : store_job_get(q, id, out, err);
}

int store_job_patch(struct api_req *q, const char *id, const char *if_match, const char *patch,
                    json_t **out, struct sh_err *err)
{
    char tenant[24], max[24];
    const char *p[] = {tenant, id, if_match, patch, q->who.key_id, q->request_id, max};

    snprintf(tenant, sizeof(tenant), "%" PRId64, q->tenant_id);
    snprintf(max, sizeof(max), "%u", JOBSPEC_MAX_LABELS);
    return store_one(q->db, &JOB_PATCH, p, out, err);
}

int store_job_events(struct api_req *q, const char *id, const struct req_page *page, json_t **out,
                     struct sh_err *err)
{
    char tenant[24];
    const char *p[] = {tenant, id, page->cursor, page->limit_text};

    snprintf(tenant, sizeof(tenant), "%" PRId64, q->tenant_id);
    return store_page(q->db, &JOB_EVENTS, p, page, out, err);
}

int store_job_newest_event(struct api_req *q, const char *id, bool *exists, int64_t *newest,
                           bool *is_final, struct sh_err *err)
{
    char tenant[24];
    struct db_res *res = NULL;
    int rc;

    snprintf(tenant, sizeof(tenant), "%" PRId64, q->tenant_id);
    rc = db_exec(q->db, &JOB_NEWEST_EVENT, (const char *[]){tenant, id}, &res, err);
    *exists = !rc && db_rows(res) > 0;
    *newest = *exists ? db_i64(res, 0, 0, 0) : 0;
    *is_final = *exists && db_bool(res, 0, 1);
    db_res_free(res);
    return rc;
}

int store_job_watch(struct db *db, const struct store_watch *asks, size_t n, struct db_res **out,
                    struct sh_err *err)
{
    struct sh_buf jobs, after;
    char limit[24];
    int rc = SH_OK;

    *out = NULL;
    sh_buf_init(&jobs, 24 * (n + 1));
    sh_buf_init(&after, 24 * (n + 1));
    snprintf(limit, sizeof(limit), "%d", STORE_WATCH_EVENTS);
    for (size_t i = 0; i < n && !rc; i++) {
        rc = sh_buf_printf(&jobs, err, "%c%" PRId64, i ? ',' : '{', asks[i].job);
        if (!rc)
            rc = sh_buf_printf(&after, err, "%c%" PRId64, i ? ',' : '{', asks[i].after);
    }
    if (!rc)
        rc = sh_buf_puts(&jobs, "}", err);
    if (!rc)
        rc = sh_buf_puts(&after, "}", err);
    if (!rc)
        rc = db_exec(db, &JOB_WATCH, (const char *[]){jobs.data, after.data, limit}, out, err);
    sh_buf_fini(&jobs);
    sh_buf_fini(&after);
    return rc;
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
