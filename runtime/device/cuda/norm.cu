// norm.cu - softmax, layer normalisation and their gradients, line by line.
//
//   line of at most 1024 elements    a warp holds it in registers and reads it once
//   longer                           a block reads it as often as there are passes
//   layer normalisation's gradient   up to 16 warps hold a line of at most 6144 elements
//   softmax along an inner axis      a thread for each line; neighbours run along adjacent lines
//
// A lane holds V adjacent elements of every 32 V: four where the length allows it. Sums are in F32,
// types are looked at when loading and storing. The gradients of scale and bias are summed by each
// block over the lines that it has, then over the blocks: in a fixed order.

#include "runtime/device/cuda/nest.cuh"

#define WARPS 4 // of a block that has a warp for each line
#define BLOCK 256
#define MAX_HELD 1024
#define REDUCE_ROWS 16
#define BWD_WARPS 16
#define BWD_UNITS 3 // of 128 elements, in a warp
#define BWD_MAX_HELD (BWD_WARPS * BWD_UNITS * 128)

// ------------------------------------------------------------------ operands of any float type

template <int V> static DEV_INLINE void fetch(struct k_operand o, int64_t at, float (&v)[V])
{
    if (o.type == CUDA_T_F32)
        load_f<V>((const float *)o.p + at, v);
    else if (o.type == CUDA_T_F16)
        load_f<V>((const f16 *)o.p + at, v);
    else
        load_f<V>((const bf16 *)o.p + at, v);
}

template <int V>
static DEV_INLINE void put_norm(struct k_operand o, int64_t at, const float (&v)[V])
{
    if (o.type == CUDA_T_F32)
        store_f<V>((float *)o.p + at, v);
    else if (o.type == CUDA_T_F16)
        o.overflows ? store_grad<V>((f16 *)o.p + at, v) : store_f<V>((f16 *)o.p + at, v);
    else
        store_f<V>((bf16 *)o.p + at, v);
}

template <int V>
static DEV_INLINE void fetch_or(struct k_operand o, int64_t at, float absent, float (&v)[V])
{
    if (o.p) {
        fetch<V>(o, at, v);
        return;
    }
#pragma unroll
    for (int i = 0; i < V; i++)
        v[i] = absent;
}

// v as one of its integers; NaN becomes the least.
static DEV_INLINE uint8_t byte_of(const struct k_layernorm &a, float v)
{
    const float lo = a.bytes.type == CUDA_T_I8 ? -128.0f : 0.0f;

    return (uint8_t)(int)fminf(fmaxf(rintf(v / a.step) + a.zero, lo), lo + 255);
}

#define EACH(c, i) \
    _Pragma("unroll") for (int c = 0; c < C; c++) _Pragma("unroll") for (int i = 0; i < V; i++)

// A line, or a part of one, in a warp: element (c, i) of a lane is number (c * 32 + lane) * V + i.
// As it lies in memory: F32 one to a word, 16 bit two (V = 1: one). Loading and widening are two
// calls so that all loads are under way before the first is used.
template <int V, int C> struct raw {
    uint32_t w[C][V];

    // What lies behind the end of the line stays as it was.
    DEV_INLINE void load(struct k_operand o, int64_t from, int n)
    {
        const int lane = threadIdx.x % WARP * V;

        if (o.type == CUDA_T_F32) {
#pragma unroll
            for (int c = 0; c < C; c++)
                if (c * WARP * V + lane < n)
                    load_words<V>((const uint32_t *)o.p + from + c * WARP * V + lane, w[c]);
        } else {
#pragma unroll
            for (int c = 0; c < C; c++)
                if (c * WARP * V + lane < n)
                    load_halves((const uint16_t *)o.p + from + c * WARP * V + lane, w[c]);
        }
    }
    DEV_INLINE void widen(int type, float (&v)[C][V]) const
    {
        if (type == CUDA_T_F16)
            widen_halves(CUDA_T_F16, v);
        else if (type == CUDA_T_BF16)
            widen_halves(CUDA_T_BF16, v);
        else
            EACH(c, i) v[c][i] = __uint_as_float(w[c][i]);
    }

  private:
    template <int N> static DEV_INLINE void load_words(const uint32_t *p, uint32_t (&to)[V])
    {
        const vec<uint32_t, N> v = load_vec<N>(p);

#pragma unroll
        for (int i = 0; i < N; i++)
            to[i] = v.v[i];
    }
    static DEV_INLINE void load_halves(const uint16_t *p, uint32_t (&to)[V])
    {
        if constexpr (V == 1)
            to[0] = *p;
        else
            load_words<V / 2>(reinterpret_cast<const uint32_t *>(p), to);
    }
    DEV_INLINE void widen_halves(int type, float (&v)[C][V]) const
    {
        EACH(c, i)
        {
            const float2 pair = halves(type, w[c][i / 2]);

            v[c][i] = i % 2 ? pair.y : pair.x;
        }
    }
};

