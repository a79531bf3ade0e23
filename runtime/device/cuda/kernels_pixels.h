/* kernels_pixels.h - the part of kernels.h for pictures of bytes (pixels.cu). */
#ifndef SH_RUNTIME_DEVICE_CUDA_KERNELS_PIXELS_H
#define SH_RUNTIME_DEVICE_CUDA_KERNELS_PIXELS_H

#include <cuda_runtime_api.h>
#include <stdint.h>

#define K_PIXELS 256 /* numbers of the table for each channel */

#ifdef __cplusplus
extern "C" {
#endif

/* n pictures of `plane` pixels, [plane][channels] where last is set, else [channels][plane]; no
 * padding between the members, as it is a parameter of a kernel. */
struct k_pixels {
    int64_t n, plane;
    int32_t channels, x_last, y_last, unused;
};
/* table: F32, K_PIXELS numbers for each channel. y: floats of any type. x, y: aligned to their
 * elements. */
void k_pixels(cudaStream_t s, const struct k_pixels *p, const void *x, const void *table, int type,
              void *y);

#ifdef __cplusplus
}
#endif

#endif
