/* cpu_wino.c - convolutions of 3 x 3 by Winograd's F(4 x 4, 3 x 3): 36 products for 16 results of
 * a pair of channels instead of 144.
 *
 * A tile of 4 x 4 results needs 6 x 6 values. Both sides of the tile and the kernel are evaluated
 * as polynomials at the points 0, a, -a, b, -b and infinity, multiplied there, summed over the
 * input channels, and interpolated:  y = A^T ((G g G^T) (B^T d B)) A. These points keep the error
 * below that of the direct sum, which is longer. Tiles are worked on in chunks that fit the cache:
 * transform in, 36 matrix products, transform out with bias, residual and activation.
 *
 * The kernels are stored transformed, 4 times as large, in a form that does not depend on the size
 * of pictures or batches, since all plans of a model read one image. Hence the rule for who takes
 * part looks at the operation alone and at the pictures of the first plan.
 */
#include "runtime/device/cpu/cpu_wino.h"

#include "common/mem.h"

#if defined(__x86_64__)
#include <immintrin.h>

#define BLOCK 16  /* channels of a block: one vector */
#define PANEL 32  /* output channels of a panel of kernels */
#define POINTS 36 /* 6 x 6 */
#define SIDE 4    /* results of a tile, along one axis */
#define ROWS 14   /* tiles that one product takes at a time, or half of them */
#define CHUNK_BYTES (768u << 10)
#define CHUNK_ROWS 56
#define LARGE 400 /* pixels of a result from which kernels are few beside what they work on */
#define SMALL 150 /* and below which more kernels are read than work is saved */
#define FMA __attribute__((target("avx512f")))
#define INLINE static inline FMA __attribute__((always_inline))

typedef float vec __attribute__((vector_size(4 * BLOCK)));

#define PA 0.625f
#define PB 1.5f
#define PA2 (PA * PA)
#define PB2 (PB * PB)

struct wino {
    int64_t samples, n_in, n_out; /* channels */
    int64_t in_h, in_w, out_h, out_w, pad_h, pad_w;
    int64_t down, across; /* tiles */
    int64_t chunk;        /* tiles */
    bool has_bias, has_residual, relu;
};

/* ------------------------------------------------------------------ kernels */

/* G g: of three values at six points. */
static void kernel_line(const double g[3], double out[6])
{
    const double a = PA, b = PB, a2 = a * a, b2 = b * b;
    const double na = 2 * a2 * (a2 - b2), nb = 2 * b2 * (b2 - a2);

    out[0] = g[0] / (a2 * b2);
    out[1] = (g[0] + a * g[1] + a2 * g[2]) / na;
    out[2] = (g[0] - a * g[1] + a2 * g[2]) / na;
    out[3] = (g[0] + b * g[1] + b2 * g[2]) / nb;
    out[4] = (g[0] - b * g[1] + b2 * g[2]) / nb;
    out[5] = g[2];
}

static void kernel_points(const float *g, float out[POINTS])
{
    double columns[6][3], line[3], points[6];

    for (int j = 0; j < 3; j++) {
        for (int i = 0; i < 3; i++)
            line[i] = g[3 * i + j];
        kernel_line(line, points);
        for (int i = 0; i < 6; i++)
            columns[i][j] = points[i];
    }
    for (int i = 0; i < 6; i++) {
        kernel_line(columns[i], points);
        for (int j = 0; j < 6; j++)
            out[6 * i + j] = (float)points[j];
    }
}

/* Panels of output channels, the last perhaps of BLOCK; in each the input channels one after the
 * other: [point][panel][in][out of the panel]. */
static size_t kernel_at(int64_t n_in, int64_t n_out, int64_t in, int64_t out)
{
    const int64_t first = out / PANEL * PANEL;

    return (size_t)(first * n_in + in * SH_MIN(PANEL, n_out - first) + out % PANEL);
}

void cpu__wino_pack(const struct dev_tensor *w, const float *plain, float *stored)
{
    const int64_t n_out = w->dims[0], n_in = w->dims[1];
    float points[POINTS];

    for (int64_t o = 0; o < n_out; o++)
        for (int64_t i = 0; i < n_in; i++) {
            kernel_points(plain + (o * n_in + i) * 9, points);
            for (int k = 0; k < POINTS; k++)
                stored[(size_t)(k * n_in * n_out) + kernel_at(n_in, n_out, i, o)] = points[k];
        }
}

