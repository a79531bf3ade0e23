/* optim.cu - the update of many parameters in one launch.
 *
 * All tensors of a launch are cut into pieces of about K_OPTIM_PIECE elements, one for each block;
 * a block finds its tensor by bisection in the table, which travels as a kernel parameter. Formulas
 * as in cpu_optim.c, everything in F32.
 *
 * A gradient in the order [m][taps][c] is turned over in shared memory, so that both sides are read
 * in whole lines: a piece is a few m, or some channels of one m.
 */
#include "executor/device/cuda/device.cuh"

#define THREADS 256

enum rule { RULE_SGD, RULE_MOMENTUM, RULE_ADAM, RULE_COPY };

/* One element: p, m, v in place. */
template <int RULE>
DEV_INLINE void update(const struct k_optim &o, float g, float &p, float &m, float &v)
{
    if (RULE == RULE_COPY) {
        p = g;
    } else if (RULE == RULE_SGD) {
        p -= o.lr * (g + o.decay * p);
    } else if (RULE == RULE_MOMENTUM) {
        const float d = g + o.decay * p;

        m = o.momentum * m + d;
        p -= o.lr * (o.nesterov ? d + o.momentum * m : m);
    } else {
        const float d = g + o.decay * p;

        m = o.beta1 * m + (1 - o.beta1) * d;
        v = o.beta2 * v + (1 - o.beta2) * d * d;
        p = p * o.shrink - o.step_size * m / (sqrtf(v) / o.root_bias2 + o.eps);
    }
}

template <int RULE>
DEV_INLINE void update_at(const struct k_optim &o, const struct k_optim_item &t, int64_t i, float g)
{
    float p = 0, m = 0, v = 0;

    if (RULE != RULE_COPY)
        p = t.p[i];
    if (RULE == RULE_MOMENTUM || RULE == RULE_ADAM)
        m = t.m[i];
    if (RULE == RULE_ADAM)
        v = t.v[i];
    update<RULE>(o, g, p, m, v);
    t.p[i] = p;
    if (RULE == RULE_MOMENTUM || RULE == RULE_ADAM)
        t.m[i] = m;
    if (RULE == RULE_ADAM)
        t.v[i] = v;
}

/* The same order on both sides. */
template <int RULE, class T>
DEV_INLINE void straight(const struct k_optim &o, const struct k_optim_item &t, int64_t piece)
{
    constexpr int V = 4;
    const T *const grad = (const T *)t.g;
    const int64_t from = piece * K_OPTIM_PIECE;
    const int64_t to = from + K_OPTIM_PIECE < t.n ? from + K_OPTIM_PIECE : t.n;

#pragma unroll 2
    for (int64_t i = from + (int64_t)threadIdx.x * V; i < to; i += THREADS * V) {
        float g[V], p[V] = {0}, m[V] = {0}, v[V] = {0};

        if (i + V > to) {
            for (int64_t k = i; k < to; k++)
                update_at<RULE>(o, t, k, to_f(grad[k]));
            break;
        }
        load_f<V>(grad + i, g);
        if (RULE != RULE_COPY)
            load_f<V>(t.p + i, p);
        if (RULE == RULE_MOMENTUM || RULE == RULE_ADAM)
            load_f<V>(t.m + i, m);
        if (RULE == RULE_ADAM)
            load_f<V>(t.v + i, v);
#pragma unroll
        for (int k = 0; k < V; k++)
            update<RULE>(o, g[k], p[k], m[k], v[k]);
        store_f<V>(t.p + i, p);
        if (RULE == RULE_MOMENTUM || RULE == RULE_ADAM)
            store_f<V>(t.m + i, m);
        if (RULE == RULE_ADAM)
            store_f<V>(t.v + i, v);
    }
}

/* Channels of one m that a piece has: all, if they fit. */
static __host__ __device__ __forceinline__ int piece_channels(int c, int taps)
{
    return c <= K_OPTIM_PIECE / taps ? c : K_OPTIM_PIECE / taps;
}

template <int RULE, class T>
DEV_INLINE void turned(const struct k_optim &o, const struct k_optim_item &t, int64_t piece,
                       float *smem)
{
    const T *const grad = (const T *)t.g;
    const int most = piece_channels(t.c, t.taps), rows = K_OPTIM_PIECE / (t.c * t.taps);
    const int per_m = (t.c + most - 1) / most, height = rows > 1 ? rows : 1;
    const int64_t m0 = most == t.c ? piece * height : piece / per_m;
    const int c0 = most == t.c ? 0 : (int)(piece % per_m) * most;
    const int width = t.c - c0 < most ? t.c - c0 : most;
    const int64_t m_end = t.n / ((int64_t)t.c * t.taps);
    const int tall = m_end - m0 < height ? (int)(m_end - m0) : height;
    const int n = tall * width * t.taps;
    const int64_t base = (m0 * t.c + c0) * t.taps;

    for (int j = (int)threadIdx.x; j < n; j += THREADS) {
        const int c = j % width, tap = j / width % t.taps, m = j / (width * t.taps);

        smem[(m * width + c) * t.taps + tap] = to_f(grad[((m0 + m) * t.taps + tap) * t.c + c0 + c]);
    }
    __syncthreads();
    for (int j = (int)threadIdx.x; j < n; j += THREADS)
        update_at<RULE>(o, t, base + j, smem[j]);
}

template <int RULE>
__global__ __launch_bounds__(THREADS) void optim_kernel(const __grid_constant__ struct k_optim o)
{
    __shared__ float smem[K_OPTIM_PIECE];
    int lo = 0, hi = o.n_items; /* the last item whose first piece is not behind ours */

    while (hi - lo > 1) {
        const int mid = (lo + hi) / 2;

        if (o.items[mid].first <= blockIdx.x)
            lo = mid;
        else
            hi = mid;
    }
    const struct k_optim_item &t = o.items[lo];
    const int64_t piece = blockIdx.x - t.first;

    if (t.taps > 1) {
        DISPATCH_FLOAT(t.g_type, T, turned<RULE, T>(o, t, piece, smem));
    } else {
        DISPATCH_FLOAT(t.g_type, T, straight<RULE, T>(o, t, piece));
    }
}

int64_t k_optim_pieces(const struct k_optim_item *t)
{
    int64_t rows, height;
    int most;

    if (t->taps <= 1)
        return cdiv64(t->n, K_OPTIM_PIECE);
    rows = t->n / ((int64_t)t->c * t->taps);
    most = piece_channels(t->c, t->taps);
    height = K_OPTIM_PIECE / ((int64_t)t->c * t->taps);
    return most == t->c ? cdiv64(rows, height) : rows * cdiv64(t->c, most);
}

void k_optim_update(cudaStream_t s, const struct k_optim *o, uint32_t pieces)
{
    switch (o->kind) {
    case K_OPTIM_SGD:
        if (o->has_momentum)
            optim_kernel<RULE_MOMENTUM><<<pieces, THREADS, 0, s>>>(*o);
        else
            optim_kernel<RULE_SGD><<<pieces, THREADS, 0, s>>>(*o);
        break;
    case K_OPTIM_ADAM:
        optim_kernel<RULE_ADAM><<<pieces, THREADS, 0, s>>>(*o);
        break;
    case K_OPTIM_COPY:
        optim_kernel<RULE_COPY><<<pieces, THREADS, 0, s>>>(*o);
        break;
    }
}
