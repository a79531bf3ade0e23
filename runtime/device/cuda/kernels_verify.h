/* kernels_verify.h - launchers of verify.cu. */
#ifndef SH_RUNTIME_DEVICE_CUDA_KERNELS_VERIFY_H
#define SH_RUNTIME_DEVICE_CUDA_KERNELS_VERIFY_H

#include <cuda_runtime_api.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* dst[n]: numbers in (0, scale] that look like none in particular; no floats: leaves it. */
void k_pattern(cudaStream_t s, int type, int64_t n, uint32_t seed, float scale, void *dst);
/* *sum += a number of 64 bits that hangs on each of the bytes, its place, and seed. */
void k_digest(cudaStream_t s, const void *x, size_t bytes, uint32_t seed, uint64_t *sum);

#ifdef __cplusplus
}
#endif

#endif
