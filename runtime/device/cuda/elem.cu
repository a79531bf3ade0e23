/* elem.cu - element by element: activations, their gradients, binary operations, choices, fills,
 * and the epilogue of products and convolutions.
 *
 * One engine for floats: map_vec reads eight neighbours of each operand at once (contiguous, or one
 * value for all eight), map_each reads one element by its strides. Operands may be F32, F16, BF16
 * in any mixture, in any layout. Equal shapes, a vector over the innermost axis, scalars and
 * [N,C,1,1] over NHWC images all take map_vec as long as the innermost merged axis is a multiple
 * of eight; odd widths and operands of another layout take map_each. Integers have strided kernels
 * of their own, one element per thread.
 */
#include "runtime/device/cuda/act.cuh"
#include "runtime/device/cuda/kernels_quant.h"
#include "runtime/device/cuda/nest.cuh"

#define THREADS 256

/* ------------------------------------------------------------------ the engine */

template <int N> struct operands { /* 0: the result; 1..: what it is computed from */
    k_operand at[N + 1];
};

/* F: int needs(k): is input k read at all; void of<V>(const float (&in)[N][V], float (&out)[V]). */
template <class F, int N>
static __global__ void map_vec(const __grid_constant__ vec_nest<N + 1> n,
                               const __grid_constant__ operands<N> o, F f)
{
    const uint32_t i = blockIdx.x * THREADS + threadIdx.x;
    int64_t off[N + 1];

    if (i < n.n_vec) {
        float in[N][8], out[8];
        raw8 raw[N];

        locate(n.n, i, off);
#pragma unroll
        for (int k = 0; k < N; k++)
            if (f.needs(k) && n.step[k + 1])
                raw[k] = load_raw8(o.at[k + 1], off[k + 1]);
#pragma unroll
        for (int k = 0; k < N; k++)
            if (f.needs(k) && n.step[k + 1]) {
                widen8(o.at[k + 1].type, raw[k], in[k]);
            } else {
                const float v = f.needs(k) ? load1(o.at[k + 1], off[k + 1]) : 0;

#pragma unroll
                for (int e = 0; e < 8; e++)
                    in[k][e] = v;
            }
        f.template of<8>(in, out);
        store8(o.at[0], off[0], out);
    } else if (i - n.n_vec < n.tail) {
        const int64_t e = (int64_t)n.n_vec * 8 + (i - n.n_vec);
        float in[N][1], out[1];

#pragma unroll
        for (int k = 0; k < N; k++)
            in[k][0] = f.needs(k) ? load1(o.at[k + 1], e * n.step[k + 1]) : 0;
        f.template of<1>(in, out);
        store1(o.at[0], e, out[0]);
    }
}

template <class F, int N, class NEST, class I>
static __global__ void map_each(const __grid_constant__ NEST n, I total,
                                const __grid_constant__ operands<N> o, F f)
{
    const I i = (I)blockIdx.x * THREADS + threadIdx.x;
    int64_t off[N + 1];
    float in[N][1], out[1];

    if (i >= total)
        return;
    locate(n, i, off);
#pragma unroll
    for (int k = 0; k < N; k++)
        in[k][0] = f.needs(k) ? load1(o.at[k + 1], off[k + 1]) : 0;
    f.template of<1>(in, out);
    store1(o.at[0], off[0], out[0]);
}

template <int N, class F>
static void map_nest(cudaStream_t s, const struct k_nest *n, const operands<N> &o, F f)
{
    vec_nest<N + 1> vec;
    nest<N + 1> narrow;
    const unsigned grid = (unsigned)cdiv64(n->total, THREADS);

    if (vec_of<N + 1>(*n, o.at, &vec))
        map_vec<F, N><<<(unsigned)cdiv64((int64_t)vec.n_vec + vec.tail, THREADS), THREADS, 0, s>>>(
            vec, o, f);
    else if (narrow_of(*n, &narrow))
        map_each<F, N><<<grid, THREADS, 0, s>>>(narrow, (uint32_t)n->total, o, f);
    else
        map_each<F, N><<<grid, THREADS, 0, s>>>(wide_of<N + 1>(*n), n->total, o, f);
}

/* ------------------------------------------------------------------ floats */

