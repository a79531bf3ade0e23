/* test_attn_views.c - Without it: attention as most libraries write it (one product for queries,
 * keys and values, rows or samples first) would run as eight operations, or read wrong heads. */
/* uses: libmodel.a libdevice.a */
/* link: -ldl */
#include "tests/unit/graph_nodes.h"

#include <math.h>

enum { ROWS = 6, HEADS = 2, WIDTH = 4, LINE = HEADS * WIDTH };
enum form { ROWS_FIRST, PARTS_FIRST, SLICED, CROSSED, N_FORMS };

static uint32_t turn_of(struct graph *g, const char *name, uint32_t x, size_t rank,
                        const int64_t *perm)
{
    uint32_t y = NODE(g, "Transpose", name, x);

    assert_ok(graph_set_ints(&g->nodes[g->n_nodes - 1], "perm", perm, rank, NULL));
    return y;
}

static uint32_t reshape(struct graph *g, const char *name, uint32_t x, int64_t rank,
                        const int64_t *dims)
{
    char shape[16];

    snprintf(shape, sizeof(shape), "%s.s", name);
    return NODE(g, "Reshape", name, x, shape_of(g, shape, rank, dims));
}

static uint32_t part_of(struct graph *g, const char *name, uint32_t x, int64_t i)
{
    char index[16];
    uint32_t v;
    int64_t *data = malloc(sizeof(*data));

    assert_non_null(data);
    *data = i;
    snprintf(index, sizeof(index), "%s.i", name);
    assert_ok(graph_add_const(g, index, SH_I64, 0, NULL, data, &v, NULL));
    return NODE(g, "Gather", name, x, v);
}

static uint32_t columns_of(struct graph *g, const char *name, uint32_t x, int64_t i)
{
    char from[16], to[16], axes[16];

    snprintf(from, sizeof(from), "%s.f", name);
    snprintf(to, sizeof(to), "%s.t", name);
    snprintf(axes, sizeof(axes), "%s.a", name);
    return NODE(g, "Slice", name, x, shape_of(g, from, 1, (int64_t[]){i * LINE}),
                shape_of(g, to, 1, (int64_t[]){(i + 1) * LINE}),
                shape_of(g, axes, 1, (int64_t[]){2}));
}

/* q, k or v, [B, H, S, D], of the product y. */
static uint32_t heads_of(struct graph *g, enum form form, uint32_t y, int64_t i)
{
    static const char *const NAME[] = {"q", "k", "v"}, *const HEADS_OF[] = {"qh", "kh", "vh"};
    static const char *const TURNED[] = {"qt", "kt", "vt"}, *const WHOLE[] = {"qw", "kw", "vw"};
    uint32_t x;

    switch (form) {
    case ROWS_FIRST: /* y: [3, S, B, E] */
        x = reshape(g, HEADS_OF[i], part_of(g, NAME[i], y, i), 3, (int64_t[]){ROWS, -1, WIDTH});
        x = turn_of(g, TURNED[i], x, 3, (int64_t[]){1, 0, 2});
        return reshape(g, WHOLE[i], x, 4, (int64_t[]){-1, HEADS, ROWS, WIDTH});
    case PARTS_FIRST: /* y: [3, B, H, S, D] */
        return part_of(g, NAME[i], y, i);
    default: /* y: [B, S, 3 E] */
        x = columns_of(g, NAME[i], y, i);
        x = reshape(g, HEADS_OF[i], x, 4, (int64_t[]){-1, ROWS, HEADS, WIDTH});
        /* Heads that are not whole: every second element belongs to the other one. */
        if (form == CROSSED)
            x = turn_of(g, WHOLE[i],
                        reshape(g, "crossed", x, 4, (int64_t[]){-1, ROWS, WIDTH, HEADS}), 4,
                        (int64_t[]){0, 1, 3, 2});
        return turn_of(g, TURNED[i], x, 4, (int64_t[]){0, 2, 1, 3});
    }
}

static uint32_t product_of(struct graph *g, enum form form, uint32_t x)
{
    uint32_t y = x;

    if (form == ROWS_FIRST)
        y = turn_of(g, "first", y, 3, (int64_t[]){1, 0, 2});
    y = NODE(g, "MatMul", "qkv", y, param(g, "w", 2, (int64_t[]){LINE, 3 * LINE}));
    y = NODE(g, "Add", "biased", y, param(g, "bias", 1, (int64_t[]){3 * LINE}));
    if (form == ROWS_FIRST) {
        y = reshape(g, "parts", y, 4, (int64_t[]){ROWS, -1, 3, LINE});
        return turn_of(g, "front", y, 4, (int64_t[]){2, 0, 1, 3});
    }
    if (form == PARTS_FIRST) {
        y = reshape(g, "parts", y, 5, (int64_t[]){-1, ROWS, 3, HEADS, WIDTH});
        return turn_of(g, "front", y, 5, (int64_t[]){2, 0, 3, 1, 4});
    }
    return y;
}

/* With its weights as a second output it stays spelled out. */
enum hidden { AS_IT_IS, ZEROS, ONES }; /* what is in place of weights that are not numbers */

