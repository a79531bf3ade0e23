/* test_params.c - Without it: training would change attention's scale, masks and tables of the code
 * as if they were weights, and all norms of a fresh model would be trained as one, because the
 * exporter keeps equal numbers once. */
/* uses: libmodel.a libdevice.a */
/* link: -ldl -lprotobuf-c -lm */
#include "common/safetensors.h"
#include "runtime/model/onnx.h"
#include "runtime/model/onnx_file.h"
#include "runtime/model/onnx_untie.h"
#include "tests/unit/param_file.h"

static void what_weighs_or_has_the_name_of_an_attribute_is_a_parameter(void **state)
{
    static const struct {
        const char *name;
        bool want;
    } ADDED[] = {{"layers.0.gamma", true},
                 {"pos_embed", true},
                 {"bias1", true},
                 {"layers.0.attn_mask", false},
                 {"encoder.pe", false},
                 {"x_mean", false},
                 {"x_std", false},
                 {"policy.log_std", true},
                 {"noise_log_var", true},
                 {"mask_token", true},
                 {"masked_spec_embed", true},
                 {"token_mask", false},
                 {"encoder.positional_encoding", true},
                 {"weight_mean", true},
                 {"fc.weight_epsilon", false},
                 {"norm.running_mean", false},
                 {"diffusion.sqrt_alphas_cumprod", false},
                 {"head.center", false},
                 {"centers", true},
                 {"random_projection", false},
                 {"/Constant_3_output_0", false},
                 {"lifted_tensor_0", false},
                 {"val_12", false},
                 {"selector", true},
                 {"exponent", true},
                 {"cosine_2", true},
                 {"layers.exp", true},
                 {"exp", false},
                 {"pow_1", false},
                 {"cat_12", true},
                 {"tmp_3", false},
                 {"sin@a:1", false},
                 {"stack", true},
                 {"embedding_1", true},
                 {"view_3", true}};
    struct graph *g = new_graph();
    uint32_t x = input(g, "x", 3, (int64_t[]){-1, 3, 6}), w;

    (void)state;
    for (size_t i = 0; i < SH_ARRAY_LEN(ADDED); i++) {
        char out[16];

        snprintf(out, sizeof(out), "a%zu", i);
        x = NODE(g, "Add", out, x, learned(g, ADDED[i].name, 2, (int64_t[]){3, 6}));
    }
    w = NODE(g, "Transpose", "turned", param(g, "onnx::MatMul_12", 2, (int64_t[]){6, 6}));
    x = NODE(g, "MatMul", "y", x, w);
    g = through_a_file(g, x);
    for (size_t i = 0; i < SH_ARRAY_LEN(ADDED); i++)
        if (is_param(g, ADDED[i].name) != ADDED[i].want)
            fail_msg("%s is %s parameter", ADDED[i].name, ADDED[i].want ? "no" : "a");
    assert_true(is_param(g, "onnx::MatMul_12"));
    graph_free(g);
}

/* v[i, k]: sines and cosines of i, with a wave for each k, as most models of text compute them. */
static uint32_t sines(struct graph *g, const char *name, int64_t rows)
{
    uint32_t v = param(g, name, 3, (int64_t[]){1, rows, 6});

    for (int64_t i = 0; i < rows * 6; i++) {
        const float angle = (float)(i / 6) / powf(10.0f, (float)(i % 3));

        ((float *)g->values[v].data)[i] = i % 6 < 3 ? sinf(angle) : cosf(angle);
    }
    return v;
}

/* v[0, i, k] = of(i, k) */
static uint32_t computed(struct graph *g, const char *name, float (*of)(int64_t, int64_t))
{
    uint32_t v = param(g, name, 3, (int64_t[]){1, 8, 6});

    for (int64_t i = 0; i < 48; i++)
        ((float *)g->values[v].data)[i] = of(i / 6, i % 6);
    return v;
}

static float mask(int64_t i, int64_t k)
{
    return k <= i ? 0 : -1e9f;
}

static float slope(int64_t i, int64_t k)
{
    return -powf(0.7f, (float)i) * (float)k;
}

/* Which tables are added, and learn? Those of positions that are sines do not, nor masks, nor
 * slopes of attention; one that was taken from a parameter does, also where it is turned on the way
 * and where it goes to what is computed by a join. */
