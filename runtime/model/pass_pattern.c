/* pass_pattern.c - recognises what exporters spell out and devices have as one operation.
 *
 *   SiLU       x sigmoid(x); HardSwish  x max(0, min(1, x / 6 + 1 / 2))
 *   GELU       h x (1 + erf(x / sqrt 2)) with h = 1/2 in any place, or with
 *              tanh(sqrt(2 / pi) (x + 0.044715 x^3)) for the erf
 *   LayerNorm  d / sqrt(mean(d d) + eps) with d = x - mean(x), then factor and offset
 *
 * The new operation replaces the last of the old ones; ir_drop_unused removes the others if nobody
 * else reads them.
 */
#include "runtime/model/pass.h"

#include <math.h>

static bool near(double a, double b)
{
    return fabs(a - b) <= 1e-5 * fabs(b) + 1e-12;
}

static struct dev_op *act_of(const struct ir *ir, const struct ir_uses *u, uint32_t t,
                             enum dev_act act)
{
    struct dev_op *op = pass__writer(ir, u, t, DEV_OP_ACT);

    return op && op->act == act ? op : NULL;
}

static struct dev_op *bin_writer(const struct ir *ir, const struct ir_uses *u, uint32_t t,
                                 enum dev_bin k)
{
    struct dev_op *op = pass__writer(ir, u, t, DEV_OP_BINARY);

    return op && op->u.binary.kind == k && op->act == DEV_ACT_NONE ? op : NULL;
}

/* t = p0 r + p1 with r as deep as it goes; returns r. */
static uint32_t peel_linear(const struct ir *ir, const struct ir_uses *u, uint32_t t, double *p0,
                            double *p1)
{
    struct dev_op *op;

    *p0 = 1.0;
    *p1 = 0.0;
    while ((op = act_of(ir, u, t, DEV_ACT_LINEAR))) {
        *p1 += *p0 * (double)op->act_p1;
        *p0 *= (double)op->act_p0;
        t = op->in[0];
    }
    return t;
}

/* ------------------------------------------------------------------ GELU */

/* t = h (1 + erf(x / sqrt 2)) ? */
static bool is_erf_part(const struct ir *ir, const struct ir_uses *u, uint32_t t, uint32_t *x,
                        double *h)
{
    double p0, p1, q0, q1;
    struct dev_op *erf = act_of(ir, u, peel_linear(ir, u, t, &p0, &p1), DEV_ACT_ERF);

    if (!erf || !near(p0, p1))
        return false;
    *x = peel_linear(ir, u, erf->in[0], &q0, &q1);
    *h = p0;
    return near(q0, sqrt(0.5)) && q1 == 0.0;
}

/* t = c x^3 ? */
static bool is_cube(const struct ir *ir, const struct ir_uses *u, uint32_t t, uint32_t *x,
                    double *c)
{
    double p1, q0, q1;
    const struct dev_op *pow = act_of(ir, u, peel_linear(ir, u, t, c, &p1), DEV_ACT_POW);

    if (!pow || pow->act_p0 != 3.0f || p1 != 0.0)
        return false;
    *x = peel_linear(ir, u, pow->in[0], &q0, &q1);
    return q0 == 1.0 && q1 == 0.0;
}

/* t = h (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))) ? */
static bool is_tanh_part(const struct ir *ir, const struct ir_uses *u, uint32_t t, uint32_t *x,
                         double *h)
{
    double p0, p1, q0, q1, c;
    const struct dev_op *tanh = act_of(ir, u, peel_linear(ir, u, t, &p0, &p1), DEV_ACT_TANH), *add;

    if (!tanh || !near(p0, p1))
        return false;
    *h = p0;
    add = bin_writer(ir, u, peel_linear(ir, u, tanh->in[0], &q0, &q1), DEV_BIN_ADD);
    if (!add || !near(q0, sqrt(2 / 3.14159265358979323846)) || q1 != 0.0)
        return false;
    for (uint32_t k = 0; k < 2; k++)
        if (is_cube(ir, u, add->in[k], x, &c) && near(c, 0.044715) &&
            ir_root(ir, *x) == ir_root(ir, add->in[1 - k]))
            return ir_same_shape(ir, *x, add->out[0]);
    return false;
}

