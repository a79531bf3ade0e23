/* test_stats.c - the counters of model versions. Without it a version could show another's numbers,
 * or one more version than there is room for could end the process. */
/* uses: libapi.a */
/* link: -lmicrohttpd -lpq -lz */
#include "api/infer/stats.h"
#include "tests/unit/sh_test.h"

#define MANY 131072 /* as many as stats.c keeps */

static int64_t count_of(struct stats *s, int64_t id, const char *what)
{
    const struct cat_version v = {.id = id, .model = "m", .version = 1};
    json_t *j = NULL;
    struct sh_err err = {0};
    int64_t n;

    assert_ok_err(stats_get(s, &v, &j, &err), &err);
    n = json_integer_value(
        json_object_get(json_object_get(json_object_get(j, "inference_stats"), what), "count"));
    json_decref(j);
    return n;
}

static void each_version_has_numbers_of_its_own(void **state)
{
    const struct stats_sample good = {.ok = true, .batch = 2, .run_batch = 2}, bad = {.ok = false};
    struct stats *s = NULL;

    (void)state;
    assert_ok(stats_new(&s, NULL));
    for (int64_t id = 1; id <= 1000; id++)
        for (int64_t k = 0; k < id % 3; k++)
            stats_add(s, id, &good);
    stats_add(s, 7, &bad);
    for (int64_t id = 1; id <= 1000; id++)
        assert_int_equal(count_of(s, id, "success"), id % 3);
    assert_int_equal(count_of(s, 7, "fail"), 1);
    assert_int_equal(count_of(s, 8, "fail"), 0);
    stats_free(s);
}

static void versions_beyond_the_limit_are_not_counted_and_hurt_nobody(void **state)
{
    const struct stats_sample good = {.ok = true, .batch = 1, .run_batch = 1};
    struct stats *s = NULL;

    (void)state;
    assert_ok(stats_new(&s, NULL));
    for (int64_t id = 1; id <= MANY + 5; id++)
        stats_add(s, id, &good);
    assert_int_equal(count_of(s, MANY, "success"), 1);
    assert_int_equal(count_of(s, MANY + 1, "success"), 0);
    stats_add(s, 1, &good);
    assert_int_equal(count_of(s, 1, "success"), 2);
    stats_free(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_version_has_numbers_of_its_own),
        cmocka_unit_test(versions_beyond_the_limit_are_not_counted_and_hurt_nobody),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
