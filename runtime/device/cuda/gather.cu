/* gather.cu - rows of a table by index, and the gradient of the table.
 *
 * Forward: a thread copies (or converts) up to 16 bytes of a row. Backward: the gradient is zeroed,
 * then a block for each index whose row does not occur earlier adds up all of that row's d_y: it
 * lists the positions tile by tile, in order; eight groups of threads take turns along the list and
 * their sums are added at the end. No atomics, so the same bits each time; quadratic in the number
 * of indices, which pays up to some hundred thousand.
 *
 * An index outside the table reads and writes nothing of it and is reported (grid.cuh); the forward
 * pass gives zeros for it.
 */
#include "runtime/device/cuda/grid.cuh"

#define THREADS 256
#define GROUPS (THREADS / WARP) /* backward: of threads that share the list */
#define TILE (4 * THREADS)      /* backward: indices looked at between two barriers */

/* The row of position i; outside [0, n) if there is none. */
DEV_INLINE int64_t gather_row(const struct k_gather &g, int64_t i)
{
    const int64_t v =
        g.is_wide ? ((const int64_t *)g.indices)[i] : (int64_t)((const int32_t *)g.indices)[i];

    return v < 0 ? v + g.n : v;
}

DEV_INLINE bool is_table_row(const struct k_gather &g, int64_t v)
{
    return v >= 0 && v < g.n;
}

/* As the caller wrote it. */
DEV_INLINE void report_index(const struct k_gather &g, int64_t at, int64_t v)
{
    raise_fault(g.fault, g.op, at, v < 0 ? v - g.n : v);
}

/* ------------------------------------------------------------------ forward */

/* I: of the count of vectors. Rows have inner elements of S and D, V at a time. */
template <class S, class D, int V, class I>
__global__ __launch_bounds__(THREADS) void gather_kernel(struct k_gather g, const S *table, D *y,
                                                         I per_row, I total)
{
    const I step = (I)gridDim.x * THREADS;

    for (I k = (I)blockIdx.x * THREADS + threadIdx.x; k < total; k += step) {
        const I r = k / per_row, column = k % per_row;
        const int64_t i = (int64_t)(r % (I)g.n_index), o = (int64_t)(r / (I)g.n_index);
        const int64_t v = gather_row(g, i);
        vec<D, V> out;

#pragma unroll
        for (int e = 0; e < V; e++)
            out.v[e] = from_f<D>(0);
        if (is_table_row(g, v)) {
            const vec<S, V> in = load_vec<V>(table + ((o * g.n + v) * per_row + column) * V);

#pragma unroll
            for (int e = 0; e < V; e++) {
                if constexpr (sizeof(S) == 1)
                    out.v[e] = in.v[e];
                else
                    out.v[e] = from_f<D>(to_f(in.v[e]));
            }
        } else if (column == 0) {
            report_index(g, i, v);
        }
        store_vec<V>(y + (int64_t)k * V, out);
    }
}

template <class S, class D, int V>
static void gather_by(cudaStream_t s, const struct k_gather *g, const void *table, void *y,
                      int64_t inner)
{
    const int64_t per_row = inner / V, total = g->outer * g->n_index * per_row;
    const int64_t blocks = cdiv64(total, THREADS);
    const unsigned grid = (unsigned)(blocks < 1 << 20 ? blocks : 1 << 20);

    if (total < (int64_t)1 << 30)
        gather_kernel<S, D, V, uint32_t><<<grid, THREADS, 0, s>>>(
            *g, (const S *)table, (D *)y, (uint32_t)per_row, (uint32_t)total);
    else
        gather_kernel<S, D, V, int64_t>
            <<<grid, THREADS, 0, s>>>(*g, (const S *)table, (D *)y, per_row, total);
}

/* The same type on both sides: bytes. */
static void gather_bytes(cudaStream_t s, const struct k_gather *g, const void *table, void *y,
                         int64_t bytes)
{
    if (bytes % 16 == 0)
        gather_by<uint8_t, uint8_t, 16>(s, g, table, y, bytes);
    else if (bytes % 4 == 0)
        gather_by<uint8_t, uint8_t, 4>(s, g, table, y, bytes);
    else if (bytes % 2 == 0)
        gather_by<uint8_t, uint8_t, 2>(s, g, table, y, bytes);
    else
        gather_by<uint8_t, uint8_t, 1>(s, g, table, y, bytes);
}

