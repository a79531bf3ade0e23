/* picture.c - see picture.h. libjpeg-turbo and libpng decode; the rest is here.
 *
 * Resizing is Pillow's, which torchvision uses: a triangle filter as wide as the pixels that become
 * one, first along the rows, then along the columns, rounded to bytes in between.
 */
#include "cli/data/picture.h"

#include "cli/files/user_file.h"
#include "common/io.h"
#include "common/mem.h"

#include <math.h>
#include <png.h>
#include <stdlib.h>
#include <string.h>
#include <turbojpeg.h>
#include <unistd.h>

#define MAX_FILE ((int64_t)256 << 20)

static int set_size(struct picture *p, size_t width, size_t height, struct sh_err *err)
{
    if (width < 1 || height < 1)
        return SH_FAIL(err, SH_E_INVALID,
                       "the picture is damaged, or cut off: it has no width and height");
    if (width > PICTURE_MAX_SIDE || height > PICTURE_MAX_SIDE ||
        width * height > PICTURE_MAX_PIXELS)
        return SH_FAIL(err, SH_E_TOOBIG,
                       "a picture of %zu x %zu is not read: at most %d on a side, and %zu pixels",
                       width, height, PICTURE_MAX_SIDE, PICTURE_MAX_PIXELS);
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

/* Of RGB with alpha. As Pillow has it: what is see-through is as it is stored, and grey is that of
 * ITU-R 601, of the values as they are stored, as in a JPEG; libpng would take their light. */
static void drop_alpha(struct picture *p)
{
    const uint8_t *from = p->data;

    for (size_t i = 0; i < p->width * p->height; i++, from += 4) {
        const uint32_t grey = 19595u * from[0] + 38470u * from[1] + 7471u * from[2]; /* of 2^16 */

        if (p->channels == 1)
            p->data[i] = (uint8_t)((grey + 32768) >> 16);
        else
            memmove(p->data + i * 3, from, 3);
    }
}

static int decode_png(const uint8_t *file, size_t n, struct picture *p, struct sh_err *err)
{
    png_image image = {.version = PNG_IMAGE_VERSION};
    int rc;

    if (!png_image_begin_read_from_memory(&image, file, n))
        return SH_FAIL(err, SH_E_INVALID, "the picture cannot be decoded: %.60s", image.message);
    image.format = PNG_FORMAT_RGBA;
    image.flags |= PNG_IMAGE_FLAG_16BIT_sRGB; /* as 8 bits are, where the file does not say */
    rc = set_size(p, image.width, image.height, err);
    if (!rc && !png_image_finish_read(&image, NULL, p->data, 0, NULL))
        rc = SH_FAIL(err, SH_E_INVALID, "the picture cannot be decoded: %.60s", image.message);
    png_image_free(&image);
    if (!rc)
        drop_alpha(p);
    return rc;
}

static int read_picture_file(const char *path, uint8_t **out, size_t *n, struct sh_err *err)
{
    int64_t bytes = 0;
    int fd = -1, rc = user_file_open(path, &fd, &bytes, err);

    if (!rc && bytes > MAX_FILE)
        rc = SH_FAIL(err, SH_E_TOOBIG, "\"%s\" has %lld bytes, at most %lld are read", path,
                     (long long)bytes, (long long)MAX_FILE);
    if (!rc)
        *out = malloc((size_t)bytes);
    if (!rc && !*out)
        rc = SH_FAIL(err, SH_E_NOMEM, "could not allocate a picture");
    if (!rc && sh_pread_all(fd, *out, (size_t)bytes, 0) != (ssize_t)bytes)
        rc = SH_FAIL(err, SH_E_IO, "could not read \"%s\"", path);
    *n = (size_t)bytes;
    if (fd >= 0)
        close(fd);
    return rc;
}

int picture_read(const char *path, struct picture *p, struct sh_err *err)
{
    enum sh_file_kind kind;
    struct sh_err why = {0};
    uint8_t *file = NULL;
    size_t n = 0;
    int rc = read_picture_file(path, &file, &n, err);

    p->data = NULL;
    kind = rc ? SH_FILE_OTHER : sh_file_kind(file, n);
    if (rc)
        ;
    else if (kind != SH_FILE_JPEG && kind != SH_FILE_PNG)
        rc = SH_FAIL(err, SH_E_INVALID, "\"%s\" is no picture but %s; JPEG and PNG are supported",
                     path, sh_file_kind_text(kind));
    else if ((rc = kind == SH_FILE_JPEG ? decode_jpeg(file, n, p, &why)
                                        : decode_png(file, n, p, &why)))
        SH_FAIL(err, rc, "\"%s\": %s", path, why.msg);
    if (rc)
        picture_fini(p);
    free(file);
    return rc;
}

void picture_fini(struct picture *p)
{
    free(p->data);
    p->data = NULL;
}

void picture_bytes(const struct picture *p, bool planar, uint8_t *out)
{
    const size_t pixels = p->width * p->height, ch = p->channels;

    if (!planar || ch == 1) {
        memcpy(out, p->data, pixels * ch);
        return;
    }
    for (size_t c = 0; c < ch; c++)
        for (size_t i = 0; i < pixels; i++)
            out[c * pixels + i] = p->data[i * ch + c];
}

/* ---------------------------------------------------------------- resize and crop */

struct taps {          /* of an axis of n elements that becomes one of m */
    size_t *first, *n; /* OWNED: [m]; of the elements that each is made of */
    double *weights;   /* OWNED: [m, most] */
    double *sums;      /* OWNED: [m] */
    size_t m, most;
};

static void taps_fini(struct taps *t)
{
    free(t->first);
    free(t->n);
    free(t->weights);
    free(t->sums);
}

static int taps_make(size_t n, size_t m, struct taps *t, struct sh_err *err)
{
    const double scale = (double)n / (double)m, support = fmax(scale, 1);

    *t = (struct taps){.m = m, .most = (size_t)(2 * support) + 2};
    t->first = calloc(m, sizeof(*t->first));
    t->n = calloc(m, sizeof(*t->n));
    t->weights = calloc(m * t->most, sizeof(*t->weights));
    t->sums = calloc(m, sizeof(*t->sums));
    if (!t->first || !t->n || !t->weights || !t->sums)
        return SH_FAIL(err, SH_E_NOMEM, "could not allocate a picture");
    for (size_t i = 0; i < m; i++) {
        const double center = ((double)i + 0.5) * scale;
        const double last = fmin(floor(center + support + 0.5), (double)n);

        t->first[i] = (size_t)fmax(floor(center - support + 0.5), 0);
        t->n[i] = (size_t)last - t->first[i];
        for (size_t k = 0; k < t->n[i]; k++) {
            const double at = (double)(t->first[i] + k) + 0.5;
            const double w = fmax(1 - fabs((at - center) / support), 0);

            t->weights[i * t->most + k] = w;
            t->sums[i] += w;
        }
    }
    return SH_OK;
}

static uint8_t to_byte(double x)
{
    return (uint8_t)fmin(floor(x + 0.5), 255);
}

/* Along each row: `width` pixels of ch become t->m. */
static void along_rows(const struct taps *t, const uint8_t *in, size_t width, size_t height,
                       size_t ch, uint8_t *out)
{
    for (size_t y = 0; y < height; y++, in += width * ch, out += t->m * ch)
        for (size_t i = 0; i < t->m; i++) {
            const uint8_t *from = in + t->first[i] * ch;
            const double *w = t->weights + i * t->most;

            for (size_t c = 0; c < ch; c++) {
                double sum = 0;

                for (size_t k = 0; k < t->n[i]; k++)
                    sum += w[k] * from[k * ch + c];
                out[i * ch + c] = to_byte(sum / t->sums[i]);
            }
        }
}

/* Rows of `row` bytes become t->m rows. sum: room for one. */
static void along_columns(const struct taps *t, const uint8_t *in, size_t row, double *sum,
                          uint8_t *out)
{
    for (size_t i = 0; i < t->m; i++) {
        memset(sum, 0, row * sizeof(*sum));
        for (size_t k = 0; k < t->n[i]; k++) {
            const uint8_t *from = in + (t->first[i] + k) * row;
            const double w = t->weights[i * t->most + k];

            for (size_t x = 0; x < row; x++)
                sum[x] += w * from[x];
        }
        for (size_t x = 0; x < row; x++)
            out[i * row + x] = to_byte(sum[x] / t->sums[i]);
    }
}

/* TAKES what p holds. */
static int resize_picture(struct picture *p, size_t width, size_t height, struct sh_err *err)
{
    const size_t ch = p->channels;
    struct picture wide = {.channels = ch}, out = {.channels = ch};
    struct taps across = {0}, down = {0};
    double *sum = NULL;
    int rc = set_size(&wide, width, p->height, err);

    if (!rc)
        rc = set_size(&out, width, height, err);
    if (!rc)
        rc = taps_make(p->width, width, &across, err);
    if (!rc)
        rc = taps_make(p->height, height, &down, err);
    if (!rc && !(sum = malloc(width * ch * sizeof(*sum))))
        rc = SH_FAIL(err, SH_E_NOMEM, "could not allocate a picture");
    if (!rc) {
        along_rows(&across, p->data, p->width, p->height, ch, wide.data);
        along_columns(&down, wide.data, width * ch, sum, out.data);
        picture_fini(p);
        *p = out;
        out.data = NULL;
    }
    free(sum);
    taps_fini(&across);
    taps_fini(&down);
    picture_fini(&wide);
    picture_fini(&out);
    return rc;
}

static void crop(struct picture *p, size_t width, size_t height)
{
    const size_t ch = p->channels;
    const size_t x = (size_t)nearbyint((double)(p->width - width) / 2);
    const size_t y = (size_t)nearbyint((double)(p->height - height) / 2);

    for (size_t i = 0; i < height; i++)
        memmove(p->data + i * width * ch, p->data + ((y + i) * p->width + x) * ch, width * ch);
    p->width = width;
    p->height = height;
}

/* The size before the crop. */
static void size_before(const struct picture *p, const struct picture_plan *plan, size_t *width,
                        size_t *height)
{
    const size_t w = (size_t)plan->width, h = (size_t)plan->height;
    size_t least = SH_MIN(p->width, p->height);

    *width = p->width;
    *height = p->height;
    if (plan->stretches) {
        *width = w;
        *height = h;
    } else if (plan->resize > 0) {
        *width = p->width * (size_t)plan->resize / least;
        *height = p->height * (size_t)plan->resize / least;
    } else if (plan->covers && p->width * h <= p->height * w) { /* the width is scarcer */
        *width = w;
        *height = SH_MAX(p->height * w / p->width, h);
    } else if (plan->covers) {
        *width = SH_MAX(p->width * h / p->height, w);
        *height = h;
    }
}

int picture_shape(struct picture *p, const struct picture_plan *plan, struct sh_err *err)
{
    const size_t w = (size_t)plan->width, h = (size_t)plan->height;
    size_t width, height;
    int rc = SH_OK;

    size_before(p, plan, &width, &height);
    if (width != p->width || height != p->height)
        rc = resize_picture(p, width, height, err);
    if (rc || w == 0)
        return rc;
    if (w > p->width || h > p->height)
        return SH_FAIL(err, SH_E_INVALID,
                       "a crop of %zu x %zu is more than the picture, which is %zu x %zu%s: give "
                       "--resize %zu or more",
                       w, h, p->width, p->height, plan->resize > 0 ? " after --resize" : "",
                       SH_MAX(w, h));
    crop(p, w, h);
    return SH_OK;
}
