/* test_whatif_requests.c - without it, what is said of requests could come from other requests than
 * those that were recorded, or from other rules and times than the system's. */
/* uses: libsimulate.a libscheduler.a */
/* link: -Wl,--wrap=session_send,--wrap=session_refuse,--wrap=sched_count */
/* link: -Wl,--wrap=dbthread_is_up,--wrap=jobs_train_on -lm -lpq -lmicrohttpd */
#include "simulate/answer.h"
#include "tests/unit/sh_test.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

static json_t *json_of(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

static json_t *json_of(const char *fmt, ...)
{
    char text[16384];
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

/* Runs of anna's model take 10 ms, of which none is left when the weights are there. */
#define ANNA                                                                                   \
    "{'id': 11, 'model_id': 1, 'tenant': 'anna', 'model': 'a', 'version': 1, 'max_batch': 1, " \
    "'image_bytes': 2000000, 'slo_ms': 15, 'percentile': 99, 'on_miss': 'reject', 'profile': " \
    "[{'batch': 1, 'compute_ns': 1e7, 'tail_ns': 0}], 'learnt': [{'batch': 1, 'times': "       \
    "[10000000, "                                                                              \
    "10000000, 10000000, 10000000, 10000000]}], 'homes': [{'gpu': 'g0', 'device_bytes': "      \
    "2000000}]}"
#define BERT                                                                                   \
    "{'id': 12, 'model_id': 2, 'tenant': 'bert', 'model': 'b', 'version': 1, 'max_batch': 8, " \
    "'image_bytes': 2000000, 'shared': true, 'profile': [{'batch': 1, 'compute_ns': 1e7}], "   \
    "'homes': [{'gpu': 'g0', 'device_bytes': 2000000}]}"

static json_t *snapshot_of(const char *arrivals)
{
    return json_of("{'format': 3, 'at': '2026-01-01T00:00:00Z', 'scheduler': {}, 'gpus': [{'name': "
                   "'g0', 'pool_bytes': 100000000, 'ns_per_byte': 1}], 'tenants': [{'name': "
                   "'anna'}, {'name': 'bert'}], 'jobs': [], 'models': [" ANNA ", " BERT
                   "], 'arrivals': [%s]}",
                   arrivals);
}

static json_t *ask(const char *arrivals, const char *changes, double hours, const char *trace)
{
    json_t *question = json_of("{'changes': %s, 'hours': %g}", changes, hours), *said = NULL;
    struct sh_err err = {0};

    json_object_set_new(question, "snapshot", snapshot_of(arrivals));
    if (trace)
        json_object_set_new(question, "trace", json_string(trace));
    assert_ok_err(answer(question, &said, &err), &err);
    json_decref(question);
    return said;
}

static double number(const json_t *said, const char *when, const char *what)
{
    return json_number_value(
        json_object_get(json_object_get(json_object_get(said, when), "requests"), what));
}

static const json_t *of_model(const json_t *said, const char *when, size_t i)
{
    return json_array_get(json_object_get(json_object_get(said, when), "models"), i);
}

/* n requests of anna, one every gap_ms. */
static char *steady(unsigned n, double gap_ms)
{
    const size_t size = 40 * (size_t)n + 40;
    char *text = malloc(size);
    size_t at;

    assert_non_null(text);
    at = (size_t)snprintf(text, size, "at_s,tenant,model,batch\n");
    for (unsigned i = 0; i < n; i++)
        at += (size_t)snprintf(text + at, size - at, "%.6f,anna,a,1\n", i * gap_ms / 1e3);
    return text;
}

static void assert_near(double got, double want, double by)
{
    if (!(got >= want - by && got <= want + by))
        fail_msg("%g, not %g", got, want);
}

/* ------------------------------------------------------------------ tests */

static void a_run_takes_as_long_as_runs_took(void **state)
{
    char *trace = steady(200, 20);
    json_t *said = ask("", "[{'set': 'model.anna/a.slo_ms', 'to': 5}]", 0, trace);

    (void)state;
    assert_int_equal(number(said, "before", "requests"), 200);
    assert_int_equal(number(said, "before", "answered"), 200);
    assert_near(number(said, "before", "p50_ms"), 10, 0.1);
    assert_near(number(said, "before", "p99_ms"), 10, 0.1);
    assert_near(number(said, "before", "attained"), 1, 0);
    assert_near(number(said, "before", "share"), 0.5, 0.01);
    assert_near(json_number_value(json_object_get(of_model(said, "after", 0), "slo_ms")), 5, 0);
    assert_near(number(said, "after", "attained"), 0, 0);
    /* All but probes, which are late, are refused by that rule. */
    assert_true(json_integer_value(
                    json_object_get(json_object_get(of_model(said, "after", 0), "refused_by"),
                                    "DeadlineUnreachable")) > 150);
    json_decref(said);
    free(trace);
}

/* Twice as many as one GPU can do: half are refused at once, and those that are not are in time.
 * With another GPU nobody is. */
static void one_more_gpu_does_as_much_again(void **state)
{
    char *trace = steady(2000, 5);
    json_t *said = ask(
        "", "[{'set': 'gpus', 'to': '+1'}, {'set': 'scheduler.min_copies', 'to': 2}]", 0, trace);

    (void)state;
    assert_near(number(said, "before", "attained"), 0.5, 0.03);
    assert_near(number(said, "before", "share"), 1, 0.03);
    /* A second until it is loaded there. */
    assert_near(number(said, "after", "attained"), 0.95, 0.03);
    assert_true(number(said, "after", "p99_ms") <= 15.01);
    json_decref(said);
    free(trace);
}

/* Two images of two blocks on a device of four, and runs that take one: each takes it from the
 * other image, so a block is copied for each run, and not two. */
static void a_run_takes_its_workspace_while_it_lasts(void **state)
{
    static const char MODEL[] =
        "{'id': %d, 'model_id': %d, 'tenant': '%s', 'model': 'm', 'version': 1, 'max_batch': 1, "
        "'image_bytes': 4194304, 'slo_ms': 100, 'percentile': 99, 'on_miss': 'best-effort', "
        "'profile': [{'batch': 1, 'compute_ns': 1e7, 'tail_ns': 0}], 'homes': [{'gpu': 'g0', "
        "'device_bytes': 0}]}";
    char anna[400], bert[400], *trace = malloc(8192);
    size_t at = 0;
    json_t *question, *said = NULL;
    struct sh_err err = {0};

    (void)state;
    snprintf(anna, sizeof(anna), MODEL, 11, 1, "anna");
    snprintf(bert, sizeof(bert), MODEL, 12, 2, "bert");
    assert_non_null(trace);
    at += (size_t)snprintf(trace, 8192, "at_s,tenant,model\n");
    for (int i = 0; i < 100; i++)
        at += (size_t)snprintf(trace + at, 8192 - at, "%d,%s,m\n", i, i % 2 ? "anna" : "bert");
    question = json_of(
        "{'changes': [], 'snapshot': {'format': 3, 'at': '2026-01-01T00:00:00Z', 'scheduler': {}, "
        "'gpus': [{'name': 'g0', 'pool_bytes': 8388608, 'ns_per_byte': 10, 'most_workspace': "
        "2097152}], 'tenants': [{'name': 'anna'}, {'name': 'bert'}], 'jobs': [], 'models': [%s, "
        "%s], 'arrivals': []}}",
        anna, bert);
    json_object_set_new(question, "trace", json_string(trace));
    assert_ok_err(answer(question, &said, &err), &err);
    assert_near(number(said, "before", "p50_ms"), 21, 1);
    json_decref(question);
    json_decref(said);
    free(trace);
}

static void recorded_ones_come_again(void **state)
{
    static const char SLICES[] =
        "{'ago_s': 30, 'seconds': 10, 'rows': [{'tenant': 'anna', 'version': 11, 'unit_ms': 1, "
        "'requests': 3, 'at': '0 100 100', 'sizes': [[3, 3]]}, {'tenant': 'anna', 'version': 12, "
        "'unit_ms': 1, 'requests': 4, 'at': '5000*4', 'sizes': [[1, 1], [1, 3]]}]}, "
        "{'ago_s': 20, 'seconds': 10, 'rows': [{'tenant': 'anna', 'version': 99, 'unit_ms': 1, "
        "'requests': 7, 'at': '0*7', 'sizes': []}, {'tenant': 'carl', 'version': 11, 'unit_ms': 1, "
        "'requests': 2, 'at': '0*2', 'sizes': []}]}";
    json_t *said = ask(SLICES, "[]", 1, NULL);
    const json_t *recorded = json_object_get(said, "recorded");

    (void)state;
    assert_int_equal(number(said, "before", "requests"), 7);
    assert_int_equal(json_integer_value(json_object_get(recorded, "left_out")), 9);
    assert_near(json_number_value(json_object_get(recorded, "from_s")), 30, 0);
    assert_near(json_number_value(json_object_get(recorded, "seconds")), 20, 0);
    assert_int_equal(json_array_size(json_object_get(json_object_get(said, "before"), "models")),
                     2);
    assert_string_equal(json_string_value(json_object_get(of_model(said, "before", 1), "model")),
                        "b");
    assert_true(json_equal(json_object_get(said, "before"), json_object_get(said, "after")));
    json_decref(said);
    /* Those of the last 25 s; and none. */
    said = ask(SLICES, "[]", 25. / 3600, NULL);
    assert_int_equal(number(said, "before", "requests"), 0);
    json_decref(said);
    said = ask(SLICES, "[]", 0, NULL);
    assert_int_equal(number(said, "before", "requests"), 0);
    json_decref(said);
}

static void a_tenant_has_no_more_requests_at_once_than_its_quota_allows(void **state)
{
    char *trace = steady(200, 9);
    json_t *said = ask("",
                       "[{'set': 'tenant.anna.max_concurrent_requests', 'to': 0}, {'set': "
                       "'model.a.on_miss', 'to': 'best-effort'}]",
                       0, trace);

    (void)state;
    assert_true(number(said, "before", "answered") > 100);
    assert_int_equal(number(said, "after", "answered"), 0);
    assert_int_equal(json_integer_value(json_object_get(
                         json_object_get(of_model(said, "after", 0), "refused_by"), "QUOTA")),
                     200);
    json_decref(said);
    free(trace);
}

/* Of more versions than each GPU keeps account of nothing is said; of jobs all is. */
static void very_many_versions_are_left_out(void **state)
{
    json_t *question = json_of("{'changes': [], 'hours': 1}"), *said = NULL;
    json_t *snapshot = snapshot_of("{'ago_s': 30, 'seconds': 10, 'rows': [{'tenant': 'anna', "
                                   "'version': 11, 'unit_ms': 1, 'requests': 3, 'at': '0*3'}]}");
    json_t *models = json_object_get(snapshot, "models");
    struct sh_err err = {0};

    (void)state;
    for (int i = 0; i < 2047; i++) {
        json_t *more = json_deep_copy(json_array_get(models, 1));

        json_object_set_new(more, "id", json_integer(100 + i));
        json_array_append_new(models, more);
    }
    json_object_set_new(question, "snapshot", snapshot);
    assert_ok_err(answer(question, &said, &err), &err);
    assert_int_equal(number(said, "before", "requests"), 0);
    assert_int_equal(
        json_integer_value(json_object_get(json_object_get(said, "recorded"), "left_out")), 3);
    json_decref(said);
    json_object_set_new(question, "trace", json_string("at_s,tenant,model\n1,anna,a\n"));
    assert_fails(answer(question, &said, &err), SH_E_TOOBIG, &err, "2049 versions");
    json_decref(question);
}

static void slices_that_cannot_be_are_refused(void **state)
{
#define ROW(unit, at)                                                            \
    "'seconds': 10, 'rows': [{'tenant': 'anna', 'version': 11, 'unit_ms': " unit \
    ", 'requests': 1, 'at': '" at "'}]}"
    static const struct {
        const char *slices, *why;
    } WRONG[] = {
        {"{'ago_s': 9, " ROW("1", "1x"), "is no moment"},
        {"{'ago_s': 9, " ROW("1000000", "999999 999999"), "s away"},
        {"{'ago_s': 9, " ROW("1", "1") ", {'ago_s': 19, " ROW("1", "1"), "an earlier slice"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(WRONG) / sizeof(WRONG[0]); i++) {
        json_t *question = json_of("{'hours': 1}"), *said = NULL;
        struct sh_err err = {0};

        json_object_set_new(question, "snapshot", snapshot_of(WRONG[i].slices));
        assert_fails(answer(question, &said, &err), SH_E_INVALID, &err, WRONG[i].why);
        json_decref(question);
    }
}

static void a_trace_says_what_is_wrong(void **state)
{
    static const struct {
        const char *trace, *why;
    } WRONG[] = {
        {"1,anna,a,1\n", "names its columns"},
        {"at_s,tenant,model\nx,anna,a\n", "at_s"},
        {"at_s,tenant,model\n1,carl,a\n", "tenant"},
        {"at_s,tenant,model\n1,bert,a\n", "model"}, /* anna does not share it */
        {"at_s,tenant,model,batch\n1,anna,a,9\n", "batch"},
        {"at_s,tenant,model,batch\n1,bert,b,1.5\n", "batch"},
        {"at_s,tenant,model\n1,anna,a:2\n", "model"}, /* its only version is 1 */
        {"at_s,tenant,model\n1,anna,a:\n", "model"},
        {"at_s,tenant,model\n1,anna,a:x\n", "model"},
        {"at_s,tenant,model\n1,anna,a:1x\n", "model"},
        {"at_s,tenant,model\n1,anna,a:0\n", "model"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(WRONG) / sizeof(WRONG[0]); i++) {
        json_t *question = json_of("{'hours': 0}"), *said = NULL;
        struct sh_err err = {0};

        json_object_set_new(question, "snapshot", snapshot_of(""));
        json_object_set_new(question, "trace", json_string(WRONG[i].trace));
        assert_fails(answer(question, &said, &err), SH_E_INVALID, &err, WRONG[i].why);
        json_decref(question);
    }
}

/* No time passes until the last of them has come. */
static void all_may_come_at_once(void **state)
{
    json_t *said = ask("", "[]", 0, "at_s,tenant,model\n0,anna,a:1\n0,bert,b\n");

    (void)state;
    assert_int_equal(number(said, "before", "answered"), 2);
    assert_near(number(said, "before", "training_kept"), 0, 0);
    json_decref(said);
}

static void homes_are_names(void **state)
{
    json_t *question = json_of("{'changes': [{'set': 'model.a.homes', 'to': 5}]}"), *said = NULL;
    struct sh_err err = {0};

    (void)state;
    json_object_set_new(question, "snapshot", snapshot_of(""));
    assert_fails(answer(question, &said, &err), SH_E_INVALID, &err, "homes");
    json_decref(question);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_run_takes_as_long_as_runs_took),
        cmocka_unit_test(one_more_gpu_does_as_much_again),
        cmocka_unit_test(a_run_takes_its_workspace_while_it_lasts),
        cmocka_unit_test(recorded_ones_come_again),
        cmocka_unit_test(a_tenant_has_no_more_requests_at_once_than_its_quota_allows),
        cmocka_unit_test(very_many_versions_are_left_out),
        cmocka_unit_test(slices_that_cannot_be_are_refused),
        cmocka_unit_test(a_trace_says_what_is_wrong),
        cmocka_unit_test(all_may_come_at_once),
        cmocka_unit_test(homes_are_names),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
