/* train_events.c - handles the messages of workers and of the scheduler about training. */
#include "common/clock.h"
#include "common/log.h"
#include "common/mem.h"
#include "common/metrics.h"
#include "common/trace.h"
#include "common/units.h"
#include "executor/training/train_int.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

#define TICK_NS SH_MS(100)
#define REPORT_NS SH_MS(250)

/* ------------------------------------------------------------------ ends */

void train__end_job(struct train *t, struct job *j, enum msg_job_phase phase)
{
    struct msg_job_state said;

    for (size_t i = 0; i < pool_size(t->env.pool); i++)
        worker_drop_job(pool_at(t->env.pool, i), j->id);
    sh_metric_drop(M_shunt_train_loss, SH_LABELS(j->tenant, j->model));
    sh_metric_drop(M_shunt_train_eval_loss, SH_LABELS(j->tenant, j->model));
    sh_metric_drop(M_shunt_train_loss_scale, SH_LABELS(j->tenant, j->model));
    sh_metric_drop(M_shunt_train_skipped_updates, SH_LABELS(j->tenant, j->model));
    sh_metric_drop(M_shunt_checkpoint_age_seconds, SH_LABELS(j->env->executor, "host"));
    sh_metric_drop(M_shunt_checkpoint_age_seconds, SH_LABELS(j->env->executor, "disk"));
    sh_metric_drop(M_shunt_checkpoint_interval_seconds, SH_LABELS(j->env->executor));
    job_count_usage(j); /* before anybody hears that it has ended */
    job_set_phase(j, phase);
    job_fill_state(j, &said);
    outcomes_keep(&t->env.report->outcomes, &said);
    job_log_end(j->log, &said);
    SH_INFO("job.end",
            "job=%" PRId64 " phase=%d step=%" PRId64 " steps=%" PRId64 " redone=%" PRId64
            " preemptions=%" PRId64 " code=%s",
            j->id, (int)phase, j->step, j->steps, j->redone, j->preemptions, sh_rc_name(j->why.rc));
}

void train__finished(struct job *j, const struct sh_err *why)
{
    struct train *t = j->train;

    if (j->end == END_CANCEL || job_has_ended(j))
        return; /* the turn ends it */
    if (why->rc)
        j->why = *why;
    train__end_job(t, j, why->rc ? MSG_JOB_FAILED : MSG_JOB_DONE);
}

void train__fail(struct job *j, const struct sh_err *why)
{
    /* Once it is being finished nothing but that decides: a worker may fail to compile it still. */
    if (j->end == END_CANCEL || j->end == END_FAIL || j->finish)
        return;
    j->end = END_FAIL;
    j->why = *why;
}

/* ------------------------------------------------------------------ what workers say */

static struct job *job_of_worker(struct train *t, struct worker *w, int64_t id, const char *what)
{
    if (t->job && t->job->id == id && t->job->w == w)
        return t->job;
    SH_DEBUG("train.stray", "worker=%u type=%s job=%" PRId64, w->index, what, id);
    return NULL;
}

void train_on_ready(struct train *t, struct worker *w, const struct msg_wk_train_ready *m, int *fds,
                    size_t n_fds)
{
    struct job *j = t->job;
    struct sh_err err = {0};
    int rc = SH_OK;

    if (!worker_end_job(w, m->rc == 0 ? m->job : 0, m->turn))
        return;
    if (!j || j->id != m->job || j->compiling != w || job_has_ended(j)) {
        if (j && j->compiling == w && j->id != m->job) /* it would never end to compile j */
            worker_kill(w, WORKER_KILL_PROTOCOL);
        worker_drop_job(w, m->job); /* of an earlier attempt; the present one may have its own */
        return;
    }
    j->compiling = NULL;
    if (m->rc) {
        rc = SH_FAIL(&err, (int)m->rc, "%s", m->msg);
        if (m->rc == SH_E_TOOBIG)
            j->need_bytes = m->state_bytes + m->ws_bytes;
    } else
        rc = j->build == JOB_BUILT ? job_agree(j, m, &err) : job_take_built(j, m, fds, n_fds, &err);
    if (rc)
        train__fail(j, &err);
}

