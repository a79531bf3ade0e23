/* samples.c - follows the samples of a batch through a graph of fixed shapes.
 *
 * DESIGN. Element e (row-major) of a value belongs to sample (e / step) % B, with one step for the
 * whole value; B is the batch. For inputs step is the size of a row. Reshapes keep the order of
 * elements, so they keep step. The axis that holds the batch follows from step (places.h). Each
 * operator has a rule that says where the axis goes, or that samples mix. A value that no input
 * reaches is FREE: it fits anywhere as long as it is the same for all samples. Operators without a
 * rule mix.
 *
 * Two batches are tried, both prime and unlike the sizes of models, so that no axis looks like the
 * batch by chance.
 */
#include "runtime/model/samples.h"

#include "common/mem.h"
#include "runtime/model/places.h"
#include "runtime/model/shape_int.h"

#include <stdio.h>
#include <stdlib.h>

#define FIRST_BATCH 11
#define SECOND_BATCH 13

enum kind { FREE, BATCH, MIXED };

struct track {
    enum kind kind;
    int64_t step;
};

struct follow {
    const struct graph *g;
    const struct graph_node *n; /* at work */
    uint32_t out;               /* which of its outputs */
    struct track *of;           /* by value */
    int64_t batch;
};

typedef struct track rule_fn(struct follow *f);

static const struct track IS_FREE = {FREE, 0}, IS_MIXED = {MIXED, 0};

/* ---------------------------------------------------------------- places */

static const struct graph_value *value(const struct follow *f, uint32_t i)
{
    return &f->g->values[f->n->in[i]];
}

static const struct graph_value *result_value(const struct follow *f)
{
    return &f->g->values[f->n->out[f->out]];
}

static bool has_samples(const struct follow *f, uint32_t i)
{
    return i < f->n->n_in && f->n->in[i] != GRAPH_NONE;
}

static struct track sample_track_of(const struct follow *f, uint32_t i)
{
    return f->of[f->n->in[i]];
}

/* Input i is not MIXED, and if it follows the batch *p says where. */
static bool placed(const struct follow *f, uint32_t i, struct place *p)
{
    return sample_track_of(f, i).kind == BATCH &&
           place_of(value(f, i), sample_track_of(f, i).step, f->batch, p);
}

static bool is_input_free(const struct follow *f, uint32_t i)
{
    return !has_samples(f, i) || sample_track_of(f, i).kind == FREE;
}

static bool are_inputs_free(const struct follow *f, uint32_t from)
{
    for (uint32_t i = from; i < f->n->n_in; i++)
        if (!is_input_free(f, i))
            return false;
    return true;
}

/* The result, with the batch at this place. */
static struct track batch_at(const struct follow *f, struct place p)
{
    const struct graph_value *y = result_value(f);

    if (p.axis < 0 || p.axis >= y->rank || y->dims[p.axis] != p.before * f->batch * p.after)
        return IS_MIXED;
    return (struct track){BATCH, place_step(y, p)};
}

/* Is a FREE value the same for all samples, where they lie at p on an axis of `rank` axes and it
 * broadcasts to those? */
static bool is_same_for_all(const struct follow *f, const struct graph_value *v, int rank,
                            struct place p)
{
    int axis = p.axis - (rank - v->rank);
    size_t row, outer = 1;

    if (axis < 0 || v->dims[axis] == 1)
        return true;
    if (!v->data || v->dims[axis] != p.before * f->batch * p.after)
        return false;
    for (int i = 0; i < axis; i++)
        outer *= (size_t)v->dims[i];
    outer *= (size_t)p.before;
    row = (size_t)(p.after * place_behind(v, axis)) * sh_dtype_bytes(v->dtype);
    for (size_t o = 0; o < outer; o++)
        for (size_t b = 1; b < (size_t)f->batch; b++) {
            const char *first = (const char *)v->data + o * (size_t)f->batch * row;

            if (memcmp(first, first + b * row, row) != 0)
                return false;
        }
    return true;
}

/* ---------------------------------------------------------------- rules */

/* Inputs broadcast to the shape of the result. */
static struct track rule_each(struct follow *f)
{
    const struct graph_value *y = result_value(f);
    struct place p = {.axis = -1}, q;

