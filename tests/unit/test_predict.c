/* test_predict.c - without it, admission could trust a run of long ago, a single run, or a profile
 * when measurements say otherwise, and would refuse or accept the wrong requests. */
/* uses: scheduler/decide/predict.o */
#include "common/mem.h"
#include "scheduler/decide/predict.h"
#include "tests/unit/sh_test.h"

#include <math.h>
#include <stdlib.h>

#define MS INT64_C(1000000)

/* As most tests ask: how slow a run can be. */
static int64_t slow(const struct predict *p, uint32_t batch, double percentile, int64_t now)
{
    struct predict_time t;

    predict_run(p, batch, percentile, now, &t);
    assert_true(t.usual_ns > 0 && t.usual_ns <= t.slow_ns && t.tail_ns <= t.usual_ns);
    return t.slow_ns;
}

static int64_t usual(const struct predict *p, int64_t now)
{
    struct predict_time t;

    predict_run(p, 1, 99, now, &t);
    return t.usual_ns;
}

static void buckets_are_powers_of_two(void **state)
{
    (void)state;
    assert_int_equal(predict_bucket(0), 0);
    assert_int_equal(predict_bucket(1), 0);
    assert_int_equal(predict_bucket(2), 1);
    assert_int_equal(predict_bucket(3), 2);
    assert_int_equal(predict_bucket(4), 2);
    assert_int_equal(predict_bucket(1024), 10);
    assert_int_equal(predict_bucket(UINT32_MAX), 10);
}

static void nothing_known_is_a_cautious_guess(void **state)
{
    struct predict p = {0};

    (void)state;
    assert_int_equal(slow(&p, 1, 99, 0), PREDICT_UNKNOWN_NS);
}

static void the_profile_counts_until_some_runs_are_known(void **state)
{
    struct predict p = {0};
    const struct msg_profile profile[] = {{1, 0, 5e6, 1e6}, {4, 0, 12e6, 3e6}};

    (void)state;
    predict_profile(&p, profile, 2);
    for (unsigned i = 1; i < PREDICT_MIN; i++)
        predict_add(&p, 1, 30 * MS, MS);
    assert_int_equal(slow(&p, 1, 99, MS), 5 * MS);
    predict_add(&p, 1, 30 * MS, MS);
    assert_int_equal(slow(&p, 1, 99, MS), 30 * MS);
}

static void a_batch_without_profile_takes_that_of_a_larger_one_or_a_multiple(void **state)
{
    struct predict p = {0};
    const struct msg_profile profile[] = {{1, 0, 5e6, 1e6}, {4, 0, 12e6, 3e6}};

    (void)state;
    predict_profile(&p, profile, 2);
    assert_int_equal(slow(&p, 2, 99, 0), 12 * MS);
    assert_int_equal(slow(&p, 8, 99, 0), 24 * MS);
    assert_int_equal(slow(&p, 16, 99, 0), 48 * MS);
}

static void a_profile_that_is_no_number_is_ignored(void **state)
{
    struct predict p = {0};
    const struct msg_profile profile[] = {{1, 0, -1, 0}, {2, 0, 0.0 / 0.0, 0}, {4, 0, 1e300, 0}};

    (void)state;
    predict_profile(&p, profile, 3);
    assert_int_equal(slow(&p, 1, 99, 0), PREDICT_UNKNOWN_NS);
}

static void one_slow_run_stands_alone_and_several_do_not(void **state)
{
    struct predict p = {0};
    int64_t now = MS;

    (void)state;
    for (unsigned i = 0; i < PREDICT_RING; i++)
        predict_add(&p, 1, 5 * MS, now);
    predict_add(&p, 1, 200 * MS, now);
    assert_int_equal(slow(&p, 1, 99, now), 5 * MS);
    assert_int_equal(usual(&p, now), 5 * MS);
    predict_add(&p, 1, 190 * MS, now);
    assert_int_equal(slow(&p, 1, 99, now), 190 * MS);
    assert_int_equal(usual(&p, now), 5 * MS + (190 - 5) * MS / 63); /* the outlier costs nothing */
}

