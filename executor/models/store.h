/* store.h - the models of this executor: package, image in host memory, tables, where they stand.
 *
 *   BUILDING   one idle worker compiles it, brings the image and the times of its layers: read from
 *              what is kept of an earlier load, or made (loading.h)
 *   READY      that worker has it; runs are accepted, and go between the pieces of another load.
 *              The others compile it, one at a time, so that others still serve
 *   FAILED     with the reason; only MODEL_UNLOAD helps
 *   BUILDING -> READY, FAILED or GOING; READY -> GOING; FAILED -> BUILDING or GOING
 *
 * A version whose file leaves sizes open (common/dim.h) is compiled as it comes for one list of
 * them, and beside that it has shapes: each another list, compiled when a run or SHAPE_LOAD asks
 * for it, with the image of the version. A shape is a struct model of its own, but for image and
 * place: BUILDING until the first worker has it, runs for it wait, and nobody else. It is one
 * worker's turn at a time, as for other models. Those that were not used for the longest time go,
 * for room in host memory and for others (--model-shapes).
 *
 *   GOING      no new runs; gone when the last one is done. A worker compiles it once more if all
 *              that had it died before that, as with an internal one, which only its builder has
 *
 * The image (weights in order of use) stays page-locked in host memory from BUILDING's end on, or
 * is mapped from its file where no device reads it by itself; what of it is on the device is
 * residency.h's affair. A model whose compilation kills MODEL_MAX_CRASHES workers in a row is
 * FAILED, so that it cannot keep the pool from starting. One that is READY
 * stays so: a worker that cannot take it serves without it, and tries again later and later.
 */
#ifndef SH_EXECUTOR_MODELS_STORE_H
#define SH_EXECUTOR_MODELS_STORE_H

#include "common/dim.h"
#include "executor/files/blobs.h"
#include "executor/memory/space.h"
#include "executor/models/kept_dir.h"
#include "executor/pool/pool.h"
#include "executor/report/uplink.h"

#define STORE_MAX_VERSIONS 512u
#define STORE_MAX_SHAPES 512u     /* of all versions */
#define STORE_MAX_WAITED_FOR 128u /* of them of one tenant, asked for and not compiled yet */
#define STORE_SHAPES ((int64_t)1 << 62)
#define MODEL_MAX_CRASHES 2u
#define MODEL_MAX_BATCHES 64u

enum model_phase { MODEL_BUILDING, MODEL_READY, MODEL_FAILED, MODEL_GOING, MODEL_N_PHASES };

struct seen {                  /* of one version: seen.h */
    struct seen_shape *shapes; /* OWNED, [SEEN_MAX]; NULL: none so far */
    size_t n;
    bool has_changed;
    int64_t written_ns;
};

struct model {
    struct model *next;
    struct store *store;
    int64_t handle;     /* version id; negative: internal, for the evaluation of job -handle; from
                       STORE_SHAPES on: of a shape */
    struct model *base; /* the version, with image and place: of a shape another one, else this */
    struct sh_sizes sizes; /* that it is compiled for; of a version from READY on */
    char *tenant, *name, *package, *precision; /* OWNED */
    struct blob_set blobs;                     /* its package */
    uint32_t max_batch, tag;
    enum model_phase phase;
    struct sh_err why;    /* of FAILED */
    uint64_t need_bytes;  /* FAILED because it can never have so much device memory here; else 0 */
    uint64_t short_bytes; /* FAILED because so much host memory was missing; else 0 */
    bool is_short_of_tenant; /* ... of what its tenant may have */
    uint32_t n_crashes;      /* workers that died while they compiled it, in a row */
    uint32_t n_retries;      /* of a READY model that a worker could not take, in a row */
    int64_t retry_ns;        /* not compiled before */
    uint32_t n_users;        /* runs queued or running */

    uint64_t program_bytes; /* host memory of what a worker has compiled; 0: not known yet */
    double wanted;          /* 0 to 1: MODEL_LOAD */
    bool is_looked_at;      /* loading.c: the next three are known */
    bool is_quick;          /* there is a file `kept` */
    struct kept_file kept;
    bool is_unkept;        /* keep.h: who made it has met others */
    uint64_t weight_bytes; /* of the package; 0: not known */
    int64_t build_ns;      /* when its builder began */
    int64_t took_ns;       /* of a shape: its first compilation */
    bool is_asked;         /* a shape that somebody waits for */
    struct seen seen;      /* of a version */
    uint64_t turn;         /* of a version: when a shape of it was last begun, by their number */

