/* cuda_pick.c - builders of NONZERO, MASK and NMS; the kernels are in pick.cu. */
#include "common/mem.h"
#include "runtime/device/cuda/cuda_nest.h"
#include "runtime/device/cuda/kernels_pick.h"

static int take_plain_cells(struct cuda_build *b)
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
    const int rc = take_plain_cells(b);

    if (!rc)
        cuda__scratch(b, k_nonzero_scratch(dev_tensor_elements(cuda__t(b, b->op->in[0]))));
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
    b->co->run = run_mask;
    return take_plain_cells(b);
}

static int run_nms(const struct cuda_call *c, struct sh_err *err)
{
    k_nms(c->stream, c->aux, cuda__operand_in(c, 0), cuda__operand_in(c, 1), c->out[0], c->out[1],
          c->scratch);
    return cuda__launched(c, err);
}

int cuda__nms(struct cuda_build *b)
{
    const struct dev_tensor *scores = cuda__t(b, b->op->in[1]);
    int rc = SH_OK;
    struct k_nms *s = cuda__aux_new(b, sizeof(*s), &rc);

    if (rc)
        return rc;
    *s = (struct k_nms){.how = b->op->u.nms,
                        .batch = scores->dims[0],
                        .classes = scores->dims[1],
                        .n = scores->dims[2]};
    rc = take_plain_cells(b);
    if (!rc)
        cuda__scratch(b, k_nms_scratch(s));
    b->co->run = run_nms;
    return rc;
}
