/* onnx_file.h - an ONNX file as protobuf messages.
 *
 * The bytes are untrusted: they are walked once under limits (depth, number of messages and nodes,
 * text) before protobuf-c, which has no limits, sees them.
 */
#ifndef SH_RUNTIME_MODEL_ONNX_FILE_H
#define SH_RUNTIME_MODEL_ONNX_FILE_H

#include "common/err.h"
#include "onnx.pb-c.h"
#include "runtime/model/onnx_source.h"

#include <stdio.h>

/* *out: OWNED, onnx_file_free(); *source: OWNED, onnx_source_close(), from which its tensors' data
 * is taken. Fails: SH_E_INVALID, SH_E_TOOBIG, SH_E_IO, SH_E_NOTFOUND. */
int onnx_file_load(const char *path, bool beside, struct onnx_source **source,
                   Onnx__ModelProto **out, struct sh_err *err);
void onnx_file_free(Onnx__ModelProto *m);
/* Writes a message; atomic and durable. */
int onnx_file_save(const char *path, const Onnx__ModelProto *m, struct sh_err *err);
/* An error is left in the stream. */
void onnx_file_put(FILE *f, const Onnx__ModelProto *m);
/* The version of the standard operators; 0: not in the list. Fails: SH_E_INVALID (named
 * twice), SH_E_UNSUPPORTED. */
int onnx_file_opset(Onnx__OperatorSetIdProto *const *list, size_t n, int64_t *out,
                    struct sh_err *err);
/* The same for a model, which must name it. */
int onnx_file_model_opset(const Onnx__ModelProto *m, int64_t *out, struct sh_err *err);

#endif
