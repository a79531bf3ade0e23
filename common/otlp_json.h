/* otlp_json.h - spans as the JSON of OTLP, and what a collector answers.
 *
 * https://opentelemetry.io/docs/specs/otlp/#json-protobuf-encoding: ids in hexadecimal, numbers of
 * 64 bits as text, kinds and codes as numbers.
 */
#ifndef SH_COMMON_OTLP_JSON_H
#define SH_COMMON_OTLP_JSON_H

#include "common/buf.h"
#include "common/trace.h"

enum otlp_kind { OTLP_INTERNAL = 1, OTLP_SERVER = 2, OTLP_CLIENT = 3 };

struct otlp_span {
    const char *name;         /* static */
    int64_t begin_ns, end_ns; /* Unix time */
    uint64_t id, parent;      /* parent 0: none */
    uint64_t run, bytes;      /* 0: none */
    int rc;
    enum otlp_kind kind;
    uint8_t trace[SH_TRACE_ID_BYTES];
    char what[SH_TRACE_WHAT], request[SH_TRACE_ID]; /* "": none */
};

struct otlp_resource {
    char service[32], instance[96];
};

/* Appends the body of a request: n of a ring of `size` spans, from `first`. */
int otlp_print(const struct otlp_resource *r, const struct otlp_span *ring, size_t size,
               size_t first, size_t n, struct sh_buf *out, struct sh_err *err);
/* How many spans a collector that answered 2xx did not take; *why (size bytes): in its words, or
 * "". An answer that is no such JSON took all. */
uint64_t otlp_rejected(const char *body, size_t len, char *why, size_t size);

#endif
