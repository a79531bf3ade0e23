/* store_past.c - see store.h: how long ended jobs took, for estimates. */
#include "common/job.h"
#include "common/mem.h"
#include "scheduler/database/store.h"
#include "scheduler/database/store_int.h"

#include <stdlib.h>

/* What jobs took that have ended: the part of store.h for estimates. */

/* By job_finished, from its end on. One that had more than one start was away in between. */
static const struct db_stmt PAST = {
    "past",
    "SELECT v.model_id, j.kind = 'batch_inference'," SH_JOB_STEP_SAMPLES
    ", j.step, CASE WHEN j.step + j.steps_redone > 0 THEN (j.busy_ns::float8 / (j.step +"
    " j.steps_redone) * j.step)::bigint END, CASE WHEN j.attempt <= 1 AND j.base_busy_ns = 0 THEN"
    " (extract(epoch FROM j.finished_at - j.started_at) * 1000000000)::bigint END"
    " FROM (SELECT * FROM job WHERE finished_at IS NOT NULL ORDER BY finished_at DESC LIMIT $1) j"
    " JOIN model_version v ON v.id = j.version_id WHERE j.state = 'SUCCEEDED'"
    " ORDER BY j.finished_at",
    1};

int store_past_read(struct db *db, void *arg, struct sh_err *err)
{
    struct store_past *p = arg;
    struct store_num most;
    struct db_res *r = NULL;
    int rc = db_exec(db, &PAST, (const char *const[]){store__i64(&most, STORE_PAST_JOBS)}, &r, err);

    free(p->jobs); /* of an attempt before */
    p->jobs = NULL;
    p->n = rc ? 0 : db_rows(r);
    if (p->n > 0)
        p->jobs = calloc(p->n, sizeof(*p->jobs));
    if (p->n > 0 && !p->jobs) {
        p->n = 0;
        rc = SH_FAIL(err, SH_E_NOMEM, "could not allocate the jobs that ended");
    }
    for (size_t i = 0; i < p->n; i++)
        p->jobs[i] = (struct past_job){.like = {.model_id = db_i64(r, i, 0, 0),
                                                .is_batch = db_bool(r, i, 1),
                                                .step_samples = db_i64(r, i, 2, 1)},
                                       .steps = db_i64(r, i, 3, 0),
                                       .busy_ns = db_i64(r, i, 4, 0),
                                       .whole_ns = db_i64(r, i, 5, 0)};
    db_res_free(r);
    return rc;
}

void store_past_free(void *past)
{
    struct store_past *p = past;

    if (!p)
        return;
    free(p->jobs);
    free(p);
}
