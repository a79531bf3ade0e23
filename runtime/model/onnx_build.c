/* onnx_build.c - see onnx_build.h. */
#include "runtime/model/onnx_build.h"

#include "common/mem.h"
#include "runtime/model/onnx_again.h"

#include <stdlib.h>

int onnx_build_init(struct onnx_build *b, Onnx__GraphProto *g, struct sh_err *err)
{
    *b = (struct onnx_build){
        .g = g, .cap = g->n_initializer, .n_file = g->n_initializer, .err = err};
    b->gone = calloc(b->n_file + 1, sizeof(*b->gone));
    return b->gone ? SH_OK
                   : SH_FAIL(err, SH_E_NOMEM, "could not allocate marks of %zu initializers",
                             b->n_file);
}

int onnx_build_tensor(struct onnx_build *b, char *name, enum sh_dtype dtype, const int64_t *dims,
                      size_t n_dims, void *data, size_t bytes)
{
    Onnx__TensorProto *t = malloc(sizeof(*t));
    int64_t *copy = malloc(SH_MAX(n_dims, (size_t)1) * sizeof(*copy));
    int rc = t && copy && data ? SH_OK
                               : SH_FAIL(b->err, SH_E_NOMEM, "could not allocate an initializer");

    if (!rc)
        rc = sh_grow(&b->g->initializer, &b->cap, b->g->n_initializer + 1,
                     sizeof(*b->g->initializer), GRAPH_MAX_VALUES, "values of a model", b->err);
    if (rc) {
        free(t);
        free(copy);
        free(data);
        free(name);
        return rc;
    }
    if (n_dims > 0) /* else dims may be NULL */
        memcpy(copy, dims, n_dims * sizeof(*copy));
    onnx__tensor_proto__init(t);
    t->name = name;
    t->has_data_type = 1;
    t->data_type = sh_dtype_onnx(dtype);
    t->dims = copy;
    t->n_dims = n_dims;
    t->has_raw_data = 1;
    t->raw_data = (ProtobufCBinaryData){bytes, data};
    b->g->initializer[b->g->n_initializer++] = t;
    return SH_OK;
}

static Onnx__AttributeProto *make_int(const char *name, int64_t value)
{
    Onnx__AttributeProto *a = malloc(sizeof(*a));

    if (!a)
        return NULL;
    onnx__attribute_proto__init(a);
    a->name = strdup(name);
    a->has_type = a->has_i = 1;
    a->type = ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__INT;
    a->i = value;
    if (a->name)
        return a;
    free(a);
    return NULL;
}

int onnx_build_node(struct onnx_build *b, const char *op, const char *x, const char *y,
                    const char *out, int64_t axis)
{
    Onnx__NodeProto *n = malloc(sizeof(*n));
    int rc = n ? SH_OK : SH_FAIL(b->err, SH_E_NOMEM, "could not allocate a node");

    if (rc)
        return rc;
    onnx__node_proto__init(n);
    n->op_type = strdup(op);
    n->name = strdup(out);
    n->input = calloc(2, sizeof(*n->input));
    n->output = calloc(1, sizeof(*n->output));
    n->n_input = n->input ? 1 + (y != NULL) : 0;
    n->n_output = n->output ? 1 : 0;
    if (n->input && n->output) {
        n->input[0] = strdup(x);
        n->input[1] = y ? strdup(y) : NULL;
        n->output[0] = strdup(out);
    }
    if (axis && (n->attribute = calloc(1, sizeof(*n->attribute))) &&
        (n->attribute[0] = make_int("axis", axis)))
        n->n_attribute = 1;
    if (!n->op_type || !n->name || !n->input || !n->output || !n->input[0] || (y && !n->input[1]) ||
        !n->output[0] || n->n_attribute != (axis != 0))
        rc = SH_FAIL(b->err, SH_E_NOMEM, "could not allocate a node");
    if (!rc)
        rc = sh_grow(&b->nodes, &b->nodes_cap, b->n_nodes + 1, sizeof(Onnx__NodeProto *),
                     GRAPH_MAX_VALUES, "nodes of a model", b->err);
    if (rc) {
        onnx__node_proto__free_unpacked(n, NULL);
        return rc;
    }
    b->nodes[b->n_nodes++] = n;
    return SH_OK;
}

int onnx_build_mark(Onnx__NodeProto *n, const char *name, struct sh_err *err)
{
    Onnx__AttributeProto **all =
        realloc(n->attribute, (n->n_attribute + 1) * sizeof(*n->attribute));

    if (all) {
        n->attribute = all;
        all[n->n_attribute] = make_int(name, 1);
    }
    if (!all || !all[n->n_attribute])
        return SH_FAIL(err, SH_E_NOMEM, "could not allocate an attribute");
    n->n_attribute++;
    return SH_OK;
}

