/* test_pass_quant.c - Without it: a quantised model could be computed in floats again (everything
 * still works, only slower), weights could be stored four times as large, or a file's rounding be
 * left out. */
/* uses: libmodel.a libdevice.a */
/* link: -ldl */
#include "tests/unit/graph_nodes.h"

#include <math.h>

static uint32_t bytes(struct graph *g, const char *name, enum sh_dtype t, int rank,
                      const int64_t *dims, int factor)
{
    uint32_t v;
    int64_t n = 1;
    uint8_t *data;

    for (int i = 0; i < rank; i++)
        n *= dims[i];
    data = malloc((size_t)n + 1);
    assert_non_null(data);
    for (int64_t i = 0; i < n; i++)
        data[i] = (uint8_t)(i * factor);
    assert_ok(graph_add_const(g, name, t, rank, dims, data, &v, NULL));
    g->values[v].is_param = rank > 0;
    return v;
}

/* A name that the graph does not have yet. */
static const char *named(const struct graph *g, const char *what, char to[16])
{
    snprintf(to, 16, "%s%u", what, g->n_values);
    return to;
}

/* Scale, and zero point as U8. */
static uint32_t quantised(struct graph *g, uint32_t x, float scale, int zero)
{
    char name[16];
    uint32_t s = number(g, named(g, "s", name), scale);
    uint32_t z = bytes(g, named(g, "z", name), SH_U8, 0, NULL, 0);

    ((uint8_t *)g->values[z].data)[0] = (uint8_t)zero;
    x = NODE(g, "QuantizeLinear", named(g, "q", name), x, s, z);
    return NODE(g, "DequantizeLinear", named(g, "d", name), x, s, z);
}

/* A weight of I8 with a scale for each of its m rows. */
static uint32_t weight(struct graph *g, int rank, const int64_t *dims)
{
    char name[16];
    uint32_t q = bytes(g, named(g, "w", name), SH_I8, rank, dims, 37);
    uint32_t s = param(g, named(g, "ws", name), 1, dims);

    for (int64_t i = 0; i < dims[0]; i++)
        ((float *)g->values[s].data)[i] = 0.01f + 0.001f * (float)i;
    q = NODE(g, "DequantizeLinear", named(g, "wd", name), q, s);
    assert_ok(graph_set_int(&g->nodes[g->n_nodes - 1], "axis", 0, NULL));
    return q;
}

/* As a static quantiser writes a residual block: everything between two operators is rounded. */
static struct graph *block(uint32_t *y)
{
    struct graph *g = new_graph();
    uint32_t x = input(g, "x", 4, (int64_t[]){-1, 4, 6, 6}), a, b;

    x = quantised(g, x, 0.01f, 128);
    a = NODE(g, "Relu", "r1", NODE(g, "Conv", "c1", x, weight(g, 4, (int64_t[]){8, 4, 1, 1})));
    a = quantised(g, a, 0.02f, 0);
    a = NODE(g, "Conv", "c2", a, weight(g, 4, (int64_t[]){8, 8, 1, 1}));
    a = quantised(g, a, 0.03f, 120);
    b = NODE(g, "Conv", "c3", x, weight(g, 4, (int64_t[]){8, 4, 1, 1}));
    b = quantised(g, b, 0.04f, 100);
    *y = quantised(g, NODE(g, "Relu", "r2", NODE(g, "Add", "sum", a, b)), 0.05f, 3);
    return g;
}

static void a_residual_block_is_three_products_of_integers(void **state)
{
    char text[256];
    struct graph *g;
    uint32_t y;

    (void)state;
    g = block(&y);
    kinds(g, y, 2, false, text, sizeof(text));
    assert_string_equal(text, "QUANTIZE QCONV+RELU QCONV QCONV+RELU QUANTIZE");
}

