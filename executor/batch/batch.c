/* batch.c - see batch.h: the job's steps, on the loop. */
#include "common/clock.h"
#include "common/json.h"
#include "common/life.h"
#include "common/log.h"
#include "common/mem.h"
#include "common/metrics.h"
#include "common/units.h"
#include "executor/batch/batch_int.h"
#include "executor/files/push.h"
#include "executor/report/usage.h"
#include "executor/requests/slabs.h"
#include "executor/runs/switch.h"
#include "executor/training/train.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#define TICK_NS SH_MS(100)
#define REPORT_NS SH_MS(250)
#define MODEL_NS SH_S(60) /* so long a model may be away */
#define OPEN_NS SH_S(600) /* so long descriptors or memory may be wanting */
#define OPEN_PAUSE_NS SH_S(1)
#define SWEEP_NS SH_S(3600)
#define MAX_FAILURES 3 /* of runs in a row: workers that died */

struct batch {
    struct batch_env env;
    struct batch_job *job;
    int64_t swept_ns;
    struct sh_timer *tick;
};

/* ------------------------------------------------------------------ reports */

static void fill_state(const struct batch_job *j, struct msg_job_state *out)
{
    double n = (double)(j->ran_at - j->first_at), s = (double)j->busy_ns / 1e9;

    *out = (struct msg_job_state){.job = j->id,
                                  .attempt = j->attempt,
                                  .state = j->phase,
                                  .step = j->ran_at,
                                  .steps = j->n_samples,
                                  .loss = NAN,
                                  .samples_per_s = s > 0 ? n / s : 0,
                                  .preemptions = j->preemptions,
                                  .busy_ns = j->busy_ns,
                                  .rc = j->why.rc,
                                  .msg = j->why.msg,
                                  .result = j->result ? j->result : "",
                                  .need_bytes = j->need_bytes};
}

static void report_batch(struct batch_job *j)
{
    struct sh_msg m = {.type = MSG_JOB_STATE};

    fill_state(j, &m.u.job_state);
    j->reported_ns = sh_clock_ns();
    j->reported_phase = j->phase;
    j->reported_at = j->ran_at;
    uplink_send(&j->env->report->uplink, &m);
}

static void report_durable(const struct batch_job *j)
{
    struct sh_msg m = {.type = MSG_JOB_CHECKPOINT};
    char path[96];

    if (!j->durable_digest[0]) /* or it is what an earlier attempt reported */
        return;
    snprintf(path, sizeof(path), "%" PRId64 "/%s", j->id, result_file_part(j->file));
    m.u.job_checkpoint = (struct msg_job_checkpoint){.job = j->id,
                                                     .attempt = j->attempt,
                                                     .step = j->durable_at,
                                                     .path = path,
                                                     .digest = j->durable_digest,
                                                     .bytes = j->durable_bytes};
    uplink_send(&j->env->report->uplink, &m);
}

static void report_saved(struct batch_job *j)
{
    uplink_send(&j->env->report->uplink, &(struct sh_msg){.type = MSG_JOB_SAVED,
                                                          .u.job_saved = {.job = j->id,
                                                                          .attempt = j->attempt,
                                                                          .asked = j->save_asked,
                                                                          .step = j->durable_at,
                                                                          .msg = ""}});
    j->save_asked = 0;
}

static void note_durable(struct batch_job *j, int64_t at, const char *digest, uint64_t bytes)
{
    j->durable_at = at;
    j->durable_bytes = bytes;
    sh_strlcpy(j->durable_digest, digest, sizeof(j->durable_digest));
    SH_INFO("job.checkpoint", "job=%" PRId64 " step=%" PRId64 " bytes=%" PRIu64, j->id, at, bytes);
    job_log_say(j->log, "samples before %" PRId64 " are durable: %" PRIu64 " bytes", at, bytes);
    report_durable(j);
    if (j->save_asked && j->save_at >= 0 && at >= j->save_at)
        report_saved(j);
}

/* ------------------------------------------------------------------ ends */

static void end_job(struct batch_job *j, enum msg_job_phase phase)
{
    struct msg_job_state said;

    j->has_ended = true;
    j->phase = phase;
    report_batch(j);
    fill_state(j, &said);
    outcomes_keep(&j->env->report->outcomes, &said);
    job_log_progress(j->log, &said, j->ran_at - j->first_at, 0, true);
    job_log_end(j->log, &said);
    SH_INFO("job.end",
            "job=%" PRId64 " phase=%d step=%" PRId64 " steps=%" PRId64 " preemptions=%" PRId64
            " code=%s",
            j->id, (int)phase, j->ran_at, j->n_samples, j->preemptions, sh_rc_name(j->why.rc));
}

