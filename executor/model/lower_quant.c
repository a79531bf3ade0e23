/* lower_quant.c - quantisation by floats that hold integers exactly.
 *
 * Numbers of 8 bits less their zero point have 9 bits, and floats add up products of two of them
 * exactly as long as there are at most EXACT. Where an integer comes out, longer sums are made of
 * such parts. Where the sum is scaled and rounded to 8 bits again, it is one sum: what it may miss
 * is far below the rounding.
 */
#include "common/mem.h"
#include "executor/model/lower_int.h"

#include <math.h>

#define EXACT 258 /* times 255 * 255 is below 2^24 */

/* A scale or zero point with `after` axes of one behind it; one number stays one. */
static int behind(struct lower *lo, uint32_t t, uint32_t after, uint32_t *out, struct sh_err *err)
{
    const int64_t n = ir_elements(lo->ir, t);
    const int64_t dims[SH_MAX_RANK] = {n, 1, 1, 1, 1, 1, 1, 1};

    return ir_alias(lo->ir, t, n == 1 ? 1 : 1 + after, dims, out, err);
}

/* x less its zero point, as floats; zero may be DEV_NONE. after: as above. */
static int centred(struct lower *lo, const char *name, uint32_t x, uint32_t zero, uint32_t after,
                   uint32_t *y, struct sh_err *err)
{
    int rc = lower__as(lo, name, x, SH_F32, y, err);

    if (rc || zero == DEV_NONE)
        return rc;
    rc = lower__as(lo, name, zero, SH_F32, &zero, err);
    if (!rc)
        rc = behind(lo, zero, after, &zero, err);
    return rc ? rc : ir_binary(lo->ir, DEV_BIN_SUB, name, *y, zero, *y, y, err);
}

/* round(x) + zero, within the type t. */
static int rounded(struct lower *lo, const char *name, uint32_t x, uint32_t zero, enum sh_dtype t,
                   uint32_t *y, struct sh_err *err)
{
    const float low = t == SH_U8 ? 0.0f : -128.0f;
    int rc = ir_act(lo->ir, DEV_ACT_ROUND, 0.0f, 0.0f, name, x, y, err);

    if (!rc && zero != DEV_NONE) {
        rc = lower__as(lo, name, zero, SH_F32, &zero, err);
        if (!rc)
            rc = ir_binary(lo->ir, DEV_BIN_ADD, name, *y, zero, *y, y, err);
    }
    if (!rc)
        rc = ir_act(lo->ir, DEV_ACT_CLIP, low, low + 255.0f, name, *y, y, err);
    return rc ? rc : lower__as(lo, name, *y, t, y, err);
}

/* ------------------------------------------------------------------ to 8 bits and back */

/* x seen so that scale and zero point broadcast to it. */
static int views(struct lower *lo, const struct graph_node *n, uint32_t in[3], struct sh_err *err)
{
    struct dev_tensor d = *ir_t(lo->ir, in[0]), s = *ir_t(lo->ir, in[1]);
    int64_t axis, block;
    int rc = graph_int(n, "axis", 0, &axis, err);

    if (!rc)
        rc = graph_int(n, "block_size", 0, &block, err);
    if (!rc && block > 0) { /* blocks get an axis behind theirs */
        for (uint32_t i = d.rank; i > (uint32_t)axis + 1; i--) {
            d.dims[i] = d.dims[i - 1];
            s.dims[i] = s.dims[i - 1];
        }
        d.dims[axis] /= block;
        d.dims[axis + 1] = block;
        s.dims[axis + 1] = 1;
        rc = ir_alias(lo->ir, in[0], d.rank + 1, d.dims, &in[0], err);
        for (int k = 1; k < 3 && rc == SH_OK; k++)
            if (in[k] != DEV_NONE)
                rc = ir_alias(lo->ir, in[k], d.rank + 1, s.dims, &in[k], err);
        return rc;
    }
    for (int k = 1; k < 3 && rc == SH_OK; k++)
        if (in[k] != DEV_NONE)
            rc = behind(lo, in[k], d.rank - 1 - (uint32_t)axis, &in[k], err);
    return rc;
}

