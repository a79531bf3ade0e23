/* pick.cu - what the data choose: elements that are not 0, boxes that no better one covers.
 *
 * NONZERO: blocks count what they have, one block adds up the counts of those before each, blocks
 * write. NMS: a block for each class of each sample takes the best box that is left, and in the
 * pass that looks for the next one drops what that covers: no sorting, no scratch but the scores
 * that are left. Time is proportional to boxes times picked boxes. The same bits each time, and
 * those of the cpu back end: products and sums are rounded one by one.
 */
#include "runtime/device/cuda/kernels_pick.h"
#include "runtime/device/cuda/nest.cuh"

#define TILE 1024
#define WARPS (TILE / WARP)

/* ------------------------------------------------------------------ what is not 0 */

static DEV_INLINE bool is_set(const k_operand &x, int64_t i)
{
    switch (x.type) {
    case CUDA_T_F32:
    case CUDA_T_F16:
    case CUDA_T_BF16:
        return load1(x, i) != 0.0f;
    case CUDA_T_I64:
    case CUDA_T_U64:
        return ((const int64_t *)x.p)[i] != 0;
    case CUDA_T_I32:
    case CUDA_T_U32:
        return ((const int32_t *)x.p)[i] != 0;
    case CUDA_T_I16:
    case CUDA_T_U16:
        return ((const int16_t *)x.p)[i] != 0;
    default:
        return ((const uint8_t *)x.p)[i] != 0;
    }
}

static __global__ void __launch_bounds__(TILE) count_tiles(int64_t n, k_operand x, int64_t *before)
{
    const int64_t i = (int64_t)blockIdx.x * TILE + threadIdx.x;
    const int found = __syncthreads_count(i < n && is_set(x, i));

    if (threadIdx.x == 0)
        before[blockIdx.x] = found;
}

/* Each count becomes the sum of those before it. One block, of one warp. */
static __global__ void __launch_bounds__(WARP)
    add_tiles(int64_t tiles, int64_t *before, int64_t *count)
{
    const int lane = threadIdx.x;
    int64_t carry = 0;

    for (int64_t t0 = 0; t0 < tiles; t0 += WARP) {
        const int64_t own = t0 + lane < tiles ? before[t0 + lane] : 0;
        int64_t sum = own;

#pragma unroll
        for (int d = 1; d < WARP; d *= 2) {
            const int64_t left = __shfl_up_sync(0xffffffffu, (long long)sum, d);

            if (lane >= d)
                sum += left;
        }
        if (t0 + lane < tiles)
            before[t0 + lane] = carry + sum - own;
        carry += __shfl_sync(0xffffffffu, (long long)sum, WARP - 1);
    }
    if (lane == 0)
        *count = carry;
}

static __global__ void __launch_bounds__(TILE)
    write_tiles(int64_t n, k_operand x, const int64_t *before, const int64_t *count,
                int64_t *places)
{
    __shared__ int found[WARPS];
    const int64_t i = (int64_t)blockIdx.x * TILE + threadIdx.x;
    const int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
    const bool set = i < n && is_set(x, i);
    const unsigned lanes = __ballot_sync(0xffffffffu, set);
    int64_t at = before[blockIdx.x] + __popc(lanes & ((1u << lane) - 1u));

    if (lane == 0)
        found[warp] = __popc(lanes);
    __syncthreads();
    for (int w = 0; w < warp; w++)
        at += found[w];
    if (set)
        places[at] = i;
    if (i < n && i >= *count)
        places[i] = 0;
}

size_t k_nonzero_scratch(int64_t n)
{
    return (size_t)cdiv64(n, TILE) * sizeof(int64_t);
}

void k_nonzero(cudaStream_t s, int64_t n, struct k_operand x, int64_t *places, int64_t *count,
               void *scratch)
{
    const unsigned tiles = (unsigned)cdiv64(n, TILE);
    int64_t *before = (int64_t *)scratch;

    count_tiles<<<tiles, TILE, 0, s>>>(n, x, before);
    add_tiles<<<1, WARP, 0, s>>>(tiles, before, count);
    write_tiles<<<tiles, TILE, 0, s>>>(n, x, before, count, places);
}

static __global__ void __launch_bounds__(TILE)
    fill_mask(int64_t n, const int64_t *count, uint8_t *y)
{
    const int64_t step = (int64_t)gridDim.x * TILE;

    for (int64_t i = (int64_t)blockIdx.x * TILE + threadIdx.x; i < n; i += step)
        y[i] = i < *count;
}

void k_mask(cudaStream_t s, int64_t n, const int64_t *count, uint8_t *y)
{
    const int64_t blocks = cdiv64(n, TILE);

    fill_mask<<<(unsigned)(blocks < 1 << 16 ? blocks : 1 << 16), TILE, 0, s>>>(n, count, y);
}

/* ------------------------------------------------------------------ boxes */

struct corners {
    float y[2], x[2];
};

static DEV_INLINE float less_of(float a, float b)
{
    return a < b ? a : b;
}

static DEV_INLINE float more_of(float a, float b)
{
    return a > b ? a : b;
}

static DEV_INLINE corners corners_of(const struct k_nms &s, const k_operand &boxes, int64_t at)
{
    const float b[4] = {load1(boxes, 4 * at), load1(boxes, 4 * at + 1), load1(boxes, 4 * at + 2),
                        load1(boxes, 4 * at + 3)};

    if (s.how.is_centred) {
        const float w = __fdiv_rn(b[2], 2.0f), h = __fdiv_rn(b[3], 2.0f);

        return {{__fsub_rn(b[1], h), __fadd_rn(b[1], h)}, {__fsub_rn(b[0], w), __fadd_rn(b[0], w)}};
    }
    return {{less_of(b[0], b[2]), more_of(b[0], b[2])}, {less_of(b[1], b[3]), more_of(b[1], b[3])}};
}

