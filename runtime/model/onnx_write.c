/* onnx_write.c - writes a graph as an ONNX file (opset 18). Weights are not copied: the messages
 * point to the graph's data while they are written. */
#include "common/mem.h"
#include "runtime/model/graph_int.h"
#include "runtime/model/onnx.h"
#include "runtime/model/onnx_file.h"

#include <stdlib.h>

#define IR_VERSION 8

/* Every message of the file, freed together at the end. */
struct pool {
    void **items;
    size_t n, cap;
    bool failed;
};

static void *take_from_pool(struct pool *p, size_t bytes)
{
    void *item = NULL;

    if (!p->failed && sh_grow(&p->items, &p->cap, p->n + 1, sizeof(*p->items), SIZE_MAX / 16,
                              "messages", NULL) == SH_OK)
        item = calloc(1, bytes ? bytes : 1);
    if (!item) {
        p->failed = true;
        return NULL;
    }
    p->items[p->n++] = item;
    return item;
}

static void pool_fini(struct pool *p)
{
    for (size_t i = 0; i < p->n; i++)
        free(p->items[i]);
    free(p->items);
}

/* The text stays the graph's; protobuf-c only reads it. */
static char *borrow(const char *text)
{
    return (char *)(uintptr_t)text;
}

static Onnx__TensorProto *write_tensor(struct pool *p, const struct graph_value *v,
                                       const char *name)
{
    Onnx__TensorProto *t = take_from_pool(p, sizeof(*t));
    int64_t *dims = take_from_pool(p, SH_MAX_RANK * sizeof(*dims));

    if (!t || !dims)
        return NULL;
    onnx__tensor_proto__init(t);
    memcpy(dims, v->dims, (size_t)v->rank * sizeof(*dims));
    t->n_dims = (size_t)v->rank;
    t->dims = dims;
    t->has_data_type = 1;
    t->data_type = sh_dtype_onnx(v->dtype);
    t->has_raw_data = 1;
    t->raw_data.data = v->data;
    t->raw_data.len = v->bytes;
    t->name = borrow(name);
    return t;
}

/* NULL: an axis that follows from others needs no name. */
static const char *dim_name(const struct graph *g, int64_t dim)
{
    if (dim == GRAPH_BATCH)
        return "batch";
    return dim == GRAPH_DERIVED ? NULL : g->symbols.name[GRAPH_SYMBOL(dim)];
}

static Onnx__TensorShapeProto__Dimension *dimension(struct pool *p, const struct graph *g,
                                                    int64_t size)
{
    Onnx__TensorShapeProto__Dimension *d = take_from_pool(p, sizeof(*d));

    if (!d)
        return NULL;
    onnx__tensor_shape_proto__dimension__init(d);
    if (size < 0 && dim_name(g, size)) {
        d->value_case = ONNX__TENSOR_SHAPE_PROTO__DIMENSION__VALUE_DIM_PARAM;
        d->dim_param = borrow(dim_name(g, size));
    } else if (size >= 0) {
        d->value_case = ONNX__TENSOR_SHAPE_PROTO__DIMENSION__VALUE_DIM_VALUE;
        d->dim_value = size;
    }
    return d;
}

static Onnx__ValueInfoProto *value_info(struct pool *p, const struct graph *g,
                                        const struct graph_value *v)
{
    Onnx__ValueInfoProto *info = take_from_pool(p, sizeof(*info));
    Onnx__TypeProto *type = take_from_pool(p, sizeof(*type));
    Onnx__TypeProto__Tensor *t = take_from_pool(p, sizeof(*t));
    Onnx__TensorShapeProto *shape = take_from_pool(p, sizeof(*shape));
    Onnx__TensorShapeProto__Dimension **dims = take_from_pool(p, SH_MAX_RANK * sizeof(*dims));

    if (!info || !type || !t || !shape || !dims)
        return NULL;
    onnx__value_info_proto__init(info);
    onnx__type_proto__init(type);
    onnx__type_proto__tensor__init(t);
    onnx__tensor_shape_proto__init(shape);
    info->name = v->name;
    info->type = type;
    type->value_case = ONNX__TYPE_PROTO__VALUE_TENSOR_TYPE;
    type->tensor_type = t;
    t->has_elem_type = 1;
    t->elem_type = sh_dtype_onnx(v->dtype);
    for (int i = 0; i < v->rank; i++)
        dims[i] = dimension(p, g, v->dims[i]);
    shape->n_dim = v->rank < 0 ? 0 : (size_t)v->rank;
    shape->dim = dims;
    t->shape = v->rank < 0 ? NULL : shape;
    return info;
}

/* Words with commas are a list in a file. */
static bool write_words(struct pool *p, const struct graph_attr *a, Onnx__AttributeProto *o)
{
    size_t n = 1, k = 0;

    for (const char *s = a->s; *s; s++)
        n += *s == ',';
    o->type = ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__STRINGS;
    o->strings = take_from_pool(p, n * sizeof(*o->strings));
    if (!o->strings)
        return false;
    o->n_strings = n;
    for (char *s = a->s; k < n; k++) {
        o->strings[k].len = strcspn(s, ",");
        o->strings[k].data = (uint8_t *)s;
        s += o->strings[k].len + 1;
    }
    return true;
}

