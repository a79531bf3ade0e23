/* test_sched_models.c - versions on executors, host memory that is short, and what APIs hear.
 *
 * Without it: a version that cannot be loaded could be tried for ever or never again, one that
 * somebody uses could go from host memory for another one, and readiness could be said wrongly. */
/* uses: scheduler/models/models.o scheduler/models/homes.o scheduler/models/profile.o scheduler/decide/placement.o scheduler/models/room.o scheduler/models/serving.o tests/unit/sched_world.o libscheduler.a */
/* link: -lpq */
#include "common/metrics.h"
#include "scheduler/models/homes.h"
#include "tests/unit/sched_world.h"

static struct peer x, a; /* an executor and an API */

static struct model *version(int64_t id)
{
    return models_find(&w.s->models, id);
}

static struct model_on *on_x(int64_t id)
{
    return &version(id)->on[0];
}

static void failed(int64_t version_id, int rc)
{
    model_said(&x,
               (struct msg_model_state){
                   .version_id = version_id, .state = MSG_MODEL_FAILED, .rc = rc, .msg = "why"});
}

static void short_of(int64_t version_id, uint64_t bytes, bool of_tenant)
{
    model_said(&x, (struct msg_model_state){.version_id = version_id,
                                            .state = MSG_MODEL_FAILED,
                                            .rc = SH_E_QUOTA,
                                            .msg = "full",
                                            .short_bytes = bytes,
                                            .short_of_tenant = of_tenant});
}

static void gone(int64_t version_id)
{
    model_said(&x, (struct msg_model_state){.version_id = version_id, .state = MSG_MODEL_GONE});
}

/* So many bytes of host and device memory; idle_ns < 0: it never ran. */
static void place(int64_t version_id, uint64_t host, uint64_t device, int64_t idle_ns)
{
    say(&x, &(struct sh_msg){.type = MSG_MODEL_PLACE,
                             .u.model_place = {.version_id = version_id,
                                               .host_bytes = host,
                                               .device_bytes = device,
                                               .idle_ns = idle_ns}});
}

/* Versions may take so much of x's host memory, and so much of it is taken. */
static void host_memory(uint64_t limit, uint64_t taken)
{
    say(&x, &(struct sh_msg){.type = MSG_EXEC_STATE,
                             .u.exec_state = {.host_limit = limit, .host_images = taken}});
}

static void hint(const char *what)
{
    say(&a, &(struct sh_msg){.type = MSG_HINT, .u.hint = {.what = what}});
}

/* ------------------------------------------------------------------ loading */

static void a_failure_worth_it_is_tried_again_so_many_times(void **state)
{
    (void)state;
    w.models[0].state = "REGISTERED";
    world_lead();
    exec_up(&x, "x");
    assert_string_equal(w.model_wrote.state, "LOADING");
    for (int i = 0; i < 5; i++) {
        hear(&x, MSG_MODEL_LOAD);
        failed(1, SH_E_DEVMEM);
        stay(40 * SECOND);
    }
    assert_null(heard(&x, MSG_MODEL_LOAD));
    assert_string_equal(w.model_wrote.state, "FAILED");
    assert_string_equal(w.model_wrote.reason_code, sh_rc_name(SH_E_DEVMEM));
}

static void who_asks_for_one_that_failed_has_it_tried_at_once(void **state)
{
    (void)state;
    world_lead();
    exec_up(&x, "x");
    stay(HOMES_ASK_NS + SECOND);
    api_hello(&a, 7);
    hear(&x, MSG_MODEL_LOAD);
    failed(1, SH_E_INVALID);
    for (int i = 0; i < 4; i++) {
        static const char *const WORDS[] = {"load one", "load 2", "load -1", "load 1"};

        advance(2 * SECOND);
        hint(WORDS[i]);
        assert_int_equal(!!heard(&x, MSG_MODEL_LOAD), i == 3);
    }
    failed(1, SH_E_INVALID);
    hint("load 1"); /* at most once a second */
    assert_null(heard(&x, MSG_MODEL_LOAD));
    advance(2 * SECOND);
    hint("load 1");
    hear(&x, MSG_MODEL_LOAD);
    model_ready(&x, 1);
    advance(2 * SECOND);
    hint("load 1"); /* it is there */
    assert_null(heard(&x, MSG_MODEL_LOAD));
}