static void slow_runs_are_forgotten_within_seconds_and_a_few_of_them_sooner(void **state)
{
    static const struct {
        unsigned n_slow;
        int64_t ms; /* then they count no more */
    } CASES[] = {{1, 0}, {2, 1000}, {3, 2000}, {8, 3000}, {16, 4000}};

    (void)state;
    for (size_t c = 0; c < SH_ARRAY_LEN(CASES); c++) {
        struct predict p = {0};
        int64_t now = MS;

        for (unsigned i = 0; i < CASES[c].n_slow; i++)
            predict_add(&p, 1, 200 * MS, now);
        for (int i = 0; i < 20; i++)
            predict_add(&p, 1, 5 * MS, now);
        if (CASES[c].n_slow > 1)
            assert_int_equal(slow(&p, 1, 99, now + (CASES[c].ms - 500) * MS), 200 * MS);
        assert_int_equal(slow(&p, 1, 99, now + CASES[c].ms * MS), 5 * MS);
    }
}

static void a_part_of_runs_that_is_slow_again_and_again_counts(void **state)
{
    struct predict p = {0};
    int64_t now = MS;

    (void)state;
    for (int i = 0; i < 400; i++, now += 10 * MS)
        predict_add(&p, 1, i % 20 ? 5 * MS : 40 * MS, now);
    assert_int_equal(slow(&p, 1, 99, now), 40 * MS);
    assert_int_equal(slow(&p, 1, 90, now), 5 * MS);
}

static void a_batch_that_never_ran_takes_its_profile_as_runs_of_another_exceed_theirs(void **state)
{
    struct predict p = {0};
    const struct msg_profile profile[] = {{1, 0, 5e6, 1e6}, {4, 0, 12e6, 3e6}};

    (void)state;
    predict_profile(&p, profile, 2);
    for (int i = 0; i < 20; i++)
        predict_add(&p, 1, 10 * MS, MS);
    assert_int_equal(slow(&p, 4, 99, MS), 24 * MS);
    for (int i = 0; i < 64; i++)
        predict_add(&p, 1, 900 * MS, MS);
    assert_int_equal(slow(&p, 4, 99, MS), 48 * MS); /* within reason */
}

static void all_buckets_at_once_are_what_each_is_by_itself(void **state)
{
    const struct msg_profile profile[] = {{1, 0, 5e6, 1e6}, {4, 0, 12e6, 3e6}, {32, 0, 6e7, 2e6}};

    (void)state;
    for (unsigned seed = 0; seed < 200; seed++) {
        struct predict p = {0};
        struct predict_time all[PREDICT_N_BUCKETS], one;
        uint32_t x = seed;

        predict_profile(&p, profile, seed % 4);
        for (unsigned i = 0; i < seed / 2; i++) { /* with some that are too old at the end */
            x = x * 1664525 + 1013904223;
            predict_add(&p, 1u << (x >> 16) % 6, (1 + (x >> 8) % 90) * MS, i * 400 * MS);
        }
        predict_runs(&p, PREDICT_N_BUCKETS - 1, 95, 36000 * MS, all);
        for (unsigned b = 0; b < PREDICT_N_BUCKETS; b++) {
            predict_run(&p, 1u << b, 95, 36000 * MS, &one);
            assert_int_equal(one.usual_ns, all[b].usual_ns);
            assert_int_equal(one.slow_ns, all[b].slow_ns);
            assert_int_equal(one.tail_ns, all[b].tail_ns);
            assert_int_equal(one.fastest_ns, all[b].fastest_ns);
            assert_int_equal(one.source, all[b].source);
        }
    }
}

static void the_tail_is_in_proportion_to_the_profile(void **state)
{
    struct predict p = {0};
    const struct msg_profile profile[] = {{1, 0, 5e6, 1e6}, {2, 0, 8e6, 0.0 / 0.0}};
    struct predict_time t;

    (void)state;
    predict_profile(&p, profile, 2);
    for (int i = 0; i < 20; i++)
        predict_add(&p, 1, 10 * MS, MS);
    predict_run(&p, 1, 99, MS, &t);
    assert_int_equal(t.tail_ns, 2 * MS);
    predict_run(&p, 2, 99, MS, &t); /* not known: all of it */
    assert_int_equal(t.tail_ns, t.usual_ns);
}

