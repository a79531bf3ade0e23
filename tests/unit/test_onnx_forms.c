/* test_onnx_forms.c - Without it: a file of another opset could be read with another meaning than
 * its author's tools show, and a function of a model could take the importer's time and memory
 * without end, or names of its caller. */
/* uses: libmodel.a */
/* link: -lprotobuf-c */
#include "common/mem.h"
#include "runtime/model/graph_int.h"
#include "tests/unit/onnx_bytes.h"

/* ---------------------------------------------------------------- opsets */

enum { AS_FLOAT = 1, AS_INT = 2, AS_INTS = 7 };

static void put_attr(struct file *f, const char *name, int type, int64_t i, float x)
{
    put_text(&f->sub, 1, name);
    if (type == AS_FLOAT) {
        put_varint(&f->sub, 2 << 3 | 5);
        assert_ok(sh_buf_append(&f->sub, &x, 4, NULL));
    } else {
        put_int(&f->sub, type == AS_INT ? 3 : 8, i);
    }
    put_int(&f->sub, 20, type);
    put_msg(&f->msg, 5, &f->sub);
}

static void put_word(struct file *f, const char *name, const char *word)
{
    put_text(&f->sub, 1, name);
    put_text(&f->sub, 4, word);
    put_int(&f->sub, 20, 3); /* STRING */
    put_msg(&f->msg, 5, &f->sub);
}

/* What becomes an input: of which slot and number. */
static const struct {
    const char *op, *attr;
    int64_t opset;
    int type;
    uint32_t slot;
} MOVED[] = {
    {"Clip", "min", 7, AS_FLOAT, 1},       {"Clip", "max", 10, AS_FLOAT, 2},
    {"Dropout", "ratio", 7, AS_FLOAT, 1},  {"Pad", "pads", 10, AS_INTS, 1},
    {"Split", "split", 12, AS_INTS, 1},    {"Squeeze", "axes", 12, AS_INTS, 1},
    {"Unsqueeze", "axes", 7, AS_INTS, 1},  {"Pad", "paddings", 1, AS_INTS, 1},
    {"Reshape", "shape", 4, AS_INTS, 1},   {"ReduceSum", "axes", 12, AS_INTS, 1},
    {"ReduceMax", "axes", 17, AS_INTS, 1},
};

static void attributes_of_old_opsets_become_inputs(void **state)
{
    (void)state;

    for (size_t i = 0; i < SH_ARRAY_LEN(MOVED); i++) {
        struct sh_err err = {0};
        struct graph *g = NULL;
        const struct graph_node *n;
        const struct graph_value *v;
        struct file f;

        file_begin(&f);
        f.opset = MOVED[i].opset;
        put_attr(&f, MOVED[i].attr, MOVED[i].type, 1, 0.25f);
        file_node(&f, "", MOVED[i].op, "x", "y");
        assert_ok_err(file_read(&f, &g, NULL, &err), &err);
        n = &g->nodes[0];
        assert_null(graph__attr(n, MOVED[i].attr));
        assert_int_equal(n->n_in, MOVED[i].slot + 1);
        for (uint32_t k = 1; k < MOVED[i].slot; k++)
            assert_int_equal(n->in[k], GRAPH_NONE);
        v = &g->values[n->in[MOVED[i].slot]];
        assert_int_equal(v->dtype, MOVED[i].type == AS_FLOAT ? SH_F32 : SH_I64);
        assert_int_equal(v->rank, MOVED[i].type == AS_FLOAT ? 0 : 1);
        graph_free(g);
    }
}

static void the_bounds_of_a_slice_become_inputs(void **state)
{
    static const char *const BOUNDS[] = {"starts", "ends", "axes"};
    struct sh_err err = {0};
    struct graph *g = NULL;
    struct file f;
    (void)state;

    file_begin(&f);
    f.opset = 9;
    for (size_t k = 0; k < SH_ARRAY_LEN(BOUNDS); k++)
        put_attr(&f, BOUNDS[k], AS_INTS, (int64_t)k + 1, 0);
    file_node(&f, "", "Slice", "x", "y");
    assert_ok_err(file_read(&f, &g, NULL, &err), &err);
    assert_int_equal(g->nodes[0].n_in, 4);
    for (uint32_t k = 1; k < 4; k++)
        assert_int_equal(*(const int64_t *)g->values[g->nodes[0].in[k]].data, k);
    graph_free(g);
}

