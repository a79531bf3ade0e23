/* test_thrash.c - weights that push each other out. Without it: an executor could copy all the time
 * and answer few, keep models out that it has room for, or keep some out for ever. */
/* uses: scheduler/decide/thrash.o */
#include "common/mem.h"
#include "common/msg.h"
#include "common/units.h"
#include "scheduler/decide/thrash.h"
#include "tests/unit/sh_test.h"

#define GIB (UINT64_C(1) << 30)
#define MODELS 8

static struct thrash t;
static int64_t now;

static int begin(void **state)
{
    (void)state;
    now = SH_S(100);
    return 0;
}

static int end(void **state)
{
    (void)state;
    thrash_fini(&t);
    return 0;
}

/* 100 ms in which version v of n is asked for v times (that of the highest number most), each
 * tenant's n / n_tenants of them in a row. Runs had the device for `busy` of the time. */
static void spend(int64_t n, int64_t n_tenants, double busy, double stall, double late)
{
    const int64_t ran = (int64_t)(busy * 1e8);
    double n_late = 0;

    now += SH_MS(100);
    thrash_ran(&t, ran, (int64_t)((double)ran * stall));
    for (int64_t v = 1; v <= n; v++)
        for (int64_t k = 0; k < v; k++) {
            const struct thrash_model m = {
                .version = v, .tenant = 1 + (v - 1) * n_tenants / n, .bytes = GIB, .share = 1};

            thrash_ask(&t, &m, 3 * GIB, now);
            if (!thrash_is_shut(&t, v) && (n_late += late) >= 1) {
                n_late--;
                thrash_late(&t);
            }
        }
}

static uint32_t n_open(int64_t n)
{
    uint32_t open = 0;

    for (int64_t v = 1; v <= n; v++)
        open += !thrash_is_shut(&t, v);
    return open;
}

static void all_stay_where_there_is_room_or_time_or_no_copy(void **state)
{
    (void)state;
    for (int i = 0; i < 100; i++)
        spend(3, 1, 0.9, 0.9, 0.5); /* all fit */
    assert_int_equal(n_open(3), 3);
    thrash_fini(&t);
    for (int i = 0; i < 100; i++)
        spend(MODELS, 1, 0.9, 0.1, 0.5); /* it computes */
    assert_int_equal(n_open(MODELS), MODELS);
    thrash_fini(&t);
    for (int i = 0; i < 100; i++)
        spend(MODELS, 1, 0.9, 0.9, 0.05); /* it has time */
    assert_int_equal(n_open(MODELS), MODELS);
}

static void nothing_is_kept_of_an_executor_that_is_well(void **state)
{
    (void)state;
    for (int i = 0; i < 100; i++)
        spend(MODELS, 1, 0.9, 0.2, 0.01);
    assert_null(t.of);
    for (int i = 0; i < 100; i++)
        spend(MODELS, 1, 0.9, 0.9, 0.5);
    assert_non_null(t.of);
    now += SH_WORKING_SET_NS;
    for (int i = 0; i < 200; i++)
        spend(2, 1, 0.2, 0, 0);
    assert_null(t.of);
}

static void those_least_asked_for_are_shut_until_the_others_fit(void **state)
{
    (void)state;
    for (int i = 0; i < 50; i++)
        spend(MODELS, 1, 0.9, n_open(MODELS) > 3 ? 0.8 : 0, 0.5);
    assert_int_equal(n_open(MODELS), 3);
    for (int64_t v = 1; v <= MODELS; v++)
        assert_int_equal(thrash_is_shut(&t, v), v <= MODELS - 3);
}

static void each_tenant_keeps_one_and_the_largest_gives_most(void **state)
{
    (void)state;
    for (int i = 0; i < 50; i++)
        spend(MODELS, MODELS, 0.9, 0.8, 0.5); /* a tenant for each */
    assert_int_equal(n_open(MODELS), MODELS);
    thrash_fini(&t);
    for (int i = 0; i < 50; i++)
        spend(MODELS, 2, 0.9, n_open(MODELS) > 3 ? 0.8 : 0, 0.5); /* 1 to 4, and 5 to 8 */
    assert_int_equal(n_open(MODELS), 3);
    assert_false(thrash_is_shut(&t, 4));
    assert_false(thrash_is_shut(&t, 8));
}

