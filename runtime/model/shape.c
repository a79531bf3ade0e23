/* shape.c - graph_at: rebuilds a graph node by node with fixed shapes.
 *
 * The new graph is built beside the old one; map[] gives the new value for an old one, so omitting
 * a node (Identity, Dropout at inference) is one entry of the map.
 */
#include "common/mem.h"
#include "runtime/model/counted.h"
#include "runtime/model/shape_run.h"

#include <math.h>
#include <stdlib.h>

#define MAX_BATCH 65536
#define MAX_DECIDING 64 /* numbers of an input that decides shapes */
#define MIN_OUTV 3      /* BatchNormalization in training form has outputs that the file may lack */

/* Before the node is open. */
int run__fail(struct run *r, const struct graph_node *n, int rc, const char *why)
{
    char node[96], op[48];

    return SH_FAIL(&r->err, rc, "%s node %s: %s", graph__clean(n->op, op, sizeof(op)),
                   graph__clean(n->name, node, sizeof(node)), why);
}

/* ---------------------------------------------------------------- inputs and constants */

static int check_batch_size(const struct graph *g, int64_t batch, struct sh_err *err)
{
    int64_t fixed = graph_fixed_batch(g);

    if (batch < 1 || batch > MAX_BATCH)
        return SH_FAIL(err, SH_E_INVALID, "a batch of %lld is outside 1..%d", (long long)batch,
                       MAX_BATCH);
    if (fixed != 0 && fixed != batch)
        return SH_FAIL(err, SH_E_INVALID,
                       "the model has a fixed batch of %lld and cannot run with %lld; export it "
                       "with a dynamic first axis",
                       (long long)fixed, (long long)batch);
    return SH_OK;
}

static int64_t size_at(const struct graph *g, const struct graph_sizes *at, int64_t dim)
{
    uint32_t k;

    if (dim >= 0 || dim == GRAPH_BATCH)
        return dim >= 0 ? dim : at->batch;
    k = (uint32_t)GRAPH_SYMBOL(dim);
    return at->of.v[k] ? at->of.v[k] : g->own.v[k];
}

static int add_graph_input(struct run *r, uint32_t from, const struct graph_sizes *at,
                           struct sh_err *err)
{
    struct graph_value v = r->from->values[from];
    size_t bytes;
    int rc;

    if (v.rank < 0)
        return SH_FAIL(err, SH_E_INVALID, WHY_INPUT_SHAPE, v.name);
    for (int i = 0; i < v.rank; i++) {
        v.by_size |= v.dims[i] < 0 && v.dims[i] != GRAPH_BATCH;
        v.dims[i] = size_at(r->from, at, v.dims[i]);
        if (v.dims[i] < 1)
            return SH_FAIL(err, SH_E_INVALID, "axis %d of input %s has no size", i, v.name);
    }
    rc = graph__bytes(v.dtype, v.rank, v.dims, &bytes, err);
    if (!rc)
        rc = graph_add_value(r->c.g, v.name, v.dtype, v.rank, v.dims, &r->map[from], err);
    if (rc)
        return rc;
    r->c.g->values[r->map[from]].by_size = v.by_size;
    return graph_add_input(r->c.g, r->map[from], err);
}

static int add_run_const(struct run *r, uint32_t from, struct sh_err *err)
{
    const struct graph_value *v = &r->from->values[from];
    struct graph_value *w;
    int rc = graph_add_value(r->c.g, v->name, v->dtype, v->rank, v->dims, &r->map[from], err);

    if (rc)
        return rc;
    w = &r->c.g->values[r->map[from]];
    w->data = v->data;
    w->bytes = v->bytes;
    w->data_borrowed = true;
    w->is_param = v->is_param;
    w->is_assumed = v->is_assumed;
    return v->of ? sh_strdup(v->of, &w->of, err) : SH_OK;
}

