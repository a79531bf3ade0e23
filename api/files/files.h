/* files.h - files as they are sent, and those of executors on other hosts: what their jobs leave
 * comes in (PUT), what a job goes on from and what a model or dataset consists of goes out (GET).
 *
 * Such a file lies where an executor that shares the folder would have written it, so nobody else
 * knows the difference. The fence is that of the database: a file is put in its place while the row
 * of the job, which says whose it is, cannot change. Of checkpoints the newest two stay.
 */
#ifndef SH_API_FILES_FILES_H
#define SH_API_FILES_FILES_H

#include "api/request/req.h"

/* OWNED fd of a regular file. Fails: SH_E_NOTFOUND, SH_E_IO; what: of the message. */
int files_open(const char *path, const char *what, int *fd, uint64_t *bytes, struct sh_err *err);
/* Whole or in part, or not at all if the client has it; q->reply.etag is set. TAKES fd. */
int files_reply(struct api_req *q, int fd, uint64_t bytes, struct sh_err *err);

#endif
