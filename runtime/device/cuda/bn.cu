/* bn.cu - batch normalisation: training and its gradients, channels last (also [N, C]).
 *
 * x is a matrix of rows x channels. A thread owns V channels (16 bytes; one where the channels do
 * not divide) and walks over rows, so that a warp reads whole lines; blocks share the rows.
 * Statistics are sums of x - x[row 0], which keeps the variance exact where the mean is large;
 * short chains in F32, then every block adds the sums of all, in one order and in F64, and derives
 * what it needs of its channels.
 *
 * All blocks of a kernel are on the device at once (a cooperative launch), and wait for each other
 * between the sums and a second walk that writes. What a thread has read stays in shared memory, as
 * many rows as there is room for: 28 MB on 132 multiprocessors, so most tensors are read once. The
 * first walk starts at the end (what was written last is still in the L2 cache), the second goes
 * back to it.
 *
 * Backward, d_y is first masked by the activation. If that takes more tensors, or the masked
 * gradient is a result of its own, the first walk writes it and the second reads only it.
 */
#include "runtime/device/cuda/bn.cuh"
#include "runtime/device/cuda/grid.cuh"

#include <cuda_pipeline_primitives.h>

#define TRAIN_WARPS (TRAIN_THREADS / WARP)
#define SUMS_AT_ONCE 8 /* of the sums of blocks: loads under way */
#define AHEAD 4        /* rows that a thread fetches before it needs them */

/* ------------------------------------------------------------------ sums over all blocks */

/* The front of the shared memory, for the WIDTH = V * tx channels of a block: the sums of the
 * warps; then those of groups of threads over blocks, and what is derived of each channel. Channel
 * V * x + i is at i * tx + x, so that neighbouring threads meet different banks. */
union front {
    float2 warps[1]; /* [TRAIN_WARPS][WIDTH] */
    struct {
        double2 threads[TRAIN_THREADS];
        float4 numbers[1]; /* [WIDTH] */
    };
};

__host__ __device__ constexpr int front_bytes(int width)
{
    const int warps = TRAIN_WARPS * width * (int)sizeof(float2);
    const int threads = TRAIN_THREADS * (int)sizeof(double2) + width * (int)sizeof(float4);

    return warps > threads ? warps : threads;
}

/* The sums of a block over its rows, into part[WIDTH]. */
template <int V>
DEV_INLINE void sum_bn_block(const struct cols &g, float (&s)[V], float (&q)[V], union front *smem,
                             float2 *part)
{
    const int tx = 1 << g.log_tx, width = V << g.log_tx;
    const int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP, at = (int)threadIdx.x;

    for (int d = tx; d < WARP; d *= 2) {
#pragma unroll
        for (int i = 0; i < V; i++) {
            s[i] += __shfl_xor_sync(0xffffffffu, s[i], d);
            q[i] += __shfl_xor_sync(0xffffffffu, q[i], d);
        }
    }
    if (lane < tx) {
#pragma unroll
        for (int i = 0; i < V; i++)
            smem->warps[warp * width + i * tx + lane] = make_float2(s[i], q[i]);
    }
    __syncthreads();
    if (at < width) {
        float2 sum = smem->warps[at];

#pragma unroll
        for (int w = 1; w < TRAIN_WARPS; w++) {
            sum.x += smem->warps[w * width + at].x;
            sum.y += smem->warps[w * width + at].y;
        }
        part[at] = sum;
    }
}

/* The sums over all blocks of a column, from part[gy][WIDTH]. Valid for the first WIDTH threads. */
DEV_INLINE double2 sum_blocks(const struct cols &g, int width, union front *smem,
                              const float2 *part)
{
    const int groups = TRAIN_THREADS / width;
    const int at = (int)threadIdx.x % width, group = (int)threadIdx.x / width;
    float2 some = make_float2(0, 0);
    double2 sum;

    for (int first = group; first < g.gy; first += SUMS_AT_ONCE * groups) {
        float2 p[SUMS_AT_ONCE];

#pragma unroll
        for (int i = 0; i < SUMS_AT_ONCE; i++) {
            const int k = first + i * groups;

            p[i] = k < g.gy ? __ldcg(&part[k * width + at]) : make_float2(0, 0);
        }
#pragma unroll
        for (int i = 0; i < SUMS_AT_ONCE; i++) {
            some.x += p[i].x;
            some.y += p[i].y;
        }
    }
    sum = make_double2(some.x, some.y);
    smem->threads[threadIdx.x] = sum;
    __syncthreads();
    for (int k = 1; k < groups && group == 0; k++) {
        sum.x += smem->threads[k * width + at].x;
        sum.y += smem->threads[k * width + at].y;
    }
    return sum;
}

