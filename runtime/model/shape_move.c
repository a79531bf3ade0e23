/* shape_move.c - shapes of operators that move elements without computing. */
#include "common/mem.h"
#include "common/preprocess.h"
#include "runtime/model/counted.h"

#include <stdlib.h>

static int as_reshape(struct shape_ctx *c, int rank, const int64_t *dims)
{
    enum sh_dtype t = shape__in(c, 0)->dtype;

    shape__set_op(c, "Reshape");
    shape__drop_inputs(c, 1);
    while (c->n.n_attrs > 0)
        graph__drop_attr(&c->n, c->n.attrs[0].name);
    return shape__out(c, 0, t, rank, dims);
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
    return c->err->rc;
}

int shape__infer_reshape(struct shape_ctx *c)
{
    const bool allow_zero = shape__int(c, "allowzero", 0) != 0;
    int64_t dims[SH_MAX_RANK];
    size_t k;

    if (c->n.n_in < 2)
        return shape__fail(c, SH_E_INVALID, "has no shape input");
    shape__ints(c, 1, dims, SH_MAX_RANK, &k);
    resolve_reshape(c, shape__in(c, 0), dims, k, allow_zero);
    return as_reshape(c, (int)k, dims);
}

int shape__infer_flatten(struct shape_ctx *c)
{
    const struct graph_value *x = shape__in(c, 0);
    int64_t axis = shape__int(c, "axis", 1), dims[2] = {1, 1};

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

    shape__ints(c, 1, axes, SH_MAX_RANK, k);
    *set = 0;
    for (size_t j = 0; j < *k; j++) {
        shape__axis(c, axes[j], rank, &axes[j]);
        *set |= 1u << axes[j];
    }
    return c->err->rc;
}

static int want_each_once(struct shape_ctx *c, uint32_t set, size_t k)
{
    if ((size_t)__builtin_popcount(set) != k)
        shape__fail(c, SH_E_INVALID, "an axis is there twice");
    return c->err->rc;
}

int shape__squeezed(struct shape_ctx *c, uint32_t *set)
{
    const struct graph_value *x = shape__in(c, 0);
    size_t k;

    axes_in(c, x->rank, set, &k);
    for (int i = 0; i < x->rank && !shape__has(c, 1); i++)
        *set |= (uint32_t)(x->dims[i] == 1) << i;
    for (int i = 0; i < x->rank; i++)
        if ((*set >> i & 1u) && x->dims[i] != 1)
            shape__fail(c, SH_E_INVALID, "cannot drop axis %d of size %lld", i,
                        (long long)x->dims[i]);
    return shape__has(c, 1) ? want_each_once(c, *set, k) : c->err->rc;
}

int shape__unsqueezed(struct shape_ctx *c, uint32_t *set, int *rank)
{
    int64_t axes[SH_MAX_RANK];
    size_t k;

    shape__ints(c, 1, axes, SH_MAX_RANK, &k);
    *rank = shape__in(c, 0)->rank + (int)k;
    if (*rank > SH_MAX_RANK)
        shape__fail(c, SH_E_UNSUPPORTED, WHY_AXES, SH_MAX_RANK);
    axes_in(c, *rank, set, &k);
    return want_each_once(c, *set, k);
}

int shape__reduced(struct shape_ctx *c, uint32_t *set)
{
    const int rank = shape__in(c, 0)->rank;
    size_t k;

    axes_in(c, rank, set, &k);
    if (!shape__int(c, "noop_with_empty_axes", 0) && k == 0)
        *set = (1u << rank) - 1u;
    return c->err->rc;
}

int shape__infer_squeeze(struct shape_ctx *c)
{
    const struct graph_value *x = shape__in(c, 0);
    int64_t dims[SH_MAX_RANK];
    uint32_t set;
    int rank = 0;

    shape__squeezed(c, &set);
    for (int i = 0; i < x->rank; i++)
        if (!(set >> i & 1u))
            dims[rank++] = x->dims[i];
    return as_reshape(c, rank, dims);
}

int shape__infer_unsqueeze(struct shape_ctx *c)
{
    const struct graph_value *x = shape__in(c, 0);
    int64_t dims[SH_MAX_RANK];
    uint32_t set;
    int rank, from = 0;

    shape__unsqueezed(c, &set, &rank);
    for (int i = 0; c->err->rc == SH_OK && i < rank; i++)
        dims[i] = (set >> i & 1u) ? 1 : x->dims[from++];
    return as_reshape(c, rank, dims);
}

int shape__infer_transpose(struct shape_ctx *c)
{
    const struct graph_value *x = shape__in(c, 0);
    int64_t perm[SH_MAX_RANK], dims[SH_MAX_RANK];
    uint32_t seen = 0;
    size_t k = shape__list(c, "perm", perm, SH_MAX_RANK);

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
    shape__set_list(c, "perm", perm, k);
    return shape__out(c, 0, x->dtype, x->rank, dims);
}