/* g from G g: a value of the six for each, up to rounding. */
static void plain_line(const double points[6], double g[3])
{
    const double a = PA, a2 = a * a, b2 = (double)PB * PB;

    g[0] = points[0] * a2 * b2;
    g[1] = (points[1] - points[2]) * a * (a2 - b2);
    g[2] = points[5];
}

void cpu__wino_unpack(const struct dev_tensor *w, const float *stored, float *plain)
{
    const int64_t n_out = w->dims[0], n_in = w->dims[1];
    double rows[6][3], line[6], g[3];

    for (int64_t o = 0; o < n_out; o++)
        for (int64_t i = 0; i < n_in; i++) {
            const float *points = stored + kernel_at(n_in, n_out, i, o);

            for (int r = 0; r < 6; r++) {
                for (int c = 0; c < 6; c++)
                    line[c] = points[(6 * r + c) * n_in * n_out];
                plain_line(line, rows[r]);
            }
            for (int c = 0; c < 3; c++) {
                for (int r = 0; r < 6; r++)
                    line[r] = rows[r][c];
                plain_line(line, g);
                for (int r = 0; r < 3; r++)
                    plain[(o * n_in + i) * 9 + 3 * r + c] = (float)g[r];
            }
        }
}

/* ------------------------------------------------------------------ tiles */

INLINE void tile_line(const vec d[6], vec t[6])
{
    const vec e1 = d[4] - PB2 * d[2], o1 = PA * (d[3] - PB2 * d[1]);
    const vec e2 = d[4] - PA2 * d[2], o2 = PB * (d[3] - PA2 * d[1]);

    t[0] = PA2 * PB2 * d[0] - (PA2 + PB2) * d[2] + d[4];
    t[1] = e1 + o1;
    t[2] = e1 - o1;
    t[3] = e2 + o2;
    t[4] = e2 - o2;
    t[5] = PA2 * PB2 * d[1] - (PA2 + PB2) * d[3] + d[5];
}

INLINE void result_line(const vec m[6], vec y[SIDE])
{
    const vec s1 = m[1] + m[2], s2 = m[3] + m[4], f1 = m[1] - m[2], f2 = m[3] - m[4];

    y[0] = m[0] + s1 + s2;
    y[1] = PA * f1 + PB * f2;
    y[2] = PA2 * s1 + PB2 * s2;
    y[3] = PA * PA2 * f1 + PB * PB2 * f2 + m[5];
}

struct place {            /* of a tile */
    int64_t sample, y, x; /* in tiles */
};

static struct place tile_place(const struct wino *w, int64_t tile)
{
    return (struct place){tile / (w->down * w->across), tile / w->across % w->down,
                          tile % w->across};
}

/* A block of channels of a tile, at all points: v[point * step]. */
FMA static void tile_in(const struct wino *w, const float *x, struct place at, float *v,
                        int64_t step)
{
    const int64_t top = at.y * SIDE - w->pad_h, left = at.x * SIDE - w->pad_w;
    vec d[6], rows[6][6], t[6];

    for (int c = 0; c < 6; c++) {
        const int64_t col = left + c;

        for (int r = 0; r < 6; r++) {
            const int64_t row = top + r;

            if (row >= 0 && row < w->in_h && col >= 0 && col < w->in_w)
                d[r] = *(const vec *)(x + (row * w->in_w + col) * BLOCK);
            else
                d[r] = (vec){0};
        }
        tile_line(d, t);
        for (int r = 0; r < 6; r++)
            rows[r][c] = t[r];
    }
    for (int r = 0; r < 6; r++) {
        tile_line(rows[r], t);
        for (int c = 0; c < 6; c++)
            *(vec *)(v + (6 * r + c) * step) = t[c];
    }
}

/* The results of a tile for a block of channels; y and residual: of this sample and block. */
FMA static void tile_out(const struct wino *w, const float *m, int64_t step, struct place at,
                         vec bias, const float *residual, float *y)
{
    vec columns[SIDE][6], line[6], out[SIDE];

    for (int c = 0; c < 6; c++) {
        for (int r = 0; r < 6; r++)
            line[r] = *(const vec *)(m + (6 * r + c) * step);
        result_line(line, out);
        for (int r = 0; r < SIDE; r++)
            columns[r][c] = out[r];
    }
    for (int r = 0; r < SIDE && at.y * SIDE + r < w->out_h; r++) {
        const int64_t first = (at.y * SIDE + r) * w->out_w + at.x * SIDE;

        result_line(columns[r], out);
        for (int c = 0; c < SIDE && at.x * SIDE + c < w->out_w; c++) {
            vec o = out[c] + bias;

            if (residual)
                o += *(const vec *)(residual + (first + c) * BLOCK);
            if (w->relu)
                o = (vec)_mm512_max_ps((__m512)o, _mm512_setzero_ps());
            *(vec *)(y + (first + c) * BLOCK) = o;
        }
    }
}

