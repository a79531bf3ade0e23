/* test_crashes.c - when the deaths of workers end an attempt.
 *
 * Without it: a job that gets on between them could lose its attempt, because the steps it does
 * again count for nothing; or one that kills each worker at the same step would do so for ever.
 */
/* uses: executor/training/crashes.o */
#include "executor/training/crashes.h"
#include "tests/unit/sh_test.h"

static void new_steps_begin_a_new_row(void **state)
{
    struct crashes d = {0};

    (void)state;
    assert_int_equal(crashes_note(&d, 10, 10, 0), 1);
    assert_int_equal(crashes_note(&d, 11, 11, 0), 1);
    assert_int_equal(crashes_note(&d, 90, 90, 80), 1);
}

static void steps_done_again_count_once_their_state_is_kept(void **state)
{
    struct crashes d = {0};

    (void)state;
    assert_int_equal(crashes_note(&d, 343, 343, 247), 1);
    assert_int_equal(crashes_note(&d, 254, 343, 248), 1);
    assert_int_equal(crashes_note(&d, 300, 343, 248), 2); /* back to where it was */
    assert_int_equal(crashes_note(&d, 341, 343, 248), 3);
    assert_int_equal(crashes_note(&d, 264, 343, 252), 1);
}

static void a_worker_that_never_comes_to_a_step_adds_to_the_row(void **state)
{
    struct crashes d = {0};

    (void)state;
    for (uint32_t n = 1; n < 6; n++)
        assert_int_equal(crashes_note(&d, 0, 0, 0), n); /* while it compiles */
    d = (struct crashes){.furthest = 500, .kept = 500}; /* went on from a checkpoint */
    for (uint32_t n = 1; n < 6; n++)
        assert_int_equal(crashes_note(&d, 500, 500, 500), n);
}

static void the_same_step_adds_to_the_row_whatever_is_kept(void **state)
{
    struct crashes d = {0};

    (void)state;
    assert_int_equal(crashes_note(&d, 1000, 1000, 900), 1);
    for (uint32_t n = 2; n < 6; n++) /* a newer state each time */
        assert_int_equal(crashes_note(&d, 1000 - n % 2, 1000, 900 + n), n);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(new_steps_begin_a_new_row),
        cmocka_unit_test(steps_done_again_count_once_their_state_is_kept),
        cmocka_unit_test(a_worker_that_never_comes_to_a_step_adds_to_the_row),
        cmocka_unit_test(the_same_step_adds_to_the_row_whatever_is_kept),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
