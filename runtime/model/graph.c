/* graph.c - the graph's memory, its builders, its attribute readers. */
#include "runtime/model/graph.h"

#include "common/mem.h"
#include "runtime/model/graph_int.h"

#include <stdio.h>
#include <stdlib.h>

#define MAX_NODE_LINKS 65536u /* inputs or outputs of one node */
#define MAX_ATTRS 64u

int graph_new(struct graph **out, struct sh_err *err)
{
    *out = calloc(1, sizeof(**out));
    if (!*out)
        return SH_FAIL(err, SH_E_NOMEM, "could not allocate a graph");
    (*out)->opset = GRAPH_OPSET;
    return SH_OK;
}

static void attr_fini(struct graph_attr *a)
{
    free(a->name);
    free(a->s);
    free(a->ints);
    free(a->floats);
}

void graph__node_fini(struct graph_node *n)
{
    for (uint32_t i = 0; i < n->n_attrs; i++)
        attr_fini(&n->attrs[i]);
    free(n->attrs);
    free(n->name);
    free(n->op);
    free(n->in);
    free(n->out);
    memset(n, 0, sizeof(*n));
}

void graph__value_fini(struct graph_value *v)
{
    free(v->name);
    free(v->of);
    free(v->numbers);
    if (!v->data_borrowed)
        free(v->data);
    memset(v, 0, sizeof(*v));
}

void graph_free(struct graph *g)
{
    if (!g)
        return;
    for (uint32_t i = 0; i < g->n_nodes; i++)
        graph__node_fini(&g->nodes[i]);
    for (uint32_t i = 0; i < g->n_values; i++)
        graph__value_fini(&g->values[i]);
    free(g->nodes);
    free(g->values);
    free(g->inputs);
    free(g->outputs);
    free(g->output_dims);
    json_decref(g->preprocess);
    if (g->backing_free)
        g->backing_free(g->backing);
    free(g);
}

int graph__bytes(enum sh_dtype t, int rank, const int64_t *dims, size_t *out, struct sh_err *err)
{
    size_t n = sh_dtype_bytes(t);

    for (int i = 0; i < rank; i++) {
        if (dims[i] < 0)
            return SH_FAIL(err, SH_E_INVALID, "dimension %d is negative (%lld)", i,
                           (long long)dims[i]);
        if (__builtin_mul_overflow(n, (size_t)dims[i], &n) || n > GRAPH_MAX_TENSOR_BYTES)
            return SH_FAIL(err, SH_E_TOOBIG, "a tensor has more than %llu bytes",
                           (unsigned long long)GRAPH_MAX_TENSOR_BYTES);
    }
    *out = n;
    return SH_OK;
}

int graph_add_value(struct graph *g, const char *name, enum sh_dtype t, int rank,
                    const int64_t *dims, uint32_t *out, struct sh_err *err)
{
    struct graph_value *v, fresh = {.dtype = t, .rank = rank};
    size_t bytes = 1;
    int rc;

    *out = GRAPH_NONE;
    if (!name || !name[0])
        return SH_FAIL(err, SH_E_INVALID, "a value has no name");
    if (t >= SH_N_DTYPES || rank < -1 || rank > SH_MAX_RANK)
        return SH_FAIL(err, SH_E_INVALID, "value %s has rank %d; at most %d is supported", name,
                       rank, SH_MAX_RANK);
    for (int i = 0; i < rank; i++) { /* dims may point into the table that grows below */
        size_t known = dims[i] < 0 ? 1 : (size_t)dims[i];

        fresh.dims[i] = dims[i];
        if (__builtin_mul_overflow(bytes, known, &bytes) || bytes > GRAPH_MAX_TENSOR_BYTES)
            return SH_FAIL(err, SH_E_TOOBIG, "value %s is too large", name);
    }
    rc = sh_grow(&g->values, &g->cap_values, (size_t)g->n_values + 1, sizeof(*g->values),
                 GRAPH_MAX_VALUES, "values of a model", err);
    if (rc)
        return rc;
    rc = sh_strdup(name, &fresh.name, err);
    if (rc)
        return rc;
    v = &g->values[g->n_values];
    *v = fresh;
    *out = g->n_values++;
    return SH_OK;
}

int graph_add_const(struct graph *g, const char *name, enum sh_dtype t, int rank,
                    const int64_t *dims, void *data, uint32_t *out, struct sh_err *err)
{
    size_t bytes = 0;
    int rc;

    *out = GRAPH_NONE;
    if (!data || rank < 0 || t >= SH_N_DTYPES)
        return SH_FAIL(err, SH_E_BUG, "a constant has no data or no shape");
    rc = graph__bytes(t, rank, dims, &bytes, err);
    if (!rc)
        rc = graph_add_value(g, name, t, rank, dims, out, err);
    if (rc)
        return rc;
    g->values[*out].data = data;
    g->values[*out].bytes = bytes;
    return SH_OK;
}

