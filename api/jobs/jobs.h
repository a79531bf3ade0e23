/* jobs.h - the job that a path names. */
#ifndef SH_API_JOBS_JOBS_H
#define SH_API_JOBS_JOBS_H

#include "api/request/req.h"

/* *out: OWNED. Fails: SH_E_NOTFOUND. */
int jobs_named(struct api_req *q, json_t **out, struct sh_err *err);

#endif
