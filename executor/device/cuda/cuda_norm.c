/* cuda_norm.c - softmax, layer normalisation and their gradients; the kernels are in norm.cu.
 *
 * Operands come in the type in which they are stored, row-major. Statistics and the gradients of
 * scale and bias are F32.
 */
#include "common/mem.h"
#include "executor/device/cuda/cuda_nest.h"

#include <stdlib.h>

static struct cuda_form plain_of(const struct cuda_build *b, uint32_t tensor)
{
    return (struct cuda_form){cuda__form(b, tensor).type, CUDA_PLAIN};
}

/* Operand `slot`, row-major, in its own type. */
static int take_in(struct cuda_build *b, uint32_t slot)
{
    const uint32_t t = cuda__opt_in(b->op, slot);

    return t == DEV_NONE ? SH_OK : cuda__in(b, slot, plain_of(b, t));
}

static int take_out(struct cuda_build *b, uint32_t slot)
{
    const uint32_t t = cuda__opt_out(b->op, slot);

    return t == DEV_NONE ? SH_OK : cuda__out(b, slot, plain_of(b, t));
}

static int take_f32(struct cuda_build *b, uint32_t slot, bool is_out)
{
    const struct cuda_form f = {CUDA_T_F32, CUDA_PLAIN};

    return is_out ? cuda__out(b, slot, f) : cuda__in(b, slot, f);
}

/* ------------------------------------------------------------------ softmax */

struct softmax {
    struct k_lines lines;
    int type[3]; /* of the operands, in the order of the launcher */
};

static int softmax_new(struct cuda_build *b, struct softmax **out)
{
    const struct dev_tensor *t = cuda__t(b, b->op->in[0]);
    int64_t axis = b->op->u.axis.axis;
    struct softmax *s;
    int rc = SH_OK;

    axis += axis < 0 ? (int64_t)t->rank : 0;
    if (axis < 0 || axis >= (int64_t)t->rank)
        return cuda__refuse(b, SH_E_BUG, "axis %lld does not exist", (long long)b->op->u.axis.axis);
    s = cuda__aux_new(b, sizeof(*s), &rc);
    if (!s)
        return rc;
    s->lines = (struct k_lines){1, t->dims[axis], 1};
    for (int64_t i = 0; i < (int64_t)t->rank; i++) {
        if (i < axis)
            s->lines.outer *= t->dims[i];
        else if (i > axis)
            s->lines.inner *= t->dims[i];
    }
    *out = s;
    return SH_OK;
}

static int softmax_run(const struct cuda_call *c, struct sh_err *err)
{
    const struct softmax *s = c->aux;

    k_softmax(c->stream, &s->lines, (struct k_operand){c->in[0], s->type[0]},
              (struct k_operand){c->out[0], s->type[1]}, c->op->u.axis.log);
    return cuda__launched(c, err);
}

int cuda__softmax(struct cuda_build *b)
{
    const struct dev_op *op = b->op;
    const uint32_t all[] = {op->in[0], op->out[0]};
    struct softmax *s = NULL;
    int rc = cuda__need_f32(b, all, SH_ARRAY_LEN(all));

    if (!rc)
        rc = cuda__same_shape(b, op->in[0], op->out[0]);
    if (!rc)
        rc = softmax_new(b, &s);
    if (!rc)
        rc = take_in(b, 0);
    if (!rc)
        rc = take_out(b, 0);
    if (rc)
        return rc;
    s->type[0] = (int)cuda__form(b, op->in[0]).type;
    s->type[1] = (int)cuda__form(b, op->out[0]).type;
    b->co->run = softmax_run;
    return SH_OK;
}

static int softmax_bwd_run(const struct cuda_call *c, struct sh_err *err)
{
    const struct softmax *s = c->aux;

    k_softmax_bwd(c->stream, &s->lines, (struct k_operand){c->in[0], s->type[0]},
                  (struct k_operand){c->in[1], s->type[1]},
                  (struct k_operand){c->out[0], s->type[2]}, c->op->u.axis.log);
    return cuda__launched(c, err);
}

int cuda__softmax_bwd(struct cuda_build *b)
{
    const struct dev_op *op = b->op;
    const uint32_t all[] = {op->in[0], op->in[1], op->out[0]};
    struct softmax *s = NULL;
    int rc = cuda__need_f32(b, all, SH_ARRAY_LEN(all));

    for (int i = 1; i < 3 && !rc; i++)
        rc = cuda__same_shape(b, op->in[0], all[i]);
    if (!rc)
        rc = softmax_new(b, &s);
    for (uint32_t i = 0; i < 2 && !rc; i++)
        rc = take_in(b, i);
    if (!rc)
        rc = take_out(b, 0);
    if (rc)
        return rc;
    for (int i = 0; i < 3; i++)
        s->type[i] = (int)cuda__form(b, all[i]).type;
    b->co->run = softmax_bwd_run;
    return SH_OK;
}

