/* cpu_eltwise.c - activations and their gradients, binary operations, where.
 *
 * An activation or a binary of equal shapes runs in whatever layout its input has. Broadcasting and
 * integer types go through plain loops.
 */
#include "common/mem.h"
#include "runtime/device/cpu/cpu.h"
#include "runtime/device/cpu/cpu_act.h"
#include "runtime/device/cpu/cpu_math.h"

#include <float.h>
#include <math.h>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

#define GRAIN 16384 /* elements below which a second thread costs more than it gives */

/* ------------------------------------------------------------------ activations */

struct eltwise {
    dnnl_alg_kind_t alg;
    float alpha, beta;
};

/* false: oneDNN has no single primitive for it. */
static bool eltwise_of(enum dev_act act, float p0, float p1, struct eltwise *e)
{
    static const dnnl_alg_kind_t PLAIN[DEV_N_ACTS] = {
        [DEV_ACT_RELU] = dnnl_eltwise_relu,
        [DEV_ACT_SIGMOID] = dnnl_eltwise_logistic,
        [DEV_ACT_TANH] = dnnl_eltwise_tanh,
        [DEV_ACT_GELU_ERF] = dnnl_eltwise_gelu_erf,
        [DEV_ACT_GELU_TANH] = dnnl_eltwise_gelu_tanh,
        [DEV_ACT_HARDSWISH] = dnnl_eltwise_hardswish,
        [DEV_ACT_EXP] = dnnl_eltwise_exp,
        [DEV_ACT_SQRT] = dnnl_eltwise_sqrt,
        [DEV_ACT_ABS] = dnnl_eltwise_abs,
    };

    switch (act) {
    case DEV_ACT_LEAKY_RELU:
        *e = (struct eltwise){dnnl_eltwise_relu, p0, 0};
        return true;
    case DEV_ACT_CLIP: /* v2: the gradient is 0 on both bounds */
        *e = (struct eltwise){dnnl_eltwise_clip_v2, SH_MAX(p0, -FLT_MAX), SH_MIN(p1, FLT_MAX)};
        return true;
    case DEV_ACT_SILU:
        *e = (struct eltwise){dnnl_eltwise_swish, 1, 0};
        return true;
    case DEV_ACT_NEG:
        *e = (struct eltwise){dnnl_eltwise_linear, -1, 0};
        return true;
    case DEV_ACT_LINEAR:
        *e = (struct eltwise){dnnl_eltwise_linear, p0, p1};
        return true;
    case DEV_ACT_ELU:
        *e = (struct eltwise){dnnl_eltwise_elu, p0, 0};
        return true;
    case DEV_ACT_RECIP:
        *e = (struct eltwise){dnnl_eltwise_pow, 1, -1};
        return true;
    case DEV_ACT_POW:
        *e = (struct eltwise){dnnl_eltwise_pow, 1, p0};
        return true;
    default:
        *e = (struct eltwise){PLAIN[act], 0, 0};
        return PLAIN[act] != 0;
    }
}

bool cpu__post_has(const_dnnl_post_ops_t po, dnnl_alg_kind_t alg)
{
    dnnl_alg_kind_t other;
    float scale, a, b;

    for (int i = 0; i < dnnl_post_ops_len(po); i++)
        if (dnnl_post_ops_get_kind(po, i) == dnnl_eltwise &&
            dnnl_post_ops_get_params_eltwise(po, i, &scale, &other, &a, &b) == dnnl_success &&
            other == alg)
            return true;
    return false;
}

