/* bn.cu - batch normalisation: training, its gradients, inference.
 *
 * Channels last (also [N, C]): a matrix of rows x channels. A thread owns V channels (16 bytes) and
 * walks over rows, so that a warp reads whole lines; blocks share the rows. Statistics are sums of
 * x - x[row 0], which keeps the variance exact where the mean is large; short chains in F32, then
 * the last block of each column of blocks adds the partial sums in F64 and derives what the second
 * kernel needs of each channel. The second kernel is element-wise. The first walks from the end
 * (what was written last is still in the L2 cache), the second from the start, for the same reason.
 * V is 1 where the channels do not divide.
 *
 * Channels first ([N, C, L] as it comes without convolutions): a block for each channel does both.
 *
 * Backward, d_y is first masked by the activation. If that masked gradient is a result of its own,
 * the first kernel writes it and the second reads only it.
 */
#include "executor/device/cuda/act.cuh"
#include "executor/device/cuda/grid.cuh"

#define REDUCE_THREADS 512 /* of the kernels that sum; blocks on a multiprocessor: */
#define STATS_BLOCKS 2
#define SUMS_BLOCKS 1
#define EACH_THREADS 256 /* of the element-wise kernels */
#define EACH_BLOCKS 3

/* ------------------------------------------------------------------ channels last: the matrix */

struct cols {
    int64_t rows;
    int c, log_tx; /* threads of a block side by side: 2^log_tx */
    int gx, gy;    /* blocks: along channels (at most K_ARRIVALS), along rows */
    uint32_t *arrivals;
};

static struct cols cols_of(const struct k_bn *b, int v, int threads, int blocks)
{
    const int vecs = (int)(b->c / v);
    struct cols g = {b->n * b->len, (int)b->c, 5, 1, 1, b->arrivals};
    int64_t rows_at_once;

    /* 128 bytes side by side are enough; idle threads are not wanted. */
    while (g.log_tx > 3 && vecs % (1 << g.log_tx) != 0)
        g.log_tx--;
    if (vecs % (1 << g.log_tx) != 0) {
        g.log_tx = 5;
        while (g.log_tx > 0 && vecs <= 1 << (g.log_tx - 1))
            g.log_tx--;
    }
    g.gx = (int)cdiv64(vecs, 1 << g.log_tx);
    rows_at_once = threads >> g.log_tx;
    /* All blocks at once: one more and the device would be half empty while it runs. */
    g.gy = b->n_sms * blocks / g.gx;
    if (g.gy > cdiv64(g.rows, rows_at_once))
        g.gy = (int)cdiv64(g.rows, rows_at_once);
    if (g.gy < 1)
        g.gy = 1;
    return g;
}

struct lane {         /* what a thread has: V channels of some rows */
    int ch, left;     /* the first channel; how many rows */
    int64_t at, step; /* elements: of the first row, between two rows */
};

/* reverse: from the last row to the first. */
template <int V, int THREADS> DEV_INLINE struct lane lane_of(const struct cols &g, bool reverse)
{
    const int tx = 1 << g.log_tx, ty = (int)threadIdx.x >> g.log_tx;
    const int64_t rows_at_once = THREADS >> g.log_tx, step = gridDim.y * rows_at_once;
    const int64_t row = blockIdx.y * rows_at_once + ty;
    struct lane l;

    l.ch = ((int)blockIdx.x * tx + ((int)threadIdx.x & (tx - 1))) * V;
    l.left = l.ch < g.c && row < g.rows ? (int)((g.rows - row + step - 1) / step) : 0;
    l.at = (reverse ? g.rows - 1 - row : row) * g.c + l.ch;
    l.step = (reverse ? -step : step) * g.c;
    return l;
}

template <int V> struct reduce_smem {
    union {
        float2 warps[REDUCE_THREADS / WARP][WARP * V];
        double2 threads[REDUCE_THREADS];
    };
};

/* The sums of a block over its rows, into part[blockIdx.y][channel]. */
template <int V>
DEV_INLINE void reduce_block(const struct cols &g, float (&s)[V], float (&q)[V],
                             struct reduce_smem<V> *smem, float2 *part)
{
    const int tx = 1 << g.log_tx, lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
    const int at = (int)threadIdx.x, ch = (int)blockIdx.x * tx * V + at;

