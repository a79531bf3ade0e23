/* cpu_norm.c - batch normalisation with given statistics by oneDNN, layer normalisation by loops of
 * our own. (Batch normalisation in training: cpu_bn.c.)
 */
#include "common/mem.h"
#include "runtime/device/cpu/cpu_quant.h"

#include <math.h>

#define GRAIN_ROWS 4
#define LANES 16

/* ------------------------------------------------------------------ batch normalisation */

static int check_bn(struct cpu_build *b, uint32_t x, const uint32_t *vectors, uint32_t n)
{
    const struct dev_tensor *t = cpu__t(b, x);

    if (t->rank < 2 || t->rank > 5)
        return cpu__refuse(b, SH_E_UNSUPPORTED, "input needs a batch and a channel axis");
    for (uint32_t i = 0; i < n; i++)
        if (dev_tensor_elements(cpu__t(b, vectors[i])) != t->dims[1])
            return cpu__refuse(b, SH_E_BUG, "\"%s\" does not have one value per channel",
                               cpu__t(b, vectors[i])->name);
    return b->err->rc;
}

/* Descriptor in the layout of x, or plain where oneDNN has no kernel for that. */
static int bn_pd(struct cpu_build *b, uint32_t x, unsigned flags, dnnl_primitive_desc_t *out)
{
    const struct cpu_tensor *t = &b->plan->tensors[x];
    const dnnl_memory_desc_t *mds[] = {&t->lay->md, &t->lay->plain};
    dnnl_status_t s = dnnl_unimplemented;

    *out = NULL;
    for (int i = 0; i < 2 && s != dnnl_success; i++) {
        dnnl_batch_normalization_desc_t desc;

        s = dnnl_batch_normalization_forward_desc_init(&desc, dnnl_forward_inference, mds[i],
                                                       b->op->u.norm.eps, flags);
        if (s == dnnl_success)
            s = cpu__pd(b, &desc, NULL, NULL, out);
    }
    return cpu__status(b, s, "batch normalization");
}

int cpu__bn_infer(struct cpu_build *b)
{
    const struct dev_op *op = b->op;
    const uint32_t all[] = {op->in[0], op->in[1], op->in[2], op->in[3], op->in[4], op->out[0]};
    const bool relu = op->act == DEV_ACT_RELU;
    struct cpu_ref r[5], y;
    dnnl_primitive_desc_t pd = NULL;
    dnnl_memory_desc_t md;

    cpu__need_f32(b, all, SH_ARRAY_LEN(all));
    if (check_bn(b, op->in[0], op->in + 1, 4) ||
        bn_pd(b, op->in[0],
              dnnl_use_global_stats | dnnl_use_scale | dnnl_use_shift |
                  (relu ? dnnl_fuse_norm_relu : 0u),
              &pd))
        return b->err->rc;
    md = *cpu__pd_md(pd, DNNL_ARG_DST); /* pd goes into the step */
    r[0] = cpu__in(b, op->in[0], NULL, &md);
    for (uint32_t i = 1; i < 5; i++)
        r[i] = cpu__in_plain(b, op->in[i]);
    y = cpu__out(b, op->out[0], &md, true);
    cpu__step_prim(b, pd,
                   (const struct cpu_bind[]){{DNNL_ARG_SRC, r[0], &md},
                                             {DNNL_ARG_SCALE, r[1], NULL},
                                             {DNNL_ARG_SHIFT, r[2], NULL},
                                             {DNNL_ARG_MEAN, r[3], NULL},
                                             {DNNL_ARG_VARIANCE, r[4], NULL},
                                             {DNNL_ARG_DST, y, &md}},
                   6);
    return relu ? b->err->rc : cpu__act_in_place(b, y, &md);
}

/* ------------------------------------------------------------------ layer normalisation */

/* Sums in LANES partial sums, a fixed order that the compiler can vectorise. */
SH_VECTORISE static double lane_sum(const float *x, int64_t n)
{
    double lanes[LANES] = {0}, sum = 0;
    int64_t i = 0;

    for (; i + LANES <= n; i += LANES)
        for (int k = 0; k < LANES; k++)
            lanes[k] += x[i + k];
    for (; i < n; i++)
        lanes[i % LANES] += x[i];
    for (int k = 0; k < LANES; k++)
        sum += lanes[k];
    return sum;
}

SH_VECTORISE static double lane_square(const float *x, double mean, int64_t n)
{
    double lanes[LANES] = {0}, sum = 0;
    int64_t i = 0;

    for (; i + LANES <= n; i += LANES)
        for (int k = 0; k < LANES; k++)
            lanes[k] += (x[i + k] - mean) * (x[i + k] - mean);
    for (; i < n; i++)
        lanes[i % LANES] += (x[i] - mean) * (x[i] - mean);
    for (int k = 0; k < LANES; k++)
        sum += lanes[k];
    return sum;
}

