/* pool.h - the worker processes of one executor, and the only way to change their state.
 *
 *   STARTING -> STANDBY            it has every model, and joins            [store.c: store_turn]
 *   STANDBY  -> ACTIVE             a run or a job was handed to it          [switch.c, train.c]
 *   ACTIVE   -> STANDBY            the run is done, or the job left         [switch.c, train.c]
 *   ACTIVE   -> PARKED             training is paused in it                 [train.c]
 *   PARKED   -> ACTIVE | STANDBY   training goes on, or was dropped         [train.c]
 *   PARKED   -> CLEANING           the job's state is leaving the device    [train.c]
 *   CLEANING -> STANDBY            it has left                              [train.c]
 *   any      -> DEAD               the process ended                        [pool.c]
 *   DEAD     -> STARTING           after a back-off                         [pool.c]
 *
 * The process of a worker is watched by its pidfd and by its heartbeat (worker_ctl.h): one that is
 * busy and makes no progress for hang-ms (compiling: compile-ms) is killed.
 */
#ifndef SH_EXECUTOR_POOL_POOL_H
#define SH_EXECUTOR_POOL_POOL_H

#include "common/shm.h"
#include "common/wire.h"
#include "executor/memory/transmit.h"
#include "executor/pool/hook.h"
#include "executor/pool/worker_ctl.h"

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

struct worker { /* one place in the pool; the process in it changes */
    struct pool *pool;
    uint32_t index;
    enum worker_state state; /* read; written by pool_set_state */
    pid_t pid;               /* 0: none */
    struct sh_wire *wire;    /* NULL: gone */
    struct worker_log *log;  /* OWNED: of its process */
    struct sh_shm ctl_shm;
    struct worker_ctl *ctl;
    bool is_ready;                        /* WK_READY came */
    struct sh_err unfit;                  /* WK_UNFIT came: why it ends */
    char identity[WORKER_IDENTITY_BYTES]; /* of its device; "" = nothing is kept for it */

    int64_t preparing;   /* model it compiles; 0 = none */
    int64_t compiled_ns; /* when it ended to, last */
    int64_t *models;     /* OWNED: handles it has ready */
    size_t n_models, cap_models;
    int64_t job; /* training job it has compiled; 0 = none */
    bool job_compiling;

    struct payload {       /* payload.h; zeroed but for mem.fd: none */
        struct sh_shm mem; /* OWNED */
        uint64_t id;       /* as a slab */
        uint64_t used;     /* bytes, from the start, that the run at hand has */
    } payload;

    uint32_t ckpt_value; /* of ticket TX_SLOT_WORKER + index; only grows, also over a death */
    uint64_t progress;   /* heartbeat seen, and when it last grew or work began */
    int64_t progress_ns, started_ns;
    int64_t grace_ns;       /* what it may wait for copies, besides hang-ms */
    const char *kill_cause; /* static; NULL: not killed by us */
    const char *exit_cause; /* static: of its last death */
    uint32_t n_fast_deaths;
    uint32_t met; /* tag of whom its process has had something of; 0: nobody, MET_MANY: several */
    bool is_renewed; /* it ended for keep.h, and has not been through with it since */
    struct sh_timer *restart;
};

/* What workers say, and their ends, go to whoever set this up. */
struct pool_handler {
    /* All but WK_READY and WK_UNFIT. False: no such message comes from a worker; it is killed. */
    bool (*on_msg)(void *arg, struct worker *w, const struct sh_msg *m, int *fds, size_t n_fds);
    void (*on_ready)(void *arg, struct worker *w);
    void (*on_dead)(void *arg, struct worker *w, int64_t preparing); /* preparing: as it was */
    void *arg;
};

