/* augment.cu - random augmentation of a training step; device/augment.h says what is drawn.
 *
 * Grid    1-D: a block has 1024 elements of one sample, or 256 ids. Bound by memory: each element
 *         is read once at most and written once.
 */
#include "runtime/device/augment.h"
#include "runtime/device/cuda/device.cuh"
#include "runtime/device/cuda/kernels_augment.h"

#define THREADS 256
#define EACH 4 /* elements of a thread, THREADS apart */

template <class T>
static __global__ void __launch_bounds__(THREADS)
    jitter_kernel(const __grid_constant__ struct k_pictures p,
                  const __grid_constant__ struct dev_jitter j, unsigned per_sample, const T *x,
                  T *y)
{
    const int64_t sample = blockIdx.x / per_sample;
    const int64_t size = p.outer * p.height * p.width * p.inner, base = sample * size;
    const struct dev_moved m = dev_jitter_of(&j, sample, p.step);

#pragma unroll
    for (int k = 0; k < EACH; k++) {
        const int64_t e = ((int64_t)(blockIdx.x % per_sample) * EACH + k) * THREADS + threadIdx.x;
        const int64_t c = e % p.inner, at = e / p.inner % p.width;
        const int64_t line = e / p.inner / p.width, o = line / p.height;
        const int64_t row = line % p.height + m.down;
        const int64_t column = (m.mirrored ? p.width - 1 - at : at) + m.right;

        if (e >= size)
            return;
        y[base + e] = row >= 0 && row < p.height && column >= 0 && column < p.width
                          ? x[base + ((o * p.height + row) * p.width + column) * p.inner + c]
                          : (T)0;
    }
}

void k_jitter(cudaStream_t s, const struct k_pictures *p, const struct dev_jitter *j, const void *x,
              void *y)
{
    const int64_t size = p->outer * p->height * p->width * p->inner;
    const unsigned per_sample = (unsigned)cdiv64(size, THREADS * EACH);
    const unsigned grid = (unsigned)p->n * per_sample;

    if (p->element == 4)
        jitter_kernel<uint32_t>
            <<<grid, THREADS, 0, s>>>(*p, *j, per_sample, (const uint32_t *)x, (uint32_t *)y);
    else
        jitter_kernel<uint8_t>
            <<<grid, THREADS, 0, s>>>(*p, *j, per_sample, (const uint8_t *)x, (uint8_t *)y);
}

static __global__ void __launch_bounds__(THREADS)
    tokens_kernel(const __grid_constant__ struct dev_tokens k, int64_t n, int64_t step,
                  const int64_t *ids, int64_t *seen, int64_t *labels)
{
    const int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    int64_t label;

    if (i >= n)
        return;
    seen[i] = dev_token_of(&k, ids[i], i, step, &label);
    labels[i] = label;
}

void k_tokens(cudaStream_t s, const struct dev_tokens *k, int64_t n, int64_t step,
              const int64_t *ids, int64_t *seen, int64_t *labels)
{
    tokens_kernel<<<(unsigned)cdiv64(n, THREADS), THREADS, 0, s>>>(*k, n, step, ids, seen, labels);
}
