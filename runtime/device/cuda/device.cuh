/* device.cuh - what every kernel of this folder uses: conversion, vectors, reductions, dispatch.
 *
 * Rounding: from_f rounds to nearest even. F16 and BF16 saturate FINITE values at their largest
 * number; Inf and NaN stay. Integers: nearest towards zero, clamped, NaN becomes 0. Gradients do
 * not saturate in F16 (grad_f, store_grad): what is too large becomes Inf, by which a scaler sees
 * that its factor is too large.
 *
 * The block reductions need every thread of the block and end with a barrier before the shared
 * memory may be used again; all threads get the result. Their order of summation is fixed.
 */
#ifndef SH_RUNTIME_DEVICE_CUDA_DEVICE_CUH
#define SH_RUNTIME_DEVICE_CUDA_DEVICE_CUH

#include "runtime/device/cuda/kernels.h"

#include <cfloat>
#include <climits>
#include <cmath>
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <type_traits>

#define DEV_INLINE __device__ __forceinline__
#define WARP 32

using f16 = __half;
using bf16 = __nv_bfloat16;

/* ------------------------------------------------------------------ conversion */

DEV_INLINE float to_f(float v)
{
    return v;
}
DEV_INLINE float to_f(f16 v)
{
    return __half2float(v);
}
DEV_INLINE float to_f(bf16 v)
{
    return __bfloat162float(v);
}
template <class T> DEV_INLINE float to_f(T v) /* integers and double */
{
    return (float)v;
}

/* v clamped to [-limit, limit] if it is finite. */
DEV_INLINE float clamp_finite(float v, float limit)
{
    return fabsf(v) <= FLT_MAX ? fminf(fmaxf(v, -limit), limit) : v;
}

template <class T> struct from_f_ {
    static DEV_INLINE T of(float v) /* int32_t, int8_t, uint8_t */
    {
        const int i = __float2int_rz(v); /* clamps; NaN gives 0 */
        const int lo = sizeof(T) == 4 ? INT_MIN : (T)-1 < (T)0 ? -128 : 0;
        const int hi = sizeof(T) == 4 ? INT_MAX : (T)-1 < (T)0 ? 127 : 255;

        return (T)(i < lo ? lo : i > hi ? hi : i);
    }
};
template <> struct from_f_<float> {
    static DEV_INLINE float of(float v)
    {
        return v;
    }
};
template <> struct from_f_<double> {
    static DEV_INLINE double of(float v)
    {
        return v;
    }
};
template <> struct from_f_<f16> {
    static DEV_INLINE f16 of(float v)
    {
        return __float2half_rn(clamp_finite(v, 65504.0f));
    }
};
template <> struct from_f_<bf16> {
    static DEV_INLINE bf16 of(float v)
    {
        return __float2bfloat16_rn(clamp_finite(v, 3.3895313892515355e38f));
    }
};
struct f16_open { /* F16 that does not saturate */
    f16 h;
    f16_open() = default;
    DEV_INLINE f16_open(f16 v) : h(v)
    {
    }
};
template <> struct from_f_<f16_open> {
    static DEV_INLINE f16_open of(float v)
    {
        return __float2half_rn(v);
    }
};
template <> struct from_f_<int64_t> {
    static DEV_INLINE int64_t of(float v)
    {
        return v != v ? 0 : (int64_t)__float2ll_rz(v);
    }
};
template <class T> DEV_INLINE T from_f(float v)
{
    return from_f_<T>::of(v);
}

/* As a gradient of type T is stored. */
template <class T> struct grad_ {
    using type = T;
};
template <> struct grad_<f16> {
    using type = f16_open;
};
template <class T> using grad = typename grad_<T>::type;
template <class T> DEV_INLINE T grad_f(float v)
{
    const grad<T> g = from_f<grad<T>>(v);

    return *reinterpret_cast<const T *>(&g);
}

/* ------------------------------------------------------------------ vectors */

template <class T, int N> struct alignas(sizeof(T) * N < 16 ? sizeof(T) * N : 16) vec {
    T v[N];
};
/* Elements of T in 16 bytes. */
template <class T> constexpr int VEC = 16 / (int)sizeof(T);

/* p: aligned to min(N * sizeof(T), 16); N a power of two. */
template <int N, class T> DEV_INLINE vec<T, N> load_vec(const T *p)
{
    return *reinterpret_cast<const vec<T, N> *>(p);
}
template <int N, class T> DEV_INLINE void store_vec(T *p, const vec<T, N> &v)
{
    *reinterpret_cast<vec<T, N> *>(p) = v;
}
template <int N, class T> DEV_INLINE void load_f(const T *p, float (&out)[N])
{
    const vec<T, N> v = load_vec<N>(p);

#pragma unroll
    for (int i = 0; i < N; i++)
        out[i] = to_f(v.v[i]);
}
/* Two numbers of 16 bits, not clamped. */
DEV_INLINE __half2 pair_of(f16, float a, float b)
{
    return __floats2half2_rn(a, b);
}
DEV_INLINE __half2 pair_of(f16_open, float a, float b)
{
    return __floats2half2_rn(a, b);
}
DEV_INLINE __nv_bfloat162 pair_of(bf16, float a, float b)
{
    return __floats2bfloat162_rn(a, b);
}

