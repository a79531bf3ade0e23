/* test_decide_promises.c - without it, a request that was let in could be refused because of one
 * that came later, a model could be refused for ever for what was true once, and a batch could cost
 * another request its limit. */
/* uses: scheduler/decide/decide.o scheduler/decide/decide_due.o scheduler/decide/decide_run.o scheduler/decide/decide_time.o scheduler/decide/predict.o */
/* uses: scheduler/decide/decide_jobs.o scheduler/decide/decide_share.o scheduler/decide/jobpool.o scheduler/decide/jobpool_decide.o scheduler/decide/jobpool_gang.o scheduler/decide/jobpool_order.o */
/* link: -Wl,--wrap=decide__run_ns */
#include "common/mem.h"
#include "tests/unit/decide_world.h"

static size_t n_asked;

int64_t __real_decide__run_ns(const struct snapshot *in, uint32_t model, uint32_t batch);
int64_t __wrap_decide__run_ns(const struct snapshot *in, uint32_t model, uint32_t batch);

int64_t __wrap_decide__run_ns(const struct snapshot *in, uint32_t model, uint32_t batch)
{
    n_asked++;
    return __real_decide__run_ns(in, model, batch);
}

/* A request that is whole on its arrival, with a limit. */
static struct snap_request *add_new(struct world *w, uint32_t model, int64_t limit_ms)
{
    struct snap_request *r = add_request(w, model);

    r->exec = SNAP_NONE;
    r->arrived_ns = NOW;
    r->on_miss = SNAP_REJECT;
    r->deadline_ns = r->limit_ns = NOW + limit_ms * MS;
    return r;
}

/* One that was let in before. */
static struct snap_request *add_promised(struct world *w, uint32_t model, int64_t limit_ms)
{
    struct snap_request *r = add_new(w, model, limit_ms);

    r->exec = 0;
    r->promised = true;
    return r;
}

static void busy(struct world *w, int64_t ms)
{
    w->execs[0].n_runs = w->in.max_runs;
    w->execs[0].busy_until_ns = NOW + ms * MS;
}

static void a_newcomer_is_not_let_in_at_the_cost_of_one_that_was(void **state)
{
    struct world w;

    (void)state;
    world_init(&w, 1);
    w.models[0].max_batch = w.models[1].max_batch = 1;
    busy(&w, 2);
    add_promised(&w, 0, 15); /* 10 ms behind 2 */
    add_new(&w, 1, 14);      /* alone it would be in time, and by its deadline it goes first */
    world_decide(&w);
    assert_int_equal(count(&w, DECISION_PLACE), 0);
    assert_int_equal(nth(&w, DECISION_REFUSE, 0)->request, 1);
    assert_int_equal(nth(&w, DECISION_REFUSE, 0)->reason, DECIDE_DEADLINE);
    assert_in_range(nth(&w, DECISION_REFUSE, 0)->retry_after_ms, 7, 9);
    w.requests[0].deadline_ns = w.requests[0].limit_ns = NOW + 22 * MS;
    world_decide(&w); /* now there is time for both */
    assert_int_equal(nth(&w, DECISION_PLACE, 0)->request, 1);
    assert_int_equal(count(&w, DECISION_REFUSE), 0);
    decisions_fini(&w.out);
}

/* A run takes 10 ms; while all workers compile it may wait 20 more, and so may each behind it. */
static void who_may_wait_for_a_worker_is_let_in_where_none_does_or_there_is_time(void **state)
{
    static const struct {
        int64_t wait_ms[2], limit_ms; /* 0: none */
        bool is_behind;               /* another that was let in on 0 */
        uint32_t exec;                /* SNAP_NONE: refused */
    } CASES[] = {
        {{0, 0}, 11, false, 0},           {{20, 0}, 11, false, 1},  {{20, 0}, 0, false, 1},
        {{20, 20}, 29, false, SNAP_NONE}, {{20, 30}, 31, false, 0}, {{20, 90}, 59, true, SNAP_NONE},
        {{20, 90}, 61, true, 0},          {{20, 90}, 0, false, 0},
    };

    (void)state;
    for (size_t i = 0; i < SH_ARRAY_LEN(CASES); i++) {
        struct snap_request *r;
        struct world w;

        world_init(&w, 2);
        w.models[0].max_batch = w.models[1].max_batch = 1;
        w.models[0].refused_ns = NOW - 3600000 * MS; /* it was tried before */
        for (uint32_t e = 0; e < 2; e++)
            for (uint32_t m = 0; m < 2; m++)
                place_of(&w, m, e)->worker_ns = CASES[i].wait_ms[e] * MS;
        if (CASES[i].is_behind)
            add_promised(&w, 1, 40);
        r = add_new(&w, 0, CASES[i].limit_ms);
        if (!CASES[i].limit_ms)
            r->deadline_ns = r->limit_ns = SNAP_NO_DEADLINE;
        world_decide(&w);
        assert_int_equal(count(&w, DECISION_PLACE), CASES[i].exec != SNAP_NONE);
        if (CASES[i].exec != SNAP_NONE)
            assert_int_equal(nth(&w, DECISION_PLACE, 0)->exec, CASES[i].exec);
        decisions_fini(&w.out);
    }
}

