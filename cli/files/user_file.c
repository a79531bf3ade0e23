/* user_file.c - see user_file.h. */
#include "cli/files/user_file.h"

#include "common/io.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

int user_file_open(const char *file, int *fd, int64_t *bytes, struct sh_err *err)
{
    struct stat st;

    *fd = open(file, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* no pipe is waited for */
    if (*fd < 0 || fstat(*fd, &st) != 0)
        return SH_FAIL_ERRNO(err, SH_E_INVALID, "could not open \"%s\": %m", file);
    if (S_ISDIR(st.st_mode))
        return SH_FAIL(err, SH_E_INVALID, "\"%s\" is a folder; give one file", file);
    if (!S_ISREG(st.st_mode))
        return SH_FAIL(err, SH_E_INVALID, "\"%s\" is no file on a disk: save it to one first",
                       file);
    if (st.st_size == 0)
        return SH_FAIL(err, SH_E_INVALID, "\"%s\" is empty", file);
    *bytes = st.st_size;
    return SH_OK;
}

int user_file_kind(const char *file, enum sh_file_kind *out, struct sh_err *err)
{
    char head[SH_FILE_HEAD];
    int64_t bytes;
    int fd = -1, rc = user_file_open(file, &fd, &bytes, err);
    ssize_t n = rc ? 0 : sh_pread_all(fd, head, sizeof(head), 0);

    *out = sh_file_kind(head, n > 0 ? (size_t)n : 0);
    if (fd >= 0)
        close(fd);
    return rc;
}
