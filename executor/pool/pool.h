/* pool.h - the worker processes of one executor, and the only way to change their state.
 *
 *   STARTING -> STANDBY            it has every model, and joins       [store.c: store_turn]
 *   STANDBY  -> ACTIVE             it gets a run or a job              [switch.c, train.c]
 *   ACTIVE   -> STANDBY            the run is done                     [switch.c]
 *   ACTIVE   -> PARKED             training is paused in it            [train_events.c]
 *   PARKED   -> ACTIVE | STANDBY   training goes on, or was dropped    [train.c]
 *   PARKED   -> CLEANING           the job's state leaves the device   [train.c]
 *   CLEANING -> STANDBY            it has left                         [train.c]
 *   any      -> DEAD               the process ended                   [pool.c]
 *   DEAD     -> STARTING           after a back-off                    [pool.c]
 *
 * The pool watches each process by its pidfd and its heartbeat (worker_ctl.h). It kills a worker
 * that is busy and makes no progress for hang-ms (while compiling: compile-ms, but hang-ms from
 * when it was given a run).
 *
 * Belongs to the loop's thread.
 */
#ifndef SH_EXECUTOR_POOL_POOL_H
#define SH_EXECUTOR_POOL_POOL_H

#include "common/hook.h"
#include "common/shm.h"
#include "common/wire.h"
#include "executor/memory/transmit.h"
#include "executor/pool/worker_ctl.h"

#define POOL_MAX_WORKERS 64

struct pool;

enum worker_state {
    WORKER_STARTING,
    WORKER_STANDBY,
    WORKER_ACTIVE,
    WORKER_PARKED,
    WORKER_CLEANING,
    WORKER_DEAD,
    WORKER_N_STATES
};

/* Why we ended a process. Their texts are labels of a metric (pool.c). */
enum worker_kill {
    WORKER_KILL_NONE,     /* we did not */
    WORKER_KILL_SOCKET,   /* its socket closed or broke: mostly it was ending by itself */
    WORKER_KILL_PROTOCOL, /* it sent what no worker sends */
    WORKER_KILL_HANG,     /* no progress */
    WORKER_KILL_RUN_TIME, /* its run took too long */
    WORKER_KILL_DISK,     /* workers keep too much on disk */
    WORKER_KILL_RENEW,    /* worker_renew() */
    WORKER_KILL_ONE_RUN,  /* by the laboratory: it was for one run */
    WORKER_N_KILLS
};

struct worker { /* one place in the pool; the process in it changes */
    struct pool *pool;
    uint32_t index;
    enum worker_state state;              /* written by pool_set_state() only */
    int64_t state_ns;                     /* since when */
    pid_t pid;                            /* 0: none */
    struct sh_wire *wire;                 /* NULL: gone */
    struct worker_log *log;               /* OWNED */
    struct sh_shm ctl_shm;                /* worker_page() */
    bool is_ready;                        /* WK_READY has come */
    struct sh_err unfit;                  /* WK_UNFIT has come: why it ends */
    char identity[WORKER_IDENTITY_BYTES]; /* of its device; "": nothing is kept for it */

    int64_t preparing;   /* the model that it compiles; 0: none */
    int64_t compiled_ns; /* when it last finished compiling */
    int64_t *models;     /* OWNED: handles of its compiled models */
    size_t n_models, cap_models;
    uint64_t n_model_changes;         /* of these */
    uint32_t n_replay[DEV_N_REPLAYS]; /* of its page, those that the metric has */
    int64_t job;                      /* the training job that it has compiled; 0: none */
    bool job_compiling;
    /* What it is told to do has a number, and so has its answer: one that is said twice is none to
     * what it was told next. */
    uint64_t n_turns, work_turn; /* the last number; that of the last work other than a run */

    struct payload {       /* payload.h; mem.fd -1: none */
        struct sh_shm mem; /* OWNED */
        uint64_t id;       /* its id as a slab */
        uint64_t used;     /* bytes from the start that the current run uses */
    } payload;

    /* last value of ticket TX_SLOT_WORKER + index; never falls, not even by a death */
    uint32_t ckpt_value;
    uint64_t progress; /* the heartbeat; progress_ns: when it last grew, or work began */
    int64_t progress_ns, started_ns;
    int64_t grace_ns; /* extra time for copies, added to hang-ms */
    enum worker_kill kill;
    const char *exit_cause; /* static: cause of its last death */
    uint32_t n_fast_deaths;
    uint32_t met; /* tag of the tenant whose data its process has had; 0: none, MET_MANY: several */
    bool is_renewed; /* restarted for keep.h, which is not done with it yet */
    struct sh_timer *restart;
};

/* Receives the messages of workers and their deaths. All are set. */
struct pool_handler {
    /* Every message except WK_READY and WK_UNFIT. False: workers never send it; w is killed. */
    bool (*on_msg)(void *arg, struct worker *w, const struct sh_msg *m, int *fds, size_t n_fds);
    void (*on_ready)(void *arg, struct worker *w);
    /* preparing: the model that w was compiling; 0: none. */
    void (*on_dead)(void *arg, struct worker *w, int64_t preparing);
    void *arg;
};

