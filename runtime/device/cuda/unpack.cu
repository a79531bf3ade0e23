// unpack.cu - weights that came packed, as kernels want them (runtime/pack/pack.h).
//
// A group of layers is small, so what counts is how long one block of numbers takes from the launch
// on. Each warp has one: which one, the host says, by how many the layer has at most (slots_of), so
// nobody waits for what heads say. A warp looks at its entry and its layer's head at once, and then
// copies all that belongs to the block into shared memory at once: two times it waits for memory.
// What comes then is straight code: with a warp or two on each scheduler nothing else hides that
// an instruction waits for another. Numbers that it gets wrong come one by one behind it.
//
// Each word is read once, goes into the sum and into numbers. So a block whose sum is not right has
// been written when that is found; but what its entry says is not believed where it would lead out
// of the layer, and nobody computes with it.
#include "runtime/device/cuda/kernels_unpack.h"

#include <cuda_pipeline_primitives.h>
#include <cuda_runtime.h>

#define WARPS 2
#define ALL 0xffffffffu
#define HEAD_WORDS 15u // before its sum
#define ENTRY_WORDS 7u
#define PIECE 16u                     // bytes that are copied at once
#define MOST (PACK_RAW_BYTES + PIECE) // a packed block has less than its numbers

// Bits of a where the mask has some, of b elsewhere.
__device__ __forceinline__ uint32_t pick_bits(uint32_t mask, uint32_t a, uint32_t b)
{
    return (a & mask) | (b & ~mask);
}

// Bits of words from one on that is known when this is compiled; n, or more.
template <uint32_t N>
__device__ __forceinline__ uint32_t bits_at(const uint32_t (&w)[N], uint32_t bit, uint32_t n)
{
    const uint32_t k = bit / 32, s = bit % 32;

    return s + n > 32 ? __funnelshift_r(w[k], w[k + 1], s) : w[k] >> s;
}

// GROUP: words that eight numbers of a lane take. word: word k of eight numbers as they are stored;
// e: the exponents of four in its bytes, number i in byte i % 4.
struct form_f32 {
    static constexpr uint32_t WIDE = 4, M_BITS = 23, ZEROES = 0, GROUP = 6;
    static __device__ __forceinline__ uint32_t word(const uint32_t (&w)[GROUP], uint32_t k,
                                                    uint32_t e)
    {
        const uint32_t at = k * 3, low = w[at / 4],
                       high = w[at / 4 + 1 < GROUP ? at / 4 + 1 : GROUP - 1];
        const uint32_t x = __byte_perm(low, high, 0x2210 + at % 4 * 0x1111);

        return pick_bits(0x807fffffu, x, __byte_perm(e, 0, 0x0444 | k % 4 << 12) >> 1);
    }
};
struct form_tf32 {
    static constexpr uint32_t WIDE = 4, M_BITS = 10, ZEROES = 13, GROUP = 3;
    static __device__ __forceinline__ uint32_t word(const uint32_t (&w)[GROUP], uint32_t k,
                                                    uint32_t e)
    {
        const uint32_t x = bits_at(w, k * 11, 11) << 13;
        const uint32_t y = pick_bits(0x007fe000u, x, __byte_perm(e, 0, 0x0444 | k % 4 << 12) >> 1);

        return pick_bits(0x7fffffffu, y, x << 8);
    }
};
struct form_f16 {
    static constexpr uint32_t WIDE = 2, M_BITS = 10, ZEROES = 0, GROUP = 3;
    static __device__ __forceinline__ uint32_t word(const uint32_t (&w)[GROUP], uint32_t k,
                                                    uint32_t e)
    {
        const uint32_t x = bits_at(w, k * 22, 22);
        const uint32_t y = pick_bits(0x7fffffffu, pick_bits(0x3ffu, x, x << 5), x << 10);

        return pick_bits(0x7c007c00u, __byte_perm(e << 2, 0, k % 2 ? 0x3424 : 0x1404), y);
    }
};
struct form_bf16 {
    static constexpr uint32_t WIDE = 2, M_BITS = 7, ZEROES = 0, GROUP = 2;
    static __device__ __forceinline__ uint32_t word(const uint32_t (&w)[GROUP], uint32_t k,
                                                    uint32_t e)
    {
        const uint32_t x = __byte_perm(w[k / 2], 0, k % 2 ? 0x3322 : 0x1100);

        return pick_bits(0x807f807fu, x, __byte_perm(e, 0, k % 2 ? 0x4342 : 0x4140) << 7);
    }
};
template <typename F> constexpr uint32_t N_WORDS = PACK_CODE_BITS + 1 + F::M_BITS;

