/* onnx_sums.h - restores two parameters of which an exporter wrote only the sum. */
#ifndef SH_RUNTIME_MODEL_ONNX_SUMS_H
#define SH_RUNTIME_MODEL_ONNX_SUMS_H

#include "runtime/model/onnx_file.h"
#include "runtime/model/onnx_source.h"
#include "runtime/model/param_kinds.h"

/* The place of a patch may be learned as that of its row and of its column, and an exporter adds
 * them in advance: [rows, columns, channels] or [rows * columns, channels]. Trained as what it
 * became, each place would go its own way. Where the numbers are such a sum, rows and columns
 * become parameters again, which nodes add: however the two shared the numbers before, each step
 * changes the sum in the same way. The newer exporter has to say that it added two parameters, "a"
 * and "b", which become "a@CONSTANT" and "b@CONSTANT"; of the older one "onnx::Add_7" becomes
 * "Add_7.rows" and "Add_7.columns". The same file always gives the same names. Fails: SH_E_NOMEM,
 * SH_E_TOOBIG. */
int onnx_sums(Onnx__ModelProto *m, struct onnx_source *source, const struct param_kinds *kinds,
              struct sh_err *err);

#endif