struct ln {
    int64_t rows, cols;
    int scale, bias, mean, invstd, d_scale, d_bias, bytes; /* places in p, -1 = absent */
    enum sh_dtype type;                                    /* of bytes */
    struct dev_quant q;
};

struct ln_ctx {
    const struct ln *ln;
    void *const *p;
    float eps;
};

static void *ln_operand(const struct ln_ctx *c, int place)
{
    return place < 0 ? NULL : c->p[place];
}

/* scale and bias may be NULL */
SH_VECTORISE static void ln_row(const float *restrict x, const float *restrict scale,
                                const float *restrict bias, int64_t n, float mean, float inv,
                                float *restrict y)
{
    if (scale && bias)
        for (int64_t i = 0; i < n; i++)
            y[i] = (x[i] - mean) * inv * scale[i] + bias[i];
    else
        for (int64_t i = 0; i < n; i++)
            y[i] = (x[i] - mean) * inv * (scale ? scale[i] : 1) + (bias ? bias[i] : 0);
}

/* p: x y [scale] [bias] [mean] [invstd] [bytes] */
static void ln_rows(void *ctx, int64_t from, int64_t to)
{
    const struct ln_ctx *c = ctx;
    const int64_t n = c->ln->cols;
    const float *scale = ln_operand(c, c->ln->scale), *bias = ln_operand(c, c->ln->bias);
    float *keep_mean = ln_operand(c, c->ln->mean), *keep_inv = ln_operand(c, c->ln->invstd);
    uint8_t *bytes = ln_operand(c, c->ln->bytes);

    for (int64_t r = from; r < to; r++) {
        const float *x = (const float *)c->p[0] + r * n;
        float *y = (float *)c->p[1] + r * n;
        double mean = lane_sum(x, n) / (double)n;
        double inv = 1 / sqrt(lane_square(x, mean, n) / (double)n + c->eps);
        const float m = (float)mean, s = (float)inv;

        ln_row(x, scale, bias, n, m, s, y);
        if (keep_mean)
            keep_mean[r] = m;
        if (keep_inv)
            keep_inv[r] = s;
        if (bytes)
            cpu__row_to8(y, n, &c->ln->q, c->ln->type, bytes + r * n);
    }
}

static void ln_fn(const struct cpu_call *c)
{
    struct ln_ctx l = {.ln = c->aux, .p = c->p, .eps = c->op->u.norm.eps};

    cpu__parallel(c->threads, l.ln->rows, GRAIN_ROWS, ln_rows, &l);
}

/* d_x = invstd (g - mean(g) - xhat mean(g xhat)), g = d_y scale.  p: x d_y d_x ... */
static void ln_bwd_rows(void *ctx, int64_t from, int64_t to)
{
    const struct ln_ctx *c = ctx;
    const int64_t n = c->ln->cols;
    const float *scale = ln_operand(c, c->ln->scale);
    const float *mean = ln_operand(c, c->ln->mean), *inv = ln_operand(c, c->ln->invstd);

    for (int64_t r = from; r < to; r++) {
        const float *x = (const float *)c->p[0] + r * n, *dy = (const float *)c->p[1] + r * n;
        float *dx = (float *)c->p[2] + r * n;
        double lane_g[LANES] = {0}, lane_gx[LANES] = {0}, sum_g = 0, sum_gx = 0;
        float mg, mgx;

        for (int64_t i = 0; i < n; i++) {
            float g = scale ? dy[i] * scale[i] : dy[i];

            lane_g[i % LANES] += g;
            lane_gx[i % LANES] += (double)g * ((x[i] - mean[r]) * inv[r]);
        }
        for (int k = 0; k < LANES; k++) {
            sum_g += lane_g[k];
            sum_gx += lane_gx[k];
        }
        mg = (float)(sum_g / (double)n);
        mgx = (float)(sum_gx / (double)n);
        for (int64_t i = 0; i < n; i++) {
            float g = scale ? dy[i] * scale[i] : dy[i];

            dx[i] = inv[r] * (g - mg - (x[i] - mean[r]) * inv[r] * mgx);
        }
    }
}

/* Columns [from, to): each sums its rows in order, so the split does not matter. */
static void ln_bwd_cols(void *ctx, int64_t from, int64_t to)
{
    const struct ln_ctx *c = ctx;
    const int64_t n = c->ln->cols;
    const float *x = c->p[0], *dy = c->p[1];
    const float *mean = ln_operand(c, c->ln->mean), *inv = ln_operand(c, c->ln->invstd);
    float *ds = ln_operand(c, c->ln->d_scale), *db = ln_operand(c, c->ln->d_bias);

    for (int64_t lo = from; lo < to; lo += 64) {
        const int64_t w = SH_MIN(64, to - lo);
        double s[64] = {0}, t[64] = {0};

        for (int64_t r = 0; r < c->ln->rows; r++)
            for (int64_t i = 0; i < w; i++) {
                double g = dy[r * n + lo + i];

                s[i] += g * ((x[r * n + lo + i] - mean[r]) * inv[r]);
                t[i] += g;
            }
        for (int64_t i = 0; i < w; i++) {
            if (ds)
                ds[lo + i] = (float)s[i];
            if (db)
                db[lo + i] = (float)t[i];
        }
    }
}

