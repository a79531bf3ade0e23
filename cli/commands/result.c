/* result.c - a job's result, and its file, which is checked before it gets its name. */
#include "cli/client/lists.h"
#include "cli/client/rest.h"
#include "cli/client/upload.h"
#include "cli/commands.h"
#include "cli/commands/job.h"
#include "common/hash.h"
#include "common/mem.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#define STILL_MS 60000 /* the longest time without a byte */

struct download {
    struct cli *c;
    const char *path;   /* of the URL, with the tenant */
    const char *digest; /* hexadecimal; its ETag too */
    int64_t bytes, had; /* had: from the connection before */
    int fd;
    struct progress bar;
};

static void on_progress(int64_t done, int64_t total, void *arg)
{
    struct download *d = arg;
    char text[32];

    (void)total;
    out_bytes((double)(d->had + done), text, sizeof(text));
    progress_show(&d->bar, (double)(d->had + done) / (double)SH_MAX(d->bytes, (int64_t)1),
                  "receiving %s", text);
}

/* One connection, from where the one before broke. */
static int fetch_once(struct download *d, struct sh_err *err)
{
    char range[64], if_range[96];
    struct sh_http_req q = {.method = "GET",
                            .path = d->path,
                            .out_fd = d->fd,
                            .progress = on_progress,
                            .progress_arg = d,
                            .timeout_ms = STILL_MS};
    struct sh_http_reply r = {0};
    int rc;

    if (d->had > 0) {
        snprintf(range, sizeof(range), "Range: bytes=%" PRId64 "-", d->had);
        snprintf(if_range, sizeof(if_range), "If-Range: \"%s\"", d->digest);
        q.headers[0] = range;
        q.headers[1] = if_range;
    }
    rc = sh_http_call(d->c->http, &q, &r, err);
    if (!rc)
        rc = rest_check(d->c, &r, 0, err);
    else
        d->c->exit_code = CLI_NOT_REACHABLE;
    sh_http_reply_fini(&r);
    return rc;
}

/* A connection that breaks is made again as long as that brings more bytes. */
static int fetch_result(struct download *d, struct sh_err *err)
{
    for (;;) {
        struct sh_err one = {0};
        int rc = fetch_once(d, &one);
        int64_t have = lseek(d->fd, 0, SEEK_END);

        if (!rc)
            return SH_OK;
        if ((rc != SH_E_UNAVAILABLE && rc != SH_E_TIMEOUT) || have <= d->had || have >= d->bytes)
            return sh_err_copy(err, &one);
        d->had = have;
    }
}

static int download_check(struct download *d, const char *part, struct sh_err *err)
{
    uint8_t sha[SH_SHA256_BYTES];
    char hex[SH_SHA256_HEX];
    struct cargo file;
    int rc = cargo_file(part, &file, err);

    if (!rc)
        rc = upload_digest(&file, &d->bar, sha, err);
    cargo_fini(&file);
    if (rc)
        return rc;
    sh_hex(sha, sizeof(sha), hex);
    if (strcmp(hex, d->digest) != 0)
        return SH_FAIL(err, SH_E_IO, "what came is not the job's file: its digest is another");
    return SH_OK;
}

/* To FILE.part, then to its name. */
static int save(struct download *d, const char *out, struct sh_err *err)
{
    char *part = NULL;
    int rc = sh_asprintf(err, &part, "%s.part", out);

    if (rc)
        return rc;
    d->fd = open(part, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    if (d->fd < 0) {
        rc = SH_FAIL_ERRNO(err, SH_E_INVALID, "could not write \"%s\": %m", part);
        free(part);
        return rc;
    }
    progress_begin(d->c, &d->bar);
    rc = fetch_result(d, err);
    if (!rc)
        rc = download_check(d, part, err);
    progress_end(&d->bar);
    if (!rc && (fsync(d->fd) || rename(part, out)))
        rc = SH_FAIL_ERRNO(err, SH_E_IO, "could not write \"%s\": %m", out);
    if (rc)
        unlink(part);
    close(d->fd);
    free(part);
    return rc;
}

static int download(struct cli *c, const char *path, const json_t *result, struct sh_err *err)
{
    const json_t *file = json_object_get(result, "artifact");
    struct download d = {.c = c,
                         .digest = sh_json_text(file, "digest"),
                         .bytes = json_integer_value(json_object_get(file, "bytes"))};
    char *full = NULL, bytes[32];
    int rc;

    if (!json_is_object(file))
        return SH_FAIL(err, SH_E_NOTFOUND, "job %s left no file of its own", c->args[0]);
    rc = rest_with_tenant(c, path, &full, err);
    d.path = full;
    if (!rc)
        rc = save(&d, c->conf->out, err);
    if (!rc) {
        out_bytes((double)d.bytes, bytes, sizeof(bytes));
        out_say(c, "Job %s: %s in %s.", c->args[0], bytes, c->conf->out);
    }
    free(full);
    return rc;
}

int job_result(struct cli *c, struct sh_err *err)
{
    char path[REST_PATH_MAX], file[REST_PATH_MAX];
    json_t *j = NULL;
    int rc = job_path(c, path, c->args[0], "result", err);

    if (!rc)
        rc = rest_path(file, err, "api", "v1", "jobs", c->args[0], "result", "artifact", NULL);
    if (!rc)
        rc = rest_get(c, path, REST_TENANT, &j, err);
    if (!rc && c->conf->out && c->conf->out[0])
        rc = download(c, file, j, err);
    if (!rc && (!c->conf->out || !c->conf->out[0] || c->output != OUTPUT_TABLE))
        rc = out_object(c, j, "job", err);
    json_decref(j);
    return rc;
}

int job_result_delete(struct cli *c, struct sh_err *err)
{
    char path[REST_PATH_MAX];
    int rc = rest_path(path, err, "api", "v1", "jobs", c->args[0], "result", "artifact", NULL);

    return rc ? rc
              : list_change(
                    c, &(struct change){.method = "DELETE", .path = path, .flags = REST_TENANT},
                    err, "The file of job %s is removed.", c->args[0]);
}
