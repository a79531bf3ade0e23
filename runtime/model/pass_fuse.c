/* pass_fuse.c - fuses bias, residual and activation into the CONV or MATMUL that they follow.
 *
 * A residual moves the operation to the place of the addition, because its other operand may be
 * computed in between. If both operands come from such operations (a strided shortcut), the later
 * one takes the addition, so that it does not move.
 *
 * In training only a MATMUL takes anything, and no activation: its gradient rule knows bias,
 * residual and factor, but needs the input of an activation. After autodiff the pass runs again: if
 * a tensor has several readers, the sum of their gradients goes into the products that made them,
 * one after the other.
 */
#include "common/mem.h"
#include "runtime/model/pass.h"

struct fuse {
    struct ir *ir;
    struct ir_uses u;
    bool training;
};

/* The operation before t that could take in what follows; *slot its number. */
static struct dev_op *host_of_fused(const struct fuse *f, uint32_t t, uint32_t *slot)
{
    uint32_t root = ir_root(f->ir, t), w = f->u.writer[root];
    struct dev_op *op = w == DEV_NONE ? NULL : &f->ir->g.ops[w];

    if (!op || f->u.reads[root] != 1 || op->act != DEV_ACT_NONE ||
        (op->kind != DEV_OP_MATMUL && (op->kind != DEV_OP_CONV || f->training)))
        return NULL;
    *slot = w;
    return op;
}

/* During a run: training changes parameters behind it. */
static bool is_constant_tensor(const struct ir *ir, uint32_t t)
{
    const enum dev_role role = ir_t(ir, ir_root(ir, t))->role;

    return role == DEV_ROLE_WEIGHT || role == DEV_ROLE_STATE;
}

/* Is t one number per output channel of op, as its bias is? */
static bool fits_as_bias(const struct ir *ir, const struct dev_op *op, uint32_t t, uint32_t sum)
{
    const struct dev_tensor *d = ir_t(ir, t), *s = ir_t(ir, sum), *y = ir_t(ir, op->out[0]);
    uint32_t axis = op->kind == DEV_OP_CONV ? 1 : y->rank - 1;
    uint32_t at = s->rank - (y->rank - axis); /* of the channel in the sum's shape */

    if (op->in[2] != DEV_NONE || !is_constant_tensor(ir, t) || d->dtype != SH_F32 || d->rank == 0 ||
        y->rank < 2 || s->rank < y->rank - axis || ir_elements(ir, t) != y->dims[axis])
        return false;
    return d->rank >= s->rank - at && d->dims[at - (s->rank - d->rank)] == y->dims[axis] &&
           pass__same_axis(s, at, y, axis);
}

static void fuse_bias(struct fuse *f, struct dev_op *op, uint32_t slot, struct dev_op *add,
                      uint32_t bias)
{
    int64_t n = ir_elements(f->ir, bias);

    op->in[2] = ir_alias(f->ir, bias, 1, &n);
    pass__take_output(f->ir, op, add);
    f->u.writer[ir_root(f->ir, op->out[0])] = slot;
    f->u.reads[ir_root(f->ir, op->out[0])] = f->u.reads[add->out[0]];
    ir_kill(add);
}

static void fuse_residual(struct fuse *f, struct dev_op *op, uint32_t add_slot, uint32_t other)
{
    struct dev_op *add = &f->ir->g.ops[add_slot];
    struct dev_tensor y = *ir_t(f->ir, op->out[0]);
    uint32_t reads = f->u.reads[add->out[0]];

    op->in[3] = ir_alias(f->ir, other, y.rank, y.dims);
    pass__take_output(f->ir, op, add);
    *add = *op;
    ir_kill(op);
    f->u.writer[ir_root(f->ir, add->out[0])] = add_slot;
    f->u.reads[ir_root(f->ir, add->out[0])] = reads;
}

static void try_fuse_add(struct fuse *f, uint32_t slot)
{
    struct ir *ir = f->ir;
    struct dev_op *add = &ir->g.ops[slot], *best = NULL;
    uint32_t best_slot = 0, other = 0;

    for (uint32_t k = 0; k < 2; k++) {
        uint32_t at, o = add->in[1 - k];
        struct dev_op *op = host_of_fused(f, add->in[k], &at);

        if (!op || ir_elements(ir, add->in[k]) != ir_elements(ir, add->out[0]))
            continue;
        if (op->in[3] == DEV_NONE && fits_as_bias(ir, op, o, add->out[0])) {
            fuse_bias(f, op, at, add, o);
            return;
        }
        if (op->in[3] != DEV_NONE || !ir_same_shape(ir, o, add->out[0]) ||
            ir_t(ir, o)->dtype != SH_F32 || is_constant_tensor(ir, o) || (best && best_slot > at))
            continue;
        best = op;
        best_slot = at;
        other = o;
    }
    if (best)
        fuse_residual(f, best, slot, other);
}

bool pass__fusable(enum dev_act a)
{
    return a == DEV_ACT_RELU || a == DEV_ACT_LEAKY_RELU || a == DEV_ACT_CLIP ||
           a == DEV_ACT_SIGMOID || a == DEV_ACT_TANH || a == DEV_ACT_GELU_ERF ||
           a == DEV_ACT_GELU_TANH || a == DEV_ACT_HARDSIGMOID || a == DEV_ACT_HARDSWISH ||
           a == DEV_ACT_SILU;
}

static void try_fuse_act(struct fuse *f, struct dev_op *act)
{
    struct ir *ir = f->ir;
    uint32_t root = ir_root(ir, act->in[0]), w = f->u.writer[root];
    struct dev_op *op = w == DEV_NONE ? NULL : &ir->g.ops[w];
    bool scales = act->act == DEV_ACT_LINEAR && act->act_p1 == 0.0f;

    if (!op || f->u.reads[root] != 1 || op->act != DEV_ACT_NONE ||
        ir_t(ir, op->out[0])->dtype != SH_F32)
        return;
    if (op->kind != DEV_OP_CONV && op->kind != DEV_OP_MATMUL && op->kind != DEV_OP_BN_INFER &&
        op->kind != DEV_OP_BINARY)
        return;
    scales = scales && op->kind == DEV_OP_MATMUL && op->in[2] == DEV_NONE && op->in[3] == DEV_NONE;
    if (!scales && (f->training || !pass__fusable(act->act)))
        return;
    pass__take_output(ir, op, act);
    if (scales) {
        op->u.matmul.alpha *= act->act_p0;
    } else {
        op->act = act->act;
        op->act_p0 = act->act_p0;
        op->act_p1 = act->act_p1;
    }
    f->u.writer[ir_root(ir, op->out[0])] = w;
    f->u.reads[ir_root(ir, op->out[0])] = f->u.reads[act->out[0]];
    ir_kill(act);
}

void pass_fuse(struct ir *ir, bool training)
{
    struct fuse f = {.ir = ir, .training = training};
    const bool is_ready = ir_uses_init(&f.u, ir);

    for (uint32_t i = 0; i < ir->g.n_ops && is_ready && ir->err.rc == SH_OK; i++) {
        struct dev_op *op = &ir->g.ops[i];

        if (op->kind == DEV_OP_ACT)
            try_fuse_act(&f, op);
        else if (op->kind == DEV_OP_BINARY && op->u.binary.kind == DEV_BIN_ADD &&
                 op->act == DEV_ACT_NONE)
            try_fuse_add(&f, i);
    }
    ir_uses_fini(&f.u);
    ir_sweep(ir);
}
