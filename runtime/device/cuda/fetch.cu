/* fetch.cu - page-locked host memory read by kernels, beside the copy engines.
 *
 * A copy engine serves one process for a while before it turns to another, so a few megabytes of
 * inputs would wait for most of the weights that travel just then. Reads by the compute units share
 * the link with them. A few blocks keep it full: 512 KiB are on their way at a time.
 */
#include "runtime/device/cuda/kernels.h"

#define THREADS 256
#define BLOCKS 32
#define AT_ONCE 4

static __global__ void __launch_bounds__(THREADS)
    fetch_words(uint4 *dst, const uint4 *src, size_t n)
{
    const size_t step = (size_t)gridDim.x * THREADS;
    size_t i = (size_t)blockIdx.x * THREADS + threadIdx.x;

    for (; i + (AT_ONCE - 1) * step < n; i += AT_ONCE * step) {
        uint4 v[AT_ONCE];

#pragma unroll
        for (int k = 0; k < AT_ONCE; k++)
            v[k] = __ldcv(src + i + k * step);
#pragma unroll
        for (int k = 0; k < AT_ONCE; k++)
            dst[i + k * step] = v[k];
    }
    for (; i < n; i += step)
        dst[i] = __ldcv(src + i);
}

void k_fetch(cudaStream_t s, void *dst, const void *src, size_t bytes)
{
    fetch_words<<<BLOCKS, THREADS, 0, s>>>(static_cast<uint4 *>(dst),
                                           static_cast<const uint4 *>(src), bytes / sizeof(uint4));
}
