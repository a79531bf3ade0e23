/* lower_window.c - convolutions and pools.
 *
 * The device has windows over two axes. A one-axis window gets another axis of height 1. A pool
 * over more axes is one over the last two, then one over each other axis: a maximum of maxima, or
 * an average of averages (also of how many elements count: their product over the axes). A
 * convolution over three reads, for each output plane, the planes that the window reaches as that
 * many times the channels.
 */
#include "common/mem.h"
#include "runtime/model/lower_int.h"

#include <stdlib.h>

#define MAX_SPATIAL (SH_MAX_RANK - 2)

struct axis { /* of a window */
    int64_t kernel, stride, dilation, pad_begin, pad_end;
};

struct window {
    int n; /* spatial axes */
    struct axis axis[MAX_SPATIAL];
    int64_t groups;
    bool count_include_pad;
};

static int read_window(const struct graph_node *n, struct window *w, struct sh_err *err)
{
    int64_t k[MAX_SPATIAL], s[MAX_SPATIAL], d[MAX_SPATIAL], p[2 * MAX_SPATIAL], include;
    size_t n_k = 0, n_s = 0, n_d = 0, n_p = 0;
    int rc = graph_ints(n, "kernel_shape", k, MAX_SPATIAL, &n_k, err);

    *w = (struct window){0};
    if (!rc)
        rc = graph_ints(n, "strides", s, MAX_SPATIAL, &n_s, err);
    if (!rc)
        rc = graph_ints(n, "dilations", d, MAX_SPATIAL, &n_d, err);
    if (!rc)
        rc = graph_ints(n, "pads", p, SH_ARRAY_LEN(p), &n_p, err);
    if (!rc)
        rc = graph_int(n, "group", 1, &w->groups, err);
    if (!rc)
        rc = graph_int(n, "count_include_pad", 0, &include, err);
    if (rc)
        return rc;
    if (n_k < 1 || n_s != n_k || n_d != n_k || n_p != 2 * n_k)
        return SH_FAIL(err, SH_E_BUG, "%s \"%s\" is not in static form", n->op, n->name);
    w->n = (int)n_k;
    w->count_include_pad = include != 0;
    for (size_t i = 0; i < n_k; i++)
        w->axis[i] = (struct axis){k[i], s[i], d[i], p[i], p[n_k + i]};
    return SH_OK;
}

/* The window of the device over axes h and w; NULL: one element. */
static struct dev_conv plane(const struct window *win, const struct axis *h, const struct axis *w)
{
    const struct axis one = {1, 1, 1, 0, 0}, *both[2] = {h ? h : &one, w ? w : &one};
    struct dev_conv c = {.groups = win->groups, .count_include_pad = win->count_include_pad};

    for (int i = 0; i < 2; i++) {
        c.kernel[i] = both[i]->kernel;
        c.stride[i] = both[i]->stride;
        c.dilation[i] = both[i]->dilation;
        c.pad_begin[i] = both[i]->pad_begin;
        c.pad_end[i] = both[i]->pad_end;
    }
    return c;
}

/* Over the last two axes, or the only one. */
static struct dev_conv last_plane(const struct window *w)
{
    return plane(w, w->n > 1 ? &w->axis[w->n - 2] : NULL, &w->axis[w->n - 1]);
}

/* x[N,C,L] as x[N,C,1,L]; other ranks stay. */
static int as_2d(struct lower *lo, uint32_t t, uint32_t *out, struct sh_err *err)
{
    const struct dev_tensor *d = ir_t(lo->ir, t);

    *out = t;
    if (d->rank != 3)
        return SH_OK;
    return ir_alias(lo->ir, t, 4, (int64_t[]){d->dims[0], d->dims[1], 1, d->dims[2]}, out, err);
}

/* Elements of an output along one axis. */
static int64_t reach(const struct axis *a, int64_t in)
{
    return (in + a->pad_begin + a->pad_end - (a->kernel - 1) * a->dilation - 1) / a->stride + 1;
}

