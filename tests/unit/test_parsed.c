/* test_parsed.c - JSON parts of requests that are parsed once. Without it one request could be
 * given another's tensors, or one whose JSON is wrong could be answered.
 */
/* uses: api/infer/parsed.o */
#include "api/infer/parsed.h"
#include "common/mem.h"
#include "tests/unit/sh_test.h"

#include <pthread.h>
#include <stdio.h>

static struct parsed *make(void)
{
    struct sh_err err = {0};
    struct parsed *p = NULL;

    assert_ok_err(parsed_new(&p, &err), &err);
    return p;
}

static struct parsed_text *get(struct parsed *p, int64_t version_id, const char *text)
{
    return parsed_get(p, version_id, text, strlen(text));
}

static void the_same_text_is_parsed_once(void **state)
{
    struct parsed *p = make();
    struct parsed_text *first = get(p, 1, "{\"id\":\"a\"}"), *again = get(p, 1, "{\"id\":\"a\"}");

    (void)state;
    assert_non_null(first);
    assert_ptr_equal(first, again);
    assert_string_equal(json_string_value(json_object_get(parsed_json(first), "id")), "a");
    parsed_put(first);
    parsed_put(again);
    parsed_free(p);
}

static void another_text_or_version_has_its_own(void **state)
{
    static const char *const TEXTS[] = {"{\"id\":\"a\"}", "{\"id\":\"b\"}", "{\"id\":\"a\"} ",
                                        "{}"};
    struct parsed *p = make();
    struct parsed_text *of[2 * SH_ARRAY_LEN(TEXTS)];

    (void)state;
    for (size_t i = 0; i < SH_ARRAY_LEN(of); i++) {
        of[i] = get(p, (int64_t)(i / SH_ARRAY_LEN(TEXTS)), TEXTS[i % SH_ARRAY_LEN(TEXTS)]);
        assert_non_null(of[i]);
        for (size_t k = 0; k < i; k++)
            assert_ptr_not_equal(of[i], of[k]);
    }
    for (size_t i = 0; i < SH_ARRAY_LEN(of); i++)
        parsed_put(of[i]);
    parsed_free(p);
}

static void what_follows_in_memory_is_not_of_the_text(void **state)
{
    struct parsed *p = make();
    struct parsed_text *a = parsed_get(p, 1, "{\"a\":1}{\"b\":2}", 7),
                       *b = parsed_get(p, 1, "{\"a\":1}[]", 7);

    (void)state;
    assert_non_null(a);
    assert_ptr_equal(a, b);
    assert_null(parsed_get(p, 1, "{\"a\":1}{\"b\":2}", 14));
    parsed_put(a);
    parsed_put(b);
    parsed_free(p);
}

/* The text lies in memory that executors share. */
static void a_text_that_changes_later_changes_nothing(void **state)
{
    struct parsed *p = make();
    char text[] = "{\"n\":1}";
    struct parsed_text *one = get(p, 1, text), *two, *again;

    (void)state;
    text[5] = '2';
    two = get(p, 1, text);
    text[5] = '1';
    again = get(p, 1, text);
    assert_int_equal(json_integer_value(json_object_get(parsed_json(one), "n")), 1);
    assert_int_equal(json_integer_value(json_object_get(parsed_json(two), "n")), 2);
    assert_int_equal(json_integer_value(json_object_get(parsed_json(again), "n")), 1);
    parsed_put(one);
    parsed_put(two);
    parsed_put(again);
    parsed_free(p);
}

static void wrong_and_long_texts_are_not_kept(void **state)
{
    struct parsed *p = make();
    char text[PARSED_MAX_BYTES + 2] = "{";
    struct parsed_text *once;

    (void)state;
    for (int i = 0; i < 2; i++) {
        assert_null(get(p, 1, ""));
        assert_null(get(p, 1, "{\"id\":"));
        assert_null(get(p, 1, "{\"id\":1,\"id\":2}"));
    }
    memset(text + 1, ' ', PARSED_MAX_BYTES);
    text[PARSED_MAX_BYTES] = '}';
    assert_null(get(p, 1, text));
    text[PARSED_MAX_BYTES] = '\0';
    text[PARSED_MAX_BYTES - 1] = '}';
    once = get(p, 1, text);
    assert_non_null(once);
    parsed_put(once);
    parsed_free(p);
}

/* More texts than there are places, so each loses its own to another now and then. */
static void *ask_for_many(void *arg)
{
    struct parsed *p = arg;

    for (int i = 0; i < 20000; i++) {
        char text[32];
        struct parsed_text *j;

        snprintf(text, sizeof(text), "{\"n\":%d}", i % 150);
        j = get(p, i % 3, text);
        if (!j || json_integer_value(json_object_get(parsed_json(j), "n")) != i % 150)
            return arg; /* cmocka's assertions are for the thread of the test */
        parsed_put(j);
    }
    return NULL;
}

static void who_has_one_keeps_it_when_its_place_is_taken(void **state)
{
    struct parsed *p = make();
    struct parsed_text *mine = get(p, 1, "{\"n\":\"mine\"}");
    pthread_t threads[3];
    void *failed;

    (void)state;
    for (size_t i = 0; i < SH_ARRAY_LEN(threads); i++)
        assert_int_equal(pthread_create(&threads[i], NULL, ask_for_many, p), 0);
    for (size_t i = 0; i < SH_ARRAY_LEN(threads); i++)
        assert_true(pthread_join(threads[i], &failed) == 0 && !failed);
    parsed_free(p);
    assert_string_equal(json_string_value(json_object_get(parsed_json(mine), "n")), "mine");
    parsed_put(mine);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_same_text_is_parsed_once),
        cmocka_unit_test(another_text_or_version_has_its_own),
        cmocka_unit_test(what_follows_in_memory_is_not_of_the_text),
        cmocka_unit_test(a_text_that_changes_later_changes_nothing),
        cmocka_unit_test(wrong_and_long_texts_are_not_kept),
        cmocka_unit_test(who_has_one_keeps_it_when_its_place_is_taken),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
