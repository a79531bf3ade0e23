/* test_sched_sessions.c - connections of APIs and executors.
 *
 * Without it: strangers or silent peers could keep connections from those that work, and one that
 * missed a message could go on as if it had heard everything. */
/* uses: scheduler/peers/sessions.o scheduler/peers/turn.o scheduler/peers/executors.o tests/unit/sched_world.o libscheduler.a */
/* link: -lpq -Wl,--wrap=sh_wire_uncork */
#include "tests/unit/sched_world.h"

static struct peer x, a;

static const struct sh_wire *sent[8]; /* in this order */
static size_t n_sent;

void __real_sh_wire_uncork(struct sh_wire *wire);
void __wrap_sh_wire_uncork(struct sh_wire *wire);

void __wrap_sh_wire_uncork(struct sh_wire *wire)
{
    if (n_sent < SH_ARRAY_LEN(sent))
        sent[n_sent++] = wire;
    __real_sh_wire_uncork(wire);
}

static const struct sh_msg PONG = {.type = MSG_PONG};

/* ------------------------------------------------------------------ the first message */

static void who_does_not_say_hello_has_to_go(void **state)
{
    static char long_name[200];
    const struct sh_msg first[] = {
        {.type = MSG_JOB_STATE, .u.job_state = {.job = 1}},
        {.type = MSG_EXEC_HELLO, .u.exec_hello = {.executor = ""}},
        {.type = MSG_EXEC_HELLO, .u.exec_hello = {.executor = long_name}},
    };

    (void)state;
    memset(long_name, 'a', sizeof(long_name) - 1);
    world_lead();
    for (size_t i = 0; i < SH_ARRAY_LEN(first); i++) {
        peer_open(&x);
        say(&x, &first[i]);
        assert_true(is_closed(&x));
        peer_close(&x);
        assert_int_equal(w.s->sessions.n, 0);
    }
    peer_open(&x); /* says nothing */
    advance(5 * SECOND);
    assert_false(is_closed(&x));
    advance(2 * SECOND);
    assert_true(is_closed(&x));
    peer_close(&x);
    peer_open(&x); /* speaks, but not of who it is */
    for (int i = 0; i < 5; i++) {
        advance(SECOND);
        say(&x, &(struct sh_msg){.type = MSG_PING, .u.ping = {.cookie = 9}});
        assert_int_equal(hear(&x, MSG_PONG)->u.pong.cookie, 9);
    }
    advance(2 * SECOND);
    assert_true(is_closed(&x));
}

static void who_is_silent_is_asked_and_then_given_up(void **state)
{
    (void)state;
    world_lead();
    api_hello(&a, 7);
    exec_up(&x, "x");
    for (int i = 0; i < 12; i++) {
        advance(SECOND);
        if (i % 3 == 2)
            say(&a, &PONG); /* of the executor nothing is heard */
    }
    hear(&x, MSG_PING);
    hear(&x, MSG_PING);
    assert_true(is_closed(&x));
    assert_false(is_closed(&a));
    assert_null(execs_find(&w.s->execs, "x")->session);
}

static void what_an_ended_session_says_is_not_heard(void **state)
{
    struct session *s;

    (void)state;
    world_lead();
    exec_up(&x, "x");
    s = execs_find(&w.s->execs, "x")->session;
    session_end(s, "a test");
    session_end(s, "once more"); /* says nothing again */
    session_send(s, &PONG);
    session_send(NULL, &PONG);
    advance(SECOND);
    assert_null(execs_find(&w.s->execs, "x")->session);
    assert_true(is_closed(&x));
    assert_null(heard(&x, MSG_PONG));
}

static void a_peer_that_comes_twice_is_one(void **state)
{
    struct peer again;

    (void)state;
    world_lead();
    api_hello(&a, 7);
    exec_up(&x, "x");
    exec_hello(&again, "x", 2); /* another process of the same name */
    assert_true(is_closed(&x));
    assert_int_equal(w.s->execs.n, 1);
    assert_false(exec_is_up(w.s->execs.items[0]));
    peer_close(&x);
    x = again;
    w.peers[2] = &x; /* it lives on there */
    exec_synced(&x, "x");
    api_hello(&again, 7);
    assert_true(is_closed(&a));
    assert_false(is_closed(&again));
    peer_close(&again);
}

static void there_are_no_more_than_so_many(void **state)
{
    struct peer many[3];

    (void)state;
    w.conf.max_sessions = 2;
    world_lead();
    for (int k = 0; k < 2; k++) { /* refused once with a word in the log, once without */
        for (size_t i = 0; i < SH_ARRAY_LEN(many); i++) {
            peer_open(&many[i]);
            turn();
            assert_int_equal(is_closed(&many[i]), i == 2);
        }
        assert_int_equal(w.s->sessions.n, 2);
        for (size_t i = 0; i < SH_ARRAY_LEN(many); i++)
            peer_close(&many[i]);
    }
}

