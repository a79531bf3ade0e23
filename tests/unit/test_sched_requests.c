/* test_sched_requests.c - requests from their headers to their end, and what becomes of them when
 * an executor, an API or a version goes.
 *
 * Without it: a message that is wrong could be read past its end, a limit could let one more in, a
 * lost request could run twice or never, and clients could hear the wrong reason. */
/* uses: scheduler/pass/request.o scheduler/pass/pass.o scheduler/pass/pass_requests.o tests/unit/sched_world.o libscheduler.a */
/* link: -lpq */
#include "scheduler/models/serving.h"
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

static void request(uint64_t rid)
{
    infer_open(&a, rid, 1, false);
    infer_ready(&a, rid, NULL, 0);
}

/* Why the API was refused; 0: it was not. */
static int refused(void)
{
    const struct sh_msg *m = heard(&a, MSG_INFER_REFUSED);

    return m ? (int)m->u.infer_refused.rc : 0;
}

static void again(uint64_t rid, uint32_t n_placed)
{
    say(&a, &(struct sh_msg){.type = MSG_INFER_AGAIN,
                             .u.infer_again = {.rid = rid, .n_placed = n_placed}});
}

static void cancel(uint64_t rid)
{
    say(&a, &(struct sh_msg){.type = MSG_INFER_CANCEL, .u.infer_cancel = {.rid = rid}});
}

static struct model *version(void)
{
    return models_find(&w.s->models, 1);
}

/* ------------------------------------------------------------------ who is let in */

static void as_usual(void)
{
}
static void unknown_version(void)
{
    w.n_models = 0;
}
static void unloading(void)
{
    w.models[0].state = "UNLOADING";
    w.held = "model.state"; /* and nobody has heard yet that it has left */
}
static void suspended(void)
{
    w.tenants[0].active = false;
}
static void tenants_quota(void)
{
    w.tenants[0].max_concurrent_requests = 1;
}
static void limit_of_all(void)
{
    w.conf.max_requests = 1;
}
static void limit_of_a_version(void)
{
    w.conf.max_model_requests = 1;
}

static void limits_are_kept(void **state)
{
    static const struct {
        void (*change)(void);
        int first, second;
    } CASES[] = {{as_usual, 0, 0},
                 {unknown_version, SH_E_UNAVAILABLE, SH_E_UNAVAILABLE},
                 {unloading, SH_E_CONFLICT, SH_E_CONFLICT},
                 {suspended, SH_E_FORBIDDEN, SH_E_FORBIDDEN},
                 {tenants_quota, 0, SH_E_QUOTA},
                 {limit_of_all, 0, SH_E_QUEUEFULL},
                 {limit_of_a_version, 0, SH_E_QUEUEFULL}};

    for (size_t i = 0; i < SH_ARRAY_LEN(CASES); i++) {
        const char *rule = sh_rc_name(CASES[i].second);
        const double before = decided("refuse", rule);

        world_begin(state);
        CASES[i].change();
        serve();
        look_again();
        infer_open(&a, 1, 1, false);
        assert_int_equal(refused(), CASES[i].first);
        infer_open(&a, 2, 1, false);
        assert_int_equal(refused(), CASES[i].second);
        assert_true(decided("refuse", rule) == before + !!CASES[i].first + !!CASES[i].second);
        world_end(state);
    }
}

static void headers_that_are_wrong_are_refused(void **state)
{
    static const struct {
        uint64_t rid;
        const char *tenant;
        int rc;
    } CASES[] = {{1, "t", 0}, {1, "t", SH_E_PROTO}, {2, "", SH_E_INVALID}, {3, "young", 0}};

    (void)state;
    serve();
    for (size_t i = 0; i < SH_ARRAY_LEN(CASES); i++) {
        size_t n = *world_count("poll");

        say(&a, &(struct sh_msg){.type = MSG_INFER_OPEN,
                                 .u.infer_open = {.rid = CASES[i].rid,
                                                  .tenant = CASES[i].tenant,
                                                  .model = "m",
                                                  .version_id = 1,
                                                  .age_ns = -5,
                                                  .priority = 5000}});
        assert_int_equal(refused(), CASES[i].rc);
        /* One that is younger than the last look makes the next one come at once. */
        assert_int_equal(*world_count("poll") > n, strcmp(CASES[i].tenant, "young") == 0);
    }
    assert_int_equal(w.s->requests.items[0]->priority, 1000);
    assert_int_equal(w.s->requests.items[0]->open_ns, sh_clock_ns());
}

