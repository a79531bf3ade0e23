/* lower_quant.c - quantisation.
 *
 * If scales are constants, one for a whole tensor, QUANTIZE converts to integers and back, and
 * pass_quant makes integer products of what is between. Everything else is computed with floats,
 * which hold 8-bit integers exactly.
 */
#include "runtime/model/lower_quant.h"

#include "common/mem.h"

#include <math.h>

uint32_t lower__behind(struct lower *lo, uint32_t t, uint32_t after)
{
    const int64_t n = ir_elements(lo->ir, t);
    const int64_t dims[SH_MAX_RANK] = {n, 1, 1, 1, 1, 1, 1, 1};

    return ir_alias(lo->ir, t, n == 1 ? 1 : 1 + after, dims);
}

uint32_t lower__centred(struct lower *lo, const char *name, uint32_t x, uint32_t zero,
                        uint32_t after)
{
    x = lower__as(lo, name, x, SH_F32);
    if (zero == DEV_NONE)
        return x;
    zero = lower__behind(lo, lower__as(lo, name, zero, SH_F32), after);
    return ir_binary(lo->ir, DEV_BIN_SUB, name, x, zero, x);
}

uint32_t lower__rounded(struct lower *lo, const char *name, uint32_t x, uint32_t zero,
                        enum sh_dtype t)
{
    const float low = t == SH_U8 ? 0.0f : -128.0f;

    x = ir_act(lo->ir, DEV_ACT_ROUND, 0.0f, 0.0f, name, x);
    if (zero != DEV_NONE) {
        zero = lower__as(lo, name, zero, SH_F32);
        x = ir_binary(lo->ir, DEV_BIN_ADD, name, x, zero, x);
    }
    x = ir_act(lo->ir, DEV_ACT_CLIP, low, low + 255.0f, name, x);
    return lower__as(lo, name, x, t);
}

/* ------------------------------------------------------------------ to 8 bits and back */

/* x, scale and zero point seen so that these two broadcast to x. */
static void views(struct lower *lo, const struct graph_node *n, uint32_t in[3])
{
    struct dev_tensor d = *ir_t(lo->ir, in[0]), s = *ir_t(lo->ir, in[1]);
    const int64_t axis = lower__int(lo, n, "axis", 0), block = lower__int(lo, n, "block_size", 0);

    if (block <= 0) {
        for (int k = 1; k < 3; k++)
            if (in[k] != DEV_NONE)
                in[k] = lower__behind(lo, in[k], d.rank - 1 - (uint32_t)axis);
        return;
    }
    /* blocks get an axis behind theirs */
    for (uint32_t i = d.rank; i > (uint32_t)axis + 1; i--) {
        d.dims[i] = d.dims[i - 1];
        s.dims[i] = s.dims[i - 1];
    }
    d.dims[axis] /= block;
    d.dims[axis + 1] = block;
    s.dims[axis + 1] = 1;
    for (int k = 0; k < 3; k++)
        if (in[k] != DEV_NONE)
            in[k] = ir_alias(lo->ir, in[k], d.rank + 1, k == 0 ? d.dims : s.dims);
}

