/* result.h - an executor's report on a finished job: JSON, which becomes the job's result and, for
 * a published model, the next version of the model. Pure. */
#ifndef SH_SCHEDULER_JOBS_RESULT_H
#define SH_SCHEDULER_JOBS_RESULT_H

#include "scheduler/database/store.h"

/* Does the text name everything that such a job leaves? Without it the job must not succeed.
 * is_version: it becomes a version. Fails: SH_E_BUG, SH_E_INVALID. */
int result_check(const char *text, bool is_version, struct sh_err *err);
/* Fills w->result, and w->version if the text names a package. */
int result_split(struct store_write *w, const char *text, struct sh_err *err);

#endif
