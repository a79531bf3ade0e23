/* cpu_pixels.c - pictures of bytes become floats by a table, in the layout that the model reads. */
#include "common/mem.h"
#include "common/preprocess.h"
#include "runtime/device/cpu/cpu.h"

struct pixels_ctx {
    const uint8_t *x;
    const float *table; /* SH_PREPROCESS_BYTES numbers for each channel */
    float *y;
    int64_t channels, width;      /* of a row of a picture */
    int64_t rows, x_row, y_row;   /* of a picture; elements from one to the next, of a channel */
    int64_t x_channel, y_channel; /* elements from a channel to the next */
    int64_t x_pixel, y_pixel;     /* ... from a pixel to the next */
};

/* Row r of all pictures, all its channels. */
static void pixels_rows(void *ctx, int64_t from, int64_t to)
{
    const struct pixels_ctx *c = ctx;

    for (int64_t r = from; r < to; r++) {
        const int64_t picture = r / c->rows * c->rows * c->width * c->channels, row = r % c->rows;

        for (int64_t k = 0; k < c->channels; k++) {
            const uint8_t *x = c->x + picture + row * c->x_row + k * c->x_channel;
            float *y = c->y + picture + row * c->y_row + k * c->y_channel;
            const float *table = c->table + k * SH_PREPROCESS_BYTES;

            for (int64_t i = 0; i < c->width; i++)
                y[i * c->y_pixel] = table[x[i * c->x_pixel]];
        }
    }
}

/* p: x table y */
static void pixels_fn(const struct cpu_call *c)
{
    const struct dev_tensor *x = &c->plan->base.g->tensors[c->op->in[0]];
    const bool x_last = c->op->u.pixels.x_last, y_last = c->op->u.pixels.y_last;
    const int64_t channels = x->dims[x_last ? 3 : 1], height = x->dims[x_last ? 1 : 2],
                  width = x->dims[x_last ? 2 : 3];
    struct pixels_ctx k = {.x = c->p[0],
                           .table = c->p[1],
                           .y = c->p[2],
                           .channels = channels,
                           .width = width,
                           .rows = height,
                           .x_row = x_last ? width * channels : width,
                           .y_row = y_last ? width * channels : width,
                           .x_channel = x_last ? 1 : height * width,
                           .y_channel = y_last ? 1 : height * width,
                           .x_pixel = x_last ? channels : 1,
                           .y_pixel = y_last ? channels : 1};

    cpu__parallel(c->threads, x->dims[0] * height, 8, pixels_rows, &k);
}

int cpu__pixels(struct cpu_build *b)
{
    return cpu__step_plain(b, pixels_fn, NULL, 0);
}
