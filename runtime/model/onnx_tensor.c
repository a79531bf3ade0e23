/* onnx_tensor.c - the data of one tensor. */
#include "runtime/model/onnx_tensor.h"

#include "common/mem.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

static int read_onnx_shape(const Onnx__TensorProto *t, const char *what, struct onnx_array *a,
                           struct sh_err *err)
{
    struct sh_err local = {0};
    int rc;

    a->dtype = sh_dtype_from_onnx(t->data_type);
    if (a->dtype >= SH_N_DTYPES)
        return SH_FAIL(err, SH_E_UNSUPPORTED, WHY_ELEMENTS, what, t->data_type);
    if (t->n_dims > SH_MAX_RANK)
        return SH_FAIL(err, SH_E_UNSUPPORTED, WHY_TENSOR_AXES, what, t->n_dims, SH_MAX_RANK);
    a->rank = (int)t->n_dims;
    for (int i = 0; i < a->rank; i++)
        a->dims[i] = t->dims[i];
    rc = graph__bytes(a->dtype, a->rank, a->dims, &a->bytes, &local);
    return rc ? SH_FAIL(err, rc, "%s: %s", what, local.msg) : SH_OK;
}

/* The typed field that holds elements of this type, by ONNX's table. */
static size_t typed_count(const Onnx__TensorProto *t, enum sh_dtype type)
{
    switch (type) {
    case SH_F32:
        return t->n_float_data;
    case SH_F64:
        return t->n_double_data;
    case SH_I64:
        return t->n_int64_data;
    case SH_U32:
    case SH_U64:
        return t->n_uint64_data;
    default:
        return t->n_int32_data;
    }
}

static void copy_typed(const Onnx__TensorProto *t, enum sh_dtype type, void *data, size_t n)
{
    switch (type) {
    case SH_F32:
        memcpy(data, t->float_data, n * sizeof(float));
        return;
    case SH_F64:
        memcpy(data, t->double_data, n * sizeof(double));
        return;
    case SH_I64:
        memcpy(data, t->int64_data, n * sizeof(int64_t));
        return;
    case SH_U64:
        memcpy(data, t->uint64_data, n * sizeof(uint64_t));
        return;
    default:
        break;
    }
    /* Little-endian hosts only: the low bytes of each number are the element. */
    for (size_t i = 0; i < n; i++) {
        size_t size = sh_dtype_bytes(type);

        if (type == SH_U32)
            memcpy((char *)data + i * size, &t->uint64_data[i], size);
        else
            memcpy((char *)data + i * size, &t->int32_data[i], size);
    }
}

static int take_raw(Onnx__TensorProto *t, const char *what, struct onnx_array *a,
                    struct sh_err *err)
{
    if (t->raw_data.len != a->bytes)
        return SH_FAIL(err, SH_E_INVALID, "%s has %zu bytes of data, its shape needs %zu", what,
                       t->raw_data.len, a->bytes);
    if (a->bytes == 0)
        return SH_OK; /* protobuf-c may have kept no memory at all */
    a->data = t->raw_data.data;
    t->raw_data.data = NULL;
    t->raw_data.len = 0;
    return SH_OK;
}

/* ---------------------------------------------------------------- data in other files */

bool onnx_tensor_is_external(const Onnx__TensorProto *t)
{
    return t->has_data_location && t->data_location == ONNX__TENSOR_PROTO__DATA_LOCATION__EXTERNAL;
}

struct external {
    const char *location;
    int64_t offset, length; /* length < 0: to the end of the file */
};

/* Keys that ONNX does not know, and its checksum, are passed over. */
static int read_external(const Onnx__TensorProto *t, const char *what, struct external *e,
                         struct sh_err *err)
{
    *e = (struct external){.length = -1};
    for (size_t i = 0; i < t->n_external_data; i++) {
        const Onnx__StringStringEntryProto *s = t->external_data[i];
        const char *key = s->key ? s->key : "", *value = s->value ? s->value : "";
        int64_t *number = strcmp(key, "offset") == 0   ? &e->offset
                          : strcmp(key, "length") == 0 ? &e->length
                                                       : NULL;

        if (strcmp(key, "location") == 0)
            e->location = value;
        if (number && sh_parse_i64(value, 0, INT64_MAX, key, number, NULL))
            return SH_FAIL(err, SH_E_INVALID, "%s lies in another file, but its %s is no number",
                           what, key);
    }
    if (!e->location)
        return SH_FAIL(err, SH_E_INVALID, "%s lies in another file, but none is named", what);
    return SH_OK;
}