static void a_higher_priority_waits_where_it_would_break_a_promise(void **state)
{
    struct world w;

    (void)state;
    world_init(&w, 1);
    add_promised(&w, 0, 15);
    add_request(&w, 1)->priority = 7; /* without a limit */
    world_decide(&w);
    assert_int_equal(nth(&w, DECISION_RUN, 0)->request, 0);
    w.requests[0].deadline_ns = w.requests[0].limit_ns = NOW + 25 * MS;
    world_decide(&w);
    assert_int_equal(nth(&w, DECISION_RUN, 0)->request, 1);
    decisions_fini(&w.out);
}

static void a_lower_priority_is_not_let_in_where_a_higher_one_goes_first(void **state)
{
    struct world w;

    (void)state;
    world_init(&w, 1);
    busy(&w, 5);
    add_request(&w, 1)->priority = 7;
    add_new(&w, 0, 20);
    world_decide(&w);
    assert_int_equal(nth(&w, DECISION_REFUSE, 0)->request, 1);
    decisions_fini(&w.out);
}

static void of_all_runs_before_an_end_one_may_be_slow_and_not_each(void **state)
{
    struct world w;

    (void)state;
    world_init(&w, 1);
    w.models[0].max_batch = 1;
    w.models[0].slow_ns[0] = 25 * MS;
    for (int i = 0; i < 3; i++)
        add_promised(&w, 0, 50);
    add_new(&w, 0, 52); /* the fourth: 40 ms, and 13 more; three times 15 would be 85 */
    add_new(&w, 0, 54);
    world_decide(&w);
    assert_int_equal(nth(&w, DECISION_REFUSE, 0)->request, 3);
    assert_int_equal(nth(&w, DECISION_PLACE, 0)->request, 4);
    decisions_fini(&w.out);
}

static void a_run_that_waits_for_weights_ends_a_tail_after_they_came(void **state)
{
    struct world w;

    (void)state;
    world_init(&w, 1); /* 100 MiB in 10.5 ms */
    place_of(&w, 0, 0)->resident_bytes = 0;
    w.models[0].tail_ns[0] = 2 * MS;
    add_new(&w, 0, 13);
    world_decide(&w);
    assert_int_equal(nth(&w, DECISION_PLACE, 0)->predicted_ns / MS, 12);
    assert_int_equal(nth(&w, DECISION_RUN, 0)->predicted_ns / MS, 12);
    place_of(&w, 0, 0)->resident_bytes = 100u << 20; /* on their way, and nearly there */
    place_of(&w, 0, 0)->arrives_ns = NOW + 5 * MS;
    world_decide(&w);
    assert_int_equal(nth(&w, DECISION_RUN, 0)->predicted_ns, 10 * MS);
    decisions_fini(&w.out);
}

static void a_refused_request_lets_the_weights_come_one_image_at_a_time(void **state)
{
    struct world w;

    (void)state;
    world_init(&w, 1);
    for (uint32_t m = 0; m < 2; m++)
        place_of(&w, m, 0)->resident_bytes = 0;
    add_new(&w, 0, 15); /* 10.5 to copy and 10 to compute */
    add_new(&w, 0, 15);
    add_new(&w, 1, 15);
    world_decide(&w);
    assert_int_equal(count(&w, DECISION_REFUSE), 3);
    assert_int_equal(nth(&w, DECISION_REFUSE, 0)->exec, 0);
    assert_in_range(nth(&w, DECISION_REFUSE, 0)->retry_after_ms, 5, 7); /* then they are there */
    assert_int_equal(nth(&w, DECISION_REFUSE, 1)->exec, SNAP_NONE);
    assert_int_equal(nth(&w, DECISION_REFUSE, 2)->exec, SNAP_NONE);
    decisions_fini(&w.out);
}

