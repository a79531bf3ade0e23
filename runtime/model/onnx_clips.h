/* onnx_clips.h - bounds that are parameters. */
#ifndef SH_RUNTIME_MODEL_ONNX_CLIPS_H
#define SH_RUNTIME_MODEL_ONNX_CLIPS_H

#include "runtime/model/onnx_file.h"
#include "runtime/model/param_kinds.h"

/* Of clamp(x, -t, t) exporters make a Clip with constants of their own, "linear_max", which says
 * nothing of t. So a bound of a Clip that is a number of the module becomes Max or Min with that
 * number: in a file of PyTorch's older exporter, which leaves numbers of the code to other nodes,
 * and of the newer one where the call that the node came of has a parameter there, which comes back
 * under its name, or where the other bound is its negative. Any other bound that the code has not,
 * while a parameter is missing, may have been computed of that: it is called "NAME@factor", and
 * training is refused until somebody says what it is (onnx_again.h). The same file always gives the
 * same names. Fails: SH_E_NOMEM. */
int onnx_clips(Onnx__ModelProto *m, struct onnx_source *source, const struct param_kinds *kinds,
               struct sh_err *err);

#endif
