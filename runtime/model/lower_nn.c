/* lower_nn.c - normalisations and dropout. */
#include "common/mem.h"
#include "runtime/model/lower_int.h"

/* The new running statistics wait in tensors of their own until the step commits. */
static int bn_train_outputs(struct lower *lo, const struct graph_node *n, struct dev_op *op,
                            struct sh_err *err)
{
    static const char *const SUFFIX[] = {"", "mean", "invstd", "new_mean", "new_var"};
    struct ir *ir = lo->ir;
    int64_t dims[1] = {lower__out(lo, n)->dims[1]};
    int rc = SH_OK;

    for (uint32_t i = 1; i < 5 && rc == SH_OK; i++) {
        const char *name;

        rc = ir_name(ir, &name, err, "%s#%s", n->name, SUFFIX[i]);
        if (!rc)
            rc = ir_tensor(ir, name, SH_F32, i < 3 ? DEV_ROLE_ACT : DEV_ROLE_KEEP, 1, dims,
                           &op->out[i], err);
    }
    op->n_out = 5;
    for (uint32_t i = 3; i < 5 && rc == SH_OK; i++) {
        rc = sh_grow(&ir->commits, &ir->cap_commits, ir->n_commits + 1, sizeof(*ir->commits),
                     IR_MAX_TENSORS, "running statistics", err);
        if (!rc)
            ir->commits[ir->n_commits++] =
                (struct ir_commit){.src = op->out[i], .dst = ir_root(ir, op->in[i])};
    }
    return rc;
}

/* With a mean and a variance that the graph computes, as of weights that are standardised: they
 * have gradients, and there is nothing to keep. */
static int norm_by_computed(struct lower *lo, const struct graph_node *n, const uint32_t *in,
                            struct sh_err *err)
{
    const enum dev_bin steps[4] = {DEV_BIN_SUB, DEV_BIN_DIV, DEV_BIN_MUL, DEV_BIN_ADD};
    uint32_t y = in[0], by[4] = {in[3], in[4], in[1], in[2]};
    float eps;
    int rc = lower__float(n, "epsilon", &eps, err);

    if (!rc)
        rc = ir_act(lo->ir, DEV_ACT_LINEAR, 1.0f, eps, n->name, by[1], &by[1], err);
    if (!rc)
        rc = ir_act(lo->ir, DEV_ACT_SQRT, 0.0f, 0.0f, n->name, by[1], &by[1], err);
    for (uint32_t i = 0; i < 4 && rc == SH_OK; i++)
        rc = lower__per_channel(lo, n->name, y, steps[i], by[i], &y, err);
    return rc ? rc : lower__is(lo, n, y, err);
}

int lower__batch_norm(struct lower *lo, const struct graph_node *n, struct sh_err *err)
{
    uint32_t in[5];
    struct dev_op op;
    int rc = lower__use_all(lo, n, 5, in, err);

    if (rc)
        return rc;
    if (lo->training && !lower__in(lo, n, 3)->data && !lower__in(lo, n, 4)->data)
        return norm_by_computed(lo, n, in, err);
    op = ir_op(lo->training ? DEV_OP_BN_TRAIN : DEV_OP_BN_INFER, n->name, 5, in);
    op.u.norm.axis = 1;
    rc = lower__float(n, "epsilon", &op.u.norm.eps, err);
    if (!rc)
        rc = lower__float(n, "momentum", &op.u.norm.momentum, err);
    for (uint32_t i = 3; i < 5 && lo->training && rc == SH_OK; i++) {
        struct ir_info *info = &lo->ir->info[ir_root(lo->ir, in[i])];

        if (ir_t(lo->ir, in[i])->role != DEV_ROLE_STATE)
            return lower__unsupported(n, err, "its running statistics are not initializers");
        if (info->state == IR_STAT)
            return lower__unsupported(n, err, "shares its running statistics with another layer");
        info->state = IR_STAT;
    }
    if (!rc && lo->training)
        rc = bn_train_outputs(lo, n, &op, err);
    return rc ? rc : lower__emit(lo, n, &op, err);
}

