/* result_file.c - see result_file.h. */
#include "executor/files/result_file.h"

#include "common/io.h"
#include "common/mem.h"
#include "executor/files/claim.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#define CHUNK ((size_t)1 << 20)
#define PART_PREFIX "result-"
#define PART_SUFFIX ".part"
#define MAX_GONE 16 /* so many parts may go while we look for one, then it fails */

struct column { /* one tensor of the file */
    size_t sample_bytes;
    uint64_t off; /* of its data in the file */
    struct sh_sha256 *sum;
};

struct result_file {
    char *dir, *part; /* OWNED; part: its name in dir */
    int64_t placement;
    int fd;
    int dir_fd; /* of dir: at the end there may be no descriptor left for it */
    const atomic_bool *stop;
    struct column *columns; /* OWNED */
    size_t n_columns;
    int64_t n_samples, at;
    void *head; /* OWNED */
    size_t head_bytes, bytes;
    char *chunk;
};

/* ------------------------------------------------------------------ bytes */

static int write_at(struct result_file *f, const void *data, size_t n, uint64_t off,
                    struct sh_err *err)
{
    return sh_pwrite_all(f->fd, data, n, off)
               ? SH_OK
               : SH_FAIL_ERRNO(err, SH_E_IO, "could not write the result");
}

static int read_result_at(const struct result_file *f, void *to, size_t n, uint64_t off,
                          struct sh_err *err)
{
    ssize_t got = sh_pread_all(f->fd, to, n, off);

    if (got < 0)
        return SH_FAIL_ERRNO(err, SH_E_IO, "could not read the result back");
    return (size_t)got == n ? SH_OK : SH_FAIL(err, SH_E_IO, "the file of the result is cut");
}

/* Adds n bytes of the file to both digests; the second may be NULL. */
static int hash_range(const struct result_file *f, uint64_t off, uint64_t n, struct sh_sha256 *a,
                      struct sh_sha256 *b, struct sh_err *err)
{
    while (n > 0) {
        size_t k = (size_t)SH_MIN(n, (uint64_t)CHUNK);
        int rc = read_result_at(f, f->chunk, k, off, err);

        if (!rc)
            rc = sh_sha256_update(a, f->chunk, k, err);
        if (!rc && b)
            rc = sh_sha256_update(b, f->chunk, k, err);
        if (!rc && atomic_load(f->stop))
            rc = SH_FAIL(err, SH_E_CANCELLED, "stopped while the result was read back");
        if (rc)
            return rc;
        off += k;
        n -= k;
    }
    return SH_OK;
}

/* ------------------------------------------------------------------ digests */

/* One digest for the running ones of all tensors. */
static int digest_of(const struct result_file *f, char out[static SH_SHA256_HEX],
                     struct sh_err *err)
{
    struct sh_sha256 *all = NULL;
    uint8_t one[SH_SHA256_BYTES];
    int rc = sh_sha256_new(&all, err);

    for (size_t i = 0; !rc && i < f->n_columns; i++) {
        rc = sh_sha256_peek(f->columns[i].sum, one, err);
        if (!rc)
            rc = sh_sha256_update(all, one, sizeof(one), err);
    }
    if (!rc) {
        sh_sha256_final(all, one);
        sh_hex(one, sizeof(one), out);
    }
    sh_sha256_free(all);
    return rc;
}

static int reset_sums(struct result_file *f, struct sh_err *err)
{
    int rc = SH_OK;

    for (size_t i = 0; !rc && i < f->n_columns; i++) {
        sh_sha256_free(f->columns[i].sum);
        rc = sh_sha256_new(&f->columns[i].sum, err);
    }
    return rc;
}

/* ------------------------------------------------------------------ an earlier attempt's part */

static char *result_path(const struct result_file *f, const char *name, struct sh_err *err)
{
    char *path = NULL;

    return sh_asprintf(err, &path, "%s/%s", f->dir, name) ? NULL : path;
}

static bool is_part(const char *name)
{
    size_t n = strlen(name), suffix = strlen(PART_SUFFIX);

    return strncmp(name, PART_PREFIX, strlen(PART_PREFIX)) == 0 && n > suffix &&
           strcmp(name + n - suffix, PART_SUFFIX) == 0;
}

/* Of the start that made it; those without a number are older than numbers. */
static int64_t batch_number(const char *part)
{
    const size_t n = strlen(part) - strlen(PART_PREFIX) - strlen(PART_SUFFIX);
    char number[24];
    int64_t of;

    snprintf(number, sizeof(number), "%.*s", (int)SH_MIN(n, sizeof(number) - 1),
             part + strlen(PART_PREFIX));
    return sh_parse_i64(number, 0, INT64_MAX, "number", &of, NULL) == SH_OK ? of : -1;
}

