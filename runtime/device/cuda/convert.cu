/* convert.cu - moves of elements between layouts and types: what every operation that only moves
 * data comes down to, and the plan's conversions.
 *
 * k_convert sorts the axes by the destination's strides and merges them; then
 *   one contiguous run, same type        a copy by the runtime
 *   rows contiguous on both sides        units of up to 16 bytes (same type) or eights (conversion)
 *   the source contiguous along another axis, both axes at least TILE / 2
 *                                        32 x 32 tiles through shared memory (NCHW <-> NHWC)
 *   anything else                        one element per thread, stores coalesced. NCHW -> NHWC
 *                                        with 3 channels is well served: a warp reads three runs
 * k_convert_many transposes [outer][c][inner] in pieces that are contiguous on both sides and fit
 * into shared memory, many tensors per launch.
 */
#include "runtime/device/cuda/nest.cuh"

#define THREADS 256
#define TILE 32
#define TILE_ROWS 8

/* ------------------------------------------------------------------ same type */

template <class U>
static __global__ void move_units(const __grid_constant__ nest<2> n, uint32_t total, U *dst,
                                  const U *src)
{
    const uint32_t i = blockIdx.x * THREADS + threadIdx.x;
    int64_t off[2];

    if (i >= total)
        return;
    locate(n, i, off);
    dst[off[0]] = src[off[1]];
}

template <class U>
static __global__ void move_wide(const __grid_constant__ wide_nest<2> n, int64_t total, U *dst,
                                 const U *src)
{
    const int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    int64_t off[2];

    if (i >= total)
        return;
    locate(n, i, off);
    dst[off[0]] = src[off[1]];
}

/* The largest unit of bytes in which rows can move. */
static size_t nest_unit(const struct k_nest &n, size_t size, const void *dst, const void *src)
{
    const int last = n.rank - 1;
    size_t unit = 16;

    if (n.stride[0][last] != 1 || n.stride[1][last] != 1)
        return size;
    for (; unit > size; unit /= 2) {
        const int64_t per = (int64_t)(unit / size);
        bool fits = n.dims[last] % per == 0 && is_aligned(dst, unit) && is_aligned(src, unit);

        for (int a = 0; a < last; a++)
            fits = fits && n.stride[0][a] % per == 0 && n.stride[1][a] % per == 0;
        if (fits)
            return unit;
    }
    return size;
}

template <class U>
static void launch_move(cudaStream_t s, const struct k_nest &n, void *dst, const void *src)
{
    const unsigned grid = (unsigned)cdiv64(n.total, THREADS);
    nest<2> narrow;

    if (narrow_of(n, &narrow))
        move_units<U><<<grid, THREADS, 0, s>>>(narrow, (uint32_t)n.total, (U *)dst, (const U *)src);
    else
        move_wide<U><<<grid, THREADS, 0, s>>>(wide_of<2>(n), n.total, (U *)dst, (const U *)src);
}

static void move_nest(cudaStream_t s, struct k_nest n, size_t size, void *dst, const void *src)
{
    const size_t unit = nest_unit(n, size, dst, src);
    const int64_t per = (int64_t)(unit / size);
    const int last = n.rank - 1;

    n.dims[last] /= per;
    n.total /= per;
    for (int a = 0; a < last; a++) {
        n.stride[0][a] /= per;
        n.stride[1][a] /= per;
    }
    switch (unit) {
    case 16:
        launch_move<uint4>(s, n, dst, src);
        break;
    case 8:
        launch_move<uint64_t>(s, n, dst, src);
        break;
    case 4:
        launch_move<uint32_t>(s, n, dst, src);
        break;
    case 2:
        launch_move<uint16_t>(s, n, dst, src);
        break;
    default:
        launch_move<uint8_t>(s, n, dst, src);
        break;
    }
}

/* ------------------------------------------------------------------ F32, F16, BF16 */

static __global__ void convert_vec(const __grid_constant__ vec_nest<2> n, k_operand dst,
                                   k_operand src)
{
    const uint32_t i = blockIdx.x * THREADS + threadIdx.x;
    int64_t off[2];
    float v[8];

    if (i < n.n_vec) {
        locate(n.n, i, off);
        load8(src, off[1], n.step[1], v);
        store8(dst, off[0], v);
    } else if (i - n.n_vec < n.tail) {
        const int64_t e = (int64_t)n.n_vec * 8 + (i - n.n_vec);

        store1(dst, e, load1(src, e * n.step[1]));
    }
}