static void what_an_executor_says_of_no_version_of_ours_is_answered_by_unload(void **state)
{
    (void)state;
    world_lead();
    exec_up(&x, "x");
    stay(HOMES_ASK_NS + SECOND);
    for (int k = MSG_MODEL_LOADING; k <= MSG_MODEL_GONE; k++) {
        model_said(&x, (struct msg_model_state){.version_id = 9, .state = (uint32_t)k});
        assert_int_equal(!!heard(&x, MSG_MODEL_UNLOAD),
                         k == MSG_MODEL_LOADING || k == MSG_MODEL_READY);
    }
    place(9, 1, 1, 1);
    model_said(&x, (struct msg_model_state){.version_id = 1, .state = 99});
    assert_int_equal(on_x(1)->phase, MODEL_ON_LOADING);
}

static void one_that_still_leaves_is_loaded_when_it_has_left(void **state)
{
    (void)state;
    world_lead();
    exec_up(&x, "x");
    stay(HOMES_ASK_NS + SECOND);
    hear(&x, MSG_MODEL_LOAD);
    failed(1, SH_E_CONFLICT);
    assert_int_equal(on_x(1)->phase, MODEL_ON_UNLOADING);
    gone(1);
    hear(&x, MSG_MODEL_LOAD);
    assert_string_equal(w.models[0].state, "READY");
}

static void a_profile_is_taken_as_far_as_it_makes_sense(void **state)
{
    static const char ROWS[] =
        "{\"batch\":1,\"compute_ns\":2e6},{\"batch\":1,\"compute_ns\":3e6,\"tail_ns\":1e6}";
    char many[sizeof(ROWS) * 8] = "";
    struct predict_time t;

    (void)state;
    w.models[0].profile = "not JSON";
    w.models[0].image_bytes = 5;
    add_model(2, "m2")->profile = "[{\"batch\":1,\"compute_ns\":2e6}]";
    for (int i = 0; i < 6; i++)
        snprintf(many + strlen(many), sizeof(many) - strlen(many), "%c%s%s", i ? ',' : '[', ROWS,
                 i < 5 ? "" : "]");
    add_model(3, "m3")->profile = many;
    world_lead();
    exec_up(&x, "x");
    assert_int_equal(version(1)->n_profile, 0);
    assert_int_equal(version(2)->n_profile, 1);
    assert_int_equal(version(3)->n_profile, PREDICT_N_BUCKETS);
    predict_run(&version(2)->predict, 1, 99, sh_clock_ns(), &t);
    assert_int_equal(t.usual_ns, 2 * MS);
    assert_int_equal(t.tail_ns, 2 * MS); /* nobody measured it: all of it */
    model_said(&x, (struct msg_model_state){.version_id = 1, .state = MSG_MODEL_READY});
    assert_int_equal(version(1)->image_bytes, 5); /* as it was */
}

/* ------------------------------------------------------------------ what clients change */

static void a_version_that_was_loaded_again_is_tried_by_those_that_are_there(void **state)
{
    struct peer y;

    (void)state;
    w.models[0].state = "REGISTERED";
    world_lead();
    exec_up(&x, "x");
    exec_up(&y, "y");
    failed(1, SH_E_INVALID);
    model_said(&y, (struct msg_model_state){
                       .version_id = 1, .state = MSG_MODEL_FAILED, .rc = SH_E_INVALID});
    assert_string_equal(w.model_wrote.state, "FAILED");
    peer_close(&y);
    forget_heard(&x);
    w.models[0].state = "REGISTERED";
    look_again();
    hear(&x, MSG_MODEL_UNLOAD);
    gone(1);
    hear(&x, MSG_MODEL_LOAD);
    assert_int_equal(version(1)->state, MODEL_LOADING);
}