static Onnx__AttributeProto *write_attribute(struct pool *p, const struct graph_attr *a)
{
    Onnx__AttributeProto *o = take_from_pool(p, sizeof(*o));

    if (!o)
        return NULL;
    onnx__attribute_proto__init(o);
    o->name = a->name;
    o->has_type = 1;
    switch (a->kind) {
    case GRAPH_ATTR_INT:
        o->type = ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__INT;
        o->has_i = 1;
        o->i = a->i;
        break;
    case GRAPH_ATTR_FLOAT:
        o->type = ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__FLOAT;
        o->has_f = 1;
        o->f = (float)a->f;
        break;
    case GRAPH_ATTR_STR:
        if (strcmp(a->name, "activations") == 0)
            return write_words(p, a, o) ? o : NULL;
        o->type = ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__STRING;
        o->has_s = 1;
        o->s.data = (uint8_t *)a->s;
        o->s.len = strlen(a->s);
        break;
    case GRAPH_ATTR_INTS:
        o->type = ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__INTS;
        o->n_ints = a->n;
        o->ints = a->ints;
        break;
    case GRAPH_ATTR_FLOATS:
        o->type = ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__FLOATS;
        o->n_floats = a->n;
        o->floats = a->floats;
        break;
    }
    return o;
}

/* ConstantOfShape takes its value as an attribute in a file. */
static Onnx__AttributeProto *fill_attribute(struct pool *p, const struct graph_value *v)
{
    Onnx__AttributeProto *o = take_from_pool(p, sizeof(*o));

    if (!o)
        return NULL;
    onnx__attribute_proto__init(o);
    o->name = borrow("value");
    o->has_type = 1;
    o->type = ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__TENSOR;
    o->t = write_tensor(p, v, "value");
    /* Written as one element along one axis, as the operator demands. */
    if (o->t) {
        o->t->n_dims = 1;
        o->t->dims[0] = 1;
    }
    return o;
}

static void links(const struct graph *g, const uint32_t *from, uint32_t n, char **to)
{
    for (uint32_t i = 0; i < n; i++)
        to[i] = from[i] == GRAPH_NONE ? borrow("") : g->values[from[i]].name;
}

static Onnx__NodeProto *write_node(struct pool *p, const struct graph *g,
                                   const struct graph_node *n)
{
    Onnx__NodeProto *o = take_from_pool(p, sizeof(*o));
    char **in = take_from_pool(p, n->n_in * sizeof(*in)),
         **out = take_from_pool(p, n->n_out * sizeof(*out));
    Onnx__AttributeProto **attrs = take_from_pool(p, (n->n_attrs + 1) * sizeof(*attrs));
    bool fill = strcmp(n->op, "ConstantOfShape") == 0 && n->n_in == 2;

    if (!o || !in || !out || !attrs)
        return NULL;
    onnx__node_proto__init(o);
    o->name = n->name;
    o->op_type = n->op;
    o->n_input = fill ? 1 : n->n_in;
    o->input = in;
    o->n_output = n->n_out;
    o->output = out;
    links(g, n->in, n->n_in, in);
    links(g, n->out, n->n_out, out);
    for (uint32_t i = 0; i < n->n_attrs; i++)
        attrs[o->n_attribute++] = write_attribute(p, &n->attrs[i]);
    if (fill)
        attrs[o->n_attribute++] = fill_attribute(p, &g->values[n->in[1]]);
    o->attribute = attrs;
    return o;
}

static Onnx__GraphProto *main_graph(struct pool *p, const struct graph *g)
{
    Onnx__GraphProto *o = take_from_pool(p, sizeof(*o));
    Onnx__NodeProto **nodes = take_from_pool(p, g->n_nodes * sizeof(*nodes));
    Onnx__TensorProto **tensors = take_from_pool(p, g->n_values * sizeof(*tensors));
    Onnx__ValueInfoProto **in = take_from_pool(p, g->n_inputs * sizeof(*in));
    Onnx__ValueInfoProto **out = take_from_pool(p, g->n_outputs * sizeof(*out));

    if (!o || !nodes || !tensors || !in || !out)
        return NULL;
    onnx__graph_proto__init(o);
    o->name = borrow("main");
    for (uint32_t i = 0; i < g->n_nodes; i++)
        nodes[o->n_node++] = write_node(p, g, &g->nodes[i]);
    for (uint32_t i = 0; i < g->n_values; i++)
        if (g->values[i].data)
            tensors[o->n_initializer++] = write_tensor(p, &g->values[i], g->values[i].name);
    for (uint32_t i = 0; i < g->n_inputs; i++)
        in[o->n_input++] = value_info(p, g, &g->values[g->inputs[i]]);
    for (uint32_t i = 0; i < g->n_outputs; i++)
        out[o->n_output++] = value_info(p, g, &g->values[g->outputs[i]]);
    o->node = nodes;
    o->initializer = tensors;
    o->input = in;
    o->output = out;
    return o;
}

int onnx_write(const struct graph *g, const char *path, struct sh_err *err)
{
    Onnx__OperatorSetIdProto opset = ONNX__OPERATOR_SET_ID_PROTO__INIT, *opsets[1] = {&opset};
    Onnx__ModelProto m = ONNX__MODEL_PROTO__INIT;
    struct pool p = {0};
    int rc = graph__validate(g, err);

    if (rc)
        return rc;
    opset.domain = borrow("");
    opset.has_version = 1;
    opset.version = GRAPH_OPSET;
    m.has_ir_version = 1;
    m.ir_version = IR_VERSION;
    m.producer_name = borrow("shunt");
    m.n_opset_import = 1;
    m.opset_import = opsets;
    m.graph = main_graph(&p, g);
    if (p.failed)
        rc = SH_FAIL(err, SH_E_NOMEM, "could not allocate an ONNX model");
    else
        rc = onnx_file_save(path, &m, err);
    pool_fini(&p);
    return rc;
}
