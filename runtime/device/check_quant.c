/* check_quant.c - what every back end may rely on in operations on integers of 8 bits. */
#include "runtime/device/backend.h"

#include <math.h>

static int bad_quant(const struct dev_op *op, struct sh_err *err, const char *why)
{
    return SH_FAIL(err, SH_E_BUG, "%s (node \"%s\"): %s", dev_op_name(op->kind),
                   op->name ? op->name : "?", why);
}

/* Does an integer of this type mean something by q? Floats need nothing. */
static bool is_sound(const struct dev_quant *q, enum sh_dtype t)
{
    int32_t lo, hi;

    if (t == SH_F32)
        return true;
    return dev_range8(t, &lo, &hi) && q->scale > 0 && isfinite(q->scale) && q->zero >= lo &&
           q->zero <= hi;
}

static int check_quantize(const struct dev_graph *g, const struct dev_op *op, struct sh_err *err)
{
    const struct dev_tensor *x = &g->tensors[op->in[0]], *y = &g->tensors[op->out[0]];
    const struct dev_tensor *add =
        op->n_in > 1 && op->in[1] != DEV_NONE ? &g->tensors[op->in[1]] : NULL;

    if (!dev_same_dims(x, y) || (add && !dev_same_dims(add, y)))
        return bad_quant(op, err, "the operands differ in shape");
    if (!is_sound(&op->u.quant.x, x->dtype) || !is_sound(&op->u.quant.y, y->dtype) ||
        (add && !is_sound(&op->u.quant.add, add->dtype)))
        return bad_quant(op, err, "an operand has no valid type, scale or zero point");
    return SH_OK;
}

static const struct dev_tensor *quant_operand(const struct dev_graph *g, const struct dev_op *op,
                                              uint32_t k)
{
    return k < op->n_in && op->in[k] != DEV_NONE ? &g->tensors[op->in[k]] : NULL;
}

static bool is_typed_vector(const struct dev_tensor *t, enum sh_dtype type, int64_t n)
{
    return t && t->dtype == type && dev_tensor_elements(t) == n;
}

static bool shapes_fit(const struct dev_op *op, const struct dev_tensor *x,
                       const struct dev_tensor *w, const struct dev_tensor *y)
{
    const int64_t groups = op->u.qconv.conv.groups;

    if (op->kind == DEV_OP_QMATMUL)
        return w->rank == 2 && x->rank >= 2 && y->rank >= 1 && x->dims[x->rank - 1] == w->dims[1] &&
               y->dims[y->rank - 1] == w->dims[0] &&
               dev_tensor_elements(x) / w->dims[1] == dev_tensor_elements(y) / w->dims[0];
    return x->rank == 4 && w->rank == 4 && y->rank == 4 && groups > 0 && w->dims[0] % groups == 0 &&
           x->dims[1] == w->dims[1] * groups && y->dims[1] == w->dims[0] &&
           x->dims[0] == y->dims[0];
}

static int check_product(const struct dev_graph *g, const struct dev_op *op, struct sh_err *err)
{
    const struct dev_product *q = &op->u.qconv.q;
    const struct dev_tensor *x = quant_operand(g, op, DEV_Q_X), *w = quant_operand(g, op, DEV_Q_W);
    const struct dev_tensor *factor = quant_operand(g, op, DEV_Q_FACTOR);
    const struct dev_tensor *offset = quant_operand(g, op, DEV_Q_OFFSET);
    const struct dev_tensor *residual = quant_operand(g, op, DEV_Q_RESIDUAL);
    const struct dev_tensor *sums = quant_operand(g, op, DEV_Q_SUMS), *y = &g->tensors[op->out[0]];
    int32_t lo, hi;
    int64_t n;

    if (!dev_range8(x->dtype, &lo, &hi) || w->dtype != SH_I8 || !shapes_fit(op, x, w, y))
        return bad_quant(op, err, "types or shapes of the operands do not fit");
    n = w->dims[0];
    if (dev_axes_elements(w, 1, w->rank) > DEV_Q_MAX_TERMS)
        return bad_quant(op, err, "so many products in one sum do not fit I32");
    if (q->x_zero < lo || q->x_zero > hi || (q->x_zero != 0) != (sums != NULL) ||
        (sums && !is_typed_vector(sums, SH_I32, n)))
        return bad_quant(op, err, "the zero point of x and its sums do not fit");
    if (y->dtype == SH_I32)
        return factor || offset || residual || op->act != DEV_ACT_NONE
                   ? bad_quant(op, err, "a sum of integers is given as it is")
                   : SH_OK;
    if (!is_typed_vector(factor, SH_F32, n) || (offset && !is_typed_vector(offset, SH_F32, n)))
        return bad_quant(op, err, "it needs a factor for each channel, and may have an offset");
    if (!is_sound(&q->y, y->dtype) ||
        (residual && (!is_sound(&q->residual, residual->dtype) || !dev_same_dims(residual, y))) ||
        (q->mid.scale != 0 && (q->mid_type == SH_F32 || !is_sound(&q->mid, q->mid_type))))
        return bad_quant(op, err, "an operand has no valid type, scale or zero point");
    return SH_OK;
}

static int check_norm(const struct dev_graph *g, const struct dev_op *op, struct sh_err *err)
{
    const uint32_t q = op->n_out > 3 ? op->out[3] : DEV_NONE;
    const struct dev_tensor *t = q == DEV_NONE ? NULL : &g->tensors[q];

    if (t && (!dev_is8(t->dtype) || !is_sound(&op->u.norm.q, t->dtype) ||
              dev_tensor_elements(t) != dev_tensor_elements(&g->tensors[op->out[0]])))
        return bad_quant(op, err, "its integers have no valid type, shape, scale or zero point");
    return SH_OK;
}

int dev__check_quant(const struct dev_graph *g, const struct dev_op *op, struct sh_err *err)
{
    if (op->kind == DEV_OP_LAYERNORM)
        return check_norm(g, op, err);
    if (op->kind == DEV_OP_QUANTIZE)
        return check_quantize(g, op, err);
    return op->kind == DEV_OP_QCONV || op->kind == DEV_OP_QMATMUL ? check_product(g, op, err)
                                                                  : SH_OK;
}
