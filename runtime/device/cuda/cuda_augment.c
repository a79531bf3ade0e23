/* cuda_augment.c - random augmentation; the kernels are in augment.cu. */
#include "common/mem.h"
#include "runtime/device/cuda/cuda_nest.h"
#include "runtime/device/cuda/kernels_augment.h"

static int run_jitter(const struct cuda_call *c, struct sh_err *err)
{
    const struct dev_tensor *x = &c->plan->base.g->tensors[c->op->in[0]];
    const bool last = c->op->u.jitter.channels_last;
    const struct k_pictures p = {.n = x->dims[0],
                                 .outer = last ? 1 : x->dims[1],
                                 .height = x->dims[last ? 1 : 2],
                                 .width = x->dims[last ? 2 : 3],
                                 .inner = last ? x->dims[3] : 1,
                                 .step = c->step,
                                 .element = sh_dtype_bytes(x->dtype)};

    k_jitter(c->stream, &p, &c->op->u.jitter, c->in[0], c->out[0]);
    return cuda__launched(c, err);
}

/* In the type of the dataset, which inputs have. */
int cuda__jitter(struct cuda_build *b)
{
    const struct dev_tensor *x = cuda__t(b, b->op->in[0]);
    const struct cuda_form f = cuda__plain(x->dtype == SH_U8 ? CUDA_T_U8 : CUDA_T_F32);
    int rc;

    if (dev_tensor_elements(x) / 1024 + x->dims[0] > INT32_MAX)
        return cuda__refuse(b, SH_E_TOOBIG, "the pictures of a batch are too large");
    b->co->run = run_jitter;
    b->co->by_step = true;
    rc = cuda__in(b, 0, f);
    return rc ? rc : cuda__out(b, 0, f);
}

static int run_tokens(const struct cuda_call *c, struct sh_err *err)
{
    k_tokens(c->stream, &c->op->u.tokens,
             dev_tensor_elements(&c->plan->base.g->tensors[c->op->in[0]]), c->step, c->in[0],
             c->out[0], c->out[1]);
    return cuda__launched(c, err);
}

int cuda__tokens(struct cuda_build *b)
{
    int rc = SH_OK;

    if (dev_tensor_elements(cuda__t(b, b->op->in[0])) / 256 > INT32_MAX - 1)
        return cuda__refuse(b, SH_E_TOOBIG, "the ids of a batch are too many");
    b->co->run = run_tokens;
    b->co->by_step = true;
    rc = cuda__in_plain(b, 0);
    for (uint32_t i = 0; i < 2 && !rc; i++)
        rc = cuda__out_plain(b, i);
    return rc;
}

static int run_mix(const struct cuda_call *c, struct sh_err *err)
{
    k_fill(c->stream, c->out[0], CUDA_T_F32, false, 1, c->turn.mix);
    return cuda__launched(c, err);
}

int cuda__mix(struct cuda_build *b)
{
    b->co->run = run_mix;
    b->co->by_step = true;
    return cuda__out(b, 0, cuda__plain(CUDA_T_F32));
}
