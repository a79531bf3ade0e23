/* pads_rules.c - what each operator does to a padded axis: see pads.c. */
#include "common/mem.h"
#include "runtime/model/pads_int.h"

#include <math.h>

#define MAX_SIDES 16u /* inputs that a node of one element each may have */

typedef struct track rule_fn(struct follow *f);

struct track pads__mixed(void)
{
    return (struct track){.mixed = true};
}

struct track pads__free(struct range r)
{
    return (struct track){.real = r, .all = range_none()};
}

static struct track mixes(struct follow *f, const char *reason)
{
    f->reason = reason;
    return pads__mixed();
}

/* ---------------------------------------------------------------- inputs */

static const struct graph_value *value(const struct follow *f, uint32_t i)
{
    return &f->b->values[f->node->in[i]];
}

static const struct graph_value *result(const struct follow *f)
{
    return &f->b->values[f->node->out[f->out]];
}

static bool has(const struct follow *f, uint32_t i)
{
    return i < f->node->n_in && f->node->in[i] != GRAPH_NONE;
}

static const struct track *pad_track_of(const struct follow *f, uint32_t i)
{
    return &f->of[f->node->in[i]];
}

/* Weights, of which the result has no numbers that are none. */
static bool are_inputs_unpadded(const struct follow *f, uint32_t from)
{
    for (uint32_t i = from; i < f->node->n_in; i++)
        if (has(f, i) && (pad_track_of(f, i)->n > 0 || !range_is_finite(pad_track_of(f, i)->real)))
            return false;
    return true;
}

static int64_t attr_number(const struct follow *f, const char *name, int64_t otherwise)
{
    int64_t v = otherwise;

    return graph_int(f->node, name, otherwise, &v, NULL) ? -1 : v;
}

static struct range any_of(const struct track *t)
{
    return range_join(t->real, t->all);
}

static bool range_within(struct range r, int64_t size)
{
    return r.lo > r.hi || (!r.nan && r.lo >= 0 && r.hi <= (double)(size - 1));
}

/* On the edge of place p of the result; shift: of the axes of t, to those of the result. */
static struct range edge_of(const struct track *t, struct place p, int shift)
{
    p.axis -= shift;
    for (uint32_t k = 0; k < t->n; k++)
        if (place_same(t->p[k], p))
            return t->edge[k];
    return t->real;
}

/* Adds the places of t, moved by shift, to those of out; false: they do not fit together. */
static bool add_track_places(struct track *out, const struct track *t, int shift)
{
    for (uint32_t k = 0; k < t->n; k++) {
        struct place p = t->p[k];
        bool known = false;

        p.axis += shift;
        for (uint32_t j = 0; j < out->n; j++)
            known |= place_same(out->p[j], p);
        if (known)
            continue;
        if (out->n == PADS_PLACES)
            return false;
        out->p[out->n++] = p;
    }
    return true;
}

/* Place k of t is gone. */
static void drop_place(struct track *t, uint32_t k)
{
    t->n--;
    t->p[k] = t->p[t->n];
    t->edge[k] = t->edge[t->n];
    if (t->n == 0)
        t->all = range_none();
}

/* The same for all ranges of t. */
static struct track with(struct track t, struct range (*fn)(struct range))
{
    t.real = fn(t.real);
    t.all = fn(t.all);
    for (uint32_t k = 0; k < t.n; k++)
        t.edge[k] = fn(t.edge[k]);
    t.is_number = t.is_nan = 0;
    return t;
}

static struct range ordinary_if_finite(struct range r)
{
    if (r.lo > r.hi)
        return r;
    return range_is_finite(r) ? range_ordinary() : range_wild();
}

/* ---------------------------------------------------------------- element by element */

/* x == x, not of that, and what takes the place of x where it is no number. */
static void note_numbers(const struct follow *f, struct track *t)
{
    const struct graph_node *n = f->node;

    t->is_number = t->is_nan = 0;
    if (strcmp(n->op, "Equal") == 0 && n->in[0] == n->in[1])
        t->is_number = n->in[0] + 1;
    if (strcmp(n->op, "Not") == 0) {
        t->is_nan = pad_track_of(f, 0)->is_number;
        t->is_number = pad_track_of(f, 0)->is_nan;
    }
}

