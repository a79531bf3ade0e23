/* rewrite_pick.c - operators whose number of results depends on the data (counted.h): NonZero,
 * Compress, Unique, NonMaxSuppression.
 */
#include "common/mem.h"
#include "runtime/model/counted.h"

#include <math.h>

#define MAX_COLUMNS 64              /* Unique of rows: one sort for each number of a row */
#define MAX_ROWS ((int64_t)1 << 24) /* NonMaxSuppression */

static int no_training(struct shape_ctx *c)
{
    return c->training ? shape__fail(c, SH_E_UNSUPPORTED, WHY_SIZE) : SH_OK;
}

static uint32_t integer(struct shape_ctx *c, int64_t v)
{
    return rw_number(c, SH_I64, (double)v);
}

/* ---------------------------------------------------------------- NonZero */

/* Of a constant: by axis. */
static int const_non_zero(struct shape_ctx *c)
{
    const struct graph_value x = *shape__in(c, 0);
    const int64_t n = graph_elements(&x);
    int64_t *at, dims[2] = {x.rank, 0}, k = 0;

    for (int64_t i = 0; i < n; i++)
        dims[1] += shape__get_f64(x.dtype, x.data, (size_t)i) != 0;
    at = rw_alloc(c, SH_I64, dims[0] * dims[1]);
    for (int64_t i = 0; at && i < n; i++) {
        int64_t rest = i;

        if (shape__get_f64(x.dtype, x.data, (size_t)i) == 0)
            continue;
        for (int a = x.rank; a-- > 0; rest /= x.dims[a])
            at[a * dims[1] + k] = rest % x.dims[a];
        k++;
    }
    return rw_is(c, 0, rw_const(c, SH_I64, 2, dims, at));
}

int shape__rewrite_non_zero(struct shape_ctx *c)
{
    const struct graph_value x = *shape__in(c, 0);
    uint32_t rows[SH_MAX_RANK], at;
    struct graph_number n;
    int64_t dims[2] = {1, graph_elements(&x)}, step = 1;

    if (x.data)
        return const_non_zero(c);
    if (x.rank == 0 && c->err->rc == SH_OK)
        return shape__fail(c, SH_E_UNSUPPORTED, WHY_COMPUTED, 0u);
    at = counted__places(c, rw_in(c, 0), &n);
    for (int a = x.rank; a-- > 0; step *= x.dims[a]) {
        rows[a] = a == x.rank - 1 ? at : rw2(c, "Div", at, integer(c, step));
        if (a > 0)
            rows[a] = rw2(c, "Mod", rows[a], integer(c, x.dims[a]));
        rows[a] = rw_reshape(c, rows[a], 2, dims);
    }
    rw_is(c, 0, x.rank == 1 ? rows[0] : rw_concat(c, rows, (uint32_t)x.rank, 0));
    return counted__is(c, 0, 1, n);
}

/* ---------------------------------------------------------------- PutMasked */

/* Is the mask for all of x, as NonZero has it? That may be one for a part: x[:, :2][mask] = v. */
static bool covers_all(const struct graph_value *x, const struct graph_value *mask,
                       const struct graph_value *cover)
{
    bool is = mask->dtype == SH_BOOL && mask->rank >= 1 && mask->rank <= x->rank &&
              cover->rank == x->rank;

    for (int i = 0; i < x->rank && is; i++)
        is = cover->dims[i] == x->dims[i] && (i >= mask->rank || mask->dims[i] == x->dims[i]);
    return is;
}

/* Is v broadcast to x[mask] what the file makes of it, which may have other axes for the same
 * numbers? It is if v has all numbers of an element of the mask, or a single one, or if what they
 * are repeated along are axes in front alone. */
