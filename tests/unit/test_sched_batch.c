/* test_sched_batch.c - where batch inference begins.
 *
 * Without it: a job could begin where its version has failed for good, though others can run it, or
 * end there. */
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

static void said(struct msg_job_state m)
{
    const struct sh_msg msg = {.type = MSG_JOB_STATE, .u.job_state = m};

    say(&x, &msg);
}

static void batch_inference_begins_also_where_its_version_was_forgotten(void **state)
{
    (void)state;
    row->line.is_batch = true;
    w.held = "job.start";
    world_lead();
    exec_up(&x, "x");
    model_ready(&x, 1);
    w.n_models = 0; /* it was deleted meanwhile */
    look_again();
    assert_int_equal(w.s->models.n, 0);
    w.held = NULL;
    turn();
    assert_int_equal(hear(&x, MSG_BATCH_START)->u.batch_start.version_id, 1);
}

static void model_failed(struct peer *p)
{
    model_said(p, (struct msg_model_state){
                      .version_id = 1, .state = MSG_MODEL_FAILED, .rc = SH_E_UNSUPPORTED});
}

static void batch_inference_goes_on_where_others_can_run_it(void **state)
{
    (void)state;
    row->line.is_batch = true;
    w.held = "job.start"; /* x is the first that a new leader hears of */
    world_lead();
    exec_up(&x, "x");
    model_failed(&x);
    exec_up(&y, "y");
    model_ready(&y, 1);
    w.held = NULL;
    turn();
    assert_int_equal(hear(&x, MSG_BATCH_START)->u.batch_start.job, 5);
    said((struct msg_job_state){
        .job = 5, .attempt = 1, .state = MSG_JOB_FAILED, .rc = SH_E_UNSUPPORTED, .msg = "no"});
    assert_non_null(job_of(5)); /* it has not ended */
    stay(2 * SECOND);
    assert_int_equal(hear(&y, MSG_BATCH_START)->u.batch_start.job, 5);
    assert_null(jobs_pool_fault(w.s));
}

static void batch_inference_does_not_begin_where_its_version_has_failed(void **state)
{
    static const struct {
        bool fails_first; /* before the job is there */
        bool fails_on_y;  /* as well: then any executor says why */
        bool is_batch;
        bool on_y;
    } CASES[] = {{true, false, true, true},
                 {false, false, true, true},
                 {true, true, true, false},
                 {true, false, false, false}};

    for (size_t i = 0; i < SH_ARRAY_LEN(CASES); i++) {
        const enum sh_msg_type type = CASES[i].is_batch ? MSG_BATCH_START : MSG_JOB_START;

        begin(state);
        w.n_jobs = 0;
        world_lead();
        exec_up(&x, "x");
        exec_up(&y, "y");
        if (CASES[i].fails_first)
            model_failed(&x);
        if (CASES[i].fails_on_y)
            model_failed(&y);
        else
            model_ready(&y, 1);
        w.is_down = !CASES[i].fails_first; /* no pass finds it before */
        row = add_job(5);
        row->line.is_batch = CASES[i].is_batch;
        look_again();
        if (!CASES[i].fails_first)
            model_failed(&x);
        assert_null(jobs_pool_fault(w.s));
        w.is_down = false;
        stay(2 * SECOND);
        assert_int_equal(hear(CASES[i].on_y ? &y : &x, type)->u.job_start.job, 5);
        assert_null(heard(CASES[i].on_y ? &x : &y, type));
        assert_null(jobs_pool_fault(w.s));
        end(state);
    }
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, begin, end)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(batch_inference_begins_also_where_its_version_was_forgotten),
        TEST(batch_inference_goes_on_where_others_can_run_it),
        cmocka_unit_test(batch_inference_does_not_begin_where_its_version_has_failed),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
