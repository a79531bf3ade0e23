/* act.cuh - enum dev_act on the device: values and slopes.
 *
 * Full precision for all storage types (erff, expf, tanhf without fast-math): the kernels that use
 * these wait for memory. NaN passes through every activation. What is rare or long (pow, log, sin)
 * is one function that is called, so that it costs the other activations no registers.
 */
#ifndef SH_RUNTIME_DEVICE_CUDA_ACT_CUH
#define SH_RUNTIME_DEVICE_CUDA_ACT_CUH

#include "runtime/device/cuda/device.cuh"
#include "runtime/device/op_elem.h"

struct act_of { /* what dev_op says */
    int kind;   /* enum dev_act */
    float p0, p1;
};

#define ACT_SQRT_2_OVER_PI 0.7978845608028654f
#define ACT_SQRT_HALF 0.7071067811865476f

DEV_INLINE float act_clamp(float v, float lo, float hi) /* NaN stays */
{
    float least, clamped;

    asm("max.NaN.f32 %0, %1, %2;" : "=f"(least) : "f"(v), "f"(lo));
    asm("min.NaN.f32 %0, %1, %2;" : "=f"(clamped) : "f"(least), "f"(hi));
    return clamped;
}
DEV_INLINE float act_sigmoid(float x)
{
    return 1.0f / (1.0f + expf(-x));
}
DEV_INLINE float act_gelu_inner(float x)
{
    return ACT_SQRT_2_OVER_PI * (x + 0.044715f * x * x * x);
}

DEV_INLINE float act_softplus(float x)
{
    return (x > 0 ? x : x <= 0 ? 0.0f : x) + log1pf(expf(-fabsf(x)));
}

static __device__ __noinline__ float act_rare(int kind, float p0, float x)
{
    switch (kind) {
    case DEV_ACT_LOG:
        return logf(x);
    case DEV_ACT_ERF:
        return erff(x);
    case DEV_ACT_POW:
        return powf(x, p0);
    case DEV_ACT_ELU:
        return x > 0 ? x : p0 * expm1f(x);
    case DEV_ACT_SOFTPLUS:
        return act_softplus(x);
    case DEV_ACT_SIN:
        return sinf(x);
    case DEV_ACT_COS:
        return cosf(x);
    case DEV_ACT_TAN:
        return tanf(x);
    case DEV_ACT_ASIN:
        return asinf(x);
    case DEV_ACT_ACOS:
        return acosf(x);
    case DEV_ACT_ATAN:
        return atanf(x);
    case DEV_ACT_SINH:
        return sinhf(x);
    case DEV_ACT_COSH:
        return coshf(x);
    case DEV_ACT_ASINH:
        return asinhf(x);
    case DEV_ACT_ACOSH:
        return acoshf(x);
    case DEV_ACT_ATANH:
        return atanhf(x);
    case DEV_ACT_FLOOR:
        return floorf(x);
    case DEV_ACT_CEIL:
        return ceilf(x);
    case DEV_ACT_ROUND:
        return rintf(x);
    case DEV_ACT_SIGN:
        return x > 0 ? 1.0f : x < 0 ? -1.0f : x;
    default:
        return x;
    }
}

#define ACT_EACH(EXPR)                            \
    _Pragma("unroll") for (int i = 0; i < V; i++) \
    {                                             \
        const float x = v[i];                     \
        v[i] = (EXPR);                            \
    }                                             \
    break

/* v = act(v) */
template <int V> DEV_INLINE void apply_act(const struct act_of &a, float (&v)[V])
{
    const float p0 = a.p0, p1 = a.p1;

    switch (a.kind) {
    case DEV_ACT_RELU:
        ACT_EACH(x <= 0 ? 0 : x);
    case DEV_ACT_LEAKY_RELU:
        ACT_EACH(x > 0 ? x : p0 * x);
    case DEV_ACT_CLIP:
        ACT_EACH(act_clamp(x, p0, p1));
    case DEV_ACT_SIGMOID:
        ACT_EACH(act_sigmoid(x));
    case DEV_ACT_TANH:
        ACT_EACH(tanhf(x));
    case DEV_ACT_GELU_ERF:
        ACT_EACH(0.5f * x * (1.0f + erff(x * ACT_SQRT_HALF)));
    case DEV_ACT_GELU_TANH:
        ACT_EACH(0.5f * x * (1.0f + tanhf(act_gelu_inner(x))));
    case DEV_ACT_HARDSIGMOID:
        ACT_EACH(act_clamp(p0 * x + p1, 0, 1));
    case DEV_ACT_HARDSWISH:
        ACT_EACH(x * act_clamp(x / 6 + 0.5f, 0, 1));
    case DEV_ACT_SILU:
        ACT_EACH(x * act_sigmoid(x));
    case DEV_ACT_EXP:
        ACT_EACH(expf(x));
    case DEV_ACT_SQRT:
        ACT_EACH(sqrtf(x));
    case DEV_ACT_ABS:
        ACT_EACH(fabsf(x));
    case DEV_ACT_NEG:
        ACT_EACH(-x);
    case DEV_ACT_RECIP:
        ACT_EACH(1.0f / x);
    case DEV_ACT_LINEAR:
        ACT_EACH(p0 * x + p1);
    case DEV_ACT_NONE:
        break;
    default:
        ACT_EACH(act_rare(a.kind, p0, x));
    }
}

