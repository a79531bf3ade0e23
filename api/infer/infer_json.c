/* infer_json.c - tensors as JSON numbers, and the JSON part of a reply. */
#include "api/infer/infer_plan.h"
#include "common/buf.h"
#include "common/mem.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

struct writer {
    const struct cat_tensor *t;
    char *dst;
    size_t n, done;
};

static int wrong(const struct writer *w, const char *want, struct sh_err *err)
{
    return SH_FAIL(err, SH_E_INVALID, "input \"%s\": element %zu of \"data\" must be %s",
                   w->t->name, w->done, want);
}

static int put_integer(struct writer *w, const json_t *j, struct sh_err *err)
{
    static const struct {
        int64_t min, max;
    } RANGE[SH_N_DTYPES] = {
        [SH_I8] = {INT8_MIN, INT8_MAX},    [SH_I16] = {INT16_MIN, INT16_MAX},
        [SH_I32] = {INT32_MIN, INT32_MAX}, [SH_I64] = {INT64_MIN, INT64_MAX},
        [SH_U8] = {0, UINT8_MAX},          [SH_U16] = {0, UINT16_MAX},
        [SH_U32] = {0, UINT32_MAX},        [SH_U64] = {0, INT64_MAX},
    };
    size_t bytes = sh_dtype_bytes(w->t->dtype);
    int64_t v = json_integer_value(j);

    if (!json_is_integer(j) || v < RANGE[w->t->dtype].min || v > RANGE[w->t->dtype].max)
        return wrong(w, "a whole number that fits its datatype", err);
    /* Little-endian two's complement: the low bytes are the narrower number. */
    memcpy(w->dst + w->done * bytes, &v, bytes);
    return SH_OK;
}

static int put_one(struct writer *w, const json_t *j, struct sh_err *err)
{
    float f;
    double d;

    if (w->done == w->n)
        return SH_FAIL(err, SH_E_INVALID,
                       "input \"%s\": \"data\" has more than the %zu elements "
                       "of its shape",
                       w->t->name, w->n);
    switch (w->t->dtype) {
    case SH_F32:
        if (!json_is_number(j))
            return wrong(w, "a number", err);
        f = (float)json_number_value(j);
        if (!isfinite(f))
            return wrong(w, "a number that fits FP32", err);
        memcpy(w->dst + w->done * sizeof(f), &f, sizeof(f));
        return SH_OK;
    case SH_F64:
        if (!json_is_number(j))
            return wrong(w, "a number", err);
        d = json_number_value(j);
        memcpy(w->dst + w->done * sizeof(d), &d, sizeof(d));
        return SH_OK;
    case SH_BOOL:
        if (!json_is_boolean(j) && !(json_is_integer(j) && (uint64_t)json_integer_value(j) <= 1))
            return wrong(w, "true or false", err);
        w->dst[w->done] = json_is_true(j) || json_integer_value(j) == 1;
        return SH_OK;
    case SH_F16:
    case SH_BF16:
        return SH_FAIL(err, SH_E_UNSUPPORTED,
                       "input \"%s\": %s has no JSON form; send it as binary data", w->t->name,
                       sh_dtype_v2(w->t->dtype));
    default:
        return put_integer(w, j, err);
    }
}

/* Depth is limited by the parser. */
static int put_numbers(struct writer *w, const json_t *j, struct sh_err *err)
{
    int rc = SH_OK;

    for (size_t i = 0; !rc && i < json_array_size(j); i++) {
        const json_t *e = json_array_get(j, i);

        if (json_is_array(e)) {
            rc = put_numbers(w, e, err);
        } else {
            rc = put_one(w, e, err);
            w->done++;
        }
    }
    return rc;
}

int tensor_from_json(const struct cat_tensor *t, const json_t *data, void *dst, size_t n,
                     struct sh_err *err)
{
    struct writer w = {t, dst, n, 0};
    int rc = put_numbers(&w, data, err);

    if (!rc && w.done != n)
        rc = SH_FAIL(err, SH_E_INVALID,
                     "input \"%s\": \"data\" has %zu elements, its shape needs %zu", t->name,
                     w.done, n);
    return rc;
}

static int append_real(const struct cat_tensor *t, double v, int digits, size_t at,
                       struct sh_buf *out, struct sh_err *err)
{
    if (!isfinite(v))
        return SH_FAIL(err, SH_E_NAN,
                       "output \"%s\": element %zu is not a finite number, which JSON cannot "
                       "represent; ask for binary data",
                       t->name, at);
    return sh_buf_printf(out, err, "%.*g", digits, v);
}

static int append_whole(int64_t v, struct sh_buf *out, struct sh_err *err)
{
    char text[24];
    char *at = text;

    if (v < 0)
        *at++ = '-';
    at = sh_put_decimal(at, v < 0 ? -(uint64_t)v : (uint64_t)v, 1);
    return sh_buf_append(out, text, (size_t)(at - text), err);
}

static int append_number(const struct cat_tensor *t, const char *src, size_t i, struct sh_buf *out,
                         struct sh_err *err)
{
    size_t bytes = sh_dtype_bytes(t->dtype);
    uint64_t u = 0;
    float f;
    double d;

