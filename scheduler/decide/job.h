/* job.h - the life of a job, and the only way to change it.
 *
 *   QUEUED     -> STARTING    a slot was given to it                     [jobs_start]
 *   QUEUED     -> FAILED      its model or dataset is gone               [jobs_start]
 *   QUEUED     -> HELD        held                                       [api]
 *   HELD       -> QUEUED      released                                   [api]
 *   SUSPENDED  -> QUEUED      resumed                                    [api]
 *   QUEUED, HELD, SUSPENDED
 *              -> CANCELLED   cancelled while no executor has it         [api]
 *              -> EXPIRED     it cannot end by its deadline any more     [jobs_tick]
 *   STARTING, PREEMPTED -> RUNNING   its executor works on it            [jobs_on_state]
 *   STARTING, RUNNING -> PREEMPTED   inference took the device           [jobs_on_state]
 *   STARTING, RUNNING, PREEMPTED -> COMPLETING   all but its end done   [jobs_on_state]
 *   COMPLETING -> SUCCEEDED   its result is whole; a version perhaps     [jobs_on_state]
 *   STARTING, RUNNING, PREEMPTED, COMPLETING
 *              -> FAILED      no more attempts, or not worth one         [jobs_on_state]
 *              -> QUEUED      another attempt; slot given up             [jobs_on_state]
 *              -> QUEUED      its executor is gone                       [jobs__requeue]
 *              -> SUSPENDED   the same two, when a client asked for it   [store_job_write]
 *              -> CANCELLING  cancelled while an executor has it         [api]
 *   CANCELLING -> CANCELLED   it has stopped                             [jobs_on_state]
 *   CANCELLING -> CANCELLED   its executor is gone                       [jobs__requeue]
 *
 *   SUCCEEDED, FAILED, CANCELLED and EXPIRED are final; the database insists on it.
 *   Invariant: `executor` is set  <=>  state is STARTING .. CANCELLING.
 *
 * A change happens in memory at once and waits in `pending` until the database has it, in order,
 * together with its event (store_job_write). A job that flips between RUNNING and PREEMPTED while
 * the database is slow folds two opposite changes into none, so `pending` stays short.
 * Changes by [api] come from the database: job_adopt_state().
 *
 * A client's wish for a job that an executor has (suspend, requeue, a checkpoint now) is a column
 * of its row, which the API sets and jobs.c passes on (jobs__follow_wishes). Such a job goes to
 * QUEUED here; whether that becomes SUSPENDED is for the statement that writes it: it sees the
 * wish of that very moment.
 *
 * Not thread-safe. Times are sh_clock_ns.
 */
#ifndef SH_SCHEDULER_DECIDE_JOB_H
#define SH_SCHEDULER_DECIDE_JOB_H

#include "common/err.h"
#include "common/job.h"
#include "scheduler/decide/lines.h"
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

struct job_saved { /* what became of a checkpoint that a client asked for */
    int64_t asked; /* number of the wish; 0: there is nothing to tell */
    int64_t step;
    int rc;
    char msg[256];
};

struct job_progress { /* totals over all starts of the job */
    int64_t step, steps;
    double loss, samples_per_s; /* NaN: not known yet */
    int64_t redone, preemptions, busy_ns;
};

struct job {
    int64_t id, tenant_id, queue_id, version_id, model_id;
    enum job_state state;    /* written by job_set_state() and job_adopt_state() only */
    int32_t priority;        /* its queue's included */
    struct line_place place; /* in its line; without its queue's priority */
    struct line *line;       /* BORROWED; while QUEUED, as of the last look; NULL: in none */
    bool retries;            /* QUEUED after a failure: in no line, and always held */
    bool doubtful; /* to be read again, whether the database says that it changed or not */
    bool queue_open, model_ready, model_gone, preemptible;
    bool is_batch;        /* batch inference; else training */
    bool publishes;       /* what it trains becomes a version */
    int64_t step_samples; /* of one step */
    int64_t all_steps;    /* by its spec and dataset; 0: not known */
    int64_t array_id;     /* 0: of none */
    uint32_t array_max;   /* so many of the array have an executor at once; 0: no limit */
    int64_t min_run_ns;   /* 0: the scheduler's */
    int64_t deadline_ns;  /* 0: none */
    enum job_wish wish;
    int64_t save_asked, save_sent; /* checkpoints: asked for, and told to the executor */
    struct job_saved saved;        /* not yet in the database */
    uint32_t attempt, max_attempts;
    char executor[JOB_NAME_BYTES]; /* "" while no executor has it */
    char last_executor[JOB_NAME_BYTES];
    char tenant[64];
    char model[JOB_NAME_BYTES + 1]; /* for events and metrics */

    bool sent;             /* JOB_START went to `executor`, or it reported the job */
    bool starting_write;   /* the start is being recorded */
    bool stopping;         /* JOB_STOP suspend was sent */
    uint64_t seen_session; /* session in which the executor last reported it */
    int64_t placed_ns;     /* when an executor was asked to run it; 0: before we began to lead */
    int64_t since_ns;      /* start of the present run, or when we began to lead */
    int64_t since_step;    /* its step then */
    int64_t lost_ns;       /* when its executor went away, or when we began to lead */
    int64_t not_before_ns; /* back-off */
    uint64_t need_bytes;   /* of device memory, where it was too much once; 0: not known to be */
    int64_t backoff_ns;    /* its length, for the change to QUEUED that waits in `pending` */
    uint64_t seen_poll;

    struct job_progress progress, base; /* base: totals of earlier starts */
    int64_t checkpoint_step;            /* of the newest checkpoint; -1: none that we know of */
    bool progress_dirty;
    int64_t progress_at_ns;              /* last write of progress */
    char reason[40], reason_written[40]; /* while QUEUED */

    struct job_change pending[JOB_MAX_PENDING];
    size_t n_pending;
    struct job_checkpoint *checkpoints; /* OWNED; not yet in the database; NULL until the first */
    size_t n_checkpoints;
    bool writing;                             /* a store_job_write is on its way */
    char evaluation[SH_JOB_EVALUATION_BYTES]; /* JSON from the executor; "": none of this start */
    char *result;                             /* OWNED: JSON from the executor, when it is done */
    int error_rc;                             /* of the last failure */
    char error[512];
};

const char *job_state_name(enum job_state s); /* BORROWED, static */
/* Fails: SH_E_INVALID naming the text. */
int job_state_parse(const char *name, enum job_state *out, struct sh_err *err);
bool job_state_is_final(enum job_state s);
bool job_state_has_executor(enum job_state s); /* STARTING .. CANCELLING */
extern const struct sh_life JOB_LIFE;          /* common/life.h */
bool job_can(enum job_state from, enum job_state to);

/* The only writer of the state by our own will. Fails: SH_E_CONFLICT (not an arrow above),
 * SH_E_TOOBIG (pending is full); the job is unchanged. */
int job_set_state(struct job *j, enum job_state to, const char *reason, struct sh_err *err);
/* The database has another state than we thought (the API changed it): takes it over and forgets
 * what was pending, because that never happened. */
void job_adopt_state(struct job *j, enum job_state s);
/* Drops the oldest if JOB_MAX_CHECKPOINTS wait already. Fails: SH_E_NOMEM. */
int job_add_checkpoint(struct job *j, const struct job_checkpoint *c, struct sh_err *err);
/* How long the steps that are left take at least, by what its steps took on the device so far; 0 if
 * none was measured. */
int64_t job_least_left_ns(const struct job *j);
struct past_like job_like(const struct job *j); /* what makes others take as long */
void job_free(struct job *j);                   /* NULL is allowed */

#endif
