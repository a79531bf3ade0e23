/* kernels_pick.h - launchers of pick.cu: what the data choose (op_pick.h). */
#ifndef SH_RUNTIME_DEVICE_CUDA_KERNELS_PICK_H
#define SH_RUNTIME_DEVICE_CUDA_KERNELS_PICK_H

#include "runtime/device/cuda/kernels.h"
#include "runtime/device/op_pick.h"

#ifdef __cplusplus
extern "C" {
#endif

/* x: floats of any type, or integers. */
void k_nonzero(cudaStream_t s, int64_t n, struct k_operand x, int64_t *places, int64_t *count,
               void *scratch);
size_t k_nonzero_scratch(int64_t n);

void k_mask(cudaStream_t s, int64_t n, const int64_t *count, uint8_t *y);

struct k_nms {
    struct dev_nms how;
    int64_t batch, classes, n;
};
/* Floats of any type. */
void k_nms(cudaStream_t s, const struct k_nms *k, struct k_operand boxes, struct k_operand scores,
           int64_t *picked, int64_t *count, void *scratch);
size_t k_nms_scratch(const struct k_nms *k);

#ifdef __cplusplus
}
#endif

#endif
