/* pool.cu - maximum and average over windows, forward and backward.
 *
 * Forward: a thread computes eight neighbouring channels of one output (channels-last, a multiple
 * of eight) or one element, in the order in which the output lies; up to four loads of a window's
 * row are under way at once. Backward: a thread computes elements of the input's gradient and
 * gathers from the outputs whose windows hold them, in rising order: no atomics.
 *
 * Indices of a maximum: h * W + w of the element that won, the first of equals; -1 for a window
 * that lies in the padding alone. A NaN wins. Windows over the whole image are reductions
 * (cuda_pool.c).
 */
#include "runtime/device/cuda/nest.cuh"

#define THREADS 256

struct axis {                                        /* one spatial axis */
    int in, out, kernel, stride, dilation, pad, end; /* end: of what an average may count */
};

struct place { /* element strides */
    int64_t n, c, h, w;
};

struct window_op {
    axis h, w;
    bool include_pad;
    bool last;                     /* threads run along channels; otherwise along w */
    uint32_t total;                /* threads */
    fast_div inner, middle, outer; /* of the thread's number: what neighbours differ in, ... */
    place x, y, idx;
};

struct coords {
    int64_t n, c;
    int h, w;
};

template <int V> DEV_INLINE coords coords_of(const window_op &o, uint32_t i)
{
    const uint32_t a = quotient(i, o.inner), ra = i - a * o.inner.d;
    const uint32_t b = quotient(a, o.middle), rb = a - b * o.middle.d;
    const uint32_t c = quotient(b, o.outer), rc = b - c * o.outer.d;

    if (o.last)
        return {(int64_t)c, (int64_t)ra * V, (int)rc, (int)rb};
    return {(int64_t)c, (int64_t)rc, (int)rb, (int)ra};
}

DEV_INLINE int64_t offset(const place &p, const coords &c)
{
    return c.n * p.n + c.c * p.c + (int64_t)c.h * p.h + (int64_t)c.w * p.w;
}

/* a / b, where b is 1 as a rule: a division of integers takes as long as some twenty additions. */
DEV_INLINE int over(int a, int b)
{
    return b == 1 ? a : a / b;
}

struct taps { /* those of a window that lie in the input: [lo, hi) of the kernel's positions */
    int first, lo, hi;
};

DEV_INLINE taps taps_of(const axis &a, int out)
{
    const int first = out * a.stride - a.pad, behind = a.in - 1 - first;
    taps t = {first, 0, 0};

    if (first < 0)
        t.lo = over(-first + a.dilation - 1, a.dilation);
    if (behind >= 0)
        t.hi = min(a.kernel, over(behind, a.dilation) + 1);
    return t;
}

/* Elements along the axis that an average counts. */
DEV_INLINE int counted_taps(const axis &a, const taps &t, bool include_pad)
{
    const int behind = a.end - 1 - t.first;

    if (!include_pad)
        return max(t.hi - t.lo, 0);
    return behind < 0 ? 0 : min(a.kernel, over(behind, a.dilation) + 1);
}

/* ------------------------------------------------------------------ one or eight channels */

template <int V> struct bits {
    raw8 r;
};
template <> struct bits<1> {
    float v;
};

template <int V> DEV_INLINE bits<V> load_bits(const k_operand &o, int64_t off)
{
    bits<V> b;

    if constexpr (V == 8)
        b.r = load_raw8(o, off);
    else
        b.v = load1(o, off);
    return b;
}
template <int V> DEV_INLINE void widen(int type, const bits<V> &b, float (&v)[V])
{
    if constexpr (V == 8)
        widen8(type, b.r, v);
    else
        v[0] = b.v;
}
template <int V> DEV_INLINE void store_v(const k_operand &o, int64_t off, const float (&v)[V])
{
    if constexpr (V == 8)
        store8(o, off, v);
    else
        store1(o, off, v[0]);
}

/* ------------------------------------------------------------------ forward */

template <int V, bool IS_MAX>
DEV_INLINE void take_larger(const float (&v)[V], int at, float (&acc)[V], int (&best)[V])
{
#pragma unroll
    for (int e = 0; e < V; e++)
        if (!IS_MAX) {
            acc[e] += v[e];
        } else if (v[e] > acc[e] || v[e] != v[e] || best[e] < 0) {
            const bool stays = acc[e] != acc[e]; /* the first NaN */

            best[e] = stays ? best[e] : at;
            acc[e] = stays ? acc[e] : v[e];
        }
}

#define UNDER_WAY 4