struct act_fn {
    act_of act;

    DEV_INLINE bool needs(int) const
    {
        return true;
    }
    template <int V> DEV_INLINE void of(const float (&in)[1][V], float (&out)[V]) const
    {
#pragma unroll
        for (int i = 0; i < V; i++)
            out[i] = in[0][i];
        apply_act<V>(act, out);
    }
};

struct act_bwd_fn { /* x y d_y -> d_x */
    act_of act;

    DEV_INLINE bool needs(int k) const
    {
        return k == 2 || (k == 0 ? act_slope_needs_x(act.kind) : act_slope_needs_y(act.kind));
    }
    template <int V> DEV_INLINE void of(const float (&in)[3][V], float (&out)[V]) const
    {
#pragma unroll
        for (int i = 0; i < V; i++)
            out[i] = in[2][i];
        apply_act_slope<V>(act, in[0], in[1], out);
    }
};

static __device__ __noinline__ float power_of(float a, float b)
{
    return powf(a, b);
}

/* The sign of b (floors), or of a. */
static __device__ __noinline__ float remainder_of(float a, float b, bool floors)
{
    const float r = fmodf(a, b);

    return floors && r != 0 && (r < 0) != (b < 0) ? r + b : r;
}

struct binary_fn {
    int kind; /* enum dev_bin */
    act_of act;

    DEV_INLINE bool needs(int) const
    {
        return true;
    }
    template <int V> DEV_INLINE void of(const float (&in)[2][V], float (&out)[V]) const
    {
#define EACH(EXPR)                                \
    _Pragma("unroll") for (int i = 0; i < V; i++) \
    {                                             \
        const float a = in[0][i], b = in[1][i];   \
        out[i] = (EXPR);                          \
    }                                             \
    break
        switch (kind) {
        case DEV_BIN_ADD:
            EACH(a + b);
        case DEV_BIN_SUB:
            EACH(a - b);
        case DEV_BIN_MUL:
            EACH(a * b);
        case DEV_BIN_DIV:
            EACH(a / b);
        case DEV_BIN_MIN:
            EACH(min_nan(a, b));
        case DEV_BIN_MAX:
            EACH(max_nan(a, b));
        case DEV_BIN_POW:
            EACH(power_of(a, b));
        case DEV_BIN_EQUAL:
            EACH(a == b);
        case DEV_BIN_LESS:
            EACH(a < b);
        case DEV_BIN_LESS_EQUAL:
            EACH(a <= b);
        case DEV_BIN_GREATER_EQUAL:
            EACH(a >= b);
        case DEV_BIN_MOD:
            EACH(remainder_of(a, b, true));
        case DEV_BIN_FMOD:
            EACH(remainder_of(a, b, false));
        default:
            EACH(a > b);
        }
#undef EACH
        apply_act<V>(act, out);
    }
};

struct where_fn { /* cond a b */
    DEV_INLINE bool needs(int) const
    {
        return true;
    }
    template <int V> DEV_INLINE void of(const float (&in)[3][V], float (&out)[V]) const
    {
#pragma unroll
        for (int i = 0; i < V; i++)
            out[i] = in[0][i] != 0 ? in[1][i] : in[2][i];
    }
};

struct quantize_fn { /* x add -> y; the numbers of integers come and go as they are */
    k_quant x, add, y;
    bool x_is_byte, add_is_byte, y_is_byte, has_add;
    float lo, hi;
    act_of act;

    DEV_INLINE bool needs(int k) const
    {
        return k == 0 || has_add;
    }
    template <int V> DEV_INLINE void of(const float (&in)[2][V], float (&out)[V]) const
    {
#pragma unroll
        for (int i = 0; i < V; i++) {
            out[i] = x_is_byte ? x.scale * (in[0][i] - (float)x.zero) : in[0][i];
            if (has_add)
                out[i] += add_is_byte ? add.scale * (in[1][i] - (float)add.zero) : in[1][i];
        }
        apply_act<V>(act, out);
        if (!y_is_byte)
            return;
#pragma unroll
        for (int i = 0; i < V; i++) /* NaN becomes lo */
            out[i] = fminf(fmaxf(rintf(out[i] / y.scale) + (float)y.zero, lo), hi);
    }
};

