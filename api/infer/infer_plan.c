/* infer_plan.c - see infer_plan.h. */
#include "api/infer/infer_plan.h"

#include "common/mem.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SHAPE_TEXT 160

/* t: whose open sizes have names; NULL: it has none. */
static void wanted_shape_text(const int64_t *dims, size_t rank, const struct cat_tensor *t,
                              const struct cat_version *v, char out[static SHAPE_TEXT])
{
    size_t len = (size_t)snprintf(out, SHAPE_TEXT, "[");

    for (size_t i = 0; i < rank && len < SHAPE_TEXT; i++)
        if (t && dims[i] == CAT_OPEN)
            len += (size_t)snprintf(out + len, SHAPE_TEXT - len, "%s%.40s", i ? "," : "",
                                    v->symbols.name[t->axes[i].f[0].of]);
        else
            len +=
                (size_t)snprintf(out + len, SHAPE_TEXT - len, "%s%" PRId64, i ? "," : "", dims[i]);
    if (len < SHAPE_TEXT)
        snprintf(out + len, SHAPE_TEXT - len, "]");
}

/* No memory has more, and as many as CAT_MAX_IO of them can be added up. */
#define MAX_TENSOR_BYTES ((size_t)1 << 48)

static int shape_at(const struct cat_tensor *t, const struct infer_plan *p,
                    const struct sh_sizes *sizes, int64_t dims[SH_MAX_RANK], size_t *bytes,
                    struct sh_err *err)
{
    size_t n = sh_dtype_bytes(t->dtype);
    int rc = SH_OK;

    for (size_t i = 0; !rc && i < t->rank; i++) {
        dims[i] = t->dims[i] == -1 ? p->batch : t->dims[i];
        if (dims[i] == CAT_OPEN)
            rc = sh_dim_size(&t->axes[i], p->batch, sizes, &dims[i], err);
        if (!rc)
            rc = sh_mul_size(n, (size_t)dims[i], &n, err);
    }
    if (rc == SH_E_TOOBIG || (!rc && n > MAX_TENSOR_BYTES))
        rc =
            SH_FAIL(err, SH_E_TOOBIG,
                    "tensor \"%s\" is too large at the sizes of this request; ask for smaller ones",
                    t->name);
    *bytes = n;
    return rc;
}

int plan_shape(const struct cat_tensor *t, const struct infer_plan *p, int64_t dims[SH_MAX_RANK],
               size_t *bytes, struct sh_err *err)
{
    return shape_at(t, p, &p->sizes, dims, bytes, err);
}

static int find_named_tensor(const struct cat_tensor *list, size_t n, const char *kind,
                             const char *name, size_t *out, struct sh_err *err)
{
    char known[256] = "";
    size_t len = 0;

    for (size_t i = 0; i < n; i++)
        if (strcmp(list[i].name, name) == 0) {
            *out = i;
            return SH_OK;
        }
    for (size_t i = 0; i < n && len < sizeof(known); i++)
        len += (size_t)snprintf(known + len, sizeof(known) - len, "%s\"%s\"", i ? ", " : "",
                                list[i].name);
    return SH_FAIL(err, SH_E_INVALID, "the model has no %s \"%.64s\"; it has: %s", kind, name,
                   known);
}

/* ---------------------------------------------------------------- request parameters */

static int read_parameters(const json_t *j, struct infer_plan *p, bool *all_binary,
                           struct sh_err *err)
{
    const char *key;
    json_t *v;