template <int V, int C> struct held {
    float v[C][V];

    // What lies behind the end of the line becomes `fill`.
    DEV_INLINE void widen(const raw<V, C> &r, int type, int n, float fill)
    {
        r.widen(type, v);
        EACH(c, i) v[c][i] = (c * WARP + threadIdx.x % WARP) * V < n ? v[c][i] : fill;
    }
    DEV_INLINE void load(struct k_operand o, int64_t from, int n, float fill)
    {
        raw<V, C> r;

        r.load(o, from, n);
        widen(r, o.type, n, fill);
    }
    // An operand that may be absent.
    DEV_INLINE void load_or(struct k_operand o, int64_t from, int n, float absent)
    {
        raw<V, C> r;

        if (o.p)
            r.load(o, from, n);
        widen_or(r, o, n, absent);
    }
    DEV_INLINE void widen_or(const raw<V, C> &r, struct k_operand o, int n, float absent)
    {
        if (o.p)
            widen(r, o.type, n, 0);
        else
            EACH(c, i) v[c][i] = absent;
    }
    DEV_INLINE void store(struct k_operand o, int64_t from, int n) const
    {
        const int lane = threadIdx.x % WARP * V;

        DISPATCH_FLOAT(
            o.type, T, _Pragma("unroll") for (int c = 0; c < C; c++) {
                T *const to = (T *)o.p + from + c * WARP * V + lane;

                if (c * WARP * V + lane < n)
                    o.overflows ? store_grad<V>(to, v[c]) : store_f<V>(to, v[c]);
            })
    }
    DEV_INLINE void store_bytes(const struct k_layernorm &a, int64_t from, int n) const
    {
        const int lane = threadIdx.x % WARP * V;

#pragma unroll
        for (int c = 0; c < C; c++) {
            vec<uint8_t, V> b;

#pragma unroll
            for (int i = 0; i < V; i++)
                b.v[i] = byte_of(a, v[c][i]);
            if (c * WARP * V + lane < n)
                store_vec<V>((uint8_t *)a.bytes.p + from + c * WARP * V + lane, b);
        }
    }
};

// Runs the statements with V and C for lines of n elements, n <= MAX_HELD.
#define DISPATCH_CASE(v, chunks, ...)    \
    {                                    \
        constexpr int V = v, C = chunks; \
        __VA_ARGS__;                     \
    }
#define DISPATCH_HELD(n, ...)                 \
    do {                                      \
        if ((n) % 4 == 0 && (n) <= 128)       \
            DISPATCH_CASE(4, 1, __VA_ARGS__)  \
        else if ((n) % 4 == 0 && (n) <= 256)  \
            DISPATCH_CASE(4, 2, __VA_ARGS__)  \
        else if ((n) % 4 == 0 && (n) <= 512)  \
            DISPATCH_CASE(4, 4, __VA_ARGS__)  \
        else if ((n) % 4 == 0 && (n) <= 768)  \
            DISPATCH_CASE(4, 6, __VA_ARGS__)  \
        else if ((n) % 4 == 0)                \
            DISPATCH_CASE(4, 8, __VA_ARGS__)  \
        else if ((n) <= 256)                  \
            DISPATCH_CASE(1, 8, __VA_ARGS__)  \
        else                                  \
            DISPATCH_CASE(1, 32, __VA_ARGS__) \
    } while (0)

