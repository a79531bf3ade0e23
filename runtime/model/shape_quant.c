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

    int rc = shape__want_float(c, i);

    if (rc)
        return rc;
    for (int64_t k = 0; v->data && k < graph_elements(v); k++) {
        const double s = shape__get_f64(v->dtype, v->data, (size_t)k);

        if (!(s > 0 && isfinite(s)))
            return shape__fail(c, SH_E_INVALID, "scale %lld is %g, it must be above 0",
                               (long long)k, s);
    }
    return SH_OK;
}

static bool is_16_bits(enum sh_dtype t)
{
    return t == SH_I16 || t == SH_U16;
}

/* Operands of products. */
static int check_int(struct shape_ctx *c, enum sh_dtype t)
{
    if (t == SH_I8 || t == SH_U8)
        return SH_OK;
    return shape__fail(c, SH_E_UNSUPPORTED, WHY_QUANTISED, sh_dtype_v2(t), "");
}

static int check_quantised(struct shape_ctx *c, enum sh_dtype t, bool wide)
{
    if (t == SH_I8 || t == SH_U8 || is_16_bits(t) || (wide && t == SH_I32))
        return SH_OK;
    return shape__fail(c, SH_E_UNSUPPORTED, WHY_QUANTISED, sh_dtype_v2(t),
                       wide ? ", INT16, INT32, UINT16" : ", INT16, UINT16");
}

/* Scale at input s, its zero point behind it, of x. */
static int read_scheme(struct shape_ctx *c, uint32_t x_at, uint32_t s_at, int64_t def_axis,
                       struct scheme *q)
{
    const struct graph_value *x = shape__in(c, x_at), *s = shape__in(c, s_at);
    int64_t axis;
    int rc = check_scale(c, s_at);

    *q = (struct scheme){.outer = 1, .n = 1, .inner = 1, .is_one = graph_elements(s) == 1};
    if (!rc)
        rc = graph_int(&c->n, "axis", def_axis, &axis, c->err);
    if (!rc)
        rc = graph_int(&c->n, "block_size", 0, &q->block, c->err);
    if (!rc && shape__has(c, s_at + 1) &&
        graph_elements(shape__in(c, s_at + 1)) != graph_elements(s))
        rc = shape__fail(c, SH_E_INVALID, "scale and zero point differ in shape");
    if (rc || q->is_one)
        return rc;
    rc = shape__axis(c, axis, x->rank, &q->axis);
    if (rc)
        return rc;
    for (int i = 0; i < x->rank; i++)
        *(i < q->axis ? &q->outer : i == q->axis ? &q->n : &q->inner) *= x->dims[i];
    if (s->rank == 1 && s->dims[0] == q->n && (q->block == 0 || x->rank > 1)) {
        q->block = 0;
        return SH_OK;
    }
    if (q->block < 1 || s->rank != x->rank || x->rank >= SH_MAX_RANK || q->n % q->block != 0 ||
        graph_elements(s) != q->outer * (q->n / q->block) * q->inner)
        return shape__fail(c, SH_E_UNSUPPORTED, WHY_SCALES, (long long)q->axis);
    return SH_OK;
}

static int write_scheme(struct shape_ctx *c, const struct scheme *q)
{
    int rc = graph_set_int(&c->n, "axis", q->axis, c->err);

    graph__drop_attr(&c->n, "saturate");
    graph__drop_attr(&c->n, "output_dtype");
    graph__drop_attr(&c->n, "precision");
    return rc ? rc : graph_set_int(&c->n, "block_size", q->is_one ? 0 : q->block, c->err);
}

/* ---------------------------------------------------------------- 16 bits */

/* A scale or zero point, as FP32 that broadcasts to x seen as [.., blocks, block, ..]. */
static uint32_t spread(struct rewrite *w, const struct graph_value *x, const struct scheme *q,
                       uint32_t v)
{
    int64_t dims[SH_MAX_RANK + 1];
    int rank = 0;

    if (q->is_one)
        return rw_cast(w, rw_reshape(w, v, 0, NULL), SH_F32);
    for (int i = 0; i < x->rank; i++) {
        if (q->block == 0) {
            dims[rank++] = i == q->axis ? x->dims[i] : 1;
            continue;
        }
        dims[rank++] = i == q->axis ? x->dims[i] / q->block : x->dims[i];
        if (i == q->axis)
            dims[rank++] = 1;
    }
    return rw_cast(w, rw_reshape(w, v, rank, dims), SH_F32);
}

/* x itself, or with the axis of blocks as two. */
static uint32_t in_blocks(struct rewrite *w, const struct graph_value *x, const struct scheme *q,
                          uint32_t v)
{
    int64_t dims[SH_MAX_RANK + 1];
    int rank = 0;

    v = rw_cast(w, v, SH_F32);
    if (q->is_one || q->block == 0)
        return v;
    for (int i = 0; i < x->rank; i++) {
        dims[rank++] = i == q->axis ? x->dims[i] / q->block : x->dims[i];
        if (i == q->axis)
            dims[rank++] = q->block;
    }
    return rw_reshape(w, v, rank, dims);
}

