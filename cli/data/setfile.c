/* setfile.c - see setfile.h. */
#include "cli/data/setfile.h"

#include "common/io.h"
#include "common/mem.h"

#include <fcntl.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <unistd.h>

#define CHUNK ((size_t)1 << 20)

static int setfile_check_room(const char *dir, uint64_t bytes, struct sh_err *err)
{
    struct statvfs fs;

    if (statvfs(dir, &fs) != 0)
        return SH_FAIL_ERRNO(err, SH_E_IO, "could not look at the folder \"%s\": %m", dir);
    if (bytes / SH_MAX(fs.f_frsize, 1ul) < fs.f_bavail)
        return SH_OK;
    return SH_FAIL(
        err, SH_E_DISKFULL,
        "the dataset needs %.1f GB in the folder \"%s\" until it is pushed, and that has "
        "%.1f GB: name one with more room as --tmp-dir",
        (double)bytes / 1e9, dir, (double)fs.f_bavail * (double)fs.f_frsize / 1e9);
}

int setfile_temp(const char *dir, uint64_t bytes, int *fd, struct sh_err *err)
{
    char *name = NULL;
    int rc = setfile_check_room(dir, bytes, err);

    *fd = -1;
    if (!rc)
        rc = sh_asprintf(err, &name, "%s/shunt-dataset-XXXXXX", dir);
    if (rc)
        return rc;
    *fd = mkostemp(name, O_CLOEXEC);
    if (*fd < 0)
        rc = SH_FAIL_ERRNO(err, SH_E_IO, "could not create a file in \"%s\": %m", dir);
    else
        unlink(name);
    free(name);
    return rc;
}

int setfile_new(const char *dir, const struct sh_st_tensor *t, size_t n, const char *const *meta,
                struct setfile *out, struct sh_err *err)
{
    size_t head_bytes = 0, bytes = 0;
    void *head = NULL;
    int rc;

    *out = (struct setfile){.fd = -1};
    rc = sh_st_head(t, n, meta, &head, &head_bytes, &bytes, err);
    free(head);
    if (!rc)
        rc = setfile_temp(dir, bytes, &out->fd, err);
    out->data = head_bytes;
    snprintf(out->path, sizeof(out->path), "/proc/self/fd/%d", out->fd);
    return rc;
}

static int no_write(struct sh_err *err)
{
    return SH_FAIL_ERRNO(err, SH_E_IO, "could not write the dataset to the disk: %m");
}

int setfile_put(struct setfile *s, uint64_t at, const void *data, size_t bytes, struct sh_err *err)
{
    return sh_pwrite_all(s->fd, data, bytes, s->data + at) ? SH_OK : no_write(err);
}

int setfile_move(struct setfile *s, uint64_t to, uint64_t from, uint64_t bytes, struct sh_err *err)
{
    char *chunk = to == from ? NULL : malloc(CHUNK);
    int rc = SH_OK;

    if (to == from)
        return SH_OK;
    if (!chunk)
        return SH_FAIL(err, SH_E_NOMEM, "could not allocate a buffer");
    for (uint64_t done = 0; !rc && done < bytes;) {
        const size_t n = (size_t)SH_MIN((uint64_t)CHUNK, bytes - done);

        if (sh_pread_all(s->fd, chunk, n, s->data + from + done) != (ssize_t)n)
            rc = SH_FAIL_ERRNO(err, SH_E_IO, "could not read the dataset again: %m");
        else
            rc = setfile_put(s, to + done, chunk, n, err);
        done += n;
    }
    free(chunk);
    return rc;
}

int setfile_end(struct setfile *s, const struct sh_st_tensor *t, size_t n, const char *const *meta,
                struct sh_err *err)
{
    size_t len = 0, bytes = 0;
    void *head = NULL;
    char *room = NULL;
    int rc = sh_st_head(t, n, meta, &head, &len, &bytes, err);

    if (!rc && len > s->data)
        rc = SH_FAIL(err, SH_E_BUG, "the head of a dataset became longer");
    if (!rc && !(room = malloc(s->data)))
        rc = SH_FAIL(err, SH_E_NOMEM, "could not allocate the head of a dataset");
    if (rc)
        goto out;
    memset(room, ' ', s->data); /* blanks of the head: it was made for more samples */
    memcpy(room, head, len);
    for (int i = 0; i < 8; i++)
        room[i] = (char)((s->data - 8) >> (8 * i) & 0xff);
    if (!sh_pwrite_all(s->fd, room, s->data, 0) ||
        ftruncate(s->fd, (off_t)(s->data + (bytes - len))) != 0)
        rc = no_write(err);
out:
    free(room);
    free(head);
    return rc;
}

void setfile_fini(struct setfile *s)
{
    if (s->fd >= 0)
        close(s->fd);
    s->fd = -1;
}

char *setfile_class_names(char *const *names, size_t n)
{
    json_t *list = json_array();
    char *text;

    for (size_t i = 0; i < n; i++)
        json_array_append_new(list, json_string(names[i]));
    text = json_array_size(list) == n ? json_dumps(list, JSON_COMPACT) : NULL;
    json_decref(list);
    return text;
}
