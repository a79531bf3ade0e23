/* sweep.c - removes nodes and values that no output needs. */
#include "runtime/model/shape_int.h"

#include <stdlib.h>
#include <string.h>

static bool is_node_live(const struct graph_node *n, const bool *live)
{
    for (uint32_t k = 0; k < n->n_out; k++)
        if (n->out[k] != GRAPH_NONE && live[n->out[k]])
            return true;
    return false;
}

static void mark_live(const struct graph *g, bool *live)
{
    for (uint32_t i = 0; i < g->n_inputs; i++)
        live[g->inputs[i]] = true;
    for (uint32_t i = 0; i < g->n_outputs; i++) {
        const struct graph_value *v = &g->values[g->outputs[i]];

        live[g->outputs[i]] = true;
        if (v->counted)
            live[v->count] = true;
    }
    for (uint32_t i = g->n_nodes; i-- > 0;) {
        const struct graph_node *n = &g->nodes[i];

        if (!is_node_live(n, live))
            continue;
        for (uint32_t j = 0; j < n->n_in; j++)
            if (n->in[j] != GRAPH_NONE)
                live[n->in[j]] = true;
    }
    /* Outputs of a live node exist, used or not. */
    for (uint32_t i = 0; i < g->n_nodes; i++) {
        const struct graph_node *n = &g->nodes[i];
        bool alive = is_node_live(n, live);

        for (uint32_t k = 0; alive && k < n->n_out; k++)
            if (n->out[k] != GRAPH_NONE)
                live[n->out[k]] = true;
    }
}

static void renumber(uint32_t *list, uint32_t n, const uint32_t *to)
{
    for (uint32_t i = 0; i < n; i++)
        if (list[i] != GRAPH_NONE)
            list[i] = to[list[i]];
}

static void drop_nodes(struct graph *g, const bool *live)
{
    uint32_t kept = 0;

    for (uint32_t i = 0; i < g->n_nodes; i++) {
        if (!is_node_live(&g->nodes[i], live)) {
            graph__node_fini(&g->nodes[i]);
            continue;
        }
        if (kept != i) {
            g->nodes[kept] = g->nodes[i];
            memset(&g->nodes[i], 0, sizeof(g->nodes[i]));
        }
        kept++;
    }
    g->n_nodes = kept;
}

static void drop_values(struct graph *g, const bool *live, uint32_t *to)
{
    uint32_t kept = 0;

    for (uint32_t i = 0; i < g->n_values; i++) {
        to[i] = GRAPH_NONE;
        if (!live[i]) {
            graph__value_fini(&g->values[i]);
            continue;
        }
        to[i] = kept;
        if (kept != i) {
            g->values[kept] = g->values[i];
            memset(&g->values[i], 0, sizeof(g->values[i]));
        }
        kept++;
    }
    g->n_values = kept;
    for (uint32_t i = 0; i < kept; i++) { /* only outputs have to say how many there are */
        struct graph_value *v = &g->values[i];

        v->count = v->counted ? to[v->count] : 0;
        v->counted = v->count == GRAPH_NONE ? 0 : v->counted;
        free(v->numbers);
        v->numbers = NULL;
    }
}

int graph__sweep(struct graph *g, struct sh_err *err)
{
    bool *live = calloc((size_t)g->n_values + 1, sizeof(*live));
    uint32_t *to = calloc((size_t)g->n_values + 1, sizeof(*to));

    if (!live || !to) {
        free(live);
        free(to);
        return SH_FAIL(err, SH_E_NOMEM, "could not allocate a graph");
    }
    mark_live(g, live);
    drop_nodes(g, live);
    drop_values(g, live, to);
    for (uint32_t i = 0; i < g->n_nodes; i++) {
        renumber(g->nodes[i].in, g->nodes[i].n_in, to);
        renumber(g->nodes[i].out, g->nodes[i].n_out, to);
    }
    renumber(g->inputs, g->n_inputs, to);
    renumber(g->outputs, g->n_outputs, to);
    free(live);
    free(to);
    return SH_OK;
}