/* What from_f gives for each. Pairs of 16-bit numbers are converted at once, which leaves out the
 * clamp; if any of them came out as Inf, which is rare, all are converted again. */
template <class T, int N> DEV_INLINE vec<T, N> vec_from_f(const float (&in)[N])
{
    bool is_done = false;
    vec<T, N> v;

    if constexpr (sizeof(T) == 2 && N % 2 == 0) {
        using pair = decltype(pair_of(T(), 0.0f, 0.0f));
        pair largest = pair_of(T(), 0, 0);

#pragma unroll
        for (int i = 0; i < N; i += 2) {
            const pair p = pair_of(T(), in[i], in[i + 1]);

            v.v[i] = p.x;
            v.v[i + 1] = p.y;
            largest = __hmax2(largest, __habs2(p));
        }
        is_done =
            std::is_same<T, f16_open>::value || __hblt2(largest, pair_of(T(), INFINITY, INFINITY));
    }
    if (!is_done) {
#pragma unroll
        for (int i = 0; i < N; i++)
            v.v[i] = from_f<T>(in[i]);
    }
    return v;
}
template <int N, class T> DEV_INLINE void store_f(T *p, const float (&in)[N])
{
    store_vec<N>(p, vec_from_f<T>(in));
}
/* The same of gradients. */
template <class T, int N> DEV_INLINE vec<T, N> vec_of_grad(const float (&in)[N])
{
    const vec<grad<T>, N> v = vec_from_f<grad<T>>(in);

    return *reinterpret_cast<const vec<T, N> *>(&v);
}
template <int N, class T> DEV_INLINE void store_grad(T *p, const float (&in)[N])
{
    store_vec<N>(p, vec_of_grad<T>(in));
}

/* ------------------------------------------------------------------ reductions */

/* The larger (smaller); NaN if either is. */
DEV_INLINE float max_nan(float a, float b)
{
    return a > b || a != a ? a : b;
}
DEV_INLINE float min_nan(float a, float b)
{
    return a < b || a != a ? a : b;
}

/* Every lane of the warp takes part and gets the result. */
template <class T> DEV_INLINE T warp_sum(T v)
{
#pragma unroll
    for (int d = WARP / 2; d > 0; d /= 2)
        v += __shfl_xor_sync(0xffffffffu, v, d);
    return v;
}
DEV_INLINE float warp_max(float v)
{
#pragma unroll
    for (int d = WARP / 2; d > 0; d /= 2)
        v = max_nan(v, __shfl_xor_sync(0xffffffffu, v, d));
    return v;
}

/* THREADS: of the block, a multiple of WARP, at most 1024; smem: THREADS / WARP numbers. */
template <int THREADS, class T> DEV_INLINE T block_sum(T v, T *smem)
{
    T all = 0;

    v = warp_sum(v);
    if (THREADS == WARP)
        return v;
    if (threadIdx.x % WARP == 0)
        smem[threadIdx.x / WARP] = v;
    __syncthreads();
#pragma unroll
    for (int i = 0; i < THREADS / WARP; i++)
        all += smem[i];
    __syncthreads();
    return all;
}
template <int THREADS> DEV_INLINE float block_max(float v, float *smem)
{
    float all;

    v = warp_max(v);
    if (THREADS == WARP)
        return v;
    if (threadIdx.x % WARP == 0)
        smem[threadIdx.x / WARP] = v;
    __syncthreads();
    all = smem[0];
#pragma unroll
    for (int i = 1; i < THREADS / WARP; i++)
        all = max_nan(all, smem[i]);
    __syncthreads();
    return all;
}

/* ------------------------------------------------------------------ launching */

static inline int64_t cdiv64(int64_t a, int64_t b)
{
    return (a + b - 1) / b;
}

/* Runs the statements with T naming the C++ type of `type`; a builder has refused all others.
 *     DISPATCH_FLOAT(type, T, kernel<T><<<grid, block, 0, s>>>((const T *)x, n)); */
#define DISPATCH_CASE_(value, type, T, ...) \
    case value: {                           \
        using T = type;                     \
        __VA_ARGS__;                        \
        break;                              \
    }
#define DISPATCH_FLOAT(type, T, ...)                      \
    switch (type) {                                       \
        DISPATCH_CASE_(CUDA_T_F32, float, T, __VA_ARGS__) \
        DISPATCH_CASE_(CUDA_T_F16, f16, T, __VA_ARGS__)   \
        DISPATCH_CASE_(CUDA_T_BF16, bf16, T, __VA_ARGS__) \
    default:                                              \
        break;                                            \
    }

#endif
