/* onnx_untie.h - separates parameters that an exporter merged because they began with the same
 * numbers. */
#ifndef SH_RUNTIME_MODEL_ONNX_UNTIE_H
#define SH_RUNTIME_MODEL_ONNX_UNTIE_H

#include "runtime/model/onnx_file.h"
#include "runtime/model/param_kinds.h"

/* Exporters keep equal initializers once: all norms of a fresh model share a weight of ones. The
 * file does not say which modules share a parameter by design, so the numbers decide: an F32
 * initializer whose numbers are all equal (ones, zeros) becomes one for each use,
 * "NAME@OUTPUT:INPUT" after the node, except for the first use and for uses beside the same weight,
 * which belong to a module that is called again, or what both were called with is one parameter by
 * the newer exporter's note. Any other initializer that is used twice is meant
 * to be shared, since no two parameters are equal by chance. A file may show what was merged: where
 * it has all that its signature names, no parameters were; what was taken of some, as the elements
 * of a vector, the newer exporter notes at each use as it was called before (onnx_calls.h); and the
 * older one gives what it merged its name by an Identity, so that there each name is one parameter.
 * A buffer that was merged with a parameter has its name again where the newer exporter notes it.
 * The same file always gives the same names. *n: how many were added. Fails: SH_E_NOMEM, and as
 * onnx_tensor_take(). */
int onnx_untie(Onnx__ModelProto *m, struct onnx_source *source, const struct param_kinds *kinds,
               uint32_t *n, struct sh_err *err);

#endif