static int copy_links(const uint32_t *from, uint32_t n, uint32_t **out, struct sh_err *err)
{
    *out = NULL;
    if (n > MAX_NODE_LINKS)
        return SH_FAIL(err, SH_E_TOOBIG, "a node has %u inputs or outputs; at most %u are allowed",
                       n, MAX_NODE_LINKS);
    if (n == 0)
        return SH_OK;
    *out = malloc(n * sizeof(**out));
    if (!*out)
        return SH_FAIL(err, SH_E_NOMEM, "could not allocate a node");
    memcpy(*out, from, n * sizeof(**out));
    return SH_OK;
}

static int make_node_name(const char *name, const char *op, uint32_t number, char **out,
                          struct sh_err *err)
{
    if (name && name[0])
        return sh_strdup(name, out, err);
    return sh_asprintf(err, out, "%s_%u", op, number);
}

int graph__node_init(struct graph_node *n, const char *name, const char *op, uint32_t number,
                     struct sh_err *err)
{
    int rc;

    memset(n, 0, sizeof(*n));
    if (!op || !op[0])
        return SH_FAIL(err, SH_E_INVALID, "node %u has no operator", number);
    rc = make_node_name(name, op, number, &n->name, err);
    if (!rc)
        rc = sh_strdup(op, &n->op, err);
    if (rc)
        graph__node_fini(n);
    return rc;
}

int graph__node_links(struct graph_node *n, const uint32_t *in, uint32_t n_in, const uint32_t *outs,
                      uint32_t n_out, struct sh_err *err)
{
    int rc = copy_links(in, n_in, &n->in, err);

    if (!rc)
        rc = copy_links(outs, n_out, &n->out, err);
    if (!rc) {
        n->n_in = n_in;
        n->n_out = n_out;
    }
    return rc;
}

int graph__push_node(struct graph *g, struct graph_node *n, struct sh_err *err)
{
    int rc = sh_grow(&g->nodes, &g->cap_nodes, (size_t)g->n_nodes + 1, sizeof(*g->nodes),
                     GRAPH_MAX_NODES, "nodes of a model", err);

    if (rc)
        return rc;
    g->nodes[g->n_nodes++] = *n;
    memset(n, 0, sizeof(*n));
    return SH_OK;
}

int graph_add_node(struct graph *g, const char *name, const char *op, const uint32_t *in,
                   uint32_t n_in, const uint32_t *outs, uint32_t n_out, uint32_t *out,
                   struct sh_err *err)
{
    struct graph_node n = {0};
    int rc;

    if (out)
        *out = GRAPH_NONE;
    rc = graph__node_init(&n, name, op, g->n_nodes, err);
    if (!rc)
        rc = graph__node_links(&n, in, n_in, outs, n_out, err);
    if (!rc)
        rc = graph__push_node(g, &n, err);
    for (uint32_t k = 0; k < n_out && rc == SH_OK; k++)
        if (outs[k] < g->n_values)
            g->values[outs[k]].writer = g->n_nodes;
    if (!rc && out)
        *out = g->n_nodes - 1;
    graph__node_fini(&n);
    return rc;
}

static int add_io(uint32_t **list, uint32_t *n, uint32_t value, struct sh_err *err)
{
    uint32_t *p;

    if (*n >= GRAPH_MAX_IO)
        return SH_FAIL(err, SH_E_TOOBIG, "a model has at most %u inputs and %u outputs",
                       GRAPH_MAX_IO, GRAPH_MAX_IO);
    p = realloc(*list, (*n + 1) * sizeof(*p));
    if (!p)
        return SH_FAIL(err, SH_E_NOMEM, "could not allocate the inputs of a graph");
    *list = p;
    p[(*n)++] = value;
    return SH_OK;
}

int graph_add_input(struct graph *g, uint32_t value, struct sh_err *err)
{
    return add_io(&g->inputs, &g->n_inputs, value, err);
}

int graph_add_output(struct graph *g, uint32_t value, struct sh_err *err)
{
    return add_io(&g->outputs, &g->n_outputs, value, err);
}

/* ---------------------------------------------------------------- attributes */

const struct graph_attr *graph__attr(const struct graph_node *n, const char *name)
{
    for (uint32_t i = 0; i < n->n_attrs; i++)
        if (strcmp(n->attrs[i].name, name) == 0)
            return &n->attrs[i];
    return NULL;
}

