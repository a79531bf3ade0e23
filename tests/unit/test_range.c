/* test_range.c - which part of a file a client asks for, and whether it has the file already.
 *
 * Without it: bytes from outside of a file could be sent, a download that goes on could get a hole,
 * or a client could keep an old file for a new one. */
/* uses: api/request/range.o */
#include "api/request/range.h"
#include "tests/unit/sh_test.h"

static void a_range_is_cut_to_the_file(void **state)
{
    static const struct {
        const char *header;
        uint64_t size;
        enum range want;
        uint64_t from, n;
    } CASES[] = {
        {NULL, 100, RANGE_ALL, 0, 100},
        {"bytes=0-9", 100, RANGE_PART, 0, 10},
        {"BYTES=99-99", 100, RANGE_PART, 99, 1},
        {"bytes=90-", 100, RANGE_PART, 90, 10},
        {"bytes=90-1000", 100, RANGE_PART, 90, 10},
        {"bytes=0-18446744073709551615", 100, RANGE_PART, 0, 100},
        {"bytes=0-99999999999999999999999", 100, RANGE_PART, 0, 100},
        {"bytes=-10", 100, RANGE_PART, 90, 10},
        {"bytes=-1000", 100, RANGE_PART, 0, 100},
        {"bytes=100-", 100, RANGE_BAD, 0, 0},
        {"bytes=18446744073709551615-", 100, RANGE_BAD, 0, 0},
        {"bytes=-0", 100, RANGE_BAD, 0, 0},
        /* what is not understood is not there */
        {"bytes=9-0", 100, RANGE_ALL, 0, 100},
        {"bytes=-", 100, RANGE_ALL, 0, 100},
        {"bytes=", 100, RANGE_ALL, 0, 100},
        {"bytes=5", 100, RANGE_ALL, 0, 100},
        {"bytes=0-1,5-6", 100, RANGE_ALL, 0, 100},
        {"bytes= 0-1", 100, RANGE_ALL, 0, 100},
        {"bytes=0-1 ", 100, RANGE_ALL, 0, 100},
        {"bytes=0x0-1", 100, RANGE_ALL, 0, 100},
        {"bytes=--1", 100, RANGE_ALL, 0, 100},
        {"rows=0-1", 100, RANGE_ALL, 0, 100},
        {"", 100, RANGE_ALL, 0, 100},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(CASES) / sizeof(CASES[0]); i++) {
        uint64_t from = 7, n = 7;
        enum range got = range_parse(CASES[i].header, CASES[i].size, &from, &n);

        if (got != CASES[i].want ||
            (got != RANGE_BAD && (from != CASES[i].from || n != CASES[i].n)))
            fail_msg("\"%s\" of %llu: %d, %llu + %llu", CASES[i].header ? CASES[i].header : "",
                     (unsigned long long)CASES[i].size, (int)got, (unsigned long long)from,
                     (unsigned long long)n);
    }
}

static void an_etag_is_found_in_a_list(void **state)
{
    (void)state;
    assert_true(range_etag_listed("\"ab\"", "\"ab\""));
    assert_true(range_etag_listed("*", "\"ab\""));
    assert_true(range_etag_listed("W/\"ab\"", "\"ab\""));
    assert_true(range_etag_listed("\"x\", \"ab\" , \"y\"", "\"ab\""));
    assert_false(range_etag_listed(NULL, "\"ab\""));
    assert_false(range_etag_listed("", "\"ab\""));
    assert_false(range_etag_listed("ab", "\"ab\""));
    assert_false(range_etag_listed("\"abc\"", "\"ab\""));
    assert_false(range_etag_listed("\"ab\"c", "\"ab\""));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_range_is_cut_to_the_file),
        cmocka_unit_test(an_etag_is_found_in_a_list),
    };

    return cmocka_run_group_tests_name("range", tests, NULL, NULL);
}
