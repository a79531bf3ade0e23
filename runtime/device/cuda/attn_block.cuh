// attn_block.cuh - attention by blocks of rows: which head and rows a block has, how operands come
// into shared memory, how results leave it, the mask.
//
// A block has 64 rows of one head, a warp 16 of them: queries, or, for the gradients of keys and
// values, keys. A warp holds 16 rows by N columns of F32 as float x[N / 8][4], of which x[j][e] of
// a lane is row lane / 4 + 8 (e / 2), column 8 j + 2 (lane % 4) + e % 2.
#ifndef SH_RUNTIME_DEVICE_CUDA_ATTN_BLOCK_CUH
#define SH_RUNTIME_DEVICE_CUDA_ATTN_BLOCK_CUH

#include "runtime/device/cuda/device.cuh"

#define ROWS 64 // of a block
#define THREADS 128
#define LOG2E 1.4426950408889634f
#define LN2 0.6931471805599453f

struct place { // of a block: which head of which sample, its first row
    int64_t b, h, row;
    int64_t mask_b; // the sample of the mask
};

// A block has `rows` of the `all` rows of a head.
DEV_INLINE place place_of(const struct k_attn &a, int64_t all, int rows)
{
    const uint32_t tiles = ((uint32_t)all + rows - 1) / rows, heads = (uint32_t)a.heads;
    const uint32_t head = blockIdx.x / tiles;

    return {head / heads, head % heads, blockIdx.x % tiles * rows,
            head / heads % (uint32_t)a.mask_batches};
}

// Where head p.h of row 0 of sample p.b begins in operand i: 0 q, 1 k, 2 v.
template <class T> DEV_INLINE const T *head_of(const struct k_attn &a, const place &p, int i)
{
    const void *base = i == 0 ? a.q : i == 1 ? a.k : a.v;

    return (const T *)base + p.b * a.batch_stride[i] + p.h * a.width;
}
// The same in a tensor that lies as operand i does: its gradient.
template <class T>
DEV_INLINE T *gradient_of(const struct k_attn &a, const place &p, void *base, int i)
{
    return (T *)base + p.b * a.batch_stride[i] + p.h * a.width;
}
// The same in a tensor [batch, rows, heads, width], whose rows are heads * width apart.
template <class T>
DEV_INLINE T *plain_head_of(const struct k_attn &a, const place &p, T *base, int64_t rows)
{
    return base + (p.b * rows * a.heads + p.h) * a.width;
}

DEV_INLINE float mask_at(const struct k_attn &a, const place &p, int64_t row, int64_t key)
{
    const int64_t at = p.mask_b * a.mask_stride[0] + p.h * a.mask_stride[1] +
                       row * a.mask_stride[2] + key * a.mask_stride[3];

    return a.mask.type == CUDA_T_F32   ? ((const float *)a.mask.p)[at]
           : a.mask.type == CUDA_T_F16 ? to_f(((const f16 *)a.mask.p)[at])
                                       : to_f(((const bf16 *)a.mask.p)[at]);
}

// The same in units of ln 2: scores are in them, so that exp2() makes weights of scores. The lowest
// numbers, with which exporters mask, must not become -Inf: a row whose keys all have them would be
// NaN, and has equal weights by the formula.
DEV_INLINE float mask_in_ln2(const struct k_attn &a, const place &p, int64_t row, int64_t key)
{
    const float v = mask_at(a, p, row, key);

    return v < -FLT_MAX / LOG2E && v >= -FLT_MAX ? -FLT_MAX : v * LOG2E;
}

DEV_INLINE uint32_t shared_address(const void *p)
{
    return (uint32_t)__cvta_generic_to_shared(p);
}

// 16 bytes, or zeros: then nothing is read.
DEV_INLINE void copy_async(void *to, const void *from, bool is_there)
{
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(to)),
                 "l"(from), "r"(is_there ? 16 : 0)
                 : "memory");
}
DEV_INLINE void copies_commit()
{
    asm volatile("cp.async.commit_group;" ::: "memory");
}
template <int LEFT> DEV_INLINE void copies_wait()
{
    asm volatile("cp.async.wait_group %0;" ::"n"(LEFT) : "memory");
}

