/* cpu_bn.c - batch normalisation in training, forward and backward.
 *
 *   y   = (x - mean) invstd scale + bias
 *   d_x = scale invstd (d_y - sum(d_y)/n - (x - mean) invstd^2 sum(d_y (x - mean))/n)
 *
 * A residual and an activation are applied to a finished row in single precision, as the separate
 * operations would; backward, they make a d_y of their own before anything else.
 *
 * Why not oneDNN's: it sums in single precision. The gradient is a small difference of large terms,
 * Adam divides by its size, and with few samples the error decides the sign of whole updates. Here
 * everything between two stores is double.
 *
 * Both plain and channel-blocked layouts are rows of `len` floats, one for each image and unit; a
 * unit is one channel (plain) or `block` channels side by side. Each row leaves its partial sums in
 * scratch and they are added in order of the images, so the bits do not depend on the threads.
 */
#include "common/mem.h"
#include "runtime/device/cpu/cpu.h"

#include <math.h>

#define LANES 16 /* a multiple of every block size */
#define GRAIN_BYTES 65536

struct geometry {
    int64_t n, c, units, len, block;
    double count; /* elements of a channel */
};

/* For each unit, LANES values of each: lane l of a row belongs to channel l % block of its unit. */
struct lanes {
    double mean[LANES], gain[LANES], shift[LANES], slope[LANES];
};

/* ------------------------------------------------------------------ one row */

SH_VECTORISE static void row_sum(const float *x, int64_t n, double *s)
{
    int64_t i = 0;

    for (; i + LANES <= n; i += LANES)
        for (int k = 0; k < LANES; k++)
            s[k] += x[i + k];
    for (int k = 0; i + k < n; k++)
        s[k] += x[i + k];
}

SH_VECTORISE static void row_square(const float *x, int64_t n, const double *mean, double *s)
{
    int64_t i = 0;

    for (; i + LANES <= n; i += LANES)
        for (int k = 0; k < LANES; k++)
            s[k] += (x[i + k] - mean[k]) * (x[i + k] - mean[k]);
    for (int k = 0; i + k < n; k++)
        s[k] += (x[i + k] - mean[k]) * (x[i + k] - mean[k]);
}

SH_VECTORISE static void row_dot(const float *x, const float *dy, int64_t n, const double *mean,
                                 double *s)
{
    int64_t i = 0;

    for (; i + LANES <= n; i += LANES)
        for (int k = 0; k < LANES; k++)
            s[k] += dy[i + k] * (x[i + k] - mean[k]);
    for (int k = 0; i + k < n; k++)
        s[k] += dy[i + k] * (x[i + k] - mean[k]);
}

SH_VECTORISE static void row_forward(const float *x, float *restrict y, int64_t n,
                                     const struct lanes *l)
{
    int64_t i = 0;

    for (; i + LANES <= n; i += LANES)
        for (int k = 0; k < LANES; k++)
            y[i + k] = (float)((x[i + k] - l->mean[k]) * l->gain[k] + l->shift[k]);
    for (int k = 0; i + k < n; k++)
        y[i + k] = (float)((x[i + k] - l->mean[k]) * l->gain[k] + l->shift[k]);
}

SH_VECTORISE static void row_backward(const float *x, const float *dy, float *restrict dx,
                                      int64_t n, const struct lanes *l)
{
    int64_t i = 0;

    for (; i + LANES <= n; i += LANES)
        for (int k = 0; k < LANES; k++)
            dx[i + k] = (float)(l->gain[k] *
                                (dy[i + k] - l->shift[k] - (x[i + k] - l->mean[k]) * l->slope[k]));
    for (int k = 0; i + k < n; k++)
        dx[i + k] =
            (float)(l->gain[k] * (dy[i + k] - l->shift[k] - (x[i + k] - l->mean[k]) * l->slope[k]));
}

struct bounds {
    float lo, hi;      /* of the activation */
    enum dev_act gate; /* instead of them, or DEV_ACT_NONE */
};

union bits {
    int32_t i;
    float f;
};

