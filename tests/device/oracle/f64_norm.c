/* f64_norm.c - normalisations and softmax in double. */
#include "tests/device/oracle/f64.h"

#include <math.h>

/* ------------------------------------------------------------------ batch normalisation */

struct channels { /* x [n, c, inner] */
    int64_t n, c, inner;
};

static struct channels channels_of(const struct dev_tensor *x)
{
    return (struct channels){x->dims[0], x->dims[1], f64__n(x) / x->dims[0] / x->dims[1]};
}

#define EACH_OF_CHANNEL(s, ch, i)                                \
    for (int64_t n_ = 0; n_ < (s).n; n_++)                       \
        for (int64_t i = (n_ * (s).c + (ch)) * (s).inner,        \
                     end_ = (n_ * (s).c + (ch) + 1) * (s).inner; \
             i < end_; i++)

int f64__bn_infer(const struct f64_call *c, struct sh_err *err)
{
    const struct channels s = channels_of(c->in[0]);

    (void)err;
    for (int64_t ch = 0; ch < s.c; ch++) {
        const double f = c->x[1][ch] / sqrt(c->x[4][ch] + (double)c->op->u.norm.eps);

        EACH_OF_CHANNEL(s, ch, i)
        c->y[0][i] = (c->x[0][i] - c->x[3][ch]) * f + c->x[2][ch];
    }
    f64__act_out(c);
    return SH_OK;
}

int f64__bn_train(const struct f64_call *c, struct sh_err *err)
{
    const struct channels s = channels_of(c->in[0]);
    const double n = (double)(s.n * s.inner), keep = (double)c->op->u.norm.momentum;
    const double unbiased = n > 1 ? n / (n - 1) : 1;
    const double *residual = c->op->n_in > 5 ? c->x[5] : NULL;

    (void)err;
    for (int64_t ch = 0; ch < s.c; ch++) {
        double mean = 0, var = 0, inv;

        EACH_OF_CHANNEL(s, ch, i)
        mean += c->x[0][i];
        mean /= n;
        EACH_OF_CHANNEL(s, ch, i)
        var += (c->x[0][i] - mean) * (c->x[0][i] - mean);
        var /= n;
        inv = 1 / sqrt(var + (double)c->op->u.norm.eps);
        EACH_OF_CHANNEL(s, ch, i)
        c->y[0][i] = (c->x[0][i] - mean) * inv * c->x[1][ch] + c->x[2][ch];
        c->y[1][ch] = mean;
        c->y[2][ch] = inv;
        c->y[3][ch] = keep * c->x[3][ch] + (1 - keep) * mean;
        c->y[4][ch] = keep * c->x[4][ch] + (1 - keep) * var * unbiased;
    }
    for (int64_t i = 0; residual && i < f64__n(c->in[0]); i++)
        c->y[0][i] += residual[i];
    f64__act_out(c);
    return SH_OK;
}

/* d_y at element i of channel ch, as it is before activation and residual. */
static double inner_d_y(const struct f64_call *c, int64_t ch, int64_t i)
{
    const struct dev_op *op = c->op;
    const double dy = c->x[1][i] + (op->n_in > 7 && c->x[7] ? c->x[7][i] : 0);
    float lo, hi;
    double y;

    if (op->act == DEV_ACT_NONE)
        return dy;
    if (op->n_in > 6 && c->x[6])
        y = c->x[6][i];
    else
        y = (c->x[0][i] - c->x[3][ch]) * c->x[4][ch] * c->x[2][ch] + c->x[5][ch];
    if (!dev_act_bounds(op, &lo, &hi))
        return dy * f64__act_slope(op, y, 0);
    return y > (double)lo && y < (double)hi ? dy : 0;
}

/* d_x = scale inv (d_y - mean(d_y) - xhat mean(d_y xhat)) */
int f64__bn_train_bwd(const struct f64_call *c, struct sh_err *err)
{
    const double *x = c->x[0];
    double *d_residual = c->op->n_out > 3 ? c->y[3] : NULL;
    const struct channels s = channels_of(c->in[0]);
    const double n = (double)(s.n * s.inner);
    const bool knows_y = (c->op->n_in > 5 && c->x[5]) || (c->op->n_in > 6 && c->x[6]);
    float lo, hi;

    if (dev_act_is_gated(c->op->act)
            ? !(c->op->n_in > 5 && c->x[5])
            : !dev_act_bounds(c->op, &lo, &hi) || (c->op->act != DEV_ACT_NONE && !knows_y))
        return SH_FAIL(err, SH_E_UNSUPPORTED, "BN_TRAIN_BWD (node \"%s\"): cannot undo %s",
                       c->op->name, dev_act_name(c->op->act));
    for (int64_t ch = 0; ch < s.c; ch++) {
        const double mean = c->x[3][ch], inv = c->x[4][ch];
        double sum = 0, dot = 0;

        EACH_OF_CHANNEL(s, ch, i)
        {
            const double dy = inner_d_y(c, ch, i);

            sum += dy;
            dot += dy * (x[i] - mean) * inv;
            if (d_residual)
                d_residual[i] = dy;
        }
        EACH_OF_CHANNEL(s, ch, i)
        c->y[0][i] =
            c->x[2][ch] * inv * (inner_d_y(c, ch, i) - sum / n - (x[i] - mean) * inv * dot / n);
        c->y[1][ch] = dot;
        c->y[2][ch] = sum;
    }
    return SH_OK;
}

/* ------------------------------------------------------------------ layer normalisation */

