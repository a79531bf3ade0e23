/* test_decide_arrays.c - without it, an array of jobs could take more executors than it asked for,
 * or those of it that wait could hold up the jobs behind them. */
/* uses: scheduler/decide/decide.o scheduler/decide/decide_due.o scheduler/decide/decide_run.o scheduler/decide/decide_time.o scheduler/decide/predict.o */
/* uses: scheduler/decide/decide_jobs.o scheduler/decide/decide_share.o scheduler/decide/jobpool.o scheduler/decide/jobpool_decide.o scheduler/decide/jobpool_gang.o scheduler/decide/jobpool_order.o */
#include "tests/unit/decide_world.h"

/* A job of array 1, of which `max` may run at once. */
static struct snap_job *in_array(struct world *w, struct snap_job *j, uint32_t max)
{
    j->array = 1;
    j->array_max = max;
    w->in.n_arrays = 1;
    return j;
}

static void an_array_runs_no_more_at_once_than_its_limit(void **state)
{
    struct world w;

    (void)state;
    world_init(&w, 4);
    in_array(&w, add_running(&w, 0, 0, 100), 2);
    for (int i = 0; i < 3; i++)
        in_array(&w, add_job(&w, 0), 2);
    add_job(&w, 0); /* behind them, and of no array: it is not held up */
    world_decide(&w);
    assert_int_equal(count(&w, DECISION_START), 2);
    assert_non_null(about(&w, DECISION_START, &w.jobs[1]));
    assert_int_equal(about(&w, DECISION_WAIT, &w.jobs[2])->reason, DECIDE_ARRAY_LIMIT);
    assert_int_equal(about(&w, DECISION_WAIT, &w.jobs[3])->reason, DECIDE_ARRAY_LIMIT);
    assert_non_null(about(&w, DECISION_START, &w.jobs[4]));
    /* One that is on its way off its executor, or whose executor is away, still counts. */
    w.jobs[0].state = SNAP_STOPPING;
    w.jobs[0].exec = SNAP_NONE;
    w.execs[0].job = SNAP_NONE;
    world_decide(&w);
    assert_null(about(&w, DECISION_START, &w.jobs[2]));
    assert_non_null(about(&w, DECISION_START, &w.jobs[1]));
    /* So does one that has ended and is not known to have, but it holds no executor. */
    w.jobs[0].state = SNAP_LEFT;
    world_decide(&w);
    assert_int_equal(count(&w, DECISION_START), 2);
    assert_null(about(&w, DECISION_START, &w.jobs[2]));
    assert_int_equal((int)w.out.shares[0].running, 0);
    decisions_fini(&w.out);
}

static void an_array_takes_no_more_places_from_others_than_its_limit(void **state)
{
    struct world w;

    (void)state;
    world_init(&w, 3);
    w.tenants[1].guaranteed_gpus = 3;
    for (uint32_t e = 0; e < 3; e++)
        add_running(&w, 0, e, 60000);
    for (int i = 0; i < 3; i++)
        in_array(&w, add_job(&w, 1), 2);
    world_decide(&w);
    assert_int_equal(count(&w, DECISION_SUSPEND), 2);
    assert_int_equal(about(&w, DECISION_WAIT, &w.jobs[5])->reason, DECIDE_ARRAY_LIMIT);
    decisions_fini(&w.out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_array_runs_no_more_at_once_than_its_limit),
        cmocka_unit_test(an_array_takes_no_more_places_from_others_than_its_limit),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