static void cold_runs_have_a_book_of_their_own(void **state)
{
    struct predict p = {0};

    (void)state;
    for (int i = 0; i < 20; i++)
        predict_add(&p, 1, 5 * MS, MS);
    predict_add_cold(&p, 1, 300 * MS, MS);
    assert_int_equal(predict_cold_ns(&p, PREDICT_COLD, 99, MS), 0); /* stands alone */
    predict_add_cold(&p, 1, 20 * MS, MS);
    predict_add_cold(&p, 1, -20 * MS, MS);
    assert_int_equal(predict_cold_ns(&p, PREDICT_COLD, 99, MS), 20 * MS);
    for (int i = 0; i < 9; i++) /* what did not hold for one kind says nothing of the other */
        predict_judge(&p, PREDICT_PARTIAL, 99, false);
    assert_int_equal(predict_cold_ns(&p, PREDICT_COLD, 99, MS), 20 * MS);
    assert_true(predict_cold_ns(&p, PREDICT_PARTIAL, 99, MS) > 40 * MS);
    assert_int_equal(slow(&p, 1, 99, MS), 5 * MS);
    assert_int_equal(predict_cold_ns(&p, PREDICT_COLD, 99, MS + PREDICT_MAX_AGE_NS + 1), 0);
}

static void the_ring_forgets_what_is_overwritten(void **state)
{
    struct predict p = {0};

    (void)state;
    predict_add(&p, 1, 900 * MS, MS);
    for (unsigned i = 0; i < PREDICT_RING; i++)
        predict_add(&p, 1, 3 * MS, MS);
    assert_int_equal(slow(&p, 1, 99, MS), 3 * MS);
}

static void old_runs_do_not_count_so_that_a_refused_model_recovers(void **state)
{
    struct predict p = {0};
    const struct msg_profile profile[] = {{1, 0, 5e6, 1e6}};

    (void)state;
    predict_profile(&p, profile, 1);
    for (int i = 0; i < 20; i++)
        predict_add(&p, 1, 900 * MS, MS);
    assert_int_equal(slow(&p, 1, 99, 2 * MS), 900 * MS);
    assert_int_equal(slow(&p, 1, 99, 2 * MS + PREDICT_MAX_AGE_NS), 5 * MS);
}

static void batches_do_not_mix(void **state)
{
    struct predict p = {0};

    (void)state;
    for (int i = 0; i < 10; i++) {
        predict_add(&p, 1, 2 * MS, MS);
        predict_add(&p, 8, 9 * MS, MS);
    }
    assert_int_equal(slow(&p, 1, 99, MS), 2 * MS);
    assert_int_equal(slow(&p, 5, 99, MS), 9 * MS);
}

static void the_percentile_of_the_target_decides(void **state)
{
    struct predict p = {0};

    (void)state;
    for (int i = 1; i <= 40; i++)
        predict_add(&p, 1, i * MS, MS);
    assert_int_equal(slow(&p, 1, 50, MS), 20 * MS);
    assert_int_equal(slow(&p, 1, 90, MS), 36 * MS);
    assert_int_equal(slow(&p, 1, 99.999, MS), 39 * MS); /* one alone never counts */
    assert_int_equal(slow(&p, 1, 0.001, MS), 1 * MS);
}

struct run {
    int64_t ns, at;
};

static int by_value(const void *a, const void *b)
{
    int64_t x = ((const struct run *)a)->ns, y = ((const struct run *)b)->ns;

    return (x > y) - (x < y);
}

/* 2^-(age in s), straight between whole seconds. */
static double weight(int64_t age)
{
    double w = 1;

    for (; age >= 1000 * MS; age -= 1000 * MS)
        w /= 2;
    return w * (1 - (double)age / 2e9);
}

