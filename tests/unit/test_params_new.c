/* test_params_new.c - Without it: a number of the code would learn because a parameter happens to
 * be equal, a parameter that the exporter left out would be missed by nobody, and what it wrote
 * several times would be trained as several. */
/* uses: libmodel.a libdevice.a */
/* link: -ldl -lprotobuf-c -lm */
#include "common/buf.h"
#include "runtime/model/onnx.h"
#include "runtime/model/onnx_file.h"
#include "tests/unit/param_file.h"

static void say_scale(Onnx__GraphProto *g, const char *call)
{
    (void)call;
    add_pair(&g->base, 16, META_SIGNATURE, "p_a_scale: PARAMETER target='a.scale'\n");
    say_call(g, "mul", "args = (%p_a_scale, %x), kwargs = {})");
    say_call(g, "mul_1", "args = (%mul, 0.1), kwargs = {})");
    say_call(g, "mul_2", "args = (%mul_1, %view), kwargs = {})"); /* another name for it, maybe */
    say_call(g, "mul_3", "args = (%mul_2, %p_a_scale), kwargs = {})");
}

static void a_number_of_the_code_is_not_the_parameter_that_equals_it(void **state)
{
    static const char *const OWN = "val_a.scale@mul_1:1";
    struct graph *g = new_graph();
    uint32_t x = input(g, "x", 2, (int64_t[]){-1, 4}), scale = number(g, "a.scale", 0.1f);

    (void)state;
    g->values[scale].is_param = true;
    x = NODE(g, "Mul", "mul", scale, x);
    x = NODE(g, "Mul", "mul_1", x, scale);
    x = NODE(g, "Mul", "mul_2", x, scale);
    x = NODE(g, "Mul", "mul_3", x, scale);
    g = edited(g, NODE(g, "Mul", "mul_4", x, scale), say_scale); /* of mul_4 nothing is said */
    assert_string_equal(input_of(g, "mul", 0), "a.scale");
    assert_string_equal(input_of(g, "mul_1", 1), OWN);
    assert_string_equal(input_of(g, "mul_2", 1), "a.scale");
    assert_string_equal(input_of(g, "mul_3", 1), "a.scale");
    assert_string_equal(input_of(g, "mul_4", 1), "a.scale");
    assert_true(is_param(g, "a.scale"));
    assert_false(is_param(g, OWN));
    assert_true(((float *)g->values[graph_find(g, OWN)].data)[0] == 0.1f);
    graph_free(g);
}

static const char *const CASES[][3] = {
    /* what the signature has, what the second layer was called with; is it refused? */
    {"p_0: PARAMETER target='fc.weight'\np_1: PARAMETER target='scale'\n", "%mul", "scale"},
    {"p_0: PARAMETER target='fc.weight'\np_1: PARAMETER target='scale'\n", "%dropout", NULL},
    {"p_0: PARAMETER target='fc.weight'\np_1: PARAMETER target='unused.weight'\n", "%mul", NULL},
    {"p_0: PARAMETER target='fc.weight'\nb_1: BUFFER target='scale'\n", "%mul", NULL},
    {"p_0: PARAMETER target='fc.weight'\n", "%mul", NULL},
    {"p_0: PARAMETER target='fc.weight'\np_1: PARAMETER target='scale'\n", "%first", NULL},
    /* a module without its layers was not run; one of which others are there was */
    {"p_0: PARAMETER target='fc.weight'\np_1: PARAMETER target='tower.head.probe'\n"
     "p_2: PARAMETER target='tower.in.weight'\n",
     "%mul", NULL},
    {"p_0: PARAMETER target='fc.weight'\np_1: PARAMETER target='fc.head.scale'\n"
     "p_2: PARAMETER target='fc.in.bias'\n",
     "%mul", "fc.head.scale"}};
static size_t which;

static void say_case(Onnx__GraphProto *g, const char *call)
{
    char args[64];

    (void)call;
    add_pair(&g->base, 16, META_SIGNATURE, CASES[which][0]);
    snprintf(args, sizeof(args), "args = (%s, %%p_fc_weight), kwargs = {})", CASES[which][1]);
    say_call(g, "second", args);
}

static void a_parameter_that_the_exporter_left_out_is_missed(void **state)
{
    (void)state;
    for (which = 0; which < SH_ARRAY_LEN(CASES); which++) {
        struct graph *g = new_graph(), *t = NULL;
        struct sh_err err = {0};
        uint32_t x = input(g, "x", 2, (int64_t[]){-1, 4}),
                 w = learned(g, "fc.weight", 2, (int64_t[]){4, 4});
        const char *name = CASES[which][2];

        x = NODE(g, "MatMul", "first", x, w);
        g = edited(g, NODE(g, "MatMul", "second", x, w), say_case);
        if (!name) {
            assert_ok_err(graph_at_batch(g, 2, true, &t, &err), &err);
        } else {
            assert_int_equal(graph_at_batch(g, 2, true, &t, &err), SH_E_UNSUPPORTED);
            assert_non_null(strstr(err.msg, name));
        }
        graph_free(t);
        assert_ok(graph_at_batch(g, 2, false, &t, NULL)); /* it serves */
        graph_free(t);
        graph_free(g);
    }
}