static void a_table_learns_if_no_formula_gives_its_numbers(void **state)
{
    const int64_t dims[3] = {1, 8, 6}, turned[3] = {1, 6, 8};
    struct graph *g = new_graph();
    uint32_t x = input(g, "x", 3, (int64_t[]){-1, 8, 6}), t;

    (void)state;
    x = NODE(g, "Add", "a", x, sines(g, "cat", 8));
    x = NODE(g, "Add", "b", x, sines(g, "embedding_1", 8));
    x = NODE(g, "Add", "c", x, computed(g, "expand_2", mask));
    x = NODE(g, "Add", "d", x, computed(g, "onnx::Add_3", slope));
    x = NODE(g, "Add", "e", x, learned(g, "cat_1", 3, dims));
    x = NODE(g, "Add", "f", x, learned(g, "slice_4", 3, dims));
    t = NODE(g, "Transpose", "t", learned(g, "onnx::Transpose_5", 3, turned));
    assert_ok(graph_set_ints(&g->nodes[g->n_nodes - 1], "perm", (int64_t[]){0, 2, 1}, 3, NULL));
    x = NODE(g, "Add", "h", x, t);
    x = NODE(g, "Mul", "i", x, sines(g, "unsqueeze_6", 8)); /* of a rotation */
    x = NODE(g, "Mul", "i2", x, learned(g, "slice_7", 3, dims));
    t = NODE(g, "Shape", "shape", x); /* what the sizes are is no number of the table */
    x = NODE(g, "Add", "k", x, NODE(g, "Expand", "u", learned(g, "onnx::Expand_8", 3, dims), t));
    x = NODE(g, "Concat", "j", x, learned(g, "expand_7", 3, dims));
    assert_ok(graph_set_int(&g->nodes[g->n_nodes - 1], "axis", 2, NULL));
    g = through_a_file(g, x);
    assert_false(is_param(g, "cat"));
    assert_false(is_param(g, "embedding_1"));
    assert_false(is_param(g, "expand_2"));
    assert_false(is_param(g, "onnx::Add_3"));
    assert_true(is_param(g, "cat_1"));
    assert_true(is_param(g, "slice_4"));
    assert_true(is_param(g, "onnx::Transpose_5"));
    assert_false(is_param(g, "unsqueeze_6"));
    assert_true(is_param(g, "slice_7"));
    assert_true(is_param(g, "expand_7"));
    assert_true(is_param(g, "onnx::Expand_8"));
    graph_free(g);
}

/* A weight that is standardised by ones and zeros of the exporter, then masked. */
static void what_is_of_the_formula_of_a_weight_stays(void **state)
{
    struct graph *g = new_graph();
    uint32_t x = input(g, "x", 2, (int64_t[]){-1, 6}), w;

    (void)state;
    w = NODE(g, "Mul", "a", learned(g, "net.weight", 2, (int64_t[]){6, 6}),
             uniform(g, "val_3", 6, 1));
    w = NODE(g, "Add", "b", w, uniform(g, "val_4", 6, 0));
    w = NODE(g, "Mul", "c", w, matrix(g, "net.mask", 6, 6, false));
    g = through_a_file(g, NODE(g, "MatMul", "y", x, w));
    assert_true(is_param(g, "net.weight"));
    assert_false(is_param(g, "val_3"));
    assert_false(is_param(g, "val_4"));
    assert_false(is_param(g, "net.mask"));
    graph_free(g);
}

/* A gain without an axis, of a module; numbers of the code have none either. */
static void a_number_learns_if_it_has_the_name_of_an_attribute(void **state)
{
    struct graph *g = new_graph();
    uint32_t x = input(g, "x", 2, (int64_t[]){-1, 6}), w;

    (void)state;
    x = NODE(g, "Mul", "a", x, number(g, "block.gain", 0.7f));
    x = NODE(g, "Mul", "b", x, number(g, "val_3", 0.7f));
    x = NODE(g, "Mul", "c", x, number(g, "words.embed_scale", 8));
    x = NODE(g, "Mul", "f", x, number(g, "const57", 0.5f)); /* shunt-zoo's, of a GELU */
    w = NODE(g, "Mul", "d", learned(g, "w", 2, (int64_t[]){6, 6}), number(g, "scalar_tensor_1", 2));
    x = NODE(g, "MatMul", "e", x, w);
    g = through_a_file(g, x);
    assert_true(is_param(g, "block.gain"));
    assert_false(is_param(g, "val_3"));
    assert_false(is_param(g, "words.embed_scale"));
    assert_false(is_param(g, "const57"));
    assert_true(is_param(g, "w"));
    assert_false(is_param(g, "scalar_tensor_1"));
    graph_free(g);
}

/* Distances are a line, decays are powers, whatever they are called; what began so has learned. */
static void a_line_is_of_the_code(void **state)
{
    struct graph *g = new_graph();
    uint32_t x = input(g, "x", 2, (int64_t[]){-1, 8}), v[3], grid;

    (void)state;
    for (int k = 0; k < 3; k++) {
        char name[32];

        snprintf(name, sizeof(name), "net.centers%d", k);
        v[k] = param(g, name, 1, (int64_t[]){8});
        for (int i = 0; i < 8; i++)
            ((float *)g->values[v[k]].data)[i] =
                k == 1 ? powf(0.5f, (float)i)
                       : 0.25f * (float)i + (k == 2 && i % 3 == 0 ? 0.02f : 0);
        x = NODE(g, "Sub", k == 0 ? "a" : k == 1 ? "b" : "c", x, v[k]);
    }
    grid = param(g, "net.knots", 1, (int64_t[]){4}); /* few numbers, but a third each time */
    for (int i = 0; i < 4; i++)
        ((float *)g->values[grid].data)[i] = -2 + (float)i * (4.0f / 3);
    x = NODE(g, "Sub", "d",
             NODE(g, "Reshape", "u", x, shape_of(g, "sizes", 3, (int64_t[]){-1, 2, 4})), grid);
    g = through_a_file(g, x);
    assert_false(is_param(g, "net.knots"));
    assert_false(is_param(g, "net.centers0"));
    assert_false(is_param(g, "net.centers1"));
    assert_true(is_param(g, "net.centers2"));
    graph_free(g);
}

