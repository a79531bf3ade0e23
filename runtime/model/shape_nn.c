/* shape_nn.c - shapes of products and normalisations. */
#include "common/mem.h"
#include "runtime/model/rewrite.h"

#include <stdlib.h>

static int mismatch(struct shape_ctx *c, uint32_t a, uint32_t b)
{
    char as[GRAPH_SHAPE_TEXT], bs[GRAPH_SHAPE_TEXT];

    return shape__fail(c, SH_E_INVALID, "%s and %s do not fit together",
                       graph__shape_text(shape__in(c, a), as, sizeof(as)),
                       graph__shape_text(shape__in(c, b), bs, sizeof(bs)));
}

int shape__infer_gemm(struct shape_ctx *c)
{
    const struct graph_value *a = shape__in(c, 0), *b = shape__in(c, 1);
    int64_t dims[SH_MAX_RANK];
    bool ta, tb;

    shape__own_float(c, "alpha", 1.0);
    shape__own_float(c, "beta", 1.0);
    ta = shape__own_flag(c, "transA", false);
    tb = shape__own_flag(c, "transB", false);
    shape__want_float(c, 0);
    shape__want_same_type(c, 0, 1);
    if (a->rank != 2 || b->rank != 2 || a->dims[ta ? 0 : 1] != b->dims[tb ? 1 : 0])
        return mismatch(c, 0, 1);
    dims[0] = a->dims[ta ? 1 : 0];
    dims[1] = b->dims[tb ? 0 : 1];
    if (shape__has(c, 2)) {
        struct graph_value y = {.dtype = a->dtype, .rank = 2, .dims = {dims[0], dims[1]}};
        int rank = 0;

        shape__broadcast(c, &y, shape__in(c, 2), &rank, dims);
        if (rank != 2 || dims[0] != y.dims[0] || dims[1] != y.dims[1])
            return mismatch(c, 0, 2);
    }
    return shape__out(c, 0, a->dtype, 2, dims);
}

/* A vector operand counts as a row (left) or a column (right) and loses that axis again. */
int shape__infer_matmul(struct shape_ctx *c)
{
    struct graph_value a = *shape__in(c, 0), b = *shape__in(c, 1);
    int64_t m, k, k2, n, dims[SH_MAX_RANK + 2];
    bool row = a.rank == 1, column = b.rank == 1;
    int rank = 0;

    shape__want_float(c, 0);
    shape__want_same_type(c, 0, 1);
    if (a.rank < 1 || b.rank < 1)
        return mismatch(c, 0, 1);
    k = a.dims[a.rank - 1];
    m = row ? 1 : a.dims[a.rank - 2];
    n = column ? 1 : b.dims[b.rank - 1];
    k2 = column ? b.dims[0] : b.dims[b.rank - 2];
    if (k != k2)
        return mismatch(c, 0, 1);
    a.rank = row ? 0 : a.rank - 2;
    b.rank = column ? 0 : b.rank - 2;
    shape__broadcast(c, &a, &b, &rank, dims);
    if (!row)
        dims[rank++] = m;
    if (!column)
        dims[rank++] = n;
    return shape__out(c, 0, a.dtype, rank, dims);
}

/* In training both forms of the file become the one that computes batch statistics. */
int shape__infer_batch_norm(struct shape_ctx *c)
{
    const struct graph_value *x = shape__in(c, 0);
    int64_t channels[1];

    shape__own_float(c, "epsilon", 1e-5);
    shape__own_float(c, "momentum", 0.9);
    shape__set_int(c, "training_mode", c->training);
    shape__want_float(c, 0);
    if (x->rank < 2)
        return shape__fail(c, SH_E_INVALID, "needs an input with a channel axis");
    channels[0] = x->dims[1];
    for (uint32_t i = 1; i < 5; i++)
        shape__want_vector(c, i, channels[0]);
    shape__out(c, 0, x->dtype, x->rank, x->dims);
    c->keep_node = c->training;
    c->n.n_out = c->training ? 3 : 1;
    for (uint32_t k = 1; k < c->n.n_out; k++)
        shape__out(c, k, shape__in(c, 2 + k)->dtype, 1, channels);
    return c->err->rc;
}

int shape__infer_layer_norm(struct shape_ctx *c)
{
    const struct graph_value *x = shape__in(c, 0);
    const int64_t axis = shape__own_axis(c, -1, x->rank);

    shape__own_float(c, "epsilon", 1e-5);
    shape__want_float(c, 0);
    for (uint32_t k = 1; k < c->n.n_out; k++)
        if (c->out_names[k] && c->err->rc == SH_OK)
            return shape__rewrite_layer_norm(c);
    for (uint32_t i = 1; i < 3; i++) {
        const struct graph_value *p = shape__has(c, i) ? shape__in(c, i) : NULL;
        int want = x->rank - (int)axis;

        if (p && (p->rank != want ||
                  memcmp(p->dims, &x->dims[axis], sizeof(p->dims[0]) * (size_t)want) != 0))
            return mismatch(c, 0, i);
    }
    graph__drop_attr(&c->n, "stash_type");
    c->n.n_out = 1;
    return shape__out(c, 0, x->dtype, x->rank, x->dims);
}