/* Against a plain sort of what is in the ring, with ties and every position replaced. */
static void the_order_is_that_of_a_plain_sort(void **state)
{
    static const double PERCENTILE[] = {0.001, 10, 50, 75, 90, 99, 99.999};
    struct predict p = {0};
    struct run all[5001];
    uint32_t seed = 1;

    (void)state;
    for (uint32_t n = 1; n <= 5000; n++) {
        struct run fresh[PREDICT_RING];
        size_t n_fresh = 0;
        double sum = 0;
        int64_t now;

        seed = seed * 1664525u + 1013904223u;
        all[n].ns = 1 + (seed >> 8) % (n % 500 < 250 ? 7 : 100000);
        all[n].at = now = n * 100 * MS;
        predict_add(&p, 1, all[n].ns, now);
        for (uint32_t i = n > PREDICT_RING ? n - PREDICT_RING + 1 : 1; i <= n; i++)
            if (now - all[i].at <= PREDICT_MAX_AGE_NS) {
                sum += weight(now - all[i].at);
                fresh[n_fresh++] = all[i];
            }
        if (n_fresh < PREDICT_MIN || sum < 8)
            continue;
        qsort(fresh, n_fresh, sizeof(fresh[0]), by_value);
        for (size_t k = 0; k < SH_ARRAY_LEN(PERCENTILE); k++) {
            double left = SH_MAX(sum * (1 - PERCENTILE[k] / 100), 1.0) * (1 + 1e-9);
            int64_t got = slow(&p, 1, PERCENTILE[k], now), least = INT64_MAX;
            double above = 0, at_least = 0;

            /* Those above do not count, those from it on are too many not to. */
            for (size_t i = 0; i < n_fresh; i++) {
                above += fresh[i].ns > got ? weight(now - fresh[i].at) : 0;
                at_least += fresh[i].ns >= got ? weight(now - fresh[i].at) : 0;
                least = SH_MIN(least, fresh[i].ns);
            }
            assert_true(above <= left);
            assert_true(at_least > left || got == least);
        }
    }
}

/* Few runs, or old ones, have a median: each of them alone weighs less than an outlier may. */
static void a_model_that_seldom_runs_is_predicted_from_its_runs(void **state)
{
    const struct msg_profile profile[] = {{1, 0, 2e6, 1e6}};
    struct predict p = {0};
    struct predict_time t;

    (void)state;
    predict_profile(&p, profile, 1);
    for (int i = 0; i < 8; i++)
        predict_add(&p, 1, (5 + i % 2) * MS, (1 + 2000 * i) * MS);
    predict_run(&p, 1, 99, 16000 * MS, &t);
    assert_int_equal(t.source, PREDICT_FROM_RUNS);
    assert_in_range(t.usual_ns, 5 * MS, 6 * MS);
    assert_true(t.slow_ns >= t.usual_ns);
}

/* Runs that are as likely slow as the profile of the ring cannot tell: how often the slow time held
 * decides. */
static void a_slow_time_holds_as_often_as_it_says(void **state)
{
    static const struct {
        double percentile, jitter, part_slow, slow; /* a run: 1 to 1 + jitter; or that much */
        int64_t gap_ms;
    } CASES[] = {{99, .3, 0, 0, 10},   {99, .3, .02, 3, 10},  {99, 0, .015, 1.5, 100},
                 {90, .5, .05, 2, 20}, {99, .1, .05, 2, 300}, {99, 2, 0, 0, 1000}};

    (void)state;
    for (size_t c = 0; c < SH_ARRAY_LEN(CASES); c++) {
        struct predict p = {0};
        const double most = CASES[c].percentile / 100;
        int64_t now = MS;
        uint32_t seed = 1, n_held = 0, n = 0;

        for (int i = 0; i < 6000; i++, now += CASES[c].gap_ms * MS) {
            struct predict_time t;
            double by;
            int64_t took;

            seed = seed * 1664525u + 1013904223u;
            by = 1 + CASES[c].jitter * (seed >> 8) / (1 << 24);
            seed = seed * 1664525u + 1013904223u;
            if ((seed >> 8) < CASES[c].part_slow * (1 << 24))
                by = CASES[c].slow;
            took = (int64_t)(by * 5 * MS);
            predict_run(&p, 1, CASES[c].percentile, now, &t);
            if (i >= 1000) {
                n_held += took <= t.slow_ns;
                n++;
            }
            predict_judge(&p, PREDICT_WARM, CASES[c].percentile, took <= t.slow_ns);
            predict_add(&p, 1, took, now);
        }
        if (fabs((double)n_held / n - most) > .008)
            fail_msg("case %zu: held for %.4f, not %.4f", c, (double)n_held / n, most);
    }
}

