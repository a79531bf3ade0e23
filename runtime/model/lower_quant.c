/* lower_quant.c - quantisation.
 *
 * If scales are constants, one for a whole tensor, QUANTIZE converts to integers and back, and
 * pass_quant makes integer products of what is between. Everything else is computed with floats,
 * which hold 8-bit integers exactly.
 */
#include "runtime/model/lower_quant.h"

#include "common/mem.h"

#include <math.h>

int lower__behind(struct lower *lo, uint32_t t, uint32_t after, uint32_t *out, struct sh_err *err)
{
    const int64_t n = ir_elements(lo->ir, t);
    const int64_t dims[SH_MAX_RANK] = {n, 1, 1, 1, 1, 1, 1, 1};

    return ir_alias(lo->ir, t, n == 1 ? 1 : 1 + after, dims, out, err);
}

int lower__centred(struct lower *lo, const char *name, uint32_t x, uint32_t zero, uint32_t after,
                   uint32_t *y, struct sh_err *err)
{
    int rc = lower__as(lo, name, x, SH_F32, y, err);

    if (rc || zero == DEV_NONE)
        return rc;
    rc = lower__as(lo, name, zero, SH_F32, &zero, err);
    if (!rc)
        rc = lower__behind(lo, zero, after, &zero, err);
    return rc ? rc : ir_binary(lo->ir, DEV_BIN_SUB, name, *y, zero, *y, y, err);
}

int lower__rounded(struct lower *lo, const char *name, uint32_t x, uint32_t zero, enum sh_dtype t,
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
            rc = lower__behind(lo, in[k], d.rank - 1 - (uint32_t)axis, &in[k], err);
    return rc;
}

const void *lower__data(const struct lower *lo, const struct graph_node *n, uint32_t i)
{
    const struct graph_value *v =
        i < n->n_in && n->in[i] != GRAPH_NONE ? lower__in(lo, n, i) : NULL;

    return v && !lo->training ? v->data : NULL;
}

bool lower__has(const struct graph_node *n, uint32_t i)
{
    return i < n->n_in && n->in[i] != GRAPH_NONE;
}

bool lower__one_quant(const struct lower *lo, const struct graph_node *n, uint32_t s,
                      enum sh_dtype t, struct dev_quant *q)
{
    const float *scale = lower__data(lo, n, s);
    const void *zero = lower__data(lo, n, s + 1);

    if (!scale || (lower__has(n, s + 1) && !zero) || !dev_is8(t) ||
        graph_elements(lower__in(lo, n, s)) != 1)
        return false;
    q->scale = *scale;
    q->zero = !zero        ? 0
              : t == SH_I8 ? (int32_t) * (const int8_t *)zero
                           : (int32_t) * (const uint8_t *)zero;
    return q->scale > 0 && isfinite(q->scale);
}

int lower__requantize(struct lower *lo, const char *name, uint32_t x, enum sh_dtype t,
                      const struct dev_quant *q, uint32_t *y, struct sh_err *err)
{
    const struct dev_tensor d = *ir_t(lo->ir, x);
    struct dev_op op = ir_op(DEV_OP_QUANTIZE, name, 1, &x);

    *(t == SH_F32 ? &op.u.quant.x : &op.u.quant.y) = *q;
    return ir_emit(lo->ir, &op, t, d.rank, d.dims, y, err);
}

bool lower__q8(const struct lower *lo, const struct graph_node *n, const struct lower_q8 *at,
               struct q8 *q)
{
    const struct graph_value *x = lower__in(lo, n, at->x);

