/* rewrite_roi.c - pooling of regions of images: RoiAlign, MaxRoiPool. */
#include "common/mem.h"
#include "runtime/model/rewrite.h"

#include <math.h>

struct regions {
    struct shape_ctx *c;
    int64_t n, size[2], bins[2], samples; /* regions; of images and of results: y, x */
    double scale;
    enum sh_dtype t;
    bool half_pixel, is_max;
};

static uint32_t roi_number(struct regions *r, double v)
{
    return rw_number(r->c, r->t, v);
}

/* Column k of the regions: [n, 1]. */
static uint32_t roi_column(struct regions *r, int64_t k)
{
    return rw_slice(r->c, rw_in(r->c, 1), 1, k, k + 1, 1);
}

/* ---------------------------------------------------------------- RoiAlign */

/* Of each region the places of its samples along an axis (0: y, 1: x): [n, bins * samples]. */
static uint32_t roi_places(struct regions *r, int axis)
{
    struct shape_ctx *c = r->c;
    const int64_t n = r->bins[axis] * r->samples;
    const double off = r->half_pixel ? -0.5 : 0.0;
    const uint32_t from = rw2(c, "Add",
                              rw2(c, "Mul", roi_column(r, 1 - axis), roi_number(r, r->scale)),
                              roi_number(r, off)),
                   to = rw2(c, "Add",
                            rw2(c, "Mul", roi_column(r, 3 - axis), roi_number(r, r->scale)),
                            roi_number(r, off));
    uint32_t length = rw2(c, "Sub", to, from);
    float *at = rw_alloc(c, SH_F32, n);

    if (!r->half_pixel)
        length = rw2(c, "Max", length, roi_number(r, 1));
    for (int64_t i = 0; at && i < n; i++)
        at[i] = ((float)i + 0.5f) / (float)n;
    return rw2(c, "Add", from,
               rw2(c, "Mul", length, rw_cast(c, rw_const(c, SH_F32, 1, &n, at), r->t)));
}

/* A neighbour of each place along an axis: its index, and its share, 0 outside of the image. */
static void neighbour(struct regions *r, uint32_t at, int axis, bool high, uint32_t *index,
                      uint32_t *share)
{
    struct shape_ctx *c = r->c;
    const double last = (double)(r->size[axis] - 1);
    const uint32_t in = rw3(c, "Clip", at, roi_number(r, 0), roi_number(r, last)),
                   low = rw1(c, "Floor", in), t = rw2(c, "Sub", in, low);
    const uint32_t inside = rw2(c, "And", rw2(c, "GreaterOrEqual", at, roi_number(r, -1)),
                                rw2(c, "LessOrEqual", at, roi_number(r, last + 1)));
    const uint32_t part = high ? t : rw2(c, "Sub", roi_number(r, 1), t);

    *index = high ? rw2(c, "Min", rw2(c, "Add", low, roi_number(r, 1)), roi_number(r, last)) : low;
    *share = rw3(c, "Where", inside, part, roi_number(r, 0));
}

/* [n, ys] or [n, xs] as [n, ys, xs, 1]. */
static uint32_t spread_over_axis(struct regions *r, uint32_t v, int axis)
{
    const int64_t m = r->bins[axis] * r->samples;
    const uint32_t x = rw_reshape(
        r->c, v, 4, axis ? (const int64_t[]){r->n, 1, m, 1} : (const int64_t[]){r->n, m, 1, 1});

    return rw_expand(r->c, x, 4,
                     (const int64_t[]){r->n, r->bins[0] * r->samples, r->bins[1] * r->samples, 1});
}

/* The samples of all regions, by pixel and channel: [n, ys, xs, channels]. */
static uint32_t sampled(struct regions *r)
{
    struct shape_ctx *c = r->c;
    const uint32_t images = rw_transpose(c, rw_in(c, 0), (const int64_t[]){0, 2, 3, 1}, 4);
    const uint32_t image = rw_expand(
        c, rw_reshape(c, rw_cast(c, rw_in(c, 2), SH_I64), 4, (const int64_t[]){r->n, 1, 1, 1}), 4,
        (const int64_t[]){r->n, r->bins[0] * r->samples, r->bins[1] * r->samples, 1});
    uint32_t at[2], y = GRAPH_NONE;

    for (int a = 0; a < 2; a++)
        at[a] = roi_places(r, a);
    for (int corner = 0; corner < 4; corner++) {
        uint32_t index[3] = {image}, share[2], part;

        for (int a = 0; a < 2; a++) {
            neighbour(r, at[a], a, (a ? corner & 1 : corner >> 1) != 0, &index[1 + a], &share[a]);
            index[1 + a] = spread_over_axis(r, rw_cast(c, index[1 + a], SH_I64), a);
        }
        part = rw2(c, "GatherND", images, rw_concat(c, index, 3, 3));
        part =
            rw2(c, "Mul", part,
                rw2(c, "Mul", spread_over_axis(r, share[0], 0), spread_over_axis(r, share[1], 1)));
        y = corner == 0 ? part : rw2(c, r->is_max ? "Max" : "Add", y, part);
    }
    return y;
}

static int read_align(struct regions *r)
{
    struct shape_ctx *c = r->c;
    const char *mode = shape__str(c, "mode", "avg");
    const char *how = shape__str(c, "coordinate_transformation_mode", "half_pixel");

    r->bins[0] = shape__int(c, "output_height", 1);
    r->bins[1] = shape__int(c, "output_width", 1);
    r->samples = shape__int(c, "sampling_ratio", 0);
    r->is_max = strcmp(mode, "max") == 0;
    r->half_pixel = strcmp(how, "half_pixel") == 0;
    if ((!r->is_max && strcmp(mode, "avg") != 0) ||
        (!r->half_pixel && strcmp(how, "output_half_pixel") != 0))
        return shape__fail(c, SH_E_INVALID, "mode %.32s or coordinates %.32s are not known", mode,
                           how);
    if (r->samples == 0)
        return shape__fail(c, SH_E_UNSUPPORTED, WHY_ROI_SAMPLES);
    if (r->samples < 0)
        return shape__fail(c, SH_E_INVALID, "sampling_ratio is %lld", (long long)r->samples);
    return SH_OK;
}

