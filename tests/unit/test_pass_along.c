/* test_pass_along.c - Without it: a weight that is turned is read as if it were not, or one that
 * something else reads too is there twice. */
/* uses: libmodel.a libdevice.a */
/* link: -ldl */
#include "tests/unit/graph_nodes.h"

enum { ROWS = 37, COLUMNS = 70, BATCH = 3 };

static struct ir *lowered(struct graph *g, uint32_t y, struct graph **at)
{
    struct sh_err err = {0};
    struct ir *ir;

    assert_ok(graph_add_output(g, y, NULL));
    assert_ok_err(graph_at_batch(g, BATCH, false, at, &err), &err);
    assert_ok_err(lower_graph(*at, false, &ir, &err), &err);
    assert_ok_err(pass_run(ir, false, &err), &err);
    return ir;
}

static const struct dev_op *product(const struct ir *ir, uint32_t nth)
{
    for (uint32_t i = 0; i < ir->g.n_ops; i++)
        if (ir->g.ops[i].kind == DEV_OP_MATMUL && nth-- == 0)
            return &ir->g.ops[i];
    fail();
    return NULL;
}

static void a_weight_is_turned_for_all_that_read_it(void **state)
{
    struct graph *g = new_graph(), *at;
    uint32_t x = input(g, "x", 2, (int64_t[]){-1, ROWS}), w, y;
    struct ir *ir;
    const float *given, *got;

    (void)state;
    w = param(g, "w", 2, (int64_t[]){ROWS, COLUMNS});
    y = NODE(g, "Add", "y", NODE(g, "Tanh", "c", NODE(g, "MatMul", "a", x, w)),
             NODE(g, "MatMul", "b", NODE(g, "Tanh", "d", x), w));
    ir = lowered(g, y, &at);
    given = ir_info(ir, product(ir, 0)->in[1])->data;
    assert_non_null(given);
    pass_along(ir);
    ir_drop_unused(ir);
    assert_int_equal(ir->err.rc, SH_OK);
    for (uint32_t i = 0; i < 2; i++) {
        assert_true(product(ir, i)->u.matmul.trans_b);
        assert_int_equal(product(ir, i)->in[1], product(ir, 0)->in[1]);
    }
    w = product(ir, 0)->in[1];
    assert_int_equal(ir_t(ir, w)->dims[0], COLUMNS);
    assert_int_equal(ir_t(ir, w)->dims[1], ROWS);
    got = ir_settle(ir, w);
    for (int64_t r = 0; r < ROWS; r++)
        for (int64_t c = 0; c < COLUMNS; c++)
            assert_true(got[c * ROWS + r] == given[r * COLUMNS + c]);
    ir_free(ir);
    graph_free(at);
    graph_free(g);
}

static void what_something_else_reads_stays(void **state)
{
    struct graph *g = new_graph(), *at;
    uint32_t x = input(g, "x", 2, (int64_t[]){-1, ROWS}), w, y;
    struct ir *ir;

    (void)state;
    w = param(g, "w", 2, (int64_t[]){ROWS, ROWS});
    y = NODE(g, "MatMul", "b", w, NODE(g, "Transpose", "t", NODE(g, "MatMul", "a", x, w)));
    ir = lowered(g, y, &at);
    pass_along(ir);
    assert_int_equal(ir->err.rc, SH_OK);
    assert_false(product(ir, 0)->u.matmul.trans_b);
    ir_free(ir);
    graph_free(at);
    graph_free(g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_weight_is_turned_for_all_that_read_it),
        cmocka_unit_test(what_something_else_reads_stays),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
