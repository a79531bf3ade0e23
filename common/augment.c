/* augment.c - see augment.h. */
#include "common/augment.h"

#include "common/mem.h"

#include <math.h>
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

    a->normalises = true;
    if (mean)
        rc = also(rc, read_channels("mean", mean, -1e6, a->mean, err));
    if (std)
        rc = also(rc, read_channels("std", std, 1e-6, a->std, err));
    return rc;
}

static int read_crop(const json_t *obj, struct augment *a, struct sh_err *err)
{
    const char *name;
    struct sh_json_field f[] = {
        {"name", SH_JSON_STR, &name, .required = true},
        {"padding", SH_JSON_INT, &a->crop_padding, .required = true, .min = 1, .max = 4096},
    };

    return sh_json_read(obj, PATH, f, SH_ARRAY_LEN(f), err);
}

static int read_flip(const json_t *obj, struct augment *a, struct sh_err *err)
{
    const char *name;
    struct sh_json_field f[] = {
        {"name", SH_JSON_STR, &name, .required = true},
        {"probability", SH_JSON_F64, &a->flip, .min = 0, .max = 1},
    };

    a->flip = 0.5;
    return sh_json_read(obj, PATH, f, SH_ARRAY_LEN(f), err);
}

static int read_mixup(const json_t *obj, struct augment *a, struct sh_err *err)
{
    const char *name;
    struct sh_json_field f[] = {
        {"name", SH_JSON_STR, &name, .required = true},
        {"alpha", SH_JSON_F64, &a->mixup, .required = true, .min = 0.001, .max = 1000},
    };

    return sh_json_read(obj, PATH, f, SH_ARRAY_LEN(f), err);
}

static int read_special(const json_t *list, struct augment *a, struct sh_err *err)
{
    json_t *v;
    size_t i;

    json_array_foreach((json_t *)list, i, v)
    {
        if (!json_is_integer(v))
            return sh_json_fail(err, PATH, "\"special\" of \"mask-tokens\" must be whole numbers");
        a->tokens.special[a->tokens.n_special++] = json_integer_value(v);
    }
    return SH_OK;
}

static int read_tokens(const json_t *obj, struct augment *a, struct sh_err *err)
{
    const char *name, *input = "", *labels = "label";
    json_t *special = NULL;
    struct sh_json_field f[] = {
        {"name", SH_JSON_STR, &name, .required = true},
        {"input", SH_JSON_STR, &input, .required = true, .min = 1, .max = AUGMENT_NAME - 1,
         .in_bytes = true},
        {"labels", SH_JSON_STR, &labels, .min = 1, .max = AUGMENT_NAME - 1, .in_bytes = true},
        {"mask", SH_JSON_INT, &a->tokens.mask, .required = true, .min = 0, .max = INT32_MAX},
        {"vocabulary", SH_JSON_INT, &a->tokens.vocabulary, .required = true, .min = 1,
         .max = INT32_MAX},
        {"probability", SH_JSON_F64, &a->tokens.probability, .min = 0, .max = 1},
        {"special", SH_JSON_ARR, &special, .min = 0, .max = AUGMENT_MAX_SPECIAL},
    };
    int rc;

    a->tokens.probability = 0.15;
    rc = sh_json_read(obj, PATH, f, SH_ARRAY_LEN(f), err);
    if (!rc && special)
        rc = read_special(special, a, err);
    if (!rc && a->tokens.mask >= a->tokens.vocabulary)
        rc = sh_json_fail(err, PATH, "\"mask\" of \"mask-tokens\" is not below its \"vocabulary\"");
    sh_strlcpy(a->tokens.input, input, sizeof(a->tokens.input));
    sh_strlcpy(a->tokens.labels, labels, sizeof(a->tokens.labels));
    return rc;
}

static const struct kind {
    const char *name;
    int (*read)(const json_t *, struct augment *, struct sh_err *);
} KINDS[] = {{"normalise", read_normalise},
             {"crop", read_crop},
             {"flip", read_flip},
             {"mixup", read_mixup},
             {"mask-tokens", read_tokens}};

