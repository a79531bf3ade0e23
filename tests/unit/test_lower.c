/* test_lower.c - Without it: an operator could be accepted at upload and refused by the worker, a
 * fusion could stop happening (everything still works, only slower), or a model's batch sizes could
 * no longer share one image. */
/* uses: libmodel.a libdevice.a */
/* link: -ldl */
#include "common/mem.h"
#include "runtime/model/program.h"
#include "tests/unit/graph_nodes.h"
#include "tests/unit/graph_text.h"

#include <math.h>

static void bn(struct graph *g, uint32_t x, const char *name, int64_t c, uint32_t *out)
{
    char n[4][16];
    uint32_t p[4];

    for (int i = 0; i < 4; i++) {
        snprintf(n[i], sizeof(n[i]), "%s%d", name, i);
        p[i] = param(g, n[i], 1, &c);
    }
    *out = NODE(g, "BatchNormalization", name, x, p[0], p[1], p[2], p[3]);
}

/* A residual block with a shortcut of its own, as in ResNet. */
static struct graph *block(uint32_t *y)
{
    struct graph *g = new_graph();
    uint32_t x = input(g, "x", 4, (int64_t[]){-1, 4, 6, 6}), a, b;

    a = NODE(g, "Conv", "c1", x, param(g, "w1", 4, (int64_t[]){4, 4, 1, 1}));
    bn(g, a, "b1", 4, &a);
    a = NODE(g, "Relu", "r1", a);
    a = NODE(g, "Conv", "c2", a, param(g, "w2", 4, (int64_t[]){8, 4, 1, 1}));
    bn(g, a, "b2", 8, &a);
    b = NODE(g, "Conv", "c3", x, param(g, "w3", 4, (int64_t[]){8, 4, 1, 1}));
    bn(g, b, "b3", 8, &b);
    *y = NODE(g, "Relu", "y", NODE(g, "Add", "sum", a, b));
    return g;
}

static void a_residual_block_is_three_convolutions(void **state)
{
    char text[256];
    struct graph *g;
    uint32_t y;

    (void)state;
    g = block(&y);
    kinds(g, y, 2, false, text, sizeof(text));
    assert_string_equal(text, "CONV+RELU CONV CONV+RELU");
}

/* Channels of a norm that are not those of the convolution before it: samples and channels
 * together, or other numbers of the same many. */
static void a_norm_of_other_channels_stays(void **state)
{
    static const int64_t SEEN[][4] = {{1, 8, 6, 6}, {4, 4, 3, 6}, {2, 4, 9, 4}};
    char text[256];

    (void)state;
    for (size_t i = 0; i < SH_ARRAY_LEN(SEEN); i++) {
        struct graph *g = new_graph();
        uint32_t x = input(g, "x", 4, (int64_t[]){2, 4, 6, 6});

        x = NODE(g, "Conv", "c", x, param(g, "w", 4, (int64_t[]){4, 4, 1, 1}));
        x = NODE(g, "Reshape", "seen", x, shape_of(g, "as", 4, SEEN[i]));
        bn(g, x, "norm", SEEN[i][1], &x);
        kinds(g, x, 2, false, text, sizeof(text));
        assert_string_equal(text, i == 2 ? "CONV" : "CONV BN_INFER");

        g = new_graph();
        x = input(g, "x", 4, (int64_t[]){2, 4, 6, 6});
        x = NODE(g, "Conv", "c", x, param(g, "w", 4, (int64_t[]){4, 4, 1, 1}));
        x = NODE(g, "Reshape", "seen", x, shape_of(g, "as", 4, SEEN[i]));
        x = NODE(g, "Add", "sum", x, param(g, "b", 3, (int64_t[]){SEEN[i][1], 1, 1}));
        kinds(g, x, 2, false, text, sizeof(text));
        assert_string_equal(text, i == 2 ? "CONV" : "CONV BINARY");
    }
}

static void training_fuses_into_normalisations_alone(void **state)
{
    char text[256];
    struct graph *g;
    uint32_t y;

    (void)state;
    g = block(&y);
    kinds(g, y, 2, true, text, sizeof(text));
    assert_string_equal(text, "CONV BN_TRAIN+RELU CONV BN_TRAIN CONV BN_TRAIN+RELU");
}

