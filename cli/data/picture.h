/* picture.h - JPEG and PNG as bytes of a given size, for `shunt infer` and `shunt push dataset`.
 *
 * The first bytes of a file tell what it is, not its name. All files are untrusted: sizes are
 * checked before memory is allocated, and damaged files are refused. Blocks; thread-safe.
 */
#ifndef SH_CLI_DATA_PICTURE_H
#define SH_CLI_DATA_PICTURE_H

#include "common/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define PICTURE_MAX_SIDE 20000
#define PICTURE_MAX_PIXELS ((size_t)50 << 20)

struct picture { /* rows of pixels, RGB or grey */
    size_t width, height, channels;
    uint8_t *data; /* OWNED */
};

/* As torchvision's Resize and CenterCrop (bilinear, antialiased). 0: unchanged. */
struct picture_plan {
    int64_t resize;         /* first resizes the shorter side to so many pixels */
    int64_t width, height;  /* then crops to the middle of this size; without resize and with
                            * `covers`, first resizes to the smallest picture that holds it */
    bool covers, stretches; /* stretches: scales all of it to width x height instead */
};

/* p->channels: the channels wanted, 3, or 1 for grey. Fails: SH_E_INVALID, SH_E_UNSUPPORTED,
 * SH_E_TOOBIG, SH_E_IO, naming the file; p->data is then NULL. */
int picture_read(const char *path, struct picture *p, struct sh_err *err);
int picture_shape(struct picture *p, const struct picture_plan *plan, struct sh_err *err);
void picture_fini(struct picture *p);
/* Copies all pixels as [height, width, channels] or, if planar, [channels, height, width]. */
void picture_bytes(const struct picture *p, bool planar, uint8_t *out);

#endif