    for (int d = tx; d < WARP; d *= 2) {
#pragma unroll
        for (int i = 0; i < V; i++) {
            s[i] += __shfl_xor_sync(0xffffffffu, s[i], d);
            q[i] += __shfl_xor_sync(0xffffffffu, q[i], d);
        }
    }
    if (lane < tx) {
#pragma unroll
        for (int i = 0; i < V; i++)
            smem->warps[warp][lane * V + i] = make_float2(s[i], q[i]);
    }
    __syncthreads();
    if (at < tx * V && ch < g.c) {
        float2 sum = smem->warps[0][at];

#pragma unroll
        for (int w = 1; w < REDUCE_THREADS / WARP; w++) {
            sum.x += smem->warps[w][at].x;
            sum.y += smem->warps[w][at].y;
        }
        part[(int64_t)blockIdx.y * g.c + ch] = sum;
    }
}

/* In the last block of a column: the sums over all blocks. Valid for thread t of the first tx * V:
 * its channel is blockIdx.x * tx * V + t. */
template <int V>
DEV_INLINE double2 total_of_column(const struct cols &g, struct reduce_smem<V> *smem,
                                   const float2 *part)
{
    const int width = V << g.log_tx, groups = REDUCE_THREADS / width;
    const int at = (int)threadIdx.x % width, group = (int)threadIdx.x / width;
    const int ch = (int)blockIdx.x * width + at;
    double2 sum = make_double2(0, 0);

    if (ch < g.c) {
#pragma unroll 8
        for (int k = group; k < g.gy; k += groups) {
            const float2 p = __ldcg(&part[(int64_t)k * g.c + ch]);

            sum.x += p.x;
            sum.y += p.y;
        }
    }
    __syncthreads();
    smem->threads[threadIdx.x] = sum;
    __syncthreads();
    for (int k = 1; k < groups && group == 0; k++) {
        sum.x += smem->threads[k * width + at].x;
        sum.y += smem->threads[k * width + at].y;
    }
    return sum;
}

/* ------------------------------------------------------------------ a channel's numbers */

/* x -> y: fma(x - x, y, z) = (x - mean) gain + shift */
DEV_INLINE float4 finish_stats(const struct k_bn_train_args &a, int ch, double n, double shift,
                               double sum, double squares)
{
    const double m = sum / n, v = squares / n - m * m, var = v < 0 ? 0 : v;
    const double mean = shift + m, inv = 1 / sqrt(var + (double)a.eps);
    const double unbiased = var * n / (n > 1 ? n - 1 : 1), keep = a.momentum;
    const float mean_f = (float)mean;
    const double gain = inv * a.scale[ch];

    a.mean[ch] = mean_f;
    a.invstd[ch] = (float)inv;
    a.new_mean[ch] = (float)(keep * a.run_mean[ch] + (1 - keep) * mean);
    a.new_var[ch] = (float)(keep * a.run_var[ch] + (1 - keep) * unbiased);
    /* What mean lost when it was rounded goes into the shift. */
    return make_float4(mean_f, (float)gain, (float)(a.bias[ch] - (mean - mean_f) * gain), 0);
}

/* d_x = y d + z (x - mean) + w, in the order of float4 with x = mean */
DEV_INLINE float4 finish_bwd(const struct k_bn_bwd_args &a, int ch, double n, double sum,
                             double dot)
{
    const double inv = a.invstd[ch], gain = a.scale[ch] * inv;

    a.d_bias[ch] = (float)sum;
    a.d_scale[ch] = (float)(dot * inv);
    return make_float4(a.mean[ch], (float)gain, (float)(-gain * inv * inv * dot / n),
                       (float)(-gain * sum / n));
}

/* ------------------------------------------------------------------ channels last: forward */

