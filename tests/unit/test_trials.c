/* test_trials.c - when a job is evaluated, which evaluation is best, and when it ends.
 *
 * Without it: the last step could go without an evaluation, an evaluation that is come to again
 * after a resume could count twice, a gain of nothing could keep a job alive, or a resumed job
 * forget. */
/* uses: executor/training/trials.o */
#include "common/mem.h"
#include "executor/training/trials.h"
#include "tests/unit/sh_test.h"

#include <math.h>

static struct trials trials(enum train_metric best, int64_t patience, double min_delta)
{
    struct train_spec spec = {0};
    struct trials t;

    spec.evaluation.every = 10;
    spec.evaluation.best = best;
    spec.evaluation.patience = patience;
    spec.evaluation.min_delta = min_delta;
    trials_init(&t, &spec);
    return t;
}

static struct train_scores scores(double v)
{
    return (struct train_scores){
        .loss = v, .perplexity = v, .accuracy = v, .top5 = NAN, .f1 = v, .n_samples = 7};
}

static void note(struct trials *t, int64_t step, double v)
{
    struct train_scores s = scores(v);

    assert_ok(trials_note(t, step, &s, NULL));
}

static void they_come_every_n_steps_and_at_the_end(void **state)
{
    struct trials t = trials(TRAIN_NO_METRIC, 0, 0), none = {0};

    (void)state;
    assert_int_equal(trials_next(&t, 0, 25), 10);
    assert_int_equal(trials_next(&t, 9, 25), 10);
    assert_int_equal(trials_next(&t, 10, 25), 20);
    assert_int_equal(trials_next(&t, 20, 25), 25);
    assert_false(trials_are_due(&t, 0, 25));
    assert_false(trials_are_due(&t, 9, 25));
    assert_true(trials_are_due(&t, 10, 25));
    assert_true(trials_are_due(&t, 25, 25));
    note(&t, 20, 1);
    assert_false(trials_are_due(&t, 10, 25)); /* come to again: it is known */
    assert_false(trials_are_due(&t, 20, 25));
    assert_true(trials_are_due(&t, 25, 25));
    assert_int_equal(t.best_step, 0);
    assert_int_equal(trials_next(&none, 3, 25), 25);
    assert_false(trials_are_due(&none, 25, 25));
}

static void the_best_is_the_largest_or_the_smallest(void **state)
{
    struct trials up = trials(TRAIN_BY_ACCURACY, 0, 0), down = trials(TRAIN_BY_PERPLEXITY, 0, 0);
    const double seen[] = {0.5, 0.7, 0.7, 0.3, 0.6};
    struct train_scores s = scores(0.7);

    (void)state;
    for (size_t i = 0; i < SH_ARRAY_LEN(seen); i++) {
        note(&up, (int64_t)i + 1, seen[i]);
        note(&down, (int64_t)i + 1, seen[i]);
    }
    assert_int_equal(up.best_step, 2);
    assert_int_equal(down.best_step, 4);
    assert_false(trials_is_best(&up, &s)); /* of equal ones the first */
    s.accuracy = 0.71;
    assert_true(trials_is_best(&up, &s));
    s.accuracy = NAN;
    assert_false(trials_is_best(&up, &s));
}

static void without_a_gain_it_ends(void **state)
{
    struct trials t = trials(TRAIN_BY_LOSS, 2, 0.1);

    (void)state;
    note(&t, 10, 1.0);
    note(&t, 20, 0.95); /* better, and no gain */
    assert_int_equal(t.best_step, 20);
    assert_int_equal(t.without_gain, 1);
    note(&t, 30, 0.85);
    assert_int_equal(t.without_gain, 0);
    note(&t, 40, 0.8);
    assert_false(trials_have_stopped(&t, 40));
    note(&t, 50, 0.9);
    assert_true(trials_have_stopped(&t, 50));
    assert_false(trials_have_stopped(&t, 45)); /* a checkpoint before: training comes to it again */
    assert_int_equal(t.best_step, 40);
}

static void what_is_known_is_read_as_it_was_written(void **state)
{
    struct trials a = trials(TRAIN_BY_F1, 3, 0.25), b = trials(TRAIN_BY_F1, 3, 0.25);
    char text[SH_JOB_EVALUATION_BYTES], again[SH_JOB_EVALUATION_BYTES];
    struct sh_err err = {0};

    (void)state;
    note(&a, 10, 1.0 / 3);
    note(&a, 20, 0.123456789012345678);
    assert_ok(trials_text(&a, text, NULL));
    assert_ok(trials_read(&b, text, NULL));
    assert_ok(trials_text(&b, again, NULL));
    assert_string_equal(text, again);
    assert_true(b.best == a.best && b.mark == a.mark && b.last.loss == a.last.loss);
    assert_true(isnan(b.last.top5));
    assert_int_equal(b.without_gain, 1);
    assert_int_not_equal(trials_read(&b, "{\"step\":-1}", &err), SH_OK);
    assert_int_not_equal(trials_read(&b, "{\"best_step\":-1}", NULL), SH_OK);
    assert_int_not_equal(trials_read(&b, "{\"without_gain\":-1}", NULL), SH_OK);
    assert_int_not_equal(trials_read(&b, "[", &err), SH_OK);
}

static void the_longest_text_has_room(void **state)
{
    struct trials t = trials(TRAIN_BY_PERPLEXITY, 1, 0);
    const double v = -1.2345678901234567e-300;
    const struct train_scores s = {v, v, v, v, v, INT64_MAX};
    char text[SH_JOB_EVALUATION_BYTES];

    (void)state;
    assert_ok(trials_note(&t, INT64_MAX, &s, NULL));
    t.without_gain = INT64_MAX;
    assert_ok(trials_text(&t, text, NULL));
}

static void what_is_no_number_is_an_error(void **state)
{
    struct trials t = trials(TRAIN_BY_TOP5, 0, 0);
    struct train_scores s = scores(0.5);
    struct sh_err err = {0};

    (void)state;
    assert_int_equal(trials_note(&t, 10, &s, &err), SH_E_NAN);
    assert_non_null(strstr(err.msg, "has no top5"));
    assert_false(trials_is_best(&t, &s));
    t = trials(TRAIN_NO_METRIC, 0, 0);
    err = (struct sh_err){0};
    s.loss = NAN;
    assert_int_equal(trials_note(&t, 10, &s, &err), SH_E_NAN);
    assert_non_null(strstr(err.msg, "has no loss"));
    assert_false(trials_is_best(&t, &s));
    t = trials(TRAIN_BY_ACCURACY, 0, 0);
    assert_int_equal(trials_note(&t, 10, &s, NULL), SH_E_NAN);
    assert_false(
        trials_is_best(&t, &s)); /* where the loss is no number its accuracy says nothing */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(they_come_every_n_steps_and_at_the_end),
        cmocka_unit_test(the_best_is_the_largest_or_the_smallest),
        cmocka_unit_test(without_a_gain_it_ends),
        cmocka_unit_test(what_is_known_is_read_as_it_was_written),
        cmocka_unit_test(the_longest_text_has_room),
        cmocka_unit_test(what_is_no_number_is_an_error),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
