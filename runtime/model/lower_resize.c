/* lower_resize.c - Resize: along each axis an element of the result is a sum of a few elements of
 * the input, with weights that depend only on its place. The device gets both as tables.
 *
 * Place x of the result is at `at` in the input. The element at or left of it is ceil(at) - 1; the
 * distance from there, in (0, 1], gives the weights. Elements outside repeat the edge.
 */
#include "common/mem.h"
#include "runtime/model/graph_int.h"
#include "runtime/model/lower_int.h"

#include <math.h>
#include <stdlib.h>

#define MAX_TAPS ((int64_t)1 << 24) /* numbers in a table */

enum mode { NEAREST, LINEAR, CUBIC };

struct resize {
    enum mode mode;
    const char *coords, *nearest;
    double a, extra; /* cubic_coeff_a, extrapolation_value */
    bool antialias, exclude_outside;
    int rank;
    const struct graph_attr *scales, *roi;
};

struct axis { /* of one table */
    int64_t in, out, taps;
    double scale, begin, end; /* of the region, in parts of the axis */
    int32_t *index;
    float *weight;
    bool *outside; /* [out]: extrapolated */
    bool any_outside;
};

/* false: a failure. */
static bool read_resize(struct lower *lo, const struct graph_node *n, struct resize *r)
{
    const char *mode = lower__str(lo, n, "mode", "");

    r->coords = lower__str(lo, n, "coordinate_transformation_mode", "");
    r->nearest = lower__str(lo, n, "nearest_mode", "");
    graph_float(n, "cubic_coeff_a", 0, &r->a, &lo->ir->err);
    graph_float(n, "extrapolation_value", 0, &r->extra, &lo->ir->err);
    r->mode = strcmp(mode, "linear") == 0 ? LINEAR : strcmp(mode, "cubic") == 0 ? CUBIC : NEAREST;
    r->antialias = lower__int(lo, n, "antialias", 0) && r->mode != NEAREST;
    r->exclude_outside = lower__int(lo, n, "exclude_outside", 0) != 0;
    r->scales = graph__attr(n, "scales");
    r->roi = graph__attr(n, "roi");
    if (!r->scales || r->scales->n != (size_t)r->rank || !r->roi ||
        r->roi->n != 2 * (size_t)r->rank)
        IR_FAIL(lo->ir, SH_E_BUG, "Resize \"%s\" is not in static form", n->name);
    return lo->ir->err.rc == SH_OK;
}

/* Where place x of the result lies in the input. */
static double source_place(const struct resize *r, const struct axis *a, int64_t x)
{
    const double in = (double)a->in, out = a->scale * in, half = ((double)x + 0.5) / a->scale - 0.5;

    if (strcmp(r->coords, "align_corners") == 0)
        return out == 1 ? 0 : (double)x * (in - 1) / (out - 1);
    if (strcmp(r->coords, "asymmetric") == 0)
        return (double)x / a->scale;
    if (strcmp(r->coords, "tf_crop_and_resize") == 0)
        return a->begin * (in - 1) + (out == 1
                                          ? (a->end - a->begin) * (in - 1) / 2
                                          : (double)x * (a->end - a->begin) * (in - 1) / (out - 1));
    if (strcmp(r->coords, "pytorch_half_pixel") == 0 && out == 1)
        return -0.5;
    if (strcmp(r->coords, "half_pixel_symmetric") == 0)
        return in / 2 * (1 - (double)a->out / out) + half;
    return half;
}

/* The weight of an element at distance d, in elements of the larger grid. */
static double kernel(const struct resize *r, double d)
{
    const double a = r->a;

    d = fabs(d);
    if (r->mode == LINEAR)
        return d < 1 ? 1 - d : 0;
    if (d <= 1)
        return ((a + 2) * d - (a + 3)) * d * d + 1;
    return d < 2 ? ((a * d - 5 * a) * d + 8 * a) * d - 4 * a : 0;
}