/* As the outputs of a loop that was unrolled. */
static void any_number_of_tensors_is_joined(void **state)
{
    struct graph *g = new_graph();
    uint32_t in[1500], x = input(g, "x", 2, (int64_t[]){-1, 2}), y, n = 0;
    char text[1024];

    (void)state;
    for (size_t i = 0; i < SH_ARRAY_LEN(in); i++)
        in[i] = x;
    assert_ok(graph_add_value(g, "y", SH_F32, -1, NULL, &y, NULL));
    assert_ok(graph_add_node(g, "y", "Concat", in, SH_ARRAY_LEN(in), &y, 1, NULL, NULL));
    assert_ok(graph_set_int(&g->nodes[g->n_nodes - 1], "axis", 1, NULL));
    kinds(g, y, 2, false, text, sizeof(text));
    for (const char *p = text; (p = strstr(p, "CONCAT")); p++)
        n++;
    assert_int_equal(n, 47 + 2 + 1); /* an operation takes 32 */
}

static void a_linear_layer_on_a_sequence_is_one_product(void **state)
{
    struct graph *g = new_graph();
    uint32_t x = input(g, "x", 3, (int64_t[]){-1, 5, 8}), w, y;
    char text[256];

    (void)state;
    w = NODE(g, "Transpose", "wt", param(g, "w", 2, (int64_t[]){6, 8}));
    y = NODE(g, "MatMul", "m", x, w);
    y = NODE(g, "Add", "b", param(g, "bias", 1, (int64_t[]){6}), y);
    y = NODE(g, "Tanh", "y", y);
    kinds(g, y, 3, false, text, sizeof(text));
    assert_string_equal(text, "MATMUL+TANH");
}

static void training_gives_a_product_its_bias_and_factor(void **state)
{
    struct graph *g = new_graph();
    uint32_t x = input(g, "x", 3, (int64_t[]){-1, 5, 8}), y, z;
    char text[256];

    (void)state;
    y = NODE(g, "MatMul", "m", x, param(g, "w", 2, (int64_t[]){8, 8}));
    y = NODE(g, "Add", "b", y, param(g, "bias", 1, (int64_t[]){8}));
    y = NODE(g, "Tanh", "t", NODE(g, "Add", "r", y, x));
    z = NODE(g, "MatMul", "n", y, param(g, "v", 2, (int64_t[]){8, 4}));
    z = NODE(g, "Div", "y", z, number(g, "eight", 8.0f));
    kinds(g, z, 3, true, text, sizeof(text));
    assert_string_equal(text, "MATMUL ACT+TANH MATMUL");
}

static uint32_t gelu(struct graph *g, uint32_t x)
{
    uint32_t e = NODE(g, "Erf", "e", NODE(g, "Div", "d", x, number(g, "r2", sqrtf(2.0f))));

    e = NODE(g, "Add", "e1", e, number(g, "one", 1.0f));
    return NODE(g, "Mul", "half", NODE(g, "Mul", "xe", x, e), number(g, "h", 0.5f));
}

static void a_spelled_out_gelu_goes_into_its_product(void **state)
{
    struct graph *g = new_graph();
    uint32_t x = input(g, "x", 2, (int64_t[]){-1, 8}), y;
    char text[256];

    (void)state;
    y = NODE(g, "MatMul", "m", x, param(g, "w", 2, (int64_t[]){8, 6}));
    y = gelu(g, y);
    kinds(g, y, 3, false, text, sizeof(text));
    assert_string_equal(text, "MATMUL+GELU_ERF");
}

static void a_gate_of_its_own_argument_is_one_activation(void **state)
{
    struct graph *g = new_graph();
    uint32_t x = input(g, "x", 4, (int64_t[]){-1, 3, 6, 6}), y, z;
    char text[256];

    (void)state;
    y = NODE(g, "Conv", "c", x, param(g, "w", 4, (int64_t[]){8, 3, 1, 1}));
    y = NODE(g, "Mul", "silu", NODE(g, "Sigmoid", "s", y), y);
    z = NODE(g, "Conv", "d", y, param(g, "v", 4, (int64_t[]){4, 8, 1, 1}));
    z = NODE(g, "Mul", "gated", z,
             NODE(g, "Sigmoid", "t", input(g, "u", 4, (int64_t[]){-1, 4, 1, 1})));
    kinds(g, z, 5, false, text, sizeof(text));
    assert_string_equal(text, "CONV+SILU CONV ACT+SIGMOID BINARY");
}

