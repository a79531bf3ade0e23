/* test_params_said.c - Without it: buffers and filters of the code would be trained although the
 * file or their numbers say what they are, and a module that is called twice as if it were two. */
/* uses: libmodel.a libdevice.a */
/* link: -ldl -lprotobuf-c -lm */
#include "runtime/model/onnx.h"
#include "runtime/model/onnx_file.h"
#include "tests/unit/param_file.h"

#define KIND "pkg.torch.export.graph_signature.InputSpec.kind"

static void say(Onnx__GraphProto *g, const char *name, const char *key, const char *what)
{
    Onnx__ValueInfoProto *v = malloc(sizeof(*v));

    g->value_info = realloc(g->value_info, (g->n_value_info + 1) * sizeof(Onnx__ValueInfoProto *));
    assert_non_null(v);
    assert_non_null(g->value_info);
    onnx__value_info_proto__init(v);
    v->name = strdup(name);
    add_value_meta(v, key, what);
    g->value_info[g->n_value_info++] = v;
}

static void say_kinds(Onnx__GraphProto *g, const char *call)
{
    (void)call;
    say(g, "places", KIND, "BUFFER");
    say(g, "turn", KIND, "BUFFER");
    say(g, "norm.running_mean", KIND, "BUFFER");
    say(g, "norm.weight", KIND, "PARAMETER");
    say(g, "head.mask", KIND, "PARAMETER");
    say(g, "val_12", KIND, "PARAMETER");
    say(g, "line", KIND, "PARAMETER");
}

static void say_origins(Onnx__GraphProto *g, const char *call)
{
    (void)call;
    say(g, "clamp_2", META_FROM,
        "['_to_copy', 'arange', 'convert_element_type_default', 'sub_1', 'val_5', 'view']");
    say(g, "cat", META_FROM, "['rotary.inv_freq', 'cos', 'sin']");
    say(g, "cat_1", META_FROM, "['head.gain', 'val_3']");
    say(g, "cat_2", META_FROM, "['gain', 'val_3']");
    say(g, "cat_3", META_FROM, "[]");
    say(g, "val_4", META_FROM, "['val_16', 'view_as_complex', 'weight']");
    say(g, "val_5", META_FROM, "['matmul', 'weight']");
    say(g, "expand", META_FROM, "['decoder.mask_token', 'expand']");
}

/* Weights of what is interpolated are per channel, as a bias that was turned is. */
static void where_the_file_says_what_a_constant_is_of_its_numbers_do_not_count(void **state)
{
    static const char *const NAMES[] = {"clamp_2", "cat",    "cat_1",      "cat_2",
                                        "cat_3",   "expand", "layer.gamma"};
    static const char *const PARTS[] = {"val_4", "val_5"};
    static const int64_t ROW[] = {1, 12};
    struct graph *g = new_graph(), *back;
    uint32_t x = input(g, "x", 2, (int64_t[]){-1, 12});
    struct sh_err err = {0};
    char path[128];

    (void)state;
    for (size_t i = 0; i < SH_ARRAY_LEN(NAMES); i++) {
        const uint32_t v = learned(g, NAMES[i], 2, ROW);
        char out[16];

        ((float *)g->values[v].data)[0] = (float)i; /* no copy of another */
        snprintf(out, sizeof(out), "m%zu", i);
        x = NODE(g, "Mul", out, x, v);
    }
    for (int i = 0; i < 2; i++) {
        const uint32_t v = learned(g, PARTS[i], 2, (int64_t[]){4, 12});

        ((float *)g->values[v].data)[0] = (float)i;
        x = NODE(g, "Mul", i ? "h" : "f", x, v);
    }
    g = through_a_file(g, x);
    for (size_t i = 0; i < SH_ARRAY_LEN(NAMES); i++)
        assert_true(is_param(g, NAMES[i]));
    for (int i = 0; i < 2; i++)
        assert_false(is_param(g, PARTS[i]));
    graph_free(g);
    edit(say_origins, NULL);
    assert_ok_err(onnx_read(path_of("in.onnx", path, sizeof(path)), &back, &err), &err);
    for (size_t i = 0; i < SH_ARRAY_LEN(NAMES); i++)
        assert_int_equal(is_param(back, NAMES[i]), i >= 2);
    assert_true(is_param(back, "val_4")); /* a part, whatever the exporter calls it */
    assert_false(is_param(back, "val_5"));
    graph_free(back);
}

