/* onnx_weights.h - takes the values of a graph's initializers, by name, from a safetensors file.
 *
 * A tar file may have SH_EXTERNAL_WEIGHTS (common/external.h) beside its model. Each tensor of that
 * file replaces the values of the initializer with the same name.
 */
#ifndef SH_RUNTIME_MODEL_ONNX_WEIGHTS_H
#define SH_RUNTIME_MODEL_ONNX_WEIGHTS_H

#include "runtime/model/onnx_file.h"

/* Does nothing if the source has no such file. Initializers that the file lacks keep their values.
 * F16 and BF16 tensors are widened for F32 initializers; the others stay in the file and are read
 * from there. Counters named num_batches_tracked are ignored if the graph does not have them.
 * Fails: SH_E_INVALID (the file is damaged, a name that the graph does not have, another shape or
 * type, an initializer that has values nowhere), SH_E_UNSUPPORTED, SH_E_TOOBIG, SH_E_NOMEM. */
int onnx_weights_bind(Onnx__ModelProto *m, const struct onnx_source *source, struct sh_err *err);

#endif
