/* tensors.h - an inference request as a message, to the body that it has over HTTP, and the answer
 * back. Tensors are bytes in both; numbers of a message (contents) become bytes. Pure; thread-safe.
 */
#ifndef SH_API_GRPC_TENSORS_H
#define SH_API_GRPC_TENSORS_H

#include "api/cache/catalog.h"
#include "api/grpc/methods.h"

#include <sys/uio.h>

struct tensors { /* a body: JSON, then the parts; zeroed before tensors_read() */
    char *json;  /* OWNED */
    size_t json_bytes, bytes;
    struct iovec part[CAT_MAX_IO]; /* BORROWED from the message, or from typed */
    size_t n_parts;
    char *typed; /* OWNED: tensors that were numbers */
};

/* Reads a ModelInferRequest. max_head: the most bytes that it may have beside raw tensors.
 * timeout_us: what is left until the call's deadline; 0: it has none. uri: gets the URL, of m. The
 * parts point into data. Fails: SH_E_INVALID, SH_E_TOOBIG. */
int tensors_read(const struct grpc_method *m, const void *data, size_t n, size_t max_head,
                 int64_t timeout_us, struct tensors *out, struct sh_buf *uri, struct sh_err *err);
void tensors_drop(struct tensors *t);

/* The answer to m: head is the JSON part of a reply over HTTP, with n_parts tensors behind it.
 * Appends to text, which is empty, the bytes that are to stand before, between and behind them, the
 * prefix of a message first: ends[i] is where those end that stand before part i. ends has room for
 * n_parts. Fails: SH_E_TOOBIG. */
int tensors_answer(const struct grpc_method *m, const char *head, size_t head_bytes, size_t n_parts,
                   struct sh_buf *text, size_t *ends, struct sh_err *err);
/* Appends a failure as an answer within a stream. */
int tensors_answer_failure(const char *msg, struct sh_buf *text, struct sh_err *err);

#endif
