/* onnx_func.c - functions of the model: replaces each call by the function's nodes.
 *
 * A call opens a scope: the function's inputs and outputs name values of the caller, all others get
 * their own values. Calls may be nested but not recursive. Their number is limited like that of
 * nodes, since functions that call each other twice would double with each level.
 */
#include "common/mem.h"
#include "runtime/model/onnx_meta.h"
#include "runtime/model/onnx_reader.h"

#include <stdio.h>
#include <stdlib.h>

#define MAX_FUNCTIONS 65536u
#define MAX_DEPTH 32
#define ATTRIBUTE_PROTO 11 /* a field of FunctionProto that older descriptions of ONNX lack */

/* ---------------------------------------------------------------- which there are */

static int function_key(const char *domain, const char *name, char **out, struct sh_err *err)
{
    return sh_asprintf(err, out, "%s::%s", reader_is_standard(domain) ? "" : domain,
                       reader_text(name));
}

int reader_functions(struct reader *r)
{
    size_t n = r->model->n_functions;
    char clean[128];
    int rc = names_init(&r->functions, r->err);

    if (rc || n == 0)
        return rc;
    if (n > MAX_FUNCTIONS)
        return SH_FAIL(r->err, SH_E_TOOBIG, "the model has more than %u functions", MAX_FUNCTIONS);
    r->function_names = calloc(n, sizeof(*r->function_names));
    if (!r->function_names)
        return SH_FAIL(r->err, SH_E_NOMEM, "could not allocate the functions of a model");
    for (size_t i = 0; i < n && rc == SH_OK; i++) {
        const Onnx__FunctionProto *f = r->model->functions[i];

        rc = function_key(f->domain, f->name, &r->function_names[i], r->err);
        if (!rc && names_get(&r->functions, r->function_names[i]) != NAMES_NONE)
            rc = SH_FAIL(r->err, SH_E_INVALID, "function %s is defined twice",
                         graph__clean(r->function_names[i], clean, sizeof(clean)));
        if (!rc)
            rc = names_put(&r->functions, r->function_names[i], (uint32_t)i, r->err);
    }
    return rc;
}

void reader_functions_fini(struct reader *r)
{
    for (size_t i = 0; r->function_names && i < r->model->n_functions; i++)
        free(r->function_names[i]);
    free(r->function_names);
    names_fini(&r->functions);
}

const Onnx__FunctionProto *reader_function(const struct reader *r, const Onnx__NodeProto *n)
{
    char *key = NULL;
    uint32_t i = NAMES_NONE;

    if (r->functions.n > 0 && function_key(n->domain, n->op_type, &key, NULL) == SH_OK)
        i = names_get(&r->functions, key);
    free(key);
    return i == NAMES_NONE ? NULL : r->model->functions[i];
}

/* ---------------------------------------------------------------- attributes */

/* The file was walked with these in it (onnx_file.c), so they are no deeper than the rest. */
static int read_defaults(struct reader *r, struct scope *s)
{
    const ProtobufCMessage *m = &s->func->base;

    s->defaults = calloc(m->n_unknown_fields + 1, sizeof(*s->defaults));
    if (!s->defaults)
        return SH_FAIL(r->err, SH_E_NOMEM, "could not allocate a function");
    for (size_t i = 0; i < m->n_unknown_fields; i++) {
        size_t len;
        const uint8_t *data = onnx_unknown(&m->unknown_fields[i], ATTRIBUTE_PROTO, &len);

        if (!data)
            continue;
        s->defaults[s->n_defaults] = onnx__attribute_proto__unpack(NULL, len, data);
        if (!s->defaults[s->n_defaults])
            return SH_FAIL(r->err, SH_E_INVALID, "an attribute of function %s cannot be read",
                           s->label);
        s->n_defaults++;
    }
    return SH_OK;
}

static const Onnx__AttributeProto *find_attr(Onnx__AttributeProto *const *list, size_t n,
                                             const char *name)
{
    for (size_t i = 0; i < n; i++)
        if (list[i]->name && strcmp(list[i]->name, name) == 0)
            return list[i];
    return NULL;
}