static void count_stop(struct job *j)
{
    const struct worker_ctl *c = worker_page(j->w);
    const char *way = stop_way_name(j->yield);
    double s = (double)(atomic_load(&c->stop_drained_ns) - j->stop_ns) / 1e9;

    j->preemptions++;
    SH_TRACE(.name = "drain", .track = "training", .begin_ns = j->stop_ns,
             .end_ns = SH_MAX(atomic_load(&c->stop_drained_ns), j->stop_ns), .job = j->id,
             .what = way);
    SH_DEBUG("train.drained", "job=%" PRId64 " way=%s ns=%" PRId64, j->id, way,
             atomic_load(&c->stop_drained_ns));
    sh_metric_add(M_shunt_preemptions_total, SH_LABELS(j->env->executor, way), 1);
    if (s < 0)
        return; /* it had stopped by itself before it was asked */
    sh_metric_observe(M_shunt_stop_to_drained_seconds, SH_LABELS(j->env->executor, way), s);
    sh_metric_observe(M_shunt_switch_duration_seconds, SH_LABELS(j->env->executor, "drain"), s);
}

static void note_job_scaler(struct job *j)
{
    const uint64_t bits = atomic_load(&worker_page(j->w)->scale_bits);
    double scale;

    memcpy(&scale, &bits, sizeof(scale));
    if (!(scale > 0))
        return;
    j->loss_scale = scale;
    j->skipped = atomic_load(&worker_page(j->w)->skipped);
    sh_metric_set(M_shunt_train_loss_scale, SH_LABELS(j->tenant, j->model), scale);
    sh_metric_set(M_shunt_train_skipped_updates, SH_LABELS(j->tenant, j->model),
                  (double)j->skipped);
}

void train_on_stopped(struct train *t, struct worker *w, const struct msg_wk_train_stopped *m)
{
    struct job *j = job_of_worker(t, w, m->job, "WK_TRAIN_STOPPED");
    struct sh_err err = {0};

    if (!j || !job_runs(j) || m->turn != w->work_turn || m->rc == SH_E_DEVLOST)
        return; /* said twice; or a lost device ends the process: its death is handled */
    job_count_busy(j);
    /* Only then: it also stops for its worker to compile another model, and for its own end. */
    if (j->stand == JOB_YIELDING) {
        count_stop(j);
        job_set_phase(j, MSG_JOB_PREEMPTED);
    }
    job_go(j, JOB_PAUSED);
    j->ckpt_asked = false;
    j->at = (enum msg_train_at)m->at;
    j->op = m->op;
    j->step = m->step;
    job_note_steps(j, m->step);
    note_job_scaler(j);
    pool_set_state(w, WORKER_PARKED);
    if (m->rc) {
        SH_FAIL(&err, (int)m->rc, "%s", m->msg);
        train__fail(j, &err);
    } else {
        train__end_if_done(j);
    }
}

/* Its worker has stopped, or will say so next: train_turn() looks at it then. */
void train_on_eval(struct train *t, struct worker *w, const struct msg_wk_train_eval *m)
{
    struct job *j = job_of_worker(t, w, m->job, "WK_TRAIN_EVAL");

    if (!j || !job_runs(j) || !j->evaluates || m->step != j->step)
        return;
    j->trial = (struct train_scores){.loss = m->loss,
                                     .accuracy = m->accuracy,
                                     .perplexity = m->perplexity,
                                     .top5 = m->top5,
                                     .f1 = m->f1,
                                     .n_samples = m->n_samples};
    j->trial_step = m->step;
}

void train_on_losses(struct train *t, struct worker *w, const struct msg_wk_train_losses *m)
{
    struct job *j = job_of_worker(t, w, m->job, "WK_TRAIN_LOSSES");

    if (j)
        job_note_losses(j, m);
}

/* A ticket is for one copy: raised for want of another, it would let the next update begin while
 * the first is under way. Or it was raised for a job that is not this one, and the worker is on. */
static bool is_ticket_new(const struct worker *w, const struct msg_wk_train_ckpt *m)
{
    return m->ticket_slot == TX_SLOT_WORKER + w->index &&
           (int32_t)(m->ticket_value - w->ckpt_value) > 0;
}

void train_on_ckpt(struct train *t, struct worker *w, const struct msg_wk_train_ckpt *m)
{
    struct job *j = job_of_worker(t, w, m->job, "WK_TRAIN_CKPT");
    struct sh_err err = {0};

    if (j)
        j->ckpt_asked = false;
    if (!is_ticket_new(w, m))
        return;
    worker_note_ticket(w, m->ticket_value);
    if (j && slots_copy_out(j, m->step, m->ticket_slot, m->ticket_value, &err) == SH_OK)
        return;
    if (j)
        sh_log_err(SH_LOG_WARN, "job.checkpoint", &err);
    dev_ticket_force(t->env.mem, m->ticket_slot,
                     m->ticket_value); /* it must not wait for nothing */
}

