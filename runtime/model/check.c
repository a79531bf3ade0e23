/* check.c - is a graph sound, and can we run it? */
#include "common/mem.h"
#include "runtime/model/graph_int.h"
#include "runtime/model/shape_int.h"

#include <stdlib.h>

bool graph__name_ok(const char *name)
{
    const unsigned char *p = (const unsigned char *)name;
    size_t n = strlen(name);

    if (n == 0 || n > GRAPH_MAX_NAME || strncmp(name, GRAPH_TEMP_PREFIX, 6) == 0)
        return false;
    while (*p) {
        int more = *p < 0x80                 ? 0
                   : *p >= 0xC2 && *p < 0xE0 ? 1
                   : *p >= 0xE0 && *p < 0xF0 ? 2
                   : *p >= 0xF0 && *p < 0xF5 ? 3
                                             : -1;
        unsigned char lead = *p++;

        if (more < 0 || lead < 0x20 || lead == 0x7F)
            return false;
        /* overlong forms, surrogates, beyond U+10FFFF */
        if ((lead == 0xE0 && *p < 0xA0) || (lead == 0xED && *p > 0x9F) ||
            (lead == 0xF0 && *p < 0x90) || (lead == 0xF4 && *p > 0x8F))
            return false;
        for (; more > 0; more--, p++)
            if ((*p & 0xC0) != 0x80)
                return false;
    }
    return true;
}

const char *graph__clean(const char *text, char *out, size_t size)
{
    size_t i = 0;

    for (; text && text[i] && i + 1 < size; i++)
        out[i] = text[i] >= 0x20 && text[i] < 0x7F ? text[i] : '?';
    out[i] = '\0';
    return out;
}

static void no_blanks(char *s)
{
    for (; *s; s++)
        if (*s == ' ')
            *s = '_';
}

int graph__list_add(struct sh_buf *list, const char *op, const char *node, const char *reason,
                    struct sh_err *err)
{
    char o[64], n[128], r[400];
    const char *colon =
        strstr(reason, ": "); /* "Op node name: why": the line says the first part */

    if (!colon)
        colon = reason;
    else
        colon += 2;
    graph__clean(op, o, sizeof(o));
    graph__clean(node, n, sizeof(n));
    no_blanks(o); /* so that a reader can take the line apart */
    no_blanks(n);
    return sh_buf_printf(list, err, "%s %s: %s\n", o, n, graph__clean(colon, r, sizeof(r)));
}

/* ---------------------------------------------------------------- soundness */

static int check_graph_value(const struct graph_value *v, struct sh_err *err)
{
    size_t bytes;
    char name[128];
    int rc;

    if (!v->name || !graph__name_ok(v->name) || strcmp(v->name, "__metadata__") == 0)
        return SH_FAIL(err, SH_E_INVALID, GRAPH_BAD_NAME, GRAPH_MAX_NAME,
                       graph__clean(v->name, name, sizeof(name)));
    if (!v->data)
        return SH_OK;
    if (v->rank < 0)
        return SH_FAIL(err, SH_E_INVALID, "constant %s has no shape", v->name);
    rc = graph__bytes(v->dtype, v->rank, v->dims, &bytes, err);
    if (!rc && bytes != v->bytes)
        rc = SH_FAIL(err, SH_E_INVALID, "constant %s has %zu bytes, its shape needs %zu", v->name,
                     v->bytes, bytes);
    return rc;
}

static bool dim_ok(const struct graph *g, int64_t dim, int axis)
{
    if (dim >= 1 || (dim == GRAPH_BATCH && axis == 0))
        return true;
    return dim < GRAPH_BATCH && GRAPH_SYMBOL(dim) < (int64_t)g->symbols.n;
}

