/* onnx_node.c - nodes, their attributes and constants: see onnx_reader.h. */
#include "common/mem.h"
#include "runtime/model/onnx_reader.h"
#include "runtime/model/op_list.h"

#include <stdio.h>
#include <stdlib.h>

bool reader_is_standard(const char *domain)
{
    return !domain || !domain[0] || strcmp(domain, "ai.onnx") == 0;
}

static int reader_refuse(struct reader *r, const Onnx__NodeProto *n, const char *reason)
{
    char op[128];

    snprintf(op, sizeof(op), "%s%s%s", reader_text(n->domain),
             n->domain && n->domain[0] ? "::" : "", reader_text(n->op_type));
    r->n_refused++;
    return graph__list_add(&r->list, op, n->name && n->name[0] ? n->name : "(no name)", reason,
                           r->err);
}

/* ---------------------------------------------------------------- attributes */

static int read_string(struct reader *r, struct graph_node *n, const char *name,
                       const ProtobufCBinaryData *list, size_t k)
{
    char value[256];
    size_t at = 0;

    for (size_t i = 0; i < k; i++) {
        if (list[i].len + 2 > sizeof(value) - at ||
            (list[i].len && memchr(list[i].data, 0, list[i].len)))
            return SH_FAIL(r->err, SH_E_INVALID, "attribute %s of node %s is no short text", name,
                           n->name);
        if (i > 0)
            value[at++] = ',';
        if (list[i].len)
            memcpy(value + at, list[i].data, list[i].len);
        at += list[i].len;
    }
    value[at] = '\0';
    if (at && !graph__name_ok(value))
        return SH_FAIL(r->err, SH_E_INVALID, "attribute %s of node %s is not plain text", name,
                       n->name);
    return graph_set_str(n, name, value, r->err);
}

/* *unsupported is set for kinds that a graph has no place for. A list of texts is one text, with
 * commas. */
static int read_onnx_attr(struct reader *r, struct graph_node *n, const Onnx__AttributeProto *p,
                          bool *unsupported)
{
    const Onnx__AttributeProto *a = NULL;
    int rc;

    if (!p->name || !graph__name_ok(p->name))
        return SH_FAIL(r->err, SH_E_INVALID, "an attribute of node %s has no name", n->name);
    if (graph__attr(n, p->name))
        return SH_FAIL(r->err, SH_E_INVALID, "attribute %s of node %s is there twice", p->name,
                       n->name);
    rc = reader_attr(r, p, &a);
    if (rc || !a)
        return rc;
    switch (a->has_type ? (int)a->type : 0) {
    case ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__INT:
        return graph_set_int(n, p->name, a->i, r->err);
    case ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__FLOAT:
        return graph_set_float(n, p->name, (double)a->f, r->err);
    case ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__STRING:
        return read_string(r, n, p->name, &a->s, 1);
    case ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__STRINGS:
        return read_string(r, n, p->name, a->strings, a->n_strings);
    case ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__INTS:
        return graph_set_ints(n, p->name, a->ints, a->n_ints, r->err);
    case ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__FLOATS:
        return graph__set_floats(n, p->name, a->floats, a->n_floats, r->err);
    default:
        *unsupported = true;
        return SH_OK;
    }
}

/* ---------------------------------------------------------------- constants */

int reader_numbers(struct reader *r, const void *from, size_t k, enum sh_dtype t, int rank,
                   struct onnx_array *out)
{
    out->dtype = t;
    out->rank = rank;
    out->dims[0] = (int64_t)k;
    out->bytes = k * sh_dtype_bytes(t);
    out->data = malloc(out->bytes ? out->bytes : 1);
    if (!out->data)
        return SH_FAIL(r->err, SH_E_NOMEM, "could not allocate a constant");
    if (out->bytes)
        memcpy(out->data, from, out->bytes);
    return SH_OK;
}

int reader_take(struct reader *r, Onnx__TensorProto *t, const char *what, struct onnx_array *out)
{
    return r->scope->func ? onnx_tensor_copy(t, what, r->source, out, r->err)
                          : onnx_tensor_take(t, what, r->source, out, r->err);
}

/* The value of a Constant or ConstantOfShape node in its six spellings. What a function has, other
 * calls of it need too. */
static int constant_value(struct reader *r, const Onnx__NodeProto *n, struct onnx_array *out,
                          bool *unsupported)
{
    const Onnx__AttributeProto *p = n->n_attribute == 1 ? n->attribute[0] : NULL, *a = NULL;
    const char *key = p ? reader_text(p->name) : "";
    char what[160], name[128];
    int rc = p ? reader_attr(r, p, &a) : SH_OK;

    *unsupported = false;
    if (rc)
        return rc;
    if (a && a->has_type) {
        if (a->type == ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__TENSOR && a->t &&
            strcmp(key, "value") == 0) {
            snprintf(what, sizeof(what), "the value of node %s",
                     graph__clean(reader_text(n->name), name, sizeof(name)));
            return reader_take(r, a->t, what, out);
        }
        if (strcmp(key, "value_int") == 0)
            return reader_numbers(r, &a->i, 1, SH_I64, 0, out);
        if (strcmp(key, "value_ints") == 0)
            return reader_numbers(r, a->ints, a->n_ints, SH_I64, 1, out);
        if (strcmp(key, "value_float") == 0)
            return reader_numbers(r, &a->f, 1, SH_F32, 0, out);
        if (strcmp(key, "value_floats") == 0)
            return reader_numbers(r, a->floats, a->n_floats, SH_F32, 1, out);
    }
    *unsupported = true;
    return SH_OK;
}

