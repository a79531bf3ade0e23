/* philox.h - the random numbers of dropout: the counter-based generator Philox4x32-10.
 *
 * A value depends only on (seed, step, operation, element). So there is no state to save, and a
 * repeated step has the same mask, on any device and with any number of threads. (Salmon, Moraes,
 * Dror, Shaw: Parallel random numbers: as easy as 1, 2, 3. 2011.)
 *
 * Element i takes word i % 4 of the block with
 *   key     = seed
 *   counter = { low 32 bits of i / 4, operation, low 32 bits of step, high 32 bits of step }
 * and is kept if word >= ratio * 2^32.
 *
 * For the weights of ATTENTION the index of the operation is left out, since its backward operation
 * has another, and each draws 16 bits: the weight of (batch b, head h, row, key) takes half key % 8
 * (0: the low half of word 0, 1: its high half, and so on) of the block with
 *   key     = u.attn.seed
 *   counter = { low 32 bits of ((b H + h) Sq + row) ((Sk + 7) / 8) + key / 8, 0, low 32 bits of
 *               step, high 32 bits of step }
 * and is kept if half >= ratio * 2^16.
 */
#ifndef SH_RUNTIME_DEVICE_PHILOX_H
#define SH_RUNTIME_DEVICE_PHILOX_H

#include <stdint.h>

#ifdef __CUDACC__
#define DEV_PHILOX_FN __host__ __device__ static inline
#else
#define DEV_PHILOX_FN static inline
#endif

DEV_PHILOX_FN void dev_philox(uint64_t seed, const uint32_t counter[4], uint32_t out[4])
{
    const uint32_t m0 = 0xD2511F53u, m1 = 0xCD9E8D57u, w0 = 0x9E3779B9u, w1 = 0xBB67AE85u;
    uint32_t k0 = (uint32_t)seed, k1 = (uint32_t)(seed >> 32);
    uint32_t c0 = counter[0], c1 = counter[1], c2 = counter[2], c3 = counter[3];

    for (int round = 0; round < 10; round++) {
        uint64_t p0 = (uint64_t)m0 * c0, p1 = (uint64_t)m1 * c2;
        uint32_t n0 = (uint32_t)(p1 >> 32) ^ c1 ^ k0, n2 = (uint32_t)(p0 >> 32) ^ c3 ^ k1;

        c1 = (uint32_t)p1;
        c3 = (uint32_t)p0;
        c0 = n0;
        c2 = n2;
        k0 += w0;
        k1 += w1;
    }
    out[0] = c0;
    out[1] = c1;
    out[2] = c2;
    out[3] = c3;
}

/* An element is dropped if its word is below this. */
static inline uint32_t dev_philox_threshold(float ratio)
{
    double t = (double)ratio * 4294967296.0;

    return t >= 4294967295.0 ? UINT32_MAX : t > 0 ? (uint32_t)t : 0;
}

DEV_PHILOX_FN uint32_t dev_philox_half(const uint32_t *words, uint32_t i)
{
    return words[i / 2] >> (i % 2 * 16) & 0xffffu;
}

static inline uint32_t dev_philox_half_threshold(float ratio)
{
    return dev_philox_threshold(ratio) >> 16;
}

/* Kept elements are multiplied by this. */
static inline float dev_dropout_scale(float ratio)
{
    return ratio < 1 ? 1 / (1 - ratio) : 0;
}

#endif
