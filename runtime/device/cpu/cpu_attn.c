/* cpu_attn.c - attention as products around a softmax, by oneDNN; its gradient likewise.
 *
 * Heads lie in rows of [B, S, H, D], as the layers around them give and take them: the products see
 * them as [B, H, S, D] by strides, so nothing is transposed. The scale goes into the first product,
 * and a mask that is the same for all rows of a head; oneDNN is a thousand times slower with any
 * other, which is added by a step of its own. The scores are in scratch.
 *
 *   p = softmax(scale q k^T + mask)   w = drop(p)   y = w v
 *   d_v = w^T d_y   g = d_y v^T   d_s = scale (drop(g) p - (d_y y) p)   d_q = d_s k   d_k = d_s^T q
 *
 * Backward computes p again by the same steps, since a softmax is no slower here than exp(s - lse).
 */
#include "common/mem.h"
#include "runtime/device/cpu/cpu.h"
#include "runtime/device/op_attn.h"
#include "runtime/device/philox.h"

#include <math.h>

#define LANES 16
#define CHUNK 256 /* weights that get their random numbers at a time; a multiple of eight */

struct operand { /* [B, H, rows, columns]; turned: [B, H, columns, rows] */
    struct cpu_ref at;
    dnnl_memory_desc_t md, turned;
};

struct attn {
    struct dev_attn s;
    struct operand in[3], y, p; /* q k v; p: scores, then weights */
    dnnl_memory_desc_t lines, mask;
    uint32_t mask_tensor;
    bool mask_is_apart;
};

/* ------------------------------------------------------------------ what the operands look like */

/* Samples or heads of which there is one have any stride. With that of an inner axis oneDNN takes
 * the operand for a transposed one, for which it has slow loops only. */
static void settle_strides(const dnnl_dims_t dims, dnnl_dims_t at)
{
    int64_t most = 1;

    for (int i = 0; i < 4; i++)
        most = SH_MAX(most, dims[i] * at[i]);
    for (int i = 0; i < 2; i++)
        if (dims[i] == 1)
            at[i] = most;
}

static int view(struct cpu_build *b, const struct dev_attn *s, const dnnl_dims_t dims,
                dnnl_dims_t at, struct operand *o)
{
    const dnnl_dims_t dims_turned = {s->batch, s->heads, dims[3], dims[2]};
    dnnl_dims_t at_turned;
    dnnl_status_t rc;

    settle_strides(dims, at);
    at_turned[0] = at[0];
    at_turned[1] = at[1];
    at_turned[2] = at[3];
    at_turned[3] = at[2];
    rc = dnnl_memory_desc_init_by_strides(&o->md, 4, dims, dnnl_f32, at);

    if (rc == dnnl_success)
        rc = dnnl_memory_desc_init_by_strides(&o->turned, 4, dims_turned, dnnl_f32, at_turned);
    return cpu__status(b, rc, "attention");
}

/* Rows of heads, `row` elements from one to the next. */
static int view_heads(struct cpu_build *b, const struct dev_attn *s, int64_t rows, int64_t row,
                      int64_t batch, struct operand *o)
{
    const dnnl_dims_t dims = {s->batch, s->heads, rows, s->width};
    dnnl_dims_t at = {batch, s->width, row, 1};

    return view(b, s, dims, at, o);
}

static int view_scores(struct cpu_build *b, const struct dev_attn *s, struct operand *o)
{
    const dnnl_dims_t dims = {s->batch, s->heads, s->q_rows, s->k_rows};
    dnnl_dims_t at = {s->heads * s->q_rows * s->k_rows, s->q_rows * s->k_rows, s->k_rows, 1};

    return view(b, s, dims, at, o);
}

