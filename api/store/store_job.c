/* store_job.c - SQL for jobs. */
#include "api/store/store_job.h"

#include "api/spec/jobspec.h"
#include "api/store/store_sql.h"
#include "common/buf.h"
#include "common/metrics.h"

#include <inttypes.h>

/* clang-format off */
static const struct db_stmt JOB_LIST = {
    "job_list",
    "SELECT j.id, " SQL_JOB("j") " FROM job j WHERE j.tenant_id = $1::bigint AND ($2::bigint IS "
    "NULL OR j.id < $2::bigint) AND ($4::text[] IS NULL OR j.state = ANY ($4::text[])) AND "
    "($5::text IS NULL OR j.queue_id IN (SELECT id FROM queue WHERE name = $5::text)) AND "
    "($6::jsonb IS NULL OR j.labels @> $6::jsonb) AND ($7::bigint IS NULL OR j.array_id = "
    "$7::bigint) "
    "ORDER BY j.id DESC LIMIT $3::bigint + 1",
    7,
};

static const struct db_stmt JOB_GET = {
    "job_get",
    "SELECT " SQL_JOB("j") " FROM job j WHERE j.tenant_id = $1::bigint AND j.id = $2::bigint",
    2,
};

/* Rows are locked first: the place we decide on is the place we change. $4, $5: arrows. */
static const struct db_stmt JOB_CONTROL = {
    "job_control",
    "WITH p AS (SELECT * FROM job WHERE tenant_id = $1::bigint AND (id = $2::bigint OR ($2 IS NULL "
    "AND array_id = $11::bigint)) ORDER BY id FOR UPDATE), "
    "o AS (SELECT p.*, r.goes_to FROM p JOIN unnest($4::text[], $5::text[]) r (place, goes_to) ON "
    "r.place = p.state || CASE WHEN p.wish = '' THEN '' ELSE '+' || p.wish END), "
    "j AS (UPDATE job x SET state = o.goes_to, wish = $6, save_asked = x.save_asked + $7::bigint, "
    "reason = CASE WHEN o.goes_to = o.state THEN x.reason ELSE $8 END, finished_at = CASE WHEN "
    "o.goes_to IN " SQL_FINAL " THEN now() END, row_version = x.row_version + 1 FROM o WHERE x.id "
    "= o.id RETURNING x.*), e AS (INSERT INTO job_event (job_id, from_state, to_state, reason, "
    "at) SELECT j.id, o.state, j.state, $8, " SH_JOB_EVENT_TIME
    " FROM j JOIN o USING (id)), "
    "a AS (INSERT INTO audit (key_id, request_id, action, tenant_id, resource, before, after) "
    "SELECT $9, $10, CASE WHEN $2 IS NULL THEN 'array.' ELSE 'job.' END || $3, $1::bigint, CASE "
    "WHEN $2 IS NULL THEN 'array/' || $11 ELSE 'job/' || $2 END, CASE WHEN $2 IS NULL THEN "
    "jsonb_object_agg(j.id, o.state) ELSE jsonb_agg(jsonb_build_object('state', o.state, 'wish', "
    "o.wish)) -> 0 END, CASE WHEN $2 IS NULL THEN jsonb_object_agg(j.id, j.state) ELSE "
    "jsonb_agg(jsonb_build_object('state', j.state, 'wish', j.wish)) -> 0 END FROM j JOIN o USING "
    "(id) HAVING count(*) > 0) "
    "SELECT count(*), count(*) FILTER (WHERE state = 'CANCELLED') FROM j",
    11,
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
    "e AS (INSERT INTO job_event (job_id, from_state, to_state, reason, detail, at) "
    "SELECT id, state, state, 'Changed', $4::jsonb, " SH_JOB_EVENT_TIME
    " FROM j), " SQL_AUDIT("$5", "$6", "job.patch", "j.tenant_id", "'job/' || j.id",
    "jsonb_build_object('priority', o.priority, 'labels', "
    "o.labels, 'deadline', o.deadline)", "jsonb_build_object('priority', j.priority, 'labels', "
    "j.labels, 'deadline', j.deadline)", "j, o")
    "SELECT " SQL_JOB("j") " FROM j",
    7,
};

