/* onnx_read.c - from an ONNX file to a graph in the one form that the rest knows.
 *
 * What cannot be represented (control flow, custom domains, ...) is collected node by node, so that
 * the user sees the whole list at once; everything that is wrong with the file ends the reading.
 */
#include "common/mem.h"
#include "executor/model/names.h"
#include "executor/model/onnx.h"
#include "executor/model/onnx_tensor.h"

#include <stdio.h>
#include <stdlib.h>

struct reader {
    Onnx__ModelProto *model;
    struct onnx_source *source;
    struct graph *g;
    struct names names;
    struct sh_buf list; /* what is not supported */
    uint32_t n_refused;
    int64_t opset;
    struct sh_err *err;
};

static const char *text(const char *s)
{
    return s ? s : "";
}

static int refuse(struct reader *r, const Onnx__NodeProto *n, const char *reason)
{
    char op[128];

    snprintf(op, sizeof(op), "%s%s%s", text(n->domain), n->domain && n->domain[0] ? "::" : "",
             text(n->op_type));
    r->n_refused++;
    return graph__list_add(&r->list, op, n->name && n->name[0] ? n->name : "(no name)", reason,
                           r->err);
}

/* ---------------------------------------------------------------- values */

static int new_value(struct reader *r, const char *name, struct onnx_array *a, uint32_t *out)
{
    char clean[128];
    int rc;

    if (!graph__name_ok(name))
        return SH_FAIL(r->err, SH_E_INVALID, "a tensor name is not plain text: %s",
                       graph__clean(name, clean, sizeof(clean)));
    if (names_get(&r->names, name) != NAMES_NONE)
        return SH_FAIL(r->err, SH_E_INVALID, "tensor %s is defined twice",
                       graph__clean(name, clean, sizeof(clean)));
    if (a && a->data)
        rc = graph_add_const(r->g, name, a->dtype, a->rank, a->dims, a->data, out, r->err);
    else
        rc = graph_add_value(r->g, name, a ? a->dtype : SH_F32, a ? a->rank : -1,
                             a ? a->dims : NULL, out, r->err);
    if (rc)
        return rc;
    if (a && a->data)
        r->g->values[*out].data_borrowed = a->is_borrowed;
    if (a)
        a->data = NULL; /* the graph's now */
    return names_put(&r->names, r->g->values[*out].name, *out, r->err);
}

/* The value of that name, made if this is its first mention. */
static int mention(struct reader *r, const char *name, uint32_t *out)
{
    *out = GRAPH_NONE;
    if (!name || !name[0])
        return SH_OK;
    *out = names_get(&r->names, name);
    return *out != NAMES_NONE ? SH_OK : new_value(r, name, NULL, out);
}

/* A constant that the file does not name: <base>.<suffix>, made unique. */
static int new_const(struct reader *r, const char *base, const char *suffix, struct onnx_array *a,
                     uint32_t *out)
{
    char *name = NULL;
    int rc = sh_asprintf(r->err, &name, "%s.%s", base, suffix);

    for (unsigned i = 2; rc == SH_OK && names_get(&r->names, name) != NAMES_NONE; i++) {
        free(name);
        rc = sh_asprintf(r->err, &name, "%s.%s.%u", base, suffix, i);
    }
    if (!rc)
        rc = new_value(r, name, a, out);
    free(name);
    return rc;
}

/* ---------------------------------------------------------------- inputs and weights */

static bool is_float(enum sh_dtype t)
{
    return t == SH_F32 || t == SH_F64 || t == SH_F16 || t == SH_BF16;
}

static int read_initializer(struct reader *r, Onnx__TensorProto *t)
{
    struct onnx_array a = {0};
    char what[160], name[128];
    uint32_t v;
    int rc;

    snprintf(what, sizeof(what), "initializer %s", graph__clean(text(t->name), name, sizeof(name)));
    rc = onnx_tensor_take(t, what, r->source, &a, r->err);
    if (!rc)
        rc = new_value(r, text(t->name), &a, &v);
    if (!rc)
        r->g->values[v].is_param = is_float(r->g->values[v].dtype) && r->g->values[v].rank >= 1;
    onnx_array_fini(&a);
    return rc;
}

