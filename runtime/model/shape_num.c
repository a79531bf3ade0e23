/* shape_num.c - reading and writing the numbers of constants; walking over arrays. */
#include "common/half.h"
#include "common/mem.h"
#include "runtime/model/shape_int.h"

#include <math.h>
#include <stdlib.h>

bool shape__is_float(enum sh_dtype t)
{
    return t == SH_F32 || t == SH_F64 || t == SH_F16 || t == SH_BF16;
}

bool shape__is_int(enum sh_dtype t)
{
    return !shape__is_float(t) && t < SH_N_DTYPES;
}

#define INT_TYPES(X)   \
    X(SH_I8, int8_t)   \
    X(SH_I16, int16_t) \
    X(SH_I32, int32_t) \
    X(SH_I64, int64_t) X(SH_U8, uint8_t) X(SH_U16, uint16_t) X(SH_U32, uint32_t) X(SH_U64, uint64_t)

/* memcpy: data of a mapped file need not be aligned to its type. */
int64_t shape__get_i64(enum sh_dtype t, const void *data, size_t i)
{
    switch (t) {
#define X(name, type)                                              \
    case name: {                                                   \
        type v;                                                    \
        memcpy(&v, (const char *)data + i * sizeof(v), sizeof(v)); \
        return (int64_t)v;                                         \
    }
        INT_TYPES(X)
#undef X
    case SH_BOOL:
        return ((const uint8_t *)data)[i] != 0;
    default: {
        double f = shape__get_f64(t, data, i);

        if (isnan(f))
            return 0;
        return f >= 9.2e18 ? INT64_MAX : f <= -9.2e18 ? INT64_MIN : (int64_t)f;
    }
    }
}

double shape__get_f64(enum sh_dtype t, const void *data, size_t i)
{
    if (t == SH_F32) {
        float v;

        memcpy(&v, (const char *)data + i * sizeof(v), sizeof(v));
        return (double)v;
    }
    if (t == SH_F64) {
        double v;

        memcpy(&v, (const char *)data + i * sizeof(v), sizeof(v));
        return v;
    }
    if (t == SH_F16 || t == SH_BF16) {
        uint16_t bits;

        memcpy(&bits, (const char *)data + i * sizeof(bits), sizeof(bits));
        return t == SH_F16 ? sh_f16_value(bits) : (double)sh_bf16_value(bits);
    }
    return shape__is_int(t) ? (double)shape__get_i64(t, data, i) : NAN;
}

void shape__put_i64(enum sh_dtype t, void *data, size_t i, int64_t v)
{
    switch (t) {
#define X(name, type)                                        \
    case name: {                                             \
        type w = (type)v;                                    \
        memcpy((char *)data + i * sizeof(w), &w, sizeof(w)); \
        break;                                               \
    }
        INT_TYPES(X)
#undef X
    case SH_BOOL:
        ((uint8_t *)data)[i] = v != 0;
        break;
    default:
        shape__put_f64(t, data, i, (double)v);
    }
}

void shape__put_f64(enum sh_dtype t, void *data, size_t i, double v)
{
    if (t == SH_F32) {
        float f = (float)v;

        memcpy((char *)data + i * sizeof(f), &f, sizeof(f));
    } else if (t == SH_F64) {
        memcpy((char *)data + i * sizeof(v), &v, sizeof(v));
    } else if (t == SH_F16 || t == SH_BF16) {
        uint16_t bits = t == SH_F16 ? sh_f16_of(v) : sh_bf16_of((float)v);

        memcpy((char *)data + i * sizeof(bits), &bits, sizeof(bits));
    } else if (t == SH_BOOL) {
        ((uint8_t *)data)[i] = v != 0.0; /* a half is true, not a truncated zero */
    } else if (shape__is_int(t)) {
        shape__put_i64(t, data, i, shape__get_i64(SH_F64, &v, 0));
    }
}

void shape__step(struct shape_walk *w)
{
    for (int i = w->rank - 1; i >= 0; i--) {
        w->at[i]++;
        for (int j = 0; j < 3; j++)
            w->off[j] += w->stride[j] ? w->stride[j][i] : 0;
        if (w->at[i] < w->dims[i])
            return;
        for (int j = 0; j < 3; j++)
            w->off[j] -= w->stride[j] ? w->stride[j][i] * w->dims[i] : 0;
        w->at[i] = 0;
    }
}

void shape__strides(const struct graph_value *v, int64_t *out)
{
    int64_t n = 1;

    for (int i = v->rank - 1; i >= 0; i--) {
        out[i] = n;
        n *= v->dims[i];
    }
}

void shape__broadcast_strides(const struct graph_value *v, int rank, int64_t *out)
{
    int64_t own[SH_MAX_RANK];

    shape__strides(v, own);
    for (int i = 0; i < rank; i++) {
        int j = i - (rank - v->rank);

        out[i] = j < 0 || v->dims[j] == 1 ? 0 : own[j];
    }
}

void *shape__alloc(struct shape_ctx *c, uint32_t k)
{
    struct graph_value *v = shape__outv(c, k);
    size_t bytes = 0;

    if (c->err->rc || graph__bytes(v->dtype, v->rank, v->dims, &bytes, c->err))
        return NULL;
    v->data = malloc(bytes ? bytes : 1); /* NULL means "no constant", also for no elements */
    if (!v->data)
        SH_FAIL(c->err, SH_E_NOMEM, "could not allocate a constant of %zu bytes", bytes);
    else
        v->bytes = bytes;
    return v->data;
}