struct pool_hooks { /* hook.h; all are set */
    bool (*may_run)(void *arg, const struct worker *w);
    bool (*is_held)(void *arg, const struct worker *w); /* it waits for a second WK_INIT */
    void (*fill_init)(void *arg, const struct worker *w, struct msg_wk_init *m);
    /* When to restart a worker that ended; < 0: not by itself. */
    int64_t (*restart_ns)(void *arg, struct worker *w, int64_t wait_ns);
    void *arg;
};

struct pool_conf { /* strings: BORROWED for good */
    const char *executor, *device, *state_dir;
    uint32_t n_workers, ordinal, threads, uid, stop_bound_us, busy_poll_us;
    size_t max_models; /* versions and shapes, of each worker */
    int64_t hang_ms, compile_ms;
    bool deterministic, verify_launches;
    const struct pool_hooks *hooks; /* NULL: none; BORROWED for good */
};

/* KEEPS mem. *out: OWNED, pool_free(). */
int pool_new(const struct pool_conf *c, struct sh_loop *loop, struct dev_mem *mem,
             const struct pool_handler *h, struct pool **out, struct sh_err *err);
void pool_free(struct pool *p); /* ends all workers */
int pool_start(struct pool *p, struct sh_err *err);
void pool_stop(struct pool *p); /* a worker that ends from now on does not start again */

/* enum msg_fence: the fences that every worker so far has put up; 0: none has been ready. *why: why
 * one is missing, or ""; BORROWED. */
uint32_t pool_fences(const struct pool *p, const char **why);
void pool_second(struct pool *p); /* metrics, and the limit of what workers keep on disk */

extern const struct sh_life WORKER_LIFE; /* common/life.h */
/* The only writer of the state. A step that WORKER_LIFE lacks ends the process. */
void pool_set_state(struct worker *w, enum worker_state to);

size_t pool_size(const struct pool *p);
bool pool_compiles(const struct pool *p); /* some worker does: a version or a job */
struct worker *pool_at(struct pool *p, size_t i);
/* What it shares with its process; NULL: it has none. */
static inline struct worker_ctl *worker_page(const struct worker *w)
{
    return (struct worker_ctl *)w->ctl_shm.base;
}
bool worker_is_alive(const struct worker *w); /* started, ready, and its socket is up */
bool worker_is_idle(const struct worker *w);  /* STANDBY and compiling nothing */
/* Idle, or loading a model: a run can go between two pieces of a load. */
bool worker_may_run(const struct worker *w);
/* A worker that could run this model now, preferably not one that loads another, and none that
 * hangs in that: the run would hold the device. NULL: none. */
struct worker *pool_find(struct pool *p, int64_t handle);
bool worker_has_model(const struct worker *w, int64_t handle);
void worker_forget_model(struct worker *w, int64_t handle);
int worker_note_model(struct worker *w, int64_t handle, struct sh_err *err);

/* The number of a run that it is about to be given. */
uint64_t worker_next_turn(struct worker *w);
/* Work other than runs, noted by whoever gives it to the worker; each returns its number. It goes
 * on with the job that it has: */
uint64_t worker_begin_steps(struct worker *w);
/* It compiles a model: */
uint64_t worker_begin_model(struct worker *w, int64_t handle);
/* It says that it has ended to. false: it compiles another one or none, and is killed for that; the
 * end of what it compiles would never come. */
bool worker_end_model(struct worker *w, int64_t handle, uint64_t turn);
/* It compiles a job, which replaces the present one. job: the one compiled; 0: it failed. false: it
 * compiles none, or this is no answer to that, and it is killed. */
uint64_t worker_begin_job(struct worker *w);
bool worker_end_job(struct worker *w, int64_t job, uint64_t turn);
/* It forgets this job, if that is the one it has. */
void worker_drop_job(struct worker *w, int64_t job);
/* Notes the last value of its ticket that it has used. */
void worker_note_ticket(struct worker *w, uint32_t value);

/* Data of the tenant with this tag is about to go to it. */
void worker_meet(struct worker *w, uint32_t tag);
bool worker_met_only(const struct worker *w, uint32_t tag); /* or none; tag 0: none */

/* Does not fail: a worker that does not get one message gets none after it, and is killed. Reaping
 * the process handles its death. */
void worker_send(struct worker *w, const struct sh_msg *m, const int *fds, size_t n_fds);
/* Messages sent between the two wake the worker once. */
void worker_cork(struct worker *w);
void worker_uncork(struct worker *w);
/* Nothing if there is no process, or it was killed before. */
void worker_kill(struct worker *w, enum worker_kill why);
/* For a message that is no answer to what it was told, or a second one: logged. */
void worker_kill_stray(struct worker *w, enum sh_msg_type type);
int pool_send_init(struct worker *w, struct sh_err *err); /* sends WK_INIT */
/* Adds ns to hang-ms for copies that its work waits for, until its state changes. */
void worker_grant(struct worker *w, int64_t ns);
/* For keep.h: ends the process, to start a new one; and notes that it has served its purpose. */
void worker_renew(struct worker *w);
void worker_end_renewal(struct worker *w);

#endif