    for (uint32_t i = 0; i < f->n->n_in; i++) {
        if (!has_samples(f, i) || is_input_free(f, i))
            continue;
        if (!placed(f, i, &q))
            return IS_MIXED;
        q.axis += y->rank - value(f, i)->rank;
        if (p.axis >= 0 && !place_same(p, q))
            return IS_MIXED;
        p = q;
    }
    for (uint32_t i = 0; i < f->n->n_in; i++)
        if (has_samples(f, i) && is_input_free(f, i) &&
            !is_same_for_all(f, value(f, i), y->rank, p))
            return IS_MIXED;
    return batch_at(f, p);
}

static struct track rule_reshape(struct follow *f)
{
    struct track t = sample_track_of(f, 0);
    struct place p;

    return place_of(result_value(f), t.step, f->batch, &p) ? t : IS_MIXED;
}

/* What is expanded is the same along the new size: it may be that of the batch. */
static struct track free_expand(struct follow *f)
{
    const struct graph_value *x = value(f, 0), *y = result_value(f);

    for (int i = 0; i < y->rank; i++) {
        int from = i - (y->rank - x->rank);

        if (y->dims[i] == f->batch && (from < 0 || x->dims[from] == 1))
            return (struct track){BATCH, place_behind(y, i)};
    }
    return IS_FREE;
}

static struct track rule_transpose(struct follow *f)
{
    int64_t perm[SH_MAX_RANK];
    struct place p;
    size_t k = 0;

    if (!placed(f, 0, &p) || graph_ints(f->n, "perm", perm, SH_MAX_RANK, &k, NULL))
        return IS_MIXED;
    for (size_t i = 0; i < k; i++)
        if (perm[i] == p.axis) {
            p.axis = (int)i;
            return batch_at(f, p);
        }
    return IS_MIXED;
}

static int64_t axis_attr(const struct follow *f, const char *name, int64_t otherwise)
{
    int64_t axis = otherwise;

    return graph_int(f->n, name, otherwise, &axis, NULL) ? -1 : axis;
}

/* Rows of a table that are the same for all samples, though each has them: token types, say. */
static struct track free_gather(struct follow *f)
{
    const struct graph_value *index = value(f, 1), *y = result_value(f);
    int64_t axis = axis_attr(f, "axis", 0);

    for (int i = 0; index->data && i < index->rank; i++) {
        const struct place p = {.axis = i, .before = 1, .after = 1};

        if (index->dims[i] == f->batch && is_same_for_all(f, index, index->rank, p))
            return (struct track){BATCH, place_behind(y, (int)axis + i)};
    }
    return IS_FREE;
}

/* Along another axis all parts have the same place; of the batch itself nothing is joined. */
static struct track rule_concat(struct follow *f)
{
    int64_t axis = axis_attr(f, "axis", 0);
    struct place p = {.axis = -1}, q;

    for (uint32_t i = 0; i < f->n->n_in; i++) {
        if (is_input_free(f, i))
            continue;
        if (!placed(f, i, &q) || q.axis == axis || (p.axis >= 0 && !place_same(p, q)))
            return IS_MIXED;
        p = q;
    }
    for (uint32_t i = 0; i < f->n->n_in; i++)
        if (is_input_free(f, i) && !is_same_for_all(f, value(f, i), result_value(f)->rank, p))
            return IS_MIXED;
    return batch_at(f, p);
}

/* The axis of the batch is left as it is: what happens along others is the same for all. */
static struct track rule_keep(struct follow *f)
{
    struct place p;

    return placed(f, 0, &p) && are_inputs_free(f, 1) ? batch_at(f, p) : IS_MIXED;
}

static struct track rule_slice(struct follow *f)
{
    int64_t starts[SH_MAX_RANK], steps[SH_MAX_RANK];
    size_t k = 0, m = 0;
    struct place p;

    if (!placed(f, 0, &p) || graph_ints(f->n, "starts", starts, SH_MAX_RANK, &k, NULL) ||
        graph_ints(f->n, "steps", steps, SH_MAX_RANK, &m, NULL) || p.axis >= (int)SH_MIN(k, m) ||
        starts[p.axis] != 0 || steps[p.axis] != 1)
        return IS_MIXED;
    return batch_at(f, p);
}

