/* job.h - the life of a job, and the only way to change it.
 *
 *   QUEUED     -> STARTING    it gets a slot                             [jobs_start]
 *   QUEUED     -> FAILED      its model or dataset is gone               [jobs_start]
 *   QUEUED     -> HELD        held                                       [api]
 *   HELD       -> QUEUED      released                                   [api]
 *   SUSPENDED  -> QUEUED      resumed                                    [api]
 *   QUEUED, HELD, SUSPENDED
 *              -> CANCELLED   cancelled while no executor has it         [api]
 *              -> EXPIRED     it can no longer end by its deadline       [jobs_tick]
 *   STARTING, PREEMPTED -> RUNNING   its executor works on it            [jobs_on_state]
 *   STARTING, RUNNING -> PREEMPTED   inference took the device           [jobs_on_state]
 *   STARTING, RUNNING, PREEMPTED -> COMPLETING   all but its end is done [jobs_on_state]
 *   COMPLETING -> SUCCEEDED   its result is complete, perhaps a version  [jobs_on_state]
 *   STARTING, RUNNING, PREEMPTED, COMPLETING
 *              -> FAILED      no attempts left, or not worth another     [jobs_on_state]
 *              -> QUEUED      another attempt; slot given up             [jobs_on_state]
 *              -> QUEUED      its executor is gone                       [jobs__requeue]
 *              -> SUSPENDED   instead of QUEUED, if a client asked       [store_job_write]
 *              -> CANCELLING  cancelled while an executor has it         [api]
 *   CANCELLING -> CANCELLED   it has stopped                             [jobs_on_state]
 *   CANCELLING -> CANCELLED   its executor is gone                       [jobs__requeue]
 *
 *   SUCCEEDED, FAILED, CANCELLED and EXPIRED are final; the database enforces it.
 *   Invariant: `executor` is set  <=>  state is STARTING .. CANCELLING.
 *
 * A change takes effect in memory at once and waits in `pending`, in order and with its event,
 * until the database has it (store_job_write). If a job alternates between RUNNING and PREEMPTED
 * while the database is slow, two opposite changes cancel out, so `pending` stays short. Changes by
 * [api] come from the database: job_adopt_state().
 *
 * A client's wish for a job on an executor (suspend, requeue, checkpoint now) is a column of its
 * row, which the API sets and jobs.c passes on (jobs__follow_wishes). Such a job goes to QUEUED
 * here; the statement that writes it decides whether it becomes SUSPENDED, because it sees the wish
 * of that moment.
 *
 * Not thread-safe. Times are sh_clock_ns.
 */
#ifndef SH_SCHEDULER_DECIDE_JOB_H
#define SH_SCHEDULER_DECIDE_JOB_H

#include "common/due.h"
#include "common/err.h"
#include "common/job.h"
#include "scheduler/decide/jobpool.h"
#include "scheduler/decide/lines.h"
#include "scheduler/decide/loss.h"
#include "scheduler/decide/past.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum job_state {
#define X(name) JOB_##name,
    SH_JOB_STATES(X, )
#undef X
        JOB_N_STATES
};

#define JOB_MAX_PENDING 8
#define JOB_MAX_CHECKPOINTS 16
#define JOB_NAME_BYTES 128

struct job_change {
    enum job_state from, to;
    char reason[40];
    int64_t step;
};

struct job_checkpoint {
    int64_t step;
    uint32_t attempt;
    uint64_t bytes;
    char digest[65];
    char path[256]; /* relative to the job root */
};

enum job_wish { JOB_WISH_NONE, JOB_WISH_SUSPEND, JOB_WISH_REQUEUE };

struct job_saved { /* the outcome of a checkpoint that a client asked for */
    int64_t asked; /* number of the request; 0: nothing to report */
    int64_t step;
    int rc;
    char msg[256];
};

struct job_progress { /* totals over all starts of the job */
    int64_t step, steps;
    double loss, samples_per_s; /* NaN: unknown */
    int64_t redone, preemptions, busy_ns;
};

