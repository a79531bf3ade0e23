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
static bool find(const struct ir *ir, const struct ir_uses *u, uint32_t x, struct end *e)
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

static bool is_constant(const struct ir *ir, uint32_t t)
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
    return at < y->rank && y->dims[at] == n && is_constant(ir, s) && ir_elements(ir, s) == n &&
           d->rank >= y->rank - at && d->rank <= y->rank && d->dims[at - (y->rank - d->rank)] == n;
}

static bool takes_factor(const struct ir *ir, const struct dev_op *product)
{
    return is_constant(ir, product->in[1]) && ir_t(ir, product->in[1])->rank == 2 &&
           product->u.matmul.alpha == 1.0f &&
           (product->in[2] == DEV_NONE || is_constant(ir, product->in[2]));
}

static int scale(struct ir *ir, const struct end *e, struct dev_op *mul, uint32_t s,
                 struct sh_err *err)
{
    struct dev_op *p = e->product;
    const struct dev_tensor *m = ir_t(ir, p->out[0]);
    const int64_t n = m->dims[m->rank - 1];
    double *factors;
    int rc = ir_settle(ir, s, err);

    if (rc)
        return rc;
    factors = malloc((size_t)n * sizeof(*factors));
    if (!factors)
        return SH_FAIL(err, SH_E_NOMEM, "could not allocate the factors of \"%s\"", mul->name);
    for (int64_t i = 0; i < n; i++)
        factors[i] = (double)((const float *)ir_data(ir, s))[i];
    rc = pass__scale_weight(ir, p->in[1], p->u.matmul.trans_b, factors, n, &p->in[1], err);
    if (!rc && p->in[2] != DEV_NONE)
        rc = pass__scale_weight(ir, p->in[2], true, factors, n, &p->in[2], err);
    free(factors);
    if (!rc)
        rc = pass__take_output(ir, e->turn, mul, err);
    if (!rc)
        ir_kill(mul);
    return rc;
}

static int fold_factors(struct ir *ir, struct sh_err *err)
{
    struct ir_uses u;
    int rc = ir_uses_init(&u, ir, err);

    for (uint32_t i = 0; i < ir->g.n_ops && !rc; i++) {
        struct dev_op *mul = &ir->g.ops[i];
        bool done = mul->kind != DEV_OP_BINARY || mul->u.binary.kind != DEV_BIN_MUL ||
                    mul->act != DEV_ACT_NONE;

        for (uint32_t k = 0; k < 2 && !done; k++) {
            struct end e;

            done = find(ir, &u, mul->in[k], &e) && takes_factor(ir, e.product) &&
                   ir_same_shape(ir, mul->in[k], mul->out[0]) &&
                   is_by_channel(ir, &e, mul->in[1 - k]);
            if (done)
                rc = scale(ir, &e, mul, mul->in[1 - k], err);
        }
    }
    ir_uses_fini(&u);
    ir_sweep(ir);
    return rc;
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
        if (find(ir, u, add->in[k], e) && ir_same_shape(ir, add->in[k], add->out[0]) &&
            ir_same_shape(ir, *r, add->out[0]) && ir_t(ir, *r)->dtype == SH_F32 &&
            !ir_is_const(ir, *r))
            return true;
    }
    return false;
}

static int push(struct channels *c, struct dev_op op, struct sh_err *err)
{
    if (op.kind == DEV_OP_TRANSPOSE)
        c->moved[ir_root(c->ir, op.out[0])] = c->ir->g.n_ops;
    return ir_push(c->ir, &op, err);
}

/* r in the order in which the product writes. */
static int moved_back(struct channels *c, const struct dev_op *turn, uint32_t r, uint32_t *out,
                      struct sh_err *err)
{
    struct ir *ir = c->ir;
    const uint32_t at = c->moved[ir_root(ir, r)];
    const struct dev_op *same = at == DEV_NONE ? NULL : &ir->g.ops[at];
    const struct dev_tensor like = *ir_t(ir, turn->in[0]);
    struct dev_op back = ir_op(DEV_OP_TRANSPOSE, turn->name, 1, &r);

