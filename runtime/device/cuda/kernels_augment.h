/* kernels_augment.h - the part of kernels.h for random augmentation (augment.cu). */
#ifndef SH_RUNTIME_DEVICE_CUDA_KERNELS_AUGMENT_H
#define SH_RUNTIME_DEVICE_CUDA_KERNELS_AUGMENT_H

#include "runtime/device/op_elem.h"

#include <cuda_runtime_api.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct k_pictures { /* of n samples [outer][height][width][inner], elements of 1 or 4 bytes */
    int64_t n, outer, height, width, inner, step;
    size_t element;
};
void k_jitter(cudaStream_t s, const struct k_pictures *p, const struct dev_jitter *j, const void *x,
              void *y);
void k_tokens(cudaStream_t s, const struct dev_tokens *k, int64_t n, int64_t step,
              const int64_t *ids, int64_t *seen, int64_t *labels);

#ifdef __cplusplus
}
#endif

#endif
