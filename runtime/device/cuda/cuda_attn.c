/* cuda_attn.c - attention: attn.cu, and attn_train.cu where its gradient will be asked for.
 *
 * Queries, keys and values are in the compute type; the mask comes as it is stored, which may be
 * another float.
 */
#include "common/mem.h"
#include "runtime/device/cuda/cuda_nest.h"
#include "runtime/device/op_attn.h"
#include "runtime/device/philox.h"

struct attention {
    struct k_attn_train k; /* without the pointers */
    int64_t at[3];         /* of the views, in elements */
};

/* in: those of the operation, q k v mask first; y its own. */
static struct k_attn_train operands(const struct cuda_call *c)
{
    const struct attention *s = c->aux;
    const size_t bytes = cuda__type_bytes((enum cuda_type)s->k.a.type);
    struct k_attn_train t = s->k;

    t.a.q = (const char *)c->in[0] + (size_t)s->at[0] * bytes;
    t.a.k = (const char *)c->in[1] + (size_t)s->at[1] * bytes;
    t.a.v = (const char *)c->in[2] + (size_t)s->at[2] * bytes;
    t.a.mask = cuda__operand_in(c, 3);
    t.step = c->step;
    return t;
}

static int attention_run(const struct cuda_call *c, struct sh_err *err)
{
    struct k_attn_train t = operands(c);

    t.a.y = c->out[0];
    t.lse = c->out[1];
    if (t.lse)
        k_attention_train(c->stream, &t);
    else
        k_attention(c->stream, &t.a);
    return cuda__launched(c, err);
}

/* Operand i's gradient begins where the operand does. */
static void *attn_gradient(const struct cuda_call *c, int i)
{
    const struct attention *s = c->aux;

    return (char *)c->out[dev_attn_shares(c->op, i)] +
           (size_t)s->at[i] * cuda__type_bytes((enum cuda_type)s->k.a.type);
}

static int attention_bwd_run(const struct cuda_call *c, struct sh_err *err)
{
    struct k_attn_train t = operands(c);

    t.a.y = (void *)(uintptr_t)c->in[4]; /* only read */
    t.d_y = c->in[5];
    t.lse = (float *)(uintptr_t)c->in[6];
    t.d_q = attn_gradient(c, 0);
    t.d_k = attn_gradient(c, 1);
    t.d_v = attn_gradient(c, 2);
    t.d_mask = c->out[3];
    t.delta = c->scratch;
    k_attention_train(c->stream, &t);
    return cuda__launched(c, err);
}

static int read_attn_shapes(struct cuda_build *b, struct attention *s, bool trains)
{
    const struct dev_op *op = b->op;
    struct k_attn *k = &s->k.a;
    struct dev_attn a;

    if (!dev_attn_of_op(b->plan->base.g, op, &a))
        return cuda__refuse(b, SH_E_BUG, "the shapes of queries, keys, values and mask do not fit");
    *k = (struct k_attn){.type = (int)b->plan->compute,
                         .may_round = b->plan->precision == DEV_TF32,
                         .zero_hidden = op->u.attn.zero_hidden,
                         .scale = op->u.attn.scale,
                         .batch = a.batch,
                         .heads = a.heads,
                         .width = a.width,
                         .q_rows = a.q_rows,
                         .k_rows = a.k_rows,
                         .mask_batches = a.mask_batches};
    memcpy(k->batch_stride, a.batch_stride, sizeof(a.batch_stride));
    memcpy(k->row_stride, a.row_stride, sizeof(a.row_stride));
    memcpy(k->mask_stride, a.mask_stride, sizeof(a.mask_stride));
    memcpy(s->at, a.at, sizeof(a.at));
    s->k.seed = op->u.attn.seed;
    s->k.threshold = dev_philox_half_threshold(op->u.attn.ratio);
    /* A ratio below 2^-16 drops none: then neither forward nor backward scales any. */
    s->k.kept = s->k.threshold == 0 ? 1 : dev_dropout_scale(op->u.attn.ratio);
    if (trains ? !k_attention_train_fits(k) : !k_attention_fits(k))
        return cuda__refuse(b, SH_E_UNSUPPORTED,
                            "%lld queries by %lld keys, %lld wide, are more than it can take",
                            (long long)a.q_rows, (long long)a.k_rows, (long long)a.width);
    if (op->u.attn.ratio > 0 && !dev_attn_can_drop(&a))
        return cuda__refuse(b, SH_E_TOOBIG, "more weights than random numbers");
    return SH_OK;
}

/* What both directions have in common: shapes, queries, keys, values and mask. */
static struct attention *attention_new(struct cuda_build *b, bool trains, int *rc)
{
    const struct cuda_form form = cuda__plain(b->plan->compute);
    struct attention *s;

    *rc = SH_OK;
    for (uint32_t i = 0; i < b->op->n_in && !*rc; i++)
        if (b->op->in[i] != DEV_NONE)
            *rc = cuda__need_f32(b, &b->op->in[i], 1);
    if (!*rc)
        *rc = cuda__need_f32(b, b->op->out, b->op->n_out);
    s = *rc ? NULL : cuda__aux_new(b, sizeof(*s), rc);
    if (!s)
        return NULL;
    *rc = read_attn_shapes(b, s, trains);
    for (uint32_t i = 0; i < 3 && !*rc; i++)
        *rc = cuda__in(b, i, form);
    if (!*rc)
        *rc = cuda__in_plain(b, 3);
    return *rc ? NULL : s;
}

int cuda__attention(struct cuda_build *b)
{
    const bool trains = cuda__opt_out(b->op, 1) != DEV_NONE;
    int rc;

    if (!attention_new(b, trains, &rc))
        return rc;
    rc = cuda__out(b, 0, cuda__plain(b->plan->compute));
    if (!rc && trains)
        rc = cuda__out_plain(b, 1);
    if (rc)
        return rc;
    b->co->run = attention_run;
    b->co->by_step = b->op->u.attn.ratio > 0;
    return SH_OK;
}

int cuda__attention_bwd(struct cuda_build *b)
{
    const struct cuda_form form = cuda__plain(b->plan->compute);
    const struct attention *s;
    int rc;

    s = attention_new(b, true, &rc);
    if (!s)
        return rc;
    for (uint32_t i = 4; i < 6 && !rc; i++)
        rc = cuda__in(b, i, form);
    if (!rc)
        rc = cuda__in_plain(b, 6);
    for (uint32_t i = 0; i < b->op->n_out && !rc; i++)
        rc = cuda__out(b, i, form);
    if (rc)
        return rc;
    cuda__scratch(b, (size_t)(s->k.a.batch * s->k.a.heads * s->k.a.q_rows) * sizeof(float));
    b->co->run = attention_bwd_run;
    b->co->by_step = b->op->u.attn.ratio > 0;
    return SH_OK;
}