/* The next part of a start that is no later than this one. NULL: there is no more, or *rc says why
 * not: who overlooks one lets its writer publish it later. */
static const struct dirent *next_part(const struct result_file *f, DIR *d, int *rc,
                                      struct sh_err *err)
{
    const struct dirent *e;

    do {
        errno = 0;
        e = readdir(d);
    } while (e && (!is_part(e->d_name) || batch_number(e->d_name) > f->placement));
    if (!e && errno)
        *rc = SH_FAIL_ERRNO(err, SH_E_IO, "could not look for the part of a result");
    return e;
}

bool result_file_is(const char *name)
{
    return is_part(name) || strcmp(name, RESULT_FILE_NAME) == 0;
}

/* The newest part; name: "": there is none. */
static int find_part(const struct result_file *f, DIR *d, char name[static NAME_MAX + 1],
                     struct sh_err *err)
{
    const struct dirent *e;
    int64_t best = -1;
    int rc = SH_OK;

    name[0] = '\0';
    rewinddir(d);
    while ((e = next_part(f, d, &rc, err)))
        if (!name[0] || batch_number(e->d_name) > best) {
            best = batch_number(e->d_name);
            sh_strlcpy(name, e->d_name, NAME_MAX + 1);
        }
    return rc;
}

/* Takes the newest part of an earlier start under our name and removes any other: an older one is
 * of a start that had lost the job as it made it. */
static int take_over_part(struct result_file *f, bool *found, struct sh_err *err)
{
    DIR *d = opendir(f->dir);
    const struct dirent *e;
    char name[NAME_MAX + 1];
    int rc = SH_OK;

    *found = false;
    if (!d)
        return SH_FAIL_ERRNO(err, sh_open_rc(errno), "could not look into the job's folder");
    for (int n_gone = 0; !rc && !*found; n_gone++) {
        rc = find_part(f, d, name, err);
        if (rc || !name[0])
            break;
        *found = renameat(dirfd(d), name, dirfd(d), f->part) == 0;
        /* It, or one behind it, may hold what was reported as durable. */
        if (!*found && (errno != ENOENT || n_gone + 1 == MAX_GONE))
            rc = SH_FAIL_ERRNO(err, SH_E_IO, "could not take over the part of a result");
    }
    rewinddir(d);
    while (*found && !rc && (e = next_part(f, d, &rc, err)))
        if (strcmp(e->d_name, f->part) != 0 && unlinkat(dirfd(d), e->d_name, 0) < 0 &&
            errno != ENOENT)
            rc = SH_FAIL_ERRNO(err, SH_E_IO, "could not remove an old part of a result");
    closedir(d);
    return rc;
}

static int copy_from(const struct result_file *f, int from, int to, struct sh_err *err)
{
    if (sh_copy_all(from, to, f->stop))
        return SH_OK;
    return errno == ECANCELED
               ? SH_FAIL(err, SH_E_CANCELLED, "stopped while the result was copied")
               : SH_FAIL_ERRNO(err, SH_E_IO, "could not copy what is published of the result");
}

/* Copies what is published into a part of ours. An attempt that goes on may find its samples there
 * alone: the one before published them and ended before it told of them. The file itself stays: an
 * executor that slept opens this late, and finds the result that another has told of since.
 * *found: false without one. */
static int copy_published(const struct result_file *f, const char *path, bool *found,
                          struct sh_err *err)
{
    int from = openat(f->dir_fd, RESULT_FILE_NAME, O_RDONLY | O_CLOEXEC | O_NOFOLLOW), to;
    int rc;

    *found = false;
    if (from < 0)
        return errno == ENOENT
                   ? SH_OK
                   : SH_FAIL_ERRNO(err, sh_open_rc(errno), "could not open a published result");
    to = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0640);
    rc = to < 0 ? SH_FAIL_ERRNO(err, sh_open_rc(errno), "could not create the file of the result")
                : copy_from(f, from, to, err);
    if (to >= 0)
        close(to);
    if (rc && to >= 0)
        unlink(path);
    close(from);
    *found = !rc;
    return rc;
}

/* *ok: the file is ours and holds what it held when the digest was taken. */
static int check_result_part(struct result_file *f, const struct result_file_conf *c, bool *ok,
                             struct sh_err *err)
{
    char digest[SH_SHA256_HEX] = "";
    struct stat st;
    int rc;

    *ok = false;
    if (fstat(f->fd, &st) < 0)
        return SH_FAIL_ERRNO(err, SH_E_IO, "could not look at the part of a result");
    if (!S_ISREG(st.st_mode) || (uint64_t)st.st_size != f->bytes || f->head_bytes > CHUNK)
        return SH_OK;
    rc = read_result_at(f, f->chunk, f->head_bytes, 0, err);
    if (rc || memcmp(f->chunk, f->head, f->head_bytes) != 0)
        return rc;
    for (size_t i = 0; !rc && i < f->n_columns; i++)
        rc = hash_range(f, f->columns[i].off, f->columns[i].sample_bytes * (uint64_t)c->resume_at,
                        f->columns[i].sum, NULL, err);
    if (!rc)
        rc = digest_of(f, digest, err);
    *ok = !rc && strcmp(digest, c->resume_digest) == 0;
    return rc;
}

