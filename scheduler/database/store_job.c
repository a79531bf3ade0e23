/* store_job.c - see store.h: the writes of a job, with its events. */
#include "common/alias.h"
#include "common/job.h"
#include "common/mem.h"
#include "scheduler/database/store.h"
#include "scheduler/database/store_int.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* The jobs' half of store.h. */

/* ------------------------------------------------------------------ start */

static const struct db_stmt START_DETAILS = {
    "start_details",
    "SELECT t.name, m.name, v.package, d.path, e.path, j.spec::text, c.path, coalesce(c.step, 0),"
    " j.steps_redone, j.preemptions, j.busy_ns, j.step, j.steps,"
    " CASE WHEN v.state IN ('UPLOADING', 'FAILED', 'DELETED') OR m.deleted_at IS NOT NULL"
    "  THEN 'the model version is ' || lower(v.state) || coalesce(': ' || nullif(v.reason, ''), '')"
    "      WHEN d.state <> 'READY' THEN 'the dataset is ' || lower(d.state)"
    "      WHEN e.state <> 'READY' THEN 'the evaluation dataset is ' || lower(e.state) END,"
    " v.inputs::text, v.outputs::text, c.digest,"
    " 'model ' || m.name || ':' || v.version || ', dataset ' || d.name ||"
    " coalesce(', evaluation dataset ' || e.name, '') ||"
    " CASE WHEN j.started_at IS NULL THEN '' ELSE '; started again' || coalesce(' after ' || ("
    "  SELECT nullif(x.reason, '') FROM job_event x WHERE x.job_id = j.id AND x.to_state = 'QUEUED'"
    "  AND x.from_state <> 'QUEUED' ORDER BY x.id DESC LIMIT 1), '') || ': it had done ' || j.step"
    "  || ', the newest checkpoint has ' || coalesce(c.step, 0) END"
    " FROM job j JOIN tenant t ON t.id = j.tenant_id JOIN model_version v ON v.id = j.version_id"
    " JOIN model m ON m.id = v.model_id JOIN dataset d ON d.id = j.dataset_id"
    " LEFT JOIN dataset e ON e.id = j.eval_dataset_id"
    " LEFT JOIN LATERAL (SELECT path, step, digest FROM checkpoint WHERE job_id = j.id"
    /* Batch inference may have had to begin again: its last one counts, not the furthest. */
    "  ORDER BY CASE WHEN j.kind = 'training' THEN step END DESC NULLS LAST, created_at DESC,"
    "  id DESC LIMIT 1) c ON true"
    " WHERE j.id = $1",
    1};
static const struct db_stmt START = {
    "job_start",
    "UPDATE job SET state = 'STARTING', reason = '', not_before = NULL, attempt = $2, executor = "
    "$3, epoch = $4, placement = greatest(placement + 1, "
    "(extract(epoch FROM clock_timestamp()) * 1000000)::bigint),"
    " started_at = coalesce(started_at, now()), step = $5, samples_per_s = NULL,"
    " steps_redone = steps_redone + greatest(step - $5, 0),"
    " base_redone = steps_redone + greatest(step - $5, 0),"
    " base_preemptions = preemptions, base_busy_ns = busy_ns, row_version = row_version + 1"
    " WHERE id = $1 AND state = 'QUEUED' RETURNING placement",
    5};
static const struct db_stmt START_FAIL = {
    "job_start_fail",
    "UPDATE job SET state = 'FAILED', reason = 'NOTFOUND', error_code = 'NOTFOUND', error = $2,"
    " epoch = $3, finished_at = now(), row_version = row_version + 1"
    " WHERE id = $1 AND state = 'QUEUED'",
    3};
static const struct db_stmt JOB_NOW = {
    "job_now",
    "SELECT state, coalesce(executor, ''), attempt, epoch, placement FROM job WHERE id = $1", 1};
static const struct db_stmt EVENT = {
    "job_event",
    "INSERT INTO job_event (job_id, from_state, to_state, reason, detail, at) VALUES ($1, $2, $3,"
    " $4, jsonb_strip_nulls(jsonb_build_object('executor', $5::text, 'attempt', $6::bigint,"
    " 'step', $7::bigint, 'message', $8::text)), " SH_JOB_EVENT_TIME ")",
    8};

struct event {
    int64_t job;
    const char *from, *to, *reason, *executor, *message; /* the last two may be "" */
    uint32_t attempt;
    int64_t step;
};

