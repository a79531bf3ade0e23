/* pass_bn.c - BatchNorm at inference is a factor and an offset per channel: into the weights.
 *
 *   s = scale / sqrt(var + eps)      w' = w s (per output channel)      b' = (b - mean) s + bias
 */
#include "common/mem.h"
#include "executor/model/pass.h"

#include <math.h>
#include <stdlib.h>

struct fold {
    struct ir *ir;
    struct dev_op *op, *bn;     /* op: CONV or MATMUL */
    const float *weight, *bias; /* bias may be NULL */
    const float *scale, *shift, *mean, *var;
    int64_t channels;
};

static const float *f32(const struct ir *ir, uint32_t t)
{
    return t != DEV_NONE && ir_t(ir, t)->dtype == SH_F32 ? ir_data(ir, t) : NULL;
}

static double factor(const struct fold *f, int64_t c)
{
    return (double)f->scale[c] / sqrt((double)f->var[c] + (double)f->bn->u.norm.eps);
}

/* Is output channel c the row or the column of the weight? */
static bool by_row(const struct dev_op *op)
{
    return op->kind == DEV_OP_CONV || op->u.matmul.trans_b;
}

static int new_weight(const struct fold *f, uint32_t *out, struct sh_err *err)
{
    struct dev_tensor w = *ir_t(f->ir, f->op->in[1]);
    int64_t n = ir_elements(f->ir, f->op->in[1]), inner = by_row(f->op) ? n / f->channels : 1;
    float *data = malloc((size_t)n * sizeof(*data));
    int rc;

    if (!data)
        return SH_FAIL(err, SH_E_NOMEM, "could not allocate the weights of \"%s\"", f->op->name);
    for (int64_t i = 0; i < n; i++)
        data[i] = (float)((double)f->weight[i] * factor(f, i / inner % f->channels));
    rc = ir_const(f->ir, w.name, DEV_ROLE_WEIGHT, SH_F32, w.rank, w.dims, data, out, err);
    if (rc)
        free(data);
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
    f->weight = f32(ir, f->op->in[1]);
    f->bias = f32(ir, f->op->in[2]);
    f->scale = f32(ir, f->bn->in[1]);
    f->shift = f32(ir, f->bn->in[2]);
    f->mean = f32(ir, f->bn->in[3]);
    f->var = f32(ir, f->bn->in[4]);
    return f->weight && f->scale && f->shift && f->mean && f->var &&
           (f->bias || f->op->in[2] == DEV_NONE);
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