    json_object_foreach((json_t *)j, key, v)
    {
        bool number = json_is_integer(v) && json_integer_value(v) >= 0;

        if (strcmp(key, "timeout") == 0) {
            if (!number || json_integer_value(v) > INT64_C(3600000000))
                return SH_FAIL(err, SH_E_INVALID,
                               "parameter \"timeout\" must be microseconds from 0 to 3600000000");
            p->timeout_us = json_integer_value(v);
        } else if (strcmp(key, "priority") == 0) {
            if (!number || json_integer_value(v) > UINT32_MAX)
                return SH_FAIL(err, SH_E_INVALID,
                               "parameter \"priority\" must be a whole number; 1 is the highest");
            /* 1 is the highest there; here the greater number goes first, and 100 is the top. */
            if (json_integer_value(v) > 0)
                p->priority = 101 - (uint32_t)SH_MIN(json_integer_value(v), 100);
        } else if (strcmp(key, "binary_data_output") == 0) {
            if (!json_is_boolean(v))
                return SH_FAIL(err, SH_E_INVALID,
                               "parameter \"binary_data_output\" must be true or false");
            *all_binary = json_is_true(v);
        } else if (strncmp(key, "sequence_", 9) == 0 && !(number && !json_integer_value(v)) &&
                   !json_is_false(v)) {
            return SH_FAIL(err, SH_E_UNSUPPORTED,
                           "parameter \"%.64s\": sequences are not supported", key);
        } else if (strncmp(key, "triton_", 7) == 0) {
            return SH_FAIL(err, SH_E_INVALID, "parameter \"%.64s\": the name is reserved", key);
        } else if (json_is_array(v) || json_is_object(v) || json_is_null(v)) {
            return SH_FAIL(err, SH_E_INVALID,
                           "parameter \"%.64s\" must be a string, a number or a boolean", key);
        }
    }
    return SH_OK;
}

/* ---------------------------------------------------------------- inputs */

struct reader { /* where we are */
    const struct cat_version *v;
    struct infer_plan *p;
    const char *next, *end; /* binary data not yet given to an input */
    const struct plan_limits *most;
};

/* The size of a symbol: the same wherever it is, and no larger than is allowed. */
static int take_size(const struct reader *r, const struct cat_tensor *t, size_t axis, int64_t size,
                     struct sh_err *err)
{
    const int32_t k = t->axes[axis].f[0].of;
    uint32_t *known = &r->p->sizes.v[k];
    const char *name = r->v->symbols.name[k];

    if (size < 1 || size > r->most->size)
        return SH_FAIL(err, SH_E_INVALID,
                       "axis %zu of input \"%s\" (\"%s\") has size %" PRId64 ", 1 to %" PRId64
                       " are allowed here (max-axis-size)",
                       axis, t->name, name, size, r->most->size);
    if (*known && *known != size)
        return SH_FAIL(err, SH_E_INVALID,
                       "axis %zu of input \"%s\" has size %" PRId64 ", but \"%s\" is %" PRIu32
                       " elsewhere in the request",
                       axis, t->name, size, name, *known);
    *known = (uint32_t)size;
    return SH_OK;
}

static int take_open_sizes(const struct reader *r, const struct cat_tensor *t, const int64_t *dims,
                           struct sh_err *err)
{
    int rc = SH_OK;

    for (size_t i = 0; !rc && i < t->rank; i++)
        if (t->dims[i] == CAT_OPEN)
            rc = take_size(r, t, i, dims[i], err);
    return rc;
}

static int read_input_shape(const struct reader *r, const json_t *j, const struct cat_tensor *t,
                            struct sh_err *err)
{
    struct infer_plan *p = r->p;
    int64_t dims[SH_MAX_RANK] = {0};
    char got[SHAPE_TEXT], want[SHAPE_TEXT];
    size_t rank = json_array_size(j);
    bool same = rank == t->rank;
    int rc;

