/* job.c - creates a training job from its message, keeps its losses, and reports it. */
#include "common/clock.h"
#include "common/json.h"
#include "common/life.h"
#include "common/log.h"
#include "common/mem.h"
#include "common/metrics.h"
#include "common/safetensors.h"
#include "common/trace.h"
#include "common/units.h"
#include "executor/files/push.h"
#include "executor/report/usage.h"
#include "executor/training/train_int.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#define SPEC_MAX_BYTES ((size_t)1 << 20)

/* ------------------------------------------------------------------ new and free */

static int read_job_evaluation(struct job *j, struct sh_err *err)
{
    struct train_spec train;
    int rc;

    if (!json_object_get(j->spec, "evaluation"))
        return SH_OK;
    rc = train_spec_read(j->spec, &train, err);
    if (!rc && train.evaluation.every && !j->eval_dataset)
        rc = SH_FAIL(err, SH_E_INVALID,
                     "\"spec.evaluation\" needs an evaluation dataset, and the job names none");
    if (!rc)
        trials_init(&j->trials, &train);
    return rc;
}

/* The worker reads the whole spec and refuses what is wrong in it; this is what we need of it. */
static int read_job_spec(struct job *j, struct sh_err *err)
{
    const json_t *interval, *precision;
    int rc = sh_json_parse(j->spec_text, strlen(j->spec_text), SPEC_MAX_BYTES, &j->spec, err);

    if (rc)
        return rc;
    precision = json_object_get(j->spec, "precision");
    interval = json_object_get(j->spec, "checkpoint_interval_ms");
    j->interval_ns = SH_MS(j->env->checkpoint_interval_ms);
    if (json_is_integer(interval) && json_integer_value(interval) > 0 &&
        json_integer_value(interval) < INT64_MAX / SH_MS(1))
        j->interval_ns = SH_MS(json_integer_value(interval));
    rc = read_job_evaluation(j, err);
    if (!rc)
        rc = sh_strdup(json_is_string(precision) ? json_string_value(precision) : "fp32",
                       &j->precision, err);
    return rc;
}

static int copy_strings(struct job *j, const struct msg_job_start *m, struct sh_err *err)
{
    const struct files *files = j->env->files;
    int rc = sh_strdup(m->tenant, &j->tenant, err);

    if (!rc)
        rc = sh_strdup(m->model, &j->model, err);
    if (!rc)
        rc = sh_strdup(m->spec, &j->spec_text, err);
    if (!rc)
        rc = files_path(files, "blobs", m->package, &j->package, err);
    if (!rc)
        rc = files_path(files, "blobs", m->dataset, &j->dataset, err);
    if (!rc && m->eval_dataset[0])
        rc = files_path(files, "blobs", m->eval_dataset, &j->eval_dataset, err);
    if (!rc)
        rc = files_path(files, "jobs", m->dir, &j->dir, err);
    if (!rc && m->resume[0])
        rc = files_path(files, "jobs", m->resume, &j->resume, err);
    return rc;
}

/* The losses of earlier attempts may not be there: their executor was lost before it sent any. */
static int want_blobs(struct job *j, const struct msg_job_start *m, struct sh_err *err)
{
    const char *slash = strchr(m->resume, '/');
    char losses[64];
    int rc = blob_want(j->env->files->blobs, &j->blobs, m->package, err);

    if (!rc)
        rc = blob_want(j->env->files->blobs, &j->blobs, m->dataset, err);
    if (!rc)
        rc = blob_want(j->env->files->blobs, &j->blobs, m->eval_dataset, err);
    if (rc || !slash)
        return rc;
    snprintf(losses, sizeof(losses), "%.*s/losses.json", (int)SH_MIN(slash - m->resume, 24),
             m->resume);
    rc = blob_want_job_file(j->env->files->blobs, &j->blobs, m->resume, false, err);
    return rc ? rc : blob_want_job_file(j->env->files->blobs, &j->blobs, losses, true, err);
}

static int make_job_dir(const char *dir, struct sh_err *err)
{
    if (mkdir(dir, 0750) < 0 && errno != EEXIST)
        return SH_FAIL_ERRNO(err, SH_E_IO, "could not make the folder of the job");
    return SH_OK;
}

