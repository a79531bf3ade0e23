/* cpu_augment.c - random augmentation of a training step's inputs; device/augment.h says what is
 * drawn.
 */
#include "common/mem.h"
#include "runtime/device/augment.h"
#include "runtime/device/cpu/cpu.h"

#include <string.h>

struct jitter_ctx {
    const struct cpu_call *call;
    const char *x;
    char *y;
    int64_t outer, height, width; /* of a sample: [outer, height, width] of `pixel` bytes */
    size_t pixel;
};

static void jitter_row(const struct jitter_ctx *c, const struct dev_moved *m, const char *x,
                       char *y)
{
    for (int64_t j = 0; j < c->width; j++) {
        const int64_t from = (m->mirrored ? c->width - 1 - j : j) + m->right;

        if (x && from >= 0 && from < c->width)
            memcpy(y + (size_t)j * c->pixel, x + (size_t)from * c->pixel, c->pixel);
        else
            memset(y + (size_t)j * c->pixel, 0, c->pixel);
    }
}

/* One sample after the other. */
static void jitter_range(void *ctx, int64_t first, int64_t end)
{
    const struct jitter_ctx *c = ctx;
    const size_t row = (size_t)c->width * c->pixel;

    for (int64_t n = first; n < end; n++) {
        const struct dev_moved m = dev_jitter_of(&c->call->op->u.jitter, n, c->call->step);

        for (int64_t r = 0; r < c->outer * c->height; r++) {
            const int64_t i = r % c->height + m.down;
            const size_t at = (size_t)(n * c->outer * c->height + r / c->height * c->height) * row;
            const bool is_there = i >= 0 && i < c->height;

            jitter_row(c, &m, is_there ? c->x + at + (size_t)i * row : NULL,
                       c->y + at + (size_t)(r % c->height) * row);
        }
    }
}

/* p: x y */
static void jitter_fn(const struct cpu_call *c)
{
    const struct dev_tensor *x = &c->plan->base.g->tensors[c->op->in[0]];
    const bool last = c->op->u.jitter.channels_last;
    struct jitter_ctx k = {.call = c,
                           .x = c->p[0],
                           .y = c->p[1],
                           .outer = last ? 1 : x->dims[1],
                           .height = x->dims[last ? 1 : 2],
                           .width = x->dims[last ? 2 : 3],
                           .pixel = sh_dtype_bytes(x->dtype) * (size_t)(last ? x->dims[3] : 1)};

    cpu__parallel(c->threads, x->dims[0], 1, jitter_range, &k);
}

int cpu__jitter(struct cpu_build *b)
{
    return cpu__step_plain(b, jitter_fn, NULL, 0);
}

/* p: ids ids' labels */
static void tokens_fn(const struct cpu_call *c)
{
    const int64_t n = dev_tensor_elements(&c->plan->base.g->tensors[c->op->in[0]]);
    const int64_t *x = c->p[0];
    int64_t *y = c->p[1], *label = c->p[2];

    for (int64_t i = 0; i < n; i++)
        y[i] = dev_token_of(&c->op->u.tokens, x[i], i, c->step, &label[i]);
}

int cpu__tokens(struct cpu_build *b)
{
    return cpu__step_plain(b, tokens_fn, NULL, 0);
}

/* p: y */
static void mix_fn(const struct cpu_call *c)
{
    *(float *)c->p[0] = c->turn->mix;
}

int cpu__mix(struct cpu_build *b)
{
    return cpu__step_plain(b, mix_fn, NULL, 0);
}