static void fail_batch(struct batch_job *j, const struct sh_err *why)
{
    if (j->end == BATCH_CANCEL || j->end == BATCH_FAIL)
        return;
    j->end = BATCH_FAIL;
    j->why = *why;
}

static bool submit_disk_task(struct batch_job *j, struct disk_task *t, disk_work_fn *work,
                             disk_done_fn *done)
{
    *t = (struct disk_task){.work = work, .done = done};
    if (disk_submit(j->env->files->disk, t, NULL))
        return false; /* the thread has too much to do: again at the next tick */
    j->n_tasks++;
    return true;
}

/* ------------------------------------------------------------------ slots */

static void batch_slot_go(struct batch_slot *s, enum batch_slot_state to)
{
    s->state = (enum batch_slot_state)sh_life_step(&SLOT_LIFE, s->state, to, s->job->id);
}

static void on_turned(struct disk_task *t)
{
    struct batch_slot *s = (struct batch_slot *)t;
    struct batch_job *j = s->job;

    j->n_tasks--;
    if (t->err.rc) {
        batch_slot_go(s, SLOT_FREE);
        j->is_broken = true;
        fail_batch(j, &t->err);
        return;
    }
    if (s->has_outputs)
        j->written_at = s->at + s->n;
    if (s->is_sync)
        note_durable(j, j->written_at, s->digest, s->bytes);
    s->at = s->next_at;
    s->n = s->next_n;
    batch_slot_go(s, s->n > 0 ? SLOT_FULL : SLOT_FREE);
}

/* To the thread, if there is something for it: outputs in their order, then the next inputs unless
 * the job is to end. */
static bool turn_slot(struct batch_job *j, struct batch_slot *s)
{
    int64_t now = sh_clock_ns(), left = j->n_samples - j->read_at;
    int64_t next_n = j->end == BATCH_GOES_ON ? SH_MIN(j->batch, left) : 0;
    bool has_outputs = s->state == SLOT_RAN && s->at == j->handed_at;
    bool is_wished = j->save_asked && j->save_at < 0;

    if (!has_outputs && (s->state != SLOT_FREE || next_n == 0))
        return false;
    s->has_outputs = has_outputs;
    s->is_sync = has_outputs && (s->at + s->n == j->n_samples || is_wished ||
                                 now - j->synced_ns >= j->interval_ns);
    s->next_at = j->read_at;
    s->next_n = next_n;
    if (!submit_disk_task(j, &s->task, batch_io_turn, on_turned))
        return false;
    batch_slot_go(s, SLOT_BUSY);
    j->read_at += next_n;
    if (has_outputs)
        j->handed_at += s->n;
    if (s->is_sync && is_wished)
        j->save_at = s->at + s->n;
    if (s->is_sync)
        j->synced_ns = now;
    return true;
}

static bool turn_slots(struct batch_job *j)
{
    bool did = false;

    for (size_t i = 0; i < BATCH_N_SLOTS; i++)
        did |= turn_slot(j, &j->slots[i]);
    return did;
}

/* ------------------------------------------------------------------ an early end */

static void on_synced(struct disk_task *t)
{
    struct batch_task *b = (struct batch_task *)t;
    struct batch_job *j = b->job;

    j->n_tasks--;
    if (t->err.rc) {
        sh_log_err(SH_LOG_ERROR, "job.checkpoint.disk", &t->err);
        j->is_broken = true;
    } else {
        note_durable(j, j->written_at, b->digest, b->bytes);
    }
}

static void on_discarded(struct disk_task *t)
{
    struct batch_job *j = ((struct batch_task *)t)->job;

    j->n_tasks--;
}