int job_new(struct train *t, const struct msg_job_start *m, struct job **out, struct sh_err *err)
{
    struct job *j = calloc(1, sizeof(*j));
    int rc;

    *out = NULL;
    if (!j)
        return SH_FAIL(err, SH_E_NOMEM, "could not allocate a job");
    *j = (struct job){.env = &t->env,
                      .train = t,
                      .id = m->job,
                      .attempt = m->attempt,
                      .placement = m->placement,
                      .resume_step = m->resume_step,
                      .step = m->resume_step, /* as reported until it is read */
                      .max_step = m->resume_step,
                      .crashes = {.furthest = m->resume_step, .kept = m->resume_step},
                      .disk_step = -1,
                      .disk_prev_step = -1,
                      .disk_failed_step = -1,
                      .save_step = -1,
                      .last_loss = NAN};
    for (int i = 0; i < JOB_N_SLOTS; i++)
        j->slots[i].mem.fd = -1;
    j->fixed.fd = -1;
    rc = m->job > 0 ? SH_OK : SH_FAIL(err, SH_E_INVALID, "a job needs a positive number");
    if (!rc)
        rc = copy_strings(j, m, err);
    if (!rc)
        rc = read_job_spec(j, err);
    if (!rc)
        rc = space_tag(t->env.space, j->tenant, &j->tag, err);
    if (!rc)
        rc = make_job_dir(j->dir, err);
    if (!rc)
        j->log = job_log_open(&t->env.report->logs,
                              &(struct job_log_conf){m->job, m->attempt, j->dir, m->about, "step",
                                                     m->redone, m->preemptions});
    if (!rc)
        rc = want_blobs(j, m, err);
    if (rc) {
        job_free(j);
        return rc;
    }
    j->taken_ns = j->disk_taken_ns = j->given_ns = j->since_ns = sh_clock_ns();
    *out = j;
    return SH_OK;
}

/* ------------------------------------------------------------------ where it stands */

void job_set_build(struct job *j, enum job_build to)
{
    j->build = (enum job_build)sh_life_step(&BUILD_LIFE, j->build, to, j->id);
}

bool job_has_ended(const struct job *j)
{
    return j->phase == MSG_JOB_DONE || j->phase == MSG_JOB_FAILED ||
           j->phase == MSG_JOB_CANCELLED || j->phase == MSG_JOB_SUSPENDED;
}

void job_go(struct job *j, enum job_stand to)
{
    j->stand = (enum job_stand)sh_life_step(&TRAINING_LIFE, j->stand, to, j->id);
}

bool job_has_state(const struct job *j)
{
    return j->stand != JOB_OFF;
}

bool job_has_ws(const struct job *j)
{
    return j->stand >= JOB_READY;
}

bool job_runs(const struct job *j)
{
    return j->stand == JOB_RUNNING || j->stand == JOB_STOPPING || j->stand == JOB_YIELDING;
}

void job_free(struct job *j)
{
    if (!j)
        return;
    finish_free(j->finish);
    blob_set_drop(&j->blobs);
    job_log_close(j->log);
    if (j->dir)
        push_forget_job(j->env->files, j->dir);
    tx_forget(j->env->tx, j);
    slots_fini(j);
    if (job_has_ws(j))
        space_give(j->env->space, &j->ws, j->tag);
    if (job_has_state(j))
        space_give(j->env->space, &j->state, j->tag);
    json_decref(j->spec);
    json_decref(j->table);
    free(j->tensors);
    for (size_t i = 0; j->best_names && i < j->n_tensors; i++)
        free(j->best_names[i]);
    free(j->best_names);
    free(j->losses);
    free(j->result);
    free(j->tenant);
    free(j->model);
    free(j->package);
    free(j->dataset);
    free(j->eval_dataset);
    free(j->spec_text);
    free(j->dir);
    free(j->resume);
    free(j->precision);
    free(j);
}

char *job_file(const struct job *j, const char *name)
{
    char *path = NULL;

    return sh_asprintf(NULL, &path, "%s/%s", j->dir, name) ? NULL : path;
}

