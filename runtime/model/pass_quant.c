/* pass_quant.c - products between QUANTIZE become integer products.
 *
 *   product    of a tensor that QUANTIZE turned into floats and an 8-bit weight (q8.h): QCONV or
 *              QMATMUL, with bias, residual and activation
 *   norm       gives its result as integers, too
 *   quantise   absorbs what precedes it (an activation, a sum, integers turned into floats), then
 *              moves into the product that makes its operand
 *   pool       a maximum of integers, if the result has the same scale
 *
 * It goes in execution order, so that each step finds what precedes it done. Roundings of the file
 * are kept: a product that is rounded before a residual is added does so in `mid`.
 */
#include "common/mem.h"
#include "runtime/model/pass.h"
#include "runtime/model/q8.h"

#include <math.h>

struct quant {
    struct ir *ir;
    struct ir_uses u;
    uint32_t known; /* tensors that u knows */
};

static bool is_program_output(const struct ir *ir, uint32_t t)
{
    for (uint32_t i = 0; i < ir->n_outputs; i++)
        if (ir_root(ir, ir->outputs[i]) == ir_root(ir, t))
            return true;
    return false;
}

/* The operation that makes t, if it is the only one to read what that makes. */
static struct dev_op *sole_writer(const struct quant *f, uint32_t t)
{
    const uint32_t root = ir_root(f->ir, t), w = root < f->known ? f->u.writer[root] : DEV_NONE;
    struct dev_op *op = w == DEV_NONE ? NULL : &f->ir->g.ops[w];

    return op && op->kind != IR_DEAD && f->u.reads[root] == 1 ? op : NULL;
}

/* The QUANTIZE that makes floats of integers to give t; NULL: none. */
static struct dev_op *floats_of(const struct quant *f, uint32_t t)
{
    struct dev_op *op = t == DEV_NONE ? NULL : pass__writer(f->ir, &f->u, t, DEV_OP_QUANTIZE);

    return op && ir_t(f->ir, op->out[0])->dtype == SH_F32 && op->act == DEV_ACT_NONE &&
                   (op->n_in < 2 || op->in[1] == DEV_NONE) && dev_is8(ir_t(f->ir, op->in[0])->dtype)
               ? op
               : NULL;
}

/* Operand *t, which is floats made of integers, becomes these; false: it is no such operand. */
static bool take_integers(struct quant *f, uint32_t *t, struct dev_quant *q)
{
    struct dev_op *op = floats_of(f, *t);
    const struct dev_tensor d = op ? *ir_t(f->ir, *t) : (struct dev_tensor){0};
    uint32_t from;

    if (!op)
        return false;
    *q = op->u.quant.x;
    from = op->in[0];
    if (--f->u.reads[ir_root(f->ir, *t)] == 0)
        ir_kill(op); /* its reading is ours from now on */
    else
        f->u.reads[ir_root(f->ir, from)]++;
    *t = ir_alias(f->ir, from, d.rank, d.dims);
    return true;
}

static bool same_quant(const struct quant *f, const struct dev_quant *a, uint32_t a_of,
                       const struct dev_quant *b, uint32_t b_of)
{
    return a->scale == b->scale && a->zero == b->zero &&
           ir_t(f->ir, a_of)->dtype == ir_t(f->ir, b_of)->dtype;
}

/* ------------------------------------------------------------------ products */

struct match {
    const struct q8 *q;
    struct q8_shape shape;
    int64_t dims[4];
    float alpha;
};

static bool is_channel_vector(const struct ir *ir, uint32_t t, int64_t n)
{
    const struct dev_tensor *d = ir_t(ir, t);

    return ir_is_const(ir, t) && d->dtype == SH_F32 && d->rank > 0 && d->dims[d->rank - 1] == n &&
           ir_elements(ir, t) == n;
}

/* Is the weight one of 8 bits whose channels are those of the result? */
static bool match_weight(const struct ir *ir, const struct dev_op *op, struct match *m)
{
    const struct dev_tensor *w = ir_t(ir, op->in[1]);
    const bool is_conv = op->kind == DEV_OP_CONV;
    int64_t inner = 1;

    m->q = q8_of(ir, op->in[1]);
    if (!m->q || !ir_same_shape(ir, op->in[1], ir_root(ir, op->in[1])) ||
        w->rank != (is_conv ? 4 : 2))
        return false;
    for (uint32_t i = 0; i < w->rank; i++)
        m->dims[i] = w->dims[i];
    m->shape = (struct q8_shape){.rank = w->rank, .dims = m->dims};
    if (!is_conv && !op->u.matmul.trans_b) {
        m->shape.turned = true;
        m->dims[0] = w->dims[1];
        m->dims[1] = w->dims[0];
    }
    for (uint32_t i = m->shape.turned ? w->rank : 1; i < w->rank; i++)
        inner *= w->dims[i];
    if ((m->q->channels != m->dims[0] || m->q->inner != inner) &&
        !(m->q->one_scale && (!m->q->zero || m->q->one_zero)))
        return false;
    return m->q->n / m->dims[0] <= DEV_Q_MAX_TERMS && q8_fits(m->q);
}