static void one_that_is_on_its_way_out_is_told_once(void **state)
{
    (void)state;
    w.conf.load_wait_ms = 0;
    add_model(2, "m2")->state = "REGISTERED";
    world_lead();
    exec_up(&x, "x");
    model_ready(&x, 1);
    place(1, 100, 0, -1);
    advance(6 * SECOND);
    forget_heard(&x);
    short_of(2, 50, false);
    assert_int_equal(hear(&x, MSG_MODEL_UNLOAD)->u.model_unload.version_id, 1);
    w.models[0].state = "UNLOADING"; /* now a client wants it as well */
    look_again();
    assert_null(heard(&x, MSG_MODEL_UNLOAD));
    assert_int_equal(version(1)->state, MODEL_UNLOADING);
    model_ready(&x, 1); /* it had been said before */
    assert_int_equal(on_x(1)->phase, MODEL_ON_UNLOADING);
    w.models[0].state = "REGISTERED"; /* and back */
    look_again();
    gone(1);
    assert_int_equal(version(1)->state, MODEL_REGISTERED);
}

static void a_state_whose_write_was_lost_is_written_again(void **state)
{
    static const char *const STATES[] = {"READY", "FAILED", "UNLOADED"};

    for (size_t i = 0; i < SH_ARRAY_LEN(STATES); i++) {
        world_begin(state);
        w.models[0].state = "REGISTERED";
        world_lead();
        exec_up(&x, "x");
        if (i == 2) {
            model_ready(&x, 1);
            w.models[0].state = "UNLOADING";
            look_again();
        }
        db_fail("model.state", SH_E_INVALID, 1);
        if (i == 0)
            model_ready(&x, 1);
        else if (i == 1)
            failed(1, SH_E_INVALID);
        else
            gone(1);
        assert_string_not_equal(w.models[0].state, STATES[i]);
        look_again();
        assert_string_equal(w.models[0].state, STATES[i]);
        world_end(state);
    }
}

static void another_target_is_shown_anew_and_none_is_longer_than_a_day(void **state)
{
    (void)state;
    w.models[0].slo_ms = 1e12;
    world_lead();
    assert_int_equal(version(1)->slo_ns, INT64_C(86400) * SECOND);
    version(1)->n_runs_shown = 7;
    look_again();
    assert_int_equal(version(1)->n_runs_shown, 7);
    w.models[0].slo_percentile = 95;
    w.models[0].slo_ms = 10;
    w.models[0].on_miss = "delay";
    look_again();
    assert_int_equal(version(1)->n_runs_shown, 0);
    assert_int_equal(version(1)->slo_ns, 10 * MS);
    assert_int_equal(version(1)->on_miss, SNAP_DELAY);
}

static void a_look_that_says_nothing_of_versions_or_not_all_deletes_none(void **state)
{
    static struct store_model many[5];

    (void)state;
    w.conf.max_versions = SH_ARRAY_LEN(many);
    add_model(2, "m2");
    world_lead();
    w.says_little = true;
    look_again();
    assert_int_equal(w.s->models.n, 2);
    w.says_little = false;
    for (size_t i = 0; i < SH_ARRAY_LEN(many); i++)
        many[i] = w.models[0]; /* as many as are read at most: there may be more */
    w.look.models = many;
    w.look.n_models = SH_ARRAY_LEN(many);
    look_again();
    assert_int_equal(w.s->models.n, 2);
    w.n_models = 1;
    look_again();
    assert_int_equal(w.s->models.n, 1);
}

