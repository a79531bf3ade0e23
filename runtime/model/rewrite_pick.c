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

static uint32_t integer(struct rewrite *w, int64_t v)
{
    return rw_number(w, SH_I64, (double)v);
}

/* ---------------------------------------------------------------- NonZero */

/* Of a constant: by axis. */
static int const_non_zero(struct shape_ctx *c)
{
    struct rewrite w = {.c = c};
    const struct graph_value x = *shape__in(c, 0);
    const int64_t n = graph_elements(&x);
    int64_t *at, dims[2] = {x.rank, 0}, k = 0;

    for (int64_t i = 0; i < n; i++)
        dims[1] += shape__get_f64(x.dtype, x.data, (size_t)i) != 0;
    at = rw_alloc(&w, SH_I64, dims[0] * dims[1]);
    for (int64_t i = 0; at && i < n; i++) {
        int64_t rest = i;

        if (shape__get_f64(x.dtype, x.data, (size_t)i) == 0)
            continue;
        for (int a = x.rank; a-- > 0; rest /= x.dims[a])
            at[a * dims[1] + k] = rest % x.dims[a];
        k++;
    }
    return rw_is(&w, 0, rw_const(&w, SH_I64, 2, dims, at));
}

int shape__rewrite_non_zero(struct shape_ctx *c)
{
    struct rewrite w = {.c = c, .rc = no_training(c)};
    const struct graph_value x = *shape__in(c, 0);
    uint32_t rows[SH_MAX_RANK], at;
    struct graph_number n;
    int64_t dims[2] = {1, graph_elements(&x)}, step = 1;

    if (x.data)
        return const_non_zero(c);
    if (x.rank == 0 && w.rc == SH_OK)
        return shape__fail(c, SH_E_UNSUPPORTED, WHY_COMPUTED, 0u);
    at = counted__places(&w, rw_in(&w, 0), &n);
    for (int a = x.rank; a-- > 0; step *= x.dims[a]) {
        rows[a] = a == x.rank - 1 ? at : rw2(&w, "Div", at, integer(&w, step));
        if (a > 0)
            rows[a] = rw2(&w, "Mod", rows[a], integer(&w, x.dims[a]));
        rows[a] = rw_reshape(&w, rows[a], 2, dims);
    }
    rw_is(&w, 0, x.rank == 1 ? rows[0] : rw_concat(&w, rows, (uint32_t)x.rank, 0));
    return w.rc ? w.rc : counted__is(c, 0, 1, n);
}

/* ---------------------------------------------------------------- Compress */

static uint32_t const_places(struct rewrite *w, const struct graph_value *q, int64_t n)
{
    int64_t *at = rw_alloc(w, SH_I64, n), k = 0;

    for (int64_t i = 0; at && i < n; i++)
        if (shape__get_i64(q->dtype, q->data, (size_t)i))
            at[k++] = i;
    return rw_const(w, SH_I64, 1, &k, at);
}

/* Rows (or, without an axis, elements) where a condition is true. */
int shape__rewrite_compress(struct shape_ctx *c)
{
    struct rewrite w = {.c = c};
    const struct graph_value x = *shape__in(c, 0), q = *shape__in(c, 1);
    uint32_t data = rw_in(&w, 0), at;
    int64_t axis = 0, all = graph_elements(&x), size;
    struct graph_number n;

    if (q.rank != 1 || q.dtype != SH_BOOL)
        return shape__fail(c, SH_E_INVALID, "the condition must be a list of BOOL");
    if (graph__attr(&c->n, "axis")) {
        w.rc = graph_int(&c->n, "axis", 0, &axis, c->err);
        if (w.rc == SH_OK)
            w.rc = shape__axis(c, axis, x.rank, &axis);
    } else {
        data = rw_reshape(&w, data, 1, &all);
    }
    if (w.rc)
        return w.rc;
    size = SH_MIN(q.dims[0], rw_v(&w, data)->dims[axis]);
    if (q.data)
        return rw_is(
            &w, 0, rw2_with(&w, "Gather", data, const_places(&w, &q, size), RW_INT("axis", axis)));
    w.rc = no_training(c);
    at = counted__places(&w, rw_slice(&w, rw_in(&w, 1), 0, 0, size, 1), &n);
    rw_is(&w, 0, rw2_with(&w, "Gather", data, at, RW_INT("axis", axis)));
    return w.rc ? w.rc : counted__is(c, 0, (int)axis, n);
}

