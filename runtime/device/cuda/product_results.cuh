/* product_results.cuh - from the sums of a block (product.cu) to its results.
 *
 *   registers      where 16 bytes of y are neighbouring channels: a thread has their sums and
 *                  stores these bytes as they are, by a finisher (product_finish.cuh)
 *   shared memory  everything else, row by row
 */
#ifndef SH_RUNTIME_DEVICE_CUDA_PRODUCT_RESULTS_CUH
#define SH_RUNTIME_DEVICE_CUDA_PRODUCT_RESULTS_CUH

#include "runtime/device/cuda/product_finish.cuh"

#define THREADS 256
#define BM 128
#define BK 128

struct shape {
    int rows, channels, terms; // of the product of matrices
    int h, w, c, m, s, p, q;
    int stride_h, stride_w, dil_h, dil_w, pad_h, pad_w;
    int groups, taps;
    fast_div by_c, by_s, by_pq, by_q;
    uint32_t zero4; // four times the zero point of x
};

template <int BN> struct tile {
    static constexpr int PITCH = BN + 8; // of sums, in words
    static constexpr int STAGE = (BM + BN) * BK, SUMS = BM * PITCH * 4;
};
template <int BN> struct side { // of a block, in front of its stages
    float factor[BN], offset[BN];
    uint64_t barriers[16]; // of a stream
};

// ------------------------------------------------------------------ through shared memory

// The sums of this thread's warp group go to shared memory, row by row.
template <int BN> DEV_INLINE void spill(const int32_t (&sum)[BN / 2], int32_t *to)
{
    const int lane = threadIdx.x % WARP, row = threadIdx.x / WARP * 16 + lane / 4;

#pragma unroll
    for (int j = 0; j < BN / 8; j++) {
        int32_t *at = to + row * tile<BN>::PITCH + 8 * j + lane % 4 * 2;

        *reinterpret_cast<int2 *>(at) = make_int2(sum[4 * j], sum[4 * j + 1]);
        *reinterpret_cast<int2 *>(at + 8 * tile<BN>::PITCH) =
            make_int2(sum[4 * j + 2], sum[4 * j + 3]);
    }
}

template <int V>
DEV_INLINE void vectors_of(const tail &t, int channels, int column, float (&factor)[V],
                           float (&offset)[V], int32_t (&less)[V])
{
#pragma unroll
    for (int i = 0; i < V; i++) {
        const bool is_there = column + i < channels;

        factor[i] = t.factor && is_there ? t.factor[column + i] : 0;
        offset[i] = t.offset && is_there ? t.offset[column + i] : 0;
        less[i] = t.sums && is_there ? t.sums[column + i] : 0;
    }
}

// Where a thread works on a tile: four neighbouring channels of a row, then of the row `step` on.
template <int BN> struct lanes {
    static constexpr int PER_ROW = BN / 4 < WARP ? BN / 4 : WARP, AT_ONCE = WARP / PER_ROW;
    static constexpr int STEP = THREADS / WARP * AT_ONCE, ROWS = BM / STEP;

    static DEV_INLINE int first_row()
    {
        return threadIdx.x / WARP * AT_ONCE + threadIdx.x % WARP / PER_ROW;
    }
    static DEV_INLINE int first_column()
    {
        return threadIdx.x % WARP % PER_ROW * 4;
    }
};

template <int BN>
DEV_INLINE void load_sums(const int32_t *sums, int row, int column, const int32_t (&less)[4],
                          int32_t (&sum)[4])
{
    const int4 raw = *reinterpret_cast<const int4 *>(sums + row * tile<BN>::PITCH + column);

    sum[0] = raw.x - less[0];
    sum[1] = raw.y - less[1];
    sum[2] = raw.z - less[2];
    sum[3] = raw.w - less[3];
}

// Rows of sums in shared memory become results.
template <int BN>
DEV_INLINE void finish_tile(const shape &s, const tail &t, const int32_t *sums, int row0,
                            int column0)
{
    for (int c = lanes<BN>::first_column(); c < BN; c += lanes<BN>::PER_ROW * 4) {
        const int column = column0 + c;
        float factor[4], offset[4];
        int32_t less[4], sum[4];

        if (column >= s.m)
            continue;
        vectors_of<4>(t, s.m, column, factor, offset, less);
#pragma unroll 2
        for (int r = lanes<BN>::first_row(); r < BM && row0 + r < s.rows; r += lanes<BN>::STEP) {
            const int64_t at = (int64_t)(row0 + r) * s.m + column;

            load_sums<BN>(sums, r, c, less, sum);
            if (s.m % 4 == 0) {
                finish<4>(t, sum, factor, offset, at);
                continue;
            }
#pragma unroll
            for (int i = 0; i < 4; i++) {
                const int32_t one[1] = {sum[i]};
                const float f[1] = {factor[i]}, o[1] = {offset[i]};

                if (column + i < s.m)
                    finish<1>(t, one, f, o, at + i);
            }
        }
    }
}

// ------------------------------------------------------------------ results from registers

// Where the numbers of channel i of the tile stand: threads of a warp read those of four channels
// each, one beside the other.
template <int W> DEV_INLINE int place_of(int i)
{
    return i - i % (4 * W) + i % W / 4 * 16 + i % (4 * W) / W * 4 + i % 4;
}

template <int BN, int W>
DEV_INLINE void load_vectors(const shape &s, const tail &t, int column0, side<BN> &to)
{
    const int i = threadIdx.x, at = place_of<W>(i);
    float factor[1], offset[1];
    int32_t less[1];

    if (i >= BN)
        return;
    vectors_of<1>(t, s.m, column0 + i, factor, offset, less);
    offset[0] = fmaf(-(float)less[0], factor[0], offset[0]); // of a sum that is still too large
    to.factor[at] = factor[0] * t.in_scale;
    to.offset[at] = fmaf(offset[0], t.in_scale, t.in_shift);
}

