/* onnx_file.c - from bytes to protobuf messages, under limits, and back. */
#include "runtime/model/onnx_file.h"

#include "common/external.h"
#include "common/filekind.h"
#include "common/mem.h"
#include "common/preprocess.h"
#include "runtime/model/atomic_file.h"
#include "runtime/model/graph_int.h"
#include "runtime/model/onnx.h"
#include "runtime/model/onnx_weights.h"

#include <stdbool.h>
#include <stdlib.h>

#define MAX_DEPTH 48 /* messages in messages; a plain model needs 6 */
#define MAX_MESSAGES 4000000u
#define MEMORY_FACTOR 12 /* the densest encoding, packed varints of one byte, grows 8 times */
#define MEMORY_EXTRA ((size_t)64 << 20)
#define MIN_OPSET 1
#define NAMES_OPSET 3 /* IR version from which on a model has to name its operator set */
#define MAX_OPSET 23

/* ---------------------------------------------------------------- the walk before the parser */

struct walk {
    const uint8_t *base; /* for messages: where in the file */
    size_t n_messages, n_nodes;
    struct sh_err *err;
};

static int bad_bytes(struct walk *w, const uint8_t *at, const char *why)
{
    return SH_FAIL(w->err, SH_E_INVALID, "the file is not valid ONNX: %s at byte %zu", why,
                   (size_t)(at - w->base));
}

static int read_varint(struct walk *w, const uint8_t **p, const uint8_t *end, uint64_t *out)
{
    const uint8_t *at = *p;

    *out = 0;
    for (int shift = 0; shift < 64; shift += 7) {
        if (*p == end)
            return bad_bytes(w, at, "it ends inside a number");
        *out |= (uint64_t)(**p & 0x7F) << shift;
        if (!(*(*p)++ & 0x80))
            return SH_OK;
    }
    return bad_bytes(w, at, "a number is too long");
}

/* Length of the next field's content, and where it starts. */
static int read_content(struct walk *w, unsigned wire, const uint8_t **p, const uint8_t *end,
                        uint64_t *len)
{
    const uint8_t *at = *p;
    uint64_t ignored;
    int rc = SH_OK;

    switch (wire) {
    case 0:
        rc = read_varint(w, p, end, &ignored);
        *len = 0;
        break;
    case 1:
        *len = 8;
        break;
    case 2:
        rc = read_varint(w, p, end, len);
        break;
    case 5:
        *len = 4;
        break;
    default:
        rc = bad_bytes(w, at, "an unknown kind of field");
    }
    if (!rc && *len > (uint64_t)(end - *p))
        rc = bad_bytes(w, at, "it is cut off: a field is longer than what follows");
    return rc;
}

static int count_message(struct walk *w, const ProtobufCMessageDescriptor *d)
{
    if (++w->n_messages > MAX_MESSAGES)
        return SH_FAIL(w->err, SH_E_TOOBIG, "the file has more than %u parts", MAX_MESSAGES);
    if (d == &onnx__node_proto__descriptor && ++w->n_nodes > GRAPH_MAX_NODES)
        return SH_FAIL(w->err, SH_E_TOOBIG, "the model has more than %u nodes", GRAPH_MAX_NODES);
    return SH_OK;
}

/* A field of messages that the description we were built with may lack, but onnx_func.c reads: the
 * attributes of a function. */
static const ProtobufCMessageDescriptor *hidden(const ProtobufCMessageDescriptor *d, uint64_t field,
                                                const ProtobufCFieldDescriptor *f)
{
    return !f && d == &onnx__function_proto__descriptor && field == 11
               ? &onnx__attribute_proto__descriptor
               : NULL;
}

