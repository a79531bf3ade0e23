/* counted_shape.c - rules of counted.h for operators that reshape, cut or join tensors.
 */
#include "common/mem.h"
#include "runtime/model/counted_int.h"

#include <stdlib.h>

static int steps_with_count(struct counted *k, int axis, struct graph_number n)
{
    int rc = k->c->err->rc ? k->c->err->rc : shape__steps(k->c, k->op);

    return rc ? rc : counted__is(k->c, 0, axis, n);
}

static int64_t dims_product(const int64_t *dims, int from, int to)
{
    int64_t n = 1;

    for (int i = from; i < to; i++)
        n *= dims[i];
    return n;
}

/* ---------------------------------------------------------------- sizes as data */

int counted__shape(struct counted *k)
{
    const struct graph_value x = *shape__in(k->c, 0);
    struct graph_number n[SH_MAX_RANK];
    int64_t start = 0;
    int rc = shape__steps(k->c, k->op), at;

    if (!rc)
        rc = graph_int(&k->c->n, "start", 0, &start, k->c->err);
    if (rc)
        return rc;
    for (int64_t i = 0; i < shape__outv(k->c, 0)->dims[0]; i++)
        n[i] = number__const(x.dims[start + i]);
    at = counted__axis(&x) - (int)start;
    if (at < 0 || at >= shape__outv(k->c, 0)->dims[0])
        return SH_OK;
    n[at] = number__any(k->c, x.count);
    return counted__is_numbers(k, 0, n);
}

int counted__size(struct counted *k)
{
    const struct graph_value x = *shape__in(k->c, 0);
    const int64_t rest = graph_elements(&x) / x.dims[counted__axis(&x)];
    struct graph_number n;
    int rc = shape__steps(k->c, k->op);

    if (rc)
        return rc;
    n = number__op(k->c, "Mul", number__any(k->c, x.count), number__const(rest));
    return k->c->err->rc ? k->c->err->rc : counted__is_numbers(k, 0, &n);
}

/* The numbers of input i, a list of sizes; *n: how many. */
static int sizes_in(struct counted *k, uint32_t i, struct graph_number *out, size_t most, size_t *n)
{
    const struct graph_value *v;

    *n = 0;
    if (!shape__has(k->c, i))
        return SH_OK;
    v = shape__in(k->c, i);
    if (v->rank > 1 || (v->dtype != SH_I64 && v->dtype != SH_I32))
        return shape__fail(k->c, SH_E_INVALID, "input %u must be a list of numbers", i);
    if (graph_elements(v) > (int64_t)most)
        return shape__fail(k->c, SH_E_UNSUPPORTED, WHY_NUMBERS, i, (long long)graph_elements(v),
                           most);
    for (; (int64_t)*n < graph_elements(v); ++*n)
        if (!number__get(v, *n, &out[*n]))
            return shape__computed(k->c, i);
    return SH_OK;
}

static int set_sizes(struct counted *k, uint32_t i, const int64_t *dims, int n)
{
    const uint32_t v = rw_list(k->c, dims, n);

    if (k->c->err->rc == SH_OK)
        k->c->n.in[i] = v;
    return k->c->err->rc;
}

/* ---------------------------------------------------------------- views */

/* x seen with other axes: of before * n * after elements, those of the first ones of n are there.
 */
struct view {
    int64_t before, size, after;
    struct graph_number n;
};

static struct view counted_view(struct counted *k)
{
    const struct graph_value *x = shape__in(k->c, 0);
    const int axis = counted__axis(x);

    return (struct view){.before = dims_product(x->dims, 0, axis),
                         .size = x->dims[axis],
                         .after = dims_product(x->dims, axis + 1, x->rank),
                         .n = number__any(k->c, x->count)};
}

int counted__unsqueeze(struct counted *k)
{
    const struct graph_value x = *shape__in(k->c, 0);
    const struct view v = counted_view(k);
    uint32_t set;
    int rank, out = -1, rc = shape__unsqueezed(k->c, &set, &rank);

    for (int i = 0, from = 0; !rc && i < rank && out < 0; i++)
        if (!(set >> i & 1u) && from++ == counted__axis(&x))
            out = i;
    return rc ? rc : steps_with_count(k, out, v.n);
}