int lower__quantize(struct lower *lo, const struct graph_node *n, struct sh_err *err)
{
    uint32_t in[3] = {DEV_NONE, DEV_NONE, DEV_NONE}, y;
    int rc = lower__use_all(lo, n, SH_MIN(n->n_in, 3u), in, err);

    if (!rc)
        rc = views(lo, n, in, err);
    if (!rc)
        rc = ir_binary(lo->ir, DEV_BIN_DIV, n->name, in[0], in[1], in[0], &y, err);
    if (!rc)
        rc = rounded(lo, n->name, y, in[2], lower__out(lo, n)->dtype, &y, err);
    return rc ? rc : lower__is(lo, n, y, err);
}

int lower__dequantize(struct lower *lo, const struct graph_node *n, struct sh_err *err)
{
    uint32_t in[3] = {DEV_NONE, DEV_NONE, DEV_NONE}, y;
    int rc = lower__use_all(lo, n, SH_MIN(n->n_in, 3u), in, err);

    if (!rc)
        rc = views(lo, n, in, err);
    if (!rc)
        rc = lower__as(lo, n->name, in[0], SH_F32, &y, err);
    if (!rc && in[2] != DEV_NONE) {
        rc = lower__as(lo, n->name, in[2], SH_F32, &in[2], err);
        if (!rc)
            rc = ir_binary(lo->ir, DEV_BIN_SUB, n->name, y, in[2], y, &y, err);
    }
    if (!rc)
        rc = ir_binary(lo->ir, DEV_BIN_MUL, n->name, y, in[1], y, &y, err);
    return rc ? rc : lower__is(lo, n, y, err);
}

static int give(struct lower *lo, const struct graph_node *n, uint32_t k, uint32_t t,
                struct sh_err *err)
{
    if (k >= n->n_out || n->out[k] == GRAPH_NONE)
        return SH_OK;
    return ir_alias(lo->ir, t, 0, NULL, &lo->tensor_of[n->out[k]], err);
}

/* scale = (max(x, 0) - min(x, 0)) / 255, 1 where that is 0; zero = round(-min(x, 0) / scale) */
int lower__dynamic_quantize(struct lower *lo, const struct graph_node *n, struct sh_err *err)
{
    struct ir *ir = lo->ir;
    uint32_t x, flat, low, high, scale, zero, y;
    int64_t elements;
    int rc = lower__use(lo, n, 0, &x, err);

    if (rc)
        return rc;
    elements = ir_elements(ir, x);
    rc = ir_alias(ir, x, 1, &elements, &flat, err);
    if (!rc)
        rc = lower__reduced(lo, n->name, flat, DEV_RED_MIN, 1, &low, err);
    if (!rc)
        rc = lower__reduced(lo, n->name, flat, DEV_RED_MAX, 1, &high, err);
    if (!rc)
        rc = ir_act(ir, DEV_ACT_CLIP, -INFINITY, 0.0f, n->name, low, &low, err);
    if (!rc)
        rc = ir_act(ir, DEV_ACT_CLIP, 0.0f, INFINITY, n->name, high, &high, err);
    if (!rc)
        rc = ir_binary(ir, DEV_BIN_SUB, n->name, high, low, high, &scale, err);
    if (!rc)
        rc = lower__number(lo, n, 255.0f, &high, err);
    if (!rc)
        rc = ir_binary(ir, DEV_BIN_DIV, n->name, scale, high, scale, &scale, err);
    if (!rc)
        rc = lower__not_zero(lo, n, scale, &scale, err);
    if (!rc)
        rc = ir_binary(ir, DEV_BIN_DIV, n->name, low, scale, low, &zero, err);
    if (!rc)
        rc = ir_act(ir, DEV_ACT_NEG, 0.0f, 0.0f, n->name, zero, &zero, err);
    if (!rc)
        rc = rounded(lo, n->name, zero, DEV_NONE, SH_U8, &zero, err);
    if (!rc)
        rc = ir_binary(ir, DEV_BIN_DIV, n->name, x, scale, x, &y, err);
    if (!rc)
        rc = rounded(lo, n->name, y, zero, SH_U8, &y, err);
    if (!rc)
        rc = give(lo, n, 1, scale, err);
    if (!rc)
        rc = give(lo, n, 2, zero, err);
    return rc ? rc : lower__is(lo, n, y, err);
}

