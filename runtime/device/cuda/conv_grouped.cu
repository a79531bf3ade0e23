// conv_grouped.cu - convolutions in groups of 8 to 64 channels, on the matrix units.
//
// A group is a product too narrow for the tiles of the libraries, which compute several times what
// is asked for. Here a warp has ROWS pixels of one group and up to NT * 8 of its results. What it
// reads comes from memory as the products want it, through the L1 cache, which has the pixel that
// the next tap needs; the block's weights lie in shared memory in the order of the products. The
// gradient of the data is the same with the taps turned and, for a stride, pixels left out. That of
// the weight sums over pixels in two stages of fixed order: a warp has TILES * 16 pairs of a tap
// and a channel, and a part of the pixels.
//
// All tensors channels-last, weights [m][r][s][c/groups]; F32 is rounded to TF32, sums are in F32.
#include "runtime/device/cuda/conv_lanes.cuh"
#include "runtime/device/cuda/mma.cuh"

#define WARPS (THREADS / WARP)
#define EIGHT 8                // channels, or pixels, of one product
#define MOST_CHANNELS 64       // of a group
#define MOST_TAPS 31           // bits of a mask, of which one is never set
#define MAX_SHARED (48 * 1024) // bytes
#define MOST_NT 4              // results of a warp, by EIGHT
#define ROWS 32                // pixels of a warp
#define TILES 4                // of the gradient of the weight
#define BLOCKS 1024            // enough for every multiprocessor
#define WARPS_AT_ONCE 2112     // of the gradient of the weight

// What is read has h x w pixels of c channels, cg of them in a group; what is written p x q of m.
// Result p meets line (p * scale + first + tap * step) / up, if that is a whole number.
struct grouped {
    int n, h, w, c, cg, p, q, m, mg, r, s;
    int scale_h, scale_w, first_h, first_w, step_h, step_w, up_h, up_w;
    bool is_gradient;
};

static struct grouped grouped_of(const struct k_conv *v)
{
    return {(int)v->n,
            (int)v->h,
            (int)v->w,
            (int)v->c,
            (int)(v->c / v->groups),
            (int)v->p,
            (int)v->q,
            (int)v->m,
            (int)(v->m / v->groups),
            (int)v->r,
            (int)v->s,
            (int)v->stride[0],
            (int)v->stride[1],
            (int)-v->pad[0],
            (int)-v->pad[1],
            (int)v->dilation[0],
            (int)v->dilation[1],
            1,
            1,
            false};
}

static struct grouped turned_conv(const struct k_conv *v)
{
    const struct grouped a = grouped_of(v);
    struct grouped t = a;

    t.h = a.p;
    t.w = a.q;
    t.c = a.m;
    t.cg = a.mg;
    t.p = a.h;
    t.q = a.w;
    t.m = a.c;
    t.mg = a.cg;
    t.scale_h = t.scale_w = 1;
    t.first_h = -a.first_h;
    t.first_w = -a.first_w;
    t.step_h = -a.step_h;
    t.step_w = -a.step_w;
    t.up_h = a.scale_h;
    t.up_w = a.scale_w;
    t.is_gradient = true;
    return t;
}

// ------------------------------------------------------------------ forward, gradient of the data

// weights[tap][channel / 8][result / 8][lane]
template <class T, int NT>
DEV_INLINE void pack_weights(const struct grouped &a, const T *w, int group, int n0,
                             two<T> *weights)
{
    const int taps = a.r * a.s, count = taps * a.cg / EIGHT * NT * WARP;

    for (int i = threadIdx.x; i < count; i += THREADS) {
        const int lane = i % WARP, n = n0 + i / WARP % NT * EIGHT + lane / 4;
        const int k8 = i / WARP / NT % (a.cg / EIGHT), tap = i / WARP / NT / (a.cg / EIGHT);
        const int k = k8 * EIGHT + lane % 4 * 2;
        T v[2] = {from_f<T>(0), from_f<T>(0)};

#pragma unroll
        for (int e = 0; e < 2; e++)
            if (n < a.mg)
                v[e] = a.is_gradient ? w[((int64_t)(group * a.cg + k + e) * taps + tap) * a.mg + n]
                                     : w[((int64_t)(group * a.mg + n) * taps + tap) * a.cg + k + e];
        weights[i] = two_of(v[0], v[1]);
    }
    __syncthreads();
}

