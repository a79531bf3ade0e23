/* test_autodiff_detach.c - Without it: a quantiser whose loss holds the codes and what they stand
 * for apart by detach(), which no file has, would be trained with the sum of both gradients. */
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(what_is_squared_both_ways_learns_once, setup, teardown),
        cmocka_unit_test_setup_teardown(what_is_held_learns_nothing, setup, teardown),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
