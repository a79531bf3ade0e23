/* shape_quant.c - quantisation: shapes, types, and constants that become floats at once. */
#include "common/mem.h"
#include "runtime/model/rewrite.h"

#include <math.h>
#include <stdlib.h>

/* One scale for all, one for each element of an axis, or one for each block along it. */
struct scheme {
    int64_t axis, block; /* block 0: by axis, or all */
    int64_t outer, n, inner;
    bool is_one;
};

static int check_scale(struct shape_ctx *c, uint32_t i)
{
    const struct graph_value *v = shape__in(c, i);

    shape__want_float(c, i);
    for (int64_t k = 0; v->data && k < graph_elements(v); k++) {
        const double s = shape__get_f64(v->dtype, v->data, (size_t)k);

        if (!(s > 0 && isfinite(s)))
            return shape__fail(c, SH_E_INVALID, "scale %lld is %g, it must be above 0",
                               (long long)k, s);
    }
    return c->err->rc;
}

static bool is_16_bits(enum sh_dtype t)
{
    return t == SH_I16 || t == SH_U16;
}

/* Operands of products. */
static int check_int(struct shape_ctx *c, enum sh_dtype t)
{
    if (t != SH_I8 && t != SH_U8)
        shape__fail(c, SH_E_UNSUPPORTED, WHY_QUANTISED, sh_dtype_v2(t), "");
    return c->err->rc;
}

static int check_quantised(struct shape_ctx *c, enum sh_dtype t, bool wide)
{
    if (t == SH_I8 || t == SH_U8 || is_16_bits(t) || (wide && t == SH_I32))
        return c->err->rc;
    return shape__fail(c, SH_E_UNSUPPORTED, WHY_QUANTISED, sh_dtype_v2(t),
                       wide ? ", INT16, INT32, UINT16" : ", INT16, UINT16");
}

/* Scale at input s, its zero point behind it, of x. */
static int read_scheme(struct shape_ctx *c, uint32_t x_at, uint32_t s_at, int64_t def_axis,
                       struct scheme *q)
{
    const struct graph_value *x = shape__in(c, x_at), *s = shape__in(c, s_at);

    check_scale(c, s_at);
    *q = (struct scheme){.axis = shape__int(c, "axis", def_axis),
                         .block = shape__int(c, "block_size", 0),
                         .outer = 1,
                         .n = 1,
                         .inner = 1,
                         .is_one = graph_elements(s) == 1};
    if (shape__has(c, s_at + 1) && graph_elements(shape__in(c, s_at + 1)) != graph_elements(s))
        shape__fail(c, SH_E_INVALID, "scale and zero point differ in shape");
    if (q->is_one) {
        q->axis = 0;
        return c->err->rc;
    }
    shape__axis(c, q->axis, x->rank, &q->axis);
    for (int i = 0; i < x->rank; i++)
        *(i < q->axis ? &q->outer : i == q->axis ? &q->n : &q->inner) *= x->dims[i];
    if (s->rank == 1 && s->dims[0] == q->n && (q->block == 0 || x->rank > 1)) {
        q->block = 0;
        return c->err->rc;
    }
    if (q->block < 1 || s->rank != x->rank || x->rank >= SH_MAX_RANK || q->n % q->block != 0 ||
        graph_elements(s) != q->outer * (q->n / q->block) * q->inner)
        shape__fail(c, SH_E_UNSUPPORTED, WHY_SCALES, (long long)q->axis);
    return c->err->rc;
}

static int write_scheme(struct shape_ctx *c, const struct scheme *q)
{
    shape__set_int(c, "axis", q->axis);
    graph__drop_attr(&c->n, "saturate");
    graph__drop_attr(&c->n, "output_dtype");
    graph__drop_attr(&c->n, "precision");
    return shape__set_int(c, "block_size", q->is_one ? 0 : q->block);
}

/* ---------------------------------------------------------------- 16 bits */

/* A scale or zero point, as FP32 that broadcasts to x seen as [.., blocks, block, ..]. */
static uint32_t spread_scheme(struct shape_ctx *c, const struct graph_value *x,
                              const struct scheme *q, uint32_t v)
{
    int64_t dims[SH_MAX_RANK + 1];
    int rank = 0;

    if (q->is_one)
        return rw_cast(c, rw_reshape(c, v, 0, NULL), SH_F32);
    for (int i = 0; i < x->rank; i++) {
        if (q->block == 0) {
            dims[rank++] = i == q->axis ? x->dims[i] : 1;
            continue;
        }
        dims[rank++] = i == q->axis ? x->dims[i] / q->block : x->dims[i];
        if (i == q->axis)
            dims[rank++] = 1;
    }
    return rw_cast(c, rw_reshape(c, v, rank, dims), SH_F32);
}

