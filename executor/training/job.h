/* job.h - the training job, shared by the files of this room. train.c moves it, job.c creates and
 * reports it, resume.c reads its first state, job_state.c knows what its state is made of, slots.c
 * keeps it in host memory and on disk, finish.c turns it into a served model.
 *
 * A state has two parts. Steps write the first `written_bytes` of it: parameters that learn, their
 * optimizer's state, running statistics. The rest never changes (frozen parameters, constants):
 * host memory has it once, in `fixed`, as it was compiled. So only the first part is copied from
 * the device and is in checkpoints; both are copied to it. */
#ifndef SH_EXECUTOR_TRAINING_JOB_H
#define SH_EXECUTOR_TRAINING_JOB_H

#include "common/ckpt.h"
#include "common/safetensors.h"
#include "executor/files/blobs.h"
#include "executor/files/disk.h"
#include "executor/memory/locking.h"
#include "executor/report/job_log.h"
#include "executor/training/crashes.h"
#include "executor/training/interval.h"
#include "executor/training/train.h"
#include "executor/training/trials.h"

#include <jansson.h>

#define JOB_MAX_DEATHS 3        /* consecutive deaths of workers (crashes.h) */
#define JOB_MAX_LOSSES 1000000u /* if there are more steps: every k-th */
#define JOB_N_SLOTS 4           /* two, one more while a write holds the older, and the best */

/* Where the job stands, on the device and in its worker:
 *
 *   OFF       nothing of it is on the device; its state is in a slot
 *   LOADED    its state is on the device                           OFF: load_state
 *   READY     so is its workspace                                  LOADED: take_device
 *   RUNNING   its worker was told to go on                         READY, PAUSED: send_go
 *   STOPPING  it was told to stop and has not answered             RUNNING: raise_stop
 *   YIELDING  the same, for a run that waits for it                RUNNING: raise_stop
 *   PAUSED    it has stopped between two operations                from running: train_on_stopped
 *   LOST      its worker died in a step: the state is torn         from running, PAUSED:
 *   lose_worker
 *
 * READY and PAUSED to LOADED: the workspace is given up. LOADED and LOST to OFF: so is the
 * state. */
enum job_stand {
    JOB_OFF,
    JOB_LOADED,
    JOB_READY,
    JOB_RUNNING,
    JOB_STOPPING,
    JOB_YIELDING,
    JOB_PAUSED,
    JOB_LOST,
    JOB_N_STANDS
};

/* Its first state, and how to compute it:
 *
 *   RAW      no worker has compiled it, or its state could not be read
 *   READING  a worker has; the state is being read, then page-locked, and no step is taken
 *                                                                          [resume_start]
 *   BUILT    there is a state to start from                             [resume.c: end_start]
 *
 * READING to RAW: the state could not be read or locked, and the job fails. */
enum job_build { JOB_RAW, JOB_READING, JOB_BUILT, JOB_N_BUILDS };

enum job_end { END_NONE, END_DONE, END_SUSPEND, END_FAIL, END_CANCEL };

/* What a slot holds:
 *
 *   EMPTY    nothing valid
 *   FILLING  a copy from the device is under way                              [slots_copy_out]
 *   TORN     the same, but the state may change during the copy: it will not be valid
 *   WHOLE    the valid state of its step                        [slots_begin, slots.c: on_copied]
 *
 * WHOLE to EMPTY: reused. FILLING to WHOLE, TORN to EMPTY: the copy is complete. */
enum copy_state { COPY_EMPTY, COPY_FILLING, COPY_TORN, COPY_WHOLE, COPY_N_STATES };

struct slot { /* one copy in host memory of what steps write of the state */
    struct sh_shm mem;
    int64_t step;
    int64_t taken_ns;      /* when its copy began: so old is the state, not the copy */
    enum copy_state state; /* written by slots.c */
    struct lock_task lock; /* nothing is copied there before all of it is locked */
    bool is_writing;       /* the disk thread reads it */
    /* kept even if others are newer; read from a checkpoint, it may hold weights only */
    bool is_best;
};

struct finish; /* finish.c */
struct job;
struct ckpt_write; /* slots.c */

typedef void job_locked_fn(struct job *j, const struct sh_err *why); /* why: NULL, or why not */

struct job {
    const struct train_env *env;
    struct train *train;
    int64_t id;
    uint32_t attempt, tag;
    int64_t placement; /* the number of this start (executor/files/claim.h) */
    char *tenant, *model, *package, *dataset, *eval_dataset, *spec_text, *dir, *resume; /* OWNED */
    struct blob_set blobs; /* the blobs that it reads, until its end */
    struct job_log *log;
    json_t *spec;
    char *precision; /* from spec, OWNED */
    int64_t resume_step;
    int64_t interval_ns;            /* between checkpoints; 0: as follows from ... */
    struct interval_facts measured; /* here_ns: set when it is asked for */
    int64_t since_ns, said_ns;      /* when it came; the interval that its log last named */
    int64_t compile_ns;             /* when the first compilation began */

