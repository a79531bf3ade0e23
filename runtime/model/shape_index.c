/* shape_index.c - shapes of gathers, reductions, and operators that make tensors from shapes. */
#include "common/mem.h"
#include "runtime/model/rewrite.h"

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
        return shape__fail(c, SH_E_UNSUPPORTED, WHY_AXES, SH_MAX_RANK);
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
        return shape__fail(c, SH_E_UNSUPPORTED, WHY_AXES, SH_MAX_RANK);
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
    int64_t padding;
    int rc = shape__temp(c, "index", SH_I64, rank, dims, &in[1]);

    if (rc) {
        free(index);
        return rc;
    }
    c->g->values[in[1]].data = index;
    c->g->values[in[1]].bytes = (size_t)graph_elements(&c->g->values[in[1]]) * sizeof(*index);
    rc = shape__emit(c, "Gather", in, 2, c->outv[0], &n);
    if (!rc)
        rc = graph_int(&c->n, GRAPH_PADDING, -1, &padding, c->err);
    if (!rc && padding >= 0)
        rc = graph_set_int(n, GRAPH_PADDING, padding, c->err);
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

/* ---- indices of several numbers, or one for each element */

static void flat_of_elements(const struct graph_value *x, const struct graph_value *ix,
                             int64_t axis, struct shape_flat *f)
{
    int64_t own[SH_MAX_RANK];

    shape__strides(x, own);
    *f = (struct shape_flat){.rank = ix->rank, .depth = 1, .rows = graph_elements(x)};
    f->size[0] = x->dims[axis];
    f->stride[0] = own[axis];
    for (int i = 0; i < ix->rank; i++) {
        f->dims[i] = ix->dims[i];
        f->base[i] = i == axis ? 0 : own[i];
    }
}

static void flat_of_nd(const struct graph_value *x, const struct graph_value *ix, int batch,
                       struct shape_flat *f)
{
    int64_t rows = 1, stride[SH_MAX_RANK];

    *f = (struct shape_flat){.rank = ix->rank - 1, .depth = (int)ix->dims[ix->rank - 1]};
    f->tail = x->rank - batch - f->depth;
    for (int i = batch + f->depth - 1; i >= 0; i--) {
        stride[i] = rows;
        rows *= x->dims[i];
    }
    f->rows = rows;
    for (int i = 0; i < f->depth; i++) {
        f->size[i] = x->dims[batch + i];
        f->stride[i] = stride[batch + i];
    }
    for (int i = 0; i < f->rank; i++) {
        f->dims[i] = ix->dims[i];
        f->base[i] = i < batch ? stride[i] : 0;
    }
}

int shape__flat(struct shape_ctx *c, struct shape_flat *f)
{
    const size_t n = strlen(c->n.op);
    int64_t at;
    int rc;

    if (n > 2 && strcmp(c->n.op + n - 2, "ND") == 0) {
        rc = graph_int(&c->n, "batch_dims", 0, &at, c->err);
        if (!rc)
            flat_of_nd(shape__in(c, 0), shape__in(c, 1), (int)at, f);
        return rc;
    }
    rc = graph_int(&c->n, "axis", 0, &at, c->err);
    if (!rc)
        flat_of_elements(shape__in(c, 0), shape__in(c, 1), at, f);
    return rc;
}

int shape__flat_const(struct shape_ctx *c, const struct shape_flat *f, int64_t **out)
{
    const struct graph_value *ix = shape__in(c, 1);
    struct shape_walk w = {.rank = f->rank, .dims = f->dims, .stride = {f->base}};
    const int64_t n = graph_elements(ix) / f->depth;
    int rc = new_index(c, n, out);

    for (int64_t i = 0; i < n && rc == SH_OK; i++, shape__step(&w)) {
        (*out)[i] = w.off[0];
        for (int64_t j = 0; j < f->depth && rc == SH_OK; j++) {
            int64_t at = shape__get_i64(ix->dtype, ix->data, (size_t)(i * f->depth + j));

            rc = check_index(c, &at, f->size[j]);
            if (!rc)
                (*out)[i] += at * f->stride[j];
        }
    }
    if (rc) {
        free(*out);
        *out = NULL;
    }
    return rc;
}