/* ------------------------------------------------------------------ products */

/* Parts of a sum over `n`, at most `most` each; the integers that they give are added up. */
struct parts {
    struct lower *lo;
    const struct graph_node *n;
    uint32_t a, b;           /* as floats */
    uint32_t a_axis, b_axis; /* that the sum is over */
    int64_t size, most;
    struct sh_err *err;
};
typedef int part_fn(struct parts *p, uint32_t a, uint32_t b, uint32_t *y);

static int add_parts(struct parts *p, part_fn *fn, uint32_t *y)
{
    const char *name = p->n->name;
    int rc = SH_OK;

    for (int64_t at = 0; at < p->size && rc == SH_OK; at += p->most) {
        const int64_t n = SH_MIN(p->most, p->size - at);
        uint32_t a, b, part;

        rc = lower__cut(p->lo, name, p->a, (struct lower_cut){p->a_axis, at, 1, n}, &a, p->err);
        if (!rc)
            rc = lower__cut(p->lo, name, p->b, (struct lower_cut){p->b_axis, at, 1, n}, &b, p->err);
        if (!rc)
            rc = fn(p, a, b, &part);
        if (!rc)
            rc = lower__as(p->lo, name, part, SH_I32, &part, p->err);
        if (!rc && at > 0)
            rc = ir_binary(p->lo->ir, DEV_BIN_ADD, name, *y, part, part, &part, p->err);
        *y = part;
    }
    return rc;
}

static int product(struct parts *p, uint32_t a, uint32_t b, uint32_t *y)
{
    const struct graph_value *v = lower__out(p->lo, p->n);
    struct dev_op op = ir_op(DEV_OP_MATMUL, p->n->name, 4, (uint32_t[]){a, b, DEV_NONE, DEV_NONE});

    op.u.matmul.alpha = 1.0f;
    return ir_emit(p->lo->ir, &op, SH_F32, (uint32_t)v->rank, v->dims, y, p->err);
}

static int convolution(struct parts *p, uint32_t a, uint32_t b, uint32_t *y)
{
    return lower__convolve(p->lo, p->n, a, b, DEV_NONE, y, p->err);
}

int lower__matmul_integer(struct lower *lo, const struct graph_node *n, struct sh_err *err)
{
    uint32_t in[4] = {DEV_NONE, DEV_NONE, DEV_NONE, DEV_NONE}, y = DEV_NONE;
    struct parts p = {.lo = lo, .n = n, .most = EXACT, .err = err};
    int rc = lower__use_all(lo, n, SH_MIN(n->n_in, 4u), in, err);

    if (!rc)
        rc = centred(lo, n->name, in[0], in[2], 1, &p.a, err);
    if (!rc)
        rc = centred(lo, n->name, in[1], in[3], 0, &p.b, err);
    if (rc)
        return rc;
    p.a_axis = ir_t(lo->ir, p.a)->rank - 1;
    p.b_axis = ir_t(lo->ir, p.b)->rank - 2;
    p.size = ir_t(lo->ir, p.a)->dims[p.a_axis];
    rc = add_parts(&p, product, &y);
    return rc ? rc : lower__is(lo, n, y, err);
}

