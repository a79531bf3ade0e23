/* squares.cu - the sum of the squares of many tensors in one launch, for the norm of a gradient;
 * and the scale of the loss, which follows from whether that is finite.
 *
 * A block for each piece of a tensor; the last one adds up what the others left, in order. A thread
 * adds 64 elements in F32, all else is F64. How a tensor lies does not matter.
 */
#include "runtime/device/cuda/grid.cuh"

#define THREADS 256

template <class T> DEV_INLINE float thread_squares(const T *x, int n)
{
    constexpr int V = 4;
    const int whole = n / V * V;
    float sum = 0;

#pragma unroll 4
    for (int i = (int)threadIdx.x * V; i < whole; i += THREADS * V) {
        float v[V];

        load_f<V>(x + i, v);
#pragma unroll
        for (int k = 0; k < V; k++)
            sum += v[k] * v[k];
    }
    for (int i = whole + (int)threadIdx.x; i < n; i += THREADS)
        sum += to_f(x[i]) * to_f(x[i]);
    return sum;
}

__global__
__launch_bounds__(THREADS) static void squares_kernel(const __grid_constant__ struct k_squares a)
{
    __shared__ double smem[THREADS / WARP];
    int item = 0;
    double mine = 0;

    while (item + 1 < a.n_items && a.items[item + 1].first <= blockIdx.x)
        item++;
    const struct k_squares_item &t = a.items[item];
    const int64_t from = (int64_t)(blockIdx.x - t.first) * K_SQUARES_PIECE;
    const int n = t.n - from < K_SQUARES_PIECE ? (int)(t.n - from) : K_SQUARES_PIECE;

    DISPATCH_FLOAT(t.type, T, mine = (double)thread_squares<T>((const T *)t.x + from, n));
    mine = block_sum<THREADS>(mine, smem);
    if (threadIdx.x == 0)
        a.scratch[blockIdx.x] = mine;
    if (!comes_last(a.arrivals, gridDim.x))
        return;
    mine = 0;
    for (unsigned i = threadIdx.x; i < gridDim.x; i += THREADS)
        mine += __ldcg(&a.scratch[i]);
    mine = block_sum<THREADS>(mine, smem);
    if (threadIdx.x == 0)
        *a.sum = (float)(mine + (a.before ? (double)*a.before : 0));
}

/* As in cpu_optim.c. */
__global__ static void loss_scale_kernel(float *scaler, const float *squares, float growth,
                                         float backoff, float interval)
{
    float scaled;

    if (!isfinite(*squares)) {
        scaled = (float)((double)scaler[0] * backoff);
        scaler[0] = scaled >= FLT_MIN ? scaled : scaler[0];
        scaler[1] = 0;
        scaler[2] += 1;
        scaler[3] += 1;
        return;
    }
    scaler[1] += 1;
    scaler[3] = 0;
    if (scaler[1] < interval)
        return;
    scaled = (float)((double)scaler[0] * growth);
    scaler[0] = isfinite(scaled) ? scaled : scaler[0];
    scaler[1] = 0;
}

void k_loss_scale(cudaStream_t s, float *scaler, const float *squares, float growth, float backoff,
                  float interval)
{
    loss_scale_kernel<<<1, 1, 0, s>>>(scaler, squares, growth, backoff, interval);
}

void k_squares(cudaStream_t s, const struct k_squares *a, uint32_t pieces)
{
    squares_kernel<<<pieces, THREADS, 0, s>>>(*a);
}
