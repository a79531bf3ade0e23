/* loss.cu - losses with their gradients, and dropout.
 *
 * Losses: a block for each row, or for a share of the rows or elements; the last one adds up what
 * the others left, in order. They are small next to the network in front of them: F64 throughout,
 * and types are looked up for each element.
 *
 * Dropout: a thread has eight elements, so two blocks of random numbers (philox.h).
 */
#include "runtime/device/cuda/grid.cuh"
#include "runtime/device/op.h"
#include "runtime/device/philox.h"

#define THREADS 256

DEV_INLINE float load_any(int type, const void *p, int64_t i)
{
    return type == CUDA_T_F32   ? ((const float *)p)[i]
           : type == CUDA_T_F16 ? to_f(((const f16 *)p)[i])
                                : to_f(((const bf16 *)p)[i]);
}

DEV_INLINE void store_gradient(int type, void *p, int64_t i, float v)
{
    if (type == CUDA_T_F32)
        ((float *)p)[i] = v;
    else if (type == CUDA_T_F16)
        ((f16 *)p)[i] = grad_f<f16>(v);
    else
        ((bf16 *)p)[i] = grad_f<bf16>(v);
}

#define MAX_BLOCKS 1024

static unsigned some_blocks(int64_t n)
{
    const int64_t blocks = cdiv64(n, THREADS);

    return (unsigned)(blocks < MAX_BLOCKS ? blocks : MAX_BLOCKS);
}

/* In all blocks: leaves `mine` (of thread 0). true in the last one, with the sum of all in thread
 * 0's *sum: always in the same order. */
DEV_INLINE bool add_up(const struct k_loss &a, double *part, double mine, double *smem, double *sum)
{
    double s = 0;

    if (threadIdx.x == 0)
        part[blockIdx.x] = mine;
    if (!comes_last(a.arrivals, gridDim.x))
        return false;
    for (unsigned i = threadIdx.x; i < gridDim.x; i += THREADS)
        s += __ldcg(&part[i]);
    *sum = block_sum<THREADS>(s, smem);
    return true;
}

/* Of the gradient. */
DEV_INLINE double loss_scale(const struct k_loss &a)
{
    return (double)a.weight * (a.scaler ? (double)a.scaler[0] : 1);
}

/* ------------------------------------------------------------------ cross-entropy */

DEV_INLINE double xent_weight(const struct k_xent &k, int64_t i)
{
    return k.weights ? (double)k.weights[i] : 1;
}

/* scratch[0] = the sum of the weights of the labels that count; what follows is for the parts. */
__global__ __launch_bounds__(THREADS) static void count_kernel(struct k_loss a, struct k_xent k)
{
    __shared__ double smem[THREADS / WARP];
    const int64_t step = (int64_t)gridDim.x * THREADS;
    double *const scratch = (double *)a.scratch;
    double mine = 0, sum;

    for (int64_t r = (int64_t)blockIdx.x * THREADS + threadIdx.x; r < k.rows; r += step) {
        const int64_t target = k.label[r];

        if (target == k.ignore)
            continue;
        if (target >= 0 && target < k.n)
            mine += xent_weight(k, target);
        else
            raise_fault(a.fault, a.op, r, target);
    }
    mine = block_sum<THREADS>(mine, smem);
    if (add_up(a, scratch + 1, mine, smem, &sum) && threadIdx.x == 0)
        scratch[0] = sum;
}

/* What of a row is known once its largest element is. */
struct row_sums {
    double exps, weights, dot; /* of exp(x - max), w, w x */
};

/* The row's part of the loss. */
DEV_INLINE double row_loss(const struct k_loss &a, const struct k_xent &k, int64_t at,
                           int64_t target, double max, const struct row_sums &s)
{
    const double log_sum = max + log(s.exps), soft = (double)k.smoothing / (double)k.n;

    if (target < 0 || target >= k.n)
        return NAN;
    return (1 - (double)k.smoothing) * xent_weight(k, target) *
               (log_sum - load_any(a.x_type, a.x, at + target * k.inner)) +
           soft * (s.weights * log_sum - s.dot);
}

