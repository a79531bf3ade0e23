/* order.c - see order.h. */
#include "executor/model/order.h"

static uint64_t splitmix64(uint64_t *x)
{
    uint64_t z = (*x += 0x9e3779b97f4a7c15u);

    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

void order_draw(uint64_t seed, int64_t epoch, bool shuffle, uint32_t *order, int64_t n)
{
    uint64_t x = seed * 0x2545f4914f6cdd1du + (uint64_t)epoch;

    for (int64_t i = 0; i < n; i++)
        order[i] = (uint32_t)i;
    for (int64_t i = n - 1; shuffle && i > 0; i--) {
        /* Multiply-shift: uniform to 2^-32, and the same on every machine. */
        int64_t j = (int64_t)(((splitmix64(&x) >> 32) * (uint64_t)(i + 1)) >> 32);
        uint32_t t = order[i];

        order[i] = order[j];
        order[j] = t;
    }
}
