/* masked.c - x[mask] = v, as PyTorch's newer exporter writes it:
 *
 *     count = ReduceSum(Cast(Reshape(mask, [-1])))
 *     rows  = Reshape(Expand(v, [count, ...]), [-1])
 *     y     = ScatterND(x, Transpose(NonZero(Expand(Unsqueeze(mask)))), rows)
 *
 * with the mask as NonZero has it where x has no more axes. That the count is the number of what
 * NonZero gives is known from here only. So the last node becomes PutMasked of x, mask, v and what
 * NonZero has, and the Expand an Identity. Sizes are not known yet: PutMasked compares them.
 */
#include "common/mem.h"
#include "runtime/model/graph_int.h"
#include "runtime/model/shape_int.h"

#include <stdlib.h>
#include <string.h>

#define MAX_AXES 16 /* of a list of axes */

struct masked {
    struct graph *g;
    uint32_t *writer; /* 1 + the node that gives a value; 0: none */
    uint32_t *uses;   /* of a value */
};

/* The node that gives input i of n, if it is of this operator. */
static struct graph_node *from(const struct masked *m, const struct graph_node *n, uint32_t i,
                               const char *op)
{
    const uint32_t v = n && i < n->n_in ? n->in[i] : GRAPH_NONE;
    struct graph_node *w = v != GRAPH_NONE && m->writer[v] ? &m->g->nodes[m->writer[v] - 1] : NULL;

    return w && strcmp(w->op, op) == 0 ? w : NULL;
}

/* Integers of a constant input; -1: it is none, or has too many. */
static int node_numbers(const struct masked *m, const struct graph_node *n, uint32_t i,
                        int64_t out[static MAX_AXES])
{
    const struct graph_value *v =
        n && i < n->n_in && n->in[i] != GRAPH_NONE ? &m->g->values[n->in[i]] : NULL;
    const int64_t k = v && v->data && shape__is_int(v->dtype) ? graph_elements(v) : -1;

    for (int64_t e = 0; e < k && k <= MAX_AXES; e++)
        out[e] = shape__get_i64(v->dtype, v->data, (size_t)e);
    return k <= MAX_AXES ? (int)k : -1;
}

/* Reshape to one axis. */
static bool is_flattened(const struct masked *m, const struct graph_node *n)
{
    int64_t to[MAX_AXES];

    return n && node_numbers(m, n, 1, to) == 1 && to[0] == -1;
}

/* Does input i of n count the true elements of a mask? Of that mask; else GRAPH_NONE. */
static uint32_t counted_mask(const struct masked *m, const struct graph_node *n, uint32_t i)
{
    const struct graph_node *sum = from(m, n, i, "ReduceSum"), *cast, *flat;
    int64_t noop = 0;

    if (!sum || (sum->n_in > 1 && sum->in[1] != GRAPH_NONE) ||
        graph_int(sum, "noop_with_empty_axes", 0, &noop, NULL) || noop)
        return GRAPH_NONE;
    cast = from(m, sum, 0, "Cast");
    flat = from(m, cast, 0, "Reshape");
    return is_flattened(m, flat) ? flat->in[0] : GRAPH_NONE;
}

/* The mask that the sizes of an Expand count, in the first of them. */
static uint32_t mask_of_sizes(const struct masked *m, const struct graph_node *expand)
{
    const struct graph_node *list = from(m, expand, 1, "Concat");

    return list && list->n_in > 0 ? counted_mask(m, list, 0) : counted_mask(m, expand, 1);
}

/* Is the value what NonZero takes for x[mask]: the mask, or with axes of x behind its own? */
static bool is_non_zero_mask(const struct masked *m, const struct graph_node *non_zero,
                             uint32_t mask)
{
    const struct graph_node *expand, *more;
    uint32_t seen = 0;
    int64_t axes[MAX_AXES];
    int n;

    if (non_zero->in[0] == mask)
        return true;
    expand = from(m, non_zero, 0, "Expand");
    more = from(m, expand, 0, "Unsqueeze");
    n = node_numbers(m, more, 1, axes);
    for (int i = 0; i < n; i++)
        if (axes[i] >= -n && axes[i] < 0)
            seen |= 1u << (-axes[i] - 1);
    return n > 0 && seen == (1u << n) - 1 && more->in[0] == mask;
}

static bool is_axes_turned(const struct graph_node *n)
{
    int64_t perm[SH_MAX_RANK];
    size_t k;

    return n && !graph_ints(n, "perm", perm, SH_MAX_RANK, &k, NULL) &&
           (k == 0 || (k == 2 && perm[0] == 1 && perm[1] == 0));
}

static int look_at_scatter(struct masked *m, struct graph_node *n, struct sh_err *err)
{
    struct graph_node *turn = from(m, n, 1, "Transpose"), *flat = from(m, n, 2, "Reshape"),
                      *expand = from(m, flat, 0, "Expand");
    const struct graph_node *non_zero = from(m, turn, 0, "NonZero");
    const char *reduction = "none";
    uint32_t mask, *in;
    char *op[2];

    if (!is_axes_turned(turn) || !non_zero || !expand || !is_flattened(m, flat) ||
        m->uses[flat->in[0]] != 1 || m->uses[n->in[2]] != 1 ||
        graph_str(n, "reduction", "none", &reduction, NULL) || strcmp(reduction, "none") != 0)
        return SH_OK;
    mask = mask_of_sizes(m, expand);
    if (mask == GRAPH_NONE || !is_non_zero_mask(m, non_zero, mask))
        return SH_OK;
    op[0] = strdup("Identity");
    op[1] = strdup("PutMasked");
    in = malloc(4 * sizeof(*in));
    if (!op[0] || !op[1] || !in) {
        free(op[0]);
        free(op[1]);
        free(in);
        return SH_FAIL(err, SH_E_NOMEM, "could not allocate a node");
    }
    memcpy(in, (const uint32_t[]){n->in[0], mask, expand->in[0], non_zero->in[0]}, 4 * sizeof(*in));
    free(n->in);
    n->in = in;
    n->n_in = 4;
    expand->n_in = 1;
    free(expand->op);
    expand->op = op[0];
    free(n->op);
    n->op = op[1];
    return SH_OK;
}

int graph__find_masked(struct graph *g, struct sh_err *err)
{
    struct masked m = {.g = g,
                       .writer = calloc((size_t)g->n_values + 1, sizeof(*m.writer)),
                       .uses = calloc((size_t)g->n_values + 1, sizeof(*m.uses))};
    int rc = m.writer && m.uses ? SH_OK : SH_FAIL(err, SH_E_NOMEM, "could not allocate uses");

    for (uint32_t i = 0; i < g->n_nodes && rc == SH_OK; i++) {
        for (uint32_t k = 0; k < g->nodes[i].n_out; k++)
            if (g->nodes[i].out[k] != GRAPH_NONE)
                m.writer[g->nodes[i].out[k]] = i + 1;
        for (uint32_t k = 0; k < g->nodes[i].n_in; k++)
            if (g->nodes[i].in[k] != GRAPH_NONE)
                m.uses[g->nodes[i].in[k]]++;
    }
    for (uint32_t i = 0; i < g->n_outputs && rc == SH_OK; i++)
        m.uses[g->outputs[i]]++;
    for (uint32_t i = 0; i < g->n_nodes && rc == SH_OK; i++)
        if (strcmp(g->nodes[i].op, "ScatterND") == 0)
            rc = look_at_scatter(&m, &g->nodes[i], err);
    free(m.writer);
    free(m.uses);
    return rc;
}
