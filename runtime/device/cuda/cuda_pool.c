/* cuda_pool.c - builders of the poolings and of their gradients.
 *
 * The `indices` of POOL_MAX lie in the form of their tensor, so that both directions agree whatever
 * the forms of their neighbours; what they hold stands in pool.cu. A window over the whole image is
 * a reduction.
 */
#include "runtime/device/cuda/cuda_nest.h"

#include <string.h>

/* Positions along the axis, padding included, are of the kernels' type int. */
static bool axis_fits(const struct dev_conv *c, int i, int64_t in, int64_t out)
{
    const int64_t most = INT32_MAX;

    if (c->kernel[i] < 1 || c->stride[i] < 1 || c->dilation[i] < 1 || c->pad_begin[i] < 0 ||
        c->pad_end[i] < 0 || c->kernel[i] > most || c->stride[i] > most || c->dilation[i] > most ||
        c->pad_begin[i] > most || c->pad_end[i] > most)
        return false;
    return (c->kernel[i] - 1) * c->dilation[i] < most &&
           out * c->stride[i] + (c->kernel[i] - 1) * c->dilation[i] + in + c->pad_begin[i] +
                   c->pad_end[i] <
               most;
}

static int read_k_pool(struct cuda_build *b, uint32_t x, uint32_t y, struct k_pool *p)
{
    const struct dev_conv *c = &b->op->u.pool;
    const struct dev_tensor *tx = cuda__t(b, x), *ty = cuda__t(b, y);
    bool fits = true;

    if (tx->rank != 4 || ty->rank != 4)
        return cuda__refuse(b, SH_E_UNSUPPORTED, "only pooling over two dimensions is supported");
    if (tx->dims[0] != ty->dims[0] || tx->dims[1] != ty->dims[1])
        return cuda__refuse(b, SH_E_BUG, "batch or channels of input and output differ");
    if (dev_tensor_elements(tx) >= INT32_MAX || dev_tensor_elements(ty) >= INT32_MAX)
        return cuda__refuse(b, SH_E_UNSUPPORTED, "more than 2^31 elements");
    memcpy(p->in, tx->dims, sizeof(p->in));
    memcpy(p->out, ty->dims, sizeof(p->out));
    for (int i = 0; i < 2; i++) {
        p->kernel[i] = c->kernel[i];
        p->stride[i] = c->stride[i];
        p->dilation[i] = c->dilation[i];
        p->pad_begin[i] = c->pad_begin[i];
        p->pad_end[i] = c->pad_end[i];
        fits = fits && axis_fits(c, i, tx->dims[2 + i], ty->dims[2 + i]);
    }
    if (!fits)
        return cuda__refuse(b, SH_E_UNSUPPORTED, "the window is not within 1 and 2^31 elements");
    p->include_pad = c->count_include_pad;
    cuda__strides(tx, cuda__form(b, x).layout, p->x);
    cuda__strides(ty, cuda__form(b, y).layout, p->y);
    return SH_OK;
}

static int read_indices(struct cuda_build *b, uint32_t indices, uint32_t y, struct k_pool *p)
{
    const struct dev_tensor *t = cuda__t(b, indices);
    int rc = cuda__same_shape(b, y, indices);

    if (!rc && t->dtype != SH_I32)
        rc = cuda__refuse(b, SH_E_UNSUPPORTED, "indices are I32, \"%s\" is %s", t->name,
                          sh_dtype_st(t->dtype));
    if (rc)
        return rc;
    p->has_indices = true;
    cuda__strides(t, cuda__form(b, indices).layout, p->idx);
    return SH_OK;
}

/* ------------------------------------------------------------------ windows */

static int forward_run(const struct cuda_call *c, struct sh_err *err)
{
    const struct k_pool *p = c->aux;

    k_pool_forward(c->stream, p, cuda__operand_in(c, 0), cuda__operand_out(c, 0),
                   p->has_indices ? c->out[1] : NULL);
    return cuda__launched(c, err);
}

static int backward_run(const struct cuda_call *c, struct sh_err *err)
{
    const struct k_pool *p = c->aux;

    k_pool_backward(c->stream, p, cuda__operand_in(c, 0), p->has_indices ? c->in[1] : NULL,
                    cuda__operand_out(c, 0));
    return cuda__launched(c, err);
}

/* ------------------------------------------------------------------ the whole image */

static bool is_global(const struct k_pool *p)
{
    bool all = !p->has_indices;

    for (int i = 0; i < 2; i++)
        all = all && p->out[2 + i] == 1 && p->kernel[i] == p->in[2 + i] && p->pad_begin[i] == 0 &&
              (p->dilation[i] == 1 || p->kernel[i] == 1);
    return all;
}

static int global_run(const struct cuda_call *c, struct sh_err *err)
{
    k_reduce(c->stream, c->aux, cuda__operand_in(c, 0), cuda__operand_out(c, 0), c->scratch);
    return cuda__launched(c, err);
}

static int global_way(struct cuda_build *b, const struct k_pool *p)
{
    int rc;
    struct k_reduce *r = cuda__aux_new(b, sizeof(*r), &rc);

    if (rc)
        return rc;
    cuda__nest_init(&r->keep, 2, p->in);
    cuda__nest_init(&r->drop, 2, p->in + 2);
    for (int i = 0; i < 2; i++) {
        r->keep.stride[0][i] = p->y[i];
        r->keep.stride[1][i] = p->x[i];
        r->drop.stride[0][i] = p->x[2 + i];
    }
    k_nest_pack(&r->keep, 1);
    k_nest_pack(&r->drop, 0);
    r->kind = p->is_max ? DEV_RED_MAX : DEV_RED_MEAN;
    cuda__scratch(b, k_reduce_scratch(r));
    b->co->run = global_run;
    return SH_OK;
}

/* ------------------------------------------------------------------ builders */

int cuda__pool(struct cuda_build *b)
{
    const struct dev_op *op = b->op;
    const uint32_t all[] = {op->in[0], op->out[0]};
    const uint32_t indices = op->kind == DEV_OP_POOL_MAX ? cuda__opt_out(op, 1) : DEV_NONE;
    struct k_pool p = {.is_max = op->kind == DEV_OP_POOL_MAX}, *kept;
    const enum sh_dtype t = cuda__t(b, op->in[0])->dtype;
    const bool is8 = p.is_max && dev_is8(t) && cuda__t(b, op->out[0])->dtype == t;
    int rc = is8 ? SH_OK : cuda__need_f32(b, all, 2);

    if (!rc)
        rc = read_k_pool(b, op->in[0], op->out[0], &p);
    if (!rc && indices != DEV_NONE)
        rc = read_indices(b, indices, op->out[0], &p);
    if (rc)
        return rc;
    if (!is8 && is_global(&p))
        return global_way(b, &p);
    kept = cuda__aux_new(b, sizeof(*kept), &rc);
    if (rc)
        return rc;
    *kept = p;
    b->co->run = forward_run;
    return SH_OK;
}

int cuda__pool_bwd(struct cuda_build *b)
{
    const struct dev_op *op = b->op;
    const uint32_t all[] = {op->in[0], op->out[0]};
    struct k_pool *p;
    int rc = cuda__need_f32(b, all, 2);

    if (rc)
        return rc;
    p = cuda__aux_new(b, sizeof(*p), &rc);
    if (rc)
        return rc;
    p->is_max = op->kind == DEV_OP_POOL_MAX_BWD;
    rc = read_k_pool(b, op->out[0], op->in[0], p);
    if (!rc && p->is_max)
        rc = read_indices(b, op->in[1], op->in[0], p);
    b->co->run = backward_run;
    return rc;
}