static struct track rule_pad(struct follow *f)
{
    int64_t pads[2 * SH_MAX_RANK];
    struct place p;
    size_t k = 0;

    if (!placed(f, 0, &p) || graph_ints(f->n, "pads", pads, 2 * SH_MAX_RANK, &k, NULL) ||
        k != 2 * (size_t)value(f, 0)->rank || pads[p.axis] != 0 ||
        pads[p.axis + value(f, 0)->rank] != 0)
        return IS_MIXED;
    return batch_at(f, p);
}

static struct track rule_gather(struct follow *f)
{
    int64_t axis = axis_attr(f, "axis", 0);
    struct place p;

    if (is_input_free(f, 1) && placed(f, 0, &p) && p.axis != axis) {
        p.axis += p.axis > axis ? value(f, 1)->rank - 1 : 0;
        return batch_at(f, p);
    }
    if (is_input_free(f, 0) && placed(f, 1, &p)) {
        p.axis += (int)axis;
        return batch_at(f, p);
    }
    return IS_MIXED;
}

static struct track rule_reduce(struct follow *f)
{
    int64_t axes[SH_MAX_RANK], keep = axis_attr(f, "keepdims", 1);
    struct place p;
    size_t k = 0;
    int before = 0;

    if (!placed(f, 0, &p) || graph_ints(f->n, "axes", axes, SH_MAX_RANK, &k, NULL))
        return IS_MIXED;
    for (size_t i = 0; i < k; i++) {
        if (axes[i] == p.axis)
            return IS_MIXED;
        before += axes[i] < p.axis;
    }
    p.axis -= keep ? 0 : before;
    return batch_at(f, p);
}

/* Along `axis` elements meet. */
static struct track rule_along(struct follow *f)
{
    struct place p;

    if (!placed(f, 0, &p) || !are_inputs_free(f, 1) || p.axis == axis_attr(f, "axis", -1))
        return IS_MIXED;
    return batch_at(f, p);
}

/* From `axis` on elements meet. */
static struct track rule_layer_norm(struct follow *f)
{
    struct place p;

    if (!placed(f, 0, &p) || !are_inputs_free(f, 1) || p.axis >= axis_attr(f, "axis", -1))
        return IS_MIXED;
    return batch_at(f, p);
}

/* Images: axis 0 is theirs, everything else of an image may meet. */
static struct track rule_images(struct follow *f)
{
    struct place p;

    return placed(f, 0, &p) && p.axis == 0 && are_inputs_free(f, 1) ? batch_at(f, p) : IS_MIXED;
}

static struct track rule_batch_norm(struct follow *f)
{
    return axis_attr(f, "training_mode", 0) ? IS_MIXED : rule_images(f);
}

/* Scales and zero points are the same for all samples. */
static struct track rule_quantise(struct follow *f)
{
    struct place p;

    if (!placed(f, 0, &p) || !are_inputs_free(f, 1))
        return IS_MIXED;
    if (graph_elements(value(f, 1)) != 1 && p.axis == axis_attr(f, "axis", -1))
        return IS_MIXED;
    return batch_at(f, p);
}

/* A product of integers: rows of the first operand, of which nothing is known apart. */
static struct track rule_int_rows(struct follow *f)
{
    const bool has_scales = f->n->n_in == 8;
    struct place p;

    if (!placed(f, 0, &p) || !are_inputs_free(f, 1) || p.axis == value(f, 0)->rank - 1 ||
        result_value(f)->rank != value(f, 0)->rank)
        return IS_MIXED;
    for (uint32_t i = has_scales ? 1 : 2; i < 3; i++)
        if (has_samples(f, i) && graph_elements(value(f, i)) != 1)
            return IS_MIXED;
    return batch_at(f, p);
}

static bool is_unchanged(const struct graph_attr *list, size_t i, float want)
{
    return list && list->kind == GRAPH_ATTR_FLOATS && i < list->n && list->floats[i] == want;
}

/* Elements meet along the axes that change. */
static struct track rule_resize(struct follow *f)
{
    const struct graph_attr *scales = graph__attr(f->n, "scales"), *roi = graph__attr(f->n, "roi");
    const size_t rank = (size_t)value(f, 0)->rank;
    struct place p;

