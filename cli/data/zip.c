/* zip.c - see zip.h. The format: PKWARE's APPNOTE.TXT, sections 4.3 to 4.5. */
#include "cli/data/zip.h"

#include "cli/data/setfile.h"
#include "cli/files/user_file.h"
#include "common/io.h"
#include "common/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include <zlib.h>

#define CHUNK ((size_t)1 << 18)
#define END_BYTES 22u    /* of the record at the end, without its comment */
#define END64_FINDER 20u /* of what stands before it in a file of zip64 */
#define END64_BYTES 56u  /* and of the record which that finds */
#define ENTRY_BYTES 46u  /* of an entry of the list, without its name */
#define LOCAL_BYTES 30u  /* of what stands before a member, without its name */
#define MAX_COMMENT 65535u
#define STORED 0u
#define DEFLATED 8u
#define ENCRYPTED 1u /* of the flags */
#define EXTRA_64 1u

struct zip {
    const char *path;
    const uint8_t *p; /* mapped */
    uint64_t bytes;
    int fd;
};

static uint64_t get_le(const uint8_t *p, size_t n)
{
    uint64_t v = 0;

    for (size_t i = n; i-- > 0;)
        v = v << 8 | p[i];
    return v;
}

static bool zip_holds(const struct zip *z, uint64_t at, uint64_t n)
{
    return at <= z->bytes && n <= z->bytes - at;
}

static bool zip_has(const struct zip *z, uint64_t at, uint64_t n, const char *magic)
{
    return zip_holds(z, at, n) && memcmp(z->p + at, magic, 4) == 0;
}

static int broken_zip(const struct zip *z, struct sh_err *err)
{
    return SH_FAIL(err, SH_E_INVALID, "\"%s\" is a damaged zip file, or cut off", z->path);
}

/* Where the list is, and how many entries it has. */
static int find_list(const struct zip *z, uint64_t *at, uint64_t *n, struct sh_err *err)
{
    for (uint64_t back = END_BYTES; back <= z->bytes && back <= END_BYTES + MAX_COMMENT; back++) {
        const uint64_t end = z->bytes - back;
        const uint8_t *p = z->p + end;

        if (memcmp(p, "PK\5\6", 4) != 0)
            continue;
        *n = get_le(p + 10, 2);
        *at = get_le(p + 16, 4);
        if (end < END64_FINDER || !zip_has(z, end - END64_FINDER, END64_FINDER, "PK\6\7"))
            return SH_OK;
        *at = get_le(z->p + end - END64_FINDER + 8, 8);
        if (!zip_has(z, *at, END64_BYTES, "PK\6\6"))
            return broken_zip(z, err);
        p = z->p + *at;
        *n = get_le(p + 32, 8);
        *at = get_le(p + 48, 8);
        return SH_OK;
    }
    return broken_zip(z, err);
}

/* Numbers that do not fit 32 bits stand behind the name, those of them alone, in this order. */
static bool take_large(const uint8_t *extra, size_t len, uint64_t *const values[3])
{
    while (len >= 4) {
        const size_t n = (size_t)get_le(extra + 2, 2);
        const bool is_it = get_le(extra, 2) == EXTRA_64;
        size_t at = 4;

        if (n > len - 4)
            return false;
        for (size_t i = 0; is_it && i < 3; i++)
            if (*values[i] == UINT32_MAX) {
                if (at + 8 > 4 + n)
                    return false;
                *values[i] = get_le(extra + at, 8);
                at += 8;
            }
        extra += 4 + n;
        len -= 4 + n;
    }
    return true;
}

/* *at: of the next entry. name: OWNED. */
static int read_zip_entry(const struct zip *z, uint64_t *at, struct zip_member *m, char **name,
                          struct sh_err *err)
{
    const uint8_t *p, *local;
    size_t n_name, n_extra, n_comment;
    uint64_t head;

    if (!zip_has(z, *at, ENTRY_BYTES, "PK\1\2"))
        return broken_zip(z, err);
    p = z->p + *at;
    n_name = (size_t)get_le(p + 28, 2);
    n_extra = (size_t)get_le(p + 30, 2);
    n_comment = (size_t)get_le(p + 32, 2);
    if (!zip_holds(z, *at + ENTRY_BYTES, n_name + n_extra + n_comment))
        return broken_zip(z, err);
    *m = (struct zip_member){.zip = z->path, .fd = z->fd, .packed = get_le(p + 20, 4)};
    m->crc = (uint32_t)get_le(p + 16, 4);
    m->bytes = get_le(p + 24, 4);
    head = get_le(p + 42, 4);
    if (!take_large(p + ENTRY_BYTES + n_name, n_extra,
                    (uint64_t *const[]){&m->bytes, &m->packed, &head}) ||
        !zip_has(z, head, LOCAL_BYTES, "PK\3\4"))
        return broken_zip(z, err);
    local = z->p + head;
    m->at = head + LOCAL_BYTES + get_le(local + 26, 2) + get_le(local + 28, 2);
    m->is_packed = get_le(p + 10, 2) == DEFLATED;
    if (!zip_holds(z, m->at, m->packed) || (!m->is_packed && m->packed != m->bytes) ||
        m->bytes > INT64_MAX)
        return broken_zip(z, err);
    *name = strndup((const char *)p + ENTRY_BYTES, n_name);
    if (!*name)
        return SH_FAIL(err, SH_E_NOMEM, "could not allocate a name");
    m->name = *name;
    *at += ENTRY_BYTES + n_name + n_extra + n_comment;
    if ((get_le(p + 8, 2) & ENCRYPTED) || (!m->is_packed && get_le(p + 10, 2) != STORED))
        return SH_FAIL(err, SH_E_UNSUPPORTED,
                       "\"%s\" of \"%s\" is encrypted, or packed otherwise than by deflate",
                       m->name, z->path);
    return SH_OK;
}

