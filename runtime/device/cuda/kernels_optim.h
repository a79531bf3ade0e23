/* kernels_optim.h - the part of kernels.h for what is done with gradients once they are there. */
#ifndef SH_RUNTIME_DEVICE_CUDA_KERNELS_OPTIM_H
#define SH_RUNTIME_DEVICE_CUDA_KERNELS_OPTIM_H

#include <cuda_runtime_api.h>
#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ------------------------------------------------------------------ optim.cu */

#define K_OPTIM_MAX 576    /* tensors of a launch: its parameters may take 32,764 bytes */
#define K_OPTIM_PIECE 8192 /* elements of a block, or a little less */

enum k_optim_kind { K_OPTIM_SGD, K_OPTIM_ADAM, K_OPTIM_COPY, K_OPTIM_ADD, K_OPTIM_EMA };

struct k_optim_item {
    float *p;      /* COPY: where to; ADD: the sum; EMA: the mean, and g is the parameter */
    const void *g; /* [m][taps][c] when taps > 1, while p, m, v are [m][c][taps] */
    float *m, *v;  /* SGD: m is the momentum or NULL */
    int64_t n;
    uint32_t first; /* number of its first piece */
    int g_type, c, taps;
};

struct k_optim { /* formulas: cpu_optim.c */
    enum k_optim_kind kind;
    int n_items;
    float lr, momentum, decay, shrink, beta1, beta2, eps;
    float step_size, root_bias2; /* ADAM: lr / (1 - beta1^t), sqrt(1 - beta2^t); no scaler */
    float update;                /* ADAM with a scaler: t, with those that were skipped */
    float mean, limit;           /* g mean, cut to [-limit, limit]; without squares */
    float clip_norm;             /* of g mean, with squares; 0: not clipped */
    const float *squares;        /* NULL: none */
    const float *scaler;         /* NULL: none; op.h */
    bool nesterov, has_momentum, is_decoupled;
    bool is_first; /* ADD, EMA: p = g */
    struct k_optim_item items[K_OPTIM_MAX];
};
int64_t k_optim_pieces(const struct k_optim_item *t);
void k_optim_update(cudaStream_t s, const struct k_optim *o, uint32_t pieces);

/* ------------------------------------------------------------------ squares.cu */

#define K_SQUARES_MAX 31      /* tensors of a launch */
#define K_SQUARES_PIECE 16384 /* elements of a block */

struct k_squares_item {
    const void *x;
    int64_t n;
    uint32_t first; /* number of its first piece */
    int type;
};

struct k_squares {
    int n_items;
    double *scratch; /* of each piece */
    uint32_t *arrivals;
    const float *before; /* NULL: 0 */
    float *sum;
    struct k_squares_item items[K_SQUARES_MAX];
};
void k_squares(cudaStream_t s, const struct k_squares *a, uint32_t pieces);
/* LOSS_SCALE of op.h. */
void k_loss_scale(cudaStream_t s, float *scaler, const float *squares, float growth, float backoff,
                  float interval);

#ifdef __cplusplus
}
#endif

#endif
