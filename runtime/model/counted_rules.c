/* counted_rules.c - what operators do with counted axes (counted.h): one rule for each name. An
 * operator without a rule that meets such an axis is refused.
 */
#include "common/mem.h"
#include "runtime/model/counted_int.h"

#include <math.h>

#define PLACES_DEPTH 8 /* nodes that indices are followed through */

static struct graph_number count_of_input(const struct counted *k, uint32_t i)
{
    return counted__of(k->c, k->c->n.in[i]);
}

/* Only input i may be counted. */
static bool is_alone(const struct counted *k, uint32_t i)
{
    for (uint32_t j = 0; j < k->c->n.n_in; j++)
        if (j != i && counted__axis_in(k, j) >= 0)
            return false;
    return true;
}

static int run_counted_steps(struct counted *k)
{
    return k->c->err->rc ? k->c->err->rc : shape__steps(k->c, k->op);
}

/* The three steps, and then axis `axis` of every output is counted. */
static int steps_with_axis(struct counted *k, int axis, struct graph_number n)
{
    int rc = run_counted_steps(k);

    for (uint32_t i = 0; i < k->c->n.n_out && rc == SH_OK; i++)
        if (k->c->outv[i] != GRAPH_NONE)
            rc = counted__is(k->c, i, axis, n);
    return rc;
}

static int attr_axis(struct counted *k, const char *name, int64_t otherwise, int rank, int *out)
{
    int64_t axis;
    int rc = graph_int(&k->c->n, name, otherwise, &axis, k->c->err);

    if (!rc)
        rc = shape__axis(k->c, axis, rank, &axis);
    *out = rc ? 0 : (int)axis;
    return rc;
}

/* ---------------------------------------------------------------- element by element */

static int counted_each(struct counted *k)
{
    struct graph_number n = {0}, other;
    int rank = 0, axis = -1, at;
    int64_t size = 0;

    for (uint32_t i = 0; i < k->c->n.n_in; i++)
        if (shape__has(k->c, i))
            rank = SH_MAX(rank, shape__in(k->c, i)->rank);
    for (uint32_t i = 0; i < k->c->n.n_in; i++) {
        if (counted__axis_in(k, i) < 0)
            continue;
        at = counted__axis_in(k, i) + rank - shape__in(k->c, i)->rank;
        other = count_of_input(k, i);
        if (axis >= 0 && (axis != at || size != shape__in(k->c, i)->dims[counted__axis_in(k, i)] ||
                          !number__same(k->c->g, &n, &other)))
            return counted__refuse(k, WHY_COUNTS_MEET);
        n = other;
        axis = at;
        size = shape__in(k->c, i)->dims[counted__axis_in(k, i)];
    }
    for (uint32_t i = 0; i < k->c->n.n_in; i++) {
        at = shape__has(k->c, i) ? axis - (rank - shape__in(k->c, i)->rank) : -1;
        if (at >= 0 && counted__axis_in(k, i) < 0 && shape__in(k->c, i)->dims[at] != 1)
            return counted__refuse(k, WHY_COUNTS_MEET);
    }
    return steps_with_axis(k, axis, n);
}

/* Its first axis holds things that have nothing to do with each other, as a batch does. */
static int rule_batch(struct counted *k)
{
    const struct graph_number n =
        counted__axis_in(k, 0) == 0 ? count_of_input(k, 0) : number__const(0);
    const int64_t size = shape__in(k->c, 0)->dims[0];
    int rc;

    if (counted__axis_in(k, 0) != 0 || !is_alone(k, 0) || k->c->n.n_out > 1)
        return counted__refuse(k, WHY_COUNTED);
    rc = run_counted_steps(k);
    if (!rc && shape__outv(k->c, 0)->dims[0] != size)
        return counted__refuse(k, WHY_COUNTED);
    return rc ? rc : counted__is(k->c, 0, 0, n);
}

/* In training its statistics are those of all elements. */
static int counted_batch_norm(struct counted *k)
{
    return k->c->training ? counted__refuse(k, WHY_SIZE) : rule_batch(k);
}

