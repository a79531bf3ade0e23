/* jobs_db.c - see jobs.h: writes changes of jobs to the database. */
#include "common/clock.h"
#include "common/json.h"
#include "common/log.h"
#include "common/mem.h"
#include "common/metrics.h"
#include "common/units.h"
#include "scheduler/jobs/jobs.h"
#include "scheduler/jobs/result.h"
#include "scheduler/models/homes.h"
#include "scheduler/sched.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The jobs' side towards the database: what is written. What is read: jobs_view.c. */

#define PROGRESS_NS SH_S(1)

bool jobs__is_busy(const struct job *j)
{
    return j->writing || j->starting_write || j->n_pending > 0;
}

/* ------------------------------------------------------------------ start */

static void send_batch_start(struct sched *s, const struct job *j, struct exec *e,
                             const struct store_start_out *o, const char *dir)
{
    struct model *m = models_find(&s->models, j->version_id);

    if (m)
        homes_want_on(s, m, e);
    session_send(e->session,
                 &(struct sh_msg){.type = MSG_BATCH_START,
                                  .u.batch_start = {.epoch = s->epoch,
                                                    .job = j->id,
                                                    .attempt = j->attempt,
                                                    .placement = o->placement,
                                                    .tenant = o->tenant,
                                                    .model = o->model,
                                                    .version_id = j->version_id,
                                                    .inputs = o->inputs,
                                                    .outputs = o->outputs,
                                                    .dataset = o->dataset,
                                                    .spec = o->spec,
                                                    .dir = dir,
                                                    .resume_step = o->resume_step,
                                                    .resume_digest = o->resume_digest,
                                                    .about = o->about,
                                                    .redone = o->base.redone,
                                                    .preemptions = o->base.preemptions}});
}

static void send_start(struct sched *s, struct job *j, struct exec *e,
                       const struct store_start_out *o)
{
    char dir[24];

    snprintf(dir, sizeof(dir), "%" PRId64, j->id);
    j->sent = true;
    j->seen_session = e->serial;
    SH_INFO("job.start",
            "job=%" PRId64 " tenant=%s model=%s executor=%s attempt=%u resume_step=%" PRId64, j->id,
            o->tenant, o->model, e->info.name, j->attempt, o->resume_step);
    if (j->is_batch) {
        send_batch_start(s, j, e, o, dir);
        return;
    }
    session_send(e->session, &(struct sh_msg){.type = MSG_JOB_START,
                                              .u.job_start = {.epoch = s->epoch,
                                                              .job = j->id,
                                                              .attempt = j->attempt,
                                                              .placement = o->placement,
                                                              .tenant = o->tenant,
                                                              .model = o->model,
                                                              .package = o->package,
                                                              .dataset = o->dataset,
                                                              .eval_dataset = o->eval_dataset,
                                                              .spec = o->spec,
                                                              .dir = dir,
                                                              .resume = o->resume,
                                                              .resume_step = o->resume_step,
                                                              .about = o->about,
                                                              .redone = o->base.redone,
                                                              .preemptions = o->base.preemptions}});
}

/* By our own write: who else ends a job counts it (api/store/store_job.c). */
static void count_end(const struct job *j)
{
    sh_metric_add(M_shunt_jobs_finished_total, SH_LABELS(j->tenant, job_state_name(j->state)), 1);
}

/* The log of the job says why it is somewhere else. */
static void say_moved(const struct store_start *w)
{
    char *about;

    if (!w->moved_from[0] || sh_asprintf(NULL, &about, "%s; moved from executor %s: FirstFree",
                                         w->out->about, w->moved_from))
        return;
    free(w->out->about);
    w->out->about = about;
}

