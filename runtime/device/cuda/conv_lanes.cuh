// conv_lanes.cuh - channels-last pixels by blocks of channels, and sums over pixels in two stages.
#ifndef SH_RUNTIME_DEVICE_CUDA_CONV_LANES_CUH
#define SH_RUNTIME_DEVICE_CUDA_CONV_LANES_CUH

#include "runtime/device/cuda/act.cuh"

#define THREADS 256
#define CHUNK 128       // channels of a block, at most
#define MAX_BLOCKS 4096 // of a grid-stride loop
#define MAX_SPLITS 64   // first-stage sums of one result, for many channels
#define FEW_SPLITS 512  // for few, so that all multiprocessors have work

// Threads of a block as slots x lanes: a lane owns V channels, a slot is one of several pixels.
struct lanes {
    int lanes, slots, chunk; // chunk = lanes * V channels
};

static inline struct lanes lanes_of(int64_t c, int v, int chunk = CHUNK)
{
    const int64_t most = v == 1 ? WARP : chunk / v, need = cdiv64(c, v);
    struct lanes l;

    l.lanes = (int)cdiv64(need, cdiv64(need, most)); // blocks of the same width
    l.slots = THREADS / l.lanes;
    l.chunk = l.lanes * v;
    return l;
}

template <class T> static int width_of(int64_t c)
{
    return c % VEC<T> == 0 ? VEC<T> : 1;
}

static inline unsigned blocks_of(int64_t work, int64_t per_block)
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

// out[c][tap] = sum of part[split][tap][c]. A warp has WARP results side by side and every
// (THREADS / WARP)-th split of them.
template <class T>
static __global__ void __launch_bounds__(THREADS)
    sum_splits_kernel(const float *part, int splits, int64_t taps, int64_t c, T *out)
{
    constexpr int WARPS = THREADS / WARP;
    __shared__ float sums[WARPS][WARP];
    const int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
    const int64_t n = taps * c, i = (int64_t)blockIdx.x * WARP + lane;
    float sum = 0;

#pragma unroll 4
    for (int k = warp; k < splits; k += WARPS)
        sum += i < n ? part[k * n + i] : 0;
    sums[warp][lane] = sum;
    __syncthreads();
    if (warp > 0 || i >= n)
        return;
    for (int k = 1; k < WARPS; k++)
        sum += sums[k][lane];
    out[i % c * taps + i / c] = grad_f<T>(sum);
}

template <class T>
static void sum_splits(cudaStream_t s, const float *part, int splits, int64_t taps, int64_t c,
                       T *out)
{
    sum_splits_kernel<T>
        <<<(unsigned)cdiv64(taps * c, WARP), THREADS, 0, s>>>(part, splits, taps, c, out);
}

// The most first-stage sums of each of c results.
static inline int64_t most_splits(int64_t c)
{
    const int64_t n = FEW_SPLITS / cdiv64(c, CHUNK);

    return n < MAX_SPLITS ? MAX_SPLITS : n;
}

// Of `rows` pixels: how many first-stage sums, so that each still adds up some.
static inline int splits_of(int64_t rows, const struct lanes &l, int64_t most)
{
    const int64_t n = cdiv64(rows, (int64_t)l.slots * 8);

    return (int)(n < most ? n : most);
}

// conv_depthwise.cu
bool conv_is_depthwise(const struct k_conv *v);
bool conv_depthwise_varies(const struct k_conv *v, int type);
void conv_depthwise(cudaStream_t s, const struct k_conv *v, int type, const void *x, const void *w,
                    const void *bias, const void *z, struct act_of act, void *y);
void conv_depthwise_data(cudaStream_t s, const struct k_conv *v, int type, const void *dy,
                         const void *w, void *dx);
size_t conv_depthwise_scratch(const struct k_conv *v); // of the gradient of the weight
void conv_depthwise_weight(cudaStream_t s, const struct k_conv *v, int type, const void *x,
                           const void *dy, void *scratch, void *dw);

// conv_grouped.cu
bool conv_is_grouped(const struct k_conv *v, int type);
void conv_grouped(cudaStream_t s, const struct k_conv *v, int type, const void *x, const void *w,
                  const void *bias, const void *z, struct act_of act, void *y);
void conv_grouped_data(cudaStream_t s, const struct k_conv *v, int type, const void *dy,
                       const void *w, void *dx);
size_t conv_grouped_scratch(const struct k_conv *v); // of the gradient of the weight
void conv_grouped_weight(cudaStream_t s, const struct k_conv *v, int type, const void *x,
                         const void *dy, void *scratch, void *dw);

#endif
