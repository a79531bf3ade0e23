/* jobs.c - see jobs.h: starts, reports, deadlines, clients' wishes. */
#include "scheduler/jobs/jobs.h"

#include "common/clock.h"
#include "common/json.h"
#include "common/log.h"
#include "common/mem.h"
#include "common/metrics.h"
#include "common/units.h"
#include "scheduler/jobs/result.h"
#include "scheduler/sched.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_BACKOFF_S 60
#define MEMORY_BACKOFF_NS SH_S(1) /* for an executor that has not yet heard of a larger quota */

void jobs_init(struct sched *s)
{
    s->jobs.pool_from_ns = sh_clock_ns();
    s->jobs.lines.most = (size_t)s->conf->max_lines;
    s->tenants.pool = &s->jobs.pool;
    s->jobs.pool.fits = jobs__fits;
    s->jobs.pool.fits_arg = s;
    s->jobs.pool.min_run_ns = SH_MS(s->conf->min_run_ms);
}

void jobs_fini(struct sched *s)
{
    struct jobs *js = &s->jobs;

    jobs__pool_fini(s);

    for (size_t i = 0; i < js->n; i++)
        job_free(js->items[i]);
    free(js->items);
    lines_fini(&js->lines);
    store_seen_free(&js->seen);
    idmap_fini(&js->by_id);
    *js = (struct jobs){0};
}

struct exec *jobs__exec(const struct sched *s, const struct job *j)
{
    struct exec *e = j->executor[0] ? execs_find(&s->execs, j->executor) : NULL;

    return e && e->session ? e : NULL;
}

/* A leader may find two on one executor: the end of the first was heard and not recorded when the
 * one before it went. */
static void free_exec(struct sched *s, struct exec *e, const struct job *left)
{
    if (e->job == left->id) {
        const struct job *other = jobs__first_on(s, e->info.name);

        e->job = other ? other->id : 0;
    }
    exec_changed(&s->execs, e);
}

void jobs__leave(struct sched *s, struct job *j)
{
    struct exec *e = j->executor[0] ? execs_find(&s->execs, j->executor) : NULL;

    if (!j->executor[0])
        return;
    jobs__touch(s, j);
    jobs__leave_exec(s, j);
    if (e)
        free_exec(s, e, j);
    memcpy(j->last_executor, j->executor, sizeof(j->last_executor));
    j->executor[0] = '\0';
    j->sent = j->stopping = false;
    j->wish = JOB_WISH_NONE; /* the write that takes it from its executor does what was wished */
    j->save_sent = 0;
}

void jobs__remove(struct sched *s, struct job *j)
{
    struct jobs *js = &s->jobs;

    jobs__untouch(j);
    jobs__leave_exec(s, j);
    jobs__never_due(s, j);
    jobpool_del_job(&js->pool, &j->pooled);
    idmap_del(&js->by_id, (uint64_t)j->id);
    js->items[j->at] = js->items[--js->n];
    js->items[j->at]->at = j->at;
    job_free(j);
}

void jobs__end(struct sched *s, struct job *j)
{
    const char *name = j->executor[0] ? j->executor : j->last_executor;
    struct exec *e = name[0] ? execs_find(&s->execs, name) : NULL;

    if (e && e->session)
        session_send(e->session,
                     &(struct sh_msg){.type = MSG_JOB_ENDED, .u.job_ended = {.job = j->id}});
    jobs__remove(s, j);
}

void jobs__change(struct sched *s, struct job *j, enum job_state to, const char *reason)
{
    struct sh_err err = {0};
    enum job_state from = j->state;

    if (job_set_state(j, to, reason, &err)) {
        sh_log_err(SH_LOG_ERROR, "job.state", &err);
        return;
    }
    SH_INFO("job.state", "job=%" PRId64 " tenant=%s from=%s to=%s reason=%s step=%" PRId64, j->id,
            j->tenant, job_state_name(from), job_state_name(to), reason, j->progress.step);
    jobs__touch(s, j);
    if (!job_state_has_executor(to))
        jobs__leave(s, j);
    if (to == JOB_EXPIRED)
        sched_count("expire", reason);
    if (to == JOB_PREEMPTED)
        sched_count("preempt", reason);
    if (to == JOB_QUEUED) {
        sched_count("requeue", reason);
        sh_strlcpy(j->reason, reason, sizeof(j->reason));
        sh_strlcpy(j->reason_written, reason, sizeof(j->reason_written));
        jobs__judge(j);
        j->place.line_us = j->queued_us + jobs__handicap_us(s, j);
    }
    jobs__flush(s, j);
    sched_wake_jobs(s);
}