static int start_at_sizes(struct run *r, const struct graph_sizes *at, struct sh_err *err)
{
    const struct graph *g = r->from;
    int rc = check_batch_size(g, at->batch, err);

    if (!rc)
        rc = graph_new(&r->c.g, err);
    if (rc)
        return rc;
    r->map = malloc(((size_t)g->n_values + 1) * sizeof(*r->map));
    if (!r->map)
        return SH_FAIL(err, SH_E_NOMEM, "could not allocate a graph");
    for (uint32_t i = 0; i < g->n_values; i++)
        r->map[i] = GRAPH_NONE;
    for (uint32_t i = 0; i < g->n_inputs && rc == SH_OK; i++)
        rc = add_graph_input(r, g->inputs[i], at, err);
    for (uint32_t i = 0; i < g->n_values && rc == SH_OK; i++)
        if (g->values[i].data)
            rc = add_run_const(r, i, err);
    return rc ? rc : run__find_bodies(r, err);
}

static void finish_run(struct run *r)
{
    graph_free(r->c.g);
    free(r->map);
    run__sequences_fini(r);
    free(r->body_first);
    free(r->body_next);
}

/* ---------------------------------------------------------------- one node */

/* Numbers of the model, as weights are, with something that follows from the batch size or the
 * sizes of symbols: the result would be weights of these sizes alone. But a table that follows from
 * the batch size, as rows that are looked up for each sample, would itself be one: then the result
 * is, which may repeat and then shrinks. */
static bool is_sized_weight(const struct shape_ctx *c, const struct shape_op *op, bool is_sized)
{
    bool any = false, is_table = false;

    for (uint32_t i = 0; i < c->n.n_in; i++) {
        const struct graph_value *v = c->n.in[i] == GRAPH_NONE ? NULL : shape__in(c, i);

        any |= v && v->data && !v->by_size && !shape__is_int(v->dtype) && graph_elements(v) > 1;
        is_table |= v && v->data && !v->by_size && v->by_batch && v->rank > 1;
    }
    return any && is_sized && !is_table && !c->training && (op->flags & SHAPE_RUNS);
}

static bool foldable(const struct shape_ctx *c, const struct shape_op *op, bool is_sized)
{
    size_t bytes = 0;

    if (!op->eval || c->keep_node || is_sized_weight(c, op, is_sized))
        return false;
    for (uint32_t i = 0; i < c->n.n_in && !(op->flags & SHAPE_ALWAYS); i++) {
        if (c->n.in[i] == GRAPH_NONE)
            continue;
        if (!shape__in(c, i)->data || (c->training && shape__in(c, i)->is_param))
            return false;
    }
    for (uint32_t k = 0; k < c->n.n_out; k++) {
        const struct graph_value *v = &c->g->values[c->outv[k]];

        bytes += (size_t)graph_elements(v) * sh_dtype_bytes(v->dtype);
        if (bytes > SHAPE_FOLD_MAX_BYTES)
            return false;
    }
    return true;
}

/* Outputs that infer did not make (a mask, more than the operator has) do not exist from here on;
 * a node that uses one is refused when its turn comes. */
static int trim_outputs(struct shape_ctx *c)
{
    while (c->n.n_out > 0 && c->outv[c->n.n_out - 1] == GRAPH_NONE)
        c->n.n_out--;
    for (uint32_t k = 0; k < c->n.n_out; k++)
        if (c->outv[k] == GRAPH_NONE)
            return shape__fail(c, SH_E_BUG, "an output has no shape");
    return c->n.n_out > 0 ? SH_OK : shape__fail(c, SH_E_BUG, "no output has a shape");
}

/* What has no elements is a constant: nothing has to compute it. */
static bool fold_empty(struct shape_ctx *c)
{
    for (uint32_t k = 0; k < c->n.n_out; k++)
        if (graph_elements(shape__outv(c, k)) != 0)
            return false;
    for (uint32_t k = 0; k < c->n.n_out; k++)
        shape__alloc(c, k);
    return true;
}

