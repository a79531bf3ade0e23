/* test_decide.c - without it, an urgent request could wait behind a patient one, a batch could cost
 * another request its deadline, and a request that cannot be in time could be let in. */
/* uses: scheduler/decide/decide.o scheduler/decide/decide_due.o scheduler/decide/decide_run.o scheduler/decide/decide_time.o scheduler/decide/predict.o */
/* uses: scheduler/decide/decide_jobs.o scheduler/decide/decide_share.o scheduler/decide/jobpool.o scheduler/decide/jobpool_decide.o scheduler/decide/jobpool_gang.o scheduler/decide/jobpool_order.o */
#include "common/mem.h"
#include "tests/unit/decide_world.h"

static void earlier_deadlines_go_first(void **state)
{
    struct world w;

    (void)state;
    world_init(&w, 1);
    add_request(&w, 0)->deadline_ns = NOW + 500 * MS;
    add_request(&w, 1)->deadline_ns = NOW + 100 * MS;
    add_request(&w, 2)->deadline_ns = NOW + 300 * MS;
    w.in.max_runs = 3;
    world_decide(&w);
    assert_int_equal(count(&w, DECISION_RUN), 3);
    assert_int_equal(nth(&w, DECISION_RUN, 0)->request, 1);
    assert_int_equal(nth(&w, DECISION_RUN, 1)->request, 2);
    assert_int_equal(nth(&w, DECISION_RUN, 2)->request, 0);
    decisions_fini(&w.out);
}

static void priority_goes_before_the_deadline(void **state)
{
    struct world w;

    (void)state;
    world_init(&w, 1);
    add_request(&w, 0)->deadline_ns = NOW + 50 * MS;
    add_request(&w, 1)->priority = 1;
    world_decide(&w);
    assert_int_equal(nth(&w, DECISION_RUN, 0)->request, 1);
    decisions_fini(&w.out);
}

static void without_deadlines_the_first_to_arrive_is_first(void **state)
{
    struct world w;

    (void)state;
    world_init(&w, 1);
    add_request(&w, 0)->arrived_ns = NOW - MS;
    add_request(&w, 1)->arrived_ns = NOW - 2 * MS;
    world_decide(&w);
    assert_int_equal(nth(&w, DECISION_RUN, 0)->request, 1);
    decisions_fini(&w.out);
}

static void a_late_best_effort_request_lets_others_pass_but_a_delayed_one_does_not(void **state)
{
    struct world w;

    (void)state;
    for (int delay = 0; delay < 2; delay++) {
        struct snap_request *late;

        world_init(&w, 1);
        late = add_request(&w, 0);
        late->deadline_ns = NOW + MS; /* a run takes 10 */
        late->on_miss = delay ? SNAP_DELAY : SNAP_BEST_EFFORT;
        add_request(&w, 1)->deadline_ns = NOW + 100 * MS;
        world_decide(&w);
        assert_int_equal(nth(&w, DECISION_RUN, 0)->request, delay ? 0 : 1);
        decisions_fini(&w.out);
    }
}

static void requests_of_one_model_share_a_run_up_to_max_batch(void **state)
{
    struct world w;

    (void)state;
    world_init(&w, 1);
    for (int i = 0; i < 11; i++)
        add_request(&w, 0);
    add_request(&w, 1);
    w.in.max_runs = 1;
    world_decide(&w);
    assert_int_equal(count(&w, DECISION_RUN), 1);
    assert_int_equal(nth(&w, DECISION_RUN, 0)->n, 8);
    assert_int_equal(nth(&w, DECISION_RUN, 0)->batch, 8);
    decisions_fini(&w.out);
}

static void tenants_share_a_run_unless_it_takes_a_modest_one_longer(void **state)
{
    static const struct {
        bool first_is_modest, second_is_modest;
        uint32_t n;
    } CASES[] = {{false, false, 3}, {true, true, 3}, {true, false, 2}};

    (void)state;
    for (size_t c = 0; c < SH_ARRAY_LEN(CASES); c++) {
        struct world w;

        world_init(&w, 1);
        w.in.max_runs = 1;
        for (uint32_t i = 0; i < 3; i++) {
            add_request(&w, 0)->tenant = i == 1;
            w.requests[i].is_modest = i == 1 ? CASES[c].second_is_modest : CASES[c].first_is_modest;
        }
        world_decide(&w);
        assert_int_equal(nth(&w, DECISION_RUN, 0)->n, CASES[c].n);
        assert_int_equal(w.out.members[0], 0);
        assert_int_equal(w.out.members[1], CASES[c].n == 3 ? 1 : 2);
        decisions_fini(&w.out);
    }
}