// Where the line lies that a result meets at a tap; false: beside what is there.
DEV_INLINE bool meets(int at, int up, int size, int *line)
{
    if (up > 1 && (at < 0 || at % up != 0))
        return false;
    *line = up > 1 ? at / up : at;
    return (unsigned)*line < (unsigned)size;
}

template <class T>
DEV_INLINE void store_two(const struct grouped &a, const float *acc, int64_t at, int m,
                          const T *bias, const T *z, const struct act_of &act, T *y)
{
    float v[2] = {acc[0], acc[1]}, more[2];

    if (bias) {
        load_f<2>(bias + m, more);
        v[0] += more[0];
        v[1] += more[1];
    }
    if (z) {
        load_f<2>(z + at, more);
        v[0] += more[0];
        v[1] += more[1];
    }
    apply_act<2>(act, v);
    if (a.is_gradient)
        store_grad<2>(y + at, v);
    else
        store_f<2>(y + at, v);
}

// A warp's pixels by eight: those of lane g of part j lie at i0 + 8 j + g.
#define PARTS (ROWS / EIGHT)

template <class T, int NT>
static __global__ void __launch_bounds__(THREADS, 2)
    grouped_kernel(const struct grouped a, const T *__restrict__ x, const T *__restrict__ w,
                   const T *__restrict__ bias, const T *__restrict__ z, const struct act_of act,
                   T *__restrict__ y)
{
    extern __shared__ __align__(16) unsigned char shared[];
    two<T> *weights = reinterpret_cast<two<T> *>(shared);
    const int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP, n0 = blockIdx.z * NT * EIGHT;
    const int pixels = a.n * a.p * a.q, step = gridDim.x * WARPS * ROWS, c8 = a.cg / EIGHT;
    const T *mine = x + blockIdx.y * a.cg + lane % 4 * 2;

    pack_weights<T, NT>(a, w, blockIdx.y, n0, weights);
    for (int i0 = (blockIdx.x * WARPS + warp) * ROWS; i0 < pixels; i0 += step) {
        float acc[PARTS / 2][NT][4] = {};
        int h0[PARTS], w0[PARTS], image[PARTS];

#pragma unroll
        for (int j = 0; j < PARTS; j++) {
            const int i = i0 + j * EIGHT + lane / 4;

            image[j] = i / a.q / a.p;
            h0[j] = i < pixels ? i / a.q % a.p * a.scale_h + a.first_h : INT_MIN / 2;
            w0[j] = i % a.q * a.scale_w + a.first_w;
        }
        for (int tap = 0; tap < a.r * a.s; tap++) {
            const two<T> *b = weights + tap * c8 * NT * WARP + lane;
            const T *from[PARTS];

#pragma unroll
            for (int j = 0; j < PARTS; j++) {
                int h, l;
                const bool is_there = meets(h0[j] + tap / a.s * a.step_h, a.up_h, a.h, &h) &&
                                      meets(w0[j] + tap % a.s * a.step_w, a.up_w, a.w, &l);

                from[j] = is_there ? mine + (int64_t)((image[j] * a.h + h) * a.w + l) * a.c : NULL;
            }
#pragma unroll 3
            for (int k = 0; k < c8; k++, b += NT * WARP) {
                two<T> v[PARTS];

#pragma unroll
                for (int j = 0; j < PARTS; j++) {
                    vec<T, 2> f = {};

                    if (from[j])
                        f = load_vec<2>(from[j] + k * EIGHT);
                    v[j] = two_of(f.v[0], f.v[1]);
                }
#pragma unroll
                for (int n = 0; n < NT; n++)
#pragma unroll
                    for (int j = 0; j < PARTS; j += 2)
                        mma_two(acc[j / 2][n], v[j], v[j + 1], b[n * WARP]);
            }
        }
#pragma unroll
        for (int j = 0; j < PARTS; j++) {
            const int i = i0 + j * EIGHT + lane / 4;

#pragma unroll
            for (int n = 0; n < NT; n++) {
                const int of = n0 + n * EIGHT + lane % 4 * 2, m = blockIdx.y * a.mg + of;

                if (i < pixels && of < a.mg)
                    store_two<T>(a, acc[j / 2][n] + j % 2 * 2, (int64_t)i * a.m + m, m, bias, z,
                                 act, y);
            }
        }
    }
}