static uint32_t layer_norm(struct graph *g, uint32_t x)
{
    int64_t one = 1, *last = malloc(sizeof(*last));
    uint32_t axes, m, d, v;

    assert_non_null(last);
    *last = -1;
    assert_ok(graph_add_const(g, "axes", SH_I64, 1, &one, last, &axes, NULL));
    m = NODE(g, "ReduceMean", "m", x, axes);
    d = NODE(g, "Sub", "d", x, m);
    v = NODE(g, "Pow", "d2", d, number(g, "two", 2.0f));
    v = NODE(g, "ReduceMean", "v", v, axes);
    v = NODE(g, "Sqrt", "s", NODE(g, "Add", "ve", v, number(g, "eps", 1e-5f)));
    d = NODE(g, "Div", "n", d, v);
    d = NODE(g, "Mul", "ns", d, param(g, "scale", 1, (int64_t[]){8}));
    return NODE(g, "Add", "y", d, param(g, "shift", 1, (int64_t[]){8}));
}

static void a_spelled_out_layer_norm_is_one_operation(void **state)
{
    struct graph *g = new_graph();
    char text[256];
    uint32_t y = layer_norm(g, input(g, "x", 3, (int64_t[]){-1, 5, 8}));

    (void)state;
    kinds(g, y, 3, false, text, sizeof(text));
    assert_string_equal(text, "LAYERNORM");
}

/* x [B,6,8] through a linear layer, as two heads. */
static uint32_t heads(struct graph *g, char part, uint32_t x, bool keys, int64_t width)
{
    static const int64_t ROWS[4] = {0, 2, 1, 3}, COLUMNS[4] = {0, 2, 3, 1};
    char name[5][8];
    uint32_t y;

    for (int i = 0; i < 5; i++)
        snprintf(name[i], sizeof(name[i]), "%c%d", part, i);
    y = NODE(g, "MatMul", name[0], x, param(g, name[1], 2, (int64_t[]){8, 2 * width}));
    y = NODE(g, "Add", name[2], y, param(g, name[3], 1, (int64_t[]){2 * width}));
    y = NODE(g, "Reshape", name[4], y,
             shape_of(g,
                      part == 'q'   ? "sq"
                      : part == 'k' ? "sk"
                                    : "sv",
                      4, (int64_t[]){-1, 6, 2, width}));
    return turn(g, part == 'q' ? "tq" : part == 'k' ? "tk" : "tv", y, keys ? COLUMNS : ROWS);
}

enum { ATTN_PLAIN, ATTN_MASK, ATTN_MASK_FIRST, ATTN_READ_TWICE, ATTN_OTHER_ROWS };

static struct graph *attention(int form, uint32_t *out)
{
    struct graph *g = new_graph();
    uint32_t x = input(g, "x", 3, (int64_t[]){-1, 6, 8}), z = x, q, k, v, s, y;

    if (form == ATTN_OTHER_ROWS)
        z = input(g, "z", 3, (int64_t[]){-1, 6, 8});
    q = heads(g, 'q', x, false, 4);
    k = heads(g, 'k', z, true, 4);
    v = heads(g, 'v', z, false, 4);
    s = NODE(g, "Div", "scaled", NODE(g, "MatMul", "scores", q, k), number(g, "two", 2.0f));
    if (form == ATTN_MASK)
        s = NODE(g, "Add", "masked", s, input(g, "mask", 4, (int64_t[]){-1, 1, 1, 6}));
    if (form == ATTN_MASK_FIRST)
        s = NODE(g, "Add", "masked", input(g, "mask", 4, (int64_t[]){-1, 1, 1, 6}), s);
    s = NODE(g, "Softmax", "soft", s);
    y = turn(g, "back", NODE(g, "MatMul", "context", s, v), (int64_t[]){0, 2, 1, 3});
    y = NODE(g, "Reshape", "y", y, shape_of(g, "joined", 3, (int64_t[]){-1, 6, 8}));
    if (form == ATTN_READ_TWICE)
        assert_ok(graph_add_output(g, s, NULL));
    *out = y;
    return g;
}

