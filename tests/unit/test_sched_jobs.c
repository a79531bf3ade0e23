/* test_sched_jobs.c - a job between its executor, the database and the leader.
 *
 * Without it: what an executor says wrongly, late or of a job that it does not have any more could
 * be believed, and a write that fails could leave a job with two lives. */
/* uses: scheduler/jobs/jobs.o scheduler/jobs/jobs_db.o tests/unit/sched_world.o libscheduler.a */
/* link: -lpq */
#include "tests/unit/sched_world.h"

static struct peer x, y;
static struct store_job *row; /* of job 5 */

static int begin(void **state)
{
    world_begin(state);
    x = y = (struct peer){.fd = -1};
    row = add_job(5);
    return 0;
}

static int end(void **state)
{
    peer_close(&x);
    peer_close(&y);
    return world_end(state);
}

/* Job 5 was sent to executor x. */
static void start(void)
{
    world_lead();
    exec_up(&x, "x");
    assert_int_equal(
        hear(&x, row->line.is_batch ? MSG_BATCH_START : MSG_JOB_START)->u.job_start.job, 5);
    assert_int_equal(job_of(5)->state, JOB_STARTING);
}

static void said(struct msg_job_state m)
{
    const struct sh_msg msg = {.type = MSG_JOB_STATE, .u.job_state = m};

    say(&x, &msg);
}

static void phase(enum msg_job_phase phase)
{
    said((struct msg_job_state){
        .job = 5, .attempt = job_of(5) ? job_of(5)->attempt : 1, .state = phase});
}

/* ------------------------------------------------------------------ what an executor says */

static void what_is_not_the_executors_is_not_believed(void **state)
{
    static const struct {
        int64_t job;
        uint32_t attempt;
        bool is_its;
    } CASES[] = {{5, 1, true}, {5, 2, false}, {6, 1, false}, {7, 1, false}};
    struct store_job *other = add_job(7);

    (void)state;
    other->state = "RUNNING";
    other->executor = "y";
    w.conf.grace_ms = 600000; /* that one may come back */
    start();
    phase(MSG_JOB_RUNNING);
    for (size_t i = 0; i < SH_ARRAY_LEN(CASES); i++) {
        const int64_t job = CASES[i].job;
        const uint32_t attempt = CASES[i].attempt;
        char path[16];

        snprintf(path, sizeof(path), "%d/c", (int)job);
        w.wrote = (struct store_write){0};
        forget_heard(&x);
        said((struct msg_job_state){.job = job, .attempt = attempt, .state = MSG_JOB_RUNNING});
        assert_int_equal(!!heard(&x, MSG_JOB_STOP), !CASES[i].is_its); /* it must not go on */
        say(&x,
            &(struct sh_msg){.type = MSG_JOB_EVALUATED,
                             .u.job_evaluated = {.job = job, .attempt = attempt, .text = "{}"}});
        say(&x, &(struct sh_msg){
                    .type = MSG_JOB_CHECKPOINT,
                    .u.job_checkpoint = {
                        .job = job, .attempt = attempt, .step = 3, .path = path, .digest = "d"}});
        say(&x, &(struct sh_msg){.type = MSG_JOB_SAVED,
                                 .u.job_saved = {.job = job, .attempt = attempt, .asked = 1}});
        advance(2 * SECOND); /* progress is written at most once a second */
        assert_int_equal(w.wrote.job, CASES[i].is_its ? 5 : 0);
        assert_int_equal(job_of(5)->checkpoint_step, 3);
        said((struct msg_job_state){.job = 6, .attempt = attempt, .state = MSG_JOB_FAILED});
        assert_null(heard(&x, MSG_JOB_STOP)); /* it has stopped by itself */
    }
    assert_string_equal(job_of(5)->evaluation, "{}");
    assert_int_equal(job_of(7)->checkpoint_step, -1);
}

static void what_a_start_is_being_recorded_for_is_not_there_yet(void **state)
{
    (void)state;
    w.held = "job.start";
    world_lead();
    exec_up(&x, "x");
    phase(MSG_JOB_RUNNING);
    assert_int_equal(hear(&x, MSG_JOB_STOP)->u.job_stop.how, MSG_JOB_HOW_CANCEL);
    assert_int_equal(job_of(5)->state, JOB_STARTING);
}

