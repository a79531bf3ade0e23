/* shape_eval.c - values of element-wise operators and reductions on constants.
 *
 * Integers are computed in int64 with wrap-around, floats in double and rounded once.
 */
#include "common/mem.h"
#include "runtime/model/shape_int.h"

#include <math.h>
#include <stdlib.h>

/* ---------------------------------------------------------------- one operand */

static double sign(double x)
{
    return x > 0 ? 1 : x < 0 ? -1 : x;
}
static double negative_of(double x)
{
    return -x;
}
static double eval_reciprocal(double x)
{
    return 1.0 / x;
}
static double eval_sigmoid(double x)
{
    return 1.0 / (1.0 + exp(-x));
}
static double eval_softplus(double x)
{
    return fmax(x, 0) + log1p(exp(-fabs(x)));
}
static double eval_relu(double x)
{
    return x > 0 || isnan(x) ? x : 0;
}

static double unary_f64(const char *op, double x)
{
    static const struct {
        const char *op;
        double (*fn)(double);
    } FNS[] = {{"Abs", fabs},
               {"Acos", acos},
               {"Acosh", acosh},
               {"Asin", asin},
               {"Asinh", asinh},
               {"Atan", atan},
               {"Atanh", atanh},
               {"Ceil", ceil},
               {"Cos", cos},
               {"Cosh", cosh},
               {"Erf", erf},
               {"Exp", exp},
               {"Floor", floor},
               {"Log", log},
               {"Neg", negative_of},
               {"Relu", eval_relu},
               {"Reciprocal", eval_reciprocal},
               {"Round", nearbyint},
               {"Sigmoid", eval_sigmoid},
               {"Sign", sign},
               {"Sin", sin},
               {"Sinh", sinh},
               {"Softplus", eval_softplus},
               {"Sqrt", sqrt},
               {"Tan", tan},
               {"Tanh", tanh}};

    for (size_t i = 0; i < SH_ARRAY_LEN(FNS); i++)
        if (strcmp(op, FNS[i].op) == 0)
            return FNS[i].fn(x);
    return NAN; /* the table of operators sends only these here */
}

static int64_t unary_i64(const char *op, int64_t x)
{
    if (strcmp(op, "Not") == 0)
        return !x;
    if (strcmp(op, "BitwiseNot") == 0)
        return ~x;
    if (strcmp(op, "Sign") == 0)
        return x > 0 ? 1 : x < 0 ? -1 : 0;
    if (strcmp(op, "Relu") == 0)
        return x > 0 ? x : 0;
    if (strcmp(op, "Neg") == 0 || (strcmp(op, "Abs") == 0 && x < 0))
        return (int64_t)(0 - (uint64_t)x);
    return x;
}

int shape__eval_unary(struct shape_ctx *c)
{
    struct graph_value x = *shape__in(c, 0);
    int64_t n = graph_elements(&x);
    void *y = shape__alloc(c, 0);

    for (int64_t i = 0; y && i < n; i++) {
        size_t at = (size_t)i;

        if (shape__is_float(x.dtype))
            shape__put_f64(x.dtype, y, at, unary_f64(c->n.op, shape__get_f64(x.dtype, x.data, at)));
        else
            shape__put_i64(x.dtype, y, at, unary_i64(c->n.op, shape__get_i64(x.dtype, x.data, at)));
    }
    return c->err->rc;
}

int shape__eval_cast(struct shape_ctx *c)
{
    struct graph_value x = *shape__in(c, 0);
    enum sh_dtype t = shape__outv(c, 0)->dtype;
    int64_t n = graph_elements(&x);
    void *y = shape__alloc(c, 0);

    for (int64_t i = 0; y && i < n; i++) {
        if (shape__is_float(x.dtype))
            shape__put_f64(t, y, (size_t)i, shape__get_f64(x.dtype, x.data, (size_t)i));
        else
            shape__put_i64(t, y, (size_t)i, shape__get_i64(x.dtype, x.data, (size_t)i));
    }
    return c->err->rc;
}

int shape__eval_clip(struct shape_ctx *c)
{
    struct graph_value x = *shape__in(c, 0);
    const double lo = shape__float(c, "min", -INFINITY), hi = shape__float(c, "max", INFINITY);
    int64_t n = graph_elements(&x);
    void *y = shape__alloc(c, 0);

    for (int64_t i = 0; y && i < n; i++) {
        double v = shape__get_f64(x.dtype, x.data, (size_t)i);

        if (v < lo || v > hi)
            shape__put_f64(x.dtype, y, (size_t)i, v < lo ? lo : hi);
        else if (shape__is_int(x.dtype))
            shape__put_i64(x.dtype, y, (size_t)i, shape__get_i64(x.dtype, x.data, (size_t)i));
        else
            shape__put_f64(x.dtype, y, (size_t)i, v);
    }
    return c->err->rc;
}