static void spelled_out_attention_is_one_product_and_one_operation(void **state)
{
    static const char *const WANT[] = {
        [ATTN_PLAIN] = "MATMUL ATTENTION",
        [ATTN_MASK] = "MATMUL ATTENTION",
        [ATTN_MASK_FIRST] = "MATMUL ATTENTION",
        [ATTN_READ_TWICE] = ("MATMUL TRANSPOSE MATMUL TRANSPOSE MATMUL TRANSPOSE MATMUL SOFTMAX "
                             "MATMUL TRANSPOSE"),
        [ATTN_OTHER_ROWS] = "MATMUL MATMUL MATMUL ATTENTION",
    };

    (void)state;
    for (int i = 0; i < (int)SH_ARRAY_LEN(WANT); i++) {
        char text[256];
        struct graph *g;
        uint32_t y;

        g = attention(i, &y);
        kinds(g, y, 3, false, text, sizeof(text));
        assert_string_equal(text, WANT[i]);
    }
}

static uint32_t dropout(struct graph *g, uint32_t x)
{
    uint32_t on;
    bool *data = malloc(sizeof(*data));

    assert_non_null(data);
    *data = true;
    assert_ok(graph_add_const(g, "on", SH_BOOL, 0, NULL, data, &on, NULL));
    return NODE(g, "Dropout", "dropped", x, number(g, "ratio", 0.1f), on);
}

enum mask {
    NO_MASK,
    MASK_GIVEN,    /* an input */
    MASK_MADE,     /* computed from an input */
    MASK_TRAINED,  /* a parameter */
    MASK_BIAS,     /* one that the product of queries and keys takes as its bias */
    MASK_RELATIVE, /* entries of a table that is trained, with something on top */
};
enum weights { READ_ONCE, DROPPED, ADDED_TO, READ_TWICE, DROPPED_READ_TWICE, READ_THEN_DROPPED };

static uint32_t mask_of(struct graph *g, enum mask mask)
{
    uint32_t m = GRAPH_NONE;

    if (mask == MASK_GIVEN || mask == MASK_MADE)
        m = input(g, "mask", 4, (int64_t[]){-1, 1, 1, 6});
    else if (mask == MASK_BIAS)
        m = param(g, "mask", 1, (int64_t[]){6});
    else if (mask != NO_MASK)
        m = param(g, "mask", 3, (int64_t[]){2, 6, 6});
    if (mask == MASK_MADE || mask == MASK_RELATIVE)
        m = NODE(g, "Mul", "mask of mask", NODE(g, "Exp", "mask of it", m),
                 input(g, "far", 4, (int64_t[]){-1, 1, 6, 6}));
    return m;
}

static struct graph *trained_attention(int64_t width, enum mask mask, enum weights weights,
                                       uint32_t *out)
{
    struct graph *g = new_graph();
    uint32_t x = input(g, "x", 3, (int64_t[]){-1, 6, 8}), y, s, m = mask_of(g, mask);
    uint32_t q = heads(g, 'q', x, false, width), k = heads(g, 'k', x, true, width), other;

    s = NODE(g, "Div", "scaled", NODE(g, "MatMul", "scores", q, k), number(g, "two", 2.0f));
    if (m != GRAPH_NONE)
        s = NODE(g, "Add", "masked", s, m);
    s = other = NODE(g, "Softmax", "soft", s);
    if (weights != READ_ONCE && weights != READ_TWICE)
        s = dropout(g, s);
    if (weights == ADDED_TO)
        s = NODE(g, "Add", "more", s, input(g, "some", 4, (int64_t[]){-1, 2, 6, 6}));
    other = weights == READ_THEN_DROPPED ? other : s;
    y = NODE(g, "MatMul", "context", s, heads(g, 'v', x, false, width));
    y = turn(g, "back", y, (int64_t[]){0, 2, 1, 3});
    y = NODE(g, "Reshape", "y", y, shape_of(g, "joined", 3, (int64_t[]){-1, 6, 2 * width}));
    if (weights >= READ_TWICE)
        assert_ok(graph_add_output(g, other, NULL));
    *out = y;
    return g;
}

