/* kernels_elem.h - the part of kernels.h for element-wise operations, moves, reductions, pools. */
#ifndef SH_RUNTIME_DEVICE_CUDA_KERNELS_ELEM_H
#define SH_RUNTIME_DEVICE_CUDA_KERNELS_ELEM_H

#include <cuda_runtime_api.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define K_MAX_RANK 8

/* ------------------------------------------------------------------ cuda_nest.c */

#define K_OPERANDS 4
struct k_nest { /* a loop over dims, the last axis innermost; unused operands have strides 0 */
    int rank;   /* at least 1 */
    int64_t total, dims[K_MAX_RANK];
    int64_t stride[K_OPERANDS][K_MAX_RANK]; /* in elements; 0 = broadcast */
};
/* Drops axes of one, sorts by falling stride of operand `by`, merges neighbours that all operands
 * can. Host only. */
void k_nest_pack(struct k_nest *n, int by);

struct k_operand { /* no padding: launches are compared byte by byte (cuda_record.c) */
    void *p;
    int type;
    int overflows; /* a result in F16: what is too large becomes Inf, not the largest number */
};

/* ------------------------------------------------------------------ convert.cu */

struct k_nd { /* a strided view: element strides by logical axis; 0 = broadcast */
    int rank;
    int64_t dims[K_MAX_RANK];
    int64_t stride[2][K_MAX_RANK]; /* source, destination */
};
/* dst = src with another type or layout; any number of elements. */
void k_convert(cudaStream_t s, const struct k_nd *nd, struct k_operand src, struct k_operand dst);

/* dst[j] = src[i] by value, where operand 1 of `to` at j and the position in `from` are the same
 * number: reshapes of what is not plain, casts between any types. is_bool: dst is v != 0. */
void k_cast(cudaStream_t s, const struct k_nest *to, const struct k_nest *from,
            struct k_operand src, struct k_operand dst, bool is_bool);

/* Many conversions in one launch per K_CONVERT_BATCH entries: the parameters of a training step. */
#define K_CONVERT_BATCH 48
struct k_convert_item {
    const float *src; /* plain: [outer][c][inner] */
    void *dst;        /* [outer][inner][c] in dst_type; c = 1: the same order */
    int64_t outer, c, inner;
};
void k_convert_many(cudaStream_t s, const struct k_convert_item *items, int n, int dst_type);

/* Keeps the stream busy for about `ns`: what is enqueued behind it then runs without gaps. */
void k_delay(cudaStream_t s, uint64_t ns);

/* ------------------------------------------------------------------ elem.cu */

/* Operand 0 of the nest is the result, 1.. the inputs in their order here; packed by operand 0.
 * Floats of any type, mixed; act: enum dev_act, kind: enum dev_bin, whose comparisons give U8. */
void k_act(cudaStream_t s, const struct k_nest *n, struct k_operand y, struct k_operand x, int act,
           float p0, float p1);
void k_act_bwd(cudaStream_t s, const struct k_nest *n, struct k_operand dx, struct k_operand x,
               struct k_operand y, struct k_operand dy, int act, float p0, float p1);
void k_binary(cudaStream_t s, const struct k_nest *n, struct k_operand y, struct k_operand a,
              struct k_operand b, int kind, int act, float p0, float p1);
/* type: an integer, of both inputs, and of y unless the kind compares. */
void k_binary_int(cudaStream_t s, const struct k_nest *n, int type, void *y, const void *a,
                  const void *b, int kind);
/* cond: one byte each; floats may mix, other types are all the same. */
void k_where(cudaStream_t s, const struct k_nest *n, struct k_operand y, const void *cond,
             struct k_operand a, struct k_operand b);
/* n elements, dense; a value of its type, truncated for integers; dst aligned to 16 bytes. */
void k_fill(cudaStream_t s, void *dst, int type, bool is_bool, int64_t n, float value);
/* y = act(y + bias[column] + residual) in place; y, residual: [rows][cols] of y_type; bias: [cols]
 * of bias_type (any float). bias and residual may be NULL. act: enum dev_act. */
void k_epilogue(cudaStream_t s, int64_t rows, int64_t cols, int y_type, void *y, int bias_type,
                const void *bias, const void *residual, int act, float p0, float p1);

