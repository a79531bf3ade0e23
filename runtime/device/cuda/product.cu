// product.cu - convolutions and products of 8-bit integers, with all that follows in one kernel.
//
//   tiles   a convolution as a product of matrices: rows are pixels of the result, columns its
//           channels, and the sum runs over taps and channels of x. A block computes BM x BN
//           results. Its threads copy a slice of BK terms of each of its pixels and channels into
//           shared memory (cp.async, several slices ahead), where the matrix units read them
//           (wgmma); nothing is laid out in device memory before. Sums pass through shared memory,
//           so that a warp scales, rounds and stores a row of neighbouring channels at once.
//   any     a thread for each result: groups, and devices without wgmma
//
// Sums are exact, in I32. They begin at what the zero point of x adds up to, so padding is read as
// that zero point. All tensors channels-last, weights [m][r][s][c].
#include "runtime/device/cuda/product_tail.cuh"
#include "runtime/device/cuda/wgmma.cuh"

#define THREADS 256
#define BM 128
#define BK 128

struct shape {
    int rows, channels, terms; // of the product of matrices
    int h, w, c, m, s, p, q;
    int stride_h, stride_w, dil_h, dil_w, pad_h, pad_w;
    int groups, taps;
    fast_div by_c, by_s, by_pq, by_q;
    uint32_t zero4; // four times the zero point of x
};

static shape shape_of(const struct k_product *k)
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

template <int V> DEV_INLINE void fill(uint32_t to, uint32_t word)
{
#pragma unroll
    for (int i = 0; i < V / 4; i++)
        asm volatile("st.shared.u32 [%0], %1;" ::"r"(to + 4 * i), "r"(word) : "memory");
}

struct pixel { // of the result: where its window begins
    int base, h, w;
    int is_there;
};

DEV_INLINE pixel pixel_of(const shape &s, int row)
{
    const uint32_t n = quotient((uint32_t)row, s.by_pq), at = (uint32_t)row - n * s.by_pq.d;
    const uint32_t p = quotient(at, s.by_q), q = at - p * s.by_q.d;

    return {(int)n * s.h * s.w, (int)p * s.stride_h - s.pad_h, (int)q * s.stride_w - s.pad_w,
            row < s.rows};
}

// Byte `col` of a row, in rows of 128 whose pieces of 16 are swizzled.
DEV_INLINE uint32_t swizzled(int row, int col)
{
    return (uint32_t)(row * BK + ((col >> 4 ^ row & 7) << 4) + (col & 15));
}

// Slice `slice` of the terms into a stage. V: bytes of one copy.
template <int BN, int V>
DEV_INLINE void load_slice(const shape &s, const uint8_t *x, const int8_t *w, const pixel *pixels,
                           int slice, int column, uint32_t stage)
{
    constexpr int PER_ROW = BK / V, ROWS = THREADS / PER_ROW;
    const int piece = threadIdx.x % PER_ROW * V, first = threadIdx.x / PER_ROW;
    const int term = slice * BK + piece;
    const bool is_term = term < s.terms;
    const int tap = (int)quotient((uint32_t)term, s.by_c), c = term - tap * s.c;
    const int r = (int)quotient((uint32_t)tap, s.by_s);
    const int dh = r * s.dil_h, dw = (tap - r * s.s) * s.dil_w;

#pragma unroll
    for (int i = 0; i < BM / ROWS; i++) {
        const int row = first + i * ROWS;
        const pixel px = pixels[row];
        const int h = px.h + dh, v = px.w + dw;
        const bool inside = (unsigned)h < (unsigned)s.h && (unsigned)v < (unsigned)s.w;
        const bool is_there = is_term && px.is_there && inside;
        const uint8_t *from = x + (is_there ? (int64_t)(px.base + h * s.w + v) * s.c + c : 0);
        const uint32_t to = stage + swizzled(row, piece);

        if (s.zero4 != 0 && is_term && !inside)
            fill<V>(to, s.zero4);
        else
            copy_async<V>(to, from, is_there);
    }
#pragma unroll
    for (int i = 0; i < (BN + ROWS - 1) / ROWS; i++) {
        const int row = first + i * ROWS;
        const bool is_there = is_term && column + row < s.m;

        copy_async<V>(stage + BM * BK + swizzled(row, piece),
                      w + (is_there ? (int64_t)(column + row) * s.terms + term : 0), is_there);
    }
}

