/* param_file.h - graphs that are written as a file and read again, and who learns in them. */
#ifndef SH_TESTS_UNIT_PARAM_FILE_H
#define SH_TESTS_UNIT_PARAM_FILE_H

#include "runtime/model/onnx.h"
#include "runtime/model/onnx_file.h"
#include "tests/unit/graph_nodes.h"

#include <math.h>
#include <unistd.h>

#define META_SIGNATURE "pkg.torch.export.ExportedProgram.graph_signature"
#define META_FROM "pkg.onnxscript.optimizer.folded_from"
#define META_CALL "pkg.torch.onnx.fx_node"

static char folder[] = "/tmp/shunt-params.XXXXXX";

static inline int make_folder(void **state)
{
    (void)state;
    return mkdtemp(folder) ? 0 : -1;
}

static inline const char *path_of(const char *name, char *out, size_t size)
{
    snprintf(out, size, "%s/%s", folder, name);
    return out;
}

static inline int drop_folder(void **state)
{
    static const char *const NAMES[] = {"in.onnx", "state", "out.onnx"};
    char path[128];

    (void)state;
    for (size_t i = 0; i < SH_ARRAY_LEN(NAMES); i++)
        unlink(path_of(NAMES[i], path, sizeof(path)));
    return rmdir(folder);
}

static inline uint32_t uniform(struct graph *g, const char *name, int64_t n, float x)
{
    uint32_t v = param(g, name, 1, &n);

    for (int64_t i = 0; i < n; i++)
        ((float *)g->values[v].data)[i] = x;
    return v;
}

static inline uint32_t matrix(struct graph *g, const char *name, int64_t rows, int64_t cols,
                              bool turned)
{
    uint32_t v = param(g, name, 2, (int64_t[]){rows, cols});

    for (int64_t r = 0; r < rows; r++)
        for (int64_t c = 0; c < cols; c++) {
            const float k = (float)(turned ? c * rows + r : r * cols + c);

            ((float *)g->values[v].data)[r * cols + c] = sinf(0.37f * k * k); /* no wave */
        }
    return v;
}

/* Numbers without an order, as those of a parameter that has learned. */
static inline uint32_t learned(struct graph *g, const char *name, int rank, const int64_t *dims)
{
    uint32_t v = param(g, name, rank, dims), seed = 12345;

    for (int64_t i = 0; i < graph_elements(&g->values[v]); i++) {
        seed = seed * 1664525u + 1013904223u;
        ((float *)g->values[v].data)[i] = (float)(seed >> 8) * 0x1p-23f - 1.0f;
    }
    return v;
}

/* Written as a file and read again. TAKES g. */
static inline struct graph *through_a_file(struct graph *g, uint32_t y)
{
    struct graph *back = NULL;
    struct sh_err err = {0};
    char path[128];

    assert_ok(graph_add_output(g, y, NULL));
    assert_ok_err(onnx_write(g, path_of("in.onnx", path, sizeof(path)), &err), &err);
    graph_free(g);
    assert_ok_err(onnx_read(path, &back, &err), &err);
    return back;
}

static inline size_t put_length(uint8_t *p, size_t n)
{
    p[0] = (uint8_t)((n & 127) | 128);
    p[1] = (uint8_t)((n >> 7 & 127) | 128);
    p[2] = (uint8_t)(n >> 14);
    return 3;
}

static inline size_t put_text(uint8_t *p, uint8_t field, const char *text)
{
    size_t n = 0;

    p[n++] = (uint8_t)(field << 3 | 2);
    n += put_length(p + n, strlen(text));
    memcpy(p + n, text, strlen(text));
    return n + strlen(text);
}

