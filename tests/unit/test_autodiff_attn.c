/* test_autodiff_attn.c - Without it: attention that training runs as one operation could have a
 * wrong gradient, or drop other weights backward than forward, and models would train a little
 * worse. */
/* uses: libmodel.a libdevice.a */
/* link: -ldl */
#include "tests/unit/graph_text.h"
#include "tests/unit/train_bench.h"

enum { ATTN_MASK = 1, ATTN_DROPOUT = 2, ATTN_SPELLED_OUT = 4 };

static uint32_t attn_const(struct graph *g, const char *name, int rank, const int64_t *dims,
                           float value)
{
    int64_t n = 1;
    uint32_t v;
    float *data;

    for (int i = 0; i < rank; i++)
        n *= dims[i];
    data = malloc((size_t)n * sizeof(*data));
    assert_non_null(data);
    for (int64_t i = 0; i < n; i++)
        data[i] = value * (float)(i % 5 + 1);
    assert_ok(graph_add_const(g, name, SH_F32, rank, dims, data, &v, NULL));
    return v;
}

/* A parameter [2, rows, 3, 16] as [2, 3, rows, 16], or the last two axes turned. */
static uint32_t attn_heads(struct graph *g, const char *name, int64_t rows, bool turned)
{
    const int64_t perm[4] = {0, 2, turned ? 3 : 1, turned ? 1 : 3};
    uint32_t x = some_weight(g, name, 4, (int64_t[]){2, rows, 3, 16});
    char out[8];

    snprintf(out, sizeof(out), "%s.t", name);
    x = some_node(g, "Transpose", out, &x, 1);
    assert_ok(graph_set_ints(&g->nodes[g->n_nodes - 1], "perm", perm, 4, NULL));
    return x;
}

/* Of three parameters. Spelled out stays what has a second reader of its weights, here one that
 * adds next to nothing. */
static struct graph *attention_net(int form)
{
    uint32_t in[3], s, v;
    bool *on = malloc(sizeof(*on));
    struct graph *g;

    assert_non_null(on);
    *on = true;
    assert_ok(graph_new(&g, NULL));
    in[0] = attn_heads(g, "q", 5, false);
    in[1] = attn_heads(g, "k", 7, true);
    v = attn_heads(g, "v", 7, false);
    s = some_node(g, "MatMul", "scores", in, 2);
    s = some_node(g, "Mul", "scaled", (uint32_t[]){s, attn_const(g, "scale", 0, NULL, 0.25f)}, 2);
    if (form & ATTN_MASK)
        s = some_node(g, "Add", "masked",
                      (uint32_t[]){s, attn_const(g, "mask", 4, (int64_t[]){2, 1, 1, 7}, -0.7f)}, 2);
    s = some_node(g, "Softmax", "soft", &s, 1);
    in[0] = s;
    in[1] = attn_const(g, "ratio", 0, NULL, 0.3f);
    assert_ok(graph_add_const(g, "on", SH_BOOL, 0, NULL, on, &in[2], NULL));
    if (form & ATTN_DROPOUT)
        s = some_node(g, "Dropout", "dropped", in, 3);
    in[0] = some_node(g, "MatMul", "context", (uint32_t[]){s, v}, 2);
    if (form & ATTN_SPELLED_OUT) {
        s = some_node(g, "Mul", "tiny", (uint32_t[]){s, attn_const(g, "e-30", 0, NULL, 1e-30f)}, 2);
        in[1] = some_node(g, "MatMul", "again", (uint32_t[]){s, v}, 2);
        in[0] = some_node(g, "Add", "sum", in, 2);
    }
    v = in[0];
    v = some_node(g, "Transpose", "y", &v, 1);
    assert_ok(graph_set_ints(&g->nodes[g->n_nodes - 1], "perm", (int64_t[]){0, 2, 1, 3}, 4, NULL));
    assert_ok(graph_add_output(g, v, NULL));
    return g;
}

static const struct train_spec ATTN_SPEC = {
    .heads = {{.loss = TRAIN_LOSS_MSE, .weight = 1, .labels = "label"}},
    .n_heads = 1,
    .lr = 0.1,
    .batch = 1,
    .precision = DEV_FP64,
    .seed = 7};