    if (same && ir_same_shape(ir, same->out[0], r) && ir_same_shape(ir, same->in[0], turn->in[0]) &&
        memcmp(same->u.perm.perm, turn->u.perm.perm, like.rank * sizeof(turn->u.perm.perm[0])) ==
            0) {
        *out = same->in[0];
        return SH_OK;
    }
    for (uint32_t i = 0; i < like.rank; i++)
        back.u.perm.perm[turn->u.perm.perm[i]] = i;
    back.layer = turn->layer;
    return ir_emit(ir, &back, SH_F32, like.rank, like.dims, out, err);
}

/* Product, with the activation, and TRANSPOSE come here, which writes what the addition wrote. */
static int push_sum(struct channels *c, const struct end *e, const struct dev_op *add, uint32_t r,
                    struct sh_err *err)
{
    struct dev_op product = *e->product, turn = *e->turn;
    const struct dev_tensor like = *ir_t(c->ir, product.out[0]);
    uint32_t back;
    int rc = moved_back(c, &turn, r, &back, err);

    if (!rc)
        rc = ir_alias(c->ir, back, like.rank, like.dims, &product.in[3], err);
    product.act = add->act;
    product.act_p0 = add->act_p0;
    product.act_p1 = add->act_p1;
    turn.out[0] = add->out[0];
    turn.layer = add->layer;
    if (!rc)
        rc = push(c, product, err);
    return rc ? rc : push(c, turn, err);
}

static int fold_sums(struct channels *c, uint32_t n_ops, struct sh_err *err)
{
    struct ir before = *c->ir; /* to look at */
    struct end e;
    uint32_t r;
    bool any = false;
    int rc = SH_OK;

    before.g.ops = c->ops;
    before.g.n_ops = n_ops;
    for (uint32_t i = 0; i < n_ops; i++)
        if (find_sum(&before, &c->u, &c->ops[i], &e, &r))
            any = c->waits[e.product - c->ops] = c->waits[e.turn - c->ops] = true;
    if (!any)
        return SH_OK;
    c->ir->g.n_ops = 0; /* the list is written again */
    for (uint32_t i = 0; i < n_ops && !rc; i++) {
        before.g.tensors = c->ir->g.tensors;
        before.info = c->ir->info;
        if (c->waits[i])
            continue;
        if (find_sum(&before, &c->u, &c->ops[i], &e, &r))
            rc = push_sum(c, &e, &c->ops[i], r, err);
        else
            rc = push(c, c->ops[i], err);
    }
    return rc;
}

int pass_channels(struct ir *ir, struct sh_err *err)
{
    struct channels c = {.ir = ir};
    int rc = fold_factors(ir, err);
    const uint32_t n_ops = ir->g.n_ops, n = ir->g.n_tensors;

    if (rc)
        return rc;
    rc = ir_uses_init(&c.u, ir, err);
    c.ops = malloc(((size_t)n_ops + 1) * sizeof(*c.ops));
    c.waits = calloc((size_t)n_ops + 1, sizeof(*c.waits));
    c.moved = malloc(((size_t)n + 1) * sizeof(*c.moved));
    if (!rc && (!c.ops || !c.waits || !c.moved))
        rc = SH_FAIL(err, SH_E_NOMEM, "could not allocate a pass over %u operations", n_ops);
    if (!rc) {
        memcpy(c.ops, ir->g.ops, n_ops * sizeof(*c.ops));
        for (uint32_t i = 0; i < n; i++)
            c.moved[i] = DEV_NONE;
        rc = fold_sums(&c, n_ops, err);
    }
    ir_uses_fini(&c.u);
    free(c.ops);
    free(c.waits);
    free(c.moved);
    return rc;
}
