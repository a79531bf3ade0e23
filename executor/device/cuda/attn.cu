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

#include "executor/device/cuda/device.cuh"

#define ROWS 64 // of a block on tensor cores
#define THREADS 128
#define MAX_WIDTH 128
#define LOG2E 1.4426950408889634f

// ------------------------------------------------------------------ common parts

struct place { // of a block: which head of which sample, its first query row
    int64_t b, h, row;
};

static DEV_INLINE place place_of(const struct k_attn &a, int rows)
{
    const int64_t tiles = (a.q_rows + rows - 1) / rows, head = blockIdx.x / tiles;

    return {head / a.heads, head % a.heads, blockIdx.x % tiles * rows};
}

static DEV_INLINE float mask_at(const struct k_attn &a, const place &p, int64_t row, int64_t key)
{
    const int64_t at = p.b * a.mask_stride[0] + p.h * a.mask_stride[1] + row * a.mask_stride[2] +
                       key * a.mask_stride[3];

    return a.mask.type == CUDA_T_F32   ? ((const float *)a.mask.p)[at]
           : a.mask.type == CUDA_T_F16 ? to_f(((const f16 *)a.mask.p)[at])
                                       : to_f(((const bf16 *)a.mask.p)[at]);
}

static DEV_INLINE uint32_t shared_address(const void *p)
{
    return (uint32_t)__cvta_generic_to_shared(p);
}

// 16 bytes, or zeros.
static DEV_INLINE void copy_async(void *to, const void *from, bool is_there)
{
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(to)),
                 "l"(from), "r"(is_there ? 16 : 0)
                 : "memory");
}
static DEV_INLINE void copies_commit()
{
    asm volatile("cp.async.commit_group;" ::: "memory");
}
template <int LEFT> static DEV_INLINE void copies_wait()
{
    asm volatile("cp.async.wait_group %0;" ::"n"(LEFT) : "memory");
}

// Rows [from, from + N) of D elements into rows of STRIDE; zeros behind row `rows`.
template <int N, int D, int STRIDE, class T>
static DEV_INLINE void copy_rows(T *to, const T *src, int64_t row_stride, int64_t from,
                                 int64_t rows)
{
    constexpr int CHUNKS = D / VEC<T>;

    for (int i = threadIdx.x; i < N * CHUNKS; i += THREADS) {
        const int r = i / CHUNKS, c = i % CHUNKS * VEC<T>;
        const bool is_there = from + r < rows;

        copy_async(to + r * STRIDE + c, src + (is_there ? from + r : 0) * row_stride + c, is_there);
    }
}

// What is added to the scores of a tile's keys: the mask if it is the same for all rows, -Inf
// behind the last key.
template <int N>
static DEV_INLINE void load_key_mask(float *to, const struct k_attn &a, const place &p,
                                     int64_t from)
{
    for (int i = threadIdx.x; i < N; i += THREADS) {
        float m = 0;

        if (from + i >= a.k_rows)
            m = -INFINITY;
        else if (a.mask.p && a.mask_stride[2] == 0)
            m = mask_at(a, p, 0, from + i);
        to[i] = m;
    }
}

