/* framing.h - refuses requests whose length two parsers could read differently.
 *
 * The HTTP library takes Transfer-Encoding together with Content-Length, two Content-Lengths, and
 * codings it does not know. Behind a proxy each of these lets one client put words into another's
 * connection. Pure; feed every header, then ask for the verdict.
 */
#ifndef SH_API_FRAMING_H
#define SH_API_FRAMING_H

#include "common/err.h"

#include <stddef.h>

struct framing {
    unsigned n_length, n_encoding, n_host;
    bool bad_name, bad_length, bad_encoding, chunked;
    uint64_t length;
};

void framing_add(struct framing *f, const char *name, size_t name_len, const char *value,
                 size_t value_len);
int framing_check(const struct framing *f, struct sh_err *err); /* SH_E_INVALID */

#endif
