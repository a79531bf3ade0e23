// norm.cu - softmax, layer normalisation and their gradients, line by line.
//
//   line of at most 1024 elements    a warp holds it in registers and reads it once
//   longer                           a block reads it as often as there are passes
//   softmax along an inner axis      a thread for each line; neighbours run along adjacent lines
//
// A lane holds V adjacent elements of every 32 V: four or eight where the length allows it.
// Sums are in F32, types are looked at when loading and storing. The gradients of scale and bias
// are summed by each block over the lines that it has, then over the blocks: in a fixed order.

#include "executor/device/cuda/device.cuh"

#define WARPS 4 // of a block that has a warp for each line
#define BLOCK 256
#define MAX_HELD 1024
#define REDUCE_ROWS 16

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

template <int V> static DEV_INLINE void put(struct k_operand o, int64_t at, const float (&v)[V])
{
    if (o.type == CUDA_T_F32)
        store_f<V>((float *)o.p + at, v);
    else if (o.type == CUDA_T_F16)
        store_f<V>((f16 *)o.p + at, v);
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

// One line in a warp: element (c, i) of a lane is number (c * 32 + lane) * V + i.
template <int V, int C> struct held {
    float v[C][V];

    // What lies behind the end of the line becomes `fill`.
    DEV_INLINE void load(struct k_operand o, int64_t from, int n, float fill)
    {
#pragma unroll
        for (int c = 0; c < C; c++) {
            const int at = (c * WARP + threadIdx.x % WARP) * V;

#pragma unroll
            for (int i = 0; i < V; i++)
                v[c][i] = fill;
            if (at < n)
                fetch<V>(o, from + at, v[c]);
        }
    }
    DEV_INLINE void store(struct k_operand o, int64_t from, int n) const
    {
#pragma unroll
        for (int c = 0; c < C; c++) {
            const int at = (c * WARP + threadIdx.x % WARP) * V;

            if (at < n)
                put<V>(o, from + at, v[c]);
        }
    }
};

#define EACH(c, i) \
    _Pragma("unroll") for (int c = 0; c < C; c++) _Pragma("unroll") for (int i = 0; i < V; i++)

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
        else if ((n) % 8 == 0 && (n) <= 256)  \
            DISPATCH_CASE(8, 1, __VA_ARGS__)  \
        else if ((n) % 8 == 0 && (n) <= 768)  \
            DISPATCH_CASE(8, 3, __VA_ARGS__)  \
        else if ((n) % 8 == 0)                \
            DISPATCH_CASE(8, 4, __VA_ARGS__)  \
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
        put<1>(y, from + i, v);
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
        put<1>(y, from + i * inner, v);
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
        put<1>(dx, from + i, v);
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
        put<1>(dx, from + i * inner, v);
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
    held<V, C> h;

    if (line >= a.rows)
        return;
    h.load(a.x, line * n, n, 0);
    EACH(c, i) mean += h.v[c][i];
    mean = warp_sum(mean) / (float)n;
    EACH(c, i)
    {
        const float d = h.v[c][i] - mean;

        var += (c * WARP + threadIdx.x % WARP) * V + i < n ? d * d : 0;
    }
    inv = 1 / sqrtf(warp_sum(var) / (float)n + a.eps);
#pragma unroll
    for (int c = 0; c < C; c++) {
        const int at = (c * WARP + threadIdx.x % WARP) * V;
        float scale[V], bias[V];

        if (at >= n)
            continue;
        fetch_or<V>(a.scale, at, 1, scale);
        fetch_or<V>(a.bias, at, 0, bias);
#pragma unroll
        for (int i = 0; i < V; i++)
            h.v[c][i] = (h.v[c][i] - mean) * inv * scale[i] + bias[i];
        put<V>(a.y, line * n + at, h.v[c]);
    }
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
        put<1>(a.y, from + i, v);
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

// Each warp takes every (WARPS * gridDim.x)-th line and sums what its lanes hold of d_scale and
// d_bias; at the end the block's warps are summed into parts[block].
template <int V, int C>
static __global__ void layernorm_bwd_held(const __grid_constant__ struct k_layernorm_bwd a)
{
    extern __shared__ float smem[]; // [WARPS][C * WARP * V]
    const int n = (int)a.n, warp = threadIdx.x / WARP, lane = threadIdx.x % WARP;
    held<V, C> ds, db;

    EACH(c, i) ds.v[c][i] = db.v[c][i] = 0;
    for (int64_t line = own_line(); line < a.rows; line += (int64_t)gridDim.x * WARPS) {
        const float mean = a.mean[line], inv = a.invstd[line];
        float sum = 0, dot = 0;
        held<V, C> h, g;

        h.load(a.x, line * n, n, mean);
        g.load(a.dy, line * n, n, 0);
#pragma unroll
        for (int c = 0; c < C; c++) {
            const int at = (c * WARP + lane) * V;
            float scale[V];

            if (at < n)
                fetch_or<V>(a.scale, at, 1, scale);
#pragma unroll
            for (int i = 0; i < V; i++) {
                h.v[c][i] = (h.v[c][i] - mean) * inv;
                ds.v[c][i] += g.v[c][i] * h.v[c][i];
                db.v[c][i] += g.v[c][i];
                g.v[c][i] = at < n ? g.v[c][i] * scale[i] : 0;
                sum += g.v[c][i];
                dot += g.v[c][i] * h.v[c][i];
            }
        }
        sum = warp_sum(sum) / (float)n;
        dot = warp_sum(dot) / (float)n;
        EACH(c, i) h.v[c][i] = inv * (g.v[c][i] - sum - h.v[c][i] * dot);
        h.store(a.dx, line * n, n);
    }
    if (!a.parts)
        return;
#pragma unroll
    for (int which = 0; which < 2; which++) {
        __syncthreads();
        EACH(c, i)
        smem[warp * C * WARP * V + (c * WARP + lane) * V + i] = which ? db.v[c][i] : ds.v[c][i];
        __syncthreads();
        for (int at = threadIdx.x; at < n; at += WARPS * WARP) {
            float all = 0;

#pragma unroll
            for (int w = 0; w < WARPS; w++)
                all += smem[w * C * WARP * V + at];
            a.parts[((int64_t)blockIdx.x * 2 + which) * n + at] = all;
        }
    }
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
        put<1>(a.dx, from + i, x);
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

// d_scale and d_bias from the parts of the blocks; blockIdx.y: which of the two.
static __global__ void sum_parts(const float *parts, int64_t n, int n_parts, float *d_scale,
                                 float *d_bias)
{
    __shared__ float all[REDUCE_ROWS][WARP];
    const int64_t col = (int64_t)blockIdx.x * WARP + threadIdx.x;
    float *out = blockIdx.y ? d_bias : d_scale, sum = 0;

    if (!out)
        return;
    for (int p = threadIdx.y; col < n && p < n_parts; p += REDUCE_ROWS)
        sum += parts[((int64_t)p * 2 + blockIdx.y) * n + col];
    all[threadIdx.y][threadIdx.x] = sum;
    __syncthreads();
    if (threadIdx.y == 0 && col < n) {
        for (int i = 1; i < REDUCE_ROWS; i++)
            sum += all[i][threadIdx.x];
        out[col] = sum;
    }
}

int k_layernorm_parts(int64_t rows, int64_t n, int n_sms)
{
    const int64_t each = n > MAX_HELD ? REDUCE_ROWS : WARPS, most = n > MAX_HELD ? 64 : 2 * n_sms;
    const int64_t blocks = cdiv64(rows, each);

    return (int)(blocks < most ? blocks : most);
}

void k_layernorm_bwd(cudaStream_t s, const struct k_layernorm_bwd *a)
{
    const dim3 columns((unsigned)cdiv64(a->n, WARP), (unsigned)a->n_parts), tile(WARP, REDUCE_ROWS);

    if (a->n > MAX_HELD) {
        layernorm_bwd_long<<<(unsigned)a->rows, BLOCK, 0, s>>>(*a);
        if (a->parts)
            layernorm_columns<<<columns, tile, 0, s>>>(*a);
    } else {
        DISPATCH_HELD(
            a->n, layernorm_bwd_held<V, C>
            <<<(unsigned)a->n_parts, WARPS * WARP, WARPS * C * WARP * V * sizeof(float), s>>>(*a));
    }
    if (a->parts)
        sum_parts<<<dim3(columns.x, 2), tile, 0, s>>>(a->parts, a->n, a->n_parts, a->d_scale,
                                                      a->d_bias);
}
