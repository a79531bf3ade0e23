/* claim.c - see claim.h. */
#include "executor/files/claim.h"

#include "common/io.h"
#include "common/mem.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define CLAIM "claim-"
#define STAGED "staged-"

/* -1: it is none of these. */
static int64_t number_after(const char *prefix, const char *name)
{
    const size_t n = strlen(prefix);
    char digits[24];
    int64_t number;

    if (strncmp(name, prefix, n) != 0)
        return -1;
    snprintf(digits, sizeof(digits), "%.*s", (int)SH_MIN(strcspn(name + n, "-"), (size_t)23),
             name + n);
    return sh_parse_i64(digits, 0, INT64_MAX, "number", &number, NULL) == SH_OK ? number : -1;
}

static int open_dir(const char *dir, DIR **out, struct sh_err *err)
{
    *out = opendir(dir);
    return *out ? SH_OK
                : SH_FAIL_ERRNO(err, sh_open_rc(errno), "could not look into the job's folder");
}

/* NULL: there is none, or *rc says why not: a disk that fails is no folder without claims. */
static const struct dirent *next_claim_entry(DIR *d, int *rc, struct sh_err *err)
{
    const struct dirent *e;

    errno = 0;
    e = readdir(d);
    if (!e && errno)
        *rc = SH_FAIL_ERRNO(err, SH_E_IO, "could not look into the job's folder");
    return e;
}

int claim_check(const char *dir, int64_t number, struct sh_err *err)
{
    const struct dirent *e;
    bool is_lost = false;
    DIR *d;
    int rc = open_dir(dir, &d, err);

    if (rc)
        return rc;
    while (!is_lost && (e = next_claim_entry(d, &rc, err)))
        is_lost = number_after(CLAIM, e->d_name) > number;
    closedir(d);
    return is_lost ? SH_FAIL(err, SH_E_CONFLICT, "the job has been started elsewhere since") : rc;
}

static int remove_earlier(const char *dir, int64_t number, struct sh_err *err)
{
    const struct dirent *e;
    DIR *d;
    int rc = open_dir(dir, &d, err);

    if (rc)
        return rc;
    while (!rc && (e = next_claim_entry(d, &rc, err))) {
        const int64_t n = SH_MAX(number_after(CLAIM, e->d_name), number_after(STAGED, e->d_name));

        if (n >= 0 && n < number && unlinkat(dirfd(d), e->d_name, 0) < 0 && errno != ENOENT)
            rc = SH_FAIL_ERRNO(err, SH_E_IO, "could not remove what an earlier start has left");
    }
    closedir(d);
    return rc;
}

int claim_take(const char *dir, int64_t number, struct sh_err *err)
{
    char *path = NULL;
    int rc = sh_asprintf(err, &path, "%s/" CLAIM "%" PRId64, dir, number), fd;

    if (rc)
        return rc;
    fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0640);
    if (fd < 0)
        rc = SH_FAIL_ERRNO(err, sh_open_rc(errno), "could not mark the job's folder");
    else
        close(fd);
    if (!rc)
        rc = claim_check(dir, number, err);
    if (!rc)
        rc = remove_earlier(dir, number, err);
    if (rc == SH_E_CONFLICT)
        unlink(path);
    free(path);
    return rc;
}

int claim_stage(const char *dir, int64_t number, const char *name, char **out, struct sh_err *err)
{
    return sh_asprintf(err, out, "%s/" STAGED "%" PRId64 "-%s", dir, number, name);
}

int claim_publish(const char *dir, int64_t number, const char *from, const char *name,
                  struct sh_err *err)
{
    char *to = NULL;
    int rc = claim_check(dir, number, err);

    if (!rc)
        rc = sh_asprintf(err, &to, "%s/%s", dir, name);
    if (!rc && rename(from, to) < 0)
        rc = SH_FAIL_ERRNO(err, errno == ENOENT ? SH_E_CONFLICT : SH_E_IO,
                           "could not give the job's %s its name", name);
    /* Of a lost start nobody would remove it; and where both names are of one file already,
     * rename() leaves both. */
    if (!rc || rc == SH_E_CONFLICT)
        unlink(from);
    free(to);
    return rc;
}