struct job {
    int64_t id, tenant_id, queue_id, version_id, model_id;
    enum job_state state; /* written by job_set_state() and job_adopt_state() only */
    int32_t priority;     /* including its queue's */
    int64_t queued_us;
    struct line_place place; /* in its line; excludes its queue's priority */
    struct line *line;       /* BORROWED; while QUEUED, as of the last look; NULL: none */
    bool retries;            /* QUEUED after a failure: in no line, always in memory */
    bool doubtful;           /* read it again, even if the database reports no change */
    bool queue_open, model_ready, model_gone, preemptible;
    bool is_batch;        /* batch inference; else training */
    uint32_t gpus;        /* that it has at once */
    bool publishes;       /* its result becomes a version */
    int64_t step_samples; /* samples of one step */
    int64_t all_steps;    /* by its spec and dataset; 0: unknown */
    int64_t array_id;     /* 0: none */
    uint32_t array_max;   /* most jobs of the array on executors at once; 0: no limit */
    int64_t min_run_ns;   /* 0: the scheduler's */
    int64_t deadline_ns;  /* 0: none */
    enum job_wish wish;
    /* checkpoint requests: by the client, and sent to the executor */
    int64_t save_asked, save_sent;
    struct job_saved saved; /* not in the database yet */
    uint32_t attempt, max_attempts;
    char executor[JOB_NAME_BYTES]; /* "" while no executor has it */
    char last_executor[JOB_NAME_BYTES];
    char tenant[64];
    char model[JOB_NAME_BYTES + 1]; /* for events and metrics */

    bool sent;             /* JOB_START was sent to `executor`, or it reported the job */
    bool starting_write;   /* the start is being recorded */
    bool stopping;         /* JOB_STOP suspend was sent */
    uint64_t seen_session; /* session in which the executor last reported it */
    bool is_held;          /* while PREEMPTED: for images (ImagesFirst), not for a run */
    int64_t placed_ns;     /* when it was given to an executor; 0: before we led */
    int64_t since_ns;      /* start of the current run, or when we began to lead */
    int64_t since_step;    /* its step at since_ns */
    int64_t start_ns;      /* what its last start took; 0: not known */
    uint64_t state_bytes;  /* of its newest checkpoint; 0: none since we began to lead */
    struct loss loss;      /* as last judged while it runs; 0: not yet */
    int64_t lost_ns;       /* when its executor disconnected, or when we began to lead */
    int64_t not_before_ns; /* back-off */
    uint64_t need_bytes;   /* device memory it needs, once there was too little; 0: unknown */
    int64_t backoff_ns;    /* length, for the change to QUEUED in `pending` */
    uint64_t seen_poll;

    struct job_progress progress, base; /* base: totals of earlier starts */
    int64_t takes_ns;                   /* device time in all, as last judged; 0: not yet */
    int64_t checkpoint_step;            /* of the newest known checkpoint; -1: none */
    bool progress_dirty;
    int64_t progress_at_ns;              /* last write of progress */
    char reason[40], reason_written[40]; /* while QUEUED */

    struct job_change pending[JOB_MAX_PENDING];
    size_t n_pending;
    struct job_checkpoint *checkpoints; /* OWNED; not in the database yet; NULL: none so far */
    size_t n_checkpoints;
    bool writing;                             /* a store_job_write is under way */
    char evaluation[SH_JOB_EVALUATION_BYTES]; /* JSON from the executor; "": none in this start */
    char *result;                             /* OWNED: JSON from the executor, when it is done */
    int error_rc;                             /* of the last failure */
    char error[512];

    size_t at;                   /* its place in jobs.items */
    struct sh_tree_node on_exec; /* jobs.on_execs: while executor is set */
    struct sh_due due;           /* jobs.timed: jobs_tick() looks at it then */
    struct jobpool_job pooled;
    struct job *next_touched, **touched_at; /* jobs.touched; touched_at NULL: it is not in it */
};

const char *job_state_name(enum job_state s); /* BORROWED, static */
/* Fails: SH_E_INVALID naming the text. */
int job_state_parse(const char *name, enum job_state *out, struct sh_err *err);
bool job_state_is_final(enum job_state s);
bool job_state_has_executor(enum job_state s); /* STARTING .. CANCELLING */
extern const struct sh_life JOB_LIFE;          /* common/life.h */
bool job_can(enum job_state from, enum job_state to);

/* Changes the state by our own decision. Fails: SH_E_CONFLICT (not an arrow above), SH_E_TOOBIG
 * (pending is full); the job is then unchanged. */
int job_set_state(struct job *j, enum job_state to, const char *reason, struct sh_err *err);
/* The database has another state (the API changed it): adopts it and drops pending changes, which
 * never happened. */
void job_adopt_state(struct job *j, enum job_state s);
/* Drops the oldest if JOB_MAX_CHECKPOINTS are waiting. Fails: SH_E_NOMEM. */
int job_add_checkpoint(struct job *j, const struct job_checkpoint *c, struct sh_err *err);
/* Least time that the remaining steps take, by the measured device time of earlier steps; 0:
 * nothing was measured. */
int64_t job_least_left_ns(const struct job *j);
struct past_like job_like(const struct job *j); /* the features of jobs that take equally long */
void job_free(struct job *j);                   /* NULL is allowed */

#endif
