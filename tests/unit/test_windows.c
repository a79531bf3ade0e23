/* test_windows.c - Without it: what layers take of one table, each a window of its own, is trained
 * as so many tables. */
/* uses: libmodel.a libdevice.a */
/* link: -ldl -lprotobuf-c -lm */
#include "runtime/model/graph_int.h"
#include "tests/unit/param_file.h"

enum { ROWS = 64, COLUMNS = 12, MOST = 3 };

/* Of table[from, to), and of its columns. */
struct window {
    int64_t row, rows, column, columns;
};

static const struct window *windows;
static const char *const NAMES[MOST] = {"slice_1", "slice_2", "slice_3"};

static void say_windows(Onnx__GraphProto *g, const char *call)
{
    (void)call;
    add_pair(&g->base, 16, META_SIGNATURE, "p_table: PARAMETER target='table'\n");
    for (int i = 0; i < MOST && windows[i].rows; i++)
        say_from(g, NAMES[i], "['table', 'val_0', 'val_1']");
}

/* Of zeros, or with a row of zeros that is not the same one in each. */
enum { DRAWN, ZEROS, ZERO_ROWS };

static struct graph *graph_of_windows(const struct window *w, int kind)
{
    struct graph *g = new_graph();
    const uint32_t all = learned(g, "all", 2, (int64_t[]){ROWS, COLUMNS});
    const float *table = g->values[all].data;
    uint32_t y = GRAPH_NONE;

    for (int i = 0; i < MOST && w[i].rows; i++) {
        const int64_t dims[] = {w[i].rows, w[i].columns};
        const char *const names[MOST] = {"x", "z", "w"};
        uint32_t x = input(g, names[i], 3, (int64_t[]){-1, dims[0], dims[1]}),
                 t = param(g, NAMES[i], 2, dims);
        float *to = g->values[t].data;

        for (int64_t k = 0; k < dims[0] * dims[1]; k++) {
            const int64_t r = k / dims[1];

            to[k] = kind == ZEROS || (kind == ZERO_ROWS && r == i)
                        ? 0
                        : table[(w[i].row + r) * COLUMNS + w[i].column + k % dims[1]];
        }
        x = NODE(g, "ReduceSum",
                 i == 0   ? "s"
                 : i == 1 ? "r"
                          : "q",
                 NODE(g, "Add",
                      i == 0   ? "m"
                      : i == 1 ? "n"
                               : "o",
                      x, t));
        y = i == 0 ? x : NODE(g, "Add", i == 1 ? "y" : "v", y, x);
    }
    windows = w;
    return edited(g, y, say_windows);
}

