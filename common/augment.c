/* augment.c - see augment.h. */
#include "common/augment.h"

#include "common/mem.h"

#include <string.h>

#define PATH "spec.augment"

/* The first failure counts; what comes behind it is looked at all the same, for err->faults. */
static int also(int first, int next)
{
    return first ? first : next;
}

/* One number for all channels, or three. */
static int read_channels(const char *name, const json_t *v, double least,
                         double out[static AUGMENT_CHANNELS], struct sh_err *err)
{
    for (size_t i = 0; i < AUGMENT_CHANNELS; i++) {
        const json_t *x = json_is_array(v) ? json_array_get(v, i) : v;

        if ((json_is_array(v) && json_array_size(v) != AUGMENT_CHANNELS) || !json_is_number(x) ||
            !(json_number_value(x) >= least && json_number_value(x) <= 1e6))
            return sh_json_fail(err, PATH,
                                "\"%s\" of \"normalise\" must be a number from %g to 1e6, or three "
                                "of them, of red, green and blue",
                                name, least);
        out[i] = json_number_value(x);
    }
    return SH_OK;
}

static int read_normalise(const json_t *obj, struct augment *a, struct sh_err *err)
{
    const char *name;
    json_t *mean = NULL, *std = NULL;
    struct sh_json_field f[] = {
        {"name", SH_JSON_STR, &name, .required = true},
        {"mean", SH_JSON_ANY, &mean, .required = true},
        {"std", SH_JSON_ANY, &std, .required = true},
    };
    int rc = sh_json_read(obj, PATH, f, SH_ARRAY_LEN(f), err);

    if (a->normalises)
        rc = also(rc, sh_json_fail(err, PATH, "\"%s\" has \"normalise\" twice", PATH));
    a->normalises = true;
    if (mean)
        rc = also(rc, read_channels("mean", mean, -1e6, a->mean, err));
    if (std)
        rc = also(rc, read_channels("std", std, 1e-6, a->std, err));
    return rc;
}

int augment_read(const json_t *list, struct augment *out, struct sh_err *err)
{
    json_t *v;
    size_t i;
    int rc = SH_OK;

    *out = (struct augment){0};
    json_array_foreach((json_t *)list, i, v)
    {
        const char *name = sh_json_text(v, "name");

        if (strcmp(name, "normalise") == 0)
            rc = also(rc, read_normalise(v, out, err));
        else
            rc = also(rc, sh_json_fail(err, PATH,
                                       "element %zu of \"%s\" must be an object whose \"name\" is "
                                       "one of: normalise; it is \"%.40s\"",
                                       i, PATH, name));
    }
    return rc;
}

bool augment_is_picture(enum sh_dtype t, size_t rank)
{
    return t == SH_F32 && rank == 4;
}

static bool are_colours(int64_t n)
{
    return n == 1 || n == AUGMENT_CHANNELS;
}

uint32_t augment_channels(const int64_t dims[static 4])
{
    return !are_colours(dims[1]) && are_colours(dims[3]) ? 3 : 1;
}

int augment_check(const struct augment *a, const char *input, int64_t channels, struct sh_err *err)
{
    if (!a->normalises || are_colours(channels))
        return SH_OK;
    for (size_t i = 1; i < AUGMENT_CHANNELS; i++)
        if (a->mean[i] != a->mean[0] || a->std[i] != a->std[0])
            return sh_json_fail(err, PATH,
                                "\"normalise\" has numbers for red, green and blue, and input "
                                "\"%.80s\" has %lld channels: give one number for all",
                                input, (long long)channels);
    return SH_OK;
}

void augment_scale(const struct augment *a, bool is_byte, size_t c, double *scale, double *shift)
{
    const size_t k = SH_MIN(c, (size_t)AUGMENT_CHANNELS - 1);
    const double unit = is_byte ? 255 : 1;

    *scale = a->normalises ? 1 / (unit * a->std[k]) : 1 / unit;
    *shift = a->normalises ? -a->mean[k] / a->std[k] : 0;
}

void augment_sample(const struct augment *a, const int64_t dims[static 4], bool is_byte,
                    const void *in, float *out)
{
    const uint32_t axis = augment_channels(dims);
    const int64_t n = dims[1] * dims[2] * dims[3], behind = axis == 1 ? dims[2] * dims[3] : 1;

    for (int64_t i = 0; i < n; i += behind) {
        double scale, shift;

        augment_scale(a, is_byte, (size_t)(i / behind % dims[axis]), &scale, &shift);
        for (int64_t k = i; k < i + behind; k++) {
            float x = is_byte ? (float)((const uint8_t *)in)[k] : 0;

            if (!is_byte)
                memcpy(&x, (const char *)in + (size_t)k * sizeof(x), sizeof(x));
            out[k] = (float)((double)x * scale + shift);
        }
    }
}