static void ln_bwd_fn(const struct cpu_call *c)
{
    struct ln_ctx l = {.ln = c->aux, .p = c->p, .eps = c->op->u.norm.eps};

    cpu__parallel(c->threads, l.ln->rows, GRAIN_ROWS, ln_bwd_rows, &l);
    if (l.ln->d_scale >= 0 || l.ln->d_bias >= 0)
        cpu__parallel(c->threads, l.ln->cols, 64, ln_bwd_cols, &l);
}

struct operand {
    uint32_t tensor;
    bool is_out;
    int64_t elements; /* 0: rows, -1: cols, -2: those of x */
    int *place;
    bool is_bytes; /* no floats */
};

static int bind_ln_operands(struct cpu_build *b, const struct operand *o, uint32_t n, struct ln *ln,
                            cpu_fn *fn)
{
    struct cpu_ref refs[8];
    uint32_t used = 0;

    for (uint32_t i = 0; i < n; i++) {
        int64_t want = o[i].elements == 0    ? ln->rows
                       : o[i].elements == -1 ? ln->cols
                                             : ln->rows * ln->cols;

        if (o[i].tensor == DEV_NONE)
            continue;
        if (!o[i].is_bytes)
            cpu__need_f32(b, &o[i].tensor, 1);
        if (dev_tensor_elements(cpu__t(b, o[i].tensor)) != want)
            cpu__refuse(b, SH_E_BUG, "\"%s\" does not have %lld elements",
                        cpu__t(b, o[i].tensor)->name, (long long)want);
        refs[used] = o[i].is_out ? cpu__out_plain(b, o[i].tensor) : cpu__in_plain(b, o[i].tensor);
        if (o[i].place)
            *o[i].place = (int)used;
        used++;
    }
    return cpu__step_fn(b, fn, refs, used, ln, sizeof(*ln));
}

static int read_ln(struct cpu_build *b, struct ln *ln)
{
    const struct dev_tensor *x = cpu__t(b, b->op->in[0]);
    uint32_t axis;

    if (cpu__axis(b, b->op->in[0], b->op->u.norm.axis, &axis))
        return b->err->rc;
    *ln = (struct ln){.rows = dev_axes_elements(x, 0, axis),
                      .cols = dev_axes_elements(x, axis, x->rank)};
    ln->scale = ln->bias = ln->mean = ln->invstd = ln->d_scale = ln->d_bias = ln->bytes = -1;
    return SH_OK;
}

int cpu__layernorm(struct cpu_build *b)
{
    const struct dev_op *op = b->op;
    struct ln ln;
    const struct operand o[] = {{op->in[0], false, -2, NULL},
                                {op->out[0], true, -2, NULL},
                                {cpu__opt_in(op, 1), false, -1, &ln.scale},
                                {cpu__opt_in(op, 2), false, -1, &ln.bias},
                                {cpu__opt_out(op, 1), true, 0, &ln.mean},
                                {cpu__opt_out(op, 2), true, 0, &ln.invstd},
                                {cpu__opt_out(op, 3), true, -2, &ln.bytes, true}};

    if (read_ln(b, &ln))
        return b->err->rc;
    ln.q = op->u.norm.q;
    if (cpu__opt_out(op, 3) != DEV_NONE)
        ln.type = cpu__t(b, op->out[3])->dtype;
    return bind_ln_operands(b, o, SH_ARRAY_LEN(o), &ln, ln_fn);
}

int cpu__layernorm_bwd(struct cpu_build *b)
{
    const struct dev_op *op = b->op;
    struct ln ln;
    const struct operand o[] = {{op->in[0], false, -2, NULL},
                                {op->in[1], false, -2, NULL},
                                {op->out[0], true, -2, NULL},
                                {op->in[2], false, -1, &ln.scale},
                                {op->in[3], false, 0, &ln.mean},
                                {op->in[4], false, 0, &ln.invstd},
                                {cpu__opt_out(op, 1), true, -1, &ln.d_scale},
                                {cpu__opt_out(op, 2), true, -1, &ln.d_bias}};

    return read_ln(b, &ln) ? b->err->rc : bind_ln_operands(b, o, SH_ARRAY_LEN(o), &ln, ln_bwd_fn);
}
