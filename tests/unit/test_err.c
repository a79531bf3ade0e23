/* test_err.c - Without it: a cleanup path could hide the cause of a failure, a full disk could look
 * like any input/output error, and a stranger's bytes in a message could break every JSON reply
 * that quotes it. */
#include "tests/unit/sh_test.h"

#include <errno.h>
#include <jansson.h>

static void the_first_failure_wins(void **state)
{
    struct sh_err err = {0};
    (void)state;

    assert_int_equal(SH_FAIL(&err, SH_E_QUOTA, "first %d", 1), SH_E_QUOTA);
    assert_int_equal(SH_FAIL(&err, SH_E_IO, "second"), SH_E_IO);
    assert_int_equal(err.rc, SH_E_QUOTA);
    assert_string_equal(err.msg, "first 1");
    assert_has(err.file, "test_err.c");
    assert_true(err.line > 0);
}

static void a_null_err_is_allowed_everywhere(void **state)
{
    (void)state;
    assert_int_equal(SH_FAIL(NULL, SH_E_NOMEM, "x"), SH_E_NOMEM);
    errno = EIO;
    assert_int_equal(SH_FAIL_ERRNO(NULL, SH_E_IO, "x"), SH_E_IO);
    sh_err_detail(NULL, "x");
}

static void a_failure_with_the_code_of_success_is_our_bug(void **state)
{
    struct sh_err err = {0};
    (void)state;

    assert_fails(SH_FAIL(&err, SH_OK, "oops"), SH_E_BUG, &err, "oops");
}

static void errno_is_kept_and_decides_the_code_for_disk_and_memory(void **state)
{
    static const struct {
        int no, asked, want;
    } CASES[] = {
        {ENOSPC, SH_E_IO, SH_E_DISKFULL},       {EDQUOT, SH_E_IO, SH_E_DISKFULL},
        {ENOMEM, SH_E_IO, SH_E_NOMEM},          {EACCES, SH_E_IO, SH_E_IO},
        {ENOENT, SH_E_NOTFOUND, SH_E_NOTFOUND},
    };
    (void)state;

    for (size_t i = 0; i < sizeof(CASES) / sizeof(CASES[0]); i++) {
        struct sh_err err = {0};

        errno = CASES[i].no;
        assert_fails(SH_FAIL_ERRNO(&err, CASES[i].asked, "could not write"), CASES[i].want, &err,
                     "could not write");
        assert_int_equal(errno, CASES[i].no);
        assert_int_equal(err.native, CASES[i].no);
        assert_true(err.detail[0] != '\0');
    }
}

static void details_add_up_and_need_a_failure(void **state)
{
    struct sh_err err = {0};
    (void)state;

    sh_err_detail(&err, "lost");
    assert_string_equal(err.detail, "");
    (void)SH_FAIL(&err, SH_E_IO, "x");
    sh_err_detail(&err, "one");
    sh_err_detail(&err, "two %d", 2);
    assert_string_equal(err.detail, "one; two 2");
    for (int i = 0; i < 200; i++)
        sh_err_detail(&err, "padding %d", i);
    assert_true(strlen(err.detail) < sizeof(err.detail));
}

static void copy_keeps_an_older_failure(void **state)
{
    struct sh_err a = {0}, b = {0}, c = {0};
    (void)state;

    (void)SH_FAIL(&b, SH_E_QUOTA, "b");
    assert_int_equal(sh_err_copy(&a, &b), SH_E_QUOTA);
    assert_string_equal(a.msg, "b");
    (void)SH_FAIL(&c, SH_E_IO, "c");
    assert_int_equal(sh_err_copy(&a, &c), SH_E_IO);
    assert_string_equal(a.msg, "b");
    assert_int_equal(sh_err_copy(NULL, &c), SH_E_IO);
}

static void codes_and_names_are_inverse(void **state)
{
    (void)state;
    for (int rc = 0; rc >= SH_E_MULTIGPU; rc--) {
        assert_int_equal(sh_rc_parse(sh_rc_name(rc)), rc);
        assert_true(sh_rc_http(rc) >= 200 && sh_rc_http(rc) < 600);
        assert_true(sh_rc_text(rc)[0] != '\0');
    }
    assert_string_equal(sh_rc_name(SH_E_QUOTA), "QUOTA");
    assert_int_equal(sh_rc_http(SH_E_QUOTA), 429);
    assert_true(sh_rc_retry(SH_E_QUOTA));
    assert_false(sh_rc_retry(SH_E_INVALID));
    assert_string_equal(sh_rc_name(-9999), "?");
    assert_int_equal(sh_rc_http(-9999), 500);
    assert_int_equal(sh_rc_parse("NO_SUCH"), SH_E_BUG);
    assert_int_equal(sh_rc_parse(NULL), SH_E_BUG);
}

static void a_message_can_always_become_json_and_one_line(void **state)
{
    static const char *const BAD[] = {"\xff",
                                      "\xc3",
                                      "\xe2\x82",
                                      "\xed\xa0\x80",
                                      "\xf5\x80\x80\x80",
                                      "\xc0\xaf",
                                      "a\nb\tc",
                                      "caf\xc3\xa9 \xe2\x82\xac"};
    (void)state;

    for (size_t i = 0; i < sizeof(BAD) / sizeof(BAD[0]); i++) {
        struct sh_err err = {0};
        json_t *j;

        (void)SH_FAIL(&err, SH_E_INVALID, "not \"%s\"", BAD[i]);
        j = json_string(err.msg);
        assert_non_null(j);
        assert_null(strchr(err.msg, '\n'));
        json_decref(j);
    }
    /* cut in the middle of a character, at each of its bytes */
    for (int pad = 500; pad < 512; pad++) {
        struct sh_err err = {0};
        json_t *j;

        (void)SH_FAIL(&err, SH_E_INVALID, "%*s\xe2\x82\xac\xe2\x82\xac\xe2\x82\xac", pad, "");
        j = json_string(err.msg);
        assert_non_null(j);
        json_decref(j);
    }
    {
        struct sh_err err = {0};

        (void)SH_FAIL(&err, SH_E_INVALID, "%s", BAD[7]);
        assert_string_equal(err.msg, BAD[7]); /* good UTF-8 stays */
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_first_failure_wins),
        cmocka_unit_test(a_null_err_is_allowed_everywhere),
        cmocka_unit_test(a_failure_with_the_code_of_success_is_our_bug),
        cmocka_unit_test(errno_is_kept_and_decides_the_code_for_disk_and_memory),
        cmocka_unit_test(details_add_up_and_need_a_failure),
        cmocka_unit_test(copy_keeps_an_older_failure),
        cmocka_unit_test(codes_and_names_are_inverse),
        cmocka_unit_test(a_message_can_always_become_json_and_one_line),
    };

    return cmocka_run_group_tests_name("err", tests, NULL, NULL);
}
