/* jobs.h - training and batch inference: from the queue to an executor and back, every change
 * recorded.
 *
 * Reading: held are the jobs that executors have, those that wait for their next attempt, and of
 * the others the first of each line (lines.h). Every look at the database tells which jobs have
 * changed (store_view.h). Rows of a job whose changes are still on their way to the database are
 * ignored; it is read again when they have arrived (doubtful). A full look now and then finds
 * nothing new: what it does find is counted and mended.
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
#ifndef SH_SCHEDULER_JOBS_JOBS_H
#define SH_SCHEDULER_JOBS_JOBS_H

#include "common/idmap.h"
#include "common/msg.h"
#include "scheduler/database/store.h"
#include "scheduler/database/store_view.h"
#include "scheduler/decide/decide.h"
#include "scheduler/decide/job.h"

struct sched;
struct exec;

struct jobs {
    struct job **items; /* OWNED */
    size_t n, cap;
    struct idmap by_id;
    bool reasons_writing;
    struct lines lines;
    struct store_seen seen;        /* by the last look; a new leader has seen nothing */
    int64_t full_ns, full_took_ns; /* when the last full look was sent, and how long it took */
    bool forgetting;               /* changes that were seen are being removed */
    uint64_t forgotten;            /* up to this transaction they have been */
    int64_t forgot_ns;
};

void jobs_fini(struct sched *s);
/* What the next look has to bring. Fails: SH_E_NOMEM. */
int jobs_ask(struct sched *s, struct store_view *v, struct sh_err *err);
/* Takes what it has brought. After a failure the next look is a full one. */
int jobs_merge(struct sched *s, struct store_view *v, struct sh_err *err);

void jobs_on_exec_hello(struct sched *s, struct exec *e);
void jobs_on_exec_synced(struct sched *s, struct exec *e);
void jobs_on_exec_lost(struct sched *s, struct exec *e);
void jobs_on_state(struct sched *s, struct exec *e, const struct msg_job_state *m);
void jobs_on_evaluated(struct sched *s, struct exec *e, const struct msg_job_evaluated *m);
void jobs_on_checkpoint(struct sched *s, struct exec *e, const struct msg_job_checkpoint *m);
void jobs_on_saved(struct sched *s, struct exec *e, const struct msg_job_saved *m);
void jobs_on_model(struct sched *s, int64_t version_id, bool ready);
bool jobs_train_on(const struct sched *s, const struct exec *e); /* does one run there now? */

/* For the pass. */
void jobs_start(struct sched *s, struct job *j, struct exec *e);
void jobs_suspend(struct sched *s, struct job *j, enum decide_reason why);
void jobs_set_reason(struct job *j, enum decide_reason why);
bool jobs_in_window(const struct job *j); /* none that waits goes before it and is not held */

void jobs_tick(struct sched *s, int64_t now_ns); /* grace periods, writes that are due */
void jobs_second(struct sched *s);               /* reasons, gauges */

/* Hands over every change that waits. False: the database has all of them. */
bool jobs_flush_all(struct sched *s);

/* Between jobs.c, jobs_db.c and jobs_view.c */
void jobs__doubt(struct sched *s, struct job *j);     /* to be read again at once */
void jobs__left_line(struct sched *s, struct job *j); /* it starts */
void jobs__follow(struct sched *s, struct job *j, enum job_state db_state); /* the API's doing */
void jobs__expire(struct sched *s, struct job *j, int64_t now_ns);
void jobs__forget_changes(struct sched *s, int64_t now_ns);
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
