/* lower.c - the table of operators, constants, and the walk over the nodes. */
#include "common/mem.h"
#include "runtime/model/lower_int.h"

#include <stdlib.h>

static const struct {
    const char *op;
    lower_fn *fn;
} TABLE[] = {
    {"Abs", lower__act},
    {"Acos", lower__act},
    {"Acosh", lower__act},
    {"Add", lower__binary},
    {"And", lower__binary},
    {"Asin", lower__act},
    {"Asinh", lower__act},
    {"Atan", lower__act},
    {"Atanh", lower__act},
    {"AveragePool", lower__pool},
    {"BatchNormalization", lower__batch_norm},
    {"BitwiseAnd", lower__binary},
    {"BitwiseOr", lower__binary},
    {"BitwiseXor", lower__binary},
    {"Cast", lower__cast},
    {"Ceil", lower__act},
    {"Clip", lower__act},
    {"Concat", lower__concat},
    {"Conv", lower__conv},
    {"ConvInteger", lower__conv_integer},
    {"ConvTranspose", lower__conv_transpose},
    {"Cos", lower__act},
    {"Cosh", lower__act},
    {"CumSum", lower__cumsum},
    {"DequantizeLinear", lower__dequantize},
    {"Div", lower__binary},
    {"Dropout", lower__dropout},
    {"DynamicQuantizeLinear", lower__dynamic_quantize},
    {"Elu", lower__act},
    {"Equal", lower__binary},
    {"Erf", lower__act},
    {"Exp", lower__act},
    {"Expand", lower__expand},
    {"FMod", lower__binary},
    {"First", lower__first},
    {"Floor", lower__act},
    {"GRU", lower__rnn},
    {"Gather", lower__gather},
    {"Gelu", lower__act},
    {"Gemm", lower__gemm},
    {"GlobalAveragePool", lower__global_pool},
    {"GlobalLpPool", lower__lp_pool},
    {"GlobalMaxPool", lower__global_pool},
    {"Greater", lower__binary},
    {"GreaterOrEqual", lower__binary},
    {"GroupNormalization", lower__group_norm},
    {"HardSigmoid", lower__act},
    {"HardSwish", lower__act},
    {"Identity", lower__identity},
    {"InstanceNormalization", lower__instance_norm},
    {"LSTM", lower__rnn},
    {"LayerNormalization", lower__layer_norm},
    {"LRN", lower__lrn},
    {"LeakyRelu", lower__act},
    {"Less", lower__binary},
    {"LessOrEqual", lower__binary},
    {"Locate", lower__locate},
    {"Log", lower__act},
    {"LogSoftmax", lower__softmax},
    {"LpNormalization", lower__lp_norm},
    {"LpPool", lower__lp_pool},
    {"MatMul", lower__matmul},
    {"MatMulInteger", lower__matmul_integer},
    {"Max", lower__binary},
    {"MaxPool", lower__pool},
    {"Min", lower__binary},
    {"Mod", lower__binary},
    {"Mul", lower__binary},
    {"Neg", lower__act},
    {"NonMaxSuppression", lower__nms},
    {"Not", lower__logic_not},
    {"Or", lower__binary},
    {"Pad", lower__pad},
    {GRAPH_PIXELS, lower__pixels},
    {"Places", lower__places},
    {"Pow", lower__binary},
    {"QLinearConv", lower__qlinear_conv},
    {"QLinearMatMul", lower__qlinear_matmul},
    {"QuantizeLinear", lower__quantize},
    {"RNN", lower__rnn},
    {"Reciprocal", lower__act},
    {"ReduceMax", lower__reduce},
    {"ReduceMean", lower__reduce},
    {"ReduceMin", lower__reduce},
    {"ReduceProd", lower__reduce},
    {"ReduceSum", lower__reduce},
    {"Relu", lower__act},
    {"Reshape", lower__identity},
    {"Resize", lower__resize},
    {"Round", lower__act},
    {"Scatter", lower__scatter},
    {"ShiftLeft", lower__binary},
    {"ShiftRight", lower__binary},
    {"Sigmoid", lower__act},
    {"Sign", lower__act},
    {"Sin", lower__act},
    {"Sinh", lower__act},
    {"Slice", lower__slice},
    {"Softmax", lower__softmax},
    {"Softplus", lower__act},
    {"Sqrt", lower__act},
    {"Sub", lower__binary},
    {"Tan", lower__act},
    {"Tanh", lower__act},
    {"TopK", lower__topk},
    {"Transpose", lower__transpose},
    {"Where", lower__where},
    {"Xor", lower__binary},
};

static lower_fn *find_lowering(const char *op)
{
    for (size_t i = 0; i < SH_ARRAY_LEN(TABLE); i++)
        if (strcmp(TABLE[i].op, op) == 0)
            return TABLE[i].fn;
    return NULL;
}

