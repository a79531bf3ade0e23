/* bn.cu - batch normalisation: training, its gradients, inference.
 *
 * Channels last (also [N, C]): a matrix of rows x channels. A thread owns V channels (16 bytes) and
 * walks over rows, so that a warp reads whole lines; blocks share the rows. Statistics are sums of
 * x - x[row 0], which keeps the variance exact where the mean is large; short chains in F32, then
 * every block adds the sums of all, in one order and in F64, and derives what it needs of its
 * channels.
 *
 * Training and its gradient are one kernel each. All its blocks are on the device at once (a
 * cooperative launch), and wait for each other between the sums and a second walk that writes. What
 * a thread has read stays in shared memory, as many rows as there is room for: 28 MB on 132
 * multiprocessors, so most tensors are read once. The first walk starts at the end (what was written
 * last is still in the L2 cache), the second goes back to it. V is 1 where the channels do not
 * divide.
 *
 * Channels first ([N, C, L] as it comes without convolutions): a block for each channel does both.
 *
 * Backward, d_y is first masked by the activation. If that takes more tensors, or the masked
 * gradient is a result of its own, the first walk writes it and the second reads only it.
 */
#include "executor/device/cuda/act.cuh"
#include "executor/device/cuda/grid.cuh"

#include <cuda_pipeline_primitives.h>

#define TRAIN_THREADS 512 /* of the kernels that sum; one block on a multiprocessor */
#define TRAIN_WARPS (TRAIN_THREADS / WARP)
#define SUMS_AT_ONCE 8 /* of the sums of blocks: loads under way */
#define AHEAD 4        /* rows that a thread fetches before it needs them */
#define INFER_THREADS 256
#define INFER_BLOCKS 3

/* ------------------------------------------------------------------ channels last: the matrix */

struct cols {
    int64_t rows;
    int c, log_tx;    /* threads of a block side by side: 2^log_tx */
    int gx, gy;       /* blocks: along channels (at most K_ARRIVALS), along rows */
    int most;         /* rows of a thread; some have one less */
    int slots, ahead; /* of them: that stay in shared memory, that are fetched ahead */
    uint32_t *arrivals;
};

static struct cols cols_of(const struct k_bn *b, int v, int threads, int blocks)
{
    const int vecs = (int)(b->c / v);
    struct cols g = {b->n * b->len, (int)b->c, 5, 1, 1, 1, 0, 0, b->arrivals};
    int64_t rows_at_once;

    /* 128 bytes side by side are enough; idle threads are not wanted. */
    while (g.log_tx > 3 && vecs % (1 << g.log_tx) != 0)
        g.log_tx--;
    if (vecs % (1 << g.log_tx) != 0) {
        g.log_tx = 5;
        while (g.log_tx > 0 && vecs <= 1 << (g.log_tx - 1))
            g.log_tx--;
    }
    /* Each block reads the sums of all blocks of its column: 64 bytes if the columns are few. */
    while (g.log_tx > 2 && cdiv64(vecs, 1 << g.log_tx) < 8)
        g.log_tx--;
    g.gx = (int)cdiv64(vecs, 1 << g.log_tx);
    rows_at_once = threads >> g.log_tx;
    /* All blocks at once: training's wait for each other, and for inference one more would leave
     * the device half empty while it runs. */
    g.gy = b->n_sms * blocks / g.gx;
    if (g.gy > cdiv64(g.rows, rows_at_once))
        g.gy = (int)cdiv64(g.rows, rows_at_once);
    if (g.gy < 1)
        g.gy = 1;
    g.most = (int)cdiv64(g.rows, g.gy * rows_at_once);
    return g;
}

struct lane {         /* what a thread has: V channels of some rows */
    int ch, n;        /* the first channel; how many rows */
    int64_t at, step; /* elements: of the first row, between two rows */
};

/* reverse: from the last row to the first. */
template <int V, int THREADS> DEV_INLINE struct lane lane_of(const struct cols &g, bool reverse)
{
    const int tx = 1 << g.log_tx, ty = (int)threadIdx.x >> g.log_tx;
    const int64_t rows_at_once = THREADS >> g.log_tx, step = gridDim.y * rows_at_once;
    const int64_t row = blockIdx.y * rows_at_once + ty;
    struct lane l;

    l.ch = ((int)blockIdx.x * tx + ((int)threadIdx.x & (tx - 1))) * V;
    l.n = l.ch < g.c && row < g.rows ? g.most - (row + (g.most - 1) * step >= g.rows) : 0;
    l.at = (reverse ? g.rows - 1 - row : row) * g.c + l.ch;
    l.step = (reverse ? -step : step) * g.c;
    return l;
}

