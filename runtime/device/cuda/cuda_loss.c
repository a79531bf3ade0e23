/* cuda_loss.c - losses and dropout; the kernels are in loss.cu. */
#include "common/mem.h"
#include "runtime/device/cuda/cuda_nest.h"
#include "runtime/device/philox.h"

/* ------------------------------------------------------------------ losses */

static struct k_loss loss_args(const struct cuda_call *c)
{
    return (struct k_loss){.x_type = (int)cuda__stored_type(c, c->op->in[0]),
                           .d_type = (int)cuda__stored_type(c, c->op->out[1]),
                           .x = c->in[0],
                           .d = c->out[1],
                           .loss = c->out[0],
                           .scratch = c->scratch,
                           .arrivals = c->dev->arrivals,
                           .fault = c->dev->fault,
                           .op = c->index,
                           .weight = c->op->u.loss.weight,
                           .scaler = dev_op_scaler(c->op) == DEV_NONE ? NULL : c->in[3]};
}

static int run_xent(const struct cuda_call *c, struct sh_err *err)
{
    const struct dev_tensor *x = &c->plan->base.g->tensors[c->op->in[0]];
    const struct k_loss a = loss_args(c);
    const struct k_xent k = {.label = c->in[1],
                             .weights = cuda__opt_in(c->op, 2) == DEV_NONE ? NULL : c->in[2],
                             .ignore = c->op->u.loss.ignore,
                             .smoothing = c->op->u.loss.smoothing,
                             .n = x->dims[1],
                             .inner = x->rank > 2 ? x->dims[2] : 1,
                             .rows = dev_tensor_elements(x) / x->dims[1]};

    k_loss_xent(c->stream, &a, &k);
    return cuda__launched(c, err);
}

static int run_each(const struct cuda_call *c, struct sh_err *err)
{
    const struct dev_tensor *tensors = c->plan->base.g->tensors;
    const uint32_t w = cuda__opt_in(c->op, 2);
    const struct k_loss a = loss_args(c);
    const struct k_each k = {.kind = (int)c->op->u.loss.kind,
                             .t_type = (int)cuda__stored_type(c, c->op->in[1]),
                             .target = c->in[1],
                             .weights = w == DEV_NONE ? NULL : c->in[2],
                             .n_weights = w == DEV_NONE ? 1 : dev_tensor_elements(&tensors[w]),
                             .delta = c->op->u.loss.delta,
                             .n = dev_tensor_elements(&tensors[c->op->in[0]])};

    k_loss_each(c->stream, &a, &k);
    return cuda__launched(c, err);
}

/* Everything row-major in the type that it has; the loss itself and weights are F32. */
static int take_loss_op(struct cuda_build *b)
{
    const struct dev_op *op = b->op;
    const uint32_t all[] = {op->in[0], op->out[1]};
    int rc = cuda__same_f32(b, all, SH_ARRAY_LEN(all));

    if (!rc && cuda__t(b, op->out[0])->dtype != SH_F32)
        rc = cuda__refuse(b, SH_E_BUG, "the loss is not one F32");
    for (uint32_t i = 0; i < 2 && !rc; i++)
        rc = cuda__in_plain(b, i);
    if (!rc && cuda__opt_in(op, 2) != DEV_NONE)
        rc = cuda__in(b, 2, cuda__plain(CUDA_T_F32));
    if (!rc && dev_op_scaler(op) != DEV_NONE)
        rc = cuda__in(b, 3, cuda__plain(CUDA_T_F32));
    if (!rc)
        rc = cuda__out(b, 0, cuda__plain(CUDA_T_F32));
    return rc ? rc : cuda__out_plain(b, 1);
}

int cuda__loss_xent(struct cuda_build *b)
{
    if (dev_tensor_elements(cuda__t(b, b->op->in[1])) > INT32_MAX)
        return cuda__refuse(b, SH_E_UNSUPPORTED, "more labels than %d in a step", INT32_MAX);
    cuda__scratch(b, k_loss_xent_scratch(dev_tensor_elements(cuda__t(b, b->op->in[1]))));
    b->co->run = run_xent;
    return take_loss_op(b);
}