/* One range of each input to one of the result. */
static bool range_of_each(const struct follow *f, struct range *in, struct range *out)
{
    const struct graph_node *n = f->node;

    if (strcmp(n->op, "Equal") == 0 && n->in[0] == n->in[1]) {
        *out = range_of(in[0].nan ? 0 : 1, 1);
        return true;
    }
    if (strcmp(n->op, "Where") == 0) {
        in[1].nan &= pad_track_of(f, 0)->is_number != n->in[1] + 1;
        in[2].nan &= pad_track_of(f, 0)->is_nan != n->in[2] + 1;
    }
    return range_each(n, in, n->n_in, out);
}

static struct track pad_each(struct follow *f)
{
    const int rank = result(f)->rank;
    struct track t = {.all = range_none()};
    struct range in[MAX_SIDES];
    bool ok = f->node->n_in <= MAX_SIDES;

    for (uint32_t i = 0; ok && i < f->node->n_in; i++)
        ok = has(f, i) && add_track_places(&t, pad_track_of(f, i), rank - value(f, i)->rank);
    for (uint32_t k = 0; ok && k < t.n; k++) {
        for (uint32_t i = 0; i < f->node->n_in; i++)
            in[i] = edge_of(pad_track_of(f, i), t.p[k], rank - value(f, i)->rank);
        ok = range_of_each(f, in, &t.edge[k]);
    }
    for (uint32_t i = 0; ok && i < f->node->n_in; i++)
        in[i] = pad_track_of(f, i)->real;
    ok = ok && range_of_each(f, in, &t.real);
    for (uint32_t i = 0; ok && i < f->node->n_in; i++)
        in[i] = any_of(pad_track_of(f, i));
    if (ok && t.n > 0)
        ok = range_of_each(f, in, &t.all);
    note_numbers(f, &t);
    return ok ? t : pads__mixed();
}

/* Where the rows that a Locate counts may be: ordinary numbers if an index may be out of bounds. */
static bool range_of_rows(const struct follow *f, struct range *out)
{
    int64_t sizes[SH_MAX_RANK], strides[SH_MAX_RANK], base[SH_MAX_RANK];
    size_t n = 0, m = 0, rank = 0;
    double most = 0;

    if (graph_ints(f->node, "sizes", sizes, SH_MAX_RANK, &n, NULL) ||
        graph_ints(f->node, "strides", strides, SH_MAX_RANK, &m, NULL) ||
        graph_ints(f->node, "base", base, SH_MAX_RANK, &rank, NULL) || m != n ||
        rank != (size_t)result(f)->rank)
        return false;
    *out = range_ordinary();
    for (size_t i = 0; i < n; i++) {
        const struct range r = any_of(pad_track_of(f, 0));

        if (!range_within(r, sizes[i]) || strides[i] < 0)
            return true;
        most += r.hi * (double)strides[i];
    }
    for (size_t i = 0; i < rank; i++)
        most += (double)(base[i] * (result(f)->dims[i] - 1));
    *out = range_of(0, most);
    return true;
}

/* Numbers of rows: what each has is added to a start of its own along some axis. */
static struct track rule_locate(struct follow *f)
{
    struct track t = {.all = range_none(), .real = range_ordinary()};
    struct range where;

    if (!range_of_rows(f, &where) || f->node->n_in != 1 ||
        !add_track_places(&t, pad_track_of(f, 0), 0))
        return pads__mixed();
    for (uint32_t k = 0; k < t.n; k++)
        t.edge[k] = t.all = where;
    t.real = where;
    return t;
}

/* ---------------------------------------------------------------- moves */

static struct track pad_reshape(struct follow *f)
{
    struct track t = *pad_track_of(f, 0);

    for (uint32_t k = 0; k < t.n; k++)
        if (!place_of(result(f), place_step(value(f, 0), t.p[k]), f->bucket, &t.p[k]))
            return pads__mixed();
    t.is_number = t.is_nan = 0;
    return t;
}

