/* test_tables.c - Without it: a table that something else reads too could be left behind in host
 * memory, where only rows are read; programs for two batch sizes could disagree about their image;
 * or rows read in place could be other numbers than those that were copied. */
/* uses: libmodel.a libdevice.a */
/* link: -ldl */
#include "common/shm.h"
#include "tests/unit/graph_nodes.h"

#include <sys/mman.h>

enum { ROWS = 4000, WIDE = 24, SEQ = 5 };

static const struct tables_cost ANY = {.any = true};

static uint32_t ids_input(struct graph *g)
{
    uint32_t v;

    assert_ok(graph_add_value(g, "ids", SH_I64, 2, (int64_t[]){-1, SEQ}, &v, NULL));
    assert_ok(graph_add_input(g, v, NULL));
    return v;
}

enum kind { PLAIN, TIED, FIXED, COLUMNS, ALONE, TWICE };

static struct graph *make(enum kind kind)
{
    struct graph *g = new_graph();
    const int64_t fixed[] = {3, 1, 4, 1, 5};
    uint32_t ids = ids_input(g), table = param(g, "table", 2, (int64_t[]){ROWS, WIDE}), x, at;

    at = kind == FIXED ? shape_of(g, "fixed", SEQ, fixed) : ids;
    if (kind == COLUMNS)
        table = param(g, "wide", 2, (int64_t[]){WIDE, ROWS});
    x = NODE(g, "Gather", "rows", table, at);
    if (kind == COLUMNS) {
        assert_ok(graph_set_int(&g->nodes[g->n_nodes - 1], "axis", 1, NULL));
        x = NODE(g, "ReduceMax", "most", x, shape_of(g, "over", 1, (int64_t[]){0}));
    }
    if (kind == FIXED)
        x = NODE(g, "Add", "sum", x,
                 NODE(g, "Gather", "other", param(g, "small", 2, (int64_t[]){7, WIDE}), ids));
    if (kind == TWICE)
        x = NODE(g, "Add", "sum", x,
                 NODE(g, "Gather", "again", table, NODE(g, "Abs", "positive", ids)));
    if (kind == TIED)
        x = NODE(g, "MatMul", "y", x, NODE(g, "Transpose", "turned", table));
    else if (kind != ALONE && kind != COLUMNS)
        x = NODE(g, "MatMul", "y", x, param(g, "w", 2, (int64_t[]){WIDE, 8}));
    assert_ok(graph_add_output(g, x, NULL));
    return g;
}

static struct program *compile(struct dev *d, struct graph *g, int64_t batch,
                               const struct tables_cost *c, const struct program *share)
{
    const struct graph_sizes at = {.batch = batch};
    struct sh_err err = {0};
    struct program *p;
    int rc = share || !c ? program_infer(d, g, &at, DEV_FP32, share, &p, &err)
                         : program_infer_tables(d, g, &at, DEV_FP32, c, &p, &err);

    assert_ok_err(rc, &err);
    return p;
}

static void only_what_is_read_by_rows_is_a_table(void **state)
{
    static const uint32_t WANT[] = {
        [PLAIN] = 1, [TIED] = 0, [FIXED] = 0, [COLUMNS] = 0, [ALONE] = 0, [TWICE] = 1};
    struct dev_lib *l;
    struct dev *d = open_cpu(&l);

    (void)state;
    for (enum kind k = PLAIN; k <= TWICE; k++) {
        struct graph *g = make(k);
        struct program *p = compile(d, g, 2, &ANY, NULL), *plain = compile(d, g, 2, NULL, NULL);

        if (program_n_tables(p) != WANT[k])
            fail_msg("kind %d has %u tables", k, program_n_tables(p));
        assert_int_equal(program_n_tables(plain), 0);
        assert_int_equal(program_tables_at(plain), program_image_bytes(plain));
        program_free(p);
        program_free(plain);
        graph_free(g);
    }
    dev_close(d);
    dev_lib_close(l);
}