static bool repeats_in_front(const struct graph_value *x, int from, const struct graph_value *v)
{
    int64_t all = 1, rest = 1;
    int rank = v->rank;
    bool has_one = false, is = true;

    while (rank > 0 && v->dims[v->rank - rank] == 1)
        rank--;
    if (rank > x->rank - from)
        return false;
    for (int i = from; i < x->rank; i++)
        rest *= x->dims[i];
    for (int i = 1; i <= rank && is; i++) {
        is = v->dims[v->rank - i] == x->dims[x->rank - i];
        has_one = has_one || v->dims[v->rank - i] == 1;
        all *= v->dims[v->rank - i];
    }
    return is && (all == rest || !has_one);
}

/* x where a mask over its first axes is true: v, whose rows are those of the true elements, in
 * their order; or one v for all of them (masked.c). */
int shape__rewrite_put_masked(struct shape_ctx *c)
{
    const struct graph_value x = *shape__in(c, 0), mask = *shape__in(c, 1), v = *shape__in(c, 2);
    const bool is_one = v.rank + mask.rank <= x.rank || (v.dims[0] == 1 && !v.counted);
    int64_t axes[SH_MAX_RANK];
    uint32_t at = rw_in(c, 1);

    if (!covers_all(&x, &mask, shape__in(c, 3)))
        return shape__fail(c, SH_E_UNSUPPORTED, "the mask is not one for all of what it writes to");
    if (v.rank + mask.rank > x.rank + 1 || (is_one && !repeats_in_front(&x, mask.rank, &v)))
        return shape__fail(c, SH_E_UNSUPPORTED,
                           "what is put where the mask is true has other axes than are there");
    if (!is_one) {
        at = rw_transpose(c, rw1(c, "NonZero", at), (const int64_t[]){1, 0}, 2);
        return rw_is(c, 0, rw3(c, "ScatterND", rw_in(c, 0), at, rw_in(c, 2)));
    }
    for (int i = mask.rank; i < x.rank; i++)
        axes[i - mask.rank] = i;
    if (mask.rank < x.rank)
        at = rw2(c, "Unsqueeze", at, rw_list(c, axes, x.rank - mask.rank));
    return rw_is(c, 0, rw3(c, "Where", at, rw_in(c, 2), rw_in(c, 0)));
}

/* ---------------------------------------------------------------- Compress */

static uint32_t const_places(struct shape_ctx *c, const struct graph_value *q, int64_t n)
{
    int64_t *at = rw_alloc(c, SH_I64, n), k = 0;

    for (int64_t i = 0; at && i < n; i++)
        if (shape__get_i64(q->dtype, q->data, (size_t)i))
            at[k++] = i;
    return rw_const(c, SH_I64, 1, &k, at);
}

/* Rows (or, without an axis, elements) where a condition is true. */
int shape__rewrite_compress(struct shape_ctx *c)
{
    const struct graph_value x = *shape__in(c, 0), q = *shape__in(c, 1);
    uint32_t data = rw_in(c, 0), at;
    int64_t axis = 0, all = graph_elements(&x), size;
    struct graph_number n;

    if (q.rank != 1 || q.dtype != SH_BOOL)
        return shape__fail(c, SH_E_INVALID, "the condition must be a list of BOOL");
    if (graph__attr(&c->n, "axis")) {
        axis = shape__int(c, "axis", 0);
        shape__axis(c, axis, x.rank, &axis);
    } else {
        data = rw_reshape(c, data, 1, &all);
    }
    if (c->err->rc)
        return c->err->rc;
    size = SH_MIN(q.dims[0], rw_v(c, data)->dims[axis]);
    if (q.data)
        return rw_is(c, 0,
                     rw2_with(c, "Gather", data, const_places(c, &q, size), RW_INT("axis", axis)));
    at = counted__places(c, rw_slice(c, rw_in(c, 1), 0, 0, size, 1), &n);
    rw_is(c, 0, rw2_with(c, "Gather", data, at, RW_INT("axis", axis)));
    return counted__is(c, 0, (int)axis, n);
}

/* ---------------------------------------------------------------- Unique */

