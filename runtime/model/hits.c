/* hits.c - loops over what was found, which an export has unrolled:
 *
 *     for e in nonzero(mask.sum(...) > 0):
 *         rows = nonzero(mask[e])
 *         y[rows] += f(x[rows], weights[e])
 *
 * as mixtures of experts are written. The file has a Split of what NonZero gave into as many parts
 * of one as one sample had. Each part only says which row of the mask and of the weights is taken,
 * and rows of the mask that were not found are zeros, since it has nothing below 0: whatever is
 * done for one of those adds nothing. So such a Split may give those too, and is right of samples
 * that have fewer. What a turn does to all rows, as `y = y * 0.5`, it would do once too often: so
 * all that comes of a part ends in rows that a scatter writes, and what one turn has written goes
 * into the next as it is.
 */
#include "common/mem.h"
#include "runtime/model/graph_int.h"
#include "runtime/model/shape_int.h"

#include <stdlib.h>
#include <string.h>

#define MAX_VISITS 64               /* nodes that a part or a mask is followed through */
#define MAX_NUMBERS ((int64_t)4096) /* of a constant that a mask is made of */
#define MAX_LOOPS 256               /* that are looked at, each with a pass over all nodes */

static const char *const FORMS[] = {"Cast",    "Flatten",   "Identity", "Reshape",
                                    "Squeeze", "Unsqueeze", NULL};

/* What a value is to a loop. Those from OF_TURN on come of the part of their turn. */
enum kind {
    OUTSIDE,
    SUM,     /* what the loop adds to, after its turn */
    CHANGED, /* comes of a sum that is not the last, in no turn: only its sizes may be used */
    OF_TURN,
    ROW,    /* of the mask */
    EMPTY,  /* no elements, if the row is zeros */
    ADDEND, /* zeros, if the row is zeros */
};

struct mark {
    enum kind kind;
    uint32_t turn; /* from 1 */
};

struct use {
    uint32_t node, slot, next; /* next: 1 + another use of the same value; 0: none */
};

struct hits {
    const struct graph *g;
    uint32_t *writer; /* 1 + the node that gives a value; 0: none */
    uint32_t *first;  /* 1 + a use of a value; 0: none */
    struct use *uses;
    uint32_t mask;
    int visits, loops;
    struct mark *marks;    /* of each value */
    unsigned char *zeroed; /* of each value: 0: not known; 1: it is not zeros; 2: it is */
    bool is_added;         /* turns add what they have scattered onto zeros */
};

static bool is_one_of_ops(const struct graph_node *n, const char *const *ops)
{
    while (*ops && strcmp(n->op, *ops) != 0)
        ops++;
    return *ops != NULL;
}

static const struct graph_node *writer_of_hit(const struct hits *h, uint32_t v)
{
    return v != GRAPH_NONE && h->writer[v] ? &h->g->nodes[h->writer[v] - 1] : NULL;
}

/* The value that v is, but for its form. */
static uint32_t formed_of(const struct hits *h, uint32_t v)
{
    static const char *const OPS[] = {"Cast", "Identity", "Transpose", NULL};
    const struct graph_node *n = writer_of_hit(h, v);

    for (int k = 0; k < MAX_VISITS && n && is_one_of_ops(n, OPS); k++) {
        v = n->in[0];
        n = writer_of_hit(h, v);
    }
    return v;
}

static bool is_scalar_number(const struct graph *g, uint32_t v, double number)
{
    const struct graph_value *x = v == GRAPH_NONE ? NULL : &g->values[v];

    return x && x->data && graph_elements(x) == 1 && shape__get_f64(x->dtype, x->data, 0) == number;
}

/* Are all but the first axis added up? The result has one axis (counted_shape.c), so the sum is
 * along all but one. */
static bool adds_rows_up(const struct hits *h, const struct graph_node *n)
{
    const struct graph_value *x =
        n->n_in > 1 && n->in[1] != GRAPH_NONE ? &h->g->values[n->in[1]] : NULL;
    int64_t axes[SH_MAX_RANK];
    size_t k = 0;
    bool is = true;

    if (x && (!x->data || graph_elements(x) > SH_MAX_RANK))
        return false;
    for (; x && k < (size_t)graph_elements(x); k++)
        axes[k] = shape__get_i64(x->dtype, x->data, k);
    if (!x && graph_ints(n, "axes", axes, SH_MAX_RANK, &k, NULL) != SH_OK)
        return false;
    for (size_t i = 0; i < k && is; i++)
        is = axes[i] + (axes[i] < 0 ? (int64_t)k + 1 : 0) > 0;
    return is && k > 0;
}

