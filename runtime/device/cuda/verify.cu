/* verify.cu - operands that are made up, and results in 64 bits (cuda_verify.c).
 *
 * Blocks add up their digests by atomics on integers, so the order does not matter. */
#include "runtime/device/cuda/device.cuh"
#include "runtime/device/cuda/kernels_verify.h"

#define THREADS 256
#define BLOCKS 1024

/* The finalizer of MurmurHash3. */
DEV_INLINE uint64_t mixed(uint64_t h)
{
    h = (h ^ (h >> 33)) * 0xff51afd7ed558ccdu;
    h = (h ^ (h >> 33)) * 0xc4ceb9fe1a85ec53u;
    return h ^ (h >> 33);
}

/* Positive: roots and logarithms of them are numbers. */
template <class T>
static __global__ void __launch_bounds__(THREADS)
    pattern_kernel(T *dst, int64_t n, uint64_t seed, float scale)
{
    const int64_t step = (int64_t)gridDim.x * THREADS;

    for (int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x; i < n; i += step)
        dst[i] = from_f<T>((float)((mixed(seed << 40 ^ (uint64_t)i) >> 40) + 1) * 0x1p-24f * scale);
}

static __global__ void __launch_bounds__(THREADS)
    digest_kernel(const unsigned char *x, size_t bytes, uint64_t seed, unsigned long long *sum)
{
    __shared__ unsigned long long smem[THREADS / WARP];
    const size_t step = (size_t)gridDim.x * THREADS, words = bytes / 4;
    const size_t first = (size_t)blockIdx.x * THREADS + threadIdx.x;
    unsigned long long mine = 0;

    for (size_t i = first; i < words; i += step)
        mine += mixed(mixed(seed << 40 ^ i) ^ reinterpret_cast<const uint32_t *>(x)[i]);
    for (size_t i = words * 4 + first; i < bytes; i += step)
        mine += mixed(mixed(seed << 40 ^ ~i) ^ x[i]);
    mine = block_sum<THREADS>(mine, smem);
    if (threadIdx.x == 0)
        atomicAdd(sum, mine);
}

void k_pattern(cudaStream_t s, int type, int64_t n, uint32_t seed, float scale, void *dst)
{
    DISPATCH_FLOAT(type, T, pattern_kernel<T><<<BLOCKS, THREADS, 0, s>>>((T *)dst, n, seed, scale));
}

void k_digest(cudaStream_t s, const void *x, size_t bytes, uint32_t seed, uint64_t *sum)
{
    digest_kernel<<<BLOCKS, THREADS, 0, s>>>((const unsigned char *)x, bytes, seed,
                                             (unsigned long long *)sum);
}
