/* f64_nn.c - convolutions, products, pools, normalisations, dropout and losses in double. */
#include "common/mem.h"
#include "runtime/device/philox.h"
#include "tests/device/oracle/f64.h"

#include <math.h>

/* ------------------------------------------------------------------ windows */

struct range {
    int64_t from, to;
};

/* The output positions for which input position out * stride + off lies in [0, in). */
static struct range valid(int64_t off, int64_t stride, int64_t in, int64_t out)
{
    struct range r;

    r.from = off >= 0 ? 0 : (-off + stride - 1) / stride;
    r.to = off >= in ? 0 : SH_MIN(out, (in - off + stride - 1) / stride);
    return r;
}

struct conv { /* one convolution: x [n, c, h, w], weights [m, cg, kh, kw], y [n, m, oh, ow] */
    const struct dev_conv *p;
    int64_t n, c, h, w, m, cg, kh, kw, oh, ow, mg;
    const double *x, *k, *dy;
    double *y, *dx, *dk;
};

static struct conv conv_of(const struct dev_conv *p, const struct dev_tensor *x,
                           const struct dev_tensor *k, const struct dev_tensor *y)
{
    return (struct conv){.p = p,
                         .n = x->dims[0],
                         .c = x->dims[1],
                         .h = x->dims[2],
                         .w = x->dims[3],
                         .m = k->dims[0],
                         .cg = k->dims[1],
                         .kh = k->dims[2],
                         .kw = k->dims[3],
                         .oh = y->dims[2],
                         .ow = y->dims[3],
                         .mg = k->dims[0] / p->groups};
}

/* Calls fn for every row of outputs that a tap (kh, kw) reaches: n outputs at y, their inputs at x
 * in steps of stride. */
#define EACH_ROW(v, kh_, kw_, x_plane, y_plane, code)                              \
    do {                                                                           \
        const int64_t off_h = (kh_) * (v)->p->dilation[0] - (v)->p->pad_begin[0];  \
        const int64_t off_w = (kw_) * (v)->p->dilation[1] - (v)->p->pad_begin[1];  \
        const int64_t sw = (v)->p->stride[1];                                      \
        const struct range rh = valid(off_h, (v)->p->stride[0], (v)->h, (v)->oh);  \
        const struct range rw = valid(off_w, sw, (v)->w, (v)->ow);                 \
        for (int64_t oh_ = rh.from; oh_ < rh.to; oh_++) {                          \
            const int64_t xi = (oh_ * (v)->p->stride[0] + off_h) * (v)->w + off_w; \
            const int64_t yi = oh_ * (v)->ow;                                      \
            for (int64_t i = rw.from; i < rw.to; i++)                              \
                code((x_plane)[xi + i * sw], (y_plane)[yi + i]);                   \
        }                                                                          \
    } while (0)

static void conv_planes(void *ctx, int64_t from, int64_t to)
{
    const struct conv *v = ctx;

    for (int64_t at = from; at < to; at++) { /* one output plane: (n, m) */
        const int64_t n = at / v->m, m = at % v->m, g = m / v->mg;
        double *y = v->y + at * v->oh * v->ow;

        for (int64_t i = 0; i < v->oh * v->ow; i++)
            y[i] = 0;
        for (int64_t c = 0; c < v->cg; c++) {
            const double *x = v->x + (n * v->c + g * v->cg + c) * v->h * v->w;

            for (int64_t t = 0; t < v->kh * v->kw; t++) {
                const double k = v->k[(m * v->cg + c) * v->kh * v->kw + t];
#define CODE(xe, ye) ye += k * xe
                EACH_ROW(v, t / v->kw, t % v->kw, x, y, CODE);
#undef CODE
            }
        }
    }
}

int f64__conv(const struct f64_call *c, struct sh_err *err)
{
    struct conv v = conv_of(&c->op->u.conv, c->in[0], c->in[1], c->out[0]);
    const int64_t plane = v.oh * v.ow;

    (void)err;
    v.x = c->x[0];
    v.k = c->x[1];
    v.y = c->y[0];
    cpu__parallel(c->threads, v.n * v.m, 1, conv_planes, &v);
    for (int64_t i = 0; i < v.n * v.m * plane; i++) {
        if (c->op->n_in > 2 && c->x[2])
            v.y[i] += c->x[2][i / plane % v.m];
        if (c->op->n_in > 3 && c->x[3])
            v.y[i] += c->x[3][i];
    }
    f64__act_out(c);
    return SH_OK;
}

