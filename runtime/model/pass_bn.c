/* pass_bn.c - folds BatchNorm at inference, a factor and an offset for each channel, into the
 * weights.
 *
 *   s = scale / sqrt(var + eps)      w' = w s (per output channel)      b' = (b - mean) s + bias
 */
#include "common/mem.h"
#include "runtime/model/pass.h"

#include <math.h>
#include <stdlib.h>

struct fold {
    struct ir *ir;
    struct dev_op *op, *bn; /* op: CONV or MATMUL */
    const float *bias;      /* may be NULL */
    const float *scale, *shift, *mean, *var;
    int64_t channels;
};

struct scaled { /* a weight, and the factor of each output channel */
    const float *from;
    int64_t n, inner, channels;
    double factor[];
};

static bool is_f32_tensor(const struct ir *ir, uint32_t t)
{
    return t != DEV_NONE && ir_t(ir, t)->dtype == SH_F32 && ir_is_const(ir, t);
}

static double factor(const struct fold *f, int64_t c)
{
    return (double)f->scale[c] / sqrt((double)f->var[c] + (double)f->bn->u.norm.eps);
}

/* Is an output channel a row of the weight, or a column? */
static bool by_row(const struct dev_op *op)
{
    return op->kind == DEV_OP_CONV || op->u.matmul.trans_b;
}

static void scale_weights(const void *ctx, void *to)
{
    const struct scaled *s = ctx;
    float *out = to;

    for (int64_t i = 0; i < s->n; i += s->inner)
        for (int64_t k = 0; k < s->inner; k++)
            out[i + k] = (float)((double)s->from[i + k] * s->factor[i / s->inner % s->channels]);
}

uint32_t pass__scale_weight(struct ir *ir, uint32_t w, bool by_row, const double *factors,
                            int64_t channels)
{
    const struct dev_tensor t = *ir_t(ir, w);
    const bool may_wait = ir_is_given(ir, w);
    const float *from = ir_settle(ir, w);
    struct scaled *s = ir_alloc(ir, 1, sizeof(*s) + (size_t)channels * sizeof(s->factor[0]));
    uint32_t out;

    if (s) {
        *s = (struct scaled){.from = from,
                             .n = ir_elements(ir, w),
                             .inner = by_row ? ir_elements(ir, w) / channels : 1,
                             .channels = channels};
        memcpy(s->factor, factors, (size_t)channels * sizeof(s->factor[0]));
    }
    out = ir_later(ir, &t, t.name, scale_weights, s);
    if (!may_wait)
        ir_settle(ir, out);
    return out;
}

static uint32_t new_weight(const struct fold *f)
{
    double *factors = ir_alloc(f->ir, f->channels, sizeof(*factors));
    uint32_t w = DEV_NONE;

    for (int64_t c = 0; factors && c < f->channels; c++)
        factors[c] = factor(f, c);
    if (factors)
        w = pass__scale_weight(f->ir, f->op->in[1], by_row(f->op), factors, f->channels);
    free(factors);
    return w;
}

static uint32_t new_bias(const struct fold *f)
{
    const char *name = ir_t(f->ir, f->bn->in[2])->name;
    float *data = ir_alloc(f->ir, f->channels, sizeof(*data));

    for (int64_t c = 0; data && c < f->channels; c++) {
        double b = f->bias ? (double)f->bias[c] : 0.0;

        data[c] = (float)((b - (double)f->mean[c]) * factor(f, c) + (double)f->shift[c]);
    }
    return ir_const(f->ir, name, DEV_ROLE_WEIGHT, SH_F32, 1, &f->channels, data);
}

static bool can_fold(struct fold *f, const struct ir_uses *u)
{
    const struct ir *ir = f->ir;
    const struct dev_tensor *y;
    uint32_t x = f->bn->in[0];

    f->op = pass__writer(ir, u, x, DEV_OP_CONV);
    if (!f->op)
        f->op = pass__writer(ir, u, x, DEV_OP_MATMUL);
    if (!f->op || f->op->act != DEV_ACT_NONE || f->op->in[3] != DEV_NONE ||
        u->reads[ir_root(ir, x)] != 1)
        return false;
    if (f->op->kind == DEV_OP_MATMUL && (ir_t(ir, f->op->in[1])->rank != 2 ||
                                         f->op->u.matmul.alpha != 1.0f || ir_t(ir, x)->rank != 2))
        return false;
    y = ir_t(ir, f->op->out[0]);
    f->channels = ir_t(ir, x)->dims[1];
    return pass__same_axis(ir_t(ir, x), 1, y, f->op->kind == DEV_OP_CONV ? 1 : y->rank - 1) &&
           f->channels > 0 && is_f32_tensor(ir, f->op->in[1]) && is_f32_tensor(ir, f->bn->in[1]) &&
           is_f32_tensor(ir, f->bn->in[2]) && is_f32_tensor(ir, f->bn->in[3]) &&
           is_f32_tensor(ir, f->bn->in[4]) &&
           (f->op->in[2] == DEV_NONE || is_f32_tensor(ir, f->op->in[2]));
}

/* false: a failure. */
static bool read_constants(struct fold *f)
{
    if (f->op->in[2] != DEV_NONE)
        f->bias = ir_settle(f->ir, f->op->in[2]);
    f->scale = ir_settle(f->ir, f->bn->in[1]);
    f->shift = ir_settle(f->ir, f->bn->in[2]);
    f->mean = ir_settle(f->ir, f->bn->in[3]);
    f->var = ir_settle(f->ir, f->bn->in[4]);
    return f->var != NULL;
}

void pass_fold_bn(struct ir *ir)
{
    struct ir_uses u;
    const bool is_ready = ir_uses_init(&u, ir);

    for (uint32_t i = 0; i < ir->g.n_ops && is_ready; i++) {
        struct fold f = {.ir = ir, .bn = &ir->g.ops[i]};
        uint32_t w, b;

        if (f.bn->kind != DEV_OP_BN_INFER || f.bn->act != DEV_ACT_NONE || !can_fold(&f, &u))
            continue;
        if (!read_constants(&f))
            break;
        w = new_weight(&f);
        b = new_bias(&f);
        f.op->in[1] = w;
        f.op->in[2] = b;
        pass__take_output(ir, f.op, f.bn);
        ir_kill(f.bn);
    }
    ir_uses_fini(&u);
    ir_sweep(ir);
}