bool graph__same_attr(const struct graph_attr *a, const struct graph_attr *b)
{
    if (!b || strcmp(a->name, b->name) != 0 || a->kind != b->kind || a->n != b->n)
        return false;
    switch (a->kind) {
    case GRAPH_ATTR_INT:
        return a->i == b->i;
    case GRAPH_ATTR_FLOAT:
        return memcmp(&a->f, &b->f, sizeof(a->f)) == 0;
    case GRAPH_ATTR_STR:
        return strcmp(a->s, b->s) == 0;
    case GRAPH_ATTR_INTS:
        return a->n == 0 || memcmp(a->ints, b->ints, a->n * sizeof(*a->ints)) == 0;
    case GRAPH_ATTR_FLOATS:
        return a->n == 0 || memcmp(a->floats, b->floats, a->n * sizeof(*a->floats)) == 0;
    }
    return false;
}

void graph__drop_attr(struct graph_node *n, const char *name)
{
    for (uint32_t i = 0; i < n->n_attrs; i++)
        if (strcmp(n->attrs[i].name, name) == 0) {
            attr_fini(&n->attrs[i]);
            n->attrs[i] = n->attrs[--n->n_attrs];
            return;
        }
}

/* A new attribute of that name; an old one is replaced once the new one exists. */
static int attr_slot(struct graph_node *n, const char *name, enum graph_attr_kind kind,
                     struct graph_attr **out, struct sh_err *err)
{
    struct graph_attr *p;
    char *copy;
    int rc;

    if (n->n_attrs >= MAX_ATTRS)
        return SH_FAIL(err, SH_E_TOOBIG, "node %s has more than %u attributes", n->name, MAX_ATTRS);
    rc = sh_strdup(name, &copy, err);
    if (rc)
        return rc;
    p = realloc(n->attrs, (n->n_attrs + 1) * sizeof(*p));
    if (!p) {
        free(copy);
        return SH_FAIL(err, SH_E_NOMEM, "could not allocate an attribute");
    }
    n->attrs = p;
    graph__drop_attr(n, name);
    p = &n->attrs[n->n_attrs++];
    memset(p, 0, sizeof(*p));
    p->name = copy;
    p->kind = kind;
    *out = p;
    return SH_OK;
}

int graph_set_int(struct graph_node *n, const char *name, int64_t v, struct sh_err *err)
{
    struct graph_attr *a;
    int rc = attr_slot(n, name, GRAPH_ATTR_INT, &a, err);

    if (!rc)
        a->i = v;
    return rc;
}

int graph_set_float(struct graph_node *n, const char *name, double v, struct sh_err *err)
{
    struct graph_attr *a;
    int rc = attr_slot(n, name, GRAPH_ATTR_FLOAT, &a, err);

    if (!rc)
        a->f = v;
    return rc;
}

int graph_set_str(struct graph_node *n, const char *name, const char *v, struct sh_err *err)
{
    struct graph_attr *a;
    char *copy;
    int rc = sh_strdup(v, &copy, err);

    if (rc)
        return rc;
    rc = attr_slot(n, name, GRAPH_ATTR_STR, &a, err);
    if (rc)
        free(copy);
    else
        a->s = copy;
    return rc;
}

/* A copy of k numbers of `size` bytes each. */
static int set_attr_list(struct graph_node *n, const char *name, enum graph_attr_kind kind,
                         const void *v, size_t k, size_t size, struct sh_err *err)
{
    void *copy = calloc(k ? k : 1, size);
    struct graph_attr *a;
    int rc = copy ? attr_slot(n, name, kind, &a, err)
                  : SH_FAIL(err, SH_E_NOMEM, "could not allocate an attribute");

    if (rc) {
        free(copy);
        return rc;
    }
    if (k)
        memcpy(copy, v, k * size);
    if (kind == GRAPH_ATTR_INTS)
        a->ints = copy;
    else
        a->floats = copy;
    a->n = k;
    return SH_OK;
}

int graph_set_ints(struct graph_node *n, const char *name, const int64_t *v, size_t k,
                   struct sh_err *err)
{
    return set_attr_list(n, name, GRAPH_ATTR_INTS, v, k, sizeof(*v), err);
}

int graph__set_floats(struct graph_node *n, const char *name, const float *v, size_t k,
                      struct sh_err *err)
{
    return set_attr_list(n, name, GRAPH_ATTR_FLOATS, v, k, sizeof(*v), err);
}