static void send_stop(struct sched *s, struct exec *e, const struct msg_job_stop *m)
{
    struct sh_msg stop = {.type = MSG_JOB_STOP, .u.job_stop = *m};

    stop.u.job_stop.epoch = s->epoch;
    session_send(e->session, &stop);
    if (m->how != MSG_JOB_HOW_CANCEL)
        return;
    e->leaving = m->job; /* its slot is not free before it says that it has ended */
    exec_changed(&s->execs, e);
}

void jobs__stop(struct sched *s, struct job *j, uint32_t how, const char *why)
{
    struct exec *e = jobs__exec(s, j);

    if (e)
        send_stop(
            s, e,
            &(struct msg_job_stop){.job = j->id, .attempt = j->attempt, .how = how, .why = why});
}

void jobs__requeue(struct sched *s, struct job *j, const char *reason)
{
    if (j->state == JOB_CANCELLING)
        jobs__change(s, j, JOB_CANCELLED, "Cancelled");
    else
        jobs__change(s, j, JOB_QUEUED, reason);
}

void jobs_suspend(struct sched *s, struct job *j, enum decide_reason why)
{
    const double loss_s = (double)j->loss.all_ns / 1e9;
    char text[120];

    jobs__touch(s, j);
    if (!jobs__exec(s, j))
        return;
    SH_INFO("job.suspend", "job=%" PRId64 " tenant=%s why=%s loss_s=%.1f", j->id, j->tenant,
            decide_reason_name(why), loss_s);
    j->stopping = true;
    sh_strlcpy(j->reason, decide_reason_name(why), sizeof(j->reason));
    sched_count("preempt", j->reason);
    snprintf(text, sizeof(text), "%s, which loses about %.1f s of GPU time", j->reason, loss_s);
    jobs__stop(s, j, MSG_JOB_HOW_SUSPEND, loss_s > 0 ? text : j->reason);
}

static bool runs(const struct job *j)
{
    return j->state == JOB_RUNNING || j->state == JOB_PREEMPTED;
}

/* The rule behind what a client wished, as store_job.c records it. */
static const char *wish_rule(const struct job *j)
{
    return j->wish == JOB_WISH_SUSPEND ? "Suspended" : "Requeued";
}

/* The rule by which it has left its executor. */
static const char *leave_rule(const struct job *j, uint32_t phase)
{
    if (j->wish != JOB_WISH_NONE)
        return wish_rule(j);
    if (j->reason[0])
        return j->reason;
    return phase == MSG_JOB_SUSPENDED ? "ExecutorStopping" : "Lost";
}

static bool has_stop_wish(const struct job *j)
{
    return j->wish != JOB_WISH_NONE && !j->stopping;
}

static bool has_save_wish(const struct job *j)
{
    return runs(j) && j->save_asked > j->save_sent;
}

/* Can its executor be told what a client wants of it? */
static bool has_wish(const struct sched *s, const struct job *j)
{
    return j->sent && (runs(j) || j->state == JOB_STARTING) &&
           (has_stop_wish(j) || has_save_wish(j)) && jobs__exec(s, j);
}

