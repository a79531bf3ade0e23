/* ahead.h - for a dataset larger than memory: has the disk read the samples that come next, one
 * window ahead in the order of runtime/model/order.h, and releases those already used. It is a
 * hint: if the host has no memory for it, samples are read when they are needed. For one thread. */
#ifndef SH_EXECUTOR_WORKER_AHEAD_H
#define SH_EXECUTOR_WORKER_AHEAD_H

#include "common/err.h"
#include "runtime/model/order.h"

struct ahead_column {
    const char *data; /* BORROWED, mapped: all samples */
    size_t sample_bytes;
};

struct ahead {
    struct order order;
    const struct ahead_column *columns; /* BORROWED */
    size_t n_columns;
    int64_t end;           /* number of samples in all epochs together */
    uint32_t *runs[2];     /* OWNED; for an even and an odd epoch */
    int64_t runs_epoch[2]; /* their epochs; -1: none */
    int64_t last_at[2];    /* position of the last run, which may be shorter than the others */
    int64_t asked, let_go; /* positions in the order of all epochs */
};

/* *out: call ahead_fini(), whatever is returned. */
int ahead_init(struct ahead *out, const struct order *o, const struct ahead_column *columns,
               size_t n_columns, int64_t end, struct sh_err *err);
void ahead_fini(struct ahead *a);
/* The order of the runs in this epoch. BORROWED until one other than it or the next is asked
 * for. */
const uint32_t *ahead_runs(struct ahead *a, int64_t epoch);
/* The n samples from `first` of an epoch are being used: asks for some of those that follow. */
void ahead_step(struct ahead *a, int64_t epoch, int64_t first, int64_t n);

#endif
