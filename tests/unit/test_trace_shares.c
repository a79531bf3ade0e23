/* test_trace_shares.c - Without it: a tenant that marks all its requests as sampled could have all
 * traces that a collector gets, or one that asks for few could lose them to it. */
/* uses: api/infer/trace_shares.o */
#include "api/infer/trace_shares.h"
#include "common/mem.h"
#include "tests/unit/sh_test.h"

#define SECOND INT64_C(1000000000)
#define RATE 100

static int set_up(void **state)
{
    struct trace_shares *s = NULL;

    assert_ok(trace_shares_new(&s, NULL));
    *state = s;
    return 0;
}

static int tear_down(void **state)
{
    trace_shares_free(*state);
    return 0;
}

/* What each tenant gets between two seconds if tenant t wants `wants[t]` a second, evenly. */
static void let_ask(struct trace_shares *s, const int *wants, size_t n, int from_s, int to_s,
                    int *got)
{
    memset(got, 0, n * sizeof(*got));
    for (int ms = from_s * 1000; ms < to_s * 1000; ms++)
        for (size_t t = 0; t < n; t++)
            for (int64_t k = (int64_t)ms * wants[t] / 1000; k < (int64_t)(ms + 1) * wants[t] / 1000;
                 k++)
                got[t] += trace_shares_take(s, (int64_t)t + 1, RATE, SECOND + ms * (SECOND / 1000));
}

static void one_alone_has_all_and_a_second_at_once(void **state)
{
    const int wants[] = {5000};
    int got[1];

    let_ask(*state, wants, 1, 0, 10, got);
    assert_in_range(got[0], 11 * RATE - 2, 11 * RATE);
}

static void one_that_floods_leaves_the_others_theirs(void **state)
{
    const int wants[] = {20000, 3, 0, 40};
    int got[4], sum = 0;

    let_ask(*state, wants, 4, 0, 20, got);
    let_ask(*state, wants, 4, 20, 30, got);
    assert_int_equal(got[1], 30);
    assert_int_equal(got[3], 400);
    assert_in_range(got[0], 10 * (RATE - 43) - 2, 10 * (RATE - 43) + 2);
    for (size_t t = 0; t < SH_ARRAY_LEN(got); t++)
        sum += got[t];
    assert_in_range(sum, 10 * RATE - 2, 10 * RATE + 2);
}

static void those_that_want_more_than_there_is_get_equal_parts(void **state)
{
    const int wants[] = {20000, 10, 500, 90};
    int got[4];

    let_ask(*state, wants, 4, 0, 20, got);
    let_ask(*state, wants, 4, 20, 40, got);
    assert_int_equal(got[1], 200);
    for (size_t t = 0; t < 4; t++)
        if (t != 1)
            assert_in_range(got[t], 20 * 30 - 4, 20 * 30 + 4);
}

static void who_comes_later_finds_a_whole_bucket(void **state)
{
    int got[2];

    let_ask(*state, (const int[]){20000, 0}, 2, 0, 20, got);
    for (int i = 0; i < RATE; i++)
        assert_true(trace_shares_take(*state, 2, RATE, 21 * SECOND));
    assert_false(trace_shares_take(*state, 2, RATE, 21 * SECOND));
}

static void a_rate_below_one_a_second_still_lets_one_pass(void **state)
{
    assert_true(trace_shares_take(*state, 1, 0.1, SECOND));
    assert_false(trace_shares_take(*state, 1, 0.1, 6 * SECOND));
    assert_true(trace_shares_take(*state, 1, 0.1, 12 * SECOND));
}

static void a_rate_may_change_and_a_clock_may_seem_to_go_back(void **state)
{
    for (int i = 0; i < RATE; i++)
        assert_true(trace_shares_take(*state, 1, RATE, 9 * SECOND));
    assert_false(trace_shares_take(*state, 1, RATE, 8 * SECOND));
    assert_false(trace_shares_take(*state, 1, RATE, 9 * SECOND));
    assert_true(trace_shares_take(*state, 1, 1000000, 9 * SECOND + 1000));
    assert_false(trace_shares_take(*state, 1, 1, 9 * SECOND + 1000));
    assert_true(trace_shares_take(*state, 1, 1, 20 * SECOND));
    assert_false(trace_shares_take(*state, 1, 1, 20 * SECOND));
}

/* More tenants than there are buckets: nobody is shut out. */
static void there_may_be_more_tenants_than_buckets(void **state)
{
    for (int64_t t = 1; t <= 3 * (int64_t)TRACE_SHARES_MAX; t++)
        assert_true(trace_shares_take(*state, t, RATE, SECOND));
    for (int64_t t = 1; t <= 3 * (int64_t)TRACE_SHARES_MAX; t++)
        assert_true(trace_shares_take(*state, t, RATE, 2 * SECOND));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(one_alone_has_all_and_a_second_at_once, set_up, tear_down),
        cmocka_unit_test_setup_teardown(one_that_floods_leaves_the_others_theirs, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(those_that_want_more_than_there_is_get_equal_parts, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(who_comes_later_finds_a_whole_bucket, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_rate_below_one_a_second_still_lets_one_pass, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(a_rate_may_change_and_a_clock_may_seem_to_go_back, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(there_may_be_more_tenants_than_buckets, set_up, tear_down),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
