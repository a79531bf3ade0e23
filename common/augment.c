/* augment.c - see augment.h. */
#include "common/augment.h"

#include "common/mem.h"

#include <math.h>
#include <string.h>

#define PATH "spec.augment"

struct reading { /* what one object says */
    struct augment a;
    const char *name, *input, *labels;
    json_t *mean, *std, *special;
};

#define AT(member) .offset = offsetof(struct reading, member)
#define NAME(kind)                                                    \
    {                                                                 \
        "name", SH_JSON_STR, .part = kind, AT(name), .required = true \
    }

static const struct sh_field FIELDS[] = {
    NAME(AUGMENT_NORMALISE),
    {"mean", SH_JSON_ANY, -1e6, 1e6, NULL, "what to subtract: one number, or one for each colour",
     AUGMENT_NORMALISE, AT(mean), .required = true},
    {"std", SH_JSON_ANY, 1e-6, 1e6, NULL, "what to divide the difference by", AUGMENT_NORMALISE,
     AT(std), .required = true},
    NAME(AUGMENT_CROP),
    {"padding", SH_JSON_INT, 1, 4096, NULL,
     "pixels of padding on each side, before a random part of the original size is cut out",
     AUGMENT_CROP, AT(a.crop_padding), .required = true},
    NAME(AUGMENT_FLIP),
    {"probability", SH_JSON_F64, 0, 1, "0.5", "chance that a picture is mirrored left to right",
     AUGMENT_FLIP, AT(a.flip)},
    NAME(AUGMENT_MIXUP),
    {"alpha", SH_JSON_F64, 0.001, 1000, NULL,
     "parameter of the beta distribution from which the mixing weights are drawn", AUGMENT_MIXUP,
     AT(a.mixup), .required = true},
    NAME(AUGMENT_TOKENS),
    {"input", SH_JSON_STR, 1, AUGMENT_NAME - 1, NULL, "the model's input, INT64", AUGMENT_TOKENS,
     AT(input), .required = true, .in_bytes = true},
    {"labels", SH_JSON_STR, 1, AUGMENT_NAME - 1, "label",
     "tensor that receives the original tokens as labels", AUGMENT_TOKENS, AT(labels),
     .in_bytes = true},
    {"mask", SH_JSON_INT, 0, INT32_MAX, NULL, "token of the mask", AUGMENT_TOKENS,
     AT(a.tokens.mask), .required = true},
    {"vocabulary", SH_JSON_INT, 1, INT32_MAX, NULL, "number of tokens", AUGMENT_TOKENS,
     AT(a.tokens.vocabulary), .required = true},
    {"probability", SH_JSON_F64, 0, 1, "0.15", "chance that a token is masked", AUGMENT_TOKENS,
     AT(a.tokens.probability)},
    {"special", SH_JSON_ARR, 0, AUGMENT_MAX_SPECIAL, NULL, "tokens that are never masked",
     AUGMENT_TOKENS, AT(special)},
};

const struct sh_fields AUGMENT_FIELDS[AUGMENT_N_KINDS] = {
#define X(id, word) [AUGMENT_##id] = {FIELDS, SH_ARRAY_LEN(FIELDS), AUGMENT_##id},
    AUGMENT_KINDS(X, )
#undef X
};

