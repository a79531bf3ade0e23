/* part.c - see part.h. */
#include "api/files/part.h"

#include "api/request/base64.h"
#include "common/mem.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#define NAME_BYTES 160

/* ------------------------------------------------------------------ headers */

bool part_digest(const char *header, char hex[static SH_SHA256_HEX])
{
    const char *s = header ? strstr(header, "sha-256=:") : NULL;
    const char *end = s ? strchr(s + 9, ':') : NULL;
    uint8_t sha[SH_SHA256_BYTES];

    if (!end || base64_decode(s + 9, (size_t)(end - s - 9), sha, sizeof(sha), NULL))
        return false;
    sh_hex(sha, sizeof(sha), hex);
    return true;
}

int part_range(const char *header, uint64_t body_bytes, uint64_t *from, uint64_t *total,
               struct sh_err *err)
{
    int64_t first, last, all;
    char text[96], *dash, *slash;
    bool good = strncmp(header, "bytes ", 6) == 0 && sh_strlcpy(text, header + 6, sizeof(text));

    dash = good ? strchr(text, '-') : NULL;
    slash = dash ? strchr(dash, '/') : NULL;
    if (slash)
        *dash = *slash = '\0';
    if (!slash || sh_parse_i64(text, 0, INT64_MAX, "", &first, NULL) ||
        sh_parse_i64(dash + 1, 0, INT64_MAX, "", &last, NULL) ||
        sh_parse_i64(slash + 1, 1, INT64_MAX, "", &all, NULL) || last != all - 1 || first > last ||
        (uint64_t)(all - first) != body_bytes)
        return SH_FAIL(err, SH_E_INVALID,
                       "Content-Range must be of the form bytes FROM-LAST/TOTAL, where the body is "
                       "all that there is from FROM on");
    *from = (uint64_t)first;
    *total = (uint64_t)all;
    return SH_OK;
}

/* ------------------------------------------------------------------ names */

static void row_prefix(const struct part_key *k, char out[static NAME_BYTES])
{
    snprintf(out, NAME_BYTES, "part-%" PRId64 "-%c%" PRId64 "-", k->tenant_id, k->kind, k->row_id);
}

static int part_path(const char *state_dir, const struct part_key *k, char **out,
                     struct sh_err *err)
{
    char prefix[NAME_BYTES];

    row_prefix(k, prefix);
    return sh_asprintf(err, out, "%s/blobs/tmp/%s%s", state_dir, prefix, k->digest);
}

/* ------------------------------------------------------------------ the folder */

/* Unless somebody is writing it. */
static void remove_idle(int dir, const char *name)
{
    int fd = openat(dir, name, O_RDONLY | O_CLOEXEC);

    if (fd < 0)
        return;
    if (flock(fd, LOCK_EX | LOCK_NB) == 0)
        unlinkat(dir, name, 0);
    close(fd);
}

int part_survey(const char *state_dir, const struct part_key *k, struct part_survey *out,
                struct sh_err *err)
{
    char tenant[NAME_BYTES], row[NAME_BYTES], *path = NULL;
    struct dirent *e;
    struct stat st;
    DIR *d = NULL;
    int rc = sh_asprintf(err, &path, "%s/blobs/tmp", state_dir);

    *out = (struct part_survey){0};
    snprintf(tenant, sizeof(tenant), "part-%" PRId64 "-", k->tenant_id);
    row_prefix(k, row);
    if (!rc && !(d = opendir(path)))
        rc = SH_FAIL_ERRNO(err, SH_E_IO, "could not look at the uploads in progress");
    while (!rc && (e = readdir(d))) {
        if (strncmp(e->d_name, tenant, strlen(tenant)) != 0 ||
            fstatat(dirfd(d), e->d_name, &st, AT_SYMLINK_NOFOLLOW) || !S_ISREG(st.st_mode))
            continue;
        if (strncmp(e->d_name, row, strlen(row)) != 0) {
            out->n++;
            out->bytes += st.st_size;
        } else if (strcmp(e->d_name + strlen(row), k->digest) != 0) {
            remove_idle(dirfd(d), e->d_name);
        }
    }
    if (d)
        closedir(d);
    free(path);
    return rc;
}

