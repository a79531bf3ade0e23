/* test_autodiff_counted.c - Without it: experts that get as many rows as the data decide would be
 * trained with rows that are not there, or a model whose loss hangs on such rows would be taken. */
/* uses: libmodel.a libdevice.a */
/* link: -ldl */
#include "tests/unit/train_bench.h"

static const struct train_spec SPEC = {
    .heads = {{.loss = TRAIN_LOSS_MSE, .weight = 1, .labels = "label"}},
    .n_heads = 1,
    .lr = 0.1,
    .batch = 8,
    .precision = DEV_FP64};

static uint32_t list(struct graph *g, const char *name, int64_t n, const int64_t *of)
{
    int64_t *data = malloc((size_t)n * sizeof(*data));
    uint32_t v;

    assert_non_null(data);
    memcpy(data, of, (size_t)n * sizeof(*data));
    assert_ok(graph_add_const(g, name, SH_I64, 1, &n, data, &v, NULL));
    return v;
}

struct expert {
    struct graph *g;
    uint32_t rows, y; /* which of 8 tokens it gets, [n, 1], and what it makes of them, [n, 5] */
};

/* y = tanh(tokens[rows] w) gate[rows]: the data decide which are the rows. */
static struct expert make_expert(void)
{
    struct expert e = {.g = NULL};
    uint32_t who, zero, at, x, index;

    assert_ok(graph_new(&e.g, NULL));
    e.g->opset = 18;
    assert_ok(graph_add_value(e.g, "who", SH_F32, 1, (int64_t[]){8}, &who, NULL));
    assert_ok(graph_add_input(e.g, who, NULL));
    assert_ok(graph_add_const(e.g, "zero", SH_F32, 0, NULL, calloc(1, 4), &zero, NULL));
    at = some_node(e.g, "Greater", "mask", (uint32_t[]){who, zero}, 2);
    at = some_node(e.g, "NonZero", "places", &at, 1);
    e.rows = some_node(e.g, "Transpose", "rows", &at, 1);
    index = some_node(e.g, "Squeeze", "index",
                      (uint32_t[]){at, list(e.g, "first", 1, (int64_t[]){0})}, 2);
    x = some_weight(e.g, "tokens", 2, (int64_t[]){8, 4});
    x = some_node(e.g, "Gather", "taken", (uint32_t[]){x, index}, 2);
    x = some_node(e.g, "MatMul", "product",
                  (uint32_t[]){x, some_weight(e.g, "w", 2, (int64_t[]){4, 5})}, 2);
    x = some_node(e.g, "Tanh", "act", &x, 1);
    at = some_weight(e.g, "gate", 2, (int64_t[]){8, 1});
    at = some_node(e.g, "Gather", "weights", (uint32_t[]){at, index}, 2);
    e.y = some_node(e.g, "Mul", "y", (uint32_t[]){x, at}, 2);
    return e;
}

/* Rows that are not there lead nowhere: neither are they written, nor are they in a sum. */
static void rows_that_the_data_choose_have_gradients(void **state)
{
    static const char *const INTO[] = {"none", "add", "max", NULL, NULL};
    uint64_t seed = 5;

    for (size_t i = 0; i < SH_ARRAY_LEN(INTO); i++) {
        struct expert e = make_expert();
        struct bench *b = *state;
        uint32_t y;

        if (INTO[i]) {
            y = some_weight(e.g, "base", 2, (int64_t[]){8, 5});
            y = some_node(e.g, "ScatterND", "written", (uint32_t[]){y, e.rows, e.y}, 3);
            assert_ok(graph_set_str(&e.g->nodes[e.g->n_nodes - 1], "reduction", INTO[i], NULL));
        } else {
            y = i == 3 ? e.y : some_node(e.g, "Softmax", "shares", &e.y, 1);
            if (i == 4)
                assert_ok(graph_set_int(&e.g->nodes[e.g->n_nodes - 1], "axis", 0, NULL));
            y = some_node(e.g, "Mul", "square", (uint32_t[]){y, e.y}, 2);
            y = some_node(e.g, "ReduceMean", "mean",
                          (uint32_t[]){y, list(e.g, "axes", 1, (int64_t[]){0})}, 2);
        }
        assert_ok(graph_add_output(e.g, y, NULL));
        compile(b, e.g, -1, 1, &SPEC);
        expect_slopes(b, &seed, 3, 2e-2, INTO[i] ? INTO[i] : "a mean");
        clear(b);
    }
}

/* Statistics of a batch, and a loss, would be of rows that are not there. */
static void what_would_count_rows_that_are_not_there_is_refused(void **state)
{
    struct bench *b = *state;

    for (int i = 0; i < 2; i++) {
        struct expert e = make_expert();
        struct program *p = NULL;
        struct sh_err err = {0};
        uint32_t y = e.y;

        if (i) {
            uint32_t in[5] = {y};

            for (uint32_t k = 1; k < 5; k++) {
                char name[8];

                snprintf(name, sizeof(name), "norm%u", k);
                in[k] = some_weight(e.g, name, 1, (int64_t[]){5});
            }
            y = some_node(e.g, "BatchNormalization", "norm", in, 5);
            y = some_node(e.g, "ReduceMean", "mean",
                          (uint32_t[]){y, list(e.g, "axes", 1, (int64_t[]){0})}, 2);
        }
        assert_ok(graph_add_output(e.g, y, NULL));
        assert_int_equal(program_train(b->dev, e.g, &SPEC, &p, &err), SH_E_UNSUPPORTED);
        assert_non_null(strstr(err.msg, "the data"));
        assert_null(p);
        graph_free(e.g);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(rows_that_the_data_choose_have_gradients, setup, teardown),
        cmocka_unit_test_setup_teardown(what_would_count_rows_that_are_not_there_is_refused, setup,
                                        teardown),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