static void who_was_away_for_long_makes_room_for_another_one(void **state)
{
    static const int64_t HOUR = 3600 * SECOND;
    struct exec *e;

    (void)state;
    w.conf.max_executors = 1;
    world_lead();
    w.conf.lease_ttl_ms = 10 * HOUR / MS; /* time makes leaps here */
    e = exec_up(&x, "x");
    peer_close(&x);
    peer_open(&a);
    say(&a, &(struct sh_msg){.type = MSG_EXEC_HELLO, .u.exec_hello = {.executor = "y"}});
    assert_true(is_closed(&a));
    peer_close(&a);
    e->homes.load = 1;
    sh_clock_advance(HOUR + SECOND);
    turn();
    assert_true(metric("shunt_placement_load{executor=\"x\"}") == 1);
    exec_up(&a, "y");
    assert_true(metric("shunt_placement_load{executor=\"x\"}") == 0);
    assert_int_equal(w.s->execs.n, 1);
    assert_ptr_equal(execs_find(&w.s->execs, "y"), e);
    assert_null(execs_find(&w.s->execs, "x"));
}

/* ------------------------------------------------------------------ messages */

static void who_missed_a_message_is_not_told_the_next(void **state)
{
    static char spec[SH_WIRE_MAX_FRAME + 1];
    struct store_start_out out = {.state = JOB_STARTING, .spec = spec};

    (void)state;
    add_job(5);
    world_lead();
    memset(spec, 'a', sizeof(spec) - 1);
    w.start_out = &out;
    exec_hello(&x, "x", 1);
    say(&x, &(struct sh_msg){.type = MSG_EXEC_SYNCED}); /* its job is more than a message takes */
    assert_true(is_closed(&x));
    assert_null(execs_find(&w.s->execs, "x")->session);
    assert_int_equal(job_of(5)->state, JOB_STARTING); /* it may come back */
    w.start_out = NULL;
    peer_close(&x);
    exec_up(&x, "x"); /* and does not know the job */
    advance(SECOND);
    assert_int_equal(hear(&x, MSG_JOB_START)->u.job_start.job, 5);
}

static void what_is_broken_in_between_hears_nothing_more(void **state)
{
    static char text[SH_WIRE_MAX_FRAME + 1];
    struct session *s;

    (void)state;
    world_lead();
    api_hello(&a, 7);
    exec_up(&x, "x");
    forget_heard(&x);
    memset(text, 'a', sizeof(text) - 1);
    s = execs_find(&w.s->execs, "x")->session;
    session_send(s, &(struct sh_msg){.type = MSG_HINT, .u.hint = {.what = text}});
    session_send(s, &PONG);
    assert_non_null(execs_find(&w.s->execs, "x")->session); /* who sends is not called back */
    turn();
    assert_null(heard(&x, MSG_PONG));
    assert_null(execs_find(&w.s->execs, "x")->session);
    assert_true(is_closed(&x));
    assert_false(is_closed(&a));
}

static void who_does_not_read_is_given_up(void **state)
{
    static char text[7 << 20];
    struct session *s;

    (void)state;
    world_lead();
    exec_up(&x, "x");
    memset(text, 'a', sizeof(text) - 1);
    s = execs_find(&w.s->execs, "x")->session;
    for (int i = 0; i < 12; i++) /* more than waits for one peer at most */
        session_send(s, &(struct sh_msg){.type = MSG_HINT, .u.hint = {.what = text}});
    turn();
    assert_null(execs_find(&w.s->execs, "x")->session);
    assert_int_equal(w.s->sessions.n, 0);
}

static void what_is_not_for_a_scheduler_ends_the_session(void **state)
{
    const struct sh_msg msg = {.type = MSG_WELCOME, .u.welcome = {.epoch = 1, .name = "x"}};

    (void)state;
    world_lead();
    exec_up(&x, "x");
    api_hello(&a, 7);
    say(&x, &msg);
    say(&a, &msg);
    assert_true(is_closed(&x) && is_closed(&a));
}

static void apis_are_told_of_executors(void **state)
{
    (void)state;
    world_lead();
    exec_up(&x, "x");
    api_hello(&a, 7);
    assert_int_equal(hear(&a, MSG_EXEC_UP)->u.exec_up.up, true);
    peer_close(&x);
    assert_int_equal(hear(&a, MSG_EXEC_UP)->u.exec_up.up, false);
    peer_close(&a);
    api_hello(&a, 7);
    assert_null(heard(&a, MSG_EXEC_UP)); /* none is there */
}