/* No node computes this at run time, and it was not folded. */
static int refuse_unfolded(struct shape_ctx *c)
{
    for (uint32_t i = 0; i < c->n.n_in; i++)
        if (c->n.in[i] != GRAPH_NONE && !shape__in(c, i)->data)
            return shape__fail(c, SH_E_UNSUPPORTED, WHY_CONSTANTS);
    return shape__fail(c, SH_E_TOOBIG, WHY_FOLDS, SHAPE_FOLD_MAX_BYTES >> 20);
}

static int finish_node(struct shape_ctx *c, const struct shape_op *op, bool is_sized)
{
    if (trim_outputs(c) || fold_empty(c))
        return c->err->rc;
    if (foldable(c, op, is_sized) && (op->eval(c) || c->g->values[c->outv[0]].data))
        return c->err->rc;
    if (!(op->flags & SHAPE_RUNS))
        return refuse_unfolded(c);
    return op->finish ? op->finish(c) : shape__emit_self(c);
}

static bool is_by_size(const struct shape_ctx *c)
{
    for (uint32_t i = 0; i < c->n.n_in; i++)
        if (c->n.in[i] != GRAPH_NONE && shape__in(c, i)->by_size)
            return true;
    return false;
}

/* Of what the open node gives: where it only takes and puts together sizes of axes, which of them.
 * That a class token is repeated for each sample has to be known; that a table of positions is cut
 * to a length that is fixed, too. */
static uint64_t by_batch(const struct shape_ctx *c)
{
    const struct graph_value *x = shape__has(c, 0) ? shape__in(c, 0) : NULL;
    const struct graph_value *at = shape__has(c, 1) ? shape__in(c, 1) : NULL;
    const char *op = c->n.op;
    uint64_t out = 0, any = 0;
    int64_t start = 0, n = 0;

    if (strcmp(op, "Size") == 0 || (strcmp(op, "Shape") == 0 && x && !x->data)) {
        graph_int(&c->n, "start", 0, &start, NULL);
        return x && !x->data && (start == 0 || start <= -x->rank);
    }
    for (uint32_t i = 0; i < c->n.n_in; i++)
        if (c->n.in[i] != GRAPH_NONE && shape__in(c, i)->data)
            any |= shape__in(c, i)->by_batch;
    if (!any || !x || x->rank > 1)
        return any ? UINT64_MAX : 0;
    if (strcmp(op, "Gather") == 0 && at && at->data && at->dtype == SH_I64 && !at->by_batch &&
        graph_elements(at) == 1 && x->rank == 1) {
        n = *(const int64_t *)at->data;
        n += n < 0 ? x->dims[0] : 0;
        return n >= 0 && n < 64 ? x->by_batch >> n & 1 : UINT64_MAX;
    }
    if (strcmp(op, "Cast") == 0 || strcmp(op, "Unsqueeze") == 0 || strcmp(op, "Squeeze") == 0)
        return x->by_batch;
    if (strcmp(op, "Concat") != 0)
        return UINT64_MAX;
    for (uint32_t i = 0; i < c->n.n_in; i++) {
        const struct graph_value *v = shape__in(c, i);
        const int64_t more = graph_elements(v);

        if (n + more > 63)
            return UINT64_MAX;
        out |= (v->by_batch & ((UINT64_C(1) << more) - 1)) << n;
        n += more;
    }
    return out;
}

int shape__steps(struct shape_ctx *c, const struct shape_op *op)
{
    const uint32_t before = c->g->n_values;
    const bool by_size = is_by_size(c);
    const uint64_t of_batch = by_batch(c);
    int rc;

    c->fresh = before;
    rc = op->infer(c);

    if (!rc && !c->aliased)
        rc = finish_node(c, op, by_size || of_batch);
    for (uint32_t v = before; v < c->g->n_values; v++) {
        c->g->values[v].by_size |= by_size;
        c->g->values[v].by_batch |= of_batch;
    }
    return rc;
}

static int run_op_steps(struct shape_ctx *c, const struct shape_op *op)
{
    return counted__concerns(c) ? counted__steps(c, op) : shape__steps(c, op);
}