static const char *or_null(const char *s)
{
    return s && s[0] ? s : NULL;
}

static int put_event(struct db *db, const struct event *e, struct sh_err *err)
{
    struct store_num job, attempt, step;

    return db_exec(db, &EVENT,
                   (const char *const[]){store__i64(&job, e->job), e->from, e->to, e->reason,
                                         or_null(e->executor), store__i64(&attempt, e->attempt),
                                         store__i64(&step, e->step), or_null(e->message)},
                   NULL, err);
}

static void start_out_clear(struct store_start_out *o)
{
    free(o->tenant);
    free(o->model);
    free(o->package);
    free(o->dataset);
    free(o->eval_dataset);
    free(o->spec);
    free(o->resume);
    free(o->inputs);
    free(o->outputs);
    free(o->resume_digest);
    free(o->about);
    *o = (struct store_start_out){0};
}

/* *missing_out: why the job cannot run, "" if it can. */
static int start_details(struct db *db, const struct store_start *s, char missing_out[128],
                         struct sh_err *err)
{
    struct store_start_out *o = s->out;
    struct store_num id;
    struct db_res *r = NULL;
    int rc = db_exec(db, &START_DETAILS, (const char *const[]){store__i64(&id, s->job)}, &r, err);
    static const size_t COLUMN[] = {0, 1, 2, 3, 4, 5, 6, 14, 15, 16, 17};
    char **const texts[] = {&o->tenant,       &o->model,         &o->package, &o->dataset,
                            &o->eval_dataset, &o->spec,          &o->resume,  &o->inputs,
                            &o->outputs,      &o->resume_digest, &o->about};

    start_out_clear(o);
    if (!rc && db_rows(r) == 0)
        rc = SH_FAIL(err, SH_E_NOTFOUND, "job %lld does not exist", (long long)s->job);
    if (rc)
        goto out;
    for (size_t i = 0; i < SH_ARRAY_LEN(texts) && !rc; i++) {
        const char *text = db_text(r, 0, COLUMN[i]);

        rc = sh_strdup(text ? text : "", texts[i], err);
    }
    o->resume_step = db_i64(r, 0, 7, 0);
    o->base = (struct job_progress){.redone = db_i64(r, 0, 8, 0),
                                    .preemptions = db_i64(r, 0, 9, 0),
                                    .busy_ns = db_i64(r, 0, 10, 0),
                                    .step = o->resume_step,
                                    .steps = db_i64(r, 0, 12, 0),
                                    .loss = NAN,
                                    .samples_per_s = NAN};
    /* Steps after the checkpoint are done again. */
    o->base.redone += SH_MAX(db_i64(r, 0, 11, 0) - o->resume_step, 0);
    sh_strlcpy(missing_out, db_text(r, 0, 13) ? db_text(r, 0, 13) : "", 128);
out:
    db_res_free(r);
    return rc;
}

/* Nothing was updated: did we do it before, or has the API been faster? */
static int start_state(struct db *db, const struct store_start *s, struct sh_err *err)
{
    struct store_num id;
    struct db_res *r = NULL;
    int rc = db_exec(db, &JOB_NOW, (const char *const[]){store__i64(&id, s->job)}, &r, err);

    if (!rc && db_rows(r) == 1) {
        rc = job_state_parse(db_text(r, 0, 0), &s->out->state, err);
        s->out->placement = db_i64(r, 0, 4, 0);
    }
    if (!rc && s->out->state == JOB_STARTING &&
        (strcmp(db_text(r, 0, 1), s->executor) != 0 || db_i64(r, 0, 2, 0) != s->attempt ||
         (uint64_t)db_i64(r, 0, 3, 0) != s->fence.epoch))
        rc = SH_FAIL(err, SH_E_BUG, "job %lld was started twice", (long long)s->job);
    db_res_free(r);
    return rc;
}

