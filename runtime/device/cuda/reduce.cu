/* reduce.cu - sum, mean, product, maximum, minimum over any set of axes, in F32, in a fixed order.
 *
 *   columns  x's contiguous axis stays (bias gradients, means over the pixels of NHWC images): 8 to
 *            32 lanes of a warp along it, four elements each where widths allow; the rest of the
 *            block down the dropped axes, eight loads a thread under way
 *   rows     all else: one result per warp, or per block when it has many summands; in eights when
 *            the dropped axes are contiguous
 *
 * When there are too few results to fill the device, the summands are cut into parts, by a rule
 * that looks at the shape alone. Up to eight blocks of columns are a cluster, whose first block
 * adds the parts up from the others' shared memory: a second launch would take as long as reading
 * ten megabytes. More parts, and those of rows, go to scratch and are added by a second launch.
 * NaN stays in a maximum and a minimum. Integers, rare and small, take a warp for each result.
 */
#include "runtime/device/cuda/nest.cuh"
#include "runtime/device/op.h"

#include <cooperative_groups.h>

#define THREADS 256
#define WARPS (THREADS / WARP)
#define LANES 32 /* of `finish` */
#define ROWS (THREADS / LANES)
#define AHEAD 8           /* loads of a thread that are under way */
#define MIN_LANES 8       /* along a row: 128 bytes of F32 */
#define CLUSTER 8         /* the most blocks that every device takes */
#define BLOCKS_ENOUGH 192 /* of columns: more and narrower ones read no faster */
#define BLOCKS_WANTED 528 /* four per multiprocessor of the largest device */
#define MAX_PARTS 512
#define SHORT_ROW 1024 /* summands up to which a warp does a result */
#define MIN_COLUMNS 16 /* below, lanes would idle */

enum { SUM, MAX, MIN, PROD };

template <int KIND> DEV_INLINE float neutral_of()
{
    return KIND == MAX ? -INFINITY : KIND == MIN ? INFINITY : KIND == PROD ? 1.0f : 0.0f;
}
template <int KIND> DEV_INLINE float combine_as(float a, float b)
{
    return KIND == MAX ? max_nan(a, b) : KIND == MIN ? min_nan(a, b) : KIND == PROD ? a * b : a + b;
}

struct reduction {
    nest<2> keep; /* 0: y, 1: x; in steps of V elements for columns */
    nest<1> drop; /* x; in steps of 8 elements for rows in eights */
    k_operand x, y;
    float *partial;               /* [parts][results], or NULL */
    uint32_t n_keep, n_drop, per; /* steps; steps of `drop` in one part */
    uint32_t results;
    int32_t y_step; /* columns: between neighbours in y */
    int log_lanes;  /* columns: of a row */
    float scale;
};

/* ------------------------------------------------------------------ columns */

/* AHEAD rows from d on; unless WHOLE, those of them before `to`. FLAT: `drop` has one axis. */
template <int KIND, class T, int V, bool FLAT, bool WHOLE>
DEV_INLINE void add_batch(const reduction &r, const T *x, uint32_t d, uint32_t step, uint32_t to,
                          float (&acc)[V])
{
    const T *const first = x + (int64_t)d * r.drop.stride[0][0];
    const int64_t stride = (int64_t)step * r.drop.stride[0][0];
    vec<T, V> v[AHEAD];

#pragma unroll
    for (int k = 0; k < AHEAD; k++)
        if (WHOLE || d + k * step < to) {
            int64_t off[1];

            if (FLAT) {
                v[k] = load_vec<V>(first + k * stride);
            } else {
                locate(r.drop, d + k * step, off);
                v[k] = load_vec<V>(x + off[0]);
            }
        }
#pragma unroll
    for (int k = 0; k < AHEAD; k++)
        if (WHOLE || d + k * step < to)
#pragma unroll
            for (int e = 0; e < V; e++)
                acc[e] = combine_as<KIND>(acc[e], to_f(v[k].v[e]));
}

template <int KIND, class T, int V, bool FLAT>
DEV_INLINE void add_reduced_rows(const reduction &r, const T *x, uint32_t from, uint32_t to,
                                 float (&acc)[V])
{
    const uint32_t step = THREADS >> r.log_lanes;
    uint32_t d = from + (threadIdx.x >> r.log_lanes);

    for (; d + (AHEAD - 1) * step < to; d += AHEAD * step)
        add_batch<KIND, T, V, FLAT, true>(r, x, d, step, to, acc);
    if (d < to)
        add_batch<KIND, T, V, FLAT, false>(r, x, d, step, to, acc);
}

