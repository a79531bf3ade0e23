/* test_sched_shapes.c - requests to a version whose file leaves sizes open.
 *
 * Without it: a list of sizes that is none could be read past its end, one client's sizes could
 * fill all that is remembered, and an answer that does not come could be waited for for ever. */
/* uses: scheduler/models/shapes.o tests/unit/sched_world.o libscheduler.a */
/* link: -lpq */
#include "tests/unit/sched_world.h"

static struct peer x, y, a; /* executors, of which x has version 1, and an API */
static uint64_t rid;

static int begin(void **state)
{
    world_begin(state);
    x = y = a = (struct peer){.fd = -1};
    rid = 0;
    return 0;
}

static void serve(void)
{
    world_lead();
    exec_up(&x, "x");
    model_ready(&x, 1);
    api_hello(&a, 7);
    forget_heard(&x);
}

static int end(void **state)
{
    peer_close(&x);
    peer_close(&y);
    peer_close(&a);
    return world_end(state);
}

static struct model *version(void)
{
    return models_find(&w.s->models, 1);
}

/* A request of one symbol of this size, and what comes back at once: 0, or why it is refused. */
static int ask(uint32_t size)
{
    const struct sh_msg *m;

    infer_open(&a, ++rid, 1, true);
    infer_ready(&a, rid, &size, 1);
    m = heard(&a, MSG_INFER_REFUSED);
    return m ? (int)m->u.infer_refused.rc : 0;
}

static void shape_said_by(struct peer *p, uint32_t size, enum msg_model_phase phase, int rc,
                          size_t n_profile)
{
    static const struct msg_profile ROWS[PREDICT_N_BUCKETS + 2] = {
        {.batch = 1, .compute_ns = 3e6, .tail_ns = 1e6}};

    say(p, &(struct sh_msg){.type = MSG_SHAPE_STATE,
                            .u.shape_state = {.version_id = 1,
                                              .sizes = {&size, sizeof(size)},
                                              .state = phase,
                                              .rc = rc,
                                              .msg = "why",
                                              .profile = {ROWS, n_profile * sizeof(ROWS[0])}}});
}

static void shape_said(uint32_t size, enum msg_model_phase phase, int rc, size_t n_profile)
{
    shape_said_by(&x, size, phase, rc, n_profile);
}

static void cancel(uint64_t id)
{
    say(&a, &(struct sh_msg){.type = MSG_INFER_CANCEL, .u.infer_cancel = {.rid = id}});
    assert_int_equal(hear(&a, MSG_INFER_REFUSED)->u.infer_refused.rc, SH_E_CANCELLED);
}

static void sizes_that_are_none_are_refused(void **state)
{
    static const uint32_t SIZES[SH_MAX_SYMBOLS + 1] = {1, 1, 1, 1, 1, 1, 1, 1, 1};
    static const struct {
        size_t bytes;
        bool has_sizes; /* as it was opened */
        int rc;
    } CASES[] = {{0, true, SH_E_PROTO},
                 {3, true, SH_E_PROTO},
                 {sizeof(SIZES), true, SH_E_PROTO},
                 {3, false, SH_E_PROTO},
                 {sizeof(SIZES) - sizeof(SIZES[0]), true, 0},
                 {0, false, 0}};

    (void)state;
    serve();
    for (size_t i = 0; i < SH_ARRAY_LEN(CASES); i++) {
        const struct sh_msg *m;

        infer_open(&a, i, 1, CASES[i].has_sizes);
        say(&a, &(struct sh_msg){
                    .type = MSG_INFER_READY,
                    .u.infer_ready = {.rid = i, .batch = 1, .sizes = {SIZES, CASES[i].bytes}}});
        m = heard(&a, MSG_INFER_REFUSED);
        assert_int_equal(m ? m->u.infer_refused.rc : 0, CASES[i].rc);
    }
    say(&x, &(struct sh_msg){.type = MSG_SHAPE_STATE,
                             .u.shape_state = {.version_id = 1, .sizes = {SIZES, 3}}});
    say(&x, &(struct sh_msg){.type = MSG_SHAPE_STATE,
                             .u.shape_state = {.version_id = 9, .sizes = {SIZES, 4}}});
    assert_int_equal(version()->n_shapes, 1);
}