// What a thread has of a tile: 16 bytes of y in each of two rows, eight apart, in every group of
// 4 W channels.
template <int BN, int W> struct mine {
    static constexpr int GROUPS = BN / (4 * W);
    int64_t at;         // of the first results
    int rows, channels; // that there are from there on

    DEV_INLINE mine(const shape &s, int row0, int column0)
    {
        const int row = row0 + threadIdx.x / WARP * 16 + threadIdx.x % WARP / 4;
        const int column = column0 + threadIdx.x % 4 * W;

        at = (int64_t)row * s.m + column;
        rows = s.rows - row;
        channels = s.m - column;
    }
    DEV_INLINE bool has(int group, int half) const
    {
        return half * 8 < rows && group * 4 * W < channels;
    }
    DEV_INLINE int64_t place(const shape &s, int group, int half) const
    {
        return at + (int64_t)half * 8 * s.m + group * 4 * W;
    }
};

template <int BN, int W> struct residuals {
    uint4 v[mine<BN, W>::GROUPS][2];

    DEV_INLINE void load(const shape &s, const tail &t, const mine<BN, W> &m)
    {
#pragma unroll
        for (int g = 0; g < mine<BN, W>::GROUPS; g++)
#pragma unroll
            for (int h = 0; h < 2; h++)
                v[g][h] = t.residual.p && m.has(g, h)
                              ? *reinterpret_cast<const uint4 *>((const char *)t.residual.p +
                                                                 m.place(s, g, h) * (16 / W))
                              : make_uint4(0, 0, 0, 0);
    }
};

DEV_INLINE uint32_t word_of(const uint4 &v, int i)
{
    return i == 0 ? v.x : i == 1 ? v.y : i == 2 ? v.z : v.w;
}

template <int BN, int W, class F>
DEV_INLINE void finish_group(const shape &s, const tail &t, const side<BN> &side,
                             const mine<BN, W> &m, const residuals<BN, W> &r,
                             const int32_t (&sum)[BN / 2], int g)
{
    uint32_t words[2][4];
    float floats[2][W];

#pragma unroll
    for (int q = 0; q < W / 4; q++) { // channels 4 q on of the W
        const int from = g * 4 * W + q * 16 + threadIdx.x % 4 * 4;
        const vec<float, 4> f = load_vec<4>(side.factor + from),
                            o = load_vec<4>(side.offset + from);

#pragma unroll
        for (int h = 0; h < 2; h++) {
            const int j = 4 * (g * (W / 2) + 2 * q) + 2 * h;
            const int32_t four[4] = {sum[j], sum[j + 1], sum[j + 4], sum[j + 5]};

            if constexpr (W == 16) {
                words[h][q] = F::bytes(t, four, f.v, o.v, word_of(r.v[g][h], q) ^ t.residual_flip4);
            } else {
                const uint2 raw = q == 0 ? make_uint2(r.v[g][h].x, r.v[g][h].y)
                                         : make_uint2(r.v[g][h].z, r.v[g][h].w);
                float v[4];

                F::floats(t, four, f.v, o.v, raw, v);
#pragma unroll
                for (int i = 0; i < 4; i++)
                    floats[h][4 * q + i] = v[i];
            }
        }
    }
#pragma unroll
    for (int h = 0; h < 2; h++)
        if (m.has(g, h)) {
            typename F::Y *to = (typename F::Y *)t.y.p + m.place(s, g, h);

            if constexpr (W == 16)
                *reinterpret_cast<uint4 *>(to) =
                    make_uint4(words[h][0], words[h][1], words[h][2], words[h][3]);
            else
                store_f<W>(to, floats[h]);
        }
}

template <int BN, int W, class F>
DEV_INLINE void finish_all(const shape &s, const tail &t, const side<BN> &side,
                           const mine<BN, W> &m, const residuals<BN, W> &r,
                           const int32_t (&sum)[BN / 2])
{
#pragma unroll
    for (int g = 0; g < mine<BN, W>::GROUPS; g++)
        finish_group<BN, W, F>(s, t, side, m, r, sum, g);
}

template <int BN, int W>
DEV_INLINE void finish_mine(const shape &s, const tail &t, const side<BN> &side,
                            const mine<BN, W> &m, const residuals<BN, W> &r,
                            const int32_t (&sum)[BN / 2])
{
#define FINISH(...) finish_all<BN, W, finisher<__VA_ARGS__>>(s, t, side, m, r, sum)
    if constexpr (W == 16) {
        switch (t.kind) {
        case BYTES_ALONE:
            FINISH(uint8_t, NO_RESIDUAL, false, false);
            break;
        case BYTES_MID:
            FINISH(uint8_t, NO_RESIDUAL, true, false);
            break;
        case BYTES_SUM:
            FINISH(uint8_t, BYTES, false, false);
            break;
        case BYTES_MID_SUM:
            FINISH(uint8_t, BYTES, true, false);
            break;
        default:
            FINISH(uint8_t, NO_RESIDUAL, false, true);
        }
    } else {
        switch (t.kind) {
        case F16_ALONE:
            FINISH(f16, NO_RESIDUAL, false, false);
            break;
        case F16_SUM:
            FINISH(f16, SAME, false, false);
            break;
        case BF16_ALONE:
            FINISH(bf16, NO_RESIDUAL, false, false);
            break;
        default:
            FINISH(bf16, SAME, false, false);
        }
    }
#undef FINISH
}

#endif
