/* image.c - see inputs.h: a picture as a row of a request. */
#include "cli/data/inputs.h"
#include "cli/data/number.h"
#include "cli/data/picture.h"
#include "common/mem.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---------------------------------------------------------------- the tensor */

int image_numbers(const char *text, const char *what, double out[static 3], struct sh_err *err)
{
    char copy[96], *rest = copy, *p;
    size_t n = 0;
    int rc = strlen(text) < sizeof(copy) ? SH_OK : SH_E_INVALID;

    sh_strlcpy(copy, text, sizeof(copy));
    while (!rc && (p = strsep(&rest, ",")))
        rc = n == 3 ? SH_E_INVALID : sh_parse_f64(p, -1e6, 1e6, what, &out[n++], NULL);
    if (rc || (n != 1 && n != 3))
        return SH_FAIL(err, SH_E_INVALID, "--%s wants one number, or three: 0.485,0.456,0.406",
                       what);
    if (n == 1)
        out[1] = out[2] = out[0];
    return SH_OK;
}

static double pixel_value(const struct picture *p, const struct image_plan *plan, enum sh_dtype t,
                          size_t pixel, size_t c)
{
    double v = p->data[pixel * p->channels + c];

    return t == SH_U8 ? v : (v / 255 - plan->mean[c]) / plan->std[c];
}

static int to_tensor(const struct picture *p, const struct image_plan *plan, struct tensor *t,
                     struct sh_err *err)
{
    size_t pixels = p->width * p->height, ch = p->channels;
    const int64_t h = (int64_t)p->height, w = (int64_t)p->width, c = (int64_t)ch;
    const int64_t first[] = {1, c, h, w}, last[] = {1, h, w, c};

    t->rank = 4;
    memcpy(t->dims, plan->is_last ? last : first, sizeof(first));
    t->data = t->own = malloc(pixels * ch * sh_dtype_bytes(t->dtype));
    if (!t->own)
        return SH_FAIL(err, SH_E_NOMEM, "could not allocate inputs");
    for (size_t i = 0; i < pixels; i++)
        for (size_t k = 0; k < ch; k++)
            if (!number_put(t->dtype, t->own, plan->is_last ? i * ch + k : k * pixels + i,
                            pixel_value(p, plan, t->dtype, i, k)))
                return SH_FAIL(err, SH_E_INVALID, "with this mean and std a value is outside of %s",
                               sh_dtype_v2(t->dtype));
    return SH_OK;
}

/* Of the model's input; 0: it is no picture. */
static size_t wanted_channels(const json_t *w, bool is_last)
{
    const json_t *shape = json_object_get(w, "shape");
    json_int_t n = json_integer_value(json_array_get(shape, is_last ? 3 : 1));

    return json_array_size(shape) == 4 && (n == 1 || n == 3) ? (size_t)n : 0;
}

bool image_is_last(const json_t *wanted)
{
    const json_t *w = json_array_get(wanted, 0);

    return !wanted_channels(w, false) && wanted_channels(w, true);
}

static int check_input(const json_t *wanted, const struct image_plan *plan, struct sh_err *err)
{
    const json_t *w = json_array_get(wanted, 0);
    enum sh_dtype t = sh_dtype_from_v2(sh_json_text(w, "datatype"));

    if (json_array_size(wanted) != 1 || !wanted_channels(w, plan->is_last))
        return SH_FAIL(err, SH_E_UNSUPPORTED,
                       "--image is for a model with one input [rows, %s] of 1 or 3 channels",
                       plan->is_last ? "height, width, channels" : "channels, height, width");
    if (t != SH_U8 && (t == SH_N_DTYPES || !number_is_float(t)))
        return SH_FAIL(err, SH_E_UNSUPPORTED, "--image makes no %s", sh_json_text(w, "datatype"));
    if (t == SH_U8 && plan->scales)
        return SH_FAIL(err, SH_E_INVALID,
                       "the model takes UINT8, which is 0 to 255: leave out --mean and --std");
    return SH_OK;
}

/* Its height and width; 0: any, or it takes no pictures. */
static void size_of(const json_t *w, bool is_last, size_t *height, size_t *width)
{
    const json_t *shape = json_object_get(w, "shape");
    json_int_t h = json_integer_value(json_array_get(shape, is_last ? 1 : 2));
    json_int_t v = json_integer_value(json_array_get(shape, is_last ? 2 : 3));
    bool is_picture = wanted_channels(w, is_last) > 0;

    *height = is_picture && h > 0 ? (size_t)h : 0;
    *width = is_picture && v > 0 ? (size_t)v : 0;
}

void image_hint(const json_t *wanted, char *out, size_t size)
{
    const json_t *w = json_array_get(wanted, 0);
    size_t height, width;
    int n = 0;

    out[0] = '\0';
    size_of(w, image_is_last(wanted), &height, &width);
    if (height && height == width) /* as most are trained: 224 of 256 */
        n = snprintf(out, size, "--resize %zu --crop %zu ", height * 8 / 7, height);
    if (strcmp(sh_json_text(w, "datatype"), "UINT8") == 0)
        ; /* its bytes, as they are */
    else if (n >= 0 && (size_t)n < size)
        snprintf(out + n, size - (size_t)n, "--mean 0.485,0.456,0.406 --std 0.229,0.224,0.225");
}

static int check_picture_size(const struct picture *p, const json_t *w, bool is_last,
                              struct sh_err *err)
{
    size_t height, width;
    char hint[64] = "make the file of that size";

    size_of(w, is_last, &height, &width);
    if ((!height || height == p->height) && (!width || width == p->width))
        return SH_OK;
    if (height == width)
        snprintf(hint, sizeof(hint), "give --resize %zu --crop %zu", height * 8 / 7, height);
    return SH_FAIL(err, SH_E_INVALID,
                   "the picture is %zu x %zu (width x height), the model takes %zu x %zu: %s",
                   p->width, p->height, width, height, hint);
}

int image_read(const char *path, const struct image_plan *plan, const json_t *wanted,
               struct tensors *out, struct sh_err *err)
{
    const json_t *w = json_array_get(wanted, 0);
    struct picture p = {.channels = wanted_channels(w, plan->is_last)};
    struct tensor t = {.dtype = sh_dtype_from_v2(sh_json_text(w, "datatype"))};
    int rc = check_input(wanted, plan, err);

    *out = (struct tensors){0};
    if (!rc)
        rc = picture_read(path, &p, err);
    if (!rc)
        rc = picture_shape(&p, &plan->shape, err);
    if (!rc)
        rc = check_picture_size(&p, w, plan->is_last, err);
    if (!rc)
        rc = to_tensor(&p, plan, &t, err);
    picture_fini(&p);
    if (!rc)
        rc = tensors_add(out, w, &t, err);
    else
        free(t.own);
    if (rc)
        tensors_fini(out);
    return rc;
}
