/* picture.h - JPEG and PNG as bytes of a given size, for `shunt infer` and `shunt push dataset`.
 *
 * What a file is, its first bytes say, not its name. All are strangers' files: sizes are checked
 * before memory is taken for them, and what is damaged is refused. Blocking; thread-safe.
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

/* As torchvision's Resize and CenterCrop have it (bilinear, antialiased). 0: as it is. */
struct picture_plan {
    int64_t resize;         /* first the shorter side to so many pixels */
    int64_t width, height;  /* then the middle of that size; without resize, the least picture that
                            * holds it if `covers` */
    bool covers, stretches; /* stretches: all of it to width x height instead */
};

/* p->channels says what is wanted: 3, or 1 for grey. Fails: SH_E_INVALID, SH_E_UNSUPPORTED,
 * SH_E_TOOBIG, SH_E_IO, each with the name of the file; then p->data is NULL. */
int picture_read(const char *path, struct picture *p, struct sh_err *err);
int picture_shape(struct picture *p, const struct picture_plan *plan, struct sh_err *err);
void picture_fini(struct picture *p);
/* The elements of all pixels, as [height, width, channels] or (planar) [channels, height, width].
 */
void picture_bytes(const struct picture *p, bool planar, uint8_t *out);

#endif
