/* resume.c - reads the first state of a job: the initial one, or a checkpoint and its losses.
 *
 * That may be gigabytes, so the disk thread reads them while the loop serves requests. While
 * a job is READING, the first slot, the losses, `resume` and `resume_step` belong to the thread:
 * train_turn() takes no step, and nothing frees the job.
 */
#include "common/hash.h"
#include "common/json.h"
#include "common/log.h"
#include "common/mem.h"
#include "common/safetensors.h"
#include "executor/training/train_int.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define LOSSES_FILE_MAX ((size_t)64 << 20)

struct reading {           /* a task with what it points to */
    struct disk_task task; /* first member */
    struct job *job;
    struct sh_shm state; /* as the worker initialised it */
};

/* ------------------------------------------------------------------ on the thread */

/* The scheduler may name a file that a newer one has replaced before it heard of that. It hears of
 * the newer one now. */
static int find_resume(struct job *j, struct sh_err *err)
{
    char name[SH_CKPT_BYTES];
    int64_t best;
    char *path;
    int fd, rc;

    if (access(j->resume, F_OK) == 0 || errno != ENOENT)
        return SH_OK; /* opening it tells what is wrong */
    best = sh_ckpt_newest(j->dir, INT64_MAX, name);
    if (best < 0)
        return SH_OK;
    path = job_file(j, name);
    if (!path)
        return SH_FAIL(err, SH_E_NOMEM, "could not allocate the path of a checkpoint");
    SH_WARN("job.resume",
            "job=%" PRId64 " msg=\"the checkpoint of step %" PRId64
            " is not there; the newest is of step %" PRId64 "\"",
            j->id, j->resume_step, best);
    free(j->resume);
    j->resume = path;
    j->resume_step = best;
    sh_strlcpy(j->disk_name, name, sizeof(j->disk_name));
    fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return SH_OK; /* as above */
    rc = sh_sha256_fd(fd, j->disk_digest, &j->disk_bytes, err);
    close(fd);
    return rc;
}

static int copy_state_tensor(const struct job *j, const struct sh_st *f, size_t i, const char *name,
                             const struct slot *to, struct sh_err *err)
{
    const struct sh_st_tensor *want = &j->tensors[i], *t = sh_st_find(f, name);

    if (!t || t->bytes != want->bytes || t->dtype != want->dtype)
        return SH_FAIL(err, SH_E_INVALID,
                       "the checkpoint of step %" PRId64 " does not hold \"%s\" as this job has it",
                       j->resume_step, name);
    memcpy(job_tensor(j, to, i), t->data, t->bytes);
    return SH_OK;
}

/* What evaluations have said, and the best weights. */
static int read_trials(struct job *j, const struct sh_st *f, struct sh_err *err)
{
    const char *text = sh_st_meta(f, "evaluation");
    struct slot *best = &j->slots[0];
    int rc = SH_OK;

    if (j->trials.every && text)
        rc = trials_read(&j->trials, text, err);
    if (rc || !j->trials.best_by || !j->trials.best_step)
        return rc;
    if (j->trials.best_step != j->resume_step) {
        best = &j->slots[1];
        for (size_t i = 0; !rc && i < j->n_tensors; i++)
            if (j->best_names[i])
                rc = copy_state_tensor(j, f, i, j->best_names[i], best, err);
        best->step = j->trials.best_step;
    }
    slots_keep_best(j, best);
    return rc;
}

/* What no step writes stays as it was compiled; earlier releases wrote that, too. */
static int read_checkpoint(struct job *j, struct sh_err *err)
{
    struct sh_st *f = NULL;
    int rc = find_resume(j, err);

    if (!rc)
        rc = sh_st_open(j->resume, &f, err);
    if (rc)
        return rc;
    for (size_t i = 0; !rc && i < j->n_tensors; i++)
        if (job_is_written(j, i))
            rc = copy_state_tensor(j, f, i, j->tensors[i].name, &j->slots[0], err);
    if (!rc && sh_st_meta(f, "step"))
        rc = sh_parse_i64(sh_st_meta(f, "step"), 0, INT64_MAX, "step of the checkpoint",
                          &j->resume_step, err);
    if (!rc && j->resume_step > j->steps)
        rc = SH_FAIL(err, SH_E_INVALID,
                     "the checkpoint is of step %" PRId64 ", the job has %" PRId64 " steps",
                     j->resume_step, j->steps);
    if (!rc)
        rc = read_trials(j, f, err);
    sh_st_close(f);
    return rc;
}

/* An attempt that goes on keeps the losses of those before it. */
static void read_losses(struct job *j)
{
    char *path = job_file(j, "losses.json");
    json_t *a = NULL;

    if (path && !sh_json_load_file(path, LOSSES_FILE_MAX, &a, NULL))
        for (size_t i = 0; i < j->n_losses && i < json_array_size(a); i++) {
            const json_t *v = json_array_get(a, i);

            if ((int64_t)i * j->loss_stride < j->resume_step && json_is_number(v))
                j->losses[i] = json_number_value(v);
        }
    json_decref(a);
    free(path);
}

static int read_start_files(struct disk_task *t, struct sh_err *err)
{
    struct reading *r = (struct reading *)t;
    struct job *j = r->job;
    const char *from = r->state.base;
    int rc = SH_OK;

    memcpy(j->slots[0].mem.base, from, (size_t)j->written_bytes);
    memset(j->slots[1].mem.base, 0, (size_t)j->written_bytes); /* else the loop makes its pages */
    if (j->state_bytes > j->written_bytes)
        memcpy(j->fixed.base, from + j->written_bytes, (size_t)(j->state_bytes - j->written_bytes));
    if (!j->resume)
        return SH_OK;
    rc = read_checkpoint(j, err);
    if (!rc)
        read_losses(j);
    return rc;
}

/* ------------------------------------------------------------------ on the loop */

static void end_start(struct job *j, const struct sh_err *why)
{
    job_set_build(j, why ? JOB_RAW : JOB_BUILT);
    if (why) {
        train__fail(j, why);
        return;
    }
    slots_begin(j);
    job_report_checkpoint(j);
    if (j->resume)
        job_log_say(j->log, "goes on from the checkpoint of step %" PRId64, j->resume_step);
}

static void on_read(struct disk_task *t)
{
    struct reading *r = (struct reading *)t;

    if (t->err.rc)
        end_start(r->job, &t->err);
    else
        slots_lock(r->job, end_start);
    sh_shm_fini(&r->state);
    free(r);
}

int resume_start(struct job *j, struct sh_shm *state, struct sh_err *err)
{
    struct reading *r = calloc(1, sizeof(*r));
    int rc;

    if (!r)
        return SH_FAIL(err, SH_E_NOMEM, "could not allocate the beginning of a job");
    *r = (struct reading){
        .task = {.work = read_start_files, .done = on_read}, .job = j, .state = *state};
    rc = disk_submit(j->env->files->disk, &r->task, err);
    if (rc) {
        free(r);
        return rc;
    }
    job_set_build(j, JOB_READING);
    *state = (struct sh_shm){.fd = -1};
    return SH_OK;
}
