/* params.c - which constants of a file are parameters, and which are fixed parts of the model?
 *
 * Files of PyTorch's newer exporter say so for what they hold exactly as the module has it
 * (graph_said). Of the rest, and in other files, those floats are parameters that
 *   - weight the input: operands of products and convolutions, weights and biases of normalisations
 *     (except ones and zeros that an exporter added where the module has none) and of recurrent
 *     layers, slopes, tables from which rows are taken; or
 *   - are added, multiplied or joined, and have the name of a module's attribute ("layers.0.gamma")
 *     rather than one that an exporter invents for a number in the code ("/Constant_3_output_0",
 *     "val_12", "onnx::Mul_77") or for a computed value ("exp_2"), and are not named like a mask, a
 *     table of positions or another buffer (the only way for numbers without an axis); or
 *   - are one number for each channel that the exporter brought into another form ("onnx::Mul_77",
 *     "unsqueeze_3": the scale of a layer, 1 + the weight of Gemma's norms), and neither rise or
 *     fall throughout, as tables in code do, nor are a frozen norm, by which a convolution without
 *     bias is multiplied before an addition; or a single number that has axes, which numbers in the
 *     code have not; or
 *   - were only moved by the exporter ("expand": a class token in a file for one sample;
 *     "onnx::Add_77": rows of a table of positions), are added to, taken from, multiplied with or
 *     joined to computed values, or are the first state of a recurrent layer, and have numbers that
 *     no formula gives (param_rules.h).
 * What is computed from constants only (a transposed or scaled weight) counts as its source. Others
 * are fixed: attention's scale, masks, anchors, means and deviations of images.
 */
#include "common/mem.h"
#include "runtime/model/graph_int.h"
#include "runtime/model/onnx_again.h"
#include "runtime/model/param_ops.h"
#include "runtime/model/param_rules.h"
#include "runtime/model/param_written.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

/* Inputs [first, last] weigh what comes in. */
static const struct slot {
    const char *op;
    uint32_t first, last;
} WEIGHTS[] = {
    {"BatchNormalization", 1, 4},
    {"Conv", 1, 2},
    {"ConvTranspose", 1, 2},
    {"DeformConv", 1, 1},
    {"Einsum", 0, UINT32_MAX},
    {"GRU", 1, 3},
    {"Gemm", 0, 2},
    {"GroupNormalization", 1, 2},
    {"InstanceNormalization", 1, 2},
    {"LSTM", 1, 3},
    {"LayerNormalization", 1, 2},
    {"MatMul", 0, 1},
    {"PRelu", 1, 1},
    {"RMSNormalization", 1, 1},
    {"RNN", 1, 3},
};

/* The ones and zeros that an exporter makes up for a norm that has no parameters. */
static bool is_filler(const struct graph_node *n, const struct graph_value *v)
{
    const size_t size = sh_dtype_bytes(v->dtype);

    return strstr(n->op, "Normalization") && strncmp(v->name, "val_", 4) == 0 && v->data &&
           v->bytes >= size && memcmp(v->data, (const char *)v->data + size, v->bytes - size) == 0;
}

/* Where the file says what it has of the module, the rest is what the exporter made, but for copies
 * of an initializer ("bias@linear_2:1"), which have its name. */
static bool is_made_up(const struct graph *g, const struct graph_value *v)
{
    if (g->is_as_written && param_is_word(v->name))
        return false;
    return param_is_made_up(v->name) || (g->says_kinds && !v->said && !strchr(v->name, '@'));
}

/* "net.weight_u" and "net.weight_v" beside "net.weight_orig": where the norm of a weight was found
 * last. Beside "net.weight_g", weight_v is a parameter. */
static bool is_of_spectral_norm(const struct graph *g, const char *name)
{
    const size_t n = strlen(name);
    char sibling[256];

    if (n < 3 || n + 4 > sizeof(sibling) ||
        (strcmp(name + n - 2, "_u") != 0 && strcmp(name + n - 2, "_v") != 0))
        return false;
    snprintf(sibling, sizeof(sibling), "%.*s_orig", (int)n - 2, name);
    return graph_find(g, sibling) != GRAPH_NONE;
}

