/* framing.h - refuses requests whose end or lines two parsers could read differently.
 *
 * The HTTP library accepts Transfer-Encoding together with Content-Length, two Content-Lengths,
 * unknown codings, lines that end with a lone CR or LF, and texts with a NUL. Behind a proxy each
 * of these lets one client smuggle a request into another's connection.
 *
 * The positions of the texts show how lines end: libmicrohttpd 0.9 leaves a request's head as it
 * came and writes a NUL over each blank, colon, CR and LF that ends something. So the next text
 * must begin two bytes after the end of the last, and the head ends with four NULs. Later versions
 * check lines themselves and may move texts: leave out framing_target(), and positions do not
 * count.
 *
 * Pure. Feed it target, version and every header in order, then ask for the verdict.
 */
#ifndef SH_API_HTTP_FRAMING_H
#define SH_API_HTTP_FRAMING_H

#include "common/err.h"

#include <stddef.h>

struct framing {
    unsigned n_length, n_encoding, n_host;
    bool bad_name, bad_value, bad_length, bad_encoding, chunked;
    uint64_t length;
    const char *next; /* where the next text must begin; NULL: unknown */
    bool gap;         /* a text began elsewhere */
    bool needs_host;  /* not HTTP/1.0 */
};

/* Texts must be the library's own, not copies; BORROWED until framing_check(). */
void framing_target(struct framing *f, const char *raw);
void framing_version(struct framing *f, const char *version);

void framing_add(struct framing *f, const char *name, size_t name_len, const char *value,
                 size_t value_len);
/* framing_add() for Content-Length only; ignores other headers. */
void framing_length(struct framing *f, const char *name, size_t name_len, const char *value,
                    size_t len);
int framing_check(const struct framing *f, struct sh_err *err); /* SH_E_INVALID */

#endif