static int64_t attr_of(const char *op, const char *in, int64_t opset, const char *attr)
{
    struct sh_err err = {0};
    struct graph *g = NULL;
    struct file f;
    int64_t v;

    file_begin(&f);
    f.opset = opset;
    file_node(&f, "", op, in, "y");
    assert_ok_err(file_read(&f, &g, NULL, &err), &err);
    assert_ok(graph_int(&g->nodes[0], attr, -99, &v, NULL));
    graph_free(g);
    return v;
}

static void softmax_was_over_all_axes_behind(void **state)
{
    (void)state;

    assert_int_equal(attr_of("Softmax", "x", 12, "axis"), 1);
    assert_int_equal(attr_of("Softmax", "x", 12, "flat"), 1);
    assert_int_equal(attr_of("LogSoftmax", "x", 7, "flat"), 1);
    assert_int_equal(attr_of("Softmax", "x", 13, "flat"), -99);
    assert_int_equal(attr_of("Softmax", "x", 13, "axis"), -99);
}

static struct graph *read_with(struct file *f, int64_t opset, const char *op, const char *in)
{
    struct sh_err err = {0};
    struct graph *g = NULL;

    f->opset = opset;
    file_node(f, "", op, in, "y");
    assert_ok_err(file_read(f, &g, NULL, &err), &err);
    return g;
}

static void the_oldest_opsets_say_it_otherwise(void **state)
{
    struct sh_err err = {0};
    struct graph *g = NULL;
    struct file f;
    int64_t v;
    (void)state;

    assert_int_equal(attr_of("Concat", "x", 3, "axis"), 1);
    assert_int_equal(attr_of("PRelu", "x x", 6, GRAPH_FIRST_AXIS), 1);
    assert_int_equal(attr_of("PRelu", "x x", 7, GRAPH_FIRST_AXIS), -99);
    file_begin(&f);
    put_attr(&f, "axis", AS_INT, 1, 0);
    g = read_with(&f, 6, "Add", "x x");
    assert_null(graph__attr(&g->nodes[0], "axis"));
    assert_ok(graph_int(&g->nodes[0], GRAPH_FIRST_AXIS, -99, &v, NULL));
    assert_int_equal(v, 1);
    graph_free(g);
    file_begin(&f);
    put_attr(&f, "p", AS_FLOAT, 0, 2);
    g = read_with(&f, 1, "LpPool", "x");
    assert_ok(graph_int(&g->nodes[0], "p", -99, &v, NULL));
    assert_int_equal(v, 2);
    graph_free(g);
    file_begin(&f);
    f.opset = 1;
    file_node(&f, "", "Tile", "x x x", "y");
    assert_fails(file_read(&f, &g, NULL, &err), SH_E_UNSUPPORTED, &err, "opset 6");
}

/* 3 places become 4.5, so 4. PyTorch puts the last of them on the last of the input; to ONNX there
 * are 3.5 steps. */
static void corners_of_pytorch_are_those_of_the_whole_size(void **state)
{
    static const struct {
        const char *producer, *coords;
        float scale;
    } CASES[] = {{"pytorch", "align_corners", 4.0f / 3},
                 {"pytorch", "half_pixel", 1.5f},
                 {NULL, "align_corners", 1.5f},
                 {"tf2onnx", "align_corners", 1.5f}};
    static const float SCALES[2] = {1, 1.5f};

    (void)state;
    for (size_t i = 0; i < SH_ARRAY_LEN(CASES); i++) {
        struct sh_err err = {0};
        struct graph *g = NULL, *at = NULL;
        const struct graph_attr *scales;
        struct file f;

        file_init(&f);
        file_value(&f, INPUT, "x", FLOAT, 2, (int64_t[]){-1, 3});
        file_value(&f, OUTPUT, "y", FLOAT, 2, (int64_t[]){-1, 4});
        f.producer = CASES[i].producer;
        file_tensor(&f, "scales", FLOAT, 2, SCALES, sizeof(SCALES));
        put_word(&f, "coordinate_transformation_mode", CASES[i].coords);
        put_word(&f, "mode", "linear");
        file_node(&f, "", "Resize", "x - scales", "y");
        assert_ok_err(file_read(&f, &g, NULL, &err), &err);
        assert_ok_err(graph_at(g, &(struct graph_sizes){.batch = 2}, false, &at, &err), &err);
        assert_int_equal(at->n_nodes, 1);
        scales = graph__attr(&at->nodes[0], "scales");
        assert_non_null(scales);
        assert_float_equal(scales->floats[1], CASES[i].scale, 1e-6);
        assert_null(graph__attr(&at->nodes[0], "whole_size"));
        graph_free(at);
        graph_free(g);
    }
}

