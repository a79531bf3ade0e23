/* shape_move.c - shapes of operators that move elements without computing. */
#include "common/mem.h"
#include "runtime/model/rewrite.h"

#include <stdlib.h>

static int as_reshape(struct shape_ctx *c, int rank, const int64_t *dims)
{
    enum sh_dtype t = shape__in(c, 0)->dtype;
    int rc = shape__set_op(c, "Reshape");

    shape__drop_inputs(c, 1);
    while (c->n.n_attrs > 0)
        graph__drop_attr(&c->n, c->n.attrs[0].name);
    return rc ? rc : shape__out(c, 0, t, rank, dims);
}

int shape__finish_reshape(struct shape_ctx *c)
{
    return shape__reshape_to(c, c->n.in[0]);
}

/* Fills in 0 (copy the input's) and -1 (what remains). */
static int resolve_reshape(struct shape_ctx *c, const struct graph_value *x, int64_t *dims,
                           size_t k, bool allow_zero)
{
    int64_t total = graph_elements(x), known = 1;
    size_t rest = SIZE_MAX;
    char text[GRAPH_SHAPE_TEXT];

    for (size_t i = 0; i < k; i++) {
        if (dims[i] == 0 && !allow_zero) {
            if (i >= (size_t)x->rank)
                return shape__fail(c, SH_E_INVALID, "the shape copies axis %zu of %s", i,
                                   graph__shape_text(x, text, sizeof(text)));
            dims[i] = x->dims[i];
        }
        if (dims[i] == -1 && rest == SIZE_MAX) {
            rest = i;
            continue;
        }
        if (dims[i] < 0 || __builtin_mul_overflow(known, dims[i], &known))
            return shape__fail(c, SH_E_INVALID, "the shape holds %lld at place %zu",
                               (long long)dims[i], i);
    }
    if (rest != SIZE_MAX) {
        dims[rest] = known > 0 ? total / known : 0;
        if (__builtin_mul_overflow(known, dims[rest], &known))
            known = -1;
    }
    if (known != total)
        return shape__fail(c, SH_E_INVALID, "cannot give %s a shape of %lld elements",
                           graph__shape_text(x, text, sizeof(text)), (long long)known);
    return SH_OK;
}

int shape__infer_reshape(struct shape_ctx *c)
{
    int64_t dims[SH_MAX_RANK], allow_zero;
    size_t k;
    int rc = graph_int(&c->n, "allowzero", 0, &allow_zero, c->err);

    if (c->n.n_in < 2 && !rc)
        rc = shape__fail(c, SH_E_INVALID, "has no shape input");
    if (!rc)
        rc = shape__ints(c, 1, dims, SH_MAX_RANK, &k);
    if (!rc)
        rc = resolve_reshape(c, shape__in(c, 0), dims, k, allow_zero != 0);
    return rc ? rc : as_reshape(c, (int)k, dims);
}

int shape__infer_flatten(struct shape_ctx *c)
{
    const struct graph_value *x = shape__in(c, 0);
    int64_t axis, dims[2] = {1, 1};
    int rc = graph_int(&c->n, "axis", 1, &axis, c->err);

    if (rc)
        return rc;
    if (axis < -x->rank || axis > x->rank)
        return shape__fail(c, SH_E_INVALID, "axis %lld is outside the input's rank %d",
                           (long long)axis, x->rank);
    if (axis < 0)
        axis += x->rank;
    for (int i = 0; i < x->rank; i++)
        dims[i < axis ? 0 : 1] *= x->dims[i];
    return as_reshape(c, 2, dims);
}

/* Axes of input 1 as a set of bits; *k: how many numbers it has. */
static int axes_in(struct shape_ctx *c, int rank, uint32_t *set, size_t *k)
{
    int64_t axes[SH_MAX_RANK];
    int rc = shape__ints(c, 1, axes, SH_MAX_RANK, k);

    *set = 0;
    for (size_t j = 0; j < *k && rc == SH_OK; j++) {
        rc = shape__axis(c, axes[j], rank, &axes[j]);
        if (!rc)
            *set |= 1u << axes[j];
    }
    return rc;
}

