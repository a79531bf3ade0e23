/* autodiff.c - the walk of the backward pass; the rules are in autodiff_nn.c, autodiff_elem.c. */
#include "runtime/model/autodiff.h"

#include "common/mem.h"
#include "runtime/model/autodiff_int.h"

#include <stdlib.h>

static ad_rule *const RULES[DEV_N_OPS] = {
    [DEV_OP_CONV] = ad__conv,
    [DEV_OP_MATMUL] = ad__matmul,
    [DEV_OP_ATTENTION] = ad__attention,
    [DEV_OP_POOL_MAX] = ad__pool_max,
    [DEV_OP_POOL_AVG] = ad__pool_avg,
    [DEV_OP_ACT] = ad__act,
    [DEV_OP_BINARY] = ad__binary,
    [DEV_OP_SOFTMAX] = ad__softmax,
    [DEV_OP_CONCAT] = ad__concat,
    [DEV_OP_SLICE] = ad__slice,
    [DEV_OP_PAD] = ad__pad,
    [DEV_OP_TRANSPOSE] = ad__transpose,
    [DEV_OP_COPY] = ad__copy,
    [DEV_OP_EXPAND] = ad__expand,
    [DEV_OP_REDUCE] = ad__reduce,
    [DEV_OP_RESAMPLE] = ad__resample,
    [DEV_OP_GATHER] = ad__gather,
    [DEV_OP_CONV_BWD_DATA] = ad__conv_bwd_data,
    [DEV_OP_WHERE] = ad__where,
    [DEV_OP_BN_TRAIN] = ad__bn_train,
    [DEV_OP_LAYERNORM] = ad__layernorm,
    [DEV_OP_DROPOUT] = ad__dropout,
    [DEV_OP_CUMSUM] = ad__cumsum,
    [DEV_OP_LSTM_CELL] = ad__lstm_cell,
    [DEV_OP_TOPK] = ad__topk,
    [DEV_OP_SCATTER] = ad__scatter,
};

/* ------------------------------------------------------------------ helpers of the rules */

bool ad__wants(const struct ad *a, uint32_t t)
{
    return t != DEV_NONE && a->wants[ir_root(a->ir, t)];
}

/* An alias of g in the shape of t. */
static uint32_t shaped(struct ad *a, uint32_t g, uint32_t t)
{
    struct dev_tensor d = *ir_t(a->ir, t);

    return ir_alias(a->ir, g, d.rank, d.dims);
}

void ad__add(struct ad *a, uint32_t t, uint32_t g)
{
    uint32_t root = ir_root(a->ir, t), *have = &a->grads[root];

    g = shaped(a, g, root);
    *have = *have == DEV_NONE
                ? g
                : ir_binary(a->ir, DEV_BIN_ADD, ir_t(a->ir, root)->name, *have, g, root);
}

void ad__add_op(struct ad *a, uint32_t t, struct dev_op *b)
{
    ad__add(a, t, ir_emit_like(a->ir, b, t));
}

void ad__add_reduced(struct ad *a, uint32_t t, uint32_t g)
{
    struct dev_tensor to = *ir_t(a->ir, t), from = *ir_t(a->ir, g);
    struct dev_op op = ir_op(DEV_OP_REDUCE, to.name, 1, &g);

    for (uint32_t i = 0; i < from.rank; i++) {
        uint32_t missing = from.rank - to.rank; /* axes that t has not */

        if (from.dims[i] != 1 && (i < missing || to.dims[i - missing] == 1)) {
            op.u.reduce.axes |= 1u << i;
            from.dims[i] = 1;
        }
    }
    op.u.reduce.kind = DEV_RED_SUM;
    op.u.reduce.keep_dims = true;
    if (op.u.reduce.axes)
        g = ir_emit(a->ir, &op, SH_F32, from.rank, from.dims);
    ad__add(a, t, g);
}