/* No branch, of which the compiler would make two ways through all that follows. */
__attribute__((always_inline)) static inline float choose_first(bool first, float a, float b)
{
    const union bits x = {.f = a}, y = {.f = b};
    const int32_t mask = -(int32_t)first;
    const union bits out = {.i = (x.i & mask) | (y.i & ~mask)};

    return out.f;
}

/* e^x to 2 units in the last place, in operations that a loop is vectorised over. */
__attribute__((always_inline)) static inline float exp_of(float x)
{
    const float below = choose_first(x > 88.0f, 88.0f, x),
                v = choose_first(below < -87.0f, -87.0f, below);
    const int32_t n = (int32_t)(v * 1.44269504f + choose_first(v < 0.0f, -0.5f, 0.5f));
    const float r = v - (float)n * 0.693359375f + (float)n * 2.12194440e-4f;
    const union bits two_n = {.i = (n + 127) << 23};
    float p = 1.9875691500e-4f;

    p = p * r + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    return (p * r * r + r + 1.0f) * two_n.f;
}

SH_VECTORISE static void row_silu(float *y, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        y[i] = y[i] / (1 + exp_of(-y[i]));
}

SH_VECTORISE static void row_hardswish(float *y, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        const float s = y[i] / 6.0f + 0.5f, below = choose_first(s > 1.0f, 1.0f, s);

        y[i] *= choose_first(below < 0.0f, 0.0f, below);
    }
}

/* y becomes the slope there. */
SH_VECTORISE static void row_silu_slope(float *y, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        const float s = 1 / (1 + exp_of(-y[i]));

        y[i] = s * (1 + y[i] * (1 - s));
    }
}

SH_VECTORISE static void row_hardswish_slope(float *y, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        const float v = y[i], slope = choose_first(v >= 3.0f, 1.0f, v / 3.0f + 0.5f);

        y[i] = choose_first(v <= -3.0f, 0.0f, slope);
    }
}

/* slope becomes the gradient; dy2: NULL if there is none */
SH_VECTORISE static void row_times_slope(const float *dy, const float *dy2, float *slope, int64_t n)
{
    if (dy2)
        for (int64_t i = 0; i < n; i++)
            slope[i] *= dy[i] + dy2[i];
    else
        for (int64_t i = 0; i < n; i++)
            slope[i] *= dy[i];
}

static inline float clip_value(float v, const struct bounds *b)
{
    return v < b->lo ? b->lo : v > b->hi ? b->hi : v;
}

/* y = act(y + r) */
SH_VECTORISE static void row_finish(float *restrict y, const float *r, int64_t n,
                                    const struct bounds *b)
{
    if (!r)
        for (int64_t i = 0; i < n; i++)
            y[i] = clip_value(y[i], b);
    else
        for (int64_t i = 0; i < n; i++)
            y[i] = clip_value(y[i] + r[i], b);
}

/* g = dy where y is within the bounds, else 0; g may be y. */
SH_VECTORISE static void row_mask(const float *dy, const float *y, float *g, int64_t n,
                                  const struct bounds *b)
{
    for (int64_t i = 0; i < n; i++)
        g[i] = y[i] > b->lo && y[i] < b->hi ? dy[i] : 0;
}

SH_VECTORISE static void row_mask_sum(const float *dy, const float *dy2, const float *y, float *g,
                                      int64_t n, const struct bounds *b)
{
    for (int64_t i = 0; i < n; i++)
        g[i] = y[i] > b->lo && y[i] < b->hi ? dy[i] + dy2[i] : 0;
}

SH_VECTORISE static void row_add(const float *dy, const float *dy2, float *restrict g, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        g[i] = dy[i] + dy2[i];
}

/* ------------------------------------------------------------------ all rows */

enum pass { PASS_SUM, PASS_SQUARE, PASS_SUM_DY, PASS_DOT, PASS_FORWARD, PASS_MASK, PASS_BACKWARD };

struct job {
    const struct geometry *g;
    enum pass pass;
    const float *x, *dy;
    const float *residual, *dy2, *y; /* NULL: absent */
    struct bounds bounds;
    bool has_act;
    float *out;
    struct lanes *lanes; /* [units] */
    double *part;        /* [n units block] */
};

