// conv_depthwise_rows.cu - depthwise convolutions where there is little work: what counts is how
// long one thread takes, not how much all of them move.
//
// Each row of taps has a thread of its own, which computes what the row adds to N neighbouring
// results. All that it reads of device memory it asks for at once, before it waits for any of it,
// and its code, which is run through once, is short. The rows are added up in shared memory, in
// their order.
#include "runtime/device/cuda/conv_depthwise.cuh"
#include "runtime/device/cuda/nest.cuh"

#define MANY 256 // blocks: about two for each multiprocessor of a large device

struct rows {
    struct dw d;
    int slots; // groups of N results of a block
    uint32_t groups;
    fast_div by_lanes, by_row, by_p; // of groups: in a row of results
};

template <class T, int V, int K, int S, int N>
static __global__ void __launch_bounds__(THREADS, 2)
    dw_rows_kernel(const __grid_constant__ struct rows a, const T *__restrict__ x,
                   const T *__restrict__ w, const T *__restrict__ bias, const T *__restrict__ z,
                   const struct act_of act, T *__restrict__ y)
{
    extern __shared__ __align__(16) float shared[];
    float *const parts = shared + K * K * row_of(a.d); // [row of taps][slot][result][lane][V]
    const int lanes = a.d.l.lanes, step = a.slots * N * lanes * V;
    const int place = (int)quotient(threadIdx.x, a.by_lanes), lane = threadIdx.x - place * lanes;
    const int r = place % K, slot = place / K, c = blockIdx.y * a.d.l.chunk + lane * V;
    const uint32_t i = blockIdx.x * a.slots + slot, line = quotient(i, a.by_row);
    const uint32_t image = quotient(line, a.by_p);
    const int q = (int)(i - line * a.by_row.d) * N, p = (int)(line - image * a.by_p.d);
    const int h = p * a.d.stride_h - a.d.pad_h + r;
    const bool is_here = slot < a.slots && c < a.d.c && i < a.groups;
    float *const part = parts + r * step + (slot * N * lanes + lane) * V;
    vec<T, V> in[(N - 1) * S + K];
    float acc[N][V] = {}, more[V] = {};

    load_row(a.d, x + ((int64_t)image * a.d.h + h) * a.d.w * a.d.c + c,
             is_here && (unsigned)h < (unsigned)a.d.h, q * S - a.d.pad_w, in);
    if (bias && is_here)
        load_f<V>(bias + c, more);
    load_weights<T, K, K * K * NARROW>(a.d, w, shared);
    multiply_row<T, V, K, S, N>(a.d, in, shared + r * K * row_of(a.d) + lane * V, acc);
    if (slot < a.slots)
#pragma unroll
        for (int t = 0; t < N; t++)
            store_f<V>(part + t * lanes * V, acc[t]);
    __syncthreads();
    if (!is_here)
        return;
#pragma unroll 1
    for (int t = r; t < N && q + t < a.d.q; t += K) { // it finishes every K-th result
        const float *from = parts + ((slot * N + t) * lanes + lane) * V;
        const int64_t at = ((int64_t)line * a.d.q + q + t) * a.d.c + c;
        float sum[V];

        load_f<V>(from, sum);
#pragma unroll
        for (int k = 1; k < K; k++) {
            float next[V];

            load_f<V>(from + k * step, next);
#pragma unroll
            for (int e = 0; e < V; e++)
                sum[e] += next[e];
        }
#pragma unroll
        for (int e = 0; e < V; e++)
            sum[e] += more[e];
        dw_store<T, V>(a.d, sum, at, c, (const T *)NULL, z, act, y);
    }
}

// ------------------------------------------------------------------ launchers

static int dw_slots(const struct dw &a)
{
    return THREADS / (a.l.lanes * a.r);
}

template <class T, int V, int K, int S, int N>
static void launch_dw_rows(cudaStream_t s, const struct k_conv *v, const T *x, const T *w,
                           const T *bias, const T *z, struct act_of act, T *y)
{
    struct rows a = {};
    const int64_t per_row = cdiv64(v->q, N);

    a.d = dw_of(v, V, NARROW);
    a.slots = dw_slots(a.d);
    a.groups = (uint32_t)(v->n * v->p * per_row);
    a.by_lanes = fast_div_of((uint32_t)a.d.l.lanes);
    a.by_row = fast_div_of((uint32_t)per_row);
    a.by_p = fast_div_of((uint32_t)v->p);

    const dim3 grid((unsigned)cdiv64(a.groups, a.slots), (unsigned)cdiv64(v->c, a.d.l.chunk));
    const size_t parts = (size_t)K * a.slots * N * a.d.l.lanes * V * sizeof(float);

    dw_rows_kernel<T, V, K, S, N>
        <<<grid, THREADS, shared_of(a.d) + parts, s>>>(a, x, w, bias, z, act, y);
}

template <class T, int K, int S>
static void launch_by(cudaStream_t s, const struct k_conv *v, const T *x, const T *w, const T *bias,
                      const T *z, struct act_of act, T *y)
{
    if (v->variant == K_DW_ROWS_1)
        launch_dw_rows<T, VEC<T>, K, S, 1>(s, v, x, w, bias, z, act, y);
    else if (v->variant == K_DW_ROWS_2)
        launch_dw_rows<T, VEC<T>, K, S, 2>(s, v, x, w, bias, z, act, y);
    else
        launch_dw_rows<T, VEC<T>, K, S, 4>(s, v, x, w, bias, z, act, y);
}

template <class T>
static void launch_dw_typed(cudaStream_t s, const struct k_conv *v, const T *x, const T *w,
                            const T *bias, const T *z, struct act_of act, T *y)
{
    const int stride = (int)v->stride[1];

    if (v->r == 7)
        launch_by<T, 7, 1>(s, v, x, w, bias, z, act, y);
    else if (v->r == 5 && stride == 1)
        launch_by<T, 5, 1>(s, v, x, w, bias, z, act, y);
    else if (v->r == 5)
        launch_by<T, 5, 2>(s, v, x, w, bias, z, act, y);
    else if (stride == 1)
        launch_by<T, 3, 1>(s, v, x, w, bias, z, act, y);
    else
        launch_by<T, 3, 2>(s, v, x, w, bias, z, act, y);
}

// As many results in a thread as leave enough blocks.
int conv_depthwise_rows_for(const struct k_conv *v, int width)
{
    const struct dw a = dw_of(v, width, NARROW);
    const int64_t chunks = cdiv64(v->c, a.l.chunk), lines = v->n * v->p;

    for (int n = 4, how = K_DW_ROWS_4; n > 1; n /= 2, how--)
        if (cdiv64(lines * cdiv64(v->q, n), dw_slots(a)) * chunks >= MANY)
            return how;
    return K_DW_ROWS_1;
}

void conv_depthwise_rows(cudaStream_t s, const struct k_conv *v, int type, const void *x,
                         const void *w, const void *bias, const void *z, struct act_of act, void *y)
{
    DISPATCH_FLOAT(type, T,
                   launch_dw_typed<T>(s, v, (const T *)x, (const T *)w, (const T *)bias,
                                      (const T *)z, act, (T *)y))
}
