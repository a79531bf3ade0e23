/* shape_seq.c - sequences and optionals: see shape_run.h.
 *
 * A sequence is a list of values while shapes are worked out. What a graph builds and takes apart
 * again leaves nothing behind. So lengths and places have to be known by then.
 */
#include "common/mem.h"
#include "runtime/model/shape_run.h"

#include <stdlib.h>

#define MAX_ELEMENTS ((size_t)1 << 22) /* of all sequences; each step of a list is a new one */

bool run__has_sequence(const struct run *r, const struct graph_node *n)
{
    for (uint32_t i = 0; i < n->n_in; i++)
        if (n->in[i] != GRAPH_NONE && run__is_sequence(r->map[n->in[i]]))
            return true;
    return false;
}

int run__add_sequence(struct run *r, const uint32_t *of, uint32_t n, uint32_t *out,
                      struct sh_err *err)
{
    struct run_sequence s = {.n = n};
    int rc;

    if (n > MAX_ELEMENTS - r->n_elements)
        return SH_FAIL(err, SH_E_TOOBIG, "the sequences of the model have more than %zu elements",
                       MAX_ELEMENTS);
    rc = sh_grow(&r->sequences, &r->cap_sequences, r->n_sequences + 1, sizeof(*r->sequences),
                 MAX_ELEMENTS, "sequences of a model", err);
    if (rc)
        return rc;
    s.of = calloc((size_t)n + 1, sizeof(*s.of));
    if (!s.of)
        return SH_FAIL(err, SH_E_NOMEM, "could not allocate a sequence");
    if (n)
        memcpy(s.of, of, n * sizeof(*s.of));
    r->n_elements += n;
    r->sequences[r->n_sequences] = s;
    *out = RUN_SEQUENCE | (uint32_t)r->n_sequences++;
    return SH_OK;
}

const struct run_sequence *run__sequence(const struct run *r, uint32_t v)
{
    return &r->sequences[v & ~RUN_SEQUENCE];
}

void run__sequences_fini(struct run *r)
{
    for (size_t i = 0; i < r->n_sequences; i++)
        free(r->sequences[i].of);
    free(r->sequences);
}

/* ---------------------------------------------------------------- the operators */

struct seq_op {
    struct run *r;
    const struct graph_node *n;
    struct shape_ctx *c; /* its inputs may be sequences */
    uint32_t out;        /* of the node */
};

/* Input i as a sequence; NULL: it is none, which is recorded. */
static const struct run_sequence *sequence_in(struct seq_op *s, uint32_t i)
{
    const uint32_t v = i < s->c->n.n_in ? s->c->n.in[i] : GRAPH_NONE;

    if (run__is_sequence(v) && !run__sequence(s->r, v)->is_none)
        return run__sequence(s->r, v);
    shape__fail(s->c, SH_E_INVALID, "input %u must be a sequence", i);
    return NULL;
}

static bool is_tensor_in(struct seq_op *s, uint32_t i)
{
    if (!shape__has(s->c, i) || run__is_sequence(s->c->n.in[i]))
        shape__fail(s->c, SH_E_INVALID, "input %u must be a tensor", i);
    return s->c->err->rc == SH_OK;
}

/* The place that input i names; n where it is absent and may be. */
static uint32_t place_in(struct seq_op *s, uint32_t i, uint32_t n, bool may_be_end)
{
    const int64_t last = (int64_t)n - (may_be_end ? 0 : 1);
    int64_t at = last;
    size_t k = 0;

    if (!shape__has(s->c, i) || !is_tensor_in(s, i))
        return (uint32_t)SH_MAX(last, 0);
    shape__ints(s->c, i, &at, 1, &k);
    if (k != 1 || at < -(int64_t)n || at > last)
        shape__fail(s->c, SH_E_INVALID, "place %lld is outside of a sequence of %u", (long long)at,
                    n);
    return s->c->err->rc ? 0 : (uint32_t)(at < 0 ? at + n : at);
}

static void give_sequence(struct seq_op *s, const uint32_t *of, uint32_t n)
{
    if (s->c->err->rc == SH_OK)
        run__add_sequence(s->r, of, n, &s->out, s->c->err);
}

static void seq_empty(struct seq_op *s)
{
    give_sequence(s, NULL, 0);
}

