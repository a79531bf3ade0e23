/* onnx_held.c - see onnx_held.h. */
#include "runtime/model/onnx_held.h"

#include "common/mem.h"
#include "runtime/model/names.h"
#include "runtime/model/onnx_build.h"
#include "runtime/model/onnx_calls.h"
#include "runtime/model/onnx_reader.h"

#include <stdlib.h>

#define DETACH "detach"

struct held {
    Onnx__GraphProto *g;
    struct names names; /* of values */
    struct held_value {
        const Onnx__NodeProto *writer; /* NULL: an input or an initializer */
        const char *copy;              /* where it is held; NULL: nowhere yet. BORROWED */
    } * values;
    uint32_t n;
    struct onnx_build build;
    struct sh_err *err;
};

/* ---------------------------------------------------------------- which are held */

/* "detach", or "detach_12" */
static bool is_detached(const char *arg)
{
    const size_t n = strlen(DETACH);
    const char *end = arg + n;

    if (strncmp(arg, DETACH, n) != 0 || (*end && *end != '_'))
        return false;
    return !*end || (end[1] && end[1 + strspn(end + 1, "0123456789")] == '\0');
}

static bool is_call_name(const char *arg, const char *value)
{
    return strcmp(arg, value) == 0 || onnx_call_is_param(arg, value);
}

static bool is_input_of(const Onnx__NodeProto *n, const char *arg)
{
    bool is = false;

    for (size_t k = 0; k < n->n_input && !is; k++)
        is = is_call_name(arg, reader_text(n->input[k]));
    return is;
}

static bool is_call_argument(const char *call, const char *value)
{
    char name[ONNX_CALL_NAME];
    bool is = false;

    for (const char *p = onnx_call_args(call); p && !is && (p = onnx_call_next(p, name));)
        is = is_call_name(name, value);
    return is;
}

/* Parameters, buffers and constants of the module are called so in a call. */
static bool is_of_module(const char *arg)
{
    return arg[0] && strchr("pbc", arg[0]) && arg[1] == '_';
}

/* Has the call an argument without detach() that may be this input under another name? What nodes
 * write is nothing of the module. */
static bool lacks_others(const struct held *h, const Onnx__NodeProto *n, const char *call,
                         const struct held_value *v)
{
    char name[ONNX_CALL_NAME];
    bool lacks = false;

    for (const char *p = onnx_call_args(call); p && !lacks && (p = onnx_call_next(p, name));)
        lacks = !is_detached(name) && !is_input_of(n, name) &&
                (is_of_module(name) ? !v->writer : names_get(&h->names, name) == NAMES_NONE);
    return lacks;
}

/* Is it a value of another call? What is between the nodes of one call is none of its arguments,
 * and of what an optimizer made nothing is known. */
static bool is_of_another(const struct held_value *v, const char *call)
{
    char *other = v->writer ? onnx_call(v->writer) : NULL;
    const bool is = !v->writer || (other && strcmp(other, call) != 0);

    free(other);
    return is;
}

static bool is_held(const struct held *h, const Onnx__NodeProto *n, const char *call, size_t k)
{
    const char *value = reader_text(n->input[k]);
    const uint32_t v = names_get(&h->names, value);
    char name[ONNX_CALL_NAME];

    if (v == NAMES_NONE || is_call_argument(call, value) || !is_of_another(&h->values[v], call))
        return false;
    return !lacks_others(h, n, call, &h->values[v]) ||
           (onnx_called_with(n, call, k, name) && is_detached(name));
}

/* ---------------------------------------------------------------- nodes */

/* The input reads a copy, which all uses without a gradient share. */
static int hold_input(struct held *h, char **input)
{
    struct held_value *v = &h->values[names_get(&h->names, *input)];
    char *name = NULL;
    int rc = SH_OK;

    if (!v->copy) {
        rc = sh_asprintf(h->err, &name, "%s@held", *input);
        if (!rc)
            rc = onnx_build_node(&h->build, "Identity", *input, NULL, name, 0);
        free(name);
        if (!rc) {
            Onnx__NodeProto *made = h->build.nodes[h->build.n_nodes - 1];

            v->copy = made->output[0];
            rc = onnx_build_mark(made, GRAPH_HELD, h->err);
        }
    }
    if (!rc)
        rc = sh_strdup(v->copy, &name, h->err);
    if (rc)
        return rc;
    free(*input);
    *input = name;
    return SH_OK;
}

static int hold_node(struct held *h, Onnx__NodeProto *n)
{
    char *call = n->n_input <= ONNX_CALL_MOST ? onnx_call(n) : NULL;
    bool marks[ONNX_CALL_MOST] = {false};
    int rc = SH_OK;

    if (call && strstr(call, "aten.detach.") && strcmp(reader_text(n->op_type), "Identity") == 0) {
        rc = onnx_build_mark(n, GRAPH_HELD, h->err);
    } else if (call && strstr(call, "%" DETACH)) {
        for (size_t k = 0; k < n->n_input; k++)
            marks[k] = is_held(h, n, call, k);
        for (size_t k = 0; k < n->n_input && !rc; k++)
            rc = marks[k] ? hold_input(h, &n->input[k]) : SH_OK;
    }
    free(call);
    return rc;
}

static int add_held_value(struct held *h, const char *name, const Onnx__NodeProto *writer)
{
    h->values[h->n].writer = writer;
    return names_put_first(&h->names, name, h->n++, h->err);
}

static int find_values(struct held *h)
{
    const Onnx__GraphProto *g = h->g;
    size_t n = g->n_input + g->n_initializer;
    int rc = names_init(&h->names, h->err);

    for (size_t i = 0; i < g->n_node; i++)
        n += g->node[i]->n_output;
    h->values = calloc(n + 1, sizeof(*h->values));
    if (!rc && !h->values)
        rc = SH_FAIL(h->err, SH_E_NOMEM, "could not allocate a list of %zu values", n);
    for (size_t i = 0; i < g->n_input && !rc; i++)
        rc = add_held_value(h, g->input[i]->name, NULL);
    for (size_t i = 0; i < g->n_initializer && !rc; i++)
        rc = add_held_value(h, g->initializer[i]->name, NULL);
    for (size_t i = 0; i < g->n_node; i++)
        for (size_t k = 0; k < g->node[i]->n_output && !rc; k++)
            rc = add_held_value(h, g->node[i]->output[k], g->node[i]);
    return rc;
}

int onnx_held(Onnx__ModelProto *m, struct sh_err *err)
{
    struct held h = {.g = m->graph, .err = err};
    int rc = onnx_build_init(&h.build, h.g, err);

    if (!rc)
        rc = find_values(&h);
    for (size_t i = 0; i < h.g->n_node && !rc; i++)
        rc = hold_node(&h, h.g->node[i]);
    if (!rc)
        rc = onnx_build_finish(&h.build);
    onnx_build_fini(&h.build);
    names_fini(&h.names);
    free(h.values);
    return rc;
}
