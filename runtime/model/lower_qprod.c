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

#include <stdlib.h>

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
static int less_zero(struct lower *lo, const struct graph_node *n, const struct q8 *q,
                     const struct q8_shape *s, uint32_t zero, uint32_t sum, uint32_t *y,
                     struct sh_err *err)
{
    uint32_t sums;
    int rc = q8_sums(lo->ir, q, s, 1, lower__in(lo, n, 1)->name, &sums, err);

    if (!rc)
        rc = lower__as(lo, n->name, zero, SH_I32, &zero, err);
    if (!rc)
        rc = lower__behind(lo, zero, 0, &zero, err);
    if (!rc)
        rc = ir_binary(lo->ir, DEV_BIN_MUL, n->name, sums, zero, sums, &sums, err);
    return rc ? rc : ir_binary(lo->ir, DEV_BIN_SUB, n->name, sum, sums, sum, y, err);
}

/* Sums of products of input 0, with its zero point at 2, and weight 1: window NULL: of matrices.
 * *y stays DEV_NONE where they have to be made in another way. */
static int integer_sums(struct lower *lo, const struct graph_node *n, const struct q8 *q,
                        const struct q8_shape *s, const struct dev_conv *window, uint32_t *y,
                        struct sh_err *err)
{
    const struct graph_value *out = lower__out(lo, n), *x = lower__in(lo, n, 0);
    const void *zero = lower__data(lo, n, 2);
    const bool is_late = lower__has(n, 2) && !zero;
    uint32_t in[DEV_Q_N_IN] = {0}, zero_at = DEV_NONE;
    struct dev_op op;
    int rc = SH_OK;

    if (lower__has(n, 2) && (graph_elements(lower__in(lo, n, 2)) != 1 || (is_late && window)))
        return SH_OK; /* padding is the zero point */
    for (int i = 0; i < DEV_Q_N_IN; i++)
        in[i] = DEV_NONE;
    rc = lower__use(lo, n, 0, &in[DEV_Q_X], err);
    if (!rc && is_late)
        rc = lower__use(lo, n, 2, &zero_at, err);
    if (!rc)
        rc = q8_weight(lo->ir, q, s, lower__in(lo, n, 1)->name, &in[DEV_Q_W], err);
    op = ir_op(window ? DEV_OP_QCONV : DEV_OP_QMATMUL, n->name, DEV_Q_N_IN, in);
    if (window)
        op.u.qconv.conv = *window;
    if (zero)
        op.u.qconv.q.x_zero = x->dtype == SH_I8 ? (int32_t) * (const int8_t *)zero
                                                : (int32_t) * (const uint8_t *)zero;
    if (!rc && op.u.qconv.q.x_zero != 0)
        rc = q8_sums(lo->ir, q, s, op.u.qconv.q.x_zero, lower__in(lo, n, 1)->name,
                     &op.in[DEV_Q_SUMS], err);
    if (!rc)
        rc = ir_emit(lo->ir, &op, SH_I32, (uint32_t)out->rank, out->dims, y, err);
    return rc || !is_late ? rc : less_zero(lo, n, q, s, zero_at, *y, y, err);
}

/* The float product between x and y of a QLinear operator: inputs x 0.., w 3.., y 6.., bias 8. */
struct between {
    struct q8 q;
    struct dev_quant x, y;
    uint32_t in, w, bias;
};

static bool is_between(const struct lower *lo, const struct graph_node *n, uint32_t axis,
                       struct between *b)
{
    return lower__one_quant(lo, n, 1, lower__in(lo, n, 0)->dtype, &b->x) &&
           lower__one_quant(lo, n, 6, lower__out(lo, n)->dtype, &b->y) &&
           (!lower__has(n, 8) || lower__data(lo, n, 8)) &&
           has_weight(lo, n, &(struct lower_q8){3, 4, 5, axis}, &b->q);
}

/* The bias counts in scale_x scale_w. */
static int float_bias(struct lower *lo, const struct graph_node *n, struct between *b,
                      struct sh_err *err)
{
    const int32_t *from = lower__data(lo, n, 8);
    const int64_t m = lower__in(lo, n, 3)->dims[0];
    float *data;
    int rc;

    b->bias = DEV_NONE;
    if (!from)
        return SH_OK;
    data = malloc((size_t)m * sizeof(*data));
    if (!data)
        return SH_FAIL(err, SH_E_NOMEM, "could not allocate a bias");
    for (int64_t c = 0; c < m; c++)
        data[c] = (float)((double)from[c] * (double)b->x.scale *
                          (double)b->q.scale[b->q.one_scale ? 0 : c]);
    rc = ir_const(lo->ir, lower__in(lo, n, 8)->name, DEV_ROLE_WEIGHT, SH_F32, 1, &m, data, &b->bias,
                  err);
    if (rc)
        free(data);
    return rc;
}

static int begin_between(struct lower *lo, const struct graph_node *n, struct between *b,
                         struct sh_err *err)
{
    const struct graph_value *w = lower__in(lo, n, 3);
    struct dev_tensor like = {.dtype = SH_F32, .rank = (uint32_t)w->rank};
    int rc = lower__use(lo, n, 0, &b->in, err);

    for (int i = 0; i < w->rank; i++)
        like.dims[i] = w->dims[i];
    if (!rc)
        rc = lower__requantize(lo, n->name, b->in, SH_F32, &b->x, &b->in, err);
    if (!rc)
        rc = float_bias(lo, n, b, err);
    return rc ? rc : q8_floats(lo->ir, &b->q, &like, w->name, &b->w, err);
}

static int end_between(struct lower *lo, const struct graph_node *n, const struct between *b,
                       uint32_t y, struct sh_err *err)
{
    int rc = lower__requantize(lo, n->name, y, lower__out(lo, n)->dtype, &b->y, &y, err);

    return rc ? rc : lower__is(lo, n, y, err);
}

