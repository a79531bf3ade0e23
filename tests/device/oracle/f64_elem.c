/* f64_elem.c - element-wise operations, reductions and moves in double. */
#include "common/mem.h"
#include "tests/device/oracle/f64.h"

#include <math.h>

/* ------------------------------------------------------------------ activations */

static double gelu_inner(double x)
{
    return sqrt(2 / M_PI) * (x + 0.044715 * x * x * x);
}

/* y = f(x) */
static double curve_of(enum dev_act a, double x)
{
    switch (a) {
    case DEV_ACT_SIN:
        return sin(x);
    case DEV_ACT_COS:
        return cos(x);
    case DEV_ACT_TAN:
        return tan(x);
    case DEV_ACT_ASIN:
        return asin(x);
    case DEV_ACT_ACOS:
        return acos(x);
    case DEV_ACT_ATAN:
        return atan(x);
    case DEV_ACT_SINH:
        return sinh(x);
    case DEV_ACT_COSH:
        return cosh(x);
    case DEV_ACT_ASINH:
        return asinh(x);
    case DEV_ACT_ACOSH:
        return acosh(x);
    case DEV_ACT_ATANH:
        return atanh(x);
    default:
        return x;
    }
}

static double curve_slope(enum dev_act a, double x, double y)
{
    switch (a) {
    case DEV_ACT_SIN:
        return cos(x);
    case DEV_ACT_COS:
        return -sin(x);
    case DEV_ACT_TAN:
        return 1 + y * y;
    case DEV_ACT_ASIN:
        return 1 / sqrt(1 - x * x);
    case DEV_ACT_ACOS:
        return -1 / sqrt(1 - x * x);
    case DEV_ACT_ATAN:
        return 1 / (1 + x * x);
    case DEV_ACT_SINH:
        return cosh(x);
    case DEV_ACT_COSH:
        return sinh(x);
    case DEV_ACT_ASINH:
        return 1 / sqrt(x * x + 1);
    case DEV_ACT_ACOSH:
        return 1 / sqrt(x * x - 1);
    case DEV_ACT_ATANH:
        return 1 / (1 - x * x);
    default: /* steps: flat wherever they have a slope */
        return 0;
    }
}

static double act_of(enum dev_act a, float p0, float p1, double x)
{
    const double q0 = (double)p0, q1 = (double)p1;

    switch (a) {
    case DEV_ACT_RELU:
        return x > 0 ? x : 0;
    case DEV_ACT_LEAKY_RELU:
        return x > 0 ? x : q0 * x;
    case DEV_ACT_CLIP:
        return fmin(fmax(x, q0), q1);
    case DEV_ACT_SIGMOID:
        return 1 / (1 + exp(-x));
    case DEV_ACT_TANH:
        return tanh(x);
    case DEV_ACT_GELU_ERF:
        return x * 0.5 * (1 + erf(x * M_SQRT1_2));
    case DEV_ACT_GELU_TANH:
        return x * 0.5 * (1 + tanh(gelu_inner(x)));
    case DEV_ACT_HARDSIGMOID:
        return fmax(0, fmin(1, q0 * x + q1));
    case DEV_ACT_HARDSWISH:
        return x * fmax(0, fmin(1, x / 6 + 0.5));
    case DEV_ACT_SILU:
        return x / (1 + exp(-x));
    case DEV_ACT_EXP:
        return exp(x);
    case DEV_ACT_LOG:
        return log(x);
    case DEV_ACT_SQRT:
        return sqrt(x);
    case DEV_ACT_ERF:
        return erf(x);
    case DEV_ACT_ABS:
        return fabs(x);
    case DEV_ACT_NEG:
        return -x;
    case DEV_ACT_RECIP:
        return 1 / x;
    case DEV_ACT_POW:
        return pow(x, q0);
    case DEV_ACT_LINEAR:
        return q0 * x + q1;
    case DEV_ACT_ELU:
        return x > 0 ? x : q0 * expm1(x);
    case DEV_ACT_SOFTPLUS:
        return x > 0 ? x + log1p(exp(-x)) : log1p(exp(x));
    case DEV_ACT_FLOOR:
        return floor(x);
    case DEV_ACT_CEIL:
        return ceil(x);
    case DEV_ACT_ROUND:
        return nearbyint(x);
    case DEV_ACT_SIGN:
        return x > 0 ? 1 : x < 0 ? -1 : x;
    default:
        return curve_of(a, x);
    }
}

