/* tensors.c - see tensors.h. */
#include "api/grpc/tensors.h"

#include "api/grpc/frames.h"
#include "api/grpc/message.h"
#include "common/dtype.h"
#include "common/mem.h"
#include "inference.pb-c.h"

#include <stdlib.h>
#include <string.h>

#define RAW_INPUTS 7u
#define RAW_OUTPUTS 6u
#define STREAM_ANSWER 2u
#define STREAM_FAILURE 1u
#define FINAL "triton_enable_empty_final_response" /* every answer here is the final one */

/* ---------------------------------------------------------------- raw tensors stay in place */

struct scan {
    const unsigned char *p, *end;
};

static bool scan_varint(struct scan *s, uint64_t *out)
{
    *out = 0;
    for (unsigned shift = 0; s->p < s->end && shift < 64; shift += 7) {
        unsigned char c = *s->p++;

        *out |= (uint64_t)(c & 0x7f) << shift;
        if (c < 0x80)
            return true;
    }
    return false;
}

/* Beyond a field's value; *bytes: of one of the wire type for bytes. */
static bool scan_value(struct scan *s, unsigned wire, uint64_t *bytes)
{
    uint64_t none;

    *bytes = wire == 1 ? 8 : wire == 5 ? 4 : 0;
    if (wire == 0)
        return scan_varint(s, &none);
    if (wire == 2 && !scan_varint(s, bytes))
        return false;
    if ((wire != 1 && wire != 2 && wire != 5) || *bytes > (uint64_t)(s->end - s->p))
        return false;
    s->p += *bytes;
    return true;
}

/* The message without its raw tensors, to head, and those as parts. */
static int split_raw(const void *data, size_t n, size_t max_head, struct sh_buf *head,
                     struct tensors *out, struct sh_err *err)
{
    struct scan s = {data, (const unsigned char *)data + n};
    uint64_t tag, bytes;
    int rc = SH_OK;

    while (!rc && s.p < s.end) {
        const unsigned char *field = s.p;

        if (!scan_varint(&s, &tag) || !scan_value(&s, (unsigned)(tag & 7), &bytes))
            return SH_FAIL(err, SH_E_INVALID, "the message is no ModelInferRequest");
        if (tag != (RAW_INPUTS << 3 | 2u)) {
            rc = sh_buf_append(head, field, (size_t)(s.p - field), err);
            if (rc == SH_E_TOOBIG && err)
                *err = (struct sh_err){.faults = err->faults};
            if (rc == SH_E_TOOBIG)
                return SH_FAIL(err, rc,
                               "the message has more than %zu bytes beside raw tensors; send "
                               "tensors in raw_input_contents",
                               max_head);
            continue;
        }
        if (out->n_parts == CAT_MAX_IO)
            return SH_FAIL(err, SH_E_INVALID, "there are more than %u raw_input_contents",
                           (unsigned)CAT_MAX_IO);
        out->part[out->n_parts++] = (struct iovec){(void *)(uintptr_t)(s.p - bytes), (size_t)bytes};
    }
    return rc;
}

/* ---------------------------------------------------------------- numbers to bytes */

typedef Inference__ModelInferRequest__InferInputTensor input_msg;

static size_t contents_count(const Inference__InferTensorContents *c)
{
    return c ? c->n_bool_contents + c->n_int_contents + c->n_int64_contents + c->n_uint_contents +
                   c->n_uint64_contents + c->n_fp32_contents + c->n_fp64_contents +
                   c->n_bytes_contents
             : 0;
}

static int not_whole(const input_msg *in, size_t i, struct sh_err *err)
{
    return SH_FAIL(err, SH_E_INVALID, "input \"%s\": element %zu of contents does not fit %s",
                   in->name, i, in->datatype);
}

/* Of the small whole numbers: they come as 32 bits. Little-endian: the low bytes are the narrower
 * number. */
