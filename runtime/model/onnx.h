/* onnx.h - read and write ONNX files (opset 1 to 23). The only user of protobuf-c in the product's
 * model code. A file is hostile until read: runs in shunt-import or shunt-run, under limits. */
#ifndef SH_RUNTIME_MODEL_ONNX_H
#define SH_RUNTIME_MODEL_ONNX_H

#include "runtime/model/graph.h"

#define ONNX_MAX_FILE_BYTES ((size_t)2 << 30) /* protobuf's own limit */

/* path: an ONNX file, with the data of its tensors in it or in files beside it ("external data":
 * PyTorch's exporter writes m.onnx and m.onnx.data; a safetensors file will do), or a tar file of
 * all of them. *out: OWNED. Fails: SH_E_INVALID (truncated, not ONNX, cyclic, sizes that do not
 * match, data that are not there; says what and where), SH_E_TOOBIG, SH_E_UNSUPPORTED (opset,
 * control flow, custom domain; lists every such node). */
int onnx_read(const char *path, struct graph **out, struct sh_err *err);
/* The same; beside: may files beside it be read? On SH_E_UNSUPPORTED *list (OWNED, free(); NULL
 * otherwise) holds a line "operator node-name: reason" for each such node; the message names the
 * first. */
int onnx_read_list(const char *path, bool beside, struct graph **out, char **list,
                   struct sh_err *err);
/* Writes g, in the form of a reader or a builder (not of graph_at_batch), as opset 18; atomic. */
int onnx_write(const struct graph *g, const char *path, struct sh_err *err);
/* Copies an ONNX file (or a tar file of one and its data) with initializers replaced by the tensors
 * of the same names in a safetensors file (a trained state); BatchNormalization and Dropout go to
 * inference form. Tensors of the state that are no initializer are ignored; an initializer without
 * a tensor stays. What would have more bytes than an ONNX file can have becomes a tar file of
 * model.onnx and model.onnx.data. */
int onnx_export(const char *onnx_in, const char *state, const char *onnx_out, struct sh_err *err);

#endif
