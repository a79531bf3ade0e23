/* job.h - what API, scheduler and executor know alike of a job. */
#ifndef SH_COMMON_JOB_H
#define SH_COMMON_JOB_H

#include "common/job_state.h"
#include "common/json.h"

#define SH_JOB_BATCH 32 /* samples of a training step, where the spec says none */

#define SH_JOB_EVALUATION_BYTES 512 /* what its evaluations say so far, as JSON, with its end */

/* SQL: `at` of an event. Not now(), when the transaction began: the job's row is locked by then, so
 * its events have times in their order, unless the clock is set. */
#define SH_JOB_EVENT_TIME "clock_timestamp()"

/* SQL: `path` of each package and dataset below blobs/ that rows refer to: what no sweep may take,
 * and no backup may lack. Deleting what a live job uses is refused; should such a job be there all
 * the same, its files stay until it ends. */
#define SH_JOB_BLOBS                                                                              \
    "SELECT v.package AS path FROM model_version v WHERE v.package IS NOT NULL AND (v.state <> "  \
    "'DELETED' OR EXISTS (SELECT 1 FROM job j WHERE j.version_id = v.id AND j.state NOT "         \
    "IN " SH_JOB_FINAL                                                                            \
    ")) UNION SELECT d.path FROM dataset d WHERE d.path IS NOT NULL AND (d.state <> "             \
    "'DELETED' OR EXISTS (SELECT 1 FROM job j WHERE (j.dataset_id = d.id OR j.eval_dataset_id = " \
    "d.id) AND j.state NOT IN " SH_JOB_FINAL "))"

/* Fields of a spec are called "batch" or "optimizer.lr"; one of the optimizer may be "lr" as well.
 * Without what stands before the dot. */
const char *sh_job_field_name(const char *path);
/* Sets one in the job's spec. A spec that is no object stays so: who reads it says what is wrong.
 * Fails: SH_E_NOMEM. */
int sh_job_set_field(json_t *job, const char *path, json_t *value, struct sh_err *err);

#endif
