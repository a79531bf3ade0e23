/* worker.h - what the files of shunt-worker share: one device context, models, a training job.
 *
 * One thread: one task after the other, but runs go between the pieces of a load. The executor is
 * the only peer: a socket on descriptor 3 (messages WK_* of common/msg.def) and a control page
 * (executor/pool/worker_ctl.h). Files come as descriptors: it opens none itself (confine.c). A
 * worker owns nothing that outlives it; SH_E_DEVLOST ends the process.
 */
#ifndef SH_EXECUTOR_WORKER_WORKER_H
#define SH_EXECUTOR_WORKER_WORKER_H

#include "common/buf.h"
#include "common/msg.h"
#include "common/safetensors.h"
#include "common/shm.h"
#include "executor/pool/worker_ctl.h"
#include "executor/worker/places.h"
#include "runtime/device/dev.h"
#include "runtime/model/program.h"

#define WORKER_FD 3
#define WORKER_MAX_SLABS 64
#define WORKER_MAX_MODELS 1024
#define WORKER_MAX_PARTS 256
#define WORKER_MAX_BATCHES 12 /* 1, 2, 4 ... 1024, and max_batch itself */
#define WORKER_TICKET_TIMEOUT_MS 60000

struct wk_slab {
    uint64_t api_id;
    struct sh_shm shm;
};

struct wk_model {
    int64_t handle;
    const struct wk_model *base; /* whose graph and image these are: itself, or one that it is a
                                    shape of */
    struct sh_sizes sizes;       /* of the graph's symbols */
    size_t host_bytes;           /* of this process, what it is compiled to */
    struct graph *graph;
    uint32_t n_batches;
    uint32_t batch[WORKER_MAX_BATCHES]; /* ascending */
    struct program *program[WORKER_MAX_BATCHES];
    struct places places[WORKER_MAX_BATCHES]; /* where each of them ran lately */
    bool is_plain[WORKER_MAX_BATCHES];        /* it could not be prepared: not tried again */
};

struct wk_part { /* one request's share of the run being assembled */
    uint64_t run_id, api_id;
    uint32_t batch;
    struct msg_span *in, *out; /* OWNED */
    size_t n_in, n_out;
    bool is_out; /* it cannot run, which its peer has been told: zeros run in its place */
};

struct wk_train; /* train.c */

struct wk_load { /* of the model that it compiles: time of each step, and the present one */
    int64_t ns[WORKER_N_LOADS], at_ns;
    enum worker_load step;
};

/* What the laboratory (executor/lab/) changes. A release has no table: it refuses a WK_INIT to be
 * held or for one run, and a run whose memory is not the arena as it is mapped. */
struct worker;
struct worker_hooks {
    void (*on_init)(void *arg, const struct msg_wk_init *m);
    bool (*is_for_one)(void *arg); /* for one run of the largest batch; WK_INIT */
    /* Such a run: begin, bring the layers from *layer to end (and moves *layer), end. begin takes
     * out of fds what it keeps. */
    int (*begin_run)(void *arg, struct worker *w, const struct program *p,
                     const struct msg_wk_run *m, int *fds, size_t n_fds, struct sh_err *err);
    int (*bring)(void *arg, struct worker *w, const struct program *p, const struct msg_wk_run *m,
                 uint32_t *layer, uint32_t end, struct sh_err *err);
    void (*end_run)(void *arg, struct worker *w, const struct msg_wk_run *m);
    void (*forget)(void *arg, struct worker *w, int64_t handle); /* a model goes */
    void *arg;
};
#define WORKER_ASK(w, name, otherwise, ...) \
    ((w)->hooks ? (w)->hooks->name((w)->hooks->arg __VA_OPT__(, ) __VA_ARGS__) : (otherwise))
#define WORKER_TELL(w, name, ...)                                         \
    do {                                                                  \
        if ((w)->hooks)                                                   \
            (w)->hooks->name((w)->hooks->arg __VA_OPT__(, ) __VA_ARGS__); \
    } while (0)