/* ------------------------------------------------------------------ layer normalisation */

struct layernorm {
    int64_t rows, n;
    int type[4]; /* x scale bias y, or x d_y scale d_x */
    int n_parts;
};

static int layernorm_new(struct cuda_build *b, struct layernorm **out)
{
    const struct dev_tensor *x = cuda__t(b, b->op->in[0]);
    int64_t axis = b->op->u.norm.axis;
    struct layernorm *l;
    int rc = SH_OK;

    axis += axis < 0 ? (int64_t)x->rank : 0;
    if (axis < 0 || axis >= (int64_t)x->rank)
        return cuda__refuse(b, SH_E_BUG, "axis %lld does not exist", (long long)b->op->u.norm.axis);
    l = cuda__aux_new(b, sizeof(*l), &rc);
    if (!l)
        return rc;
    l->rows = l->n = 1;
    for (int64_t i = 0; i < (int64_t)x->rank; i++)
        *(i < axis ? &l->rows : &l->n) *= x->dims[i];
    *out = l;
    return SH_OK;
}

/* F32, with this many elements; DEV_NONE passes. */
static int has(struct cuda_build *b, uint32_t tensor, int64_t n)
{
    int rc = cuda__need_f32(b, &tensor, 1);

    if (!rc && tensor != DEV_NONE && dev_tensor_elements(cuda__t(b, tensor)) != n)
        rc = cuda__refuse(b, SH_E_BUG, "\"%s\" does not have %lld elements",
                          cuda__t(b, tensor)->name, (long long)n);
    return rc;
}

static int type_of(const struct cuda_build *b, uint32_t tensor)
{
    return tensor == DEV_NONE ? (int)CUDA_T_F32 : (int)cuda__form(b, tensor).type;
}

static int layernorm_run(const struct cuda_call *c, struct sh_err *err)
{
    const struct layernorm *l = c->aux;
    const struct k_layernorm a = {.rows = l->rows,
                                  .n = l->n,
                                  .eps = c->op->u.norm.eps,
                                  .x = {c->in[0], l->type[0]},
                                  .scale = {c->in[1], l->type[1]},
                                  .bias = {c->in[2], l->type[2]},
                                  .y = {c->out[0], l->type[3]},
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
        rc = has(b, all[i], i == 1 || i == 2 ? l->n : l->rows * l->n);
    for (uint32_t i = 1; i < 3 && !rc; i++)
        rc = has(b, cuda__opt_out(op, i), l->rows);
    for (uint32_t i = 0; i < 3 && !rc; i++)
        rc = take_in(b, i);
    if (!rc)
        rc = take_out(b, 0);
    for (uint32_t i = 1; i < 3 && !rc; i++)
        rc = take_f32(b, i, true);
    if (rc)
        return rc;
    for (int i = 0; i < 4; i++)
        l->type[i] = type_of(b, all[i]);
    b->co->run = layernorm_run;
    return SH_OK;
}

static int layernorm_bwd_run(const struct cuda_call *c, struct sh_err *err)
{
    const struct layernorm *l = c->aux;
    const struct k_layernorm_bwd a = {.rows = l->rows,
                                      .n = l->n,
                                      .x = {c->in[0], l->type[0]},
                                      .dy = {c->in[1], l->type[1]},
                                      .scale = {c->in[2], l->type[2]},
                                      .dx = {c->out[0], l->type[3]},
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
        rc = has(b, all[i], i == 2 ? l->n : l->rows * l->n);
    for (uint32_t i = 3; i < 5 && !rc; i++)
        rc = has(b, op->in[i], l->rows);
    for (uint32_t i = 1; i < 3 && !rc; i++)
        rc = has(b, cuda__opt_out(op, i), l->n);
    for (uint32_t i = 0; i < 5 && !rc; i++)
        rc = i < 3 ? take_in(b, i) : take_f32(b, i, false);
    if (!rc)
        rc = take_out(b, 0);
    for (uint32_t i = 1; i < 3 && !rc; i++)
        rc = take_f32(b, i, true);
    if (rc)
        return rc;
    for (int i = 0; i < 4; i++)
        l->type[i] = type_of(b, all[i]);
    l->n_parts = k_layernorm_parts(l->rows, l->n, cuda__dev(b->plan)->n_sms);
    cuda__scratch(b, (size_t)l->n_parts * 2 * (size_t)l->n * sizeof(float));
    b->co->run = layernorm_bwd_run;
    return SH_OK;
}