static DEV_INLINE int64_t own_line()
{
    return (int64_t)blockIdx.x * WARPS + threadIdx.x / WARP;
}

// ------------------------------------------------------------------ softmax

template <int V, int C>
static __global__ void softmax_held(struct k_operand x, struct k_operand y, int64_t lines, int n,
                                    bool is_log)
{
    const int64_t line = own_line();
    float max = -INFINITY, sum = 0;
    held<V, C> h;

    if (line >= lines)
        return;
    h.load(x, line * n, n, -INFINITY);
    EACH(c, i) max = max_nan(max, h.v[c][i]);
    max = warp_max(max);
    if (is_log) {
        EACH(c, i) sum += (c * WARP + threadIdx.x % WARP) * V + i < n ? expf(h.v[c][i] - max) : 0;
        sum = logf(warp_sum(sum));
        EACH(c, i) h.v[c][i] = h.v[c][i] - max - sum;
    } else {
        EACH(c, i)
        {
            h.v[c][i] = (c * WARP + threadIdx.x % WARP) * V + i < n ? expf(h.v[c][i] - max) : 0;
            sum += h.v[c][i];
        }
        sum = 1 / warp_sum(sum);
        EACH(c, i) h.v[c][i] *= sum;
    }
    h.store(y, line * n, n);
}

static __global__ void softmax_long(struct k_operand x, struct k_operand y, int64_t n, bool is_log)
{
    __shared__ float smem[BLOCK / WARP];
    const int64_t from = blockIdx.x * n;
    float max = -INFINITY, sum = 0, v[1];

    for (int64_t i = threadIdx.x; i < n; i += BLOCK) {
        fetch<1>(x, from + i, v);
        max = max_nan(max, v[0]);
    }
    max = block_max<BLOCK>(max, smem);
    for (int64_t i = threadIdx.x; i < n; i += BLOCK) {
        fetch<1>(x, from + i, v);
        sum += expf(v[0] - max);
    }
    sum = block_sum<BLOCK>(sum, smem);
    sum = is_log ? logf(sum) : 1 / sum;
    for (int64_t i = threadIdx.x; i < n; i += BLOCK) {
        fetch<1>(x, from + i, v);
        v[0] = is_log ? v[0] - max - sum : expf(v[0] - max) * sum;
        put_norm<1>(y, from + i, v);
    }
}

static __global__ void softmax_inner(struct k_operand x, struct k_operand y, int64_t lines,
                                     int64_t n, int64_t inner, bool is_log)
{
    const int64_t line = (int64_t)blockIdx.x * BLOCK + threadIdx.x;
    const int64_t from = line / inner * n * inner + line % inner;
    float max = -INFINITY, sum = 0, v[1];

    if (line >= lines)
        return;
    for (int64_t i = 0; i < n; i++) {
        fetch<1>(x, from + i * inner, v);
        max = max_nan(max, v[0]);
    }
    for (int64_t i = 0; i < n; i++) {
        fetch<1>(x, from + i * inner, v);
        sum += expf(v[0] - max);
    }
    sum = is_log ? logf(sum) : 1 / sum;
    for (int64_t i = 0; i < n; i++) {
        fetch<1>(x, from + i * inner, v);
        v[0] = is_log ? v[0] - max - sum : expf(v[0] - max) * sum;
        put_norm<1>(y, from + i * inner, v);
    }
}