static void bodies_that_are_wrong_are_refused(void **state)
{
    static const struct msg_span SPANS[4097];
    static const size_t ONE = sizeof(SPANS[0]);
    static const struct {
        uint32_t batch;
        size_t in, out; /* bytes */
        int rc;
    } CASES[] = {{1, sizeof(SPANS[0]), sizeof(SPANS[0]), 0},
                 {1, 0, 0, 0},
                 {1, 3, 0, SH_E_PROTO},
                 {1, 0, 3, SH_E_PROTO},
                 {1, sizeof(SPANS), 0, SH_E_PROTO},
                 {1, 0, sizeof(SPANS), SH_E_PROTO},
                 {0, 0, 0, SH_E_INVALID},
                 {9, 0, 0, SH_E_INVALID},
                 {8, sizeof(SPANS) - sizeof(SPANS[0]), 0, 0}};

    (void)state;
    serve();
    for (size_t i = 0; i < SH_ARRAY_LEN(CASES); i++) {
        struct sh_msg m = {.type = MSG_INFER_READY,
                           .u.infer_ready = {.rid = i,
                                             .batch = CASES[i].batch,
                                             .in_spans = {SPANS, CASES[i].in},
                                             .out_spans = {SPANS, CASES[i].out},
                                             .priority = 5000,
                                             .budget_ns = SECOND}};

        infer_open(&a, i, 1, false);
        say(&a, &m);
        assert_int_equal(refused(), CASES[i].rc);
        if (!CASES[i].rc) {
            const struct msg_run_part part = hear(&x, MSG_RUN_PART)->u.run_part;
            const struct request *r = w.s->requests.items[0];

            assert_int_equal(part.in_spans.len / ONE, CASES[i].in / ONE);
            assert_int_equal(r->priority, 1000);
            assert_int_equal(r->limit_ns, sh_clock_ns() + SECOND);
            say(&a, &m); /* once more: it runs already */
            assert_int_equal(refused(), 0);
            run_done(&x, run_sent(&x), 0);
        }
        say(&a, &m); /* of one that is over */
        assert_int_equal(w.s->requests.n, 0);
    }
}

/* ------------------------------------------------------------------ an executor goes */

static void a_lost_run_is_run_again_when_both_sides_know(void **state)
{
    (void)state;
    serve();
    request(1);
    run_sent(&x);
    peer_close(&x);
    assert_int_equal(w.s->requests.items[0]->state, REQUEST_LOST);
    again(1, 7); /* of another place */
    assert_int_equal(w.s->requests.items[0]->state, REQUEST_LOST);
    exec_up(&x, "x");
    model_ready(&x, 1);
    again(1, 1);
    run_sent(&x);
    again(2, 1); /* over for us */
    assert_int_equal(refused(), SH_E_UNAVAILABLE);
    peer_close(&x); /* a second time: it may be the cause */
    assert_int_equal(refused(), SH_E_UNAVAILABLE);
    assert_int_equal(w.s->requests.n, 0);
}

static void who_says_it_first_is_believed_for_a_while(void **state)
{
    (void)state;
    serve();
    request(1);
    run_sent(&x);
    again(1, 1); /* the API has lost it, and we have not */
    assert_int_equal(w.s->requests.items[0]->state, REQUEST_RUNNING);
    peer_close(&x); /* now we have */
    assert_int_equal(w.s->requests.items[0]->state, REQUEST_READY);
    exec_up(&x, "x");
    model_ready(&x, 1);
    run_sent(&x);
    advance(3 * SECOND);
    assert_int_equal(refused(), 0);
    cancel(1);
    hear(&x, MSG_RUN_CANCEL);
    request(2);
    peer_close(&x); /* nobody waits for the first, and the second is given up as well: */
    cancel(2);      /* of that the API says so */
    assert_int_equal(refused(), SH_E_UNAVAILABLE);
    assert_int_equal(w.s->requests.n, 0);
}

