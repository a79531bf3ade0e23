/* onnx_tie.h - restores parameters that an exporter wrote twice although the model has them
 * once. */
#ifndef SH_RUNTIME_MODEL_ONNX_TIE_H
#define SH_RUNTIME_MODEL_ONNX_TIE_H

#include "runtime/model/onnx_file.h"

/* Exporters transpose the weights of products in advance, each use separately: a word table that is
 * also the last product (GPT-2, BERT's language model) is in the file as it is and again
 * transposed, and a layer used twelve times (ALBERT) has twelve weights. Training would change them
 * separately. So an F32 matrix, or a bias of recurrent layers, with the numbers of another becomes
 * an Identity or a Transpose of that one, if
 *   - one is a table from which rows are taken, and the other weights a product, or
 *   - both weight products, or recurrent layers, of the same module, according to the file's
 *   metadata, or
 *   - it is the transposed other one, and only one of them has a module's name, or neither has and
 *     they do not both weight products.
 * Axes of size 1 besides the two do not matter. Others stay: copied layers, and a decoder that
 * began as its transposed encoder, begin with the same numbers and are trained separately. Fails:
 * SH_E_NOMEM, SH_E_TOOBIG. */
int onnx_tie(Onnx__ModelProto *m, struct onnx_source *source, struct sh_err *err);

#endif
