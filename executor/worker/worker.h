/* worker.h - shared by the files of shunt-worker: one device context, models, a training job.
 *
 * One thread, one task at a time, except that runs go between the pieces of a load. The executor is
 * the only peer: a socket on descriptor 3 (messages WK_* of common/msg.def) and a control page
 * (executor/pool/worker_ctl.h). Files arrive as descriptors; a worker opens none for tasks itself
 * (confine.c). It owns nothing that outlives it. SH_E_DEVLOST ends the process.
 */
#ifndef SH_EXECUTOR_WORKER_WORKER_H
#define SH_EXECUTOR_WORKER_WORKER_H

#include "common/buf.h"
#include "common/hook.h"
#include "common/msg.h"
#include "common/safetensors.h"
#include "common/shm.h"
#include "common/wire.h"
#include "executor/pool/worker_ctl.h"
#include "executor/worker/places.h"
#include "runtime/device/dev.h"
#include "runtime/model/program.h"

#define WORKER_FD 3
#define WORKER_MAX_SLABS 272    /* the largest --max-apis, and some of its executor */
#define WORKER_MAX_MODELS 65536 /* above the largest --max-loaded-versions + --max-loaded-shapes */
#define WORKER_MAX_PARTS 256
#define WORKER_MAX_BATCHES 12 /* 1, 2, 4 ... 1024, and max_batch itself */
#define WORKER_TICKET_TIMEOUT_MS 60000

struct wk_slab {
    uint64_t api_id;
    struct sh_shm shm;
};

struct wk_model {
    int64_t handle;
    const struct wk_model *base; /* owner of graph and image: itself, or the model that it is a
                                    shape of */
    struct sh_sizes sizes;       /* values of the graph's symbols */
    size_t host_bytes;           /* memory of the compiled model in this process */
    struct graph *graph;
    uint32_t n_batches;
    uint32_t batch[WORKER_MAX_BATCHES]; /* ascending */
    struct program *program[WORKER_MAX_BATCHES];
    struct places places[WORKER_MAX_BATCHES]; /* where each ran recently */
    bool is_plain[WORKER_MAX_BATCHES];        /* could not be prepared; not tried again */
    struct sh_shm tables;                     /* tables.h, of a base; fd -1 and base NULL: none */
    const void *tables_device;                /* ... as operations know it */
};

struct wk_part { /* one request's share of the run being assembled */
    uint64_t run_id, api_id;
    uint32_t batch;
    struct msg_span *in, *out; /* OWNED */
    size_t n_in, n_out;
    bool is_out; /* it cannot run, and the executor knows: zeros run in its place */
};

struct wk_train; /* train.c */

struct wk_load { /* the model being compiled: time of each step, and the current one */
    int64_t ns[WORKER_N_LOADS], at_ns;
    enum worker_load step;
};

/* What the laboratory (tests/lab/) changes. A release has no table: it refuses a WK_INIT that
 * holds the worker or is for one run, and a run whose memory is not the arena as mapped. */
struct worker;
struct worker_hooks {
    void (*on_init)(void *arg, const struct msg_wk_init *m);
    bool (*is_for_one)(void *arg); /* it serves one run, of the largest batch; WK_INIT */
    /* For such a run: begin, bring the layers from *layer to end (advances *layer), end. begin_run
     * takes out of fds what it keeps. */
    int (*begin_run)(void *arg, struct worker *w, const struct program *p,
                     const struct msg_wk_run *m, int *fds, size_t n_fds, struct sh_err *err);
    int (*bring)(void *arg, struct worker *w, const struct program *p, const struct msg_wk_run *m,
                 uint32_t *layer, uint32_t end, struct sh_err *err);
    void (*end_run)(void *arg, struct worker *w, const struct msg_wk_run *m);
    void (*forget)(void *arg, struct worker *w, int64_t handle); /* a model is dropped */
    void *arg;
};

struct worker {
    const struct worker_hooks *hooks; /* NULL in a release */
    uint32_t id;
    struct dev_lib *lib;
    struct dev *dev;
    struct sh_shm ctl_shm;
    struct worker_ctl *ctl;
    uint32_t ckpt_slot, ckpt_value; /* ticket of its checkpoints: slot, and last value used */
    size_t arena_bytes;
    double stop_bound_ns; /* limit of training's work queued on the device */
    int64_t busy_poll_ns; /* it polls so long before it sleeps for a message */
    bool has_init;        /* WK_INIT has come, perhaps with hold */
    bool has_driver;      /* the device needs a vendor's driver */
    uid_t uid;            /* user to become; 0: no change */
    bool has_task;        /* its last task is still in reach (dev_task) */
    int kernels_fd;       /* OWNED: the folder of measured kernels; -1: none */
    uint32_t fences;      /* enum msg_fence: to put up; after confine(): those put up */
    char unfenced[200];   /* why one is missing; "" */
    struct wk_slab slabs[WORKER_MAX_SLABS];
    size_t n_slabs;
    struct wk_model **models;
    size_t n_models, cap_models;
    /* sizes, as far as known, of the last model that failed to load */
    size_t refused_bytes, refused_image;
    struct wk_load load;
    struct wk_part parts[WORKER_MAX_PARTS];
    size_t n_parts;
    struct wk_train *train;
    enum msg_packed packed; /* as worker_settle() found it */
    bool is_loading;        /* worker_serve_waiting() */
    struct sh_err end;      /* failure there that ends the process */
    struct sh_buf between;  /* for the messages read there */
    struct sh_wire_ahead ahead;
};

