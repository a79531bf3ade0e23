// attn_train.cu - attention in training: forward with dropout, and the gradients of queries, keys
// and values, without a matrix of scores in memory.
//
// Forward is attn.cu's, and stores the logarithm of the sum of each row (lse). From it and the
// operands the gradients compute the weights P again, a tile at a time, as FlashAttention-2 does
// (Dao, 2023). With W = drop(P), y = W v:
//
//   d_v = W^T d_y                      delta = the row sums of d_y * y = those of P * d_P
//   d_P = drop(d_y v^T)                d_S = P * (d_P - delta)
//   d_q = scale d_S k                  d_k = scale d_S^T q
//
// Two kernels: one has rows of queries, for d_q and delta, then one has rows of keys, for d_k and
// d_v; for a short head there is one that does all. Each sums over what passes by in one order, so
// results do not vary from run to run.
//
// Whether a weight is kept takes a random number; eight of a row come from one Philox block, and
// the lanes that share blocks compute one each and tell the others.

#include "runtime/device/cuda/attn_forward.cuh"
#include "runtime/device/op.h"
#include "runtime/device/philox.h"

// ------------------------------------------------------------------ dropout

// Eight bits: which weights of a block are kept.
static DEV_INLINE uint32_t keep_of(const struct k_attn_train &t, uint32_t line, uint32_t key)
{
    const uint32_t blocks = ((uint32_t)t.a.k_rows + 7) / 8;
    const uint64_t step = (uint64_t)t.step;
    const uint32_t counter[4] = {line * blocks + key / 8, 0, (uint32_t)step,
                                 (uint32_t)(step >> 32)};
    uint32_t r[4], keep = 0;

    dev_philox(t.seed, counter, r);
#pragma unroll
    for (uint32_t i = 0; i < 8; i++)
        keep |= (dev_philox_half(r, i) >= t.threshold ? 1u : 0u) << i;
    return keep;
}

// Bit 4 i + e: is element e of this lane, x[j + i][e] with i 0 or 1, kept? `line`: number of the
// lane's first row among all rows of all heads, `key` the first column of j.
static DEV_INLINE uint32_t keep_rows(const struct k_attn_train &t, uint32_t line, uint32_t key)
{
    const int quad = threadIdx.x % 4;
    // Four lanes share the blocks of two rows, in j and in j + 1.
    uint32_t keep = keep_of(t, line + 8 * (quad % 2), key + 8 * (quad / 2)) << 8 * quad;
    uint32_t bits = 0;

    keep |= __shfl_xor_sync(0xffffffffu, keep, 1);
    keep |= __shfl_xor_sync(0xffffffffu, keep, 2);
#pragma unroll
    for (int i = 0; i < 4; i++)
        bits |= (keep >> (8 * i + 2 * quad) & 3) << 2 * i;
    return bits;
}

// The same where rows are keys and columns queries: `line` is that of the first column of j, `key`
// the warp's first row.
static DEV_INLINE uint32_t keep_columns(const struct k_attn_train &t, uint32_t line, uint32_t key)
{
    const int quad = threadIdx.x % 4, mine = threadIdx.x % WARP / 4;
    // Eight lanes share the blocks of two queries in j and in j + 1, for two times eight keys.
    uint32_t keep = keep_of(t, line + 2 * quad + mine % 2 + mine / 4 * 8, key + mine / 2 % 2 * 8);

    // Bit b of lane a becomes bit a of lane b.
#pragma unroll
    for (int d = 4; d > 0; d /= 2) {
        const uint32_t low = d == 4 ? 0x0fu : d == 2 ? 0x33u : 0x55u;
        const uint32_t other = __shfl_xor_sync(0xffffffffu, keep, 4 * d);

        keep = mine & d ? (keep & ~low) | (other >> d & low) : (keep & low) | (other << d & ~low);
    }
    return keep & 0xffu;
}

static DEV_INLINE int64_t drop_line(const struct k_attn_train &t, const place &p, int64_t row)
{
    return (p.b * t.a.heads + p.h) * t.a.q_rows + row;
}

