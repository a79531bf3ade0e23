// unpack.cu - weights that came packed, as kernels want them (runtime/pack/pack.h).
//
// A launch has many layers, and as many blocks of threads as the device runs at a time. Each of
// them looks at the heads of all layers, and its warps then take blocks of numbers in turns: each
// word is read once, goes into the sum and into numbers. So a block whose sum is not right has been
// written when that is found; but what its entry says is not believed where it would lead out of
// the layer, and nobody computes with it.
//
// Rare codes of a lane follow those of the lanes before it, so a scan of their counts says where
// they are. All that a lane can have come in 96 bits.
#include "runtime/device/cuda/kernels_unpack.h"

#include <cuda_runtime.h>

#define WARPS 8
#define BLOCKS_PER_SM 4
#define ALL 0xffffffffu

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

struct list {          // what a lane has in the list of a half
    uint32_t codes[3]; // the next rare code from bit 0 on; 0 behind the last
    uint32_t n_rare, n_escapes;
    const unsigned char *escapes;
    uint32_t bytes; // of the whole list
};

// Sum of those of the lanes before; *total: of all.
__device__ __forceinline__ uint32_t sum_before(uint32_t n, uint32_t lane, uint32_t *total)
{
    uint32_t sum = n;

#pragma unroll
    for (uint32_t d = 1; d < PACK_LANES; d *= 2) {
        const uint32_t other = __shfl_up_sync(ALL, sum, d);

        sum += lane >= d ? other : 0;
    }
    *total = __shfl_sync(ALL, sum, PACK_LANES - 1);
    return sum - n;
}

// n bits, at most 96, from bit `at` behind `from`; of what lies behind `end`, a multiple of 4,
// nothing is read.
__device__ __forceinline__ void read_codes(uint32_t (&out)[3], const unsigned char *from,
                                           uint32_t at, uint32_t n, const unsigned char *end)
{
    const unsigned char *first = from + at / 8;
    const uint32_t skip = (uint32_t)(uintptr_t)first % 4, shift = skip * 8 + at % 8;
    const uint32_t *p = (const uint32_t *)(first - skip), *e = (const uint32_t *)end;
    uint32_t w[4];

#pragma unroll
    for (uint32_t k = 0; k < 4; k++)
        w[k] = k * 32 < shift + n && n > 0 && p + k < e ? p[k] : 0;
#pragma unroll
    for (uint32_t k = 0; k < 3; k++) {
        const uint32_t v = __funnelshift_r(w[k], w[k + 1], shift);

        out[k] = n >= k * 32 + 32 ? v : n > k * 32 ? v & ((1u << n % 32) - 1) : 0;
    }
}

// How many of the codes say that there is an escape: three bits that begin at a multiple of three.
__device__ __forceinline__ uint32_t escapes_among(const uint32_t (&c)[3])
{
    const uint32_t x = c[0] & __funnelshift_r(c[0], c[1], 1) & __funnelshift_r(c[0], c[1], 2);
    const uint32_t y = c[1] & __funnelshift_r(c[1], c[2], 1) & __funnelshift_r(c[1], c[2], 2);
    const uint32_t z = c[2] & c[2] >> 1 & c[2] >> 2;

    return __popc(x & 0x49249249u) + __popc(y & 0x92492492u) + __popc(z & 0x24924924u);
}

// mask: which of the lane's numbers are rare. False, to all lanes: it leads behind `end`.
__device__ __forceinline__ bool find_rare(list &v, uint32_t mask, const unsigned char *at,
                                          const unsigned char *end, uint32_t lane)
{
    const uint64_t room = (uint64_t)(end - at);
    uint32_t all, all_escapes = 0, before_escapes = 0, before;

    v.n_rare = __popc(mask);
    before = sum_before(v.n_rare, lane, &all);
    read_codes(v.codes, at, before * PACK_RARE_BITS, v.n_rare * PACK_RARE_BITS, end);
    v.n_escapes = escapes_among(v.codes);
    if (__any_sync(ALL, v.n_escapes > 0))
        before_escapes = sum_before(v.n_escapes, lane, &all_escapes);
    v.bytes = (all * PACK_RARE_BITS + 7) / 8 + all_escapes;
    v.escapes = at + (v.bytes - all_escapes) + before_escapes;
    return v.bytes <= room;
}