template <class T, int V>
__global__ __launch_bounds__(REDUCE_THREADS,
                             STATS_BLOCKS) void bn_stats(struct cols g, struct k_bn_train_args a,
                                                         float2 *part, float4 *numbers)
{
    constexpr int U = sizeof(T) == 2 ? 3 : 4;
    __shared__ struct reduce_smem<V> smem;
    const T *const x = (const T *)a.x;
    struct lane l = lane_of<V, REDUCE_THREADS>(g, true);
    float shift[V], s[V], q[V];
    double2 sum;
    int ch;

#pragma unroll
    for (int i = 0; i < V; i++)
        shift[i] = s[i] = q[i] = 0;
    if (l.left > 0)
        load_f<V>(x + l.ch, shift);
    for (; l.left > 0; l.left -= U, l.at += U * l.step) {
        vec<T, V> in[U];

#pragma unroll
        for (int u = 0; u < U; u++)
            if (u < l.left)
                in[u] = load_vec<V>(x + l.at + u * l.step);
#pragma unroll
        for (int u = 0; u < U; u++) {
            if (u >= l.left)
                break;
#pragma unroll
            for (int i = 0; i < V; i++) {
                const float d = to_f(in[u].v[i]) - shift[i];

                s[i] += d;
                q[i] = fmaf(d, d, q[i]);
            }
        }
    }
    reduce_block<V>(g, s, q, &smem, part);
    if (!comes_last(&g.arrivals[blockIdx.x], gridDim.y))
        return;
    sum = total_of_column<V>(g, &smem, part);
    ch = (int)blockIdx.x * (V << g.log_tx) + (int)threadIdx.x;
    if ((int)threadIdx.x < V << g.log_tx && ch < g.c)
        numbers[ch] = finish_stats(a, ch, (double)g.rows, to_f(x[ch]), sum.x, sum.y);
}

/* For 16-bit numbers the mean can go into the shift: what that loses is far below their rounding,
 * and it saves registers. */
template <class T> constexpr bool FOLDS = sizeof(T) == 2;

template <class T, int V, bool RESIDUAL>
__global__ __launch_bounds__(EACH_THREADS, EACH_BLOCKS) void bn_forward(struct cols g,
                                                                        struct k_bn_train_args a,
                                                                        const float4 *numbers)
{
    constexpr int U = RESIDUAL ? 2 : 4;
    struct lane l = lane_of<V, EACH_THREADS>(g, false);
    float mean[V], gain[V], shift[V];

#pragma unroll
    for (int i = 0; i < V; i++) {
        const float4 n = l.left > 0 ? numbers[l.ch + i] : make_float4(0, 0, 0, 0);

        mean[i] = FOLDS<T> ? 0 : n.x;
        gain[i] = n.y;
        shift[i] = FOLDS<T> ? fmaf(-n.x, n.y, n.z) : n.z;
    }
    for (; l.left > 0; l.left -= U, l.at += U * l.step) {
        vec<T, V> in[U], res[U];

#pragma unroll
        for (int u = 0; u < U; u++) {
            if (u >= l.left)
                break;
            in[u] = load_vec<V>((const T *)a.x + l.at + u * l.step);
            if (RESIDUAL)
                res[u] = load_vec<V>((const T *)a.residual + l.at + u * l.step);
        }
#pragma unroll
        for (int u = 0; u < U; u++) {
            vec<T, V> out;

            if (u >= l.left)
                break;
#pragma unroll
            for (int i = 0; i < V; i++) {
                float v = fmaf(to_f(in[u].v[i]) - mean[i], gain[i], shift[i]);

                if (RESIDUAL)
                    v += to_f(res[u].v[i]);
                out.v[i] = from_f<T>(act_clamp(v, a.lo, a.hi));
            }
            store_vec<V>((T *)a.y + l.at + u * l.step, out);
        }
    }
}

/* ------------------------------------------------------------------ channels last: backward */

enum mask {
    MASK_NONE,
    MASK_Y,    /* by y */
    MASK_AGAIN /* by (x - mean) gain + bias */
};

template <class T, int V> struct bwd_in { /* one row of a thread */
    vec<T, V> x, dy, dy2, y;
};

/* EXTRA: there may be a d_y2. */
template <class T, int V, int MASK, bool EXTRA>
DEV_INLINE void load_row(const struct k_bn_bwd_args &a, int64_t at, struct bwd_in<T, V> *in)
{
    in->x = load_vec<V>((const T *)a.x + at);
    in->dy = load_vec<V>((const T *)a.d_y + at);
    if (EXTRA && a.d_y2)
        in->dy2 = load_vec<V>((const T *)a.d_y2 + at);
    if (MASK == MASK_Y)
        in->y = load_vec<V>((const T *)a.y + at);
}

