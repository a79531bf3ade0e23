/* methods.h - every call of the service, and the request over HTTP that it is. A call is translated
 * to that request, goes the same way, and its answer is translated back: so no call can do more, or
 * less, than its URL. Pure; thread-safe. */
#ifndef SH_API_GRPC_METHODS_H
#define SH_API_GRPC_METHODS_H

#include "common/buf.h"
#include "common/json.h"

#include <protobuf-c/protobuf-c.h>

enum grpc_kind { CALL_JSON, CALL_INFER, CALL_STREAM };

struct grpc_method {
    const char *name;
    enum grpc_kind kind;
    const char *verb;
    /* {field} stands for a field of the message; a part in [] is left out if its field is empty. */
    const char *path;
    const ProtobufCMessageDescriptor *in, *out;
    const char *member; /* of the answer, which the JSON is; NULL: the JSON is the answer */
    bool no_is_answer;  /* a model that is not there is not ready: an answer, not a failure */
};

/* The method of a :path; NULL: none. */
const struct grpc_method *method_find(const char *path);
extern const struct grpc_method GRPC_METHODS[];
extern const size_t GRPC_N_METHODS;

/* The URL of a request whose message is j, and takes the fields that are in it out of j. j NULL:
 * every field is "-"; for who wants to know what kind of URL it is. */
int method_uri(const struct grpc_method *m, json_t *j, struct sh_buf *out, struct sh_err *err);
/* Unpacks a message of CALL_JSON. *out: OWNED. */
int method_read(const struct grpc_method *m, const void *data, size_t n, json_t **out,
                struct sh_err *err);
/* Appends the packed answer. j: NULL is empty. */
int method_write(const struct grpc_method *m, const json_t *j, struct sh_buf *out,
                 struct sh_err *err);

#endif