static void series_go_with_the_last_version_of_a_model(void **state)
{
    const char *const OTHERS = "shunt_batch_size_count{model=\"m\"}";
    const char *const OWN = "shunt_request_compile_wait_seconds_count{tenant=\"t\",model=\"m\"}";
    const char *const WAITING = "shunt_request_queue_length{tenant=\"t\",model=\"m\"}";

    (void)state;
    add_model(2, "m")->model_id = 1;
    add_model(3, "m")->tenant = "u";
    w.models[2].tenant_id = 2;
    world_lead();
    exec_up(&x, "x");
    api_hello(&a, 7);
    infer_open(&a, 1, 2, false);
    advance(SECOND);
    assert_true(metric(WAITING) == 1); /* of all versions of the model */
    sh_metric_observe(M_shunt_batch_size, SH_LABELS("m"), 1);
    sh_metric_observe(M_shunt_request_compile_wait_seconds, SH_LABELS("t", "m"), 1);
    w.models[1] = w.models[2];
    w.n_models = 2; /* without version 2 */
    look_again();
    assert_true(metric(OTHERS) == 1 && metric(OWN) == 1);
    w.models[0] = w.models[1];
    w.n_models = 1; /* without the model of t */
    look_again();
    assert_true(metric(OTHERS) == 1 && metric(OWN) == 0);
    w.n_models = 0;
    look_again();
    assert_true(metric(OTHERS) == 0);
}

static void copies_that_wait_are_expected_within_a_day(void **state)
{
    struct exec *e;

    (void)state;
    w.models[0].image_bytes = INT64_MAX;
    world_lead();
    e = exec_up(&x, "x");
    models_expect(version(1), e, sh_clock_ns());
    assert_int_equal(e->lane_ns, sh_clock_ns() + PREDICT_MAX_COPY_NS);
    on_x(1)->resident_bytes = 0;
    models_expect(version(1), e, sh_clock_ns()); /* behind the other */
    assert_int_equal(e->lane_ns, sh_clock_ns() + PREDICT_MAX_COPY_NS);
}

/* ------------------------------------------------------------------ room */

/* Version 9 waits for room, and 1 to 3 are there, READY, with 100 bytes each, and for long. */
static void crowd(void)
{
    add_tenant(2, "u");
    add_model(2, "m2");
    add_model(3, "m3");
    add_model(9, "m9")->state = "REGISTERED";
    world_lead();
    exec_up(&x, "x");
    api_hello(&a, 7);
    for (int64_t v = 1; v <= 3; v++) {
        model_ready(&x, v);
        place(v, 100, 0, -1);
        sh_clock_advance(MS);
    }
    advance(6 * SECOND);
    forget_heard(&x);
}

/* Which was asked to go, 0: none. */
static int64_t unloaded(void)
{
    const struct sh_msg *m = heard(&x, MSG_MODEL_UNLOAD);

    return m ? m->u.model_unload.version_id : 0;
}

static void is_pinned(void)
{
    w.models[0].pinned = true;
    look_again();
    hear(&x, MSG_MODEL_PIN);
}
static void has_a_request(void)
{
    infer_open(&a, 1, 1, false);
}
static void has_a_job(void)
{
    add_job(5)->line.is_batch = true;
    look_again();
    hear(&x, MSG_BATCH_START);
}
static void has_a_job_elsewhere(void)
{
    add_job(5)->line.is_batch = true;
    w.jobs[0].state = "HELD";
    add_job(6)->line.is_batch = true;
    w.jobs[1].line.version_id = 4;
    add_job(7);
    look_again();
}
static void ran_of_late(void)
{
    place(1, 100, 0, SECOND);
}
static void ran_long_ago(void)
{
    place(1, 100, 0, 60 * SECOND);
}
static void is_on_the_device(void)
{
    place(1, 100, 100, -1);
}
static void takes_nothing(void)
{
    place(1, 0, 0, -1);
}
static void is_loading_here(void)
{
    model_said(&x, (struct msg_model_state){.version_id = 1, .state = MSG_MODEL_LOADING});
}
static void is_not_settled(void)
{
    version(1)->state = MODEL_LOADING; /* another executor has not answered */
}
static void is_leaving_for_good(void)
{
    w.models[0].state = "UNLOADING";
    look_again();
    unloaded();
}
static void is_of_a_tenant_with_less(void)
{
    version(1)->tenant_id = 2;
}
static void is_as_the_others(void)
{
}

