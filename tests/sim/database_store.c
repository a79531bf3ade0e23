/* database_store.c - scheduler/database/store.h: the lease, jobs, versions. What is written here is
 * what the statements of store.c and store_job.c do, with their conditions. */
#include "common/life.h"
#include "common/log.h"
#include "common/mem.h"
#include "common/units.h"
#include "tests/sim/database_int.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int fence(const struct store_fence *f, struct sh_err *err)
{
    if (strcmp(database.lease.holder, f->holder) == 0 && database.lease.epoch == f->epoch)
        return SH_OK;
    return SH_FAIL(err, SH_E_PRECONDITION, "the lease of epoch %" PRIu64 " is no longer ours",
                   f->epoch);
}

int database__transact(struct db *db, const struct store_fence *f, database_body_fn *body,
                       void *arg, struct sh_err *err)
{
    int rc = database__begin(db, err);

    if (rc)
        return rc;
    if (f)
        rc = fence(f, err);
    if (!rc)
        rc = body(arg, err);
    return database__end(db, rc, err);
}

/* ------------------------------------------------------------------ lease */

static int acquire(void *arg, struct sh_err *err)
{
    struct store_lease *l = arg;

    (void)err;
    l->held = database.lease.epoch == 0 || database.lease.expires_ns < sim_now() ||
              strcmp(database.lease.holder, l->fence.holder) == 0;
    if (!l->held)
        return SH_OK;
    sh_strlcpy(database.lease.holder, l->fence.holder, sizeof(database.lease.holder));
    database.lease.expires_ns = sim_now() + SH_MS(l->ttl_ms);
    l->fence.epoch = ++database.lease.epoch;
    sim_trace("lease %s epoch=%" PRIu64, l->fence.holder, l->fence.epoch);
    return SH_OK;
}

static int renew(void *arg, struct sh_err *err)
{
    struct store_lease *l = arg;

    l->held = !fence(&l->fence, NULL);
    (void)err;
    if (l->held)
        database.lease.expires_ns = sim_now() + SH_MS(l->ttl_ms);
    return SH_OK;
}

static int release(void *arg, struct sh_err *err)
{
    struct store_lease *l = arg;

    (void)err;
    if (!fence(&l->fence, NULL))
        database.lease.expires_ns = sim_now() - SH_MS(1);
    return SH_OK;
}

static int lease_op(struct db *db, database_body_fn *body, void *arg, struct sh_err *err)
{
    struct store_lease *l = arg;
    const uint64_t epoch = l->fence.epoch;
    int rc = database__transact(db, NULL, body, arg, err);

    if (rc) {
        l->held = false;
        l->fence.epoch = epoch;
    }
    return rc;
}

int store_lease_acquire(struct db *db, void *arg, struct sh_err *err)
{
    return lease_op(db, acquire, arg, err);
}

int store_lease_renew(struct db *db, void *arg, struct sh_err *err)
{
    return lease_op(db, renew, arg, err);
}

int store_lease_release(struct db *db, void *arg, struct sh_err *err)
{
    return lease_op(db, release, arg, err);
}

/* ------------------------------------------------------------------ start */

static int lock_row(const struct database_job *j, struct sh_err *err)
{
    if (sim_now() < j->locked_ns)
        return SH_FAIL(err, SH_E_TIMEOUT, "the row of job %" PRId64 " is locked", j->id);
    return SH_OK;
}

/* Whoever wrote it was let through. */
static void check_epoch(int64_t job, uint64_t epoch)
{
    SIM_CHECK("fence", epoch == database.lease.epoch,
              "job %" PRId64 " is written in epoch %" PRIu64 ", and the lease has %" PRIu64, job,
              epoch, database.lease.epoch);
}

/* Batch inference may have had to begin again: its last one counts, not the furthest. */
static const struct database_checkpoint *newest(const struct database_job *j)
{
    const struct database_checkpoint *best = NULL;

    for (size_t i = 0; i < j->n_checkpoints; i++) {
        const struct database_checkpoint *c = &j->checkpoints[i];

        if (!best || (!j->is_batch && c->step != best->step ? c->step > best->step
                                                            : c->at_ns >= best->at_ns))
            best = c;
    }
    return best;
}