static void say_several(Onnx__GraphProto *g, const char *call)
{
    (void)call;
    add_pair(&g->base, 16, META_SIGNATURE,
             "p_0: PARAMETER target='r'\np_1: PARAMETER target='i'\np_2: PARAMETER target='mix'\n");
    say_from(g, "cat_4", "['cat', 'cat_1', 'i', 'neg', 'r']");
    say_from(g, "cat_5", "['cat_6', 'i', 'mul', 'neg_1', 'r']"); /* something else as well */
    say_from(g, "getitem_2", "['getitem', 'mix', 'softmax', 'val_1']");
    say_from(g, "getitem_3", "['getitem', 'mix', 'softmax', 'val_7']");
    say_from(g, "getitem_4", "['getitem_1', 'mix', 'softmax', 'val_8']"); /* half of its row */
}

/* Halves of a complex weight are there twice, one of them negated; weights of a mixture are taken
 * one by one. */
static void what_is_there_several_times_is_trained_once(void **state)
{
    static const float TAKEN[] = {0.25f, 0.75f, 0.5f};
    struct graph *g = new_graph(), *t = NULL;
    struct sh_err err = {0};
    uint32_t x = input(g, "x", 2, (int64_t[]){-1, 8}), index;

    (void)state;
    for (int m = 0; m < 2; m++) {
        const uint32_t w = learned(g, m ? "cat_5" : "cat_4", 2, (int64_t[]){8, 8});
        float *data = g->values[w].data;

        for (int k = 0; k < 64; k++) { /* [r, -i; i, r] */
            const int row = k / 8, column = k % 8;

            if (column >= 4)
                data[k] =
                    row < 4 ? -data[(row + 4) * 8 + column - 4] : data[(row - 4) * 8 + column - 4];
        }
        for (int row = 0; row < 4; row++)
            for (int k = 4; k < 8; k++)
                data[row * 8 + k] = -data[(row + 4) * 8 + k - 4];
        x = NODE(g, "MatMul", m ? "b" : "a", x, w);
    }
    for (int k = 0; k < 3; k++) {
        char name[16], out[8];

        snprintf(name, sizeof(name), "getitem_%d", k + 2);
        snprintf(out, sizeof(out), "m%d", k);
        x = NODE(g, "Mul", out, x, number(g, name, TAKEN[k]));
    }
    g = edited(g, x, say_several);
    assert_null(g->values[graph_find(g, "cat_4")].data);
    assert_true(is_param(g, "cat_4@numbers"));
    assert_false(is_param(g, "val_cat_4@signs"));
    assert_int_equal(graph_elements(&g->values[graph_find(g, "cat_4@numbers")]), 32);
    assert_non_null(g->values[graph_find(g, "cat_5")].data);
    assert_true(is_param(g, "mix@getitem_2"));
    index = graph_find(g, "mix@getitem_2");
    assert_true(fabsf(((float *)g->values[index].data)[1] - logf(0.75f)) < 1e-6f);
    assert_null(g->values[graph_find(g, "getitem_3")].data);
    assert_non_null(g->values[graph_find(g, "getitem_4")].data);
    assert_int_equal(graph_at_batch(g, 2, true, &t, &err), SH_E_UNSUPPORTED); /* cat_5, getitem_4 */
    graph_free(g);
}

static void say_rows(Onnx__GraphProto *g, const char *call)
{
    (void)call;
    add_pair(&g->base, 16, META_SIGNATURE,
             "p_0: PARAMETER target='alphas'\np_1: PARAMETER target='a'\np_2: PARAMETER "
             "target='b'\np_3: PARAMETER target='table'\n");
    say_from(g, "select_1", "['alphas', 'select', 'softmax', 'val_0']");
    say_from(g, "select_3", "['alphas', 'select_2', 'softmax', 'val_0', 'val_1']");
    say_from(g, "select_5", "['alphas', 'select_4', 'softmax', 'val_1']");
    say_from(g, "select_7", "['alphas', 'select_6', 'softmax', 'val_1', 'val_2']");
    say_from(g, "select_8", "['a', 'b', 'cat', 'softmax_1', 'val_3']");
    say_from(g, "select_9", "['a', 'b', 'cat', 'softmax_1', 'val_4']");
    say_from(g, "upsample_bilinear2d", "['table', 'val_5']");
}

/* Two rows of a table, and two parameters that were joined, all taken one by one; what was made
 * larger is another thing than what it was made of. */