int part_bytes(const char *state_dir, const struct part_key *k, int64_t *out, struct sh_err *err)
{
    char *path = NULL;
    struct stat st;
    int rc = part_path(state_dir, k, &path, err);

    *out = 0;
    if (!rc && (stat(path, &st) || !S_ISREG(st.st_mode)))
        rc = SH_FAIL(err, SH_E_NOTFOUND,
                     "there is no part \"%s\": send the file from its beginning", k->digest);
    if (!rc)
        *out = st.st_size;
    free(path);
    return rc;
}

bool part_is_at(int fd, const char *path)
{
    struct stat mine, there;

    return fd >= 0 && fstat(fd, &mine) == 0 && stat(path, &there) == 0 &&
           mine.st_ino == there.st_ino && mine.st_dev == there.st_dev;
}

/* Its first `from` bytes under the same name, in a file that has no other. */
static int unshare(int *fd, const char *path, uint64_t from, struct sh_err *err)
{
    off_t in = 0, out = 0;
    char *other = NULL;
    int own, rc = sh_asprintf(err, &other, "%s.own", path);

    if (rc)
        return rc;
    own = open(other, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (own < 0 || flock(own, LOCK_EX | LOCK_NB))
        rc = SH_E_IO;
    while (!rc && (uint64_t)in < from)
        if (copy_file_range(*fd, &in, own, &out, (size_t)(from - (uint64_t)in), 0) <= 0)
            rc = SH_E_IO;
    if (!rc && rename(other, path))
        rc = SH_E_IO;
    if (rc) {
        SH_FAIL_ERRNO(err, rc, "could not go on with a part of an upload");
        unlink(other);
        if (own >= 0)
            close(own);
    } else {
        close(*fd);
        *fd = own;
    }
    free(other);
    return rc;
}

int part_open(const char *state_dir, const struct part_key *k, uint64_t from, int *fd, char **path,
              uint64_t *have, struct sh_err *err)
{
    struct stat st;
    int rc = part_path(state_dir, k, path, err);

    *fd = -1;
    *have = 0;
    if (rc)
        return rc;
    *fd = open(*path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (*fd < 0 || flock(*fd, LOCK_EX | LOCK_NB) || fstat(*fd, &st)) {
        if (*fd >= 0 && errno == EWOULDBLOCK)
            rc = SH_FAIL(err, SH_E_UNAVAILABLE,
                         "another connection is sending this file just now; try again");
        else
            rc = SH_FAIL_ERRNO(err, SH_E_IO, "could not create a file for the upload");
    } else if (!part_is_at(*fd, *path)) { /* removed between the two calls, or put in its place */
        rc = SH_FAIL(err, SH_E_UNAVAILABLE, "the part was finished or removed just now; try again");
    } else if ((uint64_t)st.st_size < from) {
        *have = (uint64_t)st.st_size;
        if (st.st_size == 0)
            unlink(*path); /* made just now */
        rc = SH_FAIL(err, SH_E_CONFLICT,
                     "%" PRIu64 " bytes of the file are here, so it cannot go on at %" PRIu64
                     "; go on from there",
                     *have, from);
    } else if (st.st_nlink > 1 && (rc = unshare(fd, *path, from, err))) {
        ; /* said */
    } else if (ftruncate(*fd, (off_t)from) || lseek(*fd, (off_t)from, SEEK_SET) < 0) {
        rc = SH_FAIL_ERRNO(err, SH_E_IO, "could not go on with a part of an upload");
    }
    if (!rc)
        return SH_OK;
    if (*fd >= 0)
        close(*fd);
    free(*path);
    *fd = -1;
    *path = NULL;
    return rc;
}