// Results of a block, by EIGHT, so that its weights have room; 0: not even eight have.
static int width_for(const struct grouped &a, int item)
{
    const int one = a.r * a.s * a.cg * EIGHT * item, n8 = a.mg / EIGHT;
    const int most = MAX_SHARED / one < MOST_NT ? MAX_SHARED / one : MOST_NT;

    return most ? (int)cdiv64(n8, cdiv64(n8, most)) : 0;
}

template <class T, int NT>
static void launch_grouped(cudaStream_t s, const struct grouped &a, const T *x, const T *w,
                           const T *bias, const T *z, struct act_of act, T *y)
{
    const int64_t pixels = (int64_t)a.n * a.p * a.q, chunks = cdiv64(a.mg, NT * EIGHT);
    const int64_t groups = a.c / a.cg, need = cdiv64(pixels, WARPS * ROWS);
    const int64_t most = cdiv64(BLOCKS, groups * chunks);
    const dim3 grid((unsigned)(need < most ? need : most), (unsigned)groups, (unsigned)chunks);
    const size_t smem = (size_t)a.r * a.s * a.cg * NT * EIGHT * sizeof(T);

    grouped_kernel<T, NT><<<grid, THREADS, smem, s>>>(a, x, w, bias, z, act, y);
}

#define BY_WIDTH(n, NT, ...)  \
    switch (n) {              \
    case 1: {                 \
        constexpr int NT = 1; \
        __VA_ARGS__;          \
        break;                \
    }                         \
    case 2: {                 \
        constexpr int NT = 2; \
        __VA_ARGS__;          \
        break;                \
    }                         \
    case 3: {                 \
        constexpr int NT = 3; \
        __VA_ARGS__;          \
        break;                \
    }                         \
    default: {                \
        constexpr int NT = 4; \
        __VA_ARGS__;          \
        break;                \
    }                         \
    }

template <class T>
static void grouped(cudaStream_t s, const struct grouped &a, const T *x, const T *w, const T *bias,
                    const T *z, struct act_of act, T *y)
{
    BY_WIDTH(width_for(a, sizeof(T)), NT, launch_grouped<T, NT>(s, a, x, w, bias, z, act, y))
}

// ------------------------------------------------------------------ gradient of the weight

// How a launch shares it out: eights of taps and channels by warp, results, and pixels.
struct shares {
    int eights;        // taps * channels / 8
    int parts;         // of them, each of a warp
    int parts_here;    // in one block
    int nt;            // results of a warp, by EIGHT
    int chunks, depth; // grids of results, of parts
    int splits;        // first-stage sums
};

static struct shares shares_of(const struct grouped &a)
{
    const int64_t n8 = a.mg / EIGHT, steps = cdiv64((int64_t)a.n * a.p * a.q, EIGHT);
    struct shares f;
    int64_t most;