    if (!placed(f, 0, &p) || !is_unchanged(scales, (size_t)p.axis, 1.0f) ||
        !is_unchanged(roi, (size_t)p.axis, 0.0f) || !is_unchanged(roi, rank + (size_t)p.axis, 1.0f))
        return IS_MIXED;
    return batch_at(f, p);
}

/* Steps meet, and what a sample has at one. x, the lengths and the first states have an axis of
 * samples, in the way of the layout; all outputs too. */
static struct track rule_rnn(struct follow *f)
{
    enum { X, LENS = 4, HIDDEN, CELL, PEEPHOLE };
    const bool by_sample = axis_attr(f, "layout", 0) != 0;
    struct place p, x;

    if (!placed(f, X, &x) || x.axis != (by_sample ? 0 : 1) || x.before != 1 || x.after != 1)
        return IS_MIXED;
    for (uint32_t i = 1; i < f->n->n_in; i++) {
        const int axis = i == LENS || by_sample ? 0 : 1;

        if (!has_samples(f, i))
            continue;
        if (i < LENS || i == PEEPHOLE) {
            if (!is_input_free(f, i))
                return IS_MIXED;
        } else if (is_input_free(f, i)) {
            p = (struct place){axis, 1, 1};
            if (!is_same_for_all(f, value(f, i), value(f, i)->rank, p))
                return IS_MIXED;
        } else if (!placed(f, i, &p) || p.axis != axis || p.before != 1 || p.after != 1) {
            return IS_MIXED;
        }
    }
    x.axis = by_sample ? 0 : f->out == 0 ? 2 : 1;
    return batch_at(f, x);
}

static struct track rule_matmul(struct follow *f)
{
    struct place p[2] = {{.axis = -1}, {.axis = -1}};
    bool leads[2] = {false, false};
    const int lead = result_value(f)->rank - (value(f, 0)->rank > 1) - (value(f, 1)->rank > 1);

    for (uint32_t i = 0; i < 2; i++)
        if (!is_input_free(f, i) &&
            !(placed(f, i, &p[i]) &&
              place_in_product(value(f, 0), value(f, 1), result_value(f), i, &p[i], &leads[i])))
            return IS_MIXED;
    if (!is_input_free(f, 0) && !is_input_free(f, 1))
        return leads[0] && leads[1] && place_same(p[0], p[1]) ? batch_at(f, p[0]) : IS_MIXED;
    for (uint32_t i = 0; i < 2; i++) {
        const struct graph_value *other = value(f, 1 - i);

        if (is_input_free(f, i))
            continue;
        if (leads[i] && other->rank > 2 && !is_same_for_all(f, other, lead + 2, p[i]))
            return IS_MIXED;
        return batch_at(f, p[i]);
    }
    return IS_MIXED;
}

static struct track rule_gemm(struct follow *f)
{
    const int64_t ta = axis_attr(f, "transA", 0), tb = axis_attr(f, "transB", 0);
    struct place p = {.axis = -1}, q;

    if (!is_input_free(f, 0)) {
        if (!is_input_free(f, 1) || !placed(f, 0, &p) || p.axis != (ta ? 1 : 0))
            return IS_MIXED;
        p.axis = 0;
    } else if (!is_input_free(f, 1)) {
        if (!placed(f, 1, &p) || p.axis != (tb ? 0 : 1))
            return IS_MIXED;
        p.axis = 1;
    }
    if (!has_samples(f, 2))
        return batch_at(f, p);
    if (is_input_free(f, 2))
        return p.axis >= 0 && is_same_for_all(f, value(f, 2), 2, p) ? batch_at(f, p) : IS_MIXED;
    if (!placed(f, 2, &q))
        return IS_MIXED;
    q.axis += 2 - value(f, 2)->rank;
    return p.axis < 0 || place_same(p, q) ? batch_at(f, q) : IS_MIXED;
}