/* Devices have no quantised numbers of 16 bits: other operators do it. */
static int quantize_16(struct shape_ctx *c, const struct scheme *q, enum sh_dtype t)
{
    struct rewrite w = {.c = c};
    const struct graph_value x = *shape__in(c, 0);
    const double low = t == SH_I16 ? INT16_MIN : 0, high = t == SH_I16 ? INT16_MAX : UINT16_MAX;
    uint32_t y =
        rw2(&w, "Div", in_blocks(&w, &x, q, rw_in(&w, 0)), spread(&w, &x, q, rw_in(&w, 1)));

    y = rw1(&w, "Round", y);
    if (shape__has(c, 2))
        y = rw2(&w, "Add", y, spread(&w, &x, q, rw_in(&w, 2)));
    y = rw3(&w, "Clip", y, rw_number(&w, SH_F32, low), rw_number(&w, SH_F32, high));
    y = rw_cast(&w, rw_reshape(&w, y, x.rank, x.dims), t);
    return rw_is(&w, 0, y);
}

static int dequantize_16(struct shape_ctx *c, const struct scheme *q)
{
    struct rewrite w = {.c = c};
    const struct graph_value x = *shape__in(c, 0);
    const enum sh_dtype t = shape__in(c, 1)->dtype;
    uint32_t y = in_blocks(&w, &x, q, rw_in(&w, 0));

    if (shape__has(c, 2))
        y = rw2(&w, "Sub", y, spread(&w, &x, q, rw_in(&w, 2)));
    y = rw2(&w, "Mul", y, spread(&w, &x, q, rw_in(&w, 1)));
    return rw_is(&w, 0, rw_cast(&w, rw_reshape(&w, y, x.rank, x.dims), t));
}

/* ---------------------------------------------------------------- shapes */

int shape__infer_quantize(struct shape_ctx *c)
{
    const struct graph_value *x = shape__in(c, 0);
    enum sh_dtype t = SH_U8;
    struct scheme q;
    int64_t out;
    int rc = graph_int(&c->n, "output_dtype", 0, &out, c->err);

    if (!rc && out != 0)
        t = sh_dtype_from_onnx((int)SH_MIN(SH_MAX(out, 0), 1000));
    if (!rc && shape__has(c, 2))
        t = shape__in(c, 2)->dtype;
    if (!rc && t == SH_N_DTYPES)
        rc = shape__fail(c, SH_E_UNSUPPORTED, WHY_QUANT_TYPE, (long long)out);
    if (!rc)
        rc = check_quantised(c, t, false);
    if (!rc)
        rc = shape__want_float(c, 0);
    if (!rc)
        rc = read_scheme(c, 0, 1, 1, &q);
    if (!rc && is_16_bits(t))
        return quantize_16(c, &q, t);
    if (!rc)
        rc = write_scheme(c, &q);
    return rc ? rc : shape__out(c, 0, t, x->rank, x->dims);
}

int shape__infer_dequantize(struct shape_ctx *c)
{
    const struct graph_value *x = shape__in(c, 0);
    struct scheme q;
    int rc = check_quantised(c, x->dtype, true);

    if (!rc && shape__has(c, 2))
        rc = shape__want_same_type(c, 0, 2);
    if (!rc)
        rc = read_scheme(c, 0, 1, 1, &q);
    if (!rc && is_16_bits(x->dtype))
        return dequantize_16(c, &q);
    if (!rc)
        rc = write_scheme(c, &q);
    if (rc)
        return rc;
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
    int rc = read_scheme(c, 0, 1, 1, &q);

    if (!rc)
        rc = shape__alloc(c, 0, &y);
    for (int64_t i = 0; rc == SH_OK && i < graph_elements(&x); i++) {
        const int64_t k = q.is_one ? 0 : i / q.inner % q.n;
        const int64_t at =
            q.block == 0 || q.is_one
                ? k
                : (i / q.inner / q.n * (q.n / q.block) + k / q.block) * q.inner + i % q.inner;
        const int64_t zero = z ? shape__get_i64(z->dtype, z->data, (size_t)at) : 0;
        const double v = (double)(shape__get_i64(x.dtype, x.data, (size_t)i) - zero);

        shape__put_f64(s.dtype, y, (size_t)i, v * shape__get_f64(s.dtype, s.data, (size_t)at));
    }
    return rc;
}

/* y, its scale and its zero point, for all of x together. */
int shape__infer_dynamic_quantize(struct shape_ctx *c)
{
    const struct graph_value *x = shape__in(c, 0);
    int rc = x->dtype == SH_F32 ? SH_OK : shape__fail(c, SH_E_INVALID, "needs an input of FP32");

    if (!rc)
        rc = shape__out(c, 0, SH_U8, x->rank, x->dims);
    if (!rc && c->n.n_out > 1)
        rc = shape__out(c, 1, SH_F32, 0, NULL);
    return rc || c->n.n_out < 3 ? rc : shape__out(c, 2, SH_U8, 0, NULL);
}