static bool matches_product(const struct quant *f, const struct dev_op *op, struct match *m)
{
    const struct ir *ir = f->ir;
    const struct dev_tensor *y = ir_t(ir, op->out[0]);
    const bool is_conv = op->kind == DEV_OP_CONV;
    const uint32_t bias = op->in[2], residual = op->in[3];

    if (op->n_in < 4 || !floats_of(f, op->in[0]) || !match_weight(ir, op, m) ||
        (op->act != DEV_ACT_NONE && !pass__fusable(op->act)))
        return false;
    m->alpha = is_conv ? 1.0f : op->u.matmul.alpha;
    if (!is_conv && (op->u.matmul.trans_a || ir_t(ir, op->in[0])->rank < 2))
        return false;
    return (bias == DEV_NONE || is_channel_vector(ir, bias, m->dims[0])) &&
           (residual == DEV_NONE ||
            (ir_same_shape(ir, residual, op->out[0]) && ir_t(ir, residual)->dtype == SH_F32)) &&
           y->dtype == SH_F32;
}

static void to_product(struct quant *f, uint32_t slot, const struct match *m)
{
    struct dev_op *op = &f->ir->g.ops[slot], p;
    const char *name = ir_t(f->ir, op->in[1])->name;
    const struct dev_quant x = floats_of(f, op->in[0])->u.quant.x;
    uint32_t in[DEV_Q_N_IN] = {op->in[0], DEV_NONE, DEV_NONE, op->in[2], op->in[3], DEV_NONE};

    in[DEV_Q_FACTOR] = q8_factor(f->ir, m->q, m->dims[0], (double)x.scale * (double)m->alpha, name);
    if (in[DEV_Q_FACTOR] == DEV_NONE)
        return;
    p = ir_op(op->kind == DEV_OP_CONV ? DEV_OP_QCONV : DEV_OP_QMATMUL, op->name, DEV_Q_N_IN, in);
    if (op->kind == DEV_OP_CONV)
        p.u.qconv.conv = op->u.conv;
    p.u.qconv.q.x_zero = x.zero;
    p.act = op->act;
    p.act_p0 = op->act_p0;
    p.act_p1 = op->act_p1;
    p.n_out = 1;
    p.out[0] = op->out[0];
    p.in[DEV_Q_W] = q8_weight(f->ir, m->q, &m->shape, name);
    if (x.zero != 0)
        p.in[DEV_Q_SUMS] = q8_sums(f->ir, m->q, &m->shape, x.zero, name);
    take_integers(f, &p.in[DEV_Q_X], &(struct dev_quant){0});
    take_integers(f, &p.in[DEV_Q_RESIDUAL], &p.u.qconv.q.residual);
    f->ir->g.ops[slot] = p;
}

/* ------------------------------------------------------------------ QUANTIZE */

static bool is_product_op(const struct dev_op *op)
{
    return op && (op->kind == DEV_OP_QCONV || op->kind == DEV_OP_QMATMUL);
}

/* Takes in the activation or the sum that makes its operand. */
static void absorb(struct quant *f, struct dev_op *op)
{
    const struct ir *ir = f->ir;
    struct dev_op *before = sole_writer(f, op->in[0]);

    if (before && op->act == DEV_ACT_NONE && before->kind == DEV_OP_ACT &&
        pass__fusable(before->act) && ir_same_shape(ir, before->in[0], op->out[0])) {
        op->in[0] = before->in[0];
        op->act = before->act;
        op->act_p0 = before->act_p0;
        op->act_p1 = before->act_p1;
        ir_kill(before);
        before = sole_writer(f, op->in[0]);
    }
    if (!before || before->kind != DEV_OP_BINARY || before->u.binary.kind != DEV_BIN_ADD ||
        (before->act != DEV_ACT_NONE && (op->act != DEV_ACT_NONE || !pass__fusable(before->act))))
        return;
    for (int k = 0; k < 2; k++)
        if (!ir_same_shape(ir, before->in[k], op->out[0]) ||
            ir_t(ir, before->in[k])->dtype != SH_F32)
            return;
    if (before->act != DEV_ACT_NONE) {
        op->act = before->act;
        op->act_p0 = before->act_p0;
        op->act_p1 = before->act_p1;
    }
    op->n_in = 2;
    op->in[0] = before->in[0];
    op->in[1] = before->in[1];
    ir_kill(before);
}

