/* reduce.cu - sum, mean, maximum, minimum over any set of axes, in F32, in a fixed order.
 *
 *   columns  x's contiguous axis stays (bias gradients, means over the pixels of NHWC images): 32
 *            lanes along it, eight elements each where widths allow, 8 rows of the block down the
 *            dropped axes
 *   rows     all else: one result per warp, or per block when it has many summands; in eights when
 *            the dropped axes are contiguous
 * When there are too few results to fill the device, the summands are cut into parts (by a rule
 * that looks at the shape alone) whose results go to scratch and are added by a second launch. NaN
 * stays in a maximum and a minimum.
 */
#include "executor/device/cuda/nest.cuh"
#include "executor/device/op.h"

#define THREADS 256
#define LANES 32
#define ROWS (THREADS / LANES)
#define BLOCKS_WANTED 528 /* four per multiprocessor of the largest device */
#define MAX_PARTS 512
#define SHORT_ROW 1024 /* summands up to which a warp does a result */
#define MIN_COLUMNS 16 /* below, lanes would idle */

enum { SUM, MAX, MIN };

template <int KIND> DEV_INLINE float neutral()
{
    return KIND == MAX ? -INFINITY : KIND == MIN ? INFINITY : 0.0f;
}
template <int KIND> DEV_INLINE float combine(float a, float b)
{
    return KIND == MAX ? max_nan(a, b) : KIND == MIN ? min_nan(a, b) : a + b;
}

struct reduction {
    nest<2> keep; /* 0: y, 1: x; in steps of V elements for columns */
    nest<1> drop; /* x; in steps of 8 elements for rows in eights */
    k_operand x, y;
    float *partial;               /* [parts][results], or NULL */
    uint32_t n_keep, n_drop, per; /* steps; steps of `drop` in one part */
    uint32_t results;
    int32_t y_step; /* columns: between neighbours in y */
    float scale;
};

/* ------------------------------------------------------------------ columns */

template <int V> DEV_INLINE void load_v(const k_operand &x, int64_t off, float (&v)[V])
{
    if constexpr (V == 8)
        widen8(x.type, load_raw8(x, off), v);
    else
        v[0] = load1(x, off);
}

template <int KIND, int V>
DEV_INLINE void add_column(const reduction &r, int64_t at, uint32_t from, uint32_t to,
                           float (&acc)[V])
{
    uint32_t d = from + threadIdx.y;
    int64_t off[1];
    float v[V];

    if (V == 8 && r.drop.rank == 1) { /* four loads under way */
        const int64_t step = (int64_t)r.drop.stride[0][0];

        for (; d + 3 * ROWS < to; d += 4 * ROWS) {
            raw8 raw[4];

#pragma unroll
            for (int k = 0; k < 4; k++)
                raw[k] = load_raw8(r.x, at + (d + k * ROWS) * step);
#pragma unroll
            for (int k = 0; k < 4; k++) {
                float w[8];

                widen8(r.x.type, raw[k], w);
#pragma unroll
                for (int e = 0; e < V; e++)
                    acc[e] = combine<KIND>(acc[e], w[e]);
            }
        }
    }
    for (; d < to; d += ROWS) {
        locate(r.drop, d, off);
        load_v<V>(r.x, at + off[0], v);
#pragma unroll
        for (int e = 0; e < V; e++)
            acc[e] = combine<KIND>(acc[e], v[e]);
    }
}

