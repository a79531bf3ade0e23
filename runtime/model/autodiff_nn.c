/* autodiff_nn.c - gradients of convolutions, products, pools, normalisations, dropout. */
#include "common/mem.h"
#include "runtime/device/op_attn.h"
#include "runtime/model/autodiff_int.h"

static int plain_only(const struct dev_op *op, struct sh_err *err)
{
    if (op->act == DEV_ACT_NONE)
        return SH_OK;
    return SH_FAIL(err, SH_E_BUG, "node \"%s\" has a fused activation before the backward pass",
                   op->name);
}

/* Of `count` samples from `first` on; 0 and 0: of all. */
static int conv_bwd_piece(struct ad *a, const struct dev_op *op, uint32_t dy, int64_t first,
                          int64_t count, struct sh_err *err)
{
    struct dev_op b = ir_op(DEV_OP_CONV_BWD_WEIGHT, op->name, 2, (uint32_t[]){op->in[0], dy});
    bool wants_bias = ad__wants(a, op->in[2]);
    uint32_t dw;
    int rc = ir_like(a->ir, op->in[1], ir_t(a->ir, op->in[1])->name, DEV_ROLE_ACT, &dw, err);

    if (!rc && wants_bias)
        rc = ir_like(a->ir, op->in[2], ir_t(a->ir, op->in[2])->name, DEV_ROLE_ACT, &b.out[1], err);
    if (rc)
        return rc;
    b.u.conv = op->u.conv;
    b.u.conv.first = first;
    b.u.conv.count = count;
    b.out[0] = dw;
    b.n_out = wants_bias ? 2 : 1;
    rc = ir_push(a->ir, &b, err);
    if (!rc && ad__wants(a, op->in[1]))
        rc = ad__add(a, op->in[1], dw, err);
    if (!rc && wants_bias)
        rc = ad__add(a, op->in[2], b.out[1], err);
    return rc;
}

/* In pieces of a->piece, each of a part of the samples, whose results are added up: they are small
 * beside what is read, and training can be stopped between them. A part begins at an even sample
 * where there are enough, since that is mostly as aligned as the tensor is. */
static int conv_bwd_weight(struct ad *a, const struct dev_op *op, uint32_t dy, struct sh_err *err)
{
    const int64_t elements = ir_elements(a->ir, op->in[0]) + ir_elements(a->ir, dy);
    const int64_t samples = ir_t(a->ir, op->in[0])->dims[0];
    const int64_t n = a->piece ? SH_MIN((elements - 1) / a->piece + 1, samples) : 1;
    const int64_t grain = samples >= 2 * n ? 2 : 1;
    int64_t first = 0;
    int rc = SH_OK;

    if (n <= 1)
        return conv_bwd_piece(a, op, dy, 0, 0, err);
    for (int64_t i = 1; i <= n && rc == SH_OK; i++) {
        const int64_t end = i == n ? samples : samples * i / n / grain * grain;

        rc = conv_bwd_piece(a, op, dy, first, end - first, err);
        first = end;
    }
    return rc;
}

int ad__conv(struct ad *a, const struct dev_op *op, uint32_t dy, struct sh_err *err)
{
    uint32_t dx;
    int rc = plain_only(op, err);

    if (!rc && (ad__wants(a, op->in[1]) || ad__wants(a, op->in[2])))
        rc = conv_bwd_weight(a, op, dy, err);
    if (!rc && ad__wants(a, op->in[0])) {
        struct dev_op b = ir_op(DEV_OP_CONV_BWD_DATA, op->name, 2, (uint32_t[]){dy, op->in[1]});

        b.u.conv = op->u.conv;
        rc = ir_emit_like(a->ir, &b, op->in[0], &dx, err);
        if (!rc)
            rc = ad__add(a, op->in[0], dx, err);
    }
    if (!rc && ad__wants(a, op->in[3]))
        rc = ad__add(a, op->in[3], dy, err);
    return rc;
}

/* op is the gradient of a convolution for its input, so its own is that convolution, and for the
 * weight the gradient of that convolution, where dy is the input. */
