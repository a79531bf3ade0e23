// attn_tiles.cuh - tiles of rows in shared memory and the two products of them in attention.
//
//   tiles16      F16, BF16     tensor cores, m16n8k16
//   tiles32      F32 as TF32   tensor cores, m16n8k8
//   tiles_exact  F32           plain multiplications
//
// They have in common:
//
//   column(row, c)    where column c of a row lies in the row
//   load(x, tile)     the warp's 16 rows of a tile, as the first operand of
//   scores(s, x, k)   s[16, KEYS] = x k^T, k a tile of KEYS rows
//   values(o, s, v)   o[16, D] += s[16, KEYS] v, v a tile of KEYS rows
#ifndef SH_RUNTIME_DEVICE_CUDA_ATTN_TILES_CUH
#define SH_RUNTIME_DEVICE_CUDA_ATTN_TILES_CUH

#include "runtime/device/cuda/attn_block.cuh"
#include "runtime/device/cuda/mma.cuh"

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

// The first operand is rounded to TF32; of the second the hardware drops the bits that are too
// many, as it does in cuBLAS's products: rounding it takes longer than the product.
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

template <int D> using tiles_f16 = tiles16<f16, D>;
template <int D> using tiles_bf16 = tiles16<bf16, D>;

#endif
