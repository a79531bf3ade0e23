/* hash.h - SHA-256, random bytes, hexadecimal and base64url; thin over GnuTLS. Thread-safe. */
#ifndef SH_COMMON_HASH_H
#define SH_COMMON_HASH_H

#include "common/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SH_SHA256_BYTES 32
#define SH_SHA256_HEX 65 /* with the terminating NUL */

struct sh_sha256;                                              /* running digest */
int sh_sha256_new(struct sh_sha256 **out, struct sh_err *err); /* OWNED, sh_sha256_free() */
int sh_sha256_update(struct sh_sha256 *h, const void *p, size_t n, struct sh_err *err);
/* May be called once; then only free. */
void sh_sha256_final(struct sh_sha256 *h, uint8_t out[static SH_SHA256_BYTES]);
/* The digest of what has been added so far; more may follow. */
int sh_sha256_peek(const struct sh_sha256 *h, uint8_t out[static SH_SHA256_BYTES],
                   struct sh_err *err);
void sh_sha256_free(struct sh_sha256 *h);

/* Digest of what fd holds from its position to the end; *bytes: how much. Fails: SH_E_IO.
 * Blocks. */
int sh_sha256_fd(int fd, char hex[static SH_SHA256_HEX], uint64_t *bytes, struct sh_err *err);
int sh_sha256(const void *p, size_t n, uint8_t out[static SH_SHA256_BYTES], struct sh_err *err);
int sh_hmac_sha256(const void *key, size_t key_bytes, const void *p, size_t n,
                   uint8_t out[static SH_SHA256_BYTES], struct sh_err *err);
void sh_hex(const uint8_t *p, size_t n, char *out); /* out: 2n + 1 bytes */
int sh_unhex(const char *s, uint8_t *out, size_t n, struct sh_err *err);
/* Is it a SHA-256 in hexadecimal, lower case, with `suffix` behind it and nothing else? s may be
 * NULL. */
bool sh_sha256_is_name(const char *s, const char *suffix);
int sh_hex_digit(char c); /* 0 to 15; -1: not a digit */
int sh_random(void *p, size_t n, struct sh_err *err);
void sh_base64url(const uint8_t *p, size_t n, char *out); /* no padding; out: 4*((n+2)/3) + 1 */
uint64_t sh_hash_name(const char *s); /* quick; no secret, and nothing to rely on elsewhere */
uint32_t sh_crc32c(uint32_t crc, const void *p, size_t n); /* start with 0 */

#endif
