/* f64_attn.c - attention and its gradient in double. */
#include "runtime/device/op_attn.h"
#include "runtime/device/philox.h"
#include "tests/device/oracle/f64.h"

#include <math.h>

struct heads {
    const struct f64_call *c;
    struct dev_attn a;
};

struct head { /* one of them: element d of its row i is at [i * row_stride + d] */
    int64_t b, h;
    const double *q, *k, *v, *mask; /* NULL: none */
};

static struct head head_of(const struct heads *s, int64_t b, int64_t h)
{
    const struct dev_attn *a = &s->a;
    const double *p[3];

    for (int i = 0; i < 3; i++)
        p[i] = s->c->x[i] + a->at[i] + b * a->batch_stride[i] + h * a->width;
    return (struct head){.b = b,
                         .h = h,
                         .q = p[0],
                         .k = p[1],
                         .v = p[2],
                         .mask = s->c->in[3]
                                     ? s->c->x[3] + b % a->mask_batches * a->mask_stride[0] +
                                           h * a->mask_stride[1]
                                     : NULL};
}

static int64_t row_of(const struct heads *s, const struct head *at, int64_t i)
{
    return (at->b * s->a.heads + at->h) * s->a.q_rows + i;
}

/* Of element 0 in y. */
static int64_t y_of(const struct heads *s, const struct head *at, int64_t i)
{
    return ((at->b * s->a.q_rows + i) * s->a.heads + at->h) * s->a.width;
}

static double dot(const double *x, const double *y, int64_t n)
{
    double sum = 0;

    for (int64_t d = 0; d < n; d++)
        sum += x[d] * y[d];
    return sum;
}

static double score(const struct heads *s, const struct head *at, int64_t i, int64_t j)
{
    const struct dev_attn *a = &s->a;
    const double x = dot(at->q + i * a->row_stride[0], at->k + j * a->row_stride[1], a->width);

    return x * (double)s->c->op->u.attn.scale +
           (at->mask ? at->mask[i * a->mask_stride[2] + j * a->mask_stride[3]] : 0);
}

/* What dropout makes of a weight: its factor. */
static double kept(const struct heads *s, const struct head *at, int64_t i, int64_t j)
{
    const double keep = 1 - (double)s->c->op->u.attn.ratio;
    const uint64_t step = (uint64_t)s->c->step;
    const int64_t block = row_of(s, at, i) * ((s->a.k_rows + 7) / 8) + j / 8;
    const uint32_t counter[4] = {(uint32_t)block, 0, (uint32_t)step, (uint32_t)(step >> 32)};
    uint32_t r[4];

    if (keep >= 1)
        return 1;
    dev_philox(s->c->op->u.attn.seed, counter, r);
    return keep > 0 && dev_philox_half(r, (uint32_t)(j % 8)) >=
                           dev_philox_half_threshold(s->c->op->u.attn.ratio)
               ? 1 / keep
               : 0;
}

/* Does a row with this largest score, or this lse, give zeros? */
static bool is_hidden(const struct heads *s, double most)
{
    return s->c->op->u.attn.zero_hidden && most == -(double)INFINITY;
}

/* The scores are summed up twice rather than stored. */
static void forward_row(const struct heads *s, const struct head *at, int64_t i)
{
    const struct dev_attn *a = &s->a;
    double *y = s->c->y[0] + y_of(s, at, i), max = -(double)INFINITY, sum = 0;

    for (int64_t j = 0; j < a->k_rows; j++)
        max = fmax(max, score(s, at, i, j));
    for (int64_t d = 0; d < a->width; d++)
        y[d] = 0;
    if (is_hidden(s, max)) {
        if (s->c->out[1])
            s->c->y[1][row_of(s, at, i)] = max;
        return;
    }
    for (int64_t j = 0; j < a->k_rows; j++) {
        const double p = exp(score(s, at, i, j) - max), w = p * kept(s, at, i, j);

        sum += p;
        for (int64_t d = 0; d < a->width; d++)
            y[d] += w * at->v[j * a->row_stride[2] + d];
    }
    for (int64_t d = 0; d < a->width; d++)
        y[d] /= sum;
    if (s->c->out[1])
        s->c->y[1][row_of(s, at, i)] = max + log(sum);
}