static void attention_in_training_is_one_operation_where_it_can_be(void **state)
{
    static const struct {
        int64_t width;
        enum mask mask;
        enum weights weights;
        bool fuses;
    } CASES[] = {
        {16, NO_MASK, READ_ONCE, true},           {16, MASK_GIVEN, READ_ONCE, true},
        {16, MASK_MADE, READ_ONCE, true},         {48, NO_MASK, DROPPED, true},
        {64, MASK_GIVEN, DROPPED, true},          {24, NO_MASK, READ_ONCE, false},
        {80, NO_MASK, READ_ONCE, false},          {16, MASK_TRAINED, READ_ONCE, true},
        {16, MASK_BIAS, READ_ONCE, true},         {16, MASK_RELATIVE, READ_ONCE, true},
        {16, NO_MASK, ADDED_TO, false},           {16, NO_MASK, READ_TWICE, false},
        {16, NO_MASK, DROPPED_READ_TWICE, false}, {16, NO_MASK, READ_THEN_DROPPED, false},
    };

    (void)state;
    for (size_t i = 0; i < SH_ARRAY_LEN(CASES); i++) {
        char text[512];
        struct graph *g;
        uint32_t y;

        g = trained_attention(CASES[i].width, CASES[i].mask, CASES[i].weights, &y);
        kinds(g, y, 3, true, text, sizeof(text));
        if ((strstr(text, "ATTENTION") != NULL) != CASES[i].fuses ||
            (strstr(text, "SOFTMAX") == NULL) != CASES[i].fuses ||
            (CASES[i].fuses && strstr(text, "DROPOUT")))
            fail_msg("case %zu is %s", i, text);
        if (CASES[i].mask == NO_MASK && CASES[i].fuses)
            assert_string_equal(text, "MATMUL MATMUL MATMUL ATTENTION");
    }
}

static void reshapes_move_nothing(void **state)
{
    struct graph *g = new_graph();
    uint32_t x = input(g, "x", 4, (int64_t[]){-1, 2, 3, 4}), y;
    char text[256];

    (void)state;
    y = NODE(g, "Relu", "r", x);
    y = NODE(g, "Flatten", "f", y);
    y = NODE(g, "Identity", "i", y);
    kinds(g, y, 3, false, text, sizeof(text));
    assert_string_equal(text, "ACT+RELU");
}

static void an_output_that_is_an_input_is_copied(void **state)
{
    struct graph *g = new_graph();
    uint32_t x = input(g, "x", 2, (int64_t[]){-1, 3});
    char text[256];

    (void)state;
    kinds(g, NODE(g, "Identity", "y", x), 3, false, text, sizeof(text));
    assert_string_equal(text, "COPY");
}

/* ------------------------------------------------------------------ on a device */

static void batch_sizes_share_one_image_and_agree(void **state)
{
    uint32_t y;
    struct graph *g = block(&y);

    (void)state;
    assert_ok(graph_add_output(g, y, NULL));
    batches_agree(g, 1e-4f);
}

/* As vision transformers begin: a row that is learnt, once for each sample, before those of the
 * picture; by the batch size as exporters ask for it, from the shape. */
static void a_token_for_each_sample_is_one_weight(void **state)
{
    struct graph *g = new_graph();
    uint32_t x = input(g, "x", 3, (int64_t[]){-1, 9, 16}), n, y;

    (void)state;
    n = NODE(g, "Shape", "of_x", x);
    n = NODE(g, "Gather", "n", n, shape_of(g, "first", 1, (int64_t[]){0}));
    n = NODE(g, "Concat", "to", n, shape_of(g, "rest", 2, (int64_t[]){-1, -1}));
    assert_ok(graph_set_int(&g->nodes[g->n_nodes - 1], "axis", 0, NULL));
    n = NODE(g, "Where", "size", NODE(g, "Equal", "open", n, shape_of(g, "m", 1, (int64_t[]){-1})),
             shape_of(g, "one", 1, (int64_t[]){1}), n);
    y = NODE(g, "Expand", "tokens", param(g, "token", 3, (int64_t[]){1, 1, 16}), n);
    y = NODE(g, "Concat", "y", y, x);
    assert_ok(graph_set_int(&g->nodes[g->n_nodes - 1], "axis", 1, NULL));
    assert_ok(graph_add_output(g, y, NULL));
    batches_agree(g, 0);
}

/* As BERT begins where nobody says which text a word is of: the same kind for each word, repeated
 * for each sample, looked up and added. */