/* A buffer: the file says so, or its name. */
static bool is_buffer(const struct graph *g, const struct graph_value *v)
{
    if (v->said)
        return v->said == GRAPH_SAID_BUFFER;
    return param_is_buffer(v->name) || is_of_spectral_norm(g, v->name);
}

/* Positions and the like are of the code, though they weigh, or rows of them are taken. */
static bool is_formula(const struct graph_value *v)
{
    return v->data && v->dtype == SH_F32 && param_is_formula(v->data, v->rank, v->dims);
}

/* Where nothing is said of it, its numbers may still tell that somebody wrote them. */
static bool is_value_written(const struct graph_value *v)
{
    return v->is_assumed && v->data && v->dtype == SH_F32 &&
           param_is_written(v->data, v->rank, v->dims);
}

/* It is called like what learns, or is a parameter, with a gradient or without, and stays only
 * because somebody may have written its numbers. */
static bool may_begin_so(const struct graph *g, const struct graph_value *v)
{
    return (v->is_assumed || v->said == GRAPH_SAID_PARAM) && v->data && v->dtype == SH_F32 &&
           !is_made_up(g, v) && !param_is_buffer(v->name) &&
           param_may_begin(v->data, v->rank, v->dims);
}

/* A filter of the code: edges, a blur for each channel, the numbers of bins. */
static bool is_filter(const struct graph_node *n, const struct graph_value *v)
{
    return strncmp(n->op, "Conv", 4) == 0 && v->data && v->dtype == SH_F32 &&
           param_is_filter(v->data, v->rank, v->dims);
}

static void find_filters(const struct graph *g, bool *filters)
{
    for (uint32_t i = 0; i < g->n_nodes; i++)
        if (g->nodes[i].n_in > 1 && g->nodes[i].in[1] != GRAPH_NONE)
            filters[g->nodes[i].in[1]] |= is_filter(&g->nodes[i], &g->values[g->nodes[i].in[1]]);
}

enum { TO_SIN = 1, TO_COS = 2 };

/* Waves that are drawn once and never learn (Fourier features): a matrix, or numbers, that an input
 * is multiplied with, and both the sine and the cosine of the product. A layer's weight has no name
 * of its own, or it ends in "weight"; numbers without a name are frequencies that were turned or
 * scaled first, of a table of the code or of features. from[v]: 1 + the matrix that v is a multiple
 * of; seen[matrix]: what follows. */
static uint32_t multiple(const struct graph *g, const uint32_t *from, uint32_t x, uint32_t constant)
{
    if (from[x])
        return from[x];
    return g->values[constant].rank > 0 ? 1 + constant : 0;
}

static void follow_waves(const struct graph *g, uint32_t *from, uint8_t *seen)
{
    for (uint32_t i = 0; i < g->n_nodes; i++) {
        const struct graph_node *n = &g->nodes[i];
        const uint32_t x = n->n_in > 0 ? n->in[0] : GRAPH_NONE;
        const uint32_t y = n->n_in == 2 ? n->in[1] : GRAPH_NONE;
        const uint32_t out = n->n_out > 0 ? n->out[0] : GRAPH_NONE;

        if (x == GRAPH_NONE || out == GRAPH_NONE)
            continue;
        if (strcmp(n->op, "MatMul") == 0 && y != GRAPH_NONE && g->values[y].data)
            from[out] = 1 + y;
        else if (strcmp(n->op, "Mul") == 0 && y != GRAPH_NONE)
            from[out] = g->values[x].data   ? multiple(g, from, y, x)
                        : g->values[y].data ? multiple(g, from, x, y)
                                            : 0;
        else if (strcmp(n->op, "Sin") == 0 && from[x])
            seen[from[x] - 1] |= TO_SIN;
        else if (strcmp(n->op, "Cos") == 0 && from[x])
            seen[from[x] - 1] |= TO_COS;
    }
}

/* What a parameter is called that was drawn, and not what learns. Where the file says that it is
 * one, with a gradient or without, only those that papers call by a letter were drawn. */
static bool has_name_of_waves(const struct graph_value *v)
{
    const char *dot = strrchr(v->name, '.');

    if (v->is_letter || strncmp(v->name, "onnx::Mul", 9) == 0)
        return true;
    if (v->said)
        return v->said == GRAPH_SAID_PARAM && strlen(dot ? dot + 1 : v->name) == 1;
    return !param_is_made_up(v->name) && !strstr(v->name, "weight") &&
           !strstr(v->name, "frequenc") && !strstr(v->name, "coef");
}

