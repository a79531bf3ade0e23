/* lower_math.c - element-wise operators, reductions, softmax and products. */
#include "common/mem.h"
#include "runtime/model/lower_int.h"

#include <math.h>

/* ------------------------------------------------------------------ one input */

static const struct {
    const char *op;
    enum dev_act act;
    const char *p0, *p1; /* attributes */
} ACTS[] = {
    {"Abs", DEV_ACT_ABS, NULL, NULL},
    {"Acos", DEV_ACT_ACOS, NULL, NULL},
    {"Acosh", DEV_ACT_ACOSH, NULL, NULL},
    {"Asin", DEV_ACT_ASIN, NULL, NULL},
    {"Asinh", DEV_ACT_ASINH, NULL, NULL},
    {"Atan", DEV_ACT_ATAN, NULL, NULL},
    {"Atanh", DEV_ACT_ATANH, NULL, NULL},
    {"Ceil", DEV_ACT_CEIL, NULL, NULL},
    {"Clip", DEV_ACT_CLIP, "min", "max"},
    {"Cos", DEV_ACT_COS, NULL, NULL},
    {"Cosh", DEV_ACT_COSH, NULL, NULL},
    {"Elu", DEV_ACT_ELU, "alpha", NULL},
    {"Erf", DEV_ACT_ERF, NULL, NULL},
    {"Exp", DEV_ACT_EXP, NULL, NULL},
    {"Floor", DEV_ACT_FLOOR, NULL, NULL},
    {"Gelu", DEV_ACT_GELU_ERF, NULL, NULL},
    {"HardSigmoid", DEV_ACT_HARDSIGMOID, "alpha", "beta"},
    {"HardSwish", DEV_ACT_HARDSWISH, NULL, NULL},
    {"LeakyRelu", DEV_ACT_LEAKY_RELU, "alpha", NULL},
    {"Log", DEV_ACT_LOG, NULL, NULL},
    {"Neg", DEV_ACT_NEG, NULL, NULL},
    {"Reciprocal", DEV_ACT_RECIP, NULL, NULL},
    {"Relu", DEV_ACT_RELU, NULL, NULL},
    {"Round", DEV_ACT_ROUND, NULL, NULL},
    {"Sigmoid", DEV_ACT_SIGMOID, NULL, NULL},
    {"Sign", DEV_ACT_SIGN, NULL, NULL},
    {"Sin", DEV_ACT_SIN, NULL, NULL},
    {"Sinh", DEV_ACT_SINH, NULL, NULL},
    {"Softplus", DEV_ACT_SOFTPLUS, NULL, NULL},
    {"Sqrt", DEV_ACT_SQRT, NULL, NULL},
    {"Tan", DEV_ACT_TAN, NULL, NULL},
    {"Tanh", DEV_ACT_TANH, NULL, NULL},
};

static void emit_act(struct lower *lo, const struct graph_node *n, uint32_t x, enum dev_act act,
                     double p0, double p1)
{
    lower__is(lo, n, ir_act(lo->ir, act, (float)p0, (float)p1, n->name, x));
}

void lower__act(struct lower *lo, const struct graph_node *n)
{
    const uint32_t x = lower__use(lo, n, 0);
    float p0 = 0.0f, p1 = 0.0f;
    enum dev_act act;
    size_t i = 0;

    while (strcmp(ACTS[i].op, n->op) != 0)
        i++; /* the table of operators sends only these here */
    act = ACTS[i].act;
    if (ACTS[i].p0)
        p0 = lower__float(lo, n, ACTS[i].p0);
    if (ACTS[i].p1)
        p1 = lower__float(lo, n, ACTS[i].p1);
    if (act == DEV_ACT_GELU_ERF && strcmp(lower__str(lo, n, "approximate", "none"), "tanh") == 0)
        act = DEV_ACT_GELU_TANH;
    emit_act(lo, n, x, act, (double)p0, (double)p1);
}

void lower__cast(struct lower *lo, const struct graph_node *n)
{
    struct dev_op op = lower__op(lo, n, DEV_OP_COPY, 1);

    lower__emit(lo, n, &op);
}

void lower__softmax(struct lower *lo, const struct graph_node *n)
{
    struct dev_op op = lower__op(lo, n, DEV_OP_SOFTMAX, 1);

    op.u.axis.log = strcmp(n->op, "LogSoftmax") == 0;
    op.u.axis.axis = lower__int(lo, n, "axis", -1);
    lower__emit(lo, n, &op);
}