static int read_dim(struct reader *r, const char *name, size_t axis,
                    const Onnx__TensorShapeProto__Dimension *d, int64_t *out)
{
    bool fixed = d->value_case == ONNX__TENSOR_SHAPE_PROTO__DIMENSION__VALUE_DIM_VALUE;

    if (fixed && d->dim_value < 1)
        return SH_FAIL(r->err, SH_E_INVALID, "axis %zu of input %s has size %lld", axis, name,
                       (long long)d->dim_value);
    if (!fixed && axis > 0)
        return SH_FAIL(r->err, SH_E_UNSUPPORTED,
                       "axis %zu of input %s is dynamic; only the first may be, export the others "
                       "with a fixed size",
                       axis, name);
    *out = fixed ? d->dim_value : -1;
    return SH_OK;
}

static int read_input(struct reader *r, const Onnx__ValueInfoProto *in)
{
    const Onnx__TypeProto *type = in->type;
    const Onnx__TypeProto__Tensor *t;
    struct onnx_array a = {0};
    char name[128];
    uint32_t v;
    int rc = SH_OK;

    graph__clean(text(in->name), name, sizeof(name));
    if (!type || type->value_case != ONNX__TYPE_PROTO__VALUE_TENSOR_TYPE || !type->tensor_type)
        return SH_FAIL(r->err, SH_E_UNSUPPORTED, "input %s is no tensor", name);
    t = type->tensor_type;
    a.dtype = sh_dtype_from_onnx(t->elem_type);
    if (a.dtype >= SH_N_DTYPES)
        return SH_FAIL(r->err, SH_E_UNSUPPORTED, "input %s has element type %d", name,
                       t->elem_type);
    if (!t->shape)
        return SH_FAIL(r->err, SH_E_UNSUPPORTED, "input %s has no shape", name);
    if (t->shape->n_dim > SH_MAX_RANK)
        return SH_FAIL(r->err, SH_E_UNSUPPORTED, "input %s has more than %d axes", name,
                       SH_MAX_RANK);
    a.rank = (int)t->shape->n_dim;
    for (size_t i = 0; i < t->shape->n_dim && rc == SH_OK; i++)
        rc = read_dim(r, name, i, t->shape->dim[i], &a.dims[i]);
    if (!rc)
        rc = new_value(r, text(in->name), &a, &v);
    return rc ? rc : graph_add_input(r->g, v, r->err);
}

static int read_values(struct reader *r)
{
    Onnx__GraphProto *g = r->model->graph;
    int rc = SH_OK;

    if (g->n_sparse_initializer > 0)
        return SH_FAIL(r->err, SH_E_UNSUPPORTED, "sparse initializers are not supported");
    for (size_t i = 0; i < g->n_initializer && rc == SH_OK; i++)
        rc = read_initializer(r, g->initializer[i]);
    for (size_t i = 0; i < g->n_input && rc == SH_OK; i++) {
        uint32_t v = names_get(&r->names, text(g->input[i]->name));

        /* Old files list weights as inputs too; they are no inputs then. */
        if (v == NAMES_NONE || !r->g->values[v].data)
            rc = read_input(r, g->input[i]);
    }
    return rc;
}

/* ---------------------------------------------------------------- attributes */

static int read_string(struct reader *r, struct graph_node *n, const Onnx__AttributeProto *a)
{
    char value[256];

    if (a->s.len >= sizeof(value) || (a->s.len && memchr(a->s.data, 0, a->s.len)))
        return SH_FAIL(r->err, SH_E_INVALID, "attribute %s of node %s is no short text", a->name,
                       n->name);
    if (a->s.len)
        memcpy(value, a->s.data, a->s.len);
    value[a->s.len] = '\0';
    if (a->s.len && !graph__name_ok(value))
        return SH_FAIL(r->err, SH_E_INVALID, "attribute %s of node %s is not plain text", a->name,
                       n->name);
    return graph_set_str(n, a->name, value, r->err);
}