template <class NEST, class I>
static __global__ void convert_each(const __grid_constant__ NEST n, I total, k_operand dst,
                                    k_operand src)
{
    const I i = (I)blockIdx.x * THREADS + threadIdx.x;
    int64_t off[2];

    if (i >= total)
        return;
    locate(n, i, off);
    store1(dst, off[0], load1(src, off[1]));
}

static void convert_float(cudaStream_t s, const struct k_nest &n, k_operand dst, k_operand src)
{
    const unsigned grid = (unsigned)cdiv64(n.total, THREADS);
    vec_nest<2> vec;
    nest<2> narrow;

    if (vec_of<2>(n, {dst, src}, &vec))
        convert_vec<<<(unsigned)cdiv64((int64_t)vec.n_vec + vec.tail, THREADS), THREADS, 0, s>>>(
            vec, dst, src);
    else if (narrow_of(n, &narrow))
        convert_each<<<grid, THREADS, 0, s>>>(narrow, (uint32_t)n.total, dst, src);
    else
        convert_each<<<grid, THREADS, 0, s>>>(wide_of<2>(n), n.total, dst, src);
}

/* ------------------------------------------------------------------ any type to any other */

/* An integer from an integer keeps the low bits; from a float it becomes the nearest that it can
 * be, 0 from NaN. */
struct number {
    double d;
    int64_t l; /* of an integer */
};

/* clang-format off */
#define INT_TYPES(X)                                            \
    X(I8, int8_t, -128.0, 127.0)                                \
    X(I16, int16_t, -32768.0, 32767.0)                          \
    X(I32, int32_t, -2147483648.0, 2147483647.0)                \
    X(I64, int64_t, -9223372036854774784.0, 9223372036854774784.0) \
    X(U8, uint8_t, 0.0, 255.0)                                  \
    X(U16, uint16_t, 0.0, 65535.0)                              \
    X(U32, uint32_t, 0.0, 4294967295.0)                         \
    X(U64, uint64_t, 0.0, 18446744073709549568.0)
/* clang-format on */

static DEV_INLINE bool is_int(int type)
{
    return type >= CUDA_T_I64;
}

static DEV_INLINE number load_number(const k_operand &o, int64_t i)
{
    number n = {0, 0};

    switch (o.type) {
#define X(name, type, lo, hi)                  \
    case CUDA_T_##name:                        \
        n.l = (int64_t)((const type *)o.p)[i]; \
        n.d = (double)((const type *)o.p)[i];  \
        break;
        INT_TYPES(X)
#undef X
    case CUDA_T_F64:
        n.d = ((const double *)o.p)[i];
        break;
    default:
        n.d = load1(o, i);
        break;
    }
    return n;
}

static DEV_INLINE double clamp(double v, double lo, double hi)
{
    return v != v ? 0 : v < lo ? lo : v > hi ? hi : v;
}

static DEV_INLINE void store_number(const k_operand &o, int64_t i, bool is_bool, bool from_int,
                                    number n)
{
    if (is_bool) {
        ((uint8_t *)o.p)[i] = n.d != 0;
        return;
    }
    switch (o.type) {
#define X(name, type, lo, hi)                                               \
    case CUDA_T_##name:                                                     \
        ((type *)o.p)[i] = from_int ? (type)n.l : (type)clamp(n.d, lo, hi); \
        break;
        INT_TYPES(X)
#undef X
    case CUDA_T_F64:
        ((double *)o.p)[i] = n.d;
        break;
    default:
        store1(o, i, (float)n.d);
        break;
    }
}

/* Enumerates operand 0 of `to`; operand 1 of it is the row-major number of the element, which
 * `from` turns into a place in the source. */
template <class NEST, class FROM, class I>
static __global__ void cast_each(const __grid_constant__ NEST to, const __grid_constant__ FROM from,
                                 I total, k_operand dst, k_operand src, bool is_bool)
{
    const I i = (I)blockIdx.x * THREADS + threadIdx.x;
    int64_t off[2], at[1];

    if (i >= total)
        return;
    locate(to, i, off);
    locate(from, (I)off[1], at);
    store_number(dst, off[0], is_bool, is_int(src.type), load_number(src, at[0]));
}

void k_cast(cudaStream_t s, const struct k_nest *to, const struct k_nest *from,
            struct k_operand src, struct k_operand dst, bool is_bool)
{
    const unsigned grid = (unsigned)cdiv64(to->total, THREADS);
    nest<2> narrow;
    nest<1> place;

    if (narrow_of(*to, &narrow) && narrow_of(*from, &place))
        cast_each<<<grid, THREADS, 0, s>>>(narrow, place, (uint32_t)to->total, dst, src, is_bool);
    else
        cast_each<<<grid, THREADS, 0, s>>>(wide_of<2>(*to), wide_of<1>(*from), to->total, dst, src,
                                           is_bool);
}