void jobs__follow_wishes(struct sched *s, struct job *j)
{
    struct exec *e = has_wish(s, j) ? jobs__exec(s, j) : NULL;

    if (!e)
        return;
    if (has_stop_wish(j)) {
        SH_INFO("job.suspend", "job=%" PRId64 " tenant=%s why=client", j->id, j->tenant);
        j->stopping = true;
        jobs__touch(s, j);
        sh_strlcpy(j->reason, decide_reason_name(DECIDE_NONE), sizeof(j->reason));
        sched_count("preempt", wish_rule(j));
        jobs__stop(s, j, MSG_JOB_HOW_SUSPEND, wish_rule(j));
    }
    if (has_save_wish(j)) {
        j->save_sent = j->save_asked;
        session_send(e->session, &(struct sh_msg){.type = MSG_JOB_SAVE,
                                                  .u.job_save = {.epoch = s->epoch,
                                                                 .job = j->id,
                                                                 .attempt = j->attempt,
                                                                 .asked = j->save_asked}});
    }
}

void jobs_set_reason(struct job *j, enum decide_reason why)
{
    if (why != DECIDE_NONE && strcmp(j->reason, decide_reason_name(why)) != 0)
        sched_count("wait", decide_reason_name(why));
    sh_strlcpy(j->reason, decide_reason_name(why), sizeof(j->reason));
}

bool jobs_train_on(const struct sched *s, const struct exec *e)
{
    const struct job *j = e->job ? idmap_get(&s->jobs.by_id, (uint64_t)e->job) : NULL;

    return j && (j->state == JOB_RUNNING || j->state == JOB_STARTING || j->state == JOB_COMPLETING);
}

/* ------------------------------------------------------------------ executors come and go */

void jobs_on_exec_hello(struct sched *s, struct exec *e)
{
    for (struct job *j = jobs__first_on(s, e->info.name); j; j = jobs__next_on(j)) {
        e->job = j->id;
        jobs__touch(s, j);
    }
}

void jobs_on_exec_synced(struct sched *s, struct exec *e)
{
    struct job *next;

    for (struct job *j = jobs__first_on(s, e->info.name); j; j = next) {
        next = jobs__next_on(j);
        if (!j->starting_write && j->seen_session != e->serial)
            jobs__requeue(s, j, "ExecutorRestarted");
    }
}

void jobs_on_exec_lost(struct sched *s, struct exec *e)
{
    for (struct job *j = jobs__first_on(s, e->info.name); j; j = jobs__next_on(j)) {
        j->lost_ns = sh_clock_ns();
        jobs__touch(s, j);
        j->stopping = false;
        j->save_sent = 0;
    }
}

void jobs_on_exec_stopping(struct sched *s, struct exec *e)
{
    for (struct job *j = jobs__first_on(s, e->info.name); j; j = jobs__next_on(j))
        jobs__touch(s, j);
}

void jobs_on_model(struct sched *s, int64_t version_id, bool ready)
{
    for (size_t i = 0; i < s->jobs.n; i++) {
        struct job *j = s->jobs.items[i];

        if (j->version_id != version_id)
            continue;
        j->model_ready = ready;
        j->model_gone = !ready;
        jobs__touch(s, j);
    }
}

/* ------------------------------------------------------------------ what an executor says */

static void take_progress(struct sched *s, struct exec *e, struct job *j,
                          const struct msg_job_state *m)
{
    struct job_progress *p = &j->progress;
    int64_t busy_ns = j->base.busy_ns + SH_MAX(m->busy_ns, 0);
    int64_t delta = SH_MAX(busy_ns - p->busy_ns, 0);
    struct tenant *t = tenants_by_id(&s->tenants, j->tenant_id);
    const int64_t had_ns = p->busy_ns, level_ns = SH_MS(s->conf->level_ms);

    p->step = m->step;
    if (m->steps > 0)
        p->steps = m->steps;
    if (isfinite(m->loss) && m->step > 0)
        p->loss = m->loss;
    if (isfinite(m->samples_per_s) && m->samples_per_s > 0)
        p->samples_per_s = m->samples_per_s;
    p->redone = j->base.redone + SH_MAX(m->redone, 0);
    p->preemptions = j->base.preemptions + SH_MAX(m->preemptions, 0);
    j->progress_dirty = true;
    if (delta == 0)
        return;
    p->busy_ns += delta;
    if (lines_level(p->busy_ns, level_ns) != lines_level(had_ns, level_ns)) {
        jobs__judge(j);
        sched_wake_jobs(s); /* others may go before it now */
    }
    if (t)
        tenants_charge(&s->tenants, t, delta, sh_clock_ns());
    e->busy_ns[1] += delta;
}

