// unpack.cu - weights that came packed, as kernels want them (runtime/pack/pack.h).
//
// A launch has many layers, and as many blocks of threads as the device runs at a time. Each of
// them looks at the heads of all layers, and its warps then take blocks of numbers in turns: each
// word is read once, goes into the sum and into numbers. So a block whose sum is not right has been
// written when that is found; but what its entry says is not believed where it would lead out of
// the layer, and nobody computes with it.
//
// Escapes of a lane follow those of the lanes before it, so a scan of their counts says where they
// are. Up to eight, which nearly all lanes have at most, come in one window of 64 bits.
#include "runtime/device/cuda/kernels_unpack.h"

#include <cuda_runtime.h>

#define WARPS 8
#define BLOCKS_PER_SM 3
#define ALL 0xffffffffu
#define WINDOW 8u // escapes of a lane that come at once

struct form_f32 {
    static constexpr uint32_t WIDE = 4, M_BITS = 23, ZEROES = 0;
};
struct form_tf32 {
    static constexpr uint32_t WIDE = 4, M_BITS = 10, ZEROES = 13;
};
struct form_f16 {
    static constexpr uint32_t WIDE = 2, M_BITS = 10, ZEROES = 0;
};
struct form_bf16 {
    static constexpr uint32_t WIDE = 2, M_BITS = 7, ZEROES = 0;
};
template <typename F> constexpr uint32_t N_WORDS = PACK_CODE_BITS + 1 + F::M_BITS;

// Eight bytes from an address that need not be aligned; of what lies behind `end`, a multiple of 4,
// nothing is read.
__device__ __forceinline__ uint2 read_window(const unsigned char *at, const unsigned char *end)
{
    const uint32_t shift = (uint32_t)(uintptr_t)at % 4 * 8;
    const uint32_t *p = (const uint32_t *)(at - (uintptr_t)at % 4), *e = (const uint32_t *)end;
    const uint32_t x = p < e ? p[0] : 0, y = p + 1 < e ? p[1] : 0, z = p + 2 < e ? p[2] : 0;

    return make_uint2(__funnelshift_r(x, y, shift), __funnelshift_r(y, z, shift));
}

struct found { // escapes of a lane in a half
    const unsigned char *at;
    uint2 window;
    uint32_t n, total; // total: of all lanes
};

__device__ __forceinline__ found find_escapes(uint32_t mask, const unsigned char *escapes,
                                              const unsigned char *end, uint32_t lane)
{
    found f;
    uint32_t before = __popc(mask);

    f.n = before;
#pragma unroll
    for (uint32_t d = 1; d < PACK_LANES; d *= 2) {
        const uint32_t other = __shfl_up_sync(ALL, before, d);

        before += lane >= d ? other : 0;
    }
    f.total = __shfl_sync(ALL, before, PACK_LANES - 1);
    f.at = escapes + before - f.n;
    f.window = f.n ? read_window(f.at, end) : make_uint2(0, 0);
    return f;
}

__device__ __forceinline__ uint32_t mix_in_escapes(uint32_t h, const found &f)
{
    for (uint32_t at = 0; at < f.n; at += 4) {
        const uint32_t left = f.n - at;
        uint32_t word = at == 0 ? f.window.x : f.window.y;

        if (at >= WINDOW)
            word = f.at[at] | (left > 1 ? f.at[at + 1] << 8 : 0) |
                   (left > 2 ? f.at[at + 2] << 16 : 0) | (left > 3 ? f.at[at + 3] << 24 : 0);
        h = pack_mix(h, left >= 4 ? word : word & ((1u << left * 8) - 1));
    }
    return h;
}

// A field of n_bits at a bit that is known when this is compiled, moved to bit `to`; what else is
// in the result is for the caller to mask.
template <uint32_t N>
__device__ __forceinline__ uint32_t bits_to(const uint32_t (&w)[N], uint32_t first, uint32_t bit,
                                            uint32_t n_bits, uint32_t to)
{
    const uint32_t k = first + bit / 32, s = bit % 32;

    if (s + n_bits > 32)
        return __funnelshift_r(w[k], w[k + 1], s) << to;
    return s >= to ? w[k] >> (s - to) : w[k] << (to - s);
}

