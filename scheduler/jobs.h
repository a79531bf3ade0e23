/* jobs.h - training and batch inference: from the queue to an executor and back, every change
 * recorded.
 *
 * Reading: every look at the database gives the jobs that are not final. Rows of a job whose
 * changes are still on their way to the database are ignored until they have arrived.
 * Writing: one store_job_write a job at a time carries all that has gathered; progress alone at
 * most once a second.
 * The job's executor is told to start only after QUEUED -> STARTING is committed.
 *
 * Wishes: what a client asks of a job that an executor has stands in its row. A suspension or
 * requeueing is JOB_STOP, like one of our own; the write that takes the job from its executor does
 * what the wish says. A checkpoint is JOB_SAVE, said again after a loss until JOB_SAVED answers it.
 *
 * Deadlines: a job that waits is EXPIRED when it cannot end in time any more: at the deadline, or
 * earlier by the time that its remaining steps take at the rate measured in its earlier starts. One
 * that runs goes on.
 *
 * Failures: NaN and errors not worth another try end the job at once; others use up one of its
 * attempts and wait a growing while (BackoffUntil). A lost executor or a suspension uses up none.
 */
#ifndef SH_SCHEDULER_JOBS_H
#define SH_SCHEDULER_JOBS_H

#include "common/idmap.h"
#include "common/msg.h"
#include "scheduler/decide.h"
#include "scheduler/job.h"
#include "scheduler/store.h"

struct sched;
struct exec;

struct jobs {
    struct job **items; /* OWNED */
    size_t n, cap;
    struct idmap by_id;
    bool reasons_writing;
    struct jobs_gauge { /* series of shunt_jobs that exist */
        char tenant[64];
        enum job_state state;
        double n;
    } * gauges;
    size_t n_gauges, cap_gauges;
};

void jobs_fini(struct sched *s);
int jobs_merge(struct sched *s, const struct store_view *v, struct sh_err *err);

void jobs_on_exec_hello(struct sched *s, struct exec *e);
void jobs_on_exec_synced(struct sched *s, struct exec *e);
void jobs_on_exec_lost(struct sched *s, struct exec *e);
void jobs_on_state(struct sched *s, struct exec *e, const struct msg_job_state *m);
void jobs_on_checkpoint(struct sched *s, struct exec *e, const struct msg_job_checkpoint *m);
void jobs_on_saved(struct sched *s, struct exec *e, const struct msg_job_saved *m);
void jobs_on_model(struct sched *s, int64_t version_id, bool ready);
bool jobs_train_on(const struct sched *s, const struct exec *e); /* does one run there now? */

/* For the pass. */
void jobs_start(struct sched *s, struct job *j, struct exec *e);
void jobs_suspend(struct sched *s, struct job *j, enum decide_reason why);
void jobs_set_reason(struct job *j, enum decide_reason why);

void jobs_tick(struct sched *s, int64_t now_ns); /* grace periods, writes that are due */
void jobs_second(struct sched *s);               /* reasons, gauges */

/* Hands over every change that waits. False: the database has all of them. */
bool jobs_flush_all(struct sched *s);

/* Between jobs.c and jobs_db.c */
void jobs__flush(struct sched *s, struct job *j); /* writes what is due */
void jobs__requeue(struct sched *s, struct job *j, const char *reason);
void jobs__stop(struct sched *s, struct job *j, uint32_t how); /* JOB_STOP to its executor */
void jobs__follow_wishes(struct sched *s, struct job *j);      /* tells its executor, once */
bool jobs__is_busy(const struct job *j); /* a change is on its way to the database */
void jobs__remove(struct sched *s, struct job *j);
void jobs__change(struct sched *s, struct job *j, enum job_state to, const char *reason);
void jobs__leave(struct sched *s, struct job *j);              /* no executor has it any more */
struct exec *jobs__exec(struct sched *s, const struct job *j); /* connected, or NULL */

#endif
