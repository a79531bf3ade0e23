/* job_log_file.c - the file of a job's log, which never exceeds JOB_LOG_MAX.
 *
 * Lines are appended. If there is no room, the file is rewritten and renamed: its beginning, a line
 * that tells how much is missing, and its newest part. So a reader has either the old file or the
 * new one. The file is not synced: a host that loses power loses some lines.
 */
#include "common/buf.h"
#include "common/io.h"
#include "common/mem.h"
#include "executor/files/disk.h"
#include "executor/report/job_log.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#define FILE_MAX (4 * JOB_LOG_MAX) /* more is not ours */

static int read_log_file(int fd, size_t size, struct sh_buf *b, struct sh_err *err)
{
    char *to = NULL;
    ssize_t n = 0;
    int rc = size > FILE_MAX ? SH_FAIL(err, SH_E_TOOBIG, "the log of a job has %zu bytes", size)
                             : sh_buf_reserve(b, size + 1, &to, err);

    if (!rc && (n = sh_pread_all(fd, to, size, 0)) < 0)
        rc = SH_FAIL_ERRNO(err, SH_E_IO, "could not read the log of a job");
    b->len = rc ? 0 : (size_t)n;
    return rc;
}

/* Behind the first line end at or behind `at`. */
static size_t next_log_line(const struct sh_buf *b, size_t at)
{
    const char *nl = at < b->len ? memchr(b->data + at, '\n', b->len - at) : NULL;

    return nl ? (size_t)(nl - b->data) + 1 : b->len;
}

/* What stays of the beginning. *body: where the rest begins, *left: what is missing already. */
static size_t log_head(const struct sh_buf *b, size_t *body, long long *left)
{
    const size_t n = strlen(JOB_LOG_LEFT_OUT);
    size_t at = 0, end = 0;

    *left = 0;
    while (at < b->len && at <= JOB_LOG_HEAD) {
        end = at;
        if (b->len - at > n && memcmp(b->data + at, JOB_LOG_LEFT_OUT, n) == 0) {
            *left = strtoll(b->data + at + n, NULL, 10);
            *body = next_log_line(b, at);
            return at;
        }
        at = next_log_line(b, at);
    }
    *body = end;
    return end;
}

static int shorten(const char *path, const struct sh_buf *all, struct sh_err *err)
{
    struct sh_buf b;
    long long left;
    size_t body, head = log_head(all, &body, &left), tail = all->len - JOB_LOG_TAIL;
    int rc;

    tail = tail > body ? next_log_line(all, tail - 1) : body;
    sh_buf_init(&b, JOB_LOG_MAX);
    rc = sh_buf_append(&b, all->data, head, err);
    if (!rc)
        rc = sh_buf_printf(&b, err, JOB_LOG_LEFT_OUT "%lld\n", left + (long long)(tail - body));
    if (!rc)
        rc = sh_buf_append(&b, all->data + tail, all->len - tail, err);
    if (!rc)
        rc = disk_replace_file(path, &b, "the log of a job", err);
    sh_buf_fini(&b);
    return rc;
}

static int rewrite(int fd, const char *path, size_t size, const char *text, size_t n,
                   struct sh_err *err)
{
    struct sh_buf all;
    int rc;

    sh_buf_init(&all, FILE_MAX + JOB_LOG_MAX);
    rc = read_log_file(fd, size, &all, err);
    if (!rc)
        rc = sh_buf_append(&all, text, n, err);
    if (!rc)
        rc = shorten(path, &all, err);
    sh_buf_fini(&all);
    return rc;
}

/* A process that was killed may have left half a line. */
static bool is_torn_log(int fd, off_t size)
{
    char last = '\n';

    return size > 0 && pread(fd, &last, 1, size - 1) == 1 && last != '\n';
}

int job_log_append(const char *path, const char *text, size_t n, struct sh_err *err)
{
    int fd = open(path, O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0640), rc = SH_OK;
    struct stat st;

    if (fd < 0 || fstat(fd, &st)) {
        rc = SH_FAIL_ERRNO(err, SH_E_IO, "could not open the log of a job");
    } else if ((size_t)st.st_size + n + 1 > JOB_LOG_MAX) {
        rc = rewrite(fd, path, (size_t)st.st_size, text, n, err);
    } else {
        if ((is_torn_log(fd, st.st_size) && !sh_write_all(fd, "\n", 1)) ||
            !sh_write_all(fd, text, n))
            rc = SH_FAIL_ERRNO(err, SH_E_IO, "could not write the log of a job");
        if (rc && ftruncate(fd, st.st_size))
            sh_err_detail(err, "half a line may be left");
    }
    if (fd >= 0)
        close(fd);
    return rc;
}
