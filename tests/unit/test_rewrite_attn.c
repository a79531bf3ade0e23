/* test_rewrite_attn.c - Without it: attention, rotations and normalisations as opset 23 names them
 * could become something that is no one operation of the device, or take shapes that do not fit. */
/* uses: libmodel.a libdevice.a */
/* link: -ldl */
#include "tests/unit/graph_nodes.h"

enum { ROWS = 6, HEADS = 2, WIDTH = 4, LINE = HEADS * WIDTH };

static struct graph_node *last(struct graph *g)
{
    return &g->nodes[g->n_nodes - 1];
}

static void heads(struct graph *g, int64_t of_queries, int64_t of_keys)
{
    assert_ok(graph_set_int(last(g), "q_num_heads", of_queries, NULL));
    assert_ok(graph_set_int(last(g), "kv_num_heads", of_keys, NULL));
}

static void attention_is_one_operation(void **state)
{
    (void)state;
    for (int with_mask = 0; with_mask < 2; with_mask++) {
        struct graph *g = new_graph();
        uint32_t x = input(g, "x", 3, (int64_t[]){-1, ROWS, LINE}), q, k, v, y;
        const int64_t square[] = {LINE, LINE};
        char text[256];

        q = NODE(g, "MatMul", "q", x, param(g, "wq", 2, square));
        k = NODE(g, "MatMul", "k", x, param(g, "wk", 2, square));
        v = NODE(g, "MatMul", "v", x, param(g, "wv", 2, square));
        y = with_mask ? NODE(g, "Attention", "y", q, k, v,
                             input(g, "mask", 4, (int64_t[]){-1, 1, ROWS, ROWS}))
                      : NODE(g, "Attention", "y", q, k, v);
        heads(g, HEADS, HEADS);
        kinds(g, y, 3, false, text, sizeof(text));
        assert_string_equal(text, "MATMUL MATMUL MATMUL ATTENTION");
    }
}

static void refuses(struct graph *g, uint32_t y, const char *text)
{
    struct sh_err err = {0};
    struct graph *b = NULL;

    assert_ok(graph_add_output(g, y, NULL));
    assert_fails(graph_at_batch(g, 2, false, &b, &err), SH_E_INVALID, &err, text);
    graph_free(g);
}

static void shapes_that_do_not_fit_are_refused(void **state)
{
    const int64_t line[] = {-1, ROWS, LINE}, apart[] = {-1, 3, ROWS, WIDTH};
    struct graph *g = new_graph();
    uint32_t x = input(g, "x", 3, line), z;
    (void)state;

    z = NODE(g, "Attention", "y", x, x, x);
    heads(g, 3, 3);
    refuses(g, z, "8 columns are not 3 equal heads");
    g = new_graph();
    x = input(g, "x", 3, line);
    z = NODE(g, "Attention", "y", x, x, x);
    refuses(g, z, "8 columns are not 0 equal heads");
    g = new_graph();
    x = input(g, "x", 3, line);
    z = NODE(g, "Attention", "y", x, input(g, "k", 4, apart), x);
    refuses(g, z, "must all have 3 axes, or all 4");
    g = new_graph();
    x = input(g, "x", 4, (int64_t[]){-1, 4, ROWS, WIDTH});
    z = input(g, "k", 4, apart);
    z = NODE(g, "Attention", "y", x, z, z);
    refuses(g, z, "4 heads of queries share 3 of keys");
    g = new_graph();
    x = input(g, "x", 3, line);
    z = param(g, "table", 3, (int64_t[]){1, ROWS, 1});
    z = NODE(g, "RotaryEmbedding", "y", x, z, z);
    refuses(g, z, "num_heads equal heads");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(attention_is_one_operation),
        cmocka_unit_test(shapes_that_do_not_fit_are_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