// The lse of a query, in units of ln 2. Infinity, which makes all its weights 0, if it is not there
// or if a mask of finite numbers hides all its keys: so large a lse is not precise enough to get
// weights from it, they would be 0 or infinite. -Inf stays, unless such rows are zeros:
// by the formula they are NaN.
#define LEAST_LSE (-1e6f)
static DEV_INLINE float lse_of(const struct k_attn_train &t, const place &p, int64_t query)
{
    const float lse = query < t.a.q_rows ? t.lse[drop_line(t, p, query)] : INFINITY;

    return lse < LEAST_LSE && (lse != -INFINITY || t.a.zero_hidden) ? INFINITY : lse * LOG2E;
}

// ------------------------------------------------------------------ forward

template <class TILES, int D>
static __global__ void __launch_bounds__(THREADS)
    attn_train(const __grid_constant__ struct k_attn_train t)
{
    extern __shared__ __align__(16) unsigned char smem[];
    using T = typename TILES::element;
    forward_tiles<TILES> &tiles = *reinterpret_cast<forward_tiles<TILES> *>(smem);
    const struct k_attn &a = t.a;
    const place p = place_of(a, a.q_rows, ROWS);
    const int lane = threadIdx.x % WARP;
    const int64_t row = p.row + threadIdx.x / WARP * 16 + lane / 4, line = drop_line(t, p, row);
    float all[2], factor[2];
    rows<D> r;

    attend<TILES, D>(tiles, r, a, p, [&](float(&s)[TILES::KEYS / 8][4], int64_t from) {
        if (t.threshold == 0)
            return;
#pragma unroll
        for (int j = 0; j < TILES::KEYS / 8; j += 2) {
            const uint32_t keep = keep_rows(t, (uint32_t)line, (uint32_t)from + 8 * j);

#pragma unroll
            for (int e = 0; e < 8; e++)
                s[j + e / 4][e % 4] = keep >> e & 1 ? s[j + e / 4][e % 4] * t.kept : 0;
        }
    });
    r.totals(all, factor, a);
#pragma unroll
    for (int i = 0; i < 2; i++) {
        if (lane % 4 == 0 && row + 8 * i < a.q_rows)
            t.lse[line + 8 * i] = (r.max[i] + log2f(all[i])) * LN2;
    }
    store_rows<D, TILES::STRIDE>(r.o, factor, tiles.q, plain_head_of(a, p, (T *)a.y, a.q_rows),
                                 a.heads * D, p, a.q_rows);
}

// ------------------------------------------------------------------ gradients

template <class TILES, int D> struct backward_tiles {
    using T = typename TILES::element;
    static constexpr int KEYS = TILES::KEYS, STRIDE = TILES::STRIDE;
    alignas(16) T own[2][ROWS * STRIDE];        // the block's rows of two operands
    T x[2][KEYS * STRIDE], y[2][KEYS * STRIDE]; // two tiles each of what passes by
    float of_x[2][KEYS], of_y[2][KEYS];         // a number for each of their rows

    DEV_INLINE void copy_own(const T *from, int64_t stride, const T *from_2, int64_t stride_2,
                             int64_t there)
    {
        copy_rows<TILES, ROWS, D>(own[0], from, stride, there);
        copy_rows<TILES, ROWS, D>(own[1], from_2, stride_2, there);
    }
    DEV_INLINE void copy(int at, const T *from_x, int64_t x_stride, const T *from_y,
                         int64_t y_stride, int64_t there)
    {
        copy_rows<TILES, KEYS, D>(x[at], from_x, x_stride, there);
        copy_rows<TILES, KEYS, D>(y[at], from_y, y_stride, there);
        copies_commit();
    }
};

// The row sums of d_y * y of the lane's two rows.
template <class TILES, int D, class T>
static DEV_INLINE void row_deltas(float (&delta)[2], const struct k_attn_train &t, const T *d_y,
                                  const place &p)
{
    const struct k_attn &a = t.a;
    const int lane = threadIdx.x % WARP, first = threadIdx.x / WARP * 16 + lane / 4;
    const T *y = plain_head_of(a, p, (const T *)a.y, a.q_rows);

#pragma unroll
    for (int i = 0; i < 2; i++) {
        const int r = first + 8 * i;
        float sum = 0;

        for (int n = 0; n < D / 8 && p.row + r < a.q_rows; n++) {
            const int col = 8 * n + 2 * (lane % 4);
            float g[2], v[2];

            load_f<2>(d_y + r * TILES::STRIDE + TILES::column(r, col), g);
            load_f<2>(y + (p.row + r) * a.heads * D + col, v);
            sum += g[0] * v[0] + g[1] * v[1];
        }
        sum += __shfl_xor_sync(0xffffffffu, sum, 1);
        delta[i] = sum + __shfl_xor_sync(0xffffffffu, sum, 2);
        if (lane % 4 == 0 && p.row + r < a.q_rows)
            t.delta[drop_line(t, p, p.row + r)] = delta[i];
    }
}