/* Not along the axis that is counted: behind its end would be what is undefined. */
static int counted_pad(struct counted *k)
{
    struct shape_ctx *c = k->c;
    const int axis = counted__axis_in(k, 0), rank = shape__in(c, 0)->rank;
    int64_t pads[2 * SH_MAX_RANK], axes[SH_MAX_RANK];
    size_t n, n_axes;

    if (axis < 0 || !is_alone(k, 0))
        return counted__refuse(k, WHY_COUNTED);
    shape__ints(c, 1, pads, 2 * SH_MAX_RANK, &n);
    shape__ints(c, 3, axes, SH_MAX_RANK, &n_axes);
    for (size_t j = 0; j < n / 2 && c->err->rc == SH_OK; j++) {
        int64_t at = (int64_t)j;

        if (n_axes > 0 && (j >= n_axes || shape__axis(c, axes[j], rank, &at)))
            break; /* its own rule says so */
        if (at == axis && (pads[j] != 0 || pads[n / 2 + j] != 0))
            return counted__refuse(k, WHY_COUNTED);
    }
    return c->err->rc ? c->err->rc : steps_with_axis(k, axis, count_of_input(k, 0));
}

/* Along one axis: of another one than that which is counted, or what is undefined has no part. */
static int counted_along(struct counted *k)
{
    const int axis = counted__axis_in(k, 0);
    struct graph_number n;
    int64_t flat = 0, reverse = 0;
    int at, rc = attr_axis(k, "axis", -1, shape__in(k->c, 0)->rank, &at);

    if (!rc && strcmp(k->c->n.op, "CumSum") == 0) {
        double v = 0;

        rc = shape__number(k->c, 1, 0, &v);
        at = (int)(v < 0 ? v + shape__in(k->c, 0)->rank : v);
    }
    if (!rc)
        rc = graph_int(&k->c->n, "flat", 0, &flat, k->c->err);
    if (!rc)
        rc = graph_int(&k->c->n, "reverse", 0, &reverse, k->c->err);
    if (rc)
        return rc;
    if (axis < 0 || !is_alone(k, 0) || (flat && axis >= at))
        return counted__refuse(k, WHY_COUNTED);
    n = count_of_input(k, 0);
    if (axis == at) {
        const bool sums = strcmp(k->c->n.op, "CumSum") == 0;

        if (!sums && !strstr(k->c->n.op, "Softmax"))
            return counted__refuse(k, WHY_COUNTED);
        if (!sums || reverse)
            rc = counted__cover(k, 0, sums ? 0 : -INFINITY);
    }
    return rc ? rc : steps_with_axis(k, axis, n);
}

/* Normalised over the axes from `axis` on, all of them behind the counted one. */
static int counted_layer_norm(struct counted *k)
{
    int at, rc = attr_axis(k, "axis", -1, shape__in(k->c, 0)->rank, &at);

    if (!rc && (counted__axis_in(k, 0) < 0 || !is_alone(k, 0) || counted__axis_in(k, 0) >= at))
        return counted__refuse(k, WHY_COUNTED);
    return rc ? rc : steps_with_axis(k, counted__axis_in(k, 0), count_of_input(k, 0));
}

static int counted_transpose(struct counted *k)
{
    const int axis = counted__axis_in(k, 0), rank = shape__in(k->c, 0)->rank;
    const struct graph_number n = count_of_input(k, 0);
    int64_t perm[SH_MAX_RANK];
    size_t count = 0;
    int rc = graph_ints(&k->c->n, "perm", perm, SH_MAX_RANK, &count, k->c->err), at = -1;

    for (int i = 0; i < rank && !rc; i++)
        if (count == 0 ? i == rank - 1 - axis : (size_t)i < count && perm[i] == axis)
            at = i;
    if (!rc && at < 0)
        return shape__fail(k->c, SH_E_INVALID, "perm is no permutation");
    return rc ? rc : steps_with_axis(k, at, n);
}

/* ---------------------------------------------------------------- products */

