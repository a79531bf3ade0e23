/* autodiff_nn.c - gradients of convolutions, products, pools, normalisations, dropout. */
#include "common/mem.h"
#include "runtime/device/op_attn.h"
#include "runtime/model/autodiff_int.h"

static void plain_only(struct ad *a, const struct dev_op *op)
{
    if (op->act != DEV_ACT_NONE)
        IR_FAIL(a->ir, SH_E_BUG, "node \"%s\" has a fused activation before the backward pass",
                op->name);
}

/* A tensor for the gradient of t, with t's name. */
static uint32_t gradient_of(struct ad *a, uint32_t t)
{
    return ir_like(a->ir, t, ir_t(a->ir, t)->name, DEV_ROLE_ACT);
}

/* Of `count` samples from `first` on; 0 and 0: of all. */
static void conv_bwd_piece(struct ad *a, const struct dev_op *op, uint32_t dy, int64_t first,
                           int64_t count)
{
    struct dev_op b = ir_op(DEV_OP_CONV_BWD_WEIGHT, op->name, 2, (uint32_t[]){op->in[0], dy});
    const bool wants_bias = ad__wants(a, op->in[2]);

    b.u.conv = op->u.conv;
    b.u.conv.first = first;
    b.u.conv.count = count;
    b.out[b.n_out++] = gradient_of(a, op->in[1]);
    if (wants_bias)
        b.out[b.n_out++] = gradient_of(a, op->in[2]);
    ir_push(a->ir, &b);
    if (ad__wants(a, op->in[1]))
        ad__add(a, op->in[1], b.out[0]);
    if (wants_bias)
        ad__add(a, op->in[2], b.out[1]);
}

/* In pieces of a->piece, each of a part of the samples, whose results are added up: they are small
 * beside what is read, and training can be stopped between them. A part begins at an even sample
 * where there are enough, since that is mostly as aligned as the tensor is. */
static void conv_bwd_weight(struct ad *a, const struct dev_op *op, uint32_t dy)
{
    const int64_t elements = ir_elements(a->ir, op->in[0]) + ir_elements(a->ir, dy);
    const int64_t samples = ir_t(a->ir, op->in[0])->dims[0];
    const int64_t n = a->piece ? SH_MIN((elements - 1) / a->piece + 1, samples) : 1;
    const int64_t grain = samples >= 2 * n ? 2 : 1;
    int64_t first = 0;

    if (n <= 1)
        conv_bwd_piece(a, op, dy, 0, 0);
    for (int64_t i = 1; i <= n && n > 1; i++) {
        const int64_t end = i == n ? samples : samples * i / n / grain * grain;

        conv_bwd_piece(a, op, dy, first, end - first);
        first = end;
    }
}

void ad__conv(struct ad *a, const struct dev_op *op, uint32_t dy)
{
    struct dev_op b = ir_op(DEV_OP_CONV_BWD_DATA, op->name, 2, (uint32_t[]){dy, op->in[1]});

    plain_only(a, op);
    if (ad__wants(a, op->in[1]) || ad__wants(a, op->in[2]))
        conv_bwd_weight(a, op, dy);
    b.u.conv = op->u.conv;
    if (ad__wants(a, op->in[0]))
        ad__add_op(a, op->in[0], &b);
    if (ad__wants(a, op->in[3]))
        ad__add(a, op->in[3], dy);
}

/* op is the gradient of a convolution for its input, so its own is that convolution, and for the
 * weight the gradient of that convolution, where dy is the input. */
void ad__conv_bwd_data(struct ad *a, const struct dev_op *op, uint32_t dy)
{
    struct dev_op f =
        ir_op(DEV_OP_CONV, op->name, 4, (uint32_t[]){dy, op->in[1], DEV_NONE, DEV_NONE});

    f.u.conv = op->u.conv;
    if (ad__wants(a, op->in[1]))
        conv_bwd_weight(a, &f, op->in[0]);
    if (ad__wants(a, op->in[0]))
        ad__add_op(a, op->in[0], &f);
}

struct product { /* alpha op(a) op(b) */
    uint32_t a, b;
    bool trans_a, trans_b;
};

/* The gradient of operand t of a product whose result has dy's shape: leading axes as in dy, the
 * last two as in t; then summed over what t was broadcast along. */