/* Does any executor that we know of have so much? One that is away may come back. */
static bool any_device_has(const struct sched *s, uint64_t bytes)
{
    for (size_t i = 0; i < s->execs.n; i++)
        if (s->execs.items[i]->info.pool_bytes >= bytes)
            return true;
    return false;
}

/* It did not fit where it was. A larger device may be free, and a quota may be raised: it waits for
 * that, without using up an attempt, in no line (not_before), so that it hides no job behind it. */
static void wait_for_memory(struct sched *s, struct job *j, int rc, const char *msg)
{
    SH_WARN("job.memory", "job=%" PRId64 " tenant=%s need_bytes=%" PRIu64 " code=%s msg=\"%s\"",
            j->id, j->tenant, j->need_bytes, sh_rc_name(rc), msg);
    j->error_rc = rc;
    sh_strlcpy(j->error, msg, sizeof(j->error));
    j->backoff_ns = MEMORY_BACKOFF_NS;
    j->not_before_ns = sh_clock_ns() + j->backoff_ns;
    jobs__change(s, j, JOB_QUEUED, decide_reason_name(DECIDE_GPU_MEMORY));
}

static void fail_job(struct sched *s, struct job *j, int rc, const char *msg)
{
    const struct exec *e = jobs__exec(s, j);
    bool again = sh_rc_retry(rc) && j->attempt < j->max_attempts;
    char why[301]; /* so that what follows it has room */

    if (j->state == JOB_CANCELLING) {
        jobs__change(s, j, JOB_CANCELLED, "Cancelled");
        return;
    }
    /* Nobody else was up when it was given to an executor that refuses it; others are now. */
    if (j->state == JOB_STARTING && e && jobs__can_elsewhere(s, j, e)) {
        jobs__change(s, j, JOB_QUEUED, decide_reason_name(DECIDE_RESOURCES));
        return;
    }
    if (j->state == JOB_STARTING && rc == SH_E_CONFLICT) { /* the slot was not free yet */
        j->not_before_ns = sh_clock_ns() + SH_S(1);
        jobs__change(s, j, JOB_QUEUED, decide_reason_name(DECIDE_RESOURCES));
        return;
    }
    j->error_rc = rc;
    sh_strlcpy(why, msg, sizeof(why));
    if (rc == SH_E_NAN && j->checkpoint_step >= 0)
        snprintf(j->error, sizeof(j->error),
                 "%s (after step %" PRId64 "; the checkpoint of step %" PRId64 " is kept)", why,
                 j->progress.step, j->checkpoint_step);
    else if (rc == SH_E_NAN)
        snprintf(j->error, sizeof(j->error), "%s (after step %" PRId64 ")", why, j->progress.step);
    else
        sh_strlcpy(j->error, msg, sizeof(j->error));
    SH_WARN("job.failed", "job=%" PRId64 " tenant=%s attempt=%u of=%u code=%s again=%d msg=\"%s\"",
            j->id, j->tenant, j->attempt, j->max_attempts, sh_rc_name(rc), again, j->error);
    if (!again) {
        jobs__change(s, j, JOB_FAILED, sh_rc_name(rc));
        return;
    }
    j->backoff_ns = SH_S(SH_MIN(INT64_C(1) << SH_MIN(j->attempt - 1, 10u), MAX_BACKOFF_S));
    j->not_before_ns = sh_clock_ns() + j->backoff_ns;
    j->attempt++;
    jobs__change(s, j, JOB_QUEUED, decide_reason_name(DECIDE_BACKOFF));
}

/* For the estimates of jobs that are like it. One that had more than one start was away between. */
static void note_past(struct sched *s, const struct job *j)
{
    const struct job_progress *p = &j->progress;
    int64_t done = p->step + p->redone;
    const struct past_like like = job_like(j);

    past_add(&s->past, &like, p->step,
             done > 0 ? (int64_t)((double)p->busy_ns / (double)done * (double)p->step) : 0,
             j->placed_ns && j->base.busy_ns == 0 ? sh_clock_ns() - j->placed_ns : 0);
}