static void a_phase_out_of_order_changes_nothing(void **state)
{
    (void)state;
    start();
    phase(MSG_JOB_COMPLETING);
    assert_int_equal(job_of(5)->state, JOB_COMPLETING);
    phase(MSG_JOB_RUNNING);
    assert_int_equal(job_of(5)->state, JOB_COMPLETING);
    phase((enum msg_job_phase)99);
    assert_int_equal(job_of(5)->state, JOB_COMPLETING);
    assert_string_equal(row->state, "COMPLETING");
}

static void numbers_that_are_none_are_not_taken(void **state)
{
    (void)state;
    start();
    said((struct msg_job_state){.job = 5,
                                .attempt = 1,
                                .state = MSG_JOB_RUNNING,
                                .step = 4,
                                .steps = 10,
                                .loss = 0.5,
                                .samples_per_s = 7,
                                .busy_ns = SECOND});
    assert_true(job_of(5)->progress.samples_per_s == 7 && job_of(5)->progress.loss == 0.5);
    w.n_tenants = 0; /* its tenant is gone: there is nobody to charge */
    look_again();
    said((struct msg_job_state){.job = 5,
                                .attempt = 1,
                                .state = MSG_JOB_RUNNING,
                                .step = 5,
                                .loss = NAN,
                                .samples_per_s = INFINITY,
                                .busy_ns = 3 * SECOND,
                                .redone = -1,
                                .preemptions = -1});
    assert_true(job_of(5)->progress.samples_per_s == 7 && job_of(5)->progress.loss == 0.5);
    assert_int_equal(job_of(5)->progress.steps, 10);
    assert_int_equal(job_of(5)->progress.busy_ns, 3 * SECOND);
    assert_int_equal(job_of(5)->progress.redone + job_of(5)->progress.preemptions, 0);
    said((struct msg_job_state){
        .job = 5, .attempt = 1, .state = MSG_JOB_RUNNING, .step = 5, .samples_per_s = -1});
    assert_true(job_of(5)->progress.samples_per_s == 7);
    assert_int_equal(job_of(5)->progress.busy_ns, 3 * SECOND); /* it does not shrink */
}

/* Steps that a worker took with it are lost: nobody is to believe that the job stands there. */
static void one_that_leaves_stands_where_its_executor_says(void **state)
{
    static const enum msg_job_phase PHASES[] = {MSG_JOB_SUSPENDED, MSG_JOB_FAILED};
    static const int64_t AT[] = {0, 3};

    for (size_t i = 0; i < SH_ARRAY_LEN(PHASES) * SH_ARRAY_LEN(AT); i++) {
        begin(state);
        row->max_attempts = 3;
        start();
        said((struct msg_job_state){
            .job = 5, .attempt = 1, .state = MSG_JOB_RUNNING, .step = 9, .steps = 10});
        w.is_down = true; /* it stays QUEUED */
        said((struct msg_job_state){.job = 5,
                                    .attempt = 1,
                                    .state = PHASES[i / 2],
                                    .step = AT[i % 2],
                                    .rc = SH_E_UNAVAILABLE,
                                    .msg = "why"});
        assert_int_equal(job_of(5)->state, JOB_QUEUED);
        assert_int_equal(job_of(5)->progress.step, AT[i % 2]);
        assert_int_equal(w.wrote.changes[w.wrote.n_changes - 1].step, AT[i % 2]);
        end(state);
    }
}

