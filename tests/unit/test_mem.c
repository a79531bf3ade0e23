/* test_mem.c - Without it: a product of two sizes from a stranger's file could wrap around and
 * become a small allocation with large writes, and "12abc" or "0x10" could pass as numbers. */
#include "common/mem.h"
#include "tests/unit/sh_test.h"

static void sizes_do_not_wrap_around(void **state)
{
    struct sh_err err = {0};
    size_t out = 7;
    (void)state;

    assert_ok(sh_mul_size(6, 7, &out, &err));
    assert_int_equal(out, 42);
    assert_fails(sh_mul_size(SIZE_MAX / 2, 3, &out, &err), SH_E_TOOBIG, &err, "too large");
    assert_int_equal(out, 42);
    err = (struct sh_err){0};
    assert_fails(sh_add_size(SIZE_MAX, 1, &out, &err), SH_E_TOOBIG, &err, "too large");
    assert_int_equal(out, 42);
    assert_ok(sh_add_size(SIZE_MAX - 1, 1, &out, NULL));
}

/* Else tenants pay for less, or more, than a device has worked. */
static void what_is_handed_out_part_by_part_is_all_handed_out(void **state)
{
    static const uint32_t PARTS[] = {1, 3, 7, 0, 2};
    static const int64_t WANT[] = {7, 23, 54, 0, 16};
    int64_t left = 100;
    uint32_t shares = 13;
    (void)state;

    for (size_t i = 0; i < SH_ARRAY_LEN(PARTS); i++)
        assert_int_equal(sh_share(&left, &shares, PARTS[i]), WANT[i]);
    assert_int_equal(left, 0);
    assert_int_equal(shares, 0);
}

static void what_lies_behind_the_last_is_given_back(void **state)
{
    uint32_t *items = NULL;
    size_t cap = 0;
    (void)state;

    assert_ok(sh_grow(&items, &cap, 3, sizeof(*items), 100, "items", NULL));
    items[2] = 7;
    sh_shrink(&items, &cap, 3, sizeof(*items));
    assert_int_equal(cap, 3);
    assert_int_equal(items[2], 7);
    sh_shrink(&items, &cap, 3, sizeof(*items));
    sh_shrink(&items, &cap, 0, sizeof(*items)); /* a list of none stays as it is */
    assert_int_equal(cap, 3);
    assert_ok(sh_grow(&items, &cap, 4, sizeof(*items), 100, "items", NULL));
    assert_int_equal(items[2], 7);
    assert_int_equal(items[3], 0);
    free(items);
}

static void strings_are_copied_or_cut_with_a_terminator(void **state)
{
    char *s = NULL, small[4];
    (void)state;

    assert_ok(sh_strdup("abc", &s, NULL));
    assert_string_equal(s, "abc");
    free(s);
    assert_ok(sh_strdup(NULL, &s, NULL));
    assert_null(s);
    assert_ok(sh_asprintf(NULL, &s, "%s-%d", "x", 5));
    assert_string_equal(s, "x-5");
    free(s);
    assert_true(sh_strlcpy(small, "abc", sizeof(small)));
    assert_false(sh_strlcpy(small, "abcd", sizeof(small)));
    assert_string_equal(small, "abc");
    assert_false(sh_strlcpy(small, "z", 0));
    assert_string_equal(small, "abc");
}

static void a_copy_that_is_cut_ends_with_a_whole_character(void **state)
{
    static const char text[] = "a\xc3\xa4\xe2\x82\xac\xf0\x9f\x98\x80z"; /* 1, 2, 3, 4, 1 bytes */
    static const char *const CUT[] = {[1] = "", [2] = "a", [3] = "a", [4] = "a\xc3\xa4"};
    char out[sizeof(text)];
    (void)state;

    for (size_t size = 1; size < SH_ARRAY_LEN(CUT); size++) {
        assert_false(sh_strlcpy(out, text, size));
        assert_string_equal(out, CUT[size]);
    }
    for (size_t size = 1; size < sizeof(text); size++) {
        size_t at = 0;

        assert_false(sh_strlcpy(out, text, size));
        while (out[at])
            assert_true(sh_utf8_len(out + at) > 0), at += sh_utf8_len(out + at);
        assert_true(size - 1 - at < 4);
    }
    assert_false(sh_strlcpy(out, "\x80\x80\x80\x80\x80\x80", 6)); /* no text: no end to look for */
    assert_int_equal(strlen(out), 5);
}