static int read_one(const json_t *v, size_t i, struct augment *a, bool *had, struct sh_err *err)
{
    const char *name = sh_json_text(v, "name");

    for (size_t k = 0; k < SH_ARRAY_LEN(KINDS); k++) {
        if (strcmp(name, KINDS[k].name) != 0)
            continue;
        if (had[k])
            return sh_json_fail(err, PATH, "\"%s\" has \"%s\" twice", PATH, name);
        had[k] = true;
        return KINDS[k].read(v, a, err);
    }
    return sh_json_fail(err, PATH,
                        "element %zu of \"%s\" must be an object whose \"name\" is one of: "
                        "normalise, crop, flip, mixup, mask-tokens; it is \"%.40s\"",
                        i, PATH, name);
}

int augment_read(const json_t *list, struct augment *out, struct sh_err *err)
{
    bool had[SH_ARRAY_LEN(KINDS)] = {false};
    json_t *v;
    size_t i;
    int rc = SH_OK;

    *out = (struct augment){0};
    json_array_foreach((json_t *)list, i, v)
    {
        rc = also(rc, read_one(v, i, out, had, err));
    }
    if (out->mixup > 0 && out->tokens.input[0])
        rc = also(rc, sh_json_fail(err, PATH, "\"mixup\" and \"mask-tokens\" do not go together"));
    return rc;
}

struct augment augment_fixed(const struct augment *a)
{
    struct augment out = *a;

    out.crop_padding = 0;
    out.flip = out.mixup = 0;
    out.tokens.input[0] = '\0';
    return out;
}

bool augment_has_pictures(const struct augment *a)
{
    return a->normalises || a->crop_padding > 0 || a->flip > 0 || a->mixup > 0;
}

bool augment_makes_labels(const struct augment *a, const char *labels)
{
    return a->tokens.input[0] && strcmp(a->tokens.labels, labels) == 0;
}

/* ------------------------------------------------------------------ mixtures */

/* Above 0, below 1. */
static double draw(uint64_t *x)
{
    uint64_t z = (*x += 0x9e3779b97f4a7c15u);

    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return ((double)((z ^ (z >> 31)) >> 12) + 0.5) / 4503599627370496.0;
}

/* The logarithm of a number of Gamma(alpha), by Marsaglia and Tsang; of alpha below 1 by way of
 * alpha + 1, where the number itself may be too small to be one. */
static double log_gamma_draw(double alpha, uint64_t *x)
{
    const double more = alpha < 1 ? log(draw(x)) / alpha : 0;
    const double d = (alpha < 1 ? alpha + 1 : alpha) - 1.0 / 3, c = 1 / sqrt(9 * d);

    for (;;) {
        const double radius = sqrt(-2 * log(draw(x)));
        const double n = radius * cos(6.283185307179586 * draw(x)), v = pow(1 + c * n, 3);

        if (1 + c * n > 0 && log(draw(x)) < n * n / 2 + d - d * v + d * log(v))
            return log(d * v) + more;
    }
}

double augment_mix(const struct augment *a, uint64_t seed, int64_t step)
{
    uint64_t x = seed * 0x2545f4914f6cdd1du + (uint64_t)step * 0xd1342543de82ef95u;
    double one, other;

    if (!(a->mixup > 0))
        return 1;
    one = log_gamma_draw(a->mixup, &x);
    other = log_gamma_draw(a->mixup, &x);
    return 1 / (1 + exp(other - one));
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

int augment_check(const struct augment *a, const char *input, const int64_t dims[static 4],
                  struct sh_err *err)
{
    const uint32_t axis = augment_channels(dims);
    const int64_t channels = dims[axis];

    for (uint32_t i = 1; i < 4; i++)
        if (i != axis && dims[i] > 0 && a->crop_padding >= dims[i])
            return sh_json_fail(err, PATH,
                                "\"padding\" of \"crop\" is %lld, and input \"%.80s\" has %lld "
                                "pixels a side: nothing of a picture would be left",
                                (long long)a->crop_padding, input, (long long)dims[i]);
    if (!a->normalises || are_colours(channels) || channels < 1)
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
