/* job.h - what the files of training share: the job itself. train.c moves it, job.c makes and
 * reports it, resume.c reads what it begins with, slots.c keeps its state in host memory and on
 * disk, finish.c turns it into a served model. */
#ifndef SH_EXECUTOR_TRAINING_JOB_H
#define SH_EXECUTOR_TRAINING_JOB_H

#include "common/safetensors.h"
#include "executor/files/blobs.h"
#include "executor/files/disk.h"
#include "executor/report/job_log.h"
#include "executor/training/crashes.h"
#include "executor/training/train.h"
#include "executor/training/trials.h"

#include <jansson.h>

#define JOB_MAX_DEATHS 3        /* of workers, in a row (crashes.h) */
#define JOB_MAX_LOSSES 1000000u /* more steps than that: every k-th */
#define JOB_N_SLOTS 4           /* two, another while a write holds the older, and the best */

/* Where it stands, on the device and in its worker:
 *
 *   OFF       nothing of it is on the device; its state is in a slot
 *   LOADED    its state is there                                   OFF: load_state
 *   READY     its workspace too                                    LOADED: take_device
 *   RUNNING   its worker was told to go on                         READY, PAUSED: send_go
 *   STOPPING  ... and to stop, and has not said that it has        RUNNING: raise_stop
 *   YIELDING  the same for a run, which waits for it               RUNNING: raise_stop
 *   PAUSED    it has stopped between two operations                while it ran: on_stopped
 *   LOST      its worker died in a step: what is there is torn     while it ran, or PAUSED: dead
 *
 * READY and PAUSED to LOADED: the workspace is given up. LOADED and LOST to OFF: the state is. */
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

/* What it starts from, and how to compute it:
 *
 *   RAW      no worker has compiled it, or its state could not be read
 *   READING  one has; the state is being read, and nothing happens meanwhile   [resume_start]
 *   BUILT    there is a state to start from                               [resume.c: on_read]
 *
 * and READING to RAW: it could not be read, and the job fails. */
enum job_build { JOB_RAW, JOB_READING, JOB_BUILT, JOB_N_BUILDS };

enum job_end { END_NONE, END_DONE, END_SUSPEND, END_FAIL, END_CANCEL };

/* What a slot holds:
 *
 *   EMPTY    nothing that counts
 *   FILLING  a copy from the device is on its way                             [slots_copy_out]
 *   TORN     the same, of a state that may change meanwhile: it will not count
 *   WHOLE    the state of its step: what counts                 [slots_begin, slots.c: on_copied]
 *
 * WHOLE to EMPTY: it is used again. FILLING to WHOLE, TORN to EMPTY: all is there. */
enum copy_state { COPY_EMPTY, COPY_FILLING, COPY_TORN, COPY_WHOLE, COPY_N_STATES };

struct slot { /* one copy of the state in host memory */
    struct sh_shm mem;
    int64_t step;
    enum copy_state state; /* written by slots.c */
    bool is_locked;
    bool is_writing; /* the checkpoint thread reads it */
    bool is_best;    /* kept, whatever is newer; of a checkpoint it may hold no more than weights */
};

struct finish;     /* finish.c */
struct ckpt_write; /* slots.c */

struct job {
    const struct train_env *env;
    struct train *train;
    int64_t id;
    uint32_t attempt, tag;
    char *tenant, *model, *package, *dataset, *eval_dataset, *spec_text, *dir, *resume; /* OWNED */
    struct blob_set blobs; /* what it reads, until its end */
    struct job_log *log;
    json_t *spec;
    char *precision; /* from spec, OWNED */
    int64_t resume_step, interval_ns;
    int64_t compile_ns; /* when the first compilation began */

    /* from WK_TRAIN_READY of the first compilation, and then from disk */
    enum job_build build; /* written by job_set_build() */
    uint64_t state_bytes, ws_bytes;
    int64_t steps;
    uint32_t batch;
    json_t *table;
    struct sh_st_tensor *tensors; /* OWNED: the table, without data */
    size_t n_tensors;

    /* where it stands */
    struct worker *w; /* attached: it runs here, is paused here, or will go here */
    struct worker *compiling;
    enum job_stand stand; /* written by job_go() */
    enum msg_train_at at;
    int64_t op, step;
    struct space_range state, ws;
    bool must_move;     /* no workspace fits beside the state: swap it and place it anew */
    int64_t refused_ns; /* since when; 0: not */
    int64_t warned_ns;  /* rate limit of log lines */
    uint64_t n_warned;
    struct slot slots[JOB_N_SLOTS];
    struct slot *filling; /* the slot of the copy on its way; NULL */
    bool has_fill_mark;   /* its mark is out; else it is asked for on every tick */
    int64_t fill_ns;
    uint32_t n_flights;  /* copies of the state to the device that are on their way ... */
    uint32_t n_unmarked; /* ... of them without a mark yet: asked for on every tick */

    /* wishes */
    bool has_yield, has_compile_pause;
    enum stop_way yield;
    enum job_end end;
    struct sh_err why;   /* of END_FAIL */
    uint64_t need_bytes; /* END_FAIL because it can never have so much device memory here; else 0 */
    enum msg_job_phase phase; /* as reported */

    /* evaluations between steps */
    struct trials trials;
    struct train_scores trial; /* that has come, and is not in `trials` yet */
    int64_t trial_step;        /* of it; 0: none has */
    bool evaluates;            /* while it runs: that, and not steps */
    char **best_names;         /* OWNED: of tensors[i] in a checkpoint, where it is of the best */

