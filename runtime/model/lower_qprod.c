/* lower_qprod.c - products of quantised numbers.
 *
 * With a constant weight that fits I8, sums are one integer operation, and what is scaled is
 * lowered as floats between two QUANTIZE, which pass_quant turns into one operation. Otherwise
 * floats compute them: 8-bit numbers minus their zero point have 9 bits, and floats add products of
 * two of them exactly up to EXACT terms. If the result is an integer, longer sums are composed of
 * such parts. If the sum is scaled and rounded to 8 bits again, it is one sum: its error is far
 * below the rounding.
 */
#include "common/mem.h"
#include "runtime/model/lower_quant.h"

#define EXACT 258 /* times 255 * 255 is below 2^24 */

/* ------------------------------------------------------------------ with a constant weight */

/* A constant weight of node n: where its zero point stands, and whether it is [K, N]. */
static bool has_weight(const struct lower *lo, const struct graph_node *n,
                       const struct lower_q8 *at, struct q8 *q)
{
    const int rank = lower__in(lo, n, at->x)->rank;

    return (rank == 2 || rank == 4) && lower__q8(lo, n, at, q) && q8_fits(q) &&
           q->n / q->channels <= DEV_Q_MAX_TERMS;
}

/* sum - zero * (the sum of each column's weights) */
static uint32_t less_zero(struct lower *lo, const struct graph_node *n, const struct q8 *q,
                          const struct q8_shape *s, uint32_t zero, uint32_t sum)
{
    uint32_t sums = q8_sums(lo->ir, q, s, 1, lower__in(lo, n, 1)->name);

    zero = lower__behind(lo, lower__as(lo, n->name, zero, SH_I32), 0);
    sums = ir_binary(lo->ir, DEV_BIN_MUL, n->name, sums, zero, sums);
    return ir_binary(lo->ir, DEV_BIN_SUB, n->name, sum, sums, sum);
}

/* Sums of products of input 0, with its zero point at 2, and weight 1: window NULL: of matrices.
 * DEV_NONE where they have to be made in another way. */
static uint32_t integer_sums(struct lower *lo, const struct graph_node *n, const struct q8 *q,
                             const struct q8_shape *s, const struct dev_conv *window)
{
    const struct graph_value *out = lower__out(lo, n), *x = lower__in(lo, n, 0);
    const char *weight = lower__in(lo, n, 1)->name;
    const void *zero = lower__data(lo, n, 2);
    const bool is_late = lower__has(n, 2) && !zero;
    struct dev_op op;
    uint32_t zero_at = DEV_NONE, y;

    if (lower__has(n, 2) && (graph_elements(lower__in(lo, n, 2)) != 1 || (is_late && window)))
        return DEV_NONE; /* padding is the zero point */
    op = lower__op(lo, n, window ? DEV_OP_QCONV : DEV_OP_QMATMUL, 1);
    while (op.n_in < DEV_Q_N_IN)
        op.in[op.n_in++] = DEV_NONE;
    if (is_late)
        zero_at = lower__use(lo, n, 2);
    op.in[DEV_Q_W] = q8_weight(lo->ir, q, s, weight);
    if (window)
        op.u.qconv.conv = *window;
    if (zero)
        op.u.qconv.q.x_zero = x->dtype == SH_I8 ? (int32_t) * (const int8_t *)zero
                                                : (int32_t) * (const uint8_t *)zero;
    if (op.u.qconv.q.x_zero != 0)
        op.in[DEV_Q_SUMS] = q8_sums(lo->ir, q, s, op.u.qconv.q.x_zero, weight);
    y = ir_emit(lo->ir, &op, SH_I32, (uint32_t)out->rank, out->dims);
    return is_late ? less_zero(lo, n, q, s, zero_at, y) : y;
}

/* The float product between x and y of a QLinear operator: inputs x 0.., w 3.., y 6.., bias 8. */
struct between {
    struct q8 q;
    struct dev_quant x, y;
    uint32_t in, w, bias;
};

static bool is_between_scales(const struct lower *lo, const struct graph_node *n, uint32_t axis,
                              struct between *b)
{
    return lower__one_quant(lo, n, 1, lower__in(lo, n, 0)->dtype, &b->x) &&
           lower__one_quant(lo, n, 6, lower__out(lo, n)->dtype, &b->y) &&
           (!lower__has(n, 8) || lower__data(lo, n, 8)) &&
           has_weight(lo, n, &(struct lower_q8){3, 4, 5, axis}, &b->q);
}

