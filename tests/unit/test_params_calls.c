/* test_params_calls.c - Without it: what an exporter computed inside of a call would be trained in
 * place of the parameter, two views of one parameter as two, and a number that is the negative of
 * one by itself, or not at all. */
/* uses: libmodel.a libdevice.a */
/* link: -ldl -lprotobuf-c -lm */
#include "runtime/model/graph_int.h"
#include "tests/unit/param_file.h"

static const char *target;

static void say_inner(Onnx__GraphProto *g, const char *call)
{
    char args[64];

    (void)call;
    add_pair(&g->base, 16, META_SIGNATURE, "p_p: PARAMETER target='p'\n");
    say_from(g, "val_1", "['p', 'val_0']");
    snprintf(args, sizeof(args), "args = (%%x, %%p_p), kwargs = {%s})",
             strcmp(target, "add.Tensor") == 0 ? "alpha: 0.3" : "");
    say_call_of(g, "y", target, args);
}

/* val_1 of p: exp(p), 0.3 p, log(p), p transposed. */
static void what_a_call_computed_inside_is_no_parameter(void **state)
{
    static const struct {
        const char *target, *trains; /* NULL: it is refused */
    } CASES[] = {{"logaddexp.default", "p"},
                 {"add.Tensor", NULL},
                 {"logaddexp2.default", NULL},
                 {"linear.default", "val_1"},
                 {"prelu.default", "val_1"}};

    (void)state;
    for (size_t i = 0; i < SH_ARRAY_LEN(CASES); i++) {
        struct graph *g = new_graph(), *t = NULL;
        uint32_t x = input(g, "x", 2, (int64_t[]){-1, 9}),
                 v = learned(g, "val_1", 1, (int64_t[]){9});
        struct sh_err err = {0};

        for (int k = 0; k < 9; k++)
            ((float *)g->values[v].data)[k] += 1.25f; /* above 0 */
        target = CASES[i].target;
        g = edited(g, NODE(g, "Add", "y", x, v), say_inner);
        assert_int_equal(graph_at_batch(g, 2, true, &t, &err),
                         CASES[i].trains ? SH_OK : SH_E_UNSUPPORTED);
        assert_true(CASES[i].trains || strstr(err.msg, "val_1"));
        assert_true(!CASES[i].trains || is_param(g, CASES[i].trains));
        graph_free(t);
        graph_free(g);
    }
}

static void say_negative(Onnx__GraphProto *g, const char *call)
{
    (void)call;
    add_pair(&g->base, 16, META_SIGNATURE, "p_t: PARAMETER target='t'\n");
    say_from(g, "neg", "['t']");
    say_call_of(g, "mul", "mul.Tensor", "args = (%x, %neg), kwargs = {})");
    say_call_of(g, "mul_1", "mul.Tensor", "args = (%mul, -0.7), kwargs = {})");
}

/* exp(-t x) -0.7, where t is 0.7. */
static void a_number_of_the_code_is_not_what_was_computed_of_a_parameter(void **state)
{
    static const char *const OWN = "val_neg@mul_1:1";
    struct graph *g = new_graph();
    uint32_t x = input(g, "x", 2, (int64_t[]){-1, 4}), neg = number(g, "neg", -0.7f);

    (void)state;
    x = NODE(g, "Mul", "mul", x, neg);
    g = edited(g, NODE(g, "Mul", "mul_1", x, neg), say_negative);
    assert_string_equal(input_of(g, "mul", 1), "neg");
    assert_string_equal(input_of(g, "mul_1", 1), OWN);
    assert_true(is_param(g, "t"));
    assert_false(is_param(g, OWN));
    graph_free(g);
}

static const char *signature;

static void say_views(Onnx__GraphProto *g, const char *call)
{
    (void)call;
    add_pair(&g->base, 16, META_SIGNATURE, signature);
    say_from(g, "unsqueeze", "['gain', 'val_0']");
    say_call_of(g, "mul", "mul.Tensor", "args = (%x, %unsqueeze), kwargs = {})");
    say_call_of(g, "mul_1", "mul.Tensor", "args = (%mul, %view), kwargs = {})");
    say_call_of(g, "mul_2", "mul.Tensor", "args = (%mul_1, %ones), kwargs = {})");
}

