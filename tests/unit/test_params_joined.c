/* test_params_joined.c - Without it: parameters that an exporter put together would be trained as
 * more than they are, or not at all, without a word. */
/* uses: libmodel.a libdevice.a */
/* link: -ldl -lprotobuf-c -lm */
#include "tests/unit/param_file.h"

#define ROWS 6
#define COLUMNS 8

static const char *list_of;

static void say_joined(Onnx__GraphProto *g, const char *call)
{
    (void)call;
    add_pair(&g->base, 16, META_SIGNATURE,
             "p_p: PARAMETER target='p'\np_q: PARAMETER target='q'\nb_b: BUFFER target='b'\n");
    say_from(g, "view_1", list_of);
}

/* Each row begins as that of p, of which there are two, and ends as that of q. */
static void repeat_halves(struct graph *g, uint32_t v)
{
    float *x = g->values[v].data;

    for (int i = 0; i < ROWS; i++)
        for (int k = 0; k < COLUMNS; k++)
            x[i * COLUMNS + k] = k < COLUMNS / 2 ? x[i % 2 * COLUMNS + k] : x[i / 2 * COLUMNS + k];
}

/* A norm of it, which is no use by which a constant is known to learn. */
static struct graph *norm_of_a_constant(bool repeats)
{
    struct graph *g = new_graph();
    uint32_t x = input(g, "x", 2, (int64_t[]){-1, COLUMNS}),
             v = learned(g, "view_1", 2, (int64_t[]){ROWS, COLUMNS});

    if (repeats)
        repeat_halves(g, v);
    v = NODE(g, "LayerNormalization", "n", v, uniform(g, "norm.weight", COLUMNS, 0.5f));
    v = NODE(g, "Transpose", "t", v);
    return edited(g, NODE(g, "MatMul", "y", x, v), say_joined);
}

static void what_was_joined_learns_whoever_reads_it(void **state)
{
    static const struct {
        const char *list;
        bool repeats, refused, learns;
        const char *is;
    } CASES[] = {{"['p', 'q', 'cat', 'val_1']", false, false, true, "view_1"},
                 {"['p', 'q', 'cat', 'repeat', 'val_1']", true, false, true, "view_1@rows"},
                 {"['p', 'q', 'cat', 'mul']", false, true, false, "view_1"},
                 {"['p', 'detach', 'val_1']", false, false, false, "view_1"},
                 {"['b', 'cat', 'val_1']", false, false, false, "view_1"}};

    (void)state;
    for (size_t i = 0; i < SH_ARRAY_LEN(CASES); i++) {
        struct graph *g, *t = NULL;
        struct sh_err err = {0};

        list_of = CASES[i].list;
        g = norm_of_a_constant(CASES[i].repeats);
        if (!CASES[i].refused && is_param(g, CASES[i].is) != CASES[i].learns)
            fail_msg("%s", CASES[i].list);
        assert_int_equal(graph_at_batch(g, 2, true, &t, &err),
                         CASES[i].refused ? SH_E_UNSUPPORTED : SH_OK);
        graph_free(t);
        graph_free(g);
    }
}

static void say_detached(Onnx__GraphProto *g, const char *call)
{
    (void)call;
    add_pair(&g->base, 16, META_SIGNATURE, "p_p: PARAMETER target='p'\n");
    say_from(g, "t", list_of);
}

/* x p.detach().t(), where p learns, and as the only use of it. */
static void what_was_detached_does_not_learn(void **state)
{
    (void)state;
    for (int learns = 0; learns < 2; learns++)
        for (int held = 0; held < 2; held++) {
            struct graph *g = new_graph(), *t = NULL;
            uint32_t x = input(g, "x", 2, (int64_t[]){-1, COLUMNS});
            struct sh_err err = {0};

            list_of = held ? "['p', 'detach']" : "['p']";
            x = NODE(g, "MatMul", "m", x, matrix(g, "t", COLUMNS, ROWS, true));
            if (learns)
                x = NODE(g, "MatMul", "y", x, matrix(g, "p", ROWS, COLUMNS, false));
            g = edited(g, x, say_detached);
            if (graph_at_batch(g, 2, true, &t, &err) != (learns && held ? SH_E_UNSUPPORTED : SH_OK))
                fail_msg("%d %d: %s", learns, held, err.msg);
            if (held)
                assert_int_equal(is_param(g, "t"), false);
            graph_free(t);
            graph_free(g);
        }
}