/* ------------------------------------------------------------------ depth as channels */

/* x [N, C, D, H, W] -> [N OD, K C, H, W]: for each output plane the K planes of its window, the
 * channels of a group together. */
static int unfold(struct lower *lo, const char *name, uint32_t x, const struct axis *a,
                  int64_t groups, uint32_t *y, struct sh_err *err)
{
    const struct dev_tensor d = *ir_t(lo->ir, x);
    const int64_t n = reach(a, d.dims[2]);
    uint32_t part[DEV_MAX_IN];
    int rc = lower__pad_axis(lo, name, x, (struct lower_pad){2, a->pad_begin, a->pad_end}, &x, err);

    if (!rc)
        rc = ir_alias(lo->ir, x, 6,
                      (int64_t[]){d.dims[0], groups, d.dims[1] / groups, ir_t(lo->ir, x)->dims[2],
                                  d.dims[3], d.dims[4]},
                      &x, err);
    if (!rc)
        rc = lower__turn(lo, name, x, (uint32_t[]){0, 3, 1, 2, 4, 5}, &x, err);
    for (int64_t k = 0; k < a->kernel && rc == SH_OK; k++)
        rc = lower__cut(lo, name, x, (struct lower_cut){1, k * a->dilation, a->stride, n}, &part[k],
                        err);
    if (!rc)
        rc = lower__joined(lo, name, part, (uint32_t)a->kernel, 3, &x, err);
    if (rc)
        return rc;
    return ir_alias(lo->ir, x, 4,
                    (int64_t[]){d.dims[0] * n, d.dims[1] * a->kernel, d.dims[3], d.dims[4]}, y,
                    err);
}

struct taps { /* a weight [m, c, k, inner] to be read as [m, k, c, inner] */
    const float *from;
    int64_t m, c, k, inner;
};

static void turn_taps(const void *ctx, void *to)
{
    const struct taps *t = ctx;
    float *out = to;

    for (int64_t i = 0; i < t->m * t->k * t->c; i++, out += t->inner) {
        const int64_t c = i % t->c, k = i / t->c % t->k, m = i / t->c / t->k;

        memcpy(out, t->from + ((m * t->c + c) * t->k + k) * t->inner,
               (size_t)t->inner * sizeof(*out));
    }
}

/* w [M, C, K, H, W] -> [M, K C, H, W]; at inference before the program runs. */
static int unfold_weight(struct lower *lo, const char *name, uint32_t w, uint32_t *y,
                         struct sh_err *err)
{
    struct dev_tensor d = *ir_t(lo->ir, w), like = d;
    const int64_t dims[4] = {d.dims[0], d.dims[1] * d.dims[2], d.dims[3], d.dims[4]};
    struct taps *t;
    int rc;

    if (d.dims[2] > 1 && d.dims[1] > 1 && !lo->training && ir_is_given(lo->ir, w) &&
        d.dtype == SH_F32) {
        t = malloc(sizeof(*t));
        if (!t)
            return SH_FAIL(err, SH_E_NOMEM, "could not allocate a weight");
        *t = (struct taps){ir_data(lo->ir, w), d.dims[0], d.dims[1], d.dims[2],
                           d.dims[3] * d.dims[4]};
        like.rank = 4;
        memcpy(like.dims, dims, sizeof(dims));
        rc = ir_name(lo->ir, &name, err, "%s#turned", d.name);
        if (!rc)
            rc = ir_later(lo->ir, &like, name, turn_taps, t, y, err);
        if (rc)
            free(t);
        return rc;
    }
    rc = lower__turn(lo, name, w, (uint32_t[]){0, 2, 1, 3, 4}, &w, err);
    return rc ? rc : ir_alias(lo->ir, w, 4, dims, y, err);
}

