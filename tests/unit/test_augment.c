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
        {"[{\"name\":\"crop\"}]", "padding"},
        {"[{\"name\":\"crop\",\"padding\":0}]", "padding"},
        {"[{\"name\":\"flip\",\"probability\":2}]", "probability"},
        {"[{\"name\":\"mixup\",\"alpha\":0}]", "alpha"},
        {"[{\"name\":\"mask-tokens\",\"input\":\"x\",\"mask\":9,\"vocabulary\":9}]", "not below"},
        {"[{\"name\":\"mask-tokens\",\"mask\":1,\"vocabulary\":9}]", "input"},
        {"[{\"name\":\"mask-tokens\",\"input\":\"x\",\"mask\":1,\"vocabulary\":9,\"special\":["
         "\"a\"]}]",
         "whole numbers"},
        {"[{\"name\":\"mask-tokens\",\"input\":\"x\",\"mask\":1,\"vocabulary\":9},"
         "{\"name\":\"mixup\",\"alpha\":1}]",
         "do not go together"},
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
    assert_ok(augment_check(&three, "x", (int64_t[]){-1, 3, 8, 8}, NULL));
    assert_ok(augment_check(&three, "x", (int64_t[]){-1, -1, 8, 8}, NULL));
    assert_ok(augment_check(&one, "x", (int64_t[]){-1, 12, 8, 8}, NULL));
    assert_fails(augment_check(&three, "x", (int64_t[]){-1, 12, 8, 8}, &err), SH_E_INVALID, &err,
                 "12 channels");
}

static void a_crop_leaves_something_of_each_picture(void **state)
{
    const struct augment a = {.crop_padding = 8};
    struct sh_err err = {0};

    (void)state;
    assert_ok(augment_check(&a, "x", (int64_t[]){-1, 3, 9, 9}, NULL));
    assert_ok(augment_check(&a, "x", (int64_t[]){-1, 9, 9, 3}, NULL));
    assert_ok(augment_check(&a, "x", (int64_t[]){-1, 3, -1, -1}, NULL));
    assert_fails(augment_check(&a, "x", (int64_t[]){-1, 3, 9, 8}, &err), SH_E_INVALID, &err,
                 "8 pixels a side");
}

static void what_is_random_is_of_training_alone(void **state)
{
    struct augment a, fixed;
    struct sh_err err;

    (void)state;
    assert_ok_err(read_list("[{\"name\":\"crop\",\"padding\":4},{\"name\":\"flip\"},"
                            "{\"name\":\"normalise\",\"mean\":1,\"std\":1}]",
                            &a, &err),
                  &err);
    assert_true(a.crop_padding == 4 && a.flip == 0.5 && augment_has_pictures(&a));
    fixed = augment_fixed(&a);
    assert_true(fixed.crop_padding == 0 && fixed.flip == 0 && fixed.normalises);
    assert_ok_err(read_list("[{\"name\":\"mask-tokens\",\"input\":\"ids\",\"mask\":3,"
                            "\"vocabulary\":9,\"special\":[0,1]}]",
                            &a, &err),
                  &err);
    assert_true(augment_makes_labels(&a, "label") && !augment_makes_labels(&a, "other"));
    assert_true(!augment_has_pictures(&a) && a.tokens.n_special == 2);
    assert_true(a.tokens.probability == 0.15);
    fixed = augment_fixed(&a);
    assert_false(augment_makes_labels(&fixed, "label"));
}

/* Beta(a, a) has the mean 1/2 and the variance 1 / (4 (2 a + 1)). */
static void mixtures_are_of_the_beta_distribution(void **state)
{
    static const double ALPHAS[] = {0.05, 0.2, 1, 4};

    (void)state;
    for (size_t k = 0; k < SH_ARRAY_LEN(ALPHAS); k++) {
        const struct augment a = {.mixup = ALPHAS[k]};
        const double variance = 1 / (4 * (2 * ALPHAS[k] + 1));
        double sum = 0, squares = 0;

        for (int i = 0; i < 20000; i++) {
            const double x = augment_mix(&a, 7, i);

            assert_true(x >= 0 && x <= 1);
            assert_true(x == augment_mix(&a, 7, i));
            sum += x;
            squares += (x - 0.5) * (x - 0.5);
        }
        assert_true(fabs(sum / 20000 - 0.5) < 5 * sqrt(variance / 20000));
        assert_true(fabs(squares / 20000 / variance - 1) < 0.05);
    }
    assert_true(augment_mix(&(struct augment){0}, 7, 1) == 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_list_is_read_or_refused),
        cmocka_unit_test(colours_keep_their_numbers),
        cmocka_unit_test(numbers_of_three_colours_are_for_three),
        cmocka_unit_test(a_crop_leaves_something_of_each_picture),
        cmocka_unit_test(what_is_random_is_of_training_alone),
        cmocka_unit_test(mixtures_are_of_the_beta_distribution),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
