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

static int fail_gnutls(struct sh_err *err, int e, const char *what)
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
        return fail_gnutls(err, e, "start a SHA-256 digest");
    }
    *out = h;
    return SH_OK;
}

int sh_sha256_update(struct sh_sha256 *h, const void *p, size_t n, struct sh_err *err)
{
    int e = n > 0 ? gnutls_hash(h->hd, p, n) : 0;

    return e < 0 ? fail_gnutls(err, e, "compute a SHA-256 digest") : SH_OK;
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

    return e < 0 ? fail_gnutls(err, e, "compute a SHA-256 digest") : SH_OK;
}

int sh_hmac_sha256(const void *key, size_t key_bytes, const void *p, size_t n,
                   uint8_t out[static SH_SHA256_BYTES], struct sh_err *err)
{
    int e = gnutls_hmac_fast(GNUTLS_MAC_SHA256, key, key_bytes, n ? p : "", n, out);

    return e < 0 ? fail_gnutls(err, e, "compute an HMAC") : SH_OK;
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

    return e < 0 ? fail_gnutls(err, e, "get random bytes") : SH_OK;
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

/* Remainders of every byte for the Castagnoli polynomial, bits reversed (0x82F63B78). */
/* clang-format off */
static const uint32_t CRC32C[256] = {
    0x00000000, 0xf26b8303, 0xe13b70f7, 0x1350f3f4, 0xc79a971f, 0x35f1141c, 0x26a1e7e8, 0xd4ca64eb,
    0x8ad958cf, 0x78b2dbcc, 0x6be22838, 0x9989ab3b, 0x4d43cfd0, 0xbf284cd3, 0xac78bf27, 0x5e133c24,
    0x105ec76f, 0xe235446c, 0xf165b798, 0x030e349b, 0xd7c45070, 0x25afd373, 0x36ff2087, 0xc494a384,
    0x9a879fa0, 0x68ec1ca3, 0x7bbcef57, 0x89d76c54, 0x5d1d08bf, 0xaf768bbc, 0xbc267848, 0x4e4dfb4b,
    0x20bd8ede, 0xd2d60ddd, 0xc186fe29, 0x33ed7d2a, 0xe72719c1, 0x154c9ac2, 0x061c6936, 0xf477ea35,
    0xaa64d611, 0x580f5512, 0x4b5fa6e6, 0xb93425e5, 0x6dfe410e, 0x9f95c20d, 0x8cc531f9, 0x7eaeb2fa,
    0x30e349b1, 0xc288cab2, 0xd1d83946, 0x23b3ba45, 0xf779deae, 0x05125dad, 0x1642ae59, 0xe4292d5a,
    0xba3a117e, 0x4851927d, 0x5b016189, 0xa96ae28a, 0x7da08661, 0x8fcb0562, 0x9c9bf696, 0x6ef07595,
    0x417b1dbc, 0xb3109ebf, 0xa0406d4b, 0x522bee48, 0x86e18aa3, 0x748a09a0, 0x67dafa54, 0x95b17957,
    0xcba24573, 0x39c9c670, 0x2a993584, 0xd8f2b687, 0x0c38d26c, 0xfe53516f, 0xed03a29b, 0x1f682198,
    0x5125dad3, 0xa34e59d0, 0xb01eaa24, 0x42752927, 0x96bf4dcc, 0x64d4cecf, 0x77843d3b, 0x85efbe38,
    0xdbfc821c, 0x2997011f, 0x3ac7f2eb, 0xc8ac71e8, 0x1c661503, 0xee0d9600, 0xfd5d65f4, 0x0f36e6f7,
    0x61c69362, 0x93ad1061, 0x80fde395, 0x72966096, 0xa65c047d, 0x5437877e, 0x4767748a, 0xb50cf789,
    0xeb1fcbad, 0x197448ae, 0x0a24bb5a, 0xf84f3859, 0x2c855cb2, 0xdeeedfb1, 0xcdbe2c45, 0x3fd5af46,
    0x7198540d, 0x83f3d70e, 0x90a324fa, 0x62c8a7f9, 0xb602c312, 0x44694011, 0x5739b3e5, 0xa55230e6,
    0xfb410cc2, 0x092a8fc1, 0x1a7a7c35, 0xe811ff36, 0x3cdb9bdd, 0xceb018de, 0xdde0eb2a, 0x2f8b6829,
    0x82f63b78, 0x709db87b, 0x63cd4b8f, 0x91a6c88c, 0x456cac67, 0xb7072f64, 0xa457dc90, 0x563c5f93,
    0x082f63b7, 0xfa44e0b4, 0xe9141340, 0x1b7f9043, 0xcfb5f4a8, 0x3dde77ab, 0x2e8e845f, 0xdce5075c,
    0x92a8fc17, 0x60c37f14, 0x73938ce0, 0x81f80fe3, 0x55326b08, 0xa759e80b, 0xb4091bff, 0x466298fc,
    0x1871a4d8, 0xea1a27db, 0xf94ad42f, 0x0b21572c, 0xdfeb33c7, 0x2d80b0c4, 0x3ed04330, 0xccbbc033,
    0xa24bb5a6, 0x502036a5, 0x4370c551, 0xb11b4652, 0x65d122b9, 0x97baa1ba, 0x84ea524e, 0x7681d14d,
    0x2892ed69, 0xdaf96e6a, 0xc9a99d9e, 0x3bc21e9d, 0xef087a76, 0x1d63f975, 0x0e330a81, 0xfc588982,
    0xb21572c9, 0x407ef1ca, 0x532e023e, 0xa145813d, 0x758fe5d6, 0x87e466d5, 0x94b49521, 0x66df1622,
    0x38cc2a06, 0xcaa7a905, 0xd9f75af1, 0x2b9cd9f2, 0xff56bd19, 0x0d3d3e1a, 0x1e6dcdee, 0xec064eed,
    0xc38d26c4, 0x31e6a5c7, 0x22b65633, 0xd0ddd530, 0x0417b1db, 0xf67c32d8, 0xe52cc12c, 0x1747422f,
    0x49547e0b, 0xbb3ffd08, 0xa86f0efc, 0x5a048dff, 0x8ecee914, 0x7ca56a17, 0x6ff599e3, 0x9d9e1ae0,
    0xd3d3e1ab, 0x21b862a8, 0x32e8915c, 0xc083125f, 0x144976b4, 0xe622f5b7, 0xf5720643, 0x07198540,
    0x590ab964, 0xab613a67, 0xb831c993, 0x4a5a4a90, 0x9e902e7b, 0x6cfbad78, 0x7fab5e8c, 0x8dc0dd8f,
    0xe330a81a, 0x115b2b19, 0x020bd8ed, 0xf0605bee, 0x24aa3f05, 0xd6c1bc06, 0xc5914ff2, 0x37faccf1,
    0x69e9f0d5, 0x9b8273d6, 0x88d28022, 0x7ab90321, 0xae7367ca, 0x5c18e4c9, 0x4f48173d, 0xbd23943e,
    0xf36e6f75, 0x0105ec76, 0x12551f82, 0xe03e9c81, 0x34f4f86a, 0xc69f7b69, 0xd5cf889d, 0x27a40b9e,
    0x79b737ba, 0x8bdcb4b9, 0x988c474d, 0x6ae7c44e, 0xbe2da0a5, 0x4c4623a6, 0x5f16d052, 0xad7d5351,
};
/* clang-format on */

static uint32_t crc_table(uint32_t c, const uint8_t *p, size_t n)
{
    for (size_t i = 0; i < n; i++)
        c = c >> 8 ^ CRC32C[(c ^ p[i]) & 255];
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
    return ~crc_table(~crc, p, n);
}