static int details(const struct database_job *j, struct store_start_out *o, struct sh_err *err)
{
    const struct database_version *v = database__version(j->version_id);
    const struct database_model *m = database__model(v->model_id);
    const struct database_checkpoint *c = newest(j);
    const struct {
        char **to;
        const char *text;
    } texts[] = {
        {&o->tenant, database__tenant(j->tenant_id)->name},
        {&o->model, m->name},
        {&o->package, v->package},
        {&o->dataset, j->dataset},
        {&o->eval_dataset, j->eval_dataset},
        {&o->spec, j->spec},
        {&o->resume, c ? c->path : ""},
        {&o->inputs, j->inputs},
        {&o->outputs, j->outputs},
        {&o->resume_digest, c ? c->digest : ""},
        {&o->about, j->started_ns ? "started again" : "started"},
    };
    int rc = SH_OK;

    for (size_t i = 0; i < SH_ARRAY_LEN(texts) && !rc; i++) {
        free(*texts[i].to); /* of an attempt before */
        rc = sh_strdup(texts[i].text, texts[i].to, err);
    }
    o->resume_step = c ? c->step : 0;
    o->base = (struct job_progress){.redone = j->progress.redone,
                                    .preemptions = j->progress.preemptions,
                                    .busy_ns = j->progress.busy_ns,
                                    .step = o->resume_step,
                                    .steps = j->progress.steps,
                                    .loss = NAN,
                                    .samples_per_s = NAN};
    o->base.redone += SH_MAX(j->progress.step - o->resume_step, 0);
    return rc;
}

static bool is_missing(const struct database_job *j)
{
    const struct database_version *v = database__version(j->version_id);

    return strcmp(v->state, "FAILED") == 0 || strcmp(v->state, "DELETED") == 0 ||
           database__model(v->model_id)->is_deleted;
}

/* Nothing is changed: did we do it before, or has the API been faster? */
static int start_state(const struct store_start *s, const struct database_job *j,
                       struct sh_err *err)
{
    s->out->state = j->state;
    s->out->placement = j->placement;
    if (j->state == JOB_STARTING && (strcmp(j->executor, s->executor) != 0 ||
                                     j->attempt != s->attempt || j->epoch != s->fence.epoch))
        return SH_FAIL(err, SH_E_BUG, "job %" PRId64 " was started twice", s->job);
    return SH_OK;
}

static int start(void *arg, struct sh_err *err)
{
    struct store_start *s = arg;
    struct database_job *j = database__job(s->job), old;
    struct job_progress *p = &j->progress;
    int rc = j ? lock_row(j, err) : SH_FAIL(err, SH_E_NOTFOUND, "job does not exist");

    if (!rc)
        rc = details(j, s->out, err);
    if (rc)
        return rc;
    if (j->state != JOB_QUEUED)
        return start_state(s, j, err);
    check_epoch(s->job, s->fence.epoch);
    old = *j;
    j->epoch = s->fence.epoch;
    if (is_missing(j)) {
        j->state = JOB_FAILED;
        j->finished_ns = sim_now();
        sh_strlcpy(j->error_code, "NOTFOUND", sizeof(j->error_code));
    } else {
        j->state = JOB_STARTING;
        s->out->placement = j->placement = SH_MAX(j->placement + 1, sim_now() / 1000);
        j->not_before_ns = 0;
        j->attempt = s->attempt;
        sh_strlcpy(j->executor, s->executor, sizeof(j->executor));
        j->started_ns = j->started_ns ? j->started_ns : sim_now();
        p->redone += SH_MAX(p->step - s->out->resume_step, (int64_t)0);
        p->step = s->out->resume_step;
        p->samples_per_s = NAN;
        j->base = *p;
    }
    sh_life_step(&JOB_LIFE, old.state, j->state, j->id);
    j->reason[0] = '\0';
    s->out->state = j->state;
    database__job_changed(&old, j);
    database__event(j, JOB_QUEUED, "", s->out->resume_step);
    return SH_OK;
}

int store_job_start(struct db *db, void *arg, struct sh_err *err)
{
    return database__transact(db, &((struct store_start *)arg)->fence, start, arg, err);
}

void store_start_free(void *arg)
{
    struct store_start *s = arg;

    if (!s)
        return;
    if (s->out) {
        struct store_start_out *o = s->out;
        char *const texts[] = {o->tenant,       o->model, o->package,      o->dataset,
                               o->eval_dataset, o->spec,  o->resume,       o->inputs,
                               o->outputs,      o->about, o->resume_digest};

        for (size_t i = 0; i < SH_ARRAY_LEN(texts); i++)
            free(texts[i]);
    }
    free(s->out);
    free(s);
}