static void a_row_looked_up_for_each_sample_is_one_weight(void **state)
{
    struct graph *g = new_graph();
    uint32_t x = input(g, "x", 3, (int64_t[]){-1, 9, 16}), n, y;

    (void)state;
    n = NODE(g, "Shape", "of_x", x);
    n = NODE(g, "Gather", "n", n, shape_of(g, "first", 1, (int64_t[]){0}));
    n = NODE(g, "Concat", "to", n, shape_of(g, "rest", 1, (int64_t[]){9}));
    assert_ok(graph_set_int(&g->nodes[g->n_nodes - 1], "axis", 0, NULL));
    y = NODE(g, "Reshape", "row", shape_of(g, "kinds", 9, (int64_t[]){0, 0, 0, 1, 1, 1, 1, 2, 2}),
             shape_of(g, "one", 2, (int64_t[]){1, 9}));
    y = NODE(g, "Expand", "each", y, n);
    y = NODE(g, "Gather", "rows", param(g, "table", 2, (int64_t[]){3, 16}), y);
    assert_ok(graph_add_output(g, NODE(g, "Add", "y", y, x), NULL));
    batches_agree(g, 0);
}

/* With the scores as a second output nothing is fused: the same model in both forms. */
static void attention_gives_what_it_gives_when_spelled_out(void **state)
{
    struct dev_lib *l;
    struct dev *d = open_cpu(&l);
    struct sh_err err = {0};
    float x[2 * 6 * 8], *y[2];
    size_t bytes[2];

    (void)state;
    for (size_t i = 0; i < SH_ARRAY_LEN(x); i++)
        x[i] = (float)(i * 37 % 101) / 101.0f - 0.5f;
    for (int i = 0; i < 2; i++) {
        struct program *p;
        struct graph *g;
        uint32_t out, scores;

        g = attention(i ? ATTN_READ_TWICE : ATTN_PLAIN, &out);
        scores = g->n_outputs ? g->outputs[0] : GRAPH_NONE;
        g->n_outputs = 0;
        assert_ok(graph_add_output(g, out, NULL));
        if (scores != GRAPH_NONE)
            assert_ok(graph_add_output(g, scores, NULL));
        assert_ok_err(
            program_infer(d, g, &(struct graph_sizes){.batch = 2}, DEV_FP32, NULL, &p, &err), &err);
        assert_int_equal(program_n_ops(p), i ? 10 : 2);
        y[i] = run(d, p, x, &bytes[i]);
        program_free(p);
        graph_free(g);
    }
    assert_int_equal(bytes[0], sizeof(x));
    for (size_t i = 0; i < SH_ARRAY_LEN(x); i++)
        assert_true(fabsf(y[0][i] - y[1][i]) < 1e-4f * (1 + fabsf(y[1][i])));
    free(y[0]);
    free(y[1]);
    dev_close(d);
    dev_lib_close(l);
}

/* ids -> Gather, through a node that keeps the values, or one that does not. */
static struct program *gathers(struct dev *d, enum sh_dtype t, const char *way, int64_t rows,
                               struct graph **out)
{
    struct graph *g = *out = new_graph();
    struct sh_err err = {0};
    struct program *p;
    uint32_t ids, table, small, v, at, n;

    assert_ok(graph_add_value(g, "ids", t, 2, (int64_t[]){-1, 4}, &ids, NULL));
    assert_ok(graph_add_input(g, ids, NULL));
    table = param(g, "table", 2, (int64_t[]){rows, 2});
    small = param(g, "small", 2, (int64_t[]){rows - 2, 2});
    assert_ok(graph_add_value(g, "way", SH_F32, -1, NULL, &v, NULL));
    assert_ok(graph_add_node(g, "way", way, &ids, 1, &v, 1, &n, NULL));
    if (strcmp(way, "Cast") == 0)
        assert_ok(graph_set_int(&g->nodes[n], "to", 7, NULL));
    at = NODE(g, "Add", "y", NODE(g, "Gather", "e", table, v), NODE(g, "Gather", "f", small, v));
    assert_ok(graph_add_output(g, at, NULL));
    assert_ok_err(program_infer(d, g, &(struct graph_sizes){.batch = 3}, DEV_FP32, NULL, &p, &err),
                  &err);
    return p;
}