uint32_t ad__column_sums(struct ad *a, const char *name, uint32_t g)
{
    struct dev_tensor d = *ir_t(a->ir, g);
    const int64_t n = d.dims[d.rank - 1], dims[2] = {ir_elements(a->ir, g) / n, n};
    struct dev_op op = ir_op(DEV_OP_REDUCE, name, 1, (uint32_t[]){ir_alias(a->ir, g, 2, dims)});

    op.u.reduce.kind = DEV_RED_SUM;
    op.u.reduce.axes = 1;
    return ir_emit(a->ir, &op, SH_F32, 1, &n);
}

uint32_t ad__zero(struct ad *a)
{
    struct dev_op op = ir_op(DEV_OP_FILL, "zero", 0, NULL);

    if (a->zero == DEV_NONE)
        a->zero = ir_emit(a->ir, &op, SH_F32, 1, (int64_t[]){1});
    return a->zero;
}

void ad__unsupported(struct ad *a, const struct dev_op *op, const char *why)
{
    IR_FAIL(a->ir, SH_E_UNSUPPORTED, "cannot train through node \"%s\" (%s): %s", op->name,
            dev_op_name(op->kind), why);
}

/* ------------------------------------------------------------------ the walk */

static bool is_param_trainable(const struct ir *ir, uint32_t t)
{
    return ir->info[t].state == IR_PARAM && !ir->info[t].is_frozen;
}

static bool is_binary(const struct dev_op *op, enum dev_bin kind)
{
    return op->kind == DEV_OP_BINARY && op->u.binary.kind == kind && op->act == DEV_ACT_NONE;
}

/* The difference of x + (q - x): nobody computes q that way but to hand the gradient straight on
 * to x, as quantisation does: x + (q - x).detach(). The file has the sum without the detach().
 * DEV_NONE of another operation. subs[root]: what is taken away from something there, or
 * DEV_NONE. */
static uint32_t straight_through(const struct ir *ir, const struct dev_op *op, const uint32_t *subs)
{
    for (uint32_t k = 0; k < 2 && is_binary(op, DEV_BIN_ADD); k++) {
        const uint32_t q = ir_root(ir, op->in[k]), x = ir_root(ir, op->in[1 - k]);

        if (subs[q] != DEV_NONE && subs[q] == x && ir_same_shape(ir, op->in[k], op->in[1 - k]))
            return q;
    }
    return DEV_NONE;
}

/* Does the result of op change smoothly with a parameter? Steps do not. */
static bool has_slope(const struct ad *a, const struct dev_op *op)
{
    bool any = false;

    if (op->kind == DEV_OP_ACT && op->act >= DEV_ACT_FLOOR && op->act <= DEV_ACT_SIGN)
        return false;
    for (uint32_t k = 0; k < op->n_in; k++)
        any |= op->in[k] != DEV_NONE && a->slopes[ir_root(a->ir, op->in[k])];
    return any;
}

/* Is op (q + x) - x, of which the file lacks the detach() likewise? Only if q is a choice, which
 * changes smoothly with no parameter, and x what it was chosen from: q + x - x.detach(). Elsewhere
 * x is taken away for good: x + f(x) - x. */
bool ad__takes_back(const struct ad *a, const struct dev_op *op)
{
    const uint32_t sum = a->sums[ir_root(a->ir, op->in[0])], x = ir_root(a->ir, op->in[1]);
    const struct dev_op *add = sum == DEV_NONE ? NULL : &a->ir->g.ops[sum];

    if (!add || !is_binary(op, DEV_BIN_SUB) || !ir_same_shape(a->ir, op->in[0], op->in[1]))
        return false;
    for (uint32_t k = 0; k < 2; k++)
        if (ir_root(a->ir, add->in[k]) == x && !a->slopes[ir_root(a->ir, add->in[1 - k])])
            return true;
    return false;
}

