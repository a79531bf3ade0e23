/* onnx_moved.h - restores parameters that an exporter wrote in several orders of their axes. */
#ifndef SH_RUNTIME_MODEL_ONNX_MOVED_H
#define SH_RUNTIME_MODEL_ONNX_MOVED_H

#include "runtime/model/onnx_file.h"
#include "runtime/model/param_kinds.h"

/* PyTorch's newer exporter computes what is done to parameters alone, each use by itself: queries
 * that are learned are in the file as [1, n, d] for what is added to them, and as [n, 1, d] for an
 * attention. Training would change them separately. So where the file says that constants are all
 * of one parameter, moved, and their numbers are the same ones, also as a matrix that is turned,
 * those behind the first become a Reshape of it; of the parameter itself, if the file has it.
 * Fails: SH_E_NOMEM, SH_E_TOOBIG. */
int onnx_moved(Onnx__ModelProto *m, struct onnx_source *source, const struct param_kinds *kinds,
               struct sh_err *err);

#endif
