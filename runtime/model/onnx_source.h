/* onnx_source.h - the bytes of a model: of its ONNX file, and of the files with its tensors' data.
 *
 * A model is one file, a file with others beside it (external data: onnx.h), or an uncompressed tar
 * file of all of them, which is how it is uploaded. Everything is mapped, nothing copied. Names are
 * untrusted: one that leaves the model's folder is refused, and so are links.
 */
#ifndef SH_RUNTIME_MODEL_ONNX_SOURCE_H
#define SH_RUNTIME_MODEL_ONNX_SOURCE_H

#include "common/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define ONNX_SOURCE_MAX_FILES 65536u

struct onnx_source;

/* beside: may files in the folder of path be read? *out: OWNED, onnx_source_close(). Fails:
 * SH_E_NOTFOUND, SH_E_INVALID (empty, not a regular file, a tar file without or with several
 * models), SH_E_TOOBIG, SH_E_IO. */
int onnx_source_open(const char *path, bool beside, struct onnx_source **out, struct sh_err *err);
void onnx_source_close(void *source); /* NULL is allowed; for graph's backing_free */
/* BORROWED until s is closed. */
const uint8_t *onnx_source_model(const struct onnx_source *s, size_t *bytes);
/* The whole file with this name beside the model in its tar file. False: there is none, or the
 * model is not in a tar file. BORROWED until s is closed. */
bool onnx_source_packed(const struct onnx_source *s, const char *name, const uint8_t **data,
                        size_t *bytes);
/* Fails: SH_E_INVALID: the tar file has a safetensors file that nothing uses: no tensor names it,
 * and it is not called `weights`; or SH_EXTERNAL_PREPROCESS_FILE, not beside the model. */
int onnx_source_refuse_loose(const struct onnx_source *s, const char *weights, struct sh_err *err);
/* Bytes [offset, offset + length) of the file that a tensor names; BORROWED until s is closed,
 * unaligned. length < 0: to the end. No more is taken from a file than it has: overlapping tensors
 * would make a large model of a small upload. what: for messages, "initializer x". */
int onnx_source_take(struct onnx_source *s, const char *what, const char *location, int64_t offset,
                     int64_t length, const void **data, size_t *bytes, struct sh_err *err);
/* The same for looking only, once in each walk; a take may follow. */
int onnx_source_look(struct onnx_source *s, const char *what, const char *location, int64_t offset,
                     int64_t length, const void **data, size_t *bytes, struct sh_err *err);
/* Begins another walk over the tensors, which may look at all of them. */
void onnx_source_walk(struct onnx_source *s);

#endif
