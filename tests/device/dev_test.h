/* dev_test.h - builds a small graph, runs it on a back end in four ways, compares with doubles.
 *
 * Every graph runs four times, each time at other places of the arena: in one call, operation by
 * operation, in one call after dev_plan_warm, and in calls of two operations after dev_plan_prepare
 * for each. All must give the same bits. Before each run the workspace holds a pattern that reads
 * as large numbers, so that memory that an operation forgets to write shows.
 */
#ifndef SH_TESTS_DEVICE_DEV_TEST_H
#define SH_TESTS_DEVICE_DEV_TEST_H

#include "runtime/device/dev.h"
#include "tests/unit/sh_test.h"

#define T_MAX_TENSORS 192
#define T_MAX_OPS 64
#define T_EXACT 1e-14 /* elements only moved; or, at fp32, rounded once */

struct t_graph {
    struct dev_graph g;
    struct dev_tensor tensors[T_MAX_TENSORS];
    struct dev_op ops[T_MAX_OPS];
    void *plain[T_MAX_TENSORS]; /* OWNED: what goes in, then what came out */
    char names[T_MAX_TENSORS][16];
    bool given[T_MAX_TENSORS]; /* an ACT that is filled like an INPUT */
    int64_t step;
    struct dev_turn turn;
    enum dev_replay replay; /* of t_run */
    bool cuts;              /* runs in two calls as well, cut at every position */
};

struct t_dims {
    uint32_t rank;
    int64_t d[SH_MAX_RANK];
};
#define DIMS(...)                                                                \
    ((struct t_dims){.rank = sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t), \
                     .d = {__VA_ARGS__}})
#define SCALAR ((struct t_dims){.rank = 0})

/* The back end under test: $BACKEND of the environment, else cpu, with $THREADS threads, else 2.
 * Opened once per binary. */
int t_setup(void **state);
int t_teardown(void **state);
struct dev *t_dev(void);
const char *t_kind(void); /* "cpu" (the oracle is one, too), "cuda" */
size_t t_arena(void);     /* bytes: more where there is more */
const struct dev_lib *t_lib(void);
struct dev *t_open_worker(const struct dev_mem *m); /* OWNED: with one thread, on all of m */
uint64_t t_wait_mark(struct dev_mem *m);            /* the next one's cookie */
unsigned char *t_pattern(size_t n);                 /* OWNED */

void t_init(struct t_graph *t);
void t_fini(struct t_graph *t);

/* The nearest number that $PRECISION stores and multiplies without rounding it. All operands are of
 * this kind, so that what is measured is the operation and not the rounding of what it is given. */
float t_round(double x);
/* Of one rounding to 16 bit, relative; 0 where storage is F32. */
double t_unit(void);

/* A tensor; floats are filled with numbers in [-1, 1] that depend on its index alone. */
uint32_t t_add(struct t_graph *t, enum dev_role role, enum sh_dtype type, struct t_dims dims);
/* Where activations have 16 bit, every other one of t_in's and t_out's is an ACT instead: kernels
 * meet operands of both widths. */
uint32_t t_in(struct t_graph *t, struct t_dims dims);     /* F32 INPUT */
uint32_t t_weight(struct t_graph *t, struct t_dims dims); /* F32 WEIGHT */
uint32_t t_state(struct t_graph *t, struct t_dims dims);  /* F32 STATE */
uint32_t t_act(struct t_graph *t, struct t_dims dims);    /* F32 ACT */
uint32_t t_out(struct t_graph *t, struct t_dims dims);    /* F32 OUTPUT */
uint32_t t_index(struct t_graph *t, struct t_dims dims,
                 int64_t below); /* I64 INPUT in [0, below) */
/* The same values as x [N,C,H,W] in an ACT tensor that went through a convolution, so that the back
 * end may hold it in a layout of its own. */
uint32_t t_blocked(struct t_graph *t, uint32_t x);
/* The same values as x in an ACT tensor: in the type in which the back end keeps activations. */
uint32_t t_stored(struct t_graph *t, uint32_t x);
float *t_f(struct t_graph *t, uint32_t tensor);
void t_map(struct t_graph *t, uint32_t tensor, float scale, float shift); /* x = scale x + shift */

/* Appends an operation; ends of the lists are marked by T_END. */
#define T_END (DEV_NONE - 1)
struct dev_op *t_op(struct t_graph *t, enum dev_op_kind kind, const uint32_t *in,
                    const uint32_t *out);
#define IN(...) ((const uint32_t[]){__VA_ARGS__, T_END})
#define OUT(...) ((const uint32_t[]){__VA_ARGS__, T_END})
#define NO_IN ((const uint32_t[]){T_END})

void t_run(struct t_graph *t);
void t_profile(struct t_graph *t, double *ns); /* what each operation takes, f64[n_ops] */
/* Plans only; the code that came out. */
int t_plan_fails(struct t_graph *t, enum dev_precision p, struct sh_err *err);
/* Plans and runs once; for runs that must fail. */
int t_run_fails(struct t_graph *t, struct sh_err *err);

/* sum((got-want)^2) / sum(want^2) <= bound; want must not be all zero nor hold NaN. The bound is
 * for fp32. Other precisions may miss it (but not T_EXACT) up to what their roundings cost: */
#define T_BOUND_TF32 1e-5
#define T_BOUND_FP16 1e-5
#define T_BOUND_BF16 1e-4
void t_close(struct t_graph *t, uint32_t tensor, const double *want, double bound);
/* For what is F32 at every precision, with all that goes into it. */
void t_close_f32(struct t_graph *t, uint32_t tensor, const double *want, double bound);
double *t_doubles(size_t n); /* OWNED, zeroed */

#endif