static DEV_INLINE float area(const corners &c)
{
    return __fmul_rn(__fsub_rn(c.y[1], c.y[0]), __fsub_rn(c.x[1], c.x[0]));
}

/* a: the box that is picked. */
static DEV_INLINE float overlap(const corners &a, const corners &b)
{
    const float h = __fsub_rn(less_of(a.y[1], b.y[1]), more_of(a.y[0], b.y[0]));
    const float w = __fsub_rn(less_of(a.x[1], b.x[1]), more_of(a.x[0], b.x[0]));
    const float both = __fmul_rn(h, w), one = area(a), other = area(b);
    const float all = __fsub_rn(__fadd_rn(one, other), both);

    if (h <= 0 || w <= 0 || both <= 0 || one <= 0 || other <= 0 || all <= 0)
        return 0;
    return __fdiv_rn(both, all);
}

struct best {
    float score;
    int at; /* < 0: none */
};

static DEV_INLINE best better_box(const best &a, const best &b)
{
    if (a.at < 0 || b.at < 0)
        return a.at < 0 ? b : a;
    if (a.score != b.score)
        return a.score > b.score ? a : b;
    return a.at < b.at ? a : b;
}

/* Of all threads of the block; ends with a barrier. */
static DEV_INLINE best best_of_all(best mine, best *smem)
{
    best all;

#pragma unroll
    for (int d = WARP / 2; d > 0; d /= 2) {
        const best other = {__shfl_xor_sync(0xffffffffu, mine.score, d),
                            __shfl_xor_sync(0xffffffffu, mine.at, d)};

        mine = better_box(mine, other);
    }
    if (threadIdx.x % WARP == 0)
        smem[threadIdx.x / WARP] = mine;
    __syncthreads();
    all = smem[0];
    for (int w = 1; w < WARPS; w++)
        all = better_box(all, smem[w]);
    __syncthreads();
    return all;
}

/* left: [batch, classes, n], NaN where a box is picked or dropped; each thread sees but its own. */
static __global__ void __launch_bounds__(TILE)
    pick_boxes(const __grid_constant__ struct k_nms s, k_operand boxes, k_operand scores,
               float *left, int32_t *picked, int32_t *n_picked)
{
    __shared__ best smem[WARPS];
    const int64_t c = blockIdx.x, first = c / s.classes * s.n;
    corners last = {};
    best now = {0.0f, -1};
    int k = 0;

    left += c * s.n;
    for (int64_t i = threadIdx.x; i < s.n; i += TILE) {
        const float v = load1(scores, c * s.n + i);

        left[i] = s.how.any_score || v > s.how.score ? v : NAN;
    }
    for (; k < s.how.most; k++) {
        best mine = {0.0f, -1};

        for (int64_t i = threadIdx.x; i < s.n; i += TILE) {
            const float v = left[i];

            if (v != v)
                continue;
            if (k > 0 &&
                (i == now.at || overlap(last, corners_of(s, boxes, first + i)) > s.how.overlap)) {
                left[i] = NAN;
                continue;
            }
            if (mine.at < 0 || v > mine.score)
                mine = {v, (int)i};
        }
        now = best_of_all(mine, smem);
        if (now.at < 0)
            break;
        last = corners_of(s, boxes, first + now.at);
        if (threadIdx.x == 0)
            picked[c * s.how.most + k] = now.at;
    }
    if (threadIdx.x == 0)
        n_picked[c] = k;
}

/* One block: the boxes of all classes one behind the other; rows is all 0. */
static __global__ void __launch_bounds__(TILE)
    join_classes(const __grid_constant__ struct k_nms s, const int32_t *picked,
                 const int32_t *n_picked, int64_t *rows, int64_t *count)
{
    const int64_t all = s.batch * s.classes;
    int64_t n = 0;

    for (int64_t c = 0; c < all; n += n_picked[c], c++)
        for (int64_t i = threadIdx.x; i < n_picked[c]; i += TILE) {
            int64_t *row = rows + 3 * (n + i);

            row[0] = c / s.classes;
            row[1] = c % s.classes;
            row[2] = picked[c * s.how.most + i];
        }
    if (threadIdx.x == 0)
        *count = n;
}

size_t k_nms_scratch(const struct k_nms *k)
{
    const size_t classes = (size_t)(k->batch * k->classes);

    return classes * (size_t)k->n * sizeof(float) +
           classes * ((size_t)k->how.most + 1) * sizeof(int32_t);
}

void k_nms(cudaStream_t s, const struct k_nms *k, struct k_operand boxes, struct k_operand scores,
           int64_t *picked, int64_t *count, void *scratch)
{
    const int64_t classes = k->batch * k->classes;
    float *left = (float *)scratch;
    int32_t *of = (int32_t *)(left + classes * k->n), *n_of = of + classes * k->how.most;

    cudaMemsetAsync(picked, 0, 3 * (size_t)(classes * k->how.most) * sizeof(*picked), s);
    pick_boxes<<<(unsigned)classes, TILE, 0, s>>>(*k, boxes, scores, left, of, n_of);
    join_classes<<<1, TILE, 0, s>>>(*k, of, n_of, picked, count);
}
