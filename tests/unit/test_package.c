/* test_package.c - Without it: a worker would start on half a package, or trust a damaged one. */
/* uses: libmodel.a */
#include "common/importer.h"
#include "common/mem.h"
#include "runtime/model/package.h"
#include "tests/unit/graph_text.h"

#include <math.h>

#define PATH_BYTES 128

static char dir[SH_TEST_DIR_BYTES];

static int setup(void **state)
{
    (void)state;
    sh_test_dir_make(dir);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    sh_test_dir_remove(dir);
    return 0;
}

static struct graph *model(void)
{
    struct graph *g =
        text_graph("Clip", "f[-1,3] c[]=-1 c[]=6.25", "note:text list=1,-2, a~0.1", 1);
    uint32_t w, in[2], y;
    float *data = calloc(3, sizeof(*data));
    bool *flag = calloc(1, sizeof(*flag)); /* one byte, in front of numbers that must be aligned */

    assert_non_null(data);
    assert_non_null(flag);
    data[1] = 1.0f / 3.0f;
    assert_ok(graph_add_const(g, "flag", SH_BOOL, 0, NULL, flag, &w, NULL));
    assert_ok(graph_add_const(g, "weight", SH_F32, 1, (int64_t[]){3}, data, &w, NULL));
    g->values[w].is_param = true;
    assert_ok(sh_strdup("net.weight", &g->values[w].of, NULL));
    assert_ok(graph_set_float(&g->nodes[0], "open", INFINITY, NULL));
    in[0] = g->outputs[0];
    in[1] = w;
    assert_ok(graph_add_value(g, "z", SH_F32, -1, NULL, &y, NULL));
    assert_ok(graph_add_node(g, "mul", "Mul", in, 2, &y, 1, NULL, NULL));
    assert_ok(graph_add_output(g, y, NULL));
    g->opset = 17;
    return g;
}

static void a_package_gives_back_the_graph(void **state)
{
    struct graph *g = model(), *b = NULL;
    struct sh_err err = {0};
    const char *s;
    double f;
    (void)state;

    assert_ok_err(package_write(g, dir, &err), &err);
    assert_int_equal(sh_test_dir_walk(dir, false), 2);
    assert_ok_err(package_read(dir, &b, &err), &err);
    assert_int_equal(b->n_nodes, 2);
    assert_int_equal(b->n_values, g->n_values);
    assert_int_equal(b->opset, 17);
    for (uint32_t i = 0; i < g->n_values; i++) {
        const struct graph_value *v = &g->values[i], *w = &b->values[i];

        assert_string_equal(v->name, w->name);
        assert_int_equal(v->dtype, w->dtype);
        assert_int_equal(v->rank, w->rank);
        assert_int_equal(v->is_param, w->is_param);
        assert_string_equal(v->of ? v->of : "", w->of ? w->of : "");
        assert_int_equal(v->bytes, w->bytes);
        if (v->data)
            assert_memory_equal(v->data, w->data, v->bytes);
        assert_int_equal((uintptr_t)w->data % 4, 0);
    }
    assert_ok(graph_str(&b->nodes[0], "note", NULL, &s, NULL));
    assert_string_equal(s, "text");
    assert_ok(graph_float(&b->nodes[0], "a", 0, &f, NULL));
    assert_true(f == 0.1);
    assert_ok(graph_float(&b->nodes[0], "open", 0, &f, NULL));
    assert_true(isinf(f) && f > 0);
    assert_int_equal(b->values[b->inputs[0]].dims[0], -1);
    graph_free(b);
    graph_free(g);
}

static void half_a_package_is_no_package(void **state)
{
    struct graph *g = model(), *b = NULL;
    struct sh_err err = {0};
    char path[PATH_BYTES];
    (void)state;

    assert_ok(package_write(g, dir, NULL));
    snprintf(path, sizeof(path), "%s/graph.json", dir);
    unlink(path);
    assert_true(package_read(dir, &b, &err) != SH_OK);
    assert_null(b);
    assert_ok(package_write(g, dir, NULL));
    snprintf(path, sizeof(path), "%s/weights.safetensors", dir);
    unlink(path);
    memset(&err, 0, sizeof(err));
    assert_true(package_read(dir, &b, &err) != SH_OK);
    assert_null(b);
    graph_free(g);
}

static void write_json(const char *text)
{
    char path[PATH_BYTES];

    snprintf(path, sizeof(path), "%s/graph.json", dir);
    sh_test_write_file(path, text, strlen(text));
}