int reader_attr(const struct reader *r, const Onnx__AttributeProto *a,
                const Onnx__AttributeProto **out)
{
    const struct scope *s = r->scope;

    while (a && a->ref_attr_name && a->ref_attr_name[0]) {
        const char *name = a->ref_attr_name;

        while (s->is_branch || s->is_body)
            s = s->up;
        if (!s->func)
            return SH_FAIL(r->err, SH_E_INVALID,
                           "an attribute refers to one of a function, but is in none");
        a = find_attr(s->call->attribute, s->call->n_attribute, name);
        if (!a)
            a = find_attr(s->defaults, s->n_defaults, name);
        s = s->up;
    }
    *out = a;
    return SH_OK;
}

/* ---------------------------------------------------------------- calls */

/* The values of the caller under the names of the function. */
static int bind_call(struct reader *r, struct scope *s)
{
    const Onnx__FunctionProto *f = s->func;
    const Onnx__NodeProto *call = s->call;
    int rc = SH_OK;

    if (call->n_input > f->n_input || call->n_output > f->n_output)
        return SH_FAIL(r->err, SH_E_INVALID,
                       "%s: the call has more inputs or outputs than the function", s->label);
    for (size_t i = 0; i < f->n_input && rc == SH_OK; i++) {
        uint32_t v = GRAPH_NONE;

        if (names_get(&s->names, f->input[i]) != NAMES_NONE)
            return SH_FAIL(r->err, SH_E_INVALID, "%s: two inputs of the function have one name",
                           s->label);
        if (i < call->n_input)
            rc = reader_mention(r, call->input[i], &v);
        if (!rc)
            rc = names_put(&s->names, f->input[i], v == GRAPH_NONE ? READER_ABSENT : v, r->err);
    }
    return rc;
}

/* An output that is an input too needs a node of its own. */
static int bind_call_outputs(struct reader *r, struct scope *s)
{
    const Onnx__FunctionProto *f = s->func;
    int rc = SH_OK;

    for (size_t i = 0; i < s->call->n_output && rc == SH_OK; i++) {
        uint32_t inner = names_get(&s->names, f->output[i]), v, node;

        rc = reader_mention(r, s->call->output[i], &v);
        if (rc || v == GRAPH_NONE)
            continue;
        if (inner == READER_ABSENT)
            rc = SH_FAIL(r->err, SH_E_INVALID, "%s: an output is an input that is left out",
                         s->label);
        else if (inner != NAMES_NONE)
            rc = graph_add_node(r->g, NULL, "Identity", &inner, 1, &v, 1, &node, r->err);
        else
            rc = names_put(&s->names, f->output[i], v, r->err);
        if (!rc && inner != NAMES_NONE)
            rc = reader_mark(r, &r->g->nodes[node]);
    }
    return rc;
}

static void scope_fini(struct scope *s)
{
    for (size_t i = 0; i < s->n_defaults; i++)
        onnx__attribute_proto__free_unpacked(s->defaults[i], NULL);
    free(s->defaults);
    names_fini(&s->names);
}

int reader_deeper(struct reader *r, struct scope *s, const char *label)
{
    s->depth = r->scope->depth + 1;
    graph__clean(label, s->label, sizeof(s->label));
    if (s->depth > MAX_DEPTH)
        return SH_FAIL(
            r->err, SH_E_INVALID,
            "%s: functions, branches and loops are more than %d levels deep, or functions call "
            "themselves",
            s->label, MAX_DEPTH);
    if (++r->n_calls > GRAPH_MAX_NODES)
        return SH_FAIL(r->err, SH_E_TOOBIG,
                       "the model has more than %u calls of functions, branches and loops",
                       GRAPH_MAX_NODES);
    return SH_OK;
}

int reader_call(struct reader *r, const Onnx__FunctionProto *f, const Onnx__NodeProto *call)
{
    struct scope s = {.up = r->scope, .func = f, .call = call, .loop = r->scope->loop};
    const char *name = call->name && call->name[0] ? call->name : reader_text(f->name);
    int rc = reader_deeper(r, &s, name);

    if (rc)
        return rc;
    rc = names_init(&s.names, r->err);
    if (!rc)
        rc = onnx_file_opset(f->opset_import, f->n_opset_import, &s.opset, r->err);
    if (!rc && s.opset == 0)
        s.opset = r->scope->opset;
    if (!rc)
        rc = read_defaults(r, &s);
    if (!rc)
        rc = bind_call(r, &s);
    if (!rc)
        rc = bind_call_outputs(r, &s);
    r->scope = &s;
    for (size_t i = 0; i < f->n_node && rc == SH_OK; i++)
        rc = reader_node(r, f->node[i]);
    r->scope = s.up;
    scope_fini(&s);
    return rc;
}
