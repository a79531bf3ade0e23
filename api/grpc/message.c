/* message.c - see message.h. */
#include "api/grpc/message.h"

#include "common/mem.h"

#include <stdlib.h>
#include <string.h>

#define MAX_VARINT 10u
#define ROOM_FLAT ((size_t)64 << 10)
#define ROOM_RATIO \
    16u /* of a message's length: a number of 5 bytes takes 40 while it is unpacked */

enum { WIRE_VARINT = 0, WIRE_64 = 1, WIRE_BYTES = 2 };

/* ---------------------------------------------------------------- unpacking */

struct room {
    size_t left;
};

static void *room_alloc(void *arg, size_t n)
{
    struct room *r = arg;

    if (n > r->left)
        return NULL;
    r->left -= n;
    return malloc(n);
}

static void room_free(void *arg, void *p)
{
    (void)arg;
    free(p);
}

int message_unpack(const ProtobufCMessageDescriptor *d, const void *data, size_t n,
                   ProtobufCMessage **out, struct sh_err *err)
{
    struct room room = {ROOM_FLAT + n * ROOM_RATIO};
    ProtobufCAllocator a = {room_alloc, room_free, &room};

    *out = protobuf_c_message_unpack(d, &a, n, data);
    if (*out)
        return SH_OK;
    return SH_FAIL(err, SH_E_INVALID, "the message is no %s", d->short_name);
}

void message_free(ProtobufCMessage *m)
{
    struct room none = {0};
    ProtobufCAllocator a = {room_alloc, room_free, &none};

    if (m)
        protobuf_c_message_free_unpacked(m, &a);
}

/* ---------------------------------------------------------------- to JSON */

static bool is_map(const ProtobufCFieldDescriptor *f)
{
    const ProtobufCMessageDescriptor *d = f->descriptor;

    return f->type == PROTOBUF_C_TYPE_MESSAGE && f->label == PROTOBUF_C_LABEL_REPEATED &&
           d->n_fields == 2 && strcmp(d->fields[0].name, "key") == 0 &&
           strcmp(d->fields[1].name, "value") == 0;
}

static bool is_choice(const ProtobufCMessageDescriptor *d)
{
    return d->n_fields > 0 && (d->fields[0].flags & PROTOBUF_C_FIELD_FLAG_ONEOF);
}

static bool is_left_out(const ProtobufCFieldDescriptor *f)
{
    return f->type == PROTOBUF_C_TYPE_BYTES || strcmp(f->name, "contents") == 0;
}

static size_t pb_size(ProtobufCType t)
{
    switch (t) {
    case PROTOBUF_C_TYPE_INT32:
    case PROTOBUF_C_TYPE_UINT32:
    case PROTOBUF_C_TYPE_ENUM:
    case PROTOBUF_C_TYPE_FLOAT:
        return 4;
    case PROTOBUF_C_TYPE_BOOL:
        return sizeof(protobuf_c_boolean);
    default:
        return 8; /* also pointers */
    }
}

static int unreadable(const ProtobufCFieldDescriptor *f, struct sh_err *err)
{
    return SH_FAIL(err, SH_E_INVALID, "field \"%s\" is not UTF-8, or a number that is too large",
                   f->name);
}

static int value_to_json(const ProtobufCFieldDescriptor *f, const void *at, json_t **out,
                         struct sh_err *err)
{
    const char *text;

    *out = NULL;
    switch (f->type) {
    case PROTOBUF_C_TYPE_BOOL:
        *out = json_boolean(*(const protobuf_c_boolean *)at);
        break;
    case PROTOBUF_C_TYPE_INT32:
    case PROTOBUF_C_TYPE_ENUM:
        *out = json_integer(*(const int32_t *)at);
        break;
    case PROTOBUF_C_TYPE_UINT32:
        *out = json_integer(*(const uint32_t *)at);
        break;
    case PROTOBUF_C_TYPE_INT64:
        *out = json_integer(*(const int64_t *)at);
        break;
    case PROTOBUF_C_TYPE_UINT64:
        if (*(const uint64_t *)at <= INT64_MAX)
            *out = json_integer((json_int_t) * (const uint64_t *)at);
        break;
    case PROTOBUF_C_TYPE_DOUBLE:
        *out = json_real(*(const double *)at);
        break;
    case PROTOBUF_C_TYPE_STRING:
        text = *(const char *const *)at;
        *out = json_string(text ? text : "");
        break;
    case PROTOBUF_C_TYPE_MESSAGE:
        return message_to_json(*(const ProtobufCMessage *const *)at, out, err);
    default:
        break;
    }
    return *out ? SH_OK : unreadable(f, err);
}

