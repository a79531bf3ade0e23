/* rewrite_signal.c - Fourier transforms as matrix products, and other operators for signals.
 *
 * Complex numbers are pairs of floats in the last axis. The matrix of a transform of n numbers has
 * about n * n pairs; one that exceeds the limit of a constant is refused (rw_alloc).
 */
#include "common/mem.h"
#include "runtime/model/rewrite.h"

#include <math.h>

#define MAX_LENGTH (1 << 20)

struct dft {
    int64_t n;                   /* numbers of a period */
    int64_t in, out;             /* rows that come, and go */
    int64_t in_parts, out_parts; /* 1: real, 2: complex */
    bool inverse, onesided;
};

static bool signal_flag(struct shape_ctx *c, const char *name, bool def)
{
    return shape__int(c, name, def) != 0;
}

/* Of real numbers half of the result is enough, and half of it gives them back: what is left out
 * is the other half's conjugate, so that its real part counts twice. */
static int check_dft(struct shape_ctx *c, struct dft *d, int64_t length)
{
    const bool halves = d->onesided && d->inverse;

    d->n = length > 0 ? length : halves ? 2 * (d->in - 1) : d->in;
    if (d->n < 1 || d->n > MAX_LENGTH || d->in_parts < 1 || d->in_parts > 2)
        return shape__fail(c, SH_E_INVALID, "cannot transform %lld numbers of %lld parts",
                           (long long)d->n, (long long)d->in_parts);
    if (d->onesided && d->in_parts != (halves ? 2 : 1))
        return shape__fail(c, SH_E_INVALID, "onesided does not fit to numbers of %lld parts",
                           (long long)d->in_parts);
    d->out = d->onesided && !d->inverse ? d->n / 2 + 1 : d->n;
    d->out_parts = halves ? 1 : 2;
    return SH_OK;
}

/* [in * in_parts, out * out_parts]; numbers behind the period are left out. */
static uint32_t dft_matrix(struct shape_ctx *c, const struct dft *d, enum sh_dtype t)
{
    const bool halves = d->onesided && d->inverse;
    const int64_t dims[2] = {d->in * d->in_parts, d->out * d->out_parts};
    const int64_t rows = SH_MIN(d->in, halves ? d->n / 2 + 1 : d->n);
    float *m =
        d->in < MAX_LENGTH ? rw_alloc(c, SH_F32, dims[0] * dims[1]) : rw_alloc(c, SH_F32, -1);

    for (int64_t k = 0; m && k < rows; k++)
        for (int64_t i = 0; i < d->out; i++) {
            const double angle =
                (d->inverse ? 2 : -2) * M_PI * (double)(k * i % d->n) / (double)d->n;
            const double twice = halves && k > 0 && 2 * k != d->n ? 2 : 1;
            const double scale = d->inverse ? twice / (double)d->n : 1;

            for (int64_t p = 0; p < d->in_parts * d->out_parts; p++) {
                const bool from_im = p / d->out_parts, to_im = p % d->out_parts;
                const double v = from_im == to_im ? cos(angle) : from_im ? -sin(angle) : sin(angle);

                m[(k * d->in_parts + from_im) * dims[1] + i * d->out_parts + to_im] =
                    (float)(scale * v);
            }
        }
    return rw_cast(c, rw_const(c, SH_F32, 2, dims, m), t);
}

/* Along the last axis but one of x. */
static uint32_t transformed(struct shape_ctx *c, uint32_t x, const struct dft *d)
{
    const struct graph_value v = *rw_v(c, x);
    int64_t dims[SH_MAX_RANK];

    if (c->err->rc)
        return GRAPH_NONE;
    memcpy(dims, v.dims, sizeof(dims));
    dims[v.rank - 2] = d->in * d->in_parts;
    x = rw2(c, "MatMul", rw_reshape(c, x, v.rank - 1, dims), dft_matrix(c, d, v.dtype));
    dims[v.rank - 2] = d->out;
    dims[v.rank - 1] = d->out_parts;
    return rw_reshape(c, x, v.rank, dims);
}

/* A constant number, if it is there. */
static int64_t whole_number_in(struct shape_ctx *c, uint32_t slot, int64_t def)
{
    double v = (double)def;

    shape__number(c, slot, (double)def, &v);
    if (!(fabs(v) <= MAX_LENGTH))
        shape__fail(c, SH_E_INVALID, "input %u is %g", slot, v);
    return c->err->rc == SH_OK ? (int64_t)v : def;
}

