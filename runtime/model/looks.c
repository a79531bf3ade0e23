/* looks.c - see looks.h. */
#include "runtime/model/looks.h"

#include <stdlib.h>
#include <string.h>

int looks_again(const struct graph *g, const char **node, struct sh_err *err)
{
    bool *seen; /* by value: it follows from what a GridSample saw */

    *node = NULL;
    if (g->says_kinds)
        return SH_OK;
    seen = calloc(g->n_values + 1u, sizeof(*seen));
    if (!seen)
        return SH_FAIL(err, SH_E_NOMEM, "could not allocate a list of %u values", g->n_values);
    for (uint32_t i = 0; i < g->n_nodes && !*node; i++) {
        const struct graph_node *n = &g->nodes[i];
        const bool looks = strcmp(n->op, "GridSample") == 0;
        bool any = looks;

        if (looks && n->n_in > 1 && n->in[1] != GRAPH_NONE && seen[n->in[1]])
            *node = n->name;
        for (uint32_t k = 0; k < n->n_in && !any; k++)
            any = n->in[k] != GRAPH_NONE && seen[n->in[k]];
        for (uint32_t k = 0; k < n->n_out; k++)
            if (n->out[k] != GRAPH_NONE)
                seen[n->out[k]] = any;
    }
    free(seen);
    return SH_OK;
}
