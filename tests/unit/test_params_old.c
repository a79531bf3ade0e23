/* test_params_old.c - Without it: buffers of a file that does not tell them from parameters would
 * be trained without a word, who knows better could not say so, and the leak of a cell and what the
 * exporter computed of it would be trained as two. */
/* uses: libmodel.a libdevice.a */
/* link: -ldl -lprotobuf-c -lm */
#include "common/external.h"
#include "runtime/model/graph_int.h"
#include "runtime/model/onnx.h"
#include "runtime/model/onnx_file.h"
#include "tests/unit/param_file.h"

/* TAKES g. The file says that `producer` wrote it, and what is told of its constants. */
static struct graph *of_producer(struct graph *g, uint32_t y, const char *producer,
                                 const char *const told[2])
{
    static const char *const KEYS[] = {SH_EXTERNAL_BUFFERS, SH_EXTERNAL_PARAMETERS};
    struct onnx_source *source = NULL;
    Onnx__ModelProto *m = NULL;
    struct sh_err err = {0};
    char path[128];

    graph_free(through_a_file(g, y));
    path_of("in.onnx", path, sizeof(path));
    assert_ok_err(onnx_file_load(path, false, &source, &m, &err), &err);
    free(m->producer_name);
    m->producer_name = strdup(producer);
    m->metadata_props = calloc(2, sizeof(*m->metadata_props));
    for (int k = 0; k < 2 && told; k++) {
        Onnx__StringStringEntryProto *e = malloc(sizeof(*e));

        onnx__string_string_entry_proto__init(e);
        e->key = strdup(KEYS[k]);
        e->value = strdup(told[k]);
        m->metadata_props[m->n_metadata_props++] = e;
    }
    assert_ok_err(onnx_file_save(path, m, &err), &err);
    onnx_file_free(m);
    onnx_source_close(source);
    assert_ok_err(onnx_read(path, &g, &err), &err);
    return g;
}

static bool is_assumed(const struct graph *g, const char *name)
{
    const uint32_t v = graph_find(g, name);

    assert_int_not_equal(v, GRAPH_NONE);
    return g->values[v].is_assumed;
}

struct constant {
    const char *name;
    bool learns, assumed, told; /* without a word; told: with those of TOLD */
};

static const struct constant CONSTANTS[] = {
    {"motion", true, true, false},           {"gain", true, true, true},
    {"x_mean", false, false, true},          {"net.first", true, false, false},
    {"net.weight", true, false, true},       {"net.last", true, true, true},
    {"attn.in_proj_bias", true, false, true}};
static const char *const TOLD[] = {"motion, *.first,x_*,nothing", "x_mean"};

static uint32_t add_constants(struct graph *g, uint32_t x)
{
    for (size_t i = 0; i < SH_ARRAY_LEN(CONSTANTS); i++) {
        const uint32_t v = learned(g, CONSTANTS[i].name, 1, (int64_t[]){12});
        char out[8];

        ((float *)g->values[v].data)[0] = (float)i; /* no copy of another */
        snprintf(out, sizeof(out), "m%zu", i);
        x = NODE(g, "Mul", out, x, v);
    }
    return x;
}

static void what_a_file_does_not_tell_is_assumed_and_can_be_told(void **state)
{
    static const char *const LATE[] = {"motion,*.first", "x_mean"};

    (void)state;
    for (int k = 0; k < 4;
         k++) { /* by others; as it is; told: buffers first; told: x_mean learns */
        struct graph *g = new_graph();
        const uint32_t x = add_constants(g, input(g, "x", 2, (int64_t[]){-1, 12}));

        g = of_producer(g, x, k ? "pytorch" : "tf2onnx", k == 2 ? TOLD : k == 3 ? LATE : NULL);
        assert_string_equal(g->unmatched, k == 2 ? "nothing" : "");
        for (size_t i = 0; i < SH_ARRAY_LEN(CONSTANTS); i++) {
            const struct constant *c = &CONSTANTS[i];
            const bool is_x = strcmp(c->name, "x_mean") == 0;
            const bool want = k < 2 ? c->learns : is_x ? k == 3 : c->told;

            if (is_param(g, c->name) != want)
                fail_msg("%s is %s parameter (%d)", c->name, want ? "no" : "a", k);
            if (is_assumed(g, c->name) != (k && c->assumed && want && !(k > 1 && is_x)))
                fail_msg("%s is %s assumed (%d)", c->name, is_assumed(g, c->name) ? "" : "not", k);
        }
        graph_free(g);
    }
}

static void names_that_nothing_has_are_noted(void **state)
{
    static const char *const MANY[] = {" moton , gain,, *.wieght,x_maen,a.name.that.is.quite.long, "
                                       "and.another.one.that.is.as.long,and.one.more",
                                       "onnx::*"};
    struct graph *g = new_graph();
    const uint32_t x = add_constants(g, input(g, "x", 2, (int64_t[]){-1, 12}));

    (void)state;
    g = of_producer(g, x, "pytorch", MANY); /* "onnx::*" has none either, and no room */
    assert_string_equal(g->unmatched, "moton , *.wieght, x_maen, a.name.that.is.quite.long, "
                                      "and.another.one.that.is.as.long, ...");
    graph_free(g);
}