// s = q k^T and g = d_y v^T become d_S. lse is in units of ln 2.
template <int N>
static DEV_INLINE void d_scores_of_rows(float (&s)[N][4], const float (&g)[N][4],
                                        const struct k_attn_train &t, const place &p, int64_t row,
                                        int64_t from, const float *mask, const float (&lse)[2],
                                        const float (&delta)[2])
{
    const float scale = t.a.scale * LOG2E;

#pragma unroll
    for (int j = 0; j < N; j++)
#pragma unroll
        for (int e = 0; e < 4; e++)
            s[j][e] = s[j][e] * scale + mask[8 * j + 2 * (threadIdx.x % 4) + e % 2];
    add_row_mask<true>(s, t.a, p, row, from);
#pragma unroll
    for (int j = 0; j < N; j += 2) {
        const uint32_t keep =
            t.threshold ? keep_rows(t, (uint32_t)drop_line(t, p, row), (uint32_t)from + 8 * j)
                        : 0xffu;

#pragma unroll
        for (int e = 0; e < 8; e++) {
            float &x = s[j + e / 4][e % 4];

            x = fast_exp2(x - lse[e / 2 % 2]) *
                (g[j + e / 4][e % 4] * (keep >> e & 1 ? t.kept : 0) - delta[e / 2 % 2]);
        }
    }
}

// d_S of the lane's queries `row` and row + 8, and the keys from `from` on.
template <class T, int N>
static DEV_INLINE void store_d_mask(const float (&s)[N][4], const struct k_attn_train &t,
                                    const place &p, int64_t row, int64_t from)
{
    const int64_t keys = t.a.k_rows;

    if (!t.d_mask)
        return;
#pragma unroll
    for (int j = 0; j < N; j++)
#pragma unroll
        for (int e = 0; e < 4; e++) {
            const int64_t r = row + e / 2 * 8, key = from + 8 * j + 2 * (threadIdx.x % 4) + e % 2;

            if (r < t.a.q_rows && key < keys)
                ((T *)t.d_mask)[drop_line(t, p, r) * keys + key] = grad_f<T>(s[j][e]);
        }
}

// Rows: queries. x: keys, y: values.
template <class TILES, int D>
static __global__ void __launch_bounds__(THREADS)
    attn_d_queries(const __grid_constant__ struct k_attn_train t)
{
    extern __shared__ __align__(16) unsigned char smem[];
    using T = typename TILES::element;
    using tiles = backward_tiles<TILES, D>;
    constexpr int KEYS = TILES::KEYS, STRIDE = TILES::STRIDE;
    tiles &m = *reinterpret_cast<tiles *>(smem);
    const struct k_attn &a = t.a;
    const place p = place_of(a, a.q_rows, ROWS);
    const int64_t row = p.row + threadIdx.x / WARP * 16 + threadIdx.x % WARP / 4;
    const int64_t k_stride = a.row_stride[1], v_stride = a.row_stride[2];
    const T *k = head_of<T>(a, p, 1), *v = head_of<T>(a, p, 2);
    const T *d_y = plain_head_of(a, p, (const T *)t.d_y, a.q_rows);
    const float scale[2] = {a.scale, a.scale};
    typename TILES::operand fq, fg;
    float lse[2], delta[2], d_q[D / 8][4];

    m.copy_own(head_of<T>(a, p, 0) + p.row * a.row_stride[0], a.row_stride[0],
               d_y + p.row * a.heads * D, a.heads * D, a.q_rows - p.row);
    m.copy(0, k, k_stride, v, v_stride, a.k_rows);
    if (threadIdx.x < KEYS)
        m.of_x[0][threadIdx.x] = key_mask(a, p, threadIdx.x);
    for (int i = 0; i < 2; i++)
        lse[i] = lse_of(t, p, row + 8 * i);
    clear(d_q);
    for (int from = 0, at = 0; from < a.k_rows; from += KEYS, at ^= 1) {
        const bool is_last = from + KEYS >= a.k_rows;
        float s[KEYS / 8][4], g[KEYS / 8][4], mask = 0;

        if (!is_last) {
            k += KEYS * k_stride;
            v += KEYS * v_stride;
            m.copy(at ^ 1, k, k_stride, v, v_stride, a.k_rows - from - KEYS);
            if (threadIdx.x < KEYS)
                mask = key_mask(a, p, from + KEYS + threadIdx.x);
            copies_wait<1>();
        } else {
            copies_wait<0>();
        }
        __syncthreads();
        if (from == 0) {
            TILES::load(fq, m.own[0]);
            TILES::load(fg, m.own[1]);
            row_deltas<TILES, D>(delta, t, m.own[1], p);
        }
        TILES::scores(s, fq, m.x[at]);
        TILES::scores(g, fg, m.y[at]);
        d_scores_of_rows(s, g, t, p, row, from, m.of_x[at], lse, delta);
        TILES::values(d_q, s, m.x[at]);
        store_d_mask<T>(s, t, p, row, from);
        if (threadIdx.x < KEYS)
            m.of_x[at ^ 1][threadIdx.x] = mask;
        __syncthreads(); // the next copies overwrite these tiles
    }
    store_rows<D, STRIDE, true>(d_q, scale, m.own[0], gradient_of<T>(a, p, t.d_q, 0),
                                a.row_stride[0], p, a.q_rows);
}