char *job_ckpt_path(const struct job *j, int64_t step)
{
    char name[SH_CKPT_BYTES];

    sh_ckpt_name(name, step, j->env->executor);
    return job_file(j, name);
}

/* ------------------------------------------------------------------ compiled */

static int make_losses(struct job *j, struct sh_err *err)
{
    j->loss_stride = (j->steps + JOB_MAX_LOSSES - 1) / JOB_MAX_LOSSES;
    j->loss_stride = SH_MAX(j->loss_stride, (int64_t)1);
    j->n_losses = (size_t)((j->steps + j->loss_stride - 1) / j->loss_stride);
    j->losses = calloc(j->n_losses + 1, sizeof(*j->losses));
    if (!j->losses)
        return SH_FAIL(err, SH_E_NOMEM, "could not allocate the losses of %" PRId64 " steps",
                       j->steps);
    for (size_t i = 0; i < j->n_losses; i++)
        j->losses[i] = NAN;
    return SH_OK;
}

int job_check_fits(struct job *j, struct sh_err *err)
{
    uint64_t need = SH_ALIGN_UP(j->state_bytes, DEV_BLOCK) + SH_ALIGN_UP(j->ws_bytes, DEV_BLOCK);
    int rc = dev_check_fits(dev_mem_bytes(j->env->mem), j->state_bytes, j->ws_bytes, j->batch, true,
                            err);

    if (!rc)
        rc = space_check_max(j->env->space, j->tag, need, "training", err);
    j->need_bytes = rc ? need : 0;
    return rc;
}

/* What is trained although nothing says that it is a parameter. */
static void say_assumed(struct job *j)
{
    char names[512] = "";
    size_t n = 0, len = 0;

    for (size_t i = 0; i < j->n_tensors; i++) {
        if (!json_is_true(json_object_get(json_array_get(j->table, i), "assumed")))
            continue;
        n++;
        if (len + strlen(j->tensors[i].name) + 3 < sizeof(names))
            len += (size_t)snprintf(names + len, sizeof(names) - len, "%s%s", len ? ", " : "",
                                    j->tensors[i].name);
    }
    if (n > 0)
        job_log_say(j->log,
                    "trains %zu constants because of how they are used, since the model's file "
                    "does not say whether they are parameters or buffers: %s; buffers are named "
                    "in \"frozen\", or at the push",
                    n, names);
}

static void say_built(struct job *j)
{
    int64_t values = 0;

    for (size_t i = 0; i < j->n_tensors; i++) {
        const char *kind = json_string_value(json_object_get(json_array_get(j->table, i), "kind"));

        if (kind && strcmp(kind, "param") == 0)
            values += (int64_t)(j->tensors[i].bytes / sh_dtype_bytes(j->tensors[i].dtype));
    }
    job_log_say(j->log,
                "compiled in %.3g s: precision %s, batch %u, %" PRId64 " steps, %" PRId64
                " parameters; on the device %.1f MiB of state and %.1f MiB for a batch",
                (double)(sh_clock_ns() - j->compile_ns) / 1e9, j->precision, j->batch, j->steps,
                values, (double)j->state_bytes / 1048576, (double)j->ws_bytes / 1048576);
    if (j->written_bytes < j->state_bytes)
        job_log_say(
            j->log,
            "of the state steps write %.3g MiB: the rest is not copied from the device, and "
            "checkpoints are without it",
            (double)j->written_bytes / 1048576);
    say_assumed(j);
}

int job_take_built(struct job *j, const struct msg_wk_train_ready *m, int *fds, size_t n_fds,
                   struct sh_err *err)
{
    struct sh_shm state = {.fd = -1};
    int rc;

