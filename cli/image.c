/* image.c - see inputs.h. Decoding is libjpeg-turbo's and libpng's; the rest is here.
 *
 * Resizing is that of Pillow, which torchvision uses: a triangle as wide as the pixels that become
 * one, first along the rows, then along the columns, rounded to bytes between the two.
 */
#include "cli/inputs.h"
#include "cli/number.h"
#include "cli/upload.h"
#include "common/io.h"
#include "common/mem.h"

#include <math.h>
#include <png.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <turbojpeg.h>
#include <unistd.h>

#define MAX_FILE ((int64_t)256 << 20)

struct picture { /* RGB, or grey */
    size_t width, height, channels;
    uint8_t *data; /* OWNED */
};

static int set_size(struct picture *p, size_t width, size_t height, struct sh_err *err)
{
    if (width < 1 || height < 1 || width > IMAGE_MAX_SIDE || height > IMAGE_MAX_SIDE ||
        width * height > IMAGE_MAX_PIXELS)
        return SH_FAIL(err, SH_E_TOOBIG,
                       "a picture of %zu x %zu is not read: at most %d on a side, and %zu pixels",
                       width, height, IMAGE_MAX_SIDE, IMAGE_MAX_PIXELS);
    p->width = width;
    p->height = height;
    p->data = malloc(width * height * 4); /* as many as any format has */
    return p->data ? SH_OK : SH_FAIL(err, SH_E_NOMEM, "could not allocate a picture");
}

/* ---------------------------------------------------------------- decode */

/* Bytes between two parts of a file are harmless and common; after any other warning a part of the
 * picture is made up. */
static bool is_harmless(tjhandle j)
{
    return tjGetErrorCode(j) == TJERR_WARNING && strstr(tjGetErrorStr2(j), "extraneous");
}

static int decode_jpeg(const uint8_t *file, size_t n, struct picture *p, struct sh_err *err)
{
    tjhandle j = tjInitDecompress();
    int width = 0, height = 0, sampling, colours = TJCS_RGB, rc;

    if (!j)
        return SH_FAIL(err, SH_E_NOMEM, "could not allocate a decoder");
    if (tjDecompressHeader3(j, file, (unsigned long)n, &width, &height, &sampling, &colours) &&
        !is_harmless(j))
        rc = SH_FAIL(err, SH_E_INVALID, "the picture cannot be decoded: %.150s", tjGetErrorStr2(j));
    else if (colours == TJCS_CMYK || colours == TJCS_YCCK)
        rc = SH_FAIL(err, SH_E_UNSUPPORTED, "the picture is in CMYK: save it in RGB or in grey");
    else
        rc = set_size(p, (size_t)SH_MAX(width, 0), (size_t)SH_MAX(height, 0), err);
    if (!rc &&
        tjDecompress2(j, file, (unsigned long)n, p->data, width, 0, height,
                      p->channels == 1 ? TJPF_GRAY : TJPF_RGB,
                      TJFLAG_ACCURATEDCT | TJFLAG_LIMITSCANS) &&
        !is_harmless(j))
        rc = SH_FAIL(err, SH_E_INVALID, "the picture is damaged, or cut off: %.150s",
                     tjGetErrorStr2(j));
    tjDestroy(j);
    return rc;
}

/* As Pillow has it: what is see-through is as it is stored. */
static void drop_alpha(struct picture *p)
{
    size_t from = p->channels + 1;

    for (size_t i = 0; i < p->width * p->height; i++)
        memmove(p->data + i * p->channels, p->data + i * from, p->channels);
}

static int decode_png(const uint8_t *file, size_t n, struct picture *p, struct sh_err *err)
{
    png_image image = {.version = PNG_IMAGE_VERSION};
    int rc;

    if (!png_image_begin_read_from_memory(&image, file, n))
        return SH_FAIL(err, SH_E_INVALID, "the picture cannot be decoded: %.60s", image.message);
    image.format = p->channels == 1 ? PNG_FORMAT_GA : PNG_FORMAT_RGBA;
    rc = set_size(p, image.width, image.height, err);
    if (!rc && !png_image_finish_read(&image, NULL, p->data, 0, NULL))
        rc = SH_FAIL(err, SH_E_INVALID, "the picture cannot be decoded: %.60s", image.message);
    png_image_free(&image);
    if (!rc)
        drop_alpha(p);
    return rc;
}

static int decode(const char *path, struct picture *p, struct sh_err *err)
{
    enum sh_file_kind kind;
    uint8_t *file = NULL;
    int64_t bytes = 0;
    int fd = -1, rc = upload_file_open(path, &fd, &bytes, err);

    if (!rc && bytes > MAX_FILE)
        rc = SH_FAIL(err, SH_E_TOOBIG, "\"%s\" has %lld bytes, at most %lld are read", path,
                     (long long)bytes, (long long)MAX_FILE);
    if (!rc)
        file = malloc((size_t)bytes);
    if (!rc && !file)
        rc = SH_FAIL(err, SH_E_NOMEM, "could not allocate a picture");
    if (!rc && sh_pread_all(fd, file, (size_t)bytes, 0) != (ssize_t)bytes)
        rc = SH_FAIL(err, SH_E_IO, "could not read \"%s\"", path);
    kind = rc ? SH_FILE_OTHER : sh_file_kind(file, (size_t)bytes);
    if (kind == SH_FILE_JPEG)
        rc = decode_jpeg(file, (size_t)bytes, p, err);
    else if (kind == SH_FILE_PNG)
        rc = decode_png(file, (size_t)bytes, p, err);
    else if (!rc)
        rc = SH_FAIL(err, SH_E_INVALID, "\"%s\" is no picture but %s; --image takes JPEG and PNG",
                     path, sh_file_kind_text(kind));
    if (fd >= 0)
        close(fd);
    free(file);
    return rc;
}