bool cpu__act_post(dnnl_post_ops_t po, enum dev_act act, float p0, float p1)
{
    struct eltwise e;

    if (act == DEV_ACT_NONE)
        return true;
    if (cpu__act_is_own(act))
        return false;
    if (act == DEV_ACT_HARDSIGMOID)
        return !cpu__post_has(po, dnnl_eltwise_linear) && !cpu__post_has(po, dnnl_eltwise_clip) &&
               dnnl_post_ops_append_eltwise(po, 1.0f, dnnl_eltwise_linear, p0, p1) ==
                   dnnl_success &&
               dnnl_post_ops_append_eltwise(po, 1.0f, dnnl_eltwise_clip, 0, 1) == dnnl_success;
    return eltwise_of(act, p0, p1, &e) && !cpu__post_has(po, e.alg) &&
           dnnl_post_ops_append_eltwise(po, 1.0f, e.alg, e.alpha, e.beta) == dnnl_success;
}

/* ------------------------------------------------------------------ what oneDNN has not */

/* Its logarithm is off by 1e-6 near 1, its softplus by a hundredth below -7; its swish takes longer
 * within a convolution than a pass of ours behind it. */

bool cpu__act_is_own(enum dev_act act)
{
    return act == DEV_ACT_ERF || act == DEV_ACT_LOG || act == DEV_ACT_SILU ||
           act >= DEV_ACT_SOFTPLUS;
}

/* f(0) = 0: the padding of a blocked layout stays zero. */
static bool keeps_zero(enum dev_act act)
{
    return act != DEV_ACT_LOG && act != DEV_ACT_SOFTPLUS && act != DEV_ACT_COS &&
           act != DEV_ACT_ACOS && act != DEV_ACT_COSH && act != DEV_ACT_ACOSH;
}

struct own_ctx {
    enum dev_act act;
    float *y;
    const float *x;
};

#define EACH(ACT, EXPR)                       \
    case DEV_ACT_##ACT:                       \
        for (int64_t i = from; i < to; i++) { \
            const float x = c->x[i];          \
            c->y[i] = (EXPR);                 \
        }                                     \
        break

static void silu_each(const float *x, int64_t n, float *y)
{
    for (int64_t i = 0; i < n; i++)
        y[i] = x[i] / (1 + cpu__exp(-x[i]));
}

#if defined(__x86_64__)
/* x / (1 + e^-x), the quotient by a reciprocal of 14 bits and a step of Newton's. */
__attribute__((target("avx512f"))) static void silu_wide(const float *x, int64_t n, float *y)
{
    static const float EXP[] = {1.3814e-3f, 8.36978e-3f, 4.16695364e-2f, 0.166666657f, 0.5f, 1, 1};

    for (int64_t i = 0; i < n; i += 16) {
        const __mmask16 m = (__mmask16)(n - i < 16 ? (1u << (n - i)) - 1 : 0xffff);
        const __m512 v = _mm512_maskz_loadu_ps(m, x + i);
        const __m512 low = _mm512_min_ps(_mm512_sub_ps(_mm512_setzero_ps(), v), _mm512_set1_ps(87));
        const __m512 t = _mm512_max_ps(low, _mm512_set1_ps(-87)); /* far below, r is no rest */
        const __m512 k = _mm512_roundscale_ps(_mm512_mul_ps(t, _mm512_set1_ps(1.44269504f)),
                                              _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
        const __m512 high = _mm512_fnmadd_ps(k, _mm512_set1_ps(0.693359375f), t);
        const __m512 r = _mm512_fmadd_ps(k, _mm512_set1_ps(2.12194440e-4f), high);
        __m512 p = _mm512_set1_ps(EXP[0]), d, q;

        for (size_t c = 1; c < SH_ARRAY_LEN(EXP); c++)
            p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(EXP[c]));
        d = _mm512_add_ps(_mm512_scalef_ps(p, k), _mm512_set1_ps(1));
        q = _mm512_rcp14_ps(d);
        q = _mm512_mul_ps(q, _mm512_fnmadd_ps(d, q, _mm512_set1_ps(2)));
        _mm512_mask_storeu_ps(y + i, m, _mm512_mul_ps(v, q));
    }
}
#endif

static void silu(const float *x, int64_t n, float *y)
{
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx512f")) {
        silu_wide(x, n, y);
        return;
    }
#endif
    silu_each(x, n, y);
}