/* What was transposed for a product has lost its name; a layer of PyTorch is told by its nodes. */
static void layers_are_told_by_their_nodes(void **state)
{
    static const struct {
        const char *node, *weight;
        bool assumed;
        const char *of; /* the name in the module */
    } PRODUCTS[] = {{"/MatMul", "onnx::MatMul_1", true, NULL},
                    {"/a/fc/MatMul", "onnx::MatMul_2", false, "a.fc.weight"},
                    {"/mix/MatMul", "onnx::MatMul_3", true, NULL}, /* it does more */
                    {"/mix/act/Relu", NULL, false, NULL},
                    {"/net/net.1/MatMul", "onnx::MatMul_5", false, "net.1.weight"},
                    {"/out/MatMul", "onnx::MatMul_4", false, "out.weight"},
                    {"/out/Add", "out.bias", false, NULL}};
    struct graph *g = new_graph();
    uint32_t x = input(g, "x", 2, (int64_t[]){-1, 6});
    const char *of;

    (void)state;
    for (size_t i = 0; i < SH_ARRAY_LEN(PRODUCTS); i++) {
        const char *name = PRODUCTS[i].weight, *op = strrchr(PRODUCTS[i].node, '/') + 1;
        uint32_t w = GRAPH_NONE;

        if (name)
            w = learned(g, name, op[0] == 'M' ? 2 : 1, (int64_t[]){6, 6});
        if (name)
            ((float *)g->values[w].data)[0] = (float)i;
        x = name ? NODE(g, op, PRODUCTS[i].node, x, w) : NODE(g, op, PRODUCTS[i].node, x);
    }
    g = of_producer(g, x, "pytorch", NULL);
    for (size_t i = 0; i < SH_ARRAY_LEN(PRODUCTS); i++)
        if (PRODUCTS[i].weight) {
            assert_true(is_param(g, PRODUCTS[i].weight));
            if (is_assumed(g, PRODUCTS[i].weight) != PRODUCTS[i].assumed)
                fail_msg("%s", PRODUCTS[i].weight);
            of = g->values[graph_find(g, PRODUCTS[i].weight)].of;
            assert_string_equal(of ? of : "", PRODUCTS[i].of ? PRODUCTS[i].of : "");
        }
    graph_free(g);
}

static void lengthen_name(Onnx__GraphProto *g, const char *call)
{
    char *name = calloc(1, 6000);

    (void)call;
    assert_non_null(name);
    memset(name, 'a', 5000);
    name[0] = '/';
    memcpy(name + 5000, "/MatMul", sizeof("/MatMul"));
    free(g->node[0]->name);
    g->node[0]->name = name;
}

/* It only gives none to its weight. */
static void a_node_may_have_a_name_of_any_length(void **state)
{
    struct graph *g = new_graph();
    struct sh_err err = {0};
    uint32_t x = input(g, "x", 2, (int64_t[]){-1, 6});
    char path[128];

    (void)state;
    x = NODE(g, "MatMul", "/fc/MatMul", x, learned(g, "onnx::MatMul_1", 2, (int64_t[]){6, 6}));
    graph_free(of_producer(g, x, "pytorch", NULL));
    edit(lengthen_name, NULL);
    assert_ok_err(onnx_read(path_of("in.onnx", path, sizeof(path)), &g, &err), &err);
    assert_true(is_param(g, "onnx::MatMul_1"));
    assert_null(g->values[graph_find(g, "onnx::MatMul_1")].of);
    graph_free(g);
}

/* How a thing moves, a Laplacian and binomials are of the code, though they have no name of such;
 * what is behind one in its module is too. What has just been made may learn. */