/* still[root]: no gradient goes on from there. */
static void mark_still(struct ad *a, const bool *want, uint32_t n_ops)
{
    struct ir *ir = a->ir;
    uint32_t *subs = ir_alloc(ir, a->n, sizeof(*subs)), q;

    if (!subs)
        return;
    memset(subs, 0xff, a->n * sizeof(*subs));
    for (uint32_t i = 0; i < a->n; i++)
        a->slopes[i] = is_param_trainable(ir, i) || (want && want[i]);
    for (uint32_t i = 0; i < n_ops; i++) {
        const struct dev_op *op = &ir->g.ops[i];
        const bool holds = op->n_out > 0 && ir_info(ir, op->out[0])->is_held;
        const bool any = !holds && has_slope(a, op);

        for (uint32_t k = 0; k < op->n_out; k++)
            a->slopes[ir_root(ir, op->out[k])] |= any && ir_t(ir, op->out[k])->dtype == SH_F32;
        if (is_binary(op, DEV_BIN_ADD))
            a->sums[ir_root(ir, op->out[0])] = i;
        if (is_binary(op, DEV_BIN_SUB))
            subs[ir_root(ir, op->out[0])] = ir_root(ir, op->in[1]);
        q = straight_through(ir, op, subs);
        if (q != DEV_NONE)
            a->still[q] = true;
        if (holds)
            a->still[ir_root(ir, op->out[0])] = true;
    }
    free(subs);
}

/* The difference that an operation squares, as one tensor or as two: number of the SUB. */
static uint32_t squared_difference(const struct ir *ir, const struct dev_op *op,
                                   const uint32_t *made)
{
    uint32_t d[2] = {DEV_NONE, DEV_NONE};

    for (uint32_t k = 0; k < 2 && is_binary(op, DEV_BIN_MUL); k++)
        d[k] = made[ir_root(ir, op->in[k])];
    for (uint32_t k = 0; k < 2 && d[0] != DEV_NONE && d[1] != DEV_NONE; k++)
        if (ir_root(ir, ir->g.ops[d[0]].in[k]) != ir_root(ir, ir->g.ops[d[1]].in[k]))
            return DEV_NONE;
    return d[0] == DEV_NONE || d[1] == DEV_NONE ? DEV_NONE : d[0];
}

/* Is there a square of q - x, where sub is x - q? */
static bool is_squared_turned(const struct ir *ir, const struct dev_op *sub,
                              const uint32_t *squares, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        const struct dev_op *other = &ir->g.ops[squares[i]];

        if (ir_root(ir, sub->in[0]) == ir_root(ir, other->in[1]) &&
            ir_root(ir, sub->in[1]) == ir_root(ir, other->in[0]) &&
            ir_root(ir, sub->in[0]) != ir_root(ir, sub->in[1]))
            return true;
    }
    return false;
}

#define MAX_SQUARES 256u

/* (x - q)^2 and (q - x)^2 are the same numbers. Nobody computes them twice but to have one go to
 * x and the other to q, as quantisers do: mse(x, q.detach()) + mse(q, x.detach()). The file lacks
 * the detach(); the order of the operands is that of the call, whose second one is the target. */
static void mark_apart(struct ad *a, uint32_t n_ops)
{
    const struct ir *ir = a->ir;
    uint32_t *made = ir_alloc(a->ir, a->n, sizeof(*made)), squares[MAX_SQUARES], n = 0;

    if (!made)
        return;
    memset(made, 0xff, a->n * sizeof(*made));
    for (uint32_t i = 0; i < n_ops && n < MAX_SQUARES; i++) {
        const struct dev_op *op = &ir->g.ops[i];

        if (is_binary(op, DEV_BIN_SUB))
            made[ir_root(ir, op->out[0])] = i;
        squares[n] = squared_difference(ir, op, made);
        n += squares[n] != DEV_NONE;
    }
    for (uint32_t i = 0; i < n_ops && n > 1; i++)
        if (is_binary(&ir->g.ops[i], DEV_BIN_SUB))
            a->apart[ir_root(ir, ir->g.ops[i].out[0])] =
                is_squared_turned(ir, &ir->g.ops[i], squares, n);
    free(made);
}

