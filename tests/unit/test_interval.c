/* test_interval.c - how long a job trains between two checkpoints. Without it: checkpoints could
 * cost more than the failures that they are for, or a job could lose hours that seconds would have
 * saved. */
/* uses: executor/training/interval.o */
#include "common/mem.h"
#include "executor/training/interval.h"
#include "tests/unit/sh_test.h"

#include <math.h>
#include <stdlib.h>

#define MS INT64_C(1000000)
#define SECOND INT64_C(1000000000)
#define HOUR (3600 * SECOND)

static void without_swaps_it_is_youngs(void **state)
{
    /* Nothing is known yet: a failure a day. sqrt(2 * 0.01 s * 86400 s) = 41.57 s */
    const struct interval_facts f = {.copy_ns = 10 * MS};

    (void)state;
    assert_true(fabs((double)interval_ns(&f) / 1e9 - 41.569) < 0.001);
}

static void failures_shorten_it_and_quiet_time_and_cost_lengthen_it(void **state)
{
    const struct interval_facts plain = {.copy_ns = 10 * MS, .here_ns = HOUR};
    struct interval_facts f = plain;

    (void)state;
    f.n_failures = 10;
    assert_true(interval_ns(&f) < interval_ns(&plain) / 10);
    f = plain;
    f.here_ns = 100 * HOUR;
    assert_true(interval_ns(&f) > 5 * interval_ns(&plain));
    f = plain;
    f.copy_ns *= 4;
    assert_true(llabs(interval_ns(&f) - 2 * interval_ns(&plain)) <= 2);
}

/* What checkpoints every t and failures cost, of all time; swaps come by chance. */
static double cost(double t, double d, double failures, double swaps)
{
    const double left = expm1(swaps * t);

    return d * swaps / left + failures * (1 / swaps - t / left);
}

static void with_swaps_nothing_else_would_cost_less(void **state)
{
    (void)state;
    for (int i = 0; i < 2000; i++) {
        const struct interval_facts f = {.copy_ns = (int64_t)(exp(drand48() * 12) * 1e5),
                                         .here_ns = (int64_t)(drand48() * 50 * HOUR),
                                         .n_failures = (uint32_t)(drand48() * 20),
                                         .n_swaps = 1 + (uint32_t)exp(drand48() * 9)};
        const double known = (double)(HOUR + f.here_ns) / 1e9, d = (double)f.copy_ns / 1e9;
        const double failures = (1.0 / 24 + f.n_failures) / known, swaps = f.n_swaps / known;
        const double t = (double)interval_ns(&f) / 1e9, c = cost(t, d, failures, swaps);

        if (t * 1e9 <= INTERVAL_MIN_NS * 1.01 || t * 1e9 >= INTERVAL_MAX_NS * 0.99 ||
            swaps * t < 1e-3)
            continue; /* at a limit, or where the sum above is too coarse */
        for (double by = 0.25; by < 4.1; by += 0.05)
            assert_true(cost(by * t, d, failures, swaps) >= c * (1 - 1e-7));
    }
}

/* Not by the formula: a job's life, with failures and swaps as they come. Returns what was lost. */
static double live(double t, double d, double failures, double swaps, double until)
{
    double now = 0, age = 0, lost = 0;

    while (now < until) {
        const double to_fail = -log(1 - drand48()) / failures;
        const double to_swap = -log(1 - drand48()) / swaps, to_due = t - age;
        const double next = fmin(to_fail, fmin(to_swap, to_due));

        now += next;
        age += next;
        if (next == to_fail)
            lost += age;
        else if (next == to_due)
            lost += d;
        age = 0;
    }
    return lost / now;
}

static void a_job_that_lives_by_it_loses_least(void **state)
{
    const struct interval_facts f = {
        .copy_ns = 2 * SECOND, .here_ns = 99 * HOUR, .n_failures = 60, .n_swaps = 1500};
    const double known = (double)(HOUR + f.here_ns) / 1e9, t = (double)interval_ns(&f) / 1e9;
    const double failures = (1.0 / 24 + f.n_failures) / known, swaps = f.n_swaps / known;
    double best;

    (void)state;
    srand48(7);
    best = live(t, 2, failures, swaps, 1e8);
    assert_true(best < live(t / 2, 2, failures, swaps, 1e8));
    assert_true(best < live(t * 2, 2, failures, swaps, 1e8));
    assert_true(fabs(best / cost(t, 2, failures, swaps) - 1) < 0.05);
}

static void it_has_limits(void **state)
{
    struct interval_facts f = {.copy_ns = 0};

    (void)state;
    assert_int_equal(interval_ns(&f), INTERVAL_MIN_NS);
    f.write_ns = 3 * SECOND; /* the disk is busy for a tenth of the time at most */
    assert_int_equal(interval_ns(&f), INTERVAL_WRITES * 3 * SECOND);
    f.write_ns = INT64_MAX;
    assert_int_equal(interval_ns(&f), INTERVAL_MAX_NS);
    f = (struct interval_facts){.copy_ns = INT64_MAX, .here_ns = INT64_MAX / 2, .n_swaps = 1};
    assert_int_equal(interval_ns(&f), INTERVAL_MAX_NS);
    f = (struct interval_facts){.copy_ns = -5, .here_ns = -5, .n_failures = UINT32_MAX};
    assert_int_equal(interval_ns(&f), INTERVAL_MIN_NS);
    f = (struct interval_facts){.copy_ns = 1 * SECOND, .n_failures = 1, .n_swaps = UINT32_MAX};
    assert_int_equal(interval_ns(&f), INTERVAL_MAX_NS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(without_swaps_it_is_youngs),
        cmocka_unit_test(failures_shorten_it_and_quiet_time_and_cost_lengthen_it),
        cmocka_unit_test(with_swaps_nothing_else_would_cost_less),
        cmocka_unit_test(a_job_that_lives_by_it_loses_least),
        cmocka_unit_test(it_has_limits),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
