// conv_direct.cu - convolutions by plain loops, and what surrounds those of the libraries.
//
//   depthwise    groups = c = m: no matrix product in it, bound by memory. A block keeps the
//                weights of a chunk of channels in shared memory; a thread computes DW_OUT
//                neighbouring results of V channels, for 3x3, 5x5 and 7x7 without dilation from
//                registers. The weight gradient sums over pixels in two stages of fixed order.
//   any          one thread for each result, every shape: for what no library has an engine for
//   column sums  of a matrix, in two stages of fixed order: the gradient of a bias
//   pad          few channels (an image) widened by zeros to what matrix units can load
//   noise        operands for measuring engines
//
// All tensors channels-last, weights [m][r][s][c/groups]; sums in F32.
#include "executor/device/cuda/act.cuh"

#define THREADS 256
#define DW_OUT 4
#define DW_CHUNK 128          // channels of a block, at most
#define DW_SHARED (48 * 1024) // bytes
#define MAX_BLOCKS 4096       // of a grid-stride loop
#define MAX_SPLITS 64         // first-stage sums of one result

// ------------------------------------------------------------------ blocks of channels x pixels

// Threads of a block as slots x lanes: a lane owns V channels, a slot is one of several pixels.
struct lanes {
    int lanes, slots, chunk; // chunk = lanes * V channels
};

static struct lanes lanes_of(int64_t c, int v)
{
    const int64_t most = v == 1 ? WARP : DW_CHUNK / v, need = cdiv64(c, v);
    struct lanes l;

    l.lanes = (int)(need < most ? need : most);
    l.slots = THREADS / l.lanes;
    l.chunk = l.lanes * v;
    return l;
}

template <class T> static int width_of(int64_t c)
{
    return c % VEC<T> == 0 ? VEC<T> : 1;
}

static unsigned blocks_of(int64_t work, int64_t per_block)
{
    const int64_t n = cdiv64(work, per_block);

    return (unsigned)(n < MAX_BLOCKS ? n : MAX_BLOCKS);
}

// Sums `acc` over the slots in their order; the result is in the threads of slot 0.
template <int V> DEV_INLINE void sum_slots(const struct lanes &l, float (&acc)[V], float *shared)
{
    const int lane = threadIdx.x % l.lanes, slot = threadIdx.x / l.lanes;

    if (slot < l.slots)
#pragma unroll
        for (int i = 0; i < V; i++)
            shared[slot * l.chunk + lane * V + i] = acc[i];
    __syncthreads();
    if (slot != 0)
        return;
    for (int s = 1; s < l.slots; s++)
#pragma unroll
        for (int i = 0; i < V; i++)
            acc[i] += shared[s * l.chunk + lane * V + i];
}

// out[c][tap] = sum of part[split][tap][c]
template <class T>
static __global__ void __launch_bounds__(THREADS)
    sum_splits_kernel(const float *part, int splits, int64_t taps, int64_t c, T *out)
{
    const int64_t n = taps * c, step = (int64_t)gridDim.x * THREADS;

    for (int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x; i < n; i += step) {
        float sum = 0;

        for (int k = 0; k < splits; k++)
            sum += part[k * n + i];
        out[i % c * taps + i / c] = grad_f<T>(sum);
    }
}

// ------------------------------------------------------------------ depthwise

struct dw {
    int n, h, w, c, r, s, p, q;
    int stride_h, stride_w, dil_h, dil_w, pad_h, pad_w;
    struct lanes l;
};

static struct dw dw_of(const struct k_conv *v, int width)
{
    return {(int)v->n,         (int)v->h,           (int)v->w,
            (int)v->c,         (int)v->r,           (int)v->s,
            (int)v->p,         (int)v->q,           (int)v->stride[0],
            (int)v->stride[1], (int)v->dilation[0], (int)v->dilation[1],
            (int)v->pad[0],    (int)v->pad[1],      lanes_of(v->c, width)};
}

// shared[tap][channel of the chunk] = w[channel][tap]
template <class T> DEV_INLINE void load_weights(const struct dw &a, const T *w, float *shared)
{
    const int taps = a.r * a.s, c0 = blockIdx.y * a.l.chunk;

    for (int i = threadIdx.x; i < taps * a.l.chunk; i += THREADS) {
        const int c = i / taps;

        shared[i % taps * a.l.chunk + c] = c0 + c < a.c ? to_f(w[(int64_t)c0 * taps + i]) : 0;
    }
    __syncthreads();
}