static const struct db_stmt JOB_DROP_RESULT = {
    "job_drop_result",
    "WITH o AS (SELECT * FROM job WHERE tenant_id = $1::bigint AND id = $2::bigint AND state = "
    "'SUCCEEDED' AND result ? 'digest' FOR UPDATE), "
    "j AS (UPDATE job x SET result = x.result - 'digest' - 'bytes', row_version = x.row_version + "
    "1 FROM o WHERE x.id = o.id RETURNING x.*), " SQL_AUDIT("$3", "$4", "result.delete",
    "j.tenant_id", "'job/' || j.id", "o.result", "j.result", "j, o")
    "SELECT to_jsonb(j.id) FROM j",
    4,
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
    "SELECT w.place, e.id, " SQL_EVENT("e") "::text, e.to_state IN " SQL_FINAL
    " FROM unnest($1::bigint[], $2::bigint[]) WITH ORDINALITY w (job, after, place) CROSS JOIN "
    "LATERAL (SELECT * FROM job_event x WHERE x.job_id = w.job AND x.id > w.after ORDER BY x.id "
    "LIMIT $3::bigint) e ORDER BY e.id",
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

/* clang-format on */

int store_job_list(struct api_req *q, const struct jobfilter *f, const struct req_page *page,
                   json_t **out, struct sh_err *err)
{
    const char *p[] = {STORE_TEXT(q->tenant_id),
                       page->cursor,
                       page->limit_text,
                       f->states,
                       f->queue,
                       f->labels,
                       f->array};

    return store_page(q->db, &JOB_LIST, p, page, out, err);
}

int store_job_get(struct api_req *q, const char *id, json_t **out, struct sh_err *err)
{
    const char *p[] = {STORE_TEXT(q->tenant_id), id};

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

int store_job_control(struct api_req *q, const char *job, const char *array, const struct jobctl *c,
                      int64_t *n_changed, struct sh_err *err)
{
    struct sh_buf from, to;
    struct db_res *res = NULL;
    int rc = arrow_column(c, false, &from, err);

    if (!rc)
        rc = arrow_column(c, true, &to, err);
    else
        sh_buf_init(&to, 1);
    if (!rc) {
        const char *p[] = {
            STORE_TEXT(q->tenant_id), job,       c->name,       from.data,     to.data, c->wish,
            c->save ? "1" : "0",      c->reason, q->who.key_id, q->request_id, array};

        rc = db_exec(q->db, &JOB_CONTROL, p, &res, err);
    }
    *n_changed = rc ? 0 : db_i64(res, 0, 0, 0);
    /* No executor had them: they have ended here, and the scheduler may never have held them. */
    if (*n_changed && db_i64(res, 0, 1, 0))
        sh_metric_add(M_shunt_jobs_finished_total, SH_LABELS(q->tenant, "CANCELLED"),
                      (double)db_i64(res, 0, 1, 0));
    db_res_free(res);
    sh_buf_fini(&from);
    sh_buf_fini(&to);
    return rc;
}

int store_job_patch(struct api_req *q, const char *id, const char *if_match, const char *patch,
                    json_t **out, struct sh_err *err)
{
    const char *p[] = {
        STORE_TEXT(q->tenant_id),      id, if_match, patch, q->who.key_id, q->request_id,
        STORE_TEXT(JOBSPEC_MAX_LABELS)};

    return store_one(q->db, &JOB_PATCH, p, out, err);
}

int store_job_drop_result(struct api_req *q, const char *id, json_t **out, struct sh_err *err)
{
    const char *p[] = {STORE_TEXT(q->tenant_id), id, q->who.key_id, q->request_id};

    return store_one(q->db, &JOB_DROP_RESULT, p, out, err);
}

int store_job_events(struct api_req *q, const char *id, const struct req_page *page, json_t **out,
                     struct sh_err *err)
{
    const char *p[] = {STORE_TEXT(q->tenant_id), id, page->cursor, page->limit_text};

    return store_page(q->db, &JOB_EVENTS, p, page, out, err);
}

int store_job_newest_event(struct api_req *q, const char *id, bool *exists, int64_t *newest,
                           bool *is_final, struct sh_err *err)
{
    struct db_res *res = NULL;
    int rc = db_exec(q->db, &JOB_NEWEST_EVENT, (const char *[]){STORE_TEXT(q->tenant_id), id}, &res,
                     err);
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
    int rc = SH_OK;

    *out = NULL;
    sh_buf_init(&jobs, 24 * (n + 1));
    sh_buf_init(&after, 24 * (n + 1));
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
        rc = db_exec(db, &JOB_WATCH,
                     (const char *[]){jobs.data, after.data, STORE_TEXT(STORE_WATCH_EVENTS)}, out,
                     err);
    sh_buf_fini(&jobs);
    sh_buf_fini(&after);
    return rc;
}

int store_job_checkpoints(struct api_req *q, const char *id, const struct req_page *page,
                          json_t **out, struct sh_err *err)
{
    const char *p[] = {STORE_TEXT(q->tenant_id), id, page->cursor, page->limit_text};

    return store_page(q->db, &JOB_CHECKPOINTS, p, page, out, err);
}
