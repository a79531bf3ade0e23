/* test_otlp.c - Without it: a span with a name that was cut within a character could cost a whole
 * batch, a collector could make us count what never was by what it answers, wishes for spans could
 * be kept where nobody takes them, and a process could end as late as the resolver gives up, which
 * is after half a minute on many hosts: an executor is killed by then. */
/* link: -lpthread -lcurl */
#include "common/clock.h"
#include "common/json.h"
#include "common/mem.h"
#include "common/otlp.h"
#include "common/otlp_json.h"
#include "common/units.h"
#include "tests/unit/sh_test.h"

#include <netdb.h>
#include <semaphore.h>
#include <unistd.h>

#define MAX_TEXT ((size_t)1 << 20)
#define LOOKUP_S 20

static sem_t lookup_began;

/* libcurl calls this one, not that of the C library. */
__attribute__((visibility("default"))) int getaddrinfo(const char *name, const char *service,
                                                       const struct addrinfo *hints,
                                                       struct addrinfo **out)
{
    (void)name;
    (void)service;
    (void)hints;
    *out = NULL;
    sem_post(&lookup_began);
    sleep(LOOKUP_S);
    return EAI_AGAIN;
}

static json_t *print_spans(const struct otlp_span *s, size_t n)
{
    const struct otlp_resource who = {.service = "shunt-api", .instance = "api"};
    struct sh_err err = {0};
    struct sh_buf b;
    json_t *j = NULL;

    sh_buf_init(&b, MAX_TEXT);
    assert_ok_err(otlp_print(&who, s, n, 0, n, &b, &err), &err);
    assert_ok_err(sh_json_parse(b.data, b.len, MAX_TEXT, &j, &err), &err);
    sh_buf_fini(&b);
    return j;
}

static json_t *printed_span(json_t *j, size_t i)
{
    json_t *r = json_array_get(json_object_get(j, "resourceSpans"), 0);
    json_t *s = json_array_get(json_object_get(r, "scopeSpans"), 0);

    return json_array_get(json_object_get(s, "spans"), i);
}

static void numbers_of_64_bits_are_text(void **state)
{
    const struct otlp_span s = {.name = "n",
                                .begin_ns = 1700000000000000001,
                                .end_ns = INT64_MAX,
                                .id = 1,
                                .parent = UINT64_MAX,
                                .run = UINT64_MAX,
                                .bytes = 7,
                                .kind = OTLP_SERVER,
                                .trace = {0xab, 1}};
    json_t *j = print_spans(&s, 1), *span = printed_span(j, 0);

    (void)state;
    assert_string_equal(sh_json_text(span, "traceId"), "ab010000000000000000000000000000");
    assert_string_equal(sh_json_text(span, "spanId"), "0000000000000001");
    assert_string_equal(sh_json_text(span, "parentSpanId"), "ffffffffffffffff");
    assert_string_equal(sh_json_text(span, "startTimeUnixNano"), "1700000000000000001");
    assert_string_equal(sh_json_text(span, "endTimeUnixNano"), "9223372036854775807");
    assert_int_equal(json_integer_value(json_object_get(span, "kind")), 2);
    assert_int_equal(json_array_size(json_object_get(span, "attributes")), 2);
    assert_null(json_object_get(span, "status"));
    json_decref(j);
}

static void a_name_that_was_cut_costs_only_itself(void **state)
{
    struct otlp_span s[2] = {{.name = "n", .id = 1, .what = "gr\xC3"}, {.name = "n", .id = 2}};
    json_t *j;

    (void)state;
    j = print_spans(s, 2);
    assert_int_equal(json_array_size(json_object_get(printed_span(j, 0), "attributes")), 0);
    assert_string_equal(sh_json_text(printed_span(j, 1), "spanId"), "0000000000000002");
    json_decref(j);
}

static void a_mistake_of_a_client_is_no_error_of_a_server(void **state)
{
    const struct otlp_span s[] = {
        {.name = "n", .id = 1, .kind = OTLP_SERVER, .rc = SH_E_INVALID},
        {.name = "n", .id = 1, .kind = OTLP_SERVER, .rc = SH_E_TIMEOUT},
        {.name = "n", .id = 1, .kind = OTLP_CLIENT, .rc = SH_E_INVALID},
    };
    json_t *j = print_spans(s, SH_ARRAY_LEN(s));

    (void)state;
    assert_null(json_object_get(printed_span(j, 0), "status"));
    assert_int_equal(json_array_size(json_object_get(printed_span(j, 0), "attributes")), 1);
    assert_non_null(json_object_get(printed_span(j, 1), "status"));
    assert_non_null(json_object_get(printed_span(j, 2), "status"));
    json_decref(j);
}