struct launch { // a slot: a warp that takes every n-th block of a layer that has n slots
    k_unpack_layer layers[K_MAX_UNPACKS];
    uint32_t ends[K_MAX_UNPACKS]; // of each layer's slots among all
    uint32_t n;
};

struct alignas(PIECE) room { // of a warp, in shared memory
    pack_head head;
    pack_block entry;
    unsigned char rest[MOST]; // its planes, and the pieces that have its escapes
};

// To shared memory; both are aligned to PIECE. What is copied is there after await_pieces().
__device__ __forceinline__ void copy_pieces(void *to, const unsigned char *from, uint32_t bytes,
                                            uint32_t lane)
{
#pragma unroll 4
    for (uint32_t at = lane * PIECE; at < bytes; at += PACK_LANES * PIECE)
        __pipeline_memcpy_async((unsigned char *)to + at, from + at, PIECE);
}

__device__ __forceinline__ void await_pieces()
{
    __pipeline_commit();
    __pipeline_wait_prior(0);
    __syncwarp();
}

__device__ __forceinline__ uint32_t mix_all(const void *words, uint32_t n)
{
    uint32_t h = 0;

#pragma unroll 1
    for (uint32_t i = 0; i < n; i++)
        h = pack_mix(h, ((const uint32_t *)words)[i]);
    return h;
}

// Sum of v over the lanes before this one.
__device__ __forceinline__ uint32_t sum_before(uint32_t v, uint32_t lane)
{
    uint32_t sum = v;

#pragma unroll
    for (uint32_t d = 1; d < PACK_LANES; d *= 2) {
        const uint32_t other = __shfl_up_sync(ALL, sum, d);

        sum += lane >= d ? other : 0;
    }
    return sum - v;
}

__device__ __forceinline__ uint32_t n_escapes_at(const uint32_t *words)
{
    return __popc(words[0] & words[PACK_LANES] & words[2 * PACK_LANES]);
}

__device__ __forceinline__ uint32_t mix_in_escapes(uint32_t h, const unsigned char *at, uint32_t n)
{
#pragma unroll 1
    for (uint32_t i = 0; i < n; i += 4) {
        uint32_t word = at[i];

#pragma unroll
        for (uint32_t k = 1; k < 4; k++)
            word |= i + k < n ? (uint32_t)at[i + k] << k * 8 : 0;
        h = pack_mix(h, word);
    }
    return h;
}

struct lane_half {             // what a lane has of half a block
    const uint32_t *words;     // of PACK_LANES each
    uint32_t a, b, c, escapes; // its codes' bits; which are PACK_ESCAPE
    const unsigned char *list;
    uint2 table;
};

// Escapes in groups before s, and in group s of the first j.
__device__ __forceinline__ uint32_t n_before(uint32_t escapes, uint32_t s, uint32_t j)
{
    const uint32_t each = 0x11111111u;

    return __popc(escapes & (each * ((1u << s) - 1) | (each << s & ((1u << 4 * j) - 1))));
}

// One by one: those of the lane's numbers that `which` says, as PACK_BIT has them.
template <typename F>
__device__ __forceinline__ void write_singly(const lane_half &h, uint32_t which, unsigned char *to,
                                             uint32_t n, uint32_t lane)
{
    constexpr uint32_t V = 16 / F::WIDE, BITS = F::M_BITS + 1;

#pragma unroll 1
    for (; which; which &= which - 1) {
        const uint32_t bit = __ffs(which) - 1, s = bit % 4, j = bit / 4, i = s * 8 + j;
        const uint32_t at = i / V * V * PACK_LANES + lane * V + i % V;
        const uint32_t *w = h.words + (PACK_CODE_BITS + i * BITS / 32) * PACK_LANES;
        const uint32_t x = __funnelshift_r(w[0], w[PACK_LANES], i * BITS);
        const uint32_t code = (h.a >> bit & 1) | (h.b >> bit & 1) << 1 | (h.c >> bit & 1) << 2;
        const uint32_t e = code == PACK_ESCAPE ? h.list[n_before(h.escapes, s, j)]
                                               : __byte_perm(h.table.x, h.table.y, code) & 0xff;
        const uint32_t number = (x >> F::M_BITS) << (F::WIDE * 8 - 1) |
                                e << (F::M_BITS + F::ZEROES) |
                                (x & ((1u << F::M_BITS) - 1)) << F::ZEROES;

        if (at < n && F::WIDE == 4)
            ((uint32_t *)to)[at] = number;
        else if (at < n)
            ((uint16_t *)to)[at] = (uint16_t)number;
    }
}