static void own_range(void *ctx, int64_t from, int64_t to)
{
    const struct own_ctx *c = ctx;

    switch (c->act) {
    case DEV_ACT_SILU:
        silu(c->x + from, to - from, c->y + from);
        break;
        EACH(ERF, erff(x));
        EACH(LOG, logf(x));
        EACH(SOFTPLUS, (x > 0 ? x : 0) + log1pf(expf(-fabsf(x))));
        EACH(SIN, sinf(x));
        EACH(COS, cosf(x));
        EACH(TAN, tanf(x));
        EACH(ASIN, asinf(x));
        EACH(ACOS, acosf(x));
        EACH(ATAN, atanf(x));
        EACH(SINH, sinhf(x));
        EACH(COSH, coshf(x));
        EACH(ASINH, asinhf(x));
        EACH(ACOSH, acoshf(x));
        EACH(ATANH, atanhf(x));
        EACH(FLOOR, floorf(x));
        EACH(CEIL, ceilf(x));
        EACH(ROUND, nearbyintf(x));
        EACH(SIGN, x > 0 ? 1.0f : x < 0 ? -1.0f : x);
    default: /* oneDNN's */
        break;
    }
}
#undef EACH

/* p: x y; aux: number of floats */
static void own_fn(const struct cpu_call *c)
{
    struct own_ctx e = {.act = c->op->act, .x = c->p[0], .y = c->p[1]};

    cpu__parallel(c->threads, *(const int64_t *)c->aux, GRAIN / 8, own_range, &e);
}

static int own_step(struct cpu_build *b, struct cpu_ref x, struct cpu_ref y, size_t bytes)
{
    const struct cpu_ref refs[] = {x, y};
    const int64_t n = (int64_t)(bytes / sizeof(float));

    return cpu__step_fn(b, own_fn, refs, 2, &n, sizeof(n));
}

/* The layout in which an input lies: what a layout-neutral operation works in. */
static const dnnl_memory_desc_t *layout_of(struct cpu_build *b, uint32_t tensor)
{
    return &b->plan->tensors[tensor].lay->md;
}

static int act_pd(struct cpu_build *b, const dnnl_memory_desc_t *md, dnnl_primitive_desc_t *out)
{
    const struct dev_op *op = b->op;
    struct eltwise e = {dnnl_eltwise_linear, 1, 0};
    dnnl_memory_desc_t as_row;
    dnnl_post_ops_t po = NULL;
    dnnl_eltwise_desc_t desc;
    dnnl_status_t rc = dnnl_post_ops_create(&po);

    *out = NULL;
    if (op->act == DEV_ACT_HARDSIGMOID) {
        const dnnl_dims_t row = {1, md->dims[0]};

        e = (struct eltwise){dnnl_eltwise_linear, op->act_p0, op->act_p1};
        if (rc == dnnl_success && md->ndims == 1) { /* oneDNN 2.6 gives nonsense for one axis */
            rc = dnnl_memory_desc_reshape(&as_row, md, 2, row);
            md = &as_row;
        }
        if (rc == dnnl_success)
            rc = dnnl_post_ops_append_eltwise(po, 1.0f, dnnl_eltwise_clip, 0, 1);
    } else if (op->act != DEV_ACT_NONE) {
        eltwise_of(op->act, op->act_p0, op->act_p1, &e);
    }
    if (rc == dnnl_success)
        rc = dnnl_eltwise_forward_desc_init(&desc, dnnl_forward_training, e.alg, md, e.alpha,
                                            e.beta);
    if (rc == dnnl_success)
        rc = cpu__pd(b, &desc, po, NULL, out);
    dnnl_post_ops_destroy(po);
    return cpu__status(b, rc, "activation");
}

