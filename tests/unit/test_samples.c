/* test_samples.c - Without it: requests of two clients could be run together by a model whose
 * samples meet, so that each gets numbers that depend on the other; or no model could be batched
 * any more. */
/* uses: libmodel.a libdevice.a */
/* link: -ldl */
#include "runtime/model/samples.h"
#include "tests/unit/graph_nodes.h"

static uint32_t ints(struct graph *g, const char *name, int64_t n, const int64_t *v)
{
    return shape_of(g, name, n, v);
}
#define INTS(g, name, ...)                                                           \
    ints((g), (name), (int64_t)(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t)), \
         (const int64_t[]){__VA_ARGS__})

static void axis(struct graph *g, int64_t v)
{
    assert_ok(graph_set_int(&g->nodes[g->n_nodes - 1], "axis", v, NULL));
}

/* TAKES g; y is its output. want: NULL if samples are independent, else a part of why. */
static void check(const char *what, struct graph *g, uint32_t y, const char *want)
{
    char why[SAMPLES_WHY];
    struct sh_err err = {0};
    bool independent;

    assert_ok(graph_add_output(g, y, NULL));
    assert_ok_err(samples_check(g, &independent, why, &err), &err);
    if (independent != !want || (want && !strstr(why, want)) || (!want && why[0]))
        fail_msg("%s: %s, \"%s\"", what, independent ? "independent" : "they meet", why);
    graph_free(g);
}

static uint32_t tokens(struct graph *g)
{
    return input(g, "x", 3, (int64_t[]){-1, 8, 6});
}

static uint32_t flat(struct graph *g, const char *name, uint32_t x, uint32_t shape)
{
    return NODE(g, "Reshape", name, x, shape);
}

static void rows_that_never_meet_are_independent(void **state)
{
    struct graph *g = new_graph();
    uint32_t x = tokens(g), q, k;

    (void)state;
    x = flat(g, "rows", x, INTS(g, "s1", -1, 6));
    x = NODE(g, "MatMul", "m", x, param(g, "w", 2, (int64_t[]){6, 10}));
    x = NODE(g, "Add", "b", x, param(g, "bias", 1, (int64_t[]){10}));
    x = flat(g, "back", x, INTS(g, "s2", -1, 8, 10));
    x = NODE(g, "Softmax", "p", x);
    axis(g, -1);
    check("a layer over tokens", g, x, NULL);

    g = new_graph(); /* attention: the batch is the second axis for a while */
    x = tokens(g);
    q = turn(g, "q", flat(g, "h", x, INTS(g, "s1", -1, 8, 2, 3)), (int64_t[]){0, 2, 1, 3});
    k = turn(g, "k", flat(g, "i", x, INTS(g, "s2", -1, 8, 2, 3)), (int64_t[]){2, 0, 3, 1});
    k = turn(g, "kb", k, (int64_t[]){1, 0, 2, 3});
    x = NODE(g, "MatMul", "scores", q, k);
    x = NODE(g, "Softmax", "p", NODE(g, "Mul", "s", x, number(g, "c", 0.5f)));
    axis(g, 3);
    check("attention", g, NODE(g, "MatMul", "y", x, q), NULL);
}

static uint32_t turn3(struct graph *g, const char *name, uint32_t x, const int64_t perm[3])
{
    uint32_t y = NODE(g, "Transpose", name, x);

    assert_ok(graph_set_ints(&g->nodes[g->n_nodes - 1], "perm", perm, 3, NULL));
    return y;
}

static uint32_t lstm(struct graph *g, const char *name, uint32_t x, int64_t width)
{
    char w[16], r[16];

    snprintf(w, sizeof(w), "%s.w", name);
    snprintf(r, sizeof(r), "%s.r", name);
    return NODE(g, "LSTM", name, x, param(g, w, 3, (int64_t[]){1, 12, width}),
                param(g, r, 3, (int64_t[]){1, 12, 3}));
}

static void sequences_are_independent_wherever_their_axis_is(void **state)
{
    struct graph *g = new_graph();
    uint32_t x = tokens(g), y;

    (void)state;
    x = turn3(g, "steps", x, (int64_t[]){1, 0, 2});
    y = NODE(g, "Squeeze", "s", lstm(g, "a", x, 6), INTS(g, "one", 1));
    y = NODE(g, "Squeeze", "t", lstm(g, "b", y, 3), INTS(g, "also_one", 1));
    y = turn3(g, "y", y, (int64_t[]){1, 0, 2});
    check("an LSTM over transposed tokens", g, y, NULL);

    g = new_graph(); /* the samples are taken for steps */
    check("an LSTM over the batch", g, lstm(g, "a", tokens(g), 6), "mixes samples");
}

static void windows_of_an_image_are_independent(void **state)
{
    struct graph *g = new_graph();
    uint32_t x = input(g, "x", 4, (int64_t[]){-1, 4, 4, 6});

    (void)state;
    x = flat(g, "cut", x, INTS(g, "s1", -1, 2, 2, 2, 2, 6));
    x = NODE(g, "Transpose", "t", x);
    assert_ok(
        graph_set_ints(&g->nodes[g->n_nodes - 1], "perm", (int64_t[]){0, 1, 3, 2, 4, 5}, 6, NULL));
    x = flat(g, "windows", x, INTS(g, "s2", -1, 4, 6));
    x = NODE(g, "MatMul", "m", x, param(g, "w", 2, (int64_t[]){6, 6}));
    x = flat(g, "by_image", x, INTS(g, "s3", -1, 4, 4, 6));
    x = NODE(g, "Add", "mask", x, param(g, "each_window", 3, (int64_t[]){4, 1, 1}));
    check("windows", g, x, NULL);
}

