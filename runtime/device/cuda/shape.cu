/* shape.cu - CONCAT: all inputs in one launch.
 *
 * Seen in storage order, an input is [outer][len] and the result [outer][row], and a thread moves
 * one unit: 16 bytes when all widths and places allow it (channels of NHWC images: multiples of
 * eight at 16 bit), else 8, 4, 2 or 1. It finds its input in a table of at most 32 first units.
 * Other moves (slice, pad, transpose, expand, reshape) are k_convert and k_cast.
 */
#include "runtime/device/cuda/nest.cuh"

#define THREADS 256

struct joins { /* in units */
    int n;
    int64_t row;        /* of the result */
    int64_t total, sum; /* threads; what the inputs bring to one row */
    fast_div div;       /* by sum */
    const void *src[K_MAX_JOINS];
    int64_t at[K_MAX_JOINS], len[K_MAX_JOINS]; /* place in a row */
    int64_t begin[K_MAX_JOINS];                /* in the numbering of threads within a row */
};

template <class U, class I>
static __global__ void join_inputs(const __grid_constant__ joins j, U *dst)
{
    const I i = (I)blockIdx.x * THREADS + threadIdx.x;
    I row, col;
    int k = 0;

    if (i >= j.total)
        return;
    row = sizeof(I) == 4 ? quotient((uint32_t)i, j.div) : i / j.sum;
    col = i - row * (I)j.sum;
    for (int step = K_MAX_JOINS / 2; step > 0; step /= 2)
        if (k + step < j.n && col >= (I)j.begin[k + step])
            k += step;
    col -= (I)j.begin[k];
    dst[(int64_t)row * j.row + j.at[k] + col] =
        ((const U *)j.src[k])[(int64_t)row * j.len[k] + col];
}

template <class U> static void launch_join(cudaStream_t s, const joins &j, void *dst)
{
    const unsigned grid = (unsigned)cdiv64(j.total, THREADS);

    if (j.total < INT32_MAX)
        join_inputs<U, uint32_t><<<grid, THREADS, 0, s>>>(j, (U *)dst);
    else
        join_inputs<U, int64_t><<<grid, THREADS, 0, s>>>(j, (U *)dst);
}

static int64_t concat_unit(const struct k_concat *c)
{
    int64_t unit = 16;
    bool fits;

    do {
        fits = c->row % unit == 0 && is_aligned(c->dst, (size_t)unit);
        for (int k = 0; k < c->n; k++)
            fits = fits && c->at[k] % unit == 0 && c->len[k] % unit == 0 &&
                   is_aligned(c->src[k], (size_t)unit);
        unit = fits ? unit : unit / 2;
    } while (!fits && unit > 1);
    return unit;
}

void k_concat(cudaStream_t s, const struct k_concat *c)
{
    const int64_t unit = concat_unit(c);
    joins j = {};

    j.n = c->n;
    j.row = c->row / unit;
    for (int k = 0; k < c->n; k++) {
        j.src[k] = c->src[k];
        j.at[k] = c->at[k] / unit;
        j.len[k] = c->len[k] / unit;
        j.begin[k] = j.sum;
        j.sum += j.len[k];
    }
    j.total = c->outer * j.sum;
    if (j.total < INT32_MAX)
        j.div = fast_div_of((uint32_t)j.sum);
    if (unit == 16)
        launch_join<uint4>(s, j, c->dst);
    else if (unit == 8)
        launch_join<uint64_t>(s, j, c->dst);
    else if (unit == 4)
        launch_join<uint32_t>(s, j, c->dst);
    else if (unit == 2)
        launch_join<uint16_t>(s, j, c->dst);
    else
        launch_join<uint8_t>(s, j, c->dst);
}