/* Planes of floats become C bytes for each pixel; a thread has four of these. */
template <int C>
static __global__ void quantize_planes(const float4 *x, uint32_t *y, uint32_t n,
                                       const __grid_constant__ fast_div by_plane,
                                       const __grid_constant__ quantize_fn f)
{
    const uint32_t i = blockIdx.x * THREADS + threadIdx.x;
    const uint32_t image = quotient(i, by_plane), plane = by_plane.d;
    float4 in[C];
    uint32_t words[C];

    if (i >= n)
        return;
    x += (int64_t)image * (C - 1) * plane + i;
#pragma unroll
    for (int c = 0; c < C; c++) {
        in[c] = x[(int64_t)c * plane];
        words[c] = 0;
    }
#pragma unroll
    for (int c = 0; c < C; c++) {
        const float four[2][4] = {{in[c].x, in[c].y, in[c].z, in[c].w}};
        float out[4];

        f.of<4>(four, out);
#pragma unroll
        for (int k = 0; k < 4; k++)
            words[(k * C + c) / 4] |= ((uint32_t)(int)out[k] & 0xff) << (k * C + c) % 4 * 8;
    }
#pragma unroll
    for (int c = 0; c < C; c++)
        y[(int64_t)i * C + c] = words[c];
}

/* Bytes of y for each pixel of planes of floats; 0: it is something else. */
static int64_t planes_of(const struct k_nest *n, const struct k_quantize *q)
{
    const int last = n->rank - 1;
    const int64_t c = n->dims[last], plane = last > 0 ? n->dims[last - 1] : 0;
    const bool is_kind = q->x.type == CUDA_T_F32 && is_byte(q->y.type) && !q->add.p &&
                         is_aligned(q->x.p, 16) && is_aligned(q->y.p, 4);

    return is_kind && (last == 1 || last == 2) && c >= 2 && c <= 4 && plane % 4 == 0 &&
                   n->stride[0][last] == 1 && n->stride[0][last - 1] == c &&
                   n->stride[1][last] == plane && n->stride[1][last - 1] == 1 &&
                   (last == 1 || (n->stride[0][0] == c * plane && n->stride[1][0] == c * plane)) &&
                   n->total < INT32_MAX
               ? c
               : 0;
}

void k_quantize(cudaStream_t s, const struct k_nest *n, const struct k_quantize *q)
{
    const float lo = q->y.type == CUDA_T_I8 ? -128.0f : 0.0f;
    const quantize_fn f = {q->x_q,
                           q->add_q,
                           q->y_q,
                           is_byte(q->x.type),
                           is_byte(q->add.type),
                           is_byte(q->y.type),
                           q->add.p != NULL,
                           lo,
                           lo + 255.0f,
                           act_of{q->act, q->p0, q->p1}};
    const int64_t c = planes_of(n, q);

    if (c > 0) {
        const uint32_t quads = (uint32_t)(n->total / c / 4);
        const fast_div by = fast_div_of((uint32_t)(n->dims[n->rank - 2] / 4));

        (c == 2   ? quantize_planes<2>
         : c == 3 ? quantize_planes<3>
                  : quantize_planes<4>)<<<(unsigned)cdiv64(quads, THREADS), THREADS, 0, s>>>(
            (const float4 *)q->x.p, (uint32_t *)q->y.p, quads, by, f);
        return;
    }
    map_nest<2>(s, n, operands<2>{{q->y, q->x, q->add}}, f);
}

void k_act(cudaStream_t s, const struct k_nest *n, struct k_operand y, struct k_operand x, int act,
           float p0, float p1)
{
    map_nest<1>(s, n, operands<1>{{y, x}}, act_fn{{act, p0, p1}});
}

void k_act_bwd(cudaStream_t s, const struct k_nest *n, struct k_operand dx, struct k_operand x,
               struct k_operand y, struct k_operand dy, int act, float p0, float p1)
{
    map_nest<3>(s, n, operands<3>{{dx, x, y, dy}}, act_bwd_fn{{act, p0, p1}});
}

void k_binary(cudaStream_t s, const struct k_nest *n, struct k_operand y, struct k_operand a,
              struct k_operand b, int kind, int act, float p0, float p1)
{
    map_nest<2>(s, n, operands<2>{{y, a, b}}, binary_fn{kind, {act, p0, p1}});
}