template <int KIND, int V> static __global__ void columns(const __grid_constant__ reduction r)
{
    __shared__ float part[ROWS][V][LANES];
    const uint32_t lane = blockIdx.x * LANES + threadIdx.x;
    const uint32_t from = blockIdx.y * r.per, to = min(from + r.per, r.n_drop);
    int64_t off[2] = {0, 0};
    float acc[V];

#pragma unroll
    for (int e = 0; e < V; e++)
        acc[e] = neutral<KIND>();
    if (lane < r.n_keep) {
        locate(r.keep, lane, off);
        add_column<KIND, V>(r, off[1], from, to, acc);
    }
#pragma unroll
    for (int e = 0; e < V; e++)
        part[threadIdx.y][e][threadIdx.x] = acc[e];
    __syncthreads();
    if (lane >= r.n_keep)
        return;
    for (int e = threadIdx.y; e < V; e += ROWS) {
        float v = part[0][e][threadIdx.x];

#pragma unroll
        for (int k = 1; k < ROWS; k++)
            v = combine<KIND>(v, part[k][e][threadIdx.x]);
        if (r.partial)
            r.partial[(size_t)blockIdx.y * r.results + (size_t)lane * V + e] = v;
        else
            store1(r.y, off[0] + (int64_t)e * r.y_step, v * r.scale);
    }
}

/* ------------------------------------------------------------------ rows */

template <int KIND> DEV_INLINE float warp_combine(float v)
{
#pragma unroll
    for (int d = WARP / 2; d > 0; d /= 2)
        v = combine<KIND>(v, __shfl_xor_sync(0xffffffffu, v, d));
    return v;
}

