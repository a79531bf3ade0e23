/* test_sched_fairness.c - what tenants ask for and are charged, and what became of promises.
 *
 * Without it: a tenant could pay for what it never got, or hide how much it sends behind bodies
 * that come late; an executor that has nothing to do could take a modest tenant's protection away;
 * and a promise could be counted twice, or not at all where it was broken. */
/* uses: scheduler/pass/request.o scheduler/pass/pass.o scheduler/pass/pass_requests.o scheduler/pass/request_learn.o tests/unit/sched_world.o libscheduler.a */
/* link: -lpq */
#include "tests/unit/sched_world.h"

static struct peer x, y, a; /* executors and an API */

/* Executor x has version 1. */
static void serve(void)
{
    world_lead();
    exec_up(&x, "x");
    model_ready(&x, 1);
    api_hello(&a, 7);
    forget_heard(&x);
}

static void opened(uint64_t rid, const char *tenant, int64_t budget_ns)
{
    say(&a, &(struct sh_msg){.type = MSG_INFER_OPEN,
                             .u.infer_open = {.rid = rid,
                                              .tenant = tenant,
                                              .model = "m",
                                              .version_id = 1,
                                              .budget_ns = budget_ns}});
}

static void body(uint64_t rid, uint32_t batch)
{
    say(&a,
        &(struct sh_msg){.type = MSG_INFER_READY, .u.infer_ready = {.rid = rid, .batch = batch}});
}

static int refused(void)
{
    const struct sh_msg *m = heard(&a, MSG_INFER_REFUSED);

    return m ? (int)m->u.infer_refused.rc : 0;
}

static void cancel(uint64_t rid)
{
    say(&a, &(struct sh_msg){.type = MSG_INFER_CANCEL, .u.infer_cancel = {.rid = rid}});
}

static void again(uint64_t rid, uint32_t n_placed)
{
    say(&a, &(struct sh_msg){.type = MSG_INFER_AGAIN,
                             .u.infer_again = {.rid = rid, .n_placed = n_placed}});
}

static struct tenant *tenant(void)
{
    return tenants_by_id(&w.s->tenants, 1);
}

static struct exec *exec(void)
{
    return execs_find(&w.s->execs, "x");
}

/* ------------------------------------------------------------------ turns */

static void who_was_not_served_has_not_had_a_turn(void **state)
{
    int64_t one;

    (void)state;
    serve();
    opened(1, "t", 0);
    one = tenant()->turn_ns;
    assert_true(one > 0);
    opened(2, "t", 0);
    assert_int_equal(tenant()->turn_ns, 2 * one);
    cancel(2);
    assert_int_equal(tenant()->turn_ns, one);
    opened(3, "t", 0);
    body(3, 99); /* more than the version takes */
    assert_int_equal(tenant()->turn_ns, one);
    body(1, 1);
    run_sent(&x);
    cancel(1); /* it runs already */
    assert_int_equal(tenant()->turn_ns, one);
    peer_close(&x);
    assert_int_equal(w.s->requests.n, 0);
    assert_int_equal(tenant()->turn_ns, one);
}

static void a_turn_costs_what_the_whole_body_does(void **state)
{
    (void)state;
    w.models[0].profile = "[{\"batch\":1,\"compute_ns\":1e6},{\"batch\":8,\"compute_ns\":5e6}]";
    serve();
    opened(1, "t", 0);
    assert_int_equal(tenant()->turn_ns, MS);
    body(1, 8);
    assert_int_equal(tenant()->turn_ns, 5 * MS);
    opened(2, "t", 0);
    body(2, 1);
    assert_int_equal(tenant()->turn_ns, 6 * MS);
}

static void each_pays_its_part_of_a_run_that_they_share(void **state)
{
    const struct tenant *t, *u;
    double before;

    (void)state;
    w.models[0].profile = "[{\"batch\":1,\"compute_ns\":1e6},{\"batch\":8,\"compute_ns\":1.1e6}]";
    w.conf.max_runs = 1;
    add_tenant(2, "u");
    serve();
    opened(1, "t", 0);
    body(1, 1);
    opened(2, "t", 0);
    body(2, 3);
    opened(3, "u", 0);
    body(3, 1);
    run_done(&x, run_sent(&x), 0); /* the others have waited for it */
    t = tenant();
    u = tenants_by_id(&w.s->tenants, 2);
    before = t->usage_ns;
    assert_true(fabs(before - (double)MS) < 10);
    assert_true(u->usage_ns == 0);
    run_done(&x, run_sent(&x), 0);
    assert_int_equal(w.s->requests.n, 0);
    assert_true(fabs(t->usage_ns - before - 0.75 * (double)MS) < 10);
    assert_true(fabs(u->usage_ns - 0.25 * (double)MS) < 10);
}

/* ------------------------------------------------------------------ parts of the time */

static void what_the_body_brings_is_asked_for_too(void **state)
{
    double one;

    (void)state;
    serve();
    opened(1, "t", 0);
    one = exec()->demand.of[0].ns;
    assert_true(one > 0);
    body(1, 8);
    assert_true(fabs(exec()->demand.of[0].ns - 8 * one) < one / 1000);
    waiting_touch_all(w.s);
    turn();
    assert_true(exec()->demand.of[0].ns <= 8.001 * one); /* once */
}

static void what_a_quota_keeps_out_is_asked_for_all_the_same(void **state)
{
    double one;

    (void)state;
    serve();
    opened(1, "t", 0);
    one = exec()->demand.of[0].ns;
    tenant()->max_requests = 1;
    for (uint64_t rid = 2; rid <= 4; rid++)
        opened(rid, "t", 0);
    assert_int_equal(refused(), SH_E_QUOTA);
    assert_true(fabs(exec()->demand.of[0].ns - 4 * one) < one / 1000);
}

