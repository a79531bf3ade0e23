// pixels.cu - y = table[channel][x]: bytes of pictures become floats, and take the layout of y.
//
// Grid    1-D, grid-stride loop over pixels; a thread takes all channels of one, so that neighbours
//         read and write neighbours in either layout. 256 threads a block.
// Memory  reads 1 and writes 2 or 4 bytes an element: bound by DRAM. The table, 1 KiB for each
//         channel, is in shared memory; neighbouring pixels are alike and meet in its banks.
// Sync    one barrier, behind the copy of the table. Reference: cpu/cpu_pixels.c.
#include "runtime/device/cuda/device.cuh"
#include "runtime/device/cuda/kernels_pixels.h"

#define THREADS 256
#define MOST_BLOCKS 4096

template <class T>
static __global__ void __launch_bounds__(THREADS)
    pixels_kernel(const __grid_constant__ struct k_pixels p, const uint8_t *__restrict__ x,
                  const float *__restrict__ table, T *__restrict__ y)
{
    extern __shared__ float rows[];
    const int64_t total = p.n * p.plane, step = (int64_t)gridDim.x * THREADS;
    const int64_t x_channel = p.x_last ? 1 : p.plane, y_channel = p.y_last ? 1 : p.plane;

    for (int i = threadIdx.x; i < p.channels * K_PIXELS; i += THREADS)
        rows[i] = table[i];
    __syncthreads();
    for (int64_t k = (int64_t)blockIdx.x * THREADS + threadIdx.x; k < total; k += step) {
        const int64_t picture = k / p.plane * p.plane * p.channels, at = k % p.plane;
        const uint8_t *from = x + picture + (p.x_last ? at * p.channels : at);
        T *to = y + picture + (p.y_last ? at * p.channels : at);

        for (int c = 0; c < p.channels; c++)
            to[c * y_channel] = from_f<T>(rows[c * K_PIXELS + from[c * x_channel]]);
    }
}

// Launches only: allocates nothing, waits for nothing.
void k_pixels(cudaStream_t s, const struct k_pixels *p, const void *x, const void *table, int type,
              void *y)
{
    const int64_t blocks = cdiv64(p->n * p->plane, THREADS);
    const unsigned grid = (unsigned)(blocks < MOST_BLOCKS ? blocks : MOST_BLOCKS);
    const size_t shared = (size_t)p->channels * K_PIXELS * sizeof(float);

    DISPATCH_FLOAT(type, T,
                   pixels_kernel<T><<<grid, THREADS, shared, s>>>(*p, (const uint8_t *)x,
                                                                  (const float *)table, (T *)y));
}