static int want_each_once(struct shape_ctx *c, uint32_t set, size_t k)
{
    if ((size_t)__builtin_popcount(set) != k)
        return shape__fail(c, SH_E_INVALID, "an axis is there twice");
    return SH_OK;
}

int shape__squeezed(struct shape_ctx *c, uint32_t *set)
{
    const struct graph_value *x = shape__in(c, 0);
    size_t k;
    int rc = axes_in(c, x->rank, set, &k);

    for (int i = 0; i < x->rank && !shape__has(c, 1); i++)
        *set |= (uint32_t)(x->dims[i] == 1) << i;
    for (int i = 0; i < x->rank && rc == SH_OK; i++)
        if ((*set >> i & 1u) && x->dims[i] != 1)
            rc = shape__fail(c, SH_E_INVALID, "cannot drop axis %d of size %lld", i,
                             (long long)x->dims[i]);
    return rc || !shape__has(c, 1) ? rc : want_each_once(c, *set, k);
}

int shape__unsqueezed(struct shape_ctx *c, uint32_t *set, int *rank)
{
    int64_t axes[SH_MAX_RANK];
    size_t k;
    int rc = shape__ints(c, 1, axes, SH_MAX_RANK, &k);

    *rank = shape__in(c, 0)->rank + (int)k;
    if (!rc && *rank > SH_MAX_RANK)
        rc = shape__fail(c, SH_E_UNSUPPORTED, WHY_AXES, SH_MAX_RANK);
    if (!rc)
        rc = axes_in(c, *rank, set, &k);
    return rc ? rc : want_each_once(c, *set, k);
}

int shape__reduced(struct shape_ctx *c, uint32_t *set)
{
    const int rank = shape__in(c, 0)->rank;
    int64_t noop;
    size_t k;
    int rc = axes_in(c, rank, set, &k);

    if (!rc)
        rc = graph_int(&c->n, "noop_with_empty_axes", 0, &noop, c->err);
    if (!rc && k == 0 && !noop)
        *set = (1u << rank) - 1u;
    return rc;
}

int shape__infer_squeeze(struct shape_ctx *c)
{
    const struct graph_value *x = shape__in(c, 0);
    int64_t dims[SH_MAX_RANK];
    uint32_t set;
    int rank = 0, rc = shape__squeezed(c, &set);

    for (int i = 0; i < x->rank && rc == SH_OK; i++)
        if (!(set >> i & 1u))
            dims[rank++] = x->dims[i];
    return rc ? rc : as_reshape(c, rank, dims);
}

int shape__infer_unsqueeze(struct shape_ctx *c)
{
    const struct graph_value *x = shape__in(c, 0);
    int64_t dims[SH_MAX_RANK];
    uint32_t set;
    int rank, from = 0, rc = shape__unsqueezed(c, &set, &rank);

    for (int i = 0; rc == SH_OK && i < rank; i++)
        dims[i] = (set >> i & 1u) ? 1 : x->dims[from++];
    return rc ? rc : as_reshape(c, rank, dims);
}

int shape__infer_transpose(struct shape_ctx *c)
{
    const struct graph_value *x = shape__in(c, 0);
    int64_t perm[SH_MAX_RANK], dims[SH_MAX_RANK];
    uint32_t seen = 0;
    size_t k;
    int rc = graph_ints(&c->n, "perm", perm, SH_MAX_RANK, &k, c->err);

    if (rc)
        return rc;
    if (k == 0 && !graph__attr(&c->n, "perm"))
        for (; k < (size_t)x->rank; k++)
            perm[k] = x->rank - 1 - (int64_t)k;
    if (k != (size_t)x->rank)
        return shape__fail(c, SH_E_INVALID, "perm has %zu numbers for an input of rank %d", k,
                           x->rank);
    for (size_t i = 0; i < k; i++) {
        if (perm[i] < 0 || perm[i] >= x->rank || (seen >> perm[i] & 1u))
            return shape__fail(c, SH_E_INVALID, "perm is no permutation");
        seen |= 1u << perm[i];
        dims[i] = x->dims[perm[i]];
    }
    /* A product reads a transposed matrix in place: no second copy of a weight. */
    c->keep_node = x->is_param && x->rank == 2;
    rc = graph_set_ints(&c->n, "perm", perm, k, c->err);
    return rc ? rc : shape__out(c, 0, x->dtype, x->rank, dims);
}

