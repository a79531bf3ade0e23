/* onnx_norm.c - brings every operator of opsets 1 to 23 into one form (graph.h). */
#include "common/mem.h"
#include "runtime/model/onnx_reader.h"

#include <stdlib.h>

/* What was an attribute before an opset and is an input since then. */
static const struct moved {
    const char *op;
    int64_t before;
    const char *attr;
    uint32_t slot;
    int rank; /* of a single number */
} MOVED[] = {
    {"Clip", 11, "min", 1, 0},
    {"Clip", 11, "max", 2, 0},
    {"Dropout", 12, "ratio", 1, 0},
    {"Pad", 2, "paddings", 1, 0},
    {"Pad", 11, "pads", 1, 0},
    {"Pad", 11, "value", 2, 0},
    {"ReduceL1", 18, "axes", 1, 0},
    {"ReduceL2", 18, "axes", 1, 0},
    {"ReduceLogSum", 18, "axes", 1, 0},
    {"ReduceLogSumExp", 18, "axes", 1, 0},
    {"ReduceMax", 18, "axes", 1, 0},
    {"ReduceMean", 18, "axes", 1, 0},
    {"ReduceMin", 18, "axes", 1, 0},
    {"ReduceProd", 18, "axes", 1, 0},
    {"ReduceSum", 13, "axes", 1, 0},
    {"ReduceSumSquare", 18, "axes", 1, 0},
    {"Reshape", 5, "shape", 1, 0},
    {"Slice", 10, "starts", 1, 0},
    {"Slice", 10, "ends", 2, 0},
    {"Slice", 10, "axes", 3, 0},
    {"Split", 13, "split", 1, 0},
    {"Squeeze", 13, "axes", 1, 0},
    {"TopK", 10, "k", 1, 1},
    {"Unsqueeze", 13, "axes", 1, 0},
    {"Upsample", 9, "scales", 1, 0},
};

static int move_attr(struct reader *r, const struct moved *m, struct graph_node *n)
{
    const struct graph_attr *a = graph__attr(n, m->attr);
    struct onnx_array list = {0};
    float f;
    int rc;

    if (!a)
        return SH_OK;
    if (n->n_in > m->slot && n->in[m->slot] != GRAPH_NONE)
        return SH_FAIL(r->err, SH_E_INVALID, "%s of node %s is an attribute and an input", m->attr,
                       n->name);
    switch (a->kind) {
    case GRAPH_ATTR_INT:
        rc = reader_numbers(r, &a->i, 1, SH_I64, m->rank, &list);
        break;
    case GRAPH_ATTR_INTS:
        rc = reader_numbers(r, a->ints, a->n, SH_I64, 1, &list);
        break;
    case GRAPH_ATTR_FLOAT:
        f = (float)a->f;
        rc = reader_numbers(r, &f, 1, SH_F32, m->rank, &list);
        break;
    case GRAPH_ATTR_FLOATS:
        rc = reader_numbers(r, a->floats, a->n, SH_F32, 1, &list);
        break;
    default:
        rc =
            SH_FAIL(r->err, SH_E_INVALID, "attribute %s of node %s is no number", m->attr, n->name);
    }
    if (!rc)
        rc = reader_set_input(r, n, m->slot, m->attr, &list);
    onnx_array_fini(&list);
    if (!rc)
        graph__drop_attr(n, m->attr);
    return rc;
}

/* ---------------------------------------------------------------- what needs more than that */

static int rename_op(struct graph_node *n, const char *op, struct sh_err *err)
{
    char *copy;
    int rc = sh_strdup(op, &copy, err);

    if (rc)
        return rc;
    free(n->op);
    n->op = copy;
    return SH_OK;
}

static int set_default(struct graph_node *n, const char *attr, const char *value,
                       struct sh_err *err)
{
    return graph__attr(n, attr) ? SH_OK : graph_set_str(n, attr, value, err);
}

