/* launch.cuh - kernels that are on the device before the one in front of them has ended.
 *
 * Between two kernels of a stream or a graph pass one to two microseconds, as much as a small one
 * takes. What launch_early() launches may use them: its blocks begin as soon as there is room
 * behind the last block in front. So every thread of such a kernel first computes what it can
 * without memory, and then calls await_front(): behind it all that was launched before is over, and
 * what it wrote is seen. Before it nothing may be read or written that another kernel writes or
 * reads, nor may a thread return; pointers are not __restrict__, which would let the compiler load
 * before it. Then let_next_begin() says the same to the kernel behind, which without it begins at
 * the end.
 *
 * A kernel that is launched otherwise may call both; they do nothing then, or only for the next.
 * Only with SHUNT_CUDA_OVERLAP=1 in the environment, until it is measured: otherwise launch_early()
 * is a launch as any other.
 */
#ifndef SH_RUNTIME_DEVICE_CUDA_LAUNCH_CUH
#define SH_RUNTIME_DEVICE_CUDA_LAUNCH_CUH

#include "runtime/device/cuda/device.cuh"

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 900
#error "CUDA_ARCHS: 90 is the lowest; older devices have no griddepcontrol"
#endif

DEV_INLINE void await_front()
{
    asm volatile("griddepcontrol.wait;" ::: "memory");
}
DEV_INLINE void let_next_begin()
{
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
}

template <class... P, class... A>
static void launch_early(void (*kernel)(P...), dim3 grid, int threads, size_t shared,
                         cudaStream_t s, const A &...args)
{
    cudaLaunchAttribute attr = {};
    cudaLaunchConfig_t conf = {};

    attr.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attr.val.programmaticStreamSerializationAllowed = 1;
    conf.gridDim = grid;
    conf.blockDim = dim3((unsigned)threads);
    conf.dynamicSmemBytes = shared;
    conf.stream = s;
    conf.attrs = &attr;
    conf.numAttrs = cuda__may_overlap();
    cudaLaunchKernelEx(&conf, kernel, P(args)...);
}

#endif
