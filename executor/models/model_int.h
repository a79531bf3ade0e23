/* model_int.h - between store.c and model.c. */
#ifndef SH_EXECUTOR_MODELS_MODEL_INT_H
#define SH_EXECUTOR_MODELS_MODEL_INT_H

#include "executor/models/store.h"

const struct store_env *store__env(const struct store *s);
const struct store_users *store__users(const struct store *s);
/* shapes.c */
struct store_shapes { /* zeroed: none */
    struct model *first;
    size_t n;
    int64_t last;     /* handle */
    uint64_t n_turns; /* of tenants, to have one compiled */
};
struct store_shapes *store__shapes(struct store *s);
bool shapes__any(struct store *s, const struct model *version);
/* Those of a version that leaves. */
void shapes__leave(struct store *s, const struct model *version);
/* Gives up the one that was not used for the longest time: of the version; if NULL of the tenant of
 * that model; if NULL too of the tenant that has the most of them. False: all are in use. It is
 * gone in the next turn. */
bool shapes__evict(struct store *s, const struct model *version, const struct model *of_tenant);
/* The one to be compiled next, NULL if there is none: tenants take turns, so that one with many new
 * shapes does not hold up another's; of a tenant the one that is there for the longest time. asked:
 * of those that somebody waits for. is_busy: is one of this handle being compiled? */
struct model *shapes__next(struct store *s, bool asked, bool (*is_busy)(struct store *, int64_t));
/* Checks and keeps what its first worker made. */
int shapes__take_tables(struct model *shape, const struct msg_wk_model_done *d, struct sh_err *err);
int shapes__read_sizes(struct sh_blob b, struct sh_sizes *out, struct sh_err *err);
struct host_quotas { /* by tag: host memory of a tenant's models; 0: none of its own */
    uint64_t *max;   /* OWNED */
    size_t n, cap;
};
struct host_quotas *store__host_quotas(struct store *s);
/* Of slow loads here, as far as they are known: time for a byte of weights. */
double store__ns_per_byte(const struct store *s);
void store__learn_ns_per_byte(struct store *s, double ns);
uint64_t *store__n_evicted_told(struct store *s); /* of space_n_evicted() */
int64_t *store__renewed_ns(struct store *s); /* when a worker was begun anew for keep.h, last */
/* Has each model of this worker another idle one that could run it meanwhile? */
bool store__is_spare(struct store *s, const struct worker *w);
extern const struct sh_life MODEL_LIFE;
void model__go(struct model *m, enum model_phase to); /* by the table in store.h; or it is there */
/* It is in no list any more: drops its series, unless another tenant has a model of the name. */
void model__forget_series(const struct model *gone);
void model__free(struct model *m);            /* NULL is allowed */
void model__keep_fd(struct model *m, int fd); /* TAKES fd; -1: drops what there is */
int model__read_batches(struct model *m, const struct msg_wk_model_done *d, struct sh_err *err);
uint64_t model__most_workspace(const struct model *m);
/* Checks and keeps what the builder made; takes its image out of fds. */
int model__take_tables(struct model *m, const struct msg_wk_model_done *d, int *fds, size_t n_fds,
                       struct sh_err *err);
/* Another worker's tables of a built model: the same image, and as much workspace as any of them
 * needs, since each may have chosen other kernels. It may have fewer batch sizes. SH_E_BUG: another
 * image or batch. SH_E_TOOBIG. */
int model__agree(struct model *m, const struct msg_wk_model_done *d, struct sh_err *err);

#endif
