/* optim.cu - the update of many parameters in one launch.
 *
 * All tensors of a launch are cut into pieces of about K_OPTIM_PIECE elements, one for each block;
 * a block finds its tensor by bisection in the table, which travels as a kernel parameter. Formulas
 * as in cpu_optim.c, everything in F32.
 *
 * A gradient in the order [m][taps][c] is turned over in shared memory, so that both sides are read
 * in whole lines: a piece is a few m, or some channels of one m.
 */
#include "runtime/device/cuda/device.cuh"

#define THREADS 256

enum rule { RULE_SGD, RULE_MOMENTUM, RULE_ADAM, RULE_COPY, RULE_ADD, RULE_EMA };
template <int RULE>
constexpr bool IS_UPDATE = RULE == RULE_SGD || RULE == RULE_MOMENTUM || RULE == RULE_ADAM;

struct turn_of {                 /* the same for all elements */
    float factor;                /* of gradients */
    float step_size, root_bias2; /* ADAM; see struct k_optim */
};

/* A norm that is no number makes no number of a gradient. */
DEV_INLINE struct turn_of turn_of_all(const struct k_optim &o)
{
    const float mean = o.scaler ? o.mean / o.scaler[0] : o.mean;
    struct turn_of u = {mean, o.step_size, o.root_bias2};
    float part = 1;

    if (o.squares && o.clip_norm > 0)
        part = o.clip_norm / (mean * sqrtf(*o.squares) + 1e-6f);
    u.factor = mean * (part >= 1 ? 1 : part);
    if (o.scaler && o.kind == K_OPTIM_ADAM) {
        const double t = (double)o.update - (double)o.scaler[2];

        u.step_size = (float)((double)o.lr / (1 - pow((double)o.beta1, t)));
        u.root_bias2 = (float)sqrt(1 - pow((double)o.beta2, t));
    }
    return u;
}

/* One element: p, m, v in place. */
template <int RULE>
DEV_INLINE void update(const struct k_optim &o, const struct turn_of &by, float g, float &p,
                       float &m, float &v)
{
    if (IS_UPDATE<RULE>) {
        g *= by.factor;
        g = g > o.limit ? o.limit : g < -o.limit ? -o.limit : g;
    }
    if (RULE == RULE_COPY) {
        p = g;
    } else if (RULE == RULE_ADD) {
        p = o.is_first ? g : p + g;
    } else if (RULE == RULE_EMA) {
        p = o.is_first ? g : p + (1 - o.beta1) * (g - p);
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
        p = p * o.shrink - by.step_size * m / (sqrtf(v) / by.root_bias2 + o.eps);
    }
}

template <int RULE>
DEV_INLINE void update_at(const struct k_optim &o, const struct turn_of &by,
                          const struct k_optim_item &t, int64_t i, float g)
{
    float p = 0, m = 0, v = 0;

    if (RULE != RULE_COPY)
        p = t.p[i];
    if (RULE == RULE_MOMENTUM || RULE == RULE_ADAM)
        m = t.m[i];
    if (RULE == RULE_ADAM)
        v = t.v[i];
    update<RULE>(o, by, g, p, m, v);
    t.p[i] = p;
    if (RULE == RULE_MOMENTUM || RULE == RULE_ADAM)
        t.m[i] = m;
    if (RULE == RULE_ADAM)
        t.v[i] = v;
}

/* 4 neighbours of a tensor. */
struct four {
    float g[4], p[4], m[4], v[4];
};

template <int RULE>
DEV_INLINE void load_four(const struct k_optim_item &t, int64_t at, struct four &x)
{
    if (RULE != RULE_COPY)
        load_f<4>(t.p + at, x.p);
    if (RULE == RULE_MOMENTUM || RULE == RULE_ADAM)
        load_f<4>(t.m + at, x.m);
    if (RULE == RULE_ADAM)
        load_f<4>(t.v + at, x.v);
}

template <int RULE>
DEV_INLINE void store_four(const struct k_optim_item &t, int64_t at, const struct four &x)
{
    store_f<4>(t.p + at, x.p);
    if (RULE == RULE_MOMENTUM || RULE == RULE_ADAM)
        store_f<4>(t.m + at, x.m);
    if (RULE == RULE_ADAM)
        store_f<4>(t.v + at, x.v);
}

/* Elements [base, base + n); g[i]: the gradient of element base + i, aligned as base is.
 *
 * Twice 4 elements are read before any of them is written: the compiler cannot know that they are
 * not the same, and one after the other they would wait for the memory each. */
template <int RULE, class T>
DEV_INLINE void update_range(const struct k_optim &o, const struct turn_of &by,
                             const struct k_optim_item &t, int64_t base, int n, const T *g)
{
    constexpr int V = 4, U = 2, STRIDE = THREADS * V;
    const int whole = base % V == 0 ? n / V * V : 0;

    for (int i = (int)threadIdx.x * V; i < whole; i += U * STRIDE) {
        struct four x[U] = {};

#pragma unroll
        for (int u = 0; u < U; u++)
            if (i + u * STRIDE < whole) {
                load_f<V>(g + i + u * STRIDE, x[u].g);
                load_four<RULE>(t, base + i + u * STRIDE, x[u]);
            }
#pragma unroll
        for (int u = 0; u < U; u++)
#pragma unroll
            for (int k = 0; k < V; k++)
                update<RULE>(o, by, x[u].g[k], x[u].p[k], x[u].m[k], x[u].v[k]);
#pragma unroll
        for (int u = 0; u < U; u++)
            if (i + u * STRIDE < whole)
                store_four<RULE>(t, base + i + u * STRIDE, x[u]);
    }
#pragma unroll 1
    for (int i = whole + (int)threadIdx.x; i < n; i += THREADS)
        update_at<RULE>(o, by, t, base + i, to_f(g[i]));
}

