/* rewrite_grid.c - sampling on and off a grid, and images from their columns.
 *
 * Coordinates run from -1 to 1 over an axis, x first; the axes of images are in the other order.
 */
#include "common/mem.h"
#include "runtime/model/rewrite.h"

#include <math.h>
#include <stdlib.h>

#define MAX_SPACE 3

static bool grid_flag(struct shape_ctx *c, const char *name)
{
    return shape__int(c, name, 0) != 0;
}

/* Place i of n on an axis from -1 to 1: centres of pixels, or the first and last at the ends. */
static double grid_place(int64_t i, int64_t n, bool align)
{
    if (align)
        return n > 1 ? 2.0 * (double)i / (double)(n - 1) - 1.0 : 0.0;
    return (2.0 * (double)i + 1.0) / (double)n - 1.0;
}

/* The places as rows x, y, [z,] 1, times the matrix of each sample. */
int shape__rewrite_affine_grid(struct shape_ctx *c)
{
    const struct graph_value theta = *shape__in(c, 0);
    int64_t size[MAX_SPACE + 2], n = 1, out[MAX_SPACE + 2], rows[2];
    uint32_t base, turned;
    float *p;
    bool align;
    size_t k;
    int space;

    shape__want_float(c, 0);
    align = grid_flag(c, "align_corners");
    shape__ints(c, 1, size, SH_ARRAY_LEN(size), &k);
    space = (int)k - 2;
    if (space < 2 || theta.rank != 3 || theta.dims[0] != size[0] || theta.dims[1] != space ||
        theta.dims[2] != space + 1)
        shape__fail(c, SH_E_INVALID, "the matrices and the size do not fit together");
    if (c->err->rc)
        return c->err->rc;
    out[0] = size[0];
    for (int a = 0; a < space; a++) {
        out[1 + a] = size[2 + a];
        if (size[2 + a] < 1 || __builtin_mul_overflow(n, size[2 + a], &n))
            return shape__fail(c, SH_E_INVALID, "the size holds %lld", (long long)size[2 + a]);
    }
    out[1 + space] = space;
    p = n < (int64_t)SHAPE_FOLD_MAX_BYTES ? rw_alloc(c, SH_F32, n * (space + 1))
                                          : rw_alloc(c, SH_F32, -1);
    for (int64_t i = 0; p && i < n; i++) {
        int64_t rest = i;

        for (int a = space; a-- > 0; rest /= size[2 + a]) /* the last axis is x */
            p[i * (space + 1) + space - 1 - a] =
                (float)grid_place(rest % size[2 + a], size[2 + a], align);
        p[i * (space + 1) + space] = 1.0f;
    }
    rows[0] = n;
    rows[1] = space + 1;
    base = rw_cast(c, rw_const(c, SH_F32, 2, rows, p), theta.dtype);
    turned = rw_transpose(c, rw_in(c, 0), (const int64_t[]){0, 2, 1}, 3);
    return rw_is(c, 0, rw_reshape(c, rw2(c, "MatMul", base, turned), space + 2, out));
}

/* ---------------------------------------------------------------- sampling */

struct sampler {
    struct shape_ctx *c;
    bool align, nearest, cubic;
    const char *padding;
    int space;
    int64_t size[MAX_SPACE], n, points; /* of the images' axes; samples; places in each */
    uint32_t at[MAX_SPACE];             /* coordinates in pixels, [n, points] */
    enum sh_dtype t;
    uint32_t images; /* [n, size..., channels] */
};

static uint32_t grid_number(struct sampler *s, double v)
{
    return rw_number(s->c, s->t, v);
}

/* Back and forth between the borders of the axis. */
static uint32_t reflected(struct sampler *s, uint32_t x, double low, double span)
{
    struct shape_ctx *c = s->c;
    uint32_t m;

    if (span <= 0)
        return rw2(c, "Mul", x, grid_number(s, 0));
    m = rw2(c, "Mod", rw1(c, "Abs", rw2(c, "Sub", x, grid_number(s, low))),
            grid_number(s, 2 * span));
    m = rw1(c, "Abs", rw2(c, "Sub", m, grid_number(s, span)));
    return rw2(c, "Sub", grid_number(s, span + low), m);
}