/* The bias counts in scale_x scale_w. */
static uint32_t float_bias(struct lower *lo, const struct graph_node *n, const struct between *b)
{
    const int32_t *from = lower__data(lo, n, 8);
    const int64_t m = lower__in(lo, n, 3)->dims[0];
    float *data;

    if (!from)
        return DEV_NONE;
    data = ir_alloc(lo->ir, m, sizeof(*data));
    for (int64_t c = 0; data && c < m; c++)
        data[c] = (float)((double)from[c] * (double)b->x.scale *
                          (double)b->q.scale[b->q.one_scale ? 0 : c]);
    return ir_const(lo->ir, lower__in(lo, n, 8)->name, DEV_ROLE_WEIGHT, SH_F32, 1, &m, data);
}

static void begin_between(struct lower *lo, const struct graph_node *n, struct between *b)
{
    const struct graph_value *w = lower__in(lo, n, 3);
    struct dev_tensor like = {.dtype = SH_F32, .rank = (uint32_t)w->rank};

    for (int i = 0; i < w->rank; i++)
        like.dims[i] = w->dims[i];
    b->in = lower__requantize(lo, n->name, lower__use(lo, n, 0), SH_F32, &b->x);
    b->bias = float_bias(lo, n, b);
    b->w = q8_floats(lo->ir, &b->q, &like, w->name);
}

static void end_between(struct lower *lo, const struct graph_node *n, const struct between *b,
                        uint32_t y)
{
    lower__is(lo, n, lower__requantize(lo, n->name, y, lower__out(lo, n)->dtype, &b->y));
}

/* ------------------------------------------------------------------ by floats */

/* Parts of a sum over `n`, at most `most` each; the integers that they give are added up. */
struct parts {
    uint32_t a, b;           /* as floats */
    uint32_t a_axis, b_axis; /* that the sum is over */
    int64_t size, most;
};
typedef uint32_t part_fn(struct lower *lo, const struct graph_node *n, uint32_t a, uint32_t b);

static uint32_t add_parts(struct lower *lo, const struct graph_node *n, const struct parts *p,
                          part_fn *fn)
{
    uint32_t y = DEV_NONE;

    for (int64_t at = 0; at < p->size; at += p->most) {
        const int64_t k = SH_MIN(p->most, p->size - at);
        const uint32_t a = lower__cut(lo, n->name, p->a, (struct lower_cut){p->a_axis, at, 1, k});
        const uint32_t b = lower__cut(lo, n->name, p->b, (struct lower_cut){p->b_axis, at, 1, k});
        const uint32_t part = lower__as(lo, n->name, fn(lo, n, a, b), SH_I32);

        y = at == 0 ? part : ir_binary(lo->ir, DEV_BIN_ADD, n->name, y, part, part);
    }
    return y;
}

static uint32_t quant_product(struct lower *lo, const struct graph_node *n, uint32_t a, uint32_t b)
{
    const struct graph_value *v = lower__out(lo, n);
    struct dev_op op = ir_op(DEV_OP_MATMUL, n->name, 4, (uint32_t[]){a, b, DEV_NONE, DEV_NONE});

    op.u.matmul.alpha = 1.0f;
    return ir_emit(lo->ir, &op, SH_F32, (uint32_t)v->rank, v->dims);
}

static uint32_t convolution(struct lower *lo, const struct graph_node *n, uint32_t a, uint32_t b)
{
    return lower__convolve(lo, n, a, b, DEV_NONE);
}

void lower__matmul_integer(struct lower *lo, const struct graph_node *n)
{
    struct parts p = {.most = EXACT};
    uint32_t in[4], y = DEV_NONE;
    struct q8 q;

    if (has_weight(lo, n, &(struct lower_q8){1, GRAPH_NONE, 3, 1}, &q)) {
        const int64_t dims[2] = {q.channels, q.n / q.channels};

        y = integer_sums(lo, n, &q, &(struct q8_shape){2, dims, true}, NULL);
    }
    if (y == DEV_NONE) {
        lower__use_all(lo, n, 4, in);
        p.a = lower__centred(lo, n->name, in[0], in[2], 1);
        p.b = lower__centred(lo, n->name, in[1], in[3], 0);
        p.a_axis = ir_t(lo->ir, p.a)->rank - 1;
        p.b_axis = ir_t(lo->ir, p.b)->rank - 2;
        p.size = ir_t(lo->ir, p.a)->dims[p.a_axis];
        y = add_parts(lo, n, &p, quant_product);
    }
    lower__is(lo, n, y);
}

