/* bn.cuh - what bn.cu and bn_planes.cu share: how a matrix of rows x channels is divided among
 * threads, what follows from the sums of a channel, the mask of an activation's gradient. */
#ifndef SH_RUNTIME_DEVICE_CUDA_BN_CUH
#define SH_RUNTIME_DEVICE_CUDA_BN_CUH

#include "runtime/device/cuda/act.cuh"

#define TRAIN_THREADS 512 /* of the kernels that sum */

/* ------------------------------------------------------------------ a matrix, its channels last */

struct cols {
    int64_t rows;
    int c, log_tx;    /* threads of a block side by side: 2^log_tx */
    int gx, gy;       /* blocks: along channels (at most K_ARRIVALS), along rows */
    int most;         /* rows of a thread; some have one less */
    int slots, ahead; /* of them: that stay in shared memory, that are fetched ahead */
    uint32_t *arrivals;
};

static inline struct cols cols_of(const struct k_bn *b, int v, int threads, int blocks)
{
    const int vecs = (int)(b->c / v);
    struct cols g = {b->n * b->len, (int)b->c, 5, 1, 1, 1, 0, 0, b->arrivals};
    int64_t rows_at_once;

    /* 128 bytes side by side are enough; idle threads are not wanted. */
    while (g.log_tx > 3 && vecs % (1 << g.log_tx) != 0)
        g.log_tx--;
    if (vecs % (1 << g.log_tx) != 0) {
        g.log_tx = 5;
        while (g.log_tx > 0 && vecs <= 1 << (g.log_tx - 1))
            g.log_tx--;
    }
    /* Each block reads the sums of all blocks of its column: 64 bytes if the columns are few. */
    while (g.log_tx > 2 && cdiv64(vecs, 1 << g.log_tx) < 8)
        g.log_tx--;
    g.gx = (int)cdiv64(vecs, 1 << g.log_tx);
    rows_at_once = threads >> g.log_tx;
    /* All blocks at once: training's wait for each other, and for inference one more would leave
     * the device half empty while it runs. */
    g.gy = b->n_sms * blocks / g.gx;
    if (g.gy > cdiv64(g.rows, rows_at_once))
        g.gy = (int)cdiv64(g.rows, rows_at_once);
    if (g.gy < 1)
        g.gy = 1;
    g.most = (int)cdiv64(g.rows, g.gy * rows_at_once);
    return g;
}

struct lane {         /* what a thread has: V channels of some rows */
    int ch, n;        /* the first channel; how many rows */
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
    l.n = l.ch < g.c && row < g.rows ? g.most - (row + (g.most - 1) * step >= g.rows) : 0;
    l.at = (reverse ? g.rows - 1 - row : row) * g.c + l.ch;
    l.step = (reverse ? -step : step) * g.c;
    return l;
}

/* ------------------------------------------------------------------ a channel's numbers */

struct own { /* what a thread that finishes a channel needs of it, read before it waits */
    int ch;
    float scale, bias, at0; /* forward; at0: x[row 0] */
    float mean, invstd;     /* backward */
};

/* x -> y: fma(x - x, y, z) = (x - mean) gain + shift. One of the blocks stores. */
DEV_INLINE float4 finish_stats(const struct k_bn_train_args &a, const struct own &own, double n,
                               double2 sum, bool stores)
{
    const double m = sum.x / n, v = sum.y / n - m * m, var = v < 0 ? 0 : v;
    const double mean = own.at0 + m, inv = rsqrt(var + (double)a.eps), gain = inv * own.scale;
    const float mean_f = (float)mean;

    if (stores) {
        const double unbiased = var * n / (n > 1 ? n - 1 : 1), keep = a.momentum;

        a.mean[own.ch] = mean_f;
        a.invstd[own.ch] = (float)inv;
        a.new_mean[own.ch] = (float)(keep * a.run_mean[own.ch] + (1 - keep) * mean);
        a.new_var[own.ch] = (float)(keep * a.run_var[own.ch] + (1 - keep) * unbiased);
    }
    /* What mean lost when it was rounded goes into the shift. */
    return make_float4(mean_f, (float)gain, (float)(own.bias - (mean - mean_f) * gain), 0);
}