static DEV_INLINE void line_numbers(float &lse, float &delta, const struct k_attn_train &t,
                                    const place &p, int64_t query)
{
    lse = lse_of(t, p, query);
    delta = query < t.a.q_rows ? t.delta[drop_line(t, p, query)] : 0;
}

// s = k q^T becomes W, g = v d_y^T becomes d_S; both keys by queries.
template <int N>
static DEV_INLINE void d_scores_of_columns(float (&s)[N][4], float (&g)[N][4],
                                           const struct k_attn_train &t, const place &p,
                                           int64_t key, int64_t from, const float *lse,
                                           const float *delta, const float (&mask)[2])
{
    const float scale = t.a.scale * LOG2E;
    const int64_t warp_key = p.row + threadIdx.x / WARP * 16;

#pragma unroll
    for (int j = 0; j < N; j++)
#pragma unroll
        for (int e = 0; e < 4; e++)
            s[j][e] = s[j][e] * scale + mask[e / 2];
    add_row_mask<false>(s, t.a, p, key, from);
#pragma unroll
    for (int j = 0; j < N; j += 2) {
        const uint32_t keep = t.threshold ? keep_columns(t, (uint32_t)drop_line(t, p, from + 8 * j),
                                                         (uint32_t)warp_key)
                                          : 0xffu;

#pragma unroll
        for (int e = 0; e < 8; e++) {
            const int query = 8 * (j + e / 4) + 2 * (threadIdx.x % 4) + e % 2;
            float &x = s[j + e / 4][e % 4], &d = g[j + e / 4][e % 4];
            const float w = fast_exp2(x - lse[query]), kept = keep >> e & 1 ? t.kept : 0;

            x = w * kept;
            d = w * (d * kept - delta[query]);
        }
    }
}