/* ------------------------------------------------------------------ integers */

static DEV_INLINE int64_t int_mod(int64_t a, int64_t b, bool floors)
{
    const int64_t r = b == 0 || b == -1 ? 0 : a % b;

    return floors && r != 0 && (r < 0) != (b < 0) ? r + b : r;
}

/* Both fill with zeros; by all bits or more, or by less than 0: 0. */
static DEV_INLINE uint64_t shifted(uint64_t a, int64_t by, bool left, int bits)
{
    return by < 0 || by >= bits ? 0 : left ? a << by : a >> by;
}

/* Arithmetic modulo 2^bits, so that overflow is defined; x / 0 and x mod 0 are 0. */
template <class T, class U> static DEV_INLINE T int_of(int kind, T a, T b)
{
    switch (kind) {
    case DEV_BIN_ADD:
        return (T)((U)a + (U)b);
    case DEV_BIN_SUB:
        return (T)((U)a - (U)b);
    case DEV_BIN_MUL:
        return (T)((U)a * (U)b);
    case DEV_BIN_DIV:
        return b == 0 ? (T)0 : b == (T)-1 && (T)-1 < (T)0 ? (T)(0 - (U)a) : (T)(a / b);
    case DEV_BIN_MIN:
        return a < b ? a : b;
    case DEV_BIN_MAX:
        return a > b ? a : b;
    case DEV_BIN_MOD:
        return (T)-1 > (T)0 ? (T)(b == 0 ? 0 : a % b) : (T)int_mod((int64_t)a, (int64_t)b, true);
    case DEV_BIN_FMOD:
        return (T)-1 > (T)0 ? (T)(b == 0 ? 0 : a % b) : (T)int_mod((int64_t)a, (int64_t)b, false);
    case DEV_BIN_BIT_AND:
        return (T)(a & b);
    case DEV_BIN_BIT_OR:
        return (T)(a | b);
    case DEV_BIN_BIT_XOR:
        return (T)(a ^ b);
    case DEV_BIN_SHIFT_LEFT:
    case DEV_BIN_SHIFT_RIGHT:
        return (T)shifted((uint64_t)(U)a, (int64_t)b, kind == DEV_BIN_SHIFT_LEFT, 8 * sizeof(T));
    default:
        return (T)(int64_t)pow((double)a, (double)b);
    }
}

template <class T> static DEV_INLINE bool compare_as(int kind, T a, T b)
{
    switch (kind) {
    case DEV_BIN_EQUAL:
        return a == b;
    case DEV_BIN_LESS:
        return a < b;
    case DEV_BIN_GREATER:
        return a > b;
    case DEV_BIN_LESS_EQUAL:
        return a <= b;
    default:
        return a >= b;
    }
}

template <class T, class U, class NEST, class I>
static __global__ void binary_ints(const __grid_constant__ NEST n, I total, void *y, const T *pa,
                                   const T *pb, int kind)
{
    const I i = (I)blockIdx.x * THREADS + threadIdx.x;
    int64_t off[3];

    if (i >= total)
        return;
    locate(n, i, off);
    const T a = pa[off[1]], b = pb[off[2]];

    if (kind >= DEV_BIN_EQUAL && kind <= DEV_BIN_GREATER_EQUAL)
        ((uint8_t *)y)[off[0]] = compare_as(kind, a, b);
    else
        ((T *)y)[off[0]] = int_of<T, U>(kind, a, b);
}

template <class T, class U>
static void launch_elem_ints(cudaStream_t s, const struct k_nest *n, void *y, const void *a,
                             const void *b, int kind)
{
    const unsigned grid = (unsigned)cdiv64(n->total, THREADS);
    nest<3> narrow;

    if (narrow_of(*n, &narrow))
        binary_ints<T, U><<<grid, THREADS, 0, s>>>(narrow, (uint32_t)n->total, y, (const T *)a,
                                                   (const T *)b, kind);
    else
        binary_ints<T, U><<<grid, THREADS, 0, s>>>(wide_of<3>(*n), n->total, y, (const T *)a,
                                                   (const T *)b, kind);
}

