/* test_unfold.c - Without it: a network whose norms the exporter put into its convolutions would be
 * trained without norms, although it is new; or one that has learned would lose what it knows, as
 * it would be taken for new. */
/* uses: libmodel.a libdevice.a */
/* link: -ldl -lprotobuf-c -lm */
#include "common/safetensors.h"
#include "runtime/model/onnx_file.h"
#include "runtime/model/onnx_unfold.h"
#include "tests/unit/param_file.h"

/* Even numbers in [-range, range], the largest of them at its end. */
static uint32_t drawn(struct graph *g, const char *name, int rank, const int64_t *dims, float range)
{
    uint32_t v = param(g, name, rank, dims);
    const int64_t n = graph_elements(&g->values[v]);

    for (int64_t i = 0; i < n; i++)
        ((float *)g->values[v].data)[i] = range * (float)((i * 29 + 7) % n * 2 - n + 1) / (float)n;
    return v;
}

static void was_folded(Onnx__NodeProto *n, const char *call)
{
    add_meta(n, "pkg.torch.onnx.fx_node", call);
    add_meta(n, "pkg.torch.onnx.name_scopes", "['', 'net.bn1', 'batch_norm']");
    add_meta(n, "pkg.onnxscript.rewriter.rule_name",
             "RemoveOptionalBiasFromConv, FuseBatchNormIntoConv");
}

static void fold_first(Onnx__GraphProto *g, const char *call)
{
    was_folded(g->node[0], call);
}

/* A convolution of 4 channels with 3 x 3 weights into 5, behind which there was a norm. */
static void write_file(float range, bool bias, const char *call)
{
    const int64_t dims[4] = {5, 4, 3, 3};
    struct sh_err err = {0};
    struct graph *g = new_graph();
    char path[128];
    uint32_t x = input(g, "x", 4, (int64_t[]){-1, 4, 6, 6});
    uint32_t w = drawn(g, "conv.weight", 4, dims, range);

    x = bias ? NODE(g, "Conv", "c", x, w, drawn(g, "conv.bias", 1, dims, range / 2))
             : NODE(g, "Conv", "c", x, w);
    x = NODE(g, "Relu", "y", x);
    assert_ok(graph_add_output(g, x, NULL));
    path_of("in.onnx", path, sizeof(path));
    assert_ok_err(onnx_write(g, path, &err), &err);
    graph_free(g);
    edit(fold_first, call);
}

static const char CALL[] =
    "%n : [num_users=1] = call_function[target=torch.ops.aten._native_batch_norm_legit_no_training."
    "default](args = (%conv2d, %w, %b, %m, %v, 0.1, 0.001), kwargs = {})";

static struct graph *read_back(const char *name)
{
    struct sh_err err = {0};
    struct graph *g = NULL;
    char path[128];

    assert_ok_err(onnx_read(path_of(name, path, sizeof(path)), &g, &err), &err);
    return g;
}

static bool has_norm(const struct graph *g)
{
    for (uint32_t i = 0; i < g->n_nodes; i++)
        if (strcmp(g->nodes[i].op, "BatchNormalization") == 0)
            return true;
    return false;
}

static const float *data_of(const struct graph *g, const char *name)
{
    uint32_t v = graph_find(g, name);

    if (v == GRAPH_NONE || !g->values[v].data)
        fail_msg("there is no %s", name);
    return g->values[v].data;
}