__device__ __forceinline__ uint32_t mix_in_list(uint32_t h, const list &v)
{
#pragma unroll
    for (uint32_t k = 0; k < 3; k++)
        if (k * 32 < v.n_rare * PACK_RARE_BITS)
            h = pack_mix(h, v.codes[k]);
    for (uint32_t at = 0; at < v.n_escapes; at += 4) {
        uint32_t word = 0;

        for (uint32_t k = 0; k < 4 && at + k < v.n_escapes; k++)
            word |= (uint32_t)v.escapes[at + k] << k * 8;
        h = pack_mix(h, word);
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

// Of eight numbers, those of the bits in `rare`, one to every four bits, have the next codes of the
// list. Those that are escapes: v has the first bit of their codes.
__device__ __forceinline__ void take_escapes(uint2 &e, uint32_t rare, uint32_t v, list &from)
{
    for (uint32_t rank = 0; v; v >>= 3, rank++) {
        uint32_t left = rare, x;

        if (!(v & 1))
            continue;
        for (uint32_t k = 0; k < rank; k++)
            left &= left - 1;
        const uint32_t j = (__ffs(left) - 1) / 4;

        x = (uint32_t)*from.escapes++ << j % 4 * 8;
        e.x |= j < 4 ? x : 0;
        e.y |= j < 4 ? 0 : x;
    }
}

// Exponents of eight numbers, group s of the lane, in the bytes of two words.
template <uint32_t N>
__device__ __forceinline__ uint2 exponents(const uint32_t (&w)[N], uint32_t s, const pack_block &b,
                                           list &from)
{
    const uint32_t each = 0x11111111u, table = *(const uint32_t *)b.table;
    const uint2 others = make_uint2(((const uint32_t *)b.rare)[0], ((const uint32_t *)b.rare)[1]);
    const uint32_t low = w[0] >> s & each, high = w[1] >> s & each;
    const uint32_t codes = low | high << 1, rare = low & high;
    const uint32_t n_bits = __popc(rare) * PACK_RARE_BITS;
    uint2 e = make_uint2(__byte_perm(table, 0, codes & 0xffff), __byte_perm(table, 0, codes >> 16));
    uint32_t c = from.codes[0] & ((1u << n_bits) - 1);
    const uint32_t escapes = c & c >> 1 & c >> 2 & 0x249249u;

#pragma unroll
    for (uint32_t j = 0; j < 8; j++) // the tables have a 0 for what comes from elsewhere
        if (rare >> j * 4 & 1) {
            const uint32_t x = __byte_perm(others.x, others.y, c & 7) & 0xff;

            c >>= PACK_RARE_BITS;
            e.x |= j < 4 ? x << j % 4 * 8 : 0;
            e.y |= j < 4 ? 0 : x << j % 4 * 8;
        }
    if (escapes)
        take_escapes(e, rare, escapes, from);
    from.codes[0] = __funnelshift_r(from.codes[0], from.codes[1], n_bits);
    from.codes[1] = __funnelshift_r(from.codes[1], from.codes[2], n_bits);
    from.codes[2] >>= n_bits;
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
__device__ __forceinline__ void write_half(const uint32_t (&w)[N_WORDS<F>], const pack_block &b,
                                           list &from, uint32_t n, unsigned char *to, uint32_t lane)
{
    constexpr uint32_t V = 16 / F::WIDE;

#pragma unroll
    for (uint32_t s = 0; s < 4; s++) {
        const uint2 e = exponents(w, s, b, from);

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
    const unsigned char *at = l.packed + b.list, *end = l.packed + l.packed_bytes;

    if (b.n == 0 || b.n > PACK_BLOCK || to + b.n * F::WIDE > l.bytes || b.list > l.packed_bytes ||
        planes + n_halves * N_WORDS<F> * PACK_LANES * sizeof(uint32_t) > l.packed_bytes)
        return false;
    for (uint32_t k = 0; k < n_halves; k++) {
        uint32_t w[N_WORDS<F>];
        list v;

        read_half<F>(w, words + k * N_WORDS<F> * PACK_LANES, lane);
        if (!find_rare(v, w[0] & w[1], at, end, lane))
            return false;
#pragma unroll
        for (uint32_t j = 0; j < N_WORDS<F>; j++)
            h = pack_mix(h, w[j]);
        h = mix_in_list(h, v);
        at += v.bytes;
        write_half<F>(w, b, v, b.n - k * PACK_HALF, l.to + to + k * PACK_HALF * F::WIDE, lane);
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
