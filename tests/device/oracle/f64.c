/* f64.c - which kernel, and the conversions around it. */
#include "tests/device/oracle/f64.h"

#include "common/mem.h"

#include <math.h>
#include <stdlib.h>

static f64_fn *const KERNELS[DEV_N_OPS] = {
    [DEV_OP_CONV] = f64__conv,
    [DEV_OP_MATMUL] = f64__matmul,
    [DEV_OP_ATTENTION] = f64__attention,
    [DEV_OP_POOL_MAX] = f64__pool_max,
    [DEV_OP_POOL_AVG] = f64__pool_avg,
    [DEV_OP_ACT] = f64__act,
    [DEV_OP_BINARY] = f64__binary,
    [DEV_OP_SOFTMAX] = f64__softmax,
    [DEV_OP_CONCAT] = f64__concat,
    [DEV_OP_SLICE] = f64__slice,
    [DEV_OP_PAD] = f64__pad,
    [DEV_OP_TRANSPOSE] = f64__transpose,
    [DEV_OP_COPY] = f64__copy,
    [DEV_OP_EXPAND] = f64__expand,
    [DEV_OP_REDUCE] = f64__reduce,
    [DEV_OP_RESAMPLE] = f64__resample,
    [DEV_OP_GATHER] = f64__gather,
    [DEV_OP_WHERE] = f64__where,
    [DEV_OP_BN_INFER] = f64__bn_infer,
    [DEV_OP_BN_TRAIN] = f64__bn_train,
    [DEV_OP_LAYERNORM] = f64__layernorm,
    [DEV_OP_DROPOUT] = f64__dropout,
    [DEV_OP_CONV_BWD_DATA] = f64__conv_bwd_data,
    [DEV_OP_CONV_BWD_WEIGHT] = f64__conv_bwd_weight,
    [DEV_OP_POOL_MAX_BWD] = f64__pool_max_bwd,
    [DEV_OP_POOL_AVG_BWD] = f64__pool_avg_bwd,
    [DEV_OP_ACT_BWD] = f64__act_bwd,
    [DEV_OP_SOFTMAX_BWD] = f64__softmax_bwd,
    [DEV_OP_ATTENTION_BWD] = f64__attention_bwd,
    [DEV_OP_GATHER_BWD] = f64__gather_bwd,
    [DEV_OP_BN_TRAIN_BWD] = f64__bn_train_bwd,
    [DEV_OP_LAYERNORM_BWD] = f64__layernorm_bwd,
    [DEV_OP_DROPOUT_BWD] = f64__dropout_bwd,
    [DEV_OP_FILL] = f64__fill,
    [DEV_OP_LOSS_XENT] = f64__loss_xent,
    [DEV_OP_LOSS_EACH] = f64__loss_each,
    [DEV_OP_CUMSUM] = f64__cumsum,
    [DEV_OP_LSTM_CELL] = f64__lstm_cell,
    [DEV_OP_LSTM_CELL_BWD] = f64__lstm_cell_bwd,
    [DEV_OP_TOPK] = f64__topk,
    [DEV_OP_SCATTER] = f64__scatter,
    [DEV_OP_PIXELS] = f64__pixels,
};

/* ------------------------------------------------------------------ conversions */

static void widen(enum sh_dtype t, const void *from, double *to, int64_t n)
{
    switch (t) {
#define CASE(name, type)                             \
    case SH_##name:                                  \
        for (int64_t i = 0; i < n; i++)              \
            to[i] = (double)((const type *)from)[i]; \
        break;
        CASE(F32, float)
        CASE(F64, double)
        CASE(I64, int64_t)
        CASE(I32, int32_t)
        CASE(I8, int8_t)
        CASE(U8, uint8_t)
        CASE(BOOL, uint8_t)
#undef CASE
    default: /* refused when the plan was made */
        break;
    }
}

/* What does not fit becomes the nearest that does; what is no number becomes 0. */
static double fit(double x, double lo, double hi)
{
    return isnan(x) ? 0 : fmin(fmax(x, lo), hi);
}

