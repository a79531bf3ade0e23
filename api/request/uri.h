/* uri.h - raw request targets: path segments and query values, decoded one by one.
 *
 * The HTTP library decodes the whole path before it can be split, which turns %2F into a separator
 * and %00 into the end. So the raw text is split first, then each piece is decoded; an encoded
 * slash or NUL is refused. Pure; thread-safe.
 */
#ifndef SH_API_REQUEST_URI_H
#define SH_API_REQUEST_URI_H

#include "common/err.h"

#define URI_MAX_BYTES 2048
#define URI_MAX_SEGMENTS 12
#define URI_MAX_QUERY 16

struct uri_pair {
    const char *name, *value; /* BORROWED from the uri's text */
};

struct uri {
    char text[URI_MAX_BYTES + 2]; /* decoded pieces, NUL-separated */
    const char *segments[URI_MAX_SEGMENTS];
    size_t n_segments;
    struct uri_pair query[URI_MAX_QUERY];
    size_t n_query;
};

/* Fails: SH_E_INVALID, SH_E_TOOBIG. Pointers in *out point into *out: copy it with uri_copy(). */
int uri_parse(const char *raw, struct uri *out, struct sh_err *err);
void uri_copy(const struct uri *from, struct uri *to);
const char *uri_query(const struct uri *u, const char *name); /* NULL if absent */

#endif