/* The masked gradient, rounded as it is stored; x0: x - mean, or what bias is relative to. */
template <class T, int V, int MASK, bool EXTRA>
DEV_INLINE void masked(const struct k_bn_bwd_args &a, const struct bwd_in<T, V> &in,
                       const float (&x0)[V], const float (&gain)[V], const float (&bias)[V],
                       float (&d)[V])
{
#pragma unroll
    for (int i = 0; i < V; i++) {
        d[i] = to_f(in.dy.v[i]);
        if (EXTRA && a.d_y2)
            d[i] = to_f(from_f<T>(d[i] + to_f(in.dy2.v[i])));
        if (MASK != MASK_NONE) {
            const float v = MASK == MASK_Y ? to_f(in.y.v[i]) : fmaf(x0[i], gain[i], bias[i]);

            d[i] = v > a.lo && v < a.hi ? d[i] : 0;
        }
    }
}

template <class T, int V, int MASK, bool EXTRA>
__global__ __launch_bounds__(REDUCE_THREADS,
                             SUMS_BLOCKS) void bn_bwd_sums(struct cols g, struct k_bn_bwd_args a,
                                                           float2 *part, float4 *numbers)
{
    constexpr int U = sizeof(T) == 4 ? 4 : EXTRA ? 2 : 3;
    __shared__ struct reduce_smem<V> smem;
    struct lane l = lane_of<V, REDUCE_THREADS>(g, true);
    float mean[V], gain[V], bias[V], s[V], q[V];
    double2 sum;
    int ch;

#pragma unroll
    for (int i = 0; i < V; i++) {
        mean[i] = l.left > 0 ? a.mean[l.ch + i] : 0;
        gain[i] = l.left > 0 && MASK == MASK_AGAIN ? a.scale[l.ch + i] * a.invstd[l.ch + i] : 0;
        bias[i] = l.left > 0 && MASK == MASK_AGAIN ? a.bias[l.ch + i] : 0;
        s[i] = q[i] = 0;
    }
    for (; l.left > 0; l.left -= U, l.at += U * l.step) {
        struct bwd_in<T, V> in[U];

#pragma unroll
        for (int u = 0; u < U; u++)
            if (u < l.left)
                load_row<T, V, MASK, EXTRA>(a, l.at + u * l.step, &in[u]);
#pragma unroll
        for (int u = 0; u < U; u++) {
            float x0[V], d[V];

            if (u >= l.left)
                break;
#pragma unroll
            for (int i = 0; i < V; i++)
                x0[i] = to_f(in[u].x.v[i]) - mean[i];
            masked<T, V, MASK, EXTRA>(a, in[u], x0, gain, bias, d);
#pragma unroll
            for (int i = 0; i < V; i++) {
                s[i] += d[i];
                q[i] = fmaf(d[i], x0[i], q[i]);
            }
            if (EXTRA && a.d_residual)
                store_f<V>((T *)a.d_residual + l.at + u * l.step, d);
        }
    }
    reduce_block<V>(g, s, q, &smem, part);
    if (!comes_last(&g.arrivals[blockIdx.x], gridDim.y))
        return;
    sum = total_of_column<V>(g, &smem, part);
    ch = (int)blockIdx.x * (V << g.log_tx) + (int)threadIdx.x;
    if ((int)threadIdx.x < V << g.log_tx && ch < g.c)
        numbers[ch] = finish_bwd(a, ch, (double)g.rows, sum.x, sum.y);
}

template <class T, int V, int MASK, bool EXTRA>
__global__ __launch_bounds__(EACH_THREADS, EACH_BLOCKS) void bn_bwd_each(struct cols g,
                                                                         struct k_bn_bwd_args a,
                                                                         const float4 *numbers)
{
    constexpr int U = EXTRA ? 1 : 2;
    struct lane l = lane_of<V, EACH_THREADS>(g, false);
    float mean[V], gain[V], slope[V], shift[V], bias[V];

#pragma unroll
    for (int i = 0; i < V; i++) {
        const float4 n = l.left > 0 ? numbers[l.ch + i] : make_float4(0, 0, 0, 0);

        mean[i] = FOLDS<T> ? 0 : n.x;
        gain[i] = n.y;
        slope[i] = n.z;
        shift[i] = FOLDS<T> ? fmaf(-n.x, n.z, n.w) : n.w;
        bias[i] = l.left > 0 && MASK == MASK_AGAIN ? a.bias[l.ch + i] : 0;
        bias[i] = FOLDS<T> ? fmaf(-n.x, n.y, bias[i]) : bias[i];
    }
    for (; l.left > 0; l.left -= U, l.at += U * l.step) {
        struct bwd_in<T, V> in[U];

#pragma unroll
        for (int u = 0; u < U; u++)
            if (u < l.left)
                load_row<T, V, MASK, EXTRA>(a, l.at + u * l.step, &in[u]);
#pragma unroll
        for (int u = 0; u < U; u++) {
            float x0[V], d[V];

            if (u >= l.left)
                break;
#pragma unroll
            for (int i = 0; i < V; i++)
                x0[i] = to_f(in[u].x.v[i]) - mean[i];
            masked<T, V, MASK, EXTRA>(a, in[u], x0, gain, bias, d);
#pragma unroll
            for (int i = 0; i < V; i++)
                d[i] = fmaf(slope[i], x0[i], fmaf(gain[i], d[i], shift[i]));
            store_f<V>((T *)a.d_x + l.at + u * l.step, d);
        }
    }
}

