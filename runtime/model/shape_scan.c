/* shape_scan.c - shapes of operators that go along one axis and keep or choose: sums so far, the
 * largest and where they are; and the identity matrix. */
#include "common/mem.h"
#include "runtime/model/rewrite.h"

#include <stdlib.h>

int shape__infer_cumsum(struct shape_ctx *c)
{
    const struct graph_value *x = shape__in(c, 0);
    int64_t axis;
    size_t k;

    shape__ints(c, 1, &axis, 1, &k);
    if (k != 1)
        return shape__fail(c, SH_E_INVALID, "the axis must be one number");
    shape__axis(c, axis, x->rank, &axis);
    shape__set_int(c, "axis", axis);
    shape__own_flag(c, "exclusive", false);
    shape__own_flag(c, "reverse", false);
    shape__drop_inputs(c, 1);
    return shape__out(c, 0, x->dtype, x->rank, x->dims);
}

/* One line of n elements, `step` apart, from `at` on. */
static void sum_line(const struct graph_value *x, void *y, int64_t at, int64_t step, int64_t n,
                     bool exclusive)
{
    double sum = 0;
    uint64_t isum = 0;

    for (int64_t i = 0; i < n; i++, at += step) {
        const double f = shape__get_f64(x->dtype, x->data, (size_t)at);
        const uint64_t v = (uint64_t)shape__get_i64(x->dtype, x->data, (size_t)at);

        if (shape__is_float(x->dtype))
            shape__put_f64(x->dtype, y, (size_t)at, exclusive ? sum : sum + f);
        else
            shape__put_i64(x->dtype, y, (size_t)at, (int64_t)(exclusive ? isum : isum + v));
        sum += f;
        isum += v;
    }
}

int shape__eval_cumsum(struct shape_ctx *c)
{
    struct graph_value x = *shape__in(c, 0);
    const int64_t axis = shape__int(c, "axis", 0);
    const bool exclusive = shape__int(c, "exclusive", 0), reverse = shape__int(c, "reverse", 0);
    int64_t own[SH_MAX_RANK], inner, n;
    void *y;

    if (!(shape__is_float(x.dtype) || shape__is_int(x.dtype)))
        return c->err->rc;
    y = shape__alloc(c, 0);
    shape__strides(&x, own);
    inner = own[axis];
    n = x.dims[axis];
    for (int64_t line = 0; y && line < graph_elements(&x) / n; line++) {
        const int64_t at = line / inner * n * inner + line % inner;

        sum_line(&x, y, reverse ? at + (n - 1) * inner : at, reverse ? -inner : inner, n,
                 exclusive);
    }
    return c->err->rc;
}

/* ---------------------------------------------------------------- the largest */

/* y: a TopK in static form; values and indices become outputs of it. */
static int emit_topk(struct shape_ctx *c, uint32_t x, int64_t axis, bool largest, bool last,
                     const uint32_t out[2])
{
    struct graph_attr attrs[] = {RW_INT("axis", axis), RW_INT("largest", largest),
                                 RW_INT("select_last_index", last)};

    return shape__emit_as(c, "TopK", &x, 1, out, 2,
                          &(struct graph_node){.attrs = attrs, .n_attrs = SH_ARRAY_LEN(attrs)});
}

int shape__infer_arg(struct shape_ctx *c)
{
    const struct graph_value *x = shape__in(c, 0);
    const int64_t axis = shape__own_axis(c, 0, x->rank), keep = shape__int(c, "keepdims", 1);
    int64_t dims[SH_MAX_RANK];
    int rank = 0;

    if (graph_elements(x) == 0)
        return shape__fail(c, SH_E_INVALID, "the input has no elements");
    for (int i = 0; i < x->rank; i++)
        if (i != axis)
            dims[rank++] = x->dims[i];
        else if (keep)
            dims[rank++] = 1;
    return shape__out(c, 0, SH_I64, rank, dims);
}

int shape__finish_arg(struct shape_ctx *c)
{
    const enum sh_dtype t = shape__in(c, 0)->dtype, wide = shape__wide(t);
    const uint32_t x = wide == t ? rw_in(c, 0) : rw_cast(c, rw_in(c, 0), wide);
    struct graph_value v = *rw_v(c, x);
    const int64_t axis = shape__int(c, "axis", 0);
    const bool last = shape__int(c, "select_last_index", 0) != 0;
    uint32_t out[2];

    v.dims[axis] = 1;
    shape__temp(c, "value", wide, v.rank, v.dims, &out[0]);
    shape__temp(c, "at", SH_I64, v.rank, v.dims, &out[1]);
    emit_topk(c, x, axis, strcmp(c->n.op, "ArgMax") == 0, last, out);
    return shape__reshape_to(c, out[1]);
}

int shape__infer_topk(struct shape_ctx *c)
{
    struct graph_value x = *shape__in(c, 0);
    const int64_t axis = shape__own_axis(c, -1, x.rank);
    int64_t k;
    size_t n;

    shape__ints(c, 1, &k, 1, &n);
    if (n != 1 || k < 0 || k > x.dims[axis])
        return shape__fail(c, SH_E_INVALID, "k must be one number from 0 to %lld",
                           (long long)x.dims[axis]);
    shape__drop_inputs(c, 1);
    x.dims[axis] = k;
    shape__out(c, 0, x.dtype, x.rank, x.dims);
    return shape__out(c, 1, SH_I64, x.rank, x.dims);
}

/* Sorted whether that was asked for or not: any order is allowed then. */
int shape__finish_topk(struct shape_ctx *c)
{
    const enum sh_dtype t = shape__in(c, 0)->dtype, wide = shape__wide(t);
    const struct graph_value y = *shape__outv(c, 0);
    uint32_t x = rw_in(c, 0), out[2] = {c->outv[0], c->outv[1]};
    const int64_t axis = shape__int(c, "axis", -1), largest = shape__int(c, "largest", 1);

    if (out[1] == GRAPH_NONE)
        shape__temp(c, "at", SH_I64, y.rank, y.dims, &out[1]);
    if (wide != t) {
        x = rw_cast(c, x, wide);
        shape__temp(c, "value", wide, y.rank, y.dims, &out[0]);
    }
    emit_topk(c, x, axis, largest != 0, false, out);
    if (wide != t)
        c->outv[0] = rw_cast(c, out[0], t);
    return c->err->rc;
}

/* ---------------------------------------------------------------- the identity */

int shape__infer_eye_like(struct shape_ctx *c)
{
    const struct graph_value *x = shape__in(c, 0);
    const int64_t to = shape__int(c, "dtype", sh_dtype_onnx(x->dtype));
    const enum sh_dtype t = to > 0 && to < 64 ? sh_dtype_from_onnx((int)to) : SH_N_DTYPES;

    if (x->rank != 2 || !(shape__is_float(t) || (t < SH_N_DTYPES && shape__is_int(t))))
        return shape__fail(c, SH_E_UNSUPPORTED, WHY_MATRIX);
    return shape__out(c, 0, t, x->rank, x->dims);
}

int shape__eval_eye_like(struct shape_ctx *c)
{
    const struct graph_value y = *shape__outv(c, 0);
    const int64_t k = shape__int(c, "k", 0);
    void *data = shape__alloc(c, 0);

    for (int64_t i = 0; data && i < graph_elements(&y); i++)
        shape__put_f64(y.dtype, data, (size_t)i, i % y.dims[1] - i / y.dims[1] == k);
    return c->err->rc;
}
