/* constant.h - a text that is the same for everybody as long as the process lives, ready to send:
 * with its digest as ETag, and packed for clients that accept gzip. */
#ifndef SH_API_HTTP_CONSTANT_H
#define SH_API_HTTP_CONSTANT_H

#include "api/request/req.h"
#include "common/hash.h"

struct constant {
    const char *text; /* BORROWED; outlives it */
    size_t n;
    const char *type; /* BORROWED: Content-Type */
    char *packed;     /* OWNED */
    size_t packed_n;
    char digest[SH_SHA256_HEX];
};

/* constant_fini() also after a failure. Fails: SH_E_NOMEM. */
int constant_init(struct constant *c, const char *text, size_t n, const char *type,
                  struct sh_err *err);
void constant_fini(struct constant *c);
/* Sets q->reply to it, or to 304. Does not block. */
void constant_reply(const struct constant *c, struct api_req *q);

#endif
