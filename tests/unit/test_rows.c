/* test_rows.c - Without it: what an exporter takes from a parameter beforehand is trained apart,
 * row by row, and the kind of a token has sixteen meanings after a fine-tuning. */
/* uses: libmodel.a libdevice.a */
/* link: -ldl -lprotobuf-c -lm */
#include "runtime/model/onnx_file.h"
#include "runtime/model/onnx_pack.h"
#include "tests/unit/param_file.h"

/* n times the same row. */
static uint32_t repeated(struct graph *g, const char *name, int64_t n)
{
    uint32_t v = learned(g, name, 3, (int64_t[]){1, n, 8});

    for (int64_t i = 8; i < n * 8; i++)
        ((float *)g->values[v].data)[i] = ((float *)g->values[v].data)[i - 8];
    return v;
}

/* The kind of a token is the same for all of a file's length: sixteen rows, and one parameter. What
 * has a name of its own, or is a mask, stays as it is. */
static void rows_that_were_taken_from_a_table_are_one_parameter(void **state)
{
    struct graph *g = new_graph();
    uint32_t x = input(g, "x", 3, (int64_t[]){-1, 16, 8}), v;

    (void)state;
    v = repeated(g, "embedding_1", 16);
    memcpy((float *)g->values[v].data + 24, (float[]){3, 1, 4, 1, 5, 9, 2, 6}, 32);
    x = NODE(g, "Add", "a", x, v);
    x = NODE(g, "Add", "b", x, repeated(g, "head.scale", 16));
    v = repeated(g, "expand_2", 16);
    for (int64_t i = 0; i < 128; i++)
        ((float *)g->values[v].data)[i] = i % 8 < 5 ? 0 : -1e9f;
    x = NODE(g, "Add", "c", x, v);
    g = through_a_file(g, x);
    assert_true(is_param(g, "embedding_1@rows"));
    assert_int_equal(g->values[graph_find(g, "embedding_1@rows")].dims[0], 2);
    assert_int_equal(g->values[graph_find(g, "embedding_1@rows")].dims[1], 8);
    assert_null(g->values[graph_find(g, "embedding_1")].data);
    assert_true(is_param(g, "head.scale"));
    assert_int_equal(graph_find(g, "head.scale@rows"), GRAPH_NONE);
    assert_int_equal(graph_find(g, "expand_2@rows"), GRAPH_NONE);
    assert_false(is_param(g, "expand_2"));
    graph_free(g);
}

/* Two tables were joined, and then given another axis: both are in the file. Layers that began as
 * copies have the same axes. */
static void what_was_computed_twice_is_one_parameter(void **state)
{
    const int64_t dims[] = {9, 1, 6}, flat[] = {9, 6};
    struct graph *g = new_graph();
    uint32_t x = input(g, "x", 4, (int64_t[]){-1, 9, 4, 9}), y;

    (void)state;
    y = NODE(g, "MatMul", "m", x, learned(g, "onnx::MatMul_28", 2, flat));
    y = NODE(g, "Add", "y", y, learned(g, "onnx::Concat_29", 3, dims));
    y = NODE(g, "Mul", "z", y, NODE(g, "MatMul", "m2", x, learned(g, "onnx::MatMul_30", 2, flat)));
    g = through_a_file(g, y);
    assert_true(is_param(g, "onnx::MatMul_28"));
    assert_null(g->values[graph_find(g, "onnx::Concat_29")].data);
    assert_true(is_param(g, "onnx::MatMul_30"));
    graph_free(g);
}

/* What eleven numbers say of six places, to one head; distances themselves are of the code. */
static void numbers_of_pairs_of_places_are_one_parameter(void **state)
{
    static const int64_t DIMS[] = {6, 6}, TABLE[] = {11};
    struct graph *g = new_graph(), *other = new_graph();
    const uint32_t table = learned(other, "t", 1, TABLE);
    const float *t = other->values[table].data;
    uint32_t x = input(g, "x", 3, (int64_t[]){-1, 6, 6});
    const uint32_t v = learned(g, "index", 2, DIMS), far = learned(g, "index_1", 2, DIMS);

    (void)state;
    for (int i = 0; i < 36; i++) {
        ((float *)g->values[v].data)[i] = t[5 + i / 6 - i % 6];
        ((float *)g->values[far].data)[i] = 0.1f * (float)(i / 6 - i % 6);
    }
    graph_free(other);
    x = NODE(g, "Add", "y", x, v);
    x = NODE(g, "Add", "z", x, far);
    g = through_a_file(g, x);
    assert_true(is_param(g, "index@rows"));
    assert_int_equal(g->values[graph_find(g, "index@rows")].rank, 1);
    assert_int_equal(g->values[graph_find(g, "index@rows")].dims[0], 11);
    assert_int_equal(graph_find(g, "index_1@rows"), GRAPH_NONE);
    assert_false(is_param(g, "index_1"));
    graph_free(g);
}