/* gain[None] and gain.view(1, 4), of which the exporter kept one. Where another parameter is
 * missing, or has the same numbers, the second may be of that; one of a layer of PyTorch is not
 * viewed. Ones of the code are not a view of anything. */
static void views_of_one_parameter_are_trained_as_one(void **state)
{
    static const struct {
        const char *signature;
        bool apart;
    } CASES[] = {{"p_gain: PARAMETER target='gain'\n", false},
                 {"p_gain: PARAMETER target='gain'\np_o: PARAMETER target='other'\n", true},
                 {"p_gain: PARAMETER target='gain'\np_o: PARAMETER target='own'\n", true},
                 {"p_gain: PARAMETER target='gain'\np_o: PARAMETER target='fc.weight'\n", false},
                 {"p_gain: PARAMETER target='gain'\np_o: PARAMETER target='big'\n", false}};

    (void)state;
    for (size_t i = 0; i < SH_ARRAY_LEN(CASES); i++) {
        struct graph *g = new_graph();
        uint32_t x = input(g, "x", 2, (int64_t[]){-1, 4}),
                 gain = param(g, "unsqueeze", 2, (int64_t[]){1, 4});

        for (int k = 0; k < 4; k++)
            ((float *)g->values[gain].data)[k] = 1;
        x = NODE(g, "Mul", "mul", x, gain);
        x = NODE(g, "Mul", "mul_1", x, gain);
        x = NODE(g, "Mul", "mul_2", x, gain);
        x = NODE(g, "Mul", "a", x, uniform(g, "own", 4, 1));
        x = NODE(g, "Mul", "b", x, uniform(g, "fc.weight", 4, 1));
        x = NODE(g, "Mul", "c", x, uniform(g, "big", 1, 1));
        signature = CASES[i].signature;
        g = edited(g, x, say_views);
        assert_string_equal(input_of(g, "mul", 1), "unsqueeze");
        assert_string_equal(input_of(g, "mul_1", 1),
                            CASES[i].apart ? "unsqueeze@mul_1:1" : "unsqueeze");
        assert_string_equal(input_of(g, "mul_2", 1), "unsqueeze@mul_2:1");
        graph_free(g);
    }
}

static void scope(Onnx__GraphProto *g, const char *call)
{
    (void)call;
    free(g->node[0]->name);
    g->node[0]->name = strdup("/Mul");
}

/* -t beside t, which a module may call as it likes; where two may be meant, or none is there, it
 * learns by itself, also where something is divided by it. */
static void the_negative_of_a_number_is_computed_of_it(void **state)
{
    static const struct {
        const char *name, *op;
        float x, other;
        uint32_t guessed;
    } CASES[] = {
        {"t", "Mul", 0.5f, 3, 1},       {"gamma", "Mul", 0.7f, 3, 1},
        {"mean", "Exp", 0.7132f, 3, 0}, {"t", "Mul", 0.5f, 0.5f, 0},
        {"gamma", "Div", 0.25f, 3, 1},  {"gamma", "Mul", 1.5f, 0.5f, 1}}; /* and no 0.5 - 2 */

    (void)state;
    for (size_t i = 0; i < SH_ARRAY_LEN(CASES); i++) {
        const bool computed = CASES[i].other != CASES[i].x;
        struct graph *g = new_graph();
        uint32_t x = input(g, "x", 2, (int64_t[]){-1, 4}), t = number(g, CASES[i].name, CASES[i].x),
                 neg = number(g, "onnx::Mul_13", -CASES[i].x);

        x = NODE(g, "Mul", "a", x, t);
        x = NODE(g, "Mul", "b", x, number(g, "other", CASES[i].other));
        x = strcmp(CASES[i].op, "Exp") == 0 ? NODE(g, "Mul", "y", x, NODE(g, "Exp", "e", neg))
                                            : NODE(g, CASES[i].op, "y", x, neg);
        g = edited(g, x, scope);
        assert_int_equal(g->n_guessed, CASES[i].guessed);
        assert_int_equal(g->values[graph_find(g, "onnx::Mul_13")].data == NULL, computed);
        assert_true(computed || is_param(g, "onnx::Mul_13"));
        graph_free(g);
    }
}

