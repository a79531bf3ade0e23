/* test_padding.c - Without it: the row of a table that stands for padding, which PyTorch leaves
 * alone, would be trained. */
/* uses: libmodel.a libdevice.a */
/* link: -ldl -lprotobuf-c -lm */
#include "tests/unit/param_file.h"

static const char CALL[] =
    "%embedding : [num_users=1] = call_function[target=torch.ops.aten.embedding.default]"
    "(args = (%words, %ids%s), kwargs = {})";

static void call_first(Onnx__GraphProto *g, const char *call)
{
    if (call)
        add_meta(g->node[0], "pkg.torch.onnx.fx_node", call);
}

/* A table of 6 rows, of which n_zeros from the third on are zeros. Returns the row for padding of
 * the Gather that takes its rows, read from a file. */
static int64_t padding_of(int n_zeros, const char *third)
{
    const int64_t dims[2] = {6, 4}, n = 3;
    struct graph *g = new_graph(), *back = NULL;
    struct sh_err err = {0};
    char path[128], call[256];
    uint32_t table = learned(g, "words.weight", 2, dims), ids;
    int64_t row = -2;

    memset((float *)g->values[table].data + 8, 0, (size_t)n_zeros * 4 * sizeof(float));
    assert_ok(graph_add_value(g, "ids", SH_I64, 1, &n, &ids, NULL));
    assert_ok(graph_add_input(g, ids, NULL));
    assert_ok(graph_add_output(g, NODE(g, "Gather", "y", table, ids), NULL));
    assert_ok_err(onnx_write(g, path_of("in.onnx", path, sizeof(path)), &err), &err);
    graph_free(g);
    snprintf(call, sizeof(call), "%.*s%s%s", (int)(strstr(CALL, "%s") - CALL), CALL,
             third ? third : "", strstr(CALL, "%s") + 2);
    edit(call_first, third ? call : NULL);
    assert_ok_err(onnx_read(path, &back, &err), &err);
    assert_ok(graph_int(&back->nodes[0], GRAPH_PADDING, -3, &row, NULL));
    graph_free(back);
    return row;
}

static void a_row_for_padding_is_what_the_exporter_says(void **state)
{
    (void)state;
    assert_int_equal(padding_of(0, ", 0"), 0);
    assert_int_equal(padding_of(0, ", 5, True, False"), 5);
    assert_int_equal(padding_of(0, ""), -1);
    assert_int_equal(padding_of(1, ""), -1);
    assert_int_equal(padding_of(1, ", -1, True"), -1);
}

static void else_it_is_the_one_row_of_zeros(void **state)
{
    (void)state;
    assert_int_equal(padding_of(0, NULL), -1);
    assert_int_equal(padding_of(1, NULL), 2);
    assert_int_equal(padding_of(2, NULL), -1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_row_for_padding_is_what_the_exporter_says),
        cmocka_unit_test(else_it_is_the_one_row_of_zeros),
    };

    return cmocka_run_group_tests(tests, make_folder, drop_folder);
}