static void a_doubt_that_nobody_shares_is_an_end(void **state)
{
    uint64_t run;

    for (int k = 0; k < 4; k++) { /* 1: we have lost it; 2: the API goes; 3: the result came */
        world_begin(state);
        serve();
        request(1);
        run = run_sent(&x);
        if (k == 1)
            peer_close(&x);
        else
            again(1, 1);
        if (k == 2)
            peer_close(&a);
        if (k == 3) {
            run_done(&x, run, 0); /* the API did not get it: it is run once more */
            assert_int_equal(w.s->requests.n, 1);
            run_done(&x, run_sent(&x), 0);
            assert_int_equal(w.s->requests.n, 0);
        }
        advance(3 * SECOND);
        if (k < 2)
            assert_int_equal(refused(), SH_E_UNAVAILABLE);
        if (k == 0 || k == 2) {
            hear(&x, MSG_RUN_CANCEL);
            assert_int_equal(w.s->requests.n, 1); /* until the executor has ended it */
            run_done(&x, run, SH_E_CANCELLED);
        }
        assert_int_equal(w.s->requests.n, 0);
        world_end(state);
    }
}

/* The API's connection to the executor is younger than the request. */
static void who_asks_for_a_result_gets_it_or_hears_that_it_is_lost(void **state)
{
    uint64_t run;

    (void)state;
    serve();
    infer_open(&a, 1, 1, false);
    again(1, 0); /* it has not begun, so nothing is lost */
    infer_ready(&a, 1, NULL, 0);
    run_done(&x, run_sent(&x), 0);
    assert_int_equal(refused(), 0);
    assert_int_equal(w.s->requests.n, 0);
    request(2);
    run = run_sent(&x);
    again(2, 0);
    run_done(&x, run, 0);
    assert_int_equal(refused(), 0); /* what was sent may still be on its way */
    advance(SECOND);
    assert_int_equal(refused(), SH_E_UNAVAILABLE);
    assert_int_equal(w.s->requests.n, 0);
}

static void what_waits_on_an_executor_that_goes_is_placed_elsewhere(void **state)
{
    (void)state;
    serve();
    exec_up(&y, "y");
    model_ready(&y, 1);
    forget_heard(&y);
    infer_open(&a, 1, 1, false);
    assert_string_equal(hear(&a, MSG_INFER_PLACED)->u.infer_placed.executor, "x");
    again(1, 1); /* the API has lost that one before us */
    hear(&a, MSG_INFER_PLACED);
    peer_close(&x);
    again(1, 2);
    assert_true(w.s->requests.items[0]->exec == execs_find(&w.s->execs, "y"));
    infer_ready(&a, 1, NULL, 0);
    run_done(&y, run_sent(&y), 0);
    assert_int_equal(refused(), 0);
    assert_int_equal(w.s->requests.n, 0);
}

static void says_that_it_stops(struct peer *p)
{
    say(p, &(struct sh_msg){.type = MSG_EXEC_STATE, .u.exec_state = {.stopping = true}});
}

static void an_executor_that_stops_ends_its_runs_and_gets_no_others(void **state)
{
    uint64_t run;

    (void)state;
    serve();
    request(1);
    run = run_sent(&x);
    infer_open(&a, 2, 1, false); /* its body is on its way */
    exec_up(&y, "y");
    model_ready(&y, 1);
    forget_heard(&a);
    says_that_it_stops(&x);
    assert_false(exec_is_up(execs_find(&w.s->execs, "x")));
    assert_null(heard(&a, MSG_EXEC_UP)); /* results still come from there */
    assert_true(w.s->requests.items[1]->exec == execs_find(&w.s->execs, "y"));
    infer_ready(&a, 2, NULL, 0);
    run_done(&y, run_sent(&y), 0);
    for (uint64_t rid = 3; rid < 6; rid++) {
        request(rid);
        run_done(&y, run_sent(&y), 0);
    }
    assert_null(heard(&x, MSG_RUN));
    assert_int_equal(w.s->requests.n, 1);
    run_done(&x, run, 0);
    assert_int_equal(w.s->requests.n, 0);
    assert_int_equal(refused(), 0);
}