/* y [N OD, M, H, W] -> [N, M, OD, H, W] */
static int planes_back(struct lower *lo, const char *name, uint32_t y, int64_t samples,
                       uint32_t *out, struct sh_err *err)
{
    const struct dev_tensor d = *ir_t(lo->ir, y);
    int rc = ir_alias(lo->ir, y, 5,
                      (int64_t[]){samples, d.dims[0] / samples, d.dims[1], d.dims[2], d.dims[3]},
                      &y, err);

    return rc ? rc : lower__turn(lo, name, y, (uint32_t[]){0, 2, 1, 3, 4}, out, err);
}

/* ------------------------------------------------------------------ convolution */

static int too_deep(const struct graph_node *n, const struct window *w, struct sh_err *err)
{
    if (w->n < 3 || w->axis[0].kernel <= DEV_MAX_IN)
        return SH_OK;
    return lower__unsupported(n, err, "a window of more than 32 along the depth is not supported");
}

int lower__convolve(struct lower *lo, const struct graph_node *n, uint32_t x, uint32_t weight,
                    uint32_t bias, uint32_t *y, struct sh_err *err)
{
    const struct graph_value *out = lower__out(lo, n);
    uint32_t in[4] = {x, weight, bias, DEV_NONE};
    struct window w;
    struct dev_op op;
    int rc = read_window(n, &w, err);

    if (!rc)
        rc = too_deep(n, &w, err);
    if (!rc)
        rc = w.n == 3 ? unfold(lo, n->name, in[0], &w.axis[0], w.groups, &in[0], err)
                      : as_2d(lo, in[0], &in[0], err);
    if (!rc)
        rc = w.n == 3 ? unfold_weight(lo, n->name, in[1], &in[1], err)
                      : as_2d(lo, in[1], &in[1], err);
    if (rc)
        return rc;
    op = ir_op(DEV_OP_CONV, n->name, 4, in);
    op.u.conv = last_plane(&w);
    rc = ir_emit(lo->ir, &op, SH_F32, 4,
                 (int64_t[]){ir_t(lo->ir, in[0])->dims[0], out->dims[1],
                             w.n == 1 ? 1 : out->dims[w.n], out->dims[w.n + 1]},
                 y, err);
    if (!rc && w.n == 3)
        rc = planes_back(lo, n->name, *y, out->dims[0], y, err);
    return rc ? rc : ir_alias(lo->ir, *y, (uint32_t)out->rank, out->dims, y, err);
}

int lower__plane(const struct graph_node *n, struct dev_conv *out, struct sh_err *err)
{
    struct window w;
    int rc = read_window(n, &w, err);

    *out = rc ? (struct dev_conv){.groups = 1} : last_plane(&w);
    return rc;
}

int lower__conv(struct lower *lo, const struct graph_node *n, struct sh_err *err)
{
    uint32_t in[3] = {DEV_NONE, DEV_NONE, DEV_NONE}, y;
    int rc = lower__use_all(lo, n, 3, in, err);

    if (!rc)
        rc = lower__convolve(lo, n, in[0], in[1], in[2], &y, err);
    return rc ? rc : lower__is(lo, n, y, err);
}

/* Of the elements along an axis, `begin` and `end` are cut off: zeros are added where negative. */
static int trim(struct lower *lo, const char *name, uint32_t x, uint32_t axis, int64_t begin,
                int64_t end, uint32_t *y, struct sh_err *err)
{
    const int64_t n = ir_t(lo->ir, x)->dims[axis] - SH_MAX(begin, 0) - SH_MAX(end, 0);
    int rc = lower__cut(lo, name, x, (struct lower_cut){axis, SH_MAX(begin, 0), 1, n}, y, err);

    return rc ? rc
              : lower__pad_axis(lo, name, *y,
                                (struct lower_pad){axis, SH_MAX(-begin, 0), SH_MAX(-end, 0)}, y,
                                err);
}

/* The planes of x [N, D, ...] with stride - 1 planes of zeros between them, and `before` and
 * `after` around them. */
