/* onnx_dims.h - shapes of the inputs of an ONNX file. */
#ifndef SH_RUNTIME_MODEL_ONNX_DIMS_H
#define SH_RUNTIME_MODEL_ONNX_DIMS_H

#include "onnx.pb-c.h"
#include "runtime/model/graph.h"

/* Reads the axes of input `in` of the file into dims[]. An axis without a fixed size is the batch
 * if it is the first, unless other axes share its name; else it is a symbol of g, found or added,
 * by default named INPUT.AXIS. Fails: SH_E_INVALID, SH_E_UNSUPPORTED. */
int onnx_dims_read(const Onnx__GraphProto *file, const Onnx__ValueInfoProto *in, struct graph *g,
                   int64_t dims[SH_MAX_RANK], struct sh_err *err);

#endif