void k_binary_int(cudaStream_t s, const struct k_nest *n, int type, void *y, const void *a,
                  const void *b, int kind)
{
    switch (type) {
    case CUDA_T_I64:
        launch_elem_ints<int64_t, uint64_t>(s, n, y, a, b, kind);
        break;
    case CUDA_T_I32:
        launch_elem_ints<int32_t, uint32_t>(s, n, y, a, b, kind);
        break;
    case CUDA_T_I16:
        launch_elem_ints<int16_t, uint32_t>(s, n, y, a, b, kind);
        break;
    case CUDA_T_I8:
        launch_elem_ints<int8_t, uint32_t>(s, n, y, a, b, kind);
        break;
    case CUDA_T_U64:
        launch_elem_ints<uint64_t, uint64_t>(s, n, y, a, b, kind);
        break;
    case CUDA_T_U32:
        launch_elem_ints<uint32_t, uint32_t>(s, n, y, a, b, kind);
        break;
    case CUDA_T_U16:
        launch_elem_ints<uint16_t, uint32_t>(s, n, y, a, b, kind);
        break;
    default:
        launch_elem_ints<uint8_t, uint32_t>(s, n, y, a, b, kind);
        break;
    }
}

/* ------------------------------------------------------------------ where */

template <class U, class NEST, class I>
static __global__ void pick_elements(const __grid_constant__ NEST n, I total, U *y,
                                     const uint8_t *cond, const U *a, const U *b)
{
    const I i = (I)blockIdx.x * THREADS + threadIdx.x;
    int64_t off[4];

    if (i >= total)
        return;
    locate(n, i, off);
    y[off[0]] = cond[off[1]] ? a[off[2]] : b[off[3]];
}

template <class U>
static void launch_pick(cudaStream_t s, const struct k_nest *n, void *y, const void *cond,
                        const void *a, const void *b)
{
    const unsigned grid = (unsigned)cdiv64(n->total, THREADS);
    nest<4> narrow;

    if (narrow_of(*n, &narrow))
        pick_elements<U><<<grid, THREADS, 0, s>>>(
            narrow, (uint32_t)n->total, (U *)y, (const uint8_t *)cond, (const U *)a, (const U *)b);
    else
        pick_elements<U><<<grid, THREADS, 0, s>>>(
            wide_of<4>(*n), n->total, (U *)y, (const uint8_t *)cond, (const U *)a, (const U *)b);
}

void k_where(cudaStream_t s, const struct k_nest *n, struct k_operand y, const void *cond,
             struct k_operand a, struct k_operand b)
{
    const size_t size = type_bytes(y.type);

    if (y.type == CUDA_T_F32 || y.type == CUDA_T_F16 || y.type == CUDA_T_BF16)
        map_nest<3>(s, n, operands<3>{{y, {(void *)cond, CUDA_T_U8, false}, a, b}}, where_fn{});
    else if (size == 8)
        launch_pick<uint64_t>(s, n, y.p, cond, a.p, b.p);
    else if (size == 4)
        launch_pick<uint32_t>(s, n, y.p, cond, a.p, b.p);
    else if (size == 2)
        launch_pick<uint16_t>(s, n, y.p, cond, a.p, b.p);
    else
        launch_pick<uint8_t>(s, n, y.p, cond, a.p, b.p);
}

/* ------------------------------------------------------------------ fill */

static __global__ void fill_bits(uint8_t *dst, size_t bytes, uint64_t bits)
{
    const size_t at = ((size_t)blockIdx.x * THREADS + threadIdx.x) * 16;
    const uint32_t lo = (uint32_t)bits, hi = (uint32_t)(bits >> 32);

    if (at + 16 <= bytes)
        *(uint4 *)(dst + at) = make_uint4(lo, hi, lo, hi);
    else
        for (size_t i = at; i < bytes; i++)
            dst[i] = (uint8_t)(bits >> i % 8 * 8);
}

