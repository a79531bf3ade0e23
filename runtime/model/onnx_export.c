/* onnx_export.c - an ONNX file with trained weights in place of its initializers.
 *
 * External data goes into the one file or, if that would exceed the limit of an ONNX file, all data
 * goes into a second one.
 */
#include "common/mem.h"
#include "common/safetensors.h"
#include "runtime/model/graph_int.h"
#include "runtime/model/onnx.h"
#include "runtime/model/onnx_meta.h"
#include "runtime/model/onnx_pack.h"
#include "runtime/model/onnx_restore.h"
#include "runtime/model/onnx_tensor.h"

#include <stdio.h>
#include <stdlib.h>

/* A tensor with the data that it gets; only read while they are written. */
struct slot {
    Onnx__TensorProto *t;
    struct onnx_array a; /* data == NULL: those of t stay */
};

static bool same_shape(const Onnx__TensorProto *t, const struct sh_st_tensor *s)
{
    if (t->n_dims != s->rank || sh_dtype_from_onnx(t->data_type) != s->dtype || s->dtype != SH_F32)
        return false;
    for (size_t i = 0; i < s->rank; i++)
        if (t->dims[i] != s->dims[i])
            return false;
    return true;
}

static void use_slot(struct slot *s)
{
    onnx_tensor_drop(s->t);
    s->t->has_raw_data = 1;
    s->t->raw_data.data = s->a.data;
    s->t->raw_data.len = s->a.bytes;
}

/* The data of a tensor that has them elsewhere, or in the state. */
static int settle_slot(struct slot *slot, struct onnx_source *source, const struct sh_st *state,
                       struct sh_err *err)
{
    Onnx__TensorProto *t = slot->t;
    const struct sh_st_tensor *s = state && t->name ? sh_st_find(state, t->name) : NULL;
    char name[128], what[160];
    int rc = SH_OK;

    graph__clean(t->name ? t->name : "", name, sizeof(name));
    snprintf(what, sizeof(what), "tensor %s", name);
    if (s && (t->segment || !same_shape(t, s)))
        return SH_FAIL(err, SH_E_INVALID,
                       "tensor %s of the state differs from the model's in shape or type", name);
    if (s)
        slot->a = (struct onnx_array){
            .data = (void *)(uintptr_t)s->data, .bytes = s->bytes, .is_borrowed = true};
    else if (onnx_tensor_is_external(t))
        rc = onnx_tensor_take(t, what, source, &slot->a, err);
    if (!rc && slot->a.data)
        use_slot(slot);
    return rc;
}

static void cut_outputs(Onnx__NodeProto *n, size_t keep)
{
    while (n->n_output > keep)
        free(n->output[--n->n_output]);
}

static void cut_inputs(Onnx__NodeProto *n, size_t keep)
{
    while (n->n_input > keep)
        free(n->input[--n->n_input]);
}

static void to_inference(Onnx__NodeProto *n)
{
    const char *op = n->op_type ? n->op_type : "";

    if (strcmp(op, "Dropout") == 0) {
        cut_inputs(n, 2); /* without the third, training_mode is false */
        cut_outputs(n, 1);
    }
    if (strcmp(op, "BatchNormalization") != 0)
        return;
    cut_outputs(n, 1);
    for (size_t i = 0; i < n->n_attribute; i++)
        if (n->attribute[i]->name && strcmp(n->attribute[i]->name, "training_mode") == 0)
            n->attribute[i]->i = 0;
}

struct copy {
    Onnx__ModelProto *m;
    struct onnx_source *source;
    struct param_kinds kinds;
    struct sh_st *state;
    struct slot *slots;
    size_t n_slots;
};

static void copy_fini(struct copy *c)
{
    for (size_t i = 0; i < c->n_slots; i++) {
        if (c->slots[i].a.data)
            c->slots[i].t->raw_data = (ProtobufCBinaryData){0, NULL};
        onnx_array_fini(&c->slots[i].a);
    }
    free(c->slots);
    sh_st_close(c->state);
    param_kinds_fini(&c->kinds);
    onnx_file_free(c->m);
    onnx_source_close(c->source);
}

