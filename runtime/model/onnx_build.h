/* onnx_build.h - initializers of a file become what nodes make of others, before it is read. */
#ifndef SH_RUNTIME_MODEL_ONNX_BUILD_H
#define SH_RUNTIME_MODEL_ONNX_BUILD_H

#include "runtime/model/graph.h"
#include "runtime/model/onnx_file.h"

struct onnx_build {
    Onnx__GraphProto *g;
    Onnx__NodeProto **nodes;                /* OWNED until they are in the graph */
    size_t n_nodes, nodes_cap, cap, n_file; /* cap: of initializers; n_file: those of the file */
    bool *gone;                             /* of the file's: nodes make them now; OWNED */
    struct sh_err *err;
};

int onnx_build_init(struct onnx_build *b, Onnx__GraphProto *g, struct sh_err *err);
/* TAKES name and data, and frees them where it fails. */
int onnx_build_tensor(struct onnx_build *b, char *name, enum sh_dtype dtype, const int64_t *dims,
                      size_t n_dims, void *data, size_t bytes);
/* out = op(x), or op(x, y); axis: an attribute, 0: none. */
int onnx_build_node(struct onnx_build *b, const char *op, const char *x, const char *y,
                    const char *out, int64_t axis);
/* The node has an attribute of that name, which is 1. */
int onnx_build_mark(Onnx__NodeProto *n, const char *name, struct sh_err *err);
/* t = op(of, the axes of t), of Expand or Reshape. */
int onnx_build_shaped(struct onnx_build *b, const char *op, const char *of,
                      const Onnx__TensorProto *t);
/* Initializer i of the file becomes those of `of` at n places along the axis; out: what these are
 * called, NULL: as it. TAKES index. */
int onnx_build_places(struct onnx_build *b, uint32_t i, const char *out, const char *of,
                      int64_t axis, int64_t *index, size_t n);
/* It keeps its n F32 numbers, under a name by which training it is refused (onnx_again.h). */
int onnx_build_refused(struct onnx_build *b, uint32_t i, const void *data, size_t n);
/* The new nodes come before all others: files have nodes in the order of their use. What is gone
 * leaves the graph. */
int onnx_build_finish(struct onnx_build *b);
void onnx_build_fini(struct onnx_build *b); /* zeroed is allowed */

#endif
