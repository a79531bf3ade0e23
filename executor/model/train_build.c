/* train_build.c - loss and update around the backward pass. */
#include "common/mem.h"
#include "executor/model/autodiff.h"
#include "executor/model/pass.h"

/* Bytes of x and d_y that one operation may read for the weight gradient of a convolution: when
 * training is told to stop, the operation that runs goes on to its end, and these are the longest
 * of all (docs/decisions/0009). A step of the usual models at a batch of 32 has few that read more:
 * cutting those that read less would cost throughput and gain nothing. */
#define CONV_PIECE_BYTES ((int64_t)160 << 20)

/* ------------------------------------------------------------------ loss */

static int label_for(struct ir *ir, const struct train_spec *t, uint32_t *pred, struct sh_err *err)
{
    struct dev_tensor y = *ir_t(ir, *pred);
    const char *name;
    int rc = ir_name(ir, &name, err, "%s", t->labels);

    if (!rc && y.dtype != SH_F32)
        rc = SH_FAIL(err, SH_E_INVALID, "cannot train on output \"%s\": it is %s, not FP32", y.name,
                     sh_dtype_v2(y.dtype));
    if (rc)
        return rc;
    if (t->loss == PROGRAM_LOSS_MSE)
        return ir_tensor(ir, name, SH_F32, DEV_ROLE_LABEL, y.rank, y.dims, &ir->label, err);
    if (y.rank < 2 || ir_elements(ir, *pred) != y.dims[0] * y.dims[1])
        return SH_FAIL(err, SH_E_INVALID,
                       "cross-entropy needs an output of shape [batch, classes]; \"%s\" has %u "
                       "dimensions",
                       y.name, y.rank);
    rc = ir_alias(ir, *pred, 2, y.dims, pred, err);
    return rc ? rc : ir_tensor(ir, name, SH_I64, DEV_ROLE_LABEL, 1, y.dims, &ir->label, err);
}

static int add_loss(struct ir *ir, const struct train_spec *t, uint32_t pred, uint32_t *seed,
                    struct sh_err *err)
{
    struct dev_op op = ir_op(t->loss == PROGRAM_LOSS_MSE ? DEV_OP_LOSS_MSE : DEV_OP_LOSS_XENT,
                             "loss", 2, (uint32_t[]){pred, ir->label});
    int rc = ir_tensor(ir, "loss", SH_F32, DEV_ROLE_KEEP, 1, (int64_t[]){1}, &ir->loss, err);

    if (!rc)
        rc = ir_like(ir, pred, "loss#gradient", DEV_ROLE_ACT, seed, err);
    if (rc)
        return rc;
    op.out[0] = ir->loss;
    op.out[1] = *seed;
    op.n_out = 2;
    return ir_push(ir, &op, err);
}

/* ------------------------------------------------------------------ update */

static int optim_state(struct ir *ir, uint32_t param, const char *suffix, struct dev_op *op,
                       struct sh_err *err)
{
    uint32_t t;
    int rc = ir_like(ir, param, ir_t(ir, param)->name, DEV_ROLE_STATE, &t, err);

    if (rc)
        return rc;
    ir->info[t].state = IR_OPTIM;
    ir->info[t].suffix = suffix;
    op->in[op->n_in++] = t;
    return SH_OK;
}

static int update_param(struct ir *ir, const struct train_spec *t, uint32_t param,
                        struct sh_err *err)
{
    bool is_sgd = t->optimizer == PROGRAM_SGD;
    uint32_t grad = ir->info[param].grad;
    struct dev_op op = ir_op(is_sgd ? DEV_OP_SGD : DEV_OP_ADAM, ir_t(ir, param)->name, 2,
                             (uint32_t[]){param, grad});
    int rc = SH_OK;