/* ---------------------------------------------------------------- Unique */

/* Numbers in ascending order, of equal ones the first first, and where they were. */
static void sort(struct rewrite *w, uint32_t x, uint32_t out[2])
{
    const int64_t n = w->rc ? 1 : rw_v(w, x)->dims[0];
    struct graph_attr attrs[2] = {RW_INT("axis", 0), RW_INT("largest", 0)};
    const uint32_t in[2] = {x, rw_list(w, &n, 1)};
    const struct graph_node call = {.op = (char[]){"TopK"},
                                    .in = (uint32_t *)(uintptr_t)in,
                                    .n_in = 2,
                                    .n_out = 2,
                                    .attrs = attrs,
                                    .n_attrs = 2};

    if (w->rc == SH_OK)
        w->rc = shape__call(w->c, &call, out);
}

struct unique {
    struct rewrite w;
    int64_t n, columns; /* rows that are compared, and their numbers */
    uint32_t rows;      /* [n, columns] */
    uint32_t order;     /* [n]: the rows in ascending order */
    uint32_t is_new;    /* BOOL [n]: of those the first of its equals */
};

static uint32_t column(struct unique *u, uint32_t rows, int64_t k)
{
    return rw_reshape(&u->w, rw_slice(&u->w, rows, 1, k, k + 1, 1), 1, &u->n);
}

/* By the last number first: sorting keeps the order of equals. */
static void order_rows(struct unique *u)
{
    struct rewrite *w = &u->w;
    uint32_t sorted[2] = {GRAPH_NONE, GRAPH_NONE};

    for (int64_t k = u->columns; k-- > 0 && w->rc == SH_OK;) {
        uint32_t key = column(u, u->rows, k);

        if (k < u->columns - 1)
            key = rw2(w, "Gather", key, u->order);
        sort(w, key, sorted);
        u->order = k < u->columns - 1 ? rw2(w, "Gather", u->order, sorted[1]) : sorted[1];
    }
}

/* Does number k of a row differ from that of the row before? The first one does. NaN is NaN. */
static uint32_t differs(struct unique *u, uint32_t rows, int64_t k)
{
    struct rewrite *w = &u->w;
    const uint32_t x = column(u, rows, k);
    const uint32_t a = rw_slice(w, x, 0, 0, u->n - 1, 1), b = rw_slice(w, x, 0, 1, u->n, 1);
    const int64_t one = 1;
    uint32_t y = rw1(w, "Not", rw2(w, "Equal", a, b));
    bool *yes = rw_alloc(w, SH_BOOL, 1);

    if (w->rc == SH_OK && shape__is_float(rw_v(w, x)->dtype))
        y = rw2(w, "And", y, rw1(w, "Not", rw2(w, "And", rw1(w, "IsNaN", a), rw1(w, "IsNaN", b))));
    if (yes)
        *yes = true;
    return rw_concat(w, (const uint32_t[]){rw_const(w, SH_BOOL, 1, &one, yes), y}, 2, 0);
}

/* What is not there comes last of all: NaN, or the largest integer. */
static void read_rows(struct unique *u, const struct graph_value *x, bool has_axis, int axis)
{
    struct rewrite *w = &u->w;
    int64_t perm[SH_MAX_RANK], dims[2];
    uint32_t v = rw_in(w, 0);

    u->n = has_axis ? x->dims[axis] : graph_elements(x);
    u->columns = graph_elements(x) / u->n;
    dims[0] = u->n;
    dims[1] = u->columns;
    for (int i = 0, at = 1; i < x->rank; i++)
        if (i != axis)
            perm[at++] = i;
    perm[0] = axis;
    if (has_axis && x->rank > 1)
        v = rw_transpose(w, v, perm, x->rank);
    if (shape__wide(x->dtype) != x->dtype)
        v = rw_cast(w, v, shape__wide(x->dtype));
    u->rows = rw_reshape(w, v, 2, dims);
    if (x->counted)
        u->rows =
            rw3(w, "Where",
                rw_reshape(w, counted__first(w, x->count, u->n), 2, (int64_t[]){u->n, 1}), u->rows,
                rw_number(w, rw_v(w, u->rows)->dtype,
                          shape__is_float(x->dtype)           ? (double)NAN
                          : rw_v(w, u->rows)->dtype == SH_I32 ? INT32_MAX
                                                              : 0x1.fffffffffffffp62));
}