static void rows_of_a_softmax_end_where_their_sum_is_1(void **state)
{
    static const struct {
        const char *name;
        float x;
    } TAKEN[] = {{"select_1", 0.3f}, {"select_3", 0.7f}, {"select_5", 0.6f},
                 {"select_7", 0.4f}, {"select_8", 0.1f}, {"select_9", 0.9f}};
    static const char *const ROWS[] = {"alphas@select_1", "alphas@select_5", "a@select_8"};

    (void)state;
    for (int k = 0; k < 2; k++) {
        struct graph *g = new_graph(), *t = NULL;
        struct sh_err err = {0};
        uint32_t x = input(g, "x", 2, (int64_t[]){-1, 8});

        for (size_t i = 0; i < SH_ARRAY_LEN(TAKEN); i++) {
            char out[8];

            snprintf(out, sizeof(out), "m%zu", i);
            x = NODE(g, "Mul", out, x, number(g, TAKEN[i].name, TAKEN[i].x));
        }
        if (k)
            x = NODE(g, "Add", "s", x, learned(g, "upsample_bilinear2d", 2, (int64_t[]){1, 8}));
        g = edited(g, x, say_rows);
        for (size_t i = 0; i < SH_ARRAY_LEN(ROWS); i++)
            assert_true(is_param(g, ROWS[i]) &&
                        graph_elements(&g->values[graph_find(g, ROWS[i])]) == 2);
        assert_int_equal(graph_at_batch(g, 2, true, &t, &err), k ? SH_E_UNSUPPORTED : SH_OK);
        assert_true(!k || strstr(err.msg, "upsample_bilinear2d"));
        graph_free(t);
        graph_free(g);
    }
}

static void say_frequency(Onnx__GraphProto *g, const char *call)
{
    (void)call;
    add_pair(&g->base, 16, META_SIGNATURE, "b_0: BUFFER target='inv_freq'\n");
    say_from(g, "view_1", "['inv_freq', 'val_2']");
}

/* One that is 1, as a parameter may be at first, and is used twice. */
static void what_a_buffer_became_stays_one_in_each_use(void **state)
{
    struct graph *g = new_graph();
    uint32_t x = input(g, "x", 2, (int64_t[]){-1, 4}),
             one = param(g, "view_1", 2, (int64_t[]){1, 1});

    (void)state;
    ((float *)g->values[one].data)[0] = 1;
    x = NODE(g, "Mul", "mul_2", NODE(g, "Mul", "mul_1", x, one), one);
    g = edited(g, x, say_frequency);
    assert_false(is_param(g, "view_1"));
    assert_true(graph_find(g, "view_1@mul_2:1") == GRAPH_NONE || !is_param(g, "view_1@mul_2:1"));
    graph_free(g);
}

static void say_leak(Onnx__GraphProto *g, const char *call)
{
    (void)call;
    add_pair(&g->base, 16, META_SIGNATURE, "p_0: PARAMETER target='leak'\n");
    say_from(g, "select", "['leak', 'sub', 'val_1']");
}

/* The number that it is subtracted from is not trained, however the result is called. */
static void what_is_left_of_a_leak_is_computed_of_it(void **state)
{
    struct graph *g = new_graph();
    uint32_t x = input(g, "x", 2, (int64_t[]){-1, 8});

    (void)state;
    x = NODE(g, "Mul", "a", x, number(g, "leak", 0.4f));
    g = edited(g, NODE(g, "Mul", "b", x, number(g, "select", 0.6f)), say_leak);
    assert_null(g->values[graph_find(g, "select")].data);
    assert_true(is_param(g, "leak"));
    assert_false(is_param(g, "val_select@shift"));
    graph_free(g);
}

static void say_expanded(Onnx__GraphProto *g, const char *call)
{
    (void)call;
    add_pair(&g->base, 16, META_SIGNATURE,
             "p_0: PARAMETER target='score'\np_1: PARAMETER target='gain'\n"
             "p_2: PARAMETER target='row'\n");
    say_from(g, "expand", "['score', 'val_1', 'val_2']");
    say_from(g, "expand_1", "['score', 'val_3']");
    say_from(g, "expand_2", "['gain', 'val_4']"); /* alone: it may have had these axes */
    say_from(g, "expand_3", "['row', 'val_5']");
}

