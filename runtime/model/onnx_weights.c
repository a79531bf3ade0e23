/* onnx_weights.c - see onnx_weights.h. */
#include "runtime/model/onnx_weights.h"

#include "common/buf.h"
#include "common/external.h"
#include "common/half.h"
#include "common/mem.h"
#include "common/safetensors.h"
#include "runtime/model/onnx_tensor.h"

#include <stdio.h>
#include <stdlib.h>

#define FILE_NAME SH_EXTERNAL_WEIGHTS
#define MAX_LISTED 8 /* names in a message */

struct binding {
    Onnx__GraphProto *graph;
    struct sh_st *st;
    bool *is_used; /* OWNED; per tensor of st, in its order */
    struct sh_err *err;
};

static const char *clean_name(const char *name, char out[static 128])
{
    return graph__clean(name ? name : "", out, 128);
}

/* ---------------------------------------------------------------- one tensor */

/* "F32 [3,4]" */
static const char *type_text(enum sh_dtype dtype, size_t rank, const int64_t *dims, char *out,
                             size_t size)
{
    size_t n = (size_t)snprintf(out, size, "%s [",
                                dtype < SH_N_DTYPES ? sh_dtype_st(dtype) : "an unknown type");

    for (size_t i = 0; i < rank && n < size; i++)
        n += (size_t)snprintf(out + n, size - n, "%s%lld", i ? "," : "", (long long)dims[i]);
    if (n < size)
        snprintf(out + n, size - n, "]");
    return out;
}

static bool is_same_shape(const Onnx__TensorProto *t, const struct sh_st_tensor *s)
{
    if (t->n_dims != s->rank)
        return false;
    for (size_t i = 0; i < s->rank; i++)
        if (t->dims[i] != s->dims[i])
            return false;
    return true;
}

static bool is_half(enum sh_dtype t)
{
    return t == SH_F16 || t == SH_BF16;
}

/* F16 and BF16 to F32 is exact. */
static int widen_to_f32(Onnx__TensorProto *t, const struct sh_st_tensor *s, struct sh_err *err)
{
    const unsigned char *from = s->data;
    const size_t n = s->bytes / 2;
    float *to = malloc((n + 1) * sizeof(*to));

    if (!to)
        return SH_FAIL(err, SH_E_NOMEM, "could not allocate %zu weights", n);
    for (size_t i = 0; i < n; i++) {
        uint16_t h;

        memcpy(&h, from + 2 * i, sizeof(h));
        to[i] = s->dtype == SH_F16 ? (float)sh_f16_value(h) : sh_bf16_value(h);
    }
    onnx_tensor_drop(t);
    t->has_raw_data = 1;
    t->raw_data.data = (uint8_t *)to;
    t->raw_data.len = n * sizeof(*to);
    return SH_OK;
}

static int bind_initializer(struct binding *b, Onnx__TensorProto *t, const struct sh_st_tensor *s)
{
    const enum sh_dtype want = sh_dtype_from_onnx(t->data_type);
    char name[128], has[192], needs[192];

    if (t->segment)
        return SH_FAIL(b->err, SH_E_UNSUPPORTED, WHY_SEGMENTS, clean_name(t->name, name));
    if (is_same_shape(t, s) && want == s->dtype)
        return onnx_tensor_point(t, FILE_NAME, sh_st_offset(b->st, s), s->bytes, b->err);
    if (is_same_shape(t, s) && want == SH_F32 && is_half(s->dtype))
        return widen_to_f32(t, s, b->err);
    return SH_FAIL(
        b->err, SH_E_INVALID, "\"%s\" is %s in " FILE_NAME ", but the graph needs %s",
        clean_name(t->name, name), type_text(s->dtype, s->rank, s->dims, has, sizeof(has)),
        type_text(want, SH_MIN(t->n_dims, (size_t)SH_MAX_RANK), t->dims, needs, sizeof(needs)));
}

/* ---------------------------------------------------------------- all of them */