static void fold_lanes(const struct geometry *g, const double *s, double *part)
{
    for (int64_t b = 0; b < g->block; b++)
        part[b] = 0;
    for (int k = 0; k < LANES; k++)
        part[k % g->block] += s[k];
}

/* One row of d_y as it is before activation and residual. Without y it is computed again first. */
static void mask_row(const struct job *j, int64_t at, const struct lanes *l)
{
    const int64_t n = j->g->len;
    const float *dy = j->dy + at, *dy2 = j->dy2 ? j->dy2 + at : NULL;
    const float *y = j->y ? j->y + at : j->out + at;
    float *g = j->out + at;

    if (j->has_act && !j->y)
        row_forward(j->x + at, g, n, l);
    if (j->bounds.gate == DEV_ACT_SILU)
        row_silu_slope(g, n);
    else if (j->bounds.gate)
        row_hardswish_slope(g, n);
    if (j->bounds.gate)
        row_times_slope(dy, dy2, g, n);
    else if (j->has_act && dy2)
        row_mask_sum(dy, dy2, y, g, n, &j->bounds);
    else if (j->has_act)
        row_mask(dy, y, g, n, &j->bounds);
    else if (dy2)
        row_add(dy, dy2, g, n);
    else
        memcpy(g, dy, (size_t)n * sizeof(*g));
}

static void run_rows(void *ctx, int64_t from, int64_t to)
{
    const struct job *j = ctx;
    const struct geometry *g = j->g;

    for (int64_t r = from; r < to; r++) {
        const struct lanes *l = &j->lanes[r % g->units];
        const float *x = j->x + r * g->len, *dy = j->dy ? j->dy + r * g->len : NULL;
        double s[LANES] = {0};

        switch (j->pass) {
        case PASS_SUM:
            row_sum(x, g->len, s);
            break;
        case PASS_SQUARE:
            row_square(x, g->len, l->mean, s);
            break;
        case PASS_SUM_DY:
            row_sum(dy, g->len, s);
            break;
        case PASS_DOT:
            row_dot(x, dy, g->len, l->mean, s);
            break;
        case PASS_FORWARD:
            row_forward(x, j->out + r * g->len, g->len, l);
            if (j->bounds.gate == DEV_ACT_SILU)
                row_silu(j->out + r * g->len, g->len);
            else if (j->bounds.gate)
                row_hardswish(j->out + r * g->len, g->len);
            else if (j->residual || j->has_act)
                row_finish(j->out + r * g->len, j->residual ? j->residual + r * g->len : NULL,
                           g->len, &j->bounds);
            continue;
        case PASS_MASK:
            mask_row(j, r * g->len, l);
            continue;
        case PASS_BACKWARD:
            row_backward(x, dy, j->out + r * g->len, g->len, l);
            continue;
        }
        fold_lanes(g, s, j->part + r * g->block);
    }
}

static void run_pass(struct job *j, enum pass pass, unsigned threads)
{
    j->pass = pass;
    cpu__parallel(threads, j->g->n * j->g->units, SH_MAX(1, GRAIN_BYTES / (4 * j->g->len)),
                  run_rows, j);
}

/* The sum over the batch of what the last pass left for channel c. */
static double channel_total(const struct job *j, int64_t c)
{
    const struct geometry *g = j->g;
    double sum = 0;

    for (int64_t i = 0; i < g->n; i++)
        sum += j->part[(i * g->units + c / g->block) * g->block + c % g->block];
    return sum;
}

/* Sets value `at` of all lanes of channel c. */
static void set_lanes(const struct job *j, int64_t c, size_t at, double v)
{
    double *first = (double *)(void *)((char *)&j->lanes[c / j->g->block] + at);

    for (int64_t k = c % j->g->block; k < LANES; k += j->g->block)
        first[k] = v;
}
#define SET(j, c, field, v) set_lanes((j), (c), offsetof(struct lanes, field), (v))

static struct bounds act_bounds(const struct dev_op *op)
{
    struct bounds b = {.gate = DEV_ACT_NONE};