static void a_large_request_that_does_not_fit_leaves_room_for_a_small_one(void **state)
{
    struct world w;

    (void)state;
    world_init(&w, 1);
    add_request(&w, 0)->batch = 5;
    add_request(&w, 0)->batch = 4;
    add_request(&w, 0)->batch = 3;
    world_decide(&w);
    assert_int_equal(nth(&w, DECISION_RUN, 0)->batch, 8);
    assert_int_equal(w.out.members[1], 2);
    decisions_fini(&w.out);
}

static void requests_whose_samples_may_meet_run_each_by_itself(void **state)
{
    struct world w;

    (void)state;
    world_init(&w, 1);
    w.models[0].is_solo = true;
    w.in.max_runs = 4;
    for (int i = 0; i < 3; i++)
        add_request(&w, 0)->batch = 1 + (uint32_t)i;
    world_decide(&w);
    assert_int_equal(count(&w, DECISION_RUN), 3);
    for (size_t i = 0; i < 3; i++) {
        assert_int_equal(nth(&w, DECISION_RUN, i)->n, 1);
        assert_int_equal(nth(&w, DECISION_RUN, i)->batch, i + 1);
    }
    decisions_fini(&w.out);
}

static void a_batch_does_not_grow_beyond_a_members_deadline(void **state)
{
    struct world w;

    (void)state;
    world_init(&w, 1);
    add_request(&w, 0)->deadline_ns = NOW + 11 * MS + MS / 2; /* two fit, four take 12 ms */
    for (int i = 0; i < 5; i++)
        add_request(&w, 0);
    world_decide(&w);
    assert_int_equal(nth(&w, DECISION_RUN, 0)->n, 2);
    decisions_fini(&w.out);
}

static void a_batch_does_not_cost_another_model_its_deadline(void **state)
{
    struct world w;

    (void)state;
    world_init(&w, 1);
    add_request(&w, 0)->deadline_ns = NOW + 20 * MS;
    add_request(&w, 1)->deadline_ns = NOW + 21 * MS; /* starts at 11 at the latest */
    for (int i = 0; i < 5; i++)
        add_request(&w, 0);
    world_decide(&w);
    assert_int_equal(nth(&w, DECISION_RUN, 0)->n, 2);
    w.requests[1].deadline_ns = NOW + 200 * MS;
    world_decide(&w);
    assert_int_equal(nth(&w, DECISION_RUN, 0)->n, 6);
    decisions_fini(&w.out);
}

static void a_run_does_not_wait_for_requests_whose_body_is_on_its_way(void **state)
{
    struct world w;

    (void)state;
    world_init(&w, 1);
    add_request(&w, 0)->state = SNAP_OPEN;
    add_request(&w, 0);
    world_decide(&w);
    assert_int_equal(nth(&w, DECISION_RUN, 0)->n, 1);
    assert_int_equal(nth(&w, DECISION_RUN, 0)->request, 1);
    decisions_fini(&w.out);
}

static struct snap_request *add_new(struct world *w, uint32_t model, int64_t limit_ms)
{
    struct snap_request *r = add_request(w, model);

    r->state = SNAP_OPEN;
    r->exec = SNAP_NONE;
    r->arrived_ns = NOW;
    r->patience_ns = NOW + MS;
    if (limit_ms)
        r->deadline_ns = r->limit_ns = NOW + limit_ms * MS;
    return r;
}

