/* test_rate.c - token buckets of tenants.
 *
 * Without it a tenant could send more than its quota, or be kept out for ever after one burst.
 */
/* uses: api/cache/rate.o */
/* link: -lm */
#include "api/cache/rate.h"
#include "common/mem.h"
#include "tests/unit/sh_test.h"

#define SECOND INT64_C(1000000000)

static int set_up(void **state)
{
    struct rate *r = NULL;

    assert_ok(rate_new(&r, NULL));
    *state = r;
    return 0;
}

static int tear_down(void **state)
{
    rate_free(*state);
    return 0;
}

static void a_burst_passes_and_the_next_one_is_told_how_long_to_wait(void **state)
{
    struct rate *r = *state;

    for (int i = 0; i < 5; i++)
        assert_int_equal(rate_take(r, 1, 2, 5, SECOND), 0);
    assert_int_equal(rate_take(r, 1, 2, 5, SECOND), 500);
    assert_int_equal(rate_take(r, 1, 2, 5, SECOND + SECOND / 4), 250);
    assert_int_equal(rate_take(r, 1, 2, 5, SECOND + SECOND / 2), 0);
    assert_int_equal(rate_take(r, 1, 2, 5, SECOND + SECOND / 2), 500);
}

static void a_pause_gives_no_more_than_one_burst(void **state)
{
    struct rate *r = *state;

    assert_int_equal(rate_take(r, 1, 10, 2, SECOND), 0);
    assert_int_equal(rate_take(r, 1, 10, 2, 1000 * SECOND), 0);
    assert_int_equal(rate_take(r, 1, 10, 2, 1000 * SECOND), 0);
    assert_int_equal(rate_take(r, 1, 10, 2, 1000 * SECOND), 100);
}

static void without_a_burst_a_second_worth_passes_and_never_less_than_one(void **state)
{
    struct rate *r = *state;

    for (int i = 0; i < 3; i++)
        assert_int_equal(rate_take(r, 1, 2.5, 0, SECOND), 0);
    assert_int_equal(rate_take(r, 1, 2.5, 0, SECOND), 400);
    assert_int_equal(rate_take(r, 2, 0.1, 0, SECOND), 0);
    assert_int_equal(rate_take(r, 2, 0.1, 0, SECOND), 10000);
}

static void one_tenant_does_not_use_up_the_rate_of_another(void **state)
{
    struct rate *r = *state;

    for (int64_t t = 1; t <= 100; t++)
        assert_int_equal(rate_take(r, t, 1, 1, SECOND), 0);
    for (int64_t t = 1; t <= 100; t++)
        assert_int_equal(rate_take(r, t, 1, 1, SECOND), 1000);
}

static void more_tenants_than_buckets_are_still_served(void **state)
{
    struct rate *r = *state;

    for (int64_t t = 1; t <= 20000; t++)
        assert_int_equal(rate_take(r, t, 1, 1, SECOND + t), 0);
    assert_true(rate_take(r, 20000, 1, 1, SECOND + 20000) > 0);
}

static void a_smaller_quota_holds_at_once(void **state)
{
    struct rate *r = *state;

    assert_int_equal(rate_take(r, 1, 100, 100, SECOND), 0);
    assert_int_equal(rate_take(r, 1, 1, 1, SECOND), 0);
    assert_int_equal(rate_take(r, 1, 1, 1, SECOND), 1000);
}

#define T(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

static void a_client_is_told_what_is_left(void **state)
{
    struct rate *r = *state;
    struct rate_left left;

    assert_int_equal(rate_take_left(r, 1, 0.5, 3, SECOND, &left), 0);
    assert_int_equal(left.most, 3);
    assert_int_equal(left.window_s, 6);
    assert_int_equal(left.left, 2);
    assert_int_equal(left.reset_s, 2); /* until it is full again */
    rate_take(r, 1, 0.5, 3, SECOND);
    assert_int_equal(rate_take_left(r, 1, 0.5, 3, SECOND, &left), 0);
    assert_int_equal(left.left, 0);
    assert_int_equal(left.reset_s, 6);
    assert_int_equal(rate_take_left(r, 1, 0.5, 3, SECOND + SECOND / 2, &left), 1500);
    assert_int_equal(left.left, 0);
    assert_int_equal(left.reset_s, 2); /* until the next: not before the wait is over */
    assert_int_equal(rate_take_left(r, 2, 1000, 0, SECOND, &left), 0);
    assert_int_equal(left.most, 1000);
    assert_int_equal(left.window_s, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        T(a_burst_passes_and_the_next_one_is_told_how_long_to_wait),
        T(a_pause_gives_no_more_than_one_burst),
        T(without_a_burst_a_second_worth_passes_and_never_less_than_one),
        T(one_tenant_does_not_use_up_the_rate_of_another),
        T(more_tenants_than_buckets_are_still_served),
        T(a_smaller_quota_holds_at_once),
        cmocka_unit_test_setup_teardown(a_client_is_told_what_is_left, set_up, tear_down),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
