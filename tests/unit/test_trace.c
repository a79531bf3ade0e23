/* test_trace.c - Without it: a trace could show half of one span and half of another, or what was
 * long ago; a ring that is full could hide that something is missing; and in the merged file slices
 * of two hosts could stand hours apart, or a client's request be joined with another one's run. */
/* uses: cli/data/perfetto.o */
/* link: -lpthread */
#include "cli/data/perfetto.h"
#include "common/clock.h"
#include "common/mem.h"
#include "common/trace.h"
#include "common/units.h"
#include "tests/unit/sh_test.h"

#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#define MAX_TEXT ((size_t)64 << 20)

static json_t *read_trace(double seconds)
{
    struct sh_err err = {0};
    struct sh_buf b;
    json_t *j = NULL;

    sh_buf_init(&b, MAX_TEXT);
    assert_ok_err(sh_trace_render(seconds, &b, &err), &err);
    assert_ok_err(sh_json_parse(b.data, b.len, MAX_TEXT, &j, &err), &err);
    sh_buf_fini(&b);
    return j;
}

static json_t *span_of(const json_t *trace, size_t i)
{
    return json_array_get(json_object_get(trace, "spans"), i);
}

static void what_ended_of_late_is_told(void **state)
{
    json_t *j;

    (void)state;
    sh_clock_fake(SH_S(100), 0);
    SH_TRACE(.name = "old", .track = "t", .begin_ns = SH_S(1), .end_ns = SH_S(2));
    SH_TRACE(.name = "run", .track = "t", .begin_ns = SH_S(90), .end_ns = SH_S(99),
             .api = UINT64_MAX, .rid = 7, .run = 9, .bytes = 10, .job = 11, .rc = SH_E_TIMEOUT,
             .what = "a\"b\\c", .id = "me");
    SH_TRACE(.name = "now", .track = "t", .begin_ns = SH_S(100)); /* ends when it is told of */
    j = read_trace(10);
    assert_int_equal(json_array_size(json_object_get(j, "spans")), 2);
    assert_string_equal(sh_json_text(span_of(j, 0), "api"), "18446744073709551615");
    assert_string_equal(sh_json_text(span_of(j, 0), "rid"), "7");
    assert_string_equal(sh_json_text(span_of(j, 0), "what"), "a\"b\\c");
    assert_string_equal(sh_json_text(span_of(j, 0), "code"), "TIMEOUT");
    assert_true(json_integer_value(json_object_get(span_of(j, 1), "end_ns")) == SH_S(100));
    assert_true(json_is_false(json_object_get(j, "is_cut")));
    json_decref(j);
}

static void a_long_name_is_cut(void **state)
{
    char name[4 * SH_TRACE_WHAT];
    json_t *j;

    (void)state;
    memset(name, 'x', sizeof(name) - 1);
    name[sizeof(name) - 1] = '\0';
    sh_clock_fake(SH_S(200), 0);
    SH_TRACE(.name = "n", .track = "t", .begin_ns = SH_S(200), .what = name, .id = name);
    j = read_trace(1);
    assert_int_equal(strlen(sh_json_text(span_of(j, 0), "what")), SH_TRACE_WHAT - 1);
    assert_int_equal(strlen(sh_json_text(span_of(j, 0), "id")), SH_TRACE_ID - 1);
    json_decref(j);
}

static void a_ring_that_is_full_says_so(void **state)
{
    json_t *j;

    (void)state;
    sh_clock_fake(SH_S(300), 0);
    for (uint64_t i = 1; i <= SH_TRACE_SPANS + 10; i++)
        SH_TRACE(.name = "n", .track = "t", .begin_ns = SH_S(300), .run = i);
    j = read_trace(1);
    assert_int_equal(json_array_size(json_object_get(j, "spans")), SH_TRACE_SPANS);
    assert_string_equal(sh_json_text(span_of(j, 0), "run"), "11");
    assert_true(json_is_true(json_object_get(j, "is_cut")));
    json_decref(j);
}

static void stages_follow_each_other(void **state)
{
    static const char *const STAGES[] = {"first", "second", "third", NULL};
    json_t *j;

    (void)state;
    sh_clock_fake(SH_S(250), 0);
    SH_TRACE(.name = "n", .track = "t", .begin_ns = 100, .end_ns = SH_S(250), .rid = 5,
             .stages = STAGES, .stage_ends_ns = {130, 120}); /* an end that is not known is none */
    j = read_trace(1);
    assert_int_equal(json_array_size(json_object_get(j, "spans")), 4);
    assert_string_equal(sh_json_text(span_of(j, 1), "name"), "first");
    assert_string_equal(sh_json_text(span_of(j, 2), "rid"), "5");
    assert_int_equal(json_integer_value(json_object_get(span_of(j, 1), "begin_ns")), 100);
    assert_int_equal(json_integer_value(json_object_get(span_of(j, 2), "begin_ns")), 130);
    assert_int_equal(json_integer_value(json_object_get(span_of(j, 2), "end_ns")), 130);
    assert_int_equal(json_integer_value(json_object_get(span_of(j, 3), "begin_ns")), 130);
    assert_true(json_integer_value(json_object_get(span_of(j, 3), "end_ns")) == SH_S(250));
    json_decref(j);
}