/* It is to end before it is done: nothing runs any more, what has run is made durable. */
static bool steer_end(struct batch_job *j)
{
    atomic_store(&j->stop, true);
    if (j->running) {
        switch_withdraw(j->env->sw, j);
        batch_slot_go(j->running, SLOT_FREE);
        j->running = NULL;
        return true;
    }
    if (j->end != BATCH_CANCEL && !j->is_broken && turn_slots(j))
        return true;
    if (j->n_tasks)
        return false;
    if (j->end == BATCH_CANCEL) {
        if (j->file)
            return submit_disk_task(j, &j->misc.task, batch_io_discard, on_discarded);
        end_job(j, MSG_JOB_CANCELLED);
        return true;
    }
    if (j->is_open && !j->is_broken && j->written_at > j->durable_at)
        return submit_disk_task(j, &j->misc.task, batch_io_sync, on_synced);
    end_job(j, j->end == BATCH_SUSPEND ? MSG_JOB_SUSPENDED : MSG_JOB_FAILED);
    return true;
}

/* ------------------------------------------------------------------ beginning */

static struct model *ready_model(struct batch_job *j)
{
    struct model *m = store_find(j->env->store, j->version_id);
    bool comes = m && m->phase == MODEL_BUILDING;
    struct sh_err err = {0};

    if (m && m->phase == MODEL_READY) {
        j->waits_ns = 0;
        return m;
    }
    if (!j->waits_ns)
        j->waits_ns = sh_clock_ns();
    if (m && m->phase == MODEL_FAILED) {
        j->need_bytes = m->need_bytes;
        fail_batch(j, &m->why);
    } else if (!comes && sh_clock_ns() - j->waits_ns > MODEL_NS) {
        SH_FAIL(&err, SH_E_UNAVAILABLE, "the model version is not loaded on this executor");
        fail_batch(j, &err);
    }
    return NULL;
}

static int lay_out_columns(const struct batch_job *j, struct batch_column *c, size_t n, size_t *at,
                           struct sh_err *err)
{
    for (size_t i = 0; i < n; i++) {
        c[i].off = *at;
        if (*at > BATCH_MAX_SLAB || c[i].sample_bytes > BATCH_MAX_SLAB / (size_t)j->batch)
            return SH_FAIL(err, SH_E_TOOBIG,
                           "two batches of %" PRId64 " samples need more than %zu MiB; lower "
                           "\"batch\"",
                           j->batch, BATCH_MAX_SLAB >> 20);
        *at = SH_ALIGN_UP(*at + c[i].sample_bytes * (size_t)j->batch, BATCH_ALIGN);
    }
    return SH_OK;
}

static int make_batch_slab(struct batch_job *j, struct sh_err *err)
{
    size_t bytes = 0;
    int rc = lay_out_columns(j, j->in, j->n_in, &bytes, err);

    if (!rc)
        rc = lay_out_columns(j, j->out, j->n_out, &bytes, err);
    j->slab_id = slabs_own_id(j->env->slabs);
    if (!rc)
        rc = sh_shm_create("shunt-batch", bytes * BATCH_N_SLOTS, &j->slab, err);
    if (!rc)
        rc = slabs_add(j->env->slabs, j->slab_id, j->slab.fd, j->slab.bytes, err);
    j->has_slab = rc == SH_OK;
    if (rc)
        sh_shm_fini(&j->slab);
    for (size_t i = 0; i < BATCH_N_SLOTS; i++)
        j->slots[i].off = i * bytes;
    return rc;
}

/* Descriptors, or memory, of which there may be some in a while. */
static bool may_open_later(struct batch_job *j, const struct sh_err *why)
{
    const int64_t now = sh_clock_ns();

    if (why->rc != SH_E_NOMEM || now - j->start_ns >= OPEN_NS)
        return false;
    sh_log_err(SH_LOG_WARN, "job.open", why);
    job_log_say(j->log, "cannot begin yet: %s", why->msg);
    j->open_ns = now + OPEN_PAUSE_NS;
    return true;
}

static void on_opened(struct disk_task *t)
{
    struct batch_job *j = ((struct batch_task *)t)->job;
    struct sh_err err = t->err;
    int rc = err.rc ? err.rc : make_batch_slab(j, &err);

    j->n_tasks--;
    if (rc) {
        if (j->end == BATCH_GOES_ON && !may_open_later(j, &err))
            fail_batch(j, &err);
        return;
    }
    if (j->written_at != j->resume_at)
        SH_WARN("job.resume",
                "job=%" PRId64 " step=%" PRId64 " msg=\"what was done is not there or damaged: "
                "from the first sample again\"",
                j->id, j->resume_at);
    j->read_at = j->ran_at = j->handed_at = j->written_at;
    j->first_at = j->durable_at = j->written_at;
    j->synced_ns = sh_clock_ns();
    j->is_open = true;
    job_log_say(j->log, "begins at sample %" PRId64 " of %" PRId64 ", batch %" PRId64,
                j->written_at, j->n_samples, j->batch);
    report_batch(j);
}