void k_gather(cudaStream_t s, const struct k_gather *g, int table_type, size_t table_size,
              const void *table, int y_type, void *y)
{
    if (table_type == y_type) {
        gather_bytes(s, g, table, y, g->inner * (int64_t)table_size);
        return;
    }
    DISPATCH_FLOAT(table_type, S, DISPATCH_FLOAT(y_type, D, {
                       if (g->inner % 4 == 0)
                           gather_by<S, D, 4>(s, g, table, y, g->inner);
                       else
                           gather_by<S, D, 1>(s, g, table, y, g->inner);
                   }));
}

/* ------------------------------------------------------------------ backward */

/* Does row v occur before position i? The same answer in all threads. */
DEV_INLINE bool occurs_before(const struct k_gather &g, int64_t i, int64_t v)
{
    for (int64_t j0 = 0; j0 < i; j0 += TILE) {
        bool found = false;

        for (int64_t j = j0 + threadIdx.x; j < j0 + TILE && j < i; j += THREADS)
            found |= gather_row(g, j) == v;
        if (__syncthreads_or(found))
            return true;
    }
    return false;
}

/* Positions j0 .. j0 + TILE that hold row v, in order, into list[]. Returns how many. */
DEV_INLINE int list_tile(const struct k_gather &g, int64_t j0, int64_t v, int *list, int *counts)
{
    const int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
    int before = 0, all = 0;

    for (int part = 0; part < TILE / THREADS; part++) {
        const int64_t j = j0 + part * THREADS + threadIdx.x;
        const bool mine = j < g.n_index && gather_row(g, j) == v;
        const unsigned lanes = __ballot_sync(0xffffffffu, mine);

        if (lane == 0)
            counts[warp] = __popc(lanes);
        __syncthreads();
        before = all;
        for (int w = 0; w < GROUPS; w++) {
            before += w < warp ? counts[w] : 0;
            all += counts[w];
        }
        if (mine)
            list[before + __popc(lanes & ((1u << lane) - 1))] = (int)(j - j0);
        __syncthreads();
    }
    return all;
}

template <class S, class D, int V>
__global__ __launch_bounds__(THREADS) void gather_bwd_kernel(struct k_gather g, const S *d_y,
                                                             D *d_table)
{
    __shared__ int list[TILE], counts[GROUPS];
    __shared__ float sums[GROUPS][WARP * V];
    const int lane = threadIdx.x % WARP, group = threadIdx.x / WARP;
    const int64_t i = blockIdx.x % g.n_index, o = blockIdx.x / g.n_index, v = gather_row(g, i);
    const int64_t column = ((int64_t)blockIdx.y * WARP + lane) * V;
    float sum[V] = {0};

    if (!is_table_row(g, v)) {
        if (threadIdx.x == 0)
            report_index(g, i, v);
        return;
    }
    if (occurs_before(g, i, v))
        return;
    for (int64_t j0 = i; j0 < g.n_index; j0 += TILE) {
        const int n = list_tile(g, j0, v, list, counts);

        if (column < g.inner) {
#pragma unroll 4
            for (int k = group; k < n; k += GROUPS) {
                float d[V];

                load_f<V>(d_y + (o * g.n_index + j0 + list[k]) * g.inner + column, d);
#pragma unroll
                for (int e = 0; e < V; e++)
                    sum[e] += d[e];
            }
        }
        __syncthreads();
    }
#pragma unroll
    for (int e = 0; e < V; e++)
        sums[group][lane * V + e] = sum[e];
    __syncthreads();
    if (group != 0 || column >= g.inner)
        return;
    for (int k = 1; k < GROUPS; k++) {
#pragma unroll
        for (int e = 0; e < V; e++)
            sum[e] += sums[k][lane * V + e];
    }
    store_grad<V>(d_table + (o * g.n + v) * g.inner + column, sum);
}

template <class S, class D, int V>
static void launch_bwd(cudaStream_t s, const struct k_gather *g, const void *d_y, void *d_table)
{
    const dim3 grid((unsigned)(g->outer * g->n_index), (unsigned)cdiv64(g->inner, WARP * V));

    gather_bwd_kernel<S, D, V><<<grid, THREADS, 0, s>>>(*g, (const S *)d_y, (D *)d_table);
}

void k_gather_bwd(cudaStream_t s, const struct k_gather *g, int y_type, const void *d_y,
                  int table_type, size_t table_size, void *d_table)
{
    cudaMemsetAsync(d_table, 0, (size_t)(g->outer * g->n * g->inner) * table_size, s);
    DISPATCH_FLOAT(y_type, S, DISPATCH_FLOAT(table_type, D, {
                       if (g->inner % 8 == 0)
                           launch_bwd<S, D, 8>(s, g, d_y, d_table);
                       else
                           launch_bwd<S, D, 1>(s, g, d_y, d_table);
                   }));
}