int cpu__act_in_place(struct cpu_build *b, struct cpu_ref at, const dnnl_memory_desc_t *md)
{
    const struct cpu_bind binds[] = {{DNNL_ARG_SRC, at, md}, {DNNL_ARG_DST, at, md}};
    dnnl_primitive_desc_t pd;

    if (b->op->act == DEV_ACT_NONE || cpu__failed(b))
        return b->err->rc;
    if (cpu__act_is_own(b->op->act))
        return own_step(b, at, at, dnnl_memory_desc_get_size(md));
    act_pd(b, md, &pd);
    return cpu__step_prim(b, pd, binds, 2);
}

/* The layout to work in: that of the input, unless oneDNN has only its slow loops for it (a padded
 * layout where f(0) is not 0). *pd: OWNED. */
static int choose_act(struct cpu_build *b, uint32_t x, const dnnl_memory_desc_t **md,
                      dnnl_primitive_desc_t *pd)
{
    const struct cpu_tensor *t = &b->plan->tensors[x];
    int rc;

    *md = &t->lay->md;
    rc = act_pd(b, *md, pd);
    if (rc || !t->is_blocked || !cpu__pd_is_slow(*pd))
        return rc;
    dnnl_primitive_desc_destroy(*pd);
    *md = &t->lay->plain;
    return act_pd(b, *md, pd);
}

int cpu__act(struct cpu_build *b)
{
    const struct dev_op *op = b->op;
    const uint32_t all[] = {op->in[0], op->out[0]};
    const bool own = cpu__act_is_own(op->act);
    const dnnl_memory_desc_t *md = layout_of(b, op->in[0]);
    dnnl_primitive_desc_t pd = NULL;
    struct cpu_ref x, y;

    cpu__need_f32(b, all, 2);
    if (cpu__same_shape(b, op->in[0], op->out[0]))
        return b->err->rc;
    if (own && !keeps_zero(op->act))
        md = &b->plan->tensors[op->in[0]].lay->plain;
    if (!own)
        choose_act(b, op->in[0], &md, &pd);
    x = cpu__in(b, op->in[0], NULL, md);
    y = cpu__out(b, op->out[0], md, true);
    return own ? own_step(b, x, y, dnnl_memory_desc_get_size(md))
               : cpu__step_prim(
                     b, pd,
                     (const struct cpu_bind[]){{DNNL_ARG_SRC, x, NULL}, {DNNL_ARG_DST, y, NULL}},
                     2);
}

/* ------------------------------------------------------------------ activation gradients */

struct act_bwd_ctx {
    const struct dev_op *op;
    const float *x, *dy;
    float *dx;
};

#define EACH(ACT, SLOPE)                      \
    case DEV_ACT_##ACT:                       \
        for (int64_t i = from; i < to; i++) { \
            const float x = c->x[i];          \
            c->dx[i] = c->dy[i] * (SLOPE);    \
        }                                     \
        break

/* What oneDNN has no gradient for, or another at 0 (SQRT); plain memory. */
static void act_bwd_range(void *ctx, int64_t from, int64_t to)
{
    const struct act_bwd_ctx *c = ctx;
    const float p0 = c->op->act_p0, p1 = c->op->act_p1;
    const float two_over_sqrt_pi = 1.1283791670955126f;

    switch (c->op->act) {
        EACH(ERF, two_over_sqrt_pi * expf(-x * x));
        EACH(HARDSIGMOID, p0 * x + p1 > 0 && p0 * x + p1 < 1 ? p0 : 0);
        EACH(LOG, 1 / x);
        EACH(SQRT, x == 0 ? 0 : 0.5f / sqrtf(x));
        EACH(SOFTPLUS, 1 / (1 + expf(-x)));
        EACH(SIN, cosf(x));
        EACH(COS, -sinf(x));
        EACH(TAN, 1 / (cosf(x) * cosf(x)));
        EACH(ASIN, 1 / sqrtf(1 - x * x));
        EACH(ACOS, -1 / sqrtf(1 - x * x));
        EACH(ATAN, 1 / (1 + x * x));
        EACH(SINH, coshf(x));
        EACH(COSH, sinhf(x));
        EACH(ASINH, 1 / sqrtf(x * x + 1));
        EACH(ACOSH, 1 / sqrtf(x * x - 1));
        EACH(ATANH, 1 / (1 - x * x));
    default: /* steps: flat wherever they have a slope */
        memset(c->dx + from, 0, (size_t)(to - from) * sizeof(float));
        break;
    }
}
#undef EACH

