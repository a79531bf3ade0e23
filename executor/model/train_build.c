/* train_build.c - loss and update around the backward pass. */
#include "common/mem.h"
#include "executor/model/autodiff.h"
#include "executor/model/pass.h"

#include <stdlib.h>

/* Bytes of x and d_y that one operation may read for the weight gradient of a convolution: when
 * training is told to stop, the operation that runs goes on to its end, and these are the longest
 * of all (docs/decisions/0009). A step of the usual models at a batch of 32 has few that read more:
 * cutting those that read less would cost throughput and gain nothing. */
#define CONV_PIECE_BYTES ((int64_t)160 << 20)

/* ------------------------------------------------------------------ loss */

static int label_tensor(struct ir *ir, const struct train_spec *t, enum sh_dtype dtype,
                        uint32_t rank, const int64_t *dims, struct sh_err *err)
{
    const char *name;
    int rc = ir_name(ir, &name, err, "%s", t->labels);

    return rc ? rc : ir_tensor(ir, name, dtype, DEV_ROLE_LABEL, rank, dims, &ir->label, err);
}

/* The logits as [before, classes, behind], and labels of the shape without the classes. */
static int class_label(struct ir *ir, const struct train_spec *t, uint32_t *pred,
                       struct sh_err *err)
{
    const struct dev_tensor y = *ir_t(ir, *pred);
    int64_t dims[SH_MAX_RANK] = {0}, as[3] = {1, 1, 1};
    uint32_t axis, n = 0;
    int rc = train_class_axis(t, y.name, y.rank, y.dims, &axis, err);

    if (!rc)
        rc = train_check_weights(t, y.dims[axis], err);
    if (rc)
        return rc;
    for (uint32_t i = 0; i < y.rank; i++) {
        as[i < axis ? 0 : i == axis ? 1 : 2] *= y.dims[i];
        if (i != axis)
            dims[n++] = y.dims[i];
    }
    rc = ir_alias(ir, *pred, as[2] == 1 ? 2 : 3, as, pred, err);
    return rc ? rc : label_tensor(ir, t, SH_I64, n, dims, err);
}

static int label_for(struct ir *ir, const struct train_spec *t, uint32_t *pred, struct sh_err *err)
{
    const struct dev_tensor y = *ir_t(ir, *pred);
    int rc = SH_OK;

    if (y.dtype != SH_F32)
        return SH_FAIL(err, SH_E_INVALID, "cannot train on output \"%s\": it is %s, not FP32",
                       y.name, sh_dtype_v2(y.dtype));
    if (t->loss == TRAIN_LOSS_XENT)
        return class_label(ir, t, pred, err);
    if (t->loss == TRAIN_LOSS_BCE && t->weights)
        rc = train_check_weights(t, y.rank ? y.dims[y.rank - 1] : 1, err);
    return rc ? rc : label_tensor(ir, t, SH_F32, y.rank, y.dims, err);
}

/* One number, or one for each class. */
static int loss_weights(struct ir *ir, const struct train_spec *t, struct dev_op *op,
                        struct sh_err *err)
{
    const bool is_list = json_is_array(t->weights);
    const int64_t n = is_list ? (int64_t)json_array_size(t->weights) : 1;
    float *data;
    int rc;

    if (!t->weights)
        return SH_OK;
    data = malloc((size_t)n * sizeof(*data));
    if (!data)
        return SH_FAIL(err, SH_E_NOMEM, "could not allocate %lld weights", (long long)n);
    for (int64_t i = 0; i < n; i++)
        data[i] =
            (float)json_number_value(is_list ? json_array_get(t->weights, (size_t)i) : t->weights);
    rc = ir_const(ir, "loss#weights", DEV_ROLE_STATE, SH_F32, 1, &n, data, &op->in[2], err);
    if (rc)
        free(data);
    op->n_in = 3;
    return rc;
}

static int add_loss(struct ir *ir, const struct train_spec *t, uint32_t pred, uint32_t *seed,
                    struct sh_err *err)
{
    static const enum dev_loss EACH[] = {[TRAIN_LOSS_MSE] = DEV_LOSS_MSE,
                                         [TRAIN_LOSS_L1] = DEV_LOSS_L1,
                                         [TRAIN_LOSS_HUBER] = DEV_LOSS_HUBER,
                                         [TRAIN_LOSS_BCE] = DEV_LOSS_BCE};
    struct dev_op op = ir_op(t->loss == TRAIN_LOSS_XENT ? DEV_OP_LOSS_XENT : DEV_OP_LOSS_EACH,
                             "loss", 2, (uint32_t[]){pred, ir->label});
    int rc = ir_tensor(ir, "loss", SH_F32, DEV_ROLE_KEEP, 1, (int64_t[]){1}, &ir->loss, err);

    if (!rc)
        rc = ir_like(ir, pred, "loss#gradient", DEV_ROLE_ACT, seed, err);
    if (!rc)
        rc = loss_weights(ir, t, &op, err);
    if (rc)
        return rc;
    op.out[0] = ir->loss;
    op.out[1] = *seed;
    op.n_out = 2;
    op.u.loss.ignore = t->ignore_index;
    op.u.loss.smoothing = (float)t->label_smoothing;
    op.u.loss.kind = EACH[t->loss];
    op.u.loss.delta = (float)t->delta;
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
    bool is_sgd = t->optimizer == TRAIN_SGD;
    uint32_t grad = ir->info[param].grad;
    struct dev_op op = ir_op(is_sgd ? DEV_OP_SGD : DEV_OP_ADAM, ir_t(ir, param)->name, 2,
                             (uint32_t[]){param, grad});
    int rc = SH_OK;

    op.u.optim.momentum = (float)t->momentum;
    op.u.optim.weight_decay = (float)t->weight_decay;
    op.u.optim.beta1 = (float)t->beta1;
    op.u.optim.beta2 = (float)t->beta2;
    op.u.optim.eps = (float)t->eps;
    op.u.optim.nesterov = t->nesterov;
    op.u.optim.decoupled = t->optimizer == TRAIN_ADAMW;
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