    struct sh_shm image; /* in memory, or mapped from what is kept of it */
    int kept_fd;         /* OWNED: the file that its builder looks at for us to map; -1: none */
    bool is_locked;
    uint64_t image_bytes;
    uint32_t n_layers, n_batches;
    uint64_t *layer_ends;
    struct msg_batch *batches;
    double *layer_ns;     /* [n_batches][n_layers] */
    uint64_t *input_offs; /* [n_batches][n_inputs]: in a workspace */
    uint32_t n_inputs;    /* 0: the workers do not agree where they lie */

    bool has_image; /* res and tx are set */
    uint32_t res;   /* id in residency.h */
    struct tx_image tx;
    struct tx_place at;    /* while it has a place */
    bool is_placed;        /* between model_place() and model_transmit_begin() */
    bool is_broken;        /* the device refused a copy half-way: wait for the lane, then forget */
    bool is_lost;          /* is_broken, and the lane is done: forgotten with the last pin */
    bool has_mark;         /* the mark that ends its copies is out */
    bool has_rest;         /* between model_transmit_begin() and model_transmit_rest() */
    int64_t keep_until_ns; /* announced by PREPARE: do not evict before */
    bool is_kept;          /* pinned for that */
    bool is_pinned;        /* MODEL_PIN: pin.c */
    int64_t last_use_ns;   /* of a run; 0: none yet */
    struct model_place {   /* what the scheduler was last told */
        uint64_t device_bytes, host_bytes;
        enum msg_pin pin;
        int64_t last_use_ns;
    } told;
};

/* What models have to know of those who use them, and what they say to them. */
struct store_users {
    /* No worker will have the model any more: ends the runs that wait for one. */
    void (*give_up)(void *arg, const struct model *m, const struct sh_err *why);
    bool (*has_waiting)(void *arg, const struct model *m); /* a run, for a worker that has it */
    bool (*is_quiet)(void *arg);                           /* no run, not even a waiting one */
    bool (*is_idle)(void *arg);                            /* training may have the device */
    bool (*wants_memory)(void *arg);                       /* the current run looks for room */
    void (*pause_training)(void *arg, struct worker *w);   /* it is to compile a model */
    bool (*is_torn)(void *arg, const struct worker *w);    /* it is paused within an update */
    void *arg;
};

struct store_hooks { /* hook.h; all are set */
    bool (*locks_images)(void *arg);
    bool (*maps_images)(void *arg);
    bool (*has_memory)(void *arg); /* false: a run has memory of its own, elsewhere */
    bool (*drops_idle)(void *arg); /* a model leaves the device with its last pin */
    void *arg;
};

struct store_env {
    const char *executor;            /* its name; BORROWED for good, as all that is pointed to */
    int64_t host_bytes;              /* for models in host memory; 0: half of what the host has */
    int64_t max_shapes;              /* of a version */
    int64_t renew_s;                 /* keep.h; 0: never */
    const struct store_hooks *hooks; /* NULL: none */
    struct tx *tx;
    struct dev_mem *mem;
    struct space *space;
    struct pool *pool;
    const struct files *files;
    const struct uplink *up;
    struct kept_dir *kept;
};

/* *out: OWNED, store_free(). */
int store_new(const struct store_env *env, const struct store_users *users, struct store **out,
              struct sh_err *err);
void store_free(struct store *s);
bool store_turn(struct store *s); /* true: it did something */
/* Is there a model that this worker should compile? */
bool store_worker_lacks(struct store *s, const struct worker *w);

/* Idempotent: a model that is known only answers. Refusals are answered with MODEL_STATE too. */
void store_load(struct store *s, const struct msg_model_load *m);
void store_unload(struct store *s, int64_t handle);
/* For the evaluation of a trained model, whose package is a path of its own, not one below blobs/.
 * *out: BORROWED until store_unload(). */
int store_load_internal(struct store *s, const struct msg_model_load *m, struct model **out,
                        struct sh_err *err);
