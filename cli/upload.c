/* upload.c - see upload.h. */
#include "cli/upload.h"

#include "cli/out.h"
#include "common/hash.h"
#include "common/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#define CHUNK (1u << 20)
#define STILL_MS 330000 /* the server checks a model for up to 300 s before it answers */

int upload_digest(int fd, int64_t bytes, struct progress *bar, uint8_t *out, struct sh_err *err)
{
    struct sh_sha256 *h = NULL;
    char *chunk = malloc(CHUNK);
    int64_t done = 0;
    int rc =
        chunk ? sh_sha256_new(&h, err) : SH_FAIL(err, SH_E_NOMEM, "could not allocate a buffer");

    while (!rc) {
        ssize_t n = read(fd, chunk, CHUNK);

        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            rc = SH_FAIL_ERRNO(err, SH_E_IO, "could not read the file: %m");
        if (n <= 0)
            break;
        rc = sh_sha256_update(h, chunk, (size_t)n, err);
        done += n;
        progress_show(bar, (double)done / (double)SH_MAX(bytes, (int64_t)1), "reading the file");
    }
    if (!rc && done != bytes)
        rc = SH_FAIL(err, SH_E_IO, "the file changes while it is read");
    if (!rc)
        sh_sha256_final(h, out);
    if (!rc && lseek(fd, 0, SEEK_SET) != 0)
        rc = SH_FAIL_ERRNO(err, SH_E_IO, "could not read the file twice: %m");
    sh_sha256_free(h);
    free(chunk);
    return rc;
}

static int open_file(const char *file, int *fd, int64_t *bytes, struct sh_err *err)
{
    struct stat st;

    *fd = open(file, O_RDONLY | O_CLOEXEC);
    if (*fd < 0 || fstat(*fd, &st) != 0)
        return SH_FAIL_ERRNO(err, SH_E_INVALID, "could not open \"%s\": %m", file);
    if (!S_ISREG(st.st_mode) || st.st_size == 0)
        return SH_FAIL(err, SH_E_INVALID, "\"%s\" is not a file with something in it", file);
    *bytes = st.st_size;
    return SH_OK;
}

int upload_check(const char *file, struct sh_err *err)
{
    int64_t bytes;
    int fd = -1, rc = open_file(file, &fd, &bytes, err);

    if (fd >= 0)
        close(fd);
    return rc;
}

int upload_file(struct cli *c, const char *path, const char *file, json_t **out, struct sh_err *err)
{
    struct sh_http_reply r = {0};
    uint8_t sha[SH_SHA256_BYTES];
    char header[128], *full = NULL;
    struct progress bar;
    int64_t bytes = 0;
    int fd = -1, rc = open_file(file, &fd, &bytes, err);

    *out = NULL;
    progress_begin(c, &bar);
    if (!rc)
        rc = upload_digest(fd, bytes, &bar, sha, err);
    if (!rc)
        rc = rest_open(c, err);
    if (!rc)
        rc = rest_with_tenant(c, path, &full, err);
    if (!rc) {
        struct sh_http_req q = {.method = "PUT",
                                .path = full,
                                .file_fd = fd,
                                .file_bytes = bytes,
                                .type = "application/octet-stream",
                                .headers = {header},
                                .progress = progress_upload,
                                .progress_arg = &bar,
                                .timeout_ms = STILL_MS};

        sh_http_digest_header(sha, header, sizeof(header));
        rc = sh_http_call(c->http, &q, &r, err);
        if (rc)
            c->exit_code = CLI_NOT_REACHABLE;
    }
    progress_end(&bar);
    if (!rc)
        rc = rest_check(c, &r, 0, err);
    if (!rc)
        rc = sh_json_parse(r.body, r.len, 64 << 20, out, err);
    sh_http_reply_fini(&r);
    free(full);
    if (fd >= 0)
        close(fd);
    return rc;
}