/* ------------------------------------------------------------------ sums over all blocks */

/* The front of the shared memory, for the WIDTH = V * tx channels of a block: the sums of the warps;
 * then those of groups of threads over blocks, and what is derived of each channel. Channel V * x + i
 * is at i * tx + x, so that neighbouring threads meet different banks. */
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
DEV_INLINE void sum_block(const struct cols &g, float (&s)[V], float (&q)[V], union front *smem,
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

/* Between the two walks: calls finish() with the sums over all blocks in each thread that finishes a
 * channel; numbers: what it returned for the channels that this thread walks over. */
template <int V, class F>
DEV_INLINE void meet(const struct cols &g, float (&s)[V], float (&q)[V], union front *smem,
                     float2 *part, F finish, float4 (&numbers)[V])
{
    const int at = (int)threadIdx.x, tx = 1 << g.log_tx, width = V << g.log_tx;
    float2 *const column = part + (int64_t)blockIdx.x * g.gy * width;
    double2 sum;

    sum_block<V>(g, s, q, smem, column + blockIdx.y * width);
    wait_for_all(&g.arrivals[blockIdx.x], gridDim.y);
    sum = sum_blocks(g, width, smem, column);
    if (finishes<V>(g) >= 0)
        smem->numbers[at] = finish(sum);
    __syncthreads();
#pragma unroll
    for (int i = 0; i < V; i++)
        numbers[i] = smem->numbers[i * tx + at % tx];
}

/* ------------------------------------------------------------------ a channel's numbers */

struct own { /* what a thread that finishes a channel needs of it, read before it waits */
    int ch;
    float scale, bias, at0; /* forward; at0: x[row 0] */
    float mean, invstd;     /* backward */
};

/* x -> y: fma(x - x, y, z) = (x - mean) gain + shift. One of the blocks stores. */
DEV_INLINE float4 finish_stats(const struct k_bn_train_args &a, const struct own &own, double n,
                               double2 sum, bool stores)
{
    const double m = sum.x / n, v = sum.y / n - m * m, var = v < 0 ? 0 : v;
    const double mean = own.at0 + m, inv = rsqrt(var + (double)a.eps), gain = inv * own.scale;
    const float mean_f = (float)mean;

    if (stores) {
        const double unbiased = var * n / (n > 1 ? n - 1 : 1), keep = a.momentum;

        a.mean[own.ch] = mean_f;
        a.invstd[own.ch] = (float)inv;
        a.new_mean[own.ch] = (float)(keep * a.run_mean[own.ch] + (1 - keep) * mean);
        a.new_var[own.ch] = (float)(keep * a.run_var[own.ch] + (1 - keep) * unbiased);
    }
    /* What mean lost when it was rounded goes into the shift. */
    return make_float4(mean_f, (float)gain, (float)(own.bias - (mean - mean_f) * gain), 0);
}

/* d_x = y d + z (x - mean) + w, in the order of float4 with x = mean */
DEV_INLINE float4 finish_bwd(const struct k_bn_bwd_args &a, const struct own &own, double n,
                             double2 sum, bool stores)
{
    const double inv = own.invstd, gain = own.scale * inv, each = gain / n;

    if (stores) {
        a.d_bias[own.ch] = (float)sum.x;
        a.d_scale[own.ch] = (float)(sum.y * inv);
    }
    return make_float4(own.mean, (float)gain, (float)(-each * inv * inv * sum.y),
                       (float)(-each * sum.x));
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

/* ------------------------------------------------------------------ channels last: forward */

/* For 16-bit numbers the mean can go into the shift: what that loses is far below their rounding. */
template <class T> constexpr bool FOLDS = sizeof(T) == 2;

template <class T, int V, bool RESIDUAL>
__global__ __launch_bounds__(TRAIN_THREADS, 1) void bn_train(struct cols g,
                                                             struct k_bn_train_args a, float2 *part)
{
    extern __shared__ __align__(16) unsigned char smem[];
    union front *const front = reinterpret_cast<union front *>(smem);
    unsigned char *rest = smem + front_bytes(V << g.log_tx);
    const struct tape<T, V> xs(&rest, g.slots), residuals(&rest, AHEAD);
    const struct lane l = lane_of<V, TRAIN_THREADS>(g, true);
    int slot = 0, next = g.ahead == g.slots ? 0 : g.ahead;
    float mean[V], gain[V], shift[V], s[V], q[V];
    struct own own = {.ch = finishes<V>(g)};
    float4 numbers[V];

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
    for (int r = 0; r < AHEAD; r++) {
        if (r < l.n && r < g.ahead)
            xs.fetch(r, a.x, l.at + r * l.step);
        __pipeline_commit();
    }
    for (int r = 0; r < l.n; r++) {
        vec<T, V> x;

        wait_for_row(g);
        x = xs[slot];
        if (r + g.ahead < l.n)
            xs.fetch(next, a.x, l.at + (r + g.ahead) * l.step);
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
    for (int r = 0; r < AHEAD; r++) {
        if (RESIDUAL && r < l.n)
            residuals.fetch(r, a.residual, l.at + (l.n - 1 - r) * l.step);
        __pipeline_commit();
    }
    meet<V>(
        g, s, q, front, part,
        [&](double2 sum) { return finish_stats(a, own, (double)g.rows, sum, blockIdx.y == 0); },
        numbers);
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
            y[i] = act_clamp(y[i], a.lo, a.hi);
        }
        store_f<V>((T *)a.y + l.at + r * l.step, y);
    }
}

/* ------------------------------------------------------------------ channels last: backward */

enum mask {
    MASK_NONE,
    MASK_Y,    /* by y */
    MASK_AGAIN /* by (x - mean) gain + bias */
};

template <class T, int V> struct bwd_in { /* one row of a thread */
    vec<T, V> x, dy, dy2, y;
};

/* The masked gradient, rounded as it is stored; x0: x - mean. EXTRA: there may be a d_y2. */
template <class T, int V, int MASK, bool EXTRA>
DEV_INLINE void masked(const struct k_bn_bwd_args &a, const struct bwd_in<T, V> &in,
                       const float (&x0)[V], const float (&gain)[V], const float (&bias)[V],
                       float (&d)[V])
{
#pragma unroll
    for (int i = 0; i < V; i++) {
        d[i] = to_f(in.dy.v[i]);
        if (EXTRA && a.d_y2)
            d[i] = to_f(from_f<T>(d[i] + to_f(in.dy2.v[i])));
        if (MASK != MASK_NONE) {
            const float v = MASK == MASK_Y ? to_f(in.y.v[i]) : fmaf(x0[i], gain[i], bias[i]);

            d[i] = v > a.lo && v < a.hi ? d[i] : 0;
        }
    }
}

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

/* The first walk leaves the masked gradient in shared memory. EXTRA: there is a d_y2, a d_residual
 * or a y; then it writes that, too, as d_residual or for the second walk into d_x, which that
 * overwrites. Otherwise what did not stay is masked again. */
template <class T, int V, int MASK, bool EXTRA>
__global__ __launch_bounds__(TRAIN_THREADS, 1) void bn_train_bwd(struct cols g,
                                                                 struct k_bn_bwd_args a,
                                                                 float2 *part)
{
    constexpr int AGAIN = EXTRA ? MASK_NONE : MASK;
    extern __shared__ __align__(16) unsigned char smem[];
    union front *const front = reinterpret_cast<union front *>(smem);
    const struct bwd_tapes<T, V, MASK, EXTRA> tapes(smem + front_bytes(V << g.log_tx), g);
    const struct lane l = lane_of<V, TRAIN_THREADS>(g, true);
    T *const masked_to = (T *)(a.d_residual ? a.d_residual : a.d_x);
    const void *const again = EXTRA ? masked_to : a.d_y;
    int slot = 0, next = g.ahead == g.slots ? 0 : g.ahead;
    float mean[V], gain[V], bias[V], slope[V], shift[V], s[V], q[V];
    struct own own = {.ch = finishes<V>(g)};
    float4 numbers[V];

    if (own.ch >= 0) {
        own.scale = a.scale[own.ch];
        own.mean = a.mean[own.ch];
        own.invstd = a.invstd[own.ch];
    }

#pragma unroll
    for (int i = 0; i < V; i++)
        mean[i] = gain[i] = bias[i] = s[i] = q[i] = 0;
    if (l.n > 0)
        load_f<V>(a.mean + l.ch, mean);
    if (l.n > 0 && MASK == MASK_AGAIN) {
        float inv[V];

        load_f<V>(a.scale + l.ch, gain);
        load_f<V>(a.invstd + l.ch, inv);
        load_f<V>(a.bias + l.ch, bias);
#pragma unroll
        for (int i = 0; i < V; i++)
            gain[i] *= inv[i];
    }
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
            const vec<T, V> out = vec_from_f<T>(d);

            tapes.d[slot] = out;
            if (EXTRA && (a.d_residual || r + g.slots < l.n))
                store_vec<V>(masked_to + at, out);
        }
        if (r + g.ahead < l.n)
            tapes.fetch(a, next, r + g.ahead, at + g.ahead * l.step);
        __pipeline_commit();
        slot = slot_after(g, slot);
        next = slot_after(g, next);
    }
    meet<V>(
        g, s, q, front, part,
        [&](double2 sum) { return finish_bwd(a, own, (double)g.rows, sum, blockIdx.y == 0); },
        numbers);
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
        in.x = tapes.x[slot];
        in.dy = tapes.d[slot];
        if (r >= g.slots) {
            tapes.x.fetch(slot, a.x, l.at + (r - g.slots) * l.step);
            tapes.d.fetch(slot, again, l.at + (r - g.slots) * l.step);
        }
        __pipeline_commit();