static void where_the_file_says_what_a_buffer_is_its_name_does_not_count(void **state)
{
    static const int64_t ROW[] = {1, 12}, SQUARE[] = {12, 12};
    static const char *const NORM[] = {"norm.weight", "norm.bias", "norm.running_mean",
                                       "norm.running_var"};
    struct graph *g = new_graph(), *back;
    uint32_t x = input(g, "x", 2, (int64_t[]){-1, 12}), line = param(g, "line", 2, ROW);
    uint32_t in[5], made_up = learned(g, "val_12", 2, ROW);
    struct sh_err err = {0};
    char path[128];

    (void)state;
    for (int i = 0; i < 12; i++) {
        ((float *)g->values[line].data)[i] = (float)i;
        ((float *)g->values[made_up].data)[i] *= 0.7f; /* no copy of another */
    }
    x = NODE(g, "Add", "a", x, learned(g, "places", 2, ROW));
    x = NODE(g, "Add", "b", x, learned(g, "head.mask", 2, ROW));
    x = NODE(g, "Add", "c", x, made_up);
    x = NODE(g, "Add", "d", x, line);
    x = NODE(g, "Add", "d2", x, learned(g, "convert_element_type_default", 2, ROW));
    x = NODE(g, "MatMul", "e", x, learned(g, "turn", 2, SQUARE));
    x = NODE(g, "MatMul", "f", x, learned(g, "onnx::MatMul_9", 2, SQUARE));
    in[0] = x;
    for (int i = 0; i < 4; i++)
        in[1 + i] = learned(g, NORM[i], 1, ROW + 1);
    x = NODE(g, "BatchNormalization", "y", in[0], in[1], in[2], in[3], in[4]);
    g = through_a_file(g, x);
    assert_true(is_param(g, "places")); /* nobody says what it is */
    assert_true(is_param(g, "convert_element_type_default"));
    assert_false(is_param(g, "val_12"));
    graph_free(g);
    edit(say_kinds, NULL);
    assert_ok_err(onnx_read(path_of("in.onnx", path, sizeof(path)), &back, &err), &err);
    assert_false(is_param(back, "places"));
    assert_false(is_param(back, "turn"));
    assert_false(is_param(back, "line"));                         /* frozen: that is not said */
    assert_false(is_param(back, "convert_element_type_default")); /* not of the module */
    assert_true(is_param(back, "head.mask"));
    assert_true(is_param(back, "val_12"));
    assert_true(is_param(back, "onnx::MatMul_9"));
    for (int i = 0; i < 4; i++)
        assert_true(is_param(back, NORM[i]));
    graph_free(back);
}

/* A state dictionary has a module's parameters, then its buffers: what comes behind a table of
 * integers or a statistic is no parameter, but where a weight comes behind that. */
static void the_order_of_an_old_file_tells_buffers_from_parameters(void **state)
{
    static const struct {
        const char *name;
        bool want, integers;
    } ORDER[] = {{"scale", true, false},
                 {"x_std", false, false},
                 {"shift_of_x", false, false}, /* a buffer, as x_std is */
                 {"a.gain", true, false},
                 {"a.weight", true, false},
                 {"a.places", false, true},
                 {"a.decay", false, false},
                 {"a.action_bias", false, false},
                 {"b.grid", false, false}, /* frozen, maybe: a bias comes behind it */
                 {"b.late", true, false},
                 {"b.bias", true, false},
                 {"onnx::Add_9", true, false}};
    const int64_t row = 12;

    (void)state;
    for (int k = 0; k < 3; k++) { /* as it is; by others; in another order */
        struct graph *g = new_graph();
        uint32_t x = input(g, "x", 2, (int64_t[]){-1, 12});
        struct sh_err err = {0};
        char path[128];

        for (size_t i = 0; i < SH_ARRAY_LEN(ORDER); i++) {
            const uint32_t v = learned(g, ORDER[i].name, 1, &row);
            char out[8];

            ((float *)g->values[v].data)[0] = (float)i; /* no copy of another */
            if (ORDER[i].integers) {
                memset(g->values[v].data, 0, 12 * sizeof(int32_t));
                g->values[v].dtype = SH_I32;
            }
            snprintf(out, sizeof(out), "m%zu", i);
            x = ORDER[i].integers ? NODE(g, "Gather", out, x, v) : NODE(g, "Mul", out, x, v);
            if (ORDER[i].integers)
                assert_ok(graph_set_int(&g->nodes[g->n_nodes - 1], "axis", 1, NULL));
        }
        if (k == 2)
            x = NODE(g, "Mul", "again", x, learned(g, "a.late", 1, &row));
        graph_free(through_a_file(g, x));
        edit_of(k == 1 ? "tf2onnx" : "pytorch", NULL, NULL);
        assert_ok_err(onnx_read(path_of("in.onnx", path, sizeof(path)), &g, &err), &err);
        for (size_t i = 0; i < SH_ARRAY_LEN(ORDER) && k == 0; i++)
            if (is_param(g, ORDER[i].name) != ORDER[i].want)
                fail_msg("%s is %s parameter", ORDER[i].name, ORDER[i].want ? "no" : "a");
        assert_int_equal(is_param(g, "shift_of_x"), k > 0);
        assert_int_equal(is_param(g, "a.decay"), k > 0);
        graph_free(g);
    }
}