// One row of taps of a K x K window with stride S: every input is loaded once.
template <class T, int V, int K, int S>
DEV_INLINE void dw_row(const struct dw &a, const T *row, int w0, const float *weights,
                       float (&acc)[DW_OUT][V])
{
    float k[K][V];

#pragma unroll
    for (int s = 0; s < K; s++)
        load_f<V>(weights + s * a.l.chunk, k[s]);
#pragma unroll
    for (int j = 0; j < (DW_OUT - 1) * S + K; j++) {
        float x[V];

        if ((unsigned)(w0 + j) >= (unsigned)a.w)
            continue;
        load_f<V>(row + (int64_t)(w0 + j) * a.c, x);
#pragma unroll
        for (int t = 0; t < DW_OUT; t++)
            if (j - t * S >= 0 && j - t * S < K)
#pragma unroll
                for (int i = 0; i < V; i++)
                    acc[t][i] += x[i] * k[j - t * S][i];
    }
}

// The same for any window.
template <class T, int V>
DEV_INLINE void dw_row_any(const struct dw &a, const T *row, int w0, const float *weights,
                           float (&acc)[DW_OUT][V])
{
    for (int s = 0; s < a.s; s++) {
        float k[V];

        load_f<V>(weights + s * a.l.chunk, k);
#pragma unroll
        for (int t = 0; t < DW_OUT; t++) {
            const int w = w0 + t * a.stride_w + s * a.dil_w;
            float x[V];

            if ((unsigned)w >= (unsigned)a.w)
                continue;
            load_f<V>(row + (int64_t)w * a.c, x);
#pragma unroll
            for (int i = 0; i < V; i++)
                acc[t][i] += x[i] * k[i];
        }
    }
}

template <class T, int V>
DEV_INLINE void dw_store(const struct dw &a, float (&acc)[V], int64_t at, int c, const T *bias,
                         const T *z, const struct act_of &act, T *y)
{
    float more[V];

    if (bias) {
        load_f<V>(bias + c, more);
#pragma unroll
        for (int i = 0; i < V; i++)
            acc[i] += more[i];
    }
    if (z) {
        load_f<V>(z + at, more);
#pragma unroll
        for (int i = 0; i < V; i++)
            acc[i] += more[i];
    }
    apply_act<V>(act, acc);
    store_f<V>(y + at, acc);
}

// K = 0: any window, stride and dilation.
template <class T, int V, int K, int S>
static __global__ void __launch_bounds__(THREADS)
    dw_kernel(const struct dw a, const T *__restrict__ x, const T *__restrict__ w,
              const T *__restrict__ bias, const T *__restrict__ z, const struct act_of act,
              T *__restrict__ y)
{
    extern __shared__ __align__(16) float shared[];
    const int lane = threadIdx.x % a.l.lanes, slot = threadIdx.x / a.l.lanes;
    const int c = blockIdx.y * a.l.chunk + lane * V;
    const int per_row = (a.q + DW_OUT - 1) / DW_OUT;
    const int64_t n = (int64_t)a.n * a.p * per_row, step = (int64_t)gridDim.x * a.l.slots;

    load_weights(a, w, shared);
    if (slot >= a.l.slots || c >= a.c)
        return;
    for (int64_t i = (int64_t)blockIdx.x * a.l.slots + slot; i < n; i += step) {
        const int q = (int)(i % per_row) * DW_OUT, p = (int)(i / per_row % a.p);
        const int64_t image = i / per_row / a.p, at = ((image * a.p + p) * a.q + q) * a.c + c;
        float acc[DW_OUT][V] = {};

        for (int r = 0; r < a.r; r++) {
            const int h = p * a.stride_h - a.pad_h + r * a.dil_h;
            const T *row = x + (image * a.h + h) * a.w * a.c + c;
            const float *weights = shared + r * a.s * a.l.chunk + lane * V;
            const int w0 = q * a.stride_w - a.pad_w;

            if ((unsigned)h >= (unsigned)a.h)
                continue;
            if constexpr (K > 0)
                dw_row<T, V, K, S>(a, row, w0, weights, acc);
            else
                dw_row_any<T, V>(a, row, w0, weights, acc);
        }
#pragma unroll
        for (int t = 0; t < DW_OUT; t++)
            if (q + t < a.q)
                dw_store<T, V>(a, acc[t], at + (int64_t)t * a.c, c, bias, z, act, y);
    }
}

