/* test_pass_channels.c - Without it: a block of ConvNeXt would have two more operations, each of
 * which reads and writes all of it; or the factor of a channel would meet another one. */
/* uses: libmodel.a libdevice.a */
/* link: -ldl */
#include "tests/unit/graph_nodes.h"

enum { C = 6, SIDE = 5, PIXELS = C * SIDE * SIDE };

static const int64_t LAST[] = {0, 2, 3, 1}, FIRST[] = {0, 3, 1, 2};

/* One that changes channels, which another factor or another order would show. */
static uint32_t block(struct graph *g, uint32_t x, int i, bool with_factor, uint32_t *moved)
{
    char name[8][16];
    uint32_t y;

    for (int k = 0; k < 8; k++)
        snprintf(name[k], sizeof(name[k]), "b%d%c", i, 'a' + k);
    y = NODE(g, "Relu", name[0], turn(g, name[1], x, LAST));
    y = NODE(g, "MatMul", name[2], y, param(g, i ? "w" : "wide", 2, (int64_t[]){C, C}));
    y = NODE(g, "Add", name[3], y, param(g, i ? "bias" : "b", 1, (int64_t[]){C}));
    y = *moved = turn(g, name[4], y, FIRST);
    if (with_factor)
        y = NODE(g, "Mul", name[5], param(g, i ? "fac" : "f", 3, (int64_t[]){C, 1, 1}), y);
    return i ? NODE(g, "Add", name[6], y, x) : NODE(g, "Add", name[6], x, y);
}

/* shown: what is moved is an output too, so that nothing can be taken in. */
static struct graph *blocks(bool with_factor, bool shown, uint32_t *y, uint32_t shows[2])
{
    struct graph *g = new_graph();

    *y = input(g, "x", 4, (int64_t[]){-1, C, SIDE, SIDE});
    for (int i = 0; i < 2; i++)
        *y = block(g, *y, i, with_factor, &shows[i]);
    *y = NODE(g, "Tanh", "y", *y);
    if (shown)
        for (int i = 0; i < 2; i++)
            assert_ok(graph_add_output(g, shows[i], NULL));
    return g;
}

static void factor_and_residual_go_into_the_product(void **state)
{
    uint32_t y, shows[2];
    char text[256];

    (void)state;
    for (int with_factor = 0; with_factor < 2; with_factor++) {
        struct graph *g = blocks(with_factor, false, &y, shows);

        kinds(g, y, 2, false, text, sizeof(text));
        assert_string_equal(text, "TRANSPOSE ACT+RELU TRANSPOSE MATMUL "
                                  "ACT+RELU MATMUL+TANH TRANSPOSE");
    }
}

static void training_keeps_them(void **state)
{
    uint32_t y, shows[2];
    char text[256];

    struct graph *g = blocks(true, false, &y, shows);

    (void)state;
    kinds(g, y, 2, true, text, sizeof(text));
    assert_non_null(strstr(text, "BINARY"));
}

/* A number for each column is no number for each channel, though there are as many. */
static void a_factor_of_another_axis_stays(void **state)
{
    struct graph *g = new_graph();
    uint32_t y = input(g, "x", 4, (int64_t[]){-1, 4, 4, C});
    char text[256];

    (void)state;
    y = NODE(g, "MatMul", "m", y, param(g, "w", 2, (int64_t[]){C, 4}));
    y = NODE(g, "Mul", "s", turn(g, "t", y, FIRST), param(g, "f", 3, (int64_t[]){1, 4, 1}));
    kinds(g, y, 2, false, text, sizeof(text));
    assert_string_equal(text, "MATMUL TRANSPOSE BINARY");
}

static float *result(struct dev *d, bool with_factor, bool shown, const float *x, size_t *bytes)
{
    uint32_t out, shows[2];
    struct graph *g = blocks(with_factor, shown, &out, shows);
    struct sh_err err = {0};
    struct program *p;
    float *y;

    g->n_outputs = 0; /* the result is the first */
    assert_ok(graph_add_output(g, out, NULL));
    for (int i = 0; i < 2 && shown; i++)
        assert_ok(graph_add_output(g, shows[i], NULL));
    assert_ok_err(program_infer(d, g, &(struct graph_sizes){.batch = 2}, DEV_FP32, NULL, &p, &err),
                  &err);
    y = run(d, p, x, bytes);
    program_free(p);
    graph_free(g);
    return y;
}

static void what_comes_out_is_what_the_long_way_gives(void **state)
{
    struct dev_lib *l;
    struct dev *d = open_cpu(&l);
    float x[2 * PIXELS];

    (void)state;
    for (size_t i = 0; i < SH_ARRAY_LEN(x); i++)
        x[i] = (float)(i * 37 % 101) / 101.0f - 0.5f;
    for (int with_factor = 0; with_factor < 2; with_factor++) {
        size_t bytes[2];
        float *y = result(d, with_factor, false, x, &bytes[0]);
        float *want = result(d, with_factor, true, x, &bytes[1]);

        assert_int_equal(bytes[0], sizeof(x));
        assert_int_equal(bytes[1], sizeof(x));
        for (size_t i = 0; i < SH_ARRAY_LEN(x); i++)
            assert_true(fabsf(y[i] - want[i]) < 1e-5f);
        free(y);
        free(want);
    }
    dev_close(d);
    dev_lib_close(l);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(factor_and_residual_go_into_the_product),
        cmocka_unit_test(training_keeps_them),
        cmocka_unit_test(a_factor_of_another_axis_stays),
        cmocka_unit_test(what_comes_out_is_what_the_long_way_gives),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