static void a_request_that_cannot_be_in_time_is_refused_with_the_time_to_wait(void **state)
{
    /* what makes it late, one at a time: backlog, training to stop, missing weights, the run */
    static const struct {
        int64_t busy_ms, run_ms;
        bool trains;
        uint64_t missing_mib;
        bool in_time;
    } CASES[] = {
        {0, 10, false, 0, true},  {15, 10, false, 0, false},  {0, 25, false, 0, false},
        {0, 19, true, 0, false},  {0, 18, false, 0, true},    {0, 10, false, 100, true},
        {0, 10, false, 95, true}, {0, 10, false, 120, false},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(CASES) / sizeof(CASES[0]); i++) {
        struct world w;
        const struct decision *d;

        world_init(&w, 1);
        w.in.margin_ns = MS;
        w.execs[0].n_runs = CASES[i].busy_ms > 0;
        w.execs[0].busy_until_ns = NOW + CASES[i].busy_ms * MS;
        w.execs[0].trains = CASES[i].trains;
        w.models[0].run_ns[0] = CASES[i].run_ms * MS;
        w.models[0].image_bytes = CASES[i].missing_mib << 20;
        w.execs[0].ns_per_byte = 0.08; /* 100 MiB in 8.4 ms */
        place_of(&w, 0, 0)->resident_bytes = 0;
        add_new(&w, 0, 20);
        world_decide(&w);
        if (count(&w, DECISION_PLACE) != CASES[i].in_time)
            fail_msg("case %zu: placed %zu", i, count(&w, DECISION_PLACE));
        if (!CASES[i].in_time) {
            d = nth(&w, DECISION_REFUSE, 0);
            assert_int_equal(d->rc, SH_E_SLO);
            assert_int_equal(d->reason, DECIDE_DEADLINE);
            if (CASES[i].run_ms > 20) /* not even alone */
                assert_int_equal(d->retry_after_ms, 0);
            else
                assert_in_range(d->retry_after_ms, 1, 60000);
            assert_true(d->predicted_ns > 20 * MS);
        }
        decisions_fini(&w.out);
    }
}

static void a_request_with_a_deadline_but_no_limit_is_never_refused_for_time(void **state)
{
    struct world w;

    (void)state;
    world_init(&w, 1);
    add_new(&w, 0, 0)->deadline_ns = NOW + 1;
    world_decide(&w);
    assert_int_equal(count(&w, DECISION_PLACE), 1);
    decisions_fini(&w.out);
}

static void those_let_in_before_count_against_the_next(void **state)
{
    struct world w;

    (void)state;
    world_init(&w, 1);
    for (uint32_t m = 0; m < 4; m++) {
        w.models[m].max_batch = 1;
        add_new(&w, m, 35); /* 10 ms each, one after the other: three fit */
    }
    world_decide(&w);
    assert_int_equal(count(&w, DECISION_PLACE), 3);
    assert_int_equal(count(&w, DECISION_REFUSE), 1);
    decisions_fini(&w.out);
}

static void joining_a_batch_costs_less_than_a_run_of_its_own(void **state)
{
    struct world w;

    (void)state;
    world_init(&w, 1);
    for (int i = 0; i < 8; i++)
        add_new(&w, 0, 15); /* eight in one run take 13 ms */
    world_decide(&w);
    assert_int_equal(count(&w, DECISION_PLACE), 8);
    decisions_fini(&w.out);
}

static void a_ready_request_that_became_hopeless_is_refused(void **state)
{
    struct world w;
    struct snap_request *r;

    (void)state;
    world_init(&w, 1);
    r = add_request(&w, 0);
    r->deadline_ns = r->limit_ns = NOW + 5 * MS;
    world_decide(&w);
    assert_int_equal(count(&w, DECISION_RUN), 0);
    assert_int_equal(nth(&w, DECISION_REFUSE, 0)->rc, SH_E_SLO);
    decisions_fini(&w.out);
}

static void placement_prefers_the_executor_that_holds_the_weights(void **state)
{
    struct world w;

    (void)state;
    world_init(&w, 3);
    place_of(&w, 0, 0)->resident_bytes = 0;
    place_of(&w, 0, 1)->resident_bytes = 0;
    add_new(&w, 0, 0);
    world_decide(&w);
    assert_int_equal(nth(&w, DECISION_PLACE, 0)->exec, 2);
    decisions_fini(&w.out);
}