/* x itself, or with the axis of blocks as two. */
static uint32_t in_blocks(struct shape_ctx *c, const struct graph_value *x, const struct scheme *q,
                          uint32_t v)
{
    int64_t dims[SH_MAX_RANK + 1];
    int rank = 0;

    v = rw_cast(c, v, SH_F32);
    if (q->is_one || q->block == 0)
        return v;
    for (int i = 0; i < x->rank; i++) {
        dims[rank++] = i == q->axis ? x->dims[i] / q->block : x->dims[i];
        if (i == q->axis)
            dims[rank++] = q->block;
    }
    return rw_reshape(c, v, rank, dims);
}

/* Devices have no quantised numbers of 16 bits: other operators do it. */
static int quantize_16(struct shape_ctx *c, const struct scheme *q, enum sh_dtype t)
{
    const struct graph_value x = *shape__in(c, 0);
    const double low = t == SH_I16 ? INT16_MIN : 0, high = t == SH_I16 ? INT16_MAX : UINT16_MAX;
    uint32_t y =
        rw2(c, "Div", in_blocks(c, &x, q, rw_in(c, 0)), spread_scheme(c, &x, q, rw_in(c, 1)));

    y = rw1(c, "Round", y);
    if (shape__has(c, 2))
        y = rw2(c, "Add", y, spread_scheme(c, &x, q, rw_in(c, 2)));
    y = rw3(c, "Clip", y, rw_number(c, SH_F32, low), rw_number(c, SH_F32, high));
    y = rw_cast(c, rw_reshape(c, y, x.rank, x.dims), t);
    return rw_is(c, 0, y);
}

static int dequantize_16(struct shape_ctx *c, const struct scheme *q)
{
    const struct graph_value x = *shape__in(c, 0);
    const enum sh_dtype t = shape__in(c, 1)->dtype;
    uint32_t y = in_blocks(c, &x, q, rw_in(c, 0));

    if (shape__has(c, 2))
        y = rw2(c, "Sub", y, spread_scheme(c, &x, q, rw_in(c, 2)));
    y = rw2(c, "Mul", y, spread_scheme(c, &x, q, rw_in(c, 1)));
    return rw_is(c, 0, rw_cast(c, rw_reshape(c, y, x.rank, x.dims), t));
}

/* ---------------------------------------------------------------- shapes */

int shape__infer_quantize(struct shape_ctx *c)
{
    const struct graph_value *x = shape__in(c, 0);
    const int64_t out = shape__int(c, "output_dtype", 0);
    enum sh_dtype t = SH_U8;
    struct scheme q;

    if (out != 0)
        t = sh_dtype_from_onnx((int)SH_MIN(SH_MAX(out, 0), 1000));
    if (shape__has(c, 2))
        t = shape__in(c, 2)->dtype;
    if (t == SH_N_DTYPES)
        return shape__fail(c, SH_E_UNSUPPORTED, WHY_QUANT_TYPE, (long long)out);
    check_quantised(c, t, false);
    shape__want_float(c, 0);
    read_scheme(c, 0, 1, 1, &q);
    if (c->err->rc == SH_OK && is_16_bits(t))
        return quantize_16(c, &q, t);
    write_scheme(c, &q);
    return shape__out(c, 0, t, x->rank, x->dims);
}

int shape__infer_dequantize(struct shape_ctx *c)
{
    const struct graph_value *x = shape__in(c, 0);
    struct scheme q;

    check_quantised(c, x->dtype, true);
    if (shape__has(c, 2))
        shape__want_same_type(c, 0, 2);
    read_scheme(c, 0, 1, 1, &q);
    if (c->err->rc == SH_OK && is_16_bits(x->dtype))
        return dequantize_16(c, &q);
    write_scheme(c, &q);
    /* A weight of a product may stay as it is: lowering makes floats of it where it may not. */
    c->keep_node = !c->training && x->data && (x->rank == 2 || x->rank == 4) && q.block == 0 &&
                   (x->dtype == SH_I8 || x->dtype == SH_U8);
    return shape__out(c, 0, shape__in(c, 1)->dtype, x->rank, x->dims);
}

/* Weights become floats before anything runs: what follows them can then be folded into them. */
int shape__eval_dequantize(struct shape_ctx *c)
{
    const struct graph_value x = *shape__in(c, 0), s = *shape__in(c, 1);
    const struct graph_value *z = shape__has(c, 2) ? shape__in(c, 2) : NULL;
    struct scheme q;
    void *y;

    read_scheme(c, 0, 1, 1, &q);
    y = shape__alloc(c, 0);
    for (int64_t i = 0; y && i < graph_elements(&x); i++) {
        const int64_t k = q.is_one ? 0 : i / q.inner % q.n;
        const int64_t at =
            q.block == 0 || q.is_one
                ? k
                : (i / q.inner / q.n * (q.n / q.block) + k / q.block) * q.inner + i % q.inner;
        const int64_t zero = z ? shape__get_i64(z->dtype, z->data, (size_t)at) : 0;
        const double v = (double)(shape__get_i64(x.dtype, x.data, (size_t)i) - zero);

        shape__put_f64(s.dtype, y, (size_t)i, v * shape__get_f64(s.dtype, s.data, (size_t)at));
    }
    return c->err->rc;
}