double f64__act_slope(const struct dev_op *op, double x, double y)
{
    const double q0 = (double)op->act_p0, q1 = (double)op->act_p1;
    double t;

    switch (op->act) {
    case DEV_ACT_RELU:
        return x > 0;
    case DEV_ACT_LEAKY_RELU:
        return x > 0 ? 1 : q0;
    case DEV_ACT_CLIP:
        return x > q0 && x < q1;
    case DEV_ACT_SIGMOID:
        return y * (1 - y);
    case DEV_ACT_TANH:
        return 1 - y * y;
    case DEV_ACT_GELU_ERF:
        return 0.5 * (1 + erf(x * M_SQRT1_2)) + x * exp(-x * x / 2) / sqrt(2 * M_PI);
    case DEV_ACT_GELU_TANH:
        t = tanh(gelu_inner(x));
        return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * sqrt(2 / M_PI) * (1 + 3 * 0.044715 * x * x);
    case DEV_ACT_HARDSIGMOID:
        return q0 * x + q1 > 0 && q0 * x + q1 < 1 ? q0 : 0;
    case DEV_ACT_HARDSWISH:
        return x <= -3 ? 0 : x >= 3 ? 1 : x / 3 + 0.5;
    case DEV_ACT_SILU:
        t = 1 / (1 + exp(-x));
        return t * (1 + x * (1 - t));
    case DEV_ACT_EXP:
        return y;
    case DEV_ACT_LOG:
        return 1 / x;
    case DEV_ACT_SQRT:
        return y == 0 ? 0 : 0.5 / y;
    case DEV_ACT_ERF:
        return M_2_SQRTPI * exp(-x * x);
    case DEV_ACT_ABS:
        return x > 0 ? 1 : x < 0 ? -1 : 0;
    case DEV_ACT_NEG:
        return -1;
    case DEV_ACT_RECIP:
        return -y * y;
    case DEV_ACT_POW:
        return q0 * pow(x, q0 - 1);
    case DEV_ACT_LINEAR:
        return q0;
    case DEV_ACT_ELU:
        return x > 0 ? 1 : q0 * exp(x);
    case DEV_ACT_SOFTPLUS:
        return 1 / (1 + exp(-x));
    case DEV_ACT_NONE:
        return 1;
    default:
        return curve_slope(op->act, x, y);
    }
}

void f64__act_out(const struct f64_call *c)
{
    for (int64_t i = 0; c->op->act != DEV_ACT_NONE && i < f64__n(c->out[0]); i++)
        c->y[0][i] = act_of(c->op->act, c->op->act_p0, c->op->act_p1, c->y[0][i]);
}

int f64__act(const struct f64_call *c, struct sh_err *err)
{
    (void)err;
    for (int64_t i = 0; i < f64__n(c->out[0]); i++)
        c->y[0][i] = act_of(c->op->act, c->op->act_p0, c->op->act_p1, c->x[0][i]);
    return SH_OK;
}

int f64__act_bwd(const struct f64_call *c, struct sh_err *err)
{
    (void)err;
    for (int64_t i = 0; i < f64__n(c->out[0]); i++)
        c->y[0][i] = c->x[2][i] * f64__act_slope(c->op, c->x[0][i], c->x[1][i]);
    return SH_OK;
}

/* ------------------------------------------------------------------ broadcasting */

static int shapes_differ(const struct f64_call *c, struct sh_err *err)
{
    return SH_FAIL(err, SH_E_BUG, "%s (node \"%s\") has operands whose shapes do not fit",
                   dev_op_name(c->op->kind), c->op->name);
}