/* The shape of a product of two matrices, with leading axes that broadcast. */
static int product_shape(struct shape_ctx *c, uint32_t a_at, uint32_t b_at, int *rank,
                         int64_t *dims)
{
    struct graph_value a = *shape__in(c, a_at), b = *shape__in(c, b_at);
    int rc = check_int(c, a.dtype);

    if (!rc)
        rc = check_int(c, b.dtype);
    if (rc)
        return rc;
    if (a.rank < 2 || b.rank < 2)
        return shape__fail(c, SH_E_UNSUPPORTED, WHY_VECTORS);
    if (a.dims[a.rank - 1] != b.dims[b.rank - 2])
        return shape__fail(c, SH_E_INVALID, "the operands do not fit together");
    a.rank -= 2;
    b.rank -= 2;
    rc = shape__broadcast(c, &a, &b, rank, dims);
    dims[(*rank)++] = a.dims[a.rank];
    dims[(*rank)++] = b.dims[b.rank + 1];
    return rc;
}

/* A scale or zero point of `want` numbers, or one. */
static int check_count(struct shape_ctx *c, uint32_t i, int64_t want)
{
    const int64_t n = shape__has(c, i) ? graph_elements(shape__in(c, i)) : 1;

    if (n == 1 || n == want)
        return SH_OK;
    return shape__fail(c, SH_E_UNSUPPORTED, WHY_SCALE_NUMBERS, i, (long long)n, (long long)want);
}

static int zero_of(struct shape_ctx *c, uint32_t i, uint32_t of, int64_t want)
{
    int rc = shape__has(c, i) ? shape__want_same_type(c, i, of) : SH_OK;

    return rc ? rc : check_count(c, i, want);
}

int shape__infer_matmul_integer(struct shape_ctx *c)
{
    int64_t dims[SH_MAX_RANK + 2];
    int rank = 0, rc = product_shape(c, 0, 1, &rank, dims);

    if (!rc)
        rc = zero_of(c, 2, 0, dims[rank - 2]);
    if (!rc)
        rc = zero_of(c, 3, 1, dims[rank - 1]);
    return rc ? rc : shape__out(c, 0, SH_I32, rank, dims);
}

int shape__infer_qlinear_matmul(struct shape_ctx *c)
{
    int64_t dims[SH_MAX_RANK + 2];
    int rank = 0, rc = product_shape(c, 0, 3, &rank, dims);

    for (uint32_t i = 1; i < 8 && rc == SH_OK; i += i == 1 ? 3 : 2)
        rc = check_scale(c, i);
    for (uint32_t i = 1; i < 3 && rc == SH_OK; i++)
        rc = check_count(c, i, dims[rank - 2]);
    for (uint32_t i = 4; i < 6 && rc == SH_OK; i++)
        rc = check_count(c, i, dims[rank - 1]);
    for (uint32_t i = 6; i < 8 && rc == SH_OK; i++)
        rc = check_count(c, i, 1);
    if (!rc)
        rc = zero_of(c, 2, 0, dims[rank - 2]);
    if (!rc)
        rc = zero_of(c, 5, 3, dims[rank - 1]);
    if (!rc)
        rc = check_int(c, shape__in(c, 7)->dtype);
    return rc ? rc : shape__out(c, 0, shape__in(c, 7)->dtype, rank, dims);
}

int shape__infer_conv_integer(struct shape_ctx *c)
{
    const int64_t m = shape__in(c, 1)->rank > 0 ? shape__in(c, 1)->dims[0] : 1;
    int rc = check_int(c, shape__in(c, 0)->dtype);

    if (!rc)
        rc = check_int(c, shape__in(c, 1)->dtype);
    if (!rc)
        rc = zero_of(c, 2, 0, 1);
    if (!rc)
        rc = zero_of(c, 3, 1, m);
    return rc ? rc : shape__conv_of(c, 0, 1, GRAPH_NONE, SH_I32);
}

int shape__infer_qlinear_conv(struct shape_ctx *c)
{
    const int64_t m = shape__in(c, 3)->rank > 0 ? shape__in(c, 3)->dims[0] : 1;
    int rc = check_int(c, shape__in(c, 0)->dtype);

    if (!rc)
        rc = check_int(c, shape__in(c, 3)->dtype);
    for (uint32_t i = 1; i < 7 && rc == SH_OK; i += i == 1 ? 3 : 2)
        rc = check_scale(c, i);
    for (uint32_t i = 1; i < 8 && rc == SH_OK; i++)
        if (i != 3)
            rc = check_count(c, i, i == 4 || i == 5 ? m : 1);
    if (!rc)
        rc = zero_of(c, 2, 0, 1);
    if (!rc)
        rc = zero_of(c, 5, 3, m);
    if (!rc)
        rc = check_int(c, shape__in(c, 7)->dtype);
    if (!rc && shape__has(c, 8) && shape__in(c, 8)->dtype != SH_I32)
        rc = shape__fail(c, SH_E_INVALID, "the bias must be INT32");
    return rc ? rc : shape__conv_of(c, 0, 3, 8, shape__in(c, 7)->dtype);
}