static int settle_one(struct copy *c, Onnx__TensorProto *t, const struct sh_st *state,
                      struct sh_err *err)
{
    c->slots[c->n_slots].t = t;
    return settle_slot(&c->slots[c->n_slots++], c->source, state, err);
}

#define MAX_DEPTH 16 /* of branches and bodies in each other */

/* Those of graphs in it too. */
static size_t count_tensors(const Onnx__GraphProto *g, int depth)
{
    size_t n = g->n_initializer;

    for (size_t i = 0; i < g->n_node; i++) {
        n += g->node[i]->n_attribute;
        for (size_t k = 0; k < g->node[i]->n_attribute && depth < MAX_DEPTH; k++)
            if (g->node[i]->attribute[k]->g)
                n += count_tensors(g->node[i]->attribute[k]->g, depth + 1);
    }
    return n;
}

static int settle_graph(struct copy *c, Onnx__GraphProto *g, int depth, struct sh_err *err);

/* What is in a branch has the data of the file: names of the state are those of the whole. */
static int settle_attribute(struct copy *c, Onnx__AttributeProto *a, int depth, struct sh_err *err)
{
    int rc = a->t ? settle_one(c, a->t, NULL, err) : SH_OK;

    if (rc || !a->g)
        return rc;
    if (depth == MAX_DEPTH)
        return SH_FAIL(err, SH_E_UNSUPPORTED, "branches of the model lie more than %d deep",
                       MAX_DEPTH);
    return settle_graph(c, a->g, depth + 1, err);
}

static int settle_graph(struct copy *c, Onnx__GraphProto *g, int depth, struct sh_err *err)
{
    int rc = SH_OK;

    for (size_t i = 0; i < g->n_initializer && rc == SH_OK; i++)
        rc = settle_one(c, g->initializer[i], depth ? NULL : c->state, err);
    for (size_t i = 0; i < g->n_node && rc == SH_OK; i++) {
        Onnx__NodeProto *n = g->node[i];

        to_inference(n);
        for (size_t k = 0; k < n->n_attribute && rc == SH_OK; k++)
            rc = settle_attribute(c, n->attribute[k], depth, err);
    }
    return rc;
}

static int settle_all(struct copy *c, struct sh_err *err)
{
    c->slots = calloc(count_tensors(c->m->graph, 0) + 1, sizeof(*c->slots));
    if (!c->slots)
        return SH_FAIL(err, SH_E_NOMEM, "could not allocate an export");
    return settle_graph(c, c->m->graph, 0, err);
}

/* beside is false: who exports has one file. */
int onnx_export(const char *onnx_in, const char *state, const char *onnx_out, struct sh_err *err)
{
    struct copy c = {0};
    struct onnx_restored restored;
    int64_t opset;
    int rc = onnx_file_load(onnx_in, false, &c.source, &c.m, err);

    if (!rc)
        rc = onnx_file_model_opset(c.m, &opset, err);
    if (!rc && !c.m->graph)
        rc = SH_FAIL(err, SH_E_INVALID, "the file holds no graph: is it an ONNX model?");
    if (!rc) /* as its reader did: the same names */
        rc = onnx_kinds(c.m->graph, &c.kinds, err);
    if (!rc)
        rc = onnx_restore(c.m, c.source, &c.kinds, &restored, err);
    if (!rc)
        rc = sh_st_open(state, &c.state, err);
    if (!rc)
        rc = settle_all(&c, err);
    if (!rc && onnx__model_proto__get_packed_size(c.m) > ONNX_MAX_FILE_BYTES)
        rc = onnx_pack_save(onnx_out, c.m, err);
    else if (!rc)
        rc = onnx_file_save(onnx_out, c.m, err);
    copy_fini(&c);
    return rc;
}