int lower__layer_norm(struct lower *lo, const struct graph_node *n, struct sh_err *err)
{
    const struct graph_value *x = lower__in(lo, n, 0);
    uint32_t in[3] = {DEV_NONE, DEV_NONE, DEV_NONE};
    int64_t axis, rows = 1;
    struct dev_op op;
    int rc = lower__use_all(lo, n, 3, in, err);

    if (!rc)
        rc = graph_int(n, "axis", -1, &axis, err);
    if (rc)
        return rc;
    op = ir_op(DEV_OP_LAYERNORM, n->name, 3, in);
    op.u.norm.axis = axis;
    rc = lower__float(n, "epsilon", &op.u.norm.eps, err);
    for (int64_t i = 0; i < axis; i++)
        rows *= x->dims[i];
    for (uint32_t i = 1; i < 3 && lo->training && rc == SH_OK; i++) {
        const char *name;

        rc = ir_name(lo->ir, &name, err, "%s#%s", n->name, i == 1 ? "mean" : "invstd");
        if (!rc)
            rc = ir_tensor(lo->ir, name, SH_F32, DEV_ROLE_ACT, 1, &rows, &op.out[i], err);
        op.n_out = 3;
    }
    return rc ? rc : lower__emit(lo, n, &op, err);
}

/* ------------------------------------------------------------------ over groups of channels */

/* Each of `rows` equal parts of x has mean 0 and variance 1 afterwards. */
static int norm_rows(struct lower *lo, const struct graph_node *n, uint32_t x, int64_t rows,
                     uint32_t *y, struct sh_err *err)
{
    const struct dev_tensor d = *ir_t(lo->ir, x);
    const int64_t dims[2] = {rows, ir_elements(lo->ir, x) / rows};
    struct dev_op op;
    int rc = ir_alias(lo->ir, x, 2, dims, &x, err);

    if (rc)
        return rc;
    op = ir_op(DEV_OP_LAYERNORM, n->name, 3, (uint32_t[]){x, DEV_NONE, DEV_NONE});
    op.u.norm.axis = 1;
    rc = lower__float(n, "epsilon", &op.u.norm.eps, err);
    if (!rc)
        rc = ir_emit(lo->ir, &op, SH_F32, 2, dims, y, err);
    return rc ? rc : ir_alias(lo->ir, *y, d.rank, d.dims, y, err);
}

/* y scale + bias by channel; the shape of y stays. */
static int scale_and_shift(struct lower *lo, const struct graph_node *n, uint32_t y,
                           const uint32_t *scale_bias, struct sh_err *err)
{
    int rc = lower__per_channel(lo, n->name, y, DEV_BIN_MUL, scale_bias[0], &y, err);

    if (!rc)
        rc = lower__per_channel(lo, n->name, y, DEV_BIN_ADD, scale_bias[1], &y, err);
    return rc ? rc : lower__is(lo, n, y, err);
}

int lower__instance_norm(struct lower *lo, const struct graph_node *n, struct sh_err *err)
{
    const struct graph_value *x = lower__in(lo, n, 0);
    uint32_t in[3], y;
    int rc = lower__use_all(lo, n, 3, in, err);

    if (!rc)
        rc = norm_rows(lo, n, in[0], x->dims[0] * x->dims[1], &y, err);
    return rc ? rc : scale_and_shift(lo, n, y, &in[1], err);
}

/* Scale and bias by channel (opset 21) or by group (18): then the channels of a group stand as one
 * axis more. */
int lower__group_norm(struct lower *lo, const struct graph_node *n, struct sh_err *err)
{
    const struct graph_value *x = lower__in(lo, n, 0), *scale = lower__in(lo, n, 1);
    int64_t groups, elements = graph_elements(x);
    uint32_t in[3], y;
    int rc = lower__use_all(lo, n, 3, in, err);

    if (!rc)
        rc = graph_int(n, "num_groups", 1, &groups, err);
    if (!rc)
        rc = norm_rows(lo, n, in[0], x->dims[0] * groups, &y, err);
    if (!rc && scale->dims[0] != x->dims[1])
        rc = ir_alias(lo->ir, y, 3, (int64_t[]){x->dims[0], groups, elements / x->dims[0] / groups},
                      &y, err);
    return rc ? rc : scale_and_shift(lo, n, y, &in[1], err);
}