static int read_regions(struct regions *r, int64_t columns)
{
    struct shape_ctx *c = r->c;
    const struct graph_value *x = shape__in(c, 0), *at = shape__in(c, 1);

    r->scale = shape__float(c, "spatial_scale", 1.0);
    if (x->rank != 4 || at->rank != 2 || at->dims[1] != columns || at->dtype != x->dtype)
        return shape__fail(c, SH_E_INVALID, "needs images [N,C,H,W] and regions [n,%lld]",
                           (long long)columns);
    r->t = x->dtype;
    r->n = at->dims[0];
    for (int a = 0; a < 2; a++) {
        r->size[a] = x->dims[2 + a];
        if (r->bins[a] < 1 || r->bins[a] > INT16_MAX || r->samples > INT16_MAX)
            return shape__fail(c, SH_E_INVALID, "the size of the result is %lld",
                               (long long)r->bins[a]);
    }
    return SH_OK;
}

int shape__rewrite_roi_align(struct shape_ctx *c)
{
    struct regions r = {.c = c};
    const int64_t channels = shape__in(c, 0)->rank == 4 ? shape__in(c, 0)->dims[1] : 0;
    const int64_t both[] = {2, 4};
    uint32_t y;

    shape__want_float(c, 0);
    read_align(&r);
    read_regions(&r, 4);
    shape__want_vector(c, 2, r.n);
    if (c->err->rc)
        return c->err->rc;
    y = rw_reshape(c, sampled(&r), 6,
                   (const int64_t[]){r.n, r.bins[0], r.samples, r.bins[1], r.samples, channels});
    y = rw_reduce(c, r.is_max ? "ReduceMax" : "ReduceMean", y, both, 2, false);
    return rw_is(c, 0, rw_transpose(c, y, (const int64_t[]){0, 3, 1, 2}, 4));
}

/* ---------------------------------------------------------------- MaxRoiPool */

/* A border of the regions in pixels, halves away from 0. */
static uint32_t border(struct regions *r, int64_t k)
{
    struct shape_ctx *c = r->c;
    const uint32_t v = rw2(c, "Mul", roi_column(r, k), roi_number(r, r->scale));

    return rw2(c, "Mul", rw1(c, "Sign", v),
               rw1(c, "Floor", rw2(c, "Add", rw1(c, "Abs", v), roi_number(r, 0.5))));
}

/* Which pixels of an axis bin number k of each region holds: BOOL [n, size]. */
static uint32_t pixels_of(struct regions *r, int axis, int64_t k)
{
    struct shape_ctx *c = r->c;
    const uint32_t from = border(r, 2 - axis), to = border(r, 4 - axis);
    const uint32_t one = roi_number(r, 1), bins = roi_number(r, (double)r->bins[axis]);
    const uint32_t length = rw2(c, "Max", rw2(c, "Add", rw2(c, "Sub", to, from), one), one);
    const uint32_t bin = rw2(c, "Div", length, bins);
    const uint32_t first =
        rw2(c, "Add", rw1(c, "Floor", rw2(c, "Mul", bin, roi_number(r, (double)k))), from);
    const uint32_t end =
        rw2(c, "Add", rw1(c, "Ceil", rw2(c, "Mul", bin, roi_number(r, (double)(k + 1)))), from);
    const uint32_t at = rw_cast(c, rw_iota(c, r->size[axis]), r->t);

    return rw2(c, "And", rw2(c, "GreaterOrEqual", at, first), rw2(c, "Less", at, end));
}

/* The largest of x along axis 2 or 3 in each bin; -Inf where a bin holds none. */
static uint32_t max_of_bins(struct regions *r, uint32_t x, int axis)
{
    struct shape_ctx *c = r->c;
    const int64_t along = 2 + axis;
    uint32_t y = GRAPH_NONE;

    for (int64_t k = 0; k < r->bins[axis] && c->err->rc == SH_OK; k++) {
        const int64_t m = r->size[axis];
        const uint32_t mask =
            rw_reshape(c, pixels_of(r, axis, k), 4,
                       axis ? (const int64_t[]){r->n, 1, 1, m} : (const int64_t[]){r->n, 1, m, 1});
        const uint32_t top = rw_reduce(
            c, "ReduceMax", rw3(c, "Where", mask, x, roi_number(r, -INFINITY)), &along, 1, true);

        y = k ? rw_concat(c, (const uint32_t[]){y, top}, 2, (int)along) : top;
    }
    return y;
}

int shape__rewrite_max_roi_pool(struct shape_ctx *c)
{
    struct regions r = {.c = c};
    uint32_t x, y;

    shape__want_float(c, 0);
    shape__list(c, "pooled_shape", r.bins, 2);
    read_regions(&r, 5);
    if (c->err->rc)
        return c->err->rc;
    x = rw_reshape(c, rw_cast(c, roi_column(&r, 0), SH_I64), 1, &r.n);
    x = rw2(c, "Gather", rw_in(c, 0), x);
    y = max_of_bins(&r, max_of_bins(&r, x, 1), 0);
    y = rw3(c, "Where", rw2(c, "Greater", y, roi_number(&r, -INFINITY)), y, roi_number(&r, 0));
    return rw_is(c, 0, y);
}