static void on_started(void *ctx, void *arg, int rc, const struct sh_err *err)
{
    struct sched *s = ctx;
    const struct store_start *w = arg;
    struct job *j = idmap_get(&s->jobs.by_id, (uint64_t)w->job); /* busy: nothing removes it */
    struct exec *e;

    jobs__touch(s, j);
    j->starting_write = false;
    if (rc) {
        job_adopt_state(j, JOB_QUEUED);
        jobs__leave(s, j);
        jobs__doubt(s, j);
        sched_op_ok(s, "job.start", rc, err);
        return;
    }
    if (w->out->state != JOB_STARTING) { /* FAILED: something is gone; else the API was faster */
        job_adopt_state(j, JOB_QUEUED);
        jobs__leave(s, j);
        if (job_state_is_final(w->out->state)) {
            job_adopt_state(j, w->out->state);
            if (w->out->state == JOB_FAILED)
                count_end(j);
            jobs__end(s, j);
        } else {
            jobs__follow(s, j, w->out->state); /* CANCELLING: no executor was told of it */
            jobs__doubt(s, j);
        }
        sched_wake_jobs(s);
        return;
    }
    j->base = j->progress = w->out->base;
    j->since_step = j->progress.step;
    j->checkpoint_step = w->out->resume[0] ? w->out->resume_step : -1;
    e = jobs__exec(s, j);
    say_moved(w);
    if (e && exec_is_up(e))
        send_start(s, j, e, w->out);
    else
        jobs__requeue(s, j, "ExecutorLost");
}

void jobs_start(struct sched *s, struct job *j, struct exec *e)
{
    static const struct sched_op OP = {"job.start", store_job_start, on_started, store_start_free,
                                       DBOP_ANY_ORDER};
    struct store_start *w = calloc(1, sizeof(*w));
    struct sh_err err = {0};

    jobs__touch(s, j);
    exec_changed(&s->execs, e);
    if (w)
        w->out = calloc(1, sizeof(*w->out));
    if (!w || !w->out) {
        store_start_free(w); /* the next pass tries again */
        return;
    }
    job_set_state(j, JOB_STARTING, "", &err); /* it is QUEUED, and that is recorded */
    j->n_pending = 0; /* store_job_start records this one, and nothing is sent before */
    j->attempt = SH_MAX(j->attempt, 1u);
    j->starting_write = true;
    j->sent = j->stopping = false;
    j->loss = (struct loss){.all_ns = 0};
    j->lost_ns = j->since_ns = j->placed_ns = sh_clock_ns();
    if (j->last_executor[0] && strcmp(j->last_executor, e->info.name) != 0) {
        sched_count("move", "FirstFree");
        sh_strlcpy(w->moved_from, j->last_executor, sizeof(w->moved_from));
    }
    j->reason[0] = '\0'; /* it waits no more */
    sh_strlcpy(j->executor, e->info.name, sizeof(j->executor));
    jobs__enter_exec(s, j);
    e->job = j->id;
    jobs__left_line(s, j);
    w->fence = sched_fence(s);
    w->job = j->id;
    w->attempt = j->attempt;
    sh_strlcpy(w->executor, e->info.name, sizeof(w->executor));
    if (sched_submit(s, &OP, w, &err)) {
        j->starting_write = false;
        job_adopt_state(j, JOB_QUEUED);
        jobs__leave(s, j);
        jobs__doubt(s, j);
    }
}

/* ------------------------------------------------------------------ writing */

/* The database had another state: the API changed the job while our change was on its way. */
static void on_conflict(struct sched *s, struct job *j, enum job_state actual)
{
    SH_INFO("job.conflict", "job=%" PRId64 " ours=%s database=%s", j->id, job_state_name(j->state),
            job_state_name(actual));
    if (job_state_is_final(actual)) {
        jobs__stop(s, j, MSG_JOB_HOW_CANCEL, "Cancelled");
        job_adopt_state(j, actual);
        jobs__leave(s, j);
        jobs__end(s, j);
        return;
    }
    jobs__follow(s, j, actual);
    jobs__doubt(s, j);
}

/* What the job gave is refused, and would be after every other attempt. */
static void on_refused(struct sched *s, struct job *j, const struct store_write *w, int rc,
                       const struct sh_err *err)
{
    static const char WHAT[] = "the result cannot be recorded: ";

    job_adopt_state(j, w->changes[0].from); /* as the database still has it */
    j->error_rc = rc;
    sh_strlcpy(j->error, WHAT, sizeof(j->error));
    sh_strlcpy(j->error + sizeof(WHAT) - 1, err->msg, sizeof(j->error) - sizeof(WHAT) + 1);
    jobs__change(s, j, JOB_FAILED, sh_rc_name(rc));
}

