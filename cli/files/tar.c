/* tar.c - see tar.h. */
#include "cli/files/tar.h"

#include "common/clock.h"
#include "common/io.h"
#include "common/mem.h"
#include "common/ustar.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHUNK (1u << 20)
#define MAX_SUMS (256u << 20)

void tar_init(struct tar *t, int fd, tar_moved_fn *moved, void *arg)
{
    *t = (struct tar){.fd = fd, .moved = moved, .arg = arg};
    sh_buf_init(&t->sums, MAX_SUMS);
}

void tar_fini(struct tar *t)
{
    sh_buf_fini(&t->sums);
}

static int sum_note(struct tar *t, const char *name, uint64_t size, struct sh_sha256 *h,
                    struct sh_err *err)
{
    uint8_t sha[SH_SHA256_BYTES];
    char hex[SH_SHA256_HEX];

    sh_sha256_final(h, sha);
    sh_hex(sha, sizeof(sha), hex);
    return sh_buf_printf(&t->sums, err, "%s %" PRIu64 " %s\n", hex, size, name);
}

static bool tar_goes_on(const struct tar *t, uint64_t bytes, struct sh_err *err)
{
    if (!t->moved || t->moved(bytes, t->arg))
        return true;
    SH_FAIL(err, SH_E_CANCELLED, "interrupted");
    return false;
}

/* ---------------------------------------------------------------- writing */

static int tar_put(struct tar *t, const void *p, size_t n, struct sh_err *err)
{
    if (!tar_goes_on(t, n, err))
        return SH_E_CANCELLED;
    if (sh_write_all(t->fd, p, n))
        return SH_OK;
    return SH_FAIL_ERRNO(err, errno == ENOSPC || errno == EDQUOT ? SH_E_DISKFULL : SH_E_IO,
                         "could not write the archive: %m");
}

static int put_tar_header(struct tar *t, const char *name, uint64_t size, struct sh_err *err)
{
    char block[USTAR_BLOCK];
    int rc = ustar_write(name, size, sh_clock_wall_ms() / 1000, block, err);

    return rc ? rc : tar_put(t, block, sizeof(block), err);
}

static int put_tar_padding(struct tar *t, uint64_t size, struct sh_err *err)
{
    static const char ZERO[USTAR_BLOCK];

    return size % USTAR_BLOCK ? tar_put(t, ZERO, USTAR_BLOCK - size % USTAR_BLOCK, err) : SH_OK;
}

int tar_add_file(struct tar *t, const char *name, int from, uint64_t size, struct sh_err *err)
{
    struct sh_sha256 *h = NULL;
    char *chunk = malloc(CHUNK);
    uint64_t left = size;
    int rc =
        chunk ? sh_sha256_new(&h, err) : SH_FAIL(err, SH_E_NOMEM, "could not allocate a buffer");

    if (!rc)
        rc = put_tar_header(t, name, size, err);
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
            rc = tar_put(t, chunk, (size_t)n, err);
        left -= rc ? 0 : (uint64_t)n;
    }
    if (!rc)
        rc = put_tar_padding(t, size, err);
    if (!rc)
        rc = sum_note(t, name, size, h, err);
    sh_sha256_free(h);
    free(chunk);
    return rc;
}

int tar_add_text(struct tar *t, const char *name, const char *text, size_t len, struct sh_err *err)
{
    struct sh_sha256 *h = NULL;
    int rc = sh_sha256_new(&h, err);

    if (!rc)
        rc = put_tar_header(t, name, len, err);
    if (!rc)
        rc = sh_sha256_update(h, text, len, err);
    if (!rc)
        rc = tar_put(t, text, len, err);
    if (!rc)
        rc = put_tar_padding(t, len, err);
    if (!rc)
        rc = sum_note(t, name, len, h, err);
    sh_sha256_free(h);
    return rc;
}

int tar_finish(struct tar *t, const char *sums_name, struct sh_err *err)
{
    static const char END[2 * USTAR_BLOCK];
    size_t len = t->sums.len;
    int rc = put_tar_header(t, sums_name, len, err);

    for (size_t at = 0; !rc && at < len; at += CHUNK)
        rc = tar_put(t, t->sums.data + at, SH_MIN(len - at, (size_t)CHUNK), err);
    if (!rc)
        rc = put_tar_padding(t, len, err);
    return rc ? rc : tar_put(t, END, sizeof(END), err);
}

/* ---------------------------------------------------------------- reading */

static int tar_get(struct tar *t, void *p, size_t n, struct sh_err *err)
{
    ssize_t got;

    if (!tar_goes_on(t, n, err))
        return SH_E_CANCELLED;
    got = sh_read_all(t->fd, p, n);
    if (got < 0)
        return SH_FAIL_ERRNO(err, SH_E_IO, "could not read the backup: %m");
    if ((size_t)got < n)
        return SH_FAIL(err, SH_E_INVALID, "the backup is not whole: it ends too early");
    return SH_OK;
}

int tar_next(struct tar *t, struct tar_entry *out, struct sh_err *err)
{
    char block[USTAR_BLOCK];
    struct ustar_entry e;
    enum ustar_kind kind;
    int rc = tar_get(t, block, sizeof(block), err);

    *out = (struct tar_entry){{0}, 0};
    if (rc)
        return rc;
    kind = ustar_read(block, &e);
    if (kind == USTAR_END)
        return SH_FAIL(err, SH_E_INVALID,
                       "the backup is not whole: its list of digests is missing");
    if (kind == USTAR_BAD)
        return SH_FAIL(err, SH_E_INVALID, "this is no backup of `shunt backup`, or it is damaged");
    if (kind != USTAR_FILE || !sh_strlcpy(out->name, e.name, sizeof(out->name)))
        return SH_FAIL(err, SH_E_INVALID,
                       "the backup holds \"%.60s\", which is no plain file: `shunt backup` writes "
                       "none such",
                       e.name);
    out->size = e.size;
    return SH_OK;
}

/* text: where the bytes go; NULL: to the file `to`. */
static int entry_take(struct tar *t, const struct tar_entry *e, int to, char *text,
                      struct sh_sha256 *h, struct sh_err *err)
{
    char *chunk = text ? text : malloc(CHUNK), pad[USTAR_BLOCK];
    uint64_t left = e->size;
    int rc = chunk ? SH_OK : SH_FAIL(err, SH_E_NOMEM, "could not allocate a buffer");

    while (!rc && left > 0) {
        size_t n = (size_t)SH_MIN(left, (uint64_t)CHUNK);

        rc = tar_get(t, chunk, n, err);
        if (!rc && h)
            rc = sh_sha256_update(h, chunk, n, err);
        if (!rc && !text && !sh_write_all(to, chunk, n))
            rc = SH_FAIL_ERRNO(err, errno == ENOSPC ? SH_E_DISKFULL : SH_E_IO,
                               "could not write \"%s\": %m", e->name);
        chunk += text ? n : 0;
        left -= n;
    }
    if (!rc && e->size % USTAR_BLOCK)
        rc = tar_get(t, pad, USTAR_BLOCK - (size_t)(e->size % USTAR_BLOCK), err);
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
        rc = entry_take(t, e, to, text, h, err);
    if (!rc)
        rc = sum_note(t, e->name, e->size, h, err);
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
        rc = entry_take(t, e, -1, text, NULL, err);
    if (!rc && (e->size != t->sums.len || memcmp(text, t->sums.data, t->sums.len) != 0))
        rc = SH_FAIL(err, SH_E_INVALID,
                     "the backup is damaged: its contents are not those of its list of digests");
    free(text);
    return rc;
}
