/* test_cors.c - Without it a page of an origin that nobody named could call the API from a
 * browser. */
/* uses: libapi.a */
#include "api/http/cors.h"
#include "tests/unit/sh_test.h"

static void origins_are_named_in_full(void **state)
{
    static const char LIST[] = "https://a.example , http://localhost:3000";
    struct sh_err err = {0};

    (void)state;
    assert_ok(cors_check("", &err));
    assert_ok(cors_check("*", &err));
    assert_ok(cors_check(LIST, &err));
    assert_int_equal(cors_check("a.example", NULL), SH_E_INVALID);
    assert_int_equal(cors_check("https://", NULL), SH_E_INVALID);
    assert_int_equal(cors_check("https://a.example/", NULL), SH_E_INVALID);
    assert_int_equal(cors_check("https://*.example", NULL), SH_E_INVALID);
    assert_fails(cors_check("https://a.example,null", &err), SH_E_INVALID, &err, "null");
    assert_true(cors_allows(LIST, "https://a.example"));
    assert_true(cors_allows(LIST, "https://A.example"));
    assert_true(cors_allows(LIST, "http://localhost:3000"));
    assert_true(cors_allows("*", "https://anything.example"));
    assert_false(cors_allows(LIST, "http://localhost:3001"));
    assert_false(cors_allows(LIST, "http://localhost"));
    assert_false(cors_allows(LIST, "https://a.example.evil"));
    assert_false(cors_allows(LIST, "null"));
    assert_false(cors_allows(LIST, ""));
    assert_false(cors_allows(LIST, NULL));
    assert_false(cors_allows("", "https://a.example"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(origins_are_named_in_full)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
