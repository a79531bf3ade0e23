/* order.c - see order.h. */
#include "runtime/model/order.h"

#include "common/mem.h"

#define RUNS_SALT 0x9fb21c651e98df25u /* so that runs and samples are drawn apart */

static uint64_t splitmix64(uint64_t *x)
{
    uint64_t z = (*x += 0x9e3779b97f4a7c15u);

    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

static uint64_t epoch_start(const struct order *o, int64_t epoch)
{
    return o->seed * 0x2545f4914f6cdd1du + (uint64_t)epoch;
}

/* Fisher-Yates */
static void mix_order(uint32_t *list, int64_t n, uint64_t *x)
{
    for (int64_t i = n - 1; i > 0; i--) {
        /* Multiply-shift: uniform to 2^-32, and the same on every machine. */
        int64_t j = (int64_t)(((splitmix64(x) >> 32) * (uint64_t)(i + 1)) >> 32);
        uint32_t t = list[i];

        list[i] = list[j];
        list[j] = t;
    }
}

struct order order_of(uint64_t seed, bool shuffle, int64_t window, int64_t n, size_t sample_bytes)
{
    struct order o = {.seed = seed, .shuffle = shuffle, .n = n, .window = window};

    if (window < 1) {
        const int64_t bytes = (int64_t)SH_MAX(sample_bytes, (size_t)1);

        o.window = n > ORDER_WHOLE_BYTES / bytes ? ORDER_WINDOW_BYTES / bytes : n;
        o.window = SH_MAX(o.window, (int64_t)ORDER_RUNS);
    }
    if (o.window >= n)
        o.window = o.run = SH_MAX(n, INT64_C(1));
    else
        o.run = SH_MAX(o.window / ORDER_RUNS, INT64_C(1));
    return o;
}

int64_t order_n_runs(const struct order *o)
{
    return (o->n + o->run - 1) / o->run;
}

void order_draw_runs(const struct order *o, int64_t epoch, uint32_t *runs)
{
    const int64_t n = order_n_runs(o);
    uint64_t x = epoch_start(o, epoch) ^ RUNS_SALT;

    for (int64_t i = 0; i < n; i++)
        runs[i] = (uint32_t)i;
    if (o->shuffle)
        mix_order(runs, n, &x);
}

void order_draw(const struct order *o, int64_t epoch, const uint32_t *runs, uint32_t *out)
{
    const int64_t n = order_n_runs(o);
    uint64_t x = epoch_start(o, epoch);
    int64_t at = 0;

    for (int64_t i = 0; i < n; i++) {
        const int64_t first = runs[i] * o->run, end = SH_MIN(first + o->run, o->n);

        for (int64_t k = first; k < end; k++)
            out[at++] = (uint32_t)k;
    }
    for (int64_t w = 0; o->shuffle && w < o->n; w += o->window)
        mix_order(out + w, SH_MIN(o->window, o->n - w), &x);
}