int onnx_build_places(struct onnx_build *b, uint32_t i, const char *out, const char *of,
                      int64_t axis, int64_t *index, size_t n)
{
    const char *t = b->g->initializer[i]->name;
    char *name = NULL, *copy = NULL;
    int rc = sh_asprintf(b->err, &name, "%s@places", t);

    if (!rc)
        rc = sh_strdup(name, &copy, b->err);
    if (!rc)
        rc = onnx_build_node(b, "Gather", of, name, out ? out : t, axis);
    free(name);
    if (rc) {
        free(copy);
        free(index);
        return rc;
    }
    b->gone[i] = true;
    return onnx_build_tensor(b, copy, SH_I64, &(int64_t){(int64_t)n}, 1, index, n * sizeof(*index));
}

int onnx_build_refused(struct onnx_build *b, uint32_t i, const void *data, size_t n)
{
    const Onnx__TensorProto *t = b->g->initializer[i];
    float *own = malloc(n * sizeof(*own));
    char *name = NULL, *copy = NULL;
    int rc = own ? sh_asprintf(b->err, &name, "%s@%s", t->name, ONNX_FACTOR)
                 : SH_FAIL(b->err, SH_E_NOMEM, "could not allocate %zu numbers", n);

    if (!rc)
        rc = sh_strdup(name, &copy, b->err);
    if (!rc)
        rc = onnx_build_node(b, "Identity", name, NULL, t->name, 0);
    free(name);
    if (rc) {
        free(copy);
        free(own);
        return rc;
    }
    memcpy(own, data, n * sizeof(*own));
    b->gone[i] = true;
    return onnx_build_tensor(b, copy, SH_F32, t->dims, t->n_dims, own, n * sizeof(*own));
}

static int put_nodes(struct onnx_build *b)
{
    Onnx__GraphProto *g = b->g;
    size_t cap = b->nodes_cap;
    int rc = sh_grow(&b->nodes, &cap, b->n_nodes + g->n_node, sizeof(Onnx__NodeProto *),
                     2 * (size_t)GRAPH_MAX_VALUES, "nodes of a model", b->err);

    if (rc)
        return rc;
    for (size_t i = 0; i < g->n_node; i++)
        b->nodes[b->n_nodes++] = g->node[i];
    free(g->node);
    g->node = b->nodes;
    g->n_node = b->n_nodes;
    b->nodes = NULL;
    b->n_nodes = 0;
    return SH_OK;
}

/* Of those that the file has. */
static void drop_built_initializers(const struct onnx_build *b)
{
    Onnx__GraphProto *g = b->g;
    size_t kept = 0;

    for (size_t i = 0; i < g->n_initializer; i++)
        if (i >= b->n_file || !b->gone[i])
            g->initializer[kept++] = g->initializer[i];
        else
            onnx__tensor_proto__free_unpacked(g->initializer[i], NULL);
    g->n_initializer = kept;
}

int onnx_build_shaped(struct onnx_build *b, const char *op, const char *of,
                      const Onnx__TensorProto *t)
{
    const int64_t n = (int64_t)t->n_dims;
    int64_t *dims = malloc((t->n_dims + 1) * sizeof(*dims));
    char *shape = NULL, *copy = NULL;
    int rc = dims ? sh_asprintf(b->err, &shape, "%s@shape", t->name)
                  : SH_FAIL(b->err, SH_E_NOMEM, "could not allocate a shape");

    if (!rc)
        rc = sh_strdup(shape, &copy, b->err);
    if (!rc)
        rc = onnx_build_node(b, op, of, shape, t->name, 0);
    free(shape);
    if (rc) {
        free(copy);
        free(dims);
        return rc;
    }
    for (size_t i = 0; i < t->n_dims; i++)
        dims[i] = t->dims[i];
    return onnx_build_tensor(b, copy, SH_I64, &n, 1, dims, t->n_dims * sizeof(*dims));
}

int onnx_build_finish(struct onnx_build *b)
{
    const int rc = b->n_nodes > 0 ? put_nodes(b) : SH_OK;

    if (!rc)
        drop_built_initializers(b);
    return rc;
}

void onnx_build_fini(struct onnx_build *b)
{
    for (size_t i = 0; i < b->n_nodes; i++)
        onnx__node_proto__free_unpacked(b->nodes[i], NULL);
    free(b->nodes);
    free(b->gone);
}