static void detail_ends_by_itself(void **state)
{
    (void)state;
    sh_clock_fake(SH_S(400), 0);
    assert_false(sh_trace_is_detailed());
    sh_trace_detail(2);
    sh_clock_fake(SH_S(401), 0);
    assert_true(sh_trace_is_detailed());
    sh_clock_fake(SH_S(403), 0);
    assert_false(sh_trace_is_detailed());
}

static void *write_many(void *arg)
{
    const uint64_t self = (uint64_t)(uintptr_t)arg;

    for (uint64_t i = 0; i < 50000; i++)
        SH_TRACE(.name = "n", .track = "t", .begin_ns = SH_S(500), .end_ns = SH_S(500), .api = self,
                 .rid = self, .run = self);
    return NULL;
}

/* Each span is of one writer, whole. */
static void spans_are_whole_while_others_write(void **state)
{
    pthread_t threads[4];

    (void)state;
    sh_clock_fake(SH_S(500), 0);
    for (uintptr_t i = 0; i < SH_ARRAY_LEN(threads); i++)
        assert_int_equal(pthread_create(&threads[i], NULL, write_many, (void *)(i + 1)), 0);
    for (int n = 0; n < 20; n++) {
        json_t *j = read_trace(1), *e;
        size_t i;

        json_array_foreach(json_object_get(j, "spans"), i, e)
        {
            assert_string_equal(sh_json_text(e, "api"), sh_json_text(e, "run"));
            assert_string_equal(sh_json_text(e, "rid"), sh_json_text(e, "run"));
        }
        json_decref(j);
    }
    for (size_t i = 0; i < SH_ARRAY_LEN(threads); i++)
        pthread_join(threads[i], NULL);
}

/* Texts that cannot be read at first: what a writer meets there happens in the middle of its span,
 * as if it had lost the processor. */
static char *slow_page[2];
static size_t page_size;
static int n_torn, n_seen;

static void look(const struct sh_trace_span *s, void *arg)
{
    (void)arg;
    n_seen++;
    n_torn += strcmp(s->what, s->run ? "theirs" : "mine") != 0;
}

static void on_slow_text(int sig, siginfo_t *info, void *context)
{
    const int i =
        (char *)info->si_addr >= slow_page[1] && (char *)info->si_addr < slow_page[1] + page_size;

    (void)sig, (void)context;
    mprotect(slow_page[i], page_size, PROT_READ);
    if (i)
        sh_trace_each(look, NULL);
    for (uint64_t n = 1; !i && n <= SH_TRACE_SPANS + 10; n++)
        SH_TRACE(.name = "n", .track = "t", .begin_ns = 1, .end_ns = 2, .run = n, .what = "theirs");
}