template <int BN> struct tile {
    static constexpr int PITCH = BN + 8; // of sums, in words
    static constexpr int STAGE = (BM + BN) * BK, SUMS = BM * PITCH * 4;
};
template <int BN, int STAGES> struct pipe {
    static constexpr int BYTES = STAGES * tile<BN>::STAGE;
    static constexpr int PIXELS = (BYTES > tile<BN>::SUMS ? BYTES : tile<BN>::SUMS) + 1024;
    static constexpr int SHARED = PIXELS + BM * (int)sizeof(pixel);
    static constexpr int BLOCKS = SHARED <= 113 * 1024 ? 2 : 1; // on a multiprocessor
};

// The sums of this thread's warp group go to shared memory, row by row.
template <int BN> DEV_INLINE void spill(const int32_t (&sum)[BN / 2], int32_t *to)
{
    const int lane = threadIdx.x % WARP, row = threadIdx.x / WARP * 16 + lane / 4;

#pragma unroll
    for (int j = 0; j < BN / 8; j++) {
        int32_t *at = to + row * tile<BN>::PITCH + 8 * j + lane % 4 * 2;

        *reinterpret_cast<int2 *>(at) = make_int2(sum[4 * j], sum[4 * j + 1]);
        *reinterpret_cast<int2 *>(at + 8 * tile<BN>::PITCH) =
            make_int2(sum[4 * j + 2], sum[4 * j + 3]);
    }
}

template <int V>
DEV_INLINE void vectors_of(const tail &t, int channels, int column, float (&factor)[V],
                           float (&offset)[V], int32_t (&less)[V])
{
#pragma unroll
    for (int i = 0; i < V; i++) {
        const bool is_there = column + i < channels;

        factor[i] = t.factor && is_there ? t.factor[column + i] : 0;
        offset[i] = t.offset && is_there ? t.offset[column + i] : 0;
        less[i] = t.sums && is_there ? t.sums[column + i] : 0;
    }
}

// Where a thread works on a tile: four neighbouring channels of a row, then of the row `step` on.
template <int BN> struct lanes {
    static constexpr int PER_ROW = BN / 4 < WARP ? BN / 4 : WARP, AT_ONCE = WARP / PER_ROW;
    static constexpr int STEP = THREADS / WARP * AT_ONCE, ROWS = BM / STEP;

    static DEV_INLINE int first_row()
    {
        return threadIdx.x / WARP * AT_ONCE + threadIdx.x % WARP / PER_ROW;
    }
    static DEV_INLINE int first_column()
    {
        return threadIdx.x % WARP % PER_ROW * 4;
    }
};

template <int BN>
DEV_INLINE void load_sums(const int32_t *sums, int row, int column, const int32_t (&less)[4],
                          int32_t (&sum)[4])
{
    const int4 raw = *reinterpret_cast<const int4 *>(sums + row * tile<BN>::PITCH + column);

    sum[0] = raw.x - less[0];
    sum[1] = raw.y - less[1];
    sum[2] = raw.z - less[2];
    sum[3] = raw.w - less[3];
}

