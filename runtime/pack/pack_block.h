/* pack_block.h - how a packed layer lies in memory; for C and for CUDA. See pack.h. */
#ifndef SH_RUNTIME_PACK_PACK_BLOCK_H
#define SH_RUNTIME_PACK_PACK_BLOCK_H

#include <stdint.h>

#define PACK_BLOCK 2048u /* numbers */
#define PACK_HALF 1024u
#define PACK_LANES 32u
#define PACK_ALIGN 128u
#define PACK_UNIT 16u     /* of places in the layer */
#define PACK_CODE_BITS 3u /* of an exponent */
#define PACK_ESCAPE 7u
#define PACK_RAW_BYTES 8192u /* most bytes of a block that is kept as it is */
#define PACK_MAGIC 0x314b5053u

/* How a block's numbers are kept: bytes of each, and how many bits of it beside the exponent. */
enum pack_kind {
    PACK_KEPT, /* as they are: n bytes, up to a multiple of 16 */
    PACK_KIND_F32,
    PACK_KIND_TF32, /* the last 13 bits are 0 */
    PACK_KIND_F16,
    PACK_KIND_BF16,
    PACK_N_KINDS
};

struct pack_head {
    uint32_t magic, n_blocks;
    uint64_t bytes, packed_bytes; /* of the layer; with head */
    uint32_t reserved[9], sum;    /* 0; of all before it */
};

struct pack_block {
    uint32_t to;           /* its numbers in the layer, in PACK_UNIT */
    uint32_t planes;       /* from the head, in PACK_ALIGN */
    uint32_t escapes;      /* from the head, bytes */
    uint16_t n;            /* numbers, or bytes that are kept as they are */
    uint8_t kind, unused;  /* enum pack_kind; 0 */
    uint8_t table[8];      /* exponents; the last is 0 */
    uint16_t n_escapes[2]; /* of each half */
    uint32_t sum;          /* pack_mix() of the seven words before it, and then of each lane's */
};

/* The bit of a lane's number i in its planes. */
#define PACK_BIT(i) (4 * ((i) % 8) + (i) / 8)

#ifdef __CUDACC__
#define PACK_INLINE static __host__ __device__ __forceinline__
#else
#define PACK_INLINE static inline
#endif

/* Sums: each lane mixes the words that it reads, in order; theirs come together by pack_join(). */
PACK_INLINE uint32_t pack_mix(uint32_t h, uint32_t word)
{
    return ((h << 7 | h >> 25) ^ word) * 0x9e3779b1u;
}
PACK_INLINE uint32_t pack_join(uint32_t h, uint32_t lane)
{
    return h * (2 * lane + 1);
}

#endif
