/* test_onnx.c - Without it: a model file of a stranger could crash the importer, make it allocate
 * without end, or slip past it with another meaning than its author's tools show. */
/* uses: libmodel.a */
/* link: -lprotobuf-c */
#include "common/buf.h"
#include "common/mem.h"
#include "common/safetensors.h"
#include "runtime/model/graph_int.h"
#include "runtime/model/onnx.h"
#include "tests/unit/graph_text.h"
#include "tests/unit/onnx_bytes.h"

/* ---------------------------------------------------------------- good files */

static uint32_t weight(struct graph *g, const char *name, int rank, const int64_t *dims)
{
    int64_t n = 1;
    float *data;
    uint32_t v;

    for (int i = 0; i < rank; i++)
        n *= dims[i];
    data = calloc((size_t)n, sizeof(*data));
    assert_non_null(data);
    for (int64_t i = 0; i < n; i++)
        data[i] = (float)i * 0.25f - 1.0f;
    assert_ok(graph_add_const(g, name, SH_F32, rank, dims, data, &v, NULL));
    g->values[v].is_param = true;
    return v;
}

static uint32_t add(struct graph *g, const char *op, const char *out, const uint32_t *in,
                    uint32_t n_in)
{
    uint32_t v;

    assert_ok(graph_add_value(g, out, SH_F32, -1, NULL, &v, NULL));
    assert_ok(graph_add_node(g, NULL, op, in, n_in, &v, 1, NULL, NULL));
    return v;
}

/* Conv, BatchNormalization, Clip, ReduceMean, Flatten, Gemm, Dropout. */
static struct graph *small_model(void)
{
    struct graph *g;
    uint32_t x, w, y, bn[5], clip[3], pair[3];
    int64_t axes[2] = {2, 3}, two = 2, *data = calloc(2, sizeof(*data));

    assert_non_null(data);
    assert_ok(graph_new(&g, NULL));
    assert_ok(graph_add_value(g, "x", SH_F32, 4, (int64_t[]){-1, 2, 5, 5}, &x, NULL));
    assert_ok(graph_add_input(g, x, NULL));
    w = weight(g, "conv.weight", 4, (int64_t[]){4, 2, 3, 3});
    y = add(g, "Conv", "c", (uint32_t[]){x, w}, 2);
    assert_ok(graph_set_ints(&g->nodes[0], "pads", (int64_t[]){1, 1, 1, 1}, 4, NULL));
    bn[0] = y;
    for (int i = 1; i < 5; i++) {
        char name[16];

        snprintf(name, sizeof(name), "bn.%d", i);
        bn[i] = weight(g, name, 1, (int64_t[]){4});
    }
    y = add(g, "BatchNormalization", "b", bn, 5);
    assert_ok(graph_set_float(&g->nodes[1], "epsilon", 0.001, NULL));
    clip[0] = y;
    clip[1] = GRAPH_NONE;
    clip[2] = weight(g, "six", 0, NULL);
    g->values[clip[2]].is_param = false;
    y = add(g, "Clip", "r", clip, 3);
    memcpy(data, axes, sizeof(axes));
    assert_ok(graph_add_const(g, "axes", SH_I64, 1, &two, data, &pair[1], NULL));
    pair[0] = y;
    y = add(g, "ReduceMean", "m", pair, 2);
    y = add(g, "Flatten", "f", &y, 1);
    y = add(g, "Dropout", "d", &y, 1);
    pair[0] = y;
    pair[1] = weight(g, "fc.weight", 2, (int64_t[]){3, 4});
    pair[2] = weight(g, "fc.bias", 1, (int64_t[]){3});
    y = add(g, "Gemm", "logits", pair, 3);
    assert_ok(graph_set_int(&g->nodes[g->n_nodes - 1], "transB", 1, NULL));
    assert_ok(graph_add_output(g, y, NULL));
    return g;
}

