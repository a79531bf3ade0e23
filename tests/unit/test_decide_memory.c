/* test_decide_memory.c - without it, a job that is too large for one device could be tried there
 * again and again, be failed beside one where it fits, or keep smaller ones waiting. */
/* uses: scheduler/decide/decide.o scheduler/decide/decide_due.o scheduler/decide/decide_run.o scheduler/decide/decide_time.o scheduler/decide/predict.o */
/* uses: scheduler/decide/decide_jobs.o scheduler/decide/decide_share.o scheduler/decide/jobpool.o scheduler/decide/jobpool_decide.o scheduler/decide/jobpool_gang.o scheduler/decide/jobpool_order.o */
#include "tests/unit/decide_world.h"

/* Two executors, with 32 MiB and 64. */
static void unequal_world(struct world *w)
{
    world_init(w, 2);
    w->execs[0].pool_bytes = 32u << 20;
    w->execs[1].pool_bytes = 64u << 20;
}

static void a_job_that_was_too_large_goes_where_it_fits_and_hides_nobody(void **state)
{
    struct world w;
    struct snap_job *big, *small;

    (void)state;
    unequal_world(&w);
    w.execs[1].n_runs = 3; /* else the first choice */
    big = add_job(&w, 0);
    small = add_job(&w, 0);
    big->need_bytes = 48u << 20;
    world_decide(&w);
    assert_int_equal(about(&w, DECISION_START, big)->exec, 1);
    assert_int_equal(about(&w, DECISION_START, small)->exec, 0);
    w.execs[1].up = false;
    world_decide(&w);
    assert_int_equal(about(&w, DECISION_WAIT, big)->reason, DECIDE_GPU_MEMORY);
    assert_int_equal(about(&w, DECISION_START, small)->exec, 0);
    decisions_fini(&w.out);
}

static void a_job_above_its_tenants_memory_waits_until_that_is_raised(void **state)
{
    struct world w;
    struct snap_job *j;

    (void)state;
    world_init(&w, 1);
    w.execs[0].pool_bytes = 64u << 20;
    w.tenants[0].max_memory_bytes = 32u << 20;
    j = add_job(&w, 0);
    j->need_bytes = 48u << 20;
    world_decide(&w);
    assert_int_equal(about(&w, DECISION_WAIT, j)->reason, DECIDE_GPU_MEMORY);
    w.tenants[0].max_memory_bytes = 48u << 20;
    world_decide(&w);
    assert_non_null(about(&w, DECISION_START, j));
    w.tenants[0].max_memory_bytes = 0;
    world_decide(&w);
    assert_non_null(about(&w, DECISION_START, j));
    decisions_fini(&w.out);
}

static void nobody_gives_way_on_a_device_that_is_too_small(void **state)
{
    struct world w;
    struct snap_job *small, *want;

    (void)state;
    unequal_world(&w);
    small = add_running(&w, 0, 0, 60000);
    add_running(&w, 0, 1, 60000)->is_fixed = true;
    want = add_job(&w, 0);
    want->priority = 5;
    want->need_bytes = 48u << 20;
    world_decide(&w);
    assert_null(about(&w, DECISION_SUSPEND, small));
    want->need_bytes = 0;
    world_decide(&w);
    assert_non_null(about(&w, DECISION_SUSPEND, small));
    decisions_fini(&w.out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_job_that_was_too_large_goes_where_it_fits_and_hides_nobody),
        cmocka_unit_test(a_job_above_its_tenants_memory_waits_until_that_is_raised),
        cmocka_unit_test(nobody_gives_way_on_a_device_that_is_too_small),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