    if (!dev_act_bounds(op, &b.lo, &b.hi))
        b.gate = op->act;
    return b;
}

static struct job bn_job_of(const struct geometry *g, void *scratch, const float *x,
                            const float *dy, float *out)
{
    struct job j = {.g = g, .x = x, .dy = dy, .out = out, .lanes = scratch};

    j.part = (double *)(j.lanes + g->units);
    memset(j.lanes, 0, (size_t)g->units * sizeof(*j.lanes)); /* padding channels stay 0 */
    return j;
}

/* p: x scale bias run_mean run_var y mean invstd new_mean new_var scratch [residual] */
static void forward_fn(const struct cpu_call *c)
{
    const struct geometry *g = c->aux;
    const float *scale = c->p[1], *bias = c->p[2], *run_mean = c->p[3], *run_var = c->p[4];
    float *mean = c->p[6], *invstd = c->p[7], *new_mean = c->p[8], *new_var = c->p[9];
    struct job j = bn_job_of(g, c->p[10], c->p[0], NULL, c->p[5]);
    const double keep = c->op->u.norm.momentum;

    j.residual = cpu__opt_in(c->op, 5) != DEV_NONE ? c->p[11] : NULL;
    j.has_act = c->op->act != DEV_ACT_NONE;
    j.bounds = act_bounds(c->op);
    run_pass(&j, PASS_SUM, c->threads);
    for (int64_t k = 0; k < g->c; k++) {
        double m = channel_total(&j, k) / g->count;

        SET(&j, k, mean, m);
        mean[k] = (float)m;
        new_mean[k] = (float)(keep * run_mean[k] + (1 - keep) * m);
    }
    run_pass(&j, PASS_SQUARE, c->threads);
    for (int64_t k = 0; k < g->c; k++) {
        double squares = channel_total(&j, k), var = squares / g->count;
        double inv = 1 / sqrt(var + c->op->u.norm.eps);
        double unbiased = squares / SH_MAX(g->count - 1, 1.0);

        SET(&j, k, gain, inv * scale[k]);
        SET(&j, k, shift, bias[k]);
        invstd[k] = (float)inv;
        new_var[k] = (float)(keep * run_var[k] + (1 - keep) * unbiased);
    }
    run_pass(&j, PASS_FORWARD, c->threads);
}

/* Does d_y differ from the d_y that the normalisation sees, or is the latter wanted? */
static bool has_mask(const struct dev_op *op)
{
    return op->act != DEV_ACT_NONE || cpu__opt_in(op, 7) != DEV_NONE ||
           cpu__opt_out(op, 3) != DEV_NONE;
}

/* p: [bias] [y] [d_y2], then where the result goes */
static void mask_d_y(const struct cpu_call *c, void *const *p, struct job *j)
{
    float *d_x = j->out;
    const float *bias = cpu__opt_in(c->op, 5) != DEV_NONE ? *p++ : NULL;

    j->y = cpu__opt_in(c->op, 6) != DEV_NONE ? *p++ : NULL;
    j->dy2 = cpu__opt_in(c->op, 7) != DEV_NONE ? *p++ : NULL;
    j->has_act = c->op->act != DEV_ACT_NONE;
    j->bounds = act_bounds(c->op);
    for (int64_t k = 0; k < j->g->c && bias; k++)
        SET(j, k, shift, bias[k]);
    j->out = *p;
    run_pass(j, PASS_MASK, c->threads);
    j->dy = j->out;
    j->out = d_x;
}

