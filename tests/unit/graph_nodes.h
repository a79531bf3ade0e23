/* graph_nodes.h - graphs of several nodes, written by a test; what lowering and the passes make of
 * them; and a run of one on the cpu device. Needs libmodel.a, libdevice.a and -ldl.
 */
#ifndef SH_TESTS_UNIT_GRAPH_NODES_H
#define SH_TESTS_UNIT_GRAPH_NODES_H

#include "common/mem.h"
#include "runtime/model/lower.h"
#include "runtime/model/pass.h"
#include "runtime/model/program.h"
#include "tests/unit/sh_test.h"

#include <math.h>

static inline uint32_t input(struct graph *g, const char *name, int rank, const int64_t *dims)
{
    uint32_t v;

    assert_ok(graph_add_value(g, name, SH_F32, rank, dims, &v, NULL));
    assert_ok(graph_add_input(g, v, NULL));
    return v;
}

static inline uint32_t param(struct graph *g, const char *name, int rank, const int64_t *dims)
{
    uint32_t v;
    int64_t n = 1;
    float *data;

    for (int i = 0; i < rank; i++)
        n *= dims[i];
    data = malloc((size_t)n * sizeof(*data));
    assert_non_null(data);
    for (int64_t i = 0; i < n; i++)
        data[i] = (float)((i * 7 + (int64_t)strlen(name) * 3) % 11) / 11.0f + 0.1f;
    assert_ok(graph_add_const(g, name, SH_F32, rank, dims, data, &v, NULL));
    g->values[v].is_param = true;
    return v;
}

static inline uint32_t number(struct graph *g, const char *name, float x)
{
    uint32_t v;
    float *data = malloc(sizeof(*data));

    assert_non_null(data);
    *data = x;
    assert_ok(graph_add_const(g, name, SH_F32, 0, NULL, data, &v, NULL));
    return v;
}

static inline uint32_t node(struct graph *g, const char *op, const char *out, const uint32_t *in,
                            uint32_t n_in)
{
    uint32_t v, at;

    assert_ok(graph_add_value(g, out, SH_F32, -1, NULL, &v, NULL));
    assert_ok(graph_add_node(g, out, op, in, n_in, &v, 1, &at, NULL));
    return v;
}
#define NODE(g, op, out, ...)                               \
    node((g), (op), (out), (const uint32_t[]){__VA_ARGS__}, \
         sizeof((uint32_t[]){__VA_ARGS__}) / sizeof(uint32_t))

static inline struct graph *new_graph(void)
{
    struct graph *g;

    assert_ok(graph_new(&g, NULL));
    return g;
}

/* "CONV MATMUL": what is left after lowering and passes. */
static inline void kinds(struct graph *g, uint32_t y, int64_t batch, bool training, char *out,
                         size_t size)
{
    struct sh_err err = {0};
    struct graph *at;
    struct ir *ir;
    size_t n = 0;

    assert_ok(graph_add_output(g, y, NULL));
    assert_ok_err(graph_at_batch(g, batch, training, &at, &err), &err);
    assert_ok_err(lower_graph(at, training, &ir, &err), &err);
    assert_ok_err(pass_run(ir, training, &err), &err);
    out[0] = '\0';
    for (uint32_t i = 0; i < ir->g.n_ops; i++) {
        const struct dev_op *op = &ir->g.ops[i];

        n += (size_t)snprintf(out + n, size - n, "%s%s%s", i ? " " : "", dev_op_name(op->kind),
                              op->act != DEV_ACT_NONE ? "+" : "");
        if (op->act != DEV_ACT_NONE)
            n += (size_t)snprintf(out + n, size - n, "%s", dev_act_name(op->act));
    }
    ir_free(ir);
    graph_free(at);
    graph_free(g);
}

static inline uint32_t shape_of(struct graph *g, const char *name, int64_t n, const int64_t *dims)
{
    int64_t *data = malloc((size_t)n * sizeof(*data));
    uint32_t v;

    assert_non_null(data);
    memcpy(data, dims, (size_t)n * sizeof(*data));
    assert_ok(graph_add_const(g, name, SH_I64, 1, &n, data, &v, NULL));
    return v;
}

static inline uint32_t turn(struct graph *g, const char *name, uint32_t x, const int64_t perm[4])
{
    uint32_t y = NODE(g, "Transpose", name, x);

    assert_ok(graph_set_ints(&g->nodes[g->n_nodes - 1], "perm", perm, 4, NULL));
    return y;
}

static inline struct dev *open_cpu(struct dev_lib **l)
{
    struct dev_conf conf = {.threads = 1, .arena_bytes = (size_t)8 << 20, .deterministic = true};
    struct sh_err err = {0};
    struct dev *d;

    assert_ok_err(dev_lib_open("cpu", l, &err), &err);
    assert_ok_err(dev_open(*l, &conf, &d, &err), &err);
    return d;
}

static inline float *run(struct dev *d, struct program *p, const float *x, size_t *bytes)
{
    struct dev_bases b = {.workspace = SH_ALIGN_UP(program_image_bytes(p), DEV_BLOCK)};
    const struct program_io *out = program_output(p, 0);
    void *image = calloc(1, program_image_bytes(p) + 1);
    float *y = malloc(out->bytes);
    struct sh_err err = {0};

    assert_true(image && y);
    assert_ok_err(program_write_image(p, image, &err), &err);
    assert_ok(dev_upload(d, 0, image, program_image_bytes(p), NULL));
    assert_ok(dev_upload(d, b.workspace + program_input(p, 0)->offset, x,
                         program_input(p, 0)->bytes, NULL));
    assert_ok_err(program_run(p, &b, 0, program_n_ops(p), &err), &err);
    assert_ok(dev_download(d, y, b.workspace + out->offset, out->bytes, NULL));
    assert_ok(dev_sync(d, NULL));
    free(image);
    *bytes = out->bytes;
    return y;
}

/* One image serves batches of 1 and 4, and a sample's answer is the same in both, or nearer than
 * within. TAKES g, whose input has 144 numbers a sample. */
static inline void batches_agree(struct graph *g, float within)
{
    struct dev_lib *l;
    struct dev *d = open_cpu(&l);
    struct program *one, *four;
    struct sh_err err = {0};
    size_t bytes1, bytes4;
    float x[4 * 144], *y1, *y4;

    for (size_t i = 0; i < SH_ARRAY_LEN(x); i++)
        x[i] = (float)(i * 37 % 101) / 101.0f - 0.5f;
    assert_ok_err(
        program_infer(d, g, &(struct graph_sizes){.batch = 4}, DEV_FP32, NULL, &four, &err), &err);
    assert_ok_err(
        program_infer(d, g, &(struct graph_sizes){.batch = 1}, DEV_FP32, four, &one, &err), &err);
    assert_int_equal(program_image_bytes(one), program_image_bytes(four));
    assert_int_equal(program_n_layers(one), program_n_layers(four));
    y4 = run(d, four, x, &bytes4);
    y1 = run(d, one, x + 2 * 144, &bytes1);
    assert_int_equal(bytes4, 4 * bytes1);
    for (size_t i = 0; i < bytes1 / sizeof(float); i++) {
        const float other = y4[2 * bytes1 / sizeof(float) + i];

        assert_true(y1[i] == other || fabsf(y1[i] - other) < within);
    }
    free(y1);
    free(y4);
    program_free(one);
    program_free(four);
    graph_free(g);
    dev_close(d);
    dev_lib_close(l);
}

#endif
