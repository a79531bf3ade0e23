/* atomic_file.c - temporary file, fsync, rename. */
#include "runtime/model/atomic_file.h"

#include "common/io.h"
#include "common/mem.h"

#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

int atomic_file_open(struct atomic_file *a, const char *path, struct sh_err *err)
{
    int fd, rc;

    memset(a, 0, sizeof(*a));
    rc = sh_strdup(path, &a->path, err);
    if (!rc)
        rc = sh_asprintf(err, &a->temp, "%s.tmp", path);
    if (rc)
        goto out;
    fd = open(a->temp, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0640);
    if (fd < 0) {
        rc = SH_FAIL_ERRNO(err, SH_E_IO, "could not create a file");
        sh_err_detail(err, "file %s", path);
        free(a->temp); /* not ours to remove */
        a->temp = NULL;
        goto out;
    }
    a->f = fdopen(fd, "wb");
    if (!a->f) {
        rc = SH_FAIL_ERRNO(err, SH_E_IO, "could not create a file");
        close(fd);
    }
out:
    if (rc)
        atomic_file_close(a);
    return rc;
}

int atomic_file_commit(struct atomic_file *a, struct sh_err *err)
{
    int failed;

    if (ferror(a->f) || fflush(a->f) != 0 || fsync(fileno(a->f)) != 0)
        return SH_FAIL_ERRNO(err, SH_E_IO, "could not write a file");
    failed = fclose(a->f);
    a->f = NULL;
    if (failed || rename(a->temp, a->path) != 0)
        return SH_FAIL_ERRNO(err, SH_E_IO, "could not finish a file");
    free(a->temp);
    a->temp = NULL;
    return sh_sync_folder(a->path, err);
}

void atomic_file_close(struct atomic_file *a)
{
    if (a->f)
        fclose(a->f);
    if (a->temp)
        unlink(a->temp);
    free(a->temp);
    free(a->path);
    memset(a, 0, sizeof(*a));
}