void k_softmax(cudaStream_t s, const struct k_lines *l, struct k_operand x, struct k_operand y,
               bool is_log)
{
    const int64_t lines = l->outer * l->inner;

    if (l->inner > 1)
        softmax_inner<<<(unsigned)cdiv64(lines, BLOCK), BLOCK, 0, s>>>(x, y, lines, l->n, l->inner,
                                                                       is_log);
    else if (l->n > MAX_HELD)
        softmax_long<<<(unsigned)lines, BLOCK, 0, s>>>(x, y, l->n, is_log);
    else
        DISPATCH_HELD(l->n, softmax_held<V, C>
                      <<<(unsigned)cdiv64(lines, WARPS), WARPS * WARP, 0, s>>>(x, y, lines,
                                                                               (int)l->n, is_log));
}

// d_x = y (d_y - sum(d_y y) / sum(y)); of the logarithm: d_x = d_y - exp(y) sum(d_y). Without the
// sum of y, which is 1 but for rounding, a y stored in 16 bits would lose the small differences of
// a line that one element dominates.
static DEV_INLINE float softmax_slope(float y, float dy, float sum, bool is_log)
{
    return is_log ? dy - expf(y) * sum : y * (dy - sum);
}

template <int V, int C>
static __global__ void softmax_bwd_held(struct k_operand y, struct k_operand dy,
                                        struct k_operand dx, int64_t lines, int n, bool is_log)
{
    const int64_t line = own_line();
    held<V, C> h, g;
    float sum = 0, total = 0;

    if (line >= lines)
        return;
    h.load(y, line * n, n, 0);
    g.load(dy, line * n, n, 0);
    EACH(c, i)
    {
        sum += g.v[c][i] * (is_log ? 1 : h.v[c][i]);
        total += h.v[c][i];
    }
    sum = warp_sum(sum);
    total = warp_sum(total);
    if (!is_log)
        sum /= total;
    EACH(c, i) h.v[c][i] = softmax_slope(h.v[c][i], g.v[c][i], sum, is_log);
    h.store(dx, line * n, n);
}

static __global__ void softmax_bwd_long(struct k_operand y, struct k_operand dy,
                                        struct k_operand dx, int64_t n, bool is_log)
{
    __shared__ float smem[BLOCK / WARP];
    const int64_t from = blockIdx.x * n;
    float sum = 0, total = 0, v[1], g[1];

    for (int64_t i = threadIdx.x; i < n; i += BLOCK) {
        fetch<1>(y, from + i, v);
        fetch<1>(dy, from + i, g);
        sum += g[0] * (is_log ? 1 : v[0]);
        total += v[0];
    }
    sum = block_sum<BLOCK>(sum, smem);
    total = block_sum<BLOCK>(total, smem);
    if (!is_log)
        sum /= total;
    for (int64_t i = threadIdx.x; i < n; i += BLOCK) {
        fetch<1>(y, from + i, v);
        fetch<1>(dy, from + i, g);
        v[0] = softmax_slope(v[0], g[0], sum, is_log);
        put_norm<1>(dx, from + i, v);
    }
}

static __global__ void softmax_bwd_inner(struct k_operand y, struct k_operand dy,
                                         struct k_operand dx, int64_t lines, int64_t n,
                                         int64_t inner, bool is_log)
{
    const int64_t line = (int64_t)blockIdx.x * BLOCK + threadIdx.x;
    const int64_t from = line / inner * n * inner + line % inner;
    float sum = 0, total = 0, v[1], g[1];

    if (line >= lines)
        return;
    for (int64_t i = 0; i < n; i++) {
        fetch<1>(y, from + i * inner, v);
        fetch<1>(dy, from + i * inner, g);
        sum += g[0] * (is_log ? 1 : v[0]);
        total += v[0];
    }
    if (!is_log)
        sum /= total;
    for (int64_t i = 0; i < n; i++) {
        fetch<1>(y, from + i * inner, v);
        fetch<1>(dy, from + i * inner, g);
        v[0] = softmax_slope(v[0], g[0], sum, is_log);
        put_norm<1>(dx, from + i * inner, v);
    }
}

void k_softmax_bwd(cudaStream_t s, const struct k_lines *l, struct k_operand y, struct k_operand dy,
                   struct k_operand dx, bool is_log)
{
    const int64_t lines = l->outer * l->inner;

