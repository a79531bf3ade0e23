/* test_sched_rules.c - the rule behind what is decided against a job or a request that waits: what
 * its executor hears, and what is counted.
 *
 * Without it: a log or a metric could name another rule than the one by which it was decided. */
/* uses: scheduler/jobs/jobs.o scheduler/jobs/jobs_db.o scheduler/pass/pass_requests.o tests/unit/sched_world.o libscheduler.a */
/* link: -lpq */
#include "scheduler/explain.h"
#include "scheduler/models/serving.h"
#include "tests/unit/sched_world.h"

static struct peer x, y, a;   /* executors and an API */
static struct store_job *row; /* of job 5 */

/* Job 5 was sent to executor x. */
static void start(void)
{
    row = add_job(5);
    world_lead();
    exec_up(&x, "x");
    hear(&x, MSG_JOB_START);
}

static void phase(enum msg_job_phase phase)
{
    say(&x, &(struct sh_msg){.type = MSG_JOB_STATE,
                             .u.job_state = {.job = 5, .attempt = 1, .state = phase}});
}

static void it_stops_by(const char *rule, enum msg_job_how how)
{
    const struct sh_msg *m = hear(&x, MSG_JOB_STOP);

    assert_int_equal(m->u.job_stop.how, how);
    assert_int_equal(strncmp(m->u.job_stop.why, rule, strlen(rule)), 0);
    assert_true(strcspn(m->u.job_stop.why, ", ") == strlen(rule));
}

static void who_gives_way_hears_the_rule_and_it_is_counted(void **state)
{
    double preempted = decided("preempt", "FairShare"), queued = decided("requeue", "FairShare");
    double moved = decided("move", "FirstFree"), stopped = decided("requeue", "ExecutorStopping");

    (void)state;
    start();
    phase(MSG_JOB_RUNNING);
    jobs_suspend(w.s, job_of(5), DECIDE_FAIR_SHARE);
    it_stops_by("FairShare", MSG_JOB_HOW_SUSPEND);
    assert_true(decided("preempt", "FairShare") == preempted + 1);
    assert_true(decided("requeue", "FairShare") == queued);
    phase(MSG_JOB_SUSPENDED);
    assert_true(decided("requeue", "FairShare") == queued + 1);
    look_again();
    hear(&x, MSG_JOB_START);
    assert_true(decided("move", "FirstFree") == moved); /* it is where it was */
    phase(MSG_JOB_RUNNING);
    say(&x, &(struct sh_msg){.type = MSG_EXEC_STATE, .u.exec_state = {.stopping = true}});
    phase(MSG_JOB_SUSPENDED); /* its executor's own wish */
    assert_true(decided("requeue", "ExecutorStopping") == stopped + 1);
    exec_up(&y, "y");
    look_again();
    hear(&y, MSG_JOB_START);
    assert_true(decided("move", "FirstFree") == moved + 1);
}

/* Its start took 7 s, its state has 2 GB, of which the link takes 10 a second and the disk 1, and
 * of 10 steps a second half a one is lost: 0.2 + 2 + 7 + 0.05 s. */
static void what_is_lost_is_told_before_and_when_it_gives_way(void **state)
{
    const char *text;
    json_t *o = NULL;

    (void)state;
    start();
    say(&x, &(struct sh_msg){.type = MSG_EXEC_STATE, .u.exec_state = {.disk_bytes_per_s = 1e9}});
    job_of(5)->step_samples = 8;
    stay(7 * SECOND);
    phase(MSG_JOB_RUNNING);
    assert_int_equal(job_of(5)->loss.all_ns, 7 * SECOND);
    say(&x, &(struct sh_msg){
                .type = MSG_JOB_STATE,
                .u.job_state = {
                    .job = 5, .attempt = 1, .state = MSG_JOB_RUNNING, .samples_per_s = 80}});
    say(&x, &(struct sh_msg){.type = MSG_JOB_CHECKPOINT,
                             .u.job_checkpoint = {.job = 5,
                                                  .attempt = 1,
                                                  .step = 3,
                                                  .path = "5/c",
                                                  .digest = "d",
                                                  .bytes = 2000000000}});
    assert_int_equal(job_of(5)->loss.all_ns, 9250 * MS);
    assert_ok(explain_job(w.s, 5, &o, NULL));
    text = json_string_value(json_object_get(o, "text"));
    assert_non_null(strstr(text, "about 9.2 s of GPU time would be lost: 2.2 s to save it, 7.0 s"));
    assert_int_equal(json_integer_value(json_object_get(o, "loss_ms")), 9250);
    json_decref(o);
    jobs_suspend(w.s, job_of(5), DECIDE_FAIR_SHARE);
    assert_string_equal(hear(&x, MSG_JOB_STOP)->u.job_stop.why,
                        "FairShare, which loses about 9.2 s of GPU time");
}