/* Inputs of the node as values of the new graph. *skip: a producer was refused before. */
static int map_inputs(struct run *r, const struct graph_node *n, const struct shape_op *op,
                      bool *skip)
{
    const char *wrong = shape__wrong_links(op, n);
    struct shape_ctx *c = &r->c;

    *skip = false;
    if (wrong)
        return run__fail(r, n, SH_E_INVALID, wrong);
    for (uint32_t i = 0; i < n->n_in; i++) {
        if (n->in[i] == GRAPH_NONE)
            continue;
        c->n.in[i] = r->map[n->in[i]];
        if (run__is_sequence(c->n.in[i]))
            return run__fail(r, n, SH_E_INVALID, "has a sequence where a tensor belongs");
        if (c->n.in[i] != GRAPH_NONE || (i > 0 && op->infer == shape__infer_if))
            continue;
        if (!r->list || graph__attr(n, GRAPH_BRANCH))
            return run__fail(r, n, SH_E_UNSUPPORTED, WHY_NO_RESULT);
        *skip = true;
    }
    return SH_OK;
}

/* A node without attributes; its outputs have no names yet. */
static int open_node(struct shape_ctx *c, const char *name, const char *op, uint32_t number,
                     const uint32_t *in, uint32_t n_in, uint32_t n_out)
{
    uint32_t room = SH_MAX(n_out, (uint32_t)MIN_OUTV);
    int rc = graph__node_init(&c->n, name, op, number, c->err);

    if (!rc)
        rc = graph__node_links(&c->n, in, n_in, NULL, 0, c->err);
    if (rc)
        return rc;
    c->n.n_out = n_out;
    c->aliased = c->keep_node = false;
    c->outv = malloc(room * sizeof(*c->outv));
    c->out_names = calloc(room, sizeof(*c->out_names));
    if (!c->outv || !c->out_names)
        return SH_FAIL(c->err, SH_E_NOMEM, "could not allocate a node");
    for (uint32_t k = 0; k < room; k++)
        c->outv[k] = GRAPH_NONE;
    return SH_OK;
}

static void close_node(struct shape_ctx *c)
{
    c->n.n_out = 0; /* outputs live in outv */
    graph__node_fini(&c->n);
    free(c->outv);
    free(c->out_names);
    c->outv = NULL;
    c->out_names = NULL;
}

int shape__call(struct shape_ctx *c, const struct graph_node *call, uint32_t *out)
{
    const struct shape_op *op = shape__op(call->op);
    struct shape_ctx sub = {
        .g = c->g, .training = c->training, .wanted = GRAPH_NONE, .plain = c->plain, .err = c->err};
    int rc;

    sub.in_branch = c->in_branch;
    if (c->err->rc)
        return c->err->rc;
    if (!op || call->n_in < op->min_in || call->n_in > op->max_in)
        return shape__fail(c, SH_E_BUG, "cannot be put together from %s", call->op);
    for (uint32_t i = 0; i < call->n_in; i++)
        if (call->in[i] != GRAPH_NONE && call->in[i] >= c->g->n_values)
            return shape__fail(c, SH_E_INVALID, "has a sequence where a tensor belongs");
    rc = open_node(&sub, c->n.name, call->op, c->g->n_nodes, call->in, call->n_in, call->n_out);
    if (!rc)
        rc = graph__copy_attrs(&sub.n, call, c->err);
    if (!rc)
        rc = run_op_steps(&sub, op);
    if (sub.wanted != GRAPH_NONE)
        c->wanted = sub.wanted;
    for (uint32_t k = 0; k < call->n_out && rc == SH_OK; k++)
        out[k] = sub.outv[k];
    close_node(&sub);
    return rc;
}