static void what_nobody_asked_for_for_longest_is_forgotten(void **state)
{
    (void)state;
    w.conf.max_requests = w.conf.max_model_requests = 2 * SHAPES_MAX;
    w.tenants[0].max_concurrent_requests = 2 * SHAPES_MAX;
    serve();
    version()->warm = calloc(1, sizeof(*version()->warm));
    assert_non_null(version()->warm);
    version()->warm[version()->n_warm++] = (struct sh_sizes){.v = {999}, .n = 1};
    for (uint32_t i = 1; i <= SHAPES_MAX; i++) {
        assert_int_equal(ask(i), 0);
        sh_clock_advance(1);
    }
    assert_int_equal(ask(SHAPES_MAX + 1), SH_E_QUEUEFULL); /* requests of all others wait */
    forget_heard(&x);
    model_ready(&x, 1); /* it has a shape to be warm: there is no room for that either */
    assert_null(heard(&x, MSG_SHAPE_LOAD));
    assert_int_equal(ask(3), 0); /* once more: it is younger than 4 now */
    cancel(rid);
    cancel(5);
    cancel(3);
    cancel(4);
    assert_int_equal(ask(SHAPES_MAX + 1), 0); /* in place of 4 */
    assert_int_equal(version()->n_shapes, SHAPES_MAX);
    forget_heard(&x);
    assert_int_equal(ask(3), 0); /* it is known, and being compiled */
    assert_null(heard(&x, MSG_SHAPE_LOAD));
    assert_int_equal(ask(4), 0);
    hear(&x, MSG_SHAPE_LOAD);
    assert_int_equal(ask(5), SH_E_QUEUEFULL);
}

static void shapes_to_be_warm_are_asked_for_when_the_version_is_there(void **state)
{
    char many[400] = "[[],[1,2,3,4,5,6,7,8,9],7,[1,2]";

    (void)state;
    for (int i = 0; i < 20; i++)
        snprintf(many + strlen(many), sizeof(many) - strlen(many), ",[%d]%s", i + 10,
                 i < 19 ? "" : "]");
    w.models[0].warm = many;
    add_model(2, "m2")->warm = "not JSON";
    world_lead();
    exec_up(&x, "x");
    model_ready(&x, 1);
    assert_int_equal(version()->n_warm, SHAPES_MAX_WARM);
    for (uint32_t i = 0; i < SHAPES_MAX_WARM; i++) {
        const struct sh_blob sizes = hear(&x, MSG_SHAPE_LOAD)->u.shape_load.sizes;
        uint32_t first;

        memcpy(&first, sizes.data, sizeof(first));
        assert_int_equal(sizes.len, i ? 4 : 8);
        assert_int_equal(first, i ? i + 9 : 1);
    }
    assert_null(heard(&x, MSG_SHAPE_LOAD));
    shape_said(10, MSG_MODEL_READY, 0, 0);
    model_ready(&x, 1); /* said again: it was asked for all of them */
    assert_null(heard(&x, MSG_SHAPE_LOAD));
}

static void an_answer_that_does_not_come_is_asked_for_again(void **state)
{
    (void)state;
    w.conf.request_timeout_ms = 3600000;
    serve();
    assert_int_equal(ask(4), 0);
    hear(&x, MSG_SHAPE_LOAD);
    stay(59 * SECOND);
    assert_null(heard(&x, MSG_SHAPE_LOAD));
    stay(2 * SECOND);
    hear(&x, MSG_SHAPE_LOAD);
}

static void a_shape_that_is_there_runs_by_what_was_measured(void **state)
{
    struct predict_time t;

    (void)state;
    serve();
    assert_int_equal(ask(4), 0);
    assert_null(heard(&x, MSG_RUN));
    advance(250 * MS);
    shape_said(4, MSG_MODEL_READY, 0, PREDICT_N_BUCKETS + 2); /* more rows than buckets */
    assert_int_equal(hear(&a, MSG_INFER_PLACED)->u.infer_placed.compile_ns, 250 * MS);
    shape_said(4, MSG_MODEL_FAILED, SH_E_INVALID, 0); /* what runs goes on */
    assert_null(heard(&a, MSG_INFER_REFUSED));
    run_done(&x, run_sent(&x), 0);
    predict_run(&version()->shapes->predict, 1, 99, sh_clock_ns(), &t);
    assert_int_equal(t.usual_ns, 3 * MS);
    assert_int_equal(version()->shapes->n_users, 0);
    shape_said(4, MSG_MODEL_GONE, 0, 0); /* others took its place */
    assert_int_equal(ask(4), 0);
    hear(&x, MSG_SHAPE_LOAD);
}

static void wait_said(struct peer *p, int64_t version_id, uint32_t size, int64_t ns)
{
    say(p, &(struct sh_msg){.type = MSG_EXEC_WAIT,
                            .u.exec_wait = {.version_id = version_id,
                                            .sizes = {&size, size ? sizeof(size) : 0},
                                            .worker_ns = ns}});
}

/* Does a request of this shape (0: of version 2, which has none) go to x? */
static bool goes_to_x(uint32_t size)
{
    struct peer *p;

    infer_open(&a, ++rid, size ? 1 : 2, size > 0);
    infer_ready(&a, rid, &size, size > 0);
    p = strcmp(hear(&a, MSG_INFER_PLACED)->u.infer_placed.executor, "x") == 0 ? &x : &y;
    run_done(p, run_sent(p), 0);
    return p == &x;
}