/* All but the first, if nothing else is left. */
static void drop_empty_inputs(struct shape_ctx *c)
{
    uint32_t kept = 0;

    for (uint32_t i = 0; i < c->n.n_in; i++)
        if (graph_elements(shape__in(c, i)) != 0)
            c->n.in[kept++] = c->n.in[i];
    c->n.n_in = SH_MAX(kept, 1u);
}

int shape__infer_concat(struct shape_ctx *c)
{
    struct graph_value first = *shape__in(c, 0);
    int64_t axis;
    int rc = graph_int(&c->n, "axis", 0, &axis, c->err);

    if (!rc)
        rc = shape__axis(c, axis, first.rank, &axis);
    if (rc)
        return rc;
    for (uint32_t i = 1; i < c->n.n_in; i++) {
        const struct graph_value *v = shape__in(c, i);
        char a[GRAPH_SHAPE_TEXT], b[GRAPH_SHAPE_TEXT];
        bool fits = v->rank == first.rank && v->dtype == first.dtype;

        for (int j = 0; fits && j < v->rank; j++)
            fits = j == axis || v->dims[j] == first.dims[j];
        if (!fits || __builtin_add_overflow(first.dims[axis], v->dims[axis], &first.dims[axis]))
            return shape__fail(c, SH_E_INVALID, "cannot join %s and %s along axis %lld",
                               graph__shape_text(shape__in(c, 0), a, sizeof(a)),
                               graph__shape_text(v, b, sizeof(b)), (long long)axis);
    }
    rc = graph_set_int(&c->n, "axis", axis, c->err);
    if (rc)
        return rc;
    drop_empty_inputs(c);
    /* The first of parts that are all empty by another axis is not yet as large as their sum. */
    if (c->n.n_in == 1 && shape__in(c, 0)->dims[axis] == first.dims[axis])
        return shape__alias(c, c->n.in[0]);
    return shape__out(c, 0, first.dtype, first.rank, first.dims);
}

/* Sizes of the parts: the second input, or equal parts with a smaller last one. */
static int split_sizes(struct shape_ctx *c, int64_t whole, int64_t *sizes)
{
    uint32_t n = c->n.n_out;
    int64_t sum = 0, each = (whole + n - 1) / n;
    size_t k = 0;
    int rc = SH_OK;

    if (shape__has(c, 1)) {
        rc = shape__ints(c, 1, sizes, n, &k);
        if (!rc && k != n)
            rc = shape__fail(c, SH_E_INVALID, "has %u outputs but %zu sizes", n, k);
    }
    for (uint32_t i = 0; i < n && rc == SH_OK; i++) {
        if (k == 0)
            sizes[i] = SH_MIN(each, whole - sum);
        if (sizes[i] < 0 || sizes[i] > whole - sum)
            rc = shape__fail(c, SH_E_INVALID, "the parts do not fit into an axis of %lld",
                             (long long)whole);
        else
            sum += sizes[i];
    }
    if (!rc && sum != whole)
        rc = shape__fail(c, SH_E_INVALID, "the parts sum to %lld, the axis has %lld",
                         (long long)sum, (long long)whole);
    return rc;
}

int shape__infer_split(struct shape_ctx *c)
{
    struct graph_value x = *shape__in(c, 0);
    int64_t axis, *sizes = NULL;
    int rc = graph_int(&c->n, "axis", 0, &axis, c->err);

    if (!rc)
        rc = shape__axis(c, axis, x.rank, &axis);
    if (!rc)
        rc = graph_set_int(&c->n, "axis", axis, c->err);
    if (rc)
        return rc;
    sizes = calloc(c->n.n_out, sizeof(*sizes));
    if (!sizes)
        return SH_FAIL(c->err, SH_E_NOMEM, "could not allocate the parts of a split");
    rc = split_sizes(c, x.dims[axis], sizes);
    for (uint32_t i = 0; i < c->n.n_out && rc == SH_OK; i++) {
        x.dims[axis] = sizes[i];
        rc = shape__out(c, i, x.dtype, x.rank, x.dims);
    }
    shape__drop_inputs(c, 1);
    free(sizes);
    return rc;
}