/* What is 0 everywhere stays so. */
int lower__lp_norm(struct lower *lo, const struct graph_node *n, struct sh_err *err)
{
    int64_t axis, p;
    uint32_t x, s;
    int rc = lower__use(lo, n, 0, &x, err);

    if (!rc)
        rc = graph_int(n, "axis", -1, &axis, err);
    if (!rc)
        rc = graph_int(n, "p", 2, &p, err);
    if (!rc)
        rc = lower__power(lo, n->name, x, p, &s, err);
    if (!rc)
        rc = lower__reduced(lo, n->name, s, DEV_RED_SUM, 1u << axis, &s, err);
    if (!rc)
        rc = lower__root(lo, n->name, s, p, &s, err);
    if (!rc)
        rc = lower__not_zero(lo, n, s, &s, err);
    if (!rc)
        rc = ir_binary(lo->ir, DEV_BIN_DIV, n->name, x, s, x, &x, err);
    return rc ? rc : lower__is(lo, n, x, err);
}

/* x (bias + alpha mean)^-beta, where the mean is of the squares of `size` channels around. */
int lower__lrn(struct lower *lo, const struct graph_node *n, struct sh_err *err)
{
    const struct graph_value *v = lower__in(lo, n, 0);
    const int64_t channels = v->dims[1];
    const int64_t dims[4] = {v->dims[0], 1, channels, graph_elements(v) / v->dims[0] / channels};
    float alpha = 0, beta = 0, bias = 0;
    struct dev_op op;
    int64_t size;
    uint32_t x, s;
    int rc = lower__use(lo, n, 0, &x, err);

    if (!rc)
        rc = graph_int(n, "size", 1, &size, err);
    if (!rc)
        rc = lower__float(n, "alpha", &alpha, err);
    if (!rc)
        rc = lower__float(n, "beta", &beta, err);
    if (!rc)
        rc = lower__float(n, "bias", &bias, err);
    if (!rc)
        rc = ir_alias(lo->ir, x, 4, dims, &x, err);
    if (!rc)
        rc = ir_binary(lo->ir, DEV_BIN_MUL, n->name, x, x, x, &s, err);
    if (rc)
        return rc;
    op = ir_op(DEV_OP_POOL_AVG, n->name, 1, &s);
    op.u.pool = (struct dev_conv){.kernel = {size, 1},
                                  .stride = {1, 1},
                                  .dilation = {1, 1},
                                  .pad_begin = {(size - 1) / 2, 0},
                                  .pad_end = {size / 2, 0},
                                  .groups = 1,
                                  .count_include_pad = true};
    rc = ir_emit(lo->ir, &op, SH_F32, 4, dims, &s, err);
    if (!rc)
        rc = ir_act(lo->ir, DEV_ACT_LINEAR, alpha, bias, n->name, s, &s, err);
    if (!rc)
        rc = ir_act(lo->ir, DEV_ACT_POW, -beta, 0.0f, n->name, s, &s, err);
    if (!rc)
        rc = ir_binary(lo->ir, DEV_BIN_MUL, n->name, x, s, x, &x, err);
    return rc ? rc : lower__is(lo, n, x, err);
}

/* ------------------------------------------------------------------ dropout */

/* The seed of the run is mixed in when the training program is made. */
int lower__dropout(struct lower *lo, const struct graph_node *n, struct sh_err *err)
{
    const struct graph_value *y = lower__out(lo, n);
    struct dev_op op;
    const char *name;
    uint32_t x;
    int rc = lower__use(lo, n, 0, &x, err);

    if (rc)
        return rc;
    if (!lo->training)
        return lower__is(lo, n, x, err);
    op = ir_op(DEV_OP_DROPOUT, n->name, 1, &x);
    rc = lower__float(n, "ratio", &op.u.dropout.ratio, err);
    if (!rc)
        rc = ir_name(lo->ir, &name, err, "%s#mask", n->name);
    if (!rc)
        rc = ir_tensor(lo->ir, name, SH_U8, DEV_ROLE_ACT, (uint32_t)y->rank, y->dims, &op.out[1],
                       err);
    op.n_out = 2;
    return rc ? rc : lower__emit(lo, n, &op, err);
}