static void statistics_by_place_are_refused(void **state)
{
    struct sh_err err = {0};
    struct graph *g = NULL;
    struct file f;
    (void)state;

    file_begin(&f);
    f.opset = 7;
    put_attr(&f, "spatial", AS_INT, 0, 0);
    file_node(&f, "", "BatchNormalization", "x s b m v", "y");
    assert_fails(file_read(&f, &g, NULL, &err), SH_E_UNSUPPORTED, &err, "spatial");
}

/* ---------------------------------------------------------------- branches */

/* An attribute that is a graph of one node. */
static void put_branch(struct sh_buf *attrs, const char *name, const char *op, const char *in,
                       const char *out, const char *result)
{
    struct sh_buf graph, node;

    sh_buf_init(&graph, 1 << 20);
    sh_buf_init(&node, 1 << 20);
    put_text(&node, 1, in);
    put_text(&node, 2, out);
    put_text(&node, 4, op);
    put_msg(&graph, 1, &node);
    put_text(&node, 1, result);
    put_msg(&graph, OUTPUT, &node);
    put_text(&node, 1, name);
    put_msg(&node, 6, &graph);
    put_int(&node, 20, 5);
    put_msg(attrs, 5, &node);
    sh_buf_fini(&graph);
    sh_buf_fini(&node);
}

static void branches_stand_where_the_choice_is(void **state)
{
    static const uint8_t yes = 1;
    struct sh_err err = {0};
    struct graph *g = NULL, *at = NULL;
    struct file f;
    (void)state;

    file_begin(&f);
    file_tensor(&f, "yes", BOOL, 1, &yes, 1);
    put_branch(&f.msg, "then_branch", "Relu", "x", "t", "t");
    put_branch(&f.msg, "else_branch", "Tanh", "x", "t", "t"); /* a name of its own */
    file_node(&f, "", "If", "yes", "y");
    assert_ok_err(file_read(&f, &g, NULL, &err), &err);
    assert_int_equal(g->n_nodes, 3);
    assert_non_null(graph__attr(&g->nodes[0], GRAPH_BRANCH));
    assert_string_equal(g->nodes[2].op, "If");
    assert_int_equal(g->nodes[2].n_in, 3);
    assert_int_equal(g->nodes[2].in[1], g->nodes[0].out[0]);
    assert_int_equal(g->nodes[2].in[2], g->nodes[1].out[0]);
    assert_ok_err(graph_at_batch(g, 4, false, &at, &err), &err);
    assert_int_equal(at->n_nodes, 1);
    assert_string_equal(at->nodes[0].op, "Relu");
    assert_null(graph__attr(&at->nodes[0], GRAPH_BRANCH));
    graph_free(at);
    graph_free(g);
}

static void only_the_branch_that_is_taken_has_to_be_possible(void **state)
{
    struct sh_err err = {0};
    struct graph *g = NULL, *at = NULL;
    (void)state;

    for (uint8_t yes = 0; yes < 2; yes++) {
        struct file f;

        file_begin(&f);
        file_tensor(&f, "yes", BOOL, 1, &yes, 1);
        put_branch(&f.msg, "then_branch", "Relu", "x", "t", "t");
        put_branch(&f.msg, "else_branch", "Not", "x", "n", "n"); /* of floats */
        file_node(&f, "", "If", "yes", "y");
        assert_ok_err(file_read(&f, &g, NULL, &err), &err);
        if (yes)
            assert_ok_err(graph_at_batch(g, 4, false, &at, &err), &err);
        else
            assert_fails(graph_at_batch(g, 4, false, &at, &err), SH_E_UNSUPPORTED, &err,
                         "needs a BOOL input");
        graph_free(at);
        graph_free(g);
        at = g = NULL;
    }
}