static void failures_end_a_job_or_are_tried_again(void **state)
{
    static const struct {
        enum msg_job_phase before;
        int rc;
        uint64_t need_bytes;
        uint32_t max_attempts;
        const char *then, *reason; /* in the database */
        uint32_t attempt;
    } CASES[] = {
        {MSG_JOB_RUNNING, SH_E_INVALID, 0, 3, "FAILED", "INVALID", 1},
        {MSG_JOB_RUNNING, SH_E_NAN, 0, 3, "FAILED", "NAN", 1},
        {MSG_JOB_RUNNING, SH_E_UNAVAILABLE, 0, 3, "QUEUED", "BackoffUntil", 2},
        {MSG_JOB_RUNNING, SH_E_UNAVAILABLE, 0, 1, "FAILED", "UNAVAILABLE", 1},
        {MSG_JOB_RUNNING, SH_E_CONFLICT, 0, 3, "FAILED", "CONFLICT", 1},
        {MSG_JOB_STARTING, SH_E_CONFLICT, 0, 3, "QUEUED", "Resources", 1},
        {MSG_JOB_STARTING, SH_E_INVALID, 0, 3, "FAILED", "INVALID", 1},
        {MSG_JOB_RUNNING, SH_E_TOOBIG, 1, 3, "QUEUED", "GpuMemory", 1},
        {MSG_JOB_RUNNING, SH_E_TOOBIG, UINT64_MAX, 3, "FAILED", "TOOBIG", 1},
        {MSG_JOB_RUNNING, 0, 0, 3, "FAILED", "BUG", 1},
    };

    for (size_t i = 0; i < SH_ARRAY_LEN(CASES); i++) {
        begin(state);
        row->max_attempts = CASES[i].max_attempts;
        start();
        phase(CASES[i].before);
        w.is_down = true; /* what is QUEUED stays so */
        said((struct msg_job_state){.job = 5,
                                    .attempt = 1,
                                    .state = MSG_JOB_FAILED,
                                    .rc = CASES[i].rc,
                                    .msg = "why",
                                    .need_bytes = CASES[i].need_bytes});
        assert_string_equal(row->state, CASES[i].then);
        assert_string_equal(w.wrote.changes[w.wrote.n_changes - 1].reason, CASES[i].reason);
        assert_int_equal(w.wrote.attempt, CASES[i].attempt);
        assert_int_equal(!job_of(5), strcmp(row->state, "FAILED") == 0);
        end(state);
    }
}

static void only_a_whole_result_is_a_success(void **state)
{
    static const struct {
        const char *result;
        bool publishes;
        int64_t step;
        const char *then;
    } CASES[] = {
        {"{\"digest\":\"" W_DIGEST "\"}", false, 4, "SUCCEEDED"},
        {"{\"digest\":\"" W_DIGEST "\"}", false, 0, "SUCCEEDED"},
        {"{\"digest\":\"" W_DIGEST "\"}", true, 4, "FAILED"},
        {"{\"package_digest\":\"" W_DIGEST "\",\"meta\":{}}", true, 4, "SUCCEEDED"},
        {"{}", false, 4, "FAILED"},
        {"", false, 4, "FAILED"},
    };

    for (size_t i = 0; i < SH_ARRAY_LEN(CASES); i++) {
        begin(state);
        row->publishes = CASES[i].publishes;
        start();
        said((struct msg_job_state){.job = 5,
                                    .attempt = 1,
                                    .state = MSG_JOB_DONE,
                                    .step = CASES[i].step,
                                    .busy_ns = SECOND,
                                    .result = CASES[i].result});
        assert_string_equal(row->state, CASES[i].then);
        assert_null(job_of(5));
        assert_int_equal(w.s->past.n, strcmp(CASES[i].then, "SUCCEEDED") == 0 && CASES[i].step);
        end(state);
    }
}

/* Not before: who dies meanwhile is asked once more, and needs what it has. */
static void its_executor_hears_of_an_end_that_is_recorded(void **state)
{
    static const enum msg_job_phase PHASES[] = {MSG_JOB_DONE, MSG_JOB_SUSPENDED};

    for (size_t i = 0; i < SH_ARRAY_LEN(PHASES); i++) {
        begin(state);
        row->line.is_batch = true;
        start();
        exec_up(&y, "y");
        phase(MSG_JOB_RUNNING);
        w.held = "job.write";
        said((struct msg_job_state){.job = 5,
                                    .attempt = 1,
                                    .state = PHASES[i],
                                    .step = 4,
                                    .result = "{\"digest\":\"" W_DIGEST "\"}"});
        assert_null(heard(&x, MSG_JOB_ENDED));
        w.held = NULL;
        turn();
        if (PHASES[i] == MSG_JOB_DONE)
            assert_int_equal(hear(&x, MSG_JOB_ENDED)->u.job_ended.job, 5);
        else
            assert_null(heard(&x, MSG_JOB_ENDED)); /* it may come back */
        assert_null(heard(&y, MSG_JOB_ENDED));
        end(state);
    }
}