static void a_token_of_its_own_for_each_sample_is_independent(void **state)
{
    struct graph *g = new_graph();
    uint32_t x = tokens(g), n, shape, token;

    (void)state;
    n = NODE(g, "Shape", "shape", x);
    n = NODE(g, "Gather", "n", n, INTS(g, "zero", 0));
    shape = NODE(g, "Concat", "to", n, INTS(g, "rest", 1, 6));
    axis(g, 0);
    token = NODE(g, "Expand", "token", param(g, "cls", 3, (int64_t[]){1, 1, 6}), shape);
    x = NODE(g, "Concat", "y", token, x);
    axis(g, 1);
    check("a class token", g, x, NULL);
}

/* Where the length is open, rows of tables are not folded: BERT's token types, which are zeros. */
static void the_same_rows_for_each_sample_are_independent(void **state)
{
    struct graph *g = new_graph();
    uint32_t x = input(g, "x", 3, (int64_t[]){-1, -2, 6}), shape, rows;
    int k;

    (void)state;
    assert_ok(sh_symbol_add(&g->symbols, "length", &k, NULL));
    shape = NODE(g, "Gather", "to", NODE(g, "Shape", "shape", x), INTS(g, "both", 0, 1));
    rows = NODE(g, "Expand", "types", INTS(g, "none", 0), shape);
    rows = NODE(g, "Gather", "rows", param(g, "table", 2, (int64_t[]){2, 6}), rows);
    graph_settle(g, false);
    check("token types", g, NODE(g, "Add", "y", rows, x), NULL);
}

static void samples_that_meet_are_found(void **state)
{
    struct graph *g = new_graph();
    uint32_t x = tokens(g), y;

    (void)state;
    y = NODE(g, "Softmax", "over_all", x);
    axis(g, 0);
    check("a softmax over the batch", g, y, "Softmax node over_all");

    g = new_graph();
    x = tokens(g);
    y = NODE(g, "ReduceMean", "mean", x, INTS(g, "axes", 0));
    check("a mean over the batch", g, NODE(g, "Sub", "y", x, y), "ReduceMean node mean");

    g = new_graph();
    x = input(g, "x", 2, (int64_t[]){-1, 6});
    y = NODE(g, "MatMul", "all", x, NODE(g, "Transpose", "t", x));
    check("a product of all with all", g, NODE(g, "MatMul", "y", y, x), "MatMul node all");

    g = new_graph();
    x = input(g, "x", 2, (int64_t[]){-1, 6});
    y = flat(g, "folded", x, INTS(g, "s", 3, -1));
    check("rows of another cut", g, flat(g, "y", y, INTS(g, "s2", -1, 6)), "Reshape node folded");

    g = new_graph();
    x = input(g, "x", 2, (int64_t[]){-1, 6});
    y = NODE(g, "Slice", "first", x, INTS(g, "from", 0), INTS(g, "to", 1));
    check("one of them for all", g, NODE(g, "Add", "y", x, y), "Slice node first");
}

static void samples_that_are_told_apart_by_their_place_are_found(void **state)
{
    struct graph *g = new_graph();
    uint32_t x = input(g, "x", 1, (int64_t[]){-1}), n, y;
    int64_t *zero = calloc(1, sizeof(*zero)), *one = malloc(sizeof(*one));
    uint32_t from, step;

    (void)state;
    assert_true(zero && one);
    *one = 1;
    assert_ok(graph_add_const(g, "from", SH_I64, 0, NULL, zero, &from, NULL));
    assert_ok(graph_add_const(g, "step", SH_I64, 0, NULL, one, &step, NULL));
    n = NODE(g, "Squeeze", "n", NODE(g, "Shape", "shape", x));
    y = NODE(g, "Cast", "place", NODE(g, "Range", "range", from, n, step));
    assert_ok(graph_set_int(&g->nodes[g->n_nodes - 1], "to", 1, NULL));
    check("numbered samples", g, NODE(g, "Add", "y", x, y), "Add node y");
}

static void what_has_no_row_for_each_sample_runs_alone(void **state)
{
    struct graph *g = new_graph();
    uint32_t x = tokens(g);

    (void)state;
    check("all tokens as rows", g, flat(g, "y", x, INTS(g, "s", -1, 6)), "output y");

    g = new_graph();
    x = tokens(g);
    input(g, "one_for_all", 1, (int64_t[]){6});
    check("an input for all", g, NODE(g, "Relu", "y", x), "input one_for_all");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_that_never_meet_are_independent),
        cmocka_unit_test(sequences_are_independent_wherever_their_axis_is),
        cmocka_unit_test(windows_of_an_image_are_independent),
        cmocka_unit_test(a_token_of_its_own_for_each_sample_is_independent),
        cmocka_unit_test(the_same_rows_for_each_sample_are_independent),
        cmocka_unit_test(samples_that_meet_are_found),
        cmocka_unit_test(samples_that_are_told_apart_by_their_place_are_found),
        cmocka_unit_test(what_has_no_row_for_each_sample_runs_alone),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
