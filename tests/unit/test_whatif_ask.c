/* test_whatif_ask.c - without it, a crash of shunt-simulate could be blamed on the question, or its
 * limits on a fault of the program. */
#include "common/log.h"
#include "common/whatif.h"
#include "tests/unit/sh_test.h"

static int64_t limit_ms = 20000;

/* In place of shunt-simulate, in front of PATH: a program that ends in one way. */
static int ask_one_that(const char *ends, json_t **out, struct sh_err *err)
{
    char dir[SH_TEST_DIR_BYTES], path[128], text[256], *old = strdup(getenv("PATH"));
    json_t *question = json_object();
    int rc;

    assert_non_null(old);
    sh_test_dir_make(dir);
    snprintf(path, sizeof(path), "%s/shunt-simulate", dir);
    snprintf(text, sizeof(text), "#!/bin/sh\n%s\n", ends);
    sh_test_write_file(path, text, strlen(text));
    assert_int_equal(chmod(path, 0700), 0);
    snprintf(text, sizeof(text), "%s:%s", dir, old);
    assert_int_equal(setenv("PATH", text, 1), 0);
    rc = sh_whatif_ask(question, limit_ms, NULL, out, err);
    assert_int_equal(setenv("PATH", old, 1), 0);
    sh_test_dir_remove(dir);
    json_decref(question);
    free(old);
    return rc;
}

static void its_limit_is_the_question_s(void **state)
{
    struct sh_err err = {0};
    json_t *out = NULL;

    (void)state;
    assert_fails(ask_one_that("kill -XCPU $$", &out, &err), SH_E_UNSUPPORTED, &err,
                 "more processor time");
    assert_null(out);
}

/* A killed one says nothing of the question: it may be asked again. */
static void who_kills_it_is_somebody_else(void **state)
{
    static const char *const ENDS[] = {"kill -KILL $$", "kill -TERM $$"};

    (void)state;
    for (size_t i = 0; i < 2; i++) {
        struct sh_err err = {0};
        json_t *out = NULL;

        assert_fails(ask_one_that(ENDS[i], &out, &err), SH_E_UNAVAILABLE, &err, "was killed");
        assert_null(out);
    }
}

/* By the program itself, with a question that takes longer than its limit allows. */
static void the_limit_says_that_it_was_the_limit(void **state)
{
    struct sh_err err = {0};
    json_t *out = NULL;

    (void)state;
    assert_fails(ask_one_that("ulimit -S -t 1; ulimit -H -t 2; while :; do :; done", &out, &err),
                 SH_E_UNSUPPORTED, &err, "more processor time");
    assert_null(out);
}

static void who_waits_too_long_hears_what_to_do(void **state)
{
    struct sh_err err = {0};
    json_t *out = NULL;

    (void)state;
    limit_ms = 200;
    assert_fails(ask_one_that("exec sleep 60", &out, &err), SH_E_TIMEOUT, &err, "fewer hours");
    limit_ms = 20000;
    assert_null(out);
}

static void a_crash_is_ours(void **state)
{
    static const char *const ENDS[] = {"kill -SEGV $$", "kill -ABRT $$", "kill -BUS $$", "exit 3"};

    (void)state;
    for (size_t i = 0; i < 4; i++) {
        struct sh_err err = {0};
        json_t *out = NULL;

        assert_fails(ask_one_that(ENDS[i], &out, &err), SH_E_BUG, &err, "shunt-simulate ended");
        assert_null(out);
    }
}

static void what_it_says_is_handed_on(void **state)
{
    struct sh_err err = {0};
    json_t *out = NULL;

    (void)state;
    assert_fails(
        ask_one_that("echo '{\"code\": \"NOMEM\", \"error\": \"no memory\"}'; exit 1", &out, &err),
        SH_E_NOMEM, &err, "no memory");
    assert_ok_err(ask_one_that("cat /proc/self/fd/3", &out, &err), &err);
    assert_true(json_is_object(out));
    json_decref(out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(its_limit_is_the_question_s),
        cmocka_unit_test(who_kills_it_is_somebody_else),
        cmocka_unit_test(the_limit_says_that_it_was_the_limit),
        cmocka_unit_test(who_waits_too_long_hears_what_to_do),
        cmocka_unit_test(a_crash_is_ours),
        cmocka_unit_test(what_it_says_is_handed_on),
    };

    sh_log_init("test", SH_LOG_ERROR);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
