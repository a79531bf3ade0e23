/* kernels.h - the launchers of our kernels: C linkage, plain types, so that host C can call them.
 *
 * A launcher enqueues on `s` and returns; the caller asks cuda__launched() for the error. Pointers
 * are device pointers aligned to 16 bytes unless said otherwise; `type` is an enum cuda_type.
 * Families add their section here; what a kernel computes and how stands in its .cu file.
 */
#ifndef SH_RUNTIME_DEVICE_CUDA_KERNELS_H
#define SH_RUNTIME_DEVICE_CUDA_KERNELS_H

#include "runtime/device/cuda/conv_variants.h"
#include "runtime/device/cuda/kernels_elem.h"
#include "runtime/device/cuda/kernels_optim.h"

#include <cuda_runtime_api.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* How a tensor's elements are stored. */
enum cuda_type {
    CUDA_T_F32,
    CUDA_T_F16,
    CUDA_T_BF16,
    CUDA_T_F64,
    CUDA_T_I64,
    CUDA_T_I32,
    CUDA_T_U8, /* BOOL too */
    CUDA_T_I8,
    CUDA_T_I16,
    CUDA_T_U16,
    CUDA_T_U32,
    CUDA_T_U64,
    CUDA_N_TYPES
};

/* What a kernel saw that the host must say: an index outside its table, a label that is no class.
 * On a host page that the device sees, see cuda_grid.c. */
struct k_fault { /* written as two words of 64 bits */
    int64_t value;
    uint32_t at; /* position in the indices */
    uint32_t op; /* 1 + its number; 0: nothing happened */
};

#define K_ARRIVALS 4096 /* counters of blocks, for kernels whose blocks meet: grid.cuh */

/* ------------------------------------------------------------------ bn.cu, bn_planes.cu */

struct k_bn {
    int type;            /* of x and everything of its shape: F32, F16 or BF16 */
    bool is_last;        /* channels last: [n len][c]; otherwise [n][c][len] */
    int64_t n, c, len;   /* c at most K_BN_MAX_CHANNELS */
    int n_sms, smem_max; /* of the device: multiprocessors, shared memory of a block */
    uint32_t *arrivals;  /* K_ARRIVALS, 0 before and after */
};
#define K_BN_MAX_CHANNELS (K_ARRIVALS * 32)
size_t k_bn_scratch_bytes(const struct k_bn *g); /* for training */
bool k_bn_has_room(const struct k_bn *g);        /* false: too little shared memory to train it */

/* Vectors are F32 [c]. y = clip(bn(x) + residual, lo, hi). */
struct k_bn_train_args {
    const void *x, *residual; /* residual may be NULL */
    const float *scale, *bias, *run_mean, *run_var;
    void *y;
    float *mean, *invstd, *new_mean, *new_var;
    void *scratch;
    float eps, momentum, lo, hi;
    int gate; /* DEV_ACT_SILU or DEV_ACT_HARDSWISH instead of lo and hi; 0: neither */
};
void k_bn_train(cudaStream_t s, const struct k_bn *g, const struct k_bn_train_args *a);

/* d = d_y + d_y2, 0 where y is not inside (lo, hi), or times the gate's slope; d_residual = d, the
 * rest is the gradient of the normalisation for d. y NULL: computed again from bias. d_y2,
 * d_residual may be NULL. */
struct k_bn_bwd_args {
    const void *x, *d_y, *d_y2, *y;
    const float *scale, *mean, *invstd, *bias;
    void *d_x, *d_residual;
    float *d_scale, *d_bias;
    void *scratch;
    float lo, hi;
    int gate;
    bool has_act;
};
void k_bn_train_bwd(cudaStream_t s, const struct k_bn *g, const struct k_bn_bwd_args *a);

struct k_bn_infer_args {
    const void *x;
    const float *scale, *bias, *mean, *var;
    void *y;
    float eps, p0, p1;
    int act; /* enum dev_act */
};
void k_bn_infer(cudaStream_t s, const struct k_bn *g, const struct k_bn_infer_args *a);

/* ------------------------------------------------------------------ norm.cu */

struct k_lines { /* a tensor seen as [outer][n][inner]: lines of n elements in steps of inner */
    int64_t outer, n, inner;
};
/* Floats of any type, mixed. */
void k_softmax(cudaStream_t s, const struct k_lines *l, struct k_operand x, struct k_operand y,
               bool is_log);
