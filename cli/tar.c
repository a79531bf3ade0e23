/* tar.c - see tar.h. */
#include "cli/tar.h"

#include "common/clock.h"
#include "common/io.h"
#include "common/mem.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BLOCK 512u
#define CHUNK (1u << 20)
#define MAX_SUMS (256u << 20)
#define OCTAL_MAX 077777777777ull /* what 11 digits hold; above it is binary, as GNU tar has it */

struct header { /* ustar */
    char name[100], mode[8], uid[8], gid[8], size[12], mtime[12], sum[8], type, link[100];
    char magic[6], version[2], uname[32], gname[32], major[8], minor[8], prefix[155], pad[12];
};
_Static_assert(sizeof(struct header) == BLOCK, "a header is one block");

void tar_init(struct tar *t, int fd, tar_moved_fn *moved, void *arg)
{
    *t = (struct tar){.fd = fd, .moved = moved, .arg = arg};
    sh_buf_init(&t->sums, MAX_SUMS);
}

void tar_fini(struct tar *t)
{
    sh_buf_fini(&t->sums);
}

static unsigned checksum(const struct header *h)
{
    const unsigned char *p = (const unsigned char *)h;
    unsigned sum = 0;

    for (size_t i = 0; i < BLOCK; i++) {
        bool own =
            i >= offsetof(struct header, sum) && i < offsetof(struct header, sum) + sizeof(h->sum);

        sum += own ? ' ' : p[i];
    }
    return sum;
}

static int note(struct tar *t, const char *name, uint64_t size, struct sh_sha256 *h,
                struct sh_err *err)
{
    uint8_t sha[SH_SHA256_BYTES];
    char hex[SH_SHA256_HEX];

    sh_sha256_final(h, sha);
    sh_hex(sha, sizeof(sha), hex);
    return sh_buf_printf(&t->sums, err, "%s %" PRIu64 " %s\n", hex, size, name);
}

static bool go_on(const struct tar *t, uint64_t bytes, struct sh_err *err)
{
    if (!t->moved || t->moved(bytes, t->arg))
        return true;
    SH_FAIL(err, SH_E_CANCELLED, "interrupted");
    return false;
}

/* ---------------------------------------------------------------- writing */

static int put(struct tar *t, const void *p, size_t n, struct sh_err *err)
{
    if (!go_on(t, n, err))
        return SH_E_CANCELLED;
    if (sh_write_all(t->fd, p, n))
        return SH_OK;
    return SH_FAIL_ERRNO(err, errno == ENOSPC || errno == EDQUOT ? SH_E_DISKFULL : SH_E_IO,
                         "could not write the archive: %m");
}

static int put_header(struct tar *t, const char *name, uint64_t size, struct sh_err *err)
{
    struct header h = {.type = '0'};

    if (!sh_strlcpy(h.name, name, sizeof(h.name)))
        return SH_FAIL(err, SH_E_TOOBIG, "the name \"%s\" is too long for an archive", name);
    memcpy(h.mode, "0000600", 8);
    memcpy(h.uid, "0000000", 8);
    memcpy(h.gid, "0000000", 8);
    memcpy(h.magic, "ustar", 6);
    memcpy(h.version, "00", 2);
    snprintf(h.mtime, sizeof(h.mtime), "%011" PRIo64, (uint64_t)(sh_clock_wall_ms() / 1000));
    if (size <= OCTAL_MAX) {
        char digits[24];

        snprintf(digits, sizeof(digits), "%011" PRIo64, size);
        memcpy(h.size, digits, sizeof(h.size));
    } else {
        h.size[0] = (char)0x80;
        for (size_t i = 0; i < 8; i++)
            h.size[11 - i] = (char)(size >> (8 * i) & 0xff);
    }
    snprintf(h.sum, sizeof(h.sum), "%06o", checksum(&h));
    h.sum[7] = ' ';
    return put(t, &h, sizeof(h), err);
}

static int put_padding(struct tar *t, uint64_t size, struct sh_err *err)
{
    static const char ZERO[BLOCK];

    return size % BLOCK ? put(t, ZERO, BLOCK - size % BLOCK, err) : SH_OK;
}