static void conv_data_planes(void *ctx, int64_t from, int64_t to)
{
    const struct conv *v = ctx;

    for (int64_t at = from; at < to; at++) { /* one input plane: (n, channel) */
        const int64_t n = at / v->c, g = at % v->c / v->cg, c = at % v->c % v->cg;
        double *dx = v->dx + at * v->h * v->w;

        for (int64_t i = 0; i < v->h * v->w; i++)
            dx[i] = 0;
        for (int64_t m = g * v->mg; m < (g + 1) * v->mg; m++) {
            const double *dy = v->dy + (n * v->m + m) * v->oh * v->ow;

            for (int64_t t = 0; t < v->kh * v->kw; t++) {
                const double k = v->k[(m * v->cg + c) * v->kh * v->kw + t];
#define CODE(xe, ye) xe += k * ye
                EACH_ROW(v, t / v->kw, t % v->kw, dx, dy, CODE);
#undef CODE
            }
        }
    }
}

int f64__conv_bwd_data(const struct f64_call *c, struct sh_err *err)
{
    struct conv v = conv_of(&c->op->u.conv, c->out[0], c->in[1], c->in[0]);

    (void)err;
    v.dy = c->x[0];
    v.k = c->x[1];
    v.dx = c->y[0];
    cpu__parallel(c->threads, v.n * v.c, 1, conv_data_planes, &v);
    return SH_OK;
}

static void conv_weight_rows(void *ctx, int64_t from, int64_t to)
{
    const struct conv *v = ctx;

    for (int64_t at = from; at < to; at++) { /* one tap plane: (m, channel of the group) */
        const int64_t m = at / v->cg, c = m / v->mg * v->cg + at % v->cg;

        for (int64_t t = 0; t < v->kh * v->kw; t++) {
            double sum = 0;

            for (int64_t n = 0; n < v->n; n++) {
                const double *x = v->x + (n * v->c + c) * v->h * v->w;
                const double *dy = v->dy + (n * v->m + m) * v->oh * v->ow;
#define CODE(xe, ye) sum += xe * ye
                EACH_ROW(v, t / v->kw, t % v->kw, x, dy, CODE);
#undef CODE
            }
            v->dk[at * v->kh * v->kw + t] = sum;
        }
    }
}

int f64__conv_bwd_weight(const struct f64_call *c, struct sh_err *err)
{
    struct conv v = conv_of(&c->op->u.conv, c->in[0], c->out[0], c->in[1]);
    const int64_t plane = v.oh * v.ow, first = c->op->u.conv.first;

    (void)err;
    v.n = dev_conv_samples(&c->op->u.conv, c->in[0]);
    v.x = c->x[0] + first * v.c * v.h * v.w;
    v.dy = c->x[1] + first * v.m * plane;
    v.dk = c->y[0];
    cpu__parallel(c->threads, v.m * v.cg, 1, conv_weight_rows, &v);
    for (int64_t m = 0; c->op->n_out > 1 && c->y[1] && m < v.m; m++) {
        c->y[1][m] = 0;
        for (int64_t n = 0; n < v.n; n++)
            for (int64_t i = 0; i < plane; i++)
                c->y[1][m] += v.dy[(n * v.m + m) * plane + i];
    }
    return SH_OK;
}

/* ------------------------------------------------------------------ products */

struct product {
    const struct f64_call *c;
    int64_t m, k, n; /* of one matrix of the result */
    int64_t a_row, a_col, b_row, b_col;
};

/* The place of matrix `at` of the result in an operand that is broadcast along leading axes. */
static int64_t matrix_at(const struct dev_tensor *y, const struct dev_tensor *t, int64_t at)
{
    int64_t place = 0, size = 1;

    for (uint32_t i = 2; i < y->rank; i++) { /* axes from the right */
        const int64_t d = y->dims[y->rank - 1 - i];
        const int64_t own = i < t->rank ? t->dims[t->rank - 1 - i] : 1;

        place += (own == 1 ? 0 : at % d) * size;
        size *= own;
        at /= d;
    }
    return place * t->dims[t->rank - 2] * t->dims[t->rank - 1];
}

static void product_rows(void *ctx, int64_t from, int64_t to)
{
    const struct product *p = ctx;
    const struct f64_call *c = p->c;

    for (int64_t row = from; row < to; row++) {
        const double *a =
            c->x[0] + matrix_at(c->out[0], c->in[0], row / p->m) + row % p->m * p->a_row;
        const double *b = c->x[1] + matrix_at(c->out[0], c->in[1], row / p->m);
        double *y = c->y[0] + row * p->n;

        for (int64_t j = 0; j < p->n; j++)
            y[j] = 0;
        for (int64_t k = 0; k < p->k; k++)
            for (int64_t j = 0; j < p->n; j++)
                y[j] += a[k * p->a_col] * b[k * p->b_row + j * p->b_col];
        for (int64_t j = 0; j < p->n; j++)
            y[j] *= (double)c->op->u.matmul.alpha;
    }
}

