/* test_types.c - Without it: a constant of double precision was read as one of single precision, so
 * that models gave wrong numbers without a word; integers of other widths than the usual were
 * refused; and an output could come in another type than the file declares. */
/* uses: libmodel.a libdevice.a */
/* link: -ldl */
#include "common/half.h"
#include "common/mem.h"
#include "runtime/model/program.h"
#include "tests/unit/graph_nodes.h"

#include <math.h>

static struct dev_lib *lib;
static struct dev *dev;

static int open_all(void **state)
{
    (void)state;
    dev = open_cpu(&lib);
    return 0;
}

static int close_all(void **state)
{
    (void)state;
    dev_close(dev);
    dev_lib_close(lib);
    return 0;
}

static uint32_t typed_input(struct graph *g, const char *name, enum sh_dtype t, int64_t n)
{
    uint32_t v;

    assert_ok(graph_add_value(g, name, t, 1, &n, &v, NULL));
    assert_ok(graph_add_input(g, v, NULL));
    return v;
}

static uint32_t doubles(struct graph *g, const char *name, const double *x, int64_t n)
{
    double *data = malloc((size_t)n * sizeof(*data));
    uint32_t v;

    assert_non_null(data);
    memcpy(data, x, (size_t)n * sizeof(*data));
    assert_ok(graph_add_const(g, name, SH_F64, 1, &n, data, &v, NULL));
    return v;
}

/* What the model makes of x; OWNED. */
static void *result(struct graph *g, uint32_t y, const void *x, enum sh_dtype t, size_t bytes)
{
    struct sh_err err = {0};
    struct program *p;
    size_t got;
    void *out;

    assert_ok(graph_add_output(g, y, NULL));
    assert_ok_err(program_infer(dev, g, &(struct graph_sizes){.batch = graph_fixed_batch(g)},
                                DEV_FP32, NULL, &p, &err),
                  &err);
    assert_int_equal(program_output(p, 0)->dtype, t);
    out = run(dev, p, x, &got);
    assert_int_equal(got, bytes);
    program_free(p);
    graph_free(g);
    return out;
}

static void same_doubles(double *got, const double *want, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (fabs(got[i] - want[i]) > 1e-6 * fabs(want[i]))
            fail_msg("element %zu is %g, should be %g", i, got[i], want[i]);
    free(got);
}

static void constants_of_double_precision_keep_their_value(void **state)
{
    static const double X[3] = {1.5, -2.25, 1e5}, C[3] = {0.1, 300.0, -7.0};
    static const char *const OPS[] = {"Concat", "Max", "Min", "Add", "Mul"};
    static const double WANT[5][6] = {{1.5, -2.25, 1e5, 0.1, 300.0, -7.0},
                                      {1.5, 300.0, 1e5},
                                      {0.1, -2.25, -7.0},
                                      {1.6, 297.75, 99993.0},
                                      {0.15, -675.0, -7e5}};

    (void)state;
    for (size_t i = 0; i < SH_ARRAY_LEN(OPS); i++) {
        struct graph *g = new_graph();
        uint32_t x = typed_input(g, "x", SH_F64, 3), y;
        size_t n = i == 0 ? 6 : 3;

        y = NODE(g, OPS[i], "y", x, doubles(g, "c", C, 3));
        if (i == 0)
            assert_ok(graph_set_int(&g->nodes[0], "axis", 0, NULL));
        same_doubles(result(g, y, X, SH_F64, n * sizeof(double)), WANT[i], n);
    }
}

static void a_table_of_double_precision_is_read_as_one(void **state)
{
    static const double TABLE[4] = {0.25, 11.0, -3.5, 1e-3}, WANT[2] = {-3.5, 11.0};
    struct graph *g = new_graph();
    uint32_t x = typed_input(g, "x", SH_I64, 2);
    int64_t rows[2] = {2, 1};

    (void)state;
    x = NODE(g, "Gather", "y", doubles(g, "table", TABLE, 4), x);
    same_doubles(result(g, x, rows, SH_F64, 2 * sizeof(double)), WANT, 2);
}

static void the_least_number_of_double_precision_is_no_infinity(void **state)
{
    static const double MASK[2] = {-1.7976931348623157e308, 0.0};
    struct graph *g = new_graph();
    uint32_t x = typed_input(g, "x", SH_F64, 2), y;
    double in[2] = {1.0, 2.0}, *out;

    (void)state;
    y = NODE(g, "Add", "y", x, doubles(g, "mask", MASK, 2));
    out = result(g, y, in, SH_F64, sizeof(in));
    assert_true(isfinite(out[0]) && out[0] < -3e38);
    free(out);
}