/* The mean over both spatial axes is a pool, which keeps the device's layout for images. */
static void reduce_as_pool(struct lower *lo, const struct graph_node *n, uint32_t x)
{
    struct dev_op op = ir_op(DEV_OP_POOL_AVG, n->name, 1, &x);
    struct dev_tensor d = *ir_t(lo->ir, x);

    op.u.pool.groups = 1;
    for (int i = 0; i < 2; i++) {
        op.u.pool.kernel[i] = d.dims[2 + i];
        op.u.pool.stride[i] = op.u.pool.dilation[i] = 1;
    }
    lower__is(lo, n, ir_emit(lo->ir, &op, d.dtype, 4, (int64_t[]){d.dims[0], d.dims[1], 1, 1}));
}

void lower__reduce(struct lower *lo, const struct graph_node *n)
{
    struct dev_op op = lower__op(lo, n, DEV_OP_REDUCE, 1);
    const struct dev_tensor *x = ir_t(lo->ir, op.in[0]);
    int64_t axes[SH_MAX_RANK];
    const size_t k = lower__ints(lo, n, "axes", axes, SH_MAX_RANK);

    op.u.reduce.keep_dims = lower__int(lo, n, "keepdims", 1) != 0;
    for (size_t i = 0; i < k; i++)
        op.u.reduce.axes |= 1u << axes[i];
    op.u.reduce.kind = strcmp(n->op, "ReduceMean") == 0   ? DEV_RED_MEAN
                       : strcmp(n->op, "ReduceMax") == 0  ? DEV_RED_MAX
                       : strcmp(n->op, "ReduceMin") == 0  ? DEV_RED_MIN
                       : strcmp(n->op, "ReduceProd") == 0 ? DEV_RED_PROD
                                                          : DEV_RED_SUM;
    if (op.u.reduce.kind == DEV_RED_MEAN && x->rank == 4 && x->dtype == SH_F32 &&
        op.u.reduce.axes == 0xC)
        reduce_as_pool(lo, n, op.in[0]);
    else
        lower__emit(lo, n, &op);
}

/* ------------------------------------------------------------------ two inputs */

static const struct {
    const char *op;
    enum dev_bin bin;
} BINS[] = {
    {"Add", DEV_BIN_ADD},
    {"And", DEV_BIN_MUL},
    {"BitwiseAnd", DEV_BIN_BIT_AND},
    {"BitwiseOr", DEV_BIN_BIT_OR},
    {"BitwiseXor", DEV_BIN_BIT_XOR},
    {"Div", DEV_BIN_DIV},
    {"Equal", DEV_BIN_EQUAL},
    {"FMod", DEV_BIN_FMOD},
    {"Greater", DEV_BIN_GREATER},
    {"GreaterOrEqual", DEV_BIN_GREATER_EQUAL},
    {"Less", DEV_BIN_LESS},
    {"LessOrEqual", DEV_BIN_LESS_EQUAL},
    {"Max", DEV_BIN_MAX},
    {"Min", DEV_BIN_MIN},
    {"Mod", DEV_BIN_MOD},
    {"Mul", DEV_BIN_MUL},
    {"Or", DEV_BIN_MAX},
    {"Pow", DEV_BIN_POW},
    {"ShiftLeft", DEV_BIN_SHIFT_LEFT},
    {"ShiftRight", DEV_BIN_SHIFT_RIGHT},
    {"Sub", DEV_BIN_SUB},
    {"Xor", DEV_BIN_BIT_XOR},
};

/* x op c. false: not this way. */
static bool scalar_right(struct lower *lo, const struct graph_node *n, enum dev_bin k, uint32_t x,
                         double c)
{
    switch (k) {
    case DEV_BIN_ADD:
        emit_act(lo, n, x, DEV_ACT_LINEAR, 1.0, c);
        return true;
    case DEV_BIN_SUB:
        emit_act(lo, n, x, DEV_ACT_LINEAR, 1.0, -c);
        return true;
    case DEV_BIN_MUL:
        emit_act(lo, n, x, DEV_ACT_LINEAR, c, 0.0);
        return true;
    case DEV_BIN_DIV:
        emit_act(lo, n, x, DEV_ACT_LINEAR, 1.0 / c, 0.0);
        return true;
    case DEV_BIN_MAX:
        emit_act(lo, n, x, DEV_ACT_CLIP, c, (double)INFINITY);
        return true;
    case DEV_BIN_MIN:
        emit_act(lo, n, x, DEV_ACT_CLIP, -(double)INFINITY, c);
        return true;
    case DEV_BIN_POW:
        if (c == 2.0)
            lower__is(lo, n, ir_binary(lo->ir, DEV_BIN_MUL, n->name, x, x, x));
        else if (c == 0.5)
            emit_act(lo, n, x, DEV_ACT_SQRT, 0.0, 0.0);
        else
            emit_act(lo, n, x, DEV_ACT_POW, c, 0.0);
        return true;
    default:
        return false;
    }
}