// Rows of sums in shared memory become results.
template <int BN>
DEV_INLINE void finish_tile(const shape &s, const tail &t, const int32_t *sums, int row0,
                            int column0)
{
    for (int c = lanes<BN>::first_column(); c < BN; c += lanes<BN>::PER_ROW * 4) {
        const int column = column0 + c;
        float factor[4], offset[4];
        int32_t less[4], sum[4];

        if (column >= s.m)
            continue;
        vectors_of<4>(t, s.m, column, factor, offset, less);
#pragma unroll 2
        for (int r = lanes<BN>::first_row(); r < BM && row0 + r < s.rows; r += lanes<BN>::STEP) {
            const int64_t at = (int64_t)(row0 + r) * s.m + column;

            load_sums<BN>(sums, r, c, less, sum);
            if (s.m % 4 == 0) {
                finish<4>(t, sum, factor, offset, at);
                continue;
            }
#pragma unroll
            for (int i = 0; i < 4; i++) {
                const int32_t one[1] = {sum[i]};
                const float f[1] = {factor[i]}, o[1] = {offset[i]};

                if (column + i < s.m)
                    finish<1>(t, one, f, o, at + i);
            }
        }
    }
}

// The same by a finisher. The residuals of several rows are under way at once: one after the other
// they would take longer than the sums.
template <int BN, class F>
DEV_INLINE void finish_rows(const shape &s, const tail &t, const int32_t *sums, int row0,
                            int column0)
{
    constexpr int AHEAD = 8;
    static_assert(lanes<BN>::ROWS % AHEAD == 0, "whole rounds");
    const int64_t step = (int64_t)lanes<BN>::STEP * s.m;

    for (int c = lanes<BN>::first_column(); c < BN; c += lanes<BN>::PER_ROW * 4) {
        const int column = column0 + c;
        float4 factor, offset = make_float4(0, 0, 0, 0);
        int4 less = make_int4(0, 0, 0, 0);

        if (column >= s.m)
            continue;
        factor = *reinterpret_cast<const float4 *>(t.factor + column);
        if (t.offset)
            offset = *reinterpret_cast<const float4 *>(t.offset + column);
        if (t.sums)
            less = *reinterpret_cast<const int4 *>(t.sums + column);
#pragma unroll 1
        for (int r0 = 0; r0 < lanes<BN>::ROWS; r0 += AHEAD) {
            const int first = lanes<BN>::first_row() + r0 * lanes<BN>::STEP;
            const int left = s.rows - row0 - first; // rows that there are
            const int64_t at = (int64_t)(row0 + first) * s.m + column;
            uint2 residual[AHEAD];

#pragma unroll
            for (int i = 0; i < AHEAD; i++)
                residual[i] =
                    i * lanes<BN>::STEP < left ? F::load(t, at + i * step) : make_uint2(0, 0);
#pragma unroll
            for (int i = 0; i < AHEAD; i++) {
                int4 sum = *reinterpret_cast<const int4 *>(
                    sums + (first + i * lanes<BN>::STEP) * tile<BN>::PITCH + c);

                sum.x -= less.x;
                sum.y -= less.y;
                sum.z -= less.z;
                sum.w -= less.w;
                if (i * lanes<BN>::STEP < left)
                    F::run(t, sum, factor, offset, residual[i], at + i * step);
            }
        }
    }
}

template <int BN>
DEV_INLINE void finish_plain(const shape &s, const tail &t, const int32_t *sums, int row0,
                             int column0)
{
#define FINISH(...) finish_rows<BN, finisher<__VA_ARGS__>>(s, t, sums, row0, column0)
    switch (t.kind) {
    case BYTES_ALONE:
        FINISH(uint8_t, NO_RESIDUAL, false, false);
        break;
    case BYTES_MID:
        FINISH(uint8_t, NO_RESIDUAL, true, false);
        break;
    case BYTES_SUM:
        FINISH(uint8_t, BYTES, false, false);
        break;
    case BYTES_MID_SUM:
        FINISH(uint8_t, BYTES, true, false);
        break;
    case BYTES_GELU:
        FINISH(uint8_t, NO_RESIDUAL, false, true);
        break;
    case F16_ALONE:
        FINISH(f16, NO_RESIDUAL, false, false);
        break;
    case F16_SUM:
        FINISH(f16, SAME, false, false);
        break;
    case BF16_ALONE:
        FINISH(bf16, NO_RESIDUAL, false, false);
        break;
    case BF16_SUM:
        FINISH(bf16, SAME, false, false);
        break;
    default:
        break;
    }
#undef FINISH
}

