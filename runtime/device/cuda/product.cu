// product.cu - convolutions and products of 8-bit integers, with all that follows in one kernel.
//
//   tiles   a convolution as a product of matrices: rows are pixels of the result, columns its
//           channels, and the sum runs over taps and channels of x. A block computes BM x BN
//           results. Its threads copy a slice of BK terms of each of its pixels and channels into
//           shared memory (cp.async, several slices ahead), where the matrix units read them
//           (wgmma); nothing is laid out in device memory before.
//   stream  the same without a window: slices are tiles of two matrices, which the copy unit
//           brings (tma.cuh)
//   any     a thread for each result: groups, and devices without wgmma
//
// Channels lie in a stage in such an order that a thread has the sums of neighbouring ones
// (channel_at); what becomes of them is in product_results.cuh.
//
// Sums are exact, in I32. They begin at what the zero point of x adds up to, so padding is read as
// that zero point. All tensors channels-last, weights [m][r][s][c].
#include "runtime/device/cuda/product_results.cuh"
#include "runtime/device/cuda/tma.cuh"
#include "runtime/device/cuda/wgmma.cuh"

static shape shape_of_product(const struct k_product *k)
{
    const struct k_conv *v = &k->conv;
    shape s = {};

    s.rows = (int)(v->n * v->p * v->q);
    s.channels = s.m = (int)v->m;
    s.taps = (int)(v->r * v->s);
    s.groups = (int)v->groups;
    s.terms = (int)(v->r * v->s * v->c / v->groups);
    s.h = (int)v->h;
    s.w = (int)v->w;
    s.c = (int)v->c;
    s.s = (int)v->s;
    s.p = (int)v->p;
    s.q = (int)v->q;
    s.stride_h = (int)v->stride[0];
    s.stride_w = (int)v->stride[1];
    s.dil_h = (int)v->dilation[0];
    s.dil_w = (int)v->dilation[1];
    s.pad_h = (int)v->pad[0];
    s.pad_w = (int)v->pad[1];
    s.by_c = fast_div_of((uint32_t)(v->c / v->groups));
    s.by_s = fast_div_of((uint32_t)v->s);
    s.by_pq = fast_div_of((uint32_t)(v->p * v->q));
    s.by_q = fast_div_of((uint32_t)v->q);
    s.zero4 = (uint32_t)(uint8_t)k->x_zero * 0x01010101u;
    return s;
}

// ------------------------------------------------------------------ tiles

template <int BYTES> DEV_INLINE void copy_async(uint32_t to, const void *from, bool is_there)
{
    const int n = is_there ? BYTES : 0; // the rest is filled with zeros

    if constexpr (BYTES == 16)
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(n)
                     : "memory");
    else
        asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;" ::"r"(to), "l"(from),
                     "n"(BYTES), "r"(n)
                     : "memory");
}
DEV_INLINE void copy_commit()
{
    asm volatile("cp.async.commit_group;" ::: "memory");
}
template <int n> DEV_INLINE void copy_wait()
{
    asm volatile("cp.async.wait_group %0;" ::"n"(n) : "memory");
}

template <int V> DEV_INLINE void fill_word(uint32_t to, uint32_t word)
{
#pragma unroll
    for (int i = 0; i < V / 4; i++)
        asm volatile("st.shared.u32 [%0], %1;" ::"r"(to + 4 * i), "r"(word) : "memory");
}

#define NOWHERE (INT32_MIN / 2)

struct pixel { // of x: where the window of a row begins, its number and its place
    int at, h, w;
};

DEV_INLINE pixel output_pixel(const shape &s, int row)
{
    const uint32_t n = quotient((uint32_t)row, s.by_pq), rest = (uint32_t)row - n * s.by_pq.d;
    const uint32_t p = quotient(rest, s.by_q), q = rest - p * s.by_q.d;
    const int h = (int)p * s.stride_h - s.pad_h, w = (int)q * s.stride_w - s.pad_w;

    return {((int)n * s.h + h) * s.w + w, row < s.rows ? h : NOWHERE, w};
}

DEV_INLINE bool is_pixel_inside(const shape &s, const pixel &px, int dh, int dw)
{
    return (unsigned)(px.h + dh) < (unsigned)s.h && (unsigned)(px.w + dw) < (unsigned)s.w;
}

