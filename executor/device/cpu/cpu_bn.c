/* cpu_bn.c - batch normalisation in training, forward and backward.
 *
 *   y   = (x - mean) invstd scale + bias
 *   d_x = scale invstd (d_y - sum(d_y)/n - (x - mean) invstd^2 sum(d_y (x - mean))/n)
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
#include "executor/device/cpu/cpu.h"

#include <math.h>
#include <stdlib.h>

#define LANES 16 /* a multiple of every block size */
#define GRAIN_BYTES 65536

#if defined(__x86_64__)
#define VECTORISE __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define VECTORISE
#endif

struct geometry {
    int64_t n, c, units, len, block;
    double count; /* elements of a channel */
};

/* For each unit, LANES values of each: lane l of a row belongs to channel l % block of its unit. */
struct lanes {
    double mean[LANES], gain[LANES], shift[LANES], slope[LANES];
};

/* ------------------------------------------------------------------ one row */

VECTORISE static void row_sum(const float *x, int64_t n, double *s)
{
    int64_t i = 0;

    for (; i + LANES <= n; i += LANES)
        for (int k = 0; k < LANES; k++)
            s[k] += x[i + k];
    for (int k = 0; i + k < n; k++)
        s[k] += x[i + k];
}

VECTORISE static void row_square(const float *x, int64_t n, const double *mean, double *s)
{
    int64_t i = 0;

    for (; i + LANES <= n; i += LANES)
        for (int k = 0; k < LANES; k++)
            s[k] += (x[i + k] - mean[k]) * (x[i + k] - mean[k]);
    for (int k = 0; i + k < n; k++)
        s[k] += (x[i + k] - mean[k]) * (x[i + k] - mean[k]);
}

VECTORISE static void row_dot(const float *x, const float *dy, int64_t n, const double *mean,
                              double *s)
{
    int64_t i = 0;

    for (; i + LANES <= n; i += LANES)
        for (int k = 0; k < LANES; k++)
            s[k] += dy[i + k] * (x[i + k] - mean[k]);
    for (int k = 0; i + k < n; k++)
        s[k] += dy[i + k] * (x[i + k] - mean[k]);
}

VECTORISE static void row_forward(const float *x, float *restrict y, int64_t n,
                                  const struct lanes *l)
{
    int64_t i = 0;

    for (; i + LANES <= n; i += LANES)
        for (int k = 0; k < LANES; k++)
            y[i + k] = (float)((x[i + k] - l->mean[k]) * l->gain[k] + l->shift[k]);
    for (int k = 0; i + k < n; k++)
        y[i + k] = (float)((x[i + k] - l->mean[k]) * l->gain[k] + l->shift[k]);
}

VECTORISE static void row_backward(const float *x, const float *dy, float *restrict dx, int64_t n,
                                   const struct lanes *l)
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

/* ------------------------------------------------------------------ all rows */

enum pass { PASS_SUM, PASS_SQUARE, PASS_SUM_DY, PASS_DOT, PASS_FORWARD, PASS_BACKWARD };

struct job {
    const struct geometry *g;
    enum pass pass;
    const float *x, *dy;
    float *out;
    struct lanes *lanes; /* [units] */
    double *part;        /* [n units block] */
};

static void fold(const struct geometry *g, const double *s, double *part)
{
    for (int64_t b = 0; b < g->block; b++)
        part[b] = 0;
    for (int k = 0; k < LANES; k++)
        part[k % g->block] += s[k];
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
            continue;
        case PASS_BACKWARD:
            row_backward(x, dy, j->out + r * g->len, g->len, l);
            continue;
        }
        fold(g, s, j->part + r * g->block);
    }
}

static void run_pass(struct job *j, enum pass pass, unsigned threads)
{
    j->pass = pass;
    cpu__parallel(threads, j->g->n * j->g->units, SH_MAX(1, GRAIN_BYTES / (4 * j->g->len)),
                  run_rows, j);
}