static void grow_doubles_zeroes_and_stops_at_the_limit(void **state)
{
    struct sh_err err = {0};
    size_t cap = 0;
    int *v = NULL;
    (void)state;

    assert_ok(sh_grow(&v, &cap, 1, sizeof(*v), 100, "items", &err));
    assert_int_equal(cap, 8);
    for (size_t i = 0; i < cap; i++) {
        assert_int_equal(v[i], 0);
        v[i] = (int)i + 1;
    }
    assert_ok(sh_grow(&v, &cap, 9, sizeof(*v), 100, "items", &err));
    assert_int_equal(cap, 16);
    assert_int_equal(v[7], 8);
    assert_int_equal(v[15], 0);
    assert_ok(sh_grow(&v, &cap, 70, sizeof(*v), 100, "items", &err));
    assert_ok(sh_grow(&v, &cap, 100, sizeof(*v), 100, "items", &err));
    assert_int_equal(cap, 100);
    assert_fails(sh_grow(&v, &cap, 101, sizeof(*v), 100, "items", &err), SH_E_TOOBIG, &err,
                 "items");
    assert_int_equal(cap, 100);
    free(v);
}

static void grow_refuses_a_product_that_wraps(void **state)
{
    struct sh_err err = {0};
    size_t cap = 0;
    void *v = NULL;
    (void)state;

    assert_fails(sh_grow(&v, &cap, SIZE_MAX / 2, 16, SIZE_MAX, "items", &err), SH_E_TOOBIG, &err,
                 "too large");
    assert_null(v);
    assert_int_equal(cap, 0);
}

static void only_whole_strict_numbers_are_integers(void **state)
{
    static const char *const BAD[] = {"",
                                      " 1",
                                      "1 ",
                                      "+1",
                                      "0x10",
                                      "1.0",
                                      "1e3",
                                      "12a",
                                      "--1",
                                      "-",
                                      "101",
                                      "-101",
                                      "9223372036854775808",
                                      "99999999999999999999999"};
    int64_t v = 7;
    (void)state;

    for (size_t i = 0; i < SH_ARRAY_LEN(BAD); i++) {
        struct sh_err err = {0};

        assert_fails(sh_parse_i64(BAD[i], -100, 100, "the count", &v, &err), SH_E_INVALID, &err,
                     "the count must be a whole number from -100 to 100");
        assert_int_equal(v, 7);
    }
    assert_int_equal(sh_parse_i64(NULL, 0, 1, "x", &v, NULL), SH_E_INVALID);
    assert_ok(sh_parse_i64("-100", -100, 100, "x", &v, NULL));
    assert_int_equal(v, -100);
    assert_ok(sh_parse_i64("9223372036854775807", INT64_MIN, INT64_MAX, "x", &v, NULL));
    assert_true(v == INT64_MAX);
    assert_ok(sh_parse_i64("-9223372036854775808", INT64_MIN, INT64_MAX, "x", &v, NULL));
    assert_true(v == INT64_MIN);
}

