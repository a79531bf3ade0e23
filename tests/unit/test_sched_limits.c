/* test_sched_limits.c - more tenants, versions, lines and jobs than the options of a scheduler
 * allow.
 *
 * Without it: a tenant that was not read would run without quotas, clients would be told to try
 * again for ever, nobody would learn which option it is, or one job too many would end all looks at
 * the database. */
/* uses: scheduler/pass/request.o scheduler/pass/pass.o scheduler/pass/pass_requests.o tests/unit/sched_world.o libscheduler.a */
/* link: -lpq */
#include "scheduler/explain.h"
#include "tests/unit/sched_world.h"

static struct peer x, a; /* an executor and an API */

static void serve(void)
{
    world_lead();
    exec_up(&x, "x");
    model_ready(&x, 1);
    api_hello(&a, 7);
    forget_heard(&x);
}

/* Of a tenant, for a version. */
static void ask(uint64_t rid, const char *tenant, int64_t version)
{
    say(&a,
        &(struct sh_msg){
            .type = MSG_INFER_OPEN,
            .u.infer_open = {.rid = rid, .tenant = tenant, .model = "m", .version_id = version}});
}

static void assert_refused(uint64_t rid, int rc, const char *option)
{
    const struct sh_msg *m = hear(&a, MSG_INFER_REFUSED);

    assert_int_equal(m->u.infer_refused.rid, rid);
    assert_int_equal(m->u.infer_refused.rc, rc);
    assert_has(m->u.infer_refused.msg, option);
}

static void a_tenant_too_many_is_refused_with_the_option(void **state)
{
    (void)state;
    w.conf.max_tenants = 1;
    add_tenant(2, "late");
    serve();
    ask(1, "t", 1);
    assert_null(heard(&a, MSG_INFER_REFUSED));
    ask(2, "late", 1); /* whether it is suspended, or has a quota, is not known */
    assert_refused(2, SH_E_UNAVAILABLE, "max-tenants");
    assert_int_equal(w.s->tenants.n, 1); /* nor does it take a place that one will need */
    w.tenants[0] = w.tenants[1];         /* the first one is deleted */
    w.n_tenants = 1;
    look_again();
    forget_heard(&a);
    ask(3, "late", 1);
    assert_null(heard(&a, MSG_INFER_REFUSED));
}

static void a_version_too_many_is_refused_with_the_option(void **state)
{
    (void)state;
    w.conf.max_versions = 1;
    add_model(2, "m2");
    serve();
    ask(1, "t", 2);
    assert_refused(1, SH_E_UNAVAILABLE, "max-versions");
    w.conf.max_versions = 2;
    look_again();
    w.n_models = 1;
    look_again(); /* there is room: one that nobody knows is too young */
    forget_heard(&a);
    ask(2, "t", 3);
    assert_refused(2, SH_E_UNAVAILABLE, "does not know this version");
}

/* As many as there may be, and each time the first one goes and another comes. */
static void versions_come_and_go_where_there_are_as_many_as_may_be(void **state)
{
    (void)state;
    w.conf.max_versions = 2;
    add_model(2, "m2");
    serve();
    for (int64_t id = 3; id <= 9; id++) {
        w.models[0] = w.models[1];
        w.n_models = 1;
        add_model(id, "m");
        look_again();
        assert_null(models_find(&w.s->models, id - 2));
        assert_non_null(models_find(&w.s->models, id - 1));
        assert_non_null(models_find(&w.s->models, id));
    }
}

static void a_request_too_many_is_refused_with_the_option(void **state)
{
    (void)state;
    w.conf.max_model_requests = 1;
    serve();
    ask(1, "t", 1);
    ask(2, "t", 1);
    assert_refused(2, SH_E_QUEUEFULL, "max-model-requests");
    w.conf.max_requests = 1;
    forget_heard(&a);
    ask(3, "t", 1);
    assert_refused(3, SH_E_QUEUEFULL, "max-requests");
}

static void why_a_job_of_a_tenant_too_many_waits_is_said_with_the_option(void **state)
{
    struct sh_err err = {0};
    json_t *answer = NULL;

    (void)state;
    w.conf.max_tenants = 1;
    add_tenant(2, "late");
    add_job(1)->line.tenant_id = 2;
    world_lead();
    exec_up(&x, "x");
    model_ready(&x, 1);
    assert_fails(explain_job(w.s, 1, &answer, &err), SH_E_UNAVAILABLE, &err, "max-tenants");
    assert_int_equal(w.s->execs.items[0]->job, 0); /* nor does it start */
}

/* Retries are in no line: after an outage there may be any number of them. */
static void of_too_many_jobs_the_next_attempt_waits_and_looks_go_on(void **state)
{
    (void)state;
    w.conf.max_lines = w.conf.max_busy_jobs = 16;
    w.conf.max_executors = 1;
    for (int64_t i = 1; i <= 100; i++)
        add_job(i)->not_before_s = 60;
    w.look.n_told = 100;
    world_lead();
    assert_int_equal(w.s->jobs.n, 2 * (16 + 16 + 1));
    assert_true(w.s->loaded);
    for (size_t i = 0; i < 90; i++) /* most have ended */
        w.jobs[i].state = "CANCELLED";
    w.look.n_told = 100;
    look_at_all();
    assert_int_equal(w.s->jobs.n, 10);
    assert_false(w.s->limits.of[LIMIT_BUSY].is_reached);
    w.look.n_told = 100;
    w.look.is_busy_cut = true; /* there are more than it may read */
    look_at_all();
    assert_true(w.s->limits.of[LIMIT_BUSY].is_reached);
    assert_true(metric("shunt_limit_reached{option=\"max-busy-jobs\"}") == 1);
}

/* There may be more executors than the option says jobs, and each may have one. */
static void jobs_on_executors_are_known_whatever_the_option_says(void **state)
{
    (void)state;
    w.conf.max_lines = w.conf.max_busy_jobs = 16;
    w.conf.max_executors = 200;
    for (int64_t i = 1; i <= 200; i++) {
        add_job(i);
        world_set_job(i, JOB_RUNNING, "gone");
    }
    world_lead();
    assert_true(w.s->loaded);
    assert_int_equal(w.s->jobs.n, 200);
    assert_in_range(w.asked.most.busy, 200 + 16, 1000); /* else the next look takes some for gone */
}

static void lines_beyond_the_option_wait_in_the_database(void **state)
{
    (void)state;
    w.conf.max_lines = 16;
    world_lead();
    for (int64_t i = 1; i <= 20; i++)
        add_job(i)->line.array_id = i;
    look_again();
    assert_int_equal(w.s->jobs.n, 16);
    assert_int_equal(w.s->jobs.lines.n, 16);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, world_begin, world_end)
    const struct CMUnitTest tests[] = {
        TEST(a_tenant_too_many_is_refused_with_the_option),
        TEST(a_version_too_many_is_refused_with_the_option),
        TEST(versions_come_and_go_where_there_are_as_many_as_may_be),
        TEST(a_request_too_many_is_refused_with_the_option),
        TEST(why_a_job_of_a_tenant_too_many_waits_is_said_with_the_option),
        TEST(of_too_many_jobs_the_next_attempt_waits_and_looks_go_on),
        TEST(jobs_on_executors_are_known_whatever_the_option_says),
        TEST(lines_beyond_the_option_wait_in_the_database),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
