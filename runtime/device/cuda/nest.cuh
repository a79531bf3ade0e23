/* nest.cuh - a strided loop nest (struct k_nest) on the device, and operands whose type is known at
 * run time only.
 *
 * Threads enumerate the nest in the order of its axes, so that neighbours store neighbouring
 * elements of operand 0. Two forms: `nest` divides by multiplication and needs fewer than 2^31
 * steps and strides that fit 32 bits; `wide_nest` takes the rest, slowly. A switch on the type is
 * the same for all threads and costs little beside the memory access, so kernels that do little
 * else are not instantiated by type.
 */
#ifndef SH_RUNTIME_DEVICE_CUDA_NEST_CUH
#define SH_RUNTIME_DEVICE_CUDA_NEST_CUH

#include "runtime/device/cuda/device.cuh"

/* ------------------------------------------------------------------ nests */

struct fast_div { /* of numbers below 2^31: (mulhi(n, mul) + n) >> shift */
    uint32_t d, mul, shift;
};

static inline fast_div fast_div_of(uint32_t d)
{
    fast_div f = {d, 0, 0};

    while (((uint64_t)1 << f.shift) < d)
        f.shift++;
    f.mul = (uint32_t)((((uint64_t)1 << 32) * (((uint64_t)1 << f.shift) - d)) / d + 1);
    return f;
}

DEV_INLINE uint32_t quotient(uint32_t n, const fast_div &f)
{
    return (__umulhi(n, f.mul) + n) >> f.shift;
}

template <int N> struct nest { /* N operands */
    int rank;
    fast_div div[K_MAX_RANK];
    int32_t stride[N][K_MAX_RANK];
};
template <int N> struct wide_nest {
    int rank;
    int64_t dims[K_MAX_RANK], stride[N][K_MAX_RANK];
};

/* Offsets of step i, in elements. */
template <int N> DEV_INLINE void locate(const nest<N> &n, uint32_t i, int64_t (&off)[N])
{
#pragma unroll
    for (int k = 0; k < N; k++)
        off[k] = 0;
    for (int a = n.rank - 1; a > 0; a--) {
        const uint32_t q = quotient(i, n.div[a]);
        const int32_t r = (int32_t)(i - q * n.div[a].d);

#pragma unroll
        for (int k = 0; k < N; k++)
            off[k] += (int64_t)r * n.stride[k][a];
        i = q;
    }
#pragma unroll
    for (int k = 0; k < N; k++)
        off[k] += (int64_t)(int32_t)i * n.stride[k][0];
}
template <int N> DEV_INLINE void locate(const wide_nest<N> &n, int64_t i, int64_t (&off)[N])
{
#pragma unroll
    for (int k = 0; k < N; k++)
        off[k] = 0;
    for (int a = n.rank - 1; a > 0; a--) {
        const int64_t q = i / n.dims[a], r = i - q * n.dims[a];

#pragma unroll
        for (int k = 0; k < N; k++)
            off[k] += r * n.stride[k][a];
        i = q;
    }
#pragma unroll
    for (int k = 0; k < N; k++)
        off[k] += i * n.stride[k][0];
}

/* false: only a wide nest holds it. */
template <int N> static inline bool narrow_of(const struct k_nest &from, nest<N> *to)
{
    if (from.total >= INT32_MAX)
        return false;
    to->rank = from.rank;
    for (int a = 0; a < from.rank; a++) {
        to->div[a] = fast_div_of((uint32_t)from.dims[a]);
        for (int k = 0; k < N; k++) {
            if (from.stride[k][a] > INT32_MAX || from.stride[k][a] < INT32_MIN)
                return false;
            to->stride[k][a] = (int32_t)from.stride[k][a];
        }
    }
    return true;
}
template <int N> static inline wide_nest<N> wide_of(const struct k_nest &from)
{
    wide_nest<N> to = {};

    to.rank = from.rank;
    for (int a = 0; a < from.rank; a++) {
        to.dims[a] = from.dims[a];
        for (int k = 0; k < N; k++)
            to.stride[k][a] = from.stride[k][a];
    }
    return to;
}

/* ------------------------------------------------------------------ operands by run-time type */

static inline size_t type_bytes(int type)
{
    return type == CUDA_T_F64 || type == CUDA_T_I64 || type == CUDA_T_U64   ? 8
           : type == CUDA_T_F32 || type == CUDA_T_I32 || type == CUDA_T_U32 ? 4
           : type == CUDA_T_U8 || type == CUDA_T_I8                         ? 1
                                                                            : 2;
}

struct raw8 { /* eight elements as they lie: F32 both, 16 bit lo, 8 bit half of lo */
    uint4 lo, hi;
};

static __host__ __device__ __forceinline__ bool is_byte(int type)
{
    return type == CUDA_T_U8 || type == CUDA_T_I8;
}

/* F32, F16, BF16, U8, I8; p + off aligned to the smaller of 8 elements and 16 bytes. Loading and
 * widening are two calls so that the loads of all operands are under way before the first is used.
 */
DEV_INLINE raw8 load_raw8(const k_operand &o, int64_t off)
{
    raw8 r = {};

    if (o.type == CUDA_T_F32) {
        const uint4 *p = reinterpret_cast<const uint4 *>((const float *)o.p + off);

        r.lo = p[0];
        r.hi = p[1];
    } else if (is_byte(o.type)) {
        const uint2 v = *reinterpret_cast<const uint2 *>((const uint8_t *)o.p + off);

        r.lo.x = v.x;
        r.lo.y = v.y;
    } else {
        r.lo = *reinterpret_cast<const uint4 *>((const uint16_t *)o.p + off);
    }
    return r;
}