/* Into the image, as padding asks; zeros are for pixels() to give. */
static uint32_t padded_plane(struct sampler *s, uint32_t x, int axis)
{
    struct shape_ctx *c = s->c;
    const double n = (double)s->size[axis];

    if (strcmp(s->padding, "reflection") == 0)
        x = s->align ? reflected(s, x, 0, n - 1) : reflected(s, x, -0.5, n);
    if (strcmp(s->padding, "zeros") != 0)
        x = rw3(c, "Clip", x, grid_number(s, 0), grid_number(s, n - 1));
    return x;
}

/* Column k of the grid (x first) as pixels of its axis. */
static void coordinate(struct sampler *s, uint32_t grid, int k)
{
    struct shape_ctx *c = s->c;
    const int axis = s->space - 1 - k;
    const double n = (double)s->size[axis];
    const double scale = s->align ? (n - 1) / 2 : n / 2;
    uint32_t x =
        rw_reshape(c, rw_slice(c, grid, 2, k, k + 1, 1), 2, (const int64_t[]){s->n, s->points});

    x = rw2(c, "Add", rw2(c, "Mul", x, grid_number(s, scale)), grid_number(s, (n - 1) / 2));
    if (!s->cubic)
        x = padded_plane(s, x, axis);
    s->at[axis] = s->nearest ? rw1(c, "Round", x) : x;
}

/* The pixels at whole coordinates, 0 outside of the images: [n, points, channels]. */
static uint32_t pixels(struct sampler *s, const uint32_t *at)
{
    struct shape_ctx *c = s->c;
    uint32_t index[MAX_SPACE], inside = GRAPH_NONE, y;

    for (int a = 0; a < s->space; a++) {
        const uint32_t last = grid_number(s, (double)(s->size[a] - 1)), zero = grid_number(s, 0);
        const uint32_t fits = rw2(c, "And", rw2(c, "GreaterOrEqual", at[a], zero),
                                  rw2(c, "LessOrEqual", at[a], last));

        inside = a ? rw2(c, "And", inside, fits) : fits;
        index[a] = rw_reshape(c, rw_cast(c, rw3(c, "Clip", at[a], zero, last), SH_I64), 3,
                              (const int64_t[]){s->n, s->points, 1});
    }
    y = rw2_with(c, "GatherND", s->images, rw_concat(c, index, (uint32_t)s->space, 2),
                 RW_INT("batch_dims", 1));
    inside = rw_reshape(c, inside, 3, (const int64_t[]){s->n, s->points, 1});
    return rw3(c, "Where", inside, y, grid_number(s, 0));
}

/* Of neighbour k of a place that is t behind the one before it: linear, or with the cubes of the
 * distances, as Resize has them. */
static uint32_t corner_share(struct sampler *s, uint32_t t, int k)
{
    static const double A = -0.75;
    static const double NEAR[] = {A + 2, -(A + 3), 0, 1}, FAR[] = {A, -5 * A, 8 * A, -4 * A};
    struct shape_ctx *c = s->c;
    const double *p = k == 1 || k == 2 ? NEAR : FAR;
    uint32_t d, y;

    if (!s->cubic)
        return k ? t : rw2(c, "Sub", grid_number(s, 1), t);
    d = k < 2 ? rw2(c, "Add", t, grid_number(s, 1 - k)) : rw2(c, "Sub", grid_number(s, k - 1), t);
    y = rw2(c, "Mul", d, grid_number(s, p[0]));
    for (int i = 1; i < 4; i++) {
        y = rw2(c, "Add", y, grid_number(s, p[i]));
        y = i < 3 ? rw2(c, "Mul", y, d) : y;
    }
    return y;
}

