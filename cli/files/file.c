/* file.c - small files and whole trees of the state folder: see state.h. */
#include "cli/files/file.h"

#include "common/io.h"
#include "common/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define TREE_FDS 32

int file_write(const char *path, const char *text, size_t len, mode_t mode, struct sh_err *err)
{
    char *tmp = NULL;
    int fd = -1, rc = sh_asprintf(err, &tmp, "%s.%d.tmp", path, (int)getpid());

    if (rc)
        goto out;
    fd = open(tmp, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, mode);
    if (fd < 0) {
        rc = SH_FAIL_ERRNO(err, SH_E_IO, "could not write \"%s\": %m", path);
        goto out;
    }
    if (!sh_write_all(fd, text, len) || rename(tmp, path) != 0)
        rc = SH_FAIL_ERRNO(err, SH_E_IO, "could not write \"%s\": %m", path);
    if (rc)
        unlink(tmp);
out:
    if (fd >= 0)
        close(fd);
    free(tmp);
    return rc;
}

int file_write_json(const char *path, const json_t *j, mode_t mode, struct sh_err *err)
{
    char *text = NULL;
    int rc = sh_json_dump(j, &text, err);

    if (!rc)
        rc = file_write(path, text, strlen(text), mode, err);
    free(text);
    return rc;
}

int file_read(const char *path, size_t max, char **out, size_t *len, struct sh_err *err)
{
    char *text = NULL;
    struct stat st;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK), rc = SH_OK;
    ssize_t n;

    *out = NULL;
    if (fd < 0 || fstat(fd, &st) != 0) {
        rc = SH_FAIL_ERRNO(err, errno == ENOENT ? SH_E_NOTFOUND : SH_E_IO,
                           "could not open \"%s\": %m", path);
        goto out;
    }
    if (!S_ISREG(st.st_mode) || (size_t)st.st_size > max) {
        rc = SH_FAIL(err, SH_E_TOOBIG, "\"%s\" must be a file of at most %zu bytes", path, max);
        goto out;
    }
    text = malloc((size_t)st.st_size + 1);
    if (!text) {
        rc = SH_FAIL(err, SH_E_NOMEM, "could not allocate memory for a file");
        goto out;
    }
    n = sh_read_all(fd, text, (size_t)st.st_size);
    if (n < 0) {
        rc = SH_FAIL_ERRNO(err, SH_E_IO, "could not read \"%s\": %m", path);
        goto out;
    }
    text[n] = '\0';
    *out = text;
    *len = (size_t)n;
    text = NULL;
out:
    if (fd >= 0)
        close(fd);
    free(text);
    return rc;
}

int file_absolute(const char *path, char **out, struct sh_err *err)
{
    char *cwd = NULL;
    int rc;

    if (path[0] == '/')
        return sh_strdup(path, out, err);
    cwd = getcwd(NULL, 0);
    if (!cwd)
        return SH_FAIL_ERRNO(err, SH_E_IO, "could not find the current folder: %m");
    rc = sh_asprintf(err, out, "%s/%s", cwd, path);
    free(cwd);
    return rc;
}

int file_make_dir(const char *path, mode_t mode, struct sh_err *err)
{
    char *copy = NULL;
    int rc = sh_strdup(path, &copy, err);

    for (char *p = rc ? NULL : copy + 1; !rc && p; p = strchr(p, '/')) {
        if (*p == '/')
            *p = '\0';
        if (p > copy + 1 && mkdir(copy, 0755) != 0 && errno != EEXIST)
            rc = SH_FAIL_ERRNO(err, SH_E_IO, "could not make the folder \"%s\": %m", copy);
        if (p > copy + 1)
            *p++ = '/';
    }
    if (!rc && mkdir(path, mode) != 0 && errno != EEXIST)
        rc = SH_FAIL_ERRNO(err, SH_E_IO, "could not make the folder \"%s\": %m", path);
    free(copy);
    return rc;
}

static int remove_one(const char *path, const struct stat *st, int flag, struct FTW *ftw)
{
    (void)st;
    (void)flag;
    (void)ftw;
    return remove(path) == 0 || errno == ENOENT ? 0 : -1;
}

int file_remove_tree(const char *path, struct sh_err *err)
{
    struct stat st;

    if (lstat(path, &st) != 0 && errno == ENOENT)
        return SH_OK;
    if (nftw(path, remove_one, TREE_FDS, FTW_DEPTH | FTW_PHYS) != 0 && errno != ENOENT)
        return SH_FAIL_ERRNO(err, SH_E_IO, "could not remove \"%s\": %m", path);
    return SH_OK;
}
