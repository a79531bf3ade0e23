/* ahead.h - has the disk read what a dataset larger than memory is about to give, and lets go what
 * it has given: in the order of runtime/model/order.h, one window ahead. A wish: where the host
 * has no memory for it, samples are read as they are needed. For one thread. */
#ifndef SH_EXECUTOR_WORKER_AHEAD_H
#define SH_EXECUTOR_WORKER_AHEAD_H

#include "common/err.h"
#include "runtime/model/order.h"

struct ahead_column {
    const char *data; /* BORROWED, mapped: of all samples */
    size_t sample_bytes;
};

struct ahead {
    struct order order;
    const struct ahead_column *columns; /* BORROWED */
    size_t n_columns;
    int64_t end;           /* how many samples are given in all, all epochs together */
    uint32_t *runs[2];     /* OWNED; of an even and of an odd epoch */
    int64_t runs_epoch[2]; /* of which; -1: none */
    int64_t last_at[2];    /* when the last run comes, which may be shorter than the others */
    int64_t asked, let_go; /* samples that were given before, in the order of the epochs */
};

/* *out: ahead_fini(), whatever is returned. */
int ahead_init(struct ahead *out, const struct order *o, const struct ahead_column *columns,
               size_t n_columns, int64_t end, struct sh_err *err);
void ahead_fini(struct ahead *a);
/* Which run comes when in this epoch. BORROWED until one of another epoch but the next is asked. */
const uint32_t *ahead_runs(struct ahead *a, int64_t epoch);
/* The n samples from `first` on of an epoch are given: asks for some of those that come. */
void ahead_step(struct ahead *a, int64_t epoch, int64_t first, int64_t n);

#endif