static void the_gradient_of_attention_is_the_slope_of_the_loss(void **state)
{
    struct bench *b = *state;
    uint64_t x = 5;

    for (int form = 0; form < ATTN_SPELLED_OUT; form++) {
        char what[16];

        compile(b, attention_net(form), -1, 1, &ATTN_SPEC);
        b->bases.step = 3;
        assert_int_equal(count_ops(b, "ATTENTION_BWD"), 1);
        assert_int_equal(count_ops(b, "DROPOUT"), 0);
        snprintf(what, sizeof(what), "form %d", form);
        expect_slopes(b, &x, 5, 2e-3, what);
        clear(b);
    }
}

/* In fp64, so that what differs is not rounding. */
static void attention_trains_as_it_does_when_spelled_out(void **state)
{
    struct bench *b = *state;
    float *grads[2] = {NULL};
    double loss[2];
    size_t bytes = 0;

    for (int mask = 0; mask < 2; mask++) {
        for (int i = 0; i < 2; i++) {
            compile(b, attention_net((mask ? ATTN_MASK : 0) | (i ? ATTN_SPELLED_OUT : 0)), -1, 1,
                    &ATTN_SPEC);
            assert_int_equal(count_ops(b, "ATTENTION"), i ? 0 : 1);
            assert_int_equal(count_ops(b, "SOFTMAX"), i ? 1 : 0);
            bytes = program_state_bytes(b->p);
            grads[i] = all_gradients(b, &loss[i]);
            clear(b);
        }
        assert_true(fabs(loss[0] - loss[1]) <= 1e-6 * fabs(loss[1]));
        expect_close(grads[0], grads[1], bytes, "gradient");
        free(grads[0]);
        free(grads[1]);
    }
}

static void dropped_weights_follow_seed_and_step(void **state)
{
    struct train_spec t = ATTN_SPEC;
    struct bench *b = *state;
    double loss[4];

    for (int i = 0; i < 4; i++) { /* the same twice, another step, another seed */
        float *label;

        t.seed = i == 3 ? 8 : 7;
        compile(b, attention_net(ATTN_DROPOUT), -1, 1, &t);
        b->bases.step = i == 2 ? 3 : 2;
        label = some_label(b);
        loss[i] = loss_at(b, b->state, label);
        free(label);
        clear(b);
    }
    assert_true(loss[0] == loss[1]);
    assert_true(loss[0] != loss[2]);
    assert_true(loss[0] != loss[3]);
}

/* A softmax that is spelled out is the same with and without; nothing else is. */
static void a_maximum_that_keeps_exp_finite_has_its_gradient(void **state)
{
    static const char *const FORMS[] = {"exp(x - m)", "exp(x - m) over its sum",
                                        "exp(x - m) over its sum, and m"};
    struct bench *b = *state;
    struct train_spec t = {.heads = {{.loss = TRAIN_LOSS_MSE, .weight = 1, .labels = "label"}},
                           .n_heads = 1,
                           .lr = 0.1,
                           .batch = 1,
                           .precision = DEV_FP64};
    uint64_t seed = 5;

    for (size_t form = 0; form < SH_ARRAY_LEN(FORMS); form++) {
        struct graph *g = text_graph("ReduceMax", "p[4,3] i[1]=1", "", 1);
        const uint32_t x = g->nodes[0].in[0], axes = g->nodes[0].in[1], m = g->outputs[0];
        const uint32_t d = some_node(g, "Sub", "d", (uint32_t[]){x, m}, 2);
        uint32_t y = some_node(g, "Exp", "e", &d, 1);

        if (form > 0)
            y = some_node(
                g, "Div", "over",
                (uint32_t[]){y, some_node(g, "ReduceSum", "sum", (uint32_t[]){y, axes}, 2)}, 2);
        if (form > 1)
            y = some_node(g, "Add", "and", (uint32_t[]){m, y}, 2);
        g->outputs[0] = y;
        compile(b, g, -1, 1, &t);
        expect_slopes(b, &seed, 3, 2e-2, FORMS[form]);
        clear(b);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_gradient_of_attention_is_the_slope_of_the_loss),
        cmocka_unit_test(attention_trains_as_it_does_when_spelled_out),
        cmocka_unit_test(a_maximum_that_keeps_exp_finite_has_its_gradient),
        cmocka_unit_test(dropped_weights_follow_seed_and_step),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