/* ---------------------------------------------------------------- two operands */

enum bin {
    ADD,
    SUB,
    MUL,
    DIV,
    MOD,
    FMOD,
    POW,
    MIN_,
    MAX_,
    EQ,
    LT,
    GT,
    LE,
    GE,
    AND,
    OR,
    XOR,
    BIT_AND,
    BIT_OR,
    BIT_XOR,
    SHL,
    SHR,
    N_BIN
};

static enum bin bin_of_name(const char *op)
{
    static const char *const NAMES[N_BIN] = {[ADD] = "Add",          [SUB] = "Sub",
                                             [MUL] = "Mul",          [DIV] = "Div",
                                             [MOD] = "Mod",          [FMOD] = "FMod",
                                             [POW] = "Pow",          [MIN_] = "Min",
                                             [MAX_] = "Max",         [EQ] = "Equal",
                                             [LT] = "Less",          [GT] = "Greater",
                                             [LE] = "LessOrEqual",   [GE] = "GreaterOrEqual",
                                             [AND] = "And",          [OR] = "Or",
                                             [XOR] = "Xor",          [BIT_AND] = "BitwiseAnd",
                                             [BIT_OR] = "BitwiseOr", [BIT_XOR] = "BitwiseXor",
                                             [SHL] = "ShiftLeft",    [SHR] = "ShiftRight"};
    int i = 0;

    while (i < N_BIN && strcmp(NAMES[i], op) != 0)
        i++;
    return i < N_BIN ? (enum bin)i : ADD; /* Sum is Add */
}

/* The sign of the divisor, as ONNX says of Mod. */
static double eval_floor_mod(double a, double b)
{
    const double r = fmod(a, b);

    return r != 0 && (r < 0) != (b < 0) ? r + b : r;
}

static double bin_f64(enum bin op, double a, double b)
{
    switch (op) {
    case ADD:
        return a + b;
    case SUB:
        return a - b;
    case MUL:
        return a * b;
    case DIV:
        return a / b;
    case MOD:
        return eval_floor_mod(a, b);
    case FMOD:
        return fmod(a, b);
    case POW:
        return pow(a, b);
    case MIN_:
        return isnan(a) || a < b ? a : b;
    case MAX_:
        return isnan(a) || a > b ? a : b;
    case EQ:
        return a == b;
    case LT:
        return a < b;
    case GT:
        return a > b;
    case LE:
        return a <= b;
    case GE:
        return a >= b;
    default:
        return NAN;
    }
}

static int64_t div_i64(enum bin op, int64_t a, int64_t b)
{
    int64_t r;

    if (b == -1) /* INT64_MIN / -1 traps */
        return op == DIV ? (int64_t)(0 - (uint64_t)a) : 0;
    if (op == DIV)
        return a / b;
    r = a % b;
    return op == MOD && r != 0 && (r < 0) != (b < 0) ? r + b : r;
}

static int64_t bin_i64(enum bin op, int64_t a, int64_t b)
{
    switch (op) {
    case ADD:
        return (int64_t)((uint64_t)a + (uint64_t)b);
    case SUB:
        return (int64_t)((uint64_t)a - (uint64_t)b);
    case MUL:
        return (int64_t)((uint64_t)a * (uint64_t)b);
    case DIV:
    case MOD:
    case FMOD:
        return div_i64(op, a, b);
    case POW: {
        double p = pow((double)a, (double)b);

        return shape__get_i64(SH_F64, &p, 0);
    }
    case MIN_:
        return a < b ? a : b;
    case MAX_:
        return a > b ? a : b;
    case AND:
        return a && b;
    case OR:
        return a || b;
    case XOR:
        return !a != !b;
    case EQ:
        return a == b;
    case LT:
        return a < b;
    case GT:
        return a > b;
    case LE:
        return a <= b;
    case GE:
        return a >= b;
    case BIT_AND:
        return a & b;
    case BIT_OR:
        return a | b;
    case BIT_XOR:
        return a ^ b;
    case SHL:
        return b < 0 || b > 63 ? 0 : (int64_t)((uint64_t)a << b);
    case SHR:
        return b < 0 || b > 63 ? 0 : (int64_t)((uint64_t)a >> b);
    default:
        return 0;
    }
}