static int start_tx(struct db *db, const void *arg, struct sh_err *err)
{
    const struct store_start *s = arg;
    struct store_num id, attempt, epoch, step;
    struct db_res *r = NULL;
    char missing[128] = "";
    struct event e = {.job = s->job, .from = "QUEUED", .reason = "", .attempt = s->attempt};
    int rc = store__fence(db, &s->fence, err);

    if (!rc)
        rc = start_details(db, s, missing, err);
    if (rc)
        goto out;
    store__i64(&id, s->job);
    store__i64(&epoch, (int64_t)s->fence.epoch);
    if (missing[0])
        rc = db_exec(db, &START_FAIL, (const char *const[]){id.s, missing, epoch.s}, &r, err);
    else
        rc = db_exec(db, &START,
                     (const char *const[]){id.s, store__i64(&attempt, s->attempt), s->executor,
                                           epoch.s, store__i64(&step, s->out->resume_step)},
                     &r, err);
    if (rc)
        goto out;
    if (db_affected(r) == 0) {
        rc = start_state(db, s, err);
        goto out;
    }
    s->out->state = missing[0] ? JOB_FAILED : JOB_STARTING;
    e.to = job_state_name(s->out->state);
    s->out->placement = missing[0] ? 0 : db_i64(r, 0, 0, 0);
    e.reason = missing[0] ? "NOTFOUND" : "";
    e.message = missing;
    e.executor = missing[0] ? "" : s->executor;
    e.step = s->out->resume_step;
    rc = put_event(db, &e, err);
out:
    db_res_free(r);
    return rc;
}

int store_job_start(struct db *db, void *arg, struct sh_err *err)
{
    return db_tx(db, "job_start", start_tx, arg, err);
}

void store_start_free(void *start)
{
    struct store_start *s = start;

    if (!s)
        return;
    if (s->out)
        start_out_clear(s->out);
    free(s->out);
    free(s);
}

/* ------------------------------------------------------------------ changes */

/* $4: the executor that has it afterwards, if any; $10: back-off, ms; $11: handicap, us, for a
 * change to QUEUED. */
static const struct db_stmt CHANGE = {
    "job_change",
    "UPDATE job SET state = CASE WHEN $2 = 'QUEUED' AND wish = 'SUSPEND' THEN 'SUSPENDED' ELSE $2"
    " END, reason = CASE WHEN $2 <> 'QUEUED' OR wish = '' THEN $3"
    "  WHEN wish = 'SUSPEND' THEN 'Suspended' ELSE 'Requeued' END,"
    " queued_at = CASE WHEN $2 = 'QUEUED' AND wish = 'REQUEUE' THEN now() ELSE queued_at END,"
    " not_before = CASE WHEN $2 = 'QUEUED' AND $10::bigint > 0"
    "  THEN now() + $10::bigint * interval '1 ms' END,"
    " handicap_us = CASE WHEN $2 = 'QUEUED' THEN $11::bigint ELSE handicap_us END,"
    " wish = CASE WHEN $2 IN ('STARTING', 'RUNNING', 'PREEMPTED', 'COMPLETING') THEN wish ELSE ''"
    "  END,"
    " executor = $4, attempt = $5, epoch = $6,"
    " error_code = CASE WHEN $2 <> 'SUCCEEDED' THEN coalesce($7, error_code) END,"
    " error = CASE WHEN $2 <> 'SUCCEEDED' THEN coalesce($8, error) END,"
    " finished_at = CASE WHEN $2 IN " SH_JOB_FINAL " THEN now() END,"
    " row_version = row_version + 1 WHERE id = $1 AND state = $9 RETURNING state, reason",
    11};
/* By the index job_handicap. */
static const struct db_stmt LINES_RESET = {
    "lines_reset",
    "UPDATE job SET handicap_us = 0, row_version = row_version + 1 WHERE handicap_us > 0"
    " AND state IN " SH_JOB_IS_WAITING,
    0};
static const struct db_stmt SAVED = {
    "job_saved",
    "WITH j AS (UPDATE job SET save_done = $2, epoch = $3, row_version = row_version + 1"
    "  WHERE id = $1 AND save_done < $2"
    "  AND state NOT IN " SH_JOB_FINAL " RETURNING id, state)"
    " INSERT INTO job_event (job_id, from_state, to_state, reason, detail, at)"
    " SELECT id, state, state, $4, jsonb_strip_nulls(jsonb_build_object('executor', $5::text,"
    " 'attempt', $6::bigint, 'step', $7::bigint, 'message', $8::text)), " SH_JOB_EVENT_TIME
    " FROM j",
    8};
static const struct db_stmt PROGRESS = {
    "job_progress",
    "UPDATE job SET step = $2, steps = $3, loss = coalesce($4, loss),"
    " samples_per_s = coalesce($5, samples_per_s), steps_redone = $6, preemptions = $7,"
    " busy_ns = $8, epoch = $9,"
    " evaluation = coalesce($10::jsonb, evaluation) WHERE id = $1",
    10};
