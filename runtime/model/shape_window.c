/* shape_window.c - shapes of what slides a window over spatial axes: convolutions and pools. */
#include "common/mem.h"
#include "runtime/model/rewrite.h"

#include <stdlib.h>

#define MAX_SPATIAL (SH_MAX_RANK - 2)

struct window { /* a sliding window over the spatial axes */
    int n;      /* spatial axes */
    int64_t kernel[MAX_SPATIAL], stride[MAX_SPATIAL], dilation[MAX_SPATIAL], pads[2 * MAX_SPATIAL];
    int64_t ceil_mode;
    int same; /* auto_pad: 0 explicit, 1 SAME_UPPER, 2 SAME_LOWER */
};

static int read_window_list(struct shape_ctx *c, const char *name, int64_t *out, size_t want,
                            int64_t def, int64_t min)
{
    const size_t k = shape__list(c, name, out, want);

    if (k != 0 && k != want)
        return shape__fail(c, SH_E_INVALID, "%s has %zu numbers, the input needs %zu", name, k,
                           want);
    for (size_t i = 0; i < want; i++) {
        if (k == 0)
            out[i] = def;
        if (out[i] < min || out[i] > (1 << 30))
            return shape__fail(c, SH_E_INVALID, "%s holds %lld", name, (long long)out[i]);
    }
    return c->err->rc;
}

static int read_auto_pad(struct shape_ctx *c, struct window *w)
{
    const char *how = shape__str(c, "auto_pad", "NOTSET");

    if (strcmp(how, "SAME_UPPER") == 0)
        w->same = 1;
    else if (strcmp(how, "SAME_LOWER") == 0)
        w->same = 2;
    else if (strcmp(how, "VALID") == 0)
        memset(w->pads, 0, sizeof(w->pads));
    else if (strcmp(how, "NOTSET") != 0 && how[0])
        shape__fail(c, SH_E_INVALID, "auto_pad %.32s is not known", how);
    return c->err->rc;
}

/* kernel: NULL to read kernel_shape, otherwise the weight's spatial dims. */
static int read_shape_window(struct shape_ctx *c, const int64_t *kernel, struct window *w)
{
    size_t n = (size_t)w->n;

    read_window_list(c, "kernel_shape", w->kernel, n, 0, kernel ? 0 : 1);
    for (size_t i = 0; kernel && i < n; i++) {
        if (w->kernel[i] != 0 && w->kernel[i] != kernel[i])
            shape__fail(c, SH_E_INVALID, "kernel_shape does not match the weight");
        w->kernel[i] = kernel[i];
    }
    read_window_list(c, "strides", w->stride, n, 1, 1);
    read_window_list(c, "dilations", w->dilation, n, 1, 1);
    read_window_list(c, "pads", w->pads, 2 * n, 0, 0);
    w->ceil_mode = shape__int(c, "ceil_mode", 0);
    return read_auto_pad(c, w);
}

/* Size along one axis; resolves auto_pad, and turns ceil_mode into padding at the end. */
static int slide(struct shape_ctx *c, struct window *w, int i, int64_t in, int64_t *out)
{
    int64_t *begin = &w->pads[i], *end = &w->pads[w->n + i];
    int64_t extent, room, need;

    if (__builtin_mul_overflow(w->dilation[i], w->kernel[i] - 1, &extent) || extent > (1 << 30))
        return shape__fail(c, SH_E_INVALID, "the window is too large");
    extent += 1;
    if (w->same) {
        *out = (in + w->stride[i] - 1) / w->stride[i];
        need = SH_MAX((*out - 1) * w->stride[i] + extent - in, 0);
        *begin = w->same == 1 ? need / 2 : need - need / 2;
        *end = need - *begin;
        return c->err->rc;
    }
    room = in + *begin + *end - extent;
    if (room < 0)
        return shape__fail(c, SH_E_INVALID,
                           "a window of %lld does not fit into axis %d of %lld with padding %lld",
                           (long long)extent, i + 2, (long long)in, (long long)(*begin + *end));
    *out = room / w->stride[i] + 1;
    if (w->ceil_mode && room % w->stride[i] != 0 && *out * w->stride[i] < in + *begin) {
        *end += w->stride[i] - room % w->stride[i]; /* a last window that starts inside */
        *out += 1;
    }
    return c->err->rc;
}