static void say_forms(Onnx__GraphProto *g, const char *call)
{
    static const char *const PARAMS[] = {"log_scale",   "A_log",      "net.decay",   "mix",
                                         "rho",         "held_scale", "a.gate",      "b.gate",
                                         "conv.weight", "known",      "logit_scale", "made.weight"};
    char text[1024] = "\n# inputs\n", *at = text + strlen(text);

    (void)call;
    for (size_t i = 0; i < SH_ARRAY_LEN(PARAMS); i++)
        at += snprintf(at, (size_t)(text + sizeof(text) - at), "p_%zu: PARAMETER target='%s'\n", i,
                       PARAMS[i]);
    snprintf(at, (size_t)(text + sizeof(text) - at),
             "b_1: BUFFER target='made.mask' persistent=True\nb_2: BUFFER target='keys'\n"
             "b_3: BUFFER target='noise'\nx: USER_INPUT\n");
    add_pair(&g->base, 16, META_SIGNATURE, text);
    say(g, "t_1", META_FROM, "['made.mask', 'made.weight', 'mul_3']");
    say(g, "mul_4", META_FROM, "['conv.weight', 'noise']");
    say(g, "t_2", META_FROM, "['keys']");
    say(g, "exp", META_FROM, "['log_scale']");
    say(g, "neg_1", META_FROM, "['A_log', 'exp_1']");
    say(g, "unsqueeze", META_FROM, "['exp_2', 'neg_2', 'net.decay', 'val_7']"); /* exp(-decay) */
    say(g, "softmax", META_FROM, "['mix']");
    say(g, "softplus", META_FROM,
        "['beta', 'beta_cast', 'rho', 'softplus_4', 'threshold', 'tmp_1']");
    say(g, "clamp", META_FROM, "['exp_3', 'logit_scale', 'val_10']");
    say(g, "clamp_1", META_FROM, "['exp_4', 'held_scale', 'val_10']"); /* 100 */
    say(g, "sigmoid_1", META_FROM, "['a.gate', 'b.gate', 'mul']");
    say(g, "mul_9", META_FROM, "['conv.weight', 'val_3']");
    say(g, "exp_9", META_FROM, "['known']");
}

static float form_of(const char *name, float x)
{
    if (strcmp(name, "softmax") == 0)
        return x; /* made below */
    if (strncmp(name, "neg", 3) == 0)
        return -expf(x);
    if (strcmp(name, "unsqueeze") == 0)
        return expf(-x);
    if (strcmp(name, "softplus") == 0)
        return logf(1 + expf(x));
    if (strcmp(name, "sigmoid_1") == 0)
        return 1 / (1 + expf(-x));
    return strcmp(name, "mul_9") == 0 ? x : expf(x);
}

/* As the older exporter writes it, and the newer one. */
static void what_a_mask_hides_stays_hidden(void **state)
{
    const int64_t square[] = {12, 12};
    static const char *const NAMES[] = {"onnx::MatMul_7", "t_1", "onnx::MatMul_8", "mul_4", "t_2"};
    struct graph *g = new_graph(), *back;
    uint32_t x = input(g, "x", 2, (int64_t[]){-1, 12});
    struct sh_err err = {0};
    char path[128];

    (void)state;
    for (size_t i = 0; i < SH_ARRAY_LEN(NAMES); i++) {
        const uint32_t v = learned(g, NAMES[i], 2, square);
        char out[8];

        for (int k = 0; k < 144; k++) {
            ((float *)g->values[v].data)[k] += 2 + (float)i;
            if (i < 2 && k % 12 > k / 12)
                ((float *)g->values[v].data)[k] = 0;
        }
        snprintf(out, sizeof(out), "m%zu", i);
        x = NODE(g, "MatMul", out, x, v);
    }
    g = through_a_file(g, x);
    assert_null(g->values[graph_find(g, "onnx::MatMul_7")].data);
    assert_non_null(g->values[graph_find(g, "onnx::MatMul_8")].data);
    assert_true(is_param(g, "onnx::MatMul_7@kept"));
    assert_false(is_param(g, "onnx::MatMul_7.mask"));
    assert_true(is_param(g, "t_2")); /* nobody says what it is */
    graph_free(g);
    edit(say_forms, NULL);
    assert_ok_err(onnx_read(path_of("in.onnx", path, sizeof(path)), &back, &err), &err);
    assert_null(back->values[graph_find(back, "t_1")].data);
    assert_true(is_param(back, "made.weight"));
    assert_false(is_param(back, "t_1.mask"));
    assert_non_null(back->values[graph_find(back, "mul_4")].data);
    assert_false(is_param(back, "t_2")); /* a buffer that was turned */
    graph_free(back);
}

/* What the newer exporter computed by functions that can be undone becomes them again; what it held
 * between bounds, or made of several parameters or numbers, stays. */