static void a_run_ends_at_a_full_size_where_the_rest_is_faster_by_itself(void **state)
{
    struct world w;

    (void)state;
    world_init(&w, 1);
    for (int i = 0; i < 5; i++)
        add_promised(&w, 0, 500);
    world_decide(&w);
    assert_int_equal(nth(&w, DECISION_RUN, 0)->batch, 5); /* 13 ms, not 12 + 10 */
    w.models[0].run_ns[3] = 30 * MS;
    world_decide(&w);
    assert_int_equal(nth(&w, DECISION_RUN, 0)->batch, 4);
    decisions_fini(&w.out);
}

static void a_larger_body_than_it_was_let_in_for_is_let_in_again(void **state)
{
    struct world w;

    (void)state;
    world_init(&w, 1);
    busy(&w, 2);
    w.models[1].run_ns[3] = 30 * MS;
    add_promised(&w, 0, 30);
    add_promised(&w, 1, 25)->promised = false;
    world_decide(&w);
    assert_int_equal(nth(&w, DECISION_PLACE, 0)->request, 1);
    assert_int_equal(nth(&w, DECISION_PLACE, 0)->exec, 0);
    w.requests[1].batch = 8;
    w.requests[1].deadline_ns = w.requests[1].limit_ns = NOW + 35 * MS;
    world_decide(&w);
    assert_int_equal(nth(&w, DECISION_REFUSE, 0)->request, 1);
    decisions_fini(&w.out);
}

static void a_body_that_asks_for_less_time_than_it_was_let_in_for_is_let_in_again(void **state)
{
    static const struct {
        int64_t limit_ms, let_in_ns, busy_ms, worker_ms;
        int n_placed, n_refused;
    } CASES[] = {
        {100, SNAP_NO_DEADLINE, 2, 20, 1, 0}, /* there is time enough */
        {20, SNAP_NO_DEADLINE, 2, 20, 0, 1},
        {20, NOW + 1000 * MS, 2, 20, 0, 1},
        {20, SNAP_NO_DEADLINE, 40, 0, 0, 1},
        {20, NOW + 20 * MS, 2, 20, 0, 0},  /* as then: it may still come to its turn */
        {20, 0, 2, 20, 0, 0},              /* a probe */
        {12, SNAP_NO_DEADLINE, 0, 0, 0, 0} /* nothing is before it: only a run can tell */
    };

    (void)state;
    for (size_t c = 0; c < sizeof(CASES) / sizeof(CASES[0]); c++) {
        struct world w;

        world_init(&w, 1);
        w.models[0].slow_ns[0] = w.models[0].run_ns[0] + 5 * MS;
        if (CASES[c].busy_ms)
            busy(&w, CASES[c].busy_ms);
        place_of(&w, 0, 0)->worker_ns = CASES[c].worker_ms * MS;
        add_promised(&w, 0, CASES[c].limit_ms)->promised = false;
        w.requests[0].let_in_ns = CASES[c].let_in_ns;
        world_decide(&w);
        assert_int_equal(count(&w, DECISION_PLACE), CASES[c].n_placed);
        assert_int_equal(count(&w, DECISION_REFUSE), CASES[c].n_refused);
        decisions_fini(&w.out);
    }
}

static void slow_runs_alone_keep_nobody_out(void **state)
{
    struct world w;

    (void)state;
    world_init(&w, 1);
    w.in.margin_ns = MS;
    w.models[0].slow_ns[0] = 900 * MS;
    add_new(&w, 0, 20);
    world_decide(&w);
    assert_int_equal(count(&w, DECISION_PLACE), 1);
    add_new(&w, 1, 27); /* the second of two: in time by the usual one, but with no room */
    world_decide(&w);
    assert_int_equal(nth(&w, DECISION_REFUSE, 0)->request, 1);
    assert_true(nth(&w, DECISION_REFUSE, 0)->retry_after_ms > 0);
    decisions_fini(&w.out);
}