// Rows: keys. x: queries, y: d_y.
template <class TILES, int D>
static __global__ void __launch_bounds__(THREADS)
    attn_d_keys(const __grid_constant__ struct k_attn_train t)
{
    extern __shared__ __align__(16) unsigned char smem[];
    using T = typename TILES::element;
    using tiles = backward_tiles<TILES, D>;
    constexpr int KEYS = TILES::KEYS, STRIDE = TILES::STRIDE;
    tiles &m = *reinterpret_cast<tiles *>(smem);
    const struct k_attn &a = t.a;
    const place p = place_of(a, a.k_rows, ROWS);
    const int64_t key = p.row + threadIdx.x / WARP * 16 + threadIdx.x % WARP / 4;
    const int64_t q_stride = a.row_stride[0], g_stride = a.heads * D;
    const T *q = head_of<T>(a, p, 0), *d_y = plain_head_of(a, p, (const T *)t.d_y, a.q_rows);
    const float scale[2] = {a.scale, a.scale}, one[2] = {1, 1};
    typename TILES::operand fk, fv;
    float mask[2], d_k[D / 8][4], d_v[D / 8][4];

    m.copy_own(head_of<T>(a, p, 1) + p.row * a.row_stride[1], a.row_stride[1],
               head_of<T>(a, p, 2) + p.row * a.row_stride[2], a.row_stride[2], a.k_rows - p.row);
    m.copy(0, q, q_stride, d_y, g_stride, a.q_rows);
    if (threadIdx.x < KEYS)
        line_numbers(m.of_x[0][threadIdx.x], m.of_y[0][threadIdx.x], t, p, threadIdx.x);
    for (int i = 0; i < 2; i++)
        mask[i] = key_mask(a, p, key + 8 * i);
    clear(d_k);
    clear(d_v);
    for (int from = 0, at = 0; from < a.q_rows; from += KEYS, at ^= 1) {
        const bool is_last = from + KEYS >= a.q_rows;
        float s[KEYS / 8][4], g[KEYS / 8][4], lse = 0, delta = 0;

        if (!is_last) {
            q += KEYS * q_stride;
            d_y += KEYS * g_stride;
            m.copy(at ^ 1, q, q_stride, d_y, g_stride, a.q_rows - from - KEYS);
            if (threadIdx.x < KEYS)
                line_numbers(lse, delta, t, p, from + KEYS + threadIdx.x);
            copies_wait<1>();
        } else {
            copies_wait<0>();
        }
        __syncthreads();
        if (from == 0) {
            TILES::load(fk, m.own[0]);
            TILES::load(fv, m.own[1]);
        }
        TILES::scores(s, fk, m.x[at]);
        TILES::scores(g, fv, m.y[at]);
        d_scores_of_columns(s, g, t, p, key, from, m.of_x[at], m.of_y[at], mask);
        TILES::values(d_v, s, m.y[at]);
        TILES::values(d_k, g, m.x[at]);
        if (threadIdx.x < KEYS) {
            m.of_x[at ^ 1][threadIdx.x] = lse;
            m.of_y[at ^ 1][threadIdx.x] = delta;
        }
        __syncthreads(); // the next copies overwrite these tiles
    }
    store_rows<D, STRIDE, true>(d_k, scale, m.own[0], gradient_of<T>(a, p, t.d_k, 1),
                                a.row_stride[1], p, a.k_rows);
    store_rows<D, STRIDE, true>(d_v, one, m.own[1], gradient_of<T>(a, p, t.d_v, 2), a.row_stride[2],
                                p, a.k_rows);
}

// ------------------------------------------------------------------ gradients of a short head

// A head whose queries and keys all fit on the chip: one block for it, all of whose operands come
// at once, and which computes the weights only once. Its warps have rows of keys, and then, of
// d_S, which they exchange through shared memory, rows of queries.

#define SHORT 128 // queries, and keys, at most

template <class TILES, int D, int R> struct short_tiles { // R: queries, and keys: 64 or 128
    using T = typename TILES::element;
    static constexpr int THREADS_OF = R / 16 * WARP;
    static constexpr int TILE = R * TILES::STRIDE, D_S_STRIDE = R + VEC<T>;
    alignas(16) T q[TILE];
    T k[TILE], v[TILE], d_y[TILE], d_s[R * D_S_STRIDE];
    float lse[R], delta[R];
};

// The row sums of d_y * y: two threads have a row. d_y is on its way when this asks for y.
template <class TILES, int D, int R>
static DEV_INLINE void short_deltas(short_tiles<TILES, D, R> &m, const struct k_attn_train &t,
                                    const place &p)
{
    using T = typename TILES::element;
    const struct k_attn &a = t.a;
    const int r = threadIdx.x / 2, half = threadIdx.x % 2 * (D / 2);
    const bool is_there = r < a.q_rows;
    const T *y =
        plain_head_of(a, p, (const T *)a.y, a.q_rows) + (is_there ? r : 0) * a.heads * D + half;
    float v[D / 2 / VEC<T>][VEC<T>], sum = 0;

#pragma unroll
    for (int i = 0; i < D / 2 / VEC<T>; i++)
        load_f<VEC<T>>(y + i * VEC<T>, v[i]);
    copies_wait<0>();
    __syncthreads();
#pragma unroll
    for (int i = 0; i < D / 2 / VEC<T>; i++) {
        float g[VEC<T>];

        load_f<VEC<T>>(m.d_y + r * TILES::STRIDE + TILES::column(r, half + i * VEC<T>), g);
#pragma unroll
        for (int e = 0; e < VEC<T>; e++)
            sum += g[e] * v[i][e];
    }
    sum += __shfl_xor_sync(0xffffffffu, sum, 1);
    if (half == 0)
        m.delta[r] = is_there ? sum : 0;
}

