/* cpu_norm.c - batch normalisation by oneDNN, layer normalisation by loops of our own.
 *
 * BN_TRAIN keeps what the contract names: mean and 1/sqrt(var + eps). oneDNN wants the variance
 * back in the gradient; it only uses var + eps, which the inverse gives to full precision.
 */
#include "common/mem.h"
#include "executor/device/cpu/cpu.h"

#include <math.h>
#include <stdlib.h>

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
    return SH_OK;
}

/* Descriptor of the pass in the layout of x, or plain where oneDNN has no kernel for that. */
static int bn_pd(struct cpu_build *b, uint32_t x, dnnl_prop_kind_t prop, unsigned flags,
                 dnnl_primitive_desc_t *out)
{
    const struct cpu_tensor *t = &b->plan->tensors[x];
    const dnnl_memory_desc_t *mds[] = {&t->md, &t->plain};
    const bool backward = prop == dnnl_backward;
    const dnnl_prop_kind_t fwd = backward ? dnnl_forward_training : prop;
    dnnl_status_t s = dnnl_unimplemented;

    *out = NULL;
    for (int i = 0; i < 2 && s != dnnl_success; i++) {
        dnnl_primitive_desc_t hint = NULL;
        dnnl_batch_normalization_desc_t desc;

        s = dnnl_batch_normalization_forward_desc_init(&desc, fwd, mds[i], b->op->u.norm.eps,
                                                       flags);
        if (s == dnnl_success)
            s = cpu__pd(b, &desc, NULL, NULL, &hint);
        if (s == dnnl_success && !backward) {
            *out = hint;
            return SH_OK;
        }
        if (s == dnnl_success)
            s = dnnl_batch_normalization_backward_desc_init(&desc, prop, mds[i], mds[i],
                                                            b->op->u.norm.eps, flags);
        if (s == dnnl_success)
            s = cpu__pd(b, &desc, NULL, hint, out);
        if (hint)
            dnnl_primitive_desc_destroy(hint);
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
    const dnnl_memory_desc_t *md;
    int rc = cpu__need_f32(b, all, SH_ARRAY_LEN(all));

    if (!rc)
        rc = check_bn(b, op->in[0], op->in + 1, 4);
    if (!rc)
        rc = bn_pd(b, op->in[0], dnnl_forward_inference,
                   dnnl_use_global_stats | dnnl_use_scale | dnnl_use_shift |
                       (relu ? dnnl_fuse_norm_relu : 0u),
                   &pd);
    if (rc)
        return rc;
    md = cpu__pd_md(pd, DNNL_ARG_DST);
    rc = cpu__in(b, op->in[0], NULL, md, &r[0]);
    for (uint32_t i = 1; i < 5 && !rc; i++)
        rc = cpu__in_plain(b, op->in[i], &r[i]);
    if (!rc)
        rc = cpu__out(b, op->out[0], md, true, &y);
    if (!rc) {
        const struct cpu_bind binds[] = {
            {DNNL_ARG_SRC, r[0], md},        {DNNL_ARG_SCALE, r[1], NULL},
            {DNNL_ARG_SHIFT, r[2], NULL},    {DNNL_ARG_MEAN, r[3], NULL},
            {DNNL_ARG_VARIANCE, r[4], NULL}, {DNNL_ARG_DST, y, md}};
        const dnnl_memory_desc_t own = *md; /* pd goes into the step */

        rc = cpu__step_prim(b, pd, binds, SH_ARRAY_LEN(binds));
        return rc || relu ? rc : cpu__act_in_place(b, y, &own);
    }
    dnnl_primitive_desc_destroy(pd);
    return rc;
}

/* p: mean var run_mean run_var invstd new_mean new_var */
static int bn_stats_fn(const struct cpu_call *c, struct sh_err *err)
{
    const struct dev_tensor *x = &c->plan->base.g->tensors[c->op->in[0]];
    const float *mean = c->p[0], *var = c->p[1], *run_mean = c->p[2], *run_var = c->p[3];
    float *invstd = c->p[4], *new_mean = c->p[5], *new_var = c->p[6];
    const double n = (double)(dev_tensor_elements(x) / x->dims[1]);
    const double unbiased = n > 1 ? n / (n - 1) : 1, keep = c->op->u.norm.momentum;

    (void)err;
    for (int64_t i = 0; i < x->dims[1]; i++) {
        invstd[i] = (float)(1 / sqrt((double)var[i] + c->op->u.norm.eps));
        new_mean[i] = (float)(keep * run_mean[i] + (1 - keep) * mean[i]);
        new_var[i] = (float)(keep * run_var[i] + (1 - keep) * unbiased * var[i]);
    }
    return SH_OK;
}

int cpu__bn_train(struct cpu_build *b)
{
    const struct dev_op *op = b->op;
    const uint32_t vectors[] = {op->in[1],  op->in[2],  op->in[3],  op->in[4],
                                op->out[1], op->out[2], op->out[3], op->out[4]};
    struct cpu_ref x, y, v[8], var;
    dnnl_primitive_desc_t pd = NULL;
    const dnnl_memory_desc_t *md;
    int rc = cpu__need_f32(b, vectors, 8);

    if (!rc)
        rc = check_bn(b, op->in[0], vectors, 8);
    if (!rc)
        rc = bn_pd(b, op->in[0], dnnl_forward_training, dnnl_use_scale | dnnl_use_shift, &pd);
    if (rc)
        return rc;
    md = cpu__pd_md(pd, DNNL_ARG_DST);
    rc = cpu__in(b, op->in[0], NULL, md, &x);
    for (uint32_t i = 0; i < 8 && !rc; i++)
        rc = i < 4 ? cpu__in_plain(b, vectors[i], &v[i]) : cpu__out_plain(b, vectors[i], &v[i]);
    if (!rc)
        rc = cpu__out(b, op->out[0], md, true, &y);
    if (!rc) {
        const struct cpu_bind binds[] = {
            {DNNL_ARG_SRC, x, md},
            {DNNL_ARG_SCALE, v[0], NULL},
            {DNNL_ARG_SHIFT, v[1], NULL},
            {DNNL_ARG_MEAN, v[4], NULL},
            {DNNL_ARG_VARIANCE, var = cpu__scratch(b, (size_t)cpu__t(b, op->in[0])->dims[1] * 4),
             NULL},
            {DNNL_ARG_DST, y, md}};
        const struct cpu_ref refs[] = {v[4], var, v[2], v[3], v[5], v[6], v[7]};

        rc = cpu__step_prim(b, pd, binds, SH_ARRAY_LEN(binds));
        return rc ? rc : cpu__step_fn(b, bn_stats_fn, refs, SH_ARRAY_LEN(refs), NULL);
    }
    dnnl_primitive_desc_destroy(pd);
    return rc;
}

/* p: invstd var */
static int bn_var_fn(const struct cpu_call *c, struct sh_err *err)
{
    const struct dev_tensor *x = &c->plan->base.g->tensors[c->op->in[0]];
    const float *invstd = c->p[0];
    float *var = c->p[1];

    (void)err;
    for (int64_t i = 0; i < x->dims[1]; i++) {
        double s = 1 / (double)invstd[i];

        var[i] = (float)(s * s - c->op->u.norm.eps);
    }
    return SH_OK;
}

int cpu__bn_train_bwd(struct cpu_build *b)
{
    const struct dev_op *op = b->op;
    const uint32_t vectors[] = {op->in[2], op->in[3], op->in[4], op->out[1], op->out[2]};
    struct cpu_ref x, dy, dx, v[5], fn_refs[2];
    dnnl_primitive_desc_t pd = NULL;
    const dnnl_memory_desc_t *md;
    int rc = cpu__need_f32(b, vectors, 5);

    if (!rc)
        rc = check_bn(b, op->in[0], vectors, 5);
    if (!rc)
        rc = bn_pd(b, op->in[0], dnnl_backward, dnnl_use_scale | dnnl_use_shift, &pd);
    if (rc)
        return rc;
    md = cpu__pd_md(pd, DNNL_ARG_DIFF_SRC);
    rc = cpu__in(b, op->in[0], NULL, md, &x);
    if (!rc)
        rc = cpu__in(b, op->in[1], NULL, md, &dy);
    for (uint32_t i = 0; i < 5 && !rc; i++)
        rc = i < 3 ? cpu__in_plain(b, vectors[i], &v[i]) : cpu__out_plain(b, vectors[i], &v[i]);
    if (!rc)
        rc = cpu__out(b, op->out[0], md, true, &dx);
    fn_refs[0] = v[2];
    fn_refs[1] = cpu__scratch(b, (size_t)cpu__t(b, op->in[0])->dims[1] * sizeof(float));
    if (!rc)
        rc = cpu__step_fn(b, bn_var_fn, fn_refs, 2, NULL);
    if (!rc) {
        const struct cpu_bind binds[] = {
            {DNNL_ARG_SRC, x, md},
            {DNNL_ARG_DIFF_DST, dy, md},
            {DNNL_ARG_SCALE, v[0], NULL},
            {DNNL_ARG_MEAN, v[1], NULL},
            {DNNL_ARG_SHIFT, v[0], NULL}, /* asked for, not read: the gradient has no shift in it */
            {DNNL_ARG_DIFF_SCALE, v[3], NULL},
            {DNNL_ARG_DIFF_SHIFT, v[4], NULL},
            {DNNL_ARG_VARIANCE, fn_refs[1], NULL},
            {DNNL_ARG_DIFF_SRC, dx, md}};

        return cpu__step_prim(b, pd, binds, SH_ARRAY_LEN(binds));
    }
    dnnl_primitive_desc_destroy(pd);
    return rc;
}

/* ------------------------------------------------------------------ layer normalisation */

/* Sums in LANES partial sums, a fixed order that the compiler can vectorise. */
static double lane_sum(const float *x, int64_t n)
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

static double lane_square(const float *x, double mean, int64_t n)
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
    int scale, bias, mean, invstd, d_scale, d_bias; /* places in p, -1 = absent */
};

