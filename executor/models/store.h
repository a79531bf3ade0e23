/* store.h - the models of this executor: package, image in host memory, tables, and residency.
 *
 *   BUILDING   one idle worker compiles it and brings the image and the times of its layers, either
 *              kept from an earlier load or made now (loading.h)
 *   READY      that worker has it, and runs are accepted; they go between the pieces of other
 *              loads. The other workers compile it one at a time, so that some still serve
 *   FAILED     with the reason. MODEL_LOAD tries again if its files did not come or the failure may
 *              be over; otherwise only MODEL_UNLOAD helps
 *   GOING      no new runs; gone when the last one is done. If all workers that had it died first,
 *              as for an internal model (only its builder has it), a worker compiles it again
 *   BUILDING -> READY, FAILED or GOING; READY -> GOING; FAILED -> BUILDING or GOING
 *
 * Shapes. If its file leaves sizes open (common/dim.h), a version is compiled for one list of
 * sizes, and has a shape for each other list. A shape is compiled when a run or SHAPE_LOAD asks for
 * it, and uses the version's image. It is a struct model of its own, without image and place. While
 * it is BUILDING, runs for it wait, and no others. As with models, one worker compiles it at a
 * time. The least recently used shapes go to make room in host memory or for others
 * (--model-shapes).
 *
 * The image (weights in order of use) is page-locked in host memory, or mapped from its file if no
 * device reads it by itself. residency.h decides what is on the device, tier.h what is on disk
 * alone.
 * A model that kills MODEL_MAX_CRASHES workers in a row while they compile it is FAILED, so that it
 * cannot keep the pool from starting. A READY model stays so: a worker that cannot take it serves
 * without it and tries again, each time later. While no worker that takes runs has it (is_served),
 * it is reported as LOADING, and compiled before all others. A worker that trains takes none, nor
 * does one that is at one piece of a load for very long: it hangs, perhaps.
 *
 * Belongs to the loop's thread.
 */
#ifndef SH_EXECUTOR_MODELS_STORE_H
#define SH_EXECUTOR_MODELS_STORE_H

#include "common/dim.h"
#include "executor/files/blobs.h"
#include "executor/memory/space.h"
#include "executor/models/apart_state.h"
#include "executor/models/image_of.h"
#include "executor/models/kept_dir.h"
#include "executor/pool/waits.h"
#include "executor/report/uplink.h"

#define STORE_MAX_WAITED_FOR 128u /* of one tenant, asked for and not compiled yet */
#define STORE_SHAPES ((int64_t)1 << 62)
#define MODEL_MAX_CRASHES 2u
#define MODEL_MAX_BATCHES 64u

enum model_phase { MODEL_BUILDING, MODEL_READY, MODEL_FAILED, MODEL_GOING, MODEL_N_PHASES };

struct seen {                  /* counts of one version (seen.h) */
    struct seen_shape *shapes; /* OWNED, [SEEN_MAX]; NULL: none yet */
    size_t n;
    bool has_changed;
    int64_t written_ns;
};

struct model {
    struct model *next;
    struct store *store;
    int64_t handle;     /* version id; negative: internal, for the evaluation of job -handle; from
                       STORE_SHAPES on: a shape */
    struct model *base; /* a shape's version, which has image and place; else this */
    struct sh_sizes sizes; /* compiled for these; a version has them from READY on */
    char *tenant, *name, *package, *precision; /* OWNED */
    struct blob_set blobs;                     /* the package */
    uint32_t max_batch, tag;
    enum model_phase phase;
    struct sh_err why;    /* why it FAILED */
    uint64_t need_bytes;  /* FAILED: device memory that it needs and can never have here; else 0 */
    uint64_t short_bytes; /* FAILED: host memory that was missing; else 0 */
    bool is_short_of_tenant; /* ... from its tenant's quota */
    uint32_t n_crashes;      /* consecutive workers that died compiling it */
    uint32_t n_retries;      /* READY: consecutive failures of a worker to take it */
    int64_t retry_ns;        /* not compiled before this */
    uint32_t n_users;        /* runs queued or running */