int tar_add_file(struct tar *t, const char *name, int from, uint64_t size, struct sh_err *err)
{
    struct sh_sha256 *h = NULL;
    char *chunk = malloc(CHUNK);
    uint64_t left = size;
    int rc =
        chunk ? sh_sha256_new(&h, err) : SH_FAIL(err, SH_E_NOMEM, "could not allocate a buffer");

    if (!rc)
        rc = put_header(t, name, size, err);
    while (!rc && left > 0) {
        ssize_t want = (ssize_t)SH_MIN(left, (uint64_t)CHUNK);
        ssize_t n = sh_read_all(from, chunk, (size_t)want);

        if (n < 0)
            rc = SH_FAIL_ERRNO(err, SH_E_IO, "could not read \"%s\": %m", name);
        else if (n < want)
            rc = SH_FAIL(err, SH_E_IO, "\"%s\" became shorter while it was read", name);
        if (!rc)
            rc = sh_sha256_update(h, chunk, (size_t)n, err);
        if (!rc)
            rc = put(t, chunk, (size_t)n, err);
        left -= rc ? 0 : (uint64_t)n;
    }
    if (!rc)
        rc = put_padding(t, size, err);
    if (!rc)
        rc = note(t, name, size, h, err);
    sh_sha256_free(h);
    free(chunk);
    return rc;
}

int tar_add_text(struct tar *t, const char *name, const char *text, size_t len, struct sh_err *err)
{
    struct sh_sha256 *h = NULL;
    int rc = sh_sha256_new(&h, err);

    if (!rc)
        rc = put_header(t, name, len, err);
    if (!rc)
        rc = sh_sha256_update(h, text, len, err);
    if (!rc)
        rc = put(t, text, len, err);
    if (!rc)
        rc = put_padding(t, len, err);
    if (!rc)
        rc = note(t, name, len, h, err);
    sh_sha256_free(h);
    return rc;
}

int tar_finish(struct tar *t, const char *sums_name, struct sh_err *err)
{
    static const char END[2 * BLOCK];
    size_t len = t->sums.len;
    int rc = put_header(t, sums_name, len, err);

    for (size_t at = 0; !rc && at < len; at += CHUNK)
        rc = put(t, t->sums.data + at, SH_MIN(len - at, (size_t)CHUNK), err);
    if (!rc)
        rc = put_padding(t, len, err);
    return rc ? rc : put(t, END, sizeof(END), err);
}

/* ---------------------------------------------------------------- reading */

static int get(struct tar *t, void *p, size_t n, struct sh_err *err)
{
    ssize_t got;

    if (!go_on(t, n, err))
        return SH_E_CANCELLED;
    got = sh_read_all(t->fd, p, n);
    if (got < 0)
        return SH_FAIL_ERRNO(err, SH_E_IO, "could not read the backup: %m");
    if ((size_t)got < n)
        return SH_FAIL(err, SH_E_INVALID, "the backup is not whole: it ends too early");
    return SH_OK;
}

static bool read_octal(const char *p, size_t n, uint64_t *out)
{
    size_t i = 0;

    *out = 0;
    while (i < n && p[i] >= '0' && p[i] <= '7')
        *out = *out * 8 + (uint64_t)(p[i++] - '0');
    return i > 0 && (i == n || p[i] == '\0' || p[i] == ' ');
}

static bool read_size(const struct header *h, uint64_t *out)
{
    if (!((unsigned char)h->size[0] & 0x80))
        return read_octal(h->size, sizeof(h->size), out);
    *out = 0;
    for (size_t i = 4; i < sizeof(h->size); i++)
        *out = *out << 8 | (unsigned char)h->size[i];
    return (unsigned char)h->size[0] == 0x80 && !h->size[1] && !h->size[2] && !h->size[3] &&
           *out <= INT64_MAX;
}

