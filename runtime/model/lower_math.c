/* lower_math.c - element-wise operators, reductions, softmax and products. */
#include "common/mem.h"
#include "runtime/model/lower_int.h"

#include <math.h>
#include <stdlib.h>

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

static int emit_act(struct lower *lo, const struct graph_node *n, uint32_t x, enum dev_act act,
                    double p0, double p1, struct sh_err *err)
{
    uint32_t y;
    int rc = ir_act(lo->ir, act, (float)p0, (float)p1, n->name, x, &y, err);

    return rc ? rc : lower__is(lo, n, y, err);
}

int lower__act(struct lower *lo, const struct graph_node *n, struct sh_err *err)
{
    const char *approximate;
    float p0 = 0.0f, p1 = 0.0f;
    enum dev_act act;
    uint32_t x;
    size_t i = 0;
    int rc = lower__use(lo, n, 0, &x, err);

    while (strcmp(ACTS[i].op, n->op) != 0)
        i++; /* the table of operators sends only these here */
    act = ACTS[i].act;
    if (!rc && ACTS[i].p0)
        rc = lower__float(n, ACTS[i].p0, &p0, err);
    if (!rc && ACTS[i].p1)
        rc = lower__float(n, ACTS[i].p1, &p1, err);
    if (!rc)
        rc = graph_str(n, "approximate", "none", &approximate, err);
    if (rc)
        return rc;
    if (act == DEV_ACT_GELU_ERF && strcmp(approximate, "tanh") == 0)
        act = DEV_ACT_GELU_TANH;
    return emit_act(lo, n, x, act, (double)p0, (double)p1, err);
}

int lower__cast(struct lower *lo, const struct graph_node *n, struct sh_err *err)
{
    struct dev_op op;
    uint32_t x;
    int rc = lower__use(lo, n, 0, &x, err);

    if (rc)
        return rc;
    op = ir_op(DEV_OP_COPY, n->name, 1, &x);
    return lower__emit(lo, n, &op, err);
}

int lower__softmax(struct lower *lo, const struct graph_node *n, struct sh_err *err)
{
    struct dev_op op;
    uint32_t x;
    int rc = lower__use(lo, n, 0, &x, err);

    if (rc)
        return rc;
    op = ir_op(DEV_OP_SOFTMAX, n->name, 1, &x);
    op.u.axis.log = strcmp(n->op, "LogSoftmax") == 0;
    rc = graph_int(n, "axis", -1, &op.u.axis.axis, err);
    return rc ? rc : lower__emit(lo, n, &op, err);
}

/* The mean over both spatial axes is a pool, which keeps the device's layout for images. */
static int reduce_as_pool(struct lower *lo, const struct graph_node *n, uint32_t x,
                          struct sh_err *err)
{
    struct dev_op op = ir_op(DEV_OP_POOL_AVG, n->name, 1, &x);
    struct dev_tensor d = *ir_t(lo->ir, x);
    uint32_t y;
    int rc;

    op.u.pool.groups = 1;
    for (int i = 0; i < 2; i++) {
        op.u.pool.kernel[i] = d.dims[2 + i];
        op.u.pool.stride[i] = op.u.pool.dilation[i] = 1;
    }
    rc = ir_emit(lo->ir, &op, d.dtype, 4, (int64_t[]){d.dims[0], d.dims[1], 1, 1}, &y, err);
    return rc ? rc : lower__is(lo, n, y, err);
}