static void a_parameter_comes_back_from_a_function_of_it(void **state)
{
    static const struct {
        const char *name, *param, *op;
    } FORMS[] = {{"exp", "log_scale", "Exp"},       {"neg_1", "A_log", "Neg"},
                 {"unsqueeze", "net.decay", "Exp"}, {"softmax", "mix", "Softmax"},
                 {"softplus", "rho", "Softplus"},   {"clamp", "logit_scale", "Exp"},
                 {"exp_9", "known", "Exp"},         {"clamp_1", "held_scale", NULL},
                 {"sigmoid_1", "a.gate", NULL},     {"mul_9", "conv.weight", NULL}};
    const int64_t row = 12;
    struct graph *g = new_graph(), *back;
    uint32_t x = input(g, "x", 2, (int64_t[]){-1, 12}), known;
    struct sh_err err = {0};
    char path[128];

    (void)state;
    for (size_t i = 0; i < SH_ARRAY_LEN(FORMS); i++) {
        const bool one = strncmp(FORMS[i].name, "clamp", 5) == 0;
        const uint32_t v = one ? number(g, FORMS[i].name, i == 5 ? 14.2857f : 100)
                               : learned(g, FORMS[i].name, 1, &row);
        float *data = g->values[v].data, sum = 0;
        char out[8];

        for (int k = 0; k < 12 && !one; k++)
            data[k] = form_of(FORMS[i].name, data[k] + 0.1f * (float)i);
        for (int k = 0; k < 12 && i == 3; k++)
            sum += data[k] = expf(data[k]);
        for (int k = 0; k < 12 && i == 3; k++)
            data[k] /= sum;
        snprintf(out, sizeof(out), "m%zu", i);
        x = NODE(g, "Mul", out, x, v);
    }
    known = learned(g, "known", 1, &row);
    for (int k = 0; k < 12; k++)
        ((float *)g->values[known].data)[k] += 0.6f;
    x = NODE(g, "Add", "y", x, known);
    graph_free(through_a_file(g, x));
    edit(say_forms, NULL);
    assert_ok_err(onnx_read(path_of("in.onnx", path, sizeof(path)), &back, &err), &err);
    assert_int_equal(back->n_unbounded, 1); /* logit_scale, which is told */
    for (size_t i = 0; i < SH_ARRAY_LEN(FORMS); i++) {
        const uint32_t v = graph_find(back, FORMS[i].name);
        const char *op = NULL;

        assert_int_not_equal(v, GRAPH_NONE);
        for (uint32_t k = 0; k < back->n_nodes; k++)
            op = back->nodes[k].out[0] == v ? back->nodes[k].op : op;
        if (!FORMS[i].op != !op || (op && strcmp(op, FORMS[i].op) != 0))
            fail_msg("%s is made by %s", FORMS[i].name, op ? op : "nothing");
        assert_int_equal(!back->values[v].data, op != NULL);
        if (op)
            assert_true(is_param(back, FORMS[i].param));
        else
            assert_int_equal(graph_find(back, FORMS[i].param), GRAPH_NONE);
    }
    for (int k = 0; k < 12; k++) /* the logarithm of exp(x) is x */
        assert_true(fabsf(((float *)back->values[graph_find(back, "net.decay")].data)[k] -
                          ((float *)back->values[graph_find(back, "log_scale")].data)[k] - 0.2f) <
                    1e-5f);
    assert_true(fabsf(((float *)back->values[graph_find(back, "logit_scale")].data)[0] -
                      logf(14.2857f)) < 1e-5f);
    graph_free(back);
}

/* The older exporter computes no more than that. */
static void the_negative_of_a_parameter_is_computed_of_it(void **state)
{
    const int64_t row = 2;
    struct graph *g = new_graph();
    uint32_t x = input(g, "x", 2, (int64_t[]){-1, 2}), v, of = learned(g, "log_vars", 1, &row);

    (void)state;
    x = NODE(g, "Add", "a", x, of);
    v = learned(g, "onnx::Exp_41", 1, &row);
    for (int k = 0; k < 2; k++)
        ((float *)g->values[v].data)[k] *= -1;
    x = NODE(g, "Mul", "b", x, NODE(g, "Exp", "e", v));
    x = NODE(g, "Add", "c", x, uniform(g, "b.bias", 2, 1));
    x = NODE(g, "Mul", "d", x, uniform(g, "onnx::Mul_9", 2, -1));
    g = through_a_file(g, x);
    assert_null(g->values[graph_find(g, "onnx::Exp_41")].data);
    assert_non_null(g->values[graph_find(g, "onnx::Mul_9")].data);
    assert_true(is_param(g, "log_vars"));
    graph_free(g);
}

/* Of who is whose neighbour nothing learns, whatever weighs by it: mutual ones, parts of one node,
 * several kinds of edges. What is an identity so far may learn, and so may what has no zeros. */
static void neighbours_are_of_the_data(void **state)
{
    static const struct {
        const char *name;
        float of[2][16];
        bool want;
    } MATRICES[] = {
        {"adj", {{0, .5f, 0, 1, .5f, 0, .2f, 0, 0, .2f, 0, 0, 1, 0, 0, .3f}}, false},
        {"road", {{.5f, .5f, 0, 0, .25f, .25f, .5f, 0, 0, 0, 1, 0, 0, .1f, .1f, .8f}}, false},
        {"A",
         {{1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1},
          {0, 1, 0, 0, 0, 0, .5f, 0, 0, 0, 0, 1, 0, 0, .5f, 0}},
         false},
        {"turn", {{1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1}}, true},
        {"mix", {{.5f, .5f, 0, 0, .25f, .3f, .5f, 0, 0, 0, 1, .2f, 0, .1f, .1f, .8f}}, true},
        {"edges",
         {{.1f, .4f, .3f, .2f, .2f, .1f, .3f, .4f, .4f, .2f, .3f, .1f, .3f, .3f, .2f, .2f}},
         true},
    };
    struct graph *g = new_graph();
    uint32_t x = input(g, "x", 4, (int64_t[]){-1, 2, 4, 4});

    (void)state;
    for (size_t i = 0; i < SH_ARRAY_LEN(MATRICES); i++) {
        const int64_t kinds = strcmp(MATRICES[i].name, "A") == 0 ? 2 : 1;
        const uint32_t w = param(g, MATRICES[i].name, 3, (int64_t[]){kinds, 4, 4});
        char out[16];

        memcpy(g->values[w].data, MATRICES[i].of, (size_t)kinds * sizeof(MATRICES[i].of[0]));
        snprintf(out, sizeof(out), "a%zu", i);
        x = NODE(g, "MatMul", out, x, w);
    }
    g = through_a_file(g, x);
    for (size_t i = 0; i < SH_ARRAY_LEN(MATRICES); i++)
        if (is_param(g, MATRICES[i].name) != MATRICES[i].want)
            fail_msg("%s is %s parameter", MATRICES[i].name, MATRICES[i].want ? "no" : "a");
    graph_free(g);
}