static int walk_message(struct walk *w, const ProtobufCMessageDescriptor *d, const uint8_t *p,
                        const uint8_t *end, int depth)
{
    uint64_t seen = 0; /* singular sub-messages: protobuf would merge a second one */
    int rc = count_message(w, d);

    if (!rc && depth > MAX_DEPTH)
        rc = bad_bytes(w, p, "it is nested too deeply");
    while (rc == SH_OK && p < end) {
        const ProtobufCMessageDescriptor *sub;
        const ProtobufCFieldDescriptor *f;
        const uint8_t *at = p;
        uint64_t tag, len = 0;

        rc = read_varint(w, &p, end, &tag);
        if (!rc && (tag >> 3 == 0 || tag >> 3 > 0x1FFFFFFF))
            rc = bad_bytes(w, at, "an impossible field number");
        if (!rc)
            rc = read_content(w, tag & 7, &p, end, &len);
        if (rc)
            break;
        f = protobuf_c_message_descriptor_get_field(d, (unsigned)(tag >> 3));
        sub = f && f->type == PROTOBUF_C_TYPE_MESSAGE ? f->descriptor : hidden(d, tag >> 3, f);
        if (f && f->type == PROTOBUF_C_TYPE_STRING && (tag & 7) == 2 && len && memchr(p, 0, len))
            rc = bad_bytes(w, at, "a text holds a zero byte");
        if (sub && (tag & 7) == 2) {
            size_t nr = f ? (size_t)(f - d->fields) : 64;
            uint64_t bit = nr < 64 ? (uint64_t)1 << nr : 0;

            if (f && f->label != PROTOBUF_C_LABEL_REPEATED && (seen & bit))
                rc = bad_bytes(w, at, "a part is there twice");
            seen |= bit;
            if (!rc)
                rc = walk_message(w, sub, p, p + len, depth + 1);
        }
        p += len;
    }
    return rc;
}

/* ---------------------------------------------------------------- the parser */

struct budget {
    size_t used, max;
    bool refused; /* the parser says only "no" */
};

/* Plain malloc, so that the data of a tensor can be taken over without a copy. */
static void *budget_alloc(void *arg, size_t size)
{
    struct budget *b = arg;

    void *p = size > b->max - b->used ? NULL : malloc(size ? size : 1);

    if (p)
        b->used += size;
    else
        b->refused = true;
    return p;
}

static void budget_free(void *arg, void *p)
{
    (void)arg;
    free(p);
}

static int parse_model(const uint8_t *data, size_t bytes, Onnx__ModelProto **out,
                       struct sh_err *err)
{
    struct sh_err why = {0};
    struct walk w = {.base = data, .err = &why};
    struct budget b = {.max = bytes * MEMORY_FACTOR + MEMORY_EXTRA};
    ProtobufCAllocator allocator = {budget_alloc, budget_free, &b};
    enum sh_file_kind kind = sh_file_kind(data, bytes);
    int rc = walk_message(&w, &onnx__model_proto__descriptor, data, data + bytes, 0);

    if (rc && kind != SH_FILE_OTHER && kind != SH_FILE_ONNX)
        return SH_FAIL(err, SH_E_INVALID, "this is no ONNX file but %s", sh_file_kind_text(kind));
    if (rc)
        return sh_err_copy(err, &why);
    *out = onnx__model_proto__unpack(&allocator, bytes, data);
    if (!*out && b.refused)
        return SH_FAIL(err, SH_E_TOOBIG, "reading the file needs more memory than is allowed");
    if (!*out)
        return SH_FAIL(err, SH_E_INVALID, "the file is not valid ONNX");
    return SH_OK;
}

void onnx_file_free(Onnx__ModelProto *m)
{
    if (m)
        onnx__model_proto__free_unpacked(m, NULL); /* the system's free() fits budget_alloc */
}

/* What is declared beside the model in its tar file becomes metadata of it, as if it had been
 * there: what is written of the model keeps it. */
static int bind_declared(Onnx__ModelProto *m, const struct onnx_source *s, struct sh_err *err)
{
    static const Onnx__StringStringEntryProto NONE = ONNX__STRING_STRING_ENTRY_PROTO__INIT;
    Onnx__StringStringEntryProto *e, **more;
    const uint8_t *data;
    size_t bytes;

    if (!onnx_source_packed(s, SH_EXTERNAL_PREPROCESS_FILE, &data, &bytes))
        return SH_OK;
    if (bytes > SH_PREPROCESS_TEXT)
        return SH_FAIL(err, SH_E_TOOBIG, SH_EXTERNAL_PREPROCESS_FILE " has more than %u bytes",
                       SH_PREPROCESS_TEXT);
    if (bytes == 0 || memchr(data, '\0', bytes))
        return SH_FAIL(err, SH_E_INVALID, SH_EXTERNAL_PREPROCESS_FILE " is empty, or has a byte 0");
    more = realloc(m->metadata_props, (m->n_metadata_props + 1) * sizeof(*more));
    if (more)
        m->metadata_props = more;
    e = more ? malloc(sizeof(*e)) : NULL;
    if (!e)
        return SH_FAIL(err, SH_E_NOMEM, "could not allocate metadata of a model");
    *e = NONE;
    e->key = strdup(SH_EXTERNAL_PREPROCESS);
    e->value = strndup((const char *)data, bytes);
    m->metadata_props[m->n_metadata_props++] = e;
    return e->key && e->value ? SH_OK
                              : SH_FAIL(err, SH_E_NOMEM, "could not allocate metadata of a model");
}

