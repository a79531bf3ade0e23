/* shape_eval_move.c - values of operators that move elements, on constants of any type. */
#include "common/mem.h"
#include "runtime/model/shape_int.h"

#include <stdlib.h>

/* y[i0, i1, ...] = x[start + i0 * stride0 + i1 * stride1 ...], in elements. */
static int strided(struct shape_ctx *c, uint32_t k, int64_t start, const int64_t *stride)
{
    const struct graph_value *x = shape__in(c, 0), *y = shape__outv(c, k);
    size_t size = sh_dtype_bytes(x->dtype);
    int64_t n = graph_elements(y);
    struct shape_walk w = {.rank = y->rank, .dims = y->dims, .stride = {stride}};
    char *data = shape__alloc(c, k);

    for (int64_t i = 0; data && i < n; i++, shape__step(&w))
        memcpy(data + (size_t)i * size, (const char *)x->data + (size_t)(start + w.off[0]) * size,
               size);
    return c->err->rc;
}

/* Same elements, other shape. Data that the source graph owns is shared, not copied. */
int shape__eval_copy(struct shape_ctx *c)
{
    const struct graph_value *x = shape__in(c, 0);
    struct graph_value *y = shape__outv(c, 0);

    if (x->data_borrowed) {
        y->data = x->data;
        y->bytes = x->bytes;
        y->data_borrowed = true;
    } else if (shape__alloc(c, 0) && x->bytes) {
        memcpy(y->data, x->data, x->bytes);
    }
    return c->err->rc;
}

/* Transpose, Expand, Slice: the same array with other strides. */
int shape__eval_view(struct shape_ctx *c)
{
    const struct graph_value *x = shape__in(c, 0), *y = shape__outv(c, 0);
    int64_t own[SH_MAX_RANK], stride[SH_MAX_RANK], a[SH_MAX_RANK], b[SH_MAX_RANK], start = 0;
    size_t k;

    shape__strides(x, own);
    if (strcmp(c->n.op, "Expand") == 0) {
        shape__broadcast_strides(x, y->rank, stride);
    } else if (strcmp(c->n.op, "Transpose") == 0) {
        k = shape__list(c, "perm", a, SH_MAX_RANK);
        for (size_t i = 0; i < k; i++)
            stride[i] = own[a[i]];
    } else {
        shape__list(c, "starts", a, SH_MAX_RANK);
        k = shape__list(c, "steps", b, SH_MAX_RANK);
        for (size_t i = 0; i < k; i++) {
            start += a[i] * own[i];
            if (__builtin_mul_overflow(b[i], own[i], &stride[i]))
                stride[i] = 0; /* such a step leaves one element on the axis */
        }
    }
    return strided(c, 0, start, stride);
}

int shape__eval_split(struct shape_ctx *c)
{
    const int64_t axis = shape__int(c, "axis", 0);
    int64_t own[SH_MAX_RANK], start = 0;

    shape__strides(shape__in(c, 0), own);
    for (uint32_t i = 0; i < c->n.n_out; i++) {
        strided(c, i, start, own);
        start += shape__outv(c, i)->dims[axis] * own[axis];
    }
    return c->err->rc;
}

int shape__eval_concat(struct shape_ctx *c)
{
    struct graph_value y = *shape__outv(c, 0);
    size_t outer = 1, row = 0, at = 0;
    const int64_t axis = shape__int(c, "axis", 0);
    char *data = shape__alloc(c, 0);

    if (!data)
        return c->err->rc;
    for (int i = 0; i < axis; i++)
        outer *= (size_t)y.dims[i];
    row = outer ? shape__outv(c, 0)->bytes / outer : 0;
    for (uint32_t i = 0; i < c->n.n_in; i++) {
        const struct graph_value *x = shape__in(c, i);
        size_t part = outer ? x->bytes / outer : 0;

        for (size_t j = 0; j < outer && part > 0; j++)
            memcpy(data + j * row + at, (const char *)x->data + j * part, part);
        at += part;
    }
    return c->err->rc;
}

static int const_index_at(struct shape_ctx *c, size_t i, int64_t size, int64_t *out)
{
    const struct graph_value *ix = shape__in(c, 1);
    int64_t v = shape__get_i64(ix->dtype, ix->data, i);

    if (v < -size || v >= size)
        return shape__fail(c, SH_E_INVALID, "index %lld is outside an axis of %lld", (long long)v,
                           (long long)size);
    *out = v < 0 ? v + size : v;
    return c->err->rc;
}