static int counted_matmul(struct counted *k)
{
    const struct graph_value *a = shape__in(k->c, 0), *b = shape__in(k->c, 1);
    const int rank = SH_MAX(a->rank, b->rank);

    if (a->rank < 2 || b->rank < 2)
        return counted__refuse(k, WHY_COUNTED);
    if (counted__axis_in(k, 0) < a->rank - 2 && counted__axis_in(k, 1) < b->rank - 2)
        return counted_each(k); /* many products, of which the first are there */
    if (a->counted && b->counted)
        return counted__refuse(k, WHY_COUNTED);
    if (a->counted && counted__axis_in(k, 0) == a->rank - 2)
        return steps_with_axis(k, rank - 2, count_of_input(k, 0));
    if (b->counted && counted__axis_in(k, 1) == b->rank - 1)
        return steps_with_axis(k, rank - 1, count_of_input(k, 1));
    return counted__refuse(k, WHY_COUNTED);
}

static int counted_gemm(struct counted *k)
{
    const struct graph_value *x = shape__in(k->c, 2);
    int64_t turned;
    int rc = graph_int(&k->c->n, "transA", 0, &turned, k->c->err);

    if (!rc && (counted__axis_in(k, 0) != (turned ? 1 : 0) || !is_alone(k, 0) ||
                (shape__has(k->c, 2) && x->rank == 2 && x->dims[0] != 1)))
        return counted__refuse(k, WHY_COUNTED);
    return rc ? rc : steps_with_axis(k, 0, count_of_input(k, 0));
}

/* ---------------------------------------------------------------- reductions */

/* What changes nothing. */
static double neutral_element(const char *op, enum sh_dtype t)
{
    const bool is_float = shape__is_float(t);
    const double most = t == SH_I32 ? INT32_MAX : 0x1.fffffffffffffp62;

    if (strcmp(op, "ReduceMax") == 0 || strcmp(op, "ReduceLogSumExp") == 0)
        return is_float ? -INFINITY : t == SH_I32 ? INT32_MIN : -0x1p63;
    if (strcmp(op, "ReduceMin") == 0)
        return is_float ? INFINITY : most;
    return strcmp(op, "ReduceProd") == 0 ? 1 : 0;
}

/* A mean over what is there. */
static int counted_mean(struct counted *k, uint32_t over, bool keep)
{
    struct shape_ctx *c = k->c;
    const struct graph_value x = *shape__in(c, 0);
    const int axis = counted__axis_in(k, 0);
    const struct graph_number n = count_of_input(k, 0);
    int64_t axes[SH_MAX_RANK], rest = 1;
    uint32_t sum, count;
    int m = 0, rc = counted__cover(k, 0, 0);

    for (int i = 0; i < x.rank; i++) {
        if (!(over >> i & 1u))
            continue;
        axes[m++] = i;
        rest *= i == axis ? 1 : x.dims[i];
    }
    if (rc)
        return rc;
    sum = rw_reduce(c, "ReduceSum", c->n.in[0], axes, m, keep);
    count = rw2(c, "Mul", rw_cast(c, number__value(c, n), x.dtype),
                rw_number(c, x.dtype, (double)rest));
    return rw_is(c, 0, rw2(c, "Div", sum, count));
}

static int counted_reduce(struct counted *k)
{
    const int axis = counted__axis_in(k, 0);
    const char *op = k->c->n.op;
    struct graph_number n;
    int64_t keep = 0;
    uint32_t over;
    int at = 0, rc = shape__reduced(k->c, &over);

    if (!rc)
        rc = graph_int(&k->c->n, "keepdims", 1, &keep, k->c->err);
    if (rc)
        return rc;
    if (axis < 0 || !is_alone(k, 0))
        return counted__refuse(k, WHY_COUNTED);
    n = count_of_input(k, 0);
    if (!(over >> axis & 1u)) {
        for (int i = 0; i < axis; i++)
            at += keep || !(over >> i & 1u);
        return steps_with_axis(k, at, n);
    }
    if (strcmp(op, "ReduceMean") == 0)
        return counted_mean(k, over, keep != 0);
    rc = counted__cover(k, 0, neutral_element(op, shape__in(k->c, 0)->dtype));
    return rc ? rc : run_counted_steps(k);
}

/* In what is undefined something that comes after all numbers, and after their equals by place. */
static double last_of_all(enum sh_dtype t, bool largest)
{
    if (shape__is_float(t))
        return largest ? -INFINITY : NAN;
    return t == SH_I32 ? (largest ? INT32_MIN : INT32_MAX)
                       : (largest ? -0x1p63 : 0x1.fffffffffffffp62);
}