/* x [length] [axis] */
int shape__rewrite_dft(struct shape_ctx *c)
{
    const struct graph_value x = *shape__in(c, 0);
    struct dft d;
    int64_t length, axis, perm[SH_MAX_RANK];
    uint32_t y;

    shape__want_float(c, 0);
    d.inverse = signal_flag(c, "inverse", false);
    d.onesided = signal_flag(c, "onesided", false);
    length = whole_number_in(c, 1, 0);
    axis = shape__int(c, "axis", -2);
    axis = whole_number_in(c, 2, axis);
    shape__axis(c, axis, x.rank, &axis);
    if (axis == x.rank - 1)
        shape__fail(c, SH_E_INVALID, "the last axis holds the parts of a number");
    if (c->err->rc)
        return c->err->rc;
    d.in = x.dims[axis];
    d.in_parts = x.dims[x.rank - 1];
    check_dft(c, &d, length);
    for (int i = 0; i < x.rank; i++)
        perm[i] = i;
    perm[axis] = x.rank - 2;
    perm[x.rank - 2] = axis;
    y = transformed(c, rw_transpose(c, rw_in(c, 0), perm, x.rank), &d);
    return rw_is(c, 0, rw_transpose(c, y, perm, x.rank));
}

/* [samples, n, parts] as [samples, frames, length, parts]. */
static uint32_t frames_of(struct shape_ctx *c, int64_t step, int64_t length)
{
    const int64_t n = shape__in(c, 0)->dims[1], dims[2] = {(n - length) / step + 1, length};
    int64_t *at = rw_alloc(c, SH_I64, dims[0] * length);

    for (int64_t i = 0; at && i < dims[0] * length; i++)
        at[i] = i / length * step + i % length;
    return rw2_with(c, "Gather", rw_in(c, 0), rw_const(c, SH_I64, 2, dims, at), RW_INT("axis", 1));
}

/* signal, step between frames [window] [length of a frame] */
int shape__rewrite_stft(struct shape_ctx *c)
{
    const struct graph_value *x = shape__in(c, 0);
    const struct graph_value *window = shape__has(c, 2) ? shape__in(c, 2) : NULL;
    struct dft d = {0};
    int64_t step;
    uint32_t frames;

    shape__want_float(c, 0);
    d.onesided = signal_flag(c, "onesided", true);
    step = whole_number_in(c, 1, 0);
    if (x->rank != 3 || (window && window->rank != 1))
        shape__fail(c, SH_E_INVALID, "the signal needs 3 axes, the window 1");
    d.in = whole_number_in(c, 3, window ? window->dims[0] : 0);
    if (step < 1 || d.in < 1 || d.in > x->dims[1] || (window && window->dims[0] != d.in))
        shape__fail(c, SH_E_INVALID, "frames of %lld, %lld apart, do not fit to signal and window",
                    (long long)d.in, (long long)step);
    if (c->err->rc)
        return c->err->rc;
    d.in_parts = x->dims[2];
    check_dft(c, &d, 0);
    frames = frames_of(c, step, d.in);
    if (window)
        frames = rw2(c, "Mul", frames, rw_reshape(c, rw_in(c, 2), 2, (int64_t[]){d.in, 1}));
    return rw_is(c, 0, transformed(c, frames, &d));
}

/* Triangles over the bins of a transform, evenly spaced in mel: its bins by those of mel. */
static void mel_weights(float *m, int64_t n_mel, int64_t length, double rate, double low,
                        double high)
{
    const double from = 2595 * log10(1 + low / 700), to = 2595 * log10(1 + high / 700);
    const double step = (to - from) / (double)(n_mel + 2);

    for (int64_t i = 0; i < n_mel; i++) {
        int64_t edge[3];

        for (int k = 0; k < 3; k++) {
            const double hz = 700 * (pow(10, ((double)(i + k) * step + from) / 2595) - 1);

            edge[k] = (int64_t)floor((double)(length + 1) * hz / rate);
            edge[k] = SH_MIN(SH_MAX(edge[k], 0), length / 2);
        }
        for (int64_t j = edge[0]; j <= edge[1]; j++)
            m[j * n_mel + i] =
                edge[1] > edge[0] ? (float)(j - edge[0]) / (float)(edge[1] - edge[0]) : 1;
        for (int64_t j = edge[1]; j < edge[2]; j++)
            m[j * n_mel + i] = (float)(edge[2] - j) / (float)(edge[2] - edge[1]);
    }
}

/* bins of mel, length of the transform, samples in a second, lowest and highest Hz */
int shape__rewrite_mel_weights(struct shape_ctx *c)
{
    const int64_t n_mel = whole_number_in(c, 0, 0), length = whole_number_in(c, 1, 0),
                  rate = whole_number_in(c, 2, 0);
    const int64_t dims[2] = {length / 2 + 1, n_mel};
    double low = 0, high = 0;
    int64_t to = 1;
    float *m;

    shape__number(c, 3, 0, &low);
    shape__number(c, 4, 0, &high);
    to = shape__int(c, "output_datatype", 1);
    if (n_mel < 1 || length < 1 || rate < 1 || !(low >= 0 && high > low && high < 1e9))
        shape__fail(c, SH_E_INVALID, "its numbers make no spectrum");
    m = rw_alloc(c, SH_F32, c->err->rc ? 0 : dims[0] * dims[1]);
    if (m)
        mel_weights(m, n_mel, length, (double)rate, low, high);
    return rw_is(c, 0, rw1_with(c, "Cast", rw_const(c, SH_F32, 2, dims, m), RW_INT("to", to)));
}
