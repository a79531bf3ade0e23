/* onnx_inner.h - says of a constant without a name what a call did to it. */
#ifndef SH_RUNTIME_MODEL_ONNX_INNER_H
#define SH_RUNTIME_MODEL_ONNX_INNER_H

#include "common/err.h"
#include "runtime/model/onnx_file.h"

/* PyTorch's newer exporter writes some calls as several operations, and names what it computed of
 * their constants by a number, whatever it did: "val_1" of "['p']" is p transposed in a product,
 * exp(p) in logaddexp(x, p), and 0.3 p in add(x, p, alpha=0.3). The node that reads it has the
 * call. So the list of such a constant gets a name for what it is in this call: "t@inner" where
 * numbers only moved, "exp@inner" as well for logaddexp, and "mul@inner" where a call scaled it or
 * computed something else that cannot be undone. Of other calls nothing is added. Fails:
 * SH_E_NOMEM. */
int onnx_inner(Onnx__ModelProto *m, struct sh_err *err);

#endif
