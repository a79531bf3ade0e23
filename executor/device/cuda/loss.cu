/* loss.cu - losses with their gradients, and dropout.
 *
 * Losses: a block for each row (cross-entropy) or for a share of the elements (squared error); the
 * last one adds up what the others left, in order. They are small next to the network in front of
 * them: F64 throughout, and types are looked up for each element.
 *
 * Dropout: a thread has eight elements, so two blocks of random numbers (philox.h).
 */
#include "executor/device/cuda/grid.cuh"
#include "executor/device/philox.h"

#define THREADS 256

DEV_INLINE float load_any(int type, const void *p, int64_t i)
{
    return type == CUDA_T_F32   ? ((const float *)p)[i]
           : type == CUDA_T_F16 ? to_f(((const f16 *)p)[i])
                                : to_f(((const bf16 *)p)[i]);
}

DEV_INLINE void store_any(int type, void *p, int64_t i, float v)
{
    if (type == CUDA_T_F32)
        ((float *)p)[i] = v;
    else if (type == CUDA_T_F16)
        ((f16 *)p)[i] = from_f<f16>(v);
    else
        ((bf16 *)p)[i] = from_f<bf16>(v);
}

/* In all blocks: leaves `mine` (of thread 0); the last one writes the sum of all / count. */
DEV_INLINE void add_up(const struct k_loss &a, double mine, double *smem, double count)
{
    double *const part = (double *)a.scratch;
    double sum = 0;

    if (threadIdx.x == 0)
        part[blockIdx.x] = mine;
    if (!comes_last(a.arrivals, gridDim.x))
        return;
    for (unsigned i = threadIdx.x; i < gridDim.x; i += THREADS)
        sum += __ldcg(&part[i]);
    sum = block_sum<THREADS>(sum, smem);
    if (threadIdx.x == 0)
        *a.loss = (float)(sum / count);
}

/* ------------------------------------------------------------------ losses */

__global__ __launch_bounds__(THREADS) static void xent_kernel(struct k_loss a, const int64_t *label,
                                                              int64_t rows, int64_t n)
{
    __shared__ double smem[THREADS / WARP];
    const int64_t row = blockIdx.x, at = row * n, target = label[row];
    const bool is_class = target >= 0 && target < n;
    double sum = 0, mine = 0;
    float max = -INFINITY;

    for (int64_t i = threadIdx.x; i < n; i += THREADS)
        max = max_nan(max, load_any(a.x_type, a.x, at + i));
    max = block_max<THREADS>(max, (float *)smem);
    for (int64_t i = threadIdx.x; i < n; i += THREADS)
        sum += exp((double)load_any(a.x_type, a.x, at + i) - max);
    sum = block_sum<THREADS>(sum, smem);
    for (int64_t i = threadIdx.x; i < n; i += THREADS) {
        const double p = exp((double)load_any(a.x_type, a.x, at + i) - max) / sum;

        store_any(a.d_type, a.d, at + i, (float)((p - (i == target)) / (double)rows));
    }
    if (threadIdx.x == 0 && !is_class)
        raise_fault(a.fault, a.op, row, target);
    if (threadIdx.x == 0)
        mine = is_class ? (double)max - load_any(a.x_type, a.x, at + target) + log(sum) : NAN;
    add_up(a, mine, smem, (double)rows);
}

__global__ __launch_bounds__(THREADS) static void mse_kernel(struct k_loss a, int t_type,
                                                             const void *t, int64_t n)
{
    __shared__ double smem[THREADS / WARP];
    const int64_t step = (int64_t)gridDim.x * THREADS;
    double sum = 0;

    for (int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x; i < n; i += step) {
        const double e = (double)load_any(a.x_type, a.x, i) - load_any(t_type, t, i);

        sum += e * e;
        store_any(a.d_type, a.d, i, (float)(2 * e / (double)n));
    }
    sum = block_sum<THREADS>(sum, smem);
    add_up(a, sum, smem, (double)n);
}

#define MSE_MAX_BLOCKS 1024

static unsigned mse_blocks(int64_t n)
{
    const int64_t blocks = cdiv64(n, THREADS);

    return (unsigned)(blocks < MSE_MAX_BLOCKS ? blocks : MSE_MAX_BLOCKS);
}