static int rule_arg(struct counted *k)
{
    const int axis = counted__axis_in(k, 0);
    const bool largest = strcmp(k->c->n.op, "ArgMax") == 0;
    struct graph_number n;
    int64_t keep, last = 0;
    int at, rc = attr_axis(k, "axis", 0, shape__in(k->c, 0)->rank, &at);

    if (!rc)
        rc = graph_int(&k->c->n, "keepdims", 1, &keep, k->c->err);
    if (!rc)
        rc = graph_int(&k->c->n, "select_last_index", 0, &last, k->c->err);
    if (rc)
        return rc;
    n = count_of_input(k, 0);
    if (axis != at)
        return steps_with_axis(k, axis - (!keep && at < axis), n);
    if (last)
        return counted__refuse(k, WHY_COUNTED);
    rc = counted__cover(k, 0, last_of_all(shape__in(k->c, 0)->dtype, largest));
    return rc ? rc : run_counted_steps(k);
}

/* At most the n that there are, and none below 0. */
static struct graph_number clamp_to_count(struct shape_ctx *c, struct graph_number k,
                                          struct graph_number n)
{
    if (k.lo < 0)
        k = number__op(c, "Max", k, number__const(0));
    return number__op(c, "Min", k, n);
}

/* The k best: where k or the axis is counted, so are they. */
static int counted_topk(struct counted *k)
{
    struct shape_ctx *c = k->c;
    const struct graph_value x = *shape__in(c, 0);
    const int axis = counted__axis_in(k, 0);
    const struct graph_number most = number__any(c, c->n.in[1]);
    struct graph_number n = axis >= 0 ? count_of_input(k, 0) : number__const(0);
    int64_t largest = 1, last = 0, bound;
    int at, rc = attr_axis(k, "axis", -1, x.rank, &at);

    if (!rc)
        rc = graph_int(&c->n, "largest", 1, &largest, c->err);
    if (!rc)
        rc = graph_int(&c->n, "select_last_index", 0, &last, c->err);
    if (!rc && graph_elements(shape__in(c, 1)) != 1)
        rc = shape__fail(c, SH_E_INVALID, "input 1 must be one number");
    if (rc)
        return rc;
    bound = SH_MIN(most.hi, x.dims[at]);
    if (bound < 1 || (axis >= 0 && axis != at && !number__is_const(&most)) || (axis == at && last))
        return counted__refuse(k, WHY_COUNTED);
    if (axis < 0 || axis == at)
        n = clamp_to_count(c, most, axis == at ? n : number__const(x.dims[at]));
    if (axis == at)
        rc = counted__cover(k, 0, last_of_all(x.dtype, largest != 0));
    c->n.in[1] = rw_list(c, &bound, 1);
    return rc ? rc : steps_with_axis(k, axis < 0 ? at : axis, n);
}

/* ---------------------------------------------------------------- indices */

static bool are_not_negative(const struct graph_value *v)
{
    const int64_t n = graph_elements(v);

    for (int64_t i = 0; i < n; i++)
        if (n > INT16_MAX || shape__get_i64(v->dtype, v->data, (size_t)i) < 0)
            return false;
    return true;
}

/* Do the numbers come from operators that give places, none below 0? */
static bool are_places(const struct graph *g, uint32_t v, int depth)
{
    static const char *const MOVES[] = {"Reshape", "Gather",   "Slice", "Transpose",
                                        "Expand",  "Identity", "Cast"};
    const struct graph_node *n = counted__writer(g, v);
    uint32_t from = 0, to = 0;

    if (g->values[v].data)
        return are_not_negative(&g->values[v]);
    if (!n || depth == 0)
        return false;
    if (strcmp(n->op, "Places") == 0 || strcmp(n->op, "NonMaxSuppression") == 0 ||
        (strcmp(n->op, "TopK") == 0 && n->out[1] == v))
        return true;
    for (size_t k = 0; k < SH_ARRAY_LEN(MOVES); k++)
        to |= strcmp(n->op, MOVES[k]) == 0;
    if (strcmp(n->op, "Where") == 0 || strcmp(n->op, "Concat") == 0) {
        from = n->op[0] == 'W';
        to = SH_MIN(n->n_in, 3u);
    }
    for (uint32_t i = from; i < to; i++)
        if (!are_places(g, n->in[i], depth - 1))
            return false;
    return to > from && (to == 1 || to == n->n_in);
}

