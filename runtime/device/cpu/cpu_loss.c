/* cpu_loss.c - losses and their gradients in one pass; op.h says what they are.
 *
 * Rows are few and short next to the network in front of them: one thread, double precision.
 */
#include "common/mem.h"
#include "runtime/device/cpu/cpu.h"

#include <math.h>

struct row {                  /* of logits, `stride` elements apart */
    const float *x, *weights; /* weights: NULL: 1 each */
    float *d;
    int64_t n, stride;
};

static double label_weight(const float *weights, int64_t i)
{
    return weights ? (double)weights[i] : 1;
}

/* share: 1 / the sum of all labels' weights. Returns the row's loss, before that. */
static double xent_row(const struct row *r, int64_t label, double smoothing, double share)
{
    const double hit = (1 - smoothing) * label_weight(r->weights, label);
    const double soft = smoothing / (double)r->n;
    double max = r->x[0], sum = 0, weights = 0, dot = 0, log_sum;

    for (int64_t i = 1; i < r->n; i++)
        max = SH_MAX(max, (double)r->x[i * r->stride]);
    for (int64_t i = 0; i < r->n; i++) {
        const double w = label_weight(r->weights, i), x = r->x[i * r->stride];

        sum += exp(x - max);
        weights += w;
        dot += w * x;
    }
    log_sum = max + log(sum);
    for (int64_t i = 0; i < r->n; i++) {
        const double p = exp(r->x[i * r->stride] - max) / sum;

        r->d[i * r->stride] = (float)((p * (hit + soft * weights) - (i == label ? hit : 0) -
                                       soft * label_weight(r->weights, i)) *
                                      share);
    }
    return hit * (log_sum - r->x[label * r->stride]) + soft * (weights * log_sum - dot);
}

/* The sum of the weights of the labels that count. */
static double count_weighted(const struct cpu_call *c, const int64_t *label, int64_t rows,
                             int64_t n, const float *weights)
{
    double sum = 0;

    for (int64_t r = 0; r < rows; r++) {
        if (label[r] == c->op->u.loss.ignore)
            continue;
        if (label[r] < 0 || label[r] >= n) {
            SH_FAIL(c->err, SH_E_INVALID,
                    "label %lld at position %lld is not a class from 0 to %lld",
                    (long long)label[r], (long long)r, (long long)n - 1);
            return 0;
        }
        sum += label_weight(weights, label[r]);
    }
    return sum;
}

static const float *label_weights(const struct cpu_call *c)
{
    return cpu__opt_in(c->op, 2) == DEV_NONE ? NULL : c->p[2];
}

/* Of the gradient. */
static double loss_factor(const struct cpu_call *c)
{
    return dev_op_scaler(c->op) == DEV_NONE ? 1 : *(const float *)c->p[label_weights(c) ? 3 : 2];
}

/* The loss, and its gradient. */
static void *const *results_of(const struct cpu_call *c)
{
    return c->p + 2 + (label_weights(c) != NULL) + (dev_op_scaler(c->op) != DEV_NONE);
}

/* p: logits label [weights] [scaler] loss d_logits */
static void xent_fn(const struct cpu_call *c)
{
    const struct dev_tensor *x = &c->plan->base.g->tensors[c->op->in[0]];
    const int64_t n = x->dims[1], inner = x->rank > 2 ? x->dims[2] : 1, rows = x->dims[0] * inner;
    const int64_t *label = c->p[1];
    struct row row = {.weights = label_weights(c), .n = n, .stride = inner};
    const double weight = c->op->u.loss.weight;
    const double count = count_weighted(c, label, rows, n, row.weights);
    double loss = 0;

    if (c->err->rc)
        return;
    for (int64_t r = 0; r < rows; r++) {
        const int64_t at = r / inner * n * inner + r % inner;

        row.x = (const float *)c->p[0] + at;
        row.d = (float *)results_of(c)[1] + at;
        if (label[r] != c->op->u.loss.ignore)
            loss +=
                xent_row(&row, label[r], c->op->u.loss.smoothing, weight * loss_factor(c) / count);
        else
            for (int64_t i = 0; i < n; i++)
                row.d[i * inner] = 0;
    }
    *(float *)results_of(c)[0] =
        (float)(weight * loss / count); /* no label counts: not a number, as in PyTorch */
}

/* What one element costs, and *d its derivative. */
static double each_loss(const struct dev_op *op, double w, double x, double t, double *d)
{
    const double e = x - t, delta = op->u.loss.delta;
    double tail;

    switch (op->u.loss.kind) {
    case DEV_LOSS_L1:
        *d = (e > 0) - (e < 0);
        return fabs(e);
    case DEV_LOSS_HUBER:
        *d = fabs(e) <= delta ? e : e > 0 ? delta : -delta;
        return fabs(e) <= delta ? e * e / 2 : delta * (fabs(e) - delta / 2);
    case DEV_LOSS_BCE: /* log(1 + exp(-x)), without an overflow */
        tail = log1p(exp(-fabs(x))) + fmax(-x, 0);
        *d = (1 - t) - (1 + (w - 1) * t) / (1 + exp(x));
        return (1 - t) * x + (1 + (w - 1) * t) * tail;
    default:
        *d = 2 * e;
        return e * e;
    }
}

/* p: pred target [weights] [scaler] loss d_pred */
static void each_fn(const struct cpu_call *c)
{
    const struct dev_tensor *tensors = c->plan->base.g->tensors;
    const int64_t n = dev_tensor_elements(&tensors[c->op->in[0]]);
    const uint32_t wi = cpu__opt_in(c->op, 2);
    const int64_t n_weights = wi == DEV_NONE ? 1 : dev_tensor_elements(&tensors[wi]);
    const float *p = c->p[0], *t = c->p[1], *weights = label_weights(c);
    const double weight = c->op->u.loss.weight, share = weight * loss_factor(c) / (double)n;
    float *d = results_of(c)[1];
    double loss = 0, slope;

    for (int64_t i = 0; i < n; i++) {
        loss += each_loss(c->op, label_weight(weights, i % n_weights), p[i], t[i], &slope);
        d[i] = (float)(slope * share);
    }
    *(float *)results_of(c)[0] = (float)(weight * loss / (double)n);
}

static int loss_step(struct cpu_build *b, cpu_fn *fn)
{
    const struct dev_op *op = b->op;

    cpu__need_f32(b, (const uint32_t[]){op->in[0], op->out[0], op->out[1]}, 3);
    return cpu__step_plain(b, fn, NULL, 0);
}

int cpu__loss_xent(struct cpu_build *b)
{
    return loss_step(b, xent_fn);
}

int cpu__loss_each(struct cpu_build *b)
{
    cpu__need_f32(b, &b->op->in[1], 1);
    return loss_step(b, each_fn);
}