DEV_INLINE void sum_element(const struct k_loss &a, const struct k_xent &k, int64_t at, int64_t i,
                            double max, struct row_sums &s)
{
    const double x = load_any(a.x_type, a.x, at + i * k.inner), w = xent_weight(k, i);

    s.exps += exp(x - max);
    s.weights += w;
    s.dot += w * x;
}

/* count: of all labels' weights, over what the gradient is multiplied by. */
DEV_INLINE void write_gradient(const struct k_loss &a, const struct k_xent &k, int64_t at,
                               int64_t i, int64_t target, double max, const struct row_sums &s,
                               double count)
{
    const double soft = (double)k.smoothing / (double)k.n;
    double hit, p;

    if (target == k.ignore || target < 0 || target >= k.n) { /* the latter is a fault */
        store_gradient(a.d_type, a.d, at + i * k.inner, 0);
        return;
    }
    hit = (1 - (double)k.smoothing) * xent_weight(k, target);
    p = exp((double)load_any(a.x_type, a.x, at + i * k.inner) - max) / s.exps;
    store_gradient(a.d_type, a.d, at + i * k.inner,
                   (float)((p * (hit + soft * s.weights) - (i == target ? hit : 0) -
                            soft * xent_weight(k, i)) /
                           count));
}

DEV_INLINE void finish_xent(const struct k_loss &a, double mine, double *smem)
{
    double *const scratch = (double *)a.scratch;
    double sum;

    if (add_up(a, scratch + 1, mine, smem, &sum) && threadIdx.x == 0)
        *a.loss = (float)((double)a.weight * sum / scratch[0]);
}

/* A block for each row: many classes. */
__global__ __launch_bounds__(THREADS) static void wide_xent_kernel(struct k_loss a, struct k_xent k)
{
    __shared__ double smem[THREADS / WARP];
    const int64_t row = blockIdx.x, target = k.label[row];
    const int64_t at = row / k.inner * k.n * k.inner + row % k.inner;
    const double count = ((const double *)a.scratch)[0] / loss_scale(a);
    struct row_sums s = {0, 0, 0};
    float max = -INFINITY;
    double mine = 0;

    for (int64_t i = threadIdx.x; i < k.n; i += THREADS)
        max = max_nan(max, load_any(a.x_type, a.x, at + i * k.inner));
    max = block_max<THREADS>(max, (float *)smem);
    for (int64_t i = threadIdx.x; i < k.n; i += THREADS)
        sum_element(a, k, at, i, max, s);
    s.exps = block_sum<THREADS>(s.exps, smem);
    s.weights = block_sum<THREADS>(s.weights, smem);
    s.dot = block_sum<THREADS>(s.dot, smem);
    for (int64_t i = threadIdx.x; i < k.n; i += THREADS)
        write_gradient(a, k, at, i, target, max, s, count);
    if (threadIdx.x == 0 && target != k.ignore)
        mine = row_loss(a, k, at, target, max, s);
    finish_xent(a, mine, smem);
}

/* A thread for each row: few classes, or rows that lie side by side. */
__global__ __launch_bounds__(THREADS) static void tall_xent_kernel(struct k_loss a, struct k_xent k)
{
    __shared__ double smem[THREADS / WARP];
    const int64_t step = (int64_t)gridDim.x * THREADS;
    const double count = ((const double *)a.scratch)[0] / loss_scale(a);
    double mine = 0;

    for (int64_t row = (int64_t)blockIdx.x * THREADS + threadIdx.x; row < k.rows; row += step) {
        const int64_t target = k.label[row], at = row / k.inner * k.n * k.inner + row % k.inner;
        struct row_sums s = {0, 0, 0};
        float max = -INFINITY;

        for (int64_t i = 0; i < k.n; i++)
            max = max_nan(max, load_any(a.x_type, a.x, at + i * k.inner));
        for (int64_t i = 0; i < k.n; i++)
            sum_element(a, k, at, i, max, s);
        for (int64_t i = 0; i < k.n; i++)
            write_gradient(a, k, at, i, target, max, s, count);
        if (target != k.ignore)
            mine += row_loss(a, k, at, target, max, s);
    }
    mine = block_sum<THREADS>(mine, smem);
    finish_xent(a, mine, smem);
}

