/* scan.cu - along the lines of one axis: sums so far, the best elements in order.
 *
 * CUMSUM: a warp for each line, 32 elements at a time, the sum so far carried on; floats add up in
 * F32, always in the same order.
 *
 * TOPK: the single best of a line is one pass of a block. Otherwise each element counts how many of
 * its line come before it, which is its place, and writes itself there if that is among the k: no
 * scratch, no sorting, quadratic in the length of a line, which pays up to some ten thousand.
 */
#include "runtime/device/cuda/device.cuh"
#include "runtime/device/cuda/nest.cuh"

#define THREADS 256
#define WARPS (THREADS / WARP)

/* ------------------------------------------------------------------ elements by run-time type */

template <class T> struct store_of { /* T: how it is computed: float, int64_t, int32_t */
    static DEV_INLINE T get(const k_operand &o, int64_t i)
    {
        return ((const T *)o.p)[i];
    }
    static DEV_INLINE void put(const k_operand &o, int64_t i, T v)
    {
        ((T *)o.p)[i] = v;
    }
};
template <> struct store_of<float> {
    static DEV_INLINE float get(const k_operand &o, int64_t i)
    {
        return load1(o, i);
    }
    static DEV_INLINE void put(const k_operand &o, int64_t i, float v)
    {
        store1(o, i, v);
    }
};

/* ------------------------------------------------------------------ sums so far */

template <class T>
static __global__ void __launch_bounds__(THREADS)
    cumsum(struct k_scan l, k_operand x, k_operand y, bool exclusive, bool reverse)
{
    const int64_t line = (int64_t)blockIdx.x * WARPS + threadIdx.x / WARP;
    const int lane = threadIdx.x % WARP;
    T carry = 0;

    if (line >= l.outer * l.inner)
        return;
    const int64_t at = line / l.inner * l.n * l.inner + line % l.inner;

    for (int64_t i0 = 0; i0 < l.n; i0 += WARP) {
        const int64_t i = i0 + lane, e = at + (reverse ? l.n - 1 - i : i) * l.inner;
        T sum = i < l.n ? store_of<T>::get(x, e) : (T)0;

#pragma unroll
        for (int d = 1; d < WARP; d *= 2) {
            const T before = __shfl_up_sync(0xffffffffu, sum, d);

            if (lane >= d)
                sum += before;
        }
        const T left = __shfl_up_sync(0xffffffffu, sum, 1), all = __shfl_sync(0xffffffffu, sum, 31);

        if (i < l.n)
            store_of<T>::put(y, e, exclusive ? carry + (lane ? left : (T)0) : carry + sum);
        carry += all;
    }
}

template <class T>
static void launch_cumsum(cudaStream_t s, const struct k_scan *l, k_operand x, k_operand y,
                          bool exclusive, bool reverse)
{
    cumsum<T><<<(unsigned)cdiv64(l->outer * l->inner, WARPS), THREADS, 0, s>>>(*l, x, y, exclusive,
                                                                               reverse);
}

/* Integers wrap: they are added as unsigned ones. */
void k_cumsum(cudaStream_t s, const struct k_scan *l, struct k_operand x, struct k_operand y,
              bool exclusive, bool reverse)
{
    if (x.type == CUDA_T_I64)
        launch_cumsum<unsigned long long>(s, l, x, y, exclusive, reverse);
    else if (x.type == CUDA_T_I32)
        launch_cumsum<uint32_t>(s, l, x, y, exclusive, reverse);
    else
        launch_cumsum<float>(s, l, x, y, exclusive, reverse);
}

/* ------------------------------------------------------------------ the best */

struct order {
    bool largest, last; /* of equal ones the last comes first */
};

/* Does a at place i come before b at place j? NaN is larger than all numbers. */
template <class T> static DEV_INLINE bool is_before(const order &o, T a, int64_t i, T b, int64_t j)
{
    const bool a_nan = a != a, b_nan = b != b;
    const bool more = a_nan ? !b_nan : !b_nan && a > b, less = b_nan ? !a_nan : !a_nan && a < b;

    if (more || less)
        return o.largest ? more : less;
    return o.last ? i > j : i < j;
}

template <class T>
static __global__ void __launch_bounds__(THREADS)
    best(struct k_scan l, k_operand x, k_operand y, int64_t *where, order o)
{
    __shared__ T values[WARPS];
    __shared__ int64_t places[WARPS];
    const int64_t line = blockIdx.x, at = line / l.inner * l.n * l.inner + line % l.inner;
    const int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
    T v = store_of<T>::get(x, at);
    int64_t place = 0; /* of the first element, which every thread begins with */

    for (int64_t i = threadIdx.x; i < l.n; i += THREADS) {
        const T w = store_of<T>::get(x, at + i * l.inner);

        if (is_before(o, w, i, v, place)) {
            v = w;
            place = i;
        }
    }
#pragma unroll
    for (int d = WARP / 2; d > 0; d /= 2) {
        const T w = __shfl_xor_sync(0xffffffffu, v, d);
        const int64_t i = __shfl_xor_sync(0xffffffffu, (long long)place, d);

        if (is_before(o, w, i, v, place)) {
            v = w;
            place = i;
        }
    }
    if (lane == 0) {
        values[warp] = v;
        places[warp] = place;
    }
    __syncthreads();
    if (threadIdx.x > 0)
        return;
    for (int k = 1; k < WARPS; k++)
        if (is_before(o, values[k], places[k], v, place)) {
            v = values[k];
            place = places[k];
        }
    store_of<T>::put(y, line, v);
    where[line] = place;
}

template <class T>
static __global__ void __launch_bounds__(THREADS)
    places(struct k_scan l, int64_t k, k_operand x, k_operand y, int64_t *where, order o)
{
    const int64_t e = (int64_t)blockIdx.x * THREADS + threadIdx.x, inner = l.inner;
    const int64_t i = e / inner % l.n, first = e - i * inner;
    int64_t place = 0;

    if (e >= l.outer * l.n * inner)
        return;
    const T v = store_of<T>::get(x, e);

    for (int64_t j = 0; j < l.n && place < k; j++)
        place += is_before(o, store_of<T>::get(x, first + j * inner), j, v, i);
    if (place >= k)
        return;
    const int64_t to = (e / inner / l.n * k + place) * inner + e % inner;

    store_of<T>::put(y, to, v);
    where[to] = i;
}

template <class T>
static void launch_topk(cudaStream_t s, const struct k_scan *l, int64_t k, k_operand x, k_operand y,
                        int64_t *at, order o)
{
    if (k == 1)
        best<T><<<(unsigned)(l->outer * l->inner), THREADS, 0, s>>>(*l, x, y, at, o);
    else
        places<T><<<(unsigned)cdiv64(l->outer * l->n * l->inner, THREADS), THREADS, 0, s>>>(
            *l, k, x, y, at, o);
}

void k_topk(cudaStream_t s, const struct k_scan *l, int64_t k, struct k_operand x,
            struct k_operand y, int64_t *at, bool largest, bool last)
{
    const order o = {largest, last};

    if (x.type == CUDA_T_I64)
        launch_topk<long long>(s, l, k, x, y, at, o);
    else if (x.type == CUDA_T_I32)
        launch_topk<int32_t>(s, l, k, x, y, at, o);
    else
        launch_topk<float>(s, l, k, x, y, at, o);
}
