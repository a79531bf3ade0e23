/* cuda_norm.c - softmax, layer normalisation and their gradients; the kernels are in norm.cu.
 *
 * Operands come in the type in which they are stored, row-major. Statistics and the gradients of
 * scale and bias are F32.
 */
#include "common/mem.h"
#include "runtime/device/cuda/cuda_nest.h"

/* ------------------------------------------------------------------ softmax */

/* The lines along the operation's axis as aux. */
static int keep_lines(struct cuda_build *b, cuda_run *run)
{
    const struct dev_tensor *t = cuda__t(b, b->op->in[0]);
    struct k_lines *l;
    uint32_t axis;
    int rc = cuda__axis(b, b->op->in[0], b->op->u.axis.axis, &axis);

    if (rc)
        return rc;
    l = cuda__aux_new(b, sizeof(*l), &rc);
    if (rc)
        return rc;
    l->outer = dev_axes_elements(t, 0, axis);
    l->n = t->dims[axis];
    l->inner = dev_axes_elements(t, axis + 1, t->rank);
    b->co->run = run;
    return SH_OK;
}

static int softmax_run(const struct cuda_call *c, struct sh_err *err)
{
    k_softmax(c->stream, c->aux, cuda__operand_in(c, 0), cuda__operand_out(c, 0),
              c->op->u.axis.log);
    return cuda__launched(c, err);
}

int cuda__softmax(struct cuda_build *b)
{
    const uint32_t all[] = {b->op->in[0], b->op->out[0]};
    int rc = cuda__same_f32(b, all, SH_ARRAY_LEN(all));

    if (!rc)
        rc = keep_lines(b, softmax_run);
    if (!rc)
        rc = cuda__in_plain(b, 0);
    return rc ? rc : cuda__out_plain(b, 0);
}

static int softmax_bwd_run(const struct cuda_call *c, struct sh_err *err)
{
    k_softmax_bwd(c->stream, c->aux, cuda__operand_in(c, 0), cuda__operand_in(c, 1),
                  cuda__operand_out(c, 0), c->op->u.axis.log);
    return cuda__launched(c, err);
}

int cuda__softmax_bwd(struct cuda_build *b)
{
    const uint32_t all[] = {b->op->in[0], b->op->in[1], b->op->out[0]};
    int rc = cuda__same_f32(b, all, SH_ARRAY_LEN(all));

    if (!rc)
        rc = keep_lines(b, softmax_bwd_run);
    for (uint32_t i = 0; i < 2 && !rc; i++)
        rc = cuda__in_plain(b, i);
    return rc ? rc : cuda__out_plain(b, 0);
}

/* ------------------------------------------------------------------ layer normalisation */

struct layernorm {
    int64_t rows, n;
    int n_parts;
};

static int layernorm_new(struct cuda_build *b, struct layernorm **out)
{
    const struct dev_tensor *x = cuda__t(b, b->op->in[0]);
    struct layernorm *l;
    uint32_t axis;
    int rc = cuda__axis(b, b->op->in[0], b->op->u.norm.axis, &axis);

    if (rc)
        return rc;
    *out = l = cuda__aux_new(b, sizeof(*l), &rc);
    if (rc)
        return rc;
    l->rows = dev_axes_elements(x, 0, axis);
    l->n = dev_axes_elements(x, axis, x->rank);
    return SH_OK;
}

/* F32, with this many elements; DEV_NONE passes. */
static int has_elements(struct cuda_build *b, uint32_t tensor, int64_t n)
{
    int rc = cuda__need_f32(b, &tensor, 1);

    if (!rc && tensor != DEV_NONE && dev_tensor_elements(cuda__t(b, tensor)) != n)
        rc = cuda__refuse(b, SH_E_BUG, "\"%s\" does not have %lld elements",
                          cuda__t(b, tensor)->name, (long long)n);
    return rc;
}

