/* group.c - how long the exact grouping takes: it is computed at every switch for what is missing.
 * By one link, and divided over four that begin at different times, as those of neighbours do.
 *
 * Layers with seeded times over four orders of magnitude, as in real models: few large ones have
 * most of the bytes. Prints the median and the longest of many solves for several numbers of
 * layers. */
#include "runtime/group.h"

#include "common/clock.h"
#include "common/mem.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#define MAX_LAYERS 2000u
#define N_SOLVES 501
#define MAX_LINKS 4u
#define ALPHA_NS 2700
#define LATER_NS 2000 /* each further link begins so much later */

static uint64_t seed = 88172645463325252u;

static double draw(void) /* in [0, 1) */
{
    seed ^= seed << 13;
    seed ^= seed >> 7;
    seed ^= seed << 17;
    return (double)(seed >> 11) * 0x1p-53;
}

static int compare(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;

    return (x > y) - (x < y);
}

/* The ways of m links of one rate: by the first, the first two, ... */
static void make_ways(uint32_t m, int64_t copy[][MAX_LAYERS], uint32_t n, struct group_way *ways)
{
    for (uint32_t k = 0; k < m; k++) {
        ways[k] = (struct group_way){.alpha_ns = ALPHA_NS + k * LATER_NS / 2, .copy_ns = copy[k]};
        for (uint32_t i = 0; i < n; i++)
            copy[k][i] = copy[0][i] / (k + 1);
    }
}

static int bench(uint32_t n, uint32_t n_links, struct sh_err *err)
{
    static int64_t copy[MAX_LINKS][MAX_LAYERS], compute[MAX_LAYERS], took[N_SOLVES];
    struct group_way ways[MAX_LINKS];
    uint64_t groups = 0;

    for (uint32_t k = 0; k < N_SOLVES; k++) {
        struct group_plan p;
        int64_t t0;
        int rc;

        for (uint32_t i = 0; i < n; i++) {
            copy[0][i] = (int64_t)(100 * pow(10, 4 * draw()));
            compute[i] = (int64_t)(1000 * pow(10, 2 * draw()));
        }
        make_ways(n_links, copy, n, ways);
        t0 = sh_clock_ns();
        rc = group_solve(ways, n_links, compute, n, &p, err);
        took[k] = sh_clock_ns() - t0;
        if (rc)
            return rc;
        groups += p.n;
        group_plan_fini(&p);
    }
    qsort(took, N_SOLVES, sizeof(took[0]), compare);
    printf("%6u %6u %12lld %12lld %10.1f\n", n, n_links, (long long)took[N_SOLVES / 2],
           (long long)took[N_SOLVES - 1], (double)groups / N_SOLVES);
    return SH_OK;
}

int main(void)
{
    static const uint32_t LAYERS[] = {139, 189, 464, 2000};
    struct sh_err err = {0};

    printf("%6s %6s %12s %12s %10s\n", "layers", "links", "median ns", "longest ns", "groups");
    for (size_t i = 0; i < SH_ARRAY_LEN(LAYERS); i++)
        if (bench(LAYERS[i], 1, &err) || bench(LAYERS[i], MAX_LINKS, &err)) {
            fprintf(stderr, "%s\n", err.msg);
            return EXIT_FAILURE;
        }
    return EXIT_SUCCESS;
}