static const struct db_stmt CHECKPOINT = {
    "checkpoint_add",
    "INSERT INTO checkpoint (job_id, attempt, step, path, digest, bytes)"
    " VALUES ($1, $2, $3, $4, $5, $6) ON CONFLICT (job_id, attempt, step) DO UPDATE SET"
    " path = excluded.path, digest = excluded.digest, bytes = excluded.bytes, created_at = now()",
    6};
static const struct db_stmt VERSION_LOCK = {
    "version_lock",
    "SELECT m.id FROM model m JOIN model_version v ON v.model_id = m.id"
    " WHERE v.id = $1 AND m.deleted_at IS NULL FOR UPDATE OF m",
    1};
static const struct db_stmt VERSION_ADD = {
    "version_add",
    "INSERT INTO model_version (model_id, version, state, digest, bytes, package, inputs, outputs,"
    " meta, max_batch, precision, source_job)"
    " SELECT p.model_id, (SELECT max(x.version) + 1 FROM model_version x"
    "  WHERE x.model_id = p.model_id), 'REGISTERED', $2, $3::bigint, $4, $5::jsonb, $6::jsonb,"
    " $7::jsonb, p.max_batch, p.precision, $8::bigint FROM model_version p WHERE p.id = $1"
    " RETURNING id, version",
    8};
static const struct db_stmt RESULT = {
    "job_result",
    "UPDATE job SET result = $2::jsonb || CASE WHEN $5::boolean"
    " THEN jsonb_build_object('version', $3::integer) ELSE '{}' END ||"
    " CASE WHEN spec ? 'publish_as' THEN jsonb_build_object('alias', $6::text) ELSE '{}' END,"
    " result_version_id = $4 WHERE id = $1",
    6};
/* What its user named stands for the new version, $2, from now on; nothing else does. The model is
 * locked. One more alias than a model may have is not made. */
static const struct db_stmt ALIAS_MOVE = {
    "alias_move",
    "WITH v AS (SELECT v.model_id, jsonb_build_array(jsonb_build_object('version', v.version,"
    "  'weight', 1)) AS targets, j.spec ->> 'publish_as' AS alias, j.tenant_id, m.name AS model"
    "  FROM job j, model_version v JOIN model m ON m.id = v.model_id WHERE j.id = $1 AND v.id = $2"
    "  AND j.spec ->> 'publish_as' IS NOT NULL),"
    " o AS (SELECT a.* FROM model_alias a JOIN v ON a.model_id = v.model_id AND a.name = v.alias),"
    " s AS (INSERT INTO model_alias AS x (model_id, name, targets) SELECT model_id, alias, targets"
    "  FROM v WHERE EXISTS (SELECT 1 FROM o) OR (SELECT count(*) FROM model_alias y"
    "  WHERE y.model_id = v.model_id) < " DB_NUMBER(
        SH_ALIAS_MOST) " ON CONFLICT (model_id, name)"
                       "  DO UPDATE SET previous = x.targets, targets = excluded.targets, "
                       "generation ="
                       "  x.generation + 1, rolled_back = NULL, changed_by = NULL, changed_at = "
                       "now(), row_version ="
                       "  x.row_version + 1 RETURNING x.*),"
                       " a AS (INSERT INTO audit (request_id, action, tenant_id, resource, before, "
                       "after)"
                       "  SELECT 'job-' || $1::text, 'alias.promote', v.tenant_id, 'model/' || "
                       "v.model ||"
                       "  '/aliases/' || s.name, to_jsonb(o.*), to_jsonb(s.*) FROM s, v LEFT JOIN "
                       "o ON true)"
                       " SELECT name FROM s",
    2};
static const struct db_stmt RESULT_NOW = {
    "job_result_now",
    "SELECT coalesce(v.id, 0), coalesce(v.version, 0) FROM job j"
    " LEFT JOIN model_version v ON v.id = j.result_version_id WHERE j.id = $1",
    1};
static const struct db_stmt VERSION_NOTIFY = {"version_notify",
                                              "SELECT pg_notify('shunt_models', $1)", 1};