int cuda__loss_each(struct cuda_build *b)
{
    int rc = cuda__same_f32(b, b->op->in, 2);

    if (rc)
        return rc;
    cuda__scratch(b, k_loss_each_scratch(dev_tensor_elements(cuda__t(b, b->op->in[0]))));
    b->co->run = run_each;
    return take_loss_op(b);
}

/* ------------------------------------------------------------------ dropout */

#define DROPOUT_MAX ((int64_t)INT32_MAX * 2048) /* elements of a grid of blocks */

static int64_t loss_elements(const struct cuda_call *c)
{
    return dev_tensor_elements(&c->plan->base.g->tensors[c->op->in[0]]);
}

static int run_dropout(const struct cuda_call *c, struct sh_err *err)
{
    struct k_dropout d = {.n = loss_elements(c),
                          .step = c->step,
                          .seed = c->op->u.dropout.seed,
                          .op = c->index,
                          .threshold = dev_philox_threshold(c->op->u.dropout.ratio),
                          .scale = dev_dropout_scale(c->op->u.dropout.ratio)};

    k_dropout(c->stream, &d, (int)cuda__stored_type(c, c->op->out[0]), c->in[0], c->in[1],
              c->out[0], c->out[1]);
    return cuda__launched(c, err);
}

static int run_dropout_bwd(const struct cuda_call *c, struct sh_err *err)
{
    k_dropout_bwd(c->stream, loss_elements(c), dev_dropout_scale(c->op->u.dropout.ratio),
                  (int)cuda__stored_type(c, c->op->out[0]), c->in[0], c->in[1], c->out[0]);
    return cuda__launched(c, err);
}

static int check_mask(struct cuda_build *b, uint32_t mask)
{
    const struct dev_tensor *m = cuda__t(b, mask), *x = cuda__t(b, b->op->in[0]);

    if (sh_dtype_bytes(m->dtype) != 1 || dev_tensor_elements(m) != dev_tensor_elements(x))
        return cuda__refuse(b, SH_E_BUG, "the mask needs one byte per element");
    return SH_OK;
}

static int check_dropout(struct cuda_build *b)
{
    const uint32_t all[] = {b->op->in[0], b->op->out[0]};
    int64_t n = dev_tensor_elements(cuda__t(b, b->op->in[0]));

    if (!(b->op->u.dropout.ratio >= 0 && b->op->u.dropout.ratio <= 1))
        return cuda__refuse(b, SH_E_INVALID, "ratio %g is not between 0 and 1",
                            (double)b->op->u.dropout.ratio);
    if (n / 4 > UINT32_MAX || n > DROPOUT_MAX)
        return cuda__refuse(b, SH_E_TOOBIG, "more elements than random numbers");
    return cuda__same_f32(b, all, SH_ARRAY_LEN(all));
}

/* The order of the elements is that of the random numbers: row-major. */
int cuda__dropout(struct cuda_build *b)
{
    const uint32_t mask = cuda__opt_out(b->op, 1);
    const uint32_t sum[] = {b->op->in[0], cuda__opt_in(b->op, 1)};
    struct cuda_form f = cuda__plain(cuda__form(b, b->op->out[0]).type);
    int rc = check_dropout(b);

    if (!rc)
        rc = cuda__same_f32(b, sum, SH_ARRAY_LEN(sum));
    if (!rc && mask != DEV_NONE)
        rc = check_mask(b, mask);
    if (!rc && mask != DEV_NONE)
        rc = cuda__out_plain(b, 1);
    if (!rc)
        rc = cuda__in(b, 0, f);
    if (!rc)
        rc = cuda__in(b, 1, f);
    if (!rc)
        rc = cuda__out_plain(b, 0);
    b->co->run = run_dropout;
    b->co->by_step = true;
    return rc;
}

int cuda__dropout_bwd(struct cuda_build *b)
{
    struct cuda_form f = cuda__plain(cuda__form(b, b->op->out[0]).type);
    int rc = check_dropout(b);

    if (!rc)
        rc = check_mask(b, b->op->in[1]);
    if (!rc)
        rc = cuda__in(b, 0, f);
    if (!rc)
        rc = cuda__in_plain(b, 1);
    if (!rc)
        rc = cuda__out_plain(b, 0);
    b->co->run = run_dropout_bwd;
    return rc;
}