int counted__squeeze(struct counted *k)
{
    const struct view v = counted_view(k);
    const int axis = counted__axis_in(k, 0);
    uint32_t set;
    int out = axis, rc = shape__squeezed(k->c, &set);

    if (!rc && (set >> axis & 1u))
        return counted__refuse(k, WHY_COUNTED);
    for (int i = 0; !rc && i < axis; i++)
        out -= set >> i & 1u;
    return rc ? rc : steps_with_count(k, out, v.n);
}

/* The axis becomes one with those behind it, `factor` of them each. */
static struct graph_number number_times(struct counted *k, struct graph_number n, int64_t factor)
{
    return number__op(k->c, "Mul", n, number__const(factor));
}

int counted__flatten(struct counted *k)
{
    const struct graph_value x = *shape__in(k->c, 0);
    const struct view v = counted_view(k);
    const int at = counted__axis(&x);
    int64_t axis;
    int rc = graph_int(&k->c->n, "axis", 1, &axis, k->c->err);

    if (rc)
        return rc;
    axis += axis < 0 ? x.rank : 0;
    if (axis < 0 || axis > x.rank || dims_product(x.dims, at < axis ? 0 : (int)axis, at) != 1)
        return counted__refuse(k, WHY_COUNTED_VIEW);
    return steps_with_count(
        k, at < axis ? 0 : 1,
        number_times(k, v.n, dims_product(x.dims, at + 1, at < axis ? (int)axis : x.rank)));
}

struct target { /* of a Reshape */
    struct graph_number n[SH_MAX_RANK];
    int64_t dims[SH_MAX_RANK]; /* at the bound */
    size_t rank;
    int open, rest; /* which one follows from a count; which one is -1; -1: none */
    int64_t fixed;  /* product of the others */
};

static int read_target(struct counted *k, struct target *t)
{
    const struct graph_value *x = shape__in(k->c, 0);
    int64_t zero;
    int rc = graph_int(&k->c->n, "allowzero", 0, &zero, k->c->err);

    *t = (struct target){.open = -1, .rest = -1, .fixed = 1};
    if (!rc)
        rc = sizes_in(k, 1, t->n, SH_MAX_RANK, &t->rank);
    for (size_t i = 0; i < t->rank && !rc; i++) {
        struct graph_number *n = &t->n[i];

        if (number__is_const(n) && n->lo == 0 && !zero && i < (size_t)x->rank)
            *n = counted__axis(x) == (int)i ? number__any(k->c, x->count)
                                            : number__const(x->dims[i]);
        if (number__is_const(n) && n->lo == -1 && t->rest < 0) {
            t->rest = (int)i;
        } else if (!number__is_const(n)) {
            if (t->open >= 0)
                return counted__refuse(k, WHY_COUNTS_TWO);
            t->open = (int)i;
        } else if (n->lo < 0 || __builtin_mul_overflow(t->fixed, n->lo, &t->fixed)) {
            return shape__fail(k->c, SH_E_INVALID, "the shape holds %lld at place %zu",
                               (long long)n->lo, i);
        }
        t->dims[i] = n->lo;
    }
    return rc;
}

/* Sizes at the bound, and of the axis that is counted in the result how many there are. */
static int solve_target(struct counted *k, const struct view *v, struct target *t,
                        struct graph_number *n)
{
    const int64_t rest = v->before * v->after;

    if (t->fixed < 1 || (t->open < 0 && t->rest < 0))
        return counted__refuse(k, WHY_COUNTED_VIEW);
    *n = v->n;
    if (t->open >= 0 && number__same(k->c->g, &t->n[t->open], &v->n)) {
        t->dims[t->open] = v->size;
        if (t->rest >= 0)
            t->dims[t->rest] = rest / t->fixed;
        if (rest % t->fixed || (t->rest < 0 && rest != t->fixed))
            return counted__refuse(k, WHY_COUNTED_VIEW);
        return SH_OK;
    }
    if (t->open >= 0 && t->rest >= 0)
        return counted__refuse(k, WHY_COUNTED_VIEW);
    t->open = t->open >= 0 ? t->open : t->rest;
    if (rest % t->fixed == 0) {
        *n = number_times(k, v->n, rest / t->fixed);
        t->dims[t->open] = v->size * (rest / t->fixed);
    } else if (t->fixed % rest == 0 && v->size >= t->fixed / rest && rest == 1) {
        const int64_t each = t->fixed;
        const uint32_t cut = rw_slice(k->c, k->c->n.in[0], counted__axis(shape__in(k->c, 0)), 0,
                                      v->size / each * each, 1);

        *n = number__op(k->c, "Div", v->n, number__const(each));
        t->dims[t->open] = v->size / each;
        if (k->c->err->rc == SH_OK)
            k->c->n.in[0] = cut;
    } else {
        return counted__refuse(k, WHY_COUNTED_VIEW);
    }
    return k->c->err->rc;
}

