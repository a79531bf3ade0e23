/* package_read.c - reads a package from disk, checked as strictly as an ONNX file: a damaged or
 * foreign folder must not bring down a worker. */
#include "common/io.h"
#include "common/json.h"
#include "common/mem.h"
#include "common/safetensors.h"
#include "runtime/model/graph_int.h"
#include "runtime/model/names.h"
#include "runtime/model/package.h"

#include <math.h>
#include <stdlib.h>
#include <unistd.h>

#define PACKAGE_VERSION 1
#define MAX_JSON ((size_t)512 << 20)

struct unpacker {
    struct graph *g;
    struct sh_st *st;
    struct names names;
    struct sh_err *err;
};

static int broken_package(struct unpacker *u, const char *what, size_t i)
{
    return SH_FAIL(u->err, SH_E_INVALID, "the package is damaged: %s %zu", what, i);
}

static const char *text_at(const json_t *row, size_t i)
{
    const json_t *s = json_array_get(row, i);
    const char *p = json_string_value(s);

    return p && strlen(p) == json_string_length(s) ? p : NULL;
}

static int read_dims(struct unpacker *u, const json_t *dims, size_t nr, struct graph_value *out)
{
    out->rank = -1;
    if (json_is_null(dims))
        return SH_OK;
    if (!json_is_array(dims) || json_array_size(dims) > SH_MAX_RANK)
        return broken_package(u, "shape of value", nr);
    out->rank = (int)json_array_size(dims);
    for (int i = 0; i < out->rank; i++) {
        const json_t *d = json_array_get(dims, (size_t)i);

        if (!json_is_integer(d) || (json_integer_value(d) < GRAPH_SYMBOL(u->g->symbols.n) + 1 &&
                                    json_integer_value(d) != GRAPH_DERIVED))
            return broken_package(u, "shape of value", nr);
        out->dims[i] = json_integer_value(d);
    }
    return SH_OK;
}

/* The tensor of a constant: same type, shape and size as graph.json says. */
static int attach_tensor(struct unpacker *u, uint32_t nr)
{
    struct graph_value *v = &u->g->values[nr];
    const struct sh_st_tensor *t = sh_st_find(u->st, v->name);
    size_t unit = sh_dtype_bytes(v->dtype);

    if (!t || t->dtype != v->dtype || t->rank != (size_t)v->rank ||
        memcmp(t->dims, v->dims, t->rank * sizeof(v->dims[0])) != 0)
        return broken_package(u, "weights of value", nr);
    if ((uintptr_t)t->data % unit != 0)
        return broken_package(u, "alignment of value", nr);
    v->data = (void *)(uintptr_t)t->data;
    v->bytes = t->bytes;
    v->data_borrowed = true;
    return SH_OK;
}

static int read_package_value(struct unpacker *u, const json_t *row, size_t nr)
{
    const char *name = text_at(row, 0), *dtype = text_at(row, 1), *kind = text_at(row, 3);
    const char *of = text_at(row, 4);
    struct graph_value v = {.dtype = dtype ? sh_dtype_from_st(dtype) : SH_N_DTYPES};
    uint32_t i;
    int rc;

    if (json_array_size(row) < 4 || json_array_size(row) > 5 || !name || !kind ||
        v.dtype >= SH_N_DTYPES || names_get(&u->names, name) != NAMES_NONE)
        return broken_package(u, "value", nr);
    rc = read_dims(u, json_array_get(row, 2), nr, &v);
    if (!rc)
        rc = graph_add_value(u->g, name, v.dtype, v.rank, v.dims, &i, u->err);
    if (!rc)
        rc = names_put(&u->names, u->g->values[i].name, i, u->err);
    if (rc || kind[0] == '\0')
        return rc;
    u->g->values[i].is_assumed = strcmp(kind, "assumed") == 0;
    u->g->values[i].is_param = u->g->values[i].is_assumed || strcmp(kind, "param") == 0;
    if (v.rank < 0 || (!u->g->values[i].is_param && strcmp(kind, "const") != 0))
        return broken_package(u, "value", nr);
    if (u->g->values[i].is_param && v.dtype != SH_F32 && v.dtype != SH_F64 && v.dtype != SH_F16 &&
        v.dtype != SH_BF16)
        return broken_package(u, "type of parameter", nr);
    if (of && (rc = sh_strdup(of, &u->g->values[i].of, u->err)) != SH_OK)
        return rc;
    return attach_tensor(u, i);
}

