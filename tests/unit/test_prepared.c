/* test_prepared.c - the ranges of plans that a back end holds prepared.
 *
 * Without it: a run could take launches that were captured for other addresses; or a worker that
 * meets ever more models and places would take ever more device memory beside the pool; or one plan
 * would lose what it uses all the time to plans that nobody runs.
 */
/* uses: runtime/device/prepared.o */
#include "common/mem.h"
#include "runtime/device/prepared.h"
#include "tests/unit/sh_test.h"

#define N_PLANS (DEV_MAX_PREPARED_ALL / DEV_MAX_PREPARED + 2)

static int things[N_PLANS * DEV_MAX_PREPARED]; /* what is prepared: their addresses */

static struct dev_range range_at(size_t place)
{
    return (struct dev_range){.arena = things, .image = place, .workspace = 1, .from = 2, .to = 9};
}

static void *find_at(struct dev_prepared *p, size_t place)
{
    const struct dev_range r = range_at(place);

    return dev_prepared_find(p, &r);
}

static void *add_at(struct dev_prepared *p, size_t place, void *what)
{
    const struct dev_range r = range_at(place);

    return dev_prepared_add(p, &r, what);
}

static void close_plan(struct dev_prepared *p)
{
    while (dev_prepared_pop(p))
        ;
    dev_prepared_free(p);
}

static void a_range_is_found_at_its_own_bases_alone(void **state)
{
    const struct dev_range r = range_at(5);
    struct dev_range other[] = {r, r, r, r, r};
    struct dev_prepared_all all = {.n = 0};
    struct dev_prepared *p, *q;

    (void)state;
    assert_ok(dev_prepared_new(&all, &p, NULL));
    assert_ok(dev_prepared_new(&all, &q, NULL));
    assert_null(dev_prepared_find(p, &r));
    assert_null(dev_prepared_add(p, &r, &things[0]));
    assert_ptr_equal(dev_prepared_find(p, &r), &things[0]);
    assert_null(dev_prepared_find(q, &r)); /* of another plan */
    other[0].arena = &all;
    other[1].image++;
    other[2].workspace++;
    other[3].from++;
    other[4].to++;
    for (size_t i = 0; i < SH_ARRAY_LEN(other); i++)
        assert_null(dev_prepared_find(p, &other[i]));
    assert_int_equal(all.n, 1);
    close_plan(q);
    close_plan(p);
    assert_int_equal(all.n, 0);
    assert_null(all.first);
}

static void a_full_plan_lets_go_what_it_used_longest_ago(void **state)
{
    struct dev_prepared_all all = {.n = 0};
    struct dev_prepared *p;

    (void)state;
    assert_ok(dev_prepared_new(&all, &p, NULL));
    for (size_t i = 0; i < DEV_MAX_PREPARED; i++)
        assert_null(add_at(p, i, &things[i]));
    assert_ptr_equal(find_at(p, 0), &things[0]); /* used again */
    assert_ptr_equal(add_at(p, DEV_MAX_PREPARED, &things[DEV_MAX_PREPARED]), &things[1]);
    assert_null(find_at(p, 1));
    assert_int_equal(all.n, DEV_MAX_PREPARED);
    for (size_t i = 2; i <= DEV_MAX_PREPARED; i++)
        assert_ptr_equal(find_at(p, i), &things[i]);
    assert_ptr_equal(find_at(p, 0), &things[0]);
    close_plan(p);
}

/* The plans in the order in which they filled up, but that the first has been used since. */
static void a_full_device_takes_from_the_plan_that_rests(void **state)
{
    struct dev_prepared_all all = {.n = 0};
    struct dev_prepared *p[N_PLANS];
    size_t n = 0, own = 0;

    (void)state;
    for (size_t k = 0; k < N_PLANS; k++)
        assert_ok(dev_prepared_new(&all, &p[k], NULL));
    for (size_t k = 0; all.n < DEV_MAX_PREPARED_ALL; k++)
        for (size_t i = 0; i < DEV_MAX_PREPARED && all.n < DEV_MAX_PREPARED_ALL; i++, n++)
            assert_null(add_at(p[k], i, &things[n]));
    for (size_t i = 0; i < DEV_MAX_PREPARED; i++)
        assert_ptr_equal(find_at(p[0], i), &things[i]);
    for (; own < DEV_MAX_PREPARED; own++, n++) /* all of what the second plan has */
        assert_ptr_equal(add_at(p[N_PLANS - 1], own, &things[n]), &things[DEV_MAX_PREPARED + own]);
    assert_int_equal(all.n, DEV_MAX_PREPARED_ALL);
    assert_null(dev_prepared_pop(p[1]));
    assert_ptr_equal(find_at(p[0], 0), &things[0]);
    close_plan(p[2]); /* room again, and one from between two others has gone */
    assert_null(add_at(p[1], 0, &things[n]));
    for (size_t k = 0; k < N_PLANS; k++)
        if (k != 2)
            close_plan(p[k]);
    assert_int_equal(all.n, 0);
    assert_null(all.first);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_range_is_found_at_its_own_bases_alone),
        cmocka_unit_test(a_full_plan_lets_go_what_it_used_longest_ago),
        cmocka_unit_test(a_full_device_takes_from_the_plan_that_rests),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
