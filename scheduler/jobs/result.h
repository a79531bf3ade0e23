/* result.h - what an executor says of a job that is done: JSON, which becomes the job's result and,
 * for a trained model that is published, the next version of the model. Pure. */
#ifndef SH_SCHEDULER_JOBS_RESULT_H
#define SH_SCHEDULER_JOBS_RESULT_H

#include "scheduler/database/store.h"

/* Does it name what such a job leaves? A job would succeed without it otherwise. is_version: it is
 * to become a version. Fails: SH_E_BUG, SH_E_INVALID. */
int result_check(const char *text, bool is_version, struct sh_err *err);
/* Fills w->result, and w->version if the text names a package. */
int result_split(struct store_write *w, const char *text, struct sh_err *err);

#endif
