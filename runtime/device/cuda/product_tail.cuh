/* product_tail.cuh - what follows a sum of products of integers (product.cu): factor, offset,
 * rounding in between, residual, activation, and how the result is stored.
 *
 * finish() takes everything, and decides for each result again what there is; a finisher knows that
 * before. Sums come in fours, of neighbouring channels, or alone.
 */
#ifndef SH_RUNTIME_DEVICE_CUDA_PRODUCT_TAIL_CUH
#define SH_RUNTIME_DEVICE_CUDA_PRODUCT_TAIL_CUH

#include "runtime/device/cuda/act.cuh"
#include "runtime/device/cuda/kernels_quant.h"
#include "runtime/device/cuda/nest.cuh"

// 1.5 * 2^23: what is added to it is rounded, and stands in the low bits.
#define ROUNDER 12582912.0f

struct tail {
    const float *factor, *offset; // offset NULL: 0
    const int32_t *sums;          // NULL: 0
    k_operand residual, y;        // residual.p NULL: none
    float residual_scale, residual_zero;
    float mid, mid_inverse, mid_lo, mid_hi; // mid 0: none
    float y_inverse, y_lo, y_hi;            // the ends less the zero point
    uint32_t y_zero4;
    act_of act;
    int is_rough; // GELU, its tanh good to 11 bits
    int kind;     // of finisher, below
    // What finishers take.
    float floor;                               // RELU: 0, else -Inf
    float in_scale, in_shift;                  // of factor and offset
    uint32_t residual_flip4;                   // makes U8 of I8
    float residual_base;                       // 2^23 and the zero point then
    float residual_step, mid_scale, gelu_step; // in windows of y
    float mid_base;                            // ROUNDER and the least number
    float y_span, y_shift, y_base;             // the window, minus low in spans, ROUNDER and low
    int y_bias;                                // what makes I8 of the bits of such a number
    uint32_t y_flip4;                          // makes U8 of I8
};

static inline tail tail_of(const struct k_product *k)
{
    tail t = {};

    t.factor = k->factor;
    t.offset = k->offset;
    t.sums = k->sums;
    t.residual = k->residual;
    t.y = k->y;
    t.residual_scale = is_byte(k->residual.type) ? k->residual_q.scale : 1;
    t.residual_zero = is_byte(k->residual.type) ? (float)k->residual_q.zero : 0;
    t.mid = k->mid.scale;
    if (k->mid.scale != 0) {
        const int lo = k->mid_is_signed ? -128 : 0;

        t.mid_inverse = 1 / k->mid.scale;
        t.mid_lo = (float)(lo - k->mid.zero);
        t.mid_hi = (float)(lo + 255 - k->mid.zero);
    }
    if (is_byte(k->y.type)) {
        const int lo = k->y.type == CUDA_T_I8 ? -128 : 0;

        t.y_inverse = 1 / k->y_q.scale;
        t.y_lo = (float)(lo - k->y_q.zero);
        t.y_hi = (float)(lo + 255 - k->y_q.zero);
        t.y_zero4 = (uint32_t)(uint8_t)k->y_q.zero * 0x01010101u;
    }
    t.act = {k->act, k->p0, k->p1};
    t.is_rough = k->is_rough;
    return t;
}

// NaN becomes lo.
DEV_INLINE float clamped(float v, float lo, float hi)
{
    return fminf(fmaxf(v, lo), hi);
}

DEV_INLINE float byte_of(uint32_t word, int i, bool is_signed)
{
    const uint32_t b = word >> 8 * i & 0xff;

    return is_signed ? (float)(int8_t)b : (float)b;
}

// v += residual at `at`, V neighbours.
template <int V> DEV_INLINE void add_residual(const tail &t, int64_t at, float (&v)[V])
{
    if (is_byte(t.residual.type)) {
        uint32_t word;

        if constexpr (V == 4)
            word = *reinterpret_cast<const uint32_t *>((const uint8_t *)t.residual.p + at);
        else
            word = ((const uint8_t *)t.residual.p)[at];
#pragma unroll
        for (int i = 0; i < V; i++)
            v[i] += t.residual_scale *
                    (byte_of(word, i, t.residual.type == CUDA_T_I8) - t.residual_zero);
        return;
    }
    if (V == 4 && t.residual.type != CUDA_T_F32) {
        const uint2 w = *reinterpret_cast<const uint2 *>((const uint16_t *)t.residual.p + at);
        const float2 a = halves(t.residual.type, w.x), b = halves(t.residual.type, w.y);

        v[0] += a.x;
        v[V > 1 ? 1 : 0] += a.y;
        v[V > 2 ? 2 : 0] += b.x;
        v[V > 3 ? 3 : 0] += b.y;
        return;
    }
#pragma unroll
    for (int i = 0; i < V; i++)
        v[i] += load1(t.residual, at + i);
}

template <int V> DEV_INLINE void store(const tail &t, int64_t at, float (&v)[V])
{
    if (is_byte(t.y.type)) {
        uint32_t word = 0;

#pragma unroll
        for (int i = 0; i < V; i++)
            word |= (__float_as_uint(clamped(v[i] * t.y_inverse, t.y_lo, t.y_hi) + ROUNDER) & 0xff)
                    << 8 * i;
        word = __vadd4(word, t.y_zero4);
        if constexpr (V == 4)
            *reinterpret_cast<uint32_t *>((uint8_t *)t.y.p + at) = word;
        else
            ((uint8_t *)t.y.p)[at] = (uint8_t)word;
        return;
    }
    if constexpr (V == 4) {
        if (t.y.type == CUDA_T_F32)
            store_f<4>((float *)t.y.p + at, v);
        else if (t.y.type == CUDA_T_F16)
            store_f<4>((f16 *)t.y.p + at, v);
        else
            store_f<4>((bf16 *)t.y.p + at, v);
    } else {
        store1(t.y, at, v[0]);
    }
}

DEV_INLINE float rough_tanh(float x)
{
    float y;

    asm("tanh.approx.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}
DEV_INLINE float rough_gelu(float x)
{
    return 0.5f * x * (1 + rough_tanh(act_gelu_inner(x)));
}

// Results of V neighbouring channels, the first at `at`.
template <int V>
DEV_INLINE void finish(const tail &t, const int32_t (&sum)[V], const float (&factor)[V],
                       const float (&offset)[V], int64_t at)
{
    float v[V];

    if (t.y.type == CUDA_T_I32) {
#pragma unroll
        for (int i = 0; i < V; i++)
            ((int32_t *)t.y.p)[at + i] = sum[i];
        return;
    }
#pragma unroll
    for (int i = 0; i < V; i++)
        v[i] = factor[i] * (float)sum[i] + offset[i];
    if (t.mid != 0)
#pragma unroll
        for (int i = 0; i < V; i++)
            v[i] = t.mid * (clamped(v[i] * t.mid_inverse, t.mid_lo, t.mid_hi) + ROUNDER - ROUNDER);
    if (t.residual.p)
        add_residual<V>(t, at, v);
    if (t.is_rough) {
#pragma unroll
        for (int i = 0; i < V; i++)
            v[i] = rough_gelu(v[i]);
    } else {
        apply_act<V>(t.act, v);
    }
    store<V>(t, at, v);
}

#endif
