/* check_pick.c - what is counted (op_pick.h): what every back end may rely on. */
#include "common/mem.h"
#include "runtime/device/backend.h"

static int refuse_op(const struct dev_op *op, const char *what, struct sh_err *err)
{
    return SH_FAIL(err, SH_E_BUG, "%s (node \"%s\"): %s", dev_op_name(op->kind),
                   op->name ? op->name : "?", what);
}

static bool is_count(const struct dev_tensor *t)
{
    return t->dtype == SH_I64 && dev_tensor_elements(t) == 1;
}

static int check_nonzero(const struct dev_op *op, const struct dev_tensor *x,
                         const struct dev_tensor *places, struct sh_err *err)
{
    if (x->dtype == SH_F64 || x->dtype == SH_F16 || x->dtype == SH_BF16)
        return SH_FAIL(err, SH_E_UNSUPPORTED,
                       "%s (node \"%s\"): elements of type %s are not compared with 0",
                       dev_op_name(op->kind), op->name ? op->name : "?", sh_dtype_st(x->dtype));
    if (places->dtype != SH_I64 || dev_tensor_elements(places) != dev_tensor_elements(x) ||
        dev_tensor_elements(x) > INT32_MAX)
        return refuse_op(op, "the places do not fit the elements", err);
    return SH_OK;
}

static int check_nms(const struct dev_op *op, const struct dev_tensor *boxes,
                     const struct dev_tensor *scores, const struct dev_tensor *picked,
                     struct sh_err *err)
{
    const int64_t most = op->u.nms.most;

    if (boxes->dtype != SH_F32 || scores->dtype != SH_F32 || picked->dtype != SH_I64 ||
        boxes->rank != 3 || scores->rank != 3 || boxes->dims[2] != 4 ||
        boxes->dims[0] != scores->dims[0] || boxes->dims[1] != scores->dims[2])
        return refuse_op(op, "boxes, scores and results do not fit", err);
    if (most < 1 || most > scores->dims[2] || scores->dims[2] > INT32_MAX ||
        scores->dims[0] > INT32_MAX / scores->dims[1] ||
        dev_tensor_elements(picked) != scores->dims[0] * scores->dims[1] * most * 3)
        return refuse_op(op, "the number of boxes does not fit", err);
    return SH_OK;
}

int dev__check_pick(const struct dev_graph *g, const struct dev_op *op, struct sh_err *err)
{
    const struct dev_tensor *in[2] = {NULL}, *out[2] = {NULL};

    for (uint32_t k = 0; k < 2; k++) {
        in[k] = k < op->n_in && op->in[k] != DEV_NONE ? &g->tensors[op->in[k]] : NULL;
        out[k] = k < op->n_out && op->out[k] != DEV_NONE ? &g->tensors[op->out[k]] : NULL;
    }
    switch (op->kind) {
    case DEV_OP_NONZERO:
        return is_count(out[1]) ? check_nonzero(op, in[0], out[0], err)
                                : refuse_op(op, "the count is not one number of I64", err);
    case DEV_OP_MASK:
        if (!is_count(in[0]))
            return refuse_op(op, "the count is not one number of I64", err);
        return out[0]->dtype == SH_BOOL ? SH_OK : refuse_op(op, "a mask is not BOOL", err);
    case DEV_OP_NMS:
        return is_count(out[1]) ? check_nms(op, in[0], in[1], out[0], err)
                                : refuse_op(op, "the count is not one number of I64", err);
    default:
        return SH_OK;
    }
}