int graph__copy_attrs(struct graph_node *to, const struct graph_node *from, struct sh_err *err)
{
    int rc = SH_OK;

    for (uint32_t i = 0; i < from->n_attrs && rc == SH_OK; i++) {
        const struct graph_attr *a = &from->attrs[i];

        switch (a->kind) {
        case GRAPH_ATTR_INT:
            rc = graph_set_int(to, a->name, a->i, err);
            break;
        case GRAPH_ATTR_FLOAT:
            rc = graph_set_float(to, a->name, a->f, err);
            break;
        case GRAPH_ATTR_STR:
            rc = graph_set_str(to, a->name, a->s, err);
            break;
        case GRAPH_ATTR_INTS:
            rc = graph_set_ints(to, a->name, a->ints, a->n, err);
            break;
        case GRAPH_ATTR_FLOATS:
            rc = graph__set_floats(to, a->name, a->floats, a->n, err);
            break;
        }
    }
    return rc;
}

static int wrong_kind(const struct graph_node *n, const char *name, const char *want,
                      struct sh_err *err)
{
    return SH_FAIL(err, SH_E_INVALID, "attribute %s of %s node %s is not %s", name, n->op, n->name,
                   want);
}

int graph_int(const struct graph_node *n, const char *name, int64_t def, int64_t *out,
              struct sh_err *err)
{
    const struct graph_attr *a = graph__attr(n, name);

    *out = def;
    if (!a)
        return SH_OK;
    if (a->kind != GRAPH_ATTR_INT)
        return wrong_kind(n, name, "an integer", err);
    *out = a->i;
    return SH_OK;
}

int graph_float(const struct graph_node *n, const char *name, double def, double *out,
                struct sh_err *err)
{
    const struct graph_attr *a = graph__attr(n, name);

    *out = def;
    if (!a)
        return SH_OK;
    if (a->kind != GRAPH_ATTR_FLOAT)
        return wrong_kind(n, name, "a number", err);
    *out = a->f;
    return SH_OK;
}

int graph_str(const struct graph_node *n, const char *name, const char *def, const char **out,
              struct sh_err *err)
{
    const struct graph_attr *a = graph__attr(n, name);

    *out = def;
    if (!a)
        return SH_OK;
    if (a->kind != GRAPH_ATTR_STR)
        return wrong_kind(n, name, "a string", err);
    *out = a->s;
    return SH_OK;
}

int graph_ints(const struct graph_node *n, const char *name, int64_t *out, size_t max, size_t *k,
               struct sh_err *err)
{
    const struct graph_attr *a = graph__attr(n, name);

    *k = 0;
    if (!a)
        return SH_OK;
    if (a->kind != GRAPH_ATTR_INTS)
        return wrong_kind(n, name, "a list of integers", err);
    if (a->n > max)
        return SH_FAIL(err, SH_E_INVALID,
                       "attribute %s of %s node %s has %zu numbers; at most %zu are allowed", name,
                       n->op, n->name, a->n, max);
    if (a->n)
        memcpy(out, a->ints, a->n * sizeof(*out));
    *k = a->n;
    return SH_OK;
}

/* ---------------------------------------------------------------- questions */

uint32_t graph_find(const struct graph *g, const char *name)
{
    for (uint32_t i = 0; i < g->n_values; i++)
        if (strcmp(g->values[i].name, name) == 0)
            return i;
    return GRAPH_NONE;
}

void graph_axes(const struct graph_value *v, struct sh_dim out[SH_MAX_RANK])
{
    for (int i = 0; i < v->rank; i++)
        out[i] = v->dims[i] >= 0             ? sh_dim_fixed(v->dims[i])
                 : v->dims[i] == GRAPH_BATCH ? sh_dim_is(SH_DIM_BATCH)
                                             : sh_dim_is((int)GRAPH_SYMBOL(v->dims[i]));
}

int64_t graph_elements(const struct graph_value *v)
{
    int64_t n = 1;

    if (v->rank < 0)
        return -1;
    for (int i = 0; i < v->rank; i++) {
        if (v->dims[i] < 0)
            return -1;
        n *= v->dims[i]; /* no overflow: graph__bytes bounds what enters a graph */
    }
    return n;
}

const char *graph__shape_text(const struct graph_value *v, char *out, size_t size)
{
    size_t at = 0;
    int n = snprintf(out, size, "%s[", sh_dtype_v2(v->dtype));

    for (int i = 0; n > 0 && i < v->rank; i++) {
        at += (size_t)n;
        if (at >= size)
            return out;
        n = snprintf(out + at, size - at, "%s%lld", i ? "," : "", (long long)v->dims[i]);
    }
    at += n > 0 ? (size_t)n : 0;
    if (at < size)
        snprintf(out + at, size - at, "%s", v->rank < 0 ? "?]" : "]");
    return out;
}