int counted__reshape(struct counted *k)
{
    struct graph_number n;
    struct target t;
    struct view v;
    int64_t before, after;
    int rc;

    if (counted__axis_in(k, 0) < 0)
        return counted__refuse(k, WHY_COUNTED_VIEW);
    v = counted_view(k);
    rc = read_target(k, &t);
    if (!rc)
        rc = solve_target(k, &v, &t, &n);
    if (rc)
        return rc;
    before = dims_product(t.dims, 0, t.open);
    after = dims_product(t.dims, t.open + 1, (int)t.rank);
    /* What is there stays in front: of all, or of each row as before. */
    if (!(before == 1 && v.before == 1) && !(before == v.before && after == v.after))
        return counted__refuse(k, WHY_COUNTED_VIEW);
    rc = set_sizes(k, 1, t.dims, (int)t.rank);
    return rc ? rc : steps_with_count(k, t.open, n);
}

/* ---------------------------------------------------------------- more of the same */

int counted__expand(struct counted *k)
{
    const struct graph_value x = *shape__in(k->c, 0);
    struct graph_number want[SH_MAX_RANK], n = {0};
    int64_t dims[SH_MAX_RANK];
    int rank, axis = -1, rc;
    size_t count;

    rc = sizes_in(k, 1, want, SH_MAX_RANK, &count);
    if (rc)
        return rc;
    rank = SH_MAX(x.rank, (int)count);
    for (int i = 0; i < rank; i++) {
        const int from = i - (rank - x.rank), to = i - (rank - (int)count);
        const bool open = to >= 0 && !number__is_const(&want[to]);
        const bool counted = from >= 0 && from == counted__axis(&x);
        const struct graph_number own = counted ? number__any(k->c, x.count) : number__const(0);

        dims[i] = to >= 0 ? want[to].hi : 1;
        if (!open && !counted)
            continue;
        if (axis >= 0)
            return counted__refuse(k, WHY_COUNTS_TWO);
        if (counted ? (open ? !number__same(k->c->g, &own, &want[to]) : dims[i] != 1)
                    : from >= 0 && x.dims[from] != 1)
            return counted__refuse(k, WHY_COUNTS_MEET);
        axis = i;
        n = counted ? own : want[to];
        dims[i] = counted ? x.dims[from] : dims[i];
    }
    if (axis < 0 || dims[axis] < 1 || dims[axis] > INT32_MAX)
        return counted__refuse(k, WHY_COUNTED);
    rc = set_sizes(k, 1, dims, rank);
    k->c->keep_node = true; /* no weight is made of what is the same everywhere */
    return rc ? rc : steps_with_count(k, axis, n);
}

int counted__const_of_shape(struct counted *k)
{
    struct shape_ctx *c = k->c;
    uint32_t value =
        shape__has(c, 1) ? rw_reshape(c, c->n.in[1], 0, NULL) : rw_number(c, SH_F32, 0);
    uint32_t in[2] = {value, c->n.in[0]};
    struct graph_node n;
    int rc = c->err->rc ? c->err->rc : graph__node_init(&n, c->n.name, "Expand", 0, c->err);

    if (!rc)
        rc = graph__node_links(&n, in, 2, NULL, 0, c->err);
    if (rc)
        return rc;
    n.n_out = 1;
    c->n.n_out = 0;
    graph__node_fini(&c->n);
    c->n = n;
    k->op = shape__op("Expand");
    return counted__expand(k);
}