/* However it says so: its workers have died, it failed, it has given the version up. */
static void what_waits_where_the_version_is_not_ready_any_more_is_placed_elsewhere(void **state)
{
    static const enum msg_model_phase PHASES[] = {MSG_MODEL_LOADING, MSG_MODEL_FAILED,
                                                  MSG_MODEL_GONE};

    for (size_t i = 0; i < SH_ARRAY_LEN(PHASES); i++) {
        uint64_t rid = 1;

        world_begin(state);
        w.models[0].max_batch = 1;
        serve();
        for (; rid <= (uint64_t)w.conf.max_runs; rid++)
            request(rid);
        request(rid);
        exec_up(&y, "y");
        model_ready(&y, 1);
        assert_null(heard(&y, MSG_RUN)); /* it waits for x */
        model_said(&x, (struct msg_model_state){
                           .version_id = 1, .state = PHASES[i], .rc = SH_E_INVALID, .msg = "no"});
        run_done(&y, run_sent(&y), 0);
        assert_int_equal(w.s->requests.n, rid - 1); /* what runs on x goes on */
        assert_int_equal(refused(), 0);
        world_end(state);
    }
}

static void what_is_to_run_waits_for_an_executor_that_starts_again(void **state)
{
    (void)state;
    serve();
    says_that_it_stops(&x);
    assert_true(serving_expected_ns(w.s, version(), sh_clock_ns()) == sh_clock_ns());
    peer_close(&x);
    exec_up(&x, "x");
    model_ready(&x, 1);
    request(1);
    run_done(&x, run_sent(&x), 0);
    assert_int_equal(refused(), 0);
}

static void a_version_that_goes_while_its_run_is_lost_cannot_run_again(void **state)
{
    (void)state;
    serve();
    request(1);
    run_sent(&x);
    again(1, 1);
    w.n_models = 0;
    look_again();
    assert_true(w.s->models.n == 1 && w.s->models.items[0]->gone); /* until its run has ended */
    infer_open(&a, 2, 1, false);
    assert_int_equal(refused(), SH_E_UNAVAILABLE); /* the version is known no more */
    peer_close(&x);
    exec_up(&x, "x");
    advance(SECOND);
    assert_int_not_equal(refused(), 0);
    assert_int_equal(w.s->requests.n + w.s->models.n, 0);
}

/* ------------------------------------------------------------------ an API or time goes */

static void what_runs_for_an_api_that_goes_is_cancelled_the_rest_ends(void **state)
{
    uint64_t run;

    (void)state;
    serve();
    request(1);
    run = run_sent(&x);
    infer_open(&a, 2, 1, false);
    api_hello(&y, 8); /* another one has requests too */
    say(&y,
        &(struct sh_msg){.type = MSG_INFER_OPEN,
                         .u.infer_open = {.rid = 1, .tenant = "t", .model = "m", .version_id = 1}});
    peer_close(&a);
    assert_int_equal(hear(&x, MSG_RUN_CANCEL)->u.run_cancel.api_id, 7); /* 8 has a request 1, too */
    assert_int_equal(w.s->requests.n, 2);
    run_done(&x, run, SH_E_CANCELLED);
    assert_int_equal(w.s->requests.n, 1);
}

static void what_takes_too_long_is_given_up(void **state)
{
    uint64_t run;

    (void)state;
    w.conf.request_timeout_ms = 2000;
    w.conf.load_wait_ms = 60000;
    serve();
    request(1);
    run = run_sent(&x);
    infer_open(&a, 2, 1, false); /* its body does not come */
    advance(3 * SECOND);
    assert_int_equal(refused(), SH_E_TIMEOUT);
    hear(&x, MSG_RUN_CANCEL);
    advance(SECOND);
    assert_null(heard(&x, MSG_RUN_CANCEL)); /* said once */
    cancel(1);
    cancel(99);
    assert_null(heard(&x, MSG_RUN_CANCEL));
    run_done(&x, 77, 0); /* of a former leader */
    exec_up(&y, "y");
    run_done(&y, run, 0); /* not its own */
    assert_int_equal(w.s->requests.n, 1);
    run_done(&x, run, 0);
    assert_int_equal(w.s->requests.n, 0);
}

static void a_leader_that_goes_leaves_runs_to_their_executor(void **state)
{
    for (int api_is_gone = 0; api_is_gone < 2; api_is_gone++) {
        world_begin(state);
        serve();
        request(1);
        run_sent(&x);
        infer_open(&a, 2, 1, false);
        if (api_is_gone)
            peer_close(&a);
        sched_lost_lease(w.s);
        assert_int_equal(w.s->requests.n, 0);
        turn();
        if (!api_is_gone) {
            assert_int_equal(hear(&a, MSG_INFER_REFUSED)->u.infer_refused.rid, 2);
            assert_int_equal(refused(), 0); /* its result comes from the executor */
        }
        world_end(state);
    }
}