/* One number that fills a row and a column; a row that is there itself and for each sample. */
static void what_was_expanded_is_trained_as_what_it_was(void **state)
{
    static const int64_t DIMS[4][2] = {{6, 1}, {1, 8}, {6, 8}, {6, 8}};
    struct graph *g = new_graph();
    uint32_t x = input(g, "x", 3, (int64_t[]){-1, 6, 8});

    (void)state;
    x = NODE(g, "Mul", "r", x, learned(g, "row", 1, (int64_t[]){8}));
    for (int i = 0; i < 4; i++) {
        char name[16] = "expand", out[8];
        uint32_t v;

        if (i)
            snprintf(name, sizeof(name), "expand_%d", i);
        v = learned(g, name, 2, DIMS[i]);
        for (int64_t k = 0; k < graph_elements(&g->values[v]) && i < 3; k++)
            ((float *)g->values[v].data)[k] = i < 2 ? 1 : 0.5f;
        for (int64_t k = 8; k < 48 && i == 3; k++)
            ((float *)g->values[v].data)[k] = ((float *)g->values[v].data)[k - 8];
        snprintf(out, sizeof(out), "m%d", i);
        x = NODE(g, "Add", out, x, v);
    }
    g = edited(g, x, say_expanded);
    assert_true(is_param(g, "score") && is_param(g, "row"));
    assert_int_equal(graph_elements(&g->values[graph_find(g, "score")]), 1);
    assert_null(g->values[graph_find(g, "expand")].data);
    assert_null(g->values[graph_find(g, "expand_1")].data);
    assert_non_null(g->values[graph_find(g, "expand_2")].data);
    assert_null(g->values[graph_find(g, "expand_3")].data);
    assert_int_equal(graph_find(g, "gain"), GRAPH_NONE);
    graph_free(g);
}

static void say_halves(Onnx__GraphProto *g, const char *made_by)
{
    char list[120];

    add_pair(&g->base, 16, META_SIGNATURE,
             "\n# inputs\np_weight: PARAMETER target='weight'\nx: USER_INPUT\n");
    snprintf(list, sizeof(list), "['val_0', 'val_14', '%s', 'weight']", made_by);
    say_from(g, "val_18", list);
}

/* The real part of a weight in frequencies: taken, not computed. */
static void a_part_of_a_complex_weight_is_trained(void **state)
{
    static const char *const MADE_BY[] = {"view_as_complex", "view_as_real", "sigmoid"};

    (void)state;
    for (int i = 0; i < 3; i++) {
        struct graph *g = new_graph(), *back;
        uint32_t x = input(g, "x", 2, (int64_t[]){-1, 12});
        uint32_t part = learned(g, "val_18", 2, (int64_t[]){5, 12});
        struct sh_err err = {0};
        char path[128];

        graph_free(through_a_file(g, NODE(g, "Mul", "y", x, part)));
        edit(say_halves, MADE_BY[i]);
        assert_ok_err(onnx_read(path_of("in.onnx", path, sizeof(path)), &back, &err), &err);
        assert_int_equal(back->values[graph_find(back, "val_18")].is_computed, i == 2);
        assert_true(i == 2 || is_param(back, "val_18"));
        graph_free(back);
    }
}

static void say_taken(Onnx__GraphProto *g, const char *call)
{
    (void)call;
    add_pair(&g->base, 16, META_SIGNATURE, "p_0: PARAMETER target='alpha'\n");
    say_from(g, "select", "['alpha', 'val_1']");
    say_call(g, "mul", "args = (%select, %getitem), kwargs = {})");
    say_call(g, "mul_1", "args = (%select_2, %getitem_1), kwargs = {})"); /* another number */
    say_call(g, "mul_2", "args = (%select, %mul_1), kwargs = {})");
    say_call(g, "mul_3", "args = (%select_2, %mul_2), kwargs = {})");
    say_call(g, "mul_4", "args = (%x,), kwargs = {})"); /* what it was called with is not said */
}

/* Elements of a vector that is zeros as it was made: equal, so that the exporter kept one. */
static void elements_that_were_merged_learn_each_by_itself(void **state)
{
    struct graph *g = new_graph();
    uint32_t x = input(g, "x", 2, (int64_t[]){-1, 4}), zero = number(g, "select", 0);

    (void)state;
    x = NODE(g, "Mul", "mul", zero, x);
    x = NODE(g, "Mul", "mul_1", zero, x);
    x = NODE(g, "Mul", "mul_2", zero, x);
    x = NODE(g, "Mul", "mul_3", zero, x);
    g = edited(g, NODE(g, "Mul", "mul_4", zero, x), say_taken);
    assert_string_equal(input_of(g, "mul", 0), "select");
    assert_string_equal(input_of(g, "mul_1", 0), "select@mul_1:0");
    assert_string_equal(input_of(g, "mul_2", 0), "select");
    assert_string_equal(input_of(g, "mul_3", 0), "select@mul_1:0");
    assert_string_equal(input_of(g, "mul_4", 0), "select");
    assert_true(is_param(g, "select") && is_param(g, "select@mul_1:0"));
    graph_free(g);
}

static void say_places(Onnx__GraphProto *g, const char *name)
{
    add_pair(&g->base, 16, META_SIGNATURE, "p_0: PARAMETER target='places.weight'\n");
    say_from(g, name, "['arange', 'places.weight', 'val_1']");
}