DEV_INLINE float2 halves(int type, uint32_t pair)
{
    float2 f;

    if (type == CUDA_T_F16)
        return __half22float2(*reinterpret_cast<const __half2 *>(&pair));
    f.x = __uint_as_float(pair << 16);
    f.y = __uint_as_float(pair & 0xffff0000u);
    return f;
}

DEV_INLINE void widen8(int type, const raw8 &r, float (&v)[8])
{
    const uint32_t w[8] = {r.lo.x, r.lo.y, r.lo.z, r.lo.w, r.hi.x, r.hi.y, r.hi.z, r.hi.w};

    if (type == CUDA_T_F32) {
#pragma unroll
        for (int i = 0; i < 8; i++)
            v[i] = __uint_as_float(w[i]);
    } else if (is_byte(type)) {
        const uint32_t flip = type == CUDA_T_I8 ? 0x80 : 0; /* to 0..255, and back */

#pragma unroll
        for (int i = 0; i < 8; i++)
            v[i] = (float)(int32_t)(((w[i / 4] >> i % 4 * 8 & 0xff) ^ flip) - flip);
    } else {
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const float2 f = halves(type, w[i]);

            v[2 * i] = f.x;
            v[2 * i + 1] = f.y;
        }
    }
}

DEV_INLINE void store8(const k_operand &o, int64_t off, const float (&v)[8])
{
    if (o.type == CUDA_T_F32) {
        float4 *p = reinterpret_cast<float4 *>((float *)o.p + off);

        p[0] = make_float4(v[0], v[1], v[2], v[3]);
        p[1] = make_float4(v[4], v[5], v[6], v[7]);
    } else if (o.type == CUDA_T_F16) {
        if (o.overflows)
            store_grad<8>((f16 *)o.p + off, v);
        else
            store_f<8>((f16 *)o.p + off, v);
    } else if (o.type == CUDA_T_BF16) {
        store_f<8>((bf16 *)o.p + off, v);
    } else if (o.type == CUDA_T_I8) {
        store_f<8>((int8_t *)o.p + off, v);
    } else {
        store_f<8>((uint8_t *)o.p + off, v);
    }
}

DEV_INLINE float load1(const k_operand &o, int64_t off)
{
    if (o.type == CUDA_T_F32)
        return ((const float *)o.p)[off];
    if (o.type == CUDA_T_F16)
        return to_f(((const f16 *)o.p)[off]);
    if (o.type == CUDA_T_BF16)
        return to_f(((const bf16 *)o.p)[off]);
    return o.type == CUDA_T_I8 ? (float)((const int8_t *)o.p)[off]
                               : (float)((const uint8_t *)o.p)[off];
}

DEV_INLINE void store1(const k_operand &o, int64_t off, float v)
{
    if (o.type == CUDA_T_F32)
        ((float *)o.p)[off] = v;
    else if (o.type == CUDA_T_F16)
        ((f16 *)o.p)[off] = o.overflows ? grad_f<f16>(v) : from_f<f16>(v);
    else if (o.type == CUDA_T_BF16)
        ((bf16 *)o.p)[off] = from_f<bf16>(v);
    else if (o.type == CUDA_T_I8)
        ((int8_t *)o.p)[off] = from_f<int8_t>(v);
    else
        ((uint8_t *)o.p)[off] = from_f<uint8_t>(v);
}

/* Eight elements, or (step 0) one for all of them. */
DEV_INLINE void load8(const k_operand &o, int64_t off, int step, float (&v)[8])
{
    if (step) {
        widen8(o.type, load_raw8(o, off), v);
        return;
    }
    v[0] = load1(o, off);
#pragma unroll
    for (int i = 1; i < 8; i++)
        v[i] = v[0];
}

/* ------------------------------------------------------------------ nests in vectors of eight */

template <int N> struct vec_nest {
    nest<N> n;            /* steps of eight elements */
    uint32_t n_vec, tail; /* steps; elements behind them, of a nest of rank 1 */
    int32_t step[N];      /* between neighbouring elements: 0 or 1 */
};

static inline bool is_aligned(const void *p, size_t bytes)
{
    return (uintptr_t)p % bytes == 0;
}

/* false: the innermost axis is not contiguous (or broadcast) in all operands, or not in eights. */
template <int N>
static inline bool vec_of(const struct k_nest &from, const k_operand (&op)[N], vec_nest<N> *to)
{
    const int last = from.rank - 1;
    struct k_nest n = from;

    if (from.rank > 1 && from.dims[last] % 8 != 0)
        return false;
    for (int k = 0; k < N; k++) {
        const int64_t s = from.stride[k][last];

        if (s != 1 && (s != 0 || k == 0))
            return false;
        to->step[k] = (int32_t)s;
        n.stride[k][last] = 8 * s;
        if (s == 1 && !is_aligned(op[k].p, 8 * type_bytes(op[k].type) < 16 ? 8 : 16))
            return false;
        for (int a = 0; a < last && s == 1; a++)
            if (from.stride[k][a] % 8 != 0)
                return false;
    }
    to->n_vec = (uint32_t)(from.total / 8);
    to->tail = (uint32_t)(from.total % 8);
    n.dims[last] = n.dims[last] / 8 > 0 ? n.dims[last] / 8 : 1;
    n.total = from.total / 8 + 8;
    return from.total / 8 < INT32_MAX - 8 && narrow_of(n, &to->n);
}

#endif