static void branches_that_make_no_sense_are_refused(void **state)
{
    struct sh_err err = {0};
    struct graph *g = NULL;
    struct file f;
    (void)state;

    file_begin(&f);
    put_branch(&f.msg, "then_branch", "Relu", "x", "t", "t");
    file_node(&f, "", "If", "x", "y");
    assert_fails(file_read(&f, &g, NULL, &err), SH_E_INVALID, &err, "two branches");
    memset(&err, 0, sizeof(err));
    file_begin(&f);
    put_branch(&f.msg, "then_branch", "Relu", "x", "t", "t");
    put_branch(&f.msg, "else_branch", "Relu", "x", "u", "t"); /* the other one's name */
    file_node(&f, "", "If", "x", "y");
    assert_fails(file_read(&f, &g, NULL, &err), SH_E_INVALID, &err, "nothing computes output t");
}

/* ---------------------------------------------------------------- functions */

/* Nodes of functions are made with file_node(), which puts them into f->graph: this takes what is
 * there since `from` as the function's. */
struct funcs {
    struct file f;
    struct sh_buf all; /* of the model: fields 25 */
};

static void funcs_begin(struct funcs *t)
{
    file_begin(&t->f);
    sh_buf_init(&t->all, 16 << 20);
}

static void put_words(struct sh_buf *b, unsigned field, const char *list)
{
    char words[128], *save = NULL;

    snprintf(words, sizeof(words), "%s", list);
    for (char *w = strtok_r(words, " ", &save); w; w = strtok_r(NULL, " ", &save))
        put_text(b, field, w);
}

/* node: one, in bytes; more are the caller's to append. */
static void put_func(struct funcs *t, const char *name, const char *in, const char *out,
                     const struct sh_buf *nodes, const struct sh_buf *defaults)
{
    struct sh_buf m;

    sh_buf_init(&m, 1 << 20);
    put_text(&m, 1, name);
    put_words(&m, 4, in);
    put_words(&m, 5, out);
    assert_ok(sh_buf_append(&m, nodes->data ? nodes->data : "", nodes->len, NULL));
    put_text(&m, 10, "mine");
    if (defaults)
        put_bytes(&m, 11, defaults->data, defaults->len);
    put_msg(&t->all, 25, &m);
    sh_buf_fini(&m);
}

static void add_node(struct sh_buf *to, unsigned field, const char *domain, const char *op,
                     const char *in, const char *out, const struct sh_buf *attr)
{
    struct sh_buf m;

    sh_buf_init(&m, 1 << 16);
    put_words(&m, 1, in);
    put_words(&m, 2, out);
    put_text(&m, 3, out);
    put_text(&m, 4, op);
    if (attr)
        put_bytes(&m, 5, attr->data, attr->len);
    put_text(&m, 7, domain);
    put_msg(to, field, &m);
    sh_buf_fini(&m);
}

static int funcs_read(struct funcs *t, struct graph **g, struct sh_err *err)
{
    char path[PATH_BYTES];
    int rc;

    *g = NULL;
    memset(err, 0, sizeof(*err));
    file_end(&t->f);
    assert_ok(sh_buf_append(&t->f.msg, t->all.data, t->all.len, NULL));
    sh_test_write_file(path_of("made.onnx", path), t->f.msg.data, t->f.msg.len);
    rc = onnx_read_list(path, false, g, NULL, err);
    file_fini(&t->f);
    sh_buf_fini(&t->all);
    return rc;
}

/* ref: the attribute of the function that it stands for; NULL: the number itself. */
static struct sh_buf int_attr(const char *name, int64_t v, const char *ref)
{
    struct sh_buf a;

