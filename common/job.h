/* job.h - what the API, the scheduler and executors share about jobs. */
#ifndef SH_COMMON_JOB_H
#define SH_COMMON_JOB_H

#include "common/job_state.h"
#include "common/json.h"

/* GPUs of a job: as many as it may name, and as many as this release runs one on at once. */
#define SH_JOB_MOST_GPUS 1024
#define SH_JOB_MAX_GPUS 1

#define SH_JOB_BATCH 32 /* samples in a training step, if the spec names none */

#define SH_JOB_EVALUATION_BYTES 512 /* its evaluations so far, as JSON, with the NUL */

/* SQL: `at` of an event. Not now(), the start of the transaction: the job's row is locked by this
 * time, so the times of its events are in order, unless the clock is set. */
#define SH_JOB_EVENT_TIME "clock_timestamp()"

/* SQL: `path` of each package and dataset below blobs/ that rows refer to: no sweep may remove it
 * and no backup may lack it. Deleting what a live job uses is refused; if there is such a job
 * anyway, its files stay until it ends. */
#define SH_JOB_BLOBS                                                                              \
    "SELECT v.package AS path FROM model_version v WHERE v.package IS NOT NULL AND (v.state <> "  \
    "'DELETED' OR EXISTS (SELECT 1 FROM job j WHERE j.version_id = v.id AND j.state NOT "         \
    "IN " SH_JOB_FINAL                                                                            \
    ")) UNION SELECT d.path FROM dataset d WHERE d.path IS NOT NULL AND (d.state <> "             \
    "'DELETED' OR EXISTS (SELECT 1 FROM job j WHERE (j.dataset_id = d.id OR j.eval_dataset_id = " \
    "d.id) AND j.state NOT IN " SH_JOB_FINAL "))"

/* SQL: samples of one step of job j. */
#define SH_JOB_STEP_SAMPLES                \
    " CASE WHEN j.kind = 'training' THEN " \
    "coalesce((j.spec->>'batch')::numeric::bigint, " DB_NUMBER(SH_JOB_BATCH) ") ELSE 1 END"

/* SQL: steps of job j with dataset d, as the worker will count them (executor/worker/data.c); 0:
 * not known. No product of what tenants name may overflow, and no number of theirs be written in a
 * way that is refused, such as 4.0: the look of all would fail. */
#define SH_JOB_STEPS                                                                         \
    " coalesce(CASE WHEN j.kind <> 'training' THEN d.n_samples"                              \
    " ELSE coalesce((j.spec->>'steps')::numeric::bigint, least((j.spec->>'epochs')::numeric" \
    "  * (d.n_samples / nullif(" SH_JOB_STEP_SAMPLES ", 0)), 1e15)::bigint) END, 0)"

/* Fields of a spec have paths like "batch" or "optimizer.lr"; an optimizer's field may also be just
 * "lr". Returns what follows the dot. */
const char *sh_job_field_name(const char *path);
/* Sets a field in the job's spec. A spec that is no object is left alone; whoever reads it reports
 * that. Fails: SH_E_NOMEM. */
int sh_job_set_field(json_t *job, const char *path, json_t *value, struct sh_err *err);

#endif
