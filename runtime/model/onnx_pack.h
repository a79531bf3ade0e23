/* onnx_pack.h - a model that is larger than an ONNX file can be, as a tar file of two: the graph,
 * and the data of its weights. onnx_source.h reads it. */
#ifndef SH_RUNTIME_MODEL_ONNX_PACK_H
#define SH_RUNTIME_MODEL_ONNX_PACK_H

#include "runtime/model/onnx_file.h"

/* m is as before afterwards, but for the way in which its initializers say where their data are.
 * Atomic and durable. */
int onnx_pack_save(const char *path, Onnx__ModelProto *m, struct sh_err *err);

#endif
