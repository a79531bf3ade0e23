/* product_finish.cuh - finishers: what is known of a tail (product_tail.cuh) before the first
 * result, so that nothing is decided for each of them.
 *
 * A finisher takes sums of neighbouring channels, four at a time, with what finishes a channel:
 * t.in_scale and t.in_shift are already in its factor and offset.
 *
 * Roundings to bytes go through a window, [low, low + span] in steps: what lies outside is cut off
 * by the saturation of an FMA to [0, 1], which costs nothing, and a span that is a power of two
 * leaves halves what they were. A RELU is a window that begins at 0.
 */
#ifndef SH_RUNTIME_DEVICE_CUDA_PRODUCT_FINISH_CUH
#define SH_RUNTIME_DEVICE_CUDA_PRODUCT_FINISH_CUH

#include "runtime/device/cuda/product_tail.cuh"

enum { NO_RESIDUAL, BYTES, SAME }; // of the residual; SAME: the type of y

DEV_INLINE float fma_sat(float a, float b, float c) // NaN becomes 0
{
    float d;

    asm("fma.rn.sat.f32 %0, %1, %2, %3;" : "=f"(d) : "f"(a), "f"(b), "f"(c));
    return d;
}
DEV_INLINE float max_or_nan(float a, float b)
{
    float d;

    asm("max.NaN.f32 %0, %1, %2;" : "=f"(d) : "f"(a), "f"(b));
    return d;
}
// The nearest I8 to each, the first in the lowest byte.
DEV_INLINE uint32_t pack4(const int (&v)[4])
{
    uint32_t high, all;

    asm("cvt.pack.sat.s8.s32.b32 %0, %1, %2, 0;" : "=r"(high) : "r"(v[3]), "r"(v[2]));
    asm("cvt.pack.sat.s8.s32.b32 %0, %1, %2, %3;" : "=r"(all) : "r"(v[1]), "r"(v[0]), "r"(high));
    return all;
}

template <class T, int RESIDUAL, bool MID, bool ROUGH> struct finisher {
    using Y = T;

    // less base, a whole number
    static DEV_INLINE float residual_at(const tail &t, uint32_t word, int i)
    {
        return __uint_as_float(__byte_perm(word, 0x4b000000u, 0x7540u + i)) - t.residual_base;
    }

    // From 0 (low) to 1 (low + span).
    static DEV_INLINE float in_window(const tail &t, float sum, float factor, float offset,
                                      uint32_t residual, int i)
    {
        if constexpr (MID) {
            float v = fminf(fma_sat(sum, factor, offset), 255.0f / 256);

            v = fmaf(v, 256, t.mid_base) - ROUNDER;
            if constexpr (RESIDUAL == BYTES)
                return fma_sat(v, t.mid_scale,
                               fmaf(residual_at(t, residual, i), t.residual_step, t.y_shift));
            return fma_sat(v, t.mid_scale, t.y_shift);
        }
        if constexpr (ROUGH) {
            const float v = fmaf(sum, factor, offset), half = v * t.gelu_step;

            return fma_sat(half, rough_tanh(act_gelu_inner(v)), half + t.y_shift);
        }
        if constexpr (RESIDUAL == BYTES)
            return fma_sat(sum, factor, fmaf(residual_at(t, residual, i), t.residual_step, offset));
        return fma_sat(sum, factor, offset);
    }

    static DEV_INLINE uint32_t bytes(const tail &t, const int32_t (&sum)[4],
                                     const float (&factor)[4], const float (&offset)[4],
                                     uint32_t residual)
    {
        int v[4];

#pragma unroll
        for (int i = 0; i < 4; i++) {
            const float at = in_window(t, (float)sum[i], factor[i], offset[i], residual, i);

            v[i] = (int)__float_as_uint(fmaf(at, t.y_span, t.y_base)) + t.y_bias;
        }
        return pack4(v) ^ t.y_flip4;
    }

    static DEV_INLINE void floats(const tail &t, const int32_t (&sum)[4], const float (&factor)[4],
                                  const float (&offset)[4], const uint2 &residual, float (&v)[4])
    {
        const float2 low = halves(t.y.type, residual.x), high = halves(t.y.type, residual.y);
        const float add[4] = {low.x, low.y, high.x, high.y};

#pragma unroll
        for (int i = 0; i < 4; i++) {
            v[i] = fmaf((float)sum[i], factor[i], offset[i]);
            if constexpr (RESIDUAL == SAME)
                v[i] += add[i];
            v[i] = max_or_nan(v[i], t.floor);
        }
    }
};

