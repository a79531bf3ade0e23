/* coding.c - see coding.h. */
#include "api/http/coding.h"

#include "common/mem.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <zlib.h>

#define BUFFER_BYTES ((size_t)64 << 10)
#define GZIP_BITS (15 + 16) /* zlib: the largest window, with gzip's head */
#define ZLIB_BITS 15

static bool is_gzip(const char *coding)
{
    return strcasecmp(coding, "gzip") == 0 || strcasecmp(coding, "x-gzip") == 0;
}

int coding_check(const char *content_encoding, bool *packed, struct sh_err *err)
{
    const char *c = content_encoding;

    *packed = c && strcasecmp(c, "identity") != 0;
    if (!*packed || is_gzip(c) || strcasecmp(c, "deflate") == 0)
        return SH_OK;
    return SH_FAIL(err, SH_E_UNSUPPORTED,
                   "Content-Encoding \"%.32s\" is not supported; use gzip or deflate, or send the "
                   "body as it is",
                   c);
}

static int check_unpacked_size(uint64_t out, uint64_t in, uint64_t max, struct sh_err *err)
{
    if (out > max)
        return SH_FAIL(err, SH_E_TOOBIG,
                       "the body is larger than %" PRIu64 " bytes when it is unpacked, the most "
                       "allowed here",
                       max);
    if (out > CODING_FREE_BYTES && out - CODING_FREE_BYTES > CODING_MAX_RATIO * in)
        return SH_FAIL(err, SH_E_TOOBIG,
                       "the body unpacks to more than %" PRIu64 " times its size; send it as it is",
                       CODING_MAX_RATIO);
    return SH_OK;
}

struct unpacking {
    z_stream z;
    uint64_t in, out, max;
    coding_fn *fn;
    void *arg;
    bool is_gzip;
};

/* One call of the library, and what it gave. *ended: the stream is complete. */
static int unpack_step(struct unpacking *u, char *buf, bool *ended, struct sh_err *err)
{
    size_t n;
    int e, rc;

    u->z.next_out = (Bytef *)buf;
    u->z.avail_out = (uInt)BUFFER_BYTES;
    e = inflate(&u->z, Z_NO_FLUSH);
    n = BUFFER_BYTES - u->z.avail_out;
    if (e == Z_MEM_ERROR)
        return SH_FAIL(err, SH_E_NOMEM, "could not allocate room to unpack a body");
    if (e != Z_OK && e != Z_STREAM_END && e != Z_BUF_ERROR)
        return SH_FAIL(err, SH_E_INVALID, "the body is not what its Content-Encoding says%s%s",
                       u->z.msg ? ": " : "", u->z.msg ? u->z.msg : "");
    if (e == Z_BUF_ERROR || (e == Z_OK && n == 0 && u->z.avail_in == 0))
        return SH_FAIL(err, SH_E_INVALID, "the compressed body ends before its end");
    *ended = e == Z_STREAM_END;
    u->out += n;
    rc = check_unpacked_size(u->out, u->in, u->max, err);
    return rc || !u->fn || n == 0 ? rc : u->fn(u->arg, buf, n, err);
}

/* A body of gzip may have several members, one behind the other. */
static int unpack_all(struct unpacking *u, char *buf, struct sh_err *err)
{
    bool ended = false;
    int rc = SH_OK;

    while (!rc && !ended) {
        rc = unpack_step(u, buf, &ended, err);
        if (rc || !ended || u->z.avail_in == 0)
            continue;
        if (!u->is_gzip || inflateReset(&u->z) != Z_OK)
            return SH_FAIL(err, SH_E_INVALID, "there is data after the end of the compressed body");
        ended = false;
    }
    return rc;
}

int coding_unpack(const char *coding, const void *in, size_t n, uint64_t max, coding_fn *fn,
                  void *arg, uint64_t *bytes, struct sh_err *err)
{
    struct unpacking u = {.in = n, .max = max, .fn = fn, .arg = arg, .is_gzip = is_gzip(coding)};
    char *buf = malloc(BUFFER_BYTES);
    int rc;

    *bytes = 0;
    if (n > UINT32_MAX) {
        rc = SH_FAIL(err, SH_E_TOOBIG, "a compressed body has at most 4 GiB");
    } else if (!buf || inflateInit2(&u.z, u.is_gzip ? GZIP_BITS : ZLIB_BITS) != Z_OK) {
        rc = SH_FAIL(err, SH_E_NOMEM, "could not allocate room to unpack a body");
    } else {
        u.z.next_in = (Bytef *)in;
        u.z.avail_in = (uInt)n;
        rc = unpack_all(&u, buf, err);
        inflateEnd(&u.z);
    }
    free(buf);
    *bytes = u.out;
    return rc;
}

/* q=0 means "not this one". */
static bool is_refused(const char *parameters, size_t n)
{
    const char *q = memchr(parameters, '=', n);

    for (size_t i = q ? (size_t)(q - parameters) + 1 : 0; q && i < n; i++)
        if (parameters[i] >= '1' && parameters[i] <= '9')
            return false;
    return q != NULL;
}

bool coding_accepts_gzip(const char *accept_encoding)
{
    const char *p = accept_encoding;

    while (p && *p) {
        size_t n = strcspn(p, ","), name;

        while (n && (*p == ' ' || *p == '\t')) {
            p++;
            n--;
        }
        name = strcspn(p, ",; \t");
        if (name == 4 && strncasecmp(p, "gzip", 4) == 0)
            return !is_refused(p + name, n - name);
        p += n + (p[n] == ',');
    }
    return false;
}

int coding_gzip(const char *text, size_t n, int level, char **out, size_t *out_n,
                struct sh_err *err)
{
    z_stream z = {0};
    size_t most;
    int rc = SH_OK;

    *out = NULL;
    *out_n = 0;
    if (n > UINT32_MAX / 2 ||
        deflateInit2(&z, level, Z_DEFLATED, GZIP_BITS, 8, Z_DEFAULT_STRATEGY) != Z_OK)
        return SH_FAIL(err, SH_E_NOMEM, "could not allocate room to compress a text");
    most = deflateBound(&z, n);
    *out = malloc(most);
    z.next_in = (Bytef *)text;
    z.avail_in = (uInt)n;
    z.next_out = (Bytef *)*out;
    z.avail_out = (uInt)most;
    if (!*out || deflate(&z, Z_FINISH) != Z_STREAM_END)
        rc = SH_FAIL(err, SH_E_NOMEM, "could not compress a text");
    *out_n = rc ? 0 : most - z.avail_out;
    deflateEnd(&z);
    if (rc) {
        free(*out);
        *out = NULL;
    }
    return rc;
}
