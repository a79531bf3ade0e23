/* cpu_attn.c - attention as two products around a softmax, all by oneDNN.
 *
 * Heads lie in rows of [B, S, H, D], as the layers around them give and take them: the products see
 * them as [B, H, S, D] by strides, so nothing is transposed. Scale and mask go into the first
 * product. The scores are in scratch.
 */
#include "common/mem.h"
#include "executor/device/cpu/cpu.h"

struct attn {
    struct dev_attn s;
    dnnl_memory_desc_t q, k, v, y; /* [B, H, rows, width]; k as [B, H, width, rows] */
    dnnl_memory_desc_t scores, lines, mask;
    uint32_t mask_tensor;
    struct cpu_ref p; /* the scores */
};

static int strided(struct cpu_build *b, const struct dev_attn *s, int64_t rows, int64_t row,
                   int64_t batch, bool turned, dnnl_memory_desc_t *out)
{
    dnnl_dims_t dims = {s->batch, s->heads, rows, s->width}, at = {batch, s->width, row, 1};

    if (turned) {
        dims[2] = s->width;
        dims[3] = rows;
        at[2] = 1;
        at[3] = row;
    }
    return cpu__status(b, dnnl_memory_desc_init_by_strides(out, 4, dims, dnnl_f32, at),
                       "attention");
}

static int describe(struct cpu_build *b, struct attn *a)
{
    const struct dev_attn *s = &a->s;
    const int64_t scores[4] = {s->batch, s->heads, s->q_rows, s->k_rows};
    const int64_t lines[2] = {s->batch * s->heads * s->q_rows, s->k_rows};
    const int64_t row = s->heads * s->width;
    dnnl_dims_t mask, at;
    int rc;

    rc = strided(b, s, s->q_rows, s->row_stride[0], s->batch_stride[0], false, &a->q);
    if (!rc)
        rc = strided(b, s, s->k_rows, s->row_stride[1], s->batch_stride[1], true, &a->k);
    if (!rc)
        rc = strided(b, s, s->k_rows, s->row_stride[2], s->batch_stride[2], false, &a->v);
    if (!rc)
        rc = strided(b, s, s->q_rows, row, s->q_rows * row, false, &a->y);
    if (!rc)
        rc = cpu__md_plain(4, scores, dnnl_f32, &a->scores);
    if (!rc)
        rc = cpu__md_plain(2, lines, dnnl_f32, &a->lines);
    for (int i = 0; i < 4; i++) {
        mask[i] = s->mask_stride[i] ? scores[i] : 1;
        at[i] = s->mask_stride[i] ? s->mask_stride[i] : 1;
    }
    if (!rc)
        rc = cpu__status(b, dnnl_memory_desc_init_by_strides(&a->mask, 4, mask, dnnl_f32, at),
                         "attention");
    return rc;
}

/* p = scale q k + mask */
static int emit_scores(struct cpu_build *b, struct attn *a, struct cpu_ref q, struct cpu_ref k)
{
    struct cpu_ref mask = {.tensor = DEV_NONE};
    dnnl_primitive_desc_t pd = NULL;
    dnnl_matmul_desc_t desc;
    dnnl_post_ops_t po = NULL;
    dnnl_status_t s = dnnl_post_ops_create(&po);
    int rc = SH_OK;

    if (a->mask_tensor != DEV_NONE)
        rc = cpu__in_plain(b, a->mask_tensor, &mask);
    if (s == dnnl_success)
        s = dnnl_post_ops_append_eltwise(po, 1.0f, dnnl_eltwise_linear, b->op->u.attn.scale, 0);
    if (s == dnnl_success && a->mask_tensor != DEV_NONE)
        s = dnnl_post_ops_append_binary(po, dnnl_binary_add, &a->mask);
    if (s == dnnl_success)
        s = dnnl_matmul_desc_init(&desc, &a->q, &a->k, NULL, &a->scores);
    if (s == dnnl_success && !rc)
        s = cpu__pd(b, &desc, po, NULL, &pd);
    dnnl_post_ops_destroy(po);
    if (!rc)
        rc = cpu__status(b, s, "product of queries and keys");
    if (!rc) {
        const struct cpu_bind binds[] = {
            {DNNL_ARG_SRC, q, &a->q},
            {DNNL_ARG_WEIGHTS, k, &a->k},
            {DNNL_ARG_DST, a->p, &a->scores},
            {DNNL_ARG_ATTR_MULTIPLE_POST_OP(1) | DNNL_ARG_SRC_1, mask, &a->mask}};

        rc = cpu__step_prim(b, pd, binds, a->mask_tensor == DEV_NONE ? 3 : 4);
    }
    return rc;
}

