/* inputs.h - reads the inputs of `shunt infer` from a user's files: safetensors, NumPy, JSON, a
 * picture.
 *
 * The first bytes of a file tell what it is, not its name. All files are untrusted: sizes are
 * checked against the file and INPUTS_MAX_BYTES before memory is allocated. Blocks; not
 * thread-safe.
 */
#ifndef SH_CLI_DATA_INPUTS_H
#define SH_CLI_DATA_INPUTS_H

#include "cli/data/picture.h"
#include "cli/data/tensors.h"

#define INPUTS_MAX_BYTES ((size_t)4 << 30) /* one tensor in memory */
#define INPUTS_MAX_JSON ((size_t)32 << 20)

/* files: FILE, or NAME=FILE,NAME=FILE, each with the tensor of one input (NumPy). wanted: "inputs"
 * of the model's metadata. Fails: SH_E_INVALID, SH_E_TOOBIG, SH_E_UNSUPPORTED, saying what to
 * do. */
int inputs_from_files(const char *files, const json_t *wanted, struct tensors *out,
                      struct sh_err *err);

/* numpy.c: .npy, versions 1 to 3, little-endian, in C order. *out has no name; out->own is
 * OWNED. */
int npy_read(const char *path, struct tensor *out, struct sh_err *err);
/* The same for file_bytes bytes from `from` on: sets type and shape, and *at, the offset of its
 * elements. path: for messages. */
int npy_find(int fd, const char *path, uint64_t from, int64_t file_bytes, struct tensor *out,
             uint64_t *at, struct sh_err *err);

/* values.c: the body of POST /v2/.../infer, an object {"NAME": nested lists}, or the nested lists
 * of a model with one input. Numbers become what the model takes; one that does not fit is
 * refused. */
int values_read(const char *path, const json_t *wanted, struct tensors *out, struct sh_err *err);

/* image.c: a JPEG or PNG becomes one row, as with torchvision's ToTensor and Normalize: resized as
 * requested, scaled to 0..1, minus mean, divided by std. A UINT8 input gets 0..255 unchanged. */
struct image_plan {
    struct picture_plan shape;
    double mean[3], std[3];
    bool scales, is_last; /* mean or std was given; channels are the last axis */
};
/* Does the model's only input have its channels as the last axis? */
bool image_is_last(const json_t *wanted);
/* An example of picture options that fit these inputs. */
void image_hint(const json_t *wanted, char *out, size_t size);
int image_read(const char *path, const struct image_plan *plan, const json_t *wanted,
               struct tensors *out, struct sh_err *err);
/* "0.485,0.456,0.406", or one number for all three. what: "mean". Fails: SH_E_INVALID. */
int image_numbers(const char *text, const char *what, double out[static 3], struct sh_err *err);

#endif
