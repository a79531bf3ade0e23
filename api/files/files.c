/* files.c - see files.h. */
#include "api/files/files.h"

#include "api/api.h"
#include "api/files/artifact.h"
#include "api/files/job_folder.h"
#include "api/files/upload.h"
#include "api/handlers.h"
#include "api/request/noun.h"
#include "api/request/range.h"
#include "common/ckpt.h"
#include "common/hash.h"
#include "common/log.h"
#include "common/mem.h"
#include "common/safetensors.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

/* ------------------------------------------------------------------ sending */

int files_open(const char *path, const char *what, int *fd, uint64_t *bytes, struct sh_err *err)
{
    struct stat st;
    int rc = SH_OK;

    *fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (*fd < 0 && (errno == ENOENT || errno == ENOTDIR))
        return SH_FAIL(err, SH_E_NOTFOUND, "%s is not there any more", what);
    if (*fd < 0 || fstat(*fd, &st) < 0)
        rc = SH_FAIL_ERRNO(err, SH_E_IO, "could not open %s", what);
    else if (!S_ISREG(st.st_mode))
        rc = SH_FAIL(err, SH_E_IO, "%s is no file", what);
    else
        *bytes = (uint64_t)st.st_size;
    if (rc && *fd >= 0) {
        close(*fd);
        *fd = -1;
    }
    return rc;
}

int files_reply(struct api_req *q, int fd, uint64_t bytes, struct sh_err *err)
{
    struct api_reply *r = &q->reply;
    const char *range = q->h.range;
    int rc = SH_OK;

    r->file = (struct api_file){.is_set = true, .fd = fd, .bytes = bytes};
    if (range_etag_listed(q->h.if_none_match, r->etag)) {
        r->status = 304;
        close(fd);
        r->file.is_set = false;
        return SH_OK;
    }
    if (q->h.if_range && strcmp(q->h.if_range, r->etag) != 0)
        range = NULL; /* a part of another file would be of no use */
    switch (range_parse(range, bytes, &r->file.from, &r->file.bytes)) {
    case RANGE_ALL:
        break;
    case RANGE_PART:
        r->status = 206;
        snprintf(r->content_range, sizeof(r->content_range),
                 "bytes %" PRIu64 "-%" PRIu64 "/%" PRIu64, r->file.from,
                 r->file.from + r->file.bytes - 1, bytes);
        break;
    case RANGE_BAD:
        r->status = 416;
        snprintf(r->content_range, sizeof(r->content_range), "bytes */%" PRIu64, bytes);
        rc = SH_FAIL(err, SH_E_INVALID,
                     "the range begins behind the end of the file, %" PRIu64 " bytes", bytes);
        break;
    }
    return rc;
}

static void name_file(struct api_req *q, const char *name)
{
    snprintf(q->reply.file.disposition, sizeof(q->reply.file.disposition),
             "attachment; filename=\"%s\"", name);
}

/* ------------------------------------------------------------------ models and datasets */

int blobs_get(struct api_req *q, struct sh_err *err)
{
    const char *digest = q->params[0];
    uint64_t bytes = 0;
    int fd = -1, rc = SH_E_NOTFOUND;

    for (size_t i = 0; sh_sha256_is_name(digest, "") && rc == SH_E_NOTFOUND && i < 2; i++) {
        char below[128], *path = NULL;
        struct sh_err one = {0};

        snprintf(below, sizeof(below), i ? "datasets/%s.safetensors" : "packages/%s/model.onnx",
                 digest);
        rc = sh_asprintf(&one, &path, "%s/blobs/%s", q->api->conf->state_dir, below);
        if (!rc)
            rc = files_open(path, "the blob", &fd, &bytes, &one);
        free(path);
        if (rc && rc != SH_E_NOTFOUND)
            sh_err_copy(err, &one);
    }
    if (rc == SH_E_NOTFOUND)
        return noun_missing("blob", digest, err);
    if (rc)
        return rc;
    snprintf(q->reply.etag, sizeof(q->reply.etag), "\"%s\"", digest);
    rc = files_reply(q, fd, bytes, err);
    name_file(q, digest);
    return rc;
}

/* ------------------------------------------------------------------ out of a job's folder */

/* The scheduler may name a checkpoint that newer ones have replaced before it heard of them. */
static int open_job_file(const struct api_req *q, const char *dir, int64_t step,
                         char name[static SH_CKPT_BYTES], int *fd, uint64_t *bytes,
                         struct sh_err *err)
{
    char *path = NULL, newest[SH_CKPT_BYTES];
    int rc = sh_asprintf(err, &path, "%s/%s", dir, q->params[1]);
    struct sh_err one = {0};

