/* conv_variants.h - our kernels for a depthwise convolution, forward, from which the cuda device
 * chooses; SHUNT_CUDA_DEPTHWISE has the number of one, for tests. Without CUDA's headers. */
#ifndef SH_RUNTIME_DEVICE_CUDA_CONV_VARIANTS_H
#define SH_RUNTIME_DEVICE_CUDA_CONV_VARIANTS_H

enum { /* What a thread of it has: */
       K_DW_BY_SIZE,
       K_DW_RUNS,   /* some results side by side */
       K_DW_ONE,    /* one result */
       K_DW_ROWS_1, /* one row of the taps of one result */
       K_DW_ROWS_2, /* one row of the taps of two */
       K_DW_ROWS_4, /* one row of the taps of four */
       K_DW_N
};

#endif