    sh_buf_init(&a, 1 << 10);
    put_text(&a, 1, name);
    if (ref)
        put_text(&a, 21, ref);
    else
        put_int(&a, 3, v);
    put_int(&a, 20, AS_INT);
    return a;
}

static void a_call_becomes_the_nodes_of_the_function(void **state)
{
    struct funcs t;
    struct sh_buf nodes;
    struct sh_err err;
    struct graph *g;
    (void)state;

    funcs_begin(&t);
    sh_buf_init(&nodes, 1 << 16);
    add_node(&nodes, 7, "", "Relu", "a", "x", NULL); /* "x" is another one than the caller's */
    add_node(&nodes, 7, "", "Neg", "x", "b", NULL);
    put_func(&t, "F", "a", "b", &nodes, NULL);
    file_node(&t.f, "mine", "F", "x", "h");
    file_node(&t.f, "mine", "F", "h", "y");
    assert_ok_err(funcs_read(&t, &g, &err), &err);
    assert_int_equal(g->n_nodes, 4);
    assert_string_equal(g->nodes[0].op, "Relu");
    assert_string_equal(g->nodes[3].op, "Neg");
    assert_int_equal(g->nodes[0].in[0], g->inputs[0]);
    assert_int_equal(g->nodes[2].in[0], g->nodes[1].out[0]);
    assert_int_equal(g->nodes[3].out[0], g->outputs[0]);
    assert_true(g->nodes[0].out[0] != g->nodes[2].out[0]);
    graph_free(g);
    sh_buf_fini(&nodes);
}

static void attributes_go_from_the_call_through_functions(void **state)
{
    struct sh_buf ref = int_attr("axis", 0, "k"), outer = int_attr("k", 0, "m"),
                  given = int_attr("m", 0, NULL), def = int_attr("m", 1, NULL);
    struct funcs t;
    struct sh_buf nodes;
    struct sh_err err;
    struct graph *g;
    int64_t axis;
    (void)state;

    funcs_begin(&t);
    sh_buf_init(&nodes, 1 << 16);
    add_node(&nodes, 7, "", "Softmax", "a", "b", &ref);
    put_func(&t, "In", "a", "b", &nodes, NULL);
    sh_buf_reset(&nodes);
    add_node(&nodes, 7, "mine", "In", "a", "b", &outer);
    put_func(&t, "Out", "a", "b", &nodes, &def);
    add_node(&t.f.graph, NODE, "mine", "Out", "x", "h", &given);
    add_node(&t.f.graph, NODE, "mine", "Out", "h", "i", NULL); /* its default */
    add_node(&t.f.graph, NODE, "mine", "In", "i", "y", NULL);  /* none at all */
    assert_ok_err(funcs_read(&t, &g, &err), &err);
    assert_int_equal(g->n_nodes, 3);
    for (uint32_t i = 0; i < 3; i++) {
        assert_ok(graph_int(&g->nodes[i], "axis", -7, &axis, NULL));
        assert_int_equal(axis, i == 0 ? 0 : i == 1 ? 1 : -7);
    }
    graph_free(g);
    sh_buf_fini(&nodes);
    sh_buf_fini(&ref);
    sh_buf_fini(&outer);
    sh_buf_fini(&given);
    sh_buf_fini(&def);
}

static void an_output_may_be_an_input(void **state)
{
    struct funcs t;
    struct sh_buf nodes;
    struct sh_err err;
    struct graph *g;
    (void)state;

    funcs_begin(&t);
    sh_buf_init(&nodes, 1 << 16);
    put_func(&t, "F", "a", "a", &nodes, NULL);
    file_node(&t.f, "mine", "F", "x", "y");
    assert_ok_err(funcs_read(&t, &g, &err), &err);
    assert_int_equal(g->n_nodes, 1);
    assert_string_equal(g->nodes[0].op, "Identity");
    graph_free(g);
    sh_buf_fini(&nodes);
}

