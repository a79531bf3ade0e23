// conv_depthwise.cuh - what the kernels of depthwise convolutions share.
#ifndef SH_RUNTIME_DEVICE_CUDA_CONV_DEPTHWISE_CUH
#define SH_RUNTIME_DEVICE_CUDA_CONV_DEPTHWISE_CUH

#include "runtime/device/cuda/conv_lanes.cuh"

#define PAD 4 // floats behind a row of shared weights, so that a warp writes to many banks
#define MAX_SHARED (48 * 1024) // bytes
#define NARROW 32              // channels of a block where there is little work

struct dw {
    int n, h, w, c, r, s, p, q;
    int stride_h, stride_w, dil_h, dil_w, pad_h, pad_w;
    struct lanes l;
    int turned; // the last tap first
};

static struct dw dw_of(const struct k_conv *v, int width, int most = CHUNK)
{
    return {(int)v->n,
            (int)v->h,
            (int)v->w,
            (int)v->c,
            (int)v->r,
            (int)v->s,
            (int)v->p,
            (int)v->q,
            (int)v->stride[0],
            (int)v->stride[1],
            (int)v->dilation[0],
            (int)v->dilation[1],
            (int)v->pad[0],
            (int)v->pad[1],
            lanes_of(v->c, width, most),
            0};
}

// Floats from one tap to the next in shared memory.
static __host__ __device__ __forceinline__ int row_of(const struct dw &a)
{
    return a.l.chunk + PAD;
}

static size_t shared_of(const struct dw &a)
{
    return (size_t)a.r * a.s * row_of(a) * sizeof(float);
}

// A load that stays where it is written.
DEV_INLINE float load_now(const float *p)
{
    float v;

    asm volatile("ld.global.nc.f32 %0, [%1];" : "=f"(v) : "l"(p));
    return v;
}
template <class T> DEV_INLINE T load_now(const T *p) // of 16 bits
{
    uint16_t v;

    asm volatile("ld.global.nc.u16 %0, [%1];" : "=h"(v) : "l"(p));
    return *reinterpret_cast<const T *>(&v);
}

// shared[tap][channel of the chunk] = w[channel][tap] of the weights from `from` on, every
// THREADS-th, BATCH of them: all loads are under way before the first is used.
template <class T, int K, int BATCH>
DEV_INLINE void load_batch(const struct dw &a, const T *w, int there, int from, float *shared)
{
    const int taps = K > 0 ? K * K : a.r * a.s, row = a.turned ? -row_of(a) : row_of(a);
    int tap = from % taps, to = (a.turned ? (1 - taps) * row : 0) + tap * row + from / taps;
    T in[BATCH];

#pragma unroll
    for (int k = 0; k < BATCH; k++)
        in[k] = load_now(w + min(from + k * THREADS, there - 1));
#pragma unroll
    for (int k = 0; k < BATCH; k++) {
        if (from + k * THREADS < there)
            shared[to] = to_f(in[k]);
        tap += THREADS % taps;
        to += THREADS % taps * row + THREADS / taps;
        if (tap >= taps) {
            tap -= taps;
            to += 1 - taps * row;
        }
    }
}

// Of the chunk of channels of the block. K = 0: any window. MOST: not more weights than this; 0:
// any number.
template <class T, int K, int MOST = 0>
DEV_INLINE void load_weights(const struct dw &a, const T *w, float *shared)
{
    const int taps = K > 0 ? K * K : a.r * a.s, c0 = blockIdx.y * a.l.chunk;
    const int there = taps * min(a.l.chunk, a.c - c0);

    w += (int64_t)c0 * taps;
    if constexpr (MOST > 0) {
        load_batch<T, K, (MOST + THREADS - 1) / THREADS>(a, w, there, threadIdx.x, shared);
    } else {
#pragma unroll 1
        for (int from = threadIdx.x; from < there; from += 8 * THREADS)
            load_batch<T, K, 8>(a, w, there, from, shared);
    }
    __syncthreads();
}

// 16 bytes, or 0 of what is not there: no branch, and no load waits for another.
template <class T, int V> DEV_INLINE vec<T, V> load_if(const T *p, bool is_there)
{
    uint4 v;

    static_assert(sizeof(vec<T, V>) == sizeof(v), "one load");
    asm volatile("{\n"
                 "    .reg .pred there;\n"
                 "    setp.ne.b32 there, %5, 0;\n"
                 "    mov.b32 %0, 0;\n"
                 "    mov.b32 %1, 0;\n"
                 "    mov.b32 %2, 0;\n"
                 "    mov.b32 %3, 0;\n"
                 "    @there ld.global.nc.v4.b32 {%0, %1, %2, %3}, [%4];\n"
                 "}"
                 : "=&r"(v.x), "=&r"(v.y), "=&r"(v.z), "=&r"(v.w)
                 : "l"(p), "r"((int)is_there));
    return *reinterpret_cast<const vec<T, V> *>(&v);
}

// `n` neighbours in a row; what lies outside of the image is 0.
template <class T, int V, int N>
DEV_INLINE void load_row(const struct dw &a, const T *row, bool is_row, int w0, vec<T, V> (&in)[N])
{
    row += (int64_t)w0 * a.c;
#pragma unroll
    for (int j = 0; j < N; j++)
        in[j] = load_if<T, V>(row + (int64_t)j * a.c, is_row && (unsigned)(w0 + j) < (unsigned)a.w);
}

// acc += one row of taps of a K x K window with stride S: every input serves all results.
template <class T, int V, int K, int S, int N>
DEV_INLINE void multiply_row(const struct dw &a, const vec<T, V> (&in)[(N - 1) * S + K],
                             const float *weights, float (&acc)[N][V])
{
    float k[K][V];

#pragma unroll
    for (int s = 0; s < K; s++)
        load_f<V>(weights + s * row_of(a), k[s]);
#pragma unroll
    for (int j = 0; j < (N - 1) * S + K; j++)
#pragma unroll
        for (int t = 0; t < N; t++)
            if (j - t * S >= 0 && j - t * S < K)
#pragma unroll
                for (int i = 0; i < V; i++)
                    acc[t][i] += to_f(in[j].v[i]) * k[j - t * S][i];
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
    if (a.turned) // y is a gradient
        store_grad<V>(y + at, acc);
    else
        store_f<V>(y + at, acc);
}

// The K of a K x K window with stride S for which there are kernels that have it in registers; 0:
// another. width: elements of T in 16 bytes.
static inline int window_for_rows(const struct k_conv *v, int width)
{
    const bool is_odd = v->r == 3 || v->r == 5 || v->r == 7;
    const bool is_near = v->dilation[0] == 1 && v->dilation[1] == 1 && v->stride[1] >= 1 &&
                         v->stride[1] <= (v->r == 7 ? 1 : 2);

    return v->c % width == 0 && v->r == v->s && is_odd && is_near ? (int)v->r : 0;
}

// conv_depthwise_rows.cu
int conv_depthwise_rows_for(const struct k_conv *v, int width); // K_DW_ROWS_*, by its size
void conv_depthwise_rows(cudaStream_t s, const struct k_conv *v, int type, const void *x,
                         const void *w, const void *bias, const void *z, struct act_of act,
                         void *y);

#endif
