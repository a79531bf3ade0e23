/* test_json.c - Without it: a misspelt field would be ignored in silence, a value out of range
 * would reach the scheduler, and a deep or huge document could exhaust a daemon. */
#include "common/json.h"
#include "common/mem.h"
#include "tests/unit/sh_test.h"

static json_t *parse(const char *text)
{
    struct sh_err err = {0};
    json_t *j = NULL;

    assert_ok_err(sh_json_parse(text, strlen(text), 100000, &j, &err), &err);
    return j;
}

static void every_type_is_read_and_absent_fields_keep_their_default(void **state)
{
    json_t *j = parse("{\"s\":\"x\",\"i\":-3,\"f\":2,\"b\":true,\"o\":{},\"a\":[1],\"any\":1.5,"
                      "\"null\":null}");
    json_t *o = NULL, *a = NULL, *any = NULL;
    const char *s = NULL;
    int64_t i = 0, absent = 5, nul = 6;
    double f = 0;
    bool b = false;
    const struct sh_json_field fields[] = {
        {"s", SH_JSON_STR, &s, .required = true},
        {"i", SH_JSON_INT, &i},
        {"f", SH_JSON_F64, &f},
        {"b", SH_JSON_BOOL, &b},
        {"o", SH_JSON_OBJ, &o},
        {"a", SH_JSON_ARR, &a},
        {"any", SH_JSON_ANY, &any},
        {"absent", SH_JSON_INT, &absent},
        {"null", SH_JSON_INT, &nul},
    };
    (void)state;

    assert_ok(sh_json_read(j, "job", fields, SH_ARRAY_LEN(fields), NULL));
    assert_string_equal(s, "x");
    assert_int_equal(i, -3);
    assert_true(f == 2 && b && o && a && any);
    assert_int_equal(absent, 5);
    assert_int_equal(nul, 6);
    json_decref(j);
}

/* One field, one document, the sentence that must come out. */
static void refuse(const char *text, struct sh_json_field f, const char *says)
{
    struct sh_err err = {0};
    json_t *j = parse(text), *p = NULL;
    double room[2] = {0};

    f.out = f.type == SH_JSON_OBJ || f.type == SH_JSON_ARR ? (void *)&p : (void *)room;
    assert_fails(sh_json_read(j, "job", &f, 1, &err), SH_E_INVALID, &err, says);
    json_decref(j);
}

static void each_refusal_names_the_path_and_the_range(void **state)
{
    (void)state;
    refuse("{\"lr\":\"1\"}", (struct sh_json_field){"lr", SH_JSON_F64, NULL, .max = 10},
           "\"job.lr\" must be a number from 0 to 10");
    refuse("{\"lr\":10.1}", (struct sh_json_field){"lr", SH_JSON_F64, NULL, .max = 10},
           "\"job.lr\" must be a number from 0 to 10");
    refuse("{\"n\":1.5}", (struct sh_json_field){"n", SH_JSON_INT, NULL},
           "\"job.n\" must be a whole number");
    refuse("{\"n\":0}", (struct sh_json_field){"n", SH_JSON_INT, NULL, .min = 1},
           "\"job.n\" must be a whole number of at least 1");
    refuse("{\"n\":1}", (struct sh_json_field){"n", SH_JSON_INT, NULL, .min = -5, .max = -1},
           "from -5 to -1");
    refuse("{\"s\":\"abcd\"}", (struct sh_json_field){"s", SH_JSON_STR, NULL, .min = 1, .max = 3},
           "\"job.s\" must be a string of 1 to 3 characters");
    refuse("{\"s\":\"\"}", (struct sh_json_field){"s", SH_JSON_STR, NULL, .min = 1}, "1 to 4096");
    refuse("{\"b\":1}", (struct sh_json_field){"b", SH_JSON_BOOL, NULL}, "true or false");
    refuse("{\"o\":[]}", (struct sh_json_field){"o", SH_JSON_OBJ, NULL}, "an object");
    refuse("{\"a\":[1,2,3]}", (struct sh_json_field){"a", SH_JSON_ARR, NULL, .max = 2},
           "an array of 0 to 2 elements");
    refuse("{}", (struct sh_json_field){"a", SH_JSON_INT, NULL, .required = true},
           "\"job.a\" is missing: a whole number");
    refuse("{\"a\":null}", (struct sh_json_field){"a", SH_JSON_INT, NULL, .required = true},
           "\"job.a\" is missing");
    refuse("{\"x\":1}", (struct sh_json_field){"a", SH_JSON_INT, NULL},
           "\"job.x\" is not a known field; known here: a");
    refuse("[]", (struct sh_json_field){"a", SH_JSON_INT, NULL}, "\"job\" must be an object");
}

