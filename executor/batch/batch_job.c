/* batch_job.c - creates a batch inference job from the scheduler's message, and frees it. */
#include "common/clock.h"
#include "common/json.h"
#include "common/mem.h"
#include "common/units.h"
#include "executor/batch/batch_int.h"
#include "executor/files/push.h"
#include "executor/pool/pool.h"
#include "executor/requests/slabs.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#define MAX_JSON ((size_t)1 << 20)
#define INTERVAL_MS 10000

/* May another attempt come here for what is durable? After DONE too, if this process dies before
 * the scheduler has heard of it: the folder stays until JOB_ENDED. */
static bool may_come_back(const struct batch_job *j)
{
    return j->phase == MSG_JOB_SUSPENDED || j->phase == MSG_JOB_DONE ||
           (j->phase == MSG_JOB_FAILED && sh_rc_retry(j->why.rc) && j->durable_at > 0);
}

void batch__job_free(struct batch_job *j)
{
    if (!j)
        return;
    push_cancel(j->push);
    blob_set_drop(&j->blobs);
    if (j->has_slab)
        slabs_drop(j->env->slabs, j->slab_id);
    sh_shm_fini(&j->slab);
    job_log_close(j->log);
    batch_io_close(j);
    /* What was done so far is of use to this executor alone (push.h). */
    if (j->dir && j->has_ended && !may_come_back(j))
        push_forget_job(j->env->files, j->dir);
    json_decref(j->spec);
    json_decref(j->inputs);
    json_decref(j->outputs);
    free(j->tenant);
    free(j->model);
    free(j->dataset);
    free(j->dir);
    free(j->resume_digest);
    free(j->result);
    free(j);
}

static int read_batch_spec(struct batch_job *j, struct sh_err *err)
{
    struct batch_spec b;
    int rc = batch_spec_read(j->spec, "spec", &b, err);

    if (b.checkpoint_interval_ms == 0)
        b.checkpoint_interval_ms = j->env->checkpoint_interval_ms;
    if (b.checkpoint_interval_ms == 0)
        b.checkpoint_interval_ms = INTERVAL_MS;
    j->batch = b.batch;
    j->interval_ns = SH_MS(b.checkpoint_interval_ms);
    return rc;
}

static int parse_spec_text(const char *text, json_t **out, struct sh_err *err)
{
    return sh_json_parse(text, strlen(text), MAX_JSON, out, err);
}

static int fill_batch_job(struct batch_job *j, const struct msg_batch_start *m, struct sh_err *err)
{
    int rc = sh_strdup(m->tenant, &j->tenant, err);

    if (!rc)
        rc = sh_strdup(m->model, &j->model, err);
    if (!rc)
        rc = sh_strdup(m->resume_digest, &j->resume_digest, err);
    if (!rc)
        rc = files_path(j->env->files, "blobs", m->dataset, &j->dataset, err);
    if (!rc)
        rc = files_path(j->env->files, "jobs", m->dir, &j->dir, err);
    if (!rc)
        rc = parse_spec_text(m->spec, &j->spec, err);
    if (!rc)
        rc = parse_spec_text(m->inputs, &j->inputs, err);
    if (!rc)
        rc = parse_spec_text(m->outputs, &j->outputs, err);
    if (!rc)
        rc = read_batch_spec(j, err);
    if (!rc && mkdir(j->dir, 0750) < 0 && errno != EEXIST)
        rc = SH_FAIL_ERRNO(err, SH_E_IO, "could not make the folder of the job");
    if (!rc)
        j->log = job_log_open(&j->env->report->logs,
                              &(struct job_log_conf){m->job, m->attempt, j->dir, m->about, "sample",
                                                     m->redone, m->preemptions});
    if (!rc)
        rc = blob_want(j->env->files->blobs, &j->blobs, m->dataset, err);
    return rc;
}

int batch__job_new(const struct batch_env *env, const struct msg_batch_start *m,
                   struct batch_job **out, struct sh_err *err)
{
    struct batch_job *j = calloc(1, sizeof(*j));
    int rc;

    *out = NULL;
    if (!j)
        return SH_FAIL(err, SH_E_NOMEM, "could not allocate a job");
    *j = (struct batch_job){.env = env,
                            .id = m->job,
                            .attempt = m->attempt,
                            .placement = m->placement,
                            .version_id = m->version_id,
                            .resume_at = m->resume_step,
                            .ran_at = m->resume_step, /* as reported until it is open */
                            .fd = -1,
                            .slab = {.fd = -1},
                            .phase = MSG_JOB_STARTING,
                            .start_ns = sh_clock_ns()};
    j->misc.job = j;
    for (size_t i = 0; i < BATCH_N_SLOTS; i++)
        j->slots[i].job = j;
    rc = m->job > 0 && m->resume_step >= 0
             ? SH_OK
             : SH_FAIL(err, SH_E_INVALID, "a job needs a positive number");
    if (!rc)
        rc = fill_batch_job(j, m, err);
    if (rc) {
        batch__job_free(j);
        return rc;
    }
    *out = j;
    return SH_OK;
}