/* T threads for a result. */
template <int KIND, int T, bool EIGHTS>
static __global__ void rows(const __grid_constant__ reduction r)
{
    __shared__ float part[THREADS / WARP];
    const uint32_t k = blockIdx.x * (THREADS / T) + threadIdx.x / T;
    const uint32_t from = blockIdx.y * r.per, to = min(from + r.per, r.n_drop);
    float v = neutral<KIND>();
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
                v = combine<KIND>(v, w[e]);
        } else {
            locate(r.drop, i, at);
            v = combine<KIND>(v, load1(r.x, off[1] + at[0]));
        }
    v = warp_combine<KIND>(v);
    if (T > WARP) {
        if (threadIdx.x % WARP == 0)
            part[threadIdx.x / WARP] = v;
        __syncthreads();
        v = part[0];
        for (int i = 1; i < THREADS / WARP; i++)
            v = combine<KIND>(v, part[i]);
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
static __global__ void finish(const __grid_constant__ nest<2> keep, uint32_t results,
                              uint32_t parts, const float *partial, k_operand y, float scale)
{
    __shared__ float part[ROWS][LANES];
    const uint32_t k = blockIdx.x * LANES + threadIdx.x;
    float v = neutral<KIND>();
    int64_t off[2];

    if (k < results)
        for (uint32_t i = threadIdx.y; i < parts; i += ROWS)
            v = combine<KIND>(v, partial[(size_t)i * results + k]);
    part[threadIdx.y][threadIdx.x] = v;
    __syncthreads();
    if (threadIdx.y > 0 || k >= results)
        return;
    for (int i = 1; i < ROWS; i++)
        v = combine<KIND>(v, part[i][threadIdx.x]);
    locate(keep, k, off);
    store1(y, off[0], v * scale);
}

/* ------------------------------------------------------------------ which way */

struct way {
    bool columns, eights;
    int64_t per, parts; /* steps of `drop` in one part; parts */
};

static bool all_in_eights(const struct k_nest &n, int operand, int axes)
{
    for (int a = 0; a < axes; a++)
        if (n.stride[operand][a] % 8 != 0)
            return false;
    return true;
}

static way way_of(const struct k_reduce *r)
{
    const int keep_last = r->keep.rank - 1, drop_last = r->drop.rank - 1;
    const bool stays = r->keep.stride[1][keep_last] == 1;
    const int64_t n_keep = r->keep.total, n_drop = r->drop.total;
    way w = {};
    int64_t blocks, steps, least;

    w.columns = stays && r->keep.dims[keep_last] >= MIN_COLUMNS;
    if (w.columns) {
        w.eights = r->keep.dims[keep_last] % 8 == 0 && all_in_eights(r->keep, 1, keep_last) &&
                   all_in_eights(r->drop, 0, drop_last + 1);
        blocks = cdiv64(n_keep / (w.eights ? 8 : 1), LANES);
        steps = n_drop;
        least = 8 * ROWS;
    } else {
        w.eights = r->drop.rank == 1 && r->drop.stride[0][0] == 1 && n_drop % 8 == 0 &&
                   all_in_eights(r->keep, 1, keep_last + 1);
        blocks = n_drop > SHORT_ROW ? n_keep : BLOCKS_WANTED;
        steps = w.eights ? n_drop / 8 : n_drop;
        least = 8 * THREADS;
    }
    w.parts = cdiv64(BLOCKS_WANTED, blocks);
    if (w.parts > cdiv64(steps, least))
        w.parts = cdiv64(steps, least);
    if (w.parts > MAX_PARTS)
        w.parts = MAX_PARTS;
    w.per = cdiv64(steps, w.parts);
    w.parts = cdiv64(steps, w.per);
    return w;
}

bool k_reduce_fits(const struct k_reduce *r)
{
    nest<2> keep;
    nest<1> drop;

    return narrow_of(r->keep, &keep) && narrow_of(r->drop, &drop);
}

size_t k_reduce_scratch(const struct k_reduce *r)
{
    const way w = way_of(r);

    return w.parts > 1 ? (size_t)(w.parts * r->keep.total) * sizeof(float) : 0;
}

template <int KIND>
static void launch(cudaStream_t s, const struct k_reduce *from, const way &w, reduction r)
{
    const unsigned parts = (unsigned)w.parts;
    const bool small = from->drop.total <= SHORT_ROW;
    const dim3 by_warp((unsigned)cdiv64(r.results, THREADS / WARP), parts);
    const dim3 by_block(r.results, parts);
    const dim3 lanes((unsigned)cdiv64(r.n_keep, LANES), parts), block(LANES, ROWS);
    nest<2> keep;

    if (w.columns && w.eights)
        columns<KIND, 8><<<lanes, block, 0, s>>>(r);
    else if (w.columns)
        columns<KIND, 1><<<lanes, block, 0, s>>>(r);
    else if (small && w.eights)
        rows<KIND, WARP, true><<<by_warp, THREADS, 0, s>>>(r);
    else if (small)
        rows<KIND, WARP, false><<<by_warp, THREADS, 0, s>>>(r);
    else if (w.eights)
        rows<KIND, THREADS, true><<<by_block, THREADS, 0, s>>>(r);
    else
        rows<KIND, THREADS, false><<<by_block, THREADS, 0, s>>>(r);
    if (parts > 1 && narrow_of(from->keep, &keep))
        finish<KIND><<<(unsigned)cdiv64(r.results, LANES), block, 0, s>>>(keep, r.results, parts,
                                                                          r.partial, r.y, r.scale);
}

void k_reduce(cudaStream_t s, const struct k_reduce *from, struct k_operand x, struct k_operand y,
              void *scratch)
{
    const int last = from->keep.rank - 1;
    const way w = way_of(from);
    struct k_nest keep = from->keep, drop = from->drop;
    const int64_t v = w.columns && w.eights ? 8 : 1, u = !w.columns && w.eights ? 8 : 1;
    reduction r = {};

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
    r.partial = w.parts > 1 ? (float *)scratch : NULL;
    r.n_keep = (uint32_t)keep.total;
    r.n_drop = (uint32_t)drop.total;
    r.per = (uint32_t)w.per;
    r.results = (uint32_t)from->keep.total;
    r.y_step = (int32_t)from->keep.stride[0][last];
    r.scale = from->kind == DEV_RED_MEAN ? (float)(1.0 / (double)from->drop.total) : 1.0f;
    if (from->kind == DEV_RED_MAX)
        launch<MAX>(s, from, w, r);
    else if (from->kind == DEV_RED_MIN)
        launch<MIN>(s, from, w, r);
    else
        launch<SUM>(s, from, w, r);
}