/* A weight over its norm, which is found by two vectors that do not learn. */
static void what_spectral_norm_measures_with_stays(void **state)
{
    struct graph *g = new_graph();
    const int64_t filter[] = {4, 3, 2, 2}, matrix[] = {4, 12}, sides[] = {4, 12};
    uint32_t x = input(g, "x", 4, (int64_t[]){-1, 3, 6, 6}), w, m, s;

    (void)state;
    w = learned(g, "net.weight_orig", 4, filter);
    m = learned(g, "onnx::MatMul_53", 2, matrix);
    s = NODE(g, "MatMul", "wv", m, learned(g, "net.weight_v", 1, sides + 1));
    s = NODE(g, "MatMul", "uwv", learned(g, "net.weight_u", 1, sides), s);
    x = NODE(g, "Conv", "y", x, NODE(g, "Div", "over", w, s));
    x = NODE(g, "Mul", "z", x, learned(g, "other.weight_v", 1, (int64_t[]){5}));
    g = through_a_file(g, x);
    assert_true(is_param(g, "net.weight_orig"));
    assert_false(is_param(g, "net.weight_u"));
    assert_false(is_param(g, "net.weight_v"));
    assert_true(is_param(g, "other.weight_v"));
    assert_null(g->values[graph_find(g, "onnx::MatMul_53")].data); /* the weight in another shape */
    graph_free(g);
}

static void say_waves(Onnx__GraphProto *g, const char *call)
{
    (void)call;
    say(g, "B", KIND, "PARAMETER");
    say(g, "embed.W", KIND, "PARAMETER");
    say(g, "turns", KIND, "PARAMETER");
}

/* Of a matrix, or a number for each wave, whose product goes to a sine and a cosine nothing learns,
 * but of a layer's, and of frequencies. A parameter without a gradient is one to the file; papers
 * call that one by a letter. */
static void waves_that_were_drawn_do_not_learn(void **state)
{
    static const struct {
        const char *name, *other;
        bool want, each;
    } WAVES[] = {{"B", "Cos", false, false},
                 {"C", "Sin", true, false},
                 {"onnx::MatMul_1", "Cos", true, false},
                 {"wr.weight", "Cos", true, false},
                 {"embed.W", "Cos", false, true},
                 {"turns", "Cos", false, true},
                 {"frequencies", "Cos", true, true},
                 {"onnx::Mul_1", "Cos", false, true}, /* turned or scaled first */
                 {"onnx::Mul_2", "Sin", true, true}};
    struct graph *g = new_graph();
    const uint32_t x = input(g, "x", 2, (int64_t[]){-1, 6});
    uint32_t y = x;
    struct sh_err err = {0};
    char path[128];

    (void)state;
    for (int i = 0; i < 9; i++) {
        char name[7][8];
        uint32_t a;

        for (int k = 0; k < 7; k++)
            snprintf(name[k], sizeof(name[k]), "%c%d", 'p' + k, i);
        a = WAVES[i].each
                ? NODE(g, "Mul", name[0], x, learned(g, WAVES[i].name, 2, (int64_t[]){1, 6}))
                : NODE(g, "MatMul", name[0], x, learned(g, WAVES[i].name, 2, (int64_t[]){6, 6}));
        ((float *)g->values[graph_find(g, WAVES[i].name)].data)[0] = (float)i; /* no copy */
        a = NODE(g, "Mul", name[1], a, number(g, name[2], 6.28f));
        y = NODE(g, "Add", name[3], y, NODE(g, "Sin", name[4], a));
        y = NODE(g, "Add", name[5], y, NODE(g, WAVES[i].other, name[6], a));
    }
    g = through_a_file(g, y);
    for (int i = 0; i < 9; i++)
        if (is_param(g, WAVES[i].name) != WAVES[i].want)
            fail_msg("%s is %s parameter", WAVES[i].name, WAVES[i].want ? "no" : "a");
    graph_free(g);
    edit(say_waves, NULL);
    assert_ok_err(onnx_read(path_of("in.onnx", path, sizeof(path)), &g, &err), &err);
    assert_false(is_param(g, "B"));
    assert_false(is_param(g, "embed.W"));
    assert_true(is_param(g, "turns"));
    graph_free(g);
}

static void sign(Onnx__GraphProto *g, const char *text)
{
    add_pair(&g->base, 16, META_SIGNATURE, text);
}

static void say_lost(Onnx__GraphProto *g, const char *list)
{
    sign(g, "p_0: PARAMETER target='gain'\np_1: PARAMETER target='other.bias'\n"
            "b_0: BUFFER target='noise'\n");
    say(g, "t_1", META_FROM, list);
}

