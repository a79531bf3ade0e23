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

static bool is_f32(const struct ir *ir, uint32_t t)
{
    return t != DEV_NONE && ir_t(ir, t)->dtype == SH_F32 && ir_is_const(ir, t);
}

static int settled(struct ir *ir, uint32_t t, const float **out, struct sh_err *err)
{
    int rc = ir_settle(ir, t, err);

    *out = ir_data(ir, t);
    return rc;
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

static void scale(const void *ctx, void *to)
{
    const struct scaled *s = ctx;
    float *out = to;

    for (int64_t i = 0; i < s->n; i += s->inner)
        for (int64_t k = 0; k < s->inner; k++)
            out[i + k] = (float)((double)s->from[i + k] * s->factor[i / s->inner % s->channels]);
}

int pass__scale_weight(struct ir *ir, uint32_t w, bool by_row, const double *factors,
                       int64_t channels, uint32_t *out, struct sh_err *err)
{
    const struct dev_tensor *t = ir_t(ir, w);
    const bool may_wait = ir_is_given(ir, w);
    const int64_t n = ir_elements(ir, w);
    struct scaled *s;
    int rc = ir_settle(ir, w, err);

    if (rc)
        return rc;
    s = malloc(sizeof(*s) + (size_t)channels * sizeof(s->factor[0]));
    if (!s)
        return SH_FAIL(err, SH_E_NOMEM, "could not allocate the factors of \"%s\"", t->name);
    *s = (struct scaled){
        .from = ir_data(ir, w), .n = n, .inner = by_row ? n / channels : 1, .channels = channels};
    memcpy(s->factor, factors, (size_t)channels * sizeof(s->factor[0]));
    rc = ir_later(ir, t, t->name, scale, s, out, err);
    if (rc)
        free(s);
    return rc || may_wait ? rc : ir_settle(ir, *out, err);
}

static int new_weight(const struct fold *f, uint32_t *out, struct sh_err *err)
{
    double *factors = malloc((size_t)f->channels * sizeof(*factors));
    int rc;

    if (!factors)
        return SH_FAIL(err, SH_E_NOMEM, "could not allocate the factors of \"%s\"", f->op->name);
    for (int64_t c = 0; c < f->channels; c++)
        factors[c] = factor(f, c);
    rc = pass__scale_weight(f->ir, f->op->in[1], by_row(f->op), factors, f->channels, out, err);
    free(factors);
    return rc;
}

static int new_bias(const struct fold *f, uint32_t *out, struct sh_err *err)
{
    const char *name = ir_t(f->ir, f->bn->in[2])->name;
    float *data = malloc((size_t)f->channels * sizeof(*data));
    int rc;

    if (!data)
        return SH_FAIL(err, SH_E_NOMEM, "could not allocate the bias of \"%s\"", f->op->name);
    for (int64_t c = 0; c < f->channels; c++) {
        double b = f->bias ? (double)f->bias[c] : 0.0;

        data[c] = (float)((b - (double)f->mean[c]) * factor(f, c) + (double)f->shift[c]);
    }
    rc = ir_const(f->ir, name, DEV_ROLE_WEIGHT, SH_F32, 1, &f->channels, data, out, err);
    if (rc)
        free(data);
    return rc;
}

static bool can_fold(struct fold *f, const struct ir_uses *u)
{
    const struct ir *ir = f->ir;
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
    f->channels = ir_t(ir, x)->dims[1];
    return f->channels > 0 && is_f32(ir, f->op->in[1]) && is_f32(ir, f->bn->in[1]) &&
           is_f32(ir, f->bn->in[2]) && is_f32(ir, f->bn->in[3]) && is_f32(ir, f->bn->in[4]) &&
           (f->op->in[2] == DEV_NONE || is_f32(ir, f->op->in[2]));
}

static int read_constants(struct fold *f, struct sh_err *err)
{
    int rc = SH_OK;

    if (f->op->in[2] != DEV_NONE)
        rc = settled(f->ir, f->op->in[2], &f->bias, err);
    if (!rc)
        rc = settled(f->ir, f->bn->in[1], &f->scale, err);
    if (!rc)
        rc = settled(f->ir, f->bn->in[2], &f->shift, err);
    if (!rc)
        rc = settled(f->ir, f->bn->in[3], &f->mean, err);
    return rc ? rc : settled(f->ir, f->bn->in[4], &f->var, err);
}

int pass_fold_bn(struct ir *ir, struct sh_err *err)
{
    struct ir_uses u;
    int rc = ir_uses_init(&u, ir, err);

    for (uint32_t i = 0; i < ir->g.n_ops && rc == SH_OK; i++) {
        struct fold f = {.ir = ir, .bn = &ir->g.ops[i]};
        uint32_t w, b;

        if (f.bn->kind != DEV_OP_BN_INFER || f.bn->act != DEV_ACT_NONE || !can_fold(&f, &u))
            continue;
        rc = read_constants(&f, err);
        if (!rc)
            rc = new_weight(&f, &w, err);
        if (!rc)
            rc = new_bias(&f, &b, err);
        if (!rc)
            rc = pass__take_output(ir, f.op, f.bn, err);
        if (rc)
            break;
        f.op->in[1] = w;
        f.op->in[2] = b;
        ir_kill(f.bn);
    }
    ir_uses_fini(&u);
    ir_sweep(ir);
    return rc;
}
