/* onnx_dims.c - see onnx_dims.h. */
#include "runtime/model/onnx_dims.h"

#include "runtime/model/graph_int.h"

#include <stdio.h>
#include <string.h>

static const Onnx__TensorShapeProto *shape_of_input(const Onnx__ValueInfoProto *in)
{
    bool is_tensor = in->type && in->type->value_case == ONNX__TYPE_PROTO__VALUE_TENSOR_TYPE &&
                     in->type->tensor_type;

    return is_tensor ? in->type->tensor_type->shape : NULL;
}

/* "" where the axis has none. */
static const char *name_of_dim(const Onnx__TensorShapeProto__Dimension *d)
{
    bool has = d->value_case == ONNX__TENSOR_SHAPE_PROTO__DIMENSION__VALUE_DIM_PARAM;

    return has && d->dim_param ? d->dim_param : "";
}

/* Does an axis that is not the first have this name? */
static bool is_elsewhere(const Onnx__GraphProto *file, const char *name)
{
    for (size_t i = 0; name[0] && i < file->n_input; i++) {
        const Onnx__TensorShapeProto *s = shape_of_input(file->input[i]);

        for (size_t k = 1; s && k < s->n_dim; k++)
            if (strcmp(name_of_dim(s->dim[k]), name) == 0)
                return true;
    }
    return false;
}

static int read_symbol(const char *input, size_t axis, const char *name, struct graph *g,
                       int64_t *out, struct sh_err *err)
{
    char own[SH_SYMBOL_BYTES + 32];
    int k, rc;

    if (!name[0]) {
        snprintf(own, sizeof(own), "%.40s.%zu", input, axis);
        name = own;
    }
    if (!graph__name_ok(name) || strlen(name) >= SH_SYMBOL_BYTES)
        return SH_FAIL(err, SH_E_INVALID,
                       "the size of axis %zu of input %s has a name that is longer than %u bytes, "
                       "or no plain text",
                       axis, input, SH_SYMBOL_BYTES - 1);
    rc = sh_symbol_add(&g->symbols, name, &k, err);
    *out = GRAPH_SYMBOL(k);
    return rc;
}

int onnx_dims_read(const Onnx__GraphProto *file, const Onnx__ValueInfoProto *in, struct graph *g,
                   int64_t dims[SH_MAX_RANK], struct sh_err *err)
{
    const Onnx__TensorShapeProto *s = shape_of_input(in);
    char input[128];
    int rc = SH_OK;

    graph__clean(in->name, input, sizeof(input));
    for (size_t i = 0; s && i < s->n_dim && !rc; i++) {
        const Onnx__TensorShapeProto__Dimension *d = s->dim[i];

        dims[i] = d->dim_value;
        if (d->value_case != ONNX__TENSOR_SHAPE_PROTO__DIMENSION__VALUE_DIM_VALUE) {
            dims[i] = GRAPH_BATCH;
            if (i > 0 || is_elsewhere(file, name_of_dim(d)))
                rc = read_symbol(input, i, name_of_dim(d), g, &dims[i], err);
        } else if (d->dim_value < 0) {
            rc = SH_FAIL(err, SH_E_INVALID, "axis %zu of input %s has size %lld", i, input,
                         (long long)d->dim_value);
        }
    }
    return rc;
}
