/* test_pass_small.c - Without it: x / max(norm, 1e-12) of a row of zeros is no number in FP16. */
/* uses: libmodel.a libdevice.a */
/* link: -ldl */
#include "tests/unit/graph_nodes.h"

enum { N = 8 };

static const struct dev_op *op_with(const struct ir *ir, enum dev_act act)
{
    for (uint32_t i = 0; i < ir->g.n_ops; i++)
        if (ir->g.ops[i].act == act)
            return &ir->g.ops[i];
    fail();
    return NULL;
}

/* (max(x, low) sin) + more */
static struct ir *bounded(float low, float more, struct graph **g, struct graph **at)
{
    struct sh_err err = {0};
    uint32_t x, y;
    struct ir *ir;

    *g = new_graph();
    x = input(*g, "x", 2, (int64_t[]){-1, N});
    y = NODE(*g, "Sin", "s", NODE(*g, "Clip", "c", x, number(*g, "low", low)));
    y = NODE(*g, "Add", "y", y, number(*g, "more", more));
    assert_ok(graph_add_output(*g, y, NULL));
    assert_ok_err(graph_at_batch(*g, 2, false, at, &err), &err);
    assert_ok_err(lower_graph(*at, false, &ir, &err), &err);
    return ir;
}

static void check_bounded(float low, float more, float low_after, float more_after)
{
    struct graph *g, *at;
    struct ir *ir = bounded(low, more, &g, &at);

    pass_small(ir);
    assert_true(op_with(ir, DEV_ACT_CLIP)->act_p0 == low_after);
    assert_true(op_with(ir, DEV_ACT_LINEAR)->act_p1 == more_after);
    ir_free(ir);
    graph_free(at);
    graph_free(g);
}

static void what_fp16_has_stays(void **state)
{
    (void)state;
    check_bounded(0.0f, 0.5f, 0.0f, 0.5f);
    check_bounded(-1.0f, -1e-5f, -1.0f, -1e-5f);
}

static void what_would_be_zero_is_its_smallest_number(void **state)
{
    (void)state;
    check_bounded(1e-12f, 1e-12f, 0x1p-24f, 0x1p-24f);
    check_bounded(-1e-30f, -1e-8f, -0x1p-24f, -0x1p-24f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_fp16_has_stays),
        cmocka_unit_test(what_would_be_zero_is_its_smallest_number),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
