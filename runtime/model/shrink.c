/* shrink.c - constants that repeat themselves along an axis become one slice that broadcasts.
 *
 * Exporters expand constants to the batch. Left so, the weights of a model would differ between
 * batch sizes, and programs for two of them could not share one image.
 */
#include "common/mem.h"
#include "runtime/model/shape_int.h"

#include <stdlib.h>

static bool broadcasts(const char *op)
{
    static const char *const OPS[] = {"Add",
                                      "Sub",
                                      "Mul",
                                      "Div",
                                      "Pow",
                                      "Min",
                                      "Max",
                                      "Equal",
                                      "Less",
                                      "LessOrEqual",
                                      "GreaterOrEqual",
                                      "And",
                                      "Or",
                                      "Xor",
                                      "Where",
                                      "Mod",
                                      "FMod",
                                      "Greater"};

    for (size_t i = 0; i < SH_ARRAY_LEN(OPS); i++)
        if (strcmp(op, OPS[i]) == 0)
            return true;
    return false;
}

/* Are all slices along the axis the same bytes? */
static bool repeats(const struct graph_value *v, int axis)
{
    size_t inner = sh_dtype_bytes(v->dtype), outer = 1, n = (size_t)v->dims[axis];

    for (int i = axis + 1; i < v->rank; i++)
        inner *= (size_t)v->dims[i];
    for (int i = 0; i < axis; i++)
        outer *= (size_t)v->dims[i];
    for (size_t o = 0; o < outer; o++)
        for (size_t i = 1; i < n; i++) {
            const char *row = (const char *)v->data + o * n * inner;

            if (memcmp(row, row + i * inner, inner) != 0)
                return false;
        }
    return true;
}

/* Does the node's result keep its shape when value v has these dims? */
static bool fits_slice(const struct graph *g, const struct graph_node *n, uint32_t v,
                       const int64_t *dims)
{
    const struct graph_value *y = &g->values[n->out[0]];

    for (int i = 0; i < y->rank; i++) {
        int64_t size = 1;

        for (uint32_t j = 0; j < n->n_in; j++) {
            const struct graph_value *x = &g->values[n->in[j]];
            int at = i - (y->rank - x->rank);
            int64_t d = at < 0 ? 1 : n->in[j] == v ? dims[at] : x->dims[at];

            size = d == 1 ? size : d;
        }
        if (size != y->dims[i])
            return false;
    }
    return true;
}

static int replace_by_slice(struct graph_value *v, const int64_t *dims, struct sh_err *err)
{
    int64_t own[SH_MAX_RANK], n = 1;
    struct shape_walk w = {.rank = v->rank, .dims = dims, .stride = {own}};
    size_t size = sh_dtype_bytes(v->dtype);
    char *data;

    for (int i = 0; i < v->rank; i++)
        n *= dims[i];
    data = malloc((size_t)n * size);
    if (!data)
        return SH_FAIL(err, SH_E_NOMEM, "could not allocate a constant");
    shape__strides(v, own);
    for (int64_t i = 0; i < n; i++, shape__step(&w))
        memcpy(data + (size_t)i * size, (const char *)v->data + (size_t)w.off[0] * size, size);
    if (!v->data_borrowed)
        free(v->data);
    v->data = data;
    v->data_borrowed = false;
    v->bytes = (size_t)n * size;
    memcpy(v->dims, dims, sizeof(v->dims[0]) * (size_t)v->rank);
    return SH_OK;
}

/* Which constants are used by element-wise nodes only? */
static void find_candidates(const struct graph *g, bool *candidate)
{
    for (uint32_t i = 0; i < g->n_values; i++)
        candidate[i] =
            g->values[i].data && !g->values[i].is_param && graph_elements(&g->values[i]) > 1;
    for (uint32_t i = 0; i < g->n_nodes; i++)
        for (uint32_t j = 0; j < g->nodes[i].n_in; j++)
            if (g->nodes[i].in[j] != GRAPH_NONE && !broadcasts(g->nodes[i].op))
                candidate[g->nodes[i].in[j]] = false;
    for (uint32_t i = 0; i < g->n_outputs; i++)
        candidate[g->outputs[i]] = false;
}

/* One axis at a time; every user must still fit. */
static int shrink_value(struct graph *g, uint32_t v, const uint32_t *users, uint32_t n_users,
                        struct sh_err *err)
{
    int64_t dims[SH_MAX_RANK];
    bool any = false;

    memcpy(dims, g->values[v].dims, sizeof(dims));
    for (int axis = 0; axis < g->values[v].rank; axis++) {
        int64_t size = dims[axis];
        bool ok = size > 1 && repeats(&g->values[v], axis);

        dims[axis] = ok ? 1 : size;
        for (uint32_t i = 0; i < n_users && ok; i++)
            ok = fits_slice(g, &g->nodes[users[i]], v, dims);
        dims[axis] = ok ? 1 : size;
        any |= ok;
    }
    return any ? replace_by_slice(&g->values[v], dims, err) : SH_OK;
}

int graph__shrink(struct graph *g, struct sh_err *err)
{
    bool *candidate = calloc((size_t)g->n_values + 1, sizeof(*candidate));
    uint32_t *first = calloc((size_t)g->n_values + 2, sizeof(*first)), *users = NULL;
    uint32_t n_links = 0;
    int rc = SH_OK;

    for (uint32_t i = 0; i < g->n_nodes; i++)
        n_links += g->nodes[i].n_in;
    users = calloc((size_t)n_links + 1, sizeof(*users));
    if (!candidate || !first || !users) {
        rc = SH_FAIL(err, SH_E_NOMEM, "could not allocate a graph");
        goto out;
    }
    find_candidates(g, candidate);
    /* After the filling, users of v are users[first[v + 1] .. first[v + 2]). */
    for (uint32_t i = 0; i < g->n_nodes; i++)
        for (uint32_t j = 0; j < g->nodes[i].n_in; j++)
            if (g->nodes[i].in[j] != GRAPH_NONE)
                first[g->nodes[i].in[j] + 1]++;
    for (uint32_t i = 0; i < g->n_values; i++)
        first[i + 1] += first[i];
    n_links = first[g->n_values];
    for (uint32_t i = g->n_nodes; i-- > 0;)
        for (uint32_t j = g->nodes[i].n_in; j-- > 0;)
            if (g->nodes[i].in[j] != GRAPH_NONE)
                users[--first[g->nodes[i].in[j] + 1]] = i;
    for (uint32_t v = 0; v < g->n_values && rc == SH_OK; v++) {
        uint32_t end = v + 1 < g->n_values ? first[v + 2] : n_links;

        if (candidate[v])
            rc = shrink_value(g, v, &users[first[v + 1]], end - first[v + 1], err);
    }
out:
    free(candidate);
    free(first);
    free(users);
    return rc;
}
