/* lower_nn.c - normalisations and dropout. */
#include "common/mem.h"
#include "runtime/model/lower_int.h"

/* The new running statistics wait in tensors of their own until the step commits. */
static void bn_train_outputs(struct lower *lo, const struct graph_node *n, struct dev_op *op)
{
    static const char *const SUFFIX[] = {"", "mean", "invstd", "new_mean", "new_var"};
    struct ir *ir = lo->ir;
    int64_t dims[1] = {lower__out(lo, n)->dims[1]};

    for (uint32_t i = 1; i < 5; i++)
        op->out[i] = ir_tensor(ir, ir_name(ir, "%s#%s", n->name, SUFFIX[i]), SH_F32,
                               i < 3 ? DEV_ROLE_ACT : DEV_ROLE_KEEP, 1, dims);
    op->n_out = 5;
    for (uint32_t i = 3; i < 5; i++)
        if (sh_grow(&ir->commits, &ir->cap_commits, ir->n_commits + 1, sizeof(*ir->commits),
                    IR_MAX_TENSORS, "running statistics", &ir->err) == SH_OK)
            ir->commits[ir->n_commits++] =
                (struct ir_commit){.src = op->out[i], .dst = ir_root(ir, op->in[i])};
}

/* With a mean and a variance that the graph computes, as of weights that are standardised: they
 * have gradients, and there is nothing to keep. */
static void norm_by_computed(struct lower *lo, const struct graph_node *n, const uint32_t *in)
{
    const enum dev_bin steps[4] = {DEV_BIN_SUB, DEV_BIN_DIV, DEV_BIN_MUL, DEV_BIN_ADD};
    uint32_t y = in[0], by[4] = {in[3], in[4], in[1], in[2]};
    const float eps = lower__float(lo, n, "epsilon");

    by[1] = ir_act(lo->ir, DEV_ACT_LINEAR, 1.0f, eps, n->name, by[1]);
    by[1] = ir_act(lo->ir, DEV_ACT_SQRT, 0.0f, 0.0f, n->name, by[1]);
    for (uint32_t i = 0; i < 4; i++)
        y = lower__per_channel(lo, n->name, y, steps[i], by[i]);
    lower__is(lo, n, y);
}

void lower__batch_norm(struct lower *lo, const struct graph_node *n)
{
    struct dev_op op = lower__op(lo, n, lo->training ? DEV_OP_BN_TRAIN : DEV_OP_BN_INFER, 5);

    if (lo->training && !lower__in(lo, n, 3)->data && !lower__in(lo, n, 4)->data) {
        norm_by_computed(lo, n, op.in);
        return;
    }
    op.u.norm.axis = 1;
    op.u.norm.eps = lower__float(lo, n, "epsilon");
    op.u.norm.momentum = lower__float(lo, n, "momentum");
    for (uint32_t i = 3; i < 5 && lo->training; i++) {
        struct ir_info *info = ir_info(lo->ir, ir_root(lo->ir, op.in[i]));

        if (ir_t(lo->ir, op.in[i])->role != DEV_ROLE_STATE)
            lower__unsupported(lo, n, "its running statistics are not initializers");
        if (info->state == IR_STAT)
            lower__unsupported(lo, n, "shares its running statistics with another layer");
        info->state = IR_STAT;
    }
    if (lo->training)
        bn_train_outputs(lo, n, &op);
    lower__emit(lo, n, &op);
}

void lower__layer_norm(struct lower *lo, const struct graph_node *n)
{
    const struct graph_value *x = lower__in(lo, n, 0);
    struct dev_op op = lower__op(lo, n, DEV_OP_LAYERNORM, 3);
    int64_t rows = 1;

    op.u.norm.axis = lower__int(lo, n, "axis", -1);
    op.u.norm.eps = lower__float(lo, n, "epsilon");
    for (int64_t i = 0; i < op.u.norm.axis; i++)
        rows *= x->dims[i];
    for (uint32_t i = 1; i < 3 && lo->training; i++) {
        const char *name = ir_name(lo->ir, "%s#%s", n->name, i == 1 ? "mean" : "invstd");

        op.out[i] = ir_tensor(lo->ir, name, SH_F32, DEV_ROLE_ACT, 1, &rows);
        op.n_out = 3;
    }
    lower__emit(lo, n, &op);
}

/* ------------------------------------------------------------------ over groups of channels */

/* Each of `rows` equal parts of x has mean 0 and variance 1 afterwards. */
static uint32_t norm_rows(struct lower *lo, const struct graph_node *n, uint32_t x, int64_t rows)
{
    const struct dev_tensor d = *ir_t(lo->ir, x);
    const int64_t dims[2] = {rows, ir_elements(lo->ir, x) / rows};
    struct dev_op op = ir_op(DEV_OP_LAYERNORM, n->name, 3,
                             (uint32_t[]){ir_alias(lo->ir, x, 2, dims), DEV_NONE, DEV_NONE});

    op.u.norm.axis = 1;
    op.u.norm.eps = lower__float(lo, n, "epsilon");
    return ir_alias(lo->ir, ir_emit(lo->ir, &op, SH_F32, 2, dims), d.rank, d.dims);
}