/* The API ended it as it waited: the one that had it last has kept what it had done. */
static void an_end_while_it_waits_is_told_to_who_had_it_last(void **state)
{
    (void)state;
    row->line.is_batch = true;
    start();
    phase(MSG_JOB_RUNNING);
    exec_up(&y, "y");
    world_set_job(5, JOB_SUSPENDED, "");
    phase(MSG_JOB_SUSPENDED);
    assert_null(heard(&x, MSG_JOB_ENDED));
    world_set_job(5, JOB_CANCELLED, "");
    look_at_all();
    assert_null(job_of(5));
    assert_int_equal(hear(&x, MSG_JOB_ENDED)->u.job_ended.job, 5);
    assert_null(heard(&y, MSG_JOB_ENDED));
}

static void a_checkpoint_lies_in_the_jobs_folder(void **state)
{
    static char long_path[300], long_digest[80];
    const struct {
        const char *path, *digest;
        bool is_taken;
    } CASES[] = {{"5/a", W_DIGEST, true},       {"6/a", W_DIGEST, false},
                 {"5/../6/a", W_DIGEST, false}, {"/5/a", W_DIGEST, false},
                 {long_path, W_DIGEST, false},  {"5/a", long_digest, false},
                 {"5/b", W_DIGEST, true}};

    (void)state;
    memset(long_path, 'a', sizeof(long_path) - 1);
    memcpy(long_path, "5/", 2);
    memset(long_digest, 'a', sizeof(long_digest) - 1);
    start();
    phase(MSG_JOB_RUNNING);
    for (size_t i = 0; i < SH_ARRAY_LEN(CASES); i++) {
        w.wrote.n_checkpoints = 0;
        say(&x, &(struct sh_msg){.type = MSG_JOB_CHECKPOINT,
                                 .u.job_checkpoint = {.job = 5,
                                                      .attempt = 1,
                                                      .step = (int64_t)i,
                                                      .path = CASES[i].path,
                                                      .digest = CASES[i].digest}});
        assert_int_equal(w.wrote.n_checkpoints, CASES[i].is_taken);
        if (CASES[i].is_taken)
            assert_int_equal(job_of(5)->checkpoint_step, i);
    }
}

static void an_evaluation_is_json_of_some_length(void **state)
{
    static char too_long[SH_JOB_EVALUATION_BYTES + 3] = "\"";
    const char *const texts[] = {"{\"loss\":1}", "{", "{\"loss\":2}", too_long};

    (void)state;
    memset(too_long + 1, 'a', SH_JOB_EVALUATION_BYTES);
    too_long[SH_JOB_EVALUATION_BYTES + 1] = '"';
    start();
    phase(MSG_JOB_RUNNING);
    for (size_t i = 0; i < SH_ARRAY_LEN(texts); i++) {
        say(&x, &(struct sh_msg){.type = MSG_JOB_EVALUATED,
                                 .u.job_evaluated = {.job = 5, .attempt = 1, .text = texts[i]}});
        advance(2 * SECOND);
        assert_string_equal(w.wrote.evaluation, i & 1 ? "" : texts[i]);
    }
}

/* ------------------------------------------------------------------ starts */

static void a_start_that_cannot_be_asked_for_is_tried_again(void **state)
{
    (void)state;
    world_lead();
    w.is_full = true;
    exec_up(&x, "x");
    assert_int_equal(job_of(5)->state, JOB_QUEUED);
    assert_true(job_of(5)->doubtful);
    assert_null(heard(&x, MSG_JOB_START));
    w.is_full = false;
    advance(SECOND);
    assert_int_equal(hear(&x, MSG_JOB_START)->u.job_start.job, 5);
}

static void a_start_is_what_the_database_makes_of_it(void **state)
{
    static const struct {
        enum job_state state;
        bool is_held;
    } CASES[] = {{JOB_FAILED, false}, {JOB_CANCELLED, false}, {JOB_HELD, false}};

    for (size_t i = 0; i < SH_ARRAY_LEN(CASES); i++) {
        struct store_start_out out = {.state = CASES[i].state};

        begin(state);
        world_lead();
        w.start_out = &out;
        exec_up(&x, "x");
        assert_null(heard(&x, MSG_JOB_START));
        assert_int_equal(!!job_of(5), CASES[i].is_held);
        assert_int_equal(execs_find(&w.s->execs, "x")->job, 0);
        end(state);
    }
}