/* Numbers in ascending order, of equal ones the first first, and where they were. */
static void sort_values(struct shape_ctx *c, uint32_t x, uint32_t out[2])
{
    const int64_t n = c->err->rc ? 1 : rw_v(c, x)->dims[0];
    struct graph_attr attrs[2] = {RW_INT("axis", 0), RW_INT("largest", 0)};
    const uint32_t in[2] = {x, rw_list(c, &n, 1)};
    const struct graph_node call = {.op = (char[]){"TopK"},
                                    .in = (uint32_t *)(uintptr_t)in,
                                    .n_in = 2,
                                    .n_out = 2,
                                    .attrs = attrs,
                                    .n_attrs = 2};

    shape__call(c, &call, out);
}

struct unique {
    struct shape_ctx *c;
    int64_t n, columns; /* rows that are compared, and their numbers */
    uint32_t rows;      /* [n, columns] */
    uint32_t order;     /* [n]: the rows in ascending order */
    uint32_t is_new;    /* BOOL [n]: of those the first of its equals */
};

static uint32_t row_column(struct unique *u, uint32_t rows, int64_t k)
{
    return rw_reshape(u->c, rw_slice(u->c, rows, 1, k, k + 1, 1), 1, &u->n);
}

/* By the last number first: sorting keeps the order of equals. */
static void order_rows(struct unique *u)
{
    struct shape_ctx *c = u->c;
    uint32_t sorted[2] = {GRAPH_NONE, GRAPH_NONE};

    for (int64_t k = u->columns; k-- > 0 && c->err->rc == SH_OK;) {
        uint32_t key = row_column(u, u->rows, k);

        if (k < u->columns - 1)
            key = rw2(c, "Gather", key, u->order);
        sort_values(c, key, sorted);
        u->order = k < u->columns - 1 ? rw2(c, "Gather", u->order, sorted[1]) : sorted[1];
    }
}

/* Does number k of a row differ from that of the row before? The first one does. NaN is NaN. */
static uint32_t differs_from_before(struct unique *u, uint32_t rows, int64_t k)
{
    struct shape_ctx *c = u->c;
    const uint32_t x = row_column(u, rows, k);
    const uint32_t a = rw_slice(c, x, 0, 0, u->n - 1, 1), b = rw_slice(c, x, 0, 1, u->n, 1);
    const int64_t one = 1;
    uint32_t y = rw1(c, "Not", rw2(c, "Equal", a, b));
    bool *yes = rw_alloc(c, SH_BOOL, 1);

    if (c->err->rc == SH_OK && shape__is_float(rw_v(c, x)->dtype))
        y = rw2(c, "And", y, rw1(c, "Not", rw2(c, "And", rw1(c, "IsNaN", a), rw1(c, "IsNaN", b))));
    if (yes)
        *yes = true;
    return rw_concat(c, (const uint32_t[]){rw_const(c, SH_BOOL, 1, &one, yes), y}, 2, 0);
}

/* What is not there comes last of all: NaN, or the largest integer. */
static void read_unique_rows(struct unique *u, const struct graph_value *x, bool has_axis, int axis)
{
    struct shape_ctx *c = u->c;
    int64_t perm[SH_MAX_RANK], dims[2];
    uint32_t v = rw_in(c, 0);

    u->n = has_axis ? x->dims[axis] : graph_elements(x);
    u->columns = graph_elements(x) / u->n;
    dims[0] = u->n;
    dims[1] = u->columns;
    for (int i = 0, at = 1; i < x->rank; i++)
        if (i != axis)
            perm[at++] = i;
    perm[0] = axis;
    if (has_axis && x->rank > 1)
        v = rw_transpose(c, v, perm, x->rank);
    if (shape__wide(x->dtype) != x->dtype)
        v = rw_cast(c, v, shape__wide(x->dtype));
    u->rows = rw_reshape(c, v, 2, dims);
    if (x->counted)
        u->rows =
            rw3(c, "Where",
                rw_reshape(c, counted__first(c, x->count, u->n), 2, (int64_t[]){u->n, 1}), u->rows,
                rw_number(c, rw_v(c, u->rows)->dtype,
                          shape__is_float(x->dtype)           ? (double)NAN
                          : rw_v(c, u->rows)->dtype == SH_I32 ? INT32_MAX
                                                              : 0x1.fffffffffffffp62));
}

