/* test_places.c - which places of a program come again.
 *
 * Without it: two models that take turns would never run from prepared launches, because no place
 * comes twice in a row; or each run would prepare anew for a place that does not come again.
 */
/* uses: executor/worker/places.o */
#include "executor/worker/places.h"
#include "tests/unit/sh_test.h"

static bool run_at(struct places *p, size_t image, size_t workspace)
{
    const struct dev_bases b = {.image = image, .workspace = workspace};

    return places_again(p, &b, 7);
}

static void the_first_run_is_nowhere_again(void **state)
{
    struct places p = {.n = 0};

    (void)state;
    assert_false(run_at(&p, 0, 0)); /* zeroes are a place like others */
    assert_true(run_at(&p, 0, 0));
}

static void a_place_is_both_offsets(void **state)
{
    struct places p = {.n = 0};

    (void)state;
    assert_false(run_at(&p, 1, 2));
    assert_false(run_at(&p, 1, 3));
    assert_false(run_at(&p, 4, 2));
    assert_true(run_at(&p, 1, 3));
}

static void other_groups_are_another_place(void **state)
{
    const struct dev_bases b = {.image = 1, .workspace = 2};
    struct places p = {.n = 0};

    (void)state;
    assert_false(places_again(&p, &b, 0));
    assert_false(places_again(&p, &b, 1));
    assert_true(places_again(&p, &b, 0));
}

static void as_many_places_as_are_kept_may_take_turns(void **state)
{
    (void)state;
    for (uint32_t n = 1; n <= PLACES_MAX; n++) {
        struct places p = {.n = 0};

        for (uint32_t i = 0; i < 5 * n; i++)
            assert_int_equal(run_at(&p, 0, i % n), i >= n);
    }
}

static void more_places_in_turns_are_never_there_again(void **state)
{
    struct places p = {.n = 0};

    (void)state;
    for (uint32_t i = 0; i < 40; i++)
        assert_false(run_at(&p, i % (PLACES_MAX + 1), 0));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_first_run_is_nowhere_again),
        cmocka_unit_test(a_place_is_both_offsets),
        cmocka_unit_test(other_groups_are_another_place),
        cmocka_unit_test(as_many_places_as_are_kept_may_take_turns),
        cmocka_unit_test(more_places_in_turns_are_never_there_again),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