int shape__eval_gather(struct shape_ctx *c)
{
    struct graph_value x = *shape__in(c, 0);
    const int64_t axis = shape__int(c, "axis", 0);
    int64_t n = graph_elements(shape__in(c, 1)), outer = 1, from;
    size_t inner = sh_dtype_bytes(x.dtype), at = 0;
    char *data = shape__alloc(c, 0);

    if (!data)
        return c->err->rc;
    for (int i = 0; i < axis; i++)
        outer *= x.dims[i];
    for (int i = (int)axis + 1; i < x.rank; i++)
        inner *= (size_t)x.dims[i];
    for (int64_t o = 0; o < outer; o++)
        for (int64_t i = 0; i < n; i++) {
            if (const_index_at(c, (size_t)i, x.dims[axis], &from))
                return c->err->rc;
            memcpy(data + at, (const char *)x.data + (size_t)(o * x.dims[axis] + from) * inner,
                   inner);
            at += inner;
        }
    return c->err->rc;
}

int shape__eval_gather_elements(struct shape_ctx *c)
{
    struct graph_value x = *shape__in(c, 0), y = *shape__outv(c, 0);
    const int64_t axis = shape__int(c, "axis", 0);
    int64_t own[SH_MAX_RANK], n = graph_elements(&y), at;
    struct shape_walk w = {.rank = y.rank, .dims = y.dims, .stride = {own}};
    size_t size = sh_dtype_bytes(x.dtype);
    char *data = shape__alloc(c, 0);

    if (!data)
        return c->err->rc;
    shape__strides(&x, own);
    for (int64_t i = 0; i < n; i++, shape__step(&w)) {
        if (const_index_at(c, (size_t)i, x.dims[axis], &at))
            return c->err->rc;
        at = w.off[0] + (at - w.at[axis]) * own[axis];
        memcpy(data + (size_t)i * size, (const char *)x.data + (size_t)at * size, size);
    }
    return c->err->rc;
}

int shape__eval_gather_nd(struct shape_ctx *c)
{
    struct graph_value x = *shape__in(c, 0), ix = *shape__in(c, 1);
    const int64_t batch = shape__int(c, "batch_dims", 0), depth = ix.dims[ix.rank - 1];
    const int64_t n = graph_elements(&ix) / depth;
    struct shape_walk w = {.rank = ix.rank - 1, .dims = ix.dims};
    size_t inner = sh_dtype_bytes(x.dtype);
    char *data = shape__alloc(c, 0);

    if (!data)
        return c->err->rc;
    for (int i = (int)(batch + depth); i < x.rank; i++)
        inner *= (size_t)x.dims[i];
    for (int64_t i = 0; i < n; i++, shape__step(&w)) {
        int64_t row = 0, at;

        for (int64_t j = 0; j < batch; j++)
            row = row * x.dims[j] + w.at[j];
        for (int64_t j = 0; j < depth; j++) {
            if (const_index_at(c, (size_t)(i * depth + j), x.dims[batch + j], &at))
                return c->err->rc;
            row = row * x.dims[batch + j] + at;
        }
        memcpy(data + (size_t)i * inner, (const char *)x.data + (size_t)row * inner, inner);
    }
    return c->err->rc;
}

/* ---------------------------------------------------------------- tensors from shapes */

int shape__eval_shape(struct shape_ctx *c)
{
    const struct graph_value *x = shape__in(c, 0);
    const int64_t start = shape__int(c, "start", 0), n = shape__outv(c, 0)->dims[0];
    void *y = shape__alloc(c, 0);

    for (int64_t i = 0; y && i < n; i++)
        shape__put_i64(SH_I64, y, (size_t)i, x->dims[start + i]);
    return c->err->rc;
}

int shape__eval_size(struct shape_ctx *c)
{
    void *y = shape__alloc(c, 0);

    if (y)
        shape__put_i64(SH_I64, y, 0, graph_elements(shape__in(c, 0)));
    return c->err->rc;
}

int shape__eval_const_of_shape(struct shape_ctx *c)
{
    struct graph_value y = *shape__outv(c, 0);
    size_t size = sh_dtype_bytes(y.dtype);
    int64_t n = graph_elements(&y);
    float zero = 0.0f;
    const void *from = shape__has(c, 1) ? shape__in(c, 1)->data : &zero;
    char *data = shape__alloc(c, 0);

    for (int64_t i = 0; data && i < n; i++)
        memcpy(data + (size_t)i * size, from, size);
    return c->err->rc;
}

int shape__eval_range(struct shape_ctx *c)
{
    const struct graph_value *a = shape__in(c, 0), *d = shape__in(c, 2);
    enum sh_dtype t = a->dtype;
    int64_t n = shape__outv(c, 0)->dims[0];
    void *y = shape__alloc(c, 0);

    for (int64_t i = 0; y && i < n; i++) {
        if (shape__is_float(t))
            shape__put_f64(t, y, (size_t)i,
                           shape__get_f64(t, a->data, 0) +
                               (double)i * shape__get_f64(t, d->data, 0));
        else
            shape__put_i64(t, y, (size_t)i,
                           (int64_t)((uint64_t)shape__get_i64(t, a->data, 0) +
                                     (uint64_t)i * (uint64_t)shape__get_i64(t, d->data, 0)));
    }
    return c->err->rc;
}