static void lose_worker(struct job *j, struct worker *w)
{
    bool is_torn = job_runs(j) || j->at == MSG_TRAIN_AT_UPDATE;

    if (job_runs(j)) {
        job_count_busy(j);
        j->step = SH_MAX(j->step, (int64_t)atomic_load(&worker_page(w)->step));
        job_note_steps(j, j->step);
    }
    j->w = NULL;
    j->ckpt_asked = false;
    if (is_torn) {
        j->measured.n_failures++;
        train__count_redone(j, 1);
        job_go(j, JOB_LOST);
    } else if (job_has_ws(j)) {
        train__drop_workspace(j, WORKER_STANDBY);
    }
    j->at = MSG_TRAIN_AT_BOUNDARY;
}

void train_on_worker_dead(struct train *t, struct worker *w)
{
    struct job *j = t->job;
    const struct slot *s;
    struct sh_err err = {0};
    uint32_t n;
    bool had_it; /* at work on it, or paused in it: only then the job may be the reason */

    if (!j || (j->w != w && j->compiling != w))
        return;
    had_it = j->compiling == w || job_has_ws(j);
    if (j->compiling == w)
        j->compiling = NULL;
    if (j->w == w)
        lose_worker(j, w);
    if (!had_it)
        return;
    job_log_say(j->log, "worker %u died (cause: %s) after step %" PRId64, w->index, w->exit_cause,
                j->step);
    s = slots_newest(j);
    n = crashes_note(&j->crashes, j->step, j->max_step, s ? s->step : 0);
    if (n <= JOB_MAX_DEATHS)
        return;
    SH_FAIL(&err, SH_E_UNAVAILABLE,
            "%u worker processes died in a row, and the job got no further between them: the last "
            "one after step %" PRId64 " of the %" PRId64 " that were done before",
            n, j->step, j->max_step);
    train__fail(j, &err);
}

/* ------------------------------------------------------------------ the scheduler's messages */

static void refuse_start(struct train *t, const struct msg_job_start *start,
                         const struct sh_err *why)
{
    struct sh_msg m = {.type = MSG_JOB_STATE};

    m.u.job_state = (struct msg_job_state){.job = start->job,
                                           .attempt = start->attempt,
                                           .state = MSG_JOB_FAILED,
                                           .step = start->resume_step,
                                           .rc = why->rc,
                                           .msg = why->msg};
    uplink_send(&t->env.report->uplink, &m);
}

void train_on_start(struct train *t, const struct msg_job_start *m, const struct sh_err *why_not)
{
    struct job *j = t->job;
    struct sh_err err = {0};

    if (j && j->id == m->job && !job_has_ended(j)) { /* said again: the scheduler did not know */
        j->attempt = m->attempt;
        job_log_attempt(j->log, m->attempt);
        job_report(j);
        return;
    }
    outcomes_forget(&t->env.report->outcomes, m->job);
    if (j)
        SH_FAIL(&err, SH_E_CONFLICT, "this executor still trains job %" PRId64, j->id);
    else if (why_not)
        err = *why_not;
    else
        job_new(t, m, &t->job, &err);
    if (err.rc) {
        sh_log_err(SH_LOG_WARN, "job.refused", &err);
        refuse_start(t, m, &err);
        return;
    }
    SH_INFO("job.start", "job=%" PRId64 " attempt=%u model=%s resume_step=%" PRId64, m->job,
            m->attempt, m->model, m->resume_step);
    job_set_phase(t->job, MSG_JOB_STARTING);
}

/* A checkpoint that could not be written is tried once more: the disk may have room now. */
static void suspend(struct job *j)
{
    j->end = END_SUSPEND;
    j->disk_failed_step = -1;
}

void train_on_stop(struct train *t, const struct msg_job_stop *m)
{
    struct job *j = t->job;
    enum job_end was;

    /* No answer if it is not here: the scheduler was told of its end before, over this connection
     * or in its greeting. Another one that comes late would end the next start of the job, which
     * has the same attempt (tests/protocols/job.pml). */
    if (!train_has(t, m->job))
        return;
    was = j->end;
    if (m->how == MSG_JOB_HOW_CANCEL)
        j->end = END_CANCEL;
    else if (j->end == END_NONE)
        suspend(j);
    if (j->end != was)
        job_log_say(j->log, "is stopped by the scheduler: %s", m->why);
}

bool train_has(const struct train *t, int64_t job)
{
    return t->job && t->job->id == job && !job_has_ended(t->job);
}

/* No answer if it is not here or about to leave: it is asked again where it goes on. */
void train_on_save(struct train *t, const struct msg_job_save *m)
{
    struct job *j = t->job;

    if (!j || j->id != m->job || j->attempt != m->attempt || job_has_ended(j) || j->end != END_NONE)
        return;
    j->save_asked = m->asked;
    j->save_step = -1;
    train__ask_checkpoint(j);
}