/* ------------------------------------------------------------------ tiles */

struct tiles {
    int64_t rows, cols; /* the source is contiguous along rows, the destination along cols */
    int64_t src_step, dst_step; /* of the source along cols, of the destination along rows */
    uint32_t n_rows, n_cols;    /* tiles */
    nest<2> batch;
};

template <class TO, class FROM> struct carry {
    static DEV_INLINE TO of(FROM v)
    {
        return from_f<TO>(to_f(v));
    }
};
template <class T> struct carry<T, T> {
    static DEV_INLINE T of(T v)
    {
        return v;
    }
};

template <class TO, class FROM>
static __global__ void move_tile(const __grid_constant__ tiles t, TO *dst, const FROM *src)
{
    __shared__ TO tile[TILE][TILE + 1];
    const uint32_t tc = blockIdx.x % t.n_cols, rest = blockIdx.x / t.n_cols;
    const int64_t row0 = (int64_t)(rest % t.n_rows) * TILE, col0 = (int64_t)tc * TILE;
    int64_t off[2];

    locate(t.batch, rest / t.n_rows, off);
    for (int i = threadIdx.y; i < TILE; i += TILE_ROWS)
        if (col0 + i < t.cols && row0 + threadIdx.x < t.rows)
            tile[i][threadIdx.x] =
                carry<TO, FROM>::of(src[off[1] + (col0 + i) * t.src_step + row0 + threadIdx.x]);
    __syncthreads();
    for (int i = threadIdx.y; i < TILE; i += TILE_ROWS)
        if (row0 + i < t.rows && col0 + threadIdx.x < t.cols)
            dst[off[0] + (row0 + i) * t.dst_step + col0 + threadIdx.x] = tile[threadIdx.x][i];
}

/* Is it a transposition? Then axis *row is the source's contiguous one, the last the destination's.
 */
static bool tiles_of(const struct k_nest &n, tiles *t)
{
    const int last = n.rank - 1;
    struct k_nest batch = n;
    int row = 0, w = 0;

    while (row < last && n.stride[1][row] != 1)
        row++;
    if (row >= last || n.stride[0][last] != 1 || n.stride[1][last] == 0 || n.dims[row] < TILE / 2 ||
        n.dims[last] < TILE / 2)
        return false;
    t->rows = n.dims[row];
    t->cols = n.dims[last];
    t->src_step = n.stride[1][last];
    t->dst_step = n.stride[0][row];
    batch.total = 1;
    for (int a = 0; a < last; a++)
        if (a != row) {
            batch.dims[w] = n.dims[a];
            batch.stride[0][w] = n.stride[0][a];
            batch.stride[1][w] = n.stride[1][a];
            batch.total *= n.dims[a];
            w++;
        }
    batch.rank = w ? w : 1;
    if (w == 0) {
        batch.dims[0] = 1;
        batch.stride[0][0] = batch.stride[1][0] = 0;
    }
    if (cdiv64(t->rows, TILE) * cdiv64(t->cols, TILE) > INT32_MAX / batch.total)
        return false;
    t->n_rows = (uint32_t)cdiv64(t->rows, TILE);
    t->n_cols = (uint32_t)cdiv64(t->cols, TILE);
    return narrow_of(batch, &t->batch);
}

template <class TO, class FROM>
static void launch_tiles(cudaStream_t s, const struct k_nest &n, const tiles &t, void *dst,
                         const void *src)
{
    const int64_t batch = n.total / t.rows / t.cols;

    move_tile<TO, FROM><<<(unsigned)(t.n_rows * t.n_cols * batch), dim3(TILE, TILE_ROWS), 0, s>>>(
        t, (TO *)dst, (const FROM *)src);
}

static void transpose_same(cudaStream_t s, const struct k_nest &n, const tiles &t, size_t size,
                           void *dst, const void *src)
{
    if (size == 8)
        launch_tiles<uint64_t, uint64_t>(s, n, t, dst, src);
    else if (size == 4)
        launch_tiles<uint32_t, uint32_t>(s, n, t, dst, src);
    else if (size == 2)
        launch_tiles<uint16_t, uint16_t>(s, n, t, dst, src);
    else
        launch_tiles<uint8_t, uint8_t>(s, n, t, dst, src);
}