static int narrow(const input_msg *in, enum sh_dtype type, char *to, struct sh_err *err)
{
    const Inference__InferTensorContents *c = in->contents;
    const size_t unit = sh_dtype_bytes(type);
    const bool is_signed = type == SH_I8 || type == SH_I16;
    const int64_t most = (INT64_C(1) << (8 * unit - is_signed)) - 1;
    const size_t n = is_signed ? c->n_int_contents : c->n_uint_contents;

    for (size_t i = 0; i < n; i++) {
        int64_t v = is_signed ? c->int_contents[i] : (int64_t)c->uint_contents[i];

        if (v > most || v < (is_signed ? -most - 1 : 0))
            return not_whole(in, i, err);
        memcpy(to + i * unit, &v, unit);
    }
    return SH_OK;
}

struct plain { /* numbers that are there as the tensor has them */
    const void *data;
    size_t n;
};

static struct plain plain_of(const Inference__InferTensorContents *c, enum sh_dtype type)
{
    switch (type) {
    case SH_I32:
        return (struct plain){c->int_contents, c->n_int_contents};
    case SH_I64:
        return (struct plain){c->int64_contents, c->n_int64_contents};
    case SH_U32:
        return (struct plain){c->uint_contents, c->n_uint_contents};
    case SH_U64:
        return (struct plain){c->uint64_contents, c->n_uint64_contents};
    case SH_F32:
        return (struct plain){c->fp32_contents, c->n_fp32_contents};
    case SH_F64:
        return (struct plain){c->fp64_contents, c->n_fp64_contents};
    case SH_I8:
    case SH_I16:
        return (struct plain){NULL, c->n_int_contents};
    case SH_U8:
    case SH_U16:
        return (struct plain){NULL, c->n_uint_contents};
    case SH_BOOL:
        return (struct plain){NULL, c->n_bool_contents};
    default:
        return (struct plain){NULL, 0};
    }
}

/* Appends the tensor's bytes. */
static int put_typed(const input_msg *in, struct sh_buf *out, struct sh_err *err)
{
    const Inference__InferTensorContents *c = in->contents;
    const enum sh_dtype type = sh_dtype_from_v2(in->datatype);
    const struct plain p = plain_of(c, type);
    char *to;
    int rc;

    if (p.n != contents_count(c) || (p.n == 0 && contents_count(c) > 0))
        return SH_FAIL(err, SH_E_INVALID,
                       "input \"%s\": %s cannot come in these contents; send it in "
                       "raw_input_contents",
                       in->name, in->datatype);
    if (p.n == 0)
        return SH_OK;
    rc = sh_buf_reserve(out, p.n * sh_dtype_bytes(type), &to, err);
    if (rc)
        return rc;
    out->len += p.n * sh_dtype_bytes(type);
    if (p.data)
        memcpy(to, p.data, p.n * sh_dtype_bytes(type));
    else if (type != SH_BOOL)
        return narrow(in, type, to, err);
    for (size_t i = 0; type == SH_BOOL && i < p.n; i++)
        to[i] = c->bool_contents[i] != 0;
    return SH_OK;
}

/* ---------------------------------------------------------------- the body over HTTP */

static bool is_shared(const json_t *input)
{
    return json_object_get(json_object_get(input, "parameters"), "shared_memory_region");
}

static int put_size(json_t *input, size_t bytes, struct sh_err *err)
{
    json_t *parameters = json_object_get(input, "parameters");

    if (!parameters) {
        parameters = json_object();
        json_object_set_new(input, "parameters", parameters);
    }
    return json_object_set_new(parameters, "binary_data_size", json_integer((json_int_t)bytes))
               ? SH_FAIL(err, SH_E_NOMEM, "could not allocate a request")
               : SH_OK;
}

/* Each input is in raw tensors, in contents or in shared memory; the first two not mixed. */
static int place_inputs(const Inference__ModelInferRequest *msg, json_t *inputs, size_t max_head,
                        struct tensors *out, struct sh_err *err)
{
    const size_t n_raw = out->n_parts;
    size_t lens[CAT_MAX_IO], n_typed = 0, used = 0;
    struct sh_buf typed;
    json_t *one;
    size_t i;
    int rc = SH_OK;