    if (l->inner > 1)
        softmax_bwd_inner<<<(unsigned)cdiv64(lines, BLOCK), BLOCK, 0, s>>>(y, dy, dx, lines, l->n,
                                                                           l->inner, is_log);
    else if (l->n > MAX_HELD)
        softmax_bwd_long<<<(unsigned)lines, BLOCK, 0, s>>>(y, dy, dx, l->n, is_log);
    else
        DISPATCH_HELD(l->n, softmax_bwd_held<V, C>
                      <<<(unsigned)cdiv64(lines, WARPS), WARPS * WARP, 0, s>>>(y, dy, dx, lines,
                                                                               (int)l->n, is_log));
}

// ------------------------------------------------------------------ layer normalisation

template <int V, int C>
static __global__ void layernorm_held(const __grid_constant__ struct k_layernorm a)
{
    const int64_t line = own_line();
    const int n = (int)a.n;
    float mean = 0, var = 0, inv;
    raw<V, C> x, scale_raw, bias_raw; // three loads take as long as one
    held<V, C> h, scale, bias;

    if (line >= a.rows)
        return;
    x.load(a.x, line * n, n);
    if (a.scale.p)
        scale_raw.load(a.scale, 0, n);
    if (a.bias.p)
        bias_raw.load(a.bias, 0, n);
    h.widen(x, a.x.type, n, 0);
    EACH(c, i) mean += h.v[c][i];
    mean = warp_sum(mean) / (float)n;
    EACH(c, i)
    {
        const float d = h.v[c][i] - mean;

        var += (c * WARP + threadIdx.x % WARP) * V + i < n ? d * d : 0;
    }
    inv = 1 / sqrtf(warp_sum(var) / (float)n + a.eps);
    scale.widen_or(scale_raw, a.scale, n, 1);
    bias.widen_or(bias_raw, a.bias, n, 0);
    EACH(c, i) h.v[c][i] = (h.v[c][i] - mean) * inv * scale.v[c][i] + bias.v[c][i];
    h.store(a.y, line * n, n);
    if (a.bytes.p)
        h.store_bytes(a, line * n, n);
    if (threadIdx.x % WARP == 0) {
        if (a.mean)
            a.mean[line] = mean;
        if (a.invstd)
            a.invstd[line] = inv;
    }
}

static __global__ void layernorm_long(const __grid_constant__ struct k_layernorm a)
{
    __shared__ float smem[BLOCK / WARP];
    const int64_t from = blockIdx.x * a.n;
    float mean = 0, var = 0, inv, v[1], scale[1], bias[1];

    for (int64_t i = threadIdx.x; i < a.n; i += BLOCK) {
        fetch<1>(a.x, from + i, v);
        mean += v[0];
    }
    mean = block_sum<BLOCK>(mean, smem) / (float)a.n;
    for (int64_t i = threadIdx.x; i < a.n; i += BLOCK) {
        fetch<1>(a.x, from + i, v);
        var += (v[0] - mean) * (v[0] - mean);
    }
    inv = 1 / sqrtf(block_sum<BLOCK>(var, smem) / (float)a.n + a.eps);
    for (int64_t i = threadIdx.x; i < a.n; i += BLOCK) {
        fetch<1>(a.x, from + i, v);
        fetch_or<1>(a.scale, i, 1, scale);
        fetch_or<1>(a.bias, i, 0, bias);
        v[0] = (v[0] - mean) * inv * scale[0] + bias[0];
        put_norm<1>(a.y, from + i, v);
        if (a.bytes.p)
            ((uint8_t *)a.bytes.p)[from + i] = byte_of(a, v[0]);
    }
    if (threadIdx.x == 0) {
        if (a.mean)
            a.mean[blockIdx.x] = mean;
        if (a.invstd)
            a.invstd[blockIdx.x] = inv;
    }
}

void k_layernorm(cudaStream_t s, const struct k_layernorm *a)
{
    if (a->n > MAX_HELD)
        layernorm_long<<<(unsigned)a->rows, BLOCK, 0, s>>>(*a);
    else
        DISPATCH_HELD(a->n, layernorm_held<V, C>
                      <<<(unsigned)cdiv64(a->rows, WARPS), WARPS * WARP, 0, s>>>(*a));
}