/* n times v, I64: no constant, whose size might follow from the batch. */
static uint32_t alike(struct unique *u, int64_t v)
{
    return rw2(u->c, "Add", rw2(u->c, "Sub", u->order, u->order), integer(u->c, v));
}

/* Of each of the u->n rows `to[i]` becomes `v[i]`. */
static uint32_t scatter_rows(struct unique *u, uint32_t to, uint32_t v)
{
    return rw3(u->c, "ScatterElements", alike(u, 0), to, v);
}

struct found {
    uint32_t place;   /* of the first of each group of equals, in the order of the input */
    uint32_t number;  /* of its group, of each row in ascending order */
    uint32_t members; /* how many each group has */
    struct graph_number n;
};

static void group_rows(struct unique *u, const struct graph_value *x, struct found *f)
{
    struct shape_ctx *c = u->c;
    const uint32_t rows = rw2(c, "Gather", u->rows, u->order);
    struct graph_attr add = RW_STR("reduction", "add");
    uint32_t at, in[3];

    u->is_new = differs_from_before(u, rows, 0);
    for (int64_t k = 1; k < u->columns; k++)
        u->is_new = rw2(c, "Or", u->is_new, differs_from_before(u, rows, k));
    if (x->counted)
        u->is_new = rw2(c, "And", u->is_new, counted__first(c, x->count, u->n));
    f->number = rw2(c, "Sub", rw2(c, "CumSum", rw_cast(c, u->is_new, SH_I64), integer(c, 0)),
                    integer(c, 1));
    in[0] = alike(u, 0);
    in[1] = f->number;
    in[2] = x->counted ? rw_cast(c, counted__first(c, x->count, u->n), SH_I64) : alike(u, 1);
    f->members = rw_node(c, "ScatterElements", in, 3, &add, 1);
    at = counted__places(c, u->is_new, &f->n);
    f->place = rw2(c, "Gather", u->order, at);
}

/* Groups in the order in which they begin. */
static void order_by_place(struct unique *u, struct found *f)
{
    struct shape_ctx *c = u->c;
    const uint32_t first = counted__first(c, f->n.of, u->n);
    uint32_t sorted[2] = {GRAPH_NONE, GRAPH_NONE}, rank;

    sort_values(c, rw3(c, "Where", first, f->place, integer(c, u->n)), sorted);
    f->place = rw3(c, "Where", first, sorted[0], integer(c, 0));
    f->members = rw2(c, "Gather", f->members, sorted[1]);
    rank = scatter_rows(u, sorted[1], rw2(c, "CumSum", alike(u, 1), integer(c, 0)));
    rank = rw2(c, "Sub", rank, integer(c, 1));
    f->number = rw2(c, "Gather", rank, f->number);
}

/* The rows in ascending order; equals lie together, and the first of them was the first. */
int shape__rewrite_unique(struct shape_ctx *c)
{
    struct unique u = {.c = c, .order = GRAPH_NONE};
    const struct graph_value x = *shape__in(c, 0);
    const bool has_axis = graph__attr(&c->n, "axis") != NULL;
    int64_t axis = 0, sorted = 1, all = graph_elements(&x);
    uint32_t y;
    struct found f;

    no_training(c);
    sorted = shape__int(c, "sorted", 1);
    if (c->err->rc == SH_OK && has_axis) {
        axis = shape__int(c, "axis", 0);
        shape__axis(c, axis, x.rank, &axis);
    }
    if (c->err->rc == SH_OK && all < 1)
        return shape__fail(c, SH_E_UNSUPPORTED, WHY_EMPTY);
    if (c->err->rc == SH_OK && (has_axis ? all / x.dims[axis] : 1) > MAX_COLUMNS)
        return shape__fail(c, SH_E_UNSUPPORTED, WHY_COLUMNS, MAX_COLUMNS);
    if (c->err->rc == SH_OK && x.counted && (x.rank != 1 || x.counted != 1))
        return shape__fail(c, SH_E_UNSUPPORTED, WHY_COUNTED);
    if (c->err->rc)
        return c->err->rc;
    read_unique_rows(&u, &x, has_axis, (int)axis);
    order_rows(&u);
    group_rows(&u, &x, &f);
    if (!sorted)
        order_by_place(&u, &f);
    y = has_axis ? rw_in(c, 0) : rw_reshape(c, rw_in(c, 0), 1, &all);
    rw_is(c, 0, rw2_with(c, "Gather", y, f.place, RW_INT("axis", has_axis ? axis : 0)));
    counted__is(c, 0, has_axis ? (int)axis : 0, f.n);
    for (uint32_t k = 1; k < c->n.n_out; k++) {
        rw_is(c, k, k == 1 ? f.place : k == 2 ? scatter_rows(&u, u.order, f.number) : f.members);
        if (k != 2)
            counted__is(c, k, 0, f.n);
        else if (x.counted)
            counted__is(c, k, 0, counted__new(c, x.count, u.n));
    }
    return c->err->rc;
}