static void an_index_is_checked_where_it_comes_to_its_table_as_it_is(void **state)
{
    struct dev_lib *l;
    struct dev *d = open_cpu(&l);
    struct sh_err err = {0};
    struct program *p;
    struct graph *g;
    char odd[1 + 3 * sizeof(int64_t)];
    const int64_t wide[3] = {7, -8, 8}, huge[1] = {INT64_MIN};
    const int32_t narrow[4] = {0, 7, -9, 9};

    (void)state;
    p = gathers(d, SH_I64, "Identity", 10, &g);
    assert_ok(program_check_sample(p, 0, wide, 2 * sizeof(wide[0]), &err));
    memcpy(odd + 1, wide, sizeof(wide)); /* any address */
    assert_int_equal(program_check_sample(p, 0, odd + 1, sizeof(wide), &err), SH_E_INVALID);
    assert_string_equal(err.msg, "input \"ids\": index 8 at position 2 is outside the table of 8 "
                                 "(node \"f\")");
    assert_int_equal(program_check_sample(p, 0, huge, sizeof(huge), NULL), SH_E_INVALID);
    program_free(p);
    graph_free(g);

    p = gathers(d, SH_I32, "Cast", 10, &g);
    err = (struct sh_err){0};
    assert_int_equal(program_check_sample(p, 0, narrow, sizeof(narrow), &err), SH_E_INVALID);
    assert_non_null(strstr(err.msg, "index -9 at position 2"));
    program_free(p);
    graph_free(g);

    p = gathers(d, SH_F32, "Cast", 10, &g); /* what a Cast makes of a float the device knows */
    assert_ok(program_check_sample(p, 0, wide, sizeof(wide), NULL));
    program_free(p);
    graph_free(g);
    dev_close(d);
    dev_lib_close(l);
}

static void layers_begin_where_their_weights_are_first_used(void **state)
{
    struct dev_lib *l;
    struct dev *d = open_cpu(&l);
    struct program *p;
    struct graph *g;
    uint32_t y;

    (void)state;
    g = block(&y);
    assert_ok(graph_add_output(g, y, NULL));
    assert_ok(program_infer(d, g, &(struct graph_sizes){.batch = 1}, DEV_FP32, NULL, &p, NULL));
    assert_int_equal(program_n_layers(p), 3);
    for (uint32_t i = 0; i < 3; i++)
        assert_int_equal(program_layer_begin(p, i), i);
    assert_int_equal(program_layer_ends(p)[2], program_image_bytes(p));
    assert_string_equal(program_op_label(p, 0), "CONV c1");
    program_free(p);
    graph_free(g);
    dev_close(d);
    dev_lib_close(l);
}

/* An operation waits for the last of the layers that its weights take, and no span of numbers that
 * are packed reaches over the end of a layer. */
static void large_weights_take_several_layers(void **state)
{
    const int64_t wide = 1500, large = 3000; /* 18 MB, and 12 KB before and behind */
    struct pack_span *spans;
    struct graph *g = new_graph();
    struct dev_lib *l;
    struct dev *d = open_cpu(&l);
    struct program *p;
    const uint64_t *ends;
    uint64_t at = 0;
    uint32_t y, layer = 0;
    size_t n;

    (void)state;
    y = NODE(g, "Mul", "first", input(g, "x", 2, (int64_t[]){-1, large}), param(g, "a", 1, &large));
    y = NODE(g, "MatMul", "y", y, param(g, "w", 2, (int64_t[]){large, wide}));
    y = NODE(g, "Add", "sum", NODE(g, "Tanh", "t", y), param(g, "b", 1, &wide));
    assert_ok(graph_add_output(g, y, NULL));
    assert_ok(program_infer(d, g, &(struct graph_sizes){.batch = 1}, DEV_FP32, NULL, &p, NULL));
    ends = program_layer_ends(p);
    assert_int_equal(program_n_layers(p), 5);
    assert_int_equal(ends[4], program_image_bytes(p));
    assert_int_equal(program_layer_begin(p, 0), 0);
    for (uint32_t i = 1; i < 4; i++) {
        assert_int_equal(program_layer_begin(p, i), 1);
        assert_in_range(ends[i] - ends[i - 1], (6 << 20) - (1 << 18), 6 << 20);
        assert_int_equal(ends[i] % DEV_ALIGN, 0);
    }
    assert_true(program_layer_begin(p, 4) > 1);
    assert_ok(program_spans(p, &spans, &n, NULL));
    for (size_t i = 0; i < n; at += spans[i++].bytes) {
        assert_int_equal(spans[i].off, at);
        layer += at == ends[layer];
        assert_true(spans[i].bytes > 0 && at + spans[i].bytes <= ends[layer]);
    }
    assert_int_equal(at, program_image_bytes(p));
    free(spans);
    program_free(p);
    graph_free(g);
    dev_close(d);
    dev_lib_close(l);
}