static void what_somebody_wrote_does_not_learn(void **state)
{
    static const struct {
        const char *name;
        float of[16];
        bool learns;
    } MATRICES[] = {{"onnx::MatMul_1", {1, 0, .1f, 0, 0, 1, 0, .1f, 0, 0, 1, 0, 0, 0, 0, 1}, false},
                    {"a.tilde",
                     {1, -.3f, .2f, .7f, -.3f, 1, .4f, .6f, .2f, .4f, .9f, .5f, .7f, .6f, .5f, 2},
                     false},
                    {"a.next", {.11f, .25f, .32f, .4f, .7f, .1f, .9f, .3f}, false},
                    {"b.theory", {.2f, -.6f, 1, -1.4f, 1.8f, -2.2f, 2.6f, -3}, false},
                    {"c.turn", {1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1}, true},
                    {"d.even", {.5f, .5f, .5f, .5f, .5f, .5f, .5f, .5f}, true},
                    {"e.mix",
                     {1, -.3f, .2f, .7f, -.31f, 1, .4f, .6f, .2f, .4f, .9f, .5f, .7f, .6f, .5f, 2},
                     true}};

    (void)state;
    for (int k = 0; k < 2; k++) { /* by others nothing is known */
        struct graph *g = new_graph();
        uint32_t x = input(g, "x", 2, (int64_t[]){-1, 4});

        for (size_t i = 0; i < SH_ARRAY_LEN(MATRICES); i++) {
            const bool square = MATRICES[i].of[8] != 0 || MATRICES[i].of[10] != 0;
            const uint32_t w = param(g, MATRICES[i].name, 2, (int64_t[]){square ? 4 : 2, 4});
            char out[8];

            memcpy(g->values[w].data, MATRICES[i].of, g->values[w].bytes);
            snprintf(out, sizeof(out), "m%zu", i);
            x = square ? NODE(g, "MatMul", out, x, w)
                       : NODE(g, "Add", out, x, NODE(g, "ReduceSum", MATRICES[i].name + 2, w));
        }
        g = of_producer(g, x, k ? "pytorch" : "tf2onnx", NULL);
        for (size_t i = 0; i < SH_ARRAY_LEN(MATRICES) && k; i++)
            if (is_param(g, MATRICES[i].name) != MATRICES[i].learns)
                fail_msg("%s is %s parameter", MATRICES[i].name, MATRICES[i].learns ? "no" : "a");
        assert_int_equal(is_param(g, "onnx::MatMul_1"), !k);
        assert_int_equal(is_param(g, "a.tilde"), !k);
        graph_free(g);
    }
}

/* The matrices of a Fourier transform, where the sine of pi k is not quite 0, and which are not
 * quite symmetric. */
static void waves_of_which_one_is_rounding_do_not_learn(void **state)
{
    struct graph *g = new_graph();
    uint32_t x = input(g, "x", 2, (int64_t[]){-1, 12}), w;

    (void)state;
    w = param(g, "onnx::MatMul_3", 2, (int64_t[]){12, 12});
    for (int i = 0; i < 144; i++)
        ((float *)g->values[w].data)[i] =
            -sinf(6.2831855f * (float)(i / 12) * (float)(i % 12) / 12);
    g = of_producer(g, NODE(g, "MatMul", "y", x, w), "pytorch", NULL);
    assert_false(is_param(g, "onnx::MatMul_3"));
    graph_free(g);
}

/* Prototypes to which a distance is taken, in both orders. */
static void what_is_taken_away_learns_as_what_is_added(void **state)
{
    static const int64_t DIMS[] = {1, 8, 6};
    struct graph *g = new_graph();
    uint32_t x = input(g, "x", 3, (int64_t[]){-1, 8, 6});

    (void)state;
    x = NODE(g, "Sub", "a", x, learned(g, "onnx::Sub_9", 3, DIMS));
    ((float *)g->values[learned(g, "expand_9", 3, DIMS)].data)[0] = 2; /* no copy of the other */
    g = through_a_file(g, NODE(g, "Sub", "y", graph_find(g, "expand_9"), x));
    assert_true(is_param(g, "onnx::Sub_9"));
    assert_true(is_param(g, "expand_9"));
    graph_free(g);
}

/* A sine and a cosine of each angle, scaled and moved, of angles without an order. Numbers of two
 * kinds lie on a circle as well, and may learn. */
static void pairs_on_a_circle_do_not_learn(void **state)
{
    static const int64_t DIMS[] = {8, 6};
    struct graph *g = new_graph();
    uint32_t x = input(g, "x", 3, (int64_t[]){-1, 8, 6});
    uint32_t table = param(g, "places_enc", 2, DIMS), corners = param(g, "corners", 2, DIMS);

    (void)state;
    for (int i = 0; i < 24; i++) {
        float *pair = (float *)g->values[table].data + i / 3 * 6 + i % 3;

        pair[0] = sinf((float)(i * i % 17)) * 0.3f - 0.1f;
        pair[3] = cosf((float)(i * i % 17)) * 0.3f - 0.1f;
    }
    for (int i = 0; i < 48; i++)
        ((float *)g->values[corners].data)[i] = i * i % 11 < 5 ? 0.5f : -0.25f;
    x = NODE(g, "Add", "a", x, table);
    g = through_a_file(g, NODE(g, "Add", "y", x, corners));
    assert_false(is_param(g, "places_enc"));
    assert_true(is_param(g, "corners"));
    graph_free(g);
}

/* Each by itself, as the older exporter writes the weights of a mixture; those that somebody wrote
 * have a sum of 1 as well. */