/* v, and what the other blocks of the cluster have of this thread's column in `place`; in the first
 * one, where the thread has a column. */
template <int KIND> DEV_INLINE float gather_cluster(float v, float *place, bool has_column)
{
    const cooperative_groups::cluster_group cluster = cooperative_groups::this_cluster();
    const unsigned n = cluster.num_blocks();
    float all[CLUSTER];

    cluster.sync();
    if (cluster.block_rank() == 0 && has_column) {
#pragma unroll
        for (unsigned i = 1; i < CLUSTER; i++) /* all under way at once */
            all[i] = i < n ? *cluster.map_shared_rank(place, i) : neutral_of<KIND>();
#pragma unroll
        for (unsigned i = 1; i < CLUSTER; i++)
            v = combine_as<KIND>(v, all[i]);
    }
    cluster.sync(); /* shared memory goes with its block */
    return v;
}

/* gridDim.y blocks have a part each: a cluster, or (r.partial) any number of them. */
template <int KIND, class T, int V>
static __global__ void __launch_bounds__(THREADS)
    reduce_columns(const __grid_constant__ reduction r)
{
    __shared__ __align__(16) float part[WARPS][WARP * V];
    const int lanes = 1 << r.log_lanes, lane = threadIdx.x & (lanes - 1);
    const uint32_t first = blockIdx.x << r.log_lanes, own = first + threadIdx.x / V;
    const uint32_t from = blockIdx.y * r.per, to = min(from + r.per, r.n_drop);
    const bool has_result = threadIdx.x < lanes * V && own < r.n_keep;
    float acc[V], v = neutral_of<KIND>();
    int64_t off[2] = {0, 0};

#pragma unroll
    for (int e = 0; e < V; e++)
        acc[e] = neutral_of<KIND>();
    if (first + lane < r.n_keep) {
        locate(r.keep, first + lane, off);
        if (r.drop.rank == 1)
            add_reduced_rows<KIND, T, V, true>(r, (const T *)r.x.p + off[1], from, to, acc);
        else
            add_reduced_rows<KIND, T, V, false>(r, (const T *)r.x.p + off[1], from, to, acc);
    }
    for (int d = WARP / 2; d >= lanes; d /= 2)
#pragma unroll
        for (int e = 0; e < V; e++)
            acc[e] = combine_as<KIND>(acc[e], __shfl_xor_sync(0xffffffffu, acc[e], d));
    if (threadIdx.x % WARP < lanes)
        store_f<V>(&part[threadIdx.x / WARP][lane * V], acc);
    __syncthreads();
    if (threadIdx.x < lanes * V)
#pragma unroll
        for (int k = 0; k < WARPS; k++)
            v = combine_as<KIND>(v, part[k][threadIdx.x]);
    if (r.partial) {
        if (has_result)
            r.partial[(size_t)blockIdx.y * r.results + (size_t)first * V + threadIdx.x] = v;
        return;
    }
    if (gridDim.y > 1) {
        const bool has_column = threadIdx.x < lanes * V;
        float *const mine = &part[0][has_column ? threadIdx.x : 0];

        if (has_column)
            *mine = v; /* nobody else reads this column */
        v = gather_cluster<KIND>(v, mine, has_column);
    }
    if (has_result && blockIdx.y == 0) {
        locate(r.keep, own, off);
        store1(r.y, off[0] + (int64_t)(threadIdx.x % V) * r.y_step, v * r.scale);
    }
}

/* ------------------------------------------------------------------ rows */

template <int KIND> DEV_INLINE float warp_combine(float v)
{
#pragma unroll
    for (int d = WARP / 2; d > 0; d /= 2)
        v = combine_as<KIND>(v, __shfl_xor_sync(0xffffffffu, v, d));
    return v;
}