int shape__finish_split(struct shape_ctx *c)
{
    int rank = shape__in(c, 0)->rank, rc;
    int64_t axis, start[SH_MAX_RANK] = {0}, step[SH_MAX_RANK];

    for (int i = 0; i < rank; i++)
        step[i] = 1;
    rc = graph_int(&c->n, "axis", 0, &axis, c->err);
    for (uint32_t i = 0; i < c->n.n_out && rc == SH_OK; i++) {
        struct graph_node *n;

        rc = shape__emit(c, "Slice", c->n.in, 1, c->outv[i], &n);
        if (!rc)
            rc = graph_set_ints(n, "starts", start, (size_t)rank, c->err);
        if (!rc)
            rc = graph_set_ints(n, "steps", step, (size_t)rank, c->err);
        start[axis] += shape__outv(c, i)->dims[axis];
    }
    return rc;
}

/* One axis of a slice by ONNX's rules: start and end count from the end when negative, are clamped
 * to the axis, and INT64_MIN / MAX stand for "to the border". */
static int64_t slice_axis(int64_t size, int64_t *start, int64_t end, int64_t step)
{
    int64_t lo = step > 0 ? 0 : -1, hi = step > 0 ? size : size - 1;

    if (*start < 0)
        *start = *start < -size ? 0 : *start + size;
    if (end < 0)
        end = end < -size ? lo : end + size;
    *start = SH_MIN(SH_MAX(*start, 0), hi < 0 ? 0 : hi);
    end = SH_MIN(SH_MAX(end, lo), step > 0 ? size : size - 1);
    if (step > 0)
        return end > *start ? (end - *start - 1) / step + 1 : 0;
    return *start > end && size > 0 ? (*start - end - 1) / -step + 1 : 0;
}

int shape__infer_slice(struct shape_ctx *c)
{
    struct graph_value x = *shape__in(c, 0);
    int64_t from[SH_MAX_RANK], to[SH_MAX_RANK], axes[SH_MAX_RANK], by[SH_MAX_RANK];
    int64_t start[SH_MAX_RANK] = {0}, step[SH_MAX_RANK];
    size_t n, n_to, n_axes, n_by;
    uint32_t seen = 0;
    int rc = shape__ints(c, 1, from, SH_MAX_RANK, &n);

    if (!rc)
        rc = shape__ints(c, 2, to, SH_MAX_RANK, &n_to);
    if (!rc)
        rc = shape__ints(c, 3, axes, SH_MAX_RANK, &n_axes);
    if (!rc)
        rc = shape__ints(c, 4, by, SH_MAX_RANK, &n_by);
    if (rc)
        return rc;
    if (n_to != n || (n_axes && n_axes != n) || (n_by && n_by != n) || n > (size_t)x.rank)
        return shape__fail(c, SH_E_INVALID, "starts, ends, axes and steps differ in length");
    for (int i = 0; i < x.rank; i++)
        step[i] = 1;
    for (size_t j = 0; j < n; j++) {
        int64_t a = (int64_t)j;

        rc = n_axes ? shape__axis(c, axes[j], x.rank, &a) : SH_OK;
        if (!rc && (seen >> a & 1u))
            rc = shape__fail(c, SH_E_INVALID, "axis %lld is there twice", (long long)a);
        if (!rc && n_by && (by[j] == 0 || by[j] == INT64_MIN))
            rc = shape__fail(c, SH_E_INVALID, "a step is %lld", (long long)by[j]);
        if (rc)
            return rc;
        seen |= 1u << a;
        step[a] = n_by ? by[j] : 1;
        start[a] = from[j];
        x.dims[a] = slice_axis(x.dims[a], &start[a], to[j], step[a]);
    }
    shape__drop_inputs(c, 1);
    rc = graph_set_ints(&c->n, "starts", start, (size_t)x.rank, c->err);
    if (!rc)
        rc = graph_set_ints(&c->n, "steps", step, (size_t)x.rank, c->err);
    return rc ? rc : shape__out(c, 0, x.dtype, x.rank, x.dims);
}

