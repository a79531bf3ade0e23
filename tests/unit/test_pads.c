/* test_pads.c - Without it: a request that is filled up to a bucket could get an answer that
 * depends on what it was filled up with, or models with a mask could have no buckets. */
/* uses: libmodel.a libdevice.a */
/* link: -ldl */
#include "runtime/model/pads.h"
#include "tests/unit/graph_nodes.h"

#include <float.h>
#include <math.h>

#define LENGTH GRAPH_SYMBOL(0)
#define WIDTH 6

static const uint32_t BUCKETS[] = {8, 16};

static uint32_t ints(struct graph *g, const char *name, int64_t n, const int64_t *v)
{
    return shape_of(g, name, n, v);
}
#define INTS(g, name, ...)                                                           \
    ints((g), (name), (int64_t)(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t)), \
         (const int64_t[]){__VA_ARGS__})

static uint32_t index_of(struct graph *g, const char *name, int64_t v)
{
    int64_t *data = malloc(sizeof(*data));
    uint32_t out;

    assert_non_null(data);
    *data = v;
    assert_ok(graph_add_const(g, name, SH_I64, 0, NULL, data, &out, NULL));
    return out;
}

static uint32_t set_int(struct graph *g, uint32_t y, const char *name, int64_t v)
{
    assert_ok(graph_set_int(&g->nodes[g->n_nodes - 1], name, v, NULL));
    return y;
}

/* x [N, L, WIDTH] */
static struct graph *start(uint32_t *x)
{
    struct graph *g = new_graph();
    int k;

    assert_ok(sh_symbol_add(&g->symbols, "length", &k, NULL));
    *x = input(g, "x", 3, (int64_t[]){-1, LENGTH, WIDTH});
    return g;
}

/* TAKES g; y is its output. want: NULL where it is harmless, else a part of why. */
static void check(const char *what, struct graph *g, uint32_t y, const char *want)
{
    char why[PADS_WHY] = "";
    struct sh_err err = {0};
    bool harmless = false;

    assert_ok(graph_add_output(g, y, NULL));
    graph_settle(g, false);
    assert_ok_err(pads_check(g, 0, BUCKETS, SH_ARRAY_LEN(BUCKETS), &harmless, NULL, why, &err),
                  &err);
    if (harmless != !want || (want && !strstr(why, want)) || (!want && why[0]))
        fail_msg("%s: %s, \"%s\"", what, harmless ? "harmless" : "not so", why);
    graph_free(g);
}

/* The length, [1]; positions 0, 1, ..., [L]. */
static uint32_t length_of(struct graph *g, uint32_t x)
{
    return set_int(g, NODE(g, "Gather", "len", NODE(g, "Shape", "shape", x), INTS(g, "one", 1)),
                   "axis", 0);
}

static uint32_t positions(struct graph *g, uint32_t x)
{
    const uint32_t len = NODE(g, "Squeeze", "len0", length_of(g, x));

    return NODE(g, "Range", "at", index_of(g, "zero", 0), len, index_of(g, "step", 1));
}

/* scores [N, L, L] = x x^T */
static uint32_t scores(struct graph *g, uint32_t x)
{
    uint32_t xt = NODE(g, "Transpose", "xt", x);

    assert_ok(graph_set_ints(&g->nodes[g->n_nodes - 1], "perm", (int64_t[]){0, 2, 1}, 3, NULL));
    return NODE(g, "MatMul", "scores", x, xt);
}

static uint32_t softmax(struct graph *g, uint32_t s)
{
    return set_int(g, NODE(g, "Softmax", "weights", s), "axis", -1);
}

/* A mask of 0 and 1, as an input [N, L], made [N, 1, L]: (1 - m) * far. */
static uint32_t bias_of_mask(struct graph *g, float far)
{
    uint32_t m = input(g, "mask", 2, (int64_t[]){-1, LENGTH});

    m = NODE(g, "Unsqueeze", "m1", m, INTS(g, "axis1", 1));
    return NODE(g, "Mul", "far_off", NODE(g, "Sub", "out", number(g, "1", 1), m),
                number(g, "far", far));
}

static uint32_t masked(struct graph *g, uint32_t x, float far)
{
    return softmax(g, NODE(g, "Add", "biased", scores(g, x), bias_of_mask(g, far)));
}