static void mark_wants(struct ad *a, const bool *want, uint32_t n_ops)
{
    const struct ir *ir = a->ir;

    for (uint32_t i = 0; i < a->n; i++)
        a->wants[i] = is_param_trainable(ir, i) || (want && want[i]);
    for (uint32_t i = 0; i < n_ops; i++) {
        const struct dev_op *op = &ir->g.ops[i];
        const bool ends = op->n_out > 0 && a->still[ir_root(ir, op->out[0])];
        bool any = false;

        for (uint32_t k = 0; k < op->n_in && !ends; k++)
            any |= ad__wants(a, op->in[k]);
        if (any && op->n_out > 0 && ir_t(ir, op->out[0])->dtype == SH_F32)
            a->wants[ir_root(ir, op->out[0])] = true;
        if (any && op->kind == DEV_OP_LSTM_CELL)
            a->wants[ir_root(ir, op->out[1])] = true;
    }
}

/* Only its state goes on: its output has a gradient of zero. */
static uint32_t fill_hidden(struct ad *a, const struct dev_op *op)
{
    struct dev_op fill = ir_op(DEV_OP_FILL, op->name, 0, NULL);

    return ir_emit_like(a->ir, &fill, op->out[0]);
}

static void step_back(struct ad *a, uint32_t i)
{
    struct dev_op op = a->ir->g.ops[i];
    bool is_cell = op.kind == DEV_OP_LSTM_CELL;
    uint32_t dy;

    if (op.n_out == 0 || !ad__wants(a, op.out[0]))
        return;
    ad__settle(a, ir_root(a->ir, op.out[0]));
    if (is_cell)
        ad__settle(a, ir_root(a->ir, op.out[1]));
    dy = a->grads[ir_root(a->ir, op.out[0])];
    if (dy == DEV_NONE && is_cell && a->grads[ir_root(a->ir, op.out[1])] != DEV_NONE)
        dy = fill_hidden(a, &op);
    if (dy == DEV_NONE)
        return; /* the loss does not depend on it */
    a->op = i;
    if (RULES[op.kind])
        RULES[op.kind](a, &op, shaped(a, dy, op.out[0]));
    else
        ad__unsupported(a, &op, "the operation has no gradient");
}

/* Where the walk begins. A place that depends on no parameter has nothing to teach. */
static void plant(struct ad *a, const struct autodiff_seed *seeds, uint32_t n)
{
    bool any = false;

    for (uint32_t i = 0; i < n; i++)
        if (ad__wants(a, seeds[i].from)) {
            any = true;
            ad__add(a, seeds[i].from, seeds[i].gradient);
        }
    if (!any)
        IR_FAIL(a->ir, SH_E_INVALID,
                "\"%s\" depends on no parameter: the model has nothing to train",
                ir_t(a->ir, seeds[0].from)->name);
}

int autodiff_backward(struct ir *ir, const struct autodiff_seed *seeds, uint32_t n_seeds,
                      const bool *want, int64_t piece, struct sh_err *err)
{
    uint32_t n = ir->g.n_tensors, n_ops = ir->g.n_ops;
    struct ad a = {.ir = ir,
                   .n = n,
                   .wants = ir_alloc(ir, n, sizeof(bool)),
                   .still = ir_alloc(ir, n, sizeof(bool)),
                   .slopes = ir_alloc(ir, n, sizeof(bool)),
                   .sums = ir_alloc(ir, n, sizeof(uint32_t)),
                   .apart = ir_alloc(ir, n, sizeof(bool)),
                   .grads = ir_alloc(ir, n, sizeof(uint32_t)),
                   .zero = DEV_NONE,
                   .piece = piece};

    if (ir->err.rc == SH_OK) {
        for (uint32_t i = 0; i < n; i++)
            a.grads[i] = a.sums[i] = DEV_NONE;
        mark_still(&a, want, n_ops);
        mark_apart(&a, n_ops);
        mark_wants(&a, want, n_ops);
        plant(&a, seeds, n_seeds);
    }
    for (uint32_t i = n_ops; i-- > 0 && ir->err.rc == SH_OK;)
        step_back(&a, i);
    for (uint32_t i = 0; i < n && ir->err.rc == SH_OK; i++)
        if (is_param_trainable(ir, i) || (want && want[i])) {
            ad__settle(&a, i);
            ir->info[i].grad = a.grads[i];
        }
    free(a.wants);
    free(a.still);
    free(a.slopes);
    free(a.sums);
    free(a.apart);
    free(a.parts);
    free(a.grads);
    return ir_done(ir, err);
}
