/* pass_turn.c - training in TF32: transposes an operand of the gradients of weights beforehand.
 *
 * The gradient x^T d_y of a weight sums over rows, along which neither operand is contiguous.
 * Tensor cores read F32 only along the sum (16-bit operands either way), so such a product takes
 * half as long again as one with an operand that is contiguous there; on an H200, with 4096 rows:
 * 106 us instead of 72 with 768 x 3072 columns, 38 instead of 28 with 768 x 768. Transposing 768
 * columns takes 9 us.
 *
 * So the operand with fewer columns is transposed if the products that read it together have enough
 * columns on their other side. Queries, keys and values share theirs.
 */
#include "common/mem.h"
#include "runtime/model/pass.h"

#include <stdlib.h>

#define LEAST_ROWS 1024
#define LEAST_COLUMNS 1536 /* of the other sides */

struct turn {
    struct ir *ir;
    int64_t *gain;    /* OWNED, by root: columns of the other sides of the products that read it */
    uint32_t *turned; /* OWNED, by root: itself turned, or DEV_NONE */
    uint32_t n;       /* tensors before the pass */
};

static bool is_weight_gradient(const struct ir *ir, const struct dev_op *op)
{
    const struct dev_tensor *a = ir_t(ir, op->in[0]), *b;

    if (op->kind != DEV_OP_MATMUL || !op->u.matmul.trans_a || op->u.matmul.trans_b)
        return false;
    b = ir_t(ir, op->in[1]);
    return a->rank == 2 && b->rank == 2 && a->dtype == SH_F32 && b->dtype == SH_F32 &&
           a->dims[0] >= LEAST_ROWS;
}

static int64_t columns(const struct turn *t, const struct dev_op *op, int side)
{
    return ir_t(t->ir, op->in[side])->dims[1];
}

static void count_gain(const struct turn *t, const struct dev_op *op)
{
    for (int side = 0; side < 2; side++)
        if (columns(t, op, side) <= columns(t, op, 1 - side))
            t->gain[ir_root(t->ir, op->in[side])] += columns(t, op, 1 - side);
}

/* The operand to turn; -1: it is not worth it. */
static int side_of(const struct turn *t, const struct dev_op *op)
{
    const int64_t a = t->gain[ir_root(t->ir, op->in[0])], b = t->gain[ir_root(t->ir, op->in[1])];
    const int side =
        columns(t, op, 0) != columns(t, op, 1) ? columns(t, op, 1) < columns(t, op, 0) : b > a;

    return (side ? b : a) >= LEAST_COLUMNS ? side : -1;
}

/* Before its first reader. */
static uint32_t turn_operand(struct turn *t, const struct dev_op *op, int side)
{
    const uint32_t x = op->in[side];
    const int64_t *dims = ir_t(t->ir, x)->dims, to[2] = {dims[1], dims[0]};
    struct dev_op turn = ir_op(DEV_OP_TRANSPOSE, op->name, 1, &x);

    turn.u.perm.perm[0] = 1;
    return ir_emit(t->ir, &turn, SH_F32, 2, to);
}

static void push_turn_op(struct turn *t, struct dev_op op)
{
    const int side = is_weight_gradient(t->ir, &op) ? side_of(t, &op) : -1;

    if (side >= 0) {
        uint32_t *turned = &t->turned[ir_root(t->ir, op.in[side])];

        if (*turned == DEV_NONE)
            *turned = turn_operand(t, &op, side);
        if (ir_t(t->ir, *turned)->dims[1] == ir_t(t->ir, op.in[side])->dims[0]) {
            op.in[side] = *turned;
            op.u.matmul.trans_a = side == 1;
            op.u.matmul.trans_b = side == 1;
        } /* else another shape of the same bytes: rare, and right as it is */
    }
    ir_push(t->ir, &op);
}

void pass_turn(struct ir *ir)
{
    struct turn t = {.ir = ir, .n = ir->g.n_tensors};
    const uint32_t n_ops = ir->g.n_ops;
    struct dev_op *ops = ir_alloc(ir, n_ops, sizeof(*ops));

    t.gain = ir_alloc(ir, t.n, sizeof(*t.gain));
    t.turned = ir_alloc(ir, t.n, sizeof(*t.turned));
    if (ir->err.rc == SH_OK) {
        for (uint32_t i = 0; i < t.n; i++)
            t.turned[i] = DEV_NONE;
        for (uint32_t i = 0; i < n_ops; i++) {
            ops[i] = ir->g.ops[i];
            if (is_weight_gradient(ir, &ops[i]))
                count_gain(&t, &ops[i]);
        }
        ir->g.n_ops = 0; /* the list is written again */
        for (uint32_t i = 0; i < n_ops; i++)
            push_turn_op(&t, ops[i]);
    }
    free(ops);
    free(t.gain);
    free(t.turned);
}
