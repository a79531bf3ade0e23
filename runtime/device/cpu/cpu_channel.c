/* cpu_channel.c - a tensor in blocks of channels, with one value for each channel or for all.
 *
 * What squeezes and excites, scales or shifts channels runs in the layout that convolutions give
 * and take. In the padding of the last block everything is zero, and stays so.
 */
#include "common/mem.h"
#include "runtime/device/cpu/cpu.h"

#define GRAIN 16384
#define MAX_BLOCK 16

struct channel {
    enum dev_bin kind;
    int64_t block, channels; /* of a block, in all */
    int64_t samples, pixels;
    int64_t per_sample, per_channel; /* from one value to the next */
};

struct channel_ctx {
    const struct channel *c;
    const float *x, *s;
    float *y;
};

/* n pixels of a block of `size` channels; inlined, so that the compiler knows the size. */
static inline __attribute__((always_inline)) void each_of_row(enum dev_bin kind, int64_t n,
                                                              int size, const float *x,
                                                              const float *s, float *restrict y)
{
    for (int64_t i = 0; i < n; i++)
        for (int k = 0; k < size; k++) {
            const float a = x[i * size + k], b = s[k];

            y[i * size + k] = kind == DEV_BIN_ADD ? a + b : kind == DEV_BIN_SUB ? a - b : a * b;
        }
}

SH_VECTORISE static void blocks_of_16(enum dev_bin kind, int64_t n, const float *x, const float *s,
                                      float *restrict y)
{
    if (kind == DEV_BIN_ADD)
        each_of_row(DEV_BIN_ADD, n, 16, x, s, y);
    else if (kind == DEV_BIN_SUB)
        each_of_row(DEV_BIN_SUB, n, 16, x, s, y);
    else
        each_of_row(DEV_BIN_MUL, n, 16, x, s, y);
}

/* Blocks [from, to) of all samples. */
static void channel_range(void *ctx, int64_t from, int64_t to)
{
    const struct channel_ctx *x = ctx;
    const struct channel *c = x->c;
    const int64_t blocks = (c->channels + c->block - 1) / c->block;

    for (int64_t i = from; i < to; i++) {
        const int64_t first = i % blocks * c->block, at = i * c->block * c->pixels;
        const float *s = x->s + i / blocks * c->per_sample + first * c->per_channel;
        float of_block[MAX_BLOCK] = {0};

        for (int64_t k = 0; k < SH_MIN(c->block, c->channels - first); k++)
            of_block[k] = s[k * c->per_channel];
        if (c->block == MAX_BLOCK)
            blocks_of_16(c->kind, c->pixels, x->x + at, of_block, x->y + at);
        else
            each_of_row(c->kind, c->pixels, (int)c->block, x->x + at, of_block, x->y + at);
    }
}

/* p: y x s */
static void channel_fn(const struct cpu_call *call)
{
    struct channel_ctx x = {.c = call->aux, .y = call->p[0], .x = call->p[1], .s = call->p[2]};
    const struct channel *c = x.c;
    const int64_t blocks = (c->channels + c->block - 1) / c->block;

    cpu__parallel(call->threads, c->samples * blocks, GRAIN / SH_MAX(c->pixels * c->block, 1) + 1,
                  channel_range, &x);
}

/* s broadcast to x's shape: along the pixels, perhaps along samples and channels too. */
static bool steps_of(const struct dev_tensor *x, const struct dev_tensor *s, struct channel *c)
{
    struct cpu_nd nd;

    cpu__nd_init(&nd, x->rank, x->dims, 1);
    if (!cpu__nd_broadcast(&nd, 0, s))
        return false;
    for (uint32_t i = 2; i < x->rank; i++)
        if (nd.stride[0][i] != 0)
            return false;
    c->per_sample = nd.stride[0][0];
    c->per_channel = nd.stride[0][1];
    return true;
}

static bool fits_channel(struct cpu_build *b, uint32_t x, uint32_t s, struct channel *c)
{
    const struct dev_tensor *tx = cpu__t(b, x), *ts = cpu__t(b, s);
    const struct cpu_tensor *t = &b->plan->tensors[x];

    if (tx->dtype != SH_F32 || ts->dtype != SH_F32 || !t->is_blocked ||
        !dev_same_dims(tx, cpu__t(b, b->op->out[0])))
        return false;
    *c = (struct channel){.kind = b->op->u.binary.kind,
                          .block = cpu__channel_block(&t->lay->md),
                          .samples = tx->dims[0],
                          .channels = tx->dims[1],
                          .pixels = dev_axes_elements(tx, 2, tx->rank)};
    return c->block > 0 && steps_of(tx, ts, c);
}

bool cpu__channel_has(struct cpu_build *b)
{
    const struct dev_op *op = b->op;
    const bool turns = op->u.binary.kind != DEV_BIN_SUB;
    struct channel c;

    return (op->u.binary.kind == DEV_BIN_ADD || op->u.binary.kind == DEV_BIN_SUB ||
            op->u.binary.kind == DEV_BIN_MUL) &&
           (fits_channel(b, op->in[0], op->in[1], &c) ||
            (turns && fits_channel(b, op->in[1], op->in[0], &c)));
}

int cpu__channel(struct cpu_build *b)
{
    const struct dev_op *op = b->op;
    struct cpu_ref refs[3];
    dnnl_memory_desc_t md;
    struct channel c;
    const int left = fits_channel(b, op->in[0], op->in[1], &c) ? 0 : 1;

    if (left)
        fits_channel(b, op->in[1], op->in[0], &c);
    md = b->plan->tensors[op->in[left]].lay->md;
    refs[1] = cpu__in(b, op->in[left], NULL, &md);
    refs[2] = cpu__in_plain(b, op->in[1 - left]);
    refs[0] = cpu__out(b, op->out[0], &md, true);
    cpu__step_fn(b, channel_fn, refs, 3, &c, sizeof(c));
    return cpu__act_in_place(b, refs[0], &md);
}
