/* onnx_tie.h - parameters that an exporter wrote twice although the model has them once. */
#ifndef SH_RUNTIME_MODEL_ONNX_TIE_H
#define SH_RUNTIME_MODEL_ONNX_TIE_H

#include "runtime/model/onnx_file.h"

/* Exporters turn the weights of products beforehand, each use by itself: the table of words that is
 * also the last product (GPT-2, BERT's language model) is in the file as it is and once more
 * turned, and a layer that is used twelve times (ALBERT) has twelve weights. Training changes them
 * apart. So a matrix of F32, or a bias of recurrent layers, that has the numbers of another becomes
 * an Identity or a Transpose of that one, if
 *   - one is a table of which rows are taken, and the other weighs a product, or
 *   - both weigh products, or recurrent layers, of the same module, as the file's metadata say, or
 *   - it is the other one turned, and only one of them has a name of a module, or none has and they
 *     do not both weigh products.
 * Axes of size 1 beside the two do not matter.
 * Others stay: layers that were copied, and a decoder that began as its encoder turned, begin with
 * the same numbers and are trained apart.
 * Fails: SH_E_NOMEM, SH_E_TOOBIG. */
int onnx_tie(Onnx__ModelProto *m, struct onnx_source *source, struct sh_err *err);

#endif