/* True: something was begun. */
static bool begin_batch_job(struct batch_job *j)
{
    const struct sh_err *why = NULL;
    enum blob_state state = blob_set_state(&j->blobs, &why);
    const bool waits = j->n_tasks || state != BLOB_HERE || sh_clock_ns() < j->open_ns;
    struct model *m = waits ? NULL : ready_model(j);
    struct sh_err err = {0};

    if (state == BLOB_FAILED)
        fail_batch(j, why);
    if (!m)
        return j->end != BATCH_GOES_ON;
    if (j->batch == 0)
        j->batch = m->max_batch;
    if (j->batch > m->max_batch) {
        SH_FAIL(&err, SH_E_INVALID, "a batch of %" PRId64 " is more than the model's %u", j->batch,
                m->max_batch);
        fail_batch(j, &err);
        return true;
    }
    return submit_disk_task(j, &j->misc.task, batch_io_open, on_opened);
}

/* ------------------------------------------------------------------ runs */

static void on_run(void *arg, const struct run_result *r)
{
    struct batch_job *j = arg;
    const struct usage_job who = {.id = j->id, .tenant = j->tenant, .use = MSG_USE_BATCH};
    struct batch_slot *s = j->running;
    const struct model *m;
    struct sh_err err = {0};

    j->running = NULL;
    j->busy_ns += r->held_ns;
    usage_job(j->env->report->usage, &who, r->held_ns, r->rc ? j->ran_at : s->at + s->n, 1);
    j->preemptions += r->n_passed > 0;
    if (r->rc) {
        batch_slot_go(s, SLOT_FULL); /* once more, unless it is the batch that kills them */
        job_log_say(j->log, "the run of sample %" PRId64 " failed: %s", s->at, r->msg);
        if (r->rc == SH_E_UNAVAILABLE && ++j->n_failures <= MAX_FAILURES)
            return;
        if (r->rc == SH_E_QUOTA && (m = store_find(j->env->store, j->version_id)))
            j->need_bytes = m->need_bytes;
        if (r->sample >= 0)
            SH_FAIL(&err, r->rc, "sample %" PRId64 ": %s", s->at + r->sample, r->msg);
        else
            SH_FAIL(&err, r->rc, "%s (samples %" PRId64 " to %" PRId64 ")", r->msg, s->at,
                    s->at + s->n - 1);
        fail_batch(j, &err);
        return;
    }
    batch_slot_go(s, SLOT_RAN);
    j->n_failures = 0;
    j->ran_at = s->at + s->n;
    sh_metric_add(M_shunt_batch_samples_total, SH_LABELS(j->tenant, j->model), (double)s->n);
}

static int fill_batch_part(const struct batch_job *j, const struct batch_slot *s,
                           struct run_part *p, struct sh_err *err)
{
    const size_t n = (size_t)s->n;

    *p = (struct run_part){.api_id = j->slab_id, .batch = (uint32_t)s->n};
    p->in = calloc(j->n_in, sizeof(*p->in));
    p->out = calloc(j->n_out, sizeof(*p->out));
    if (!p->in || !p->out) {
        free(p->in);
        free(p->out);
        return SH_FAIL(err, SH_E_NOMEM, "could not allocate a run of the job");
    }
    p->n_in = j->n_in;
    p->n_out = j->n_out;
    for (size_t i = 0; i < j->n_in; i++)
        p->in[i] = (struct msg_span){s->off + j->in[i].off, j->in[i].sample_bytes * n};
    for (size_t i = 0; i < j->n_out; i++)
        p->out[i] = (struct msg_span){s->off + j->out[i].off, j->out[i].sample_bytes * n};
    return SH_OK;
}

static struct batch_slot *next_full(struct batch_job *j)
{
    for (size_t i = 0; i < BATCH_N_SLOTS; i++)
        if (j->slots[i].state == SLOT_FULL && j->slots[i].at == j->ran_at)
            return &j->slots[i];
    return NULL;
}