int f64__matmul(const struct f64_call *c, struct sh_err *err)
{
    const struct dev_tensor *a = c->in[0], *b = c->in[1], *y = c->out[0];
    const int64_t a_w = a->dims[a->rank - 1], b_w = b->dims[b->rank - 1];
    const bool ta = c->op->u.matmul.trans_a, tb = c->op->u.matmul.trans_b;
    struct product p = {.c = c,
                        .m = y->dims[y->rank - 2],
                        .n = y->dims[y->rank - 1],
                        .k = ta ? a->dims[a->rank - 2] : a_w,
                        .a_row = ta ? 1 : a_w,
                        .a_col = ta ? a_w : 1,
                        .b_row = tb ? 1 : b_w,
                        .b_col = tb ? b_w : 1};
    int rc = SH_OK;

    cpu__parallel(c->threads, f64__n(y) / p.n, 1, product_rows, &p);
    for (uint32_t i = 2; i < c->op->n_in && rc == SH_OK; i++)
        if (c->x[i])
            rc = f64__add_to_out(c, i, err);
    f64__act_out(c);
    return rc;
}

/* ------------------------------------------------------------------ pools */

struct window { /* the inputs of one output, clipped to the input */
    int64_t h0, h1, w0, w1, count;
};

static struct window window_at(const struct dev_conv *p, const struct dev_tensor *x, int64_t oh,
                               int64_t ow)
{
    const int64_t h = oh * p->stride[0] - p->pad_begin[0], w = ow * p->stride[1] - p->pad_begin[1];
    const int64_t pad_h = p->count_include_pad ? p->pad_end[0] : 0;
    const int64_t pad_w = p->count_include_pad ? p->pad_end[1] : 0;
    const int64_t low = p->count_include_pad ? INT64_MIN : 0;
    struct window r = {.h0 = h, .h1 = h + (p->kernel[0] - 1) * p->dilation[0] + 1, .w0 = w};

    r.w1 = w + (p->kernel[1] - 1) * p->dilation[1] + 1;
    for (int64_t i = r.h0; i < r.h1; i += p->dilation[0])
        for (int64_t j = r.w0; j < r.w1; j += p->dilation[1])
            r.count += i >= low && i < x->dims[2] + pad_h && j >= low && j < x->dims[3] + pad_w;
    return r;
}

#define EACH_IN_WINDOW(r, p, x, code)                                         \
    for (int64_t i_ = (r).h0; i_ < (r).h1; i_ += (p)->dilation[0])            \
        for (int64_t j_ = (r).w0; j_ < (r).w1; j_ += (p)->dilation[1])        \
            if (i_ >= 0 && i_ < (x)->dims[2] && j_ >= 0 && j_ < (x)->dims[3]) \
    code(i_ *(x)->dims[3] + j_)

int f64__pool_max(const struct f64_call *c, struct sh_err *err)
{
    const struct dev_tensor *x = c->in[0], *y = c->out[0];
    const int64_t plane = y->dims[2] * y->dims[3];

    (void)err;
    for (int64_t o = 0; o < f64__n(y); o++) {
        const struct window r =
            window_at(&c->op->u.pool, x, o % plane / y->dims[3], o % y->dims[3]);
        const double *in = c->x[0] + o / plane * x->dims[2] * x->dims[3];
        double best = -(double)INFINITY;
        int64_t at = 0;
#define CODE(place)         \
    if (in[place] > best) { \
        best = in[place];   \
        at = place;         \
    }
        EACH_IN_WINDOW(r, &c->op->u.pool, x, CODE)
#undef CODE
        c->y[0][o] = best;
        if (c->op->n_out > 1 && c->y[1])
            c->y[1][o] = (double)at;
    }
    return SH_OK;
}

int f64__pool_avg(const struct f64_call *c, struct sh_err *err)
{
    const struct dev_tensor *x = c->in[0], *y = c->out[0];
    const int64_t plane = y->dims[2] * y->dims[3];

    (void)err;
    for (int64_t o = 0; o < f64__n(y); o++) {
        const struct window r =
            window_at(&c->op->u.pool, x, o % plane / y->dims[3], o % y->dims[3]);
        const double *in = c->x[0] + o / plane * x->dims[2] * x->dims[3];
        double sum = 0;
#define CODE(place) sum += in[place];
        EACH_IN_WINDOW(r, &c->op->u.pool, x, CODE)
#undef CODE
        c->y[0][o] = r.count ? sum / (double)r.count : 0;
    }
    return SH_OK;
}

int f64__pool_max_bwd(const struct f64_call *c, struct sh_err *err)
{
    const struct dev_tensor *dy = c->in[0], *dx = c->out[0];
    const int64_t plane = dy->dims[2] * dy->dims[3], in_plane = dx->dims[2] * dx->dims[3];

    (void)err;
    for (int64_t i = 0; i < f64__n(dx); i++)
        c->y[0][i] = 0;
    for (int64_t o = 0; o < f64__n(dy); o++)
        c->y[0][o / plane * in_plane + (int64_t)c->x[1][o]] += c->x[0][o];
    return SH_OK;
}

