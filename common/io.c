/* io.c - see io.h. */
#include "common/io.h"

#include "common/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#define PIECE ((size_t)1 << 30) /* Linux moves at most 2 GiB a call */

/* off < 0: where the descriptor stands. */
static bool write_from(int fd, const char *p, size_t n, off_t off)
{
    while (n > 0) {
        size_t want = SH_MIN(n, PIECE);
        ssize_t k = off < 0 ? write(fd, p, want) : pwrite(fd, p, want, off);

        if (k < 0 && errno == EINTR)
            continue;
        if (k < 0)
            return false;
        p += k;
        off += off < 0 ? 0 : k;
        n -= (size_t)k;
    }
    return true;
}

static ssize_t read_from(int fd, char *p, size_t n, off_t off)
{
    size_t got = 0;

    while (got < n) {
        size_t want = SH_MIN(n - got, PIECE);
        ssize_t k = off < 0 ? read(fd, p + got, want) : pread(fd, p + got, want, off + (off_t)got);

        if (k < 0 && errno == EINTR)
            continue;
        if (k < 0)
            return -1;
        if (k == 0)
            break;
        got += (size_t)k;
    }
    return (ssize_t)got;
}

bool sh_write_all(int fd, const void *p, size_t n)
{
    return write_from(fd, p, n, -1);
}

bool sh_pwrite_all(int fd, const void *p, size_t n, uint64_t off)
{
    return write_from(fd, p, n, (off_t)off);
}

ssize_t sh_read_all(int fd, void *p, size_t n)
{
    return read_from(fd, p, n, -1);
}

ssize_t sh_pread_all(int fd, void *p, size_t n, uint64_t off)
{
    return read_from(fd, p, n, (off_t)off);
}

int sh_sync_folder(const char *path, struct sh_err *err)
{
    const char *slash = strrchr(path, '/');
    char *dir = NULL;
    int fd, rc;

    rc = sh_asprintf(err, &dir, "%.*s", slash ? (int)SH_MAX(slash - path, 1) : 1,
                     slash ? path : ".");
    if (rc)
        return rc;
    fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0 || fsync(fd) != 0)
        rc = SH_FAIL_ERRNO(err, SH_E_IO, "could not make a renamed file durable");
    if (fd >= 0)
        close(fd);
    free(dir);
    return rc;
}