size_t k_loss_xent_scratch(int64_t rows)
{
    return (size_t)rows * sizeof(double);
}
size_t k_loss_mse_scratch(int64_t n)
{
    return mse_blocks(n) * sizeof(double);
}

void k_loss_xent(cudaStream_t s, const struct k_loss *a, const int64_t *label, int64_t rows,
                 int64_t n)
{
    xent_kernel<<<(unsigned)rows, THREADS, 0, s>>>(*a, label, rows, n);
}

void k_loss_mse(cudaStream_t s, const struct k_loss *a, int t_type, const void *t, int64_t n)
{
    mse_kernel<<<mse_blocks(n), THREADS, 0, s>>>(*a, t_type, t, n);
}

/* ------------------------------------------------------------------ dropout */

#define EACH 8 /* elements of a thread */

/* Random words of elements 4 block .. 4 block + 3. */
DEV_INLINE void draw(const struct k_dropout &d, int64_t block, uint32_t *out)
{
    const uint64_t step = (uint64_t)d.step;
    const uint32_t counter[4] = {(uint32_t)block, d.op, (uint32_t)step, (uint32_t)(step >> 32)};

    dev_philox(d.seed, counter, out);
}

template <class T>
__global__ __launch_bounds__(THREADS) void dropout_kernel(struct k_dropout d, const T *x,
                                                          const T *residual, T *y, uint8_t *mask)
{
    const int64_t i = ((int64_t)blockIdx.x * THREADS + threadIdx.x) * EACH;
    uint32_t r[EACH];
    vec<uint8_t, EACH> m;
    float v[EACH], w[EACH];

    if (i >= d.n)
        return;
    draw(d, i / 4, r);
    draw(d, i / 4 + 1, r + 4);
    if (i + EACH > d.n) {
        for (int k = 0; i + k < d.n; k++) {
            const bool keep = r[k] >= d.threshold;
            const float dropped = keep ? to_f(x[i + k]) * d.scale : 0;

            y[i + k] = from_f<T>(residual ? dropped + to_f(residual[i + k]) : dropped);
            if (mask)
                mask[i + k] = keep;
        }
        return;
    }
    load_f<EACH>(x + i, v);
#pragma unroll
    for (int k = 0; k < EACH; k++) {
        m.v[k] = r[k] >= d.threshold;
        v[k] = m.v[k] ? v[k] * d.scale : 0;
    }
    if (residual) {
        load_f<EACH>(residual + i, w);
#pragma unroll
        for (int k = 0; k < EACH; k++)
            v[k] += w[k];
    }
    store_f<EACH>(y + i, v);
    if (mask)
        store_vec<EACH>(mask + i, m);
}

template <class T>
__global__ __launch_bounds__(THREADS) void dropout_bwd_kernel(int64_t n, float scale, const T *d_y,
                                                              const uint8_t *mask, T *d_x)
{
    const int64_t i = ((int64_t)blockIdx.x * THREADS + threadIdx.x) * EACH;
    vec<uint8_t, EACH> m;
    float v[EACH];

    if (i >= n)
        return;
    if (i + EACH > n) {
        for (int64_t k = i; k < n; k++)
            d_x[k] = from_f<T>(mask[k] ? to_f(d_y[k]) * scale : 0);
        return;
    }
    load_f<EACH>(d_y + i, v);
    m = load_vec<EACH>(mask + i);
#pragma unroll
    for (int k = 0; k < EACH; k++)
        v[k] = m.v[k] ? v[k] * scale : 0;
    store_f<EACH>(d_x + i, v);
}

void k_dropout(cudaStream_t s, const struct k_dropout *d, int type, const void *x,
               const void *residual, void *y, uint8_t *mask)
{
    const unsigned blocks = (unsigned)cdiv64(d->n, THREADS * EACH);

    DISPATCH_FLOAT(type, T,
                   dropout_kernel<T><<<blocks, THREADS, 0, s>>>(*d, (const T *)x,
                                                                (const T *)residual, (T *)y, mask));
}

void k_dropout_bwd(cudaStream_t s, int64_t n, float scale, int type, const void *d_y,
                   const uint8_t *mask, void *d_x)
{
    const unsigned blocks = (unsigned)cdiv64(n, THREADS * EACH);

    DISPATCH_FLOAT(type, T,
                   dropout_bwd_kernel<T>
                   <<<blocks, THREADS, 0, s>>>(n, scale, (const T *)d_y, mask, (T *)d_x));
}