// Exponents of group s, if of each four numbers one at most is an escape.
__device__ __forceinline__ uint2 exponents(const lane_half &h, uint32_t s)
{
    const uint32_t each = 0x11111111u;
    const uint32_t codes = (h.a >> s & each) | (h.b >> s & each) << 1 | (h.c >> s & each) << 2;
    const uint32_t first = h.list[n_before(h.escapes, s, 0)],
                   second = h.list[n_before(h.escapes, s, 4)];

    return make_uint2(__byte_perm(h.table.x, __byte_perm(h.table.y, first, 0x4210), codes),
                      __byte_perm(h.table.x, __byte_perm(h.table.y, second, 0x4210), codes >> 16));
}

// Signs and mantissas of the lane's group s. What is read behind the last word is not used.
template <typename F>
__device__ __forceinline__ void read_group(uint32_t (&w)[F::GROUP], const uint32_t *words,
                                           uint32_t s)
{
    constexpr uint32_t BITS = 8 * (F::M_BITS + 1);
    const uint32_t *from = words + (PACK_CODE_BITS + s * BITS / 32) * PACK_LANES;
    uint32_t next = from[0];

#pragma unroll
    for (uint32_t j = 0; j < F::GROUP; j++) {
        w[j] = next;
        if (BITS % 32 || j + 1 < F::GROUP)
            next = from[(j + 1) * PACK_LANES];
        if (BITS % 32)
            w[j] = __funnelshift_r(w[j], next, s * BITS);
    }
}

// What is there of group s in whole pieces of 16 bytes.
template <typename F>
__device__ __forceinline__ void write_group(const uint32_t (&w)[F::GROUP], uint2 e, uint32_t s,
                                            unsigned char *to, uint32_t n, uint32_t lane)
{
    constexpr uint32_t V = 16 / F::WIDE;

#pragma unroll
    for (uint32_t q = 0; q < 8 / V; q++) {
        const uint32_t first = ((s * 8 / V + q) * PACK_LANES + lane) * V;
        uint32_t out[4];

#pragma unroll
        for (uint32_t k = 0; k < 4; k++)
            out[k] = F::word(w, q * 4 + k, q * 4 + k < F::WIDE ? e.x : e.y);
        if (first + V <= n)
            *(uint4 *)(to + first * F::WIDE) = make_uint4(out[0], out[1], out[2], out[3]);
    }
}

// Half of a block. Returns sum with its planes mixed in.
template <typename F>
__device__ __forceinline__ uint32_t write_half(uint32_t sum, const uint32_t *words,
                                               const unsigned char *list, uint2 table,
                                               unsigned char *to, uint32_t n, uint32_t lane)
{
    constexpr uint32_t V = 16 / F::WIDE;
    const uint32_t a = words[0], b = words[PACK_LANES], c = words[2 * PACK_LANES];
    const lane_half h = {words, a, b, c, a & b & c, list, table};

#pragma unroll
    for (uint32_t s = 0; s < 4; s++) {
        uint32_t w[F::GROUP];

        read_group<F>(w, words, s);
        write_group<F>(w, exponents(h, s), s, to, n, lane);
    }
#pragma unroll
    for (uint32_t j = 0; j < N_WORDS<F>; j++)
        sum = pack_mix(sum, words[j * PACK_LANES]);
    // Escapes behind another one of their four, and a piece that ends early.
    const uint32_t x = h.escapes;
    const uint32_t behind =
        (x & 0x0fff0fffu) << 4 | (x & 0x00ff00ffu) << 8 | (x & 0x000f000fu) << 12;

    const uint32_t piece = n / V / PACK_LANES;
    const uint32_t early = n % V == 0 || n / V % PACK_LANES != lane ? 0
                           : V == 8                                 ? 0x11111111u << piece
                                    : 0x1111u << (piece % 2 * 16 + piece / 2);

    write_singly<F>(h, (x & behind) | early, to, n, lane);
    return sum;
}