static void what_was_refused_for_a_while_on_an_idle_device_is_tried(void **state)
{
    static const struct {
        int64_t run_ms, slow_ms, refused_ms, fastest_ms;
        bool is_busy, probes;
    } CASES[] = {
        {60, 90, 0, 9, false, false},     {60, 90, 500, 9, false, false},
        {60, 90, 1100, 9, false, true},   {60, 90, 1100, 0, false, true},
        {60, 90, 1100, 9, true, false},   {160, 160, 1100, 9, false, false},
        {160, 160, 1700, 9, false, true}, {60, 90, 9999, 60, false, false}, /* none was in time */
    };

    (void)state;
    for (size_t i = 0; i < SH_ARRAY_LEN(CASES); i++) {
        struct world w;

        world_init(&w, 1);
        w.models[0].run_ns[0] = CASES[i].run_ms * MS;
        w.models[0].slow_ns[0] = CASES[i].slow_ms * MS;
        w.models[0].fastest_ns = CASES[i].fastest_ms * MS;
        w.models[0].refused_ns = CASES[i].refused_ms ? NOW - CASES[i].refused_ms * MS - MS : 0;
        if (CASES[i].is_busy)
            busy(&w, 1);
        add_new(&w, 0, 50);
        add_new(&w, 0, 50);
        world_decide(&w);
        if (count(&w, DECISION_PLACE) != CASES[i].probes)
            fail_msg("case %zu", i);
        if (CASES[i].probes)
            assert_true(nth(&w, DECISION_PLACE, 0)->is_probe && nth(&w, DECISION_RUN, 0)->n == 1);
        assert_int_equal(nth(&w, DECISION_REFUSE, 0)->retry_after_ms, 0);
        assert_true(nth(&w, DECISION_REFUSE, 0)->is_alone_too_slow);
        decisions_fini(&w.out);
    }
}

/* ------------------------------------------------------------------ shares of the time */

/* Requests of tenant 0 that were promised, one after the other, up to their limit in 100 ms. */
static void promise_some(struct world *w, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        struct snap_request *r = add_request(w, 0);

        r->deadline_ns = r->limit_ns = NOW + 100 * MS;
        r->promised = true;
    }
}

static struct snap_request *newcomer(struct world *w, uint32_t model, uint32_t tenant)
{
    struct snap_request *r = add_request(w, model);

    r->exec = SNAP_NONE;
    r->tenant = tenant;
    r->arrived_ns = NOW;
    r->deadline_ns = r->limit_ns = NOW + 100 * MS;
    return r;
}

static void who_has_his_part_of_the_time_leaves_the_rest_to_others(void **state)
{
    static const struct {
        uint32_t n_promised, model, tenant;
        double part;
        bool is_let_in;
    } CASES[] = {
        {5, 0, 0, 1, true},                        /* there is enough for all */
        {5, 0, 0, .5, false},                      /* 50 of 100 ms are promised already */
        {3, 0, 0, .5, true},  {5, 1, 0, .5, true}, /* of another model */
        {5, 0, 1, .5, true},                       /* of another tenant */
        {0, 0, 0, .01, true},                      /* one in any case */
    };

    (void)state;
    for (size_t c = 0; c < SH_ARRAY_LEN(CASES); c++) {
        double shares[W_REQUESTS];
        struct world w;

        world_init(&w, 1);
        w.models[0].max_batch = w.models[1].max_batch = 1;
        busy(&w, 0);
        newcomer(&w, CASES[c].model, CASES[c].tenant);
        promise_some(&w, CASES[c].n_promised);
        shares[0] = CASES[c].part;
        w.in.shares = shares;
        w.in.n_shared = 1;
        world_decide(&w);
        assert_int_equal(count(&w, DECISION_PLACE), CASES[c].is_let_in);
        assert_int_equal(count(&w, DECISION_REFUSE), !CASES[c].is_let_in);
        if (!CASES[c].is_let_in) {
            assert_int_equal(nth(&w, DECISION_REFUSE, 0)->reason, DECIDE_FAIR_SHARE);
            assert_true(nth(&w, DECISION_REFUSE, 0)->retry_after_ms > 0);
        }
        decisions_fini(&w.out);
    }
}

