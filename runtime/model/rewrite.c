/* rewrite.c - see rewrite.h. */
#include "runtime/model/rewrite.h"

#include "common/mem.h"

#include <stdlib.h>

#define MAX_CALL_ATTRS 3

void rw_fail(struct rewrite *w, int rc)
{
    if (w->rc == SH_OK)
        w->rc = rc;
}

uint32_t rw_node(struct rewrite *w, const char *op, const uint32_t *in, uint32_t n_in,
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
    if (w->rc == SH_OK)
        w->rc = shape__call(w->c, &call, &out);
    return w->rc == SH_OK ? out : GRAPH_NONE;
}

uint32_t rw1(struct rewrite *w, const char *op, uint32_t a)
{
    return rw_node(w, op, &a, 1, NULL, 0);
}

uint32_t rw2(struct rewrite *w, const char *op, uint32_t a, uint32_t b)
{
    return rw_node(w, op, (const uint32_t[]){a, b}, 2, NULL, 0);
}

uint32_t rw3(struct rewrite *w, const char *op, uint32_t a, uint32_t b, uint32_t c)
{
    return rw_node(w, op, (const uint32_t[]){a, b, c}, 3, NULL, 0);
}

uint32_t rw1_with(struct rewrite *w, const char *op, uint32_t a, struct graph_attr attr)
{
    return rw_node(w, op, &a, 1, &attr, 1);
}

uint32_t rw2_with(struct rewrite *w, const char *op, uint32_t a, uint32_t b, struct graph_attr attr)
{
    return rw_node(w, op, (const uint32_t[]){a, b}, 2, &attr, 1);
}

/* ---------------------------------------------------------------- constants */

void *rw_alloc(struct rewrite *w, enum sh_dtype t, int64_t n)
{
    const size_t size = sh_dtype_bytes(t);
    void *data = NULL;

    if (w->rc)
        return NULL;
    if (n >= 0 && (uint64_t)n <= SHAPE_FOLD_MAX_BYTES / size)
        data = calloc((size_t)n + 1, size);
    if (!data)
        w->rc = SH_FAIL(w->c->err, SH_E_NOMEM, "could not allocate a constant of %lld numbers",
                        (long long)n);
    return data;
}

uint32_t rw_const(struct rewrite *w, enum sh_dtype t, int rank, const int64_t *dims, void *data)
{
    uint32_t v = GRAPH_NONE;
    size_t bytes = 0;

    if (w->rc == SH_OK)
        w->rc = graph__bytes(t, rank, dims, &bytes, w->c->err);
    if (w->rc == SH_OK)
        w->rc = shape__temp(w->c, "const", t, rank, dims, &v);
    if (w->rc) {
        free(data);
        return GRAPH_NONE;
    }
    w->c->g->values[v].data = data;
    w->c->g->values[v].bytes = bytes;
    return v;
}

uint32_t rw_number(struct rewrite *w, enum sh_dtype t, double v)
{
    void *data = rw_alloc(w, t, 1);

    if (data)
        shape__put_f64(t, data, 0, v);
    return rw_const(w, t, 0, NULL, data);
}

uint32_t rw_list(struct rewrite *w, const int64_t *v, int n)
{
    const int64_t dims = n;
    int64_t *data = rw_alloc(w, SH_I64, n);

    for (int i = 0; data && i < n; i++)
        data[i] = v[i];
    return rw_const(w, SH_I64, 1, &dims, data);
}

uint32_t rw_iota(struct rewrite *w, int64_t n)
{
    int64_t *data = rw_alloc(w, SH_I64, n);

    for (int64_t i = 0; data && i < n; i++)
        data[i] = i;
    return rw_const(w, SH_I64, 1, &n, data);
}

/* ---------------------------------------------------------------- common nodes */

uint32_t rw_cast(struct rewrite *w, uint32_t x, enum sh_dtype t)
{
    return rw1_with(w, "Cast", x, RW_INT("to", sh_dtype_onnx(t)));
}

uint32_t rw_reshape(struct rewrite *w, uint32_t x, int rank, const int64_t *dims)
{
    const uint32_t shape = rw_list(w, dims, rank);

    return rw2_with(w, "Reshape", x, shape, RW_INT("allowzero", 1));
}

uint32_t rw_expand(struct rewrite *w, uint32_t x, int rank, const int64_t *dims)
{
    const uint32_t shape = rw_list(w, dims, rank);

    return rw2(w, "Expand", x, shape);
}

uint32_t rw_transpose(struct rewrite *w, uint32_t x, const int64_t *perm, int rank)
{
    bool moves = false;

    for (int i = 0; i < rank; i++)
        moves |= perm[i] != i;
    return moves ? rw1_with(w, "Transpose", x, RW_INTS("perm", (int64_t *)(uintptr_t)perm, rank))
                 : x;
}

uint32_t rw_reduce(struct rewrite *w, const char *op, uint32_t x, const int64_t *axes, int k,
                   bool keep)
{
    const uint32_t list = rw_list(w, axes, k);
    const struct graph_attr attrs[] = {RW_INT("keepdims", keep), RW_INT("noop_with_empty_axes", 1)};

    return rw_node(w, op, (const uint32_t[]){x, list}, 2, attrs, 2);
}

uint32_t rw_slice(struct rewrite *w, uint32_t x, int axis, int64_t from, int64_t to, int64_t step)
{
    const int64_t at = axis;
    const uint32_t in[] = {x, rw_list(w, &from, 1), rw_list(w, &to, 1), rw_list(w, &at, 1),
                           rw_list(w, &step, 1)};

    return rw_node(w, "Slice", in, SH_ARRAY_LEN(in), NULL, 0);
}

uint32_t rw_concat(struct rewrite *w, const uint32_t *parts, uint32_t n, int axis)
{
    const struct graph_attr attr = RW_INT("axis", axis);

    return rw_node(w, "Concat", parts, n, &attr, 1);
}

const struct graph_value *rw_v(const struct rewrite *w, uint32_t v)
{
    static const struct graph_value NONE = {.dtype = SH_F32}; /* after a failure */

    return w->rc == SH_OK && v < w->c->g->n_values ? &w->c->g->values[v] : &NONE;
}

uint32_t rw_in(const struct rewrite *w, uint32_t i)
{
    return shape__has(w->c, i) ? w->c->n.in[i] : GRAPH_NONE;
}

int rw_is(struct rewrite *w, uint32_t k, uint32_t v)
{
    w->c->aliased = true;
    w->c->outv[k] = v;
    return w->rc ? w->rc : w->c->err->rc;
}
