/* kernels_unpack.h - the launcher of unpack.cu. */
#ifndef SH_RUNTIME_DEVICE_CUDA_KERNELS_UNPACK_H
#define SH_RUNTIME_DEVICE_CUDA_KERNELS_UNPACK_H

#include "runtime/pack/pack_block.h"

#include <cuda_runtime_api.h>

#define K_MAX_UNPACKS 96u

struct k_unpack_layer {
    const unsigned char *packed;  /* aligned to PACK_ALIGN */
    unsigned char *to;            /* aligned to PACK_UNIT */
    uint64_t packed_bytes, bytes; /* packed_bytes: a multiple of PACK_ALIGN */
};
struct k_unpacks { /* as one launch takes them */
    struct k_unpack_layer layers[K_MAX_UNPACKS];
    uint32_t n;
};

#ifdef __cplusplus
extern "C" {
#endif
/* None of the places to write to may overlap another one, or what is packed. *damaged: set if
 * something is not as it was packed; BORROWED, host memory that the device can write. */
void k_unpack(cudaStream_t s, const struct k_unpacks *all, uint32_t *damaged);
#ifdef __cplusplus
}
#endif

#endif
