/* rewrite_pool.c - the places of the maxima of a MaxPool, and MaxUnpool, which puts them back. */
#include "common/mem.h"
#include "runtime/model/rewrite.h"

#include <math.h>

#define MAX_SPACE 3
#define MAX_TAPS 4096 /* of a kernel; each is a slice of the input */

struct pool {
    struct shape_ctx *c;
    int space;
    int64_t kernel[MAX_SPACE], stride[MAX_SPACE], dilation[MAX_SPACE], pads[2 * MAX_SPACE];
    int64_t in[MAX_SPACE], out[MAX_SPACE], n, channels, taps;
};

static void read_pool_ints(struct pool *p, const char *name, int n, int64_t def, int64_t *out)
{
    const size_t k = shape__list(p->c, name, out, (size_t)n);

    for (int i = 0; k == 0 && i < n; i++)
        out[i] = def;
    if (k != 0 && k != (size_t)n)
        shape__fail(p->c, SH_E_INVALID, "%s has %zu numbers", name, k);
}

/* What tap number k of each window holds: [n, channels, out..., 1]. */
static uint32_t tap(struct pool *p, uint32_t padded, int64_t k)
{
    int64_t from[MAX_SPACE], to[MAX_SPACE], axes[MAX_SPACE], dims[SH_MAX_RANK];
    struct shape_ctx *c = p->c;
    uint32_t in[5];

    dims[0] = p->n;
    dims[1] = p->channels;
    for (int a = p->space; a-- > 0; k /= p->kernel[a]) {
        axes[a] = 2 + a;
        from[a] = k % p->kernel[a] * p->dilation[a];
        to[a] = from[a] + (p->out[a] - 1) * p->stride[a] + 1;
        dims[2 + a] = p->out[a];
    }
    in[0] = padded;
    in[1] = rw_list(c, from, p->space);
    in[2] = rw_list(c, to, p->space);
    in[3] = rw_list(c, axes, p->space);
    in[4] = rw_list(c, p->stride, p->space);
    dims[2 + p->space] = 1;
    return rw_reshape(c, rw_node(c, "Slice", in, 5, NULL, 0), p->space + 3, dims);
}

/* How far apart neighbours of an axis are in a plane. */
static int64_t index_step(const struct pool *p, int axis, bool by_column)
{
    int64_t n = 1;

    for (int a = 0; a < p->space; a++)
        n *= (by_column ? a < axis : a > axis) ? p->in[a] : 1;
    return n;
}

/* Of each tap, or of the first one of each window, its place in a plane. */
static uint32_t pool_places(struct pool *p, bool of_windows, bool by_column)
{
    const int64_t *size = of_windows ? p->out : p->kernel;
    const int64_t *each = of_windows ? p->stride : p->dilation;
    int64_t n = 1, *at;

    for (int a = 0; a < p->space; a++)
        n *= size[a];
    at = rw_alloc(p->c, SH_I64, n);
    for (int64_t i = 0; at && i < n; i++) {
        int64_t rest = i;

        for (int a = p->space; a-- > 0; rest /= size[a])
            at[i] += (rest % size[a] * each[a] - (of_windows ? p->pads[a] : 0)) *
                     index_step(p, a, by_column);
    }
    return of_windows ? rw_const(p->c, SH_I64, p->space, p->out, at)
                      : rw_const(p->c, SH_I64, 1, &n, at);
}

/* 0, 1, 2, ... along axis 0 or 1 of x: [n, 1, ...] or [1, channels, 1, ...]. From data, so that
 * no constant depends on the batch. */
static uint32_t numbers_along(struct pool *p, uint32_t x, int axis)
{
    struct shape_ctx *c = p->c;
    const int64_t at = axis;

    for (int a = 0; a < p->space + 2; a++)
        x = a == axis ? x : rw_slice(c, x, a, 0, 1, 1);
    x = rw_cast(c, rw1(c, "Not", rw2(c, "Greater", x, x)), SH_I64);
    return rw_node(c, "CumSum", (const uint32_t[]){x, rw_reshape(c, rw_list(c, &at, 1), 0, NULL)},
                   2, (const struct graph_attr[]){RW_INT("exclusive", 1)}, 1);
}

static uint32_t max_places(struct pool *p, uint32_t x, bool by_column)
{
    struct shape_ctx *c = p->c;
    int64_t pads[2 * (MAX_SPACE + 2)] = {0}, plane = 1;
    const int rank = p->space + 2;
    uint32_t y = GRAPH_NONE, parts[MAX_TAPS], padded;
    const struct graph_attr attrs[] = {RW_INT("axis", rank), RW_INT("keepdims", 0)};

    for (int a = 0; a < p->space; a++) {
        pads[2 + a] = p->pads[a];
        pads[rank + 2 + a] = p->pads[p->space + a];
        plane *= p->in[a];
    }
    x = rw_cast(c, x, SH_F32);
    padded = rw3(c, "Pad", x, rw_list(c, pads, 2 * rank), rw_number(c, SH_F32, -INFINITY));
    for (int64_t k = 0; k < p->taps; k++)
        parts[k] = tap(p, padded, k);
    y = rw_concat(c, parts, (uint32_t)p->taps, rank);
    y = rw_node(c, "ArgMax", &y, 1, attrs, 2);
    y = rw2(c, "Gather", pool_places(p, false, by_column), y);
    y = rw2(c, "Add", y, pool_places(p, true, by_column));
    y = rw2(c, "Add", y,
            rw2(c, "Mul", numbers_along(p, x, 1), rw_number(c, SH_I64, (double)plane)));
    return rw2(
        c, "Add", y,
        rw2(c, "Mul", numbers_along(p, x, 0), rw_number(c, SH_I64, (double)(plane * p->channels))));
}