/* ---------------------------------------------------------------- NonMaxSuppression */

static int read_nms(struct shape_ctx *c, int64_t *most, double *overlap, double *score)
{
    const struct graph_value *boxes = shape__in(c, 0), *scores = shape__in(c, 1);
    double want;

    no_training(c);
    shape__number(c, 2, 0, &want);
    shape__number(c, 3, 0, overlap);
    shape__number(c, 4, 0, score);
    shape__want_float(c, 0);
    shape__want_float(c, 1);
    if (boxes->rank != 3 || scores->rank != 3 || boxes->dims[2] != 4 ||
        boxes->dims[0] != scores->dims[0] || boxes->dims[1] != scores->dims[2])
        return shape__fail(c, SH_E_INVALID, "boxes and scores do not fit together");
    if (!(*overlap >= 0 && *overlap <= 1))
        return shape__fail(c, SH_E_INVALID, "the threshold %g is outside [0, 1]", *overlap);
    if (*score != *score)
        return shape__fail(c, SH_E_INVALID, "the threshold of scores is no number");
    *most = want < 1 ? 0 : want > (double)boxes->dims[1] ? boxes->dims[1] : (int64_t)want;
    if (*most && scores->dims[0] * scores->dims[1] > MAX_ROWS / *most)
        return shape__fail(c, SH_E_UNSUPPORTED, WHY_MANY_ROWS, (long long)MAX_ROWS);
    return c->err->rc;
}

int shape__rewrite_non_max_suppression(struct shape_ctx *c)
{
    const bool any_score = !shape__has(c, 4);
    int64_t most = 0, dims[2] = {0, 3}, centred;
    double overlap, score;
    uint32_t out[2];
    struct graph_node *node;

    if (read_nms(c, &most, &overlap, &score))
        return c->err->rc;
    centred = shape__int(c, "center_point_box", 0);
    dims[0] = shape__in(c, 1)->dims[0] * shape__in(c, 1)->dims[1] * most;
    if (dims[0] == 0)
        return rw_is(c, 0, rw_const(c, SH_I64, 2, dims, rw_alloc(c, SH_I64, 0)));
    shape__temp(c, "boxes", SH_I64, 2, dims, &out[0]);
    if (shape__temp(c, "count", SH_I64, 0, NULL, &out[1]) ||
        graph_add_node(c->g, c->n.name, "NonMaxSuppression", c->n.in, 2, out, 2, NULL, c->err))
        return c->err->rc;
    node = &c->g->nodes[c->g->n_nodes - 1];
    graph_set_int(node, "center_point_box", centred != 0, c->err);
    graph_set_int(node, "most", most, c->err);
    graph_set_float(node, "overlap", overlap, c->err);
    if (!any_score)
        graph_set_float(node, "score", score, c->err);
    rw_is(c, 0, out[0]);
    return counted__is(c, 0, 0, counted__new(c, out[1], dims[0]));
}
