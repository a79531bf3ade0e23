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

/* false: a failure. */
static bool read_lower_window(struct lower *lo, const struct graph_node *n, struct window *w)
{
    int64_t k[MAX_SPATIAL], s[MAX_SPATIAL], d[MAX_SPATIAL], p[2 * MAX_SPATIAL];
    const size_t n_k = lower__ints(lo, n, "kernel_shape", k, MAX_SPATIAL);
    const size_t n_s = lower__ints(lo, n, "strides", s, MAX_SPATIAL);
    const size_t n_d = lower__ints(lo, n, "dilations", d, MAX_SPATIAL);
    const size_t n_p = lower__ints(lo, n, "pads", p, SH_ARRAY_LEN(p));

    *w = (struct window){.n = (int)n_k,
                         .groups = lower__int(lo, n, "group", 1),
                         .count_include_pad = lower__int(lo, n, "count_include_pad", 0) != 0};
    if (n_k < 1 || n_s != n_k || n_d != n_k || n_p != 2 * n_k)
        IR_FAIL(lo->ir, SH_E_BUG, "%s \"%s\" is not in static form", n->op, n->name);
    for (size_t i = 0; i < n_k && lo->ir->err.rc == SH_OK; i++)
        w->axis[i] = (struct axis){k[i], s[i], d[i], p[i], p[n_k + i]};
    return lo->ir->err.rc == SH_OK;
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
static uint32_t as_2d(struct lower *lo, uint32_t t)
{
    const struct dev_tensor *d = ir_t(lo->ir, t);

    return d->rank != 3
               ? t
               : ir_alias(lo->ir, t, 4, (int64_t[]){d->dims[0], d->dims[1], 1, d->dims[2]});
}

/* Elements of an output along one axis. */
static int64_t output_reach(const struct axis *a, int64_t in)
{
    return (in + a->pad_begin + a->pad_end - (a->kernel - 1) * a->dilation - 1) / a->stride + 1;
}

/* ------------------------------------------------------------------ depth as channels */

/* x [N, C, D, H, W] -> [N OD, K C, H, W]: for each output plane the K planes of its window, the
 * channels of a group together. */
static uint32_t unfold(struct lower *lo, const char *name, uint32_t x, const struct axis *a,
                       int64_t groups)
{
    const struct dev_tensor d = *ir_t(lo->ir, x);
    const int64_t n = output_reach(a, d.dims[2]);
    uint32_t part[DEV_MAX_IN];

    x = lower__pad_axis(lo, name, x, (struct lower_pad){2, a->pad_begin, a->pad_end});
    x = ir_alias(lo->ir, x, 6,
                 (int64_t[]){d.dims[0], groups, d.dims[1] / groups, ir_t(lo->ir, x)->dims[2],
                             d.dims[3], d.dims[4]});
    x = lower__turn(lo, name, x, (uint32_t[]){0, 3, 1, 2, 4, 5});
    for (int64_t k = 0; k < a->kernel; k++)
        part[k] = lower__cut(lo, name, x, (struct lower_cut){1, k * a->dilation, a->stride, n});
    x = ir_joined(lo->ir, name, part, (uint32_t)a->kernel, 3);
    return ir_alias(lo->ir, x, 4,
                    (int64_t[]){d.dims[0] * n, d.dims[1] * a->kernel, d.dims[3], d.dims[4]});
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
static uint32_t unfold_weight(struct lower *lo, const char *name, uint32_t w)
{
    struct dev_tensor d = *ir_t(lo->ir, w), like = d;
    const int64_t dims[4] = {d.dims[0], d.dims[1] * d.dims[2], d.dims[3], d.dims[4]};
    struct taps *t;

    if (d.dims[2] == 1 || d.dims[1] == 1 || lo->training || !ir_is_given(lo->ir, w) ||
        d.dtype != SH_F32) {
        w = lower__turn(lo, name, w, (uint32_t[]){0, 2, 1, 3, 4});
        return ir_alias(lo->ir, w, 4, dims);
    }
    t = ir_alloc(lo->ir, 1, sizeof(*t));
    if (t)
        *t = (struct taps){ir_data(lo->ir, w), d.dims[0], d.dims[1], d.dims[2],
                           d.dims[3] * d.dims[4]};
    like.rank = 4;
    memcpy(like.dims, dims, sizeof(dims));
    return ir_later(lo->ir, &like, ir_name(lo->ir, "%s#turned", d.name), turn_taps, t);
}

/* y [N OD, M, H, W] -> [N, M, OD, H, W] */
static uint32_t planes_back(struct lower *lo, const char *name, uint32_t y, int64_t samples)
{
    const struct dev_tensor d = *ir_t(lo->ir, y);

    y = ir_alias(lo->ir, y, 5,
                 (int64_t[]){samples, d.dims[0] / samples, d.dims[1], d.dims[2], d.dims[3]});
    return lower__turn(lo, name, y, (uint32_t[]){0, 2, 1, 3, 4});
}

/* ------------------------------------------------------------------ convolution */

/* The window of a convolution. false: a failure. */
static bool read_conv(struct lower *lo, const struct graph_node *n, struct window *w)
{
    if (read_lower_window(lo, n, w) && w->n >= 3 && w->axis[0].kernel > DEV_MAX_IN)
        lower__unsupported(lo, n, "a window of more than 32 along the depth is not supported");
    return lo->ir->err.rc == SH_OK;
}

uint32_t lower__convolve(struct lower *lo, const struct graph_node *n, uint32_t x, uint32_t weight,
                         uint32_t bias)
{
    const struct graph_value *out = lower__out(lo, n);
    struct dev_op op = ir_op(DEV_OP_CONV, n->name, 4, (uint32_t[]){x, weight, bias, DEV_NONE});
    struct window w;
    uint32_t y;

    if (!read_conv(lo, n, &w))
        return DEV_NONE;
    op.in[0] = w.n == 3 ? unfold(lo, n->name, x, &w.axis[0], w.groups) : as_2d(lo, x);
    op.in[1] = w.n == 3 ? unfold_weight(lo, n->name, weight) : as_2d(lo, weight);
    op.u.conv = last_plane(&w);
    y = ir_emit(lo->ir, &op, SH_F32, 4,
                (int64_t[]){ir_t(lo->ir, op.in[0])->dims[0], out->dims[1],
                            w.n == 1 ? 1 : out->dims[w.n], out->dims[w.n + 1]});
    if (w.n == 3)
        y = planes_back(lo, n->name, y, out->dims[0]);
    return ir_alias(lo->ir, y, (uint32_t)out->rank, out->dims);
}

struct dev_conv lower__plane(struct lower *lo, const struct graph_node *n)
{
    struct window w;

    return read_lower_window(lo, n, &w) ? last_plane(&w) : (struct dev_conv){.groups = 1};
}

void lower__conv(struct lower *lo, const struct graph_node *n)
{
    uint32_t in[3];

    lower__use_all(lo, n, 3, in);
    lower__is(lo, n, lower__convolve(lo, n, in[0], in[1], in[2]));
}

/* Of the elements along an axis, `begin` and `end` are cut off: zeros are added where negative. */
static uint32_t trim_axis(struct lower *lo, const char *name, uint32_t x, uint32_t axis,
                          int64_t begin, int64_t end)
{
    const int64_t n = ir_t(lo->ir, x)->dims[axis] - SH_MAX(begin, 0) - SH_MAX(end, 0);

    x = lower__cut(lo, name, x, (struct lower_cut){axis, SH_MAX(begin, 0), 1, n});
    return lower__pad_axis(lo, name, x,
                           (struct lower_pad){axis, SH_MAX(-begin, 0), SH_MAX(-end, 0)});
}

/* The planes of x [N, D, ...] with stride - 1 planes of zeros between them, and `before` and
 * `after` around them. */
static uint32_t spread_planes(struct lower *lo, const char *name, uint32_t x, int64_t stride,
                              int64_t before, int64_t after)
{
    struct dev_tensor d = *ir_t(lo->ir, x);
    const int64_t n = d.dims[1], inner = dev_axes_elements(&d, 2, d.rank);

    x = ir_alias(lo->ir, x, 4, (int64_t[]){d.dims[0], n, 1, inner});
    x = lower__pad_axis(lo, name, x, (struct lower_pad){2, 0, stride - 1});
    x = ir_alias(lo->ir, x, 3, (int64_t[]){d.dims[0], n * stride, inner});
    x = trim_axis(lo, name, x, 1, -before, stride - 1 - after);
    d.dims[1] = (n - 1) * stride + 1 + before + after;
    return ir_alias(lo->ir, x, d.rank, d.dims);
}

/* The other way round: y [N D, K M, H, W] -> [N, OD, M, H, W], sums where windows meet. */
static uint32_t fold_planes(struct lower *lo, const char *name, uint32_t y, const struct axis *a,
                            int64_t groups, int64_t samples)
{
    const struct dev_tensor d = *ir_t(lo->ir, y);
    const int64_t m = d.dims[1] / groups / a->kernel, last = (a->kernel - 1) * a->dilation;
    uint32_t sum = DEV_NONE;

    y = ir_alias(
        lo->ir, y, 6,
        (int64_t[]){samples, d.dims[0] / samples, groups, a->kernel * m, d.dims[2], d.dims[3]});
    for (int64_t k = 0; k < a->kernel; k++) {
        uint32_t part = lower__cut(lo, name, y, (struct lower_cut){3, k * m, 1, m});

        part = spread_planes(lo, name, part, a->stride, k * a->dilation, last - k * a->dilation);
        sum = k == 0 ? part : ir_binary(lo->ir, DEV_BIN_ADD, name, sum, part, part);
    }
    sum = trim_axis(lo, name, sum, 1, a->pad_begin, a->pad_end);
    return ir_alias(
        lo->ir, sum, 5,
        (int64_t[]){samples, ir_t(lo->ir, sum)->dims[1], groups * m, d.dims[2], d.dims[3]});
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
static uint32_t transposed_plane(struct lower *lo, const struct graph_node *n,
                                 const struct window *w, const uint32_t *in)
{
    struct dev_op op = ir_op(DEV_OP_CONV_BWD_DATA, n->name, 2, in);
    int64_t begin[2], end[2], dims[4];
    const struct dev_tensor *x = ir_t(lo->ir, in[0]);
    uint32_t y;

    op.u.conv = last_plane(w);
    split_pads(&op.u.conv, begin, end);
    dims[0] = x->dims[0];
    dims[1] = ir_t(lo->ir, in[1])->dims[1] * w->groups;
    for (int i = 0; i < 2; i++)
        dims[2 + i] = (x->dims[2 + i] - 1) * op.u.conv.stride[i] +
                      (op.u.conv.kernel[i] - 1) * op.u.conv.dilation[i] + 1 -
                      op.u.conv.pad_begin[i] - op.u.conv.pad_end[i];
    if (dims[2] < 1 || dims[3] < 1)
        lower__unsupported(lo, n, "its padding leaves nothing but zeros");
    y = ir_emit(lo->ir, &op, SH_F32, 4, dims);
    for (uint32_t i = 0; i < 2; i++)
        y = trim_axis(lo, n->name, y, 2 + i, begin[i], end[i]);
    return y;
}

void lower__conv_transpose(struct lower *lo, const struct graph_node *n)
{
    static const uint32_t DEPTH_FIRST[] = {0, 2, 1, 3, 4};
    const struct graph_value *x = lower__in(lo, n, 0), *out = lower__out(lo, n);
    uint32_t in[3], y;
    struct window w;

    lower__use_all(lo, n, 3, in);
    if (!read_conv(lo, n, &w))
        return;
    if (w.n == 3) {
        in[0] = lower__turn(lo, n->name, in[0], DEPTH_FIRST);
        in[0] = ir_alias(lo->ir, in[0], 4,
                         (int64_t[]){x->dims[0] * x->dims[2], x->dims[1], x->dims[3], x->dims[4]});
        in[1] = unfold_weight(lo, n->name, in[1]);
        y = transposed_plane(lo, n, &w, in);
        y = fold_planes(lo, n->name, y, &w.axis[0], w.groups, x->dims[0]);
        y = lower__turn(lo, n->name, y, DEPTH_FIRST);
    } else {
        in[0] = as_2d(lo, in[0]);
        in[1] = as_2d(lo, in[1]);
        y = ir_alias(lo->ir, transposed_plane(lo, n, &w, in), (uint32_t)out->rank, out->dims);
    }
    if (in[2] != DEV_NONE)
        y = lower__per_channel(lo, n->name, y, DEV_BIN_ADD, in[2]);
    lower__is(lo, n, y);
}

/* ------------------------------------------------------------------ pools */

/* One window of the device. In training a maximum keeps where it was, for the way back. */
static uint32_t pool_plane(struct lower *lo, const char *name, uint32_t x, enum dev_op_kind kind,
                           const struct dev_conv *c, const int64_t dims[4])
{
    struct dev_op op = ir_op(kind, name, 1, &x);

    op.u.pool = *c;
    op.out[op.n_out++] = ir_tensor(lo->ir, name, SH_F32, DEV_ROLE_ACT, 4, dims);
    if (kind == DEV_OP_POOL_MAX && lo->training)
        op.out[op.n_out++] =
            ir_tensor(lo->ir, ir_name(lo->ir, "%s#indices", name), SH_I32, DEV_ROLE_ACT, 4, dims);
    ir_push(lo->ir, &op);
    return op.out[0];
}

/* Over the last two axes of x, then over each other axis, to the shape of the node's output. */
static uint32_t pool_all(struct lower *lo, const struct graph_node *n, uint32_t x,
                         enum dev_op_kind kind, const struct window *w)
{
    const struct graph_value *out = lower__out(lo, n);
    struct dev_tensor d = *ir_t(lo->ir, x);
    const int left = SH_MAX(w->n - 2, 0);

    for (int i = left; i >= 0; i--) {
        const uint32_t at = 2 + (uint32_t)i;
        const struct dev_conv c = i == left ? last_plane(w) : plane(w, &w->axis[i], NULL);
        int64_t dims[4] = {d.dims[0], dev_axes_elements(&d, 1, at), d.dims[at],
                           dev_axes_elements(&d, at + 1, d.rank)};

        if (w->n == 1) {
            dims[2] = 1;
            dims[3] = d.dims[2];
        }
        x = ir_alias(lo->ir, x, 4, dims);
        d.dims[at] = out->dims[at];
        if (i == left)
            d.dims[d.rank - 1] = out->dims[d.rank - 1];
        dims[2] = w->n == 1 ? 1 : d.dims[at];
        dims[3] = w->n == 1 ? d.dims[2] : dev_axes_elements(&d, at + 1, d.rank);
        x = pool_plane(lo, n->name, x, kind, &c, dims);
    }
    return x;
}

/* One window over everything. */
static struct window whole_window(const struct graph_value *x)
{
    struct window w = {.n = x->rank - 2, .groups = 1};

    for (int i = 0; i < w.n; i++)
        w.axis[i] = (struct axis){x->dims[2 + i], 1, 1, 0, 0};
    return w;
}

/* Of 8-bit integers too, which are exact as floats. */
static void pool_node(struct lower *lo, const struct graph_node *n, enum dev_op_kind kind,
                      const struct window *w)
{
    uint32_t x = lower__as(lo, n->name, lower__use(lo, n, 0), SH_F32);

    x = pool_all(lo, n, x, kind, w);
    lower__is(lo, n, lower__as(lo, n->name, x, lower__out(lo, n)->dtype));
}

void lower__pool(struct lower *lo, const struct graph_node *n)
{
    struct window w;

    if (read_lower_window(lo, n, &w))
        pool_node(lo, n, strcmp(n->op, "MaxPool") == 0 ? DEV_OP_POOL_MAX : DEV_OP_POOL_AVG, &w);
}

void lower__global_pool(struct lower *lo, const struct graph_node *n)
{
    const struct window w = whole_window(lower__in(lo, n, 0));

    pool_node(lo, n, strcmp(n->op, "GlobalMaxPool") == 0 ? DEV_OP_POOL_MAX : DEV_OP_POOL_AVG, &w);
}

/* (sum |x|^p)^(1/p): an average that counts the padding, times the size of the window. */
void lower__lp_pool(struct lower *lo, const struct graph_node *n)
{
    const int64_t p = lower__int(lo, n, "p", 2);
    struct window w = whole_window(lower__in(lo, n, 0));
    double size = 1;
    uint32_t x;

    if (strcmp(n->op, "LpPool") == 0 && !read_lower_window(lo, n, &w))
        return;
    w.count_include_pad = true;
    for (int i = 0; i < w.n; i++)
        size *= (double)w.axis[i].kernel;
    x = lower__power(lo, n->name, lower__use(lo, n, 0), p);
    x = pool_all(lo, n, x, DEV_OP_POOL_AVG, &w);
    x = ir_act(lo->ir, DEV_ACT_LINEAR, (float)size, 0.0f, n->name, x);
    lower__is(lo, n, lower__root(lo, n->name, x, p));
}