/* The start was recorded, and cancelled, before word of it came: no executor is told of it. */
static void a_start_that_was_cancelled_meanwhile_has_ended(void **state)
{
    struct store_start_out out = {.state = JOB_CANCELLING};

    (void)state;
    world_lead();
    w.start_out = &out;
    exec_up(&x, "x");
    turn();
    assert_null(heard(&x, MSG_JOB_START));
    assert_string_equal(row->state, "CANCELLED");
    assert_null(job_of(5));
    assert_int_equal(execs_find(&w.s->execs, "x")->job, 0);
}

static void an_executor_that_is_not_there_when_the_start_is_recorded_does_not_get_it(void **state)
{
    for (int back = 0; back < 2; back++) {
        begin(state);
        w.held = "job.start";
        world_lead();
        exec_up(&x, "x");
        peer_close(&x);
        if (back)
            exec_hello(&x, "x", 2); /* and has not said what it holds */
        w.held = "job.write";
        turn();
        assert_int_equal(job_of(5)->state, JOB_QUEUED);
        assert_string_equal(job_of(5)->reason, "ExecutorLost");
        w.held = NULL;
        end(state);
    }
}

/* Before it says so, a start may be on its way: it refuses that, which is no failure of the job. */
static void an_executor_that_stops_gets_no_job(void **state)
{
    static const char *const BEFORE[] = {NULL, "job.start", ""};

    for (size_t i = 0; i < SH_ARRAY_LEN(BEFORE); i++) {
        begin(state);
        w.held = BEFORE[i];
        if (!BEFORE[i])
            w.is_down = true; /* no pass finds it */
        world_lead();
        exec_up(&x, "x");
        say(&x, &(struct sh_msg){.type = MSG_EXEC_STATE, .u.exec_state = {.stopping = true}});
        w.is_down = false;
        w.held = NULL;
        if (job_of(5)->sent)
            said((struct msg_job_state){
                .job = 5, .attempt = 1, .state = MSG_JOB_FAILED, .rc = SH_E_CONFLICT, .msg = "no"});
        forget_heard(&x);
        stay(5 * SECOND);
        assert_null(heard(&x, MSG_JOB_START));
        assert_int_equal(job_of(5)->state, JOB_QUEUED);
        assert_int_equal(job_of(5)->attempt, 1);
        peer_close(&x);
        exec_up(&x, "x"); /* it has started again */
        hear(&x, MSG_JOB_START);
        end(state);
    }
}

/* Nobody gets its slot: its job gives way to nobody, and when that ends, nothing is free. */
static void the_slot_of_an_executor_that_stops_is_nobodys(void **state)
{
    for (int is_leaving = 0; is_leaving < 2; is_leaving++) {
        begin(state);
        w.conf.min_run_ms = 0;
        start();
        phase(MSG_JOB_RUNNING);
        add_job(6); /* of the two, the one to give way first */
        look_again();
        exec_up(&y, "y");
        assert_int_equal(hear(&y, MSG_JOB_START)->u.job_start.job, 6);
        say(&y,
            &(struct sh_msg){.type = MSG_JOB_STATE,
                             .u.job_state = {.job = 6, .attempt = 1, .state = MSG_JOB_RUNNING}});
        if (is_leaving)
            jobs_suspend(w.s, job_of(6), DECIDE_FAIR_SHARE);
        say(&y, &(struct sh_msg){.type = MSG_EXEC_STATE, .u.exec_state = {.stopping = true}});
        assert_null(jobs_pool_fault(w.s));
        forget_heard(&y);
        add_tenant(2, "u")->guaranteed_gpus = 1;
        add_job(7)->line.tenant_id = 2;
        look_again();
        assert_int_equal(hear(&x, MSG_JOB_STOP)->u.job_stop.job, 5);
        assert_null(heard(&y, MSG_JOB_STOP));
        end(state);
    }
}

/* The leader before heard the end of job 6 and gave job 5 its executor, but did not record the
 * end. */