/* The second operand began at an axis of the first; without one it ends where the first ends. */
static int old_broadcast(struct reader *r, struct graph_node *n)
{
    int64_t axis = 0;
    int rc = graph_int(n, "axis", 0, &axis, r->err);

    if (rc || !graph__attr(n, "axis"))
        return rc;
    graph__drop_attr(n, "axis");
    return graph_set_int(n, GRAPH_FIRST_AXIS, axis, r->err);
}

/* A number for each channel, or one. */
static int old_prelu(struct reader *r, struct graph_node *n)
{
    return graph_set_int(n, GRAPH_FIRST_AXIS, 1, r->err);
}

/* Of Concat before opset 4, of DFT before opset 20. */
static int axis_one(struct reader *r, struct graph_node *n)
{
    return graph__attr(n, "axis") ? SH_OK : graph_set_int(n, "axis", 1, r->err);
}

/* The type was a word. */
static int old_cast(struct reader *r, struct graph_node *n)
{
    const ProtobufCEnumValue *type;
    const char *word;
    int rc = graph_str(n, "to", "", &word, r->err);

    if (rc)
        return rc;
    type = protobuf_c_enum_descriptor_get_value_by_name(&onnx__tensor_proto__data_type__descriptor,
                                                        word);
    if (!type)
        return SH_FAIL(r->err, SH_E_INVALID, "Cast node %s: there is no type %.20s", n->name, word);
    graph__drop_attr(n, "to");
    return graph_set_int(n, "to", type->value, r->err);
}

/* p was a float. */
static int old_lp_pool(struct reader *r, struct graph_node *n)
{
    double p;
    int rc = graph_float(n, "p", 2, &p, r->err);

    if (!rc && p != 1 && p != 2 && p != 3)
        rc = SH_FAIL(r->err, SH_E_UNSUPPORTED, "%s node %s: " WHY_P, n->op, n->name, p);
    graph__drop_attr(n, "p");
    return rc ? rc : graph_set_int(n, "p", (int64_t)p, r->err);
}

static int old_tile(struct reader *r, struct graph_node *n)
{
    return SH_FAIL(r->err, SH_E_UNSUPPORTED, "Tile node %s: " WHY_TILE, n->name);
}

static int old_batch_norm(struct reader *r, struct graph_node *n)
{
    int64_t spatial;
    int rc = graph_int(n, "spatial", 1, &spatial, r->err);

    if (!rc && spatial != 1)
        rc = SH_FAIL(r->err, SH_E_UNSUPPORTED, "BatchNormalization node %s: " WHY_SPATIAL, n->name);
    graph__drop_attr(n, "spatial");
    if (!rc)
        rc = graph_set_int(n, "training_mode", n->n_out > 1, r->err);
    n->n_out = SH_MIN(n->n_out, 3u); /* the saved mean and variance went away */
    return rc;
}

/* Over all axes from `axis` on, as if they were one. */
static int old_softmax(struct reader *r, struct graph_node *n)
{
    int rc = graph_set_int(n, "flat", 1, r->err);

    return rc || graph__attr(n, "axis") ? rc : graph_set_int(n, "axis", 1, r->err);
}

/* x, scales -> x, no region, scales; and what was the only way to find a place. */
static int old_resize(struct reader *r, struct graph_node *n)
{
    uint32_t *in;
    const char *mode;
    int rc = graph_str(n, "mode", "nearest", &mode, r->err);

    if (!rc && strcmp(mode, "bilinear") == 0)
        rc = graph_set_str(n, "mode", "linear", r->err);
    if (!rc && n->n_in != 2)
        rc = SH_FAIL(r->err, SH_E_INVALID, "%s node %s needs two inputs", n->op, n->name);
    if (rc)
        return rc;
    in = realloc(n->in, 3 * sizeof(*in));
    if (!in)
        return SH_FAIL(r->err, SH_E_NOMEM, "could not allocate a node");
    n->in = in;
    in[2] = in[1];
    in[1] = GRAPH_NONE;
    n->n_in = 3;
    rc = set_default(n, "coordinate_transformation_mode", "asymmetric", r->err);
    if (!rc)
        rc = set_default(n, "nearest_mode", "floor", r->err);
    return rc ? rc : rename_op(n, "Resize", r->err);
}