void k_softmax_bwd(cudaStream_t s, const struct k_lines *l, struct k_operand y, struct k_operand dy,
                   struct k_operand dx, bool is_log);

struct k_layernorm { /* p NULL: no scale, no bias; mean and invstd may be NULL */
    int64_t rows, n;
    float eps;
    struct k_operand x, scale, bias, y, bytes; /* bytes: y in 8 bits; p NULL: not wanted */
    float step, zero;                          /* of these */
    float *mean, *invstd;
};
void k_layernorm(cudaStream_t s, const struct k_layernorm *a);

struct k_layernorm_bwd {
    int64_t rows, n;
    struct k_operand x, dy, scale, dx;
    const float *mean, *invstd;
    float *parts;            /* scratch: n_parts * 2 * n; NULL when neither of the next is wanted */
    int n_parts;             /* k_layernorm_parts() */
    float *d_scale, *d_bias; /* may be NULL */
};
int k_layernorm_parts(int64_t rows, int64_t n, int n_sms);
void k_layernorm_bwd(cudaStream_t s, const struct k_layernorm_bwd *a);

/* ------------------------------------------------------------------ conv_direct.cu */

/* A convolution: x [n][h][w][c], weights [m][r][s][c/groups], y [n][p][q][m]; pad: at the begin.
 * All operands are of one float type. */
struct k_conv {
    int64_t n, h, w, c, m, r, s, p, q, groups;
    int64_t stride[2], dilation[2], pad[2];
    int variant; /* of a depthwise one, forward: K_DW_* of conv_variants.h */
    bool tf32;   /* F32 may be rounded to TF32 */
};
/* There is a choice of variants: all of 1 to K_DW_N - 1. */
bool k_conv_has_variants(const struct k_conv *v, int type);
/* There is a fast kernel for it; else one thread computes each result. */
bool k_conv_has_kernel(const struct k_conv *v, int type);
/* And it is to be taken without measuring. */
bool k_conv_is_best(const struct k_conv *v, int type);
/* y = act(x * w + bias + z); bias [m] and z (like y) may be NULL. */
void k_conv_fwd(cudaStream_t s, const struct k_conv *v, int type, const void *x, const void *w,
                const void *bias, const void *z, int act, float p0, float p1, void *y);
void k_conv_bwd_data(cudaStream_t s, const struct k_conv *v, int type, const void *dy,
                     const void *w, void *dx);
size_t k_conv_bwd_weight_scratch(const struct k_conv *v, int type); /* bytes */
void k_conv_bwd_weight(cudaStream_t s, const struct k_conv *v, int type, const void *x,
                       const void *dy, void *scratch, void *dw);
/* out[cols] = sums over the rows of x [rows][cols], in a fixed order. */
size_t k_column_sums_scratch(int64_t cols); /* bytes */
void k_column_sums(cudaStream_t s, int type, const void *x, int64_t rows, int64_t cols,
                   void *scratch, float *out);
/* dst [n][hw][padded] = src with zeros behind its c channels; src [n][c][hw] if is_plain, else
 * [n][hw][c]. */
void k_conv_pad(cudaStream_t s, int src_type, const void *src, bool is_plain, int64_t n, int64_t hw,
                int c, int type, void *dst, int padded);
void k_conv_noise(cudaStream_t s, int type, int64_t n, uint32_t seed, void *dst); /* in [-1, 1] */

/* ------------------------------------------------------------------ attn.cu */

#define K_ATTN_SHARED ((size_t)128 << 10) /* the most shared memory that a block takes */
struct k_attn {     /* what struct dev_attn says; q, k, v where their views begin;
                       y: [batch, q_rows, heads, width] */
    int type;       /* of q, k, v and y: F32, F16 or BF16 */
    bool may_round; /* F32 may go through TF32 */
    bool zero_hidden;
    float scale;
    int64_t batch, heads, width, q_rows, k_rows;
    int64_t batch_stride[3], row_stride[3], mask_batches, mask_stride[4];
    const void *q, *k, *v;
    void *y;
    struct k_operand mask; /* any float; p NULL: none */
};
/* false: a row of scores does not fit on the chip, or there are too many rows. */
bool k_attention_fits(const struct k_attn *a);
void k_attention(cudaStream_t s, const struct k_attn *a);

