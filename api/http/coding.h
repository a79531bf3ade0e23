/* coding.h - Content-Encoding: unpacks gzip and deflate bodies, packs texts with gzip.
 *
 * Unpacking has two limits: the size that the body may have, and its ratio to the packed size, so
 * that a few bytes cannot cost much time. Not thread-safe; no state except the unpacker's.
 */
#ifndef SH_API_HTTP_CODING_H
#define SH_API_HTTP_CODING_H

#include "common/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define CODING_TAKEN "gzip, deflate"
#define CODING_FREE_BYTES (UINT64_C(16) << 20) /* any ratio, for example zeros */
#define CODING_MAX_RATIO UINT64_C(64)          /* beyond CODING_FREE_BYTES */

/* NULL and "identity" mean unpacked, which is allowed. *packed: there is a coding. Fails:
 * SH_E_UNSUPPORTED: a coding that we do not accept. */
int coding_check(const char *content_encoding, bool *packed, struct sh_err *err);

/* Gets a piece of the unpacked body. Anything except SH_OK ends unpacking. */
typedef int coding_fn(void *arg, const char *data, size_t n, struct sh_err *err);
/* Unpacks a whole body of n bytes at `in`; fn may be NULL. *bytes: unpacked size. coding: one that
 * coding_check() has allowed. Fails: SH_E_INVALID, SH_E_TOOBIG (more than max, or the ratio), or as
 * fn. */
int coding_unpack(const char *coding, const void *in, size_t n, uint64_t max, coding_fn *fn,
                  void *arg, uint64_t *bytes, struct sh_err *err);

/* Does an Accept-Encoding (NULL: none) accept gzip? */
bool coding_accepts_gzip(const char *accept_encoding);
/* *out: OWNED, free(). level: 1 (fast) to 9 (small). */
int coding_gzip(const char *text, size_t n, int level, char **out, size_t *out_n,
                struct sh_err *err);

#endif