/* Input i: indices into an axis of n elements, `size` at most, that count from its end where they
 * are negative; what lies behind its end becomes an index that ends the run. */
static int within_count(struct counted *k, uint32_t i, struct graph_number n, int64_t size)
{
    struct shape_ctx *c = k->c;
    const struct graph_value was = *shape__in(c, i);
    uint32_t v = k->c->n.in[i], count, all;

    if (rw_v(c, v)->data)
        return counted__refuse(k, WHY_COUNTED_PLACE);
    if (are_places(c->g, v, PLACES_DEPTH))
        return SH_OK;
    if (rw_v(c, v)->dtype != SH_I64)
        v = rw_cast(c, v, SH_I64);
    count = number__value(c, n);
    all = rw_number(c, SH_I64, (double)size);
    v = rw3(c, "Where", rw2(c, "Less", v, rw_number(c, SH_I64, 0)), rw2(c, "Add", v, count), v);
    v = rw3(c, "Where", rw2(c, "Less", v, count), v, all);
    v = rw3(c, "Where", rw2(c, "Less", v, rw_number(c, SH_I64, 0)), all, v);
    if (c->err->rc)
        return c->err->rc;
    c->n.in[i] = v;
    c->g->values[v].counted = was.counted;
    c->g->values[v].count = was.count;
    return SH_OK;
}

static int counted_gather(struct counted *k)
{
    const struct graph_value x = *shape__in(k->c, 0), ix = *shape__in(k->c, 1);
    const int table = counted__axis_in(k, 0), index = counted__axis_in(k, 1);
    struct graph_number n = {0}, rows = {0};
    int at, rc = attr_axis(k, "axis", 0, x.rank, &at), out = -1;

    if (rc)
        return rc;
    if (table >= 0)
        rows = count_of_input(k, 0);
    if (index >= 0)
        n = count_of_input(k, 1);
    if (table >= 0 && table != at) {
        out = table < at ? table : table + ix.rank - 1;
        n = rows;
        if (index >= 0)
            return counted__refuse(k, WHY_COUNTS_TWO);
    } else if (index >= 0) {
        out = at + index;
    }
    if (table == at && table >= 0)
        rc = within_count(k, 1, rows, x.dims[at]);
    if (!rc && index >= 0)
        rc = counted__cover(k, 1, 0);
    if (rc || out < 0)
        return rc ? rc : run_counted_steps(k);
    return steps_with_axis(k, out, n);
}

static int rule_gather_elements(struct counted *k)
{
    const struct graph_value x = *shape__in(k->c, 0);
    const int table = counted__axis_in(k, 0), index = counted__axis_in(k, 1);
    struct graph_number n = {0}, rows = {0};
    int at, rc = attr_axis(k, "axis", 0, x.rank, &at);

    if (rc)
        return rc;
    if (table >= 0)
        rows = count_of_input(k, 0);
    if (index >= 0)
        n = count_of_input(k, 1);
    if (table >= 0 && table != at && (index != table || !number__same(k->c->g, &n, &rows)))
        return counted__refuse(k, WHY_COUNTS_MEET);
    if (table == at && table >= 0)
        rc = within_count(k, 1, rows, x.dims[at]);
    if (!rc && index >= 0)
        rc = counted__cover(k, 1, 0);
    if (rc || index < 0)
        return rc ? rc : run_counted_steps(k);
    return steps_with_axis(k, index, n);
}

/* How many axes of the data an index of several numbers names. */
static int depth_of(const struct counted *k)
{
    const struct graph_value *ix = shape__in(k->c, 1);

    return ix->rank ? (int)ix->dims[ix->rank - 1] : 0;
}