/* The channel that this thread finishes; -1: none. */
template <int V> DEV_INLINE int finishes(const struct cols &g)
{
    const int at = (int)threadIdx.x, tx = 1 << g.log_tx, width = V << g.log_tx;
    const int ch = (int)blockIdx.x * width + at % tx * V + at / tx;

    return at < width && ch < g.c ? ch : -1;
}

/* Between the two walks: calls finish() with the sums over all blocks in each thread that finishes
 * a channel; numbers: what it returned for the channels that this thread walks over. */
template <int V, class F>
DEV_INLINE void meet(const struct cols &g, float (&s)[V], float (&q)[V], union front *smem,
                     float2 *part, F finish, float4 (&numbers)[V])
{
    const int at = (int)threadIdx.x, tx = 1 << g.log_tx, width = V << g.log_tx;
    float2 *const column = part + (int64_t)blockIdx.x * g.gy * width;
    double2 sum;

    sum_bn_block<V>(g, s, q, smem, column + blockIdx.y * width);
    wait_for_all(&g.arrivals[blockIdx.x], gridDim.y);
    sum = sum_blocks(g, width, smem, column);
    if (finishes<V>(g) >= 0)
        smem->numbers[at] = finish(sum);
    __syncthreads();
#pragma unroll
    for (int i = 0; i < V; i++)
        numbers[i] = smem->numbers[i * tx + at % tx];
}

/* ------------------------------------------------------------------ rows in shared memory */

/* Slots for rows of one tensor, this thread's own: nobody else reads them, so they need no barrier,
 * only the wait for the thread's own copies. */
template <class T, int V> struct tape {
    vec<T, V> *first;

    /* Behind the others; *smem goes on behind it. */
    DEV_INLINE tape(unsigned char **smem, int slots)
        : first(reinterpret_cast<vec<T, V> *>(*smem) + threadIdx.x)
    {
        *smem += (size_t)slots * TRAIN_THREADS * sizeof(vec<T, V>);
    }
    DEV_INLINE vec<T, V> &operator[](int slot) const
    {
        return first[slot * TRAIN_THREADS];
    }
    DEV_INLINE void fetch(int slot, const void *from, int64_t at) const
    {
        vec<T, V> *const to = &first[slot * TRAIN_THREADS];
        const T *const p = (const T *)from + at;

        if (sizeof(*to) == 16)
            __pipeline_memcpy_async(to, p, 16);
        else
            *to = load_vec<V>(p);
    }
};

/* What was fetched in the turn AHEAD turns ago, or earlier, is there. */
DEV_INLINE void wait_for_row(const struct cols &g)
{
    if (g.ahead == AHEAD)
        __pipeline_wait_prior(AHEAD - 1);
    else
        __pipeline_wait_prior(0);
}

DEV_INLINE int slot_after(const struct cols &g, int slot)
{
    return slot + 1 == g.slots ? 0 : slot + 1;
}
DEV_INLINE int slot_before(const struct cols &g, int slot)
{
    return slot == 0 ? g.slots - 1 : slot - 1;
}

/* ------------------------------------------------------------------ forward */

/* For 16-bit numbers the mean can go into the shift: what that loses is far below their
 * rounding. */
template <class T> constexpr bool FOLDS = sizeof(T) == 2;