/* y = op(a, b) with broadcasting to y's shape. a and b may be y's own data. */
static int binary_into(struct shape_ctx *c, enum bin op, const struct graph_value *a,
                       const struct graph_value *b, const struct graph_value *y)
{
    int64_t sa[SH_MAX_RANK], sb[SH_MAX_RANK], n = graph_elements(y);
    struct shape_walk w = {.rank = y->rank, .dims = y->dims, .stride = {sa, sb}};

    shape__broadcast_strides(a, y->rank, sa);
    shape__broadcast_strides(b, y->rank, sb);
    for (int64_t i = 0; i < n; i++, shape__step(&w)) {
        size_t ia = (size_t)w.off[0], ib = (size_t)w.off[1];

        if (shape__is_float(a->dtype)) {
            shape__put_f64(y->dtype, y->data, (size_t)i,
                           bin_f64(op, shape__get_f64(a->dtype, a->data, ia),
                                   shape__get_f64(b->dtype, b->data, ib)));
            continue;
        }
        if ((op == DIV || op == MOD || op == FMOD) && shape__get_i64(b->dtype, b->data, ib) == 0)
            return shape__fail(c, SH_E_INVALID, "divides by zero");
        shape__put_i64(y->dtype, y->data, (size_t)i,
                       bin_i64(op, shape__get_i64(a->dtype, a->data, ia),
                               shape__get_i64(b->dtype, b->data, ib)));
    }
    return c->err->rc;
}

int shape__eval_binary(struct shape_ctx *c)
{
    const struct graph_value *a = shape__in(c, 0), *b = shape__in(c, 1);

    if (shape__alloc(c, 0))
        binary_into(c, bin_of_name(c->n.op), a, b, shape__outv(c, 0));
    return c->err->rc;
}

int shape__eval_variadic(struct shape_ctx *c)
{
    const struct graph_value *y = shape__outv(c, 0);

    if (shape__alloc(c, 0))
        binary_into(c, bin_of_name(c->n.op), shape__in(c, 0), shape__in(c, 1), y);
    for (uint32_t i = 2; i < c->n.n_in && c->err->rc == SH_OK; i++)
        binary_into(c, bin_of_name(c->n.op), y, shape__in(c, i), y);
    return c->err->rc;
}

int shape__eval_where(struct shape_ctx *c)
{
    const struct graph_value *q = shape__in(c, 0), *a = shape__in(c, 1), *b = shape__in(c, 2);
    const struct graph_value *y = shape__outv(c, 0);
    size_t size = sh_dtype_bytes(y->dtype);
    int64_t sq[SH_MAX_RANK], sa[SH_MAX_RANK], sb[SH_MAX_RANK], n = graph_elements(y);
    struct shape_walk w = {.rank = y->rank, .dims = y->dims, .stride = {sq, sa, sb}};
    char *data = shape__alloc(c, 0);

    shape__broadcast_strides(q, y->rank, sq);
    shape__broadcast_strides(a, y->rank, sa);
    shape__broadcast_strides(b, y->rank, sb);
    for (int64_t i = 0; data && i < n; i++, shape__step(&w)) {
        bool yes = ((const uint8_t *)q->data)[w.off[0]] != 0;
        const char *from = yes ? (const char *)a->data + (size_t)w.off[1] * size
                               : (const char *)b->data + (size_t)w.off[2] * size;

        memcpy(data + (size_t)i * size, from, size);
    }
    return c->err->rc;
}

/* ---------------------------------------------------------------- reductions */

static enum bin reduce_bin(const char *op)
{
    if (strcmp(op, "ReduceMax") == 0)
        return MAX_;
    if (strcmp(op, "ReduceMin") == 0)
        return MIN_;
    return strcmp(op, "ReduceProd") == 0 ? MUL : ADD;
}

/* Strides of the result seen from the input: 0 along reduced axes. */
static void reduce_strides(const struct graph_value *x, const int64_t *axes, size_t k,
                           int64_t *stride, int64_t *each)
{
    int64_t n = 1;
    size_t last = k;

    *each = 1;
    for (int i = x->rank - 1; i >= 0; i--) {
        if (last > 0 && axes[last - 1] == i) {
            last--;
            stride[i] = 0;
            *each *= x->dims[i];
        } else {
            stride[i] = n;
            n *= x->dims[i];
        }
    }
}