static void the_idle_one_goes_that_hurts_least(void **state)
{
    static const struct {
        void (*one)(void); /* version 1 */
        int64_t goes;
        bool of_tenant;
    } CASES[] = {{is_as_the_others, 1, false},
                 {is_as_the_others, 1, true},
                 {is_pinned, 2, false},
                 {has_a_request, 2, false},
                 {has_a_job, 2, false},
                 {has_a_job_elsewhere, 1, false},
                 {ran_of_late, 2, false},
                 {ran_long_ago, 1, false},
                 {is_on_the_device, 2, false},
                 {takes_nothing, 2, false},
                 {is_loading_here, 2, false},
                 {is_not_settled, 2, false},
                 {is_leaving_for_good, 2, false},
                 {is_of_a_tenant_with_less, 2, false},
                 {is_of_a_tenant_with_less, 2, true}};

    for (size_t i = 0; i < SH_ARRAY_LEN(CASES); i++) {
        world_begin(state);
        crowd();
        CASES[i].one();
        short_of(9, 50, CASES[i].of_tenant);
        assert_int_equal(unloaded(), CASES[i].goes);
        assert_int_equal(unloaded(), 0);
        assert_true(on_x(9)->waits_for_room);
        gone(CASES[i].goes);
        assert_int_equal(hear(&x, MSG_MODEL_LOAD)->u.model_load.version_id, 9);
        assert_int_equal(on_x(CASES[i].goes)->phase, MODEL_ON_ASIDE);
        world_end(state);
    }
}

static void enough_goes_or_nobody(void **state)
{
    (void)state;
    crowd();
    short_of(9, 301, false);
    assert_int_equal(unloaded(), 0);
    assert_int_equal(on_x(9)->phase, MODEL_ON_FAILED);
    assert_false(on_x(9)->waits_for_room);
    w.models[3].state = "REGISTERED"; /* a client has it loaded again */
    look_again();
    assert_int_equal(unloaded(), 9);
    gone(9);
    hear(&x, MSG_MODEL_LOAD);
    short_of(9, 150, true);
    assert_int_equal(unloaded() + unloaded(), 1 + 2);
    assert_int_equal(unloaded(), 0);
    forget_heard(&a);
    hint("load 9"); /* it waits for room, and nothing else would help */
    assert_null(heard(&x, MSG_MODEL_LOAD));
    add_model(10, "m10")->state = "REGISTERED"; /* another one waits; the same two leave */
    look_again();
    hear(&x, MSG_MODEL_LOAD);
    short_of(10, 200, false);
    short_of(10, 200, true);
    assert_int_equal(unloaded(), 0);
    add_model(11, "m11")->state = "REGISTERED";
    w.models[w.n_models - 1].tenant_id = 2;
    look_again();
    hear(&x, MSG_MODEL_LOAD);
    short_of(11, 1, true); /* of its tenant nobody leaves, and nobody could */
    assert_false(on_x(11)->waits_for_room);
    gone(1);
    assert_null(heard(&x, MSG_MODEL_LOAD)); /* not before all have gone */
    gone(2);
    assert_int_equal(hear(&x, MSG_MODEL_LOAD)->u.model_load.version_id, 9);
    assert_int_equal(hear(&x, MSG_MODEL_LOAD)->u.model_load.version_id, 10);
}