static int64_t padding_row(const struct graph *g)
{
    int64_t row = -1;

    for (uint32_t i = 0; i < g->n_nodes && row < 0; i++)
        assert_ok(graph_int(&g->nodes[i], GRAPH_PADDING, -1, &row, NULL));
    return row;
}

/* Rows of a table one of which stands for padding, which an exporter looked up. */
static void a_row_of_padding_that_was_looked_up_stays_zeros(void **state)
{
    static const char *const NAMES[] = {"embedding_1", "cat"}; /* joined, it may be a token */
    struct sh_err err = {0};
    char path[128];

    (void)state;
    for (int k = 0; k < 2; k++) {
        struct graph *g = new_graph();
        uint32_t x = input(g, "x", 3, (int64_t[]){-1, 6, 8}),
                 places = learned(g, NAMES[k], 3, (int64_t[]){1, 6, 8});
        struct graph *t = NULL;

        memset((float *)g->values[places].data + 16, 0, 8 * sizeof(float));
        graph_free(through_a_file(g, NODE(g, "Add", "y", x, places)));
        edit(say_places, NAMES[k]);
        assert_ok_err(onnx_read(path_of("in.onnx", path, sizeof(path)), &g, &err), &err);
        assert_true(is_param(g, k ? "cat" : "embedding_1@rows"));
        assert_int_equal(padding_row(g), k ? -1 : 2);
        assert_ok_err(graph_at_batch(g, 2, true, &t, &err), &err);
        assert_int_equal(padding_row(t),
                         k ? -1 : 2); /* though all rows are taken, in their order */
        graph_free(t);
        assert_ok_err(graph_at_batch(g, 2, false, &t, &err), &err);
        assert_int_equal(padding_row(t), -1);
        graph_free(t);
        graph_free(g);
    }
}

enum numbers { DRAWN, ABOVE, TRIANGLE, HOLE, ZEROS, LOGS };

static const struct computed {
    const char *name, *list, *param; /* what comes back; NULL: nothing */
    enum numbers numbers;
    bool refused, learns; /* learns: the constant itself */
} COMPUTED[] = {
    {"val_19", "['live', 'other.weight', 'val_1']", NULL, DRAWN, false, true}, /* its shape */
    {"val_19", "['other.weight', 'tanh', 'val_1']", NULL, DRAWN, true, false},
    {"abs_1", "['w']", "w", ABOVE, false, false},
    {"abs_1", "['w']", NULL, DRAWN, true, false}, /* no absolutes */
    {"abs_1", "['log', 'w']", NULL, ABOVE, true, false},
    {"abs_1", "['there']", "there", ABOVE, false, false}, /* with its signs */
    {"relu", "['val_2', 'view', 'w']", "w", TRIANGLE, false, false},
    {"log_softmax", "['w']", "w", LOGS, false, false},
    {"log_softmax", "['w']", NULL, DRAWN, true, false},
    {"tril", "['val_3', 'w']", "w", TRIANGLE, false, false},
    {"tril", "['val_3', 'w']", NULL, HOLE, true, false}, /* a number that is 0 by itself */
    {"mul_6", "['val_1', 'w', 'zeros_like']", NULL, ZEROS, false, false},
    {"mul_6", "['val_1', 'w', 'other.weight']", NULL, ZEROS, true, false}};

static void fill(float *x, enum numbers how)
{
    for (int i = 0; i < 16; i++) {
        const bool above = i % 4 > i / 4;

        if (how == ABOVE || how == TRIANGLE || how == HOLE)
            x[i] = fabsf(x[i]) + 0.01f;
        if (how == ZEROS || ((how == TRIANGLE || how == HOLE) && above) || (how == HOLE && i == 4))
            x[i] = 0;
    }
    for (int i = 0; i < 16 && how == LOGS; i += 4) {
        float sum = 0;

        for (int k = 0; k < 4; k++)
            sum += expf(x[i + k]);
        for (int k = 0; k < 4; k++)
            x[i + k] -= logf(sum);
    }
}

static void say_computed(Onnx__GraphProto *g, const char *call)
{
    (void)call;
    add_pair(&g->base, 16, META_SIGNATURE,
             "p_0: PARAMETER target='w'\np_1: PARAMETER target='other.weight'\n"
             "p_2: PARAMETER target='there'\n");
    say_from(g, COMPUTED[which].name, COMPUTED[which].list);
}

static void say_tril(Onnx__GraphProto *g, const char *call)
{
    (void)call;
    add_pair(&g->base, 16, META_SIGNATURE, "p_0: PARAMETER target='w'\n");
    say_from(g, "tril", "['w']");
}

