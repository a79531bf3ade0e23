/* onnx_pack.h - writes a model larger than an ONNX file can be as a tar file of two files: the
 * graph, and the data of its weights. onnx_source.h reads it. */
#ifndef SH_RUNTIME_MODEL_ONNX_PACK_H
#define SH_RUNTIME_MODEL_ONNX_PACK_H

#include "runtime/model/onnx_file.h"

/* m is unchanged afterwards, except for where its initializers say their data is. Atomic and
 * durable. */
int onnx_pack_save(const char *path, Onnx__ModelProto *m, struct sh_err *err);

#endif
