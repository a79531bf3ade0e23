/* disk_work.c - does the work of a task of disk.h on its files, in the order of its fields. It
 * knows no thread, so a simulation can do the same work at a time of its own. */
#include "common/ckpt.h"
#include "common/clock.h"
#include "common/io.h"
#include "common/mem.h"
#include "executor/files/disk.h"

#include <dirent.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define LOSSES_MAX_BYTES ((size_t)64 << 20)

static int hash_file(const char *path, struct disk_task *t, struct sh_err *err)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC), rc;

    if (fd < 0)
        return SH_FAIL_ERRNO(err, SH_E_IO, "could not read a file that was just written");
    rc = sh_sha256_fd(fd, t->digest, &t->bytes, err);
    close(fd);
    return rc;
}

int disk_replace_file(const char *path, const struct sh_buf *b, const char *what,
                      struct sh_err *err)
{
    char *tmp = NULL;
    int fd = -1, rc = sh_asprintf(err, &tmp, "%s.tmp", path);

    if (rc)
        return rc;
    fd = open(tmp, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0640);
    if (fd < 0)
        rc = SH_FAIL_ERRNO(err, SH_E_IO, "could not write %s", what);
    if (!rc && (!sh_write_all(fd, b->data, b->len) || fsync(fd) < 0))
        rc = SH_FAIL_ERRNO(err, SH_E_IO, "could not write %s", what);
    if (fd >= 0 && close(fd) < 0 && !rc)
        rc = SH_FAIL_ERRNO(err, SH_E_IO, "could not write %s", what);
    if (!rc && rename(tmp, path) < 0)
        rc = SH_FAIL_ERRNO(err, SH_E_IO, "could not write %s", what);
    if (rc)
        unlink(tmp);
    free(tmp);
    return rc;
}

static int write_losses_file(const struct disk_task *t, struct sh_err *err)
{
    size_t n = t->n_losses;
    struct sh_buf b;
    int rc;

    while (n > 0 && !isfinite(t->losses[n - 1]))
        n--; /* steps to come */
    sh_buf_init(&b, LOSSES_MAX_BYTES);
    rc = sh_buf_puts(&b, "[", err);
    for (size_t i = 0; !rc && i < n; i++)
        rc = isfinite(t->losses[i]) ? sh_buf_printf(&b, err, "%s%.9g", i ? "," : "", t->losses[i])
                                    : sh_buf_printf(&b, err, "%snull", i ? "," : "");
    if (!rc)
        rc = sh_buf_puts(&b, "]\n", err);
    if (!rc)
        rc = disk_replace_file(t->losses_path, &b, "the losses", err);
    sh_buf_fini(&b);
    return rc;
}

static void sweep(const struct disk_task *t)
{
    DIR *d = opendir(t->sweep_dir);
    struct dirent *e;

    if (!d)
        return;
    while ((e = readdir(d))) {
        const int64_t step = sh_ckpt_part_step(e->d_name);

        if (step >= 0 && step < t->sweep_below)
            unlinkat(dirfd(d), e->d_name, 0);
    }
    closedir(d);
}

void disk_work(struct disk_task *t)
{
    int64_t start = sh_clock_ns();
    bool wrote = false;
    int rc = t->work ? t->work(t, &t->err) : SH_OK;

    if (!rc && t->sweep_dir)
        sweep(t);
    if (!rc && t->write_path) {
        rc = sh_st_write(t->write_path, t->tensors, t->n_tensors, t->meta, &t->err);
        wrote = rc == SH_OK;
    }
    if (!rc && t->losses_path)
        rc = write_losses_file(t, &t->err);
    if (!rc && t->digest_path)
        rc = hash_file(t->digest_path, t, &t->err);
    if (!rc && t->remove_path)
        unlink(t->remove_path);
    if (rc && wrote && t->discard_on_failure)
        unlink(t->write_path);
    t->took_ns = sh_clock_ns() - start;
}
