// attn_tiles.cuh - what attn.cu and attn_train.cu share: tiles of rows in shared memory, the two
// products of them, online softmax.
//
// A block has 64 rows of one head, a warp 16 of them: queries, or, for the gradients of keys and
// values, keys. The rows of the other side pass by in tiles, the next being copied while the present
// one is at work.
//
//   tiles16      F16, BF16     tensor cores, m16n8k16
//   tiles32      F32 as TF32   tensor cores, m16n8k8
//   tiles_exact  F32           plain multiplications
//
// They have in common how a warp holds 16 rows by N columns of F32: float x[N / 8][4], of which
// x[j][e] of a lane is row lane / 4 + 8 (e / 2), column 8 j + 2 (lane % 4) + e % 2.
//
//   load(x, tile)     the warp's 16 rows of a tile, as the first operand of
//   scores(s, x, k)   s[16, KEYS] = x k^T, k a tile of KEYS rows
//   values(o, s, v)   o[16, D] += s[16, KEYS] v, v a tile of KEYS rows
#ifndef SH_EXECUTOR_DEVICE_CUDA_ATTN_TILES_CUH
#define SH_EXECUTOR_DEVICE_CUDA_ATTN_TILES_CUH

#include "executor/device/cuda/device.cuh"

#define ROWS 64 // of a block
#define THREADS 128
#define LOG2E 1.4426950408889634f
#define LN2 0.6931471805599453f

// ------------------------------------------------------------------ common parts

struct place { // of a block: which head of which sample, its first row
    int64_t b, h, row;
};

// A block has `rows` of the `all` rows of a head.
DEV_INLINE place place_of(const struct k_attn &a, int64_t all, int rows)
{
    const uint32_t tiles = ((uint32_t)all + rows - 1) / rows, heads = (uint32_t)a.heads;
    const uint32_t head = blockIdx.x / tiles;

    return {head / heads, head % heads, blockIdx.x % tiles * rows};
}

// Where head p.h of row 0 of sample p.b begins in operand i: 0 q, 1 k, 2 v.
template <class T> DEV_INLINE const T *head_of(const struct k_attn &a, const place &p, int i)
{
    const void *base = i == 0 ? a.q : i == 1 ? a.k : a.v;

    return (const T *)base + p.b * a.batch_stride[i] + p.h * a.width;
}
// The same in a tensor [batch, rows, heads, width], whose rows are heads * width apart.
template <class T>
DEV_INLINE T *plain_head_of(const struct k_attn &a, const place &p, T *base, int64_t rows)
{
    return base + (p.b * rows * a.heads + p.h) * a.width;
}

DEV_INLINE float mask_at(const struct k_attn &a, const place &p, int64_t row, int64_t key)
{
    const int64_t at = p.b * a.mask_stride[0] + p.h * a.mask_stride[1] + row * a.mask_stride[2] +
                       key * a.mask_stride[3];

    return a.mask.type == CUDA_T_F32   ? ((const float *)a.mask.p)[at]
           : a.mask.type == CUDA_T_F16 ? to_f(((const f16 *)a.mask.p)[at])
                                       : to_f(((const bf16 *)a.mask.p)[at]);
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

// What is added to the scores of key `key`: the mask if it is the same for all rows, -Inf behind the
// last key. Scores are in units of ln 2, so that exp2() makes weights of them.
DEV_INLINE float key_mask(const struct k_attn &a, const place &p, int64_t key)
{
    if (key >= a.k_rows)
        return -INFINITY;
    return a.mask.p && a.mask_stride[2] == 0 ? mask_at(a, p, 0, key) * LOG2E : 0;
}

// Adds a mask that differs between rows. COLUMNS: keys are the columns, `row` the lane's first query
// and `column` the tile's first key; otherwise the reverse.
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
                s[j][e] += mask_at(a, p, query, key) * LOG2E;
        }
}