/* clang-format off */
static const struct {
    const char *op;
    rule_fn *fn;
} RULES[] = {
    {"Abs", rule_each}, {"Acos", rule_each}, {"Acosh", rule_each}, {"Add", rule_each},
    {"And", rule_each}, {"Asin", rule_each}, {"Asinh", rule_each}, {"Atan", rule_each},
    {"Atanh", rule_each}, {"AveragePool", rule_images}, {"BatchNormalization", rule_batch_norm},
    {"BitwiseAnd", rule_each}, {"BitwiseOr", rule_each}, {"BitwiseXor", rule_each},
    {"Cast", rule_each}, {"Ceil", rule_each}, {"Clip", rule_each}, {"Concat", rule_concat},
    {"Conv", rule_images}, {"ConvInteger", rule_images}, {"ConvTranspose", rule_images},
    {"Cos", rule_each}, {"Cosh", rule_each}, {"CumSum", rule_along},
    {"DequantizeLinear", rule_quantise}, {"Div", rule_each}, {"Elu", rule_each},
    {"Equal", rule_each}, {"Erf", rule_each}, {"Exp", rule_each}, {"Expand", rule_each},
    {"FMod", rule_each}, {"Floor", rule_each}, {"GRU", rule_rnn}, {"Gather", rule_gather},
    {"Gelu", rule_each}, {"Gemm", rule_gemm}, {"GlobalAveragePool", rule_images},
    {"GlobalLpPool", rule_images}, {"GlobalMaxPool", rule_images}, {"Greater", rule_each},
    {"GreaterOrEqual", rule_each}, {"GroupNormalization", rule_images}, {"HardSigmoid", rule_each},
    {"HardSwish", rule_each}, {"Identity", rule_keep}, {"InstanceNormalization", rule_images},
    {"LRN", rule_images}, {"LSTM", rule_rnn}, {"LayerNormalization", rule_layer_norm},
    {"LeakyRelu", rule_each}, {"Less", rule_each}, {"LessOrEqual", rule_each}, {"Log", rule_each},
    {"LogSoftmax", rule_along}, {"LpNormalization", rule_along}, {"LpPool", rule_images},
    {"MatMul", rule_matmul}, {"MatMulInteger", rule_int_rows}, {"Max", rule_each},
    {"MaxPool", rule_images}, {"Min", rule_each}, {"Mod", rule_each}, {"Mul", rule_each},
    {"Neg", rule_each}, {"Not", rule_each}, {"Or", rule_each}, {"Pad", rule_pad},
    {GRAPH_PIXELS, rule_transpose},
    {"Pow", rule_each}, {"QLinearConv", rule_images}, {"QLinearMatMul", rule_int_rows},
    {"QuantizeLinear", rule_quantise}, {"RNN", rule_rnn}, {"Reciprocal", rule_each},
    {"ReduceMax", rule_reduce}, {"ReduceMean", rule_reduce}, {"ReduceMin", rule_reduce},
    {"ReduceProd", rule_reduce}, {"ReduceSum", rule_reduce}, {"Relu", rule_each},
    {"Reshape", rule_reshape}, {"Resize", rule_resize}, {"Round", rule_each},
    {"ShiftLeft", rule_each}, {"ShiftRight", rule_each}, {"Sigmoid", rule_each},
    {"Sign", rule_each}, {"Sin", rule_each}, {"Sinh", rule_each}, {"Slice", rule_slice},
    {"Softmax", rule_along}, {"Softplus", rule_each}, {"Sqrt", rule_each}, {"Sub", rule_each},
    {"Tan", rule_each}, {"Tanh", rule_each}, {"TopK", rule_along}, {"Transpose", rule_transpose},
    {"Where", rule_each}, {"Xor", rule_each},
};
/* clang-format on */

static rule_fn *rule_of(const char *op)
{
    for (size_t i = 0; i < SH_ARRAY_LEN(RULES); i++)
        if (strcmp(RULES[i].op, op) == 0)
            return RULES[i].fn;
    return NULL;
}

/* ---------------------------------------------------------------- the walk */

static struct track node_track(struct follow *f)
{
    rule_fn *rule = rule_of(f->n->op);
    bool free = true;

