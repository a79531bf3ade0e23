/* draw.h - the same numbers in each run of a bench. */
#ifndef SH_SIMULATE_DRAW_H
#define SH_SIMULATE_DRAW_H

#include <stdint.h>

/* xorshift (Marsaglia, "Xorshift RNGs"): 53 bits. *seed: not 0 at first. */
static inline uint64_t draw_bits(uint64_t *seed)
{
    *seed ^= *seed << 13;
    *seed ^= *seed >> 7;
    *seed ^= *seed << 17;
    return *seed >> 11;
}

/* Below `below`. */
static inline uint32_t draw(uint32_t below)
{
    static uint64_t seed = 88172645463325252u;

    return (uint32_t)(draw_bits(&seed) % below);
}

#endif