/* An axis that is expanded to the size is a place too, with the same at each step. */
static struct track rule_expand(struct follow *f)
{
    const struct graph_value *x = value(f, 0), *y = result(f),
                             *y_a = pads__in_a(f, f->node->out[f->out]);
    struct track t = {.all = range_none()};
    const struct track *from = pad_track_of(f, 0);

    if (!add_track_places(&t, from, y->rank - x->rank))
        return pads__mixed();
    for (int i = 0; i < y->rank; i++) {
        const int at = i - (y->rank - x->rank);
        const struct place p = {.axis = i, .before = 1, .after = 1};

        if (y->dims[i] == y_a->dims[i] || (at >= 0 && x->dims[at] != 1))
            continue;
        if (t.n == PADS_PLACES)
            return pads__mixed();
        t.p[t.n++] = p;
    }
    t.real = from->real;
    t.all = t.n ? any_of(from) : range_none();
    for (uint32_t k = 0; k < t.n; k++)
        t.edge[k] = edge_of(from, t.p[k], y->rank - x->rank);
    return t;
}

static struct track pad_transpose(struct follow *f)
{
    struct track t = *pad_track_of(f, 0);
    int64_t perm[SH_MAX_RANK];
    size_t n = 0;

    if (graph_ints(f->node, "perm", perm, SH_MAX_RANK, &n, NULL))
        return pads__mixed();
    for (uint32_t k = 0; k < t.n; k++)
        for (size_t i = 0; i < n; i++)
            if (perm[i] == pad_track_of(f, 0)->p[k].axis)
                t.p[k].axis = (int)i;
    t.is_number = t.is_nan = 0;
    return t;
}

/* A table of numbers that are not 0 where the bytes are. */
static struct track pad_pixels(struct follow *f)
{
    return with(pad_transpose(f), ordinary_if_finite);
}

/* Parts beside each other along another axis. */
static struct track pad_concat(struct follow *f)
{
    struct track t = pads__free(range_none());

    for (uint32_t i = 0; i < f->node->n_in; i++)
        if (!has(f, i) || !add_track_places(&t, pad_track_of(f, i), 0))
            return pads__mixed();
    for (uint32_t k = 0; k < t.n; k++) {
        if (t.p[k].axis == attr_number(f, "axis", 0))
            return mixes(f, "puts something before or behind the axis, which moves its end");
        t.edge[k] = range_none();
    }
    for (uint32_t i = 0; i < f->node->n_in; i++) {
        t.real = range_join(t.real, pad_track_of(f, i)->real);
        t.all = range_join(t.all, any_of(pad_track_of(f, i)));
        for (uint32_t k = 0; k < t.n; k++)
            t.edge[k] = range_join(t.edge[k], edge_of(pad_track_of(f, i), t.p[k], 0));
    }
    if (t.n == 0)
        t.all = range_none();
    return t;
}

/* Of an axis along which n steps lie: the whole, or some that are there at every size. *gone: no
 * place any more. */
static bool slice_padded_axis(const struct follow *f, int axis, int64_t start, int64_t step,
                              bool *gone)
{
    const int64_t took = result(f)->dims[axis];
    const int64_t took_a = pads__in_a(f, f->node->out[f->out])->dims[axis];

    *gone = took == took_a;
    if (*gone)
        return start >= 0 && start < f->n && step > 0 && start + (took - 1) * step < f->n;
    return start == 0 && step == 1 && took == f->bucket && took_a == f->n;
}

static struct track pad_slice(struct follow *f)
{
    struct track t = *pad_track_of(f, 0);
    const struct graph_value *y = result(f), *y_a = pads__in_a(f, f->node->out[f->out]);
    int64_t starts[SH_MAX_RANK], steps[SH_MAX_RANK];
    bool seen[SH_MAX_RANK] = {false}, gone;
    size_t n = 0, m = 0;

