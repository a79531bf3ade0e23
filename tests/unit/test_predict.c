/* test_predict.c - without it, admission could trust a run of long ago, a single lucky run, or a
 * profile when measurements say otherwise, and would refuse or accept the wrong requests. */
/* uses: scheduler/predict.o */
#include "common/mem.h"
#include "scheduler/predict.h"
#include "tests/unit/sh_test.h"

#include <math.h>

#define MS INT64_C(1000000)

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
    assert_int_equal(predict_run_ns(&p, 1, 99, 0), PREDICT_UNKNOWN_NS);
}

static void the_profile_counts_until_ten_runs_are_known(void **state)
{
    struct predict p = {0};
    const struct msg_profile profile[] = {{1, 0, 5e6}, {4, 0, 12e6}};

    (void)state;
    predict_profile(&p, profile, 2);
    for (int i = 0; i < 9; i++)
        predict_add(&p, 1, 30 * MS, MS);
    assert_int_equal(predict_run_ns(&p, 1, 99, MS), 5 * MS);
    predict_add(&p, 1, 30 * MS, MS);
    assert_int_equal(predict_run_ns(&p, 1, 99, MS), 30 * MS);
}

static void a_batch_without_profile_takes_that_of_a_larger_one_or_a_multiple(void **state)
{
    struct predict p = {0};
    const struct msg_profile profile[] = {{1, 0, 5e6}, {4, 0, 12e6}};

    (void)state;
    predict_profile(&p, profile, 2);
    assert_int_equal(predict_run_ns(&p, 2, 99, 0), 12 * MS);
    assert_int_equal(predict_run_ns(&p, 8, 99, 0), 24 * MS);
    assert_int_equal(predict_run_ns(&p, 16, 99, 0), 48 * MS);
}

static void a_profile_that_is_no_number_is_ignored(void **state)
{
    struct predict p = {0};
    const struct msg_profile profile[] = {{1, 0, -1}, {2, 0, 0.0 / 0.0}, {4, 0, 1e300}};

    (void)state;
    predict_profile(&p, profile, 3);
    assert_int_equal(predict_run_ns(&p, 1, 99, 0), PREDICT_UNKNOWN_NS);
}

static void the_slowest_of_few_runs_counts(void **state)
{
    struct predict p = {0};

    (void)state;
    for (int i = 1; i <= 20; i++)
        predict_add(&p, 1, i * MS, MS);
    assert_int_equal(predict_run_ns(&p, 1, 99, MS), 20 * MS);
}

static void the_ring_forgets_what_is_overwritten(void **state)
{
    struct predict p = {0};

    (void)state;
    predict_add(&p, 1, 900 * MS, MS);
    for (unsigned i = 0; i < PREDICT_RING; i++)
        predict_add(&p, 1, 3 * MS, MS);
    assert_int_equal(predict_run_ns(&p, 1, 99, MS), 3 * MS);
}

static void old_runs_do_not_count_so_that_a_refused_model_recovers(void **state)
{
    struct predict p = {0};
    const struct msg_profile profile[] = {{1, 0, 5e6}};

    (void)state;
    predict_profile(&p, profile, 1);
    for (int i = 0; i < 20; i++)
        predict_add(&p, 1, 900 * MS, MS);
    assert_int_equal(predict_run_ns(&p, 1, 99, 2 * MS), 900 * MS);
    assert_int_equal(predict_run_ns(&p, 1, 99, 2 * MS + PREDICT_MAX_AGE_NS), 5 * MS);
}

static void batches_do_not_mix(void **state)
{
    struct predict p = {0};

    (void)state;
    for (int i = 0; i < 10; i++) {
        predict_add(&p, 1, 2 * MS, MS);
        predict_add(&p, 8, 9 * MS, MS);
    }
    assert_int_equal(predict_run_ns(&p, 1, 99, MS), 2 * MS);
    assert_int_equal(predict_run_ns(&p, 5, 99, MS), 9 * MS);
}

static void the_percentile_of_the_target_decides(void **state)
{
    struct predict p = {0};

    (void)state;
    for (int i = 1; i <= 40; i++)
        predict_add(&p, 1, i * MS, MS);
    assert_int_equal(predict_run_ns(&p, 1, 50, MS), 20 * MS);
    assert_int_equal(predict_run_ns(&p, 1, 90, MS), 36 * MS);
    assert_int_equal(predict_run_ns(&p, 1, 99.999, MS), 40 * MS);
    assert_int_equal(predict_run_ns(&p, 1, 0.001, MS), 1 * MS);
}

static int by_value(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;

    return (x > y) - (x < y);
}

/* Against a plain sort of what is in the ring, with ties, old ones and every position replaced. */
static void the_order_is_that_of_a_plain_sort(void **state)
{
    static const double PERCENTILE[] = {0.001, 10, 50, 75, 90, 99, 100};
    struct predict p = {0};
    int64_t ns[PREDICT_RING], at[PREDICT_RING];
    uint32_t seed = 1, n = 0;

    (void)state;
    for (int64_t now = 1; now <= 5000; now++) {
        int64_t fresh[PREDICT_RING];
        size_t n_fresh = 0;

        seed = seed * 1664525u + 1013904223u;
        ns[n % PREDICT_RING] = 1 + (seed >> 8) % (now % 500 < 250 ? 7 : 100000);
        at[n % PREDICT_RING] = now * PREDICT_MAX_AGE_NS / (PREDICT_RING / 2);
        predict_add(&p, 1, ns[n % PREDICT_RING], at[n % PREDICT_RING]);
        n++;
        for (uint32_t i = 0; i < SH_MIN(n, PREDICT_RING); i++)
            if (at[(n - 1) % PREDICT_RING] - at[i] <= PREDICT_MAX_AGE_NS)
                fresh[n_fresh++] = ns[i];
        if (n_fresh < PREDICT_MIN)
            continue;
        qsort(fresh, n_fresh, sizeof(fresh[0]), by_value);
        for (size_t k = 0; k < SH_ARRAY_LEN(PERCENTILE); k++) {
            size_t rank = (size_t)ceil((double)n_fresh * PERCENTILE[k] / 100);

            assert_int_equal(predict_run_ns(&p, 1, PERCENTILE[k], at[(n - 1) % PREDICT_RING]),
                             fresh[SH_MAX(rank, 1u) - 1]);
        }
    }
}

static void a_line_for_people_counts_all_runs_and_says_what_it_predicts_from(void **state)
{
    struct predict p = {0};
    const struct msg_profile profile[] = {{1, 0, 5e6}};
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(buckets_are_powers_of_two),
        cmocka_unit_test(nothing_known_is_a_cautious_guess),
        cmocka_unit_test(the_profile_counts_until_ten_runs_are_known),
        cmocka_unit_test(a_batch_without_profile_takes_that_of_a_larger_one_or_a_multiple),
        cmocka_unit_test(a_profile_that_is_no_number_is_ignored),
        cmocka_unit_test(the_slowest_of_few_runs_counts),
        cmocka_unit_test(the_ring_forgets_what_is_overwritten),
        cmocka_unit_test(old_runs_do_not_count_so_that_a_refused_model_recovers),
        cmocka_unit_test(batches_do_not_mix),
        cmocka_unit_test(the_percentile_of_the_target_decides),
        cmocka_unit_test(the_order_is_that_of_a_plain_sort),
        cmocka_unit_test(a_line_for_people_counts_all_runs_and_says_what_it_predicts_from),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
