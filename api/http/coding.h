/* coding.h - Content-Encoding: bodies that come by gzip or deflate, texts that go by gzip.
 *
 * What is unpacked is bounded twice: by the size that the body may have, and by its ratio to what
 * came, so that a few bytes cannot cost much time. Not thread-safe; no state but the unpacker's.
 */
#ifndef SH_API_HTTP_CODING_H
#define SH_API_HTTP_CODING_H

#include "common/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define CODING_TAKEN "gzip, deflate"
#define CODING_FREE_BYTES (UINT64_C(16) << 20) /* any ratio, zeros for instance */
#define CODING_MAX_RATIO UINT64_C(64)          /* beyond that */

/* NULL and "identity": none, and that is allowed. *packed: whether there is one. Fails:
 * SH_E_UNSUPPORTED, it is none that we take. */
int coding_check(const char *content_encoding, bool *packed, struct sh_err *err);

/* A piece of what is unpacked. Anything but SH_OK ends it. */
typedef int coding_fn(void *arg, const char *data, size_t n, struct sh_err *err);
/* Unpacks a whole body of `in` bytes; fn may be NULL. *bytes: how many came out. coding is one that
 * coding_check() has allowed. Fails: SH_E_INVALID, SH_E_TOOBIG (more than max, or the ratio), what
 * fn returns. */
int coding_unpack(const char *coding, const void *in, size_t n, uint64_t max, coding_fn *fn,
                  void *arg, uint64_t *bytes, struct sh_err *err);

/* Does an Accept-Encoding (NULL: none) take gzip? */
bool coding_accepts_gzip(const char *accept_encoding);
/* *out: OWNED, free(). level: 1 (fast) to 9 (small). */
int coding_gzip(const char *text, size_t n, int level, char **out, size_t *out_n,
                struct sh_err *err);

#endif