static void what_windows_have_in_common_is_trained_once(void **state)
{
    static const struct {
        struct window of[MOST];
        const char *table; /* NULL: each is its own; "": training is refused */
        int64_t rows, columns;
        int kind;
    } CASES[] = {
        {{{0, 8, 0, 12}, {6, 8, 0, 12}}, "slice_1@union", 14, 12, DRAWN},
        {{{0, 8, 0, 12}, {7, 6, 0, 12}}, "slice_1@union", 13, 12, DRAWN}, /* one row */
        {{{6, 9, 0, 12}, {0, 8, 0, 12}}, "slice_1@union", 15, 12, DRAWN},
        {{{0, 8, 0, 12}, {14, 8, 0, 12}, {7, 8, 0, 12}},
         "slice_1@union",
         22,
         12,
         DRAWN}, /* joins */
        {{{0, 8, 0, 12}, {2, 4, 0, 12}}, "slice_1", 8, 12, DRAWN},
        {{{0, 20, 0, 5}, {0, 20, 4, 5}}, "slice_1@union", 20, 9, DRAWN},
        {{{0, 8, 0, 1}, {4, 8, 0, 1}}, "slice_1@union", 12, 1, DRAWN}, /* numbers that follow */
        {{{0, 40, 0, 1}, {39, 20, 0, 1}}, "", 0, 0, DRAWN},            /* one number alone */
        {{{0, 12, 0, 8}, {11, 12, 6, 6}}, "", 0, 0, DRAWN},            /* a corner: two numbers */
        {{{0, 8, 0, 12}, {8, 9, 0, 12}}, NULL, 0, 0, DRAWN},
        {{{0, 8, 0, 12}, {8, 9, 0, 12}}, NULL, 0, 0, ZERO_ROWS},
    };

    (void)state;
    for (size_t i = 0; i < SH_ARRAY_LEN(CASES); i++) {
        const char *table = CASES[i].table;
        struct graph *g = graph_of_windows(CASES[i].of, CASES[i].kind), *t = NULL;
        struct sh_err err = {0};

        for (int k = 0; k < MOST && CASES[i].of[k].rows && table && table[0]; k++) {
            char shaped[32]; /* an axis of 1 is no axis of the table */

            snprintf(shaped, sizeof(shaped), "%s@taken", NAMES[k]);
            if (strcmp(NAMES[k], table) != 0)
                assert_string_equal(input_of(g, NAMES[k], 0),
                                    CASES[i].columns == 1 ? shaped : table);
        }
        for (int k = 0; k < MOST && CASES[i].of[k].rows && !table; k++)
            assert_true(is_param(g, NAMES[k]));
        if (table && table[0]) {
            assert_true(is_param(g, table));
            assert_int_equal(g->values[graph_find(g, table)].dims[0], CASES[i].rows);
            assert_int_equal(graph_elements(&g->values[graph_find(g, table)]),
                             CASES[i].rows * CASES[i].columns);
        }
        assert_int_equal(graph_at_batch(g, 2, true, &t, &err),
                         table && !table[0] ? SH_E_UNSUPPORTED : SH_OK);
        graph_free(t);
        graph_free(g);
    }
}

/* Of a table that begins as zeros one window learns as the table does; of two nothing says whether
 * they have rows in common, so they are held, and that is told. */
static void a_window_of_zeros_learns(void **state)
{
    static const struct window ONE[MOST] = {{0, 8, 0, 12}},
                               TWO[MOST] = {{0, 8, 0, 12}, {6, 9, 0, 12}};
    struct graph *g = graph_of_windows(ONE, ZEROS);

    (void)state;
    assert_true(is_param(g, "slice_1"));
    graph_free(g);
    g = graph_of_windows(TWO, ZEROS);
    assert_false(is_param(g, "slice_1") || is_param(g, "slice_2"));
    graph_free(g);
}

static void say_level(Onnx__GraphProto *g, const char *call)
{
    (void)call;
    add_pair(&g->base, 16, META_SIGNATURE, "p_tables: PARAMETER target='tables'\n");
    say_from(g, "val_53", "['select_3', 'tables', 'val_8']");
}

/* One of several tables, of which an input says the places, whatever takes them. */
static void a_table_learns_whatever_takes_of_it(void **state)
{
    static const char *const OPS[] = {"Gather", "GatherElements", "GatherND"};

    (void)state;
    for (size_t i = 0; i < SH_ARRAY_LEN(OPS); i++) {
        struct graph *g = new_graph();
        const uint32_t x = input(g, "x", 2, (int64_t[]){-1, 2}),
                       table = learned(g, "val_53", 2, (int64_t[]){16, 2});
        uint32_t ids;

        assert_ok(graph_add_value(g, "ids", SH_I64, 2, (int64_t[]){-1, 1 + (i == 1)}, &ids, NULL));
        assert_ok(graph_add_input(g, ids, NULL));
        g = edited(g, NODE(g, "Mul", "y", x, NODE(g, OPS[i], "rows", table, ids)), say_level);
        assert_true(is_param(g, "val_53"));
        graph_free(g);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_windows_have_in_common_is_trained_once),
        cmocka_unit_test(a_window_of_zeros_learns),
        cmocka_unit_test(a_table_learns_whatever_takes_of_it),
    };

    return cmocka_run_group_tests(tests, make_folder, drop_folder);
}