DEV_INLINE float fast_exp2(float x) // what is less than the smallest normal number is 0
{
    float y;

    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

// The state of the two query rows, lane / 4 and lane / 4 + 8 of its warp's 16, that a lane shares
// with three others. s[j] holds keys 8 j + 2 (lane % 4) and the next one: first row, second row.
template <int D> struct rows {
    float max[2], sum[2]; // max: in units of ln 2; sum: of the own keys only
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

    // Products of queries and N * 8 keys from `from` on become weights.
    template <int N>
    DEV_INLINE void take(float (&s)[N][4], const struct k_attn &a, const place &p, int64_t from,
                         const float *mask)
    {
        const int lane = threadIdx.x % WARP, quad = lane % 4;
        const float scale = a.scale * LOG2E;
        float tile[2] = {-INFINITY, -INFINITY};

#pragma unroll
        for (int j = 0; j < N; j++)
#pragma unroll
            for (int e = 0; e < 4; e++)
                s[j][e] = s[j][e] * scale + mask[8 * j + 2 * quad + e % 2];
        add_row_mask<true>(s, a, p, p.row + threadIdx.x / WARP * 16 + lane / 4, from);
#pragma unroll
        for (int j = 0; j < N; j++)
#pragma unroll
            for (int e = 0; e < 4; e++)
                tile[e / 2] = fmaxf(tile[e / 2], s[j][e]);
#pragma unroll
        for (int i = 0; i < 2; i++) {
            const float m = fmaxf(tile[i], __shfl_xor_sync(0xffffffffu, tile[i], 1));
            const float now = fmaxf(max[i], fmaxf(m, __shfl_xor_sync(0xffffffffu, m, 2)));
            const float base = now == -INFINITY ? 0 : now; // -Inf - -Inf would be NaN too early
            const float before = fast_exp2(max[i] - base);

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
                    s[j][e] = fast_exp2(s[j][e] - base);
                    sum[i] += s[j][e];
                }
        }
    }

    // The sums over all keys, of both rows.
    DEV_INLINE void totals(float (&all)[2]) const
    {
#pragma unroll
        for (int i = 0; i < 2; i++) {
            all[i] = sum[i] + __shfl_xor_sync(0xffffffffu, sum[i], 1);
            all[i] += __shfl_xor_sync(0xffffffffu, all[i], 2);
        }
    }
};

// The warp's rows times factor[0] (the first eight) and factor[1], to row p.row on of `to`, whose
// rows are `row_stride` apart and end at `end`; through rows of `tile` that only this warp uses, so
// that it stores 16 bytes at a time.
template <int D, int STRIDE, class T>
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

            store_f<2>(tile + (first + lane / 4 + 8 * i) * STRIDE + 8 * n + 2 * (lane % 4), pair);
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

// ------------------------------------------------------------------ fp16 and bf16

DEV_INLINE void load_matrices(uint32_t (&r)[4], const void *row)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(shared_address(row))
                 : "memory");
}
DEV_INLINE void load_matrices_turned(uint32_t (&r)[4], const void *row)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(shared_address(row))
                 : "memory");
}

