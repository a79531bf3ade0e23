/* onnx_tensor.h - data between TensorProto's five encodings and plain arrays. */
#ifndef SH_EXECUTOR_MODEL_ONNX_TENSOR_H
#define SH_EXECUTOR_MODEL_ONNX_TENSOR_H

#include "executor/model/graph_int.h"
#include "executor/model/onnx_file.h"

struct onnx_array {
    enum sh_dtype dtype;
    int rank;
    int64_t dims[SH_MAX_RANK];
    void *data; /* OWNED, free(); never NULL on success */
    size_t bytes;
};

/* Takes raw data out of t instead of copying it. what: for messages, "initializer x".
 * Fails: SH_E_INVALID (sizes that do not match), SH_E_UNSUPPORTED (type, external data),
 * SH_E_TOOBIG. */
int onnx_tensor_take(Onnx__TensorProto *t, const char *what, struct onnx_array *out,
                     struct sh_err *err);

#endif