static void assert_same_graph(const struct graph *a, const struct graph *b)
{
    assert_int_equal(a->n_nodes, b->n_nodes);
    assert_int_equal(a->n_inputs, b->n_inputs);
    for (uint32_t i = 0; i < a->n_nodes; i++) {
        const struct graph_node *n = &a->nodes[i], *m = &b->nodes[i];

        assert_string_equal(n->op, m->op);
        assert_string_equal(n->name, m->name);
        assert_int_equal(n->n_attrs, m->n_attrs);
        assert_int_equal(n->n_in, m->n_in);
        for (uint32_t j = 0; j < n->n_in; j++) {
            const struct graph_value *v, *w;

            assert_int_equal(n->in[j] == GRAPH_NONE, m->in[j] == GRAPH_NONE);
            if (n->in[j] == GRAPH_NONE)
                continue;
            v = &a->values[n->in[j]];
            w = &b->values[m->in[j]];
            assert_string_equal(v->name, w->name);
            assert_int_equal(v->is_param, w->is_param);
            assert_int_equal(v->data != NULL, w->data != NULL);
            assert_int_equal(v->bytes, w->bytes);
            if (v->bytes)
                assert_memory_equal(v->data, w->data, v->bytes);
        }
    }
}

static void what_is_written_is_read_back(void **state)
{
    struct graph *g = small_model(), *back = NULL;
    struct sh_err err = {0};
    char path[PATH_BYTES];
    int64_t pads[4];
    size_t k;
    (void)state;

    path_of("m.onnx", path);
    assert_ok_err(onnx_write(g, path, &err), &err);
    assert_int_equal(sh_test_dir_walk(dir, false), 1); /* no temporary file stays */
    assert_ok_err(onnx_read(path, &back, &err), &err);
    assert_same_graph(g, back);
    assert_int_equal(back->opset, 18);
    assert_int_equal(back->values[back->inputs[0]].dims[0], -1);
    assert_string_equal(back->values[back->outputs[0]].name, "logits");
    assert_ok(graph_ints(&back->nodes[0], "pads", pads, 4, &k, NULL));
    assert_int_equal(k, 4);
    graph_free(back);
    graph_free(g);
}

static void weights_come_in_five_encodings(void **state)
{
    static const uint8_t half[4] = {0x00, 0x3C, 0x00, 0x40}; /* 1, 2 */
    struct sh_err err = {0};
    struct graph *g = NULL;
    struct file f;
    float two[2] = {0.5f, 2.0f};
    (void)state;

    file_begin(&f);
    file_node(&f, "", "Relu", "x", "y");
    put_int(&f.msg, 1, 2); /* dims */
    put_int(&f.msg, 2, FLOAT);
    put_text(&f.msg, 8, "typed");
    put_bytes(&f.msg, 4, two, sizeof(two)); /* float_data, packed */
    put_msg(&f.graph, INITIALIZER, &f.msg);
    put_int(&f.msg, 1, 2);
    put_int(&f.msg, 2, BOOL);
    put_text(&f.msg, 8, "flags");
    put_int(&f.msg, 5, 0); /* int32_data, not packed */
    put_int(&f.msg, 5, 7);
    put_msg(&f.graph, INITIALIZER, &f.msg);
    put_int(&f.msg, 1, 2);
    put_int(&f.msg, 2, INT64);
    put_text(&f.msg, 8, "longs");
    put_int(&f.msg, 7, -5);
    put_int(&f.msg, 7, 6);
    put_msg(&f.graph, INITIALIZER, &f.msg);
    put_int(&f.msg, 1, 2);
    put_int(&f.msg, 2, FLOAT16);
    put_text(&f.msg, 8, "halves");
    put_int(&f.msg, 5, 0x3C00);
    put_int(&f.msg, 5, 0x4000);
    put_msg(&f.graph, INITIALIZER, &f.msg);
    file_tensor(&f, "raw", FLOAT, 2, two, sizeof(two));
    assert_ok_err(file_read(&f, &g, NULL, &err), &err);
    assert_memory_equal(g->values[graph_find(g, "typed")].data, two, sizeof(two));
    assert_memory_equal(g->values[graph_find(g, "raw")].data, two, sizeof(two));
    assert_memory_equal(g->values[graph_find(g, "halves")].data, half, sizeof(half));
    assert_memory_equal(g->values[graph_find(g, "flags")].data, "\0\1", 2);
    assert_int_equal(((int64_t *)g->values[graph_find(g, "longs")].data)[0], -5);
    assert_true(g->values[graph_find(g, "raw")].is_param);
    assert_false(g->values[graph_find(g, "longs")].is_param);
    graph_free(g);
}