/* c op x. false: not this way. */
static bool scalar_left(struct lower *lo, const struct graph_node *n, enum dev_bin k, double c,
                        uint32_t x)
{
    switch (k) {
    case DEV_BIN_SUB:
        emit_act(lo, n, x, DEV_ACT_LINEAR, -1.0, c);
        return true;
    case DEV_BIN_DIV:
        x = ir_act(lo->ir, DEV_ACT_RECIP, 0.0f, 0.0f, n->name, x);
        emit_act(lo, n, x, DEV_ACT_LINEAR, c, 0.0);
        return true;
    case DEV_BIN_POW:
        return false;
    default:
        return scalar_right(lo, n, k, x, c);
    }
}

/* A constant factor or offset needs no second operand. false: it is not such a case. */
static bool with_scalar(struct lower *lo, const struct graph_node *n, enum dev_bin k)
{
    const struct graph_value *y = lower__out(lo, n);
    double c;

    for (uint32_t i = 2; i-- > 0 && y->dtype == SH_F32;) { /* the right one first */
        const struct graph_value *x = lower__in(lo, n, 1 - i);

        if (!lower__scalar(lo, n->in[i], &c) || graph_elements(x) != graph_elements(y) ||
            x->dtype != SH_F32)
            continue;
        if (i == 1 ? scalar_right(lo, n, k, lower__use(lo, n, 0), c)
                   : scalar_left(lo, n, k, c, lower__use(lo, n, 1)))
            return true;
    }
    return false;
}

void lower__binary(struct lower *lo, const struct graph_node *n)
{
    struct dev_op op;
    size_t i = 0;

    while (strcmp(BINS[i].op, n->op) != 0)
        i++; /* the table of operators sends only these here */
    if (with_scalar(lo, n, BINS[i].bin))
        return;
    op = lower__op(lo, n, DEV_OP_BINARY, 2);
    op.u.binary.kind = BINS[i].bin;
    lower__emit(lo, n, &op);
}

/* not x is x == false */
void lower__logic_not(struct lower *lo, const struct graph_node *n)
{
    const struct lower_table zero = {
        .name = n->name, .dtype = SH_BOOL, .n = 1, .by_size = lower__out(lo, n)->by_size};
    struct dev_op op = lower__op(lo, n, DEV_OP_BINARY, 1);

    op.in[op.n_in++] = lower__table(lo, &zero, ir_alloc(lo->ir, 1, 1));
    op.u.binary.kind = DEV_BIN_EQUAL;
    lower__emit(lo, n, &op);
}

void lower__where(struct lower *lo, const struct graph_node *n)
{
    struct dev_op op = lower__op(lo, n, DEV_OP_WHERE, 3);

    lower__emit(lo, n, &op);
}

/* ------------------------------------------------------------------ products */

/* The value that a Transpose of the last two axes reads; GRAPH_NONE if v is something else. */
static uint32_t untransposed(const struct lower *lo, uint32_t v)
{
    uint32_t w = lo->writer_of[v];
    int64_t perm[SH_MAX_RANK];
    size_t k = 0;

    if (w == GRAPH_NONE || strcmp(lo->g->nodes[w].op, "Transpose") != 0 ||
        graph_ints(&lo->g->nodes[w], "perm", perm, SH_MAX_RANK, &k, NULL) || k < 2)
        return GRAPH_NONE;
    for (size_t i = 0; i + 2 < k; i++)
        if (perm[i] != (int64_t)i)
            return GRAPH_NONE;
    return perm[k - 1] == (int64_t)k - 2 ? lo->g->nodes[w].in[0] : GRAPH_NONE;
}

static uint32_t product_operand(struct lower *lo, uint32_t value, bool may_turn, bool *trans)
{
    uint32_t from = may_turn ? untransposed(lo, value) : GRAPH_NONE;

    if (from == GRAPH_NONE)
        return lower__use_value(lo, value);
    *trans = !*trans;
    return lower__use_value(lo, from);
}