static void placement_gives_up_residency_when_the_queue_there_is_longer_than_the_copy(void **state)
{
    struct world w;

    (void)state;
    world_init(&w, 2);
    place_of(&w, 0, 1)->resident_bytes = 0; /* 10.5 ms to copy */
    w.execs[0].n_runs = 1;
    w.execs[0].busy_until_ns = NOW + 50 * MS;
    add_new(&w, 0, 0);
    world_decide(&w);
    assert_int_equal(nth(&w, DECISION_PLACE, 0)->exec, 1);
    decisions_fini(&w.out);
}

static void a_run_that_waits_for_weights_is_predicted_by_what_is_missing(void **state)
{
    static const struct {
        uint64_t resident_bytes;
        bool has_some;
        double disk_ns_per_byte;
        int64_t over_ns, predicted_ns, forecast_ns, slack_ns;
        double link_share;
    } CASES[] = {{100u << 20, true, 0, MS, 10 * MS, 10 * MS, 0},
                 {0, false, 0, 0, 16485760, 16485760, 7 * MS},
                 {0, false, 0, -2 * MS, 14485760, 16485760, 7 * MS},
                 /* Never less than a warm one; what is learnt does not hang on that. */
                 {0, false, 0, -SH_S(1), 10 * MS, 16485760, 7 * MS},
                 {50u << 20, true, 0, 0, 11242880, 11242880, 3 * MS},
                 {50u << 20, true, 0, 3 * MS, 14242880, 11242880, 3 * MS},
                 /* The slower of link and disk. */
                 {50u << 20, true, 1, 0, 58428800, 58428800, 3 * MS},
                 /* Half of the bytes travel. */
                 {0, false, 0, 0, 11242880, 11242880, 7 * MS, 0.5},
                 {50u << 20, true, 1, 0, 32214400, 32214400, 3 * MS, 0.5}};

    (void)state;
    for (size_t i = 0; i < sizeof(CASES) / sizeof(CASES[0]); i++) {
        struct world w;
        struct snap_place *p;

        world_init(&w, 1);
        p = place_of(&w, 0, 0);
        w.models[0].tail_ns[0] = 6 * MS;
        w.models[0].cold_over_ns[PREDICT_PARTIAL] = w.models[0].cold_over_ns[PREDICT_COLD] =
            CASES[i].over_ns;
        w.models[0].cold_slack_ns[PREDICT_PARTIAL] = 3 * MS;
        w.models[0].cold_slack_ns[PREDICT_COLD] = 7 * MS;
        p->resident_bytes = CASES[i].resident_bytes;
        p->has_some = CASES[i].has_some;
        p->disk_ns_per_byte = CASES[i].disk_ns_per_byte;
        p->link_share = CASES[i].link_share;
        add_request(&w, 0);
        world_decide(&w);
        assert_int_equal(nth(&w, DECISION_RUN, 0)->predicted_ns, CASES[i].predicted_ns);
        assert_int_equal(nth(&w, DECISION_RUN, 0)->forecast_ns, CASES[i].forecast_ns);
        assert_int_equal(nth(&w, DECISION_RUN, 0)->slack_ns, CASES[i].slack_ns);
        decisions_fini(&w.out);
    }
}