/* p: x d_y scale mean invstd d_x d_scale d_bias scratch, then as for mask_d_y */
static void backward_fn(const struct cpu_call *c)
{
    const struct geometry *g = c->aux;
    const float *scale = c->p[2], *mean = c->p[3], *invstd = c->p[4];
    float *d_scale = c->p[6], *d_bias = c->p[7];
    struct job j = bn_job_of(g, c->p[8], c->p[0], c->p[1], c->p[5]);

    for (int64_t k = 0; k < g->c; k++) {
        SET(&j, k, mean, mean[k]);
        SET(&j, k, gain, (double)scale[k] * invstd[k]);
    }
    if (has_mask(c->op))
        mask_d_y(c, c->p + 9, &j);
    run_pass(&j, PASS_SUM_DY, c->threads);
    for (int64_t k = 0; k < g->c; k++) {
        double sum = channel_total(&j, k);

        d_bias[k] = (float)sum;
        SET(&j, k, shift, sum / g->count);
    }
    run_pass(&j, PASS_DOT, c->threads);
    for (int64_t k = 0; k < g->c; k++) {
        double dot = channel_total(&j, k), inv = invstd[k];

        d_scale[k] = (float)(dot * inv);
        SET(&j, k, slope, dot * inv * inv / g->count);
    }
    run_pass(&j, PASS_BACKWARD, c->threads);
}

/* ------------------------------------------------------------------ building */

/* The layout to work in: that of x if it is blocked by channels, else plain. */
static const dnnl_memory_desc_t *choose_layout(struct cpu_build *b, uint32_t x, struct geometry *g)
{
    static const struct {
        dnnl_format_tag_t tag;
        int64_t block;
    } TAGS[] = {{dnnl_nChw16c, 16}, {dnnl_nChw8c, 8}, {dnnl_nChw4c, 4}};
    const struct cpu_tensor *t = &b->plan->tensors[x];
    const struct dev_tensor *d = cpu__t(b, x);

    *g = (struct geometry){.n = d->dims[0], .c = d->dims[1], .units = d->dims[1], .block = 1};
    g->len = dev_tensor_elements(d) / (g->n * g->c);
    g->count = (double)(g->n * g->len);
    for (size_t i = 0; d->rank == 4 && i < SH_ARRAY_LEN(TAGS); i++) {
        dnnl_memory_desc_t md;

        if (dnnl_memory_desc_init_by_tag(&md, 4, t->lay->md.dims, dnnl_f32, TAGS[i].tag) !=
                dnnl_success ||
            !dnnl_memory_desc_equal(&md, &t->lay->md))
            continue;
        g->block = TAGS[i].block;
        g->units = (g->c + g->block - 1) / g->block;
        g->len *= g->block;
        return &t->lay->md;
    }
    return &t->lay->plain;
}

static size_t scratch_bytes(const struct geometry *g)
{
    return (size_t)g->units * sizeof(struct lanes) +
           (size_t)(g->n * g->units * g->block) * sizeof(double);
}

static int check_vectors(struct cpu_build *b, uint32_t x, const uint32_t *vectors, uint32_t n)
{
    const struct dev_tensor *t = cpu__t(b, x);

    cpu__need_f32(b, vectors, n);
    cpu__need_f32(b, &x, 1);
    if (t->rank < 2)
        return cpu__refuse(b, SH_E_UNSUPPORTED, "input needs a batch and a channel axis");
    for (uint32_t i = 0; i < n; i++)
        if (dev_tensor_elements(cpu__t(b, vectors[i])) != t->dims[1])
            cpu__refuse(b, SH_E_BUG, "\"%s\" does not have one value per channel",
                        cpu__t(b, vectors[i])->name);
    return b->err->rc;
}

/* is_known: y or the bias is there; can_gate: bn(x) is what y is made of, or can be computed. */
static int check_act(struct cpu_build *b, bool is_known, bool can_gate)
{
    float lo, hi;

    if (!dev_act_bounds(b->op, &lo, &hi) && !(can_gate && dev_act_is_gated(b->op->act)))
        return cpu__refuse(b, SH_E_UNSUPPORTED, "cannot apply %s", dev_act_name(b->op->act));
    return is_known || b->op->act == DEV_ACT_NONE
               ? b->err->rc
               : cpu__refuse(b, SH_E_BUG, "an activation needs y or the bias");
}

/* An optional operand of x's shape, in layout md. */
static void in_like_x(struct cpu_build *b, uint32_t t, const dnnl_memory_desc_t *md,
                      struct cpu_ref *refs, uint32_t *n)
{
    if (t == DEV_NONE)
        return;
    cpu__need_f32(b, &t, 1);
    cpu__same_shape(b, b->op->in[0], t);
    refs[(*n)++] = cpu__in(b, t, NULL, md);
}

