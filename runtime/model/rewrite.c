/* rewrite.c - see rewrite.h. */
#include "runtime/model/rewrite.h"

#include "common/mem.h"

#include <stdlib.h>

#define MAX_CALL_ATTRS 3

uint32_t rw_node(struct shape_ctx *c, const char *op, const uint32_t *in, uint32_t n_in,
                 const struct graph_attr *attrs, uint32_t n_attrs)
{
    struct graph_attr own[MAX_CALL_ATTRS];
    struct graph_node call = {.op = (char *)(uintptr_t)op,
                              .in = (uint32_t *)(uintptr_t)in,
                              .n_in = n_in,
                              .n_out = 1,
                              .attrs = own,
                              .n_attrs = SH_MIN(n_attrs, (uint32_t)MAX_CALL_ATTRS)};
    uint32_t out = GRAPH_NONE;

    for (uint32_t i = 0; i < call.n_attrs; i++)
        own[i] = attrs[i];
    shape__call(c, &call, &out);
    return c->err->rc == SH_OK ? out : GRAPH_NONE;
}

uint32_t rw1(struct shape_ctx *c, const char *op, uint32_t a)
{
    return rw_node(c, op, &a, 1, NULL, 0);
}

uint32_t rw2(struct shape_ctx *c, const char *op, uint32_t a, uint32_t b)
{
    return rw_node(c, op, (const uint32_t[]){a, b}, 2, NULL, 0);
}

uint32_t rw3(struct shape_ctx *c, const char *op, uint32_t x, uint32_t y, uint32_t z)
{
    return rw_node(c, op, (const uint32_t[]){x, y, z}, 3, NULL, 0);
}

uint32_t rw1_with(struct shape_ctx *c, const char *op, uint32_t a, struct graph_attr attr)
{
    return rw_node(c, op, &a, 1, &attr, 1);
}

uint32_t rw2_with(struct shape_ctx *c, const char *op, uint32_t a, uint32_t b,
                  struct graph_attr attr)
{
    return rw_node(c, op, (const uint32_t[]){a, b}, 2, &attr, 1);
}

/* ---------------------------------------------------------------- constants */

void *rw_alloc(struct shape_ctx *c, enum sh_dtype t, int64_t n)
{
    const size_t size = sh_dtype_bytes(t);
    void *data = NULL;

    if (c->err->rc)
        return NULL;
    if (n >= 0 && (uint64_t)n <= SHAPE_FOLD_MAX_BYTES / size)
        data = calloc((size_t)n + 1, size);
    if (!data)
        SH_FAIL(c->err, SH_E_NOMEM, "could not allocate a constant of %lld numbers", (long long)n);
    return data;
}

uint32_t rw_const(struct shape_ctx *c, enum sh_dtype t, int rank, const int64_t *dims, void *data)
{
    uint32_t v = GRAPH_NONE;
    size_t bytes = 0;

    if (c->err->rc == SH_OK)
        graph__bytes(t, rank, dims, &bytes, c->err);
    shape__temp(c, "const", t, rank, dims, &v);
    if (c->err->rc) {
        free(data);
        return GRAPH_NONE;
    }
    c->g->values[v].data = data;
    c->g->values[v].bytes = bytes;
    return v;
}

uint32_t rw_number(struct shape_ctx *c, enum sh_dtype t, double v)
{
    void *data = rw_alloc(c, t, 1);

    if (data)
        shape__put_f64(t, data, 0, v);
    return rw_const(c, t, 0, NULL, data);
}

uint32_t rw_list(struct shape_ctx *c, const int64_t *v, int n)
{
    const int64_t dims = n;
    int64_t *data = rw_alloc(c, SH_I64, n);

    for (int i = 0; data && i < n; i++)
        data[i] = v[i];
    return rw_const(c, SH_I64, 1, &dims, data);
}

uint32_t rw_iota(struct shape_ctx *c, int64_t n)
{
    int64_t *data = rw_alloc(c, SH_I64, n);

    for (int64_t i = 0; data && i < n; i++)
        data[i] = i;
    return rw_const(c, SH_I64, 1, &n, data);
}

/* ---------------------------------------------------------------- common nodes */

uint32_t rw_cast(struct shape_ctx *c, uint32_t x, enum sh_dtype t)
{
    return rw1_with(c, "Cast", x, RW_INT("to", sh_dtype_onnx(t)));
}

uint32_t rw_reshape(struct shape_ctx *c, uint32_t x, int rank, const int64_t *dims)
{
    const uint32_t shape = rw_list(c, dims, rank);

    return rw2_with(c, "Reshape", x, shape, RW_INT("allowzero", 1));
}

uint32_t rw_expand(struct shape_ctx *c, uint32_t x, int rank, const int64_t *dims)
{
    const uint32_t shape = rw_list(c, dims, rank);

    return rw2(c, "Expand", x, shape);
}

uint32_t rw_transpose(struct shape_ctx *c, uint32_t x, const int64_t *perm, int rank)
{
    bool moves = false;

    for (int i = 0; i < rank; i++)
        moves |= perm[i] != i;
    return moves ? rw1_with(c, "Transpose", x, RW_INTS("perm", (int64_t *)(uintptr_t)perm, rank))
                 : x;
}

uint32_t rw_reduce(struct shape_ctx *c, const char *op, uint32_t x, const int64_t *axes, int k,
                   bool keep)
{
    const uint32_t list = rw_list(c, axes, k);
    const struct graph_attr attrs[] = {RW_INT("keepdims", keep), RW_INT("noop_with_empty_axes", 1)};

    return rw_node(c, op, (const uint32_t[]){x, list}, 2, attrs, 2);
}

uint32_t rw_slice(struct shape_ctx *c, uint32_t x, int axis, int64_t from, int64_t to, int64_t step)
{
    const int64_t at = axis;
    const uint32_t in[] = {x, rw_list(c, &from, 1), rw_list(c, &to, 1), rw_list(c, &at, 1),
                           rw_list(c, &step, 1)};

    return rw_node(c, "Slice", in, SH_ARRAY_LEN(in), NULL, 0);
}

uint32_t rw_concat(struct shape_ctx *c, const uint32_t *parts, uint32_t n, int axis)
{
    const struct graph_attr attr = RW_INT("axis", axis);

    return rw_node(c, "Concat", parts, n, &attr, 1);
}

const struct graph_value *rw_v(const struct shape_ctx *c, uint32_t v)
{
    static const struct graph_value NONE = {.dtype = SH_F32}; /* after a failure */

    return c->err->rc == SH_OK && v < c->g->n_values ? &c->g->values[v] : &NONE;
}

uint32_t rw_in(const struct shape_ctx *c, uint32_t i)
{
    return shape__has(c, i) ? c->n.in[i] : GRAPH_NONE;
}

int rw_is(struct shape_ctx *c, uint32_t k, uint32_t v)
{
    c->aliased = true;
    c->outv[k] = v;
    return c->err->rc;
}