/* What a table of eleven distances says to two heads of six places. */
static void what_a_table_says_of_pairs_of_places_is_one_parameter(void **state)
{
    static const int64_t DIMS[] = {1, 2, 6, 6}, TABLE[] = {2, 11};
    struct graph *g = new_graph(), *at = NULL, *other = new_graph();
    struct sh_err err = {0};
    const uint32_t table = learned(other, "t", 2, TABLE);
    const float *t = other->values[table].data;
    float want[72];
    uint32_t x = input(g, "x", 4, (int64_t[]){-1, 2, 6, 6}), v = learned(g, "onnx::Add_7", 4, DIMS);

    (void)state;
    for (int i = 0; i < 72; i++)
        want[i] = t[i / 36 * 11 + 5 + i / 6 % 6 - i % 6];
    memcpy(g->values[v].data, want, sizeof(want));
    graph_free(other);
    x = NODE(g, "Add", "y", x, v);
    g = through_a_file(g, x);
    v = graph_find(g, "onnx::Add_7@rows");
    assert_true(v != GRAPH_NONE && g->values[v].is_param);
    assert_int_equal(g->values[v].rank, 3);
    assert_int_equal(g->values[v].dims[1], 2);
    assert_int_equal(g->values[v].dims[2], 11);
    assert_ok_err(graph_at_batch(g, 1, false, &at, &err), &err);
    v = graph_find(at, "onnx::Add_7");
    assert_true(v != GRAPH_NONE && at->values[v].data);
    assert_memory_equal(at->values[v].data, want, sizeof(want));
    graph_free(at);
    graph_free(g);
}

static void rows_of_a_table_are_the_numbers_that_were_in_the_file(void **state)
{
    const int64_t dims[3] = {1, 3, 8};
    struct graph *g = new_graph(), *at = NULL;
    struct sh_err err = {0};
    float want[24];
    uint32_t x = input(g, "x", 3, dims), v = learned(g, "expand", 3, dims);
    float *data = g->values[v].data;

    (void)state;
    memcpy(data + 16, data, 32);
    memcpy(want, data, sizeof(want));
    x = NODE(g, "Add", "y", x, v);
    g = through_a_file(g, x);
    assert_ok_err(graph_at_batch(g, 1, false, &at, &err), &err);
    v = graph_find(at, "expand");
    assert_int_not_equal(v, GRAPH_NONE);
    assert_memory_equal(at->values[v].data, want, sizeof(want));
    graph_free(at);
    graph_free(g);
}

/* A recurrent layer's first step from zeros leaves its bias, in another shape. */
static void what_has_the_numbers_of_a_bias_is_that_bias(void **state)
{
    const int64_t n = 8;
    struct graph *g = new_graph();
    uint32_t x = input(g, "x", 3, (int64_t[]){-1, 1, 8}), bias, same;

    (void)state;
    bias = learned(g, "cells.bias", 1, &n);
    same = learned(g, "linear_18", 3, (int64_t[]){1, 1, 8});
    x = NODE(g, "Add", "a", x, bias);
    x = NODE(g, "Add", "b", x, same);
    x = NODE(g, "Add", "c", x, learned(g, "copy.bias", 1, &n));
    g = through_a_file(g, x);
    assert_true(is_param(g, "cells.bias"));
    assert_true(is_param(g, "copy.bias")); /* equal, and a parameter of its own */
    assert_null(g->values[graph_find(g, "linear_18")].data);
    graph_free(g);
}

/* Each step that looks at the numbers sees all of them, also those that lie in another file. */
static void what_lies_in_another_file_is_found_too(void **state)
{
    struct onnx_source *source = NULL;
    Onnx__ModelProto *m = NULL;
    struct sh_err err = {0};
    char in[128], out[128];
    struct graph *g = new_graph();
    uint32_t x;

    (void)state;
    assert_ok(graph_add_value(g, "ids", SH_I64, 2, (int64_t[]){-1, 3}, &x, NULL));
    assert_ok(graph_add_input(g, x, NULL));
    x = NODE(g, "Gather", "rows", matrix(g, "words.weight", 64, 64, false), x);
    x = NODE(g, "MatMul", "head", x, matrix(g, "val_7", 64, 64, true));
    graph_free(through_a_file(g, x));
    path_of("in.onnx", in, sizeof(in));
    path_of("out.onnx", out, sizeof(out));
    assert_ok_err(onnx_file_load(in, false, &source, &m, &err), &err);
    assert_ok_err(onnx_pack_save(out, m, &err), &err);
    onnx_file_free(m);
    onnx_source_close(source);
    g = NULL;
    assert_ok_err(onnx_read(out, &g, &err), &err);
    assert_true(is_param(g, "words.weight"));
    assert_null(g->values[graph_find(g, "val_7")].data);
    graph_free(g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_that_were_taken_from_a_table_are_one_parameter),
        cmocka_unit_test(numbers_of_pairs_of_places_are_one_parameter),
        cmocka_unit_test(what_was_computed_twice_is_one_parameter),
        cmocka_unit_test(what_a_table_says_of_pairs_of_places_is_one_parameter),
        cmocka_unit_test(rows_of_a_table_are_the_numbers_that_were_in_the_file),
        cmocka_unit_test(what_has_the_numbers_of_a_bias_is_that_bias),
        cmocka_unit_test(what_lies_in_another_file_is_found_too),
    };

    return cmocka_run_group_tests(tests, make_folder, drop_folder);
}