static int find_waves(const struct graph *g, bool *fixed, struct sh_err *err)
{
    const size_t n = (size_t)g->n_values + 1;
    uint32_t *from = calloc(n, sizeof(*from));
    uint8_t *seen = calloc(n, sizeof(*seen));
    const bool ok = from && seen;

    if (ok)
        follow_waves(g, from, seen);
    for (uint32_t i = 0; i < g->n_values && ok; i++)
        fixed[i] |= seen[i] == (TO_SIN | TO_COS) && has_name_of_waves(&g->values[i]);
    free(from);
    free(seen);
    return ok ? SH_OK
              : SH_FAIL(err, SH_E_NOMEM, "could not allocate marks of %u values", g->n_values);
}

static bool is_input_value(const struct graph *g, uint32_t v)
{
    for (uint32_t i = 0; i < g->n_inputs; i++)
        if (g->inputs[i] == v)
            return true;
    return false;
}

/* (x - mean) / deviation of an input is how data are standardised, and both are of the data: what
 * learns multiplies. Where the file does not say what they are. */
static void find_standards(const struct graph *g, const struct graph_node **makers, bool *fixed)
{
    for (uint32_t i = 0; i < g->n_nodes; i++) {
        const struct graph_node *n = &g->nodes[i], *before;
        bool of_input;

        if (strcmp(n->op, "Div") != 0 || !g->values[n->in[1]].data || g->values[n->in[1]].said)
            continue;
        before = makers[n->in[0]];
        of_input = is_input_value(g, n->in[0]);
        if (before && strcmp(before->op, "Sub") == 0 && is_input_value(g, before->in[0]) &&
            g->values[before->in[1]].data && !g->values[before->in[1]].said)
            of_input = fixed[before->in[1]] = true;
        fixed[n->in[1]] |= of_input;
    }
}

/* The constant without a name of which the weight of node n is made, each number of one; NULL:
 * there is none. A convolution takes its weight as it is, so that the exporter has moved none. */
static struct graph_value *find_source(struct graph *g, uint32_t n, const bool *fixed)
{
    uint32_t weight = g->nodes[n].in[1];

    for (uint32_t i = n; i-- > 0 && fixed[weight];) {
        const struct graph_node *maker = &g->nodes[i];

        if (maker->out[0] != weight)
            continue;
        for (uint32_t k = 0; k < maker->n_in && param_op_is_elementwise(maker); k++) {
            struct graph_value *v = maker->in[k] == GRAPH_NONE ? NULL : &g->values[maker->in[k]];

            if (v && v->data && v->rank >= 3)
                return v;
            if (v && !v->data)
                weight = maker->in[k];
        }
        if (maker->out[0] == weight)
            return NULL;
    }
    return NULL;
}

/* A number by which a parameter was multiplied (onnx_again.h), of which nobody said what it is. */
static bool is_factor(const struct graph_value *v)
{
    const char *end = strrchr(v->name, '@');

    return v->data && !v->said && end && strcmp(end + 1, ONNX_FACTOR) == 0;
}

/* Trained, or a part of a formula, which keeps its numbers; not a mask. */
static bool may_be_computed(const struct graph_value *v)
{
    return param_is_folded(v->name) && !v->said &&
           (v->is_param ||
            (v->is_folded && v->dtype == SH_F32 && param_is_scattered(v->data, v->rank, v->dims)));
}

/* The older exporter puts norms into the weights of convolutions, and then writes a bias as well. A
 * weight alone that has no name was computed of what learns: scaled, standardised, normed. */
static void find_computed(struct graph *g, const bool *fixed)
{
    for (uint32_t i = 0; i < g->n_nodes && !g->says_kinds; i++) {
        const struct graph_node *n = &g->nodes[i];
        const uint32_t bias = n->n_in > 2 ? n->in[2] : GRAPH_NONE;
        const bool is_conv = strcmp(n->op, "Conv") == 0 && n->n_in > 1 && n->in[1] != GRAPH_NONE;
        struct graph_value *v = is_conv ? &g->values[n->in[1]] : NULL;

        if (v && !v->data)
            v = find_source(g, i, fixed);
        if (v && may_be_computed(v) && !strchr(v->name, '@') &&
            (bias == GRAPH_NONE || !param_is_folded(g->values[bias].name)))
            v->is_computed = true;
    }
    for (uint32_t i = 0; i < g->n_values; i++)
        g->values[i].is_computed |= is_factor(&g->values[i]);
}

