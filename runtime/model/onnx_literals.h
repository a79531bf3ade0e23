/* onnx_literals.h - parameters that are one number, and what an exporter made of them because of
 * its value. */
#ifndef SH_RUNTIME_MODEL_ONNX_LITERALS_H
#define SH_RUNTIME_MODEL_ONNX_LITERALS_H

#include "runtime/model/onnx_file.h"
#include "runtime/model/param_kinds.h"

/* Exporters keep equal initializers once: a parameter that is one number, 0.1 or 1, or what was
 * computed of it, -0.1, and the same number in the code, which does not learn. PyTorch's newer
 * exporter notes at each node what it was called with. Where that is not the parameter, and all of
 * it is known, the node gets a constant of its own, "val_NAME@OUTPUT:INPUT". The same file always
 * gives the same names. Fails: SH_E_NOMEM. */
int onnx_literals(Onnx__ModelProto *m, struct onnx_source *source, const struct param_kinds *kinds,
                  struct sh_err *err);

#define ONNX_LEFT_OUT 96
/* A factor of 1 and a term of 0 are left out, with what they were computed of: a temperature as it
 * was made. out: the name of such a parameter; "": there is none. The signature names it; it is
 * not in the file, and not of a module that has layers of which none is there, which was not run;
 * nothing was computed of it, and it was not merged with one of equal numbers; and some node was
 * called with a sum or product that no node gives any more. Or exp(a) and exp(b) + 1e-9, which
 * begin as ones, were merged: nodes that have the same constant, computed of a parameter, were
 * called with several names. It may be exp(a) twice, and b unused; the file does not say. */
int onnx_left_out(Onnx__ModelProto *m, const struct param_kinds *kinds,
                  char out[static ONNX_LEFT_OUT], struct sh_err *err);

#endif
