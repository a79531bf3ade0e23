/* pass.h - one round: takes a snapshot, calls decide(), and carries out its decisions. */
#ifndef SH_SCHEDULER_PASS_PASS_H
#define SH_SCHEDULER_PASS_PASS_H

#include "common/idmap.h"
#include "scheduler/decide/decide.h"

struct sched;
struct request;
struct job;
struct model;
struct tenant;

struct pass { /* memory reused from pass to pass; all OWNED, pass_fini() */
    struct snap_exec *execs;
    struct snap_model *models;
    struct snap_place *places;
    struct snap_tenant *tenants;
    struct snap_request *requests;
    struct snap_job *jobs;
    struct request **request_of; /* by index in the snapshot */
    struct job **job_of;
    struct model **model_of;
    struct shape **shape_of; /* parallel; NULL: the model itself */
    struct idmap arrays;     /* of jobs with a limit: id -> index in the snapshot */
    struct request **parts;
    size_t cap_execs, cap_models, cap_places, cap_tenants, cap_requests, cap_jobs;
    size_t cap_request_of, cap_job_of, cap_model_of, cap_shape_of, cap_parts;
    struct decisions out;
};

void pass_fini(struct pass *p);
/* What a pass would see. Valid until the next call of pass_snapshot() or pass_run(). Fails:
 * SH_E_NOMEM, SH_E_TOOBIG. */
int pass_snapshot(struct sched *s, bool with_jobs, struct snapshot *in, struct sh_err *err);
/* Only while leading. Logs failures. */
void pass_run(struct sched *s, bool with_jobs);

#endif