/* One failure in err, all of them among the faults; what is right is stored. */
static void all_that_is_wrong_is_listed(void **state)
{
    json_t *j = parse("{\"lr\":11,\"a/b.~\":1,\"n\":2}"), *want;
    double lr = 0.5;
    int64_t n = 0, m = 0;
    struct sh_json_field f[] = {
        {"lr", SH_JSON_F64, &lr, .max = 10},
        {"m", SH_JSON_INT, &m, .required = true, .min = 1, .max = 3},
        {"n", SH_JSON_INT, &n, .required = true},
    };
    struct sh_faults faults = {.below = "/job"};
    struct sh_err err = {.faults = &faults};
    (void)state;

    assert_int_equal(sh_json_read(j, "spec.optimizer", f, 3, &err), SH_E_INVALID);
    assert_int_equal(n, 2);
    assert_true(lr == 0.5);
    want = parse("[{\"pointer\":\"/job/spec/optimizer/a~1b.~0\",\"detail\":\"\\\"spec.optimizer.a/"
                 "b.~\\\" is not "
                 "a known field; known here: lr, m, n\"},"
                 "{\"pointer\":\"/job/spec/optimizer/lr\",\"detail\":\"\\\"spec.optimizer.lr\\\" "
                 "must be a number "
                 "from 0 to 10\"},"
                 "{\"pointer\":\"/job/spec/optimizer/m\",\"detail\":\"\\\"spec.optimizer.m\\\" is "
                 "missing: a "
                 "whole number from 1 to 3\"}]");
    assert_true(json_equal(faults.list, want));
    assert_string_equal(
        err.msg, json_string_value(json_object_get(json_array_get(faults.list, 0), "detail")));
    for (int i = 0; i < 20; i++)
        sh_json_fail(&err, "x", "\"x\" is wrong %d times", i);
    assert_int_equal(json_array_size(faults.list), SH_FAULTS_MAX);
    json_decref(faults.list);
    json_decref(want);
    json_decref(j);
}

static void lengths_count_characters_and_2_0_is_a_whole_number(void **state)
{
    json_t *j = parse("{\"s\":\"\u00e4\u20ac\U0001f600\",\"n\":-2.0}"); /* 2, 3 and 4 bytes */
    const char *s = NULL;
    int64_t n = 0;
    struct sh_json_field f[] = {
        {"s", SH_JSON_STR, &s, .min = 3, .max = 3},
        {"n", SH_JSON_INT, &n, .min = -2, .max = -1},
    };
    (void)state;

    assert_ok(sh_json_read(j, "", f, 2, NULL));
    assert_int_equal(n, -2);
    assert_int_equal(json_integer_value(json_object_get(j, "n")), -2); /* for who reads it next */
    f[0].in_bytes = true;
    assert_int_equal(sh_json_read(j, "", f, 2, NULL), SH_E_INVALID);
    f[0].min = f[0].max = 9;
    assert_ok(sh_json_read(j, "", f, 2, NULL));
    json_decref(j);
    refuse("{\"n\":1e300}", (struct sh_json_field){"n", SH_JSON_INT, NULL}, "whole number");
    refuse("{\"n\":9007199254740994.0}", (struct sh_json_field){"n", SH_JSON_INT, NULL},
           "whole number"); /* a double cannot tell it from its neighbour */
}

static void a_string_without_a_limit_has_at_most_4096_bytes(void **state)
{
    char *text = calloc(1, 5000);
    const char *s = NULL;
    struct sh_json_field f = {"s", SH_JSON_STR, &s};
    json_t *j;
    (void)state;

    for (int n = 4096; n <= 4097; n++) {
        memset(text, 0, 5000);
        memcpy(text, "{\"s\":\"", 6);
        memset(text + 6, 'x', (size_t)n);
        memcpy(text + 6 + n, "\"}", 3);
        j = parse(text);
        assert_int_equal(sh_json_read(j, "", &f, 1, NULL), n == 4096 ? SH_OK : SH_E_INVALID);
        json_decref(j);
    }
    free(text);
}

static void a_wrong_text_is_refused_with_its_place(void **state)
{
    static const struct {
        const char *text, *says;
    } CASES[] = {
        {"", "line 1"},
        {"{\n \"a\": }", "line 2, column"},
        {"{\"a\":1,\"a\":2}", "duplicate"},
        {"{\"a\":1} x", "line 1"},
        {"{\"a\":\"\\u0000\"}", "line 1"},
        {"\"text\"", "line 1"},
        {"{\"a\":\"\xff\"}", "line 1"},
        {"{\"a\":1e999}", "line 1"},
    };
    (void)state;

    for (size_t i = 0; i < SH_ARRAY_LEN(CASES); i++) {
        struct sh_err err = {0};
        json_t *j = (json_t *)&err;

        assert_fails(sh_json_parse(CASES[i].text, strlen(CASES[i].text), 1000, &j, &err),
                     SH_E_INVALID, &err, CASES[i].says);
        assert_null(j);
    }
}