    sh_buf_init(&typed, 8 * max_head);
    json_array_foreach(inputs, i, one)
    {
        const input_msg *in = msg->inputs[i];
        size_t before = typed.len, bytes = 0;

        if (rc || is_shared(one))
            continue;
        if (n_raw > 0 && contents_count(in->contents) > 0)
            rc = SH_FAIL(err, SH_E_INVALID,
                         "input \"%s\" has contents, and there are raw_input_contents: send all "
                         "inputs in one way",
                         in->name);
        else if (n_raw > 0 && used == n_raw)
            rc = SH_FAIL(err, SH_E_INVALID,
                         "input \"%s\" has no raw_input_contents: there are only %zu", in->name,
                         n_raw);
        else if (n_raw > 0)
            bytes = out->part[used++].iov_len;
        else if (contents_count(in->contents) > 0)
            rc = put_typed(in, &typed, err);
        if (n_raw == 0)
            bytes = lens[n_typed++] = typed.len - before;
        if (!rc)
            rc = put_size(one, bytes, err);
    }
    if (!rc && used < n_raw)
        rc = SH_FAIL(err, SH_E_INVALID,
                     "there are %zu raw_input_contents, but only %zu inputs for them", n_raw, used);
    out->typed = sh_buf_take(&typed); /* NULL: none of it has an element */
    sh_buf_fini(&typed);
    for (size_t k = 0, at = 0; !rc && out->typed && k < n_typed; at += lens[k++])
        out->part[out->n_parts++] = (struct iovec){out->typed + at, lens[k]};
    return rc;
}

/* What is left until the deadline, unless the request has a shorter time of its own. Answers come
 * as bytes. */
static int set_parameters(json_t *request, int64_t timeout_us, struct sh_err *err)
{
    json_t *p = json_object_get(request, "parameters"), *one;
    const json_t *own;
    size_t i;

    if (!p) {
        p = json_object();
        json_object_set_new(request, "parameters", p);
    }
    own = json_object_get(p, "timeout");
    timeout_us = SH_MIN(timeout_us, INT64_C(3600000000));
    if (timeout_us > 0 &&
        (!own || (json_is_integer(own) &&
                  (json_integer_value(own) == 0 || json_integer_value(own) > timeout_us))))
        json_object_set_new(p, "timeout", json_integer(timeout_us));
    json_object_del(p, FINAL);
    json_array_foreach(json_object_get(request, "outputs"), i, one)
        json_object_del(json_object_get(one, "parameters"), "binary_data");
    return json_object_set_new(p, "binary_data_output", json_true())
               ? SH_FAIL(err, SH_E_NOMEM, "could not allocate a request")
               : SH_OK;
}

static int make_body(const struct grpc_method *m, const Inference__ModelInferRequest *msg,
                     size_t max_head, int64_t timeout_us, struct tensors *out, struct sh_buf *uri,
                     struct sh_err *err)
{
    json_t *request = NULL;
    int rc = message_to_json(&msg->base, &request, err);

    if (!rc)
        rc = method_uri(m, request, uri, err);
    if (!rc && msg->n_inputs > CAT_MAX_IO)
        rc = SH_FAIL(err, SH_E_INVALID, "there are more than %u inputs", (unsigned)CAT_MAX_IO);
    if (!rc)
        rc = place_inputs(msg, json_object_get(request, "inputs"), max_head, out, err);
    if (!rc)
        rc = set_parameters(request, timeout_us, err);
    if (!rc)
        rc = sh_json_dump_unsorted(request, &out->json, err);
    json_decref(request);
    return rc;
}

int tensors_read(const struct grpc_method *m, const void *data, size_t n, size_t max_head,
                 int64_t timeout_us, struct tensors *out, struct sh_buf *uri, struct sh_err *err)
{
    ProtobufCMessage *msg = NULL;
    struct sh_buf head;
    int rc;

    sh_buf_init(&head, max_head);
    rc = split_raw(data, n, max_head, &head, out, err);
    if (!rc)
        rc = message_unpack(m->in, head.data ? head.data : "", head.len, &msg, err);
    if (!rc)
        rc = make_body(m, (const Inference__ModelInferRequest *)msg, max_head, timeout_us, out, uri,
                       err);
    if (!rc)
        out->bytes = out->json_bytes = strlen(out->json);
    for (size_t i = 0; !rc && i < out->n_parts; i++)
        rc = sh_add_size(out->bytes, out->part[i].iov_len, &out->bytes, err);
    message_free(msg);
    sh_buf_fini(&head);
    return rc;
}