/* *unsupported is set for kinds that a graph has no place for. */
static int read_attr(struct reader *r, struct graph_node *n, const Onnx__AttributeProto *a,
                     bool *unsupported)
{
    if (!a->name || !graph__name_ok(a->name))
        return SH_FAIL(r->err, SH_E_INVALID, "an attribute of node %s has no name", n->name);
    if (graph__attr(n, a->name))
        return SH_FAIL(r->err, SH_E_INVALID, "attribute %s of node %s is there twice", a->name,
                       n->name);
    switch (a->has_type ? (int)a->type : 0) {
    case ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__INT:
        return graph_set_int(n, a->name, a->i, r->err);
    case ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__FLOAT:
        return graph_set_float(n, a->name, (double)a->f, r->err);
    case ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__STRING:
        return read_string(r, n, a);
    case ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__INTS:
        return graph_set_ints(n, a->name, a->ints, a->n_ints, r->err);
    case ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__FLOATS:
        return graph__set_floats(n, a->name, a->floats, a->n_floats, r->err);
    default:
        *unsupported = true;
        return SH_OK;
    }
}

/* ---------------------------------------------------------------- constants */

static int copy_numbers(struct reader *r, const void *from, size_t n, enum sh_dtype t, int rank,
                        struct onnx_array *out)
{
    out->dtype = t;
    out->rank = rank;
    out->dims[0] = (int64_t)n;
    out->bytes = n * sh_dtype_bytes(t);
    out->data = malloc(out->bytes ? out->bytes : 1);
    if (!out->data)
        return SH_FAIL(r->err, SH_E_NOMEM, "could not allocate a constant");
    if (out->bytes)
        memcpy(out->data, from, out->bytes);
    return SH_OK;
}

/* The value of a Constant or ConstantOfShape node in its six spellings. */
static int constant_value(struct reader *r, const Onnx__NodeProto *n, struct onnx_array *out,
                          bool *unsupported)
{
    const Onnx__AttributeProto *a = n->n_attribute == 1 ? n->attribute[0] : NULL;
    char what[160], name[128];

    *unsupported = false;
    if (a && a->has_type && a->name) {
        if (a->type == ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__TENSOR && a->t &&
            strcmp(a->name, "value") == 0) {
            snprintf(what, sizeof(what), "the value of node %s",
                     graph__clean(text(n->name), name, sizeof(name)));
            return onnx_tensor_take(a->t, what, r->source, out, r->err);
        }
        if (strcmp(a->name, "value_int") == 0)
            return copy_numbers(r, &a->i, 1, SH_I64, 0, out);
        if (strcmp(a->name, "value_ints") == 0)
            return copy_numbers(r, a->ints, a->n_ints, SH_I64, 1, out);
        if (strcmp(a->name, "value_float") == 0)
            return copy_numbers(r, &a->f, 1, SH_F32, 0, out);
        if (strcmp(a->name, "value_floats") == 0)
            return copy_numbers(r, a->floats, a->n_floats, SH_F32, 1, out);
    }
    *unsupported = true;
    return SH_OK;
}

static int read_constant(struct reader *r, const Onnx__NodeProto *n)
{
    struct onnx_array a = {0};
    bool unsupported;
    uint32_t v;
    int rc;

    if (n->n_output != 1 || !n->output[0] || !n->output[0][0])
        return SH_FAIL(r->err, SH_E_INVALID, "a Constant node needs one output");
    rc = constant_value(r, n, &a, &unsupported);
    if (!rc && unsupported)
        return refuse(r, n, "a constant of this kind is not supported");
    v = names_get(&r->names, n->output[0]);
    if (!rc && v != NAMES_NONE) { /* a node before this one mentions it */
        struct graph_value *old = &r->g->values[v];

        if (old->data || old->rank >= 0) {
            rc = SH_FAIL(r->err, SH_E_INVALID, "tensor %s is defined twice", old->name);
        } else {
            old->dtype = a.dtype;
            old->rank = a.rank;
            memcpy(old->dims, a.dims, sizeof(old->dims));
            old->data = a.data;
            old->bytes = a.bytes;
            old->data_borrowed = a.is_borrowed;
            a.data = NULL;
        }
    } else if (!rc) {
        rc = new_value(r, n->output[0], &a, &v);
    }
    onnx_array_fini(&a);
    return rc;
}