static void depth_and_size_are_limited(void **state)
{
    struct sh_err err = {0};
    char text[131];
    json_t *j = NULL;
    (void)state;

    memset(text, '[', 65);
    memset(text + 65, ']', 65);
    assert_ok(sh_json_parse(text + 1, 128, 128, &j, NULL)); /* 64 levels */
    json_decref(j);
    assert_fails(sh_json_parse(text, 130, 1000, &j, &err), SH_E_INVALID, &err, "64 levels");
    err = (struct sh_err){0};
    assert_fails(sh_json_parse(text + 1, 128, 127, &j, &err), SH_E_TOOBIG, &err, "127");
    /* brackets in a string are no levels, and an escaped quote does not end it */
    memset(text, '[', 130);
    memcpy(text, "[\"\\\"", 4);
    memcpy(text + 128, "\"]", 2);
    assert_ok(sh_json_parse(text, 130, 1000, &j, NULL));
    json_decref(j);
}

static void dump_is_compact_and_sorted(void **state)
{
    json_t *j = parse("{ \"b\": [1, 2.5], \"a\": \"x\" }");
    char *s = NULL;
    (void)state;

    assert_ok(sh_json_dump(j, &s, NULL));
    assert_string_equal(s, "{\"a\":\"x\",\"b\":[1,2.5]}");
    free(s);
    json_decref(j);
}

static void a_file_is_loaded_or_the_reason_is_told(void **state)
{
    char dir[SH_TEST_DIR_BYTES], path[128];
    struct sh_err err = {0};
    json_t *j = NULL;
    (void)state;

    sh_test_dir_make(dir);
    snprintf(path, sizeof(path), "%s/a.json", dir);
    assert_fails(sh_json_load_file(path, 100, &j, &err), SH_E_NOTFOUND, &err, "\"a.json\"");
    assert_has_not(err.msg, dir); /* a message never shows a path */
    assert_has(err.detail, dir);
    sh_test_write_file(path, "{\"a\":1}", 7);
    assert_ok(sh_json_load_file(path, 7, &j, NULL));
    json_decref(j);
    err = (struct sh_err){0};
    assert_fails(sh_json_load_file(path, 6, &j, &err), SH_E_TOOBIG, &err, "7 bytes");
    err = (struct sh_err){0};
    assert_fails(sh_json_load_file(dir, 100, &j, &err), SH_E_INVALID, &err, "regular file");
    sh_test_dir_remove(dir);
}

/* Without it a job with a clip_norm of 1e30 is taken, and fails when it comes from the database. */
static void numbers_that_are_too_long_for_integers_are_real(void **state)
{
    static const char TEXT[] = "{\"a\":1000000000000000000000000000000,"
                               "\"b\":[3,2.5,{\"c\":7}],\"d\":9007199254740992}";
    struct sh_err err = {0};
    const json_t *b;
    json_t *j;

    (void)state;
    assert_ok_err(sh_json_parse(TEXT, strlen(TEXT), sizeof(TEXT), &j, &err), &err);
    assert_true(json_real_value(json_object_get(j, "a")) == 1e30);
    b = json_object_get(j, "b");
    assert_true(json_integer_value(json_array_get(b, 0)) == 3);
    assert_true(json_real_value(json_array_get(b, 1)) == 2.5);
    assert_true(json_integer_value(json_object_get(json_array_get(b, 2), "c")) == 7);
    assert_true(json_integer_value(json_object_get(j, "d")) == INT64_C(9007199254740992));
    json_decref(j);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_type_is_read_and_absent_fields_keep_their_default),
        cmocka_unit_test(each_refusal_names_the_path_and_the_range),
        cmocka_unit_test(lengths_count_characters_and_2_0_is_a_whole_number),
        cmocka_unit_test(a_string_without_a_limit_has_at_most_4096_bytes),
        cmocka_unit_test(a_wrong_text_is_refused_with_its_place),
        cmocka_unit_test(depth_and_size_are_limited),
        cmocka_unit_test(all_that_is_wrong_is_listed),
        cmocka_unit_test(dump_is_compact_and_sorted),
        cmocka_unit_test(a_file_is_loaded_or_the_reason_is_told),
        cmocka_unit_test(numbers_that_are_too_long_for_integers_are_real),
    };

    return cmocka_run_group_tests_name("json", tests, NULL, NULL);
}
