/* shape_index.c - shapes of gathers, reductions, and operators that make tensors from shapes. */
#include "common/mem.h"
#include "executor/model/shape_int.h"

#include <math.h>
#include <stdlib.h>

static int want_indices(struct shape_ctx *c, uint32_t i)
{
    enum sh_dtype t = shape__in(c, i)->dtype;

    if (t != SH_I64 && t != SH_I32)
        return shape__fail(c, SH_E_INVALID, "indices must be INT64 or INT32, they are %s",
                           sh_dtype_v2(t));
    return SH_OK;
}

int shape__infer_gather(struct shape_ctx *c)
{
    const struct graph_value *x = shape__in(c, 0), *ix = shape__in(c, 1);
    int64_t axis, dims[2 * SH_MAX_RANK];
    int rank = 0, rc = graph_int(&c->n, "axis", 0, &axis, c->err);

    if (!rc)
        rc = shape__axis(c, axis, x->rank, &axis);
    if (!rc)
        rc = want_indices(c, 1);
    if (!rc)
        rc = graph_set_int(&c->n, "axis", axis, c->err);
    if (rc)
        return rc;
    for (int i = 0; i < axis; i++)
        dims[rank++] = x->dims[i];
    for (int i = 0; i < ix->rank; i++)
        dims[rank++] = ix->dims[i];
    for (int i = (int)axis + 1; i < x->rank; i++)
        dims[rank++] = x->dims[i];
    if (rank > SH_MAX_RANK)
        return shape__fail(c, SH_E_UNSUPPORTED, "the result has more than %d axes", SH_MAX_RANK);
    return shape__out(c, 0, x->dtype, rank, dims);
}

int shape__infer_gather_elements(struct shape_ctx *c)
{
    const struct graph_value *x = shape__in(c, 0), *ix = shape__in(c, 1);
    int64_t axis;
    int rc = graph_int(&c->n, "axis", 0, &axis, c->err);

    if (!rc)
        rc = shape__axis(c, axis, x->rank, &axis);
    if (!rc)
        rc = want_indices(c, 1);
    if (!rc && ix->rank != x->rank)
        rc = shape__fail(c, SH_E_INVALID, "indices have rank %d, the data %d", ix->rank, x->rank);
    for (int i = 0; i < x->rank && rc == SH_OK; i++)
        if (i != axis && ix->dims[i] > x->dims[i])
            rc = shape__fail(c, SH_E_INVALID, "indices are larger than the data along axis %d", i);
    if (!rc)
        rc = graph_set_int(&c->n, "axis", axis, c->err);
    return rc ? rc : shape__out(c, 0, x->dtype, ix->rank, ix->dims);
}

int shape__infer_gather_nd(struct shape_ctx *c)
{
    const struct graph_value *x = shape__in(c, 0), *ix = shape__in(c, 1);
    int64_t batch, depth, dims[2 * SH_MAX_RANK];
    int rank = 0, rc = graph_int(&c->n, "batch_dims", 0, &batch, c->err);

    if (!rc)
        rc = want_indices(c, 1);
    if (rc)
        return rc;
    if (ix->rank < 1 || batch < 0 || batch >= ix->rank)
        return shape__fail(c, SH_E_INVALID, "the rank of the indices does not fit");
    depth = ix->dims[ix->rank - 1];
    if (depth < 1 || depth > x->rank - batch)
        return shape__fail(c, SH_E_INVALID, "an index has %lld numbers for data of rank %d",
                           (long long)depth, x->rank);
    for (int i = 0; i < batch; i++)
        if (x->dims[i] != ix->dims[i])
            return shape__fail(c, SH_E_INVALID, "batch axis %d differs", i);
    for (int i = 0; i + 1 < ix->rank; i++)
        dims[rank++] = ix->dims[i];
    for (int i = (int)(batch + depth); i < x->rank; i++)
        dims[rank++] = x->dims[i];
    if (rank > SH_MAX_RANK)
        return shape__fail(c, SH_E_UNSUPPORTED, "the result has more than %d axes", SH_MAX_RANK);
    return shape__out(c, 0, x->dtype, rank, dims);
}

/* ---- constant indices in static form */

/* A gather of rows 0, 1, ... n-1 of n rows moves nothing. */
static bool is_identity(const int64_t *index, int64_t n, int64_t rows)
{
    if (n != rows)
        return false;
    for (int64_t i = 0; i < n; i++)
        if (index[i] != i)
            return false;
    return true;
}

static int check_index(struct shape_ctx *c, int64_t *index, int64_t size)
{
    if (*index < -size || *index >= size)
        return shape__fail(c, SH_E_INVALID, "index %lld is outside an axis of %lld",
                           (long long)*index, (long long)size);
    if (*index < 0)
        *index += size;
    return SH_OK;
}