static int describe_attn(struct cpu_build *b, struct attn *a)
{
    const struct dev_attn *s = &a->s;
    const int64_t scores[4] = {s->batch, s->heads, s->q_rows, s->k_rows};
    const int64_t lines[2] = {s->batch * s->heads * s->q_rows, s->k_rows};
    const int64_t row = s->heads * s->width;
    dnnl_dims_t mask, at;

    for (int i = 0; i < 3; i++)
        view_heads(b, s, i == 0 ? s->q_rows : s->k_rows, s->row_stride[i], s->batch_stride[i],
                   &a->in[i]);
    view_heads(b, s, s->q_rows, row, s->q_rows * row, &a->y);
    view_scores(b, s, &a->p);
    if (cpu__md_plain(2, lines, dnnl_f32, &a->lines))
        cpu__refuse(b, SH_E_BUG, "the scores have no row-major form");
    for (int i = 0; i < 4; i++) {
        mask[i] = s->mask_stride[i] ? scores[i] : 1;
        at[i] = s->mask_stride[i] ? s->mask_stride[i] : 1;
    }
    return cpu__status(b, dnnl_memory_desc_init_by_strides(&a->mask, 4, mask, dnnl_f32, at),
                       "attention");
}

/* Shapes, and q, k and v; p gets its scratch. */
static int begin_attn(struct cpu_build *b, struct attn *a)
{
    const struct dev_op *op = b->op;

    cpu__need_f32(b, op->in, op->n_in);
    cpu__need_f32(b, op->out, op->n_out);
    if (!cpu__failed(b) && !dev_attn_of_op(b->plan->base.g, op, &a->s))
        cpu__refuse(b, SH_E_BUG, "the shapes of queries, keys, values and mask do not fit");
    if (!cpu__failed(b) && op->u.attn.ratio > 0 && !dev_attn_can_drop(&a->s))
        cpu__refuse(b, SH_E_TOOBIG, "more weights than random numbers");
    a->mask_tensor = cpu__opt_in(op, 3);
    a->mask_is_apart =
        a->mask_tensor != DEV_NONE && (a->s.mask_stride[1] != 0 || a->s.mask_stride[2] != 0 ||
                                       (a->s.mask_batches != 1 && a->s.mask_batches != a->s.batch));
    if (cpu__failed(b) || describe_attn(b, a))
        return b->err->rc;
    for (uint32_t i = 0; i < 3; i++) {
        a->in[i].at = cpu__in_plain(b, op->in[i]);
        a->in[i].at.off += (size_t)a->s.at[i] * sizeof(float);
    }
    a->p.at = cpu__scratch(b, dnnl_memory_desc_get_size(&a->p.md));
    return b->err->rc;
}

/* ------------------------------------------------------------------ rows of scores */

SH_VECTORISE static float row_max(const float *x, int64_t n)
{
    float lane[LANES], max = -INFINITY;
    int64_t i = 0;

    for (int k = 0; k < LANES; k++)
        lane[k] = max;
    for (; i + LANES <= n; i += LANES)
        for (int k = 0; k < LANES; k++)
            lane[k] = x[i + k] > lane[k] ? x[i + k] : lane[k];
    for (; i < n; i++)
        max = x[i] > max ? x[i] : max;
    for (int k = 0; k < LANES; k++)
        max = lane[k] > max ? lane[k] : max;
    return max;
}

SH_VECTORISE static void row_factors(const uint32_t *words, int64_t n, uint32_t threshold,
                                     float keep, float *restrict f)
{
    for (int64_t i = 0; i < n; i++)
        f[i] = dev_philox_half(words, (uint32_t)i) >= threshold ? keep : 0;
}

SH_VECTORISE static void row_drop(float *restrict p, const float *f, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        p[i] *= f[i];
}

SH_VECTORISE static void add_mask_row(float *restrict p, const float *restrict mask, int64_t n,
                                      int64_t stride)
{
    if (stride == 1)
        for (int64_t i = 0; i < n; i++)
            p[i] += mask[i];
    else
        for (int64_t i = 0; i < n; i++)
            p[i] += mask[i * stride];
}

/* g becomes the gradient of the scores and p what was multiplied with v. */
SH_VECTORISE static void row_grad(float *restrict p, float *restrict g, const float *f, int64_t n,
                                  float delta)
{
    for (int64_t i = 0; i < n; i++) {
        const float w = p[i] * f[i];

        g[i] = g[i] * w - p[i] * delta;
        p[i] = w;
    }
}

SH_VECTORISE static void row_scale(float *restrict g, int64_t n, float scale)
{
    for (int64_t i = 0; i < n; i++)
        g[i] *= scale;
}

