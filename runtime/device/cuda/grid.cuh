/* grid.cuh - what the blocks of a grid tell each other and the host. */
#ifndef SH_RUNTIME_DEVICE_CUDA_GRID_CUH
#define SH_RUNTIME_DEVICE_CUDA_GRID_CUH

#include "runtime/device/cuda/device.cuh"

/* True in all threads of the last of `n` blocks that come here, which then sees all that the others
 * wrote before: read it with __ldcg. So a sum over blocks needs no second kernel, and the order in
 * which that block adds does not depend on who came when. *arrived (of cuda_dev.arrivals) is 0
 * before and after. */
DEV_INLINE bool comes_last(uint32_t *arrived, unsigned n)
{
    __shared__ bool is_last;

    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0) {
        is_last = atomicAdd(arrived, 1u) == n - 1;
        if (is_last)
            *arrived = 0;
    }
    __syncthreads();
    if (is_last)
        __threadfence();
    return is_last;
}

/* Waits until all `n` blocks that come here have come, and sees then what they wrote before: read
 * it with __ldcg. They must be on the device at once: a cooperative launch. *arrived counts up and
 * is 0 again with the last of them. */
DEV_INLINE void wait_for_all(uint32_t *arrived, unsigned n)
{
    uint32_t seen;

    __syncthreads();
    if (threadIdx.x == 0) {
        __threadfence();
        seen = atomicInc(arrived, n - 1) + 1 < n;
        while (seen != 0)
            asm volatile("ld.acquire.gpu.global.u32 %0, [%1];"
                         : "=r"(seen)
                         : "l"(arrived)
                         : "memory");
        __threadfence();
    }
    __syncthreads();
}

/* Tells the host about a bad index. One store of 16 bytes, so that what the host reads belongs
 * together; where there are several, any of them. */
DEV_INLINE void raise_fault(struct k_fault *f, uint32_t op, int64_t at, int64_t value)
{
    const uint64_t where = at < UINT32_MAX ? (uint64_t)at : UINT32_MAX;

    if (f)
        *reinterpret_cast<longlong2 *>(f) =
            make_longlong2(value, (long long)((uint64_t)(op + 1) << 32 | where));
}

#endif
