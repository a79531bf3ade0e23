/* interval.c - see interval.h. */
#include "executor/training/interval.h"

#include "common/mem.h"

#include <math.h>

#define HOUR_NS 3.6e12
#define FAILURES_AN_HOUR (1.0 / 24)

/* Of x - 1 + exp(-x) = c, for c >= 0. The left side is convex and grows, so from the right of it
 * Newton's steps go towards it alone. */
static double solve(double c)
{
    double x = sqrt(2 * c) + c; /* x - 1 + exp(-x) >= c there */

    for (int i = 0; i < 50 && x > 1e-9; i++) {
        const double step = (x + expm1(-x) - c) / -expm1(-x);

        x -= step;
        if (step < 1e-9 * x)
            break;
    }
    return x;
}

int64_t interval_ns(const struct interval_facts *f)
{
    const double known_ns = HOUR_NS + (double)SH_MAX(f->here_ns, INT64_C(0));
    const double failures = (FAILURES_AN_HOUR + f->n_failures) / known_ns;
    const double swaps = f->n_swaps / known_ns;
    const double cost = (double)SH_MAX(f->copy_ns, INT64_C(0));
    const double young = sqrt(2 * cost / failures);
    /* Where swaps hardly count, the difference of numbers that are nearly equal says nothing. */
    const double ns = swaps * young < 1e-3 ? young : solve(cost * swaps * swaps / failures) / swaps;
    const int64_t least =
        SH_MAX(INTERVAL_MIN_NS, SH_MIN(f->write_ns, INTERVAL_MAX_NS) * (int64_t)INTERVAL_WRITES);

    return SH_MIN(SH_MAX((int64_t)fmin(ns, 1e18), least), INTERVAL_MAX_NS);
}