static void old_forms_of_operators_become_new_ones(void **state)
{
    struct sh_err err = {0};
    struct graph *g = NULL, *b = NULL;
    struct file f;
    (void)state;

    file_begin(&f);
    f.opset = 13;
    put_text(&f.msg, 1, "x");
    put_text(&f.msg, 2, "y");
    put_text(&f.msg, 4, "ReduceMean");
    put_text(&f.sub, 1, "axes");
    put_int(&f.sub, 8, -1);
    put_int(&f.sub, 20, 7); /* INTS */
    put_msg(&f.msg, 5, &f.sub);
    put_msg(&f.graph, NODE, &f.msg);
    assert_ok_err(file_read(&f, &g, NULL, &err), &err);
    assert_int_equal(g->nodes[0].n_in, 2);
    assert_int_equal(g->nodes[0].n_attrs, 0);
    assert_ok_err(graph_at_batch(g, 4, false, &b, &err), &err);
    assert_int_equal(b->values[b->outputs[0]].dims[1], 1);
    graph_free(b);
    graph_free(g);
}

static void nodes_out_of_order_are_sorted(void **state)
{
    struct sh_err err = {0};
    struct graph *g = NULL;
    struct file f;
    (void)state;

    file_begin(&f);
    file_node(&f, "", "Tanh", "b", "y");
    file_node(&f, "", "Exp", "a", "b");
    file_node(&f, "", "Relu", "x", "a");
    assert_ok_err(file_read(&f, &g, NULL, &err), &err);
    assert_string_equal(g->nodes[0].op, "Relu");
    assert_string_equal(g->nodes[2].op, "Tanh");
    graph_free(g);
}

/* ---------------------------------------------------------------- bad files */

static void every_node_that_is_not_supported_is_listed(void **state)
{
    struct sh_err err = {0};
    struct graph *g = NULL;
    char *list = NULL;
    struct file f;
    (void)state;

    file_begin(&f);
    file_node(&f, "com.acme", "Relu", "x", "a");
    file_node(&f, "", "ImageDecoder", "a", "b");
    file_node(&f, "", "Relu", "b", "c");
    file_node(&f, "", "TfIdfVectorizer", "c", "y");
    assert_fails(file_read(&f, &g, &list, &err), SH_E_UNSUPPORTED, &err, "3 of 4 nodes");
    assert_has(list, "com.acme::Relu a: operators of other domains");
    assert_has(list, "ImageDecoder b:");
    assert_has(list, "TfIdfVectorizer y:");
    assert_has_not(list, "Relu c");
    assert_null(g);
    free(list);
}

static void check_bad(struct file *f, int rc, const char *part)
{
    struct sh_err err = {0};
    struct graph *g = NULL;

    assert_fails(file_read(f, &g, NULL, &err), rc, &err, part);
    assert_null(g);
}

