/* cuda_pixels.c - pictures of bytes become floats by a table; the kernel is in pixels.cu. */
#include "common/mem.h"
#include "common/preprocess.h"
#include "runtime/device/cuda/cuda_nest.h"
#include "runtime/device/cuda/kernels_pixels.h"

/* The tables of that many fit in the shared memory of any block. */
_Static_assert(SH_PREPROCESS_CHANNELS *K_PIXELS * sizeof(float) <= 48u << 10, "tables");
_Static_assert(K_PIXELS == SH_PREPROCESS_BYTES, "numbers of a table");

static int run_pixels(const struct cuda_call *c, struct sh_err *err)
{
    const struct k_operand y = cuda__operand_out(c, 0);

    k_pixels(c->stream, c->aux, c->in[0], c->in[1], y.type, y.p);
    return cuda__launched(c, err);
}

/* y as it is stored: the kernel goes by its strides, so there is no second pass for a layout. */
int cuda__pixels(struct cuda_build *b)
{
    const struct dev_op *op = b->op;
    const struct dev_tensor *x = cuda__t(b, op->in[0]);
    const bool x_last = op->u.pixels.x_last;
    bool y_last = op->u.pixels.y_last;
    struct k_pixels *k;
    int rc = cuda__in(b, 0, cuda__plain(CUDA_T_U8));

    if (!rc)
        rc = cuda__in(b, 1, cuda__plain(CUDA_T_F32));
    if (!rc && y_last) /* a layout of channels would be another one */
        rc = cuda__out_plain(b, 0);
    else if (!rc && cuda__form(b, op->out[0]).layout == CUDA_NHWC)
        y_last = true;
    k = rc ? NULL : cuda__aux_new(b, sizeof(*k), &rc);
    if (rc)
        return rc;
    *k = (struct k_pixels){.n = x->dims[0],
                           .plane = dev_tensor_elements(x) / x->dims[0] / x->dims[x_last ? 3 : 1],
                           .channels = (int32_t)x->dims[x_last ? 3 : 1],
                           .x_last = x_last,
                           .y_last = y_last};
    if (k->channels > (int32_t)SH_PREPROCESS_CHANNELS || k->n * k->plane > INT32_MAX)
        return cuda__refuse(b, SH_E_TOOBIG, "more than %u channels, or 2^31 pixels",
                            SH_PREPROCESS_CHANNELS);
    b->co->run = run_pixels;
    return SH_OK;
}