static int write_window(struct shape_ctx *c, const struct window *w)
{
    size_t n = (size_t)w->n;

    shape__set_list(c, "kernel_shape", w->kernel, n);
    shape__set_list(c, "strides", w->stride, n);
    shape__set_list(c, "dilations", w->dilation, n);
    shape__set_list(c, "pads", w->pads, 2 * n);
    graph__drop_attr(&c->n, "auto_pad");
    graph__drop_attr(&c->n, "ceil_mode");
    return c->err->rc;
}

static int check_conv(struct shape_ctx *c, const struct graph_value *x, const struct graph_value *w,
                      int64_t group)
{
    char xs[GRAPH_SHAPE_TEXT], ws[GRAPH_SHAPE_TEXT];

    if (x->rank < 3 || x->rank > MAX_SPATIAL + 2 || w->rank != x->rank)
        return shape__fail(c, SH_E_INVALID, "input %s and weight %s do not fit together",
                           graph__shape_text(x, xs, sizeof(xs)),
                           graph__shape_text(w, ws, sizeof(ws)));
    if (x->rank > 5)
        return shape__fail(c, SH_E_UNSUPPORTED, WHY_SPACE, x->rank - 2);
    if (group < 1 || w->dims[0] < 1 || w->dims[0] % group != 0 || x->dims[1] % group != 0 ||
        w->dims[1] != x->dims[1] / group)
        return shape__fail(c, SH_E_INVALID,
                           "input %s, weight %s and group %lld do not fit together",
                           graph__shape_text(x, xs, sizeof(xs)),
                           graph__shape_text(w, ws, sizeof(ws)), (long long)group);
    return c->err->rc;
}

int shape__conv_of(struct shape_ctx *c, uint32_t x_at, uint32_t w_at, uint32_t bias_at,
                   enum sh_dtype t)
{
    const struct graph_value *x = shape__in(c, x_at), *k = shape__in(c, w_at);
    struct window w = {0};
    const int64_t group = shape__int(c, "group", 1);
    int64_t dims[SH_MAX_RANK];

    if (check_conv(c, x, k, group))
        return c->err->rc;
    w.n = x->rank - 2;
    read_shape_window(c, &k->dims[2], &w);
    if (shape__has(c, bias_at))
        shape__want_vector(c, bias_at, k->dims[0]);
    dims[0] = x->dims[0];
    dims[1] = k->dims[0];
    for (int i = 0; i < w.n && c->err->rc == SH_OK; i++)
        slide(c, &w, i, x->dims[2 + i], &dims[2 + i]);
    write_window(c, &w);
    shape__set_int(c, "group", group);
    return shape__out(c, 0, t, x->rank, dims);
}

/* A constant may be of another float type than x: exporters that fold a norm into a convolution
 * leave its weight F32 in a model of halves. All is computed as F32 (retype.c). */
static int want_weight(struct shape_ctx *c)
{
    shape__want_float(c, 0);
    return shape__in(c, 1)->data ? shape__want_float(c, 1) : shape__want_same_type(c, 0, 1);
}

int shape__infer_conv(struct shape_ctx *c)
{
    want_weight(c);
    return shape__conv_of(c, 0, 1, 2, shape__in(c, 0)->dtype);
}

/* ---------------------------------------------------------------- transposed */

static int check_conv_transpose(struct shape_ctx *c, const struct graph_value *x,
                                const struct graph_value *w, int64_t group)
{
    char xs[GRAPH_SHAPE_TEXT], ws[GRAPH_SHAPE_TEXT];

    if (x->rank > 5)
        return shape__fail(c, SH_E_UNSUPPORTED, WHY_SPACE, x->rank - 2);
    if (x->rank < 3 || w->rank != x->rank || group < 1 || x->dims[1] != w->dims[0] ||
        w->dims[0] % group != 0 || w->dims[1] > INT32_MAX / group)
        return shape__fail(c, SH_E_INVALID,
                           "input %s, weight %s and group %lld do not fit together",
                           graph__shape_text(x, xs, sizeof(xs)),
                           graph__shape_text(w, ws, sizeof(ws)), (long long)group);
    return c->err->rc;
}

/* Size along one axis. The padding comes out as what is cut off at both ends: negative where zeros
 * are added instead, output_padding included. want: output_shape, 0 for none. */