static void product_to(struct ad *a, const struct dev_op *op, struct product p, uint32_t t,
                       uint32_t dy)
{
    struct dev_op b = ir_op(DEV_OP_MATMUL, op->name, 4, (uint32_t[]){p.a, p.b, DEV_NONE, DEV_NONE});
    struct dev_tensor d = *ir_t(a->ir, dy), like = *ir_t(a->ir, t);

    b.u.matmul.trans_a = p.trans_a;
    b.u.matmul.trans_b = p.trans_b;
    b.u.matmul.alpha = op->u.matmul.alpha;
    d.dims[d.rank - 2] = like.dims[like.rank - 2];
    d.dims[d.rank - 1] = like.dims[like.rank - 1];
    ad__add_reduced(a, t, ir_emit(a->ir, &b, SH_F32, d.rank, d.dims));
}

void ad__matmul(struct ad *a, const struct dev_op *op, uint32_t dy)
{
    const bool ta = op->u.matmul.trans_a, tb = op->u.matmul.trans_b;
    const uint32_t x = op->in[0], w = op->in[1];
    const struct product to_w =
        tb ? (struct product){dy, x, true, ta} : (struct product){x, dy, !ta, false};
    const struct product to_x =
        ta ? (struct product){w, dy, tb, true} : (struct product){dy, w, false, !tb};

    plain_only(a, op);
    if (ad__wants(a, w))
        product_to(a, op, to_w, w, dy);
    if (ad__wants(a, op->in[2]))
        ad__add(a, op->in[2], ad__column_sums(a, op->name, dy));
    if (ad__wants(a, op->in[3]))
        ad__add_reduced(a, op->in[3], dy);
    if (ad__wants(a, x))
        product_to(a, op, to_x, x, dy);
}

/* d: the gradient of all scores, [B, H, Sq, Sk]. Samples that share a part of the mask are summed
 * up first. */
static void add_mask_gradient(struct ad *a, uint32_t mask, uint32_t d)
{
    const struct dev_tensor m = *ir_t(a->ir, mask), s = *ir_t(a->ir, d);
    const int64_t parts = m.rank == 4 ? m.dims[0] : 1, n = s.dims[1] * s.dims[2] * s.dims[3];
    struct dev_op op = ir_op(DEV_OP_REDUCE, m.name, 1, &d);

    if (parts != 1 && parts != s.dims[0]) {
        op.in[0] = ir_alias(a->ir, d, 2, (int64_t[]){s.dims[0] / parts, parts * n});
        op.u.reduce.kind = DEV_RED_SUM;
        op.u.reduce.axes = 1;
        d = ir_emit(a->ir, &op, SH_F32, 1, (int64_t[]){parts * n});
        d = ir_alias(a->ir, d, 4, (int64_t[]){parts, s.dims[1], s.dims[2], s.dims[3]});
    }
    ad__add_reduced(a, mask, d);
}

void ad__attention(struct ad *a, const struct dev_op *op, uint32_t dy)
{
    const uint32_t mask = op->n_in > 3 ? op->in[3] : DEV_NONE;
    struct dev_op b =
        ir_op(DEV_OP_ATTENTION_BWD, op->name, 7,
              (uint32_t[]){op->in[0], op->in[1], op->in[2], mask, op->out[0], dy, op->out[1]});

    if (op->n_out < 2) {
        ad__unsupported(a, op, "it was not made for training");
        return;
    }
    for (int i = 0; i < 3; i++)
        b.out[b.n_out++] =
            dev_attn_shares(op, i) == i ? gradient_of(a, op->in[i]) : (uint32_t)DEV_NONE;
    b.u.attn = op->u.attn;
    if (ad__wants(a, mask)) {
        const struct dev_tensor y = *ir_t(a->ir, op->out[0]), lse = *ir_t(a->ir, op->out[1]);
        const int64_t keys =
            op->u.attn.view[1].row ? op->u.attn.k_rows : ir_t(a->ir, op->in[1])->dims[1];

        b.out[b.n_out++] = ir_tensor(a->ir, ir_t(a->ir, mask)->name, SH_F32, DEV_ROLE_ACT, 4,
                                     (int64_t[]){y.dims[0], lse.dims[1], y.dims[1], keys});
    }
    ir_push(a->ir, &b);
    for (uint32_t i = 0; i < 3; i++)
        if (b.out[i] != DEV_NONE && ad__wants(a, op->in[i]))
            ad__add(a, op->in[i], b.out[i]);
    if (b.n_out == 4)
        add_mask_gradient(a, mask, b.out[3]);
}

void ad__pool_max(struct ad *a, const struct dev_op *op, uint32_t dy)
{
    struct dev_op b = ir_op(DEV_OP_POOL_MAX_BWD, op->name, 2, (uint32_t[]){dy, op->out[1]});

    b.u.pool = op->u.pool;
    ad__add_op(a, op->in[0], &b);
}