static int layernorm_run(const struct cuda_call *c, struct sh_err *err)
{
    const struct layernorm *l = c->aux;
    const struct k_layernorm a = {.rows = l->rows,
                                  .n = l->n,
                                  .eps = c->op->u.norm.eps,
                                  .x = cuda__operand_in(c, 0),
                                  .scale = cuda__operand_in(c, 1),
                                  .bias = cuda__operand_in(c, 2),
                                  .y = cuda__operand_out(c, 0),
                                  .bytes = cuda__operand_out(c, 3),
                                  .step = c->op->u.norm.q.scale,
                                  .zero = (float)c->op->u.norm.q.zero,
                                  .mean = c->out[1],
                                  .invstd = c->out[2]};

    k_layernorm(c->stream, &a);
    return cuda__launched(c, err);
}

int cuda__layernorm(struct cuda_build *b)
{
    const struct dev_op *op = b->op;
    const uint32_t scale = cuda__opt_in(op, 1), bias = cuda__opt_in(op, 2);
    const uint32_t all[4] = {op->in[0], scale, bias, op->out[0]};
    struct layernorm *l = NULL;
    int rc = layernorm_new(b, &l);

    for (int i = 0; i < 4 && !rc; i++)
        rc = has_elements(b, all[i], i == 1 || i == 2 ? l->n : l->rows * l->n);
    for (uint32_t i = 1; i < 3 && !rc; i++)
        rc = has_elements(b, cuda__opt_out(op, i), l->rows);
    for (uint32_t i = 0; i < 3 && !rc; i++)
        rc = cuda__in_plain(b, i);
    if (!rc)
        rc = cuda__out_plain(b, 0);
    for (uint32_t i = 1; i < 3 && !rc; i++)
        rc = cuda__out(b, i, cuda__plain(CUDA_T_F32));
    if (!rc && cuda__opt_out(op, 3) != DEV_NONE)
        rc = cuda__out_plain(b, 3);
    if (rc)
        return rc;
    b->co->run = layernorm_run;
    return SH_OK;
}

static int layernorm_bwd_run(const struct cuda_call *c, struct sh_err *err)
{
    const struct layernorm *l = c->aux;
    const struct k_layernorm_bwd a = {.rows = l->rows,
                                      .n = l->n,
                                      .x = cuda__operand_in(c, 0),
                                      .dy = cuda__operand_in(c, 1),
                                      .scale = cuda__operand_in(c, 2),
                                      .dx = cuda__operand_out(c, 0),
                                      .mean = c->in[3],
                                      .invstd = c->in[4],
                                      .parts = c->out[1] || c->out[2] ? c->scratch : NULL,
                                      .n_parts = l->n_parts,
                                      .d_scale = c->out[1],
                                      .d_bias = c->out[2]};

    k_layernorm_bwd(c->stream, &a);
    return cuda__launched(c, err);
}

int cuda__layernorm_bwd(struct cuda_build *b)
{
    const struct dev_op *op = b->op;
    const uint32_t all[4] = {op->in[0], op->in[1], op->in[2], op->out[0]};
    struct layernorm *l = NULL;
    int rc = layernorm_new(b, &l);

    for (int i = 0; i < 4 && !rc; i++)
        rc = has_elements(b, all[i], i == 2 ? l->n : l->rows * l->n);
    for (uint32_t i = 3; i < 5 && !rc; i++)
        rc = has_elements(b, op->in[i], l->rows);
    for (uint32_t i = 1; i < 3 && !rc; i++)
        rc = has_elements(b, cuda__opt_out(op, i), l->n);
    for (uint32_t i = 0; i < 5 && !rc; i++)
        rc = i < 3 ? cuda__in_plain(b, i) : cuda__in(b, i, cuda__plain(CUDA_T_F32));
    if (!rc)
        rc = cuda__out_plain(b, 0);
    for (uint32_t i = 1; i < 3 && !rc; i++)
        rc = cuda__out(b, i, cuda__plain(CUDA_T_F32));
    if (rc)
        return rc;
    l->n_parts = k_layernorm_parts(l->rows, l->n, cuda__dev(b->plan)->n_sms);
    cuda__scratch(b, (size_t)l->n_parts * 2 * (size_t)l->n * sizeof(float));
    b->co->run = layernorm_bwd_run;
    return SH_OK;
}
