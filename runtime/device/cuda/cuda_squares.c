/* cuda_squares.c - the norm of a gradient, and the scale of the loss (squares.cu). */
#include "common/mem.h"
#include "runtime/device/cuda/cuda.h"

_Static_assert(K_SQUARES_MAX >= DEV_MAX_IN - 1, "as many as an operation may have");

static uint32_t pieces_of(int64_t n)
{
    return (uint32_t)((n + K_SQUARES_PIECE - 1) / K_SQUARES_PIECE);
}

static int run_squares(const struct cuda_call *c, struct sh_err *err)
{
    const struct dev_op *op = c->op;
    struct k_squares a = {.scratch = c->scratch,
                          .arrivals = c->dev->arrivals,
                          .before = op->in[0] == DEV_NONE ? NULL : c->in[0],
                          .sum = c->out[0]};
    uint32_t pieces = 0;

    if (c->turn.part < c->turn.last)
        return SH_OK;
    for (uint32_t i = 1; i < op->n_in; i++) {
        const int64_t n = dev_tensor_elements(&c->plan->base.g->tensors[op->in[i]]);

        a.items[a.n_items++] = (struct k_squares_item){
            .x = c->in[i], .n = n, .first = pieces, .type = (int)cuda__stored_type(c, op->in[i])};
        pieces += pieces_of(n);
    }
    k_squares(c->stream, &a, pieces);
    return cuda__launched(c, err);
}

/* Gradients come as they are stored. */
int cuda__squares(struct cuda_build *b)
{
    const struct dev_op *op = b->op;
    int64_t pieces = 0;
    int rc = SH_OK;

    for (uint32_t i = 0; i < op->n_in; i++) {
        if (op->in[i] == DEV_NONE)
            continue;
        if (cuda__t(b, op->in[i])->dtype != SH_F32)
            return cuda__refuse(b, SH_E_BUG, "\"%s\" is not F32", cuda__t(b, op->in[i])->name);
        pieces += pieces_of(dev_tensor_elements(cuda__t(b, op->in[i])));
    }
    if (pieces > INT32_MAX)
        return cuda__refuse(b, SH_E_TOOBIG, "the gradients are too large");
    if (dev_tensor_elements(cuda__t(b, op->out[0])) != 1)
        return cuda__refuse(b, SH_E_BUG, "the sum is not one F32");
    cuda__scratch(b, (size_t)pieces * sizeof(double));
    b->co->run = run_squares;
    b->co->by_step = true; /* not in all parts of a turn */
    if (op->in[0] != DEV_NONE)
        rc = cuda__in(b, 0, cuda__plain(CUDA_T_F32));
    return rc ? rc : cuda__out(b, 0, cuda__plain(CUDA_T_F32));
}

/* ------------------------------------------------------------------ the scale of the loss */

static int run_loss_scale(const struct cuda_call *c, struct sh_err *err)
{
    const struct dev_op *op = c->op;

    if (c->turn.part < c->turn.last)
        return SH_OK;
    k_loss_scale(c->stream, c->in[0], c->in[1], op->u.scaler.growth, op->u.scaler.backoff,
                 op->u.scaler.interval);
    return cuda__launched(c, err);
}

int cuda__loss_scale(struct cuda_build *b)
{
    int rc = SH_OK;

    if (dev_tensor_elements(cuda__t(b, b->op->in[1])) != 1)
        return cuda__refuse(b, SH_E_BUG, "the sum of squares is not one F32");
    for (uint32_t i = 0; i < 2 && !rc; i++)
        rc = cuda__in(b, i, cuda__plain(CUDA_T_F32));
    b->co->run = run_loss_scale;
    b->co->by_step = true; /* not in all parts of a turn */
    return rc;
}