    for (uint32_t i = 0; i < f->n->n_in; i++) {
        if (!has_samples(f, i))
            continue;
        if (sample_track_of(f, i).kind == MIXED)
            return IS_MIXED;
        free &= is_input_free(f, i);
    }
    if (free && strcmp(f->n->op, "Gather") == 0)
        return free_gather(f);
    if (free)
        return strcmp(f->n->op, "Expand") == 0 ? free_expand(f) : IS_FREE;
    return rule ? rule(f) : IS_MIXED;
}

/* The first node that mixes is the one to name. */
static void say_mixing_node(const struct follow *f, const struct track *of,
                            char why[static SAMPLES_WHY])
{
    char node[96], op[48];

    for (uint32_t i = 0; why[0] == '\0' && i < f->n->n_in; i++)
        if (has_samples(f, i) && of[f->n->in[i]].kind == MIXED)
            return;
    if (why[0] == '\0')
        snprintf(why, SAMPLES_WHY, "%s node %s %s", graph__clean(f->n->op, op, sizeof(op)),
                 graph__clean(f->n->name, node, sizeof(node)),
                 rule_of(f->n->op) ? "mixes samples or tells them apart by their place"
                                   : "may mix samples");
}

static void follow_nodes(struct follow *f, char why[static SAMPLES_WHY])
{
    for (uint32_t i = 0; i < f->g->n_nodes; i++) {
        struct track t;

        f->n = &f->g->nodes[i];
        for (f->out = 0; f->out < f->n->n_out; f->out++) {
            if (f->n->out[f->out] == GRAPH_NONE)
                continue;
            t = node_track(f);
            if (t.kind == MIXED)
                say_mixing_node(f, f->of, why);
            f->of[f->n->out[f->out]] = t;
        }
    }
}

/* Do all rows of the value lie along axis 0, one for each sample? */
static bool is_by_row(const struct follow *f, uint32_t v)
{
    const struct graph_value *x = &f->g->values[v];

    return f->of[v].kind == BATCH && x->rank > 0 && x->dims[0] == f->batch &&
           f->of[v].step == place_behind(x, 0);
}

static int check_at(const struct graph *g, int64_t batch, bool *independent,
                    char why[static SAMPLES_WHY], struct sh_err *err)
{
    struct follow f = {.batch = batch};
    struct graph *at_batch = NULL;
    int rc = graph_at_batch(g, batch, false, &at_batch, err);

    if (rc)
        return rc;
    f.g = at_batch;
    f.of = calloc((size_t)at_batch->n_values + 1, sizeof(*f.of));
    if (!f.of) {
        graph_free(at_batch);
        return SH_FAIL(err, SH_E_NOMEM, "could not allocate the places of %u values",
                       at_batch->n_values);
    }
    for (uint32_t i = 0; i < at_batch->n_inputs && *independent; i++) {
        const struct graph_value *v = &at_batch->values[at_batch->inputs[i]];

        *independent = v->rank > 0 && v->dims[0] == batch;
        f.of[at_batch->inputs[i]] = (struct track){BATCH, v->rank ? place_behind(v, 0) : 1};
        if (!*independent)
            snprintf(why, SAMPLES_WHY, "input %.64s has no axis of samples", v->name);
    }
    if (*independent)
        follow_nodes(&f, why);
    for (uint32_t i = 0; i < at_batch->n_outputs && *independent; i++) {
        const struct graph_value *v = &at_batch->values[at_batch->outputs[i]];

        *independent = is_by_row(&f, at_batch->outputs[i]);
        if (!*independent && (f.of[at_batch->outputs[i]].kind != MIXED || why[0] == '\0'))
            snprintf(why, SAMPLES_WHY, "output %.64s does not have one row for each sample",
                     v->name);
    }
    free(f.of);
    graph_free(at_batch);
    return SH_OK;
}

int samples_check(const struct graph *g, bool *independent, char why[static SAMPLES_WHY],
                  struct sh_err *err)
{
    int64_t fixed = graph_fixed_batch(g);
    int rc = SH_OK;

    *independent = true;
    why[0] = '\0';
    if (fixed == 1)
        return SH_OK;
    rc = check_at(g, fixed ? fixed : FIRST_BATCH, independent, why, err);
    if (!rc && *independent && !fixed)
        rc = check_at(g, SECOND_BATCH, independent, why, err);
    if (*independent)
        why[0] = '\0'; /* what mixes does not reach an output */
    return rc;
}
