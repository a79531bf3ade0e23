/* f64_loss.c - losses in double. */
#include "tests/device/oracle/f64.h"

#include <math.h>

struct row {
    const double *x, *weights; /* weights: NULL: 1 each */
    double *d;
    int64_t n, stride;
};

static double weight_of(const double *weights, int64_t i)
{
    return weights ? weights[i] : 1;
}

static double log_sum_exp(const struct row *r)
{
    double max = r->x[0], sum = 0;

    for (int64_t i = 1; i < r->n; i++)
        max = fmax(max, r->x[i * r->stride]);
    for (int64_t i = 0; i < r->n; i++)
        sum += exp(r->x[i * r->stride] - max);
    return max + log(sum);
}

/* By class: what its -log p counts, which is also what its gradient is made of. */
static double xent_row(const struct row *r, int64_t label, double smoothing, double count)
{
    const double log_sum = log_sum_exp(r);
    double loss = 0, all = 0;

    for (int64_t i = 0; i < r->n; i++) {
        const double part = weight_of(r->weights, i) *
                            (smoothing / (double)r->n + (i == label ? 1 - smoothing : 0));

        loss += part * (log_sum - r->x[i * r->stride]);
        all += part;
        r->d[i * r->stride] = -part / count;
    }
    for (int64_t i = 0; i < r->n; i++)
        r->d[i * r->stride] += all * exp(r->x[i * r->stride] - log_sum) / count;
    return loss;
}

/* Of the gradient, beside u.loss.weight. */
static double scale_of(const struct f64_call *c)
{
    return dev_op_scaler(c->op) == DEV_NONE ? 1 : c->x[3][0];
}

/* The loss is weighed, and so are the n slopes, which are scaled too. */
static void weigh(const struct f64_call *c, int64_t n)
{
    const double weight = c->op->u.loss.weight;

    c->y[0][0] *= weight;
    for (int64_t i = 0; i < n; i++)
        c->y[1][i] *= weight * scale_of(c);
}

int f64__loss_xent(const struct f64_call *c, struct sh_err *err)
{
    const int64_t n = c->in[0]->dims[1], inner = c->in[0]->rank > 2 ? c->in[0]->dims[2] : 1;
    const int64_t rows = c->in[0]->dims[0] * inner;
    const double *label = c->x[1], ignore = (double)c->op->u.loss.ignore;
    struct row row = {.weights = c->in[2] ? c->x[2] : NULL, .n = n, .stride = inner};
    double loss = 0, count = 0;

    for (int64_t r = 0; r < rows; r++) {
        if (label[r] == ignore)
            continue;
        if (!(label[r] >= 0 && label[r] < (double)n))
            return SH_FAIL(err, SH_E_INVALID,
                           "label %.0f at position %lld is not a class from 0 to %lld", label[r],
                           (long long)r, (long long)n - 1);
        count += weight_of(row.weights, (int64_t)label[r]);
    }
    for (int64_t r = 0; r < rows; r++) {
        const int64_t at = r / inner * n * inner + r % inner;

        row.x = c->x[0] + at;
        row.d = c->y[1] + at;
        if (label[r] != ignore)
            loss += xent_row(&row, (int64_t)label[r], c->op->u.loss.smoothing, count);
        else
            for (int64_t i = 0; i < n; i++)
                row.d[i * inner] = 0;
    }
    c->y[0][0] = loss / count;
    weigh(c, n * rows);
    return SH_OK;
}

/* What one element costs, and *d its derivative. */
static double each(const struct dev_op *op, double w, double x, double t, double *d)
{
    const double e = x - t, delta = op->u.loss.delta, s = 1 / (1 + exp(-x));

    switch (op->u.loss.kind) {
    case DEV_LOSS_L1:
        *d = (e > 0) - (e < 0);
        return fabs(e);
    case DEV_LOSS_HUBER:
        *d = fmax(-delta, fmin(delta, e));
        return fabs(e) <= delta ? e * e / 2 : delta * (fabs(e) - delta / 2);
    case DEV_LOSS_BCE: /* log s(x) = x - log(1 + exp(x)), without an overflow */
        *d = s * (w * t + 1 - t) - w * t;
        return w * t * (fmax(-x, 0) + log1p(exp(-fabs(x)))) +
               (1 - t) * (fmax(x, 0) + log1p(exp(-fabs(x))));
    default:
        *d = 2 * e;
        return e * e;
    }
}

int f64__loss_each(const struct f64_call *c, struct sh_err *err)
{
    const int64_t n = f64__n(c->in[0]), n_weights = c->in[2] ? f64__n(c->in[2]) : 1;
    double loss = 0, slope;

    (void)err;
    for (int64_t i = 0; i < n; i++) {
        const double w = c->in[2] ? c->x[2][i % n_weights] : 1;

        loss += each(c->op, w, c->x[0][i], c->x[1][i], &slope);
        c->y[1][i] = slope / (double)n;
    }
    c->y[0][0] = loss / (double)n;
    weigh(c, n);
    return SH_OK;
}
