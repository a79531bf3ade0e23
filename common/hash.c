/* hash.c - digests, random bytes and text forms of bytes. */
#include "common/hash.h"

#include "common/mem.h"

#include <errno.h>
#include <gnutls/crypto.h>
#include <gnutls/gnutls.h>
#include <stdlib.h>
#include <unistd.h>

#define FILE_CHUNK ((size_t)1 << 20)

struct sh_sha256 {
    gnutls_hash_hd_t hd;
};

static int fail_digest(struct sh_err *err, int e, const char *what)
{
    int rc = SH_FAIL(err, e == GNUTLS_E_MEMORY_ERROR ? SH_E_NOMEM : SH_E_IO, "could not %s", what);

    sh_err_detail(err, "gnutls: %s", gnutls_strerror(e));
    return rc;
}

int sh_sha256_new(struct sh_sha256 **out, struct sh_err *err)
{
    struct sh_sha256 *h = calloc(1, sizeof(*h));
    int e;

    *out = NULL;
    if (!h)
        return SH_FAIL(err, SH_E_NOMEM, "could not allocate a digest");
    e = gnutls_hash_init(&h->hd, GNUTLS_DIG_SHA256);
    if (e < 0) {
        free(h);
        return fail_digest(err, e, "start a SHA-256 digest");
    }
    *out = h;
    return SH_OK;
}

int sh_sha256_update(struct sh_sha256 *h, const void *p, size_t n, struct sh_err *err)
{
    int e = n > 0 ? gnutls_hash(h->hd, p, n) : 0;

    return e < 0 ? fail_digest(err, e, "compute a SHA-256 digest") : SH_OK;
}

void sh_sha256_final(struct sh_sha256 *h, uint8_t out[static SH_SHA256_BYTES])
{
    gnutls_hash_deinit(h->hd, out);
    h->hd = NULL;
}

int sh_sha256_peek(const struct sh_sha256 *h, uint8_t out[static SH_SHA256_BYTES],
                   struct sh_err *err)
{
    gnutls_hash_hd_t copy = gnutls_hash_copy(h->hd);

    if (!copy)
        return SH_FAIL(err, SH_E_NOMEM, "could not copy a SHA-256 digest");
    gnutls_hash_deinit(copy, out);
    return SH_OK;
}

void sh_sha256_free(struct sh_sha256 *h)
{
    if (h && h->hd)
        gnutls_hash_deinit(h->hd, NULL);
    free(h);
}

int sh_sha256_fd(int fd, char hex[static SH_SHA256_HEX], uint64_t *bytes, struct sh_err *err)
{
    struct sh_sha256 *h = NULL;
    uint8_t digest[SH_SHA256_BYTES];
    char *chunk = malloc(FILE_CHUNK);
    ssize_t n = 0;
    int rc =
        chunk ? sh_sha256_new(&h, err) : SH_FAIL(err, SH_E_NOMEM, "could not allocate a buffer");

    *bytes = 0;
    while (!rc && (n = read(fd, chunk, FILE_CHUNK)) != 0) {
        if (n < 0 && errno == EINTR)
            continue;
        rc = n < 0 ? SH_FAIL_ERRNO(err, SH_E_IO, "could not read a file for its digest")
                   : sh_sha256_update(h, chunk, (size_t)n, err);
        *bytes += n > 0 ? (uint64_t)n : 0;
    }
    if (!rc) {
        sh_sha256_final(h, digest);
        sh_hex(digest, sizeof(digest), hex);
    }
    sh_sha256_free(h);
    free(chunk);
    return rc;
}

int sh_sha256(const void *p, size_t n, uint8_t out[static SH_SHA256_BYTES], struct sh_err *err)
{
    int e = gnutls_hash_fast(GNUTLS_DIG_SHA256, n ? p : "", n, out);

    return e < 0 ? fail_digest(err, e, "compute a SHA-256 digest") : SH_OK;
}

int sh_hmac_sha256(const void *key, size_t key_bytes, const void *p, size_t n,
                   uint8_t out[static SH_SHA256_BYTES], struct sh_err *err)
{
    int e = gnutls_hmac_fast(GNUTLS_MAC_SHA256, key, key_bytes, n ? p : "", n, out);

    return e < 0 ? fail_digest(err, e, "compute an HMAC") : SH_OK;
}

void sh_hex(const uint8_t *p, size_t n, char *out)
{
    static const char DIGIT[] = "0123456789abcdef";

    for (size_t i = 0; i < n; i++) {
        out[2 * i] = DIGIT[p[i] >> 4];
        out[2 * i + 1] = DIGIT[p[i] & 15];
    }
    out[2 * n] = '\0';
}

int sh_hex_digit(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    if (c >= 'a' && c <= 'f')
        return c - 'a' + 10;
    if (c >= 'A' && c <= 'F')
        return c - 'A' + 10;
    return -1;
}

bool sh_sha256_is_name(const char *s, const char *suffix)
{
    return s && strspn(s, "0123456789abcdef") == SH_SHA256_HEX - 1 &&
           strcmp(s + SH_SHA256_HEX - 1, suffix) == 0;
}

