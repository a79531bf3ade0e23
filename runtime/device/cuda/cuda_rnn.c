/* cuda_rnn.c - builder of LSTM_CELL and its gradient; the kernels are in rnn.cu. */
#include "common/mem.h"
#include "runtime/device/cuda/cuda_nest.h"

#define MAX_ELEMENTS ((int64_t)INT32_MAX * 64) /* of a grid of blocks */

static int run_lstm(const struct cuda_call *c, struct sh_err *err)
{
    const struct dev_tensor *cell = &c->plan->base.g->tensors[c->op->in[1]];
    struct k_lstm k = {.n = dev_tensor_elements(cell),
                       .width = cell->dims[1],
                       .sums = cuda__operand_in(c, 0),
                       .cell = cuda__operand_in(c, 1),
                       .out = {cuda__operand_out(c, 0), cuda__operand_out(c, 1)}};

    if (c->op->kind == DEV_OP_LSTM_CELL_BWD)
        k.d_hidden = cuda__operand_in(c, 2);
    if (cuda__opt_in(c->op, 3) != DEV_NONE)
        k.d_cell = cuda__operand_in(c, 3);
    k_lstm_cell(c->stream, &k);
    return cuda__launched(c, err);
}

int cuda__lstm_cell(struct cuda_build *b)
{
    int rc = SH_OK;

    if (dev_tensor_elements(cuda__t(b, b->op->in[1])) > MAX_ELEMENTS)
        return cuda__refuse(b, SH_E_UNSUPPORTED, "more elements than a grid has threads");
    for (uint32_t i = 0; i < b->op->n_in && !rc; i++)
        if (b->op->in[i] != DEV_NONE)
            rc = cuda__in_plain(b, i);
    for (uint32_t i = 0; i < 2 && !rc; i++)
        rc = cuda__out_plain(b, i);
    b->co->run = run_lstm;
    return rc;
}