// Byte `col` of a row, in rows of 128 whose pieces of 16 are swizzled.
DEV_INLINE uint32_t swizzled(int row, int col)
{
    return (uint32_t)(row * BK + ((col >> 4 ^ row & 7) << 4) + (col & 15));
}

// The channel of the tile that is column n of the matrix unit's product. There a thread has two
// columns of every eight; these become W neighbouring channels of every 4 W.
template <int W> DEV_INLINE int channel_at(int n)
{
    const int rest = n % (4 * W);

    return n - rest + rest % 8 / 2 * W + rest / 8 * 2 + rest % 2;
}

// What a thread copies of each slice: V bytes of every ROWS-th row.
template <int BN, int V, int W> struct copier {
    static constexpr int PER_ROW = BK / V, ROWS = THREADS / PER_ROW;
    static constexpr int PIXELS = BM / ROWS, CHANNELS = (BN + ROWS - 1) / ROWS;
    int piece, first;
    pixel pixels[PIXELS];

    DEV_INLINE copier(const shape &s, int row0)
        : piece(threadIdx.x % PER_ROW * V), first(threadIdx.x / PER_ROW)
    {
#pragma unroll
        for (int i = 0; i < PIXELS; i++)
            pixels[i] = output_pixel(s, row0 + first + i * ROWS);
    }

    DEV_INLINE void load(const shape &s, const uint8_t *x, const int8_t *w, int slice, int column,
                         uint32_t stage) const
    {
        const int term = slice * BK + piece;
        const bool is_term = term < s.terms;
        const int tap = (int)quotient((uint32_t)term, s.by_c), c = term - tap * s.c;
        const int r = (int)quotient((uint32_t)tap, s.by_s);
        const int dh = r * s.dil_h, dw = (tap - r * s.s) * s.dil_w;
        const uint8_t *from = x + (int64_t)(dh * s.w + dw) * s.c + c;

#pragma unroll
        for (int i = 0; i < PIXELS; i++) {
            const bool inside = is_pixel_inside(s, pixels[i], dh, dw);
            const uint32_t to = stage + swizzled(first + i * ROWS, piece);

            if (s.zero4 != 0 && is_term && !inside)
                fill_word<V>(to, s.zero4);
            else
                copy_async<V>(to, inside ? from + (int64_t)pixels[i].at * s.c : x,
                              is_term && inside);
        }
#pragma unroll
        for (int i = 0; i < CHANNELS; i++) {
            const int row = first + i * ROWS, channel = column + channel_at<W>(row);
            const bool is_there = is_term && channel < s.m;

            copy_async<V>(stage + BM * BK + swizzled(row, piece),
                          w + (is_there ? (int64_t)channel * s.terms + term : 0), is_there);
        }
    }
};

template <int BN, int STAGES> struct pipe {
    static constexpr int FIXED = (int)sizeof(side<BN>) + 1024;
    static constexpr int MOST = FIXED + STAGES * tile<BN>::STAGE;
    // On a multiprocessor; a sum of few slices leaves room for a third one that is narrow.
    static constexpr int BLOCKS = BN == 64 ? 3 : MOST <= 113 * 1024 ? 2 : 1;

    // A sum of few slices leaves room for other blocks.
    static int bytes(int slices, bool spills)
    {
        const int stages = (slices < STAGES ? slices : STAGES) * tile<BN>::STAGE;

        return FIXED + (spills && stages < tile<BN>::SUMS ? tile<BN>::SUMS : stages);
    }
};

// ------------------------------------------------------------------ the kernels

DEV_INLINE unsigned char *stages_in(unsigned char *raw, int fixed)
{
    unsigned char *p = raw + fixed - 1024;

    return p + (1024 - ((uint32_t)__cvta_generic_to_shared(p) & 1023)) % 1024;
}

// sum += the products of a slice
template <int BN, bool SIGNED>
DEV_INLINE void multiply(int32_t (&sum)[BN / 2], uint32_t stage, bool is_first)
{
    const int group = threadIdx.x / 128;

#ifdef HAS_WGMMA
    wgmma_begin();
#pragma unroll
    for (int i = 0; i < BK / 32; i++)
        wgmma<BN, SIGNED>(sum, wgmma_tile(stage + group * 64 * BK + 32 * i),
                          wgmma_tile(stage + BM * BK + 32 * i), !is_first || i > 0);
    wgmma_commit();
#endif
}

