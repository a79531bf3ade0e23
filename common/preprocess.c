/* preprocess.c - see preprocess.h. */
#include "common/preprocess.h"

#include "common/mem.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LEAST 1e-6 /* of what divides */
#define MOST 1e6
#define IMAGENET_MEAN       \
    {                       \
        0.485, 0.456, 0.406 \
    }
#define IMAGENET_STD        \
    {                       \
        0.229, 0.224, 0.225 \
    }
#define CLIP_MEAN                         \
    {                                     \
        0.48145466, 0.4578275, 0.40821073 \
    }
#define CLIP_STD                           \
    {                                      \
        0.26862954, 0.26130258, 0.27577711 \
    }

/* Numbers that many models were trained with. */
static const struct preset {
    const char *name;
    double mean[3], std[3];
    size_t n;
} PRESETS[] = {
    {"unit", {0}, {1}, 1},       /* 0 to 1 */
    {"signed", {0.5}, {0.5}, 1}, /* -1 to 1 */
    {"imagenet", IMAGENET_MEAN, IMAGENET_STD, 3},
    {"clip", CLIP_MEAN, CLIP_STD, 3},
};

static const char PRESET_NAMES[] = "unit, signed, imagenet, clip";

static const struct preset *preset_named(const char *name)
{
    for (size_t i = 0; i < SH_ARRAY_LEN(PRESETS); i++)
        if (strcmp(PRESETS[i].name, name) == 0)
            return &PRESETS[i];
    return NULL;
}

static int apply_preset(const char *name, struct sh_preprocess *p, struct sh_err *err)
{
    const struct preset *preset = preset_named(name);

    if (!preset)
        return sh_json_fail(err, "preprocess",
                            "\"preprocess\" of \"%.64s\" names no preset \"%.32s\"; there are %s",
                            p->input, name, PRESET_NAMES);
    p->n_mean = p->n_std = preset->n;
    memcpy(p->mean, preset->mean, sizeof(preset->mean));
    memcpy(p->std, preset->std, sizeof(preset->std));
    return SH_OK;
}

static int apply_layout(const char *layout, struct sh_preprocess *p, struct sh_err *err)
{
    p->channels_last = strcmp(layout, "NHWC") == 0;
    if (p->channels_last || strcmp(layout, "NCHW") == 0)
        return SH_OK;
    return sh_json_fail(err, "preprocess",
                        "\"layout\" of \"%.64s\" must be NHWC or NCHW, the order in which requests "
                        "bring its pictures; it is \"%.32s\"",
                        p->input, layout);
}

/* One number for all channels, or one for each. */
static int read_channel_numbers(const struct sh_preprocess *p, const char *name, const json_t *v,
                                double least, double out[static SH_PREPROCESS_CHANNELS], size_t *n,
                                struct sh_err *err)
{
    const size_t k = json_is_array(v) ? json_array_size(v) : 1;

    if (!v)
        return SH_OK;
    if (k < 1 || k > SH_PREPROCESS_CHANNELS)
        return sh_json_fail(err, "preprocess",
                            "\"%s\" of \"%.64s\" must be a number, or a list of one for each "
                            "channel, at most %u; it has %zu",
                            name, p->input, SH_PREPROCESS_CHANNELS, k);
    for (size_t i = 0; i < k; i++) {
        const json_t *x = json_is_array(v) ? json_array_get(v, i) : v;

        if (!json_is_number(x) || !(json_number_value(x) >= least) ||
            !(json_number_value(x) <= MOST))
            return sh_json_fail(err, "preprocess",
                                "\"%s\" of \"%.64s\" must be numbers from %g to %g", name, p->input,
                                least, MOST);
        out[i] = json_number_value(x);
    }
    *n = k;
    return SH_OK;
}

static int read_preprocess_object(const json_t *j, struct sh_preprocess *p, struct sh_err *err)
{
    const char *preset = NULL, *layout = "NHWC";
    json_t *mean = NULL, *std = NULL;
    struct sh_json_field f[] = {
        {"preset", SH_JSON_STR, &preset, .max = 64},
        {"layout", SH_JSON_STR, &layout, .max = 64},
        {"scale", SH_JSON_F64, &p->scale, .min = LEAST, .max = MOST},
        {"mean", SH_JSON_ANY, &mean},
        {"std", SH_JSON_ANY, &std},
    };
    int rc = sh_json_read(j, "preprocess", f, SH_ARRAY_LEN(f), err);

    if (preset)
        rc = sh_rc_first(rc, apply_preset(preset, p, err));
    rc = sh_rc_first(rc, apply_layout(layout, p, err));
    rc = sh_rc_first(rc, read_channel_numbers(p, "mean", mean, -MOST, p->mean, &p->n_mean, err));
    return sh_rc_first(rc, read_channel_numbers(p, "std", std, LEAST, p->std, &p->n_std, err));
}

static int read_preprocess_input(const char *input, const json_t *j, struct sh_preprocess *p,
                                 struct sh_err *err)
{
    *p = (struct sh_preprocess){.input = input,
                                .channels_last = true,
                                .scale = 1 / 255.0,
                                .std = {1},
                                .n_mean = 1,
                                .n_std = 1};
    if (!input[0] || strlen(input) > SH_PREPROCESS_INPUT_MAX)
        return sh_json_fail(err, "preprocess",
                            "\"preprocess\" has a name of no or of more than %d bytes",
                            SH_PREPROCESS_INPUT_MAX);
    if (json_is_string(j))
        return apply_preset(json_string_value(j), p, err);
    if (json_is_object(j))
        return read_preprocess_object(j, p, err);
    return sh_json_fail(err, "preprocess",
                        "\"preprocess\" of \"%.64s\" must be an object, or the name of a preset: "
                        "%s",
                        input, PRESET_NAMES);
}