int onnx_file_load(const char *path, bool beside, struct onnx_source **source,
                   Onnx__ModelProto **out, struct sh_err *err)
{
    const uint8_t *data;
    size_t bytes;
    int rc = onnx_source_open(path, beside, source, err);

    *out = NULL;
    if (rc)
        return rc;
    data = onnx_source_model(*source, &bytes);
    rc = parse_model(data, bytes, out, err);
    if (!rc)
        rc = onnx_weights_bind(*out, *source, err);
    if (!rc)
        rc = bind_declared(*out, *source, err);
    if (!rc)
        rc = onnx_source_refuse_loose(*source, SH_EXTERNAL_WEIGHTS, err);
    if (rc) {
        onnx_file_free(*out);
        *out = NULL;
        onnx_source_close(*source);
        *source = NULL;
    }
    return rc;
}

int onnx_file_opset(Onnx__OperatorSetIdProto *const *list, size_t n, int64_t *out,
                    struct sh_err *err)
{
    *out = 0;
    for (size_t i = 0; i < n; i++) {
        const Onnx__OperatorSetIdProto *o = list[i];

        if (o->domain && o->domain[0] && strcmp(o->domain, "ai.onnx") != 0)
            continue;
        if (*out)
            return SH_FAIL(err, SH_E_INVALID, "the model names its operator set twice");
        if (o->version < MIN_OPSET || o->version > MAX_OPSET)
            return SH_FAIL(err, SH_E_UNSUPPORTED, WHY_OPSET, (long long)o->version, MIN_OPSET,
                           MAX_OPSET);
        *out = o->version;
    }
    return SH_OK;
}

int onnx_file_model_opset(const Onnx__ModelProto *m, int64_t *out, struct sh_err *err)
{
    int rc = onnx_file_opset(m->opset_import, m->n_opset_import, out, err);

    if (!rc && !*out && m->has_ir_version && m->ir_version < NAMES_OPSET)
        *out = 1;
    if (!rc && !*out)
        rc = SH_FAIL(err, SH_E_INVALID, "the model does not name its operator set (opset)");
    return rc;
}

/* ---------------------------------------------------------------- writing */

struct file_sink {
    ProtobufCBuffer base; /* first: protobuf-c hands this address back */
    FILE *f;
};

static void sink_append(ProtobufCBuffer *b, size_t len, const uint8_t *data)
{
    struct file_sink *s = (struct file_sink *)b;

    if (len > 0)                    /* else data may be NULL */
        fwrite(data, 1, len, s->f); /* an error stays in the stream: commit looks */
}

void onnx_file_put(FILE *f, const Onnx__ModelProto *m)
{
    struct file_sink sink = {.base = {sink_append}, .f = f};

    onnx__model_proto__pack_to_buffer(m, &sink.base);
}

int onnx_file_save(const char *path, const Onnx__ModelProto *m, struct sh_err *err)
{
    struct atomic_file a = {0};
    size_t bytes = onnx__model_proto__get_packed_size(m);
    int rc;

    if (bytes > ONNX_MAX_FILE_BYTES)
        return SH_FAIL(err, SH_E_TOOBIG, "an ONNX file cannot hold %zu bytes", bytes);
    rc = atomic_file_open(&a, path, err);
    if (rc)
        return rc;
    onnx_file_put(a.f, m);
    rc = atomic_file_commit(&a, err);
    atomic_file_close(&a);
    return rc;
}