static void a_graph_that_does_not_fit_its_weights_is_refused(void **state)
{
#define GRAPH(values, nodes, in, out)                                                           \
    "{\"version\":1,\"opset\":17,\"values\":[" values "],\"nodes\":[" nodes "],\"inputs\":[" in \
    "],\"outputs\":[" out "]}"
#define X "[\"x\",\"F32\",[-1,3],\"\"]"
#define W "[\"weight\",\"F32\",[3],\"param\"]"
#define Y "[\"y\",\"F32\",null,\"\"]"
#define MUL "[\"Mul\",\"n\",[0,1],[2],{}]"
    static const struct {
        const char *json, *want; /* want NULL: is fine */
    } ROWS[] = {
        {GRAPH(X "," W "," Y, MUL, "0", "2"), NULL},
        {GRAPH(X ",[\"weight\",\"F32\",[4],\"param\"]," Y, MUL, "0", "2"), "weights of value 1"},
        {GRAPH(X ",[\"weight\",\"I32\",[3],\"const\"]," Y, MUL, "0", "2"), "weights of value 1"},
        {GRAPH(X ",[\"none\",\"F32\",[3],\"param\"]," Y, MUL, "0", "2"), "weights of value 1"},
        {GRAPH(X "," X "," Y, MUL, "0", "2"), "value 1"},
        {GRAPH(X "," W "," Y, "[\"Mul\",\"n\",[0,3],[2],{}]", "0", "2"), "links of node 0"},
        {GRAPH(X "," W "," Y, "[\"Mul\",\"n\",[0,-2],[2],{}]", "0", "2"), "links of node 0"},
        {GRAPH(X "," W "," Y, "[\"Mul\",\"n\",[0,2],[2],{}]", "0", "2"), "before anything defines"},
        {GRAPH(X "," W "," Y, "[\"Mul\",\"n\",[0,1],[2],{\"a\":1}]", "0", "2"),
         "attribute of node 0"},
        {GRAPH(X "," W "," Y, MUL, "1", "2"), "input 0"},
        {GRAPH(X "," W "," Y, MUL, "0", "-1"), "output 0"},
        {GRAPH(X "," W "," Y, "[\"\",\"n\",[0,1],[2],{}]", "0", "2"), "no operator"},
        {GRAPH("[\"x\",\"F32\",[-5,3],\"\"]," W "," Y, MUL, "0", "2"), "shape of value 0"},
        {GRAPH("[\"x\",\"F99\",[-1,3],\"\"]," W "," Y, MUL, "0", "2"), "value 0"},
        {"{\"version\":2,\"opset\":17,\"values\":[],\"nodes\":[],\"inputs\":[],\"outputs\":[]}",
         "version 2"},
        {"{}", "version"},
    };
    struct graph *g = model(), *b;
    (void)state;

    assert_ok(package_write(g, dir, NULL));
    for (size_t i = 0; i < SH_ARRAY_LEN(ROWS); i++) {
        struct sh_err err = {0};
        int rc;

        write_json(ROWS[i].json);
        rc = package_read(dir, &b, &err);
        if (ROWS[i].want ? rc == SH_OK || !strstr(err.msg, ROWS[i].want) : rc != SH_OK)
            fail_msg("row %zu: %s \"%s\", want \"%s\"", i, sh_rc_name(rc), err.msg,
                     ROWS[i].want ? ROWS[i].want : "success");
        graph_free(b);
    }
    graph_free(g);
}

static void no_changed_byte_of_the_graph_crashes_the_reader(void **state)
{
    struct graph *g = model(), *b, *c;
    char path[PATH_BYTES];
    size_t n;
    char *text;
    (void)state;

    assert_ok(package_write(g, dir, NULL));
    snprintf(path, sizeof(path), "%s/graph.json", dir);
    text = sh_test_read_file(path, &n);
    for (size_t i = 0; i < n; i++)
        for (int j = 0; j < 4; j++) {
            char keep = text[i];

            text[i] = "9-]\""[j];
            sh_test_write_file(path, text, n);
            text[i] = keep;
            if (package_read(dir, &b, NULL) == SH_OK &&
                graph_at_batch(b, 3, false, &c, NULL) == SH_OK)
                graph_free(c);
            graph_free(b);
        }
    free(text);
    graph_free(g);
}

/* Without it a model of an earlier release would train, and a part of that be lost. */
static void a_package_says_whose_rules_it_was_made_by(void **state)
{
    struct graph *g = model(), *b = NULL;
    struct sh_err err = {0};
    char path[PATH_BYTES];
    FILE *f;
    (void)state;

    assert_int_equal(sh_importer_of(dir), 0); /* there is none */
    assert_ok_err(package_write(g, dir, &err), &err);
    assert_int_equal(sh_importer_of(dir), SH_IMPORTER);
    assert_ok_err(package_read(dir, &b, &err), &err);
    assert_int_equal(b->importer, SH_IMPORTER);
    graph_free(b);
    graph_free(g);
    snprintf(path, sizeof(path), "%s/graph.json", dir);
    f = fopen(path, "w");
    assert_non_null(f);
    fputs("{\"version\":1,\"opset\":17,\"values\":[[\"\\\"importer\\\":7\",\"F32\",[1],\"\"]],"
          "\"nodes\":[],\"inputs\":[],\"outputs\":[]}",
          f);
    fclose(f);
    assert_int_equal(sh_importer_of(dir), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_package_gives_back_the_graph, setup, teardown),
        cmocka_unit_test_setup_teardown(half_a_package_is_no_package, setup, teardown),
        cmocka_unit_test_setup_teardown(a_graph_that_does_not_fit_its_weights_is_refused, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(no_changed_byte_of_the_graph_crashes_the_reader, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(a_package_says_whose_rules_it_was_made_by, setup, teardown),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