/* row >= column, [L, L] */
static uint32_t causal(struct graph *g, uint32_t x)
{
    const uint32_t at = positions(g, x);
    const uint32_t rows = NODE(g, "Unsqueeze", "rows", at, INTS(g, "ax1", 1));
    const uint32_t cols = NODE(g, "Unsqueeze", "cols", at, INTS(g, "ax0", 0));

    return NODE(g, "GreaterOrEqual", "seen", rows, cols);
}

static uint32_t causally(struct graph *g, uint32_t x)
{
    return softmax(
        g, NODE(g, "Where", "biased", causal(g, x), scores(g, x), number(g, "inf", -INFINITY)));
}

static void what_stays_in_its_place_is_harmless(void **state)
{
    uint32_t x, y;
    struct graph *g = start(&x);

    (void)state;
    y = NODE(g, "MatMul", "m", x, param(g, "w", 2, (int64_t[]){WIDTH, 10}));
    y = NODE(g, "Relu", "r", NODE(g, "Add", "b", y, param(g, "bias", 1, (int64_t[]){10})));
    check("a layer over tokens", g, softmax(g, y), NULL);

    g = start(&x); /* [N * L, WIDTH] for a while */
    y = NODE(g, "Reshape", "flat", x, INTS(g, "s1", -1, WIDTH));
    y = NODE(g, "Gemm", "g", y, param(g, "w", 2, (int64_t[]){WIDTH, WIDTH}));
    y = NODE(g, "Reshape", "back", y, NODE(g, "Shape", "shape", x));
    check("a layer over rows", g, y, NULL);

    g = start(&x);
    y = NODE(g, "Gather", "table", param(g, "w", 2, (int64_t[]){32, WIDTH}), positions(g, x));
    check("a table of positions", g, NODE(g, "Add", "y", x, set_int(g, y, "axis", 0)), NULL);

    g = start(&x); /* of which the last bucket takes all */
    y = NODE(g, "Gather", "table", param(g, "w", 2, (int64_t[]){16, WIDTH}), positions(g, x));
    check("all of a table", g, NODE(g, "Add", "y", x, set_int(g, y, "axis", 0)), NULL);

    g = start(&x);
    y = NODE(g, "Slice", "part", param(g, "w", 2, (int64_t[]){16, WIDTH}), INTS(g, "from", 0),
             length_of(g, x));
    check("the beginning of a table", g, NODE(g, "Add", "y", x, y), NULL);

    g = start(&x);
    y = NODE(g, "Slice", "part", param(g, "w", 2, (int64_t[]){32, WIDTH}),
             NODE(g, "Sub", "from", INTS(g, "size", 32), length_of(g, x)), INTS(g, "to", 32));
    check("the end of a table", g, NODE(g, "Add", "y", x, y), "Slice node");

    g = start(&x);
    y = set_int(g, NODE(g, "Gather", "first", x, index_of(g, "zero0", 0)), "axis", 1);
    check("the first token", g, y, NULL);

    g = start(&x);
    check("a sum of what came before", g, NODE(g, "CumSum", "c", x, index_of(g, "axis", 1)), NULL);
}

static void what_meets_under_a_mask_is_harmless(void **state)
{
    uint32_t x, y, m;
    struct graph *g = start(&x);

    (void)state;
    check("attention with a mask", g, NODE(g, "MatMul", "y", masked(g, x, -FLT_MAX), x), NULL);

    g = start(&x);
    check("causal attention", g, NODE(g, "MatMul", "y", causally(g, x), x), NULL);

    g = start(&x); /* a mean of those that the mask lets through */
    m = NODE(g, "Unsqueeze", "m2", input(g, "mask", 2, (int64_t[]){-1, LENGTH}),
             INTS(g, "axis2", 2));
    y = set_int(g, NODE(g, "ReduceSum", "sum", NODE(g, "Mul", "xm", x, m), INTS(g, "ax", 1)),
                "keepdims", 0);
    m = NODE(g, "Clip", "n",
             set_int(g, NODE(g, "ReduceSum", "ms", m, INTS(g, "ay", 1)), "keepdims", 0),
             number(g, "least", 1e-9f));
    check("a mean under a mask", g, NODE(g, "Div", "mean", y, m), NULL);
}