    uint64_t program_bytes; /* host memory of a worker's programs; 0: not known yet */
    double wanted;          /* demand, 0 to 1 (MODEL_LOAD) */
    bool is_looked_at;      /* loading_look() has set the next three */
    bool is_quick;          /* the file `kept` exists */
    struct kept_file kept;
    char *source;        /* OWNED: address of an executor that has its image in memory; "": none */
    struct fetch *fetch; /* OWNED: fetch.h */
    bool is_unkept;      /* its maker has met other tenants (keep.h) */
    uint64_t weight_bytes; /* in the package; 0: not known */
    int64_t build_ns;      /* when its builder started */
    int64_t took_ns;       /* a shape's first compilation */
    bool is_asked;         /* a shape that somebody waits for */
    bool is_served;        /* READY, and a worker that takes runs has it: reported as READY */
    struct seen seen;      /* of a version */
    /* of a version: number of the last turn in which one of its shapes began */
    uint64_t turn;

    struct sh_shm image; /* in memory, or mapped from the kept file; unset: on disk alone */
    struct tier tier;
    struct tables tables;
    struct share share;
    int kept_fd;   /* OWNED: kept file that the builder checks before we map it; -1: none */
    size_t locked; /* so many bytes of the image: all of them, or none */
    uint64_t image_bytes, room_bytes; /* on the device; of its place there ... */
    uint64_t spare_bytes;             /* ... with so many to unpack in fewer launches */
    bool gives_spare;                 /* when it can: they are needed for something else */
    uint64_t link_bytes; /* in host memory, and over the link: the same if it is not packed */
    uint32_t n_layers, n_batches;
    uint64_t *layer_ends;
    uint64_t *link_ends;  /* of the packed layers; NULL: they are not packed */
    uint32_t packed_from; /* packed.c; n_layers: no packed layer is on the device */
    struct apart apart;
    bool is_spoiled; /* a worker ended, perhaps while it unpacked */
    struct msg_batch *batches;
    double *layer_ns;     /* [n_batches][n_layers] */
    uint64_t *input_offs; /* [n_batches][n_inputs]: offsets in a workspace */
    uint32_t n_inputs;    /* 0: workers disagree on where inputs lie */

    bool has_image; /* res and tx are set */
    uint32_t res;   /* its id in residency.h */
    struct tx_image tx;
    struct tx_place at; /* valid while it has a place */
    bool is_placed;     /* between model_place() and model_transmit_begin() */
    bool is_broken;     /* the device refused a copy half-way; forget it after the lane */
    bool is_lost;       /* is_broken and the lane is done; forget it with the last pin */
    bool has_mark;      /* the mark behind its copies is enqueued */
    enum model_rest rest;
    int64_t keep_until_ns; /* announced by PREPARE: no eviction before this */
    bool is_kept;          /* pinned for that */
    bool is_pinned;        /* MODEL_PIN: pin.c */
    int64_t last_use_ns;   /* of the last run; 0: none yet */
    struct model_place {   /* what the scheduler was last told */
        uint64_t device_bytes, host_bytes, disk_bytes;
        uint64_t image_part; /* of host_bytes, its image's: not in the message */
        uint64_t shared_bytes;
        enum msg_pin pin;
        int64_t unpack_ns, last_use_ns;
    } told;
    int64_t wait_told_ns; /* for a worker (waits.h), as the scheduler was told */
};

/* What models need to know from their users, and what they report to them. All are set. */
struct store_users {
    /* No worker will ever have the model: ends the runs that wait for it. */
    void (*give_up)(void *arg, const struct model *m, const struct sh_err *why);
    bool (*has_waiting)(void *arg, const struct model *m); /* a run waits for a worker with m */
    bool (*is_quiet)(void *arg);                           /* no run, not even a waiting one */
    bool (*is_idle)(void *arg);                            /* training may use the device */
    bool (*wants_memory)(void *arg);                       /* the current run needs room */
    void (*pause_training)(void *arg, struct worker *w);   /* w is about to compile a model */
    bool (*is_torn)(void *arg, const struct worker *w);    /* w is paused within an update */
    const struct worker *(*trainer)(void *arg);            /* where a job runs; NULL: none */
    void *arg;
};