// d_x = invstd (g - mean(g) - h mean(g h)), g = d_y scale, h = (x - mean) invstd;
// d_scale = sum(d_y h), d_bias = sum(d_y) over the lines.

// Which part of a line a warp has: `wings` warps share one, and a block has several lines at once.
struct wing {
    int wings, group, groups, first; // groups: lines at once; first: column of the warp

    DEV_INLINE wing(int n_wings, int width)
    {
        const int warp = threadIdx.x / WARP;

        wings = n_wings;
        groups = BWD_WARPS / wings;
        group = warp / wings;
        first = warp % wings * width;
    }
    // The sums over the line's warps, in their order; all of the block come here as often. at: of
    // two places that take turns, so that a warp may come with the next sums while others still
    // read these.
    DEV_INLINE float2 sum(float2 own, float2 (&at)[BWD_WARPS]) const
    {
        float2 all = {0, 0};

        own.x = warp_sum(own.x);
        own.y = warp_sum(own.y);
        if (wings == 1)
            return own;
        if (threadIdx.x % WARP == 0)
            at[threadIdx.x / WARP] = own;
        __syncthreads();
        for (int w = 0; w < wings; w++) { // a warp that is left over has none: it reads the first
            const float2 o = at[(group < groups ? group * wings : 0) + w];

            all.x += o.x;
            all.y += o.y;
        }
        return all;
    }
};

// d_scale and d_bias of the block's lines, from what its warps summed, into parts[block].
template <int V, int C>
static DEV_INLINE void sum_block(const struct k_layernorm_bwd &a, const wing &w,
                                 const float (&ds)[C][V], const float (&db)[C][V], float *smem)
{
    const int n = (int)a.n, width = w.wings * C * WARP * V, both = w.groups * width;
    const int own = w.group * width + w.first + threadIdx.x % WARP * V;

    __syncthreads(); // smem was used otherwise
#pragma unroll
    for (int c = 0; c < C; c++)
        if (w.group < w.groups) {
            store_f<V>(smem + own + c * WARP * V, ds[c]);
            store_f<V>(smem + both + own + c * WARP * V, db[c]);
        }
    __syncthreads();
    for (int i = threadIdx.x * V; i < 2 * n; i += BWD_WARPS * WARP * V) {
        const float *from = smem + (i < n ? i : both + i - n);
        float all[V] = {};

#pragma unroll 4
        for (int g = 0; g < w.groups; g++) {
            const vec<float, V> one = load_vec<V>(from + g * width);

#pragma unroll
            for (int k = 0; k < V; k++)
                all[k] += one.v[k];
        }
        store_f<V>(a.parts + (int64_t)blockIdx.x * 2 * n + i, all);
    }
}