const struct graph_value *lower__in(const struct lower *lo, const struct graph_node *n, uint32_t i)
{
    return &lo->g->values[n->in[i]];
}

const struct graph_value *lower__out(const struct lower *lo, const struct graph_node *n)
{
    return &lo->g->values[n->out[0]];
}

bool lower__has(const struct graph_node *n, uint32_t i)
{
    return i < n->n_in && n->in[i] != GRAPH_NONE;
}

void lower__unsupported(struct lower *lo, const struct graph_node *n, const char *why)
{
    IR_FAIL(lo->ir, SH_E_UNSUPPORTED, "%s \"%s\": %s", n->op, n->name, why);
}

int64_t lower__int(struct lower *lo, const struct graph_node *n, const char *name, int64_t def)
{
    int64_t v;

    graph_int(n, name, def, &v, &lo->ir->err);
    return v;
}

float lower__float(struct lower *lo, const struct graph_node *n, const char *name)
{
    double v;

    graph_float(n, name, 0.0, &v, &lo->ir->err);
    return (float)v;
}

const char *lower__str(struct lower *lo, const struct graph_node *n, const char *name,
                       const char *def)
{
    const char *v;

    graph_str(n, name, def, &v, &lo->ir->err);
    return v;
}

size_t lower__ints(struct lower *lo, const struct graph_node *n, const char *name, int64_t *out,
                   size_t max)
{
    size_t k;

    graph_ints(n, name, out, max, &k, &lo->ir->err);
    return k;
}

static bool is_value_trained(const struct lower *lo, const struct graph_value *v)
{
    return lo->training && v->is_param && v->dtype == SH_F32;
}

/* A constant that follows from the sizes of symbols: no weight, as all sizes share those. */
static bool is_sent(const struct lower *lo, const struct graph_value *v)
{
    return !lo->training && v->data && v->by_size;
}

/* A constant that training does not change. */
static bool is_value_fixed(const struct lower *lo, uint32_t value)
{
    const struct graph_value *v = &lo->g->values[value];

    return v->data && !is_value_trained(lo, v);
}

bool lower__scalar(const struct lower *lo, uint32_t value, double *out)
{
    const struct graph_value *v = &lo->g->values[value];
    int64_t i;
    float f;

    if (!is_value_fixed(lo, value) || graph_elements(v) != 1)
        return false;
    switch (v->dtype) {
    case SH_F32:
        memcpy(&f, v->data, sizeof(f));
        *out = (double)f;
        return true;
    case SH_I64:
        memcpy(&i, v->data, sizeof(i));
        *out = (double)i;
        return true;
    default:
        return false;
    }
}

uint32_t lower__use_value(struct lower *lo, uint32_t value)
{
    const struct graph_value *v = &lo->g->values[value];
    enum dev_role role = is_sent(lo, v) ? DEV_ROLE_INPUT
                         : lo->training ? DEV_ROLE_STATE
                                        : DEV_ROLE_WEIGHT;
    uint32_t t = lo->tensor_of[value];
    struct ir_info *info;

    if (t != DEV_NONE)
        return t;
    if (!v->data && (graph_elements(v) != 0 || lo->writer_of[value] != GRAPH_NONE))
        IR_FAIL(lo->ir, SH_E_INVALID, "\"%s\" is used before anything computes it", v->name);
    t = ir_tensor(lo->ir, v->name, v->dtype, role, (uint32_t)v->rank, v->dims);
    info = ir_info(lo->ir, t);
    *(is_sent(lo, v) ? &info->sent : &info->data) = v->data;
    if (is_value_trained(lo, v)) {
        info->state = IR_PARAM;
        info->of = v->of;
    }
    lo->tensor_of[value] = t;
    return t;
}

uint32_t lower__use(struct lower *lo, const struct graph_node *n, uint32_t i)
{
    return lower__has(n, i) ? lower__use_value(lo, n->in[i]) : DEV_NONE;
}

void lower__use_all(struct lower *lo, const struct graph_node *n, uint32_t k, uint32_t *out)
{
    for (uint32_t i = 0; i < k; i++)
        out[i] = lower__use(lo, n, i);
}

struct dev_op lower__op(struct lower *lo, const struct graph_node *n, enum dev_op_kind kind,
                        uint32_t k)
{
    uint32_t in[DEV_MAX_IN];

    lower__use_all(lo, n, k, in);
    return ir_op(kind, n->name, k, in);
}

void lower__emit(struct lower *lo, const struct graph_node *n, struct dev_op *op)
{
    const struct graph_value *y = lower__out(lo, n);

    op->out[0] = lo->tensor_of[n->out[0]] =
        ir_tensor(lo->ir, y->name, y->dtype, DEV_ROLE_ACT, (uint32_t)y->rank, y->dims);
    op->n_out = SH_MAX(op->n_out, 1u);
    ir_push(lo->ir, op);
}

