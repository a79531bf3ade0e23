/* lower_nn.c - convolutions, pools, normalisations, dropout. */
#include "common/mem.h"
#include "executor/model/lower_int.h"

/* Windows of one spatial axis become windows of two, the first of height 1. */
static int window(const struct graph_node *n, struct dev_conv *w, struct sh_err *err)
{
    int64_t k[2], s[2], d[2], p[4], include;
    size_t n_k = 0, n_s = 0, n_d = 0, n_p = 0;
    int rc = graph_ints(n, "kernel_shape", k, 2, &n_k, err);

    if (!rc)
        rc = graph_ints(n, "strides", s, 2, &n_s, err);
    if (!rc)
        rc = graph_ints(n, "dilations", d, 2, &n_d, err);
    if (!rc)
        rc = graph_ints(n, "pads", p, 4, &n_p, err);
    if (!rc)
        rc = graph_int(n, "group", 1, &w->groups, err);
    if (!rc)
        rc = graph_int(n, "count_include_pad", 0, &include, err);
    if (rc)
        return rc;
    if (n_k < 1 || n_s != n_k || n_d != n_k || n_p != 2 * n_k)
        return SH_FAIL(err, SH_E_BUG, "%s \"%s\" is not in static form", n->op, n->name);
    w->count_include_pad = include != 0;
    for (size_t i = 0; i < 2; i++)
        w->kernel[i] = w->stride[i] = w->dilation[i] = 1;
    for (size_t i = 0; i < n_k; i++) {
        size_t to = 2 - n_k + i;

        w->kernel[to] = k[i];
        w->stride[to] = s[i];
        w->dilation[to] = d[i];
        w->pad_begin[to] = p[i];
        w->pad_end[to] = p[n_k + i];
    }
    return SH_OK;
}

/* x[N,C,L] as x[N,C,1,L]; other ranks stay. */
static int as_2d(struct lower *lo, uint32_t t, uint32_t *out, struct sh_err *err)
{
    const struct dev_tensor *d = ir_t(lo->ir, t);

    *out = t;
    if (d->rank != 3)
        return SH_OK;
    return ir_alias(lo->ir, t, 4, (int64_t[]){d->dims[0], d->dims[1], 1, d->dims[2]}, out, err);
}

/* Pushes op with the node's output, which has one spatial axis when its input has. */
static int emit_2d(struct lower *lo, const struct graph_node *n, struct dev_op *op,
                   struct sh_err *err)
{
    const struct graph_value *y = lower__out(lo, n);
    uint32_t t;
    int rc;

    if (y->rank != 3)
        return lower__emit(lo, n, op, err);
    rc = ir_tensor(lo->ir, y->name, y->dtype, DEV_ROLE_ACT, 4,
                   (int64_t[]){y->dims[0], y->dims[1], 1, y->dims[2]}, &t, err);
    if (rc)
        return rc;
    op->out[0] = t;
    op->n_out = SH_MAX(op->n_out, 1u);
    rc = ir_push(lo->ir, op, err);
    return rc ? rc : lower__is(lo, n, t, err);
}

int lower__conv(struct lower *lo, const struct graph_node *n, struct sh_err *err)
{
    uint32_t in[4] = {DEV_NONE, DEV_NONE, DEV_NONE, DEV_NONE};
    struct dev_op op;
    int rc = lower__use_all(lo, n, 3, in, err);

    if (!rc)
        rc = as_2d(lo, in[0], &in[0], err);
    if (!rc)
        rc = as_2d(lo, in[1], &in[1], err);
    if (rc)
        return rc;
    op = ir_op(DEV_OP_CONV, n->name, 4, in);
    rc = window(n, &op.u.conv, err);
    return rc ? rc : emit_2d(lo, n, &op, err);
}

/* Training keeps where each maximum was, for the way back. */
static int add_indices(struct lower *lo, const struct graph_node *n, struct dev_op *op,
                       struct sh_err *err)
{
    const struct graph_value *y = lower__out(lo, n);
    int64_t dims[4] = {y->dims[0], y->dims[1], 1, y->dims[2]};
    const char *name;
    int rc = ir_name(lo->ir, &name, err, "%s#indices", n->name);

    if (!rc)
        rc = ir_tensor(lo->ir, name, SH_I32, DEV_ROLE_ACT, 4, y->rank == 3 ? dims : y->dims,
                       &op->out[1], err);
    op->n_out = 2;
    return rc;
}

int lower__pool(struct lower *lo, const struct graph_node *n, struct sh_err *err)
{
    bool is_max = strcmp(n->op, "MaxPool") == 0;
    struct dev_op op;
    uint32_t x;
    int rc = lower__use(lo, n, 0, &x, err);

    if (!rc)
        rc = as_2d(lo, x, &x, err);
    if (rc)
        return rc;
    op = ir_op(is_max ? DEV_OP_POOL_MAX : DEV_OP_POOL_AVG, n->name, 1, &x);
    rc = window(n, &op.u.pool, err);
    if (!rc && is_max && lo->training)
        rc = add_indices(lo, n, &op, err);
    return rc ? rc : emit_2d(lo, n, &op, err);
}

/* One window over everything. */
int lower__global_pool(struct lower *lo, const struct graph_node *n, struct sh_err *err)
{
    bool is_max = strcmp(n->op, "GlobalMaxPool") == 0;
    struct dev_op op;
    uint32_t x;
    int rc = lower__use(lo, n, 0, &x, err);

    if (!rc)
        rc = as_2d(lo, x, &x, err);
    if (rc)
        return rc;
    if (ir_t(lo->ir, x)->rank != 4)
        return lower__unsupported(n, err, "more than 2 spatial axes are not supported");
    op = ir_op(is_max ? DEV_OP_POOL_MAX : DEV_OP_POOL_AVG, n->name, 1, &x);
    op.u.pool.groups = 1;
    for (int i = 0; i < 2; i++) {
        op.u.pool.kernel[i] = ir_t(lo->ir, x)->dims[2 + i];
        op.u.pool.stride[i] = op.u.pool.dilation[i] = 1;
    }
    if (is_max && lo->training)
        rc = add_indices(lo, n, &op, err);
    return rc ? rc : emit_2d(lo, n, &op, err);
}

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

int lower__batch_norm(struct lower *lo, const struct graph_node *n, struct sh_err *err)
{
    uint32_t in[5];
    struct dev_op op;
    int rc = lower__use_all(lo, n, 5, in, err);

    if (rc)
        return rc;
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