static bool is_node_weight(const struct graph *g, const struct graph_node *n, uint32_t i)
{
    const struct graph_value *v = &g->values[n->in[i]];
    int64_t axis = 0;

    if (is_filler(n, v) || strstr(v->name, "inv_freq"))
        return false;
    if (v->said == GRAPH_SAID_BUFFER) /* but for running statistics */
        return strcmp(n->op, "BatchNormalization") == 0 && i >= 3;
    if ((strcmp(n->op, "MatMul") == 0 || strcmp(n->op, "Gather") == 0 ||
         strcmp(n->op, "Einsum") == 0) &&
        (is_buffer(g, v) || is_formula(v)))
        return false;
    for (size_t k = 0; k < SH_ARRAY_LEN(WEIGHTS); k++)
        if (strcmp(WEIGHTS[k].op, n->op) == 0)
            return i >= WEIGHTS[k].first && i <= WEIGHTS[k].last;
    return strcmp(n->op, "Gather") == 0 && i == 0 && g->values[n->in[0]].rank >= 2 &&
           graph_int(n, "axis", 0, &axis, NULL) == SH_OK && axis == 0;
}

/* ---------------------------------------------------------------- numbers of channels */

#define MIN_CHANNELS 4

/* One axis, and numbers that no formula of one variable gives: all equal, or up and down. */
static bool is_per_channel(const struct graph_value *v)
{
    const float *x = v->data;
    const int64_t n = graph_elements(v);
    bool up = false, down = false;

    if (!x || v->dtype != SH_F32 || n < MIN_CHANNELS)
        return false;
    for (int i = 0; i < v->rank; i++)
        if (v->dims[i] != 1 && v->dims[i] != n)
            return false;
    for (int64_t i = 1; i < n; i++) {
        up |= x[i] > x[i - 1];
        down |= x[i] < x[i - 1];
    }
    return up == down;
}

/* The constant and the other operand of n; false: it is no such sum or product. */
static bool split_operands(const struct graph *g, const struct graph_node *n, uint32_t *c,
                           uint32_t *x)
{
    if ((strcmp(n->op, "Mul") != 0 && strcmp(n->op, "Add") != 0 && strcmp(n->op, "Sub") != 0) ||
        n->n_in != 2 || n->in[0] == GRAPH_NONE || n->in[1] == GRAPH_NONE)
        return false;
    for (uint32_t k = 0; k < 2; k++) {
        *c = n->in[k];
        *x = n->in[1 - k];
        if (g->values[*c].data && !g->values[*x].data)
            return true;
    }
    return false;
}

static bool is_plain_conv(const struct graph_node *n)
{
    return n && strcmp(n->op, "Conv") == 0 && (n->n_in == 2 || n->in[2] == GRAPH_NONE);
}

/* Zeros of which some are below 0: products with the zeros of a first state, and no parameter. */
static bool are_products(const struct graph_value *v)
{
    bool any = false;

    for (int64_t i = 0; v->dtype == SH_F32 && i < graph_elements(v); i++) {
        const float x = param_number(v->data, i);

        if (x != 0)
            return false;
        any |= signbit(x);
    }
    return any;
}

/* What is added to the logits of BART and its like is a buffer of zeros, [1, words], whose name the
 * older exporter loses. A bias that was turned has other axes, or the name of the turn. */
static bool is_of_logits(const struct graph_value *v, const struct graph_node *before)
{
    const float *x = v->data;

    for (int64_t i = 0; i < graph_elements(v); i++)
        if (x[i] != 0)
            return false;
    return param_is_folded(v->name) && v->rank == 2 && v->dims[0] == 1 && before &&
           strcmp(before->op, "MatMul") == 0;
}