struct rows {
    const struct cpu_call *call;
    struct dev_attn s;
    float *p, *g, *lse, *d_mask; /* d_mask: NULL if it is not wanted */
    const float *y, *dy, *mask;
};

/* What dropout multiplies weights [from, from + n) of a row with; from is a multiple of eight. */
static void factors_of_row(const struct rows *c, int64_t row, int64_t from, int64_t n, float *f)
{
    const struct dev_op *op = c->call->op;
    const int64_t first = row * ((c->s.k_rows + 7) / 8) + from / 8;
    const float ratio = op->u.attn.ratio;
    uint32_t words[CHUNK];

    if (ratio > 0) {
        cpu__philox(op->u.attn.seed, first, 0, c->call->step, (n + 7) / 8, words);
        row_factors(words, n, dev_philox_half_threshold(ratio), dev_dropout_scale(ratio), f);
    } else {
        for (int64_t i = 0; i < n; i++)
            f[i] = 1;
    }
}

static struct rows attn_rows(const struct cpu_call *c)
{
    return (struct rows){.call = c, .s = *(const struct dev_attn *)c->aux};
}

static void each_row(struct rows *r, cpu_range_fn *fn)
{
    const int64_t n = r->s.batch * r->s.heads * r->s.q_rows;

    cpu__parallel(r->call->threads, n, SH_MAX(1, 8192 / r->s.k_rows), fn, r);
}

static int emit_rows(struct cpu_build *b, const struct attn *a, cpu_fn *fn,
                     const struct cpu_ref *refs, uint32_t n)
{
    return cpu__step_fn(b, fn, refs, n, &a->s, sizeof(a->s));
}

static void max_rows(void *ctx, int64_t from, int64_t to)
{
    const struct rows *c = ctx;

    for (int64_t r = from; r < to; r++)
        c->lse[r] = row_max(c->p + r * c->s.k_rows, c->s.k_rows);
}

/* The largest weight is exp(0) over the sum that lse is the logarithm of. */
static void weight_rows(void *ctx, int64_t from, int64_t to)
{
    const struct rows *c = ctx;

    for (int64_t r = from; r < to; r++) {
        float *p = c->p + r * c->s.k_rows, f[CHUNK];

        if (c->lse[r] != -INFINITY || !c->call->op->u.attn.zero_hidden)
            c->lse[r] = (float)((double)c->lse[r] - log((double)row_max(p, c->s.k_rows)));
        for (int64_t j = 0; j < c->s.k_rows && c->call->op->u.attn.ratio > 0; j += CHUNK) {
            const int64_t n = SH_MIN(CHUNK, c->s.k_rows - j);

            factors_of_row(c, r, j, n, f);
            row_drop(p + j, f, n);
        }
    }
}

/* p: scores lse */
static void max_fn(const struct cpu_call *c)
{
    struct rows r = attn_rows(c);

    r.p = c->p[0];
    r.lse = c->p[1];
    each_row(&r, max_rows);
}

/* A row of weights that is not a number is so from its first on. */
static void zero_rows(void *ctx, int64_t from, int64_t to)
{
    const struct rows *c = ctx;

    for (int64_t r = from; r < to; r++)
        if (isnan(c->p[r * c->s.k_rows]))
            memset(c->p + r * c->s.k_rows, 0, (size_t)c->s.k_rows * sizeof(*c->p));
}

/* p: weights */
static void zero_fn(const struct cpu_call *c)
{
    struct rows r = attn_rows(c);

    r.p = c->p[0];
    each_row(&r, zero_rows);
}

/* p: weights lse */
static void weight_fn(const struct cpu_call *c)
{
    struct rows r = attn_rows(c);

    r.p = c->p[0];
    r.lse = c->p[1];
    each_row(&r, weight_rows);
}

static void mask_rows(void *ctx, int64_t from, int64_t to)
{
    const struct rows *c = ctx;
    const struct dev_attn *s = &c->s;

    for (int64_t r = from; r < to; r++) {
        const int64_t h = r / s->q_rows, i = r % s->q_rows;
        const float *mask = c->mask + h / s->heads % s->mask_batches * s->mask_stride[0] +
                            h % s->heads * s->mask_stride[1] + i * s->mask_stride[2];

        add_mask_row(c->p + r * s->k_rows, mask, s->k_rows, s->mask_stride[3]);
    }
}

