/* rewrite_act.c - activations and tests of numbers as compositions. */
#include "runtime/model/rewrite.h"

#include <math.h>
#include <string.h>

static struct rewrite begin(struct shape_ctx *c)
{
    return (struct rewrite){.c = c, .rc = shape__want_float(c, 0)};
}

/* A number beside x: of its type, rank 0. */
static uint32_t number(struct rewrite *w, double v)
{
    return rw_number(w, rw_v(w, rw_in(w, 0))->dtype, v);
}

static double attr(struct rewrite *w, const char *name, double def)
{
    double v = def;

    if (w->rc == SH_OK)
        w->rc = graph_float(&w->c->n, name, def, &v, w->c->err);
    return v;
}

/* Only what is no number differs from itself. */
int shape__rewrite_is_nan(struct shape_ctx *c)
{
    struct rewrite w = begin(c);
    const uint32_t x = rw_in(&w, 0);

    return rw_is(&w, 0, rw1(&w, "Not", rw2(&w, "Equal", x, x)));
}

int shape__rewrite_is_inf(struct shape_ctx *c)
{
    struct rewrite w = begin(c);
    uint32_t x = rw_in(&w, 0);
    int64_t plus = 1, minus = 1;

    if (!w.rc)
        w.rc = graph_int(&c->n, "detect_positive", 1, &plus, c->err);
    if (!w.rc)
        w.rc = graph_int(&c->n, "detect_negative", 1, &minus, c->err);
    if (plus && minus)
        x = rw1(&w, "Abs", x);
    if (plus || minus)
        return rw_is(&w, 0, rw2(&w, "Equal", x, number(&w, plus ? INFINITY : -INFINITY)));
    return rw_is(&w, 0, rw2(&w, "Less", x, number(&w, -INFINITY))); /* never */
}

int shape__rewrite_softsign(struct shape_ctx *c)
{
    struct rewrite w = begin(c);
    const uint32_t x = rw_in(&w, 0);

    return rw_is(&w, 0, rw2(&w, "Div", x, rw2(&w, "Add", rw1(&w, "Abs", x), number(&w, 1))));
}

int shape__rewrite_mish(struct shape_ctx *c)
{
    struct rewrite w = begin(c);
    const uint32_t x = rw_in(&w, 0);

    return rw_is(&w, 0, rw2(&w, "Mul", x, rw1(&w, "Tanh", rw1(&w, "Softplus", x))));
}

int shape__rewrite_swish(struct shape_ctx *c)
{
    struct rewrite w = begin(c);
    const uint32_t x = rw_in(&w, 0);
    const double alpha = attr(&w, "alpha", 1.0);
    const uint32_t t = alpha == 1.0 ? x : rw2(&w, "Mul", x, number(&w, alpha));

    return rw_is(&w, 0, rw2(&w, "Mul", x, rw1(&w, "Sigmoid", t)));
}

/* max(0, x) + min(0, a (exp(x / a) - 1)) is a times the Elu of x / a. */
int shape__rewrite_celu(struct shape_ctx *c)
{
    struct rewrite w = begin(c);
    const uint32_t x = rw_in(&w, 0);
    const double alpha = attr(&w, "alpha", 1.0);

    if (!w.rc && !(alpha > 0))
        return shape__fail(c, SH_E_UNSUPPORTED, WHY_ALPHA, alpha);
    return rw_is(
        &w, 0,
        rw2(&w, "Mul", rw1(&w, "Elu", rw2(&w, "Div", x, number(&w, alpha))), number(&w, alpha)));
}

int shape__rewrite_selu(struct shape_ctx *c)
{
    struct rewrite w = begin(c);
    const double alpha = attr(&w, "alpha", 1.67326319217681884765625);
    const double gamma = attr(&w, "gamma", 1.05070102214813232421875);
    const uint32_t y = rw1_with(&w, "Elu", rw_in(&w, 0), RW_FLOAT("alpha", alpha));

    return rw_is(&w, 0, rw2(&w, "Mul", y, number(&w, gamma)));
}

int shape__rewrite_prelu(struct shape_ctx *c)
{
    struct rewrite w = begin(c);
    const uint32_t x = rw_in(&w, 0), above = rw2(&w, "Greater", x, number(&w, 0));

    if (!w.rc)
        w.rc = shape__align(c);
    return rw_is(&w, 0, rw3(&w, "Where", above, x, rw2(&w, "Mul", x, rw_in(&w, 1))));
}

int shape__rewrite_thresholded_relu(struct shape_ctx *c)
{
    struct rewrite w = begin(c);
    const uint32_t x = rw_in(&w, 0);
    const uint32_t above = rw2(&w, "Greater", x, number(&w, attr(&w, "alpha", 1.0)));

    return rw_is(&w, 0, rw3(&w, "Where", above, x, number(&w, 0)));
}

/* x + bias below -lambd, x - bias above lambd, else 0. */
int shape__rewrite_shrink(struct shape_ctx *c)
{
    struct rewrite w = begin(c);
    const uint32_t x = rw_in(&w, 0);
    const double bias = attr(&w, "bias", 0.0), lambd = attr(&w, "lambd", 0.5);
    const uint32_t above = rw2(&w, "Greater", x, number(&w, lambd));
    const uint32_t below = rw2(&w, "Less", x, number(&w, -lambd));
    const uint32_t less = bias == 0.0 ? x : rw2(&w, "Sub", x, number(&w, bias));
    const uint32_t more = bias == 0.0 ? x : rw2(&w, "Add", x, number(&w, bias));
    const uint32_t rest = rw3(&w, "Where", below, more, number(&w, 0));

    return rw_is(&w, 0, rw3(&w, "Where", above, less, rest));
}

/* One at the first largest, along an axis. */
int shape__rewrite_hardmax(struct shape_ctx *c)
{
    struct rewrite w = begin(c);
    uint32_t x = rw_in(&w, 0), at;
    struct graph_value v = *rw_v(&w, x), flat = v;
    int64_t axis = -1, is_flat = 0;

    if (!w.rc)
        w.rc = graph_int(&c->n, "axis", -1, &axis, c->err);
    if (!w.rc)
        w.rc = shape__axis(c, axis, v.rank, &axis);
    if (!w.rc)
        w.rc = graph_int(&c->n, "flat", 0, &is_flat, c->err);
    if (w.rc)
        return w.rc;
    if (is_flat) { /* all axes from this one on are one */
        flat.dims[0] = flat.dims[1] = 1;
        for (int i = 0; i < v.rank; i++)
            flat.dims[i >= axis] *= v.dims[i];
        flat.rank = 2;
        axis = 1;
        x = rw_reshape(&w, x, 2, flat.dims);
    }
    at = rw_node(&w, "ArgMax", &x, 1,
                 (const struct graph_attr[]){RW_INT("axis", axis), RW_INT("keepdims", 0)}, 2);
    at = rw_node(&w, "OneHot",
                 (const uint32_t[]){at, rw_number(&w, SH_I64, (double)flat.dims[axis]),
                                    rw_list(&w, (const int64_t[]){0, 1}, 2)},
                 3, (const struct graph_attr[]){RW_INT("axis", axis)}, 1);
    at = rw_cast(&w, at, v.dtype);
    return rw_is(&w, 0, is_flat ? rw_reshape(&w, at, v.rank, v.dims) : at);
}
