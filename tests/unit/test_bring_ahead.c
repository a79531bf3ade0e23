/* test_bring_ahead.c - what comes to a device before somebody asks for it. Without it: the first
 * request at a new home, or after a restart, could wait for all of its weights beside an idle link,
 * or weights that nobody needs could take the link from requests, again and again. */
/* uses: tests/unit/sched_world.o libscheduler.a */
/* link: -lpq */
#include "scheduler/models/ahead.h"
#include "tests/unit/sched_world.h"

#define IMAGE 900000000u
#define COPY_NS (90 * MS)    /* of it, by FIRST_NS_PER_BYTE */
#define BUDGET_NS (120 * MS) /* of a request that waits for one copy, not for two */

static struct peer x, a; /* an executor and an API */

static int begin(void **state)
{
    world_begin(state);
    for (int64_t v = 1; v <= 3; v++) {
        if (v > 1)
            add_model(v, v == 2 ? "two" : "three");
        w.models[v - 1].n_runs = 10 * (uint64_t)v;
    }
    x = a = (struct peer){.fd = -1};
    return 0;
}

static int end(void **state)
{
    peer_close(&x);
    peer_close(&a);
    return world_end(state);
}

/* All are there, so many bytes of each on the device. */
static void restart(const uint64_t held[3])
{
    exec_hello(&x, "x", 7);
    for (int64_t v = 1; v <= 3; v++)
        model_said(&x, (struct msg_model_state){.version_id = v,
                                                .state = MSG_MODEL_READY,
                                                .image_bytes = IMAGE,
                                                .resident_bytes = held[v - 1]});
    exec_synced(&x, "x");
}

static void assert_comes(int64_t version_id, enum msg_evict evict)
{
    const struct sh_msg *m = hear(&x, MSG_PREPARE);

    assert_int_equal(m->u.prepare.version_id, version_id);
    assert_int_equal(m->u.prepare.evict, evict);
}

static void is_there(int64_t version_id, uint64_t bytes)
{
    say(&x, &(struct sh_msg){.type = MSG_MODEL_PLACE,
                             .u.model_place = {.version_id = version_id,
                                               .device_bytes = bytes,
                                               .host_bytes = IMAGE,
                                               .idle_ns = -1}});
}

static void those_that_ran_most_come_first_and_one_after_the_other(void **state)
{
    static const int64_t WANT[] = {2, 1}; /* of 3 nothing is missing */
    const double was = decided("move", "Ahead");
    size_t n = 0;

    (void)state;
    world_lead();
    restart((uint64_t[]){0, IMAGE / 2, IMAGE});
    for (int i = 0; i < 200; i++) {
        const struct sh_msg *m = heard(&x, MSG_PREPARE);

        if (m) {
            assert_in_range(n, 0, 1);
            assert_int_equal(m->u.prepare.version_id, WANT[n++]);
            assert_int_equal(m->u.prepare.evict, MSG_EVICT_NONE);
            assert_null(heard(&x, MSG_PREPARE));
            is_there(m->u.prepare.version_id, IMAGE);
        }
        stay(SECOND / 10);
    }
    assert_int_equal(n, 2);
    assert_int_equal(decided("move", "Ahead") - was, 2);
}

static void what_found_no_room_is_not_asked_for_all_the_time(void **state)
{
    int n = 0;

    (void)state;
    world_lead();
    restart((uint64_t[]){0, IMAGE, IMAGE});
    for (int s = 0; s < 30; s++) {
        stay(SECOND);
        while (heard(&x, MSG_PREPARE)) {
            is_there(1, 0);
            n++;
        }
    }
    assert_in_range(n, 2, 3);
}

static void one_that_is_asked_for_comes_first_when_nobody_runs(void **state)
{
    uint64_t run;

    (void)state;
    world_lead();
    restart((uint64_t[]){IMAGE, 0, 0});
    api_hello(&a, 7);
    forget_heard(&x);
    infer_open(&a, 1, 1, false);
    infer_ready(&a, 1, NULL, 0);
    turn();
    assert_comes(1, MSG_EVICT_ANY);
    run = run_sent(&x);
    infer_open(&a, 2, 2, false); /* its body is still to come */
    turn();
    assert_comes(2, MSG_EVICT_ANY);
    is_there(2, 0); /* no room beside what runs */
    stay(3 * SECOND);
    assert_null(heard(&x, MSG_PREPARE)); /* somebody runs and waits */
    run_done(&x, run, 0);
    say(&a, &(struct sh_msg){.type = MSG_INFER_CANCEL, .u.infer_cancel = {.rid = 2}});
    stay(SECOND);
    assert_comes(2, MSG_EVICT_STALE); /* not 3, which ran more often */
}

static bool is_refused(uint64_t rid, int64_t version_id)
{
    say(&a, &(struct sh_msg){.type = MSG_INFER_OPEN,
                             .u.infer_open = {.rid = rid,
                                              .tenant = "t",
                                              .model = w.models[version_id - 1].model,
                                              .version_id = version_id,
                                              .budget_ns = BUDGET_NS}});
    turn();
    return heard(&a, MSG_INFER_REFUSED) != NULL;
}

/* Version 3 is on its way, and nobody has asked for it. */
static void let_one_come(void)
{
    const struct sh_msg *m = NULL;

    for (int64_t v = 2; v <= 3; v++) {
        w.models[v - 1].on_miss = "reject";
        w.models[v - 1].profile = "[{\"batch\":1,\"compute_ns\":1000000.0}]";
    }
    world_lead();
    restart((uint64_t[]){IMAGE, 0, 0});
    api_hello(&a, 7);
    for (int i = 0; i < 200 && !m; i++) {
        advance(10 * MS);
        turn();
        m = heard(&x, MSG_PREPARE);
    }
    assert_non_null(m);
    assert_int_equal(m->u.prepare.version_id, 3);
}

/* It gives way as soon as somebody asks for another one. */
static void nobody_is_refused_for_what_comes_before_somebody_asks(void **state)
{
    for (int told = 0; told < 2; told++) {
        let_one_come();
        if (told)
            say(&x, &(struct sh_msg){.type = MSG_MODEL_PLACE,
                                     .u.model_place = {.version_id = 3,
                                                       .device_bytes = IMAGE,
                                                       .host_bytes = IMAGE,
                                                       .arrives_ns = COPY_NS,
                                                       .idle_ns = -1}});
        assert_false(is_refused(1, 2));
        assert_comes(2, MSG_EVICT_ANY);
        end(state);
        begin(state);
    }
}

static void once_somebody_asks_for_it_others_wait(void **state)
{
    (void)state;
    let_one_come();
    assert_false(is_refused(1, 3));
    assert_true(is_refused(2, 2));
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, begin, end)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(those_that_ran_most_come_first_and_one_after_the_other),
        TEST(what_found_no_room_is_not_asked_for_all_the_time),
        TEST(one_that_is_asked_for_comes_first_when_nobody_runs),
        TEST(nobody_is_refused_for_what_comes_before_somebody_asks),
        TEST(once_somebody_asks_for_it_others_wait),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
