/* cpu_optim.c - the update of one parameter, in place.
 *
 *   SGD    g += decay p;  m = momentum m + g;  p -= lr (nesterov ? g + momentum m : m)
 *   ADAM   g += decay p (or p *= 1 - lr decay, decoupled);  m = b1 m + (1-b1) g;
 *          v = b2 v + (1-b2) g^2;  p -= lr / (1-b1^t) m / (sqrt(v / (1-b2^t)) + eps)
 *
 * t = committed steps + 1. Corrections are computed in double, once per call.
 */
#include "common/mem.h"
#include "executor/device/cpu/cpu.h"

#include <math.h>

#define GRAIN 8192

struct optim_ctx {
    const struct dev_op *op;
    float *p, *m, *v;
    const float *g;
    float lr, step_size, root_bias2; /* ADAM: lr / (1-b1^t), sqrt(1-b2^t) */
};

static void sgd_range(void *ctx, int64_t from, int64_t to)
{
    const struct optim_ctx *c = ctx;
    const float lr = c->lr, mu = c->op->u.optim.momentum;
    const float decay = c->op->u.optim.weight_decay;
    const bool nesterov = c->op->u.optim.nesterov;
    float *restrict p = c->p, *restrict m = c->m;
    const float *restrict g = c->g;

    if (!m) {
        for (int64_t i = from; i < to; i++)
            p[i] -= lr * (g[i] + decay * p[i]);
        return;
    }
    for (int64_t i = from; i < to; i++) {
        float d = g[i] + decay * p[i];

        m[i] = mu * m[i] + d;
        p[i] -= lr * (nesterov ? d + mu * m[i] : m[i]);
    }
}

static void adam_range(void *ctx, int64_t from, int64_t to)
{
    const struct optim_ctx *c = ctx;
    const float b1 = c->op->u.optim.beta1, b2 = c->op->u.optim.beta2, eps = c->op->u.optim.eps;
    const float decay = c->op->u.optim.weight_decay;
    const float shrink = c->op->u.optim.decoupled ? 1 - c->lr * decay : 1;
    const float pull = c->op->u.optim.decoupled ? 0 : decay;
    const float step = c->step_size, root = c->root_bias2;
    float *restrict p = c->p, *restrict m = c->m, *restrict v = c->v;
    const float *restrict g = c->g;

    for (int64_t i = from; i < to; i++) {
        float w = p[i] * shrink, d = g[i] + pull * p[i];

        m[i] = b1 * m[i] + (1 - b1) * d;
        v[i] = b2 * v[i] + (1 - b2) * d * d;
        p[i] = w - step * m[i] / (sqrtf(v[i]) / root + eps);
    }
}

static int64_t elements(const struct cpu_call *c)
{
    return dev_tensor_elements(&c->plan->base.g->tensors[c->op->in[0]]);
}

/* p: param grad [momentum] */
static int sgd_fn(const struct cpu_call *c, struct sh_err *err)
{
    bool has_momentum = cpu__opt_in(c->op, 2) != DEV_NONE;
    struct optim_ctx o = {.op = c->op,
                          .lr = (float)c->lr,
                          .p = c->p[0],
                          .g = c->p[1],
                          .m = has_momentum ? c->p[2] : NULL};

    (void)err;
    cpu__parallel(c->threads, elements(c), GRAIN, sgd_range, &o);
    return SH_OK;
}

/* p: param grad m v */
static int adam_fn(const struct cpu_call *c, struct sh_err *err)
{
    const double t = (double)c->step + 1;
    struct optim_ctx o = {
        .op = c->op, .lr = (float)c->lr, .p = c->p[0], .g = c->p[1], .m = c->p[2], .v = c->p[3]};

    (void)err;
    o.step_size = (float)(c->lr / (1 - pow(c->op->u.optim.beta1, t)));
    o.root_bias2 = (float)sqrt(1 - pow(c->op->u.optim.beta2, t));
    cpu__parallel(c->threads, elements(c), GRAIN, adam_range, &o);
    return SH_OK;
}

static int update_step(struct cpu_build *b, cpu_fn *fn)
{
    const struct dev_op *op = b->op;
    struct cpu_ref refs[4];
    uint32_t n = 0;
    int rc = cpu__need_f32(b, op->in, op->n_in);

    for (uint32_t i = 0; i < op->n_in && !rc; i++) {
        if (op->in[i] == DEV_NONE)
            continue;
        if (dev_tensor_elements(cpu__t(b, op->in[i])) != dev_tensor_elements(cpu__t(b, op->in[0])))
            return cpu__refuse(b, SH_E_BUG, "\"%s\" does not fit the parameter",
                               cpu__t(b, op->in[i])->name);
        rc = cpu__in_plain(b, op->in[i], &refs[n++]);
    }
    return rc ? rc : cpu__step_fn(b, fn, refs, n, NULL);
}

int cpu__sgd(struct cpu_build *b)
{
    if (b->op->u.optim.momentum != 0 && cpu__opt_in(b->op, 2) == DEV_NONE)
        return cpu__refuse(b, SH_E_BUG, "momentum without a buffer for it");
    return update_step(b, sgd_fn);
}

int cpu__adam(struct cpu_build *b)
{
    return update_step(b, adam_fn);
}