/* Runs fn over the first output's elements; operand 0 is that output, 1.. the inputs. */
static int broadcast(const struct f64_call *c, uint32_t n_in, cpu_row_fn *fn, struct sh_err *err)
{
    struct cpu_nd nd;

    cpu__nd_init(&nd, c->out[0]->rank, c->out[0]->dims, n_in + 1);
    if (!cpu__nd_broadcast(&nd, 0, c->out[0]))
        return shapes_differ(c, err);
    for (uint32_t i = 0; i < n_in; i++)
        if (!cpu__nd_broadcast(&nd, i + 1, c->in[i]))
            return shapes_differ(c, err);
    cpu__nd_run(&nd, 0, nd.total, fn, (void *)(uintptr_t)c);
    return SH_OK;
}

#define AT(k) (off[k] + i * nd->stride[k][nd->rank - 1])

static void add_row(void *ctx, const struct cpu_nd *nd, int64_t n, const int64_t *off)
{
    const struct f64_call *c = ctx;

    for (int64_t i = 0; i < n; i++)
        c->y[0][AT(0)] += c->x[0][AT(1)];
}

int f64__add_to_out(const struct f64_call *c, uint32_t i, struct sh_err *err)
{
    struct f64_call one = *c; /* add_row reads the first input */

    one.in[0] = c->in[i];
    one.x[0] = c->x[i];
    return broadcast(&one, 1, add_row, err);
}

static double floor_mod(double a, double b)
{
    const double r = fmod(a, b);

    return r != 0 && (r < 0) != (b < 0) ? r + b : r;
}

static double binary_of(enum dev_bin k, double a, double b)
{
    switch (k) {
    case DEV_BIN_ADD:
        return a + b;
    case DEV_BIN_SUB:
        return a - b;
    case DEV_BIN_MUL:
        return a * b;
    case DEV_BIN_DIV:
        return a / b;
    case DEV_BIN_MIN:
        return fmin(a, b);
    case DEV_BIN_MAX:
        return fmax(a, b);
    case DEV_BIN_POW:
        return pow(a, b);
    case DEV_BIN_EQUAL:
        return a == b;
    case DEV_BIN_LESS:
        return a < b;
    case DEV_BIN_GREATER:
        return a > b;
    case DEV_BIN_LESS_EQUAL:
        return a <= b;
    case DEV_BIN_GREATER_EQUAL:
        return a >= b;
    case DEV_BIN_MOD:
        return floor_mod(a, b);
    case DEV_BIN_FMOD:
        return fmod(a, b);
    default: /* bits: refused by the builder */
        break;
    }
    return 0;
}

static void binary_row(void *ctx, const struct cpu_nd *nd, int64_t n, const int64_t *off)
{
    const struct f64_call *c = ctx;

    for (int64_t i = 0; i < n; i++)
        c->y[0][AT(0)] = binary_of(c->op->u.binary.kind, c->x[0][AT(1)], c->x[1][AT(2)]);
}

int f64__binary(const struct f64_call *c, struct sh_err *err)
{
    int rc = broadcast(c, 2, binary_row, err);

    f64__act_out(c);
    return rc;
}

static void where_row(void *ctx, const struct cpu_nd *nd, int64_t n, const int64_t *off)
{
    const struct f64_call *c = ctx;

    for (int64_t i = 0; i < n; i++)
        c->y[0][AT(0)] = c->x[0][AT(1)] != 0 ? c->x[1][AT(2)] : c->x[2][AT(3)];
}

int f64__where(const struct f64_call *c, struct sh_err *err)
{
    return broadcast(c, 3, where_row, err);
}

static void copy_row(void *ctx, const struct cpu_nd *nd, int64_t n, const int64_t *off)
{
    const struct f64_call *c = ctx;

    for (int64_t i = 0; i < n; i++)
        c->y[0][AT(0)] = c->x[0][AT(1)];
}

int f64__expand(const struct f64_call *c, struct sh_err *err)
{
    return broadcast(c, 1, copy_row, err);
}

/* ------------------------------------------------------------------ reductions */

static void reduce_row(void *ctx, const struct cpu_nd *nd, int64_t n, const int64_t *off)
{
    const struct f64_call *c = ctx;

    for (int64_t i = 0; i < n; i++) {
        double *y = &c->y[0][AT(0)], x = c->x[0][AT(1)];

        if (c->op->u.reduce.kind == DEV_RED_MAX)
            *y = fmax(*y, x);
        else if (c->op->u.reduce.kind == DEV_RED_MIN)
            *y = fmin(*y, x);
        else if (c->op->u.reduce.kind == DEV_RED_PROD)
            *y *= x;
        else
            *y += x;
    }
}