static void what_a_client_wished_is_the_rule(void **state)
{
    static const struct {
        const char *wish, *rule;
    } CASES[] = {{"SUSPEND", "Suspended"}, {"REQUEUE", "Requeued"}};

    for (size_t i = 0; i < SH_ARRAY_LEN(CASES); i++) {
        double preempted = decided("preempt", CASES[i].rule);
        double queued = decided("requeue", CASES[i].rule);
        double others = decided("requeue", "ExecutorStopping");

        world_begin(state);
        start();
        phase(MSG_JOB_RUNNING);
        row->wish = CASES[i].wish;
        look_again();
        it_stops_by(CASES[i].rule, MSG_JOB_HOW_SUSPEND);
        look_again();
        assert_true(decided("preempt", CASES[i].rule) == preempted + 1); /* it is told once */
        phase(MSG_JOB_SUSPENDED);
        assert_true(decided("requeue", CASES[i].rule) == queued + 1);
        assert_true(decided("requeue", "ExecutorStopping") == others);
        world_end(state);
    }
}

static void explained_by(int64_t job, const char *reason, const char *text)
{
    json_t *o = NULL;

    assert_ok(explain_job(w.s, job, &o, NULL));
    assert_string_equal(json_string_value(json_object_get(o, "reason")), reason);
    assert_non_null(strstr(json_string_value(json_object_get(o, "text")), text));
    json_decref(o);
}

static void what_ends_a_job_or_takes_it_from_an_executor_has_a_name(void **state)
{
    double inference = decided("preempt", "Inference"), lost = decided("requeue", "ExecutorLost");
    double expired = decided("expire", "DeadlinePassed"), held = decided("preempt", "ImagesFirst");

    (void)state;
    w.conf.grace_ms = 1000;
    start();
    say(&x, &(struct sh_msg){.type = MSG_JOB_STATE,
                             .u.job_state = {.job = 6, .attempt = 1, .state = MSG_JOB_RUNNING}});
    it_stops_by("NotItsJob", MSG_JOB_HOW_CANCEL);
    explained_by(5, "", "It has an executor and starts now. It has priority");
    phase(MSG_JOB_RUNNING);
    phase(MSG_JOB_PREEMPTED);
    assert_true(decided("preempt", "Inference") == inference + 1);
    phase(MSG_JOB_PREEMPTED); /* nothing new */
    assert_true(decided("preempt", "Inference") == inference + 1);
    explained_by(5, "Inference", "A request has the device");
    phase(MSG_JOB_RUNNING);
    explained_by(5, "", "It has priority");
    say(&x, &(struct sh_msg){
                .type = MSG_JOB_STATE,
                .u.job_state = {
                    .job = 5, .attempt = 1, .state = MSG_JOB_PREEMPTED, .msg = "ImagesFirst"}});
    assert_true(decided("preempt", "ImagesFirst") == held + 1);
    assert_true(decided("preempt", "Inference") == inference + 1);
    explained_by(5, "ImagesFirst", "It is held off");
    peer_close(&x);
    advance(2 * SECOND);
    assert_true(decided("requeue", "ExecutorLost") == lost + 1);
    job_of(5)->deadline_ns = sh_clock_ns() - 1;
    jobs__expire(w.s, job_of(5), sh_clock_ns());
    assert_true(decided("expire", "DeadlinePassed") == expired + 1);
    world_end(state);
    world_begin(state);
    start();
    phase(MSG_JOB_RUNNING);
    row->state = "CANCELLING";
    look_again();
    it_stops_by("Cancelled", MSG_JOB_HOW_CANCEL);
}

/* Each pass finds the same reason again. */
static void a_wait_is_counted_when_its_reason_changes(void **state)
{
    double no_executor = decided("wait", "NoExecutor"), resources = decided("wait", "Resources");

    (void)state;
    add_job(5);
    world_lead();
    for (int i = 0; i < 3; i++)
        look_again();
    assert_true(decided("wait", "NoExecutor") == no_executor + 1);
    exec_up(&x, "x");
    hear(&x, MSG_JOB_START);
    add_job(6);
    for (int i = 0; i < 3; i++)
        look_again();
    assert_true(decided("wait", "NoExecutor") == no_executor + 1);
    assert_true(decided("wait", "Resources") == resources + 1);
}

/* Each pass finds it waiting again. */
static void who_waits_for_its_model_is_counted_once(void **state)
{
    const double before = decided("wait", "ModelLoading");

    (void)state;
    w.conf.load_wait_ms = 60000;
    world_lead();
    exec_up(&x, "x");
    api_hello(&a, 7);
    infer_open(&a, 1, 1, false);
    infer_ready(&a, 1, NULL, 0);
    for (int i = 0; i < 3; i++) {
        waiting_touch_all(w.s);
        advance(SECOND);
    }
    assert_null(heard(&a, MSG_INFER_REFUSED));
    assert_true(decided("wait", "ModelLoading") == before + 1);
    model_ready(&x, 1);
    hear(&x, MSG_RUN);
    assert_true(decided("wait", "ModelLoading") == before + 1);
}

/* Version 1 is shut at x for now: others, which are on no executor, are in its way. It is not calm
 * there. */