static void what_is_not_masked_is_refused(void **state)
{
    uint32_t x, y;
    struct graph *g = start(&x);

    (void)state;
    check("attention without a mask", g, NODE(g, "MatMul", "y", softmax(g, scores(g, x)), x),
          "gives weight to places that nothing masks");

    g = start(&x);
    check("a mask that is not far enough", g, NODE(g, "MatMul", "y", masked(g, x, -1e4f), x),
          "nothing masks");

    g = start(&x);
    check("a mean", g, NODE(g, "ReduceMean", "y", x, INTS(g, "ax", 1)), "nothing masks");

    g = start(&x);
    check("a sum of what is not zero any more", g,
          NODE(g, "ReduceSum", "y", NODE(g, "Add", "b", x, number(g, "1", 1)), INTS(g, "ax", 1)),
          "nothing masks");

    g = start(&x); /* 0 times NaN */
    y = NODE(g, "MatMul", "y", masked(g, x, -FLT_MAX), NODE(g, "Log", "l", x));
    check("numbers that may be none behind the mask", g, y, "nothing masks");

    g = start(&x); /* so is the sine of an infinity */
    y = NODE(g, "Sin", "s", NODE(g, "Log", "l", NODE(g, "Abs", "a", x)));
    check("sines that may be none behind the mask", g,
          NODE(g, "MatMul", "y", masked(g, x, -FLT_MAX), y), "nothing masks");

    g = start(&x); /* 300 is 44 in eight bits */
    y = set_int(g, NODE(g, "Cast", "c", NODE(g, "Add", "a", x, number(g, "256", 256))), "to", 2);
    y = set_int(g, NODE(g, "Cast", "d", y), "to", 1);
    y = NODE(g, "Clip", "p", NODE(g, "Sub", "s", number(g, "256b", 256), y), number(g, "0", 0),
             number(g, "1", 1));
    check("numbers that do not fit their type", g, NODE(g, "ReduceSum", "y", y, INTS(g, "ax", 1)),
          "nothing masks");
}

/* Behind either end of a [3, 3] table is 0, behind both 1. */
static void what_lies_behind_two_ends_counts_too(void **state)
{
    static const uint32_t THREE[] = {3};
    uint32_t x, u, y;
    struct graph *g = start(&x);
    char why[PADS_WHY] = "";
    struct sh_err err = {0};
    bool harmless = true;

    (void)state;
    u = NODE(g, "Slice", "u", INTS(g, "table", 0, 0, 1), INTS(g, "from", 0), length_of(g, x));
    y = NODE(g, "Mul", "both", NODE(g, "Unsqueeze", "rows", u, INTS(g, "ax1", 1)),
             NODE(g, "Unsqueeze", "cols", u, INTS(g, "ax0", 0)));
    y = set_int(g, NODE(g, "Cast", "t", y), "to", 1);
    y = NODE(g, "Mul", "data", input(g, "s", 3, (int64_t[]){-1, 1, 1}), y);
    y = NODE(g, "ReduceSum", "y", y, INTS(g, "axes", 1, 2));
    assert_ok(graph_add_output(g, y, NULL));
    graph_settle(g, false);
    assert_ok_err(pads_check(g, 0, THREE, 1, &harmless, NULL, why, &err), &err);
    if (harmless || !strstr(why, "nothing masks"))
        fail_msg("%s, \"%s\"", harmless ? "harmless" : "not so", why);
    graph_free(g);
}

/* [N, h, L, d] seen as [N, h * L, d] and [N, L * h, d]: as many steps, in another order. */
static void steps_that_meet_others_are_refused(void **state)
{
    uint32_t x, p, a, b;
    struct graph *g = start(&x);

    (void)state;
    p = masked(g, x, -FLT_MAX); /* [N, L, L], whose columns behind the end are zeros */
    a = NODE(g, "Reshape", "p4", p, INTS(g, "s1", 0, 0, -1, 1));
    a = NODE(g, "Concat", "p2", a, a);
    a = NODE(g, "Reshape", "pl", set_int(g, a, "axis", 3), INTS(g, "s2", 0, 0, -1)); /* L * 2 */
    b = NODE(g, "Unsqueeze", "x1", x, INTS(g, "ax1", 1));
    b = NODE(g, "Concat", "x2", b, b);
    b = NODE(g, "Reshape", "xl", set_int(g, b, "axis", 1), INTS(g, "s3", 0, -1, WIDTH)); /* 2 * L */
    check("a product of steps in another order", g, NODE(g, "MatMul", "y", a, b), "MatMul node");
}

static void the_greatest_of_each_position_is_harmless(void **state)
{
    uint32_t x, y;
    struct graph *g = start(&x);

    (void)state;
    y = set_int(g, NODE(g, "ArgMax", "y", x), "axis", -1);
    g->values[y].dtype = SH_I64;
    check("classes of tokens", g, y, NULL);

    g = start(&x);
    y = set_int(g, NODE(g, "ArgMax", "y", x), "axis", 1);
    g->values[y].dtype = SH_I64;
    check("the greatest token", g, y, "sorts what lies along the axis");
}