/* metadata_props of a message, a field that protobuf-c's description lacks. */
static inline void add_pair(ProtobufCMessage *m, uint32_t tag, const char *key, const char *value)
{
    const size_t at = m->n_unknown_fields++, need = 11 + strlen(key) + strlen(value);
    ProtobufCMessageUnknownField *u =
        realloc(m->unknown_fields, (at + 1) * sizeof(ProtobufCMessageUnknownField));

    assert_non_null(u);
    m->unknown_fields = u;
    u[at] = (ProtobufCMessageUnknownField){
        .tag = tag, .wire_type = PROTOBUF_C_WIRE_TYPE_LENGTH_PREFIXED, .data = malloc(need)};
    assert_non_null(u[at].data);
    u[at].len = put_length(u[at].data, need - 3);
    u[at].len += put_text(u[at].data + u[at].len, 1, key);
    u[at].len += put_text(u[at].data + u[at].len, 2, value);
    assert_int_equal(u[at].len, need);
}

static inline void add_meta(Onnx__NodeProto *n, const char *key, const char *value)
{
    add_pair(&n->base, 9, key, value);
}

static inline void add_value_meta(Onnx__ValueInfoProto *v, const char *key, const char *value)
{
    add_pair(&v->base, 4, key, value);
}

/* Changes the messages of the file, which says that `producer` wrote it. */
static inline void edit_of(const char *producer,
                           void (*change)(Onnx__GraphProto *g, const char *call), const char *call)
{
    Onnx__ModelProto *m = NULL;
    struct onnx_source *source = NULL;
    struct sh_err err = {0};
    char path[128];

    path_of("in.onnx", path, sizeof(path));
    assert_ok_err(onnx_file_load(path, false, &source, &m, &err), &err);
    if (change)
        change(m->graph, call);
    free(m->producer_name);
    m->producer_name = strdup(producer);
    assert_ok_err(onnx_file_save(path, m, &err), &err);
    onnx_file_free(m);
    onnx_source_close(source);
}

static inline void edit(void (*change)(Onnx__GraphProto *g, const char *call), const char *call)
{
    edit_of("pytorch", change, call);
}

static inline bool is_param(const struct graph *g, const char *name)
{
    uint32_t v = graph_find(g, name);

    if (v == GRAPH_NONE)
        fail_msg("there is no %s", name);
    return g->values[v].is_param;
}

/* What an exporter says that it computed a constant of. */
static inline void say_from(Onnx__GraphProto *g, const char *name, const char *list)
{
    Onnx__ValueInfoProto *v = malloc(sizeof(*v));

    onnx__value_info_proto__init(v);
    v->name = strdup(name);
    g->value_info = realloc(g->value_info, (g->n_value_info + 1) * sizeof(*g->value_info));
    g->value_info[g->n_value_info++] = v;
    add_value_meta(v, META_FROM, list);
}

/* How PyTorch was called where a node came of it. */
static inline void say_call_of(Onnx__GraphProto *g, const char *output, const char *target,
                               const char *args)
{
    char text[256];

    snprintf(text, sizeof(text),
             "%%%s : [num_users=1] = call_function[target=torch.ops.aten.%s](%s", output, target,
             args);
    for (size_t i = 0; i < g->n_node; i++)
        if (strcmp(g->node[i]->output[0], output) == 0)
            add_meta(g->node[i], META_CALL, text);
}

static inline void say_call(Onnx__GraphProto *g, const char *output, const char *args)
{
    say_call_of(g, output, "x", args);
}

/* TAKES g. */
static inline struct graph *edited(struct graph *g, uint32_t y,
                                   void (*change)(Onnx__GraphProto *g, const char *call))
{
    struct sh_err err = {0};
    char path[128];

    graph_free(through_a_file(g, y));
    edit(change, NULL);
    assert_ok_err(onnx_read(path_of("in.onnx", path, sizeof(path)), &g, &err), &err);
    return g;
}

static inline const char *input_of(const struct graph *g, const char *output, uint32_t k)
{
    const uint32_t v = graph_find(g, output);

    for (uint32_t i = 0; i < g->n_nodes; i++)
        if (g->nodes[i].out[0] == v)
            return g->values[g->nodes[i].in[k]].name;
    return "";
}

#endif