/* Up to a limit that follows from counts. */
int counted__range(struct counted *k)
{
    struct shape_ctx *c = k->c;
    struct graph_number n[3];
    enum sh_dtype t = shape__in(c, 0)->dtype;
    int64_t most, *data;
    uint32_t v;

    for (uint32_t i = 0; i < 3; i++)
        n[i] = number__any(c, c->n.in[i]);
    if (!number__is_const(&n[0]) || !number__is_const(&n[2]) || n[2].lo < 1 ||
        n[2].lo > INT32_MAX || n[1].hi > INT32_MAX || n[0].lo < -INT32_MAX || n[0].lo > INT32_MAX ||
        (t != SH_I64 && t != SH_I32))
        return shape__computed(c, number__is_const(&n[0]) ? 1 : 0);
    most = SH_MAX((n[1].hi - n[0].lo + n[2].lo - 1) / n[2].lo, 0);
    data = rw_alloc(c, SH_I64, most);
    for (int64_t i = 0; data && i < most; i++)
        data[i] = n[0].lo + i * n[2].lo;
    v = rw_cast(c, rw_const(c, SH_I64, 1, &most, data), t);
    n[1] = number__op(c, "Add", n[1], number__const(n[2].lo - 1 - n[0].lo));
    n[1] = number__op(c, "Max", number__op(c, "Div", n[1], n[2]), number__const(0));
    if (rw_is(c, 0, v))
        return c->err->rc;
    c->g->values[v].by_size = true; /* of a batch, perhaps: no weight */
    return counted__is(c, 0, 0, n[1]);
}

/* ---------------------------------------------------------------- parts */

struct cut { /* of one axis: [from, to) */
    struct graph_number from, to, step;
    int axis;
};

/* [from, to) of n elements: in the counted axis, or one that is cut by a count. */
static int cut_counted_axis(struct counted *k, const struct cut *c, struct graph_number n,
                            int64_t size, int64_t range[2], struct graph_number *out)
{
    struct graph_number to = c->to;

    if (!number__is_const(&c->step) || c->step.lo != 1 || !number__is_const(&c->from) ||
        c->from.lo < 0)
        return counted__refuse(k, WHY_COUNTED_SLICE);
    if (number__is_const(&to) && to.lo < 0)
        to = to.lo == INT64_MIN ? number__const(0) : number__op(k->c, "Add", n, to);
    else if (to.lo < 0)
        return counted__refuse(k, WHY_COUNTED_SLICE);
    to = number__op(k->c, "Min", n, to);
    *out = number__op(k->c, "Max",
                      number__op(k->c, "Sub", to, number__const(SH_MIN(c->from.lo, size))),
                      number__const(0));
    range[0] = SH_MIN(c->from.lo, size);
    range[1] = SH_MAX(range[0], SH_MIN(SH_MAX(to.hi, 0), size));
    return k->c->err->rc;
}

static int read_cuts(struct counted *k, struct cut *cuts, size_t *n)
{
    struct graph_number v[4][SH_MAX_RANK];
    const int rank = shape__in(k->c, 0)->rank;
    size_t count[4] = {0};
    int rc = SH_OK;

    for (uint32_t i = 0; i < 4 && !rc; i++)
        rc = sizes_in(k, 1 + i, v[i], SH_MAX_RANK, &count[i]);
    if (!rc && (count[1] != count[0] || (count[2] && count[2] != count[0]) ||
                (count[3] && count[3] != count[0])))
        return shape__fail(k->c, SH_E_INVALID, "starts, ends, axes and steps differ in length");
    for (size_t j = 0; !rc && j < count[0]; j++) {
        int64_t axis = (int64_t)j;

        rc = shape__axis(k->c, count[2] ? v[2][j].lo : axis, rank, &axis);
        cuts[j] = (struct cut){.from = v[0][j],
                               .to = v[1][j],
                               .step = count[3] ? v[3][j] : number__const(1),
                               .axis = (int)axis};
    }
    *n = rc ? 0 : count[0];
    return rc;
}