static void graphs_that_make_no_sense_are_refused(void **state)
{
    static char long_name[4098];
    struct file f;
    (void)state;

    file_begin(&f);
    file_node(&f, "", "Relu", "b", "a");
    file_node(&f, "", "Relu", "a", "b");
    file_node(&f, "", "Relu", "x", "y");
    check_bad(&f, SH_E_INVALID, "a cycle");
    file_begin(&f);
    file_node(&f, "", "Relu", "x", "y");
    file_node(&f, "", "Tanh", "x", "y");
    check_bad(&f, SH_E_INVALID, "a second time");
    file_begin(&f);
    file_node(&f, "", "Relu", "nowhere", "y");
    check_bad(&f, SH_E_INVALID, "before anything defines it");
    file_begin(&f);
    file_node(&f, "", "Relu", "x", "x");
    check_bad(&f, SH_E_INVALID, "");
    file_begin(&f);
    check_bad(&f, SH_E_INVALID, "output y");
    file_begin(&f);
    f.opset = 24;
    file_node(&f, "", "Relu", "x", "y");
    check_bad(&f, SH_E_UNSUPPORTED, "opset 24");
    file_init(&f);
    file_value(&f, INPUT, "x", FLOAT, 2, (int64_t[]){-1, 0});
    check_bad(&f, SH_E_INVALID, "has no elements");
    file_init(&f);
    file_value(&f, INPUT, "x", STRING, 2, (int64_t[]){-1, 2});
    check_bad(&f, SH_E_UNSUPPORTED, "element type 8");
    file_init(&f);
    file_value(&f, INPUT, "x\n", FLOAT, 2, (int64_t[]){-1, 2});
    check_bad(&f, SH_E_INVALID, "not plain text of 1 to 4096 bytes: x?");
    file_init(&f);
    file_value(&f, INPUT, "\xC3(", FLOAT, 2, (int64_t[]){-1, 2});
    check_bad(&f, SH_E_INVALID, "not plain text");
    memset(long_name, 'n', sizeof(long_name) - 1);
    file_init(&f);
    file_value(&f, INPUT, long_name, FLOAT, 2, (int64_t[]){-1, 2});
    check_bad(&f, SH_E_INVALID, "of 1 to 4096 bytes: nnn");
}

/* Of `min` inputs that an operator must have, does the list lack one? */
static bool lacks(const char *in, size_t min)
{
    char words[16], *save = NULL;
    size_t n = 0;

    snprintf(words, sizeof(words), "%s", in);
    for (char *w = strtok_r(words, " ", &save); w && n < min && strcmp(w, "-") != 0; n++)
        w = strtok_r(NULL, " ", &save);
    return n < min;
}

/* What looks for parameters and norms sees a node before anything is computed of its shapes. */
static void nodes_that_lack_inputs_are_refused_before_anything_looks_at_them(void **state)
{
    static const struct {
        const char *op;
        size_t min;
    } OPS[] = {{"Add", 2},       {"BatchNormalization", 5},
               {"Concat", 1},    {"Conv", 2},
               {"Div", 2},       {"Gather", 2},
               {"Gemm", 2},      {"LayerNormalization", 2},
               {"LeakyRelu", 1}, {"MatMul", 2},
               {"Mul", 2},       {"PRelu", 2},
               {"Relu", 1},      {"Softmax", 1},
               {"Sub", 2},       {"Where", 3}};
    static const char *const INPUTS[] = {"",    "x",   "w",     "-",     "x -",
                                         "- w", "- -", "x w -", "x - w", "- w w"};
    static const float W[3] = {1, -2, 3.5f};
    struct file f;
    (void)state;

    for (size_t i = 0; i < SH_ARRAY_LEN(OPS); i++)
        for (size_t k = 0; k < SH_ARRAY_LEN(INPUTS); k++) {
            if (!lacks(INPUTS[k], OPS[i].min))
                continue;
            file_begin(&f);
            file_tensor(&f, "w", FLOAT, 3, W, sizeof(W));
            file_node(&f, "", OPS[i].op, INPUTS[k], "y");
            check_bad(&f, SH_E_INVALID, OPS[i].op);
        }
}

/* As file_node(), with several outputs; "-" is one that is absent. */
static void put_node(struct file *f, const char *op, const char *in, const char *out)
{
    const char *const lists[] = {in, out};
    char words[32], *save = NULL;

    for (unsigned i = 0; i < 2; i++) {
        snprintf(words, sizeof(words), "%s", lists[i]);
        for (char *w = strtok_r(words, " ", &save); w; w = strtok_r(NULL, " ", &save))
            put_text(&f->msg, i + 1, strcmp(w, "-") == 0 ? "" : w);
    }
    put_text(&f->msg, 3, op);
    put_text(&f->msg, 4, op);
    put_msg(&f->graph, NODE, &f->msg);
}