/* A number with a name of the module learns behind whatever is a function of it. */
static void a_number_learns_behind_a_function(void **state)
{
    static const char *const OPS[] = {"Atan", "Clip", "Cos",  "Elu", "Erf",       "HardSigmoid",
                                      "Log",  "Relu", "Sin",  "Tan", "LeakyRelu", "Reciprocal",
                                      "Exp",  "Sqrt", "Tanh", NULL};

    (void)state;
    for (size_t i = 0; i < SH_ARRAY_LEN(OPS); i++) {
        struct graph *g = new_graph();
        uint32_t x = input(g, "x", 2, (int64_t[]){-1, 4}), t = number(g, "t", 0.6593f);

        x = OPS[i] ? NODE(g, "Mul", "y", x, NODE(g, OPS[i], "f", t))
                   : NODE(g, "Where", "y", NODE(g, "Greater", "m", x, number(g, "zero", 0)), x, t);
        g = edited(g, x, scope);
        assert_true(is_param(g, "t"));
        graph_free(g);
    }
}

/* Single numbers of the module, of which those that differ and are round look like a table of the
 * code: they stay as they are, and that is told. */
static void a_number_that_is_held_is_told(void **state)
{
    struct graph *g = new_graph();
    uint32_t x = input(g, "x", 2, (int64_t[]){-1, 4});

    (void)state;
    x = NODE(g, "Mul", "a", x, number(g, "onnx::Mul_3", -0.7f));
    x = NODE(g, "Div", "b", x, number(g, "onnx::Div_4", 0.3f));
    g = edited(g, NODE(g, "Pow", "y", x, number(g, "onnx::Pow_5", 1.2345678f)), scope);
    assert_true(g->values[graph_find(g, "onnx::Mul_3")].is_held);
    assert_true(g->values[graph_find(g, "onnx::Div_4")].is_held);
    assert_true(is_param(g, "onnx::Pow_5"));
    graph_free(g);
}

static const char *bound_call;

static void say_bounds(Onnx__GraphProto *g, const char *call)
{
    (void)call;
    add_pair(&g->base, 16, META_SIGNATURE, "p_t: PARAMETER target='t'\n");
    say_call_of(g, "y", "clamp.Tensor", bound_call);
}

/* Of clamp(x, -t, t) the exporter made a Clip with numbers of its own. */
static void a_bound_that_is_a_parameter_learns(void **state)
{
    static const struct {
        const char *call;
        bool learns, refused;
    } CASES[] = {{"args = (%x, %neg, %p_t), kwargs = {})", true, false},
                 {"args = (%x, -0.7, %p_t), kwargs = {})", true, false},
                 {"args = (%x, -0.7, 0.7), kwargs = {})", false, false},
                 {"args = (%x, %neg, %exp), kwargs = {})", false, true},
                 {"args = (%x, %c_lifted_0, %c_lifted_1), kwargs = {})", false, false}};

    (void)state;
    for (size_t i = 0; i < SH_ARRAY_LEN(CASES); i++) {
        struct graph *g = new_graph(), *t = NULL;
        uint32_t x = input(g, "x", 2, (int64_t[]){-1, 4});
        struct sh_err err = {0};

        x = NODE(g, "MatMul", "m", x, learned(g, "fc.weight", 2, (int64_t[]){4, 4}));
        x = NODE(g, "Clip", "y", x, number(g, "x_min", -0.7f), number(g, "x_max", 0.7f));
        bound_call = CASES[i].call;
        g = edited(g, x, say_bounds);
        assert_int_equal(graph_find(g, "t") != GRAPH_NONE && is_param(g, "t"), CASES[i].learns);
        assert_int_equal(graph_find(g, "x_min@negated") != GRAPH_NONE, i == 0);
        assert_int_equal(graph_at_batch(g, 2, true, &t, &err),
                         CASES[i].refused ? SH_E_UNSUPPORTED : SH_OK);
        graph_free(t);
        graph_free(g);
    }
}