// Exponents of eight numbers, group s of the lane, in the bytes of two words.
template <uint32_t N>
__device__ __forceinline__ uint2 exponents(const uint32_t (&w)[N], uint32_t s, uint2 table,
                                           const found &f, uint32_t &n_used)
{
    const uint32_t each = 0x11111111u;
    const uint32_t a = w[0] >> s & each, b = w[1] >> s & each, c = w[2] >> s & each;
    const uint32_t codes = a | b << 1 | c << 2;
    uint32_t escapes = a & b & c;
    uint2 e = make_uint2(__byte_perm(table.x, table.y, codes & 0xffff),
                         __byte_perm(table.x, table.y, codes >> 16));

    while (escapes) { // the table has a 0 for them
        const uint32_t j = (__ffs(escapes) - 1) / 4;
        uint32_t x = n_used < 4 ? f.window.x >> n_used * 8 : f.window.y >> (n_used * 8 & 31);

        if (n_used >= WINDOW)
            x = f.at[n_used];
        n_used++;
        x = (x & 0xff) << j % 4 * 8;
        e.x |= j < 4 ? x : 0;
        e.y |= j < 4 ? 0 : x;
        escapes &= escapes - 1;
    }
    return e;
}

// Number i of the lane as it is stored; e: its exponent in byte i % 4.
template <typename F>
__device__ __forceinline__ uint32_t number_at(const uint32_t (&w)[N_WORDS<F>], uint32_t i,
                                              uint32_t e)
{
    constexpr uint32_t TOP = F::WIDE * 8 - 1, E_AT = F::ZEROES + F::M_BITS;
    constexpr uint32_t M_MASK = ((1u << F::M_BITS) - 1) << F::ZEROES;
    constexpr uint32_t E_MASK = (1u << TOP) - 1 - ((1u << E_AT) - 1);
    const uint32_t bit = i * (F::M_BITS + 1), at = i % 4 * 8;
    const uint32_t m = bits_to(w, PACK_CODE_BITS, bit, F::M_BITS, F::ZEROES) & M_MASK;
    const uint32_t sign = bits_to(w, PACK_CODE_BITS, bit + F::M_BITS, 1, TOP) & 1u << TOP;

    return m | sign | ((at >= E_AT ? e >> (at - E_AT) : e << (E_AT - at)) & E_MASK);
}

template <typename F>
__device__ __forceinline__ void read_half(uint32_t (&w)[N_WORDS<F>], const uint32_t *planes,
                                          uint32_t lane)
{
#pragma unroll
    for (uint32_t j = 0; j < N_WORDS<F>; j++)
        w[j] = planes[j * PACK_LANES + lane];
}

template <typename F>
__device__ __forceinline__ void write_half(const uint32_t (&w)[N_WORDS<F>], uint2 table,
                                           const found &f, uint32_t n, unsigned char *to,
                                           uint32_t lane)
{
    constexpr uint32_t V = 16 / F::WIDE;
    uint32_t n_used = 0;

#pragma unroll
    for (uint32_t s = 0; s < 4; s++) {
        const uint2 e = exponents(w, s, table, f, n_used);

#pragma unroll
        for (uint32_t q = 0; q < 8 / V; q++) {
            const uint32_t first = ((s * 8 / V + q) * PACK_LANES + lane) * V;
            uint32_t out[4];

#pragma unroll
            for (uint32_t k = 0; k < 4; k++) {
                const uint32_t i = s * 8 + q * V + (F::WIDE == 4 ? k : 2 * k);

                out[k] = number_at<F>(w, i, i % 8 < 4 ? e.x : e.y);
                if (F::WIDE == 2)
                    out[k] |= number_at<F>(w, i + 1, i % 8 < 4 ? e.x : e.y) << 16;
            }
            if (first + V <= n) {
                *(uint4 *)(to + first * F::WIDE) = make_uint4(out[0], out[1], out[2], out[3]);
                continue;
            }
#pragma unroll
            for (uint32_t k = 0; k < V; k++)
                if (first + k < n && F::WIDE == 4)
                    ((uint32_t *)to)[first + k] = out[k % 4];
                else if (first + k < n)
                    ((uint16_t *)to)[first + k] = (uint16_t)(out[k / 2 % 4] >> k % 2 * 16);
        }
    }
}

