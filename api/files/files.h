/* files.h - sends files, and serves executors on other hosts: their jobs' files come in (PUT); what
 * a job resumes from, and models and datasets, go out (GET).
 *
 * Such a file is placed where an executor that shares the folder would have written it, so nobody
 * else sees a difference. The database is the fence: a file is put in place while the job's row,
 * which names its owner, cannot change. The two newest checkpoints stay.
 */
#ifndef SH_API_FILES_FILES_H
#define SH_API_FILES_FILES_H

#include "api/request/req.h"

/* Opens a regular file. *fd: OWNED. what: names it in messages. Fails: SH_E_NOTFOUND, SH_E_IO. */
int files_open(const char *path, const char *what, int *fd, uint64_t *bytes, struct sh_err *err);
/* Sends it whole, in part, or not at all if the client has it; q->reply.etag is set. TAKES fd. */
int files_reply(struct api_req *q, int fd, uint64_t bytes, struct sh_err *err);

#endif