/* s, q: the sums of x - shift and of their squares. Returns the slot behind the last row's. */
template <class T, int V>
DEV_INLINE int sum_rows(const struct cols &g, const struct lane &l, const void *from,
                        const struct tape<T, V> &xs, const float (&shift)[V], float (&s)[V],
                        float (&q)[V])
{
    int slot = 0, next = g.ahead == g.slots ? 0 : g.ahead;

    for (int r = 0; r < AHEAD; r++) {
        if (r < l.n && r < g.ahead)
            xs.fetch(r, from, l.at + r * l.step);
        __pipeline_commit();
    }
    for (int r = 0; r < l.n; r++) {
        vec<T, V> x;

        wait_for_row(g);
        x = xs[slot];
        if (r + g.ahead < l.n)
            xs.fetch(next, from, l.at + (r + g.ahead) * l.step);
        __pipeline_commit();
        slot = slot_after(g, slot);
        next = slot_after(g, next);
#pragma unroll
        for (int i = 0; i < V; i++) {
            const float d = to_f(x.v[i]) - shift[i];

            s[i] += d;
            q[i] = fmaf(d, d, q[i]);
        }
    }
    return slot;
}

/* From the last row to the first; AHEAD rows of the residual are under way. */
template <class T, int V, bool RESIDUAL>
DEV_INLINE void write_rows(const struct cols &g, const struct lane &l,
                           const struct k_bn_train_args &a, const struct tape<T, V> &xs,
                           const struct tape<T, V> &residuals, int slot, const float4 (&numbers)[V])
{
    float mean[V], gain[V], shift[V];

#pragma unroll
    for (int i = 0; i < V; i++) {
        mean[i] = FOLDS<T> ? 0 : numbers[i].x;
        gain[i] = numbers[i].y;
        shift[i] = FOLDS<T> ? fmaf(-numbers[i].x, gain[i], numbers[i].z) : numbers[i].z;
    }
    for (int k = 0, r = l.n - 1; r >= 0; k++, r--) {
        vec<T, V> x, residual;
        float y[V];

        slot = slot_before(g, slot);
        wait_for_row(g);
        x = xs[slot];
        if (RESIDUAL)
            residual = residuals[k % AHEAD];
        if (r >= g.slots)
            xs.fetch(slot, a.x, l.at + (r - g.slots) * l.step);
        if (RESIDUAL && r >= AHEAD)
            residuals.fetch(k % AHEAD, a.residual, l.at + (r - AHEAD) * l.step);
        __pipeline_commit();
#pragma unroll
        for (int i = 0; i < V; i++) {
            y[i] = fmaf(to_f(x.v[i]) - mean[i], gain[i], shift[i]);
            if (RESIDUAL)
                y[i] += to_f(residual.v[i]);
        }
        activate<V>(a, y);
        store_f<V>((T *)a.y + l.at + r * l.step, y);
    }
}

template <class T, int V, bool RESIDUAL>
__global__ __launch_bounds__(TRAIN_THREADS, 1) void bn_train(struct cols g,
                                                             struct k_bn_train_args a, float2 *part)
{
    extern __shared__ __align__(16) unsigned char smem[];
    union front *const front = reinterpret_cast<union front *>(smem);
    unsigned char *rest = smem + front_bytes(V << g.log_tx);
    const struct tape<T, V> xs(&rest, g.slots), residuals(&rest, AHEAD);
    const struct lane l = lane_of<V, TRAIN_THREADS>(g, true);
    struct own own = {.ch = finishes<V>(g)};
    float shift[V], s[V], q[V];
    float4 numbers[V];
    int slot;

    if (own.ch >= 0) {
        own.scale = a.scale[own.ch];
        own.bias = a.bias[own.ch];
        own.at0 = to_f(((const T *)a.x)[own.ch]);
    }
#pragma unroll
    for (int i = 0; i < V; i++)
        shift[i] = s[i] = q[i] = 0;
    if (l.n > 0)
        load_f<V>((const T *)a.x + l.ch, shift);
    slot = sum_rows<T, V>(g, l, a.x, xs, shift, s, q);
    for (int r = 0; r < AHEAD; r++) {
        if (RESIDUAL && r < l.n)
            residuals.fetch(r, a.residual, l.at + (l.n - 1 - r) * l.step);
        __pipeline_commit();
    }
    meet<V>(
        g, s, q, front, part,
        [&](double2 sum) { return finish_stats(a, own, (double)g.rows, sum, blockIdx.y == 0); },
        numbers);
    write_rows<T, V, RESIDUAL>(g, l, a, xs, residuals, slot, numbers);
}