// All products are done, and nothing that reads sums may be moved before this.
template <int N> DEV_INLINE void finish_sums(int32_t (&sum)[N])
{
#ifdef HAS_WGMMA
    wgmma_wait<0>();
#pragma unroll
    for (int i = 0; i < N; i++)
        asm volatile("" : "+r"(sum[i])::"memory");
#endif
}

template <int BN, int STAGES, int V, bool SIGNED, int W>
static __global__ void __launch_bounds__(THREADS, V == 4 ? 1 : pipe<BN, STAGES>::BLOCKS)
    tiles_kernel(const __grid_constant__ shape s, const __grid_constant__ tail t, const uint8_t *x,
                 const int8_t *w)
{
#ifdef HAS_WGMMA
    extern __shared__ __align__(16) unsigned char raw[];
    side<BN> &own = *reinterpret_cast<side<BN> *>(raw);
    unsigned char *memory = stages_in(raw, pipe<BN, STAGES>::FIXED);
    const uint32_t base = (uint32_t)__cvta_generic_to_shared(memory);
    const int columns = (s.m + BN - 1) / BN, slices = (s.terms + BK - 1) / BK;
    const int row0 = blockIdx.x / columns * BM, column0 = blockIdx.x % columns * BN;
    const copier<BN, V, W> copier(s, row0);
    const mine<BN, W> m(s, row0, column0);
    residuals<BN, W> residual;
    int32_t sum[BN / 2];

#pragma unroll
    for (int k = 0; k < STAGES - 2; k++) {
        if (k < slices)
            copier.load(s, x, w, k, column0, base + k * tile<BN>::STAGE);
        copy_commit();
    }
    if constexpr (W > 2) {
        load_vectors<BN, W>(s, t, column0, own);
    }
    // A slice is loaded into the stage of the one before the last: the barrier between says that
    // all warps have waited for the products of that.
#pragma unroll 1
    for (int k = 0; k < slices; k++) {
        const int next = k + STAGES - 2;

        copy_wait<STAGES - 3>();
        fence_for_wgmma();
        __syncthreads();
        multiply<BN, SIGNED>(sum, base + k % STAGES * tile<BN>::STAGE, k == 0);
        wgmma_wait<1>();
        if (next < slices)
            copier.load(s, x, w, next, column0, base + next % STAGES * tile<BN>::STAGE);
        copy_commit();
    }
    if constexpr (W > 2)
        residual.load(s, t, m);
    finish_sums(sum);
    copy_wait<0>();
    if constexpr (W > 2) {
        finish_mine<BN, W>(s, t, own, m, residual, sum);
    } else {
        __syncthreads();
        spill<BN>(sum, (int32_t *)memory);
        __syncthreads();
        finish_tile<BN>(s, t, (const int32_t *)memory, row0, column0);
    }
#endif
}

DEV_INLINE void order_slice(const CUtensorMap *x, const CUtensorMap *w, uint32_t to, uint32_t done,
                            int bytes, int term, int row, int group)
{
    barrier_expect(done, bytes);
    tile_load(to, x, done, term, row);
    tile_load(to + BM * BK, w, done, term, 0, 0, 0, group);
}