/* Positions as sines stay although they are multiplied with, weights that were turned learn. */
static void a_table_that_is_multiplied_with_learns_if_no_formula_gives_it(void **state)
{
    struct graph *g = new_graph();
    uint32_t x = input(g, "x", 3, (int64_t[]){1, 6, 6}), v;

    (void)state;
    v = param(g, "cos", 2, (int64_t[]){4, 6}); /* waves along rows of different lengths */
    for (int64_t i = 0; i < 24; i++)
        ((float *)g->values[v].data)[i] = cosf((float)(i / 6) * (float)(i % 6) * 0.7f);
    x = NODE(g, "MatMul", "a", sines(g, "cat_8", 6), x);
    x = NODE(g, "MatMul", "b", x, learned(g, "transpose_1", 2, (int64_t[]){6, 6}));
    x = NODE(g, "MatMul", "c", v, x);
    g = through_a_file(g, x);
    assert_false(is_param(g, "cos"));
    assert_false(is_param(g, "cat_8"));
    assert_true(is_param(g, "transpose_1"));
    graph_free(g);
}

/* A table that a module has as a parameter without a gradient: its name is that of one. Scaled and
 * moved it has no rows of one length, but waves all the same. */
static void positions_that_are_sines_stay_whatever_they_are_called(void **state)
{
    const int64_t dims[3] = {1, 8, 6};
    struct graph *g = new_graph();
    uint32_t x = input(g, "x", 3, (int64_t[]){-1, 8, 6}), v = sines(g, "encoder.position_enc", 8);

    (void)state;
    for (int64_t i = 0; i < 48; i++)
        ((float *)g->values[v].data)[i] = (((float *)g->values[v].data)[i] - 0.3f) * 1.7f;
    x = NODE(g, "Add", "a", x, v);
    v = sines(g, "pos_embed", 8); /* began as sines, and has learned */
    for (int64_t i = 0; i < 48; i++)
        ((float *)g->values[v].data)[i] += 0.02f * (float)((i * 7) % 11);
    x = NODE(g, "Add", "b", x, v);
    x = NODE(g, "Add", "c", x, uniform(g, "shift", 6, 0));
    v = learned(g, "position_embedding", 3, dims);
    memset(g->values[v].data, 0, 48 * sizeof(float));
    x = NODE(g, "Add", "d", x, v);
    g = through_a_file(g, x);
    assert_false(is_param(g, "encoder.position_enc"));
    assert_true(is_param(g, "pos_embed"));
    assert_true(is_param(g, "shift"));
    assert_true(is_param(g, "position_embedding"));
    graph_free(g);
}

static void ones_of_a_norm_without_parameters_stay_ones(void **state)
{
    struct graph *g = new_graph();
    uint32_t x = input(g, "x", 3, (int64_t[]){-1, 6, 5});

    (void)state;
    x = NODE(g, "InstanceNormalization", "a", x, uniform(g, "val_3", 6, 1.0f),
             uniform(g, "val_7", 6, 0.0f));
    x = NODE(g, "InstanceNormalization", "b", x, uniform(g, "n.weight", 6, 1.0f),
             uniform(g, "n.bias", 6, 0.0f));
    x = NODE(g, "InstanceNormalization", "c", x, param(g, "val_8", 1, (int64_t[]){6}),
             uniform(g, "val_9", 6, 0.0f));
    g = through_a_file(g, x);
    assert_false(is_param(g, "val_3"));
    assert_false(is_param(g, "val_7"));
    assert_true(is_param(g, "n.weight"));
    assert_true(is_param(g, "n.bias"));
    assert_true(is_param(g, "val_8")); /* made of one, a weight that was turned into F32, say */
    graph_free(g);
}

/* Groups are normalised, scaled, moved; then there is a number of the code. */
static void a_group_norm_learns_its_weight_and_bias(void **state)
{
    const int64_t channels[3] = {6, 1, 1};
    struct graph *g = new_graph();
    uint32_t x = input(g, "x", 3, (int64_t[]){-1, 6, 5});

    (void)state;
    x = NODE(g, "InstanceNormalization", "a", x, uniform(g, "val_3", 6, 1.0f),
             uniform(g, "val_7", 6, 0.0f));
    x = NODE(g, "Mul", "scaled", x, param(g, "val_20", 3, channels));
    x = NODE(g, "Add", "moved", param(g, "onnx::Add_22", 3, channels), x);
    x = NODE(g, "Mul", "again", x, param(g, "val_23", 3, channels));
    x = NODE(g, "Add", "more", x, param(g, "val_24", 3, channels));
    g = through_a_file(g, x);
    assert_true(is_param(g, "val_20"));
    assert_true(is_param(g, "onnx::Add_22"));
    assert_false(is_param(g, "val_23"));
    assert_false(is_param(g, "val_24"));
    graph_free(g);
}