/* ------------------------------------------------------------------ backward */

/* The tapes of the gradient: x and d_y, or the masked gradient, of which rows stay; d_y2 and y. */
template <class T, int V, int MASK, bool EXTRA> struct bwd_tapes {
    struct tape<T, V> x, d, y, dy2; /* the last of them if there is one */

    DEV_INLINE bwd_tapes(unsigned char *smem, const struct cols &g)
        : x(&smem, g.slots), d(&smem, g.slots), y(&smem, MASK == MASK_Y ? AHEAD : 0),
          dy2(&smem, AHEAD)
    {
    }
    DEV_INLINE void fetch(const struct k_bn_bwd_args &a, int slot, int r, int64_t at) const
    {
        x.fetch(slot, a.x, at);
        d.fetch(slot, a.d_y, at);
        if (EXTRA && a.d_y2)
            dy2.fetch(r % AHEAD, a.d_y2, at);
        if (MASK == MASK_Y)
            y.fetch(r % AHEAD, a.y, at);
    }
    DEV_INLINE struct bwd_in<T, V> row(const struct k_bn_bwd_args &a, int slot, int r) const {
        struct bwd_in<T, V> in;

        in.x = x[slot];
        in.dy = d[slot];
        if (EXTRA && a.d_y2)
            in.dy2 = dy2[r % AHEAD];
        if (MASK == MASK_Y)
            in.y = y[r % AHEAD];
        return in;
    }
};

template <int V, int MASK>
DEV_INLINE void load_coefs(const struct k_bn_bwd_args &a, const struct lane &l, float (&mean)[V],
                           float (&gain)[V], float (&bias)[V])
{
    float inv[V];

#pragma unroll
    for (int i = 0; i < V; i++)
        mean[i] = gain[i] = bias[i] = inv[i] = 0;
    if (l.n > 0)
        load_f<V>(a.mean + l.ch, mean);
    if (l.n > 0 && MASK == MASK_AGAIN) {
        load_f<V>(a.scale + l.ch, gain);
        load_f<V>(a.invstd + l.ch, inv);
        load_f<V>(a.bias + l.ch, bias);
    }
#pragma unroll
    for (int i = 0; i < V; i++)
        gain[i] *= inv[i];
}

/* s, q: the sums of the masked gradient d, and of d (x - mean); d stays in the place of d_y. EXTRA:
 * what does not stay, or is a result, is written to d_to. Returns the slot behind the last
 * row's. */
template <class T, int V, int MASK, bool EXTRA>
DEV_INLINE int sum_masked(const struct cols &g, const struct lane &l, const struct k_bn_bwd_args &a,
                          const struct bwd_tapes<T, V, MASK, EXTRA> &tapes, T *d_to,
                          const float (&mean)[V], const float (&gain)[V], const float (&bias)[V],
                          float (&s)[V], float (&q)[V])
{
    int slot = 0, next = g.ahead == g.slots ? 0 : g.ahead;

    for (int r = 0; r < AHEAD; r++) {
        if (r < l.n && r < g.ahead)
            tapes.fetch(a, r, r, l.at + r * l.step);
        __pipeline_commit();
    }
    for (int r = 0; r < l.n; r++) {
        const int64_t at = l.at + r * l.step;
        struct bwd_in<T, V> in;
        float x0[V], d[V];

        wait_for_row(g);
        in = tapes.row(a, slot, r);
#pragma unroll
        for (int i = 0; i < V; i++)
            x0[i] = to_f(in.x.v[i]) - mean[i];
        masked<T, V, MASK, EXTRA>(a, in, x0, gain, bias, d);
#pragma unroll
        for (int i = 0; i < V; i++) {
            s[i] += d[i];
            q[i] = fmaf(d[i], x0[i], q[i]);
        }
        if (EXTRA || MASK != MASK_NONE) {
            const vec<T, V> out = vec_of_grad<T>(d);

            tapes.d[slot] = out;
            if (EXTRA && (a.d_residual || r + g.slots < l.n))
                store_vec<V>(d_to + at, out);
        }
        if (r + g.ahead < l.n)
            tapes.fetch(a, next, r + g.ahead, at + g.ahead * l.step);
        __pipeline_commit();
        slot = slot_after(g, slot);
        next = slot_after(g, next);
    }
    return slot;
}

