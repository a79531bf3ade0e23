/* test_params_many.c - Without it: a file of a megabyte, in which a stranger wrote much of one
 * thing and little of others, would take an import all the time that it may have: minutes for each
 * of these. */
/* uses: libmodel.a libdevice.a */
/* link: -ldl -lprotobuf-c -lm */
#include "common/buf.h"
#include "runtime/model/onnx.h"
#include "runtime/model/onnx_file.h"
#include "tests/unit/param_file.h"

#define MANY 6000
#define ZEROS (1 << 21)
#define AGAIN 20000
#define NAMES 400000

/* A constant of F32 [rows, columns], all of whose numbers are x. */
static void add_constant(Onnx__GraphProto *g, const char *name, int64_t rows, int64_t columns,
                         float x)
{
    const size_t n = (size_t)(rows * columns);
    Onnx__TensorProto *t = malloc(sizeof(*t));

    assert_non_null(t);
    onnx__tensor_proto__init(t);
    t->name = strdup(name);
    t->has_data_type = t->has_raw_data = true;
    t->data_type = 1;
    t->n_dims = 2;
    t->dims = malloc(2 * sizeof(*t->dims));
    t->raw_data = (ProtobufCBinaryData){n * sizeof(float), malloc(n * sizeof(float))};
    assert_true(t->dims && t->raw_data.data);
    t->dims[0] = rows;
    t->dims[1] = columns;
    for (size_t i = 0; i < n; i++)
        memcpy(t->raw_data.data + i * sizeof(float), &x, sizeof(float));
    g->initializer = realloc(g->initializer, (g->n_initializer + 1) * sizeof(*g->initializer));
    g->initializer[g->n_initializer++] = t;
}

/* Each has to be compared with all others of the same parameter, which has to be found first. */
static void say_many(Onnx__GraphProto *g, const char *call)
{
    (void)call;
    add_pair(&g->base, 16, META_SIGNATURE,
             "p_0: PARAMETER target='token'\np_1: PARAMETER target='logits'\n");
    for (int i = 0; i < MANY; i++) {
        char name[32], list[64];

        snprintf(name, sizeof(name), "expand_%d", i);
        add_constant(g, name, i % 2 ? 2 : 1, i % 2 ? 1 : 2, (float)(i / 2));
        say_from(g, name, "['token']");
        snprintf(name, sizeof(name), "select_%d", i);
        snprintf(list, sizeof(list), "['logits', 'softmax_%d']", i);
        add_constant(g, name, 1, 1, 1e-9f);
        say_from(g, name, list);
    }
}

/* Zeros of which each text asks what made them, and a long list of names that give no number. */
static void say_again(Onnx__GraphProto *g, const char *call)
{
    struct sh_buf list;

    (void)call;
    add_pair(&g->base, 16, META_SIGNATURE, "p_0: PARAMETER target='p'\nb_0: BUFFER target='b'\n");
    add_constant(g, "zeros", 2, ZEROS / 2, 0);
    for (int i = 0; i < AGAIN; i++)
        say_from(g, "zeros", i ? "['p']" : "['b']");
    sh_buf_init(&list, (size_t)4 << 20);
    for (int i = 0; i < NAMES; i++)
        assert_ok(sh_buf_append(&list, "'x', ", 5, NULL));
    assert_ok(sh_buf_append(&list, "'p'", 4, NULL));
    add_constant(g, "view_1", 4, 5, 0.5f);
    say_from(g, "view_1", list.data);
    sh_buf_fini(&list);
}

static struct graph *read_edited(void (*change)(Onnx__GraphProto *g, const char *call))
{
    struct graph *g = new_graph();
    struct sh_err err = {0};
    char path[128];
    uint32_t x = input(g, "x", 2, (int64_t[]){-1, 4});

    graph_free(through_a_file(g, NODE(g, "Sin", "y", x)));
    edit(change, NULL);
    assert_ok_err(onnx_read(path_of("in.onnx", path, sizeof(path)), &g, &err), &err);
    return g;
}

static void constants_of_one_parameter_are_not_all_compared(void **state)
{
    struct graph *g = read_edited(say_many);

    (void)state;
    assert_null(g->values[graph_find(g, "expand_0")].data); /* expanded from the same number */
    assert_null(g->values[graph_find(g, "expand_1")].data);
    assert_non_null(g->values[graph_find(g, "token")].data);
    assert_non_null(g->values[graph_find(g, "select_7")].data);
    graph_free(g);
}

static void what_is_said_again_or_for_nothing_is_passed_over(void **state)
{
    struct graph *g = read_edited(say_again);

    (void)state;
    assert_int_equal(g->values[graph_find(g, "zeros")].said, GRAPH_SAID_BUFFER); /* at first */
    assert_int_equal(g->values[graph_find(g, "view_1")].said, GRAPH_SAID_PARAM);
    graph_free(g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(constants_of_one_parameter_are_not_all_compared),
        cmocka_unit_test(what_is_said_again_or_for_nothing_is_passed_over),
    };

    return cmocka_run_group_tests(tests, make_folder, drop_folder);
}
