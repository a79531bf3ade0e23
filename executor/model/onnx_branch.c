/* onnx_branch.c - If: both branches are read in its place, and If takes the results of one.
 *
 * A branch sees the names around it and has its own besides. Its nodes are marked: one that cannot
 * be computed (GRAPH_BRANCH) is wrong only where its result is taken, since which branch is may
 * follow from shapes. If gets the condition, the results of then_branch, and those of else_branch.
 */
#include "common/mem.h"
#include "executor/model/onnx_reader.h"

#include <stdio.h>
#include <stdlib.h>

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

static int read_branch(struct reader *r, const Onnx__GraphProto *g, const char *label,
                       uint32_t *out)
{
    struct scope s = {.up = r->scope,
                      .func = r->scope->func,
                      .call = r->scope->call,
                      .is_branch = true,
                      .opset = r->scope->opset};
    int rc = reader_deeper(r, &s, label);

    if (!rc && (g->n_input > 0 || g->n_sparse_initializer > 0))
        rc = SH_FAIL(r->err, SH_E_INVALID, "%s: a branch with inputs or sparse initializers",
                     s.label);
    if (!rc)
        rc = names_init(&s.names, r->err);
    if (rc)
        return rc;
    r->scope = &s;
    for (size_t i = 0; i < g->n_initializer && rc == SH_OK; i++)
        rc = read_weight(r, g->initializer[i]);
    for (size_t i = 0; i < g->n_node && rc == SH_OK; i++)
        rc = reader_node(r, g->node[i]);
    if (!rc)
        rc = read_results(r, g, out);
    r->scope = s.up;
    names_fini(&s.names);
    return rc;
}

static const Onnx__GraphProto *branch_of(const Onnx__NodeProto *p, const char *name)
{
    for (size_t i = 0; i < p->n_attribute; i++)
        if (strcmp(reader_text(p->attribute[i]->name), name) == 0)
            return p->attribute[i]->g;
    return NULL;
}

/* The names of the results, which a function or a branch may have as its own. */
static int emit(struct reader *r, const Onnx__NodeProto *p, const char *label, const uint32_t *in,
                uint32_t n_in)
{
    uint32_t *out = calloc(p->n_output + 1, sizeof(*out)), node = 0;
    int rc = out ? SH_OK : SH_FAIL(r->err, SH_E_NOMEM, "could not allocate a node");

    for (size_t i = 0; i < p->n_output && rc == SH_OK; i++)
        rc = reader_mention(r, p->output[i], &out[i]);
    if (!rc)
        rc = graph_add_node(r->g, label, "If", in, n_in, out, (uint32_t)p->n_output, &node, r->err);
    if (!rc && reader_in_branch(r))
        rc = graph_set_int(&r->g->nodes[node], GRAPH_BRANCH, 1, r->err);
    free(out);
    return rc;
}

int reader_if(struct reader *r, const Onnx__NodeProto *p)
{
    const Onnx__GraphProto *yes = branch_of(p, "then_branch"), *no = branch_of(p, "else_branch");
    const size_t n = p->n_output;
    char label[96];
    uint32_t *in;
    int rc = SH_OK;

    graph__clean(p->name && p->name[0] ? p->name : "If", label, sizeof(label));
    if (!yes || !no || p->n_input != 1 || yes->n_output != n || no->n_output != n)
        return SH_FAIL(r->err, SH_E_INVALID,
                       "If node %s needs a condition and two branches with its outputs", label);
    in = calloc(2 * n + 1, sizeof(*in));
    if (!in)
        return SH_FAIL(r->err, SH_E_NOMEM, "could not allocate a node");
    rc = reader_mention(r, p->input[0], &in[0]);
    if (!rc && in[0] == GRAPH_NONE)
        rc = SH_FAIL(r->err, SH_E_INVALID, "If node %s has no condition", label);
    if (!rc)
        rc = read_branch(r, yes, label, in + 1);
    if (!rc)
        rc = read_branch(r, no, label, in + 1 + n);
    if (!rc)
        rc = emit(r, p, label, in, (uint32_t)(2 * n + 1));
    free(in);
    return rc;
}