static void numbers_that_follow_each_other_are_those_of_a_softmax(void **state)
{
    static const float MIXED[] = {0.1234567f, 0.3765433f, 0.2718281f, 0.2281719f},
                       WRITTEN[] = {0.1f, 0.25f, 0.25f, 0.4f};

    (void)state;
    for (int k = 0; k < 2; k++) {
        struct graph *g = new_graph();
        uint32_t x = input(g, "x", 2, (int64_t[]){-1, 4});

        for (int i = 0; i < 4; i++) {
            char name[16], out[8];

            snprintf(name, sizeof(name), "onnx::Mul_%d", i + 7);
            snprintf(out, sizeof(out), "m%d", i);
            x = NODE(g, "Mul", out, x, number(g, name, k ? WRITTEN[i] : MIXED[i]));
        }
        g = of_producer(g, x, "pytorch", NULL);
        assert_int_equal(graph_find(g, "logits@onnx::Mul_7") != GRAPH_NONE, !k);
        assert_true(k || is_param(g, "logits@onnx::Mul_7"));
        graph_free(g);
    }
}

/* A table of places that is what rows and columns add; a table of another kind, and one of
 * coordinates, which are such a sum as well, stay. */
static void rows_and_columns_that_were_added_are_two(void **state)
{
    static const int64_t DIMS[] = {1, 20, 4};

    (void)state;
    for (int k = 0; k < 3; k++) {
        struct graph *g = new_graph();
        uint32_t x = input(g, "x", 3, (int64_t[]){-1, 20, 4}),
                 t = learned(g, "onnx::Add_7", 3, DIMS);
        float *data = g->values[t].data, numbers[80];

        memcpy(numbers, data, sizeof(numbers));
        for (int i = 0; i < 80; i++) /* 4 rows, 5 columns */
            data[i] = k == 0   ? numbers[i / 20 * 4 + i % 4] + numbers[16 + i / 4 % 5 * 4 + i % 4]
                      : k == 1 ? numbers[i]
                               : (float)(i / 20) + 0.3f * (float)(i / 4 % 5);
        g = of_producer(g, NODE(g, "Add", "y", x, t), "pytorch", NULL);
        assert_int_equal(graph_find(g, "Add_7.rows") != GRAPH_NONE, k == 0);
        if (k == 0)
            assert_true(is_param(g, "Add_7.rows") && is_param(g, "Add_7.columns"));
        graph_free(g);
    }
}

static const char *maker_of(const struct graph *g, const char *name)
{
    const uint32_t v = graph_find(g, name);

    for (uint32_t i = 0; i < g->n_nodes; i++)
        if (g->nodes[i].out[0] == v)
            return g->nodes[i].op;
    return "";
}

static void what_was_computed_of_a_parameter_that_is_there_is_computed_again(void **state)
{
    static const struct {
        const char *name, *op;
        float scale, shift;
    } LINES[] = {{"onnx::Mul_1", "Sub", -1, 1},
                 {"onnx::Mul_2", "Neg", -1, 0},
                 {"onnx::Mul_3", "Add", .125f, -3},
                 {"onnx::Mul_4", "Mul", 2, 0},
                 {"onnx::Mul_5", "", 0, 1}}; /* the same for any parameter */
    const int64_t row = 12;
    struct graph *g = new_graph();
    uint32_t x = input(g, "x", 2, (int64_t[]){-1, 12}), p = learned(g, "p", 1, &row),
             q = learned(g, "q", 1, &row), t, leak = number(g, "leak", 0.4f);

    (void)state;
    g->values[leak].is_param = true;
    for (int64_t k = 0; k < row; k++)
        ((float *)g->values[q].data)[k] *= sinf(2 + (float)k * (float)k);
    x = NODE(g, "Mul", "a", NODE(g, "Add", "b", x, p), q);
    x = NODE(g, "Mul", "l", x, leak);
    t = number(g, "onnx::Mul_9", 1 - 0.4f);
    g->values[t].is_param = true;
    x = NODE(g, "Mul", "r", x, t);
    x = NODE(g, "Mul", "e", x,
             NODE(g, "Exp", "f", number(g, "onnx::Exp_8", -((float *)g->values[p].data)[5])));
    for (size_t i = 0; i < SH_ARRAY_LEN(LINES); i++) {
        char out[8];

        t = learned(g, LINES[i].name, 1, &row);
        for (int64_t k = 0; k < row; k++)
            ((float *)g->values[t].data)[k] =
                LINES[i].scale * ((float *)g->values[p].data)[k] + LINES[i].shift;
        snprintf(out, sizeof(out), "m%zu", i);
        x = NODE(g, "Mul", out, x, t);
    }
    t = learned(g, "onnx::Add_6", 1, &row);
    for (int64_t k = 0; k < row; k++)
        ((float *)g->values[t].data)[k] =
            ((float *)g->values[p].data)[k] * ((float *)g->values[q].data)[k];
    g = of_producer(g, NODE(g, "Add", "y", x, t), "pytorch", NULL);
    for (size_t i = 0; i < SH_ARRAY_LEN(LINES); i++)
        assert_string_equal(maker_of(g, LINES[i].name), LINES[i].op);
    assert_string_equal(maker_of(g, "onnx::Add_6"), "Mul");
    assert_string_equal(maker_of(g, "onnx::Mul_9"), "Sub");
    assert_string_equal(maker_of(g, "onnx::Exp_8"), "Reshape"); /* one of p, negated */
    assert_string_equal(maker_of(g, "onnx::Exp_8@negated"), "Neg");
    assert_true(is_param(g, "p") && is_param(g, "q") && is_param(g, "leak"));
    graph_free(g);
}