static void done(struct sched *s, struct job *j, const struct msg_job_state *m)
{
    struct sh_err err = {0};
    int rc;

    if (j->state == JOB_CANCELLING) {
        jobs__change(s, j, JOB_CANCELLED, "Cancelled");
        return;
    }
    free(j->result);
    j->result = NULL;
    rc = result_check(m->result, j->publishes, &err);
    if (!rc)
        rc = sh_strdup(m->result, &j->result, &err);
    if (rc) {
        fail_job(s, j, rc, err.msg);
        return;
    }
    if (j->state != JOB_COMPLETING)
        jobs__change(s, j, JOB_COMPLETING, "");
    jobs__change(s, j, JOB_SUCCEEDED, "");
    note_past(s, j);
}

static void follow_report(struct sched *s, struct job *j, enum job_state to)
{
    if (j->state == JOB_CANCELLING) {
        jobs__stop(s, j, MSG_JOB_HOW_CANCEL, "Cancelled"); /* it may not have heard */
        return;
    }
    if (j->state == to)
        return;
    if (to == JOB_RUNNING && j->state == JOB_STARTING) {
        j->since_ns = sh_clock_ns();
        j->start_ns = j->placed_ns ? j->since_ns - j->placed_ns : 0;
        j->since_step = j->progress.step;
    }
    jobs__change(s, j, to, to != JOB_PREEMPTED ? "" : j->is_held ? "ImagesFirst" : "Inference");
}

/* NULL: it is not, or not this start of it, with the executor that speaks of it. */
static struct job *job_on(const struct sched *s, const struct exec *e, int64_t id, uint32_t attempt)
{
    struct job *j = idmap_get(&s->jobs.by_id, (uint64_t)id);

    return j && strcmp(j->executor, e->info.name) == 0 && j->attempt == attempt ? j : NULL;
}

/* The executor has the job as we think it does? If not, it must not go on with it. */
static bool is_its_job(struct sched *s, const struct job *j, struct exec *e,
                       const struct msg_job_state *m)
{
    bool lives = m->state == MSG_JOB_STARTING || m->state == MSG_JOB_RUNNING ||
                 m->state == MSG_JOB_PREEMPTED || m->state == MSG_JOB_COMPLETING;
    const struct msg_job_stop stray = {
        .job = m->job, .attempt = m->attempt, .how = MSG_JOB_HOW_CANCEL, .why = "NotItsJob"};

    if (!lives && e->leaving == m->job) {
        e->leaving = 0;
        exec_changed(&s->execs, e);
        sched_wake_jobs(s);
    }
    if (j && !j->starting_write)
        return true;
    if (lives) {
        SH_WARN("job.stray", "job=%" PRId64 " executor=%s attempt=%u msg=\"not its job: stopped\"",
                m->job, e->info.name, m->attempt);
        send_stop(s, e, &stray);
    }
    return false;
}

void jobs_on_state(struct sched *s, struct exec *e, const struct msg_job_state *m)
{
    struct job *j = job_on(s, e, m->job, m->attempt);

    if (!is_its_job(s, j, e, m))
        return;
    jobs__touch(s, j);
    j->seen_session = e->serial;
    j->sent = true;
    take_progress(s, e, j, m);
    switch ((enum msg_job_phase)m->state) {
    case MSG_JOB_STARTING:
        break;
    case MSG_JOB_RUNNING:
        follow_report(s, j, JOB_RUNNING);
        if (!j->loss.all_ns)
            jobs__judge_loss(s, j);
        break;
    case MSG_JOB_PREEMPTED:
        j->is_held = strcmp(m->msg, "ImagesFirst") == 0;
        follow_report(s, j, JOB_PREEMPTED);
        break;
    case MSG_JOB_COMPLETING:
        follow_report(s, j, JOB_COMPLETING);
        break;
    case MSG_JOB_DONE:
        done(s, j, m);
        break;
    case MSG_JOB_FAILED:
        j->need_bytes = m->need_bytes;
        if (m->need_bytes && j->state != JOB_CANCELLING && any_device_has(s, m->need_bytes))
            wait_for_memory(s, j, (int)m->rc, m->msg);
        else
            fail_job(s, j, m->rc ? (int)m->rc : SH_E_BUG, m->msg);
        break;
    case MSG_JOB_CANCELLED:
    case MSG_JOB_SUSPENDED:
        jobs__requeue(s, j, leave_rule(j, m->state));
        break;
    default:
        SH_ERROR("job.message", "job=%" PRId64 " executor=%s msg=\"unknown phase %u of a job\"",
                 m->job, e->info.name, m->state);
    }
    jobs__flush(s, j);
}