// d_x: every input gathers the results that it went into.
template <class T, int V>
static __global__ void __launch_bounds__(THREADS)
    dw_data_kernel(const struct dw a, const T *__restrict__ dy, const T *__restrict__ w,
                   T *__restrict__ dx)
{
    extern __shared__ __align__(16) float shared[];
    const int lane = threadIdx.x % a.l.lanes, slot = threadIdx.x / a.l.lanes;
    const int c = blockIdx.y * a.l.chunk + lane * V;
    const int64_t n = (int64_t)a.n * a.h * a.w, step = (int64_t)gridDim.x * a.l.slots;

    load_weights(a, w, shared);
    if (slot >= a.l.slots || c >= a.c)
        return;
    for (int64_t i = (int64_t)blockIdx.x * a.l.slots + slot; i < n; i += step) {
        const int x = (int)(i % a.w), h = (int)(i / a.w % a.h);
        const int64_t image = i / a.w / a.h;
        float acc[V] = {};

        for (int r = 0; r < a.r; r++) {
            const int ph = h + a.pad_h - r * a.dil_h, p = ph / a.stride_h;

            if (ph < 0 || ph % a.stride_h != 0 || p >= a.p)
                continue;
            for (int s = 0; s < a.s; s++) {
                const int qw = x + a.pad_w - s * a.dil_w, q = qw / a.stride_w;
                float k[V], d[V];

                if (qw < 0 || qw % a.stride_w != 0 || q >= a.q)
                    continue;
                load_f<V>(shared + (r * a.s + s) * a.l.chunk + lane * V, k);
                load_f<V>(dy + ((image * a.p + p) * a.q + q) * a.c + c, d);
#pragma unroll
                for (int j = 0; j < V; j++)
                    acc[j] += d[j] * k[j];
            }
        }
        store_grad<V>(dx + i * a.c + c, acc);
    }
}

// First stage of d_w: part[split][tap][c]; a block is one tap of a chunk of channels.
template <class T, int V>
static __global__ void __launch_bounds__(THREADS)
    dw_weight_kernel(const struct dw a, const T *__restrict__ x, const T *__restrict__ dy,
                     float *__restrict__ part)
{
    extern __shared__ __align__(16) float shared[];
    const int lane = threadIdx.x % a.l.lanes, slot = threadIdx.x / a.l.lanes;
    const int c = blockIdx.y * a.l.chunk + lane * V, tap = blockIdx.z;
    const int off_h = tap / a.s * a.dil_h - a.pad_h, off_w = tap % a.s * a.dil_w - a.pad_w;
    const bool is_here = slot < a.l.slots && c < a.c;
    const int64_t n = is_here ? (int64_t)a.n * a.p * a.q : 0;
    const int64_t step = (int64_t)gridDim.x * a.l.slots;
    float acc[V] = {};

    for (int64_t i = (int64_t)blockIdx.x * a.l.slots + slot; i < n; i += step) {
        const int q = (int)(i % a.q), p = (int)(i / a.q % a.p);
        const int h = p * a.stride_h + off_h, w = q * a.stride_w + off_w;
        const int64_t image = i / a.q / a.p;
        float v[V], d[V];

        if ((unsigned)h >= (unsigned)a.h || (unsigned)w >= (unsigned)a.w)
            continue;
        load_f<V>(x + ((image * a.h + h) * a.w + w) * a.c + c, v);
        load_f<V>(dy + i * a.c + c, d);
#pragma unroll
        for (int j = 0; j < V; j++)
            acc[j] += v[j] * d[j];
    }
    sum_slots<V>(a.l, acc, shared);
    if (slot == 0 && c < a.c)
        store_f<V>(part + ((int64_t)blockIdx.x * gridDim.z + tap) * a.c + c, acc);
}