/* T threads for a result. */
template <int KIND, int T, bool EIGHTS>
static __global__ void reduce_rows(const __grid_constant__ reduction r)
{
    __shared__ float part[WARPS];
    const uint32_t k = blockIdx.x * (THREADS / T) + threadIdx.x / T;
    const uint32_t from = blockIdx.y * r.per, to = min(from + r.per, r.n_drop);
    float v = neutral_of<KIND>();
    int64_t off[2], at[1];

    if (k >= r.results)
        return;
    locate(r.keep, k, off);
    for (uint32_t i = from + threadIdx.x % T; i < to; i += T)
        if (EIGHTS) {
            float w[8];

            widen8(r.x.type, load_raw8(r.x, off[1] + (int64_t)i * 8), w);
#pragma unroll
            for (int e = 0; e < 8; e++)
                v = combine_as<KIND>(v, w[e]);
        } else {
            locate(r.drop, i, at);
            v = combine_as<KIND>(v, load1(r.x, off[1] + at[0]));
        }
    v = warp_combine<KIND>(v);
    if (T > WARP) {
        if (threadIdx.x % WARP == 0)
            part[threadIdx.x / WARP] = v;
        __syncthreads();
        v = part[0];
        for (int i = 1; i < WARPS; i++)
            v = combine_as<KIND>(v, part[i]);
    }
    if (threadIdx.x % T != 0)
        return;
    if (r.partial)
        r.partial[(size_t)blockIdx.y * r.results + k] = v;
    else
        store1(r.y, off[0], v * r.scale);
}

/* ------------------------------------------------------------------ the parts together */

template <int KIND>
static __global__ void finish_reduce(const __grid_constant__ nest<2> keep, uint32_t results,
                                     uint32_t parts, const float *partial, k_operand y, float scale)
{
    __shared__ float part[ROWS][LANES];
    const uint32_t k = blockIdx.x * LANES + threadIdx.x;
    float v = neutral_of<KIND>();
    int64_t off[2];

    if (k < results)
        for (uint32_t i = threadIdx.y; i < parts; i += ROWS)
            v = combine_as<KIND>(v, partial[(size_t)i * results + k]);
    part[threadIdx.y][threadIdx.x] = v;
    __syncthreads();
    if (threadIdx.y > 0 || k >= results)
        return;
    for (int i = 1; i < ROWS; i++)
        v = combine_as<KIND>(v, part[i][threadIdx.x]);
    locate(keep, k, off);
    store1(y, off[0], v * scale);
}

/* ------------------------------------------------------------------ which way */

struct way {
    bool columns, together; /* the parts of columns are a cluster */
    int v, log_lanes;       /* elements of a step: of `keep` for columns, else of `drop` */
    int64_t per, parts;     /* steps of `drop` in one part; parts */
};

static bool all_in(int v, const struct k_nest &n, int operand, int axes)
{
    for (int a = 0; a < axes; a++)
        if (n.stride[operand][a] % v != 0)
            return false;
    return true;
}

/* Parts of `steps`, each of at least `least`. */
static void cut_reduce(way *w, int64_t parts, int64_t steps, int64_t least)
{
    if (parts > cdiv64(steps, least))
        parts = cdiv64(steps, least);
    if (parts > MAX_PARTS)
        parts = MAX_PARTS;
    w->per = cdiv64(steps, parts);
    w->parts = cdiv64(steps, w->per);
}

/* Wide rows are divided among warps as a whole, which read longer pieces, and in fewer parts. A few
 * blocks that would read much each are not a cluster. */
static way way_of_columns(const struct k_reduce *r)
{
    const int keep_last = r->keep.rank - 1;
    const int64_t n_drop = r->drop.total;
    way w = {};
    int64_t lanes, blocks, parts = CLUSTER;

    w.columns = true;
    w.v = r->keep.dims[keep_last] % 4 == 0 && all_in(4, r->keep, 1, keep_last) &&
                  all_in(4, r->drop, 0, r->drop.rank)
              ? 4
              : 1;
    lanes = w.v > 1 ? MIN_LANES : WARP;
    while (lanes < WARP && cdiv64(r->keep.total, w.v * lanes) * CLUSTER / 2 >= BLOCKS_ENOUGH)
        lanes *= 2;
    while (1 << w.log_lanes < lanes)
        w.log_lanes++;
    blocks = cdiv64(r->keep.total, w.v * lanes);
    while (parts > 1 && blocks * parts / 2 >= BLOCKS_ENOUGH)
        parts /= 2;
    cut_reduce(&w, parts, n_drop, THREADS / lanes * AHEAD / 2);
    w.together = blocks * w.parts >= BLOCKS_ENOUGH / 2 || w.per * lanes <= 2 * AHEAD * THREADS;
    if (!w.together)
        cut_reduce(&w, cdiv64(BLOCKS_WANTED, blocks), n_drop, THREADS / lanes * AHEAD);
    return w;
}