static void an_executor_is_told_once_of_each_tenants_memory(void **state)
{
    (void)state;
    world_lead();
    exec_up(&x, "x");
    add_tenant(2, "u")->memory.max_bytes = 5;
    look_again();
    assert_int_equal(hear(&x, MSG_TENANT_MEMORY)->u.tenant_memory.max_bytes, 5);
    look_again();
    assert_null(heard(&x, MSG_TENANT_MEMORY));
    peer_close(&x);
    w.tenants[1].memory.max_bytes = 6;
    look_again(); /* while it is away */
    exec_hello(&x, "x", 1);
    look_again();
    assert_null(heard(&x, MSG_TENANT_MEMORY)); /* not before it has said what it holds */
    exec_synced(&x, "x");
    assert_int_equal(hear(&x, MSG_TENANT_MEMORY)->u.tenant_memory.max_bytes, 6);
}

/* ------------------------------------------------------------------ addresses */

static void addresses_are_checked_one_by_one(void **state)
{
    char text[3000] = "", one[100];

    world_begin(state);
    w.conf.listen = text;
    for (int i = 0; i < SESSION_MAX_LISTEN + 1; i++) {
        snprintf(one, sizeof(one), "%s%s%d", i ? ",," : "", w.listen, i);
        snprintf(text + strlen(text), sizeof(text) - strlen(text), "%s", one);
    }
    turn();
    assert_true(w.s->loaded);
    assert_int_equal(w.s->sessions.n_listen, SESSION_MAX_LISTEN); /* one is too many */
    advance(SECOND);
    assert_int_equal(w.s->sessions.n_listen, SESSION_MAX_LISTEN);
    world_end(state);

    for (int k = 0; k < 3; k++) {
        world_begin(state);
        memset(text, 'a', sizeof(text) - 1);
        if (k < 2)
            snprintf(text, sizeof(text), "%s%s%s", k ? "nowhere," : "", w.listen,
                     k ? "" : ",nowhere");
        w.conf.listen = text; /* k = 2: longer than any address */
        turn();
        assert_true(w.s->loaded);
        assert_int_equal(w.s->sessions.n_listen, k == 0); /* as far as they are right */
        w.conf.listen = w.listen; /* what could not be opened is tried again */
        advance(SECOND);
        assert_int_equal(w.s->sessions.n_listen, 1);
        world_end(state);
    }
}

/* The request waits for its executor, and nobody for the word of where it is. */
static void an_executor_gets_its_work_before_the_api_hears_of_it(void **state)
{
    const struct exec *e;

    (void)state;
    world_lead();
    e = exec_up(&x, "x");
    model_ready(&x, 1);
    api_hello(&a, 7);
    n_sent = 0;
    infer_open(&a, 1, 1, false);
    hear(&x, MSG_PREPARE);
    hear(&a, MSG_INFER_PLACED);
    assert_int_equal(n_sent, 2);
    assert_ptr_equal(sent[0], e->session->wire);
}

/* ------------------------------------------------------------------ who does not lead */

static void who_lost_the_lease_tells_everybody_and_writes_nothing(void **state)
{
    (void)state;
    w.models[0].state = "REGISTERED";
    add_job(5);
    world_lead();
    exec_up(&x, "x");
    api_hello(&a, 7);
    infer_open(&a, 1, 1, false);
    forget_heard(&a);
    *world_count("executor.put") = 0;
    w.held = "lease";
    sched_lost_lease(w.s);
    turn();
    assert_int_equal(hear(&a, MSG_INFER_REFUSED)->u.infer_refused.rc, SH_E_UNAVAILABLE);
    assert_true(is_closed(&a) && is_closed(&x));
    assert_int_equal(*world_count("executor.put"), 0); /* that it went is for who leads now */
    assert_int_equal(w.s->execs.n + w.s->jobs.n + w.s->models.n + w.s->tenants.n, 0);
    sched_lost_lease(w.s);
    sched_poll(w.s);
    assert_false(w.s->polling);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, world_begin, world_end)
    const struct CMUnitTest tests[] = {
        TEST(who_does_not_say_hello_has_to_go),
        TEST(who_is_silent_is_asked_and_then_given_up),
        TEST(what_an_ended_session_says_is_not_heard),
        TEST(a_peer_that_comes_twice_is_one),
        TEST(there_are_no_more_than_so_many),
        TEST(who_was_away_for_long_makes_room_for_another_one),
        TEST(who_missed_a_message_is_not_told_the_next),
        TEST(what_is_broken_in_between_hears_nothing_more),
        TEST(who_does_not_read_is_given_up),
        TEST(what_is_not_for_a_scheduler_ends_the_session),
        TEST(apis_are_told_of_executors),
        TEST(an_executor_is_told_once_of_each_tenants_memory),
        TEST(an_executor_gets_its_work_before_the_api_hears_of_it),
        cmocka_unit_test(addresses_are_checked_one_by_one),
        TEST(who_lost_the_lease_tells_everybody_and_writes_nothing),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