// Each group of warps takes every (groups * gridDim.x)-th line; the next one is under way while
// this one's sums are made. Lanes behind the line's end have d_y = 0, and so have warps without a
// line.
template <int V, int C>
static __global__ void __launch_bounds__(BWD_WARPS *WARP, 1)
    layernorm_bwd_held(const __grid_constant__ struct k_layernorm_bwd a, int wings)
{
    __shared__ __align__(16) float smem[2 * BWD_WARPS * C * WARP * V];
    const wing w(wings, C * WARP * V);
    const int n = (int)a.n - w.first; // what is left of a line
    const int64_t step = (int64_t)gridDim.x * w.groups;
    float ds[C][V] = {}, db[C][V] = {};
    float mean = 0, inv = 0;
    raw<V, C> x = {}, dy = {};
    held<V, C> scale;
    int turn = 0;
    const auto has = [&](int64_t line) { return w.group < w.groups && line < a.rows; };
    const auto load = [&](int64_t line) {
        if (!has(line)) {
            x = dy = {};
            return;
        }
        x.load(a.x, line * a.n + w.first, n);
        dy.load(a.dy, line * a.n + w.first, n);
        mean = a.mean[line];
        inv = a.invstd[line];
    };

    load((int64_t)blockIdx.x * w.groups + w.group);
    scale.load_or(a.scale, w.first, n, 1);
    for (int64_t from = (int64_t)blockIdx.x * w.groups; from < a.rows; from += step, turn ^= 1) {
        const int64_t line = from + w.group;
        const float slope = inv, middle = mean;
        held<V, C> h, g;
        float2 sum = {0, 0}; // of g, of g h

        x.widen(a.x.type, h.v);
        dy.widen(a.dy.type, g.v);
        EACH(c, i)
        {
            h.v[c][i] = (h.v[c][i] - middle) * slope;
            ds[c][i] += g.v[c][i] * h.v[c][i];
            db[c][i] += g.v[c][i];
            g.v[c][i] *= scale.v[c][i];
            sum.x += g.v[c][i];
            sum.y += g.v[c][i] * h.v[c][i];
        }
        load(line + step);
        sum = w.sum(sum, reinterpret_cast<float2(*)[BWD_WARPS]>(smem)[turn]);
        sum.x /= (float)a.n;
        sum.y /= (float)a.n;
        EACH(c, i) h.v[c][i] = slope * (g.v[c][i] - sum.x - h.v[c][i] * sum.y);
        if (has(line))
            h.store(a.dx, line * a.n + w.first, n);
    }
    if (a.parts)
        sum_block<V, C>(a, w, ds, db, smem);
}

static __global__ void layernorm_bwd_long(const __grid_constant__ struct k_layernorm_bwd a)
{
    __shared__ float smem[BLOCK / WARP];
    const int64_t from = blockIdx.x * a.n;
    const float mean = a.mean[blockIdx.x], inv = a.invstd[blockIdx.x];
    float sum = 0, dot = 0, x[1], g[1], scale[1];

    for (int64_t i = threadIdx.x; i < a.n; i += BLOCK) {
        fetch<1>(a.x, from + i, x);
        fetch<1>(a.dy, from + i, g);
        fetch_or<1>(a.scale, i, 1, scale);
        sum += g[0] * scale[0];
        dot += g[0] * scale[0] * (x[0] - mean) * inv;
    }
    sum = block_sum<BLOCK>(sum, smem) / (float)a.n;
    dot = block_sum<BLOCK>(dot, smem) / (float)a.n;
    for (int64_t i = threadIdx.x; i < a.n; i += BLOCK) {
        fetch<1>(a.x, from + i, x);
        fetch<1>(a.dy, from + i, g);
        fetch_or<1>(a.scale, i, 1, scale);
        x[0] = inv * (g[0] * scale[0] - sum - (x[0] - mean) * inv * dot);
        put_norm<1>(a.dx, from + i, x);
    }
}

// Block (columns / WARP, part): its share of the lines, for long ones.
static __global__ void layernorm_columns(const __grid_constant__ struct k_layernorm_bwd a)
{
    __shared__ float all[2][REDUCE_ROWS][WARP];
    const int64_t col = (int64_t)blockIdx.x * WARP + threadIdx.x;
    float ds = 0, db = 0, x[1], g[1];

    for (int64_t r = (int64_t)blockIdx.y * REDUCE_ROWS + threadIdx.y; col < a.n && r < a.rows;
         r += (int64_t)gridDim.y * REDUCE_ROWS) {
        fetch<1>(a.x, r * a.n + col, x);
        fetch<1>(a.dy, r * a.n + col, g);
        ds += g[0] * (x[0] - a.mean[r]) * a.invstd[r];
        db += g[0];
    }
    all[0][threadIdx.y][threadIdx.x] = ds;
    all[1][threadIdx.y][threadIdx.x] = db;
    __syncthreads();
    if (threadIdx.y < 2 && col < a.n) {
        float sum = 0;

        for (int i = 0; i < REDUCE_ROWS; i++)
            sum += all[threadIdx.y][i][threadIdx.x];
        a.parts[((int64_t)blockIdx.y * 2 + threadIdx.y) * a.n + col] = sum;
    }
}