    if (n_fds != 1 || m->steps < 1)
        return SH_FAIL(err, SH_E_PROTO, "a compiled job came without its state or its steps");
    if (m->written_bytes < 1 || m->written_bytes > m->state_bytes)
        return SH_FAIL(err, SH_E_PROTO,
                       "a job whose steps write %" PRIu64 " bytes of a state of %" PRIu64,
                       m->written_bytes, m->state_bytes);
    j->state_bytes = m->state_bytes;
    j->written_bytes = m->written_bytes;
    j->ws_bytes = m->ws_bytes;
    j->steps = m->steps;
    j->batch = m->batch;
    rc = job_check_fits(j, err);
    if (!rc)
        rc = job_read_table(j, m->table, err);
    if (!rc) {
        rc = sh_shm_map(fds[0], (size_t)SH_MAX(m->state_bytes, (uint64_t)1), false, &state, err);
        if (!rc)
            fds[0] = -1;
    }
    if (!rc)
        rc = slots_init(j, err);
    if (!rc)
        rc = make_losses(j, err);
    if (!rc)
        say_built(j);
    if (!rc)
        rc = resume_start(j, &state, err);
    sh_shm_fini(&state);
    return rc;
}

int job_agree(struct job *j, const struct msg_wk_train_ready *m, struct sh_err *err)
{
    if (m->state_bytes != j->state_bytes || m->written_bytes != j->written_bytes ||
        m->steps != j->steps || m->batch != j->batch)
        return SH_FAIL(err, SH_E_BUG, "a worker compiled the job to another state");
    if (m->ws_bytes <= j->ws_bytes)
        return SH_OK;
    j->ws_bytes = m->ws_bytes;
    if (j->stand == JOB_READY) { /* nothing is in it yet; one that is in use serves its worker */
        space_give(j->env->space, &j->ws, j->tag);
        job_go(j, JOB_LOADED);
    }
    return job_check_fits(j, err);
}

/* ------------------------------------------------------------------ progress */

void job_note_losses(struct job *j, const struct msg_wk_train_losses *m)
{
    size_t n = m->losses.len / sizeof(double);

    /* A step that is done again has the same loss; writing it twice changes nothing. */
    for (size_t i = 0; i < n; i++) {
        int64_t step = m->first_step + (int64_t)i;
        double v;

        memcpy(&v, (const char *)m->losses.data + i * sizeof(v), sizeof(v));
        if (step >= 0 && step < j->steps && step % j->loss_stride == 0)
            j->losses[step / j->loss_stride] = v;
        if (step == j->steps - 1)
            j->last_loss = v;
    }
}

void job_note_steps(struct job *j, int64_t step)
{
    int64_t n = step - j->max_step;

    if (n <= 0)
        return;
    j->max_step = step;
    j->busy_steps += n;
    sh_metric_add(M_shunt_train_steps_total, SH_LABELS(j->tenant, j->model), (double)n);
    sh_metric_add(M_shunt_train_samples_total, SH_LABELS(j->tenant, j->model),
                  (double)n * j->batch);
}

void job_count_busy(struct job *j)
{
    const int64_t now = sh_clock_ns();

    *(j->evaluates ? &j->eval_ns : &j->busy_ns) += now - j->go_ns;
    usage_trains(j->env->report->usage, false, now);
    SH_TRACE(.name = j->evaluates ? "evaluation" : "steps", .track = "training",
             .begin_ns = j->go_ns, .end_ns = now, .job = j->id, .what = j->model);
}

/* It is as far as it ever was, and what it still has to do again is not redone yet: so steps and
 * redone ones are what was done in all. Only one that leaves before its end says where it stands:
 * the next attempt goes on from there. */
static int64_t reported_step(const struct job *j, int64_t at)
{
    const bool leaves = j->phase == MSG_JOB_SUSPENDED || j->phase == MSG_JOB_FAILED;

    return leaves ? at : SH_MAX(at, j->max_step);
}

