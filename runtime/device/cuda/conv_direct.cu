// conv_direct.cu - convolutions by plain loops, and what surrounds those of the libraries.
//
//   depthwise    conv_depthwise.cu
//   groups       conv_grouped.cu, on the matrix units
//   any          one thread for each result, every shape: for what no library has an engine for
//   column sums  of a matrix, in two stages of fixed order: the gradient of a bias
//   pad          few channels (an image) widened by zeros to what matrix units can load
//   noise        operands for measuring engines
//
// All tensors channels-last, weights [m][r][s][c/groups]; sums in F32.
#include "runtime/device/cuda/conv_lanes.cuh"

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
    const int splits = splits_of(rows, l, most_splits(cols));
    const dim3 grid((unsigned)splits, (unsigned)cdiv64(cols, l.chunk));

    column_sums_kernel<T, V>
        <<<grid, THREADS, l.slots * l.chunk * sizeof(float), s>>>(x, rows, cols, l, part);
    sum_splits<float>(s, part, splits, 1, cols, out);
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

extern "C" bool k_conv_has_kernel(const struct k_conv *v, int type)
{
    return conv_is_depthwise(v) || conv_is_grouped(v, type);
}

extern "C" bool k_conv_has_variants(const struct k_conv *v, int type)
{
    return conv_is_depthwise(v) && conv_depthwise_varies(v, type);
}

// cuDNN has kernels for groups of 8, 16 and 32 channels, which are as fast or faster.
extern "C" bool k_conv_is_best(const struct k_conv *v, int type)
{
    const int64_t cg = v->c / v->groups, mg = v->m / v->groups;

    return conv_is_depthwise(v) ||
           (conv_is_grouped(v, type) && ((cg & (cg - 1)) != 0 || (mg & (mg - 1)) != 0));
}

extern "C" void k_conv_fwd(cudaStream_t s, const struct k_conv *v, int type, const void *x,
                           const void *w, const void *bias, const void *z, int act, float p0,
                           float p1, void *y)
{
    const struct act_of a = {act, p0, p1};
    const int64_t n = v->n * v->p * v->q * v->m;

    if (conv_is_depthwise(v))
        conv_depthwise(s, v, type, x, w, bias, z, a, y);
    else if (conv_is_grouped(v, type))
        conv_grouped(s, v, type, x, w, bias, z, a, y);
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

    if (conv_is_depthwise(v))
        conv_depthwise_data(s, v, type, dy, w, dx);
    else if (conv_is_grouped(v, type))
        conv_grouped_data(s, v, type, dy, w, dx);
    else
        DISPATCH_FLOAT(type, T,
                       any_data_kernel<T><<<blocks_of(n, THREADS), THREADS, 0, s>>>(
                           *v, (const T *)dy, (const T *)w, (T *)dx))
}

extern "C" size_t k_conv_bwd_weight_scratch(const struct k_conv *v, int type)
{
    return conv_is_depthwise(v)       ? conv_depthwise_scratch(v)
           : conv_is_grouped(v, type) ? conv_grouped_scratch(v)
                                      : 0;
}

extern "C" void k_conv_bwd_weight(cudaStream_t s, const struct k_conv *v, int type, const void *x,
                                  const void *dy, void *scratch, void *dw)
{
    const int64_t n = v->m * v->r * v->s * (v->c / v->groups);

    if (conv_is_depthwise(v))
        conv_depthwise_weight(s, v, type, x, dy, scratch, dw);
    else if (conv_is_grouped(v, type))
        conv_grouped_weight(s, v, type, x, dy, scratch, dw);
    else
        DISPATCH_FLOAT(type, T,
                       any_weight_kernel<T><<<blocks_of(n, THREADS), THREADS, 0, s>>>(
                           *v, (const T *)x, (const T *)dy, (T *)dw))
}

extern "C" size_t k_column_sums_scratch(int64_t cols)
{
    return (size_t)(most_splits(cols) * cols) * sizeof(float);
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