    if (graph_ints(f->node, "starts", starts, SH_MAX_RANK, &n, NULL) ||
        graph_ints(f->node, "steps", steps, SH_MAX_RANK, &m, NULL) || n != (size_t)y->rank ||
        m != n)
        return pads__mixed();
    for (uint32_t k = t.n; k-- > 0;) {
        const int axis = t.p[k].axis;

        seen[axis] = true;
        if (t.p[k].before * t.p[k].after != 1) {
            if (starts[axis] || steps[axis] != 1 || y->dims[axis] != value(f, 0)->dims[axis])
                return pads__mixed();
            continue;
        }
        if (!slice_padded_axis(f, axis, starts[axis], steps[axis], &gone))
            return mixes(f, "takes a part of the axis that depends on its end");
        if (gone)
            drop_place(&t, k);
    }
    for (int i = 0; i < y->rank; i++) { /* of a table, as much as the size asks for */
        if (seen[i] || y->dims[i] == y_a->dims[i])
            continue;
        if (t.n == PADS_PLACES || starts[i] < 0 || steps[i] < 1)
            return pads__mixed();
        t.p[t.n] = (struct place){.axis = i, .before = 1, .after = 1};
        t.edge[t.n++] = any_of(&t);
        t.all = any_of(&t);
    }
    t.is_number = t.is_nan = 0;
    return t;
}

static struct track pad_pad(struct follow *f)
{
    struct track t = *pad_track_of(f, 0);
    int64_t pads[2 * SH_MAX_RANK];
    const int rank = value(f, 0)->rank;
    double fill = 0;
    size_t n = 0;

    if (graph_ints(f->node, "pads", pads, 2 * SH_MAX_RANK, &n, NULL) || n != 2 * (size_t)rank ||
        graph_float(f->node, "value", 0, &fill, NULL))
        return pads__mixed();
    for (uint32_t k = 0; k < t.n; k++) {
        if (pads[t.p[k].axis] || pads[t.p[k].axis + rank])
            return mixes(f, "puts something before or behind the axis, which moves its end");
        t.edge[k] = range_join(t.edge[k], range_of(fill, fill));
    }
    t.real = range_join(t.real, range_of(fill, fill));
    if (t.n)
        t.all = range_join(t.all, range_of(fill, fill));
    t.is_number = t.is_nan = 0;
    return t;
}

/* ---------------------------------------------------------------- Gather */

/* Rows of a table, by numbers along the axis. */
static struct track gather_rows(struct follow *f, int64_t axis)
{
    const struct track *x = pad_track_of(f, 0), *index = pad_track_of(f, 1);
    struct track t = pads__free(x->real);

    if (!range_within(index->all, value(f, 0)->dims[axis]))
        return mixes(f, "would look for rows that are not there, for what is filled up");
    t.n = index->n;
    for (uint32_t k = 0; k < t.n; k++) {
        t.p[k] = index->p[k];
        t.p[k].axis += (int)axis;
        t.edge[k] = t.all = any_of(x);
    }
    return t;
}

static struct track pad_gather(struct follow *f)
{
    const int64_t axis = attr_number(f, "axis", 0);
    const struct track *x = pad_track_of(f, 0), *index = pad_track_of(f, 1);
    struct track t = *x;

    if (x->n == 0)
        return gather_rows(f, axis);
    for (uint32_t k = t.n; k-- > 0;) {
        if (t.p[k].axis != axis)
            continue;
        if (t.p[k].before * t.p[k].after != 1 || !value(f, 1)->data ||
            !range_within(index->real, f->n))
            return mixes(f, "takes steps of the axis that depend on its end, or on data");
        if (index->n > 0) { /* one step for each: those before the end are */
            struct track rows = t;

            drop_place(&rows, k);
            return rows.n == 0 ? gather_rows(f, axis) : pads__mixed();
        }
        drop_place(&t, k);
    }
    if (index->n > 0)
        return pads__mixed();
    for (uint32_t k = 0; k < t.n; k++)
        t.p[k].axis += t.p[k].axis > axis ? value(f, 1)->rank - 1 : 0;
    t.is_number = t.is_nan = 0;
    return t;
}

/* ---------------------------------------------------------------- steps meet */

/* Elements before the end may be all of what is masked, so may be those of a row behind it. */
static bool may_be_empty(const struct track *x, uint32_t k)
{
    for (uint32_t i = 0; i < x->n; i++)
        if (i != k && x->edge[i].lo == -INFINITY)
            return true;
    return false;
}

static struct range weights(struct range r)
{
    if (r.lo > r.hi)
        return r;
    return (struct range){0, 1, r.nan || r.hi == INFINITY};
}