// d[16,8] += a[16,16] b[16,8]
DEV_INLINE void mma16(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1, f16)
{
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
        "{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
DEV_INLINE void mma16(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1, bf16)
{
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
        "{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

template <class T> DEV_INLINE uint32_t pack(float lo, float hi, T type)
{
    const auto v = pair_of(type, lo, hi);

    return *reinterpret_cast<const uint32_t *>(&v);
}

// Rows are 16 bytes longer than their elements: eight of them then lie in different banks.
template <class T, int D> struct tiles16 {
    using element = T;
    static constexpr int KEYS = 64, STRIDE = D + 8;
    struct operand {
        uint32_t r[D / 16][4];
    };

    static DEV_INLINE int column(int, int col) // where it lies in a row of a tile
    {
        return col;
    }

    static DEV_INLINE void load(operand &to, const T *tile)
    {
        const int lane = threadIdx.x % WARP;

#pragma unroll
        for (int d = 0; d < D / 16; d++)
            load_matrices(to.r[d], tile + (threadIdx.x / WARP * 16 + lane % 16) * STRIDE + d * 16 +
                                       lane / 16 * 8);
    }

    static DEV_INLINE void scores(float (&s)[8][4], const operand &x, const T *k)
    {
        const int lane = threadIdx.x % WARP;
        const T *row = k + (lane / 16 * 8 + lane % 8) * STRIDE + lane / 8 % 2 * 8;

        clear(s);
#pragma unroll
        for (int d = 0; d < D / 16; d++)
#pragma unroll
            for (int j = 0; j < 8; j += 2) {
                uint32_t b[4];

                load_matrices(b, row + j * 8 * STRIDE + d * 16);
                mma16(s[j], x.r[d], b[0], b[1], T());
                mma16(s[j + 1], x.r[d], b[2], b[3], T());
            }
    }

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

DEV_INLINE uint32_t to_tf32(float v)
{
    uint32_t r;

    asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(r) : "f"(v));
    return r;
}

// d[16,8] += a[16,8] b[8,8]
DEV_INLINE void mma8(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1)
{
    asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 "
        "{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// The first operand is rounded to TF32; of the second the hardware drops the bits that are too many,
// as it does in cuBLAS's products: rounding it takes longer than the product.
//
// The order in which a product sums does not matter, as long as it is the same on both sides: lane
// % 4 = t of the hardware's positions t and t + 4 gets elements 2 t and 2 t + 1. So pairs are read
// at once, and weights go from one product into the next as they lie. Of every eight rows the last
// four have their columns in groups of eight exchanged with the neighbour: then the lanes of a warp
// read different banks in both products.
template <int D> struct tiles32 {
    using element = float;
    static constexpr int KEYS = 32, STRIDE = D + 8;
    struct operand {
        uint32_t r[D / 8][4];
    };

    static DEV_INLINE int column(int row, int col)
    {
        return col ^ (row << 1 & 8);
    }

    static DEV_INLINE void load(operand &to, const float *tile)
    {
        const int lane = threadIdx.x % WARP, row = threadIdx.x / WARP * 16 + lane / 4;

#pragma unroll
        for (int d = 0; d < D / 8; d++) {
            const float *x = tile + row * STRIDE + column(row, d * 8) + lane % 4 * 2;

            to.r[d][0] = to_tf32(x[0]);
            to.r[d][1] = to_tf32(x[8 * STRIDE]);
            to.r[d][2] = to_tf32(x[1]);
            to.r[d][3] = to_tf32(x[8 * STRIDE + 1]);
        }
    }

    static DEV_INLINE void scores(float (&s)[KEYS / 8][4], const operand &x, const float *k)
    {
        const int lane = threadIdx.x % WARP, off = column(lane / 4, 0);
        const float *row = k + lane / 4 * STRIDE + lane % 4 * 2;

        clear(s);
#pragma unroll
        for (int d = 0; d < D / 8; d++)
#pragma unroll
            for (int j = 0; j < KEYS / 8; j++) {
                const vec<float, 2> b =
                    load_vec<2>(row + (d % 2 ? -off : off) + j * 8 * STRIDE + d * 8);

                mma8(s[j], x.r[d], __float_as_uint(b.v[0]), __float_as_uint(b.v[1]));
            }
    }

    static DEV_INLINE void values(float (&o)[D / 8][4], const float (&s)[KEYS / 8][4],
                                  const float *v)
    {
        const int lane = threadIdx.x % WARP, off = column(lane % 4 * 2, 0);
        const float *row = v + lane % 4 * 2 * STRIDE + lane / 4;

#pragma unroll
        for (int j = 0; j < KEYS / 8; j++) {
            const uint32_t p[4] = {to_tf32(s[j][0]), to_tf32(s[j][2]), to_tf32(s[j][1]),
                                   to_tf32(s[j][3])};

#pragma unroll
            for (int n = 0; n < D / 8; n++) {
                const float *b = row + (n % 2 ? -off : off) + j * 8 * STRIDE + n * 8;

                mma8(o[n], p, __float_as_uint(b[0]), __float_as_uint(b[STRIDE]));
            }
        }
    }
};

// ------------------------------------------------------------------ F32 as it is

// Lanes of the same lane % 4 read the same of the tile that passes by, so a load serves eight.
template <int D> struct tiles_exact {
    using element = float;
    static constexpr int KEYS = 32, STRIDE = D + 4;
    struct operand {
        const float *row; // rows lane / 4 and lane / 4 + 8 stay where they are
    };

    static DEV_INLINE int column(int, int col)
    {
        return col;
    }

    static DEV_INLINE void load(operand &to, const float *tile)
    {
        to.row = tile + (threadIdx.x / WARP * 16 + threadIdx.x % WARP / 4) * STRIDE;
    }

    static DEV_INLINE void scores(float (&s)[4][4], const operand &x, const float *k)
    {
        const float *row = k + threadIdx.x % 4 * 2 * STRIDE;

        clear(s);
#pragma unroll 4
        for (int d = 0; d < D; d += 4) {
            const vec<float, 4> a[2] = {load_vec<4>(x.row + d),
                                        load_vec<4>(x.row + 8 * STRIDE + d)};

#pragma unroll
            for (int j = 0; j < 4; j++)
#pragma unroll
                for (int e = 0; e < 4; e++) {
                    const vec<float, 4> b = load_vec<4>(row + (8 * j + e % 2) * STRIDE + d);

#pragma unroll
                    for (int i = 0; i < 4; i++)
                        s[j][e] += a[e / 2].v[i] * b.v[i];
                }
        }
    }

    static DEV_INLINE void values(float (&o)[D / 8][4], const float (&s)[4][4], const float *v)
    {
        const int lane = threadIdx.x % WARP;
        const float *row = v + lane % 4 * 2;

#pragma unroll
        for (int j = 0; j < 4; j++)
#pragma unroll
            for (int key = 0; key < 8; key++) {
                const int from = lane / 4 * 4 + key / 2; // the lane that has this column
                const float w[2] = {__shfl_sync(0xffffffffu, s[j][key % 2], from),
                                    __shfl_sync(0xffffffffu, s[j][2 + key % 2], from)};

#pragma unroll
                for (int n = 0; n < D / 8; n++) {
                    const vec<float, 2> b = load_vec<2>(row + (8 * j + key) * STRIDE + 8 * n);

#pragma unroll
                    for (int e = 0; e < 4; e++)
                        o[n][e] += w[e / 2] * b.v[e % 2];
                }
            }
    }
};

// ------------------------------------------------------------------ forward

template <class TILES> struct forward_tiles {
    using T = typename TILES::element;
    float mask[2][TILES::KEYS];
    alignas(16) T q[ROWS * TILES::STRIDE];
    T k[2][TILES::KEYS * TILES::STRIDE], v[2][TILES::KEYS * TILES::STRIDE];
};

// All keys pass by; drop(s, from) may change the weights of the tile from key `from` on before they
// meet their values. A number for each key comes with its tile: asked for while the tile before is
// at work, stored after it.
template <class TILES, int D, class DROP>
DEV_INLINE void attend(forward_tiles<TILES> &t, rows<D> &r, const struct k_attn &a, const place &p,
                       DROP drop)
{
    using T = typename TILES::element;
    constexpr int KEYS = TILES::KEYS;
    const int64_t k_stride = a.row_stride[1], v_stride = a.row_stride[2];
    const T *k = head_of<T>(a, p, 1), *v = head_of<T>(a, p, 2);
    typename TILES::operand q;

    copy_rows<TILES, ROWS, D>(t.q, head_of<T>(a, p, 0) + p.row * a.row_stride[0], a.row_stride[0],
                              a.q_rows - p.row);
    copy_rows<TILES, KEYS, D>(t.k[0], k, k_stride, a.k_rows);
    copy_rows<TILES, KEYS, D>(t.v[0], v, v_stride, a.k_rows);
    copies_commit();
    if (threadIdx.x < KEYS)
        t.mask[0][threadIdx.x] = key_mask(a, p, threadIdx.x);
    r.init();
    for (int from = 0, at = 0; from < a.k_rows; from += KEYS, at ^= 1) {
        const bool is_last = from + KEYS >= a.k_rows;
        float s[KEYS / 8][4], mask = 0;

        if (!is_last) {
            k += KEYS * k_stride;
            v += KEYS * v_stride;
            copy_rows<TILES, KEYS, D>(t.k[at ^ 1], k, k_stride, a.k_rows - from - KEYS);
            copy_rows<TILES, KEYS, D>(t.v[at ^ 1], v, v_stride, a.k_rows - from - KEYS);
            copies_commit();
            if (threadIdx.x < KEYS)
                mask = key_mask(a, p, from + KEYS + threadIdx.x);
            copies_wait<1>();
        } else {
            copies_wait<0>();
        }
        __syncthreads();
        if (from == 0)
            TILES::load(q, t.q);
        TILES::scores(s, q, t.k[at]);
        r.take(s, a, p, from, t.mask[at]);
        drop(s, from);
        TILES::values(r.o, s, t.v[at]);
        if (threadIdx.x < KEYS)
            t.mask[at ^ 1][threadIdx.x] = mask;
        __syncthreads(); // the next copies overwrite this tile
    }
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

template <int D> using tiles_f16 = tiles16<f16, D>;
template <int D> using tiles_bf16 = tiles16<bf16, D>;

#endif
