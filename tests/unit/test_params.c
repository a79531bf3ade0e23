/* test_params.c - Without it: training would change attention's scale, masks and tables of the code
 * as if they were weights, and all norms of a fresh model would be trained as one, because the
 * exporter keeps equal numbers once. */
/* uses: libmodel.a libdevice.a */
/* link: -ldl -lprotobuf-c */
#include "common/safetensors.h"
#include "executor/model/onnx.h"
#include "tests/unit/graph_nodes.h"

#include <unistd.h>

static char folder[] = "/tmp/shunt-params.XXXXXX";

static int make_folder(void **state)
{
    (void)state;
    return mkdtemp(folder) ? 0 : -1;
}

static const char *path_of(const char *name, char *out, size_t size)
{
    snprintf(out, size, "%s/%s", folder, name);
    return out;
}

static int drop_folder(void **state)
{
    static const char *const NAMES[] = {"in.onnx", "state", "out.onnx"};
    char path[128];

    (void)state;
    for (size_t i = 0; i < SH_ARRAY_LEN(NAMES); i++)
        unlink(path_of(NAMES[i], path, sizeof(path)));
    return rmdir(folder);
}

static uint32_t uniform(struct graph *g, const char *name, int64_t n, float x)
{
    uint32_t v = param(g, name, 1, &n);

    for (int64_t i = 0; i < n; i++)
        ((float *)g->values[v].data)[i] = x;
    return v;
}

/* Written as a file and read again. TAKES g. */
static struct graph *through_a_file(struct graph *g, uint32_t y)
{
    struct graph *back = NULL;
    struct sh_err err = {0};
    char path[128];

    assert_ok(graph_add_output(g, y, NULL));
    assert_ok_err(onnx_write(g, path_of("in.onnx", path, sizeof(path)), &err), &err);
    graph_free(g);
    assert_ok_err(onnx_read(path, &back, &err), &err);
    return back;
}

static bool is_param(const struct graph *g, const char *name)
{
    uint32_t v = graph_find(g, name);

    if (v == GRAPH_NONE)
        fail_msg("there is no %s", name);
    return g->values[v].is_param;
}

static void what_weighs_or_has_the_name_of_an_attribute_is_a_parameter(void **state)
{
    static const struct {
        const char *name;
        bool want;
    } ADDED[] = {{"layers.0.gamma", true}, {"pos_embed", true},
                 {"bias1", true},          {"layers.0.attn_mask", false},
                 {"encoder.pe", false},    {"/Constant_3_output_0", false},
                 {"onnx::Add_77", false},  {"val_12", false}};
    struct graph *g = new_graph();
    uint32_t x = input(g, "x", 2, (int64_t[]){-1, 6}), w;

    (void)state;
    for (size_t i = 0; i < SH_ARRAY_LEN(ADDED); i++) {
        char out[16];

        snprintf(out, sizeof(out), "a%zu", i);
        x = NODE(g, "Add", out, x, param(g, ADDED[i].name, 1, (int64_t[]){6}));
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_weighs_or_has_the_name_of_an_attribute_is_a_parameter),
        cmocka_unit_test(ones_of_a_norm_without_parameters_stay_ones),
        cmocka_unit_test(a_group_norm_learns_its_weight_and_bias),
        cmocka_unit_test(equal_by_chance_is_trained_apart_and_tied_by_design_as_one),
        cmocka_unit_test(what_was_trained_apart_is_exported_apart),
    };

    return cmocka_run_group_tests(tests, make_folder, drop_folder);
}