/* The output: y scale + bias by channel. */
static void scale_and_shift(struct lower *lo, const struct graph_node *n, uint32_t y,
                            const uint32_t *scale_bias)
{
    y = lower__per_channel(lo, n->name, y, DEV_BIN_MUL, scale_bias[0]);
    lower__is(lo, n, lower__per_channel(lo, n->name, y, DEV_BIN_ADD, scale_bias[1]));
}

void lower__instance_norm(struct lower *lo, const struct graph_node *n)
{
    const struct graph_value *x = lower__in(lo, n, 0);
    uint32_t in[3];

    lower__use_all(lo, n, 3, in);
    scale_and_shift(lo, n, norm_rows(lo, n, in[0], x->dims[0] * x->dims[1]), &in[1]);
}

/* Scale and bias by channel (opset 21) or by group (18): then the channels of a group stand as one
 * axis more. */
void lower__group_norm(struct lower *lo, const struct graph_node *n)
{
    const struct graph_value *x = lower__in(lo, n, 0), *scale = lower__in(lo, n, 1);
    const int64_t groups = lower__int(lo, n, "num_groups", 1), rows = x->dims[0] * groups;
    uint32_t in[3], y;

    lower__use_all(lo, n, 3, in);
    y = norm_rows(lo, n, in[0], rows);
    if (scale->dims[0] != x->dims[1])
        y = ir_alias(lo->ir, y, 3, (int64_t[]){x->dims[0], groups, graph_elements(x) / rows});
    scale_and_shift(lo, n, y, &in[1]);
}

/* What is 0 everywhere stays so. */
void lower__lp_norm(struct lower *lo, const struct graph_node *n)
{
    const int64_t axis = lower__int(lo, n, "axis", -1), p = lower__int(lo, n, "p", 2);
    const uint32_t x = lower__use(lo, n, 0);
    uint32_t s = lower__power(lo, n->name, x, p);

    s = lower__reduced(lo, n->name, s, DEV_RED_SUM, 1u << axis);
    s = lower__root(lo, n->name, s, p);
    s = lower__not_zero(lo, n, s);
    lower__is(lo, n, ir_binary(lo->ir, DEV_BIN_DIV, n->name, x, s, x));
}

/* x (bias + alpha mean)^-beta, where the mean is of the squares of `size` channels around. */
void lower__lrn(struct lower *lo, const struct graph_node *n)
{
    const struct graph_value *v = lower__in(lo, n, 0);
    const int64_t channels = v->dims[1], size = lower__int(lo, n, "size", 1);
    const int64_t dims[4] = {v->dims[0], 1, channels, graph_elements(v) / v->dims[0] / channels};
    const float alpha = lower__float(lo, n, "alpha"), beta = lower__float(lo, n, "beta");
    const float bias = lower__float(lo, n, "bias");
    const uint32_t x = ir_alias(lo->ir, lower__use(lo, n, 0), 4, dims);
    uint32_t s = ir_binary(lo->ir, DEV_BIN_MUL, n->name, x, x, x);
    struct dev_op op = ir_op(DEV_OP_POOL_AVG, n->name, 1, &s);

    op.u.pool = (struct dev_conv){.kernel = {size, 1},
                                  .stride = {1, 1},
                                  .dilation = {1, 1},
                                  .pad_begin = {(size - 1) / 2, 0},
                                  .pad_end = {size / 2, 0},
                                  .groups = 1,
                                  .count_include_pad = true};
    s = ir_emit(lo->ir, &op, SH_F32, 4, dims);
    s = ir_act(lo->ir, DEV_ACT_LINEAR, alpha, bias, n->name, s);
    s = ir_act(lo->ir, DEV_ACT_POW, -beta, 0.0f, n->name, s);
    lower__is(lo, n, ir_binary(lo->ir, DEV_BIN_MUL, n->name, x, s, x));
}

/* ------------------------------------------------------------------ dropout */

/* The seed of the run is mixed in when the training program is made. */
void lower__dropout(struct lower *lo, const struct graph_node *n)
{
    const struct graph_value *y = lower__out(lo, n);
    struct dev_op op = lower__op(lo, n, DEV_OP_DROPOUT, 1);

    if (!lo->training) {
        lower__is(lo, n, op.in[0]);
        return;
    }
    op.u.dropout.ratio = lower__float(lo, n, "ratio");
    op.out[1] = ir_tensor(lo->ir, ir_name(lo->ir, "%s#mask", n->name), SH_U8, DEV_ROLE_ACT,
                          (uint32_t)y->rank, y->dims);
    op.n_out = 2;
    lower__emit(lo, n, &op);
}