static void a_vector_has_no_diagonal(void **state)
{
    struct graph *g = new_graph();
    uint32_t x = input(g, "x", 2, (int64_t[]){-1, 4}), v = learned(g, "tril", 1, (int64_t[]){4});

    (void)state;
    ((float *)g->values[v].data)[0] = 0;
    g = edited(g, NODE(g, "Add", "y", x, v), say_tril);
    assert_int_equal(graph_find(g, "w"), GRAPH_NONE);
    graph_free(g);
}

/* What comes back, what is lost, and what was never computed of a parameter. */
static void what_was_computed_comes_back_if_nothing_is_lost(void **state)
{
    (void)state;
    for (which = 0; which < SH_ARRAY_LEN(COMPUTED); which++) {
        const struct computed *c = &COMPUTED[which];
        struct graph *g = new_graph(), *t = NULL;
        struct sh_err err = {0};
        uint32_t x = input(g, "x", 3, (int64_t[]){-1, 4, 4}),
                 v = learned(g, c->name, 2, (int64_t[]){4, 4}),
                 there = learned(g, "there", 2, (int64_t[]){4, 4}), of;
        const float *data;

        fill(g->values[v].data, c->numbers);
        memcpy(g->values[there].data, g->values[v].data, 64);
        for (int i = 0; i < 16; i += 3)
            ((float *)g->values[there].data)[i] *= -1;
        x = NODE(g, "Mul", "live", x, there);
        g = edited(g, NODE(g, "Add", "y", x, v), say_computed);
        if (graph_at_batch(g, 2, true, &t, &err) != (c->refused ? SH_E_UNSUPPORTED : SH_OK))
            fail_msg("%zu, %s: %s", which, c->name, err.msg);
        graph_free(t);
        of = c->param ? graph_find(g, c->param) : GRAPH_NONE;
        if (c->param && (of == GRAPH_NONE || !g->values[of].is_param))
            fail_msg("%zu: there is no %s", which, c->param);
        v = graph_find(g, c->name);
        assert_int_equal(!g->values[v].data, c->param != NULL);
        if (!c->refused && g->values[v].is_param != c->learns)
            fail_msg("%zu: %s is %s parameter", which, c->name, c->learns ? "no" : "a");
        data = c->param ? g->values[of].data : NULL;
        assert_true(!data || strcmp(c->param, "there") != 0 || data[0] < 0);
        graph_free(g);
    }
}

static void say_buffers(Onnx__GraphProto *g, const char *call)
{
    (void)call;
    add_pair(&g->base, 16, META_SIGNATURE,
             "p_b: PARAMETER target='b'\nb_net_mean: BUFFER target='net.mean' persistent=True\n");
    say_call(g, "sub", "args = (%x, %b_net_mean), kwargs = {})");
    say_call(g, "add", "args = (%sub, %p_b), kwargs = {})");
    say_call(g, "sub_1", "args = (%add, %b_net_mean), kwargs = {})");
}

/* A mean of zeros and a bias of zeros are one in the file: the first does not learn. */
static void a_buffer_that_was_merged_with_a_parameter_stays_one(void **state)
{
    struct graph *g = new_graph();
    uint32_t x = input(g, "x", 2, (int64_t[]){-1, 4}), b = uniform(g, "b", 4, 0);

    (void)state;
    x = NODE(g, "Sub", "sub", x, b);
    x = NODE(g, "Add", "add", x, b);
    g = edited(g, NODE(g, "Sub", "sub_1", x, b), say_buffers);
    assert_string_equal(input_of(g, "sub", 1), "net.mean");
    assert_string_equal(input_of(g, "sub_1", 1), "net.mean");
    assert_string_equal(input_of(g, "add", 1), "b");
    assert_false(is_param(g, "net.mean"));
    assert_true(is_param(g, "b"));
    assert_int_equal(g->n_untied, 0);
    graph_free(g);
}

#define MANY 4000 /* inputs of a node, and arguments of its call */

static void say_many(Onnx__GraphProto *g, const char *call)
{
    Onnx__NodeProto *n = g->node[0];
    struct sh_buf text;

    (void)call;
    add_pair(&g->base, 16, META_SIGNATURE,
             "p_0: PARAMETER target='wide'\np_1: PARAMETER target='gone'\n");
    say_from(g, "tril", "['wide']");
    say_from(g, "select", "['wide']");
    n->input = realloc(n->input, MANY * sizeof(*n->input));
    for (; n->n_input < MANY; n->n_input++)
        n->input[n->n_input] = strdup("select");
    sh_buf_init(&text, (size_t)1 << 20);
    assert_ok(sh_buf_printf(&text, NULL, "%%sum : [num_users=1] = call_function(args = ("));
    for (int i = 0; i < MANY; i++)
        assert_ok(sh_buf_append(&text, "%a,", 3, NULL));
    add_meta(n, META_CALL, text.data);
    sh_buf_fini(&text);
}

