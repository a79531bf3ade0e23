/* arrayspec.h - the indices of an array of jobs, and the job that each of them stands for. Pure. */
#ifndef SH_API_ARRAYSPEC_H
#define SH_API_ARRAYSPEC_H

#include "common/json.h"

#define ARRAYSPEC_MAX_INDEX 1000000

/* "0-99", "0-98:2", "1,5,7-9": ascending or not, none twice, at most max. out: room for max. Fails:
 * SH_E_INVALID, SH_E_TOOBIG. */
int arrayspec_indices(const char *text, int64_t *out, size_t max, size_t *n, struct sh_err *err);
/* The job of an index: "{index}" in its name and in the values of its labels is the index, and the
 * seed of training is the template's plus the index. *out: OWNED. Fails: SH_E_NOMEM, SH_E_INVALID.
 * */
int arrayspec_job(const json_t *template, int64_t index, json_t **out, struct sh_err *err);

#endif