static void tables_lie_behind_all_layers_and_nobody_waits_for_them(void **state)
{
    struct dev_lib *l;
    struct dev *d = open_cpu(&l);
    struct graph *g = make(PLAIN);
    struct program *p = compile(d, g, 4, &ANY, NULL), *one = compile(d, g, 1, &ANY, p);
    const uint32_t n = program_n_layers(p);
    const uint64_t *ends = program_layer_ends(p);

    (void)state;
    assert_int_equal(n, 2);
    assert_int_equal(program_tables_at(p) % 4096, 0);
    assert_int_equal(ends[0], program_tables_at(p)); /* no byte of the image is of no layer */
    assert_int_equal(ends[1], program_image_bytes(p));
    assert_true(program_image_bytes(p) - program_tables_at(p) >= ROWS * WIDE * sizeof(float));
    assert_int_equal(program_layer_begin(p, n - 1), program_n_ops(p));
    assert_int_equal(program_rows_bytes(p), 4 * SEQ * WIDE * sizeof(float));
    assert_int_equal(program_n_tables(one), 1);
    assert_int_equal(program_tables_at(one), program_tables_at(p));
    assert_int_equal(program_rows_bytes(one), SEQ * WIDE * sizeof(float));
    program_free(one);
    program_free(p);
    graph_free(g);
    dev_close(d);
    dev_lib_close(l);
}

static void a_table_has_to_pay(void **state)
{
    const struct tables_cost c = {.copy_ns = 3e3, .link_ns = 0.02, .reach_ns = 0.04};
    const uint64_t mib = 1 << 20;

    (void)state;
    assert_true(tables_pays(&c, 94 * mib, 3 * mib)); /* BERT-base, 8 x 128 tokens */
    assert_true(tables_pays(&c, 94 * mib, 23 * mib));
    assert_false(tables_pays(&c, 94 * mib, 24 * mib)); /* it saves less than half */
    assert_false(tables_pays(&c, 2 * mib, 4096));      /* it saves 37 us */
    assert_true(tables_pays(&c, 3 * mib, 4096));
    assert_false(tables_pays(&c, 94 * mib, UINT64_MAX / 2));
    assert_true(tables_pays(&ANY, 8192, 8191));
    assert_false(tables_pays(&ANY, 8192, 8192));
    assert_false(tables_pays(&ANY, 4095, 1));
}

/* ------------------------------------------------------------------ runs */

enum where { BEHIND_IMAGE, ELSEWHERE, IN_HOST };

/* The image on the device, but the tables where they are said to be; garbage where they are not. */
static int run_with(struct dev *d, struct program *p, enum where where, const int64_t *ids,
                    float *y, struct sh_err *err)
{
    struct dev_bases b = {.workspace = (size_t)2 << 20, .tables = (size_t)5 << 20};
    const size_t bytes = program_image_bytes(p), at = program_tables_at(p);
    struct sh_shm image;
    int rc;

    assert_ok(sh_shm_create("test", bytes, &image, NULL));
    assert_ok(program_write_image(p, image.base, NULL));
    assert_ok(dev_fill(d, 0, 0x4b, (size_t)8 << 20, NULL));
    assert_ok(dev_upload(d, 0, image.base, where == BEHIND_IMAGE ? bytes : at, NULL));
    if (where == BEHIND_IMAGE)
        b.tables = at;
    if (where == ELSEWHERE)
        assert_ok(dev_upload(d, b.tables, (char *)image.base + at, bytes - at, NULL));
    if (where == IN_HOST) {
        assert_int_equal(mprotect(image.base, image.bytes, PROT_READ), 0);
        b.host_bytes = bytes - at;
        assert_ok(dev_reach_host(d, (char *)image.base + at, bytes - at, &b.host_tables, NULL));
    }
    assert_ok(dev_upload(d, b.workspace + program_input(p, 0)->offset, ids,
                         program_input(p, 0)->bytes, NULL));
    rc = program_run(p, &b, 0, program_n_ops(p), err);
    if (!rc)
        rc = dev_sync(d, err);
    assert_ok(dev_download(d, y, b.workspace + program_output(p, 0)->offset,
                           program_output(p, 0)->bytes, NULL));
    assert_ok(dev_sync(d, NULL));
    if (where == IN_HOST)
        dev_leave_host(d, (char *)image.base + at);
    sh_shm_fini(&image);
    return rc;
}

