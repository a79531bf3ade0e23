/* status.h - what gRPC says in headers and trailers: how a call ended, and by when it has to. Pure;
 * thread-safe. */
#ifndef SH_API_GRPC_STATUS_H
#define SH_API_GRPC_STATUS_H

#include "common/buf.h"

enum grpc_status {
    GRPC_OK = 0,
    GRPC_CANCELLED = 1,
    GRPC_UNKNOWN = 2,
    GRPC_INVALID_ARGUMENT = 3,
    GRPC_DEADLINE_EXCEEDED = 4,
    GRPC_NOT_FOUND = 5,
    GRPC_PERMISSION_DENIED = 7,
    GRPC_RESOURCE_EXHAUSTED = 8,
    GRPC_FAILED_PRECONDITION = 9,
    GRPC_ABORTED = 10,
    GRPC_UNIMPLEMENTED = 12,
    GRPC_INTERNAL = 13,
    GRPC_UNAVAILABLE = 14,
    GRPC_UNAUTHENTICATED = 16,
};

/* Of a result, as sh_rc_http() has its HTTP status. http: a status that the handler has chosen; 0:
 * none. */
enum grpc_status grpc_status_of(int rc, int http);
const char *grpc_status_name(enum grpc_status s); /* static: "NOT_FOUND" */
/* Appends a text as grpc-message carries it: percent-encoded. */
int grpc_put_message(struct sh_buf *out, const char *text, struct sh_err *err);
/* "100m", as grpc-timeout has it, to nanoseconds: 1 to 8 digits and a unit (H, M, S, m, u, n).
 * Fails: SH_E_INVALID. */
int grpc_parse_timeout(const char *text, int64_t *ns, struct sh_err *err);

#endif
