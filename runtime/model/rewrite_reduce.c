/* rewrite_reduce.c - reductions as others with something before and after. */
#include "runtime/model/rewrite.h"

#include <float.h>
#include <string.h>

/* The node's own axes (input 1, where it is there) and attributes with another operator. */
static uint32_t reduce(struct shape_ctx *c, const char *op, uint32_t x, bool keep)
{
    const uint32_t in[] = {x, rw_in(c, 1)};
    const int64_t kept = shape__int(c, "keepdims", 1);
    const int64_t noop = shape__int(c, "noop_with_empty_axes", 0);

    return rw_node(c, op, in, in[1] == GRAPH_NONE ? 1 : 2,
                   (const struct graph_attr[]){RW_INT("keepdims", keep || kept != 0),
                                               RW_INT("noop_with_empty_axes", noop)},
                   2);
}

static bool is_reduce_op(const struct shape_ctx *c, const char *op)
{
    return strcmp(c->n.op, op) == 0;
}

/* Roots and logarithms of integers are computed as floats. */
static uint32_t as_float(struct shape_ctx *c, uint32_t x, enum sh_dtype t)
{
    return shape__is_int(t) ? rw_cast(c, x, SH_F32) : x;
}

/* ReduceL1, ReduceL2, ReduceSumSquare, ReduceLogSum: a sum of f(x), then g of it. */
int shape__rewrite_reduce_by_sum(struct shape_ctx *c)
{
    const enum sh_dtype t = shape__in(c, 0)->dtype;
    const bool root = is_reduce_op(c, "ReduceL2"), log = is_reduce_op(c, "ReduceLogSum");
    uint32_t x = rw_in(c, 0);

    if (root || log)
        x = as_float(c, x, t);
    if (is_reduce_op(c, "ReduceL1"))
        x = rw1(c, "Abs", x);
    else if (!log)
        x = rw2(c, "Mul", x, x);
    x = reduce(c, "ReduceSum", x, false);
    if (root)
        x = rw1(c, "Sqrt", x);
    else if (log)
        x = rw1(c, "Log", x);
    return rw_is(c, 0, rw_cast(c, x, t));
}

/* log(sum(exp(x))) with the largest taken out, so that nothing overflows; of what is all -Inf it is
 * -Inf, which a largest that is a number gives. */
int shape__rewrite_log_sum_exp(struct shape_ctx *c)
{
    const enum sh_dtype t = shape__in(c, 0)->dtype;
    const uint32_t x = as_float(c, rw_in(c, 0), t);
    const enum sh_dtype f = rw_v(c, x)->dtype;
    uint32_t max = reduce(c, "ReduceMax", x, true), sum;

    max = rw3(c, "Clip", max, rw_number(c, f, -(double)FLT_MAX), rw_number(c, f, (double)FLT_MAX));
    sum = reduce(c, "ReduceSum", rw1(c, "Exp", rw2(c, "Sub", x, max)), false);
    if (c->err->rc)
        return c->err->rc;
    max = rw_reshape(c, max, rw_v(c, sum)->rank, rw_v(c, sum)->dims);
    return rw_is(c, 0, rw_cast(c, rw2(c, "Add", rw1(c, "Log", sum), max), t));
}