static void rows_are_the_same_wherever_the_table_is(void **state)
{
    const int64_t ids[2 * SEQ] = {0, ROWS - 1, 17, -1, -ROWS, 5, 5, 123, 1999, 2};
    float want[2 * SEQ * 8], got[2 * SEQ * 8];
    struct dev_lib *l;
    struct dev *d = open_cpu(&l);
    struct graph *g = make(PLAIN);
    struct program *p = compile(d, g, 2, &ANY, NULL), *plain = compile(d, g, 2, NULL, NULL);

    (void)state;
    assert_int_equal(program_output(p, 0)->bytes, sizeof(want));
    assert_ok(run_with(d, plain, BEHIND_IMAGE, ids, want, NULL));
    for (enum where w = BEHIND_IMAGE; w <= IN_HOST; w++) {
        memset(got, 0, sizeof(got));
        assert_ok(run_with(d, p, w, ids, got, NULL));
        assert_memory_equal(got, want, sizeof(want));
    }
    program_free(p);
    program_free(plain);
    graph_free(g);
    dev_close(d);
    dev_lib_close(l);
}

static void an_index_outside_is_refused_wherever_the_table_is(void **state)
{
    static const int64_t BAD[] = {ROWS, -ROWS - 1, INT64_MAX, INT64_MIN};
    struct dev_lib *l;
    struct dev *d = open_cpu(&l);
    struct graph *g = make(PLAIN);
    struct program *p = compile(d, g, 1, &ANY, NULL);
    float y[SEQ * 8];

    (void)state;
    for (size_t i = 0; i < SH_ARRAY_LEN(BAD); i++)
        for (enum where w = BEHIND_IMAGE; w <= IN_HOST; w++) {
            const int64_t ids[SEQ] = {1, 2, BAD[i], 3, 4};
            struct sh_err err = {0};

            assert_fails(run_with(d, p, w, ids, y, &err), SH_E_INVALID, &err, "outside the table");
        }
    program_free(p);
    graph_free(g);
    dev_close(d);
    dev_lib_close(l);
}

/* So that a wrong size is a failed run, and never a read behind the mapping. */
static void host_memory_that_is_too_short_is_refused(void **state)
{
    struct dev_bases b = {.workspace = (size_t)2 << 20};
    struct sh_err err = {0};
    struct dev_lib *l;
    struct dev *d = open_cpu(&l);
    struct graph *g = make(PLAIN);
    struct program *p = compile(d, g, 1, &ANY, NULL);
    struct sh_shm short_one;

    (void)state;
    assert_ok(sh_shm_create("test", 4096, &short_one, NULL));
    assert_ok(dev_reach_host(d, short_one.base, 4096, &b.host_tables, NULL));
    b.host_bytes = 4096;
    assert_fails(program_run(p, &b, 0, program_n_ops(p), &err), SH_E_BUG, &err, "host memory");
    sh_shm_fini(&short_one);
    program_free(p);
    graph_free(g);
    dev_close(d);
    dev_lib_close(l);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(only_what_is_read_by_rows_is_a_table),
        cmocka_unit_test(tables_lie_behind_all_layers_and_nobody_waits_for_them),
        cmocka_unit_test(a_table_has_to_pay),
        cmocka_unit_test(rows_are_the_same_wherever_the_table_is),
        cmocka_unit_test(an_index_outside_is_refused_wherever_the_table_is),
        cmocka_unit_test(host_memory_that_is_too_short_is_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
