/* joblog.c - GET /jobs/{job}/log: what the job's executors have logged so far. */
#include "api/api.h"
#include "api/files/files.h"
#include "api/files/job_folder.h"
#include "api/handlers.h"
#include "api/jobs/jobs.h"
#include "common/mem.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#define TYPE "text/plain; charset=utf-8"

/* It grows, and is written anew when it has become too long: each state of it has an ETag. */
static int name_state(struct api_req *q, int fd, struct sh_err *err)
{
    struct stat st;

    if (fstat(fd, &st))
        return SH_FAIL_ERRNO(err, SH_E_IO, "could not look at the log of a job");
    snprintf(q->reply.etag, sizeof(q->reply.etag), "\"%llx-%llx-%llx%09lx\"",
             (unsigned long long)st.st_ino, (unsigned long long)st.st_size,
             (unsigned long long)st.st_mtim.tv_sec, (unsigned long)st.st_mtim.tv_nsec);
    return SH_OK;
}

int jobs_log(struct api_req *q, struct sh_err *err)
{
    json_t *job = NULL;
    char *path = NULL;
    uint64_t bytes = 0;
    struct sh_err one = {0};
    int fd = -1, rc = jobs_named(q, &job, err);

    if (!rc)
        rc = sh_asprintf(err, &path, "%s/jobs/%s/" JOB_FOLDER_LOG, q->api->conf->state_dir,
                         q->params[0]);
    if (!rc && files_open(path, "the log", &fd, &bytes, &one) == SH_E_NOTFOUND) {
        q->reply.text = ""; /* no executor has had it yet */
        q->reply.text_type = TYPE;
        snprintf(q->reply.etag, sizeof(q->reply.etag), "\"0\"");
    } else if (!rc) {
        rc = sh_err_copy(err, &one);
        if (!rc)
            rc = name_state(q, fd, err);
        if (rc && fd >= 0)
            close(fd);
        if (!rc)
            rc = files_reply(q, fd, bytes, err);
        q->reply.file.type = TYPE;
    }
    json_decref(job);
    free(path);
    return rc;
}