/* p: scores mask */
static void attn_mask_fn(const struct cpu_call *c)
{
    struct rows r = attn_rows(c);

    r.p = c->p[0];
    r.mask = c->p[1];
    each_row(&r, mask_rows);
}

static void grad_rows(void *ctx, int64_t from, int64_t to)
{
    const struct rows *c = ctx;
    const struct dev_attn *s = &c->s;

    for (int64_t r = from; r < to; r++) {
        const int64_t h = r / s->q_rows, i = r % s->q_rows;
        const int64_t at = ((h / s->heads * s->q_rows + i) * s->heads + h % s->heads) * s->width;
        double delta = 0;
        float f[CHUNK];

        for (int64_t d = 0; d < s->width; d++)
            delta += (double)c->y[at + d] * (double)c->dy[at + d];
        for (int64_t j = 0; j < s->k_rows; j += CHUNK) {
            const int64_t n = SH_MIN(CHUNK, s->k_rows - j);

            factors_of_row(c, r, j, n, f);
            row_grad(c->p + r * s->k_rows + j, c->g + r * s->k_rows + j, f, n, (float)delta);
        }
        if (c->d_mask)
            memcpy(c->d_mask + r * s->k_rows, c->g + r * s->k_rows,
                   (size_t)s->k_rows * sizeof(*c->g));
        row_scale(c->g + r * s->k_rows, s->k_rows, c->call->op->u.attn.scale);
    }
}

/* p: weights, their gradient, y d_y [d_mask] */
static void grad_fn(const struct cpu_call *c)
{
    struct rows r = attn_rows(c);

    r.p = c->p[0];
    r.g = c->p[1];
    r.y = c->p[2];
    r.dy = c->p[3];
    r.d_mask = cpu__opt_out(c->op, 3) == DEV_NONE ? NULL : c->p[4];
    each_row(&r, grad_rows);
}

/* ------------------------------------------------------------------ steps of oneDNN */

/* p = scale q k + mask */
static int emit_scores(struct cpu_build *b, struct attn *a)
{
    struct cpu_ref mask = {.tensor = DEV_NONE};
    dnnl_primitive_desc_t pd = NULL;
    dnnl_matmul_desc_t desc;
    dnnl_post_ops_t po = NULL;
    dnnl_status_t s = dnnl_post_ops_create(&po);
    const bool fuses = a->mask_tensor != DEV_NONE && !a->mask_is_apart;

    if (a->mask_tensor != DEV_NONE)
        mask = cpu__in_plain(b, a->mask_tensor);
    if (s == dnnl_success)
        s = dnnl_post_ops_append_eltwise(po, 1.0f, dnnl_eltwise_linear, b->op->u.attn.scale, 0);
    if (s == dnnl_success && fuses)
        s = dnnl_post_ops_append_binary(po, dnnl_binary_add, &a->mask);
    if (s == dnnl_success)
        s = dnnl_matmul_desc_init(&desc, &a->in[0].md, &a->in[1].turned, NULL, &a->p.md);
    if (s == dnnl_success)
        s = cpu__pd(b, &desc, po, NULL, &pd);
    dnnl_post_ops_destroy(po);
    cpu__status(b, s, "product of queries and keys");
    cpu__step_prim(b, pd,
                   (const struct cpu_bind[]){
                       {DNNL_ARG_SRC, a->in[0].at, &a->in[0].md},
                       {DNNL_ARG_WEIGHTS, a->in[1].at, &a->in[1].turned},
                       {DNNL_ARG_DST, a->p.at, &a->p.md},
                       {DNNL_ARG_ATTR_MULTIPLE_POST_OP(1) | DNNL_ARG_SRC_1, mask, &a->mask}},
                   fuses ? 4 : 3);
    return a->mask_is_apart
               ? emit_rows(b, a, attn_mask_fn, (const struct cpu_ref[]){a->p.at, mask}, 2)
               : b->err->rc;
}

