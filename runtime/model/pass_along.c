/* pass_along.c - inference in TF32: weights of products lie along the sum.
 *
 * ONNX has x w with the rows of w along the sum, so that neighbours in memory belong to different
 * sums. Matrix units read F32 only along the sum (pass_turn.c), and what brings w to them has to
 * turn it there each time. So a weight that only such products read is turned once.
 */
#include "common/mem.h"
#include "runtime/model/pass.h"

#include <stdlib.h>

#define TILE 32

struct turned {
    const float *from;
    int64_t rows, columns; /* of it */
};

static void transpose_weight(const void *ctx, void *to)
{
    const struct turned *t = ctx;
    float *out = to;

    for (int64_t r0 = 0; r0 < t->rows; r0 += TILE)
        for (int64_t c0 = 0; c0 < t->columns; c0 += TILE)
            for (int64_t c = c0; c < SH_MIN(c0 + TILE, t->columns); c++)
                for (int64_t r = r0; r < SH_MIN(r0 + TILE, t->rows); r++)
                    out[c * t->rows + r] = t->from[r * t->columns + c];
}

static bool is_across(const struct ir *ir, const struct dev_op *op)
{
    const struct dev_tensor *w;

    if (op->kind != DEV_OP_MATMUL || op->u.matmul.trans_b)
        return false;
    w = ir_t(ir, op->in[1]);
    return w->rank == 2 && w->dtype == SH_F32 && ir_is_const(ir, op->in[1]) &&
           op->in[0] != op->in[1] && ir_same_shape(ir, op->in[1], ir_root(ir, op->in[1]));
}

static uint32_t turned_weight(struct ir *ir, uint32_t w)
{
    const bool may_wait = ir_is_given(ir, w);
    struct turned *t = ir_alloc(ir, 1, sizeof(*t));
    struct dev_tensor like = *ir_t(ir, w);
    uint32_t out;

    if (t)
        *t = (struct turned){ir_settle(ir, w), like.dims[0], like.dims[1]};
    like.dims[0] = ir_t(ir, w)->dims[1];
    like.dims[1] = ir_t(ir, w)->dims[0];
    out = ir_later(ir, &like, like.name, transpose_weight, t);
    if (!may_wait)
        ir_settle(ir, out);
    return out;
}

void pass_along(struct ir *ir)
{
    const uint32_t n = ir->g.n_tensors;
    uint32_t *reads = ir_alloc(ir, n, sizeof(*reads)), *to = ir_alloc(ir, n, sizeof(*to));
    struct ir_uses u;
    bool ok = ir_uses_init(&u, ir) && reads && to;

    for (uint32_t i = 0; i < ir->g.n_ops && ok; i++)
        if (is_across(ir, &ir->g.ops[i]))
            reads[ir_root(ir, ir->g.ops[i].in[1])]++;
    for (uint32_t i = 0; i < n && ok; i++)
        to[i] = reads[i] > 0 && reads[i] == u.reads[i] ? turned_weight(ir, i) : DEV_NONE;
    for (uint32_t i = 0; i < ir->g.n_ops && ok; i++) {
        struct dev_op *op = &ir->g.ops[i];
        const uint32_t w = is_across(ir, op) ? to[ir_root(ir, op->in[1])] : DEV_NONE;

        if (w != DEV_NONE) {
            op->in[1] = w;
            op->u.matmul.trans_b = true;
        }
    }
    ir_uses_fini(&u);
    free(reads);
    free(to);
}
