// attn.cu - y = softmax(scale q k^T + mask) v for each head, without a matrix of scores in memory.
//
//   fp16, bf16, width a multiple of 16 up to 128    tensor cores, m16n8k16
//   tf32, the same widths                           tensor cores, m16n8k8
//   fp32, and every other width                     plain multiplications, attn_any
//
// On tensor cores a block has 64 query rows of one head, a warp 16 of them. Keys and values pass by
// in tiles, the next being copied while the present one is at work. For each row the largest score
// so far and the sum are kept, and what was summed up before is corrected when a larger score comes
// (online softmax). Scores, sums and results are F32; the weights, between 0 and 1, are rounded to
// the operands' type for the second product.
//
// attn_any gives a block R query rows and keeps their scores in shared memory.
//
// A row whose keys are all masked out by -Inf is NaN, as by the formula.

#include "runtime/device/cuda/attn_forward.cuh"

#define MAX_WIDTH 128

// ------------------------------------------------------------------ tiles of keys and values

template <class TILES, int D>
static __global__ void __launch_bounds__(THREADS)
    attn_tiled(const __grid_constant__ struct k_attn a)
{
    extern __shared__ __align__(16) unsigned char smem[];
    using T = typename TILES::element;
    forward_tiles<TILES> &t = *reinterpret_cast<forward_tiles<TILES> *>(smem);
    const place p = place_of(a, a.q_rows, ROWS);
    float all[2], factor[2];
    rows<D> r;

    attend<TILES, D>(t, r, a, p, [](float(&)[TILES::KEYS / 8][4], int64_t) {});
    r.totals(all, factor, a);
    store_rows<D, TILES::STRIDE>(r.o, factor, t.q, plain_head_of(a, p, (T *)a.y, a.q_rows),
                                 a.heads * D, p, a.q_rows);
}

// ------------------------------------------------------------------ everything else

// R rows of queries: scores[key][r] in shared memory, then their weights, then the sums over the
// keys, of which THREADS / n threads take a share each when there are only n columns.
template <class T, int R, int V>
static DEV_INLINE void any_scores(float *score, float *query, const struct k_attn &a,
                                  const place &p)
{
    const T *q = (const T *)a.q + p.b * a.batch_stride[0] + p.h * a.width;
    const T *k = (const T *)a.k + p.b * a.batch_stride[1] + p.h * a.width;

    for (int64_t i = threadIdx.x; i < R * a.width; i += THREADS) { // query[column][r]
        const int64_t row = p.row + i % R;

        query[i] = row < a.q_rows ? to_f(q[row * a.row_stride[0] + i / R]) : 0;
    }
    __syncthreads();
    for (int64_t j = threadIdx.x; j < a.k_rows; j += THREADS) {
        const T *key = k + j * a.row_stride[1];
        float s[R];

#pragma unroll
        for (int r = 0; r < R; r++)
            s[r] = 0;
        for (int64_t d = 0; d < a.width; d += V) {
            float x[V];

            load_f<V>(key + d, x);
#pragma unroll
            for (int i = 0; i < V; i++)
#pragma unroll
                for (int r = 0; r < R; r++)
                    s[r] += query[(d + i) * R + r] * x[i];
        }
#pragma unroll
        for (int r = 0; r < R; r++) {
            s[r] *= a.scale;
            if (a.mask.p && p.row + r < a.q_rows)
                s[r] += mask_at(a, p, p.row + r, j);
            score[j * R + r] = s[r];
        }
    }
    __syncthreads();
}

// A thread has every (THREADS / R)-th key of one row; `all`: THREADS numbers.
template <int R>
static DEV_INLINE void any_softmax(float *score, float *all, const struct k_attn &a)
{
    const int r = threadIdx.x % R;
    float max = -INFINITY, sum = 0;

    for (int64_t j = threadIdx.x / R; j < a.k_rows; j += THREADS / R)
        max = max_nan(max, score[j * R + r]);
    all[threadIdx.x] = max;
    __syncthreads();
    for (int i = 0; i < THREADS / R; i++)
        max = max_nan(max, all[i * R + r]);
    __syncthreads();
    if (a.zero_hidden && max == -INFINITY)
        max = 0; // all weights are 0 then, not NaN
    for (int64_t j = threadIdx.x / R; j < a.k_rows; j += THREADS / R) {
        const float w = expf(score[j * R + r] - max);

        score[j * R + r] = w;
        sum += w;
    }
    all[threadIdx.x] = sum;
    __syncthreads();
    sum = 0;
    for (int i = 0; i < THREADS / R; i++)
        sum += all[i * R + r];
    sum = a.zero_hidden && sum == 0 ? 0 : 1 / sum;
    for (int64_t j = threadIdx.x / R; j < a.k_rows; j += THREADS / R)
        score[j * R + r] *= sum;
    __syncthreads();
}