static struct track rule_softmax(struct follow *f)
{
    const struct track *x = pad_track_of(f, 0);
    const bool is_log = strcmp(f->node->op, "LogSoftmax") == 0;
    struct track t = with(*x, is_log ? ordinary_if_finite : weights);
    uint32_t at = PADS_PLACES;

    for (uint32_t k = 0; k < t.n; k++)
        if (t.p[k].axis == attr_number(f, "axis", -1))
            at = k;
    if (at == PADS_PLACES) { /* along another axis, where all of it may be masked */
        for (uint32_t k = 0; k < t.n; k++)
            t.edge[k].nan |= x->edge[k].lo == -INFINITY;
        t.all.nan |= x->all.lo == -INFINITY;
        return t;
    }
    if (x->edge[at].nan || x->edge[at].hi > RANGE_MASKED)
        return mixes(f, "gives weight to places that nothing masks");
    if (is_log)
        return pads__mixed();
    t.edge[at] = range_of(0, 0);
    for (uint32_t k = 0; k < t.n; k++)
        if (k != at)
            t.edge[k].nan |= x->all.nan || x->edge[k].lo == -INFINITY;
    t.all.nan |= may_be_empty(x, at);
    return t;
}

/* e: of all that lies behind the ends of the axes that are reduced. */
static bool keeps_end(struct follow *f, const struct track *x, struct range e)
{
    const char *op = f->node->op;

    if (e.nan)
        return false;
    if (strcmp(op, "ReduceSum") == 0)
        return range_is(e, 0);
    if (strcmp(op, "ReduceProd") == 0)
        return range_is(e, 1);
    if (strcmp(op, "ReduceMax") == 0)
        return e.hi <= RANGE_MASKED || e.hi <= x->real.lo;
    return strcmp(op, "ReduceMin") == 0 && (e.lo >= -RANGE_MASKED || e.lo >= x->real.hi);
}

static struct range reduced(const struct follow *f, struct range r, double count)
{
    if (strcmp(f->node->op, "ReduceSum") == 0)
        return range_sum(r, count);
    return strcmp(f->node->op, "ReduceProd") == 0 ? ordinary_if_finite(r) : r;
}

static struct track pad_reduce(struct follow *f)
{
    const struct track *x = pad_track_of(f, 0);
    const bool keep = attr_number(f, "keepdims", 1) != 0;
    struct track t = pads__free(range_none());
    int64_t axes[SH_MAX_RANK];
    bool is_reduced[SH_MAX_RANK] = {false};
    uint32_t over_ends = 0;
    double count = 1;
    size_t n = 0;

    if (graph_ints(f->node, "axes", axes, SH_MAX_RANK, &n, NULL))
        return pads__mixed();
    for (size_t i = 0; i < n; i++) {
        is_reduced[axes[i]] = true;
        count *= (double)value(f, 0)->dims[axes[i]];
    }
    for (uint32_t k = 0; k < x->n; k++)
        over_ends += is_reduced[x->p[k].axis];
    for (uint32_t k = 0; k < x->n; k++) {
        struct place p = x->p[k];

        if (is_reduced[p.axis]) {
            if (!keeps_end(f, x, over_ends > 1 ? x->all : x->edge[k]))
                return mixes(f, "takes in places that are filled up, which nothing masks");
            continue;
        }
        for (int i = 0; i < x->p[k].axis && !keep; i++)
            p.axis -= is_reduced[i];
        t.edge[t.n] = x->edge[k];
        t.p[t.n++] = p;
    }
    for (uint32_t k = 0; k < t.n; k++)
        t.edge[k] = reduced(f, over_ends ? range_join(t.edge[k], x->all) : t.edge[k], count);
    t.real = reduced(f, x->real, count);
    t.all = t.n ? reduced(f, any_of(x), count) : range_none();
    return t;
}

/* Only what lies before a step reaches it. */
static struct track rule_cumsum(struct follow *f)
{
    struct track t = *pad_track_of(f, 0);
    const int64_t axis = attr_number(f, "axis", 0);
    const double count = axis >= 0 ? (double)value(f, 0)->dims[axis] : 1;
    const struct range any = range_join(range_of(0, 0), range_sum(any_of(&t), count));