/* All of them are there: nothing is copied, and it is no warm run either. */
static void a_run_of_packed_weights_takes_their_unpacking_longer(void **state)
{
    static const struct {
        int64_t unpack_ns, arrives_ns, over_ns, predicted_ns;
        enum predict_kind kind;
    } CASES[] = {{0, 0, 0, 10 * MS, PREDICT_WARM},
                 {2 * MS, 0, 0, 12 * MS, PREDICT_PACKED},
                 {2 * MS, 0, MS, 13 * MS, PREDICT_PACKED},
                 {2 * MS, 0, -5 * MS, 10 * MS, PREDICT_PACKED},
                 /* On their way: what has come is unpacked meanwhile, and the last by its tail. */
                 {2 * MS, NOW + 3 * MS, 0, 12 * MS, PREDICT_PARTIAL},
                 {2 * MS, NOW + 9 * MS, 0, 15 * MS, PREDICT_PARTIAL}};

    (void)state;
    for (size_t i = 0; i < sizeof(CASES) / sizeof(CASES[0]); i++) {
        struct world w;
        struct snap_place *p;

        world_init(&w, 1);
        p = place_of(&w, 0, 0);
        p->resident_bytes = w.models[0].image_bytes;
        p->has_some = true;
        p->unpack_ns = CASES[i].unpack_ns;
        p->arrives_ns = CASES[i].arrives_ns;
        w.models[0].tail_ns[0] = 6 * MS;
        w.models[0].cold_over_ns[PREDICT_PACKED] = CASES[i].over_ns;
        w.models[0].cold_slack_ns[PREDICT_PACKED] = 4 * MS;
        add_request(&w, 0);
        world_decide(&w);
        assert_int_equal(nth(&w, DECISION_RUN, 0)->predicted_ns, CASES[i].predicted_ns);
        assert_int_equal(nth(&w, DECISION_RUN, 0)->weights, CASES[i].kind);
        assert_int_equal(nth(&w, DECISION_RUN, 0)->slack_ns,
                         CASES[i].kind == PREDICT_PACKED ? 4 * MS : 0);
        decisions_fini(&w.out);
    }
}

/* One run unpacks them, for those behind it too. */
static void packed_weights_are_unpacked_once(void **state)
{
    struct world w;

    (void)state;
    world_init(&w, 1);
    w.in.max_runs = 2;
    w.models[0].is_solo = true;
    place_of(&w, 0, 0)->unpack_ns = 2 * MS;
    add_request(&w, 0);
    add_request(&w, 0);
    world_decide(&w);
    assert_int_equal(nth(&w, DECISION_RUN, 0)->predicted_ns, 12 * MS);
    assert_int_equal(nth(&w, DECISION_RUN, 1)->predicted_ns, 10 * MS);
    assert_int_equal(nth(&w, DECISION_RUN, 1)->weights, PREDICT_WARM);
    decisions_fini(&w.out);
}

static void placement_minds_what_training_loses(void **state)
{
    /* A job on both. Executor 1 is idle, so the job there has to stop (1 ms) and to go on again. */
    static const struct {
        int64_t busy_ms, limit_ms;
        bool trains;
        uint32_t exec;
    } CASES[] = {
        {2, 0, true, 0}, {5, 0, true, 1}, {2, 0, false, 1}, {2, 11, true, 1}, {2, 20, true, 0}};

    (void)state;
    for (size_t i = 0; i < sizeof(CASES) / sizeof(CASES[0]); i++) {
        struct world w;

        world_init(&w, 2);
        w.execs[0].trains = w.execs[1].trains = CASES[i].trains;
        w.execs[0].n_runs = 1;
        w.execs[0].busy_until_ns = NOW + CASES[i].busy_ms * MS;
        add_new(&w, 0, CASES[i].limit_ms);
        world_decide(&w);
        assert_int_equal(nth(&w, DECISION_PLACE, 0)->exec, CASES[i].exec);
        decisions_fini(&w.out);
    }
}

static void who_is_refused_where_the_weights_are_brings_them_to_who_is_idle(void **state)
{
    enum { AS_IT_IS, HAS_WORK, IS_COPIED, N };

    (void)state;
    for (int k = 0; k < N; k++) {
        struct world w;

        world_init(&w, 3);
        for (uint32_t e = 0; e < 2; e++) {
            w.execs[e].n_runs = 1;
            w.execs[e].busy_until_ns = NOW + 8 * MS;
        }
        w.execs[2].n_runs = k == HAS_WORK;
        w.models[0].copied_ns = k == IS_COPIED ? NOW + MS : 0;
        place_of(&w, 0, 1)->resident_bytes = 0;
        place_of(&w, 0, 2)->resident_bytes = 0;
        add_new(&w, 0, 15); /* 18 ms where they are, 20.5 where they come to */
        world_decide(&w);
        assert_int_equal(nth(&w, DECISION_REFUSE, 0)->exec, k == AS_IT_IS ? 2 : SNAP_NONE);
        decisions_fini(&w.out);
    }
}