int sh_preprocess_read(const json_t *j, struct sh_preprocess out[static SH_PREPROCESS_INPUTS],
                       size_t *n, struct sh_err *err)
{
    const char *input;
    json_t *one;
    int rc = SH_OK;

    *n = 0;
    if (!json_is_object(j) || json_object_size(j) > SH_PREPROCESS_INPUTS)
        return sh_json_fail(err, "preprocess",
                            "\"preprocess\" must be an object with the names of at most %u inputs",
                            SH_PREPROCESS_INPUTS);
    json_object_foreach((json_t *)(uintptr_t)j, input, one)
    {
        rc = sh_rc_first(rc, read_preprocess_input(input, one, &out[*n], err));
        ++*n;
    }
    return rc;
}

static int check_channel_count(const struct sh_preprocess *p, const char *what, size_t n,
                               int64_t channels, struct sh_err *err)
{
    if (n == 1 || (int64_t)n == channels)
        return SH_OK;
    return SH_FAIL(err, SH_E_INVALID,
                   "\"%s\" of \"%.64s\" has %zu numbers, and its pictures have %" PRId64
                   " channels",
                   what, p->input, n, channels);
}

int sh_preprocess_fits(const struct sh_preprocess *p, int64_t channels, struct sh_err *err)
{
    int rc = check_channel_count(p, "mean", p->n_mean, channels, err);

    return rc ? rc : check_channel_count(p, "std", p->n_std, channels, err);
}

void sh_preprocess_table(const struct sh_preprocess *p, size_t c,
                         float out[static SH_PREPROCESS_BYTES])
{
    const float by = (float)(1 / p->scale);
    const float mean = (float)p->mean[p->n_mean > 1 ? c : 0];
    const float std = (float)p->std[p->n_std > 1 ? c : 0];

    for (size_t x = 0; x < SH_PREPROCESS_BYTES; x++) {
        const float scaled = (float)x / by, moved = scaled - mean;

        out[x] = moved / std;
    }
}

static json_t *channel_numbers(const double *v, size_t n)
{
    json_t *list = json_array();
    bool ok = list;

    for (size_t i = 0; ok && i < n; i++)
        ok = json_array_append_new(list, json_real(v[i])) == 0;
    if (ok)
        return list;
    json_decref(list);
    return NULL;
}

json_t *sh_preprocess_json(const struct sh_preprocess *p, size_t n)
{
    json_t *all = json_object();
    bool ok = all;

    for (size_t i = 0; ok && i < n; i++) {
        json_t *one =
            json_pack("{s:s, s:f, s:o, s:o}", "layout", p[i].channels_last ? "NHWC" : "NCHW",
                      "scale", p[i].scale, "mean", channel_numbers(p[i].mean, p[i].n_mean), "std",
                      channel_numbers(p[i].std, p[i].n_std));

        ok = one && json_object_set_new(all, p[i].input, one) == 0;
    }
    if (ok)
        return all;
    json_decref(all);
    return NULL;
}

/* ------------------------------------------------------------------ as people type it */

static bool is_layout(const char *word)
{
    return strcasecmp(word, "nhwc") == 0 || strcasecmp(word, "nchw") == 0;
}

/* "imagenet,NCHW" behind the name of an input. NULL: it is not of that form. */
static json_t *typed_words(char *words)
{
    json_t *j = json_object();
    char *one;

    while (j && (one = strsep(&words, ","))) {
        const bool layout = is_layout(one);

        for (char *p = one; layout && *p; p++)
            *p = (char)(*p & ~0x20); /* a letter */
        if (!one[0] || json_object_get(j, layout ? "layout" : "preset") ||
            json_object_set_new(j, layout ? "layout" : "preset", json_string(one))) {
            json_decref(j);
            return NULL;
        }
    }
    return j;
}

/* One word, which stays as it is. NULL: it is not of the form, or the input has one. */
static json_t *read_typed_word(const char *word, const json_t *known, char **input)
{
    char *eq;

    *input = strdup(word);
    eq = *input ? strrchr(*input, '=') : NULL;
    if (!eq || eq == *input)
        return NULL;
    *eq = '\0';
    return json_object_get(known, *input) ? NULL : typed_words(eq + 1);
}

static int add_typed_word(json_t *to, const char *word, struct sh_err *err)
{
    char *input = NULL;
    json_t *j = read_typed_word(word, to, &input);
    int rc = SH_OK;

    if (!j || json_object_set_new(to, input, j))
        rc = SH_FAIL(err, SH_E_INVALID,
                     "\"%.60s\" is not INPUT=PRESET or INPUT=PRESET,LAYOUT, each input once; "
                     "presets are %s",
                     word, PRESET_NAMES);
    free(input);
    return rc;
}

int sh_preprocess_typed(const char *text, json_t **out, struct sh_err *err)
{
    static const char BLANKS[] = " \t\n";
    char *copy, *rest, *word;
    int rc = SH_OK;

    *out = NULL;
    if (text[strspn(text, BLANKS)] == '{')
        return sh_json_parse(text, strlen(text), SH_PREPROCESS_TEXT, out, err);
    rest = copy = strdup(text);
    *out = copy ? json_object() : NULL;
    if (!*out)
        rc = SH_FAIL(err, SH_E_NOMEM, "could not allocate what is declared");
    while (!rc && (word = strsep(&rest, BLANKS)))
        if (word[0])
            rc = add_typed_word(*out, word, err);
    free(copy);
    if (rc) {
        json_decref(*out);
        *out = NULL;
    }
    return rc;
}