template <int V, bool IS_MAX>
static __global__ void forward(const __grid_constant__ window_op o, k_operand x, k_operand y,
                               int32_t *idx)
{
    const uint32_t i = blockIdx.x * THREADS + threadIdx.x;
    float acc[V], v[V];
    int best[V];

    if (i >= o.total)
        return;
    const coords c = coords_of<V>(o, i);
    const taps th = taps_of(o.h, c.h), tw = taps_of(o.w, c.w);

#pragma unroll
    for (int e = 0; e < V; e++) {
        acc[e] = IS_MAX ? -INFINITY : 0.0f;
        best[e] = -1;
    }
    for (int kh = th.lo; kh < th.hi; kh++) {
        const int h = th.first + kh * o.h.dilation;
        const int64_t row = c.n * o.x.n + c.c * o.x.c + (int64_t)h * o.x.h;

        for (int kw = tw.lo; kw < tw.hi; kw += UNDER_WAY) {
            bits<V> raw[UNDER_WAY];

#pragma unroll
            for (int k = 0; k < UNDER_WAY; k++)
                if (kw + k < tw.hi)
                    raw[k] = load_bits<V>(x, row + (int64_t)(tw.first + (kw + k) * o.w.dilation) *
                                                       o.x.w);
#pragma unroll
            for (int k = 0; k < UNDER_WAY; k++)
                if (kw + k < tw.hi) {
                    widen<V>(x.type, raw[k], v);
                    take_larger<V, IS_MAX>(v, h * o.w.in + tw.first + (kw + k) * o.w.dilation, acc,
                                           best);
                }
        }
    }
    if (!IS_MAX) {
        const int n = counted_taps(o.h, th, o.include_pad) * counted_taps(o.w, tw, o.include_pad);

#pragma unroll
        for (int e = 0; e < V; e++)
            acc[e] = n > 0 ? acc[e] / (float)n : 0.0f;
    }
    store_v<V>(y, offset(o.y, c), acc);
    if (IS_MAX && idx) {
        vec<int32_t, V> at;

#pragma unroll
        for (int e = 0; e < V; e++)
            at.v[e] = best[e];
        store_vec<V>(idx + offset(o.idx, c), at);
    }
}

/* ------------------------------------------------------------------ backward */

/* Outputs whose windows may hold input position `in`: [lo, hi). */
DEV_INLINE taps outputs_of(const axis &a, int in)
{
    const int at = in + a.pad, reach = (a.kernel - 1) * a.dilation;
    taps t = {at, 0, min(a.out, over(at, a.stride) + 1)};

    if (at > reach)
        t.lo = over(at - reach + a.stride - 1, a.stride);
    return t;
}
DEV_INLINE bool holds(const axis &a, const taps &t, int out)
{
    return a.dilation == 1 || (t.first - out * a.stride) % a.dilation == 0;
}

template <int V>
DEV_INLINE void gather_max(const window_op &o, const k_operand &dy, const int32_t *idx,
                           const coords &from, int at, float (&acc)[V])
{
    const vec<int32_t, V> won = load_vec<V>(idx + offset(o.idx, from));
    bool any = false;
    float v[V];

#pragma unroll
    for (int e = 0; e < V; e++)
        any = any || won.v[e] == at;
    if (!any)
        return;
    widen<V>(dy.type, load_bits<V>(dy, offset(o.y, from)), v);
#pragma unroll
    for (int e = 0; e < V; e++)
        acc[e] += won.v[e] == at ? v[e] : 0.0f;
}

template <int V, bool IS_MAX>
static __global__ void backward(const __grid_constant__ window_op o, k_operand dy, k_operand dx,
                                const int32_t *idx)
{
    const uint32_t i = blockIdx.x * THREADS + threadIdx.x;
    float acc[V], v[V];

    if (i >= o.total)
        return;
    const coords c = coords_of<V>(o, i);
    const taps oh = outputs_of(o.h, c.h), ow = outputs_of(o.w, c.w);
    coords from = c;

#pragma unroll
    for (int e = 0; e < V; e++)
        acc[e] = 0;
    for (from.h = oh.lo; from.h < oh.hi; from.h++) {
        if (!holds(o.h, oh, from.h))
            continue;
        const int nh = IS_MAX ? 1 : counted_taps(o.h, taps_of(o.h, from.h), o.include_pad);

        for (from.w = ow.lo; from.w < ow.hi; from.w++) {
            if (!holds(o.w, ow, from.w))
                continue;
            if (IS_MAX) {
                gather_max<V>(o, dy, idx, from, c.h * o.w.in + c.w, acc);
                continue;
            }
            const int nw = counted_taps(o.w, taps_of(o.w, from.w), o.include_pad);
            const float share = 1.0f / (float)(nh * nw);

            widen<V>(dy.type, load_bits<V>(dy, offset(o.y, from)), v);
#pragma unroll
            for (int e = 0; e < V; e++)
                acc[e] += v[e] * share;
        }
    }
    store_v<V>(dx, offset(o.x, c), acc);
}

/* ------------------------------------------------------------------ bytes */

template <bool SIGNED> DEV_INLINE void take_bytes(uint4 &acc, const uint4 &v)
{
    acc.x = SIGNED ? __vmaxs4(acc.x, v.x) : __vmaxu4(acc.x, v.x);
    acc.y = SIGNED ? __vmaxs4(acc.y, v.y) : __vmaxu4(acc.y, v.y);
    acc.z = SIGNED ? __vmaxs4(acc.z, v.z) : __vmaxu4(acc.z, v.z);
    acc.w = SIGNED ? __vmaxs4(acc.w, v.w) : __vmaxu4(acc.w, v.w);
}