static int rule_gather_nd(struct counted *k)
{
    const int table = counted__axis_in(k, 0), index = counted__axis_in(k, 1), depth = depth_of(k),
              rank = shape__in(k->c, 1)->rank;
    struct graph_number n = {0};
    int64_t batch;
    int out = index, rc = graph_int(&k->c->n, "batch_dims", 0, &batch, k->c->err);

    if (rc)
        return rc;
    if (batch != 0 || (index >= 0 && index == rank - 1))
        return counted__refuse(k, WHY_COUNTED);
    if (table >= depth && index >= 0)
        return counted__refuse(k, WHY_COUNTS_TWO);
    if (table >= 0 && table < depth && !are_places(k->c->g, k->c->n.in[1], PLACES_DEPTH))
        return counted__refuse(k, WHY_COUNTED_PLACE);
    if (table >= depth) {
        n = count_of_input(k, 0);
        out = rank - 1 + table - depth;
    }
    if (index >= 0) {
        n = count_of_input(k, 1);
        rc = counted__cover(k, 1, 0);
    }
    if (rc || out < 0)
        return rc ? rc : run_counted_steps(k);
    return steps_with_axis(k, out, n);
}

/* As many updates as indices, which of ScatterND the file takes for granted. */
static int match_updates(struct counted *k, int axis, const struct graph_number n[2])
{
    struct shape_ctx *c = k->c;
    const int64_t sizes[2] = {shape__in(c, 1)->dims[axis], shape__in(c, 2)->dims[axis]};
    const int64_t size = SH_MIN(sizes[0], sizes[1]);

    if (number__same(c->g, &n[0], &n[1]))
        return SH_OK;
    if (c->in_branch || strcmp(c->n.op, "ScatterND") != 0)
        return counted__refuse(k, WHY_COUNTS_MEET);
    counted__grant(k, n[0], "Equal", n[1]);
    for (uint32_t i = 0; i < 2 && c->err->rc == SH_OK; i++)
        if (sizes[i] > size) {
            const uint32_t v = rw_slice(c, c->n.in[1 + i], axis, 0, size, 1);

            c->n.in[1 + i] = c->err->rc ? c->n.in[1 + i] : v;
        }
    return c->err->rc;
}

/* Updates that are not there are not written. */
static int skip_updates(struct counted *k, bool nd)
{
    const int index = counted__axis_in(k, 1), updates = counted__axis_in(k, 2),
              rank = shape__in(k->c, 1)->rank - (nd ? 1 : 0);
    struct graph_number n[2];
    int64_t size;
    int rc;

    if ((index != updates && (updates >= 0 || !nd)) || index >= rank ||
        index >= shape__in(k->c, 2)->rank)
        return counted__refuse(k, WHY_COUNTS_MEET);
    n[0] = count_of_input(k, 1);
    n[1] = updates >= 0 ? count_of_input(k, 2) : number__const(shape__in(k->c, 2)->dims[index]);
    rc = counted__cover(k, 1, 0);
    if (!rc)
        rc = match_updates(k, index, n);
    if (rc)
        return rc;
    size = shape__in(k->c, 1)->dims[index];
    k->c->skip =
        counted__along(k->c, counted__first(k->c, number__value(k->c, n[0]), size), index, rank);
    return k->c->err->rc;
}

static int rule_scatter(struct counted *k)
{
    const bool nd = strcmp(k->c->n.op, "ScatterND") == 0;
    const struct graph_value x = *shape__in(k->c, 0);
    const int table = counted__axis_in(k, 0), index = counted__axis_in(k, 1);
    const struct graph_number rows = table >= 0 ? count_of_input(k, 0) : number__const(0);
    int at = -1, rc = nd ? SH_OK : attr_axis(k, "axis", 0, x.rank, &at);

    if (rc)
        return rc;
    if (table >= 0 && (nd ? table < depth_of(k) : table == at)) {
        if (nd && !are_places(k->c->g, k->c->n.in[1], PLACES_DEPTH))
            return counted__refuse(k, WHY_COUNTED_PLACE);
        if (!nd)
            rc = within_count(k, 1, rows, x.dims[table]);
    } else if (table >= 0 && !nd && index != table) {
        return counted__refuse(k, WHY_COUNTS_MEET);
    }
    if (!rc && index >= 0)
        rc = skip_updates(k, nd);
    else if (!rc && counted__axis_in(k, 2) >= 0 && table < 0)
        return counted__refuse(k, WHY_COUNTS_MEET);
    if (!rc)
        rc = run_counted_steps(k);
    k->c->skip = 0;
    return rc || table < 0 ? rc : counted__is(k->c, 0, table, rows);
}