/* Its gradient is not that of the parameter. */
static void what_was_computed_of_a_parameter_is_not_trained_in_its_place(void **state)
{
    static const struct {
        const char *list;
        bool lost;
    } CASES[] = {{"['gain', 'mul_3', 'val_1']", true},
                 {"['gain', 'noise', 'mul_3']", true},
                 {"['gain', 'other.bias', 'add_1']", true},
                 {"['gain', 'index', 'sigmoid', 'linear']", true},
                 {"['gain', 'add_1', 'scalar_tensor_default']", false}, /* 1 + gain */
                 {"['gain', 'other.bias', 'val_7']", false},            /* joined */
                 {"['gain', 'index', 'log', 'abs', 'mul']", false}, /* rows, by their distance */
                 {"['noise', 'mul_3']", false}};

    (void)state;
    for (size_t i = 0; i < SH_ARRAY_LEN(CASES); i++) {
        struct graph *g = new_graph(), *t = NULL;
        uint32_t x = input(g, "x", 2, (int64_t[]){-1, 12}), w;
        struct sh_err err = {0};
        char path[128];

        w = learned(g, "t_1", 2, (int64_t[]){12, 12});
        memcpy((float *)g->values[w].data + 12, g->values[w].data, 48); /* not a table either */
        x = NODE(g, "MatMul", "h", x, w);
        x = NODE(g, "Mul", "y", x, learned(g, "scale", 1, (int64_t[]){12}));
        graph_free(through_a_file(g, x));
        edit(say_lost, CASES[i].list);
        assert_ok_err(onnx_read(path_of("in.onnx", path, sizeof(path)), &g, &err), &err);
        if ((graph_at_batch(g, 2, true, &t, &err) != SH_OK) != CASES[i].lost)
            fail_msg("%s: %s", CASES[i].list, err.msg);
        assert_true(!CASES[i].lost || strstr(err.msg, "optimize=False"));
        graph_free(t);
        graph_free(g);
    }
}

/* Norms that the older exporter puts into a weight write a bias as well. */
static void a_weight_without_a_name_beside_a_bias_with_one_was_computed(void **state)
{
    static const char *const BIAS[] = {"conv.bias", "onnx::Conv_8"};

    (void)state;
    for (int i = 0; i < 2; i++) {
        struct graph *g = new_graph(), *t = NULL;
        uint32_t x = input(g, "x", 4, (int64_t[]){-1, 4, 6, 6});
        struct sh_err err = {0};

        x = NODE(g, "Conv", "y", x, learned(g, "onnx::Conv_7", 4, (int64_t[]){4, 4, 3, 3}),
                 learned(g, BIAS[i], 1, (int64_t[]){4}));
        g = through_a_file(g, x);
        assert_int_equal(graph_at_batch(g, 2, true, &t, &err) == SH_OK, i == 1);
        assert_true(i == 1 || strstr(err.msg, "dynamo=True, optimize=False"));
        graph_free(t);
        graph_free(g);
    }
}

/* A bank of triangles, and what an input is standardised with. */
static void what_is_of_the_data_stays(void **state)
{
    struct graph *g = new_graph();
    uint32_t x = input(g, "x", 2, (int64_t[]){-1, 12}), bank, gate;

    (void)state;
    bank = learned(g, "mel", 2, (int64_t[]){12, 4});
    for (int i = 0; i < 48; i++)
        ((float *)g->values[bank].data)[i] = fmaxf(0, 1.7f - fabsf((float)(i / 4 - 3 * (i % 4))));
    gate = learned(g, "gate", 1, (int64_t[]){12});
    x = NODE(g, "Sub", "a", x, learned(g, "mu", 1, (int64_t[]){12}));
    x = NODE(g, "Div", "b", x, learned(g, "sigma", 1, (int64_t[]){12}));
    x = NODE(g, "Mul", "c", x, gate);
    x = NODE(g, "Sub", "d", x, learned(g, "moved", 1, (int64_t[]){12}));
    x = NODE(g, "Div", "e", x, learned(g, "size", 1, (int64_t[]){12}));
    g = through_a_file(g, NODE(g, "MatMul", "y", x, bank));
    assert_false(is_param(g, "mel") || is_param(g, "mu") || is_param(g, "sigma"));
    assert_true(is_param(g, "gate") && is_param(g, "moved") && is_param(g, "size"));
    graph_free(g);
}

/* One number in two layers: shared by design where the file has all that the module has. */
static void what_a_signature_names_was_not_merged(void **state)
{
    struct graph *g = new_graph();
    uint32_t x = input(g, "x", 2, (int64_t[]){-1, 12}), eps = uniform(g, "eps", 1, 0.5f);
    struct sh_err err = {0};
    char path[128];

    (void)state;
    x = NODE(g, "Mul", "a", NODE(g, "Mul", "b", x, eps), eps);
    g = through_a_file(g, x);
    assert_int_equal(g->n_untied, 1);
    graph_free(g);
    edit(sign, "p_0: PARAMETER target='eps'\n");
    assert_ok_err(onnx_read(path_of("in.onnx", path, sizeof(path)), &g, &err), &err);
    assert_int_equal(g->n_untied, 0);
    graph_free(g);
}