static uint32_t rising(struct graph *g, const char *name, int64_t n)
{
    uint32_t v = param(g, name, 1, &n);

    for (int64_t i = 0; i < n; i++)
        ((float *)g->values[v].data)[i] = (float)i;
    return v;
}

/* What lost its name when the exporter turned it; a table; a norm that is held fixed. */
static void numbers_of_channels_are_parameters_whatever_they_are_called(void **state)
{
    const int64_t channels[4] = {1, 6, 1, 1};
    struct graph *g = new_graph();
    uint32_t x = input(g, "x", 4, (int64_t[]){-1, 6, 5, 6}), w;

    (void)state;
    x = NODE(g, "Mul", "a", x, param(g, "onnx::Mul_1", 4, channels));
    x = NODE(g, "Add", "b", x, rising(g, "onnx::Add_2", 6));
    x = NODE(g, "Mul", "c", x, param(g, "onnx::Mul_3", 2, (int64_t[]){5, 6}));
    w = param(g, "conv.weight", 4, (int64_t[]){6, 6, 1, 1});
    x = NODE(g, "Conv", "d", x, w);
    x = NODE(g, "Mul", "e", x, param(g, "onnx::Mul_4", 4, channels));
    x = NODE(g, "Add", "f", x, param(g, "add_5", 4, channels));
    x = NODE(g, "Conv", "h", x, w);
    x = NODE(g, "Mul", "i", x, param(g, "unsqueeze_6", 4, channels));
    x = NODE(g, "Mul", "j", x, param(g, "add_7", 1, channels + 1));
    x = NODE(g, "Mul", "k", x, rising(g, "exp_8", 6));
    x = NODE(g, "Mul", "l", x, uniform(g, "ones_9", 6, 1.0f));
    g = through_a_file(g, x);
    assert_true(is_param(g, "onnx::Mul_1"));
    assert_false(is_param(g, "onnx::Add_2"));
    assert_false(is_param(g, "onnx::Mul_3"));
    assert_false(is_param(g, "onnx::Mul_4"));
    assert_false(is_param(g, "add_5"));
    assert_true(is_param(g, "unsqueeze_6"));
    assert_true(is_param(g, "add_7"));
    assert_false(is_param(g, "exp_8"));
    assert_false(is_param(g, "ones_9"));
    graph_free(g);
}

/* BART adds zeros to its logits, which it calls a buffer; a bias of zeros learns. */
static void zeros_that_are_added_to_logits_stay(void **state)
{
    struct graph *g = new_graph();
    uint32_t x = input(g, "x", 3, (int64_t[]){-1, 4, 6}), v[4];
    const char *const names[] = {"onnx::Add_1", "onnx::Add_2", "onnx::Add_3", "unsqueeze_4"};

    (void)state;
    for (int i = 0; i < 4; i++) {
        v[i] = param(g, names[i], 2, i == 1 ? (int64_t[]){4, 1} : (int64_t[]){1, i == 3 ? 5 : 6});
        memset(g->values[v[i]].data, 0, g->values[v[i]].bytes);
    }
    x = NODE(g, "MatMul", "a", x, learned(g, "onnx::MatMul_4", 2, (int64_t[]){6, 6}));
    x = NODE(g, "Add", "b", x, v[0]);
    x = NODE(g, "Add", "c", x, v[1]);
    x = NODE(g, "Add", "d", x, v[2]);
    x = NODE(g, "MatMul", "e", x, learned(g, "onnx::MatMul_5", 2, (int64_t[]){6, 5}));
    x = NODE(g, "Add", "f", x, v[3]);
    g = through_a_file(g, x);
    for (int i = 0; i < 4; i++)
        assert_int_equal(is_param(g, names[i]), i > 0);
    graph_free(g);
}

static uint32_t joined(struct graph *g, const char *name, uint32_t a, uint32_t b)
{
    uint32_t y = NODE(g, "Concat", name, a, b);

    assert_ok(graph_set_int(&g->nodes[g->n_nodes - 1], "axis", 0, NULL));
    return y;
}

/* A file of one sample has the token of a class expanded already. Padding is no token, nor is a
 * table that goes up or was computed. */