static int run_node(struct run *r, uint32_t number)
{
    const struct graph_node *n = &r->from->nodes[number];
    const struct shape_op *op = shape__op(n->op);
    struct shape_ctx *c = &r->c;
    bool skip;
    int rc;

    for (uint32_t k = 0; k < n->n_out; k++) /* of the last time, where a body is repeated */
        if (n->out[k] != GRAPH_NONE)
            r->map[n->out[k]] = GRAPH_NONE;
    if (!op)
        return run__fail(r, n, SH_E_UNSUPPORTED, WHY_OPERATOR);
    if (op->flags & SHAPE_CONTROL || run__has_sequence(r, n))
        return run__control(r, n);
    rc = open_node(c, n->name, n->op, number, n->in, n->n_in, n->n_out);
    if (!rc)
        rc = graph__copy_attrs(&c->n, n, c->err);
    c->in_branch = graph__attr(n, GRAPH_BRANCH) != NULL;
    graph__drop_attr(&c->n, GRAPH_BRANCH);
    graph__drop_attr(&c->n, GRAPH_LOOP);
    if (!rc)
        rc = map_inputs(r, n, op, &skip);
    if (rc || skip)
        goto out;
    for (uint32_t k = 0; k < n->n_out; k++) /* of a body that is repeated: none */
        c->out_names[k] = n->out[k] == GRAPH_NONE ? NULL
                          : r->depth              ? ""
                                                  : r->from->values[n->out[k]].name;
    rc = run_op_steps(c, op);
    for (uint32_t k = 0; k < n->n_out && rc == SH_OK; k++)
        if (n->out[k] != GRAPH_NONE)
            r->map[n->out[k]] = c->outv[k];
out:
    close_node(c);
    return rc;
}

/* Which branch is taken may follow from sizes, and the other one need not make sense with them. */
static bool may_be_lost(const struct graph_node *n, int rc)
{
    return (rc == SH_E_UNSUPPORTED || rc == SH_E_INVALID || rc == SH_E_TOOBIG) &&
           graph__attr(n, GRAPH_BRANCH);
}

int run__step(struct run *r, uint32_t number)
{
    const struct graph_node *n = &r->from->nodes[number];
    int rc;

    memset(&r->err, 0, sizeof(r->err));
    rc = run_node(r, number);
    if (may_be_lost(n, rc)) {
        r->lost = r->err;
        memset(&r->err, 0, sizeof(r->err));
        return SH_OK;
    }
    if (rc && !r->failed)
        r->failed = n;
    return rc;
}

static int run_nodes(struct run *r, uint32_t *n_done, struct sh_err *err)
{
    int rc = SH_OK;

    r->c.err = &r->err;
    r->c.lost = r->lost.msg;
    for (uint32_t i = 0; i < r->from->n_nodes && rc == SH_OK; i++) {
        if (graph__attr(&r->from->nodes[i], GRAPH_LOOP))
            continue; /* of a body: when its loop's turn comes */
        r->failed = NULL;
        rc = run__step(r, i);
        if (rc == SH_E_UNSUPPORTED && r->list)
            rc = graph__list_add(r->list, r->failed->op, r->failed->name, r->err.msg, err);
        else if (rc)
            sh_err_copy(err, &r->err);
        if (n_done && !rc)
            *n_done = i + 1;
    }
    return rc;
}

/* ---------------------------------------------------------------- outputs */

static bool is_value_taken(const struct graph *g, uint32_t v)
{
    if (g->values[v].data)
        return true;
    for (uint32_t i = 0; i < g->n_inputs; i++)
        if (g->inputs[i] == v)
            return true;
    for (uint32_t i = 0; i < g->n_outputs; i++)
        if (g->outputs[i] == v)
            return true;
    return false;
}

/* An output, or NaN where the file took something for granted that is not so. */
static uint32_t if_it_holds(struct shape_ctx *c, uint32_t v)
{
    const struct graph_value x = c->g->values[v];
    uint32_t none;

    if (!c->g->holds || !shape__is_float(x.dtype))
        return v;
    c->plain = true;
    none = rw_number(c, x.dtype, (double)NAN);
    none = rw3(c, "Where", c->g->holds - 1, v, none);
    c->plain = false;
    if (c->err->rc == SH_OK) {
        c->g->values[none].counted = x.counted;
        c->g->values[none].count = x.count;
    }
    return none;
}

