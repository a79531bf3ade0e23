/* jobtext.h - words in braces in the texts of a job: "{index}", "{lr}". Pure. */
#ifndef SH_API_SPEC_JOBTEXT_H
#define SH_API_SPEC_JOBTEXT_H

#include "common/json.h"

#include <stdbool.h>

#define JOBTEXT_MAX_WORD 63 /* bytes, without the braces */

/* Puts value in the place of each "{word}" in the job's name and the values of its labels. The job
 * is the caller's own. max_bytes: of one text, afterwards. *in_name, if it is not NULL, becomes
 * true if the name had one, and else stays as it is. Fails: SH_E_TOOBIG, SH_E_NOMEM. */
int jobtext_fill(json_t *job, const char *word, const char *value, size_t max_bytes, bool *in_name,
                 struct sh_err *err);

#endif