/* ------------------------------------------------------------------ shape.cu */

#define K_MAX_JOINS 32
struct k_concat { /* dst [outer][row] from src[k] [outer][len[k]], at[k] bytes into each row */
    int n;
    int64_t outer, row; /* bytes, as all below */
    const void *src[K_MAX_JOINS];
    int64_t at[K_MAX_JOINS], len[K_MAX_JOINS];
    void *dst;
};
void k_concat(cudaStream_t s, const struct k_concat *c);

/* ------------------------------------------------------------------ reduce.cu */

struct k_reduce {
    struct k_nest keep; /* operand 0: y, 1: x; packed by 1 */
    struct k_nest drop; /* operand 0: x; packed by 0 */
    int kind;           /* enum dev_red */
};
/* false: more than 2^31 results or summands. */
bool k_reduce_fits(const struct k_reduce *r);
size_t k_reduce_scratch(const struct k_reduce *r); /* bytes; 0: scratch may be NULL */
/* Floats of any type; I64 or I32, the same on both sides. */
void k_reduce(cudaStream_t s, const struct k_reduce *r, struct k_operand x, struct k_operand y,
              void *scratch);

/* ------------------------------------------------------------------ scan.cu */

struct k_scan { /* row-major [outer, n, inner]: a line is n elements, inner apart */
    int64_t outer, n, inner;
};
/* Floats, x and y of any type; I64 or I32, the same on both sides. */
void k_cumsum(cudaStream_t s, const struct k_scan *l, struct k_operand x, struct k_operand y,
              bool exclusive, bool reverse);
/* y, at: [outer, k, inner]; types as for k_cumsum. */
void k_topk(cudaStream_t s, const struct k_scan *l, int64_t k, struct k_operand x,
            struct k_operand y, int64_t *at, bool largest, bool last);

/* ------------------------------------------------------------------ rnn.cu */

struct k_lstm { /* floats of any type, row-major; gates i, o, f, g of a sample side by side */
    int64_t n, width;
    struct k_operand sums, cell;       /* [n / width, 4 width], [n / width, width] */
    struct k_operand d_hidden, d_cell; /* NULL: forward; none */
    struct k_operand out[2];           /* hidden, cell'; backward d_sums, d_cell */
};
void k_lstm_cell(cudaStream_t s, const struct k_lstm *k);

/* ------------------------------------------------------------------ scatter.cu */

struct k_locate {
    int64_t n; /* rows */
    int rank, depth;
    int64_t dims[K_MAX_RANK], base[K_MAX_RANK];   /* of rows, row-major */
    int64_t size[K_MAX_RANK], stride[K_MAX_RANK]; /* of each number of an index */
    bool is_wide;                                 /* I64, else I32 */
    uint32_t op;
    struct k_fault *fault; /* of the host; where a bad index is told */
};
void k_locate(cudaStream_t s, const struct k_locate *l, const void *indices, int64_t *rows);

struct k_scatter {
    int64_t rows, inner, n; /* of the data; updates */
    int kind;               /* enum dev_scatter */
};
/* y = data, then the updates in order; floats of any type, or the same type everywhere. */
void k_scatter(cudaStream_t s, const struct k_scatter *c, struct k_operand data,
               const int64_t *rows, struct k_operand updates, struct k_operand y, void *scratch);
size_t k_scatter_scratch(const struct k_scatter *c); /* bytes; 0: scratch may be NULL */

/* ------------------------------------------------------------------ pool.cu */

struct k_pool { /* x [in], y [out], indices [out]: n c h w; strides in elements */
    int64_t in[4], out[4];
    int64_t x[K_MAX_RANK], y[K_MAX_RANK], idx[K_MAX_RANK];
    int64_t kernel[2], stride[2], dilation[2], pad_begin[2], pad_end[2];
    bool is_max, include_pad, has_indices;
};
/* indices may be NULL. Each side has fewer than 2^31 elements. */
void k_pool_forward(cudaStream_t s, const struct k_pool *p, struct k_operand x, struct k_operand y,
                    int32_t *indices);
void k_pool_backward(cudaStream_t s, const struct k_pool *p, struct k_operand dy,
                     const int32_t *indices, struct k_operand dx);

#ifdef __cplusplus
}
#endif

#endif