/* f->fd stays -1 when there is nothing to go on with. *is_taken: it was an earlier start's. */
static int open_result_part(struct result_file *f, const struct result_file_conf *c,
                            const char *path, bool *is_taken, struct sh_err *err)
{
    bool ok = false;
    int rc = take_over_part(f, &ok, err);

    *is_taken = ok;
    if (!rc && !ok && c->resume_at > 0)
        rc = copy_published(f, path, &ok, err);
    if (rc || !ok)
        return rc;
    if (c->resume_at > 0 && c->resume_at <= f->n_samples) {
        f->fd = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
        if (f->fd < 0)
            return SH_FAIL_ERRNO(err, sh_open_rc(errno), "could not open the part of a result");
        rc = check_result_part(f, c, &ok, err);
        if (rc || ok) {
            f->at = rc ? 0 : c->resume_at;
            return rc;
        }
        close(f->fd);
        f->fd = -1;
    }
    unlink(path);
    *is_taken = false;
    return reset_sums(f, err);
}

/* ------------------------------------------------------------------ open */

static int new_part(struct result_file *f, const char *path, struct sh_err *err)
{
    int rc = SH_OK;

    f->fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0640);
    if (f->fd < 0)
        return SH_FAIL_ERRNO(err, sh_open_rc(errno), "could not create the file of the result");
    if (fallocate(f->fd, 0, 0, (off_t)f->bytes) < 0) {
        if (errno != EOPNOTSUPP || ftruncate(f->fd, (off_t)f->bytes) < 0)
            rc = SH_FAIL_ERRNO(err, SH_E_IO, "could not take %zu MiB of disk for the result",
                               (f->bytes >> 20) + 1);
    }
    if (!rc)
        rc = write_at(f, f->head, f->head_bytes, 0, err);
    if (rc)
        unlink(path);
    return rc;
}

static int lay_out_result(struct result_file *f, const struct result_file_conf *c,
                          struct sh_err *err)
{
    uint64_t off = 0;
    int rc =
        sh_st_head(c->tensors, c->n_tensors, c->meta, &f->head, &f->head_bytes, &f->bytes, err);

    f->columns = calloc(c->n_tensors + 1, sizeof(*f->columns));
    f->chunk = malloc(CHUNK);
    if (!rc && (!f->columns || !f->chunk))
        rc = SH_FAIL(err, SH_E_NOMEM, "could not allocate the file of a result");
    if (rc)
        return rc;
    off = f->head_bytes;
    f->n_columns = c->n_tensors;
    f->n_samples = c->tensors[0].dims[0];
    for (size_t i = 0; i < f->n_columns; i++) {
        f->columns[i].off = off;
        f->columns[i].sample_bytes = c->tensors[i].bytes / (size_t)f->n_samples;
        off += c->tensors[i].bytes;
    }
    return reset_sums(f, err);
}

int result_file_open(const struct result_file_conf *c, struct result_file **out, int64_t *at_out,
                     struct sh_err *err)
{
    struct result_file *f = calloc(1, sizeof(*f));
    char *path = NULL;
    bool is_taken = false;
    int rc;

    *out = NULL;
    *at_out = 0;
    if (!f)
        return SH_FAIL(err, SH_E_NOMEM, "could not allocate the file of a result");
    f->fd = f->dir_fd = -1;
    f->stop = c->stop;
    f->placement = c->placement;
    rc = sh_strdup(c->dir, &f->dir, err);
    if (!rc && (f->dir_fd = open(c->dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC)) < 0)
        rc = SH_FAIL_ERRNO(err, sh_open_rc(errno), "could not open the job's folder");
    if (!rc)
        rc = lay_out_result(f, c, err);
    if (!rc)
        rc = sh_asprintf(err, &f->part, PART_PREFIX "%" PRId64 PART_SUFFIX, f->placement);
    if (!rc && !(path = result_path(f, f->part, err)))
        rc = SH_E_NOMEM;
    if (!rc)
        rc = open_result_part(f, c, path, &is_taken, err);
    if (!rc && f->fd < 0)
        rc = new_part(f, path, err);
    /* A later start that began before a new part was there has not taken it over, and will not. One
     * of an earlier start it takes under whatever name. */
    if (!rc && (rc = claim_check(f->dir, f->placement, err)) == SH_E_CONFLICT && !is_taken)
        unlink(path);
    free(path);
    if (rc) {
        result_file_free(f);
        return rc;
    }
    *at_out = f->at;
    *out = f;
    return SH_OK;
}