static int spread(struct lower *lo, const char *name, uint32_t x, int64_t stride, int64_t before,
                  int64_t after, uint32_t *y, struct sh_err *err)
{
    struct dev_tensor d = *ir_t(lo->ir, x);
    const int64_t n = d.dims[1];
    int64_t dims[SH_MAX_RANK] = {d.dims[0], n, 1, dev_axes_elements(&d, 2, d.rank)};
    int rc = ir_alias(lo->ir, x, 4, dims, &x, err);

    if (!rc)
        rc = lower__pad_axis(lo, name, x, (struct lower_pad){2, 0, stride - 1}, &x, err);
    dims[1] = n * stride;
    dims[2] = dims[3];
    if (!rc)
        rc = ir_alias(lo->ir, x, 3, dims, &x, err);
    if (!rc)
        rc = trim(lo, name, x, 1, -before, stride - 1 - after, &x, err);
    d.dims[1] = (n - 1) * stride + 1 + before + after;
    return rc ? rc : ir_alias(lo->ir, x, d.rank, d.dims, y, err);
}

/* The other way round: y [N D, K M, H, W] -> [N, OD, M, H, W], sums where windows meet. */
static int fold(struct lower *lo, const char *name, uint32_t y, const struct axis *a,
                int64_t groups, int64_t samples, uint32_t *out, struct sh_err *err)
{
    const struct dev_tensor d = *ir_t(lo->ir, y);
    const int64_t m = d.dims[1] / groups / a->kernel, last = (a->kernel - 1) * a->dilation;
    const int64_t dims[6] = {samples,       d.dims[0] / samples, groups,
                             a->kernel * m, d.dims[2],           d.dims[3]};
    uint32_t sum = DEV_NONE;
    int rc = ir_alias(lo->ir, y, 6, dims, &y, err);

    for (int64_t k = 0; k < a->kernel && rc == SH_OK; k++) {
        uint32_t part;

        rc = lower__cut(lo, name, y, (struct lower_cut){3, k * m, 1, m}, &part, err);
        if (!rc)
            rc = spread(lo, name, part, a->stride, k * a->dilation, last - k * a->dilation, &part,
                        err);
        if (!rc && k > 0)
            rc = ir_binary(lo->ir, DEV_BIN_ADD, name, sum, part, part, &part, err);
        sum = part;
    }
    if (!rc)
        rc = trim(lo, name, sum, 1, a->pad_begin, a->pad_end, &sum, err);
    return rc ? rc
              : ir_alias(lo->ir, sum, 5,
                         (int64_t[]){samples, ir_t(lo->ir, sum)->dims[1], groups * m, d.dims[2],
                                     d.dims[3]},
                         out, err);
}

/* What is left of the padding: the device cuts off, a PAD behind it adds. */
static void split_pads(struct dev_conv *c, int64_t begin[2], int64_t end[2])
{
    for (int i = 0; i < 2; i++) {
        begin[i] = SH_MIN(c->pad_begin[i], 0);
        end[i] = SH_MIN(c->pad_end[i], 0);
        c->pad_begin[i] -= begin[i];
        c->pad_end[i] -= end[i];
    }
}

/* The gradient of the convolution that has this weight, along the last two axes. */
static int transposed_plane(struct lower *lo, const struct graph_node *n, const struct window *w,
                            const uint32_t *in, uint32_t *y, struct sh_err *err)
{
    struct dev_op op = ir_op(DEV_OP_CONV_BWD_DATA, n->name, 2, in);
    int64_t begin[2], end[2], dims[4];
    const struct dev_tensor *x = ir_t(lo->ir, in[0]);
    int rc;

    op.u.conv = last_plane(w);
    split_pads(&op.u.conv, begin, end);
    dims[0] = x->dims[0];
    dims[1] = ir_t(lo->ir, in[1])->dims[1] * w->groups;
    for (int i = 0; i < 2; i++)
        dims[2 + i] = (x->dims[2 + i] - 1) * op.u.conv.stride[i] +
                      (op.u.conv.kernel[i] - 1) * op.u.conv.dilation[i] + 1 -
                      op.u.conv.pad_begin[i] - op.u.conv.pad_end[i];
    if (dims[2] < 1 || dims[3] < 1)
        return lower__unsupported(n, err, "its padding leaves nothing but zeros");
    rc = ir_emit(lo->ir, &op, SH_F32, 4, dims, y, err);
    for (uint32_t i = 0; i < 2 && rc == SH_OK; i++)
        rc = trim(lo, n->name, *y, 2 + i, begin[i], end[i], y, err);
    return rc;
}