static int64_t columns(const struct f64_call *c)
{
    const struct dev_tensor *x = c->in[0];
    int64_t axis = c->op->u.norm.axis + (c->op->u.norm.axis < 0 ? (int64_t)x->rank : 0), n = 1;

    for (uint32_t i = (uint32_t)axis; i < x->rank; i++)
        n *= x->dims[i];
    return n;
}

int f64__layernorm(const struct f64_call *c, struct sh_err *err)
{
    const int64_t n = columns(c), rows = f64__n(c->in[0]) / n;
    const double *scale = c->op->n_in > 1 ? c->x[1] : NULL,
                 *bias = c->op->n_in > 2 ? c->x[2] : NULL;

    (void)err;
    for (int64_t r = 0; r < rows; r++) {
        const double *x = c->x[0] + r * n;
        double *y = c->y[0] + r * n, mean = 0, var = 0, inv;

        for (int64_t i = 0; i < n; i++)
            mean += x[i] / (double)n;
        for (int64_t i = 0; i < n; i++)
            var += (x[i] - mean) * (x[i] - mean) / (double)n;
        inv = 1 / sqrt(var + (double)c->op->u.norm.eps);
        for (int64_t i = 0; i < n; i++)
            y[i] = (x[i] - mean) * inv * (scale ? scale[i] : 1) + (bias ? bias[i] : 0);
        if (c->op->n_out > 1 && c->y[1])
            c->y[1][r] = mean;
        if (c->op->n_out > 2 && c->y[2])
            c->y[2][r] = inv;
        for (int64_t i = 0; i < n && c->op->n_out > 3 && c->y[3]; i++)
            c->y[3][r * n + i] =
                nearbyint(y[i] / (double)c->op->u.norm.q.scale) + (double)c->op->u.norm.q.zero;
    }
    return SH_OK;
}

int f64__layernorm_bwd(const struct f64_call *c, struct sh_err *err)
{
    const int64_t n = columns(c), rows = f64__n(c->in[0]) / n;
    const double *scale = c->x[2];
    double *ds = c->op->n_out > 1 ? c->y[1] : NULL, *db = c->op->n_out > 2 ? c->y[2] : NULL;

    (void)err;
    for (int64_t i = 0; i < n; i++) {
        if (ds)
            ds[i] = 0;
        if (db)
            db[i] = 0;
    }
    for (int64_t r = 0; r < rows; r++) {
        const double *x = c->x[0] + r * n, *dy = c->x[1] + r * n;
        const double mean = c->x[3][r], inv = c->x[4][r];
        double sum = 0, dot = 0;

        for (int64_t i = 0; i < n; i++) {
            const double h = (x[i] - mean) * inv, g = dy[i] * (scale ? scale[i] : 1);

            sum += g / (double)n;
            dot += g * h / (double)n;
            if (ds)
                ds[i] += dy[i] * h;
            if (db)
                db[i] += dy[i];
        }
        for (int64_t i = 0; i < n; i++)
            c->y[0][r * n + i] =
                inv * (dy[i] * (scale ? scale[i] : 1) - sum - (x[i] - mean) * inv * dot);
    }
    return SH_OK;
}

/* ------------------------------------------------------------------ softmax */

struct lines { /* along one axis: n elements in steps of `inner` */
    int64_t outer, n, inner;
};

static struct lines lines_of(const struct dev_tensor *x, int64_t axis)
{
    struct lines l = {1, 1, 1};

    axis += axis < 0 ? (int64_t)x->rank : 0;
    for (int64_t i = 0; i < (int64_t)x->rank; i++) {
        if (i < axis)
            l.outer *= x->dims[i];
        else if (i == axis)
            l.n = x->dims[i];
        else
            l.inner *= x->dims[i];
    }
    return l;
}

int f64__softmax(const struct f64_call *c, struct sh_err *err)
{
    const struct lines l = lines_of(c->in[0], c->op->u.axis.axis);

    (void)err;
    for (int64_t k = 0; k < l.outer * l.inner; k++) {
        const int64_t at = k / l.inner * l.n * l.inner + k % l.inner;
        const double *x = c->x[0] + at;
        double *y = c->y[0] + at, max = x[0], sum = 0;

        for (int64_t i = 1; i < l.n; i++)
            max = fmax(max, x[i * l.inner]);
        for (int64_t i = 0; i < l.n; i++)
            sum += exp(x[i * l.inner] - max);
        for (int64_t i = 0; i < l.n; i++)
            y[i * l.inner] = c->op->u.axis.log ? x[i * l.inner] - max - log(sum)
                                               : exp(x[i * l.inner] - max) / sum;
    }
    return SH_OK;
}

int f64__softmax_bwd(const struct f64_call *c, struct sh_err *err)
{
    const struct lines l = lines_of(c->in[0], c->op->u.axis.axis);
    const bool is_log = c->op->u.axis.log;

    (void)err;
    for (int64_t k = 0; k < l.outer * l.inner; k++) {
        const int64_t at = k / l.inner * l.n * l.inner + k % l.inner;
        const double *y = c->x[0] + at, *dy = c->x[1] + at;
        double *dx = c->y[0] + at, sum = 0;

        for (int64_t i = 0; i < l.n; i++)
            sum += dy[i * l.inner] * (is_log ? 1 : y[i * l.inner]);
        for (int64_t i = 0; i < l.n; i++)
            dx[i * l.inner] = is_log ? dy[i * l.inner] - exp(y[i * l.inner]) * sum
                                     : y[i * l.inner] * (dy[i * l.inner] - sum);
    }
    return SH_OK;
}