/* In an old file the number of a bound is of the module, also where a node gives it its name. */
static void a_bound_of_an_old_file_learns(void **state)
{
    for (int by_name = 0; by_name < 2; by_name++) {
        struct graph *g = new_graph();
        uint32_t x = input(g, "x", 2, (int64_t[]){-1, 4}), t = number(g, "limit", 0.7132f);

        (void)state;
        x = NODE(g, "Mul", "m", x, t);
        x = NODE(g, "Clip", "y", x, number(g, "onnx::Clip_1", -0.3f),
                 by_name ? NODE(g, "Identity", "onnx::Clip_2", t) : t);
        g = edited(g, x, scope);
        assert_true(is_param(g, "limit") && is_param(g, "onnx::Clip_1"));
        assert_string_equal(input_of(g, "y", 0), "y@low");
        assert_string_equal(input_of(g, "y", 1), by_name ? "limit@y:1" : "limit");
        assert_int_equal(g->n_untied, by_name); /* two of equal numbers, and that is told */
        graph_free(g);
    }
}

static void say_blank(Onnx__GraphProto *g, const char *call)
{
    (void)call;
    add_pair(&g->base, 16, META_SIGNATURE, "p_pos: PARAMETER target='pos'\n");
    say_from(g, "slice_1", "['pos', 'val_0', 'val_1']");
    say_from(g, "slice_2", "['pos', 'val_0', 'val_2']");
}

/* Two windows of places that begin as zeros: which rows they share nothing says, so they are held,
 * and whoever pushes the file is told by their names. */
static void windows_of_zeros_are_told(void **state)
{
    struct graph *g = new_graph();
    uint32_t x = input(g, "x", 3, (int64_t[]){-1, 6, 5}),
             z = input(g, "z", 3, (int64_t[]){-1, 4, 5}),
             a = param(g, "slice_1", 2, (int64_t[]){6, 5}),
             b = param(g, "slice_2", 2, (int64_t[]){4, 5});

    (void)state;
    memset(g->values[a].data, 0, g->values[a].bytes);
    memset(g->values[b].data, 0, g->values[b].bytes);
    x = NODE(g, "ReduceSum", "s", NODE(g, "Add", "m", x, a));
    x = NODE(g, "Mul", "y", x, NODE(g, "ReduceSum", "r", NODE(g, "Add", "n", z, b)));
    g = edited(g, x, say_blank);
    assert_true(g->values[graph_find(g, "slice_1")].is_held && !is_param(g, "slice_1"));
    assert_true(g->values[graph_find(g, "slice_2")].is_held && !is_param(g, "slice_2"));
    graph_free(g);
}

static void say_parts(Onnx__GraphProto *g, const char *call)
{
    (void)call;
    add_pair(&g->base, 16, META_SIGNATURE, signature);
    say_from(g, "slice_1", "['pos', 'val_0', 'val_1']");
    say_from(g, "slice_2", "['pos', 'val_0', 'val_2']");
}

/* The numbers of `v` become those of `of` from row `at` on. */
static void fill_from(struct graph *g, uint32_t v, uint32_t of, int64_t at)
{
    const int64_t columns = g->values[v].dims[1];

    memcpy(g->values[v].data, (float *)g->values[of].data + at * columns, g->values[v].bytes);
}

/* pos[2:8] and pos[3:7] are one; of pos[2:8] and pos[5:9] there is a table. */
static void parts_of_one_parameter_are_trained_as_one(void **state)
{
    static const struct {
        int64_t at, rows;
        const char *from, *signature;
    } CASES[] = {{1, 4, "slice_1", "p_pos: PARAMETER target='pos'\n"},
                 {3, 4, "slice_1@union", "p_pos: PARAMETER target='pos'\n"},
                 {1, 4, NULL, "b_pos: BUFFER target='pos'\n"}};

    (void)state;
    for (size_t i = 0; i < SH_ARRAY_LEN(CASES); i++) {
        struct graph *g = new_graph(), *t = NULL;
        uint32_t x = input(g, "x", 3, (int64_t[]){-1, 6, 5}),
                 z = input(g, "z", 3, (int64_t[]){-1, CASES[i].rows, 5}),
                 pos = learned(g, "learned", 2, (int64_t[]){9, 5}),
                 a = param(g, "slice_1", 2, (int64_t[]){6, 5}),
                 b = param(g, "slice_2", 2, (int64_t[]){CASES[i].rows, 5});
        struct sh_err err = {0};

        fill_from(g, a, pos, 2);
        fill_from(g, b, pos, 2 + CASES[i].at);
        x = NODE(g, "ReduceSum", "s", NODE(g, "Add", "m", x, a));
        z = NODE(g, "ReduceSum", "r", NODE(g, "Add", "n", z, b));
        signature = CASES[i].signature;
        g = edited(g, NODE(g, "Add", "y", x, z), say_parts);
        if (CASES[i].from)
            assert_string_equal(input_of(g, "slice_2", 0), CASES[i].from);
        assert_int_equal(g->values[graph_find(g, "slice_2")].data != NULL, i == 2);
        assert_int_equal(graph_at_batch(g, 2, true, &t, &err), SH_OK);
        graph_free(t);
        graph_free(g);
    }
}