/* Outputs keep the names of the file, whatever node was left out before them. */
static int add_graph_output(struct run *r, uint32_t from, struct sh_err *err)
{
    struct graph *g = r->c.g;
    const char *name = r->from->values[from].name;
    uint32_t v = r->map[from], copy;
    char *own;
    int rc;

    if (v == GRAPH_NONE && r->list)
        return SH_OK;
    if (v == GRAPH_NONE)
        return SH_FAIL(err, SH_E_UNSUPPORTED, WHY_NO_OUTPUT, name);
    if (run__is_sequence(v))
        return SH_FAIL(err, SH_E_UNSUPPORTED, WHY_OUTPUT_KIND, name);
    if (graph_elements(&g->values[v]) == 0)
        return SH_FAIL(err, SH_E_UNSUPPORTED, WHY_EMPTY_OUTPUT, name);
    v = if_it_holds(&r->c, v);
    if (r->err.rc) {
        sh_err_copy(err, &r->err);
        return err->rc;
    }
    if (is_value_taken(g, v)) {
        const struct graph_value *x = &g->values[v];

        const struct graph_value old = *x;

        rc = graph_add_value(g, name, x->dtype, x->rank, x->dims, &copy, err);
        if (!rc) {
            g->values[copy].by_size = old.by_size;
            g->values[copy].counted = old.counted;
            g->values[copy].count = old.count;
        }
        if (!rc)
            rc = graph_add_node(g, NULL, "Identity", &v, 1, &copy, 1, NULL, err);
        return rc ? rc : graph_add_output(g, copy, err);
    }
    rc = sh_strdup(name, &own, err);
    if (rc)
        return rc;
    free(g->values[v].name);
    g->values[v].name = own;
    return graph_add_output(g, v, err);
}

/* What the file took for granted (graph->holds) has to be seen where it is not so. */
static int check_holds(const struct graph *g, struct sh_err *err)
{
    bool seen = !g->holds;

    for (uint32_t i = 0; i < g->n_outputs && !seen; i++)
        seen = shape__is_float(g->values[g->outputs[i]].dtype);
    return seen ? SH_OK : SH_FAIL(err, SH_E_UNSUPPORTED, WHY_NO_FLOATS);
}

/* Parameters of which a file has only what was computed of them cannot be trained. */
static int check_lost(const struct graph *g, struct sh_err *err)
{
    const char *first = NULL;
    char name[96];
    uint32_t n = 0;

    for (uint32_t i = 0; i < g->n_values; i++) {
        if (!g->values[i].data || !g->values[i].is_computed)
            continue;
        first = first ? first : g->values[i].name;
        n++;
    }
    if (n == 0 && g->left_out[0])
        return SH_FAIL(err, SH_E_UNSUPPORTED, WHY_LEFT_OUT,
                       graph__clean(g->left_out, name, sizeof(name)));
    if (n == 0)
        return SH_OK;
    return SH_FAIL(err, SH_E_UNSUPPORTED, WHY_LOST, n, graph__clean(first, name, sizeof(name)),
                   n > 1 ? ", ..." : "");
}

int graph__at(const struct graph *g, const struct graph_sizes *at, bool training,
              struct sh_buf *list, uint32_t *n_done, struct graph **out, struct sh_err *err)
{
    struct run r = {.from = g, .c = {.training = training, .wanted = GRAPH_NONE}, .list = list};
    int rc;

    *out = NULL;
    if (n_done)
        *n_done = 0;
    rc = start_at_sizes(&r, at, err);
    if (!rc)
        rc = run_nodes(&r, n_done, err);
    for (uint32_t i = 0; i < g->n_outputs && rc == SH_OK; i++)
        rc = add_graph_output(&r, g->outputs[i], err);
    if (!rc)
        rc = check_holds(r.c.g, err);
    if (!rc)
        rc = graph__sweep(r.c.g, err);
    if (!rc)
        rc = graph__retype(r.c.g, err);
    if (!rc)
        rc = graph__shrink(r.c.g, err);
    if (!rc) {
        *out = r.c.g;
        r.c.g = NULL;
    }
    finish_run(&r);
    return rc;
}

