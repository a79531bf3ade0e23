/* pass_channels.c - inference: fuses what follows a product with moved channels into the product.
 *
 *   m = MATMUL(x, w) + b      [N, H, W, C]
 *   t = TRANSPOSE(m)          [N, C, H, W]
 *   y = t * s + r             s: a number for each channel
 *
 * is how a block of ConvNeXt ends. The transposition may also come last:
 *
 *   y = TRANSPOSE(MATMUL(x, w s) + b s + r')
 *
 * where r' is r transposed back. If r is itself such a y, its source is r'; otherwise the
 * transposition of r replaces the addition.
 */
#include "common/mem.h"
#include "runtime/model/pass.h"

#include <stdlib.h>

struct channels {
    struct ir *ir;
    struct ir_uses u;
    struct dev_op *ops; /* OWNED, those before the pass */
    bool *waits;        /* OWNED, by number of ops: comes at the place of the addition */
    uint32_t *moved;    /* OWNED, by root: the operation, a TRANSPOSE, that is written by now */
};

struct end { /* of a block */
    struct dev_op *product, *turn;
};

/* x: the result of a TRANSPOSE of a product, neither of which is read by anything else. */
static bool find_product_end(const struct ir *ir, const struct ir_uses *u, uint32_t x,
                             struct end *e)
{
    const struct dev_op *p;

    e->turn = pass__writer(ir, u, x, DEV_OP_TRANSPOSE);
    if (!e->turn || u->reads[ir_root(ir, x)] != 1 || !ir_same_shape(ir, x, e->turn->out[0]))
        return false;
    e->product = pass__writer(ir, u, e->turn->in[0], DEV_OP_MATMUL);
    p = e->product;
    return p && u->reads[ir_root(ir, e->turn->in[0])] == 1 && p->act == DEV_ACT_NONE &&
           p->in[3] == DEV_NONE && ir_t(ir, p->out[0])->dtype == SH_F32;
}

/* ------------------------------------------------------------------ the factor */

static bool is_constant_channel(const struct ir *ir, uint32_t t)
{
    return t != DEV_NONE && ir_t(ir, t)->dtype == SH_F32 && ir_is_const(ir, t);
}

/* Is s a number for each channel of the product, where it was moved to? */
static bool is_by_channel(const struct ir *ir, const struct end *e, uint32_t s)
{
    const struct dev_tensor *y = ir_t(ir, e->turn->out[0]), *d = ir_t(ir, s);
    const struct dev_tensor *m = ir_t(ir, e->product->out[0]);
    const int64_t n = m->rank ? m->dims[m->rank - 1] : 0;
    uint32_t at = 0;

    while (at < y->rank && e->turn->u.perm.perm[at] != y->rank - 1)
        at++;
    return at < y->rank && y->dims[at] == n && is_constant_channel(ir, s) &&
           ir_elements(ir, s) == n && d->rank >= y->rank - at && d->rank <= y->rank &&
           d->dims[at - (y->rank - d->rank)] == n;
}

static bool takes_factor(const struct ir *ir, const struct dev_op *product)
{
    return is_constant_channel(ir, product->in[1]) && ir_t(ir, product->in[1])->rank == 2 &&
           product->u.matmul.alpha == 1.0f &&
           (product->in[2] == DEV_NONE || is_constant_channel(ir, product->in[2]));
}

static void scale_product(struct ir *ir, const struct end *e, struct dev_op *mul, uint32_t s)
{
    struct dev_op *p = e->product;
    const struct dev_tensor *m = ir_t(ir, p->out[0]);
    const int64_t n = m->dims[m->rank - 1];
    const float *from = ir_settle(ir, s);
    double *factors = ir_alloc(ir, n, sizeof(*factors));

    if (!factors)
        return;
    for (int64_t i = 0; i < n; i++)
        factors[i] = (double)from[i];
    p->in[1] = pass__scale_weight(ir, p->in[1], p->u.matmul.trans_b, factors, n);
    if (p->in[2] != DEV_NONE)
        p->in[2] = pass__scale_weight(ir, p->in[2], true, factors, n);
    free(factors);
    pass__take_output(ir, e->turn, mul);
    ir_kill(mul);
}

static void fold_factors(struct ir *ir)
{
    struct ir_uses u;
    const bool is_ready = ir_uses_init(&u, ir);

    for (uint32_t i = 0; i < ir->g.n_ops && is_ready; i++) {
        struct dev_op *mul = &ir->g.ops[i];
        bool done = mul->kind != DEV_OP_BINARY || mul->u.binary.kind != DEV_BIN_MUL ||
                    mul->act != DEV_ACT_NONE;

        for (uint32_t k = 0; k < 2 && !done; k++) {
            struct end e;

            done = find_product_end(ir, &u, mul->in[k], &e) && takes_factor(ir, e.product) &&
                   ir_same_shape(ir, mul->in[k], mul->out[0]) &&
                   is_by_channel(ir, &e, mul->in[1 - k]);
            if (done)
                scale_product(ir, &e, mul, mul->in[1 - k]);
        }
    }
    ir_uses_fini(&u);
    ir_sweep(ir);
}