/* Of 100 bytes that each has; what is shared is free when all that share are gone. */
static void what_versions_share_goes_with_the_last_of_them(void **state)
{
    static const struct {
        uint64_t shared[3], short_bytes;
        bool first_is_pinned;
        unsigned go; /* 1 << version */
    } CASES[] = {{{80, 80, 0}, 20, false, 2},          {{80, 80, 0}, 21, false, 2 + 4},
                 {{80, 80, 0}, 201, false, 2 + 4 + 8}, {{80, 80, 0}, 120, true, 4 + 8},
                 {{80, 80, 0}, 121, true, 0},          {{80, 80, 80}, 41, false, 2 + 4 + 8},
                 {{80, 80, 80}, 41, true, 0},          {{999, 80, 80}, 20, false, 2 + 4}};

    for (size_t i = 0; i < SH_ARRAY_LEN(CASES); i++) {
        unsigned go = 0;

        world_begin(state);
        crowd();
        for (int64_t v = 1; v <= 3; v++)
            say(&x, &(struct sh_msg){
                        .type = MSG_MODEL_PLACE,
                        .u.model_place = {v, 0, 100, CASES[i].shared[v - 1], .idle_ns = -1}});
        if (CASES[i].first_is_pinned)
            is_pinned();
        short_of(9, CASES[i].short_bytes, i % 2);
        for (int64_t v; (v = unloaded()); go |= 1u << v)
            ;
        assert_int_equal(go, CASES[i].go);
        world_end(state);
    }
}

static void what_a_version_takes_is_learnt_from_what_it_lacked(void **state)
{
    static const struct {
        uint64_t quota, short_bytes;
        bool of_tenant;
        uint64_t takes;
    } CASES[] = {{100, 10, true, 30},   /* 80 of them are taken by version 1 */
                 {0, 10, true, 430},    /* of half of the executor's */
                 {50, 10, true, 10},    /* it was more before */
                 {100, 10, false, 60}}; /* 50 are left of all */

    for (size_t i = 0; i < SH_ARRAY_LEN(CASES); i++) {
        world_begin(state);
        w.tenants[0].memory.host_max_bytes = CASES[i].quota;
        add_model(2, "m2");
        add_model(3, "m3")->tenant_id = 2;
        add_tenant(2, "u");
        world_lead();
        exec_up(&x, "x");
        host_memory(1000, 950);
        for (int64_t v = 1; v <= 3; v += 2) {
            model_ready(&x, v);
            place(v, v == 1 ? 80 : 870, 0, -1);
        }
        short_of(2, CASES[i].short_bytes, CASES[i].of_tenant);
        assert_int_equal(version(2)->host_bytes, CASES[i].takes);
        world_end(state);
    }
}

static void device_memory_that_it_needs_is_no_host_memory(void **state)
{
    struct exec *e;
    struct peer y;

    (void)state;
    world_lead();
    e = exec_up(&x, "x");
    exec_up(&y, "y");
    model_ready(&x, 1);
    model_said(&y, (struct msg_model_state){.version_id = 1,
                                            .state = MSG_MODEL_FAILED,
                                            .rc = SH_E_TOOBIG,
                                            .need_bytes = 1 << 29});
    assert_int_equal(e->homes.device_used, 1 << 29);
    assert_int_equal(e->homes.host_used, version(1)->image_bytes);
    peer_close(&y);
}

static void one_that_a_job_uses_gets_room_where_the_job_is(void **state)
{
    struct peer y;

    (void)state;
    add_model(2, "m2");
    world_lead();
    exec_up(&x, "x");
    for (int64_t v = 1; v <= 2; v++) {
        model_ready(&x, v);
        place(v, 100, 0, -1);
    }
    has_a_job();
    advance(6 * SECOND);
    exec_up(&y, "y");
    forget_heard(&x);
    short_of(1, 50, false);
    assert_int_equal(unloaded(), 2);
    assert_true(on_x(1)->waits_for_room);
    assert_null(heard(&y, MSG_MODEL_LOAD));
    peer_close(&y);
}

static void a_job_holds_its_version_from_its_start_on(void **state)
{
    struct exec *e;

    (void)state;
    world_lead();
    e = exec_up(&x, "x");
    model_ready(&x, 1);
    has_a_job();
    assert_true(placement_home(&version(1)->lives, &e->homes)->is_held);
    advance(SECOND);
    assert_true(placement_home(&version(1)->lives, &e->homes)->is_held);
}