/* The sum over the batch of what the last pass left for channel c. */
static double total(const struct job *j, int64_t c)
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

static struct job job_new(const struct geometry *g, void *scratch, const float *x, const float *dy,
                          float *out)
{
    struct job j = {.g = g, .x = x, .dy = dy, .out = out, .lanes = scratch};

    j.part = (double *)(j.lanes + g->units);
    memset(j.lanes, 0, (size_t)g->units * sizeof(*j.lanes)); /* padding channels stay 0 */
    return j;
}

/* p: x scale bias run_mean run_var y mean invstd new_mean new_var scratch */
static int forward_fn(const struct cpu_call *c, struct sh_err *err)
{
    const struct geometry *g = c->aux;
    const float *scale = c->p[1], *bias = c->p[2], *run_mean = c->p[3], *run_var = c->p[4];
    float *mean = c->p[6], *invstd = c->p[7], *new_mean = c->p[8], *new_var = c->p[9];
    struct job j = job_new(g, c->p[10], c->p[0], NULL, c->p[5]);
    const double keep = c->op->u.norm.momentum;

    (void)err;
    run_pass(&j, PASS_SUM, c->threads);
    for (int64_t k = 0; k < g->c; k++) {
        double m = total(&j, k) / g->count;

        SET(&j, k, mean, m);
        mean[k] = (float)m;
        new_mean[k] = (float)(keep * run_mean[k] + (1 - keep) * m);
    }
    run_pass(&j, PASS_SQUARE, c->threads);
    for (int64_t k = 0; k < g->c; k++) {
        double squares = total(&j, k), var = squares / g->count;
        double inv = 1 / sqrt(var + c->op->u.norm.eps);
        double unbiased = squares / SH_MAX(g->count - 1, 1.0);

        SET(&j, k, gain, inv * scale[k]);
        SET(&j, k, shift, bias[k]);
        invstd[k] = (float)inv;
        new_var[k] = (float)(keep * run_var[k] + (1 - keep) * unbiased);
    }
    run_pass(&j, PASS_FORWARD, c->threads);
    return SH_OK;
}

/* p: x d_y scale mean invstd d_x d_scale d_bias scratch */
static int backward_fn(const struct cpu_call *c, struct sh_err *err)
{
    const struct geometry *g = c->aux;
    const float *scale = c->p[2], *mean = c->p[3], *invstd = c->p[4];
    float *d_scale = c->p[6], *d_bias = c->p[7];
    struct job j = job_new(g, c->p[8], c->p[0], c->p[1], c->p[5]);

    (void)err;
    for (int64_t k = 0; k < g->c; k++) {
        SET(&j, k, mean, mean[k]);
        SET(&j, k, gain, (double)scale[k] * invstd[k]);
    }
    run_pass(&j, PASS_SUM_DY, c->threads);
    for (int64_t k = 0; k < g->c; k++) {
        double sum = total(&j, k);

        d_bias[k] = (float)sum;
        SET(&j, k, shift, sum / g->count);
    }
    run_pass(&j, PASS_DOT, c->threads);
    for (int64_t k = 0; k < g->c; k++) {
        double dot = total(&j, k), inv = invstd[k];

        d_scale[k] = (float)(dot * inv);
        SET(&j, k, slope, dot * inv * inv / g->count);
    }
    run_pass(&j, PASS_BACKWARD, c->threads);
    return SH_OK;
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

        if (dnnl_memory_desc_init_by_tag(&md, 4, t->md.dims, dnnl_f32, TAGS[i].tag) !=
                dnnl_success ||
            !dnnl_memory_desc_equal(&md, &t->md))
            continue;
        g->block = TAGS[i].block;
        g->units = (g->c + g->block - 1) / g->block;
        g->len *= g->block;
        return &t->md;
    }
    return &t->plain;
}

static size_t scratch_bytes(const struct geometry *g)
{
    return (size_t)g->units * sizeof(struct lanes) +
           (size_t)(g->n * g->units * g->block) * sizeof(double);
}