/* ------------------------------------------------------------------ attn_train.cu */

struct k_attn_train { /* lse and delta: [batch, heads, q_rows] */
    struct k_attn a;  /* y is written forward, read backward */
    uint64_t seed;
    int64_t step;
    uint32_t threshold;    /* of 16 random bits: below it a weight is dropped; 0: none is */
    float kept;            /* what the others are multiplied by */
    float *lse;            /* written forward, read backward */
    const void *d_y;       /* NULL: forward; the rest is for the backward pass */
    void *d_q, *d_k, *d_v; /* as q, k, v lie */
    void *d_mask;          /* [batch, heads, q_rows, k_rows] of that type; NULL: not wanted */
    float *delta;          /* scratch */
};
bool k_attention_train_fits(const struct k_attn *a); /* width, number of blocks */
void k_attention_train(cudaStream_t s, const struct k_attn_train *t);

/* ------------------------------------------------------------------ gather.cu */

struct k_gather {
    int64_t outer, n, inner; /* the table as [outer][n][inner] */
    int64_t n_index;
    const void *indices; /* row-major; -n .. n - 1 */
    bool is_wide;        /* I64, else I32 */
    struct k_fault *fault;
    uint32_t op; /* its number, for a fault */
};
/* Any types if they are the same, else two of float. table_size: bytes of an element. */
void k_gather(cudaStream_t s, const struct k_gather *g, int table_type, size_t table_size,
              const void *table, int y_type, void *y);
/* At most 2^31 - 1 rows (outer * n_index) and 65535 * 32 elements in each; float types. */
void k_gather_bwd(cudaStream_t s, const struct k_gather *g, int y_type, const void *d_y,
                  int table_type, size_t table_size, void *d_table);

/* ------------------------------------------------------------------ resample.cu */

/* x [outer][n0][n1][inner] -> y [outer][m0][m1][inner]; tables [m][taps], taps[1] 0: the second
 * axis stays. Floats of any type. */
struct k_resample {
    int64_t outer, n[2], m[2], inner;
    int taps[2];
    const int32_t *from[2];
    const float *weight[2];
};
void k_resample(cudaStream_t s, const struct k_resample *r, struct k_operand x, struct k_operand y);

/* ------------------------------------------------------------------ loss.cu */

struct k_loss { /* everything row-major, float types */
    int x_type, d_type;
    const void *x;
    void *d;
    float *loss;
    void *scratch;
    uint32_t *arrivals;
    struct k_fault *fault;
    uint32_t op;
    float weight;        /* of the loss and its gradient */
    const float *scaler; /* NULL, or of the gradient too */
};
struct k_xent { /* logits [rows / inner][n][inner] */
    const int64_t *label;
    const float *weights; /* NULL: 1 each */
    int64_t ignore, n, inner, rows;
    float smoothing;
};
struct k_each {
    int kind, t_type; /* enum dev_loss; of the target */
    const void *target;
    const float *weights; /* NULL: 1 */
    int64_t n_weights, n;
    float delta;
};
size_t k_loss_xent_scratch(int64_t rows);
size_t k_loss_each_scratch(int64_t n);
void k_loss_xent(cudaStream_t s, const struct k_loss *a, const struct k_xent *k);
void k_loss_each(cudaStream_t s, const struct k_loss *a, const struct k_each *k);

struct k_dropout { /* see philox.h */
    int64_t n, step;
    uint64_t seed;
    uint32_t op, threshold;
    float scale;
};
/* mask: one byte per element. It and the residual may be NULL. */
void k_dropout(cudaStream_t s, const struct k_dropout *d, int type, const void *x,
               const void *residual, void *y, uint8_t *mask);
void k_dropout_bwd(cudaStream_t s, int64_t n, float scale, int type, const void *d_y,
                   const uint8_t *mask, void *d_x);

/* ------------------------------------------------------------------ fetch.cu */

/* src: page-locked host memory, as the device sees it; bytes: a multiple of 16. */
void k_fetch(cudaStream_t s, void *dst, const void *src, size_t bytes);

/* ------------------------------------------------------------------ fault.cu, for tests */

void k_illegal(cudaStream_t s);                       /* ends the context */
void k_endless(cudaStream_t s, const uint32_t *zero); /* while *zero is 0 */

#ifdef __cplusplus
}
#endif

#endif