/* ------------------------------------------------------------------ by floats */

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
    struct q8 q;
    int rc = SH_OK;

    if (has_weight(lo, n, &(struct lower_q8){1, GRAPH_NONE, 3, 1}, &q)) {
        const int64_t dims[2] = {q.channels, q.n / q.channels};

        rc = integer_sums(lo, n, &q, &(struct q8_shape){2, dims, true}, NULL, &y, err);
    }
    if (rc || y != DEV_NONE)
        return rc ? rc : lower__is(lo, n, y, err);
    rc = lower__use_all(lo, n, SH_MIN(n->n_in, 4u), in, err);
    if (!rc)
        rc = lower__centred(lo, n->name, in[0], in[2], 1, &p.a, err);
    if (!rc)
        rc = lower__centred(lo, n->name, in[1], in[3], 0, &p.b, err);
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
    struct dev_conv window;
    int64_t groups;
    struct q8 q;
    int rc = SH_OK;

    if (has_weight(lo, n, &(struct lower_q8){1, GRAPH_NONE, 3, 0}, &q)) {
        rc = lower__plane(n, &window, err);
        if (!rc)
            rc = integer_sums(lo, n, &q, &(struct q8_shape){4, w->dims, false}, &window, &y, err);
    }
    if (rc || y != DEV_NONE)
        return rc ? rc : lower__is(lo, n, y, err);
    rc = lower__use_all(lo, n, SH_MIN(n->n_in, 4u), in, err);
    if (!rc)
        rc = graph_int(n, "group", 1, &groups, err);
    if (!rc && (taps > EXACT || (groups > 1 && taps * w->dims[1] > EXACT)))
        rc = lower__unsupported(n, err, "so many products in one sum are not supported");
    if (!rc)
        rc = lower__centred(lo, n->name, in[0], in[2], 0, &p.a, err);
    if (!rc)
        rc = lower__centred(lo, n->name, in[1], in[3], (uint32_t)w->rank - 1, &p.b, err);
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
    int rc = lower__behind(lo, scales[0], after[0], &a, err);

    if (!rc)
        rc = lower__behind(lo, scales[1], after[1], &b, err);
    if (!rc)
        rc = lower__behind(lo, scales[2], 0, &s, err);
    if (!rc)
        rc = ir_binary(lo->ir, DEV_BIN_DIV, name, a, s, a, &a, err);
    if (!rc)
        rc = ir_binary(lo->ir, DEV_BIN_MUL, name, y, a, y, out, err);
    return rc ? rc : ir_binary(lo->ir, DEV_BIN_MUL, name, *out, b, *out, out, err);
}

int lower__qlinear_matmul(struct lower *lo, const struct graph_node *n, struct sh_err *err)
{
    struct parts p = {.lo = lo, .n = n, .err = err};
    struct between b;
    uint32_t in[8], y;
    int rc;

    if (lower__in(lo, n, 3)->rank == 2 && is_between(lo, n, 1, &b)) {
        rc = begin_between(lo, n, &b, err);
        if (!rc)
            rc = product(&p, b.in, b.w, &y);
        return rc ? rc : end_between(lo, n, &b, y, err);
    }
    rc = lower__use_all(lo, n, 8, in, err);
    if (!rc)
        rc = lower__centred(lo, n->name, in[0], in[2], 1, &p.a, err);
    if (!rc)
        rc = lower__centred(lo, n->name, in[3], in[5], 0, &p.b, err);
    if (!rc)
        rc = product(&p, p.a, p.b, &y);
    if (!rc)
        rc =
            rescale(lo, n->name, y, (uint32_t[]){in[1], in[4], in[6]}, (uint32_t[]){1, 0}, &y, err);
    if (!rc)
        rc = lower__behind(lo, in[7], 0, &in[7], err);
    if (!rc)
        rc = lower__rounded(lo, n->name, y, in[7], lower__out(lo, n)->dtype, &y, err);
    return rc ? rc : lower__is(lo, n, y, err);
}

int lower__qlinear_conv(struct lower *lo, const struct graph_node *n, struct sh_err *err)
{
    const uint32_t after = (uint32_t)lower__in(lo, n, 3)->rank - 2; /* axes of an image */
    struct between b;
    uint32_t in[9], x, w, y;
    int rc;

    if (lower__in(lo, n, 3)->rank == 4 && is_between(lo, n, 0, &b)) {
        rc = begin_between(lo, n, &b, err);
        if (!rc)
            rc = lower__convolve(lo, n, b.in, b.w, b.bias, &y, err);
        return rc ? rc : end_between(lo, n, &b, y, err);
    }
    in[8] = DEV_NONE;
    rc = lower__use_all(lo, n, n->n_in, in, err);
    if (!rc)
        rc = lower__centred(lo, n->name, in[0], in[2], 0, &x, err);
    if (!rc)
        rc = lower__centred(lo, n->name, in[3], in[5], after + 1, &w, err);
    if (!rc && in[8] != DEV_NONE)
        rc = lower__as(lo, n->name, in[8], SH_F32, &in[8], err);
    if (!rc)
        rc = lower__convolve(lo, n, x, w, in[8], &y, err);
    if (!rc)
        rc = rescale(lo, n->name, y, (uint32_t[]){in[1], in[4], in[6]}, (uint32_t[]){0, after}, &y,
                     err);
    if (!rc)
        rc = lower__behind(lo, in[7], 0, &in[7], err);
    if (!rc)
        rc = lower__rounded(lo, n->name, y, in[7], lower__out(lo, n)->dtype, &y, err);
    return rc ? rc : lower__is(lo, n, y, err);
}