/* Can p give y? The rows of a product of matrices may lie in any axes. */
static bool can_give(const struct ir *ir, const struct dev_op *p, uint32_t y)
{
    const struct dev_tensor *a, *b = ir_t(ir, y);

    if (!is_product_op(p))
        return false;
    a = ir_t(ir, p->out[0]);
    return ir_same_shape(ir, p->out[0], y) || (p->kind == DEV_OP_QMATMUL && b->rank > 0 &&
                                               a->dims[a->rank - 1] == b->dims[b->rank - 1] &&
                                               ir_elements(ir, p->out[0]) == ir_elements(ir, y));
}

/* The residual is seen in the shape of the result. */
static void give_quantised(struct ir *ir, struct dev_op *p, uint32_t y)
{
    const struct dev_tensor d = *ir_t(ir, y);

    p->out[0] = y;
    if (p->in[DEV_Q_RESIDUAL] != DEV_NONE)
        p->in[DEV_Q_RESIDUAL] = ir_alias(ir, p->in[DEV_Q_RESIDUAL], d.rank, d.dims);
}

/* Its operand is floats of a product that nobody else reads: the product rounds them itself. */
static bool into_floats(struct quant *f, struct dev_op *op)
{
    struct dev_op *p = sole_writer(f, op->in[0]);

    if (!can_give(f->ir, p, op->out[0]) || op->n_in > 1 ||
        ir_t(f->ir, p->out[0])->dtype != SH_F32 ||
        (op->act != DEV_ACT_NONE && p->act != DEV_ACT_NONE))
        return false;
    give_quantised(f->ir, p, op->out[0]);
    if (op->act != DEV_ACT_NONE) {
        p->act = op->act;
        p->act_p0 = op->act_p0;
        p->act_p1 = op->act_p1;
    }
    p->u.qconv.q.y = op->u.quant.y;
    f->u.writer[p->out[0]] = (uint32_t)(p - f->ir->g.ops);
    ir_kill(op);
    return true;
}

/* Operand k of the sum or of the activation is integers of a product that nobody else reads: it
 * takes the place of op, and rounds in between as it did. */
static bool into_product(struct quant *f, uint32_t slot, uint32_t k)
{
    struct dev_op *op = &f->ir->g.ops[slot], *p = sole_writer(f, op->in[k]);
    const uint32_t other = op->n_in > 1 ? op->in[1 - k] : DEV_NONE;
    const struct dev_quant *q = k == 0 ? &op->u.quant.x : &op->u.quant.add;
    struct dev_product *to;

    if (!can_give(f->ir, p, op->out[0]))
        return false;
    to = &p->u.qconv.q;
    if (other == DEV_NONE && p->act == DEV_ACT_NONE &&
        (op->act == DEV_ACT_NONE || op->act == DEV_ACT_RELU) &&
        same_quant(f, q, op->in[k], &op->u.quant.y, op->out[0])) {
        p->act = op->act; /* rounding after it is rounding before it */
    } else if (p->act == DEV_ACT_NONE && p->in[DEV_Q_RESIDUAL] == DEV_NONE && to->mid.scale == 0) {
        to->mid = *q;
        to->mid_type = ir_t(f->ir, op->in[k])->dtype;
        to->residual = k == 0 ? op->u.quant.add : op->u.quant.x;
        p->in[DEV_Q_RESIDUAL] = other;
        p->act = op->act;
        p->act_p0 = op->act_p0;
        p->act_p1 = op->act_p1;
    } else {
        return false;
    }
    to->y = op->u.quant.y;
    give_quantised(f->ir, p, op->out[0]);
    *op = *p;
    ir_kill(p);
    return true;
}