/* Used where it lies, unless it is not aligned or must be changed. */
static int take_external(const Onnx__TensorProto *t, const char *what, struct onnx_source *source,
                         struct onnx_array *a, struct sh_err *err)
{
    struct external e;
    const void *data = NULL;
    size_t bytes = 0;
    int rc = read_external(t, what, &e, err);

    if (!rc)
        rc = onnx_source_take(source, what, e.location, e.offset, e.length, &data, &bytes, err);
    if (rc)
        return rc;
    if (bytes != a->bytes && (e.length >= 0 || bytes < a->bytes))
        return SH_FAIL(err, SH_E_INVALID, "%s has %zu bytes of data, its shape needs %zu", what,
                       bytes, a->bytes);
    if ((uintptr_t)data % sh_dtype_bytes(a->dtype) == 0 && a->dtype != SH_BOOL) {
        a->data = (void *)(uintptr_t)data;
        a->is_borrowed = true;
        return SH_OK;
    }
    a->data = malloc(a->bytes ? a->bytes : 1);
    if (!a->data)
        return SH_FAIL(err, SH_E_NOMEM, "could not allocate %zu bytes for %s", a->bytes, what);
    memcpy(a->data, data, a->bytes);
    return SH_OK;
}

/* ---------------------------------------------------------------- all */

void onnx_array_fini(struct onnx_array *a)
{
    if (!a->is_borrowed)
        free(a->data);
    *a = (struct onnx_array){0};
}

static int take_own(Onnx__TensorProto *t, const char *what, struct onnx_array *out,
                    struct sh_err *err)
{
    size_t n = out->bytes / sh_dtype_bytes(out->dtype);
    int rc = SH_OK;

    if (t->has_raw_data)
        rc = take_raw(t, what, out, err);
    else if (typed_count(t, out->dtype) != n)
        rc = SH_FAIL(err, SH_E_INVALID, "%s has %zu numbers, its shape needs %zu", what,
                     typed_count(t, out->dtype), n);
    if (rc || out->data)
        return rc;
    out->data = malloc(out->bytes ? out->bytes : 1);
    if (!out->data)
        return SH_FAIL(err, SH_E_NOMEM, "could not allocate %zu bytes for %s", out->bytes, what);
    if (n > 0)
        copy_typed(t, out->dtype, out->data, n);
    return SH_OK;
}

int onnx_tensor_take(Onnx__TensorProto *t, const char *what, struct onnx_source *source,
                     struct onnx_array *out, struct sh_err *err)
{
    int rc;

    memset(out, 0, sizeof(*out));
    if (t->segment)
        return SH_FAIL(err, SH_E_UNSUPPORTED, WHY_SEGMENTS, what);
    rc = read_onnx_shape(t, what, out, err);
    if (!rc)
        rc = onnx_tensor_is_external(t) ? take_external(t, what, source, out, err)
                                        : take_own(t, what, out, err);
    if (rc) {
        onnx_array_fini(out);
        return rc;
    }
    for (size_t i = 0; out->dtype == SH_BOOL && i < out->bytes; i++) /* true is 1, always */
        ((uint8_t *)out->data)[i] = ((uint8_t *)out->data)[i] != 0;
    return SH_OK;
}

int onnx_tensor_copy(const Onnx__TensorProto *t, const char *what, struct onnx_source *source,
                     struct onnx_array *out, struct sh_err *err)
{
    Onnx__TensorProto other = *t;
    int rc;

    other.raw_data.data = NULL;
    if (t->has_raw_data && t->raw_data.len) {
        uint8_t *raw = malloc(t->raw_data.len);
        if (!raw)
            return SH_FAIL(err, SH_E_NOMEM, "could not allocate %zu bytes for %s", t->raw_data.len,
                           what);
        memcpy(raw, t->raw_data.data, t->raw_data.len);
        other.raw_data.data = raw;
    }
    rc = onnx_tensor_take(&other, what, source, out, err);
    free(other.raw_data.data); /* NULL if it was taken */
    return rc;
}

const void *onnx_tensor_look(const Onnx__TensorProto *t, struct onnx_source *source)
{
    struct onnx_array a = {0};
    struct external e;
    const void *data = NULL;
    size_t bytes = 0;

    if (t->segment || read_onnx_shape(t, "", &a, NULL) != SH_OK)
        return NULL;
    if (!onnx_tensor_is_external(t))
        return t->has_raw_data && t->raw_data.len == a.bytes ? t->raw_data.data : NULL;
    if (read_external(t, "", &e, NULL) != SH_OK ||
        onnx_source_look(source, "", e.location, e.offset, e.length, &data, &bytes, NULL) != SH_OK)
        return NULL;
    return bytes >= a.bytes ? data : NULL;
}