/* A table that went through a softmax is trained as what went in; a weight that somebody divided
 * before the exporter looked is not trained in place of what it was. */
static void what_an_old_file_has_computed_is_undone_or_refused(void **state)
{
    static const char *const TABLES[][2] = {{"onnx::MatMul_3", "MatMul_3.logits"},
                                            {"93", "93.logits"}};
    struct graph *g, *t = NULL;
    struct sh_err err = {0};
    uint32_t x, w;

    (void)state;
    for (size_t i = 0; i < SH_ARRAY_LEN(TABLES); i++) {
        g = new_graph();
        x = input(g, "x", 4, (int64_t[]){-1, 4, 6, 6});
        w = learned(g, TABLES[i][0], 2, (int64_t[]){6, 4});
        for (int row = 0; row < 6; row++) {
            float *data = (float *)g->values[w].data + (ptrdiff_t)row * 4, sum = 0;

            for (int k = 0; k < 4; k++)
                sum += data[k] = expf(data[k]);
            for (int k = 0; k < 4; k++)
                data[k] /= sum;
        }
        g = of_producer(g, NODE(g, "MatMul", "/MatMul", x, w), "pytorch", NULL);
        assert_string_equal(maker_of(g, TABLES[i][0]), "Softmax");
        assert_true(is_param(g, TABLES[i][1]) && is_assumed(g, TABLES[i][1]));
        assert_ok_err(graph_at_batch(g, 2, true, &t, &err), &err);
        graph_free(t);
        graph_free(g);
    }

    g = new_graph();
    x = input(g, "x", 4, (int64_t[]){-1, 4, 6, 6});
    w = NODE(g, "Mul", "w", learned(g, "onnx::Mul_5", 4, (int64_t[]){4, 4, 3, 3}),
             number(g, "s", 0.3f));
    x = NODE(g, "Conv", "y", x, w, learned(g, "conv.bias", 1, (int64_t[]){4}));
    g = of_producer(g, x, "pytorch", NULL);
    assert_int_equal(graph_at_batch(g, 2, true, &t, &err), SH_E_UNSUPPORTED);
    assert_non_null(strstr(err.msg, "onnx::Mul_5"));
    graph_free(g);
}

/* Elements of a vector of scales, taken one by one, and each equal to the others as it was made; a
 * number of the code is never an initializer. */
static void elements_that_were_taken_learn_each_by_itself(void **state)
{
    (void)state;
    for (int k = 0; k < 4; k++) { /* by others; trained; as it was made: two are one by Identity;
                                   * simplified since, so that constants are initializers */
        struct graph *g = new_graph();
        uint32_t x = input(g, "x", 2, (int64_t[]){-1, 4});
        const uint32_t first = number(g, "onnx::Mul_7", k == 2 ? 0 : 0.31237f),
                       half = number(g, k == 3 ? "/Constant_output_0" : "half", 0.5f);
        const uint32_t second =
            k == 2 ? NODE(g, "Identity", "onnx::Mul_8", first) : number(g, "onnx::Mul_8", 0.41863f);

        x = NODE(g, "Add", "a", x, NODE(g, "Mul", "m", x, first));
        x = NODE(g, "Add", "b", x, NODE(g, "Mul", "n", x, second));
        g = of_producer(g, NODE(g, "Mul", "h", x, half), k ? "pytorch" : "tf2onnx", NULL);
        assert_int_equal(is_param(g, "onnx::Mul_7"), k == 1 || k == 2);
        assert_int_equal(is_assumed(g, "onnx::Mul_7"), k == 1 || k == 2);
        if (k == 2)
            assert_true(is_param(g, "onnx::Mul_7@n:1"));
        else
            assert_int_equal(is_param(g, "onnx::Mul_8"), k == 1);
        graph_free(g);
    }
}

/* Its first four bytes would be -0, of a product with zeros, if it had four. */
static void a_number_of_another_kind_is_not_read_as_a_float(void **state)
{
    struct graph *g = new_graph();
    const uint32_t x = input(g, "x", 2, (int64_t[]){-1, 4});
    double *data = malloc(sizeof(*data));
    uint32_t v;

    (void)state;
    assert_non_null(data);
    *data = 1 + 0x1p-21;
    assert_ok(graph_add_const(g, "onnx::Mul_7", SH_F64, 1, (int64_t[]){1}, data, &v, NULL));
    g = of_producer(g, NODE(g, "Mul", "y", x, v), "pytorch", NULL);
    assert_true(is_param(g, "onnx::Mul_7"));
    graph_free(g);
}