/* The rows as a value: a constant, or computed by the device, which checks them. */
static int flat_value(struct shape_ctx *c, const struct shape_flat *f, uint32_t *out)
{
    struct graph_node *n;
    int64_t *index;
    int rc = shape__temp(c, "rows", SH_I64, f->rank, f->dims, out);

    if (rc)
        return rc;
    if (shape__in(c, 1)->data) {
        rc = shape__flat_const(c, f, &index);
        if (rc)
            return rc;
        c->g->values[*out].data = index;
        c->g->values[*out].bytes = (size_t)graph_elements(&c->g->values[*out]) * sizeof(*index);
        return SH_OK;
    }
    rc = shape__emit(c, "Locate", &c->n.in[1], 1, *out, &n);
    if (!rc)
        rc = graph_set_ints(n, "sizes", f->size, (size_t)f->depth, c->err);
    if (!rc)
        rc = graph_set_ints(n, "strides", f->stride, (size_t)f->depth, c->err);
    return rc ? rc : graph_set_ints(n, "base", f->base, (size_t)f->rank, c->err);
}

/* The table with its leading axes made one of rows. */
static int as_rows(struct shape_ctx *c, const struct shape_flat *f, uint32_t *out)
{
    const struct graph_value *x = shape__in(c, 0);
    const enum sh_dtype t = x->dtype;
    int64_t dims[SH_MAX_RANK + 1] = {f->rows};
    int rc;

    *out = c->n.in[0];
    if (x->rank == 1 + f->tail)
        return SH_OK;
    for (int i = 0; i < f->tail; i++)
        dims[1 + i] = x->dims[x->rank - f->tail + i];
    rc = shape__temp(c, "table", t, 1 + f->tail, dims, out);
    return rc ? rc : shape__emit(c, "Reshape", c->n.in, 1, *out, NULL);
}

static int finish_flat_gather(struct shape_ctx *c)
{
    const struct graph_value ix = *shape__in(c, 1);
    struct shape_flat f;
    struct graph_node *n;
    uint32_t in[2];
    int rc = shape__flat(c, &f);

    if (!rc)
        rc = flat_value(c, &f, &in[1]);
    if (!rc && ix.data &&
        is_identity(c->g->values[in[1]].data, graph_elements(&c->g->values[in[1]]), f.rows))
        return shape__reshape_to(c, c->n.in[0]);
    if (!rc)
        rc = as_rows(c, &f, &in[0]);
    if (!rc)
        rc = shape__emit(c, "Gather", in, 2, c->outv[0], &n);
    return rc ? rc : graph_set_int(n, "axis", 0, c->err);
}

int shape__finish_gather_elements(struct shape_ctx *c)
{
    return finish_flat_gather(c);
}

int shape__finish_gather_nd(struct shape_ctx *c)
{
    return finish_flat_gather(c);
}

/* ---- scatters */

static int scatter_kind(struct shape_ctx *c)
{
    static const char *const KINDS[] = {"none", "add", "mul", "max", "min"};
    const char *kind;
    int rc = graph_str(&c->n, "reduction", "none", &kind, c->err);

    for (size_t i = 0; i < SH_ARRAY_LEN(KINDS) && rc == SH_OK; i++)
        if (strcmp(kind, KINDS[i]) == 0)
            return SH_OK;
    return rc ? rc : shape__fail(c, SH_E_INVALID, "reduction %.32s is not known", kind);
}

static int scatter_elements_fit(struct shape_ctx *c)
{
    const struct graph_value *x = shape__in(c, 0), *ix = shape__in(c, 1), *u = shape__in(c, 2);
    int64_t axis;
    int rc = graph_int(&c->n, "axis", 0, &axis, c->err);

    if (!rc)
        rc = shape__axis(c, axis, x->rank, &axis);
    if (!rc && (ix->rank != x->rank || u->rank != x->rank))
        rc = shape__fail(c, SH_E_INVALID, "data, indices and updates differ in rank");
    for (int i = 0; i < x->rank && rc == SH_OK; i++)
        if (ix->dims[i] != u->dims[i] || (i != axis && ix->dims[i] > x->dims[i]))
            rc = shape__fail(c, SH_E_INVALID, "the indices do not fit along axis %d", i);
    return rc ? rc : graph_set_int(&c->n, "axis", axis, c->err);
}