static void shut_at(struct exec *e)
{
    const int64_t now = sh_clock_ns();
    struct thrash *t = &e->thrash;

    e->info.pool_bytes = 1000;
    exec_changed(&w.s->execs, e);
    *t = (struct thrash){.looked_ns = now, .ns = 1e9, .run_ns = 9e8, .n_asked = 100, .n_late = 50};
    t->of = calloc(THRASH_MAX, sizeof(*t->of));
    assert_non_null(t->of);
    t->of[0] = (struct thrash_model){.version = 1, .bytes = 600, .last_ns = now, .shut_ns = now};
    t->of[1] = (struct thrash_model){.version = 2, .bytes = 600, .last_ns = now};
    t->n = 2;
    t->n_shut = 1;
}

static struct exec *serve_shut(void)
{
    struct exec *e;

    w.models[0].image_bytes = 600;
    w.conf.request_timeout_ms = 100000;
    world_lead();
    e = exec_up(&x, "x");
    model_ready(&x, 1);
    api_hello(&a, 7);
    infer_open(&a, 1, 1, false);
    infer_ready(&a, 1, NULL, 0);
    run_done(&x, run_sent(&x), SH_OK);
    shut_at(e);
    models_find(&w.s->models, 1)->on[0].resident_bytes = 0;
    return e;
}

static void open_with_limit(uint64_t rid, int64_t budget_ns)
{
    say(&a,
        &(struct sh_msg){
            .type = MSG_INFER_OPEN,
            .u.infer_open = {
                .rid = rid, .tenant = "t", .model = "m", .version_id = 1, .budget_ns = budget_ns}});
}

static void a_model_that_is_shut_refuses_who_has_a_deadline_and_lets_others_wait(void **state)
{
    const double waits = decided("wait", "Thrashing"), refused = decided("refuse", "Thrashing");
    struct exec *e;

    (void)state;
    e = serve_shut();
    open_with_limit(2, 20 * SECOND);
    assert_int_equal(hear(&a, MSG_INFER_REFUSED)->u.infer_refused.rc, SH_E_UNAVAILABLE);
    assert_true(decided("refuse", "Thrashing") == refused + 1);
    for (uint64_t rid = 3; rid <= 5; rid++) {
        infer_open(&a, rid, 1, false);
        infer_ready(&a, rid, NULL, 0);
    }
    assert_true(decided("wait", "Thrashing") == waits + 3);
    for (int i = 0; i < 3; i++)
        stay(100 * MS); /* several looks */
    assert_null(heard(&x, MSG_RUN));
    assert_null(heard(&a, MSG_INFER_REFUSED));
    assert_true(decided("wait", "Thrashing") == waits + 3);
    assert_true(e->thrash.of[0].n_asked <= 4); /* each was counted once */
    stay(500 * MS);                            /* it is idle */
    hear(&x, MSG_RUN);
    assert_int_equal(e->thrash.n_shut, 1);
}

static void who_waits_for_it_comes_when_it_opens(void **state)
{
    struct exec *e;

    (void)state;
    e = serve_shut();
    for (uint64_t rid = 3; rid <= 5; rid++) {
        infer_open(&a, rid, 1, false);
        infer_ready(&a, rid, NULL, 0);
    }
    for (int i = 0; i < 100; i++) { /* others run all the time */
        e->done_ns = sh_clock_ns();
        e->thrash.of[1].last_ns = sh_clock_ns();
        e->thrash.run_ns = e->thrash.ns;
        stay(250 * MS);
    }
    assert_null(heard(&x, MSG_RUN));
    assert_int_equal(w.s->requests.waiting.parked.n, 3);
    for (int i = 0; i < 40 && !e->runs; i++) {
        e->done_ns = sh_clock_ns();
        e->thrash.of[1].last_ns = sh_clock_ns();
        stay(250 * MS);
    }
    hear(&x, MSG_RUN);
    assert_int_equal(w.s->requests.waiting.parked.n, 0);
}

static void who_waits_for_it_comes_after_half_of_its_time(void **state)
{
    struct exec *e;

    (void)state;
    e = serve_shut();
    w.conf.request_timeout_ms = 4000;
    infer_open(&a, 3, 1, false);
    infer_ready(&a, 3, NULL, 0);
    for (int i = 0; i < 19; i++) {
        e->done_ns = sh_clock_ns();
        stay(100 * MS);
    }
    assert_null(heard(&x, MSG_RUN));
    for (int i = 0; i < 3; i++) {
        e->done_ns = sh_clock_ns();
        stay(100 * MS);
    }
    hear(&x, MSG_RUN);
    assert_int_equal(e->thrash.n_shut, 1);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, world_begin, world_end)
    const struct CMUnitTest tests[] = {
        TEST(who_gives_way_hears_the_rule_and_it_is_counted),
        TEST(what_is_lost_is_told_before_and_when_it_gives_way),
        cmocka_unit_test(what_a_client_wished_is_the_rule),
        TEST(what_ends_a_job_or_takes_it_from_an_executor_has_a_name),
        TEST(a_wait_is_counted_when_its_reason_changes),
        TEST(who_waits_for_its_model_is_counted_once),
        TEST(a_model_that_is_shut_refuses_who_has_a_deadline_and_lets_others_wait),
        TEST(who_waits_for_it_comes_when_it_opens),
        TEST(who_waits_for_it_comes_after_half_of_its_time),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
