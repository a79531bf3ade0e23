/* test_decide_order.c - which job is next, and for whom another one gives way.
 *
 * Without it: people could be told of another order than the one in which jobs start, and a job
 * could take the place of one whose device is too small for it. */
/* uses: scheduler/decide/decide.o scheduler/decide/decide_due.o scheduler/decide/decide_run.o scheduler/decide/decide_time.o scheduler/decide/predict.o */
/* uses: scheduler/decide/decide_jobs.o scheduler/decide/decide_share.o scheduler/decide/jobpool.o scheduler/decide/jobpool_decide.o scheduler/decide/jobpool_gang.o scheduler/decide/jobpool_order.o */
#include "tests/unit/decide_world.h"

/* As explain.c tells a client what is before its job. */
static void the_order_is_that_in_which_jobs_would_start(void **state)
{
    struct world w;
    struct sh_err err = {0};
    uint32_t order[W_JOBS];
    size_t n;

    (void)state;
    world_init(&w, 1);
    w.tenants[0].usage_ns = 100e9;
    w.tenants[2].guaranteed_gpus = 1;
    add_running(&w, 3, 0, 1000);    /* 0 */
    add_job(&w, 0);                 /* 1 */
    add_job(&w, 1)->priority = -1;  /* 2 */
    add_job(&w, 1);                 /* 3 */
    add_job(&w, 1)->line_us = -5;   /* 4 */
    add_job(&w, 1)->queue_open = 0; /* 5 */
    add_job(&w, 2);                 /* 6 */
    assert_ok_err(decide_order(&w.in, &w.out, order, &n, &err), &err);
    assert_int_equal(n, 5);
    assert_int_equal(order[0], 6);
    assert_int_equal(order[1], 4);
    assert_int_equal(order[2], 3);
    assert_int_equal(order[3], 2);
    assert_int_equal(order[4], 1);
    assert_int_equal(w.out.n, 0);
    decisions_fini(&w.out);
}

static void who_has_no_weight_gets_no_more_than_his_guarantee(void **state)
{
    struct world w;

    (void)state;
    world_init(&w, 4);
    w.tenants[0].weight = 0;
    w.tenants[0].guaranteed_gpus = 1;
    for (int i = 0; i < 3; i++)
        add_job(&w, 0);
    world_decide(&w);
    assert_int_equal(count(&w, DECISION_START), 1);
    assert_int_equal(nth(&w, DECISION_WAIT, 0)->reason, DECIDE_QUOTA_LIMIT);
    assert_true(w.out.shares[0].fair == 1 && w.out.shares[0].waiting == 3);
    decisions_fini(&w.out);
}

/* One that is too large for all devices that could be freed waits for memory, not for a victim. */
static void nobody_gives_way_on_a_device_that_is_too_small(void **state)
{
    struct world w;

    (void)state;
    world_init(&w, 2);
    w.execs[0].pool_bytes = 10;
    w.execs[1].pool_bytes = 20;
    add_running(&w, 0, 0, 60000);
    add_running(&w, 0, 1, 60000)->priority = 3;
    add_job(&w, 0)->priority = 2;
    w.jobs[2].need_bytes = 15;
    world_decide(&w);
    assert_int_equal(count(&w, DECISION_SUSPEND), 0);
    w.jobs[2].priority = 4;
    world_decide(&w);
    assert_int_equal(nth(&w, DECISION_SUSPEND, 0)->job, 1);
    decisions_fini(&w.out);
}

/* Else every pass until the first one has stopped would take another slot for it. */
static void a_slot_that_is_being_given_up_counts_towards_the_guarantee(void **state)
{
    struct world w;

    (void)state;
    world_init(&w, 2);
    w.tenants[1].guaranteed_gpus = 1;
    add_running(&w, 0, 0, 60000);
    add_running(&w, 0, 1, 60000);
    add_job(&w, 1);
    add_job(&w, 1);
    world_decide(&w);
    assert_int_equal(count(&w, DECISION_SUSPEND), 1);
    w.jobs[nth(&w, DECISION_SUSPEND, 0)->job].state = SNAP_STOPPING;
    world_decide(&w);
    assert_int_equal(count(&w, DECISION_SUSPEND), 0);
    decisions_fini(&w.out);
}

static void a_tenants_own_priorities_hold_however_many_others_go_first(void **state)
{
    struct world w;

    (void)state;
    world_init(&w, 1);
    w.tenants[1].usage_ns = 10e9; /* less than a minimum run: the others take nothing from it */
    add_running(&w, 1, 0, 60000); /* 0 */
    add_job(&w, 0);
    add_job(&w, 0);
    add_job(&w, 2);
    add_job(&w, 1)->priority = 5;
    world_decide(&w);
    assert_int_equal(nth(&w, DECISION_SUSPEND, 0)->job, 0);
    assert_int_equal(nth(&w, DECISION_SUSPEND, 0)->reason, DECIDE_PRIORITY);
    decisions_fini(&w.out);
}

/* Else shares would cross in each minimum run, and jobs would be stopped for nothing. */
static void the_more_slots_a_tenant_has_the_more_a_claim_takes(void **state)
{
    struct world w;

    (void)state;
    world_init(&w, 4); /* two tenants: two slots each */
    w.tenants[1].usage_ns = 3.5 * 30e9;
    for (uint32_t e = 0; e < 4; e++)
        add_running(&w, 1, e, 60000);
    add_job(&w, 0);
    world_decide(&w);
    assert_int_equal(count(&w, DECISION_SUSPEND), 0);
    w.tenants[1].usage_ns = 4.5 * 30e9; /* more than two minimum runs of two slots */
    world_decide(&w);
    assert_int_equal(count(&w, DECISION_SUSPEND), 1);
    assert_int_equal(nth(&w, DECISION_SUSPEND, 0)->reason, DECIDE_FAIR_SHARE);
    decisions_fini(&w.out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_more_slots_a_tenant_has_the_more_a_claim_takes),
        cmocka_unit_test(a_slot_that_is_being_given_up_counts_towards_the_guarantee),
        cmocka_unit_test(a_tenants_own_priorities_hold_however_many_others_go_first),
        cmocka_unit_test(the_order_is_that_in_which_jobs_would_start),
        cmocka_unit_test(who_has_no_weight_gets_no_more_than_his_guarantee),
        cmocka_unit_test(nobody_gives_way_on_a_device_that_is_too_small),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
