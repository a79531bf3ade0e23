/* test_ops.c - element-wise operations, softmax, gather; refusals.
 *
 * Without it a wrong broadcast, stride or padding value shows only in the model that happens to use
 * it. References are direct formulas in double precision; gradients are central differences.
 */
#include "common/mem.h"
#include "tests/device/dev_test.h"

#include <math.h>

/* ------------------------------------------------------------------ activations */

static double curve_value(enum dev_act a, double x)
{
    static double (*const FNS[DEV_N_ACTS])(double) = {
        [DEV_ACT_SIN] = sin,     [DEV_ACT_COS] = cos,     [DEV_ACT_TAN] = tan,
        [DEV_ACT_ASIN] = asin,   [DEV_ACT_ACOS] = acos,   [DEV_ACT_ATAN] = atan,
        [DEV_ACT_SINH] = sinh,   [DEV_ACT_COSH] = cosh,   [DEV_ACT_ASINH] = asinh,
        [DEV_ACT_ACOSH] = acosh, [DEV_ACT_ATANH] = atanh,
    };

    return FNS[a] ? FNS[a](x) : NAN;
}

static double act_value(enum dev_act a, double p0, double p1, double x)
{
    switch (a) {
    case DEV_ACT_NONE:
        return x;
    case DEV_ACT_RELU:
        return x > 0 ? x : 0;
    case DEV_ACT_LEAKY_RELU:
        return x > 0 ? x : p0 * x;
    case DEV_ACT_CLIP:
        return x < p0 ? p0 : x > p1 ? p1 : x;
    case DEV_ACT_SIGMOID:
        return 1 / (1 + exp(-x));
    case DEV_ACT_TANH:
        return tanh(x);
    case DEV_ACT_GELU_ERF:
        return x / 2 * (1 + erf(x / sqrt(2)));
    case DEV_ACT_GELU_TANH:
        return x / 2 * (1 + tanh(sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
    case DEV_ACT_HARDSIGMOID:
        return fmax(0, fmin(1, p0 * x + p1));
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
        return pow(x, p0);
    case DEV_ACT_LINEAR:
        return p0 * x + p1;
    case DEV_ACT_ELU:
        return x > 0 ? x : p0 * (exp(x) - 1);
    case DEV_ACT_SOFTPLUS:
        return log(1 + exp(x));
    case DEV_ACT_FLOOR:
        return floor(x);
    case DEV_ACT_CEIL:
        return ceil(x);
    case DEV_ACT_ROUND:
        return nearbyint(x);
    case DEV_ACT_SIGN:
        return x > 0 ? 1 : x < 0 ? -1 : 0;
    default:
        return curve_value(a, x);
    }
}

struct act_case {
    enum dev_act act;
    float p0, p1;
    float scale, shift; /* of the numbers in [-1, 1] */
};

static const struct act_case ACTS[] = {
    {DEV_ACT_NONE, 0, 0, 4, 0},
    {DEV_ACT_RELU, 0, 0, 4, 0},
    {DEV_ACT_LEAKY_RELU, 0.1f, 0, 4, 0},
    {DEV_ACT_CLIP, 0, 6, 8, 0},
    {DEV_ACT_CLIP, -0.5f, INFINITY, 2, 0},
    {DEV_ACT_SIGMOID, 0, 0, 6, 0},
    {DEV_ACT_TANH, 0, 0, 3, 0},
    {DEV_ACT_GELU_ERF, 0, 0, 4, 0},
    {DEV_ACT_GELU_TANH, 0, 0, 4, 0},
    {DEV_ACT_HARDSIGMOID, 1.0f / 6, 0.5f, 5, 0},
    {DEV_ACT_HARDSWISH, 0, 0, 5, 0},
    {DEV_ACT_SILU, 0, 0, 5, 0},
    {DEV_ACT_EXP, 0, 0, 5, 0},
    {DEV_ACT_LOG, 0, 0, 2, 3},
    {DEV_ACT_SQRT, 0, 0, 2, 3},
    {DEV_ACT_ERF, 0, 0, 2, 0},
    {DEV_ACT_ABS, 0, 0, 3, 0},
    {DEV_ACT_NEG, 0, 0, 3, 0},
    {DEV_ACT_RECIP, 0, 0, 2, 3},
    {DEV_ACT_POW, 3, 0, 2, 0},
    {DEV_ACT_POW, 0.5f, 0, 2, 3},
    {DEV_ACT_LINEAR, 2, -1, 3, 0},
    {DEV_ACT_ELU, 1.5f, 0, 3, 0},
    {DEV_ACT_SOFTPLUS, 0, 0, 5, 0},
    {DEV_ACT_SIN, 0, 0, 4, 0},
    {DEV_ACT_COS, 0, 0, 4, 0},
    {DEV_ACT_TAN, 0, 0, 1, 0},
    {DEV_ACT_ASIN, 0, 0, 0.875f, 0},
    {DEV_ACT_ACOS, 0, 0, 0.875f, 0},
    {DEV_ACT_ATAN, 0, 0, 4, 0},
    {DEV_ACT_SINH, 0, 0, 2, 0},
    {DEV_ACT_COSH, 0, 0, 2, 0},
    {DEV_ACT_ASINH, 0, 0, 4, 0},
    {DEV_ACT_ACOSH, 0, 0, 1, 3},
    {DEV_ACT_ATANH, 0, 0, 0.875f, 0},
};

static void set_act(struct dev_op *op, const struct act_case *c)
{
    op->act = c->act;
    op->act_p0 = c->p0;
    op->act_p1 = c->p1;
}

/* Between two slopes, where the difference below means nothing. */
static bool has_kink(const struct act_case *c, double x)
{
    const double h = 1e-6;

    return fabs(act_value(c->act, c->p0, c->p1, x + h) + act_value(c->act, c->p0, c->p1, x - h) -
                2 * act_value(c->act, c->p0, c->p1, x)) > 1e-9;
}

static void one_act(const struct act_case *c, bool blocked)
{
    const struct t_dims dims = DIMS(2, 20, 5, 7); /* 20 channels: blocks with padding */
    const int64_t n = 2 * 20 * 35;
    double *y = t_doubles((size_t)n), *dx = t_doubles((size_t)n);
    uint32_t x, xb, dy, dyb, oy, odx, sum;
    struct t_graph t;

    t_init(&t);
    x = t_in(&t, dims);
    t_map(&t, x, c->scale, c->shift);
    dy = t_in(&t, dims);
    oy = t_act(&t, dims);
    odx = t_out(&t, dims);
    sum = t_out(&t, DIMS(2, 20));
    xb = blocked ? t_blocked(&t, x) : x;
    set_act(t_op(&t, DEV_OP_ACT, IN(xb), OUT(oy)), c);
    dyb = blocked ? t_blocked(&t, dy) : dy;
    set_act(t_op(&t, DEV_OP_ACT_BWD, IN(xb, oy, dyb), OUT(odx)), c);
    /* Reads y through its layout. */
    t_op(&t, DEV_OP_REDUCE, IN(oy), OUT(sum))->u.reduce.axes = 12;
    for (int64_t i = 0; i < n; i++) {
        double v, h = 1e-6;

        if (has_kink(c, t_f(&t, x)[i]))
            t_f(&t, x)[i] = t_round(0.7 * c->scale + c->shift);
        v = t_f(&t, x)[i];
        y[i] = act_value(c->act, c->p0, c->p1, v);
        dx[i] = (act_value(c->act, c->p0, c->p1, v + h) - act_value(c->act, c->p0, c->p1, v - h)) /
                (2 * h) * t_f(&t, dy)[i];
    }
    t_run(&t);
    t_close(&t, oy, y, 1e-10);
    t_close(&t, odx, dx, 1e-9);
    memset(y, 0, 40 * sizeof(*y));
    for (int64_t i = n - 1; i >= 0; i--)
        dx[i] = act_value(c->act, c->p0, c->p1, t_f(&t, x)[i]);
    for (int64_t i = 0; i < n; i++)
        y[i / 35] = (i % 35 == 0 ? 0 : y[i / 35]) + dx[i];
    t_close(&t, sum, y, 1e-9);
    t_fini(&t);
    free(y);
    free(dx);
}

static void activations_and_their_gradients_follow_the_formulas(void **state)
{
    (void)state;
    for (size_t i = 0; i < SH_ARRAY_LEN(ACTS); i++) {
        one_act(&ACTS[i], false);
        one_act(&ACTS[i], true);
    }
}

static void swish_of_large_numbers_is_a_number(void **state)
{
    const float x[] = {1e10f, 1e15f, 1e30f, 3e38f, INFINITY};
    uint32_t in, y;
    struct t_graph t;

    (void)state;
    t_init(&t);
    in = t_add(&t, DEV_ROLE_INPUT, SH_F32, DIMS(5));
    y = t_add(&t, DEV_ROLE_OUTPUT, SH_F32, DIMS(5));
    memcpy(t.plain[in], x, sizeof(x));
    t_op(&t, DEV_OP_ACT, IN(in), OUT(y))->act = DEV_ACT_SILU;
    t_run(&t);
    for (int i = 0; i < 5; i++)
        if (!(t_f(&t, y)[i] >= 0.99f * x[i]))
            fail_msg("swish of %g is %g", (double)x[i], (double)t_f(&t, y)[i]);
    t_fini(&t);
}

/* It is infinite there. The length of what is all zeros hangs on that: its gradient is to be 0, as
 * in PyTorch, and 0 times infinity is no number. */
static void the_slope_of_a_root_is_zero_at_zero(void **state)
{
    const struct act_case c = {DEV_ACT_SQRT, 0, 0, 1, 0};
    const float x[] = {0, 0.25f, 4, 0};
    uint32_t in, y, dy, dx;
    struct t_graph t;

    (void)state;
    t_init(&t);
    in = t_add(&t, DEV_ROLE_INPUT, SH_F32, DIMS(4));
    dy = t_add(&t, DEV_ROLE_INPUT, SH_F32, DIMS(4));
    y = t_act(&t, DIMS(4));
    dx = t_add(&t, DEV_ROLE_OUTPUT, SH_F32, DIMS(4));
    memcpy(t.plain[in], x, sizeof(x));
    memcpy(t.plain[dy], (const float[]){0, 1, 1, 2}, sizeof(x));
    set_act(t_op(&t, DEV_OP_ACT, IN(in), OUT(y)), &c);
    set_act(t_op(&t, DEV_OP_ACT_BWD, IN(in, y, dy), OUT(dx)), &c);
    t_run(&t);
    t_close(&t, dx, (const double[]){0, 1, 0.25, 0}, 1e-9);
    t_fini(&t);
}

/* They have no slope to compare, and values between their jumps. */
static void steps_follow_the_formulas_and_keep_nan(void **state)
{
    static const enum dev_act STEPS[] = {DEV_ACT_FLOOR, DEV_ACT_CEIL, DEV_ACT_ROUND, DEV_ACT_SIGN};
    const float x[] = {-2.5f, -1.5f, -0.5f, 0, 0.5f, 1.5f, 2.5f, 1e6f, NAN};

    (void)state;
    for (size_t k = 0; k < SH_ARRAY_LEN(STEPS); k++) {
        const struct act_case c = {STEPS[k], 0, 0, 1, 0};
        struct t_graph t;
        uint32_t in, y;

        t_init(&t);
        in = t_add(&t, DEV_ROLE_INPUT, SH_F32, DIMS(SH_ARRAY_LEN(x)));
        y = t_add(&t, DEV_ROLE_OUTPUT, SH_F32, DIMS(SH_ARRAY_LEN(x)));
        memcpy(t.plain[in], x, sizeof(x));
        set_act(t_op(&t, DEV_OP_ACT, IN(in), OUT(y)), &c);
        t_run(&t);
        for (size_t i = 0; i + 1 < SH_ARRAY_LEN(x); i++)
            assert_true(t_f(&t, y)[i] == (float)act_value(c.act, 0, 0, (double)x[i]));
        assert_true(isnan(t_f(&t, y)[SH_ARRAY_LEN(x) - 1]));
        t_fini(&t);
    }
}

/* ------------------------------------------------------------------ binary */

static double bin_value(enum dev_bin k, double a, double b)
{
    const double v[DEV_N_BINS] = {
        [DEV_BIN_ADD] = a + b,
        [DEV_BIN_SUB] = a - b,
        [DEV_BIN_MUL] = a * b,
        [DEV_BIN_DIV] = a / b,
        [DEV_BIN_MIN] = fmin(a, b),
        [DEV_BIN_MAX] = fmax(a, b),
        [DEV_BIN_POW] = pow(a, b),
        [DEV_BIN_EQUAL] = a == b,
        [DEV_BIN_LESS] = a<b, [DEV_BIN_GREATER] = a> b,
        [DEV_BIN_LESS_EQUAL] = a <= b,
        [DEV_BIN_GREATER_EQUAL] = a >= b,
        [DEV_BIN_MOD] = a - b * floor(a / b),
        [DEV_BIN_FMOD] = a - b * trunc(a / b),
    };

    return v[k];
}

/* Index of element e of `dims` in a tensor that broadcasts to it. */
static int64_t source(const struct dev_tensor *y, const struct dev_tensor *x, int64_t e)
{
    int64_t at = 0, step = 1;

    for (uint32_t i = y->rank, k = x->rank; i-- > 0;) {
        int64_t c = e % y->dims[i];

        e /= y->dims[i];
        if (k == 0)
            continue;
        k--;
        at += x->dims[k] == 1 ? 0 : c * step;
        step *= x->dims[k];
    }
    return at;
}

static void one_binary(enum dev_bin kind, struct t_dims a, struct t_dims b, struct t_dims out,
                       enum dev_act act)
{
    const bool compares = dev_bin_compares(kind);
    struct t_graph t;
    uint32_t x, y, z;
    struct dev_op *op;
    int64_t n;
    double *want;

    t_init(&t);
    x = t_in(&t, a);
    y = t_in(&t, b);
    z = t_add(&t, DEV_ROLE_OUTPUT, compares ? SH_BOOL : SH_F32, out);
    if (kind == DEV_BIN_POW || kind == DEV_BIN_DIV) {
        t_map(&t, x, 1, 2);
        t_map(&t, y, 1, 2);
    }
    if (kind == DEV_BIN_MOD || kind == DEV_BIN_FMOD) { /* both signs, no divisor near 0 */
        t_map(&t, x, 4, 0);
        for (int64_t i = 0; i < dev_tensor_elements(&t.tensors[y]); i++)
            t_f(&t, y)[i] = i % 2 ? 1.25f : -0.75f;
    }
    if (kind == DEV_BIN_EQUAL)
        for (int64_t i = 0; i < dev_tensor_elements(&t.tensors[x]); i += 2)
            t_f(&t, x)[i] = t_f(&t, y)[0];
    op = t_op(&t, DEV_OP_BINARY, IN(x, y), OUT(z));
    op->u.binary.kind = kind;
    op->act = act;
    n = dev_tensor_elements(&t.tensors[z]);
    want = t_doubles((size_t)n);
    for (int64_t i = 0; i < n; i++)
        want[i] = act_value(act, 0, 0,
                            bin_value(kind, t_f(&t, x)[source(&t.tensors[z], &t.tensors[x], i)],
                                      t_f(&t, y)[source(&t.tensors[z], &t.tensors[y], i)]));
    t_run(&t);
    if (compares)
        for (int64_t i = n; i-- > 0;) /* in place: the wider type from the end */
            t_f(&t, z)[i] = ((uint8_t *)t.plain[z])[i];
    t_close(&t, z, want, 1e-11);
    t_fini(&t);
    free(want);
}

static void binary_operations_broadcast_like_numpy(void **state)
{
    (void)state;
    for (int k = 0; !dev_bin_of_bits((enum dev_bin)k); k++) {
        enum dev_act act = k < DEV_BIN_EQUAL ? DEV_ACT_RELU : DEV_ACT_NONE;

        one_binary((enum dev_bin)k, DIMS(3, 20, 5, 5), DIMS(3, 20, 5, 5), DIMS(3, 20, 5, 5),
                   DEV_ACT_NONE);
        one_binary((enum dev_bin)k, DIMS(3, 20, 5, 5), DIMS(20, 1, 1), DIMS(3, 20, 5, 5), act);
        one_binary((enum dev_bin)k, DIMS(7, 33), DIMS(33), DIMS(7, 33), DEV_ACT_NONE);
        one_binary((enum dev_bin)k, DIMS(4, 1, 9), DIMS(5, 1), DIMS(4, 5, 9), DEV_ACT_NONE);
        one_binary((enum dev_bin)k, DIMS(4, 1, 9), SCALAR, DIMS(4, 1, 9), DEV_ACT_NONE);
    }
    one_binary(DEV_BIN_ADD, DIMS(300, 257), DIMS(257), DIMS(300, 257), DEV_ACT_ERF);
    one_binary(DEV_BIN_MUL, DIMS(2, 24, 1, 1), DIMS(2, 24, 9, 9), DIMS(2, 24, 9, 9), DEV_ACT_NONE);
}

/* What comes out goes through a convolution: what is in its padding would show. */
static void one_by_channel(enum dev_bin kind, int64_t c, struct t_dims dims, bool turned)
{
    const int64_t n = 2 * c * 21;
    double *want = t_doubles((size_t)n);
    uint32_t x, xb, s, y, yb, z;
    struct t_graph t;

    t_init(&t);
    x = t_in(&t, DIMS(2, c, 7, 3));
    s = t_in(&t, dims);
    y = t_act(&t, DIMS(2, c, 7, 3));
    z = t_out(&t, DIMS(2, c, 7, 3));
    xb = t_blocked(&t, x);
    t_op(&t, DEV_OP_BINARY, turned ? IN(s, xb) : IN(xb, s), OUT(y))->u.binary.kind = kind;
    yb = t_blocked(&t, y);
    t_op(&t, DEV_OP_ACT, IN(yb), OUT(z))->act = DEV_ACT_RELU;
    for (int64_t i = 0; i < n; i++) {
        const double a = t_f(&t, x)[i];
        const double b = t_f(&t, s)[source(&t.tensors[z], &t.tensors[s], i)];

        want[i] = fmax(0, turned ? bin_value(kind, b, a) : bin_value(kind, a, b));
    }
    t_run(&t);
    t_close(&t, z, want, 1e-11);
    t_fini(&t);
    free(want);
}

static void values_of_channels_meet_blocks(void **state)
{
    static const enum dev_bin KINDS[] = {DEV_BIN_ADD, DEV_BIN_SUB, DEV_BIN_MUL, DEV_BIN_MAX};

    (void)state;
    for (size_t k = 0; k < SH_ARRAY_LEN(KINDS); k++)
        for (int64_t c = 35; c >= 16; c -= 19)
            for (int turned = 0; turned < 2; turned++) {
                one_by_channel(KINDS[k], c, DIMS(2, c, 1, 1), turned);
                one_by_channel(KINDS[k], c, DIMS(c, 1, 1), turned);
                one_by_channel(KINDS[k], c, DIMS(2, 1, 1, 1), turned);
                one_by_channel(KINDS[k], c, DIMS(1), turned);
                one_by_channel(KINDS[k], c, DIMS(7, 1), turned);
            }
}

/* [N,C,H,W] with [N,C,1,1] (squeeze and excite), with [C,1,1] and with itself, in the device's own
 * layout; widths that fit vectors and one that does not. */
static void binary_operations_take_images_as_they_lie(void **state)
{
    (void)state;
    for (int64_t c = 24; c >= 7; c -= 17) {
        const int64_t plane = 9 * 8, n = 2 * c * plane;
        double *want = t_doubles((size_t)n);
        uint32_t x, xb, s, w, y[3];
        struct t_graph t;

        t_init(&t);
        x = t_in(&t, DIMS(2, c, 9, 8));
        s = t_in(&t, DIMS(2, c, 1, 1));
        w = t_weight(&t, DIMS(c, 1, 1));
        for (int i = 0; i < 3; i++)
            y[i] = i < 2 ? t_act(&t, DIMS(2, c, 9, 8)) : t_out(&t, DIMS(2, c, 9, 8));
        xb = t_blocked(&t, x);
        t_op(&t, DEV_OP_BINARY, IN(xb, t_blocked(&t, s)), OUT(y[0]))->u.binary.kind = DEV_BIN_MUL;
        t_op(&t, DEV_OP_BINARY, IN(w, y[0]), OUT(y[1]))->u.binary.kind = DEV_BIN_SUB;
        t_op(&t, DEV_OP_BINARY, IN(y[1], xb), OUT(y[2]))->u.binary.kind = DEV_BIN_MAX;
        for (int64_t i = 0; i < n; i++)
            want[i] = fmax((double)t_f(&t, w)[i / plane % c] -
                               (double)t_f(&t, x)[i] * (double)t_f(&t, s)[i / plane],
                           (double)t_f(&t, x)[i]);
        t_run(&t);
        t_close(&t, y[2], want, 1e-11);
        t_fini(&t);
        free(want);
    }
}

static void integers_divide_without_a_trap(void **state)
{
    const int64_t a[] = {7, -7, INT64_MIN, 5}, b[] = {2, 2, -1, 0}, want[] = {3, -3, INT64_MIN, 0};
    const uint8_t a8[] = {200, 255, 7, 9}, b8[] = {255, 255, 2, 0}, want8[] = {0, 1, 3, 0};
    struct t_graph t;
    uint32_t x, y, z, x8, y8, z8;

    (void)state;
    t_init(&t);
    x = t_add(&t, DEV_ROLE_INPUT, SH_I64, DIMS(4));
    y = t_add(&t, DEV_ROLE_INPUT, SH_I64, DIMS(4));
    z = t_add(&t, DEV_ROLE_OUTPUT, SH_I64, DIMS(4));
    memcpy(t.plain[x], a, sizeof(a));
    memcpy(t.plain[y], b, sizeof(b));
    x8 = t_add(&t, DEV_ROLE_INPUT, SH_U8, DIMS(4));
    y8 = t_add(&t, DEV_ROLE_INPUT, SH_U8, DIMS(4));
    z8 = t_add(&t, DEV_ROLE_OUTPUT, SH_U8, DIMS(4));
    memcpy(t.plain[x8], a8, sizeof(a8));
    memcpy(t.plain[y8], b8, sizeof(b8));
    t_op(&t, DEV_OP_BINARY, IN(x, y), OUT(z))->u.binary.kind = DEV_BIN_DIV;
    t_op(&t, DEV_OP_BINARY, IN(x8, y8), OUT(z8))->u.binary.kind = DEV_BIN_DIV;
    t_run(&t);
    assert_memory_equal(t.plain[z], want, sizeof(want));
    assert_memory_equal(t.plain[z8], want8, sizeof(want8));
    t_fini(&t);
}

static void bits_and_remainders_of_integers(void **state)
{
    static const struct {
        enum dev_bin kind;
        int64_t want[4];
        uint8_t want8[4];
    } ROWS[] = {
        {DEV_BIN_MOD, {1, -1, 0, 0}, {2, 0, 1, 0}},
        {DEV_BIN_FMOD, {-2, 2, 0, 0}, {2, 0, 1, 0}},
        {DEV_BIN_BIT_AND, {0, 5, 5, 0}, {0, 255, 0, 0}},
        {DEV_BIN_BIT_OR, {-5, -3, -1, 7}, {203, 255, 3, 9}},
        {DEV_BIN_BIT_XOR, {-5, -8, -6, 7}, {203, 0, 3, 9}},
        {DEV_BIN_SHIFT_LEFT, {-64, 0, 0, 7}, {64, 0, 4, 9}},
        {DEV_BIN_SHIFT_RIGHT, {0x1fffffffffffffff, 0, 0, 7}, {25, 0, 0, 9}},
        {DEV_BIN_GREATER_EQUAL, {0}, {1, 1, 0, 1}},
    };
    const int64_t a[] = {-8, 5, 5, 7}, b[] = {3, -3, -1, 0};
    const uint8_t a8[] = {200, 255, 1, 9}, b8[] = {3, 255, 2, 0};

    (void)state;
    for (size_t k = 0; k < SH_ARRAY_LEN(ROWS); k++) {
        const bool compares = dev_bin_compares(ROWS[k].kind);
        const uint32_t type = compares ? SH_BOOL : SH_I64;
        struct t_graph t;
        uint32_t x, y, z, x8, y8, z8;

        t_init(&t);
        x = t_add(&t, DEV_ROLE_INPUT, SH_I64, DIMS(4));
        y = t_add(&t, DEV_ROLE_INPUT, SH_I64, DIMS(4));
        z = t_add(&t, DEV_ROLE_OUTPUT, (enum sh_dtype)type, DIMS(4));
        memcpy(t.plain[x], a, sizeof(a));
        memcpy(t.plain[y], b, sizeof(b));
        x8 = t_add(&t, DEV_ROLE_INPUT, SH_U8, DIMS(4));
        y8 = t_add(&t, DEV_ROLE_INPUT, SH_U8, DIMS(4));
        z8 = t_add(&t, DEV_ROLE_OUTPUT, compares ? SH_BOOL : SH_U8, DIMS(4));
        memcpy(t.plain[x8], a8, sizeof(a8));
        memcpy(t.plain[y8], b8, sizeof(b8));
        t_op(&t, DEV_OP_BINARY, IN(x, y), OUT(z))->u.binary.kind = ROWS[k].kind;
        t_op(&t, DEV_OP_BINARY, IN(x8, y8), OUT(z8))->u.binary.kind = ROWS[k].kind;
        t_run(&t);
        for (int i = 0; i < 4 && !compares; i++)
            assert_int_equal(((int64_t *)t.plain[z])[i], ROWS[k].want[i]);
        assert_memory_equal(t.plain[z8], ROWS[k].want8, 4);
        t_fini(&t);
    }
}

static void where_picks_and_broadcasts(void **state)
{
    struct t_graph t;
    uint32_t c, a, b, y;
    double *want = t_doubles(4 * 3 * 50);

    (void)state;
    t_init(&t);
    c = t_add(&t, DEV_ROLE_INPUT, SH_BOOL, DIMS(3, 50));
    a = t_in(&t, DIMS(4, 1, 50));
    b = t_in(&t, DIMS(1));
    y = t_out(&t, DIMS(4, 3, 50));
    for (int i = 0; i < 150; i++)
        ((uint8_t *)t.plain[c])[i] = i % 3 == 0;
    t_op(&t, DEV_OP_WHERE, IN(c, a, b), OUT(y));
    for (int i = 0; i < 600; i++)
        want[i] = i % 150 % 3 == 0 ? t_f(&t, a)[i / 150 * 50 + i % 50] : t_f(&t, b)[0];
    t_run(&t);
    t_close(&t, y, want, T_EXACT);
    t_fini(&t);
    free(want);
}

/* ------------------------------------------------------------------ softmax */

static void one_softmax(struct t_dims dims, int64_t axis, bool is_log)
{
    struct t_graph t;
    uint32_t x, dy, y, dx;
    int64_t n = 1, inner = 1, len = dims.d[axis];
    double *wy, *wdx;

    for (uint32_t i = 0; i < dims.rank; i++) {
        n *= dims.d[i];
        inner *= i > (uint64_t)axis ? dims.d[i] : 1;
    }
    wy = t_doubles((size_t)n);
    wdx = t_doubles((size_t)n);
    t_init(&t);
    x = t_in(&t, dims);
    t_map(&t, x, 30, 0);
    dy = t_in(&t, dims);
    y = t_act(&t, dims);
    dx = t_out(&t, dims);
    for (int k = 0; k < 2; k++) {
        struct dev_op *op = k ? t_op(&t, DEV_OP_SOFTMAX_BWD, IN(y, dy), OUT(dx))
                              : t_op(&t, DEV_OP_SOFTMAX, IN(x), OUT(y));

        op->u.axis.axis = k ? axis - (int64_t)dims.rank : axis;
        op->u.axis.log = is_log;
    }
    for (int64_t r = 0; r < n / len; r++) {
        int64_t at = r / inner * len * inner + r % inner;
        double max = -INFINITY, sum = 0, dot = 0, total = 0;

        for (int64_t i = 0; i < len; i++)
            max = fmax(max, t_f(&t, x)[at + i * inner]);
        for (int64_t i = 0; i < len; i++)
            sum += exp(t_f(&t, x)[at + i * inner] - max);
        for (int64_t i = 0; i < len; i++) {
            double p = exp(t_f(&t, x)[at + i * inner] - max) / sum, g = t_f(&t, dy)[at + i * inner];

            wy[at + i * inner] = is_log ? log(p) : p;
            dot += g * p;
            total += g;
        }
        for (int64_t i = 0; i < len; i++) {
            double g = t_f(&t, dy)[at + i * inner], v = wy[at + i * inner];

            wdx[at + i * inner] = is_log ? g - exp(v) * total : v * (g - dot);
        }
    }
    t_run(&t);
    t_close(&t, y, wy, 1e-10);
    t_close(&t, dx, wdx, 1e-9);
    t_fini(&t);
    free(wy);
    free(wdx);
}

static void softmax_and_its_gradient_match_the_formula(void **state)
{
    (void)state;
    for (int l = 0; l < 2; l++) {
        one_softmax(DIMS(5, 10), 1, l);
        one_softmax(DIMS(3, 1001), 1, l);
        one_softmax(DIMS(2, 4, 9, 33), 3, l);
        one_softmax(DIMS(2, 7, 5), 1, l);
        one_softmax(DIMS(6, 3), 0, l);
    }
}

/* ------------------------------------------------------------------ gather */

static void gather_and_its_gradient_follow_the_indices(void **state)
{
    struct t_graph t;
    uint32_t table, idx, dy, y, dt;
    double *want = t_doubles(2 * 6 * 40), *grad = t_doubles(2 * 9 * 40);

    (void)state;
    for (int axis = 0; axis < 2; axis++) {
        t_init(&t);
        table = t_weight(&t, axis ? DIMS(2, 9, 40) : DIMS(9, 40));
        idx = t_index(&t, DIMS(3, 2), 9);
        ((int64_t *)t.plain[idx])[1] = -1;                           /* the last row */
        ((int64_t *)t.plain[idx])[2] = ((int64_t *)t.plain[idx])[0]; /* twice: gradients add up */
        dy = t_in(&t, axis ? DIMS(2, 3, 2, 40) : DIMS(3, 2, 40));
        y = t_out(&t, axis ? DIMS(2, 3, 2, 40) : DIMS(3, 2, 40));
        dt = t_act(&t, axis ? DIMS(2, 9, 40) : DIMS(9, 40));
        t_op(&t, DEV_OP_GATHER, IN(table, idx), OUT(y))->u.axis.axis = axis;
        t_op(&t, DEV_OP_GATHER_BWD, IN(idx, dy), OUT(dt))->u.axis.axis = axis;
        memset(grad, 0, 2 * 9 * 40 * sizeof(*grad));
        for (int i = 0; i < (axis + 1) * 240; i++) {
            int64_t v = ((int64_t *)t.plain[idx])[i / 40 % 6];
            int64_t at = (i / 240 * 9 + (v < 0 ? v + 9 : v)) * 40 + i % 40;

            want[i] = t_f(&t, table)[at];
            grad[at] += t_f(&t, dy)[i];
        }
        t_run(&t);
        t_close(&t, y, want, T_EXACT);
        t_close(&t, dt, grad, 1e-13);
        t_fini(&t);
    }
    free(want);
    free(grad);
}

/* ------------------------------------------------------------------ refusals */

static void an_index_outside_the_table_is_an_error_of_the_run(void **state)
{
    struct sh_err err = {0};
    struct t_graph t;
    uint32_t table, idx, y;

    (void)state;
    t_init(&t);
    table = t_weight(&t, DIMS(9, 4));
    idx = t_index(&t, DIMS(2), 9);
    y = t_out(&t, DIMS(2, 4));
    t_op(&t, DEV_OP_GATHER, IN(table, idx), OUT(y));
    ((int64_t *)t.plain[idx])[1] = 9;
    assert_fails(t_run_fails(&t, &err), SH_E_INVALID, &err, "index 9");
    t_fini(&t);
}

static void what_cannot_run_is_refused_by_name_and_node(void **state)
{
    const bool is_cpu = strcmp(t_kind(), "cpu") == 0;
    const char *dev_kind = getenv("BACKEND") ? getenv("BACKEND") : "cpu";
    struct sh_err err = {0};
    struct t_graph t;
    uint32_t x, y;

    (void)state;
    t_init(&t);
    x = t_add(&t, DEV_ROLE_INPUT, SH_I64, DIMS(4));
    y = t_add(&t, DEV_ROLE_OUTPUT, SH_I64, DIMS(4));
    t_op(&t, DEV_OP_ACT, IN(x), OUT(y))->act = DEV_ACT_RELU;
    assert_fails(t_plan_fails(&t, DEV_FP32, &err), SH_E_UNSUPPORTED, &err, "ACT (node \"node\")");
    err = (struct sh_err){0};
    if (is_cpu)
        assert_fails(t_plan_fails(&t, DEV_FP16, &err), SH_E_UNSUPPORTED, &err, "fp16");
    err = (struct sh_err){0};
    if (strcmp(dev_kind, "oracle") != 0)
        assert_fails(t_plan_fails(&t, DEV_FP64, &err), SH_E_UNSUPPORTED, &err, "fp64");
    t.ops[0].n_in = 0;
    err = (struct sh_err){0};
    assert_fails(t_plan_fails(&t, DEV_FP32, &err), SH_E_BUG, &err, "cannot have 0 inputs");
    t_fini(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(activations_and_their_gradients_follow_the_formulas),
        cmocka_unit_test(swish_of_large_numbers_is_a_number),
        cmocka_unit_test(the_slope_of_a_root_is_zero_at_zero),
        cmocka_unit_test(steps_follow_the_formulas_and_keep_nan),
        cmocka_unit_test(binary_operations_broadcast_like_numpy),
        cmocka_unit_test(binary_operations_take_images_as_they_lie),
        cmocka_unit_test(values_of_channels_meet_blocks),
        cmocka_unit_test(integers_divide_without_a_trap),
        cmocka_unit_test(bits_and_remainders_of_integers),
        cmocka_unit_test(where_picks_and_broadcasts),
        cmocka_unit_test(softmax_and_its_gradient_match_the_formula),
        cmocka_unit_test(gather_and_its_gradient_follow_the_indices),
        cmocka_unit_test(an_index_outside_the_table_is_an_error_of_the_run),
        cmocka_unit_test(what_cannot_run_is_refused_by_name_and_node),
    };

    return cmocka_run_group_tests(tests, t_setup, t_teardown);
}