/* n times v, I64: no constant, whose size might follow from the batch. */
static uint32_t alike(struct unique *u, int64_t v)
{
    return rw2(&u->w, "Add", rw2(&u->w, "Sub", u->order, u->order), integer(&u->w, v));
}

/* Of each of the u->n rows `to[i]` becomes `v[i]`. */
static uint32_t put(struct unique *u, uint32_t to, uint32_t v)
{
    return rw3(&u->w, "ScatterElements", alike(u, 0), to, v);
}

struct found {
    uint32_t place;   /* of the first of each group of equals, in the order of the input */
    uint32_t number;  /* of its group, of each row in ascending order */
    uint32_t members; /* how many each group has */
    struct graph_number n;
};

static void group_rows(struct unique *u, const struct graph_value *x, struct found *f)
{
    struct rewrite *w = &u->w;
    const uint32_t rows = rw2(w, "Gather", u->rows, u->order);
    struct graph_attr add = RW_STR("reduction", "add");
    uint32_t at, in[3];

    u->is_new = differs(u, rows, 0);
    for (int64_t k = 1; k < u->columns; k++)
        u->is_new = rw2(w, "Or", u->is_new, differs(u, rows, k));
    if (x->counted)
        u->is_new = rw2(w, "And", u->is_new, counted__first(w, x->count, u->n));
    f->number = rw2(w, "Sub", rw2(w, "CumSum", rw_cast(w, u->is_new, SH_I64), integer(w, 0)),
                    integer(w, 1));
    in[0] = alike(u, 0);
    in[1] = f->number;
    in[2] = x->counted ? rw_cast(w, counted__first(w, x->count, u->n), SH_I64) : alike(u, 1);
    f->members = rw_node(w, "ScatterElements", in, 3, &add, 1);
    at = counted__places(w, u->is_new, &f->n);
    f->place = rw2(w, "Gather", u->order, at);
}

/* Groups in the order in which they begin. */
static void by_place(struct unique *u, struct found *f)
{
    struct rewrite *w = &u->w;
    const uint32_t first = counted__first(w, f->n.of, u->n);
    uint32_t sorted[2] = {GRAPH_NONE, GRAPH_NONE}, rank;

    sort(w, rw3(w, "Where", first, f->place, integer(w, u->n)), sorted);
    f->place = rw3(w, "Where", first, sorted[0], integer(w, 0));
    f->members = rw2(w, "Gather", f->members, sorted[1]);
    rank = put(u, sorted[1], rw2(w, "CumSum", alike(u, 1), integer(w, 0)));
    rank = rw2(w, "Sub", rank, integer(w, 1));
    f->number = rw2(w, "Gather", rank, f->number);
}

/* The rows in ascending order; equals lie together, and the first of them was the first. */
int shape__rewrite_unique(struct shape_ctx *c)
{
    struct unique u = {.w = {.c = c, .rc = no_training(c)}, .order = GRAPH_NONE};
    struct rewrite *w = &u.w;
    const struct graph_value x = *shape__in(c, 0);
    const bool has_axis = graph__attr(&c->n, "axis") != NULL;
    int64_t axis = 0, sorted = 1, all = graph_elements(&x);
    uint32_t y;
    struct found f;

    if (w->rc == SH_OK)
        w->rc = graph_int(&c->n, "sorted", 1, &sorted, c->err);
    if (w->rc == SH_OK && has_axis) {
        w->rc = graph_int(&c->n, "axis", 0, &axis, c->err);
        if (w->rc == SH_OK)
            w->rc = shape__axis(c, axis, x.rank, &axis);
    }
    if (w->rc == SH_OK && all < 1)
        return shape__fail(c, SH_E_UNSUPPORTED, WHY_EMPTY);
    if (w->rc == SH_OK && (has_axis ? all / x.dims[axis] : 1) > MAX_COLUMNS)
        return shape__fail(c, SH_E_UNSUPPORTED, WHY_COLUMNS, MAX_COLUMNS);
    if (w->rc == SH_OK && x.counted && (x.rank != 1 || x.counted != 1))
        return shape__fail(c, SH_E_UNSUPPORTED, WHY_COUNTED);
    if (w->rc)
        return w->rc;
    read_rows(&u, &x, has_axis, (int)axis);
    order_rows(&u);
    group_rows(&u, &x, &f);
    if (!sorted)
        by_place(&u, &f);
    y = has_axis ? rw_in(w, 0) : rw_reshape(w, rw_in(w, 0), 1, &all);
    rw_is(w, 0, rw2_with(w, "Gather", y, f.place, RW_INT("axis", has_axis ? axis : 0)));
    if (w->rc == SH_OK)
        w->rc = counted__is(c, 0, has_axis ? (int)axis : 0, f.n);
    for (uint32_t k = 1; k < c->n.n_out && w->rc == SH_OK; k++) {
        rw_is(w, k, k == 1 ? f.place : k == 2 ? put(&u, u.order, f.number) : f.members);
        if (w->rc == SH_OK && k != 2)
            w->rc = counted__is(c, k, 0, f.n);
        if (w->rc == SH_OK && k == 2 && x.counted)
            w->rc = counted__is(c, k, 0, counted__new(w, x.count, u.n));
    }
    return w->rc;
}