static bool has_none_below_0(const struct graph_value *x)
{
    const int64_t n = x->data ? graph_elements(x) : 0;
    bool has = n > 0 && n <= MAX_NUMBERS;

    for (int64_t i = 0; i < n && has; i++)
        has = shape__get_f64(x->dtype, x->data, (size_t)i) >= 0;
    return has;
}

/* Is no element of v below 0? inputs: bits of those of which it is the same. */
static bool is_none_below_0(struct hits *h, uint32_t v)
{
    static const struct {
        const char *op;
        unsigned inputs;
    } OPS[] = {{"Abs", 0},
               {"Add", 3},
               {"And", 0},
               {"ConstantOfShape", 2},
               {"Equal", 0},
               {"Exp", 0},
               {"Expand", 1},
               {"Gather", 1},
               {"Greater", 0},
               {"GreaterOrEqual", 0},
               {"Less", 0},
               {"LessOrEqual", 0},
               {"Mul", 3},
               {"Not", 0},
               {"OneHot", 4},
               {"Or", 0},
               {"ReduceMax", 1},
               {"ReduceSum", 1},
               {"Relu", 0},
               {"Reshape", 1},
               {"ScatterElements", 5},
               {"ScatterND", 5},
               {"Sigmoid", 0},
               {"Slice", 1},
               {"Softmax", 0},
               {"Squeeze", 1},
               {"TopK", 1},
               {"Unsqueeze", 1},
               {"Where", 6}};
    const struct graph_node *n;
    size_t i = 0;

    v = formed_of(h, v);
    n = writer_of_hit(h, v);
    if (!n || ++h->visits > MAX_VISITS)
        return v != GRAPH_NONE && has_none_below_0(&h->g->values[v]);
    while (i < SH_ARRAY_LEN(OPS) && strcmp(OPS[i].op, n->op) != 0)
        i++;
    for (uint32_t k = 0; i < SH_ARRAY_LEN(OPS) && k < n->n_in; k++)
        if ((OPS[i].inputs >> k & 1) && !is_none_below_0(h, n->in[k]))
            return false;
    return i < SH_ARRAY_LEN(OPS);
}

/* The mask of whose rows those that are not all zeros were looked for. */
static uint32_t mask_of(struct hits *h, const struct graph_node *split)
{
    const struct graph_node *n = writer_of_hit(h, formed_of(h, split->in[0]));

    if (!n || strcmp(n->op, "NonZero") != 0)
        return GRAPH_NONE;
    n = writer_of_hit(h, formed_of(h, n->in[0]));
    if (!n || strcmp(n->op, "Greater") != 0 || !is_scalar_number(h->g, n->in[1], 0))
        return GRAPH_NONE;
    n = writer_of_hit(h, n->in[0]);
    h->visits = 0;
    return n && strcmp(n->op, "ReduceSum") == 0 && adds_rows_up(h, n) &&
                   is_none_below_0(h, n->in[0])
               ? n->in[0]
               : GRAPH_NONE;
}

static bool is_graph_output(const struct graph *g, uint32_t v)
{
    for (uint32_t i = 0; i < g->n_outputs; i++)
        if (g->outputs[i] == v)
            return true;
    return false;
}

typedef bool use_fn(struct hits *h, const struct graph_node *n, uint32_t slot, bool *found);

/* Is each use of v one that `fn` allows? Forms of it are followed. */
static bool all_uses(struct hits *h, uint32_t v, use_fn *fn, bool *found)
{
    bool all;

    if (v == GRAPH_NONE)
        return false;
    all = !is_graph_output(h->g, v);
    for (uint32_t u = h->first[v]; u && all; u = h->uses[u - 1].next) {
        const struct graph_node *n = &h->g->nodes[h->uses[u - 1].node];
        const uint32_t slot = h->uses[u - 1].slot;

        all = ++h->visits <= MAX_VISITS &&
              (slot == 0 && is_one_of_ops(n, FORMS) ? all_uses(h, n->out[0], fn, found)
                                                    : fn(h, n, slot, found));
    }
    return all;
}

static bool use_of_row(struct hits *h, const struct graph_node *n, uint32_t slot, bool *found)
{
    (void)h;
    (void)slot;
    *found |= strcmp(n->op, "NonZero") == 0;
    return strcmp(n->op, "NonZero") == 0;
}

