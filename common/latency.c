/* latency.c - see latency.h. */
#include "common/latency.h"

#include "common/mem.h"

#include <math.h>

#define FIRST_NS 10000.0 /* where the first bucket begins */
#define AN_OCTAVE 8u     /* so many until latencies double */

unsigned sh_latency_bucket(int64_t ns)
{
    double b = ns > 0 ? log2((double)ns / FIRST_NS) * AN_OCTAVE : 0;

    return b <= 0 ? 0 : (unsigned)SH_MIN(b, SH_LATENCY_BUCKETS - 1.0);
}

static double begin_ms(double bucket)
{
    return FIRST_NS / 1e6 * exp2(bucket / AN_OCTAVE);
}

double sh_latency_percentile_ms(const int64_t count[static SH_LATENCY_BUCKETS], double percentile)
{
    double total = 0, before = 0, rank;

    for (unsigned b = 0; b < SH_LATENCY_BUCKETS; b++)
        total += (double)count[b];
    rank = SH_MAX(ceil(total * percentile / 100), 1.0);
    for (unsigned b = 0; b < SH_LATENCY_BUCKETS; b++) {
        if (count[b] > 0 && before + (double)count[b] >= rank)
            return begin_ms(b + (rank - before) / (double)count[b]);
        before += (double)count[b];
    }
    return 0;
}