static void say_windows(Onnx__GraphProto *g, const char *call)
{
    (void)call;
    add_pair(&g->base, 16, META_SIGNATURE, signature);
    say_from(g, "index", "['near', 'table', 'val_1']");
    say_from(g, "index_1", "['far', 'table', 'val_2']");
}

/* A table of distances from -7 to 7, as two windows take it: of 6 and of 5 places, the second
 * maybe from another distance on. */
static struct graph *windows_of_a_table(int64_t shift)
{
    struct graph *g = new_graph();
    const uint32_t x = input(g, "x", 3, (int64_t[]){-1, 6, 6}),
                   z = input(g, "z", 3, (int64_t[]){-1, 5, 5}),
                   all = learned(g, "all", 1, (int64_t[]){15}),
                   near = param(g, "index", 2, (int64_t[]){6, 6}),
                   far = param(g, "index_1", 2, (int64_t[]){5, 5});
    const float *table = g->values[all].data;

    for (int64_t i = 0; i < 36; i++)
        ((float *)g->values[near].data)[i] = table[7 + i / 6 - i % 6];
    for (int64_t i = 0; i < 25; i++)
        ((float *)g->values[far].data)[i] = table[7 + shift + i / 5 - i % 5];
    return edited(g,
                  NODE(g, "Add", "y", NODE(g, "ReduceSum", "s", NODE(g, "Add", "m", x, near)),
                       NODE(g, "ReduceSum", "r", NODE(g, "Add", "n", z, far))),
                  say_windows);
}

/* Windows of two sizes share a table. Where neither has all of the other's, there is one of which
 * both are a part. What is no parameter is left alone. */
static void windows_of_one_table_are_trained_as_one(void **state)
{
    static const struct {
        int64_t shift;
        const char *signature, *table;
    } CASES[] = {{0, "p_table: PARAMETER target='table'\n", "index@rows"},
                 {3, "p_table: PARAMETER target='table'\n", "index@rows@union"},
                 {0, "p_table: PARAMETER target='other'\n", NULL}};

    (void)state;
    for (size_t i = 0; i < SH_ARRAY_LEN(CASES); i++) {
        struct graph *g, *t = NULL;
        struct sh_err err = {0};

        signature = CASES[i].signature;
        g = windows_of_a_table(CASES[i].shift);
        assert_int_equal(graph_at_batch(g, 2, true, &t, &err), SH_OK);
        graph_free(t);
        if (CASES[i].table) {
            assert_string_equal(input_of(g, "index_1@rows", 0), CASES[i].table);
            assert_true(is_param(g, CASES[i].table));
        }
        graph_free(g);
    }
}

static const char *name_of, *list_of;

static void say_list(Onnx__GraphProto *g, const char *call)
{
    (void)call;
    add_pair(&g->base, 16, META_SIGNATURE, "p_p: PARAMETER target='p'\n");
    say_from(g, name_of, list_of);
}

/* 1 + p goes as p does; p + p, and p[1] - p[0], do not. What was repeated once is the parameter,
 * and so is the weight of lerp(). */