static int check_io(const struct graph *g, bool *defined, struct sh_err *err)
{
    if (g->n_outputs == 0)
        return SH_FAIL(err, SH_E_INVALID, "the model has no outputs");
    if (g->n_inputs == 0)
        return SH_FAIL(err, SH_E_UNSUPPORTED, WHY_NO_INPUT);
    for (uint32_t i = 0; i < g->n_inputs; i++) {
        uint32_t v = g->inputs[i];

        if (v >= g->n_values || g->values[v].data || defined[v])
            return SH_FAIL(err, SH_E_INVALID, "input %u of the model is no free value", i);
        if (g->values[v].rank < 0)
            return SH_FAIL(err, SH_E_INVALID, "input %s has no shape", g->values[v].name);
        for (int j = 0; j < g->values[v].rank; j++)
            if (!dim_ok(g, g->values[v].dims[j], j))
                return SH_FAIL(err, SH_E_INVALID, "axis %d of input %s has size %lld", j,
                               g->values[v].name, (long long)g->values[v].dims[j]);
        defined[v] = true;
    }
    return SH_OK;
}

static int check_node(const struct graph *g, const struct graph_node *n, bool *defined,
                      struct sh_err *err)
{
    const struct shape_op *op;
    const char *wrong;
    char name[96];

    if (!n->op || !n->op[0] || !n->name || !n->name[0])
        return SH_FAIL(err, SH_E_INVALID, "a node has no operator or no name");
    graph__clean(n->name, name, sizeof(name));
    op = shape__op(n->op);
    wrong = op ? shape__wrong_links(op, n) : NULL; /* others are refused by name, all of them */
    if (wrong)
        return SH_FAIL(err, SH_E_INVALID, "%s node %s: %s", n->op, name, wrong);
    for (uint32_t j = 0; j < n->n_in; j++) {
        uint32_t v = n->in[j];

        if (v == GRAPH_NONE)
            continue;
        if (v >= g->n_values)
            return SH_FAIL(err, SH_E_INVALID, "node %s has an input that does not exist", name);
        if (!defined[v])
            return SH_FAIL(err, SH_E_INVALID, "node %s uses %s before anything defines it", name,
                           g->values[v].name);
    }
    for (uint32_t j = 0; j < n->n_out; j++) {
        uint32_t v = n->out[j];

        if (v == GRAPH_NONE)
            continue;
        if (v >= g->n_values)
            return SH_FAIL(err, SH_E_INVALID, "node %s has an output that does not exist", name);
        if (defined[v])
            return SH_FAIL(err, SH_E_INVALID, "node %s defines %s a second time", name,
                           g->values[v].name);
        defined[v] = true;
    }
    return SH_OK;
}

int graph__validate(const struct graph *g, struct sh_err *err)
{
    bool *defined = calloc((size_t)g->n_values + 1, sizeof(*defined));
    int rc = SH_OK;

    if (!defined)
        return SH_FAIL(err, SH_E_NOMEM, "could not allocate a graph");
    for (uint32_t i = 0; i < g->n_values && rc == SH_OK; i++)
        rc = check_graph_value(&g->values[i], err);
    if (!rc)
        rc = check_io(g, defined, err);
    for (uint32_t i = 0; i < g->n_values; i++)
        defined[i] |= g->values[i].data != NULL;
    for (uint32_t i = 0; i < g->n_nodes && rc == SH_OK; i++)
        rc = check_node(g, &g->nodes[i], defined, err);
    for (uint32_t i = 0; i < g->n_outputs && rc == SH_OK; i++)
        if (g->outputs[i] >= g->n_values || !defined[g->outputs[i]])
            rc = SH_FAIL(err, SH_E_INVALID, "no node computes output %u of the model", i);
    free(defined);
    return rc;
}

/* ---------------------------------------------------------------- order */

enum { WHITE, GREY, BLACK };

struct frame {
    uint32_t node, next; /* next input to look at */
};

struct sorter {
    const struct graph *g;
    uint32_t *producer; /* value -> node, GRAPH_NONE */
    uint8_t *colour;
    struct frame *stack;
    uint32_t *order;
    uint32_t n_order;
};

/* Depth first from one node: every producer comes out before its users. No recursion: a chain of
 * nodes in a hostile file is as long as the limit. */
