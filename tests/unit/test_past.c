/* test_past.c - what jobs took that have ended, and what that says of the next.
 *
 * Without it an explanation could have no estimate for a job whose like has ended many times, or
 * take one kind of jobs for another, or grow with every model that was ever trained.
 */
/* uses: scheduler/decide/past.o */
#include "scheduler/decide/past.h"
#include "tests/unit/sh_test.h"

#define S INT64_C(1000000000)

static const struct past_like A = {.model_id = 1, .step_samples = 32};

static void a_job_is_expected_to_take_what_its_like_took(void **state)
{
    struct past p = {0};
    const struct past_like others[] = {{1, 64, false}, {2, 32, false}, {1, 32, true}};

    (void)state;
    assert_int_equal(past_expect_ns(&p, &A, 100), 0);
    for (int i = 0; i < 6; i++)
        past_add(&p, &A, 100, 20 * S, 21 * S);
    assert_in_range(past_expect_ns(&p, &A, 100), 21 * S - 9, 21 * S + 9);
    assert_in_range(past_expect_ns(&p, &A, 1000), 201 * S - 9, 201 * S + 9);
    assert_in_range(past_expect_ns(&p, &A, 0), S - 9, S + 9); /* it ends and writes its result */
    assert_in_range((int64_t)p.whole_ns, 21 * S - 9, 21 * S + 9);
    for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++)
        assert_int_equal(past_expect_ns(&p, &others[i], 100), 0);
}

static void newer_jobs_count_more(void **state)
{
    struct past p = {0};

    (void)state;
    past_add(&p, &A, 10, 100 * S, 100 * S);
    for (int i = 0; i < 20; i++)
        past_add(&p, &A, 10, 10 * S, 10 * S);
    assert_in_range(past_expect_ns(&p, &A, 10), 10 * S, 11 * S);
}

static void a_job_that_was_interrupted_says_only_what_its_steps_took(void **state)
{
    struct past p = {0};

    (void)state;
    past_add(&p, &A, 10, 10 * S, 0);
    assert_int_equal(past_expect_ns(&p, &A, 20), 20 * S);
    past_add(&p, &A, 0, 10 * S, 10 * S); /* these say nothing */
    past_add(&p, &A, 10, 0, 0);
    past_add(&p, &A, -1, -1, -1);
    assert_int_equal(past_expect_ns(&p, &A, 20), 20 * S);
    assert_true(past_expect_ns(&p, &A, INT64_MAX) > 0); /* and nothing overflows */
}

static void what_is_around_the_steps_is_of_those_that_say_it(void **state)
{
    struct past p = {0};

    (void)state;
    past_add(&p, &A, 10, 10 * S, 0); /* interrupted */
    past_add(&p, &A, 10, 10 * S, 100 * S);
    assert_in_range(past_expect_ns(&p, &A, 10), 100 * S - 9, 100 * S + 9);
}

static void the_kind_that_was_not_seen_for_longest_makes_room(void **state)
{
    struct past p = {0};

    (void)state;
    for (int64_t m = 1; m <= (int64_t)PAST_MAX; m++)
        past_add(&p, &(struct past_like){m, 32, false}, 1, m * S, m * S);
    past_add(&p, &A, 1, S, S); /* seen again */
    past_add(&p, &(struct past_like){PAST_MAX + 1, 32, false}, 1, S, S);
    assert_int_equal(p.n, PAST_MAX);
    assert_int_equal(past_expect_ns(&p, &A, 1), S);
    assert_int_equal(past_expect_ns(&p, &(struct past_like){2, 32, false}, 1), 0);
    assert_int_equal(past_expect_ns(&p, &(struct past_like){PAST_MAX + 1, 32, false}, 1), S);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_job_is_expected_to_take_what_its_like_took),
        cmocka_unit_test(newer_jobs_count_more),
        cmocka_unit_test(a_job_that_was_interrupted_says_only_what_its_steps_took),
        cmocka_unit_test(what_is_around_the_steps_is_of_those_that_say_it),
        cmocka_unit_test(the_kind_that_was_not_seen_for_longest_makes_room),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