static void what_a_collector_answers_is_believed_only_if_it_can_be(void **state)
{
    static const struct {
        const char *body;
        uint64_t rejected;
    } CASES[] = {
        {"", 0},
        {"{}", 0},
        {"[]", 0},
        {"null", 0},
        {"{\"partialSuccess\":{}}", 0},
        {"{\"partialSuccess\":{\"rejectedSpans\":\"3\"}}", 3},
        {"{\"partialSuccess\":{\"rejectedSpans\":3}}", 3},
        {"{\"partialSuccess\":{\"rejectedSpans\":-3}}", 0},
        {"{\"partialSuccess\":{\"rejectedSpans\":\"-3\"}}", 0},
        {"{\"partialSuccess\":{\"rejectedSpans\":1e300}}", 0},
        {"{\"partialSuccess\":{\"rejectedSpans\":\"99999999999999999999\"}}", 0},
        {"{\"partialSuccess\":{\"rejectedSpans\":{\"a\":1}}}", 0},
        {"{\"partialSuccess\":[3]}", 0},
        {"{\"partialSuccess\":{\"rejectedSpans\":3}", 0},
    };
    static const char MSG[] = "{\"partialSuccess\":{\"errorMessage\":\"full for now\"}}";
    char why[8];

    (void)state;
    for (size_t i = 0; i < SH_ARRAY_LEN(CASES); i++)
        if (otlp_rejected(CASES[i].body, strlen(CASES[i].body), why, sizeof(why)) !=
            CASES[i].rejected)
            fail_msg("%s", CASES[i].body);
    assert_int_equal(otlp_rejected(MSG, strlen(MSG), why, sizeof(why)), 0);
    assert_string_equal(why, "full fo");
}

static void wishes_are_kept_only_where_somebody_takes_them(void **state)
{
    struct sh_trace_wish w = {.api = 1, .rid = 1}, out[2];
    uint64_t lost;

    (void)state;
    assert_true(sh_trace_wish(&w)); /* nobody does */
    sh_trace_set_wishing(true);
    assert_int_equal(sh_trace_take_wishes(out, 2, &lost), 0);
    for (w.rid = 1; w.rid <= SH_TRACE_WISHES; w.rid++)
        assert_true(sh_trace_wish(&w));
    assert_false(sh_trace_wish(&w));
    assert_int_equal(sh_trace_take_wishes(out, 2, &lost), 2);
    assert_int_equal(lost, 1);
    assert_int_equal(out[1].rid, 2);
    assert_int_equal(sh_trace_take_wishes(out, 2, &lost), 2);
    assert_int_equal(out[0].rid, 3);
    assert_int_equal(lost, 0);
    sh_trace_set_wishing(false);
    sh_trace_set_wishing(true);
    assert_int_equal(sh_trace_take_wishes(out, 2, &lost), 0);
    sh_trace_set_wishing(false);
}

static void a_lookup_that_hangs_does_not_hold_up_the_end(void **state)
{
    static char endpoint[] = "http://collector.test:4318";
    const struct sh_otlp_conf c = {.endpoint = endpoint};
    const struct sh_trace_wish w = {.api = 1, .rid = 1, .trace = {1}, .self = 1};
    struct sh_otlp *o = NULL;
    struct sh_err err = {0};
    int64_t begin_ns;

    (void)state;
    sem_init(&lookup_began, 0, 0);
    assert_ok_err(sh_otlp_start(&c, "shunt-api", "api", &o, &err), &err);
    SH_TRACE(.name = "n", .track = "t", .begin_ns = sh_clock_ns(), .api = w.api, .rid = w.rid);
    assert_true(sh_trace_wish(&w));
    sem_wait(&lookup_began);
    begin_ns = sh_clock_ns();
    sh_otlp_stop(o);
    assert_true(sh_clock_ns() - begin_ns < SH_S(LOOKUP_S) / 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(numbers_of_64_bits_are_text),
        cmocka_unit_test(a_name_that_was_cut_costs_only_itself),
        cmocka_unit_test(a_mistake_of_a_client_is_no_error_of_a_server),
        cmocka_unit_test(what_a_collector_answers_is_believed_only_if_it_can_be),
        cmocka_unit_test(wishes_are_kept_only_where_somebody_takes_them),
        cmocka_unit_test(a_lookup_that_hangs_does_not_hold_up_the_end),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
