/* test_augment.c - Without it: colours could be normalised with each other's numbers, pictures
 * whose channels come last as if they came first, and a list that means nothing be taken. */
#include "common/augment.h"
#include "common/mem.h"
#include "tests/unit/sh_test.h"

#include <math.h>

static int read_list(const char *text, struct augment *a, struct sh_err *err)
{
    json_t *list = json_loads(text, 0, NULL);
    int rc;

    assert_non_null(list);
    *err = (struct sh_err){0};
    rc = augment_read(list, a, err);
    json_decref(list);
    return rc;
}

static void a_list_is_read_or_refused(void **state)
{
    static const struct {
        const char *text, *why;
    } CASES[] = {
        {"[{}]", "one of: normalise"},
        {"[3]", "one of: normalise"},
        {"[{\"name\":\"normalise\",\"std\":1}]", "mean"},
        {"[{\"name\":\"normalise\",\"mean\":0,\"std\":0}]", "\"std\" of"},
        {"[{\"name\":\"normalise\",\"mean\":[0,1],\"std\":1}]", "\"mean\" of"},
        {"[{\"name\":\"normalise\",\"mean\":\"x\",\"std\":1}]", "\"mean\" of"},
        {"[{\"name\":\"normalise\",\"mean\":0,\"std\":1,\"more\":1}]", "more"},
        {"[{\"name\":\"normalise\",\"mean\":0,\"std\":1},{\"name\":\"normalise\",\"mean\":0,"
         "\"std\":1}]",
         "twice"},
    };
    struct sh_err err;
    struct augment a;

    (void)state;
    for (size_t i = 0; i < SH_ARRAY_LEN(CASES); i++)
        assert_fails(read_list(CASES[i].text, &a, &err), SH_E_INVALID, &err, CASES[i].why);
    assert_ok_err(read_list("[]", &a, &err), &err);
    assert_false(a.normalises);
    assert_ok_err(read_list("[{\"name\":\"normalise\",\"mean\":[0.5,0.25,0],\"std\":2}]", &a, &err),
                  &err);
    assert_true(a.normalises && a.mean[1] == 0.25 && a.std[2] == 2);
}

static void colours_keep_their_numbers(void **state)
{
    const struct augment a = {.normalises = true, .mean = {0.5, 0.25, 0}, .std = {0.5, 1, 2}};
    const struct augment none = {0};
    const int64_t first[] = {8, 3, 1, 2}, many[] = {8, 4, 1, 2};
    const uint8_t planes[] = {0, 255, 51, 102, 255, 0}, pixels[] = {0, 51, 255, 255, 102, 0};
    const float halves[] = {0.5f, 0, 0, 0, 0, 0};
    float x[8];

    (void)state;
    assert_int_equal(augment_channels(first), 1);
    assert_int_equal(augment_channels((int64_t[]){8, 2, 2, 3}), 3);
    assert_int_equal(augment_channels(many), 1);
    for (int k = 0; k < 2; k++) { /* two pixels */
        const int64_t *dims = k ? (int64_t[]){8, 2, 1, 3} : first;
        const float want[] = {-1, 1, -0.05f, 0.15f, 0.5f, 0};

        augment_sample(&a, dims, true, k ? pixels : planes, x);
        for (int i = 0; i < 6; i++)
            assert_true(fabsf(x[k ? i % 2 * 3 + i / 2 : i] - want[i]) < 1e-6f);
    }
    augment_sample(&none, first, true, planes, x);
    assert_true(x[0] == 0 && x[1] == 1 && fabsf(x[2] - 0.2f) < 1e-6f);
    augment_sample(&a, first, false, halves, x);
    assert_true(x[0] == 0 && x[1] == -1);
}

static void numbers_of_three_colours_are_for_three(void **state)
{
    const struct augment three = {.normalises = true, .mean = {0.5, 0.25, 0}, .std = {1, 1, 1}};
    const struct augment one = {.normalises = true, .mean = {0.5, 0.5, 0.5}, .std = {1, 1, 1}};
    struct sh_err err = {0};

    (void)state;
    assert_ok(augment_check(&three, "x", 3, NULL));
    assert_ok(augment_check(&one, "x", 12, NULL));
    assert_fails(augment_check(&three, "x", 12, &err), SH_E_INVALID, &err, "12 channels");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_list_is_read_or_refused),
        cmocka_unit_test(colours_keep_their_numbers),
        cmocka_unit_test(numbers_of_three_colours_are_for_three),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