/* ---------------------------------------------------------------- nodes */

/* The second input of a node that has one. */
static int add_const_input(struct reader *r, struct graph_node *n, const char *attr,
                           struct onnx_array *a)
{
    uint32_t *in, v;
    int rc = new_const(r, n->name, attr, a, &v);

    if (rc)
        return rc;
    in = realloc(n->in, 2 * sizeof(*in));
    if (!in)
        return SH_FAIL(r->err, SH_E_NOMEM, "could not allocate a node");
    n->in = in;
    n->in[n->n_in++] = v;
    return SH_OK;
}

static int add_int_list_input(struct reader *r, struct graph_node *n, const char *attr)
{
    const struct graph_attr *a = graph__attr(n, attr);
    struct onnx_array list = {0};
    int rc;

    if (!a || n->n_in != 1)
        return SH_OK;
    if (a->kind != GRAPH_ATTR_INTS)
        return SH_FAIL(r->err, SH_E_INVALID, "attribute %s of node %s is no list", attr, n->name);
    rc = copy_numbers(r, a->ints, a->n, SH_I64, 1, &list);
    if (!rc)
        rc = add_const_input(r, n, attr, &list);
    onnx_array_fini(&list);
    if (!rc)
        graph__drop_attr(n, attr);
    return rc;
}

/* The value attribute of ConstantOfShape becomes its second input. */
static int fill_value(struct reader *r, const Onnx__NodeProto *p, struct graph_node *n)
{
    struct onnx_array a = {0};
    bool unsupported;
    int rc;

    if (p->n_attribute == 0 || n->n_in != 1)
        return SH_OK;
    rc = constant_value(r, p, &a, &unsupported);
    if (!rc && unsupported)
        rc = SH_FAIL(r->err, SH_E_INVALID, "the value of node %s is no tensor", n->name);
    if (!rc)
        rc = add_const_input(r, n, "value", &a);
    onnx_array_fini(&a);
    return rc;
}

/* What differed between opsets 13 and 18. */
static int normalise(struct reader *r, const Onnx__NodeProto *p, struct graph_node *n)
{
    if (strncmp(n->op, "Reduce", 6) == 0)
        return add_int_list_input(r, n, "axes");
    if (strcmp(n->op, "ConstantOfShape") == 0)
        return fill_value(r, p, n);
    if (strcmp(n->op, "BatchNormalization") == 0 && r->opset < 14) {
        int rc = graph_set_int(n, "training_mode", n->n_out > 1, r->err);

        n->n_out = SH_MIN(n->n_out, 3u); /* the saved mean and variance went away */
        return rc;
    }
    if (strcmp(n->op, "Dropout") == 0)
        graph__drop_attr(n, "seed");
    return SH_OK;
}

static int read_links(struct reader *r, const Onnx__NodeProto *p, struct graph_node *n)
{
    uint32_t *in = calloc(p->n_input + 1, sizeof(*in)),
             *out = calloc(p->n_output + 1, sizeof(*out));
    int rc = SH_OK;

    if (!in || !out)
        rc = SH_FAIL(r->err, SH_E_NOMEM, "could not allocate a node");
    for (size_t i = 0; i < p->n_input && rc == SH_OK; i++)
        rc = mention(r, p->input[i], &in[i]);
    for (size_t i = 0; i < p->n_output && rc == SH_OK; i++)
        rc = mention(r, p->output[i], &out[i]);
    if (!rc)
        rc = graph__node_links(n, in, (uint32_t)p->n_input, out, (uint32_t)p->n_output, r->err);
    free(in);
    free(out);
    return rc;
}