/* One number for all channels, or three. */
static int read_channels(const char *name, const json_t *v, double least,
                         double out[static AUGMENT_CHANNELS], struct sh_err *err)
{
    for (size_t i = 0; v && i < AUGMENT_CHANNELS; i++) {
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

static int read_tokens(struct reading *r, struct sh_err *err)
{
    struct augment *a = &r->a;
    int rc = read_special(r->special, a, err);

    if (!rc && a->tokens.mask >= a->tokens.vocabulary)
        rc = sh_json_fail(err, PATH, "\"mask\" of \"mask-tokens\" is not below its \"vocabulary\"");
    sh_strlcpy(a->tokens.input, r->input, sizeof(a->tokens.input));
    sh_strlcpy(a->tokens.labels, r->labels, sizeof(a->tokens.labels));
    return rc;
}

static int read_kind(const json_t *obj, enum augment_kind kind, struct augment *a,
                     struct sh_err *err)
{
    const struct sh_fields *f = &AUGMENT_FIELDS[kind];
    struct reading r = {.a = *a};
    int rc;

    sh_fields_preset(f, &r);
    rc = sh_fields_take(obj, PATH, f, &r, err);
    if (kind == AUGMENT_NORMALISE) {
        r.a.normalises = true;
        rc = sh_rc_first(rc, read_channels("mean", r.mean, -1e6, r.a.mean, err));
        rc = sh_rc_first(rc, read_channels("std", r.std, 1e-6, r.a.std, err));
    }
    if (!rc && kind == AUGMENT_TOKENS)
        rc = read_tokens(&r, err);
    *a = r.a;
    return rc;
}

static int read_one(const json_t *v, size_t i, struct augment *a, bool *had, struct sh_err *err)
{
    const char *name = sh_json_text(v, "name");
    unsigned kind;

    if (sh_field_word(PATH, name, AUGMENT_KINDS(AUGMENT_WORD, ","), &kind, NULL))
        return sh_json_fail(err, PATH,
                            "element %zu of \"%s\" must be an object whose \"name\" is one of: "
                            "%s; it is \"%.40s\"",
                            i, PATH, AUGMENT_KINDS(AUGMENT_WORD, ", "), name);
    if (had[kind])
        return sh_json_fail(err, PATH, "\"%s\" has \"%s\" twice", PATH, name);
    had[kind] = true;
    return read_kind(v, kind, a, err);
}

int augment_read(const json_t *list, struct augment *out, struct sh_err *err)
{
    bool had[AUGMENT_N_KINDS] = {false};
    json_t *v;
    size_t i;
    int rc = SH_OK;

    *out = (struct augment){0};
    json_array_foreach((json_t *)list, i, v)
    {
        rc = sh_rc_first(rc, read_one(v, i, out, had, err));
    }
    if (out->mixup > 0 && out->tokens.input[0])
        rc = sh_rc_first(
            rc, sh_json_fail(err, PATH, "\"mixup\" and \"mask-tokens\" do not go together"));
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
static double draw_unit(uint64_t *x)
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
    const double more = alpha < 1 ? log(draw_unit(x)) / alpha : 0;
    const double d = (alpha < 1 ? alpha + 1 : alpha) - 1.0 / 3, c = 1 / sqrt(9 * d);

    for (;;) {
        const double radius = sqrt(-2 * log(draw_unit(x)));
        const double n = radius * cos(6.283185307179586 * draw_unit(x)), v = pow(1 + c * n, 3);

        if (1 + c * n > 0 && log(draw_unit(x)) < n * n / 2 + d - d * v + d * log(v))
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

static int check_crop(const struct augment *a, const char *input, const int64_t dims[static 4],
                      uint32_t axis, struct sh_err *err)
{
    for (uint32_t i = 1; i < 4; i++)
        if (i != axis && dims[i] > 0 && a->crop_padding >= dims[i])
            return sh_json_fail(err, PATH,
                                "\"padding\" of \"crop\" is %lld, and input \"%.80s\" has %lld "
                                "pixels a side: nothing of a picture would be left",
                                (long long)a->crop_padding, input, (long long)dims[i]);
    return SH_OK;
}

int augment_check_bytes(const struct augment *a, const char *input, const int64_t dims[static 4],
                        bool channels_last, struct sh_err *err)
{
    if (a->normalises || a->mixup > 0)
        return sh_json_fail(err, PATH,
                            "\"%s\" is for floats, and input \"%.80s\" takes bytes, which the "
                            "model normalises itself (preprocess); \"crop\" and \"flip\" are for "
                            "both",
                            a->normalises ? "normalise" : "mixup", input);
    return check_crop(a, input, dims, channels_last ? 3 : 1, err);
}

int augment_check(const struct augment *a, const char *input, const int64_t dims[static 4],
                  struct sh_err *err)
{
    const uint32_t axis = augment_channels(dims);
    const int64_t channels = dims[axis];
    int rc = check_crop(a, input, dims, axis, err);

    if (rc || !a->normalises || are_colours(channels) || channels < 1)
        return rc;
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