/* Is the element to the right of the place nearer? */
static bool takes_right(const struct resize *r, double ratio)
{
    if (ratio == 1 || strcmp(r->nearest, "ceil") == 0)
        return true;
    if (strcmp(r->nearest, "floor") == 0)
        return false;
    return strcmp(r->nearest, "round_prefer_ceil") == 0 ? ratio >= 0.5 : ratio > 0.5;
}

/* The elements that place x is made of, from `left` on, and their weights. */
static void weigh(const struct resize *r, struct axis *a, int64_t x, int64_t left, double ratio)
{
    const double scale = r->antialias ? fmin(a->scale, 1.0) : 1.0;
    const int64_t first = 1 - a->taps / 2;
    int32_t *index = a->index + x * a->taps;
    float *weight = a->weight + x * a->taps;
    double sum = 0;

    if (r->mode == NEAREST) {
        left += takes_right(r, ratio);
        index[0] = (int32_t)SH_MIN(SH_MAX(left, 0), a->in - 1);
        weight[0] = 1;
        return;
    }
    for (int pass = 0; pass < 2; pass++)
        for (int64_t k = 0; k < a->taps; k++) {
            const int64_t i = left + first + k;
            const bool out = r->exclude_outside && (i < 0 || i >= a->in);
            const double w = out ? 0 : kernel(r, scale * ((double)(first + k) - ratio));

            if (pass == 0)
                sum += w;
            index[k] = (int32_t)SH_MIN(SH_MAX(i, 0), a->in - 1);
            weight[k] = (float)(sum != 0 ? w / sum : 0);
        }
}

static void fill_axis(const struct resize *r, struct axis *a)
{
    const bool crops = strcmp(r->coords, "tf_crop_and_resize") == 0;

    for (int64_t x = 0; x < a->out; x++) {
        double at = source_place(r, a, x), left;

        a->outside[x] = crops && (at < 0 || at > (double)(a->in - 1));
        a->any_outside |= a->outside[x];
        at = fmin(fmax(at, -1e9), 1e9);
        left = ceil(at) - 1;
        weigh(r, a, x, (int64_t)left, at - left);
        for (int64_t k = 0; a->outside[x] && k < a->taps; k++)
            a->weight[x * a->taps + k] = 0;
    }
}

static void make_axis(struct lower *lo, const struct graph_node *n, const struct resize *r,
                      struct axis *a)
{
    const double scale = r->antialias ? fmin(a->scale, 1.0) : 1.0;
    const double reach = (r->mode == CUBIC ? 2 : 1) / scale;

    if (!(reach * 2 * (double)a->out < (double)MAX_TAPS)) {
        lower__unsupported(lo, n, "so small a scale with antialias is not supported");
        return;
    }
    a->taps = r->mode == NEAREST ? 1 : -2 * (int64_t)floor(-reach);
    a->index = ir_alloc(lo->ir, a->out * a->taps, sizeof(*a->index));
    a->weight = ir_alloc(lo->ir, a->out * a->taps, sizeof(*a->weight));
    a->outside = ir_alloc(lo->ir, a->out, sizeof(*a->outside));
    if (a->outside)
        fill_axis(r, a);
}

/* Both tables of an axis as constants; they are the ir's then. */
static void push_tables(struct lower *lo, const struct graph_node *n, int axis, struct axis *a,
                        uint32_t out[2])
{
    const struct graph_value *owner = lower__out(lo, n);
    struct lower_table t = {.n = a->out * a->taps, .by_size = owner->by_size};

    t.name = ir_name(lo->ir, "%s#from%d", owner->name, axis);
    t.dtype = SH_I32;
    out[0] = lower__table(lo, &t, a->index);
    t.name = ir_name(lo->ir, "%s#weight%d", owner->name, axis);
    t.dtype = SH_F32;
    out[1] = lower__table(lo, &t, a->weight);
    a->index = NULL;
    a->weight = NULL;
}

