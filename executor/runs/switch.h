/* switch.h - who has the device: runs, first in, first out; training when no run wants it.
 *
 * The life of a run:
 *
 *   QUEUED   its parts are known; over TCP, their payload may not be here yet  [switch_on_run]
 *   MEMORY   the current run; its image and workspace need room, perhaps room that
 *            training must stop and give up first                              [give_memory]
 *   SEND     it has its memory and the copies are under way; the lane may still have to scrub its
 *            workspace, or to move away what lay there                         [send_run]
 *   ACTIVE   a standby worker runs it                                          [switch_on_run_done]
 *
 * and back: SEND to MEMORY if it needs a larger workspace; ACTIVE to SEND if its worker died; SEND
 * and ACTIVE to QUEUED if no worker has its model any more, or if one of its parts has to run
 * alone.
 *
 * Training is told to stop the moment a run becomes current, while the copies start. How it stops
 * (enum stop_way) depends on the memory needed: pause if all fits beside it, drop if its workspace
 * is enough, else swap. Where images are worth more than the paused step, training is held off: it
 * gives its workspace up once it has stopped, and no run waits for that (memory/tenure.h). A run
 * whose worker dies goes to another worker once; if none has its model any more, it is QUEUED
 * again.
 *
 * One bad part does not harm the others. A part that cannot run is left out by the worker, which
 * says why (WK_PART_FAILED). If only the device can tell that data is bad, the whole run fails:
 * each of its parts then runs alone, once, after the waiting runs, and succeeds or fails by itself.
 * An internal run is split into its samples in the same way, up to the first that fails.
 *
 * Belongs to the loop's thread.
 */
#ifndef SH_EXECUTOR_RUNS_SWITCH_H
#define SH_EXECUTOR_RUNS_SWITCH_H

#include "executor/models/store.h"
#include "executor/requests/run_part.h"

#define SWITCH_MAX_PARTS 256u /* in one run */
#define RUN_MAX_ATTEMPTS 2u

struct data;
struct report;
struct slabs;
struct switcher;

/* How training stops for a run. */
enum stop_way { STOP_PAUSE, STOP_DROP, STOP_SWAP, STOP_N_WAYS };
const char *stop_way_name(enum stop_way w);

struct run_result {
    int rc;
    const char *msg; /* BORROWED for the call */
    int64_t queue_ns, copy_ns, compute_ns, total_ns;
    int64_t held_ns; /* internal run: how long it had the device, which is what its job pays */
    uint32_t batch;
    uint64_t n_passed; /* internal run: how many runs overtook it */
    int64_t sample;    /* internal run: the sample that failed; < 0: unknown */
};

typedef void run_done_fn(void *arg, const struct run_result *r);

struct switch_wish { /* what training needs, to run */
    int64_t job;     /* 0: there is none, or none that could run now */
    uint64_t state_bytes, ws_bytes;
    int64_t step_ns; /* device time of a step; 0: unknown */
};

/* The user of the device when no run wants it: training. */
struct switch_rival {
    struct switch_wish (*wants)(void *arg);
    /* Holds until no run is current (switch_is_idle). Calls meanwhile only escalate. */
    void (*yield)(void *arg, enum stop_way way);
    /* pause: it does not run; drop: its workspace is given up; swap: nothing is on the device. */
    bool (*has_yielded)(void *arg, enum stop_way way);
    /* The ranges that the way would free; returns their number. */
    size_t (*ranges)(void *arg, enum stop_way way, struct space_range out[static 2]);
    void *arg;
};

struct hook_send {        /* additions to a run's message */
    int fds[DEV_MAX_FDS]; /* BORROWED */
    size_t n_fds;
    struct msg_group *groups; /* OWNED, free(); NULL: unchanged */
};