static bool run_next(struct batch_job *j)
{
    struct batch_slot *s = j->running ? NULL : next_full(j);
    struct model *m = s ? ready_model(j) : NULL;
    struct sh_err err = {0};
    struct run_part part;
    int rc;

    if (!m)
        return j->end != BATCH_GOES_ON;
    if (fill_batch_part(j, s, &part, &err)) {
        fail_batch(j, &err);
        return true;
    }
    rc = switch_submit(j->env->sw, m, &j->sizes.sizes, &part, on_run, j, &err);
    if (rc) {
        free(part.in);
        free(part.out);
        if (rc == SH_E_QUEUEFULL) /* all shapes are in use: at the next tick */
            return false;
        fail_batch(j, &err);
        return true;
    }
    batch_slot_go(s, SLOT_RUNNING);
    j->running = s;
    if (j->phase == MSG_JOB_STARTING) {
        j->phase = MSG_JOB_RUNNING;
        report_batch(j);
    }
    return true;
}

/* ------------------------------------------------------------------ the end */

static int make_result(struct batch_job *j, const struct batch_task *b, struct sh_err *err)
{
    json_t *r = json_pack("{s:I,s:I,s:s,s:f}", "samples", (json_int_t)j->n_samples, "bytes",
                          (json_int_t)b->bytes, "digest", b->digest, "seconds",
                          (double)(sh_clock_ns() - j->start_ns) / 1e9);
    int rc = r ? sh_json_dump(r, &j->result, err)
               : SH_FAIL(err, SH_E_NOMEM, "could not write the job's result");

    json_decref(r);
    return rc;
}

static void on_pushed(void *arg, const struct sh_err *why)
{
    struct batch_job *j = arg;

    j->push = NULL;
    if (why->rc && j->end == BATCH_GOES_ON) {
        j->is_broken = true;
        fail_batch(j, why);
    } else if (j->end == BATCH_GOES_ON) {
        end_job(j, MSG_JOB_DONE);
    }
}

/* The API has another folder: it is done when the result is there. */
static void deliver_result(struct batch_job *j)
{
    const struct push_conf c = {
        .job = j->id, .attempt = j->attempt, .dir = j->dir, .files = {RESULT_FILE_NAME}};
    struct sh_err err = {0};

    if (push_start(j->env->files, &c, on_pushed, j, &j->push, &err))
        on_pushed(j, &err);
}

static void on_finished(struct disk_task *t)
{
    struct batch_task *b = (struct batch_task *)t;
    struct batch_job *j = b->job;
    struct sh_err err = t->err;

    j->n_tasks--;
    if (j->end != BATCH_GOES_ON)
        return; /* steer_end() goes on */
    if (!err.rc)
        make_result(j, b, &err);
    if (err.rc) {
        j->is_broken = true;
        fail_batch(j, &err);
    } else if (j->env->files->transfers) {
        deliver_result(j);
    } else {
        end_job(j, MSG_JOB_DONE);
    }
}

static bool finish_batch(struct batch_job *j)
{
    if (j->is_finishing || j->n_tasks || j->written_at < j->n_samples ||
        !submit_disk_task(j, &j->misc.task, batch_io_finish, on_finished))
        return false;
    j->is_finishing = true;
    j->phase = MSG_JOB_COMPLETING;
    report_batch(j);
    return true;
}

bool batch_turn(struct batch *b)
{
    struct batch_job *j = b->job;
    bool did;

    if (!j)
        return false;
    if (j->has_ended) {
        b->job = NULL;
        batch__job_free(j);
        return true;
    }
    if (j->end != BATCH_GOES_ON)
        return steer_end(j);
    if (!j->is_open)
        return begin_batch_job(j);
    did = turn_slots(j);
    return run_next(j) || finish_batch(j) || did;
}

/* ------------------------------------------------------------------ the scheduler's messages */

