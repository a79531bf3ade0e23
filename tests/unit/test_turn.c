/* test_turn.c - Without it: what training in TF32 turns could be turned wrongly, twice, or where it
 * costs more than it gains; models would train a little worse, or slower. */
/* uses: libmodel.a libdevice.a */
/* link: -ldl */
#include "tests/unit/train_bench.h"

static uint32_t param(struct graph *g, const char *name, int64_t rows, int64_t cols)
{
    return some_weight(g, name, 2, (int64_t[]){rows, cols});
}

/* x w v + x u t, x of `rows` rows: gradients of w and u share x, those of v and t share d_y. */
static struct graph *net(int64_t rows, int64_t wide)
{
    struct graph *g;
    uint32_t x, a, b;

    assert_ok(graph_new(&g, NULL));
    x = param(g, "x", rows, 8);
    a = some_node(g, "MatMul", "xw", (uint32_t[]){x, param(g, "w", 8, wide)}, 2);
    a = some_node(g, "MatMul", "xwv", (uint32_t[]){a, param(g, "v", wide, 4)}, 2);
    b = some_node(g, "MatMul", "xu", (uint32_t[]){x, param(g, "u", 8, 512)}, 2);
    b = some_node(g, "MatMul", "xut", (uint32_t[]){b, param(g, "t", 512, 4)}, 2);
    a = some_node(g, "Add", "y", (uint32_t[]){a, b}, 2);
    assert_ok(graph_add_output(g, a, NULL));
    return g;
}

/* OWNED: the gradients of all parameters, as they lie in the state. */
static float *gradients(struct bench *b, int64_t rows, int64_t wide, enum dev_precision precision,
                        uint32_t n_turned, size_t *bytes)
{
    const struct train_spec spec = {
        .heads = {{.loss = TRAIN_LOSS_MSE, .weight = 1, .labels = "label"}},
        .n_heads = 1,
        .lr = 0.1,
        .batch = 1,
        .precision = precision,
        .seed = 7};
    double loss;
    float *all;

    compile(b, net(rows, wide), -1, 1, &spec);
    assert_int_equal(count_ops(b, "TRANSPOSE"), n_turned);
    *bytes = program_state_bytes(b->p);
    all = all_gradients(b, &loss);
    clear(b);
    return all;
}

static void shared_operands_are_turned_once_and_gradients_stay(void **state)
{
    size_t bytes = 0;
    float *plain = gradients(*state, 1024, 1024, DEV_FP32, 0, &bytes);
    float *turned = gradients(*state, 1024, 1024, DEV_TF32, 2, &bytes);

    expect_close(turned, plain, bytes, "gradient");
    free(plain);
    free(turned);
}

static void what_is_not_worth_it_stays(void **state)
{
    size_t bytes;

    free(gradients(*state, 1023, 1024, DEV_TF32, 0, &bytes)); /* too few rows */
    free(gradients(*state, 1024, 1023, DEV_TF32, 0, &bytes)); /* 1535 columns on the other side */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(shared_operands_are_turned_once_and_gradients_stay, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(what_is_not_worth_it_stays, setup, teardown),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