static void what_depends_on_the_end_is_refused(void **state)
{
    uint32_t x, y;
    struct graph *g = start(&x);

    (void)state;
    y = set_int(g, NODE(g, "Gather", "last", x, index_of(g, "end", -1)), "axis", 1);
    check("the last token", g, y, "Gather node");

    g = start(&x);
    y = NODE(g, "Concat", "c", x, x);
    check("two of it", g, set_int(g, y, "axis", 1), "moves its end");

    g = start(&x);
    y = set_int(g, NODE(g, "CumSum", "c", x, index_of(g, "axis", 1)), "reverse", 1);
    check("a sum of what comes", g, y, "adds up from the end");

    g = start(&x); /* the length itself */
    y = set_int(g, NODE(g, "Cast", "lenf", length_of(g, x)), "to", 1);
    check("a quotient by the length", g, NODE(g, "Div", "y", x, y), "Div node");

    g = start(&x);
    y = NODE(g, "Softmax", "s", x);
    check("weights of positions", g, set_int(g, y, "axis", 1), "nothing masks");

    g = start(&x); /* rows and columns of scores made one axis */
    y = NODE(g, "Reshape", "flat", scores(g, x), INTS(g, "s1", 0, -1));
    check("a flattened table", g, y, "");
}

/* A bound within a bucket, of a constant that is folded for each size. */
static void what_changes_at_some_size_is_found(void **state)
{
    uint32_t x, y, flag;
    struct graph *g = start(&x);

    (void)state;
    flag = NODE(g, "Greater", "long", length_of(g, x), INTS(g, "bound", 11));
    y = NODE(g, "Where", "c", flag, number(g, "a", 1), number(g, "b", 2));
    check("another factor from 12 on", g, NODE(g, "Mul", "y", x, y), "Mul node");
}

static void a_bucket_at_which_the_model_does_not_work_is_named(void **state)
{
    static const uint32_t MORE[] = {16, 64};
    char why[PADS_WHY];
    struct sh_err err = {0};
    bool harmless;
    uint32_t x, y;
    struct graph *g = start(&x);

    (void)state;
    y = NODE(g, "Gather", "table", param(g, "w", 2, (int64_t[]){32, WIDTH}), positions(g, x));
    assert_ok(graph_add_output(g, NODE(g, "Add", "y", x, set_int(g, y, "axis", 0)), NULL));
    graph_settle(g, false);
    assert_fails(pads_check(g, 0, MORE, 2, &harmless, NULL, why, &err), SH_E_INVALID, &err,
                 "at length=64: ");
    graph_free(g);
}

/* Inputs "x", a table's rows, and "mask". */
static void the_input_that_masks_is_named(void **state)
{
    bool masks[3] = {false}, harmless = false;
    char why[PADS_WHY] = "";
    struct sh_err err = {0};
    uint32_t x, rows, y;
    struct graph *g = start(&x);

    (void)state;
    rows = input(g, "types", 2, (int64_t[]){-1, LENGTH});
    g->values[rows].dtype = SH_I64;
    y = NODE(g, "Gather", "table", param(g, "w", 2, (int64_t[]){2, WIDTH}), rows);
    y = NODE(g, "Add", "sum", x, set_int(g, y, "axis", 0));
    assert_ok(graph_add_output(g, NODE(g, "MatMul", "y", masked(g, y, -FLT_MAX), y), NULL));
    graph_settle(g, false);
    assert_ok_err(pads_check(g, 0, BUCKETS, SH_ARRAY_LEN(BUCKETS), &harmless, masks, why, &err),
                  &err);
    assert_true(harmless && !why[0]);
    assert_false(masks[0] || masks[1]);
    assert_true(masks[2]);
    graph_free(g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_stays_in_its_place_is_harmless),
        cmocka_unit_test(what_meets_under_a_mask_is_harmless),
        cmocka_unit_test(what_is_not_masked_is_refused),
        cmocka_unit_test(what_lies_behind_two_ends_counts_too),
        cmocka_unit_test(steps_that_meet_others_are_refused),
        cmocka_unit_test(the_greatest_of_each_position_is_harmless),
        cmocka_unit_test(the_input_that_masks_is_named),
        cmocka_unit_test(what_depends_on_the_end_is_refused),
        cmocka_unit_test(what_changes_at_some_size_is_found),
        cmocka_unit_test(a_bucket_at_which_the_model_does_not_work_is_named),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