template <class T, int V, int K, int S>
static void launch_dw(cudaStream_t s, const struct k_conv *v, const T *x, const T *w, const T *bias,
                      const T *z, struct act_of act, T *y)
{
    const struct dw a = dw_of(v, V);
    const int64_t groups = v->n * v->p * cdiv64(v->q, DW_OUT);
    const dim3 grid(blocks_of(groups, a.l.slots), (unsigned)cdiv64(v->c, a.l.chunk));

    dw_kernel<T, V, K, S>
        <<<grid, THREADS, v->r * v->s * a.l.chunk * sizeof(float), s>>>(a, x, w, bias, z, act, y);
}

template <class T>
static void depthwise(cudaStream_t s, const struct k_conv *v, const T *x, const T *w, const T *bias,
                      const T *z, struct act_of act, T *y)
{
    const int64_t k = v->r == v->s && v->dilation[0] == 1 && v->dilation[1] == 1 ? v->r : 0;
    const int64_t stride = v->stride[1];

    if (width_of<T>(v->c) == 1)
        launch_dw<T, 1, 0, 0>(s, v, x, w, bias, z, act, y);
    else if (k == 3 && stride == 1)
        launch_dw<T, VEC<T>, 3, 1>(s, v, x, w, bias, z, act, y);
    else if (k == 3 && stride == 2)
        launch_dw<T, VEC<T>, 3, 2>(s, v, x, w, bias, z, act, y);
    else if (k == 5 && stride == 1)
        launch_dw<T, VEC<T>, 5, 1>(s, v, x, w, bias, z, act, y);
    else if (k == 5 && stride == 2)
        launch_dw<T, VEC<T>, 5, 2>(s, v, x, w, bias, z, act, y);
    else if (k == 7 && stride == 1)
        launch_dw<T, VEC<T>, 7, 1>(s, v, x, w, bias, z, act, y);
    else
        launch_dw<T, VEC<T>, 0, 0>(s, v, x, w, bias, z, act, y);
}

template <class T, int V>
static void launch_dw_data(cudaStream_t s, const struct k_conv *v, const T *dy, const T *w, T *dx)
{
    const struct dw a = dw_of(v, V);
    const dim3 grid(blocks_of(v->n * v->h * v->w, a.l.slots), (unsigned)cdiv64(v->c, a.l.chunk));

    dw_data_kernel<T, V>
        <<<grid, THREADS, v->r * v->s * a.l.chunk * sizeof(float), s>>>(a, dy, w, dx);
}

// Of `rows` pixels: how many first-stage sums, so that each still adds up some.
static int splits_of(int64_t rows, const struct lanes &l)
{
    const int64_t n = cdiv64(rows, (int64_t)l.slots * 8);

    return (int)(n < MAX_SPLITS ? n : MAX_SPLITS);
}

template <class T, int V>
static void launch_dw_weight(cudaStream_t s, const struct k_conv *v, const T *x, const T *dy,
                             float *part, T *dw)
{
    const struct dw a = dw_of(v, V);
    const int64_t taps = v->r * v->s;
    const int splits = splits_of(v->n * v->p * v->q, a.l);
    const dim3 grid((unsigned)splits, (unsigned)cdiv64(v->c, a.l.chunk), (unsigned)taps);

    dw_weight_kernel<T, V>
        <<<grid, THREADS, a.l.slots * a.l.chunk * sizeof(float), s>>>(a, x, dy, part);
    sum_splits_kernel<T>
        <<<blocks_of(taps * v->c, THREADS), THREADS, 0, s>>>(part, splits, taps, v->c, dw);
}

// ------------------------------------------------------------------ any