static int check(struct cpu_build *b, uint32_t x, const uint32_t *vectors, uint32_t n)
{
    const struct dev_tensor *t = cpu__t(b, x);
    int rc = cpu__need_f32(b, vectors, n);

    if (!rc)
        rc = cpu__need_f32(b, &x, 1);
    if (!rc && t->rank < 2)
        rc = cpu__refuse(b, SH_E_UNSUPPORTED, "input needs a batch and a channel axis");
    for (uint32_t i = 0; i < n && !rc; i++)
        if (dev_tensor_elements(cpu__t(b, vectors[i])) != t->dims[1])
            rc = cpu__refuse(b, SH_E_BUG, "\"%s\" does not have one value per channel",
                             cpu__t(b, vectors[i])->name);
    return rc;
}

static int step(struct cpu_build *b, cpu_fn *fn, const struct cpu_ref *refs, uint32_t n,
                const struct geometry *g)
{
    struct geometry *aux = malloc(sizeof(*aux));

    if (!aux)
        return cpu__refuse(b, SH_E_NOMEM, "could not allocate a step");
    *aux = *g;
    return cpu__step_fn(b, fn, refs, n, aux);
}

int cpu__bn_train(struct cpu_build *b)
{
    const struct dev_op *op = b->op;
    const uint32_t vectors[] = {op->in[1],  op->in[2],  op->in[3],  op->in[4],
                                op->out[1], op->out[2], op->out[3], op->out[4]};
    struct cpu_ref r[11];
    struct geometry g;
    const dnnl_memory_desc_t *md;
    int rc = check(b, op->in[0], vectors, SH_ARRAY_LEN(vectors));

    if (!rc)
        rc = cpu__same_shape(b, op->in[0], op->out[0]);
    if (rc)
        return rc;
    md = choose_layout(b, op->in[0], &g);
    rc = cpu__in(b, op->in[0], NULL, md, &r[0]);
    for (uint32_t i = 1; i < 5 && !rc; i++)
        rc = cpu__in_plain(b, op->in[i], &r[i]);
    if (!rc)
        rc = cpu__out(b, op->out[0], md, true, &r[5]);
    for (uint32_t i = 1; i < 5 && !rc; i++)
        rc = cpu__out_plain(b, op->out[i], &r[5 + i]);
    r[10] = cpu__scratch(b, scratch_bytes(&g));
    return rc ? rc : step(b, forward_fn, r, 11, &g);
}

int cpu__bn_train_bwd(struct cpu_build *b)
{
    const struct dev_op *op = b->op;
    const uint32_t vectors[] = {op->in[2], op->in[3], op->in[4], op->out[1], op->out[2]};
    struct cpu_ref r[9];
    struct geometry g;
    const dnnl_memory_desc_t *md;
    int rc = check(b, op->in[0], vectors, SH_ARRAY_LEN(vectors));

    if (!rc)
        rc = cpu__same_shape(b, op->in[0], op->in[1]);
    if (!rc)
        rc = cpu__same_shape(b, op->in[0], op->out[0]);
    if (rc)
        return rc;
    md = choose_layout(b, op->in[0], &g);
    rc = cpu__in(b, op->in[0], NULL, md, &r[0]);
    if (!rc)
        rc = cpu__in(b, op->in[1], NULL, md, &r[1]);
    for (uint32_t i = 2; i < 5 && !rc; i++)
        rc = cpu__in_plain(b, op->in[i], &r[i]);
    if (!rc)
        rc = cpu__out(b, op->out[0], md, true, &r[5]);
    for (uint32_t i = 1; i < 3 && !rc; i++)
        rc = cpu__out_plain(b, op->out[i], &r[5 + i]);
    r[8] = cpu__scratch(b, scratch_bytes(&g));
    return rc ? rc : step(b, backward_fn, r, 9, &g);
}
