/* cpu_loss.c - losses and their gradients in one pass.
 *
 *   XENT  loss = mean over rows of (log sum exp(x) - x[label]),  d = (softmax(x) - onehot) / rows
 *   MSE   loss = mean over all elements of (p - t)^2,            d = 2 (p - t) / elements
 *
 * Rows are few and short next to the network in front of them: one thread, double precision.
 */
#include "common/mem.h"
#include "executor/device/cpu/cpu.h"

#include <math.h>

static double xent_row(const float *x, float *d, int64_t n, int64_t label, double share)
{
    double max = x[0], sum = 0;

    for (int64_t i = 1; i < n; i++)
        max = SH_MAX(max, (double)x[i]);
    for (int64_t i = 0; i < n; i++)
        sum += exp(x[i] - max);
    for (int64_t i = 0; i < n; i++)
        d[i] = (float)((exp(x[i] - max) / sum - (i == label)) * share);
    return max + log(sum) - x[label];
}

/* p: logits label loss d_logits */
static int xent_fn(const struct cpu_call *c, struct sh_err *err)
{
    const struct dev_tensor *x = &c->plan->base.g->tensors[c->op->in[0]];
    const int64_t rows = x->dims[0], n = x->dims[1];
    const float *logits = c->p[0];
    const int64_t *label = c->p[1];
    double loss = 0;

    for (int64_t r = 0; r < rows; r++) {
        if (label[r] < 0 || label[r] >= n)
            return SH_FAIL(err, SH_E_INVALID,
                           "label %lld of sample %lld is not a class from 0 to %lld",
                           (long long)label[r], (long long)r, (long long)n - 1);
        loss += xent_row(logits + r * n, (float *)c->p[3] + r * n, n, label[r], 1 / (double)rows);
    }
    *(float *)c->p[2] = (float)(loss / (double)rows);
    return SH_OK;
}

/* p: pred target loss d_pred */
static int mse_fn(const struct cpu_call *c, struct sh_err *err)
{
    const int64_t n = dev_tensor_elements(&c->plan->base.g->tensors[c->op->in[0]]);
    const float *p = c->p[0], *t = c->p[1];
    float *d = c->p[3];
    double loss = 0;

    (void)err;
    for (int64_t i = 0; i < n; i++) {
        double e = (double)p[i] - t[i];

        loss += e * e;
        d[i] = (float)(2 * e / (double)n);
    }
    *(float *)c->p[2] = (float)(loss / (double)n);
    return SH_OK;
}

static int loss_step(struct cpu_build *b, cpu_fn *fn)
{
    const struct dev_op *op = b->op;
    const uint32_t all[] = {op->in[0], op->out[0], op->out[1]};
    struct cpu_ref refs[4];
    int rc = cpu__need_f32(b, all, 3);

    if (!rc && dev_tensor_elements(cpu__t(b, op->out[0])) != 1)
        rc = cpu__refuse(b, SH_E_BUG, "the loss is not one number");
    if (!rc)
        rc = cpu__same_shape(b, op->in[0], op->out[1]);
    for (uint32_t i = 0; i < 2 && !rc; i++)
        rc = cpu__in_plain(b, op->in[i], &refs[i]);
    for (uint32_t i = 0; i < 2 && !rc; i++)
        rc = cpu__out_plain(b, op->out[i], &refs[2 + i]);
    return rc ? rc : cpu__step_fn(b, fn, refs, 4, NULL);
}

int cpu__loss_xent(struct cpu_build *b)
{
    const struct dev_tensor *x = cpu__t(b, b->op->in[0]), *l = cpu__t(b, b->op->in[1]);

    if (x->rank != 2 || l->dtype != SH_I64 || dev_tensor_elements(l) != x->dims[0])
        return cpu__refuse(b, SH_E_UNSUPPORTED,
                           "needs logits [batch, classes] and one I64 label per sample");
    return loss_step(b, xent_fn);
}

int cpu__loss_mse(struct cpu_build *b)
{
    int rc = cpu__need_f32(b, &b->op->in[1], 1);

    if (!rc)
        rc = cpu__same_shape(b, b->op->in[0], b->op->in[1]);
    return rc ? rc : loss_step(b, mse_fn);
}