/* ------------------------------------------------------------------ what is learnt */

static void what_an_executor_measured_is_learnt_within_reason(void **state)
{
    static const struct {
        int64_t copy_ns;
        uint64_t copied_bytes;
        int64_t busy_ns;
        uint32_t cold;
        bool has_rate, has_run;
    } CASES[] = {{0, 2 << 20, MS, 0, false, true},
                 {MS, 2 << 20, MS, 0, true, true},
                 {MS, 1 << 10, MS, 0, false, true},
                 {MS, 0, -5, 0, false, true},
                 {-1, 2 << 20, INT64_MAX, 1, false, false}};
    struct exec *e;

    (void)state;
    serve();
    e = w.s->execs.items[0];
    for (size_t i = 0; i < SH_ARRAY_LEN(CASES); i++) {
        const double rate = e->ns_per_byte;
        const uint32_t n = version()->predict.ring[0].n;
        const int64_t busy = e->busy_ns[0];

        request(i);
        say(&x, &(struct sh_msg){.type = MSG_RUN_DONE,
                                 .u.run_done = {.run_id = run_sent(&x),
                                                .copy_ns = CASES[i].copy_ns,
                                                .copied_bytes = CASES[i].copied_bytes,
                                                .busy_ns = CASES[i].busy_ns,
                                                .compute_ns = -1,
                                                .cold = CASES[i].cold,
                                                .resident_bytes = 1 << 20}});
        assert_int_equal(e->ns_per_byte != rate, CASES[i].has_rate);
        assert_int_equal(version()->predict.ring[0].n - n, CASES[i].has_run);
        assert_true(e->busy_ns[0] >= busy && e->stop_ns == FIRST_STOP_NS);
    }
}

static void stopping_training_is_measured(void **state)
{
    struct exec *e;

    (void)state;
    add_job(5);
    serve();
    e = w.s->execs.items[0];
    assert_true(jobs_train_on(w.s, e));
    request(1);
    say(&x, &(struct sh_msg){
                .type = MSG_RUN_DONE,
                .u.run_done = {.run_id = run_sent(&x), .busy_ns = 9 * MS, .compute_ns = MS}});
    assert_true(e->stop_ns > FIRST_STOP_NS && e->stop_ns < 8 * MS);
}

/* What is asked of an executor counts once, however often a request is looked at; who comes later
 * than another tenant with more behind him goes first. */
static void what_is_asked_of_an_executor_is_known(void **state)
{
    struct exec *e;
    double ns;

    (void)state;
    serve();
    e = w.s->execs.items[0];
    for (uint64_t i = 1; i <= 3; i++)
        request(i);
    assert_int_equal(e->demand.n, 1);
    assert_int_equal(e->demand.of[0].model, version()->version_id);
    ns = e->demand.of[0].ns;
    assert_true(ns > 0);
    for (int i = 0; i < 3; i++) {
        waiting_touch_all(w.s);
        turn();
    }
    assert_true(e->demand.of[0].ns <= ns);
    assert_true(w.s->requests.items[0]->turn_ns < w.s->requests.items[1]->turn_ns);
}

/* ------------------------------------------------------------------ why one is refused */