/* The node at work has its window in static form. dims: of its result. */
int shape__rewrite_max_pool(struct shape_ctx *c, const int64_t *dims, bool by_column)
{
    struct pool p = {.c = c, .space = shape__in(c, 0)->rank - 2, .taps = 1};
    const struct graph_value x = *shape__in(c, 0);
    struct graph_node call = c->n;
    uint32_t y;

    p.n = x.dims[0];
    p.channels = x.dims[1];
    if (p.space > MAX_SPACE)
        return shape__fail(c, SH_E_UNSUPPORTED, WHY_SPACE, p.space);
    read_pool_ints(&p, "kernel_shape", p.space, 1, p.kernel);
    read_pool_ints(&p, "strides", p.space, 1, p.stride);
    read_pool_ints(&p, "dilations", p.space, 1, p.dilation);
    read_pool_ints(&p, "pads", 2 * p.space, 0, p.pads);
    for (int a = 0; a < p.space && !c->err->rc; a++) {
        p.in[a] = x.dims[2 + a];
        p.out[a] = dims[2 + a];
        if (p.kernel[a] > MAX_TAPS || (p.taps *= p.kernel[a]) > MAX_TAPS)
            shape__fail(c, SH_E_UNSUPPORTED, WHY_TAPS, MAX_TAPS);
    }
    call.n_out = 1;
    if (shape__call(c, &call, &y) || rw_is(c, 1, max_places(&p, rw_in(c, 0), by_column)))
        return c->err->rc;
    return rw_is(c, 0, y);
}

/* ---------------------------------------------------------------- back */

static void read_unpool(struct pool *p, const struct graph_value *x)
{
    struct shape_ctx *c = p->c;

    read_pool_ints(p, "kernel_shape", p->space, 0, p->kernel);
    read_pool_ints(p, "strides", p->space, 1, p->stride);
    read_pool_ints(p, "pads", 2 * p->space, 0, p->pads);
    for (int a = 0; a < p->space && !c->err->rc; a++) {
        const int64_t size = x->dims[2 + a];
        const bool fits = p->kernel[a] >= 1 && p->kernel[a] <= INT16_MAX && p->stride[a] >= 1 &&
                          p->stride[a] <= INT16_MAX && size < INT32_MAX && p->pads[a] >= 0 &&
                          p->pads[p->space + a] >= 0 && p->pads[a] <= INT16_MAX &&
                          p->pads[p->space + a] <= INT16_MAX;

        p->out[a] =
            fits ? (size - 1) * p->stride[a] - p->pads[a] - p->pads[p->space + a] + p->kernel[a]
                 : 0;
        if (p->out[a] < 1)
            shape__fail(c, SH_E_INVALID, "the window does not fit axis %d", 2 + a);
    }
}

/* Values at their places of the whole result, zeros elsewhere; a larger result is padded behind. */
int shape__rewrite_max_unpool(struct shape_ctx *c)
{
    const struct graph_value x = *shape__in(c, 0), at = *shape__in(c, 1);
    struct pool p = {.c = c, .space = x.rank - 2};
    int64_t dims[SH_MAX_RANK], want[SH_MAX_RANK], pads[2 * SH_MAX_RANK] = {0};
    int64_t total = 1, n = graph_elements(&x);
    size_t k = 0;
    uint32_t y;

    shape__want_float(c, 0);
    if (p.space < 1 || p.space > MAX_SPACE || at.rank != x.rank || at.dtype != SH_I64 ||
        memcmp(at.dims, x.dims, sizeof(x.dims[0]) * (size_t)x.rank) != 0)
        shape__fail(c, SH_E_INVALID, "values and places do not fit together");
    if (!c->err->rc)
        read_unpool(&p, &x);
    shape__ints(c, 2, want, SH_MAX_RANK, &k);
    for (int i = 0; i < x.rank && !c->err->rc; i++) {
        dims[i] = i < 2 ? x.dims[i] : p.out[i - 2];
        if (k && ((int)k != x.rank || want[i] < dims[i]))
            shape__fail(c, SH_E_INVALID, "output_shape is smaller than the result");
        else if (__builtin_mul_overflow(total, dims[i], &total))
            shape__fail(c, SH_E_TOOBIG, "the result is too large");
        pads[x.rank + i] = c->err->rc || !k ? 0 : want[i] - dims[i];
    }
    if (c->err->rc)
        return c->err->rc;
    y = rw_expand(c, rw_number(c, x.dtype, 0), 1, &total);
    y = rw3(c, "ScatterElements", y, rw_reshape(c, rw_in(c, 1), 1, &n),
            rw_reshape(c, rw_in(c, 0), 1, &n));
    y = rw_reshape(c, y, x.rank, dims);
    if (k)
        y = rw2(c, "Pad", y, rw_list(c, pads, 2 * x.rank));
    return rw_is(c, 0, y);
}