static struct graph *attention_of(enum form form, bool spelled_out, enum hidden hidden,
                                  uint32_t *out)
{
    const bool rows_first = form == ROWS_FIRST;
    struct graph *g = new_graph();
    uint32_t y = product_of(g, form, input(g, "x", 3, (int64_t[]){-1, ROWS, LINE})), k, s;

    k = turn_of(g, "kT", heads_of(g, form == CROSSED ? SLICED : form, y, 1), 4,
                (int64_t[]){0, 1, 3, 2});
    s = NODE(g, "Mul", "scaled", heads_of(g, form, y, 0), number(g, "a", 0.8f));
    s = NODE(g, "MatMul", "scores", s, NODE(g, "Mul", "ks", k, number(g, "b", 0.6f)));
    s = NODE(g, "Softmax", "soft", s);
    if (hidden != AS_IT_IS) /* IsNaN is what it is made of */
        s = NODE(g, "Where", "numbers", NODE(g, "Not", "nan", NODE(g, "Equal", "same", s, s)),
                 number(g, "instead", hidden == ZEROS ? 0.0f : 1.0f), s);
    y = NODE(g, "MatMul", "context", s, heads_of(g, form == CROSSED ? SLICED : form, y, 2));
    y = turn_of(g, "back", y, 4, rows_first ? (int64_t[]){2, 0, 1, 3} : (int64_t[]){0, 2, 1, 3});
    y = reshape(g, "joined", y, 3,
                rows_first ? (int64_t[]){ROWS, -1, LINE} : (int64_t[]){-1, ROWS, LINE});
    if (rows_first)
        y = turn_of(g, "y", y, 3, (int64_t[]){1, 0, 2});
    if (spelled_out)
        assert_ok(graph_add_output(g, s, NULL));
    *out = y;
    return g;
}

static struct graph *attention(enum form form, bool spelled_out, uint32_t *out)
{
    return attention_of(form, spelled_out, AS_IT_IS, out);
}

static void rows_without_keys_that_become_zeros_are_a_part_of_it(void **state)
{
    char text[256];
    uint32_t y;
    struct graph *g = attention_of(SLICED, false, ZEROS, &y);
    (void)state;

    kinds(g, y, 3, false, text, sizeof(text));
    assert_string_equal(text, "MATMUL ATTENTION");
    g = attention_of(SLICED, false, ONES, &y);
    kinds(g, y, 3, false, text, sizeof(text));
    assert_non_null(strstr(text, "WHERE"));
    assert_null(strstr(text, "ATTENTION"));
}

static void heads_are_read_where_the_product_left_them(void **state)
{
    static const char *const WANT[N_FORMS] = {
        [ROWS_FIRST] = "TRANSPOSE MATMUL ATTENTION TRANSPOSE TRANSPOSE",
        [PARTS_FIRST] = "MATMUL ATTENTION",
        [SLICED] = "MATMUL ATTENTION",
    };

    (void)state;
    for (enum form i = 0; i < CROSSED; i++) {
        char text[256];
        uint32_t y;
        struct graph *g = attention(i, false, &y);

        kinds(g, y, 3, false, text, sizeof(text));
        assert_string_equal(text, WANT[i]);
    }
}

static void heads_that_are_not_whole_are_put_together_first(void **state)
{
    char text[256];
    uint32_t y;
    struct graph *g = attention(CROSSED, false, &y);

    (void)state;
    kinds(g, y, 3, false, text, sizeof(text));
    assert_string_equal(text, "MATMUL SLICE TRANSPOSE ATTENTION");
}

static void one_result(struct dev *d, enum form form, int64_t batch)
{
    struct sh_err err = {0};
    float x[3 * ROWS * LINE], *y[2];
    size_t bytes[2];

    for (size_t i = 0; i < SH_ARRAY_LEN(x); i++)
        x[i] = (float)(i * 37 % 101) / 101.0f - 0.5f;
    for (int i = 0; i < 2; i++) {
        uint32_t out;
        struct graph *g = attention(form, i == 1, &out);
        const uint32_t scores = g->n_outputs ? g->outputs[0] : GRAPH_NONE;
        struct program *p;

        g->n_outputs = 0;
        assert_ok(graph_add_output(g, out, NULL));
        if (scores != GRAPH_NONE)
            assert_ok(graph_add_output(g, scores, NULL));
        assert_ok_err(
            program_infer(d, g, &(struct graph_sizes){.batch = batch}, DEV_FP32, NULL, &p, &err),
            &err);
        y[i] = run(d, p, x, &bytes[i]);
        program_free(p);
        graph_free(g);
    }
    assert_int_equal(bytes[0], (size_t)batch * ROWS * LINE * sizeof(float));
    assert_int_equal(bytes[1], bytes[0]);
    for (size_t i = 0; i < bytes[0] / sizeof(float); i++)
        assert_true(fabsf(y[0][i] - y[1][i]) < 1e-4f * (1 + fabsf(y[1][i])));
    free(y[0]);
    free(y[1]);
}

static void what_comes_out_is_what_the_long_way_gives(void **state)
{
    struct dev_lib *l;
    struct dev *d = open_cpu(&l);

    (void)state;
    for (enum form i = 0; i < N_FORMS; i++)
        for (int64_t batch = 1; batch <= 3; batch++)
            one_result(d, i, batch);
    dev_close(d);
    dev_lib_close(l);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_without_keys_that_become_zeros_are_a_part_of_it),
        cmocka_unit_test(heads_are_read_where_the_product_left_them),
        cmocka_unit_test(heads_that_are_not_whole_are_put_together_first),
        cmocka_unit_test(what_comes_out_is_what_the_long_way_gives),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
