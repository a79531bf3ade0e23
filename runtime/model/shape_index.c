/* shape_index.c - shapes of gathers, reductions, and operators that make tensors from shapes. */
#include "common/mem.h"
#include "runtime/model/rewrite.h"

#include <math.h>
#include <stdlib.h>

#define MAX_COUNTED 1e9 /* numbers of a range */

static int want_indices(struct shape_ctx *c, uint32_t i)
{
    enum sh_dtype t = shape__in(c, i)->dtype;

    if (t != SH_I64 && t != SH_I32)
        shape__fail(c, SH_E_INVALID, "indices must be INT64 or INT32, they are %s", sh_dtype_v2(t));
    return c->err->rc;
}

int shape__infer_gather(struct shape_ctx *c)
{
    const struct graph_value *x = shape__in(c, 0), *ix = shape__in(c, 1);
    const int64_t axis = shape__own_axis(c, 0, x->rank);
    int64_t dims[2 * SH_MAX_RANK];
    int rank = 0;

    want_indices(c, 1);
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
    const int64_t axis = shape__own_axis(c, 0, x->rank);

    want_indices(c, 1);
    if (ix->rank != x->rank)
        shape__fail(c, SH_E_INVALID, "indices have rank %d, the data %d", ix->rank, x->rank);
    for (int i = 0; i < x->rank; i++)
        if (i != axis && ix->dims[i] > x->dims[i])
            shape__fail(c, SH_E_INVALID, "indices are larger than the data along axis %d", i);
    return shape__out(c, 0, x->dtype, ix->rank, ix->dims);
}

int shape__infer_gather_nd(struct shape_ctx *c)
{
    const struct graph_value *x = shape__in(c, 0), *ix = shape__in(c, 1);
    const int64_t batch = shape__int(c, "batch_dims", 0);
    int64_t depth, dims[2 * SH_MAX_RANK];
    int rank = 0;

    want_indices(c, 1);
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
static bool is_identity_index(const int64_t *index, int64_t n, int64_t rows)
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
    return c->err->rc;
}

/* Emits outv[0] = Gather(table, index) along axis. TAKES index (also on failure). */
static int emit_gather(struct shape_ctx *c, uint32_t table, int64_t axis, int rank,
                       const int64_t *dims, int64_t *index)
{
    uint32_t in[2] = {table, GRAPH_NONE};
    const int64_t padding = shape__int(c, GRAPH_PADDING, -1);
    const struct graph_attr attrs[] = {RW_INT(GRAPH_PADDING, padding), RW_INT("axis", axis)};
    const uint32_t first = padding < 0; /* of attrs */

    if (shape__temp(c, "index", SH_I64, rank, dims, &in[1])) {
        free(index);
        return c->err->rc;
    }
    c->g->values[in[1]].data = index;
    c->g->values[in[1]].bytes = (size_t)graph_elements(&c->g->values[in[1]]) * sizeof(*index);
    return shape__emit(c, "Gather", in, 2, c->outv[0], attrs + first, 2 - first);
}

/* OWNED; NULL after a failure. */
static int64_t *new_index(struct shape_ctx *c, int64_t n)
{
    int64_t *index = NULL;

    if (c->err->rc == SH_OK && n >= 0 && (uint64_t)n < SHAPE_FOLD_MAX_BYTES)
        index = calloc((size_t)n + 1, sizeof(*index));
    if (!index)
        SH_FAIL(c->err, SH_E_NOMEM, "could not allocate %lld indices", (long long)n);
    return index;
}