static void drop_external(Onnx__TensorProto *t)
{
    for (size_t i = 0; i < t->n_external_data; i++)
        onnx__string_string_entry_proto__free_unpacked(t->external_data[i], NULL);
    free(t->external_data);
    t->external_data = NULL;
    t->n_external_data = 0;
    t->has_data_location = 0;
}

size_t onnx_tensor_floats(const Onnx__TensorProto *t, size_t max)
{
    size_t n = 1;

    if (t->data_type != sh_dtype_onnx(SH_F32) || t->n_dims > SH_MAX_RANK || !t->name || !t->name[0])
        return 0;
    for (size_t i = 0; i < t->n_dims; i++)
        if (t->dims[i] < 1 || __builtin_mul_overflow(n, (size_t)t->dims[i], &n) || n > max)
            return 0;
    return n;
}

void onnx_tensor_drop(Onnx__TensorProto *t)
{
    drop_external(t);
    free(t->raw_data.data);
    free(t->float_data);
    free(t->double_data);
    free(t->int32_data);
    free(t->int64_data);
    free(t->uint64_data);
    t->raw_data = (ProtobufCBinaryData){0, NULL};
    t->has_raw_data = 0;
    t->float_data = NULL;
    t->double_data = NULL;
    t->int32_data = NULL;
    t->int64_data = NULL;
    t->uint64_data = NULL;
    t->n_float_data = t->n_double_data = t->n_int32_data = t->n_int64_data = t->n_uint64_data = 0;
}

static int add_external_entry(Onnx__TensorProto *t, const char *key, const char *value,
                              struct sh_err *err)
{
    Onnx__StringStringEntryProto *e = malloc(sizeof(*e));
    int rc;

    if (!e)
        return SH_FAIL(err, SH_E_NOMEM, "could not allocate the place of a tensor");
    onnx__string_string_entry_proto__init(e);
    t->external_data[t->n_external_data++] = e;
    rc = sh_strdup(key, &e->key, err);
    return rc ? rc : sh_strdup(value, &e->value, err);
}

int onnx_tensor_point(Onnx__TensorProto *t, const char *location, uint64_t offset, uint64_t length,
                      struct sh_err *err)
{
    char at[24], bytes[24];
    int rc;

    onnx_tensor_drop(t);
    snprintf(at, sizeof(at), "%" PRIu64, offset);
    snprintf(bytes, sizeof(bytes), "%" PRIu64, length);
    t->external_data = calloc(3, sizeof(*t->external_data));
    if (!t->external_data)
        return SH_FAIL(err, SH_E_NOMEM, "could not allocate the place of a tensor");
    rc = add_external_entry(t, "location", location, err);
    if (!rc)
        rc = add_external_entry(t, "offset", at, err);
    if (!rc)
        rc = add_external_entry(t, "length", bytes, err);
    if (rc)
        return rc;
    t->has_data_location = 1;
    t->data_location = ONNX__TENSOR_PROTO__DATA_LOCATION__EXTERNAL;
    return SH_OK;
}

int onnx_tensor_settle(Onnx__TensorProto *t, struct onnx_source *source, struct sh_err *err)
{
    struct onnx_array a = {0};
    char what[160], name[128];
    int rc;

    snprintf(what, sizeof(what), "initializer %s",
             graph__clean(t->name ? t->name : "", name, sizeof(name)));
    rc = onnx_tensor_take(t, what, source, &a, err);
    if (rc)
        return rc;
    if (a.is_borrowed) {
        void *copy = malloc(a.bytes + 1);

        if (!copy)
            return SH_FAIL(err, SH_E_NOMEM, "could not allocate %zu bytes for %s", a.bytes, what);
        memcpy(copy, a.data, a.bytes);
        a.data = copy;
    }
    onnx_tensor_drop(t);
    t->has_raw_data = 1;
    t->raw_data.data = a.data;
    t->raw_data.len = a.bytes;
    return SH_OK;
}

bool onnx_tensor_same_along(const Onnx__TensorProto *t, const uint8_t *data, size_t axis)
{
    size_t inner = sizeof(float), blocks = 1;
    bool same = true;

    for (size_t k = axis + 1; k < t->n_dims; k++)
        inner *= (size_t)t->dims[k];
    for (size_t k = 0; k < axis; k++)
        blocks *= (size_t)t->dims[k];
    for (size_t b = 0; b < blocks && same; b++)
        for (size_t k = 1; k < (size_t)t->dims[axis] && same; k++) {
            const uint8_t *first = data + b * (size_t)t->dims[axis] * inner;

            same = memcmp(first, first + k * inner, inner) == 0;
        }
    return same;
}
