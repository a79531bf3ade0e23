/* framing.h - refuses requests whose end or lines two parsers could read differently.
 *
 * The HTTP library takes Transfer-Encoding together with Content-Length, two Content-Lengths,
 * codings it does not know, lines that end with a lone CR or LF, and texts with a NUL. Behind a
 * proxy each of these lets one client put words into another's connection.
 *
 * How lines end shows in where the texts lie: libmicrohttpd 0.9 leaves a request's head as it came
 * and writes a NUL over each blank, colon, CR and LF that ends something. So the next text must
 * begin two bytes after the last one's end, and the head ends with four NULs. Later versions check
 * lines by themselves, and may move texts: leave framing_target() out, and places do not matter.
 *
 * Pure; feed target, version and every header in their order, then ask for the verdict.
 */
#ifndef SH_API_HTTP_FRAMING_H
#define SH_API_HTTP_FRAMING_H

#include "common/err.h"

#include <stddef.h>

struct framing {
    unsigned n_length, n_encoding, n_host;
    bool bad_name, bad_value, bad_length, bad_encoding, chunked;
    uint64_t length;
    const char *next; /* where the next text must begin; NULL: not known */
    bool gap;         /* a text began elsewhere */
    bool needs_host;  /* not HTTP/1.0 */
};

/* Texts are the library's own, not copies; BORROWED until framing_check(). */
void framing_target(struct framing *f, const char *raw);
void framing_version(struct framing *f, const char *version);

void framing_add(struct framing *f, const char *name, size_t name_len, const char *value,
                 size_t value_len);
/* framing_add() of a Content-Length alone; other headers are passed over. */
void framing_length(struct framing *f, const char *name, size_t name_len, const char *value,
                    size_t len);
int framing_check(const struct framing *f, struct sh_err *err); /* SH_E_INVALID */

#endif