#pragma unroll
        for (int i = 0; i < V; i++)
            x0[i] = to_f(in.x.v[i]) - mean[i];
        if (r < l.n - g.slots)
            masked<T, V, AGAIN, false>(a, in, x0, gain, bias, d);
        else
            masked<T, V, MASK_NONE, false>(a, in, x0, gain, bias, d);
#pragma unroll
        for (int i = 0; i < V; i++)
            d[i] = fmaf(slope[i], x0[i], fmaf(gain[i], d[i], shift[i]));
        store_f<V>((T *)a.d_x + l.at + r * l.step, d);
    }
}

/* ------------------------------------------------------------------ channels first */

/* Walks over the n * len elements of channel blockIdx.x in steps of the block. */
struct walk {
    int64_t n, l, dn, dl, len, stride;
    DEV_INLINE walk(const struct k_bn &g)
        : n(threadIdx.x / g.len), l(threadIdx.x % g.len), dn(TRAIN_THREADS / g.len),
          dl(TRAIN_THREADS % g.len), len(g.len), stride(g.c * g.len)
    {
    }
    DEV_INLINE int64_t at() const
    {
        return n * stride + (int64_t)blockIdx.x * len + l;
    }
    DEV_INLINE void next()
    {
        n += dn;
        l += dl;
        if (l >= len) {
            l -= len;
            n++;
        }
    }
};