void jobs_on_evaluated(struct sched *s, struct exec *e, const struct msg_job_evaluated *m)
{
    struct job *j = job_on(s, e, m->job, m->attempt);
    struct sh_err err = {0};
    json_t *checked = NULL;

    if (!j)
        return;
    j->evaluation[0] = '\0';
    if (sh_json_parse(m->text, strlen(m->text), sizeof(j->evaluation) - 1, &checked, &err))
        sh_log_err(SH_LOG_ERROR, "job.evaluation", &err);
    else
        sh_strlcpy(j->evaluation, m->text, sizeof(j->evaluation));
    json_decref(checked);
    j->progress_dirty = true;
    jobs__touch(s, j);
    jobs__flush(s, j);
}

/* Paths are stored relative to the job root: a file in the job's folder, none that is hidden. */
static bool relative_path(int64_t job, const char *path, char *out, size_t size)
{
    char own[32];
    size_t n = (size_t)snprintf(own, sizeof(own), "%" PRId64 "/", job);

    return strncmp(path, own, n) == 0 && path[n] && path[n] != '.' && !strchr(path + n, '/') &&
           sh_strlcpy(out, path, size);
}

void jobs_on_checkpoint(struct sched *s, struct exec *e, const struct msg_job_checkpoint *m)
{
    struct job *j = job_on(s, e, m->job, m->attempt);
    struct job_checkpoint c = {.step = m->step, .attempt = m->attempt, .bytes = m->bytes};
    struct sh_err err = {0};

    if (!j)
        return;
    if (!relative_path(m->job, m->path, c.path, sizeof(c.path)) ||
        !sh_strlcpy(c.digest, m->digest, sizeof(c.digest))) {
        SH_ERROR("job.checkpoint",
                 "job=%" PRId64 " executor=%s msg=\"its path is not in the job's folder\"", m->job,
                 e->info.name);
        return;
    }
    if (job_add_checkpoint(j, &c, &err)) {
        sh_log_err(SH_LOG_ERROR, "job.checkpoint", &err);
        return;
    }
    j->checkpoint_step = SH_MAX(j->checkpoint_step, m->step);
    j->state_bytes = m->bytes;
    jobs__judge_loss(s, j);
    jobs__touch(s, j);
    jobs__flush(s, j);
}

void jobs_on_saved(struct sched *s, struct exec *e, const struct msg_job_saved *m)
{
    struct job *j = job_on(s, e, m->job, m->attempt);

    if (!j)
        return; /* of an earlier start: the present one is asked again */
    j->saved = (struct job_saved){.asked = m->asked, .step = m->step, .rc = (int)m->rc};
    sh_strlcpy(j->saved.msg, m->msg, sizeof(j->saved.msg));
    jobs__touch(s, j);
    jobs__flush(s, j);
}

/* ------------------------------------------------------------------ time */

static bool may_expire(const struct job *j)
{
    const bool waits = j->state == JOB_QUEUED || j->state == JOB_HELD || j->state == JOB_SUSPENDED;

    return waits && j->deadline_ns && !jobs__is_busy(j);
}