/* The same integers under another shape: those who read y read x. */
static void same_integers(struct quant *f, struct dev_op *op)
{
    struct ir *ir = f->ir;
    const uint32_t x = op->in[0], y = op->out[0];

    if (op->n_in > 1 || op->act != DEV_ACT_NONE || is_program_output(ir, y) ||
        ir_t(ir, ir_root(ir, x))->role != DEV_ROLE_ACT ||
        !same_quant(f, &op->u.quant.x, x, &op->u.quant.y, y))
        return;
    for (uint32_t i = 0; i < ir->g.n_ops; i++)
        for (uint32_t k = 0; k < ir->g.ops[i].n_in; k++) {
            const uint32_t t = ir->g.ops[i].in[k];

            if (ir->g.ops[i].kind == IR_DEAD || t == DEV_NONE || ir_root(ir, t) != y)
                continue;
            const struct dev_tensor d = *ir_t(ir, t);
            ir->g.ops[i].in[k] = ir_alias(ir, x, d.rank, d.dims);
        }
    f->u.reads[ir_root(ir, x)] += f->u.reads[y];
    f->u.reads[ir_root(ir, x)]--;
    ir_kill(op);
}

/* Its operand is floats of a layer normalisation, which rounds them itself. */
static bool into_norm(struct quant *f, struct dev_op *op)
{
    const struct ir *ir = f->ir;
    struct dev_op *n = pass__writer(ir, &f->u, op->in[0], DEV_OP_LAYERNORM);

    if (!n || op->n_in > 1 || op->act != DEV_ACT_NONE || n->n_out != 1 ||
        ir_root(ir, n->out[0]) != n->out[0])
        return false;
    n->n_out = 4;
    n->out[1] = n->out[2] = DEV_NONE;
    n->out[3] = op->out[0];
    n->u.norm.q = op->u.quant.y;
    f->u.reads[n->out[0]]--;
    f->u.writer[op->out[0]] = (uint32_t)(n - ir->g.ops);
    ir_kill(op);
    return true;
}

static void quantise(struct quant *f, uint32_t slot)
{
    struct dev_op *op = &f->ir->g.ops[slot];
    struct dev_quantize *q = &op->u.quant;
    bool done = false, any;

    if (!dev_is8(ir_t(f->ir, op->out[0])->dtype) || ir_t(f->ir, op->in[0])->dtype != SH_F32)
        return;
    absorb(f, op);
    if (into_floats(f, op) || into_norm(f, op))
        return;
    any = take_integers(f, &op->in[0], &q->x);
    if (op->n_in > 1)
        any |= take_integers(f, &op->in[1], &q->add);
    if (!any)
        return;
    for (uint32_t k = op->n_in; k-- > 0 && !done;)
        done = into_product(f, slot, k);
    if (done)
        f->u.writer[ir_root(f->ir, op->out[0])] = slot;
    else
        same_integers(f, op);
}

/* ------------------------------------------------------------------ pooling */

static void pool(struct quant *f, uint32_t slot)
{
    struct ir *ir = f->ir;
    struct dev_op *op = &ir->g.ops[slot], *to;
    const struct dev_op *from = floats_of(f, op->in[0]);
    const uint32_t root = ir_root(ir, op->out[0]);
    uint32_t x = op->in[0], r;
    struct dev_quant q;

    if (!from || op->n_out > 1 || f->u.reads[root] != 1 || is_program_output(ir, root))
        return;
    r = f->u.reader[root];
    to = r == DEV_NONE ? NULL : &ir->g.ops[r];
    if (!to || to->kind != DEV_OP_QUANTIZE || to->act != DEV_ACT_NONE || to->n_in > 1 ||
        !ir_same_shape(ir, op->out[0], to->out[0]) ||
        !same_quant(f, &from->u.quant.x, from->in[0], &to->u.quant.y, to->out[0]))
        return;
    take_integers(f, &x, &q);
    op = &ir->g.ops[slot];
    op->in[0] = x;
    op->out[0] = to->out[0];
    f->u.writer[to->out[0]] = slot;
    ir_kill(to);
}

void pass_quant(struct ir *ir)
{
    struct quant f = {.ir = ir, .known = ir->g.n_tensors};

    ir_uses_init(&f.u, ir);
    for (uint32_t i = 0; i < ir->g.n_ops && ir->err.rc == SH_OK; i++) {
        const struct dev_op *op = &ir->g.ops[i];
        struct match m;

        if ((op->kind == DEV_OP_CONV || op->kind == DEV_OP_MATMUL) && matches_product(&f, op, &m))
            to_product(&f, i, &m);
        else if (op->kind == DEV_OP_QUANTIZE)
            quantise(&f, i);
        else if (op->kind == DEV_OP_POOL_MAX)
            pool(&f, i);
    }
    ir_uses_fini(&f.u);
    ir_sweep(ir);
    ir_drop_unused(ir);
}