static void recursion_and_doubling_have_an_end(void **state)
{
    struct funcs t;
    struct sh_buf nodes;
    struct sh_err err;
    struct graph *g;
    char name[8], next[8];
    (void)state;

    sh_buf_init(&nodes, 1 << 16);
    funcs_begin(&t);
    add_node(&nodes, 7, "mine", "F", "a", "b", NULL);
    put_func(&t, "F", "a", "b", &nodes, NULL);
    file_node(&t.f, "mine", "F", "x", "y");
    assert_fails(funcs_read(&t, &g, &err), SH_E_INVALID, &err, "levels deep");

    funcs_begin(&t);
    for (int i = 0; i < 30; i++) { /* 2^30 calls */
        sh_buf_reset(&nodes);
        snprintf(name, sizeof(name), "F%d", i);
        snprintf(next, sizeof(next), "F%d", i + 1);
        add_node(&nodes, 7, "mine", next, "a", "h", NULL);
        add_node(&nodes, 7, "mine", next, "h", "b", NULL);
        put_func(&t, name, "a", "b", &nodes, NULL);
    }
    sh_buf_reset(&nodes);
    put_func(&t, "F30", "a", "a", &nodes, NULL);
    file_node(&t.f, "mine", "F0", "x", "y");
    assert_fails(funcs_read(&t, &g, &err), SH_E_TOOBIG, &err, "more than 65536");
    sh_buf_fini(&nodes);
}

static void functions_that_make_no_sense_are_refused(void **state)
{
    struct sh_buf ref = int_attr("axis", 0, "k");
    struct funcs t;
    struct sh_buf nodes;
    struct sh_err err;
    struct graph *g;
    (void)state;

    sh_buf_init(&nodes, 1 << 16);
    funcs_begin(&t);
    put_func(&t, "F", "a", "a", &nodes, NULL);
    put_func(&t, "F", "a", "a", &nodes, NULL);
    file_node(&t.f, "mine", "F", "x", "y");
    assert_fails(funcs_read(&t, &g, &err), SH_E_INVALID, &err, "defined twice");
    funcs_begin(&t);
    put_func(&t, "F", "a", "a", &nodes, NULL);
    file_node(&t.f, "mine", "F", "x x", "y");
    assert_fails(funcs_read(&t, &g, &err), SH_E_INVALID, &err, "more inputs or outputs");
    funcs_begin(&t);
    put_func(&t, "F", "a a", "a", &nodes, NULL);
    file_node(&t.f, "mine", "F", "x x", "y");
    assert_fails(funcs_read(&t, &g, &err), SH_E_INVALID, &err, "have one name");
    funcs_begin(&t);
    put_func(&t, "F", "a b", "b", &nodes, NULL);
    file_node(&t.f, "mine", "F", "x", "y");
    assert_fails(funcs_read(&t, &g, &err), SH_E_INVALID, &err, "left out");
    funcs_begin(&t);
    put_func(&t, "F", "a", "b", &nodes, NULL); /* nothing computes b */
    file_node(&t.f, "mine", "F", "x", "y");
    assert_fails(funcs_read(&t, &g, &err), SH_E_INVALID, &err, "no node computes");
    funcs_begin(&t);
    put_func(&t, "F", "a", "a", &nodes, NULL);
    add_node(&t.f.graph, NODE, "", "Softmax", "x", "y", &ref);
    assert_fails(funcs_read(&t, &g, &err), SH_E_INVALID, &err, "is in none");
    sh_buf_fini(&nodes);
    sh_buf_fini(&ref);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
        T(attributes_of_old_opsets_become_inputs),
        T(the_bounds_of_a_slice_become_inputs),
        T(softmax_was_over_all_axes_behind),
        T(the_oldest_opsets_say_it_otherwise),
        T(corners_of_pytorch_are_those_of_the_whole_size),
        T(statistics_by_place_are_refused),
        T(branches_stand_where_the_choice_is),
        T(only_the_branch_that_is_taken_has_to_be_possible),
        T(branches_that_make_no_sense_are_refused),
        T(a_call_becomes_the_nodes_of_the_function),
        T(attributes_go_from_the_call_through_functions),
        T(an_output_may_be_an_input),
        T(recursion_and_doubling_have_an_end),
        T(functions_that_make_no_sense_are_refused),
#undef T
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