template <class T>
__global__ __launch_bounds__(TRAIN_THREADS) void bn_planes(struct k_bn g, struct k_bn_train_args a)
{
    __shared__ double smem[TRAIN_THREADS / WARP];
    __shared__ float4 numbers;
    const int ch = (int)blockIdx.x;
    const T *const x = (const T *)a.x, *const residual = (const T *)a.residual;
    const float shift = to_f(x[(int64_t)ch * g.len]);
    double s = 0, q = 0;

    for (walk w(g); w.n < g.n; w.next()) {
        const float d = to_f(x[w.at()]) - shift;

        s += d;
        q += (double)d * d;
    }
    s = block_sum<TRAIN_THREADS>(s, smem);
    q = block_sum<TRAIN_THREADS>(q, smem);
    if (threadIdx.x == 0)
        numbers = finish_stats(a, {ch, a.scale[ch], a.bias[ch], shift}, (double)(g.n * g.len),
                               make_double2(s, q), true);
    __syncthreads();
    for (walk w(g); w.n < g.n; w.next()) {
        float v = fmaf(to_f(x[w.at()]) - numbers.x, numbers.y, numbers.z);

        if (residual)
            v += to_f(residual[w.at()]);
        ((T *)a.y)[w.at()] = from_f<T>(act_clamp(v, a.lo, a.hi));
    }
}