int f64__reduce(const struct f64_call *c, struct sh_err *err)
{
    const struct dev_tensor *x = c->in[0];
    struct dev_tensor small = *x; /* y with the reduced axes kept */
    const enum dev_red kind = c->op->u.reduce.kind;
    const double n = (double)f64__n(x) / (double)f64__n(c->out[0]);
    struct cpu_nd nd;

    for (uint32_t i = 0; i < x->rank; i++)
        if (c->op->u.reduce.axes >> i & 1)
            small.dims[i] = 1;
    for (int64_t i = 0; i < f64__n(c->out[0]); i++)
        c->y[0][i] = kind == DEV_RED_MAX   ? -(double)INFINITY
                     : kind == DEV_RED_MIN ? (double)INFINITY
                                           : kind == DEV_RED_PROD;
    cpu__nd_init(&nd, x->rank, x->dims, 2);
    if (!cpu__nd_broadcast(&nd, 0, &small) || !cpu__nd_broadcast(&nd, 1, x))
        return shapes_differ(c, err);
    cpu__nd_run(&nd, 0, nd.total, reduce_row, (void *)(uintptr_t)c);
    for (int64_t i = 0; kind == DEV_RED_MEAN && i < f64__n(c->out[0]); i++)
        c->y[0][i] /= n;
    return SH_OK;
}

/* ------------------------------------------------------------------ moves */

int f64__fill(const struct f64_call *c, struct sh_err *err)
{
    (void)err;
    for (int64_t i = 0; i < f64__n(c->out[0]); i++)
        c->y[0][i] = (double)c->op->u.pad.value;
    return SH_OK;
}

int f64__copy(const struct f64_call *c, struct sh_err *err)
{
    (void)err;
    memcpy(c->y[0], c->x[0], (size_t)f64__n(c->out[0]) * sizeof(double));
    return SH_OK;
}

/* A loop over `dims` that copies; strides and bases are set by the caller. */
static void start_move(struct cpu_nd *nd, const struct dev_tensor *over)
{
    cpu__nd_init(nd, over->rank, over->dims, 2);
    for (uint32_t k = 0; k < 2; k++)
        nd->base[k] = 0;
}

int f64__slice(const struct f64_call *c, struct sh_err *err)
{
    int64_t x[SH_MAX_RANK];
    struct cpu_nd nd;

    (void)err;
    start_move(&nd, c->out[0]);
    cpu__strides(c->out[0]->rank, c->out[0]->dims, nd.stride[0]);
    cpu__strides(c->in[0]->rank, c->in[0]->dims, x);
    for (uint32_t i = 0; i < nd.rank; i++) {
        nd.stride[1][i] = x[i] * c->op->u.slice.step[i];
        nd.base[1] += x[i] * c->op->u.slice.start[i];
    }
    cpu__nd_run(&nd, 0, nd.total, copy_row, (void *)(uintptr_t)c);
    return SH_OK;
}

int f64__pad(const struct f64_call *c, struct sh_err *err)
{
    struct dev_tensor part = *c->in[0]; /* what of it is seen: a negative pad cuts */
    int64_t x[SH_MAX_RANK], y[SH_MAX_RANK], from = 0, to = 0;
    bool is_empty = false;
    struct cpu_nd nd;
    int rc = f64__fill(c, err);

    cpu__strides(c->out[0]->rank, c->out[0]->dims, y);
    cpu__strides(part.rank, part.dims, x);
    for (uint32_t i = 0; i < part.rank; i++) {
        const int64_t before = c->op->u.pad.before[i], lo = SH_MAX(0, -before);

        part.dims[i] = SH_MIN(part.dims[i], c->out[0]->dims[i] - before) - lo;
        is_empty |= part.dims[i] <= 0;
        from += lo * x[i];
        to += SH_MAX(before, 0) * y[i];
    }
    if (is_empty)
        return rc;
    start_move(&nd, &part);
    nd.base[0] = to;
    nd.base[1] = from;
    for (uint32_t i = 0; i < part.rank; i++) {
        nd.stride[0][i] = y[i];
        nd.stride[1][i] = x[i];
    }
    cpu__nd_run(&nd, 0, nd.total, copy_row, (void *)(uintptr_t)c);
    return rc;
}