/* Emits outv[0] = Gather(table, index) along axis. TAKES index (also on failure). */
static int emit_gather(struct shape_ctx *c, uint32_t table, int64_t axis, int rank,
                       const int64_t *dims, int64_t *index)
{
    struct graph_node *n;
    uint32_t in[2] = {table, GRAPH_NONE};
    int rc = shape__temp(c, "index", SH_I64, rank, dims, &in[1]);

    if (rc) {
        free(index);
        return rc;
    }
    c->g->values[in[1]].data = index;
    c->g->values[in[1]].bytes = (size_t)graph_elements(&c->g->values[in[1]]) * sizeof(*index);
    rc = shape__emit(c, "Gather", in, 2, c->outv[0], &n);
    return rc ? rc : graph_set_int(n, "axis", axis, c->err);
}

static int new_index(struct shape_ctx *c, int64_t n, int64_t **out)
{
    *out =
        n >= 0 && (uint64_t)n < SHAPE_FOLD_MAX_BYTES ? calloc((size_t)n + 1, sizeof(**out)) : NULL;
    if (!*out)
        return SH_FAIL(c->err, SH_E_NOMEM, "could not allocate %lld indices", (long long)n);
    return SH_OK;
}

int shape__finish_gather(struct shape_ctx *c)
{
    struct graph_value x = *shape__in(c, 0), ix = *shape__in(c, 1);
    int64_t axis, *index, n = graph_elements(&ix);
    int rc;

    if (!ix.data)
        return shape__emit_self(c);
    rc = graph_int(&c->n, "axis", 0, &axis, c->err);
    if (!rc)
        rc = new_index(c, n, &index);
    if (rc)
        return rc;
    for (int64_t i = 0; i < n && rc == SH_OK; i++) {
        index[i] = shape__get_i64(ix.dtype, ix.data, (size_t)i);
        rc = check_index(c, &index[i], x.dims[axis]);
    }
    if (rc || is_identity(index, n, x.dims[axis])) {
        free(index);
        return rc ? rc : shape__reshape_to(c, c->n.in[0]);
    }
    return emit_gather(c, c->n.in[0], axis, ix.rank, ix.dims, index);
}

/* Gathers rows of the data seen as [rows, rest...]. TAKES index. */
static int gather_rows(struct shape_ctx *c, int lead, int rank, const int64_t *dims, int64_t *index)
{
    const struct graph_value *x = shape__in(c, 0);
    enum sh_dtype t = x->dtype;
    int64_t flat[SH_MAX_RANK] = {1}, n = 1;
    uint32_t table;
    int flat_rank = 1, rc;

    for (int i = 0; i < lead; i++)
        flat[0] *= x->dims[i];
    for (int i = lead; i < x->rank; i++)
        flat[flat_rank++] = x->dims[i];
    for (int i = 0; i < rank; i++)
        n *= dims[i];
    if (is_identity(index, n, flat[0])) {
        free(index);
        return shape__reshape_to(c, c->n.in[0]);
    }
    rc = shape__temp(c, "rows", t, flat_rank, flat, &table);
    if (!rc)
        rc = shape__emit(c, "Reshape", c->n.in, 1, table, NULL);
    if (rc) {
        free(index);
        return rc;
    }
    return emit_gather(c, table, 0, rank, dims, index);
}

static int need_constant_indices(struct shape_ctx *c)
{
    if (shape__in(c, 1)->data)
        return SH_OK;
    return shape__fail(c, SH_E_UNSUPPORTED, "works only with constant indices");
}

int shape__finish_gather_elements(struct shape_ctx *c)
{
    struct graph_value x = *shape__in(c, 0), ix = *shape__in(c, 1);
    int64_t axis, *index, n = graph_elements(&ix), xs[SH_MAX_RANK];
    struct shape_walk w = {.rank = ix.rank, .dims = ix.dims, .stride = {xs}};
    int rc = need_constant_indices(c);

    if (!rc)
        rc = graph_int(&c->n, "axis", 0, &axis, c->err);
    if (!rc)
        rc = new_index(c, n, &index);
    if (rc)
        return rc;
    shape__strides(&x, xs);
    for (int64_t i = 0; i < n && rc == SH_OK; i++, shape__step(&w)) {
        int64_t at = shape__get_i64(ix.dtype, ix.data, (size_t)i);

        rc = check_index(c, &at, x.dims[axis]);
        index[i] = w.off[0] + (at - w.at[axis]) * xs[axis];
    }
    if (rc) {
        free(index);
        return rc;
    }
    return gather_rows(c, x.rank, ix.rank, ix.dims, index);
}

int shape__finish_gather_nd(struct shape_ctx *c)
{
    struct graph_value x = *shape__in(c, 0), ix = *shape__in(c, 1);
    int64_t batch, *index, n, depth = ix.dims[ix.rank - 1];
    struct shape_walk w = {.rank = ix.rank - 1, .dims = ix.dims};
    int rc = need_constant_indices(c);

    if (!rc)
        rc = graph_int(&c->n, "batch_dims", 0, &batch, c->err);
    n = graph_elements(&ix) / depth;
    if (!rc)
        rc = new_index(c, n, &index);
    if (rc)
        return rc;
    for (int64_t i = 0; i < n && rc == SH_OK; i++, shape__step(&w)) {
        for (int64_t j = 0; j < batch; j++)
            index[i] = index[i] * x.dims[j] + w.at[j];
        for (int64_t j = 0; j < depth && rc == SH_OK; j++) {
            int64_t at = shape__get_i64(ix.dtype, ix.data, (size_t)(i * depth + j));

            rc = check_index(c, &at, x.dims[batch + j]);
            index[i] = index[i] * x.dims[batch + j] + at;
        }
    }
    if (rc) {
        free(index);
        return rc;
    }
    return gather_rows(c, (int)(batch + depth), ix.rank - 1, ix.dims, index);
}

