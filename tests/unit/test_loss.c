/* test_loss.c - what is lost if a job gives way. Without it: a job whose state takes a minute to
 * save could give way for nothing beside one that would be back at once, and its log could say a
 * time that nobody has measured. */
/* uses: scheduler/decide/loss.o */
#include "common/mem.h"
#include "scheduler/decide/loss.h"
#include "tests/unit/sh_test.h"

#include <math.h>

static void a_loss_is_the_time_to_save_to_resume_and_what_is_dropped_on_each_gpu(void **state)
{
    const struct loss_facts f = {.gpus = 4,
                                 .state_bytes = 2000000000,
                                 .copy_ns_per_byte = 0.1,
                                 .disk_bytes_per_s = 1e9,
                                 .start_ns = SH_S(6),
                                 .steps_per_s = 5};
    const struct loss l = loss_of(&f);

    (void)state;
    assert_int_equal(l.save_ns, SH_MS(200) + SH_S(2));
    assert_int_equal(l.resume_ns, SH_S(6));
    assert_int_equal(l.redo_ns, SH_MS(100));
    assert_int_equal(l.all_ns, 4 * SH_MS(8300));
}

static void what_is_not_known_counts_as_nothing_but_for_a_start(void **state)
{
    static const double NOT_KNOWN[] = {0, -1, NAN, -INFINITY};

    (void)state;
    for (size_t i = 0; i < SH_ARRAY_LEN(NOT_KNOWN); i++) {
        const struct loss_facts f = {.disk_bytes_per_s = NOT_KNOWN[i],
                                     .steps_per_s = NOT_KNOWN[i],
                                     .state_bytes = 1,
                                     .copy_ns_per_byte = NOT_KNOWN[i]};
        const struct loss l = loss_of(&f);

        assert_int_equal(l.all_ns, LOSS_RESUME_NS);
        assert_int_equal(l.save_ns + l.redo_ns, 0);
    }
}

static void no_number_is_too_large(void **state)
{
    const struct loss_facts f = {.gpus = 8,
                                 .state_bytes = UINT64_MAX,
                                 .copy_ns_per_byte = INFINITY,
                                 .disk_bytes_per_s = 1e-300,
                                 .start_ns = INT64_MAX,
                                 .steps_per_s = 1e-300};
    const struct loss l = loss_of(&f);

    (void)state;
    assert_int_equal(l.all_ns, 8 * 3 * SH_DAYS(1));
}

static void small_differences_are_none(void **state)
{
    const struct loss a = {.all_ns = SH_MS(4010)}, b = {.all_ns = SH_MS(4090)},
                      c = {.all_ns = SH_MS(4110)};

    (void)state;
    assert_int_equal(loss_rank_ns(&a), loss_rank_ns(&b));
    assert_true(loss_rank_ns(&b) < loss_rank_ns(&c));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_loss_is_the_time_to_save_to_resume_and_what_is_dropped_on_each_gpu),
        cmocka_unit_test(what_is_not_known_counts_as_nothing_but_for_a_start),
        cmocka_unit_test(no_number_is_too_large),
        cmocka_unit_test(small_differences_are_none),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