static void a_new_norm_is_there_again_with_the_weights_before_it(void **state)
{
    const int64_t dims[4] = {5, 4, 3, 3};
    struct graph *g, *plain = new_graph();
    const float *was;
    uint32_t v;

    (void)state;
    write_file(2.0f, false, CALL);
    g = read_back("in.onnx");
    assert_true(has_norm(g));
    assert_int_equal(g->n_unfolded, 1);
    assert_int_equal(g->n_folded, 0);
    assert_true(g->values[graph_find(g, "net.bn1.weight")].is_param);
    v = drawn(plain, "w", 4, dims, 2.0f);
    was = plain->values[v].data;
    for (int i = 0; i < 180; i++)
        assert_true(fabsf(data_of(g, "conv.weight")[i] - was[i] * sqrtf(1.001f)) < 1e-6f);
    for (int i = 0; i < 5; i++) {
        assert_true(data_of(g, "net.bn1.weight")[i] == 1.0f);
        assert_true(data_of(g, "net.bn1.running_var")[i] == 1.0f);
        assert_true(data_of(g, "net.bn1.running_mean")[i] == 0.0f);
    }
    graph_free(plain);
    graph_free(g);
}

/* 36 inputs: PyTorch draws weights and bias from -1/6 to 1/6. */
static void with_a_bias_it_is_new_if_weights_fill_the_range_they_are_drawn_from(void **state)
{
    static const struct {
        float range;
        uint32_t back;
    } CASES[] = {{0.1665f, 1}, {0.2f, 0}, {0.1f, 0}};

    (void)state;
    for (size_t i = 0; i < SH_ARRAY_LEN(CASES); i++) {
        struct graph *g;

        write_file(CASES[i].range, true, CALL);
        g = read_back("in.onnx");
        if (g->n_unfolded != CASES[i].back || g->n_folded != 1 - CASES[i].back)
            fail_msg("range %g: %u norms are back", (double)CASES[i].range, g->n_unfolded);
        assert_int_equal(has_norm(g), CASES[i].back);
        graph_free(g);
    }
}

static void what_the_file_does_not_say_stays_lost(void **state)
{
    static const char *const CALLS[] = {"", "batch_norm", "batch_norm(args = (%x), kwargs = {})",
                                        "batch_norm(args = (%x, 0.1, nan), kwargs = {})",
                                        "batch_norm(args = (%x, 2, 1e-5), kwargs = {})"};
    struct graph *g;

    (void)state;
    for (size_t i = 0; i < SH_ARRAY_LEN(CALLS); i++) {
        write_file(2.0f, false, CALLS[i]);
        g = read_back("in.onnx");
        assert_false(has_norm(g));
        assert_int_equal(g->n_folded, 1);
        graph_free(g);
    }
    write_file(0.0f, false, CALL); /* a norm that began with zeros took the weights with it */
    g = read_back("in.onnx");
    assert_false(has_norm(g));
    graph_free(g);
}

static void no_name(Onnx__GraphProto *g, const char *call)
{
    (void)call;
    free(g->node[0]->op_type);
    g->node[0]->op_type = NULL;
}

static void other_domain(Onnx__GraphProto *g, const char *call)
{
    (void)call;
    free(g->node[0]->domain);
    g->node[0]->domain = strdup("com.microsoft");
}

static void only_a_convolution_of_the_standard_had_a_norm(void **state)
{
    Onnx__ModelProto *m = NULL;
    struct onnx_source *source = NULL;
    struct graph *g = NULL;
    struct sh_err err = {0};
    uint32_t back, lost;
    char path[128];

    (void)state;
    write_file(2.0f, false, CALL);
    edit(no_name, NULL);
    path_of("in.onnx", path, sizeof(path));
    assert_int_not_equal(onnx_read(path, &g, &err), SH_OK);
    write_file(2.0f, false, CALL);
    edit(other_domain, NULL);
    assert_ok_err(onnx_file_load(path, false, &source, &m, &err), &err);
    assert_ok_err(onnx_unfold(m, source, &back, &lost, &err), &err);
    assert_int_equal(back, 0);
    assert_int_equal(lost, 1);
    onnx_file_free(m);
    onnx_source_close(source);
}

static void read_new_norm(Onnx__GraphProto *g, const char *call)
{
    Onnx__NodeProto *n = g->node[1];
    const char *words[3] = {"c", "w2", "net.bn1.bias"};

    for (size_t i = 0; i < 3; i++) {
        free(n->input[i]);
        n->input[i] = strdup(words[i]);
    }
    fold_first(g, call);
    was_folded(n, call);
}

