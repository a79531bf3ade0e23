/* draw.h - the same numbers in each run of a bench. */
#ifndef SH_BENCH_DRAW_H
#define SH_BENCH_DRAW_H

#include <stdint.h>

/* xorshift (Marsaglia, "Xorshift RNGs"); below `below`. */
static inline uint32_t draw(uint32_t below)
{
    static uint64_t seed = 88172645463325252u;

    seed ^= seed << 13;
    seed ^= seed >> 7;
    seed ^= seed << 17;
    return (uint32_t)((seed >> 11) % below);
}

#endif