int worker_main(const struct worker_hooks *hooks); /* serve.c; returns the exit status */
/* Is there a message, or within ms? */
bool worker_has_input(const struct worker *w, int ms);
int worker_send(struct worker *w, const struct sh_msg *m, const int *fds, size_t n_fds,
                struct sh_err *err);
/* Waits for the device, also after a failure (why->rc): once that is answered, the memory in use
 * here may be taken away. Adds what it finds to why; a lost device outweighs all else, and then
 * damage of what was unpacked. Sets w->packed. Returns why->rc. */
int worker_settle(struct worker *w, struct sh_err *why);
/* Between two pieces of a load: handles the messages that have come, runs among them. A failure
 * that ends the process is kept in w->end for the end of the load. */
void worker_serve_waiting(struct worker *w);
bool worker_must_stop(const struct worker *w); /* training was told to stop and has not */
/* Logs it if launches of a program that was just warmed up did not verify, so are not repeated. Of
 * a model's version, or a job; 0: it is no such thing. */
void worker_log_replay(const struct program *p, int64_t version, int64_t job);
/* NULL if there is none. */
struct wk_slab *worker_slab(struct worker *w, uint64_t api_id);

/* load.c; infer.c. Failures of a model or request travel back in the answer. The return value is
 * for what ends the worker: the executor is gone, or the device is lost. A model over which the
 * device was lost gets no answer: the worker's end says it, and the model is tried again. */
int infer_on_model(struct worker *w, const struct msg_wk_model *m, const int *fds, size_t n_fds,
                   struct sh_err *err); /* fds: graph and weights of the package; BORROWED */
void infer_on_model_drop(struct worker *w, int64_t handle);
struct wk_model *infer_find(struct worker *w, int64_t handle); /* NULL if there is none */
int infer_on_part(struct worker *w, const struct msg_wk_part *m, struct sh_err *err);
int infer_on_run(struct worker *w, const struct msg_wk_run *m, int *fds, size_t n_fds,
                 struct sh_err *err); /* takes out of fds what it keeps */
void infer_free_all(struct worker *w);

/* confine.c. Call confine_files() before the device's library is loaded, confine() once the device
 * is open. */
int confine_files(struct worker *w, const struct msg_wk_init *m, struct sh_err *err);
int confine(struct worker *w, struct sh_err *err);

/* train.c. Failures as above. */
int train_on_train(struct worker *w, const struct msg_wk_train *m, const int *fds, size_t n_fds,
                   /* fds: graph, weights, dataset, perhaps the evaluation dataset */
                   struct sh_err *err);
int train_on_go(struct worker *w, const struct msg_wk_train_go *m, struct sh_err *err);
void train_on_drop(struct worker *w, int64_t job);

/* data.c - the batches of a training run. The samples of step k depend on (seed, k) alone, so the
 * step number is the cursor. */
struct data;
/* Notes in t what the program depends on: the shape of the dataset's labels, and which inputs it
 * has as bytes. The caller closes fd. */
int data_note(int fd, const struct graph *g, struct train_spec *t, struct sh_err *err);
/* The caller closes fd. *out: OWNED, data_close(). */
int data_open(int fd, const struct program *p, const struct train_spec *t, struct dev *dev,
              struct data **out, struct sh_err *err);
void data_close(struct data *d);
int64_t data_steps(const struct data *d); /* in the whole job */
/* Bytes of workspace that the job needs: the program's, and a tail for the next step's batch. */
size_t data_ws_bytes(const struct data *d);
/* [enqueue] Copies the inputs and labels of step k to where the program reads them. */
int data_load(struct data *d, size_t ws_off, int64_t step, struct sh_err *err);
/* [enqueue] Copies a piece of the batch of the step after the loaded one into the tail, if one is
 * ready. Call it between any two operations. */
int data_prefetch(struct data *d, size_t ws_off, struct sh_err *err);
/* The workspace has changed: it holds no part of a batch any more. */
void data_forget(struct data *d);

#endif