static void seq_construct(struct seq_op *s)
{
    for (uint32_t i = 0; i < s->n->n_in; i++)
        is_tensor_in(s, i);
    give_sequence(s, s->c->n.in, s->n->n_in);
}

static void seq_insert(struct seq_op *s)
{
    const struct run_sequence *x = sequence_in(s, 0);
    uint32_t at, *of = NULL, n = x ? x->n : 0;

    if (!x || !is_tensor_in(s, 1))
        return;
    at = place_in(s, 2, n, true);
    of = calloc((size_t)n + 1, sizeof(*of));
    if (!of)
        SH_FAIL(s->c->err, SH_E_NOMEM, "could not allocate a sequence");
    if (s->c->err->rc == SH_OK) {
        memcpy(of, x->of, at * sizeof(*of));
        of[at] = s->c->n.in[1];
        memcpy(of + at + 1, x->of + at, (n - at) * sizeof(*of));
        give_sequence(s, of, n + 1);
    }
    free(of);
}

static void seq_erase(struct seq_op *s)
{
    const struct run_sequence *x = sequence_in(s, 0);
    uint32_t at, n = x ? x->n : 0, *of;

    if (x && n == 0)
        shape__fail(s->c, SH_E_INVALID, "takes from an empty sequence");
    at = place_in(s, 1, n, false);
    of = calloc((size_t)n + 1, sizeof(*of));
    if (!of)
        SH_FAIL(s->c->err, SH_E_NOMEM, "could not allocate a sequence");
    if (x && s->c->err->rc == SH_OK) {
        memcpy(of, x->of, at * sizeof(*of));
        memcpy(of + at, x->of + at + 1, (n - at - 1) * sizeof(*of));
        give_sequence(s, of, n - 1);
    }
    free(of);
}

static void seq_at(struct seq_op *s)
{
    const struct run_sequence *x = sequence_in(s, 0);
    uint32_t at;

    if (x && x->n == 0)
        shape__fail(s->c, SH_E_INVALID, "takes from an empty sequence");
    at = x ? place_in(s, 1, x->n, false) : 0;
    if (s->c->err->rc == SH_OK)
        s->out = x->of[at];
}

static void seq_length(struct seq_op *s)
{
    const struct run_sequence *x = sequence_in(s, 0);

    if (!x)
        return;
    s->out = rw_number(s->c, SH_I64, x->n);
    if (s->c->err->rc == SH_OK)
        s->c->g->values[s->out].by_size = true; /* it may */
}

static int64_t attr_int(struct seq_op *s, const char *name, int64_t def)
{
    int64_t v = def;

    graph_int(s->n, name, def, &v, s->c->err);
    return v;
}

/* Sizes of the parts along the axis: a list, or one number for all, the last one smaller. OWNED. */
static int64_t *part_sizes(struct seq_op *s, int64_t whole, uint32_t *n)
{
    const struct graph_value *v = shape__has(s->c, 1) ? rw_v(s->c, s->c->n.in[1]) : NULL;
    const bool is_list = v && v->rank == 1;
    int64_t each = 1, *sizes, count, sum = 0;
    size_t k = 0;

    if (v && !is_list)
        shape__ints(s->c, 1, &each, 1, &k);
    if (each < 1)
        shape__fail(s->c, SH_E_INVALID, "parts of %lld", (long long)each);
    if (s->c->err->rc)
        return NULL;
    count = is_list ? v->dims[0] : whole / each + (whole % each != 0);
    if ((uint64_t)count > MAX_ELEMENTS)
        shape__fail(s->c, SH_E_TOOBIG, "splits into %lld parts", (long long)count);
    sizes = s->c->err->rc ? NULL : calloc((size_t)count + 1, sizeof(*sizes));
    if (!sizes)
        SH_FAIL(s->c->err, SH_E_NOMEM, "could not allocate the parts of a sequence");
    if (is_list)
        shape__ints(s->c, 1, sizes, (size_t)count, &k);
    for (int64_t i = 0; s->c->err->rc == SH_OK && i < count; i++) {
        if (!is_list)
            sizes[i] = SH_MIN(each, whole - sum);
        if (sizes[i] < 0 || sizes[i] > whole - sum)
            shape__fail(s->c, SH_E_INVALID, "the parts do not add up to %lld", (long long)whole);
        sum += sizes[i];
    }
    if (sum != whole)
        shape__fail(s->c, SH_E_INVALID, "the parts do not add up to %lld", (long long)whole);
    *n = (uint32_t)count;
    return sizes;
}