static int read_constant(struct reader *r, const Onnx__NodeProto *n)
{
    struct onnx_array a = {0};
    bool unsupported;
    uint32_t v = GRAPH_NONE;
    int rc;

    if (n->n_output != 1 || !n->output[0] || !n->output[0][0])
        return SH_FAIL(r->err, SH_E_INVALID, "a Constant node needs one output");
    rc = constant_value(r, n, &a, &unsupported);
    if (!rc && unsupported)
        return reader_refuse(r, n, WHY_CONSTANT);
    if (!rc)
        rc = reader_mention(r, n->output[0], &v);
    if (!rc) {
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
    }
    onnx_array_fini(&a);
    return rc;
}

/* ---------------------------------------------------------------- nodes */

int reader_set_input(struct reader *r, struct graph_node *n, uint32_t slot, const char *what,
                     struct onnx_array *a)
{
    uint32_t *in, v;
    int rc = reader_fresh(r, n->name, '.', what, a, &v);

    if (rc)
        return rc;
    if (slot >= n->n_in) {
        in = realloc(n->in, (slot + 1) * sizeof(*in));
        if (!in)
            return SH_FAIL(r->err, SH_E_NOMEM, "could not allocate a node");
        n->in = in;
        while (n->n_in <= slot)
            n->in[n->n_in++] = GRAPH_NONE;
    }
    n->in[slot] = v;
    return SH_OK;
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
        rc = reader_set_input(r, n, 1, "value", &a);
    onnx_array_fini(&a);
    return rc;
}

static int read_onnx_links(struct reader *r, const Onnx__NodeProto *p, struct graph_node *n)
{
    uint32_t *in = calloc(p->n_input + 1, sizeof(*in)),
             *out = calloc(p->n_output + 1, sizeof(*out));
    int rc = SH_OK;

    if (!in || !out)
        rc = SH_FAIL(r->err, SH_E_NOMEM, "could not allocate a node");
    for (size_t i = 0; i < p->n_input && rc == SH_OK; i++)
        rc = reader_mention(r, p->input[i], &in[i]);
    for (size_t i = 0; i < p->n_output && rc == SH_OK; i++)
        rc = reader_mention(r, p->output[i], &out[i]);
    if (!rc)
        rc = graph__node_links(n, in, (uint32_t)p->n_input, out, (uint32_t)p->n_output, r->err);
    free(in);
    free(out);
    return rc;
}

/* A name for messages: of a function, behind that of its call. */
static void onnx_node_name(const struct reader *r, const Onnx__NodeProto *p, char *out, size_t size)
{
    char clean[128];

    graph__clean(reader_text(p->name), clean, sizeof(clean));
    snprintf(out, size, "%s%s%s", r->scope->label, r->scope->up && clean[0] ? "/" : "", clean);
}

int reader_mark(struct reader *r, struct graph_node *n)
{
    int rc = reader_in_branch(r) ? graph_set_int(n, GRAPH_BRANCH, 1, r->err) : SH_OK;

    return rc || !r->scope->loop ? rc : graph_set_int(n, GRAPH_LOOP, r->scope->loop, r->err);
}

static int read_onnx_attrs(struct reader *r, const Onnx__NodeProto *p, struct graph_node *n,
                           bool *unsupported)
{
    int rc = SH_OK;

    for (size_t i = 0; i < p->n_attribute && rc == SH_OK; i++)
        rc = read_onnx_attr(r, n, p->attribute[i], unsupported);
    return rc;
}

int reader_attrs(struct reader *r, const Onnx__NodeProto *p, struct graph_node *n)
{
    bool other;

    return read_onnx_attrs(r, p, n, &other);
}

int reader_node(struct reader *r, const Onnx__NodeProto *p)
{
    const Onnx__FunctionProto *f = reader_function(r, p);
    const char *type = reader_text(p->op_type);
    struct graph_node n = {0};
    char name[256], op[96];
    bool standard = reader_is_standard(p->domain), unsupported = false;
    int rc;

    if (standard && strcmp(type, "Constant") == 0)
        return read_constant(r, p);
    if (standard && strcmp(type, "If") == 0)
        return reader_if(r, p);
    if (standard && reader_has_body(type))
        return reader_loop(r, p);
    if (f && !(standard && graph__op_known(type)))
        return reader_call(r, f, p);
    onnx_node_name(r, p, name, sizeof(name));
    graph__clean(type, op, sizeof(op));
    rc = graph__node_init(&n, name, op, r->g->n_nodes, r->err);
    if (!rc)
        rc = read_onnx_links(r, p, &n);
    if (!rc && standard && strcmp(op, "ConstantOfShape") == 0)
        rc = fill_value(r, p, &n);
    else if (!rc && standard)
        rc = read_onnx_attrs(r, p, &n, &unsupported);
    if (!rc && standard && strcmp(op, "Gather") == 0)
        rc = reader_padding(r, p, &n);
    if (!rc && standard && !unsupported)
        rc = reader_normalise(r, &n);
    if (!rc)
        rc = reader_mark(r, &n);
    if (rc)
        goto out;
    if (!standard)
        rc = reader_refuse(r, p, WHY_DOMAIN);
    else if (!graph__op_known(n.op))
        rc = reader_refuse(r, p, unsupported ? "control flow is not supported" : op_list_why(n.op));
    else if (unsupported)
        rc = reader_refuse(r, p, WHY_ATTRIBUTE);
    if (!rc)
        rc = graph__push_node(r->g, &n, r->err);
out:
    graph__node_fini(&n);
    return rc;
}