template <class T, int MASK>
DEV_INLINE float masked_one(const struct k_bn_bwd_args &a, int64_t at, float x0, float gain,
                            float bias)
{
    const float x0s[1] = {x0}, gains[1] = {gain}, biases[1] = {bias};
    struct bwd_in<T, 1> in;
    float d[1];

    in.dy.v[0] = ((const T *)a.d_y)[at];
    if (a.d_y2)
        in.dy2.v[0] = ((const T *)a.d_y2)[at];
    if (MASK == MASK_Y)
        in.y.v[0] = ((const T *)a.y)[at];
    masked<T, 1, MASK, true>(a, in, x0s, gains, biases, d);
    return d[0];
}

template <class T, int MASK>
__global__ __launch_bounds__(TRAIN_THREADS) void bn_planes_bwd(struct k_bn g,
                                                               struct k_bn_bwd_args a)
{
    __shared__ double smem[TRAIN_THREADS / WARP];
    __shared__ float4 numbers;
    const int ch = (int)blockIdx.x;
    const T *const x = (const T *)a.x;
    const float mean = a.mean[ch], gain = a.scale[ch] * a.invstd[ch];
    const float bias = MASK == MASK_AGAIN ? a.bias[ch] : 0;
    double s = 0, q = 0;

    for (walk w(g); w.n < g.n; w.next()) {
        const float x0 = to_f(x[w.at()]) - mean;
        const float d = masked_one<T, MASK>(a, w.at(), x0, gain, bias);

        s += d;
        q += (double)d * x0;
    }
    s = block_sum<TRAIN_THREADS>(s, smem);
    q = block_sum<TRAIN_THREADS>(q, smem);
    if (threadIdx.x == 0)
        numbers = finish_bwd(a, {ch, a.scale[ch], 0, 0, mean, a.invstd[ch]}, (double)(g.n * g.len),
                             make_double2(s, q), true);
    __syncthreads();
    for (walk w(g); w.n < g.n; w.next()) {
        const float x0 = to_f(x[w.at()]) - mean;
        const float d = masked_one<T, MASK>(a, w.at(), x0, gain, bias);

        ((T *)a.d_x)[w.at()] = from_f<T>(fmaf(numbers.z, x0, fmaf(numbers.y, d, numbers.w)));
        if (a.d_residual)
            ((T *)a.d_residual)[w.at()] = from_f<T>(d);
    }
}

/* ------------------------------------------------------------------ inference */

template <class T, int V>
__global__ __launch_bounds__(INFER_THREADS, INFER_BLOCKS) void bn_infer(struct cols g,
                                                                        struct k_bn_infer_args a)
{
    struct lane l = lane_of<V, INFER_THREADS>(g, false);
    const struct act_of act = {a.act, a.p0, a.p1};
    float mean[V], gain[V], shift[V];

    if (l.n == 0)
        return;
#pragma unroll
    for (int i = 0; i < V; i++) {
        mean[i] = a.mean[l.ch + i];
        gain[i] = a.scale[l.ch + i] / sqrtf(a.var[l.ch + i] + a.eps);
        shift[i] = a.bias[l.ch + i];
    }
#pragma unroll 2
    for (; l.n > 0; l.n--, l.at += l.step) {
        float v[V];

        load_f<V>((const T *)a.x + l.at, v);
#pragma unroll
        for (int i = 0; i < V; i++)
            v[i] = fmaf(v[i] - mean[i], gain[i], shift[i]);
        apply_act<V>(act, v);
        store_f<V>((T *)a.y + l.at, v);
    }
}

template <class T>
__global__ __launch_bounds__(INFER_THREADS) void bn_infer_planes(struct k_bn g,
                                                                 struct k_bn_infer_args a)
{
    const struct act_of act = {a.act, a.p0, a.p1};
    const int64_t total = g.n * g.c * g.len, step = (int64_t)gridDim.x * INFER_THREADS;

    for (int64_t i = (int64_t)blockIdx.x * INFER_THREADS + threadIdx.x; i < total; i += step) {
        const int64_t ch = i / g.len % g.c;
        const float gain = a.scale[ch] / sqrtf(a.var[ch] + a.eps);
        float v[1] = {fmaf(to_f(((const T *)a.x)[i]) - a.mean[ch], gain, a.bias[ch])};

        apply_act<1>(act, v);
        ((T *)a.y)[i] = from_f<T>(v[0]);
    }
}

