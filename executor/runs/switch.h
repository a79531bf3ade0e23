/* switch.h - who has the device: runs first in, first out; training when no run wants it.
 *
 * The life of a run:
 *
 *   QUEUED   its parts are known; over TCP, perhaps not their payload         [switch_on_run]
 *   MEMORY   it is the current one; its image and workspace need room, perhaps of
 *            training, which must stop and give it up first                   [give_memory]
 *   SEND     it has its memory; the copies are on their way; the lane may still have to scrub its
 *            workspace, or to move away what lay there                        [send_run]
 *   ACTIVE   a standby worker runs it                                         [switch_on_run_done]
 *
 * and back: SEND to MEMORY if its workspace has to be larger; ACTIVE to SEND if its worker died;
 * SEND and ACTIVE to QUEUED if no worker has its model any more, or a part is left to run alone.
 *
 * Training is told to stop at the moment a run becomes the current one, together with the copies;
 * how (enum stop_way) follows from the memory needed: pause if all fits beside it, drop if its
 * workspace is enough, swap otherwise. A run whose worker dies goes to another one once; if none
 * has its model any more, it is QUEUED again.
 *
 * What is wrong with one part is nothing to the others. A part that cannot run is left out by the
 * worker, which says why (WK_PART_FAILED). Data that the device alone can tell to be wrong fail the
 * run: then each of its parts is run alone, once, behind the runs that wait, and fails or not by
 * itself. A run of our own falls into its samples, until the first that fails.
 */
#ifndef SH_EXECUTOR_RUNS_SWITCH_H
#define SH_EXECUTOR_RUNS_SWITCH_H

#include "executor/models/store.h"
#include "executor/requests/run_part.h"

#define SWITCH_MAX_PARTS 256u /* of one run */
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
    uint32_t batch;
    uint64_t n_passed; /* of an own run: others that went first */
    int64_t sample;    /* of an own run: the one that its failure is about; < 0: not known */
};

typedef void run_done_fn(void *arg, const struct run_result *r);

/* Whoever has the device when no run wants it. */
struct switch_rival {
    /* Holds until no run is current (switch_is_idle). Only escalates meanwhile. */
    void (*yield)(void *arg, enum stop_way way);
    /* Not running, for pause; workspace given, for drop; nothing on the device, for swap. */
    bool (*has_yielded)(void *arg, enum stop_way way);
    /* What the way would free; returns how many ranges. */
    size_t (*ranges)(void *arg, enum stop_way way, struct space_range out[static 2]);
    void *arg;
};

struct hook_send {        /* what goes with a run */
    int fds[DEV_MAX_FDS]; /* BORROWED */
    size_t n_fds;
    struct msg_group *groups; /* OWNED, free(); NULL: as they are */
};

struct switch_hooks {              /* hook.h; all are set */
    bool (*has_memory)(void *arg); /* false: a run has memory of its own, elsewhere */
    bool (*sends_inputs)(void *arg);
    void (*before_run)(void *arg);
    /* No worker is free for a run of the model, but one will be once it is the current one. */
    bool (*frees_worker)(void *arg, const struct model *m);
    void (*finds_no_worker)(void *arg); /* the current run */
    bool (*wants_swap)(void *arg);      /* of training, before anything else; asked once */
    void (*has_swapped)(void *arg);
    bool (*stops_early)(void *arg);         /* training, before it is known how far */
    enum stop_way (*way_beside)(void *arg); /* for a run that fits beside all of training */
    void (*fill_run)(void *arg, const struct model *m, struct msg_wk_run *run,
                     struct hook_send *out);
    void (*on_run_done)(void *arg, struct worker *w);
    void *arg;
};

struct switch_env {
    const char *executor;             /* its name; BORROWED for good, as all that is pointed to */
    int64_t run_ms;                   /* as long may a run take */
    size_t max_queued;                /* runs */
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
bool switch_turn(struct switcher *sw); /* true: it did something */
/* May training run? False while a run is current or could become it. */
bool switch_is_idle(struct switcher *sw);

size_t switch_n_runs(const struct switcher *sw); /* that wait, and the current one */
bool switch_is_quiet(const struct switcher *sw); /* no run, not even a waiting one */
/* Does a run of this model wait for a worker? */
bool switch_has_waiting(const struct switcher *sw, const struct model *m);
bool switch_wants_memory(const struct switcher *sw); /* the current run still looks for room */

void switch_on_part(struct switcher *sw, const struct msg_run_part *m);
void switch_on_run(struct switcher *sw, const struct msg_run *m);
/* rid = 0: the whole run. What is already on the device goes on. */
void switch_on_cancel(struct switcher *sw, uint64_t run_id, uint64_t rid);
/* Refuses a run that the scheduler sent: RESULT to the API, RUN_DONE to the scheduler. */
void switch_refuse(struct switcher *sw, const struct msg_run *m, const struct sh_err *why);
void switch_on_api_gone(struct switcher *sw, uint64_t api_id);
void switch_on_part_failed(struct switcher *sw, struct worker *w,
                           const struct msg_wk_part_failed *m);
void switch_on_run_done(struct switcher *sw, struct worker *w, const struct msg_wk_run_done *m);
void switch_on_worker_dead(struct switcher *sw, struct worker *w);
/* No worker will have the model any more: ends the runs that wait for one. */
void switch_give_up(struct switcher *sw, const struct model *m, const struct sh_err *why);

/* A run of our own (evaluation, batch inference), behind all others. sizes: NULL: the version's
 * own. TAKES the part's spans. */
int switch_submit(struct switcher *sw, struct model *m, const struct sh_sizes *sizes,
                  const struct run_part *part, run_done_fn *fn, void *arg, struct sh_err *err);
bool switch_has_started(const struct switcher *sw, const void *arg); /* it has the device */
void switch_withdraw(struct switcher *sw, const void *arg);          /* fn is not called any more */

#endif