/* A loop over what was found (hits.c), whose parts go where nobody takes them. */
static void parts_that_a_node_throws_away_are_read(void **state)
{
    static const char *const USES[][2] = {{"Cast", "p"}, {"Gather", "p zero"}, {"Gather", "x p"}};
    static const int64_t ONES[2] = {1, 1}, ZERO = 0;
    (void)state;

    for (size_t i = 0; i < SH_ARRAY_LEN(USES); i++) {
        struct graph *g = NULL;
        struct file f;

        file_begin(&f);
        file_tensor(&f, "ones", INT64, 2, ONES, sizeof(ONES));
        file_tensor(&f, "zero", INT64, 1, &ZERO, sizeof(ZERO));
        put_node(&f, "ReduceSum", "x zero", "sum");
        put_node(&f, "Greater", "sum zero", "any");
        put_node(&f, "NonZero", "any", "found");
        put_node(&f, "Split", "found ones", "p q");
        put_node(&f, USES[i][0], USES[i][1], "-");
        put_node(&f, "Identity", "x", "y");
        assert_ok(file_read(&f, &g, NULL, NULL));
        assert_string_equal(g->nodes[3].op, "Split");
        assert_null(graph__attr(&g->nodes[3], GRAPH_HITS));
        graph_free(g);
    }
}

/* A module that returns one tensor twice: names tell outputs apart. */
static void an_output_that_is_listed_twice_is_one(void **state)
{
    struct graph *g = NULL;
    struct file f;
    (void)state;

    file_begin(&f);
    file_node(&f, "", "Relu", "x", "y");
    file_value(&f, OUTPUT, "y", FLOAT, 2, (int64_t[]){-1, 3});
    assert_ok(file_read(&f, &g, NULL, NULL));
    assert_int_equal(g->n_outputs, 1);
    graph_free(g);
}

static void weights_that_do_not_match_their_shape_are_refused(void **state)
{
    char zeros[64] = {0};
    struct file f;
    (void)state;

    file_begin(&f);
    file_tensor(&f, "w", FLOAT, 3, zeros, 8);
    check_bad(&f, SH_E_INVALID, "8 bytes of data, its shape needs 12");
    file_begin(&f);
    file_tensor(&f, "w", FLOAT, -3, zeros, 12);
    check_bad(&f, SH_E_INVALID, "negative");
    file_begin(&f);
    file_tensor(&f, "w", FLOAT, INT64_MAX / 2, zeros, 12);
    check_bad(&f, SH_E_TOOBIG, "a tensor has more than");
    file_begin(&f);
    put_int(&f.msg, 1, (int64_t)1 << 32); /* a product that wraps around to 0 */
    put_int(&f.msg, 1, (int64_t)1 << 32);
    file_tensor(&f, "w", FLOAT, 1, zeros, 0);
    check_bad(&f, SH_E_TOOBIG, "a tensor has more than");
    file_begin(&f);
    file_tensor(&f, "w", STRING, 1, zeros, 4);
    check_bad(&f, SH_E_UNSUPPORTED, "element type");
    file_begin(&f);
    put_int(&f.msg, 14, 1); /* data_location = EXTERNAL */
    file_tensor(&f, "w", FLOAT, 1, zeros, 4);
    check_bad(&f, SH_E_INVALID, "none is named");
    file_begin(&f);
    file_tensor(&f, "w", FLOAT, 1, zeros, 4);
    file_tensor(&f, "w", FLOAT, 1, zeros, 4);
    check_bad(&f, SH_E_INVALID, "defined twice");
}