__device__ __forceinline__ uint32_t write_half_of(uint32_t kind, uint32_t h, const uint32_t *words,
                                                  const unsigned char *escapes, uint2 table,
                                                  unsigned char *to, uint32_t n, uint32_t lane)
{
    if (kind == PACK_KIND_F16)
        return write_half<form_f16>(h, words, escapes, table, to, n, lane);
    if (kind == PACK_KIND_BF16)
        return write_half<form_bf16>(h, words, escapes, table, to, n, lane);
    if (kind == PACK_KIND_TF32)
        return write_half<form_tf32>(h, words, escapes, table, to, n, lane);
    return write_half<form_f32>(h, words, escapes, table, to, n, lane);
}

__device__ __forceinline__ bool unpack_numbers(const k_unpack_layer &l, room *r, uint32_t lane)
{
    const pack_block &b = r->entry;
    const uint32_t kind = b.kind, n = b.n,
                   wide = kind == PACK_KIND_F16 || kind == PACK_KIND_BF16 ? 2 : 4;
    const uint32_t n_words = kind == PACK_KIND_F32    ? N_WORDS<form_f32>
                             : kind == PACK_KIND_BF16 ? N_WORDS<form_bf16>
                                                      : N_WORDS<form_f16>; // as of TF32
    const uint32_t n_halves = n > PACK_HALF ? 2 : 1, n_escapes = b.n_escapes[0] + b.n_escapes[1];
    const uint32_t plane_bytes = n_halves * n_words * PACK_LANES * sizeof(uint32_t);
    const uint32_t skip = b.escapes % PIECE, listed = skip + n_escapes;
    const uint64_t planes = (uint64_t)b.planes * PACK_ALIGN, to = (uint64_t)b.to * PACK_UNIT;
    const uint2 table = *(const uint2 *)b.table;
    const uint32_t *words = (const uint32_t *)r->rest + lane;
    const unsigned char *escapes = r->rest + plane_bytes + skip;

    if (n == 0 || n > PACK_BLOCK || to + n * wide > l.bytes ||
        planes + plane_bytes > l.packed_bytes || (uint64_t)b.escapes + n_escapes > l.packed_bytes ||
        plane_bytes + listed >= MOST)
        return false;
    copy_pieces(r->rest, l.packed + planes, plane_bytes, lane);
    copy_pieces(r->rest + plane_bytes, l.packed + b.escapes - skip, listed, lane);
    uint32_t h = mix_all(&b, ENTRY_WORDS); // meanwhile

    await_pieces();
    // Of both halves in one word: escapes of a lane follow those of the lanes before it.
    const uint32_t n_own =
        n_escapes_at(words) | (n_halves > 1 ? n_escapes_at(words + n_words * PACK_LANES) : 0) << 16;
    const uint32_t before = sum_before(n_own, lane);

    if (__shfl_sync(ALL, before + n_own, PACK_LANES - 1) !=
        (b.n_escapes[0] | (n_halves > 1 ? (uint32_t)b.n_escapes[1] << 16 : 0)))
        return false; // as all lanes see it: they are not there to be read
#pragma unroll 1
    for (uint32_t k = 0; k < n_halves; k++) {
        const unsigned char *own = escapes + (before >> 16 * k & 0xffff);

        h = write_half_of(kind, h, words, own, table, l.to + to + k * PACK_HALF * wide,
                          n - k * PACK_HALF, lane);
        h = mix_in_escapes(h, own, n_own >> 16 * k & 0xffff);
        words += n_words * PACK_LANES;
        escapes += b.n_escapes[0];
    }
    return __reduce_add_sync(ALL, pack_join(h, lane)) == b.sum;
}

__device__ __forceinline__ bool unpack_kept(const k_unpack_layer &l, const pack_block &b,
                                            uint32_t lane)
{
    const uint64_t planes = (uint64_t)b.planes * PACK_ALIGN, to = (uint64_t)b.to * PACK_UNIT;
    const uint32_t n = b.n, all = (n + 15) / 16;
    const uint4 *from = (const uint4 *)(l.packed + planes);
    uint32_t h = mix_all(&b, ENTRY_WORDS);

    if (n == 0 || n > PACK_RAW_BYTES || planes + all * 16 > l.packed_bytes || to + n > l.bytes)
        return false;
#pragma unroll 4
    for (uint32_t i = lane; i < all; i += PACK_LANES) {
        const uint4 q = from[i];

        h = pack_mix(pack_mix(pack_mix(pack_mix(h, q.x), q.y), q.z), q.w);
        if ((i + 1) * 16 <= n)
            ((uint4 *)(l.to + to))[i] = q;
    }
#pragma unroll 1
    for (uint32_t i = n / 16 * 16 + lane; i < n; i += PACK_LANES)
        l.to[to + i] = l.packed[planes + i];
    return __reduce_add_sync(ALL, pack_join(h, lane)) == b.sum;
}