/* A number that people write: 0.485, 1 / 6, 3 / 16. */
static bool is_round_number(float x)
{
    static const float OVER[] = {1000, 4096, 7, 9, 11, 12, 13, 14, 15, 18, 20, 21, 22, 24, 28, 30};
    bool is = false;

    for (size_t i = 0; i < SH_ARRAY_LEN(OVER) && !is; i++)
        is = fabsf(x * OVER[i] - roundf(x * OVER[i])) <= 1e-6f * fmaxf(fabsf(x * OVER[i]), 1);
    return is;
}

/* Such a number, but not one with which parameters begin. */
static bool is_written_alone(const struct graph_value *v)
{
    const float x = v->dtype == SH_F32 ? param_number(v->data, 0) : 0;

    return x != 0 && fabsf(x) != 1 && is_round_number(x);
}

/* Do numbers that were taken of something of the module differ though they are round, as those of a
 * table of the code (binomials)? What has just been made has the same everywhere. */
static bool are_of_a_table(const struct graph *g)
{
    const struct graph_value *first = NULL;
    bool differ = false;

    for (uint32_t i = 0; i < g->n_values && !differ; i++) {
        const struct graph_value *v = &g->values[i];

        if (!v->is_folded || graph_elements(v) != 1 || !is_written_alone(v))
            continue;
        first = first ? first : v;
        differ = param_number(v->data, 0) != param_number(first->data, 0);
    }
    return differ;
}

#define MOST_CHOSEN 1e4f /* what hides is greater: -1e9 */

/* What is divided by a number of the module, raised to it, bounded by it, or has it in some places:
 * the older exporter says nothing of the number, as where it is added. */
static void find_lone(const struct graph *g, const struct graph_node *n, bool is_table,
                      bool *learns)
{
    static const char *const OPS[] = {"Div", "Max", "Min", "Pow", "Where"};
    bool is = false;

    for (size_t k = 0; k < SH_ARRAY_LEN(OPS); k++)
        is |= strcmp(n->op, OPS[k]) == 0;
    for (uint32_t k = 0; k < n->n_in && is; k++) {
        const struct graph_value *v = n->in[k] == GRAPH_NONE ? NULL : &g->values[n->in[k]];

        if (v && v->data && v->is_folded && v->dtype == SH_F32 && graph_elements(v) == 1 &&
            fabsf(param_number(v->data, 0)) < MOST_CHOSEN)
            learns[n->in[k]] |= !(is_table && is_written_alone(v));
    }
}

/* Which sums and products learn: learns[c], or with a norm that is held fixed, holds[c]. */
static void follow_channels(const struct graph *g, const struct graph_node **makers, bool *learns,
                            bool *holds)
{
    const bool is_table = are_of_a_table(g);

    for (uint32_t i = 0; i < g->n_nodes; i++) {
        const struct graph_node *n = &g->nodes[i], *before;
        uint32_t c, x, c0, x0;

        for (uint32_t k = 0; k < n->n_out; k++)
            if (n->out[k] != GRAPH_NONE)
                makers[n->out[k]] = n;
        find_lone(g, n, is_table, learns);
        if (!split_operands(g, n, &c, &x))
            continue;
        learns[c] |= graph_elements(&g->values[c]) == 1 && !are_products(&g->values[c]) &&
                     (param_is_lone(g->values[c].name, g->values[c].rank) ||
                      (g->values[c].is_folded && !(is_table && is_written_alone(&g->values[c]))));
        if (!is_per_channel(&g->values[c]) || are_products(&g->values[c]))
            continue;
        before = makers[x];
        if (strcmp(n->op, "Mul") != 0 && before && strcmp(before->op, "Mul") == 0 &&
            split_operands(g, before, &c0, &x0) && is_plain_conv(makers[x0]))
            holds[c] = holds[c0] = true;
        learns[c] |= param_is_turned(g->values[c].name) && !is_of_logits(&g->values[c], before);
    }
}

static int find_channels(const struct graph *g, bool *learns, bool *holds, bool *fixed,
                         struct sh_err *err)
{
    const struct graph_node **makers = calloc((size_t)g->n_values + 1, sizeof(*makers));

    if (!makers)
        return SH_FAIL(err, SH_E_NOMEM, "could not allocate marks of %u values", g->n_values);
    follow_channels(g, makers, learns, holds);
    find_standards(g, makers, fixed);
    free(makers);
    return SH_OK;
}