int graph_at(const struct graph *g, const struct graph_sizes *at, bool training, struct graph **out,
             struct sh_err *err)
{
    const int rc = training ? check_lost(g, err) : SH_OK;

    *out = NULL;
    return rc ? rc : graph__at(g, at, training, NULL, NULL, out, err);
}

int graph_at_batch(const struct graph *g, int64_t batch, bool training, struct graph **out,
                   struct sh_err *err)
{
    return graph_at(g, &(struct graph_sizes){.batch = batch}, training, out, err);
}

/* ---------------------------------------------------------------- inputs that decide shapes */

/* Few numbers, in a list or alone: a shape, axes, bounds; not what a model computes with. */
static bool may_decide(const struct graph_value *v)
{
    return v->rank == 0 || (v->rank == 1 && v->dims[0] >= 0 && v->dims[0] <= MAX_DECIDING);
}

/* Marks what a value of the unfinished graph is computed from. */
static int trace(const struct graph *g, uint32_t value, bool *wanted, bool *any, struct sh_err *err)
{
    bool *from = calloc((size_t)g->n_values + 1, sizeof(*from)), ok = true;

    if (!from)
        return SH_FAIL(err, SH_E_NOMEM, "could not allocate %u marks", g->n_values);
    from[value] = true;
    for (uint32_t i = g->n_nodes; i-- > 0;) {
        const struct graph_node *n = &g->nodes[i];
        bool reached = false;

        for (uint32_t k = 0; k < n->n_out; k++)
            reached |= n->out[k] != GRAPH_NONE && from[n->out[k]];
        for (uint32_t k = 0; k < n->n_in && reached; k++)
            if (n->in[k] != GRAPH_NONE)
                from[n->in[k]] = true;
    }
    for (uint32_t i = 0; i < g->n_inputs; i++)
        ok &= !from[g->inputs[i]] || may_decide(&g->values[g->inputs[i]]);
    for (uint32_t i = 0; i < g->n_inputs && ok; i++)
        if (from[g->inputs[i]])
            wanted[i] = *any = true;
    free(from);
    return SH_OK;
}

int graph_deciding_inputs(const struct graph *g, bool *wanted, bool *any, struct sh_err *err)
{
    struct run r = {.from = g, .c = {.wanted = GRAPH_NONE}};
    struct sh_err why = {0};
    int rc = start_at_sizes(&r, &(struct graph_sizes){.batch = graph_some_batch(g)}, err);

    *any = false;
    if (!rc && run_nodes(&r, NULL, &why) != SH_OK && r.c.wanted != GRAPH_NONE)
        rc = trace(r.c.g, r.c.wanted, wanted, any, err);
    finish_run(&r);
    return rc;
}

int graph_bind_input(struct graph *g, uint32_t i, const void *data, size_t bytes,
                     struct sh_err *err)
{
    struct graph_value *v = &g->values[g->inputs[i]];
    size_t want = 0;
    int rc = graph__bytes(v->dtype, v->rank, v->dims, &want, err);

    if (!rc && want != bytes)
        rc = SH_FAIL(err, SH_E_INVALID, "input %s has %zu bytes, its shape needs %zu", v->name,
                     bytes, want);
    if (rc)
        return rc;
    v->data = malloc(bytes ? bytes : 1);
    if (!v->data)
        return SH_FAIL(err, SH_E_NOMEM, "could not allocate a constant of %zu bytes", bytes);
    if (bytes)
        memcpy(v->data, data, bytes);
    v->bytes = bytes;
    memmove(&g->inputs[i], &g->inputs[i + 1], (g->n_inputs - i - 1) * sizeof(*g->inputs));
    g->n_inputs--;
    return SH_OK;
}