int cpu__bn_train(struct cpu_build *b)
{
    const struct dev_op *op = b->op;
    const uint32_t vectors[] = {op->in[1],  op->in[2],  op->in[3],  op->in[4],
                                op->out[1], op->out[2], op->out[3], op->out[4]};
    struct cpu_ref r[12];
    struct geometry g;
    const dnnl_memory_desc_t *md;
    uint32_t n = 11;

    check_vectors(b, op->in[0], vectors, SH_ARRAY_LEN(vectors));
    check_act(b, true, cpu__opt_in(b->op, 5) == DEV_NONE);
    if (cpu__same_shape(b, op->in[0], op->out[0]))
        return b->err->rc;
    md = choose_layout(b, op->in[0], &g);
    r[0] = cpu__in(b, op->in[0], NULL, md);
    for (uint32_t i = 1; i < 5; i++)
        r[i] = cpu__in_plain(b, op->in[i]);
    r[5] = cpu__out(b, op->out[0], md, true);
    for (uint32_t i = 1; i < 5; i++)
        r[5 + i] = cpu__out_plain(b, op->out[i]);
    r[10] = cpu__scratch(b, scratch_bytes(&g));
    in_like_x(b, cpu__opt_in(op, 5), md, r, &n);
    return cpu__step_fn(b, forward_fn, r, n, &g, sizeof(g));
}

/* See mask_d_y. */
static void mask_refs(struct cpu_build *b, const dnnl_memory_desc_t *md, struct cpu_ref *refs,
                      uint32_t *n)
{
    const struct dev_op *op = b->op;
    const uint32_t bias = cpu__opt_in(op, 5), d_residual = cpu__opt_out(op, 3);

    if (bias != DEV_NONE)
        refs[(*n)++] = cpu__in_plain(b, bias);
    for (uint32_t i = 6; i < 8; i++)
        in_like_x(b, cpu__opt_in(op, i), md, refs, n);
    if (d_residual != DEV_NONE)
        cpu__same_shape(b, op->in[0], d_residual);
    refs[(*n)++] = d_residual != DEV_NONE ? cpu__out(b, d_residual, md, true)
                                          : cpu__scratch(b, dnnl_memory_desc_get_size(md));
}

int cpu__bn_train_bwd(struct cpu_build *b)
{
    const struct dev_op *op = b->op;
    const uint32_t bias = cpu__opt_in(op, 5);
    const uint32_t vectors[] = {op->in[2],  op->in[3],  op->in[4],
                                op->out[1], op->out[2], bias == DEV_NONE ? op->in[2] : bias};
    struct cpu_ref r[13];
    struct geometry g;
    const dnnl_memory_desc_t *md;
    uint32_t n = 9;

    check_vectors(b, op->in[0], vectors, SH_ARRAY_LEN(vectors));
    check_act(b, bias != DEV_NONE || cpu__opt_in(op, 6) != DEV_NONE,
              bias != DEV_NONE && cpu__opt_in(op, 6) == DEV_NONE);
    cpu__same_shape(b, op->in[0], op->in[1]);
    if (cpu__same_shape(b, op->in[0], op->out[0]))
        return b->err->rc;
    md = choose_layout(b, op->in[0], &g);
    r[0] = cpu__in(b, op->in[0], NULL, md);
    r[1] = cpu__in(b, op->in[1], NULL, md);
    for (uint32_t i = 2; i < 5; i++)
        r[i] = cpu__in_plain(b, op->in[i]);
    r[5] = cpu__out(b, op->out[0], md, true);
    for (uint32_t i = 1; i < 3; i++)
        r[5 + i] = cpu__out_plain(b, op->out[i]);
    r[8] = cpu__scratch(b, scratch_bytes(&g));
    if (has_mask(op))
        mask_refs(b, md, r, &n);
    return cpu__step_fn(b, backward_fn, r, n, &g, sizeof(g));
}