template <int BN, int STAGES, int V, bool SIGNED, bool PLAIN>
static __global__ void __launch_bounds__(THREADS, pipe<BN, STAGES>::BLOCKS)
    tiles_kernel(const __grid_constant__ shape s, const __grid_constant__ tail t, const uint8_t *x,
                 const int8_t *w)
{
#ifdef HAS_WGMMA
    extern __shared__ unsigned char raw[];
    unsigned char *memory = raw + (1024 - ((uint32_t)__cvta_generic_to_shared(raw) & 1023)) % 1024;
    pixel *pixels = (pixel *)(raw + pipe<BN, STAGES>::PIXELS);
    const uint32_t base = (uint32_t)__cvta_generic_to_shared(memory);
    const int columns = (s.m + BN - 1) / BN, group = threadIdx.x / 128;
    const int row0 = blockIdx.x / columns * BM, column0 = blockIdx.x % columns * BN;
    const int slices = (s.terms + BK - 1) / BK;
    int32_t sum[BN / 2];

    if (threadIdx.x < BM)
        pixels[threadIdx.x] = pixel_of(s, row0 + (int)threadIdx.x);
    __syncthreads();
#pragma unroll
    for (int k = 0; k < STAGES - 2; k++) {
        if (k < slices)
            load_slice<BN, V>(s, x, w, pixels, k, column0, base + k * tile<BN>::STAGE);
        copy_commit();
    }
    // A slice is loaded into the stage of the one before the last: the barrier between says that
    // all warps have waited for the products of that.
#pragma unroll 1
    for (int k = 0; k < slices; k++) {
        const uint32_t stage = base + k % STAGES * tile<BN>::STAGE;
        const int next = k + STAGES - 2;

        copy_wait<STAGES - 3>();
        fence_for_wgmma();
        __syncthreads();
        wgmma_begin();
#pragma unroll
        for (int i = 0; i < BK / 32; i++)
            wgmma<BN, SIGNED>(sum, wgmma_tile(stage + group * 64 * BK + 32 * i),
                              wgmma_tile(stage + BM * BK + 32 * i), k | i);
        wgmma_commit();
        wgmma_wait<1>();
        if (next < slices)
            load_slice<BN, V>(s, x, w, pixels, next, column0,
                              base + next % STAGES * tile<BN>::STAGE);
        copy_commit();
    }
    wgmma_wait<0>();
    copy_wait<0>();
    __syncthreads();
    spill<BN>(sum, (int32_t *)memory);
    __syncthreads();
    if constexpr (PLAIN)
        finish_plain<BN>(s, t, (const int32_t *)memory, row0, column0);
    else
        finish_tile<BN>(s, t, (const int32_t *)memory, row0, column0);
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
        const pixel px = pixel_of(s, row);
        const int8_t *weights = w + (int64_t)m * s.terms;
        int32_t sum[1] = {0}, less[1];
        float factor[1], offset[1];

        for (int tap = 0; tap < s.taps; tap++, weights += per) {
            const int h = px.h + tap / s.s * s.dil_h, v = px.w + tap % s.s * s.dil_w;
            const bool inside = (unsigned)h < (unsigned)s.h && (unsigned)v < (unsigned)s.w;
            const uint8_t *from = x + (inside ? (int64_t)(px.base + h * s.w + v) * s.c + first : 0);

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

// dst [rows][padded] = src [rows][c], zeros behind.
static __global__ void __launch_bounds__(THREADS)
    pad_kernel(const uint8_t *src, int64_t n, int c, fast_div by, int padded, uint8_t *dst)
{
    const int64_t step = (int64_t)gridDim.x * THREADS;

    for (int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x; i < n; i += step) {
        const int64_t row = n < INT32_MAX ? (int64_t)quotient((uint32_t)i, by) : i / padded;
        const int at = (int)(i - row * padded);

        dst[i] = at < c ? src[row * c + at] : 0;
    }
}

extern "C" void k_product_pad(cudaStream_t s, const void *src, int64_t rows, int c, void *dst,
                              int padded)
{
    const int64_t n = rows * padded, blocks = cdiv64(n, THREADS);

    pad_kernel<<<(unsigned)(blocks < 65536 ? blocks : 65536), THREADS, 0, s>>>(
        (const uint8_t *)src, n, c, fast_div_of((uint32_t)padded), padded, (uint8_t *)dst);
}

// dst [n][h / 2][w / 2][16]: two by two pixels of up to four channels each; `zero` beyond the last.
static __global__ void __launch_bounds__(THREADS)
    fold_kernel(const uint8_t *src, int64_t n, int h, int w, int c, uint8_t zero, uint32_t *dst)
{
    const int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    const int fw = (w + 1) / 2, fh = (h + 1) / 2;
    const int64_t pair = i / 4, row = pair / fw;
    const int v = (int)(pair % fw) * 2 + (int)(i & 1), u = (int)(row % fh) * 2 + (int)(i >> 1 & 1);
    uint32_t word = 0;

    if (i >= n * fh * fw * 4)
        return;
    for (int k = 0; k < c; k++) {
        const bool inside = u < h && v < w;
        const uint32_t b = inside ? src[(((row / fh) * h + u) * w + v) * c + k] : zero;

        word |= b << 8 * k;
    }
    dst[i] = word;
}

// The same for weights [m][r][s][c], whose taps begin `shift` before the first pixel of a pair.
static __global__ void __launch_bounds__(THREADS)
    fold_weights_kernel(const int8_t *src, int m, int r, int s, int c, int2 shift, int2 taps,
                        int8_t *dst)
{
    const int i = blockIdx.x * THREADS + threadIdx.x, at = i % 16, tap = i / 16;
    const int b = tap % taps.y * 2 + (at >> 2 & 1) - shift.y;
    const int a = tap / taps.y % taps.x * 2 + (at >> 3) - shift.x, k = at & 3;

    if (i >= m * taps.x * taps.y * 16)
        return;
    dst[i] = a >= 0 && a < r && b >= 0 && b < s && k < c
                 ? src[((tap / taps.y / taps.x * r + a) * s + b) * c + k]
                 : 0;
}

extern "C" bool k_product_fold(const struct k_conv *v, struct k_conv *out)
{
    struct k_conv f = *v;

    if (v->groups != 1 || v->c > 4 || v->stride[0] != 2 || v->stride[1] != 2 ||
        v->dilation[0] != 1 || v->dilation[1] != 1)
        return false;
    for (int i = 0; i < 2; i++) {
        f.stride[i] = 1;
        f.pad[i] = (v->pad[i] + 1) / 2;
    }
    f.h = (v->h + 1) / 2;
    f.w = (v->w + 1) / 2;
    f.r = (v->r + v->pad[0] % 2 + 1) / 2;
    f.s = (v->s + v->pad[1] % 2 + 1) / 2;
    f.c = 16;
    *out = f;
    return true;
}

extern "C" void k_product_fold_x(cudaStream_t s, const struct k_conv *v, const void *x, int zero,
                                 void *dst)
{
    const int64_t n = v->n * ((v->h + 1) / 2) * ((v->w + 1) / 2) * 4;

    fold_kernel<<<(unsigned)cdiv64(n, THREADS), THREADS, 0, s>>>(
        (const uint8_t *)x, v->n, (int)v->h, (int)v->w, (int)v->c, (uint8_t)zero, (uint32_t *)dst);
}

extern "C" void k_product_fold_w(cudaStream_t s, const struct k_conv *v, const void *w, void *dst)
{
    struct k_conv f;

    if (!k_product_fold(v, &f))
        return;
    fold_weights_kernel<<<(unsigned)cdiv64(v->m * f.r * f.s * 16, THREADS), THREADS, 0, s>>>(
        (const int8_t *)w, (int)v->m, (int)v->r, (int)v->s, (int)v->c,
        make_int2((int)(v->pad[0] % 2), (int)(v->pad[1] % 2)), make_int2((int)f.r, (int)f.s),
        (int8_t *)dst);
}

extern "C" int k_product_width(int c)
{
    return c <= 4 ? 4 : c <= 8 ? 8 : (c + 15) / 16 * 16;
}

extern "C" bool k_product_has_tiles(void)
{
    cudaFuncAttributes a;

    if (cudaFuncGetAttributes(&a, (const void *)probe_kernel) == cudaSuccess)
        return a.sharedSizeBytes > 0;
    (void)cudaGetLastError();
    return false;
}

template <int BN, int STAGES, int V, bool SIGNED, bool PLAIN>
static void launch_kernel(cudaStream_t st, const shape &s, const tail &t, const void *x,
                          const void *w)
{
    const unsigned grid = (unsigned)(cdiv64(s.rows, BM) * cdiv64(s.m, BN));
    const int bytes = pipe<BN, STAGES>::SHARED;

    // Once for each device and kernel would do; it costs the host less than a launch.
    cudaFuncSetAttribute((const void *)tiles_kernel<BN, STAGES, V, SIGNED, PLAIN>,
                         cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
    tiles_kernel<BN, STAGES, V, SIGNED, PLAIN>
        <<<grid, THREADS, bytes, st>>>(s, t, (const uint8_t *)x, (const int8_t *)w);
}

template <int BN, int STAGES, int V, bool SIGNED>
static void launch(cudaStream_t st, const shape &s, const tail &t, const void *x, const void *w)
{
    if (t.kind != GENERIC)
        launch_kernel<BN, STAGES, V, SIGNED, true>(st, s, t, x, w);
    else
        launch_kernel<BN, STAGES, V, SIGNED, false>(st, s, t, x, w);
}

template <int V, bool SIGNED>
static void launch_as(cudaStream_t st, int how, const shape &s, const tail &t, const void *x,
                      const void *w)
{
    switch (how) {
    case K_PRODUCT_NARROW:
        launch<64, 4, V, SIGNED>(st, s, t, x, w);
        break;
    case K_PRODUCT_WIDE:
        launch<256, 4, V, SIGNED>(st, s, t, x, w);
        break;
    case K_PRODUCT_DEEP:
        launch<128, 6, V, SIGNED>(st, s, t, x, w);
        break;
    default:
        launch<128, 3, V, SIGNED>(st, s, t, x, w);
    }
}

template <bool SIGNED> static void launch_typed(cudaStream_t st, int how, const struct k_product *k)
{
    const shape s = shape_of(k);
    tail t = tail_of(k);
    const int64_t blocks = cdiv64((int64_t)s.rows * s.m, THREADS);

    t.kind = kind_of(s.m, t);
    if (how == K_PRODUCT_ANY)
        any_kernel<SIGNED><<<(unsigned)(blocks < 1 << 20 ? blocks : 1 << 20), THREADS, 0, st>>>(
            s, t, (const uint8_t *)k->x, (const int8_t *)k->w);
    else if (s.c % 16 == 0)
        launch_as<16, SIGNED>(st, how, s, t, k->x, k->w);
    else // few channels: an image
        launch<64, 4, 4, SIGNED>(st, s, t, k->x, k->w);
}

extern "C" void k_product(cudaStream_t s, int how, const struct k_product *k)
{
    if (k->x_is_signed)
        launch_typed<true>(s, how, k);
    else
        launch_typed<false>(s, how, k);
}