template <typename F>
__device__ bool unpack_numbers(const k_unpack_layer &l, const pack_block &b, uint32_t h,
                               uint32_t lane)
{
    const uint32_t n_halves = b.n > PACK_HALF ? 2 : 1;
    const uint64_t planes = (uint64_t)b.planes * PACK_ALIGN, to = (uint64_t)b.to * PACK_UNIT;
    const uint32_t *words = (const uint32_t *)(l.packed + planes);
    const unsigned char *escapes = l.packed + b.escapes, *end = l.packed + l.packed_bytes;
    const uint2 table = *(const uint2 *)b.table;

    if (b.n == 0 || b.n > PACK_BLOCK || to + b.n * F::WIDE > l.bytes ||
        planes + n_halves * N_WORDS<F> * PACK_LANES * sizeof(uint32_t) > l.packed_bytes ||
        (uint64_t)b.escapes + b.n_escapes[0] + b.n_escapes[1] > l.packed_bytes)
        return false;
    for (uint32_t k = 0; k < n_halves; k++) {
        uint32_t w[N_WORDS<F>];

        read_half<F>(w, words + k * N_WORDS<F> * PACK_LANES, lane);
        const found f = find_escapes(w[0] & w[1] & w[2], escapes + k * b.n_escapes[0], end, lane);
        if (f.total != b.n_escapes[k]) // as all lanes see it: they are not there to be read
            return false;
#pragma unroll
        for (uint32_t j = 0; j < N_WORDS<F>; j++)
            h = pack_mix(h, w[j]);
        h = mix_in_escapes(h, f);
        write_half<F>(w, table, f, b.n - k * PACK_HALF, l.to + to + k * PACK_HALF * F::WIDE, lane);
    }
    return __reduce_add_sync(ALL, pack_join(h, lane)) == b.sum;
}

__device__ bool unpack_kept(const k_unpack_layer &l, const pack_block &b, uint32_t h, uint32_t lane)
{
    const uint64_t planes = (uint64_t)b.planes * PACK_ALIGN, to = (uint64_t)b.to * PACK_UNIT;
    const uint32_t n = b.n, all = (n + 15) / 16;
    const uint4 *from = (const uint4 *)(l.packed + planes);

    if (n == 0 || n > PACK_RAW_BYTES || planes + all * 16 > l.packed_bytes || to + n > l.bytes)
        return false;
    for (uint32_t i = lane; i < all; i += PACK_LANES) {
        const uint4 q = from[i];

        h = pack_mix(pack_mix(pack_mix(pack_mix(h, q.x), q.y), q.z), q.w);
    }
    if (__reduce_add_sync(ALL, pack_join(h, lane)) != b.sum)
        return false;
    for (uint32_t i = lane; i < all; i += PACK_LANES)
        if ((i + 1) * 16 <= n)
            ((uint4 *)(l.to + to))[i] = from[i];
        else
            for (uint32_t k = i * 16; k < n; k++)
                l.to[to + k] = l.packed[planes + k];
    return true;
}

__device__ __forceinline__ bool unpack_one(const k_unpack_layer &l, const pack_block *entry,
                                           uint32_t lane)
{
    union {
        uint4 q[2];
        uint32_t w[8];
        pack_block b;
    } u;
    uint32_t h = 0;

    u.q[0] = ((const uint4 *)entry)[0];
    u.q[1] = ((const uint4 *)entry)[1];
#pragma unroll
    for (int i = 0; i < 7; i++)
        h = pack_mix(h, u.w[i]);
    switch (u.b.kind) {
    case PACK_KEPT:
        return unpack_kept(l, u.b, h, lane);
    case PACK_KIND_F32:
        return unpack_numbers<form_f32>(l, u.b, h, lane);
    case PACK_KIND_TF32:
        return unpack_numbers<form_tf32>(l, u.b, h, lane);
    case PACK_KIND_F16:
        return unpack_numbers<form_f16>(l, u.b, h, lane);
    case PACK_KIND_BF16:
        return unpack_numbers<form_bf16>(l, u.b, h, lane);
    default:
        return false;
    }
}

