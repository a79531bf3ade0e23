/* test_decide_levels.c - without it, a long job could hold up all short ones of its tenant, a short
 * one could wait behind those that came after it, and slots could move between tenants for ever. */
/* uses: scheduler/decide/decide.o scheduler/decide/decide_due.o scheduler/decide/decide_run.o scheduler/decide/decide_time.o scheduler/decide/predict.o */
/* uses: scheduler/decide/decide_jobs.o scheduler/decide/decide_share.o scheduler/decide/jobpool.o scheduler/decide/jobpool_decide.o scheduler/decide/jobpool_gang.o scheduler/decide/jobpool_order.o */
#include "common/mem.h"
#include "tests/unit/decide_world.h"

static void a_job_that_has_had_much_gives_way_to_one_of_its_tenant_that_goes_before_it(void **state)
{
    struct world w;
    struct snap_job *runs, *wants;

    (void)state;
    world_init(&w, 1);
    runs = add_running(&w, 0, 0, 29000);
    runs->level = 1;
    runs->line_us = 10;
    wants = add_job(&w, 0);
    wants->line_us = 9;
    world_decide(&w);
    assert_int_equal(about(&w, DECISION_WAIT, wants)->reason, DECIDE_MIN_RUN);
    runs->since_ns = NOW - 31000 * MS;
    world_decide(&w);
    assert_int_equal(about(&w, DECISION_SUSPEND, runs)->reason, DECIDE_ATTAINED);
    wants->line_us = 11; /* it came later than the other is put back */
    world_decide(&w);
    assert_int_equal(count(&w, DECISION_SUSPEND), 0);
    wants->line_us = 9;
    runs->priority = 1;
    world_decide(&w);
    assert_int_equal(count(&w, DECISION_SUSPEND), 0);
    runs->priority = 0;
    runs->level = 0; /* first come, first served */
    world_decide(&w);
    assert_int_equal(count(&w, DECISION_SUSPEND), 0);
    decisions_fini(&w.out);
}

static void of_a_tenant_that_gives_a_slot_the_job_that_is_last_in_line_loses_it(void **state)
{
    struct world w;

    (void)state;
    world_init(&w, 3);
    w.tenants[0].usage_ns = 1000e9;
    add_running(&w, 0, 0, 60000);
    add_running(&w, 0, 1, 60000)->level = 1;
    add_running(&w, 0, 2, 60000)->level = 2;
    w.jobs[0].line_us = 3; /* of level 0, so it goes on */
    w.jobs[1].line_us = 2;
    w.jobs[2].line_us = 1; /* it has waited for long */
    add_job(&w, 1);
    world_decide(&w);
    assert_int_equal(count(&w, DECISION_SUSPEND), 1);
    assert_int_equal(nth(&w, DECISION_SUSPEND, 0)->job, 1);
    decisions_fini(&w.out);
}

/* Jobs of level 0 do not give way to each other, so nothing follows from which of them it is. */
static void of_level_0_the_job_that_loses_least_gives_way(void **state)
{
    static const struct {
        int64_t loss_ms[3];
        int32_t priority[3];
        uint32_t level[3], victim;
    } CASES[] = {{{300, 100, 200}, {0, 0, 0}, {0, 0, 0}, 1},
                 {{200, 200, 200}, {0, 0, 0}, {0, 0, 0}, 2},  /* the youngest */
                 {{300, 100, 200}, {0, 1, 0}, {0, 0, 0}, 2},  /* of the lowest priority */
                 {{300, 100, 200}, {0, 0, 0}, {1, 0, 0}, 0}}; /* it is behind them in line */

    (void)state;
    for (size_t i = 0; i < SH_ARRAY_LEN(CASES); i++) {
        struct world w;

        world_init(&w, 3);
        w.tenants[0].usage_ns = 1000e9;
        for (uint32_t k = 0; k < 3; k++) {
            struct snap_job *j = add_running(&w, 0, k, 60000);

            j->loss_ns = CASES[i].loss_ms[k] * MS;
            j->priority = CASES[i].priority[k];
            j->level = CASES[i].level[k];
        }
        add_job(&w, 1);
        world_decide(&w);
        assert_int_equal(count(&w, DECISION_SUSPEND), 1);
        assert_int_equal(nth(&w, DECISION_SUSPEND, 0)->job, CASES[i].victim);
        decisions_fini(&w.out);
    }
}

static void who_waits_behind_one_of_its_tenant_that_has_had_less_is_told_so(void **state)
{
    struct world w;
    struct snap_job *had, *old;

    (void)state;
    world_init(&w, 1);
    add_running(&w, 0, 0, 1000);
    add_job(&w, 0);
    had = add_job(&w, 0);
    had->level = 2;
    had->line_us = 100;
    old = add_job(&w, 0);
    old->line_us = 50;
    world_decide(&w);
    assert_int_equal(about(&w, DECISION_WAIT, had)->reason, DECIDE_ATTAINED);
    assert_int_equal(about(&w, DECISION_WAIT, old)->reason, DECIDE_PRIORITY);
    decisions_fini(&w.out);
}

static void who_waits_behind_the_next_is_told_so_as_well(void **state)
{
    struct world w;
    struct snap_job *had;

    (void)state;
    world_init(&w, 1);
    add_running(&w, 0, 0, 1000);
    add_job(&w, 0); /* the next: it is looked at */
    had = add_job(&w, 0);
    had->level = 2;
    had->line_us = 100;
    world_decide(&w);
    assert_int_equal(about(&w, DECISION_WAIT, had)->reason, DECIDE_ATTAINED);
    decisions_fini(&w.out);
}

static void who_has_as_many_slots_takes_none_by_its_share_and_the_next_may(void **state)
{
    struct world w;

    (void)state;
    world_init(&w, 4);
    w.tenants[0].usage_ns = 100000e9;
    w.tenants[1].usage_ns = 0;
    w.tenants[2].usage_ns = 10e9;
    add_running(&w, 0, 0, 60000);
    add_running(&w, 0, 1, 60000);
    add_running(&w, 1, 2, 60000);
    add_running(&w, 1, 3, 60000);
    add_job(&w, 1);
    world_decide(&w);
    assert_int_equal(count(&w, DECISION_SUSPEND), 0);
    add_job(&w, 2); /* it has none */
    world_decide(&w);
    assert_int_equal(count(&w, DECISION_SUSPEND), 1);
    assert_int_equal(nth(&w, DECISION_SUSPEND, 0)->job, 1);
    w.tenants[1].weight = 3; /* two slots are less now than the two of tenant 0 */
    w.in.n_jobs--;
    world_decide(&w);
    assert_int_equal(count(&w, DECISION_SUSPEND), 1);
    decisions_fini(&w.out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(
            a_job_that_has_had_much_gives_way_to_one_of_its_tenant_that_goes_before_it),
        cmocka_unit_test(of_a_tenant_that_gives_a_slot_the_job_that_is_last_in_line_loses_it),
        cmocka_unit_test(of_level_0_the_job_that_loses_least_gives_way),
        cmocka_unit_test(who_waits_behind_one_of_its_tenant_that_has_had_less_is_told_so),
        cmocka_unit_test(who_waits_behind_the_next_is_told_so_as_well),
        cmocka_unit_test(who_has_as_many_slots_takes_none_by_its_share_and_the_next_may),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
