/* onnx_source.h - the bytes of a model: of its ONNX file, and of the files that hold its tensors.
 *
 * A model comes as one file, as a file with others beside it (external data: onnx.h), or as a tar
 * file of all of them, uncompressed, which is how it is uploaded. All is mapped, nothing is copied.
 * Names are a stranger's: one that leaves the folder of the model is refused, and so are links.
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
 * SH_E_NOTFOUND, SH_E_INVALID (empty, no regular file, a tar file without a model or with more than
 * one), SH_E_TOOBIG, SH_E_IO. */
int onnx_source_open(const char *path, bool beside, struct onnx_source **out, struct sh_err *err);
void onnx_source_close(void *source); /* NULL is allowed; for graph's backing_free */
/* BORROWED until it is closed. */
const uint8_t *onnx_source_model(const struct onnx_source *s, size_t *bytes);
/* The whole file of that name beside the model in its tar file. False: there is none, or the model
 * came in another way. BORROWED until s is closed. */
bool onnx_source_packed(const struct onnx_source *s, const char *name, const uint8_t **data,
                        size_t *bytes);
/* Fails: SH_E_INVALID: the tar file has a safetensors file that nothing would take weights from: no
 * tensor names it, and it is not called `weights`. */
int onnx_source_refuse_loose(const struct onnx_source *s, const char *weights, struct sh_err *err);
/* The bytes [offset, offset + length) of the file that a tensor names; BORROWED until s is closed,
 * aligned to 1. length < 0: to its end. From one file no more is taken than it has: tensors that
 * overlap would make a small upload a large model. what: for messages, "initializer x". */
int onnx_source_take(struct onnx_source *s, const char *what, const char *location, int64_t offset,
                     int64_t length, const void **data, size_t *bytes, struct sh_err *err);
/* The same for who only looks at them, once in each of its walks: a take may follow. */
int onnx_source_look(struct onnx_source *s, const char *what, const char *location, int64_t offset,
                     int64_t length, const void **data, size_t *bytes, struct sh_err *err);
/* Another walk over the tensors begins, which may look at all of them. */
void onnx_source_walk(struct onnx_source *s);

#endif