static void a_larger_body_needs_its_part_of_the_time_as_well(void **state)
{
    static const struct {
        uint32_t batch;
        double part;
        bool is_refused;
    } CASES[] = {
        {4, 1, false}, {4, .5, true}, {1, .5, false}, /* it had its part when it was placed */
    };

    (void)state;
    for (size_t c = 0; c < SH_ARRAY_LEN(CASES); c++) {
        double shares[W_REQUESTS];
        struct world w;

        world_init(&w, 1);
        w.models[0].is_solo = true;
        newcomer(&w, 0, 0);
        w.requests[0].exec = 0;
        w.requests[0].batch = CASES[c].batch;
        promise_some(&w, 4);
        shares[0] = CASES[c].part;
        w.in.shares = shares;
        w.in.n_shared = 1;
        world_decide(&w);
        assert_int_equal(count(&w, DECISION_REFUSE), CASES[c].is_refused);
        if (CASES[c].is_refused)
            assert_int_equal(nth(&w, DECISION_REFUSE, 0)->reason, DECIDE_FAIR_SHARE);
        decisions_fini(&w.out);
    }
}

static void a_modest_tenant_goes_first_where_that_breaks_no_promise(void **state)
{
    static const struct {
        uint32_t n_promised;
        bool goes_first;
    } CASES[] = {{5, true}, {10, false}};

    (void)state;
    for (size_t c = 0; c < SH_ARRAY_LEN(CASES); c++) {
        struct snap_request *r;
        struct world w;

        world_init(&w, 1);
        w.models[0].max_batch = w.models[1].max_batch = 1;
        promise_some(&w, CASES[c].n_promised);
        r = newcomer(&w, 1, 1);
        r->exec = 0;
        r->promised = r->is_modest = true;
        r->deadline_ns = r->limit_ns = NOW + 200 * MS;
        world_decide(&w);
        assert_int_equal(w.out.members[nth(&w, DECISION_RUN, 0)->first] == CASES[c].n_promised,
                         CASES[c].goes_first);
        decisions_fini(&w.out);
    }
}

static void no_run_is_sent_ahead_that_a_modest_tenant_would_wait_for(void **state)
{
    (void)state;
    for (int modest = 0; modest < 4; modest++) {
        struct world w;

        world_init(&w, 1);
        w.in.max_runs = 2;
        w.execs[0].n_runs = 1;
        w.execs[0].busy_until_ns = NOW + 10 * MS;
        w.execs[0].has_modest = modest & 1;
        add_request(&w, 0)->is_modest = modest & 2;
        world_decide(&w);
        assert_int_equal(count(&w, DECISION_RUN), modest != 1);
        decisions_fini(&w.out);
    }
}

static void without_deadlines_the_least_turn_goes_first(void **state)
{
    struct world w;

    (void)state;
    world_init(&w, 1);
    for (int i = 0; i < 5; i++)
        add_request(&w, 0)->turn_ns = (10 + i) * MS;
    add_request(&w, 1)->tenant = 1;
    w.requests[5].turn_ns = 9 * MS;
    world_decide(&w);
    assert_int_equal(w.out.members[nth(&w, DECISION_RUN, 0)->first], 5);
    decisions_fini(&w.out);
}

/* ------------------------------------------------------------------ random worlds */

enum { S_REQUESTS = 60, S_RUNS = 2 };

struct s_request {
    struct snap_request snap;
    int64_t at_ns, body_ns; /* headers, last sample */
    uint32_t batch;         /* once the body is there */
    bool is_in, is_over, is_let_in;
};

struct s_run {
    uint32_t n, members[W_REQUESTS];
    uint32_t model;
    int64_t sent_ns, predicted_ns, slack_ns;
};

/* A device that takes exactly as long as predicted, or less. */
struct sim {
    struct world w;
    uint64_t seed;
    int64_t now_ns;
    struct s_request requests[S_REQUESTS];
    uint32_t of[W_REQUESTS]; /* index in the snapshot -> request */
    struct s_run runs[W_EXECS][S_RUNS];
    int64_t end_ns[W_EXECS], done_ns[W_EXECS]; /* of the first run; of the one before */
    int64_t least; /* per mille of the predicted time that a run takes */
    size_t n_in, n_refused, n_runs;
};

static uint64_t rnd(struct sim *s, uint64_t n)
{
    s->seed = s->seed * 6364136223846793005u + 1442695040888963407u;
    return (s->seed >> 33) % n;
}