    for (uint32_t k = 0; k < t.n; k++) {
        if (t.p[k].axis == axis &&
            (t.p[k].before * t.p[k].after != 1 || attr_number(f, "reverse", 0) != 0))
            return mixes(f, "adds up from the end of the axis");
        t.edge[k] = t.all = any;
    }
    t.real = any;
    t.is_number = t.is_nan = 0;
    return t;
}

/* The greatest along another axis, and where they are there. */
static struct track pad_topk(struct follow *f)
{
    const int64_t axis = attr_number(f, "axis", -1);
    struct track t = *pad_track_of(f, 0);

    for (uint32_t k = 0; k < t.n; k++)
        if (t.p[k].axis == axis)
            return mixes(f, "sorts what lies along the axis");
    t.is_number = t.is_nan = 0;
    if (f->out == 0)
        return t;
    t.real = range_of(0, (double)(value(f, 0)->dims[axis] - 1));
    for (uint32_t k = 0; k < t.n; k++)
        t.edge[k] = t.all = t.real;
    return t;
}

static struct track pad_rnn(struct follow *f)
{
    struct track t = *pad_track_of(f, 0);
    const int time = attr_number(f, "layout", 0) ? 1 : 0;
    const char *direction = "";

    if (graph_str(f->node, "direction", "forward", &direction, NULL) || !are_inputs_unpadded(f, 1))
        return pads__mixed();
    for (uint32_t k = 0; k < t.n; k++) {
        if (t.p[k].before * t.p[k].after != 1 || t.p[k].axis != time)
            return pads__mixed();
        if (f->out != 0 || strcmp(direction, "forward") != 0)
            return mixes(f, "has a state at the end of the axis, or goes backwards from there");
    }
    return with(t, ordinary_if_finite);
}

static struct track pad_layer_norm(struct follow *f)
{
    const struct track *x = pad_track_of(f, 0);

    for (uint32_t k = 0; k < x->n; k++)
        if (x->p[k].axis >= attr_number(f, "axis", -1))
            return pads__mixed();
    return are_inputs_unpadded(f, 1) ? with(*x, ordinary_if_finite) : pads__mixed();
}

/* A window of one element does not reach over the end; that of whole samples is no place. */
static struct track rule_window(struct follow *f)
{
    static const char *const ONE[] = {"kernel_shape", "strides"};
    const struct track *x = pad_track_of(f, 0);
    const size_t spatial = (size_t)value(f, 0)->rank - 2;
    int64_t v[2 * SH_MAX_RANK];
    size_t n = 0;

    for (uint32_t k = 0; k < x->n; k++) {
        const int at = x->p[k].axis - 2;

        if (at == -2)
            continue;
        for (size_t i = 0; i < SH_ARRAY_LEN(ONE) && at >= 0; i++)
            if (graph_ints(f->node, ONE[i], v, SH_MAX_RANK, &n, NULL) || n != spatial || v[at] != 1)
                return mixes(f, "has a window that reaches over the end of the axis");
        if (at < 0 || graph_ints(f->node, "pads", v, 2 * SH_MAX_RANK, &n, NULL) ||
            n != 2 * spatial || v[at] || v[(size_t)at + spatial])
            return pads__mixed();
    }
    return are_inputs_unpadded(f, 1) ? with(*x, ordinary_if_finite) : pads__mixed();
}

static struct track pad_batch_norm(struct follow *f)
{
    const struct track *x = pad_track_of(f, 0);

    for (uint32_t k = 0; k < x->n; k++)
        if (x->p[k].axis == 1)
            return pads__mixed();
    return are_inputs_unpadded(f, 1) ? with(*x, ordinary_if_finite) : pads__mixed();
}

/* ---------------------------------------------------------------- products */

/* Operand i: its place on the axis of sums (PADS_PLACES: none), the others where the product puts
 * them. */
static void padded_operand(const struct follow *f, uint32_t i, struct track *t, uint32_t *inner)
{
    bool leads;

    *t = *pad_track_of(f, i);
    *inner = PADS_PLACES;
    for (uint32_t k = 0; k < t->n; k++)
        if (!place_in_product(value(f, 0), value(f, 1), result(f), i, &t->p[k], &leads))
            *inner = k;
}