static int emit_softmax(struct cpu_build *b, const struct attn *a)
{
    const struct cpu_bind binds[] = {{DNNL_ARG_SRC, a->p.at, NULL}, {DNNL_ARG_DST, a->p.at, NULL}};
    dnnl_primitive_desc_t pd = NULL;
    dnnl_softmax_v2_desc_t desc;
    dnnl_status_t s = dnnl_softmax_v2_forward_desc_init(
        &desc, dnnl_forward_inference, dnnl_softmax_accurate, &a->lines, &a->lines, 1);

    if (s == dnnl_success)
        s = cpu__pd(b, &desc, NULL, NULL, &pd);
    cpu__status(b, s, "softmax");
    return cpu__step_prim(b, pd, binds, 2);
}

/* y = x w; the first two may be turned. */
static int emit_product(struct cpu_build *b, const struct operand *x, bool turn_x,
                        const struct operand *w, bool turn_w, const struct operand *y)
{
    const dnnl_memory_desc_t *x_md = turn_x ? &x->turned : &x->md;
    const dnnl_memory_desc_t *w_md = turn_w ? &w->turned : &w->md;
    const struct cpu_bind binds[] = {{DNNL_ARG_SRC, x->at, x_md},
                                     {DNNL_ARG_WEIGHTS, w->at, w_md},
                                     {DNNL_ARG_DST, y->at, &y->md}};
    dnnl_primitive_desc_t pd = NULL;
    dnnl_matmul_desc_t desc;
    dnnl_status_t s = dnnl_matmul_desc_init(&desc, x_md, w_md, NULL, &y->md);

    if (s == dnnl_success)
        s = cpu__pd(b, &desc, NULL, NULL, &pd);
    cpu__status(b, s, "product of attention");
    return cpu__step_prim(b, pd, binds, 3);
}

/* ------------------------------------------------------------------ the two operations */

static int emit_weights(struct cpu_build *b, const struct attn *a)
{
    emit_softmax(b, a);
    return b->op->u.attn.zero_hidden ? emit_rows(b, a, zero_fn, &a->p.at, 1) : b->err->rc;
}

int cpu__attention(struct cpu_build *b)
{
    const uint32_t lse = cpu__opt_out(b->op, 1);
    struct cpu_ref refs[2] = {{0}};
    struct attn a = {0};

    if (begin_attn(b, &a))
        return b->err->rc;
    a.y.at = cpu__out_plain(b, b->op->out[0]);
    refs[0] = a.p.at;
    if (lse != DEV_NONE)
        refs[1] = cpu__out_plain(b, lse);
    emit_scores(b, &a);
    if (lse != DEV_NONE)
        emit_rows(b, &a, max_fn, refs, 2);
    emit_weights(b, &a);
    if (lse != DEV_NONE)
        emit_rows(b, &a, weight_fn, refs, 2);
    return emit_product(b, &a.p, false, &a.in[2], false, &a.y);
}

int cpu__attention_bwd(struct cpu_build *b)
{
    const struct dev_op *op = b->op;
    struct operand d[3], g;
    const uint32_t d_mask = cpu__opt_out(op, 3);
    struct cpu_ref refs[5] = {{0}};
    struct attn a = {0};

    if (begin_attn(b, &a))
        return b->err->rc;
    refs[2] = cpu__in_plain(b, op->in[4]);
    a.y.at = cpu__in_plain(b, op->in[5]); /* d_y looks as y does */
    for (uint32_t i = 0; i < 3; i++) {
        d[i] = a.in[i];
        d[i].at = cpu__out_plain(b, op->out[dev_attn_shares(op, (int)i)]);
        d[i].at.off += (size_t)a.s.at[i] * sizeof(float);
    }
    if (d_mask != DEV_NONE)
        refs[4] = cpu__out_plain(b, d_mask);
    g = a.p;
    g.at = cpu__scratch(b, dnnl_memory_desc_get_size(&g.md));
    refs[0] = a.p.at;
    refs[1] = g.at;
    refs[3] = a.y.at;
    emit_scores(b, &a);
    emit_weights(b, &a);
    emit_product(b, &a.y, false, &a.in[2], true, &g);
    emit_rows(b, &a, grad_fn, refs, d_mask == DEV_NONE ? 4 : 5);
    emit_product(b, &a.p, true, &a.y, false, &d[2]);
    emit_product(b, &g, false, &a.in[1], false, &d[0]);
    return emit_product(b, &g, true, &a.in[0], false, &d[1]);
}