template <class T, int R>
static DEV_INLINE void any_values(const float *score, float *all, const struct k_attn &a,
                                  const place &p)
{
    const T *v = (const T *)a.v + p.b * a.batch_stride[2] + p.h * a.width;
    T *y = (T *)a.y + ((p.b * a.q_rows + p.row) * a.heads + p.h) * a.width;
    const int cols = a.width < THREADS ? (int)a.width : THREADS, shares = THREADS / cols;
    const int share = threadIdx.x / cols;

    for (int64_t d0 = 0; d0 < a.width; d0 += cols) {
        const int64_t d = d0 + threadIdx.x % cols;
        float o[R];

#pragma unroll
        for (int r = 0; r < R; r++)
            o[r] = 0;
        if (share < shares && d < a.width)
            for (int64_t j = share; j < a.k_rows; j += shares) {
                const float x = to_f(v[j * a.row_stride[2] + d]);

#pragma unroll
                for (int r = 0; r < R; r++)
                    o[r] += score[j * R + r] * x;
            }
#pragma unroll
        for (int r = 0; r < R; r++) {
            float sum = 0;

            __syncthreads();
            all[threadIdx.x] = o[r];
            __syncthreads();
            if (share > 0 || d >= a.width || p.row + r >= a.q_rows)
                continue;
            for (int i = 0; i < shares; i++)
                sum += all[i * cols + threadIdx.x];
            y[(int64_t)r * a.heads * a.width + d] = from_f<T>(sum);
        }
    }
}

template <class T, int R, int V>
static __global__ void __launch_bounds__(THREADS) attn_any(const __grid_constant__ struct k_attn a)
{
    extern __shared__ __align__(16) float any_smem[]; // query[width][R], score[k_rows][R], all
    float *score = any_smem + R * a.width, *all = score + R * a.k_rows;
    const place p = place_of(a, a.q_rows, R);

    any_scores<T, R, V>(score, any_smem, a, p);
    any_softmax<R>(score, all, a);
    any_values<T, R>(score, all, a, p);
}

// ------------------------------------------------------------------ launching

#define EACH_WIDTH(CASE) CASE(16) CASE(32) CASE(48) CASE(64) CASE(80) CASE(96) CASE(112) CASE(128)

template <template <int> class TILES>
static void launch_tiled(cudaStream_t s, const struct k_attn *a)
{
    switch (a->width) {
#define CASE(D)                                                           \
    case D:                                                               \
        launch(s, attn_tiled<TILES<D>, D>, blocks_of(a, a->q_rows, ROWS), \
               sizeof(forward_tiles<TILES<D>>), a);                       \
        break;
        EACH_WIDTH(CASE)
#undef CASE
    default:
        break;
    }
}

static size_t any_bytes(const struct k_attn *a, int rows)
{
    return (size_t)((a->width + a->k_rows) * rows + THREADS) * sizeof(float);
}

template <class T, int V> static void launch_any(cudaStream_t s, const struct k_attn *a)
{
    if (any_bytes(a, 8) <= K_ATTN_SHARED)
        launch(s, attn_any<T, 8, V>, blocks_of(a, a->q_rows, 8), any_bytes(a, 8), a);
    else
        launch(s, attn_any<T, 1, V>, blocks_of(a, a->q_rows, 1), any_bytes(a, 1), a);
}

bool k_attention_fits(const struct k_attn *a)
{
    return any_bytes(a, 1) <= K_ATTN_SHARED && a->batch * a->heads * a->q_rows < ((int64_t)1 << 31);
}

// Tiles are copied 16 bytes at a time.
static bool is_aligned(const struct k_attn *a)
{
    const int64_t v = a->type == CUDA_T_F32 ? VEC<float> : VEC<f16>;
    const void *of[] = {a->q, a->k, a->v};
    bool is = true;

    for (int i = 0; i < 3; i++)
        is = is && (uintptr_t)of[i] % 16 == 0 && a->batch_stride[i] % v == 0 &&
             a->row_stride[i] % v == 0;
    return is;
}

void k_attention(cudaStream_t s, const struct k_attn *a)
{
    const bool is_tiled = a->width % 16 == 0 && a->width <= MAX_WIDTH && is_aligned(a);

    if (a->type == CUDA_T_F16 && is_tiled)
        launch_tiled<tiles_f16>(s, a);
    else if (a->type == CUDA_T_BF16 && is_tiled)
        launch_tiled<tiles_bf16>(s, a);
    else if (a->type == CUDA_T_F16)
        launch_any<f16, 1>(s, a);
    else if (a->type == CUDA_T_BF16)
        launch_any<bf16, 1>(s, a);
    else if (a->may_round && is_tiled)
        launch_tiled<tiles32>(s, a);
    else if (a->width % 4 == 0 && is_aligned(a))
        launch_any<float, 4>(s, a);
    else
        launch_any<float, 1>(s, a);
}
