/* fault.cu - kernels that misbehave, for tests (cuda_fault.c). */
#include "runtime/device/cuda/kernels.h"

static __global__ void write_to(volatile int *p)
{
    *p = 1;
}

void k_illegal(cudaStream_t s)
{
    write_to<<<1, 1, 0, s>>>(reinterpret_cast<volatile int *>(16)); /* no memory is there */
}

static __global__ void wait_for_ever(const volatile uint32_t *zero)
{
    while (*zero == 0)
        __nanosleep(1000);
}

void k_endless(cudaStream_t s, const uint32_t *zero)
{
    wait_for_ever<<<1, 1, 0, s>>>(zero);
}
