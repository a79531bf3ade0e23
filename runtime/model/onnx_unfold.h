/* onnx_unfold.h - norms that an exporter put into the weights of convolutions, and biases of zeros
 * that it left out. */
#ifndef SH_RUNTIME_MODEL_ONNX_UNFOLD_H
#define SH_RUNTIME_MODEL_ONNX_UNFOLD_H

#include "runtime/model/onnx_file.h"

/* What torch.onnx.export writes without an option has no BatchNormalization behind convolutions:
 * the weights were multiplied with what the norm would do, and the metadata of the node say so. For
 * requests that is the same; training without norms is something else. What a norm was is lost, but
 * for one that was new. There its mean and bias were zeros, so that the convolution has no bias, or
 * it has one and all its numbers are those of PyTorch's nn.Conv: they fill the range
 * 1 / sqrt(inputs) and do not leave it. Such a norm divided by sqrt(1 + epsilon); the weights
 * become what they were and the norm is there again, by the names that its module has. A bias of
 * zeros, as many begin with, is left out too, which the metadata say as well: it comes back.
 * *back: how many such norms; *lost: others, which train as part of the weights. Fails: SH_E_NOMEM,
 * SH_E_TOOBIG, and as onnx_tensor_take. */
int onnx_unfold(Onnx__ModelProto *m, struct onnx_source *source, uint32_t *back, uint32_t *lost,
                struct sh_err *err);

#endif
