/* test_decide_plans.c - without it, one request that can hardly be kept could keep everybody else
 * out, and a device could stand still in a plan while weights are on their way. */
/* uses: scheduler/decide/decide.o scheduler/decide/decide_due.o scheduler/decide/decide_run.o scheduler/decide/decide_time.o scheduler/decide/predict.o */
/* uses: scheduler/decide/decide_jobs.o scheduler/decide/decide_share.o scheduler/decide/jobpool.o scheduler/decide/jobpool_decide.o scheduler/decide/jobpool_gang.o scheduler/decide/jobpool_order.o */
#include "common/mem.h"
#include "tests/unit/decide_world.h"

/* On executor 0, or on none yet. */
static void add_due(struct world *w, uint32_t model, int64_t limit_ms, bool is_promised)
{
    struct snap_request *r = add_request(w, model);

    r->exec = is_promised ? 0 : SNAP_NONE;
    r->promised = is_promised;
    r->arrived_ns = NOW;
    r->on_miss = SNAP_REJECT;
    r->deadline_ns = r->limit_ns = NOW + limit_ms * MS;
}

/* A run takes 10 ms, and the device is busy for 1 more. Two were promised to be over in 15 ms, and
 * only one of them can. The other one could, if that one went away. */
static void whom_no_plan_keeps_does_not_keep_others_out(void **state)
{
    static const struct {
        uint32_t model;
        int64_t limit_ms;
        bool is_let_in;
    } CASES[] = {
        {1, 50, true},
        {1, 20, false}, /* he alone would be late */
        {2, 13, false}, /* 2 ms, before one of the two: he would be even later */
    };

    (void)state;
    for (size_t c = 0; c < SH_ARRAY_LEN(CASES); c++) {
        struct world w;

        world_init(&w, 1);
        for (size_t m = 0; m < W_MODELS; m++)
            w.models[m].max_batch = 1;
        w.models[2].run_ns[0] = 2 * MS;
        w.execs[0].n_runs = w.in.max_runs;
        w.execs[0].busy_until_ns = NOW + MS;
        add_due(&w, 0, 12, true);
        add_due(&w, 0, 15, true);
        add_due(&w, CASES[c].model, CASES[c].limit_ms, false);
        world_decide(&w);
        if (count(&w, DECISION_PLACE) != CASES[c].is_let_in)
            fail_msg("case %zu", c);
        assert_int_equal(count(&w, DECISION_REFUSE), !CASES[c].is_let_in);
        decisions_fini(&w.out);
    }
}

/* The weights of the first are there in 30 ms, and he is through in 40. */
static void others_run_while_weights_are_on_their_way(void **state)
{
    static const struct {
        int64_t arrives_ms, first_ms, limit_ms;
        bool is_let_in;
    } CASES[] = {
        {30, 45, 48, true},
        {9, 45, 48, true},  /* behind him */
        {9, 29, 28, true},  /* his limit is later, and he can wait */
        {9, 24, 28, false}, /* behind him it is late, and before him his weights would wait */
    };

    (void)state;
    for (size_t c = 0; c < SH_ARRAY_LEN(CASES); c++) {
        struct world w;

        world_init(&w, 1);
        place_of(&w, 0, 0)->arrives_ns = NOW + CASES[c].arrives_ms * MS;
        add_due(&w, 0, CASES[c].first_ms, true);
        add_due(&w, 1, CASES[c].limit_ms, false);
        world_decide(&w);
        if (count(&w, DECISION_PLACE) != CASES[c].is_let_in)
            fail_msg("case %zu", c);
        if (CASES[c].arrives_ms == 30)
            assert_int_equal(w.out.members[nth(&w, DECISION_RUN, 0)->first], 1);
        decisions_fini(&w.out);
    }
}

/* The weights of the first are there in 30 ms. Those of the second went, and come again behind
 * them, 10.5 ms later: it cannot run meanwhile, and a plan for who is new knows it. */
static void whose_weights_went_does_not_run_before_they_are_back(void **state)
{
    static const struct {
        int64_t run_ms, limit_ms;
        bool is_let_in;
    } CASES[] = {
        {10, 60, true},  /* before the first */
        {40, 42, false}, /* the first would be late */
    };

    (void)state;
    for (size_t c = 0; c < SH_ARRAY_LEN(CASES); c++) {
        struct world w;

        world_init(&w, 1);
        place_of(&w, 0, 0)->arrives_ns = w.execs[0].lane_ns = NOW + 30 * MS;
        place_of(&w, 1, 0)->resident_bytes = 0;
        w.models[2].run_ns[0] = CASES[c].run_ms * MS;
        add_due(&w, 0, 45, true);
        add_due(&w, 1, 60, true);
        add_due(&w, 2, CASES[c].limit_ms, false);
        world_decide(&w);
        if (count(&w, DECISION_PLACE) != CASES[c].is_let_in)
            fail_msg("case %zu", c);
        decisions_fini(&w.out);
    }
}

/* The device is busy for 20 ms, the weights are there in 30, and the run waits 5 for a worker: who
 * is done in 30 would make it late. Behind it he is in time. */
static void who_waits_for_a_worker_begins_so_much_before_the_weights_are_here(void **state)
{
    struct world w;

    (void)state;
    world_init(&w, 1);
    w.execs[0].n_runs = w.in.max_runs;
    w.execs[0].busy_until_ns = NOW + 20 * MS;
    place_of(&w, 0, 0)->arrives_ns = NOW + 30 * MS;
    place_of(&w, 0, 0)->worker_ns = 5 * MS;
    add_due(&w, 0, 42, true);
    add_due(&w, 1, 60, false);
    world_decide(&w);
    assert_int_equal(count(&w, DECISION_PLACE), 1);
    decisions_fini(&w.out);
}

/* Two were promised to be over in 15 ms, and only one of them can. Once its run is sent, the other
 * one is late and a run of somebody else may be next. */
static void who_is_late_behind_the_first_run_does_not_keep_back_the_second(void **state)
{
    struct world w;

    (void)state;
    world_init(&w, 1);
    w.models[0].max_batch = 1;
    w.in.max_runs = 2;
    add_due(&w, 0, 12, true);
    add_due(&w, 0, 15, true);
    add_request(&w, 1);
    world_decide(&w);
    assert_int_equal(count(&w, DECISION_RUN), 2);
    assert_int_equal(w.out.members[nth(&w, DECISION_RUN, 0)->first], 0);
    assert_int_equal(w.out.members[nth(&w, DECISION_RUN, 1)->first], 2);
    decisions_fini(&w.out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(whom_no_plan_keeps_does_not_keep_others_out),
        cmocka_unit_test(others_run_while_weights_are_on_their_way),
        cmocka_unit_test(whose_weights_went_does_not_run_before_they_are_back),
        cmocka_unit_test(who_waits_for_a_worker_begins_so_much_before_the_weights_are_here),
        cmocka_unit_test(who_is_late_behind_the_first_run_does_not_keep_back_the_second),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
