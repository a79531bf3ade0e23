/* test_autodiff_detach.c - Without it: a quantiser whose loss holds the codes and what they stand
 * for apart by detach(), which no file has, would be trained with the sum of both gradients, and
 * training for 8 bits would train nothing. */
/* uses: libmodel.a libdevice.a */
/* link: -ldl */
#include "tests/unit/graph_text.h"
#include "tests/unit/train_bench.h"

static const struct train_spec SPEC = {
    .heads = {{.loss = TRAIN_LOSS_MSE, .weight = 1, .labels = "label"}},
    .n_heads = 1,
    .lr = 0.1,
    .batch = 1,
    .precision = DEV_FP64};

/* mean((a - b) * (a - b)), whose two differences are nodes of their own, as exporters write it */
static uint32_t square(struct graph *g, const char *const names[4], uint32_t a, uint32_t b)
{
    uint32_t d[2], y;

    d[0] = some_node(g, "Sub", names[0], (uint32_t[]){a, b}, 2);
    d[1] = some_node(g, "Sub", names[1], (uint32_t[]){a, b}, 2);
    y = some_node(g, "Mul", names[2], d, 2);
    return some_node(g, "ReduceMean", names[3], &y, 1);
}

static double difference(const struct bench *b, const size_t at[2], int i)
{
    return (double)b->state[at[0] + (size_t)i] + 0.5 - (double)b->state[at[1] + (size_t)i];
}

/* mse(x, q.detach()) + mse(q, x.detach()): the first operand of each learns. Twice the same way
 * round nobody is held apart. */
static void what_is_squared_both_ways_learns_once(void **state)
{
    static const char *const NAMES[2][4] = {{"a", "b", "c", "m"}, {"d", "e", "f", "n"}};
    struct bench *b = *state;

    for (int way = 0; way < 2; way++) {
        struct graph *g = text_graph("Add", "p[4,3] c[]=0.5", "", 1);
        const uint32_t x = g->outputs[0], q = some_weight(g, "q", 2, (int64_t[]){4, 3});
        const uint32_t one = square(g, NAMES[0], x, q),
                       other = square(g, NAMES[1], way ? x : q, way ? q : x);
        float *label, *grad;
        double loss, y = 0, slope;
        size_t at[2];

        g->outputs[0] = some_node(g, "Add", "y", (uint32_t[]){one, other}, 2);
        compile(b, g, -1, 1, &SPEC);
        label = some_label(b);
        grad = all_gradients(b, &loss);
        for (size_t k = 0; k < 2; k++)
            at[k] = program_state(b->p, k)->offset / sizeof(float);
        for (int i = 0; i < 12; i++) {
            const double d = difference(b, at, i);

            y += 2 * d * d / 12;
        }
        slope = 2 * (y - (double)label[0]);
        for (int i = 0; i < 12; i++) {
            const double d = difference(b, at, i);
            const double want = slope * 2 * d / 12 * (way ? 2 : 1);

            assert_true(fabs((double)grad[at[0] + (size_t)i] - want) < 1e-5);
            assert_true(fabs((double)grad[at[1] + (size_t)i] + want) < 1e-5);
        }
        free(label);
        free(grad);
        clear(b);
    }
}

/* x * x.detach(): one factor learns. */
static void what_is_held_learns_nothing(void **state)
{
    struct bench *b = *state;

    for (int holds = 0; holds < 2; holds++) {
        struct graph *g = text_graph("Identity", "p[4,3]", holds ? GRAPH_HELD "=1" : "", 1);
        const uint32_t x = g->nodes[0].in[0], held = g->outputs[0];
        float *label, *grad;
        double loss;
        size_t at;

        g->outputs[0] = some_node(g, "Mul", "y", (uint32_t[]){x, held}, 2);
        compile(b, g, -1, 1, &SPEC);
        label = some_label(b);
        grad = all_gradients(b, &loss);
        at = program_state(b->p, 0)->offset / sizeof(float);
        for (size_t i = 0; i < 12; i++) {
            const double v = (double)b->state[at + i];
            const double want = 2 * (v * v - (double)label[i]) / 12 * v * (holds ? 1 : 2);

            assert_true(fabs((double)grad[at + i] - want) < 1e-5);
        }
        free(label);
        free(grad);
        clear(b);
    }
}