static void an_executor_without_the_version_takes_no_protection_away(void **state)
{
    (void)state;
    w.conf.load_wait_ms = 60000;
    serve();
    exec_up(&y, "y"); /* nobody asks anything of it */
    demand_add(&exec()->demand, 2, 9, 2e9, sh_clock_ns());
    waiting_touch(w.s, execs_find(&w.s->execs, "y"));
    opened(1, "t", 0);
    assert_true(w.s->requests.items[0]->exec == exec());
    assert_true(w.s->requests.items[0]->is_modest);
    model_ready(&y, 1); /* it has time enough for all of this version's requests */
    opened(2, "t", 0);
    assert_false(w.s->requests.items[1]->is_modest);
}

/* ------------------------------------------------------------------ promises */

static double promises(const char *result)
{
    char name[80];

    snprintf(name, sizeof(name), "shunt_promises_total{model=\"m\",result=\"%s\"}", result);
    return metric(name);
}

static struct {
    double kept, late, given_up;
} before;

static void count_from_here(void)
{
    before.kept = promises("kept");
    before.late = promises("late");
    before.given_up = promises("given_up");
}

static void assert_counted(int kept, int late, int given_up)
{
    assert_int_equal((int)(promises("kept") - before.kept), kept);
    assert_int_equal((int)(promises("late") - before.late), late);
    assert_int_equal((int)(promises("given_up") - before.given_up), given_up);
}

static void is_answered(void)
{
    run_done(&x, run_sent(&x), 0);
    assert_counted(1, 0, 0);
}
static void is_answered_late(void)
{
    const uint64_t run = run_sent(&x);

    advance(1500 * MS);
    run_done(&x, run, 0);
    assert_counted(0, 1, 0);
}
static void fails(void)
{
    run_done(&x, run_sent(&x), SH_E_INVALID);
    assert_counted(0, 0, 1);
}
static void is_cancelled(void)
{
    const uint64_t run = run_sent(&x);

    cancel(1);
    run_done(&x, run, SH_E_CANCELLED);
    assert_counted(0, 0, 0);
}
static void is_lost_for_good(void)
{
    peer_close(&x);
    stay(3 * SECOND);
    assert_int_equal(refused(), SH_E_UNAVAILABLE);
    assert_counted(0, 0, 1);
}
static void is_lost_and_runs_again(void)
{
    peer_close(&x);
    again(1, 1);
    exec_up(&x, "x");
    model_ready(&x, 1);
    run_done(&x, run_sent(&x), 0);
    assert_counted(1, 0, 0);
}
static void is_lost_and_finds_no_other(void)
{
    peer_close(&x);
    again(1, 1);
    stay(3 * SECOND);
    assert_int_not_equal(refused(), 0);
    assert_counted(0, 0, 1);
}
static void has_a_result_that_was_lost(void)
{
    again(1, 1);
    run_done(&x, run_sent(&x), 0);
    assert_counted(0, 0, 0); /* it is run once more */
    run_done(&x, run_sent(&x), 0);
    assert_counted(1, 0, 0);
}
static void is_lost_as_the_api_says(void)
{
    const uint64_t run = run_sent(&x);

    again(1, 1);
    stay(3 * SECOND);
    assert_int_equal(refused(), SH_E_UNAVAILABLE);
    assert_counted(0, 0, 1);
    run_done(&x, run, SH_E_CANCELLED);
    assert_counted(0, 0, 1);
}
static void outlives_its_client(void)
{
    stay(5 * SECOND);
    assert_counted(0, 0, 1);
    run_done(&x, run_sent(&x), SH_E_CANCELLED);
    assert_counted(0, 0, 1);
}
static void its_version_goes(void)
{
    const uint64_t run = run_sent(&x);

    opened(2, "t", 4 * SECOND); /* this one waits */
    w.n_models = 0;
    look_again();
    assert_counted(0, 0, 1);
    run_done(&x, run, 0); /* the last one takes what was counted of the model along */
}

static void each_promise_has_one_end(void **state)
{
    static void (*const ENDS[])(void) = {is_answered,
                                         is_answered_late,
                                         fails,
                                         is_cancelled,
                                         is_lost_for_good,
                                         is_lost_and_runs_again,
                                         is_lost_and_finds_no_other,
                                         has_a_result_that_was_lost,
                                         is_lost_as_the_api_says,
                                         outlives_its_client,
                                         its_version_goes};

    for (size_t i = 0; i < SH_ARRAY_LEN(ENDS); i++) {
        world_begin(state);
        w.models[0].slo_ms = 1000;
        w.models[0].on_miss = "reject";
        serve();
        count_from_here();
        opened(1, "t", 4 * SECOND);
        body(1, 1);
        assert_true(w.s->requests.items[0]->promised);
        ENDS[i]();
        assert_int_equal(w.s->requests.n, 0);
        world_end(state);
    }
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, world_begin, world_end)
    const struct CMUnitTest tests[] = {
        TEST(who_was_not_served_has_not_had_a_turn),
        TEST(a_turn_costs_what_the_whole_body_does),
        TEST(each_pays_its_part_of_a_run_that_they_share),
        TEST(what_the_body_brings_is_asked_for_too),
        TEST(what_a_quota_keeps_out_is_asked_for_all_the_same),
        TEST(an_executor_without_the_version_takes_no_protection_away),
        cmocka_unit_test(each_promise_has_one_end),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