    *q = (struct q8){.x = lower__data(lo, n, at->x),
                     .zero = lower__data(lo, n, at->zero),
                     .dtype = x->dtype,
                     .n = graph_elements(x),
                     .channels = 1,
                     .inner = 1};
    if (!q->x || x->by_size || !dev_is8(x->dtype) || (lower__has(n, at->zero) && !q->zero) ||
        (int64_t)at->axis >= x->rank)
        return false;
    q->channels = x->dims[at->axis];
    for (int i = (int)at->axis + 1; i < x->rank; i++)
        q->inner *= x->dims[i];
    if (at->scale != GRAPH_NONE) {
        const int64_t n_scales = graph_elements(lower__in(lo, n, at->scale));

        q->scale = lower__data(lo, n, at->scale);
        q->one_scale = n_scales == 1;
        if (!q->scale || (n_scales != 1 && n_scales != q->channels))
            return false;
    }
    q->one_zero = q->zero && graph_elements(lower__in(lo, n, at->zero)) == 1;
    return !q->zero || q->one_zero || graph_elements(lower__in(lo, n, at->zero)) == q->channels;
}

int lower__quantize(struct lower *lo, const struct graph_node *n, struct sh_err *err)
{
    const enum sh_dtype t = lower__out(lo, n)->dtype;
    uint32_t in[3] = {DEV_NONE, DEV_NONE, DEV_NONE}, y;
    struct dev_quant q;
    int rc = lower__use_all(lo, n, SH_MIN(n->n_in, 3u), in, err);

    if (!rc && lower__one_quant(lo, n, 1, t, &q)) {
        rc = lower__requantize(lo, n->name, in[0], t, &q, &y, err);
        return rc ? rc : lower__is(lo, n, y, err);
    }
    if (!rc)
        rc = views(lo, n, in, err);
    if (!rc)
        rc = ir_binary(lo->ir, DEV_BIN_DIV, n->name, in[0], in[1], in[0], &y, err);
    if (!rc)
        rc = lower__rounded(lo, n->name, y, in[2], t, &y, err);
    return rc ? rc : lower__is(lo, n, y, err);
}

/* A weight as floats, if somebody asks for them. */
static int constant_floats(struct lower *lo, const struct graph_node *n, bool *done,
                           struct sh_err *err)
{
    const struct graph_value *x = lower__in(lo, n, 0), *y = lower__out(lo, n);
    struct dev_tensor like = {.dtype = SH_F32, .rank = (uint32_t)x->rank};
    int64_t axis, block;
    struct q8 q;
    int rc = graph_int(n, "axis", 0, &axis, err);

    *done = false;
    if (!rc)
        rc = graph_int(n, "block_size", 0, &block, err);
    if (rc || block > 0 || !lower__q8(lo, n, &(struct lower_q8){0, 1, 2, (uint32_t)axis}, &q))
        return rc;
    for (int i = 0; i < x->rank; i++)
        like.dims[i] = x->dims[i];
    *done = true;
    return q8_floats(lo->ir, &q, &like, y->name, &lo->tensor_of[n->out[0]], err);
}

int lower__dequantize(struct lower *lo, const struct graph_node *n, struct sh_err *err)
{
    const enum sh_dtype t = lower__in(lo, n, 0)->dtype;
    uint32_t in[3] = {DEV_NONE, DEV_NONE, DEV_NONE}, y;
    struct dev_quant q;
    bool done;
    int rc = constant_floats(lo, n, &done, err);

    if (rc || done)
        return rc;
    rc = lower__use_all(lo, n, SH_MIN(n->n_in, 3u), in, err);
    if (!rc && lower__one_quant(lo, n, 1, t, &q)) {
        rc = lower__requantize(lo, n->name, in[0], SH_F32, &q, &y, err);
        return rc ? rc : lower__is(lo, n, y, err);
    }
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
        rc = lower__rounded(lo, n->name, zero, DEV_NONE, SH_U8, &zero, err);
    if (!rc)
        rc = ir_binary(ir, DEV_BIN_DIV, n->name, x, scale, x, &y, err);
    if (!rc)
        rc = lower__rounded(lo, n->name, y, zero, SH_U8, &y, err);
    if (!rc)
        rc = give(lo, n, 1, scale, err);
    if (!rc)
        rc = give(lo, n, 2, zero, err);
    return rc ? rc : lower__is(lo, n, y, err);
}