/* Of 4 rows: all of one scale, as U8, or each of its own, as I8. */
static uint32_t quantised(struct graph *g, uint32_t x, bool by_row, bool clips)
{
    const int64_t n = by_row ? 4 : 1;
    float *scale = malloc((size_t)n * sizeof(*scale));
    uint8_t *zero = malloc((size_t)n);
    uint32_t in[3] = {x}, q, y, node;

    assert_true(scale && zero);
    for (int64_t i = 0; i < n; i++) {
        scale[i] = (float)(i + 1) / (clips ? 32 : 256);
        zero[i] = by_row ? (uint8_t)i : 120;
    }
    assert_ok(graph_add_const(g, "scale", SH_F32, by_row, &n, scale, &in[1], NULL));
    assert_ok(graph_add_const(g, "zero", by_row ? SH_I8 : SH_U8, by_row, &n, zero, &in[2], NULL));
    q = some_node(g, "QuantizeLinear", "q", in, 3);
    assert_ok(graph_set_int(&g->nodes[g->n_nodes - 1], "axis", 0, NULL));
    in[0] = q;
    if (clips) { /* of 7 bits */
        uint8_t *low = malloc(1), *high = malloc(1);

        *low = 100;
        *high = 127;
        assert_ok(graph_add_const(g, "low", SH_U8, 0, NULL, low, &y, NULL));
        assert_ok(graph_add_const(g, "high", SH_U8, 0, NULL, high, &node, NULL));
        in[0] = some_node(g, "Clip", "clip", (uint32_t[]){q, y, node}, 3);
    }
    y = some_node(g, "DequantizeLinear", "y", in, 3);
    assert_ok(graph_set_int(&g->nodes[g->n_nodes - 1], "axis", 0, NULL));
    return y;
}

/* Numbers that were rounded to 8 bits and back, as in training for them: the gradient goes straight
 * on to what fits into the range. */
static void what_is_rounded_to_bits_learns_where_it_fits(void **state)
{
    struct bench *b = *state;

    for (int form = 0; form < 3; form++) {
        struct graph *g = text_graph("Identity", "p[4,3]", "", 1);
        const uint32_t x = g->nodes[0].in[0];
        float *label, *grad;
        double loss;
        size_t at;
        int fits = 0;

        g->outputs[0] = quantised(g, x, form == 1, form == 2);
        compile(b, g, -1, 1, &SPEC);
        label = some_label(b);
        grad = all_gradients(b, &loss);
        at = program_state(b->p, 0)->offset / sizeof(float);
        for (int i = 0; i < 12; i++) {
            const int row = i / 3, zero = form == 1 ? row : 120;
            const double low = form == 0 ? 0 : form == 1 ? -128 : 100;
            const double high = form == 0 ? 255 : 127;
            const double scale = form == 1 ? (row + 1) / 256.0 : form == 0 ? 1 / 256.0 : 1 / 32.0;
            const double q = nearbyint((double)b->state[at + (size_t)i] / scale) + zero;
            const bool in = q >= low && q <= high;
            const double y = (fmin(fmax(q, low), high) - zero) * scale;
            const double want = in ? 2 * (y - (double)label[i]) / 12 : 0;

            fits += in;
            assert_true(fabs((double)grad[at + (size_t)i] - want) < 1e-5);
        }
        assert_in_range(fits, 1, 11);
        free(label);
        free(grad);
        clear(b);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(what_is_squared_both_ways_learns_once, setup, teardown),
        cmocka_unit_test_setup_teardown(what_is_held_learns_nothing, setup, teardown),
        cmocka_unit_test_setup_teardown(what_is_rounded_to_bits_learns_where_it_fits, setup,
                                        teardown),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
