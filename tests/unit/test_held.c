/* test_held.c - Without it: x.detach(), of which a file has x alone, would be trained as x, though
 * PyTorch's newer exporter writes beside each node that it was called so. */
/* uses: libmodel.a libdevice.a */
/* link: -ldl -lprotobuf-c -lm -Wl,--wrap=malloc,--wrap=calloc,--wrap=realloc */
#include "runtime/model/looks.h"
#include "runtime/model/onnx_held.h"
#include "tests/unit/oom.h"
#include "tests/unit/param_file.h"

#define CALL "pkg.torch.onnx.fx_node"

#define OF(name, op, args)                                                                  \
    "%" name " : [num_users=1] = call_function[target=torch.ops.aten." op "](args = (" args \
    "), kwargs = {})"
#define MUL(name, args) OF(name, "mul.Tensor", args)
#define ADD(args) OF("c", "add.Tensor", args)
#define A MUL("a", "%x, %p_net_w")

static const char *const *calls; /* of the nodes "a", "b" and "c"; NULL: none is written */

static void call_all(Onnx__GraphProto *g, const char *unused)
{
    (void)unused;
    for (size_t i = 0; i < g->n_node; i++)
        if (calls[i])
            add_meta(g->node[i], CALL, calls[i]);
}

/* a = x * w, b = op(a, w), c = b + a */
static struct graph *file_of(const char *op, const char *const all[3])
{
    const int64_t dims[2] = {4, 4};
    struct graph *g = new_graph(), *back = NULL;
    struct sh_err err = {0};
    const uint32_t x = input(g, "x", 2, dims), w = learned(g, "net.w", 2, dims);
    const uint32_t a = NODE(g, "Mul", "a", x, w);
    const uint32_t b = strcmp(op, "Identity") == 0 ? NODE(g, op, "b", a) : NODE(g, op, "b", a, w);
    char path[128];

    assert_ok(graph_add_output(g, NODE(g, "Add", "c", b, a), NULL));
    assert_ok_err(onnx_write(g, path_of("in.onnx", path, sizeof(path)), &err), &err);
    graph_free(g);
    calls = all;
    edit(call_all, NULL);
    assert_ok_err(onnx_read(path, &back, &err), &err);
    return back;
}

static const struct graph_node *writer_of(const struct graph *g, uint32_t v)
{
    for (uint32_t i = 0; i < g->n_nodes; i++)
        if (g->nodes[i].out[0] == v)
            return &g->nodes[i];
    return NULL;
}

static bool is_held(const struct graph_node *n)
{
    int64_t held = 0;

    return n && strcmp(n->op, "Identity") == 0 && graph_int(n, GRAPH_HELD, 0, &held, NULL) == 0 &&
           held;
}

/* A letter of each input of "b" and "c" that is held: b's are 0 and 1, c's are 2 and 3. */
static const char *held_of(const char *op, const char *a, const char *b, const char *c, char out[5])
{
    struct graph *g = file_of(op, (const char *const[]){a, b, c});
    size_t n = 0;

    for (uint32_t i = 0; i < g->n_nodes; i++)
        for (uint32_t k = 0; k < g->nodes[i].n_in; k++)
            if (strchr("bc", g->nodes[i].name[0]) && !g->nodes[i].name[1] &&
                is_held(writer_of(g, g->nodes[i].in[k])))
                out[n++] = (char)('0' + k + (g->nodes[i].name[0] == 'c' ? 2 : 0));
    out[n] = '\0';
    graph_free(g);
    return out;
}

static void a_use_without_a_gradient_is_known_by_its_call(void **state)
{
    char out[5];

    (void)state;
    assert_string_equal(held_of("Mul", A, MUL("b", "%detach, %p_net_w"), ADD("%b, %a"), out), "0");
    assert_string_equal(held_of("Mul", A, MUL("b", "%a, %detach_1"), ADD("%detach_12, %a"), out),
                        "12");
    assert_string_equal(held_of("Mul", A, MUL("b", "%detach, %detach_1"), ADD("%b, %a"), out),
                        "01");
    assert_string_equal(held_of("Mul", A, MUL("b", "%a, %p_net_w"), ADD("%b, %a"), out), "");
}

/* Names that begin so are others', and what no call speaks of is left as it is. */
static void what_is_not_said_is_not_held(void **state)
{
    char out[5];

    (void)state;
    assert_string_equal(
        held_of("Mul", A, MUL("b", "%detached, %p_net_w"), ADD("%detach_a, %a"), out), "");
    assert_string_equal(held_of("Mul", A, NULL, NULL, out), "");
    assert_string_equal(held_of("Mul", NULL, MUL("b", "%detach, %p_net_w"), ADD("%b, %a"), out),
                        "");
}

/* Of a call that became several nodes, what one gives another is no argument. */
static void what_is_inside_of_a_call_is_not_held(void **state)
{
    static const char ONE[] = OF("c", "addcmul.default", "%detach, %p_net_w");
    char out[5];

    (void)state;
    assert_string_equal(held_of("Mul", A, ONE, ONE, out), "03");
}

/* An argument that has no name in the file any more may be either input: they are in order. */
static void arguments_whose_names_are_lost_are_in_order(void **state)
{
    char out[5];

    (void)state;
    assert_string_equal(held_of("Mul", A, MUL("b", "%a, %p_net_w"), ADD("%getitem, %detach"), out),
                        "3");
    assert_string_equal(
        held_of("Mul", A, MUL("b", "%a, %p_net_w"), ADD("%getitem, %detach, %getitem_1"), out), "");
}

/* Where the exporter was told to leave the file as it is, detach() is a node. */
static void the_node_itself_is_held(void **state)
{
    char out[5];

    (void)state;
    assert_string_equal(
        held_of("Identity", A, OF("b", "detach.default", "%a,"), ADD("%b, %a"), out), "2");
    assert_string_equal(held_of("Identity", A, OF("b", "clone.default", "%a,"), ADD("%b, %a"), out),
                        "");
}

/* What it looks at follows from the input, or from what it saw. */
static void places_that_follow_from_what_was_seen_are_found(void **state)
{
    (void)state;
    for (int way = 0; way < 3; way++) {
        struct graph *g = new_graph();
        const uint32_t x = input(g, "x", 4, (int64_t[]){1, 2, 4, 4});
        const uint32_t at = input(g, "at", 4, (int64_t[]){1, 4, 4, 2});
        const uint32_t seen = NODE(g, "GridSample", "first", x, at);
        const uint32_t turned = NODE(g, "Transpose", "turned", way ? seen : x);
        const char *found;

        NODE(g, "GridSample", "second", x, turned);
        g->says_kinds = way == 2;
        assert_ok(looks_again(g, &found, NULL));
        assert_string_equal(found ? found : "", way == 1 ? "second" : "");
        calls_left = 0;
        assert_int_equal(looks_again(g, &found, NULL), way == 2 ? SH_OK : SH_E_NOMEM);
        calls_left = -1;
        graph_free(g);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_use_without_a_gradient_is_known_by_its_call),
        cmocka_unit_test(what_is_not_said_is_not_held),
        cmocka_unit_test(what_is_inside_of_a_call_is_not_held),
        cmocka_unit_test(arguments_whose_names_are_lost_are_in_order),
        cmocka_unit_test(the_node_itself_is_held),
        cmocka_unit_test(places_that_follow_from_what_was_seen_are_found),
    };

    return cmocka_run_group_tests(tests, make_folder, drop_folder);
}