static void equal_executors_share_the_load(void **state)
{
    struct world w;
    size_t on[4] = {0};

    (void)state;
    world_init(&w, 4);
    for (uint32_t i = 0; i < 4; i++)
        add_new(&w, i, 0);
    world_decide(&w);
    for (size_t i = 0; i < 4; i++)
        on[nth(&w, DECISION_PLACE, i)->exec]++;
    for (size_t e = 0; e < 4; e++)
        assert_int_equal(on[e], 1);
    decisions_fini(&w.out);
}

static void nothing_goes_to_an_executor_that_is_down_or_lacks_the_model(void **state)
{
    struct world w;

    (void)state;
    world_init(&w, 2);
    w.execs[0].up = false;
    place_of(&w, 0, 1)->ready = false;
    add_new(&w, 0, 0);
    add_request(&w, 0); /* placed on 0 before that went down */
    world_decide(&w);
    assert_int_equal(count(&w, DECISION_RUN), 0);
    assert_int_equal(nth(&w, DECISION_REFUSE, 0)->reason, DECIDE_MODEL_LOADING);
    w.execs[1].up = false;
    world_decide(&w);
    assert_int_equal(nth(&w, DECISION_REFUSE, 0)->reason, DECIDE_NO_EXECUTOR);
    assert_int_equal(nth(&w, DECISION_REFUSE, 0)->rc, SH_E_UNAVAILABLE);
    assert_true(nth(&w, DECISION_REFUSE, 0)->retry_after_ms > 0);
    decisions_fini(&w.out);
}

/* thrash.h: its weights would push out those of others. */
static void a_model_that_is_shut_goes_where_it_is_not(void **state)
{
    struct world w;

    (void)state;
    world_init(&w, 2);
    place_of(&w, 0, 0)->is_shut = true;
    place_of(&w, 0, 1)->resident_bytes = 0; /* else it would cost less on 0 */
    add_new(&w, 0, 0);
    world_decide(&w);
    assert_int_equal(nth(&w, DECISION_PLACE, 0)->exec, 1);
    place_of(&w, 0, 1)->is_shut = true;
    w.models[0].refused_ns = NOW - 60000 * MS; /* not even as a probe */
    w.requests[0].deadline_ns = w.requests[0].limit_ns = NOW + 1000 * MS;
    w.execs[0].is_idle = w.execs[1].is_idle = true;
    world_decide(&w);
    assert_int_equal(count(&w, DECISION_PLACE), 0);
    assert_int_equal(nth(&w, DECISION_REFUSE, 0)->reason, DECIDE_THRASHING);
    assert_int_equal(nth(&w, DECISION_REFUSE, 0)->rc, SH_E_UNAVAILABLE);
    assert_true(nth(&w, DECISION_REFUSE, 0)->retry_after_ms > 0);
    assert_true(nth(&w, DECISION_REFUSE, 0)->exec == SNAP_NONE); /* nor are they brought */
    decisions_fini(&w.out);
}

/* Who has no limit waits for it, and comes where nobody else is. */
static void who_has_time_waits_for_a_model_that_is_shut(void **state)
{
    static const struct {
        int64_t deadline_ns, limit_ns;
    } CASES[] = {{SNAP_NO_DEADLINE, SNAP_NO_DEADLINE},
                 {NOW + MS, SNAP_NO_DEADLINE},          /* a target that it may miss */
                 {SNAP_NO_DEADLINE, NOW + 20000 * MS}}; /* its sizes were compiled until now */

    (void)state;
    for (size_t i = 0; i < SH_ARRAY_LEN(CASES); i++) {
        struct world w;

        world_init(&w, 1);
        place_of(&w, 0, 0)->is_shut = true;
        place_of(&w, 0, 0)->resident_bytes = 0;
        add_new(&w, 0, 0)->deadline_ns = CASES[i].deadline_ns;
        w.requests[0].limit_ns = CASES[i].limit_ns;
        world_decide(&w);
        assert_int_equal(count(&w, DECISION_REFUSE) + count(&w, DECISION_PLACE), 0);
        assert_int_equal(nth(&w, DECISION_WAIT, 0)->request, 0);
        assert_int_equal(nth(&w, DECISION_WAIT, 0)->reason, DECIDE_THRASHING);
        w.requests[0].waits = DECIDE_THRASHING; /* it has heard that, and not why it waits now */
        world_decide(&w);
        assert_int_equal(w.out.n, 0);
        w.requests[0].waits = DECIDE_MODEL_LOADING;
        world_decide(&w);
        assert_int_equal(count(&w, DECISION_WAIT), 1);
        w.execs[0].is_idle = true;
        world_decide(&w);
        assert_int_equal(nth(&w, DECISION_PLACE, 0)->exec, 0);
        w.execs[0].is_idle = false;
        w.requests[0].patience_ns = NOW; /* it has waited for long enough */
        world_decide(&w);
        assert_int_equal(nth(&w, DECISION_PLACE, 0)->exec, 0);
        decisions_fini(&w.out);
    }
}