/* Each of the 2^space or 4^space neighbours with its share. */
static uint32_t blended(struct sampler *s)
{
    struct shape_ctx *c = s->c;
    const int n = s->cubic ? 4 : 2;
    uint32_t place[MAX_SPACE][4], share[MAX_SPACE][4], y = GRAPH_NONE;
    int corners = 1;

    for (int a = 0; a < s->space; a++, corners *= n) {
        const uint32_t low = rw1(c, "Floor", s->at[a]), t = rw2(c, "Sub", s->at[a], low);

        for (int k = 0; k < n; k++) {
            place[a][k] = rw2(c, "Add", low, grid_number(s, s->cubic ? k - 1 : k));
            if (s->cubic)
                place[a][k] = padded_plane(s, place[a][k], a);
            share[a][k] = corner_share(s, t, k);
        }
    }
    for (int corner = 0; corner < corners; corner++) {
        uint32_t at[MAX_SPACE], weight = GRAPH_NONE, part;

        for (int a = 0, rest = corner; a < s->space; a++, rest /= n) {
            at[a] = place[a][rest % n];
            weight = a ? rw2(c, "Mul", weight, share[a][rest % n]) : share[a][rest % n];
        }
        weight = rw_reshape(c, weight, 3, (const int64_t[]){s->n, s->points, 1});
        part = rw2(c, "Mul", pixels(s, at), weight);
        y = corner ? rw2(c, "Add", y, part) : part;
    }
    return y;
}

static int read_sampler(struct sampler *s)
{
    struct shape_ctx *c = s->c;
    const struct graph_value *x = shape__in(c, 0), *grid = shape__in(c, 1);
    char images[GRAPH_SHAPE_TEXT], places[GRAPH_SHAPE_TEXT];
    const char *mode;

    shape__want_float(c, 0);
    s->align = grid_flag(c, "align_corners");
    shape__want_float(c, 1);
    mode = shape__str(c, "mode", "linear");
    s->padding = shape__str(c, "padding_mode", "zeros");
    s->space = x->rank - 2;
    s->t = x->dtype;
    s->nearest = strcmp(mode, "nearest") == 0;
    s->cubic = strcmp(mode, "cubic") == 0;
    if (!s->nearest && !s->cubic && strcmp(mode, "linear") != 0 && strcmp(mode, "bilinear") != 0)
        return shape__fail(c, SH_E_UNSUPPORTED, WHY_MODE, mode);
    if (s->space < 1 || s->space > MAX_SPACE || grid->rank != x->rank ||
        grid->dims[0] != x->dims[0] || grid->dims[x->rank - 1] != s->space)
        return shape__fail(c, SH_E_INVALID, "images %s and grid %s do not fit together",
                           graph__shape_text(x, images, sizeof(images)),
                           graph__shape_text(grid, places, sizeof(places)));
    s->n = x->dims[0];
    s->points = graph_elements(grid) / SH_MAX(s->n * s->space, 1);
    for (int a = 0; a < s->space; a++)
        s->size[a] = x->dims[2 + a];
    return c->err->rc;
}

int shape__rewrite_grid_sample(struct shape_ctx *c)
{
    struct sampler s = {.c = c};
    const struct graph_value x = *shape__in(c, 0), g = *shape__in(c, 1);
    int64_t perm[SH_MAX_RANK] = {0}, back[SH_MAX_RANK] = {0, 0}, dims[SH_MAX_RANK];
    uint32_t grid, y;

    if (read_sampler(&s))
        return c->err->rc;
    for (int a = 0; a < s.space; a++)
        perm[1 + a] = 2 + a;
    perm[1 + s.space] = 1;
    s.images = rw_transpose(c, rw_in(c, 0), perm, x.rank);
    grid = g.dtype == x.dtype ? rw_in(c, 1) : rw_cast(c, rw_in(c, 1), x.dtype);
    grid = rw_reshape(c, grid, 3, (const int64_t[]){s.n, s.points, s.space});
    for (int k = 0; k < s.space; k++)
        coordinate(&s, grid, k);
    y = s.nearest ? pixels(&s, s.at) : blended(&s);
    back[1] = 2;
    back[2] = 1;
    y = rw_transpose(c, y, back, 3);
    dims[0] = s.n;
    dims[1] = x.dims[1];
    for (int a = 0; a < s.space; a++)
        dims[2 + a] = g.dims[1 + a];
    return rw_is(c, 0, rw_reshape(c, y, x.rank, dims));
}