static void an_executor_is_free_when_all_that_it_had_have_left(void **state)
{
    (void)state;
    add_job(6);
    add_job(7);
    world_set_job(5, JOB_STARTING, "x");
    world_set_job(6, JOB_COMPLETING, "x");
    world_lead();
    exec_hello(&x, "x", 1);
    phase(MSG_JOB_COMPLETING);
    said((struct msg_job_state){
        .job = 6, .attempt = job_of(6)->attempt, .state = MSG_JOB_FAILED, .rc = SH_E_INVALID});
    exec_synced(&x, "x");
    assert_null(job_of(6));
    stay(5 * SECOND);
    assert_null(heard(&x, MSG_JOB_START)); /* it has job 5 */
    phase(MSG_JOB_CANCELLED);
    assert_int_equal(hear(&x, MSG_JOB_START)->u.job_start.job, 7);
}

/* By all that it takes, as far as its steps tell: judged when the level of what it has had rises,
 * and when it stops; not at each report, and not within the first level. */
static void the_place_of_a_job_follows_what_it_takes_in_all(void **state)
{
    static const int64_t SAYS[][3] = {{10, 30, 0}, {20, 60, 3000}, {40, 80, 3000}, {40, 80, 2000}};

    begin(state);
    w.conf.level_ms = 60000;
    start();
    for (size_t i = 0; i < SH_ARRAY_LEN(SAYS); i++) {
        said((struct msg_job_state){.job = 5,
                                    .attempt = 1,
                                    .state = i < 3 ? MSG_JOB_RUNNING : MSG_JOB_SUSPENDED,
                                    .step = SAYS[i][0],
                                    .steps = 1000,
                                    .busy_ns = SAYS[i][1] * SECOND});
        assert_int_equal(jobs__handicap_us(w.s, job_of(5)), 64 * SAYS[i][2] * INT64_C(1000000));
    }
    assert_int_equal(w.wrote.handicap_us, 64 * 2000 * INT64_C(1000000));
    assert_null(jobs_pool_fault(w.s));
    end(state);
}

/* It stands further back when it waits again, and one that came later goes first. */
static void a_job_that_has_had_much_goes_behind_another_of_its_tenant(void **state)
{
    for (int levels = 0; levels < 2; levels++) {
        begin(state);
        w.conf.level_ms = levels ? 60000 : 0;
        w.conf.min_run_ms = 0;
        start();
        phase(MSG_JOB_RUNNING);
        add_job(6);
        look_again();
        assert_null(heard(&x, MSG_JOB_STOP));
        said((struct msg_job_state){
            .job = 5, .attempt = 1, .state = MSG_JOB_RUNNING, .busy_ns = 61 * SECOND});
        assert_int_equal(heard(&x, MSG_JOB_STOP) != NULL, levels);
        said((struct msg_job_state){
            .job = 5, .attempt = 1, .state = MSG_JOB_SUSPENDED, .busy_ns = 61 * SECOND});
        assert_int_equal(w.wrote.handicap_us, levels ? 64 * 61 * INT64_C(1000000) : 0);
        if (levels)
            assert_string_equal(w.wrote.changes[0].reason, "AttainedTime");
        look_at_all();
        assert_int_equal(job_of(5)->place.line_us, row->place.line_us);
        assert_null(jobs_pool_fault(w.s));
        end(state);
    }
}

/* ------------------------------------------------------------------ wishes */

static void a_wish_is_told_once_and_only_of_what_was_sent(void **state)
{
    (void)state;
    start();
    row->wish = "SUSPEND";
    row->save_asked = 1;
    look_again();
    assert_int_equal(hear(&x, MSG_JOB_STOP)->u.job_stop.how, MSG_JOB_HOW_SUSPEND);
    look_again();
    assert_null(heard(&x, MSG_JOB_SAVE)); /* not before it runs */
    phase(MSG_JOB_RUNNING);
    look_again();
    assert_int_equal(hear(&x, MSG_JOB_SAVE)->u.job_save.asked, 1);
    look_again();
    assert_null(heard(&x, MSG_JOB_STOP));
    peer_close(&x);
    exec_hello(&x, "x", 1); /* back after a broken connection: it has the job */
    advance(SECOND);
    phase(MSG_JOB_RUNNING);
    exec_synced(&x, "x");
    advance(SECOND);
    assert_int_equal(hear(&x, MSG_JOB_STOP)->u.job_stop.how, MSG_JOB_HOW_SUSPEND);
    phase(MSG_JOB_SUSPENDED);
    assert_string_equal(row->state, "SUSPENDED");
    assert_int_equal(job_of(5)->state, JOB_SUSPENDED);
    look_again();
    assert_null(job_of(5)); /* the API has it */
}