static bool is_default(const ProtobufCFieldDescriptor *f, const void *at)
{
    static const char ZERO[8];
    const char *text;

    if (f->type == PROTOBUF_C_TYPE_STRING) {
        text = *(const char *const *)at;
        return !text || !text[0];
    }
    return memcmp(at, ZERO, pb_size(f->type)) == 0;
}

/* A parameter is its value; one without is null. */
static int choice_to_json(const ProtobufCMessage *m, json_t **out, struct sh_err *err)
{
    const char *base = (const char *)m;

    for (unsigned i = 0; i < m->descriptor->n_fields; i++) {
        const ProtobufCFieldDescriptor *f = &m->descriptor->fields[i];

        if (*(const uint32_t *)(base + f->quantifier_offset) == f->id && !is_left_out(f))
            return value_to_json(f, base + f->offset, out, err);
    }
    *out = json_null();
    return SH_OK;
}

static int list_to_json(const ProtobufCFieldDescriptor *f, const char *items, size_t n,
                        json_t **out, struct sh_err *err)
{
    const bool map = is_map(f);
    int rc = SH_OK;

    *out = map ? json_object() : json_array();
    for (size_t i = 0; !rc && i < n; i++) {
        const char *at = items + i * pb_size(f->type);
        json_t *one = NULL, *key;

        rc = value_to_json(f, at, &one, err);
        if (!rc && !map) {
            json_array_append_new(*out, one);
            continue;
        }
        key = json_object_get(one, "key");
        if (!rc)
            json_object_set(*out, key ? json_string_value(key) : "", json_object_get(one, "value"));
        json_decref(one);
    }
    return rc;
}

static int field_to_json(const ProtobufCMessage *m, const ProtobufCFieldDescriptor *f, json_t *into,
                         struct sh_err *err)
{
    const char *at = (const char *)m + f->offset;
    size_t n;
    json_t *one = NULL;
    int rc;

    if (is_left_out(f))
        return SH_OK;
    if (f->label == PROTOBUF_C_LABEL_REPEATED) {
        n = *(const size_t *)((const char *)m + f->quantifier_offset);
        if (n == 0)
            return SH_OK;
        rc = list_to_json(f, *(const char *const *)at, n, &one, err);
    } else if (is_default(f, at)) {
        return SH_OK;
    } else {
        rc = value_to_json(f, at, &one, err);
    }
    if (!rc && json_object_set(into, f->name, one))
        rc = SH_FAIL(err, SH_E_NOMEM, "could not allocate a message");
    json_decref(one);
    return rc;
}

int message_to_json(const ProtobufCMessage *m, json_t **out, struct sh_err *err)
{
    int rc = SH_OK;

    if (is_choice(m->descriptor))
        return choice_to_json(m, out, err);
    *out = json_object();
    for (unsigned i = 0; !rc && i < m->descriptor->n_fields; i++)
        rc = field_to_json(m, &m->descriptor->fields[i], *out, err);
    if (!rc)
        return SH_OK;
    json_decref(*out);
    *out = NULL;
    return rc;
}

/* ---------------------------------------------------------------- from JSON */

static size_t pb_varint(uint64_t v, unsigned char out[static MAX_VARINT])
{
    size_t n = 0;

    do {
        out[n] = (unsigned char)((v & 0x7f) | (v > 0x7f ? 0x80 : 0));
        v >>= 7;
        n++;
    } while (v);
    return n;
}

static int pb_put_varint(struct sh_buf *out, uint64_t v, struct sh_err *err)
{
    unsigned char text[MAX_VARINT];

    return sh_buf_append(out, text, pb_varint(v, text), err);
}

int message_put_head(struct sh_buf *out, uint32_t field, uint64_t bytes, struct sh_err *err)
{
    int rc = pb_put_varint(out, (uint64_t)field << 3 | WIRE_BYTES, err);

    return rc ? rc : pb_put_varint(out, bytes, err);
}

/* The length of what stands from `at` to the end goes before it. */
static int put_length_before(struct sh_buf *out, size_t at, struct sh_err *err)
{
    unsigned char text[MAX_VARINT];
    size_t bytes = out->len - at, n = pb_varint(bytes, text);
    int rc = sh_buf_append(out, text, n, err);

    if (rc)
        return rc;
    memmove(out->data + at + n, out->data + at, bytes);
    memcpy(out->data + at, text, n);
    return SH_OK;
}