static void a_token_that_is_joined_learns(void **state)
{
    const int64_t n = 6;
    struct graph *g = new_graph();
    uint32_t x = input(g, "x", 1, &n);

    (void)state;
    x = joined(g, "a", param(g, "expand", 1, &n), x);
    x = joined(g, "b", x, uniform(g, "expand_2", n, 0.0f));
    x = joined(g, "c", x, rising(g, "slice_3", n));
    x = joined(g, "d", x, param(g, "cos_4", 1, &n));
    g = through_a_file(g, x);
    assert_true(is_param(g, "expand"));
    assert_false(is_param(g, "expand_2"));
    assert_false(is_param(g, "slice_3"));
    assert_false(is_param(g, "cos_4"));
    graph_free(g);
}

/* A scale and a shift that the author wrote behind a convolution have their names; a norm that is
 * held fixed has those of what the exporter computed. */
static void a_scale_behind_a_convolution_learns_if_it_has_a_name(void **state)
{
    static const struct {
        const char *scale, *shift;
        bool want;
    } ROWS[] = {{"alpha", "beta", true},        {"net.alpha", "net.beta", true},
                {"add_gate", "sub_bias", true}, {"mul_3", "sub_4", false},
                {"view", "reshape_1", false},   {"onnx::Mul_7", "onnx::Add_8", false}};
    const int64_t channels[4] = {1, 6, 1, 1};

    (void)state;
    for (size_t i = 0; i < SH_ARRAY_LEN(ROWS); i++) {
        struct graph *g = new_graph();
        uint32_t x = input(g, "x", 4, (int64_t[]){-1, 6, 5, 6});

        x = NODE(g, "Conv", "c", x, param(g, "conv.weight", 4, (int64_t[]){6, 6, 1, 1}));
        x = NODE(g, "Mul", "m", x, param(g, ROWS[i].scale, 4, channels));
        x = NODE(g, "Add", "y", x, param(g, ROWS[i].shift, 4, channels));
        g = through_a_file(g, x);
        if (is_param(g, ROWS[i].scale) != ROWS[i].want ||
            is_param(g, ROWS[i].shift) != ROWS[i].want)
            fail_msg("%s and %s: not as wanted", ROWS[i].scale, ROWS[i].shift);
        graph_free(g);
    }
}

/* x -> norm a -> product w -> norm b -> product w */
static struct graph *two_norms(uint32_t *y)
{
    struct graph *g = new_graph();
    uint32_t x = input(g, "x", 2, (int64_t[]){-1, 6}), ones = uniform(g, "ln.weight", 6, 1.0f);
    uint32_t w = param(g, "tied.weight", 2, (int64_t[]){6, 6});

    x = NODE(g, "LayerNormalization", "a", x, ones);
    x = NODE(g, "MatMul", "m", x, w);
    x = NODE(g, "LayerNormalization", "b", x, ones);
    *y = NODE(g, "MatMul", "y", x, w);
    return g;
}

static void equal_by_chance_is_trained_apart_and_tied_by_design_as_one(void **state)
{
    uint32_t y;
    struct graph *g = two_norms(&y);

    (void)state;
    g = through_a_file(g, y);
    assert_int_equal(g->n_untied, 1);
    assert_true(is_param(g, "ln.weight"));
    assert_true(is_param(g, "ln.weight@b:1"));
    assert_true(is_param(g, "tied.weight"));
    assert_int_equal(graph_find(g, "tied.weight@y:1"), GRAPH_NONE);
    graph_free(g);
}

/* Heads of one output begin with the same zero. */
static void single_numbers_are_trained_apart_if_they_have_a_name_or_axes(void **state)
{
    struct graph *g = new_graph();
    uint32_t x = input(g, "x", 2, (int64_t[]){-1, 6}), bias, code, moved, gain;

    (void)state;
    bias = uniform(g, "head.bias", 1, 0);
    gain = number(g, "head.gain", 1);
    code = uniform(g, "val_3", 1, 0);
    moved = uniform(g, "add_1", 1, 1); /* 1 + epsilon */
    x = NODE(g, "Add", "a", x, bias);
    x = NODE(g, "Add", "b", x, code);
    x = NODE(g, "Add", "c", x, bias);
    x = NODE(g, "Add", "d", x, code);
    x = NODE(g, "Mul", "e", x, moved);
    x = NODE(g, "Mul", "f", moved, x);
    x = NODE(g, "Mul", "g", x, gain);
    x = NODE(g, "Mul", "h", x, number(g, "add_2", 3)); /* without an axis */
    x = NODE(g, "Mul", "gg", x, gain);
    x = NODE(g, "Mul", "i", x, uniform(g, "exp", 1, 3));
    x = NODE(g, "Mul", "j", x, number(g, "select_1", 3));
    x = NODE(g, "Div", "k", x, number(g, "onnx::Div_2", 3));     /* the root of a size */
    x = NODE(g, "Mul", "m", x, number(g, "onnx::Mul_3", 22.6f)); /* likewise */
    x = NODE(g, "Mul", "n", x, uniform(g, "onnx::Mul_4", 1, 3));
    x = NODE(g, "Concat", "l", x,
             NODE(g, "Expand", "u", number(g, "bin_score", 3),
                  shape_of(g, "sizes", 2, (int64_t[]){1, 6})));
    assert_ok(graph_set_int(&g->nodes[g->n_nodes - 1], "axis", 0, NULL));
    g = through_a_file(g, x);
    assert_int_equal(g->n_untied, 3);
    assert_true(is_param(g, "head.bias"));
    assert_true(is_param(g, "head.bias@c:1"));
    assert_true(is_param(g, "head.gain"));
    assert_true(is_param(g, "head.gain@gg:1"));
    assert_true(is_param(g, "add_1"));
    assert_true(is_param(g, "add_1@f:0"));
    assert_false(is_param(g, "val_3"));
    assert_false(is_param(g, "add_2"));
    assert_false(is_param(g, "exp"));
    assert_true(is_param(g, "select_1"));
    assert_false(is_param(g, "onnx::Div_2"));
    assert_false(is_param(g, "onnx::Mul_3"));
    assert_true(is_param(g, "onnx::Mul_4"));
    assert_true(is_param(g, "bin_score"));
    graph_free(g);
}