/* ------------------------------------------------------------------ the residual */

/* The end of a block before this addition; *r: what is added. */
static bool find_sum(const struct ir *ir, const struct ir_uses *u, const struct dev_op *add,
                     struct end *e, uint32_t *r)
{
    if (add->kind != DEV_OP_BINARY || add->u.binary.kind != DEV_BIN_ADD ||
        (add->act != DEV_ACT_NONE && !pass__fusable(add->act)))
        return false;
    for (uint32_t k = 0; k < 2; k++) {
        *r = add->in[1 - k];
        if (find_product_end(ir, u, add->in[k], e) && ir_same_shape(ir, add->in[k], add->out[0]) &&
            ir_same_shape(ir, *r, add->out[0]) && ir_t(ir, *r)->dtype == SH_F32 &&
            !ir_is_const(ir, *r))
            return true;
    }
    return false;
}

static void push_channel_op(struct channels *c, struct dev_op op)
{
    if (op.kind == DEV_OP_TRANSPOSE)
        c->moved[ir_root(c->ir, op.out[0])] = c->ir->g.n_ops;
    ir_push(c->ir, &op);
}

/* r in the order in which the product writes. */
static uint32_t moved_back(struct channels *c, const struct dev_op *turn, uint32_t r)
{
    struct ir *ir = c->ir;
    const uint32_t at = c->moved[ir_root(ir, r)];
    const struct dev_op *same = at == DEV_NONE ? NULL : &ir->g.ops[at];
    const struct dev_tensor like = *ir_t(ir, turn->in[0]);
    struct dev_op back = ir_op(DEV_OP_TRANSPOSE, turn->name, 1, &r);

    if (same && ir_same_shape(ir, same->out[0], r) && ir_same_shape(ir, same->in[0], turn->in[0]) &&
        memcmp(same->u.perm.perm, turn->u.perm.perm, like.rank * sizeof(turn->u.perm.perm[0])) == 0)
        return same->in[0];
    for (uint32_t i = 0; i < like.rank; i++)
        back.u.perm.perm[turn->u.perm.perm[i]] = i;
    back.layer = turn->layer;
    return ir_emit(ir, &back, SH_F32, like.rank, like.dims);
}

/* Product, with the activation, and TRANSPOSE come here, which writes what the addition wrote. */
static void push_sum(struct channels *c, const struct end *e, const struct dev_op *add, uint32_t r)
{
    struct dev_op product = *e->product, turn = *e->turn;
    const struct dev_tensor like = *ir_t(c->ir, product.out[0]);

    product.in[3] = ir_alias(c->ir, moved_back(c, &turn, r), like.rank, like.dims);
    product.act = add->act;
    product.act_p0 = add->act_p0;
    product.act_p1 = add->act_p1;
    turn.out[0] = add->out[0];
    turn.layer = add->layer;
    push_channel_op(c, product);
    push_channel_op(c, turn);
}

static void fold_sums(struct channels *c, uint32_t n_ops)
{
    struct ir before = *c->ir; /* to look at */
    struct end e;
    uint32_t r;
    bool any = false;

    before.g.ops = c->ops;
    before.g.n_ops = n_ops;
    for (uint32_t i = 0; i < n_ops; i++)
        if (find_sum(&before, &c->u, &c->ops[i], &e, &r))
            any = c->waits[e.product - c->ops] = c->waits[e.turn - c->ops] = true;
    if (!any)
        return;
    c->ir->g.n_ops = 0; /* the list is written again */
    for (uint32_t i = 0; i < n_ops; i++) {
        before.g.tensors = c->ir->g.tensors;
        before.info = c->ir->info;
        if (c->waits[i])
            continue;
        if (find_sum(&before, &c->u, &c->ops[i], &e, &r))
            push_sum(c, &e, &c->ops[i], r);
        else
            push_channel_op(c, c->ops[i]);
    }
}

void pass_channels(struct ir *ir)
{
    struct channels c = {.ir = ir};
    uint32_t n_ops, n;

    fold_factors(ir);
    n_ops = ir->g.n_ops;
    n = ir->g.n_tensors;
    c.ops = ir_alloc(ir, n_ops, sizeof(*c.ops));
    c.waits = ir_alloc(ir, n_ops, sizeof(*c.waits));
    c.moved = ir_alloc(ir, n, sizeof(*c.moved));
    if (ir_uses_init(&c.u, ir)) {
        memcpy(c.ops, ir->g.ops, n_ops * sizeof(*c.ops));
        for (uint32_t i = 0; i < n; i++)
            c.moved[i] = DEV_NONE;
        fold_sums(&c, n_ops);
    }
    ir_uses_fini(&c.u);
    free(c.ops);
    free(c.waits);
    free(c.moved);
}