/* One at a time, or they would push each other out. */
static void an_idle_executor_takes_one_of_models_that_are_shut(void **state)
{
    struct world w;

    (void)state;
    world_init(&w, 1);
    w.execs[0].is_idle = true;
    for (uint32_t m = 0; m < 2; m++) {
        place_of(&w, m, 0)->is_shut = true;
        place_of(&w, m, 0)->resident_bytes = 0;
        add_new(&w, m, 0);
    }
    world_decide(&w);
    assert_int_equal(count(&w, DECISION_PLACE), 1);
    assert_int_equal(nth(&w, DECISION_WAIT, 0)->reason, DECIDE_THRASHING);
    decisions_fini(&w.out);
}

static void an_executor_has_at_most_max_runs_outstanding(void **state)
{
    struct world w;

    (void)state;
    world_init(&w, 1);
    w.in.max_runs = 2;
    w.execs[0].n_runs = 1;
    for (uint32_t i = 0; i < 4; i++)
        add_request(&w, i);
    world_decide(&w);
    assert_int_equal(count(&w, DECISION_RUN), 1);
    decisions_fini(&w.out);
}

static void an_empty_snapshot_gives_nothing(void **state)
{
    struct world w;

    (void)state;
    world_init(&w, 0);
    world_decide(&w);
    assert_int_equal(w.out.n, 0);
    add_new(&w, 0, 0);
    world_decide(&w);
    assert_int_equal(count(&w, DECISION_REFUSE), 1);
    decisions_fini(&w.out);
}

static void who_comes_too_early_for_a_model_hears_when_to_ask_again(void **state)
{
    static const struct {
        int64_t expected_ns, retry_after_ms;
        bool any_up, failed;
        enum decide_reason why;
    } CASES[] = {{NOW + 100 * MS, 1000, true, false, DECIDE_MODEL_LOADING},
                 {NOW + 5000 * MS, 5000, true, false, DECIDE_MODEL_LOADING},
                 {SNAP_NEVER, 1000, true, true, DECIDE_MODEL_FAILED},
                 {SNAP_NEVER, 1000, false, false, DECIDE_NO_EXECUTOR}};

    (void)state;
    for (size_t i = 0; i < sizeof(CASES) / sizeof(CASES[0]); i++) {
        struct world w;

        world_init(&w, 1);
        w.models[0].expected_ns = CASES[i].expected_ns;
        w.models[0].failed = CASES[i].failed;
        w.execs[0].up = CASES[i].any_up;
        place_of(&w, 0, 0)->ready = false;
        add_request(&w, 0)->exec = SNAP_NONE;
        w.requests[0].wait_ns = NOW - MS; /* it has waited */
        world_decide(&w);
        assert_int_equal(nth(&w, DECISION_REFUSE, 0)->reason, CASES[i].why);
        assert_int_equal(nth(&w, DECISION_REFUSE, 0)->retry_after_ms, CASES[i].retry_after_ms);
        decisions_fini(&w.out);
    }
}