struct pool_hooks { /* hook.h; all are set */
    bool (*may_run)(void *arg, const struct worker *w);
    bool (*is_held)(void *arg, const struct worker *w); /* it waits for a second WK_INIT */
    void (*fill_init)(void *arg, const struct worker *w, struct msg_wk_init *m);
    /* Of one that has ended; < 0: not by itself. */
    int64_t (*restart_ns)(void *arg, struct worker *w, int64_t wait_ns);
    void *arg;
};

struct pool_conf { /* strings: BORROWED for good */
    const char *executor, *device, *state_dir;
    uint32_t n_workers, ordinal, threads, uid, stop_bound_us, busy_poll_us;
    int64_t hang_ms, compile_ms;
    bool deterministic;
    const struct pool_hooks *hooks; /* NULL: none; BORROWED for good */
};

/* KEEPS mem. *out: OWNED, pool_free(). */
int pool_new(const struct pool_conf *c, struct sh_loop *loop, struct dev_mem *mem,
             const struct pool_handler *h, struct pool **out, struct sh_err *err);
void pool_free(struct pool *p); /* ends all workers */
int pool_start(struct pool *p, struct sh_err *err);
void pool_stop(struct pool *p); /* a worker that ends from now on does not start again */

/* enum msg_fence: those that were up in each worker so far; 0: none has been ready. *why: one is
 * missing, or ""; BORROWED. */
uint32_t pool_fences(const struct pool *p, const char **why);
void pool_second(struct pool *p); /* gauges, and what workers keep on the disk */

extern const struct sh_life WORKER_LIFE; /* common/life.h */
/* The only writer of the state. */
void pool_set_state(struct worker *w, enum worker_state to);

size_t pool_size(const struct pool *p);
struct worker *pool_at(struct pool *p, size_t i);
bool worker_is_alive(const struct worker *w); /* started, ready, and its socket is up */
bool worker_is_idle(const struct worker *w);  /* STANDBY and compiling nothing */
/* Idle, or loading a model, which lets a run go between two of its pieces. */
bool worker_may_run(const struct worker *w);
/* Who could run this model now, one that loads another only if there is no other; NULL: nobody. */
struct worker *pool_find(struct pool *p, int64_t handle);
bool worker_has_model(const struct worker *w, int64_t handle);
void worker_forget_model(struct worker *w, int64_t handle);
int worker_note_model(struct worker *w, int64_t handle, struct sh_err *err);

/* What it works at beside runs, as those say who gave it to it. It compiles a model: */
void worker_begin_model(struct worker *w, int64_t handle);
void worker_end_model(struct worker *w);
/* It compiles a job, instead of the one that it has; job: that it has compiled, 0: it could not. */
void worker_begin_job(struct worker *w);
void worker_end_job(struct worker *w, int64_t job);
/* Its process forgets this job, if that is the one it has. */
void worker_drop_job(struct worker *w, int64_t job);
/* The last value of its ticket that it has named. */
void worker_note_ticket(struct worker *w, uint32_t value);

/* Something of the tenant of this tag (space_tag) goes to it. */
void worker_meet(struct worker *w, uint32_t tag);
bool worker_met_only(const struct worker *w, uint32_t tag); /* or nobody; 0: nobody */

/* A lost connection is no failure here: the death is handled when the process is reaped. */
void worker_send(struct worker *w, const struct sh_msg *m, const int *fds, size_t n_fds);
/* What is sent between the two wakes the worker once. */
void worker_cork(struct worker *w);
void worker_uncork(struct worker *w);
void worker_kill(struct worker *w, const char *cause);    /* cause: static, a metric label */
int pool_send_init(struct worker *w, struct sh_err *err); /* WK_INIT, to its process */
void worker_busy(struct worker *w); /* work begins: the heartbeat's time starts now */
/* What it was given waits so long for copies, besides hang-ms; until its state changes. */
void worker_grant(struct worker *w, int64_t ns);
/* For keep.h: ends it, to begin anew; and: it is through with what that was for. */
void worker_renew(struct worker *w);
void worker_end_renewal(struct worker *w);

#endif