static void what_was_computed_of_a_parameter_alone_is_refused(void **state)
{
    static const struct {
        const char *name, *list;
        bool refused;
    } CASES[] = {{"add", "['p', 'val_1']", false},
                 {"add", "['p']", true},
                 {"sub", "['p', 't']", true},
                 {"sub", "['p', 'select', 'select_1', 'val_1', 'val_2']", true},
                 {"weight_0", "['p']", false},
                 {"weight_0", "['p', 'batch_size']", true},
                 {"repeat", "['p', 'val_1']", false}};

    (void)state;
    for (size_t i = 0; i < SH_ARRAY_LEN(CASES); i++) {
        struct graph *g = new_graph(), *t = NULL;
        uint32_t x = input(g, "x", 2, (int64_t[]){-1, 3}), v;
        struct sh_err err = {0};

        name_of = CASES[i].name;
        list_of = CASES[i].list;
        v = learned(g, name_of, 2, (int64_t[]){1, 3});
        g = edited(g, NODE(g, "Mul", "y", x, v), say_list);
        assert_int_equal(graph_at_batch(g, 2, true, &t, &err),
                         CASES[i].refused ? SH_E_UNSUPPORTED : SH_OK);
        assert_true(CASES[i].refused || is_param(g, name_of));
        graph_free(t);
        graph_free(g);
    }
}

/* x @ p / p.norm() */
static void the_length_of_a_parameter_is_computed_again(void **state)
{
    (void)state;
    for (int k = 0; k < 2; k++) {
        struct graph *g = new_graph(), *t = NULL;
        uint32_t x = input(g, "x", 2, (int64_t[]){-1, 6}), p = learned(g, "p", 1, (int64_t[]){6}),
                 n;
        struct sh_err err = {0};
        float sum = 0;

        for (int i = 0; i < 6; i++)
            sum += ((float *)g->values[p].data)[i] * ((float *)g->values[p].data)[i];
        n = number(g, "linalg_vector_norm", sqrtf(sum) + 0.01f * (float)k);
        name_of = "linalg_vector_norm";
        list_of = "['p']";
        g = edited(g, NODE(g, "Div", "y", NODE(g, "MatMul", "m", x, p), n), say_list);
        assert_int_equal(graph_find(g, "linalg_vector_norm@length") != GRAPH_NONE, !k);
        assert_int_equal(graph_at_batch(g, 2, true, &t, &err), k ? SH_E_UNSUPPORTED : SH_OK);
        assert_true(is_param(g, "p"));
        graph_free(t);
        graph_free(g);
    }
}

/* |x - c|^2 = x^2 - 2 x c + c^2 of a code book: what the squares of its rows, or of its columns,
 * sum up to is computed again; other numbers are refused. */
static void sums_of_squares_are_computed_again(void **state)
{
    (void)state;
    for (int k = 0; k < 3; k++) {
        struct graph *g = new_graph(), *t = NULL;
        uint32_t x = input(g, "x", 2, (int64_t[]){-1, 6}),
                 p = learned(g, "p", 2, (int64_t[]){6, 6}),
                 sum = learned(g, "sum_2", 1, (int64_t[]){6});
        struct sh_err err = {0};

        for (int i = 0; i < 36; i++) {
            const float one = ((float *)g->values[p].data)[i];
            float *to = &((float *)g->values[sum].data)[k == 1 ? i % 6 : i / 6];

            *to = (i < 6 && k == 1) || (i % 6 == 0 && k != 1) ? one * one : *to + one * one;
        }
        if (k == 2)
            ((float *)g->values[sum].data)[3] += 0.01f;
        name_of = "sum_2";
        list_of = "['p', 'pow_2', 'val_8', 'val_9']";
        g = edited(g, NODE(g, "Add", "y", NODE(g, "MatMul", "m", x, p), sum), say_list);
        assert_int_equal(graph_at_batch(g, 2, true, &t, &err), k == 2 ? SH_E_UNSUPPORTED : SH_OK);
        assert_int_equal(graph_find(g, "sum_2@squares") != GRAPH_NONE, k < 2);
        assert_true(is_param(g, "p"));
        graph_free(t);
        graph_free(g);
    }
}

static void say_turned(Onnx__GraphProto *g, const char *call)
{
    (void)call;
    add_pair(&g->base, 16, META_SIGNATURE,
             "p_w: PARAMETER target='net.weight'\np_g: PARAMETER target='gain'\n");
    say_from(g, "val_26", "['net.weight', 'val_2']");
}

