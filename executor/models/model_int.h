/* model_int.h - shared by the files of this room. */
#ifndef SH_EXECUTOR_MODELS_MODEL_INT_H
#define SH_EXECUTOR_MODELS_MODEL_INT_H

#include "executor/files/disk.h"
#include "executor/memory/locking.h"
#include "executor/models/store.h"

const struct store_env *store__env(const struct store *s);
const struct store_users *store__users(const struct store *s);
/* shapes.c */
struct store_shapes { /* zeroed: none */
    struct model *first;
    size_t n;
    int64_t last;     /* the last handle given out */
    uint64_t n_turns; /* turns that tenants have had to compile a shape */
};
struct store_shapes *store__shapes(struct store *s);
/* Makes it known to store_find(). Fails: SH_E_NOMEM; then nobody knows it. */
int store__put(struct store *s, struct model *m, struct sh_err *err);
bool shapes__any(struct store *s, const struct model *version);
/* The version is going, and its shapes with it. */
void shapes__leave(struct store *s, const struct model *version);
/* Gives up the least recently used shape: of the version; if that is NULL, of the tenant of
 * of_tenant; if that is NULL too, of the tenant with the most shapes. It is gone in the next turn.
 * False: all are in use. */
bool shapes__evict(struct store *s, const struct model *version, const struct model *of_tenant);
/* The next shape to compile, and who does; NULL: none. Of those that are due and have a worker:
 * tenants take turns, so that one with many new shapes does not hold up the others; each tenant's
 * oldest shape comes first. asked: only shapes that somebody waits for. is_due: lacks__is_due. */
struct shapes_ask {
    bool (*is_due)(struct store *s, const struct model *m, bool asked);
    struct worker *(*worker_for)(struct store *s, const struct model *m); /* NULL: none is free */
    bool asked;
};
struct model *shapes__next(struct store *s, const struct shapes_ask *ask, struct worker **w);
/* Checks and keeps the tables that its first worker made. */
int shapes__take_tables(struct model *shape, const struct msg_wk_model_done *d, struct sh_err *err);
int shapes__read_sizes(struct sh_blob b, struct sh_sizes *out, struct sh_err *err);
/* model_go.c */
struct store_counts {
    size_t n_in[MODEL_N_PHASES]; /* models and shapes */
    uint64_t n_changes;          /* of these, and of when one may be compiled */
    uint64_t n_served_changes;   /* one began to be served, or ceased to be */
};
struct store_counts *store__counts(struct store *s);
/* One more or one less is in its phase. */
void model__count(const struct model *m, int change);
/* lacks.c: what workers should compile that others have. */
struct store_lacks {
    struct lacks_seen {                    /* by worker: the last look, which holds ... */
        uint64_t n_changes, n_own_changes; /* ... as long as these are the same */
        int64_t until_ns;                  /* ... and until then */
        bool any;
    } seen[POOL_MAX_WORKERS];
};
struct store_lacks *store__lacks(struct store *s);
bool lacks__any(struct store *s, const struct worker *w);
/* The one to compile first; NULL: none. */
struct model *lacks__next(struct store *s, const struct worker *w);
bool lacks__any_idle(struct store *s); /* is there an idle worker that lacks something? */
/* Should this shape be compiled: nobody has it, or nobody who takes the run that waits for it?
 * asked: only if somebody waits. */
bool lacks__is_due(struct store *s, const struct model *shape, bool asked);
bool lacks__is_compiled_now(struct store *s, int64_t handle);
/* Its runs have nowhere to go: the only worker that had an internal model died, or all that had one
 * which is going. */
bool lacks__is_orphan(struct store *s, const struct model *m);
struct host_quotas { /* by tag: bytes of host memory for a tenant's models; 0: the default */
    uint64_t *max;   /* OWNED */
    size_t n, cap;
};
struct host_quotas *store__host_quotas(struct store *s);
/* Time of a slow load for each byte of weights, as far as known. */
double *store__ns_per_byte(struct store *s);
double *store__disk_ns_per_byte(struct store *s); /* of tier.h, as measured */
struct store_told {                               /* pin.c: of the places of images */
    int64_t last;       /* handle of the version of which store_second() told last; 0: none */
    uint64_t n_evicted; /* of space_n_evicted(): the scheduler has heard of them */
};
struct store_told *store__told(struct store *s);
struct arrival;
struct arrival **store__arrivals(struct store *s); /* arrival.c: the first one, OWNED */
/* A worker is through with a model. If it comes with the image of one that is BUILDING this may be
 * in m->image already, with fds[0]. */
void store__take_done(struct store *s, struct worker *w, const struct msg_wk_model_done *d,
                      int *fds, size_t n_fds);
