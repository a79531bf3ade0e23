/* test_arrivals.c - without it, requests could come again at other times, of other tenants or in
 * another number than they came, or their record could grow without end. */
/* uses: libscheduler.a */
#include "scheduler/peers/arrivals.h"
#include "tests/unit/sh_test.h"

#include <jansson.h>

#define MS INT64_C(1000000)

static json_t *take(struct arrivals *a, uint64_t want)
{
    uint64_t n;
    char *text = arrivals_take(a, &n);
    json_t *list = text ? json_loads(text, 0, NULL) : NULL;

    assert_int_equal(n, want);
    assert_non_null(list);
    free(text);
    return list;
}

static const json_t *row_of(const json_t *list, const char *tenant, int64_t version)
{
    const json_t *row;
    size_t i;

    json_array_foreach(list, i, row)
    {
        if (strcmp(json_string_value(json_object_get(row, "tenant")), tenant) == 0 &&
            json_integer_value(json_object_get(row, "version")) == version)
            return row;
    }
    fail_msg("no row of %s", tenant);
    return NULL;
}

static int64_t number(const json_t *row, const char *name)
{
    return json_integer_value(json_object_get(row, name));
}

static void each_request_is_where_it_came(void **state)
{
    struct arrivals a = {0};
    json_t *list;

    (void)state;
    arrivals_add(&a, "anna", 7, 1000 * MS);
    arrivals_add(&a, "bert", 7, 1003 * MS);
    arrivals_add(&a, "anna", 7, 1012 * MS);
    arrivals_add(&a, "anna", 7, 1012 * MS);
    arrivals_add(&a, "anna", 9, 1500 * MS);
    arrivals_sized(&a, "anna", 7, 1);
    arrivals_sized(&a, "anna", 7, 3);
    arrivals_sized(&a, "anna", 7, 4);
    assert_false(arrivals_is_over(&a, 10999 * MS));
    assert_true(arrivals_is_over(&a, 11000 * MS));
    list = take(&a, 5);
    assert_int_equal(json_array_size(list), 3);
    assert_string_equal(json_string_value(json_object_get(row_of(list, "anna", 7), "at")),
                        "0 12*2");
    assert_string_equal(json_string_value(json_object_get(row_of(list, "bert", 7), "at")), "3");
    assert_string_equal(json_string_value(json_object_get(row_of(list, "anna", 9), "at")), "500");
    assert_int_equal(number(row_of(list, "anna", 7), "unit_ms"), 1);
    {
        const json_t *sizes = json_object_get(row_of(list, "anna", 7), "sizes");

        assert_int_equal(json_array_size(sizes), 2);
        assert_int_equal(json_integer_value(json_array_get(json_array_get(sizes, 1), 0)), 2);
        assert_int_equal(json_integer_value(json_array_get(json_array_get(sizes, 1), 1)), 7);
    }
    json_decref(list);
    /* The next slice begins with the next request. */
    assert_false(arrivals_is_over(&a, 99000 * MS));
    arrivals_add(&a, "anna", 7, 99000 * MS);
    list = take(&a, 1);
    assert_string_equal(json_string_value(json_object_get(row_of(list, "anna", 7), "at")), "0");
    json_decref(list);
}

/* However many come, none is lost, and the last is where it came to within a unit. */
static void what_is_much_is_kept_more_coarsely(void **state)
{
    struct arrivals a = {0};
    const json_t *row;
    const char *p;
    int64_t n = 0, at = 0;
    json_t *list;

    (void)state;
    for (int64_t i = 0; i < 100000; i++)
        arrivals_add(&a, "anna", 7, i * 10000000 / 100); /* 10,000 a second */
    list = take(&a, 100000);
    row = row_of(list, "anna", 7);
    assert_int_equal(number(row, "requests"), 100000);
    assert_int_equal(number(row, "unit_ms"), 32);
    for (p = json_string_value(json_object_get(row, "at")); *p; p += *p == ' ') {
        int64_t one = 1;

        at += strtol(p, (char **)&p, 10);
        if (*p == '*')
            one = strtol(p + 1, (char **)&p, 10);
        n += one;
    }
    assert_int_equal(n, 100000);
    assert_true(at * 32 <= 10000 && (at + 1) * 32 > 9999);
    json_decref(list);
}

static void whoever_is_too_many_is_counted(void **state)
{
    struct arrivals a = {0};
    json_t *list;

    (void)state;
    for (int64_t i = 0; i < 300; i++)
        arrivals_add(&a, "anna", 1 + i, i * MS);
    list = take(&a, 300);
    assert_int_equal(json_array_size(list), ARRIVALS_ROWS);
    json_decref(list);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_request_is_where_it_came),
        cmocka_unit_test(what_is_much_is_kept_more_coarsely),
        cmocka_unit_test(whoever_is_too_many_is_counted),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