// d_scale and d_bias from the parts of the blocks: 2 n columns, of which a block has SUM_COLUMNS.
#define SUM_COLUMNS 16
#define SUM_ROWS (BLOCK / SUM_COLUMNS)
#define SUM_AHEAD 10 // loads of a thread that are under way: of one part from each multiprocessor
static __global__ void sum_parts(const float *parts, int64_t n, int n_parts, float *d_scale,
                                 float *d_bias)
{
    __shared__ float all[SUM_ROWS][SUM_COLUMNS];
    const int row = threadIdx.x / SUM_COLUMNS;
    const int64_t col = (int64_t)blockIdx.x * SUM_COLUMNS + threadIdx.x % SUM_COLUMNS;
    float *out = col < n ? d_scale : d_bias, sum = 0;

    for (int from = row; col < 2 * n && from < n_parts; from += SUM_AHEAD * SUM_ROWS) {
        float part[SUM_AHEAD];

#pragma unroll
        for (int k = 0; k < SUM_AHEAD; k++) {
            const int p = from + k * SUM_ROWS;

            part[k] = p < n_parts ? parts[p * 2 * n + col] : 0;
        }
#pragma unroll
        for (int k = 0; k < SUM_AHEAD; k++)
            sum += part[k];
    }
    all[row][threadIdx.x % SUM_COLUMNS] = sum;
    __syncthreads();
    if (row == 0 && col < 2 * n && out) {
#pragma unroll
        for (int i = 1; i < SUM_ROWS; i++)
            sum += all[i][threadIdx.x];
        out[col < n ? col : col - n] = sum;
    }
}

// Units of 128 elements that each of a line's warps has, and how many warps they are.
struct division {
    int units, wings;
};
static division division_of(int64_t n)
{
    const int units = (int)cdiv64(n, 128), wings = (int)cdiv64(units, BWD_UNITS);

    return {(int)cdiv64(units, wings), wings};
}

int k_layernorm_parts(int64_t rows, int64_t n, int n_sms)
{
    const bool is_held = n <= BWD_MAX_HELD;
    const int64_t each = is_held ? BWD_WARPS / division_of(n).wings : REDUCE_ROWS;
    const int64_t blocks = cdiv64(rows, each), most = is_held ? n_sms : 64;

    return (int)(blocks < most ? blocks : most);
}

template <int V> static void bwd_held(cudaStream_t s, const struct k_layernorm_bwd *a)
{
    const division d = division_of(a->n);
    const unsigned blocks = (unsigned)a->n_parts, threads = BWD_WARPS * WARP;

    if (d.units == 1)
        layernorm_bwd_held<V, 4 / V><<<blocks, threads, 0, s>>>(*a, d.wings);
    else if (d.units == 2)
        layernorm_bwd_held<V, 8 / V><<<blocks, threads, 0, s>>>(*a, d.wings);
    else
        layernorm_bwd_held<V, 12 / V><<<blocks, threads, 0, s>>>(*a, d.wings);
}

void k_layernorm_bwd(cudaStream_t s, const struct k_layernorm_bwd *a)
{
    const dim3 columns((unsigned)cdiv64(a->n, WARP), (unsigned)a->n_parts);

    if (a->n > BWD_MAX_HELD) {
        layernorm_bwd_long<<<(unsigned)a->rows, BLOCK, 0, s>>>(*a);
        if (a->parts)
            layernorm_columns<<<columns, dim3(WARP, REDUCE_ROWS), 0, s>>>(*a);
    } else if (a->n % 4 == 0) {
        bwd_held<4>(s, a);
    } else {
        bwd_held<1>(s, a);
    }
    if (a->parts)
        sum_parts<<<(unsigned)cdiv64(2 * a->n, SUM_COLUMNS), BLOCK, 0, s>>>(
            a->parts, a->n, a->n_parts, a->d_scale, a->d_bias);
}