enum { // what finishers there are
    GENERIC,
    BYTES_ALONE,
    BYTES_MID,
    BYTES_SUM,
    BYTES_MID_SUM,
    BYTES_GELU,
    F16_ALONE,
    F16_SUM,
    BF16_ALONE,
    BF16_SUM
};

// Neighbouring channels of a row that a thread has: 16 bytes of y.
static inline int width_of(int kind)
{
    return kind == GENERIC ? 2 : kind < F16_ALONE ? 16 : 8;
}

// The finisher that serves.
static inline int kind_of(int64_t channels, const tail &t)
{
    const bool has_sum = t.residual.p, is_half = t.y.type == CUDA_T_F16 || t.y.type == CUDA_T_BF16;
    const bool is_short = t.act.kind == DEV_ACT_NONE || t.act.kind == DEV_ACT_RELU;

    if (channels % (is_half ? 8 : 16) != 0)
        return GENERIC;
    if (is_byte(t.y.type) && t.is_rough)
        return has_sum || t.mid != 0 ? GENERIC : BYTES_GELU;
    if (!is_short || (is_byte(t.y.type) && has_sum && !is_byte(t.residual.type)))
        return GENERIC;
    if (is_byte(t.y.type) && has_sum)
        return t.mid != 0 ? BYTES_MID_SUM : BYTES_SUM;
    if (is_byte(t.y.type))
        return t.mid != 0 ? BYTES_MID : BYTES_ALONE;
    if (!is_half || t.mid != 0 || (has_sum && t.residual.type != t.y.type))
        return GENERIC;
    if (t.y.type == CUDA_T_F16)
        return has_sum ? F16_SUM : F16_ALONE;
    return has_sum ? BF16_SUM : BF16_ALONE;
}

static inline void set_window(tail *t, const struct k_product *k)
{
    const bool is_relu = k->act == DEV_ACT_RELU, is_signed = k->y.type == CUDA_T_I8;
    const float low = is_relu ? 0 : -256;
    const uint32_t rounder = 0x4b400000u; // the bits of ROUNDER

    t->y_span = is_relu ? 256 : 512;
    t->y_shift = -low / t->y_span;
    t->y_base = ROUNDER + low;
    t->y_bias = k->y_q.zero - (is_signed ? 0 : 128) - (int)rounder;
    t->y_flip4 = is_signed ? 0 : 0x80808080u;
    t->in_scale = t->y_inverse / t->y_span;
    t->in_shift = t->y_shift;
    t->residual_step = t->residual_scale * t->in_scale;
    t->residual_flip4 = k->residual.type == CUDA_T_I8 ? 0x80808080u : 0;
    t->residual_base = 8388608 + t->residual_zero + (k->residual.type == CUDA_T_I8 ? 128 : 0);
    if (t->kind == BYTES_GELU) {
        t->gelu_step = 0.5f * t->in_scale;
        t->in_scale = 1;
        t->in_shift = 0;
    }
    if (t->mid != 0) {
        t->mid_scale = t->mid * t->in_scale;
        t->mid_base = ROUNDER + t->mid_lo;
        t->in_scale = t->mid_inverse / 256;
        t->in_shift = -t->mid_lo / 256;
    }
}

// Chooses a finisher and prepares what it takes.
static inline void set_finisher(tail *t, int64_t channels, const struct k_product *k)
{
    t->kind = kind_of(channels, *t);
    t->floor = k->act == DEV_ACT_RELU ? 0 : -INFINITY;
    t->in_scale = 1;
    if (width_of(t->kind) == 16)
        set_window(t, k);
}

#endif
