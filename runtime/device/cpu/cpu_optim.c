/* cpu_optim.c - what is done with gradients once they are there: updates of parameters, in place.
 *
 *   SGD    g += decay p;  m = momentum m + g;  p -= lr (nesterov ? g + momentum m : m)
 *   ADAM   g += decay p (or p *= 1 - lr decay, decoupled);  m = b1 m + (1-b1) g;
 *          v = b2 v + (1-b2) g^2;  p -= lr / (1-b1^t) m / (sqrt(v / (1-b2^t)) + eps)
 *
 * t = updates done + 1; g as op.h says. Corrections are computed in double, once per call.
 */
#include "common/mem.h"
#include "runtime/device/cpu/cpu.h"

#include <float.h>
#include <math.h>

#define GRAIN 8192

struct optim_ctx {
    const struct dev_op *op;
    float *p, *m, *v;
    const float *g;
    float factor, limit; /* of what gradients become: scaled_gradient() */
    bool is_skipped;
    float lr, step_size, root_bias2; /* ADAM: lr / (1-b1^t), sqrt(1-b2^t) */
};

static inline float scaled_gradient(float g, float factor, float limit)
{
    g *= factor;
    return g > limit ? limit : g < -limit ? -limit : g;
}

static void sgd_range(void *ctx, int64_t from, int64_t to)
{
    const struct optim_ctx *c = ctx;
    const float lr = c->lr, mu = c->op->u.optim.momentum;
    const float decay = c->op->u.optim.weight_decay;
    const bool nesterov = c->op->u.optim.nesterov;
    const float factor = c->factor, limit = c->limit;
    float *restrict p = c->p, *restrict m = c->m;
    const float *restrict g = c->g;

    if (!m) {
        for (int64_t i = from; i < to; i++)
            p[i] -= lr * (scaled_gradient(g[i], factor, limit) + decay * p[i]);
        return;
    }
    for (int64_t i = from; i < to; i++) {
        float d = scaled_gradient(g[i], factor, limit) + decay * p[i];

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
    const float factor = c->factor, limit = c->limit;
    float *restrict p = c->p, *restrict m = c->m, *restrict v = c->v;
    const float *restrict g = c->g;

    for (int64_t i = from; i < to; i++) {
        float w = p[i] * shrink, d = scaled_gradient(g[i], factor, limit) + pull * p[i];

        m[i] = b1 * m[i] + (1 - b1) * d;
        v[i] = b2 * v[i] + (1 - b2) * d * d;
        p[i] = w - step * m[i] / (sqrtf(v[i]) / root + eps);
    }
}

static int64_t optim_elements(const struct cpu_call *c)
{
    return dev_tensor_elements(&c->plan->base.g->tensors[c->op->in[0]]);
}

static bool is_between_updates(const struct cpu_call *c)
{
    return c->turn->part < c->turn->last;
}

/* squares: NULL, or of all gradients. A norm that is no number makes none of them. */
static void take_optim_turn(const struct cpu_call *c, const float *squares, const float *scaler,
                            struct optim_ctx *o)
{
    const double mean = 1 / ((double)(c->turn->last + 1) * (scaler ? (double)scaler[0] : 1));
    const double cut = c->op->u.optim.clip_value, most = c->op->u.optim.clip_norm;
    double part = 1;

    o->is_skipped = scaler && !isfinite(*squares);
    if (squares && most > 0)
        part = most / (mean * sqrt((double)*squares) + 1e-6);
    o->lr = (float)c->turn->lr;
    o->factor = (float)(mean * (part >= 1 ? 1 : part));
    o->limit = cut > 0 ? (float)cut : INFINITY;
}

/* p: param grad [momentum] [squares] [scaler] */
static void sgd_fn(const struct cpu_call *c)
{
    const bool has_momentum = cpu__opt_in(c->op, 2) != DEV_NONE;
    const bool has_squares = cpu__opt_in(c->op, 3) != DEV_NONE;
    const bool has_scaler = dev_op_scaler(c->op) != DEV_NONE;
    struct optim_ctx o = {
        .op = c->op, .p = c->p[0], .g = c->p[1], .m = has_momentum ? c->p[2] : NULL};

    if (is_between_updates(c))
        return;
    take_optim_turn(c, has_squares ? c->p[2 + has_momentum] : NULL,
                    has_scaler ? c->p[3 + has_momentum] : NULL, &o);
    if (!o.is_skipped)
        cpu__parallel(c->threads, optim_elements(c), GRAIN, sgd_range, &o);
}

/* p: param grad m v [squares] [scaler] */
static void adam_fn(const struct cpu_call *c)
{
    const float *scaler = dev_op_scaler(c->op) == DEV_NONE ? NULL : c->p[5];
    const double t = (double)c->turn->update + 1 - (scaler ? (double)scaler[2] : 0);
    struct optim_ctx o = {.op = c->op, .p = c->p[0], .g = c->p[1], .m = c->p[2], .v = c->p[3]};

    if (is_between_updates(c))
        return;
    take_optim_turn(c, cpu__opt_in(c->op, 4) != DEV_NONE ? c->p[4] : NULL, scaler, &o);
    if (o.is_skipped)
        return;
    o.step_size = (float)(c->turn->lr / (1 - pow(c->op->u.optim.beta1, t)));
    o.root_bias2 = (float)sqrt(1 - pow(c->op->u.optim.beta2, t));
    cpu__parallel(c->threads, optim_elements(c), GRAIN, adam_range, &o);
}

/* n_same: so many of the inputs have the parameter's shape; then squares may come, and a scaler. */
static int update_step(struct cpu_build *b, uint32_t n_same, cpu_fn *fn)
{
    const struct dev_op *op = b->op;

    cpu__need_f32(b, op->in, op->n_in);
    for (uint32_t i = 0; i < op->n_in; i++) {
        const int64_t want = i < n_same ? dev_tensor_elements(cpu__t(b, op->in[0]))
                             : op->in[i] == dev_op_scaler(op) ? DEV_SCALER
                                                              : 1;

        if (op->in[i] != DEV_NONE && dev_tensor_elements(cpu__t(b, op->in[i])) != want)
            cpu__refuse(b, SH_E_BUG, "\"%s\" does not fit the parameter",
                        cpu__t(b, op->in[i])->name);
    }
    return cpu__step_plain(b, fn, NULL, 0);
}

int cpu__sgd(struct cpu_build *b)
{
    if (b->op->u.optim.momentum != 0 && cpu__opt_in(b->op, 2) == DEV_NONE)
        return cpu__refuse(b, SH_E_BUG, "momentum without a buffer for it");
    return update_step(b, 3, sgd_fn);
}

int cpu__adam(struct cpu_build *b)
{
    return update_step(b, 4, adam_fn);
}

/* ------------------------------------------------------------------ the scale of the loss */

/* p: scaler squares */
static void optim_scale_fn(const struct cpu_call *c)
{
    const float interval = c->op->u.scaler.interval;
    float *s = c->p[0];
    float scaled;

    if (is_between_updates(c))
        return;
    if (!isfinite(*(const float *)c->p[1])) {
        scaled = (float)((double)s[0] * (double)c->op->u.scaler.backoff);
        s[0] = scaled >= FLT_MIN ? scaled : s[0];
        s[1] = 0;
        s[2]++;
        s[3]++;
        return;
    }
    s[1]++;
    s[3] = 0;
    if (s[1] < interval)
        return;
    scaled = (float)((double)s[0] * (double)c->op->u.scaler.growth);
    s[0] = isfinite(scaled) ? scaled : s[0];
    s[1] = 0;
}

int cpu__loss_scale(struct cpu_build *b)
{
    return update_step(b, 1, optim_scale_fn);
}

/* ------------------------------------------------------------------ sums and means */

struct mix_ctx {
    float *to;
    const float *from;
    float part;    /* EMA: of what is new */
    bool is_first; /* of the sum, or of the mean */
};

static void accum_range(void *ctx, int64_t from, int64_t to)
{
    const struct mix_ctx *c = ctx;
    float *restrict sum = c->to;
    const float *restrict g = c->from;

    for (int64_t i = from; i < to; i++)
        sum[i] = c->is_first ? g[i] : sum[i] + g[i];
}

static void ema_range(void *ctx, int64_t from, int64_t to)
{
    const struct mix_ctx *c = ctx;
    float *restrict mean = c->to;
    const float *restrict p = c->from;

    for (int64_t i = from; i < to; i++)
        mean[i] = c->is_first ? p[i] : mean[i] + c->part * (p[i] - mean[i]);
}

/* p: sum grad */
static void accum_fn(const struct cpu_call *c)
{
    struct mix_ctx m = {.to = c->p[0], .from = c->p[1], .is_first = c->turn->part == 0};

    cpu__parallel(c->threads, optim_elements(c), GRAIN, accum_range, &m);
}

/* p: mean param */
static void ema_fn(const struct cpu_call *c)
{
    struct mix_ctx m = {.to = c->p[0],
                        .from = c->p[1],
                        .part = 1 - c->op->u.optim.beta1,
                        .is_first = c->turn->update == 0};

    if (!is_between_updates(c))
        cpu__parallel(c->threads, optim_elements(c), GRAIN, ema_range, &m);
}

int cpu__accum(struct cpu_build *b)
{
    return update_step(b, 2, accum_fn);
}

int cpu__ema(struct cpu_build *b)
{
    return update_step(b, 2, ema_fn);
}

/* ------------------------------------------------------------------ the norm */

struct squares_ctx {
    const float *x;
    int64_t n;
    double *pieces; /* of GRAIN elements each */
};

static void squares_range(void *ctx, int64_t from, int64_t to)
{
    const struct squares_ctx *c = ctx;

    for (int64_t k = from; k < to; k++) {
        const int64_t end = SH_MIN((k + 1) * GRAIN, c->n);
        double sum = 0;

        for (int64_t i = k * GRAIN; i < end; i++)
            sum += (double)c->x[i] * (double)c->x[i];
        c->pieces[k] = sum;
    }
}

static int64_t n_optim_pieces(int64_t n)
{
    return (n + GRAIN - 1) / GRAIN;
}

/* p: [before] grad... sum, scratch; the same whatever the number of threads. */
static void squares_fn(const struct cpu_call *c)
{
    const bool has_before = c->op->in[0] != DEV_NONE;
    void *const *grads = c->p + has_before, *const *out = grads + c->op->n_in - 1;
    double all = has_before ? (double)*(const float *)c->p[0] : 0;

    if (is_between_updates(c))
        return;
    for (uint32_t i = 1; i < c->op->n_in; i++) {
        struct squares_ctx s = {.x = grads[i - 1],
                                .n = dev_tensor_elements(&c->plan->base.g->tensors[c->op->in[i]]),
                                .pieces = out[1]};

        cpu__parallel(c->threads, n_optim_pieces(s.n), 1, squares_range, &s);
        for (int64_t k = 0; k < n_optim_pieces(s.n); k++)
            all += s.pieces[k];
    }
    *(float *)out[0] = (float)all;
}

int cpu__squares(struct cpu_build *b)
{
    const struct dev_op *op = b->op;
    struct cpu_ref refs[DEV_MAX_IN + 2];
    int64_t longest = 1;
    uint32_t n;

    cpu__need_f32(b, op->in, op->n_in);
    cpu__need_f32(b, op->out, 1);
    if (dev_tensor_elements(cpu__t(b, op->out[0])) != 1)
        cpu__refuse(b, SH_E_BUG, "the sum is not one F32");
    n = cpu__all_plain(b, refs);
    for (uint32_t i = 1; i < op->n_in; i++)
        longest = SH_MAX(longest, dev_tensor_elements(cpu__t(b, op->in[i])));
    refs[n++] = cpu__scratch(b, (size_t)n_optim_pieces(longest) * sizeof(double));
    return cpu__step_fn(b, squares_fn, refs, n, NULL, 0);
}