    for (size_t i = 0; i < rank; i++) {
        const json_t *d = json_array_get(j, i);

        if (!json_is_integer(d) || json_integer_value(d) < 0)
            return SH_FAIL(err, SH_E_INVALID, "input \"%s\": a shape is a list of whole numbers",
                           t->name);
        if (i < SH_MAX_RANK)
            dims[i] = json_integer_value(d);
    }
    for (size_t i = 0; same && i < rank; i++)
        same = t->dims[i] < 0 || dims[i] == t->dims[i];
    if (!same) {
        wanted_shape_text(dims, SH_MIN(rank, SH_MAX_RANK), NULL, NULL, got);
        wanted_shape_text(t->dims, t->rank, t, r->v, want);
        return SH_FAIL(err, SH_E_INVALID, "input \"%s\" has shape %s, the model wants %s", t->name,
                       got, want);
    }
    rc = take_open_sizes(r, t, dims, err);
    if (rc || rank == 0 || t->dims[0] != -1)
        return rc;
    if (dims[0] < 1 || dims[0] > r->v->max_batch)
        return SH_FAIL(err, SH_E_INVALID,
                       "input \"%s\" has a batch of %" PRId64 ", the model takes 1 to %" PRId64,
                       t->name, dims[0], r->v->max_batch);
    if (p->batch > 0 && p->batch != dims[0])
        return SH_FAIL(err, SH_E_INVALID,
                       "input \"%s\" has a batch of %" PRId64 ", another input has %" PRId64,
                       t->name, dims[0], p->batch);
    p->batch = dims[0];
    return SH_OK;
}

/* Sets s->region if the tensor lies in shared memory. bytes: of the tensor. */
static int read_shm(const json_t *params, const char *kind, const char *name, size_t bytes,
                    struct plan_shm *s, struct sh_err *err)
{
    const json_t *region = json_object_get(params, "shared_memory_region");
    const json_t *size = json_object_get(params, "shared_memory_byte_size");
    const json_t *offset = json_object_get(params, "shared_memory_offset");

    if (!region)
        return SH_OK;
    if (!json_is_string(region) || !json_is_integer(size) || json_integer_value(size) < 0 ||
        (offset && (!json_is_integer(offset) || json_integer_value(offset) < 0)))
        return SH_FAIL(err, SH_E_INVALID,
                       "%s \"%s\": \"shared_memory_region\" must be a name, with "
                       "\"shared_memory_byte_size\" and perhaps \"shared_memory_offset\" in bytes",
                       kind, name);
    s->region = json_string_value(region);
    s->bytes = (uint64_t)json_integer_value(size);
    s->offset = (uint64_t)json_integer_value(offset);
    if (strcmp(kind, "input") == 0 ? s->bytes != bytes : s->bytes < bytes)
        return SH_FAIL(err, SH_E_INVALID,
                       "%s \"%s\" has %" PRIu64 " bytes of shared memory, its shape and datatype "
                       "need %zu",
                       kind, name, s->bytes, bytes);
    return SH_OK;
}

static int read_json_data(struct reader *r, const json_t *params, json_t *data,
                          const struct cat_tensor *t, struct plan_input *in, struct sh_err *err)
{
    const json_t *size = json_object_get(params, "binary_data_size");
    int64_t dims[SH_MAX_RANK];
    int rc = plan_shape(t, r->p, dims, &in->bytes, err);

    if (!rc)
        rc = read_shm(params, "input", t->name, in->bytes, &in->shm, err);
    if (rc)
        return rc;
    if (!!size + !!data + !!in->shm.region != 1)
        return SH_FAIL(
            err, SH_E_INVALID,
            "input \"%s\" needs either \"data\" or the parameter \"binary_data_size\" or "
            "\"shared_memory_region\"",
            t->name);
    if (!size) {
        in->data = data;
        return SH_OK;
    }
    if (!json_is_integer(size) || json_integer_value(size) < 0)
        return SH_FAIL(err, SH_E_INVALID, "input \"%s\": \"binary_data_size\" must be a number",
                       t->name);
    if ((uint64_t)json_integer_value(size) != in->bytes)
        return SH_FAIL(err, SH_E_INVALID,
                       "input \"%s\" has %" JSON_INTEGER_FORMAT " bytes of data, its shape and "
                       "datatype need %zu",
                       t->name, json_integer_value(size), in->bytes);
    if ((size_t)(r->end - r->next) < in->bytes)
        return SH_FAIL(err, SH_E_INVALID,
                       "the body ends within input \"%s\": %zu of its %zu bytes are there", t->name,
                       (size_t)(r->end - r->next), in->bytes);
    in->binary = r->next;
    r->next += in->bytes;
    return SH_OK;
}