int lower__reduce(struct lower *lo, const struct graph_node *n, struct sh_err *err)
{
    int64_t axes[SH_MAX_RANK], keep;
    struct dev_op op;
    size_t k = 0;
    uint32_t x;
    int rc = lower__use(lo, n, 0, &x, err);

    if (!rc)
        rc = graph_ints(n, "axes", axes, SH_MAX_RANK, &k, err);
    if (!rc)
        rc = graph_int(n, "keepdims", 1, &keep, err);
    if (rc)
        return rc;
    op = ir_op(DEV_OP_REDUCE, n->name, 1, &x);
    op.u.reduce.keep_dims = keep != 0;
    for (size_t i = 0; i < k; i++)
        op.u.reduce.axes |= 1u << axes[i];
    op.u.reduce.kind = strcmp(n->op, "ReduceMean") == 0   ? DEV_RED_MEAN
                       : strcmp(n->op, "ReduceMax") == 0  ? DEV_RED_MAX
                       : strcmp(n->op, "ReduceMin") == 0  ? DEV_RED_MIN
                       : strcmp(n->op, "ReduceProd") == 0 ? DEV_RED_PROD
                                                          : DEV_RED_SUM;
    if (op.u.reduce.kind == DEV_RED_MEAN && ir_t(lo->ir, x)->rank == 4 &&
        ir_t(lo->ir, x)->dtype == SH_F32 && op.u.reduce.axes == 0xC)
        return reduce_as_pool(lo, n, x, err);
    return lower__emit(lo, n, &op, err);
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

static int linear(struct lower *lo, const struct graph_node *n, uint32_t x, double p0, double p1,
                  struct sh_err *err)
{
    return emit_act(lo, n, x, DEV_ACT_LINEAR, p0, p1, err);
}

/* x op c */
static int scalar_right(struct lower *lo, const struct graph_node *n, enum dev_bin k, uint32_t x,
                        double c, struct sh_err *err)
{
    uint32_t y;
    int rc;

    switch (k) {
    case DEV_BIN_ADD:
        return linear(lo, n, x, 1.0, c, err);
    case DEV_BIN_SUB:
        return linear(lo, n, x, 1.0, -c, err);
    case DEV_BIN_MUL:
        return linear(lo, n, x, c, 0.0, err);
    case DEV_BIN_DIV:
        return linear(lo, n, x, 1.0 / c, 0.0, err);
    case DEV_BIN_MAX:
        return emit_act(lo, n, x, DEV_ACT_CLIP, c, (double)INFINITY, err);
    case DEV_BIN_MIN:
        return emit_act(lo, n, x, DEV_ACT_CLIP, -(double)INFINITY, c, err);
    case DEV_BIN_POW:
        if (c == 0.5)
            return emit_act(lo, n, x, DEV_ACT_SQRT, 0.0, 0.0, err);
        if (c != 2.0)
            return emit_act(lo, n, x, DEV_ACT_POW, c, 0.0, err);
        rc = ir_binary(lo->ir, DEV_BIN_MUL, n->name, x, x, x, &y, err);
        return rc ? rc : lower__is(lo, n, y, err);
    default:
        return SH_E_UNSUPPORTED; /* not this way; no failure is recorded */
    }
}

/* c op x */
static int scalar_left(struct lower *lo, const struct graph_node *n, enum dev_bin k, double c,
                       uint32_t x, struct sh_err *err)
{
    uint32_t y;
    int rc;

    switch (k) {
    case DEV_BIN_SUB:
        return linear(lo, n, x, -1.0, c, err);
    case DEV_BIN_DIV:
        rc = ir_act(lo->ir, DEV_ACT_RECIP, 0.0f, 0.0f, n->name, x, &y, err);
        return rc ? rc : linear(lo, n, y, c, 0.0, err);
    case DEV_BIN_POW:
        return SH_E_UNSUPPORTED;
    default:
        return scalar_right(lo, n, k, x, c, err);
    }
}

/* A constant factor or offset needs no second operand. SH_E_UNSUPPORTED: it is not such a case. */
static int with_scalar(struct lower *lo, const struct graph_node *n, enum dev_bin k,
                       struct sh_err *err)
{
    const struct graph_value *y = lower__out(lo, n);
    uint32_t x;
    double c;
    int rc;

    if (y->dtype != SH_F32)
        return SH_E_UNSUPPORTED;
    for (uint32_t i = 2; i-- > 0;) { /* the right one first */
        if (!lower__scalar(lo, n->in[i], &c) ||
            graph_elements(lower__in(lo, n, 1 - i)) != graph_elements(y) ||
            lower__in(lo, n, 1 - i)->dtype != SH_F32)
            continue;
        rc = lower__use(lo, n, 1 - i, &x, err);
        if (rc)
            return rc;
        rc = i == 1 ? scalar_right(lo, n, k, x, c, err) : scalar_left(lo, n, k, c, x, err);
        if (rc != SH_E_UNSUPPORTED)
            return rc;
    }
    return SH_E_UNSUPPORTED;
}

int lower__binary(struct lower *lo, const struct graph_node *n, struct sh_err *err)
{
    struct dev_op op;
    uint32_t in[2];
    size_t i = 0;
    int rc;

    while (strcmp(BINS[i].op, n->op) != 0)
        i++; /* the table of operators sends only these here */
    rc = with_scalar(lo, n, BINS[i].bin, err);
    if (rc != SH_E_UNSUPPORTED)
        return rc;
    rc = lower__use_all(lo, n, 2, in, err);
    if (rc)
        return rc;
    op = ir_op(DEV_OP_BINARY, n->name, 2, in);
    op.u.binary.kind = BINS[i].bin;
    return lower__emit(lo, n, &op, err);
}

/* not x is x == false */
int lower__logic_not(struct lower *lo, const struct graph_node *n, struct sh_err *err)
{
    struct dev_op op;
    uint8_t *zero;
    uint32_t in[2];
    int rc = lower__use(lo, n, 0, &in[0], err);

    if (rc)
        return rc;
    zero = calloc(1, 1);
    if (!zero)
        return SH_FAIL(err, SH_E_NOMEM, "could not allocate a constant");
    rc = lower__table(
        lo,
        &(struct lower_table){
            .name = n->name, .dtype = SH_BOOL, .n = 1, .by_size = lower__out(lo, n)->by_size},
        zero, &in[1], err);
    if (rc)
        return rc;
    op = ir_op(DEV_OP_BINARY, n->name, 2, in);
    op.u.binary.kind = DEV_BIN_EQUAL;
    return lower__emit(lo, n, &op, err);
}

int lower__where(struct lower *lo, const struct graph_node *n, struct sh_err *err)
{
    struct dev_op op;
    uint32_t in[3];
    int rc = lower__use_all(lo, n, 3, in, err);

    if (rc)
        return rc;
    op = ir_op(DEV_OP_WHERE, n->name, 3, in);
    return lower__emit(lo, n, &op, err);
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

static int operand(struct lower *lo, uint32_t value, bool may_turn, uint32_t *t, bool *trans,
                   struct sh_err *err)
{
    uint32_t from = may_turn ? untransposed(lo, value) : GRAPH_NONE;

    if (from == GRAPH_NONE)
        return lower__use_value(lo, value, t, err);
    *trans = !*trans;
    return lower__use_value(lo, from, t, err);
}

/* a[..., m, k] with a plain b[k, n] is one large product: a seen as [.. m, k]. */
static int flatten_rows(struct lower *lo, uint32_t *a, struct sh_err *err)
{
    const struct dev_tensor *d = ir_t(lo->ir, *a);
    int64_t k = d->dims[d->rank - 1], rows = 1;

    for (uint32_t i = 0; i + 1 < d->rank; i++)
        rows *= d->dims[i];
    return ir_alias(lo->ir, *a, 2, (int64_t[]){rows, k}, a, err);
}

int lower__matmul(struct lower *lo, const struct graph_node *n, struct sh_err *err)
{
    const struct graph_value *a = lower__in(lo, n, 0), *b = lower__in(lo, n, 1);
    const struct graph_value *y = lower__out(lo, n);
    bool flat = a->rank != 2 && b->rank <= 2;
    int64_t dims[SH_MAX_RANK];
    uint32_t in[4] = {DEV_NONE, DEV_NONE, DEV_NONE, DEV_NONE}, rank = (uint32_t)y->rank, t;
    struct dev_op op = ir_op(DEV_OP_MATMUL, n->name, 4, in);
    int rc;

    op.u.matmul.alpha = 1.0f;
    memcpy(dims, y->dims, sizeof(dims));
    rc = operand(lo, n->in[0], a->rank >= 2 && !flat, &op.in[0], &op.u.matmul.trans_a, err);
    if (!rc)
        rc = operand(lo, n->in[1], b->rank >= 2, &op.in[1], &op.u.matmul.trans_b, err);
    if (!rc && b->rank == 1) /* a column */
        rc = ir_alias(lo->ir, op.in[1], 2, (int64_t[]){b->dims[0], 1}, &op.in[1], err);
    if (!rc && a->rank == 1 && b->rank > 2) /* a row, for each matrix of b */
        rc = ir_alias(lo->ir, op.in[0], 2, (int64_t[]){1, a->dims[0]}, &op.in[0], err);
    if (!rc && flat)
        rc = flatten_rows(lo, &op.in[0], err);
    if (rc)
        return rc;
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
    rc = ir_emit(lo->ir, &op, y->dtype, rank, dims, &t, err);
    return rc ? rc : lower__is(lo, n, t, err);
}

/* How C enters: as the bias of each column, as a full matrix, or by a broadcast of its own. */
static int gemm_c(struct lower *lo, const struct graph_node *n, struct dev_op *op, uint32_t *c,
                  struct sh_err *err)
{
    const struct graph_value *y = lower__out(lo, n);
    const struct dev_tensor *d;
    float beta;
    int64_t elements;
    int rc = lower__float(n, "beta", &beta, err);

    if (!rc)
        rc = lower__use(lo, n, 2, c, err);
    if (rc)
        return rc;
    if (beta == 0.0f)
        *c = DEV_NONE;
    if (*c != DEV_NONE && beta != 1.0f)
        rc = ir_act(lo->ir, DEV_ACT_LINEAR, beta, 0.0f, n->name, *c, c, err);
    if (rc || *c == DEV_NONE)
        return rc;
    d = ir_t(lo->ir, *c);
    elements = ir_elements(lo->ir, *c);
    if (d->rank >= 1 && d->dims[d->rank - 1] == y->dims[1] && elements == y->dims[1])
        rc = ir_alias(lo->ir, *c, 1, &y->dims[1], &op->in[2], err);
    else if (d->rank == 2 && elements == y->dims[0] * y->dims[1])
        op->in[3] = *c;
    else
        return SH_OK; /* left in *c */
    *c = DEV_NONE;
    return rc;
}

int lower__gemm(struct lower *lo, const struct graph_node *n, struct sh_err *err)
{
    const struct graph_value *y = lower__out(lo, n);
    uint32_t in[4] = {DEV_NONE, DEV_NONE, DEV_NONE, DEV_NONE}, c = DEV_NONE, t;
    struct dev_op op = ir_op(DEV_OP_MATMUL, n->name, 4, in);
    int64_t ta, tb;
    int rc = lower__float(n, "alpha", &op.u.matmul.alpha, err);

    if (!rc)
        rc = graph_int(n, "transA", 0, &ta, err);
    if (!rc)
        rc = graph_int(n, "transB", 0, &tb, err);
    if (rc)
        return rc;
    op.u.matmul.trans_a = ta != 0;
    op.u.matmul.trans_b = tb != 0;
    rc = operand(lo, n->in[0], true, &op.in[0], &op.u.matmul.trans_a, err);
    if (!rc)
        rc = operand(lo, n->in[1], true, &op.in[1], &op.u.matmul.trans_b, err);
    if (!rc)
        rc = gemm_c(lo, n, &op, &c, err);
    if (!rc)
        rc = ir_emit(lo->ir, &op, y->dtype, 2, y->dims, &t, err);
    if (!rc && c != DEV_NONE)
        rc = ir_binary(lo->ir, DEV_BIN_ADD, n->name, t, c, t, &t, err);
    return rc ? rc : lower__is(lo, n, t, err);
}