static void what_ran_before_makes_a_run_longer_or_shorter(void **state)
{
    struct predict p = {0};
    int64_t now = MS;
    uint32_t seed = 1, n_near = 0;

    (void)state;
    for (int i = 0; i < 400; i++, now += 20 * MS) {
        struct predict_time t;
        unsigned before;
        bool is_other, has_rested;
        int64_t took, said;

        seed = seed * 1664525u + 1013904223u;
        is_other = seed >> 31;
        has_rested = seed >> 30 & 1;
        took = (is_other ? 4 : 2) * MS + has_rested * 3 * MS + (int64_t)(seed >> 8 & 0xffff);
        before = predict_before(is_other, has_rested ? 100 * MS : MS);
        predict_run(&p, 1, 99, now, &t);
        said = predict_after(&p, 1, before, t.usual_ns);
        n_near += i >= 200 && llabs(said - took) * 10 < took;
        predict_add_after(&p, 1, before, i % 100 ? took : 100 * MS); /* a stall */
        predict_add(&p, 1, took, now);
    }
    assert_true(n_near > 180);
}

static void a_rest_that_is_not_known_is_taken_for_the_nearest(void **state)
{
    struct predict p = {0};

    (void)state;
    assert_int_equal(predict_after(&p, 1, predict_before(true, MS), 4 * MS), 4 * MS);
    for (int i = 0; i < 100; i++)
        predict_add_after(&p, 1, predict_before(true, 20 * MS), 6 * MS);
    assert_int_equal(predict_after(&p, 1, predict_before(true, -MS), 4 * MS), 6 * MS);
    assert_int_equal(predict_after(&p, 1, predict_before(true, SH_S(9)), 4 * MS), 6 * MS);
    assert_int_equal(predict_after(&p, 1, predict_before(false, 20 * MS), 4 * MS), 4 * MS);
    assert_int_equal(predict_after(&p, 2, predict_before(true, 20 * MS), 4 * MS), 4 * MS);
}

/* Neither of a warm nor of a cold run. */
static void what_one_stall_said_is_not_believed(void **state)
{
    struct predict p = {0};
    const unsigned before = predict_before(true, 100 * MS);

    (void)state;
    for (int i = 0; i < 20; i++) {
        predict_add_after(&p, 1, before, i == 0 ? 500 * MS : 6 * MS);
        predict_add_over(&p, PREDICT_COLD, 20 * MS, i == 1 ? SH_S(5) : 22 * MS, MS);
        assert_int_equal(predict_after(&p, 1, before, 5 * MS), (i < 2 ? 5 : 6) * MS);
        assert_int_equal((int64_t)p.over_ns[PREDICT_COLD].median, (i < 2 ? 0 : 2) * MS);
    }
}

/* Copies beside which all but the last layer was computed, or before which memory was opened. */
static void what_cold_runs_always_take_more_or_less_is_learnt(void **state)
{
    static const int64_t OVER_MS[] = {-3, 0, 2};

    (void)state;
    for (size_t i = 0; i < SH_ARRAY_LEN(OVER_MS); i++) {
        struct predict p = {0};

        for (int n = 0; n < 60; n++) {
            const int64_t took = (20 + OVER_MS[i]) * MS;

            predict_add_over(&p, PREDICT_COLD, 20 * MS, n % 20 == 5 ? 900 * MS : took,
                             MS); /* a stall */
        }
        assert_true(fabs((double)p.over_ns[PREDICT_COLD].median - (double)(OVER_MS[i] * MS)) <
                    .01 * MS);
        assert_true(p.over_ns[PREDICT_PARTIAL].n == 0);
        assert_true(predict_over_ns(&p, PREDICT_COLD, MS) ==
                    (int64_t)p.over_ns[PREDICT_COLD].median);
        /* What keeps others out is forgotten. */
        assert_int_equal(predict_over_ns(&p, PREDICT_COLD, 2 * MS + PREDICT_MAX_AGE_NS),
                         OVER_MS[i] > 0 ? 0 : (int64_t)p.over_ns[PREDICT_COLD].median);
    }
}

static void a_line_for_people_counts_all_runs_and_says_what_it_predicts_from(void **state)
{
    struct predict p = {0};
    const struct msg_profile profile[] = {{1, 0, 5e6, 1e6}};
    struct predict_line l;

    (void)state;
    predict_line(&p, 0, 99, MS, &l);
    assert_int_equal(l.source, PREDICT_FROM_GUESS);
    assert_int_equal(l.p50_ns, 0);
    predict_profile(&p, profile, 1);
    for (unsigned i = 1; i <= PREDICT_RING + 36; i++)
        predict_add(&p, 1, (int64_t)i * MS, MS);
    predict_line(&p, 0, 75, MS, &l);
    assert_int_equal(l.source, PREDICT_FROM_RUNS);
    assert_int_equal(l.runs, PREDICT_RING + 36);
    assert_int_equal(l.recent, PREDICT_RING);
    assert_int_equal(l.predicted_ns, (36 + 48) * MS);
    assert_int_equal(l.p50_ns, (36 + 32) * MS);
    assert_int_equal(l.p99_ns, (36 + 64) * MS);
    predict_line(&p, 0, 75, MS + PREDICT_MAX_AGE_NS + 1, &l); /* old runs are shown, not believed */
    assert_int_equal(l.source, PREDICT_FROM_PROFILE);
    assert_int_equal(l.predicted_ns, 5 * MS);
    assert_int_equal(l.recent, PREDICT_RING);
}

