/* result.c - a job's result and its file. */
#include "api/api.h"
#include "api/files/files.h"
#include "api/handlers.h"
#include "api/jobs/jobs.h"
#include "api/store/store_job.h"
#include "common/hash.h"
#include "common/mem.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

/* A job that has not succeeded has no result. */
static int is_there(const json_t *job, struct sh_err *err)
{
    const char *state = sh_json_text(job, "state"), *error = sh_json_text(job, "error");
    json_int_t id = json_integer_value(json_object_get(job, "id"));

    if (strcmp(state, "SUCCEEDED") == 0)
        return SH_OK;
    if (strcmp(state, "FAILED") == 0 || strcmp(state, "CANCELLED") == 0 ||
        strcmp(state, "EXPIRED") == 0)
        return SH_FAIL(err, SH_E_CONFLICT,
                       "job %" JSON_INTEGER_FORMAT " is %s and has no result%s%s", id, state,
                       error[0] ? ": " : "", error);
    return SH_FAIL(err, SH_E_CONFLICT,
                   "job %" JSON_INTEGER_FORMAT " is %s; its result is there when it has SUCCEEDED",
                   id, state);
}

/* Of the job's file in its folder; NULL: it has none. */
static const char *file_name(const json_t *job)
{
    const char *digest = sh_json_text(json_object_get(job, "result"), "digest");

    if (strlen(digest) != SH_SHA256_HEX - 1) /* it was trained before results had files */
        return NULL;
    return strcmp(sh_json_text(job, "kind"), "training") == 0 ? "trained.onnx"
                                                              : "result.safetensors";
}

/* The job, which has succeeded. *out: OWNED. */
static int get_job(struct api_req *q, json_t **out, struct sh_err *err)
{
    int rc = jobs_named(q, out, err);

    return rc ? rc : is_there(*out, err);
}

static json_t *describe_file(const json_t *job)
{
    const json_t *result = json_object_get(job, "result");
    const char *name = file_name(job);
    char href[96];

    if (!name)
        return json_null();
    snprintf(href, sizeof(href), "/api/v1/jobs/%" JSON_INTEGER_FORMAT "/result/artifact",
             json_integer_value(json_object_get(job, "id")));
    return json_pack("{s:s, s:O, s:O, s:s}", "name", name, "bytes",
                     json_object_get(result, "bytes"), "digest", json_object_get(result, "digest"),
                     "href", href);
}

int jobs_result(struct api_req *q, struct sh_err *err)
{
    json_t *job = NULL;
    int rc = get_job(q, &job, err);

    if (!rc)
        rc = req_reply(
            q,
            json_pack("{s:O, s:O, s:O, s:O, s:O, s:o, s:O}", "job", json_object_get(job, "id"),
                      "kind", json_object_get(job, "kind"), "state", json_object_get(job, "state"),
                      "result", json_object_get(job, "result"), "version",
                      json_object_get(job, "result_version"), "artifact", describe_file(job),
                      "finished_at", json_object_get(job, "finished_at")),
            NULL, err);
    json_decref(job);
    return rc;
}

/* ------------------------------------------------------------------ the file */

/* Opened only if it is what the job says that it left. */
static int open_result(const struct api_req *q, const json_t *job, const char *name, int *fd,
                       uint64_t *bytes, struct sh_err *err)
{
    const json_t *want = json_object_get(json_object_get(job, "result"), "bytes");
    char *path = NULL, what[64];
    int rc = sh_asprintf(err, &path, "%s/jobs/%s/%s", q->api->conf->state_dir, q->params[0], name);

    *fd = -1;
    if (rc)
        return rc;
    snprintf(what, sizeof(what), "the file of job %.24s", q->params[0]);
    rc = files_open(path, what, fd, bytes, err);
    if (!rc && (json_int_t)*bytes != json_integer_value(want))
        rc = SH_FAIL(err, SH_E_IO, "the file of job %s is damaged", q->params[0]);
    free(path);
    return rc;
}

int jobs_artifact(struct api_req *q, struct sh_err *err)
{
    json_t *job = NULL;
    const char *name = NULL;
    uint64_t bytes = 0;
    int fd = -1, rc = get_job(q, &job, err);

    if (!rc && !(name = file_name(job)))
        rc = SH_FAIL(err, SH_E_NOTFOUND, "job %s left no file of its own", q->params[0]);
    if (!rc)
        rc = open_result(q, job, name, &fd, &bytes, err);
    if (rc) {
        if (fd >= 0)
            close(fd);
        json_decref(job);
        return rc;
    }
    snprintf(q->reply.etag, sizeof(q->reply.etag), "\"%s\"",
             sh_json_text(json_object_get(job, "result"), "digest"));
    rc = files_reply(q, fd, bytes, err);
    snprintf(q->reply.file.disposition, sizeof(q->reply.file.disposition),
             "attachment; filename=\"job-%s-%s\"", q->params[0], name);
    json_decref(job);
    return rc;
}

int jobs_artifact_delete(struct api_req *q, struct sh_err *err)
{
    json_t *job = NULL, *done = NULL;
    char *path = NULL;
    int rc = get_job(q, &job, err);
    const char *name = rc ? NULL : file_name(job);

    if (!rc && name)
        rc = store_job_drop_result(q, q->params[0], &done, err);
    if (!rc && !done)
        rc = SH_FAIL(err, SH_E_NOTFOUND, "job %s has no file of its own", q->params[0]);
    if (!rc)
        rc = sh_asprintf(err, &path, "%s/jobs/%s/%s", q->api->conf->state_dir, q->params[0], name);
    if (!rc && !q->dry_run && unlink(path) && errno != ENOENT)
        rc = SH_FAIL_ERRNO(err, SH_E_IO, "could not remove the file of the job");
    free(path);
    json_decref(done);
    json_decref(job);
    return rc;
}
