/* pass_eval.c - turns a forward pass lowered for training into one that evaluates: removes what
 * depends on the batch or on chance. Parameters stay in the state, as training left them. */
#include "runtime/model/pass.h"

/* y and its aliases are x from here on. */
static void pass_through(struct ir *ir, uint32_t x, uint32_t y)
{
    const uint32_t root = ir_root(ir, x);

    for (uint32_t i = 0; i < ir->g.n_tensors; i++)
        if (i == y || ir_t(ir, i)->alias_of == y)
            ir_t(ir, i)->alias_of = root;
}

void pass_evaluate(struct ir *ir)
{
    for (uint32_t i = 0; i < ir->g.n_ops; i++) {
        struct dev_op *op = &ir->g.ops[i];

        if (op->kind == DEV_OP_BN_TRAIN) {
            op->kind = DEV_OP_BN_INFER;
            op->n_out = 1;
        } else if (op->kind == DEV_OP_DROPOUT) {
            pass_through(ir, op->in[0], op->out[0]);
            ir_kill(op);
        }
    }
    ir->n_commits = 0;
    ir_sweep(ir);
}