void train_suspend(struct train *t)
{
    struct job *j = t->job;

    if (!j || job_has_ended(j) || (j->end != END_NONE && j->end != END_DONE))
        return;
    /* A job that was finishing goes on from its last step. */
    finish_free(j->finish);
    suspend(j);
    job_log_say(j->log, "is stopped by its executor: ExecutorStopping");
}

bool train_is_quiet(const struct train *t)
{
    return !t->job;
}

struct worker *train_worker(const struct train *t)
{
    const struct job *j = t->job;

    return !j ? NULL : j->w ? j->w : j->compiling;
}

struct worker *train_active(const struct train *t)
{
    return t->job && job_runs(t->job) ? t->job->w : NULL;
}

struct switch_wish train_wants(const struct train *t)
{
    const struct job *j = t->job;

    if (!j || job_has_ended(j) || j->build != JOB_BUILT || j->end != END_NONE ||
        j->has_compile_pause)
        return (struct switch_wish){.job = 0};
    return (struct switch_wish){
        .job = j->id,
        .state_bytes = j->state_bytes,
        .ws_bytes = j->ws_bytes,
        .step_ns = j->busy_ns / SH_MAX(j->busy_steps, (int64_t)1), /* none yet: it takes longer */
    };
}

void train_report_all(struct train *t)
{
    if (t->job && !job_has_ended(t->job)) {
        job_report(t->job);
        job_report_checkpoint(t->job);
        job_report_trials(t->job);
    }
}

/* ------------------------------------------------------------------ time */

/* What would be lost if the device, or the host, died now. */
static void show_ages(struct job *j, int64_t now)
{
    const int64_t at =
        job_runs(j) ? SH_MAX(j->step, (int64_t)atomic_load(&worker_page(j->w)->step)) : j->step;
    const struct slot *s = slots_newest(j);
    const int64_t host = s && s->step == at ? 0 : now - j->taken_ns;
    const int64_t disk = SH_MAX(j->disk_step, (int64_t)0) == at ? 0 : now - j->disk_taken_ns;

    sh_metric_set(M_shunt_checkpoint_age_seconds, SH_LABELS(j->env->executor, "host"),
                  (double)host / 1e9);
    sh_metric_set(M_shunt_checkpoint_age_seconds, SH_LABELS(j->env->executor, "disk"),
                  (double)disk / 1e9);
    sh_metric_set(M_shunt_checkpoint_interval_seconds, SH_LABELS(j->env->executor),
                  (double)slots_interval_ns(j) / 1e9);
}

static void on_tick(struct sh_loop *l, void *arg)
{
    struct train *t = arg;
    struct job *j = t->job;
    int64_t now = sh_clock_ns();

    (void)l;
    if (j)
        slots_ask_marks(j);
    if (!j || job_has_ended(j))
        return;
    job_log_tick(j->log);
    if (job_runs(j)) {
        uint64_t bits = atomic_load(&worker_page(j->w)->loss_bits);

        job_note_steps(j, atomic_load(&worker_page(j->w)->step));
        note_job_scaler(j);
        memcpy(&j->last_loss, &bits, sizeof(bits));
        if (isfinite(j->last_loss))
            sh_metric_set(M_shunt_train_loss, SH_LABELS(j->tenant, j->model), j->last_loss);
    }
    show_ages(j, now);
    job_count_usage(j);
    train__ask_checkpoint(j);
    slots_write_due(j); /* a state that came between two, and is the newest since */
    job_say_progress(j, false);
    if (now - j->reported_ns >= REPORT_NS &&
        (j->phase != j->reported_phase || j->is_held != j->reported_held ||
         j->max_step != j->reported_step))
        job_report(j);
}

int train_new(const struct train_env *env, struct train **out, struct sh_err *err)
{
    struct train *t = calloc(1, sizeof(*t));
    int rc;

    *out = NULL;
    if (!t)
        return SH_FAIL(err, SH_E_NOMEM, "could not allocate the trainer");
    t->env = *env;
    sh_metric_add(M_shunt_training_holds_total, SH_LABELS(env->executor), 0); /* it is there */
    rc = sh_timer_add(env->loop, TICK_NS, TICK_NS, on_tick, t, &t->tick, err);
    if (rc) {
        free(t);
        return rc;
    }
    *out = t;
    return SH_OK;
}

void train_free(struct train *t)
{
    if (!t)
        return;
    job_free(t->job);
    sh_timer_del(t->tick);
    free(t);
}
