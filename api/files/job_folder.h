/* job_folder.h - the folder of a job: what may be in it, and which executor may write it. */
#ifndef SH_API_FILES_JOB_FOLDER_H
#define SH_API_FILES_JOB_FOLDER_H

#include "api/store/store.h"

#define JOB_FOLDER_LOG "log.txt"

/* May a file there have this name? *step: of a checkpoint, else -1. */
bool job_folder_is_name(const char *name, int64_t *step);

/* The folder of the job that q's path names. *out: OWNED, free(). Fails: SH_E_NOTFOUND. */
int job_folder_path(const struct api_req *q, char **out, struct sh_err *err);
/* Checks the file that q's path names, as job_folder_is_name(). Fails: SH_E_NOTFOUND. */
int job_folder_name(const struct api_req *q, int64_t *step, struct sh_err *err);
/* The same for a file that this executor sends: a checkpoint is called as its own are. Fails also:
 * SH_E_INVALID. */
int job_folder_own_name(const struct api_req *q, const struct store_owner *o, int64_t *step,
                        struct sh_err *err);
/* Who sends the file, according to q. out: BORROWED from q. */
int job_folder_owner(const struct api_req *q, struct store_owner *out, struct sh_err *err);
int job_folder_not_owner(const struct store_owner *o, struct sh_err *err); /* SH_E_CONFLICT */
/* Is there room for the request's file, and does the job's executor send it? */
int job_folder_slot(struct api_req *q, struct store_slot *out, struct sh_err *err);

#endif