/* ------------------------------------------------------------------ products */

#define SEVEN(X, FROM) X(FROM##0) X(FROM##1) X(FROM##2) X(FROM##3) X(FROM##4) X(FROM##5) X(FROM##6)
#define DEFINE(R) __m512 l##R = _mm512_setzero_ps(), h##R = l##R;
#define STEP(R)                                               \
    {                                                         \
        const __m512 b = _mm512_set1_ps(v[(R - 100) * n_in]); \
        l##R = _mm512_fmadd_ps(b, low, l##R);                 \
        if (wide)                                             \
            h##R = _mm512_fmadd_ps(b, high, h##R);            \
    }
#define STORE(R)                                   \
    _mm512_storeu_ps(m + (R - 100) * n_out, l##R); \
    if (wide)                                      \
        _mm512_storeu_ps(m + (R - 100) * n_out + BLOCK, h##R);

/* m[7 or 14 tiles][panel] = v[tiles][in] u[in][panel] */
#define PRODUCT(NAME, ALL)                                                                   \
    INLINE void NAME(const float *v, const float *u, int64_t n_in, int64_t n_out, bool wide, \
                     float *m)                                                               \
    {                                                                                        \
        ALL(DEFINE)                                                                          \
        for (int64_t k = 0; k < n_in; k++, v++, u += wide ? PANEL : BLOCK) {                 \
            const __m512 low = _mm512_loadu_ps(u);                                           \
            const __m512 high = wide ? _mm512_loadu_ps(u + BLOCK) : low;                     \
                                                                                             \
            (void)high;                                                                      \
            ALL(STEP)                                                                        \
        }                                                                                    \
        ALL(STORE)                                                                           \
    }
#define HALF(X) SEVEN(X, 10)
#define WHOLE(X) SEVEN(X, 10) X(107) X(108) X(109) X(110) X(111) X(112) X(113)
PRODUCT(product_of_7, HALF)
PRODUCT(product_of_14, WHOLE)

FMA static void wino_product(const float *v, const float *u, int64_t rows, int64_t n_in,
                             int64_t n_out, bool wide, float *m)
{
    for (int64_t r = 0; r < rows; v += ROWS * n_in, m += ROWS * n_out, r += ROWS) {
        const bool whole = rows - r > ROWS / 2;

        if (whole && wide)
            product_of_14(v, u, n_in, n_out, true, m);
        else if (whole)
            product_of_14(v, u, n_in, n_out, false, m);
        else if (wide)
            product_of_7(v, u, n_in, n_out, true, m);
        else
            product_of_7(v, u, n_in, n_out, false, m);
    }
}

/* ------------------------------------------------------------------ running */

struct wino_ctx {
    const struct wino *w;
    const float *x, *kernels, *bias, *residual;
    float *y, *scratch;
};

static int64_t padded_rows(int64_t rows)
{
    return (rows + ROWS / 2 - 1) / (ROWS / 2) * (ROWS / 2);
}

static size_t scratch_floats(const struct wino *w)
{
    return (size_t)(POINTS * padded_rows(w->chunk) * (w->n_in + w->n_out));
}

FMA static void run_wino_chunk(const struct wino_ctx *c, int64_t from, int64_t n, float *scratch)
{
    const struct wino *w = c->w;
    const int64_t rows = padded_rows(n), in_step = rows * w->n_in, out_step = rows * w->n_out;
    float *v = scratch, *m = scratch + POINTS * in_step;

    for (int64_t t = 0; t < n; t++) {
        const struct place at = tile_place(w, from + t);
        const float *x = c->x + at.sample * w->n_in * w->in_h * w->in_w;

        for (int64_t i = 0; i < w->n_in; i += BLOCK)
            tile_in(w, x + i * w->in_h * w->in_w, at, v + t * w->n_in + i, in_step);
    }
    for (int64_t t = n; t < rows; t++) /* what is not used must still be numbers */
        for (int k = 0; k < POINTS; k++)
            memset(v + k * in_step + t * w->n_in, 0, (size_t)w->n_in * sizeof(*v));
    for (int k = 0; k < POINTS; k++)
        for (int64_t o = 0; o < w->n_out; o += PANEL)
            wino_product(v + k * in_step, c->kernels + (k * w->n_out + o) * w->n_in, rows, w->n_in,
                         w->n_out, w->n_out - o >= PANEL, m + k * out_step + o);
    for (int64_t t = 0; t < n; t++) {
        const struct place at = tile_place(w, from + t);
        const int64_t pixels = w->out_h * w->out_w, first = at.sample * w->n_out * pixels;

        for (int64_t o = 0; o < w->n_out; o += BLOCK) {
            const int64_t block = first + o * pixels;

            tile_out(w, m + t * w->n_out + o, out_step, at,
                     c->bias ? (vec)_mm512_loadu_ps(c->bias + o) : (vec){0},
                     c->residual ? c->residual + block : NULL, c->y + block);
        }
    }
}

/* Lanes [from, to): each has its scratch and every n-th chunk. */
struct wino_lanes {
    struct wino_ctx c;
    int64_t n;
};

static void run_lanes(void *ctx, int64_t from, int64_t to)
{
    const struct wino_lanes *l = ctx;
    const struct wino *w = l->c.w;
    const int64_t tiles = w->samples * w->down * w->across;

    for (int64_t i = from; i < to; i++)
        for (int64_t t = i * w->chunk; t < tiles; t += l->n * w->chunk)
            run_wino_chunk(&l->c, t, SH_MIN(w->chunk, tiles - t),
                           l->c.scratch + (size_t)i * scratch_floats(w));
}

/* p: y scratch x kernels [bias] [residual] */
static void wino_fn(const struct cpu_call *call)
{
    const struct wino *w = call->aux;
    struct wino_lanes l = {.n = call->threads,
                           .c = {.w = w,
                                 .y = call->p[0],
                                 .scratch = call->p[1],
                                 .x = call->p[2],
                                 .kernels = call->p[3],
                                 .bias = w->has_bias ? call->p[4] : NULL,
                                 .residual = w->has_residual ? call->p[4 + w->has_bias] : NULL}};

    cpu__parallel(call->threads, l.n, 1, run_lanes, &l);
}

/* ------------------------------------------------------------------ building */

static bool is_small_step(const struct dev_conv *c)
{
    return c->groups == 1 && c->kernel[0] == 3 && c->kernel[1] == 3 && c->stride[0] == 1 &&
           c->stride[1] == 1 && c->dilation[0] == 1 && c->dilation[1] == 1;
}

/* Is the weight read as kernels of such convolutions alone? */
static bool has_other_readers(const struct cpu_build *b, uint32_t root)
{
    const struct dev_graph *g = b->plan->base.g;

    for (uint32_t i = 0; i < g->n_ops; i++)
        for (uint32_t k = 0; k < g->ops[i].n_in; k++)
            if (g->ops[i].in[k] != DEV_NONE && b->plan->tensors[g->ops[i].in[k]].root == root &&
                (g->ops[i].kind != DEV_OP_CONV || k != 1 || !is_small_step(&g->ops[i].u.conv)))
                return true;
    return false;
}

static size_t grown_by(const struct dev_tensor *w)
{
    return (size_t)dev_tensor_elements(w) / 9 * (POINTS - 9) * sizeof(float);
}

/* Small pictures have large kernels: an image grows by half for them, no more. */
static bool has_wino_room(const struct cpu_build *b, const struct dev_tensor *w, int64_t pixels)
{
    return pixels >= LARGE || (pixels >= SMALL && grown_by(w) <= b->plan->wino_room);
}

bool cpu__wino_has(struct cpu_build *b)
{
    const struct dev_op *op = b->op;
    const struct dev_tensor *x = cpu__t(b, op->in[0]), *w = cpu__t(b, op->in[1]);
    const struct dev_tensor *y = cpu__t(b, op->out[0]);
    const struct cpu_tensor *t = cpu__stored(b, op->in[1]);

    if (t->is_wino)
        return true;
    return !t->is_fixed && t->space == CPU_IMAGE && op->kind == DEV_OP_CONV &&
           is_small_step(&op->u.conv) && x->rank == 4 && w->rank == 4 && x->dims[1] % BLOCK == 0 &&
           y->dims[1] % BLOCK == 0 && has_wino_room(b, w, y->dims[2] * y->dims[3]) &&
           __builtin_cpu_supports("avx512f") &&
           !has_other_readers(b, b->plan->tensors[op->in[1]].root);
}

static void store_kernels(struct cpu_build *b, uint32_t w, int64_t pixels)
{
    struct cpu_tensor *t = cpu__stored(b, w);
    const int64_t n = dev_tensor_elements(cpu__t(b, w)) / 9 * POINTS;

    if (t->is_wino)
        return;
    if (pixels < LARGE)
        b->plan->wino_room -= grown_by(cpu__t(b, w));
    cpu__md_plain(1, &n, dnnl_f32, &t->lay->md);
    t->is_wino = t->is_blocked = t->is_fixed = true;
}

/* Chunks that fit the cache, as many for each thread if that costs nothing. */
static int64_t chunk_of(const struct wino *w, unsigned threads)
{
    const int64_t tiles = w->samples * w->down * w->across;
    const int64_t fit = (int64_t)CHUNK_BYTES / (POINTS * 4 * (w->n_in + w->n_out));
    const int64_t most = SH_MAX(ROWS, SH_MIN(CHUNK_ROWS, fit / ROWS * ROWS));
    const int64_t rounds = (tiles + most * threads - 1) / (most * threads);

    return SH_MIN(most, padded_rows((tiles + rounds * threads - 1) / (rounds * threads)));
}

static void read_wino_sizes(struct cpu_build *b, struct wino *w)
{
    const struct dev_op *op = b->op;
    const struct dev_tensor *x = cpu__t(b, op->in[0]), *y = cpu__t(b, op->out[0]);

    *w = (struct wino){.samples = x->dims[0],
                       .n_in = x->dims[1],
                       .n_out = y->dims[1],
                       .in_h = x->dims[2],
                       .in_w = x->dims[3],
                       .out_h = y->dims[2],
                       .out_w = y->dims[3],
                       .pad_h = op->u.conv.pad_begin[0],
                       .pad_w = op->u.conv.pad_begin[1],
                       .down = (y->dims[2] + SIDE - 1) / SIDE,
                       .across = (y->dims[3] + SIDE - 1) / SIDE,
                       .has_bias = cpu__opt_in(op, 2) != DEV_NONE,
                       .has_residual = cpu__opt_in(op, 3) != DEV_NONE,
                       .relu = op->act == DEV_ACT_RELU};
    w->chunk = chunk_of(w, b->plan->threads);
}

static int blocked(struct cpu_build *b, uint32_t tensor, dnnl_memory_desc_t *md)
{
    dnnl_dims_t dims = {0};

    memcpy(dims, cpu__t(b, tensor)->dims, 4 * sizeof(dims[0]));
    return cpu__status(b, dnnl_memory_desc_init_by_tag(md, 4, dims, dnnl_f32, dnnl_nChw16c),
                       "convolution");
}

int cpu__wino(struct cpu_build *b)
{
    const struct dev_op *op = b->op;
    struct cpu_ref refs[6];
    dnnl_memory_desc_t x, y;
    struct wino w;
    uint32_t n = 4;

    read_wino_sizes(b, &w);
    store_kernels(b, op->in[1], w.out_h * w.out_w);
    refs[3] = (struct cpu_ref){.tensor = b->plan->tensors[op->in[1]].root};
    blocked(b, op->in[0], &x);
    if (blocked(b, op->out[0], &y))
        return b->err->rc;
    refs[2] = cpu__in(b, op->in[0], NULL, &x);
    if (w.has_bias)
        refs[n++] = cpu__in_plain(b, op->in[2]);
    if (w.has_residual)
        refs[n++] = cpu__in(b, op->in[3], NULL, &y);
    refs[0] = cpu__out(b, op->out[0], &y, true);
    refs[1] = cpu__scratch(b, b->plan->threads * scratch_floats(&w) * sizeof(float));
    cpu__step_fn(b, wino_fn, refs, n, &w, sizeof(w));
    return w.relu ? b->err->rc : cpu__act_in_place(b, refs[0], &y);
}

#else /* other processors */

bool cpu__wino_has(struct cpu_build *b)
{
    (void)b;
    return false;
}

int cpu__wino(struct cpu_build *b)
{
    return cpu__refuse(b, SH_E_BUG, "no such convolution here");
}

void cpu__wino_pack(const struct dev_tensor *w, const float *plain, float *stored)
{
    (void)w;
    (void)plain;
    (void)stored;
}

void cpu__wino_unpack(const struct dev_tensor *w, const float *stored, float *plain)
{
    (void)w;
    (void)plain;
    (void)stored;
}

#endif