static void what_is_asked_for_is_known_by_its_rate_and_forgotten(void **state)
{
    struct predict p = {0};
    int64_t now = 0;

    (void)state;
    assert_true(predict_asked(&p, 0) == 0);
    for (int i = 0; i < 2000; i++)
        predict_ask(&p, 2, now += MS); /* two a ms */
    assert_float_equal(predict_asked(&p, now) * (double)MS, 2, 0.02);
    for (int i = 0; i < 2000; i++)
        predict_ask(&p, 1, now += 4 * MS);
    assert_float_equal(predict_asked(&p, now) * (double)MS, 0.25, 0.01);
    assert_float_equal(predict_asked(&p, now + PREDICT_ASKED_NS) * (double)MS, 0.125, 0.005);
    assert_true(predict_asked(&p, now + 3600000 * MS) < 1e-20);
}

static void no_link_is_too_slow_for_a_number(void **state)
{
    (void)state;
    assert_int_equal(predict_copy_ns(1000, 0.5), 500);
    assert_int_equal(predict_copy_ns(0, 1e9), 0);
    assert_int_equal(predict_copy_ns(UINT64_C(1) << 40, 1e9), PREDICT_MAX_COPY_NS); /* 1 B/s */
    assert_int_equal(predict_copy_ns(UINT64_MAX, INFINITY), PREDICT_MAX_COPY_NS);
    assert_int_equal(predict_copy_ns(1, NAN), PREDICT_MAX_COPY_NS);
}

static void what_no_device_measures_is_not_taken(void **state)
{
    static const struct {
        double ns, tail;
        int64_t usual, tail_is;
    } CASES[] = {{2e6, 1e6, 2000000, 1000000},
                 {2e6, -1, 2000000, 2000000},
                 {2e6, 2e6, 2000000, 2000000},
                 {2e6, 9e6, 2000000, 2000000},
                 {2e6, NAN, 2000000, 2000000},
                 {2e6, 0, 2000000, 0},
                 {-1, 0, PREDICT_UNKNOWN_NS, PREDICT_UNKNOWN_NS},
                 {0, 0, PREDICT_UNKNOWN_NS, PREDICT_UNKNOWN_NS},
                 {1e15, 0, PREDICT_UNKNOWN_NS, PREDICT_UNKNOWN_NS},
                 {INFINITY, 0, PREDICT_UNKNOWN_NS, PREDICT_UNKNOWN_NS}};

    (void)state;
    for (size_t i = 0; i < sizeof(CASES) / sizeof(CASES[0]); i++) {
        const struct msg_profile row = {
            .batch = 1, .compute_ns = CASES[i].ns, .tail_ns = CASES[i].tail};
        struct predict p = {0};
        struct predict_time t;

        predict_profile(&p, &row, 1);
        predict_run(&p, 1, 99, MS, &t);
        assert_int_equal(t.usual_ns, CASES[i].usual);
        assert_int_equal(t.tail_ns, CASES[i].tail_is);
    }
}

/* Runs of long ago count neither by themselves nor for another size. */
static void old_runs_say_nothing_of_another_size(void **state)
{
    static const struct msg_profile ROWS[] = {{.batch = 1, .compute_ns = 1e6, .tail_ns = 0},
                                              {.batch = 2, .compute_ns = 2e6, .tail_ns = 0}};
    struct predict p = {0};
    struct predict_time t;

    (void)state;
    predict_profile(&p, ROWS, 2);
    for (unsigned i = 0; i < PREDICT_MIN; i++)
        predict_add(&p, 1, 100 * MS, MS); /* much slower than measured: at most 4 times as slow */
    predict_run(&p, 2, 99, MS, &t);
    assert_int_equal(t.usual_ns, 8 * MS);
    predict_run(&p, 2, 99, 2 * MS + PREDICT_MAX_AGE_NS, &t);
    assert_int_equal(t.usual_ns, 2 * MS);
    for (unsigned i = 0; i < PREDICT_MIN; i++)
        predict_add(&p, 1, 1, PREDICT_MAX_AGE_NS * 2); /* and at least a fourth */
    predict_run(&p, 2, 99, PREDICT_MAX_AGE_NS * 2, &t);
    assert_int_equal(t.usual_ns, MS / 2);
}

