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
 * that have fewer.
 */
#include "common/mem.h"
#include "runtime/model/graph_int.h"
#include "runtime/model/shape_int.h"

#include <stdlib.h>
#include <string.h>

#define MAX_VISITS 64               /* nodes that a part or a mask is followed through */
#define MAX_NUMBERS ((int64_t)4096) /* of a constant that a mask is made of */

struct use {
    uint32_t node, slot, next; /* next: 1 + another use of the same value; 0: none */
};

struct hits {
    const struct graph *g;
    uint32_t *writer; /* 1 + the node that gives a value; 0: none */
    uint32_t *first;  /* 1 + a use of a value; 0: none */
    struct use *uses;
    uint32_t mask;
    int visits;
};

static bool is_one_of(const struct graph_node *n, const char *const *ops)
{
    while (*ops && strcmp(n->op, *ops) != 0)
        ops++;
    return *ops != NULL;
}

static const struct graph_node *writer_of(const struct hits *h, uint32_t v)
{
    return v != GRAPH_NONE && h->writer[v] ? &h->g->nodes[h->writer[v] - 1] : NULL;
}

/* The value that v is, but for its form. */
static uint32_t formed_of(const struct hits *h, uint32_t v)
{
    static const char *const FORMS[] = {"Cast", "Identity", "Transpose", NULL};
    const struct graph_node *n = writer_of(h, v);

    for (int k = 0; k < MAX_VISITS && n && is_one_of(n, FORMS); k++) {
        v = n->in[0];
        n = writer_of(h, v);
    }
    return v;
}

static bool is_number(const struct graph *g, uint32_t v, double number)
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
    n = writer_of(h, v);
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
    const struct graph_node *n = writer_of(h, formed_of(h, split->in[0]));

    if (!n || strcmp(n->op, "NonZero") != 0)
        return GRAPH_NONE;
    n = writer_of(h, formed_of(h, n->in[0]));
    if (!n || strcmp(n->op, "Greater") != 0 || !is_number(h->g, n->in[1], 0))
        return GRAPH_NONE;
    n = writer_of(h, n->in[0]);
    h->visits = 0;
    return n && strcmp(n->op, "ReduceSum") == 0 && adds_rows_up(h, n) &&
                   is_none_below_0(h, n->in[0])
               ? n->in[0]
               : GRAPH_NONE;
}

static bool is_output(const struct graph *g, uint32_t v)
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
    static const char *const FORMS[] = {"Cast",    "Flatten",   "Identity", "Reshape",
                                        "Squeeze", "Unsqueeze", NULL};
    bool all;

    if (v == GRAPH_NONE)
        return false;
    all = !is_output(h->g, v);
    for (uint32_t u = h->first[v]; u && all; u = h->uses[u - 1].next) {
        const struct graph_node *n = &h->g->nodes[h->uses[u - 1].node];
        const uint32_t slot = h->uses[u - 1].slot;

        all = ++h->visits <= MAX_VISITS &&
              (slot == 0 && is_one_of(n, FORMS) ? all_uses(h, n->out[0], fn, found)
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
    return h->mask != GRAPH_NONE;
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
    if (!h->writer || !h->first || !h->uses)
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
    return rc;
}
