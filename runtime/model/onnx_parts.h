/* onnx_parts.h - parts of one parameter that lie in each other. */
#ifndef SH_RUNTIME_MODEL_ONNX_PARTS_H
#define SH_RUNTIME_MODEL_ONNX_PARTS_H

#include "runtime/model/onnx_file.h"
#include "runtime/model/param_kinds.h"

/* Two sentences may share a table of places, of which an exporter writes what each needs:
 * pos[:, :9] and pos[:, :6]. Trained, they would go different ways. So a constant whose numbers are
 * those of another one from some place on, along one axis, is taken from that: of PyTorch's newer
 * exporter if it says that both are of one parameter, of the older one if no formula gives the
 * numbers. Where two of one parameter only overlap, onnx_shared.h says what they are. Equal
 * numbers prove nothing. The same file always gives the same names. Fails: SH_E_NOMEM. */
int onnx_parts(Onnx__ModelProto *m, struct onnx_source *source, const struct param_kinds *kinds,
               struct sh_err *err);

#endif
