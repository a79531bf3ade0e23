/* onnx_state.c - what the order of initializers says of them.
 *
 * PyTorch's older exporter names no kinds, but writes what it kept of a module's state dictionary
 * in its order: one module after the other, of each the parameters first, then the buffers. So what
 * comes behind a buffer (integers, or by its name, or with numbers that somebody wrote) is one too,
 * unless a weight or a bias comes behind it as well: then it is a parameter without a gradient
 * ("grid"). If a module is met again after another, something has changed the order, and it says
 * nothing.
 *
 * The last of a module may still be either. What PyTorch's own modules call their parameters is
 * one, and so is what comes before such a name. All others are assumed to be what their use is
 * (is_assumed), and whoever trains the model is told.
 */
#include "common/mem.h"
#include "runtime/model/onnx_meta.h"
#include "runtime/model/onnx_reader.h"
#include "runtime/model/param_rules.h"
#include "runtime/model/param_written.h"

#include <stdlib.h>

#define MAX_SCOPE ((size_t)4000) /* nobody writes a longer one */

/* Initializers [from, to) may be of the module whose name has `len` bytes, with the dot. */
struct module {
    const char *name;
    size_t from, to, len;
};

static size_t module_length(const char *name)
{
    const char *dot = strrchr(name, '.');

    return dot ? (size_t)(dot - name) + 1 : 0;
}

/* NULL: an exporter, or what restored parameters here, has made it. */
static const char *initializer_name(const struct reader *r, size_t i)
{
    const char *name = reader_text(r->model->graph->initializer[i]->name);

    return name[0] && !strchr(name, '@') && !param_is_made_up(name) ? name : NULL;
}

static struct module module_at(const struct reader *r, size_t from)
{
    struct module m = {.name = initializer_name(r, from), .from = from, .to = from + 1};

    m.len = m.name ? module_length(m.name) : 0;
    for (size_t i = m.to; m.name && i < r->model->graph->n_initializer; i++) {
        const char *name = initializer_name(r, i);

        if (name && (module_length(name) != m.len || strncmp(name, m.name, m.len) != 0))
            break;
        if (name)
            m.to = i + 1;
    }
    return m;
}

static bool is_of_integers(const struct graph_value *v)
{
    return v->dtype == SH_I64 || v->dtype == SH_I32 || v->dtype == SH_BOOL || v->dtype == SH_U8;
}

static bool is_first_buffer(const struct graph_value *v)
{
    return is_of_integers(v) || param_is_buffer(v->name) ||
           (v->is_assumed && v->dtype == SH_F32 && v->rank > 0 &&
            (param_is_written(v->data, v->rank, v->dims) ||
             (v->rank == 1 && param_is_line(v->data, v->dims[0]))));
}

/* NULL: it is not of the module, or not a constant of the graph. */
static struct graph_value *initializer_value(struct reader *r, size_t i)
{
    const char *name = initializer_name(r, i);
    const uint32_t v = name ? names_get(&r->names, name) : NAMES_NONE;

    return v != NAMES_NONE && r->g->values[v].data ? &r->g->values[v] : NULL;
}

static void tell_module(struct reader *r, const struct module *m)
{
    size_t buffers = m->to, sure = m->from; /* parameters come before `sure` */
    bool certain = false;                   /* what comes behind integers is a buffer for sure */

    for (size_t i = m->from; i < m->to; i++) {
        const struct graph_value *v = initializer_value(r, i);

        if (v && param_is_of_torch(v->name))
            sure = i + 1;
        if (v && (strcmp(v->name + m->len, "weight") == 0 || strcmp(v->name + m->len, "bias") == 0))
            buffers = m->to;
        else if (v && buffers == m->to && is_first_buffer(v)) {
            buffers = i;
            certain = is_of_integers(v);
        }
    }
    for (size_t i = m->from; i < m->to; i++) {
        struct graph_value *v = initializer_value(r, i);

        if (v && i >= buffers) {
            v->said = GRAPH_SAID_BUFFER;
            v->is_assumed &= !certain;
        } else if (v && i < sure) {
            v->is_assumed = false;
        }
    }
}

/* Every module once? `seen` has the names that end with a dot; OWNED, in `copies`. */
static int see_state_modules(struct reader *r, struct names *seen, char **copies, bool *once)
{
    const size_t n = r->model->graph->n_initializer;
    int rc = SH_OK;

    for (size_t i = 0; i < n && rc == SH_OK && *once; i++) {
        const struct module m = module_at(r, i);

        if (!m.name)
            continue;
        rc = sh_asprintf(r->err, &copies[i], "%.*s", (int)m.len, m.name);
        if (!rc && names_get(seen, copies[i]) != NAMES_NONE)
            *once = false;
        else if (!rc)
            rc = names_put(seen, copies[i], (uint32_t)i, r->err);
        i = m.to - 1;
    }
    return rc;
}

/* "layers.0/fc" of "/layers.0/fc/MatMul"; 0: the node is of the outermost module. */
static size_t scope_length(const char *node)
{
    const char *slash = strrchr(node, '/');

    return slash ? (size_t)(slash - node) : 0;
}

/* Is node i all that its module does, but for adding a bias? Then the module is a layer of PyTorch.
 * Nodes of a module, and of those in it, are neighbours. */