static int read_plan_input(struct reader *r, const json_t *j, struct sh_err *err)
{
    const char *name = NULL, *type = NULL;
    json_t *shape = NULL, *params = NULL, *data = NULL;
    struct sh_json_field f[] = {
        {"name", SH_JSON_STR, &name, .required = true, .max = 1024},
        {"datatype", SH_JSON_STR, &type, .required = true, .max = 16},
        {"shape", SH_JSON_ARR, &shape, .required = true, .max = 32},
        {"parameters", SH_JSON_OBJ, &params, .required = false},
        {"data", SH_JSON_ARR, &data, .required = false},
    };
    const struct cat_tensor *t;
    size_t index;
    int rc = sh_json_read(j, "inputs[]", f, SH_ARRAY_LEN(f), err);

    if (!rc)
        rc = find_named_tensor(r->v->inputs, r->v->n_inputs, "input", name, &index, err);
    if (rc)
        return rc;
    t = &r->v->inputs[index];
    if (r->p->in[index].given)
        return SH_FAIL(err, SH_E_INVALID, "input \"%s\" is given twice", name);
    r->p->in[index].given = true;
    if (sh_dtype_from_v2(type) != t->dtype)
        return SH_FAIL(err, SH_E_INVALID, "input \"%s\" has datatype %.16s, the model wants %s",
                       name, type, sh_dtype_v2(t->dtype));
    rc = read_input_shape(r, shape, t, err);
    return rc ? rc : read_json_data(r, params, data, t, &r->p->in[index], err);
}

static int read_plan_inputs(struct reader *r, const json_t *list, struct sh_err *err)
{
    int rc = SH_OK;

    for (size_t i = 0; !rc && i < json_array_size(list); i++)
        rc = read_plan_input(r, json_array_get(list, i), err);
    for (size_t i = 0; !rc && i < r->v->n_inputs; i++)
        if (!r->p->in[i].given)
            rc = SH_FAIL(err, SH_E_INVALID, "input \"%s\" is missing", r->v->inputs[i].name);
    if (!rc && r->next != r->end)
        rc = SH_FAIL(err, SH_E_INVALID, "the body has %zu bytes more than its tensors need",
                     (size_t)(r->end - r->next));
    return rc;
}

/* Bytes of all inputs at what it runs at. */
static int size_inputs(const struct cat_version *v, struct infer_plan *p, struct sh_err *err)
{
    int64_t dims[SH_MAX_RANK];
    int rc = SH_OK;

    for (size_t k = 0; !rc && k < v->n_inputs; k++)
        rc = shape_at(&v->inputs[k], p, &p->run, dims, &p->in[k].run_bytes, err);
    return rc;
}

/* What it runs at, and room for what the body does not hold as the model takes it. */
static int fill_up(const struct cat_version *v, struct infer_plan *p, struct sh_err *err)
{
    int rc;

    p->run = p->sizes;
    for (uint32_t k = 0; k < p->run.n; k++) {
        p->run.v[k] = sh_bucket_of(&v->buckets, k, p->sizes.v[k]);
        p->is_padded |= p->run.v[k] != p->sizes.v[k];
    }
    rc = size_inputs(v, p, err);
    for (size_t k = 0; !rc && k < v->n_inputs; k++)
        if (!p->in[k].binary || p->in[k].run_bytes != p->in[k].bytes)
            p->brought_bytes += SH_ALIGN_UP(p->in[k].run_bytes, 64u);
    return rc;
}

/* ---------------------------------------------------------------- outputs */

