/* onnx.h - reads and writes ONNX files (opset 1 to 23). The product's only user of protobuf-c for
 * models. A file is untrusted, so it is read in shunt-import or shunt-run, under limits. */
#ifndef SH_RUNTIME_MODEL_ONNX_H
#define SH_RUNTIME_MODEL_ONNX_H

#include "runtime/model/graph.h"

#define ONNX_MAX_FILE_BYTES ((size_t)2 << 30) /* protobuf's own limit */

/* path: an ONNX file, with its tensors' data in it or in files beside it ("external data":
 * PyTorch's exporter writes m.onnx and m.onnx.data; a safetensors file is accepted too), or a tar
 * file of all of them. *out: OWNED. Fails: SH_E_INVALID (truncated, not ONNX, cyclic, mismatched
 * sizes, missing data; says what and where), SH_E_TOOBIG, SH_E_UNSUPPORTED (opset, control flow,
 * custom domain; lists every such node). */
int onnx_read(const char *path, struct graph **out, struct sh_err *err);
/* The same; beside: may files beside it be read? On SH_E_UNSUPPORTED *list (OWNED, free(); else
 * NULL) holds a line "operator node-name: reason" for each such node; the message names the
 * first. */
int onnx_read_list(const char *path, bool beside, struct graph **out, char **list,
                   struct sh_err *err);
/* Writes g, as made by a reader or a builder (not by graph_at_batch), as opset 18. Atomic. */
int onnx_write(const struct graph *g, const char *path, struct sh_err *err);
/* Copies an ONNX file (or a tar file of one and its data), replacing initializers by the tensors of
 * the same names in a safetensors file (a trained state); BatchNormalization and Dropout take
 * inference form. Tensors of the state that are not initializers are ignored; an initializer
 * without a tensor stays. A result larger than an ONNX file can be becomes a tar file of model.onnx
 * and model.onnx.data. */
int onnx_export(const char *onnx_in, const char *state, const char *onnx_out, struct sh_err *err);

#endif