/* From the last row to the first. again: where a gradient that did not stay is read from; MASK: it
 * is still to be masked. */
template <class T, int V, int MASK>
DEV_INLINE void
write_gradient(const struct cols &g, const struct lane &l, const struct k_bn_bwd_args &a,
               const struct tape<T, V> &xs, const struct tape<T, V> &ds, const void *again,
               int slot, const float (&mean)[V], const float (&bias)[V], const float4 (&numbers)[V])
{
    float gain[V], slope[V], shift[V];

#pragma unroll
    for (int i = 0; i < V; i++) {
        gain[i] = numbers[i].y;
        slope[i] = numbers[i].z;
        shift[i] = numbers[i].w;
    }
    for (int r = l.n - 1; r >= 0; r--) {
        struct bwd_in<T, V> in;
        float x0[V], d[V];

        slot = slot_before(g, slot);
        wait_for_row(g);
        in.x = xs[slot];
        in.dy = ds[slot];
        if (r >= g.slots) {
            xs.fetch(slot, a.x, l.at + (r - g.slots) * l.step);
            ds.fetch(slot, again, l.at + (r - g.slots) * l.step);
        }
        __pipeline_commit();
#pragma unroll
        for (int i = 0; i < V; i++)
            x0[i] = to_f(in.x.v[i]) - mean[i];
        if (r < l.n - g.slots)
            masked<T, V, MASK, false>(a, in, x0, gain, bias, d);
        else
            masked<T, V, MASK_NONE, false>(a, in, x0, gain, bias, d);
#pragma unroll
        for (int i = 0; i < V; i++)
            d[i] = fmaf(slope[i], x0[i], fmaf(gain[i], d[i], shift[i]));
        store_grad<V>((T *)a.d_x + l.at + r * l.step, d);
    }
}

/* EXTRA: there is a d_y2, a d_residual or a y. The first walk then writes the masked gradient, as
 * d_residual or for the second walk into d_x, which that overwrites. Otherwise what did not stay is
 * masked again. */
template <class T, int V, int MASK, bool EXTRA>
__global__ __launch_bounds__(TRAIN_THREADS, 1) void bn_train_bwd(struct cols g,
                                                                 struct k_bn_bwd_args a,
                                                                 float2 *part)
{
    extern __shared__ __align__(16) unsigned char smem[];
    union front *const front = reinterpret_cast<union front *>(smem);
    const struct bwd_tapes<T, V, MASK, EXTRA> tapes(smem + front_bytes(V << g.log_tx), g);
    const struct lane l = lane_of<V, TRAIN_THREADS>(g, true);
    T *const d_to = (T *)(a.d_residual ? a.d_residual : a.d_x);
    const void *const again = EXTRA ? d_to : a.d_y;
    struct own own = {.ch = finishes<V>(g)};
    float mean[V], gain[V], bias[V], s[V], q[V];
    float4 numbers[V];
    int slot;

    if (own.ch >= 0) {
        own.scale = a.scale[own.ch];
        own.mean = a.mean[own.ch];
        own.invstd = a.invstd[own.ch];
    }
    load_coefs<V, MASK>(a, l, mean, gain, bias);
#pragma unroll
    for (int i = 0; i < V; i++)
        s[i] = q[i] = 0;
    slot = sum_masked<T, V, MASK, EXTRA>(g, l, a, tapes, d_to, mean, gain, bias, s, q);
    meet<V>(
        g, s, q, front, part,
        [&](double2 sum) { return finish_bwd(a, own, (double)g.rows, sum, blockIdx.y == 0); },
        numbers);
    write_gradient<T, V, EXTRA ? MASK_NONE : MASK>(g, l, a, tapes.x, tapes.d, again, slot, mean,
                                                   bias, numbers);
}