/* ------------------------------------------------------------------ use */

int result_file_write(struct result_file *f, const void *const *data, int64_t n, struct sh_err *err)
{
    int rc = SH_OK;

    if (n < 0 || n > f->n_samples - f->at)
        return SH_FAIL(err, SH_E_BUG, "a result has more samples than it should");
    for (size_t i = 0; !rc && i < f->n_columns; i++) {
        const struct column *c = &f->columns[i];

        rc = write_at(f, data[i], c->sample_bytes * (size_t)n,
                      c->off + c->sample_bytes * (uint64_t)f->at, err);
        if (!rc)
            rc = sh_sha256_update(c->sum, data[i], c->sample_bytes * (size_t)n, err);
    }
    if (!rc)
        f->at += n;
    return rc;
}

int result_file_sync(struct result_file *f, char digest[static SH_SHA256_HEX], uint64_t *bytes,
                     struct sh_err *err)
{
    int rc = digest_of(f, digest, err);

    *bytes = 0;
    for (size_t i = 0; i < f->n_columns; i++)
        *bytes += f->columns[i].sample_bytes * (uint64_t)f->at;
    if (!rc && fsync(f->fd) < 0)
        rc = SH_FAIL_ERRNO(err, SH_E_IO, "could not make the result durable");
    return rc;
}

/* The head, then tensor after tensor, as they lie in the file. */
static int read_back(const struct result_file *f, char digest[static SH_SHA256_HEX],
                     struct sh_err *err)
{
    struct sh_sha256 *all = NULL, *one = NULL;
    uint8_t got[SH_SHA256_BYTES], want[SH_SHA256_BYTES];
    int rc = sh_sha256_new(&all, err);

    posix_fadvise(f->fd, 0, 0, POSIX_FADV_DONTNEED); /* from the disk, not from memory */
    if (!rc)
        rc = hash_range(f, 0, f->head_bytes, all, NULL, err);
    for (size_t i = 0; !rc && i < f->n_columns; i++) {
        const struct column *c = &f->columns[i];

        rc = sh_sha256_new(&one, err);
        if (!rc)
            rc = hash_range(f, c->off, c->sample_bytes * (uint64_t)f->n_samples, all, one, err);
        if (!rc)
            rc = sh_sha256_peek(c->sum, want, err);
        if (!rc)
            sh_sha256_final(one, got);
        if (!rc && memcmp(got, want, sizeof(got)) != 0)
            rc = SH_FAIL(err, SH_E_IO, "the file of the result does not hold what was written");
        sh_sha256_free(one);
        one = NULL;
    }
    if (!rc) {
        sh_sha256_final(all, got);
        sh_hex(got, sizeof(got), digest);
    }
    sh_sha256_free(all);
    return rc;
}

int result_file_finish(struct result_file *f, char digest[static SH_SHA256_HEX], uint64_t *bytes,
                       struct sh_err *err)
{
    char *from = result_path(f, f->part, err), *to = result_path(f, RESULT_FILE_NAME, err);
    int rc = from && to ? SH_OK : SH_E_NOMEM;

    *bytes = f->bytes;
    if (!rc && f->at != f->n_samples)
        rc = SH_FAIL(err, SH_E_BUG, "a result is not complete");
    if (!rc && fsync(f->fd) < 0)
        rc = SH_FAIL_ERRNO(err, SH_E_IO, "could not make the result durable");
    if (!rc) {
        rc = read_back(f, digest, err);
        if (rc == SH_E_IO)
            unlink(from);
    }
    /* Of starts later than this one none had the folder when the part was there, so each of them
     * takes it over. No descriptor may be left to look again. */
    if (!rc && rename(from, to) < 0)
        rc = SH_FAIL_ERRNO(err, errno == ENOENT ? SH_E_CONFLICT : SH_E_IO,
                           "could not publish the result");
    if (!rc && fsync(f->dir_fd) < 0)
        rc = SH_FAIL_ERRNO(err, SH_E_IO, "could not make the name of the result durable");
    free(from);
    free(to);
    return rc;
}

const char *result_file_part(const struct result_file *f)
{
    return f->part;
}

void result_file_discard(struct result_file *f)
{
    char *path = result_path(f, f->part, NULL);

    if (path)
        unlink(path);
    free(path);
}

void result_file_free(struct result_file *f)
{
    if (!f)
        return;
    if (f->fd >= 0)
        close(f->fd);
    if (f->dir_fd >= 0)
        close(f->dir_fd);
    for (size_t i = 0; f->columns && i < f->n_columns; i++)
        sh_sha256_free(f->columns[i].sum);
    free(f->columns);
    free(f->head);
    free(f->chunk);
    free(f->dir);
    free(f->part);
    free(f);
}