static void a_job_has_a_version_back_that_was_about_to_leave(void **state)
{
    struct exec *e;

    (void)state;
    world_lead();
    e = exec_up(&x, "x");
    model_ready(&x, 1);
    homes_leave(w.s, version(1), e); /* as if another executor were enough */
    models__leave(w.s, version(1), e);
    has_a_job();
    gone(1);
    hear(&x, MSG_MODEL_LOAD);
    assert_true(placement_home(&version(1)->lives, &e->homes)->is_held);
}

static void who_asks_for_one_that_leaves_has_it_back(void **state)
{
    (void)state;
    crowd();
    short_of(9, 50, false);
    assert_int_equal(unloaded(), 1);
    infer_open(&a, 1, 1, false);
    assert_true(on_x(1)->is_urgent);
    assert_null(heard(&a, MSG_INFER_REFUSED)); /* it waits */
    assert_null(heard(&x, MSG_MODEL_LOAD));
    gone(1);
    assert_int_equal(hear(&x, MSG_MODEL_LOAD)->u.model_load.version_id, 1);
    assert_true(on_x(1)->is_urgent);
    short_of(1, 50, false); /* then another one goes */
    assert_int_equal(unloaded(), 2);
    short_of(9, 500, false);
    say(&a, &(struct sh_msg){.type = MSG_INFER_CANCEL, .u.infer_cancel = {.rid = 1}});
    advance(6 * SECOND);
    short_of(1, 500, false); /* nobody waits for it any more */
    assert_int_equal(on_x(1)->phase, MODEL_ON_ASIDE);
    infer_open(&a, 2, 1, false);
    short_of(1, 500, false);
    assert_int_equal(hear(&a, MSG_INFER_REFUSED)->u.infer_refused.rc, SH_E_CANCELLED);
    assert_int_equal(hear(&a, MSG_INFER_REFUSED)->u.infer_refused.rc, SH_E_QUOTA);
}

/* ------------------------------------------------------------------ what APIs hear */

static void steps_of_loading_are_told_when_they_change(void **state)
{
    static const struct msg_model_state SAID[] = {
        {.step = "compile", .done = 1, .total = 4, .left_ns = 5 * SECOND},
        {.step = "compile", .done = 2, .total = 4, .left_ns = 5 * SECOND},
        {.step = "compile", .done = 2, .total = 5, .left_ns = 5 * SECOND},
        {.step = "compile", .done = 2, .total = 5, .left_ns = 4 * SECOND},
        {.step = "compile", .done = 2, .total = 5, .left_ns = -1},
        {.step = "copy", .done = 2, .total = 5, .left_ns = -1},
    };

    (void)state;
    world_lead();
    exec_up(&x, "x");
    api_hello(&a, 7);
    for (size_t i = 0; i < 2 * SH_ARRAY_LEN(SAID); i++) {
        struct msg_model_state m = SAID[i / 2];
        const struct sh_msg *up;

        m.version_id = 1;
        m.state = MSG_MODEL_LOADING;
        forget_heard(&a);
        model_said(&x, m);
        up = heard(&a, MSG_MODEL_UP);
        assert_int_equal(!!up, i % 2 == 0); /* the same again says nothing */
        if (up)
            assert_true(up->u.model_up.done == m.done && up->u.model_up.total == m.total &&
                        up->u.model_up.left_ns == m.left_ns);
    }
}

static void a_request_waits_where_its_version_may_come_in_time(void **state)
{
    static const struct {
        int64_t away_ns; /* 0: the executor is here */
        int rc;
        bool waits;
    } CASES[] = {{0, 0, true}, {SECOND, 0, true}, {6 * SECOND, 0, false}, {0, SH_E_INVALID, false}};

    for (size_t i = 0; i < SH_ARRAY_LEN(CASES); i++) {
        world_begin(state);
        w.models[0].state = "REGISTERED";
        world_lead();
        api_hello(&a, 7);
        exec_up(&x, "x");
        if (CASES[i].rc)
            failed(1, CASES[i].rc);
        if (CASES[i].away_ns) {
            peer_close(&x);
            advance(CASES[i].away_ns);
        }
        infer_open(&a, 1, 1, false);
        assert_int_equal(!heard(&a, MSG_INFER_REFUSED), CASES[i].waits);
        world_end(state);
    }
}