static void what_is_shut_opens_where_it_is_calm_or_there_is_room(void **state)
{
    (void)state;
    for (int i = 0; i < 50; i++)
        spend(MODELS, 1, 0.9, n_open(MODELS) > 3 ? 0.8 : 0, 0.5);
    for (int i = 0; i < 200; i++)
        spend(MODELS, 1, 0.3, 0.1, 0);
    assert_int_equal(n_open(MODELS), MODELS);
    for (int i = 0; i < 50; i++)
        spend(MODELS, 1, 0.9, n_open(MODELS) > 3 ? 0.8 : 0, 0.5);
    assert_int_equal(n_open(MODELS), 3);
    now += SH_WORKING_SET_NS + SH_S(1); /* nobody asked for any */
    for (int i = 0; i < 20; i++)
        spend(2, 1, 0.9, 0, 0.5);
    assert_int_equal(n_open(MODELS), MODELS);
}

static void nobody_is_kept_out_for_ever(void **state)
{
    bool was_in[MODELS + 1] = {false};

    (void)state;
    for (int i = 0; i < 50; i++)
        spend(MODELS, 1, 0.95, n_open(MODELS) > 3 ? 0.8 : 0, 0.5);
    assert_int_equal(n_open(MODELS), 3);
    for (int64_t k = 0; k < 2 * MODELS * (THRASH_TRY_NS / SH_MS(100)); k++) {
        spend(MODELS, 1, 0.95, n_open(MODELS) > 3 ? 0.8 : 0, 0.5);
        for (int64_t v = 1; v <= MODELS; v++)
            was_in[v] |= !thrash_is_shut(&t, v);
    }
    for (int64_t v = 1; v <= MODELS; v++)
        assert_true(was_in[v]);
}

/* Of those who wait somebody looks, even if nobody else asks. */
static void who_waits_sees_it_open_and_nothing_shut(void **state)
{
    int64_t began;

    (void)state;
    for (int i = 0; i < 50; i++)
        spend(MODELS, 1, 0.9, n_open(MODELS) > 3 ? 0.8 : 0, 0.5);
    assert_int_equal(n_open(MODELS), 3);
    began = now;
    while (n_open(MODELS) == 3) {
        assert_true(now - began < THRASH_TRY_NS);
        thrash_look(&t, 3 * GIB, now += SH_MS(100));
    }
    for (int i = 0; i < 50; i++)
        spend(MODELS, 1, 0.9, 0.8, 0.5); /* it thrashes, and some are open that did not fit */
    thrash_look(&t, 3 * GIB, now += THRASH_LOOK_NS); /* of those who asked up to now */
    for (int64_t v = 0; v < MODELS; v++) {
        t.n_shut -= t.of[v].shut_ns != 0;
        t.of[v].shut_ns = 0;
    }
    for (int i = 0; i < 10; i++)
        thrash_look(&t, 3 * GIB, now += THRASH_LOOK_NS); /* nobody asks, so nobody is in the way */
    assert_int_equal(n_open(MODELS), MODELS);
    for (int i = 0; i < 10; i++)
        spend(MODELS, 1, 0.9, 0.8, 0.5);
    assert_true(n_open(MODELS) < MODELS);
}

static void of_very_many_models_the_newest_are_known(void **state)
{
    (void)state;
    for (int i = 0; i < 10; i++)
        spend(50, 1, 0.9, 0.9, 0.9);
    assert_non_null(t.of);
    for (int64_t v = 1; v < 3 * (int64_t)THRASH_MAX; v++) {
        const struct thrash_model m = {.version = v, .tenant = 1, .bytes = GIB, .share = 0};

        now += SH_MS(1);
        thrash_ask(&t, &m, 3 * GIB, now);
        assert_true(t.n <= THRASH_MAX && t.n_shut <= t.n);
    }
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, begin, end)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(all_stay_where_there_is_room_or_time_or_no_copy),
        TEST(nothing_is_kept_of_an_executor_that_is_well),
        TEST(those_least_asked_for_are_shut_until_the_others_fit),
        TEST(each_tenant_keeps_one_and_the_largest_gives_most),
        TEST(what_is_shut_opens_where_it_is_calm_or_there_is_room),
        TEST(nobody_is_kept_out_for_ever),
        TEST(who_waits_sees_it_open_and_nothing_shut),
        TEST(of_very_many_models_the_newest_are_known),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