int lower__conv_transpose(struct lower *lo, const struct graph_node *n, struct sh_err *err)
{
    const struct graph_value *x = lower__in(lo, n, 0), *out = lower__out(lo, n);
    uint32_t in[3] = {DEV_NONE, DEV_NONE, DEV_NONE}, y;
    struct window w;
    int rc = lower__use_all(lo, n, 3, in, err);

    if (!rc)
        rc = read_window(n, &w, err);
    if (!rc)
        rc = too_deep(n, &w, err);
    if (!rc && w.n == 3) {
        rc = lower__turn(lo, n->name, in[0], (uint32_t[]){0, 2, 1, 3, 4}, &in[0], err);
        if (!rc)
            rc = ir_alias(lo->ir, in[0], 4,
                          (int64_t[]){x->dims[0] * x->dims[2], x->dims[1], x->dims[3], x->dims[4]},
                          &in[0], err);
        if (!rc)
            rc = unfold_weight(lo, n->name, in[1], &in[1], err);
    } else if (!rc) {
        rc = as_2d(lo, in[0], &in[0], err);
        if (!rc)
            rc = as_2d(lo, in[1], &in[1], err);
    }
    if (!rc)
        rc = transposed_plane(lo, n, &w, in, &y, err);
    if (!rc && w.n == 3) {
        rc = fold(lo, n->name, y, &w.axis[0], w.groups, x->dims[0], &y, err);
        if (!rc)
            rc = lower__turn(lo, n->name, y, (uint32_t[]){0, 2, 1, 3, 4}, &y, err);
    } else if (!rc) {
        rc = ir_alias(lo->ir, y, (uint32_t)out->rank, out->dims, &y, err);
    }
    if (!rc && in[2] != DEV_NONE)
        rc = lower__per_channel(lo, n->name, y, DEV_BIN_ADD, in[2], &y, err);
    return rc ? rc : lower__is(lo, n, y, err);
}

/* ------------------------------------------------------------------ pools */

/* One window of the device. In training a maximum keeps where it was, for the way back. */
static int pool_plane(struct lower *lo, const char *name, uint32_t x, enum dev_op_kind kind,
                      const struct dev_conv *c, const int64_t dims[4], uint32_t *y,
                      struct sh_err *err)
{
    struct dev_op op = ir_op(kind, name, 1, &x);
    const char *indices;
    int rc = ir_tensor(lo->ir, name, SH_F32, DEV_ROLE_ACT, 4, dims, y, err);

    op.u.pool = *c;
    op.out[0] = *y;
    op.n_out = 1;
    if (!rc && kind == DEV_OP_POOL_MAX && lo->training) {
        rc = ir_name(lo->ir, &indices, err, "%s#indices", name);
        if (!rc)
            rc = ir_tensor(lo->ir, indices, SH_I32, DEV_ROLE_ACT, 4, dims, &op.out[1], err);
        op.n_out = 2;
    }
    return rc ? rc : ir_push(lo->ir, &op, err);
}