static way way_of_rows(const struct k_reduce *r)
{
    const int64_t n_drop = r->drop.total;
    way w = {};

    w.v = r->drop.rank == 1 && r->drop.stride[0][0] == 1 && n_drop % 8 == 0 &&
                  all_in(8, r->keep, 1, r->keep.rank)
              ? 8
              : 1;
    cut_reduce(&w, n_drop > SHORT_ROW ? cdiv64(BLOCKS_WANTED, r->keep.total) : 1, n_drop / w.v,
               8 * THREADS);
    return w;
}

static way way_of(const struct k_reduce *r)
{
    const int keep_last = r->keep.rank - 1;

    return r->keep.stride[1][keep_last] == 1 && r->keep.dims[keep_last] >= MIN_COLUMNS
               ? way_of_columns(r)
               : way_of_rows(r);
}

bool k_reduce_fits(const struct k_reduce *r)
{
    nest<2> keep;
    nest<1> drop;

    return narrow_of(r->keep, &keep) && narrow_of(r->drop, &drop);
}

static bool needs_scratch(const way &w)
{
    return w.parts > 1 && !w.together;
}

size_t k_reduce_scratch(const struct k_reduce *r)
{
    const way w = way_of(r);

    return needs_scratch(w) ? (size_t)(w.parts * r->keep.total) * sizeof(float) : 0;
}

template <int KIND> static void launch_columns(cudaStream_t s, const way &w, const reduction &r)
{
    cudaLaunchAttribute attr = {};
    cudaLaunchConfig_t conf = {};

    attr.id = cudaLaunchAttributeClusterDimension;
    attr.val.clusterDim.x = attr.val.clusterDim.z = 1;
    attr.val.clusterDim.y = (unsigned)w.parts;
    conf.gridDim = dim3((unsigned)cdiv64(r.n_keep, 1 << w.log_lanes), (unsigned)w.parts);
    conf.blockDim = dim3(THREADS);
    conf.stream = s;
    conf.attrs = &attr;
    conf.numAttrs = w.together && w.parts > 1;
    DISPATCH_FLOAT(
        r.x.type, T,
        if (w.v > 1) { cudaLaunchKernelEx(&conf, reduce_columns<KIND, T, 4>, r); } else {
            cudaLaunchKernelEx(&conf, reduce_columns<KIND, T, 1>, r);
        })
}

template <int KIND>
static void launch_rows(cudaStream_t s, const way &w, const reduction &r, bool small)
{
    const dim3 by_warp((unsigned)cdiv64(r.results, WARPS), (unsigned)w.parts);
    const dim3 by_block(r.results, (unsigned)w.parts);

    if (small && w.v > 1)
        reduce_rows<KIND, WARP, true><<<by_warp, THREADS, 0, s>>>(r);
    else if (small)
        reduce_rows<KIND, WARP, false><<<by_warp, THREADS, 0, s>>>(r);
    else if (w.v > 1)
        reduce_rows<KIND, THREADS, true><<<by_block, THREADS, 0, s>>>(r);
    else
        reduce_rows<KIND, THREADS, false><<<by_block, THREADS, 0, s>>>(r);
}

template <int KIND>
static void launch_reduce(cudaStream_t s, const struct k_reduce *from, const way &w,
                          const reduction &r)
{
    nest<2> keep;

    if (w.columns)
        launch_columns<KIND>(s, w, r);
    else
        launch_rows<KIND>(s, w, r, from->drop.total <= SHORT_ROW);
    if (r.partial && narrow_of(from->keep, &keep))
        finish_reduce<KIND><<<(unsigned)cdiv64(r.results, LANES), dim3(LANES, ROWS), 0, s>>>(
            keep, r.results, (uint32_t)w.parts, r.partial, r.y, r.scale);
}

/* ------------------------------------------------------------------ integers */