/* ---------------------------------------------------------------- the graph */

/* fixed[v]: v is computed from constants alone. */
static void find_fixed(const struct graph *g, bool *fixed)
{
    for (uint32_t i = 0; i < g->n_values; i++)
        fixed[i] = g->values[i].data != NULL;
    for (uint32_t i = 0; i < g->n_nodes; i++) {
        const struct graph_node *n = &g->nodes[i];
        bool all = n->n_in > 0;

        for (uint32_t k = 0; k < n->n_in; k++)
            all &= n->in[k] == GRAPH_NONE || fixed[n->in[k]];
        for (uint32_t k = 0; k < n->n_out; k++)
            if (n->out[k] != GRAPH_NONE)
                fixed[n->out[k]] = all;
    }
}

/* GroupNorm is written as InstanceNormalization of groups by exporters: what it is multiplied with
 * and what is added then are its weight and bias, although they lost their names on the way. */
enum after_norm { NOWHERE, NORMED, SCALED };

static enum after_norm follow_norm(const struct graph *g, const struct graph_node *n,
                                   const uint8_t *after, bool *weighs)
{
    const bool is_mul = strcmp(n->op, "Mul") == 0, is_add = strcmp(n->op, "Add") == 0;

    if (strcmp(n->op, "InstanceNormalization") == 0)
        return NORMED;
    if (strcmp(n->op, "Reshape") == 0)
        return n->in[0] != GRAPH_NONE ? after[n->in[0]] : NOWHERE;
    for (uint32_t k = 0; k < 2 && (is_mul || is_add) && n->n_in == 2; k++) {
        const uint32_t x = n->in[k], c = n->in[1 - k];

        if (x == GRAPH_NONE || c == GRAPH_NONE || !g->values[c].data ||
            graph_elements(&g->values[c]) < 2 || after[x] != (is_mul ? NORMED : SCALED))
            continue;
        weighs[c] = true;
        return is_mul ? SCALED : NOWHERE;
    }
    return NOWHERE;
}

static int find_norms(const struct graph *g, bool *weighs, struct sh_err *err)
{
    uint8_t *after = calloc((size_t)g->n_values + 1, sizeof(*after));

    if (!after)
        return SH_FAIL(err, SH_E_NOMEM, "could not allocate marks of %u values", g->n_values);
    for (uint32_t i = 0; i < g->n_nodes; i++) {
        const struct graph_node *n = &g->nodes[i];

        if (n->n_in > 0 && n->n_out > 0 && n->out[0] != GRAPH_NONE)
            after[n->out[0]] = (uint8_t)follow_norm(g, n, after, weighs);
    }
    free(after);
    return SH_OK;
}

/* Beside what has a name, or was computed of that, a constant that the exporter made up is a number
 * of the formula, and so is a mask, or a wave: of a weight that is standardised, scaled, masked or
 * computed first. */
static bool is_of_formula(const struct graph *g, const struct graph_node *n, uint32_t k)
{
    const struct graph_value *v = &g->values[n->in[k]];
    const bool turns = strcmp(n->op, "Transpose") == 0 && !param_is_of_torch(v->name);

    if (!v->data || is_buffer(g, v) || ((n->n_in > 1 || turns) && is_formula(v)))
        return v->data;
    for (uint32_t i = 0; i < n->n_in && is_made_up(g, v); i++)
        if (i != k && n->in[i] != GRAPH_NONE && n->in[i] != n->in[k] &&
            (!g->values[n->in[i]].data || !is_made_up(g, &g->values[n->in[i]])))
            return true;
    return false;
}

/* weighs[v]: v, or what is computed from it and constants, is a weight. */
static void find_weights(const struct graph *g, const bool *fixed, bool *weighs)
{
    for (uint32_t i = g->n_nodes; i-- > 0;) {
        const struct graph_node *n = &g->nodes[i];
        bool through = false;

        for (uint32_t k = 0; k < n->n_out; k++)
            through |= n->out[k] != GRAPH_NONE && fixed[n->out[k]] && weighs[n->out[k]];
        for (uint32_t k = 0; k < n->n_in; k++)
            if (n->in[k] != GRAPH_NONE && fixed[n->in[k]] && !weighs[n->in[k]])
                weighs[n->in[k]] = (through && !is_of_formula(g, n, k)) || is_node_weight(g, n, k);
    }
}