/* ------------------------------------------------------------------ launchers */

static int vector_of(const struct k_bn *g)
{
    const int v = g->type == CUDA_T_F32 ? 4 : 8;

    return g->c % v == 0 ? v : 1;
}

/* V of the kernels: a whole vector or one channel. */
#define WITH_VECTOR(g, T, V, ...) \
    if (vector_of(g) > 1) {       \
        constexpr int V = VEC<T>; \
        __VA_ARGS__;              \
    } else {                      \
        constexpr int V = 1;      \
        __VA_ARGS__;              \
    }

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

/* kept, passing: the tensors of which rows stay in shared memory, or pass through it; vec_bytes:
 * what a thread has of a row. */
template <class A>
static void launch_train(cudaStream_t s, const struct k_bn *b,
                         void (*kernel)(struct cols, A, float2 *), const A *a, int kept,
                         int passing, size_t vec_bytes)
{
    struct cols g = train_cols(b);
    const int row = TRAIN_THREADS * (int)vec_bytes, front = front_bytes(vector_of(b) << g.log_tx);
    const int room = (b->smem_max - front - passing * AHEAD * row) / (kept * row);
    cudaLaunchAttribute attr = {};
    cudaLaunchConfig_t conf = {};

    g.slots = g.most < room ? g.most : room;
    g.ahead = g.slots < g.most && g.slots < AHEAD ? g.slots : AHEAD;
    attr.id = cudaLaunchAttributeCooperative;
    attr.val.cooperative = 1;
    conf.gridDim = dim3(g.gx, g.gy);
    conf.blockDim = dim3(TRAIN_THREADS);
    conf.dynamicSmemBytes = (size_t)(front + (passing * AHEAD + kept * g.slots) * row);
    conf.stream = s;
    conf.attrs = &attr;
    conf.numAttrs = g.gy > 1;
    cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, b->smem_max);
    cudaLaunchKernelEx(&conf, kernel, g, *a, (float2 *)a->scratch);
}

void k_bn_train(cudaStream_t s, const struct k_bn *g, const struct k_bn_train_args *a)
{
    if (!g->is_last) {
        DISPATCH_FLOAT(g->type, T, bn_planes<T><<<(unsigned)g->c, TRAIN_THREADS, 0, s>>>(*g, *a));
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

#define WITH_MASK(a, M, ...)          \
    if (!(a)->has_act) {              \
        constexpr int M = MASK_NONE;  \
        __VA_ARGS__;                  \
    } else if ((a)->y) {              \
        constexpr int M = MASK_Y;     \
        __VA_ARGS__;                  \
    } else {                          \
        constexpr int M = MASK_AGAIN; \
        __VA_ARGS__;                  \
    }

void k_bn_train_bwd(cudaStream_t s, const struct k_bn *g, const struct k_bn_bwd_args *a)
{
    if (!g->is_last) {
        DISPATCH_FLOAT(g->type, T, WITH_MASK(a, M, {
                           bn_planes_bwd<T, M><<<(unsigned)g->c, TRAIN_THREADS, 0, s>>>(*g, *a);
                       }));
        return;
    }
    DISPATCH_FLOAT(g->type, T, WITH_VECTOR(g, T, V, WITH_MASK(a, M, launch_bwd<T, V, M>(s, g, a))));
}

void k_bn_infer(cudaStream_t s, const struct k_bn *g, const struct k_bn_infer_args *a)
{
    const struct cols e = cols_of(g, vector_of(g), INFER_THREADS, INFER_BLOCKS);
    const int64_t total = g->n * g->c * g->len, blocks = cdiv64(total, INFER_THREADS);

    if (g->is_last) {
        DISPATCH_FLOAT(g->type, T, WITH_VECTOR(g, T, V, {
                           bn_infer<T, V><<<dim3(e.gx, e.gy), INFER_THREADS, 0, s>>>(e, *a);
                       }));
        return;
    }
    DISPATCH_FLOAT(g->type, T,
                   bn_infer_planes<T>
                   <<<(unsigned)(blocks < 65536 ? blocks : 65536), INFER_THREADS, 0, s>>>(*g, *a));
}