// d_S of the warp's keys by the queries from `from` on, to where rows are queries.
template <class TILES, int D, int R, int N>
static DEV_INLINE void store_d_scores(short_tiles<TILES, D, R> &m, const float (&g)[N][4], int from)
{
    using T = typename TILES::element;
    const int lane = threadIdx.x % WARP, key = threadIdx.x / WARP * 16 + lane / 4;

#pragma unroll
    for (int j = 0; j < N; j++)
#pragma unroll
        for (int e = 0; e < 4; e++)
            m.d_s[(from + 8 * j + 2 * (lane % 4) + e % 2) * m.D_S_STRIDE + key + e / 2 * 8] =
                grad_f<T>(g[j][e]);
}

// d_q of the warp's queries, without scale
template <class TILES, int D, int R>
static DEV_INLINE void short_d_queries(float (&d_q)[D / 8][4], const short_tiles<TILES, D, R> &m,
                                       int64_t k_rows)
{
    using T = typename TILES::element;
    constexpr int KEYS = TILES::KEYS;
    const int lane = threadIdx.x % WARP, row = threadIdx.x / WARP * 16 + lane / 4;

    clear(d_q);
#pragma unroll 1
    for (int from = 0; from < k_rows; from += KEYS) {
        float s[KEYS / 8][4];

#pragma unroll
        for (int j = 0; j < KEYS / 8; j++)
#pragma unroll
            for (int i = 0; i < 2; i++) {
                float pair[2];

                load_f<2>(m.d_s + (row + 8 * i) * m.D_S_STRIDE + from + 8 * j + 2 * (lane % 4),
                          pair);
                s[j][2 * i] = pair[0];
                s[j][2 * i + 1] = pair[1];
            }
        TILES::values(d_q, s, m.k + from * TILES::STRIDE);
    }
}

// The whole d_S, which lies in shared memory.
template <class TILES, int D, int R>
static DEV_INLINE void store_short_d_mask(const short_tiles<TILES, D, R> &m,
                                          const struct k_attn_train &t, const place &p)
{
    using T = typename TILES::element;
    const int keys = (int)t.a.k_rows, n = (int)t.a.q_rows * keys;
    T *to = (T *)t.d_mask + drop_line(t, p, 0) * keys;

    for (int i = threadIdx.x; i < n; i += m.THREADS_OF)
        to[i] = m.d_s[i / keys * m.D_S_STRIDE + i % keys];
}

template <class TILES, int D, int R>
static __global__ void __launch_bounds__(R / 16 * WARP)
    attn_d_short(const __grid_constant__ struct k_attn_train t)
{
    extern __shared__ __align__(16) unsigned char smem[];
    using T = typename TILES::element;
    constexpr int KEYS = TILES::KEYS, STRIDE = TILES::STRIDE;
    constexpr int NT = short_tiles<TILES, D, R>::THREADS_OF;
    short_tiles<TILES, D, R> &m = *reinterpret_cast<short_tiles<TILES, D, R> *>(smem);
    const struct k_attn &a = t.a;
    const place p = place_of(a, 1, 1);
    const int64_t key = threadIdx.x / WARP * 16 + threadIdx.x % WARP / 4, row = a.heads * D;
    const float scale[2] = {a.scale, a.scale}, one[2] = {1, 1};
    const float mask[2] = {key_mask(a, p, key), key_mask(a, p, key + 8)};
    typename TILES::operand fk, fv;
    float d_k[D / 8][4], d_v[D / 8][4];

    copy_rows<TILES, R, D, NT>(m.q, head_of<T>(a, p, 0), a.row_stride[0], a.q_rows);
    copy_rows<TILES, R, D, NT>(m.k, head_of<T>(a, p, 1), a.row_stride[1], a.k_rows);
    copy_rows<TILES, R, D, NT>(m.v, head_of<T>(a, p, 2), a.row_stride[2], a.k_rows);
    copy_rows<TILES, R, D, NT>(m.d_y, plain_head_of(a, p, (const T *)t.d_y, a.q_rows), row,
                               a.q_rows);
    copies_commit();
    if (threadIdx.x < R)
        m.lse[threadIdx.x] = lse_of(t, p, threadIdx.x);
    short_deltas(m, t, p);
    TILES::load(fk, m.k);
    TILES::load(fv, m.v);
    clear(d_k);
    clear(d_v);
    __syncthreads();
#pragma unroll 1
    for (int from = 0; from < a.q_rows; from += KEYS) {
        float s[KEYS / 8][4], g[KEYS / 8][4];

        TILES::scores(s, fk, m.q + from * STRIDE);
        TILES::scores(g, fv, m.d_y + from * STRIDE);
        d_scores_of_columns(s, g, t, p, key, from, m.lse + from, m.delta + from, mask);
        TILES::values(d_v, s, m.d_y + from * STRIDE);
        TILES::values(d_k, g, m.q + from * STRIDE);
        store_d_scores(m, g, from);
    }
    __syncthreads(); // d_S is there; q, v and d_y are no longer needed
    store_rows<D, STRIDE, true>(d_k, scale, m.d_y, gradient_of<T>(a, p, t.d_k, 1), a.row_stride[1],
                                p, a.k_rows);
    store_rows<D, STRIDE, true>(d_v, one, m.v, gradient_of<T>(a, p, t.d_v, 2), a.row_stride[2], p,
                                a.k_rows);
    if (t.d_mask)
        store_short_d_mask(m, t, p);
    short_d_queries(d_v, m, a.k_rows);
    store_rows<D, STRIDE, true>(d_v, scale, m.q, gradient_of<T>(a, p, t.d_q, 0), a.row_stride[0], p,
                                a.q_rows);
}