void tensors_drop(struct tensors *t)
{
    free(t->json);
    free(t->typed);
    *t = (struct tensors){0};
}

/* ---------------------------------------------------------------- the answer */

struct sizes { /* of the outputs, bytes; none in shared memory */
    size_t v[CAT_MAX_IO], n;
};

/* Takes them out of the JSON: in a message they are the tensors' own. */
static void take_sizes(json_t *answer, struct sizes *out)
{
    json_t *one;
    size_t i;

    json_array_foreach(json_object_get(answer, "outputs"), i, one)
    {
        json_t *parameters = json_object_get(one, "parameters");

        if (i < CAT_MAX_IO)
            out->v[out->n++] =
                (size_t)json_integer_value(json_object_get(parameters, "binary_data_size"));
        json_object_del(parameters, "binary_data_size");
    }
}

static size_t head_bytes_of(uint64_t bytes)
{
    size_t n = 2;

    for (; bytes > 0x7f; bytes >>= 7)
        n++;
    return n;
}

/* An output in shared memory, or without an element, has no part, but clients count: it gets an
 * empty one. */
static int put_raw_heads(const struct sizes *sizes, struct sh_buf *text, size_t *ends,
                         size_t n_parts, struct sh_err *err)
{
    int rc = SH_OK;

    for (size_t i = 0, k = 0; !rc && i < sizes->n; i++) {
        rc = message_put_head(text, RAW_OUTPUTS, sizes->v[i], err);
        if (!rc && sizes->v[i] > 0 && k < n_parts)
            ends[k++] = text->len;
    }
    return rc;
}

int tensors_answer(const struct grpc_method *m, const char *head, size_t head_bytes, size_t n_parts,
                   struct sh_buf *text, size_t *ends, struct sh_err *err)
{
    static const unsigned char ROOM[FRAME_PREFIX] = {0};
    struct sizes sizes = {.n = 0};
    struct sh_buf msg;
    json_t *answer = NULL;
    uint64_t bytes = 0, all;
    int rc = sh_json_parse(head, head_bytes, head_bytes, &answer, err);

    sh_buf_init(&msg, SIZE_MAX / 2);
    if (!rc) {
        take_sizes(answer, &sizes);
        for (size_t i = 0; i < sizes.n; i++)
            bytes += head_bytes_of(sizes.v[i]) + sizes.v[i];
        rc = message_from_json(&inference__model_infer_response__descriptor, answer, &msg, err);
    }
    all = bytes += msg.len;
    if (!rc)
        rc = sh_buf_append(text, ROOM, sizeof(ROOM), err);
    if (!rc && m->kind == CALL_STREAM) {
        rc = message_put_head(text, STREAM_ANSWER, bytes, err);
        all += text->len - FRAME_PREFIX;
    }
    if (!rc && all > UINT32_MAX)
        rc = SH_FAIL(err, SH_E_TOOBIG, "the answer is larger than a message can be");
    if (!rc)
        rc = sh_buf_append(text, msg.data, msg.len, err);
    if (!rc) {
        frames_put_prefix((unsigned char *)text->data, (uint32_t)all);
        rc = put_raw_heads(&sizes, text, ends, n_parts, err);
    }
    sh_buf_fini(&msg);
    json_decref(answer);
    return rc;
}

int tensors_answer_failure(const char *msg, struct sh_buf *text, struct sh_err *err)
{
    unsigned char prefix[FRAME_PREFIX];
    size_t n = strlen(msg);
    int rc;

    frames_put_prefix(prefix, (uint32_t)(head_bytes_of(n) + n));
    rc = sh_buf_append(text, prefix, sizeof(prefix), err);
    if (!rc)
        rc = message_put_head(text, STREAM_FAILURE, n, err);
    return rc ? rc : sh_buf_append(text, msg, n, err);
}