/* mul = 2 h gelu(x): the gelu takes its place when 2 h = 1, otherwise the factor comes after it. */
static bool is_gelu(const struct ir *ir, const struct ir_uses *u, const struct dev_op *mul,
                    uint32_t *x, double *h, enum dev_act *act)
{
    for (uint32_t k = 0; k < 2; k++) {
        double p0, p1;
        uint32_t other;

        *act = DEV_ACT_GELU_ERF;
        if (!is_erf_part(ir, u, mul->in[k], x, h)) {
            *act = DEV_ACT_GELU_TANH;
            if (!is_tanh_part(ir, u, mul->in[k], x, h))
                continue;
        }
        other = peel_linear(ir, u, mul->in[1 - k], &p0, &p1);
        if (ir_root(ir, other) != ir_root(ir, *x) || p1 != 0.0 ||
            !ir_same_shape(ir, *x, mul->out[0]))
            continue;
        *h *= p0;
        return true;
    }
    return false;
}

static void to_act(struct dev_op *op, enum dev_act act, uint32_t x)
{
    op->kind = DEV_OP_ACT;
    op->act = act;
    op->act_p0 = op->act_p1 = 0.0f;
    op->n_in = 1;
    op->in[0] = x;
}

static void match_gelu(struct ir *ir, struct ir_uses *u, uint32_t i)
{
    struct dev_op *mul = &ir->g.ops[i], *half;
    uint32_t x, root = ir_root(ir, mul->out[0]);
    enum dev_act act;
    double h;

    if (!is_gelu(ir, u, mul, &x, &h, &act))
        return;
    if (near(h, 0.5)) {
        to_act(mul, act, x);
        return;
    }
    half = u->reads[root] == 1 && u->reader[root] != DEV_NONE ? &ir->g.ops[u->reader[root]] : NULL;
    if (half && half->kind == DEV_OP_ACT && half->act == DEV_ACT_LINEAR && half->act_p1 == 0.0f &&
        near(h * (double)half->act_p0, 0.5) && ir_same_shape(ir, x, half->out[0]))
        to_act(half, act, x);
}

/* ------------------------------------------------------------------ SiLU, HardSwish */

static void match_gated(struct ir *ir, const struct ir_uses *u, struct dev_op *mul)
{
    for (uint32_t k = 0; k < 2; k++) {
        const uint32_t x = mul->in[1 - k];
        const struct dev_op *gate = pass__writer(ir, u, mul->in[k], DEV_OP_ACT);

        if (!gate || ir_root(ir, gate->in[0]) != ir_root(ir, x) ||
            !ir_same_shape(ir, gate->in[0], x) || !ir_same_shape(ir, x, mul->out[0]) ||
            !ir_same_shape(ir, gate->out[0], mul->in[k]) || !ir_same_shape(ir, mul->in[k], x))
            continue;
        if (gate->act == DEV_ACT_SIGMOID)
            to_act(mul, DEV_ACT_SILU, x);
        else if (gate->act == DEV_ACT_HARDSIGMOID && near((double)gate->act_p0, 1.0 / 6) &&
                 near((double)gate->act_p1, 0.5))
            to_act(mul, DEV_ACT_HARDSWISH, x);
        else
            continue;
        return;
    }
}

/* ------------------------------------------------------------------ LayerNorm */

static struct dev_op *mean_of(const struct ir *ir, const struct ir_uses *u, uint32_t t)
{
    struct dev_op *op = pass__writer(ir, u, t, DEV_OP_REDUCE);
    uint32_t last;

    if (!op || op->u.reduce.kind != DEV_RED_MEAN || !op->u.reduce.keep_dims)
        return NULL;
    last = ir_t(ir, op->in[0])->rank - 1;
    return op->u.reduce.axes == 1u << last ? op : NULL;
}

