/* result.h - what a job leaves: its result and the file that belongs to it. Pure, but for the
 * handlers in handlers.h. */
#ifndef SH_API_RESULT_H
#define SH_API_RESULT_H

#include "common/json.h"

/* A job that has not succeeded has no result: SH_E_CONFLICT, saying how it stands. */
int result_is_there(const json_t *job, struct sh_err *err);
/* Name of the job's file in its folder, BORROWED and static; NULL: it has none. */
const char *result_file_name(const json_t *job);

#endif