static void who_waits_for_a_model_hears_why_once(void **state)
{
    struct world w;

    (void)state;
    world_init(&w, 1);
    w.models[0].expected_ns = NOW + 100 * MS;
    place_of(&w, 0, 0)->ready = false;
    add_request(&w, 0)->exec = SNAP_NONE;
    w.requests[0].wait_ns = NOW + 200 * MS;
    world_decide(&w);
    assert_int_equal(count(&w, DECISION_REFUSE), 0);
    assert_int_equal(nth(&w, DECISION_WAIT, 0)->request, 0);
    assert_int_equal(nth(&w, DECISION_WAIT, 0)->reason, DECIDE_MODEL_LOADING);
    w.requests[0].waits = DECIDE_MODEL_LOADING;
    world_decide(&w);
    assert_int_equal(w.out.n, 0);
    decisions_fini(&w.out);
}

/* What was promised by an executor that cannot keep it now is left alone. */
static void promises_count_where_they_can_be_kept(void **state)
{
    (void)state;
    for (int k = 0; k < 4; k++) {
        struct world w;

        world_init(&w, 1);
        add_request(&w, 0)->limit_ns = k == 3 ? SNAP_NO_DEADLINE : NOW + 100 * MS;
        w.requests[0].promised = true;
        w.execs[0].up = k != 1;
        place_of(&w, 0, 0)->ready = k != 2;
        world_decide(&w);
        assert_int_equal(count(&w, DECISION_RUN), k == 0 || k == 3);
        assert_int_equal(count(&w, DECISION_REFUSE), 0);
        decisions_fini(&w.out);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(earlier_deadlines_go_first),
        cmocka_unit_test(priority_goes_before_the_deadline),
        cmocka_unit_test(without_deadlines_the_first_to_arrive_is_first),
        cmocka_unit_test(a_late_best_effort_request_lets_others_pass_but_a_delayed_one_does_not),
        cmocka_unit_test(requests_of_one_model_share_a_run_up_to_max_batch),
        cmocka_unit_test(tenants_share_a_run_unless_it_takes_a_modest_one_longer),
        cmocka_unit_test(a_large_request_that_does_not_fit_leaves_room_for_a_small_one),
        cmocka_unit_test(requests_whose_samples_may_meet_run_each_by_itself),
        cmocka_unit_test(a_batch_does_not_grow_beyond_a_members_deadline),
        cmocka_unit_test(a_batch_does_not_cost_another_model_its_deadline),
        cmocka_unit_test(a_run_does_not_wait_for_requests_whose_body_is_on_its_way),
        cmocka_unit_test(a_request_that_cannot_be_in_time_is_refused_with_the_time_to_wait),
        cmocka_unit_test(a_request_with_a_deadline_but_no_limit_is_never_refused_for_time),
        cmocka_unit_test(those_let_in_before_count_against_the_next),
        cmocka_unit_test(joining_a_batch_costs_less_than_a_run_of_its_own),
        cmocka_unit_test(a_ready_request_that_became_hopeless_is_refused),
        cmocka_unit_test(a_model_that_is_shut_goes_where_it_is_not),
        cmocka_unit_test(who_has_time_waits_for_a_model_that_is_shut),
        cmocka_unit_test(an_idle_executor_takes_one_of_models_that_are_shut),
        cmocka_unit_test(placement_prefers_the_executor_that_holds_the_weights),
        cmocka_unit_test(placement_gives_up_residency_when_the_queue_there_is_longer_than_the_copy),
        cmocka_unit_test(a_run_that_waits_for_weights_is_predicted_by_what_is_missing),
        cmocka_unit_test(a_run_of_packed_weights_takes_their_unpacking_longer),
        cmocka_unit_test(packed_weights_are_unpacked_once),
        cmocka_unit_test(placement_minds_what_training_loses),
        cmocka_unit_test(who_is_refused_where_the_weights_are_brings_them_to_who_is_idle),
        cmocka_unit_test(equal_executors_share_the_load),
        cmocka_unit_test(nothing_goes_to_an_executor_that_is_down_or_lacks_the_model),
        cmocka_unit_test(an_executor_has_at_most_max_runs_outstanding),
        cmocka_unit_test(an_empty_snapshot_gives_nothing),
        cmocka_unit_test(who_comes_too_early_for_a_model_hears_when_to_ask_again),
        cmocka_unit_test(who_waits_for_a_model_hears_why_once),
        cmocka_unit_test(promises_count_where_they_can_be_kept),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