static void say_elsewhere(Onnx__GraphProto *g, const char *call)
{
    say_joined(g, call);
    say_from(g, "t_1", "['p', 'q', 'cat', 't', 'val_1']");
}

/* The same two, put together in another order: each would learn by itself. */
static void what_was_joined_twice_is_refused(void **state)
{
    struct graph *g = new_graph(), *t = NULL;
    uint32_t x = input(g, "x", 2, (int64_t[]){-1, COLUMNS}),
             v = learned(g, "t_1", 2, (int64_t[]){COLUMNS, ROWS});
    struct sh_err err = {0};

    (void)state;
    list_of = "['p', 'q', 'cat', 'val_1']";
    ((float *)g->values[v].data)[0] = 0.7f;
    x = NODE(g, "MatMul", "m", x, v);
    x = NODE(g, "MatMul", "y", x, learned(g, "view_1", 2, (int64_t[]){ROWS, COLUMNS}));
    g = edited(g, x, say_elsewhere);
    assert_fails(graph_at_batch(g, 2, true, &t, &err), SH_E_UNSUPPORTED, &err,
                 "computed 2 constants from parameters");
    graph_free(t);
    graph_free(g);
}

static void say_two_bounds(Onnx__GraphProto *g, const char *call)
{
    (void)call;
    add_pair(&g->base, 16, META_SIGNATURE, list_of);
}

/* max(max(x, p), 0.1), of which the exporter made one with max(p, 0.1). */
static void a_bound_of_two_is_refused_where_a_parameter_is_lost(void **state)
{
    static const char *const SIGNATURES[] = {"p_p: PARAMETER target='p'\n",
                                             "p_w: PARAMETER target='fc.weight'\n"};

    (void)state;
    for (size_t i = 0; i < SH_ARRAY_LEN(SIGNATURES); i++) {
        struct graph *g = new_graph(), *t = NULL;
        uint32_t x = input(g, "x", 2, (int64_t[]){-1, 4});
        struct sh_err err = {0};

        x = NODE(g, "MatMul", "m", x, learned(g, "fc.weight", 2, (int64_t[]){4, 4}));
        x = NODE(g, "Max", "y", x, number(g, "m_max", 0.7f));
        list_of = SIGNATURES[i];
        g = edited(g, x, say_two_bounds);
        assert_int_equal(graph_at_batch(g, 2, true, &t, &err), i == 0 ? SH_E_UNSUPPORTED : SH_OK);
        graph_free(t);
        graph_free(g);
    }
}

/* lerp()'s weight, a sum and a slope, none of which has an axis. */
static void a_number_learns_wherever_a_gradient_passes(void **state)
{
    struct graph *g = new_graph();
    uint32_t x = input(g, "x", 2, (int64_t[]){-1, 6}), w;

    (void)state;
    w = NODE(g, "CastLike", "weight_0", number(g, "block.mix", 0.7f), x);
    x = NODE(g, "Mul", "tmp_1", w, x);
    w = NODE(g, "ReduceSum", "sum_1", number(g, "block.temperature", 0.7f));
    x = NODE(g, "Div", "div_1", x, w);
    x = NODE(g, "PRelu", "y", x, number(g, "block.slope", 0.2f));
    g = through_a_file(g, x);
    assert_true(is_param(g, "block.mix"));
    assert_true(is_param(g, "block.temperature"));
    assert_true(is_param(g, "block.slope"));
    graph_free(g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_was_joined_learns_whoever_reads_it),
        cmocka_unit_test(what_was_detached_does_not_learn),
        cmocka_unit_test(what_was_joined_twice_is_refused),
        cmocka_unit_test(a_bound_of_two_is_refused_where_a_parameter_is_lost),
        cmocka_unit_test(a_number_learns_wherever_a_gradient_passes),
    };

    return cmocka_run_group_tests(tests, make_folder, drop_folder);
}
