/* shape_nn.c - shapes of convolutions, pools, products and normalisations. */
#include "common/mem.h"
#include "executor/model/shape_int.h"

#include <stdlib.h>

#define MAX_SPATIAL (SH_MAX_RANK - 2)

struct window { /* a sliding window over the spatial axes */
    int n;      /* spatial axes */
    int64_t kernel[MAX_SPATIAL], stride[MAX_SPATIAL], dilation[MAX_SPATIAL], pads[2 * MAX_SPATIAL];
    int64_t ceil_mode;
    int same; /* auto_pad: 0 explicit, 1 SAME_UPPER, 2 SAME_LOWER */
};

static int read_list(struct shape_ctx *c, const char *name, int64_t *out, size_t want, int64_t def,
                     int64_t min)
{
    size_t k;
    int rc = graph_ints(&c->n, name, out, want, &k, c->err);

    if (rc)
        return rc;
    if (k != 0 && k != want)
        return shape__fail(c, SH_E_INVALID, "%s has %zu numbers, the input needs %zu", name, k,
                           want);
    for (size_t i = 0; i < want; i++) {
        if (k == 0)
            out[i] = def;
        if (out[i] < min || out[i] > (1 << 30))
            return shape__fail(c, SH_E_INVALID, "%s holds %lld", name, (long long)out[i]);
    }
    return SH_OK;
}

static int read_auto_pad(struct shape_ctx *c, struct window *w)
{
    const char *how;
    int rc = graph_str(&c->n, "auto_pad", "NOTSET", &how, c->err);

    if (rc)
        return rc;
    if (strcmp(how, "SAME_UPPER") == 0)
        w->same = 1;
    else if (strcmp(how, "SAME_LOWER") == 0)
        w->same = 2;
    else if (strcmp(how, "VALID") == 0)
        memset(w->pads, 0, sizeof(w->pads));
    else if (strcmp(how, "NOTSET") != 0 && how[0])
        return shape__fail(c, SH_E_INVALID, "auto_pad %.32s is not known", how);
    return SH_OK;
}

/* kernel: NULL to read kernel_shape, otherwise the weight's spatial dims. */
static int read_window(struct shape_ctx *c, const int64_t *kernel, struct window *w)
{
    size_t n = (size_t)w->n;
    int rc = read_list(c, "kernel_shape", w->kernel, n, 0, kernel ? 0 : 1);

    for (size_t i = 0; kernel && i < n && rc == SH_OK; i++) {
        if (w->kernel[i] != 0 && w->kernel[i] != kernel[i])
            rc = shape__fail(c, SH_E_INVALID, "kernel_shape does not match the weight");
        w->kernel[i] = kernel[i];
    }
    if (!rc)
        rc = read_list(c, "strides", w->stride, n, 1, 1);
    if (!rc)
        rc = read_list(c, "dilations", w->dilation, n, 1, 1);
    if (!rc)
        rc = read_list(c, "pads", w->pads, 2 * n, 0, 0);
    if (!rc)
        rc = graph_int(&c->n, "ceil_mode", 0, &w->ceil_mode, c->err);
    return rc ? rc : read_auto_pad(c, w);
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
        return SH_OK;
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
    return SH_OK;
}

static int write_window(struct shape_ctx *c, const struct window *w)
{
    size_t n = (size_t)w->n;
    int rc = graph_set_ints(&c->n, "kernel_shape", w->kernel, n, c->err);

    if (!rc)
        rc = graph_set_ints(&c->n, "strides", w->stride, n, c->err);
    if (!rc)
        rc = graph_set_ints(&c->n, "dilations", w->dilation, n, c->err);
    if (!rc)
        rc = graph_set_ints(&c->n, "pads", w->pads, 2 * n, c->err);
    graph__drop_attr(&c->n, "auto_pad");
    graph__drop_attr(&c->n, "ceil_mode");
    return rc;
}