/* ------------------------------------------------------------------ channels first */

/* Walks over the n * len elements of channel blockIdx.x in steps of the block. */
struct walk {
    int64_t n, l, dn, dl, len, stride;
    DEV_INLINE walk(const struct k_bn &g)
        : n(threadIdx.x / g.len), l(threadIdx.x % g.len), dn(REDUCE_THREADS / g.len),
          dl(REDUCE_THREADS % g.len), len(g.len), stride(g.c * g.len)
    {
    }
    DEV_INLINE int64_t at() const
    {
        return n * stride + (int64_t)blockIdx.x * len + l;
    }
    DEV_INLINE void next()
    {
        n += dn;
        l += dl;
        if (l >= len) {
            l -= len;
            n++;
        }
    }
};

template <class T>
__global__ __launch_bounds__(REDUCE_THREADS) void bn_planes(struct k_bn g, struct k_bn_train_args a)
{
    __shared__ double smem[REDUCE_THREADS / WARP];
    __shared__ float4 numbers;
    const int ch = (int)blockIdx.x;
    const T *const x = (const T *)a.x, *const residual = (const T *)a.residual;
    const float shift = to_f(x[(int64_t)ch * g.len]);
    double s = 0, q = 0;

    for (walk w(g); w.n < g.n; w.next()) {
        const float d = to_f(x[w.at()]) - shift;

        s += d;
        q += (double)d * d;
    }
    s = block_sum<REDUCE_THREADS>(s, smem);
    q = block_sum<REDUCE_THREADS>(q, smem);
    if (threadIdx.x == 0)
        numbers = finish_stats(a, ch, (double)(g.n * g.len), shift, s, q);
    __syncthreads();
    for (walk w(g); w.n < g.n; w.next()) {
        float v = fmaf(to_f(x[w.at()]) - numbers.x, numbers.y, numbers.z);

        if (residual)
            v += to_f(residual[w.at()]);
        ((T *)a.y)[w.at()] = from_f<T>(act_clamp(v, a.lo, a.hi));
    }
}

template <class T, int MASK>
DEV_INLINE float masked_one(const struct k_bn_bwd_args &a, int64_t at, float x0, float gain,
                            float bias)
{
    const float x0s[1] = {x0}, gains[1] = {gain}, biases[1] = {bias};
    struct bwd_in<T, 1> in;
    float d[1];

    load_row<T, 1, MASK, true>(a, at, &in);
    masked<T, 1, MASK, true>(a, in, x0s, gains, biases, d);
    return d[0];
}

template <class T, int MASK>
__global__ __launch_bounds__(REDUCE_THREADS) void bn_planes_bwd(struct k_bn g,
                                                                struct k_bn_bwd_args a)
{
    __shared__ double smem[REDUCE_THREADS / WARP];
    __shared__ float4 numbers;
    const int ch = (int)blockIdx.x;
    const T *const x = (const T *)a.x;
    const float mean = a.mean[ch], gain = a.scale[ch] * a.invstd[ch];
    const float bias = MASK == MASK_AGAIN ? a.bias[ch] : 0;
    double s = 0, q = 0;