/* Filters of four channels: edges, a blur, what has learned, and bins that are added up. */
static void filters_of_the_code_do_not_learn(void **state)
{
    static const float EDGES[] = {-1, 0, 1, -2, 0, 2, -1, 0, 1},
                       BLUR[] = {1, 2, 1, 2, 4, 2, 1, 2, 1};
    struct graph *g = new_graph();
    uint32_t x = input(g, "x", 4, (int64_t[]){-1, 4, 6, 6}), in[4], bins, haar, mean;

    (void)state;
    in[0] = param(g, "onnx::Conv_1", 4, (int64_t[]){4, 4, 3, 3});
    in[1] = param(g, "onnx::Conv_2", 4, (int64_t[]){4, 1, 3, 3});
    in[2] = learned(g, "onnx::Conv_3", 4, (int64_t[]){4, 1, 3, 3});
    in[3] = uniform(g, "zero.weight", 16, 0);
    g->values[in[3]].rank = 4;
    memcpy(g->values[in[3]].dims, (int64_t[]){4, 4, 1, 1}, 4 * sizeof(int64_t));
    bins = param(g, "dfl.weight", 4, (int64_t[]){1, 4, 1, 1});
    for (int i = 0; i < 144; i++)
        ((float *)g->values[in[0]].data)[i] = EDGES[i % 9];
    for (int i = 0; i < 36; i++)
        ((float *)g->values[in[1]].data)[i] = BLUR[i % 9] / 16;
    for (int i = 0; i < 4; i++)
        ((float *)g->values[bins].data)[i] = (float)i;
    for (int i = 0; i < 4; i++) {
        struct graph_node *n;
        char out[4] = {'c', (char)('0' + i), 0};

        x = NODE(g, "Conv", out, x, in[i]);
        n = &g->nodes[g->n_nodes - 1];
        if (i == 1 || i == 2)
            assert_ok(graph_set_int(n, "group", 4, NULL));
        out[0] = 'r';
        x = NODE(g, "Relu", out, x);
    }
    haar = param(g, "h", 4, (int64_t[]){4, 4, 2, 2});
    for (int i = 0; i < 64; i++)
        ((float *)g->values[haar].data)[i] = i % 4 > i / 16 ? -0.5f : 0.5f;
    x = NODE(g, "Conv", "w", x, haar);
    mean = uniform(g, "average", 36, 1.0f / 9);
    g->values[mean].rank = 4;
    memcpy(g->values[mean].dims, (int64_t[]){4, 1, 3, 3}, 4 * sizeof(int64_t));
    x = NODE(g, "Conv", "m", x, mean);
    assert_ok(graph_set_int(&g->nodes[g->n_nodes - 1], "group", 4, NULL));
    g = through_a_file(g, NODE(g, "Conv", "y", x, bins));
    assert_false(is_param(g, "h"));
    assert_false(is_param(g, "average"));
    assert_false(is_param(g, "onnx::Conv_1"));
    assert_false(is_param(g, "onnx::Conv_2"));
    assert_true(is_param(g, "onnx::Conv_3"));
    assert_true(is_param(g, "zero.weight"));
    assert_false(is_param(g, "dfl.weight"));
    graph_free(g);
}

/* Waves under a window around the middle, or around half of a period, as bands of a sound have
 * them; one of which a number has moved; one that begins with nothing but its middle. */
static void filters_that_are_their_own_mirror_do_not_learn(void **state)
{
    static const struct {
        const char *name;
        float middle, moved;
        bool want;
    } BANKS[] = {{"gabor", 4, 0, false}, {"dft", 4.5f, 0, false}, {"late.weight", 4, 0.01f, true}};
    struct graph *g = new_graph();
    uint32_t x = input(g, "x", 3, (int64_t[]){-1, 2, 40}), begun;

    (void)state;
    for (int i = 0; i < 3; i++) {
        const uint32_t w = param(g, BANKS[i].name, 3, (int64_t[]){2, 2, 9});
        const char out[] = {'a', (char)('0' + i), 0};
        float *to = g->values[w].data;

        for (int k = 0; k < 36; k++) {
            const float t = (float)(k % 9) - BANKS[i].middle, phase = k / 9 % 2 ? 1.5707964f : 0;

            to[k] = expf(-0.1f * t * t) * cosf((float)(1 + k / 9) * 0.7f * t + phase);
        }
        for (int k = 0; k < 36 && i == 1; k++) /* the last is the sine of 0 */
            to[k] = k % 9 == 0 || k > 27 ? 0 : to[k];
        to[5] += BANKS[i].moved;
        x = NODE(g, "Conv", out, x, w);
    }
    begun = param(g, "begun.weight", 3, (int64_t[]){1, 2, 9});
    memset(g->values[begun].data, 0, g->values[begun].bytes);
    ((float *)g->values[begun].data)[4] = ((float *)g->values[begun].data)[13] = 1;
    g = through_a_file(g, NODE(g, "Conv", "y", x, begun));
    for (int i = 0; i < 3; i++)
        if (is_param(g, BANKS[i].name) != BANKS[i].want)
            fail_msg("%s is %s parameter", BANKS[i].name, BANKS[i].want ? "no" : "a");
    assert_true(is_param(g, "begun.weight"));
    graph_free(g);
}

