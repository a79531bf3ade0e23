/* cpu_reduce.c - sum, mean, product, maximum, minimum over any set of axes.
 *
 * Every result is computed by one thread, its summands in a fixed order and in double precision:
 * the number of threads does not show in the bits. If the innermost axis stays, a strip of results
 * runs through memory together; otherwise each result has LANES partial values. Integers are summed
 * up modulo 2^64, one by one.
 */
#include "common/mem.h"
#include "runtime/device/cpu/cpu.h"

#include <math.h>

#define STRIP 128
#define LANES 16

struct reduce {
    struct cpu_nd keep; /* operand 0: y, 1: x */
    struct cpu_nd drop; /* operand 0: x */
    enum dev_red kind;
    double scale; /* 1/n for the mean */
    bool strips;  /* the innermost axis stays and is contiguous */
};

struct red_ctx {
    const struct reduce *r;
    const float *x;
    float *y;
    double acc[STRIP]; /* of the thread that runs this range */
    int64_t n, at;     /* strip: results, and where in x they begin */
};

static double reduce_neutral(enum dev_red k)
{
    return k == DEV_RED_MAX ? -INFINITY : k == DEV_RED_MIN ? INFINITY : k == DEV_RED_PROD ? 1 : 0;
}

/* Keeps NaN, as sums do. */
static double more(double a, double b)
{
    return a > b || a != a ? a : b;
}
static double lesser(double a, double b)
{
    return a < b || a != a ? a : b;
}

static void add_strip(void *ctx, const struct cpu_nd *nd, int64_t n, const int64_t *off)
{
    struct red_ctx *c = ctx;
    const int64_t step = nd->stride[0][nd->rank - 1];

    for (int64_t i = 0; i < n; i++) {
        const float *x = c->x + c->at + off[0] + i * step;

        if (c->r->kind == DEV_RED_MAX)
            for (int64_t k = 0; k < c->n; k++)
                c->acc[k] = more(c->acc[k], x[k]);
        else if (c->r->kind == DEV_RED_MIN)
            for (int64_t k = 0; k < c->n; k++)
                c->acc[k] = lesser(c->acc[k], x[k]);
        else if (c->r->kind == DEV_RED_PROD)
            for (int64_t k = 0; k < c->n; k++)
                c->acc[k] *= x[k];
        else
            for (int64_t k = 0; k < c->n; k++)
                c->acc[k] += x[k];
    }
}

static void add_lanes(void *ctx, const struct cpu_nd *nd, int64_t n, const int64_t *off)
{
    struct red_ctx *c = ctx;
    const int64_t step = nd->stride[0][nd->rank - 1];
    const float *x = c->x + c->at + off[0];

    if (c->r->kind == DEV_RED_MAX)
        for (int64_t i = 0; i < n; i++)
            c->acc[i % LANES] = more(c->acc[i % LANES], x[i * step]);
    else if (c->r->kind == DEV_RED_MIN)
        for (int64_t i = 0; i < n; i++)
            c->acc[i % LANES] = lesser(c->acc[i % LANES], x[i * step]);
    else if (c->r->kind == DEV_RED_PROD)
        for (int64_t i = 0; i < n; i++)
            c->acc[i % LANES] *= x[i * step];
    else
        for (int64_t i = 0; i < n; i++)
            c->acc[i % LANES] += x[i * step];
}

static void do_strip(struct red_ctx *c, int64_t n, int64_t y, int64_t x)
{
    c->n = n;
    c->at = x;
    for (int64_t k = 0; k < n; k++)
        c->acc[k] = reduce_neutral(c->r->kind);
    cpu__nd_run(&c->r->drop, 0, c->r->drop.total, add_strip, c);
    for (int64_t k = 0; k < n; k++)
        c->y[y + k] = (float)(c->acc[k] * c->r->scale);
}

static void do_one(struct red_ctx *c, int64_t y, int64_t x)
{
    double v = reduce_neutral(c->r->kind);

    c->at = x;
    for (int k = 0; k < LANES; k++)
        c->acc[k] = v;
    cpu__nd_run(&c->r->drop, 0, c->r->drop.total, add_lanes, c);
    for (int k = 0; k < LANES; k++)
        v = c->r->kind == DEV_RED_MAX    ? more(v, c->acc[k])
            : c->r->kind == DEV_RED_MIN  ? lesser(v, c->acc[k])
            : c->r->kind == DEV_RED_PROD ? v * c->acc[k]
                                         : v + c->acc[k];
    c->y[y] = (float)(v * c->r->scale);
}

static void keep_row(void *ctx, const struct cpu_nd *nd, int64_t n, const int64_t *off)
{
    struct red_ctx *c = ctx;
    const uint32_t l = nd->rank - 1;

    if (c->r->strips)
        for (int64_t i = 0; i < n; i += STRIP)
            do_strip(c, SH_MIN(STRIP, n - i), off[0] + i, off[1] + i);
    else
        for (int64_t i = 0; i < n; i++)
            do_one(c, off[0] + i * nd->stride[0][l], off[1] + i * nd->stride[1][l]);
}

struct red_job {
    const struct reduce *r;
    const float *x;
    float *y;
};

static void reduce_range(void *ctx, int64_t from, int64_t to)
{
    const struct red_job *j = ctx;
    struct red_ctx c = {.r = j->r, .x = j->x, .y = j->y};

    cpu__nd_run(&j->r->keep, from, to, keep_row, &c);
}