void ad__pool_avg(struct ad *a, const struct dev_op *op, uint32_t dy)
{
    struct dev_op b = ir_op(DEV_OP_POOL_AVG_BWD, op->name, 1, &dy);

    b.u.pool = op->u.pool;
    ad__add_op(a, op->in[0], &b);
}

/* Pushes b with one output for each of the inputs x, scale, bias that is there, and adds them. */
static void push_norm(struct ad *a, const struct dev_op *op, struct dev_op *b)
{
    for (uint32_t i = 0; i < 3; i++) {
        b->out[i] = DEV_NONE;
        if (op->in[i] == DEV_NONE)
            continue;
        b->out[i] = gradient_of(a, op->in[i]);
        b->n_out = SH_MAX(b->n_out, i + 1);
    }
    b->u.norm = op->u.norm;
    ir_push(a->ir, b);
    for (uint32_t i = 0; i < 3; i++)
        if (b->out[i] != DEV_NONE && ad__wants(a, op->in[i]))
            ad__add(a, op->in[i], b->out[i]);
}

/* With an activation, d_y behind it is a result of its own: the residual's gradient. */
void ad__bn_train(struct ad *a, const struct dev_op *op, uint32_t dy)
{
    const uint32_t residual = op->n_in > 5 ? op->in[5] : DEV_NONE;
    struct dev_op b =
        ir_op(DEV_OP_BN_TRAIN_BWD, op->name, 7,
              (uint32_t[]){op->in[0], dy, op->in[1], op->out[1], op->out[2], DEV_NONE, DEV_NONE});
    const bool has_act = op->act != DEV_ACT_NONE;

    b.act = op->act;
    b.act_p0 = op->act_p0;
    b.act_p1 = op->act_p1;
    if (has_act && residual == DEV_NONE)
        b.in[5] = op->in[2];
    else if (has_act)
        b.in[6] = op->out[0];
    if (has_act && ad__wants(a, residual)) {
        dy = b.out[3] = ir_like(a->ir, dy, ir_t(a->ir, residual)->name, DEV_ROLE_ACT);
        b.n_out = 4;
    }
    push_norm(a, op, &b);
    if (ad__wants(a, residual))
        ad__add(a, residual, dy);
}

/* A LayerNorm that a pass put together does not save its statistics yet. */
static void save_statistics(struct ad *a, struct dev_op *op)
{
    struct dev_tensor x = *ir_t(a->ir, op->in[0]);
    int64_t rows = 1;

    for (int64_t i = 0; i < op->u.norm.axis; i++)
        rows *= x.dims[i];
    for (uint32_t i = 1; i < 3; i++)
        op->out[i] = ir_tensor(a->ir, op->name, SH_F32, DEV_ROLE_ACT, 1, &rows);
    op->n_out = 3;
    a->ir->g.ops[a->op] = *op;
}

void ad__layernorm(struct ad *a, const struct dev_op *op, uint32_t dy)
{
    struct dev_op f = *op, b;

    if (f.n_out < 3)
        save_statistics(a, &f);
    b = ir_op(DEV_OP_LAYERNORM_BWD, f.name, 5,
              (uint32_t[]){f.in[0], dy, f.in[1], f.out[1], f.out[2]});
    push_norm(a, &f, &b);
}

void ad__dropout(struct ad *a, const struct dev_op *op, uint32_t dy)
{
    struct dev_op b = ir_op(DEV_OP_DROPOUT_BWD, op->name, 2, (uint32_t[]){dy, op->out[1]});
    const uint32_t residual = op->n_in > 1 ? op->in[1] : DEV_NONE;

    b.u.dropout = op->u.dropout;
    if (ad__wants(a, op->in[0]))
        ad__add_op(a, op->in[0], &b);
    if (ad__wants(a, residual))
        ad__add(a, residual, dy);
}

void ad__lstm_cell(struct ad *a, const struct dev_op *op, uint32_t dy)
{
    const uint32_t d_next = a->grads[ir_root(a->ir, op->out[1])];
    struct dev_op b =
        ir_op(DEV_OP_LSTM_CELL_BWD, op->name, 3, (uint32_t[]){op->in[0], op->in[1], dy});
    const struct dev_tensor cell = *ir_t(a->ir, op->in[1]);
    uint32_t ds, dc;

    if (d_next != DEV_NONE)
        b.in[b.n_in++] = ir_alias(a->ir, d_next, cell.rank, cell.dims);
    b.out[b.n_out++] = ds = ir_like(a->ir, op->in[0], op->name, DEV_ROLE_ACT);
    dc = ir_emit_like(a->ir, &b, op->in[1]);
    if (ad__wants(a, op->in[0]))
        ad__add(a, op->in[0], ds);
    if (ad__wants(a, op->in[1]))
        ad__add(a, op->in[1], dc);
}