static void who_is_away_is_not_asked_to_suspend(void **state)
{
    (void)state;
    start();
    phase(MSG_JOB_RUNNING);
    peer_close(&x);
    jobs_suspend(w.s, job_of(5), DECIDE_FAIR_SHARE);
    assert_false(job_of(5)->stopping);
    exec_hello(&x, "x", 1);
    phase(MSG_JOB_RUNNING);
    exec_synced(&x, "x");
    jobs_suspend(w.s, job_of(5), DECIDE_FAIR_SHARE);
    assert_true(job_of(5)->stopping);
    assert_string_equal(job_of(5)->reason, "FairShare");
    assert_int_equal(hear(&x, MSG_JOB_STOP)->u.job_stop.how, MSG_JOB_HOW_SUSPEND);
    row->state = "CANCELLING"; /* a client is faster */
    look_again();
    assert_int_equal(hear(&x, MSG_JOB_STOP)->u.job_stop.how, MSG_JOB_HOW_CANCEL);
    phase(MSG_JOB_RUNNING); /* it may not have heard */
    assert_int_equal(hear(&x, MSG_JOB_STOP)->u.job_stop.how, MSG_JOB_HOW_CANCEL);
    said((struct msg_job_state){
        .job = 5, .attempt = 1, .state = MSG_JOB_FAILED, .rc = SH_E_TOOBIG, .need_bytes = 1});
    assert_string_equal(row->state, "CANCELLED");
    assert_null(job_of(5));
}

/* ------------------------------------------------------------------ writes */

static void a_write_that_fails_is_looked_at_again(void **state)
{
    (void)state;
    start();
    db_fail("job.write", SH_E_INVALID, 1);
    phase(MSG_JOB_RUNNING);
    assert_string_equal(row->state, "STARTING");
    assert_int_equal(job_of(5)->state, JOB_STARTING); /* as the database has it */
    phase(MSG_JOB_RUNNING);
    assert_string_equal(row->state, "RUNNING");
    w.is_full = true;
    phase(MSG_JOB_PREEMPTED);
    assert_true(job_of(5)->doubtful && !job_of(5)->writing);
    w.is_full = false;
    look_again();
    assert_int_equal(job_of(5)->state, JOB_RUNNING);
    assert_string_equal(row->state, "RUNNING");
}

/* Another attempt would end like this one, and the one after that. */
static void a_result_that_the_database_refuses_fails_the_job(void **state)
{
    (void)state;
    start();
    phase(MSG_JOB_COMPLETING);
    db_fail("job.write", SH_E_INVALID, 1);
    said((struct msg_job_state){.job = 5,
                                .attempt = 1,
                                .state = MSG_JOB_DONE,
                                .step = 4,
                                .result = "{\"digest\":\"" W_DIGEST "\"}"});
    assert_string_equal(row->state, "FAILED");
    assert_int_equal(w.wrote.error_rc, SH_E_INVALID);
    assert_non_null(strstr(w.wrote.error, "result"));
    assert_null(job_of(5));
    assert_int_equal(execs_find(&w.s->execs, "x")->job, 0);
}

static void a_write_that_comes_too_late_changes_nothing(void **state)
{
    static const struct {
        const char *in_database;
        bool is_stopped;
    } CASES[] = {{"CANCELLED", true}, {"CANCELLING", true}, {"RUNNING", false}};

    for (size_t i = 0; i < SH_ARRAY_LEN(CASES); i++) {
        begin(state);
        start();
        phase(MSG_JOB_RUNNING);
        w.held = "job.write";
        phase(MSG_JOB_PREEMPTED);
        row->state = CASES[i].in_database;
        w.conflict = true;
        w.held = NULL;
        forget_heard(&x);
        turn();
        assert_int_equal(!!heard(&x, MSG_JOB_STOP), CASES[i].is_stopped);
        if (strcmp(row->state, "CANCELLED") == 0)
            assert_null(job_of(5));
        else
            assert_string_equal(job_state_name(job_of(5)->state), row->state);
        end(state);
    }
}

static void one_that_waits_and_was_ended_by_the_api_is_forgotten(void **state)
{
    (void)state;
    start();
    phase(MSG_JOB_RUNNING);
    w.held = "job.write";
    said((struct msg_job_state){.job = 5, .attempt = 1, .state = MSG_JOB_SUSPENDED});
    row->state = "CANCELLED";
    w.conflict = true;
    w.held = NULL;
    turn();
    assert_null(job_of(5));
}