static int emit_softmax(struct cpu_build *b, const struct attn *a)
{
    const struct cpu_bind binds[] = {{DNNL_ARG_SRC, a->p, NULL}, {DNNL_ARG_DST, a->p, NULL}};
    dnnl_primitive_desc_t pd = NULL;
    dnnl_softmax_v2_desc_t desc;
    dnnl_status_t s = dnnl_softmax_v2_forward_desc_init(
        &desc, dnnl_forward_inference, dnnl_softmax_accurate, &a->lines, &a->lines, 1);
    int rc;

    if (s == dnnl_success)
        s = cpu__pd(b, &desc, NULL, NULL, &pd);
    rc = cpu__status(b, s, "softmax");
    return rc ? rc : cpu__step_prim(b, pd, binds, 2);
}

/* y = p v */
static int emit_values(struct cpu_build *b, const struct attn *a, struct cpu_ref v,
                       struct cpu_ref y)
{
    const struct cpu_bind binds[] = {
        {DNNL_ARG_SRC, a->p, &a->scores}, {DNNL_ARG_WEIGHTS, v, &a->v}, {DNNL_ARG_DST, y, &a->y}};
    dnnl_primitive_desc_t pd = NULL;
    dnnl_matmul_desc_t desc;
    dnnl_status_t s = dnnl_matmul_desc_init(&desc, &a->scores, &a->v, NULL, &a->y);
    int rc;

    if (s == dnnl_success)
        s = cpu__pd(b, &desc, NULL, NULL, &pd);
    rc = cpu__status(b, s, "product of scores and values");
    return rc ? rc : cpu__step_prim(b, pd, binds, 3);
}

int cpu__attention(struct cpu_build *b)
{
    const struct dev_op *op = b->op;
    struct attn a = {.mask_tensor = cpu__opt_in(op, 3)};
    const uint32_t all[] = {op->in[0], op->in[1], op->in[2], a.mask_tensor, op->out[0]};
    const struct dev_tensor *in[4] = {NULL};
    struct cpu_ref qkv[3], y;
    int rc = cpu__need_f32(b, all, SH_ARRAY_LEN(all));

    for (int i = 0; i < 4; i++)
        in[i] = all[i] == DEV_NONE ? NULL : cpu__t(b, all[i]);
    if (!rc && !dev_attn_of(op, in, cpu__t(b, op->out[0]), &a.s))
        rc = cpu__refuse(b, SH_E_BUG, "the shapes of queries, keys, values and mask do not fit");
    if (!rc)
        rc = describe(b, &a);
    for (uint32_t i = 0; i < 3 && !rc; i++) {
        rc = cpu__in_plain(b, op->in[i], &qkv[i]);
        qkv[i].off += (size_t)a.s.at[i] * sizeof(float);
    }
    if (!rc)
        rc = cpu__out_plain(b, op->out[0], &y);
    if (rc)
        return rc;
    a.p = cpu__scratch(b, dnnl_memory_desc_get_size(&a.scores));
    rc = emit_scores(b, &a, qkv[0], qkv[1]);
    if (!rc)
        rc = emit_softmax(b, &a);
    return rc ? rc : emit_values(b, &a, qkv[2], y);
}
