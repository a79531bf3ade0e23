/* scatter.cu - rows from indices of several numbers, and writes to rows.
 *
 * LOCATE: a thread for each row; an index outside its axis gives row 0 and is reported (grid.cuh).
 *
 * SCATTER: y is a copy of the data; updates of no row (below 0) are left out. Rows that are set:
 * the last update of each row is found by an atomic maximum, whose result does not depend on the
 * order, and writes. Rows that are combined: a block for each update whose row does not occur
 * earlier takes all updates of that row, in order; quadratic in the number of updates, which the
 * builder bounds. The same bits each time.
 */
#include "runtime/device/cuda/grid.cuh"
#include "runtime/device/cuda/nest.cuh"
#include "runtime/device/op.h"

#define THREADS 128

static __global__ void locate_rows(const __grid_constant__ struct k_locate l, const void *indices,
                                   int64_t *rows)
{
    const int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    int64_t row = 0, rest = i;
    bool is_good = true;

    if (i >= l.n)
        return;
    for (int a = l.rank - 1; a >= 0; a--) {
        row += rest % l.dims[a] * l.base[a];
        rest /= l.dims[a];
    }
    for (int k = 0; k < l.depth; k++) {
        const int64_t at = i * l.depth + k;
        const int64_t v =
            l.is_wide ? ((const int64_t *)indices)[at] : (int64_t)((const int32_t *)indices)[at];

        if (v < -l.size[k] || v >= l.size[k]) {
            raise_fault(l.fault, l.op, at, v);
            is_good = false;
        }
        row += (v < 0 ? v + l.size[k] : v) * l.stride[k];
    }
    rows[i] = is_good ? row : 0;
}

void k_locate(cudaStream_t s, const struct k_locate *l, const void *indices, int64_t *rows)
{
    locate_rows<<<(unsigned)cdiv64(l->n, THREADS), THREADS, 0, s>>>(*l, indices, rows);
}

/* ------------------------------------------------------------------ scatter */

/* F: floats by run-time type, computed in F32; else T as it lies. */
template <class T, bool F> struct cells {
    static DEV_INLINE T get(const k_operand &o, int64_t i)
    {
        if constexpr (F)
            return load1(o, i);
        else
            return ((const T *)o.p)[i];
    }
    static DEV_INLINE void put(const k_operand &o, int64_t i, T v)
    {
        if constexpr (F)
            store1(o, i, v);
        else
            ((T *)o.p)[i] = v;
    }
};

template <class T, bool F>
static __global__ void __launch_bounds__(THREADS)
    copy_cells(int64_t n, k_operand from, k_operand to)
{
    const int64_t step = (int64_t)gridDim.x * THREADS;

    for (int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x; i < n; i += step)
        cells<T, F>::put(to, i, cells<T, F>::get(from, i));
}

/* Integers come as unsigned ones, which wrap; S: as what they are compared. */
template <class T, class S> static DEV_INLINE T combined(int kind, T a, T b)
{
    switch (kind) {
    case DEV_SCATTER_ADD:
        return a + b;
    case DEV_SCATTER_MUL:
        return a * b;
    case DEV_SCATTER_MAX:
        return (S)a > (S)b || a != a ? a : b;
    case DEV_SCATTER_MIN:
        return (S)a < (S)b || a != a ? a : b;
    default:
        return b;
    }
}

/* Does row v occur before update i? The same answer in all threads. */
static DEV_INLINE bool occurs_before(const int64_t *rows, int64_t i, int64_t v)
{
    for (int64_t j0 = 0; j0 < i; j0 += THREADS) {
        const int64_t j = j0 + threadIdx.x;

        if (__syncthreads_or(j < i && rows[j] == v))
            return true;
    }
    return false;
}

template <class T, class S, bool F>
static __global__ void __launch_bounds__(THREADS)
    write_rows(struct k_scatter c, const int64_t *rows, k_operand updates, k_operand y)
{
    const int64_t i = blockIdx.x, v = rows[i];

    if (v < 0 || occurs_before(rows, i, v))
        return;
    for (int64_t column = threadIdx.x; column < c.inner; column += THREADS) {
        T acc = cells<T, F>::get(y, v * c.inner + column);

        for (int64_t j = i; j < c.n; j++)
            if (rows[j] == v)
                acc = combined<T, S>(c.kind, acc, cells<T, F>::get(updates, j * c.inner + column));
        cells<T, F>::put(y, v * c.inner + column, acc);
    }
}

static __global__ void __launch_bounds__(THREADS)
    find_last(int64_t n, const int64_t *rows, int32_t *last)
{
    const int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x;

    if (i < n && rows[i] >= 0)
        atomicMax(&last[rows[i]], (int32_t)i);
}

template <class T, bool F>
static __global__ void __launch_bounds__(THREADS)
    set_rows(struct k_scatter c, const int64_t *rows, const int32_t *last, k_operand updates,
             k_operand y)
{
    const int64_t step = (int64_t)gridDim.x * THREADS;

    for (int64_t e = (int64_t)blockIdx.x * THREADS + threadIdx.x; e < c.n * c.inner; e += step) {
        const int64_t i = e / c.inner, row = rows[i];

        if (row >= 0 && last[row] == (int32_t)i)
            cells<T, F>::put(y, row * c.inner + e % c.inner, cells<T, F>::get(updates, e));
    }
}

static unsigned grid_of(int64_t n)
{
    const int64_t blocks = cdiv64(n, THREADS);

    return (unsigned)(blocks < 1 << 16 ? blocks : 1 << 16);
}

template <class T, class S, bool F>
static void launch_scatter(cudaStream_t s, const struct k_scatter *c, k_operand data,
                           const int64_t *rows, k_operand updates, k_operand y, int32_t *last)
{
    copy_cells<T, F><<<grid_of(c->rows * c->inner), THREADS, 0, s>>>(c->rows * c->inner, data, y);
    if (c->kind != DEV_SCATTER_SET) {
        write_rows<T, S, F><<<(unsigned)c->n, THREADS, 0, s>>>(*c, rows, updates, y);
        return;
    }
    cudaMemsetAsync(last, 0xff, (size_t)c->rows * sizeof(*last), s);
    find_last<<<(unsigned)cdiv64(c->n, THREADS), THREADS, 0, s>>>(c->n, rows, last);
    set_rows<T, F><<<grid_of(c->n * c->inner), THREADS, 0, s>>>(*c, rows, last, updates, y);
}

size_t k_scatter_scratch(const struct k_scatter *c)
{
    return c->kind == DEV_SCATTER_SET ? (size_t)c->rows * sizeof(int32_t) : 0;
}

void k_scatter(cudaStream_t s, const struct k_scatter *c, struct k_operand data,
               const int64_t *rows, struct k_operand updates, struct k_operand y, void *scratch)
{
    int32_t *last = (int32_t *)scratch;
    const size_t size = type_bytes(y.type);

    if (y.type == CUDA_T_F32 || y.type == CUDA_T_F16 || y.type == CUDA_T_BF16)
        launch_scatter<float, float, true>(s, c, data, rows, updates, y, last);
    else if (size == 8)
        launch_scatter<uint64_t, int64_t, false>(s, c, data, rows, updates, y, last);
    else if (size == 4)
        launch_scatter<uint32_t, int32_t, false>(s, c, data, rows, updates, y, last);
    else
        launch_scatter<uint8_t, uint8_t, false>(s, c, data, rows, updates, y, last);
}