/* The result; a published model becomes the next version unless the model was deleted meanwhile. */
static int add_version(struct db *db, const struct store_write *w, struct sh_err *err)
{
    const struct store_version *v = &w->version;
    struct store_num parent, job, bytes, id, version;
    struct db_res *r = NULL, *locked = NULL, *moved = NULL;
    bool made = false;
    int rc = SH_OK;

    store__i64(&parent, w->parent_version);
    store__i64(&job, w->job);
    if (v->digest) /* the API numbers versions too: one at a time */
        rc = db_exec(db, &VERSION_LOCK, (const char *const[]){parent.s}, &locked, err);
    if (!rc && locked && db_rows(locked) == 1) {
        rc = db_exec(db, &VERSION_ADD,
                     (const char *const[]){parent.s, v->digest, store__i64(&bytes, v->bytes),
                                           v->package, v->inputs, v->outputs, v->meta, job.s},
                     &r, err);
        made = !rc && db_rows(r) == 1;
    }
    if (made) {
        w->out->version_id = db_i64(r, 0, 0, 0);
        w->out->version = (int32_t)db_i64(r, 0, 1, 0);
        store__i64(&id, w->out->version_id);
        store__i64(&version, w->out->version);
        rc = db_exec(db, &ALIAS_MOVE, (const char *const[]){job.s, id.s}, &moved, err);
    }
    if (!rc && made)
        rc = db_exec(db, &VERSION_NOTIFY, (const char *const[]){id.s}, NULL, err);
    if (!rc)
        rc = db_exec(db, &RESULT,
                     (const char *const[]){job.s, w->result ? w->result : "{}",
                                           made ? version.s : NULL, made ? id.s : NULL,
                                           v->digest ? "true" : "false",
                                           moved && db_rows(moved) ? db_text(moved, 0, 0) : NULL},
                     NULL, err);
    db_res_free(moved);
    db_res_free(r);
    db_res_free(locked);
    return rc;
}

/* The first change did not apply: a repetition of what is committed, or another's doing. */
static int explain_miss(struct db *db, const struct store_write *w, struct sh_err *err)
{
    struct store_num id;
    struct db_res *r = NULL, *result = NULL;
    enum job_state last = w->changes[w->n_changes - 1].to;
    int rc = db_exec(db, &JOB_NOW, (const char *const[]){store__i64(&id, w->job)}, &r, err);

    if (!rc && db_rows(r) == 0)
        rc = SH_FAIL(err, SH_E_NOTFOUND, "job %lld does not exist", (long long)w->job);
    if (!rc)
        rc = job_state_parse(db_text(r, 0, 0), &w->out->state, err);
    w->out->conflict = !rc && w->out->state != last;
    if (!rc && !w->out->conflict && last == JOB_SUCCEEDED) {
        rc = db_exec(db, &RESULT_NOW, (const char *const[]){id.s}, &result, err);
        w->out->version_id = rc ? 0 : db_i64(result, 0, 0, 0);
        w->out->version = rc ? 0 : (int32_t)db_i64(result, 0, 1, 0);
    }
    db_res_free(result);
    db_res_free(r);
    return rc;
}

/* *applied_out: false when the row was in another state. Else out->state is what it is now. */
static int put_change(struct db *db, const struct store_write *w, const struct job_change *c,
                      bool *applied_out, struct sh_err *err)
{
    bool fails =
        w->error_rc && (c->to == JOB_QUEUED || c->to == JOB_FAILED || c->to == JOB_EXPIRED);
    struct event e = {.job = w->job,
                      .from = job_state_name(c->from),
                      .to = job_state_name(c->to),
                      .reason = c->reason,
                      .executor = w->executor,
                      .message = fails ? w->error : "",
                      .attempt = w->attempt,
                      .step = c->step};
    struct store_num id, attempt, epoch, backoff, handicap;
    struct db_res *r = NULL;
    bool keeps = job_state_has_executor(c->to) || job_state_is_final(c->to);
    int rc =
        db_exec(db, &CHANGE,
                (const char *const[]){
                    store__i64(&id, w->job), e.to, c->reason, keeps ? or_null(w->executor) : NULL,
                    store__i64(&attempt, w->attempt), store__i64(&epoch, (int64_t)w->fence.epoch),
                    fails ? sh_rc_name(w->error_rc) : NULL, fails ? w->error : NULL, e.from,
                    store__i64(&backoff, w->backoff_ms), store__i64(&handicap, w->handicap_us)},
                &r, err);

    *applied_out = !rc && db_rows(r) == 1;
    if (!rc && *applied_out) {
        e.to = db_text(r, 0, 0);
        e.reason = db_text(r, 0, 1);
        rc = job_state_parse(e.to, &w->out->state, err);
    }
    if (!rc && *applied_out)
        rc = put_event(db, &e, err);
    db_res_free(r);
    if (!rc && *applied_out && c->to == JOB_SUCCEEDED)
        rc = add_version(db, w, err);
    return rc;
}