uint64_t sh_hash_name(const char *s)
{
    uint64_t h = UINT64_C(14695981039346656037);

    for (; *s; s++)
        h = (h ^ (unsigned char)*s) * UINT64_C(1099511628211);
    return h;
}

int sh_unhex(const char *s, uint8_t *out, size_t n, struct sh_err *err)
{
    size_t i = 0;

    /* The NUL is no digit: a short string ends the loop before it is read past its end. */
    for (; i < n; i++) {
        int hi = sh_hex_digit(s[2 * i]), lo = hi < 0 ? -1 : sh_hex_digit(s[2 * i + 1]);

        if (lo < 0)
            break;
        out[i] = (uint8_t)(hi << 4 | lo);
    }
    if (i < n || s[2 * n] != '\0')
        return SH_FAIL(err, SH_E_INVALID, "the text must have exactly %zu hexadecimal digits",
                       2 * n);
    return SH_OK;
}

int sh_random(void *p, size_t n, struct sh_err *err)
{
    int e = gnutls_rnd(GNUTLS_RND_KEY, p, n);

    return e < 0 ? fail_digest(err, e, "get random bytes") : SH_OK;
}

void sh_base64url(const uint8_t *p, size_t n, char *out)
{
    static const char DIGIT[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

    for (size_t i = 0; i < n; i += 3) {
        size_t have = SH_MIN(n - i, (size_t)3);
        uint32_t v = (uint32_t)p[i] << 16;

        if (have > 1)
            v |= (uint32_t)p[i + 1] << 8;
        if (have > 2)
            v |= p[i + 2];
        for (size_t k = 0; k <= have; k++)
            *out++ = DIGIT[v >> (18 - 6 * k) & 63];
    }
    *out = '\0';
}

/* Half a byte at a time. */
static uint32_t crc_plain(uint32_t c, const uint8_t *p, size_t n)
{
    /* Remainders of four bits for the Castagnoli polynomial, bits reversed (0x82F63B78). */
    static const uint32_t CRC32C[16] = {0x00000000, 0x105ec76f, 0x20bd8ede, 0x30e349b1,
                                        0x417b1dbc, 0x5125dad3, 0x61c69362, 0x7198540d,
                                        0x82f63b78, 0x92a8fc17, 0xa24bb5a6, 0xb21572c9,
                                        0xc38d26c4, 0xd3d3e1ab, 0xe330a81a, 0xf36e6f75};

    for (size_t i = 0; i < n; i++) {
        c ^= p[i];
        c = c >> 4 ^ CRC32C[c & 15];
        c = c >> 4 ^ CRC32C[c & 15];
    }
    return c;
}

#ifdef __x86_64__
/* One instruction after the other waits for its result; three chains side by side do not. What
 * they have found is put together by shifting a register over as many zeros as follow it: its
 * product with a power of x, modulo the polynomial (M. Adler's crc32c.c has the idea). */
#define LANE_WORDS 512u
#define X_LANE 0x35d73a62u    /* x^(64 LANE_WORDS) */
#define X_2_LANES 0x28461564u /* x^(128 LANE_WORDS) */

static uint32_t crc_mul(uint32_t a, uint32_t b)
{
    uint32_t product = 0;

    for (uint32_t bit = UINT32_C(1) << 31; bit; bit >>= 1) {
        product ^= b & -(uint32_t)((a & bit) != 0);
        b = b >> 1 ^ (UINT32_C(0x82f63b78) & -(b & 1));
    }
    return product;
}

static uint64_t word_at(const uint8_t *p, size_t i)
{
    uint64_t v;

    memcpy(&v, p + 8 * i, sizeof(v));
    return v;
}

__attribute__((target("sse4.2"))) static uint32_t crc_lanes(uint32_t c, const uint8_t *p)
{
    uint64_t x = c, y = 0, z = 0;

    for (size_t i = 0; i < LANE_WORDS; i++) {
        x = __builtin_ia32_crc32di(x, word_at(p, i));
        y = __builtin_ia32_crc32di(y, word_at(p, LANE_WORDS + i));
        z = __builtin_ia32_crc32di(z, word_at(p, 2 * LANE_WORDS + i));
    }
    return crc_mul(X_2_LANES, (uint32_t)x) ^ crc_mul(X_LANE, (uint32_t)y) ^ (uint32_t)z;
}

__attribute__((target("sse4.2"))) static uint32_t crc_sse42(uint32_t c, const uint8_t *p, size_t n)
{
    uint64_t wide;

    for (; n >= 24 * LANE_WORDS; n -= 24 * LANE_WORDS, p += 24 * LANE_WORDS)
        c = crc_lanes(c, p);
    wide = c;
    for (; n >= 8; n -= 8, p += 8)
        wide = __builtin_ia32_crc32di(wide, word_at(p, 0));
    c = (uint32_t)wide;
    for (; n > 0; n--, p++)
        c = __builtin_ia32_crc32qi(c, *p);
    return c;
}
#endif

uint32_t sh_crc32c(uint32_t crc, const void *p, size_t n)
{
#ifdef __x86_64__
    if (__builtin_cpu_supports("sse4.2"))
        return ~crc_sse42(~crc, p, n);
#endif
    return ~crc_plain(~crc, p, n);
}
