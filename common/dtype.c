/* dtype.c - element types and their names elsewhere. */
#include "common/dtype.h"

#include <string.h>

static const struct dtype_row {
    size_t bytes;
    const char *st, *v2;
    int onnx;
} ROWS[SH_N_DTYPES] = {
#define X(name, size, st_name, v2_name, onnx_no) [SH_##name] = {size, st_name, v2_name, onnx_no},
    SH_DTYPE_MAP(X)
#undef X
};

static const struct dtype_row NONE = {.bytes = 0, .st = "?", .v2 = "?", .onnx = 0};

static const struct dtype_row *row(enum sh_dtype t)
{
    return (unsigned)t < SH_N_DTYPES ? &ROWS[t] : &NONE;
}

size_t sh_dtype_bytes(enum sh_dtype t)
{
    return row(t)->bytes;
}

const char *sh_dtype_st(enum sh_dtype t)
{
    return row(t)->st;
}

const char *sh_dtype_v2(enum sh_dtype t)
{
    return row(t)->v2;
}

int sh_dtype_onnx(enum sh_dtype t)
{
    return row(t)->onnx;
}

enum sh_dtype sh_dtype_from_st(const char *name)
{
    for (unsigned i = 0; i < SH_N_DTYPES; i++)
        if (strcmp(ROWS[i].st, name) == 0)
            return (enum sh_dtype)i;
    return SH_N_DTYPES;
}

enum sh_dtype sh_dtype_from_v2(const char *name)
{
    for (unsigned i = 0; i < SH_N_DTYPES; i++)
        if (strcmp(ROWS[i].v2, name) == 0)
            return (enum sh_dtype)i;
    return SH_N_DTYPES;
}

enum sh_dtype sh_dtype_from_onnx(int onnx)
{
    for (unsigned i = 0; i < SH_N_DTYPES; i++)
        if (ROWS[i].onnx == onnx)
            return (enum sh_dtype)i;
    return SH_N_DTYPES;
}