int ad__conv_bwd_data(struct ad *a, const struct dev_op *op, uint32_t dy, struct sh_err *err)
{
    struct dev_op f =
        ir_op(DEV_OP_CONV, op->name, 4, (uint32_t[]){dy, op->in[1], DEV_NONE, DEV_NONE});
    uint32_t dx;
    int rc = SH_OK;

    f.u.conv = op->u.conv;
    if (ad__wants(a, op->in[1]))
        rc = conv_bwd_weight(a, &f, op->in[0], err);
    if (rc || !ad__wants(a, op->in[0]))
        return rc;
    rc = ir_emit_like(a->ir, &f, op->in[0], &dx, err);
    return rc ? rc : ad__add(a, op->in[0], dx, err);
}

struct product { /* alpha op(a) op(b) */
    uint32_t a, b;
    bool trans_a, trans_b;
};

/* The gradient of operand t of a product whose result has dy's shape: leading axes as in dy, the
 * last two as in t; then summed over what t was broadcast along. */
static int product_to(struct ad *a, const struct dev_op *op, struct product p, uint32_t t,
                      uint32_t dy, struct sh_err *err)
{
    struct dev_op b = ir_op(DEV_OP_MATMUL, op->name, 4, (uint32_t[]){p.a, p.b, DEV_NONE, DEV_NONE});
    struct dev_tensor d = *ir_t(a->ir, dy), like = *ir_t(a->ir, t);
    uint32_t g;
    int rc;

    b.u.matmul.trans_a = p.trans_a;
    b.u.matmul.trans_b = p.trans_b;
    b.u.matmul.alpha = op->u.matmul.alpha;
    d.dims[d.rank - 2] = like.dims[like.rank - 2];
    d.dims[d.rank - 1] = like.dims[like.rank - 1];
    rc = ir_emit(a->ir, &b, SH_F32, d.rank, d.dims, &g, err);
    return rc ? rc : ad__add_reduced(a, t, g, err);
}

int ad__matmul(struct ad *a, const struct dev_op *op, uint32_t dy, struct sh_err *err)
{
    bool ta = op->u.matmul.trans_a, tb = op->u.matmul.trans_b;
    uint32_t x = op->in[0], w = op->in[1], db;
    int rc = plain_only(op, err);

    if (!rc && ad__wants(a, w)) {
        struct product p =
            tb ? (struct product){dy, x, true, ta} : (struct product){x, dy, !ta, false};

        rc = product_to(a, op, p, w, dy, err);
    }
    if (!rc && ad__wants(a, op->in[2])) {
        rc = ad__column_sums(a, op->name, dy, &db, err);
        if (!rc)
            rc = ad__add(a, op->in[2], db, err);
    }
    if (!rc && ad__wants(a, op->in[3]))
        rc = ad__add_reduced(a, op->in[3], dy, err);
    if (!rc && ad__wants(a, x)) {
        struct product p =
            ta ? (struct product){w, dy, tb, true} : (struct product){dy, w, false, !tb};

        rc = product_to(a, op, p, x, dy, err);
    }
    return rc;
}

/* d: the gradient of all scores, [B, H, Sq, Sk]. Samples that share a part of the mask are summed
 * up first. */
static int add_mask_gradient(struct ad *a, uint32_t mask, uint32_t d, struct sh_err *err)
{
    const struct dev_tensor m = *ir_t(a->ir, mask), s = *ir_t(a->ir, d);
    const int64_t parts = m.rank == 4 ? m.dims[0] : 1, n = s.dims[1] * s.dims[2] * s.dims[3];
    struct dev_op op = ir_op(DEV_OP_REDUCE, m.name, 1, &d);
    int rc;

    if (parts == 1 || parts == s.dims[0])
        return ad__add_reduced(a, mask, d, err);
    rc = ir_alias(a->ir, d, 2, (int64_t[]){s.dims[0] / parts, parts * n}, &op.in[0], err);
    op.u.reduce.kind = DEV_RED_SUM;
    op.u.reduce.axes = 1;
    if (!rc)
        rc = ir_emit(a->ir, &op, SH_F32, 1, (int64_t[]){parts * n}, &d, err);
    if (!rc)
        rc = ir_alias(a->ir, d, 4, (int64_t[]){parts, s.dims[1], s.dims[2], s.dims[3]}, &d, err);
    return rc ? rc : ad__add_reduced(a, mask, d, err);
}