/* ------------------------------------------------------------------ changes */

static bool keeps_wish(enum job_state s)
{
    return job_state_has_executor(s) && s != JOB_CANCELLING;
}

/* What the client wished of a job that leaves its executor. */
static void follow_wish(struct database_job *j, const char **reason)
{
    if (j->wish == JOB_WISH_SUSPEND)
        j->state = JOB_SUSPENDED;
    if (j->wish == JOB_WISH_REQUEUE)
        j->queued_us = sim_now() / 1000;
    if (j->wish != JOB_WISH_NONE)
        *reason = j->wish == JOB_WISH_SUSPEND ? "Suspended" : "Requeued";
}

static void change(const struct store_write *w, struct database_job *j, const struct job_change *c)
{
    const struct database_job old = *j;
    const char *reason = c->reason;
    bool keeps = job_state_has_executor(c->to) || job_state_is_final(c->to);
    bool fails = w->error_rc && c->to != JOB_SUCCEEDED &&
                 (c->to == JOB_QUEUED || c->to == JOB_FAILED || c->to == JOB_EXPIRED);

    SIM_CHECK("arrows", job_can(c->from, c->to), "job %" PRId64 " is written from %s to %s", j->id,
              job_state_name(c->from), job_state_name(c->to));
    j->state = c->to;
    if (c->to == JOB_QUEUED)
        follow_wish(j, &reason);
    if (c->to == JOB_QUEUED)
        j->handicap_us = w->handicap_us;
    j->not_before_ns =
        c->to == JOB_QUEUED && w->backoff_ms > 0 ? sim_now() + SH_MS(w->backoff_ms) : 0;
    if (!keeps_wish(c->to))
        j->wish = JOB_WISH_NONE;
    sh_strlcpy(j->executor, keeps ? w->executor : "", sizeof(j->executor));
    j->attempt = w->attempt;
    j->epoch = w->fence.epoch;
    if (fails)
        sh_strlcpy(j->error_code, sh_rc_name(w->error_rc), sizeof(j->error_code));
    j->finished_ns = job_state_is_final(c->to) ? sim_now() : 0;
    sh_strlcpy(j->reason, reason, sizeof(j->reason));
    w->out->state = j->state;
    database__job_changed(&old, j);
    database__event(j, c->from, reason, c->step);
}

/* The result; a published model becomes the next version unless the model was deleted meanwhile. */
static void add_version(const struct store_write *w, struct database_job *j)
{
    const struct database_version *parent = database__version(w->parent_version);
    struct database_model *m = database__model(parent->model_id);

    j->result = strdup(w->result ? w->result : "{}");
    if (!w->version.digest || m->is_deleted)
        return;
    {
        struct database_version *v = database__new_version(m, parent->max_batch);

        v->source_job = j->id;
        v->content = database__version(w->parent_version)->content;
        v->content.id += SIM_SIBLING; /* as shunt-import counts up (executor.c) */
        sh_strlcpy(v->package, w->version.package, sizeof(v->package));
        database__changed("model", 0);
        w->out->version_id = j->result_version_id = v->id;
        w->out->version = (int32_t)v->version;
        sim_trace("version %" PRId64 " REGISTERED by job %" PRId64, v->id, j->id);
    }
}

/* The first change did not apply: a repetition of what is committed, or another's doing. */
static void explain_miss(const struct store_write *w, const struct database_job *j)
{
    w->out->state = j->state;
    w->out->conflict = j->state != w->changes[w->n_changes - 1].to;
    if (!w->out->conflict && j->state == JOB_SUCCEEDED && j->result_version_id) {
        w->out->version_id = j->result_version_id;
        w->out->version = (int32_t)database__version(j->result_version_id)->version;
    }
}

static void put_checkpoint(struct database_job *j, const struct job_checkpoint *c)
{
    struct database_checkpoint *x = NULL;

    for (size_t i = 0; i < j->n_checkpoints && !x; i++)
        if (j->checkpoints[i].attempt == c->attempt && j->checkpoints[i].step == c->step)
            x = &j->checkpoints[i];
    if (!x) {
        sim_grow(&j->checkpoints, &j->cap_checkpoints, j->n_checkpoints + 1, sizeof(*x));
        x = &j->checkpoints[j->n_checkpoints++];
    }
    *x = (struct database_checkpoint){
        .attempt = c->attempt, .step = c->step, .bytes = c->bytes, .at_ns = sim_now()};
    sh_strlcpy(x->path, c->path, sizeof(x->path));
    sh_strlcpy(x->digest, c->digest, sizeof(x->digest));
    sim_trace("job %" PRId64 " checkpoint %" PRId64 " attempt %u", j->id, c->step, c->attempt);
}