static int check_conv(struct shape_ctx *c, const struct graph_value *x, const struct graph_value *w,
                      int64_t group)
{
    char xs[GRAPH_SHAPE_TEXT], ws[GRAPH_SHAPE_TEXT];

    if (x->rank < 3 || x->rank > MAX_SPATIAL + 2 || w->rank != x->rank)
        return shape__fail(c, SH_E_INVALID, "input %s and weight %s do not fit together",
                           graph__shape_text(x, xs, sizeof(xs)),
                           graph__shape_text(w, ws, sizeof(ws)));
    if (x->rank > 4)
        return shape__fail(c, SH_E_UNSUPPORTED, "has %d spatial axes; at most 2 are supported",
                           x->rank - 2);
    if (group < 1 || w->dims[0] < 1 || w->dims[0] % group != 0 || x->dims[1] % group != 0 ||
        w->dims[1] != x->dims[1] / group)
        return shape__fail(c, SH_E_INVALID,
                           "input %s, weight %s and group %lld do not fit together",
                           graph__shape_text(x, xs, sizeof(xs)),
                           graph__shape_text(w, ws, sizeof(ws)), (long long)group);
    return SH_OK;
}

static int check_vector(struct shape_ctx *c, uint32_t i, int64_t want)
{
    const struct graph_value *v = shape__in(c, i);
    char text[GRAPH_SHAPE_TEXT];

    if (v->rank != 1 || v->dims[0] != want)
        return shape__fail(c, SH_E_INVALID, "input %u is %s, it must have %lld elements", i,
                           graph__shape_text(v, text, sizeof(text)), (long long)want);
    return SH_OK;
}

int shape__infer_conv(struct shape_ctx *c)
{
    const struct graph_value *x = shape__in(c, 0), *k = shape__in(c, 1);
    struct window w = {0};
    int64_t dims[SH_MAX_RANK], group;
    int rc = graph_int(&c->n, "group", 1, &group, c->err);

    if (!rc)
        rc = shape__want_float(c, 0);
    if (!rc)
        rc = shape__want_same_type(c, 0, 1);
    if (!rc)
        rc = check_conv(c, x, k, group);
    if (rc)
        return rc;
    w.n = x->rank - 2;
    rc = read_window(c, &k->dims[2], &w);
    if (!rc && shape__has(c, 2))
        rc = check_vector(c, 2, k->dims[0]);
    dims[0] = x->dims[0];
    dims[1] = k->dims[0];
    for (int i = 0; i < w.n && rc == SH_OK; i++)
        rc = slide(c, &w, i, x->dims[2 + i], &dims[2 + i]);
    if (!rc)
        rc = write_window(c, &w);
    if (!rc)
        rc = graph_set_int(&c->n, "group", group, c->err);
    return rc ? rc : shape__out(c, 0, x->dtype, x->rank, dims);
}

int shape__infer_pool(struct shape_ctx *c)
{
    const struct graph_value *x = shape__in(c, 0);
    struct window w = {0};
    int64_t dims[SH_MAX_RANK], include, order, ceil_added = 0;
    int rc = shape__want_float(c, 0);

    if (!rc && x->rank < 3)
        rc = shape__fail(c, SH_E_INVALID, "needs an input with spatial axes");
    if (!rc && x->rank > 4)
        rc = shape__fail(c, SH_E_UNSUPPORTED, "has more than 2 spatial axes");
    if (!rc && c->n.n_out > 1 && c->out_names[1])
        rc = shape__fail(c, SH_E_UNSUPPORTED, "the indices of a maximum are not supported");
    if (rc)
        return rc;
    w.n = x->rank - 2;
    rc = graph_int(&c->n, "count_include_pad", 0, &include, c->err);
    if (!rc)
        rc = graph_int(&c->n, "storage_order", 0, &order, c->err);
    if (!rc)
        rc = read_window(c, NULL, &w);
    dims[0] = x->dims[0];
    dims[1] = x->dims[1];
    for (int i = 0; i < w.n && rc == SH_OK; i++) {
        int64_t before = w.pads[w.n + i];

        rc = slide(c, &w, i, x->dims[2 + i], &dims[2 + i]);
        ceil_added += !w.same && w.pads[w.n + i] != before;
    }
    if (!rc && ceil_added && include && strcmp(c->n.op, "AveragePool") == 0)
        rc = shape__fail(c, SH_E_UNSUPPORTED,
                         "ceil_mode together with count_include_pad is not supported");
    if (!rc)
        rc = write_window(c, &w);
    graph__drop_attr(&c->n, "storage_order");
    if (!rc)
        rc = graph_set_int(&c->n, "count_include_pad", include, c->err);
    return rc ? rc : shape__out(c, 0, x->dtype, x->rank, dims);
}

