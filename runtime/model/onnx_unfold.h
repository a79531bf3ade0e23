/* onnx_unfold.h - restores norms that an exporter folded into the weights of convolutions, and zero
 * biases that it left out. */
#ifndef SH_RUNTIME_MODEL_ONNX_UNFOLD_H
#define SH_RUNTIME_MODEL_ONNX_UNFOLD_H

#include "runtime/model/onnx_file.h"

/* By default torch.onnx.export writes no BatchNormalization after convolutions: it multiplies the
 * weights by what the norm would do, and the node's metadata says so. For requests that is the
 * same, but training without norms is different. The parameters of a norm are lost, unless it was
 * new. Then its mean and bias were zeros; so the convolution has no bias, or a bias with the
 * numbers of PyTorch's nn.Conv, which fill the range 1 / sqrt(inputs) and stay within it. Such a
 * norm divided by sqrt(1 + epsilon): the weights become what they were, and the norm returns under
 * the names of its module. A zero bias, common at the start, is left out too, as the metadata also
 * says; it returns as well. *back: how many norms returned; *lost: others, which train as part of
 * the weights. Fails: SH_E_NOMEM, SH_E_TOOBIG, and as onnx_tensor_take(). */
int onnx_unfold(Onnx__ModelProto *m, struct onnx_source *source, uint32_t *back, uint32_t *lost,
                struct sh_err *err);

#endif