/* ---------------------------------------------------------------- convolutions off the grid */

/* Where the taps of a kernel lie before the offsets: along axis a, [taps * places]. */
static uint32_t taps_along(struct sampler *s, const int64_t *out, const int64_t *kernel, int a)
{
    struct shape_ctx *c = s->c;
    int64_t stride[MAX_SPACE], dilation[MAX_SPACE], pads[2 * MAX_SPACE], places = 1;
    float *at = rw_alloc(c, SH_F32, s->points);

    for (int i = 0; i < s->space; i++)
        places *= out[i];
    shape__list(c, "strides", stride, MAX_SPACE); /* shape__conv_of() has set them */
    shape__list(c, "dilations", dilation, MAX_SPACE);
    shape__list(c, "pads", pads, SH_ARRAY_LEN(pads));
    if (c->err->rc) {
        free(at);
        return GRAPH_NONE;
    }
    for (int64_t i = 0; i < s->points; i++) {
        int64_t tap = i / places, place = i % places;

        for (int b = s->space - 1; b > a; b--) {
            tap /= kernel[b];
            place /= out[b];
        }
        at[i] = (float)(place % out[a] * stride[a] + tap % kernel[a] * dilation[a] - pads[a]);
    }
    return rw_cast(c, rw_const(c, SH_F32, 1, &s->points, at), s->t);
}

/* What each tap finds, times its mask: [N * offset groups, taps * places, channels of a group]. */
static uint32_t tapped(struct sampler *s, const int64_t *out, const int64_t *kernel, int64_t taps)
{
    struct shape_ctx *c = s->c;
    const int64_t places = s->points / taps;
    const uint32_t offset = rw_reshape(c, rw_in(c, 2), 4,
                                       (const int64_t[]){s->n, taps, s->space, places}),
                   mask = rw_in(c, 4);
    uint32_t y;

    for (int a = 0; a < s->space; a++) {
        const uint32_t off = rw_reshape(c, rw_slice(c, offset, 2, a, a + 1, 1), 2,
                                        (const int64_t[]){s->n, s->points});

        s->at[a] = rw2(c, "Add", off, taps_along(s, out, kernel, a));
    }
    y = blended(s);
    if (mask != GRAPH_NONE)
        y = rw2(c, "Mul", y, rw_reshape(c, mask, 3, (const int64_t[]){s->n, s->points, 1}));
    return y;
}

static int check_deform_offsets(struct shape_ctx *c, int64_t groups, int64_t taps)
{
    const struct graph_value *x = shape__in(c, 0), *y = shape__outv(c, 0);

    if (groups < 1 || x->dims[1] % groups != 0)
        return shape__fail(c, SH_E_INVALID, "offset_group is %lld", (long long)groups);
    for (uint32_t i = 2; i < 5; i += 2) { /* offsets, masks */
        const struct graph_value *v = shape__has(c, i) ? shape__in(c, i) : NULL;
        bool fits = !v || (v->rank == x->rank && v->dtype == x->dtype && v->dims[0] == x->dims[0] &&
                           v->dims[1] == groups * taps * (i == 2 ? x->rank - 2 : 1));

        for (int a = 2; v && fits && a < x->rank; a++)
            fits = v->dims[a] == y->dims[a];
        if (!fits)
            return shape__fail(c, SH_E_INVALID, "%s do not fit input and kernel",
                               i == 2 ? "the offsets" : "the masks");
    }
    return SH_OK;
}