/* ------------------------------------------------------------------ turning a gradient over */

/* Channels of one m that a piece has: all, if they fit. */
static __host__ __device__ __forceinline__ int piece_channels(int c, int taps)
{
    const int fit = K_OPTIM_PIECE / taps;

    return c <= fit ? c : fit < 4 ? fit : fit & ~3;
}

struct part { /* of a gradient [m][taps][c], by one block */
    int64_t m0;
    int c0, tall, width; /* from (m0, c0) on: so many m, of each so many channels */
};

DEV_INLINE struct part optim_part(const struct k_optim_item &t, int64_t piece)
{
    const int most = piece_channels(t.c, t.taps), rows = K_OPTIM_PIECE / (t.c * t.taps);
    const int per_m = (t.c + most - 1) / most, height = rows > 1 ? rows : 1;
    const int64_t m_end = t.n / ((int64_t)t.c * t.taps);
    struct part a;

    a.m0 = most == t.c ? piece * height : piece / per_m;
    a.c0 = most == t.c ? 0 : (int)(piece % per_m) * most;
    a.width = t.c - a.c0 < most ? t.c - a.c0 : most;
    a.tall = m_end - a.m0 < height ? (int)(m_end - a.m0) : height;
    return a;
}

/* x / d for x and d up to K_OPTIM_PIECE: with m the next whole number from 2^32 / d on, x m exceeds
 * 2^32 x / d by x at most, and at least 2^32 / d is missing there to the next whole quotient. */
struct divisor {
    unsigned d, m;
};
DEV_INLINE struct divisor divisor_of(int d)
{
    return {(unsigned)d, 0xffffffffu / (unsigned)d + 1};
}
DEV_INLINE int divide(int x, struct divisor by)
{
    return by.d == 1 ? x : (int)__umulhi((unsigned)x, by.m);
}

/* smem[m][width][taps] = the part, V channels at a time. */
template <int V, class T>
DEV_INLINE void take_piece_turn(const struct k_optim_item &t, const struct part &a, float *smem)
{
    const T *const grad = (const T *)t.g + a.m0 * t.taps * t.c + a.c0;
    const struct divisor by_width = divisor_of(a.width / V), by_taps = divisor_of(t.taps);
    const int n = a.tall * t.taps * (a.width / V);

#pragma unroll 4
    for (int j = (int)threadIdx.x; j < n; j += THREADS) {
        const int row = divide(j, by_width), c = (j - row * (a.width / V)) * V;
        const int m = divide(row, by_taps), tap = row - m * t.taps;
        float g[V];

        load_f<V>(grad + (int64_t)row * t.c + c, g);
#pragma unroll
        for (int k = 0; k < V; k++)
            smem[(m * a.width + c + k) * t.taps + tap] = g[k];
    }
}

template <class T>
DEV_INLINE void turn_over(const struct k_optim_item &t, const struct part &a, float *smem)
{
    if (t.c % 4 == 0 && a.width % 4 == 0 && a.c0 % 4 == 0)
        take_piece_turn<4, T>(t, a, smem);
    else
        take_piece_turn<1, T>(t, a, smem);
}

template <int RULE>
__global__ __launch_bounds__(THREADS) void optim_kernel(const __grid_constant__ struct k_optim o)
{
    __shared__ __align__(16) float smem[K_OPTIM_PIECE];
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
    __shared__ struct turn_of shared;
    struct turn_of by = {};

    if (IS_UPDATE<RULE>) {
        if (o.scaler && !isfinite(*o.squares))
            return;
        if (threadIdx.x == 0)
            shared = turn_of_all(o);
        __syncthreads();
        by = shared;
    }

    if (t.taps > 1) {
        const struct part a = optim_part(t, piece);

        DISPATCH_FLOAT(t.g_type, T, turn_over<T>(t, a, smem));
        __syncthreads();
        update_range<RULE, float>(o, by, t, (a.m0 * t.c + a.c0) * t.taps, a.tall * a.width * t.taps,
                                  smem);
    } else {
        const int64_t from = piece * K_OPTIM_PIECE;
        const int n = t.n - from < K_OPTIM_PIECE ? (int)(t.n - from) : K_OPTIM_PIECE;

        DISPATCH_FLOAT(t.g_type, T,
                       update_range<RULE, T>(o, by, t, from, n, (const T *)t.g + from));
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
    case K_OPTIM_ADD:
        optim_kernel<RULE_ADD><<<pieces, THREADS, 0, s>>>(*o);
        break;
    case K_OPTIM_EMA:
        optim_kernel<RULE_EMA><<<pieces, THREADS, 0, s>>>(*o);
        break;
    case K_OPTIM_COPY:
        optim_kernel<RULE_COPY><<<pieces, THREADS, 0, s>>>(*o);
        break;
    }
}