static int pb_put_field(const ProtobufCFieldDescriptor *f, const json_t *j, struct sh_buf *out,
                        struct sh_err *err);

/* The member that fits the value's type. */
static int pb_put_choice(const ProtobufCMessageDescriptor *d, const json_t *j, struct sh_buf *out,
                         struct sh_err *err)
{
    for (unsigned i = 0; i < d->n_fields; i++) {
        ProtobufCType t = d->fields[i].type;

        if ((json_is_boolean(j) && t == PROTOBUF_C_TYPE_BOOL) ||
            (json_is_integer(j) && t == PROTOBUF_C_TYPE_INT64) ||
            (json_is_string(j) && t == PROTOBUF_C_TYPE_STRING) ||
            (json_is_real(j) && t == PROTOBUF_C_TYPE_DOUBLE))
            return pb_put_field(&d->fields[i], j, out, err);
    }
    return SH_OK;
}

static int pb_put_integer(const ProtobufCFieldDescriptor *f, const json_t *j, struct sh_buf *out,
                          struct sh_err *err)
{
    const ProtobufCEnumValue *named = NULL;
    int64_t v = json_is_boolean(j) ? json_is_true(j) : json_integer_value(j);
    int rc;

    if (f->type == PROTOBUF_C_TYPE_ENUM && json_is_string(j))
        named = protobuf_c_enum_descriptor_get_value_by_name(f->descriptor, json_string_value(j));
    if (named)
        v = named->value;
    rc = pb_put_varint(out, (uint64_t)f->id << 3 | WIRE_VARINT, err);
    return rc ? rc : pb_put_varint(out, (uint64_t)v, err);
}

/* One value, with the number of its field. */
static int pb_put_field(const ProtobufCFieldDescriptor *f, const json_t *j, struct sh_buf *out,
                        struct sh_err *err)
{
    double d = json_number_value(j);
    size_t at;
    int rc;

    switch (f->type) {
    case PROTOBUF_C_TYPE_STRING:
        rc = message_put_head(out, f->id, json_string_length(j), err);
        return rc ? rc : sh_buf_append(out, json_string_value(j), json_string_length(j), err);
    case PROTOBUF_C_TYPE_MESSAGE:
        rc = pb_put_varint(out, (uint64_t)f->id << 3 | WIRE_BYTES, err);
        at = out->len;
        if (!rc)
            rc = message_from_json(f->descriptor, j, out, err);
        return rc ? rc : put_length_before(out, at, err);
    case PROTOBUF_C_TYPE_DOUBLE:
        rc = pb_put_varint(out, (uint64_t)f->id << 3 | WIRE_64, err);
        return rc ? rc : sh_buf_append(out, &d, sizeof(d), err);
    default:
        return pb_put_integer(f, j, out, err);
    }
}

static int pb_put_entry(const ProtobufCFieldDescriptor *f, const char *key, json_t *value,
                        struct sh_buf *out, struct sh_err *err)
{
    json_t *entry = json_pack("{s:s, s:O}", "key", key, "value", value);
    int rc = entry ? pb_put_field(f, entry, out, err)
                   : SH_FAIL(err, SH_E_NOMEM, "could not allocate a message");

    json_decref(entry);
    return rc;
}

static int pb_put_member(const ProtobufCFieldDescriptor *f, json_t *j, struct sh_buf *out,
                         struct sh_err *err)
{
    const bool map = is_map(f);
    const char *key;
    json_t *one;
    size_t i;
    int rc = SH_OK;

    if (f->label != PROTOBUF_C_LABEL_REPEATED)
        return pb_put_field(f, j, out, err);
    json_array_foreach(j, i, one)
    {
        if (!rc)
            rc = map ? pb_put_entry(f, sh_json_text(one, "name"), one, out, err)
                     : pb_put_field(f, one, out, err);
    }
    json_object_foreach(j, key, one)
    {
        if (!rc)
            rc = pb_put_entry(f, key, one, out, err);
    }
    return rc;
}

int message_from_json(const ProtobufCMessageDescriptor *d, const json_t *j, struct sh_buf *out,
                      struct sh_err *err)
{
    int rc = SH_OK;

    if (is_choice(d))
        return pb_put_choice(d, j, out, err);
    for (unsigned i = 0; !rc && i < d->n_fields; i++) {
        json_t *one = json_object_get(j, d->fields[i].name);

        if (one && !json_is_null(one) && !is_left_out(&d->fields[i]))
            rc = pb_put_member(&d->fields[i], one, out, err);
    }
    return rc;
}