static void a_refusal_says_why(void **state)
{
    static const struct {
        int64_t run_ns, budget_ns;
        const char *why;
        bool may_retry;
    } CASES[] = {{0, SECOND, NULL, true},
                 {20 * SECOND, SECOND, "the model alone takes longer", false},
                 {SECOND, 1500 * MS, "requests admitted earlier", true}};

    for (size_t i = 0; i < SH_ARRAY_LEN(CASES); i++) {
        struct sh_msg m = {.type = MSG_INFER_OPEN,
                           .u.infer_open = {.rid = 2,
                                            .tenant = "t",
                                            .model = "m",
                                            .version_id = 1,
                                            .budget_ns = CASES[i].budget_ns}};
        const double before = decided("refuse", "DeadlineUnreachable");
        const struct sh_msg *r;
        char profile[80];

        world_begin(state);
        w.models[0].is_solo = true;
        snprintf(profile, sizeof(profile), "[{\"batch\":1,\"compute_ns\":%lld.0}]",
                 (long long)CASES[i].run_ns);
        w.models[0].profile = profile;
        w.models[0].on_miss = "reject";
        serve();
        if (i == 2) { /* one that would miss its limit, were this one to go before it */
            m.u.infer_open.rid = 1;
            m.u.infer_open.budget_ns += 400 * MS;
            say(&a, &m);
            assert_int_equal(refused(), 0);
            m.u.infer_open.rid = 2;
            m.u.infer_open.budget_ns -= 400 * MS;
        }
        say(&a, &m);
        r = heard(&a, MSG_INFER_REFUSED);
        assert_int_equal(!!r, !!CASES[i].why);
        assert_true(decided("refuse", "DeadlineUnreachable") == before + !!r);
        if (r) {
            assert_int_equal(r->u.infer_refused.rc, SH_E_SLO);
            assert_has(r->u.infer_refused.msg, CASES[i].why);
            assert_int_equal(r->u.infer_refused.retry_after_ms > 0, CASES[i].may_retry);
        }
        world_end(state);
    }
}

static void where_there_is_no_executor_the_refusal_says_so(void **state)
{
    const double by_name = decided("refuse", "NoExecutor"),
                 by_code = decided("refuse", "UNAVAILABLE");
    const struct sh_msg *m;

    (void)state;
    world_lead();
    api_hello(&a, 7);
    say(&a, &(struct sh_msg){
                .type = MSG_INFER_OPEN,
                .u.infer_open = {
                    .rid = 1, .tenant = "t", .model = "m", .version_id = 1, .age_ns = INT64_MAX}});
    m = hear(&a, MSG_INFER_REFUSED); /* of an age that nobody believes */
    assert_int_equal(m->u.infer_refused.rc, SH_E_UNAVAILABLE);
    assert_has(m->u.infer_refused.msg, "no executor is connected");
    assert_true(decided("refuse", "NoExecutor") == by_name + 1);
    assert_true(decided("refuse", "UNAVAILABLE") == by_code); /* counted once, by its rule */
}

/* What to do about it is often said last; and half a letter is none that a reply could have. */
static void a_refusal_says_all_that_is_known_of_a_model_that_failed(void **state)
{
#define FOUR "\303\251\303\251\303\251\303\251" /* letters of two bytes */
    static const char WHY[] =
        "it needs M" FOUR FOUR FOUR FOUR FOUR "; unload versions or lower max_batch, and try again";
    const struct sh_msg *m;

    (void)state;
    world_lead();
    exec_up(&x, "x");
    model_said(&x, (struct msg_model_state){
                       .version_id = 1, .state = MSG_MODEL_FAILED, .rc = SH_E_INVALID, .msg = WHY});
    api_hello(&a, 7);
    request(1);
    m = hear(&a, MSG_INFER_REFUSED);
    assert_has(m->u.infer_refused.msg, WHY);
}

/* What keeps all requests out may be over, and only a run can tell. */
static void after_a_while_one_that_would_be_refused_is_let_in(void **state)
{
    struct sh_msg m = {
        .type = MSG_INFER_OPEN,
        .u.infer_open = {.tenant = "t", .model = "m", .version_id = 1, .budget_ns = SECOND}};
    int n = 0;

    (void)state;
    w.models[0].profile = "[{\"batch\":1,\"compute_ns\":2e9}]";
    serve();
    for (say(&a, &m); refused() == SH_E_SLO && n < 100; n++) {
        stay(SECOND);
        m.u.infer_open.rid++;
        say(&a, &m);
    }
    assert_in_range(n, 2, 99);
    assert_int_equal(w.s->requests.n, 1);
    assert_false(w.s->requests.items[0]->promised);
    assert_true(w.s->requests.items[0]->limit_ns > sh_clock_ns() + 1000 * SECOND);
}

/* ------------------------------------------------------------------ many */

static void let_many_in(void)
{
    w.conf.max_sessions = 100;
    w.conf.max_requests = w.conf.max_model_requests = 1000;
    w.conf.load_wait_ms = 60000;
    w.tenants[0].max_concurrent_requests = 1000;
}

