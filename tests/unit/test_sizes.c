/* test_sizes.c - Without it: the API could make too little room for an output whose size follows
 * from that of an input, or programs for two lengths could not share one image. */
/* uses: libmodel.a libdevice.a */
/* link: -ldl */
#include "runtime/model/package.h"
#include "runtime/model/program.h"
#include "tests/unit/graph_nodes.h"
#include "tests/unit/graph_text.h"

#include <math.h>

static struct graph *symbols(struct graph *g, const char *a, const char *b)
{
    int k;

    assert_ok(sh_symbol_add(&g->symbols, a, &k, NULL));
    if (b)
        assert_ok(sh_symbol_add(&g->symbols, b, &k, NULL));
    graph_settle(g, false);
    return g;
}

/* The rules that were found against shapes of their own, at sizes that were tried or not. */
static void check_rules(struct graph *g, const uint32_t (*sizes)[2], size_t n)
{
    struct sh_err err = {0};

    assert_ok_err(graph_infer_outputs(g, false, &err), &err);
    for (size_t i = 0; i < n; i++) {
        const struct graph_sizes at = {
            .batch = graph_fixed_batch(g) ? 1 : (int64_t)i + 1,
            .of = {.v = {sizes[i][0], sizes[i][1]}, .n = (uint32_t)g->symbols.n}};
        struct graph *b = NULL;

        assert_ok_err(graph_at(g, &at, false, &b, &err), &err);
        for (int k = 0; k < b->values[b->outputs[0]].rank; k++) {
            int64_t size;

            assert_ok(sh_dim_size(&g->output_dims[0][k], at.batch, &at.of, &size, NULL));
            assert_int_equal(size, b->values[b->outputs[0]].dims[k]);
        }
        graph_free(b);
    }
    graph_free(g);
}

static void sizes_of_outputs_follow_from_those_of_inputs(void **state)
{
    static const uint32_t SIZES[][2] = {{64, 64}, {65, 33}, {7, 130}, {1, 1}, {31, 1000}, {97, 5}};
    static const struct {
        const char *op, *in, *attrs;
    } OPS[] = {
        {"MaxPool", "f[-1,3,-2,-3]", "kernel_shape=3,3, strides=2,2, pads=1,1,1,1,"},
        {"MaxPool", "f[-1,3,-2,-3]", "kernel_shape=1,1, strides=7,32,"},
        {"Conv", "f[-1,3,-2,-3] p[8,3,5,5]", "pads=3,3,3,3, strides=3,1,"},
        {"Pad", "f[-1,3,-2,-3] i[8]=0,0,4,1,0,0,0,2", ""},
        {"Flatten", "f[-1,3,-2,-3]", "axis=1"},
        {"Flatten", "f[-1,3,-2,-3]", "axis=2"},
        {"Flatten", "f[-1,3,-2,-3]", "axis=0"},
        {"Transpose", "f[-1,3,-2,-3]", "perm=0,3,1,2,"},
        {"Relu", "f[-2,-3]", ""},
        {"ReduceMax", "f[-1,-2,-3] i[1]=1", "keepdims=0"},
    };

    (void)state;
    for (size_t i = 0; i < SH_ARRAY_LEN(OPS); i++) {
        struct sh_err err = {0};
        struct graph *g =
            symbols(text_graph(OPS[i].op, OPS[i].in, OPS[i].attrs, 1), "height", "width");

        if (strcmp(OPS[i].attrs, "axis=0") == 0) { /* [1, all of the batch] */
            assert_fails(graph_infer_outputs(g, false, &err), SH_E_UNSUPPORTED, &err,
                         "depends on the batch beyond its first axis");
            graph_free(g);
            continue;
        }
        check_rules(g, SIZES, SH_ARRAY_LEN(SIZES));
    }
}

static void sizes_that_must_agree_are_found(void **state)
{
    struct graph *g = symbols(text_graph("Add", "f[-1,-2] f[-1,-3]", "", 1), "x.1", "y.1");
    struct graph *b = NULL;
    struct sh_err err = {0};
    const struct graph_sizes odd = {.batch = 1, .of = {.v = {3, 4}, .n = 2}};

    (void)state;
    assert_int_equal(g->own.v[0], g->own.v[1]);
    assert_fails(graph_at(g, &odd, false, &b, &err), SH_E_INVALID, &err, "");
    graph_free(g);
    g = symbols(text_graph("MatMul", "f[-1,-2,-3] p[224,7]", "", 1), "channels", "width");
    assert_int_equal(g->own.v[1], 224);
    graph_free(g);
}