int shape__infer_softmax(struct shape_ctx *c)
{
    const struct graph_value *x = shape__in(c, 0);
    const int64_t axis = shape__own_axis(c, -1, x->rank);

    shape__want_float(c, 0);
    if (!shape__int(c, "flat", 0) || axis == x->rank - 1)
        graph__drop_attr(&c->n, "flat");
    return shape__out(c, 0, x->dtype, x->rank, x->dims);
}

/* scale and bias of `want` elements, and epsilon */
static int infer_channel_norm(struct shape_ctx *c, int64_t want)
{
    const struct graph_value *x = shape__in(c, 0);

    shape__own_float(c, "epsilon", 1e-5);
    shape__want_float(c, 0);
    for (uint32_t i = 1; i < 3; i++) {
        shape__want_vector(c, i, want);
        shape__want_same_type(c, 0, i);
    }
    graph__drop_attr(&c->n, "stash_type");
    return shape__out(c, 0, x->dtype, x->rank, x->dims);
}

int shape__infer_instance_norm(struct shape_ctx *c)
{
    const struct graph_value *x = shape__in(c, 0);

    if (x->rank < 3)
        return shape__fail(c, SH_E_INVALID, "needs an input with spatial axes");
    return infer_channel_norm(c, x->dims[1]);
}

/* By channel since opset 21, by group before: the length of the scale tells. */
int shape__infer_group_norm(struct shape_ctx *c)
{
    const struct graph_value *x = shape__in(c, 0), *scale = shape__in(c, 1);
    const int64_t groups = shape__int(c, "num_groups", 0);

    if (x->rank < 3)
        return shape__fail(c, SH_E_INVALID, "needs an input with spatial axes");
    if (groups < 1 || x->dims[1] % groups != 0)
        return shape__fail(c, SH_E_INVALID, "%lld channels are not %lld equal groups",
                           (long long)x->dims[1], (long long)groups);
    return infer_channel_norm(c,
                              scale->rank == 1 && scale->dims[0] == groups ? groups : x->dims[1]);
}

int shape__infer_lp_norm(struct shape_ctx *c)
{
    const struct graph_value *x = shape__in(c, 0);
    int64_t p;

    shape__want_float(c, 0);
    shape__own_axis(c, -1, x->rank);
    p = shape__own_int(c, "p", 2);
    if (p != 1 && p != 2)
        shape__fail(c, SH_E_INVALID, "p is %lld, it must be 1 or 2", (long long)p);
    return shape__out(c, 0, x->dtype, x->rank, x->dims);
}

int shape__infer_lrn(struct shape_ctx *c)
{
    static const struct {
        const char *name;
        double def;
    } NUMBERS[] = {{"alpha", 1e-4}, {"beta", 0.75}, {"bias", 1.0}};
    const struct graph_value *x = shape__in(c, 0);
    const int64_t size = shape__int(c, "size", 0);

    shape__want_float(c, 0);
    if (x->rank < 2)
        shape__fail(c, SH_E_INVALID, "needs an input with a channel axis");
    if (size < 1 || size > (1 << 16))
        shape__fail(c, SH_E_INVALID, "size is %lld", (long long)size);
    for (size_t i = 0; i < SH_ARRAY_LEN(NUMBERS); i++)
        shape__own_float(c, NUMBERS[i].name, NUMBERS[i].def);
    return shape__out(c, 0, x->dtype, x->rank, x->dims);
}

/* With `flat` all axes from the given one on are one. */
int shape__finish_softmax(struct shape_ctx *c)
{
    const struct graph_value *x = shape__in(c, 0);
    uint32_t in, out, result = c->outv[0];
    const int64_t axis = shape__int(c, "axis", 0);
    int64_t dims[2] = {1, 1};

    if (!graph__attr(&c->n, "flat"))
        return shape__emit_self(c);
    for (int i = 0; i < x->rank; i++)
        dims[i >= axis] *= x->dims[i];
    shape__temp(c, "rows", x->dtype, 2, dims, &in);
    shape__temp(c, "soft", shape__in(c, 0)->dtype, 2, dims, &out);
    shape__emit(c, "Reshape", c->n.in, 1, in, NULL, 0);
    shape__emit(c, c->n.op, &in, 1, out, &RW_INT("axis", 1), 1);
    return shape__emit(c, "Reshape", &out, 1, result, NULL, 0);
}