/* pads: begins then ends, per named axis. */
static int read_pads(struct shape_ctx *c, int rank, int64_t *pads)
{
    int64_t given[2 * SH_MAX_RANK], axes[SH_MAX_RANK];
    size_t k, n_axes;
    int rc = shape__ints(c, 1, given, SH_ARRAY_LEN(given), &k);

    if (!rc)
        rc = shape__ints(c, 3, axes, SH_MAX_RANK, &n_axes);
    if (rc)
        return rc;
    if (!shape__has(c, 3))
        for (n_axes = 0; n_axes < (size_t)rank; n_axes++)
            axes[n_axes] = (int64_t)n_axes;
    if (k != 2 * n_axes)
        return shape__fail(c, SH_E_INVALID, "has %zu pads for %zu axes", k, n_axes);
    for (size_t j = 0; j < n_axes && rc == SH_OK; j++) {
        int64_t a;

        rc = shape__axis(c, axes[j], rank, &a);
        if (rc)
            break;
        pads[a] = given[j];
        pads[rank + a] = given[n_axes + j];
    }
    return rc;
}

int shape__infer_pad(struct shape_ctx *c)
{
    struct graph_value x = *shape__in(c, 0);
    int64_t pads[2 * SH_MAX_RANK] = {0};
    const char *mode;
    double value;
    int rc = graph_str(&c->n, "mode", "constant", &mode, c->err);

    if (!rc)
        rc = read_pads(c, x.rank, pads);
    if (!rc && strcmp(mode, "constant") != 0)
        return shape__pad_from_data(c, mode, pads);
    if (!rc)
        rc = shape__number(c, 2, 0.0, &value);
    for (int i = 0; i < x.rank && rc == SH_OK; i++)
        if (__builtin_add_overflow(x.dims[i], pads[i], &x.dims[i]) ||
            __builtin_add_overflow(x.dims[i], pads[x.rank + i], &x.dims[i]))
            rc = shape__fail(c, SH_E_TOOBIG, "the pads are too large");
        else if (x.dims[i] < 0)
            rc = shape__fail(c, SH_E_INVALID, "the pads cut more than axis %d has", i);
    if (!rc)
        rc = graph_set_ints(&c->n, "pads", pads, 2 * (size_t)x.rank, c->err);
    if (!rc)
        rc = graph_set_float(&c->n, "value", value, c->err);
    graph__drop_attr(&c->n, "mode");
    shape__drop_inputs(c, 1);
    return rc ? rc : shape__out(c, 0, x.dtype, x.rank, x.dims);
}

int shape__infer_expand(struct shape_ctx *c)
{
    const struct graph_value *x = shape__in(c, 0);
    struct graph_value want = {.dtype = x->dtype};
    int64_t dims[SH_MAX_RANK];
    size_t k;
    int rank = 0, rc = shape__ints(c, 1, want.dims, SH_MAX_RANK, &k);

    want.rank = (int)k;
    for (size_t i = 0; i < k && rc == SH_OK; i++)
        if (want.dims[i] < 0)
            rc = shape__fail(c, SH_E_INVALID, "the shape holds %lld", (long long)want.dims[i]);
    if (!rc)
        rc = shape__broadcast(c, x, &want, &rank, dims);
    shape__drop_inputs(c, 1);
    return rc ? rc : shape__out(c, 0, x->dtype, rank, dims);
}

/* An expansion that only adds leading ones, or nothing, is a view. */
int shape__expand_to(struct shape_ctx *c, uint32_t from)
{
    const struct graph_value *x = &c->g->values[from], *y = shape__outv(c, 0);

    if (graph_elements(x) == graph_elements(y))
        return shape__reshape_to(c, from);
    return shape__emit(c, "Expand", &from, 1, c->outv[0], NULL);
}

int shape__finish_expand(struct shape_ctx *c)
{
    return shape__expand_to(c, c->n.in[0]);
}