    /* counts */
    int64_t go_ns, stop_ns, busy_ns, eval_ns, busy_steps, redone, preemptions, max_step;
    int64_t counted_ns, counted_step; /* in the account of usage (usage.h) */
    struct crashes crashes;
    double *losses; /* OWNED: [n_losses], NAN = not known */
    size_t n_losses;
    int64_t loss_stride;
    double last_loss;
    double loss_scale; /* 0: none, or not known */
    int64_t skipped;   /* updates, because gradients were not finite */
    int64_t last_ckpt_ns;
    bool ckpt_asked;
    int64_t save_asked; /* number of a client's wish for a checkpoint; 0: none */
    int64_t save_step;  /* the commit that answers it, once its copy has begun; -1 before */

    /* disk */
    struct disk_task *writing;
    struct ckpt_write *pushing;        /* written, and on its way to the API; NULL */
    int64_t disk_step, disk_prev_step; /* newest files; -1: none */
    int64_t disk_failed_step;          /* the last one that could not be written; -1: none */
    char disk_digest[SH_SHA256_HEX];
    uint64_t disk_bytes;

    int64_t reported_ns;
    enum msg_job_phase reported_phase;
    int64_t reported_step;
    char *result; /* OWNED: JSON, when DONE */
    struct finish *finish;
};

/* job.c */
extern const struct sh_life TRAINING_LIFE, BUILD_LIFE, COPY_LIFE; /* common/life.h */
void job_set_build(struct job *j, enum job_build to);             /* by the table above */
bool job_has_ended(const struct job *j);                          /* its last phase is reported */
void job_go(struct job *j, enum job_stand to);                    /* by the table above */
bool job_has_state(const struct job *j);                          /* on the device; of j->state */
bool job_has_ws(const struct job *j);                             /* likewise; of j->ws */
bool job_runs(const struct job *j); /* RUNNING, STOPPING or YIELDING */
int job_new(struct train *t, const struct msg_job_start *m, struct job **out, struct sh_err *err);
void job_free(struct job *j);
void job_fill_state(const struct job *j, struct msg_job_state *out);
void job_say_progress(struct job *j, bool is_last); /* a line of its log, if one is due */
void job_report(struct job *j);                     /* JOB_STATE now */
void job_count_usage(struct job *j);                /* what it used since it was counted last */
void job_report_checkpoint(struct job *j);          /* the newest on disk, if any */
void job_report_trials(struct job *j);              /* JOB_EVALUATED, if there was one */
void job_count_busy(struct job *j);                 /* what was running has stopped */
bool job_is_kind(const struct job *j, size_t i, const char *kind); /* tensors[i] */
bool job_is_weight(const struct job *j, size_t i); /* is tensors[i] of the trained model? */
/* Answers the client's wish for a checkpoint, and forgets it. why: NULL, or why there is none. */
void job_report_saved(struct job *j, const struct sh_err *why);
void job_set_phase(struct job *j, enum msg_job_phase p); /* reports what must not wait */
int job_take_built(struct job *j, const struct msg_wk_train_ready *m, int *fds, size_t n_fds,
                   struct sh_err *err);
/* Fails: SH_E_TOOBIG, SH_E_QUOTA if it can never have the device memory that it needs here; then
 * need_bytes is set. */
int job_check_fits(struct job *j, struct sh_err *err);
/* Another worker's answer about a built job: the same state, and as much workspace as any of them
 * needs, since each may have chosen other kernels. SH_E_BUG: another state. SH_E_TOOBIG. */
int job_agree(struct job *j, const struct msg_wk_train_ready *m, struct sh_err *err);
void job_note_losses(struct job *j, const struct msg_wk_train_losses *m);
void job_note_steps(struct job *j, int64_t step);       /* committed; counts new ones */
char *job_file(const struct job *j, const char *name);  /* OWNED, free(); NULL: no memory */
char *job_ckpt_path(const struct job *j, int64_t step); /* likewise */

/* resume.c. TAKES state (then empty), the initial one; puts it, or the checkpoint to resume from,
 * into the first slot and makes the job BUILT, or calls train__fail(). */
int resume_start(struct job *j, struct sh_shm *state, struct sh_err *err);

/* slots.c */
struct slot *slots_newest(struct job *j);
bool slots_have_room(struct job *j);
struct slot *slots_best(struct job *j);              /* NULL: none is kept */
void slots_keep_best(struct job *j, struct slot *s); /* and no other any more */
int slots_init(struct job *j, struct sh_err *err);   /* makes two, empty */
void slots_begin(struct job *j);                     /* publishes the first, which was filled */
/* Starts the copy of the device's state, which is that of `step`, to a slot; at its end the ticket
 * (unless ticket_slot is TX_NO_TICKET), and the slot is valid. Fails: SH_E_CONFLICT: no room. */
int slots_copy_out(struct job *j, int64_t step, uint32_t ticket_slot, uint32_t ticket_value,
                   struct sh_err *err);
/* A copy of the state to the device was just enqueued: it is a flight until the lane is done. */
void slots_note_flight(struct job *j);
/* On every tick: the device may have refused a mark. Until it takes one, the copy counts as on its
 * way, and neither end of it is given away. */
void slots_ask_marks(struct job *j);
/* Writes the newest slot to disk unless it is there or being written. */
void slots_write_newest(struct job *j);
bool slots_are_on_disk(struct job *j); /* the newest is, or never will be (full disk) */
void slots_stop_push(struct job *j);   /* what is on its way to the API is given up */
void slots_fini(struct job *j);

/* finish.c: from the final slot to a result. Ends by calling train__finished(). */
void finish_start(struct job *j);
void finish_free(struct finish *f);           /* also half-way: ends its children */
void finish_sweep(const struct files *files); /* at start: what killed executors left half-way */

/* train.c, for finish.c and slots.c */
void train__finished(struct job *j, const struct sh_err *why);

#endif