static void slack_grows_like_independent_errors(void **state)
{
    (void)state;
    assert_int_equal(predict_slack(3, 4), 5);
    assert_int_equal(predict_slack(0, 4), 4);
    assert_int_equal(predict_slack(4, -1), 4);
}

/* A queue exceeds what was predicted at random, seldom by much: by x or more in one case of x^2. */
static void as_much_is_kept_free_as_promises_need(void **state)
{
    double reserve = 0;
    uint32_t seed = 7;
    int broken = 0;

    (void)state;
    for (int i = 0; i < 1200000; i++) {
        bool kept;

        seed = seed * 1664525u + 1013904223u;
        kept = sqrt((1 << 24) / ((seed >> 8) + 1.)) < 8 * exp(reserve);
        predict_promise(&reserve, kept);
        broken += i >= 200000 && !kept;
    }
    assert_in_range(broken, 300, 500); /* 1 of 2,500, where 1 of 64 would break */
    for (int i = 0; i < 10000; i++)
        predict_promise(&reserve, false);
    assert_true(reserve < 5); /* bounded either way */
    for (int i = 0; i < 10000000; i++)
        predict_promise(&reserve, true);
    assert_true(reserve > -2 && reserve < 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(buckets_are_powers_of_two),
        cmocka_unit_test(nothing_known_is_a_cautious_guess),
        cmocka_unit_test(the_profile_counts_until_some_runs_are_known),
        cmocka_unit_test(a_batch_without_profile_takes_that_of_a_larger_one_or_a_multiple),
        cmocka_unit_test(a_profile_that_is_no_number_is_ignored),
        cmocka_unit_test(one_slow_run_stands_alone_and_several_do_not),
        cmocka_unit_test(slow_runs_are_forgotten_within_seconds_and_a_few_of_them_sooner),
        cmocka_unit_test(a_part_of_runs_that_is_slow_again_and_again_counts),
        cmocka_unit_test(a_batch_that_never_ran_takes_its_profile_as_runs_of_another_exceed_theirs),
        cmocka_unit_test(all_buckets_at_once_are_what_each_is_by_itself),
        cmocka_unit_test(the_tail_is_in_proportion_to_the_profile),
        cmocka_unit_test(cold_runs_have_a_book_of_their_own),
        cmocka_unit_test(the_ring_forgets_what_is_overwritten),
        cmocka_unit_test(old_runs_do_not_count_so_that_a_refused_model_recovers),
        cmocka_unit_test(batches_do_not_mix),
        cmocka_unit_test(the_percentile_of_the_target_decides),
        cmocka_unit_test(the_order_is_that_of_a_plain_sort),
        cmocka_unit_test(a_model_that_seldom_runs_is_predicted_from_its_runs),
        cmocka_unit_test(a_slow_time_holds_as_often_as_it_says),
        cmocka_unit_test(what_ran_before_makes_a_run_longer_or_shorter),
        cmocka_unit_test(a_rest_that_is_not_known_is_taken_for_the_nearest),
        cmocka_unit_test(what_one_stall_said_is_not_believed),
        cmocka_unit_test(what_cold_runs_always_take_more_or_less_is_learnt),
        cmocka_unit_test(a_line_for_people_counts_all_runs_and_says_what_it_predicts_from),
        cmocka_unit_test(what_is_asked_for_is_known_by_its_rate_and_forgotten),
        cmocka_unit_test(no_link_is_too_slow_for_a_number),
        cmocka_unit_test(what_no_device_measures_is_not_taken),
        cmocka_unit_test(old_runs_say_nothing_of_another_size),
        cmocka_unit_test(slack_grows_like_independent_errors),
        cmocka_unit_test(as_much_is_kept_free_as_promises_need),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
