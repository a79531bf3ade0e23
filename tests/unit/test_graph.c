/* test_graph.c - Without it: builders could leave half a node behind, or an unsound graph could
 * reach the code that trusts its numbers. */
/* uses: libmodel.a */
#include "common/mem.h"
#include "tests/unit/graph_text.h"

static void names_attributes_and_links_are_copied(void **state)
{
    char name[] = "node", attr[] = "axis";
    uint32_t in[1], out[1], n;
    struct graph *g;
    int64_t v;
    (void)state;

    assert_ok(graph_new(&g, NULL));
    assert_ok(graph_add_value(g, "a", SH_F32, 1, (int64_t[]){2}, &in[0], NULL));
    assert_ok(graph_add_value(g, "b", SH_F32, -1, NULL, &out[0], NULL));
    assert_ok(graph_add_node(g, name, "Softmax", in, 1, out, 1, &n, NULL));
    assert_ok(graph_set_int(&g->nodes[n], attr, 1, NULL));
    name[0] = attr[0] = 'X';
    in[0] = 77;
    assert_string_equal(g->nodes[n].name, "node");
    assert_int_equal(g->nodes[n].in[0], 0);
    assert_ok(graph_int(&g->nodes[n], "axis", 9, &v, NULL));
    assert_int_equal(v, 1);
    assert_ok(graph_set_int(&g->nodes[n], "axis", 2, NULL)); /* replaces */
    assert_int_equal(g->nodes[n].n_attrs, 1);
    assert_ok(graph_int(&g->nodes[n], "axis", 9, &v, NULL));
    assert_int_equal(v, 2);
    assert_ok(graph_int(&g->nodes[n], "other", 9, &v, NULL));
    assert_int_equal(v, 9);
    assert_int_equal(graph_find(g, "b"), 1);
    assert_int_equal(graph_find(g, "c"), GRAPH_NONE);
    graph_free(g);
}

static void a_node_without_a_name_gets_one(void **state)
{
    struct graph *g;
    uint32_t n;
    (void)state;

    assert_ok(graph_new(&g, NULL));
    assert_ok(graph_add_node(g, NULL, "Relu", NULL, 0, NULL, 0, NULL, NULL));
    assert_ok(graph_add_node(g, "", "Relu", NULL, 0, NULL, 0, &n, NULL));
    assert_string_equal(g->nodes[0].name, "Relu_0");
    assert_string_equal(g->nodes[n].name, "Relu_1");
    graph_free(g);
}

static void an_attribute_of_another_kind_is_named_in_the_error(void **state)
{
    struct graph *g;
    struct sh_err err = {0};
    int64_t list[2];
    size_t k;
    double f;
    const char *s;
    (void)state;

    assert_ok(graph_new(&g, NULL));
    assert_ok(graph_add_node(g, "n1", "Conv", NULL, 0, NULL, 0, NULL, NULL));
    assert_ok(graph_set_ints(&g->nodes[0], "pads", (int64_t[]){1, 2, 3}, 3, NULL));
    assert_fails(graph_ints(&g->nodes[0], "pads", list, 2, &k, &err), SH_E_INVALID, &err,
                 "pads of Conv node n1 has 3 numbers");
    memset(&err, 0, sizeof(err));
    assert_fails(graph_float(&g->nodes[0], "pads", 0, &f, &err), SH_E_INVALID, &err,
                 "pads of Conv node n1 is not a number");
    memset(&err, 0, sizeof(err));
    assert_fails(graph_str(&g->nodes[0], "pads", NULL, &s, &err), SH_E_INVALID, &err, "n1");
    graph_free(g);
}

static void sizes_that_overflow_do_not_enter(void **state)
{
    struct sh_err err = {0};
    struct graph *g;
    float *data = calloc(4, sizeof(*data));
    uint32_t v;
    (void)state;

    assert_non_null(data);
    assert_ok(graph_new(&g, NULL));
    assert_fails(
        graph_add_value(g, "v", SH_F32, 3, (int64_t[]){1 << 21, 1 << 21, 1 << 22}, &v, &err),
        SH_E_TOOBIG, &err, "too large");
    memset(&err, 0, sizeof(err));
    assert_fails(graph_add_value(g, "v", SH_F32, 1, (int64_t[]){(int64_t)1 << 41}, &v, &err),
                 SH_E_TOOBIG, &err, "too large");
    memset(&err, 0, sizeof(err));
    assert_fails(graph_add_const(g, "v", SH_F32, 1, (int64_t[]){-4}, data, &v, &err), SH_E_INVALID,
                 &err, "negative");
    memset(&err, 0, sizeof(err));
    assert_fails(graph_add_value(g, "v", SH_F32, 9, NULL, &v, &err), SH_E_INVALID, &err, "rank 9");
    memset(&err, 0, sizeof(err));
    assert_fails(graph_add_value(g, "", SH_F32, 0, NULL, &v, &err), SH_E_INVALID, &err, "no name");
    assert_int_equal(g->n_values, 0);
    free(data); /* still ours after a failure */
    graph_free(g);
}

