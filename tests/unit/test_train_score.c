/* test_train_score.c - what a model's answers are worth.
 *
 * Without it: answers that are no numbers could be the best of all, and be published. */
#include "common/mem.h"
#include "common/train_score.h"
#include "tests/unit/sh_test.h"

#include <math.h>

#define CLASSES 8

static void score(const float *y, const int64_t *labels, int64_t n, struct train_scores *out)
{
    struct train_head head = {.loss = TRAIN_LOSS_XENT, .ignore_index = -100, .weight = 1};
    struct sh_st_tensor answers = {.name = "y",
                                   .dtype = SH_F32,
                                   .rank = 2,
                                   .dims = {n, CLASSES},
                                   .bytes = CLASSES * sizeof(*y)};
    struct sh_st_tensor wanted = {.name = "label",
                                  .dtype = SH_I64,
                                  .rank = 1,
                                  .dims = {n},
                                  .data = labels,
                                  .bytes = (size_t)n * sizeof(*labels)};
    struct train_score *s;
    struct sh_err err = {0};

    assert_ok_err(train_score_new(&head, &answers, &wanted, &s, &err), &err);
    assert_ok_err(train_score_check(s, &wanted, &err), &err);
    train_score_add(s, y, labels, (size_t)n);
    train_score_end(s, out);
    train_score_free(s);
}

static void answers_are_counted(void **state)
{
    const float y[2 * CLASSES] = {0, 3, 0, 0, 0, 0, 0, 0, 7, 6, 5, 4, 3, 2, 1, 0};
    const int64_t labels[] = {1, 7};
    struct train_scores s;

    (void)state;
    score(y, labels, 2, &s);
    assert_int_equal(s.n_samples, 2);
    assert_float_equal(s.accuracy, 0.5, 1e-12);
    assert_float_equal(s.top5, 0.5, 1e-12); /* the second one's is the last of eight */
    assert_true(isfinite(s.loss));
}

static void what_is_no_number_is_a_miss(void **state)
{
    float y[CLASSES];
    const int64_t labels[] = {0};
    struct train_scores s;

    (void)state;
    for (size_t k = 0; k < CLASSES; k++) {
        for (size_t i = 0; i < CLASSES; i++)
            y[i] = i <= k ? NAN : 1;
        score(y, labels, 1, &s);
        assert_float_equal(s.accuracy, 0, 0);
        assert_float_equal(s.top5, 0, 0);
        assert_true(isnan(s.loss));
    }
    for (size_t i = 0; i < CLASSES; i++)
        y[i] = i ? 0 : INFINITY;
    score(y, labels, 1, &s);
    assert_float_equal(s.top5, 0, 0);
}

static void losses_of_heads_are_weighed(void **state)
{
    const struct train_spec spec = {
        .heads = {{.weight = 1}, {.weight = 0.25}}, .n_heads = 2, .evaluation.head = 1};
    const struct train_scores each[] = {{.loss = 3, .accuracy = 0.5, .n_samples = 7},
                                        {.loss = 2, .accuracy = 0.75, .n_samples = 7}};
    struct train_scores all;

    (void)state;
    train_scores_join(&spec, each, &all);
    assert_float_equal(all.loss, 3.5, 0);
    assert_float_equal(all.accuracy, 0.75, 0);
    assert_int_equal(all.n_samples, 7);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(answers_are_counted),
        cmocka_unit_test(what_is_no_number_is_a_miss),
        cmocka_unit_test(losses_of_heads_are_weighed),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
