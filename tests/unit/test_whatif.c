/* test_whatif.c - without it, what-if answers could be wrong and nobody would see it: changes that
 * change nothing, or something else; jobs that run twice, or from the beginning again. */
/* uses: libsimulate.a libscheduler.a */
/* link: -Wl,--wrap=session_send,--wrap=session_refuse,--wrap=sched_count */
/* link: -Wl,--wrap=dbthread_is_up,--wrap=jobs_train_on -lm -lpq -lmicrohttpd */
#include "scheduler/decide/conf.h"
#include "simulate/answer.h"
#include "simulate/change.h"
#include "simulate/world.h"
#include "tests/unit/sh_test.h"

#include <stdarg.h>
#include <stdio.h>

static void assert_near(double got, double want, double by)
{
    if (!(got >= want - by && got <= want + by))
        fail_msg("%g, not %g", got, want);
}

static json_t *json_of(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

static json_t *json_of(const char *fmt, ...)
{
    char text[8192];
    va_list ap;
    json_t *j;

    va_start(ap, fmt);
    vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    for (char *p = text; *p; p++)
        *p = *p == '\'' ? '"' : *p;
    j = json_loads(text, 0, NULL);
    assert_non_null(j);
    return j;
}

#define LIKE "'queue': 'default', 'version': 1, 'steps': 100, 'step_samples': 32"
/* Jobs of anna's model take a second to begin and a tenth for each step, those of bert's half. */
#define PAST                                                                                       \
    "{'id': 1, 'tenant': 'anna', 'state': 'SUCCEEDED', 'model': 1, 'step': 100, 'busy_s': 10, "    \
    "'created_s': 7300, 'queued_s': 7300, 'started_s': 7300, 'finished_s': 7289, 'one_start': "    \
    "true, " LIKE "}, {'id': 2, 'tenant': 'bert', 'state': 'SUCCEEDED', 'model': 2, 'step': 100, " \
    "'busy_s': 5, 'created_s': 7300, 'queued_s': 7300, 'started_s': 7300, 'finished_s': 7294, "    \
    "'one_start': true, " LIKE "}"

static json_t *snapshot_of(const char *jobs)
{
    return json_of("{'format': 3, 'at': '2026-01-01T00:00:00Z', 'scheduler': {}, "
                   "'gpus': [{'name': 'g0', 'pool_bytes': 1000}], 'tenants': [{'name': 'anna'}, "
                   "{'name': 'bert'}], 'jobs': [" PAST "%s%s]}",
                   *jobs ? ", " : "", jobs);
}

static json_t *ask(json_t *snapshot, const char *changes, double hours)
{
    json_t *question = json_of("{'changes': %s, 'hours': %g}", changes, hours), *said = NULL;
    struct sh_err err = {0};

    json_object_set_new(question, "snapshot", snapshot);
    assert_ok_err(answer(question, &said, &err), &err);
    json_decref(question);
    return said;
}

static double number(const json_t *said, const char *when, const char *what)
{
    return json_number_value(
        json_object_get(json_object_get(json_object_get(said, when), "jobs"), what));
}

static double of_tenant(const json_t *said, const char *when, size_t i, const char *what)
{
    return json_number_value(json_object_get(
        json_array_get(json_object_get(json_object_get(said, when), "tenants"), i), what));
}

/* ------------------------------------------------------------------ tests */

static void jobs_take_as_long_as_their_like(void **state)
{
    json_t *said =
        ask(snapshot_of("{'id': 3, 'tenant': 'anna', 'state': 'QUEUED', 'model': 1, " LIKE
                        "}, {'id': 4, 'tenant': 'anna', 'state': 'QUEUED', 'model': 1, "
                        "'priority': -1, " LIKE "}"),
            "[{'set': 'gpus', 'to': '+1'}]", 0);

    (void)state;
    assert_near(number(said, "before", "last_end_s"), 22, 0.01);
    assert_near(number(said, "before", "mean_wait_s"), 5.5, 0.01);
    assert_near(number(said, "after", "last_end_s"), 11, 0.01);
    assert_near(number(said, "after", "mean_wait_s"), 0, 0.01);
    assert_int_equal(number(said, "after", "gpus"), 2);
    assert_int_equal(json_integer_value(json_object_get(said, "guessed")), 0);
    json_decref(said);
}

/* Of two jobs on two GPUs the first is to have both: the second one waits for it. One that asks for
 * more than there are waits, and holds nobody up. */
static void a_job_of_several_gpus_has_them_together(void **state)
{
    static const char JOBS[] =
        "{'id': 3, 'tenant': 'anna', 'state': 'QUEUED', 'model': 1, " LIKE
        "}, {'id': 4, 'tenant': 'anna', 'state': 'QUEUED', 'model': 1, 'priority': -1, " LIKE "}";
    json_t *both =
        ask(snapshot_of(JOBS), "[{'set': 'gpus', 'to': 2}, {'set': 'job.3.gpus', 'to': 2}]", 0);
    json_t *wide = ask(snapshot_of(JOBS), "[{'set': 'job.3.gpus', 'to': 2}]", 0);

    (void)state;
    assert_near(number(both, "after", "mean_wait_s"), 5.5, 0.01);
    assert_near(number(both, "after", "last_end_s"), 22, 0.01);
    assert_near(number(wide, "after", "last_end_s"), 11, 0.01);
    assert_int_equal(number(wide, "after", "ended"), 1);
    json_decref(both);
    json_decref(wide);
}

/* A tenant asks for as many steps as it likes, and an executor says how long they took: neither may
 * be more than the numbers here hold, and so end at once, or never. */
static void times_without_end_are_long(void **state)
{
    json_t *said =
        ask(snapshot_of(
                "{'id': 3, 'tenant': 'anna', 'state': 'RUNNING', 'gpu': 'g0', 'since_s': 1e10, "
                "'model': 1, 'queue': 'q', 'version': 1, 'step': 1, 'steps': 1000000000000000, "
                "'busy_s': 9e9, 'preemptible': false, 'queued_s': -1e10}, "
                "{'id': 4, 'tenant': 'bert', 'state': 'QUEUED', 'model': 2, 'created_s': -1e10, "
                "'queued_s': -1e10, 'wait_s': 1e10, " LIKE "}"),
            "[]", 24);

    (void)state;
    assert_int_equal(number(said, "before", "ended"), 0);
    assert_near(number(said, "before", "gpu_s"), 60 * 86400, 100);
    json_decref(said);
}

static void gpus_are_added_more_than_once(void **state)
{
    json_t *said = ask(snapshot_of(""),
                       "[{'set': 'gpus', 'to': '+1'}, {'set': 'gpus', 'to': '-1'}, "
                       "{'set': 'gpus', 'to': '+2'}, {'set': 'gpus', 'to': '+1'}]",
                       0);

    (void)state;
    assert_int_equal(number(said, "after", "gpus"), 4);
    json_decref(said);
}

/* 40 of 100 steps are done: 60 are left, and who waits gets the GPU then. */
static void a_running_job_goes_on_where_it_is(void **state)
{
    json_t *said = ask(
        snapshot_of("{'id': 3, 'tenant': 'anna', 'state': 'RUNNING', 'gpu': 'g0', 'since_s': 5, "
                    "'model': 1, 'step': 40, 'busy_s': 4, 'preemptible': false, " LIKE
                    "}, {'id': 4, 'tenant': 'bert', 'state': 'QUEUED', 'model': 2, " LIKE "}"),
        "[]", 0);

    (void)state;
    assert_near(of_tenant(said, "before", 0, "last_end_s"), 6, 0.01);
    assert_near(of_tenant(said, "before", 1, "mean_wait_s"), 6, 0.01);
    assert_near(of_tenant(said, "before", 0, "gpu_s"), 6, 0.01);
    assert_true(json_equal(json_object_get(said, "before"), json_object_get(said, "after")));
    json_decref(said);
}

/* Its GPU is not there any more: it waits, and begins again from where it was. */
static void a_job_without_its_gpu_waits(void **state)
{
    json_t *said = ask(snapshot_of("{'id': 3, 'tenant': 'anna', 'state': 'RUNNING', 'gpu': 'gone', "
                                   "'model': 1, 'step': 40, 'busy_s': 4, " LIKE "}"),
                       "[]", 0);

    (void)state;
    assert_near(number(said, "before", "last_end_s"), 7, 0.01);
    assert_int_equal(number(said, "before", "starts"), 1);
    json_decref(said);
}

static void recorded_jobs_come_again(void **state)
{
    json_t *said = ask(snapshot_of(""), "[]", 2.5);

    (void)state;
    assert_int_equal(number(said, "before", "jobs"), 2);
    /* Both came 7,300 s ago; the second in the order waits for the first. */
    assert_near(number(said, "before", "last_end_s"), 2.5 * 3600 - 7300 + 17, 0.1);
    json_decref(said);
    said = ask(snapshot_of(""), "[]", 2);
    assert_int_equal(number(said, "before", "jobs"), 0);
    json_decref(said);
}

static const char *twenty_jobs(char text[static 6000])
{
    size_t n = 0;

    for (int i = 0; i < 20; i++)
        n += (size_t)snprintf(text + n, 6000 - n,
                              "%s{'id': %d, 'tenant': '%s', 'state': 'QUEUED', 'model': 2, "
                              "'array': 7, 'max_parallel': 9, " LIKE "}",
                              i ? ", " : "", 10 + i, i % 2 ? "bert" : "anna");
    return text;
}

static void changes_of_a_tenant_change_its_share(void **state)
{
    char text[6000];
    json_t *said =
               ask(snapshot_of(twenty_jobs(text)), "[{'set': 'tenant.anna.weight', 'to': 3}]", 0),
           *again;

    (void)state;
    assert_near(of_tenant(said, "before", 0, "share"), 0.5, 0.06);
    assert_near(of_tenant(said, "after", 0, "share"), 0.75, 0.06);
    assert_true(of_tenant(said, "after", 0, "mean_wait_s") <
                of_tenant(said, "before", 0, "mean_wait_s"));
    again = ask(snapshot_of(text), "[{'set': 'tenant.anna.weight', 'to': 3}]", 0);
    assert_true(json_equal(said, again));
    json_decref(again);
    json_decref(said);
    said = ask(snapshot_of(text), "[{'set': 'tenant.anna.max_running_jobs', 'to': 0}]", 0);
    assert_int_equal(of_tenant(said, "after", 0, "ended"), 0);
    assert_int_equal(of_tenant(said, "after", 1, "ended"), 10);
    json_decref(said);
}

static void a_held_queue_starts_nothing_until_it_is_opened(void **state)
{
    json_t *said = ask(snapshot_of("{'id': 3, 'tenant': 'anna', 'state': 'QUEUED', 'model': 1, "
                                   "'queue_open': false, " LIKE "}"),
                       "[{'set': 'queue.default.open', 'to': true}]", 0);

    (void)state;
    assert_int_equal(number(said, "before", "ended"), 0);
    assert_int_equal(number(said, "after", "ended"), 1);
    json_decref(said);
}

static struct world read_with(const char *scheduler)
{
    json_t *rules = json_of("%s", scheduler), *snapshot = snapshot_of("");
    struct sh_err err = {0};
    struct world w;

    json_object_set_new(snapshot, "scheduler", rules);
    assert_ok_err(world_read(snapshot, 0, NULL, &w, &err), &err);
    json_decref(snapshot);
    return w;
}

static void rules_that_are_not_said_are_the_scheduler_s(void **state)
{
    char *argv[] = {(char *)"test", NULL};
    enum sh_conf_action action;
    struct sched_conf conf;
    struct sh_err err = {0};
    struct world w = read_with("{'level_ms': null, 'min_run_ms': 5}");

    (void)state;
    assert_ok_err(sh_conf_load(&SCHED_CONF, &conf, 1, argv, NULL, NULL, &action, &err), &err);
    for (const char *const *o = SCHED_DECIDES_BY; *o; o++)
        if (strcmp(*o, "min-run-ms") != 0)
            assert_int_equal(*sched_conf_int(&w.options, *o), *sched_conf_int(&conf, *o));
    assert_int_equal(w.options.min_run_ms, 5);
    sh_conf_free(&SCHED_CONF, &conf);
    world_fini(&w);
}

static void what_cannot_be_answered_is_refused_with_the_reason(void **state)
{
    static const struct {
        const char *changes, *text;
    } CASES[] = {
        {"[{'set': 'gpus', 'to': 0}]", "from 1 to"},
        {"[{'set': 'gpus', 'to': '-1'}]", "from 1 to"},
        {"[{'set': 'gpus', 'to': '+x'}]", "gpus"},
        {"[{'set': 'gpus', 'to': true}]", "from 1 to"},
        {"[{'set': 'tenant.carl.weight', 'to': 2}]", "no tenant \"carl\""},
        {"[{'set': 'tenant.anna.colour', 'to': 2}]", "no \"colour\""},
        {"[{'set': 'tenant.anna.weigh', 'to': 2}]", "no \"weigh\""},
        {"[{'set': 'tenant.anna.weight', 'to': 'much'}]", "over_quota_weight"},
        {"[{'set': 'tenant.anna.weight'}]", "\"to\" is missing"},
        {"[{'set': 'tenant', 'to': 1}]", "it may be"},
        {"[{'set': 'job.77.priority', 'to': 1}]", "no job \"77\""},
        {"[{'set': 'scheduler.tick_ms', 'to': 1}]", "scheduler."},
        {"[{'set': 'scheduler.level_ms', 'to': 3600001}]", "level_ms"}, /* no daemon takes it */
        {"[{'sit': 'gpus', 'to': 1}]", "sit"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(CASES) / sizeof(CASES[0]); i++) {
        json_t *question = json_of("{'changes': %s}", CASES[i].changes), *said = NULL;
        struct sh_err err = {0};

        json_object_set_new(question, "snapshot", snapshot_of(""));
        assert_fails(answer(question, &said, &err), SH_E_INVALID, &err, CASES[i].text);
        assert_null(said);
        json_decref(question);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(jobs_take_as_long_as_their_like),
        cmocka_unit_test(a_job_of_several_gpus_has_them_together),
        cmocka_unit_test(times_without_end_are_long),
        cmocka_unit_test(gpus_are_added_more_than_once),
        cmocka_unit_test(a_running_job_goes_on_where_it_is),
        cmocka_unit_test(a_job_without_its_gpu_waits),
        cmocka_unit_test(recorded_jobs_come_again),
        cmocka_unit_test(changes_of_a_tenant_change_its_share),
        cmocka_unit_test(a_held_queue_starts_nothing_until_it_is_opened),
        cmocka_unit_test(rules_that_are_not_said_are_the_scheduler_s),
        cmocka_unit_test(what_cannot_be_answered_is_refused_with_the_reason),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