/* Made by onnx_pixels.c; a file may have anything of that name. */
int shape__infer_pixels(struct shape_ctx *c)
{
    const struct graph_value *x = shape__in(c, 0), *table = shape__in(c, 1);
    static const int64_t SAME[] = {0, 1, 2, 3}, FIRST[] = {0, 3, 1, 2}, LAST[] = {0, 2, 3, 1};
    int64_t perm[SH_MAX_RANK], dims[SH_MAX_RANK];
    const size_t k = shape__list(c, "perm", perm, SH_MAX_RANK);
    const int64_t axis = shape__int(c, "axis", -1);
    bool fits = x->dtype == SH_U8 && x->rank == 4 && k == 4 && (axis == 1 || axis == 3);

    fits = fits && (memcmp(perm, SAME, sizeof(SAME)) == 0 ||
                    memcmp(perm, axis == 1 ? FIRST : LAST, sizeof(SAME)) == 0);
    if (!fits || table->dtype != SH_F32 || !table->data)
        return shape__fail(c, SH_E_INVALID, "its inputs and attributes do not fit");
    for (int i = 0; i < 4; i++)
        dims[i] = x->dims[perm[i]];
    if (graph_elements(table) % SH_PREPROCESS_BYTES != 0 ||
        graph_elements(table) / SH_PREPROCESS_BYTES != dims[axis])
        return shape__fail(c, SH_E_INVALID, "its table has not 256 numbers for each channel");
    return shape__out(c, 0, SH_F32, 4, dims);
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
    const int64_t axis = shape__own_axis(c, 0, first.rank);

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
    size_t k;

    shape__ints(c, 1, sizes, n, &k);
    if (shape__has(c, 1) && k != n)
        shape__fail(c, SH_E_INVALID, "has %u outputs but %zu sizes", n, k);
    for (uint32_t i = 0; i < n; i++) {
        if (k == 0)
            sizes[i] = SH_MIN(each, whole - sum);
        if (sizes[i] < 0 || sizes[i] > whole - sum)
            shape__fail(c, SH_E_INVALID, "the parts do not fit into an axis of %lld",
                        (long long)whole);
        else
            sum += sizes[i];
    }
    if (sum != whole)
        shape__fail(c, SH_E_INVALID, "the parts sum to %lld, the axis has %lld", (long long)sum,
                    (long long)whole);
    return c->err->rc;
}

int shape__infer_split(struct shape_ctx *c)
{
    struct graph_value x = *shape__in(c, 0);
    const int64_t axis = shape__own_axis(c, 0, x.rank);
    int64_t *sizes;

    if (shape__has(c, 1) && c->err->rc == SH_OK && !shape__in(c, 1)->data)
        return counted__split_by(c, axis);
    sizes = calloc(c->n.n_out, sizeof(*sizes));
    if (!sizes)
        return shape__fail(c, SH_E_NOMEM, "could not allocate the parts of a split");
    split_sizes(c, x.dims[axis], sizes);
    for (uint32_t i = 0; i < c->n.n_out; i++) {
        x.dims[axis] = sizes[i];
        shape__out(c, i, x.dtype, x.rank, x.dims);
    }
    shape__drop_inputs(c, 1);
    free(sizes);
    return c->err->rc;
}

int shape__finish_split(struct shape_ctx *c)
{
    const int rank = shape__in(c, 0)->rank;
    const int64_t axis = shape__int(c, "axis", 0);
    int64_t start[SH_MAX_RANK] = {0}, step[SH_MAX_RANK];
    const struct graph_attr attrs[] = {RW_INTS("starts", start, rank),
                                       RW_INTS("steps", step, rank)};

    for (int i = 0; i < rank; i++)
        step[i] = 1;
    for (uint32_t i = 0; i < c->n.n_out; i++) {
        shape__emit(c, "Slice", c->n.in, 1, c->outv[i], attrs, 2);
        start[axis] += shape__outv(c, i)->dims[axis];
    }
    return c->err->rc;
}

/* One axis of a slice by ONNX's rules: start and end count from the end when negative, are clamped
 * to the axis, and INT64_MIN / MAX stand for "to the border". */