static void an_unsound_graph_is_refused_with_the_reason(void **state)
{
    struct sh_err err = {0};
    struct graph *g = text_graph("Relu", "f[2,3]", "", 1);
    char *list;
    (void)state;

    assert_ok(graph_check(g, false, &list, &err));
    assert_null(list);
    g->nodes[0].in[0] = 1; /* its own output */
    assert_fails(graph_check(g, false, &list, &err), SH_E_INVALID, &err, "before anything defines");
    memset(&err, 0, sizeof(err));
    g->nodes[0].in[0] = 99;
    assert_fails(graph_check(g, false, &list, &err), SH_E_INVALID, &err, "does not exist");
    memset(&err, 0, sizeof(err));
    g->nodes[0].in[0] = 0;
    g->nodes[0].out[0] = 0;
    assert_fails(graph_check(g, false, &list, &err), SH_E_INVALID, &err, "a second time");
    memset(&err, 0, sizeof(err));
    g->nodes[0].out[0] = 1;
    g->outputs[0] = 7;
    assert_fails(graph_check(g, false, &list, &err), SH_E_INVALID, &err, "output 0");
    memset(&err, 0, sizeof(err));
    g->outputs[0] = 1;
    g->values[0].dims[1] = -1;
    assert_fails(graph_check(g, false, &list, &err), SH_E_INVALID, &err, "axis 1 of input in0");
    graph_free(g);
}

/* A user wants to see everything that is missing at once, not one per try. */
static void every_unsupported_node_is_in_the_list(void **state)
{
    struct sh_err err = {0};
    struct graph *g = text_graph("Foo", "f[2,3]", "", 1);
    uint32_t y = g->outputs[0], in[1], a, b, node;
    char *list = NULL;
    (void)state;

    in[0] = g->inputs[0];
    assert_ok(graph_add_value(g, "a", SH_F32, -1, NULL, &a, NULL));
    assert_ok(graph_add_value(g, "b", SH_F32, -1, NULL, &b, NULL));
    assert_ok(graph_add_node(g, "to text", "Cast", in, 1, &a, 1, &node, NULL));
    assert_ok(graph_set_int(&g->nodes[node], "to", 8, NULL));
    assert_ok(graph_add_node(g, "after", "Relu", &y, 1, &b, 1, NULL, NULL)); /* no shape: skipped */
    assert_fails(graph_check(g, false, &list, &err), SH_E_UNSUPPORTED, &err, "2 of 3 nodes");
    assert_has(list, "Foo n: the operator is not supported\n");
    assert_has(list, "Cast to_text: casts to element type 8");
    assert_has_not(list, "Relu");
    free(list);
    graph_free(g);
}

static void what_no_output_needs_is_gone(void **state)
{
    struct graph *g = text_graph("Relu", "f[2,3]", "", 1), *b;
    uint32_t unused;
    (void)state;

    assert_ok(graph_add_value(g, "unused", SH_F32, -1, NULL, &unused, NULL));
    assert_ok(graph_add_node(g, "dead", "Tanh", g->inputs, 1, &unused, 1, NULL, NULL));
    assert_ok(graph_at_batch(g, 2, false, &b, NULL));
    assert_int_equal(b->n_nodes, 1);
    assert_int_equal(b->n_values, 2);
    assert_int_equal(graph_find(b, "unused"), GRAPH_NONE);
    graph_free(b);
    graph_free(g);
}

static void weights_are_shared_with_the_source(void **state)
{
    struct graph *g = text_graph("MatMul", "f[2,3] p[3,4]", "", 1), *b;
    (void)state;

    assert_ok(graph_at_batch(g, 2, false, &b, NULL));
    assert_ptr_equal(b->values[graph_find(b, "in1")].data, g->values[graph_find(g, "in1")].data);
    assert_true(b->values[graph_find(b, "in1")].data_borrowed);
    graph_free(b);
    graph_free(g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_attributes_and_links_are_copied),
        cmocka_unit_test(a_node_without_a_name_gets_one),
        cmocka_unit_test(an_attribute_of_another_kind_is_named_in_the_error),
        cmocka_unit_test(sizes_that_overflow_do_not_enter),
        cmocka_unit_test(an_unsound_graph_is_refused_with_the_reason),
        cmocka_unit_test(every_unsupported_node_is_in_the_list),
        cmocka_unit_test(what_no_output_needs_is_gone),
        cmocka_unit_test(weights_are_shared_with_the_source),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