int lower__conv_integer(struct lower *lo, const struct graph_node *n, struct sh_err *err)
{
    const struct graph_value *w = lower__in(lo, n, 1);
    const int64_t taps = graph_elements(w) / (w->dims[0] * w->dims[1]);
    uint32_t in[4] = {DEV_NONE, DEV_NONE, DEV_NONE, DEV_NONE}, y = DEV_NONE;
    struct parts p = {.lo = lo, .n = n, .a_axis = 1, .b_axis = 1, .err = err};
    int64_t groups;
    int rc = lower__use_all(lo, n, SH_MIN(n->n_in, 4u), in, err);

    if (!rc)
        rc = graph_int(n, "group", 1, &groups, err);
    if (!rc && (taps > EXACT || (groups > 1 && taps * w->dims[1] > EXACT)))
        rc = lower__unsupported(n, err, "so many products in one sum are not supported");
    if (!rc)
        rc = centred(lo, n->name, in[0], in[2], 0, &p.a, err);
    if (!rc)
        rc = centred(lo, n->name, in[1], in[3], (uint32_t)w->rank - 1, &p.b, err);
    if (rc)
        return rc;
    p.size = groups > 1 ? 1 : w->dims[1];
    p.most = groups > 1 ? 1 : EXACT / taps;
    if (groups > 1) {
        rc = convolution(&p, p.a, p.b, &y);
        if (!rc)
            rc = lower__as(lo, n->name, y, SH_I32, &y, err);
    } else {
        rc = add_parts(&p, convolution, &y);
    }
    return rc ? rc : lower__is(lo, n, y, err);
}

/* y scale_a scale_b / scale_y; after: axes behind those of scale_a and scale_b. */
static int rescale(struct lower *lo, const char *name, uint32_t y, const uint32_t scales[3],
                   const uint32_t after[2], uint32_t *out, struct sh_err *err)
{
    uint32_t a, b, s;
    int rc = behind(lo, scales[0], after[0], &a, err);

    if (!rc)
        rc = behind(lo, scales[1], after[1], &b, err);
    if (!rc)
        rc = behind(lo, scales[2], 0, &s, err);
    if (!rc)
        rc = ir_binary(lo->ir, DEV_BIN_DIV, name, a, s, a, &a, err);
    if (!rc)
        rc = ir_binary(lo->ir, DEV_BIN_MUL, name, y, a, y, out, err);
    return rc ? rc : ir_binary(lo->ir, DEV_BIN_MUL, name, *out, b, *out, out, err);
}

int lower__qlinear_matmul(struct lower *lo, const struct graph_node *n, struct sh_err *err)
{
    struct parts p = {.lo = lo, .n = n, .err = err};
    uint32_t in[8], y;
    int rc = lower__use_all(lo, n, 8, in, err);

    if (!rc)
        rc = centred(lo, n->name, in[0], in[2], 1, &p.a, err);
    if (!rc)
        rc = centred(lo, n->name, in[3], in[5], 0, &p.b, err);
    if (!rc)
        rc = product(&p, p.a, p.b, &y);
    if (!rc)
        rc =
            rescale(lo, n->name, y, (uint32_t[]){in[1], in[4], in[6]}, (uint32_t[]){1, 0}, &y, err);
    if (!rc)
        rc = behind(lo, in[7], 0, &in[7], err);
    if (!rc)
        rc = rounded(lo, n->name, y, in[7], lower__out(lo, n)->dtype, &y, err);
    return rc ? rc : lower__is(lo, n, y, err);
}

int lower__qlinear_conv(struct lower *lo, const struct graph_node *n, struct sh_err *err)
{
    const uint32_t after = (uint32_t)lower__in(lo, n, 3)->rank - 2; /* axes of an image */
    uint32_t in[9], x, w, y;
    int rc;

    in[8] = DEV_NONE;
    rc = lower__use_all(lo, n, n->n_in, in, err);
    if (!rc)
        rc = centred(lo, n->name, in[0], in[2], 0, &x, err);
    if (!rc)
        rc = centred(lo, n->name, in[3], in[5], after + 1, &w, err);
    if (!rc && in[8] != DEV_NONE)
        rc = lower__as(lo, n->name, in[8], SH_F32, &in[8], err);
    if (!rc)
        rc = lower__convolve(lo, n, x, w, in[8], &y, err);
    if (!rc)
        rc = rescale(lo, n->name, y, (uint32_t[]){in[1], in[4], in[6]}, (uint32_t[]){0, after}, &y,
                     err);
    if (!rc)
        rc = behind(lo, in[7], 0, &in[7], err);
    if (!rc)
        rc = rounded(lo, n->name, y, in[7], lower__out(lo, n)->dtype, &y, err);
    return rc ? rc : lower__is(lo, n, y, err);
}