static void forward_rows(void *ctx, int64_t from, int64_t to)
{
    const struct heads *s = ctx;

    for (int64_t r = from; r < to; r++) {
        const int64_t i = r / s->a.heads % s->a.q_rows;
        const struct head at = head_of(s, r / s->a.heads / s->a.q_rows, r % s->a.heads);

        forward_row(s, &at, i);
    }
}

static int shape_of(const struct f64_call *c, struct heads *s, struct sh_err *err)
{
    const bool is_bwd = c->op->kind == DEV_OP_ATTENTION_BWD;

    *s = (struct heads){.c = c};
    if (!dev_attn_of(c->op, c->in, is_bwd ? c->in[4] : c->out[0], &s->a))
        return SH_FAIL(err, SH_E_BUG, "the shapes of an attention do not fit");
    if (c->op->u.attn.ratio > 0 && !dev_attn_can_drop(&s->a))
        return SH_FAIL(err, SH_E_TOOBIG, "more weights than random numbers");
    return SH_OK;
}

int f64__attention(const struct f64_call *c, struct sh_err *err)
{
    struct heads s;
    int rc = shape_of(c, &s, err);

    if (!rc)
        cpu__parallel(c->threads, s.a.batch * s.a.q_rows * s.a.heads, 1, forward_rows, &s);
    return rc;
}

/* d_s = p (kept d_y v - d_y y), d_v = (p kept) d_y, d_q = scale d_s k, d_k = scale d_s q */
static void backward_row(const struct heads *s, const struct head *at, int64_t i,
                         double *const d[3], double *d_mask)
{
    const struct dev_attn *a = &s->a;
    const int64_t n = a->width;
    const double *y = s->c->x[4] + y_of(s, at, i), *dy = s->c->x[5] + y_of(s, at, i);
    const double *q = at->q + i * a->row_stride[0], lse = s->c->x[6][row_of(s, at, i)];
    const double delta = dot(dy, y, n), scale = (double)s->c->op->u.attn.scale;

    for (int64_t j = 0; j < a->k_rows && !is_hidden(s, lse); j++) {
        const double *k = at->k + j * a->row_stride[1], *v = at->v + j * a->row_stride[2];
        const double p = exp(score(s, at, i, j) - lse), f = kept(s, at, i, j);
        const double ds = p * (f * dot(dy, v, n) - delta);

        if (d_mask)
            d_mask[row_of(s, at, i) * a->k_rows + j] = ds;
        for (int64_t e = 0; e < n; e++) {
            d[0][i * a->row_stride[0] + e] += scale * ds * k[e];
            d[1][j * a->row_stride[1] + e] += scale * ds * q[e];
            d[2][j * a->row_stride[2] + e] += p * f * dy[e];
        }
    }
}

static void backward_heads(void *ctx, int64_t from, int64_t to)
{
    const struct heads *s = ctx;
    const struct dev_attn *a = &s->a;
    double *d_mask = s->c->op->n_out > 3 && s->c->out[3] ? s->c->y[3] : NULL;

    for (int64_t r = from; r < to; r++) {
        const struct head at = head_of(s, r / a->heads, r % a->heads);
        double *d[3];

        for (int64_t i = 0; i < a->q_rows * a->k_rows && d_mask; i++)
            d_mask[row_of(s, &at, 0) * a->k_rows + i] = 0;
        for (int i = 0; i < 3; i++) {
            d[i] = s->c->y[dev_attn_shares(s->c->op, i)] + a->at[i] + at.b * a->batch_stride[i] +
                   at.h * a->width;
            for (int64_t row = 0; row < (i == 0 ? a->q_rows : a->k_rows); row++)
                for (int64_t e = 0; e < a->width; e++)
                    d[i][row * a->row_stride[i] + e] = 0;
        }
        for (int64_t i = 0; i < a->q_rows; i++)
            backward_row(s, &at, i, d, d_mask);
    }
}

int f64__attention_bwd(const struct f64_call *c, struct sh_err *err)
{
    struct heads s;
    int rc = shape_of(c, &s, err);

    if (!rc)
        cpu__parallel(c->threads, s.a.batch * s.a.heads, 1, backward_heads, &s);
    return rc;
}