static void equal_by_chance_under_another_name_is_trained_apart_too(void **state)
{
    struct graph *g = new_graph();
    uint32_t x = input(g, "x", 2, (int64_t[]){-1, 6}), ones = uniform(g, "a.scale", 6, 0.1f);

    (void)state;
    x = NODE(g, "Mul", "a", x, ones);
    x = NODE(g, "Mul", "y", x, NODE(g, "Identity", "b.scale", ones));
    g = through_a_file(g, x);
    assert_int_equal(g->n_untied, 1);
    assert_true(is_param(g, "a.scale"));
    assert_true(is_param(g, "a.scale@y:1"));
    graph_free(g);
}

#define N_LATE 300 /* of 256 KiB each: more than all copies may take */

/* The last node hands "w" on as "late", which those before it read. */
static void read_late(Onnx__GraphProto *g)
{
    Onnx__NodeProto *first = g->node[0];

    for (size_t i = 0; i + 1 < g->n_node; i++)
        g->node[i] = g->node[i + 1];
    g->node[g->n_node - 1] = first;
}

static void copies_have_a_limit_wherever_the_node_stands_that_hands_it_on(void **state)
{
    const int64_t n = 65536;
    struct graph *g = new_graph();
    Onnx__ModelProto *m = NULL;
    struct onnx_source *source = NULL;
    struct sh_err err = {0};
    uint32_t x = input(g, "x", 2, (int64_t[]){-1, n}), w = uniform(g, "w", n, 0.5f), late, made;
    char path[128];

    (void)state;
    late = NODE(g, "Identity", "late", w);
    x = NODE(g, "Mul", "a", x, w);
    x = NODE(g, "Mul", "b", x, w);
    for (int i = 0; i < N_LATE; i++) {
        char out[16];

        snprintf(out, sizeof(out), "m%d", i);
        x = NODE(g, "Mul", out, x, late);
    }
    assert_ok(graph_add_output(g, x, NULL));
    assert_ok_err(onnx_write(g, path_of("in.onnx", path, sizeof(path)), &err), &err);
    graph_free(g);
    assert_ok_err(onnx_file_load(path, false, &source, &m, &err), &err);
    read_late(m->graph);
    assert_ok_err(onnx_untie(m, source, &(struct param_kinds){.text = NULL}, &made, &err), &err);
    assert_true(made <= 256);
    onnx_file_free(m);
    onnx_source_close(source);
}

static void frequencies_stay_although_positions_are_multiplied_with_them(void **state)
{
    struct graph *g = new_graph();
    uint32_t x = input(g, "x", 2, (int64_t[]){-1, 6});

    (void)state;
    x = NODE(g, "MatMul", "y", x, matrix(g, "rotary_emb.sliding_attention_inv_freq", 6, 6, false));
    g = through_a_file(g, x);
    assert_false(is_param(g, "rotary_emb.sliding_attention_inv_freq"));
    graph_free(g);
}

static void what_was_trained_apart_is_exported_apart(void **state)
{
    static const float A[6] = {1, 2, 3, 4, 5, 6}, B[6] = {-1, -2, -3, -4, -5, -6};
    const struct sh_st_tensor trained[] = {
        {.name = "ln.weight", .dtype = SH_F32, .rank = 1, .dims = {6}, .data = A, .bytes = 24},
        {.name = "ln.weight@b:1", .dtype = SH_F32, .rank = 1, .dims = {6}, .data = B, .bytes = 24}};
    char in[128], st[128], out[128];
    struct sh_err err = {0};
    uint32_t y;
    struct graph *g = two_norms(&y);

    (void)state;
    graph_free(through_a_file(g, y));
    path_of("in.onnx", in, sizeof(in));
    path_of("out.onnx", out, sizeof(out));
    assert_ok_err(sh_st_write(path_of("state", st, sizeof(st)), trained, 2, NULL, &err), &err);
    assert_ok_err(onnx_export(in, st, out, &err), &err);
    assert_ok_err(onnx_read(out, &g, &err), &err);
    assert_memory_equal(g->values[graph_find(g, "ln.weight")].data, A, sizeof(A));
    assert_memory_equal(g->values[graph_find(g, "ln.weight@b:1")].data, B, sizeof(B));
    assert_int_equal(g->n_untied, 0);
    graph_free(g);
}