static void sim_init(struct sim *s, uint64_t seed)
{
    const int64_t load_ms = 1 + (int64_t)(seed % 12);
    int64_t at = NOW;

    *s = (struct sim){.seed = seed * 2654435761u + 1, .now_ns = NOW};
    world_init(&s->w, 1 + rnd(s, 3));
    s->least = rnd(s, 2) ? 1000 : 200;
    s->w.in.max_runs = 1 + (uint32_t)rnd(s, S_RUNS);
    s->w.in.margin_ns = (int64_t)rnd(s, 2) * MS;
    for (size_t m = 0; m < W_MODELS; m++) {
        struct snap_model *x = &s->w.models[m];
        const int64_t one = 1 + (int64_t)rnd(s, 12), each = (int64_t)rnd(s, 5);

        x->max_batch = 1u << rnd(s, 5);
        for (unsigned b = 0; b < PREDICT_N_BUCKETS; b++) {
            x->run_ns[b] = (one * 2 + each * (1 << b)) * MS / 2;
            x->slow_ns[b] = x->run_ns[b] + (seed % 3 ? 0 : (int64_t)rnd(s, 10) * MS);
            x->tail_ns[b] = x->run_ns[b] * (int64_t)rnd(s, 5) / 4;
        }
        for (uint32_t e = 0; e < s->w.in.n_execs; e++)
            place_of(&s->w, (uint32_t)m, e)->resident_bytes =
                rnd(s, 3) ? x->image_bytes : rnd(s, x->image_bytes);
    }
    for (size_t i = 0; i < S_REQUESTS; i++) {
        struct s_request *r = &s->requests[i];
        const uint32_t model = (uint32_t)rnd(s, 1 + seed % W_MODELS);

        at += rnd(s, 4) ? (int64_t)rnd(s, (uint64_t)(load_ms * MS)) : 0;
        r->at_ns = at;
        r->body_ns = rnd(s, 6) ? at : at + (int64_t)rnd(s, 20 * MS);
        r->batch = rnd(s, 4) ? 1 : 1 + (uint32_t)rnd(s, s->w.models[model].max_batch);
        r->snap = (struct snap_request){.model = model,
                                        .tenant = (uint32_t)rnd(s, 8) / 7,
                                        .exec = SNAP_NONE,
                                        .batch = 1,
                                        .priority = (int32_t)rnd(s, 5) / 4,
                                        .arrived_ns = at,
                                        .deadline_ns = SNAP_NO_DEADLINE,
                                        .limit_ns = SNAP_NO_DEADLINE};
        if (rnd(s, 6))
            r->snap.deadline_ns = at + (int64_t)(5 + rnd(s, 80)) * MS;
        if (rnd(s, 6))
            r->snap.limit_ns = r->snap.deadline_ns;
        r->snap.on_miss = r->snap.limit_ns < SNAP_NO_DEADLINE ? SNAP_REJECT : SNAP_BEST_EFFORT;
    }
}

static void sim_start_next(struct sim *s, uint32_t e)
{
    const struct s_run *r = &s->runs[e][0];

    if (r->n)
        s->end_ns[e] =
            SH_MAX(r->sent_ns, s->done_ns[e]) +
            r->predicted_ns * (s->least + (int64_t)rnd(s, 1001 - (uint64_t)s->least)) / 1000;
}

/* As exec_busy_until_ns() and models_expect() of the scheduler. */
static void sim_snapshot(struct sim *s)
{
    struct world *w = &s->w;

    w->in.now_ns = s->now_ns;
    w->in.n_requests = 0;
    for (size_t m = 0; m < W_MODELS; m++) /* whatever was foreseen, more or less may come */
        w->models[m].asked = (double)rnd(s, 1000) / (double)MS / 500;
    for (uint32_t e = 0; e < w->in.n_execs; e++) {
        w->execs[e].n_runs = 0;
        w->execs[e].slack_ns = 0;
        w->execs[e].busy_until_ns = s->done_ns[e];
        for (size_t k = 0; k < S_RUNS && s->runs[e][k].n; k++) {
            const struct s_run *r = &s->runs[e][k];

            w->execs[e].n_runs++;
            w->execs[e].busy_until_ns =
                SH_MAX(w->execs[e].busy_until_ns, r->sent_ns) + r->predicted_ns;
            w->execs[e].slack_ns = predict_slack(w->execs[e].slack_ns, r->slack_ns);
        }
        w->execs[e].busy_until_ns = SH_MAX(w->execs[e].busy_until_ns, s->now_ns);
    }
    for (uint32_t i = 0; i < S_REQUESTS; i++) {
        struct s_request *r = &s->requests[i];

        if (!r->is_in || r->is_over)
            continue;
        if (r->snap.state == SNAP_OPEN && r->body_ns <= s->now_ns) {
            r->snap.state = SNAP_READY;
            r->snap.batch = r->batch;
            r->snap.promised = false;
        }
        s->of[w->in.n_requests] = i;
        w->requests[w->in.n_requests++] = r->snap;
    }
}