static void requests_spread_over_many_executors(void **state)
{
    static struct peer many[70];
    size_t n = 0, most = 0, runs = 0;
    char name[8];

    (void)state;
    let_many_in();
    world_lead();
    for (size_t i = 0; i < SH_ARRAY_LEN(many); i++) {
        snprintf(name, sizeof(name), "e%zu", i);
        exec_up(&many[i], name);
        model_ready(&many[i], 1);
    }
    api_hello(&a, 7);
    for (uint64_t i = 0; i < 2 * SH_ARRAY_LEN(many); i++)
        infer_open(&a, i, 1, false);
    for (size_t i = 0; i < w.s->execs.n; i++) {
        n += w.s->execs.items[i]->waiting.n;
        most = SH_MAX(most, w.s->execs.items[i]->waiting.n);
    }
    assert_int_equal(n, 2 * SH_ARRAY_LEN(many));
    assert_in_range(most, 2, 4);
    for (uint64_t i = 0; i < 2 * SH_ARRAY_LEN(many); i++)
        infer_ready(&a, i, NULL, 0);
    for (int k = 0; k < 4; k++)
        for (size_t i = 0; i < SH_ARRAY_LEN(many); i++) {
            const struct sh_msg *m = heard(&many[i], MSG_RUN);

            runs += !!m;
            if (m)
                run_done(&many[i], m->u.run.run_id, 0);
        }
    assert_in_range(runs, SH_ARRAY_LEN(many), 2 * SH_ARRAY_LEN(many));
    assert_int_equal(w.s->requests.n, 0);
    for (size_t i = 0; i < SH_ARRAY_LEN(many); i++)
        peer_close(&many[i]);
}

static void many_that_wait_for_their_version_all_get_it(void **state)
{
    const struct sh_msg *m;

    (void)state;
    let_many_in();
    w.models[0].max_batch = 64;
    world_lead();
    exec_up(&x, "x");
    api_hello(&a, 7);
    for (uint64_t i = 0; i < 600; i++) {
        infer_open(&a, i, 1, false);
        infer_ready(&a, i, NULL, 0);
    }
    stay(2 * SECOND);
    assert_int_equal(refused(), 0);
    assert_int_equal(w.s->requests.waiting.parked.n, 600);
    model_ready(&x, 1);
    for (int k = 0; k < 50 && w.s->requests.n; k++)
        while ((m = heard(&x, MSG_RUN)))
            run_done(&x, m->u.run.run_id, 0);
    assert_int_equal(w.s->requests.n, 0);
    assert_int_equal(refused(), 0);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, world_begin, world_end)
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(limits_are_kept),
        TEST(headers_that_are_wrong_are_refused),
        TEST(bodies_that_are_wrong_are_refused),
        TEST(a_lost_run_is_run_again_when_both_sides_know),
        TEST(who_asks_for_a_result_gets_it_or_hears_that_it_is_lost),
        TEST(who_says_it_first_is_believed_for_a_while),
        cmocka_unit_test(a_doubt_that_nobody_shares_is_an_end),
        TEST(what_waits_on_an_executor_that_goes_is_placed_elsewhere),
        TEST(an_executor_that_stops_ends_its_runs_and_gets_no_others),
        cmocka_unit_test(what_waits_where_the_version_is_not_ready_any_more_is_placed_elsewhere),
        TEST(what_is_to_run_waits_for_an_executor_that_starts_again),
        TEST(a_version_that_goes_while_its_run_is_lost_cannot_run_again),
        TEST(what_runs_for_an_api_that_goes_is_cancelled_the_rest_ends),
        TEST(what_takes_too_long_is_given_up),
        cmocka_unit_test(a_leader_that_goes_leaves_runs_to_their_executor),
        TEST(what_an_executor_measured_is_learnt_within_reason),
        TEST(stopping_training_is_measured),
        TEST(what_is_asked_of_an_executor_is_known),
        cmocka_unit_test(a_refusal_says_why),
        TEST(where_there_is_no_executor_the_refusal_says_so),
        TEST(a_refusal_says_all_that_is_known_of_a_model_that_failed),
        TEST(after_a_while_one_that_would_be_refused_is_let_in),
        TEST(requests_spread_over_many_executors),
        TEST(many_that_wait_for_their_version_all_get_it),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