static int put_checkpoint(struct db *db, const struct store_write *w,
                          const struct job_checkpoint *c, struct sh_err *err)
{
    struct store_num id, attempt, step, bytes;

    return db_exec(db, &CHECKPOINT,
                   (const char *const[]){store__i64(&id, w->job), store__i64(&attempt, c->attempt),
                                         store__i64(&step, c->step), c->path, c->digest,
                                         store__i64(&bytes, (int64_t)c->bytes)},
                   NULL, err);
}

static int put_saved(struct db *db, const struct store_write *w, struct sh_err *err)
{
    const struct job_saved *s = &w->saved;
    struct store_num id, asked, epoch, attempt, step;

    return db_exec(db, &SAVED,
                   (const char *const[]){store__i64(&id, w->job), store__i64(&asked, s->asked),
                                         store__i64(&epoch, (int64_t)w->fence.epoch),
                                         s->rc ? "CheckpointFailed" : "CheckpointWritten",
                                         or_null(w->executor), store__i64(&attempt, w->attempt),
                                         store__i64(&step, s->step), or_null(s->msg)},
                   NULL, err);
}

static int put_progress(struct db *db, const struct store_write *w, struct sh_err *err)
{
    const struct job_progress *p = &w->progress;
    struct store_num n[9];

    return db_exec(
        db, &PROGRESS,
        (const char *const[]){store__i64(&n[0], w->job), store__i64(&n[1], p->step),
                              store__i64(&n[2], p->steps), store__f64(&n[3], p->loss),
                              store__f64(&n[4], p->samples_per_s), store__i64(&n[5], p->redone),
                              store__i64(&n[6], p->preemptions), store__i64(&n[7], p->busy_ns),
                              store__i64(&n[8], (int64_t)w->fence.epoch), or_null(w->evaluation)},
        NULL, err);
}

static int write_tx(struct db *db, const void *arg, struct sh_err *err)
{
    const struct store_write *w = arg;
    bool applied = true;
    int rc = store__fence(db, &w->fence, err);

    *w->out = (struct store_write_out){0};
    for (size_t i = 0; i < w->n_changes && !rc && applied; i++) {
        rc = put_change(db, w, &w->changes[i], &applied, err);
        if (!rc && !applied && i > 0)
            rc = SH_FAIL(err, SH_E_BUG, "job %lld skipped a state", (long long)w->job);
    }
    if (!rc && !applied)
        rc = explain_miss(db, w, err);
    for (size_t i = 0; i < w->n_checkpoints && !rc; i++)
        rc = put_checkpoint(db, w, &w->checkpoints[i], err);
    if (!rc && w->saved.asked)
        rc = put_saved(db, w, err);
    if (!rc)
        rc = put_progress(db, w, err);
    return rc;
}

int store_job_write(struct db *db, void *arg, struct sh_err *err)
{
    int rc = SH_OK;

    /* A version number that an upload took in the same moment: take the next one. */
    for (int i = 0; i < 3; i++) {
        struct sh_err one = {0};

        rc = db_tx(db, "job_write", write_tx, arg, &one);
        if (rc != SH_E_CONFLICT) {
            if (rc)
                sh_err_copy(err, &one);
            return rc;
        }
        if (i == 2)
            sh_err_copy(err, &one);
    }
    return rc;
}

static int reset_tx(struct db *db, const void *arg, struct sh_err *err)
{
    int rc = store__fence(db, arg, err);

    return rc ? rc : db_exec(db, &LINES_RESET, NULL, NULL, err);
}

int store_lines_reset(struct db *db, void *arg, struct sh_err *err)
{
    return db_tx(db, "lines_reset", reset_tx, arg, err);
}

void store_write_free(void *write)
{
    struct store_write *w = write;

    if (!w)
        return;
    free(w->checkpoints);
    free(w->result);
    free(w->version.digest);
    free(w->version.package);
    free(w->version.inputs);
    free(w->version.outputs);
    free(w->version.meta);
    free(w->out);
    free(w);
}