const void *lower__data(const struct lower *lo, const struct graph_node *n, uint32_t i)
{
    const struct graph_value *v = lower__has(n, i) ? lower__in(lo, n, i) : NULL;

    return v && !lo->training ? v->data : NULL;
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

uint32_t lower__requantize(struct lower *lo, const char *name, uint32_t x, enum sh_dtype t,
                           const struct dev_quant *q)
{
    const struct dev_tensor d = *ir_t(lo->ir, x);
    struct dev_op op = ir_op(DEV_OP_QUANTIZE, name, 1, &x);

    *(t == SH_F32 ? &op.u.quant.x : &op.u.quant.y) = *q;
    return ir_emit(lo->ir, &op, t, d.rank, d.dims);
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

void lower__quantize(struct lower *lo, const struct graph_node *n)
{
    const enum sh_dtype t = lower__out(lo, n)->dtype;
    struct dev_quant q;
    uint32_t in[3], y;

    lower__use_all(lo, n, 3, in);
    if (lower__one_quant(lo, n, 1, t, &q)) {
        lower__is(lo, n, lower__requantize(lo, n->name, in[0], t, &q));
        return;
    }
    views(lo, n, in);
    y = ir_binary(lo->ir, DEV_BIN_DIV, n->name, in[0], in[1], in[0]);
    lower__is(lo, n, lower__rounded(lo, n->name, y, in[2], t));
}

/* A weight as floats, if somebody asks for them. */
static bool constant_floats(struct lower *lo, const struct graph_node *n)
{
    const struct graph_value *x = lower__in(lo, n, 0), *y = lower__out(lo, n);
    struct dev_tensor like = {.dtype = SH_F32, .rank = (uint32_t)x->rank};
    const int64_t axis = lower__int(lo, n, "axis", 0), block = lower__int(lo, n, "block_size", 0);
    struct q8 q;

    if (block > 0 || !lower__q8(lo, n, &(struct lower_q8){0, 1, 2, (uint32_t)axis}, &q))
        return false;
    for (int i = 0; i < x->rank; i++)
        like.dims[i] = x->dims[i];
    lo->tensor_of[n->out[0]] = q8_floats(lo->ir, &q, &like, y->name);
    return true;
}

static bool same_number(const struct lower *lo, const struct graph_node *a,
                        const struct graph_node *b, uint32_t i)
{
    const struct graph_value *x, *y;

    if (!lower__has(a, i) || !lower__has(b, i))
        return lower__has(a, i) == lower__has(b, i);
    x = lower__in(lo, a, i);
    y = lower__in(lo, b, i);
    return a->in[i] == b->in[i] ||
           (x->data && y->data && x->bytes == y->bytes && x->dtype == y->dtype &&
            memcmp(x->data, y->data, x->bytes) == 0);
}

static const struct graph_node *quant_writer(const struct lower *lo, const struct graph_node *n)
{
    const uint32_t w = lo->writer_of[n->in[0]];

    return w == GRAPH_NONE ? NULL : &lo->g->nodes[w];
}

/* Is it a bound of numbers of 8 bits, to fewer bits? So are they then. */
static bool bounds(const struct lower *lo, const struct graph_node *n, float *low, float *high)
{
    const bool is_low = strcmp(n->op, "Max") == 0;
    const struct graph_value *v = n->n_in == 2 ? lower__in(lo, n, 1) : NULL;
    float x;

    if ((!is_low && strcmp(n->op, "Min") != 0) || !v || !v->data || graph_elements(v) != 1 ||
        !dev_is8(v->dtype))
        return false;
    x = v->dtype == SH_I8 ? (float)*(const int8_t *)v->data : (float)*(const uint8_t *)v->data;
    if (is_low)
        *low = fmaxf(*low, x);
    else
        *high = fminf(*high, x);
    return true;
}

/* Does training hand a gradient on through this node, to what was rounded to 8 bits for it? Then
 * *from is the node that rounds, and [*low, *high] what its numbers may be. */
static bool rounds(struct lower *lo, const struct graph_node *n, const struct graph_node **from,
                   float *low, float *high)
{
    const struct graph_node *w = quant_writer(lo, n);
    const enum sh_dtype t = lower__in(lo, n, 0)->dtype;

    *low = t == SH_U8 ? 0.0f : -128.0f;
    *high = *low + 255.0f;
    for (int k = 0; k < 2 && w && bounds(lo, w, low, high); k++)
        w = quant_writer(lo, w);
    *from = w;
    return lo->training && dev_is8(t) && w && strcmp(w->op, "QuantizeLinear") == 0 &&
           same_number(lo, n, w, 1) && same_number(lo, n, w, 2) &&
           lower__int(lo, n, "axis", 0) == lower__int(lo, w, "axis", 0) &&
           lower__int(lo, n, "block_size", 0) == lower__int(lo, w, "block_size", 0);
}

/* y, with the gradient of fake quantisation: that of x, the number before it was rounded, where it
 * fits into the range. in: the views of DequantizeLinear. */
static uint32_t straight(struct lower *lo, const struct graph_node *n, const uint32_t in[3],
                         uint32_t y)
{
    const struct graph_node *from;
    const struct dev_tensor d = *ir_t(lo->ir, y);
    uint32_t x, off;
    float low, high;

    if (!rounds(lo, n, &from, &low, &high))
        return y;
    x = ir_alias(lo->ir, lower__use(lo, from, 0), d.rank, d.dims);
    x = ir_binary(lo->ir, DEV_BIN_DIV, n->name, x, in[1], y);
    if (in[2] != DEV_NONE)
        x = ir_binary(lo->ir, DEV_BIN_ADD, n->name, x, in[2], y);
    x = ir_act(lo->ir, DEV_ACT_CLIP, low - 0.5f, high + 0.5f, n->name, x);
    if (in[2] != DEV_NONE)
        x = ir_binary(lo->ir, DEV_BIN_SUB, n->name, x, in[2], y);
    x = ir_binary(lo->ir, DEV_BIN_MUL, n->name, x, in[1], y);
    off = ir_binary(lo->ir, DEV_BIN_SUB, n->name, y, x, y);
    ir_info(lo->ir, off)->is_held = true;
    return ir_binary(lo->ir, DEV_BIN_ADD, n->name, x, off, y);
}

void lower__dequantize(struct lower *lo, const struct graph_node *n)
{
    struct dev_quant q;
    uint32_t in[3], y;

    if (constant_floats(lo, n))
        return;
    lower__use_all(lo, n, 3, in);
    if (lower__one_quant(lo, n, 1, lower__in(lo, n, 0)->dtype, &q)) {
        lower__is(lo, n, lower__requantize(lo, n->name, in[0], SH_F32, &q));
        return;
    }
    views(lo, n, in);
    y = lower__as(lo, n->name, in[0], SH_F32);
    if (in[2] != DEV_NONE) {
        in[2] = lower__as(lo, n->name, in[2], SH_F32);
        y = ir_binary(lo->ir, DEV_BIN_SUB, n->name, y, in[2], y);
    }
    y = ir_binary(lo->ir, DEV_BIN_MUL, n->name, y, in[1], y);
    lower__is(lo, n, straight(lo, n, in, y));
}

/* scale = (max(x, 0) - min(x, 0)) / 255, 1 where that is 0; zero = round(-min(x, 0) / scale) */
void lower__dynamic_quantize(struct lower *lo, const struct graph_node *n)
{
    struct ir *ir = lo->ir;
    const uint32_t x = lower__use(lo, n, 0);
    const int64_t elements = ir_elements(ir, x);
    const uint32_t flat = ir_alias(ir, x, 1, &elements);
    uint32_t low = lower__reduced(lo, n->name, flat, DEV_RED_MIN, 1);
    uint32_t high = lower__reduced(lo, n->name, flat, DEV_RED_MAX, 1);
    uint32_t scale, zero, y;

    low = ir_act(ir, DEV_ACT_CLIP, -INFINITY, 0.0f, n->name, low);
    high = ir_act(ir, DEV_ACT_CLIP, 0.0f, INFINITY, n->name, high);
    scale = ir_binary(ir, DEV_BIN_SUB, n->name, high, low, high);
    scale = ir_binary(ir, DEV_BIN_DIV, n->name, scale, lower__number(lo, n, 255.0f), scale);
    scale = lower__not_zero(lo, n, scale);
    zero = ir_binary(ir, DEV_BIN_DIV, n->name, low, scale, low);
    zero = ir_act(ir, DEV_ACT_NEG, 0.0f, 0.0f, n->name, zero);
    zero = lower__rounded(lo, n->name, zero, DEV_NONE, SH_U8);
    y = ir_binary(ir, DEV_BIN_DIV, n->name, x, scale, x);
    y = lower__rounded(lo, n->name, y, zero, SH_U8);
    lower__gives(lo, n, 1, scale);
    lower__gives(lo, n, 2, zero);
    lower__is(lo, n, y);
}
