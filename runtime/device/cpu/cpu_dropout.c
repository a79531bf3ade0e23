/* cpu_dropout.c - inverted dropout with counter-based random numbers (device/philox.h). */
#include "common/mem.h"
#include "runtime/device/cpu/cpu.h"
#include "runtime/device/philox.h"

#define GRAIN 1024 /* blocks of four elements */
#define CHUNK 64   /* blocks whose words are made at a time */

SH_VECTORISE static void philox(uint64_t seed, int64_t first, uint32_t second, int64_t step,
                                int64_t n, uint32_t *restrict out)
{
    for (int64_t i = 0; i < n; i++) {
        const uint32_t counter[4] = {(uint32_t)(first + i), second, (uint32_t)step,
                                     (uint32_t)((uint64_t)step >> 32)};
        uint32_t r[4];

        dev_philox(seed, counter, r);
        for (int w = 0; w < 4; w++)
            out[4 * i + w] = r[w];
    }
}

/* The function of several forms is not called from other files: clang names it otherwise. */
void cpu__philox(uint64_t seed, int64_t first, uint32_t second, int64_t step, int64_t n,
                 uint32_t *out)
{
    philox(seed, first, second, step, n, out);
}

struct drop_ctx {
    const struct cpu_call *call;
    int64_t n;
    uint32_t threshold;
    float scale;
    const float *x, *residual; /* residual, mask: NULL if absent */
    float *y;
    uint8_t *mask;
};

static void drop_blocks(void *ctx, int64_t from, int64_t to)
{
    const struct drop_ctx *c = ctx;

    for (int64_t block = from; block < to; block += CHUNK) {
        const int64_t n = SH_MIN(CHUNK, to - block), end = SH_MIN(4 * (block + n), c->n);
        uint32_t words[4 * CHUNK];

        cpu__philox(c->call->op->u.dropout.seed, block, c->call->index, c->call->step, n, words);
        for (int64_t i = 4 * block; i < end; i++) {
            bool keep = words[i - 4 * block] >= c->threshold;

            c->y[i] = keep ? c->x[i] * c->scale : 0;
            if (c->residual)
                c->y[i] += c->residual[i];
            if (c->mask)
                c->mask[i] = keep;
        }
    }
}

/* p: x [residual] y [mask] */
static void dropout_fn(const struct cpu_call *c)
{
    const struct dev_tensor *x = &c->plan->base.g->tensors[c->op->in[0]];
    const bool has_residual = cpu__opt_in(c->op, 1) != DEV_NONE;
    void *const *y = c->p + 1 + has_residual;
    struct drop_ctx d = {.call = c,
                         .n = dev_tensor_elements(x),
                         .threshold = dev_philox_threshold(c->op->u.dropout.ratio),
                         .scale = dev_dropout_scale(c->op->u.dropout.ratio),
                         .x = c->p[0],
                         .residual = has_residual ? c->p[1] : NULL,
                         .y = y[0],
                         .mask = cpu__opt_out(c->op, 1) != DEV_NONE ? y[1] : NULL};

    cpu__parallel(c->threads, (d.n + 3) / 4, GRAIN, drop_blocks, &d);
}

static int check_mask(struct cpu_build *b, uint32_t mask, uint32_t x)
{
    const struct dev_tensor *m = cpu__t(b, mask);

    return sh_dtype_bytes(m->dtype) == 1 &&
                   dev_tensor_elements(m) == dev_tensor_elements(cpu__t(b, x))
               ? b->err->rc
               : cpu__refuse(b, SH_E_BUG, "the mask needs one byte per element");
}

int cpu__dropout(struct cpu_build *b)
{
    const struct dev_op *op = b->op;
    const uint32_t mask = cpu__opt_out(op, 1), residual = cpu__opt_in(op, 1);
    const uint32_t all[] = {op->in[0], residual, op->out[0]};

    cpu__need_f32(b, all, SH_ARRAY_LEN(all));
    if (!(op->u.dropout.ratio >= 0 && op->u.dropout.ratio <= 1))
        cpu__refuse(b, SH_E_INVALID, "ratio %g is not between 0 and 1",
                    (double)op->u.dropout.ratio);
    if (dev_tensor_elements(cpu__t(b, op->in[0])) / 4 > UINT32_MAX)
        cpu__refuse(b, SH_E_TOOBIG, "more elements than random numbers");
    cpu__same_shape(b, op->in[0], op->out[0]);
    if (residual != DEV_NONE)
        cpu__same_shape(b, op->in[0], residual);
    if (mask != DEV_NONE)
        check_mask(b, mask, op->in[0]);
    return cpu__step_plain(b, dropout_fn, NULL, 0);
}

struct bwd_ctx {
    const float *dy;
    const uint8_t *mask;
    float *dx, scale;
};

static void dropout_bwd_range(void *ctx, int64_t from, int64_t to)
{
    const struct bwd_ctx *c = ctx;

    for (int64_t i = from; i < to; i++)
        c->dx[i] = c->mask[i] ? c->dy[i] * c->scale : 0;
}

/* p: d_y mask d_x */
static void dropout_bwd_fn(const struct cpu_call *c)
{
    struct bwd_ctx b = {.dy = c->p[0],
                        .mask = c->p[1],
                        .dx = c->p[2],
                        .scale = dev_dropout_scale(c->op->u.dropout.ratio)};

    cpu__parallel(c->threads, dev_tensor_elements(&c->plan->base.g->tensors[c->op->in[0]]),
                  4 * GRAIN, dropout_bwd_range, &b);
}

int cpu__dropout_bwd(struct cpu_build *b)
{
    const struct dev_op *op = b->op;
    const uint32_t all[] = {op->in[0], op->out[0]};

    cpu__need_f32(b, all, 2);
    cpu__same_shape(b, op->in[0], op->out[0]);
    check_mask(b, op->in[1], op->in[0]);
    return cpu__step_plain(b, dropout_bwd_fn, NULL, 0);
}