void jobs__expire(struct sched *s, struct job *j, int64_t now_ns)
{
    int64_t left_ns = job_least_left_ns(j);

    if (!may_expire(j) || now_ns + left_ns <= j->deadline_ns)
        return;
    j->error_rc = SH_E_TIMEOUT;
    if (now_ns > j->deadline_ns)
        snprintf(j->error, sizeof(j->error), "its deadline passed while it was %s%s%s",
                 job_state_name(j->state), j->reason[0] ? ": " : "", j->reason);
    else
        snprintf(j->error, sizeof(j->error),
                 "it was %s, and its %" PRId64 " steps that are left take at least %" PRId64
                 " s: more than there is before its deadline",
                 job_state_name(j->state), j->progress.steps - j->progress.step, left_ns / SH_S(1));
    jobs__change(s, j, JOB_EXPIRED,
                 now_ns > j->deadline_ns ? "DeadlinePassed" : decide_reason_name(DECIDE_DEADLINE));
}

static bool is_job_lost(const struct sched *s, const struct job *j)
{
    return j->executor[0] && !j->starting_write && !jobs__exec(s, j);
}

/* When one of what jobs_tick() does has to be done, if nothing changes before. */
int64_t jobs__due_ns(const struct sched *s, const struct job *j)
{
    int64_t due_ns = jobs__write_due_ns(j);

    if (is_job_lost(s, j))
        due_ns = SH_MIN(due_ns, j->lost_ns + SH_MS(s->conf->grace_ms) + 1);
    if (may_expire(j))
        due_ns = SH_MIN(due_ns, j->deadline_ns - job_least_left_ns(j) + 1);
    return has_wish(s, j) ? 0 : due_ns;
}

void jobs_tick(struct sched *s, int64_t now_ns)
{
    struct job *j;

    jobs_sync(s);
    while ((j = jobs__take_due(s, now_ns))) {
        if (is_job_lost(s, j) && now_ns - j->lost_ns > SH_MS(s->conf->grace_ms))
            jobs__requeue(s, j, "ExecutorLost");
        jobs__expire(s, j, now_ns);
        jobs__follow_wishes(s, j);
        jobs__flush(s, j);
    }
}

static void on_reasons(void *ctx, void *arg, int rc, const struct sh_err *err)
{
    struct sched *s = ctx;

    (void)arg;
    s->jobs.reasons_writing = false;
    sched_op_ok(s, "job.reasons", rc, err);
}

static void write_reasons(struct sched *s)
{
    static const struct sched_op OP = {"job.reasons", store_job_reasons, on_reasons, free,
                                       DBOP_ANY_ORDER};
    struct store_reasons *w;
    struct sh_err err = {0};

    w = s->jobs.reasons_writing ? NULL : calloc(1, sizeof(*w));
    if (!w)
        return;
    w->fence = sched_fence(s);
    for (size_t i = 0; i < s->jobs.n && w->n < STORE_MAX_REASONS; i++) {
        struct job *j = s->jobs.items[i];

        if (j->state != JOB_QUEUED || strcmp(j->reason, j->reason_written) == 0)
            continue;
        memcpy(j->reason_written, j->reason, sizeof(j->reason));
        w->job[w->n] = j->id;
        memcpy(w->reason[w->n++], j->reason, sizeof(j->reason));
    }
    if (w->n == 0) {
        free(w);
        return;
    }
    s->jobs.reasons_writing = true;
    if (sched_submit(s, &OP, w, &err))
        s->jobs.reasons_writing = false;
}

static void show_tenant_counts(struct tenant *t)
{
    for (int k = 0; k < JOB_N_STATES; k++) {
        if (job_state_is_final((enum job_state)k) || (!t->n_jobs[k] && !t->n_jobs_shown[k]))
            continue;
        t->n_jobs_shown[k] = true;
        sh_metric_set(M_shunt_jobs, SH_LABELS(t->name, job_state_name((enum job_state)k)),
                      (double)t->n_jobs[k]);
    }
}

void jobs_second(struct sched *s)
{
    write_reasons(s);
    for (size_t i = 0; i < s->tenants.n; i++)
        show_tenant_counts(s->tenants.items[i]);
    jobs__forget_changes(s, sh_clock_ns());
}