/* ---- reductions */

static int reduce_axes(struct shape_ctx *c, int rank, int64_t *axes, size_t *k)
{
    int64_t given[SH_MAX_RANK], noop;
    uint32_t set = 0;
    int rc = shape__ints(c, 1, given, SH_MAX_RANK, k);

    if (!rc)
        rc = graph_int(&c->n, "noop_with_empty_axes", 0, &noop, c->err);
    for (size_t i = 0; rc == SH_OK && i < *k; i++) {
        rc = shape__axis(c, given[i], rank, &given[i]);
        if (!rc)
            set |= 1u << given[i];
    }
    if (!rc && *k == 0 && !noop)
        set = (1u << rank) - 1u;
    *k = 0;
    for (int i = 0; i < rank && rc == SH_OK; i++)
        if (set >> i & 1u)
            axes[(*k)++] = i;
    return rc;
}

int shape__infer_reduce(struct shape_ctx *c)
{
    const struct graph_value *x = shape__in(c, 0);
    int64_t axes[SH_MAX_RANK], keep, dims[SH_MAX_RANK];
    int rank = 0;
    size_t k, next = 0;
    int rc = graph_int(&c->n, "keepdims", 1, &keep, c->err);

    if (!rc)
        rc = reduce_axes(c, x->rank, axes, &k);
    if (rc)
        return rc;
    if (k == 0)
        return shape__alias(c, c->n.in[0]);
    for (int i = 0; i < x->rank; i++) {
        if (next < k && axes[next] == i) {
            next++;
            if (keep)
                dims[rank++] = 1;
        } else {
            dims[rank++] = x->dims[i];
        }
    }
    graph__drop_attr(&c->n, "noop_with_empty_axes");
    shape__drop_inputs(c, 1);
    rc = graph_set_ints(&c->n, "axes", axes, k, c->err);
    if (!rc)
        rc = graph_set_int(&c->n, "keepdims", keep != 0, c->err);
    return rc ? rc : shape__out(c, 0, x->dtype, rank, dims);
}

/* ---- tensors from shapes */

int shape__infer_shape(struct shape_ctx *c)
{
    int64_t rank = shape__in(c, 0)->rank, start, end, n;
    int rc = graph_int(&c->n, "start", 0, &start, c->err);

    if (!rc)
        rc = graph_int(&c->n, "end", rank, &end, c->err);
    if (rc)
        return rc;
    start = start < 0 ? SH_MAX(start + rank, 0) : SH_MIN(start, rank);
    end = end < 0 ? SH_MAX(end + rank, 0) : SH_MIN(end, rank);
    n = SH_MAX(end - start, 0);
    rc = graph_set_int(&c->n, "start", start, c->err);
    return rc ? rc : shape__out(c, 0, SH_I64, 1, &n);
}

int shape__infer_size(struct shape_ctx *c)
{
    return shape__out(c, 0, SH_I64, 0, NULL);
}

int shape__infer_const_of_shape(struct shape_ctx *c)
{
    int64_t dims[SH_MAX_RANK];
    enum sh_dtype t = SH_F32;
    size_t k;
    int rc = shape__ints(c, 0, dims, SH_MAX_RANK, &k);

    for (size_t i = 0; i < k && rc == SH_OK; i++)
        if (dims[i] < 0)
            rc = shape__fail(c, SH_E_INVALID, "the shape holds %lld", (long long)dims[i]);
    if (!rc && shape__has(c, 1)) {
        const struct graph_value *v = shape__in(c, 1);

        t = v->dtype;
        if (!v->data || graph_elements(v) != 1)
            rc = shape__fail(c, SH_E_INVALID, "the value must be one number");
    }
    return rc ? rc : shape__out(c, 0, t, (int)k, dims);
}

int shape__infer_range(struct shape_ctx *c)
{
    enum sh_dtype t = shape__in(c, 0)->dtype;
    double start, limit, delta, count;
    int64_t n;
    int rc = shape__want_same_type(c, 0, 1);

    if (!rc)
        rc = shape__want_same_type(c, 0, 2);
    if (!rc)
        rc = shape__number(c, 0, 0, &start);
    if (!rc)
        rc = shape__number(c, 1, 0, &limit);
    if (!rc)
        rc = shape__number(c, 2, 1, &delta);
    if (rc)
        return rc;
    count = ceil((limit - start) / delta);
    if (!(delta != 0.0) || !(count < 1e9))
        return shape__fail(c, SH_E_INVALID, "cannot count from %g to %g by %g", start, limit,
                           delta);
    n = count > 0 ? (int64_t)count : 0;
    return shape__out(c, 0, t, 1, &n);
}