static void seq_split(struct seq_op *s)
{
    const bool drops = !shape__has(s->c, 1) && !attr_int(s, "keepdims", 1);
    int64_t axis = attr_int(s, "axis", 0), *sizes = NULL, from = 0;
    uint32_t n = 0, *of = NULL;
    struct graph_value x;

    if (!is_tensor_in(s, 0) || (shape__has(s->c, 1) && !is_tensor_in(s, 1)))
        return;
    x = *rw_v(s->c, s->c->n.in[0]);
    shape__axis(s->c, axis, x.rank, &axis);
    if (s->c->err->rc == SH_OK)
        sizes = part_sizes(s, x.dims[axis], &n);
    if (s->c->err->rc == SH_OK) {
        of = calloc((size_t)n + 1, sizeof(*of));
        if (!of)
            SH_FAIL(s->c->err, SH_E_NOMEM, "could not allocate a sequence");
    }
    for (uint32_t i = 0; i < n && s->c->err->rc == SH_OK; i++) {
        const int64_t at = axis;

        of[i] = rw_slice(s->c, s->c->n.in[0], (int)axis, from, from + sizes[i], 1);
        if (drops)
            of[i] = rw2(s->c, "Squeeze", of[i], rw_list(s->c, &at, 1));
        from += sizes[i];
    }
    give_sequence(s, of, n);
    free(of);
    free(sizes);
}

static void seq_concat(struct seq_op *s)
{
    const struct run_sequence *x = sequence_in(s, 0);
    const bool is_new = attr_int(s, "new_axis", 0) != 0;
    int64_t axis = attr_int(s, "axis", 0);
    uint32_t *of, n = x ? x->n : 0;
    int rank;

    if (x && n == 0)
        shape__fail(s->c, SH_E_INVALID, "joins an empty sequence");
    if (s->c->err->rc)
        return;
    rank = rw_v(s->c, x->of[0])->rank + is_new;
    shape__axis(s->c, axis, rank, &axis);
    of = calloc((size_t)n + 1, sizeof(*of));
    if (!of)
        SH_FAIL(s->c->err, SH_E_NOMEM, "could not allocate a sequence");
    for (uint32_t i = 0; i < n && s->c->err->rc == SH_OK; i++)
        of[i] = is_new ? rw2(s->c, "Unsqueeze", x->of[i], rw_list(s->c, &axis, 1)) : x->of[i];
    if (s->c->err->rc == SH_OK)
        s->out = rw_concat(s->c, of, n, (int)axis);
    free(of);
}

/* ---------------------------------------------------------------- optionals */

static bool is_no_sequence(struct seq_op *s)
{
    const uint32_t v = s->c->n.n_in > 0 ? s->c->n.in[0] : GRAPH_NONE;

    return v == GRAPH_NONE || (run__is_sequence(v) && run__sequence(s->r, v)->is_none);
}

/* One with a value is the value. */
static void optional(struct seq_op *s)
{
    if (!is_no_sequence(s)) {
        s->out = s->c->n.in[0];
        return;
    }
    give_sequence(s, NULL, 0);
    if (s->c->err->rc == SH_OK)
        s->r->sequences[s->out & ~RUN_SEQUENCE].is_none = true;
}

static void optional_get(struct seq_op *s)
{
    if (is_no_sequence(s))
        shape__fail(s->c, SH_E_INVALID, "takes the value of an empty optional");
    else
        s->out = s->c->n.in[0];
}

static void optional_has(struct seq_op *s)
{
    s->out = rw_number(s->c, SH_BOOL, !is_no_sequence(s));
}

/* ---------------------------------------------------------------- any node */

/* Results of both branches, of which at least one is a sequence. */
static int choose_sequence(struct run *r, const struct graph_node *n, struct shape_ctx *c)
{
    const struct graph_value *q =
        n->n_in && !run__is_sequence(c->n.in[0]) && shape__has(c, 0) ? shape__in(c, 0) : NULL;
    uint32_t first;

    if (!q || q->dtype != SH_BOOL || graph_elements(q) != 1 || n->n_in != 2 * n->n_out + 1)
        return shape__fail(c, SH_E_INVALID, "needs one BOOL as condition");
    if (!q->data)
        return shape__computed(c, 0);
    first = *(const bool *)q->data ? 1 : 1 + n->n_out;
    for (uint32_t k = 0; k < n->n_out; k++) {
        if (c->n.in[first + k] == GRAPH_NONE)
            return shape__fail(c, SH_E_UNSUPPORTED, WHY_BRANCH, c->lost);
        if (n->out[k] != GRAPH_NONE)
            r->map[n->out[k]] = c->n.in[first + k];
    }
    return SH_OK;
}