/* ---------------------------------------------------------------- what was written twice */

/* Rows of a table, a product with another that has its numbers; then, with `more`, products with
 * equal ones. */
static struct graph *table_and_head(uint32_t *y, bool turned, bool more)
{
    struct graph *g = new_graph();
    uint32_t x;

    assert_ok(graph_add_value(g, "ids", SH_I64, 2, (int64_t[]){-1, 3}, &x, NULL));
    assert_ok(graph_add_input(g, x, NULL));
    x = NODE(g, "Gather", "rows", matrix(g, "words.weight", 6, 6, false), x);
    x = NODE(g, "MatMul", "head", x, matrix(g, "val_7", 6, 6, turned));
    if (more) {
        x = NODE(g, "MatMul", "a", x, matrix(g, "val_8", 6, 5, false));
        x = NODE(g, "MatMul", "b", x, matrix(g, "val_9", 5, 6, false));
        x = NODE(g, "MatMul", "c", x, matrix(g, "val_10", 6, 5, false));
    }
    *y = x;
    return g;
}

static void check_tied(const struct graph *g, const char *name)
{
    uint32_t v = graph_find(g, name);

    assert_true(v == GRAPH_NONE || !g->values[v].data);
    assert_true(is_param(g, "words.weight"));
}

static void a_table_that_is_also_the_last_product_is_one_parameter(void **state)
{
    (void)state;
    for (int turned = 0; turned < 2; turned++) {
        uint32_t y;
        struct graph *g = table_and_head(&y, turned, false);

        g = through_a_file(g, y);
        check_tied(g, "val_7");
        graph_free(g);
    }
}

/* An encoder and its decoder may begin with the same numbers; an exporter turns one of them. */
static void what_is_turned_is_tied_if_it_has_no_name_of_its_own(void **state)
{
    static const struct {
        const char *a, *b;
        bool tied;
    } ROWS[] = {{"enc.weight", "dec.weight", false},
                {"onnx::MatMul_7", "onnx::MatMul_8", false},
                {"enc.weight", "onnx::MatMul_8", true},
                {"L", "onnx::MatMul_8", true},
                {"val_3", "dec.weight", true}};

    (void)state;
    for (size_t i = 0; i < SH_ARRAY_LEN(ROWS); i++) {
        struct graph *g = new_graph();
        uint32_t x = input(g, "x", 2, (int64_t[]){-1, 6}), a, b;

        x = NODE(g, "MatMul", "code", x, matrix(g, ROWS[i].a, 6, 5, false));
        g = through_a_file(g, NODE(g, "MatMul", "y", x, matrix(g, ROWS[i].b, 5, 6, true)));
        a = graph_find(g, ROWS[i].a), b = graph_find(g, ROWS[i].b);
        if ((g->values[a].data && g->values[b].data) == ROWS[i].tied)
            fail_msg("%s and %s: not as wanted", ROWS[i].a, ROWS[i].b);
        graph_free(g);
    }
}

/* A weight that is standardised first, by the old exporter: one form is turned for its means. */
static void two_forms_of_a_weight_are_tied(void **state)
{
    const int64_t dims[3] = {1, 6, 5}, turned[3] = {1, 5, 6};
    struct graph *g = new_graph(), *at = NULL;
    uint32_t x = input(g, "x", 3, dims), a, b;
    struct sh_err err = {0};

    (void)state;
    a = matrix(g, "onnx::Sub_7", 6, 5, false);
    b = matrix(g, "onnx::ReduceMean_8", 5, 6, true);
    for (int i = 0; i < 3; i++) {
        g->values[a].dims[i] = dims[i];
        g->values[b].dims[i] = turned[i];
    }
    g->values[a].rank = g->values[b].rank = 3;
    b = NODE(g, "ReduceMean", "m", b, shape_of(g, "axes", 1, (int64_t[]){0}));
    b = NODE(g, "Transpose", "t", b);
    assert_ok(graph_set_ints(&g->nodes[g->n_nodes - 1], "perm", (int64_t[]){0, 2, 1}, 3, NULL));
    g = through_a_file(g, NODE(g, "Add", "y", NODE(g, "Mul", "z", x, a), b));
    assert_false(g->values[graph_find(g, "onnx::Sub_7")].data &&
                 g->values[graph_find(g, "onnx::ReduceMean_8")].data);
    assert_ok_err(graph_at_batch(g, 1, false, &at, &err), &err);
    graph_free(at);
    graph_free(g);
}

static struct graph *with_scopes(const char *a, const char *c)
{
    Onnx__ModelProto *m = NULL;
    struct onnx_source *source = NULL;
    struct sh_err err = {0};
    struct graph *g;
    char path[128];
    uint32_t y;