int64_t *store__renewed_ns(struct store *s); /* when keep.h last restarted a worker */
/* served.c: after any change of what workers have. Who sends runs hears of it. */
void served__note(struct model *m);
void served__note_all(struct store *s);
/* A worker that has it takes runs now: a shape is served by one that trains as well. */
bool served__is_taken(const struct model *m);
/* w has started, and takes runs from now on. */
void served__join(struct store *s, struct worker *w);
/* Do all others start, or none lives? Then w takes runs with what it has so far. */
bool served__by_none_but(struct store *s, const struct worker *w);
/* Is there, for each model of this worker, another idle worker that could run it meanwhile? */
bool served__is_spare(struct store *s, const struct worker *w);
extern const struct sh_life MODEL_LIFE;
/* share.c. What is done for one image at a time:
 *   REST -> SUMS      its chunks are summed, to find others like it             [begin_sums]
 *   SUMS -> REST      their sums are known                                        [end_sums]
 *   REST -> COPIES    there is one: its chunks are compared, or copied        [begin_copies]
 *   COPIES -> LOCKS   the new memory waits to be page-locked, or is            [lock_memory]
 *   LOCKS -> WAITS    until nothing reads it where it was                       [on_locked]
 *   COPIES -> WAITS   the same: where it was is not locked                    [lock_memory]
 *   each -> REST      its memory is the new one, or it goes, or something failed: the memory
 *                     that is left waits to be unlocked (memory/locking.h)      [end_image] */
enum share_at { SHARE_REST, SHARE_SUMS, SHARE_COPIES, SHARE_LOCKS, SHARE_WAITS, SHARE_N_AT };
struct share_piece { /* one chunk, or so much behind the last one */
    struct disk_task task;
    struct store_share *share;
    bool is_out;
    const char *from;
    size_t bytes;
    char *own, *there; /* NULL: it is only summed; it cannot be the trunk's */
    bool is_taken;     /* the trunk has one there, else this becomes it */
    bool is_shared;    /* after the work: it is the trunk's */
    uint32_t sum;
};
struct store_share {
    struct trunk *trunks; /* OWNED */
    enum share_at at;
    struct store *store;
    struct model *model;   /* with what follows; but REST */
    struct trunk *trunk;   /* not SUMS */
    struct sh_shm memory;  /* OWNED: its own part of what it will have */
    struct lock_task lock; /* LOCKS: it stands in the queue; of memory, so much is locked */
    uint32_t *sums;        /* OWNED */
    uint8_t *is_there;     /* OWNED */
    uint32_t n;            /* whole chunks, as of sums and is_there; bytes may follow */
    uint32_t i, n_runs;    /* the next one; runs of them that are the trunk's */
    int64_t since_ns;      /* WAITS: it began */
    struct share_piece piece;
};
extern const struct sh_life SHARE_LIFE;
struct store_share *store__share(struct store *s);

/* What is taken from the memory of another executor (fetch.h):
 *   ASKING -> WRONG         what came was not asked for, or is no more: the next tick gives up,
 *                           for the wire is in use                                     [on_msg]
 *   ASKING -> KEEPING       all of it is here: the disk thread has it                    [keep]
 *   ASKING, WRONG -> OVER   nothing comes of it                                       [give_up]
 *   KEEPING -> OVER         it is in kept/, or could not be put there                 [on_kept] */
enum fetch_state { FETCH_ASKING, FETCH_WRONG, FETCH_KEEPING, FETCH_OVER, FETCH_N_STATES };
extern const struct sh_life FETCH_LIFE, APART_LIFE;
/* By the table in store.h; nothing if it is there already. */
void model__go(struct model *m, enum model_phase to);
/* m has left all lists: drops its metrics, unless another tenant has a model of the same name. */
void model__forget_series(const struct model *gone);
void model__free(struct model *m);            /* NULL is allowed */
void model__keep_fd(struct model *m, int fd); /* TAKES fd; -1: closes the present one */
/* As model_place(); with its tables, or those that are there. */
int model__place(struct model *m, bool with_tables, bool may_evict, uint64_t *hit_out,
                 struct sh_err *err);
/* As model_bring_ahead(), but the scheduler is not told. */
void model__bring(struct model *m, bool may_evict_stale);
/* As model_unpin(), where not all has come: what lies in its place may be what others left. */
void model__unpin_part(struct model *m);
void model__arrived(void *m); /* all of it is there: a tx_done_fn */
/* Copies of it are under way, and no more come. */
void model__break(struct model *m);
/* No more of it will come to the device: who waits for it goes on, with garbage. */
void model__give_up_copy(struct model *m);
int model__read_batches(struct model *m, const struct msg_wk_model_done *d, struct sh_err *err);
uint64_t model__most_workspace(const struct model *m);
void model__drop_tables(struct model *m); /* image and tables: what was taken, whole or in part */
/* Checks and keeps the builder's tables; takes its image out of fds. */
int model__take_tables(struct model *m, const struct msg_wk_model_done *d, int *fds, size_t n_fds,
                       struct sh_err *err);
/* Checks another worker's tables of a built model: the image must be the same. Keeps the largest
 * workspace that any of them needs, since each may have chosen other kernels. It may have fewer
 * batch sizes. Fails: SH_E_BUG: another image or batch; SH_E_TOOBIG. */
int model__agree(struct model *m, const struct msg_wk_model_done *d, struct sh_err *err);

#endif