static void on_written(void *ctx, void *arg, int rc, const struct sh_err *err)
{
    struct sched *s = ctx;
    const struct store_write *w = arg;
    struct job *j = idmap_get(&s->jobs.by_id, (uint64_t)w->job); /* busy: nothing removes it */

    jobs__touch(s, j);
    j->writing = false;
    if (!sched_op_ok(s, "job.write", rc, err)) {
        if (rc == SH_E_INVALID && w->n_changes && j->state == JOB_SUCCEEDED)
            on_refused(s, j, w, rc, err);
        else if (s->epoch) /* else it is gone, like all others */
            jobs__doubt(s, j);
        return;
    }
    if (w->out->conflict) {
        on_conflict(s, j, w->out->state);
        return;
    }
    if (w->n_changes && j->state == JOB_QUEUED && w->out->state == JOB_SUSPENDED)
        job_adopt_state(j, JOB_SUSPENDED); /* as a client had wished */
    if (w->out->version_id) {
        SH_INFO("job.version", "job=%" PRId64 " model=%s version=%d", j->id, j->model,
                w->out->version);
        sched_poll(s);
    }
    if (j->array_max && !job_state_has_executor(j->state) && j->n_pending == 0)
        sched_wake_jobs(s); /* another one of its array may start */
    if (job_state_is_final(j->state) && j->n_pending == 0) {
        count_end(j);
        jobs__end(s, j);
        return;
    }
    jobs__flush(s, j);
}

static struct store_write *write_new(struct sched *s, const struct job *j)
{
    struct store_write *w = calloc(1, sizeof(*w));

    if (w)
        w->out = calloc(1, sizeof(*w->out));
    if (!w || !w->out) {
        store_write_free(w);
        return NULL;
    }
    w->fence = sched_fence(s);
    w->job = j->id;
    w->parent_version = j->version_id;
    w->attempt = j->attempt;
    sh_strlcpy(w->executor, j->executor[0] ? j->executor : j->last_executor, sizeof(w->executor));
    w->n_changes = j->n_pending;
    memcpy(w->changes, j->pending, j->n_pending * sizeof(w->changes[0]));
    w->progress = j->progress;
    w->saved = j->saved;
    w->backoff_ms = j->backoff_ns / SH_MS(1);
    w->handicap_us = jobs__handicap_us(s, j);
    w->error_rc = j->error_rc;
    sh_strlcpy(w->error, j->error, sizeof(w->error));
    sh_strlcpy(w->evaluation, j->evaluation, sizeof(w->evaluation));
    return w;
}

int64_t jobs__write_due_ns(const struct job *j)
{
    if (j->writing || j->starting_write)
        return INT64_MAX; /* the answer is looked at first */
    if (j->n_pending || j->n_checkpoints || j->saved.asked)
        return 0;
    return j->progress_dirty ? j->progress_at_ns + PROGRESS_NS : INT64_MAX;
}

void jobs__flush(struct sched *s, struct job *j)
{
    static const struct sched_op OP = {"job.write", store_job_write, on_written, store_write_free,
                                       DBOP_ANY_ORDER};
    int64_t now = sh_clock_ns();
    struct store_write *w;
    struct sh_err err = {0};

    if (now < jobs__write_due_ns(j))
        return;
    w = write_new(s, j);
    if (!w)
        return; /* jobs_tick tries again */
    if (j->state == JOB_SUCCEEDED && result_split(w, j->result, &err)) {
        sh_log_err(SH_LOG_ERROR, "job.result", &err);
        err = (struct sh_err){0};
    }
    jobs__touch(s, j);
    w->checkpoints = j->checkpoints;
    w->n_checkpoints = j->n_checkpoints;
    j->checkpoints = NULL;
    j->n_checkpoints = 0;
    j->n_pending = 0;
    j->saved.asked = 0;
    j->backoff_ns = 0;
    j->error_rc = 0;
    j->progress_dirty = false;
    j->progress_at_ns = now;
    j->writing = true;
    /* If the queue is full this is lost; the state then differs from the database's and the next
     * look at it sorts that out. */
    if (sched_submit(s, &OP, w, &err)) {
        j->writing = false;
        jobs__doubt(s, j);
    }
}

bool jobs_flush_all(struct sched *s)
{
    bool busy = false;

    for (size_t i = 0; i < s->jobs.n; i++) {
        struct job *j = s->jobs.items[i];

        jobs__flush(s, j);
        busy = busy || jobs__is_busy(j) || j->n_checkpoints > 0;
    }
    return busy;
}