static void holds(struct peer *p, uint64_t bytes)
{
    say(p, &(struct sh_msg){.type = MSG_MODEL_PLACE,
                            .u.model_place = {.version_id = 1, .device_bytes = bytes}});
}

static bool is_first(uint32_t exec, uint32_t n)
{
    return version(1)->on[exec].ready_at < n;
}

/* What one executor says of its device counts, whatever runs on another one; and those that hold
 * the version are the first that are asked. */
static void what_one_holds_is_known_while_another_runs_it(void **state)
{
    struct peer y = {.fd = -1};
    struct model_on *on;
    uint64_t run;

    (void)state;
    world_lead();
    exec_up(&x, "x");
    model_ready(&x, 1);
    api_hello(&a, 7);
    exec_up(&y, "y");
    model_ready(&y, 1);
    on = version(1)->on;
    holds(&y, 1 << 19);
    holds(&x, 1 << 20);
    assert_true(version(1)->n_resident == 1 && is_first(0, 1));
    infer_open(&a, 1, 1, false);
    infer_ready(&a, 1, NULL, 0);
    run = run_sent(&x);
    holds(&x, 0); /* before it has begun: it will bring it */
    holds(&y, 1 << 20);
    assert_true(on[0].resident_bytes == 1 << 20 && on[1].resident_bytes == 1 << 20);
    assert_int_equal(version(1)->n_resident, 2);
    holds(&y, 0);
    assert_true(on[1].resident_bytes == 0 && version(1)->n_resident == 1 && is_first(0, 1));
    run_done(&x, run, 0);
    holds(&x, 0);
    assert_int_equal(version(1)->n_resident, 0);
    holds(&y, 1 << 20);
    assert_true(version(1)->n_resident == 1 && is_first(1, 1));
    peer_close(&y);
    assert_true(version(1)->n_resident == 0 && version(1)->n_ready == 1 && is_first(0, 1));
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, world_begin, world_end)
    const struct CMUnitTest tests[] = {
        TEST(a_failure_worth_it_is_tried_again_so_many_times),
        TEST(who_asks_for_one_that_failed_has_it_tried_at_once),
        TEST(what_an_executor_says_of_no_version_of_ours_is_answered_by_unload),
        TEST(one_that_still_leaves_is_loaded_when_it_has_left),
        TEST(a_profile_is_taken_as_far_as_it_makes_sense),
        TEST(a_version_that_was_loaded_again_is_tried_by_those_that_are_there),
        TEST(one_that_is_on_its_way_out_is_told_once),
        cmocka_unit_test(a_state_whose_write_was_lost_is_written_again),
        TEST(another_target_is_shown_anew_and_none_is_longer_than_a_day),
        TEST(a_look_that_says_nothing_of_versions_or_not_all_deletes_none),
        TEST(series_go_with_the_last_version_of_a_model),
        TEST(copies_that_wait_are_expected_within_a_day),
        cmocka_unit_test(the_idle_one_goes_that_hurts_least),
        cmocka_unit_test(what_versions_share_goes_with_the_last_of_them),
        TEST(enough_goes_or_nobody),
        cmocka_unit_test(what_a_version_takes_is_learnt_from_what_it_lacked),
        TEST(device_memory_that_it_needs_is_no_host_memory),
        TEST(one_that_a_job_uses_gets_room_where_the_job_is),
        TEST(a_job_holds_its_version_from_its_start_on),
        TEST(a_job_has_a_version_back_that_was_about_to_leave),
        TEST(who_asks_for_one_that_leaves_has_it_back),
        TEST(steps_of_loading_are_told_when_they_change),
        TEST(what_one_holds_is_known_while_another_runs_it),
        cmocka_unit_test(a_request_waits_where_its_version_may_come_in_time),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