/* A part says which row of something is taken: of the mask, or of a constant. */
static bool use_of_part(struct hits *h, const struct graph_node *n, uint32_t slot, bool *found)
{
    int64_t axis = 0;

    if (strcmp(n->op, "Gather") != 0 || graph_int(n, "axis", 0, &axis, NULL) != SH_OK)
        return false;
    if (slot == 0) /* the number in a list of one */
        return h->g->values[n->in[1]].data && all_uses(h, n->out[0], use_of_part, found);
    if (axis != 0)
        return false;
    if (n->in[0] == h->mask)
        return all_uses(h, n->out[0], use_of_row, found);
    return h->g->values[formed_of(h, n->in[0])].data != NULL;
}

static bool are_ones(const struct graph_value *sizes, uint32_t n)
{
    bool ones = sizes->data && graph_elements(sizes) == n;

    for (uint32_t i = 0; i < n && ones; i++)
        ones = shape__get_f64(sizes->dtype, sizes->data, i) == 1;
    return ones;
}

static bool is_zeros_of_hits(struct hits *h, uint32_t v)
{
    const struct graph_value *x = v == GRAPH_NONE ? NULL : &h->g->values[v];
    const struct graph_node *n = writer_of_hit(h, v);
    const int64_t elements = x && x->data ? graph_elements(x) : 0;
    bool is = elements > 0;

    if (n)
        return strcmp(n->op, "ConstantOfShape") == 0 &&
               (n->n_in < 2 || is_scalar_number(h->g, n->in[1], 0));
    if (x && !h->zeroed[v]) {
        for (int64_t i = 0; i < elements && is; i++)
            is = shape__get_f64(x->dtype, x->data, (size_t)i) == 0;
        h->zeroed[v] = is ? 2 : 1;
    }
    return x && h->zeroed[v] == 2;
}

static struct mark mark_of(const struct hits *h, const struct graph_node *n, uint32_t slot)
{
    return slot < n->n_in && n->in[slot] != GRAPH_NONE ? h->marks[n->in[slot]]
                                                       : (struct mark){OUTSIDE, 0};
}

/* May a turn add to it? */
static bool is_sum_of_turn(struct mark m, uint32_t turn)
{
    return m.kind == SUM ? m.turn == turn || m.turn + 1 == turn : m.kind == OUTSIDE && turn == 1;
}

/* What a node gives that takes something of a part. */
static enum kind kind_in_turn(struct hits *h, const struct graph_node *n, uint32_t turn)
{
    static const char *const SCATTERS[] = {"ScatterElements", "ScatterND", NULL};
    static const char *const PIECES[] = {"Expand", "Slice", "Split", NULL};
    static const char *const PAIRS[] = {"Add", "Gather", "Mul", "Sub", "Where", NULL};
    const struct mark a = mark_of(h, n, 0), b = mark_of(h, n, 1);
    uint32_t empty = 0;

    for (uint32_t k = 0; k < n->n_in; k++)
        empty += mark_of(h, n, k).kind == EMPTY;
    if (is_one_of_ops(n, SCATTERS) && a.kind < OF_TURN && b.kind == EMPTY) {
        if (h->is_added)
            return a.kind == OUTSIDE && is_zeros_of_hits(h, n->in[0]) ? ADDEND : OF_TURN;
        return is_sum_of_turn(a, turn) ? SUM : OF_TURN;
    }
    if (strcmp(n->op, "Add") == 0 && ((is_sum_of_turn(a, turn) && b.kind == ADDEND) ||
                                      (is_sum_of_turn(b, turn) && a.kind == ADDEND)))
        return SUM;
    if (strcmp(n->op, "Gather") == 0 && n->in[0] == h->mask)
        return ROW;
    if (strcmp(n->op, "NonZero") == 0)
        return a.kind == ROW ? EMPTY : OF_TURN;
    if (a.kind >= OF_TURN && (is_one_of_ops(n, FORMS) || strcmp(n->op, "Transpose") == 0))
        return a.kind;
    if (is_one_of_ops(n, PIECES) && a.kind == EMPTY)
        return EMPTY;
    if (strcmp(n->op, "Concat") == 0 ? empty == n->n_in : empty && is_one_of_ops(n, PAIRS))
        return EMPTY;
    return OF_TURN;
}

