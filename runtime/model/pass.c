/* pass.c - the order of the passes, and what they share. */
#include "runtime/model/pass.h"

int pass_run(struct ir *ir, bool training, struct sh_err *err)
{
    pass_pattern(ir);
    if (!training)
        pass_fold_bn(ir);
    pass_fuse(ir, training);
    if (training) {
        pass_train(ir);
    } else {
        pass_channels(ir);
        pass_quant(ir);
    }
    pass_attn(ir, training);
    pass_moves(ir, training);
    ir_drop_unused(ir);
    return ir_done(ir, err);
}

bool pass__same_axis(const struct dev_tensor *a, uint32_t i, const struct dev_tensor *b, uint32_t k)
{
    int64_t inner[2] = {1, 1};

    if (i >= a->rank || k >= b->rank || a->dims[i] != b->dims[k])
        return false;
    while (++i < a->rank)
        inner[0] *= a->dims[i];
    while (++k < b->rank)
        inner[1] *= b->dims[k];
    return inner[0] == inner[1];
}

struct dev_op *pass__writer(const struct ir *ir, const struct ir_uses *u, uint32_t t,
                            enum dev_op_kind k)
{
    uint32_t w = t == DEV_NONE ? DEV_NONE : u->writer[ir_root(ir, t)];

    return w != DEV_NONE && ir->g.ops[w].kind == k ? &ir->g.ops[w] : NULL;
}

void pass__take_output(struct ir *ir, struct dev_op *first, const struct dev_op *last)
{
    uint32_t y = first->out[0], z = last->out[0], root = ir_root(ir, y);

    if (ir_t(ir, z)->alias_of != DEV_NONE)
        IR_FAIL(ir, SH_E_BUG, "operation \"%s\" writes an alias", last->name);
    if (ir_same_shape(ir, y, z)) {
        first->out[0] = z;
        return;
    }
    /* Shapes differ, so there is a reshape between them: keep the shape that `first` writes. */
    if (z < root)
        IR_FAIL(ir, SH_E_BUG, "operation \"%s\" is out of order", last->name);
    ir_t(ir, root)->name = ir_t(ir, z)->name;
    for (uint32_t i = 0; i < ir->g.n_tensors; i++)
        if (i == z || ir_t(ir, i)->alias_of == z)
            ir_t(ir, i)->alias_of = root;
}