static void sim_bring(struct sim *s, uint32_t model, uint32_t e)
{
    struct snap_place *p = place_of(&s->w, model, e);
    struct snap_exec *x = &s->w.execs[e];

    if (p->resident_bytes >= s->w.models[model].image_bytes)
        return;
    x->lane_ns =
        SH_MAX(x->lane_ns, s->now_ns) +
        (int64_t)((double)(s->w.models[model].image_bytes - p->resident_bytes) * x->ns_per_byte);
    p->arrives_ns = x->lane_ns;
    p->resident_bytes = s->w.models[model].image_bytes;
}

static void sim_act(struct sim *s, const struct decision *d)
{
    struct s_request *r = &s->requests[s->of[d->request]];

    if (d->kind == DECISION_PLACE) {
        assert_true(r->snap.exec == SNAP_NONE || r->snap.exec == d->exec);
        r->snap.exec = d->exec;
        r->snap.promised = true;
        s->n_in += !r->is_let_in;
        r->is_let_in |= r->snap.limit_ns != SNAP_NO_DEADLINE && r->snap.state == SNAP_READY;
        sim_bring(s, r->snap.model, d->exec);
    } else if (d->kind == DECISION_REFUSE) {
        if (r->is_let_in)
            fail_msg("world %llu: a request that was let in was refused",
                     (unsigned long long)s->seed);
        r->is_over = true;
        s->n_refused++;
        if (d->exec != SNAP_NONE)
            sim_bring(s, r->snap.model, d->exec);
    } else if (d->kind == DECISION_RUN) {
        struct s_run *run = &s->runs[d->exec][s->runs[d->exec][0].n > 0];

        assert_int_equal(run->n, 0);
        *run = (struct s_run){.n = d->n,
                              .model = r->snap.model,
                              .sent_ns = s->now_ns,
                              .predicted_ns = d->predicted_ns,
                              .slack_ns = d->slack_ns};
        s->n_runs++;
        for (uint32_t k = 0; k < d->n; k++) {
            run->members[k] = s->of[s->w.out.members[d->first + k]];
            s->requests[run->members[k]].is_over = true;
        }
        sim_bring(s, r->snap.model, d->exec);
        if (run == &s->runs[d->exec][0])
            sim_start_next(s, d->exec);
    }
}

static void sim_end_run(struct sim *s, uint32_t e)
{
    const struct s_run *r = &s->runs[e][0];

    for (uint32_t k = 0; k < r->n; k++) {
        const struct s_request *q = &s->requests[r->members[k]];

        if (q->is_let_in && s->now_ns > q->snap.limit_ns)
            fail_msg("a request that was let in ends %lld us late",
                     (long long)(s->now_ns - q->snap.limit_ns) / 1000);
    }
    s->done_ns[e] = s->now_ns;
    s->runs[e][0] = s->runs[e][1];
    s->runs[e][1] = (struct s_run){0};
    sim_start_next(s, e);
}

/* False: nothing will happen any more. */
static bool sim_step(struct sim *s)
{
    int64_t next = INT64_MAX;
    bool waits = false;

    for (size_t i = 0; i < S_REQUESTS; i++) {
        const struct s_request *r = &s->requests[i];

        waits |= !r->is_over;
        if (!r->is_in)
            next = SH_MIN(next, r->at_ns);
        else if (!r->is_over && r->body_ns > s->now_ns)
            next = SH_MIN(next, r->body_ns);
    }
    for (uint32_t e = 0; e < s->w.in.n_execs; e++)
        if (s->runs[e][0].n)
            next = SH_MIN(next, s->end_ns[e]);
    if (next == INT64_MAX)
        return assert_false(waits), false; /* nobody is forgotten */
    s->now_ns = SH_MAX(next, s->now_ns);
    for (size_t i = 0; i < S_REQUESTS; i++)
        s->requests[i].is_in |= s->requests[i].at_ns <= s->now_ns;
    for (uint32_t e = 0; e < s->w.in.n_execs; e++)
        if (s->runs[e][0].n && s->end_ns[e] <= s->now_ns)
            sim_end_run(s, e);
    sim_snapshot(s);
    world_decide(&s->w);
    for (size_t i = 0; i < s->w.out.n; i++)
        sim_act(s, &s->w.out.items[i]);
    return true;
}