static void a_wait_for_a_worker_is_that_of_a_version_or_of_one_shape(void **state)
{
    (void)state;
    add_model(2, "m2");
    serve();
    exec_up(&y, "y");
    for (int64_t v = 1; v <= 2; v++) {
        model_ready(&x, v);
        model_ready(&y, v);
    }
    for (uint32_t size = 4; size <= 8; size += 4) {
        shape_said_by(&x, size, MSG_MODEL_READY, 0, 1);
        shape_said_by(&y, size, MSG_MODEL_READY, 0, 1);
        assert_true(goes_to_x(size));
    }
    wait_said(&x, 1, 4, SECOND);
    assert_false(goes_to_x(4));
    assert_true(goes_to_x(8));
    wait_said(&x, 1, 4, -1);
    assert_true(goes_to_x(4));
    wait_said(&x, 1, 0, SECOND);
    assert_false(goes_to_x(8));
    assert_true(goes_to_x(0));
    wait_said(&x, 3, 0, SECOND); /* of none */
    wait_said(&x, 1, 5, SECOND);
    model_said(&x, (struct msg_model_state){.version_id = 1, .state = MSG_MODEL_LOADING});
    model_ready(&x, 1); /* it is there anew */
    wait_said(&y, 1, 0, SECOND / 2);
    assert_true(goes_to_x(8));
}

/* What a slow cold run may take is asked of the model, whatever the shape. */
static void a_cold_run_of_a_shape_is_judged_with_those_of_its_model(void **state)
{
    struct predict *p;

    (void)state;
    serve();
    p = &version()->predict;
    assert_int_equal(ask(4), 0);
    version()->on[0].resident_bytes = 0;
    shape_said(4, MSG_MODEL_READY, 0, 1);
    assert_true(p->stretch[PREDICT_COLD] == 0);
    run_done(&x, run_sent(&x), 0);
    assert_true(p->stretch[PREDICT_COLD] != 0 && p->stretch[PREDICT_WARM] == 0);
    assert_true(version()->shapes->predict.stretch[PREDICT_COLD] == 0);
    assert_int_equal(ask(4), 0); /* a warm one: with those of its shape */
    run_done(&x, run_sent(&x), 0);
    assert_true(version()->shapes->predict.stretch[PREDICT_WARM] != 0 &&
                p->stretch[PREDICT_WARM] == 0);
}

static void one_that_cannot_be_is_refused_and_what_may_work_later_asked_for_again(void **state)
{
    (void)state;
    serve();
    assert_int_equal(ask(4), 0);
    infer_open(&a, 100, 1, true); /* its sizes are not known yet */
    shape_said(4, MSG_MODEL_FAILED, SH_E_DEVMEM, 0);
    assert_int_equal(hear(&a, MSG_INFER_REFUSED)->u.infer_refused.rc, SH_E_DEVMEM);
    assert_null(heard(&a, MSG_INFER_REFUSED));
    assert_int_equal(ask(4), 0);
    hear(&x, MSG_SHAPE_LOAD);
    shape_said(4, MSG_MODEL_FAILED, SH_E_INVALID, 0);
    assert_int_equal(hear(&a, MSG_INFER_REFUSED)->u.infer_refused.rc, SH_E_INVALID);
    assert_int_equal(ask(4), SH_E_INVALID); /* it is known */
}

/* Its last worker that had the shape died, say. */
static void what_waits_where_its_shape_is_not_ready_any_more_is_placed_elsewhere(void **state)
{
    static const enum msg_model_phase PHASES[] = {MSG_MODEL_LOADING, MSG_MODEL_FAILED,
                                                  MSG_MODEL_GONE};

    for (size_t i = 0; i < SH_ARRAY_LEN(PHASES); i++) {
        begin(state);
        w.models[0].max_batch = 1;
        serve();
        assert_int_equal(ask(4), 0);
        shape_said(4, MSG_MODEL_READY, 0, 1);
        while (rid <= (uint64_t)w.conf.max_runs)
            assert_int_equal(ask(4), 0); /* the last one waits for x */
        exec_up(&y, "y");
        model_ready(&y, 1);
        shape_said_by(&y, 4, MSG_MODEL_READY, 0, 1);
        assert_null(heard(&y, MSG_RUN));
        shape_said(4, PHASES[i], SH_E_INVALID, 0);
        run_done(&y, run_sent(&y), 0);
        assert_null(heard(&a, MSG_INFER_REFUSED));
        end(state);
    }
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, begin, end)
    const struct CMUnitTest tests[] = {
        TEST(sizes_that_are_none_are_refused),
        TEST(what_nobody_asked_for_for_longest_is_forgotten),
        TEST(shapes_to_be_warm_are_asked_for_when_the_version_is_there),
        TEST(an_answer_that_does_not_come_is_asked_for_again),
        TEST(a_shape_that_is_there_runs_by_what_was_measured),
        TEST(a_wait_for_a_worker_is_that_of_a_version_or_of_one_shape),
        TEST(a_cold_run_of_a_shape_is_judged_with_those_of_its_model),
        TEST(one_that_cannot_be_is_refused_and_what_may_work_later_asked_for_again),
        cmocka_unit_test(what_waits_where_its_shape_is_not_ready_any_more_is_placed_elsewhere),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