/* a[..., m, k] with a plain b[k, n] is one large product: a seen as [.. m, k]. */
static uint32_t flatten_rows(struct lower *lo, uint32_t a)
{
    const struct dev_tensor *d = ir_t(lo->ir, a);
    int64_t k = d->dims[d->rank - 1], rows = 1;

    for (uint32_t i = 0; i + 1 < d->rank; i++)
        rows *= d->dims[i];
    return ir_alias(lo->ir, a, 2, (int64_t[]){rows, k});
}

void lower__matmul(struct lower *lo, const struct graph_node *n)
{
    const struct graph_value *a = lower__in(lo, n, 0), *b = lower__in(lo, n, 1);
    const struct graph_value *y = lower__out(lo, n);
    bool flat = a->rank != 2 && b->rank <= 2;
    int64_t dims[SH_MAX_RANK];
    uint32_t in[4] = {DEV_NONE, DEV_NONE, DEV_NONE, DEV_NONE}, rank = (uint32_t)y->rank;
    struct dev_op op = ir_op(DEV_OP_MATMUL, n->name, 4, in);

    op.u.matmul.alpha = 1.0f;
    memcpy(dims, y->dims, sizeof(dims));
    op.in[0] = product_operand(lo, n->in[0], a->rank >= 2 && !flat, &op.u.matmul.trans_a);
    op.in[1] = product_operand(lo, n->in[1], b->rank >= 2, &op.u.matmul.trans_b);
    if (b->rank == 1) /* a column */
        op.in[1] = ir_alias(lo->ir, op.in[1], 2, (int64_t[]){b->dims[0], 1});
    if (a->rank == 1 && b->rank > 2) /* a row, for each matrix of b */
        op.in[0] = ir_alias(lo->ir, op.in[0], 2, (int64_t[]){1, a->dims[0]});
    if (flat)
        op.in[0] = flatten_rows(lo, op.in[0]);
    if (flat || b->rank == 1) {
        dims[0] = ir_t(lo->ir, op.in[0])->dims[0];
        dims[1] = b->rank == 1 ? 1 : b->dims[1];
        rank = 2;
        if (!flat) /* a is a matrix, maybe transposed */
            dims[0] = a->dims[0];
    } else if (a->rank == 1) {
        dims[rank] = dims[rank - 1];
        dims[rank - 1] = 1;
        rank++;
    }
    lower__is(lo, n, ir_emit(lo->ir, &op, y->dtype, rank, dims));
}

/* How C enters: as the bias of each column or as a full matrix, of op; else it is returned, to be
 * broadcast by an operation of its own. */
static uint32_t gemm_c(struct lower *lo, const struct graph_node *n, struct dev_op *op)
{
    const struct graph_value *y = lower__out(lo, n);
    const float beta = lower__float(lo, n, "beta");
    uint32_t c = lower__use(lo, n, 2);
    const struct dev_tensor *d;
    int64_t elements;

    if (beta == 0.0f || c == DEV_NONE)
        return DEV_NONE;
    if (beta != 1.0f)
        c = ir_act(lo->ir, DEV_ACT_LINEAR, beta, 0.0f, n->name, c);
    d = ir_t(lo->ir, c);
    elements = ir_elements(lo->ir, c);
    if (d->rank >= 1 && d->dims[d->rank - 1] == y->dims[1] && elements == y->dims[1])
        op->in[2] = ir_alias(lo->ir, c, 1, &y->dims[1]);
    else if (d->rank == 2 && elements == y->dims[0] * y->dims[1])
        op->in[3] = c;
    else
        return c;
    return DEV_NONE;
}

void lower__gemm(struct lower *lo, const struct graph_node *n)
{
    const struct graph_value *y = lower__out(lo, n);
    uint32_t in[4] = {DEV_NONE, DEV_NONE, DEV_NONE, DEV_NONE}, c, t;
    struct dev_op op = ir_op(DEV_OP_MATMUL, n->name, 4, in);

    op.u.matmul.alpha = lower__float(lo, n, "alpha");
    op.u.matmul.trans_a = lower__int(lo, n, "transA", 0) != 0;
    op.u.matmul.trans_b = lower__int(lo, n, "transB", 0) != 0;
    op.in[0] = product_operand(lo, n->in[0], true, &op.u.matmul.trans_a);
    op.in[1] = product_operand(lo, n->in[1], true, &op.u.matmul.trans_b);
    c = gemm_c(lo, n, &op);
    t = ir_emit(lo->ir, &op, y->dtype, 2, y->dims);
    if (c != DEV_NONE)
        t = ir_binary(lo->ir, DEV_BIN_ADD, n->name, t, c, t);
    lower__is(lo, n, t);
}