/* ---------------------------------------------------------------- NonMaxSuppression */

static int read_nms(struct shape_ctx *c, int64_t *most, double *overlap, double *score)
{
    const struct graph_value *boxes = shape__in(c, 0), *scores = shape__in(c, 1);
    double want = 0;
    int rc = shape__number(c, 2, 0, &want);

    if (!rc)
        rc = shape__number(c, 3, 0, overlap);
    if (!rc)
        rc = shape__number(c, 4, 0, score);
    if (!rc)
        rc = shape__want_float(c, 0);
    if (!rc)
        rc = shape__want_float(c, 1);
    if (!rc && (boxes->rank != 3 || scores->rank != 3 || boxes->dims[2] != 4 ||
                boxes->dims[0] != scores->dims[0] || boxes->dims[1] != scores->dims[2]))
        rc = shape__fail(c, SH_E_INVALID, "boxes and scores do not fit together");
    if (!rc && !(*overlap >= 0 && *overlap <= 1))
        rc = shape__fail(c, SH_E_INVALID, "the threshold %g is outside [0, 1]", *overlap);
    if (!rc && *score != *score)
        rc = shape__fail(c, SH_E_INVALID, "the threshold of scores is no number");
    if (rc)
        return rc;
    *most = want < 1 ? 0 : want > (double)boxes->dims[1] ? boxes->dims[1] : (int64_t)want;
    if (*most && scores->dims[0] * scores->dims[1] > MAX_ROWS / *most)
        return shape__fail(c, SH_E_UNSUPPORTED, WHY_MANY_ROWS, (long long)MAX_ROWS);
    return SH_OK;
}

int shape__rewrite_non_max_suppression(struct shape_ctx *c)
{
    struct rewrite w = {.c = c, .rc = no_training(c)};
    int64_t most = 0, dims[2] = {0, 3}, centred;
    double overlap = 0, score = 0;
    uint32_t out[2], node = 0;
    const bool any_score = !shape__has(c, 4);
    int rc = w.rc ? w.rc : read_nms(c, &most, &overlap, &score);

    if (!rc)
        rc = graph_int(&c->n, "center_point_box", 0, &centred, c->err);
    if (rc)
        return rc;
    dims[0] = shape__in(c, 1)->dims[0] * shape__in(c, 1)->dims[1] * most;
    if (dims[0] == 0)
        return rw_is(&w, 0, rw_const(&w, SH_I64, 2, dims, rw_alloc(&w, SH_I64, 0)));
    rc = shape__temp(c, "boxes", SH_I64, 2, dims, &out[0]);
    if (!rc)
        rc = shape__temp(c, "count", SH_I64, 0, NULL, &out[1]);
    if (!rc)
        rc =
            graph_add_node(c->g, c->n.name, "NonMaxSuppression", c->n.in, 2, out, 2, &node, c->err);
    if (!rc)
        rc = graph_set_int(&c->g->nodes[node], "center_point_box", centred != 0, c->err);
    if (!rc)
        rc = graph_set_int(&c->g->nodes[node], "most", most, c->err);
    if (!rc)
        rc = graph_set_float(&c->g->nodes[node], "overlap", overlap, c->err);
    if (!rc && !any_score)
        rc = graph_set_float(&c->g->nodes[node], "score", score, c->err);
    if (!rc)
        rc = rw_is(&w, 0, out[0]);
    return rc ? rc : counted__is(c, 0, 0, counted__new(&w, out[1], dims[0]));
}
