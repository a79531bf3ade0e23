/* pass_train.c - training: fuses the element-wise operations around a BN_TRAIN, and what is added
 * to a DROPOUT.
 *
 * In the forward pass residual and activation go into the BN_TRAIN before them, or a residual into
 * a DROPOUT. Their gradient rules know both, so the backward pass is fused too, except for one
 * addition: if a tensor has two readers (the shortcut around a block) their gradients are summed,
 * and BN_TRAIN_BWD takes both. Other sums of gradients are left to pass_fuse.
 *
 * Only operations that see the same shape are fused: an alias in between would force a tensor to be
 * stored plain.
 */
#include "runtime/model/pass.h"

/* The operation of this kind that writes t, if nothing else reads it and it could take in what
 * follows. */
static struct dev_op *host_of_train(const struct ir *ir, const struct ir_uses *u, uint32_t t,
                                    enum dev_op_kind k)
{
    struct dev_op *op = pass__writer(ir, u, t, k);

    return op && op->out[0] == t && u->reads[t] == 1 && op->act == DEV_ACT_NONE ? op : NULL;
}

static void note_result(const struct ir *ir, struct ir_uses *u, const struct dev_op *op,
                        uint32_t reads)
{
    u->writer[op->out[0]] = (uint32_t)(op - ir->g.ops);
    u->reads[op->out[0]] = reads;
}

static void try_train_act(struct ir *ir, struct ir_uses *u, struct dev_op *act)
{
    struct dev_op *op = host_of_train(ir, u, act->in[0], DEV_OP_BN_TRAIN);
    float lo, hi;

    if (!op || !(dev_act_bounds(act, &lo, &hi) || (dev_act_is_gated(act->act) && op->n_in < 6)) ||
        !ir_same_shape(ir, act->in[0], act->out[0]))
        return;
    pass__take_output(ir, op, act);
    op->act = act->act;
    op->act_p0 = act->act_p0;
    op->act_p1 = act->act_p1;
    note_result(ir, u, op, u->reads[act->out[0]]);
    ir_kill(act);
}

/* The operation of this kind that can take the addition, of two the later; *other: its residual,
 * input `slot`. */
static struct dev_op *host_of_sum(const struct ir *ir, const struct ir_uses *u,
                                  const struct dev_op *add, enum dev_op_kind kind, uint32_t slot,
                                  uint32_t *other)
{
    struct dev_op *best = NULL;

    for (uint32_t k = 0; k < 2; k++) {
        struct dev_op *op = host_of_train(ir, u, add->in[k], kind);
        uint32_t o = add->in[1 - k];

        if (!op || op->n_in > slot || (best && best > op) || ir_t(ir, o)->dtype != SH_F32 ||
            !ir_same_shape(ir, add->in[k], add->out[0]) || !ir_same_shape(ir, o, add->out[0]))
            continue;
        best = op;
        *other = o;
    }
    return best;
}

/* The host moves to the place of the addition, whose other operand may be computed in between. A
 * BN_TRAIN comes before a DROPOUT: it can take an activation as well. */
static void try_train_add(struct ir *ir, struct ir_uses *u, struct dev_op *add)
{
    uint32_t other = DEV_NONE, slot = 5, reads = u->reads[add->out[0]];
    struct dev_op *host = host_of_sum(ir, u, add, DEV_OP_BN_TRAIN, slot, &other);

    if (!host) {
        slot = 1;
        host = host_of_sum(ir, u, add, DEV_OP_DROPOUT, slot, &other);
    }
    if (!host)
        return;
    pass__take_output(ir, host, add);
    *add = *host;
    add->in[slot] = other;
    add->n_in = slot + 1;
    ir_kill(host);
    note_result(ir, u, add, reads);
}

void pass_train(struct ir *ir)
{
    struct ir_uses u;
    const bool is_ready = ir_uses_init(&u, ir);

    for (uint32_t i = 0; i < ir->g.n_ops && is_ready; i++) {
        struct dev_op *op = &ir->g.ops[i];

        if (op->kind == DEV_OP_ACT)
            try_train_act(ir, &u, op);
        else if (op->kind == DEV_OP_BINARY && op->u.binary.kind == DEV_BIN_ADD &&
                 op->act == DEV_ACT_NONE)
            try_train_add(ir, &u, op);
    }
    ir_uses_fini(&u);
    ir_sweep(ir);
}

void pass_fuse_sums(struct ir *ir)
{
    struct ir_uses u;
    const bool is_ready = ir_uses_init(&u, ir);

    for (uint32_t i = 0; i < ir->g.n_ops && is_ready; i++) {
        struct dev_op *op = &ir->g.ops[i], *add;
        uint32_t dy = op->in[1];

        if (op->kind != DEV_OP_BN_TRAIN_BWD || op->n_in != 7)
            continue;
        add = pass__writer(ir, &u, dy, DEV_OP_BINARY);
        if (!add || add->out[0] != dy || u.reads[dy] != 1 || add->act != DEV_ACT_NONE ||
            add->u.binary.kind != DEV_BIN_ADD || !ir_same_shape(ir, add->in[0], dy) ||
            !ir_same_shape(ir, add->in[1], dy))
            continue;
        op->in[1] = add->in[0];
        op->in[7] = add->in[1];
        op->n_in = 8;
        ir_kill(add);
    }
    ir_uses_fini(&u);
    ir_sweep(ir);
    pass_fuse(ir, true);
}