// How many blocks a layer says that it has; 0 if what it says cannot be.
__device__ uint32_t look_at_head(const k_unpack_layer &l, uint32_t *damaged)
{
    const pack_head *head = (const pack_head *)l.packed;
    const uint32_t *words = (const uint32_t *)l.packed;
    uint32_t sum = 0;

    for (uint32_t i = 0; i + 1 < sizeof(*head) / sizeof(*words); i++)
        sum = pack_mix(sum, words[i]);
    if (head->magic == PACK_MAGIC && head->sum == sum && head->bytes == l.bytes &&
        head->packed_bytes == l.packed_bytes &&
        sizeof(*head) + (uint64_t)head->n_blocks * sizeof(pack_block) <= l.packed_bytes)
        return head->n_blocks;
    *damaged = 1;
    return 0;
}

// Each of n becomes the sum of all up to it; by one warp.
__device__ __forceinline__ void add_up_blocks(uint32_t *v, uint32_t n, uint32_t lane)
{
    constexpr uint32_t EACH = K_MAX_UNPACKS / PACK_LANES;
    uint32_t x[EACH], sum = 0;

#pragma unroll
    for (uint32_t k = 0; k < EACH; k++)
        x[k] = sum += lane * EACH + k < n ? v[lane * EACH + k] : 0;
    const uint32_t own = sum;
#pragma unroll
    for (uint32_t d = 1; d < PACK_LANES; d *= 2) {
        const uint32_t other = __shfl_up_sync(ALL, sum, d);

        sum += lane >= d ? other : 0;
    }
#pragma unroll
    for (uint32_t k = 0; k < EACH; k++)
        if (lane * EACH + k < n)
            v[lane * EACH + k] = sum - own + x[k];
}

// The first of n layers that ends behind block i, which one does.
__device__ __forceinline__ uint32_t layer_of(const uint32_t *ends, uint32_t n, uint32_t i)
{
    uint32_t low = 0;

    while (n > 1) {
        const uint32_t half = n / 2;

        low += ends[low + half - 1] <= i ? half : 0;
        n -= half;
    }
    return low;
}

__global__ void __launch_bounds__(WARPS *PACK_LANES, BLOCKS_PER_SM)
    unpack(const __grid_constant__ k_unpacks all, uint32_t *damaged)
{
    __shared__ uint32_t ends[K_MAX_UNPACKS]; // of each layer's blocks among all
    const uint32_t lane = threadIdx.x % PACK_LANES, warp = threadIdx.x / PACK_LANES;

    if (threadIdx.x < all.n)
        ends[threadIdx.x] = look_at_head(all.layers[threadIdx.x], damaged);
    __syncthreads();
    if (warp == 0)
        add_up_blocks(ends, all.n, lane);
    __syncthreads();
    for (uint32_t i = blockIdx.x * WARPS + warp; i < ends[all.n - 1]; i += gridDim.x * WARPS) {
        const uint32_t k = layer_of(ends, all.n, i);
        const k_unpack_layer l = all.layers[k];
        const uint32_t first = k ? ends[k - 1] : 0;

        if (!unpack_one(l, (const pack_block *)(l.packed + sizeof(pack_head)) + (i - first), lane))
            *damaged = 1;
    }
}

void k_unpack(cudaStream_t s, const struct k_unpacks *all, uint32_t *damaged, int n_sms)
{
    const uint64_t per_block = WARPS * PACK_BLOCK * 2; // bytes of 16-bit numbers
    uint64_t bytes = 0;

    for (uint32_t i = 0; i < all->n; i++)
        bytes += all->layers[i].bytes + PACK_BLOCK * 2;
    if (all->n == 0)
        return;
    const uint64_t wanted = (bytes + per_block - 1) / per_block,
                   most = (uint64_t)n_sms * BLOCKS_PER_SM;

    unpack<<<(unsigned)(wanted < most ? wanted : most), WARPS * PACK_LANES, 0, s>>>(*all, damaged);
}