int shape__infer_global_pool(struct shape_ctx *c)
{
    const struct graph_value *x = shape__in(c, 0);
    int64_t dims[SH_MAX_RANK];
    int rc = shape__want_float(c, 0);

    if (!rc && x->rank < 3)
        rc = shape__fail(c, SH_E_INVALID, "needs an input with spatial axes");
    if (rc)
        return rc;
    for (int i = 0; i < x->rank; i++)
        dims[i] = i < 2 ? x->dims[i] : 1;
    return shape__out(c, 0, x->dtype, x->rank, dims);
}

static int mismatch(struct shape_ctx *c, uint32_t a, uint32_t b)
{
    char as[GRAPH_SHAPE_TEXT], bs[GRAPH_SHAPE_TEXT];

    return shape__fail(c, SH_E_INVALID, "%s and %s do not fit together",
                       graph__shape_text(shape__in(c, a), as, sizeof(as)),
                       graph__shape_text(shape__in(c, b), bs, sizeof(bs)));
}

static int gemm_attrs(struct shape_ctx *c, int64_t *trans_a, int64_t *trans_b)
{
    double alpha, beta;
    int rc = graph_float(&c->n, "alpha", 1.0, &alpha, c->err);

    if (!rc)
        rc = graph_float(&c->n, "beta", 1.0, &beta, c->err);
    if (!rc)
        rc = graph_int(&c->n, "transA", 0, trans_a, c->err);
    if (!rc)
        rc = graph_int(&c->n, "transB", 0, trans_b, c->err);
    if (!rc)
        rc = graph_set_float(&c->n, "alpha", alpha, c->err);
    if (!rc)
        rc = graph_set_float(&c->n, "beta", beta, c->err);
    if (!rc)
        rc = graph_set_int(&c->n, "transA", *trans_a != 0, c->err);
    if (!rc)
        rc = graph_set_int(&c->n, "transB", *trans_b != 0, c->err);
    return rc;
}

int shape__infer_gemm(struct shape_ctx *c)
{
    const struct graph_value *a = shape__in(c, 0), *b = shape__in(c, 1);
    int64_t ta, tb, dims[SH_MAX_RANK];
    int rc = gemm_attrs(c, &ta, &tb);

    if (!rc)
        rc = shape__want_float(c, 0);
    if (!rc)
        rc = shape__want_same_type(c, 0, 1);
    if (!rc && (a->rank != 2 || b->rank != 2 || a->dims[ta ? 0 : 1] != b->dims[tb ? 1 : 0]))
        rc = mismatch(c, 0, 1);
    if (rc)
        return rc;
    dims[0] = a->dims[ta ? 1 : 0];
    dims[1] = b->dims[tb ? 0 : 1];
    if (shape__has(c, 2)) {
        struct graph_value y = {.dtype = a->dtype, .rank = 2, .dims = {dims[0], dims[1]}};
        int rank = 0;

        rc = shape__broadcast(c, &y, shape__in(c, 2), &rank, dims);
        if (!rc && (rank != 2 || dims[0] != y.dims[0] || dims[1] != y.dims[1]))
            rc = mismatch(c, 0, 2);
    }
    return rc ? rc : shape__out(c, 0, a->dtype, 2, dims);
}

/* A vector operand counts as a row (left) or a column (right) and loses that axis again. */
int shape__infer_matmul(struct shape_ctx *c)
{
    struct graph_value a = *shape__in(c, 0), b = *shape__in(c, 1);
    int64_t m, k, k2, n, dims[SH_MAX_RANK + 2];
    bool row = a.rank == 1, column = b.rank == 1;
    int rank = 0, rc = shape__want_float(c, 0);

    if (!rc)
        rc = shape__want_same_type(c, 0, 1);
    if (!rc && (a.rank < 1 || b.rank < 1))
        rc = mismatch(c, 0, 1);
    if (rc)
        return rc;
    k = a.dims[a.rank - 1];
    m = row ? 1 : a.dims[a.rank - 2];
    n = column ? 1 : b.dims[b.rank - 1];
    k2 = column ? b.dims[0] : b.dims[b.rank - 2];
    if (k != k2)
        return mismatch(c, 0, 1);
    a.rank = row ? 0 : a.rank - 2;
    b.rank = column ? 0 : b.rank - 2;
    rc = shape__broadcast(c, &a, &b, &rank, dims);
    if (rc)
        return rc;
    if (!row)
        dims[rank++] = m;
    if (!column)
        dims[rank++] = n;
    return shape__out(c, 0, a.dtype, rank, dims);
}