/* Who freezes "net.*" means a weight that the file has turned, under another name. */
static void what_was_turned_is_known_by_the_name_in_its_module(void **state)
{
    const int64_t row = 3;
    struct graph *g = new_graph(), *t = NULL;
    uint32_t x = input(g, "x", 2, (int64_t[]){-1, 3});

    (void)state;
    x = NODE(g, "MatMul", "m", x, learned(g, "val_26", 2, (int64_t[]){3, 3}));
    g = edited(g, NODE(g, "Mul", "y", x, learned(g, "gain", 1, &row)), say_turned);
    assert_string_equal(g->values[graph_find(g, "val_26")].of, "net.weight");
    assert_null(g->values[graph_find(g, "gain")].of);
    assert_ok(graph_at_batch(g, 2, true, &t, NULL));
    assert_string_equal(t->values[graph_find(t, "val_26")].of, "net.weight");
    graph_free(t);
    graph_free(g);
}

static void say_centres(Onnx__GraphProto *g, const char *call)
{
    (void)call;
    add_pair(&g->base, 16, META_SIGNATURE,
             "p_c: PARAMETER target='centres'\np_p: PARAMETER target='places'\n");
}

/* Parameters may be without a gradient, which no file says. What begins as a line is held, and
 * told, as it may learn; tables of sines are positions. */
static void a_parameter_that_is_a_line_is_held_and_told(void **state)
{
    struct graph *g = new_graph();
    uint32_t x = input(g, "x", 3, (int64_t[]){-1, 12, 8}),
             c = param(g, "centres", 1, (int64_t[]){8}),
             p = param(g, "places", 2, (int64_t[]){12, 8});

    (void)state;
    for (int i = 0; i < 8; i++)
        ((float *)g->values[c].data)[i] = -2 + (float)i * 0.571428571f;
    for (int i = 0; i < 96; i++) {
        const float angle = (float)(i / 8) / powf(100, (float)(i % 8 / 2) / 4);

        ((float *)g->values[p].data)[i] = i % 2 ? cosf(angle) : sinf(angle);
    }
    g = edited(g, NODE(g, "Sub", "y", NODE(g, "Add", "m", x, p), c), say_centres);
    assert_true(g->values[graph_find(g, "centres")].is_held && !is_param(g, "centres"));
    assert_false(g->values[graph_find(g, "places")].is_held || is_param(g, "places"));
    graph_free(g);
}

static void say_uses(Onnx__GraphProto *g, const char *call)
{
    (void)call;
    add_pair(&g->base, 16, META_SIGNATURE,
             "p_a: PARAMETER target='a'\np_b: PARAMETER target='b'\np_c: PARAMETER target='c'\n");
    say_call(g, "m0", "args = (%x, %p_a), kwargs = {})");
    say_call(g, "m1", "args = (%m0, %p_b), kwargs = {})");
    say_call(g, "m2", "args = (%m1, %p_a), kwargs = {})");
}

/* A number that is used twice, and another that began as the same and was merged with it, as the
 * calls say. A third that nobody uses is not in the file. */
static void uses_of_one_number_are_one_and_of_another_two(void **state)
{
    static const char *const PRODUCTS[] = {"m0", "m1", "m2"};
    struct graph *g = new_graph();
    uint32_t x = input(g, "x", 2, (int64_t[]){-1, 3}), a = uniform(g, "a", 3, 0.3f);

    (void)state;
    for (size_t k = 0; k < SH_ARRAY_LEN(PRODUCTS); k++)
        x = NODE(g, "Mul", PRODUCTS[k], x, a);
    g = edited(g, x, say_uses);
    assert_string_equal(input_of(g, "m0", 1), "a");
    assert_string_equal(input_of(g, "m1", 1), "a@m1:1");
    assert_string_equal(input_of(g, "m2", 1), "a");
    graph_free(g);
}

/* One filter for three channels. */
static void what_was_expanded_in_blocks_is_one(void **state)
{
    struct graph *g = new_graph();
    uint32_t x = input(g, "x", 4, (int64_t[]){-1, 3, 5, 5}),
             w = learned(g, "expand", 4, (int64_t[]){3, 1, 3, 3});

    (void)state;
    for (int k = 9; k < 27; k++)
        ((float *)g->values[w].data)[k] = ((float *)g->values[w].data)[k - 9];
    name_of = "expand";
    list_of = "['p', 'val_0']";
    g = edited(g, NODE(g, "Mul", "y", x, NODE(g, "ReduceSum", "s", w)), say_list);
    assert_true(is_param(g, "p"));
    assert_int_equal(graph_elements(&g->values[graph_find(g, "p")]), 9);
    graph_free(g);
}