static int visit_node(struct sorter *s, uint32_t root, struct sh_err *err)
{
    uint32_t depth = 0;

    s->stack[depth++] = (struct frame){root, 0};
    s->colour[root] = GREY;
    while (depth > 0) {
        struct frame *f = &s->stack[depth - 1];
        const struct graph_node *n = &s->g->nodes[f->node];
        uint32_t v, p;

        if (f->next == n->n_in) {
            s->colour[f->node] = BLACK;
            s->order[s->n_order++] = f->node;
            depth--;
            continue;
        }
        v = n->in[f->next++];
        p = v == GRAPH_NONE ? GRAPH_NONE : s->producer[v];
        if (p == GRAPH_NONE || s->colour[p] == BLACK)
            continue;
        if (s->colour[p] == GREY) {
            char name[96];

            return SH_FAIL(err, SH_E_INVALID, "node %s depends on its own result: a cycle",
                           graph__clean(s->g->nodes[p].name, name, sizeof(name)));
        }
        s->colour[p] = GREY;
        s->stack[depth++] = (struct frame){p, 0};
    }
    return SH_OK;
}

static void apply_order(struct graph *g, const uint32_t *order, struct graph_node *copy)
{
    memcpy(copy, g->nodes, g->n_nodes * sizeof(*copy));
    for (uint32_t i = 0; i < g->n_nodes; i++)
        g->nodes[i] = copy[order[i]];
}

int graph__sort(struct graph *g, struct sh_err *err)
{
    size_t n = (size_t)g->n_nodes + 1;
    struct sorter s = {.g = g};
    struct graph_node *copy = malloc(n * sizeof(*copy));
    int rc = SH_OK;

    s.producer = malloc(((size_t)g->n_values + 1) * sizeof(*s.producer));
    s.colour = calloc(n, sizeof(*s.colour));
    s.stack = malloc(n * sizeof(*s.stack));
    s.order = malloc(n * sizeof(*s.order));
    if (!copy || !s.producer || !s.colour || !s.stack || !s.order) {
        rc = SH_FAIL(err, SH_E_NOMEM, "could not allocate the order of a graph");
        goto out;
    }
    for (uint32_t i = 0; i < g->n_values; i++)
        s.producer[i] = GRAPH_NONE;
    for (uint32_t i = 0; i < g->n_nodes; i++)
        for (uint32_t k = 0; k < g->nodes[i].n_out; k++)
            if (g->nodes[i].out[k] != GRAPH_NONE)
                s.producer[g->nodes[i].out[k]] = i;
    for (uint32_t i = 0; i < g->n_nodes && rc == SH_OK; i++)
        if (s.colour[i] == WHITE)
            rc = visit_node(&s, i, err);
    if (!rc && g->n_nodes > 0)
        apply_order(g, s.order, copy);
out:
    free(copy);
    free(s.producer);
    free(s.colour);
    free(s.stack);
    free(s.order);
    return rc;
}

/* ---------------------------------------------------------------- can it run? */

static bool is_dynamic(const struct graph *g)
{
    for (uint32_t i = 0; i < g->n_inputs; i++)
        if (g->values[g->inputs[i]].rank > 0 && g->values[g->inputs[i]].dims[0] == GRAPH_BATCH)
            return true;
    return false;
}

int64_t graph_fixed_batch(const struct graph *g)
{
    if (is_dynamic(g))
        return 0;
    for (uint32_t i = 0; i < g->n_inputs; i++)
        if (g->values[g->inputs[i]].rank > 0)
            return SH_MAX(g->values[g->inputs[i]].dims[0], 1); /* 1: a symbol is no batch */
    return 1;
}

int64_t graph_some_batch(const struct graph *g)
{
    int64_t fixed = graph_fixed_batch(g);

    return fixed ? fixed : 2;
}

int graph_check(const struct graph *g, bool training, char **list, struct sh_err *err)
{
    struct graph *probe = NULL;
    struct sh_buf lines;
    int rc;

    *list = NULL;
    sh_buf_init(&lines, GRAPH_LIST_MAX);
    rc = graph__validate(g, err);
    if (!rc)
        rc = graph__at(g, &(struct graph_sizes){.batch = graph_some_batch(g)}, training, &lines,
                       NULL, &probe, err);
    if (!rc && lines.len > 0) {
        size_t n = 0;

        for (size_t i = 0; i < lines.len; i++)
            n += lines.data[i] == '\n';
        rc = SH_FAIL(err, SH_E_UNSUPPORTED, "%zu of %u nodes are not supported, the first is %.*s",
                     n, g->n_nodes, (int)strcspn(lines.data, "\n"), lines.data);
        *list = sh_buf_take(&lines);
    }
    graph_free(probe);
    sh_buf_fini(&lines);
    return rc;
}