static void a_refused_fence_ends_the_leadership(void **state)
{
    static const char *const OPS[] = {"job.write", "job.reasons", "changes.forget", "poll"};

    for (size_t i = 0; i < SH_ARRAY_LEN(OPS); i++) {
        begin(state);
        start();
        add_job(6); /* waits, with a reason */
        look_again();
        w.held = "lease"; /* who has it now keeps it */
        db_fail(OPS[i], SH_E_PRECONDITION, 1);
        phase(MSG_JOB_RUNNING);
        look_again();
        advance(6 * SECOND);
        assert_int_equal(w.s->epoch, 0);
        assert_int_equal(w.s->jobs.n, 0);
        assert_true(is_closed(&x));
        end(state);
    }
}

static void reasons_are_written_when_they_change(void **state)
{
    struct tenant *t;

    (void)state;
    start();
    add_job(6);
    look_again();
    t = tenants_by_id(&w.s->tenants, 1);
    t->n_jobs[JOB_QUEUED] = 1;
    advance(2 * SECOND);
    assert_int_equal(*world_count("job.reasons"), 1);
    assert_string_equal(job_of(6)->reason, "Resources");
    assert_true(t->n_jobs_shown[JOB_QUEUED]);
    jobs_set_reason(job_of(6), DECIDE_FAIR_SHARE);
    w.is_full = true;
    jobs_second(w.s);
    assert_false(w.s->jobs.reasons_writing);
    w.is_full = false;
    for (int i = 10; i < 290; i++)
        add_job(i);
    look_again();
    w.held = "job.reasons";
    advance(SECOND);
    jobs_second(w.s);
    assert_true(w.s->jobs.reasons_writing); /* one at a time */
    w.held = NULL;
    *world_count("job.reasons") = 0;
    advance(3 * SECOND);
    assert_int_equal(*world_count("job.reasons"), 1 + (w.s->jobs.n - 1) / STORE_MAX_REASONS);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, begin, end)
    const struct CMUnitTest tests[] = {
        TEST(what_is_not_the_executors_is_not_believed),
        TEST(what_a_start_is_being_recorded_for_is_not_there_yet),
        TEST(a_phase_out_of_order_changes_nothing),
        TEST(numbers_that_are_none_are_not_taken),
        cmocka_unit_test(one_that_leaves_stands_where_its_executor_says),
        cmocka_unit_test(failures_end_a_job_or_are_tried_again),
        cmocka_unit_test(only_a_whole_result_is_a_success),
        cmocka_unit_test(its_executor_hears_of_an_end_that_is_recorded),
        TEST(an_end_while_it_waits_is_told_to_who_had_it_last),
        TEST(a_checkpoint_lies_in_the_jobs_folder),
        TEST(an_evaluation_is_json_of_some_length),
        TEST(a_start_that_cannot_be_asked_for_is_tried_again),
        cmocka_unit_test(a_start_is_what_the_database_makes_of_it),
        TEST(a_start_that_was_cancelled_meanwhile_has_ended),
        cmocka_unit_test(an_executor_that_is_not_there_when_the_start_is_recorded_does_not_get_it),
        cmocka_unit_test(an_executor_that_stops_gets_no_job),
        cmocka_unit_test(the_slot_of_an_executor_that_stops_is_nobodys),
        TEST(an_executor_is_free_when_all_that_it_had_have_left),
        cmocka_unit_test(a_job_that_has_had_much_goes_behind_another_of_its_tenant),
        cmocka_unit_test(the_place_of_a_job_follows_what_it_takes_in_all),
        TEST(a_wish_is_told_once_and_only_of_what_was_sent),
        TEST(who_is_away_is_not_asked_to_suspend),
        TEST(a_write_that_fails_is_looked_at_again),
        TEST(a_result_that_the_database_refuses_fails_the_job),
        cmocka_unit_test(a_write_that_comes_too_late_changes_nothing),
        TEST(one_that_waits_and_was_ended_by_the_api_is_forgotten),
        cmocka_unit_test(a_refused_fence_ends_the_leadership),
        TEST(reasons_are_written_when_they_change),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
