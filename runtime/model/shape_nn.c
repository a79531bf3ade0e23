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
        rc = shape__want_vector(c, i, channels[0]);
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
            return shape__rewrite_layer_norm(c);
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
    int64_t axis, flat;
    int rc = graph_int(&c->n, "axis", -1, &axis, c->err);

    if (!rc)
        rc = graph_int(&c->n, "flat", 0, &flat, c->err);
    if (!rc)
        rc = shape__want_float(c, 0);
    if (!rc)
        rc = shape__axis(c, axis, x->rank, &axis);
    if (!rc)
        rc = graph_set_int(&c->n, "axis", axis, c->err);
    if (!rc && (!flat || axis == x->rank - 1))
        graph__drop_attr(&c->n, "flat");
    return rc ? rc : shape__out(c, 0, x->dtype, x->rank, x->dims);
}

/* scale and bias of `want` elements, and epsilon */
static int infer_channel_norm(struct shape_ctx *c, int64_t want)
{
    const struct graph_value *x = shape__in(c, 0);
    double eps;
    int rc = graph_float(&c->n, "epsilon", 1e-5, &eps, c->err);

    if (!rc)
        rc = shape__want_float(c, 0);
    for (uint32_t i = 1; i < 3 && rc == SH_OK; i++) {
        rc = shape__want_vector(c, i, want);
        if (!rc)
            rc = shape__want_same_type(c, 0, i);
    }
    if (!rc)
        rc = graph_set_float(&c->n, "epsilon", eps, c->err);
    graph__drop_attr(&c->n, "stash_type");
    return rc ? rc : shape__out(c, 0, x->dtype, x->rank, x->dims);
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
    int64_t groups;
    int rc = graph_int(&c->n, "num_groups", 0, &groups, c->err);

    if (!rc && x->rank < 3)
        rc = shape__fail(c, SH_E_INVALID, "needs an input with spatial axes");
    if (!rc && (groups < 1 || x->dims[1] % groups != 0))
        rc = shape__fail(c, SH_E_INVALID, "%lld channels are not %lld equal groups",
                         (long long)x->dims[1], (long long)groups);
    if (rc)
        return rc;
    return infer_channel_norm(c,
                              scale->rank == 1 && scale->dims[0] == groups ? groups : x->dims[1]);
}

int shape__infer_lp_norm(struct shape_ctx *c)
{
    const struct graph_value *x = shape__in(c, 0);
    int64_t axis, p;
    int rc = graph_int(&c->n, "axis", -1, &axis, c->err);

    if (!rc)
        rc = graph_int(&c->n, "p", 2, &p, c->err);
    if (!rc)
        rc = shape__want_float(c, 0);
    if (!rc)
        rc = shape__axis(c, axis, x->rank, &axis);
    if (!rc && p != 1 && p != 2)
        rc = shape__fail(c, SH_E_INVALID, "p is %lld, it must be 1 or 2", (long long)p);
    if (!rc)
        rc = graph_set_int(&c->n, "axis", axis, c->err);
    if (!rc)
        rc = graph_set_int(&c->n, "p", p, c->err);
    return rc ? rc : shape__out(c, 0, x->dtype, x->rank, x->dims);
}

int shape__infer_lrn(struct shape_ctx *c)
{
    static const struct {
        const char *name;
        double def;
    } NUMBERS[] = {{"alpha", 1e-4}, {"beta", 0.75}, {"bias", 1.0}};
    const struct graph_value *x = shape__in(c, 0);
    int64_t size;
    int rc = graph_int(&c->n, "size", 0, &size, c->err);

    if (!rc)
        rc = shape__want_float(c, 0);
    if (!rc && x->rank < 2)
        rc = shape__fail(c, SH_E_INVALID, "needs an input with a channel axis");
    if (!rc && (size < 1 || size > (1 << 16)))
        rc = shape__fail(c, SH_E_INVALID, "size is %lld", (long long)size);
    for (size_t i = 0; i < SH_ARRAY_LEN(NUMBERS) && rc == SH_OK; i++) {
        double v;

        rc = graph_float(&c->n, NUMBERS[i].name, NUMBERS[i].def, &v, c->err);
        if (!rc)
            rc = graph_set_float(&c->n, NUMBERS[i].name, v, c->err);
    }
    return rc ? rc : shape__out(c, 0, x->dtype, x->rank, x->dims);
}

/* With `flat` all axes from the given one on are one. */
int shape__finish_softmax(struct shape_ctx *c)
{
    const struct graph_value *x = shape__in(c, 0);
    struct graph_node *soft;
    uint32_t in, out, result = c->outv[0];
    int64_t axis = 0, dims[2] = {1, 1};
    int rc = graph_int(&c->n, "axis", 0, &axis, c->err);

    if (rc || !graph__attr(&c->n, "flat"))
        return rc ? rc : shape__emit_self(c);
    for (int i = 0; i < x->rank; i++)
        dims[i >= axis] *= x->dims[i];
    rc = shape__temp(c, "rows", x->dtype, 2, dims, &in);
    if (!rc)
        rc = shape__temp(c, "soft", shape__in(c, 0)->dtype, 2, dims, &out);
    if (!rc)
        rc = shape__emit(c, "Reshape", c->n.in, 1, in, NULL);
    if (!rc)
        rc = shape__emit(c, c->n.op, &in, 1, out, &soft);
    if (!rc)
        rc = graph_set_int(soft, "axis", 1, c->err);
    return rc ? rc : shape__emit(c, "Reshape", &out, 1, result, NULL);
}
