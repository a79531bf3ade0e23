/* test_jobctl.c - what may be done with a job where it stands, and which jobs a list is about.
 *
 * Without it an action could be missing for a state in which a person needs it, a refusal could
 * offer something that is refused too, or a filter could be ignored in silence.
 */
/* uses: api/spec/batchspec.o api/request/base64.o api/request/cursor.o api/spec/jobctl.o api/spec/jobfilter.o api/spec/jobspec.o api/request/noun.o api/request/req.o api/request/uri.o */
#include "api/spec/jobctl.h"
#include "api/spec/jobfilter.h"
#include "common/mem.h"
#include "tests/unit/sh_test.h"

static void each_place_allows_what_makes_sense_there(void **state)
{
    static const struct {
        const char *job, *say;
    } CASES[] = {
        {"{\"state\":\"QUEUED\",\"flags\":[]}", "it is QUEUED; allowed: hold, cancel"},
        {"{\"state\":\"HELD\",\"flags\":[]}", "it is HELD; allowed: release, cancel"},
        {"{\"state\":\"STARTING\",\"flags\":[]}",
         "it is STARTING; allowed: suspend, requeue, cancel"},
        {"{\"state\":\"RUNNING\",\"flags\":[\"CHECKPOINTING\"]}",
         "it is RUNNING CHECKPOINTING; allowed: suspend, requeue, checkpoint, cancel"},
        {"{\"state\":\"PREEMPTED\",\"flags\":[]}",
         "it is PREEMPTED; allowed: suspend, requeue, checkpoint, cancel"},
        {"{\"state\":\"RUNNING\",\"flags\":[\"SUSPEND_PENDING\"]}",
         "it is RUNNING SUSPEND_PENDING; allowed: resume, cancel"},
        {"{\"state\":\"RUNNING\",\"flags\":[\"REQUEUE_PENDING\"]}",
         "it is RUNNING REQUEUE_PENDING; allowed: cancel"},
        {"{\"state\":\"SUSPENDED\",\"flags\":[]}", "it is SUSPENDED; allowed: resume, cancel"},
        {"{\"state\":\"COMPLETING\",\"flags\":[]}", "it is COMPLETING; allowed: cancel"},
        {"{\"state\":\"COMPLETING\",\"flags\":[\"SUSPEND_PENDING\"]}",
         "it is COMPLETING SUSPEND_PENDING; allowed: resume, cancel"},
        {"{\"state\":\"COMPLETING\",\"flags\":[\"REQUEUE_PENDING\"]}",
         "it is COMPLETING REQUEUE_PENDING; allowed: cancel"},
        {"{\"state\":\"CANCELLING\",\"flags\":[]}",
         "it is CANCELLING and has ended or is about to"},
        {"{\"state\":\"SUCCEEDED\",\"flags\":[]}", "it is SUCCEEDED and has ended or is about to"},
        {"{\"state\":\"EXPIRED\",\"flags\":[]}", "it is EXPIRED and has ended or is about to"},
    };

    (void)state;
    for (size_t i = 0; i < SH_ARRAY_LEN(CASES); i++) {
        json_t *job = json_loads(CASES[i].job, 0, NULL), *choices = NULL;
        struct sh_err err = {0};
        char text[256];

        assert_ok_err(jobctl_choices(job, &choices, &err), &err);
        jobctl_say(choices, text, sizeof(text));
        assert_string_equal(text, CASES[i].say);
        json_decref(choices);
        json_decref(job);
    }
}

static void only_what_has_happened_is_done(void **state)
{
    static const struct {
        const char *action, *job;
        bool done;
    } CASES[] = {
        {"hold", "{\"state\":\"HELD\"}", true},
        {"hold", "{\"state\":\"QUEUED\"}", false},
        {"release", "{\"state\":\"RUNNING\"}", false},
        {"suspend", "{\"state\":\"SUSPENDED\"}", true},
        {"suspend", "{\"state\":\"RUNNING\",\"flags\":[\"SUSPEND_PENDING\"]}", true},
        {"suspend", "{\"state\":\"RUNNING\",\"flags\":[]}", false},
        {"suspend", "{\"state\":\"COMPLETING\",\"flags\":[\"SUSPEND_PENDING\"]}", true},
        {"suspend", "{\"state\":\"COMPLETING\",\"flags\":[]}", false},
        {"requeue", "{\"state\":\"COMPLETING\",\"flags\":[\"REQUEUE_PENDING\"]}", true},
        {"requeue", "{\"state\":\"RUNNING\",\"flags\":[\"REQUEUE_PENDING\"]}", true},
        {"cancel", "{\"state\":\"CANCELLED\"}", true},
        {"cancel", "{\"state\":\"SUCCEEDED\"}", false},
        {"checkpoint", "{\"state\":\"QUEUED\"}", false},
    };

    (void)state;
    for (size_t i = 0; i < SH_ARRAY_LEN(CASES); i++) {
        json_t *job = json_loads(CASES[i].job, 0, NULL);

        if (jobctl_is_done(jobctl_find(CASES[i].action), job) != CASES[i].done)
            fail_msg("%s of %s", CASES[i].action, CASES[i].job);
        json_decref(job);
    }
    assert_null(jobctl_find("top"));
}

static void a_filter_becomes_what_sql_takes(void **state)
{
    struct sh_err err = {0};
    struct jobfilter f;
    struct uri u;

    (void)state;
    assert_ok_err(uri_parse("/j?state=QUEUED,HELD&queue=night&label=team%3Da,x%3D1%3D2", &u, &err),
                  &err);
    assert_ok_err(jobfilter_read(&u, &f, &err), &err);
    assert_string_equal(f.states, "{QUEUED,HELD}");
    assert_string_equal(f.queue, "night");
    assert_string_equal(f.labels, "{\"team\":\"a\",\"x\":\"1=2\"}");
    jobfilter_fini(&f);
    assert_ok_err(uri_parse("/j", &u, &err), &err);
    assert_ok_err(jobfilter_read(&u, &f, &err), &err);
    assert_null(f.states);
    assert_null(f.queue);
    assert_null(f.labels);
}

static void a_filter_that_means_nothing_is_refused(void **state)
{
    static const char *const BAD[] = {"/j?state=SLEEPING", "/j?state=",  "/j?state=QUEUED,,HELD",
                                      "/j?queue=A%20B",    "/j?label=x", "/j?label=%3Dx"};

    (void)state;
    for (size_t i = 0; i < SH_ARRAY_LEN(BAD); i++) {
        struct sh_err err = {0};
        struct jobfilter f;
        struct uri u;

        assert_ok_err(uri_parse(BAD[i], &u, &err), &err);
        if (jobfilter_read(&u, &f, &err) != SH_E_INVALID)
            fail_msg("%s was taken", BAD[i]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_place_allows_what_makes_sense_there),
        cmocka_unit_test(only_what_has_happened_is_done),
        cmocka_unit_test(a_filter_becomes_what_sql_takes),
        cmocka_unit_test(a_filter_that_means_nothing_is_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