static int slide_back(struct shape_ctx *c, struct window *w, int i, int64_t in, int64_t want,
                      int64_t more, int64_t *out)
{
    int64_t *begin = &w->pads[i], *end = &w->pads[w->n + i], full, cut, half;

    if (__builtin_mul_overflow(w->dilation[i], w->kernel[i] - 1, &full) || full > (1 << 30) ||
        __builtin_mul_overflow(w->stride[i], in - 1, &cut) || cut > (1 << 30))
        return shape__fail(c, SH_E_INVALID, "the window is too large");
    full += cut + 1;
    if (w->same && want == 0)
        want = in * w->stride[i];
    if (want > 0) {
        cut = full + more - want;
        half = cut < 0 ? -((1 - cut) / 2) : cut / 2; /* rounded down */
        *begin = w->same == 1 ? half : cut - half;
        *end = cut - *begin;
    }
    *end -= more;
    *out = full - *begin - *end;
    if (*out < 1 || *out > (1 << 30))
        return shape__fail(c, SH_E_INVALID, "the output of axis %d would have %lld elements", i + 2,
                           (long long)*out);
    return c->err->rc;
}

int shape__infer_conv_transpose(struct shape_ctx *c)
{
    const struct graph_value *x = shape__in(c, 0), *k = shape__in(c, 1);
    const int64_t group = shape__int(c, "group", 1);
    int64_t dims[SH_MAX_RANK], more[MAX_SPATIAL], want[MAX_SPATIAL];
    struct window w = {0};

    want_weight(c);
    if (check_conv_transpose(c, x, k, group))
        return c->err->rc;
    w.n = x->rank - 2;
    read_shape_window(c, &k->dims[2], &w);
    read_window_list(c, "output_padding", more, (size_t)w.n, 0, 0);
    read_window_list(c, "output_shape", want, (size_t)w.n, 0, 0);
    if (shape__has(c, 2))
        shape__want_vector(c, 2, k->dims[1] * group);
    dims[0] = x->dims[0];
    dims[1] = k->dims[1] * group;
    for (int i = 0; i < w.n && c->err->rc == SH_OK; i++)
        slide_back(c, &w, i, x->dims[2 + i], want[i], more[i], &dims[2 + i]);
    write_window(c, &w);
    graph__drop_attr(&c->n, "output_padding");
    graph__drop_attr(&c->n, "output_shape");
    shape__set_int(c, "group", group);
    return shape__out(c, 0, x->dtype, x->rank, dims);
}

/* ---------------------------------------------------------------- pools */

int shape__infer_pool(struct shape_ctx *c)
{
    const struct graph_value *x = shape__in(c, 0);
    struct window w = {0};
    const int64_t include = shape__int(c, "count_include_pad", 0);
    const int64_t order = shape__int(c, "storage_order", 0);
    const bool is_byte = x->dtype == SH_I8 || x->dtype == SH_U8;
    int64_t dims[SH_MAX_RANK];

    if (!is_byte || strcmp(c->n.op, "MaxPool") != 0)
        shape__want_float(c, 0);
    if (x->rank < 3)
        return shape__fail(c, SH_E_INVALID, "needs an input with spatial axes");
    w.n = x->rank - 2;
    read_shape_window(c, NULL, &w);
    dims[0] = x->dims[0];
    dims[1] = x->dims[1];
    for (int i = 0; i < w.n && c->err->rc == SH_OK; i++) {
        int64_t before = w.pads[w.n + i];

        slide(c, &w, i, x->dims[2 + i], &dims[2 + i]);
        if (include && !w.same) /* what ceil_mode adds is no padding that counts */
            w.pads[w.n + i] = before;
    }
    write_window(c, &w);
    graph__drop_attr(&c->n, "storage_order");
    shape__set_int(c, "count_include_pad", include);
    if (c->err->rc == SH_OK && c->n.n_out > 1 && c->out_names[1])
        return shape__rewrite_max_pool(c, dims, order != 0);
    return shape__out(c, 0, x->dtype, x->rank, dims);
}

/* LpPool, GlobalLpPool: p, and windows as every pool. */
int shape__infer_lp_pool(struct shape_ctx *c)
{
    const int64_t p = shape__own_int(c, "p", 2);

    if (p < 1)
        return shape__fail(c, SH_E_INVALID, "p is %lld, it must be at least 1", (long long)p);
    return strcmp(c->n.op, "LpPool") == 0 ? shape__infer_pool(c) : shape__infer_global_pool(c);
}

int shape__infer_global_pool(struct shape_ctx *c)
{
    const struct graph_value *x = shape__in(c, 0);
    int64_t dims[SH_MAX_RANK];

    shape__want_float(c, 0);
    if (x->rank < 3)
        return shape__fail(c, SH_E_INVALID, "needs an input with spatial axes");
    for (int i = 0; i < x->rank; i++)
        dims[i] = i < 2 ? x->dims[i] : 1;
    return shape__out(c, 0, x->dtype, x->rank, dims);
}