/* false: not one of the conversions of a plan, which are between F32 and its compute type. */
static bool transpose_float(cudaStream_t s, const struct k_nest &n, const tiles &t,
                            const k_operand &dst, const k_operand &src)
{
    if (dst.type == CUDA_T_F16 && src.type == CUDA_T_F32 && dst.overflows)
        launch_tiles<f16_open, float>(s, n, t, dst.p, src.p);
    else if (dst.type == CUDA_T_F16 && src.type == CUDA_T_F32)
        launch_tiles<f16, float>(s, n, t, dst.p, src.p);
    else if (dst.type == CUDA_T_BF16 && src.type == CUDA_T_F32)
        launch_tiles<bf16, float>(s, n, t, dst.p, src.p);
    else if (dst.type == CUDA_T_F32 && src.type == CUDA_T_F16)
        launch_tiles<float, f16>(s, n, t, dst.p, src.p);
    else if (dst.type == CUDA_T_F32 && src.type == CUDA_T_BF16)
        launch_tiles<float, bf16>(s, n, t, dst.p, src.p);
    else
        return false;
    return true;
}

/* ------------------------------------------------------------------ k_convert */

static bool is_float(int type)
{
    return type == CUDA_T_F32 || type == CUDA_T_F16 || type == CUDA_T_BF16;
}

static void cast_same_shape(cudaStream_t s, const struct k_nest &n, k_operand dst, k_operand src)
{
    struct k_nest to = n, from = n;
    int64_t step = 1;

    for (int a = n.rank - 1; a >= 0; a--) { /* the number of an element, in the nest's own order */
        to.stride[1][a] = step;
        from.stride[0][a] = n.stride[1][a];
        step *= n.dims[a];
    }
    k_cast(s, &to, &from, src, dst, false);
}

void k_convert(cudaStream_t s, const struct k_nd *nd, struct k_operand src, struct k_operand dst)
{
    struct k_nest n = {};
    tiles t;

    n.rank = nd->rank;
    n.total = 1;
    for (int a = 0; a < nd->rank; a++) {
        n.dims[a] = nd->dims[a];
        n.stride[0][a] = nd->stride[1][a];
        n.stride[1][a] = nd->stride[0][a];
        n.total *= nd->dims[a];
    }
    k_nest_pack(&n, 0);
    if (src.type == dst.type) {
        if (n.rank == 1 && n.stride[0][0] == 1 && n.stride[1][0] == 1)
            (void)cudaMemcpyAsync(dst.p, src.p, (size_t)n.total * type_bytes(dst.type),
                                  cudaMemcpyDeviceToDevice, s);
        else if (tiles_of(n, &t))
            transpose_same(s, n, t, type_bytes(dst.type), dst.p, src.p);
        else
            move_nest(s, n, type_bytes(dst.type), dst.p, src.p);
        return;
    }
    if (!is_float(src.type) || !is_float(dst.type))
        cast_same_shape(s, n, dst, src);
    else if (!tiles_of(n, &t) || !transpose_float(s, n, t, dst, src))
        convert_float(s, n, dst, src);
}

/* ------------------------------------------------------------------ k_convert_many */

#define PIECE 4096 /* elements of one block: F32 in shared memory */

struct many_item {
    const float *src;
    void *dst;
    int64_t total; /* elements */
    int64_t c;     /* 1: no transposition */
    int64_t inner;
    int64_t c_part; /* channels of one piece; = c: a piece is whole outers */
    int64_t per;    /* elements of one piece; the last of a tensor may have less */
    uint32_t parts; /* pieces of one outer; 1 if a piece is whole outers */
};

struct many {
    many_item item[K_CONVERT_BATCH];
    uint32_t end[K_CONVERT_BATCH]; /* blocks of the items up to and with this one */
};

template <class T> static __device__ void many_linear(const many_item &m, int64_t from, int64_t n)
{
    const float *src = m.src + from;
    T *dst = (T *)m.dst + from;
    const bool aligned = (uintptr_t)src % 16 == 0 && (uintptr_t)dst % 16 == 0;
    const int64_t n_vec = aligned ? n / 4 : 0;

#pragma unroll 4
    for (int64_t i = threadIdx.x; i < n_vec; i += THREADS) {
        float v[4];

        load_f<4>(src + 4 * i, v);
        store_f<4>(dst + 4 * i, v);
    }
    for (int64_t i = 4 * n_vec + threadIdx.x; i < n; i += THREADS)
        dst[i] = from_f<T>(src[i]);
}