/* Runs take at most what is predicted. Then nobody who was let in with his body is refused later,
 * or answered late: whatever priorities, batches, models and executors there are. */
static void in_random_worlds_every_promise_is_kept(void **state)
{
    const char *worlds = getenv("WORLDS"); /* more than in a short run */
    const uint64_t n = worlds ? strtoull(worlds, NULL, 10) : 10000;
    struct sim *s = malloc(sizeof(*s));
    size_t n_in = 0, n_refused = 0;

    (void)state;
    assert_non_null(s);
    assert_true(n >= 10000);
    for (uint64_t seed = 1; seed <= n; seed++) {
        sim_init(s, seed);
        while (sim_step(s))
            ;
        n_in += s->n_in;
        n_refused += s->n_refused;
        decisions_fini(&s->w.out);
    }
    assert_true(n_in > 100000 && n_refused > 50000); /* it was tight */
    free(s);
}

/* In steps of which each asks how long somebody's run lasts, at the worst: a run that may be long
 * keeps all others in view. */
static size_t steps_for(size_t n)
{
    struct world *w = malloc(sizeof(*w));
    size_t before, steps;

    assert_non_null(w);
    world_init(w, 1);
    busy(w, 2);
    for (unsigned b = 0; b < PREDICT_N_BUCKETS; b++)
        w->models[2].run_ns[b] = w->models[2].tail_ns[b] = 100000 * MS;
    add_promised(w, 2, 1000000);
    for (size_t i = 0; i < n; i++) {
        struct snap_request *r = add_promised(w, i % 2, 50000 + (int64_t)i);

        r->tenant = (i / 2) % 2;
    }
    add_new(w, 0, 60000);
    before = n_asked;
    world_decide(w);
    steps = n_asked - before;
    assert_int_equal(count(w, DECISION_PLACE), 1);
    assert_int_equal(count(w, DECISION_REFUSE), 0);
    decisions_fini(&w->out);
    free(w);
    return steps;
}

static void who_was_promised_much_is_looked_at_in_as_many_steps(void **state)
{
    const size_t few = steps_for(250), many = steps_for(1000);

    (void)state;
    if (many > 5 * few)
        fail_msg("%zu steps for 250 requests, %zu for 1000", few, many);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_newcomer_is_not_let_in_at_the_cost_of_one_that_was),
        cmocka_unit_test(who_may_wait_for_a_worker_is_let_in_where_none_does_or_there_is_time),
        cmocka_unit_test(a_higher_priority_waits_where_it_would_break_a_promise),
        cmocka_unit_test(a_lower_priority_is_not_let_in_where_a_higher_one_goes_first),
        cmocka_unit_test(of_all_runs_before_an_end_one_may_be_slow_and_not_each),
        cmocka_unit_test(a_run_that_waits_for_weights_ends_a_tail_after_they_came),
        cmocka_unit_test(a_refused_request_lets_the_weights_come_one_image_at_a_time),
        cmocka_unit_test(a_run_ends_at_a_full_size_where_the_rest_is_faster_by_itself),
        cmocka_unit_test(a_larger_body_than_it_was_let_in_for_is_let_in_again),
        cmocka_unit_test(a_body_that_asks_for_less_time_than_it_was_let_in_for_is_let_in_again),
        cmocka_unit_test(slow_runs_alone_keep_nobody_out),
        cmocka_unit_test(what_was_refused_for_a_while_on_an_idle_device_is_tried),
        cmocka_unit_test(who_has_his_part_of_the_time_leaves_the_rest_to_others),
        cmocka_unit_test(a_larger_body_needs_its_part_of_the_time_as_well),
        cmocka_unit_test(a_modest_tenant_goes_first_where_that_breaks_no_promise),
        cmocka_unit_test(no_run_is_sent_ahead_that_a_modest_tenant_would_wait_for),
        cmocka_unit_test(without_deadlines_the_least_turn_goes_first),
        cmocka_unit_test(in_random_worlds_every_promise_is_kept),
        cmocka_unit_test(who_was_promised_much_is_looked_at_in_as_many_steps),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