    f.eights = a.r * a.s * a.cg / EIGHT;
    f.parts = (int)cdiv64(f.eights, TILES * 2);
    f.parts_here = f.parts < WARPS ? f.parts : WARPS;
    f.depth = (int)cdiv64(f.parts, f.parts_here);
    f.chunks = (int)cdiv64(n8, MOST_NT);
    f.nt = (int)cdiv64(n8, f.chunks);
    most = cdiv64(WARPS_AT_ONCE, (int64_t)(a.c / a.cg) * f.chunks * f.parts);
    most = most < cdiv64(steps, 4) ? most : cdiv64(steps, 4);
    f.splits = (int)(cdiv64(most, WARPS / f.parts_here) * (WARPS / f.parts_here));
    return f;
}

// The taps at which pixel i of dy meets x, and where x lies for the first of them.
template <class T>
DEV_INLINE uint32_t taps_of(const struct grouped &a, int i, const T *x, const T **at)
{
    const int h = i / a.q % a.p * a.scale_h + a.first_h, w = i % a.q * a.scale_w + a.first_w;
    uint32_t row = 0, all = 0;

    *at = x + ((int64_t)(i / a.q / a.p) * a.h * a.w + (int64_t)h * a.w + w) * a.c;
    for (int k = 0; k < a.s; k++)
        row |= (uint32_t)((unsigned)(w + k * a.step_w) < (unsigned)a.w) << k;
    for (int k = 0; k < a.r; k++)
        if ((unsigned)(h + k * a.step_h) < (unsigned)a.h)
            all |= row << (k * a.s);
    return all;
}

// part[split][m][tap][c]
template <class T, int NT>
static __global__ void __launch_bounds__(THREADS, 2)
    grouped_weight_kernel(const struct grouped a, const struct shares f, const T *__restrict__ x,
                          const T *__restrict__ dy, float *__restrict__ part)
{
    const int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
    const int first = (blockIdx.z * f.parts_here + warp % f.parts_here) * TILES * 2;
    const int here = WARPS / f.parts_here, split = blockIdx.x * here + warp / f.parts_here;
    const int group = blockIdx.y / f.chunks, n0 = blockIdx.y % f.chunks * NT * EIGHT;
    const int pixels = a.n * a.p * a.q, taps = a.r * a.s, steps = (pixels + EIGHT - 1) / EIGHT;
    const int each = (steps + f.splits - 1) / f.splits;
    const int end = (split + 1) * each < steps ? (split + 1) * each : steps;
    float acc[TILES][NT][4] = {};
    int off[TILES * 2], tap[TILES * 2];

    if (warp / f.parts_here >= here || first >= f.eights)
        return;
#pragma unroll
    for (int j = 0; j < TILES * 2; j++) {
        const int at = (first + j) * EIGHT;

        tap[j] = first + j < f.eights ? at / a.cg : MOST_TAPS;
        off[j] = (tap[j] / a.s * a.step_h * a.w + tap[j] % a.s * a.step_w) * a.c + group * a.cg +
                 at % a.cg + lane / 4;
    }
    for (int k = split * each; k < end; k++) {
        const T zero = from_f<T>(0);
        const T *from[2], *of = dy + group * a.mg + n0 + lane / 4;
        uint32_t there[2];
        two<T> b[NT];

#pragma unroll
        for (int e = 0; e < 2; e++) {
            const int i = k * EIGHT + lane % 4 * 2 + e;

            there[e] = taps_of(a, i, x, &from[e]);
            there[e] = i < pixels ? there[e] : 0;
        }
#pragma unroll
        for (int n = 0; n < NT; n++) {
            const int64_t i = k * EIGHT + lane % 4 * 2;
            const bool is_here = n0 + n * EIGHT < a.mg;

            b[n] = two_of(is_here && i < pixels ? of[i * a.m + n * EIGHT] : zero,
                          is_here && i + 1 < pixels ? of[(i + 1) * a.m + n * EIGHT] : zero);
        }
#pragma unroll
        for (int j = 0; j < TILES; j++) {
            two<T> v[2];

#pragma unroll
            for (int e = 0; e < 2; e++) {
                const int o = off[2 * j + e], t = tap[2 * j + e];

                v[e] = two_of(there[0] >> t & 1 ? from[0][o] : zero,
                              there[1] >> t & 1 ? from[1][o] : zero);
            }
#pragma unroll
            for (int n = 0; n < NT; n++)
                mma_two(acc[j][n], v[0], v[1], b[n]);
        }
    }
    part += (int64_t)split * a.m * taps * a.cg + (int64_t)group * a.mg * taps * a.cg;
#pragma unroll
    for (int j = 0; j < TILES * 2; j++)
#pragma unroll
        for (int n = 0; n < NT; n++)
#pragma unroll
            for (int e = 0; e < 2; e++) {
                const int m = n0 + n * EIGHT + lane % 4 * 2 + e;

                if (first + j < f.eights && m < a.mg)
                    part[(int64_t)m * taps * a.cg + (first + j) * EIGHT + lane / 4] =
                        acc[j / 2][n][j % 2 * 2 + e];
            }
}