/* Strangers write files: what one can make large is not looked at again for each other part of it,
 * which would take minutes here. */
static void what_a_file_has_much_of_is_looked_at_once(void **state)
{
    struct graph *g = new_graph();
    uint32_t x = input(g, "x", 2, (int64_t[]){-1, 1}), one = number(g, "select", 0.75f),
             wide = param(g, "tril", 2, (int64_t[]){1, 1 << 20});

    (void)state;
    memset(g->values[wide].data, 0, sizeof(float) << 20);
    ((float *)g->values[wide].data)[(1 << 20) - 1] = 0.37f;
    g->values[one].is_param = true;
    x = NODE(g, "Sum", "sum", x, one);
    g = edited(g, NODE(g, "Add", "y", x, wide), say_many);
    assert_non_null(g->values[graph_find(g, "tril")].data);
    assert_int_equal(g->n_untied, MANY - 2); /* each use for itself: the call says nothing */
    graph_free(g);
}

static void say_moved(Onnx__GraphProto *g, const char *call)
{
    (void)call;
    add_pair(&g->base, 16, META_SIGNATURE,
             "p_0: PARAMETER target='q'\np_1: PARAMETER target='g'\np_2: PARAMETER target='b'\n"
             "p_3: PARAMETER target='c'\n");
    say_from(g, "transpose", "['expand', 'q', 'unsqueeze', 'val_0']");
    say_from(g, "repeat", "['q', 'unsqueeze', 'val_0']");
    say_from(g, "view", "['g']");
    say_from(g, "view_1", "['g', 'unsqueeze_1']");
    say_from(g, "unsqueeze_2", "['g', 'tanh']");
    say_from(g, "getitem", "['b', 'split']"); /* two parts, both of ones */
    say_from(g, "getitem_1", "['b', 'split']");
    say_from(g, "view_2", "['c']");
    say_from(g, "view_3", "['c', 'mul']"); /* something else as well */
}

/* A constant with other axes and the numbers of `like`. */
static uint32_t moved(struct graph *g, const char *name, int rank, const int64_t *dims,
                      uint32_t like)
{
    const uint32_t v = learned(g, name, rank, dims);

    memcpy(g->values[v].data, g->values[like].data, g->values[v].bytes);
    return v;
}

/* Queries as [1, n, d] and as [n, 1, d], a gain as a row, as a column, and what hangs on it: each
 * is one parameter. */
static void what_is_there_in_several_orders_is_trained_once(void **state)
{
    struct graph *g = new_graph(), *t = NULL;
    struct sh_err err = {0};
    uint32_t x = input(g, "x", 3, (int64_t[]){-1, 4, 4}), q, v;
    float *data;

    (void)state;
    q = learned(g, "transpose", 3, (int64_t[]){4, 1, 4});
    x = NODE(g, "Add", "a", x,
             NODE(g, "Reshape", "a0", q, shape_of(g, "to0", 3, (int64_t[]){1, 4, 4})));
    x = NODE(g, "Add", "b", x, moved(g, "repeat", 3, (int64_t[]){1, 4, 4}, q));
    v = learned(g, "view", 2, (int64_t[]){1, 4});
    x = NODE(g, "Mul", "c", x, v);
    x = NODE(g, "Mul", "d", x, moved(g, "view_1", 2, (int64_t[]){4, 1}, v));
    q = moved(g, "unsqueeze_2", 3, (int64_t[]){1, 1, 4}, v);
    data = g->values[q].data;
    for (int k = 0; k < 4; k++)
        data[k] = tanhf(data[k]);
    x = NODE(g, "Mul", "e", x, q);
    x = NODE(g, "Add", "f", x, uniform(g, "getitem", 4, 1));
    x = NODE(g, "Mul", "h", x, uniform(g, "getitem_1", 4, 1));
    v = learned(g, "view_2", 2, (int64_t[]){4, 1});
    x = NODE(g, "Mul", "i", x, v);
    g = edited(g, NODE(g, "Mul", "y", x, moved(g, "view_3", 2, (int64_t[]){1, 4}, v)), say_moved);
    assert_true(is_param(g, "transpose"));
    assert_string_equal(input_of(g, "repeat", 0), "transpose");
    assert_true(is_param(g, "g"));
    assert_string_equal(input_of(g, "view", 0), "g");
    assert_string_equal(input_of(g, "view_1", 0), "g");
    assert_string_equal(input_of(g, "g@unsqueeze_2", 0), "g");
    assert_string_equal(input_of(g, "unsqueeze_2", 0), "g@unsqueeze_2");
    assert_non_null(g->values[graph_find(g, "getitem")].data);
    assert_non_null(g->values[graph_find(g, "getitem_1")].data);
    assert_non_null(g->values[graph_find(g, "view_2")].data);
    assert_non_null(g->values[graph_find(g, "view_3")].data);
    assert_ok_err(graph_at_batch(g, 2, false, &t, &err), &err);
    graph_free(t);
    graph_free(g);
}

