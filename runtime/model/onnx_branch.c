/* onnx_branch.c - operators with graphs as attributes, which are inlined.
 *
 * Such a graph sees the names around it and also has its own. Nodes of a branch are marked: one
 * that cannot be computed (GRAPH_BRANCH) is an error only if its result is used, since shapes may
 * decide the branch. If gets the condition, the results of then_branch, and those of else_branch.
 * Nodes in the body of a loop are marked with the number of the loop (graph.h).
 */
#include "common/mem.h"
#include "runtime/model/onnx_reader.h"

#include <stdio.h>
#include <stdlib.h>

#define FIRST_SCAN 9 /* the opset from which on a Scan has no axis of samples */

/* Of a node: values, and for a node with a body its number and how many inputs are its own. */
struct links {
    uint32_t *in, *out;
    uint32_t n_in, n_out, body, given;
};

/* Constants of a branch: training leaves them as they are. */
static int read_weight(struct reader *r, Onnx__TensorProto *t)
{
    struct onnx_array a = {0};
    const char *name = reader_text(t->name);
    char what[160], clean[128];
    uint32_t v;
    int rc;

    snprintf(what, sizeof(what), "initializer %s of a branch",
             graph__clean(name, clean, sizeof(clean)));
    rc = reader_take(r, t, what, &a);
    if (!rc && names_get(&r->scope->names, name) != NAMES_NONE)
        rc = SH_FAIL(r->err, SH_E_INVALID, "%s is defined twice", what);
    if (!rc)
        rc = reader_fresh(r, r->scope->label, '/', name, &a, &v);
    if (!rc)
        rc = names_put(&r->scope->names, name, v, r->err);
    onnx_array_fini(&a);
    return rc;
}

static int read_results(struct reader *r, const Onnx__GraphProto *g, uint32_t *out)
{
    char clean[128];

    for (size_t i = 0; i < g->n_output; i++) {
        const char *name = reader_text(g->output[i]->name);

        out[i] = reader_find(r, name);
        if (out[i] == GRAPH_NONE)
            return SH_FAIL(r->err, SH_E_INVALID, "%s: nothing computes output %s of a branch",
                           r->scope->label, graph__clean(name, clean, sizeof(clean)));
    }
    return SH_OK;
}

/* Inputs of a body get values of their own, which its first node gives. */
static int read_branch_inputs(struct reader *r, const Onnx__GraphProto *g, uint32_t *out)
{
    int rc = SH_OK;

    for (size_t i = 0; i < g->n_input && rc == SH_OK; i++) {
        const char *name = reader_text(g->input[i]->name);

        if (names_get(&r->scope->names, name) != NAMES_NONE)
            return SH_FAIL(r->err, SH_E_INVALID, "%s: two inputs of the body have one name",
                           r->scope->label);
        rc = reader_fresh(r, r->scope->label, '/', name, NULL, &out[i]);
        if (!rc)
            rc = names_put(&r->scope->names, name, out[i], r->err);
    }
    return rc;
}

static int add_branch_node(struct reader *r, const char *label, const char *op, struct links l,
                           const Onnx__NodeProto *attrs_of)
{
    struct graph_node n = {0};
    int rc = graph__node_init(&n, label, op, r->g->n_nodes, r->err);

    if (!rc)
        rc = graph__node_links(&n, l.in, l.n_in, l.out, l.n_out, r->err);
    if (!rc && attrs_of)
        rc = reader_attrs(r, attrs_of, &n);
    if (!rc && l.body)
        rc = graph_set_int(&n, GRAPH_BODY, l.body, r->err);
    if (!rc && l.body)
        rc = graph_set_int(&n, GRAPH_GIVEN, l.given, r->err);
    if (!rc && l.body && strcmp(op, "Scan") == 0 && r->scope->opset < FIRST_SCAN)
        rc = graph_set_int(&n, GRAPH_BY_SAMPLE, 1, r->err);
    if (!rc)
        rc = reader_mark(r, &n);
    if (!rc)
        rc = graph__push_node(r->g, &n, r->err);
    graph__node_fini(&n);
    return rc;
}

/* The nodes of g in a scope of its own. The first `given` values go to its inputs. */
static int read_branch_graph(struct reader *r, const Onnx__GraphProto *g, struct scope *s,
                             struct links *l)
{
    int rc = names_init(&s->names, r->err);

    if (rc)
        return rc;
    r->scope = s;
    if (s->is_body) {
        uint32_t *in = calloc(g->n_input + 1, sizeof(*in));

        rc = in ? read_branch_inputs(r, g, in)
                : SH_FAIL(r->err, SH_E_NOMEM, "could not allocate a body");
        if (!rc)
            rc = add_branch_node(r, s->label, "Body",
                                 (struct links){l->in, in, l->given, (uint32_t)g->n_input, 0, 0},
                                 NULL);
        free(in);
    }
    for (size_t i = 0; i < g->n_initializer && rc == SH_OK; i++)
        rc = read_weight(r, g->initializer[i]);
    for (size_t i = 0; i < g->n_node && rc == SH_OK; i++)
        rc = reader_node(r, g->node[i]);
    if (!rc)
        rc = read_results(r, g, l->in + l->n_in);
    l->n_in += (uint32_t)g->n_output;
    r->scope = s->up;
    names_fini(&s->names);
    return rc;
}