/* div = d / sqrt(mean(d d) + eps), d = x - mean(x)? Gives x and eps. */
static bool is_normalised(const struct ir *ir, const struct ir_uses *u, const struct dev_op *div,
                          uint32_t *x, double *eps)
{
    struct dev_op *root = act_of(ir, u, div->in[1], DEV_ACT_SQRT), *var, *sq, *d, *mean;
    double p0;

    if (!root)
        return false;
    var = mean_of(ir, u, peel_linear(ir, u, root->in[0], &p0, eps));
    sq = var && p0 == 1.0 ? bin_writer(ir, u, var->in[0], DEV_BIN_MUL) : NULL;
    d = sq && sq->in[0] == sq->in[1] ? bin_writer(ir, u, sq->in[0], DEV_BIN_SUB) : NULL;
    mean = d && ir_root(ir, d->out[0]) == ir_root(ir, div->in[0]) ? mean_of(ir, u, d->in[1]) : NULL;
    if (!mean || ir_root(ir, mean->in[0]) != ir_root(ir, d->in[0]))
        return false;
    *x = d->in[0];
    return ir_same_shape(ir, *x, div->out[0]);
}

/* The only reader of t, if it combines t with a vector along the last axis. */
static struct dev_op *vector_reader(const struct ir *ir, const struct ir_uses *u, uint32_t t,
                                    enum dev_bin k, uint32_t *vector)
{
    uint32_t root = ir_root(ir, t), r = u->reader[root];
    struct dev_op *op = u->reads[root] == 1 && r != DEV_NONE ? &ir->g.ops[r] : NULL;
    uint32_t v;

    if (!op || op->kind != DEV_OP_BINARY || op->u.binary.kind != k || op->act != DEV_ACT_NONE)
        return NULL;
    v = op->in[ir_root(ir, op->in[0]) == root ? 1 : 0];
    if (ir_t(ir, v)->rank != 1 || !ir_same_shape(ir, t, op->out[0]) ||
        ir_t(ir, v)->dims[0] != ir_t(ir, t)->dims[ir_t(ir, t)->rank - 1])
        return NULL;
    *vector = v;
    return op;
}

static void match_layer_norm(struct ir *ir, struct ir_uses *u, uint32_t i)
{
    struct dev_op *div = &ir->g.ops[i], *mul, *add = NULL, *to;
    uint32_t x, scale = DEV_NONE, bias = DEV_NONE;
    double eps;

    if (!is_normalised(ir, u, div, &x, &eps))
        return;
    mul = vector_reader(ir, u, div->out[0], DEV_BIN_MUL, &scale);
    if (mul)
        add = vector_reader(ir, u, mul->out[0], DEV_BIN_ADD, &bias);
    to = add ? add : mul ? mul : div;
    to->kind = DEV_OP_LAYERNORM;
    to->n_in = 3;
    to->in[0] = x;
    to->in[1] = scale;
    to->in[2] = bias;
    to->u.norm.eps = (float)eps;
    to->u.norm.axis = (int64_t)ir_t(ir, x)->rank - 1;
    to->u.norm.momentum = 0.0f;
}

void pass_pattern(struct ir *ir)
{
    struct ir_uses u;
    const bool is_ready = ir_uses_init(&u, ir);

    for (uint32_t i = 0; i < ir->g.n_ops && is_ready; i++) {
        const struct dev_op *op = &ir->g.ops[i];

        if (op->kind != DEV_OP_BINARY || op->act != DEV_ACT_NONE)
            continue;
        if (op->u.binary.kind == DEV_BIN_MUL) {
            match_gelu(ir, &u, i);
            if (op->kind == DEV_OP_BINARY)
                match_gated(ir, &u, &ir->g.ops[i]);
        } else if (op->u.binary.kind == DEV_BIN_DIV)
            match_layer_norm(ir, &u, i);
    }
    ir_uses_fini(&u);
    ir_drop_unused(ir);
}