int f64__pool_avg_bwd(const struct f64_call *c, struct sh_err *err)
{
    const struct dev_tensor *dy = c->in[0], *x = c->out[0];
    const int64_t plane = dy->dims[2] * dy->dims[3];

    (void)err;
    for (int64_t i = 0; i < f64__n(x); i++)
        c->y[0][i] = 0;
    for (int64_t o = 0; o < f64__n(dy); o++) {
        const struct window r =
            window_at(&c->op->u.pool, x, o % plane / dy->dims[3], o % dy->dims[3]);
        double *dx = c->y[0] + o / plane * x->dims[2] * x->dims[3];
        const double share = r.count ? c->x[0][o] / (double)r.count : 0;
#define CODE(place) dx[place] += share;
        EACH_IN_WINDOW(r, &c->op->u.pool, x, CODE)
#undef CODE
    }
    return SH_OK;
}

/* ------------------------------------------------------------------ resampling */

/* The table in x[slot] points into an axis of n. */
static int check_table(const struct f64_call *c, uint32_t slot, int64_t n, struct sh_err *err)
{
    for (int64_t i = 0; i < f64__n(c->in[slot]); i++)
        if (c->x[slot][i] < 0 || c->x[slot][i] >= (double)n)
            return SH_FAIL(err, SH_E_INVALID, "RESAMPLE (node \"%s\"): its table points outside",
                           c->op->name);
    return SH_OK;
}

/* x [outer, n0, n1, inner]; without a second axis n1 is 1, and one weight of 1. */
int f64__resample(const struct f64_call *c, struct sh_err *err)
{
    static const double ZERO = 0, ONE = 1;
    const struct dev_tensor *x = c->in[0], *y = c->out[0];
    const bool two = c->op->n_in > 3;
    const uint32_t a = (uint32_t)c->op->u.axis.axis;
    const int64_t n0 = x->dims[a], m0 = y->dims[a];
    const int64_t n1 = two ? x->dims[a + 1] : 1, m1 = two ? y->dims[a + 1] : 1;
    const int64_t taps0 = f64__n(c->in[1]) / m0, taps1 = two ? f64__n(c->in[3]) / m1 : 1;
    const int64_t inner = dev_axes_elements(x, a + (two ? 2 : 1), x->rank);
    const double *from1 = two ? c->x[3] : &ZERO, *weight1 = two ? c->x[4] : &ONE;
    int rc = check_table(c, 1, n0, err);

    if (!rc && two)
        rc = check_table(c, 3, n1, err);
    if (rc)
        return rc;
    for (int64_t at = 0; at < f64__n(y); at++) {
        const int64_t q = at / inner % m1, p = at / inner / m1 % m0, o = at / inner / m1 / m0;
        double sum = 0;

        for (int64_t s = p * taps0; s < (p + 1) * taps0; s++)
            for (int64_t t = q * taps1; t < (q + 1) * taps1; t++) {
                const int64_t row = o * n0 + (int64_t)c->x[1][s], column = (int64_t)from1[t];

                sum += c->x[2][s] * weight1[t] * c->x[0][(row * n1 + column) * inner + at % inner];
            }
        c->y[0][at] = sum;
    }
    return SH_OK;
}

/* ------------------------------------------------------------------ dropout and losses */

int f64__dropout(const struct f64_call *c, struct sh_err *err)
{
    const uint32_t threshold = dev_philox_threshold(c->op->u.dropout.ratio);
    const double keep = 1 - (double)c->op->u.dropout.ratio;

    (void)err;
    for (int64_t i = 0; i < f64__n(c->in[0]); i++) {
        const uint32_t counter[4] = {(uint32_t)(i / 4), c->index, (uint32_t)c->step,
                                     (uint32_t)((uint64_t)c->step >> 32)};
        uint32_t r[4];
        bool kept;

        dev_philox(c->op->u.dropout.seed, counter, r);
        kept = r[i % 4] >= threshold;
        c->y[0][i] = kept && keep > 0 ? c->x[0][i] / keep : 0;
        if (c->op->n_in > 1 && c->x[1])
            c->y[0][i] += c->x[1][i];
        if (c->op->n_out > 1 && c->y[1])
            c->y[1][i] = kept;
    }
    return SH_OK;
}

int f64__dropout_bwd(const struct f64_call *c, struct sh_err *err)
{
    const double keep = 1 - (double)c->op->u.dropout.ratio;

    (void)err;
    for (int64_t i = 0; i < f64__n(c->in[0]); i++)
        c->y[0][i] = c->x[1][i] != 0 && keep > 0 ? c->x[0][i] / keep : 0;
    return SH_OK;
}