/* Binomials over 16, three of the elements of a table, and a scale that is 1 as it was made. */
static void elements_that_somebody_wrote_do_not_learn(void **state)
{
    static const float OF[] = {0.0625f, 0.25f, 0.375f, 1};
    struct graph *g = new_graph();
    uint32_t x = input(g, "x", 2, (int64_t[]){-1, 4});
    char name[16], out[8];

    (void)state;
    for (int i = 0; i < 4; i++) {
        snprintf(name, sizeof(name), "onnx::Mul_%d", i + 7);
        snprintf(out, sizeof(out), "m%d", i);
        x = NODE(g, "Mul", out, x, number(g, name, OF[i]));
    }
    g = of_producer(g, x, "pytorch", NULL);
    for (int i = 0; i < 4; i++) {
        snprintf(name, sizeof(name), "onnx::Mul_%d", i + 7);
        assert_int_equal(is_param(g, name), i == 3);
    }
    graph_free(g);
}

/* exp(-log_scale), of which the exporter computed the negative: few numbers, but drawn ones. What
 * people write is not, and what a first state of zeros was multiplied with is none. */
static void what_goes_through_a_function_learns(void **state)
{
    static const struct {
        const char *name, *op;
        float of[4];
        bool learns;
    } CASES[] = {{"onnx::Exp_72", "Exp", {0.0129f, 0.0032f, 0.0356f, 0.02111f}, true},
                 {"onnx::Sigmoid_73", "Sigmoid", {0, 0, 0, 0}, true},
                 {"onnx::Exp_74", "Exp", {0.485f, 0.456f, 0.406f, 0.229f}, false},
                 {"onnx::Neg_75", "Neg", {1 / 6.f, 1 / 3.f, 0.25f, 0.125f}, false},
                 {"onnx::Add_76", NULL, {0, -0.0f, 0, -0.0f}, false}};

    (void)state;
    for (size_t i = 0; i < SH_ARRAY_LEN(CASES); i++) {
        struct graph *g = new_graph();
        const int64_t dims[] = {2, 2};
        uint32_t x = input(g, "x", 3, (int64_t[]){-1, 2, 2}),
                 v = learned(g, CASES[i].name, 2, dims);

        memcpy(g->values[v].data, CASES[i].of, sizeof(CASES[i].of));
        if (CASES[i].op)
            v = NODE(g, CASES[i].op, "f", v);
        g = of_producer(g, NODE(g, CASES[i].op ? "Mul" : "Add", "y", x, v), "pytorch", NULL);
        if (is_param(g, CASES[i].name) != CASES[i].learns)
            fail_msg("%s", CASES[i].name);
        assert_int_equal(is_assumed(g, CASES[i].name), CASES[i].learns);
        graph_free(g);
    }
}

/* A fifth of a matrix that is there as well: a fifth may be of the code, or another parameter. */
static void a_factor_that_may_be_a_parameter_has_to_be_told(void **state)
{
    static const char *const FACTOR = "val_onnx::MatMul_38@factor";
    static const struct {
        float factor;
        const char *told[2];
        bool refused, learns;
    } CASES[] = {{0.2f, {"", ""}, true, false},
                 {0.2f, {"val_*@factor", ""}, false, false},
                 {0.2f, {"", "val_*@factor"}, false, true},
                 {0.5f, {"", ""}, false, false}};

    (void)state;
    for (size_t i = 0; i < SH_ARRAY_LEN(CASES); i++) {
        struct graph *g = new_graph(), *t = NULL;
        uint32_t x = input(g, "x", 2, (int64_t[]){-1, 6}),
                 a = learned(g, "A", 2, (int64_t[]){6, 6}),
                 w = learned(g, "onnx::MatMul_38", 2, (int64_t[]){6, 6});
        struct sh_err err = {0};

        for (int k = 0; k < 36; k++)
            ((float *)g->values[w].data)[k] = CASES[i].factor * ((float *)g->values[a].data)[k];
        x = NODE(g, "MatMul", "y", NODE(g, "MatMul", "m", x, w), a);
        g = of_producer(g, x, "pytorch", CASES[i].told);
        assert_int_equal(graph_at_batch(g, 2, true, &t, &err),
                         CASES[i].refused ? SH_E_UNSUPPORTED : SH_OK);
        assert_true(!CASES[i].refused || strstr(err.msg, FACTOR));
        assert_null(g->values[graph_find(g, "onnx::MatMul_38")].data);
        if (CASES[i].factor != 0.5f)
            assert_int_equal(is_param(g, FACTOR), CASES[i].learns);
        graph_free(t);
        graph_free(g);
    }
}

/* What a name or a use makes a buffer is told, if its numbers may be learned. A weight of which a
 * formula takes a part that was computed is refused. */