/* y, its scale and its zero point, for all of x together. */
int shape__infer_dynamic_quantize(struct shape_ctx *c)
{
    const struct graph_value *x = shape__in(c, 0);

    if (x->dtype != SH_F32)
        return shape__fail(c, SH_E_INVALID, "needs an input of FP32");
    shape__out(c, 0, SH_U8, x->rank, x->dims);
    for (uint32_t k = 1; k < SH_MIN(c->n.n_out, 3u); k++)
        shape__out(c, k, k == 1 ? SH_F32 : SH_U8, 0, NULL);
    return c->err->rc;
}

/* The shape of a product of two matrices, with leading axes that broadcast. */
static int product_shape(struct shape_ctx *c, uint32_t a_at, uint32_t b_at, int *rank,
                         int64_t *dims)
{
    struct graph_value a = *shape__in(c, a_at), b = *shape__in(c, b_at);

    check_int(c, a.dtype);
    check_int(c, b.dtype);
    if (a.rank < 2 || b.rank < 2)
        return shape__fail(c, SH_E_UNSUPPORTED, WHY_VECTORS);
    if (a.dims[a.rank - 1] != b.dims[b.rank - 2])
        return shape__fail(c, SH_E_INVALID, "the operands do not fit together");
    a.rank -= 2;
    b.rank -= 2;
    shape__broadcast(c, &a, &b, rank, dims);
    dims[(*rank)++] = a.dims[a.rank];
    dims[(*rank)++] = b.dims[b.rank + 1];
    return c->err->rc;
}

/* A scale or zero point of `want` numbers, or one. */
static int check_count(struct shape_ctx *c, uint32_t i, int64_t want)
{
    const int64_t n = shape__has(c, i) ? graph_elements(shape__in(c, i)) : 1;

    if (n != 1 && n != want)
        shape__fail(c, SH_E_UNSUPPORTED, WHY_SCALE_NUMBERS, i, (long long)n, (long long)want);
    return c->err->rc;
}

static int zero_of(struct shape_ctx *c, uint32_t i, uint32_t of, int64_t want)
{
    if (shape__has(c, i))
        shape__want_same_type(c, i, of);
    return check_count(c, i, want);
}

int shape__infer_matmul_integer(struct shape_ctx *c)
{
    int64_t dims[SH_MAX_RANK + 2];
    int rank = 0;

    if (product_shape(c, 0, 1, &rank, dims))
        return c->err->rc;
    zero_of(c, 2, 0, dims[rank - 2]);
    zero_of(c, 3, 1, dims[rank - 1]);
    return shape__out(c, 0, SH_I32, rank, dims);
}

int shape__infer_qlinear_matmul(struct shape_ctx *c)
{
    int64_t dims[SH_MAX_RANK + 2];
    int rank = 0;

    if (product_shape(c, 0, 3, &rank, dims))
        return c->err->rc;
    for (uint32_t i = 1; i < 8; i += i == 1 ? 3 : 2)
        check_scale(c, i);
    for (uint32_t i = 1; i < 3; i++)
        check_count(c, i, dims[rank - 2]);
    for (uint32_t i = 4; i < 6; i++)
        check_count(c, i, dims[rank - 1]);
    for (uint32_t i = 6; i < 8; i++)
        check_count(c, i, 1);
    zero_of(c, 2, 0, dims[rank - 2]);
    zero_of(c, 5, 3, dims[rank - 1]);
    check_int(c, shape__in(c, 7)->dtype);
    return shape__out(c, 0, shape__in(c, 7)->dtype, rank, dims);
}

int shape__infer_conv_integer(struct shape_ctx *c)
{
    const int64_t m = shape__in(c, 1)->rank > 0 ? shape__in(c, 1)->dims[0] : 1;

    check_int(c, shape__in(c, 0)->dtype);
    check_int(c, shape__in(c, 1)->dtype);
    zero_of(c, 2, 0, 1);
    zero_of(c, 3, 1, m);
    return shape__conv_of(c, 0, 1, GRAPH_NONE, SH_I32);
}

int shape__infer_qlinear_conv(struct shape_ctx *c)
{
    const int64_t m = shape__in(c, 3)->rank > 0 ? shape__in(c, 3)->dims[0] : 1;

    check_int(c, shape__in(c, 0)->dtype);
    check_int(c, shape__in(c, 3)->dtype);
    for (uint32_t i = 1; i < 7; i += i == 1 ? 3 : 2)
        check_scale(c, i);
    for (uint32_t i = 1; i < 8; i++)
        if (i != 3)
            check_count(c, i, i == 4 || i == 5 ? m : 1);
    zero_of(c, 2, 0, 1);
    zero_of(c, 5, 3, m);
    check_int(c, shape__in(c, 7)->dtype);
    if (shape__has(c, 8) && shape__in(c, 8)->dtype != SH_I32)
        shape__fail(c, SH_E_INVALID, "the bias must be INT32");
    return shape__conv_of(c, 0, 3, 8, shape__in(c, 7)->dtype);
}