/* p: x d_y d_x; aux: number of floats */
static void act_bwd_fn(const struct cpu_call *c)
{
    struct act_bwd_ctx a = {.op = c->op, .x = c->p[0], .dy = c->p[1], .dx = c->p[2]};

    cpu__parallel(c->threads, *(const int64_t *)c->aux, GRAIN / 4, act_bwd_range, &a);
}

static int own_act_bwd(struct cpu_build *b)
{
    const struct dev_op *op = b->op;
    const int64_t n = dev_tensor_elements(cpu__t(b, op->in[0]));
    struct cpu_ref refs[3];

    refs[0] = cpu__in_plain(b, op->in[0]);
    refs[1] = cpu__in_plain(b, op->in[2]);
    refs[2] = cpu__out_plain(b, op->out[0]);
    return cpu__step_fn(b, act_bwd_fn, refs, 3, &n, sizeof(n));
}

static int act_bwd_pd(struct cpu_build *b, const struct eltwise *e, const dnnl_memory_desc_t *md,
                      dnnl_primitive_desc_t *out)
{
    dnnl_eltwise_desc_t fwd, bwd;
    dnnl_primitive_desc_t hint = NULL;
    dnnl_status_t rc;

    *out = NULL;
    rc = dnnl_eltwise_forward_desc_init(&fwd, dnnl_forward_training, e->alg, md, e->alpha, e->beta);
    if (rc == dnnl_success)
        rc = cpu__pd(b, &fwd, NULL, NULL, &hint);
    if (rc == dnnl_success)
        rc = dnnl_eltwise_backward_desc_init(&bwd, e->alg, md, md, e->alpha, e->beta);
    if (rc == dnnl_success)
        rc = cpu__pd(b, &bwd, NULL, hint, out);
    if (hint)
        dnnl_primitive_desc_destroy(hint);
    return cpu__status(b, rc, "activation's gradient");
}

int cpu__act_bwd(struct cpu_build *b)
{
    const struct dev_op *op = b->op;
    const uint32_t all[] = {op->in[0], op->in[1], op->in[2], op->out[0]};
    const dnnl_memory_desc_t *md = layout_of(b, op->in[2]);
    dnnl_primitive_desc_t pd = NULL;
    struct eltwise e = {dnnl_eltwise_linear, 1, 0};
    struct cpu_ref x, dy, dx;

    cpu__need_f32(b, all, SH_ARRAY_LEN(all));
    for (uint32_t i = 0; i < SH_ARRAY_LEN(all); i++)
        cpu__same_shape(b, op->in[0], all[i]);
    if (cpu__failed(b))
        return b->err->rc;
    if (op->act == DEV_ACT_SQRT ||
        (op->act != DEV_ACT_NONE && !eltwise_of(op->act, op->act_p0, op->act_p1, &e)))
        return own_act_bwd(b);
    if (act_bwd_pd(b, &e, md, &pd) == SH_OK && cpu__pd_is_slow(pd)) {
        dnnl_primitive_desc_destroy(pd);
        md = &b->plan->tensors[op->in[2]].lay->plain;
        act_bwd_pd(b, &e, md, &pd);
    }
    x = cpu__in(b, op->in[0], NULL, md);
    dy = cpu__in(b, op->in[2], NULL, md);
    dx = cpu__out(b, op->out[0], md, true);
    return cpu__step_prim(b, pd,
                          (const struct cpu_bind[]){{DNNL_ARG_SRC, x, NULL},
                                                    {DNNL_ARG_DIFF_DST, dy, NULL},
                                                    {DNNL_ARG_DIFF_SRC, dx, NULL}},
                          3);
}
