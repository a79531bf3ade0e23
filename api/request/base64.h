/* base64.h - base64 as clients send it. */
#ifndef SH_API_REQUEST_BASE64_H
#define SH_API_REQUEST_BASE64_H

#include "common/err.h"

#include <stddef.h>
#include <stdint.h>

/* Both alphabets, padding optional. Fails: SH_E_INVALID unless exactly n bytes come out. */
int base64_decode(const char *s, size_t len, uint8_t *out, size_t n, struct sh_err *err);

#endif
