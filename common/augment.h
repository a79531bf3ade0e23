/* augment.h - changes to the pictures (and tokens) of a dataset before a model sees them.
 *
 * A picture is a sample of three axes: [channels, height, width], or channels last if that axis is
 * 1 or 3 and the first is not. It is stored as FP32, or as UINT8, whose values stand for 255ths, as
 * in `shunt infer --image`.
 */
#ifndef SH_COMMON_AUGMENT_H
#define SH_COMMON_AUGMENT_H

#include "common/dtype.h"
#include "common/field.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define AUGMENT_CHANNELS 3

#define AUGMENT_MAX_SPECIAL 16u
#define AUGMENT_NAME 128u /* bytes of a tensor's name, with its NUL */

/* X(end of the enum's name, word), with SEP between two of them. */
#define AUGMENT_KINDS(X, SEP) \
    X(NORMALISE, "normalise") \
    SEP X(CROP, "crop") SEP X(FLIP, "flip") SEP X(MIXUP, "mixup") SEP X(TOKENS, "mask-tokens")
#define AUGMENT_WORD(id, word) word
enum augment_kind {
#define X(id, word) AUGMENT_##id,
    AUGMENT_KINDS(X, )
#undef X
        AUGMENT_N_KINDS
};
extern const struct sh_fields AUGMENT_FIELDS[AUGMENT_N_KINDS]; /* one for each kind */

struct augment { /* zeroed: nothing */
    bool normalises;
    double mean[AUGMENT_CHANNELS], std[AUGMENT_CHANNELS]; /* a grey picture uses the first */

    /* The rest is random, and for training only. */
    int64_t crop_padding; /* pixels */
    double flip, mixup;   /* probability; alpha of the beta distribution */
    struct {
        char input[AUGMENT_NAME], labels[AUGMENT_NAME]; /* input "": none */
        double probability;
        int64_t mask, vocabulary, special[AUGMENT_MAX_SPECIAL];
        size_t n_special;
    } tokens;
};

/* Refuses unknown and duplicate members; all faults go to err->faults. */
int augment_read(const json_t *list, struct augment *out, struct sh_err *err);

/* Without the random parts. */
struct augment augment_fixed(const struct augment *a);
/* Does anything apply to pictures? */
bool augment_has_pictures(const struct augment *a);
/* Do labels of this name come from the masked tokens, and not from the dataset? */
bool augment_makes_labels(const struct augment *a, const char *labels);
/* The share of a sample itself in a step's mixture, from Beta(alpha, alpha); 1: all. */
double augment_mix(const struct augment *a, uint64_t seed, int64_t step);

/* May an input of the model with this type and rank (batch included) be a picture? */
bool augment_is_picture(enum sh_dtype t, size_t rank);
/* The axis of the channels. dims: including the batch. */
uint32_t augment_channels(const int64_t dims[static 4]);
/* Does it fit this input? dims: including the batch; below 1: unknown. Fails: SH_E_INVALID. */
int augment_check(const struct augment *a, const char *input, const int64_t dims[static 4],
                  struct sh_err *err);
/* The same for an input of bytes, which the model itself makes floats of (common/preprocess.h). */
int augment_check_bytes(const struct augment *a, const char *input, const int64_t dims[static 4],
                        bool channels_last, struct sh_err *err);
/* An element of channel c is multiplied by *scale, then *shift is added. */
void augment_scale(const struct augment *a, bool is_byte, size_t c, double *scale, double *shift);
/* Converts a sample, UINT8 or FP32 at any address, to what the model takes, without the random
 * parts. dims: including the batch. */
void augment_sample(const struct augment *a, const int64_t dims[static 4], bool is_byte,
                    const void *in, float *out);

#endif