struct worker {
    const struct worker_hooks *hooks; /* NULL in a release */
    uint32_t id;
    struct dev_lib *lib;
    struct dev *dev;
    struct sh_shm ctl_shm;
    struct worker_ctl *ctl;
    uint32_t ckpt_slot, ckpt_value; /* ticket of this worker's checkpoints: the last value used */
    size_t arena_bytes;
    double stop_bound_ns; /* work that training may have queued on the device */
    int64_t busy_poll_ns; /* before it sleeps for the next message */
    bool has_init;        /* WK_INIT has come, perhaps with hold */
    bool has_driver;      /* of a vendor: the device is no part of ours */
    uid_t uid;            /* that it becomes; 0: it stays who it is */
    bool has_task;        /* what it ran last is still in reach (dev_task) */
    int kernels_fd;       /* OWNED: the folder of measured kernels; -1: none */
    uint32_t fences;      /* enum msg_fence: to put up; after confine(): those that are */
    char unfenced[200];   /* why one is not; "" */
    struct wk_slab slabs[WORKER_MAX_SLABS];
    size_t n_slabs;
    struct wk_model **models;
    size_t n_models, cap_models;
    size_t refused_bytes, refused_image; /* of the last model that failed to load: so far */
    struct wk_load load;
    struct wk_part parts[WORKER_MAX_PARTS];
    size_t n_parts;
    struct wk_train *train;
    bool is_loading;       /* worker_serve_waiting() */
    struct sh_err end;     /* what it met there, after which the process ends */
    struct sh_buf between; /* of the messages that it reads there */
};

int worker_main(const struct worker_hooks *hooks); /* serve.c: the process */
int worker_send(struct worker *w, const struct sh_msg *m, const int *fds, size_t n_fds,
                struct sh_err *err);
/* Waits for the device, after a failure (why->rc) too: when that is answered, the memory that is
 * read and written here may be taken. Adds what it finds to why; a lost device outweighs all else.
 * Returns why->rc. */
int worker_settle(struct worker *w, struct sh_err *why);
/* Between two pieces of a load: handles the messages that have come meanwhile, runs among them,
 * with the arena as memory. What it meets is for the end of the load: w->end. */
void worker_serve_waiting(struct worker *w);
bool worker_must_stop(const struct worker *w); /* training was told to, and has not yet */
/* NULL if there is none. */
struct wk_slab *worker_slab(struct worker *w, uint64_t api_id);

/* load.c; infer.c. Failures of the model or request travel back in the answer; the return value
 * is for what ends the worker: the executor is gone, or the device is lost. A model that the
 * device was lost over is not answered for: the worker's end says it, and the model is tried
 * again. */
int infer_on_model(struct worker *w, const struct msg_wk_model *m, const int *fds, size_t n_fds,
                   struct sh_err *err); /* fds: graph, weights of the package; the caller's */
void infer_on_model_drop(struct worker *w, int64_t handle);
struct wk_model *infer_find(struct worker *w, int64_t handle); /* NULL if there is none */
int infer_on_part(struct worker *w, const struct msg_wk_part *m, struct sh_err *err);
int infer_on_run(struct worker *w, const struct msg_wk_run *m, int *fds, size_t n_fds,
                 struct sh_err *err); /* takes out of fds what it keeps */
void infer_free_all(struct worker *w);

/* confine.c. The one before the device's library is loaded, the other when the device is open. */
int confine_files(struct worker *w, const struct msg_wk_init *m, struct sh_err *err);
int confine(struct worker *w, struct sh_err *err);

/* train.c, likewise. */
int train_on_train(struct worker *w, const struct msg_wk_train *m, const int *fds, size_t n_fds,
                   struct sh_err *err); /* fds: those two, the dataset, and perhaps another */
int train_on_go(struct worker *w, const struct msg_wk_train_go *m, struct sh_err *err);
void train_on_drop(struct worker *w, int64_t job);

/* data.c - the batches of a training run: which samples belong to step k is a function of
 * (seed, k) alone, so that the step number is the cursor. */
struct data;
/* The caller closes fd. *out: OWNED, data_close(). */
/* What the program depends on, noted in t: the shape of the dataset's labels, and which inputs it
 * has as bytes. */
int data_note(int fd, const struct graph *g, struct train_spec *t, struct sh_err *err);
int data_open(int fd, const struct program *p, const struct train_spec *t, struct dev *dev,
              struct data **out, struct sh_err *err);
void data_close(struct data *d);
int64_t data_steps(const struct data *d); /* of the whole job */
/* What the job needs as workspace: the program's, and a tail for the batch of the next step. */
size_t data_ws_bytes(const struct data *d);
/* [enqueue] step k's inputs and labels, to where the program reads them. */
int data_load(struct data *d, size_t ws_off, int64_t step, struct sh_err *err);
/* [enqueue] a piece of the batch of the step after the loaded one, into the tail, if one is ready.
 * Between any two operations. */
int data_prefetch(struct data *d, size_t ws_off, struct sh_err *err);
/* The workspace is not what it was: nothing of a batch is in it. */
void data_forget(struct data *d);

#endif
