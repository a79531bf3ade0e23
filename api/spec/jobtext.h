/* jobtext.h - words in braces in the texts of a job: "{index}", "{lr}". Pure. */
#ifndef SH_API_SPEC_JOBTEXT_H
#define SH_API_SPEC_JOBTEXT_H

#include "common/json.h"

#include <stdbool.h>

#define JOBTEXT_MAX_WORD 63 /* bytes, without the braces */

/* Replaces each "{word}" in the job's name and label values. The job is the caller's own.
 * max_bytes: limit of one text afterwards. Sets *in_name (may be NULL) if the name had the word,
 * else leaves it. Fails: SH_E_TOOBIG, SH_E_NOMEM. */
int jobtext_fill(json_t *job, const char *word, const char *value, size_t max_bytes, bool *in_name,
                 struct sh_err *err);

#endif