template <class T>
static void grouped_weight(cudaStream_t s, const struct grouped &a, const T *x, const T *dy,
                           float *part, T *dw)
{
    const struct shares f = shares_of(a);
    const dim3 grid((unsigned)(f.splits / (WARPS / f.parts_here)),
                    (unsigned)(a.c / a.cg * f.chunks), (unsigned)f.depth);

    BY_WIDTH(f.nt, NT, grouped_weight_kernel<T, NT><<<grid, THREADS, 0, s>>>(a, f, x, dy, part))
    sum_splits<T>(s, part, f.splits, 1, (int64_t)a.m * a.r * a.s * a.cg, dw);
}

// ------------------------------------------------------------------ launchers

bool conv_is_grouped(const struct k_conv *v, int type)
{
    const int64_t cg = v->c / v->groups, mg = v->m / v->groups, taps = v->r * v->s;

    return v->groups > 1 && v->groups <= 65535 / MOST_CHANNELS && cg % EIGHT == 0 &&
           mg % EIGHT == 0 && cg <= MOST_CHANNELS && mg <= MOST_CHANNELS && taps <= MOST_TAPS &&
           (type != CUDA_T_F32 || v->tf32) && v->n * v->h * v->w * v->c < INT32_MAX / 2 &&
           v->n * v->p * v->q * v->m < INT32_MAX / 2 &&
           taps * (cg > mg ? cg : mg) * EIGHT * (int64_t)sizeof(float) <= MAX_SHARED;
}

void conv_grouped(cudaStream_t s, const struct k_conv *v, int type, const void *x, const void *w,
                  const void *bias, const void *z, struct act_of act, void *y)
{
    DISPATCH_FLOAT(type, T,
                   grouped<T>(s, grouped_of(v), (const T *)x, (const T *)w, (const T *)bias,
                              (const T *)z, act, (T *)y))
}

void conv_grouped_data(cudaStream_t s, const struct k_conv *v, int type, const void *dy,
                       const void *w, void *dx)
{
    const struct act_of none = {DEV_ACT_NONE, 0, 0};

    DISPATCH_FLOAT(type, T,
                   grouped<T>(s, turned_conv(v), (const T *)dy, (const T *)w, (const T *)NULL,
                              (const T *)NULL, none, (T *)dx))
}

size_t conv_grouped_scratch(const struct k_conv *v)
{
    return (size_t)(shares_of(grouped_of(v)).splits * v->m * v->r * v->s * (v->c / v->groups)) *
           sizeof(float);
}

void conv_grouped_weight(cudaStream_t s, const struct k_conv *v, int type, const void *x,
                         const void *dy, void *scratch, void *dw)
{
    DISPATCH_FLOAT(
        type, T,
        grouped_weight<T>(s, grouped_of(v), (const T *)x, (const T *)dy, (float *)scratch, (T *)dw))
}