    for (walk w(g); w.n < g.n; w.next()) {
        const float x0 = to_f(x[w.at()]) - mean;
        const float d = masked_one<T, MASK>(a, w.at(), x0, gain, bias);

        s += d;
        q += (double)d * x0;
    }
    s = block_sum<REDUCE_THREADS>(s, smem);
    q = block_sum<REDUCE_THREADS>(q, smem);
    if (threadIdx.x == 0)
        numbers = finish_bwd(a, ch, (double)(g.n * g.len), s, q);
    __syncthreads();
    for (walk w(g); w.n < g.n; w.next()) {
        const float x0 = to_f(x[w.at()]) - mean;
        const float d = masked_one<T, MASK>(a, w.at(), x0, gain, bias);

        ((T *)a.d_x)[w.at()] = from_f<T>(fmaf(numbers.z, x0, fmaf(numbers.y, d, numbers.w)));
        if (a.d_residual)
            ((T *)a.d_residual)[w.at()] = from_f<T>(d);
    }
}

/* ------------------------------------------------------------------ inference */

template <class T, int V>
__global__ __launch_bounds__(EACH_THREADS, EACH_BLOCKS) void bn_infer(struct cols g,
                                                                      struct k_bn_infer_args a)
{
    struct lane l = lane_of<V, EACH_THREADS>(g, false);
    const struct act_of act = {a.act, a.p0, a.p1};
    float mean[V], gain[V], shift[V];

    if (l.left == 0)
        return;
#pragma unroll
    for (int i = 0; i < V; i++) {
        mean[i] = a.mean[l.ch + i];
        gain[i] = a.scale[l.ch + i] / sqrtf(a.var[l.ch + i] + a.eps);
        shift[i] = a.bias[l.ch + i];
    }
#pragma unroll 2
    for (; l.left > 0; l.left--, l.at += l.step) {
        float v[V];

        load_f<V>((const T *)a.x + l.at, v);
#pragma unroll
        for (int i = 0; i < V; i++)
            v[i] = fmaf(v[i] - mean[i], gain[i], shift[i]);
        apply_act<V>(act, v);
        store_f<V>((T *)a.y + l.at, v);
    }
}

template <class T>
__global__ __launch_bounds__(EACH_THREADS) void bn_infer_planes(struct k_bn g,
                                                                struct k_bn_infer_args a)
{
    const struct act_of act = {a.act, a.p0, a.p1};
    const int64_t total = g.n * g.c * g.len, step = (int64_t)gridDim.x * EACH_THREADS;

    for (int64_t i = (int64_t)blockIdx.x * EACH_THREADS + threadIdx.x; i < total; i += step) {
        const int64_t ch = i / g.len % g.c;
        const float gain = a.scale[ch] / sqrtf(a.var[ch] + a.eps);
        float v[1] = {fmaf(to_f(((const T *)a.x)[i]) - a.mean[ch], gain, a.bias[ch])};

        apply_act<1>(act, v);
        ((T *)a.y)[i] = from_f<T>(v[0]);
    }
}

/* ------------------------------------------------------------------ launchers */

static int vector_of(const struct k_bn *g)
{
    const int v = g->type == CUDA_T_F32 ? 4 : 8;

    return g->c % v == 0 ? v : 1;
}

static struct cols stats_cols(const struct k_bn *g)
{
    return cols_of(g, vector_of(g), REDUCE_THREADS, STATS_BLOCKS);
}
static struct cols sums_cols(const struct k_bn *g)
{
    return cols_of(g, vector_of(g), REDUCE_THREADS, SUMS_BLOCKS);
}
static struct cols each_cols(const struct k_bn *g)
{
    return cols_of(g, vector_of(g), EACH_THREADS, EACH_BLOCKS);
}

/* V of the kernels: a whole vector or one channel. */
#define WITH_VECTOR(g, T, V, ...) \
    if (vector_of(g) > 1) {       \
        constexpr int V = VEC<T>; \
        __VA_ARGS__;              \
    } else {                      \
        constexpr int V = 1;      \
        __VA_ARGS__;              \
    }

/* numbers[c], then part[gy][c]; the gradient's gy is not larger. */
size_t k_bn_scratch_bytes(const struct k_bn *g)
{
    return g->is_last ? (size_t)g->c * (sizeof(float4) + (size_t)stats_cols(g).gy * sizeof(float2))
                      : 0;
}

