/* onnx_untie.h - parameters that an exporter made one since they began with the same numbers. */
#ifndef SH_RUNTIME_MODEL_ONNX_UNTIE_H
#define SH_RUNTIME_MODEL_ONNX_UNTIE_H

#include "runtime/model/onnx_file.h"

/* Exporters keep equal initializers once: all norms of a fresh model share a weight of ones. Which
 * modules share a parameter by design the file does not say, so this goes by the numbers: an
 * initializer of F32 whose numbers are all the same (ones, zeros) becomes one for each use,
 * "NAME@OUTPUT:INPUT" after the node but for the first, and but for uses beside the same weight,
 * which are those of a module that is called again; anything else that is used twice is meant to
 * be, as no two parameters are equal by chance. The same file gives the same names each time.
 * *n: how many were made. Fails: SH_E_NOMEM, and as onnx_tensor_take. */
int onnx_untie(Onnx__ModelProto *m, struct onnx_source *source, uint32_t *n, struct sh_err *err);

#endif