static void say_circle(Onnx__GraphProto *g, const char *call)
{
    (void)call;
    add_pair(&g->base, 16, META_SIGNATURE,
             "p_0: PARAMETER target='view'\np_1: PARAMETER target='view_1'\n");
    say_from(g, "view", "['view_1']");
    say_from(g, "view_1", "['view']");
}

/* A file may say what cannot be. */
static void what_is_said_to_be_made_of_each_other_is_read(void **state)
{
    struct graph *g = new_graph();
    uint32_t x = input(g, "x", 3, (int64_t[]){-1, 4, 4}),
             v = learned(g, "view", 2, (int64_t[]){1, 4});

    (void)state;
    x = NODE(g, "Mul", "c", x, v);
    g = edited(g, NODE(g, "Mul", "y", x, moved(g, "view_1", 2, (int64_t[]){4, 1}, v)), say_circle);
    assert_true(is_param(g, "view_1"));
    assert_string_equal(input_of(g, "view", 0), "view_1");
    graph_free(g);
}

static void say_one(Onnx__GraphProto *g, const char *call)
{
    (void)call;
    add_pair(&g->base, 16, META_SIGNATURE,
             "p_0: PARAMETER target='p'\np_1: PARAMETER target='w'\nb_2: BUFFER target='std'\n"
             "p_3: PARAMETER target='r'\np_4: PARAMETER target='s'\np_5: PARAMETER target='t'\n");
    say_from(g, "view", "['p', 'val_7']");
    say_from(g, "unsqueeze", "['std', 'val_7']");
    say_from(g, "val_1", "['w']");
    say_from(g, "view_1", "['r']");
    say_from(g, "sub", "['s', 'scalar_tensor_default', 'unsqueeze_3', 'val_7']"); /* s - 1 */
    say_from(g, "add_5", "['t', 'val_8']");                                       /* beside t */
    say_from(g, "view_5", "['t']");
}

/* What the file says is one parameter learns wherever it is used, in whatever order. */
static void what_is_one_parameter_learns_in_any_use(void **state)
{
    static const char *const USES[][2] = {{"Div", "view"},   {"Max", "unsqueeze"}, {"Pow", "val_1"},
                                          {"Min", "view_1"}, {"Mul", "sub"},       {"Add", "add_5"},
                                          {"Sub", "view_5"}};
    struct graph *g = new_graph();
    uint32_t x = input(g, "x", 3, (int64_t[]){-1, 6, 5});

    (void)state;
    for (size_t i = 0; i < SH_ARRAY_LEN(USES); i++)
        x = NODE(g, USES[i][0], USES[i][0], x,
                 learned(g, USES[i][1], i == 5 ? 1 : 2, (int64_t[]){i == 5 ? 5 : 6, 1}));
    g = edited(g, x, say_one);
    assert_true(is_param(g, "view"));
    assert_true(is_param(g, "val_1"));
    assert_true(is_param(g, "view_1"));
    assert_false(is_param(g, "unsqueeze"));
    assert_true(is_param(g, "sub"));
    assert_false(g->values[graph_find(g, "sub")].is_computed);
    assert_true(g->values[graph_find(g, "add_5")].is_computed);
    graph_free(g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_number_of_the_code_is_not_the_parameter_that_equals_it),
        cmocka_unit_test(a_parameter_that_the_exporter_left_out_is_missed),
        cmocka_unit_test(what_is_there_several_times_is_trained_once),
        cmocka_unit_test(what_is_there_in_several_orders_is_trained_once),
        cmocka_unit_test(what_is_said_to_be_made_of_each_other_is_read),
        cmocka_unit_test(what_is_one_parameter_learns_in_any_use),
        cmocka_unit_test(rows_of_a_softmax_end_where_their_sum_is_1),
        cmocka_unit_test(what_a_buffer_became_stays_one_in_each_use),
        cmocka_unit_test(what_is_left_of_a_leak_is_computed_of_it),
        cmocka_unit_test(what_was_expanded_is_trained_as_what_it_was),
        cmocka_unit_test(a_part_of_a_complex_weight_is_trained),
        cmocka_unit_test(a_vector_has_no_diagonal),
        cmocka_unit_test(what_was_computed_comes_back_if_nothing_is_lost),
        cmocka_unit_test(elements_that_were_merged_learn_each_by_itself),
        cmocka_unit_test(a_row_of_padding_that_was_looked_up_stays_zeros),
        cmocka_unit_test(a_buffer_that_was_merged_with_a_parameter_stays_one),
        cmocka_unit_test(what_a_file_has_much_of_is_looked_at_once),
    };

    return cmocka_run_group_tests(tests, make_folder, drop_folder);
}
