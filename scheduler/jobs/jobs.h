/* jobs.h - training and batch inference: from the queue to an executor and back, with every change
 * recorded.
 *
 * Reading. In memory are the jobs on executors, those that wait for their next attempt, and the
 * first of each line (lines.h) of the others. Every look at the database tells which jobs have
 * changed (store_view.h). Rows of a job with changes still on their way to the database are
 * ignored; the job is read again when they have arrived (doubtful). A full look from time to time
 * should find nothing new; what it does find is counted and corrected.
 *
 * Writing. One store_job_write at a time for each job carries all its pending changes; progress
 * alone is written at most once a second. The executor is told to start a job only after QUEUED ->
 * STARTING is committed.
 *
 * Wishes. What a client wants of a job on an executor stands in its row. To suspend or requeue it,
 * JOB_STOP is sent, as for our own reasons; the write that takes the job from its executor does
 * what the wish says. For a checkpoint JOB_SAVE is sent, again after a loss, until JOB_SAVED
 * answers it.
 *
 * Deadlines. A waiting job is EXPIRED when it can no longer end in time: at its deadline, or
 * earlier by the time of its remaining steps at the rate measured in its earlier starts. A running
 * job goes on.
 *
 * Failures. NaN and errors that a retry cannot cure end the job at once. Others use up an attempt
 * and wait, longer each time (BackoffUntil). A lost executor or a suspension uses up none.
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
    struct sh_tree on_execs; /* by the name of the executor, then id */
    struct sh_tree timed;    /* by when something has to be done that no message will bring */
    struct jobpool pool;     /* of all that decisions about jobs rest on */
    int64_t pool_from_ns;    /* usage in it is as of then */
    int64_t warned_ns;       /* that the pool could not take a job; warned_left: lines left out */
    uint64_t warned_left;
    struct job *touched; /* changed since jobs_sync(): list */
    int64_t reasons_ns;  /* when all learnt why they wait */
    bool reasons_writing;
    struct lines lines;
    struct store_seen seen;        /* what the last look has seen; a new leader: nothing */
    int64_t full_ns, full_took_ns; /* when the last full look was sent, and how long it took */
    bool forgetting;               /* changes already seen are being removed */
    uint64_t forgotten;            /* removed up to this transaction */
    int64_t forgot_ns;
};

void jobs_init(struct sched *s); /* before a term as leader */
void jobs_fini(struct sched *s);
/* Says what the next look has to read. Fails: SH_E_NOMEM. */
int jobs_ask(struct sched *s, struct store_view *v, struct sh_err *err);
/* Merges its result. After a failure the next look is a full one. */
int jobs_merge(struct sched *s, struct store_view *v, struct sh_err *err);

void jobs_on_exec_hello(struct sched *s, struct exec *e);
void jobs_on_exec_synced(struct sched *s, struct exec *e);
void jobs_on_exec_lost(struct sched *s, struct exec *e);
void jobs_on_exec_stopping(struct sched *s, struct exec *e); /* or not any more */
void jobs_on_state(struct sched *s, struct exec *e, const struct msg_job_state *m);
void jobs_on_evaluated(struct sched *s, struct exec *e, const struct msg_job_evaluated *m);
void jobs_on_checkpoint(struct sched *s, struct exec *e, const struct msg_job_checkpoint *m);
void jobs_on_saved(struct sched *s, struct exec *e, const struct msg_job_saved *m);
void jobs_on_model(struct sched *s, int64_t version_id, bool ready);
bool jobs_train_on(const struct sched *s, const struct exec *e); /* does a job run there now? */

/* For the pass. start: j is QUEUED, and the database knows it. */
void jobs_start(struct sched *s, struct job *j, struct exec *e);
void jobs_suspend(struct sched *s, struct job *j, enum decide_reason why);
void jobs_set_reason(struct job *j, enum decide_reason why);
bool jobs_in_window(const struct job *j); /* every waiting job that goes before it is in memory */

void jobs_tick(struct sched *s, int64_t now_ns); /* grace periods, writes that are due */
void jobs_second(struct sched *s);               /* reasons, gauges */

