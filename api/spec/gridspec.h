/* gridspec.h - the grid of an array of jobs: {"lr": [0.1, 0.01], "batch": [16, 32]} stands for
 * every combination of the values, here four. Pure.
 *
 * A name is a field of the spec, "batch" or "optimizer.lr"; "optimizer." may be omitted.
 * Combinations are numbered from 0, the last name's values changing fastest. jobspec_read() checks
 * the values of each job.
 */
#ifndef SH_API_SPEC_GRIDSPEC_H
#define SH_API_SPEC_GRIDSPEC_H

#include "common/json.h"

#define GRIDSPEC_MAX_NAMES 16

/* *n: number of combinations, at most max. Fails: SH_E_INVALID, SH_E_TOOBIG. */
int gridspec_count(const json_t *grid, size_t max, size_t *n, struct sh_err *err);
/* Changes a job, which is the caller's own, into this combination: sets the fields of its spec,
 * adds a label for each name, "lr" = "0.1", and replaces "{lr}" in its name and labels; a name
 * without such a word gets " lr=0.1 batch=16" appended, as far as there is room. Fails:
 * SH_E_INVALID (such a label exists), SH_E_NOMEM. */
int gridspec_apply(const json_t *grid, size_t combination, json_t *job, struct sh_err *err);

#endif