static int bn_attrs(struct shape_ctx *c)
{
    double eps, momentum;
    int rc = graph_float(&c->n, "epsilon", 1e-5, &eps, c->err);

    if (!rc)
        rc = graph_float(&c->n, "momentum", 0.9, &momentum, c->err);
    if (!rc)
        rc = graph_set_float(&c->n, "epsilon", eps, c->err);
    if (!rc)
        rc = graph_set_float(&c->n, "momentum", momentum, c->err);
    if (!rc)
        rc = graph_set_int(&c->n, "training_mode", c->training, c->err);
    return rc;
}

/* In training both forms of the file become the one that computes batch statistics. */
int shape__infer_batch_norm(struct shape_ctx *c)
{
    const struct graph_value *x = shape__in(c, 0);
    int64_t channels[1];
    int rc = bn_attrs(c);

    if (!rc)
        rc = shape__want_float(c, 0);
    if (!rc && x->rank < 2)
        rc = shape__fail(c, SH_E_INVALID, "needs an input with a channel axis");
    if (rc)
        return rc;
    channels[0] = x->dims[1];
    for (uint32_t i = 1; i < 5 && rc == SH_OK; i++)
        rc = check_vector(c, i, channels[0]);
    if (!rc)
        rc = shape__out(c, 0, x->dtype, x->rank, x->dims);
    if (!rc && !c->training) {
        c->n.n_out = 1;
        return SH_OK;
    }
    c->keep_node = true;
    for (uint32_t k = 1; k < 3 && rc == SH_OK; k++)
        rc = shape__out(c, k, shape__in(c, 2 + k)->dtype, 1, channels);
    c->n.n_out = 3;
    return rc;
}

int shape__infer_layer_norm(struct shape_ctx *c)
{
    const struct graph_value *x = shape__in(c, 0);
    int64_t axis;
    double eps;
    int rc = graph_int(&c->n, "axis", -1, &axis, c->err);

    if (!rc)
        rc = graph_float(&c->n, "epsilon", 1e-5, &eps, c->err);
    if (!rc)
        rc = shape__want_float(c, 0);
    if (!rc)
        rc = shape__axis(c, axis, x->rank, &axis);
    for (uint32_t k = 1; k < c->n.n_out && rc == SH_OK; k++)
        if (c->out_names[k])
            rc = shape__fail(c, SH_E_UNSUPPORTED, "the mean and deviation are not given out");
    for (uint32_t i = 1; i < 3 && rc == SH_OK; i++) {
        const struct graph_value *p = shape__has(c, i) ? shape__in(c, i) : NULL;
        int want = x->rank - (int)axis;

        if (p && (p->rank != want ||
                  memcmp(p->dims, &x->dims[axis], sizeof(p->dims[0]) * (size_t)want) != 0))
            rc = mismatch(c, 0, i);
    }
    if (!rc)
        rc = graph_set_int(&c->n, "axis", axis, c->err);
    if (!rc)
        rc = graph_set_float(&c->n, "epsilon", eps, c->err);
    graph__drop_attr(&c->n, "stash_type");
    c->n.n_out = 1;
    return rc ? rc : shape__out(c, 0, x->dtype, x->rank, x->dims);
}

int shape__infer_softmax(struct shape_ctx *c)
{
    const struct graph_value *x = shape__in(c, 0);
    int64_t axis;
    int rc = graph_int(&c->n, "axis", -1, &axis, c->err);

    if (!rc)
        rc = shape__want_float(c, 0);
    if (!rc)
        rc = shape__axis(c, axis, x->rank, &axis);
    if (!rc)
        rc = graph_set_int(&c->n, "axis", axis, c->err);
    return rc ? rc : shape__out(c, 0, x->dtype, x->rank, x->dims);
}