int counted__slice(struct counted *k)
{
    const struct graph_value x = *shape__in(k->c, 0);
    int axis = counted__axis(&x);
    struct graph_number n = axis >= 0 ? number__any(k->c, x.count) : number__const(0);
    struct cut cuts[SH_MAX_RANK];
    int64_t list[4][SH_MAX_RANK];
    size_t count = 0;
    int rc = read_cuts(k, cuts, &count);

    for (size_t j = 0; j < count && !rc; j++) {
        const struct cut *c = &cuts[j];
        const bool is_open = !number__is_const(&c->from) || !number__is_const(&c->to);
        int64_t range[2] = {c->from.lo, c->to.lo};

        if (is_open && axis >= 0 && axis != c->axis)
            return counted__refuse(k, WHY_COUNTS_TWO);
        if (is_open || c->axis == axis) {
            rc = cut_counted_axis(k, c, axis >= 0 ? n : number__const(x.dims[c->axis]),
                                  x.dims[c->axis], range, &n);
            axis = c->axis;
        }
        list[0][j] = range[0];
        list[1][j] = range[1];
        list[2][j] = c->axis;
        list[3][j] = c->step.lo;
    }
    if (!rc && axis < 0)
        return shape__steps(k->c, k->op);
    for (uint32_t i = 0; i < 4 && !rc; i++)
        if (i < 2 || shape__has(k->c, 1 + i))
            rc = set_sizes(k, 1 + i, list[i], (int)count);
    return rc ? rc : steps_with_count(k, axis, n);
}

/* One part of a counted axis, of `size` elements from `from` on. */
static uint32_t counted_part(struct counted *k, int axis, struct graph_number from,
                             struct graph_number size)
{
    struct shape_ctx *c = k->c;
    const int64_t all = rw_v(c, c->n.in[0])->dims[axis], n = SH_MIN(size.hi, all);
    uint32_t at;

    if (number__is_const(&from))
        return rw_slice(c, c->n.in[0], axis, from.lo, SH_MIN(from.lo + n, all), 1);
    at = rw_iota(c, n);
    if (c->err->rc == SH_OK)
        c->g->values[at].by_size = true;
    at = rw2(c, "Min", rw2(c, "Add", at, number__value(c, from)),
             rw_number(c, SH_I64, (double)(all - 1)));
    return rw2_with(c, "Gather", c->n.in[0], at, RW_INT("axis", axis));
}

static bool is_fixed_size(const struct graph_number *size, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (!number__is_const(&size[i]))
            return false;
    return true;
}

void counted__grant(struct counted *k, struct graph_number a, const char *op, struct graph_number b)
{
    struct shape_ctx *c = k->c;
    uint32_t all = rw2(c, op, number__value(c, a), number__value(c, b));

    if (c->g->holds)
        all = rw2(c, "And", c->g->holds - 1, all);
    if (c->err->rc == SH_OK)
        c->g->holds = all + 1;
}

/* Of a loop over what was found (hits.c), in as many parts as one sample had: what was not found
 * comes behind it. Where each may be found, it is the same to take each. */
static int parts_of_hits(struct counted *k, const struct graph_value *x, uint32_t places,
                         uint32_t cond)
{
    struct shape_ctx *c = k->c;
    const struct graph_number count = number__any(c, x->count);
    const int64_t n = c->n.n_out, all = rw_v(c, cond)->dims[0];
    int64_t dims[SH_MAX_RANK];
    uint32_t each = rw_iota(c, n), found, others;
    struct graph_number unused;

    if (n < all && c->in_branch)
        return counted__refuse(k, WHY_COUNTED_PLACE);
    if (n < all) {
        others = counted__places(c, rw1(c, "Not", cond), &unused);
        each = rw2(c, "Sub", each, number__value(c, count));
        each = rw2(c, "Max", each, rw_number(c, SH_I64, 0));
        others = rw2_with(c, "Gather", others, each, RW_INT("axis", 0));
        found = rw_slice(c, places, 0, 0, n, 1);
        each = rw3(c, "Where", counted__first(c, x->count, n), found, others);
        counted__grant(k, count, "LessOrEqual", number__const(n));
    }
    for (int i = 0; i < x->rank; i++)
        dims[i] = 1;
    for (uint32_t i = 0; i < c->n.n_out; i++)
        rw_is(c, i, rw_reshape(c, rw_slice(c, each, 0, i, i + 1, 1), x->rank, dims));
    return c->err->rc;
}

/* May it be done so? Then *places are the numbers of what was found, where cond is true. */
static bool is_of_hits(const struct counted *k, const struct graph_value *x, uint32_t *places,
                       uint32_t *cond)
{
    const struct graph *g = k->c->g;
    const struct graph_node *n = counted__writer(g, x->count);
    const struct graph_value *v;

    if (!graph__attr(&k->c->n, GRAPH_HITS) || !n || strcmp(n->op, "Places") != 0)
        return false;
    v = &g->values[n->in[0]];
    *places = n->out[0];
    *cond = n->in[0];
    return v->dtype == SH_BOOL && v->rank == 1 && v->dims[0] == graph_elements(x) &&
           x->dtype == SH_I64 && k->c->n.n_out <= v->dims[0];
}