static int with_sequences(struct run *r, const struct graph_node *n, struct shape_ctx *c)
{
    static const struct {
        const char *op;
        void (*fn)(struct seq_op *s);
    } OPS[] = {
        {"ConcatFromSequence", seq_concat},
        {"Identity", optional_get},
        {"Optional", optional},
        {"OptionalGetElement", optional_get},
        {"OptionalHasElement", optional_has},
        {"SequenceAt", seq_at},
        {"SequenceConstruct", seq_construct},
        {"SequenceEmpty", seq_empty},
        {"SequenceErase", seq_erase},
        {"SequenceInsert", seq_insert},
        {"SequenceLength", seq_length},
        {"SplitToSequence", seq_split},
    };
    struct seq_op s = {.r = r, .n = n, .c = c, .out = GRAPH_NONE};

    for (size_t i = 0; i < SH_ARRAY_LEN(OPS); i++) {
        if (strcmp(OPS[i].op, n->op) != 0)
            continue;
        OPS[i].fn(&s);
        if (c->err->rc == SH_OK && n->out[0] != GRAPH_NONE)
            r->map[n->out[0]] = s.out;
        return c->err->rc;
    }
    return shape__fail(c, SH_E_INVALID, "has a sequence where a tensor belongs");
}

/* Opens a control node: its inputs in the new graph, for shape__fail(), shape__ints() and rw_*().
 * in: OWNED by the caller, [n->n_in]. */
static struct shape_ctx open_control(struct run *r, const struct graph_node *n, uint32_t *in)
{
    struct shape_ctx c = {.g = r->c.g,
                          .n = *n,
                          .training = r->c.training,
                          .wanted = GRAPH_NONE,
                          .lost = r->c.lost,
                          .err = &r->err};

    for (uint32_t i = 0; i < n->n_in; i++)
        in[i] = n->in[i] == GRAPH_NONE ? GRAPH_NONE : r->map[n->in[i]];
    c.n.in = in;
    c.n.n_out = 0;
    return c;
}

/* Inputs that are values of before; a loop has results of its body behind them. */
static uint32_t own_inputs(const struct graph_node *n)
{
    int64_t given = n->n_in;

    if (strcmp(n->op, "If") == 0)
        return 1;
    if (graph_int(n, GRAPH_GIVEN, n->n_in, &given, NULL) || given < 0 || given > n->n_in)
        return n->n_in;
    return (uint32_t)given;
}

int run__control(struct run *r, const struct graph_node *n)
{
    const char *wrong = shape__wrong_links(shape__op(n->op), n);
    uint32_t *in = calloc((size_t)n->n_in + 1, sizeof(*in));
    struct shape_ctx c;
    int rc;

    if (!in)
        return SH_FAIL(&r->err, SH_E_NOMEM, "could not allocate a node");
    c = open_control(r, n, in);
    for (uint32_t i = 0; i < own_inputs(n) && i < n->n_in; i++)
        if (n->in[i] != GRAPH_NONE && in[i] == GRAPH_NONE) {
            free(in);
            return r->list && !graph__attr(n, GRAPH_BRANCH)
                       ? SH_OK /* its producer was refused */
                       : run__fail(r, n, SH_E_UNSUPPORTED, WHY_NO_RESULT);
        }
    if (wrong)
        rc = shape__fail(&c, SH_E_INVALID, "%s", wrong);
    else if (strcmp(n->op, "Loop") == 0)
        rc = run__loop(r, n, &c);
    else if (strcmp(n->op, "Scan") == 0)
        rc = run__scan(r, n, &c);
    else if (strcmp(n->op, "SequenceMap") == 0)
        rc = run__sequence_map(r, n, &c);
    else if (strcmp(n->op, "If") == 0)
        rc = choose_sequence(r, n, &c);
    else
        rc = with_sequences(r, n, &c);
    if (c.wanted != GRAPH_NONE)
        r->c.wanted = c.wanted;
    free(in);
    return rc;
}