static int scatter_nd_fits(struct shape_ctx *c)
{
    const struct graph_value *x = shape__in(c, 0), *ix = shape__in(c, 1), *u = shape__in(c, 2);
    const int64_t depth = ix->rank < 1 ? 0 : ix->dims[ix->rank - 1];
    const int lead = ix->rank - 1;
    bool fits = depth >= 1 && depth <= x->rank && u->rank == lead + x->rank - depth;

    for (int i = 0; fits && i < u->rank; i++)
        fits = u->dims[i] == (i < lead ? ix->dims[i] : x->dims[i - lead + depth]);
    graph__drop_attr(&c->n, "batch_dims");
    return fits ? SH_OK
                : shape__fail(c, SH_E_INVALID, "data, indices and updates do not fit together");
}

int shape__infer_scatter(struct shape_ctx *c)
{
    const struct graph_value *x = shape__in(c, 0);
    int rc = want_indices(c, 1);

    if (!rc)
        rc = shape__want_same_type(c, 0, 2);
    if (!rc)
        rc = strcmp(c->n.op, "ScatterND") == 0 ? scatter_nd_fits(c) : scatter_elements_fit(c);
    if (!rc)
        rc = scatter_kind(c);
    return rc ? rc : shape__out(c, 0, x->dtype, x->rank, x->dims);
}

/* Rows of what is not written become -1. */
static int rows_without(struct shape_ctx *c, uint32_t *rows)
{
    struct rewrite w = {.c = c};

    *rows = rw3(&w, "Where", c->skip, *rows, rw_number(&w, SH_I64, -1));
    return w.rc;
}

int shape__finish_scatter(struct shape_ctx *c)
{
    const struct graph_value x = *shape__in(c, 0);
    const char *kind;
    struct shape_flat f;
    struct graph_node *n;
    uint32_t in[3] = {0, 0, c->n.in[2]}, y;
    int rc = shape__flat(c, &f);

    if (graph_elements(shape__in(c, 1)) == 0)
        return shape__reshape_to(c, c->n.in[0]);
    if (!rc)
        rc = graph_str(&c->n, "reduction", "none", &kind, c->err);
    if (!rc && strcmp(kind, "none") != 0 && shape__wide(x.dtype) != x.dtype)
        return shape__fail(c, SH_E_UNSUPPORTED, WHY_REDUCTION, kind, sh_dtype_v2(x.dtype));
    if (!rc)
        rc = flat_value(c, &f, &in[1]);
    if (!rc && c->skip)
        rc = rows_without(c, &in[1]);
    if (!rc)
        rc = as_rows(c, &f, &in[0]);
    if (!rc)
        rc = shape__temp(c, "scattered", x.dtype, c->g->values[in[0]].rank,
                         c->g->values[in[0]].dims, &y);
    if (!rc)
        rc = shape__emit(c, "Scatter", in, 3, y, &n);
    if (!rc)
        rc = graph_set_str(n, "reduction", kind, c->err);
    return rc ? rc : shape__reshape_to(c, y);
}

/* ---- reductions */

int shape__infer_reduce(struct shape_ctx *c)
{
    const struct graph_value *x = shape__in(c, 0);
    int64_t axes[SH_MAX_RANK], keep, dims[SH_MAX_RANK];
    uint32_t set = 0;
    int rank = 0, rc = graph_int(&c->n, "keepdims", 1, &keep, c->err);
    size_t k = 0;

    if (!rc)
        rc = shape__reduced(c, &set);
    if (rc)
        return rc;
    if (set == 0)
        return shape__alias(c, c->n.in[0]);
    for (int i = 0; i < x->rank; i++) {
        if (set >> i & 1u)
            axes[k++] = i;
        if (keep || !(set >> i & 1u))
            dims[rank++] = set >> i & 1u ? 1 : x->dims[i];
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