// The first thread orders slices, each as soon as all warps have done with the one before in its
// stage.
template <int BN, int STAGES, bool SIGNED, int W>
static __global__ void __launch_bounds__(THREADS, pipe<BN, STAGES>::BLOCKS)
    stream_kernel(const __grid_constant__ CUtensorMap x, const __grid_constant__ CUtensorMap w,
                  const __grid_constant__ shape s, const __grid_constant__ tail t)
{
#ifdef HAS_WGMMA
    extern __shared__ __align__(16) unsigned char raw[];
    side<BN> &own = *reinterpret_cast<side<BN> *>(raw);
    const uint32_t base =
        (uint32_t)__cvta_generic_to_shared(stages_in(raw, pipe<BN, STAGES>::FIXED));
    const uint32_t full = (uint32_t)__cvta_generic_to_shared(own.barriers), empty = full + 64;
    const int columns = (s.m + BN - 1) / BN, slices = (s.terms + BK - 1) / BK;
    const int row0 = blockIdx.x / columns * BM, column0 = blockIdx.x % columns * BN;
    const mine<BN, W> m(s, row0, column0);
    residuals<BN, W> residual;
    int32_t sum[BN / 2];

    if (threadIdx.x == 0) {
        for (int k = 0; k < STAGES; k++) {
            barrier_init(full + 8 * k, 1);
            barrier_init(empty + 8 * k, THREADS / WARP);
        }
        barriers_are_ready();
        for (int k = 0; k < STAGES && k < slices; k++)
            order_slice(&x, &w, base + k * tile<BN>::STAGE, full + 8 * k, tile<BN>::STAGE, k * BK,
                        row0, column0 / (4 * W));
    }
    load_vectors<BN, W>(s, t, column0, own);
    if constexpr (W == 16)
        residual.load(s, t, m);
    __syncthreads();
#pragma unroll 1
    for (int k = 0; k < slices; k++) {
        const int last = (k + STAGES - 1) % STAGES, next = k + STAGES - 1;

        barrier_wait(full + k % STAGES * 8, k / STAGES % 2);
        multiply<BN, SIGNED>(sum, base + k % STAGES * tile<BN>::STAGE, k == 0);
        wgmma_wait<1>();
        if (k == 0)
            continue;
        if (threadIdx.x % WARP == 0)
            barrier_arrive(empty + last * 8);
        if (threadIdx.x == 0 && next < slices) {
            barrier_wait(empty + last * 8, (k - 1) / STAGES % 2);
            order_slice(&x, &w, base + last * tile<BN>::STAGE, full + 8 * last, tile<BN>::STAGE,
                        next * BK, row0, column0 / (4 * W));
        }
        __syncwarp();
    }
    if constexpr (W == 8)
        residual.load(s, t, m);
    finish_sums(sum);
    finish_mine<BN, W>(s, t, own, m, residual, sum);
#endif
}

// Its static memory says whether the code that runs here was compiled with wgmma.
static __global__ void probe_kernel(int *out)
{
#ifdef HAS_WGMMA
    __shared__ int mark[64];

    mark[threadIdx.x] = *out;
    __syncthreads();
    *out = mark[63 - threadIdx.x];
#else
    *out = 0;
#endif
}

// ------------------------------------------------------------------ any

template <bool SIGNED>
static __global__ void __launch_bounds__(THREADS)
    any_kernel(const __grid_constant__ shape s, const __grid_constant__ tail t, const uint8_t *x,
               const int8_t *w)
{
    const int64_t n = (int64_t)s.rows * s.m, step = (int64_t)gridDim.x * THREADS;
    const int per = s.c / s.groups, zero = SIGNED ? (int8_t)s.zero4 : (uint8_t)s.zero4;

    for (int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x; i < n; i += step) {
        const int row = (int)(i / s.m), m = (int)(i % s.m);
        const int first = m / (s.m / s.groups) * per;
        const pixel px = output_pixel(s, row);
        const int8_t *weights = w + (int64_t)m * s.terms;
        int32_t sum[1] = {0}, less[1];
        float factor[1], offset[1];

        for (int tap = 0; tap < s.taps; tap++, weights += per) {
            const int dh = tap / s.s * s.dil_h, dw = tap % s.s * s.dil_w;
            const bool inside = is_pixel_inside(s, px, dh, dw);
            const uint8_t *from = x + (inside ? (int64_t)(px.at + dh * s.w + dw) * s.c + first : 0);

            for (int c = 0; c < per; c++) {
                const int number = !inside ? zero : SIGNED ? (int)(int8_t)from[c] : (int)from[c];

                sum[0] += number * weights[c];
            }
        }
        vectors_of<1>(t, s.m, m, factor, offset, less);
        sum[0] -= less[0];
        finish<1>(t, sum, factor, offset, i);
    }
}

// ------------------------------------------------------------------ launchers

extern "C" bool k_product_has_tiles(void)
{
    cudaFuncAttributes a;

    if (cudaFuncGetAttributes(&a, (const void *)probe_kernel) == cudaSuccess)
        return a.sharedSizeBytes > 0;
    (void)cudaGetLastError();
    return false;
}