/* y with what lies outside of the region at a value of its own; so far it is 0. */
static uint32_t extrapolated(struct lower *lo, const struct graph_node *n, const struct resize *r,
                             const struct axis *axes, uint32_t y)
{
    const struct graph_value *v = lower__out(lo, n);
    struct lower_table border = {.n = 1, .by_size = v->by_size};
    int64_t dims[SH_MAX_RANK];
    bool any = false;
    uint32_t t;
    float *data;

    for (int i = 0; i < r->rank; i++) {
        dims[i] = axes[i].any_outside ? v->dims[i] : 1;
        border.n *= dims[i];
        any |= axes[i].any_outside;
    }
    if (!any || r->extra == 0)
        return y;
    data = ir_alloc(lo->ir, border.n, sizeof(*data));
    for (int64_t i = 0; data && i < border.n; i++) {
        bool outside = false;

        for (int64_t k = r->rank, rest = i; k-- > 0; rest /= dims[k])
            outside |= axes[k].any_outside && axes[k].outside[rest % dims[k]];
        data[i] = outside ? (float)r->extra : 0;
    }
    border.name = ir_name(lo->ir, "%s#border", v->name);
    t = ir_alias(lo->ir, lower__table(lo, &border, data), (uint32_t)r->rank, dims);
    return ir_binary(lo->ir, DEV_BIN_ADD, n->name, y, t, y);
}

/* Two neighbouring axes in one operation where both change. */
static uint32_t resampled(struct lower *lo, const struct graph_node *n, const struct resize *r,
                          struct axis *axes, uint32_t y)
{
    for (int i = r->rank - 1; i >= 0; i--) {
        uint32_t in[5] = {y, DEV_NONE, DEV_NONE, DEV_NONE, DEV_NONE};
        struct dev_tensor d = *ir_t(lo->ir, y);
        const bool two = i > 0 && axes[i - 1].weight && axes[i].weight;
        struct dev_op op;

        if (!axes[i].weight)
            continue;
        push_tables(lo, n, i, &axes[i], &in[two ? 3 : 1]);
        d.dims[i] = axes[i].out;
        if (two) {
            i--;
            push_tables(lo, n, i, &axes[i], &in[1]);
            d.dims[i] = axes[i].out;
        }
        op = ir_op(DEV_OP_RESAMPLE, n->name, two ? 5 : 3, in);
        op.u.axis.axis = i;
        y = ir_emit(lo->ir, &op, SH_F32, d.rank, d.dims);
    }
    return y;
}

void lower__resize(struct lower *lo, const struct graph_node *n)
{
    const struct graph_value *x = lower__in(lo, n, 0), *v = lower__out(lo, n);
    struct axis axes[SH_MAX_RANK] = {{0}};
    struct resize r = {.rank = x->rank};
    uint32_t y = lower__use(lo, n, 0);

    if (!read_resize(lo, n, &r))
        return;
    for (int i = 0; i < r.rank; i++) {
        struct axis *a = &axes[i];
        const double ratio = (double)v->dims[i] / (double)x->dims[i];

        *a = (struct axis){.in = x->dims[i],
                           .out = v->dims[i],
                           .scale = (double)r.scales->floats[i],
                           .begin = (double)r.roi->floats[i],
                           .end = (double)r.roi->floats[r.rank + i]};
        if (r.scales->floats[i] == (float)ratio)
            a->scale = ratio; /* which was rounded */
        if (a->in != a->out || a->scale != 1 || a->begin != 0 || a->end != 1)
            make_axis(lo, n, &r, a);
    }
    y = resampled(lo, n, &r, axes, y);
    lower__is(lo, n, extrapolated(lo, n, &r, axes, y));
    for (int i = 0; i < r.rank; i++) {
        free(axes[i].index);
        free(axes[i].weight);
        free(axes[i].outside);
    }
}
