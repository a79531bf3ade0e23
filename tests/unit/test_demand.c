/* test_demand.c - without it, a tenant or a model that asks for much could be promised all of an
 * executor's time, or one could be refused although there is enough for all. */
/* uses: scheduler/decide/demand.o */
/* link: -lm */
#include "common/mem.h"
#include "scheduler/decide/demand.h"
#include "tests/unit/sh_test.h"

#include <math.h>

#define MS INT64_C(1000000)
#define SECONDS 5

/* For so long that what came before says nothing any more: ms of device time a 10 ms. */
static int64_t ask(struct demand *d, const double *ms, const int64_t *tenants, uint32_t n)
{
    int64_t now = MS;

    for (; now < SECONDS * 1000 * MS; now += 10 * MS)
        for (uint32_t i = 0; i < n; i++)
            demand_add(d, tenants[i], i, ms[i] * 1e6, now);
    return now;
}

static void the_time_is_shared_out_to_tenants_and_then_to_their_models(void **state)
{
    static const struct {
        double ms[4];
        int64_t tenants[4];
        uint32_t n;
        double part[4];
        bool is_modest[4], has_modest;
    } CASES[] = {
        {{4, 4}, {1, 2}, 2, {1, 1}, {false}, false},         /* enough for all */
        {{30}, {1}, 1, {1}, {false}, false},                 /* nobody else asks */
        {{30, 30}, {1, 2}, 2, {.45, .45}, {false}, false},   /* as much for each */
        {{90, 1}, {1, 2}, 2, {.8, .8}, {false, true}, true}, /* and no more than it asks for */
        {{90, 1, 1}, {1, 2, 3}, 3, {.7, .7, .7}, {false, true, true}, true},
        {{20, 2, 2}, {1, 1, 1}, 3, {.5, .5, .5}, {false}, false}, /* the same among its models */
        {{20, 20, 20, 20}, {1, 1, 1, 2}, 4, {.15, .15, .15, .45}, {false}, false},
    };

    (void)state;
    for (size_t c = 0; c < SH_ARRAY_LEN(CASES); c++) {
        struct demand d = {.n = 0};
        const int64_t now = ask(&d, CASES[c].ms, CASES[c].tenants, CASES[c].n);

        for (uint32_t i = 0; i < CASES[c].n; i++) {
            const struct demand_part x = demand_part(&d, CASES[c].tenants[i], now);

            if (fabs(x.part - CASES[c].part[i]) > .04 || x.is_modest != CASES[c].is_modest[i])
                fail_msg("case %zu, %u: %.3f %d", c, i, x.part, x.is_modest);
        }
        assert_int_equal(demand_has_modest(&d, now), CASES[c].has_modest);
    }
}

static void what_was_asked_for_is_forgotten(void **state)
{
    static const double MS_OF[] = {30, 30};
    static const int64_t TENANTS[] = {1, 2};
    struct demand d = {.n = 0};
    const int64_t now = ask(&d, MS_OF, TENANTS, 2);

    (void)state;
    assert_true(demand_part(&d, 1, now).part < .5);
    assert_true(demand_part(&d, 1, now + 4 * DEMAND_HALF_NS).part >= 1);
    assert_true(demand_part(&d, 3, now).is_modest); /* who asks for the first time */
}

static void of_more_than_are_known_the_least_is_forgotten(void **state)
{
    struct demand d = {.n = 0};

    (void)state;
    for (int64_t i = 0; i < 100; i++) {
        demand_add(&d, i, 0, (double)(i == 7 ? 5000 : 1) * 1e6, MS);
        demand_add(&d, 7, 0, 1e6, MS);
    }
    assert_int_equal(d.n, DEMAND_MAX);
    assert_false(demand_part(&d, 7, MS).is_modest);
    assert_true(demand_part(&d, 99, MS).is_modest);
}

/* However many models a tenant spreads its requests over, it asks for as much. */
static void a_tenant_with_many_models_has_no_more_than_one_with_few(void **state)
{
    struct demand d = {.n = 0};
    int64_t now = MS;

    (void)state;
    for (int64_t i = 0; now < SECONDS * 1000 * MS; now += MS, i++) {
        demand_add(&d, 1, i % 1000, 3e6, now); /* three times the time there is */
        if (i % 10 == 0)
            demand_add(&d, 2, 5000, 1e6, now);
    }
    assert_true(demand_part(&d, 1, now).part < .8);
    assert_true(demand_part(&d, 2, now).is_modest);
    assert_true(demand_has_modest(&d, now));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_time_is_shared_out_to_tenants_and_then_to_their_models),
        cmocka_unit_test(what_was_asked_for_is_forgotten),
        cmocka_unit_test(a_tenant_with_many_models_has_no_more_than_one_with_few),
        cmocka_unit_test(of_more_than_are_known_the_least_is_forgotten),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
