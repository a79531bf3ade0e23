/* pass.h - what has changed is looked at, decided, and done.
 *
 * Requests and jobs have passes of their own. One for jobs asks the index of all of them
 * (jobpool.h); why each waits it works out from time to time only, when there are many. One for
 * requests takes a snapshot of what has changed (waiting.h), and decide() decides: of the executors
 * that were touched, and for a new request of those that would answer it soonest; a few executors
 * at a time, with everything that waits on them, so that what was promised there is decided with
 * all that there is to know. */
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
    struct exec **exec_of;       /* of requests; of jobs the index is the executor's */
    struct job **job_of;
    struct model **model_of;
    struct shape **shape_of; /* parallel; NULL: the model itself */
    uint32_t *n_here;        /* parallel; executors of the snapshot where it is ready */
    struct tenant **tenant_of;
    struct idmap arrays; /* of jobs with a limit: id -> index in the snapshot */
    struct request **parts;
    double *shares;
    size_t cap_execs, cap_models, cap_places, cap_tenants, cap_requests, cap_jobs;
    size_t cap_request_of, cap_job_of, cap_exec_of, cap_model_of, cap_shape_of, cap_parts,
        cap_n_here, cap_tenant_of, cap_shares;
    size_t n_new; /* requests without an executor, in parts */
    struct decisions out;
};

void pass_fini(struct pass *p);
/* All that decisions about jobs rest on, for explain.c. Valid until the next call. Fails:
 * SH_E_NOMEM, SH_E_TOOBIG. */
int pass_snapshot(struct sched *s, struct snapshot *in, struct sh_err *err);
/* Only while leading. Log what fails. */
void pass_jobs(struct sched *s);
void pass_requests(struct sched *s);
/* A limit on requests kept one of t for m out: it is asked for all the same (demand.h). */
void pass_note_refused(const struct sched *s, const struct tenant *t, struct model *m);

#endif
