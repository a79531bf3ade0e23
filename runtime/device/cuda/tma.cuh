/* tma.cuh - tiles that the copy unit of sm_90 brings into shared memory, and the barriers there on
 * which it reports them.
 */
#ifndef SH_RUNTIME_DEVICE_CUDA_TMA_CUH
#define SH_RUNTIME_DEVICE_CUDA_TMA_CUH

#include "runtime/device/cuda/device.cuh"

#include <cuda.h>

/* ------------------------------------------------------------------ barriers of 8 bytes */

DEV_INLINE void barrier_init(uint32_t at, int arrivals)
{
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(at), "r"(arrivals) : "memory");
}
/* What was initialised is so for the copy unit, too. */
DEV_INLINE void barriers_are_ready()
{
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}
DEV_INLINE void barrier_arrive(uint32_t at)
{
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(at) : "memory");
}
/* Arrives; the phase ends when so many bytes have come as well. */
DEV_INLINE void barrier_expect(uint32_t at, uint32_t bytes)
{
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(at), "r"(bytes)
                 : "memory");
}
/* Until the phase of this parity has ended. */
DEV_INLINE void barrier_wait(uint32_t at, uint32_t parity)
{
    asm volatile("{.reg .pred p;\n"
                 "WAIT: mbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1;\n"
                 "@!p bra WAIT;}" ::"r"(at),
                 "r"(parity)
                 : "memory");
}

/* ------------------------------------------------------------------ tiles */

/* The tile at these coordinates, the innermost first. */
DEV_INLINE void tile_load(uint32_t to, const CUtensorMap *m, uint32_t barrier, int c0, int c1)
{
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes "
                 "[%0], [%1, {%3, %4}], [%2];" ::"r"(to),
                 "l"(m), "r"(barrier), "r"(c0), "r"(c1)
                 : "memory");
}
DEV_INLINE void tile_load(uint32_t to, const CUtensorMap *m, uint32_t barrier, int c0, int c1,
                          int c2, int c3, int c4)
{
    asm volatile("cp.async.bulk.tensor.5d.shared::cluster.global.mbarrier::complete_tx::bytes "
                 "[%0], [%1, {%3, %4, %5, %6, %7}], [%2];" ::"r"(to),
                 "l"(m), "r"(barrier), "r"(c0), "r"(c1), "r"(c2), "r"(c3), "r"(c4)
                 : "memory");
}

/* Bytes in tiles of `box`, in rows of 128 swizzled by 128; sizes and strides the innermost first,
 * which has none. What lies outside is read as 0. false: there can be no such map. */
template <int N>
static bool byte_map(CUtensorMap *m, const void *p, const cuuint64_t (&size)[N],
                     const cuuint64_t (&stride)[N - 1], const cuuint32_t (&box)[N])
{
    cuuint32_t step[N];

    for (int i = 0; i < N; i++)
        step[i] = 1;
    return cuTensorMapEncodeTiled(m, CU_TENSOR_MAP_DATA_TYPE_UINT8, N, (void *)(uintptr_t)p, size,
                                  stride, box, step, CU_TENSOR_MAP_INTERLEAVE_NONE,
                                  CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_128B,
                                  CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) == CUDA_SUCCESS;
}

#endif