int counted__split(struct counted *k)
{
    struct shape_ctx *c = k->c;
    const struct graph_value x = *shape__in(c, 0);
    struct graph_number size[COUNTED_NUMBERS], from = number__const(0);
    int64_t axis;
    uint32_t places, cond;
    size_t n;
    int rc = graph_int(&c->n, "axis", 0, &axis, c->err);

    if (!rc)
        rc = shape__axis(c, axis, x.rank, &axis);
    if (!rc && is_of_hits(k, &x, &places, &cond))
        return parts_of_hits(k, &x, places, cond);
    if (!rc)
        rc = sizes_in(k, 1, size, COUNTED_NUMBERS, &n);
    if (rc)
        return rc;
    if (x.counted && counted__axis(&x) != axis) {
        const struct graph_number own = number__any(c, x.count);

        rc = shape__steps(c, k->op);
        for (uint32_t i = 0; i < c->n.n_out && !rc; i++)
            rc = counted__is(c, i, counted__axis(&x), own);
        return rc;
    }
    if (n != c->n.n_out)
        return counted__refuse(k, WHY_COUNTED);
    if (x.counted && is_fixed_size(size, n) && c->in_branch)
        return counted__refuse(k, WHY_COUNTED_PLACE);
    for (uint32_t i = 0; i < n && c->err->rc == SH_OK; i++) {
        if (size[i].lo < 0 || size[i].lo > x.dims[axis])
            return counted__refuse(k, WHY_COUNTED);
        c->fresh = c->g->n_values;
        if (rw_is(c, i, counted_part(k, (int)axis, from, size[i])) == SH_OK)
            counted__is(c, i, (int)axis, size[i]);
        from = number__op(c, "Add", from, size[i]);
    }
    if (x.counted && is_fixed_size(size, n))
        counted__grant(k, from, "Equal", number__any(c, x.count));
    return c->err->rc;
}

/* What the data say of part i, in [0, all]. */
static struct graph_number size_of_part(struct shape_ctx *c, uint32_t sizes, uint32_t i,
                                        int64_t all)
{
    uint32_t v = rw_reshape(c, rw_slice(c, sizes, 0, i, (int64_t)i + 1, 1), 0, NULL);

    v = rw2(c, "Max", v, rw_number(c, SH_I64, 0));
    v = rw2(c, "Min", v, rw_number(c, SH_I64, (double)all));
    return c->err->rc ? number__const(0) : counted__new(c, v, all);
}

/* The parts have room for all. Together they are all, which is taken for granted. */
static int split_by(struct counted *k, int64_t axis, const struct graph_value *x, uint32_t sizes)
{
    struct shape_ctx *c = k->c;
    const int64_t all = x->dims[axis];
    struct graph_number from = number__const(0), size;
    uint32_t last = GRAPH_NONE;

    for (uint32_t i = 0; i < c->n.n_out && c->err->rc == SH_OK; i++) {
        size = size_of_part(c, sizes, i, all);
        if (c->err->rc == SH_OK && last == GRAPH_NONE)
            c->g->values[size.of].all_parts = all;
        else if (c->err->rc == SH_OK)
            c->g->values[last].next_part = size.of + 1;
        last = size.of;
        c->fresh = c->g->n_values;
        if (rw_is(c, i, counted_part(k, (int)axis, from, size)) == SH_OK)
            counted__is(c, i, (int)axis, size);
        from = number__op(c, "Add", from, size);
    }
    counted__grant(k, from, "Equal", number__const(all));
    return c->err->rc;
}

int counted__split_by(struct shape_ctx *c, int64_t axis)
{
    const struct graph_value x = *shape__in(c, 0), s = *shape__in(c, 1);
    struct counted k = {.c = c, .op = shape__op(c->n.op)};
    const bool plain = c->plain;
    uint32_t sizes = c->n.in[1];

    if (c->in_branch || x.counted || s.counted || x.dims[axis] < 1 || !shape__is_int(s.dtype))
        return shape__computed(c, 1);
    if (s.rank != 1 || s.dims[0] != c->n.n_out)
        return shape__fail(c, SH_E_INVALID, "has %u outputs but other sizes", c->n.n_out);
    c->plain = true;
    if (s.dtype != SH_I64)
        sizes = rw_cast(c, sizes, SH_I64);
    split_by(&k, axis, &x, sizes);
    c->plain = plain;
    return c->err->rc;
}