static struct track pad_matmul(struct follow *f)
{
    struct track x[2], t = {.all = range_none()};
    uint32_t inner[2];
    bool sums;

    for (uint32_t i = 0; i < 2; i++)
        padded_operand(f, i, &x[i], &inner[i]);
    sums = inner[0] != PADS_PLACES;
    if (sums != (inner[1] != PADS_PLACES))
        return pads__mixed();
    if (sums) {
        const struct range a = x[0].edge[inner[0]], b = x[1].edge[inner[1]];
        const struct place pa = x[0].p[inner[0]], pb = x[1].p[inner[1]];

        if (pa.before != pb.before || pa.after != pb.after)
            return pads__mixed(); /* other steps would meet */
        if (!(range_is(a, 0) && range_is_finite(b)) && !(range_is(b, 0) && range_is_finite(a)))
            return mixes(f, "adds up places that are filled up, which nothing masks");
        for (uint32_t i = 0; i < 2; i++) {
            const struct range all = x[i].all;

            drop_place(&x[i], inner[i]);
            x[i].all = all;
        }
    }
    if (!add_track_places(&t, &x[0], 0) || !add_track_places(&t, &x[1], 0))
        return pads__mixed();
    for (uint32_t k = 0; k < t.n; k++) {
        struct range e[2];

        for (uint32_t i = 0; i < 2; i++) {
            e[i] = edge_of(&x[i], t.p[k], 0);
            e[i] = sums ? range_join(e[i], x[i].all) : e[i];
        }
        t.edge[k] = range_dot(e[0], e[1]);
    }
    t.real = range_dot(x[0].real, x[1].real);
    t.all = t.n ? range_dot(any_of(&x[0]), any_of(&x[1])) : range_none();
    return t;
}

/* Rows of the first operand. */
static struct track pad_gemm(struct follow *f)
{
    const int rows = attr_number(f, "transA", 0) ? 1 : 0;
    struct track t = *pad_track_of(f, 0);

    for (uint32_t k = 0; k < t.n; k++) {
        if (t.p[k].axis != rows)
            return mixes(f, "adds up places that are filled up, which nothing masks");
        t.p[k].axis = 0;
    }
    return are_inputs_unpadded(f, 1) ? with(t, ordinary_if_finite) : pads__mixed();
}

/* clang-format off */
static const struct {
    const char *op;
    rule_fn *fn;
} RULES[] = {
    {"AveragePool", rule_window}, {"BatchNormalization", pad_batch_norm},
    {"Concat", pad_concat}, {"Conv", rule_window}, {"CumSum", rule_cumsum},
    {"Expand", rule_expand}, {"GRU", pad_rnn}, {"Gather", pad_gather}, {"Gemm", pad_gemm},
    {"LSTM", pad_rnn}, {"LayerNormalization", pad_layer_norm}, {"Locate", rule_locate},
    {"LogSoftmax", rule_softmax}, {"MatMul", pad_matmul}, {"MaxPool", rule_window},
    {"Pad", pad_pad}, {GRAPH_PIXELS, pad_pixels}, {"RNN", pad_rnn},
    {"ReduceMax", pad_reduce}, {"ReduceMean", pad_reduce},
    {"ReduceMin", pad_reduce}, {"ReduceProd", pad_reduce}, {"ReduceSum", pad_reduce},
    {"Reshape", pad_reshape}, {"Slice", pad_slice}, {"Softmax", rule_softmax},
    {"TopK", pad_topk}, {"Transpose", pad_transpose},
};
/* clang-format on */

struct track pads__rule(struct follow *f)
{
    bool is_free = true;

    for (size_t i = 0; i < SH_ARRAY_LEN(RULES); i++)
        if (strcmp(RULES[i].op, f->node->op) == 0)
            return RULES[i].fn(f);
    for (uint32_t i = 0; i < f->node->n_in; i++)
        is_free &= !has(f, i) || pad_track_of(f, i)->n == 0;
    return is_free ? pads__free(range_wild()) : pad_each(f);
}