/* Which of x and y the slope is computed from. */
DEV_INLINE bool act_slope_needs_x(int kind)
{
    return kind != DEV_ACT_NONE && kind != DEV_ACT_NEG && kind != DEV_ACT_LINEAR &&
           kind != DEV_ACT_SIGMOID && kind != DEV_ACT_TANH && kind != DEV_ACT_EXP &&
           kind != DEV_ACT_SQRT && kind != DEV_ACT_RECIP;
}
DEV_INLINE bool act_slope_needs_y(int kind)
{
    return kind == DEV_ACT_SIGMOID || kind == DEV_ACT_TANH || kind == DEV_ACT_EXP ||
           kind == DEV_ACT_SQRT || kind == DEV_ACT_RECIP;
}

DEV_INLINE float act_gelu_tanh_slope(float x)
{
    const float t = tanhf(act_gelu_inner(x));

    return 0.5f * (1 + t) +
           0.5f * x * (1 - t * t) * ACT_SQRT_2_OVER_PI * (1 + 3 * 0.044715f * x * x);
}
DEV_INLINE float act_gelu_erf_slope(float x)
{
    return 0.5f * (1 + erff(x * ACT_SQRT_HALF)) + x * expf(-0.5f * x * x) * 0.3989422804014327f;
}

DEV_INLINE float act_silu_slope(float x)
{
    const float s = act_sigmoid(x);

    return s * (1 + x * (1 - s));
}

DEV_INLINE float act_hardswish_slope(float x)
{
    return x <= -3 ? 0.0f : x >= 3 ? 1.0f : x / 3 + 0.5f;
}

static __device__ __noinline__ float act_rare_slope(int kind, float p0, float x)
{
    switch (kind) {
    case DEV_ACT_LOG:
        return 1.0f / x;
    case DEV_ACT_ERF:
        return 1.1283791670955126f * expf(-x * x);
    case DEV_ACT_POW:
        return p0 * powf(x, p0 - 1);
    case DEV_ACT_ELU:
        return x > 0 ? 1.0f : p0 * expf(x);
    case DEV_ACT_SOFTPLUS:
        return act_sigmoid(x);
    case DEV_ACT_SIN:
        return cosf(x);
    case DEV_ACT_COS:
        return -sinf(x);
    case DEV_ACT_TAN:
        return 1.0f / (cosf(x) * cosf(x));
    case DEV_ACT_ASIN:
        return 1.0f / sqrtf(1 - x * x);
    case DEV_ACT_ACOS:
        return -1.0f / sqrtf(1 - x * x);
    case DEV_ACT_ATAN:
        return 1.0f / (1 + x * x);
    case DEV_ACT_SINH:
        return coshf(x);
    case DEV_ACT_COSH:
        return sinhf(x);
    case DEV_ACT_ASINH:
        return 1.0f / sqrtf(x * x + 1);
    case DEV_ACT_ACOSH:
        return 1.0f / sqrtf(x * x - 1);
    case DEV_ACT_ATANH:
        return 1.0f / (1 - x * x);
    default: /* steps: flat wherever they have a slope */
        return 0.0f;
    }
}

/* v = v * act'(x), v coming in as the gradient of y. */
#define ACT_EACH_SLOPE(EXPR)                      \
    _Pragma("unroll") for (int i = 0; i < V; i++) \
    {                                             \
        const float x = xs[i], y = ys[i];         \
        (void)x;                                  \
        (void)y;                                  \
        v[i] *= (EXPR);                           \
    }                                             \
    break

template <int V>
DEV_INLINE void apply_act_slope(const struct act_of &a, const float (&xs)[V], const float (&ys)[V],
                                float (&v)[V])
{
    const float p0 = a.p0, p1 = a.p1;

    switch (a.kind) {
    case DEV_ACT_RELU:
        ACT_EACH_SLOPE(x <= 0 ? 0.0f : 1.0f);
    case DEV_ACT_LEAKY_RELU:
        ACT_EACH_SLOPE(x > 0 ? 1.0f : p0);
    case DEV_ACT_CLIP:
        ACT_EACH_SLOPE(x > p0 && x < p1 ? 1.0f : 0.0f);
    case DEV_ACT_SIGMOID:
        ACT_EACH_SLOPE(y * (1 - y));
    case DEV_ACT_TANH:
        ACT_EACH_SLOPE(1 - y * y);
    case DEV_ACT_GELU_ERF:
        ACT_EACH_SLOPE(act_gelu_erf_slope(x));
    case DEV_ACT_GELU_TANH:
        ACT_EACH_SLOPE(act_gelu_tanh_slope(x));
    case DEV_ACT_HARDSIGMOID:
        ACT_EACH_SLOPE(p0 * x + p1 > 0 && p0 * x + p1 < 1 ? p0 : 0.0f);
    case DEV_ACT_HARDSWISH:
        ACT_EACH_SLOPE(act_hardswish_slope(x));
    case DEV_ACT_SILU:
        ACT_EACH_SLOPE(act_silu_slope(x));
    case DEV_ACT_EXP:
        ACT_EACH_SLOPE(y);
    case DEV_ACT_SQRT:
        ACT_EACH_SLOPE(y == 0 ? 0.0f : 0.5f / y);
    case DEV_ACT_ABS:
        ACT_EACH_SLOPE(x > 0 ? 1.0f : x < 0 ? -1.0f : 0.0f);
    case DEV_ACT_NEG:
        ACT_EACH_SLOPE(-1.0f);
    case DEV_ACT_RECIP:
        ACT_EACH_SLOPE(-y * y);
    case DEV_ACT_LINEAR:
        ACT_EACH_SLOPE(p0);
    case DEV_ACT_NONE:
        break;
    default:
        ACT_EACH_SLOPE(act_rare_slope(a.kind, p0, x));
    }
}

#undef ACT_EACH
#undef ACT_EACH_SLOPE

#endif
