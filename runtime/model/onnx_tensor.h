/* onnx_tensor.h - converts data between TensorProto's five encodings and plain arrays. */
#ifndef SH_RUNTIME_MODEL_ONNX_TENSOR_H
#define SH_RUNTIME_MODEL_ONNX_TENSOR_H

#include "runtime/model/graph_int.h"
#include "runtime/model/onnx_file.h"

struct onnx_array {
    enum sh_dtype dtype;
    int rank;
    int64_t dims[SH_MAX_RANK];
    void *data; /* never NULL on success; OWNED, onnx_array_fini(), unless it is borrowed */
    size_t bytes;
    bool is_borrowed; /* from the model's source, until that is closed; read-only */
};
void onnx_array_fini(struct onnx_array *a); /* zeroed is allowed */

/* Takes raw data out of t instead of copying it, and external data from its file. what: for
 * messages, "initializer x". Fails: SH_E_INVALID (mismatched sizes, missing file), SH_E_UNSUPPORTED
 * (type), SH_E_TOOBIG. */
int onnx_tensor_take(Onnx__TensorProto *t, const char *what, struct onnx_source *source,
                     struct onnx_array *out, struct sh_err *err);
/* The same, but t keeps its data. */
int onnx_tensor_copy(const Onnx__TensorProto *t, const char *what, struct onnx_source *source,
                     struct onnx_array *out, struct sh_err *err);
/* Its data as in the file, unaligned; NULL: it is encoded differently, or does not match its shape,
 * which taking it reports. BORROWED until that, and until t is changed. */
const void *onnx_tensor_look(const Onnx__TensorProto *t, struct onnx_source *source);
/* Elements of a named tensor of F32, if there are at most so many; 0: it is none, or empty. */
size_t onnx_tensor_floats(const Onnx__TensorProto *t, size_t max);
/* Frees the data, in any encoding. */
void onnx_tensor_drop(Onnx__TensorProto *t);
/* From now on its data is bytes [offset, offset + length) of another file; frees what it had. */
int onnx_tensor_point(Onnx__TensorProto *t, const char *location, uint64_t offset, uint64_t length,
                      struct sh_err *err);
/* Do the numbers of t, a tensor of F32 whose data is given, stay the same along the axis? */
bool onnx_tensor_same_along(const Onnx__TensorProto *t, const uint8_t *data, size_t axis);
/* Moves its data to raw_data, from any encoding. */
int onnx_tensor_settle(Onnx__TensorProto *t, struct onnx_source *source, struct sh_err *err);
bool onnx_tensor_is_external(const Onnx__TensorProto *t);

#endif
