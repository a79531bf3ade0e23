/* preprocess.h - pictures that requests bring as bytes, and what a device makes of them.
 *
 * Whoever pushes a model may declare this for inputs of it. As JSON, by the names of the inputs:
 *
 *   {"image": "imagenet"}
 *   {"image": {"preset": "imagenet", "layout": "NCHW"}}
 *   {"image": {"layout": "NHWC", "scale": 0.00392156862745098, "mean": [0.5], "std": 0.25}}
 *
 * The input is UINT8 then, in that layout, and a pixel of channel c becomes
 *
 *   (x * scale - mean[c]) / std[c]
 *
 * in FP32, rounded after each of the three steps, of which the first divides by 1 / scale: what
 * NumPy and torchvision compute of x / 255. As there are 256 bytes, this is a table. Pure.
 */
#ifndef SH_COMMON_PREPROCESS_H
#define SH_COMMON_PREPROCESS_H

#include "common/json.h"

#include <stddef.h>

#define SH_PREPROCESS_TEXT 4096u    /* bytes of the JSON */
#define SH_PREPROCESS_INPUTS 16u    /* of a model */
#define SH_PREPROCESS_CHANNELS 16u  /* of a picture */
#define SH_PREPROCESS_BYTES 256u    /* numbers of a table for one channel */
#define SH_PREPROCESS_INPUT_MAX 255 /* bytes of a name */

struct sh_preprocess { /* of one input */
    const char *input; /* BORROWED from the JSON */
    bool channels_last;
    double scale;
    double mean[SH_PREPROCESS_CHANNELS], std[SH_PREPROCESS_CHANNELS];
    size_t n_mean, n_std; /* 1: the same for all channels */
};

/* Refuses unknown members; every fault is recorded. *n: how many. Fails: SH_E_INVALID. */
int sh_preprocess_read(const json_t *j, struct sh_preprocess out[static SH_PREPROCESS_INPUTS],
                       size_t *n, struct sh_err *err);
/* Do mean and std fit a picture of so many channels? Fails: SH_E_INVALID. */
int sh_preprocess_fits(const struct sh_preprocess *p, int64_t channels, struct sh_err *err);
/* What the bytes of channel c become. */
void sh_preprocess_table(const struct sh_preprocess *p, size_t c,
                         float out[static SH_PREPROCESS_BYTES]);
/* With nothing left to a default. OWNED; NULL: no memory. */
json_t *sh_preprocess_json(const struct sh_preprocess *p, size_t n);

/* What people type: such JSON, or "image=imagenet depth=unit,NCHW", a preset, a layout or both
 * behind the name of each input. *out: OWNED, not checked. Fails: SH_E_INVALID. */
int sh_preprocess_typed(const char *text, json_t **out, struct sh_err *err);

#endif