    snprintf(name, SH_CKPT_BYTES, "%s", q->params[1]);
    if (rc)
        return rc;
    rc = files_open(path, "the file", fd, bytes, &one);
    if (rc == SH_E_NOTFOUND && step >= 0 && sh_ckpt_newest(dir, INT64_MAX, newest) >= 0) {
        snprintf(name, SH_CKPT_BYTES, "%s", newest);
        free(path);
        path = NULL;
        one = (struct sh_err){0};
        rc = sh_asprintf(&one, &path, "%s/%s", dir, name);
        if (!rc)
            rc = files_open(path, "the file", fd, bytes, &one);
    }
    free(path);
    return rc ? sh_err_copy(err, &one) : SH_OK;
}

int files_get(struct api_req *q, struct sh_err *err)
{
    char *dir = NULL, name[SH_CKPT_BYTES], hex[SH_SHA256_HEX];
    uint64_t bytes = 0;
    int64_t step;
    int fd = -1, rc = job_folder_path(q, &dir, err);

    if (!rc)
        rc = job_folder_name(q, &step, err);
    if (!rc)
        rc = open_job_file(q, dir, step, name, &fd, &bytes, err);
    free(dir);
    if (rc)
        return rc;
    rc = sh_sha256_fd(fd, hex, &bytes, err);
    if (rc) {
        close(fd);
        return rc;
    }
    snprintf(q->reply.etag, sizeof(q->reply.etag), "\"%s\"", hex);
    rc = files_reply(q, fd, bytes, err);
    name_file(q, name);
    return rc;
}

/* ------------------------------------------------------------------ into a job's folder */

struct placing {
    const struct store_owner *owner;
    const char *from, *to, *package; /* package: its model.onnx, instead of from; or NULL */
    bool *done;                      /* the transaction may run again */
};

static int file_place(struct db *db, const void *arg, struct sh_err *err)
{
    const struct placing *p = arg;
    bool owned = false;
    int rc = *p->done ? SH_OK : store_job_owned(db, p->owner, &owned, err);

    if (rc || *p->done)
        return rc;
    if (!owned)
        return job_folder_not_owner(p->owner, err);
    if (p->package) {
        unlink(p->to);
        if (link(p->package, p->to) && (errno != EXDEV || symlink(p->package, p->to)))
            return SH_FAIL_ERRNO(err, SH_E_IO, "could not put the file into the job's folder");
    } else if (rename(p->from, p->to)) {
        return SH_FAIL_ERRNO(err, SH_E_IO, "could not put the file into the job's folder");
    }
    *p->done = true;
    return SH_OK;
}

/* All but the newest one before this. Later ones are of an attempt that has got further, perhaps
 * one that took the job over meanwhile. */
static void remove_older(const char *dir, int64_t step)
{
    char newest[SH_CKPT_BYTES];
    const int64_t keep = sh_ckpt_newest(dir, step, newest);
    const struct dirent *e;
    DIR *d = opendir(dir);

    while (d && (e = readdir(d))) {
        const int64_t s = sh_ckpt_step(e->d_name);

        if (s >= 0 && s < keep)
            unlinkat(dirfd(d), e->d_name, 0);
    }
    if (d)
        closedir(d);
}

/* The trained model as a package, which is where its new version will look for it. */
static int model_publish(struct api_req *q, const char *file, const char *hex, char **model,
                         struct sh_err *err)
{
    struct artifact a = {0};
    int rc = artifact_import_model(q->api->conf, file, hex, "", &a, err);

    if (!rc)
        rc = artifact_place(q->api->conf, file, &a, err);
    if (!rc)
        rc = sh_asprintf(err, model, "%s/blobs/%s/model.onnx", q->api->conf->state_dir, a.path);
    artifact_fini(&a);
    return rc;
}

int files_put(struct api_req *q, struct sh_err *err)
{
    const char *wish = uri_query(&q->uri, "publish"), *file = NULL;
    char hex[SH_SHA256_HEX], *dir = NULL, *to = NULL, *model = NULL;
    bool done = false;
    struct store_owner owner;
    struct placing p = {.owner = &owner, .done = &done};
    int64_t step = -1;
    int rc = job_folder_owner(q, &owner, err);

    if (!rc)
        rc = upload_complete(q, hex, &file, err);
    if (!rc)
        rc = job_folder_path(q, &dir, err);
    if (!rc)
        rc = job_folder_own_name(q, &owner, &step, err);
    if (!rc && mkdir(dir, 0750) && errno != EEXIST)
        rc = SH_FAIL_ERRNO(err, SH_E_IO, "could not make the folder of the job");
    if (!rc && wish && strcmp(wish, "true") == 0)
        rc = model_publish(q, file, hex, &model, err);
    if (!rc)
        rc = sh_asprintf(err, &to, "%s/%s", dir, q->params[1]);
    p.from = file;
    p.to = to;
    p.package = model;
    if (!rc)
        rc = db_tx(q->db, "file_put", file_place, &p, err);
    if (!rc)
        rc = artifact_sync_dir(dir, err);
    if (!rc && step >= 0)
        remove_older(dir, step);
    if (!rc)
        q->reply.status = 204;
    free(model);
    free(to);
    free(dir);
    return rc;
}
