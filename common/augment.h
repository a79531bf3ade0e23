/* augment.h - what is done to the pictures of a dataset before a model sees them.
 *
 * A picture is a sample of three axes: [channels, height, width], or with the channels last where
 * they are 1 or 3 and those of the first axis are not. It is stored as FP32, or as UINT8: then each
 * of its bytes counts as a 255th, as `shunt infer --image` has it too.
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
#define AUGMENT_NAME 128u /* bytes of a tensor's name, with its end */

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
extern const struct sh_fields AUGMENT_FIELDS[AUGMENT_N_KINDS]; /* of each kind */

struct augment { /* zeroed: nothing */
    bool normalises;
    double mean[AUGMENT_CHANNELS], std[AUGMENT_CHANNELS]; /* of a grey picture the first */

    /* What follows is random, and of training alone. */
    int64_t crop_padding; /* pixels */
    double flip, mixup;   /* probability; alpha of the beta distribution */
    struct {
        char input[AUGMENT_NAME], labels[AUGMENT_NAME]; /* input "": none */
        double probability;
        int64_t mask, vocabulary, special[AUGMENT_MAX_SPECIAL];
        size_t n_special;
    } tokens;
};

/* Unknown and double members are refused; all that is wrong is among err->faults. */
int augment_read(const json_t *list, struct augment *out, struct sh_err *err);

/* Without what is random. */
struct augment augment_fixed(const struct augment *a);
/* Is there anything that is for pictures? */
bool augment_has_pictures(const struct augment *a);
/* Do labels of this name come from the masked tokens, and not from the dataset? */
bool augment_makes_labels(const struct augment *a, const char *labels);
/* The part that a sample has of its own in a step's mixture, of Beta(alpha, alpha); 1: all. */
double augment_mix(const struct augment *a, uint64_t seed, int64_t step);

/* May the model's input of this type and rank, the batch included, be fed with pictures? */
bool augment_is_picture(enum sh_dtype t, size_t rank);
/* The axis of the channels. dims: with the batch. */
uint32_t augment_channels(const int64_t dims[static 4]);
/* Does it fit this input? dims: with the batch; below 1: not known. Fails: SH_E_INVALID. */
int augment_check(const struct augment *a, const char *input, const int64_t dims[static 4],
                  struct sh_err *err);
/* What an element of channel c is multiplied with, and what is added then. */
void augment_scale(const struct augment *a, bool is_byte, size_t c, double *scale, double *shift);
/* A sample of UINT8, or of FP32 at any address, as the model takes it, without what is random.
 * dims: with the batch. */
void augment_sample(const struct augment *a, const int64_t dims[static 4], bool is_byte,
                    const void *in, float *out);

#endif