void k_bn_train(cudaStream_t s, const struct k_bn *g, const struct k_bn_train_args *a)
{
    const struct cols r = stats_cols(g), e = each_cols(g);
    const dim3 reduce_grid(r.gx, r.gy), each_grid(e.gx, e.gy);
    float4 *numbers = (float4 *)a->scratch;
    float2 *part = (float2 *)(numbers + g->c);

    if (!g->is_last) {
        DISPATCH_FLOAT(g->type, T, bn_planes<T><<<(unsigned)g->c, REDUCE_THREADS, 0, s>>>(*g, *a));
        return;
    }
    DISPATCH_FLOAT(
        g->type, T, WITH_VECTOR(g, T, V, {
            bn_stats<T, V><<<reduce_grid, REDUCE_THREADS, 0, s>>>(r, *a, part, numbers);
            if (a->residual)
                bn_forward<T, V, true><<<each_grid, EACH_THREADS, 0, s>>>(e, *a, numbers);
            else
                bn_forward<T, V, false><<<each_grid, EACH_THREADS, 0, s>>>(e, *a, numbers);
        }));
}

template <class T, int V, int MASK, bool EXTRA>
static void launch_sums(cudaStream_t s, const struct k_bn *g, const struct k_bn_bwd_args *a,
                        float2 *part, float4 *numbers)
{
    const struct cols r = sums_cols(g);

    bn_bwd_sums<T, V, MASK, EXTRA>
        <<<dim3(r.gx, r.gy), REDUCE_THREADS, 0, s>>>(r, *a, part, numbers);
}

template <class T, int V, int MASK, bool EXTRA>
static void launch_each(cudaStream_t s, const struct k_bn *g, const struct k_bn_bwd_args *a,
                        const float4 *numbers)
{
    const struct cols e = each_cols(g);

    bn_bwd_each<T, V, MASK, EXTRA><<<dim3(e.gx, e.gy), EACH_THREADS, 0, s>>>(e, *a, numbers);
}

template <class T, int V, int MASK>
static void launch_bwd(cudaStream_t s, const struct k_bn *g, const struct k_bn_bwd_args *a)
{
    float4 *numbers = (float4 *)a->scratch;
    float2 *part = (float2 *)(numbers + g->c);
    struct k_bn_bwd_args b = *a;

    if (a->d_y2 || a->d_residual)
        launch_sums<T, V, MASK, true>(s, g, a, part, numbers);
    else
        launch_sums<T, V, MASK, false>(s, g, a, part, numbers);
    if (a->d_residual) {
        b.d_y = a->d_residual;
        launch_each<T, V, MASK_NONE, false>(s, g, &b, numbers);
    } else if (a->d_y2) {
        launch_each<T, V, MASK, true>(s, g, a, numbers);
    } else {
        launch_each<T, V, MASK, false>(s, g, a, numbers);
    }
}

#define WITH_MASK(a, M, ...)          \
    if (!(a)->has_act) {              \
        constexpr int M = MASK_NONE;  \
        __VA_ARGS__;                  \
    } else if ((a)->y) {              \
        constexpr int M = MASK_Y;     \
        __VA_ARGS__;                  \
    } else {                          \
        constexpr int M = MASK_AGAIN; \
        __VA_ARGS__;                  \
    }

void k_bn_train_bwd(cudaStream_t s, const struct k_bn *g, const struct k_bn_bwd_args *a)
{
    if (!g->is_last) {
        DISPATCH_FLOAT(g->type, T, WITH_MASK(a, M, {
                           bn_planes_bwd<T, M><<<(unsigned)g->c, REDUCE_THREADS, 0, s>>>(*g, *a);
                       }));
        return;
    }
    DISPATCH_FLOAT(g->type, T, WITH_VECTOR(g, T, V, WITH_MASK(a, M, launch_bwd<T, V, M>(s, g, a))));
}

void k_bn_infer(cudaStream_t s, const struct k_bn *g, const struct k_bn_infer_args *a)
{
    const struct cols e = each_cols(g);
    const int64_t total = g->n * g->c * g->len, blocks = cdiv64(total, EACH_THREADS);

    if (g->is_last) {
        DISPATCH_FLOAT(g->type, T, WITH_VECTOR(g, T, V, {
                           bn_infer<T, V><<<dim3(e.gx, e.gy), EACH_THREADS, 0, s>>>(e, *a);
                       }));
        return;
    }
    DISPATCH_FLOAT(g->type, T,
                   bn_infer_planes<T>
                   <<<(unsigned)(blocks < 65536 ? blocks : 65536), EACH_THREADS, 0, s>>>(*g, *a));
}
