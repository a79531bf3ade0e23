/* dtype.h - element types and their names in ONNX, safetensors and the inference protocol. */
#ifndef SH_COMMON_DTYPE_H
#define SH_COMMON_DTYPE_H

#include <stddef.h>
#include <stdint.h>

#define SH_MAX_RANK 8

#define SH_DTYPE_MAP(X)                                         \
    /* name bytes safetensors /v2 onnx(TensorProto.DataType) */ \
    X(F32, 4, "F32", "FP32", 1)                                 \
    X(F64, 8, "F64", "FP64", 11)                                \
    X(F16, 2, "F16", "FP16", 10)                                \
    X(BF16, 2, "BF16", "BF16", 16)                              \
    X(I8, 1, "I8", "INT8", 3)                                   \
    X(I16, 2, "I16", "INT16", 5)                                \
    X(I32, 4, "I32", "INT32", 6)                                \
    X(I64, 8, "I64", "INT64", 7)                                \
    X(U8, 1, "U8", "UINT8", 2)                                  \
    X(U16, 2, "U16", "UINT16", 4)                               \
    X(U32, 4, "U32", "UINT32", 12)                              \
    X(U64, 8, "U64", "UINT64", 13)                              \
    X(BOOL, 1, "BOOL", "BOOL", 9)

enum sh_dtype {
#define X(name, bytes, st, v2, onnx) SH_##name,
    SH_DTYPE_MAP(X)
#undef X
        SH_N_DTYPES
};

size_t sh_dtype_bytes(enum sh_dtype t);
const char *sh_dtype_st(enum sh_dtype t); /* safetensors' name */
const char *sh_dtype_v2(enum sh_dtype t); /* the inference protocol's name */
int sh_dtype_onnx(enum sh_dtype t);
/* Inverse; SH_N_DTYPES if unknown. */
enum sh_dtype sh_dtype_from_st(const char *name);
enum sh_dtype sh_dtype_from_v2(const char *name);
enum sh_dtype sh_dtype_from_onnx(int onnx);

#endif
