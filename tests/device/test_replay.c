/* test_replay.c - launches that a warmed plan repeats at other places.
 *
 * Without it a record that is wrong would be used, and give wrong answers without a word; or one
 * that is right would not, and each run would cost the host several times as much. t_run() compares
 * the bits of runs before and after the plan was warmed up, so whatever becomes of the record, the
 * answers are right.
 */
#include "tests/device/dev_test.h"

#include <stdlib.h>

#define ROWS 32
#define INNER 64
#define COLS 48

static bool is_cuda(void)
{
    return strcmp(t_kind(), "cuda") == 0;
}

/* A product (cuBLASLt) and a convolution (cuDNN), which a caller reads. */
static void add_inference(struct t_graph *t, double *want)
{
    const uint32_t a = t_add(t, DEV_ROLE_INPUT, SH_F32, DIMS(ROWS, INNER));
    const uint32_t b = t_weight(t, DIMS(INNER, COLS));
    const uint32_t y = t_add(t, DEV_ROLE_OUTPUT, SH_F32, DIMS(ROWS, COLS));
    const uint32_t x = t_add(t, DEV_ROLE_INPUT, SH_F32, DIMS(2, 16, 12, 12));
    const uint32_t w = t_weight(t, DIMS(24, 16, 3, 3));
    const uint32_t z = t_add(t, DEV_ROLE_OUTPUT, SH_F32, DIMS(2, 24, 10, 10));

    t_op(t, DEV_OP_MATMUL, IN(a, b), OUT(y))->u.matmul.alpha = 1;
    t_op(t, DEV_OP_CONV, IN(x, w), OUT(z))->u.conv =
        (struct dev_conv){.kernel = {3, 3}, .stride = {1, 1}, .dilation = {1, 1}, .groups = 1};
    for (int64_t i = 0; i < ROWS * COLS; i++)
        for (int64_t k = 0; k < INNER; k++)
            want[i] += (double)t_f(t, a)[i / COLS * INNER + k] * t_f(t, b)[k * COLS + i % COLS];
    t_run(t);
    t_close(t, y, want, 1e-11);
}

/* A gradient that shows in nothing but the state after the update. */
static void add_training(struct t_graph *t, double *want)
{
    const uint32_t a = t_add(t, DEV_ROLE_INPUT, SH_F32, DIMS(INNER, ROWS));
    const uint32_t b = t_add(t, DEV_ROLE_INPUT, SH_F32, DIMS(INNER, COLS));
    const uint32_t g = t_act(t, DIMS(ROWS, COLS));
    const uint32_t p = t_state(t, DIMS(ROWS, COLS));
    struct dev_op *op = t_op(t, DEV_OP_MATMUL, IN(a, b), OUT(g));

    op->u.matmul.alpha = 1;
    op->u.matmul.trans_a = true;
    t_op(t, DEV_OP_SGD, IN(p, g), NO_IN);
    t->turn.lr = 0.5;
    for (int64_t i = 0; i < ROWS * COLS; i++) {
        want[i] = t_f(t, p)[i];
        for (int64_t k = 0; k < INNER; k++)
            want[i] -= 0.5 * t_f(t, a)[k * ROWS + i / COLS] * t_f(t, b)[k * COLS + i % COLS];
    }
    t_run(t);
    t_close(t, p, want, 1e-11);
}

static enum dev_replay replay_of(void (*add)(struct t_graph *t, double *want), const char *mode)
{
    double *want = t_doubles((size_t)ROWS * COLS);
    struct t_graph t;

    if (mode)
        setenv("SHUNT_CUDA_RECORD", mode, 1);
    t_init(&t);
    add(&t, want);
    unsetenv("SHUNT_CUDA_RECORD");
    free(want);
    t_fini(&t);
    return t.replay;
}

static void a_record_that_verifies_is_used(void **state)
{
    const enum dev_replay want = is_cuda() ? DEV_REPLAY_VERIFIED : DEV_REPLAY_NONE;
    const uint32_t before = dev_n_replay(t_dev(), want);
    (void)state;

    assert_int_equal(replay_of(add_inference, NULL), want);
    assert_int_equal(replay_of(add_training, NULL), want);
    assert_int_equal(dev_n_replay(t_dev(), want), before + (is_cuda() ? 2 : 0));
}

static void other_launches_turn_it_off(void **state)
{
    const uint32_t before = dev_n_replay(t_dev(), DEV_REPLAY_LAUNCHES);
    (void)state;

    if (!is_cuda())
        skip();
    assert_int_equal(replay_of(add_inference, "spoil-launches"), DEV_REPLAY_LAUNCHES);
    assert_int_equal(replay_of(add_training, "spoil-launches"), DEV_REPLAY_LAUNCHES);
    assert_int_equal(dev_n_replay(t_dev(), DEV_REPLAY_LAUNCHES), before + 2);
}

static void other_results_turn_it_off(void **state)
{
    const uint32_t before = dev_n_replay(t_dev(), DEV_REPLAY_RESULTS);
    (void)state;

    if (!is_cuda())
        skip();
    assert_int_equal(replay_of(add_inference, "spoil-results"), DEV_REPLAY_RESULTS);
    assert_int_equal(replay_of(add_training, "spoil-results"), DEV_REPLAY_RESULTS);
    assert_int_equal(dev_n_replay(t_dev(), DEV_REPLAY_RESULTS), before + 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_record_that_verifies_is_used),
        cmocka_unit_test(other_launches_turn_it_off),
        cmocka_unit_test(other_results_turn_it_off),
    };

    setenv("VERIFY_LAUNCHES", "1", 1);
    return cmocka_run_group_tests(tests, t_setup, t_teardown);
}