static void what_is_held_is_told_and_what_is_lost_is_refused(void **state)
{
    static const struct {
        const char *name;
        bool held;
    } HELD[] = {{"bias", false}, {"ema_weight", true}, {"pe", false}};
    struct graph *g = new_graph(), *t = NULL;
    struct sh_err err = {0};
    uint32_t x = input(g, "x", 2, (int64_t[]){-1, 12}), v, w, norm;

    (void)state;
    for (size_t i = 0; i < SH_ARRAY_LEN(HELD); i++) {
        v = learned(g, HELD[i].name, 1, (int64_t[]){12});
        for (int k = 0; k < 12; k++)
            ((float *)g->values[v].data)[k] *= i == 2 ? 0 : 1 + 0.1f * (float)i;
        for (int k = 0; k < 12 && i == 2; k++)
            ((float *)g->values[v].data)[k] = (float)k * 0.1f; /* a line */
        x = NODE(g, i == 2 ? "Add" : "Mul", HELD[i].name + 1, x, v);
    }
    g = of_producer(g, x, "pytorch", NULL);
    for (size_t i = 0; i < SH_ARRAY_LEN(HELD); i++)
        assert_int_equal(g->values[graph_find(g, HELD[i].name)].is_held, HELD[i].held);
    graph_free(g);

    g = new_graph();
    x = input(g, "x", 3, (int64_t[]){-1, 4, 9});
    w = learned(g, "gate.v", 3, (int64_t[]){8, 4, 2});
    v = learned(g, "onnx::Div_238", 3, (int64_t[]){8, 4, 2});
    norm = NODE(g, "Exp", "norm", w);
    x = NODE(g, "Conv", "c", x, NODE(g, "Div", "weight", v, norm));
    g = of_producer(g, x, "pytorch", NULL);
    assert_int_equal(graph_at_batch(g, 2, true, &t, &err), SH_E_UNSUPPORTED);
    assert_non_null(strstr(err.msg, "onnx::Div_238"));
    graph_free(g);
}

/* Heads that are mixed begin as one number on the diagonal and another beside it, and learn; a
 * Laplacian stays. What stays only because its numbers are in steps is told, but no mask. */
static void what_may_begin_so_learns_or_is_told(void **state)
{
    static const struct {
        const char *name;
        float diagonal, other;
        bool learns, told;
    } CASES[] = {{"before", 1.1f, 0.1f, true, true},
                 {"after", 0.9f, -0.1f, true, true},
                 {"nodes", 3, -1, false, true},
                 {"hides", 0, 1, false, false},
                 {"smooth", 0.7f, 0.1f, false, true}};
    struct graph *g = new_graph();
    uint32_t x = input(g, "x", 2, (int64_t[]){-1, 4}), v;

    (void)state;
    for (size_t i = 0; i < SH_ARRAY_LEN(CASES); i++) {
        v = param(g, CASES[i].name, 2, (int64_t[]){4, 4});
        for (int k = 0; k < 16; k++)
            ((float *)g->values[v].data)[k] = k / 4 == k % 4 ? CASES[i].diagonal : CASES[i].other;
        x = NODE(g, "MatMul", CASES[i].name + 1, x, v);
    }
    v = param(g, "centres", 1, (int64_t[]){4});
    for (int k = 0; k < 4; k++)
        ((float *)g->values[v].data)[k] = (float)k - 1.5f;
    x = NODE(g, "Sub", "y", x, v);
    g = of_producer(g, x, "pytorch", NULL);
    for (size_t i = 0; i < SH_ARRAY_LEN(CASES); i++) {
        const struct graph_value *is = &g->values[graph_find(g, CASES[i].name)];

        assert_int_equal(is_param(g, CASES[i].name), CASES[i].learns);
        assert_int_equal(is->is_assumed || is->is_held, CASES[i].told);
    }
    assert_false(is_param(g, "centres"));
    assert_true(g->values[graph_find(g, "centres")].is_held);
    graph_free(g);
}

/* softmax([p, 0])[0]: a single number of the module is joined to one of the code. */
static void a_number_that_is_joined_learns(void **state)
{
    struct graph *g = new_graph();
    uint32_t x = input(g, "x", 2, (int64_t[]){-1, 4}), p;

    (void)state;
    p = uniform(g, "onnx::Concat_18", 1, 0.6593f);
    p = NODE(g, "Concat", "c", p, NODE(g, "ReduceSum", "zero", x));
    p = NODE(g, "Softmax", "s", p);
    g = of_producer(g, NODE(g, "Mul", "y", x, p), "pytorch", NULL);
    assert_true(is_param(g, "onnx::Concat_18") && is_assumed(g, "onnx::Concat_18"));
    graph_free(g);
}