static void a_package_keeps_symbols(void **state)
{
    struct graph *g = symbols(text_graph("Relu", "f[-1,-2,-3]", "", 1), "seq", "a b"), *b = NULL;
    char dir[SH_TEST_DIR_BYTES];
    struct sh_err err = {0};

    (void)state;
    sh_test_dir_make(dir);
    assert_ok_err(graph_infer_outputs(g, false, &err), &err);
    assert_ok_err(package_write(g, dir, &err), &err);
    assert_ok_err(package_read(dir, &b, &err), &err);
    assert_memory_equal(&b->symbols, &g->symbols, sizeof(g->symbols));
    assert_memory_equal(&b->own, &g->own, sizeof(g->own));
    assert_int_equal(b->values[b->inputs[0]].dims[2], GRAPH_SYMBOL(1));
    graph_free(b);
    graph_free(g);
    sh_test_dir_remove(dir);
}

static uint32_t whole(struct graph *g, const char *name, int rank, int64_t v)
{
    int64_t *data = malloc(sizeof(*data)), one = 1;
    uint32_t out;

    assert_non_null(data);
    *data = v;
    assert_ok(graph_add_const(g, name, SH_I64, rank, &one, data, &out, NULL));
    return out;
}

/* Rows 0, 1 ... of a table of positions are added to the input, as in a transformer. */
static struct graph *with_positions(void)
{
    struct graph *g = new_graph();
    uint32_t x = input(g, "x", 3, (int64_t[]){-1, -2, 4});
    uint32_t table = param(g, "positions", 2, (int64_t[]){100, 4});
    uint32_t shape = NODE(g, "Shape", "shape", x), at = whole(g, "one", 0, 1);
    uint32_t n = NODE(g, "Gather", "n", shape, at);
    uint32_t rows = NODE(g, "Range", "rows", whole(g, "zero", 0, 0), n, whole(g, "step", 0, 1));
    uint32_t w = param(g, "w", 2, (int64_t[]){4, 4});
    uint32_t y = NODE(g, "Add", "sum", x, NODE(g, "Gather", "rows of it", table, rows));

    assert_ok(graph_add_output(g, NODE(g, "MatMul", "y", y, w), NULL));
    return symbols(g, "seq", NULL);
}

static void two_lengths_share_one_image_and_are_right(void **state)
{
    struct dev_lib *l;
    struct dev *d = open_cpu(&l);
    struct graph *g = with_positions();
    struct program *base, *p;
    struct sh_err err = {0};

    (void)state;
    assert_ok_err(
        program_infer(d, g, &(struct graph_sizes){.batch = 2}, DEV_FP32, NULL, &base, &err), &err);
    for (uint32_t n = 1; n <= 100; n += 33) {
        const struct graph_sizes at = {.batch = 1, .of = {.v = {n}, .n = 1}};
        const float *table = g->values[graph_find(g, "positions")].data;
        const float *w = g->values[graph_find(g, "w")].data;
        float *x = calloc(n * 4, sizeof(*x)), *y;
        size_t bytes;

        assert_non_null(x);
        for (uint32_t i = 0; i < n * 4; i++)
            x[i] = (float)(i * 37 % 101) / 101.0f;
        assert_ok_err(program_infer(d, g, &at, DEV_FP32, base, &p, &err), &err);
        assert_int_equal(program_image_bytes(p), program_image_bytes(base));
        y = run(d, p, x, &bytes);
        assert_int_equal(bytes, n * 4 * sizeof(float));
        for (uint32_t i = 0; i < n * 4; i++) {
            float want = 0;

            for (uint32_t k = 0; k < 4; k++)
                want += (x[i / 4 * 4 + k] + table[i / 4 * 4 + k]) * w[k * 4 + i % 4];
            assert_true(fabsf(y[i] - want) < 1e-5f);
        }
        program_free(p);
        free(x);
        free(y);
    }
    program_free(base);
    graph_free(g);
    dev_close(d);
    dev_lib_close(l);
}

/* x [B,S,2,16] attends to itself, as PyTorch writes it, and a product of that. */
static struct graph *with_attention(void)
{
    struct graph *g = new_graph();
    uint32_t x = input(g, "x", 4, (int64_t[]){-1, -2, 2, 16}), zero, q, k, s, y;
    float *data = calloc(1, sizeof(*data));