// The state of the two query rows, lane / 4 and lane / 4 + 8 of its warp's 16, that a lane shares
// with three others. s[j] holds keys 8 j + 2 (lane % 4) and the next one: first row, second row.
template <int D> struct rows {
    float max[2], sum[2]; // sum: of the own keys only
    float o[D / 8][4];

    DEV_INLINE void init()
    {
#pragma unroll
        for (int i = 0; i < 2; i++) {
            max[i] = -INFINITY;
            sum[i] = 0;
        }
#pragma unroll
        for (int n = 0; n < D / 8; n++)
#pragma unroll
            for (int e = 0; e < 4; e++)
                o[n][e] = 0;
    }

    // Scores of N * 8 keys from `from` on become weights.
    template <int N>
    DEV_INLINE void take(float (&s)[N][4], const struct k_attn &a, const place &p, int64_t from,
                         const float *key_mask)
    {
        const int lane = threadIdx.x % WARP, quad = lane % 4;
        const int64_t row = p.row + threadIdx.x / WARP * 16 + lane / 4;
        const bool by_row = a.mask.p && a.mask_stride[2] != 0;
        float tile[2] = {-INFINITY, -INFINITY};

#pragma unroll
        for (int j = 0; j < N; j++)
#pragma unroll
            for (int e = 0; e < 4; e++) {
                const int key = 8 * j + 2 * quad + e % 2;

                s[j][e] = s[j][e] * a.scale + key_mask[key];
                if (by_row && row + e / 2 * 8 < a.q_rows && from + key < a.k_rows)
                    s[j][e] += mask_at(a, p, row + e / 2 * 8, from + key);
                tile[e / 2] = fmaxf(tile[e / 2], s[j][e]);
            }
#pragma unroll
        for (int i = 0; i < 2; i++) {
            const float m = fmaxf(tile[i], __shfl_xor_sync(0xffffffffu, tile[i], 1));
            const float now = fmaxf(max[i], fmaxf(m, __shfl_xor_sync(0xffffffffu, m, 2)));
            const float base = now == -INFINITY ? 0 : now; // -Inf - -Inf would be NaN too early
            const float before = exp2f((max[i] - base) * LOG2E);

            max[i] = now;
            sum[i] *= before;
#pragma unroll
            for (int n = 0; n < D / 8; n++) {
                o[n][2 * i] *= before;
                o[n][2 * i + 1] *= before;
            }
#pragma unroll
            for (int j = 0; j < N; j++)
#pragma unroll
                for (int e = 2 * i; e < 2 * i + 2; e++) {
                    s[j][e] = exp2f((s[j][e] - base) * LOG2E);
                    sum[i] += s[j][e];
                }
        }
    }

    // Through rows of `tile` that only this warp uses, so that it stores 16 bytes at a time.
    template <int STRIDE, class T>
    DEV_INLINE void store(T *tile, const struct k_attn &a, const place &p)
    {
        constexpr int CHUNKS = D / VEC<T>;
        const int lane = threadIdx.x % WARP, first = threadIdx.x / WARP * 16;
        T *y = (T *)a.y + ((p.b * a.q_rows + p.row) * a.heads + p.h) * D;

#pragma unroll
        for (int i = 0; i < 2; i++) {
            float all = sum[i] + __shfl_xor_sync(0xffffffffu, sum[i], 1);

            all += __shfl_xor_sync(0xffffffffu, all, 2);
            all = 1 / all;
#pragma unroll
            for (int n = 0; n < D / 8; n++) {
                const float pair[2] = {o[n][2 * i] * all, o[n][2 * i + 1] * all};

                store_f<2>(tile + (first + lane / 4 + 8 * i) * STRIDE + 8 * n + 2 * (lane % 4),
                           pair);
            }
        }
        __syncwarp();
        for (int i = lane; i < 16 * CHUNKS; i += WARP) {
            const int r = first + i / CHUNKS, c = i % CHUNKS * VEC<T>;

            if (p.row + r < a.q_rows)
                store_vec<VEC<T>>(y + (int64_t)r * a.heads * D + c,
                                  load_vec<VEC<T>>(tile + r * STRIDE + c));
        }
    }
};

// ------------------------------------------------------------------ fp16 and bf16

static DEV_INLINE void load_matrices(uint32_t (&r)[4], const void *row)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(shared_address(row))
                 : "memory");
}
static DEV_INLINE void load_matrices_turned(uint32_t (&r)[4], const void *row)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(shared_address(row))
                 : "memory");
}