static int64_t clamp_slice(int64_t size, int64_t *start, int64_t end, int64_t step)
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

    shape__ints(c, 1, from, SH_MAX_RANK, &n);
    shape__ints(c, 2, to, SH_MAX_RANK, &n_to);
    shape__ints(c, 3, axes, SH_MAX_RANK, &n_axes);
    shape__ints(c, 4, by, SH_MAX_RANK, &n_by);
    if (n_to != n || (n_axes && n_axes != n) || (n_by && n_by != n) || n > (size_t)x.rank)
        return shape__fail(c, SH_E_INVALID, "starts, ends, axes and steps differ in length");
    for (int i = 0; i < x.rank; i++)
        step[i] = 1;
    for (size_t j = 0; j < n; j++) {
        int64_t a = (int64_t)j;

        if (n_axes && shape__axis(c, axes[j], x.rank, &a))
            return c->err->rc;
        if (seen >> a & 1u)
            return shape__fail(c, SH_E_INVALID, "axis %lld is there twice", (long long)a);
        if (n_by && (by[j] == 0 || by[j] == INT64_MIN))
            return shape__fail(c, SH_E_INVALID, "a step is %lld", (long long)by[j]);
        seen |= 1u << a;
        step[a] = n_by ? by[j] : 1;
        start[a] = from[j];
        x.dims[a] = clamp_slice(x.dims[a], &start[a], to[j], step[a]);
    }
    shape__drop_inputs(c, 1);
    shape__set_list(c, "starts", start, (size_t)x.rank);
    shape__set_list(c, "steps", step, (size_t)x.rank);
    return shape__out(c, 0, x.dtype, x.rank, x.dims);
}

/* pads: begins then ends, per named axis. */
static int read_pads(struct shape_ctx *c, int rank, int64_t *pads)
{
    int64_t given[2 * SH_MAX_RANK], axes[SH_MAX_RANK];
    size_t k, n_axes;

    shape__ints(c, 1, given, SH_ARRAY_LEN(given), &k);
    shape__ints(c, 3, axes, SH_MAX_RANK, &n_axes);
    if (!shape__has(c, 3))
        for (n_axes = 0; n_axes < (size_t)rank; n_axes++)
            axes[n_axes] = (int64_t)n_axes;
    if (k != 2 * n_axes)
        return shape__fail(c, SH_E_INVALID, "has %zu pads for %zu axes", k, n_axes);
    for (size_t j = 0; j < n_axes; j++) {
        int64_t a;

        shape__axis(c, axes[j], rank, &a);
        pads[a] = given[j];
        pads[rank + a] = given[n_axes + j];
    }
    return c->err->rc;
}

int shape__infer_pad(struct shape_ctx *c)
{
    struct graph_value x = *shape__in(c, 0);
    int64_t pads[2 * SH_MAX_RANK] = {0};
    const char *mode = shape__str(c, "mode", "constant");
    double value;

    read_pads(c, x.rank, pads);
    if (c->err->rc == SH_OK && strcmp(mode, "constant") != 0)
        return shape__pad_from_data(c, mode, pads);
    shape__number(c, 2, 0.0, &value);
    for (int i = 0; i < x.rank; i++)
        if (__builtin_add_overflow(x.dims[i], pads[i], &x.dims[i]) ||
            __builtin_add_overflow(x.dims[i], pads[x.rank + i], &x.dims[i]))
            shape__fail(c, SH_E_TOOBIG, "the pads are too large");
        else if (x.dims[i] < 0)
            shape__fail(c, SH_E_INVALID, "the pads cut more than axis %d has", i);
    shape__set_list(c, "pads", pads, 2 * (size_t)x.rank);
    shape__set_float(c, "value", value);
    graph__drop_attr(&c->n, "mode");
    shape__drop_inputs(c, 1);
    return shape__out(c, 0, x.dtype, x.rank, x.dims);
}

int shape__infer_expand(struct shape_ctx *c)
{
    const struct graph_value *x = shape__in(c, 0);
    struct graph_value want = {.dtype = x->dtype};
    int64_t dims[SH_MAX_RANK];
    size_t k;
    int rank = 0;

    shape__ints(c, 1, want.dims, SH_MAX_RANK, &k);
    want.rank = (int)k;
    for (size_t i = 0; i < k; i++)
        if (want.dims[i] < 0)
            shape__fail(c, SH_E_INVALID, "the shape holds %lld", (long long)want.dims[i]);
    shape__broadcast(c, x, &want, &rank, dims);
    shape__drop_inputs(c, 1);
    return shape__out(c, 0, x->dtype, rank, dims);
}

/* An expansion that only adds leading ones, or nothing, is a view. */
int shape__expand_to(struct shape_ctx *c, uint32_t from)
{
    const struct graph_value *x = &c->g->values[from], *y = shape__outv(c, 0);

    if (graph_elements(x) == graph_elements(y))
        return shape__reshape_to(c, from);
    return shape__emit(c, "Expand", &from, 1, c->outv[0], NULL, 0);
}

int shape__finish_expand(struct shape_ctx *c)
{
    return shape__expand_to(c, c->n.in[0]);
}