/* What a reduction of nothing gives. */
static void put_neutral(enum bin op, bool mean, enum sh_dtype t, void *y, size_t i)
{
    const double f = mean ? NAN : op == MAX_ ? -INFINITY : op == MIN_ ? INFINITY : op == MUL;

    if (shape__is_float(t))
        shape__put_f64(t, y, i, f);
    else if (op == MAX_ || op == MIN_) /* the nearest that the type holds */
        shape__put_i64(t, y, i, t == SH_BOOL ? op == MIN_ : 0);
    else
        shape__put_i64(t, y, i, op == MUL);
}

static int reduce_lines(struct shape_ctx *c, const struct graph_value *x, const int64_t *stride,
                        int64_t each, void *y)
{
    struct shape_walk w = {.rank = x->rank, .dims = x->dims, .stride = {stride}};
    enum bin op = reduce_bin(c->n.op);
    int64_t n = graph_elements(x), n_out = graph_elements(shape__outv(c, 0));
    bool mean = strcmp(c->n.op, "ReduceMean") == 0;
    char *seen = calloc((size_t)n_out + 1, 1);
    double *acc = calloc((size_t)n_out + 1, sizeof(*acc));
    int64_t *iacc = calloc((size_t)n_out + 1, sizeof(*iacc));

    if (!seen || !acc || !iacc)
        SH_FAIL(c->err, SH_E_NOMEM, "could not allocate a reduction");
    for (int64_t i = 0; i < n && c->err->rc == SH_OK; i++, shape__step(&w)) {
        size_t at = (size_t)w.off[0];
        double f = shape__get_f64(x->dtype, x->data, (size_t)i);
        int64_t v = shape__get_i64(x->dtype, x->data, (size_t)i);

        acc[at] = seen[at] ? bin_f64(op, acc[at], f) : f;
        iacc[at] = seen[at] ? bin_i64(op, iacc[at], v) : v;
        seen[at] = 1;
    }
    for (int64_t i = 0; i < n_out && c->err->rc == SH_OK; i++) {
        if (!seen[i])
            put_neutral(op, mean, x->dtype, y, (size_t)i);
        else if (shape__is_float(x->dtype))
            shape__put_f64(x->dtype, y, (size_t)i, mean ? acc[i] / (double)each : acc[i]);
        else
            shape__put_i64(x->dtype, y, (size_t)i, mean ? iacc[i] / each : iacc[i]);
    }
    free(seen);
    free(acc);
    free(iacc);
    return c->err->rc;
}

int shape__eval_reduce(struct shape_ctx *c)
{
    struct graph_value x = *shape__in(c, 0);
    int64_t axes[SH_MAX_RANK], stride[SH_MAX_RANK], each;
    void *y = shape__alloc(c, 0);

    reduce_strides(&x, axes, shape__list(c, "axes", axes, SH_MAX_RANK), stride, &each);
    return reduce_lines(c, &x, stride, each, y);
}

/* ---------------------------------------------------------------- scatters */

static void combine_values(enum bin op, enum sh_dtype t, void *y, size_t i, const void *u, size_t k)
{
    if (shape__is_float(t))
        shape__put_f64(t, y, i, bin_f64(op, shape__get_f64(t, y, i), shape__get_f64(t, u, k)));
    else
        shape__put_i64(t, y, i, bin_i64(op, shape__get_i64(t, y, i), shape__get_i64(t, u, k)));
}

int shape__eval_scatter(struct shape_ctx *c)
{
    const struct graph_value x = *shape__in(c, 0), u = *shape__in(c, 2);
    const size_t size = sh_dtype_bytes(x.dtype);
    const char *kind = shape__str(c, "reduction", "none");
    const enum bin op = strcmp(kind, "mul") == 0   ? MUL
                        : strcmp(kind, "max") == 0 ? MAX_
                        : strcmp(kind, "min") == 0 ? MIN_
                                                   : ADD;
    struct shape_flat f;
    int64_t *rows, n, inner;
    void *y;

    shape__flat(c, &f);
    rows = shape__flat_const(c, &f);
    y = shape__alloc(c, 0);
    if (y && x.bytes)
        memcpy(y, x.data, x.bytes);
    n = c->err->rc ? 0 : graph_elements(shape__in(c, 1)) / f.depth;
    inner = n ? graph_elements(&u) / n : 0;
    for (int64_t i = 0; i < n * inner; i++) {
        const size_t to = (size_t)(rows[i / inner] * inner + i % inner);

        if (strcmp(kind, "none") == 0)
            memcpy((char *)y + to * size, (const char *)u.data + (size_t)i * size, size);
        else
            combine_values(op, x.dtype, y, to, u.data, (size_t)i);
    }
    free(rows);
    return c->err->rc;
}
