/* pass.c - the order of the passes, and what they share. */
#include "runtime/model/pass.h"

int pass_run(struct ir *ir, bool training, struct sh_err *err)
{
    int rc = pass_pattern(ir, err);

    if (!rc && !training)
        rc = pass_fold_bn(ir, err);
    if (!rc)
        rc = pass_fuse(ir, training, err);
    if (!rc && training)
        rc = pass_train(ir, err);
    if (!rc && !training)
        rc = pass_channels(ir, err);
    if (!rc && !training)
        rc = pass_quant(ir, err);
    if (!rc)
        rc = pass_attn(ir, training, err);
    if (!rc)
        rc = pass_moves(ir, training, err);
    return rc ? rc : ir_drop_unused(ir, err);
}

struct dev_op *pass__writer(const struct ir *ir, const struct ir_uses *u, uint32_t t,
                            enum dev_op_kind k)
{
    uint32_t w = t == DEV_NONE ? DEV_NONE : u->writer[ir_root(ir, t)];

    return w != DEV_NONE && ir->g.ops[w].kind == k ? &ir->g.ops[w] : NULL;
}

int pass__take_output(struct ir *ir, struct dev_op *first, const struct dev_op *last,
                      struct sh_err *err)
{
    uint32_t y = first->out[0], z = last->out[0], root = ir_root(ir, y);

    if (ir_t(ir, z)->alias_of != DEV_NONE)
        return SH_FAIL(err, SH_E_BUG, "operation \"%s\" writes an alias", last->name);
    if (ir_same_shape(ir, y, z)) {
        first->out[0] = z;
        return SH_OK;
    }
    /* Shapes differ, so there is a reshape between them: keep the shape that `first` writes. */
    if (z < root)
        return SH_FAIL(err, SH_E_BUG, "operation \"%s\" is out of order", last->name);
    ir_t(ir, root)->name = ir_t(ir, z)->name;
    for (uint32_t i = 0; i < ir->g.n_tensors; i++)
        if (i == z || ir_t(ir, i)->alias_of == z)
            ir_t(ir, i)->alias_of = root;
    return SH_OK;
}
