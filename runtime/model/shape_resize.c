/* shape_resize.c - Resize and Upsample: what size comes out, and everything in attributes. */
#include "common/mem.h"
#include "runtime/model/shape_int.h"

#include <math.h>
#include <stdlib.h>

#define MAX_SIZE (1 << 30) /* of an axis */

struct resize { /* by axis of the input; what is not resized has scale 1 */
    int rank;
    int64_t axes[SH_MAX_RANK];
    size_t n_axes;
    double scale[SH_MAX_RANK];
    int64_t size[SH_MAX_RANK];
    float roi[2 * SH_MAX_RANK]; /* begins, then ends */
    bool whole;                 /* corners lie by the sizes, whatever the scales */
};

/* An attribute that has to be one of these. */
static const char *own_word(struct shape_ctx *c, const char *name, const char *def,
                            const char *const *words)
{
    const char *word = shape__own_str(c, name, def);

    while (*words && strcmp(*words, word) != 0)
        words++;
    if (!*words)
        shape__fail(c, SH_E_INVALID, "%s %.40s is not known", name, word);
    return word;
}

/* Defaults and known words; numbers that a device could not compute with are refused. */
static int resize_words(struct shape_ctx *c, bool is_old)
{
    static const char *const MODES[] = {"nearest", "linear", "cubic", NULL};
    static const char *const COORDS[] = {"half_pixel",
                                         "half_pixel_symmetric",
                                         "pytorch_half_pixel",
                                         "align_corners",
                                         "asymmetric",
                                         "tf_crop_and_resize",
                                         NULL};
    static const char *const NEAREST[] = {"round_prefer_floor", "round_prefer_ceil", "floor",
                                          "ceil", NULL};
    double a, extra;

    own_word(c, "mode", "nearest", MODES);
    own_word(c, "coordinate_transformation_mode", is_old ? "asymmetric" : "half_pixel", COORDS);
    own_word(c, "nearest_mode", is_old ? "floor" : "round_prefer_floor", NEAREST);
    a = shape__own_float(c, "cubic_coeff_a", -0.75);
    extra = shape__own_float(c, "extrapolation_value", 0.0);
    shape__own_flag(c, "antialias", false);
    shape__own_flag(c, "exclude_outside", false);
    if (!(isfinite(a) && isfinite(extra)))
        shape__fail(c, SH_E_INVALID, "cubic_coeff_a or extrapolation_value is no number");
    return c->err->rc;
}

/* Numbers of a constant input of floats: n of them, or none. */
static int floats(struct shape_ctx *c, uint32_t i, size_t max, double *out, size_t *n)
{
    const struct graph_value *v;

    *n = 0;
    if (!shape__has(c, i))
        return c->err->rc;
    v = shape__in(c, i);
    if (!v->data)
        return shape__computed(c, i);
    if (!shape__is_float(v->dtype) || v->rank != 1 || v->dims[0] > (int64_t)max)
        return shape__fail(c, SH_E_INVALID, "input %u must be a list of at most %zu FP32", i, max);
    *n = (size_t)v->dims[0];
    for (size_t k = 0; k < *n; k++)
        out[k] = shape__get_f64(v->dtype, v->data, k);
    return c->err->rc;
}

static int read_resize_axes(struct shape_ctx *c, struct resize *r)
{
    uint32_t seen = 0;

    r->n_axes = shape__list(c, "axes", r->axes, SH_MAX_RANK);
    if (r->n_axes == 0)
        for (; r->n_axes < (size_t)r->rank; r->n_axes++)
            r->axes[r->n_axes] = (int64_t)r->n_axes;
    for (size_t i = 0; i < r->n_axes; i++) {
        shape__axis(c, r->axes[i], r->rank, &r->axes[i]);
        if (seen >> r->axes[i] & 1)
            shape__fail(c, SH_E_INVALID, "axis %lld is there twice", (long long)r->axes[i]);
        seen |= 1u << r->axes[i];
    }
    return c->err->rc;
}

static int read_scales(struct shape_ctx *c, uint32_t i, struct resize *r, bool *given)
{
    const struct graph_value *x = shape__in(c, 0);
    double s[SH_MAX_RANK];
    size_t n;

    floats(c, i, SH_MAX_RANK, s, &n);
    *given = n > 0;
    if (n > 0 && n != r->n_axes)
        return shape__fail(c, SH_E_INVALID, "there are %zu scales for %zu axes", n, r->n_axes);
    for (size_t k = 0; k < n; k++) {
        const int64_t axis = r->axes[k];
        const double size = s[k] * (double)x->dims[axis];

        if (!(size >= 1 && size <= MAX_SIZE))
            return shape__fail(c, SH_E_INVALID, "a scale of %g does not work for axis %lld of %lld",
                               s[k], (long long)axis, (long long)x->dims[axis]);
        r->size[axis] = (int64_t)size;
        r->scale[axis] = r->whole ? (double)r->size[axis] / (double)x->dims[axis] : s[k];
    }
    return c->err->rc;
}

/* All axes get one scale: the smallest or the largest that the sizes ask for. */
static void keep_ratio(struct resize *r, const struct graph_value *x, bool larger)
{
    double scale = r->scale[r->axes[0]];

    for (size_t k = 1; k < r->n_axes; k++)
        scale = larger ? fmax(scale, r->scale[r->axes[k]]) : fmin(scale, r->scale[r->axes[k]]);
    for (size_t k = 0; k < r->n_axes; k++) {
        r->scale[r->axes[k]] = scale;
        r->size[r->axes[k]] = SH_MAX((int64_t)(scale * (double)x->dims[r->axes[k]] + 0.5), 1);
    }
}