static void a_million_tiny_nodes_are_refused_before_they_cost_memory(void **state)
{
    struct file f;
    (void)state;

    file_begin(&f);
    for (int i = 0; i < 1000000; i++)
        assert_ok(sh_buf_append(&f.graph, "\x0A\x00", 2, NULL));
    sh_buf_fini(&f.msg);
    sh_buf_init(&f.msg, 16 << 20);
    check_bad(&f, SH_E_TOOBIG, "more than 65536 nodes");
}

static void nesting_has_an_end(void **state)
{
    struct sh_buf in, out;
    struct sh_err err = {0};
    struct graph *g = NULL;
    char path[PATH_BYTES];
    (void)state;

    sh_buf_init(&in, 1 << 20);
    sh_buf_init(&out, 1 << 20);
    for (int i = 0; i < 3000; i++) { /* a node holds an attribute holds a graph holds a node */
        put_msg(&out, (unsigned[]){6, 5, 1}[i % 3], &in);
        assert_ok(sh_buf_append(&in, out.data, out.len, NULL));
        sh_buf_reset(&out);
    }
    assert_ok(sh_buf_append(&out, "\x08\x08", 2, NULL)); /* without a version it looks like text */
    put_msg(&out, 7, &in);
    sh_test_write_file(path_of("deep.onnx", path), out.data, out.len);
    assert_fails(onnx_read(path, &g, &err), SH_E_INVALID, &err, "nested too deeply");
    sh_buf_fini(&in);
    sh_buf_fini(&out);
}

static void files_that_are_no_onnx_are_refused(void **state)
{
    struct sh_err err = {0};
    struct graph *g = NULL;
    char path[PATH_BYTES];
    (void)state;

    assert_fails(onnx_read(path_of("absent", path), &g, &err), SH_E_NOTFOUND, &err, "open");
    memset(&err, 0, sizeof(err));
    sh_test_write_file(path_of("t.onnx", path), "", 0);
    assert_fails(onnx_read(path, &g, &err), SH_E_INVALID, &err, "empty");
    memset(&err, 0, sizeof(err));
    sh_test_write_file(path, "hello, this is text\n", 20);
    assert_fails(onnx_read(path, &g, &err), SH_E_INVALID, &err, "no ONNX file but text");
    memset(&err, 0, sizeof(err));
    sh_test_write_file(path, "\x01hello", 6);
    assert_fails(onnx_read(path, &g, &err), SH_E_INVALID, &err, "not valid ONNX");
    memset(&err, 0, sizeof(err));
    sh_test_write_file(path, "\x08\x08", 2);
    assert_fails(onnx_read(path, &g, &err), SH_E_INVALID, &err, "no graph");
    memset(&err, 0, sizeof(err));
    assert_fails(onnx_read(dir, &g, &err), SH_E_INVALID, &err, "no regular file");
}

/* Whatever comes out of a damaged file, everything after the reader must survive it. */
static void use(const char *path)
{
    struct sh_err err = {0};
    struct graph *g = NULL, *b = NULL;
    char *list = NULL;

    if (onnx_read(path, &g, &err) == SH_OK && graph_check(g, false, &list, &err) == SH_OK &&
        graph_infer_outputs(g, false, &err) == SH_OK)
        graph_at_batch(g, 3, true, &b, &err);
    free(list);
    graph_free(b);
    graph_free(g);
}

static void no_truncation_and_no_changed_byte_crashes_the_reader(void **state)
{
    static const uint8_t VALUES[] = {0x00, 0x01, 0x7F, 0x80, 0xFF};
    struct graph *g = small_model();
    char path[PATH_BYTES], bad[PATH_BYTES];
    size_t n;
    char *data;
    (void)state;

    assert_ok(onnx_write(g, path_of("m.onnx", path), NULL));
    data = sh_test_read_file(path, &n);
    path_of("bad.onnx", bad);
    for (size_t i = 0; i < n; i++) {
        sh_test_write_file(bad, data, i);
        use(bad);
    }
    for (size_t i = 0; i < n; i++) {
        char keep = data[i];

        for (size_t j = 0; j < sizeof(VALUES); j++) {
            data[i] = j == 0 ? (char)(keep ^ 0x10) : (char)VALUES[j];
            sh_test_write_file(bad, data, n);
            use(bad);
        }
        data[i] = keep;
    }
    free(data);
    graph_free(g);
}

