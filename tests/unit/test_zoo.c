/* uses: zoo/zoo.o zoo/resnet.o zoo/inception.o zoo/bert.o libmodel.a libdevice.a */
/* link: -lprotobuf-c -lseccomp -ldl */
/* test_zoo.c - the zoo writes the architectures it says. Without it a missing shortcut or a wrong
 * channel count would go unseen: random weights have no accuracy that could drop. */
#include "common/mem.h"
#include "runtime/model/lower.h"
#include "runtime/model/pass.h"
#include "tests/unit/sh_test.h"
#include "zoo/zoo.h"

#include <string.h>

struct arch {
    const char *name;
    int64_t parameters, buffers; /* trainable, as published; running statistics */
};

static int build(const char *name, enum zoo_form form, uint64_t seed, struct graph **out)
{
    struct sh_err err = {0};
    struct zoo z;
    int rc;

    assert_ok(zoo_init(&z, form, seed, &err));
    if (strcmp(name, "inception-v3") == 0)
        rc = zoo_inception_v3(&z, out);
    else if (strcmp(name, "bert-base") == 0)
        rc = zoo_bert_base(&z, 128, out);
    else if (strcmp(name, "digits-cnn") == 0)
        rc = zoo_digits_cnn(&z, out);
    else
        rc = zoo_resnet(&z, (int)strtol(name + strlen("resnet"), NULL, 10), out);
    if (rc)
        print_error("%s: %s\n", name, err.msg);
    zoo_fini(&z);
    return rc;
}

static void parameters_are_as_many_as_published(void **state)
{
    static const struct arch ARCHS[] = {
        {"resnet18", 11689512, 9600},    {"resnet50", 25557032, 53120},
        {"resnet152", 60192808, 151424}, {"inception-v3", 23834568, 34432},
        {"bert-base", 109483778, 0}, /* with the classifier of 2 x 768 + 2 */
        {"digits-cnn", 151402, 192},
    };

    (void)state;
    for (size_t i = 0; i < SH_ARRAY_LEN(ARCHS); i++) {
        /* The large ones take seconds to draw: one form of those. */
        bool both = ARCHS[i].parameters < 30000000;

        for (int form = both ? ZOO_INFERENCE : ZOO_TRAINING; form <= ZOO_TRAINING; form++) {
            int64_t params = 0, buffers = 0;
            struct graph *g = NULL;

            assert_ok(build(ARCHS[i].name, (enum zoo_form)form, 1, &g));
            for (uint32_t v = 0; v < g->n_values; v++) {
                if (!g->values[v].is_param)
                    continue;
                if (strstr(g->values[v].name, ".running_"))
                    buffers += graph_elements(&g->values[v]);
                else
                    params += graph_elements(&g->values[v]);
            }
            assert_int_equal(params, ARCHS[i].parameters);
            assert_int_equal(buffers, ARCHS[i].buffers);
            graph_free(g);
        }
    }
}

static void shapes_follow_to_the_classes(void **state)
{
    static const char *const NAMES[] = {"resnet18", "inception-v3", "bert-base"};
    static const int64_t CLASSES[] = {1000, 1000, 2};

    (void)state;
    for (size_t i = 0; i < SH_ARRAY_LEN(NAMES); i++) {
        struct graph *g = NULL, *at = NULL;
        const struct graph_value *y;

        assert_ok(build(NAMES[i], ZOO_INFERENCE, 1, &g));
        assert_ok(graph_at_batch(g, 3, false, &at, NULL));
        y = &at->values[at->outputs[0]];
        assert_int_equal(y->rank, 2);
        assert_int_equal(y->dims[0], 3);
        assert_int_equal(y->dims[1], CLASSES[i]);
        graph_free(at);
        graph_free(g);
    }
}

/* One for each of the twelve layers, with its mask and its dropout. */
static void attention_of_bert_is_one_operation_in_training(void **state)
{
    uint32_t n[DEV_N_OPS] = {0};
    struct graph *g, *at;
    struct sh_err err = {0};
    struct ir *ir;

    (void)state;
    assert_ok(build("bert-base", ZOO_TRAINING, 1, &g));
    assert_ok_err(graph_at_batch(g, 2, true, &at, &err), &err);
    assert_ok_err(lower_graph(at, true, &ir, &err), &err);
    assert_ok_err(pass_run(ir, true, &err), &err);
    for (uint32_t i = 0; i < ir->g.n_ops; i++) {
        const struct dev_op *op = &ir->g.ops[i];

        n[op->kind]++;
        if (op->kind != DEV_OP_ATTENTION)
            continue;
        assert_int_equal(op->n_in, 4);
        assert_int_equal(op->n_out, 2);
        assert_true(op->u.attn.ratio == 0.1f && op->u.attn.scale == 0.125f);
    }
    assert_int_equal(n[DEV_OP_ATTENTION], 12);
    assert_int_equal(n[DEV_OP_SOFTMAX], 0);
    assert_int_equal(n[DEV_OP_TRANSPOSE], 0);
    assert_int_equal(n[DEV_OP_DROPOUT], 26); /* after embeddings and pooler, two in each layer */
    ir_free(ir);
    graph_free(at);
    graph_free(g);
}

static void the_seed_decides_the_weights(void **state)
{
    struct graph *g[3] = {NULL};
    uint32_t w;

    (void)state;
    assert_ok(build("digits-cnn", ZOO_INFERENCE, 7, &g[0]));
    assert_ok(build("digits-cnn", ZOO_TRAINING, 7, &g[1]));
    assert_ok(build("digits-cnn", ZOO_INFERENCE, 8, &g[2]));
    w = graph_find(g[0], "conv2.weight");
    assert_int_not_equal(w, GRAPH_NONE);
    for (int i = 1; i < 3; i++) {
        const struct graph_value *a = &g[0]->values[w];
        const struct graph_value *b = &g[i]->values[graph_find(g[i], "conv2.weight")];

        assert_int_equal(a->bytes, b->bytes);
        assert_int_equal(memcmp(a->data, b->data, a->bytes) == 0, i == 1);
    }
    for (int i = 0; i < 3; i++)
        graph_free(g[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(parameters_are_as_many_as_published),
        cmocka_unit_test(shapes_follow_to_the_classes),
        cmocka_unit_test(attention_of_bert_is_one_operation_in_training),
        cmocka_unit_test(the_seed_decides_the_weights),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