int f64__transpose(const struct f64_call *c, struct sh_err *err)
{
    int64_t x[SH_MAX_RANK];
    struct cpu_nd nd;

    (void)err;
    start_move(&nd, c->out[0]);
    cpu__strides(c->out[0]->rank, c->out[0]->dims, nd.stride[0]);
    cpu__strides(c->in[0]->rank, c->in[0]->dims, x);
    for (uint32_t i = 0; i < nd.rank; i++)
        nd.stride[1][i] = x[c->op->u.perm.perm[i]];
    cpu__nd_run(&nd, 0, nd.total, copy_row, (void *)(uintptr_t)c);
    return SH_OK;
}

int f64__concat(const struct f64_call *c, struct sh_err *err)
{
    const int64_t axis =
        c->op->u.axis.axis + (c->op->u.axis.axis < 0 ? (int64_t)c->out[0]->rank : 0);
    int64_t at = 0;

    (void)err;
    for (uint32_t k = 0; k < c->op->n_in; k++) {
        struct f64_call one = *c; /* copy_row reads the first input */
        struct cpu_nd nd;

        one.x[0] = c->x[k];
        start_move(&nd, c->in[k]);
        cpu__strides(c->out[0]->rank, c->out[0]->dims, nd.stride[0]);
        cpu__strides(c->in[k]->rank, c->in[k]->dims, nd.stride[1]);
        nd.base[0] = at * nd.stride[0][axis];
        at += c->in[k]->dims[axis];
        cpu__nd_run(&nd, 0, nd.total, copy_row, &one);
    }
    return SH_OK;
}

struct table { /* [outer, n, inner], indexed along n */
    int64_t outer, n, inner;
};

static struct table table_of(const struct dev_tensor *t, int64_t axis)
{
    struct table r = {1, 1, 1};

    axis += axis < 0 ? (int64_t)t->rank : 0;
    for (int64_t i = 0; i < (int64_t)t->rank; i++)
        *(i < axis ? &r.outer : i == axis ? &r.n : &r.inner) *= t->dims[i];
    return r;
}

static int index_at(const struct f64_call *c, const double *indices, int64_t k, int64_t n,
                    int64_t *out, struct sh_err *err)
{
    *out = (int64_t)indices[k];
    if (*out < 0)
        *out += n;
    if (*out < 0 || *out >= n)
        return SH_FAIL(err, SH_E_INVALID,
                       "%s (node \"%s\"): index %.0f at position %lld is outside the table of %lld",
                       dev_op_name(c->op->kind), c->op->name, indices[k], (long long)k,
                       (long long)n);
    return SH_OK;
}

int f64__gather(const struct f64_call *c, struct sh_err *err)
{
    const struct table t = table_of(c->in[0], c->op->u.axis.axis);
    const int64_t m = f64__n(c->in[1]);

    for (int64_t k = 0; k < t.outer * m; k++) {
        int64_t at;
        int rc = index_at(c, c->x[1], k % m, t.n, &at, err);

        if (rc)
            return rc;
        memcpy(c->y[0] + k * t.inner, c->x[0] + (k / m * t.n + at) * t.inner,
               (size_t)t.inner * sizeof(double));
    }
    return SH_OK;
}

int f64__gather_bwd(const struct f64_call *c, struct sh_err *err)
{
    const struct table t = table_of(c->out[0], c->op->u.axis.axis);
    const int64_t m = f64__n(c->in[0]);

    memset(c->y[0], 0, (size_t)f64__n(c->out[0]) * sizeof(double));
    for (int64_t k = 0; k < t.outer * m; k++) {
        int64_t at;
        int rc = index_at(c, c->x[0], k % m, t.n, &at, err);

        if (rc)
            return rc;
        for (int64_t i = 0; i < t.inner; i++)
            c->y[0][(k / m * t.n + at) * t.inner + i] += c->x[1][k * t.inner + i];
    }
    return SH_OK;
}
