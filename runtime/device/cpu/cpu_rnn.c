/* cpu_rnn.c - one step of an LSTM's cell and its gradient. A sample belongs to one thread.
 */
#include "common/mem.h"
#include "runtime/device/cpu/cpu.h"
#include "runtime/device/cpu/cpu_math.h"

#define GRAIN 2048 /* elements below which a second thread costs more than it gives */

struct cell {
    int64_t width;
    const float *sums, *cell, *dh, *dc; /* dc: NULL if absent */
    float *out[2];                      /* hidden and cell'; backward: d_sums and d_cell */
};

SH_VECTORISE static void cell_forward(int64_t n, const float *restrict sums,
                                      const float *restrict cell, float *restrict hidden,
                                      float *restrict next)
{
    for (int64_t k = 0; k < n; k++) {
        next[k] = cpu__logistic(sums[2 * n + k]) * cell[k] +
                  cpu__logistic(sums[k]) * cpu__tanh(sums[3 * n + k]);
        hidden[k] = cpu__logistic(sums[n + k]) * cpu__tanh(next[k]);
    }
}

SH_VECTORISE static void cell_backward(int64_t n, const struct cell *c, const float *restrict sums,
                                       const float *restrict cell, const float *restrict dh,
                                       float *restrict ds, float *restrict dcell)
{
    for (int64_t k = 0; k < n; k++) {
        const float i = cpu__logistic(sums[k]), o = cpu__logistic(sums[n + k]);
        const float f = cpu__logistic(sums[2 * n + k]), g = cpu__tanh(sums[3 * n + k]);
        const float t = cpu__tanh(f * cell[k] + i * g);
        const float d = dh[k] * o * (1 - t * t) + (c->dc ? dcell[k] : 0);

        ds[k] = d * g * i * (1 - i);
        ds[n + k] = dh[k] * t * o * (1 - o);
        ds[2 * n + k] = d * cell[k] * f * (1 - f);
        ds[3 * n + k] = d * i * (1 - g * g);
        dcell[k] = d * f;
    }
}

static void forward_rows(void *ctx, int64_t from, int64_t to)
{
    const struct cell *c = ctx;
    const int64_t n = c->width;

    for (int64_t r = from; r < to; r++)
        cell_forward(n, c->sums + 4 * n * r, c->cell + n * r, c->out[0] + n * r, c->out[1] + n * r);
}

static void backward_rows(void *ctx, int64_t from, int64_t to)
{
    const struct cell *c = ctx;
    const int64_t n = c->width;

    for (int64_t r = from; r < to; r++) {
        if (c->dc)
            memcpy(c->out[1] + n * r, c->dc + n * r, (size_t)n * sizeof(float));
        cell_backward(n, c, c->sums + 4 * n * r, c->cell + n * r, c->dh + n * r,
                      c->out[0] + 4 * n * r, c->out[1] + n * r);
    }
}

/* p: the inputs that there are, then the outputs. */
static void cell_fn(const struct cpu_call *c)
{
    const struct dev_tensor *x = &c->plan->base.g->tensors[c->op->in[1]];
    const bool is_bwd = c->op->kind == DEV_OP_LSTM_CELL_BWD;
    const bool has_dc = cpu__opt_in(c->op, 3) != DEV_NONE;
    void *const *out = c->p + 2 + is_bwd + has_dc;
    struct cell k = {.width = x->dims[1],
                     .sums = c->p[0],
                     .cell = c->p[1],
                     .dh = is_bwd ? c->p[2] : NULL,
                     .dc = has_dc ? c->p[3] : NULL,
                     .out = {out[0], out[1]}};

    cpu__parallel(c->threads, x->dims[0], GRAIN / k.width + 1,
                  is_bwd ? backward_rows : forward_rows, &k);
}

int cpu__lstm_cell(struct cpu_build *b)
{
    return cpu__step_plain(b, cell_fn, NULL, 0);
}
