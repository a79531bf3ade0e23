/* number.c - see number.h. */
#include "cli/data/number.h"

#include "common/half.h"

#include <math.h>
#include <string.h>

#define F16_MAX 65504.0

bool number_is_float(enum sh_dtype t)
{
    return t == SH_F32 || t == SH_F64 || t == SH_F16 || t == SH_BF16;
}

static bool put_float(enum sh_dtype t, char *at, double v)
{
    float f = (float)v;
    uint16_t h = t == SH_F16 ? sh_f16_of(v) : sh_bf16_of(f);

    if (isfinite(v) && (t == SH_F16    ? fabs(v) >= F16_MAX + 16
                        : t == SH_BF16 ? !isfinite(sh_bf16_value(h))
                        : t == SH_F32  ? !isfinite(f)
                                       : false))
        return false;
    if (t == SH_F64)
        memcpy(at, &v, sizeof(v));
    else if (t == SH_F32)
        memcpy(at, &f, sizeof(f));
    else
        memcpy(at, &h, sizeof(h));
    return true;
}

bool number_put_int(enum sh_dtype t, void *data, size_t i, int64_t v)
{
    static const struct {
        int64_t min, max;
    } RANGE[SH_N_DTYPES] = {
        [SH_I8] = {INT8_MIN, INT8_MAX},
        [SH_I16] = {INT16_MIN, INT16_MAX},
        [SH_I32] = {INT32_MIN, INT32_MAX},
        [SH_I64] = {INT64_MIN, INT64_MAX},
        [SH_U8] = {0, UINT8_MAX},
        [SH_U16] = {0, UINT16_MAX},
        [SH_U32] = {0, UINT32_MAX},
        [SH_U64] = {0, INT64_MAX},
        [SH_BOOL] = {0, 1},
    };
    size_t bytes = sh_dtype_bytes(t);

    if (number_is_float(t))
        return number_put(t, data, i, (double)v);
    if (v < RANGE[t].min || v > RANGE[t].max)
        return false;
    memcpy((char *)data + i * bytes, &v, bytes); /* little-endian, as the protocol's */
    return true;
}

bool number_put(enum sh_dtype t, void *data, size_t i, double v)
{
    if (number_is_float(t))
        return put_float(t, (char *)data + i * sh_dtype_bytes(t), v);
    if (v != trunc(v) || fabs(v) > 0x1p63 - 1024)
        return false;
    return number_put_int(t, data, i, (int64_t)v);
}

double number_get(enum sh_dtype t, const void *data, size_t i)
{
    size_t bytes = sh_dtype_bytes(t);
    const char *at = (const char *)data + i * bytes;
    uint64_t bits = 0;
    double d;
    float f;

    memcpy(&bits, at, bytes);
    switch (t) {
    case SH_F64:
        memcpy(&d, at, sizeof(d));
        return d;
    case SH_F32:
        memcpy(&f, at, sizeof(f));
        return (double)f;
    case SH_F16:
        return sh_f16_value((uint16_t)bits);
    case SH_BF16:
        return (double)sh_bf16_value((uint16_t)bits);
    case SH_I8:
        return (int8_t)bits;
    case SH_I16:
        return (int16_t)bits;
    case SH_I32:
        return (int32_t)bits;
    case SH_I64:
        return (double)(int64_t)bits;
    default:
        return (double)bits;
    }
}