// d[16,8] += a[16,16] b[16,8]
static DEV_INLINE void mma16(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1, f16)
{
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
        "{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
static DEV_INLINE void mma16(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1, bf16)
{
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
        "{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

template <class T> static DEV_INLINE uint32_t pack(float lo, float hi, T type)
{
    const auto v = pair_of(type, lo, hi);

    return *reinterpret_cast<const uint32_t *>(&v);
}

// Rows are 16 bytes longer than their elements: eight of them then lie in different banks.
template <class T, int D> struct tiles16 {
    using element = T;
    static constexpr int KEYS = 64, DEPTH = 16, STRIDE = D + 8, V_STRIDE = STRIDE;
    float key_mask[2][KEYS];
    T q[ROWS * STRIDE], k[2][KEYS * STRIDE], v[2][KEYS * STRIDE];

    static DEV_INLINE void load_queries(uint32_t (&to)[D / 16][4], const T *q, int lane)
    {
#pragma unroll
        for (int d = 0; d < D / 16; d++)
            load_matrices(to[d], q + (threadIdx.x / WARP * 16 + lane % 16) * STRIDE + d * 16 +
                                     lane / 16 * 8);
    }

    // s[16, KEYS] = q k^T
    static DEV_INLINE void scores(float (&s)[8][4], const uint32_t (&q)[D / 16][4], const T *k)
    {
        const int lane = threadIdx.x % WARP;
        const T *row = k + (lane / 16 * 8 + lane % 8) * STRIDE + lane / 8 % 2 * 8;

#pragma unroll
        for (int j = 0; j < 8; j++)
#pragma unroll
            for (int e = 0; e < 4; e++)
                s[j][e] = 0;
#pragma unroll
        for (int d = 0; d < D / 16; d++)
#pragma unroll
            for (int j = 0; j < 8; j += 2) {
                uint32_t b[4];

                load_matrices(b, row + j * 8 * STRIDE + d * 16);
                mma16(s[j], q[d], b[0], b[1], T());
                mma16(s[j + 1], q[d], b[2], b[3], T());
            }
    }

    // o[16, D] += weights[16, KEYS] v
    static DEV_INLINE void values(float (&o)[D / 8][4], const float (&s)[8][4], const T *v)
    {
        const int lane = threadIdx.x % WARP;
        const T *row = v + (lane / 8 % 2 * 8 + lane % 8) * STRIDE + lane / 16 * 8;

#pragma unroll
        for (int j = 0; j < 8; j += 2) {
            const uint32_t p[4] = {pack(s[j][0], s[j][1], T()), pack(s[j][2], s[j][3], T()),
                                   pack(s[j + 1][0], s[j + 1][1], T()),
                                   pack(s[j + 1][2], s[j + 1][3], T())};

#pragma unroll
            for (int n = 0; n < D / 8; n += 2) {
                uint32_t b[4];

                load_matrices_turned(b, row + j * 8 * STRIDE + n * 8);
                mma16(o[n], p, b[0], b[1], T());
                mma16(o[n + 1], p, b[2], b[3], T());
            }
        }
    }
};

// ------------------------------------------------------------------ tf32

static DEV_INLINE uint32_t to_tf32(float v)
{
    uint32_t r;

    asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(r) : "f"(v));
    return r;
}

// d[16,8] += a[16,8] b[8,8]
static DEV_INLINE void mma8(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1)
{
    asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 "
        "{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// The order in which a product sums does not matter, as long as it is the same on both sides: lane
// % 4 = t of the hardware's positions t and t + 4 gets elements 2 t and 2 t + 1. So pairs are read
// at once, and weights go from one product into the next as they lie. With these strides the lanes
// of a warp read different banks.
template <int D> struct tiles32 {
    using element = float;
    static constexpr int KEYS = 32, DEPTH = 8, STRIDE = D + 8, V_STRIDE = D + 4;
    float key_mask[2][KEYS];
    float q[ROWS * STRIDE], k[2][KEYS * STRIDE], v[2][KEYS * V_STRIDE];

    static DEV_INLINE void load_queries(uint32_t (&to)[D / 8][4], const float *q, int lane)
    {
#pragma unroll
        for (int d = 0; d < D / 8; d++) {
            const float *x =
                q + (threadIdx.x / WARP * 16 + lane / 4) * STRIDE + d * 8 + lane % 4 * 2;

            to[d][0] = to_tf32(x[0]);
            to[d][1] = to_tf32(x[8 * STRIDE]);
            to[d][2] = to_tf32(x[1]);
            to[d][3] = to_tf32(x[8 * STRIDE + 1]);
        }
    }

    static DEV_INLINE void scores(float (&s)[4][4], const uint32_t (&q)[D / 8][4], const float *k)
    {
        const int lane = threadIdx.x % WARP;
        const float *row = k + lane / 4 * STRIDE + lane % 4 * 2;

#pragma unroll
        for (int j = 0; j < 4; j++) {
#pragma unroll
            for (int e = 0; e < 4; e++)
                s[j][e] = 0;
#pragma unroll
            for (int d = 0; d < D / 8; d++) {
                const vec<float, 2> b = load_vec<2>(row + j * 8 * STRIDE + d * 8);

                mma8(s[j], q[d], to_tf32(b.v[0]), to_tf32(b.v[1]));
            }
        }
    }

    static DEV_INLINE void values(float (&o)[D / 8][4], const float (&s)[4][4], const float *v)
    {
        const int lane = threadIdx.x % WARP;
        const float *row = v + lane % 4 * 2 * V_STRIDE + lane / 4;

#pragma unroll
        for (int j = 0; j < 4; j++) {
            const uint32_t p[4] = {to_tf32(s[j][0]), to_tf32(s[j][2]), to_tf32(s[j][1]),
                                   to_tf32(s[j][3])};

#pragma unroll
            for (int n = 0; n < D / 8; n++) {
                const float *b = row + j * 8 * V_STRIDE + n * 8;

                mma8(o[n], p, to_tf32(b[0]), to_tf32(b[V_STRIDE]));
            }
        }
    }
};

// ------------------------------------------------------------------ tiles of keys and values

// TILES: how queries, keys and values lie in shared memory, and the two products of them.
template <class TILES, int D>
static __global__ void __launch_bounds__(THREADS)
    attn_tiled(const __grid_constant__ struct k_attn a)
{
    extern __shared__ __align__(16) unsigned char smem[];
    using T = typename TILES::element;
    constexpr int KEYS = TILES::KEYS, STRIDE = TILES::STRIDE, V_STRIDE = TILES::V_STRIDE;
    TILES &t = *reinterpret_cast<TILES *>(smem);
    const place p = place_of(a, ROWS);
    const T *q = (const T *)a.q + p.b * a.batch_stride[0] + p.h * D;
    const T *k = (const T *)a.k + p.b * a.batch_stride[1] + p.h * D;
    const T *v = (const T *)a.v + p.b * a.batch_stride[2] + p.h * D;
    const int lane = threadIdx.x % WARP;
    uint32_t fq[D / TILES::DEPTH][4];
    rows<D> r;

    copy_rows<ROWS, D, STRIDE>(t.q, q, a.row_stride[0], p.row, a.q_rows);
    copy_rows<KEYS, D, STRIDE>(t.k[0], k, a.row_stride[1], 0, a.k_rows);
    copy_rows<KEYS, D, V_STRIDE>(t.v[0], v, a.row_stride[2], 0, a.k_rows);
    copies_commit();
    load_key_mask<KEYS>(t.key_mask[0], a, p, 0);
    r.init();
    for (int64_t from = 0, at = 0; from < a.k_rows; from += KEYS, at ^= 1) {
        float s[KEYS / 8][4];

        if (from + KEYS < a.k_rows) {
            copy_rows<KEYS, D, STRIDE>(t.k[at ^ 1], k, a.row_stride[1], from + KEYS, a.k_rows);
            copy_rows<KEYS, D, V_STRIDE>(t.v[at ^ 1], v, a.row_stride[2], from + KEYS, a.k_rows);
            copies_commit();
            load_key_mask<KEYS>(t.key_mask[at ^ 1], a, p, from + KEYS);
            copies_wait<1>();
        } else {
            copies_wait<0>();
        }
        __syncthreads();
        if (from == 0)
            TILES::load_queries(fq, t.q, lane);
        TILES::scores(s, fq, t.k[at]);
        r.take(s, a, p, from, t.key_mask[at]);
        TILES::values(r.o, s, t.v[at]);
        __syncthreads(); // the next copies overwrite this tile
    }
    r.template store<STRIDE>(t.q, a, p);
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
    sum = 1 / sum;
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
    const place p = place_of(a, R);

    any_scores<T, R, V>(score, any_smem, a, p);
    any_softmax<R>(score, all, a);
    any_values<T, R>(score, all, a, p);
}

// ------------------------------------------------------------------ launching

template <class F>
static void launch(cudaStream_t s, F *kernel, int rows, size_t smem, const struct k_attn *a)
{
    const int64_t blocks = a->batch * a->heads * cdiv64(a->q_rows, rows);

    if (smem > 48 << 10)
        cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)smem);
    kernel<<<(unsigned)blocks, THREADS, smem, s>>>(*a);
}