/* Behind the inputs that l has, room for the results. */
static int read_attribute(struct reader *r, const Onnx__GraphProto *g, const char *label,
                          struct links *l)
{
    struct scope s = {.up = r->scope,
                      .func = r->scope->func,
                      .call = r->scope->call,
                      .is_branch = l->body == 0,
                      .is_body = l->body != 0,
                      .loop = l->body ? l->body : r->scope->loop,
                      .opset = r->scope->opset};
    int rc = reader_deeper(r, &s, label);

    if (!rc && ((g->n_input > 0 && !s.is_body) || g->n_sparse_initializer > 0))
        rc = SH_FAIL(r->err, SH_E_INVALID, "%s: a branch with inputs or sparse initializers",
                     s.label);
    return rc ? rc : read_branch_graph(r, g, &s, l);
}

static const Onnx__GraphProto *graph_of(const Onnx__NodeProto *p, const char *name)
{
    for (size_t i = 0; i < p->n_attribute; i++)
        if (strcmp(reader_text(p->attribute[i]->name), name) == 0)
            return p->attribute[i]->g;
    return NULL;
}

/* The names of inputs and results, which a function or a branch may have as its own. */
static int mention_all(struct reader *r, char **names, size_t n, uint32_t *out)
{
    int rc = SH_OK;

    for (size_t i = 0; i < n && rc == SH_OK; i++)
        rc = reader_mention(r, names[i], &out[i]);
    return rc;
}

int reader_if(struct reader *r, const Onnx__NodeProto *p)
{
    const Onnx__GraphProto *yes = graph_of(p, "then_branch"), *no = graph_of(p, "else_branch");
    const size_t n = p->n_output;
    char label[96];
    struct links l = {.n_in = 1, .n_out = (uint32_t)n};
    int rc = SH_OK;

    graph__clean(p->name && p->name[0] ? p->name : "If", label, sizeof(label));
    if (!yes || !no || p->n_input != 1 || yes->n_output != n || no->n_output != n)
        return SH_FAIL(r->err, SH_E_INVALID,
                       "If node %s needs a condition and two branches with its outputs", label);
    l.in = calloc(2 * n + 1, sizeof(*l.in));
    l.out = calloc(n + 1, sizeof(*l.out));
    if (!l.in || !l.out)
        rc = SH_FAIL(r->err, SH_E_NOMEM, "could not allocate a node");
    if (!rc)
        rc = mention_all(r, p->input, 1, l.in);
    if (!rc && l.in[0] == GRAPH_NONE)
        rc = SH_FAIL(r->err, SH_E_INVALID, "If node %s has no condition", label);
    if (!rc)
        rc = read_attribute(r, yes, label, &l);
    if (!rc)
        rc = read_attribute(r, no, label, &l);
    if (!rc)
        rc = mention_all(r, p->output, n, l.out);
    if (!rc)
        rc = add_branch_node(r, label, "If", l, NULL);
    free(l.in);
    free(l.out);
    return rc;
}

bool reader_has_body(const char *op)
{
    return strcmp(op, "Loop") == 0 || strcmp(op, "Scan") == 0 || strcmp(op, "SequenceMap") == 0;
}

int reader_loop(struct reader *r, const Onnx__NodeProto *p)
{
    const Onnx__GraphProto *body = graph_of(p, "body");
    const char *op = reader_text(p->op_type);
    /* The trip count and the condition of a Loop may be left out. */
    const size_t given = strcmp(op, "Loop") == 0 ? SH_MAX(p->n_input, (size_t)2) : p->n_input;
    struct links l = {.n_out = (uint32_t)p->n_output, .n_in = (uint32_t)given};
    char label[96];
    int rc = SH_OK;

    graph__clean(p->name && p->name[0] ? p->name : op, label, sizeof(label));
    if (!body || given > GRAPH_MAX_IO || body->n_output > GRAPH_MAX_IO)
        return SH_FAIL(r->err, SH_E_INVALID, "%s node %s needs a body, and at most %u inputs", op,
                       label, GRAPH_MAX_IO);
    l.given = (uint32_t)given;
    l.body = ++r->n_loops;
    l.in = malloc((given + body->n_output + 1) * sizeof(*l.in));
    l.out = calloc(p->n_output + 1, sizeof(*l.out));
    if (!l.in || !l.out)
        rc = SH_FAIL(r->err, SH_E_NOMEM, "could not allocate a node");
    for (size_t i = 0; i < given && !rc; i++)
        l.in[i] = GRAPH_NONE;
    if (!rc)
        rc = mention_all(r, p->input, p->n_input, l.in);
    if (!rc)
        rc = read_attribute(r, body, label, &l);
    if (!rc)
        rc = mention_all(r, p->output, p->n_output, l.out);
    if (!rc)
        rc = add_branch_node(r, label, op, l, p);
    free(l.in);
    free(l.out);
    return rc;
}