template <class T>
static __global__ void __launch_bounds__(THREADS)
    any_kernel(const struct k_conv v, const T *__restrict__ x, const T *__restrict__ w,
               const T *__restrict__ bias, const T *__restrict__ z, const struct act_of act,
               T *__restrict__ y)
{
    const int64_t n = v.n * v.p * v.q * v.m, step = (int64_t)gridDim.x * THREADS;
    const int64_t cg = v.c / v.groups, mg = v.m / v.groups;

    for (int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x; i < n; i += step) {
        const int64_t m = i % v.m, q = i / v.m % v.q, p = i / v.m / v.q % v.p;
        const int64_t image = i / v.m / v.q / v.p, c0 = m / mg * cg;
        float acc[1] = {0};

        for (int64_t t = 0; t < v.r * v.s; t++) {
            const int64_t h = p * v.stride[0] - v.pad[0] + t / v.s * v.dilation[0];
            const int64_t j = q * v.stride[1] - v.pad[1] + t % v.s * v.dilation[1];
            const T *xc = x + ((image * v.h + h) * v.w + j) * v.c + c0;
            const T *wc = w + (m * v.r * v.s + t) * cg;

            if (h < 0 || h >= v.h || j < 0 || j >= v.w)
                continue;
            for (int64_t c = 0; c < cg; c++)
                acc[0] += to_f(xc[c]) * to_f(wc[c]);
        }
        acc[0] += (bias ? to_f(bias[m]) : 0) + (z ? to_f(z[i]) : 0);
        apply_act<1>(act, acc);
        y[i] = from_f<T>(acc[0]);
    }
}

template <class T>
static __global__ void __launch_bounds__(THREADS)
    any_data_kernel(const struct k_conv v, const T *__restrict__ dy, const T *__restrict__ w,
                    T *__restrict__ dx)
{
    const int64_t n = v.n * v.h * v.w * v.c, step = (int64_t)gridDim.x * THREADS;
    const int64_t cg = v.c / v.groups, mg = v.m / v.groups;

    for (int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x; i < n; i += step) {
        const int64_t c = i % v.c, j = i / v.c % v.w, h = i / v.c / v.w % v.h;
        const int64_t image = i / v.c / v.w / v.h, m0 = c / cg * mg;
        float acc = 0;

        for (int64_t t = 0; t < v.r * v.s; t++) {
            const int64_t ph = h + v.pad[0] - t / v.s * v.dilation[0], p = ph / v.stride[0];
            const int64_t qw = j + v.pad[1] - t % v.s * v.dilation[1], q = qw / v.stride[1];
            const T *d = dy + ((image * v.p + p) * v.q + q) * v.m + m0;
            const T *k = w + (m0 * v.r * v.s + t) * cg + c % cg;

            if (ph < 0 || ph % v.stride[0] != 0 || p >= v.p || qw < 0 || qw % v.stride[1] != 0 ||
                q >= v.q)
                continue;
            for (int64_t m = 0; m < mg; m++)
                acc += to_f(d[m]) * to_f(k[m * v.r * v.s * cg]);
        }
        dx[i] = grad_f<T>(acc);
    }
}

template <class T>
static __global__ void __launch_bounds__(THREADS)
    any_weight_kernel(const struct k_conv v, const T *__restrict__ x, const T *__restrict__ dy,
                      T *__restrict__ dw)
{
    const int64_t cg = v.c / v.groups, mg = v.m / v.groups, n = v.m * v.r * v.s * cg;
    const int64_t step = (int64_t)gridDim.x * THREADS;

    for (int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x; i < n; i += step) {
        const int64_t t = i / cg % (v.r * v.s), m = i / cg / (v.r * v.s);
        const int64_t c = m / mg * cg + i % cg;
        float acc = 0;

        for (int64_t o = 0; o < v.n * v.p * v.q; o++) {
            const int64_t q = o % v.q, p = o / v.q % v.p, image = o / v.q / v.p;
            const int64_t h = p * v.stride[0] - v.pad[0] + t / v.s * v.dilation[0];
            const int64_t j = q * v.stride[1] - v.pad[1] + t % v.s * v.dilation[1];

            if (h >= 0 && h < v.h && j >= 0 && j < v.w)
                acc += to_f(x[((image * v.h + h) * v.w + j) * v.c + c]) * to_f(dy[o * v.m + m]);
        }
        dw[i] = grad_f<T>(acc);
    }
}

// ------------------------------------------------------------------ column sums

