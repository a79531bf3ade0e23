/* test_portion.c - Without it: a portion could run over into the update, an operation without time
 * could get a portion of its own and come between two long ones, and a stop could have to wait for
 * more than its bound. */
/* uses: executor/worker/portion.o */
#include "common/mem.h"
#include "executor/worker/portion.h"
#include "tests/unit/sh_test.h"

#define SHORT (PORTION_NS / 4)
#define LONG (PORTION_NS * 3)

static uint32_t end_of(const double *op_ns, uint32_t op, uint32_t limit, double want_ns)
{
    double ns = -1;
    uint32_t end = portion_end(op_ns, op, limit, &ns);

    assert_true(ns == want_ns);
    return end;
}

static void short_operations_share_a_portion_up_to_its_length(void **state)
{
    static const double NS[] = {SHORT, SHORT, SHORT, SHORT, SHORT, LONG, SHORT};
    (void)state;

    assert_int_equal(end_of(NS, 0, 7, 4 * SHORT), 4);
    assert_int_equal(end_of(NS, 4, 7, SHORT), 5); /* the long one would be too much */
    assert_int_equal(end_of(NS, 5, 7, LONG), 6);  /* alone, however long it is */
    assert_int_equal(end_of(NS, 6, 7, SHORT), 7);
}

static void a_portion_ends_at_the_limit(void **state)
{
    static const double NS[] = {SHORT, 0, SHORT, 0};
    (void)state;

    assert_int_equal(end_of(NS, 0, 1, SHORT), 1);
    assert_int_equal(end_of(NS, 0, 2, SHORT), 2);
    assert_int_equal(end_of(NS, 0, 4, 2 * SHORT), 4);
    assert_int_equal(end_of(NS, 3, 4, 0), 4);
}

/* It goes with the one before, though that fills a portion, or is longer than one. */
static void what_takes_nothing_needs_no_portion_of_its_own(void **state)
{
    static const double NS[] = {LONG, 0, 0, LONG, 0, SHORT, 0, LONG};
    (void)state;

    assert_int_equal(end_of(NS, 0, 8, LONG), 3);
    assert_int_equal(end_of(NS, 3, 8, LONG), 5);
    assert_int_equal(end_of(NS, 5, 8, SHORT), 7);
    assert_int_equal(end_of(NS, 1, 8, 0), 3); /* where a portion happens to begin with such ones */
}

static void without_times_each_operation_is_a_portion(void **state)
{
    (void)state;
    for (uint32_t op = 0; op < 5; op++)
        assert_int_equal(end_of(NULL, op, 5, 0), op + 1);
}

static void as_many_are_queued_as_drain_within_the_bound(void **state)
{
    struct portions p = {0};
    (void)state;

    assert_int_equal(portions_add(&p, 10, 100), 1);
    for (uint32_t i = 2; i <= 10; i++)
        assert_int_equal(portions_add(&p, 10, 100), i);
    assert_int_equal(portions_add(&p, 10, 100), 10);
    assert_int_equal(portions_add(&p, 85, 100), 2);  /* 85 and 10, and not another 10 */
    assert_int_equal(portions_add(&p, 500, 100), 1); /* at least itself */
    assert_int_equal(portions_add(&p, 20, 100), 1);
    for (uint32_t i = 0; i < 3 * PORTIONS_MAX; i++)
        assert_in_range(portions_add(&p, 0, 100), 1, PORTIONS_MAX);
    assert_int_equal(portions_add(&p, 0, 100), PORTIONS_MAX);
}

static void two_long_ones_are_kept_apart(void **state)
{
    struct portions p = {0};
    const double bound = 100, most = PORTIONS_ALONE * bound;
    (void)state;

    assert_false(portions_apart(&p, most, bound)); /* nothing before it */
    assert_true(portions_apart(&p, most + 1, bound));
    portions_add(&p, most / 2, bound);
    assert_false(portions_apart(&p, most / 2, bound));
    assert_true(portions_apart(&p, most / 2 + 1, bound));
    portions_add(&p, 1, bound); /* only the last one counts */
    assert_false(portions_apart(&p, most / 2 + 1, bound));
}

int main(void)
{
    static const struct CMUnitTest TESTS[] = {
        cmocka_unit_test(short_operations_share_a_portion_up_to_its_length),
        cmocka_unit_test(a_portion_ends_at_the_limit),
        cmocka_unit_test(what_takes_nothing_needs_no_portion_of_its_own),
        cmocka_unit_test(without_times_each_operation_is_a_portion),
        cmocka_unit_test(as_many_are_queued_as_drain_within_the_bound),
        cmocka_unit_test(two_long_ones_are_kept_apart),
    };

    return cmocka_run_group_tests(TESTS, NULL, NULL);
}
