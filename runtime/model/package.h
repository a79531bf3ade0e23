/* package.h - the trusted form of a model on disk, made once by shunt-import.
 *
 *   <package>/model.onnx           as uploaded, or written by training: an ONNX file, or a
 *                                  tar file of one and its data (onnx_source.h)
 *   <package>/graph.json           nodes, values, inputs, outputs (written last: the package is
 *   complete)
 *   <package>/weights.safetensors  initializers and constants, aligned to 64 bytes
 */
#ifndef SH_RUNTIME_MODEL_PACKAGE_H
#define SH_RUNTIME_MODEL_PACKAGE_H

#include "runtime/model/graph.h"

int package_write(const struct graph *g, const char *dir, struct sh_err *err);
/* Weights are mapped, not copied. Checked as strictly as an ONNX file.
 * *out: OWNED, graph_free(). */
int package_read(const char *dir, struct graph **out, struct sh_err *err);
/* The same from graph.json and weights.safetensors, which stay the caller's. */
int package_read_fds(int graph_json, int weights, struct graph **out, struct sh_err *err);

#endif