static void every_operator_that_is_accepted_is_lowered(void **state)
{
    static const char *const OPS[][3] = {
        {"And", "b[4,3] b[3]", ""},
        {"Or", "b[4,3] b[3]", ""},
        {"Not", "b[4,3]", ""},
        {"LessOrEqual", "f[4,3] f[3]", ""},
        {"GreaterOrEqual", "f[4,3] c[]=0.5", ""},
        {"Equal", "l[4,3] i[]=2", ""},
        {"Cast", "l[4,3]", "to=1"},
        {"Cast", "f[4,3]", "to=9"},
        {"Add", "l[4,3] i[]=2", ""},
        {"Sum", "f[4,3] f[3] f[1]", ""},
        {"Min", "f[4,3] c[]=2", ""},
        {"Pow", "f[4,3] i[]=2", ""},
        {"Pow", "c[]=2 f[4,3]", ""},
        {"Add", "f[3] c[1,1]=2", ""},
        {"Conv", "f[2,3,9] p[4,3,3] p[4]", "pads=1,1,"},
        {"Slice", "f[4,9] i[1]=8 i[1]=0 i[1]=1 i[1]=-2", ""},
        {"Split", "f[4,9] i[3]=2,3,4", "axis=1"},
        {"GatherND", "f[4,3] i[2,1]=0,3", ""},
        {"GatherElements", "f[4,3] i[4,2]=0,1,2,0,1,1,0,2", "axis=1"},
        {"Where", "b[4,1] f[4,3] c[]=-1", ""},
        {"MatMul", "f[5] f[4,5,3]", ""},
        {"MatMul", "f[4,5] f[5]", ""},
        {"MatMul", "f[5] f[5]", ""},
        {"Transpose", "f[4,1,3,1]", "perm=0,3,2,1,"},
        {"ReduceMax", "f[4,3,5] i[1]=1", "keepdims=0"},
    };
    struct dev_lib *l;
    struct dev *d = open_cpu(&l);

    (void)state;
    for (size_t i = 0; i < SH_ARRAY_LEN(OPS); i++) {
        struct graph *g =
            text_graph(OPS[i][0], OPS[i][1], OPS[i][2], strcmp(OPS[i][0], "Split") == 0 ? 3 : 1);
        struct sh_err err = {0};
        struct program *p;

        if (program_infer(d, g, &(struct graph_sizes){.batch = text_batch(g)}, DEV_FP32, NULL, &p,
                          &err))
            fail_msg("%s %s: %s", OPS[i][0], OPS[i][1], err.msg);
        program_free(p);
        graph_free(g);
    }
    dev_close(d);
    dev_lib_close(l);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_residual_block_is_three_convolutions),
        cmocka_unit_test(a_norm_of_other_channels_stays),
        cmocka_unit_test(training_fuses_into_normalisations_alone),
        cmocka_unit_test(any_number_of_tensors_is_joined),
        cmocka_unit_test(a_linear_layer_on_a_sequence_is_one_product),
        cmocka_unit_test(training_gives_a_product_its_bias_and_factor),
        cmocka_unit_test(a_spelled_out_gelu_goes_into_its_product),
        cmocka_unit_test(a_gate_of_its_own_argument_is_one_activation),
        cmocka_unit_test(a_spelled_out_layer_norm_is_one_operation),
        cmocka_unit_test(spelled_out_attention_is_one_product_and_one_operation),
        cmocka_unit_test(attention_in_training_is_one_operation_where_it_can_be),
        cmocka_unit_test(attention_gives_what_it_gives_when_spelled_out),
        cmocka_unit_test(reshapes_move_nothing),
        cmocka_unit_test(an_output_that_is_an_input_is_copied),
        cmocka_unit_test(batch_sizes_share_one_image_and_agree),
        cmocka_unit_test(a_token_for_each_sample_is_one_weight),
        cmocka_unit_test(a_row_looked_up_for_each_sample_is_one_weight),
        cmocka_unit_test(an_index_is_checked_where_it_comes_to_its_table_as_it_is),
        cmocka_unit_test(layers_begin_where_their_weights_are_first_used),
        cmocka_unit_test(large_weights_take_several_layers),
        cmocka_unit_test(every_operator_that_is_accepted_is_lowered),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