    switch (t->dtype) {
    case SH_F32:
        memcpy(&f, src + i * bytes, bytes);
        return append_real(t, (double)f, 9, i, out, err);
    case SH_F64:
        memcpy(&d, src + i * bytes, bytes);
        return append_real(t, d, 17, i, out, err);
    case SH_F16:
    case SH_BF16:
        return SH_FAIL(err, SH_E_UNSUPPORTED,
                       "output \"%s\": %s has no JSON form; ask for binary data", t->name,
                       sh_dtype_v2(t->dtype));
    case SH_BOOL:
        return sh_buf_puts(out, src[i] ? "true" : "false", err);
    case SH_U8:
    case SH_U16:
    case SH_U32:
    case SH_U64:
        memcpy(&u, src + i * bytes, bytes);
        return sh_buf_printf(out, err, "%" PRIu64, u);
    default:
        memcpy(&u, src + i * bytes, bytes);
        /* Sign extension of the narrow number. */
        return append_whole((int64_t)(u << (64 - 8 * bytes)) >> (64 - 8 * bytes), out, err);
    }
}

int tensor_to_json(const struct cat_tensor *t, const void *src, size_t n, struct sh_buf *out,
                   struct sh_err *err)
{
    int rc = sh_buf_puts(out, "[", err);

    for (size_t i = 0; !rc && i < n; i++) {
        if (i)
            rc = sh_buf_append(out, ",", 1, err);
        if (!rc)
            rc = append_number(t, src, i, out, err);
    }
    return rc ? rc : sh_buf_append(out, "]", 1, err);
}

/* In JSON it stands for itself. */
static bool is_plain(const char *s)
{
    for (; *s; s++)
        if (*s < ' ' || *s > '~' || *s == '"' || *s == '\\')
            return false;
    return true;
}

/* A JSON string with its quotes. */
static int append_string(const char *s, struct sh_buf *out, struct sh_err *err)
{
    json_t *j = NULL;
    char *text = NULL;
    int rc;

    if (is_plain(s)) { /* nearly all names */
        rc = sh_buf_append(out, "\"", 1, err);
        if (!rc)
            rc = sh_buf_puts(out, s, err);
        return rc ? rc : sh_buf_append(out, "\"", 1, err);
    }
    j = json_string(s);
    text = j ? json_dumps(j, JSON_ENCODE_ANY) : NULL;
    rc = text ? sh_buf_puts(out, text, err)
              : SH_FAIL(err, SH_E_NOMEM, "could not allocate the reply");
    free(text);
    json_decref(j);
    return rc;
}

static int append_output(const struct cat_version *v, const struct infer_plan *p,
                         const struct plan_output *o, const char *outputs, struct sh_buf *out,
                         struct sh_err *err)
{
    const struct cat_tensor *t = &v->outputs[o->index];
    const int counted = sh_dims_counted(t->axes, t->rank);
    int64_t dims[SH_MAX_RANK];
    size_t bytes;
    int rc = plan_shape(t, p, dims, &bytes, err);

    if (!rc && counted >= 0) {
        dims[counted] = p->count[o->index];
        bytes = p->out_bytes[o->index];
    }
    if (!rc)
        rc = sh_buf_puts(out, "{\"name\":", err);
    if (!rc)
        rc = append_string(t->name, out, err);
    if (!rc)
        rc = sh_buf_puts(out, ",\"datatype\":\"", err);
    if (!rc)
        rc = sh_buf_puts(out, sh_dtype_v2(t->dtype), err);
    if (!rc)
        rc = sh_buf_puts(out, "\",\"shape\":[", err);
    for (size_t i = 0; !rc && i < t->rank; i++) {
        if (i)
            rc = sh_buf_append(out, ",", 1, err);
        if (!rc)
            rc = append_whole(dims[i], out, err);
    }
    if (!rc && o->binary) {
        rc = sh_buf_puts(out, "],\"parameters\":{\"binary_data_size\":", err);
        if (!rc)
            rc = append_whole((int64_t)bytes, out, err);
        if (!rc)
            rc = sh_buf_puts(out, "}}", err);
    }
    if (!rc && o->shm.region) {
        rc = sh_buf_puts(out, "],\"parameters\":{\"shared_memory_region\":", err);
        if (!rc)
            rc = append_string(o->shm.region, out, err);
        if (!rc)
            rc = sh_buf_printf(
                out, err, ",\"shared_memory_offset\":%" PRIu64 ",\"shared_memory_byte_size\":%zu}}",
                o->shm.offset, bytes);
    }
    if (rc || o->binary || o->shm.region)
        return rc;
    rc = sh_buf_puts(out, "],\"data\":", err);
    if (!rc)
        rc = tensor_to_json(t, outputs + p->out_off[o->index], bytes / sh_dtype_bytes(t->dtype),
                            out, err);
    return rc ? rc : sh_buf_puts(out, "}", err);
}

int plan_reply(const struct cat_version *v, const struct infer_plan *p, const char *outputs,
               struct sh_buf *head, bool *binary, struct sh_err *err)
{
    int rc = sh_buf_puts(head, "{\"model_name\":", err);

    *binary = false;
    if (!rc)
        rc = append_string(v->model, head, err);
    if (!rc)
        rc = sh_buf_puts(head, ",\"model_version\":\"", err);
    if (!rc)
        rc = append_whole(v->version, head, err);
    if (!rc)
        rc = sh_buf_append(head, "\"", 1, err);
    if (!rc && p->id) {
        rc = sh_buf_puts(head, ",\"id\":", err);
        if (!rc)
            rc = append_string(p->id, head, err);
    }
    if (!rc)
        rc = sh_buf_puts(head, ",\"outputs\":[", err);
    for (size_t i = 0; !rc && i < p->n_out; i++) {
        if (i)
            rc = sh_buf_append(head, ",", 1, err);
        if (!rc)
            rc = append_output(v, p, &p->out[i], outputs, head, err);
        *binary |= p->out[i].binary && p->out_bytes[p->out[i].index] > 0;
    }
    return rc ? rc : sh_buf_puts(head, "]}", err);
}
