/* test_predict.c - without it, admission could trust a run of long ago, a single lucky run, or a
 * profile when measurements say otherwise, and would refuse or accept the wrong requests. */
/* uses: scheduler/predict.o */
#include "scheduler/predict.h"
#include "tests/unit/sh_test.h"

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
    assert_int_equal(predict_run_ns(&p, 1, 0), PREDICT_UNKNOWN_NS);
}

static void the_profile_counts_until_ten_runs_are_known(void **state)
{
    struct predict p = {0};
    const struct msg_profile profile[] = {{1, 0, 5e6}, {4, 0, 12e6}};

    (void)state;
    predict_profile(&p, profile, 2);
    for (int i = 0; i < 9; i++)
        predict_add(&p, 1, 30 * MS, MS);
    assert_int_equal(predict_run_ns(&p, 1, MS), 5 * MS);
    predict_add(&p, 1, 30 * MS, MS);
    assert_int_equal(predict_run_ns(&p, 1, MS), 30 * MS);
}

static void a_batch_without_profile_takes_that_of_a_larger_one_or_a_multiple(void **state)
{
    struct predict p = {0};
    const struct msg_profile profile[] = {{1, 0, 5e6}, {4, 0, 12e6}};

    (void)state;
    predict_profile(&p, profile, 2);
    assert_int_equal(predict_run_ns(&p, 2, 0), 12 * MS);
    assert_int_equal(predict_run_ns(&p, 8, 0), 24 * MS);
    assert_int_equal(predict_run_ns(&p, 16, 0), 48 * MS);
}

static void a_profile_that_is_no_number_is_ignored(void **state)
{
    struct predict p = {0};
    const struct msg_profile profile[] = {{1, 0, -1}, {2, 0, 0.0 / 0.0}, {4, 0, 1e300}};

    (void)state;
    predict_profile(&p, profile, 3);
    assert_int_equal(predict_run_ns(&p, 1, 0), PREDICT_UNKNOWN_NS);
}

static void the_slowest_of_few_runs_counts(void **state)
{
    struct predict p = {0};

    (void)state;
    for (int i = 1; i <= 20; i++)
        predict_add(&p, 1, i * MS, MS);
    assert_int_equal(predict_run_ns(&p, 1, MS), 20 * MS);
}

static void the_ring_forgets_what_is_overwritten(void **state)
{
    struct predict p = {0};

    (void)state;
    predict_add(&p, 1, 900 * MS, MS);
    for (unsigned i = 0; i < PREDICT_RING; i++)
        predict_add(&p, 1, 3 * MS, MS);
    assert_int_equal(predict_run_ns(&p, 1, MS), 3 * MS);
}

static void old_runs_do_not_count_so_that_a_refused_model_recovers(void **state)
{
    struct predict p = {0};
    const struct msg_profile profile[] = {{1, 0, 5e6}};

    (void)state;
    predict_profile(&p, profile, 1);
    for (int i = 0; i < 20; i++)
        predict_add(&p, 1, 900 * MS, MS);
    assert_int_equal(predict_run_ns(&p, 1, 2 * MS), 900 * MS);
    assert_int_equal(predict_run_ns(&p, 1, 2 * MS + PREDICT_MAX_AGE_NS), 5 * MS);
}

static void batches_do_not_mix(void **state)
{
    struct predict p = {0};

    (void)state;
    for (int i = 0; i < 10; i++) {
        predict_add(&p, 1, 2 * MS, MS);
        predict_add(&p, 8, 9 * MS, MS);
    }
    assert_int_equal(predict_run_ns(&p, 1, MS), 2 * MS);
    assert_int_equal(predict_run_ns(&p, 5, MS), 9 * MS);
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
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