static void a_writer_that_all_others_overtake_tears_no_span_of_theirs(void **state)
{
    const struct sigaction slow = {.sa_sigaction = on_slow_text, .sa_flags = SA_SIGINFO};
    struct sigaction was;

    (void)state;
    page_size = (size_t)sysconf(_SC_PAGESIZE);
    for (int i = 0; i < 2; i++) {
        slow_page[i] =
            mmap(NULL, page_size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        assert_true(slow_page[i] != MAP_FAILED);
        sh_strlcpy(slow_page[i], "mine", page_size);
        assert_int_equal(mprotect(slow_page[i], page_size, PROT_NONE), 0);
    }
    assert_int_equal(sigaction(SIGSEGV, &slow, &was), 0);
    SH_TRACE(.name = "n", .track = "t", .begin_ns = 1, .end_ns = 2, .what = slow_page[0],
             .id = slow_page[1]);
    sigaction(SIGSEGV, &was, NULL);
    assert_true(n_seen >= (int)SH_TRACE_SPANS - 1);
    assert_int_equal(n_torn, 0);
    for (int i = 0; i < 2; i++)
        munmap(slow_page[i], page_size);
}

/* ------------------------------------------------------------------ the file */

static json_t *parse(const char *text)
{
    json_t *j = json_loads(text, 0, NULL);

    assert_non_null(j);
    return j;
}

static const json_t *slice(const json_t *file, const char *name, int pid)
{
    const json_t *e;
    size_t i;

    json_array_foreach(json_object_get(file, "traceEvents"), i, e)
    {
        if (strcmp(sh_json_text(e, "ph"), "X") == 0 && strcmp(sh_json_text(e, "name"), name) == 0 &&
            json_integer_value(json_object_get(e, "pid")) == pid)
            return e;
    }
    fail_msg("there is no slice \"%s\" of process %d", name, pid);
    return NULL;
}

static double number(const json_t *e, const char *name)
{
    return json_number_value(json_object_get(e, name));
}

static void hosts_share_an_axis_and_requests_their_id(void **state)
{
    struct perfetto_source s[] = {
        {"api", parse("{\"boot\":\"a\",\"now_ns\":1000000,\"wall_ns\":5000000000,\"is_cut\":false,"
                      "\"spans\":[{\"name\":\"request\",\"track\":\"requests\",\"begin_ns\":100000,"
                      "\"end_ns\":900000,\"api\":\"4\",\"rid\":\"1\",\"id\":\"mine\"}]}")},
        {"scheduler", parse("{\"boot\":\"a\",\"now_ns\":1300000,\"wall_ns\":5000000000,"
                            "\"is_cut\":true,\"spans\":[{\"name\":\"queue\",\"track\":\"queue\","
                            "\"begin_ns\":200000,\"end_ns\":300000,\"api\":\"4\",\"rid\":\"1\","
                            "\"run\":\"8\",\"what\":\"m\"}]}")},
        {"executor", parse("{\"boot\":\"b\",\"now_ns\":90000000000,\"wall_ns\":5000000000,"
                           "\"is_cut\":false,\"spans\":[{\"name\":\"compute\",\"track\":\"switch\","
                           "\"begin_ns\":89999400000,\"end_ns\":89999500000,\"run\":\"8\"}]}")}};
    struct sh_err err = {0};
    size_t n_spans, n_cut;
    json_t *file;

    (void)state;
    assert_ok_err(perfetto_merge(s, SH_ARRAY_LEN(s), &file, &n_spans, &n_cut, &err), &err);
    assert_int_equal(n_spans, 3);
    assert_int_equal(n_cut, 1);
    assert_float_equal(number(slice(file, "request", 1), "ts"), 0, 1e-9);
    assert_float_equal(number(slice(file, "request", 1), "dur"), 800, 1e-9);
    /* One host has one clock, whatever was read of the wall's. */
    assert_float_equal(number(slice(file, "queue m", 2), "ts"), 100, 1e-9);
    assert_float_equal(number(slice(file, "compute", 3), "ts"), 300, 1e-9);
    assert_string_equal(sh_json_text(json_object_get(slice(file, "queue m", 2), "args"), "id"),
                        "mine");
    assert_string_equal(
        json_string_value(json_array_get(
            json_object_get(json_object_get(slice(file, "compute", 3), "args"), "ids"), 0)),
        "mine");
    json_decref(file);
    for (size_t i = 0; i < SH_ARRAY_LEN(s); i++)
        json_decref(s[i].trace);
}

static void what_overlaps_has_lanes_of_its_own(void **state)
{
    struct perfetto_source s = {
        "api", parse("{\"boot\":\"a\",\"now_ns\":9,\"wall_ns\":9,\"spans\":["
                     "{\"name\":\"a\",\"track\":\"t\",\"begin_ns\":0,\"end_ns\":10,\"api\":\"1\","
                     "\"rid\":\"1\"},"
                     "{\"name\":\"b\",\"track\":\"t\",\"begin_ns\":5,\"end_ns\":15,\"api\":\"1\","
                     "\"rid\":\"2\"},"
                     "{\"name\":\"a1\",\"track\":\"t\",\"begin_ns\":0,\"end_ns\":4,\"api\":\"1\","
                     "\"rid\":\"1\"},"
                     "{\"name\":\"c\",\"track\":\"t\",\"begin_ns\":10,\"end_ns\":12,\"api\":\"1\","
                     "\"rid\":\"3\"}]}")};
    struct sh_err err = {0};
    size_t n_spans, n_cut;
    json_t *file;

    (void)state;
    assert_ok_err(perfetto_merge(&s, 1, &file, &n_spans, &n_cut, &err), &err);
    assert_float_equal(number(slice(file, "a", 1), "tid"), number(slice(file, "a1", 1), "tid"), 0);
    assert_float_equal(number(slice(file, "a", 1), "tid"), number(slice(file, "c", 1), "tid"), 0);
    assert_true(number(slice(file, "a", 1), "tid") < number(slice(file, "b", 1), "tid"));
    json_decref(file);
    json_decref(s.trace);
}

static void what_is_no_trace_is_refused(void **state)
{
    struct perfetto_source s = {"api", parse("{\"spans\":[{\"name\":\"a\",\"track\":\"t\","
                                             "\"begin_ns\":5,\"end_ns\":4}]}")};
    struct sh_err err = {0};
    size_t n_spans, n_cut;
    json_t *file;

    (void)state;
    assert_fails(perfetto_merge(&s, 1, &file, &n_spans, &n_cut, &err), SH_E_INVALID, &err,
                 "api sent a span");
    assert_null(file);
    json_decref(s.trace);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_ended_of_late_is_told),
        cmocka_unit_test(a_long_name_is_cut),
        cmocka_unit_test(stages_follow_each_other),
        cmocka_unit_test(detail_ends_by_itself),
        cmocka_unit_test(a_ring_that_is_full_says_so),
        cmocka_unit_test(spans_are_whole_while_others_write),
        cmocka_unit_test(a_writer_that_all_others_overtake_tears_no_span_of_theirs),
        cmocka_unit_test(hosts_share_an_axis_and_requests_their_id),
        cmocka_unit_test(what_overlaps_has_lanes_of_its_own),
        cmocka_unit_test(what_is_no_trace_is_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