/* False: what it does would not be undone by a row of zeros. */
static bool mark_node(struct hits *h, const struct graph_node *n, uint32_t turns)
{
    static const char *const SIZES[] = {"Shape", "Size", NULL};
    struct mark is = {OUTSIDE, 0};
    uint32_t turn = 0;

    for (uint32_t k = 0; k < n->n_in; k++) {
        const struct mark m = mark_of(h, n, k);

        if (m.kind >= OF_TURN && turn && m.turn != turn)
            return false;
        if (m.kind >= OF_TURN)
            turn = m.turn;
        else if ((m.kind == CHANGED || (m.kind == SUM && m.turn < turns)) &&
                 !is_one_of_ops(n, SIZES))
            is.kind = CHANGED;
    }
    for (uint32_t k = 0; k < n->n_in && turn; k++) {
        const struct mark m = mark_of(h, n, k);

        if (m.kind == CHANGED || (m.kind == SUM && m.turn != turn && m.turn + 1 != turn))
            return false;
    }
    if (turn)
        is = (struct mark){kind_in_turn(h, n, turn), turn};
    else if (is.kind == CHANGED && mark_of(h, n, 0).kind == SUM && is_one_of_ops(n, FORMS))
        is = mark_of(h, n, 0);
    for (uint32_t k = 0; k < n->n_out; k++)
        if (n->out[k] != GRAPH_NONE)
            h->marks[n->out[k]] = is;
    return true;
}

/* Does a turn change nothing whose row of the mask is zeros? Of one turn alone it is not seen what
 * is done in it and what before it. */
static bool only_adds(struct hits *h, const struct graph_node *split, bool is_added)
{
    const struct graph *g = h->g;

    h->is_added = is_added;
    memset(h->marks, 0, g->n_values * sizeof(*h->marks));
    for (uint32_t k = 0; k < split->n_out; k++)
        h->marks[split->out[k]] = (struct mark){OF_TURN, k + 1};
    for (uint32_t i = 0; i < g->n_nodes; i++)
        if (&g->nodes[i] != split && !mark_node(h, &g->nodes[i], split->n_out))
            return false;
    for (uint32_t i = 0; i < g->n_outputs; i++) {
        const struct mark m = h->marks[g->outputs[i]];

        if (m.kind != OUTSIDE && !(m.kind == SUM && m.turn == split->n_out))
            return false;
    }
    return split->n_out > 1;
}

static bool is_loop(struct hits *h, const struct graph_node *split)
{
    if (split->n_in != 2 || split->in[1] == GRAPH_NONE ||
        !are_ones(&h->g->values[split->in[1]], split->n_out))
        return false;
    h->mask = mask_of(h, split);
    for (uint32_t k = 0; k < split->n_out && h->mask != GRAPH_NONE; k++) {
        bool found = false;

        h->visits = 0;
        if (split->out[k] == GRAPH_NONE || !all_uses(h, split->out[k], use_of_part, &found) ||
            !found)
            return false;
    }
    return h->mask != GRAPH_NONE && ++h->loops <= MAX_LOOPS &&
           (only_adds(h, split, false) || only_adds(h, split, true));
}

/* Who gives each value, and who takes it. */
static int index_values(struct hits *h, struct sh_err *err)
{
    const struct graph *g = h->g;
    size_t n_uses = 0;

    for (uint32_t i = 0; i < g->n_nodes; i++)
        n_uses += g->nodes[i].n_in;
    h->writer = calloc((size_t)g->n_values + 1, sizeof(*h->writer));
    h->first = calloc((size_t)g->n_values + 1, sizeof(*h->first));
    h->uses = calloc(n_uses + 1, sizeof(*h->uses));
    h->marks = calloc((size_t)g->n_values + 1, sizeof(*h->marks));
    h->zeroed = calloc((size_t)g->n_values + 1, 1);
    if (!h->writer || !h->first || !h->uses || !h->marks || !h->zeroed)
        return SH_FAIL(err, SH_E_NOMEM, "could not allocate %zu uses of values", n_uses);
    n_uses = 0;
    for (uint32_t i = 0; i < g->n_nodes; i++) {
        const struct graph_node *n = &g->nodes[i];

        for (uint32_t k = 0; k < n->n_out; k++)
            if (n->out[k] != GRAPH_NONE)
                h->writer[n->out[k]] = i + 1;
        for (uint32_t k = 0; k < n->n_in; k++) {
            if (n->in[k] == GRAPH_NONE)
                continue;
            h->uses[n_uses] = (struct use){.node = i, .slot = k, .next = h->first[n->in[k]]};
            h->first[n->in[k]] = (uint32_t)++n_uses;
        }
    }
    return SH_OK;
}

int graph__find_hits(struct graph *g, struct sh_err *err)
{
    struct hits h = {.g = g};
    int rc = index_values(&h, err);

    for (uint32_t i = 0; i < g->n_nodes && rc == SH_OK; i++)
        if (strcmp(g->nodes[i].op, "Split") == 0 && is_loop(&h, &g->nodes[i]))
            rc = graph_set_int(&g->nodes[i], GRAPH_HITS, 1, err);
    free(h.writer);
    free(h.first);
    free(h.uses);
    free(h.marks);
    free(h.zeroed);
    return rc;
}
