/* cpu_number.c - one element of a tensor, of any type, as a number. */
#include "common/half.h"
#include "common/mem.h"
#include "runtime/device/cpu/cpu.h"

#include <math.h>
#include <string.h>

/* clang-format off */
#define INTS(X)                                    \
    X(I8, int8_t, INT8_MIN, INT8_MAX)              \
    X(I16, int16_t, INT16_MIN, INT16_MAX)          \
    X(I32, int32_t, INT32_MIN, INT32_MAX)          \
    X(I64, int64_t, -0x1p63, 0x1.fffffffffffffp62) \
    X(U8, uint8_t, 0, UINT8_MAX)                   \
    X(U16, uint16_t, 0, UINT16_MAX)                \
    X(U32, uint32_t, 0, UINT32_MAX)                \
    X(U64, uint64_t, 0, 0x1.fffffffffffffp63)
/* clang-format on */

bool cpu__is_int(enum sh_dtype t)
{
    switch (t) {
    case SH_F32:
    case SH_F64:
    case SH_F16:
    case SH_BF16:
    case SH_BOOL:
        return false;
    default:
        return true;
    }
}

double cpu__load(enum sh_dtype t, const void *p, int64_t i)
{
    switch (t) {
#define X(name, type, lo, hi) \
    case SH_##name:           \
        return (double)((const type *)p)[i];
        INTS(X)
#undef X
    case SH_F32:
        return ((const float *)p)[i];
    case SH_F64:
        return ((const double *)p)[i];
    case SH_F16:
        return sh_f16_value(((const uint16_t *)p)[i]);
    case SH_BF16:
        return sh_bf16_value(((const uint16_t *)p)[i]);
    default:
        return ((const uint8_t *)p)[i] != 0;
    }
}

void cpu__store(enum sh_dtype t, void *p, int64_t i, double v)
{
    switch (t) {
#define X(name, type, lo, hi)                                                            \
    case SH_##name:                                                                      \
        ((type *)p)[i] = isnan(v) ? 0 : (type)fmin(fmax(v, (double)(lo)), (double)(hi)); \
        break;
        INTS(X)
#undef X
    case SH_F32:
        ((float *)p)[i] = (float)v;
        break;
    case SH_F64:
        ((double *)p)[i] = v;
        break;
    case SH_F16:
        ((uint16_t *)p)[i] = sh_f16_of(v);
        break;
    case SH_BF16:
        ((uint16_t *)p)[i] = sh_bf16_of((float)v);
        break;
    default:
        ((uint8_t *)p)[i] = v != 0;
    }
}

int64_t cpu__load_int(enum sh_dtype t, const void *p, int64_t i)
{
    switch (t) {
#define X(name, type, lo, hi) \
    case SH_##name:           \
        return (int64_t)((const type *)p)[i];
        INTS(X)
#undef X
    default:
        return ((const uint8_t *)p)[i] != 0;
    }
}

/* Little-endian hosts only: the low bytes are the element. */
void cpu__store_int(enum sh_dtype t, void *p, int64_t i, int64_t v)
{
    const size_t size = sh_dtype_bytes(t);

    memcpy((unsigned char *)p + (size_t)i * size, &v, size);
}