static void numbers_of_16_bits_come_in_and_go_out_as_such(void **state)
{
    struct graph *g = new_graph();
    uint32_t x = typed_input(g, "x", SH_F16, 3), y;
    uint16_t in[3] = {sh_f16_of(0.5), sh_f16_of(-2), sh_f16_of(1000)}, *out;

    (void)state;
    y = NODE(g, "Add", "y", x, x);
    out = result(g, y, in, SH_F16, sizeof(in));
    assert_int_equal(out[0], sh_f16_of(1));
    assert_int_equal(out[1], sh_f16_of(-4));
    assert_int_equal(out[2], sh_f16_of(2000));
    free(out);
}

static void a_weight_of_f32_in_a_model_of_halves_is_taken(void **state)
{
    static const char *const OPS[] = {"Conv", "ConvTranspose"};
    const int64_t dims[3] = {1, 1, 3}, kernel[3] = {1, 1, 1};
    uint16_t in[3] = {sh_f16_of(0.5), sh_f16_of(-2), sh_f16_of(8)}, *out;

    (void)state;
    for (size_t k = 0; k < SH_ARRAY_LEN(OPS); k++) {
        struct graph *g = new_graph();
        uint32_t x, w = param(g, "w", 3, kernel);

        assert_ok(graph_add_value(g, "x", SH_F16, 3, dims, &x, NULL));
        assert_ok(graph_add_input(g, x, NULL));
        *(float *)g->values[w].data = 0.5f;
        x = NODE(g, OPS[k], "y", x, w);
        out = result(g, x, in, SH_F16, sizeof(in));
        assert_int_equal(out[0], sh_f16_of(0.25));
        assert_int_equal(out[1], sh_f16_of(-1));
        assert_int_equal(out[2], sh_f16_of(4));
        free(out);
    }
}

static void integers_of_any_width_wrap_at_their_own(void **state)
{
    struct graph *g = new_graph();
    uint32_t x = typed_input(g, "x", SH_I16, 2), y;
    int16_t in[2] = {30000, -7}, *out;

    (void)state;
    y = NODE(g, "Add", "y", x, x);
    out = result(g, y, in, SH_I16, sizeof(in));
    assert_int_equal(out[0], (int16_t)60000);
    assert_int_equal(out[1], -14);
    free(out);

    g = new_graph();
    x = typed_input(g, "x", SH_U64, 2);
    y = NODE(g, "Less", "y", x, NODE(g, "Add", "z", x, x));
    uint64_t big[2] = {UINT64_C(1) << 63, UINT64_C(1) << 62};
    uint8_t *less = result(g, y, big, SH_BOOL, 2);

    assert_int_equal(less[0], 0); /* 2^64 is 0 */
    assert_int_equal(less[1], 1); /* 2^63 is not negative */
    free(less);
}

static void casts_between_integers_keep_the_low_bits(void **state)
{
    struct graph *g = new_graph();
    uint32_t x = typed_input(g, "x", SH_I32, 3), y;
    int32_t in[3] = {300, -1, 127};
    uint8_t *out;

    (void)state;
    y = NODE(g, "Cast", "y", x);
    assert_ok(graph_set_int(&g->nodes[0], "to", sh_dtype_onnx(SH_U8), NULL));
    out = result(g, y, in, SH_U8, 3);
    assert_int_equal(out[0], 44);
    assert_int_equal(out[1], 255);
    assert_int_equal(out[2], 127);
    free(out);
}

static void a_hard_sigmoid_of_one_axis_is_none_of_zeros(void **state)
{
    static const float X[3] = {-1.0f, 0.5f, 10.0f}, ALONE[3] = {0.3f, 0.6f, 1.0f},
                       FUSED[3] = {0.1f, 0.7f, 1.0f};

    (void)state;
    for (int fused = 0; fused < 2; fused++) {
        struct graph *g = new_graph();
        uint32_t x = typed_input(g, "x", SH_F32, 3), y;
        float *out;

        y = NODE(g, "HardSigmoid", "y", fused ? NODE(g, "Add", "s", x, x) : x);
        out = result(g, y, X, SH_F32, sizeof(X));
        for (int i = 0; i < 3; i++)
            if (fabsf(out[i] - (fused ? FUSED : ALONE)[i]) > 1e-6f)
                fail_msg("fused %d: element %d is %g", fused, i, (double)out[i]);
        free(out);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(constants_of_double_precision_keep_their_value),
        cmocka_unit_test(a_table_of_double_precision_is_read_as_one),
        cmocka_unit_test(the_least_number_of_double_precision_is_no_infinity),
        cmocka_unit_test(numbers_of_16_bits_come_in_and_go_out_as_such),
        cmocka_unit_test(a_weight_of_f32_in_a_model_of_halves_is_taken),
        cmocka_unit_test(integers_of_any_width_wrap_at_their_own),
        cmocka_unit_test(casts_between_integers_keep_the_low_bits),
        cmocka_unit_test(a_hard_sigmoid_of_one_axis_is_none_of_zeros),
    };

    return cmocka_run_group_tests(tests, open_all, close_all);
}