size_t k_loss_xent_scratch(int64_t rows)
{
    return (size_t)((rows > MAX_BLOCKS ? rows : MAX_BLOCKS) + 1) * sizeof(double);
}

void k_loss_xent(cudaStream_t s, const struct k_loss *a, const struct k_xent *k)
{
    const bool is_wide = k->inner == 1 && k->n >= WARP;

    count_kernel<<<some_blocks(k->rows), THREADS, 0, s>>>(*a, *k);
    if (is_wide)
        wide_xent_kernel<<<(unsigned)k->rows, THREADS, 0, s>>>(*a, *k);
    else
        tall_xent_kernel<<<some_blocks(k->rows), THREADS, 0, s>>>(*a, *k);
}

/* ------------------------------------------------------------------ losses of each element */

/* As in cpu_loss.c: what an element costs, and *d its derivative. */
DEV_INLINE double loss_of_each(const struct k_each &k, double w, double x, double t, double *d)
{
    const double e = x - t, delta = k.delta;
    double tail;

    switch (k.kind) {
    case DEV_LOSS_L1:
        *d = (e > 0) - (e < 0);
        return fabs(e);
    case DEV_LOSS_HUBER:
        *d = fabs(e) <= delta ? e : e > 0 ? delta : -delta;
        return fabs(e) <= delta ? e * e / 2 : delta * (fabs(e) - delta / 2);
    case DEV_LOSS_BCE:
        tail = log1p(exp(-fabs(x))) + fmax(-x, 0.0);
        *d = (1 - t) - (1 + (w - 1) * t) / (1 + exp(x));
        return (1 - t) * x + (1 + (w - 1) * t) * tail;
    default:
        *d = 2 * e;
        return e * e;
    }
}

__global__ __launch_bounds__(THREADS) static void each_kernel(struct k_loss a, struct k_each k)
{
    __shared__ double smem[THREADS / WARP];
    const int64_t step = (int64_t)gridDim.x * THREADS;
    const double share = loss_scale(a) / (double)k.n;
    double mine = 0, sum, slope;

    for (int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x; i < k.n; i += step) {
        const double w = k.weights ? (double)k.weights[i % k.n_weights] : 1;

        mine +=
            loss_of_each(k, w, load_any(a.x_type, a.x, i), load_any(k.t_type, k.target, i), &slope);
        store_gradient(a.d_type, a.d, i, (float)(slope * share));
    }
    mine = block_sum<THREADS>(mine, smem);
    if (add_up(a, (double *)a.scratch, mine, smem, &sum) && threadIdx.x == 0)
        *a.loss = (float)((double)a.weight * sum / (double)k.n);
}

size_t k_loss_each_scratch(int64_t n)
{
    return some_blocks(n) * sizeof(double);
}

void k_loss_each(cudaStream_t s, const struct k_loss *a, const struct k_each *k)
{
    each_kernel<<<some_blocks(k->n), THREADS, 0, s>>>(*a, *k);
}

/* ------------------------------------------------------------------ dropout */

#define EACH 8 /* elements of a thread */

/* Random words of elements 4 block .. 4 block + 3. */
DEV_INLINE void draw_dropout(const struct k_dropout &d, int64_t block, uint32_t *out)
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
    draw_dropout(d, i / 4, r);
    draw_dropout(d, i / 4 + 1, r + 4);
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
            d_x[k] = grad_f<T>(mask[k] ? to_f(d_y[k]) * scale : 0);
        return;
    }
    load_f<EACH>(d_y + i, v);
    m = load_vec<EACH>(mask + i);
#pragma unroll
    for (int k = 0; k < EACH; k++)
        v[k] = m.v[k] ? v[k] * scale : 0;
    store_grad<EACH>(d_x + i, v);
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