/* Over the last two axes of x, then over each other axis, to the shape of the node's output. */
static int pool_all(struct lower *lo, const struct graph_node *n, uint32_t x, enum dev_op_kind kind,
                    const struct window *w, uint32_t *y, struct sh_err *err)
{
    const struct graph_value *out = lower__out(lo, n);
    struct dev_tensor d = *ir_t(lo->ir, x);
    const int left = SH_MAX(w->n - 2, 0);
    int rc = SH_OK;

    for (int i = left; i >= 0 && rc == SH_OK; i--) {
        const uint32_t at = 2 + (uint32_t)i;
        const struct dev_conv c = i == left ? last_plane(w) : plane(w, &w->axis[i], NULL);
        int64_t dims[4] = {d.dims[0], dev_axes_elements(&d, 1, at), d.dims[at],
                           dev_axes_elements(&d, at + 1, d.rank)};

        if (w->n == 1) {
            dims[2] = 1;
            dims[3] = d.dims[2];
        }
        rc = ir_alias(lo->ir, x, 4, dims, &x, err);
        d.dims[at] = out->dims[at];
        if (i == left)
            d.dims[d.rank - 1] = out->dims[d.rank - 1];
        dims[2] = w->n == 1 ? 1 : d.dims[at];
        dims[3] = w->n == 1 ? d.dims[2] : dev_axes_elements(&d, at + 1, d.rank);
        if (!rc)
            rc = pool_plane(lo, n->name, x, kind, &c, dims, &x, err);
    }
    *y = x;
    return rc;
}

/* One window over everything. */
static void whole(const struct graph_value *x, struct window *w)
{
    *w = (struct window){.n = x->rank - 2, .groups = 1};
    for (int i = 0; i < w->n; i++)
        w->axis[i] = (struct axis){x->dims[2 + i], 1, 1, 0, 0};
}

/* Of 8-bit integers too, which are exact as floats. */
static int pool_node(struct lower *lo, const struct graph_node *n, enum dev_op_kind kind,
                     const struct window *w, struct sh_err *err)
{
    const enum sh_dtype t = lower__out(lo, n)->dtype;
    uint32_t x;
    int rc = lower__use(lo, n, 0, &x, err);

    if (!rc)
        rc = lower__as(lo, n->name, x, SH_F32, &x, err);
    if (!rc)
        rc = pool_all(lo, n, x, kind, w, &x, err);
    if (!rc)
        rc = lower__as(lo, n->name, x, t, &x, err);
    return rc ? rc : lower__is(lo, n, x, err);
}

int lower__pool(struct lower *lo, const struct graph_node *n, struct sh_err *err)
{
    struct window w;
    int rc = read_window(n, &w, err);

    if (rc)
        return rc;
    return pool_node(lo, n, strcmp(n->op, "MaxPool") == 0 ? DEV_OP_POOL_MAX : DEV_OP_POOL_AVG, &w,
                     err);
}

int lower__global_pool(struct lower *lo, const struct graph_node *n, struct sh_err *err)
{
    struct window w;

    whole(lower__in(lo, n, 0), &w);
    return pool_node(lo, n, strcmp(n->op, "GlobalMaxPool") == 0 ? DEV_OP_POOL_MAX : DEV_OP_POOL_AVG,
                     &w, err);
}

/* (sum |x|^p)^(1/p): an average that counts the padding, times the size of the window. */
int lower__lp_pool(struct lower *lo, const struct graph_node *n, struct sh_err *err)
{
    double size = 1;
    struct window w;
    uint32_t x;
    int64_t p;
    int rc = graph_int(n, "p", 2, &p, err);

    if (!rc && strcmp(n->op, "LpPool") == 0)
        rc = read_window(n, &w, err);
    else
        whole(lower__in(lo, n, 0), &w);
    if (!rc)
        rc = lower__use(lo, n, 0, &x, err);
    if (rc)
        return rc;
    w.count_include_pad = true;
    for (int i = 0; i < w.n; i++)
        size *= (double)w.axis[i].kernel;
    rc = lower__power(lo, n->name, x, p, &x, err);
    if (!rc)
        rc = pool_all(lo, n, x, DEV_OP_POOL_AVG, &w, &x, err);
    if (!rc)
        rc = ir_act(lo->ir, DEV_ACT_LINEAR, (float)size, 0.0f, n->name, x, &x, err);
    if (!rc)
        rc = lower__root(lo, n->name, x, p, &x, err);
    return rc ? rc : lower__is(lo, n, x, err);
}