/* The second convolution has a bias that is in the file only when the first has its norm again. */
static void a_part_of_a_new_norm_is_no_weight_of_the_next_convolution(void **state)
{
    const int64_t dims[4] = {5, 5, 3, 3};
    struct graph *g = new_graph();
    struct sh_err err = {0};
    char path[128];
    uint32_t x = input(g, "x", 4, (int64_t[]){-1, 4, 6, 6}), w, b;

    (void)state;
    w = drawn(g, "w1", 4, (int64_t[]){5, 4, 3, 3}, 2.0f);
    x = NODE(g, "Conv", "c", x, w);
    w = drawn(g, "w2", 4, dims, 0.149f);
    b = drawn(g, "b2", 1, dims, 0.1f);
    x = NODE(g, "Conv", "y", x, w, b);
    assert_ok(graph_add_output(g, x, NULL));
    assert_ok_err(onnx_write(g, path_of("in.onnx", path, sizeof(path)), &err), &err);
    graph_free(g);
    edit(read_new_norm, CALL);
    g = read_back("in.onnx");
    assert_int_equal(g->n_unfolded, 1);
    assert_int_equal(g->n_folded, 1);
    graph_free(g);
}

/* Without a weight and a bias of its own it is no norm that can be put back. */
static void a_norm_that_learns_nothing_stays_in_the_weights(void **state)
{
    struct graph *g;

    (void)state;
    write_file(2.0f, false,
               "%n = call_function[target=aten.batch_norm](args = (%conv2d, None, None, %m, %v, "
               "0.1, 0.001), kwargs = {})");
    g = read_back("in.onnx");
    assert_false(has_norm(g));
    assert_int_equal(g->n_folded, 1);
    graph_free(g);
}

static void what_was_trained_is_exported_with_its_norm_and_read_as_it_is(void **state)
{
    static const float WEIGHT[5] = {3, 1, 4, 1, 5};
    const struct sh_st_tensor trained = {.name = "net.bn1.weight",
                                         .dtype = SH_F32,
                                         .rank = 1,
                                         .dims = {5},
                                         .data = WEIGHT,
                                         .bytes = sizeof(WEIGHT)};
    char in[128], st[128], out[128];
    struct sh_err err = {0};
    struct graph *g;

    (void)state;
    write_file(2.0f, false, CALL);
    path_of("in.onnx", in, sizeof(in));
    path_of("out.onnx", out, sizeof(out));
    assert_ok_err(sh_st_write(path_of("state", st, sizeof(st)), &trained, 1, NULL, &err), &err);
    assert_ok_err(onnx_export(in, st, out, &err), &err);
    g = read_back("out.onnx");
    assert_memory_equal(data_of(g, "net.bn1.weight"), WEIGHT, sizeof(WEIGHT));
    assert_int_equal(g->n_unfolded + g->n_folded, 0);
    graph_free(g);
}

static void leave_out_bias(Onnx__GraphProto *g, const char *rule)
{
    add_meta(g->node[0], "pkg.onnxscript.rewriter.rule_name", rule);
}

static void call_it(Onnx__GraphProto *g, const char *call)
{
    add_meta(g->node[0], "pkg.torch.onnx.fx_node", call);
}

struct biased {
    const char *op, *name, *rule;
    int64_t dims[4], want;
    const char *call;
    int64_t group; /* 0: the file has none */
};