// N rows of D elements, of which `there` exist, into a tile; zeros for the others. By NT threads.
template <class TILES, int N, int D, int NT = THREADS, class T>
DEV_INLINE void copy_rows(T *to, const T *src, int64_t row_stride, int64_t there)
{
    constexpr int CHUNKS = D / VEC<T>, STEP = NT / CHUNKS;
    const int left = there < N ? (int)there : N;

    if constexpr (NT % CHUNKS == 0 &&
                  STEP % 8 == 0) { // a thread has the same columns of every so many rows
        const int r = threadIdx.x / CHUNKS, c = threadIdx.x % CHUNKS * VEC<T>;

        to += r * TILES::STRIDE + TILES::column(r, c);
        src += r * row_stride + c;
#pragma unroll
        for (int n = 0; n < N; n += STEP, src += STEP * row_stride)
            if (N % STEP == 0 || r + n < N)
                copy_async(to + n * TILES::STRIDE, src, r + n < left);
    } else {
#pragma unroll
        for (int n = 0; n < N * CHUNKS; n += NT) {
            const int i = n + threadIdx.x, r = i / CHUNKS, c = i % CHUNKS * VEC<T>;

            if (N * CHUNKS % NT == 0 || r < N)
                copy_async(to + r * TILES::STRIDE + TILES::column(r, c), src + r * row_stride + c,
                           r < left);
        }
    }
}

// What is added to the scores of key `key`: the mask if it is the same for all rows, -Inf behind
// the last key.
DEV_INLINE float key_mask(const struct k_attn &a, const place &p, int64_t key)
{
    if (key >= a.k_rows)
        return -INFINITY;
    return a.mask.p && a.mask_stride[2] == 0 ? mask_in_ln2(a, p, 0, key) : 0;
}

// Adds a mask that differs between rows. COLUMNS: keys are the columns, `row` the lane's first
// query and `column` the tile's first key; otherwise the reverse.
template <bool COLUMNS, int N>
DEV_INLINE void add_row_mask(float (&s)[N][4], const struct k_attn &a, const place &p, int64_t row,
                             int64_t column)
{
    if (!a.mask.p || a.mask_stride[2] == 0)
        return;
#pragma unroll
    for (int j = 0; j < N; j++)
#pragma unroll
        for (int e = 0; e < 4; e++) {
            const int64_t r = row + e / 2 * 8, c = column + 8 * j + 2 * (threadIdx.x % 4) + e % 2;
            const int64_t query = COLUMNS ? r : c, key = COLUMNS ? c : r;

            if (query < a.q_rows && key < a.k_rows)
                s[j][e] += mask_in_ln2(a, p, query, key);
        }
}

DEV_INLINE float fast_exp2(float x) // what is less than the smallest normal number is 0
{
    float y;

    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

// The warp's rows times factor[0] (the first eight) and factor[1], to row p.row on of `to`, whose
// rows are `row_stride` apart and end at `end`; through rows of `tile` that only this warp uses, so
// that it stores 16 bytes at a time.
template <int D, int STRIDE, bool IS_GRADIENT = false, class T>
DEV_INLINE void store_rows(const float (&o)[D / 8][4], const float (&factor)[2], T *tile, T *to,
                           int64_t row_stride, const place &p, int64_t end)
{
    constexpr int CHUNKS = D / VEC<T>;
    const int lane = threadIdx.x % WARP, first = threadIdx.x / WARP * 16;

#pragma unroll
    for (int i = 0; i < 2; i++)
#pragma unroll
        for (int n = 0; n < D / 8; n++) {
            const float pair[2] = {o[n][2 * i] * factor[i], o[n][2 * i + 1] * factor[i]};

            T *const at = tile + (first + lane / 4 + 8 * i) * STRIDE + 8 * n + 2 * (lane % 4);

            if (IS_GRADIENT)
                store_grad<2>(at, pair);
            else
                store_f<2>(at, pair);
        }
    __syncwarp();
    for (int i = lane; i < 16 * CHUNKS; i += WARP) {
        const int r = first + i / CHUNKS, col = i % CHUNKS * VEC<T>;

        if (p.row + r < end)
            store_vec<VEC<T>>(to + (p.row + r) * row_stride + col,
                              load_vec<VEC<T>>(tile + r * STRIDE + col));
    }
}

template <int N> DEV_INLINE void clear(float (&x)[N][4])
{
#pragma unroll
    for (int n = 0; n < N; n++)
#pragma unroll
        for (int e = 0; e < 4; e++)
            x[n][e] = 0;
}

// ------------------------------------------------------------------ launching

template <class F, class A>
static void launch(cudaStream_t s, F *kernel, int64_t blocks, size_t smem, const A *a,
                   int threads = THREADS)
{
    if (smem > 48 << 10)
        cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)smem);
    kernel<<<(unsigned)blocks, threads, smem, s>>>(*a);
}

static inline int64_t blocks_of(const struct k_attn *a, int64_t all, int rows)
{
    return a->batch * a->heads * cdiv64(all, rows);
}

#endif