void lower__gives(struct lower *lo, const struct graph_node *n, uint32_t k, uint32_t t)
{
    const struct graph_value *y;

    if (k >= n->n_out || n->out[k] == GRAPH_NONE)
        return;
    y = &lo->g->values[n->out[k]];
    lo->tensor_of[n->out[k]] = ir_alias(lo->ir, t, (uint32_t)y->rank, y->dims);
}

void lower__is(struct lower *lo, const struct graph_node *n, uint32_t t)
{
    lower__gives(lo, n, 0, t);
}

/* ------------------------------------------------------------------ the walk */

static void add_inputs(struct lower *lo)
{
    const struct graph *g = lo->g;

    for (uint32_t i = 0; i < g->n_inputs; i++) {
        const struct graph_value *v = &g->values[g->inputs[i]];

        lo->ir->inputs[i] = lo->tensor_of[g->inputs[i]] =
            ir_tensor(lo->ir, v->name, v->dtype, DEV_ROLE_INPUT, (uint32_t)v->rank, v->dims);
    }
}

static bool is_in_list(const uint32_t *list, uint32_t n, uint32_t t, const struct ir *ir)
{
    for (uint32_t i = 0; i < n; i++)
        if (ir_root(ir, list[i]) == ir_root(ir, t))
            return true;
    return false;
}

/* An output has bytes of its own: neither an input's, nor a constant's, nor another output's. */
static void add_program_output(struct lower *lo, uint32_t value)
{
    struct ir *ir = lo->ir;
    const char *name = lo->g->values[value].name;
    uint32_t t = lower__use_value(lo, value);

    if (ir_t(ir, ir_root(ir, t))->role != DEV_ROLE_ACT ||
        is_in_list(ir->outputs, ir->n_outputs, t, ir)) {
        struct dev_op op = ir_op(DEV_OP_COPY, name, 1, (uint32_t[]){t});

        t = ir_emit_like(ir, &op, t);
    }
    ir_t(ir, t)->name = name;
    ir->outputs[ir->n_outputs++] = t;
}

/* Behind the outputs how many there are, of each that has an axis that is counted. */
static void add_outputs(struct lower *lo)
{
    const struct graph *g = lo->g;

    for (uint32_t i = 0; i < g->n_outputs; i++)
        add_program_output(lo, g->outputs[i]);
    for (uint32_t i = 0; i < g->n_outputs; i++)
        if (g->values[g->outputs[i]].counted)
            add_program_output(lo, g->values[g->outputs[i]].count);
}

static void walk_nodes(struct lower *lo)
{
    const struct graph *g = lo->g;

    for (uint32_t i = 0; i < g->n_nodes && lo->ir->err.rc == SH_OK; i++) {
        const struct graph_node *n = &g->nodes[i];
        lower_fn *fn = find_lowering(n->op);

        if (fn)
            fn(lo, n);
        else
            lower__unsupported(lo, n, "the operator is not supported");
    }
}

static int prepare_lower(struct lower *lo, struct sh_err *err)
{
    const struct graph *g = lo->g;

    lo->tensor_of = malloc((g->n_values + 1u) * sizeof(uint32_t));
    lo->writer_of = malloc((g->n_values + 1u) * sizeof(uint32_t));
    lo->ir->inputs = calloc(g->n_inputs + 1u, sizeof(uint32_t));
    lo->ir->outputs = calloc(2u * g->n_outputs + 1u, sizeof(uint32_t));
    if (!lo->tensor_of || !lo->writer_of || !lo->ir->inputs || !lo->ir->outputs)
        return SH_FAIL(err, SH_E_NOMEM, "could not allocate the tables of %u values", g->n_values);
    lo->ir->n_inputs = g->n_inputs;
    for (uint32_t i = 0; i < g->n_values; i++) {
        lo->tensor_of[i] = DEV_NONE;
        lo->writer_of[i] = GRAPH_NONE;
    }
    for (uint32_t i = 0; i < g->n_nodes; i++)
        for (uint32_t k = 0; k < g->nodes[i].n_out; k++)
            if (g->nodes[i].out[k] != GRAPH_NONE)
                lo->writer_of[g->nodes[i].out[k]] = i;
    return SH_OK;
}

int lower_graph(const struct graph *g, bool training, struct ir **out, struct sh_err *err)
{
    struct lower lo = {.g = g, .training = training};
    int rc;

    *out = NULL;
    rc = ir_new(&lo.ir, err);
    if (!rc)
        rc = prepare_lower(&lo, err);
    if (!rc) {
        add_inputs(&lo);
        walk_nodes(&lo);
        add_outputs(&lo);
        ir_drop_unused(lo.ir);
        rc = ir_done(lo.ir, err);
    }
    if (!rc) {
        *out = lo.ir;
        lo.ir = NULL;
    }
    free(lo.tensor_of);
    free(lo.writer_of);
    ir_free(lo.ir);
    return rc;
}