struct ln_ctx {
    const struct ln *ln;
    void *const *p;
    float eps;
};

static float *at(const struct ln_ctx *c, int place)
{
    return place < 0 ? NULL : c->p[place];
}

/* p: x y [scale] [bias] [mean] [invstd] */
static void ln_rows(void *ctx, int64_t from, int64_t to)
{
    const struct ln_ctx *c = ctx;
    const int64_t n = c->ln->cols;
    const float *scale = at(c, c->ln->scale), *bias = at(c, c->ln->bias);
    float *keep_mean = at(c, c->ln->mean), *keep_inv = at(c, c->ln->invstd);

    for (int64_t r = from; r < to; r++) {
        const float *x = (const float *)c->p[0] + r * n;
        float *y = (float *)c->p[1] + r * n;
        double mean = lane_sum(x, n) / (double)n;
        double inv = 1 / sqrt(lane_square(x, mean, n) / (double)n + c->eps);
        const float m = (float)mean, s = (float)inv;

        for (int64_t i = 0; i < n; i++)
            y[i] = (x[i] - m) * s;
        if (scale)
            for (int64_t i = 0; i < n; i++)
                y[i] *= scale[i];
        if (bias)
            for (int64_t i = 0; i < n; i++)
                y[i] += bias[i];
        if (keep_mean)
            keep_mean[r] = m;
        if (keep_inv)
            keep_inv[r] = s;
    }
}

