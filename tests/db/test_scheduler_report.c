/* test_scheduler_report.c - without it, requests that came could be written down twice, after a
 * commit of which nobody heard, and what-if questions would rest on more than came.
 *
 * Needs DATABASE_URL of a throw-away PostgreSQL: `make db-tests`, or tests/pg.sh run BINARY. */
/* uses: scheduler/database/store.o scheduler/database/store_report.o scheduler/database/store_rows.o */
/* link: -lpq */
#include "scheduler/database/store.h"
#include "tests/db/lease_world.h"

static int set_up(void **state)
{
    return set_up_world(state, fill_job);
}

static void put(struct world *w, double arrived_s, uint64_t n)
{
    static char rows[] = "[]";
    struct store_report r = {.fence = w->fence,
                             .arrivals = rows,
                             .arrived_s = arrived_s,
                             .arrivals_s = 10,
                             .n_arrivals = n};
    struct sh_err err = {0};

    assert_ok_err(store_report_put(w->a, &r, &err), &err);
}

static void a_slice_that_is_repeated_is_written_once(void **state)
{
    struct world *w = *state;

    put(w, 22, 3);
    put(w, 24, 3); /* two seconds later */
    put(w, 12, 5); /* the next one */
    put(w, 14, 5);
    assert_int_equal(number(w->a, "SELECT count(*) FROM arrival"), 2);
    assert_int_equal(number(w->a, "SELECT sum(requests) FROM arrival"), 8);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_slice_that_is_repeated_is_written_once, set_up,
                                        tear_down),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