struct model *store_find(struct store *s, int64_t handle); /* BORROWED; NULL if there is none */
/* Tells the scheduler where it stands. */
void model_report(const struct model *m);
void shape_report(const struct model *m); /* of a version: for the sizes that it is compiled for */
size_t store_size(const struct store *s); /* versions and shapes */
struct model *store_next(struct store *s, const struct model *m); /* NULL: first, then the rest */
/* shapes.c. The same for shapes, of all versions. */
struct model *store_next_shape(struct store *s, const struct model *m);
/* What runs a version with these sizes: itself, or a shape, new or not. sizes->n 0: itself. *out:
 * BORROWED; while it has n_users it stays. Fails: SH_E_QUEUEFULL (others have all the places),
 * SH_E_INVALID, SH_E_NOMEM; and why it has failed. */
int store_shape(struct model *version, const struct sh_sizes *sizes, struct model **out,
                struct sh_err *err);
/* The same for a run. *version: NULL if it is not there. */
int store_shape_of(struct store *s, const struct msg_run *m, struct model **version,
                   struct model **shape, struct sh_err *err);
/* A run is for this version and shape (which may be the version itself): they stay until it lets
 * go of them. NULL: nothing. */
void store_hold(struct model *version, struct model *shape);
void store_let_go(struct model *version, struct model *shape);
void store_note_use(struct model *version, struct model *shape); /* it has its memory now */
/* SHAPE_LOAD: answered with SHAPE_STATE, now or when it is READY or has FAILED. */
void store_load_shape(struct store *s, const struct msg_shape_load *m);

void store_update_metrics(struct store *s);

/* pin.c. A pinned image is brought to the device when that is idle, and goes from there only when a
 * run or training that needs its place has found no other: then it comes back afterwards. */
void store_pin(struct store *s, int64_t handle, bool is_pinned);
/* Last resort for memory: pinned images may be evicted until the next second. False: there was none
 * to give up. */
bool store_yield_pins(struct store *s);
/* Once a second: brings pinned images back, tells the scheduler what has changed. */
void store_second(struct store *s);
/* Tells it at once: of this image, changed or not; of all that have lost something of theirs. */
void store_tell_place(struct model *m);
void store_tell_evicted(struct store *s);
void store_told_nothing(struct store *s); /* a new scheduler */

void store_on_model_done(struct store *s, struct worker *w, const struct msg_wk_model_done *m,
                         int *fds, size_t n_fds);
void store_on_worker_dead(struct store *s, int64_t preparing);

/* The table row for a batch: the smallest compiled size that holds it; NULL: too large. */
const struct msg_batch *model_batch(const struct model *m, uint32_t batch, const double **layer_ns);
uint64_t model_resident_bytes(const struct model *m);
/* Can it ever have its image and ws bytes beside it here? Fails: SH_E_TOOBIG (the pool is too
 * small), SH_E_QUOTA (of its tenant); then need_bytes is set. */
int model_check_fits(struct model *m, uint64_t ws, struct sh_err *err);
/* Sends what is missing to the device; the image gets its place. Pins until all has arrived.
 * Fails: SH_E_DEVMEM, and what the device says. */
int model_transmit(struct model *m, const double *layer_ns, struct sh_err *err);
/* The same in three parts, for a run: its inputs go on the lane before the second, which sends the
 * first group, and its worker is told of the groups' tickets before the third. Once the first has
 * succeeded the others have to follow, and nothing else is put on the lane between them; when the
 * last fails, the tickets are raised. *hit_out: bytes that were there. */
int model_place(struct model *m, uint64_t *hit_out, struct sh_err *err);
int model_transmit_begin(struct model *m, const double *layer_ns, struct sh_err *err);
int model_transmit_rest(struct model *m, struct sh_err *err);
/* The same if no run waits for memory, and keeps it for a while. Without may_evict it costs nobody
 * anything; with it images go that nobody keeps. The scheduler hears what became of it. */
void model_prepare(struct model *m, bool may_evict);
/* Of a run with these layer times, what is left when the last byte arrives (tx_tail_ns). */
double model_tail_ns(const struct model *m, const double *layer_ns);
/* Gives up what PREPARE announced: at its time (now_ns), or at once (INT64_MAX). */
void model_unkeep(struct model *m, int64_t now_ns);
/* Takes one pin off. */
void model_unpin(struct model *m);
/* On every tick: what is over in time, and what the device refused. */
void model_tick(struct model *m, int64_t now_ns);
/* The watchdog: frees who waits for this image and forgets what is on the device. */
void model_force(struct model *m);

#endif
