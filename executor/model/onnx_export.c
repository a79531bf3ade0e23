/* onnx_export.c - an ONNX file with trained weights in place of its initializers. */
#include "common/mem.h"
#include "common/safetensors.h"
#include "executor/model/graph_int.h"
#include "executor/model/onnx.h"
#include "executor/model/onnx_file.h"

#include <stdlib.h>

/* Frees whatever encoding the tensor had. */
static void drop_data(Onnx__TensorProto *t)
{
    free(t->raw_data.data);
    free(t->float_data);
    t->raw_data = (ProtobufCBinaryData){0, NULL};
    t->float_data = NULL;
    t->n_float_data = 0;
}

static bool same_shape(const Onnx__TensorProto *t, const struct sh_st_tensor *s)
{
    if (t->n_dims != s->rank || sh_dtype_from_onnx(t->data_type) != s->dtype || s->dtype != SH_F32)
        return false;
    for (size_t i = 0; i < s->rank; i++)
        if (t->dims[i] != s->dims[i])
            return false;
    return true;
}

static int replace(Onnx__TensorProto *t, const struct sh_st *state, bool *borrowed,
                   struct sh_err *err)
{
    const struct sh_st_tensor *s = t->name ? sh_st_find(state, t->name) : NULL;
    char name[128];

    *borrowed = false;
    if (!s)
        return SH_OK;
    if (!same_shape(t, s))
        return SH_FAIL(err, SH_E_INVALID,
                       "tensor %s of the state differs from the model's in shape or type",
                       graph__clean(t->name, name, sizeof(name)));
    if (t->n_external_data > 0 || t->segment)
        return SH_FAIL(err, SH_E_UNSUPPORTED, "initializer %s lies in another file",
                       graph__clean(t->name, name, sizeof(name)));
    drop_data(t);
    t->has_raw_data = 1;
    t->raw_data.data = (uint8_t *)(uintptr_t)s->data; /* only read while it is written */
    t->raw_data.len = s->bytes;
    *borrowed = true;
    return SH_OK;
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

int onnx_export(const char *onnx_in, const char *state, const char *onnx_out, struct sh_err *err)
{
    Onnx__ModelProto *m = NULL;
    Onnx__GraphProto *g = NULL;
    struct sh_st *st = NULL;
    bool *borrowed = NULL;
    int64_t opset;
    int rc = onnx_file_load(onnx_in, &m, err);

    if (!rc)
        rc = onnx_file_opset(m, &opset, err);
    if (!rc && !m->graph)
        rc = SH_FAIL(err, SH_E_INVALID, "the file holds no graph: is it an ONNX model?");
    if (!rc)
        rc = sh_st_open(state, &st, err);
    if (rc)
        goto out;
    g = m->graph;
    borrowed = calloc(g->n_initializer + 1, sizeof(*borrowed));
    if (!borrowed)
        rc = SH_FAIL(err, SH_E_NOMEM, "could not allocate an export");
    for (size_t i = 0; i < g->n_initializer && rc == SH_OK; i++)
        rc = replace(g->initializer[i], st, &borrowed[i], err);
    for (size_t i = 0; i < g->n_node && rc == SH_OK; i++)
        to_inference(g->node[i]);
    if (!rc)
        rc = onnx_file_save(onnx_out, m, err);
out:
    for (size_t i = 0; borrowed && i < g->n_initializer; i++)
        if (borrowed[i])
            g->initializer[i]->raw_data = (ProtobufCBinaryData){0, NULL};
    free(borrowed);
    sh_st_close(st);
    onnx_file_free(m);
    return rc;
}