/* The pixels that the taps find as columns, times the weights. */
int shape__rewrite_deform_conv(struct shape_ctx *c)
{
    struct sampler s = {.c = c, .padding = "zeros"};
    int64_t group = 1, off = 1, taps = 1, perm[SH_MAX_RANK] = {0}, dims[SH_MAX_RANK];
    struct graph_value x, k, y;
    uint32_t cols, sum;

    shape__want_float(c, 0);
    shape__want_same_type(c, 0, 1);
    shape__conv_of(c, 0, 1, 3, shape__in(c, 0)->dtype);
    off = shape__int(c, "offset_group", 1);
    group = shape__int(c, "group", 1);
    if (c->err->rc)
        return c->err->rc;
    x = *shape__in(c, 0);
    k = *shape__in(c, 1);
    y = *shape__outv(c, 0);
    s.space = x.rank - 2;
    s.t = x.dtype;
    for (int a = 0; a < s.space; a++) {
        taps *= k.dims[2 + a];
        s.size[a] = x.dims[2 + a];
        perm[1 + a] = 2 + a;
    }
    perm[1 + s.space] = 1;
    if (check_deform_offsets(c, off, taps))
        return c->err->rc;
    s.n = x.dims[0] * off;
    s.points = taps * (graph_elements(&y) / SH_MAX(y.dims[0] * y.dims[1], 1));
    memcpy(dims, x.dims, sizeof(dims));
    dims[0] = s.n;
    dims[1] = x.dims[1] / off;
    s.images = rw_transpose(c, rw_reshape(c, rw_in(c, 0), x.rank, dims), perm, x.rank);
    cols = tapped(&s, y.dims + 2, k.dims + 2, taps);
    cols = rw_reshape(c, cols, 4, (const int64_t[]){s.n, taps, s.points / taps, dims[1]});
    cols = rw_transpose(c, cols, (const int64_t[]){0, 3, 1, 2}, 4);
    cols = rw_reshape(c, cols, 4,
                      (const int64_t[]){x.dims[0], group, k.dims[1] * taps, s.points / taps});
    sum = rw_reshape(c, rw_in(c, 1), 3,
                     (const int64_t[]){group, k.dims[0] / group, k.dims[1] * taps});
    sum = rw_reshape(c, rw2(c, "MatMul", sum, cols), y.rank, y.dims);
    if (shape__has(c, 3)) {
        for (int a = 0; a < y.rank; a++)
            dims[a] = a == 1 ? y.dims[1] : 1;
        sum = rw2(c, "Add", sum, rw_reshape(c, rw_in(c, 3), y.rank, dims));
    }
    return rw_is(c, 0, sum);
}

/* ---------------------------------------------------------------- images from columns */

struct columns {
    int space;
    int64_t image[MAX_SPACE], block[MAX_SPACE], stride[MAX_SPACE], dilation[MAX_SPACE];
    int64_t pads[2 * MAX_SPACE], steps[MAX_SPACE];
    int64_t n_block, n_steps, n_image;
};

static void read_grid_list(struct shape_ctx *c, const char *name, int n, int64_t def, int64_t *out)
{
    size_t k = shape__list(c, name, out, (size_t)n);

    if (k == 0)
        for (; k < (size_t)n; k++)
            out[k] = def;
    if (k != (size_t)n)
        shape__fail(c, SH_E_INVALID, "%s has %zu numbers", name, k);
}