    /* set by the first compilation (WK_TRAIN_READY), then read from disk */
    enum job_build build;                          /* written by job_set_build() */
    uint64_t state_bytes, written_bytes, ws_bytes; /* written_bytes: see the top */
    int64_t steps;
    uint32_t batch;
    json_t *table;
    struct sh_st_tensor *tensors; /* OWNED: from the table, without data */
    size_t n_tensors;
    struct sh_shm fixed; /* what no step writes of the state; empty: nothing */
    struct lock_task fixed_lock;
    job_locked_fn *on_locked;   /* NULL: nobody waits */
    struct sh_err slot_refused; /* rc: why the third or fourth slot could not be locked */
    int64_t slot_again_ns;      /* none is made before that */

    /* where it stands */
    struct worker *w; /* the worker where it runs, is paused or will run */
    struct worker *compiling;
    enum job_stand stand; /* written by job_go() */
    enum msg_train_at at;
    int64_t op, step;
    struct space_range state, ws;
    bool lacks_fixed;   /* what no step writes is not in `state` yet, nor on its way */
    bool must_move;     /* no workspace fits beside the state: swap it out and place it again */
    int64_t refused_ns; /* refused since then; 0: not refused */
    int64_t warned_ns;  /* rate limit of log lines */
    uint64_t n_warned;
    struct slot slots[JOB_N_SLOTS];
    struct slot *filling; /* the slot of the copy under way; NULL: none */
    bool is_swap;         /* it is no checkpoint: the state leaves, or is the best one */
    bool has_fill_mark;   /* its mark is enqueued; if not, every tick tries again */
    uint32_t n_flights;   /* copies of the state to the device that are under way ... */
    uint32_t n_unmarked;  /* ... those without a mark yet: every tick tries again */

    /* what is wanted */
    bool has_yield, has_compile_pause;
    enum stop_way yield;
    enum job_end end;
    struct sh_err why;   /* reason for END_FAIL */
    uint64_t need_bytes; /* END_FAIL: device memory that it needs and can never have here; else 0 */
    enum msg_job_phase phase; /* as reported */

    /* evaluations between steps */
    struct trials trials;
    struct train_scores trial; /* received, not in `trials` yet */
    int64_t trial_step;        /* its step; 0: none */
    bool evaluates;            /* while it runs: it evaluates, and takes no steps */
    char **best_names;         /* OWNED: name of tensors[i] of the best state in a checkpoint */

    /* counts */
    int64_t go_ns, stop_ns, busy_ns, eval_ns, busy_steps, redone, preemptions, max_step;
    bool is_held, reported_held;      /* it stands because images have its memory */
    int64_t hold_ns;                  /* when its log last said that it is held off */
    int64_t counted_ns, counted_step; /* as last counted for usage.h */
    struct crashes crashes;
    double *losses; /* OWNED: [n_losses], NAN: unknown */
    size_t n_losses;
    int64_t loss_stride;
    double last_loss;
    double loss_scale; /* 0: none, or unknown */
    int64_t skipped;   /* updates skipped because gradients were not finite */
    /* When the newest state was taken: in host memory, on disk, given to the disk. None: when it
     * came; given in vain: when that failed. */
    int64_t taken_ns, disk_taken_ns, given_ns;
    bool ckpt_asked;
    int64_t save_asked; /* number of a client's request for a checkpoint; 0: none */
    int64_t save_step;  /* the commit that answers it, once its copy has begun; -1: not yet */

    /* disk */
    struct disk_task *writing;
    struct ckpt_write *pushing;        /* written, on its way to the API; NULL: none */
    int64_t disk_step, disk_prev_step; /* newest files; -1: none */
    int64_t disk_failed_step;          /* the last step that could not be written; -1: none */
    char disk_name[SH_CKPT_BYTES];     /* the newest one, with digest and bytes */
    char disk_digest[SH_SHA256_HEX];   /* "": it is the one that was to be resumed from */
    uint64_t disk_bytes;

    int64_t reported_ns;
    enum msg_job_phase reported_phase;
    int64_t reported_step;
    char *result; /* OWNED: JSON, when DONE */
    struct finish *finish;
};