int ad__attention(struct ad *a, const struct dev_op *op, uint32_t dy, struct sh_err *err)
{
    const uint32_t mask = op->n_in > 3 ? op->in[3] : DEV_NONE;
    struct dev_op b =
        ir_op(DEV_OP_ATTENTION_BWD, op->name, 7,
              (uint32_t[]){op->in[0], op->in[1], op->in[2], mask, op->out[0], dy, op->out[1]});
    int rc = SH_OK;

    if (op->n_out < 2)
        return ad__unsupported(op, err, "it was not made for training");
    for (int i = 0; i < 3 && rc == SH_OK; i++) {
        b.out[i] = DEV_NONE;
        if (dev_attn_shares(op, i) == i)
            rc = ir_like(a->ir, op->in[i], ir_t(a->ir, op->in[i])->name, DEV_ROLE_ACT, &b.out[i],
                         err);
    }
    b.n_out = 3;
    b.u.attn = op->u.attn;
    if (!rc && ad__wants(a, mask)) {
        const struct dev_tensor y = *ir_t(a->ir, op->out[0]), lse = *ir_t(a->ir, op->out[1]);
        const int64_t keys =
            op->u.attn.view[1].row ? op->u.attn.k_rows : ir_t(a->ir, op->in[1])->dims[1];

        b.n_out = 4;
        rc = ir_tensor(a->ir, ir_t(a->ir, mask)->name, SH_F32, DEV_ROLE_ACT, 4,
                       (int64_t[]){y.dims[0], lse.dims[1], y.dims[1], keys}, &b.out[3], err);
    }
    if (!rc)
        rc = ir_push(a->ir, &b, err);
    for (uint32_t i = 0; i < 3 && rc == SH_OK; i++)
        if (b.out[i] != DEV_NONE && ad__wants(a, op->in[i]))
            rc = ad__add(a, op->in[i], b.out[i], err);
    return rc || b.n_out < 4 ? rc : add_mask_gradient(a, mask, b.out[3], err);
}

int ad__pool_max(struct ad *a, const struct dev_op *op, uint32_t dy, struct sh_err *err)
{
    struct dev_op b = ir_op(DEV_OP_POOL_MAX_BWD, op->name, 2, (uint32_t[]){dy, op->out[1]});
    uint32_t dx;
    int rc;

    b.u.pool = op->u.pool;
    rc = ir_emit_like(a->ir, &b, op->in[0], &dx, err);
    return rc ? rc : ad__add(a, op->in[0], dx, err);
}

int ad__pool_avg(struct ad *a, const struct dev_op *op, uint32_t dy, struct sh_err *err)
{
    struct dev_op b = ir_op(DEV_OP_POOL_AVG_BWD, op->name, 1, &dy);
    uint32_t dx;
    int rc;

    b.u.pool = op->u.pool;
    rc = ir_emit_like(a->ir, &b, op->in[0], &dx, err);
    return rc ? rc : ad__add(a, op->in[0], dx, err);
}

/* Pushes b with one output for each of the inputs x, scale, bias that is there, and adds them. */
static int push_norm(struct ad *a, const struct dev_op *op, struct dev_op *b, struct sh_err *err)
{
    int rc = SH_OK;

    for (uint32_t i = 0; i < 3 && rc == SH_OK; i++) {
        b->out[i] = DEV_NONE;
        if (op->in[i] == DEV_NONE)
            continue;
        rc = ir_like(a->ir, op->in[i], ir_t(a->ir, op->in[i])->name, DEV_ROLE_ACT, &b->out[i], err);
        b->n_out = SH_MAX(b->n_out, i + 1);
    }
    b->u.norm = op->u.norm;
    if (!rc)
        rc = ir_push(a->ir, b, err);
    for (uint32_t i = 0; i < 3 && rc == SH_OK; i++)
        if (b->out[i] != DEV_NONE && ad__wants(a, op->in[i]))
            rc = ad__add(a, op->in[i], b->out[i], err);
    return rc;
}

