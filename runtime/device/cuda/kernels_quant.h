/* kernels_quant.h - the part of kernels.h for integers of 8 bits. */
#ifndef SH_RUNTIME_DEVICE_CUDA_KERNELS_QUANT_H
#define SH_RUNTIME_DEVICE_CUDA_KERNELS_QUANT_H

#include "runtime/device/cuda/kernels.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ------------------------------------------------------------------ product.cu, elem.cu */

struct k_quant {
    float scale;
    int zero;
};

/* op_quant.h. All channels-last; a product of matrices is a convolution of one pixel a row. */
struct k_product {
    struct k_conv conv;
    bool x_is_signed, mid_is_signed;
    int x_zero;
    const void *x, *w;
    const float *factor, *offset;        /* offset may be NULL; factor where y is I32 */
    const int32_t *sums;                 /* may be NULL */
    struct k_operand residual, y;        /* residual: p NULL: none */
    struct k_quant residual_q, mid, y_q; /* mid.scale 0: none */
    int act;
    float p0, p1;
    bool is_rough; /* GELU may be good to 11 bits */
};
enum { /* channels of a block's results, and how many slices of the sum it reads ahead */
       K_PRODUCT_ANY,    /* one thread for each result */
       K_PRODUCT_SQUARE, /* two blocks on a multiprocessor */
       K_PRODUCT_NARROW,
       K_PRODUCT_WIDE,
       K_PRODUCT_DEEP,
       K_PRODUCT_N
};
bool k_product_has_tiles(void); /* of the current device: else ANY alone */
/* The width that tiles take for c channels, or terms of a product of matrices; without groups. */
int k_product_width(int c);
/* dst [rows][padded] = src [rows][c] of bytes, with zeros behind. */
void k_product_pad(cudaStream_t s, const void *src, int64_t rows, int c, void *dst, int padded);
/* An image: a stride of 2 over up to four channels is one of 1 over 16, two by two pixels of x. */
bool k_product_fold(const struct k_conv *v, struct k_conv *out); /* false: it is no such */
void k_product_fold_x(cudaStream_t s, const struct k_conv *v, const void *x, int zero, void *dst);
void k_product_fold_w(cudaStream_t s, const struct k_conv *v, const void *w, void *dst);
void k_product(cudaStream_t s, int how, const struct k_product *k);

struct k_quantize { /* operands 0..2 of the nest: y, x, add (p NULL: none) */
    struct k_operand y, x, add;
    struct k_quant y_q, x_q, add_q;
    int act;
    float p0, p1;
};
void k_quantize(cudaStream_t s, const struct k_nest *n, const struct k_quantize *q);

#ifdef __cplusplus
}
#endif

#endif
