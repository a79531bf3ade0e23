/* shape_int_types.c - operators on integers: which are widened first, and which are composed of
 * others.
 *
 * Devices reduce and scan INT32 and INT64. Other integers are cast to the one that holds all their
 * values; UINT64 is cast to INT64 and keeps its bits. The cast back keeps the low bits, as
 * arithmetic of the narrow type would.
 */
#include "runtime/model/rewrite.h"

#include <math.h>
#include <string.h>

enum sh_dtype shape__wide(enum sh_dtype t)
{
    switch (t) {
    case SH_I8:
    case SH_I16:
    case SH_U8:
    case SH_U16:
    case SH_BOOL:
        return SH_I32;
    case SH_U32:
    case SH_U64:
        return SH_I64;
    default:
        return t;
    }
}

static bool is_int_op(const struct shape_ctx *c, const char *op)
{
    return strcmp(c->n.op, op) == 0;
}

int shape__finish_narrow(struct shape_ctx *c)
{
    const enum sh_dtype t = shape__in(c, 0)->dtype, wide = shape__wide(t);
    const struct graph_value y = *shape__outv(c, 0);
    uint32_t out;

    if (wide == t)
        return shape__emit_self(c);
    for (uint32_t i = 0; i < c->n.n_in; i++)
        if (shape__has(c, i) && shape__in(c, i)->dtype == t)
            c->n.in[i] = rw_cast(c, c->n.in[i], wide);
    shape__temp(c, "wide", y.dtype == t ? wide : y.dtype, y.rank, y.dims, &out);
    shape__emit_as(c, c->n.op, c->n.in, c->n.n_in, &out, 1, &c->n);
    c->outv[0] = y.dtype == t ? rw_cast(c, out, t) : out;
    return c->err->rc;
}

static bool is_unsigned(enum sh_dtype t)
{
    return t == SH_U8 || t == SH_U16 || t == SH_U32 || t == SH_U64;
}

/* Abs, Neg, Sign, Relu, BitwiseNot of integers. */
int shape__finish_int_unary(struct shape_ctx *c)
{
    const enum sh_dtype t = shape__in(c, 0)->dtype;
    const uint32_t x = rw_in(c, 0);
    uint32_t zero, y;

    if (!shape__is_int(t))
        return shape__emit_self(c);
    zero = rw_number(c, t, 0);
    if (is_int_op(c, "BitwiseNot")) /* all bits: -1 - x */
        y = rw2(c, "Sub", rw_cast(c, rw_number(c, SH_I64, -1), t), x);
    else if (is_int_op(c, "Sign"))
        y = rw2(c, "Sub", rw_cast(c, rw2(c, "Greater", x, zero), t),
                rw_cast(c, rw2(c, "Less", x, zero), t));
    else if (is_int_op(c, "Relu"))
        y = rw2(c, "Max", x, zero);
    else if (is_int_op(c, "Neg"))
        y = rw2(c, "Sub", zero, x);
    else
        y = is_unsigned(t) ? x : rw2(c, "Max", x, rw2(c, "Sub", zero, x));
    c->outv[0] = y;
    return c->err->rc;
}

/* The exponent may be of another type: it becomes the base's, or both become floats. */
int shape__finish_pow(struct shape_ctx *c)
{
    const enum sh_dtype a = shape__in(c, 0)->dtype, b = shape__in(c, 1)->dtype;
    const uint32_t x = rw_in(c, 0), e = rw_in(c, 1);

    if (a == b)
        return shape__emit_self(c);
    if (!shape__is_int(a) || shape__is_int(b))
        c->outv[0] = rw2(c, "Pow", x, rw_cast(c, e, a));
    else
        c->outv[0] = rw_cast(c, rw2(c, "Pow", rw_cast(c, x, b), e), a);
    return c->err->rc;
}

int shape__finish_clip(struct shape_ctx *c)
{
    const enum sh_dtype t = shape__in(c, 0)->dtype;
    const double lo = shape__float(c, "min", -INFINITY), hi = shape__float(c, "max", INFINITY);
    uint32_t y = rw_in(c, 0);

    if (!shape__is_int(t))
        return shape__emit_self(c);
    if (isfinite(lo))
        y = rw2(c, "Max", y, rw_number(c, t, lo));
    if (isfinite(hi))
        y = rw2(c, "Min", y, rw_number(c, t, hi));
    c->outv[0] = y;
    return c->err->rc;
}

/* ---------------------------------------------------------------- operators with a mode */

int shape__infer_mod(struct shape_ctx *c)
{
    const int64_t fmod = shape__int(c, "fmod", 0);

    graph__drop_attr(&c->n, "fmod");
    if (fmod)
        shape__set_op(c, "FMod");
    return shape__infer_binary(c);
}

static int want_int(struct shape_ctx *c, uint32_t i)
{
    const enum sh_dtype t = shape__in(c, i)->dtype;

    if (!shape__is_int(t) || t == SH_BOOL)
        shape__fail(c, SH_E_INVALID, "input %u is %s, it must be of an integer type", i,
                    sh_dtype_v2(t));
    return c->err->rc;
}

int shape__infer_bitwise(struct shape_ctx *c)
{
    want_int(c, 0);
    return shape__infer_binary(c);
}

int shape__infer_bitwise_not(struct shape_ctx *c)
{
    want_int(c, 0);
    return shape__infer_unary(c);
}

int shape__infer_bit_shift(struct shape_ctx *c)
{
    const char *way = shape__str(c, "direction", "");

    if (strcmp(way, "LEFT") != 0 && strcmp(way, "RIGHT") != 0)
        shape__fail(c, SH_E_INVALID, "direction must be LEFT or RIGHT");
    shape__set_op(c, strcmp(way, "LEFT") == 0 ? "ShiftLeft" : "ShiftRight");
    graph__drop_attr(&c->n, "direction");
    return shape__infer_bitwise(c);
}
