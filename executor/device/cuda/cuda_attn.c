/* cuda_attn.c - attention: one kernel, attn.cu.
 *
 * Queries, keys and values are in the compute type; the mask comes as it is stored, which may be
 * another float.
 */
#include "common/mem.h"
#include "executor/device/cuda/cuda_nest.h"

struct attention {
    struct k_attn k; /* without the pointers */
    int64_t at[3];   /* of the planes, in elements */
};

static int attention_run(const struct cuda_call *c, struct sh_err *err)
{
    const struct attention *s = c->aux;
    const size_t bytes = cuda__type_bytes((enum cuda_type)s->k.type);
    struct k_attn a = s->k;

    a.q = (const char *)c->in[0] + (size_t)s->at[0] * bytes;
    a.k = (const char *)c->in[1] + (size_t)s->at[1] * bytes;
    a.v = (const char *)c->in[2] + (size_t)s->at[2] * bytes;
    a.mask = cuda__operand_in(c, 3);
    a.y = c->out[0];
    k_attention(c->stream, &a);
    return cuda__launched(c, err);
}

static int read_shapes(struct cuda_build *b, struct attention *s)
{
    const struct dev_op *op = b->op;
    const struct dev_tensor *in[4];
    struct dev_attn a;

    for (uint32_t i = 0; i < 4; i++)
        in[i] = cuda__opt_in(op, i) == DEV_NONE ? NULL : cuda__t(b, op->in[i]);
    if (!dev_attn_of(op, in, cuda__t(b, op->out[0]), &a))
        return cuda__refuse(b, SH_E_BUG, "the shapes of queries, keys, values and mask do not fit");
    s->k = (struct k_attn){.type = (int)b->plan->compute,
                           .may_round = b->plan->precision == DEV_TF32,
                           .scale = op->u.attn.scale,
                           .batch = a.batch,
                           .heads = a.heads,
                           .width = a.width,
                           .q_rows = a.q_rows,
                           .k_rows = a.k_rows};
    memcpy(s->k.batch_stride, a.batch_stride, sizeof(a.batch_stride));
    memcpy(s->k.row_stride, a.row_stride, sizeof(a.row_stride));
    memcpy(s->k.mask_stride, a.mask_stride, sizeof(a.mask_stride));
    memcpy(s->at, a.at, sizeof(a.at));
    if (!k_attention_fits(&s->k))
        return cuda__refuse(b, SH_E_UNSUPPORTED,
                            "%lld queries by %lld keys, %lld wide, are more than it can take",
                            (long long)a.q_rows, (long long)a.k_rows, (long long)a.width);
    return SH_OK;
}

int cuda__attention(struct cuda_build *b)
{
    const struct dev_op *op = b->op;
    const struct cuda_form form = cuda__plain(b->plan->compute);
    const uint32_t all[] = {op->in[0], op->in[1], op->in[2], cuda__opt_in(op, 3), op->out[0]};
    struct attention *s;
    int rc = cuda__need_f32(b, all, SH_ARRAY_LEN(all));

    if (rc)
        return rc;
    s = cuda__aux_new(b, sizeof(*s), &rc);
    if (!s)
        return rc;
    rc = read_shapes(b, s);
    for (uint32_t i = 0; i < 3 && !rc; i++)
        rc = cuda__in(b, i, form);
    if (!rc)
        rc = cuda__in_plain(b, 3);
    if (!rc)
        rc = cuda__out(b, 0, form);
    if (rc)
        return rc;
    b->co->run = attention_run;
    return SH_OK;
}
