/* onnx_shared.h - constants that an exporter took of one parameter at several places. */
#ifndef SH_RUNTIME_MODEL_ONNX_SHARED_H
#define SH_RUNTIME_MODEL_ONNX_SHARED_H

#include "runtime/model/onnx_file.h"
#include "runtime/model/param_kinds.h"

/* Windows of two sizes may share a table of distances, of which PyTorch's newer exporter writes
 * what each takes: table[near] and table[far]. Trained, they would go different ways. So of
 * constants of which it says that they are of one parameter, and no other,
 *   - one whose rows, along any axis, are all among those of the parameter itself, or of another
 *     one, is taken from that;
 *   - those that have some rows in common are taken from one table, which has the rows of all of
 *     them (onnx_union.h);
 *   - one that has some of another's numbers, though no rows, and more than chance would give, is
 *     called "NAME@factor" (onnx_again.h), and training is refused until somebody says what it is.
 * Numbers that a formula gives, zeros too, prove nothing. Runs after the steps that find whole
 * parameters and tables of rows (onnx_tie.h, onnx_rows.h). What has more than 2^20 numbers is not
 * searched for single ones. The same file always gives the same names. Fails: SH_E_NOMEM,
 * SH_E_TOOBIG. */
int onnx_shared(Onnx__ModelProto *m, struct onnx_source *source, const struct param_kinds *kinds,
                struct sh_err *err);

#endif