static int read_output(const struct cat_version *v, const json_t *j, bool all_binary,
                       struct infer_plan *p, struct sh_err *err)
{
    struct plan_output *o = &p->out[p->n_out];
    int64_t dims[SH_MAX_RANK];
    const char *name = NULL;
    size_t bytes = 0;
    json_t *params = NULL, *binary;
    struct sh_json_field f[] = {
        {"name", SH_JSON_STR, &name, .required = true, .max = 1024},
        {"parameters", SH_JSON_OBJ, &params, .required = false},
    };
    int rc = sh_json_read(j, "outputs[]", f, SH_ARRAY_LEN(f), err);

    if (!rc)
        rc = find_named_tensor(v->outputs, v->n_outputs, "output", name, &o->index, err);
    if (rc)
        return rc;
    for (size_t i = 0; i < p->n_out; i++)
        if (p->out[i].index == o->index)
            return SH_FAIL(err, SH_E_INVALID, "output \"%s\" is asked for twice", name);
    if (json_integer_value(json_object_get(params, "classification")) > 0)
        return SH_FAIL(err, SH_E_UNSUPPORTED, "output \"%s\": classification is not supported",
                       name);
    rc = plan_shape(&v->outputs[o->index], p, dims, &bytes, err);
    if (!rc)
        rc = read_shm(params, "output", name, bytes, &o->shm, err);
    if (rc)
        return rc;
    binary = json_object_get(params, "binary_data");
    if (binary && !json_is_boolean(binary))
        return SH_FAIL(err, SH_E_INVALID, "output \"%s\": \"binary_data\" must be true or false",
                       name);
    o->binary = !o->shm.region && (binary ? json_is_true(binary) : all_binary);
    p->n_out++;
    return SH_OK;
}

/* The model writes all of them, asked for or not. */
static int size_outputs(const struct cat_version *v, struct infer_plan *p, struct sh_err *err)
{
    int64_t dims[SH_MAX_RANK];
    int rc = SH_OK;

    p->all_out_bytes = 0;
    for (size_t i = 0; !rc && i < v->n_outputs; i++) {
        rc = plan_shape(&v->outputs[i], p, dims, &p->out_bytes[i], err);
        if (!rc)
            rc = shape_at(&v->outputs[i], p, &p->run, dims, &p->run_out_bytes[i], err);
        if (sh_dims_counted(v->outputs[i].axes, v->outputs[i].rank) >= 0)
            p->run_out_bytes[i] += SH_COUNT_BYTES;
        p->out_off[i] = p->all_out_bytes;
        p->all_out_bytes += SH_ALIGN_UP(p->run_out_bytes[i], 64u);
    }
    return rc;
}

int plan_as_it_is(const struct cat_version *v, struct infer_plan *p, struct sh_err *err)
{
    int rc;

    p->run = p->sizes;
    p->is_padded = false;
    rc = size_inputs(v, p, err);
    return rc ? rc : size_outputs(v, p, err);
}

static int read_plan_outputs(const struct cat_version *v, const json_t *list, bool all_binary,
                             struct infer_plan *p, struct sh_err *err)
{
    int rc = SH_OK;

    for (size_t i = 0; !rc && i < json_array_size(list); i++)
        rc = read_output(v, json_array_get(list, i), all_binary, p, err);
    if (json_array_size(list) == 0)
        for (size_t i = 0; i < v->n_outputs; i++)
            p->out[p->n_out++] = (struct plan_output){.index = i, .binary = all_binary};
    return rc ? rc : size_outputs(v, p, err);
}

/* The usual mistake in a request with binary tensors has a message of its own. */
static int read_json(const char *body, size_t header_bytes, size_t max_json, json_t **out,
                     struct sh_err *err)
{
    struct sh_err why = {0};
    int rc = sh_json_parse(body, header_bytes, max_json, out, &why);
    size_t end = rc == SH_E_INVALID ? sh_json_first(body, header_bytes) : 0;
    json_t *first = NULL;

    if (end == 0 || end == header_bytes || sh_json_parse(body, end, max_json, &first, NULL))
        return rc ? sh_err_copy(err, &why) : SH_OK;
    json_decref(first);
    return SH_FAIL(err, SH_E_INVALID,
                   "the JSON ends after %zu bytes, and %zu more follow: if those are binary "
                   "tensors, send the header Inference-Header-Content-Length: %zu, the length of "
                   "the JSON before them",
                   end, header_bytes - end, end);
}