int zip_each(const char *path, zip_fn *fn, void *arg, struct sh_err *err)
{
    struct zip z = {.path = path, .fd = -1, .p = MAP_FAILED};
    uint64_t at = 0, n = 0;
    int64_t bytes = 0;
    int rc = user_file_open(path, &z.fd, &bytes, err);

    z.bytes = (uint64_t)bytes;
    if (!rc)
        z.p = mmap(NULL, (size_t)bytes, PROT_READ, MAP_PRIVATE, z.fd, 0);
    if (!rc && z.p == MAP_FAILED)
        rc = SH_FAIL_ERRNO(err, SH_E_IO, "could not read \"%s\": %m", path);
    if (!rc)
        rc = find_list(&z, &at, &n, err);
    if (!rc && n > ZIP_MAX_FILES)
        rc = SH_FAIL(err, SH_E_TOOBIG, "\"%s\" holds more than %u files", path, ZIP_MAX_FILES);
    for (uint64_t i = 0; !rc && i < n; i++) {
        struct zip_member m;
        char *name = NULL;

        rc = read_zip_entry(&z, &at, &m, &name, err);
        if (!rc)
            rc = fn(&m, arg, err);
        free(name);
    }
    if (z.p != MAP_FAILED)
        munmap((void *)z.p, (size_t)bytes);
    if (z.fd >= 0)
        close(z.fd);
    return rc;
}

/* ---------------------------------------------------------------- unpacking */

static int check_member_sum(const struct zip_member *m, uLong crc, struct sh_err *err)
{
    return crc == m->crc ? SH_OK
                         : SH_FAIL(err, SH_E_INVALID,
                                   "\"%s\" of \"%s\" is damaged: its checksum is %08lx, the zip "
                                   "file says %08lx",
                                   m->name, m->zip, crc, (unsigned long)m->crc);
}

static int check_stored(const struct zip_member *m, struct sh_err *err)
{
    uint8_t *in = malloc(CHUNK);
    uLong crc = crc32(0, NULL, 0);
    int rc = in ? SH_OK : SH_FAIL(err, SH_E_NOMEM, "could not allocate a buffer");

    for (uint64_t done = 0; !rc && done < m->bytes;) {
        const size_t n = (size_t)SH_MIN(m->bytes - done, (uint64_t)CHUNK);

        if (sh_pread_all(m->fd, in, n, m->at + done) != (ssize_t)n)
            rc = SH_FAIL(err, SH_E_IO, "could not read \"%s\"", m->zip);
        else
            crc = crc32(crc, in, (uInt)n);
        done += n;
    }
    free(in);
    return rc ? rc : check_member_sum(m, crc, err);
}

static int unpack_member(const struct zip_member *m, z_stream *s, int fd, uint8_t *in, uint8_t *out,
                         struct sh_err *err)
{
    uint64_t read = 0, written = 0;
    uLong crc = crc32(0, NULL, 0);
    int z = Z_OK;

    while (z == Z_OK) {
        size_t n;

        if (s->avail_in == 0) {
            n = (size_t)SH_MIN(m->packed - read, (uint64_t)CHUNK);
            if (sh_pread_all(m->fd, in, n, m->at + read) != (ssize_t)n)
                return SH_FAIL(err, SH_E_IO, "could not read \"%s\"", m->zip);
            read += n;
            s->next_in = in;
            s->avail_in = (uInt)n;
        }
        s->next_out = out;
        s->avail_out = CHUNK;
        z = inflate(s, Z_NO_FLUSH);
        n = CHUNK - s->avail_out;
        if (n > m->bytes - written) /* before it is written: it may be a bomb */
            break;
        if (!sh_pwrite_all(fd, out, n, written))
            return SH_FAIL_ERRNO(err, SH_E_IO, "could not unpack \"%s\": %m", m->zip);
        crc = crc32(crc, out, (uInt)n);
        written += n;
    }
    return z == Z_STREAM_END && written == m->bytes
               ? check_member_sum(m, crc, err)
               : SH_FAIL(err, SH_E_INVALID, "\"%s\" of \"%s\" is damaged, or cut off", m->name,
                         m->zip);
}

int zip_member_open(const struct zip_member *m, const char *tmp_dir, int *fd, uint64_t *from,
                    struct sh_err *err)
{
    uint8_t *in, *out;
    z_stream s = {0};
    int rc;

    *from = m->is_packed ? 0 : m->at;
    if (!m->is_packed) {
        rc = check_stored(m, err);
        if (rc)
            return rc;
        *fd = fcntl(m->fd, F_DUPFD_CLOEXEC, 0);
        return *fd < 0 ? SH_FAIL_ERRNO(err, SH_E_IO, "could not open \"%s\" again: %m", m->zip)
                       : SH_OK;
    }
    rc = setfile_temp(tmp_dir, m->bytes, fd, err);
    if (rc)
        return rc;
    in = malloc(CHUNK);
    out = malloc(CHUNK);
    if (!in || !out || inflateInit2(&s, -MAX_WBITS) != Z_OK)
        rc = SH_FAIL(err, SH_E_NOMEM, "could not allocate a buffer");
    if (!rc)
        rc = unpack_member(m, &s, *fd, in, out, err);
    inflateEnd(&s);
    free(in);
    free(out);
    if (rc) {
        close(*fd);
        *fd = -1;
    }
    return rc;
}