/* ---------------------------------------------------------------- resize and crop */

/* One line of n elements, `step` bytes apart, to m elements. weight: room for n. */
static void resample(const uint8_t *in, size_t n, size_t in_step, uint8_t *out, size_t m,
                     size_t out_step)
{
    double scale = (double)n / (double)m, support = fmax(scale, 1);

    for (size_t i = 0; i < m; i++) {
        double center = ((double)i + 0.5) * scale, sum = 0, all = 0;
        double first = fmax(floor(center - support + 0.5), 0);
        double last = fmin(floor(center + support + 0.5), (double)n);

        for (size_t k = (size_t)first; k < (size_t)last; k++) {
            double w = fmax(1 - fabs(((double)k + 0.5 - center) / support), 0);

            sum += w * in[k * in_step];
            all += w;
        }
        out[i * out_step] = (uint8_t)fmin(floor(sum / all + 0.5), 255);
    }
}

/* TAKES what p holds. */
static int resize(struct picture *p, size_t width, size_t height, struct sh_err *err)
{
    size_t ch = p->channels;
    struct picture wide = {.channels = ch}, out = {.channels = ch};
    int rc = set_size(&wide, width, p->height, err);

    if (!rc)
        rc = set_size(&out, width, height, err);
    for (size_t y = 0; !rc && y < p->height; y++)
        for (size_t c = 0; c < ch; c++)
            resample(p->data + y * p->width * ch + c, p->width, ch, wide.data + y * width * ch + c,
                     width, ch);
    for (size_t x = 0; !rc && x < width * ch; x++)
        resample(wide.data + x, p->height, width * ch, out.data + x, height, width * ch);
    free(wide.data);
    if (rc) {
        free(out.data);
        return rc;
    }
    free(p->data);
    *p = out;
    return SH_OK;
}

static int shape_picture(struct picture *p, const struct image_plan *plan, struct sh_err *err)
{
    size_t least = SH_MIN(p->width, p->height), n = (size_t)plan->crop, ch = p->channels, x, y;
    int rc = SH_OK;

    if (plan->resize > 0 && (size_t)plan->resize != least)
        rc = resize(p, p->width * (size_t)plan->resize / least,
                    p->height * (size_t)plan->resize / least, err);
    if (rc || plan->crop <= 0)
        return rc;
    if (n > p->width || n > p->height)
        return SH_FAIL(err, SH_E_INVALID,
                       "--crop %zu is more than the picture, which is %zu x %zu%s: give --resize "
                       "%zu or more",
                       n, p->width, p->height, plan->resize > 0 ? " after --resize" : "", n);
    x = (size_t)nearbyint((double)(p->width - n) / 2);
    y = (size_t)nearbyint((double)(p->height - n) / 2);
    for (size_t i = 0; i < n; i++)
        memmove(p->data + i * n * ch, p->data + ((y + i) * p->width + x) * ch, n * ch);
    p->width = p->height = n;
    return SH_OK;
}

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

static double value_at(const struct picture *p, const struct image_plan *plan, enum sh_dtype t,
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
                            value_at(p, plan, t->dtype, i, k)))
                return SH_FAIL(err, SH_E_INVALID, "with this mean and std a value is outside of %s",
                               sh_dtype_v2(t->dtype));
    return SH_OK;
}

/* Of the model's input; 0: it is no picture. */
static size_t channels_of(const json_t *w, bool is_last)
{
    const json_t *shape = json_object_get(w, "shape");
    json_int_t n = json_integer_value(json_array_get(shape, is_last ? 3 : 1));

    return json_array_size(shape) == 4 && (n == 1 || n == 3) ? (size_t)n : 0;
}

static int check_input(const json_t *wanted, const struct image_plan *plan, struct sh_err *err)
{
    const json_t *w = json_array_get(wanted, 0);
    enum sh_dtype t = sh_dtype_from_v2(sh_json_text(w, "datatype"));

    if (json_array_size(wanted) != 1 || !channels_of(w, plan->is_last))
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
    bool is_picture = channels_of(w, is_last) > 0;

    *height = is_picture && h > 0 ? (size_t)h : 0;
    *width = is_picture && v > 0 ? (size_t)v : 0;
}

void image_hint(const json_t *wanted, char *out, size_t size)
{
    const json_t *w = json_array_get(wanted, 0);
    size_t height, width;
    int n = 0;

    size_of(w, !channels_of(w, false), &height, &width);
    if (height && height == width) /* as most are trained: 224 of 256 */
        n = snprintf(out, size, "--resize %zu --crop %zu ", height * 8 / 7, height);
    if (n >= 0 && (size_t)n < size)
        snprintf(out + n, size - (size_t)n, "--mean 0.485,0.456,0.406 --std 0.229,0.224,0.225");
}

static int check_size(const struct picture *p, const json_t *w, bool is_last, struct sh_err *err)
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
    struct picture p = {.channels = channels_of(w, plan->is_last)};
    struct tensor t = {.dtype = sh_dtype_from_v2(sh_json_text(w, "datatype"))};
    int rc = check_input(wanted, plan, err);

    *out = (struct tensors){0};
    if (!rc)
        rc = decode(path, &p, err);
    if (!rc)
        rc = shape_picture(&p, plan, err);
    if (!rc)
        rc = check_size(&p, w, plan->is_last, err);
    if (!rc)
        rc = to_tensor(&p, plan, &t, err);
    free(p.data);
    if (!rc)
        rc = tensors_add(out, w, &t, err);
    else
        free(t.own);
    if (rc)
        tensors_fini(out);
    return rc;
}