/* With an activation, d_y behind it is a result of its own: the residual's gradient. */
int ad__bn_train(struct ad *a, const struct dev_op *op, uint32_t dy, struct sh_err *err)
{
    uint32_t residual = op->n_in > 5 ? op->in[5] : DEV_NONE;
    struct dev_op b =
        ir_op(DEV_OP_BN_TRAIN_BWD, op->name, 7,
              (uint32_t[]){op->in[0], dy, op->in[1], op->out[1], op->out[2], DEV_NONE, DEV_NONE});
    bool has_act = op->act != DEV_ACT_NONE;
    int rc = SH_OK;

    b.act = op->act;
    b.act_p0 = op->act_p0;
    b.act_p1 = op->act_p1;
    if (has_act && residual == DEV_NONE)
        b.in[5] = op->in[2];
    else if (has_act)
        b.in[6] = op->out[0];
    if (has_act && ad__wants(a, residual)) {
        rc = ir_like(a->ir, dy, ir_t(a->ir, residual)->name, DEV_ROLE_ACT, &b.out[3], err);
        b.n_out = 4;
        dy = b.out[3];
    }
    if (!rc)
        rc = push_norm(a, op, &b, err);
    return rc || !ad__wants(a, residual) ? rc : ad__add(a, residual, dy, err);
}

/* A LayerNorm that a pass put together does not save its statistics yet. */
static int save_statistics(struct ad *a, struct dev_op *op, struct sh_err *err)
{
    struct dev_tensor x = *ir_t(a->ir, op->in[0]);
    int64_t rows = 1;
    int rc = SH_OK;

    for (int64_t i = 0; i < op->u.norm.axis; i++)
        rows *= x.dims[i];
    for (uint32_t i = 1; i < 3 && rc == SH_OK; i++)
        rc = ir_tensor(a->ir, op->name, SH_F32, DEV_ROLE_ACT, 1, &rows, &op->out[i], err);
    op->n_out = 3;
    if (!rc)
        a->ir->g.ops[a->op] = *op;
    return rc;
}

int ad__layernorm(struct ad *a, const struct dev_op *op, uint32_t dy, struct sh_err *err)
{
    struct dev_op f = *op, b;
    int rc = SH_OK;

    if (f.n_out < 3)
        rc = save_statistics(a, &f, err);
    if (rc)
        return rc;
    b = ir_op(DEV_OP_LAYERNORM_BWD, f.name, 5,
              (uint32_t[]){f.in[0], dy, f.in[1], f.out[1], f.out[2]});
    return push_norm(a, &f, &b, err);
}

int ad__dropout(struct ad *a, const struct dev_op *op, uint32_t dy, struct sh_err *err)
{
    struct dev_op b = ir_op(DEV_OP_DROPOUT_BWD, op->name, 2, (uint32_t[]){dy, op->out[1]});
    uint32_t residual = op->n_in > 1 ? op->in[1] : DEV_NONE, dx;
    int rc = SH_OK;

    if (ad__wants(a, op->in[0])) {
        b.u.dropout = op->u.dropout;
        rc = ir_emit_like(a->ir, &b, op->in[0], &dx, err);
        if (!rc)
            rc = ad__add(a, op->in[0], dx, err);
    }
    return rc || !ad__wants(a, residual) ? rc : ad__add(a, residual, dy, err);
}

int ad__lstm_cell(struct ad *a, const struct dev_op *op, uint32_t dy, struct sh_err *err)
{
    const uint32_t root = ir_root(a->ir, op->out[1]);
    struct dev_op b = ir_op(DEV_OP_LSTM_CELL_BWD, op->name, 4,
                            (uint32_t[]){op->in[0], op->in[1], dy, a->grads[root]});
    const struct dev_tensor cell = *ir_t(a->ir, op->in[1]);
    uint32_t ds, dc;
    int rc = SH_OK;

    if (b.in[3] == DEV_NONE)
        b.n_in = 3;
    else
        rc = ir_alias(a->ir, b.in[3], cell.rank, cell.dims, &b.in[3], err);
    if (!rc)
        rc = ir_like(a->ir, op->in[0], op->name, DEV_ROLE_ACT, &ds, err);
    if (rc)
        return rc;
    b.out[b.n_out++] = ds;
    rc = ir_emit_like(a->ir, &b, op->in[1], &dc, err);
    if (!rc && ad__wants(a, op->in[0]))
        rc = ad__add(a, op->in[0], ds, err);
    return rc || !ad__wants(a, op->in[1]) ? rc : ad__add(a, op->in[1], dc, err);
}