/* The same as floats, in parts. */
static uint32_t convolved_parts(struct lower *lo, const struct graph_node *n)
{
    const struct graph_value *w = lower__in(lo, n, 1);
    const int64_t taps = graph_elements(w) / (w->dims[0] * w->dims[1]);
    const int64_t groups = lower__int(lo, n, "group", 1);
    struct parts p = {.a_axis = 1, .b_axis = 1, .size = w->dims[1]};
    uint32_t in[4];

    lower__use_all(lo, n, 4, in);
    if (taps > EXACT || (groups > 1 && taps * w->dims[1] > EXACT)) {
        lower__unsupported(lo, n, "so many products in one sum are not supported");
        return DEV_NONE;
    }
    p.a = lower__centred(lo, n->name, in[0], in[2], 0);
    p.b = lower__centred(lo, n->name, in[1], in[3], (uint32_t)w->rank - 1);
    if (groups > 1)
        return lower__as(lo, n->name, convolution(lo, n, p.a, p.b), SH_I32);
    p.most = EXACT / taps;
    return add_parts(lo, n, &p, convolution);
}

void lower__conv_integer(struct lower *lo, const struct graph_node *n)
{
    uint32_t y = DEV_NONE;
    struct q8 q;

    if (has_weight(lo, n, &(struct lower_q8){1, GRAPH_NONE, 3, 0}, &q)) {
        const struct dev_conv window = lower__plane(lo, n);

        y = integer_sums(lo, n, &q, &(struct q8_shape){4, lower__in(lo, n, 1)->dims, false},
                         &window);
    }
    lower__is(lo, n, y != DEV_NONE ? y : convolved_parts(lo, n));
}

/* The output: y scale_a scale_b / scale_y, rounded; scales and zero point of y at inputs 1, 4, 6
 * and 7. after: axes behind those of scale_a and scale_b. */
static void rescale(struct lower *lo, const struct graph_node *n, uint32_t y, const uint32_t *in,
                    const uint32_t after[2])
{
    uint32_t a = lower__behind(lo, in[1], after[0]), b = lower__behind(lo, in[4], after[1]);

    a = ir_binary(lo->ir, DEV_BIN_DIV, n->name, a, lower__behind(lo, in[6], 0), a);
    y = ir_binary(lo->ir, DEV_BIN_MUL, n->name, y, a, y);
    y = ir_binary(lo->ir, DEV_BIN_MUL, n->name, y, b, y);
    lower__is(
        lo, n,
        lower__rounded(lo, n->name, y, lower__behind(lo, in[7], 0), lower__out(lo, n)->dtype));
}

void lower__qlinear_matmul(struct lower *lo, const struct graph_node *n)
{
    struct between b;
    uint32_t in[8], x, w;

    if (lower__in(lo, n, 3)->rank == 2 && is_between_scales(lo, n, 1, &b)) {
        begin_between(lo, n, &b);
        end_between(lo, n, &b, quant_product(lo, n, b.in, b.w));
        return;
    }
    lower__use_all(lo, n, 8, in);
    x = lower__centred(lo, n->name, in[0], in[2], 1);
    w = lower__centred(lo, n->name, in[3], in[5], 0);
    rescale(lo, n, quant_product(lo, n, x, w), in, (uint32_t[]){1, 0});
}

void lower__qlinear_conv(struct lower *lo, const struct graph_node *n)
{
    const uint32_t after = (uint32_t)lower__in(lo, n, 3)->rank - 2; /* axes of an image */
    struct between b;
    uint32_t in[9], x, w;

    if (lower__in(lo, n, 3)->rank == 4 && is_between_scales(lo, n, 0, &b)) {
        begin_between(lo, n, &b);
        end_between(lo, n, &b, lower__convolve(lo, n, b.in, b.w, b.bias));
        return;
    }
    lower__use_all(lo, n, 9, in);
    x = lower__centred(lo, n->name, in[0], in[2], 0);
    w = lower__centred(lo, n->name, in[3], in[5], after + 1);
    if (in[8] != DEV_NONE)
        in[8] = lower__as(lo, n->name, in[8], SH_F32);
    rescale(lo, n, lower__convolve(lo, n, x, w, in[8]), in, (uint32_t[]){0, after});
}
