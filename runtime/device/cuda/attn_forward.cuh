// attn_forward.cuh - attention of one block's queries to all keys, by online softmax.
#ifndef SH_RUNTIME_DEVICE_CUDA_ATTN_FORWARD_CUH
#define SH_RUNTIME_DEVICE_CUDA_ATTN_FORWARD_CUH

#include "runtime/device/cuda/attn_tiles.cuh"

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
        clear(o);
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

    // The sums over all keys, of both rows, and what their values are multiplied with.
    DEV_INLINE void totals(float (&all)[2], float (&factor)[2], const struct k_attn &a) const
    {
#pragma unroll
        for (int i = 0; i < 2; i++) {
            all[i] = sum[i] + __shfl_xor_sync(0xffffffffu, sum[i], 1);
            all[i] += __shfl_xor_sync(0xffffffffu, all[i], 2);
            factor[i] = a.zero_hidden && all[i] == 0 ? 0 : 1 / all[i];
        }
    }
};

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

#endif