int plan_read(const struct cat_version *v, const char *body, size_t body_bytes, size_t header_bytes,
              const struct plan_limits *most, struct infer_plan *out, struct sh_err *err)
{
    struct reader r = {v, out, body + header_bytes, body + body_bytes, most};
    json_t *inputs = NULL, *outputs = NULL, *params = NULL;
    bool all_binary = false;
    struct sh_json_field f[] = {
        {"id", SH_JSON_STR, &out->id, .max = 1024},
        {"parameters", SH_JSON_OBJ, &params, .required = false},
        {"inputs", SH_JSON_ARR, &inputs, .required = true, .min = 1, .max = CAT_MAX_IO},
        {"outputs", SH_JSON_ARR, &outputs, .max = CAT_MAX_IO},
    };
    int rc = out->json ? SH_OK : read_json(body, header_bytes, most->json, &out->own, err);

    if (!out->json)
        out->json = out->own;
    if (!rc)
        rc = sh_json_read(out->json, "", f, SH_ARRAY_LEN(f), err);
    out->sizes.n = (uint32_t)v->symbols.n;
    if (!rc && params)
        rc = read_parameters(params, out, &all_binary, err);
    if (!rc)
        rc = read_plan_inputs(&r, inputs, err);
    if (!rc && out->batch == 0)
        out->batch = v->fixed_batch; /* its shapes were those of all of a batch */
    if (!rc)
        rc = fill_up(v, out, err);
    if (!rc)
        rc = read_plan_outputs(v, outputs, all_binary, out, err);
    return rc;
}

/* ---------------------------------------------------------------- filled up, and cut */

/* A tensor in two shapes of one rank, as rows that lie whole in both. */
struct rows {
    const int64_t *small, *large;
    size_t rank;     /* of the axes before a row */
    size_t n, bytes; /* rows of the small one, and what each has */
    size_t end;      /* bytes of the large one */
};

static struct rows rows_between(const int64_t *small, const int64_t *large, size_t rank,
                                size_t unit)
{
    struct rows r = {.small = small, .large = large, .n = 1, .bytes = unit};
    size_t last = rank;

    while (last > 0 && small[last - 1] == large[last - 1])
        r.bytes *= (size_t)small[--last];
    r.end = r.bytes;
    if (last > 0)
        r.bytes *= (size_t)small[last - 1];
    for (size_t i = 0; i < last; i++)
        r.end *= (size_t)large[i];
    r.rank = last ? last - 1 : 0;
    for (size_t i = 0; i < r.rank; i++)
        r.n *= (size_t)small[i];
    return r;
}

/* Where row number `at` of the small one lies in the large one. */
static size_t large_at(const struct rows *r, size_t at)
{
    size_t out = 0,
           step = r->bytes / (size_t)SH_MAX(r->small[r->rank], 1) * (size_t)r->large[r->rank];

    for (size_t i = r->rank; i-- > 0;) {
        out += at % (size_t)r->small[i] * step;
        at /= (size_t)r->small[i];
        step *= (size_t)r->large[i];
    }
    return out;
}

/* From the end: a row never lies behind its new place. */
static void rows_spread(const struct rows *r, const char *from, char *to)
{
    size_t end = r->end;

    for (size_t i = r->n; i-- > 0;) {
        size_t at = large_at(r, i);

        memmove(to + at, from + i * r->bytes, r->bytes);
        memset(to + at + r->bytes, 0, end - at - r->bytes);
        end = at;
    }
}

static void rows_gather(const struct rows *r, char *data)
{
    for (size_t i = 0; i < r->n; i++)
        memmove(data + i * r->bytes, data + large_at(r, i), r->bytes);
}