static bool is_layer(const Onnx__GraphProto *g, size_t i)
{
    const char *name = reader_text(g->node[i]->name);
    const size_t n = scope_length(name), from = i < 2 ? 0 : i - 2;

    for (size_t k = from; k < g->n_node && k <= i + 2 && n > 0; k++) {
        const char *other = reader_text(g->node[k]->name), *op = reader_text(g->node[k]->op_type);

        if (k != i && strncmp(name, other, n) == 0 && other[n] == '/' &&
            (strcmp(op, "Add") != 0 || scope_length(other) != n))
            return false;
    }
    return n > 0;
}

/* "net.0" of "/net/net.0/MatMul", with what the layer calls its weight. A part of a list has the
 * list's name before its own. */
static int layer_weight_name(const char *node, const char *weight, char **out, struct sh_err *err)
{
    struct sh_buf text;
    const char *end = node + scope_length(node), *last = "";
    size_t last_n = 0;
    int rc = SH_OK;

    sh_buf_init(&text, MAX_SCOPE + 64);
    for (const char *p = node; p < end && !rc; p += strcspn(p, "/")) {
        const size_t n = strcspn(++p, "/");

        if (last_n && n > last_n && strncmp(p, last, last_n) == 0 && p[last_n] == '.')
            text.len -= last_n;
        else if (last_n)
            rc = sh_buf_printf(&text, err, ".");
        if (!rc)
            rc = sh_buf_printf(&text, err, "%.*s", (int)n, p);
        last = p;
        last_n = n;
    }
    if (!rc)
        rc = sh_buf_printf(&text, err, ".%s", weight);
    if (!rc)
        rc = sh_strdup(text.data, out, err);
    sh_buf_fini(&text);
    return rc;
}

static int name_layer_weight(struct reader *r, size_t i, size_t k)
{
    static const char *const OF_CELL[] = {"", "weight_ih_l0", "weight_hh_l0", "bias_l0"};
    const Onnx__NodeProto *n = r->model->graph->node[i];
    const uint32_t v = names_get(&r->names, reader_text(n->input[k]));
    const bool cell = strcmp(n->op_type, "GRU") == 0 || strcmp(n->op_type, "LSTM") == 0 ||
                      strcmp(n->op_type, "RNN") == 0;
    const char *weight = cell && k < SH_ARRAY_LEN(OF_CELL) ? OF_CELL[k]
                         : k == 1                          ? "weight"
                         : k == 2                          ? "bias"
                                                           : "";

    if (!weight[0] || !r->g->values[v].data || r->g->values[v].of ||
        scope_length(reader_text(n->name)) == 0 || scope_length(n->name) > MAX_SCOPE)
        return SH_OK;
    return layer_weight_name(reader_text(n->name), weight, &r->g->values[v].of, r->err);
}

/* What was transposed has lost its name, but layers of PyTorch can be told by their nodes. */
static int see_layers(struct reader *r)
{
    static const char *const OPS[] = {"Conv", "ConvTranspose", "GRU", "LSTM", "RNN"};
    const Onnx__GraphProto *g = r->model->graph;
    int rc = SH_OK;

    for (size_t i = 0; i < g->n_node && !rc; i++) {
        bool is = strcmp(reader_text(g->node[i]->op_type), "MatMul") == 0 && is_layer(g, i);

        for (size_t k = 0; k < SH_ARRAY_LEN(OPS); k++)
            is |= strcmp(reader_text(g->node[i]->op_type), OPS[k]) == 0;
        for (size_t k = 0; k < g->node[i]->n_input && is && !rc; k++) {
            const uint32_t v = names_get(&r->names, reader_text(g->node[i]->input[k]));

            if (v == NAMES_NONE || !param_is_made_up(r->g->values[v].name))
                continue;
            r->g->values[v].is_assumed = false;
            rc = name_layer_weight(r, i, k);
        }
    }
    return rc;
}

static void assume_all(struct reader *r)
{
    const bool as_written = onnx_is_as_written(r->model);

    r->g->is_as_written = as_written;

    for (uint32_t i = 0; i < r->g->n_values; i++) {
        struct graph_value *v = &r->g->values[i];

        v->is_assumed = v->is_param && !param_is_of_torch(v->name);
        v->is_folded = as_written && v->is_param && param_is_folded(v->name);
    }
}

int reader_state(struct reader *r)
{
    const size_t n = r->model->graph->n_initializer;
    bool once = strcmp(reader_text(r->model->producer_name), "pytorch") == 0;
    char **copies = NULL;
    struct names seen;
    int rc;

    if (!once)
        return SH_OK;
    assume_all(r);
    rc = see_layers(r);
    if (!rc)
        rc = names_init(&seen, r->err);
    if (rc)
        return rc;
    copies = calloc(n + 1, sizeof(*copies));
    rc = copies ? see_state_modules(r, &seen, copies, &once)
                : SH_FAIL(r->err, SH_E_NOMEM, "could not allocate a list of %zu modules", n);
    for (size_t i = 0; i < n && rc == SH_OK && once; i++) {
        const struct module m = module_at(r, i);

        if (m.name)
            tell_module(r, &m);
        i = m.to - 1;
    }
    for (size_t i = 0; i < n && copies; i++)
        free(copies[i]);
    free(copies);
    names_fini(&seen);
    return rc;
}