static int read_package_links(struct unpacker *u, const json_t *list, size_t nr, uint32_t **out,
                              uint32_t *n)
{
    *n = 0;
    *out = NULL;
    if (!json_is_array(list) || json_array_size(list) > GRAPH_MAX_VALUES)
        return broken_package(u, "links of node", nr);
    *out = calloc(json_array_size(list) + 1, sizeof(**out));
    if (!*out)
        return SH_FAIL(u->err, SH_E_NOMEM, "could not allocate a node");
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *v = json_array_get(list, i);
        json_int_t k = json_integer_value(v);

        if (!json_is_integer(v) || k < -1 || k >= (json_int_t)u->g->n_values)
            return broken_package(u, "links of node", nr);
        (*out)[(*n)++] = k < 0 ? GRAPH_NONE : (uint32_t)k;
    }
    return SH_OK;
}

static bool read_json_number(const json_t *j, double *out)
{
    const char *s = json_string_value(j);

    if (json_is_number(j)) {
        *out = json_number_value(j);
        return true;
    }
    if (!s || (strcmp(s, "inf") != 0 && strcmp(s, "-inf") != 0 && strcmp(s, "nan") != 0))
        return false;
    *out = s[0] == 'n' ? (double)NAN : s[0] == '-' ? -INFINITY : INFINITY;
    return true;
}

static int read_int_list(struct unpacker *u, struct graph_node *n, const char *name,
                         const json_t *list)
{
    size_t k = json_array_size(list);
    int64_t *v = calloc(k + 1, sizeof(*v));
    int rc = SH_OK;

    if (!v)
        return SH_FAIL(u->err, SH_E_NOMEM, "could not allocate an attribute");
    for (size_t i = 0; i < k && rc == SH_OK; i++) {
        v[i] = json_integer_value(json_array_get(list, i));
        if (!json_is_integer(json_array_get(list, i)))
            rc = broken_package(u, "attribute number", i);
    }
    if (!rc)
        rc = graph_set_ints(n, name, v, k, u->err);
    free(v);
    return rc;
}

static int read_floats(struct unpacker *u, struct graph_node *n, const char *name,
                       const json_t *list)
{
    size_t k = json_array_size(list);
    float *v = calloc(k + 1, sizeof(*v));
    int rc = SH_OK;

    if (!v)
        return SH_FAIL(u->err, SH_E_NOMEM, "could not allocate an attribute");
    for (size_t i = 0; i < k && rc == SH_OK; i++) {
        double d = 0;

        if (!read_json_number(json_array_get(list, i), &d))
            rc = broken_package(u, "attribute number", i);
        v[i] = (float)d;
    }
    if (!rc)
        rc = graph__set_floats(n, name, v, k, u->err);
    free(v);
    return rc;
}

static int read_package_attr(struct unpacker *u, struct graph_node *n, const char *name,
                             const json_t *j)
{
    const json_t *v;
    double d;

    if (!json_is_object(j) || json_object_size(j) != 1)
        return broken_package(u, "attribute of node", u->g->n_nodes);
    v = json_object_get(j, "i");
    if (json_is_integer(v))
        return graph_set_int(n, name, json_integer_value(v), u->err);
    v = json_object_get(j, "f");
    if (v && read_json_number(v, &d))
        return graph_set_float(n, name, d, u->err);
    v = json_object_get(j, "s");
    if (json_is_string(v))
        return graph_set_str(n, name, json_string_value(v), u->err);
    v = json_object_get(j, "is");
    if (json_is_array(v))
        return read_int_list(u, n, name, v);
    v = json_object_get(j, "fs");
    if (json_is_array(v))
        return read_floats(u, n, name, v);
    return broken_package(u, "attribute of node", u->g->n_nodes);
}

static int read_package_node(struct unpacker *u, const json_t *row, size_t nr)
{
    const char *op = text_at(row, 0), *name = text_at(row, 1), *key;
    json_t *attrs = json_array_get(row, 4), *value;
    struct graph_node n = {0};
    uint32_t *in = NULL, *out = NULL, n_in, n_out;
    int rc;

    if (json_array_size(row) != 5 || !op || !name || !name[0] || !json_is_object(attrs))
        return broken_package(u, "node", nr);
    rc = graph__node_init(&n, name, op, (uint32_t)nr, u->err);
    if (!rc)
        rc = read_package_links(u, json_array_get(row, 2), nr, &in, &n_in);
    if (!rc)
        rc = read_package_links(u, json_array_get(row, 3), nr, &out, &n_out);
    if (!rc)
        rc = graph__node_links(&n, in, n_in, out, n_out, u->err);
    if (!rc)
        json_object_foreach(attrs, key, value)
        {
            rc = read_package_attr(u, &n, key, value);
            if (rc)
                break;
        }
    if (!rc)
        rc = graph__push_node(u->g, &n, u->err);
    graph__node_fini(&n);
    free(in);
    free(out);
    return rc;
}

