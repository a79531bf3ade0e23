/* kernels_dir.c - see kernels_dir.h. */
#include "executor/pool/kernels_dir.h"

#include "common/log.h"
#include "common/mem.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define MAX_REMOVED 20000u /* at once: the executor has others to look after */

int kernels_dir_make(const struct kernels_dir_conf *c, char **out, struct sh_err *err)
{
    int rc;

    if (strcmp(c->device, "cuda") != 0)
        return sh_strdup("", out, err);
    rc = sh_asprintf(err, out, "%s/kernels-%s", c->state_dir, c->executor);
    if (rc)
        return rc;
    if ((mkdir(*out, 0700) != 0 && errno != EEXIST) ||
        (geteuid() == 0 && chown(*out, (uid_t)c->uid, (gid_t)c->uid) != 0))
        SH_WARN("pool.kernels", "dir=\"%s\" msg=\"workers cannot keep what they measure: %m\"",
                *out);
    return SH_OK;
}

/* Workers own it, and may have put a link in its place. */
static DIR *open_kernels_folder(const char *path)
{
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    DIR *d = fd >= 0 ? fdopendir(fd) : NULL;

    if (!d && fd >= 0)
        close(fd);
    return d;
}

static struct dirent *next_kernel_entry(DIR *d)
{
    struct dirent *e = readdir(d);

    while (e && (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0))
        e = readdir(d);
    return e;
}

static bool is_full(DIR *d, uint64_t max_bytes, uint64_t *bytes, unsigned *n)
{
    const struct dirent *e;
    struct stat st;

    for (*bytes = *n = 0; (e = next_kernel_entry(d)); ++*n) {
        if (*n == KERNELS_DIR_MAX_FILES)
            return true;
        if (fstatat(dirfd(d), e->d_name, &st, AT_SYMLINK_NOFOLLOW) == 0)
            *bytes += (uint64_t)st.st_blocks * 512; /* what stat() counts in */
        if (*bytes > max_bytes)
            return true;
    }
    return false;
}

static void remove_all(DIR *d)
{
    const struct dirent *e;

    rewinddir(d);
    for (unsigned i = 0; i < MAX_REMOVED && (e = next_kernel_entry(d)); i++)
        if (unlinkat(dirfd(d), e->d_name, 0) < 0 && errno == EISDIR)
            unlinkat(dirfd(d), e->d_name, AT_REMOVEDIR);
}

bool kernels_dir_was_full(const char *path, uint64_t max_bytes)
{
    DIR *d = path[0] ? open_kernels_folder(path) : NULL;
    uint64_t bytes;
    bool is = false;
    unsigned n;

    if (!d)
        return false;
    is = is_full(d, max_bytes, &bytes, &n);
    if (is) {
        SH_ERROR(
            "pool.kernels",
            "dir=\"%s\" bytes=%llu files=%u max_bytes=%llu max_files=%u msg=\"workers have put "
            "too much there: it is emptied, and they are ended\"",
            path, (unsigned long long)bytes, n, (unsigned long long)max_bytes,
            KERNELS_DIR_MAX_FILES);
        remove_all(d);
    }
    closedir(d);
    return is;
}