static void put_saved(const struct store_write *w, struct database_job *j)
{
    const struct database_job old = *j;

    if (j->save_done >= w->saved.asked || job_state_is_final(j->state))
        return;
    j->save_done = w->saved.asked;
    j->epoch = w->fence.epoch;
    database__job_changed(&old, j);
    database__event(j, j->state, w->saved.rc ? "CheckpointFailed" : "CheckpointWritten",
                    w->saved.step);
}

static void put_progress(const struct store_write *w, struct database_job *j)
{
    const struct job_progress last = j->progress;

    j->progress = w->progress;
    if (!isfinite(w->progress.loss))
        j->progress.loss = last.loss;
    if (!isfinite(w->progress.samples_per_s))
        j->progress.samples_per_s = last.samples_per_s;
    j->epoch = w->fence.epoch;
}

/* Would all changes apply, one after the other? Only then is anything written. */
static int check_changes(const struct store_write *w, const struct database_job *j, bool *applies,
                         struct sh_err *err)
{
    enum job_state state = j->state;
    enum job_wish wish = j->wish;

    *applies = w->n_changes == 0 || w->changes[0].from == state;
    for (size_t i = 0; i < w->n_changes && *applies; i++) {
        if (w->changes[i].from != state)
            return SH_FAIL(err, SH_E_BUG, "job %" PRId64 " skipped a state", w->job);
        state = w->changes[i].to;
        if (state == JOB_QUEUED && wish == JOB_WISH_SUSPEND)
            state = JOB_SUSPENDED;
        if (!keeps_wish(w->changes[i].to))
            wish = JOB_WISH_NONE;
    }
    return SH_OK;
}

static int write_job(void *arg, struct sh_err *err)
{
    struct store_write *w = arg;
    struct database_job *j = database__job(w->job);
    bool applies = true;
    int rc = j ? lock_row(j, err) : SH_FAIL(err, SH_E_NOTFOUND, "job does not exist");

    check_epoch(w->job, w->fence.epoch);
    *w->out = (struct store_write_out){0};
    if (!rc)
        rc = check_changes(w, j, &applies, err);
    if (rc)
        return rc;
    for (size_t i = 0; i < w->n_changes && applies; i++) {
        change(w, j, &w->changes[i]);
        if (w->changes[i].to == JOB_SUCCEEDED)
            add_version(w, j);
    }
    if (!applies)
        explain_miss(w, j);
    for (size_t i = 0; i < w->n_checkpoints; i++)
        put_checkpoint(j, &w->checkpoints[i]);
    if (w->saved.asked)
        put_saved(w, j);
    put_progress(w, j);
    return SH_OK;
}

int store_job_write(struct db *db, void *arg, struct sh_err *err)
{
    return database__transact(db, &((struct store_write *)arg)->fence, write_job, arg, err);
}

void store_write_free(void *arg)
{
    struct store_write *w = arg;

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

static int reasons(void *arg, struct sh_err *err)
{
    const struct store_reasons *q = arg;

    for (size_t i = 0; i < q->n; i++) {
        struct database_job *j = database__job(q->job[i]);

        if (j && lock_row(j, err))
            return SH_E_TIMEOUT;
    }
    for (size_t i = 0; i < q->n; i++) {
        struct database_job *j = database__job(q->job[i]);

        if (j && j->state == JOB_QUEUED)
            sh_strlcpy(j->reason, q->reason[i], sizeof(j->reason));
    }
    return SH_OK;
}

static int reset(void *arg, struct sh_err *err)
{
    (void)arg, (void)err;
    for (size_t i = 0; i < database.n_jobs; i++) {
        struct database_job *j = &database.jobs[i];
        const struct database_job old = *j;

        if (!j->handicap_us || job_state_has_executor(j->state) || job_state_is_final(j->state))
            continue;
        j->handicap_us = 0;
        database__job_changed(&old, j);
    }
    return SH_OK;
}

int store_lines_reset(struct db *db, void *arg, struct sh_err *err)
{
    return database__transact(db, arg, reset, arg, err);
}

int store_job_reasons(struct db *db, void *arg, struct sh_err *err)
{
    return database__transact(db, &((struct store_reasons *)arg)->fence, reasons, arg, err);
}
