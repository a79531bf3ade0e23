/* job_folder.h - the folder of a job: what may be in it, and which executor may bring it. */
#ifndef SH_API_FILES_JOB_FOLDER_H
#define SH_API_FILES_JOB_FOLDER_H

#include "api/store/store.h"

#define JOB_FOLDER_LOG "log.txt"

/* A name that an executor may write; *step: of a checkpoint, else -1. */
bool job_folder_is_name(const char *name, int64_t *step);
/* Of the checkpoints in a folder the newest with a step below `below`; -1: there is none. */
int64_t job_folder_newest(const char *dir, int64_t below);

/* Of the job that q's path names. *out: OWNED, free(). Fails: SH_E_NOTFOUND. */
int job_folder_path(const struct api_req *q, char **out, struct sh_err *err);
/* The file that q's path names, as job_folder_is_name(). Fails: SH_E_NOTFOUND. */
int job_folder_name(const struct api_req *q, int64_t *step, struct sh_err *err);
/* Who brings a file, as q says. out is BORROWED from q. */
int job_folder_owner(const struct api_req *q, struct store_owner *out, struct sh_err *err);
int job_folder_not_owner(const struct store_owner *o, struct sh_err *err); /* SH_E_CONFLICT */
/* Is there room for what the request brings, and is it the job's executor that brings it? */
int job_folder_slot(struct api_req *q, struct store_slot *out, struct sh_err *err);

#endif
