/* onnx_live.h - forgets what gave a computed constant its shape alone. */
#ifndef SH_RUNTIME_MODEL_ONNX_LIVE_H
#define SH_RUNTIME_MODEL_ONNX_LIVE_H

#include "common/err.h"
#include "runtime/model/onnx_file.h"

/* PyTorch's newer exporter lists what it computed a constant of: "['amax', 'bi.weight', 'val_17']".
 * What it folds has constants for inputs, but for the Shape or Size of a value, which needs no
 * numbers. So a name that is of an input of the graph, or that a node of it still gives, is no
 * constant, and gave its shape alone: no number of the constant was computed of it. Such names
 * leave the lists. No parameter and no buffer does, since each of these is an initializer or not
 * there. Fails: SH_E_NOMEM. */
int onnx_live(Onnx__ModelProto *m, struct sh_err *err);

#endif