/* p: x y */
static void reduce_fn(const struct cpu_call *c)
{
    struct red_job j = {.r = c->aux, .x = c->p[0], .y = c->p[1]};
    int64_t grain = SH_MAX(1, 16384 / SH_MAX(j.r->drop.total, 1));

    cpu__parallel(c->threads, j.r->keep.total, grain, reduce_range, &j);
}

/* ------------------------------------------------------------------ integers */

struct int_job {
    const struct reduce *r;
    const void *x;
    void *y;
    bool wide;  /* I64, else I32 */
    int64_t at; /* of the result at work: where in x it begins, what it is so far */
    uint64_t acc;
    bool any;
};

static int64_t int_at(const struct int_job *j, int64_t i)
{
    return j->wide ? ((const int64_t *)j->x)[i] : ((const int32_t *)j->x)[i];
}

static void add_ints(void *ctx, const struct cpu_nd *nd, int64_t n, const int64_t *off)
{
    struct int_job *j = ctx;

    for (int64_t i = 0; i < n; i++) {
        const int64_t v = int_at(j, j->at + off[0] + i * nd->stride[0][nd->rank - 1]);
        const int64_t acc = (int64_t)j->acc;

        if (!j->any)
            j->acc = (uint64_t)v;
        else if (j->r->kind == DEV_RED_MAX)
            j->acc = (uint64_t)SH_MAX(acc, v);
        else if (j->r->kind == DEV_RED_MIN)
            j->acc = (uint64_t)SH_MIN(acc, v);
        else
            j->acc = j->r->kind == DEV_RED_PROD ? j->acc * (uint64_t)v : j->acc + (uint64_t)v;
        j->any = true;
    }
}

static void keep_ints(void *ctx, const struct cpu_nd *nd, int64_t n, const int64_t *off)
{
    struct int_job *j = ctx;
    const uint32_t l = nd->rank - 1;

    for (int64_t i = 0; i < n; i++) {
        const int64_t to = off[0] + i * nd->stride[0][l];

        j->at = off[1] + i * nd->stride[1][l];
        j->any = false;
        cpu__nd_run(&j->r->drop, 0, j->r->drop.total, add_ints, j);
        if (j->r->kind == DEV_RED_MEAN)
            j->acc = (uint64_t)((int64_t)j->acc / j->r->drop.total);
        if (j->wide)
            ((int64_t *)j->y)[to] = (int64_t)j->acc;
        else
            ((int32_t *)j->y)[to] = (int32_t)j->acc;
    }
}

static void int_range(void *ctx, int64_t from, int64_t to)
{
    struct int_job j = *(const struct int_job *)ctx;

    cpu__nd_run(&j.r->keep, from, to, keep_ints, &j);
}

/* p: x y */
static void int_fn(const struct cpu_call *c)
{
    const struct dev_tensor *x = &c->plan->base.g->tensors[c->op->in[0]];
    struct int_job j = {.r = c->aux, .x = c->p[0], .y = c->p[1], .wide = x->dtype == SH_I64};
    int64_t grain = SH_MAX(1, 16384 / SH_MAX(j.r->drop.total, 1));

    cpu__parallel(c->threads, j.r->keep.total, grain, int_range, &j);
}

/* Splits x's axes into kept and dropped ones. */
static void split_axes(struct reduce *r, const struct dev_tensor *x, uint32_t axes)
{
    int64_t own[SH_MAX_RANK], keep[SH_MAX_RANK], drop[SH_MAX_RANK];
    int64_t keep_step[SH_MAX_RANK], drop_step[SH_MAX_RANK];
    uint32_t nk = 0, nd = 0;

    cpu__strides(x->rank, x->dims, own);
    for (uint32_t i = 0; i < x->rank; i++)
        if (axes & (1u << i)) {
            drop[nd] = x->dims[i];
            drop_step[nd++] = own[i];
        } else {
            keep[nk] = x->dims[i];
            keep_step[nk++] = own[i];
        }
    cpu__nd_init(&r->keep, nk, keep, 2);
    cpu__strides(nk, keep, r->keep.stride[0]);
    memcpy(r->keep.stride[1], keep_step, nk * sizeof(keep_step[0]));
    cpu__nd_init(&r->drop, nd, drop, 1);
    memcpy(r->drop.stride[0], drop_step, nd * sizeof(drop_step[0]));
    cpu__nd_merge(&r->keep);
    cpu__nd_merge(&r->drop);
    r->strips = r->keep.stride[1][r->keep.rank - 1] == 1 && r->keep.dims[r->keep.rank - 1] > 1;
}

int cpu__reduce(struct cpu_build *b)
{
    const struct dev_op *op = b->op;
    const struct dev_tensor *x = cpu__t(b, op->in[0]);
    const uint32_t all[] = {op->in[0], op->out[0]};
    uint32_t axes = op->u.reduce.axes;
    struct reduce r = {.kind = op->u.reduce.kind};
    const bool is_int = x->dtype == SH_I64 || x->dtype == SH_I32;

    if (!is_int || cpu__t(b, op->out[0])->dtype != x->dtype)
        cpu__need_f32(b, all, 2);
    if (x->rank < 32 && (axes >> x->rank) != 0)
        return cpu__refuse(b, SH_E_BUG, "an axis does not exist");
    split_axes(&r, x, axes);
    r.scale = r.kind == DEV_RED_MEAN ? 1 / (double)r.drop.total : 1;
    if (r.keep.total != dev_tensor_elements(cpu__t(b, op->out[0])))
        return cpu__refuse(b, SH_E_BUG, "the output does not have the shape that is left");
    return cpu__step_plain(b, is_int ? int_fn : reduce_fn, &r, sizeof(r));
}
