/* message.h - protobuf messages to JSON and back, by their descriptions: a field of a message and a
 * member of the protocol's JSON have the same name. Pure; thread-safe.
 *
 * Fields of bytes, and "contents" of tensors, are left out of the JSON: tensors.h has them. A map
 * is an object; a parameter is its value.
 */
#ifndef SH_API_GRPC_MESSAGE_H
#define SH_API_GRPC_MESSAGE_H

#include "common/buf.h"
#include "common/json.h"

#include <protobuf-c/protobuf-c.h>

/* What a message takes unpacked is limited in proportion to its length, so that a few bytes cannot
 * cost much. *out: OWNED, message_free(). Fails: SH_E_INVALID, SH_E_TOOBIG. */
int message_unpack(const ProtobufCMessageDescriptor *d, const void *data, size_t n,
                   ProtobufCMessage **out, struct sh_err *err);
void message_free(ProtobufCMessage *m); /* NULL is allowed */
/* *out: OWNED, an object. Fails: SH_E_INVALID: text that is no UTF-8, a number beyond 2^63. */
int message_to_json(const ProtobufCMessage *m, json_t **out, struct sh_err *err);
/* Appends the message of j, packed. Members that d has no field for are left out. A map may be an
 * array of objects too, which are found by their "name". */
int message_from_json(const ProtobufCMessageDescriptor *d, const json_t *j, struct sh_buf *out,
                      struct sh_err *err);
/* Appends the head of a field of bytes or of a message: its number and length. */
int message_put_head(struct sh_buf *out, uint32_t field, uint64_t bytes, struct sh_err *err);

#endif