static bool has_values(const Onnx__TensorProto *t)
{
    for (size_t i = 0; i < t->n_dims; i++)
        if (t->dims[i] == 0)
            return true;
    return onnx_tensor_is_external(t) || t->raw_data.len || t->n_float_data || t->n_double_data ||
           t->n_int32_data || t->n_int64_data || t->n_uint64_data || t->n_string_data;
}

static int bind_initializers(struct binding *b)
{
    int rc = SH_OK;

    for (size_t i = 0; i < b->graph->n_initializer && !rc; i++) {
        Onnx__TensorProto *t = b->graph->initializer[i];
        const struct sh_st_tensor *s = sh_st_find(b->st, t->name ? t->name : "");
        bool *used = s ? &b->is_used[s - sh_st_at(b->st, 0)] : NULL;
        char name[128];

        if (s && *used)
            rc = SH_FAIL(b->err, SH_E_INVALID, "tensor %s is defined twice",
                         clean_name(t->name, name));
        else if (s)
            rc = bind_initializer(b, t, s);
        else if (!has_values(t))
            rc =
                SH_FAIL(b->err, SH_E_INVALID,
                        "initializer %s has no values: neither the graph nor " FILE_NAME " has any",
                        clean_name(t->name, name));
        if (s)
            *used = true;
    }
    return rc;
}

/* BatchNormalization of PyTorch counts its batches; nothing that a graph computes depends on it. */
static bool is_counter(const struct sh_st_tensor *s)
{
    const char *dot = strrchr(s->name, '.');

    return s->dtype == SH_I64 && s->rank == 0 &&
           strcmp(dot ? dot + 1 : s->name, "num_batches_tracked") == 0;
}

/* A name that is passed over in silence would leave a weight as it was before the fine-tuning. */
static int refuse_unknown(const struct binding *b)
{
    size_t n_unknown = 0, n_used = 0;
    struct sh_buf list;
    int rc = SH_OK;

    sh_buf_init(&list, 4096);
    for (size_t i = 0; i < sh_st_count(b->st) && !rc; i++) {
        const struct sh_st_tensor *s = sh_st_at(b->st, i);
        char name[128];

        n_used += b->is_used[i];
        if (b->is_used[i] || is_counter(s))
            continue;
        if (n_unknown++ < MAX_LISTED)
            rc = sh_buf_printf(&list, b->err, "%s%.60s", list.len ? ", " : "",
                               clean_name(s->name, name));
    }
    if (!rc && n_unknown)
        rc = SH_FAIL(b->err, SH_E_INVALID,
                     "the graph has no initializers for %zu of the %zu tensors in " FILE_NAME
                     ": %.250s%s; if the exporter renamed, merged or folded them, "
                     "torch.onnx.export(..., dynamo=True, optimize=False) keeps them",
                     n_unknown, sh_st_count(b->st), list.data,
                     n_unknown > MAX_LISTED ? ", ..." : "");
    sh_buf_fini(&list);
    if (!rc && n_used == 0)
        rc = SH_FAIL(b->err, SH_E_INVALID, FILE_NAME " has no weights: it would replace nothing");
    return rc;
}

int onnx_weights_bind(Onnx__ModelProto *m, const struct onnx_source *source, struct sh_err *err)
{
    struct binding b = {.graph = m->graph, .err = err};
    struct sh_err why = {0};
    const uint8_t *data;
    size_t bytes;
    int rc;

    if (!m->graph || !onnx_source_packed(source, FILE_NAME, &data, &bytes))
        return SH_OK;
    rc = sh_st_open_mem(data, bytes, &b.st, &why);
    if (rc)
        return SH_FAIL(err, rc, FILE_NAME ": %.400s", why.msg);
    b.is_used = calloc(sh_st_count(b.st) + 1, sizeof(*b.is_used));
    if (!b.is_used)
        rc = SH_FAIL(err, SH_E_NOMEM, "could not allocate a list of weights");
    if (!rc)
        rc = bind_initializers(&b);
    if (!rc)
        rc = refuse_unknown(&b);
    free(b.is_used);
    sh_st_close(b.st);
    return rc;
}
