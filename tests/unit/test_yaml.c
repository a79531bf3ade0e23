/* test_yaml.c - Without it: `-o yaml` could print a text that a reader takes for a number, a truth,
 * a date, nothing, or two lines, and what is read back would not be what the server said. */
/* uses: cli/text/yaml.o */
#include "cli/text/yaml.h"
#include "common/mem.h"
#include "tests/unit/sh_test.h"

static void assert_yaml(const char *json, const char *want)
{
    json_t *j = json_loads(json, JSON_DECODE_ANY, NULL);
    struct sh_buf b;

    assert_non_null(j);
    sh_buf_init(&b, 1 << 20);
    assert_ok(yaml_append(&b, j, 0, NULL));
    assert_string_equal(b.data, want);
    sh_buf_fini(&b);
    json_decref(j);
}

static void a_text_that_could_be_something_else_is_quoted(void **state)
{
    static const char *const QUOTED[] = {
        "y",   "N",         "yes",        "No",   "ON",    "off",  "true", "False", "NULL", "null",
        "~",   "NaN",       ".nan",       ".inf", "-.inf", "1",    "010",  "0x1f",  "0o7",  "1e3",
        "1_0", "1:30",      "2026-11-22", "+1",   "-1",    ".5",   "1.",   "=",     "<<",   "-",
        "- a", "? a",       ": a",        "a: b", "a:",    "a #b", "#a",   "&a",    "*a",   "!a",
        "|",   ">",         "%a",         "@a",   "`a",    "{a}",  "[a]",  "a, b",  "'a'",  " a",
        "a ",  "a\xc3\xa9", "",           "---",  "..."};
    (void)state;

    for (size_t i = 0; i < SH_ARRAY_LEN(QUOTED); i++) {
        char json[64], yaml[64];

        snprintf(json, sizeof(json), "\"%s\"", QUOTED[i]);
        snprintf(yaml, sizeof(yaml), "\"%s\"\n", QUOTED[i]);
        assert_yaml(json, yaml);
    }
}

static void a_word_stays_as_it_is(void **state)
{
    static const char *const PLAIN[] = {"a",           "READY",     "shunt-1",   "/api/v1/models",
                                        "a@b.example", "two words", "yesterday", "nullable"};
    (void)state;

    for (size_t i = 0; i < SH_ARRAY_LEN(PLAIN); i++) {
        char json[64], yaml[64];

        snprintf(json, sizeof(json), "\"%s\"", PLAIN[i]);
        snprintf(yaml, sizeof(yaml), "%s\n", PLAIN[i]);
        assert_yaml(json, yaml);
    }
}

static void what_a_reader_or_a_terminal_minds_is_escaped(void **state)
{
    (void)state;

    assert_yaml("\"a\\nb\\r\\t\\\"\\\\\"", "\"a\\nb\\r\\t\\\"\\\\\"\n");
    assert_yaml("\"\\u001b[2J\\u0007\\u007f\"", "\"\\x1b[2J\\x07\\x7f\"\n");
    assert_yaml("\"\\u0085\\u009b\\u00a0\"", "\"\\x85\\x9b\xc2\xa0\"\n");
    assert_yaml("\"\\u2028\\u2029\\u202e\\ufeff\\uffff\"",
                "\"\\u2028\\u2029\\u202e\\ufeff\\uffff\"\n");
    assert_yaml("\"\\ud83d\\ude00\"", "\"\xf0\x9f\x98\x80\"\n");
    assert_yaml("\"\\ud83f\\udffe\"", "\"\\U0001fffe\"\n");
}

static void numbers_are_numbers_in_each_version_of_yaml(void **state)
{
    (void)state;

    assert_yaml("9007199254740993", "9007199254740993\n");
    assert_yaml("-0", "0\n");
    assert_yaml("0.05", "0.05\n");
    assert_yaml("1e20", "1.0e+20\n");
    assert_yaml("1.5e-9", "1.5e-09\n");
    assert_yaml("3.0", "3.0\n");
}

static void nested_things_are_blocks(void **state)
{
    (void)state;

    assert_yaml("[]", "[]\n");
    assert_yaml("{\"a\":{},\"b\":[],\"c\":null,\"d\":true}", "a: {}\nb: []\nc: null\nd: true\n");
    assert_yaml(
        "[{\"a\":1,\"b\":{\"c\":[1,[2,3],{\"d\":\"no\"}]}},\"x\"]",
        "- a: 1\n  b:\n    c:\n      - 1\n      - - 2\n        - 3\n      - d: \"no\"\n- x\n");
    assert_yaml("{\"on\":1,\"a b:\":2,\"\":3}", "\"on\": 1\n\"a b:\": 2\n\"\": 3\n");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_text_that_could_be_something_else_is_quoted),
        cmocka_unit_test(a_word_stays_as_it_is),
        cmocka_unit_test(what_a_reader_or_a_terminal_minds_is_escaped),
        cmocka_unit_test(numbers_are_numbers_in_each_version_of_yaml),
        cmocka_unit_test(nested_things_are_blocks),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