#define EACH_WIDTH(CASE) CASE(16) CASE(32) CASE(48) CASE(64) CASE(80) CASE(96) CASE(112) CASE(128)

template <template <int> class TILES>
static void launch_tiled(cudaStream_t s, const struct k_attn *a)
{
    switch (a->width) {
#define CASE(D)                                                        \
    case D:                                                            \
        launch(s, attn_tiled<TILES<D>, D>, ROWS, sizeof(TILES<D>), a); \
        break;
        EACH_WIDTH(CASE)
#undef CASE
    default:
        break;
    }
}

template <int D> using tiles_f16 = tiles16<f16, D>;
template <int D> using tiles_bf16 = tiles16<bf16, D>;

static size_t any_bytes(const struct k_attn *a, int rows)
{
    return (size_t)((a->width + a->k_rows) * rows + THREADS) * sizeof(float);
}

template <class T, int V> static void launch_any(cudaStream_t s, const struct k_attn *a)
{
    if (any_bytes(a, 8) <= K_ATTN_SHARED)
        launch(s, attn_any<T, 8, V>, 8, any_bytes(a, 8), a);
    else
        launch(s, attn_any<T, 1, V>, 1, any_bytes(a, 1), a);
}

bool k_attention_fits(const struct k_attn *a)
{
    return any_bytes(a, 1) <= K_ATTN_SHARED && a->batch * a->heads * a->q_rows < ((int64_t)1 << 31);
}

void k_attention(cudaStream_t s, const struct k_attn *a)
{
    const bool is_tiled = a->width % 16 == 0 && a->width <= MAX_WIDTH;

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
    else if (a->width % 4 == 0)
        launch_any<float, 4>(s, a);
    else
        launch_any<float, 1>(s, a);
}