/* To the frequencies and back: a table of cosines, and the same turned, which are one. */
static void a_table_that_is_turned_stays(void **state)
{
    struct graph *g = new_graph();
    uint32_t x = input(g, "x", 2, (int64_t[]){-1, 24}),
             w = param(g, "cosines", 2, (int64_t[]){6, 24}),
             t = param(g, "onnx::MatMul_26", 2, (int64_t[]){24, 6});

    (void)state;
    for (int i = 0; i < 144; i++)
        ((float *)g->values[t].data)[i % 24 * 6 + i / 24] = ((float *)g->values[w].data)[i] =
            cosf((float)(i / 24 * (i % 24)) * 0.261799388f);
    x = NODE(g, "MatMul", "y", NODE(g, "MatMul", "s", x, t), w);
    g = of_producer(g, x, "pytorch", NULL);
    assert_string_equal(maker_of(g, "onnx::MatMul_26"), "Transpose");
    assert_false(is_param(g, "cosines"));
    graph_free(g);
}

/* A matrix of nine numbers beside its transpose. Numbers that people write prove nothing. */
static void a_small_matrix_is_one_with_its_transpose(void **state)
{
    static const float WRITTEN[] = {0.13f, 0.2f, -0.3f, 0.7f, 0.31f, 0.9f, -0.5f, 0.4f, 0.8f};

    (void)state;
    for (int k = 0; k < 2; k++) {
        struct graph *g = new_graph();
        uint32_t x = input(g, "x", 2, (int64_t[]){-1, 3}),
                 w = learned(g, "w", 2, (int64_t[]){3, 3}),
                 t = learned(g, "onnx::MatMul_12", 2, (int64_t[]){3, 3});
        float *of = g->values[w].data, *turned = g->values[t].data;

        for (int i = 0; i < 9 && k; i++)
            of[i] = WRITTEN[i];
        for (int i = 0; i < 9; i++)
            turned[i % 3 * 3 + i / 3] = of[i];
        x = NODE(g, "Add", "s", NODE(g, "MatMul", "m", x, t), NODE(g, "Det", "d", w));
        g = of_producer(g, x, "pytorch", NULL);
        assert_true(is_param(g, "w"));
        assert_int_equal(g->values[graph_find(g, "onnx::MatMul_12")].data != NULL, k);
        graph_free(g);
    }
}

/* An older file asks whether an axis has to go, and adds what comes of both answers. */
static void a_table_that_a_branch_moves_learns(void **state)
{
    struct graph *g = new_graph();
    uint32_t x = input(g, "x", 3, (int64_t[]){-1, 8, 6}),
             t = learned(g, "919", 3, (int64_t[]){1, 8, 6});

    (void)state;
    t = NODE(g, "If", "chosen", number(g, "920", 1), NODE(g, "Identity", "then", t),
             NODE(g, "Identity", "else", t));
    x = NODE(g, "Add", "y", x, t);
    NODE(g, "Add", "z", x, param(g, "921", 3, (int64_t[]){1, 8, 6})); /* rises throughout */
    assert_ok(graph__find_params(g, NULL));
    assert_true(is_param(g, "919"));
    assert_false(is_param(g, "921"));
    assert_false(is_param(g, "920"));
    graph_free(g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_table_that_a_branch_moves_learns),
        cmocka_unit_test(what_a_file_does_not_tell_is_assumed_and_can_be_told),
        cmocka_unit_test(names_that_nothing_has_are_noted),
        cmocka_unit_test(layers_are_told_by_their_nodes),
        cmocka_unit_test(a_node_may_have_a_name_of_any_length),
        cmocka_unit_test(what_somebody_wrote_does_not_learn),
        cmocka_unit_test(waves_of_which_one_is_rounding_do_not_learn),
        cmocka_unit_test(what_is_taken_away_learns_as_what_is_added),
        cmocka_unit_test(pairs_on_a_circle_do_not_learn),
        cmocka_unit_test(rows_and_columns_that_were_added_are_two),
        cmocka_unit_test(numbers_that_follow_each_other_are_those_of_a_softmax),
        cmocka_unit_test(what_was_computed_of_a_parameter_that_is_there_is_computed_again),
        cmocka_unit_test(elements_that_were_taken_learn_each_by_itself),
        cmocka_unit_test(a_number_of_another_kind_is_not_read_as_a_float),
        cmocka_unit_test(elements_that_somebody_wrote_do_not_learn),
        cmocka_unit_test(what_goes_through_a_function_learns),
        cmocka_unit_test(a_factor_that_may_be_a_parameter_has_to_be_told),
        cmocka_unit_test(what_is_held_is_told_and_what_is_lost_is_refused),
        cmocka_unit_test(what_may_begin_so_learns_or_is_told),
        cmocka_unit_test(a_number_that_is_joined_learns),
        cmocka_unit_test(a_table_that_is_turned_stays),
        cmocka_unit_test(a_small_matrix_is_one_with_its_transpose),
        cmocka_unit_test(what_an_old_file_has_computed_is_undone_or_refused),
    };

    return cmocka_run_group_tests(tests, make_folder, drop_folder);
}