/* ---------------------------------------------------------------- tables */

/* moved[v]: the numbers of v are those of constants, or a function of each, whatever its sizes hang
 * on. */
static void find_moved(const struct graph *g, bool *moved)
{
    for (uint32_t i = 0; i < g->n_values; i++)
        moved[i] = g->values[i].data != NULL;
    for (uint32_t i = 0; i < g->n_nodes; i++) {
        const struct graph_node *n = &g->nodes[i];
        const bool chooses = strcmp(n->op, "If") == 0;
        const uint32_t n_from =
            chooses || strcmp(n->op, "Concat") == 0 ? n->n_in : SH_MIN(n->n_in, 1u);
        bool all = n_from > 0 && (param_op_moves(n) || param_op_is_function(n));

        for (uint32_t k = chooses; k < n_from && all; k++)
            all = n->in[k] != GRAPH_NONE && moved[n->in[k]];
        for (uint32_t k = 0; k < n->n_out; k++)
            if (n->out[k] != GRAPH_NONE)
                moved[n->out[k]] = all;
    }
}

static void find_numbers(const struct graph *g, bool *counts)
{
    for (uint32_t i = 0; i < g->n_nodes; i++)
        for (uint32_t k = 0; k < g->nodes[i].n_in; k++)
            if (g->nodes[i].in[k] != GRAPH_NONE)
                counts[g->nodes[i].in[k]] |= param_op_calculates(&g->nodes[i], k);
}

static bool has_moved_output(const struct graph_node *n, const bool *moved)
{
    return n->n_out > 0 && n->out[0] != GRAPH_NONE && moved[n->out[0]];
}

/* One number for each channel, but no padding, which is the same in all. */
static bool is_token_value(const struct graph_value *v)
{
    return is_per_channel(v) &&
           memcmp(v->data, (const float *)v->data + 1, v->bytes - sizeof(float)) != 0;
}

#define MAX_FEW 8

/* A few numbers, not such as people write, but for those with which parameters begin. */
static bool are_few(const struct graph_value *v)
{
    const int64_t n = graph_elements(v);
    bool same = true, drawn = false;

    for (int64_t i = 0; i < n && n < MAX_FEW; i++) {
        const float x = param_number(v->data, i);

        same &= x == param_number(v->data, 0) && (x == 0 || x == 1) && !signbit(x);
        drawn |= isfinite(x) && !is_round_number(x);
    }
    return n > 1 && n < MAX_FEW && (same || drawn);
}

static bool may_learn(const struct graph_value *v)
{
    if (!v->data || v->dtype != SH_F32)
        return false;
    return (v->is_taken || param_is_moved(v->name) || param_is_folded(v->name)) &&
           (is_token_value(v) || (v->is_folded && are_few(v)) ||
            param_is_scattered(v->data, v->rank, v->dims)) &&
           !is_formula(v);
}

/* By its numbers alone; nothing is said of it. */
static bool looks_learned(const struct graph_value *v)
{
    return v->data && v->dtype == SH_F32 &&
           (are_few(v) || param_is_scattered(v->data, v->rank, v->dims)) && !is_formula(v) &&
           !is_value_written(v);
}

/* A number of the module in a file of the older exporter that takes part and does not learn. */
static bool is_lone_number(const struct graph_value *v, bool counts)
{
    return counts && v->is_folded && v->dtype == SH_F32 && graph_elements(v) == 1 &&
           !are_products(v);
}

/* Zeros that an exporter took of something of the module: places, before they learn. Of which rows
 * of a parameter they are, nothing says. */
static bool is_blank(const struct graph_value *v, bool counts)
{
    const char *x = v->data;

    return counts && !v->said && (v->is_folded || v->is_taken) && v->dtype == SH_F32 &&
           v->rank > 0 && x && v->bytes > 0 && x[0] == 0 && memcmp(x, x + 1, v->bytes - 1) == 0;
}

/* joins[v]: v, or what is moved from it, is put together with what is computed. A single number of
 * the module is one that learns there too, as where it is added (find_lone()). */