template <class T, int V>
static __global__ void __launch_bounds__(THREADS)
    column_sums_kernel(const T *__restrict__ x, int64_t rows, int64_t cols, const struct lanes l,
                       float *__restrict__ part)
{
    extern __shared__ __align__(16) float shared[];
    const int lane = threadIdx.x % l.lanes, slot = threadIdx.x / l.lanes;
    const int64_t c = (int64_t)blockIdx.y * l.chunk + lane * V;
    const bool is_here = slot < l.slots && c < cols;
    const int64_t n = is_here ? rows : 0, step = (int64_t)gridDim.x * l.slots;
    float acc[V] = {};

    for (int64_t i = (int64_t)blockIdx.x * l.slots + slot; i < n; i += step) {
        float v[V];

        load_f<V>(x + i * cols + c, v);
#pragma unroll
        for (int j = 0; j < V; j++)
            acc[j] += v[j];
    }
    sum_slots<V>(l, acc, shared);
    if (slot == 0 && c < cols)
        store_f<V>(part + blockIdx.x * cols + c, acc);
}

template <class T, int V>
static void launch_column_sums(cudaStream_t s, const T *x, int64_t rows, int64_t cols, float *part,
                               float *out)
{
    const struct lanes l = lanes_of(cols, V);
    const int splits = splits_of(rows, l);
    const dim3 grid((unsigned)splits, (unsigned)cdiv64(cols, l.chunk));

    column_sums_kernel<T, V>
        <<<grid, THREADS, l.slots * l.chunk * sizeof(float), s>>>(x, rows, cols, l, part);
    sum_splits_kernel<float>
        <<<blocks_of(cols, THREADS), THREADS, 0, s>>>(part, splits, 1, cols, out);
}

// ------------------------------------------------------------------ pad, noise

// P > 0: as many channels as are written at once.
template <class S, class T, int P>
static __global__ void __launch_bounds__(THREADS)
    pad_kernel(const S *__restrict__ src, int64_t n, int64_t hw, int c, bool is_plain,
               T *__restrict__ dst, int padded)
{
    const int64_t step = (int64_t)gridDim.x * THREADS, pixel = is_plain ? 1 : c;
    const int64_t plane = is_plain ? hw : 1;

    for (int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x; i < n * hw; i += step) {
        const S *from = src + i / hw * hw * c + i % hw * pixel;

        if constexpr (P > 0) {
            float v[P];

#pragma unroll
            for (int k = 0; k < P; k++)
                v[k] = k < c ? to_f(from[k * plane]) : 0;
            store_f<P>(dst + i * P, v);
        } else {
            for (int k = 0; k < padded; k++)
                dst[i * padded + k] = from_f<T>(k < c ? to_f(from[k * plane]) : 0);
        }
    }
}

template <class S, class T>
static void launch_pad(cudaStream_t s, const S *src, int64_t n, int64_t hw, int c, bool is_plain,
                       T *dst, int padded)
{
    const unsigned blocks = blocks_of(n * hw, THREADS);

    if (padded == 8)
        pad_kernel<S, T, 8><<<blocks, THREADS, 0, s>>>(src, n, hw, c, is_plain, dst, padded);
    else if (padded == 4)
        pad_kernel<S, T, 4><<<blocks, THREADS, 0, s>>>(src, n, hw, c, is_plain, dst, padded);
    else
        pad_kernel<S, T, 0><<<blocks, THREADS, 0, s>>>(src, n, hw, c, is_plain, dst, padded);
}

// Numbers in [-1, 1] that look like none in particular.
template <class T>
static __global__ void __launch_bounds__(THREADS) noise_kernel(T *dst, int64_t n, uint32_t seed)
{
    const int64_t step = (int64_t)gridDim.x * THREADS;

    for (int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x; i < n; i += step) {
        uint32_t h = (uint32_t)i * 0x9e3779b9u + seed;

        h = (h ^ (h >> 16)) * 0x85ebca6bu;
        h = (h ^ (h >> 13)) * 0xc2b2ae35u;
        dst[i] = from_f<T>((float)(int32_t)(h ^ (h >> 16)) * 4.656612873e-10f);
    }
}

// ------------------------------------------------------------------ launchers

static bool is_depthwise(const struct k_conv *v)
{
    const int64_t most = INT32_MAX / 4; // positions are computed in 32 bits

    return v->groups == v->c && v->c == v->m &&
           v->r * v->s * DW_CHUNK * (int64_t)sizeof(float) <= DW_SHARED && v->n < most &&
           v->h < most && v->w < most && v->c <= 65535 * WARP && v->p < most / v->stride[0] &&
           v->q < most / v->stride[1];
}

