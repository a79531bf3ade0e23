// conv_depthwise.cu - depthwise convolutions: groups = c = m.
//
// No matrix product is in them, they wait for memory. A block keeps the weights of a chunk of
// channels in shared memory; a thread computes OUT neighbouring results of V channels, for 3x3, 5x5
// and 7x7 without dilation from registers, and so the gradient of the data. Where that would be too
// few threads to hide what memory takes, a thread has one result, or one row of taps
// (conv_depthwise_rows.cu). The gradient of the weight sums over pixels in two stages of fixed
// order; a thread has all taps, of 7x7 four rows of them.
//
// All tensors channels-last, weights [m][r][s]; sums in F32.
#include "runtime/device/cuda/conv_depthwise.cuh"

#define OUT 4
#define FEW (1 << 15) // threads that have OUT results each: less than hides what memory takes

// One row of taps of a K x K window with stride S: every input is loaded once.
template <class T, int V, int K, int S, int N>
DEV_INLINE void dw_row(const struct dw &a, const T *row, bool is_row, int w0, const float *weights,
                       float (&acc)[N][V])
{
    vec<T, V> in[(N - 1) * S + K];

    load_row(a, row, is_row, w0, in);
    multiply_row<T, V, K, S, N>(a, in, weights, acc);
}

// The same for any window.
template <class T, int V, int N>
DEV_INLINE void dw_row_any(const struct dw &a, const T *row, int w0, const float *weights,
                           float (&acc)[N][V])
{
    for (int s = 0; s < a.s; s++) {
        float k[V];

        load_f<V>(weights + s * row_of(a), k);
#pragma unroll
        for (int t = 0; t < N; t++) {
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

// K = 0: any window, stride and dilation. A thread has N neighbouring results; one that has one
// alone has all its loads under way at once.
template <class T, int V, int K, int S, int N>
static __global__ void __launch_bounds__(THREADS)
    dw_kernel(const struct dw a, const T *__restrict__ x, const T *__restrict__ w,
              const T *__restrict__ bias, const T *__restrict__ z, const struct act_of act,
              T *__restrict__ y)
{
    extern __shared__ __align__(16) float shared[];
    const int lane = threadIdx.x % a.l.lanes, slot = threadIdx.x / a.l.lanes;
    const int c = blockIdx.y * a.l.chunk + lane * V;
    const int per_row = (a.q + N - 1) / N;
    const int64_t n = (int64_t)a.n * a.p * per_row, step = (int64_t)gridDim.x * a.l.slots;

    load_weights<T, K>(a, w, shared);
    if (slot >= a.l.slots || c >= a.c)
        return;
    for (int64_t i = (int64_t)blockIdx.x * a.l.slots + slot; i < n; i += step) {
        const int q = (int)(i % per_row) * N, p = (int)(i / per_row % a.p);
        const int64_t image = i / per_row / a.p, at = ((image * a.p + p) * a.q + q) * a.c + c;
        float acc[N][V] = {};

#pragma unroll(N == 1 && K > 0 ? K : 1)
        for (int r = 0; r < (K > 0 ? K : a.r); r++) {
            const int h = p * a.stride_h - a.pad_h + r * a.dil_h;
            const T *row = x + (image * a.h + h) * a.w * a.c + c;
            const float *weights = shared + r * a.s * row_of(a) + lane * V;
            const int w0 = q * a.stride_w - a.pad_w;
            const bool is_row = (unsigned)h < (unsigned)a.h;

            if constexpr (K > 0)
                dw_row<T, V, K, S, N>(a, row, is_row, w0, weights, acc);
            else if (is_row)
                dw_row_any<T, V, N>(a, row, w0, weights, acc);
        }
#pragma unroll
        for (int t = 0; t < N; t++)
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

    load_weights<T, 0>(a, w, shared);
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
                load_f<V>(shared + (r * a.s + s) * row_of(a) + lane * V, k);
                load_f<V>(dy + ((image * a.p + p) * a.q + q) * a.c + c, d);
#pragma unroll
                for (int j = 0; j < V; j++)
                    acc[j] += d[j] * k[j];
            }
        }
        store_grad<V>(dx + i * a.c + c, acc);
    }
}

// d_x of a K x K window with stride 2: of OUT neighbours, the first at a multiple of OUT, so
// that which taps meet a d_y depends on whether the padding is ODD alone.
template <class T, int V, int K, bool ODD>
static __global__ void __launch_bounds__(THREADS)
    dw_data_2_kernel(const struct dw a, const T *__restrict__ dy, const T *__restrict__ w,
                     T *__restrict__ dx)
{
    extern __shared__ __align__(16) float shared[];
    const int lane = threadIdx.x % a.l.lanes, slot = threadIdx.x / a.l.lanes;
    const int c = blockIdx.y * a.l.chunk + lane * V;
    const int per_row = (a.w + OUT - 1) / OUT;
    const int64_t n = (int64_t)a.n * a.h * per_row, step = (int64_t)gridDim.x * a.l.slots;

    load_weights<T, K>(a, w, shared);
    if (slot >= a.l.slots || c >= a.c)
        return;
    for (int64_t i = (int64_t)blockIdx.x * a.l.slots + slot; i < n; i += step) {
        const int w0 = (int)(i % per_row) * OUT, h = (int)(i / per_row % a.h);
        const int64_t image = i / per_row / a.h;
        const int q0 = (w0 + a.pad_w - ODD) / 2;
        float acc[OUT][V] = {};

        for (int r = (h + a.pad_h) % 2; r < K; r += 2) {
            const int p = (h + a.pad_h - r) / 2;
            const T *row = dy + (image * a.p + p) * a.q * a.c + c;
            float k[K][V];

            if (h + a.pad_h < r || p >= a.p)
                continue;
#pragma unroll
            for (int s = 0; s < K; s++)
                load_f<V>(shared + (r * K + s) * row_of(a) + lane * V, k[s]);
#pragma unroll
            for (int j = -(K - 1) / 2; j <= (OUT - 1 + ODD) / 2; j++) {
                float d[V];

                if ((unsigned)(q0 + j) >= (unsigned)a.q)
                    continue;
                load_f<V>(row + (int64_t)(q0 + j) * a.c, d);
#pragma unroll
                for (int t = 0; t < OUT; t++)
                    if (ODD + t - 2 * j >= 0 && ODD + t - 2 * j < K)
#pragma unroll
                        for (int e = 0; e < V; e++)
                            acc[t][e] += d[e] * k[ODD + t - 2 * j][e];
            }
        }
#pragma unroll
        for (int t = 0; t < OUT; t++)
            if (w0 + t < a.w)
                store_grad<V>(dx + ((image * a.h + h) * a.w + w0 + t) * a.c + c, acc[t]);
    }
}

// First stage of d_w of a K x K window with stride S: part[split][tap][c]. A block has ROWS rows of
// taps of a chunk of channels, so that every d_y is loaded once for all of them.
template <class T, int V, int K, int S, int ROWS>
static __global__ void __launch_bounds__(THREADS)
    dw_weight_rows_kernel(const struct dw a, const T *__restrict__ x, const T *__restrict__ dy,
                          float *__restrict__ part)
{
    extern __shared__ __align__(16) float shared[];
    constexpr int PARTS = (K + ROWS - 1) / ROWS; // neighbours, so that they meet in the L2 cache
    const int lane = threadIdx.x % a.l.lanes, slot = threadIdx.x / a.l.lanes;
    const int c = blockIdx.y * a.l.chunk + lane * V, r0 = blockIdx.x % PARTS * ROWS;
    const int split = blockIdx.x / PARTS, per_row = (a.q + OUT - 1) / OUT;
    const bool is_here = slot < a.l.slots && c < a.c;
    const int64_t n = is_here ? (int64_t)a.n * a.p * per_row : 0;
    const int64_t step = (int64_t)(gridDim.x / PARTS) * a.l.slots;
    float acc[ROWS * K][V] = {};

    for (int64_t i = (int64_t)split * a.l.slots + slot; i < n; i += step) {
        const int q = (int)(i % per_row) * OUT, p = (int)(i / per_row % a.p);
        const int64_t image = i / per_row / a.p, at = ((image * a.p + p) * a.q + q) * a.c + c;
        const int w0 = q * S - a.pad_w;
        float d[OUT][V] = {};

#pragma unroll
        for (int t = 0; t < OUT; t++)
            if (q + t < a.q)
                load_f<V>(dy + at + (int64_t)t * a.c, d[t]);
#pragma unroll
        for (int r = 0; r < ROWS; r++) {
            const int h = p * S - a.pad_h + r0 + r;
            const T *row = x + (image * a.h + h) * a.w * a.c + c;

            if (r0 + r >= K || (unsigned)h >= (unsigned)a.h)
                continue;
#pragma unroll
            for (int j = 0; j < (OUT - 1) * S + K; j++) {
                float v[V];

                if ((unsigned)(w0 + j) >= (unsigned)a.w)
                    continue;
                load_f<V>(row + (int64_t)(w0 + j) * a.c, v);
#pragma unroll
                for (int t = 0; t < OUT; t++)
                    if (j - t * S >= 0 && j - t * S < K)
#pragma unroll
                        for (int e = 0; e < V; e++)
                            acc[r * K + j - t * S][e] += v[e] * d[t][e];
            }
        }
    }
#pragma unroll
    for (int k = 0; k < ROWS * K; k++) {
        if (r0 + k / K >= K)
            break;
        sum_slots<V>(a.l, acc[k], shared);
        if (slot == 0 && c < a.c)
            store_f<V>(part + ((int64_t)split * K * K + r0 * K + k) * a.c + c, acc[k]);
        __syncthreads();
    }
}

// The same for any window; a block is one tap.
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

template <class T, int V, int K, int S, int N>
static void launch_dw_by(cudaStream_t s, const struct k_conv *v, const T *x, const T *w,
                         const T *bias, const T *z, struct act_of act, T *y)
{
    const struct dw a = dw_of(v, V, N == 1 ? NARROW : CHUNK);
    const int64_t groups = v->n * v->p * cdiv64(v->q, N);
    const dim3 grid(blocks_of(groups, a.l.slots), (unsigned)cdiv64(v->c, a.l.chunk));

    dw_kernel<T, V, K, S, N><<<grid, THREADS, shared_of(a), s>>>(a, x, w, bias, z, act, y);
}

// By K_DW_*.
template <class T, int V, int K, int S>
static void launch_dw(cudaStream_t s, const struct k_conv *v, const T *x, const T *w, const T *bias,
                      const T *z, struct act_of act, T *y)
{
    if (v->variant == K_DW_ONE)
        launch_dw_by<T, V, K, S, 1>(s, v, x, w, bias, z, act, y);
    else
        launch_dw_by<T, V, K, S, OUT>(s, v, x, w, bias, z, act, y);
}

// The variant that is said, or the one for this size.
static int variant_of(const struct k_conv *v, int width)
{
    const int64_t threads = v->n * v->p * cdiv64(v->q, OUT) * cdiv64(v->c, width);

    if (v->variant != K_DW_BY_SIZE)
        return v->variant;
    return threads < FEW ? conv_depthwise_rows_for(v, width) : K_DW_RUNS;
}

template <class T>
static void depthwise(cudaStream_t s, const struct k_conv *given, int type, const T *x, const T *w,
                      const T *bias, const T *z, struct act_of act, T *y)
{
    struct k_conv v = *given;
    const int k = window_for_rows(&v, VEC<T>), stride = (int)v.stride[1];

    v.variant = k > 0 ? variant_of(&v, VEC<T>) : K_DW_RUNS;
    if (v.variant >= K_DW_ROWS_1)
        conv_depthwise_rows(s, &v, type, x, w, bias, z, act, y);
    else if (width_of<T>(v.c) == 1)
        launch_dw_by<T, 1, 0, 0, OUT>(s, &v, x, w, bias, z, act, y);
    else if (k == 3 && stride == 1)
        launch_dw<T, VEC<T>, 3, 1>(s, &v, x, w, bias, z, act, y);
    else if (k == 3 && stride == 2)
        launch_dw<T, VEC<T>, 3, 2>(s, &v, x, w, bias, z, act, y);
    else if (k == 5 && stride == 1)
        launch_dw<T, VEC<T>, 5, 1>(s, &v, x, w, bias, z, act, y);
    else if (k == 5 && stride == 2)
        launch_dw<T, VEC<T>, 5, 2>(s, &v, x, w, bias, z, act, y);
    else if (k == 7)
        launch_dw<T, VEC<T>, 7, 1>(s, &v, x, w, bias, z, act, y);
    else
        launch_dw_by<T, VEC<T>, 0, 0, OUT>(s, &v, x, w, bias, z, act, y);
}

// The window if it is square and not dilated, and strides are the same; 0: another.
static int window_of(const struct k_conv *v)
{
    return v->r == v->s && v->dilation[0] == 1 && v->dilation[1] == 1 &&
                   v->stride[0] == v->stride[1]
               ? (int)v->r
               : 0;
}

// With stride 1 d_x is the convolution of d_y with the taps turned.
template <class T, int V, int K>
static void launch_dw_data_1(cudaStream_t s, const struct k_conv *v, const T *dy, const T *w, T *dx)
{
    struct dw a = dw_of(v, V);
    const int64_t groups = v->n * v->h * cdiv64(v->w, OUT);
    const dim3 grid(blocks_of(groups, a.l.slots), (unsigned)cdiv64(v->c, a.l.chunk));
    const struct act_of none = {DEV_ACT_NONE, 0, 0};

    a.h = (int)v->p;
    a.w = (int)v->q;
    a.p = (int)v->h;
    a.q = (int)v->w;
    a.pad_h = K - 1 - a.pad_h;
    a.pad_w = K - 1 - a.pad_w;
    a.turned = 1;
    dw_kernel<T, V, K, 1, OUT>
        <<<grid, THREADS, shared_of(a), s>>>(a, dy, w, (const T *)NULL, (const T *)NULL, none, dx);
}

template <class T, int V, int K>
static void launch_dw_data_2(cudaStream_t s, const struct k_conv *v, const T *dy, const T *w, T *dx)
{
    const struct dw a = dw_of(v, V);
    const int64_t groups = v->n * v->h * cdiv64(v->w, OUT);
    const dim3 grid(blocks_of(groups, a.l.slots), (unsigned)cdiv64(v->c, a.l.chunk));
    const size_t smem = shared_of(a);

    if (v->pad[1] % 2)
        dw_data_2_kernel<T, V, K, true><<<grid, THREADS, smem, s>>>(a, dy, w, dx);
    else
        dw_data_2_kernel<T, V, K, false><<<grid, THREADS, smem, s>>>(a, dy, w, dx);
}

template <class T, int V>
static void launch_dw_data(cudaStream_t s, const struct k_conv *v, const T *dy, const T *w, T *dx)
{
    const struct dw a = dw_of(v, V);
    const dim3 grid(blocks_of(v->n * v->h * v->w, a.l.slots), (unsigned)cdiv64(v->c, a.l.chunk));

    dw_data_kernel<T, V><<<grid, THREADS, shared_of(a), s>>>(a, dy, w, dx);
}

template <class T>
static void depthwise_data(cudaStream_t s, const struct k_conv *v, const T *dy, const T *w, T *dx)
{
    const int k = width_of<T>(v->c) > 1 && v->pad[0] < v->r && v->pad[1] < v->s ? window_of(v) : 0;
    const int64_t stride = v->stride[0];

#define CASE(K, S) \
    else if (k == K && stride == S) launch_dw_data_##S<T, VEC<T>, K>(s, v, dy, w, dx);
    if (width_of<T>(v->c) == 1)
        launch_dw_data<T, 1>(s, v, dy, w, dx);
    CASE(3, 1)
    CASE(3, 2)
    CASE(5, 1)
    CASE(5, 2)
    CASE(7, 1)
    else launch_dw_data<T, VEC<T>>(s, v, dy, w, dx);
#undef CASE
}

template <class T, int V, int K, int S, int ROWS>
static void launch_dw_weight_rows(cudaStream_t s, const struct k_conv *v, const T *x, const T *dy,
                                  float *part, T *dw)
{
    const struct dw a = dw_of(v, V);
    const int64_t groups = v->n * v->p * cdiv64(v->q, OUT), parts = cdiv64(K, ROWS);
    const int splits = splits_of(groups * 2, a.l, most_splits(v->c));
    const dim3 grid((unsigned)(splits * parts), (unsigned)cdiv64(v->c, a.l.chunk));

    dw_weight_rows_kernel<T, V, K, S, ROWS>
        <<<grid, THREADS, a.l.slots * a.l.chunk * sizeof(float), s>>>(a, x, dy, part);
    sum_splits<T>(s, part, splits, K * K, v->c, dw);
}

template <class T, int V>
static void launch_dw_weight(cudaStream_t s, const struct k_conv *v, const T *x, const T *dy,
                             float *part, T *dw)
{
    const struct dw a = dw_of(v, V);
    const int64_t taps = v->r * v->s;
    const int splits = splits_of(v->n * v->p * v->q, a.l, MAX_SPLITS);
    const dim3 grid((unsigned)splits, (unsigned)cdiv64(v->c, a.l.chunk), (unsigned)taps);

    dw_weight_kernel<T, V>
        <<<grid, THREADS, a.l.slots * a.l.chunk * sizeof(float), s>>>(a, x, dy, part);
    sum_splits<T>(s, part, splits, taps, v->c, dw);
}

template <class T>
static void depthwise_weight(cudaStream_t s, const struct k_conv *v, const T *x, const T *dy,
                             float *part, T *dw)
{
    const int k = v->c % 4 == 0 ? window_of(v) : 0;
    const int64_t stride = v->stride[0];

    if (k == 3 && stride == 1)
        launch_dw_weight_rows<T, 4, 3, 1, 3>(s, v, x, dy, part, dw);
    else if (k == 3 && stride == 2)
        launch_dw_weight_rows<T, 4, 3, 2, 3>(s, v, x, dy, part, dw);
    else if (k == 5 && stride == 1)
        launch_dw_weight_rows<T, 4, 5, 1, 5>(s, v, x, dy, part, dw);
    else if (k == 5 && stride == 2)
        launch_dw_weight_rows<T, 4, 5, 2, 5>(s, v, x, dy, part, dw);
    else if (k == 7 && stride == 1)
        launch_dw_weight_rows<T, 4, 7, 1, 4>(s, v, x, dy, part, dw);
    else if (width_of<T>(v->c) == 1)
        launch_dw_weight<T, 1>(s, v, x, dy, part, dw);
    else
        launch_dw_weight<T, VEC<T>>(s, v, x, dy, part, dw);
}

// ------------------------------------------------------------------ launchers

bool conv_is_depthwise(const struct k_conv *v)
{
    const int64_t most = INT32_MAX / 4; // positions are computed in 32 bits

    return v->groups == v->c && v->c == v->m &&
           v->r * v->s * (CHUNK + PAD) * (int64_t)sizeof(float) <= MAX_SHARED && v->n < most &&
           v->h < most && v->w < most && v->c <= 65535 * WARP && v->p < most / v->stride[0] &&
           v->q < most / v->stride[1];
}

// Rows of taps are for little work.
bool conv_depthwise_varies(const struct k_conv *v, int type)
{
    const int64_t results = v->n * v->p * v->q * v->c, most = 1 << 24;

    return results < most && window_for_rows(v, type == CUDA_T_F32 ? VEC<float> : VEC<f16>) > 0;
}

void conv_depthwise(cudaStream_t s, const struct k_conv *v, int type, const void *x, const void *w,
                    const void *bias, const void *z, struct act_of act, void *y)
{
    DISPATCH_FLOAT(type, T,
                   depthwise<T>(s, v, type, (const T *)x, (const T *)w, (const T *)bias,
                                (const T *)z, act, (T *)y))
}

void conv_depthwise_data(cudaStream_t s, const struct k_conv *v, int type, const void *dy,
                         const void *w, void *dx){
    DISPATCH_FLOAT(type, T, depthwise_data<T>(s, v, (const T *)dy, (const T *)w, (T *)dx))}

size_t conv_depthwise_scratch(const struct k_conv *v)
{
    return (size_t)(most_splits(v->c) * v->r * v->s * v->c) * sizeof(float);
}

void conv_depthwise_weight(cudaStream_t s, const struct k_conv *v, int type, const void *x,
                           const void *dy, void *scratch, void *dw)
{
    DISPATCH_FLOAT(
        type, T, depthwise_weight<T>(s, v, (const T *)x, (const T *)dy, (float *)scratch, (T *)dw))
}
