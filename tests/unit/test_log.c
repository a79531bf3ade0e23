/* test_log.c - Without it: a tenant's text could forge a second log line, a line could lack the job
 * it belongs to, and time stamps could be wrong around a day or a leap year. */
#include "common/clock.h"
#include "common/log.h"
#include "common/metrics.h"
#include "tests/unit/sh_test.h"

static struct sh_test_capture cap;

static int quiet(void **state)
{
    (void)state;
    sh_clock_fake(1, INT64_C(1795240380123));
    sh_log_init("test", SH_LOG_INFO);
    return 0;
}

static int real(void **state)
{
    (void)state;
    sh_clock_real();
    return 0;
}

static void a_line_has_time_level_process_event_and_fields(void **state)
{
    char *text;
    (void)state;

    sh_test_capture_begin(&cap, STDERR_FILENO);
    SH_INFO("worker.hello", "pid=%d", 81);
    text = sh_test_capture_end(&cap);
    assert_string_equal(text,
                        "ts=2026-11-21T05:53:00.123Z lvl=info proc=test ev=worker.hello pid=81\n");
    free(text);
}

static void levels_below_the_set_one_are_silent(void **state)
{
    enum sh_log_level level = SH_LOG_ERROR;
    struct sh_err err = {0};
    char *text;
    (void)state;

    sh_test_capture_begin(&cap, STDERR_FILENO);
    SH_DEBUG("a", "%s", "");
    sh_log_set_level(SH_LOG_ERROR);
    SH_WARN("b", "%s", "");
    SH_ERROR("c", "%s", "");
    text = sh_test_capture_end(&cap);
    assert_has_not(text, "ev=a");
    assert_has_not(text, "ev=b");
    assert_has(text, "lvl=error proc=test ev=c");
    free(text);
    assert_ok(sh_log_level_parse("DEBUG", &level, NULL));
    assert_int_equal(level, SH_LOG_DEBUG);
    assert_fails(sh_log_level_parse("loud", &level, &err), SH_E_INVALID, &err, "not \"loud\"");
}

static void scopes_add_identity_and_the_innermost_wins(void **state)
{
    char *text;
    (void)state;

    sh_test_capture_begin(&cap, STDERR_FILENO);
    {
        SH_LOG_SCOPE(.tenant = "a", .job = 1);
        {
            struct sh_log_scope inner = {.job = 42, .request = 9, .worker = 3};

            sh_log_scope_push(&inner);
            SH_INFO("in", "%s", "x=1");
            sh_log_scope_pop(&inner);
        }
        SH_INFO("mid", "%s", "x=1");
    }
    SH_INFO("out", "%s", "x=1");
    text = sh_test_capture_end(&cap);
    assert_has(text, " tenant=a job=42 request=9 worker=3 ev=in x=1\n");
    assert_has(text, " tenant=a job=1 ev=mid x=1\n");
    assert_has(text, "proc=test ev=out x=1\n");
    free(text);
}

static void lines_are_counted_by_level(void **state)
{
    struct sh_buf b;
    char *text;
    (void)state;

    sh_metrics_reset();
    sh_test_capture_begin(&cap, STDERR_FILENO);
    SH_WARN("a", "%s", "");
    SH_WARN("b", "%s", "");
    SH_DEBUG("not.written", "%s", "");
    text = sh_test_capture_end(&cap);
    free(text);
    sh_buf_init(&b, 1 << 20);
    assert_ok(sh_metrics_render('e', &b, NULL));
    assert_has(b.data, "shunt_log_lines_total{level=\"warn\"} 2\n");
    assert_has_not(b.data, "shunt_log_lines_total{level=\"debug\"}");
    sh_buf_fini(&b);
}

static int count_newlines(const char *s)
{
    int n = 0;

    for (; *s; s++)
        n += *s == '\n';
    return n;
}

