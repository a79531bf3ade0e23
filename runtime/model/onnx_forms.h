/* onnx_forms.h - restores parameters of which an exporter wrote only a function. */
#ifndef SH_RUNTIME_MODEL_ONNX_FORMS_H
#define SH_RUNTIME_MODEL_ONNX_FORMS_H

#include "runtime/model/onnx_file.h"
#include "runtime/model/param_kinds.h"

/* PyTorch's newer exporter computes what hangs on parameters alone: exp(log_scale), -exp(A_log),
 * sigmoid(gate), softmax(weights), a weight times its mask. Trained as what it became, the result
 * goes other ways: a scale may fall below 0, and what was hidden comes back. The exporter says what
 * it computed a constant from, so
 *   - where functions of one parameter can be undone (param_forms.h), the parameter comes back
 *     under its name, or NAME@CONSTANT where another form has it, and nodes compute the constant;
 *   - where a parameter was multiplied by a buffer and the file has both, they are multiplied;
 *   - where the buffer is called a mask and zeros came out, or one side of a diagonal was taken,
 *     the parameter comes back likewise, and what is 0 stays so;
 *   - what was expanded from one number, or from what the file has, is expanded from that again;
 *   - where numbers of parameters are there several times, some of them negated, NAME@numbers has
 *     each once; and
 *   - where single numbers were taken from a softmax, and they are all of a row, that comes back.
 * The older exporter says nothing: a weight without a name, many of whose numbers are 0, has a
 * mask, and one whose numbers have a sum of 1 along an axis is a softmax, of a parameter that is
 * called "MatMul_30.logits" then. A bound between (exp(p).clamp(max=100)) is in no file, so that a
 * number that it does not hold is trained without; *n_unbounded: how many. The same file always
 * gives the same names. Fails: SH_E_NOMEM, SH_E_TOOBIG. */
int onnx_forms(Onnx__ModelProto *m, struct onnx_source *source, const struct param_kinds *kinds,
               uint32_t *n_unbounded, struct sh_err *err);

#endif