/* ---------------------------------------------------------------- what the data choose */

/* The rewrites say what is counted; what is undefined is nothing that they would choose. */
static int rule_non_zero(struct counted *k)
{
    int rc = counted__cover(k, 0, 0);

    return rc ? rc : run_counted_steps(k);
}

/* What it is made of has rules of its own. */
static int rule_put_masked(struct counted *k)
{
    k->c->plain = false;
    return run_counted_steps(k);
}

static int rule_compress(struct counted *k)
{
    struct shape_ctx *c = k->c;
    const int table = counted__axis_in(k, 0);
    const bool has_axis = graph__attr(&c->n, "axis") != NULL;
    uint32_t q;
    int at = 0, rc = SH_OK;

    if (has_axis)
        rc = attr_axis(k, "axis", 0, shape__in(c, 0)->rank, &at);
    if (!rc && table >= 0 && (table != at || (!has_axis && shape__in(c, 0)->rank != 1)))
        return counted__refuse(k, WHY_COUNTS_TWO);
    if (!rc)
        rc = counted__cover(k, 1, 0);
    if (!rc && table >= 0) {
        q = k->c->n.in[1];
        q = rw2(c, "And", q,
                counted__first(c, number__value(c, count_of_input(k, 0)), rw_v(c, q)->dims[0]));
        if (c->err->rc == SH_OK)
            c->n.in[1] = q;
    }
    return rc ? rc : run_counted_steps(k);
}

static int rule_nms(struct counted *k)
{
    struct graph_number n[2];
    int rc;

    if ((counted__axis_in(k, 0) >= 0 && counted__axis_in(k, 0) != 1) || counted__axis_in(k, 1) != 2)
        return counted__refuse(k, WHY_COUNTED);
    n[1] = count_of_input(k, 1);
    if (counted__axis_in(k, 0) >= 0) {
        n[0] = count_of_input(k, 0);
        if (!number__same(k->c->g, &n[0], &n[1]))
            return counted__refuse(k, WHY_COUNTS_MEET);
    }
    rc = counted__cover(k, 1, NAN);
    return rc ? rc : run_counted_steps(k);
}

static int rule_roi_align(struct counted *k)
{
    struct graph_number n[2];
    int rc;

    if (counted__axis_in(k, 0) >= 0 || counted__axis_in(k, 1) != 0 || counted__axis_in(k, 2) != 0)
        return counted__refuse(k, WHY_COUNTS_MEET);
    n[0] = count_of_input(k, 1);
    n[1] = count_of_input(k, 2);
    if (!number__same(k->c->g, &n[0], &n[1]))
        return counted__refuse(k, WHY_COUNTS_MEET);
    rc = counted__cover(k, 1, 0);
    if (!rc)
        rc = counted__cover(k, 2, 0);
    return rc ? rc : steps_with_axis(k, 0, n[0]);
}

/* ---------------------------------------------------------------- the table */

/* clang-format off */
#define EACH(X)                                                                                 \
    X(Abs)                                                                                      \
    X(Acos)                                                                                     \
    X(Acosh) X(Add) X(And) X(Asin) X(Asinh) X(Atan) X(Atanh) X(BitShift) X(BitwiseAnd)          \
        X(BitwiseNot) X(BitwiseOr) X(BitwiseXor) X(Cast) X(Ceil) X(Celu) X(Clip) X(Cos) X(Cosh) \
            X(Div) X(Dropout) X(Elu) X(Equal) X(Erf) X(Exp) X(Floor) X(Gelu) X(Greater)         \
                X(GreaterOrEqual) X(HardSigmoid) X(HardSwish) X(Identity) X(IsInf) X(IsNaN)     \
                    X(LeakyRelu) X(Less) X(LessOrEqual) X(Log) X(Max) X(Mean) X(Min) X(Mish)    \
                        X(Mod) X(Mul) X(Neg) X(Not) X(Or) X(PRelu) X(Pow) X(Reciprocal) X(Relu) \
                            X(Round) X(Selu) X(Shrink) X(Sigmoid) X(Sign) X(Sin) X(Sinh)        \
                                X(Softplus) X(Softsign) X(Sqrt) X(Sub) X(Sum) X(Swish) X(Tan)   \
                                    X(Tanh) X(ThresholdedRelu) X(Where) X(Xor)