/* One piece: [outers][c][inner] or, of a single outer, channels [c0, c0 + c_part) of it. */
template <class T>
static __device__ void many_transposed(const many_item &m, int64_t piece, float *tile)
{
    const int64_t outer = m.parts > 1 ? piece / m.parts : 0;
    const int64_t c0 = m.parts > 1 ? piece % m.parts * m.c_part : 0;
    const int64_t from = m.parts > 1 ? outer * m.c * m.inner + c0 * m.inner : piece * m.per;
    const int64_t c = m.parts > 1 && m.c - c0 < m.c_part ? m.c - c0 : m.c_part;
    const int64_t rest = m.parts > 1 ? c * m.inner : m.total - from;
    const uint32_t n = (uint32_t)(rest < m.per ? rest : m.per);
    const uint32_t cc = (uint32_t)c, inner = (uint32_t)m.inner, block = cc * inner;

    for (uint32_t i = threadIdx.x; i < n; i += THREADS)
        tile[i] = m.src[from + i];
    __syncthreads();
    for (uint32_t i = threadIdx.x; i < n; i += THREADS) { /* i: [outer][inner][channel] */
        const uint32_t o = i / block, e = i - o * block, in = e / cc, ch = e - in * cc;
        const int64_t at = m.parts > 1 ? outer * m.c * m.inner + in * m.c + c0 + ch : from + i;

        ((T *)m.dst)[at] = from_f<T>(tile[o * block + ch * inner + in]);
    }
}

template <class T> static __global__ void convert_many(const __grid_constant__ many m, int n)
{
    __shared__ float tile[PIECE];
    int k = 0;

    while (k < n - 1 && blockIdx.x >= m.end[k])
        k++;
    const many_item &it = m.item[k];
    const int64_t piece = blockIdx.x - (k ? m.end[k - 1] : 0);

    if (it.c > 1)
        many_transposed<T>(it, piece, tile);
    else
        many_linear<T>(it, piece * it.per, min(it.per, it.total - piece * it.per));
}

/* Returns the number of pieces; 0: one channel alone does not fit into a block. */
static int64_t cut_into_pieces(const struct k_convert_item &i, many_item *m)
{
    const int64_t size = i.c * i.inner;

    *m = many_item{};
    m->src = i.src;
    m->dst = i.dst;
    m->total = i.outer * size;
    m->inner = i.inner;
    m->c = i.inner > 1 ? i.c : 1;
    m->c_part = m->c;
    m->per = PIECE;
    m->parts = 1;
    if (m->c == 1)
        return cdiv64(m->total, m->per);
    if (i.inner > PIECE)
        return 0;
    if (size <= PIECE) {
        m->per = PIECE / size * size;
        return cdiv64(m->total, m->per);
    }
    m->c_part = PIECE / i.inner >= 32 ? PIECE / i.inner / 32 * 32 : PIECE / i.inner;
    m->per = m->c_part * i.inner;
    m->parts = (uint32_t)cdiv64(i.c, m->c_part);
    return i.outer * m->parts;
}

static void convert_large(cudaStream_t s, const struct k_convert_item &i, int dst_type)
{
    struct k_nd nd = {};

    nd.rank = 3;
    nd.dims[0] = i.outer;
    nd.dims[1] = i.c;
    nd.dims[2] = i.inner;
    nd.stride[0][0] = nd.stride[1][0] = i.c * i.inner;
    nd.stride[0][1] = i.inner;
    nd.stride[0][2] = 1;
    nd.stride[1][1] = 1;
    nd.stride[1][2] = i.c;
    k_convert(s, &nd, {(void *)i.src, CUDA_T_F32, false}, {i.dst, dst_type, false});
}

void k_convert_many(cudaStream_t s, const struct k_convert_item *items, int n, int dst_type)
{
    many m = {};

    for (int from = 0; from < n;) {
        int64_t blocks = 0;
        int k = 0;

        for (; from < n && k < K_CONVERT_BATCH; from++) {
            const int64_t pieces = cut_into_pieces(items[from], &m.item[k]);

            if (pieces == 0) {
                convert_large(s, items[from], dst_type);
                continue;
            }
            if (blocks + pieces > INT32_MAX)
                break;
            blocks += pieces;
            m.end[k++] = (uint32_t)blocks;
        }
        if (k > 0)
            DISPATCH_FLOAT(dst_type, T, convert_many<T><<<(unsigned)blocks, THREADS, 0, s>>>(m, k));
    }
}

/* ------------------------------------------------------------------ k_delay */

static __global__ void delay(uint64_t ns)
{
    uint64_t begin, now;

    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(begin));
    do {
        __nanosleep(500);
        asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
    } while (now - begin < ns);
}

void k_delay(cudaStream_t s, uint64_t ns)
{
    delay<<<1, 1, 0, s>>>(ns);
}