/* The element with value v, repeated to 8 bytes. */
static uint64_t pattern_of(int type, bool is_bool, float v)
{
    union {
        float f;
        double d;
        int32_t i;
        int64_t l;
        uint16_t h;
        uint8_t b;
        uint64_t bits;
    } u;
    float bound = fabsf(v) > FLT_MAX ? INFINITY : type == CUDA_T_F16 ? 65504.0f : 3.3895314e38f;

    u.bits = 0;
    switch (type) {
    case CUDA_T_F32:
        u.f = v;
        break;
    case CUDA_T_F64:
        u.d = v;
        break;
    case CUDA_T_F16:
        u.h = __half_as_ushort(__float2half_rn(v > bound ? bound : v < -bound ? -bound : v));
        break;
    case CUDA_T_BF16:
        u.h = __bfloat16_as_ushort(__float2bfloat16_rn(v > bound    ? bound
                                                       : v < -bound ? -bound
                                                                    : v));
        break;
    case CUDA_T_I64:
    case CUDA_T_U64:
        u.l = (int64_t)v;
        break;
    case CUDA_T_I32:
    case CUDA_T_U32:
        u.i = (int32_t)(int64_t)v;
        break;
    case CUDA_T_I16:
    case CUDA_T_U16:
        u.h = (uint16_t)(int64_t)v;
        break;
    default:
        u.b = is_bool ? v != 0 : (uint8_t)(int64_t)v;
        break;
    }
    for (size_t bytes = type_bytes(type); bytes < 8; bytes *= 2)
        u.bits |= u.bits << 8 * bytes;
    return u.bits;
}

void k_fill(cudaStream_t s, void *dst, int type, bool is_bool, int64_t n, float value)
{
    const size_t bytes = (size_t)n * type_bytes(type);
    const uint64_t bits = pattern_of(type, is_bool, value);

    fill_bits<<<(unsigned)cdiv64((int64_t)bytes, 16 * THREADS), THREADS, 0, s>>>((uint8_t *)dst,
                                                                                 bytes, bits);
}

/* ------------------------------------------------------------------ epilogue */

static __global__ void epilogue_vec(uint32_t n_vec, fast_div cols, k_operand y, k_operand bias,
                                    k_operand residual, act_of act)
{
    const uint32_t i = blockIdx.x * THREADS + threadIdx.x;
    float v[8], add[8];
    raw8 ry, rr = {};

    if (i >= n_vec)
        return;
    const int64_t off = (int64_t)i * 8;
    const uint32_t col = (i - quotient(i, cols) * cols.d) * 8;

    ry = load_raw8(y, off);
    if (residual.p)
        rr = load_raw8(residual, off);
    widen8(y.type, ry, v);
    if (bias.p) {
        widen8(bias.type, load_raw8(bias, col), add);
#pragma unroll
        for (int e = 0; e < 8; e++)
            v[e] += add[e];
    }
    if (residual.p) {
        widen8(residual.type, rr, add);
#pragma unroll
        for (int e = 0; e < 8; e++)
            v[e] += add[e];
    }
    apply_act<8>(act, v);
    store8(y, off, v);
}

static __global__ void epilogue_each(int64_t total, int64_t cols, k_operand y, k_operand bias,
                                     k_operand residual, act_of act)
{
    const int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    float v[1];

    if (i >= total)
        return;
    v[0] = load1(y, i);
    if (bias.p)
        v[0] += load1(bias, i % cols);
    if (residual.p)
        v[0] += load1(residual, i);
    apply_act<1>(act, v);
    store1(y, i, v[0]);
}

void k_epilogue(cudaStream_t s, int64_t rows, int64_t cols, int y_type, void *y, int bias_type,
                const void *bias, const void *residual, int act, float p0, float p1)
{
    const k_operand oy = {y, y_type, false}, ob = {(void *)bias, bias_type, false};
    const k_operand ores = {(void *)residual, y_type, false};
    const int64_t total = rows * cols;

    if (cols % 8 == 0 && total / 8 < INT32_MAX && is_aligned(y, 16) && is_aligned(bias, 16) &&
        is_aligned(residual, 16))
        epilogue_vec<<<(unsigned)cdiv64(total / 8, THREADS), THREADS, 0, s>>>(
            (uint32_t)(total / 8), fast_div_of((uint32_t)(cols / 8)), oy, ob, ores,
            act_of{act, p0, p1});
    else
        epilogue_each<<<(unsigned)cdiv64(total, THREADS), THREADS, 0, s>>>(
            total, cols, oy, ob, ores, act_of{act, p0, p1});
}