#define BATCH(X)                                                                                   \
    X(AveragePool)                                                                                 \
    X(Conv) X(ConvTranspose) X(DepthToSpace) X(GlobalAveragePool) X(GlobalLpPool) X(GlobalMaxPool) \
        X(GroupNormalization) X(InstanceNormalization) X(LRN) X(LpPool) X(MaxPool) X(Resize)       \
            X(SpaceToDepth) X(Upsample)
#define REDUCE(X)                                                                            \
    X(ReduceL1)                                                                              \
    X(ReduceL2)                                                                              \
    X(ReduceLogSum) X(ReduceLogSumExp) X(ReduceMax) X(ReduceMean) X(ReduceMin) X(ReduceProd) \
        X(ReduceSum) X(ReduceSumSquare)
/* clang-format on */

static const struct rule {
    const char *op;
    counted_fn *fn;
    bool by_size; /* also where just a size follows from counts */
} RULES[] = {
#define X(name) {#name, counted_each, false},
    EACH(X)
#undef X
#define X(name) {#name, rule_batch, false},
        BATCH(X)
#undef X
#define X(name) {#name, counted_reduce, false},
            REDUCE(X)
#undef X
                {"ArgMax", rule_arg, false},
    {"ArgMin", rule_arg, false},
    {"BatchNormalization", counted_batch_norm, false},
    {"Compress", rule_compress, false},
    {"Concat", counted__concat, false},
    {"ConstantOfShape", counted__const_of_shape, true},
    {"CumSum", counted_along, false},
    {"Expand", counted__expand, true},
    {"Flatten", counted__flatten, false},
    {"Gather", counted_gather, false},
    {"GatherElements", rule_gather_elements, false},
    {"GatherND", rule_gather_nd, false},
    {"Gemm", counted_gemm, false},
    {"Hardmax", counted_along, false},
    {"If", run_counted_steps, false},
    {"LayerNormalization", counted_layer_norm, false},
    {"LogSoftmax", counted_along, false},
    {"MatMul", counted_matmul, false},
    {"NonMaxSuppression", rule_nms, false},
    {"NonZero", rule_non_zero, false},
    {"Pad", counted_pad, false},
    {"PutMasked", rule_put_masked, false},
    {"RMSNormalization", counted_layer_norm, false},
    {"Range", counted__range, true},
    {"Reshape", counted__reshape, true},
    {"RoiAlign", rule_roi_align, false},
    {"Scatter", rule_scatter, false},
    {"ScatterElements", rule_scatter, false},
    {"ScatterND", rule_scatter, false},
    {"Shape", counted__shape, false},
    {"Size", counted__size, false},
    {"Slice", counted__slice, true},
    {"Softmax", counted_along, false},
    {"Split", counted__split, true},
    {"Squeeze", counted__squeeze, false},
    {"TopK", counted_topk, true},
    {"Transpose", counted_transpose, false},
    {"Unique", run_counted_steps, false},
    {"Unsqueeze", counted__unsqueeze, false},
};

static const struct rule *counted_rule_of(const char *op)
{
    for (size_t i = 0; i < SH_ARRAY_LEN(RULES); i++)
        if (strcmp(RULES[i].op, op) == 0)
            return &RULES[i];
    return NULL;
}

static int run_rule(struct counted *k)
{
    const struct rule *rule = counted_rule_of(k->c->n.op);
    bool any = false;

    for (uint32_t i = 0; i < k->c->n.n_in; i++)
        any |= counted__axis_in(k, i) >= 0;
    if (!any && (!rule || !rule->by_size))
        return run_counted_steps(k);
    return rule ? rule->fn(k) : counted__refuse(k, WHY_COUNTED);
}

int counted__steps(struct shape_ctx *c, const struct shape_op *op)
{
    struct counted k = {.c = c, .op = op};
    const bool plain = c->plain;
    bool done;
    int rc;

    c->plain = true;
    rc = counted__numbers(&k, &done);
    if (!rc && !done)
        rc = run_rule(&k);
    c->plain = plain;
    return rc ? rc : c->err->rc;
}
