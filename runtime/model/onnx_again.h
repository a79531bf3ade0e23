/* onnx_again.h - restores what an exporter computed of parameters that the file has as well. */
#ifndef SH_RUNTIME_MODEL_ONNX_AGAIN_H
#define SH_RUNTIME_MODEL_ONNX_AGAIN_H

#include "runtime/model/onnx_file.h"
#include "runtime/model/param_kinds.h"

#define ONNX_FACTOR "factor"

/* A parameter that is used twice may be in the file as it is, and again in what an exporter
 * computed of it: the leak of a cell, and 1 - leak. Trained, they would go different ways. So a
 * constant t whose numbers are exactly
 *   - a * p + b of another one, with numbers a and b that people write, or any if there are many
 *     numbers;
 *   - exp(p) or another function, the sum of all of p, a vector p along another axis, or one number
 *     of a vector p or its negative;
 *   - the squares of a matrix p, summed up along an axis, or the length of p, where the file says
 *     what it was made of; or
 *   - p * q, p + q or p - q
 * is computed by nodes from then on. If a file says nothing, the factor a may be another parameter:
 * unless it is 1, 2, a half or below 0 one of these, it gets the name "val_CONSTANT@factor", and
 * whoever trains the model has to say what it is. p and q are what the newer exporter says that it
 * computed t of; where a file says nothing, they are those with a name of a module. Round numbers
 * prove nothing; but a single one that people write is taken for the negative of the only parameter
 * that has it in a file of the older exporter. *n_guessed: how many such were matched there. The
 * same file always gives the same names. Fails: SH_E_NOMEM, SH_E_TOOBIG. */
int onnx_again(Onnx__ModelProto *m, struct onnx_source *source, const struct param_kinds *kinds,
               uint32_t *n_guessed, struct sh_err *err);

#endif