// ------------------------------------------------------------------ launching

template <class TILES, int D> static void run_forward(cudaStream_t s, const struct k_attn_train *t)
{
    launch(s, attn_train<TILES, D>, blocks_of(&t->a, t->a.q_rows, ROWS),
           sizeof(forward_tiles<TILES>), t);
}

template <class TILES, int D, int R>
static void run_short(cudaStream_t s, const struct k_attn_train *t)
{
    launch(s, attn_d_short<TILES, D, R>, t->a.batch * t->a.heads, sizeof(short_tiles<TILES, D, R>),
           t, short_tiles<TILES, D, R>::THREADS_OF);
}

template <class TILES, int D> static void run_backward(cudaStream_t s, const struct k_attn_train *t)
{
    const size_t smem = sizeof(backward_tiles<TILES, D>);

    if (t->a.q_rows <= SHORT / 2 && t->a.k_rows <= SHORT / 2) {
        run_short<TILES, D, SHORT / 2>(s, t);
        return;
    }
    if (t->a.q_rows <= SHORT && t->a.k_rows <= SHORT) {
        run_short<TILES, D, SHORT>(s, t);
        return;
    }
    launch(s, attn_d_queries<TILES, D>, blocks_of(&t->a, t->a.q_rows, ROWS), smem, t);
    launch(s, attn_d_keys<TILES, D>, blocks_of(&t->a, t->a.k_rows, ROWS), smem, t);
}

template <template <int> class TILES, int D>
static void run_width(cudaStream_t s, const struct k_attn_train *t)
{
    if (t->d_y)
        run_backward<TILES<D>, D>(s, t);
    else
        run_forward<TILES<D>, D>(s, t);
}

template <template <int> class TILES>
static void run_kernel(cudaStream_t s, const struct k_attn_train *t)
{
    switch (t->a.width) {
#define CASE(D)                    \
    case D:                        \
        run_width<TILES, D>(s, t); \
        break;
        CASE(16)
        CASE(32)
        CASE(48)
        CASE(64)
#undef CASE
    default:
        break;
    }
}

bool k_attention_train_fits(const struct k_attn *a)
{
    return a->width % 16 == 0 && a->width <= DEV_MAX_TRAIN_WIDTH &&
           a->batch * a->heads * cdiv64(a->q_rows > a->k_rows ? a->q_rows : a->k_rows, ROWS) <
               (int64_t)1 << 31;
}

void k_attention_train(cudaStream_t s, const struct k_attn_train *t)
{
    if (t->a.type == CUDA_T_F16)
        run_kernel<tiles_f16>(s, t);
    else if (t->a.type == CUDA_T_BF16)
        run_kernel<tiles_bf16>(s, t);
    else if (t->a.may_round)
        run_kernel<tiles32>(s, t);
    else
        run_kernel<tiles_exact>(s, t);
}
