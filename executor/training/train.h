/* train.h - the training job of this executor, from JOB_START to its last JOB_STATE.
 *
 * A job stands in one state (enum job_stand, job.h). train_turn() compares it with what is wanted
 * and takes the next step:
 *
 *   wanted       RUNNING       PAUSED                LOADED             OFF
 *   run          -             go on, same worker    workspace, go      state from a slot, go
 *   pause        stop          -                     -                  -
 *   drop, hold   stop          give the workspace    -                  -
 *   swap, leave  stop          give the workspace    state to a slot    - (leave: report the end)
 *
 * Between commits the state lives in host slots (job.h); when a worker dies, the steps since the
 * newest slot are lost. One job at a time: a second JOB_START is refused with SH_E_CONFLICT.
 *
 * Belongs to the loop's thread.
 */
#ifndef SH_EXECUTOR_TRAINING_TRAIN_H
#define SH_EXECUTOR_TRAINING_TRAIN_H

#include "executor/files/files.h"
#include "executor/pool/pool.h"
#include "executor/report/report.h"
#include "executor/runs/switch.h"

struct train;

struct train_env {
    const char *executor;           /* its name; all pointers BORROWED for good */
    int64_t checkpoint_interval_ms; /* for jobs that name none; 0: interval.h */
    struct sh_loop *loop;
    struct dev_mem *mem;
    struct locking *locking;
    struct tx *tx;
    struct space *space;
    const struct files *files;
    struct report *report;
    struct pool *pool;
    struct slabs *slabs;
    struct store *store;
    struct switcher *sw;
};

/* *out: OWNED, train_free(). */
int train_new(const struct train_env *env, struct train **out, struct sh_err *err);
void train_free(struct train *t);
bool train_turn(struct train *t); /* true: it took a step */

/* What the switch wants, until no run is current (switch_is_idle). Calls meanwhile only
 * escalate. */
void train_yield(struct train *t, enum stop_way way);
/* pause: it does not run; drop: its workspace is given up; swap: nothing is on the device. */
bool train_has_yielded(const struct train *t, enum stop_way way);
struct switch_wish train_wants(const struct train *t);
/* The ranges that the way would free; returns their number. */
size_t train_ranges(const struct train *t, enum stop_way way, struct space_range out[static 2]);
/* Stops training in w, which has to compile a model; then training goes on. */
void train_pause_for_compile(struct train *t, struct worker *w);

/* why_not: NULL, or why no job may start now. Answers with JOB_STATE. */
void train_on_start(struct train *t, const struct msg_job_start *m, const struct sh_err *why_not);
bool train_has(const struct train *t, int64_t job); /* it has the job, not ended */
void train_on_stop(struct train *t, const struct msg_job_stop *m);
void train_on_save(struct train *t, const struct msg_job_save *m);
/* Suspends the job before the process ends; train_is_quiet() when it is on disk. */
void train_suspend(struct train *t);
bool train_is_quiet(const struct train *t);
/* Has the worker stopped within an update? Then it compiles nothing: whoever needs training's
 * memory needs the worker at once, to finish the step. */
bool train_is_torn(const struct train *t, const struct worker *w);
/* The one that has the job, or compiles it; NULL: none. */
struct worker *train_worker(const struct train *t);
struct worker *train_active(const struct train *t); /* the one that uses the device; NULL: none */
void train_report_all(struct train *t);             /* to a scheduler that has just connected */

void train_on_ready(struct train *t, struct worker *w, const struct msg_wk_train_ready *m, int *fds,
                    size_t n_fds);
void train_on_stopped(struct train *t, struct worker *w, const struct msg_wk_train_stopped *m);
void train_on_losses(struct train *t, struct worker *w, const struct msg_wk_train_losses *m);
void train_on_eval(struct train *t, struct worker *w, const struct msg_wk_train_eval *m);
void train_on_ckpt(struct train *t, struct worker *w, const struct msg_wk_train_ckpt *m);
void train_on_worker_dead(struct train *t, struct worker *w);

#endif