extern "C" bool k_conv_is_depthwise(const struct k_conv *v)
{
    return is_depthwise(v);
}

extern "C" void k_conv_fwd(cudaStream_t s, const struct k_conv *v, int type, const void *x,
                           const void *w, const void *bias, const void *z, int act, float p0,
                           float p1, void *y)
{
    const struct act_of a = {act, p0, p1};
    const int64_t n = v->n * v->p * v->q * v->m;

    if (is_depthwise(v))
        DISPATCH_FLOAT(type, T,
                       depthwise<T>(s, v, (const T *)x, (const T *)w, (const T *)bias, (const T *)z,
                                    a, (T *)y))
    else
        DISPATCH_FLOAT(
            type, T,
            any_kernel<T><<<blocks_of(n, THREADS), THREADS, 0, s>>>(
                *v, (const T *)x, (const T *)w, (const T *)bias, (const T *)z, a, (T *)y))
}

extern "C" void k_conv_bwd_data(cudaStream_t s, const struct k_conv *v, int type, const void *dy,
                                const void *w, void *dx)
{
    const int64_t n = v->n * v->h * v->w * v->c;

    if (!is_depthwise(v)) {
        DISPATCH_FLOAT(type, T,
                       any_data_kernel<T><<<blocks_of(n, THREADS), THREADS, 0, s>>>(
                           *v, (const T *)dy, (const T *)w, (T *)dx))
        return;
    }
    DISPATCH_FLOAT(
        type, T,
        if (width_of<T>(v->c) == 1) {
            launch_dw_data<T, 1>(s, v, (const T *)dy, (const T *)w, (T *)dx);
        } else { launch_dw_data<T, VEC<T>>(s, v, (const T *)dy, (const T *)w, (T *)dx); })
}

extern "C" size_t k_conv_bwd_weight_scratch(const struct k_conv *v)
{
    return is_depthwise(v) ? MAX_SPLITS * v->r * v->s * v->c * sizeof(float) : 0;
}

extern "C" void k_conv_bwd_weight(cudaStream_t s, const struct k_conv *v, int type, const void *x,
                                  const void *dy, void *scratch, void *dw)
{
    const int64_t n = v->m * v->r * v->s * (v->c / v->groups);

    if (!is_depthwise(v)) {
        DISPATCH_FLOAT(type, T,
                       any_weight_kernel<T><<<blocks_of(n, THREADS), THREADS, 0, s>>>(
                           *v, (const T *)x, (const T *)dy, (T *)dw))
        return;
    }
    DISPATCH_FLOAT(
        type, T,
        if (width_of<T>(v->c) == 1) {
            launch_dw_weight<T, 1>(s, v, (const T *)x, (const T *)dy, (float *)scratch, (T *)dw);
        } else {
            launch_dw_weight<T, VEC<T>>(s, v, (const T *)x, (const T *)dy, (float *)scratch,
                                        (T *)dw);
        })
}

extern "C" size_t k_column_sums_scratch(int64_t cols)
{
    return MAX_SPLITS * (size_t)cols * sizeof(float);
}

extern "C" void k_column_sums(cudaStream_t s, int type, const void *x, int64_t rows, int64_t cols,
                              void *scratch, float *out)
{
    DISPATCH_FLOAT(
        type, T,
        if (width_of<T>(cols) == 1) {
            launch_column_sums<T, 1>(s, (const T *)x, rows, cols, (float *)scratch, out);
        } else {
            launch_column_sums<T, VEC<T>>(s, (const T *)x, rows, cols, (float *)scratch, out);
        })
}

extern "C" void k_conv_pad(cudaStream_t s, int src_type, const void *src, bool is_plain, int64_t n,
                           int64_t hw, int c, int type, void *dst, int padded)
{
    DISPATCH_FLOAT(
        src_type, S,
        DISPATCH_FLOAT(type, T,
                       launch_pad<S, T>(s, (const S *)src, n, hw, c, is_plain, (T *)dst, padded)))
}

extern "C" void k_conv_noise(cudaStream_t s, int type, int64_t n, uint32_t seed, void *dst)
{
    DISPATCH_FLOAT(type, T,
                   noise_kernel<T><<<blocks_of(n, THREADS), THREADS, 0, s>>>((T *)dst, n, seed))
}