static void narrow(enum sh_dtype t, const double *from, void *to, int64_t n)
{
    switch (t) {
#define CASE(name, type, lo, hi)                          \
    case SH_##name:                                       \
        for (int64_t i = 0; i < n; i++)                   \
            ((type *)to)[i] = (type)fit(from[i], lo, hi); \
        break;
        CASE(I64, int64_t, -0x1p63, 0x1.fffffffffffffp62)
        CASE(I32, int32_t, INT32_MIN, INT32_MAX)
        CASE(I8, int8_t, INT8_MIN, INT8_MAX)
        CASE(U8, uint8_t, 0, UINT8_MAX)
#undef CASE
    case SH_F32:
        for (int64_t i = 0; i < n; i++)
            ((float *)to)[i] = (float)from[i];
        break;
    case SH_F64:
        memcpy(to, from, (size_t)n * sizeof(double));
        break;
    case SH_BOOL:
        for (int64_t i = 0; i < n; i++)
            ((uint8_t *)to)[i] = from[i] != 0;
        break;
    default:
        break;
    }
}

/* ------------------------------------------------------------------ one operation */

struct f64_slot { /* one operand */
    uint32_t tensor;
    bool converts; /* its doubles are in scratch: the reference after the operands' */
    uint32_t ref, scratch;
};

struct f64_step {
    struct f64_slot in[DEV_MAX_IN], out[DEV_MAX_OUT];
};

static void step_fn(const struct cpu_call *c)
{
    const struct f64_step *s = c->aux;
    const struct dev_tensor *all = c->plan->base.g->tensors;
    struct f64_call k = {.op = c->op, .index = c->index, .threads = c->threads, .step = c->step};
    int rc;

    for (uint32_t i = 0; i < c->op->n_in; i++) {
        const struct f64_slot *o = &s->in[i];

        if (o->tensor == DEV_NONE)
            continue;
        k.in[i] = &all[o->tensor];
        k.x[i] = c->p[o->converts ? o->scratch : o->ref];
        if (o->converts)
            widen(k.in[i]->dtype, c->p[o->ref], c->p[o->scratch], f64__n(k.in[i]));
    }
    for (uint32_t i = 0; i < c->op->n_out; i++) {
        const struct f64_slot *o = &s->out[i];

        if (o->tensor == DEV_NONE)
            continue;
        k.out[i] = &all[o->tensor];
        k.y[i] = c->p[o->converts ? o->scratch : o->ref];
    }
    rc = KERNELS[c->op->kind](&k, c->err);
    for (uint32_t i = 0; i < c->op->n_out && rc == SH_OK; i++)
        if (s->out[i].converts)
            narrow(k.out[i]->dtype, k.y[i], c->p[s->out[i].ref], f64__n(k.out[i]));
}

static void add_operand(struct cpu_build *b, uint32_t tensor, struct f64_slot *s,
                        struct cpu_ref *refs, uint32_t *n)
{
    const struct cpu_tensor *t;

    s->tensor = tensor;
    if (tensor == DEV_NONE)
        return;
    t = &b->plan->tensors[tensor];
    s->ref = (*n)++;
    refs[s->ref] = (struct cpu_ref){.tensor = tensor};
    s->converts = !b->plan->tensors[t->root].is_wide;
    if (s->converts) {
        s->scratch = (*n)++;
        refs[s->scratch] = cpu__scratch(b, (size_t)f64__n(cpu__t(b, tensor)) * sizeof(double));
    }
}

/* Integers alone are exact as they are. */
bool f64__has(const struct dev_graph *g, const struct dev_op *op)
{
    bool has_float = false;

    for (uint32_t i = 0; i < op->n_in; i++)
        has_float |= op->in[i] != DEV_NONE && g->tensors[op->in[i]].dtype == SH_F32;
    for (uint32_t i = 0; i < op->n_out; i++)
        has_float |= op->out[i] != DEV_NONE && g->tensors[op->out[i]].dtype == SH_F32;
    return KERNELS[op->kind] && has_float;
}

int f64__build(struct cpu_build *b)
{
    struct cpu_ref refs[2 * (DEV_MAX_IN + DEV_MAX_OUT)];
    struct f64_step s = {0};
    uint32_t n = 0;

    for (uint32_t i = 0; i < b->op->n_in; i++)
        add_operand(b, b->op->in[i], &s.in[i], refs, &n);
    for (uint32_t i = 0; i < b->op->n_out; i++)
        add_operand(b, b->op->out[i], &s.out[i], refs, &n);
    return cpu__step_fn(b, step_fn, refs, n, &s, sizeof(s));
}