static int read_resize_sizes(struct shape_ctx *c, struct resize *r)
{
    static const char *const POLICIES[] = {"stretch", "not_larger", "not_smaller", NULL};
    const struct graph_value *x = shape__in(c, 0);
    int64_t s[SH_MAX_RANK];
    const char *policy;
    size_t n;

    shape__ints(c, 3, s, SH_MAX_RANK, &n);
    if (n != r->n_axes)
        return shape__fail(c, SH_E_INVALID, "there are %zu sizes for %zu axes", n, r->n_axes);
    for (size_t k = 0; k < n; k++) {
        const int64_t axis = r->axes[k];

        if (s[k] < 1 || s[k] > MAX_SIZE)
            return shape__fail(c, SH_E_INVALID, "a size is %lld", (long long)s[k]);
        r->size[axis] = s[k];
        r->scale[axis] = (double)s[k] / (double)x->dims[axis];
    }
    policy = own_word(c, "keep_aspect_ratio_policy", "stretch", POLICIES);
    if (strcmp(policy, "stretch") != 0)
        keep_ratio(r, x, strcmp(policy, "not_smaller") == 0);
    return c->err->rc;
}

static int read_roi(struct shape_ctx *c, struct resize *r)
{
    const char *how = shape__str(c, "coordinate_transformation_mode", "");
    double v[2 * SH_MAX_RANK];
    size_t n;

    for (int i = 0; i < r->rank; i++)
        r->roi[r->rank + i] = 1;
    if (strcmp(how, "tf_crop_and_resize") != 0)
        return c->err->rc;
    floats(c, 1, SH_ARRAY_LEN(v), v, &n);
    if (n != 2 * r->n_axes)
        return shape__fail(c, SH_E_INVALID, "roi has %zu numbers for %zu axes", n, r->n_axes);
    for (size_t k = 0; k < r->n_axes; k++)
        for (size_t e = 0; e < 2; e++) {
            const double at = v[e * r->n_axes + k];

            if (!(fabs(at) <= 1e6))
                shape__fail(c, SH_E_INVALID, "roi holds %g", at);
            r->roi[e * (size_t)r->rank + (size_t)r->axes[k]] = (float)at;
        }
    return c->err->rc;
}

static bool crops(const struct resize *r)
{
    for (int i = 0; i < r->rank; i++)
        if (r->roi[i] != 0.0f || r->roi[r->rank + i] != 1.0f)
            return true;
    return false;
}

/* The first two axes, samples and channels, stay; scales as floats, one per axis. */
static int write_resize(struct shape_ctx *c, struct resize *r)
{
    const struct graph_value *x = shape__in(c, 0);
    bool same = !crops(r);
    float scales[SH_MAX_RANK];

    for (int i = 0; i < r->rank; i++) {
        scales[i] = (float)r->scale[i];
        same &= r->size[i] == x->dims[i] && scales[i] == 1.0f;
    }
    if (same)
        return shape__alias(c, c->n.in[0]);
    graph__set_floats(&c->n, "scales", scales, (size_t)r->rank, c->err);
    graph__set_floats(&c->n, "roi", r->roi, 2 * (size_t)r->rank, c->err);
    graph__drop_attr(&c->n, "axes");
    graph__drop_attr(&c->n, "keep_aspect_ratio_policy");
    graph__drop_attr(&c->n, GRAPH_WHOLE_SIZE);
    shape__out(c, 0, x->dtype, r->rank, r->size);
    shape__drop_inputs(c, 1);
    return c->err->rc;
}

static int infer_resize(struct shape_ctx *c, bool is_old)
{
    const struct graph_value *x = shape__in(c, 0);
    struct resize r = {.rank = x->rank};
    bool has_scales = false;

    shape__want_float(c, 0);
    for (int i = 0; i < r.rank; i++) {
        r.scale[i] = 1;
        r.size[i] = x->dims[i];
    }
    if (r.rank < 1)
        return shape__fail(c, SH_E_INVALID, "needs an input with an axis");
    resize_words(c, is_old);
    r.whole = shape__int(c, GRAPH_WHOLE_SIZE, 0) != 0 &&
              strcmp(shape__str(c, "coordinate_transformation_mode", ""), "align_corners") == 0;
    read_resize_axes(c, &r);
    read_scales(c, is_old ? 1 : 2, &r, &has_scales);
    if (has_scales && shape__has(c, 3) && graph_elements(shape__in(c, 3)) != 0)
        shape__fail(c, SH_E_INVALID, "has both scales and sizes");
    if (!has_scales && is_old)
        shape__fail(c, SH_E_INVALID, "has no scales");
    else if (!has_scales)
        read_resize_sizes(c, &r);
    read_roi(c, &r);
    return write_resize(c, &r);
}

/* Opset 10 had two inputs, and what Upsample meant. */
int shape__infer_resize(struct shape_ctx *c)
{
    return infer_resize(c, c->n.n_in == 2);
}

int shape__infer_upsample(struct shape_ctx *c)
{
    shape__set_op(c, "Resize");
    return infer_resize(c, true);
}