/* The largest of each of 16 neighbouring channels. */
template <bool SIGNED>
static __global__ void max_bytes(const __grid_constant__ window_op o, const uint8_t *x, uint8_t *y)
{
    const uint32_t i = blockIdx.x * THREADS + threadIdx.x;
    const uint32_t least = SIGNED ? 0x80808080u : 0;
    uint4 acc = make_uint4(least, least, least, least);

    if (i >= o.total)
        return;
    const coords c = coords_of<16>(o, i);
    const taps th = taps_of(o.h, c.h), tw = taps_of(o.w, c.w);

    for (int kh = th.lo; kh < th.hi; kh++) {
        const uint8_t *row =
            x + c.n * o.x.n + c.c + (int64_t)(th.first + kh * o.h.dilation) * o.x.h;

#pragma unroll 3
        for (int kw = tw.lo; kw < tw.hi; kw++)
            take_bytes<SIGNED>(acc, *reinterpret_cast<const uint4 *>(
                                        row + (int64_t)(tw.first + kw * o.w.dilation) * o.x.w));
    }
    *reinterpret_cast<uint4 *>(y + offset(o.y, c)) = acc;
}

/* ------------------------------------------------------------------ launchers */

static axis axis_of(const struct k_pool *p, int i)
{
    axis a;

    a.in = (int)p->in[2 + i];
    a.out = (int)p->out[2 + i];
    a.kernel = (int)p->kernel[i];
    a.stride = (int)p->stride[i];
    a.dilation = (int)p->dilation[i];
    a.pad = (int)p->pad_begin[i];
    a.end = (int)(p->in[2 + i] + p->pad_end[i]);
    return a;
}

static bool steps_are(const int64_t *stride, int n)
{
    return stride[1] == 1 && stride[0] % n == 0 && stride[2] % n == 0 && stride[3] % n == 0;
}

/* A thread for each element (or `wide` channels) of `dims`, in the order of `order`. Returns V. */
static int window_of(const struct k_pool *p, const int64_t *dims, const int64_t *order, int wide,
                     window_op *o)
{
    const bool many = p->in[1] % wide == 0 && steps_are(p->x, wide) && steps_are(p->y, wide) &&
                      (!p->has_indices || steps_are(p->idx, wide));
    const int v = many ? wide : 1;
    const int64_t c = dims[1] / v;

    *o = window_op{};
    o->h = axis_of(p, 0);
    o->w = axis_of(p, 1);
    o->include_pad = p->include_pad;
    o->last = order[1] < order[3] || many;
    o->inner = fast_div_of((uint32_t)(o->last ? c : dims[3]));
    o->middle = fast_div_of((uint32_t)(o->last ? dims[3] : dims[2]));
    o->outer = fast_div_of((uint32_t)(o->last ? dims[2] : c));
    o->total = (uint32_t)(dims[0] * c * dims[2] * dims[3]);
    o->x = {p->x[0], p->x[1], p->x[2], p->x[3]};
    o->y = {p->y[0], p->y[1], p->y[2], p->y[3]};
    o->idx = {p->idx[0], p->idx[1], p->idx[2], p->idx[3]};
    return v;
}

void k_pool_forward(cudaStream_t s, const struct k_pool *p, struct k_operand x, struct k_operand y,
                    int32_t *indices)
{
    window_op o;
    const bool bytes =
        p->is_max && !p->has_indices && is_byte(x.type) && window_of(p, p->out, p->y, 16, &o) == 16;
    const int v = bytes ? 16 : window_of(p, p->out, p->y, 8, &o);
    const unsigned grid = (unsigned)cdiv64(o.total, THREADS);

    if (bytes && x.type == CUDA_T_I8)
        max_bytes<true><<<grid, THREADS, 0, s>>>(o, (const uint8_t *)x.p, (uint8_t *)y.p);
    else if (bytes)
        max_bytes<false><<<grid, THREADS, 0, s>>>(o, (const uint8_t *)x.p, (uint8_t *)y.p);
    else if (p->is_max && v == 8)
        forward<8, true><<<grid, THREADS, 0, s>>>(o, x, y, indices);
    else if (p->is_max)
        forward<1, true><<<grid, THREADS, 0, s>>>(o, x, y, indices);
    else if (v == 8)
        forward<8, false><<<grid, THREADS, 0, s>>>(o, x, y, NULL);
    else
        forward<1, false><<<grid, THREADS, 0, s>>>(o, x, y, NULL);
}

void k_pool_backward(cudaStream_t s, const struct k_pool *p, struct k_operand dy,
                     const int32_t *indices, struct k_operand dx)
{
    window_op o;
    const int v = window_of(p, p->in, p->x, 8, &o);
    const unsigned grid = (unsigned)cdiv64(o.total, THREADS);

    if (p->is_max && v == 8)
        backward<8, true><<<grid, THREADS, 0, s>>>(o, dy, dx, indices);
    else if (p->is_max)
        backward<1, true><<<grid, THREADS, 0, s>>>(o, dy, dx, indices);
    else if (v == 8)
        backward<8, false><<<grid, THREADS, 0, s>>>(o, dy, dx, NULL);
    else
        backward<1, false><<<grid, THREADS, 0, s>>>(o, dy, dx, NULL);
}