/* job.c */
extern const struct sh_life TRAINING_LIFE, BUILD_LIFE, COPY_LIFE; /* common/life.h */
void job_set_build(struct job *j, enum job_build to);             /* a step of the table above */
bool job_has_ended(const struct job *j);                          /* its last phase is reported */
void job_go(struct job *j, enum job_stand to);                    /* a step of the table above */
bool job_has_state(const struct job *j);                          /* is j->state valid? */
bool job_has_ws(const struct job *j);                             /* is j->ws valid? */
bool job_runs(const struct job *j); /* RUNNING, STOPPING or YIELDING */
int job_new(struct train *t, const struct msg_job_start *m, struct job **out, struct sh_err *err);
void job_free(struct job *j);
void job_fill_state(const struct job *j, struct msg_job_state *out);
void job_say_progress(struct job *j, bool is_last); /* writes a line to its log if one is due */
void job_report(struct job *j);                     /* sends JOB_STATE */
void job_count_usage(struct job *j);                /* counts its use since the last call */
void job_report_checkpoint(struct job *j);          /* reports the newest on disk, if any */
void job_report_trials(struct job *j);              /* sends JOB_EVALUATED if there was one */
void job_count_busy(struct job *j);                 /* it has stopped running: counts the time */
/* Answers and forgets the client's request for a checkpoint. why: NULL, or why there is none. */
void job_report_saved(struct job *j, const struct sh_err *why);
void job_set_phase(struct job *j, enum msg_job_phase p); /* reports at once if it must */
int job_take_built(struct job *j, const struct msg_wk_train_ready *m, int *fds, size_t n_fds,
                   struct sh_err *err);
/* Fails: SH_E_TOOBIG, SH_E_QUOTA, if it can never have the device memory that it needs here; sets
 * need_bytes. */
int job_check_fits(struct job *j, struct sh_err *err);
/* Checks another worker's answer about a built job: the state must be the same. Keeps the largest
 * workspace that any of them needs, since each may have chosen other kernels. Fails: SH_E_BUG:
 * another state; SH_E_TOOBIG. */
int job_agree(struct job *j, const struct msg_wk_train_ready *m, struct sh_err *err);
void job_note_losses(struct job *j, const struct msg_wk_train_losses *m);
void job_note_steps(struct job *j, int64_t step);      /* notes committed steps; counts new ones */
char *job_file(const struct job *j, const char *name); /* OWNED, free(); NULL: no memory */
/* Of a checkpoint that this attempt writes. OWNED, free(); NULL: no memory */
char *job_ckpt_path(const struct job *j, int64_t step);

/* job_state.c: tensors[i] of the state. The table comes from a worker: fails with SH_E_PROTO where
 * it cannot be. state_bytes and written_bytes are set. */
int job_read_table(struct job *j, const char *text, struct sh_err *err);
bool job_is_kind(const struct job *j, size_t i, const char *kind);
bool job_is_weight(const struct job *j, size_t i);  /* part of the trained model */
bool job_is_written(const struct job *j, size_t i); /* by steps; the others are in `fixed` */
/* Where it lies in host memory, for this copy of the state. BORROWED */
char *job_tensor(const struct job *j, const struct slot *s, size_t i);

/* resume.c. TAKES state, the initial one (empties it). Puts it, or the checkpoint to resume from,
 * into the first slot and makes the job BUILT, or calls train__fail(). */
int resume_start(struct job *j, struct sh_shm *state, struct sh_err *err);

/* slots.c */
struct slot *slots_newest(struct job *j);
/* For a copy. If there is no slot for it yet, this begins to make one. */
bool slots_have_room(struct job *j);
struct slot *slots_best(struct job *j);              /* NULL: none is kept */
void slots_keep_best(struct job *j, struct slot *s); /* keeps this one, and no other */
int slots_init(struct job *j, struct sh_err *err);   /* makes two, empty, and `fixed` */
/* Page-locks them, once something is in all of their pages. done() comes in a later turn. */
void slots_lock(struct job *j, job_locked_fn *done);
void slots_begin(struct job *j); /* makes the first, which is filled, WHOLE */
/* Starts copying the device's state, which is that of `step`, to a slot. When it is complete the
 * ticket is raised (unless ticket_slot is TX_NO_TICKET), and the slot is WHOLE. Fails:
 * SH_E_CONFLICT: no free slot just now; if one more can be made, that has begun. */
int slots_copy_out(struct job *j, int64_t step, uint32_t ticket_slot, uint32_t ticket_value,
                   struct sh_err *err);
/* A copy of the state to the device was just enqueued: counts it until the lane is done. */
void slots_note_flight(struct job *j);
/* On every tick: enqueues marks that the device refused. Until a copy has its mark it counts as
 * under way, and neither end of it is given away. */
void slots_ask_marks(struct job *j);
int64_t slots_interval_ns(const struct job *j); /* between two checkpoints of the job, as of now */
bool slots_copy_is_due(const struct job *j);    /* the newest slot is as old as that */
/* Writes the newest slot to disk unless it is there or being written. */
void slots_write_newest(struct job *j);
void slots_write_due(struct job *j);   /* the same, if what the disk got is as old as that */
bool slots_are_on_disk(struct job *j); /* the newest is, or cannot be (full disk) */
void slots_stop_push(struct job *j);   /* cancels what is on its way to the API */
void slots_fini(struct job *j);

/* finish.c: from the final slot to a result. Ends by calling train__finished(). */
void finish_start(struct job *j);
void finish_free(struct finish *f); /* also before it has ended: ends its children */
/* At start: removes what killed executors left behind, this one at once, others long ago. */
void finish_sweep(const struct files *files, const char *executor);

/* train.c, for finish.c and slots.c */
void train__finished(struct job *j, const struct sh_err *why);

#endif
