/* cuda_pick.c - builders of NONZERO, MASK and NMS; the kernels are in pick.cu. */
#include "common/mem.h"
#include "runtime/device/cuda/cuda_nest.h"
#include "runtime/device/cuda/kernels_pick.h"

static int check_count(struct cuda_build *b, uint32_t tensor)
{
    const struct dev_tensor *t = cuda__t(b, tensor);

    return t->dtype == SH_I64 && dev_tensor_elements(t) == 1
               ? SH_OK
               : cuda__refuse(b, SH_E_BUG, "the count is not one number of I64");
}

static int take_plain(struct cuda_build *b)
{
    int rc = SH_OK;

    for (uint32_t i = 0; i < b->op->n_in && !rc; i++)
        rc = cuda__in_plain(b, i);
    for (uint32_t i = 0; i < b->op->n_out && !rc; i++)
        rc = cuda__out_plain(b, i);
    return rc;
}

static int64_t elements_in(const struct cuda_call *c, uint32_t i)
{
    return dev_tensor_elements(&c->plan->base.g->tensors[c->op->in[i]]);
}

static int run_nonzero(const struct cuda_call *c, struct sh_err *err)
{
    k_nonzero(c->stream, elements_in(c, 0), cuda__operand_in(c, 0), c->out[0], c->out[1],
              c->scratch);
    return cuda__launched(c, err);
}

int cuda__nonzero(struct cuda_build *b)
{
    const struct dev_tensor *x = cuda__t(b, b->op->in[0]), *y = cuda__t(b, b->op->out[0]);
    const int64_t n = dev_tensor_elements(x);
    int rc = check_count(b, b->op->out[1]);

    if (!rc && (x->dtype == SH_F64 || x->dtype == SH_F16 || x->dtype == SH_BF16))
        rc = cuda__refuse(b, SH_E_UNSUPPORTED, "elements of type %s are not compared with 0",
                          sh_dtype_st(x->dtype));
    if (!rc && (y->dtype != SH_I64 || dev_tensor_elements(y) != n || n > INT32_MAX))
        rc = cuda__refuse(b, SH_E_BUG, "the places do not fit the elements");
    if (!rc)
        rc = take_plain(b);
    if (!rc)
        cuda__scratch(b, k_nonzero_scratch(n));
    b->co->run = run_nonzero;
    return rc;
}

static int run_mask(const struct cuda_call *c, struct sh_err *err)
{
    k_mask(c->stream, dev_tensor_elements(&c->plan->base.g->tensors[c->op->out[0]]), c->in[0],
           c->out[0]);
    return cuda__launched(c, err);
}

int cuda__mask(struct cuda_build *b)
{
    int rc = check_count(b, b->op->in[0]);

    if (!rc && cuda__t(b, b->op->out[0])->dtype != SH_BOOL)
        rc = cuda__refuse(b, SH_E_BUG, "a mask is not BOOL");
    b->co->run = run_mask;
    return rc ? rc : take_plain(b);
}

static int run_nms(const struct cuda_call *c, struct sh_err *err)
{
    k_nms(c->stream, c->aux, cuda__operand_in(c, 0), cuda__operand_in(c, 1), c->out[0], c->out[1],
          c->scratch);
    return cuda__launched(c, err);
}

static int check_nms(struct cuda_build *b, struct k_nms *s)
{
    const struct dev_tensor *boxes = cuda__t(b, b->op->in[0]), *scores = cuda__t(b, b->op->in[1]);
    const struct dev_tensor *y = cuda__t(b, b->op->out[0]);

    if (boxes->rank != 3 || scores->rank != 3 || boxes->dims[2] != 4 || y->dtype != SH_I64 ||
        boxes->dims[0] != scores->dims[0] || boxes->dims[1] != scores->dims[2])
        return cuda__refuse(b, SH_E_BUG, "boxes, scores and results do not fit");
    *s = (struct k_nms){.how = b->op->u.nms,
                        .batch = scores->dims[0],
                        .classes = scores->dims[1],
                        .n = scores->dims[2]};
    if (s->how.most < 1 || s->how.most > s->n || s->n > INT32_MAX ||
        s->batch > INT32_MAX / s->classes ||
        dev_tensor_elements(y) != s->batch * s->classes * s->how.most * 3)
        return cuda__refuse(b, SH_E_BUG, "the number of boxes does not fit");
    return SH_OK;
}

int cuda__nms(struct cuda_build *b)
{
    struct k_nms *s;
    int rc = check_count(b, b->op->out[1]);

    if (!rc)
        rc = cuda__need_f32(b, b->op->in, 2);
    if (rc)
        return rc;
    s = cuda__aux_new(b, sizeof(*s), &rc);
    if (!rc)
        rc = check_nms(b, s);
    if (!rc)
        rc = take_plain(b);
    if (!rc)
        cuda__scratch(b, k_nms_scratch(s));
    b->co->run = run_nms;
    return rc;
}
