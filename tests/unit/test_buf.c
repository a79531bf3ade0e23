/* test_buf.c - Without it: a buffer could grow past its limit on a tenant's word, or lose the NUL
 * that every reader of text relies on. */
#include "common/buf.h"
#include "common/mem.h"
#include "tests/unit/sh_test.h"

static void text_is_appended_and_terminated(void **state)
{
    struct sh_buf b;
    (void)state;

    sh_buf_init(&b, 1000);
    assert_ok(sh_buf_puts(&b, "ab", NULL));
    assert_ok(sh_buf_append(&b, "cde", 2, NULL));
    assert_ok(sh_buf_printf(&b, NULL, "%d", 42));
    assert_int_equal(b.len, 6);
    assert_string_equal(b.data, "abcd42");
    sh_buf_reset(&b);
    assert_int_equal(b.len, 0);
    assert_string_equal(b.data, "");
    sh_buf_fini(&b);
    assert_null(b.data);
}

static void a_text_that_does_not_fit_at_first_is_whole(void **state)
{
    char want[2001];
    struct sh_buf b;
    (void)state;

    memset(want, 'x', sizeof(want) - 1);
    want[sizeof(want) - 1] = '\0';
    for (size_t n = 0; n < sizeof(want); n++) { /* of every length beside what the buffer has */
        sh_buf_init(&b, 3000);
        assert_ok(sh_buf_puts(&b, "ab", NULL));
        assert_ok(sh_buf_printf(&b, NULL, "%.*s", (int)n, want));
        assert_int_equal(b.len, n + 2);
        assert_int_equal(strlen(b.data), n + 2);
        sh_buf_fini(&b);
    }
}

static void a_text_that_is_refused_leaves_the_one_before_it(void **state)
{
    struct sh_err err = {0};
    struct sh_buf b;
    (void)state;

    sh_buf_init(&b, 20);
    assert_ok(sh_buf_puts(&b, "0123456789", NULL));
    assert_fails(sh_buf_printf(&b, &err, "%s", "abcdefghijk"), SH_E_TOOBIG, &err, "20 bytes");
    assert_string_equal(b.data, "0123456789");
    assert_ok(sh_buf_printf(&b, &err, "%s", "abcdefghij"));
    assert_string_equal(b.data, "0123456789abcdefghij");
    sh_buf_fini(&b);
}

static void decimals_have_the_digits_that_were_asked_for(void **state)
{
    static const struct {
        uint64_t n;
        unsigned min_digits;
        const char *want;
    } CASES[] = {{0, 0, ""},
                 {0, 1, "0"},
                 {7, 3, "007"},
                 {123, 3, "123"},
                 {1234, 3, "1234"},
                 {10, 1, "10"},
                 {UINT64_MAX, 1, "18446744073709551615"}};
    char text[24];
    (void)state;

    for (size_t i = 0; i < SH_ARRAY_LEN(CASES); i++) {
        *sh_put_decimal(text, CASES[i].n, CASES[i].min_digits) = '\0';
        assert_string_equal(text, CASES[i].want);
    }
}

static void the_limit_holds_to_the_byte_and_a_refusal_changes_nothing(void **state)
{
    struct sh_err err = {0};
    struct sh_buf b;
    char *room = NULL;
    (void)state;

    sh_buf_init(&b, 1000);
    for (int i = 0; i < 100; i++)
        assert_ok(sh_buf_puts(&b, "0123456789", &err));
    assert_int_equal(b.len, 1000);
    assert_fails(sh_buf_puts(&b, "x", &err), SH_E_TOOBIG, &err, "1000 bytes");
    assert_int_equal(sh_buf_printf(&b, NULL, "%d", 1), SH_E_TOOBIG);
    assert_int_equal(sh_buf_reserve(&b, 1, &room, NULL), SH_E_TOOBIG);
    assert_int_equal(sh_buf_append(&b, "x", SIZE_MAX, NULL), SH_E_TOOBIG);
    assert_null(room);
    assert_int_equal(b.len, 1000);
    assert_int_equal(strlen(b.data), 1000);
    sh_buf_fini(&b);
}

static void reserved_bytes_end_with_nul_however_many_are_filled(void **state)
{
    struct sh_buf b;
    char *room = NULL;
    (void)state;

    sh_buf_init(&b, 10000);
    assert_ok(sh_buf_puts(&b, "head:", NULL));
    assert_ok(sh_buf_reserve(&b, 5000, &room, NULL));
    memset(room, 'x', 5000); /* as a large read() does */
    b.len += 5000;
    assert_int_equal(strlen(b.data), 5005);
    sh_buf_reset(&b);
    assert_ok(sh_buf_reserve(&b, 100, &room, NULL));
    memcpy(room, "abc", 3); /* and a short one into memory that was used before */
    b.len += 3;
    assert_string_equal(b.data, "abc");
    sh_buf_fini(&b);
}

static void take_hands_the_memory_over_and_the_buffer_still_works(void **state)
{
    struct sh_buf b;
    char *p;
    (void)state;

    sh_buf_init(&b, 100);
    assert_ok(sh_buf_puts(&b, "one", NULL));
    p = sh_buf_take(&b);
    assert_string_equal(p, "one");
    free(p);
    assert_int_equal(b.len, 0);
    assert_ok(sh_buf_puts(&b, "two", NULL));
    assert_string_equal(b.data, "two");
    sh_buf_fini(&b);
}

static void escaping_leaves_plain_characters_and_no_other(void **state)
{
    struct sh_buf b;
    (void)state;

    sh_buf_init(&b, 100);
    assert_ok(sh_buf_escape(&b, "aZ9-._~/?%\xc3\xa4 ", "-._~", NULL));
    assert_string_equal(b.data, "aZ9-._~%2F%3F%25%C3%A4%20");
    sh_buf_reset(&b);
    assert_ok(sh_buf_escape(&b, "/var/a b", "/", NULL));
    assert_string_equal(b.data, "/var/a%20b");
    sh_buf_fini(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(text_is_appended_and_terminated),
        cmocka_unit_test(a_text_that_does_not_fit_at_first_is_whole),
        cmocka_unit_test(a_text_that_is_refused_leaves_the_one_before_it),
        cmocka_unit_test(decimals_have_the_digits_that_were_asked_for),
        cmocka_unit_test(the_limit_holds_to_the_byte_and_a_refusal_changes_nothing),
        cmocka_unit_test(reserved_bytes_end_with_nul_however_many_are_filled),
        cmocka_unit_test(take_hands_the_memory_over_and_the_buffer_still_works),
        cmocka_unit_test(escaping_leaves_plain_characters_and_no_other),
    };

    return cmocka_run_group_tests_name("buf", tests, NULL, NULL);
}