int shape__finish_gather(struct shape_ctx *c)
{
    struct graph_value x = *shape__in(c, 0), ix = *shape__in(c, 1);
    const int64_t axis = shape__int(c, "axis", 0), n = graph_elements(&ix);
    const bool has_padding = c->training && shape__int(c, GRAPH_PADDING, -1) >= 0;
    int64_t *index;

    if (!ix.data)
        return shape__emit_self(c);
    index = new_index(c, n);
    for (int64_t i = 0; i < n && c->err->rc == SH_OK; i++) {
        index[i] = shape__get_i64(ix.dtype, ix.data, (size_t)i);
        check_index(c, &index[i], x.dims[axis]);
    }
    if (c->err->rc || (is_identity_index(index, n, x.dims[axis]) && !has_padding)) {
        free(index);
        return shape__reshape_to(c, c->n.in[0]);
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

    if (n > 2 && strcmp(c->n.op + n - 2, "ND") == 0)
        flat_of_nd(shape__in(c, 0), shape__in(c, 1), (int)shape__int(c, "batch_dims", 0), f);
    else
        flat_of_elements(shape__in(c, 0), shape__in(c, 1), shape__int(c, "axis", 0), f);
    return c->err->rc;
}

int64_t *shape__flat_const(struct shape_ctx *c, const struct shape_flat *f)
{
    const struct graph_value *ix = shape__in(c, 1);
    struct shape_walk w = {.rank = f->rank, .dims = f->dims, .stride = {f->base}};
    const int64_t n = graph_elements(ix) / f->depth;
    int64_t *rows = new_index(c, n);

    for (int64_t i = 0; i < n && c->err->rc == SH_OK; i++, shape__step(&w)) {
        rows[i] = w.off[0];
        for (int64_t j = 0; j < f->depth; j++) {
            int64_t at = shape__get_i64(ix->dtype, ix->data, (size_t)(i * f->depth + j));

            if (check_index(c, &at, f->size[j]) == SH_OK)
                rows[i] += at * f->stride[j];
        }
    }
    if (c->err->rc == SH_OK)
        return rows;
    free(rows);
    return NULL;
}

/* The rows as a value: a constant, or computed by the device, which checks them. */
static int flat_value(struct shape_ctx *c, struct shape_flat *f, uint32_t *out)
{
    const struct graph_attr attrs[] = {RW_INTS("sizes", f->size, f->depth),
                                       RW_INTS("strides", f->stride, f->depth),
                                       RW_INTS("base", f->base, f->rank)};
    int64_t *index;

    shape__temp(c, "rows", SH_I64, f->rank, f->dims, out);
    if (!shape__in(c, 1)->data)
        return shape__emit(c, "Locate", &c->n.in[1], 1, *out, attrs, 3);
    index = shape__flat_const(c, f);
    if (index) {
        c->g->values[*out].data = index;
        c->g->values[*out].bytes = (size_t)graph_elements(&c->g->values[*out]) * sizeof(*index);
    }
    return c->err->rc;
}

/* The table with its leading axes made one of rows. */
static int as_rows(struct shape_ctx *c, const struct shape_flat *f, uint32_t *out)
{
    const struct graph_value *x = shape__in(c, 0);
    const enum sh_dtype t = x->dtype;
    int64_t dims[SH_MAX_RANK + 1] = {f->rows};

    *out = c->n.in[0];
    if (x->rank == 1 + f->tail)
        return c->err->rc;
    for (int i = 0; i < f->tail; i++)
        dims[1 + i] = x->dims[x->rank - f->tail + i];
    shape__temp(c, "table", t, 1 + f->tail, dims, out);
    return shape__emit(c, "Reshape", c->n.in, 1, *out, NULL, 0);
}

static int finish_flat_gather(struct shape_ctx *c)
{
    const struct graph_value ix = *shape__in(c, 1);
    struct shape_flat f;
    uint32_t in[2];

    shape__flat(c, &f);
    if (flat_value(c, &f, &in[1]))
        return c->err->rc;
    if (ix.data &&
        is_identity_index(c->g->values[in[1]].data, graph_elements(&c->g->values[in[1]]), f.rows))
        return shape__reshape_to(c, c->n.in[0]);
    as_rows(c, &f, &in[0]);
    return shape__emit(c, "Gather", in, 2, c->outv[0], &RW_INT("axis", 0), 1);
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
    const char *kind = shape__str(c, "reduction", "none");

    for (size_t i = 0; i < SH_ARRAY_LEN(KINDS); i++)
        if (strcmp(kind, KINDS[i]) == 0)
            return c->err->rc;
    return shape__fail(c, SH_E_INVALID, "reduction %.32s is not known", kind);
}

static int scatter_elements_fit(struct shape_ctx *c)
{
    const struct graph_value *x = shape__in(c, 0), *ix = shape__in(c, 1), *u = shape__in(c, 2);
    const int64_t axis = shape__own_axis(c, 0, x->rank);

    if (ix->rank != x->rank || u->rank != x->rank)
        shape__fail(c, SH_E_INVALID, "data, indices and updates differ in rank");
    for (int i = 0; i < x->rank; i++)
        if (ix->dims[i] != u->dims[i] || (i != axis && ix->dims[i] > x->dims[i]))
            shape__fail(c, SH_E_INVALID, "the indices do not fit along axis %d", i);
    return c->err->rc;
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
    if (!fits)
        shape__fail(c, SH_E_INVALID, "data, indices and updates do not fit together");
    return c->err->rc;
}

int shape__infer_scatter(struct shape_ctx *c)
{
    const struct graph_value *x = shape__in(c, 0);

    want_indices(c, 1);
    shape__want_same_type(c, 0, 2);
    if (strcmp(c->n.op, "ScatterND") == 0)
        scatter_nd_fits(c);
    else
        scatter_elements_fit(c);
    scatter_kind(c);
    return shape__out(c, 0, x->dtype, x->rank, x->dims);
}

/* Rows of what is not written become -1. */
static int rows_without(struct shape_ctx *c, uint32_t *rows)
{

    *rows = rw3(c, "Where", c->skip, *rows, rw_number(c, SH_I64, -1));
    return c->err->rc;
}

int shape__finish_scatter(struct shape_ctx *c)
{
    const struct graph_value x = *shape__in(c, 0);
    const char *kind = shape__str(c, "reduction", "none");
    const struct graph_attr attrs[] = {
        RW_INT("skips", c->skip != 0),
        {.name = (char[]){"reduction"}, .kind = GRAPH_ATTR_STR, .s = (char *)(uintptr_t)kind}};
    struct shape_flat f;
    uint32_t in[3] = {0, 0, c->n.in[2]}, y;

    shape__flat(c, &f);
    if (graph_elements(shape__in(c, 1)) == 0)
        return shape__reshape_to(c, c->n.in[0]);
    if (strcmp(kind, "none") != 0 && shape__wide(x.dtype) != x.dtype)
        return shape__fail(c, SH_E_UNSUPPORTED, WHY_REDUCTION, kind, sh_dtype_v2(x.dtype));
    flat_value(c, &f, &in[1]);
    if (c->skip)
        rows_without(c, &in[1]);
    as_rows(c, &f, &in[0]);
    if (c->err->rc)
        return c->err->rc;
    shape__temp(c, "scattered", x.dtype, c->g->values[in[0]].rank, c->g->values[in[0]].dims, &y);
    shape__emit(c, "Scatter", in, 3, y, attrs, 2);
    return shape__reshape_to(c, y);
}

/* ---- reductions */

int shape__infer_reduce(struct shape_ctx *c)
{
    const struct graph_value *x = shape__in(c, 0);
    const bool keep = shape__int(c, "keepdims", 1) != 0;
    int64_t axes[SH_MAX_RANK], dims[SH_MAX_RANK];
    uint32_t set = 0;
    int rank = 0;
    size_t k = 0;

    shape__reduced(c, &set);
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
    shape__set_list(c, "axes", axes, k);
    shape__set_int(c, "keepdims", keep);
    return shape__out(c, 0, x->dtype, rank, dims);
}

/* ---- tensors from shapes */

int shape__infer_shape(struct shape_ctx *c)
{
    const int64_t rank = shape__in(c, 0)->rank;
    int64_t start = shape__int(c, "start", 0), end = shape__int(c, "end", rank), n;

    start = start < 0 ? SH_MAX(start + rank, 0) : SH_MIN(start, rank);
    end = end < 0 ? SH_MAX(end + rank, 0) : SH_MIN(end, rank);
    n = SH_MAX(end - start, 0);
    shape__set_int(c, "start", start);
    return shape__out(c, 0, SH_I64, 1, &n);
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

    shape__ints(c, 0, dims, SH_MAX_RANK, &k);
    for (size_t i = 0; i < k; i++)
        if (dims[i] < 0)
            shape__fail(c, SH_E_INVALID, "the shape holds %lld", (long long)dims[i]);
    if (shape__has(c, 1)) {
        const struct graph_value *v = shape__in(c, 1);

        t = v->dtype;
        if (!v->data || graph_elements(v) != 1)
            shape__fail(c, SH_E_INVALID, "the value must be one number");
    }
    return shape__out(c, 0, t, (int)k, dims);
}

int shape__infer_range(struct shape_ctx *c)
{
    enum sh_dtype t = shape__in(c, 0)->dtype;
    double start, limit, delta, count;
    int64_t n;

    shape__want_same_type(c, 0, 1);
    shape__want_same_type(c, 0, 2);
    shape__number(c, 0, 0, &start);
    shape__number(c, 1, 0, &limit);
    shape__number(c, 2, 1, &delta);
    count = ceil((limit - start) / delta);
    if (!(delta != 0.0) || isnan(count))
        return shape__fail(c, SH_E_INVALID, "cannot count from %g to %g by %g", start, limit,
                           delta);
    if (count > MAX_COUNTED)
        return shape__fail(c, SH_E_TOOBIG,
                           "counts %.0f numbers, from %g to %g by %g; at most %.0f "
                           "work",
                           count, start, limit, delta, MAX_COUNTED);
    n = count > 0 ? (int64_t)count : 0;
    return shape__out(c, 0, t, 1, &n);
}