/* Two heads of three levels each, all biases of zeros: one of them is in the file. */
static void a_module_that_is_called_again_keeps_its_bias(void **state)
{
    static const int64_t DIMS[] = {6, 6};
    struct graph *g = new_graph();
    uint32_t x = input(g, "x", 2, (int64_t[]){-1, 6}), b = uniform(g, "a.bias", 6, 0);
    uint32_t a = learned(g, "a.weight", 2, DIMS), c = matrix(g, "c.weight", 6, 6, false);
    uint32_t m = param(g, "onnx::MatMul_5", 2, DIMS);

    (void)state;
    x = NODE(g, "Gemm", "a0", x, a, b);
    x = NODE(g, "Gemm", "c0", x, c, b);
    x = NODE(g, "Gemm", "a1", x, a, b);
    x = NODE(g, "Gemm", "c1", x, c, b);
    x = NODE(g, "Add", "m0", NODE(g, "MatMul", "p0", x, m), b);
    x = NODE(g, "Add", "m1", NODE(g, "MatMul", "p1", x, m), b);
    g = through_a_file(g, x);
    assert_int_equal(g->n_untied, 2);
    assert_true(is_param(g, "a.bias"));
    assert_true(is_param(g, "a.bias@c0:2"));
    assert_true(is_param(g, "a.bias@m0:1"));
    graph_free(g);
}

/* They begin with 0.25, so that an exporter keeps one of them. */
static void slopes_learn_apart(void **state)
{
    struct graph *g = new_graph();
    uint32_t x = input(g, "x", 2, (int64_t[]){-1, 6}),
             slope = uniform(g, "onnx::PRelu_5", 1, 0.25f);

    (void)state;
    x = NODE(g, "PRelu", "a", x, slope);
    x = NODE(g, "PRelu", "b", x, slope);
    g = through_a_file(g, x);
    assert_int_equal(g->n_untied, 1);
    assert_true(is_param(g, "onnx::PRelu_5"));
    assert_true(is_param(g, "onnx::PRelu_5@b:1"));
    graph_free(g);
}

static void scope_twice(Onnx__GraphProto *g, const char *second)
{
    add_meta(g->node[0], "pkg.torch.onnx.name_scopes", "['', 'cell', 'gru']");
    add_meta(g->node[1], "pkg.torch.onnx.name_scopes", second);
}

/* The newer exporter computes what a recurrent layer weighs with anew for each call. */
static void a_recurrent_layer_that_is_called_twice_has_its_weights_once(void **state)
{
    static const int64_t W[] = {1, 6, 6}, B[] = {1, 24};
    static const char *const NAMES[][3] = {{"val_1", "val_2", "val_3"},
                                           {"val_4", "val_5", "val_6"}};

    (void)state;
    for (int same = 0; same < 2; same++) {
        struct graph *g = new_graph();
        struct sh_err err = {0};
        char path[128];
        uint32_t x = input(g, "x", 3, (int64_t[]){-1, 5, 6});

        for (int k = 0; k < 2; k++) {
            uint32_t w = learned(g, NAMES[k][0], 3, W), r = learned(g, NAMES[k][1], 3, W);

            for (int i = 0; i < 36; i++)
                ((float *)g->values[r].data)[i] *= 0.7f;
            x = NODE(g, "RNN", k ? "y" : "a", x, w, r, learned(g, NAMES[k][2], 2, B));
        }
        graph_free(through_a_file(g, x));
        edit(scope_twice, same ? "['', 'cell', 'gru_1']" : "['', 'other', 'gru_1']");
        assert_ok_err(onnx_read(path_of("in.onnx", path, sizeof(path)), &g, &err), &err);
        for (int i = 0; i < 3; i++) {
            const uint32_t v = graph_find(g, NAMES[1][i]);

            assert_int_equal(v != GRAPH_NONE && g->values[v].data, !same);
            assert_true(is_param(g, NAMES[0][i]));
        }
        graph_free(g);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(where_the_file_says_what_a_buffer_is_its_name_does_not_count),
        cmocka_unit_test(where_the_file_says_what_a_constant_is_of_its_numbers_do_not_count),
        cmocka_unit_test(the_order_of_an_old_file_tells_buffers_from_parameters),
        cmocka_unit_test(a_parameter_comes_back_from_a_function_of_it),
        cmocka_unit_test(what_a_mask_hides_stays_hidden),
        cmocka_unit_test(the_negative_of_a_parameter_is_computed_of_it),
        cmocka_unit_test(neighbours_are_of_the_data),
        cmocka_unit_test(what_spectral_norm_measures_with_stays),
        cmocka_unit_test(waves_that_were_drawn_do_not_learn),
        cmocka_unit_test(what_was_computed_of_a_parameter_is_not_trained_in_its_place),
        cmocka_unit_test(a_weight_without_a_name_beside_a_bias_with_one_was_computed),
        cmocka_unit_test(what_is_of_the_data_stays),
        cmocka_unit_test(what_a_signature_names_was_not_merged),
        cmocka_unit_test(filters_of_the_code_do_not_learn),
        cmocka_unit_test(filters_that_are_their_own_mirror_do_not_learn),
        cmocka_unit_test(a_module_that_is_called_again_keeps_its_bias),
        cmocka_unit_test(slopes_learn_apart),
        cmocka_unit_test(a_recurrent_layer_that_is_called_twice_has_its_weights_once),
    };

    return cmocka_run_group_tests(tests, make_folder, drop_folder);
}