/* ------------------------------------------------------------------ launchers */

static struct cols train_cols(const struct k_bn *g)
{
    return cols_of(g, vector_of(g), TRAIN_THREADS, 1);
}

/* part[gx][gy][WIDTH] */
size_t k_bn_scratch_bytes(const struct k_bn *g)
{
    const struct cols t = train_cols(g);

    return g->is_last ? ((size_t)t.gx * t.gy * vector_of(g) << t.log_tx) * sizeof(float2) : 0;
}

/* Shared memory of a block that has slots for so many rows; vec_bytes: what a thread has of one. */
static int smem_of(const struct k_bn *b, const struct cols &g, int rows, int vec_bytes)
{
    return front_bytes(vector_of(b) << g.log_tx) + rows * TRAIN_THREADS * vec_bytes;
}

/* Rows of each of `kept` tensors that can stay, while rows of `passing` others pass through. */
static int room_of(const struct k_bn *b, const struct cols &g, int kept, int passing, int vec_bytes)
{
    return (b->smem_max - smem_of(b, g, passing * AHEAD, vec_bytes)) /
           (kept * TRAIN_THREADS * vec_bytes);
}

bool k_bn_has_room(const struct k_bn *b)
{
    return !b->is_last || room_of(b, train_cols(b), 2, 2, vector_of(b) > 1 ? 16 : 4) >= 1;
}

template <class A>
static void launch_train(cudaStream_t s, const struct k_bn *b,
                         void (*kernel)(struct cols, A, float2 *), const A *a, int kept,
                         int passing, int vec_bytes)
{
    struct cols g = train_cols(b);
    const int room = room_of(b, g, kept, passing, vec_bytes);
    cudaLaunchAttribute attr = {};
    cudaLaunchConfig_t conf = {};

    g.slots = g.most < room ? g.most : room;
    g.ahead = g.slots < g.most && g.slots < AHEAD ? g.slots : AHEAD;
    attr.id = cudaLaunchAttributeCooperative;
    attr.val.cooperative = 1;
    conf.gridDim = dim3(g.gx, g.gy);
    conf.blockDim = dim3(TRAIN_THREADS);
    conf.dynamicSmemBytes = (size_t)smem_of(b, g, passing * AHEAD + kept * g.slots, vec_bytes);
    conf.stream = s;
    conf.attrs = &attr;
    conf.numAttrs = g.gy > 1;
    cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, b->smem_max);
    cudaLaunchKernelEx(&conf, kernel, g, *a, (float2 *)a->scratch);
}

void k_bn_train(cudaStream_t s, const struct k_bn *g, const struct k_bn_train_args *a)
{
    if (!g->is_last) {
        bn_planes(s, g, a);
        return;
    }
    DISPATCH_FLOAT(g->type, T, WITH_VECTOR(g, T, V, {
                       if (a->residual)
                           launch_train(s, g, bn_train<T, V, true>, a, 1, 1, sizeof(T) * V);
                       else
                           launch_train(s, g, bn_train<T, V, false>, a, 1, 0, sizeof(T) * V);
                   }));
}

template <class T, int V, int MASK>
static void launch_bwd(cudaStream_t s, const struct k_bn *g, const struct k_bn_bwd_args *a)
{
    constexpr bool WITH_Y = MASK == MASK_Y;
    const int passing = (a->d_y2 != NULL) + WITH_Y;

    if (WITH_Y || a->d_y2 || a->d_residual)
        launch_train(s, g, bn_train_bwd<T, V, MASK, true>, a, 2, passing, sizeof(T) * V);
    else
        launch_train(s, g, bn_train_bwd<T, V, MASK, WITH_Y>, a, 2, 0, sizeof(T) * V);
}

void k_bn_train_bwd(cudaStream_t s, const struct k_bn *g, const struct k_bn_bwd_args *a)
{
    if (!g->is_last) {
        bn_planes_bwd(s, g, a);
        return;
    }
    DISPATCH_FLOAT(g->type, T, WITH_VECTOR(g, T, V, WITH_MASK(a, M, launch_bwd<T, V, M>(s, g, a))));
}