/* Submits every pending change. False: the database has all of them. */
bool jobs_flush_all(struct sched *s);

/* jobs_pool.c. jobs_sync(): the pool knows all that has changed. Logs what fails, and tries that
 * again the next time. */
void jobs_sync(struct sched *s);
/* What decisions rest on. False: the job is in none; what it knows of itself is not recorded. */
bool jobs_facts(const struct sched *s, const struct job *j, struct jobpool_job_facts *out);
/* Has the version of j failed there for good, where others that are up can run it? */
bool jobs__can_elsewhere(const struct sched *s, const struct job *j, const struct exec *e);
bool jobs__fits(const void *arg, uint64_t version, const struct jobpool_slot *x); /* arg: sched */
struct jobpool_now jobs_now(struct sched *s); /* for jobpool_begin() */
/* For tests: what has changed without a touch; NULL: nothing. */
const char *jobs_pool_fault(const struct sched *s);
void jobs__pool_fini(struct sched *s);
void jobs__touch(struct sched *s, struct job *j); /* it has changed, or will before the next pass */
void jobs__untouch(struct job *j);
/* Judges how much device time it takes in all: where its level may have changed, and not at each
 * report, so that jobs that take much the same do not go before each other in turns. */
void jobs__judge(struct job *j);
/* Judges what is lost if it gives way: when it starts to run, and at checkpoints. */
void jobs__judge_loss(const struct sched *s, struct job *j);
/* By the device time that it takes, or has had (lines.h). */
uint32_t jobs__level(const struct sched *s, const struct job *j);
int64_t jobs__handicap_us(const struct sched *s, const struct job *j);

/* jobs_index.c. The first job on the executor of that name, connected or not, and the one behind
 * it; NULL: none. */
struct job *jobs__first_on(const struct sched *s, const char *exec);
struct job *jobs__next_on(const struct job *j);
void jobs__enter_exec(struct sched *s, struct job *j); /* j->executor is set now */
void jobs__leave_exec(struct sched *s, struct job *j); /* it is about to be cleared; or not set */
/* The next one that the tick has to look at; it is touched, for what follows is another time. */
struct job *jobs__take_due(struct sched *s, int64_t now_ns);
int64_t jobs__due_ns(const struct sched *s, const struct job *j);
void jobs__set_due(struct sched *s, struct job *j); /* it has changed */
void jobs__never_due(struct sched *s, struct job *j);

/* Shared by jobs.c, jobs_db.c and jobs_view.c */
int64_t jobs__write_due_ns(const struct job *j);  /* jobs__flush() has something to write then */
void jobs__doubt(struct sched *s, struct job *j); /* has it read again at once */
void jobs__left_line(struct sched *s, struct job *j); /* it is starting */
/* A change by the API. */
void jobs__follow(struct sched *s, struct job *j, enum job_state db_state);
void jobs__expire(struct sched *s, struct job *j, int64_t now_ns);
void jobs__forget_changes(struct sched *s, int64_t now_ns);
void jobs__flush(struct sched *s, struct job *j); /* writes its due changes */
void jobs__requeue(struct sched *s, struct job *j, const char *reason);
/* Sends JOB_STOP to its executor, if that is connected. why: the rule, for the log of the job. */
void jobs__stop(struct sched *s, struct job *j, uint32_t how, const char *why);
void jobs__follow_wishes(struct sched *s, struct job *j); /* tells its executor, once */
bool jobs__is_busy(const struct job *j); /* a change is on its way to the database */
void jobs__remove(struct sched *s, struct job *j);
/* Its end is recorded, or its row is gone: who had it last is told, and it is removed. */
void jobs__end(struct sched *s, struct job *j);
void jobs__change(struct sched *s, struct job *j, enum job_state to, const char *reason);
void jobs__leave(struct sched *s, struct job *j);                    /* it has left its executor */
struct exec *jobs__exec(const struct sched *s, const struct job *j); /* connected, or NULL */

#endif