/* ---------------------------------------------------------------- export */

static void an_export_has_the_trained_weights_and_no_training_form(void **state)
{
    float bias[3] = {7, 8, 9};
    struct sh_st_tensor t[2] = {
        {.name = "fc.bias", .dtype = SH_F32, .rank = 1, .dims = {3}, .data = bias, .bytes = 12},
        {.name = "fc.bias#momentum",
         .dtype = SH_F32,
         .rank = 1,
         .dims = {3},
         .data = bias,
         .bytes = 12}};
    struct graph *g = small_model(), *back = NULL;
    struct sh_err err = {0};
    char in[PATH_BYTES], st[PATH_BYTES], out[PATH_BYTES];
    (void)state;

    assert_ok(graph_set_int(&g->nodes[1], "training_mode", 1, NULL));
    assert_ok(graph_set_str(&g->nodes[0], "auto_pad", "", NULL)); /* bytes that are none */
    assert_ok(onnx_write(g, path_of("in.onnx", in), NULL));
    assert_ok(sh_st_write(path_of("state", st), t, 2, NULL, NULL));
    assert_ok_err(onnx_export(in, st, path_of("out.onnx", out), &err), &err);
    assert_ok_err(onnx_read(out, &back, &err), &err);
    assert_memory_equal(back->values[graph_find(back, "fc.bias")].data, bias, sizeof(bias));
    assert_memory_equal(back->values[graph_find(back, "conv.weight")].data,
                        g->values[graph_find(g, "conv.weight")].data, 4 * 2 * 9 * 4);
    assert_int_equal(back->nodes[1].n_out, 1);
    for (uint32_t i = 0; i < back->nodes[1].n_attrs; i++)
        if (strcmp(back->nodes[1].attrs[i].name, "training_mode") == 0)
            assert_int_equal(back->nodes[1].attrs[i].i, 0);
    graph_free(back);

    t[0].rank = 2;
    t[0].dims[0] = 1;
    t[0].dims[1] = 3;
    assert_ok(sh_st_write(st, t, 1, NULL, NULL));
    assert_fails(onnx_export(in, st, out, &err), SH_E_INVALID, &err, "fc.bias of the state");
    graph_free(g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(what_is_written_is_read_back, setup, teardown),
        cmocka_unit_test_setup_teardown(weights_come_in_five_encodings, setup, teardown),
        cmocka_unit_test_setup_teardown(old_forms_of_operators_become_new_ones, setup, teardown),
        cmocka_unit_test_setup_teardown(nodes_out_of_order_are_sorted, setup, teardown),
        cmocka_unit_test_setup_teardown(every_node_that_is_not_supported_is_listed, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(graphs_that_make_no_sense_are_refused, setup, teardown),
        cmocka_unit_test_setup_teardown(
            nodes_that_lack_inputs_are_refused_before_anything_looks_at_them, setup, teardown),
        cmocka_unit_test_setup_teardown(parts_that_a_node_throws_away_are_read, setup, teardown),
        cmocka_unit_test_setup_teardown(an_output_that_is_listed_twice_is_one, setup, teardown),
        cmocka_unit_test_setup_teardown(weights_that_do_not_match_their_shape_are_refused, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(a_million_tiny_nodes_are_refused_before_they_cost_memory,
                                        setup, teardown),
        cmocka_unit_test_setup_teardown(nesting_has_an_end, setup, teardown),
        cmocka_unit_test_setup_teardown(files_that_are_no_onnx_are_refused, setup, teardown),
        cmocka_unit_test_setup_teardown(no_truncation_and_no_changed_byte_crashes_the_reader, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(an_export_has_the_trained_weights_and_no_training_form,
                                        setup, teardown),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
