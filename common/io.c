/* io.c - see io.h. */
#include "common/io.h"

#include "common/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#define COPY_CHUNK 65536
#define PIECE ((size_t)1 << 30) /* Linux moves at most 2 GiB a call */

/* at NULL: where the descriptor stands. */
static bool write_from(int fd, const char *p, size_t n, const uint64_t *at)
{
    for (size_t done = 0; done < n;) {
        size_t want = SH_MIN(n - done, PIECE);
        ssize_t k =
            at ? pwrite(fd, p + done, want, (off_t)(*at + done)) : write(fd, p + done, want);

        if (k < 0 && errno == EINTR)
            continue;
        if (k < 0)
            return false;
        done += (size_t)k;
    }
    return true;
}

static ssize_t read_once(int fd, char *p, size_t n, const uint64_t *at)
{
    size_t done = 0;

    while (done < n) {
        size_t want = SH_MIN(n - done, PIECE);
        ssize_t k = at ? pread(fd, p + done, want, (off_t)(*at + done)) : read(fd, p + done, want);

        if (k < 0 && errno == EINTR)
            continue;
        if (k < 0)
            return -1;
        if (k == 0)
            break;
        done += (size_t)k;
    }
    return (ssize_t)done;
}

bool sh_write_all(int fd, const void *p, size_t n)
{
    return write_from(fd, p, n, NULL);
}

bool sh_pwrite_all(int fd, const void *p, size_t n, uint64_t off)
{
    return write_from(fd, p, n, &off);
}

ssize_t sh_read_all(int fd, void *p, size_t n)
{
    return read_once(fd, p, n, NULL);
}

ssize_t sh_pread_all(int fd, void *p, size_t n, uint64_t off)
{
    return read_once(fd, p, n, &off);
}

bool sh_copy_all(int from, int to, const atomic_bool *stop)
{
    char chunk[COPY_CHUNK];
    ssize_t n;

    while ((n = sh_read_all(from, chunk, sizeof(chunk))) > 0) {
        if (stop && atomic_load(stop)) {
            errno = ECANCELED;
            return false;
        }
        if (!sh_write_all(to, chunk, (size_t)n))
            return false;
    }
    return n == 0;
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

int sh_open_rc(int why)
{
    if (why == ENOENT)
        return SH_E_NOTFOUND;
    return why == EMFILE || why == ENFILE || why == ENOMEM ? SH_E_NOMEM : SH_E_IO;
}

int sh_open_in(const char *dir, const char *name, int *fd, struct sh_err *err)
{
    char *path = NULL;
    int rc = sh_asprintf(err, &path, "%s/%s", dir, name);

    *fd = -1;
    if (rc)
        return rc;
    *fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (*fd < 0) {
        rc = SH_FAIL_ERRNO(err, sh_open_rc(errno), "could not open the file \"%s\"", name);
        sh_err_detail(err, "file %s", path);
    }
    free(path);
    return rc;
}

void sh_read_text(const char *root, const char *path, char *out, size_t size)
{
    char full[4096];
    ssize_t n = 0;

    if ((size_t)snprintf(full, sizeof(full), "%s%s", root, path) < sizeof(full)) {
        int fd = open(full, O_RDONLY | O_CLOEXEC);

        n = fd >= 0 ? sh_read_all(fd, out, size - 1) : 0;
        if (fd >= 0)
            close(fd);
    }
    while (n > 0 && out[n - 1] == '\n')
        n--;
    out[SH_MAX(n, 0)] = '\0';
}

void sh_boot_id(char out[static SH_BOOT_ID])
{
    sh_read_text("", "/proc/sys/kernel/random/boot_id", out, SH_BOOT_ID);
}

int64_t sh_raise_open_files(void)
{
    struct rlimit l;

    struct rlimit most;

    if (getrlimit(RLIMIT_NOFILE, &l))
        return INT64_MAX;
    most = (struct rlimit){l.rlim_max, l.rlim_max};
    if (setrlimit(RLIMIT_NOFILE, &most) == 0)
        l = most;
    return (int64_t)SH_MIN(l.rlim_cur, (rlim_t)INT64_MAX);
}