/* Packages that were made before there were any have none. */
static int read_symbols(struct unpacker *u, const json_t *list)
{
    int rc = SH_OK, k;

    for (size_t i = 0; i < json_array_size(list) && rc == SH_OK; i++) {
        const json_t *row = json_array_get(list, i);
        const char *name = text_at(row, 0);
        json_int_t size = json_integer_value(json_array_get(row, 1));

        if (!name || size < 1 || size > UINT32_MAX || sh_symbol_find(&u->g->symbols, name) >= 0)
            return broken_package(u, "symbol", i);
        rc = sh_symbol_add(&u->g->symbols, name, &k, u->err);
        if (!rc)
            u->g->own.v[u->g->own.n++] = (uint32_t)size;
    }
    return rc;
}

static int read_package_graph(struct unpacker *u, const json_t *j)
{
    json_t *symbols = NULL, *values, *nodes, *inputs, *outputs;
    int64_t version, opset;
    bool solo = false;
    struct sh_json_field f[] = {
        {"version", SH_JSON_INT, &version, .required = true},
        {"importer", SH_JSON_INT, &u->g->importer, .min = 0, .max = INT32_MAX},
        {"opset", SH_JSON_INT, &opset, .required = true, .min = 1, .max = 1000},
        {"solo", SH_JSON_BOOL, &solo},
        {"symbols", SH_JSON_ARR, &symbols, .max = SH_MAX_SYMBOLS},
        {"values", SH_JSON_ARR, &values, .required = true, .max = GRAPH_MAX_VALUES},
        {"nodes", SH_JSON_ARR, &nodes, .required = true, .max = GRAPH_MAX_NODES},
        {"inputs", SH_JSON_ARR, &inputs, .required = true, .max = GRAPH_MAX_IO},
        {"outputs", SH_JSON_ARR, &outputs, .required = true, .max = GRAPH_MAX_IO},
    };
    int rc = sh_json_read(j, "graph.json", f, SH_ARRAY_LEN(f), u->err);

    if (rc)
        return rc;
    if (version != PACKAGE_VERSION)
        return SH_FAIL(
            u->err, SH_E_UNSUPPORTED,
            "the package has version %lld, this release reads %d; import the model again",
            (long long)version, PACKAGE_VERSION);
    u->g->opset = opset;
    u->g->is_solo = solo;
    rc = read_symbols(u, symbols);
    for (size_t i = 0; i < json_array_size(values) && rc == SH_OK; i++)
        rc = read_package_value(u, json_array_get(values, i), i);
    for (size_t i = 0; i < json_array_size(nodes) && rc == SH_OK; i++)
        rc = read_package_node(u, json_array_get(nodes, i), i);
    if (!rc)
        rc = read_package_links(u, inputs, 0, &u->g->inputs, &u->g->n_inputs);
    if (!rc)
        rc = read_package_links(u, outputs, 0, &u->g->outputs, &u->g->n_outputs);
    return rc ? rc : graph__validate(u->g, u->err);
}

static void close_weights(void *st)
{
    sh_st_close(st);
}

int package_read_fds(int graph_json, int weights, struct graph **out, struct sh_err *err)
{
    struct unpacker u = {.err = err};
    json_t *j = NULL;
    int rc;

    *out = NULL;
    rc = sh_json_load_fd(graph_json, "graph.json", MAX_JSON, &j, err);
    if (!rc)
        rc = sh_st_open_fd(weights, &u.st, err);
    if (!rc)
        rc = graph_new(&u.g, err);
    if (rc)
        goto out;
    u.g->backing = u.st; /* the mapping lives as long as the graph */
    u.g->backing_free = close_weights;
    u.st = NULL;
    rc = names_init(&u.names, err);
    if (!rc) {
        u.st = u.g->backing;
        rc = read_package_graph(&u, j);
        u.st = NULL;
    }
    if (!rc) {
        *out = u.g;
        u.g = NULL;
    }
out:
    graph_free(u.g);
    sh_st_close(u.st);
    names_fini(&u.names);
    json_decref(j);
    return rc;
}

int package_read(const char *dir, struct graph **out, struct sh_err *err)
{
    int graph_json = -1, weights = -1, rc;

    *out = NULL;
    rc = sh_open_in(dir, "graph.json", &graph_json, err);
    if (!rc)
        rc = sh_open_in(dir, "weights.safetensors", &weights, err);
    if (!rc)
        rc = package_read_fds(graph_json, weights, out, err);
    if (graph_json >= 0)
        close(graph_json);
    if (weights >= 0)
        close(weights);
    return rc;
}
