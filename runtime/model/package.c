/* package.c - graph.json and weights.safetensors.
 *
 * graph.json: {"version", "importer", "opset", "solo", "symbols": [[name, size that works]...],
 *   "values": [[name, dtype, dims | null, kind]...]      kind: "" | "const" | "param"
 *   "nodes":  [[op, name, [in...], [out...], {attr: value}]...]   an absent input or output is -1
 *   "inputs": [...], "outputs": [...]}                   value numbers
 * An attribute's value is {"i": 1}, {"f": 1.5}, {"s": "x"}, {"is": [..]} or {"fs": [..]}.
 */
#include "runtime/model/package.h"

#include "common/importer.h"
#include "common/json.h"
#include "common/mem.h"
#include "common/safetensors.h"
#include "runtime/model/atomic_file.h"
#include "runtime/model/graph_int.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

#define PACKAGE_VERSION 1
#define WEIGHTS "weights.safetensors"
#define GRAPH "graph.json"

/* ---------------------------------------------------------------- writing */

static json_t *int_list(const int64_t *v, size_t n)
{
    json_t *a = json_array();

    for (size_t i = 0; a && i < n; i++)
        json_array_append_new(a, json_integer(v[i]));
    return a;
}

static json_t *link_list(const uint32_t *v, uint32_t n)
{
    json_t *a = json_array();

    for (uint32_t i = 0; a && i < n; i++)
        json_array_append_new(a, json_integer(v[i] == GRAPH_NONE ? -1 : (json_int_t)v[i]));
    return a;
}

/* JSON has no infinities: Clip's open borders go as text. */
static json_t *json_number(double v)
{
    if (isfinite(v))
        return json_real(v);
    return json_string(isnan(v) ? "nan" : v > 0 ? "inf" : "-inf");
}

static json_t *attr_json(const struct graph_attr *a)
{
    json_t *list;

    switch (a->kind) {
    case GRAPH_ATTR_INT:
        return json_pack("{s:I}", "i", (json_int_t)a->i);
    case GRAPH_ATTR_FLOAT:
        return json_pack("{s:o}", "f", json_number(a->f));
    case GRAPH_ATTR_STR:
        return json_pack("{s:s}", "s", a->s);
    case GRAPH_ATTR_INTS:
        return json_pack("{s:o}", "is", int_list(a->ints, a->n));
    case GRAPH_ATTR_FLOATS:
        list = json_array();
        for (size_t i = 0; list && i < a->n; i++)
            json_array_append_new(list, json_number((double)a->floats[i]));
        return json_pack("{s:o}", "fs", list);
    }
    return NULL;
}

static json_t *node_json(const struct graph_node *n)
{
    json_t *attrs = json_object();

    for (uint32_t i = 0; attrs && i < n->n_attrs; i++)
        if (json_object_set_new(attrs, n->attrs[i].name, attr_json(&n->attrs[i])) != 0) {
            json_decref(attrs);
            return NULL;
        }
    return json_pack("[s,s,o,o,o]", n->op, n->name, link_list(n->in, n->n_in),
                     link_list(n->out, n->n_out), attrs);
}

static json_t *value_json(const struct graph_value *v)
{
    json_t *dims = v->rank < 0 ? json_null() : int_list(v->dims, (size_t)v->rank);

    return json_pack("[s,s,o,s,s*]", v->name, sh_dtype_st(v->dtype), dims,
                     v->is_assumed ? "assumed"
                     : v->is_param ? "param"
                     : v->data     ? "const"
                                   : "",
                     v->is_param ? v->of : NULL);
}

static json_t *symbols_json(const struct graph *g)
{
    json_t *a = json_array();

    for (size_t i = 0; a && i < g->symbols.n; i++)
        json_array_append_new(a, json_pack("[s,I]", g->symbols.name[i], (json_int_t)g->own.v[i]));
    return a;
}

static json_t *graph_json(const struct graph *g)
{
    json_t *values = json_array(), *nodes = json_array();
    bool ok = values && nodes;

    for (uint32_t i = 0; ok && i < g->n_values; i++)
        ok = json_array_append_new(values, value_json(&g->values[i])) == 0;
    for (uint32_t i = 0; ok && i < g->n_nodes; i++)
        ok = json_array_append_new(nodes, node_json(&g->nodes[i])) == 0;
    if (!ok) {
        json_decref(values);
        json_decref(nodes);
        return NULL;
    }
    return json_pack("{s:i,s:i,s:I,s:b,s:o,s:o,s:o,s:o,s:o}", "version", PACKAGE_VERSION,
                     "importer", SH_IMPORTER, "opset", (json_int_t)g->opset, "solo", g->is_solo,
                     "symbols", symbols_json(g), "values", values, "nodes", nodes, "inputs",
                     link_list(g->inputs, g->n_inputs), "outputs",
                     link_list(g->outputs, g->n_outputs));
}

/* The constants whose elements have `unit` bytes. */
static size_t list_weights(const struct graph *g, size_t unit, struct sh_st_tensor *t)
{
    size_t n = 0;

    for (uint32_t i = 0; i < g->n_values; i++) {
        const struct graph_value *v = &g->values[i];

        if (!v->data || sh_dtype_bytes(v->dtype) != unit)
            continue;
        t[n] = (struct sh_st_tensor){.name = v->name,
                                     .dtype = v->dtype,
                                     .rank = (size_t)v->rank,
                                     .data = v->data,
                                     .bytes = v->bytes};
        memcpy(t[n++].dims, v->dims, sizeof(v->dims));
    }
    return n;
}

/* There is no room between the tensors of a file, so the widest elements come first: then all of
 * them are aligned, and the reader can use them where they lie. */
static int write_weights(const struct graph *g, const char *path, struct sh_err *err)
{
    struct sh_st_tensor *t = calloc((size_t)g->n_values + 1, sizeof(*t));
    size_t n = 0;
    int rc;

    if (!t)
        return SH_FAIL(err, SH_E_NOMEM, "could not allocate a list of weights");
    for (size_t unit = 8; unit > 0; unit /= 2)
        n += list_weights(g, unit, t + n);
    rc = sh_st_write(path, t, n, NULL, err);
    free(t);
    return rc;
}

static int write_json(const json_t *j, const char *path, struct sh_err *err)
{
    struct atomic_file a = {0};
    int rc = atomic_file_open(&a, path, err);

    if (rc)
        return rc;
    if (json_dumpf(j, a.f, JSON_COMPACT | JSON_REAL_PRECISION(17)) != 0)
        rc = SH_FAIL_ERRNO(err, SH_E_IO, "could not write the graph of a package");
    if (!rc)
        rc = atomic_file_commit(&a, err);
    atomic_file_close(&a);
    return rc;
}

int package_write(const struct graph *g, const char *dir, struct sh_err *err)
{
    char *weights = NULL, *graph = NULL;
    json_t *j = NULL;
    int rc = graph__validate(g, err);

    if (!rc)
        rc = sh_asprintf(err, &weights, "%s/" WEIGHTS, dir);
    if (!rc)
        rc = sh_asprintf(err, &graph, "%s/" GRAPH, dir);
    if (rc)
        goto out;
    j = graph_json(g);
    if (!j) {
        rc = SH_FAIL(err, SH_E_NOMEM, "could not describe a graph");
        goto out;
    }
    rc = write_weights(g, weights, err);
    if (!rc)
        rc = write_json(j, graph, err); /* last: its presence says that the package is complete */
out:
    json_decref(j);
    free(weights);
    free(graph);
    return rc;
}