/* ---------------------------------------------------------------- joined */

/* Are they all parts of one split, in their order? Then how many they are together is known; else
 * 0. */
static int64_t all_parts(const struct counted *k, int axis)
{
    const struct graph *g = k->c->g;
    uint32_t next = GRAPH_NONE;
    int64_t all = 0;

    for (uint32_t i = 0; i < k->c->n.n_in; i++) {
        const struct graph_value *x = shape__in(k->c, i);

        if (counted__axis(x) != axis || (i > 0 && x->count + 1 != next))
            return 0;
        all = i > 0 ? all : g->values[x->count].all_parts;
        next = g->values[x->count].next_part;
    }
    return next == 0 ? all : 0;
}

/* Parts whose ends are not where they were laid out: what is there moves together. */
static int join_counted(struct counted *k, int axis, bool is_packed)
{
    struct shape_ctx *c = k->c;
    struct graph_number all = number__const(0), unused;
    const int64_t whole = all_parts(k, axis);
    uint32_t *masks = calloc((size_t)c->n.n_in + 1, sizeof(*masks)), v = GRAPH_NONE;
    bool *yes;

    if (!masks)
        return SH_FAIL(c->err, SH_E_NOMEM, "could not allocate the parts of a join");
    for (uint32_t i = 0; i < c->n.n_in && c->err->rc == SH_OK; i++) {
        const struct graph_value x = *shape__in(c, i);
        const int64_t size = x.dims[axis];
        const struct graph_number n = x.counted ? number__any(c, x.count) : number__const(size);

        all = number__op(c, "Add", all, n);
        if (is_packed)
            continue;
        if (x.counted) {
            masks[i] = counted__first(c, x.count, size);
            continue;
        }
        yes = rw_alloc(c, SH_BOOL, 1);
        if (yes)
            *yes = true;
        masks[i] = rw_expand(c, rw_const(c, SH_BOOL, 0, NULL, yes), 1, &size);
        if (c->err->rc == SH_OK)
            c->g->values[masks[i]].by_size = true;
    }
    if (!is_packed && c->err->rc == SH_OK)
        v = counted__places(c, rw_concat(c, masks, c->n.n_in, 0), &unused);
    free(masks);
    if (whole) {
        v = rw_slice(c, v, 0, 0, whole, 1);
        all = number__const(whole);
    }
    shape__steps(c, k->op);
    if (!is_packed && c->err->rc == SH_OK)
        rw_is(c, 0, rw2_with(c, "Gather", c->outv[0], v, RW_INT("axis", axis)));
    return c->err->rc ? c->err->rc : counted__is(c, 0, axis, all);
}

int counted__concat(struct counted *k)
{
    struct shape_ctx *c = k->c;
    struct graph_number n = {0}, other;
    int64_t axis;
    int at = -1, rc = graph_int(&c->n, "axis", 0, &axis, c->err);
    uint32_t kept = 0, last = 0;
    bool is_packed = true;

    if (!rc)
        rc = shape__axis(c, axis, shape__in(c, 0)->rank, &axis);
    if (rc)
        return rc;
    for (uint32_t i = 0; i < c->n.n_in; i++) /* what is empty adds nothing */
        if (graph_elements(shape__in(c, i)) != 0)
            c->n.in[kept++] = c->n.in[i];
    c->n.n_in = kept;
    for (uint32_t i = 0; i < kept; i++) {
        if (counted__axis_in(k, i) < 0)
            continue;
        other = number__any(c, shape__in(c, i)->count);
        if (at >= 0 &&
            (at != counted__axis_in(k, i) || (at != axis && !number__same(c->g, &n, &other))))
            return counted__refuse(k, WHY_COUNTS_MEET);
        is_packed = is_packed && at < 0;
        at = counted__axis_in(k, i);
        n = other;
        last = i;
    }
    if (at == axis)
        return join_counted(k, at, is_packed && last + 1 == kept);
    for (uint32_t i = 0; i < kept; i++)
        if (counted__axis_in(k, i) < 0)
            return counted__refuse(k, WHY_COUNTS_MEET);
    return steps_with_count(k, at, n);
}