/* d_x = y d + z (x - mean) + w, in the order of float4 with x = mean */
DEV_INLINE float4 finish_bwd(const struct k_bn_bwd_args &a, const struct own &own, double n,
                             double2 sum, bool stores)
{
    const double inv = own.invstd, gain = own.scale * inv, each = gain / n;

    if (stores) {
        a.d_bias[own.ch] = (float)sum.x;
        a.d_scale[own.ch] = (float)(sum.y * inv);
    }
    return make_float4(own.mean, (float)gain, (float)(-each * inv * inv * sum.y),
                       (float)(-each * sum.x));
}

/* ------------------------------------------------------------------ the activation's gradient */

enum mask {
    MASK_NONE,
    MASK_Y,    /* by y */
    MASK_AGAIN /* by (x - mean) gain + bias */
};

template <class T, int V> struct bwd_in { /* one row of a thread */
    vec<T, V> x, dy, dy2, y;
};

/* y = act(y) */
template <int V> DEV_INLINE void activate(const struct k_bn_train_args &a, float (&y)[V])
{
    if (a.gate == 0) {
#pragma unroll
        for (int i = 0; i < V; i++)
            y[i] = act_clamp(y[i], a.lo, a.hi);
    } else if (a.gate == DEV_ACT_SILU) {
#pragma unroll
        for (int i = 0; i < V; i++)
            y[i] *= act_sigmoid(y[i]);
    } else {
#pragma unroll
        for (int i = 0; i < V; i++)
            y[i] *= act_clamp(y[i] / 6 + 0.5f, 0, 1);
    }
}

/* d = d_y times the gate's slope at v */
template <class T, int V>
DEV_INLINE void gate_gradient(int gate, const float (&v)[V], float (&d)[V])
{
#pragma unroll
    for (int i = 0; i < V; i++)
        d[i] = to_f(from_f<T>(
            d[i] * (gate == DEV_ACT_SILU ? act_silu_slope(v[i]) : act_hardswish_slope(v[i]))));
}

/* The masked gradient, rounded as it is stored; x0: x - mean. EXTRA: there may be a d_y2. */
template <class T, int V, int MASK, bool EXTRA>
DEV_INLINE void masked(const struct k_bn_bwd_args &a, const struct bwd_in<T, V> &in,
                       const float (&x0)[V], const float (&gain)[V], const float (&bias)[V],
                       float (&d)[V])
{
    float v[V];

#pragma unroll
    for (int i = 0; i < V; i++) {
        d[i] = to_f(in.dy.v[i]);
        if (EXTRA && a.d_y2)
            d[i] = to_f(grad_f<T>(d[i] + to_f(in.dy2.v[i])));
        v[i] = MASK == MASK_Y ? to_f(in.y.v[i]) : fmaf(x0[i], gain[i], bias[i]);
    }
    if (MASK == MASK_AGAIN && a.gate) {
        gate_gradient<T, V>(a.gate, v, d);
        return;
    }
#pragma unroll
    for (int i = 0; i < V && MASK != MASK_NONE; i++)
        d[i] = v[i] > a.lo && v[i] < a.hi ? d[i] : 0;
}

/* ------------------------------------------------------------------ launching */

static inline int vector_of(const struct k_bn *g)
{
    const int v = g->type == CUDA_T_F32 ? 4 : 8;

    return g->c % v == 0 ? v : 1;
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

/* bn_planes.cu: k_bn_train() and k_bn_train_bwd() with the channels first. */
void bn_planes(cudaStream_t s, const struct k_bn *g, const struct k_bn_train_args *a);
void bn_planes_bwd(cudaStream_t s, const struct k_bn *g, const struct k_bn_bwd_args *a);

#endif