// Once for each device and kernel would do; it costs the host less than a launch.
template <class F> static void allow(F *kernel, int bytes)
{
    cudaFuncSetAttribute((const void *)kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
}

template <int BN> static unsigned product_blocks(const shape &s)
{
    return (unsigned)(cdiv64(s.rows, BM) * cdiv64(s.m, BN));
}

template <int BN, int STAGES, int V, bool SIGNED, int W>
static void launch_tiles(cudaStream_t st, const shape &s, const tail &t, const struct k_product *k)
{
    const int bytes = pipe<BN, STAGES>::bytes((s.terms + BK - 1) / BK, W == 2);

    allow(tiles_kernel<BN, STAGES, V, SIGNED, W>, bytes);
    tiles_kernel<BN, STAGES, V, SIGNED, W><<<product_blocks<BN>(s), THREADS, bytes, st>>>(
        s, t, (const uint8_t *)k->x, (const int8_t *)k->w);
}

// false: it is no product of whole tiles of two matrices.
template <int BN, int STAGES, bool SIGNED, int W>
static bool launch_stream(cudaStream_t st, const shape &s, const tail &t, const struct k_product *k)
{
    const int bytes = pipe<BN, STAGES>::bytes((s.terms + BK - 1) / BK, false);
    const cuuint64_t terms = (cuuint64_t)s.terms, rows = (cuuint64_t)s.rows;
    const bool is_plain = s.taps == 1 && s.stride_h == 1 && s.stride_w == 1 && s.pad_h == 0 &&
                          s.pad_w == 0 && s.h == s.p && s.w == s.q;
    CUtensorMap x, w;

    if (!is_plain || s.m % (4 * W) != 0 ||
        !byte_map<2>(&x, k->x, {terms, rows}, {terms}, {BK, BM}) ||
        !byte_map<5>(&w, k->w, {terms, 2, 4, W / 2, (cuuint64_t)s.m / (4 * W)},
                     {terms, W * terms, 2 * terms, 4 * W * terms}, {BK, 2, 4, W / 2, BN / (4 * W)}))
        return false;
    allow(stream_kernel<BN, STAGES, SIGNED, W>, bytes);
    stream_kernel<BN, STAGES, SIGNED, W><<<product_blocks<BN>(s), THREADS, bytes, st>>>(x, w, s, t);
    return true;
}

// STREAMS: where it can.
template <int BN, int STAGES, bool SIGNED, bool STREAMS>
static void launch_product(cudaStream_t st, const shape &s, const tail &t,
                           const struct k_product *k)
{
    if (width_of(t.kind) == 16) {
        if constexpr (STREAMS)
            if (launch_stream<BN, STAGES, SIGNED, 16>(st, s, t, k))
                return;
        launch_tiles<BN, STAGES, 16, SIGNED, 16>(st, s, t, k);
    } else {
        if constexpr (STREAMS)
            if (launch_stream<BN, STAGES, SIGNED, 8>(st, s, t, k))
                return;
        launch_tiles<BN, STAGES, 16, SIGNED, 8>(st, s, t, k);
    }
}

template <bool SIGNED>
static void launch_signed(cudaStream_t st, int how, const struct k_product *k)
{
    const shape s = shape_of_product(k);
    const int64_t blocks = cdiv64((int64_t)s.rows * s.m, THREADS);
    tail t = tail_of(k);

    if (how == K_PRODUCT_ANY) {
        any_kernel<SIGNED><<<(unsigned)(blocks < 1 << 20 ? blocks : 1 << 20), THREADS, 0, st>>>(
            s, t, (const uint8_t *)k->x, (const int8_t *)k->w);
        return;
    }
    set_finisher(&t, s.m, k);
    if (s.c % 16 != 0) { // few channels: an image
        t.kind = GENERIC;
        launch_tiles<64, 4, 4, SIGNED, 2>(st, s, t, k);
    } else if (t.kind == GENERIC) {
        launch_tiles<128, 3, 16, SIGNED, 2>(st, s, t, k);
    } else if (how == K_PRODUCT_NARROW) {
        launch_product<64, 4, SIGNED, true>(st, s, t, k);
    } else if (how == K_PRODUCT_WIDE) {
        launch_product<256, 4, SIGNED, true>(st, s, t, k);
    } else if (how == K_PRODUCT_DEEP) {
        launch_product<128, 6, SIGNED, false>(st, s, t, k);
    } else {
        launch_product<128, 3, SIGNED, true>(st, s, t, k);
    }
}

extern "C" void k_product(cudaStream_t s, int how, const struct k_product *k)
{
    if (k->x_is_signed)
        launch_signed<true>(s, how, k);
    else
        launch_signed<false>(s, how, k);
}