/* PyTorch places corners by the sizes that come out, also where it writes the scales: 1.5 times 3
 * places are 4, of which the last one is the last of the input. To ONNX it lies at 3.5 of 4.5. */
static int normalise_resize(struct reader *r, struct graph_node *n)
{
    if (strcmp(reader_text(r->model->producer_name), "pytorch") != 0)
        return SH_OK;
    return graph_set_int(n, GRAPH_WHOLE_SIZE, 1, r->err);
}

static int old_roi_align(struct reader *r, struct graph_node *n)
{
    return set_default(n, "coordinate_transformation_mode", "output_half_pixel", r->err);
}

static int old_grid_sample(struct reader *r, struct graph_node *n)
{
    const char *mode;
    int rc = graph_str(n, "mode", "bilinear", &mode, r->err);

    if (rc || strcmp(mode, "nearest") == 0)
        return rc;
    return graph_set_str(n, "mode", strcmp(mode, "bicubic") == 0 ? "cubic" : "linear", r->err);
}

static int scatter(struct reader *r, struct graph_node *n)
{
    return rename_op(n, "ScatterElements", r->err);
}

/* Of ONNX Runtime, before ONNX had it; without a domain. */
static int simplified_norm(struct reader *r, struct graph_node *n)
{
    return rename_op(n, "RMSNormalization", r->err);
}

static int dropout(struct reader *r, struct graph_node *n)
{
    (void)r;
    graph__drop_attr(n, "seed");
    return SH_OK;
}

static const struct {
    const char *op;
    int64_t before;
    int (*fn)(struct reader *r, struct graph_node *n);
} CHANGED[] = {
    {"Add", 7, old_broadcast},
    {"And", 7, old_broadcast},
    {"BatchNormalization", 14, old_batch_norm},
    {"Cast", 6, old_cast},
    {"Concat", 4, axis_one},
    {"DFT", 20, axis_one},
    {"Div", 7, old_broadcast},
    {"Dropout", INT64_MAX, dropout},
    {"Equal", 7, old_broadcast},
    {"GlobalLpPool", 2, old_lp_pool},
    {"Greater", 7, old_broadcast},
    {"GridSample", 20, old_grid_sample},
    {"Hardmax", 13, old_softmax},
    {"Less", 7, old_broadcast},
    {"LogSoftmax", 13, old_softmax},
    {"LpPool", 2, old_lp_pool},
    {"Mul", 7, old_broadcast},
    {"Or", 7, old_broadcast},
    {"PRelu", 7, old_prelu},
    {"Pow", 7, old_broadcast},
    {"Resize", 11, old_resize},
    {"Resize", INT64_MAX, normalise_resize},
    {"RoiAlign", 16, old_roi_align},
    {"Scatter", INT64_MAX, scatter},
    {"SimplifiedLayerNormalization", INT64_MAX, simplified_norm},
    {"Softmax", 13, old_softmax},
    {"Sub", 7, old_broadcast},
    {"Tile", 6, old_tile},
    {"Upsample", INT64_MAX, old_resize},
    {"Xor", 7, old_broadcast},
};

int reader_normalise(struct reader *r, struct graph_node *n)
{
    int64_t opset = r->scope->opset;
    int rc = SH_OK;

    for (size_t i = 0; i < SH_ARRAY_LEN(MOVED) && rc == SH_OK; i++)
        if (opset < MOVED[i].before && strcmp(n->op, MOVED[i].op) == 0)
            rc = move_attr(r, &MOVED[i], n);
    for (size_t i = 0; i < SH_ARRAY_LEN(CHANGED) && rc == SH_OK; i++)
        if (opset < CHANGED[i].before && strcmp(n->op, CHANGED[i].op) == 0)
            return CHANGED[i].fn(r, n);
    return rc;
}