static void read_columns(struct shape_ctx *c, struct columns *l)
{
    size_t k, kb;

    shape__ints(c, 1, l->image, MAX_SPACE, &k);
    shape__ints(c, 2, l->block, MAX_SPACE, &kb);
    if (k != kb || k < 1)
        shape__fail(c, SH_E_INVALID, "the image and the block differ in rank");
    l->space = c->err->rc ? 0 : (int)k;
    read_grid_list(c, "strides", l->space, 1, l->stride);
    read_grid_list(c, "dilations", l->space, 1, l->dilation);
    read_grid_list(c, "pads", 2 * l->space, 0, l->pads);
    l->n_block = l->n_steps = l->n_image = 1;
    for (int a = 0; a < l->space && c->err->rc == SH_OK; a++) {
        int64_t room = l->image[a] + l->pads[a] + l->pads[l->space + a];
        bool fits = l->image[a] >= 1 && l->block[a] >= 1 && l->stride[a] >= 1 &&
                    l->dilation[a] >= 1 && l->pads[a] >= 0 && l->pads[l->space + a] >= 0 &&
                    l->image[a] < INT32_MAX && l->block[a] < INT16_MAX &&
                    l->dilation[a] < INT16_MAX && room < INT32_MAX;

        room = fits ? room - l->dilation[a] * (l->block[a] - 1) - 1 : -1;
        if (room < 0) {
            shape__fail(c, SH_E_INVALID, "the block does not fit into axis %d", a);
            return;
        }
        l->steps[a] = room / l->stride[a] + 1;
        if (__builtin_mul_overflow(l->n_image, l->image[a], &l->n_image) ||
            __builtin_mul_overflow(l->n_block, l->block[a], &l->n_block) ||
            __builtin_mul_overflow(l->n_steps, l->steps[a], &l->n_steps))
            shape__fail(c, SH_E_TOOBIG, "the image is too large");
    }
}

/* The pixel of element k of block number step; -1: it lies in the padding. */
static int64_t column_pixel(const struct columns *l, int64_t k, int64_t step)
{
    int64_t at = 0, size = 1;

    for (int a = l->space; a-- > 0; k /= l->block[a], step /= l->steps[a]) {
        const int64_t i =
            step % l->steps[a] * l->stride[a] + k % l->block[a] * l->dilation[a] - l->pads[a];

        if (i < 0 || i >= l->image[a])
            return -1;
        at += i * size;
        size *= l->image[a];
    }
    return at;
}

/* [N, C block, steps] as rows by place in the blocks, added to rows by pixel. */
int shape__rewrite_col2im(struct shape_ctx *c)
{
    const struct graph_value v = *shape__in(c, 0);
    struct columns l;
    int64_t *from, *to, n = 0, channels, rows, dims[SH_MAX_RANK], at[2];
    uint32_t x, zeros;

    shape__want_float(c, 0);
    read_columns(c, &l);
    if (c->err->rc)
        return c->err->rc;
    if (v.rank != 3 || v.dims[1] % l.n_block || v.dims[2] != l.n_steps)
        return shape__fail(c, SH_E_INVALID, "the columns do not fit image and block");
    channels = v.dims[1] / l.n_block;
    rows = l.n_block * l.n_steps;
    from = rw_alloc(c, SH_I64, rows);
    to = rw_alloc(c, SH_I64, rows);
    for (int64_t i = 0; from && to && i < rows; i++) {
        const int64_t p = column_pixel(&l, i / l.n_steps, i % l.n_steps);

        if (p < 0)
            continue;
        from[n] = i;
        to[n++] = p;
    }
    x = rw_reshape(c, rw_in(c, 0), 2, (const int64_t[]){v.dims[0] * channels, rows});
    x = rw_transpose(c, x, (const int64_t[]){1, 0}, 2);
    x = rw2_with(c, "Gather", x, rw_const(c, SH_I64, 1, &n, from), RW_INT("axis", 0));
    zeros = rw_expand(c, rw_number(c, v.dtype, 0), 2,
                      (const int64_t[]){l.n_image, v.dims[0] * channels});
    at[0] = n;
    at[1] = 1;
    x = rw_node(c, "ScatterND", (const uint32_t[]){zeros, rw_const(c, SH_I64, 2, at, to), x}, 3,
                (const struct graph_attr[]){RW_STR("reduction", "add")}, 1);
    x = rw_transpose(c, x, (const int64_t[]){1, 0}, 2);
    dims[0] = v.dims[0];
    dims[1] = channels;
    for (int a = 0; a < l.space; a++)
        dims[2 + a] = l.image[a];
    return rw_is(c, 0, rw_reshape(c, x, 2 + l.space, dims));
}