static void only_finite_decimal_numbers_are_floats(void **state)
{
    static const char *const BAD[] = {"",   " 1",    "1 ", "nan", "inf", "-inf", "0x1p3",
                                      "1e", "1e999", "e",  ".",   "1,5", "+1",   "11"};
    double v = 7;
    (void)state;

    for (size_t i = 0; i < SH_ARRAY_LEN(BAD); i++) {
        struct sh_err err = {0};

        assert_fails(sh_parse_f64(BAD[i], -1, 10, "the rate", &v, &err), SH_E_INVALID, &err,
                     "the rate must be a number from -1 to 10");
        assert_true(v == 7);
    }
    assert_ok(sh_parse_f64("-.5", -1, 10, "x", &v, NULL));
    assert_true(v == -0.5);
    assert_ok(sh_parse_f64("2.5e-1", -1, 10, "x", &v, NULL));
    assert_true(v == 0.25);
    assert_ok(sh_parse_f64("1e-400", -1, 10, "x", &v, NULL));
    assert_true(v == 0);
}

static void constant_time_comparison_sees_each_byte(void **state)
{
    unsigned char a[33] = {0}, b[33] = {0};
    (void)state;

    assert_true(sh_mem_equal_ct(a, b, sizeof(a)));
    for (size_t i = 0; i < sizeof(a); i++) {
        b[i] = 0x80;
        assert_false(sh_mem_equal_ct(a, b, sizeof(a)));
        b[i] = 0;
    }
    assert_true(sh_mem_equal_ct(a, b, 0));
}

static void sizes_are_read_in_the_units_they_are_printed_in(void **state)
{
    static const struct {
        const char *text;
        int64_t bytes;
    } GOOD[] = {
        {"0", 0},
        {"1048576", 1 << 20},
        {"512M", INT64_C(512) << 20},
        {"8Gi", INT64_C(8) << 30},
        {"8GiB", INT64_C(8) << 30},
        {"1.5 GiB", INT64_C(3) << 29},
        {"1.5g", INT64_C(3) << 29},
        {"0.5K", 512},
        {"7B", 7},
        {"2T", INT64_C(2) << 40},
        {"9007199254740993", INT64_C(9007199254740993)},
    };
    static const char *const BAD[] = {"",      "M",   "-1",  "1.5",    "1e3", "1X",
                                      "1GG",   "1Mx", "1 ",  "1  GiB", "+1",  "0x10",
                                      "1.2.3", "8iB", " 1M", "nan",    "9e9", "123456789T"};
    int64_t v;
    (void)state;

    for (size_t i = 0; i < SH_ARRAY_LEN(GOOD); i++) {
        v = -1;
        assert_ok(sh_parse_bytes(GOOD[i].text, 0, INT64_MAX, "it", &v, NULL));
        assert_int_equal(v, GOOD[i].bytes);
    }
    for (size_t i = 0; i < SH_ARRAY_LEN(BAD); i++) {
        struct sh_err err = {0};

        v = 5;
        assert_fails(sh_parse_bytes(BAD[i], 0, INT64_MAX, "the cache", &v, &err), SH_E_INVALID,
                     &err, "the cache");
        assert_int_equal(v, 5);
    }
    assert_int_equal(sh_parse_bytes("2M", 0, 1 << 20, "it", &v, NULL), SH_E_INVALID);
    assert_int_equal(sh_parse_bytes("1K", 1 << 20, 1 << 21, "it", &v, NULL), SH_E_INVALID);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sizes_do_not_wrap_around),
        cmocka_unit_test(what_is_handed_out_part_by_part_is_all_handed_out),
        cmocka_unit_test(what_lies_behind_the_last_is_given_back),
        cmocka_unit_test(strings_are_copied_or_cut_with_a_terminator),
        cmocka_unit_test(a_copy_that_is_cut_ends_with_a_whole_character),
        cmocka_unit_test(grow_doubles_zeroes_and_stops_at_the_limit),
        cmocka_unit_test(grow_refuses_a_product_that_wraps),
        cmocka_unit_test(only_whole_strict_numbers_are_integers),
        cmocka_unit_test(only_finite_decimal_numbers_are_floats),
        cmocka_unit_test(constant_time_comparison_sees_each_byte),
        cmocka_unit_test(sizes_are_read_in_the_units_they_are_printed_in),
    };

    return cmocka_run_group_tests_name("mem", tests, NULL, NULL);
}
