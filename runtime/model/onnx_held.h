/* onnx_held.h - what detach() held. An ONNX file has no detach(): of x.detach() + y it has x + y.
 * PyTorch's newer exporter writes the call beside the node, as (%detach, %y), so that the use of x
 * is known for one without a gradient: it reads an Identity with GRAPH_HELD then. */
#ifndef SH_RUNTIME_MODEL_ONNX_HELD_H
#define SH_RUNTIME_MODEL_ONNX_HELD_H

#include "runtime/model/graph.h"
#include "runtime/model/onnx_file.h"

int onnx_held(Onnx__ModelProto *m, struct sh_err *err);

#endif