__device__ __forceinline__ bool unpack_one(const k_unpack_layer &l, room *r, uint32_t lane)
{
    if (r->entry.kind == PACK_KEPT)
        return unpack_kept(l, r->entry, lane);
    return r->entry.kind < PACK_N_KINDS && unpack_numbers(l, r, lane);
}

__device__ __forceinline__ bool is_head_sound(const k_unpack_layer &l, const pack_head &h)
{
    return h.magic == PACK_MAGIC && h.sum == mix_all(&h, HEAD_WORDS) && h.bytes == l.bytes &&
           h.packed_bytes == l.packed_bytes &&
           sizeof(h) + (uint64_t)h.n_blocks * sizeof(pack_block) <= l.packed_bytes;
}

// The first of n layers that ends behind slot i; the last one if none does.
__device__ __forceinline__ uint32_t layer_of(const uint32_t *ends, uint32_t n, uint32_t i)
{
    uint32_t low = 0;

#pragma unroll 1
    while (n > 1) {
        const uint32_t half = n / 2;

        low += ends[low + half - 1] <= i ? half : 0;
        n -= half;
    }
    return low;
}

// The last slot of a layer, which is seldom needed for a block, looks at the head as well. What the
// others believe of it is how many blocks there are, as far as they are within the layer.
__global__ void __launch_bounds__(WARPS *PACK_LANES)
    unpack(const __grid_constant__ launch all, uint32_t *damaged)
{
    __shared__ __align__(PACK_ALIGN) room rooms[WARPS];
    const uint32_t lane = threadIdx.x % PACK_LANES;
    const uint32_t warp = __shfl_sync(ALL, threadIdx.x / PACK_LANES, 0);
    const uint32_t slot = blockIdx.x * WARPS + warp, k = layer_of(all.ends, all.n, slot);
    const k_unpack_layer l = all.layers[k];
    const uint32_t end = all.ends[k], first = k ? all.ends[k - 1] : 0;
    room *r = &rooms[warp];
    bool is_sound = l.packed_bytes >= sizeof(pack_head) + sizeof(pack_block);

    if (slot >= end)
        return;
    for (uint32_t i = slot - first, n = i + 1; i < n; i += end - first) {
        const uint64_t at = sizeof(pack_head) + (uint64_t)i * sizeof(pack_block);

        if (at + sizeof(pack_block) > l.packed_bytes)
            break;
        copy_pieces(&r->head, l.packed, sizeof(pack_head), lane);
        copy_pieces(&r->entry, l.packed + at, sizeof(pack_block), lane);
        await_pieces();
        if (i < end - first && slot + 1 == end)
            is_sound = is_head_sound(l, r->head);
        n = r->head.n_blocks;
        if (i < n)
            is_sound = unpack_one(l, r, lane) && is_sound;
        __syncwarp(); // the room is free
    }
    if (!is_sound)
        *damaged = 1;
}

// So many warps as it has blocks at most, if it does not have very small tensors: the smallest
// blocks are of 16-bit numbers, and packed of those in bf16.
static uint32_t slots_of(const struct k_unpack_layer *l)
{
    const uint64_t by_bytes = l->bytes / (PACK_BLOCK * 2),
                   by_packed = l->packed_bytes / (N_WORDS<form_bf16> * PACK_LANES *
                                                  sizeof(uint32_t) * PACK_BLOCK / PACK_HALF);

    return (uint32_t)(by_bytes < by_packed ? by_bytes : by_packed) + 2;
}

void k_unpack(cudaStream_t s, const struct k_unpacks *all, uint32_t *damaged)
{
    struct launch launch;
    uint32_t n_slots = 0;

    if (all->n == 0)
        return;
    memcpy(launch.layers, all->layers, all->n * sizeof(all->layers[0]));
    launch.n = all->n;
    for (uint32_t i = 0; i < all->n; i++)
        launch.ends[i] = n_slots += slots_of(&all->layers[i]);
    unpack<<<(n_slots + WARPS - 1) / WARPS, WARPS * PACK_LANES, 0, s>>>(launch, damaged);
}