static const char *second_call;

static void say_merged(Onnx__GraphProto *g, const char *call)
{
    char args[64];

    (void)call;
    add_pair(&g->base, 16, META_SIGNATURE, signature);
    say_from(g, "exp", "['log_a']");
    say_call_of(g, "mul", "mul.Tensor", "args = (%x, %exp), kwargs = {})");
    snprintf(args, sizeof(args), "args = (%%mul, %%%s), kwargs = {})", second_call);
    say_call_of(g, "div", "div.Tensor", args);
}

/* exp(log_a), and beside it exp(log_b), exp(log_b) + 1e-9 or b, all of ones, of which the exporter
 * kept one. Where no parameter is missing, or the one that is was called as it is or is of a module
 * that was not run, it is exp(log_a) twice. */
static void what_was_computed_of_another_parameter_and_merged_is_refused(void **state)
{
    static const struct {
        const char *signature, *called, *missed; /* NULL: it is trained */
    } CASES[] = {
        {"p_log_a: PARAMETER target='log_a'\np_b: PARAMETER target='log_b'\n", "add", "log_b"},
        {"p_log_a: PARAMETER target='log_a'\np_b: PARAMETER target='log_b'\n", "exp_1", "log_b"},
        {"p_log_a: PARAMETER target='log_a'\np_b: PARAMETER target='b'\n", "p_b", "b"},
        {"p_log_a: PARAMETER target='log_a'\np_b: PARAMETER target='log_b'\n", "exp", NULL},
        {"p_log_a: PARAMETER target='log_a'\np_b: PARAMETER target='fc.weight'\n", "exp_1", NULL},
        {"p_log_a: PARAMETER target='log_a'\n", "exp_1", NULL}};

    (void)state;
    for (size_t i = 0; i < SH_ARRAY_LEN(CASES); i++) {
        struct graph *g = new_graph(), *t = NULL;
        uint32_t x = input(g, "x", 2, (int64_t[]){-1, 4}), ones = uniform(g, "exp", 4, 1);
        struct sh_err err = {0};

        signature = CASES[i].signature;
        second_call = CASES[i].called;
        x = NODE(g, "Mul", "mul", x, ones);
        g = edited(g, NODE(g, "Div", "div", x, ones), say_merged);
        assert_int_equal(graph_at_batch(g, 2, true, &t, &err),
                         CASES[i].missed ? SH_E_UNSUPPORTED : SH_OK);
        assert_true(!CASES[i].missed || strstr(err.msg, CASES[i].missed));
        graph_free(t);
        graph_free(g);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_a_call_computed_inside_is_no_parameter),
        cmocka_unit_test(a_number_of_the_code_is_not_what_was_computed_of_a_parameter),
        cmocka_unit_test(views_of_one_parameter_are_trained_as_one),
        cmocka_unit_test(the_negative_of_a_number_is_computed_of_it),
        cmocka_unit_test(a_number_learns_behind_a_function),
        cmocka_unit_test(windows_of_zeros_are_told),
        cmocka_unit_test(a_number_that_is_held_is_told),
        cmocka_unit_test(a_bound_that_is_a_parameter_learns),
        cmocka_unit_test(a_bound_of_an_old_file_learns),
        cmocka_unit_test(parts_of_one_parameter_are_trained_as_one),
        cmocka_unit_test(windows_of_one_table_are_trained_as_one),
        cmocka_unit_test(what_was_computed_of_a_parameter_alone_is_refused),
        cmocka_unit_test(the_length_of_a_parameter_is_computed_again),
        cmocka_unit_test(sums_of_squares_are_computed_again),
        cmocka_unit_test(a_parameter_that_is_a_line_is_held_and_told),
        cmocka_unit_test(what_was_computed_of_another_parameter_and_merged_is_refused),
        cmocka_unit_test(uses_of_one_number_are_one_and_of_another_two),
        cmocka_unit_test(what_was_turned_is_known_by_the_name_in_its_module),
        cmocka_unit_test(what_was_expanded_in_blocks_is_one),
    };

    return cmocka_run_group_tests(tests, make_folder, drop_folder);
}