    op.u.optim.lr = (float)t->lr;
    op.u.optim.momentum = (float)t->momentum;
    op.u.optim.weight_decay = (float)t->weight_decay;
    op.u.optim.beta1 = (float)t->beta1;
    op.u.optim.beta2 = (float)t->beta2;
    op.u.optim.eps = (float)t->eps;
    op.u.optim.nesterov = t->nesterov;
    op.u.optim.decoupled = t->optimizer == PROGRAM_ADAMW;
    if (is_sgd && t->momentum != 0.0)
        rc = optim_state(ir, param, "momentum", &op, err);
    if (!is_sgd)
        rc = optim_state(ir, param, "m", &op, err);
    if (!rc && !is_sgd)
        rc = optim_state(ir, param, "v", &op, err);
    return rc ? rc : ir_push(ir, &op, err);
}

static int add_update(struct ir *ir, const struct train_spec *t, struct sh_err *err)
{
    uint32_t n = ir->g.n_tensors;
    int rc = SH_OK;

    for (uint32_t i = 0; i < n && rc == SH_OK; i++)
        if (ir->info[i].state == IR_PARAM && ir->info[i].grad != DEV_NONE)
            rc = update_param(ir, t, i, err);
    for (size_t i = 0; i < ir->n_commits && rc == SH_OK; i++) {
        struct dev_op op =
            ir_op(DEV_OP_COMMIT, ir_t(ir, ir->commits[i].dst)->name, 1, &ir->commits[i].src);

        op.out[0] = ir->commits[i].dst;
        op.n_out = 1;
        rc = ir_push(ir, &op, err);
    }
    return rc;
}

static bool is_update(const struct dev_op *op)
{
    return op->kind == DEV_OP_SGD || op->kind == DEV_OP_ADAM || op->kind == DEV_OP_COMMIT;
}

/* Each mask is drawn from (seed, operation, step). */
static void seed_dropout(struct ir *ir, uint64_t seed)
{
    for (uint32_t i = 0; i < ir->g.n_ops; i++) {
        struct dev_op *op = &ir->g.ops[i];
        uint64_t x = seed ^ ((uint64_t)(i + 1) * 0x9e3779b97f4a7c15u);

        x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
        x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
        x ^= x >> 31;
        if (op->kind == DEV_OP_DROPOUT)
            op->u.dropout.seed = x;
        else if (op->kind == DEV_OP_ATTENTION && op->u.attn.ratio > 0)
            op->u.attn.seed = x;
    }
}

/* In elements, as the device stores activations at this precision. FP64 checks what FP32 runs. */
static int64_t conv_piece(const struct train_spec *t)
{
    const bool is_short = t->precision == DEV_FP16 || t->precision == DEV_BF16;
    const int64_t bytes = t->conv_piece_bytes ? t->conv_piece_bytes : CONV_PIECE_BYTES;

    return SH_MAX(bytes / (is_short ? 2 : 4), 1);
}

int autodiff_train(struct ir *ir, const struct train_spec *t, struct sh_err *err)
{
    uint32_t pred, seed;
    int rc;

    if (ir->n_outputs < 1)
        return SH_FAIL(err, SH_E_INVALID, "the model has no output to train on");
    ir->n_outputs = 1; /* further outputs take no part */
    pred = ir->outputs[0];
    seed_dropout(ir, t->seed);
    rc = label_for(ir, t, &pred, err);
    if (!rc)
        rc = add_loss(ir, t, pred, &seed, err);
    if (!rc)
        rc = autodiff_backward(ir, pred, seed, NULL, conv_piece(t), err);
    if (!rc)
        rc = add_update(ir, t, err);
    if (!rc)
        rc = pass_fuse_sums(ir, err);
    if (!rc && t->precision == DEV_TF32)
        rc = pass_turn(ir, err);
    if (!rc)
        rc = ir_drop_unused(ir, err);
    if (rc)
        return rc;
    ir->g.update_begin = 0;
    while (ir->g.update_begin < ir->g.n_ops && !is_update(&ir->g.ops[ir->g.update_begin]))
        ir->g.update_begin++;
    return SH_OK;
}
