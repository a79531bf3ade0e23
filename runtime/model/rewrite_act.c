/* rewrite_act.c - activations and tests of numbers as compositions. */
#include "runtime/model/rewrite.h"

#include <math.h>
#include <string.h>

/* The input, of floats. */
static uint32_t float_input(struct shape_ctx *c)
{
    shape__want_float(c, 0);
    return rw_in(c, 0);
}

/* A number beside x: of its type, rank 0. */
static uint32_t act_number(struct shape_ctx *c, double v)
{
    return rw_number(c, rw_v(c, rw_in(c, 0))->dtype, v);
}

/* Only what is no number differs from itself. */
int shape__rewrite_is_nan(struct shape_ctx *c)
{
    const uint32_t x = float_input(c);

    return rw_is(c, 0, rw1(c, "Not", rw2(c, "Equal", x, x)));
}

int shape__rewrite_is_inf(struct shape_ctx *c)
{
    uint32_t x = float_input(c);
    int64_t plus = 1, minus = 1;

    plus = shape__int(c, "detect_positive", 1);
    minus = shape__int(c, "detect_negative", 1);
    if (plus && minus)
        x = rw1(c, "Abs", x);
    if (plus || minus)
        return rw_is(c, 0, rw2(c, "Equal", x, act_number(c, plus ? INFINITY : -INFINITY)));
    return rw_is(c, 0, rw2(c, "Less", x, act_number(c, -INFINITY))); /* never */
}

int shape__rewrite_softsign(struct shape_ctx *c)
{
    const uint32_t x = float_input(c);

    return rw_is(c, 0, rw2(c, "Div", x, rw2(c, "Add", rw1(c, "Abs", x), act_number(c, 1))));
}

int shape__rewrite_mish(struct shape_ctx *c)
{
    const uint32_t x = float_input(c);

    return rw_is(c, 0, rw2(c, "Mul", x, rw1(c, "Tanh", rw1(c, "Softplus", x))));
}

int shape__rewrite_swish(struct shape_ctx *c)
{
    const uint32_t x = float_input(c);
    const double alpha = shape__float(c, "alpha", 1.0);
    const uint32_t t = alpha == 1.0 ? x : rw2(c, "Mul", x, act_number(c, alpha));

    return rw_is(c, 0, rw2(c, "Mul", x, rw1(c, "Sigmoid", t)));
}

/* max(0, x) + min(0, a (exp(x / a) - 1)) is a times the Elu of x / a. */
int shape__rewrite_celu(struct shape_ctx *c)
{
    const uint32_t x = float_input(c);
    const double alpha = shape__float(c, "alpha", 1.0);

    if (!c->err->rc && !(alpha > 0))
        return shape__fail(c, SH_E_UNSUPPORTED, WHY_ALPHA, alpha);
    return rw_is(
        c, 0,
        rw2(c, "Mul", rw1(c, "Elu", rw2(c, "Div", x, act_number(c, alpha))), act_number(c, alpha)));
}

int shape__rewrite_selu(struct shape_ctx *c)
{
    const uint32_t x = float_input(c);
    const double alpha = shape__float(c, "alpha", 1.67326319217681884765625);
    const double gamma = shape__float(c, "gamma", 1.05070102214813232421875);
    const uint32_t y = rw1_with(c, "Elu", x, RW_FLOAT("alpha", alpha));

    return rw_is(c, 0, rw2(c, "Mul", y, act_number(c, gamma)));
}

int shape__rewrite_prelu(struct shape_ctx *c)
{
    const uint32_t x = float_input(c), above = rw2(c, "Greater", x, act_number(c, 0));

    shape__align(c);
    return rw_is(c, 0, rw3(c, "Where", above, x, rw2(c, "Mul", x, rw_in(c, 1))));
}

int shape__rewrite_thresholded_relu(struct shape_ctx *c)
{
    const uint32_t x = float_input(c);
    const uint32_t above = rw2(c, "Greater", x, act_number(c, shape__float(c, "alpha", 1.0)));

    return rw_is(c, 0, rw3(c, "Where", above, x, act_number(c, 0)));
}

/* x + bias below -lambd, x - bias above lambd, else 0. */
int shape__rewrite_shrink(struct shape_ctx *c)
{
    const uint32_t x = float_input(c);
    const double bias = shape__float(c, "bias", 0.0), lambd = shape__float(c, "lambd", 0.5);
    const uint32_t above = rw2(c, "Greater", x, act_number(c, lambd));
    const uint32_t below = rw2(c, "Less", x, act_number(c, -lambd));
    const uint32_t less = bias == 0.0 ? x : rw2(c, "Sub", x, act_number(c, bias));
    const uint32_t more = bias == 0.0 ? x : rw2(c, "Add", x, act_number(c, bias));
    const uint32_t rest = rw3(c, "Where", below, more, act_number(c, 0));

    return rw_is(c, 0, rw3(c, "Where", above, less, rest));
}

/* One at the first largest, along an axis. */
int shape__rewrite_hardmax(struct shape_ctx *c)
{
    uint32_t x = float_input(c), at;
    struct graph_value v = *rw_v(c, x), flat = v;
    int64_t axis = shape__int(c, "axis", -1), is_flat = shape__int(c, "flat", 0);

    shape__axis(c, axis, v.rank, &axis);
    if (c->err->rc)
        return c->err->rc;
    if (is_flat) { /* all axes from this one on are one */
        flat.dims[0] = flat.dims[1] = 1;
        for (int i = 0; i < v.rank; i++)
            flat.dims[i >= axis] *= v.dims[i];
        flat.rank = 2;
        axis = 1;
        x = rw_reshape(c, x, 2, flat.dims);
    }
    at = rw_node(c, "ArgMax", &x, 1,
                 (const struct graph_attr[]){RW_INT("axis", axis), RW_INT("keepdims", 0)}, 2);
    at = rw_node(c, "OneHot",
                 (const uint32_t[]){at, rw_number(c, SH_I64, (double)flat.dims[axis]),
                                    rw_list(c, (const int64_t[]){0, 1}, 2)},
                 3, (const struct graph_attr[]){RW_INT("axis", axis)}, 1);
    at = rw_cast(c, at, v.dtype);
    return rw_is(c, 0, is_flat ? rw_reshape(c, at, v.rank, v.dims) : at);
}