void job_fill_state(const struct job *j, struct msg_job_state *out)
{
    const int64_t at =
        job_runs(j) ? SH_MAX(j->step, (int64_t)atomic_load(&worker_page(j->w)->step)) : j->step;
    const int64_t step = reported_step(j, at);
    const int64_t now = job_runs(j) ? sh_clock_ns() - j->go_ns : 0;
    const int64_t busy = j->busy_ns + (j->evaluates ? 0 : now);
    const int64_t eval = j->eval_ns + (j->evaluates ? now : 0);
    double rate = busy > 0 ? (double)j->busy_steps * j->batch / ((double)busy / 1e9) : 0;

    *out = (struct msg_job_state){.job = j->id,
                                  .attempt = j->attempt,
                                  .state = j->phase,
                                  .step = step,
                                  .steps = j->steps,
                                  .loss = j->last_loss,
                                  .samples_per_s = rate,
                                  .redone = j->redone - (step - at),
                                  .preemptions = j->preemptions,
                                  .busy_ns = busy + eval,
                                  .rc = j->why.rc,
                                  .msg = j->phase == MSG_JOB_PREEMPTED && j->is_held ? "ImagesFirst"
                                                                                     : j->why.msg,
                                  .result = j->result ? j->result : "",
                                  .need_bytes = j->need_bytes};
}

void job_say_progress(struct job *j, bool is_last)
{
    struct msg_job_state now;

    job_fill_state(j, &now);
    job_log_progress(j->log, &now, j->busy_steps, j->batch, is_last);
}

void job_count_usage(struct job *j)
{
    const struct usage_job who = {.id = j->id, .tenant = j->tenant, .use = MSG_USE_TRAINING};
    struct msg_job_state now;

    job_fill_state(j, &now);
    if (now.busy_ns == j->counted_ns && now.step == j->counted_step)
        return;
    usage_job(j->env->report->usage, &who, now.busy_ns - j->counted_ns, now.step, j->batch);
    j->counted_ns = now.busy_ns;
    j->counted_step = now.step;
}

void job_report(struct job *j)
{
    struct sh_msg m = {.type = MSG_JOB_STATE};

    job_fill_state(j, &m.u.job_state);
    j->reported_ns = sh_clock_ns();
    j->reported_phase = j->phase;
    j->reported_held = j->is_held;
    j->reported_step = j->max_step;
    uplink_send(&j->env->report->uplink, &m);
}

void job_report_checkpoint(struct job *j)
{
    const char *folder = strrchr(j->dir, '/');
    struct sh_msg m = {.type = MSG_JOB_CHECKPOINT};
    char path[256];

    if (j->disk_step < 0 || !j->disk_digest[0]) /* or it is the one that was to be resumed from */
        return;
    snprintf(path, sizeof(path), "%s/%s", folder ? folder + 1 : j->dir, j->disk_name);
    m.u.job_checkpoint = (struct msg_job_checkpoint){.job = j->id,
                                                     .attempt = j->attempt,
                                                     .step = j->disk_step,
                                                     .path = path,
                                                     .digest = j->disk_digest,
                                                     .bytes = j->disk_bytes};
    uplink_send(&j->env->report->uplink, &m);
}

void job_report_trials(struct job *j)
{
    struct sh_msg m = {.type = MSG_JOB_EVALUATED};
    char text[SH_JOB_EVALUATION_BYTES];
    struct sh_err err = {0};

    if (!j->trials.last_step)
        return;
    if (trials_text(&j->trials, text, &err)) {
        sh_log_err(SH_LOG_WARN, "job.evaluation", &err);
        return;
    }
    m.u.job_evaluated =
        (struct msg_job_evaluated){.job = j->id, .attempt = j->attempt, .text = text};
    uplink_send(&j->env->report->uplink, &m);
}

void job_report_saved(struct job *j, const struct sh_err *why)
{
    struct sh_msg m = {.type = MSG_JOB_SAVED,
                       .u.job_saved = {.job = j->id,
                                       .attempt = j->attempt,
                                       .asked = j->save_asked,
                                       .step = j->save_step,
                                       .rc = why ? why->rc : SH_OK,
                                       .msg = why ? why->msg : ""}};

    j->save_asked = 0;
    uplink_send(&j->env->report->uplink, &m);
}

/* Going to and fro between running and preempted is told by the tick, not each time. */
void job_set_phase(struct job *j, enum msg_job_phase p)
{
    bool now = p != MSG_JOB_PREEMPTED && !(p == MSG_JOB_RUNNING && j->phase == MSG_JOB_PREEMPTED);

    if (j->phase == p && p != MSG_JOB_STARTING)
        return;
    j->phase = p;
    if (now)
        job_report(j);
}