static void find_tables(const struct graph *g, bool *moved, bool *joins, bool *learns)
{
    const bool is_table = are_of_a_table(g);

    find_moved(g, moved);
    for (uint32_t i = g->n_nodes; i-- > 0;) {
        const struct graph_node *n = &g->nodes[i];
        const bool meets = !has_moved_output(n, moved) && param_op_joins(n);
        const bool moves = has_moved_output(n, moved) && joins[n->out[0]];
        const bool chooses = strcmp(n->op, "If") == 0;
        const uint32_t n_from = chooses || param_op_joins(n) ? n->n_in : SH_MIN(n->n_in, 1u);

        for (uint32_t k = chooses; k < n_from && (meets || moves); k++)
            if (n->in[k] != GRAPH_NONE && moved[n->in[k]])
                joins[n->in[k]] = true;
    }
    for (uint32_t i = 0; i < g->n_values; i++)
        learns[i] |= joins[i] && (may_learn(&g->values[i]) ||
                                  (is_lone_number(&g->values[i], g->values[i].rank > 0) &&
                                   !(is_table && is_written_alone(&g->values[i]))));
}

/* What the walks find of each value. */
struct found {
    bool *fixed, *weighs, *learns, *holds, *joins, *moved, *counts, *filters;
};

/* By who wrote the model. Asked last: it may look at all numbers. */
static bool is_named_param(const struct graph *g, const struct graph_value *v)
{
    return (v->said || !is_made_up(g, v)) && !is_buffer(g, v) && !is_formula(v);
}

static void forget_buffers(const struct graph *g, bool *marks)
{
    for (uint32_t i = 0; i < g->n_values; i++)
        marks[i] &= g->values[i].said != GRAPH_SAID_BUFFER;
}

static void decide_params(struct graph *g, const struct found *f)
{
    find_fixed(g, f->fixed);
    forget_buffers(g, f->weighs);
    find_weights(g, f->fixed, f->weighs);
    find_tables(g, f->moved, f->joins, f->learns);
    forget_buffers(g, f->learns);
    find_numbers(g, f->counts);
    find_filters(g, f->filters);
    for (uint32_t i = 0; i < g->n_values; i++) {
        struct graph_value *v = &g->values[i];
        /* A norm that is held fixed went through the exporter: its names are of no module. */
        const bool held = f->holds[i] && is_made_up(g, v);
        /* A single number is one of the code, but for that of a name, or of what was moved. */
        const bool found = (v->rank > 0 && f->weighs[i]) || (!held && f->learns[i]);

        v->is_computed &= !f->filters[i];
        v->is_held = (!f->filters[i] &&
                      ((v->is_assumed &&
                        (looks_learned(v) || is_lone_number(v, f->counts[i] || f->joins[i]))) ||
                       may_begin_so(g, v))) ||
                     is_blank(v, f->counts[i] || f->joins[i]);
        v->is_param = v->is_param &&
                      (v->said == GRAPH_SAID_LEARNS ||
                       (!f->filters[i] && !is_value_written(v) &&
                        (found || (!held && (v->rank > 0 || (v->dtype == SH_F32 && f->counts[i])) &&
                                   is_named_param(g, v)))));
        v->is_assumed &= v->is_param;
        v->is_computed |= v->is_of_lost && !v->is_param && !f->filters[i] && !is_formula(v);
        v->is_held &= !v->is_param && !v->is_computed;
    }
}

int graph__find_params(struct graph *g, struct sh_err *err)
{
    const size_t n = (size_t)g->n_values + 1;
    bool *marks = calloc(8 * n, sizeof(*marks));
    const struct found f = {marks,         marks + n,     marks + 2 * n, marks + 3 * n,
                            marks + 4 * n, marks + 5 * n, marks + 6 * n, marks + 7 * n};
    int rc = marks ? find_norms(g, f.weighs, err)
                   : SH_FAIL(err, SH_E_NOMEM, "could not allocate marks of %u values", g->n_values);

    if (!rc)
        rc = find_channels(g, f.learns, f.holds, f.filters, err);
    if (!rc)
        rc = find_waves(g, f.filters, err);
    if (!rc) {
        decide_params(g, &f);
        find_computed(g, f.fixed);
    }
    free(marks);
    return rc;
}