struct store_hooks { /* hook.h; all are set */
    bool (*locks_images)(void *arg);
    bool (*maps_images)(void *arg);
    bool (*has_memory)(void *arg); /* false: a run uses its own memory, elsewhere */
    bool (*drops_idle)(void *arg); /* a model leaves the device with its last pin */
    void *arg;
};

struct store_env {
    const char *executor; /* its name; all pointers BORROWED for good */
    int64_t host_bytes;   /* host memory for models; 0: half of the host's */
    int64_t max_shapes;   /* for each version */
    int64_t max_versions, max_all_shapes;
    int64_t renew_s;                 /* keep.h; 0: never */
    enum msg_pack packs;             /* images that are made from now on */
    uint32_t keep_packed_percent;    /* of device memory (apart.h); APART_NEVER: never */
    enum msg_tables tables;          /* ... what of them is read in place */
    bool shares;                     /* equal chunks are held once (share.h) */
    const struct store_hooks *hooks; /* NULL: none */
    struct sh_loop *loop;
    struct sh_wire_keys *link_keys;
    struct tx *tx;
    struct dev_mem *mem;
    struct locking *locking;
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
bool store_turn(struct store *s); /* true: it took a step */
/* Should this worker compile some model? */
bool store_worker_lacks(struct store *s, const struct worker *w);
bool store_is_due(void *store, const struct worker *w); /* a load waits that may begin in it */
/* For tests: is what it thinks that workers lack what they lack? */
bool lacks_are_known(struct store *s);

/* Idempotent: a known model only answers. Answers, and refusals too, are MODEL_STATE. */
void store_load(struct store *s, const struct msg_model_load *m);
void store_unload(struct store *s, int64_t handle);
/* For the evaluation of a trained model; its package is an absolute path, not a blob. It gets a
 * handle of its own, below 0, whatever m says: a worker may still be compiling that of an earlier
 * start of the same job. *out: BORROWED until store_unload(). */
int store_load_internal(struct store *s, const struct msg_model_load *m, struct model **out,
                        struct sh_err *err);
struct model *store_find(struct store *s, int64_t handle); /* BORROWED; NULL if there is none */
/* Sends MODEL_STATE. */
void model_report(struct model *m);
void shape_report(const struct model *m); /* for a version: of the sizes that it is compiled for */
size_t store_size(const struct store *s); /* versions and shapes */
struct model *store_next(struct store *s, const struct model *m); /* m NULL: the first */
/* shapes.c. The same for the shapes of all versions. */
struct model *store_next_shape(struct store *s, const struct model *m);
/* What runs a version with these sizes: the version, or a shape, which may be new. sizes->n 0: the
 * version. *out: BORROWED; it stays while it has n_users. Fails: SH_E_QUEUEFULL (no places left),
 * SH_E_INVALID, SH_E_NOMEM, and with the reason of a shape that has failed. */
int store_shape(struct model *version, const struct sh_sizes *sizes, struct model **out,
                struct sh_err *err);
/* The same for a run. *version: NULL if it is not loaded. */
int store_shape_of(struct store *s, const struct msg_run *m, struct model **version,
                   struct model **shape, struct sh_err *err);
/* For a run: keeps this version and shape (which may be the same model) until store_let_go(). NULL:
 * nothing. */
void store_hold(struct model *version, struct model *shape);
void store_let_go(struct model *version, struct model *shape);
void store_note_use(struct model *version, struct model *shape); /* the run has its memory now */
/* SHAPE_LOAD: answers with SHAPE_STATE, now or when the shape is READY or FAILED. */
void store_load_shape(struct store *s, const struct msg_shape_load *m);

void store_update_metrics(struct store *s);

/* pin.c. A pinned image is brought to the device when that is idle. It leaves only for a run or
 * training that finds no other place, and then comes back. */
void store_pin(struct store *s, int64_t handle, bool is_pinned);
/* Last resort for memory: pinned images may be evicted until the next second. False: there was none
 * to evict. */
bool store_yield_pins(struct store *s);
/* Once a second: brings back pinned images and tells the scheduler of changes. */
void store_second(struct store *s);
/* Tells the scheduler at once: of this image, changed or not; of all images that lost blocks. */
void store_tell_place(struct model *m);
void store_tell_evicted(struct store *s);
/* For another message that says where the image is, as MODEL_PLACE does: its device_bytes. From
 * then on the scheduler is told of what differs from that. unpack_ns NULL: the message has no place
 * for it, and the scheduler takes nothing for packed. */
uint64_t store_say_place(struct model *m, int64_t *unpack_ns);
void store_tell_waits(struct store *s, const struct waits *w); /* what has changed of them */
uint64_t store_n_served_changes(struct store *s);              /* so often a wait began anew */
void store_told_nothing(struct store *s); /* the scheduler is new and knows nothing */

void store_on_model_done(struct store *s, struct worker *w, const struct msg_wk_model_done *m,
                         int *fds, size_t n_fds);
void store_on_worker_dead(struct store *s, int64_t preparing);

/* The row for a batch: the smallest compiled size that holds it; NULL: too large. BORROWED, and
 * *layer_ns. */
const struct msg_batch *model_batch(const struct model *m, uint32_t batch, const double **layer_ns);
uint64_t model_resident_bytes(const struct model *m); /* on the device; perhaps still packed */
/* Can this device ever hold its image with ws bytes beside it? Fails: SH_E_TOOBIG (the pool is too
 * small), SH_E_QUOTA (its tenant's); sets need_bytes. */
int model_check_fits(struct model *m, uint64_t ws, struct sh_err *err);
/* The same of a workspace that came later, for a shape perhaps, whose room this sets: before that
 * fails, the image does without a range that is longer than it must be. */
int model_check_more(struct model *m, uint64_t ws, struct sh_err *err);
/* Gives the image its place and sends what is missing. Pins it until all has arrived. Fails:
 * SH_E_DEVMEM, or as the device. */
int model_transmit(struct model *m, const double *layer_ns, struct sh_err *err);
/* The same in three parts, for a run. Its inputs go on the lane before the second part, which sends
 * the first group; its worker is told of the groups' tickets before the third. Once the first part
 * has succeeded, the others must follow, and nothing else may go on the lane between them. If the
 * last part fails, the tickets are raised. *hit_out: bytes that were resident. What is read from
 * disk first (tier.h) goes on the lane later, as it comes; if that fails, is_broken says so, and
 * whoever waited goes on with garbage. */
int model_place(struct model *m, uint64_t *hit_out, struct sh_err *err);
int model_transmit_begin(struct model *m, const double *layer_ns, struct sh_err *err);
int model_transmit_rest(struct model *m, struct sh_err *err);
/* The same if no run waits for memory, and keeps the image for a while. Without may_evict it takes
 * free room only; with it, images that nobody keeps are evicted. Tells the scheduler the result. */
void model_prepare(struct model *m, bool may_evict);
/* ahead.c. The same before anybody asks for it: in free memory, and that of images that nobody has
 * used for a minute if they may leave; a group at a time, as long as there is no run and nothing
 * else on the lane. What has come by then stays; nobody keeps it. */
void model_bring_ahead(struct model *m, bool may_evict_stale);
/* Somebody needs memory that such an image has: it gives up what has not come. False: there is
 * none. */
bool store_drop_ahead(struct store *s);
/* The time that a run with these layer times still takes when the last byte arrives
 * (tx_tail_ns). */
double model_tail_ns(const struct model *m, const double *layer_ns);
/* Stops keeping what PREPARE announced if its time is over at now_ns; INT64_MAX: in any case. */
void model_unkeep(struct model *m, int64_t now_ns);
bool store_unkeep_all(struct store *s); /* each; false: there was none */
/* lock.c. Page-locks all of the image. Fails: as the device; then nothing of it is locked. */
int model_lock(struct model *m, struct sh_err *err);
void model_unlock(struct model *m);
/* Removes one pin. */
void model_unpin(struct model *m);
/* On every tick: ends what has timed out or the device has refused. */
void store_tick(struct store *s, int64_t now_ns);
/* For the watchdog: releases whoever waits for this image, and forgets what is on the device. */
void model_force(struct model *m);

#endif
