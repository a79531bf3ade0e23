/* retype.c - turns floats other than F32 into F32; the model's inputs and outputs keep their types.
 *
 * Devices compute floats as F32, in the requested precision. So a value that the file declares F64,
 * F16 or BF16 is F32 inside: constants are converted here, inputs by a Cast behind them, outputs by
 * one before them. F64 loses digits, which shunt-import reports.
 */
#include "common/mem.h"
#include "runtime/model/shape_int.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

static bool is_foreign(enum sh_dtype t)
{
    return shape__is_float(t) && t != SH_F32;
}

/* The largest number rather than infinity: masks add the least number of their type, and a row of
 * nothing but that must not become one of NaN. */
static float narrowed(double v)
{
    return isinf(v) ? (float)v : (float)SH_MAX(SH_MIN(v, (double)FLT_MAX), -(double)FLT_MAX);
}

static int convert_const(struct graph_value *v, struct sh_err *err)
{
    size_t n = v->bytes / sh_dtype_bytes(v->dtype);
    float *data = malloc(n ? n * sizeof(*data) : 1);

    if (!data)
        return SH_FAIL(err, SH_E_NOMEM, "could not allocate a constant of %zu numbers", n);
    for (size_t i = 0; i < n; i++) {
        double x = shape__get_f64(v->dtype, v->data, i);

        data[i] = isnan(x) ? (float)x : narrowed(x);
    }
    if (!v->data_borrowed)
        free(v->data);
    v->data = data;
    v->data_borrowed = false;
    v->bytes = n * sizeof(*data);
    return SH_OK;
}

/* A value of F32 with the shape of v, and a Cast between the two as the last node. */
static int add_cast(struct graph *g, uint32_t v, bool into_f32, uint32_t *inner, struct sh_err *err)
{
    struct graph_value x = g->values[v];
    uint32_t node, from, to;
    char name[64];
    int rc;

    snprintf(name, sizeof(name), GRAPH_TEMP_PREFIX "%u.f32", g->n_values);
    rc = graph_add_value(g, name, SH_F32, x.rank, x.dims, inner, err);
    from = into_f32 ? v : *inner;
    to = into_f32 ? *inner : v;
    if (!rc)
        rc = graph_add_node(g, NULL, "Cast", &from, 1, &to, 1, &node, err);
    return rc ? rc
              : graph_set_int(&g->nodes[node], "to", (int64_t)(into_f32 ? SH_F32 : x.dtype), err);
}

static void replace_in_list(uint32_t *list, uint32_t n, uint32_t from, uint32_t to)
{
    for (uint32_t i = 0; i < n; i++)
        if (list[i] == from)
            list[i] = to;
}

/* The last k nodes become the first. */
static int to_front(struct graph *g, uint32_t k, struct sh_err *err)
{
    struct graph_node *last = malloc((k + 1u) * sizeof(*last));

    if (!last)
        return SH_FAIL(err, SH_E_NOMEM, "could not allocate %u nodes", k);
    memcpy(last, &g->nodes[g->n_nodes - k], k * sizeof(*last));
    memmove(&g->nodes[k], g->nodes, (g->n_nodes - k) * sizeof(*g->nodes));
    memcpy(g->nodes, last, k * sizeof(*last));
    free(last);
    return SH_OK;
}

/* Casts between floats have nothing left to do. */
static int drop_cast(struct graph *g, struct graph_node *n, struct sh_err *err)
{
    int64_t to = SH_F32;
    char *op;
    int rc;

    if (strcmp(n->op, "Cast") != 0)
        return SH_OK;
    rc = graph_int(n, "to", SH_F32, &to, err);
    if (rc || !shape__is_float((enum sh_dtype)to))
        return rc;
    if (!shape__is_float(g->values[n->in[0]].dtype))
        return graph_set_int(n, "to", SH_F32, err);
    rc = sh_strdup("Identity", &op, err);
    if (rc)
        return rc;
    free(n->op);
    n->op = op;
    graph__drop_attr(n, "to");
    return SH_OK;
}

/* Nodes [0, n) see F32 instead of inputs and outputs of another float type. */
static int cast_borders(struct graph *g, uint32_t n, uint32_t *n_in, struct sh_err *err)
{
    uint32_t inner;
    int rc = SH_OK;

    *n_in = 0;
    for (uint32_t i = 0; i < g->n_inputs && rc == SH_OK; i++) {
        if (!is_foreign(g->values[g->inputs[i]].dtype))
            continue;
        rc = add_cast(g, g->inputs[i], true, &inner, err);
        ++*n_in;
        for (uint32_t k = 0; k < n && rc == SH_OK; k++)
            replace_in_list(g->nodes[k].in, g->nodes[k].n_in, g->inputs[i], inner);
    }
    if (!rc)
        rc = to_front(g, *n_in, err);
    for (uint32_t i = 0; i < g->n_outputs && rc == SH_OK; i++) {
        if (!is_foreign(g->values[g->outputs[i]].dtype))
            continue;
        rc = add_cast(g, g->outputs[i], false, &inner, err);
        for (uint32_t k = *n_in; k < *n_in + n && rc == SH_OK; k++) {
            replace_in_list(g->nodes[k].in, g->nodes[k].n_in, g->outputs[i], inner);
            replace_in_list(g->nodes[k].out, g->nodes[k].n_out, g->outputs[i], inner);
        }
    }
    return rc;
}

static bool is_value_listed(const uint32_t *list, uint32_t n, uint32_t v)
{
    for (uint32_t i = 0; i < n; i++)
        if (list[i] == v)
            return true;
    return false;
}

int graph__retype(struct graph *g, struct sh_err *err)
{
    const uint32_t n_values = g->n_values, n_nodes = g->n_nodes;
    uint32_t n_in = 0;
    bool any = false;
    int rc;

    for (uint32_t i = 0; i < n_values; i++)
        any |= is_foreign(g->values[i].dtype);
    if (!any)
        return SH_OK;
    rc = cast_borders(g, n_nodes, &n_in, err);
    for (uint32_t i = 0; i < n_values && rc == SH_OK; i++) {
        struct graph_value *v = &g->values[i];

        if (!is_foreign(v->dtype) || is_value_listed(g->inputs, g->n_inputs, i) ||
            is_value_listed(g->outputs, g->n_outputs, i))
            continue;
        if (v->data)
            rc = convert_const(v, err);
        v->dtype = SH_F32;
    }
    for (uint32_t i = n_in; i < n_in + n_nodes && rc == SH_OK; i++)
        rc = drop_cast(g, &g->nodes[i], err);
    return rc;
}