static void a_linear_layer_takes_bias_and_activation(void **state)
{
    struct graph *g = new_graph();
    uint32_t x = input(g, "x", 3, (int64_t[]){-1, 5, 8}), y;
    char text[256];

    (void)state;
    y = NODE(g, "Transpose", "wt", weight(g, 2, (int64_t[]){6, 8}));
    y = NODE(g, "MatMul", "m", quantised(g, x, 0.01f, 7), y);
    y = NODE(g, "Add", "b", param(g, "bias", 1, (int64_t[]){6}), y);
    y = quantised(g, NODE(g, "Tanh", "t", y), 0.01f, 128);
    kinds(g, y, 3, false, text, sizeof(text));
    assert_string_equal(text, "QUANTIZE QMATMUL+TANH QUANTIZE");
}

static void moves_and_maxima_stay_in_integers(void **state)
{
    struct graph *g = new_graph();
    uint32_t x = input(g, "x", 4, (int64_t[]){-1, 4, 6, 6}), y;
    char text[256];

    (void)state;
    y = NODE(g, "MaxPool", "p", quantised(g, x, 0.01f, 9));
    assert_ok(
        graph_set_ints(&g->nodes[g->n_nodes - 1], "kernel_shape", (int64_t[]){2, 2}, 2, NULL));
    y = NODE(g, "Flatten", "f", quantised(g, y, 0.01f, 9));
    y = NODE(g, "Gemm", "m", quantised(g, y, 0.01f, 9), weight(g, 2, (int64_t[]){3, 100}));
    assert_ok(graph_set_int(&g->nodes[g->n_nodes - 1], "transB", 1, NULL));
    kinds(g, y, 3, false, text, sizeof(text));
    assert_string_equal(text, "QUANTIZE POOL_MAX QMATMUL");
}

/* U8 without a zero point: the numbers do not fit I8. */
static void what_does_not_fit_is_computed_in_floats(void **state)
{
    struct graph *g = new_graph();
    uint32_t x = input(g, "x", 2, (int64_t[]){-1, 8}), w, y;
    char text[256];

    (void)state;
    w = NODE(g, "DequantizeLinear", "wd", bytes(g, "w", SH_U8, 2, (int64_t[]){8, 6}, 37),
             number(g, "ws", 0.01f));
    y = NODE(g, "MatMul", "m", quantised(g, x, 0.01f, 7), w);
    kinds(g, y, 3, false, text, sizeof(text));
    assert_string_equal(text, "QUANTIZE QUANTIZE MATMUL");
}

static void training_learns_in_floats(void **state)
{
    struct graph *g = new_graph();
    uint32_t x = input(g, "x", 2, (int64_t[]){-1, 8}), y;
    char text[512];

    (void)state;
    y = NODE(g, "MatMul", "m", quantised(g, x, 0.01f, 7), param(g, "w", 2, (int64_t[]){8, 6}));
    kinds(g, y, 3, true, text, sizeof(text));
    assert_null(strstr(text, "QUANTIZE"));
}

static void scales_that_are_none_are_refused(void **state)
{
    static const float BAD[] = {0.0f, -1.0f, NAN, INFINITY};

    (void)state;
    for (size_t i = 0; i < SH_ARRAY_LEN(BAD); i++) {
        struct graph *g = new_graph(), *at = NULL;
        uint32_t x = input(g, "x", 2, (int64_t[]){-1, 8});
        struct sh_err err = {0};

        assert_ok(graph_add_output(g, quantised(g, x, BAD[i], 7), NULL));
        assert_int_equal(graph_at_batch(g, 2, false, &at, &err), SH_E_INVALID);
        assert_non_null(strstr(err.msg, "scale"));
        graph_free(at);
        graph_free(g);
    }
}

static void batch_sizes_share_one_image_and_agree(void **state)
{
    uint32_t y;
    struct graph *g = block(&y);

    (void)state;
    assert_ok(graph_add_output(g, y, NULL));
    batches_agree(g, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_residual_block_is_three_products_of_integers),
        cmocka_unit_test(a_linear_layer_takes_bias_and_activation),
        cmocka_unit_test(moves_and_maxima_stay_in_integers),
        cmocka_unit_test(what_does_not_fit_is_computed_in_floats),
        cmocka_unit_test(training_learns_in_floats),
        cmocka_unit_test(scales_that_are_none_are_refused),
        cmocka_unit_test(batch_sizes_share_one_image_and_agree),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