struct switch_hooks {              /* hook.h; all are set */
    bool (*has_memory)(void *arg); /* false: a run uses its own memory, elsewhere */
    bool (*sends_inputs)(void *arg);
    void (*before_run)(void *arg);
    /* No worker is free for a run of m, but one will be once the run is current. */
    bool (*frees_worker)(void *arg, const struct model *m);
    void (*finds_no_worker)(void *arg); /* for the current run */
    bool (*wants_swap)(void *arg);      /* asks training to swap first; asked once for each run */
    void (*has_swapped)(void *arg);
    /* Stop training before it is known how much it must give up. */
    bool (*stops_early)(void *arg);
    bool (*holds_off)(void *arg, bool does); /* switch_holds_off(); does: without this hook */
    enum stop_way (*way_beside)(void *arg);  /* how to stop for a run that fits beside training */
    void (*fill_run)(void *arg, const struct model *m, struct msg_wk_run *run,
                     struct hook_send *out);
    void (*on_run_done)(void *arg, struct worker *w);
    void *arg;
};

struct switch_env {
    const char *executor;             /* its name; all pointers BORROWED for good */
    int64_t run_ms;                   /* the longest that a run may take */
    size_t max_queued;                /* runs */
    int64_t request_weight;           /* of struct tenure */
    const struct switch_hooks *hooks; /* NULL: none */
    struct sh_loop *loop;
    struct dev_mem *mem;
    struct tx *tx;
    struct space *space;
    const struct report *report;
    struct pool *pool;
    struct slabs *slabs;
    struct data *data;
    struct store *store;
};

/* *out: OWNED, switch_free(). */
int switch_new(const struct switch_env *env, const struct switch_rival *rival,
               struct switcher **out, struct sh_err *err);
void switch_free(struct switcher *sw);
bool switch_turn(struct switcher *sw); /* true: it took a step */
/* May training run? False while a run is current or could become current. */
bool switch_is_idle(struct switcher *sw);
/* Images have the memory of training's workspace: it gives that up and does not run. */
bool switch_holds_off(const struct switcher *sw);

size_t switch_n_runs(const struct switcher *sw); /* waiting and current */
bool switch_is_quiet(const struct switcher *sw); /* no run, not even a waiting one */
/* Does a run of this model wait for a worker? */
bool switch_has_waiting(const struct switcher *sw, const struct model *m);
bool switch_wants_memory(const struct switcher *sw); /* the current run still needs room */

void switch_on_part(struct switcher *sw, const struct msg_run_part *m);
void switch_on_run(struct switcher *sw, const struct msg_run *m);
/* A run that is on the device ends at its next operation, once nobody waits for any part of it: of
 * a device with a queue, when it has done what it was given. */
void switch_on_cancel(struct switcher *sw, const struct msg_run_cancel *m);
/* Refuses a run that the scheduler sent: RESULT to the API, RUN_DONE to the scheduler. */
void switch_refuse(struct switcher *sw, const struct msg_run *m, const struct sh_err *why);
void switch_on_api_gone(struct switcher *sw, uint64_t api_id);
void switch_on_part_failed(struct switcher *sw, struct worker *w,
                           const struct msg_wk_part_failed *m);
void switch_on_run_done(struct switcher *sw, struct worker *w, const struct msg_wk_run_done *m);
void switch_on_worker_dead(struct switcher *sw, struct worker *w);
/* No worker will ever have the model: ends the runs that wait for it. */
void switch_give_up(struct switcher *sw, const struct model *m, const struct sh_err *why);

/* An internal run (evaluation, batch inference), behind all others. sizes: NULL: the version's own.
 * TAKES the part's spans. */
int switch_submit(struct switcher *sw, struct model *m, const struct sh_sizes *sizes,
                  const struct run_part *part, run_done_fn *fn, void *arg, struct sh_err *err);
bool switch_has_started(const struct switcher *sw, const void *arg); /* it has the device */
void switch_withdraw(struct switcher *sw, const void *arg);          /* fn is not called any more */

#endif
