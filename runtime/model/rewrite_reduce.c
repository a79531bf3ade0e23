/* rewrite_reduce.c - reductions as others with something before and after. */
#include "runtime/model/rewrite.h"

#include <float.h>
#include <string.h>

/* The node's own axes (input 1, where it is there) and attributes with another operator. */
static uint32_t reduce(struct rewrite *w, const char *op, uint32_t x, bool keep)
{
    const uint32_t in[] = {x, rw_in(w, 1)};
    int64_t kept = 1, noop = 0;

    if (!w->rc)
        w->rc = graph_int(&w->c->n, "keepdims", 1, &kept, w->c->err);
    if (!w->rc)
        w->rc = graph_int(&w->c->n, "noop_with_empty_axes", 0, &noop, w->c->err);
    return rw_node(w, op, in, in[1] == GRAPH_NONE ? 1 : 2,
                   (const struct graph_attr[]){RW_INT("keepdims", keep || kept != 0),
                                               RW_INT("noop_with_empty_axes", noop)},
                   2);
}

static bool is_op(const struct shape_ctx *c, const char *op)
{
    return strcmp(c->n.op, op) == 0;
}

/* Roots and logarithms of integers are computed as floats. */
static uint32_t as_float(struct rewrite *w, uint32_t x, enum sh_dtype t)
{
    return shape__is_int(t) ? rw_cast(w, x, SH_F32) : x;
}

/* ReduceL1, ReduceL2, ReduceSumSquare, ReduceLogSum: a sum of f(x), then g of it. */
int shape__rewrite_reduce_by_sum(struct shape_ctx *c)
{
    struct rewrite w = {.c = c};
    const enum sh_dtype t = shape__in(c, 0)->dtype;
    const bool root = is_op(c, "ReduceL2"), log = is_op(c, "ReduceLogSum");
    uint32_t x = rw_in(&w, 0);

    if (root || log)
        x = as_float(&w, x, t);
    if (is_op(c, "ReduceL1"))
        x = rw1(&w, "Abs", x);
    else if (!log)
        x = rw2(&w, "Mul", x, x);
    x = reduce(&w, "ReduceSum", x, false);
    if (root)
        x = rw1(&w, "Sqrt", x);
    else if (log)
        x = rw1(&w, "Log", x);
    return rw_is(&w, 0, rw_cast(&w, x, t));
}

/* log(sum(exp(x))) with the largest taken out, so that nothing overflows; of what is all -Inf it is
 * -Inf, which a largest that is a number gives. */
int shape__rewrite_log_sum_exp(struct shape_ctx *c)
{
    struct rewrite w = {.c = c};
    const enum sh_dtype t = shape__in(c, 0)->dtype;
    const uint32_t x = as_float(&w, rw_in(&w, 0), t);
    const enum sh_dtype f = rw_v(&w, x)->dtype;
    uint32_t max = reduce(&w, "ReduceMax", x, true), sum;

    max =
        rw3(&w, "Clip", max, rw_number(&w, f, -(double)FLT_MAX), rw_number(&w, f, (double)FLT_MAX));
    sum = reduce(&w, "ReduceSum", rw1(&w, "Exp", rw2(&w, "Sub", x, max)), false);
    if (w.rc)
        return w.rc;
    max = rw_reshape(&w, max, rw_v(&w, sum)->rank, rw_v(&w, sum)->dims);
    return rw_is(&w, 0, rw_cast(&w, rw2(&w, "Add", rw1(&w, "Log", sum), max), t));
}