static int ln_fn(const struct cpu_call *c, struct sh_err *err)
{
    struct ln_ctx l = {.ln = c->aux, .p = c->p, .eps = c->op->u.norm.eps};

    (void)err;
    cpu__parallel(c->threads, l.ln->rows, GRAIN_ROWS, ln_rows, &l);
    return SH_OK;
}

/* d_x = invstd (g - mean(g) - xhat mean(g xhat)), g = d_y scale.  p: x d_y d_x ... */
static void ln_bwd_rows(void *ctx, int64_t from, int64_t to)
{
    const struct ln_ctx *c = ctx;
    const int64_t n = c->ln->cols;
    const float *scale = at(c, c->ln->scale);
    const float *mean = at(c, c->ln->mean), *inv = at(c, c->ln->invstd);

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
    const float *mean = at(c, c->ln->mean), *inv = at(c, c->ln->invstd);
    float *ds = at(c, c->ln->d_scale), *db = at(c, c->ln->d_bias);

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

static int ln_bwd_fn(const struct cpu_call *c, struct sh_err *err)
{
    struct ln_ctx l = {.ln = c->aux, .p = c->p, .eps = c->op->u.norm.eps};

    (void)err;
    cpu__parallel(c->threads, l.ln->rows, GRAIN_ROWS, ln_bwd_rows, &l);
    if (l.ln->d_scale >= 0 || l.ln->d_bias >= 0)
        cpu__parallel(c->threads, l.ln->cols, 64, ln_bwd_cols, &l);
    return SH_OK;
}

struct operand {
    uint32_t tensor;
    bool is_out;
    int64_t elements; /* 0: rows, -1: cols, -2: those of x */
    int *place;
};

static int bind_operands(struct cpu_build *b, const struct operand *o, uint32_t n, struct ln *ln,
                         cpu_fn *fn)
{
    struct cpu_ref refs[8];
    uint32_t used = 0;
    int rc = SH_OK;

    for (uint32_t i = 0; i < n && !rc; i++) {
        int64_t want = o[i].elements == 0    ? ln->rows
                       : o[i].elements == -1 ? ln->cols
                                             : ln->rows * ln->cols;

        if (o[i].tensor == DEV_NONE)
            continue;
        rc = cpu__need_f32(b, &o[i].tensor, 1);
        if (!rc && dev_tensor_elements(cpu__t(b, o[i].tensor)) != want)
            rc = cpu__refuse(b, SH_E_BUG, "\"%s\" does not have %lld elements",
                             cpu__t(b, o[i].tensor)->name, (long long)want);
        if (!rc)
            rc = o[i].is_out ? cpu__out_plain(b, o[i].tensor, &refs[used])
                             : cpu__in_plain(b, o[i].tensor, &refs[used]);
        if (o[i].place)
            *o[i].place = (int)used;
        used++;
    }
    if (rc) {
        free(ln);
        return rc;
    }
    return cpu__step_fn(b, fn, refs, used, ln);
}

static int ln_new(struct cpu_build *b, struct ln **out)
{
    const struct dev_tensor *x = cpu__t(b, b->op->in[0]);
    int64_t axis = b->op->u.norm.axis;
    struct ln *ln;

    *out = NULL;
    axis += axis < 0 ? (int64_t)x->rank : 0;
    if (axis < 0 || axis >= (int64_t)x->rank)
        return cpu__refuse(b, SH_E_BUG, "axis %lld does not exist", (long long)axis);
    ln = malloc(sizeof(*ln));
    if (!ln)
        return cpu__refuse(b, SH_E_NOMEM, "could not allocate a step");
    *ln = (struct ln){1, 1, -1, -1, -1, -1, -1, -1};
    for (uint32_t i = 0; i < x->rank; i++) {
        if (i < (uint64_t)axis)
            ln->rows *= x->dims[i];
        else
            ln->cols *= x->dims[i];
    }
    *out = ln;
    return SH_OK;
}

int cpu__layernorm(struct cpu_build *b)
{
    const struct dev_op *op = b->op;
    struct ln *ln;
    int rc = ln_new(b, &ln);

    if (!rc) {
        const struct operand o[] = {{op->in[0], false, -2, NULL},
                                    {op->out[0], true, -2, NULL},
                                    {cpu__opt_in(op, 1), false, -1, &ln->scale},
                                    {cpu__opt_in(op, 2), false, -1, &ln->bias},
                                    {cpu__opt_out(op, 1), true, 0, &ln->mean},
                                    {cpu__opt_out(op, 2), true, 0, &ln->invstd}};

        rc = bind_operands(b, o, SH_ARRAY_LEN(o), ln, ln_fn);
    }
    return rc;
}

int cpu__layernorm_bwd(struct cpu_build *b)
{
    const struct dev_op *op = b->op;
    struct ln *ln;
    int rc = ln_new(b, &ln);

    if (!rc) {
        const struct operand o[] = {{op->in[0], false, -2, NULL},
                                    {op->in[1], false, -2, NULL},
                                    {op->out[0], true, -2, NULL},
                                    {op->in[2], false, -1, &ln->scale},
                                    {op->in[3], false, 0, &ln->mean},
                                    {op->in[4], false, 0, &ln->invstd},
                                    {cpu__opt_out(op, 1), true, -1, &ln->d_scale},
                                    {cpu__opt_out(op, 2), true, -1, &ln->d_bias}};

        rc = bind_operands(b, o, SH_ARRAY_LEN(o), ln, ln_bwd_fn);
    }
    return rc;
}