int tar_next(struct tar *t, struct tar_entry *out, struct sh_err *err)
{
    struct header h;
    uint64_t sum = 0;
    int rc = get(t, &h, sizeof(h), err);

    *out = (struct tar_entry){{0}, 0};
    if (rc)
        return rc;
    if (h.name[0] == '\0')
        return SH_FAIL(err, SH_E_INVALID,
                       "the backup is not whole: its list of digests is missing");
    if (memcmp(h.magic, "ustar", 5) != 0 || !read_octal(h.sum, sizeof(h.sum), &sum) ||
        sum != checksum(&h) || !read_size(&h, &out->size))
        return SH_FAIL(err, SH_E_INVALID, "this is no backup of `shunt backup`, or it is damaged");
    if ((h.type != '0' && h.type != '\0') || h.link[0] || h.prefix[0] ||
        !memchr(h.name, '\0', sizeof(h.name)))
        return SH_FAIL(err, SH_E_INVALID,
                       "the backup holds \"%.60s\", which is no plain file: `shunt backup` writes "
                       "none such",
                       h.name);
    memcpy(out->name, h.name, sizeof(out->name));
    return SH_OK;
}

/* text: where the bytes go; NULL: to the file `to`. */
static int take(struct tar *t, const struct tar_entry *e, int to, char *text, struct sh_sha256 *h,
                struct sh_err *err)
{
    char *chunk = text ? text : malloc(CHUNK), pad[BLOCK];
    uint64_t left = e->size;
    int rc = chunk ? SH_OK : SH_FAIL(err, SH_E_NOMEM, "could not allocate a buffer");

    while (!rc && left > 0) {
        size_t n = (size_t)SH_MIN(left, (uint64_t)CHUNK);

        rc = get(t, chunk, n, err);
        if (!rc && h)
            rc = sh_sha256_update(h, chunk, n, err);
        if (!rc && !text && !sh_write_all(to, chunk, n))
            rc = SH_FAIL_ERRNO(err, errno == ENOSPC ? SH_E_DISKFULL : SH_E_IO,
                               "could not write \"%s\": %m", e->name);
        chunk += text ? n : 0;
        left -= n;
    }
    if (!rc && e->size % BLOCK)
        rc = get(t, pad, BLOCK - (size_t)(e->size % BLOCK), err);
    if (!text)
        free(chunk);
    return rc;
}

static int take_and_note(struct tar *t, const struct tar_entry *e, int to, char *text,
                         struct sh_err *err)
{
    struct sh_sha256 *h = NULL;
    int rc = sh_sha256_new(&h, err);

    if (!rc)
        rc = take(t, e, to, text, h, err);
    if (!rc)
        rc = note(t, e->name, e->size, h, err);
    sh_sha256_free(h);
    return rc;
}

int tar_take_file(struct tar *t, const struct tar_entry *e, int to, struct sh_err *err)
{
    return take_and_note(t, e, to, NULL, err);
}

static int new_text(const struct tar_entry *e, size_t max, char **out, struct sh_err *err)
{
    *out = NULL;
    if (e->size > max)
        return SH_FAIL(err, SH_E_INVALID, "\"%s\" of the backup has more than %zu bytes", e->name,
                       max);
    *out = calloc(1, (size_t)e->size + 1);
    return *out ? SH_OK : SH_FAIL(err, SH_E_NOMEM, "could not allocate a text");
}

int tar_take_text(struct tar *t, const struct tar_entry *e, size_t max, char **out,
                  struct sh_err *err)
{
    int rc = new_text(e, max, out, err);

    if (!rc)
        rc = take_and_note(t, e, -1, *out, err);
    if (rc) {
        free(*out);
        *out = NULL;
    }
    return rc;
}

int tar_check(struct tar *t, const struct tar_entry *e, struct sh_err *err)
{
    char *text = NULL;
    int rc = new_text(e, MAX_SUMS, &text, err);

    if (!rc)
        rc = take(t, e, -1, text, NULL, err);
    if (!rc && (e->size != t->sums.len || memcmp(text, t->sums.data, t->sums.len) != 0))
        rc = SH_FAIL(err, SH_E_INVALID,
                     "the backup is damaged: its contents are not those of its list of digests");
    free(text);
    return rc;
}
