/* test_moves.c - Without it windows of a picture that are shifted and cut out, as exporters write
 * it, would be copied eight times in training, or their rows would come back to wrong places. */
/* uses: libmodel.a libdevice.a */
/* link: -ldl */
#include "tests/unit/graph_nodes.h"

enum { SIDE = 6, CHANNELS = 8, WINDOW = 3, SHIFT = 2 };

static uint32_t range(struct graph *g, const char *name, uint32_t x, int64_t from, int64_t to,
                      int64_t axis)
{
    char at[3][32];

    for (int i = 0; i < 3; i++)
        snprintf(at[i], sizeof(at[i]), "%s.%d", name, i);
    return NODE(g, "Slice", name, x, shape_of(g, at[0], 1, &from), shape_of(g, at[1], 1, &to),
                shape_of(g, at[2], 1, &axis));
}

/* torch.roll() along one axis. */
static uint32_t roll(struct graph *g, const char *name, uint32_t x, int64_t axis)
{
    char front[32], back[32];
    uint32_t y;

    snprintf(front, sizeof(front), "%s.front", name);
    snprintf(back, sizeof(back), "%s.back", name);
    y = NODE(g, "Concat", name, range(g, front, x, SHIFT, SIDE, axis),
             range(g, back, x, 0, SHIFT, axis));
    assert_ok(graph_set_int(&g->nodes[g->n_nodes - 1], "axis", axis, NULL));
    return y;
}

/* x, normalised, rolled along both sides, cut into windows, and multiplied. */
static uint32_t windows(struct graph *g, uint32_t x)
{
    const int64_t n = SIDE / WINDOW, cut[6] = {-1, n, WINDOW, n, WINDOW, CHANNELS};
    uint32_t y = roll(g, "down", x, 1);

    y = roll(g, "right", y, 2);
    y = NODE(g, "Transpose", "cut", NODE(g, "Reshape", "parts", y, shape_of(g, "parts.s", 6, cut)));
    assert_ok(
        graph_set_ints(&g->nodes[g->n_nodes - 1], "perm", (int64_t[]){0, 1, 3, 2, 4, 5}, 6, NULL));
    y = NODE(g, "Reshape", "lines", y,
             shape_of(g, "lines.s", 3, (int64_t[]){-1, SIDE * SIDE, CHANNELS}));
    return NODE(g, "MatMul", "y", y, param(g, "w", 2, (int64_t[]){CHANNELS, CHANNELS}));
}

static void training_moves_rows_once(void **state)
{
    struct graph *g = new_graph();
    char text[256];
    uint32_t x = input(g, "x", 4, (int64_t[]){-1, SIDE, SIDE, CHANNELS});

    (void)state;
    kinds(g, windows(g, NODE(g, "Tanh", "t", x)), 3, true, text, sizeof(text));
    assert_string_equal(text, "ACT+TANH GATHER MATMUL");
}

/* Where each row comes from: of window (a, b), line i, column j. */
static void the_list_is_that_of_the_windows(void **state)
{
    struct graph *g = new_graph(), *at;
    uint32_t x = input(g, "x", 4, (int64_t[]){-1, SIDE, SIDE, CHANNELS});
    const int32_t *from = NULL;
    struct ir *ir;

    (void)state;
    assert_ok(graph_add_output(g, windows(g, NODE(g, "Tanh", "t", x)), NULL));
    assert_ok(graph_at_batch(g, 2, true, &at, NULL));
    assert_ok(lower_graph(at, true, &ir, NULL));
    assert_ok(pass_run(ir, true, NULL));
    for (uint32_t i = 0; i < ir->g.n_ops; i++)
        if (ir->g.ops[i].kind == DEV_OP_GATHER)
            from = ir_data(ir, ir->g.ops[i].in[1]);
    assert_non_null(from);
    for (int k = 0; k < SIDE * SIDE; k++) {
        const int window = k / (WINDOW * WINDOW), in = k % (WINDOW * WINDOW);
        const int line = window / (SIDE / WINDOW) * WINDOW + in / WINDOW;
        const int column = window % (SIDE / WINDOW) * WINDOW + in % WINDOW;

        assert_int_equal(from[k], (line + SHIFT) % SIDE * SIDE + (column + SHIFT) % SIDE);
    }
    ir_free(ir);
    graph_free(at);
    graph_free(g);
}

static void what_moves_nothing_is_no_operation(void **state)
{
    struct graph *g = new_graph();
    char text[256];
    uint32_t x = NODE(g, "Tanh", "t", input(g, "x", 4, (int64_t[]){-1, SIDE, SIDE, CHANNELS}));

    (void)state;
    x = range(g, "all", x, 0, SIDE, 1);
    x = NODE(g, "Pad", "padded", x, shape_of(g, "pads", 8, (int64_t[8]){0}));
    kinds(g, NODE(g, "Exp", "y", range(g, "again", x, 0, SIDE, 2)), 2, false, text, sizeof(text));
    assert_string_equal(text, "ACT+TANH ACT+EXP");
}

/* The second turns back what the first turned; another one does not. */
static void a_turn_and_its_back_are_neither(void **state)
{
    static const int64_t LAST[] = {0, 2, 3, 1}, FIRST[] = {0, 3, 1, 2};

    (void)state;
    for (int is_back = 0; is_back < 2; is_back++) {
        struct graph *g = new_graph();
        uint32_t x = input(g, "x", 4, (int64_t[]){-1, CHANNELS, SIDE, SIDE});
        char text[256];

        x = turn(g, "there", NODE(g, "Tanh", "t", x), LAST);
        x = turn(g, "back", x, is_back ? FIRST : LAST);
        kinds(g, NODE(g, "Exp", "y", x), 2, false, text, sizeof(text));
        assert_string_equal(text,
                            is_back ? "ACT+TANH ACT+EXP" : "ACT+TANH TRANSPOSE TRANSPOSE ACT+EXP");
    }
}

/* At inference the list would be part of the weights, and other batch sizes might have another. */
static void inference_keeps_its_steps(void **state)
{
    struct graph *g = new_graph();
    char text[256];
    uint32_t x = input(g, "x", 4, (int64_t[]){-1, SIDE, SIDE, CHANNELS});

    (void)state;
    kinds(g, windows(g, NODE(g, "Tanh", "t", x)), 3, false, text, sizeof(text));
    assert_null(strstr(text, "GATHER"));
}

static void gelu_by_tanh_is_one_operation(void **state)
{
    struct graph *g = new_graph();
    char text[256];
    uint32_t x = input(g, "x", 2, (int64_t[]){-1, CHANNELS}), t;

    (void)state;
    t = NODE(g, "Mul", "cube", number(g, "c", 0.044715f),
             NODE(g, "Pow", "pow", x, number(g, "three", 3.0f)));
    t = NODE(g, "Mul", "inner", number(g, "root", 0.7978845608f), NODE(g, "Add", "sum", x, t));
    t = NODE(g, "Add", "one", NODE(g, "Tanh", "tanh", t), number(g, "1", 1.0f));
    t = NODE(g, "Mul", "y", NODE(g, "Mul", "half", x, number(g, "h", 0.5f)), t);
    kinds(g, t, 3, false, text, sizeof(text));
    assert_string_equal(text, "ACT+GELU_TANH");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(training_moves_rows_once),
        cmocka_unit_test(the_list_is_that_of_the_windows),
        cmocka_unit_test(what_moves_nothing_is_no_operation),
        cmocka_unit_test(a_turn_and_its_back_are_neither),
        cmocka_unit_test(inference_keeps_its_steps),
        cmocka_unit_test(gelu_by_tanh_is_one_operation),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