static void one_event_is_one_line_whatever_it_quotes(void **state)
{
    struct sh_err err = {0};
    char *text, *big = malloc(20000);
    (void)state;

    assert_non_null(big);
    memset(big, 'y', 19999);
    big[19999] = '\0';
    (void)SH_FAIL(&err, SH_E_IO, "said \"%s\"", "x\\");
    sh_err_detail(&err, "at\nlvl=error proc=forged");
    sh_test_capture_begin(&cap, STDERR_FILENO);
    SH_INFO("raw", "v=%s", "one\ntwo");
    SH_INFO("big", "v=%s", big);
    sh_log_err(SH_LOG_ERROR, "bad", &err);
    text = sh_test_capture_end(&cap);
    assert_int_equal(count_newlines(text), 3);
    assert_has(text, "v=one two\n");
    assert_has(text, "yyy...\n");
    assert_has(text, "code=IO msg=\"said \\\"x\\\\\\\"\" detail=\"at lvl=error proc=forged\"");
    free(text);
    free(big);
}

static void quoting_escapes_and_cuts(void **state)
{
    char small[6], q[32];
    (void)state;

    assert_string_equal(sh_log_quote("a\"b\\c\nd\te\x01", q, sizeof(q)), "a\\\"b\\\\c\\nd\\te ");
    assert_string_equal(sh_log_quote(NULL, q, sizeof(q)), "");
    assert_string_equal(sh_log_quote("abcdefgh", small, sizeof(small)), "abcde");
    assert_string_equal(sh_log_quote("abcd\"", small, sizeof(small)), "abcd"); /* no half escape */
}

static void repeats_are_limited_and_counted(void **state)
{
    uint64_t left_out = 0;
    int64_t last = 0;
    (void)state;

    assert_true(sh_log_ratelimit(&last, &left_out, 1000));
    assert_false(sh_log_ratelimit(&last, &left_out, 1000));
    sh_clock_advance(999999999);
    assert_false(sh_log_ratelimit(&last, &left_out, 1000));
    assert_int_equal(left_out, 2);
    sh_clock_advance(1);
    assert_true(sh_log_ratelimit(&last, &left_out, 1000));
    assert_int_equal(left_out, 2);
}

static void time_is_formatted_in_utc_at_the_edges(void **state)
{
    static const struct {
        int64_t ms;
        const char *text;
    } CASES[] = {
        {0, "1970-01-01T00:00:00.000Z"},
        {-1, "1969-12-31T23:59:59.999Z"},
        {INT64_C(951782400000), "2000-02-29T00:00:00.000Z"},
        {INT64_C(253402300799999), "9999-12-31T23:59:59.999Z"},
        {INT64_MAX, "9999-12-31T23:59:59.999Z"},
        {INT64_MIN, "0000-01-01T00:00:00.000Z"},
    };
    char out[25];
    (void)state;

    for (size_t i = 0; i < sizeof(CASES) / sizeof(CASES[0]); i++) {
        sh_clock_format(CASES[i].ms, out);
        assert_string_equal(out, CASES[i].text);
    }
}

static void a_fake_clock_moves_only_when_told(void **state)
{
    (void)state;
    sh_clock_fake(5, 7);
    assert_int_equal(sh_clock_ns(), 5);
    sh_clock_advance(3000000);
    assert_int_equal(sh_clock_ns(), 3000005);
    assert_int_equal(sh_clock_wall_ms(), 10);
    sh_clock_real();
    assert_true(sh_clock_wall_ms() > INT64_C(1600000000000));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_line_has_time_level_process_event_and_fields, quiet,
                                        real),
        cmocka_unit_test_setup_teardown(levels_below_the_set_one_are_silent, quiet, real),
        cmocka_unit_test_setup_teardown(scopes_add_identity_and_the_innermost_wins, quiet, real),
        cmocka_unit_test_setup_teardown(one_event_is_one_line_whatever_it_quotes, quiet, real),
        cmocka_unit_test_setup_teardown(lines_are_counted_by_level, quiet, real),
        cmocka_unit_test(quoting_escapes_and_cuts),
        cmocka_unit_test_setup_teardown(repeats_are_limited_and_counted, quiet, real),
        cmocka_unit_test(time_is_formatted_in_utc_at_the_edges),
        cmocka_unit_test_setup_teardown(a_fake_clock_moves_only_when_told, quiet, real),
    };

    return cmocka_run_group_tests_name("log", tests, NULL, NULL);
}