static DEV_INLINE int64_t join_ints(int kind, int64_t a, int64_t b)
{
    return kind == DEV_RED_MAX    ? (a > b ? a : b)
           : kind == DEV_RED_MIN  ? (a < b ? a : b)
           : kind == DEV_RED_PROD ? (int64_t)((uint64_t)a * (uint64_t)b)
                                  : (int64_t)((uint64_t)a + (uint64_t)b);
}

/* A warp for each result. */
template <class T>
static __global__ void __launch_bounds__(THREADS)
    reduce_ints(const __grid_constant__ nest<2> keep, const __grid_constant__ nest<1> drop,
                uint32_t n_keep, uint32_t n_drop, int kind, T *y, const T *x)
{
    const uint32_t k = blockIdx.x * WARPS + threadIdx.x / WARP, lane = threadIdx.x % WARP;
    int64_t at[2], off[1],
        acc = kind == DEV_RED_MAX    ? INT64_MIN
              : kind == DEV_RED_MIN  ? INT64_MAX
              : kind == DEV_RED_PROD ? 1
                                     : 0;

    if (k >= n_keep)
        return;
    locate(keep, k, at);
    for (uint32_t d = lane; d < n_drop; d += WARP) {
        locate(drop, d, off);
        acc = join_ints(kind, acc, (int64_t)x[at[1] + off[0]]);
    }
    for (int d = WARP / 2; d > 0; d /= 2)
        acc = join_ints(kind, acc, (int64_t)__shfl_xor_sync(0xffffffffu, (long long)acc, d));
    if (lane == 0)
        y[at[0]] = (T)(kind == DEV_RED_MEAN ? acc / (int64_t)n_drop : acc);
}

template <class T>
static void launch_reduce_ints(cudaStream_t s, const struct k_reduce *r, const void *x, void *y)
{
    nest<2> keep;
    nest<1> drop;

    if (!narrow_of(r->keep, &keep) || !narrow_of(r->drop, &drop))
        return; /* k_reduce_fits() was asked before */
    reduce_ints<T><<<(unsigned)cdiv64(r->keep.total, WARPS), THREADS, 0, s>>>(
        keep, drop, (uint32_t)r->keep.total, (uint32_t)r->drop.total, r->kind, (T *)y,
        (const T *)x);
}

void k_reduce(cudaStream_t s, const struct k_reduce *from, struct k_operand x, struct k_operand y,
              void *scratch)
{
    const int last = from->keep.rank - 1;
    const way w = way_of(from);
    struct k_nest keep = from->keep, drop = from->drop;
    const int64_t v = w.columns ? w.v : 1, u = w.columns ? 1 : w.v;
    reduction r = {};

    if (x.type == CUDA_T_I64 || x.type == CUDA_T_I32) {
        if (x.type == CUDA_T_I64)
            launch_reduce_ints<int64_t>(s, from, x.p, y.p);
        else
            launch_reduce_ints<int32_t>(s, from, x.p, y.p);
        return;
    }
    keep.dims[last] /= v;
    keep.total /= v;
    keep.stride[0][last] *= v;
    keep.stride[1][last] *= v;
    drop.dims[drop.rank - 1] /= u;
    drop.total /= u;
    if (!narrow_of(keep, &r.keep) || !narrow_of(drop, &r.drop))
        return; /* k_reduce_fits() was asked before */
    r.x = x;
    r.y = y;
    r.partial = needs_scratch(w) ? (float *)scratch : NULL;
    r.n_keep = (uint32_t)keep.total;
    r.n_drop = (uint32_t)drop.total;
    r.per = (uint32_t)w.per;
    r.results = (uint32_t)from->keep.total;
    r.y_step = (int32_t)from->keep.stride[0][last];
    r.log_lanes = w.log_lanes;
    r.scale = from->kind == DEV_RED_MEAN ? (float)(1.0 / (double)from->drop.total) : 1.0f;
    if (from->kind == DEV_RED_MAX)
        launch_reduce<MAX>(s, from, w, r);
    else if (from->kind == DEV_RED_MIN)
        launch_reduce<MIN>(s, from, w, r);
    else if (from->kind == DEV_RED_PROD)
        launch_reduce<PROD>(s, from, w, r);
    else
        launch_reduce<SUM>(s, from, w, r);
}