    assert_non_null(data);
    assert_ok(graph_add_const(g, "zero", SH_F32, 0, NULL, data, &zero, NULL));
    q = NODE(g, "Transpose", "q", x);
    assert_ok(graph_set_ints(&g->nodes[g->n_nodes - 1], "perm", (int64_t[]){0, 2, 1, 3}, 4, NULL));
    k = NODE(g, "Transpose", "k", x);
    assert_ok(graph_set_ints(&g->nodes[g->n_nodes - 1], "perm", (int64_t[]){0, 2, 3, 1}, 4, NULL));
    s = NODE(g, "Softmax", "s", NODE(g, "MatMul", "scores", q, k));
    assert_ok(graph_set_int(&g->nodes[g->n_nodes - 1], "axis", -1, NULL));
    s = NODE(g, "Where", "known", NODE(g, "IsNaN", "nan", s), zero, s);
    y = NODE(g, "Transpose", "rows", NODE(g, "MatMul", "mixed", s, q));
    assert_ok(graph_set_ints(&g->nodes[g->n_nodes - 1], "perm", (int64_t[]){0, 2, 1, 3}, 4, NULL));
    y = NODE(g, "MatMul", "y", y, param(g, "w", 2, (int64_t[]){16, 16}));
    assert_ok(graph_add_output(g, y, NULL));
    return symbols(g, "seq", NULL);
}

static void a_length_of_one_shares_the_image_of_others(void **state)
{
    struct dev_lib *l;
    struct dev *d = open_cpu(&l);
    struct graph *g = with_attention();
    const struct graph_sizes one = {.batch = 1, .of = {.v = {1}, .n = 1}};
    const float *w = g->values[graph_find(g, "w")].data;
    struct program *base, *p;
    struct sh_err err = {0};
    float x[32], *y;
    size_t bytes;

    (void)state;
    for (int i = 0; i < 32; i++)
        x[i] = (float)(i * 37 % 101) / 101.0f;
    assert_ok_err(
        program_infer(d, g, &(struct graph_sizes){.batch = 2}, DEV_FP32, NULL, &base, &err), &err);
    assert_ok_err(program_infer(d, g, &one, DEV_FP32, base, &p, &err), &err);
    y = run(d, p, x, &bytes);
    assert_int_equal(bytes, sizeof(x));
    for (int i = 0; i < 32; i++) { /* who is alone sees itself */
        float want = 0;

        for (int k = 0; k < 16; k++)
            want += x[i / 16 * 16 + k] * w[k * 16 + i % 16];
        assert_true(fabsf(y[i] - want) < 1e-5f);
    }
    free(y);
    program_free(p);
    program_free(base);
    graph_free(g);
    dev_close(d);
    dev_lib_close(l);
}

static void what_json_says_of_axes_is_read_again(void **state)
{
    const struct sh_symbols s = {.name = {"h", "w"}, .n = 2};
    const struct sh_dim dims[] = {
        sh_dim_is(SH_DIM_BATCH),
        sh_dim_fixed(3),
        sh_dim_is(1),
        {.add = 1, .mul = 4, .n = 2, .f = {{.of = 0, .plus = 3, .div = 8}, {.of = 1, .div = 2}}},
        {.add = 300, .is_most = true},
        {.mul = 6, .n = 1, .is_most = true, .f = {{.of = SH_DIM_BATCH, .div = 1}}}};
    json_t *io = json_pack("{s:[i,i,i,i,i,i], s:o}", "shape", -1, 3, -1, -1, -1, -1, "dims",
                           sh_dims_json(dims, 6, &s));
    const struct sh_sizes z = {.v = {13, 5}, .n = 2};
    struct sh_dim back[SH_MAX_RANK];
    size_t rank;
    int64_t size;

    (void)state;
    assert_ok(sh_dims_read(io, &s, back, &rank, NULL));
    assert_int_equal(rank, 6);
    assert_true(sh_dim_is_of(&back[2], 1));
    assert_int_equal(sh_dims_counted(back, 4), -1);
    assert_int_equal(sh_dims_counted(back, 6), 4);
    assert_true(back[5].is_most && !sh_dim_is_fixed(&back[4]) && !sh_dims_are_plain(&back[4], 1));
    assert_ok(sh_dim_size(&back[5], 7, &z, &size, NULL));
    assert_int_equal(size, 42);
    assert_ok(sh_dim_size(&back[3], 7, &z, &size, NULL));
    assert_int_equal(size, 1 + 4 * 2 * 2);
    json_decref(io);
    io = json_pack("{s:[i], s:[s]}", "shape", -1, "dims", "no such");
    assert_int_equal(sh_dims_read(io, &s, back, &rank, NULL), SH_E_BUG);
    json_decref(io);
    io = json_pack("{s:[i], s:[{s:{s:i}}]}", "shape", -1, "dims", "most", "most", 3);
    assert_int_equal(sh_dims_read(io, &s, back, &rank, NULL), SH_E_BUG);
    json_decref(io);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sizes_of_outputs_follow_from_those_of_inputs),
        cmocka_unit_test(sizes_that_must_agree_are_found),
        cmocka_unit_test(a_package_keeps_symbols),
        cmocka_unit_test(two_lengths_share_one_image_and_are_right),
        cmocka_unit_test(a_length_of_one_shares_the_image_of_others),
        cmocka_unit_test(what_json_says_of_axes_is_read_again),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