static int read_node(struct reader *r, const Onnx__NodeProto *p)
{
    struct graph_node n = {0};
    char name[256], op[96];
    bool standard = !p->domain || !p->domain[0] || strcmp(p->domain, "ai.onnx") == 0;
    bool unsupported = false;
    int rc;

    if (standard && strcmp(text(p->op_type), "Constant") == 0)
        return read_constant(r, p);
    graph__clean(text(p->name), name, sizeof(name));
    graph__clean(text(p->op_type), op, sizeof(op));
    rc = graph__node_init(&n, name, op, r->g->n_nodes, r->err);
    if (!rc)
        rc = read_links(r, p, &n);
    for (size_t i = 0; i < p->n_attribute && rc == SH_OK; i++)
        if (standard && strcmp(op, "ConstantOfShape") != 0)
            rc = read_attr(r, &n, p->attribute[i], &unsupported);
    if (rc)
        goto out;
    if (!standard)
        rc = refuse(r, p, "operators of other domains are not supported");
    else if (!graph__op_known(op))
        rc = refuse(
            r, p, unsupported ? "control flow is not supported" : "the operator is not supported");
    else if (unsupported)
        rc = refuse(r, p, "an attribute is of a kind that is not supported");
    else
        rc = normalise(r, p, &n);
    if (!rc)
        rc = graph__push_node(r->g, &n, r->err);
out:
    graph__node_fini(&n);
    return rc;
}

static int read_outputs(struct reader *r)
{
    const Onnx__GraphProto *g = r->model->graph;
    int rc = SH_OK;

    for (size_t i = 0; i < g->n_output && rc == SH_OK; i++) {
        uint32_t v = names_get(&r->names, text(g->output[i]->name));
        char name[128];

        if (v == NAMES_NONE)
            rc = SH_FAIL(r->err, SH_E_INVALID, "nothing computes output %s of the model",
                         graph__clean(text(g->output[i]->name), name, sizeof(name)));
        else
            rc = graph_add_output(r->g, v, r->err);
    }
    return rc;
}

/* ---------------------------------------------------------------- the whole */

static int read_model(struct reader *r, const char *path, bool beside)
{
    Onnx__GraphProto *g;
    int rc = onnx_file_load(path, beside, &r->source, &r->model, r->err);

    if (rc)
        return rc;
    g = r->model->graph;
    if (!g)
        return SH_FAIL(r->err, SH_E_INVALID, "the file holds no graph: is it an ONNX model?");
    rc = onnx_file_opset(r->model, &r->opset, r->err);
    if (!rc)
        rc = graph_new(&r->g, r->err);
    if (!rc)
        rc = names_init(&r->names, r->err);
    if (rc)
        return rc;
    r->g->opset = r->opset;
    rc = read_values(r);
    for (size_t i = 0; i < g->n_node && rc == SH_OK; i++)
        rc = read_node(r, g->node[i]);
    if (!rc)
        rc = read_outputs(r);
    if (!rc)
        rc = graph__sort(r->g, r->err);
    return rc ? rc : graph__validate(r->g, r->err);
}

int onnx_read_list(const char *path, bool beside, struct graph **out, char **list,
                   struct sh_err *err)
{
    struct reader r = {.err = err};
    int rc;

    *out = NULL;
    if (list)
        *list = NULL;
    sh_buf_init(&r.list, GRAPH_LIST_MAX);
    rc = read_model(&r, path, beside);
    if (!rc && r.n_refused > 0) {
        rc = SH_FAIL(err, SH_E_UNSUPPORTED, "%u of %zu nodes are not supported, the first is %.*s",
                     r.n_refused, r.model->graph->n_node, (int)strcspn(r.list.data, "\n"),
                     r.list.data);
        if (list)
            *list = sh_buf_take(&r.list);
    }
    if (!rc) {
        *out = r.g;
        r.g->backing = r.source; /* tensors may lie there */
        r.g->backing_free = onnx_source_close;
        r.g = NULL;
        r.source = NULL;
    }
    graph_free(r.g);
    names_fini(&r.names);
    sh_buf_fini(&r.list);
    onnx_file_free(r.model);
    onnx_source_close(r.source);
    return rc;
}

int onnx_read(const char *path, struct graph **out, struct sh_err *err)
{
    return onnx_read_list(path, true, out, NULL, err);
}