static int rows_at(const struct cat_tensor *t, const struct infer_plan *p,
                   int64_t small[SH_MAX_RANK], int64_t large[SH_MAX_RANK], struct rows *out,
                   struct sh_err *err)
{
    size_t bytes;
    int rc = shape_at(t, p, &p->sizes, small, &bytes, err);

    if (!rc)
        rc = shape_at(t, p, &p->run, large, &bytes, err);
    if (!rc)
        *out = rows_between(small, large, t->rank, sh_dtype_bytes(t->dtype));
    return rc;
}

/* Of n elements, one every `step` bytes. -0.0 is 0. */
static bool are_zero(const struct cat_tensor *t, const char *data, int64_t n, size_t step)
{
    const size_t unit = sh_dtype_bytes(t->dtype);
    const bool has_sign =
        t->dtype == SH_F32 || t->dtype == SH_F64 || t->dtype == SH_F16 || t->dtype == SH_BF16;

    for (; n > 0; n--, data += step) {
        for (size_t k = 0; k + 1 < unit; k++)
            if (data[k])
                return false;
        if ((unsigned char)data[unit - 1] & (has_sign ? 0x7fu : 0xffu))
            return false;
    }
    return true;
}

bool plan_masks_all(const struct cat_tensor *t, const struct infer_plan *p, const char *data)
{
    int64_t small[SH_MAX_RANK], large[SH_MAX_RANK];
    const size_t unit = sh_dtype_bytes(t->dtype);
    struct rows r;
    size_t step;

    if (!t->is_mask || rows_at(t, p, small, large, &r, NULL) || r.end == r.n * r.bytes)
        return false;
    step = r.bytes / (size_t)small[r.rank];
    for (size_t i = 0; i < r.n; i++)
        for (size_t k = 0; k < step; k += unit)
            if (are_zero(t, data + i * r.bytes + k, small[r.rank], step))
                return true;
    return false;
}

int plan_pad(const struct cat_tensor *t, const struct infer_plan *p, const char *from, char *to,
             struct sh_err *err)
{
    int64_t small[SH_MAX_RANK], large[SH_MAX_RANK];
    struct rows r;
    int rc = rows_at(t, p, small, large, &r, err);

    if (!rc)
        rows_spread(&r, from, to);
    return rc;
}

/* What is there of an output whose extent the run has decided. */
static int cut_counted(const struct cat_tensor *t, struct infer_plan *p, size_t i, char *data,
                       struct sh_err *err)
{
    const size_t axis = (size_t)sh_dims_counted(t->axes, t->rank), unit = sh_dtype_bytes(t->dtype);
    int64_t dims[SH_MAX_RANK];
    int rc = plan_shape(t, p, dims, &p->out_bytes[i], err);

    if (rc)
        return rc;
    memcpy(&p->count[i], data + p->out_bytes[i], SH_COUNT_BYTES);
    rc = sh_dims_cut(data, dims, t->rank, unit, axis, p->count[i], err);
    p->out_bytes[i] = unit;
    for (size_t k = 0; k < t->rank && !rc; k++)
        p->out_bytes[i] *= (size_t)dims[k];
    return rc;
}

int plan_cut(const struct cat_version *v, struct infer_plan *p, char *outputs, struct sh_err *err)
{
    int64_t small[SH_MAX_RANK], large[SH_MAX_RANK];
    struct rows r;
    int rc = SH_OK;

    for (size_t i = 0; !rc && i < v->n_outputs; i++) {
        if (sh_dims_counted(v->outputs[i].axes, v->outputs[i].rank) >= 0) {
            rc = cut_counted(&v->outputs[i], p, i, outputs + p->out_off[i], err);
            continue;
        }
        if (!p->is_padded || p->out_bytes[i] == p->run_out_bytes[i])
            continue;
        rc = rows_at(&v->outputs[i], p, small, large, &r, err);
        if (!rc)
            rows_gather(&r, outputs + p->out_off[i]);
    }
    return rc;
}

void plan_fini(struct infer_plan *p)
{
    json_decref(p->own);
    p->own = NULL;
    p->json = NULL;
}