static const struct graph_value *bias_of(const struct biased *b, struct graph **out)
{
    const int rank = strcmp(b->op, "Gemm") == 0 ? 2 : 4;
    struct sh_err err = {0};
    struct graph *g = new_graph();
    char path[128];
    uint32_t x = input(g, "x", rank, (int64_t[]){-1, 4, 6, 6}), at;

    x = NODE(g, b->op, "y", x, learned(g, b->name, rank, b->dims));
    if (b->group)
        assert_ok(graph_set_int(&g->nodes[0], "group", b->group, NULL));
    assert_ok(graph_add_output(g, x, NULL));
    assert_ok_err(onnx_write(g, path_of("in.onnx", path, sizeof(path)), &err), &err);
    graph_free(g);
    edit(leave_out_bias, b->rule);
    if (b->call)
        edit(call_it, b->call);
    *out = read_back("in.onnx");
    at = graph_find(*out, "head.bias");
    return at == GRAPH_NONE ? NULL : &(*out)->values[at];
}

#define TARGET "%c : [num_users=1] = call_function[target=torch.ops.aten."

/* The newer exporter drops a bias of zeros, which a new model has often: it would never learn.
 * Where there was none it makes one first, and drops it likewise. */
static void a_bias_of_zeros_comes_back(void **state)
{
    static const struct biased ROWS[] = {
        {"Conv", "head.weight", "RemoveOptionalBiasFromConv", {5, 4, 3, 3}, 5, NULL},
        {"ConvTranspose",
         "head.weight",
         "RemoveOptionalBiasFromConvTranspose",
         {4, 3, 2, 2},
         3,
         TARGET "conv_transpose2d.input](args = (%x, %p_w, %p_b, [2, 2]), kwargs = {})"},
        {"Gemm",
         "head.weight",
         "RemoveOptionalBiasFromGemm",
         {4, 7},
         7,
         TARGET "addmm.default](args = (%p_b, %x, %t), kwargs = {})"},
        {"Gemm",
         "head.weight",
         "RemoveOptionalBiasFromGemm",
         {4, 7},
         0,
         TARGET "linear.default](args = (%x, %p_w), kwargs = {})"},
        {"Conv",
         "head.weight",
         "RemoveOptionalBiasFromConv",
         {5, 4, 3, 3},
         0,
         TARGET "conv2d.default](args = (%x, %p_w), kwargs = {})"},
        {"Conv",
         "head.weight",
         "RemoveOptionalBiasFromConv",
         {5, 4, 3, 3},
         0,
         TARGET "conv2d.default](args = (%x, %p_w, None, [1, 1], [1, 1]), kwargs = {})"},
        {"Conv", "head.weight", "SomethingElse", {5, 4, 3, 3}, 0, NULL},
        {"Conv", "val_3", "RemoveOptionalBiasFromConv", {5, 4, 3, 3}, 0, NULL},
        {.op = "ConvTranspose",
         .name = "head.weight",
         .rule = "RemoveOptionalBiasFromConvTranspose",
         .dims = {4, 8, 2, 2},
         .group = INT64_C(1) << 62}, /* more channels than a number holds */
    };

    (void)state;
    for (size_t i = 0; i < SH_ARRAY_LEN(ROWS); i++) {
        struct graph *g;
        const struct graph_value *b = bias_of(&ROWS[i], &g);

        assert_int_equal(b ? b->dims[0] : 0, ROWS[i].want);
        assert_true(!b || (b->is_param && ((const float *)b->data)[0] == 0));
        graph_free(g);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_bias_of_zeros_comes_back),
        cmocka_unit_test(a_new_norm_is_there_again_with_the_weights_before_it),
        cmocka_unit_test(with_a_bias_it_is_new_if_weights_fill_the_range_they_are_drawn_from),
        cmocka_unit_test(what_the_file_does_not_say_stays_lost),
        cmocka_unit_test(only_a_convolution_of_the_standard_had_a_norm),
        cmocka_unit_test(a_part_of_a_new_norm_is_no_weight_of_the_next_convolution),
        cmocka_unit_test(a_norm_that_learns_nothing_stays_in_the_weights),
        cmocka_unit_test(what_was_trained_is_exported_with_its_norm_and_read_as_it_is),
    };

    return cmocka_run_group_tests(tests, make_folder, drop_folder);
}