void batch_on_start(struct batch *b, const struct msg_batch_start *m, const struct sh_err *why_not)
{
    struct batch_job *j = b->job;
    struct sh_err err = {0};
    struct sh_msg no = {.type = MSG_JOB_STATE};

    if (batch_has(b, m->job)) { /* said again: the scheduler did not know */
        j->attempt = m->attempt;
        job_log_attempt(j->log, m->attempt);
        report_batch(j);
        return;
    }
    outcomes_forget(&b->env.report->outcomes, m->job);
    if (j)
        SH_FAIL(&err, SH_E_CONFLICT, "this executor still has job %" PRId64, j->id);
    else if (why_not)
        err = *why_not;
    else
        batch__job_new(&b->env, m, &b->job, &err);
    if (err.rc) {
        sh_log_err(SH_LOG_WARN, "job.refused", &err);
        no.u.job_state = (struct msg_job_state){.job = m->job,
                                                .attempt = m->attempt,
                                                .state = MSG_JOB_FAILED,
                                                .step = m->resume_step,
                                                .rc = err.rc,
                                                .msg = err.msg};
        uplink_send(&b->env.report->uplink, &no);
        return;
    }
    SH_INFO("job.start", "job=%" PRId64 " attempt=%u model=%s resume_step=%" PRId64, m->job,
            m->attempt, m->model, m->resume_step);
    report_batch(b->job);
}

bool batch_has(const struct batch *b, int64_t job)
{
    return b->job && b->job->id == job && !b->job->has_ended;
}

void batch_on_stop(struct batch *b, const struct msg_job_stop *m)
{
    struct batch_job *j = b->job;
    const enum batch_end was = j->end;

    if (m->how == MSG_JOB_HOW_CANCEL)
        j->end = BATCH_CANCEL;
    else if (j->end == BATCH_GOES_ON)
        j->end = BATCH_SUSPEND;
    if (j->end != was)
        job_log_say(j->log, "is stopped by the scheduler: %s", m->why);
}

/* No answer if it is about to leave: it is asked again where it goes on. */
void batch_on_save(struct batch *b, const struct msg_job_save *m)
{
    struct batch_job *j = b->job;
    bool is_last = j->is_open && j->handed_at == j->n_samples; /* no other will be written */

    if (j->attempt != m->attempt || j->end != BATCH_GOES_ON)
        return;
    j->save_asked = m->asked;
    j->save_at = is_last ? j->n_samples : -1;
    if (is_last && j->durable_at == j->n_samples)
        report_saved(j);
}

void batch_suspend(struct batch *b)
{
    if (!b->job || b->job->has_ended || b->job->end != BATCH_GOES_ON)
        return;
    b->job->end = BATCH_SUSPEND;
    job_log_say(b->job->log, "is stopped by its executor: ExecutorStopping");
}

bool batch_is_quiet(const struct batch *b)
{
    return !b->job;
}

void batch_report_all(struct batch *b)
{
    struct batch_job *j = b->job;

    if (!j || j->has_ended)
        return;
    report_batch(j);
    if (j->is_open && j->file)
        report_durable(j);
}

/* ------------------------------------------------------------------ time */

/* Also wakes the loop, for what is tried again in its turn. */
static void on_tick(struct sh_loop *l, void *arg)
{
    struct batch *b = arg;
    struct batch_job *j = b->job;
    struct msg_job_state now;

    (void)l;
    if (!j && sh_clock_ns() - b->swept_ns >= SWEEP_NS) {
        b->swept_ns = sh_clock_ns();
        push_sweep_results(b->env.files);
    }
    if (!j || j->has_ended)
        return;
    fill_state(j, &now);
    job_log_progress(j->log, &now, j->ran_at - j->first_at, 0, false);
    job_log_tick(j->log);
    if (j->phase == MSG_JOB_RUNNING || j->phase == MSG_JOB_PREEMPTED)
        j->phase =
            j->running && !switch_has_started(j->env->sw, j) ? MSG_JOB_PREEMPTED : MSG_JOB_RUNNING;
    if (sh_clock_ns() - j->reported_ns >= REPORT_NS &&
        (j->phase != j->reported_phase || j->ran_at != j->reported_at))
        report_batch(j);
}

int batch_new(const struct batch_env *env, struct batch **out, struct sh_err *err)
{
    struct batch *b = calloc(1, sizeof(*b));
    int rc;

    *out = NULL;
    if (!b)
        return SH_FAIL(err, SH_E_NOMEM, "could not allocate batch inference");
    b->env = *env;
    b->swept_ns = sh_clock_ns();
    rc = sh_timer_add(env->loop, TICK_NS, TICK_NS, on_tick, b, &b->tick, err);
    if (rc) {
        free(b);
        return rc;
    }
    *out = b;
    return SH_OK;
}

void batch_free(struct batch *b)
{
    if (!b)
        return;
    if (b->job && b->job->running)
        switch_withdraw(b->env.sw, b->job);
    batch__job_free(b->job);
    sh_timer_del(b->tick);
    free(b);
}