    g = table_and_head(&y, true, true);
    graph_free(through_a_file(g, y));
    path_of("in.onnx", path, sizeof(path));
    assert_ok_err(onnx_file_load(path, false, &source, &m, &err), &err);
    for (size_t i = 0; i < m->graph->n_node; i++) {
        if (strcmp(m->graph->node[i]->output[0], "a") == 0)
            add_meta(m->graph->node[i], "pkg.torch.onnx.name_scopes", a);
        if (strcmp(m->graph->node[i]->output[0], "c") == 0)
            add_meta(m->graph->node[i], "pkg.torch.onnx.name_scopes", c);
    }
    assert_ok_err(onnx_file_save(path, m, &err), &err);
    onnx_file_free(m);
    onnx_source_close(source);
    assert_ok_err(onnx_read(path, &g, &err), &err);
    return g;
}

static void a_module_that_is_used_twice_has_one_weight_and_copies_have_two(void **state)
{
    struct graph *g =
        with_scopes("['', 'layer.query', 'linear']", "['', 'layer.query', 'linear_1']");
    uint32_t v = graph_find(g, "val_10");

    (void)state;
    assert_true(v == GRAPH_NONE || !g->values[v].data);
    assert_true(is_param(g, "val_8"));
    graph_free(g);
    g = with_scopes("['', 'layer.0', 'linear']", "['', 'layer.1', 'linear_1']");
    assert_true(is_param(g, "val_8"));
    assert_true(is_param(g, "val_9"));
    assert_true(is_param(g, "val_10"));
    graph_free(g);
}

static void what_is_tied_is_exported_from_its_one_parameter(void **state)
{
    float w[36];
    const struct sh_st_tensor trained = {.name = "words.weight",
                                         .dtype = SH_F32,
                                         .rank = 2,
                                         .dims = {6, 6},
                                         .data = w,
                                         .bytes = sizeof(w)};
    char in[128], st[128], out[128];
    struct sh_err err = {0};
    uint32_t y;
    struct graph *g = table_and_head(&y, true, false);

    (void)state;
    for (int i = 0; i < 36; i++)
        w[i] = (float)i;
    graph_free(through_a_file(g, y));
    path_of("in.onnx", in, sizeof(in));
    path_of("out.onnx", out, sizeof(out));
    assert_ok_err(sh_st_write(path_of("state", st, sizeof(st)), &trained, 1, NULL, &err), &err);
    assert_ok_err(onnx_export(in, st, out, &err), &err);
    assert_ok_err(onnx_read(out, &g, &err), &err);
    check_tied(g, "val_7");
    assert_memory_equal(g->values[graph_find(g, "words.weight")].data, w, sizeof(w));
    graph_free(g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_weighs_or_has_the_name_of_an_attribute_is_a_parameter),
        cmocka_unit_test(a_table_learns_if_no_formula_gives_its_numbers),
        cmocka_unit_test(a_table_that_is_multiplied_with_learns_if_no_formula_gives_it),
        cmocka_unit_test(a_token_that_is_joined_learns),
        cmocka_unit_test(zeros_that_are_added_to_logits_stay),
        cmocka_unit_test(positions_that_are_sines_stay_whatever_they_are_called),
        cmocka_unit_test(a_number_learns_if_it_has_the_name_of_an_attribute),
        cmocka_unit_test(a_line_is_of_the_code),
        cmocka_unit_test(ones_of_a_norm_without_parameters_stay_ones),
        cmocka_unit_test(a_group_norm_learns_its_weight_and_bias),
        cmocka_unit_test(numbers_of_channels_are_parameters_whatever_they_are_called),
        cmocka_unit_test(a_scale_behind_a_convolution_learns_if_it_has_a_name),
        cmocka_unit_test(equal_by_chance_is_trained_apart_and_tied_by_design_as_one),
        cmocka_unit_test(single_numbers_are_trained_apart_if_they_have_a_name_or_axes),
        cmocka_unit_test(equal_by_chance_under_another_name_is_trained_apart_too),
        cmocka_unit_test(copies_have_a_limit_wherever_the_node_stands_that_hands_it_on),
        cmocka_unit_test(frequencies_stay_although_positions_are_multiplied_with_them),
        cmocka_unit_test(what_was_trained_apart_is_exported_apart),
        cmocka_unit_test(a_table_that_is_also_the_last_product_is_one_parameter),
        cmocka_unit_test(what_is_turned_is_tied_if_it_has_no_name_of_its_own),
        cmocka_unit_test(two_forms_of_a_weight_are_tied),
        cmocka_unit_test(what_is_of_the_formula_of_a_weight_stays),
        cmocka_unit_test(a_module_that_is_used_twice_has_one_weight_and_copies_have_two),
        cmocka_unit_test(what_is_tied_is_exported_from_its_one_parameter),
    };

    return cmocka_run_group_tests(tests, make_folder, drop_folder);
}
